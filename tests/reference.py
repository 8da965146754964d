"""Runs the Reference FMUs of the Modelica Association in all their kinds, beside FMPy and the solutions inside them.

    python -m tests.reference FOLDER        (make reference FMUS=FOLDER)

Co-simulation has the bits of FMPy, and those of the solution inside the FMU. In model exchange both integrate by CVODE
with a relative tolerance of 1e-10 and differ by `BOTH` of an output's size at most; the solution inside, which explicit
Euler made, is met by that solver with the same steps. Whatever fails makes the exit code 1.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from fmpy import simulate_fmu

import cosimo as co
from cosimo.core.errors import CosimoError
from cosimo.units.fmi.fmu import Fmu, FmuOptions
from cosimo.units.fmi.model_exchange import CO_SIMULATION, MODEL_EXCHANGE, Solver

BOTH = 1e-6
TOLERANCE = 1e-10
STEPS = {"Feedthrough": 0.1, "Resource": 0.1, "StateSpace": 1.0, "Roberts": 1.0}
"""Macro steps of FMUs that propose none."""
STOPS = {"Roberts": 40.0}
"""Its internal step is 1e-3 s: to the proposed end, 1e8 s, a co-simulation would make 1e11 of them."""
EULER = {"Dahlquist": 0.1, "VanDerPol": 0.01, "StateSpace": 1e-3}
"""Micro steps by which explicit Euler gives the solution inside."""
REFUSED = {"Clocks": "is for scheduled execution only"}
ANOTHER = {"Roberts": "BouncingBall"}
"""FMUs that hold the solution of another one."""


def ours(unit: Fmu) -> co.Result:
    """The run of a single FMU, with its start values as inputs."""
    system = co.System({"it": unit}, inputs={f"it.{name}": unit.start[name] for name in unit.inputs})
    stem = unit.path.stem
    step = unit.suggested_step or STEPS[stem]
    stop = STOPS.get(stem, unit.default_experiment["stopTime"])
    return co.run(system, co.masters.jacobi(system, step=step), start=0.0, stop=stop)


def theirs(unit: Fmu, found: co.Result) -> tuple[np.ndarray, np.ndarray]:
    """The times of FMPy's run and its outputs (N, p)."""
    options: dict[str, Any] = {"relative_tolerance": TOLERANCE, "record_events": False}
    stop = STOPS.get(unit.path.stem, unit.default_experiment["stopTime"])
    rows = simulate_fmu(
        str(unit.path),
        fmi_type="CoSimulation" if unit.kind == CO_SIMULATION else "ModelExchange",
        start_time=0.0,
        stop_time=stop,
        output_interval=float(found.time[1]),
        output=[*dict.fromkeys(unit.owners[name] for name in unit.outputs)],
        validate=False,
        **(options if unit.kind == MODEL_EXCHANGE else {}),
    )
    columns = [
        np.asarray(rows[unit.owners[name]]).reshape(len(rows), -1)[:, unit.variables[name].element or 0]
        for name in unit.outputs
    ]
    return np.asarray(rows["time"]), np.column_stack(columns).astype(float)


def solution(unit: Fmu) -> dict[str, list[str]]:
    """The columns of the solution inside the FMU, as they are written."""
    with zipfile.ZipFile(unit.path) as archive:
        text = archive.read(f"extra/org.fmi-standard.fmi-ls-ref/{unit.path.stem}_out.csv").decode()
    head, *lines = csv.reader(io.StringIO(text))
    return {name: [line[place] for line in lines] for place, name in enumerate(head)}


def inside(unit: Fmu) -> tuple[np.ndarray, np.ndarray]:
    """Its times and outputs (N, p): Booleans are 0 and 1, the elements of an array stand in one cell."""
    found, words = solution(unit), {"false": "0", "true": "1"}
    columns = [
        [words.get(cell, cell).split()[unit.variables[name].element or 0] for cell in found[unit.owners[name]]]
        for name in unit.outputs
    ]
    return np.array(found["time"], dtype=float), np.array(columns, dtype=float).T


def difference(unit: Fmu, found: co.Result, times: np.ndarray, rows: np.ndarray) -> tuple[float, int]:
    """The largest difference at the times that both have, as a share of the output's size; and how many these are."""
    near = [int(np.argmin(np.abs(found.time - time))) for time in times]
    both = [k for k, place in enumerate(near) if abs(found.time[place] - times[k]) <= 1e-9 * max(times[k], 1.0)]
    mine = np.column_stack([found[f"it.{name}"] for name in unit.outputs])[[near[k] for k in both]]
    size = np.maximum(np.abs(rows[both]).max(axis=0), 1e-300)
    return float((np.abs(mine - rows[both]) / size).max()), len(both)


def check(path: Path, kind: str) -> tuple[str, bool]:
    """What is found of one FMU in one kind, and whether it is as it should be."""
    stem = path.stem
    solver = Solver(relative_tolerance=TOLERANCE) if kind == MODEL_EXCHANGE else None
    try:
        unit = Fmu(path, options=FmuOptions(kind=kind, solver=solver), isolate=False)
        found = ours(unit)
    except CosimoError as error:
        return str(error).rpartition("' ")[2], stem in REFUSED and REFUSED[stem] in str(error)
    off, count = difference(unit, found, *theirs(unit, found))
    true = count >= len(found) - 1 and off <= (BOTH if solver else 0.0)
    said = f"{count:5} rows, FMPy {off:.2g}"
    if stem in ANOTHER:
        return f"{said}, inside is the solution of {ANOTHER[stem]}", true
    if kind == MODEL_EXCHANGE and stem in EULER:
        euler = Solver(name="euler", micro_step=EULER[stem])
        unit = Fmu(path, options=FmuOptions(kind=kind, solver=euler), isolate=False)
        off, _ = difference(unit, ours(unit), *inside(unit))
        return f"{said}, inside {off:.2g} (euler, micro step {EULER[stem]:g} s)", true and off <= 1e-12
    off, _ = difference(unit, found, *inside(unit))
    if kind == MODEL_EXCHANGE and stem == "BouncingBall":
        return f"{said}, inside {off:.2g} (which bounces at the end of a micro step)", true
    texts = [
        value.hex() if isinstance(value, bytes) else value
        for name in unit.text_outputs
        for value in found[f"it.{name}"]
    ]
    written = [cell for name in unit.text_outputs for cell in solution(unit)[name]]
    return f"{said}, inside {off:.2g}" + (
        f", {len(texts)} texts" if texts else ""
    ), true and off == 0.0 and texts == written


def main(arguments: list[str]) -> int:
    """Print a line for every FMU and kind; 1 where something is wrong, 2 where there is nothing to run."""
    paths = sorted(Path(arguments[0]).glob("*/*.fmu")) if len(arguments) == 1 else []
    if not paths:
        print(f"{' '.join(arguments) or 'FOLDER'}: no folder with FMUs (2.0/NAME.fmu, 3.0/NAME.fmu)", file=sys.stderr)
        return 2
    wrong = 0
    for path in paths:
        for kind in (CO_SIMULATION, MODEL_EXCHANGE):
            said, right = check(path, kind)
            wrong += not right
            print(f"{path.parent.name} {path.stem:13} {kind:15} {said}{'' if right else '   WRONG'}", flush=True)
    print(f"{2 * len(paths)} runs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
