"""What a step of an FMU for model exchange costs, beside a bare C loop over the same CVODE and beside FMPy."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernel import Steps, start
from benchmarks.measure import TURNS, Table, in_turns
from cosimo import masters
from cosimo.core.system import System
from cosimo.execution.engines import KernelEngine
from cosimo.execution.options import EngineOptions
from cosimo.units import Fmu
from cosimo.units.fmi.component import LazyFunctions
from cosimo.units.fmi.fmu import FmuOptions
from cosimo.units.fmi.model_exchange import Solver, sundials

REPEAT, STEPS, H = 15, 2000, 0.01
UNDAMPED = {"c": 0.0}
"""So that there is something to integrate in every turn."""
TIGHTER = 0.01
"""CVODE is given this part of the relative tolerance, as in src/model_exchange/integrators.cpp."""


class BareSolver:
    """Steps of the C loop in solvers.c over one FMU; `anew`: the solver starts anew at every step."""

    def __init__(self, code: ctypes.CDLL, unit: Fmu, library: Path, anew: bool) -> None:
        self._loop, self._anew = code.cvode_loop, anew
        self._input = unit.variables["u"].value_reference
        outputs = [unit.variables[name].value_reference for name in unit.outputs]
        self._out, self.rows = np.array(outputs, dtype=np.uint32), np.zeros((STEPS, 1 + len(outputs)))
        tolerance = TIGHTER * unit.solver.tolerance() if unit.solver is not None else 0.0
        code.cvode_open.restype = ctypes.c_void_p
        words = (str(library).encode(), unit.token.encode(), ctypes.c_size_t(unit.state_count))
        given = np.array([self._input, *(unit.variables[name].value_reference for name in UNDAMPED)], dtype=np.uint32)
        values = np.array([1.0, *UNDAMPED.values()])
        pointers = [ctypes.c_void_p(part.ctypes.data) for part in (given, values)]
        last = (ctypes.c_size_t(len(given)), ctypes.c_double(tolerance))
        self._unit = ctypes.c_void_p(code.cvode_open(*words, *pointers, *last))

    def __call__(self) -> None:
        out, rows = (ctypes.c_void_p(part.ctypes.data) for part in (self._out, self.rows))
        step, given = ctypes.c_double(H), (ctypes.c_uint32(self._input), ctypes.c_double(1.0))
        count = (ctypes.c_long(STEPS), int(self._anew))
        if status := self._loop(self._unit, step, *count, *given, out, ctypes.c_size_t(len(self._out)), rows):
            raise RuntimeError(f"the bare loop met status {status}")


def model_exchange() -> Table:
    """Steps of 10 ms of a linear oscillator with two states, relative tolerance 1e-6."""
    from fmpy import simulate_fmu
    from fmpy.fmi2 import FMU2Model

    # FMPy looks all functions up, also those that nobody calls and this FMU lacks.
    FMU2Model._loadFunctions = lambda self: setattr(self, "_functions", LazyFunctions(self))
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fmus"))
    from hybrid import build_model

    table = Table(
        "A step of an FMU for model exchange",
        ("loop", "µs per macro step", "of the bare loop that starts anew"),
        note="FMI 2.0, an undamped oscillator with a held input, steps of 10 ms, outputs recorded in memory. CVODE has "
        "a hundredth of the relative tolerance of 1e-6, because it starts anew at every step, so that steps can be "
        f"repeated to the bit; FMPy, where it goes on, has 1e-6 itself. {TURNS}",
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = build_model(folder, "LINEAR", 2, flags='completedIntegratorStepNotNeeded="true"')
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder / "extracted")
        (library,) = (folder / "extracted" / "binaries").glob("*/*")
        unit = Fmu(path, options=FmuOptions(kind="model-exchange", solver=Solver()), parameters=UNDAMPED, isolate=False)
        code = _compiled(folder)
        system = System({"a": unit}, inputs={"a.u": 1.0})
        engine = KernelEngine(start(system, masters.jacobi(system, H)), system.outputs, EngineOptions(parallel=False))
        works: dict[str, Any] = {
            "bare": BareSolver(code, unit, library, anew=True),
            "ours": Steps(engine, len(unit.outputs), STEPS),
            "on": BareSolver(code, unit, library, anew=False),
            "fmpy": lambda: simulate_fmu(
                str(folder / "extracted"), fmi_type="ModelExchange", stop_time=STEPS * H, output_interval=H,
                relative_tolerance=1e-6, start_values={"u": 1.0, **UNDAMPED}, record_events=False, validate=False,
            ),
        }  # fmt: skip
        for work in works.values():
            work()
        turns = in_turns(works, REPEAT)
        words = {
            "bare": "C, the solver starts anew at every step",
            "ours": "the compiled loop of `run`",
            "on": "C, the solver goes on",
            "fmpy": "FMPy (`simulate_fmu`)",
        }
        for name, said in words.items():
            table.add(said, f"{turns.median(name) / STEPS * 1e6:.2f}", turns.ratio(name, "bare"))
    return table


def _compiled(folder: Path) -> ctypes.CDLL:
    for path in sundials():
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    target, source = folder / "solvers.so", Path(__file__).with_name("solvers.c")
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", target, source, "-ldl"], check=True)
    return ctypes.CDLL(str(target))
