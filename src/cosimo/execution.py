"""Running a system: `run` makes the macro steps, records the rows, and keeps them whatever happens."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from cosimo.core.errors import ConfigurationError, Interrupted, RunError
from cosimo.core.master import Master
from cosimo.core.result import Result, Warned
from cosimo.core.system import System
from cosimo.reference import Interpreter


def run(
    system: System,
    master: Master,
    *,
    stop: float,
    start: float = 0.0,
    record: Literal["outputs", "all"] = "outputs",
) -> Result:
    """Run `system` under `master` from `start` to `stop`; one row per macro step, the initial one included.

    Errors while running carry the rows completed so far in `.result`.
    """
    steps, warnings = _count(start, stop, master.step)
    if record not in ("outputs", "all"):
        raise ConfigurationError(f"record is 'outputs' or 'all', not '{record}'.")
    names = system.outputs + (system.input_names if record == "all" else ())
    rows: list[list[float]] = []
    interpreter = Interpreter(system, master, start)

    def result(complete: bool) -> Result:
        time = start + np.arange(len(rows), dtype=np.float64) * master.step
        found = [*warnings, *([interpreter.unconverged] if interpreter.unconverged else [])]
        info = {"master": master.name, "schedule": str(master), "step": master.step}
        if interpreter.sweeps:
            info |= {"sweeps": np.array(interpreter.sweeps), "residuals": np.array(interpreter.residuals)}
        values = np.array(rows).reshape(len(rows), len(names))
        return Result(names, time, values, tuple(found), complete, info)

    def keep() -> None:
        rows.append(interpreter.outputs() + (interpreter.inputs() if record == "all" else []))

    try:
        interpreter.initialise()
        keep()
        for k in range(steps):
            interpreter.macro_step(k)
            keep()
    except RunError as error:
        error.result = result(complete=False)
        raise
    except KeyboardInterrupt:
        at = start + max(len(rows) - 1, 0) * master.step
        interrupted = Interrupted(f"interrupted at t = {at:g}; the rows so far are kept.")
        interrupted.result = result(complete=False)
        raise interrupted from None
    finally:
        interpreter.close()
    return result(complete=True)


def _count(start: float, stop: float, step: float) -> tuple[int, list[Warned]]:
    """How many macro steps fit, and a warning when they do not end at `stop`."""
    if not (math.isfinite(start) and math.isfinite(stop) and stop > start):
        raise ConfigurationError(f"the stop time ({stop:g}) must be a number greater than the start time ({start:g}).")
    ratio = (stop - start) / step
    steps = round(ratio)
    if abs(ratio - steps) <= 1e-9 * max(1.0, ratio) and steps > 0:
        return steps, []
    steps = math.floor(ratio)
    if steps < 1:
        raise ConfigurationError(f"the macro step {step:g} is longer than the run from {start:g} to {stop:g}.")
    end = start + steps * step
    return steps, [Warned(f"the run ends here: {stop:g} is not a whole number of macro steps of {step:g} away", end)]
