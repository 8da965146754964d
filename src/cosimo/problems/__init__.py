"""Built-in systems with their citations: `problems.two_mass()` builds the problem "two-mass" of the catalogue.

The function of a problem is in the module that its entry names, which is imported when it is looked up, and no other.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:  # the shell completes names from here
    from cosimo.core.system import System

__all__ = ["CATALOGUE", "Problem", "find"]


@dataclass(frozen=True)
class Problem:
    """A built-in system with the step size and duration in s that it is usually run with, and its `module`."""

    name: str
    title: str
    citation: str
    step: float
    stop: float
    module: str

    @property
    def build(self) -> Callable[..., System]:
        """The function that makes the system; all its parameters are keywords with defaults."""
        function: Callable[..., System] = getattr(
            importlib.import_module(f"cosimo.problems.{self.module}"), self.name.replace("-", "_")
        )
        return function

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
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ConfigurationError(f"parameter {name} of '{self.name}' must be a finite number, not {value!r}.")
            if isinstance(self.parameters[name], int) and value != int(value):
                raise ConfigurationError(f"parameter {name} of '{self.name}' is a whole number, not {value}.")
        whole = {n: int(v) if isinstance(self.parameters[n], int) else float(v) for n, v in (values or {}).items()}
        try:
            return self.build(**whole)
        except ArithmeticError as error:
            given = ", ".join(f"{n}={v:g}" for n, v in whole.items())
            raise ConfigurationError(f"problem '{self.name}' is not defined for {given}: {error}.") from None


ARM = "hydraulic manipulator"
_MODULES: Mapping[str, tuple[tuple[str, str, str, float, float], ...]] = {
    "masses": (
        ("two-mass", "two masses, force-displacement coupling", "tamellin2022, Sec. 2.3", 1e-3, 20.0),
        ("two-mass-undamped", "the same, undamped", "tamellin2022, scenario 1", 1e-3, 20.0),
        ("two-mass-damped", "the same, damped", "tamellin2022, scenario 2", 1e-3, 20.0),
        ("two-mass-glumac", "two heavy, well damped masses", "glumac2018, Sec. 3.1", 1.0, 100.0),
        ("double-mass-spring-damper", "two masses with a stiff coupling spring", "gomes2018, Fig. 2", 1e-3, 10.0),
        ("four-mass", "four masses, two in each unit", "tamellin2022, Sec. 6", 3e-3, 10.0),
        ("chain", "n oscillators in a row", "none: for measuring", 0.01, 10.0),
        ("motor-gearbox", "servomotor, elastic gearbox, load", "richiedei2024, Sec. 2", 1e-4, 0.5),
        ("quarter-truck", "body, suspension, wheel and tyre", "none: usual values", 1e-3, 3.0),
    ),
    "plants": (
        ("dc-motor", "DC motor under a PI speed controller", "none: usual values", 1e-3, 0.5),
        ("tank", "level of a tank under a PI controller", "none: usual values", 0.5, 300.0),
        ("thermal-pair", "small body on a large one, stiff", "none: usual values", 0.05, 60.0),
    ),
    "oscillators": (
        ("oscillator-linear", "two masses, predicted coupling", "pikulinski2025, Sec. 3.1.1", 0.01, 10.0),
        ("oscillator-nonlinear", "the same with a square-root spring", "pikulinski2025, Sec. 3.1.2", 0.01, 10.0),
    ),
    "pendulum_chain": (("pendula", "a pendulum and a chain of pendula", "pikulinski2025, Sec. 3.2", 1e-3, 5.0),),
    "hydraulic_manipulator": (
        ("manipulator", f"{ARM}, sinusoid", "pikulinski2025, Sec. 3.3.1", 0.012, 9.996),
        ("manipulator-steps", f"{ARM}, steps", "pikulinski2025, Sec. 3.3.2", 0.012, 9.996),
        ("manipulator-pressure", f"{ARM}, pressures exchanged", "pikulinski2025, Sec. 3.3", 0.012, 9.996),
    ),
}
"""By module: name, title, citation, step and duration in s."""

CATALOGUE: Mapping[str, Problem] = {
    entry[0]: Problem(*entry, module) for module, entries in _MODULES.items() for entry in entries
}


def find(name: str) -> Problem:
    """The problem of that name."""
    if name not in CATALOGUE:
        raise UnknownNameError("system", name, CATALOGUE)
    return CATALOGUE[name]


def require(
    problem: str, values: Mapping[str, object], *, positive: str = "", not_negative: str = "", finite: str = ""
) -> None:
    """Refuse parameters that are no finite numbers of the kind that is asked for, by name.

    >>> require("pendula", {"mass": 1.0, "g": -9.81}, positive="mass", finite="g")
    """
    for least, names in ((math.ulp(0.0), positive), (0.0, not_negative), (-math.inf, finite)):
        for name in names.split():
            value = values[name]
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not (number and value >= least):  # type: ignore[operator]
                kind = f"a {'positive ' if least > 0 else ''}finite number{', 0 or more' if least == 0 else ''}"
                raise ConfigurationError(f"parameter {name} of problem '{problem}' must be {kind}, not {value!r}.")


def __getattr__(name: str) -> Callable[..., System]:
    """The function that builds a problem, loaded when it is first asked for."""
    problem = CATALOGUE.get(name.replace("_", "-"))
    if problem is None or "-" in name:
        raise AttributeError(f"module 'cosimo.problems' has no attribute '{name}'")
    return problem.build


def __dir__() -> list[str]:
    return [*__all__, *(name.replace("-", "_") for name in CATALOGUE)]
