"""Units that change what others compute with, or that log without end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faulty

from cosimo import masters
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.execution.options import Checkpoint, EngineOptions
from cosimo.execution.running import run
from cosimo.formats.results import ResultFile, read_result
from cosimo.units import Fmu, PythonUnit


def made(
    folder: Path, fault: str, *, amount: float = 0.0, isolate: bool = False, **engine: Literal["reference"]
) -> Result:
    path = faulty.build(folder / "faulty.fmu")
    sick = Fmu(path, parameters={"fault": fault, "amount": amount}, isolate=isolate)
    system = System({"sick": sick, "sound": Fmu(path)})
    return run(system, masters.jacobi(system, 0.01), stop=0.5, engine=EngineOptions(**engine))


@pytest.mark.parametrize("engine", [{}, {"kind": "reference"}], ids=["kernel", "reference"])
def test_a_rounding_mode_is_put_back(engine: dict[str, Literal["reference"]], tmp_path: Path) -> None:
    clean, upward = (made(tmp_path, fault, **engine) for fault in ("", "rounding"))
    assert np.array_equal(upward["sound.y"], clean["sound.y"])
    assert 1.0 + 2.0**-53 == 1.0


class Wanders:
    """Changes the working directory in one of its methods."""

    inputs: ClassVar = {"u": 0.0}
    outputs = ("y",)

    def __init__(self, where: str, to: str) -> None:
        self.where, self.to, self.y = where, to, 0.0
        self._go("instantiate")

    def _go(self, where: str) -> None:
        if where == self.where:
            os.chdir(self.to)

    def step(self, time: float, duration: float) -> None:
        self._go("step")
        self.y += duration * (1.0 - self.y)

    def save(self) -> float:
        self._go("save")
        return self.y

    def restore(self, state: float) -> None:
        self._go("restore")
        self.y = state


class Looks:
    """Notes where it finds itself."""

    inputs: ClassVar = {"u": 0.0}
    outputs = ("y",)
    seen: ClassVar[set[str]] = set()
    y = 0.0

    def __init__(self) -> None:
        self.seen.add(os.getcwd())

    def step(self, time: float, duration: float) -> None:
        """Nothing; in the compiled loop, units see what others do."""


@pytest.mark.parametrize("where", ["instantiate", "step", "save", "restore"])
@pytest.mark.parametrize("how", ["plain", "reference", "iterative", "checkpoints"])
def test_a_working_directory_is_put_back(how: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file lies where it was asked for, and the next unit finds itself where it was."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    Looks.seen.clear()
    units = {"wanders": PythonUnit(Wanders, where=where, to=str(elsewhere)), "looks": PythonUnit(Looks)}
    system = System(units)
    master = masters.iterative(system, 0.01, sweeps=2) if how == "iterative" else masters.jacobi(system, 0.01)
    options: dict[str, Any] = {"engine": EngineOptions(kind="reference")} if how == "reference" else {}
    if how == "checkpoints":
        options["checkpoint"] = Checkpoint("own.checkpoint", every=0.0)
    run(system, master, stop=0.5, output=ResultFile("rows.csv"), **options)
    assert Path.cwd() == tmp_path
    assert not list(elsewhere.iterdir())
    assert read_result(tmp_path / "rows.csv").complete
    assert Looks.seen == {str(tmp_path)}


def test_a_working_directory_changed_by_an_fmu_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To one that goes away with the FMU, or to any other."""
    monkeypatch.chdir(tmp_path)
    faulty.build(tmp_path / "faulty.fmu", early="folder_instantiate")
    system = System({"sick": Fmu("faulty.fmu"), "sound": Fmu("faulty.fmu")})
    run(system, masters.jacobi(system, 0.01), stop=0.5, output=ResultFile("rows.csv"))
    assert Path.cwd() == tmp_path
    assert read_result(tmp_path / "rows.csv").complete


@pytest.mark.parametrize("isolate", [False, True])
def test_suppressed_lines_are_told_once(isolate: bool, tmp_path: Path) -> None:
    quiet, loud = (made(tmp_path, "log_flood", amount=lines, isolate=isolate) for lines in (0.0, 20_000.0))
    assert not quiet.warnings
    (told,) = loud.warnings
    assert told.message.startswith("unit 'sick' logged more than is kept (9")  # of 1,000,000
    assert told.message.endswith(" lines suppressed)")
