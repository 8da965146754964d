"""The built-in problems by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.system import System
from cosimo.problems.chain import chain
from cosimo.problems.dc_motor import dc_motor
from cosimo.problems.double_mass_spring_damper import double_mass_spring_damper
from cosimo.problems.four_mass import four_mass
from cosimo.problems.manipulator import manipulator, manipulator_pressure, manipulator_steps
from cosimo.problems.motor_gearbox import motor_gearbox
from cosimo.problems.oscillators import oscillator_linear, oscillator_nonlinear
from cosimo.problems.pendula import pendula
from cosimo.problems.quarter_truck import quarter_truck
from cosimo.problems.tank import tank
from cosimo.problems.thermal_pair import thermal_pair
from cosimo.problems.two_mass import two_mass, two_mass_damped, two_mass_undamped
from cosimo.problems.two_mass_glumac import two_mass_glumac


@dataclass(frozen=True)
class Problem:
    """A built-in system with the step size and duration it is usually run with."""

    name: str
    title: str
    citation: str
    build: Callable[..., System]
    step: float
    stop: float

    @property
    def parameters(self) -> dict[str, float]:
        """The numeric parameters that can be set, with their defaults."""
        signature = inspect.signature(self.build).parameters.values()
        return {p.name: p.default for p in signature if isinstance(p.default, int | float)}

    def system(self, values: Mapping[str, float] | None = None) -> System:
        """The system with some parameters set."""
        for name, value in (values or {}).items():
            if name not in self.parameters:
                raise UnknownNameError(f"parameter of problem '{self.name}'", name, self.parameters)
            if not math.isfinite(value):
                raise ConfigurationError(f"parameter {name} of '{self.name}' must be a finite number, not {value}.")
            if isinstance(self.parameters[name], int) and value != int(value):
                raise ConfigurationError(f"parameter {name} of '{self.name}' is a whole number, not {value}.")
        whole = {n: int(v) if isinstance(self.parameters[n], int) else float(v) for n, v in (values or {}).items()}
        try:
            return self.build(**whole)
        except ArithmeticError as error:
            given = ", ".join(f"{n}={v:g}" for n, v in whole.items())
            raise ConfigurationError(f"problem '{self.name}' has no meaning with {given}: {error}.") from None


_ALL = (
    Problem("two-mass", "two masses, force-displacement coupling", "tamellin2022, Sec. 2.3", two_mass, 1e-3, 20.0),
    Problem("two-mass-undamped", "the same, undamped", "tamellin2022, scenario 1", two_mass_undamped, 1e-3, 20.0),
    Problem("two-mass-damped", "the same, damped", "tamellin2022, scenario 2", two_mass_damped, 1e-3, 20.0),
    Problem("two-mass-glumac", "two heavy, well damped masses", "glumac2018, Sec. 3.1", two_mass_glumac, 1.0, 100.0),
    Problem(
        "double-mass-spring-damper",
        "two masses with a stiff coupling spring",
        "gomes2018, Fig. 2",
        double_mass_spring_damper,
        1e-3,
        10.0,
    ),
    Problem("four-mass", "four masses, two in each unit", "tamellin2022, Sec. 6", four_mass, 3e-3, 10.0),
    Problem("motor-gearbox", "servomotor, elastic gearbox, load", "richiedei2024, Sec. 2", motor_gearbox, 1e-4, 0.5),
    Problem("quarter-truck", "body, suspension, wheel and tyre", "none: usual values", quarter_truck, 1e-3, 3.0),
    Problem("dc-motor", "DC motor under a PI speed controller", "none: usual values", dc_motor, 1e-3, 0.5),
    Problem("tank", "level of a tank under a PI controller", "none: usual values", tank, 0.5, 300.0),
    Problem("thermal-pair", "small body on a large one, stiff", "none: usual values", thermal_pair, 0.05, 60.0),
    Problem(
        "oscillator-linear",
        "two masses, predicted coupling",
        "pikulinski2025, Sec. 3.1.1",
        oscillator_linear,
        0.01,
        10.0,
    ),
    Problem(
        "oscillator-nonlinear",
        "the same with a square-root spring",
        "pikulinski2025, Sec. 3.1.2",
        oscillator_nonlinear,
        0.01,
        10.0,
    ),
    Problem("pendula", "a pendulum and a chain of pendula", "pikulinski2025, Sec. 3.2", pendula, 1e-3, 5.0),
    Problem("manipulator", "hydraulic manipulator, sinusoid", "pikulinski2025, Sec. 3.3.1", manipulator, 0.012, 9.996),
    Problem(
        "manipulator-steps",
        "hydraulic manipulator, steps",
        "pikulinski2025, Sec. 3.3.2",
        manipulator_steps,
        0.012,
        9.996,
    ),
    Problem(
        "manipulator-pressure",
        "hydraulic manipulator, pressures exchanged",
        "pikulinski2025, Sec. 3.3",
        manipulator_pressure,
        0.012,
        9.996,
    ),
    Problem("chain", "n oscillators in a row", "none: for measuring", chain, 0.01, 10.0),
)

CATALOGUE: Mapping[str, Problem] = {problem.name: problem for problem in _ALL}


def find(name: str) -> Problem:
    """The problem of that name."""
    if name not in CATALOGUE:
        raise UnknownNameError("system", name, CATALOGUE)
    return CATALOGUE[name]
