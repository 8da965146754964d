"""A radius that may be compared across step sizes: how much faster, or stronger, may units be?

Every unit i gets two factors, the same for every master and every step, and independent of coordinates:

    rate   ẋ_i = a_i (A_i x_i + B_i u_i)          the unit's whole generator; the same as a step of a_i h
    gain   y_i = b_i (C_i x_i + D_i u_i)          the strength of its response

The relative radius is the smallest s such that factors in [1/(1 + s), 1 + s] bring ρ to 1 (first crossing). It does not
reward spurious damping: all rates times 1 + s is the step h (1 + s), so that the radius at step h is at most h*/h − 1,
with h* the next step at which the master becomes unstable, however small ρ is at h. Units that are passive stay so
under both changes, so that passive units in a lossless coupling lose their stability only by the co-simulation.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from cosimo.algebra import LinearSystem, Operations, coupled_model
from cosimo.analysis.crossing import Crossing, Norm, search
from cosimo.analysis.stability import NEAR_ONE, find_rest, moving_radius
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.quantities import Conversion
from cosimo.core.system import System
from cosimo.core.unit import DiscreteModel, Instance, LinearModel, Unit

Change = Literal["rate", "gain"]
ALL_SIGNS_UP_TO = 6
"""Number of factors up to which every combination of growing, staying and shrinking is searched."""
WORK = 2_000_000
"""Numbers of Φ held at once while many changes are evaluated."""


class Rescaled(Unit):
    """A linear unit with `rate` and `gain`, numbers or arrays (N,) of them for the algebra; it is not run."""

    def __init__(self, unit: Unit, rate: Any = 1.0, gain: Any = 1.0) -> None:
        self.unit, self.rate, self.gain = unit, np.asarray(rate, dtype=float), np.asarray(gain, dtype=float)
        self.inputs, self.outputs, self.start = unit.inputs, unit.outputs, unit.start
        self.input_degree, self.can_restore = unit.input_degree, unit.can_restore

    @property
    def discrete_inputs(self) -> tuple[str, ...]:
        return self.unit.discrete_inputs

    @property
    def initial_state(self) -> Array:
        """As of the unit."""
        return self.unit.initial_state

    def instantiate(self, start_time: float = 0.0) -> Instance:
        raise TypeError("a rescaled unit is analysed, not run")

    def feedthrough(self) -> BoolArray:
        return self.unit.feedthrough()

    def conversion(self, output: int, taker: Unit, variable: int) -> Conversion:
        return self.unit.conversion(output, taker.unit if isinstance(taker, Rescaled) else taker, variable)

    def linear(self) -> LinearModel | None:
        """A and B times the rate, C and D times the gain.

        Of an array of rates only `discrete` gives the stack: the algebra reads the number of states off A.
        """
        model = self.unit.linear()
        if model is None:
            return None
        rate, gain = float(self.rate) if self.rate.ndim == 0 else 1.0, self.gain[..., None, None]
        return LinearModel(model.A * rate, model.B * rate, model.C * gain, model.D * gain)

    def discrete(self, duration: float | Array) -> DiscreteModel:
        """Time runs `rate` times as fast in the unit."""
        if self.rate.ndim == 0:
            return self.unit.discrete(duration * float(self.rate))
        # Along the directions searched the same few rates come again and again: each is discretised once.
        rates, again = np.unique(self.rate, return_inverse=True)
        distinct = self.unit.discrete(duration * rates)
        return DiscreteModel(distinct.A[again], distinct.B[again])


def rescaled(
    system: System, *, rates: Mapping[str, Any] | None = None, gains: Mapping[str, Any] | None = None
) -> System:
    """The system with other rates and gains of some units (1 elsewhere).

    >>> from cosimo.problems import two_mass_glumac
    >>> rescaled(two_mass_glumac(), rates={"one": 2.0}).units["one"].linear().A
    array([[ 0. ,  2. ],
           [-0.4, -0.6]])
    """
    rates, gains = rates or {}, gains or {}
    for name in (*rates, *gains):
        if name not in system.units:
            raise UnknownNameError("unit", name, system.units)
    units = {name: Rescaled(unit, rates.get(name, 1.0), gains.get(name, 1.0)) for name, unit in system.units.items()}
    return System(units, system.connections, inputs=system.inputs, name=system.name)


def rescaled_radii(system: System, master: Master, factors: Array, names: Sequence[tuple[Change, str]]) -> Array:
    """ρ(Φ) for factors (N, k) on the k rates and gains named; overflow counts as infinite."""
    states = sum(len(unit.initial_state) for unit in system.units.values())
    size = max(1, WORK // max(1, 4 * states**2))
    # Other rates and gains of the units leave poles at 0 where they are.
    models = {name: model for name, unit in system.units.items() if (model := unit.linear()) is not None}
    rest = find_rest(coupled_model(system, models).A)
    found = []
    for begin in range(0, len(factors), size):
        part = factors[begin : begin + size]
        of: dict[Change, dict[str, Any]] = {"rate": {}, "gain": {}}
        for (change, unit), column in zip(names, part.T, strict=True):
            of[change][unit] = column
        changed = rescaled(system, rates=of["rate"], gains=of["gain"])
        with np.errstate(over="ignore", invalid="ignore"):
            Phi = LinearSystem(changed, master, Operations(changed, master)).cycle.matrix
        Phi = np.broadcast_to(Phi, (len(part), *Phi.shape[-2:]))
        finite = np.isfinite(Phi).all(axis=(-2, -1))
        rho = np.full(len(part), np.inf)
        rho[finite] = np.abs(np.linalg.eigvals(Phi[finite])).max(axis=-1, initial=0.0)
        for place in np.flatnonzero(np.abs(rho - 1) < NEAR_ONE) if rest.count else ():
            rho[place] = moving_radius(Phi[place], rest, master.step)
        found.append(rho)
    return np.concatenate(found)


def relative_radius(
    system: System,
    master: Master,
    *,
    changes: Sequence[Change] = ("rate", "gain"),
    units: Sequence[str] | None = None,
    limit: float = 9.0,
    norm: Norm = "box",
    shells: int = 48,
) -> Crossing:
    """The smallest change s of the units' rates and gains (factors within 1/(1 + s) … 1 + s) at which ρ crosses 1.

    `changes` and `units` say what may change. Searched are, up to six factors, all combinations of growing, staying
    and shrinking; beyond, each factor alone, all rates or gains together, and the signs of the gradient of ρ. The best
    of these is improved. What is and is not guaranteed is that of `first_crossing`; in addition the result is never
    above h*/h − 1, with h* the next unstable step of the same spacing, if all rates may change.

    >>> from cosimo import masters
    >>> from cosimo.problems import two_mass_glumac
    >>> system = two_mass_glumac()
    >>> for h in (1.0, 4.0, 8.0):
    ...     print(h, round(relative_radius(system, masters.gauss_seidel(system, h)).change, 3))
    1.0 1.144
    4.0 0.259
    8.0 0.098
    """
    units = system.names if units is None else tuple(units)
    for name in units:
        if name not in system.units:
            raise UnknownNameError("unit", name, system.units)
    if not units or not changes or set(changes) - {"rate", "gain"}:
        raise ConfigurationError("a relative radius needs at least one unit and changes among 'rate' and 'gain'.")
    names: list[tuple[Change, str]] = [(change, unit) for change in changes for unit in units]

    def radii(factors: Array) -> Array:
        return rescaled_radii(system, master, factors, names)

    k = len(names)
    if k <= ALL_SIGNS_UP_TO:
        directions = np.array([d for d in itertools.product((-1.0, 0.0, 1.0), repeat=k) if any(d)])
    else:
        directions = _selected(radii, names, limit)
    labels = tuple(f"{unit} {change}" for change, unit in names)
    return search(radii, labels, directions, limit=limit, norm=norm, shells=shells, ahead=7)


def _selected(radii: Any, names: Sequence[tuple[Change, str]], limit: float) -> Array:
    """Directions for many factors: each alone, each kind together, and where ρ grows fastest."""
    k = len(names)
    kinds = [np.array([float(change == kind) for change, _ in names]) for kind in dict.fromkeys(c for c, _ in names)]
    together = [sum(s * kind for s, kind in zip(signs, kinds, strict=True)) for signs in _signs(len(kinds))]
    found = [*np.eye(k), *-np.eye(k), *together]
    d = np.zeros(k)
    # The gradient of ρ, first without a change, then further out in the direction found before.
    for size in np.geomspace(0.05, max(0.1, limit / 3), 5):
        base = (1 + size) ** d
        shift = np.exp(1e-4 * np.eye(k))
        up, down = radii(base * shift), radii(base / shift)
        slope = np.where(np.isfinite(up) & np.isfinite(down), up - down, 0.0)
        if not slope.any():
            break
        d = np.sign(slope)
        found += [d, slope / np.abs(slope).max()]
    return np.unique(np.array(found), axis=0)


def _signs(count: int) -> list[tuple[float, ...]]:
    return [s for s in itertools.product((-1.0, 0.0, 1.0), repeat=count) if any(s)]
