"""What a hostile unit in a sandbox is kept from, and where there can be no sandbox."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.errors import ConfigurationError, UnitCrashed, UnitTimeout
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.units import Fmu
from cosimo.units.fmi.isolation import Isolation, environment

LINUX = sys.platform == "linux"
SANDBOX = Isolation(sandbox=True, timeout=120.0)
sandbox = pytest.mark.sandbox


def made(fmu: Path, fault: str, text: str = "", isolation: Isolation | bool = SANDBOX) -> Result:
    system = System({"a": Fmu(fmu, isolate=isolation, parameters={"fault": fault, "text": text})})
    return run(system, masters.jacobi(system, 0.01), stop=0.05)


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A short path, as the unit knows no longer ones, beside what a sandbox shows."""
    import tempfile

    descriptor, name = tempfile.mkstemp(dir="/var/tmp")
    os.close(descriptor)
    return Path(name)


@sandbox
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("network", "tried to open a network connection (5 times)"),
        ("fork_bomb", "tried to start a process (40 times)"),
        ("write_home", "tried to write '{secret}'"),
        ("read_key", "tried to read '{secret}'"),
    ],
)
def test_a_hostile_unit_is_refused_and_named(fmu: Path, secret: Path, fault: str, told: str) -> None:
    try:
        clean, open_air, hostile = (
            made(fmu, "", isolation=False),
            made(fmu, fault, str(secret), isolation=True),
            made(fmu, fault, str(secret)),
        )
    finally:
        secret.unlink()
    assert open_air["a.allowed"][-1] > 0  # without a sandbox it does as it likes
    assert hostile["a.allowed"][-1] == 0
    assert np.array_equal(hostile["a.y"], clean["a.y"])
    assert [str(warned) for warned in hostile.warnings if told.format(secret=secret) in str(warned)]


@sandbox
def test_no_folder_that_somebody_left_open_leads_out(fmu: Path, secret: Path) -> None:
    """Shells and programs leave descriptors open; none may reach the unit, nor its starter."""
    folder = os.open("/", os.O_RDONLY)
    try:
        os.set_inheritable(folder, True)
        text = str(secret.relative_to("/"))
        assert made(fmu, "descriptors", text, isolation=False)["a.allowed"][-1] > 0
        assert made(fmu, "descriptors", text, isolation=True)["a.allowed"][-1] == 0
        assert made(fmu, "descriptors", text)["a.allowed"][-1] == 0
        assert made(fmu, "descriptors", f"/proc/1/fd/{folder}/{text}")["a.allowed"][-1] == 0
    finally:
        os.close(folder)
        secret.unlink()


@sandbox
@pytest.mark.parametrize(("fault", "text"), [("environment", "UNLIKELY_KEY=1234567"), ("other_process", "")])
def test_the_starter_of_the_sandbox_is_no_way_out(
    fmu: Path, monkeypatch: pytest.MonkeyPatch, fault: str, text: str
) -> None:
    """It is process 1 in there: with the environment it was given, and without a filter of system calls."""
    monkeypatch.setenv("UNLIKELY_KEY", "1234567")
    assert made(fmu, fault, text)["a.allowed"][-1] == 0


@sandbox
@pytest.mark.parametrize("path", ["/file", "/dev/file", "/dev/shm/file", "/proc/self/comm", "/usr/file"])
def test_all_but_its_own_folder_is_read_only(fmu: Path, path: str) -> None:
    assert made(fmu, "write_home", path)["a.allowed"][-1] == 0
    assert made(fmu, "write_home", "/tmp/file")["a.allowed"][-1] == 5


@sandbox
def test_an_exit_code_is_no_signal(fmu: Path) -> None:
    with pytest.raises(UnitCrashed, match=r"exit code 255"):
        made(fmu, "exit_minus_one")


@sandbox
def test_faults_are_told_from_each_other(fmu: Path) -> None:
    for fault, cause in (("segfault", "SIGSEGV"), ("kill", "SIGKILL"), ("exit", "ended the process")):
        with pytest.raises(UnitCrashed, match=cause) as raised:
            made(fmu, fault)
        assert raised.value.phase == "doStep"
    with pytest.raises(UnitTimeout, match=r"limit of 2\.5 s"):
        made(fmu, "hang", isolation=Isolation(sandbox=True, timeout=2.5))


@sandbox
def test_the_working_directory_is_its_own(fmu: Path) -> None:
    assert made(fmu, "folder").info["steps"] == 5


def test_secrets_in_the_environment_stay_outside() -> None:
    kept = environment({"PATH": "/bin", "LC_ALL": "C", "API_KEY": "x", "HOME": "/home/me"})
    assert kept == {"PATH": "/bin", "LC_ALL": "C", "HOME": "/tmp", "TMPDIR": "/tmp"}


def test_without_bubblewrap_it_is_refused(fmu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ConfigurationError, match="install the package bubblewrap" if LINUX else "on Linux only"):
        Fmu(fmu, isolate=SANDBOX).instantiate()


def test_where_no_sandbox_is_permitted_it_is_refused(
    fmu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    why = r"could not be set up: bwrap: No permissions.*allow user namespaces" if LINUX else "on Linux only"
    with pytest.raises(ConfigurationError, match=why):
        Fmu(fmu, isolate=SANDBOX).instantiate()
