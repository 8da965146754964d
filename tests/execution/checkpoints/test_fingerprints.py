"""What makes up a system and a master is told apart: code, data, and every option of an iteration."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from interrupted import UNIT, interrupt_scenario, write_scenario

from cosimo import masters
from cosimo.core.errors import CheckpointError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence
from cosimo.core.system import Constant, System, Table
from cosimo.execution.checkpoints.fingerprints import fingerprint
from cosimo.formats.results import read_result
from cosimo.formats.resuming import resume
from cosimo.problems import two_mass
from cosimo.units import PythonUnit, StateSpace
from cosimo.units.python import FollowingUnit


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosimo.execution.session.BLOCK", 7)


def test_files_that_changed_are_named(tmp_path: Path) -> None:
    interrupt_scenario(write_scenario(tmp_path), tmp_path / "rows.csv")
    (tmp_path / "tank.py").write_text(UNIT.replace("0.5", "0.6"))
    with pytest.raises(CheckpointError, match=r"unit 'tank' has changed since '.*checkpoint' was written"):
        resume(tmp_path / "rows.csv")
    (tmp_path / "inflow.csv").write_text("time,v\n0,0\n1,3\n")
    with pytest.raises(CheckpointError, match=r"unit 'tank' and external input 'tank.inflow' have changed"):
        resume(tmp_path / "rows.csv")
    (tmp_path / "tank.py").write_text(UNIT)
    with pytest.raises(CheckpointError, match=r"external input 'tank.inflow' has changed"):
        resume(tmp_path / "rows.csv")
    write_scenario(tmp_path)
    resume(tmp_path / "rows.csv")
    assert read_result(tmp_path / "rows.csv").complete


def until(**options: Any) -> Callable[[System], Master]:
    return lambda system: masters.iterative(system, 1e-3, sweeps=Convergence(**options))


def test_every_option_of_a_master_counts() -> None:
    system = two_mass()
    makers = [until(), until(tolerance=1e-4), until(limit=2), until(anderson=2), until(anderson=3)]
    makers += [until(quasi_newton=3), until(quasi_newton=3, jacobian=((0.0,) * 3,) * 3)]
    makers += [lambda s: masters.iterative(s, 1e-3, sweeps=2), lambda s: masters.jacobi(s, 1e-3)]
    found = [fingerprint(system, make(system), 0.0)["master"] for make in makers]
    assert len(set(found)) == len(makers)
    assert found == [fingerprint(system, make(system), 0.0)["master"] for make in makers]


def ramp(slope: float) -> Callable[[float], float]:
    return lambda time: slope * time


def one(time: float) -> float:
    return math.sin(time) if time in {1.0, 2.0} else 0.0


def other(time: float) -> float:
    return math.cos(time) if time in {1.0, 2.0} else 0.0


class Wave:
    def __init__(self, period: float) -> None:
        self.period = period

    def __call__(self, time: float) -> float:
        return math.sin(time / self.period)

    def at(self, time: float) -> float:
        return self(time)


SOURCES: list[Callable[[], Any]] = [
    lambda: Constant(1.0),
    lambda: Constant(1.5),
    lambda: Table([0.0, 1.0], [0.0, 1.0]),
    lambda: Table([0.0, 1.0], [0.0, 2.0]),
    lambda: Table([0.0, 1.0], [0.0, 1.0], interpolation="hold"),
    lambda: ramp(1.0),
    lambda: ramp(2.0),
    lambda: one,
    lambda: other,
    lambda: math.sin,
    lambda: math.cos,
    lambda: functools.partial(pow, 2.0),
    lambda: functools.partial(pow, 3.0),
    lambda: Wave(1.0),
    lambda: Wave(2.0),
    lambda: Wave(2.0).at,
]


def test_external_inputs_are_told_apart_and_recognised() -> None:
    def hashed(source: Any) -> str:
        system = System({"a": StateSpace(-1.0, 1.0, 1.0)}, inputs={"a.u1": source})
        return str(fingerprint(system, masters.jacobi(system, 0.1), 0.0)["inputs"]["a.u1"])

    found = [hashed(make()) for make in SOURCES]
    assert len(set(found)) == len(SOURCES)
    assert found == [hashed(make()) for make in SOURCES]


def test_a_class_of_the_script_itself_is_known_by_its_code() -> None:
    """The rest of a script may change: what was `run` is `resume` the next time."""

    def made(gain: str, rest: str) -> str:
        spaces: dict[str, Any] = {"__name__": "__main__"}
        exec(UNIT.replace("0.5", gain) + rest, spaces)
        system = System({"tank": PythonUnit(spaces["Tank"])})
        return str(fingerprint(system, masters.jacobi(system, 0.1), 0.0)["units"]["tank"])

    assert made("0.5", "run = 1") == made("0.5", "\nresume = 2")
    assert made("0.5", "") != made("0.6", "")


def test_the_micro_step_of_a_unit_that_follows_its_inputs_counts() -> None:
    class Tank:
        inputs, outputs, level = {"inflow": 1.0}, ("level",), 0.0

        def step(self, time: float, duration: float) -> None:
            self.level += duration

    def made(micro_step: float) -> str:
        system = System({"tank": FollowingUnit(Tank, micro_step=micro_step)})
        return str(fingerprint(system, masters.jacobi(system, 0.1), 0.0)["units"]["tank"])

    assert made(0.01) == made(0.01) != made(0.02)
