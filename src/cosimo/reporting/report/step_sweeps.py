"""Spectral radius over the macro step, of several masters, and over a parameter of the system as well."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cosimo import masters
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.critical import CriticalStep, EigenvalueSizes
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import is_stable
from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.master import Master
from cosimo.masters.words import describe

if TYPE_CHECKING:
    from cosimo.reporting.report.contents import Contents, Variation

POINTS = 241
IDENTIFIED = 13
"""Steps at which units are identified for a picture."""
DECADES = 1.5
"""How far the picture goes below and above the steps that matter."""
SWEEPS = 2


@dataclass(frozen=True, eq=False)
class RadiusCurve:
    """ρ(Φ) of a master without modes at rest, `radii` (N,), over macro steps (N,); `now`: its own step and radius."""

    name: str
    steps: Array
    radii: Array
    now: tuple[float, float] | None = None
    identified: bool = False

    @property
    def growth(self) -> Array:
        """log ρ / h in 1/s."""
        with np.errstate(divide="ignore"):
            found: Array = np.log(self.radii) / self.steps
        return found

    def stable_ranges(self) -> Iterator[tuple[float, float]]:
        """The runs of steps at which ρ ≤ 1: there may be several."""
        stable = is_stable(self.radii, identified=self.identified)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], stable, [False]]).astype(int)))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            yield float(self.steps[begin]), float(self.steps[end - 1])


def curves(contents: Contents) -> tuple[RadiusCurve, ...]:
    """Of systems that are not large, by equations, or by models that are believed; none otherwise."""
    system, master, linear = contents.system, contents.master, contents.linear
    if system is None or master is None or (linear is None and not (contents.model and contents.model.valid)):
        return ()
    found, identified = [], linear is not system
    try:
        if linear is not None and LinearSystem(linear, master).sparse:
            return ()
        grid = step_grid(contents, POINTS if linear is not None else IDENTIFIED)
        for name, other, now in _candidates(contents, master):
            here = (other.step, float(_radii(contents, other, np.array([other.step]))[0])) if now else None
            found.append(RadiusCurve(name, grid, _radii(contents, other, grid), here, identified))
    except ConfigurationError:
        return tuple(found)  # couplings that learn while running have no matrices
    return tuple(found)


def own_growth(contents: Contents) -> float:
    """The largest real part of the poles of the system itself, in 1/s."""
    if contents.model is not None:
        poles = contents.model.poles
    else:
        assert contents.linear is not None
        assert contents.master is not None
        poles = Spectrum(LinearSystem(contents.linear, contents.master)).poles
    return float(poles.real.max(initial=-math.inf))


def _radii(contents: Contents, master: Master, steps: Array) -> Array:
    """ρ(Φ) (N,) at macro steps; units whose solvers follow the step are identified at each, NaN where that fails."""
    if contents.linear is not None:
        return np.array(EigenvalueSizes(contents.linear, master).sizes(steps)[:, 0])
    return np.array([_radius(contents, master.with_step(step)) for step in steps.tolist()])


def _radius(contents: Contents, master: Master) -> float:
    assert contents.model is not None
    try:
        local = contents.model.linearisation.at(master.step)
        if all(unit.valid for unit in local.units.values()):
            return float(EigenvalueSizes(local.linear, master).sizes(np.array([master.step]))[0, 0])
    except CosimoError:
        pass
    return math.nan


def step_grid(contents: Contents, points: int = POINTS) -> Array:
    """Macro steps around the given one, the critical one and the tuned one."""
    assert contents.master is not None
    known = [contents.master.step]
    limits = contents.verdict.limits if contents.verdict else None
    critical = [contents.verdict.critical_step if contents.verdict else None]
    critical += [limits.jacobi, limits.gauss_seidel, limits.iterative] if limits else []
    known += [limit.step for limit in critical if isinstance(limit, CriticalStep) and 0 < limit.step < math.inf]
    known += [contents.alternative[1].step] if contents.alternative else []
    factor = 10 ** (DECADES / 2)
    found: Array = np.geomspace(min(known) / factor, max(known) * factor, points)
    return found


def _candidates(contents: Contents, master: Master) -> Iterator[tuple[str, Master, bool]]:
    """(name, master, whether its own step is a point): each kind once, the given one first."""
    seen, system = set(), contents.system
    assert system is not None
    if not master.mixers:
        seen.add(_kind(master))
        yield f"{describe(master, system, step=False)} (given)", master, True
    if contents.alternative is not None and not contents.alternative[1].master.mixers:
        role, best = contents.alternative[0], contents.alternative[1].master
        seen.add(_kind(best))
        yield f"{describe(best, system, step=False)} ({role})", best, True
    step = master.step
    others = [masters.jacobi(system, step)]
    if len(system.units) > 1:
        limits = contents.verdict.limits if contents.verdict else None
        order = limits.order if limits else system.names
        others.append(masters.gauss_seidel(system, step, order=order or system.names))
    if all(unit.can_restore for unit in system.units.values()):
        others.append(masters.iterative(system, step, sweeps=SWEEPS))
    for other in others:
        if _kind(other) not in seen:
            seen.add(_kind(other))
            yield describe(other, system, step=False), other, False


def _kind(master: Master) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    special = tuple(sorted((name, repr(coupling)) for name, coupling in master.couplings.items()))
    return str(master), repr(master.coupling), special


# ---- over a parameter ------------------------------------------------------------------------------------------------


COLUMNS = 61
"""Macro steps of a map over a parameter."""


def radius_map(variation: Variation, master: Master, steps: Array) -> tuple[Array, Array]:
    """The values (N,) and ρ(Φ) (N, steps) of `master`; NaN where the system has no meaning with a value."""
    values = variation.values()
    radii = np.full((len(values), len(steps)), np.nan)
    reason: CosimoError | None = None
    for row, value in enumerate(values):
        try:
            radii[row] = EigenvalueSizes(variation.build(float(value)), master).sizes(steps)[:, 0]
        except CosimoError as error:
            reason = error
    if reason is not None and np.isnan(radii).all():
        raise ConfigurationError(f"parameter {variation.name} cannot be varied: {reason}")
    return values, radii
