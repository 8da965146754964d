"""Units whose states cannot be saved or put back are refused before the run, with the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosimo import masters
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.execution.options import Checkpoint
from cosimo.execution.running import run
from cosimo.formats.results import ResultFile
from cosimo.units import PythonUnit


class Tank:
    inputs, outputs = {"inflow": 0.0}, ("level",)

    def __init__(self) -> None:
        self.level = 1.0

    def step(self, time: float, duration: float) -> None:
        self.level += duration * (self.inflow - self.level)

    def save(self) -> Any:
        return {"level": self.level}

    def restore(self, state: Any) -> None:
        self.level = state["level"]


class CannotRestore(Tank):
    def restore(self, state: Any) -> None:
        self.level = state["depth"]


class CannotSave(Tank):
    def save(self) -> Any:
        raise RuntimeError("the sensor is busy")


class LostAfterwards(Tank):
    def restore(self, state: Any) -> None:
        del self.level


class OnlyItself(Tank):
    """Its saved state is a number in a list that only the same object has."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[float] = []

    def save(self) -> Any:
        self.kept.append(self.level)
        return len(self.kept) - 1

    def restore(self, state: Any) -> None:
        self.level = self.kept[state]


def checkpointed(kind: type, folder: Path) -> None:
    system = System({"tank": PythonUnit(kind)})
    output = ResultFile(folder / "rows.csv")
    run(system, masters.jacobi(system, 0.1), stop=1.0, output=output, checkpoint=Checkpoint(every=0.0))


def iterated(kind: type) -> None:
    system = System({"tank": PythonUnit(kind)})
    run(system, masters.iterative(system, 0.1, sweeps=2), stop=1.0)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (CannotRestore, r"putting it back failed \(KeyError: 'depth'\)"),
        (LostAfterwards, r"after that, it failed \(AttributeError: .*level.*\)"),
        (OnlyItself, r"putting it back failed \(IndexError: .*\)"),
    ],
)
def test_states_that_cannot_be_put_back(kind: type, cause: str, tmp_path: Path) -> None:
    whole = rf"^unit 'tank' does not restore its state: {cause}; run without checkpoints\.$"
    with pytest.raises(ConfigurationError, match=whole) as found:
        checkpointed(kind, tmp_path)
    assert found.value.exit_code == 2
    assert not any(tmp_path.iterdir())


def test_states_that_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"state of unit 'tank', which cannot be written: the sensor is busy"):
        checkpointed(CannotSave, tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"saving it failed \(RuntimeError: the sensor is busy\); use a master"
    ):
        iterated(CannotSave)
    with pytest.raises(ConfigurationError, match=r"putting it back failed \(KeyError: 'depth'\); use a master"):
        iterated(CannotRestore)


def test_an_iteration_restores_into_the_same_instance(tmp_path: Path) -> None:
    iterated(OnlyItself)
    iterated(Tank)
    checkpointed(Tank, tmp_path)
