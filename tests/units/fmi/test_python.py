"""FMUs written in Python and packed by pythonfmu (FMI 2.0) and pythonfmu3 (FMI 3.0)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from fmpy import simulate_fmu

import processes
from cosimo.core.errors import UnitError
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.masters import jacobi
from cosimo.units.fmi.fmu import Fmu, FmuOptions

SOURCES = Path(__file__).parents[2] / "fmus"


def pack(version: int, folder: Path) -> Path:
    tool = "pythonfmu" if version == 2 else "pythonfmu3"
    source = SOURCES / f"python_lag{version}.py"
    processes.run([sys.executable, "-m", tool, "build", "-f", str(source), "-d", str(folder)], check=True, cwd=folder)
    return folder / f"Lag{version}.fmu"


@pytest.mark.parametrize("version", [2, 3])
def test_runs_as_the_formula_says(tmp_path: Path, version: int) -> None:
    path = pack(version, tmp_path)
    system = System({"lag": Fmu(path, parameters={"rate": 4.0}, start={"u": 3.0})})
    result = run(system, jacobi(system, 0.0625), stop=0.9375)
    assert result["lag.x"] == pytest.approx(3.0 * (1.0 - 0.75 ** np.arange(16)), abs=1e-14)


def test_same_trajectory_as_fmpy(tmp_path: Path) -> None:
    path = pack(2, tmp_path)
    theirs = simulate_fmu(str(path), stop_time=0.9375, output_interval=0.0625, start_values={"rate": 4.0})
    system = System({"lag": Fmu(path, parameters={"rate": 4.0})})
    ours = run(system, jacobi(system, 0.0625), stop=0.9375)
    assert np.array_equal(ours.time, theirs["time"])
    assert np.array_equal(ours["lag.x"], theirs["x"])


def test_exception_inside_the_unit(tmp_path: Path) -> None:
    path = pack(2, tmp_path)
    system = System({"lag": Fmu(path, options=FmuOptions(logging=True))})
    with pytest.raises(UnitError, match=r"from t = 1.0 to 1.0625.*the tank is empty") as caught:
        run(system, jacobi(system, 0.0625), stop=2.0)
    assert caught.value.result is not None
    assert caught.value.result.time[-1] == 1.0
    quiet = System({"lag": Fmu(path)})
    with pytest.raises(UnitError, match=r"set FmuOptions\(logging=True\) for more detail"):
        run(quiet, jacobi(quiet, 0.0625), stop=2.0)
