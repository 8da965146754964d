"""Files that are none: reading a pipe never ends, and reading a device fills the memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import cosimo as co
from cosimo import masters, problems
from cosimo.core.errors import ConfigurationError
from cosimo.formats.results import read_result


@pytest.mark.parametrize("name", ["pipe.fmu", "pipe.toml", "pipe.ssp"])
def test_a_pipe_is_refused_before_it_is_read(name: str, tmp_path: Path) -> None:
    pipe = tmp_path / name
    os.mkfifo(pipe)
    with pytest.raises(ConfigurationError, match="is not a regular file"):
        co.Fmu(pipe) if name.endswith("fmu") else co.load(pipe)


@pytest.mark.parametrize("target", ["/dev/zero", "/proc/self/mem"])
def test_a_device_is_no_fmu(target: str, tmp_path: Path) -> None:
    link = tmp_path / "linked.fmu"
    link.symlink_to(target)
    with pytest.raises(ConfigurationError, match=r"is not a regular file|is not a zip archive"):
        co.Fmu(link)


def test_a_scenario_that_names_a_pipe_is_refused_with_file_and_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.fmu")
    scenario = tmp_path / "case.toml"
    scenario.write_text('step-size = 0.1\nstop-time = 1.0\n[units.a]\nfmu = "a.fmu"\n')
    with pytest.raises(ConfigurationError, match=r"case.toml:\d+: .*is not a regular file"):
        co.load(scenario)


def test_a_pipe_is_no_result(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.csv")
    with pytest.raises(ConfigurationError, match="is not a regular file"):
        read_result(tmp_path / "rows.csv")


def test_a_hyperperiod_without_end_is_refused() -> None:
    system = problems.quarter_truck()
    with pytest.raises(ConfigurationError, match="repeats after 1,000,000,000,000 base steps"):
        masters.multirate(system, 1e-3, multiples={"wheel": 10**12})
    assert masters.multirate(system, 1e-3, multiples={"wheel": 20, "chassis": 50}).step == pytest.approx(0.1)
