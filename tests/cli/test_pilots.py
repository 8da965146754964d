"""Pilot runs from the command line: their bar, Ctrl-C while they are made, and units that crash in them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from faulty import SEGFAULT, build

import processes
from processes import COSIMO, at_terminal

UNITS = """
import signal, sys, time

def in_a_pilot_run():
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith("pilot_runs.py"):
            return True
        frame = frame.f_back
    return False

class Cubic:
    inputs, outputs = {"u": 0.0}, ("x",)
    def __init__(self):
        self.u, self.x = 0.0, 1.0
    def step(self, now, duration):
        self.x += duration * (self.u - self.x**3)

class Slow(Cubic):
    def step(self, now, duration):
        if in_a_pilot_run():
            time.sleep(3e-4)
        super().step(now, duration)

class Interrupted(Cubic):
    def step(self, now, duration):
        if in_a_pilot_run() and now > 0.5:
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.01)
        super().step(now, duration)
"""
SCENARIO = """
step-size = 0.1
stop-time = 2.0
[units.a]
kind = "python"
class = "units.py:{kind}"
[units.b]
kind = "python"
class = "units.py:Cubic"
[[connections]]
from = "b.x"
to = "a.u"
gain = -1.0
[[connections]]
from = "a.x"
to = "b.u"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "units.py").write_text(UNITS)
    for kind in ("Slow", "Interrupted"):
        (tmp_path / f"{kind.lower()}.toml").write_text(SCENARIO.format(kind=kind))
    return tmp_path


def test_a_bar_shows_how_much_of_the_budget_is_used(folder: Path) -> None:
    code, seen = at_terminal("analyse", "slow.toml", "--target-error", "0.5", cwd=folder)
    assert code == 0, seen
    assert "confirming by short runs: " in seen
    assert " of at most 20 s" in seen


def test_there_is_no_bar_beside_json(folder: Path) -> None:
    code, seen = at_terminal("analyse", "slow.toml", "--json", "--budget", "1", cwd=folder)
    assert code == 0, seen
    assert "confirming by short runs" not in seen


@pytest.mark.parametrize("verb", ["analyse", "tune"])
def test_the_bar_shows_the_budget_that_was_given(verb: str, folder: Path) -> None:
    code, seen = at_terminal(verb, "slow.toml", "--budget", "1", cwd=folder)
    assert code == 0, seen
    assert " of at most 2 s" in seen  # twice over, as recommended masters are run too


@pytest.mark.parametrize("verb", ["analyse", "tune"])
def test_ctrl_c_in_a_pilot_run_ends_the_verb(verb: str, folder: Path) -> None:
    found = processes.run(
        [*COSIMO, verb, "interrupted.toml"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == 130, found
    assert found.stderr.splitlines()[-1].startswith("cosimo: interrupted; ")
    assert "Traceback" not in found.stderr
    assert not found.stdout


FMUS = """step-size = 0.01
stop-time = 10.0
[units.sick]
fmu = {fmu!r}
parameters = {{fault = "segfault", fault_time = 8.0}}
[units.sound]
fmu = {fmu!r}
[[connections]]
from = "sick.y"
to = "sound.u"
"""


def test_a_unit_that_crashes_in_a_pilot_run_is_isolated_there_too(tmp_path: Path) -> None:
    """Long after the experiments of identification."""
    (tmp_path / "two.toml").write_text(FMUS.format(fmu=str(build(tmp_path / "faulty.fmu"))))
    given = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 300, "check": False}
    environment = {**os.environ, "COSIMO_CACHE": "off"}
    words = [*COSIMO, "analyse", "two.toml", "--json"]
    alone = processes.run(words, env=environment, **given)  # type: ignore[call-overload]
    assert alone.returncode == 4
    assert "sick · doStep · t = 8" in alone.stderr
    isolated = processes.run([*words, "--isolate"], env=environment, **given)  # type: ignore[call-overload]
    assert isolated.returncode == 0, isolated.stderr
    fields = json.loads(isolated.stdout)
    assert fields["trust"] == "not assessed"
    assert "pilot runs did not converge (the run failed: " in fields["reasons"]["evidence"]
    assert SEGFAULT in fields["reasons"]["evidence"]
