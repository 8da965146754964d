"""An exported FMU run through FMPy, with one face for both versions of the standard."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fmpy
import numpy as np
from fmpy.fmi2 import FMU2Slave, fmi2CallbackFunctions, fmi2CallbackLoggerTYPE
from fmpy.fmi3 import FMU3Slave

from cosimo.formats.export import export_unit
from cosimo.units import Mechanical, StateSpace


class Exported:
    """A unit exported to `folder`, extracted there and instantiated; `messages` holds what it logged."""

    def __init__(self, unit: Any, folder: Path, *, fmi: int):
        self.fmi, self.unit, self.messages = fmi, unit, []
        self.folder = folder / f"extracted {fmi}"
        if self.folder.exists():
            shutil.rmtree(self.folder)
        fmpy.extract(str(export_unit(unit, folder / f"unit{fmi}.fmu", name="the unit", fmi=fmi)), str(self.folder))
        self.description = fmpy.read_model_description(str(self.folder))
        self.reference = {variable.name: variable.valueReference for variable in self.description.modelVariables}
        self.fmu = self.another(self.description.guid)
        self.initialise = self._initialise2 if fmi == 2 else self._initialise3

    def another(self, token: str) -> Any:
        """One more instance of the same FMU."""
        arguments = {
            "guid": token,
            "unzipDirectory": str(self.folder),
            "modelIdentifier": self.description.coSimulation.modelIdentifier,
            "instanceName": "instance",
        }
        if self.fmi == 2:
            fmu = FMU2Slave(**arguments)
            callbacks = fmi2CallbackFunctions()
            callbacks.logger = fmi2CallbackLoggerTYPE(lambda *given: self.messages.append(given[4].decode()))
            fmu.instantiate(callbacks=callbacks)
        else:
            fmu = FMU3Slave(**arguments)
            fmu.instantiate(logMessage=lambda *given: self.messages.append(given[3].decode()))
        return fmu

    def _initialise2(self, **values: float) -> None:
        self.fmu.setupExperiment(startTime=0.0)
        self.set(**values)
        self.fmu.enterInitializationMode()
        self.fmu.exitInitializationMode()

    def _initialise3(self, **values: float) -> None:
        self.set(**values)
        self.fmu.enterInitializationMode(startTime=0.0)
        self.fmu.exitInitializationMode()

    def refer(self, names: Any) -> list[int]:
        """The value references of these variables."""
        return [self.reference[name] for name in names]

    def set(self, **values: float) -> None:
        """Set variables by name."""
        put = self.fmu.setReal if self.fmi == 2 else self.fmu.setFloat64
        put(self.refer(values), list(values.values()))

    def set_inputs(self, values: Any) -> None:
        """Set all inputs."""
        self.set(**dict(zip(self.unit.inputs, values, strict=True)))

    def set_derivatives(self, order: int, values: Any) -> None:
        """Set the derivatives of all inputs (FMI 2.0 only)."""
        names = self.unit.inputs
        self.fmu.setRealInputDerivatives(self.refer(names), [order] * len(names), list(values))

    def get(self, *names: str) -> np.ndarray:
        """Variables by name; all outputs when none is given."""
        take = self.fmu.getReal if self.fmi == 2 else self.fmu.getFloat64
        return np.array(take(self.refer(names or self.unit.outputs)))

    def step(self, time: float, duration: float) -> None:
        """One communication step."""
        self.fmu.doStep(time, duration)

    def jacobian(self, unknowns: Any, knowns: Any) -> np.ndarray:
        """Column by column, by directional derivatives."""
        columns = [
            self.fmu.getDirectionalDerivative(self.refer(unknowns), self.refer(knowns), list(seed))
            for seed in np.eye(len(knowns))
        ]
        return np.array(columns).T


def many_sided(integrator: Any, micro_steps: int) -> StateSpace:
    """Five states (more than the library adds up at once), two inputs, three outputs, feedthrough."""
    rng = np.random.default_rng(7)
    A = rng.normal(size=(5, 5)) - 2 * np.eye(5)
    B, C = rng.normal(size=(5, 2)), rng.normal(size=(3, 5))
    D = np.array([[0.0, 0.5], [0.0, 0.0], [-2.0, 0.0]])
    C[1, :3] = 0.0
    return StateSpace(
        A, B, C, D, initial=rng.normal(size=5), integrator=integrator, micro_steps=micro_steps, start={"u1": 0.25}
    )


def oscillator(integrator: Any = None, micro_steps: int = 1, **options: Any) -> Mechanical:
    """A mass on a spring: force in, position and acceleration out."""
    given = {
        "B": 1.0,
        "displacement": [[1.0], [0.0]],
        "acceleration": [[0.0], [1.0]],
        "inputs": ["force"],
        "outputs": ["position", "acceleration"],
        "initial": [1.0, -0.5],
        "integrator": integrator,
        "micro_steps": micro_steps,
    }
    return Mechanical(2.0, 0.3, 50.0, **given | options)
