"""Units given by C functions, compiled once per process, and exported FMUs of the systems that tests run."""

from __future__ import annotations

import ctypes
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from compiling import compile_library

from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.formats.export import export_system
from cosimo.units import Fmu, NativeUnit

SOURCE = Path(__file__).with_name("native_units.c")
KERNEL, REFERENCE = EngineOptions(), EngineOptions(kind="reference")


def compile_units(folder: Path) -> Path:
    """The shared library of `native_units.c`, compiled into `folder`."""
    target = folder / "native_units.so"
    target.write_bytes(compile_library(SOURCE))
    return target


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return ctypes.CDLL(str(compile_units(Path(folder))))


def address(function: str, library: ctypes.CDLL | None = None) -> int:
    """Where a function of `native_units.c` is."""
    found = getattr(library or _library(), function)
    return ctypes.cast(found, ctypes.c_void_p).value or 0


def lag(
    initial: float = 1.0, *, step: str = "lag_step", settings: tuple[float, ...] = (), **options: Any
) -> NativeUnit:
    """ẋ = u − x by forward Euler; other step functions of the same kind take `settings`."""
    given: dict[str, Any] = {"inputs": ["u"], "outputs": ["y"], "initial": [initial, *settings], "start": {"u": 0.25}}
    return NativeUnit(address(step), initial_outputs=[initial], **given | options)


def mixed(first: float = 1.0, second: float = -0.5) -> NativeUnit:
    """Two states, inputs and outputs, with feedthrough."""
    step, output = address("mixed_step"), address("mixed_output")
    return NativeUnit(step, output, inputs=["u", "v"], outputs=["y", "z"], initial=[first, second], start={"v": 0.1})


def bits(result: Result) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Every recorded number as an integer, so that also the signs of zeros count."""
    return np.ascontiguousarray(result.to_numpy()).view(np.int64)


def require_same(system: System, master: Master, *, steps: int = 12, start: float = 0.0) -> Result:
    """Run with both engines and compare every bit of every row, the sweeps, residuals and warnings."""
    stop = start + steps * master.step
    ours, oracle = (
        run(system, master, start=start, stop=stop, record="all", engine=engine) for engine in (KERNEL, REFERENCE)
    )
    assert ours.names == oracle.names
    assert len(ours) == len(oracle) == steps + 1
    assert np.array_equal(bits(ours), bits(oracle))
    for kept in ("sweeps", "largest_residual", "unconverged"):
        assert ours.info.get(kept) == oracle.info.get(kept)
    assert ours.warnings == oracle.warnings
    return ours


def exported(system: System, folder: Path, *, fmi: int) -> System:
    """The same system with every unit as an exported FMU."""
    files = export_system(system, folder / f"fmi{fmi}", fmi=fmi)  # type: ignore[arg-type]
    units = {name: Fmu(path, name=name) for name, path in files.items()}
    return System(units, system.connections, inputs=system.inputs, name=system.name)
