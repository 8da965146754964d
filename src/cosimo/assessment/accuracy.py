"""How wrong the outputs will be: the linear co-simulation with its inputs against the coupled system without coupling.

    e_j = max_k |y_j,k − y_j(t_k)| / max_k |y_j(t_k)|        for every output j, from the initial state of the system

Included are the initial states, offsets and start values, external inputs as functions of time, the error of the
coupling, and the error of the units' own solvers as far as it depends on the step: where the equations of a unit are
not given by derivatives, the truth is what its solver tends to as the step is halved again and again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cosimo.analysis import GlobalError
from cosimo.assessment.limits import Base
from cosimo.assessment.local import Linearisation, LocalSystem
from cosimo.assessment.motion import cosimulated, undivided
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.timing import timeline

MOST_STEPS = 500_000
"""How many macro steps are followed at most."""
HALVINGS = 5
ENOUGH = 0.02
"""Part of the error by which the truth may still move when the step is halved."""
COARSER = 1.5
"""How much longer than the master's the first step may be at which the truth is looked for."""


def count_steps(horizon: float, step: float) -> int:
    """The macro steps of a horizon."""
    if horizon / step > MOST_STEPS:
        raise ConfigurationError(
            f"a horizon of {horizon:g} s is more than {MOST_STEPS:,} macro steps of {step:g} s; shorten it."
        )
    return max(1, round(horizon / step))


@dataclass(frozen=True)
class Predicted(GlobalError):
    """A predicted error; `typical` is the root mean square over time and outputs, each relative to its size."""

    typical: float = math.nan

    @property
    def worst(self) -> float:
        """The largest relative error of any output."""
        return max(self.outputs.values(), default=0.0)


def compare(system: System, master: Master, rows: Array, exact: Array) -> Predicted:
    """The errors of `rows` (N + 1, p) from `exact`, each output compared at the time at which it is read."""
    clocks = timeline(system, master).clocks
    wanted = exact.copy()
    for place, name in enumerate(system.outputs):
        if clocks[system.output(name).unit].read < 1:
            wanted[1:, place] = exact[:-1, place]
    with np.errstate(over="ignore", invalid="ignore"):
        return measure(system.outputs, rows - wanted, exact)


def measure(names: Sequence[str], difference: Array, exact: Array) -> Predicted:
    """The sizes of differences (N + 1, p) from what is `exact`; unbounded where they left the range of numbers."""
    steps = len(difference) - 1
    # A number that overflows when it is squared is as good as infinite.
    if not (np.abs(difference) < 1e100).all():
        unbounded = dict.fromkeys(names, math.inf)
        return Predicted(math.inf, math.inf, math.inf, unbounded, steps, False, math.inf)
    size = np.abs(exact).max(axis=0)
    shares = np.abs(difference) / np.where(size > 0, size, 1.0)
    total, scale = np.linalg.norm(difference, axis=1), float(np.linalg.norm(exact, axis=1).max())
    outputs = dict(zip(names, shares.max(axis=0).tolist(), strict=True))
    share = float(total.max() / scale) if scale > 0 else math.nan
    typical = float(np.sqrt(np.mean(shares**2))) if shares.size else 0.0
    return Predicted(float(total.max()), float(total[-1]), share, outputs, steps, False, typical)


class Prediction(Protocol):
    """What predicts the error of masters over a horizon."""

    horizon: float

    def of_coupling(self, master: Master) -> Predicted:
        """The error of the coupling alone, quickly; for searches."""

    def of(self, master: Master) -> Predicted:
        """The whole error, with that of the units' own solvers, as well as it can be said."""


class Accuracy:
    """Predicted errors of masters on a linearised system, over one horizon."""

    def __init__(self, linearisation: Linearisation, base: Base, *, start: float, horizon: float) -> None:
        self._linearisation, self.base, self.start, self.horizon = linearisation, base, start, horizon
        self._plain: dict[float, Array] = {}

    def of_coupling(self, master: Master) -> Predicted:
        """The error of the coupling alone, from the system converted to the master's step: quick, for searches."""
        local, steps = self.base.local, count_steps(self.horizon, master.step)
        if master.step not in self._plain:
            self._plain[master.step] = undivided(
                local, step=master.step, start=self.start, steps=steps, coupled=local.converted
            )
        rows = cosimulated(local, master, start=self.start, steps=steps)
        return compare(local.linear, master, rows, self._plain[master.step])

    def of(self, master: Master) -> Predicted:
        """The whole error, with the units identified at the master's step."""
        local = self.base.local if self.base.exact else self._linearisation.at(master.step)
        steps = count_steps(self.horizon, master.step)
        rows = cosimulated(local, master, start=self.start, steps=steps)
        return compare(local.linear, master, rows, self._truth(local, master, rows))

    def _truth(self, local: LocalSystem, master: Master, rows: Array) -> Array:
        steps = len(rows) - 1
        levels: list[Array] = []

        def flow(system: LocalSystem) -> Array:
            return undivided(system, step=master.step, start=self.start, steps=steps)

        if self.base.exact or local.own:
            return flow(local)
        step = self._first_rung(master.step)
        for _ in range(HALVINGS + 1):
            finer = self._try(step)
            if finer is not None and finer.continuous:
                levels.append(flow(finer))
                if len(levels) > 1 and _settled(levels, rows):
                    return levels[-1]
                if len(levels) > 2 and (extrapolated := _extrapolate(levels)) is not None:
                    return extrapolated
            step /= 2
        if not levels:
            raise ConfigurationError("the units have no continuous model at any step tried; give another step.")
        return levels[-1]

    def _first_rung(self, step: float) -> float:
        """Halves of the base's step, the same for all masters: what one has identified serves the next."""
        base = self.base.local.step
        return base / 2.0 ** max(0, math.ceil(math.log2(base / (COARSER * step))))

    def _try(self, step: float) -> LocalSystem | None:
        try:
            return self._linearisation.at(step)
        except CosimoError:
            return None


def _settled(levels: Sequence[Array], rows: Array) -> bool:
    """Whether the last halving changed little compared with the error that is to be measured."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved, error = np.abs(levels[-1] - levels[-2]).max(axis=0), np.abs(rows - levels[-1]).max(axis=0)
        size = np.abs(levels[-1]).max(axis=0)
        return bool((moved <= np.maximum(ENOUGH * error, 1e-9 * size)).all())


def _extrapolate(levels: Sequence[Array]) -> Array | None:
    """What the last three levels tend to, if they shrink towards it by a constant factor 2^p; else None."""
    first, second = levels[-2] - levels[-3], levels[-1] - levels[-2]
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    size = np.abs(levels[-1]).max(axis=0)
    scale = np.where(size > 0, size, 1.0)
    before, after = first / scale, second / scale
    factor = float((before * before).sum() / max((before * after).sum(), 1e-300))
    # The shapes of both changes must agree, not only their sizes.
    rest = float(np.linalg.norm(before - factor * after)) / max(float(np.linalg.norm(before)), 1e-300)
    if not (1.5 <= factor <= 40.0 and rest <= 0.25):
        return None
    return levels[-1] + second / (factor - 1)
