"""The test bed: coupled systems of real FMUs, each with a reference trajectory that no coupling enters.

    two-oscillators    two masses, one with the coupling spring       symplectic Euler
    quarter-truck      body and suspension, wheel and tyre            exact
    dc-motor           motor, PI speed controller                     RK4, 20 micro steps
    thermal-pair       small body, large body with contact, stiff     forward Euler, 10 micro steps
    tank               tank and PI level controller, linear           exact
    tank-limited       the same with √h outflow and limited inflow    RK4, micro steps of 0.5 s
    pendulum           pendulum with friction, actuator with limit    RK4 of 5 ms, forward Euler of 2 ms

`systems(folder, ...)` builds them with or without state saving and directional derivatives, for FMI 2.0 or 3.0;
`CASES` says how long and how finely each is usually run; `reference(name, times)` is the truth;
`critical_step_by_bisection` finds the step at which runs begin to diverge.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.linalg import expm

from cosimo import problems
from cosimo.algebra import coupled_model
from cosimo.core.system import Constant, System
from cosimo.units import Fmu

from .bisection import critical_step_by_bisection, ending
from .build import Fmi, Options, build_model, export_linear
from .nonlinear import PENDULUM, TANK, Nonlinear

__all__ = [
    "CASES",
    "LINEAR",
    "NONLINEAR",
    "Case",
    "critical_step_by_bisection",
    "ending",
    "reference",
    "systems",
]

Array = npt.NDArray[np.float64]
NEAR = 1e-4
"""How far from rest, relative to the size of each state there, runs begin that shall stay close to it."""


@dataclass(frozen=True)
class Case:
    """A system: what it is made of, its usual horizon and a step that is fine for it, in s, and where to look for the
    critical step of masters that do not iterate (stable at the lower end, unstable at the upper one)."""

    horizon: float
    step: float
    search: tuple[float, float]
    linear: Callable[[], System] | None = None
    nonlinear: Nonlinear | None = None


def two_oscillators() -> System:
    """Two masses of 1 kg with springs of 10, 40 and 100 N/m and dampers of 1 N s/m; they start with ±1 m/s."""
    return problems.two_mass(k1=10.0, k2=100.0, kc=40.0, damping=1.0, velocities=(1.0, -1.0), name="two-oscillators")


CASES: Mapping[str, Case] = {
    "two-oscillators": Case(5.0, 1e-3, (0.02, 0.15), two_oscillators),
    "quarter-truck": Case(3.0, 1e-3, (2e-3, 0.04), problems.quarter_truck),
    "dc-motor": Case(0.5, 1e-4, (2e-3, 0.03), problems.dc_motor),
    "thermal-pair": Case(60.0, 0.01, (0.1, 1.0), problems.thermal_pair),
    "tank": Case(300.0, 0.1, (2.0, 20.0), problems.tank),
    "tank-limited": Case(300.0, 0.1, (2.0, 20.0), nonlinear=TANK),
    "pendulum": Case(4.0, 1e-3, (0.01, 0.3), nonlinear=PENDULUM),
}
LINEAR = tuple(name for name, case in CASES.items() if case.linear)
NONLINEAR = tuple(name for name, case in CASES.items() if case.nonlinear)


def systems(
    folder: Path, *, states: bool = True, derivatives: bool = True, fmi: Fmi = 2, near_rest: bool = False
) -> dict[str, System]:
    """All systems as coupled FMUs, written below `folder`.

    `states` and `derivatives` say whether the FMUs can save states and give directional derivatives. With `near_rest`
    the nonlinear ones start so close to where they come to rest that they behave like their linear part there.
    """
    options = Options(states, derivatives, fmi)
    built = {}
    for name, case in CASES.items():
        place = folder / f"{name}-{fmi}{'' if states else '-stateless'}{'' if derivatives else '-underived'}"
        place.mkdir(parents=True, exist_ok=True)
        if case.linear:
            built[name] = _couple_linear(name, case.linear(), place, options)
        elif case.nonlinear:
            built[name] = _couple_nonlinear(name, case.nonlinear, place, options, near_rest)
    return built


def reference(name: str, times: Array) -> Array:
    """All outputs of the undivided system at the increasing `times` (K, p), from the usual start.

    Linear systems flow by exponentials, exact to rounding; nonlinear ones are integrated as one model, to about 1e-10.
    """
    case = CASES[name]
    return _flow(case.linear(), times) if case.linear else case.nonlinear.reference(times)  # type: ignore[union-attr]


def _couple_linear(name: str, system: System, folder: Path, options: Options) -> System:
    paths = export_linear(system, folder, options)
    units = {unit: Fmu(path) for unit, path in paths.items()}
    return System(units, system.connections, inputs=system.inputs, name=name)


def _couple_nonlinear(name: str, case: Nonlinear, folder: Path, options: Options, near_rest: bool) -> System:
    rest = iter(case.equilibrium() if near_rest else ())
    units = {}
    for unit, model in case.models.items():
        path = build_model(model, folder / f"{unit}.fmu", options)
        near = {state: x + NEAR * max(abs(x), 1.0) for state, x in zip(model.states, rest, strict=False)}
        units[unit] = Fmu(path, start=near)
    return System(units, case.connections, inputs=case.inputs, name=name)


def _flow(system: System, times: Array) -> Array:
    """y = C x + d with ẋ = A x + b: the coupled model with constant external inputs and offsets."""
    coupled = coupled_model(system, {name: unit.linear() for name, unit in system.units.items()})  # type: ignore[misc]
    given = []
    for inlet in itertools.chain.from_iterable(system.inlets.values()):
        assert inlet.source is None or isinstance(inlet.source, Constant), f"{inlet.target} is not constant"
        fed = inlet.link.connection.offset if inlet.link else inlet.start
        given.append(inlet.source.value if inlet.source else fed)
    d = coupled.solve_loop(coupled.D @ given)
    b = coupled.B @ (coupled.L @ d + given)
    n = len(b)
    A = np.zeros((n + 1, n + 1))
    A[:n, :n], A[:n, n] = coupled.A, b
    x0 = np.concatenate([*(unit.initial_state for unit in system.units.values()), [1.0]])
    states = np.empty((len(times), n + 1))
    states[0] = expm(A * times[0]) @ x0
    gaps = np.diff(times)
    even = len(gaps) > 0 and np.ptp(gaps) <= 1e-9 * gaps[0]
    flow = expm(A * (times[-1] - times[0]) / len(gaps)) if even else None
    for k, gap in enumerate(gaps):
        states[k + 1] = (expm(A * gap) if flow is None else flow) @ states[k]
    outputs: Array = states[:, :n] @ coupled.C.T + d
    return outputs
