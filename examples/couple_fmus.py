"""Couple FMUs: describe them, connect them, run them under a master that was chosen before.

The FMUs are two masses of ours, written as FMUs first, so that nothing has to be downloaded; an FMU of yours is used in
the same way. Describing one reads its XML only; the library inside is loaded when a run begins, and the folder it was
extracted to is removed when the FMU is no longer used. What the FMUs compute is compared with the units they came from.
"""

import tempfile
from pathlib import Path
from typing import Literal

import numpy as np

import cosimo as co
from cosimo.couplings import Hold
from cosimo.formats.export import export_unit

STEP, STOP = 4e-3, 5.0
linear = co.problems.two_mass()


def as_fmus(folder: str, fmi: Literal[2, 3]) -> co.System:
    """The two masses as FMUs, connected as in any system: output to input, with a sign where one is needed."""
    units = {
        name: co.Fmu(export_unit(unit, Path(folder, f"{name}{fmi}.fmu"), name=name, fmi=fmi))
        for name, unit in linear.units.items()
    }
    for fmu in units.values():
        names = f"in {', '.join(fmu.inputs)}, out {', '.join(fmu.outputs)}"
        print(f"{fmu.path.name}: FMI {fmu.fmi_version}, {names}, input derivatives up to {fmu.input_degree}")
    connections = [("two.x", "one.x2"), ("two.v", "one.v2"), co.Connection("one.f", "two.f", gain=-1.0)]
    return co.System(units, connections, name=f"two masses as FMI {fmi} FMUs")


with tempfile.TemporaryDirectory() as folder:
    for fmi in (2, 3):
        coupled = as_fmus(folder, fmi)
        # A linear hold begins at the sample before and leads to the newest one. FMI 3 has no input derivatives for
        # co-simulation: such a unit would be given the old sample alone, so it gets a constant, the newest.
        hold = Hold(1) if coupled.units["one"].input_degree else Hold(0)
        order = ["two", "one"]
        master = co.masters.gauss_seidel(coupled, STEP, order=order, coupling=hold)
        # FMUs say nothing of their equations: they are identified, and short runs confirm what follows.
        verdict = co.analyse(coupled, master, horizon=STOP)
        result = co.run(coupled, master, stop=STOP)
        expected = co.run(linear, co.masters.gauss_seidel(linear, STEP, order=order, coupling=hold), stop=STOP)
        difference = np.abs(result.values - expected.values).max(axis=0) / np.abs(expected.values).max(axis=0)
        same = "equal to the linear units" if difference.max() < 1e-12 else f"off by {difference.max():.1e}"
        print(f"  hold {hold.degree}: {verdict.headline} ({verdict.evidence})")
        print(f"  {result}, {same}")
