"""The most critical connection: what a little delay there, or none at all, does to stability and to the error.

A delay of ε macro steps on one connection, all others as they are, is modelled by mixing each sample with the one
before it,

    s'_k = (1 − ε) s_k + ε s_{k−1},

exact to first order in ε, and for −1 < ε < 0 a prediction. The hold itself delays by half a step on average: a sample
taken at the start of the step acts ½ too late, one taken at its end ½ too early. A connection is *fresh* when ε takes
back just that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cosimo.algebra.operations import flattened
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.model import Model
from cosimo.analysis.spectrum import Spectrum
from cosimo.core.arrays import interpolation_matrix
from cosimo.core.coupling import Coupling, CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, timeline

SMALL = 1e-3
"""The delay, in macro steps, over which derivatives are taken."""


@dataclass(frozen=True, eq=False)
class Delayed(Coupling):
    """Like `Hold(inner.degree)`, but each sample mixed with the one before it: `delay` macro steps later."""

    inner: Coupling
    delay: float

    @property
    def history(self) -> int:  # type: ignore[override]
        return self.inner.history + 1

    @property
    def degree(self) -> int:  # type: ignore[override]
        return self.inner.degree

    @property
    def error_order(self) -> int:  # type: ignore[override]
        return 1  # a delay is an error of first order

    def matrices(self, sampling: Sampling) -> CouplingMatrices:
        """The memory holds samples as they came; they are mixed when the polynomial is formed."""
        d, known = self.history, len(sampling.stamps)
        ww, ws, uw = np.zeros((d, d)), np.zeros((d, 1)), np.zeros((self.degree + 1, d))
        ws[0, 0] = 1.0
        for new, old in enumerate(sampling.kept, 1):
            ww[new, old] = 1.0
        used = min(known, self.inner.history)
        mix = np.zeros((used, d))
        for row in range(used):
            earlier = min(row + 1, known - 1)
            gap = float(sampling.stamps[row] - sampling.stamps[earlier])
            share = self.delay / gap if gap else 0.0
            mix[row, row] += 1 - share
            mix[row, earlier] += share
        uw[:used] = interpolation_matrix(sampling.stamps[:used]) @ mix
        return CouplingMatrices(ww, ws, uw)


@dataclass(frozen=True)
class ConnectionEffect:
    """What the delay of one connection does.

    `delay`: how late its samples act on average, in macro steps (½ for a hold from the start of the step, −½ from its
    end); `radius_slope` and `error_slope`: change of ρ(Φ) and of the typical error (root mean square over time and
    outputs) per macro step of delay more; `fresh_radius` and `fresh_error`: both with this delay taken back. Errors are
    NaN where none could be predicted.
    """

    connection: str
    delay: float
    radius_slope: float
    error_slope: float
    fresh_radius: float
    fresh_error: float


def effects(system: System, master: Master, model: Model | None) -> list[ConnectionEffect]:
    """The effect of every connection that is held (the newest sample, or a polynomial through the last ones)."""
    ages = _ages(system, master)
    found = []
    for link in system.links:
        target = link.connection.target
        coupling = master.coupling_of(target)
        if not coupling.interpolates or link.target.unit in master.mixers or target not in ages:
            continue
        delay = ages[target] + (0.5 if coupling.degree == 0 else 0.0)

        def delayed(by: float, target: str = target, coupling: Coupling = coupling) -> tuple[float, float]:
            changed = replace(master, couplings={**master.couplings, target: Delayed(coupling, by)})
            linear = LinearSystem(system, changed)
            try:
                radius = Spectrum(linear).radius
            except (ConfigurationError, np.linalg.LinAlgError):
                radius = math.nan
            return radius, math.nan if model is None or model.rests else model.predict_coupling(changed, linear).typical

        (less, less_error), (more, more_error) = delayed(-SMALL), delayed(SMALL)
        fresh, fresh_error = delayed(-delay)
        slope, error_slope = (more - less) / (2 * SMALL), (more_error - less_error) / (2 * SMALL)
        found.append(ConnectionEffect(str(link.connection), delay, slope, error_slope, fresh, fresh_error))
    return found


def worst_connection(found: list[ConnectionEffect], radius: float, error: float) -> ConnectionEffect | None:
    """The connection whose delay, taken back, helps most: stability first where it is lost, else the error."""
    name = "fresh_radius" if radius > 1 or not math.isfinite(error) else "fresh_error"
    best: ConnectionEffect | None = min(
        found, key=lambda effect: (not math.isfinite(getattr(effect, name)), getattr(effect, name)), default=None
    )
    return best


def _ages(system: System, master: Master) -> Mapping[str, float]:
    """How old the newest sample is when it is used, in macro steps, by target input; of an iteration the last sweep."""
    return {
        link.connection.target: -float(sampling.stamps[0])
        for operation in flattened(timeline(system, master).operations)
        if isinstance(operation, TimedCouple)
        for link, sampling in zip(system.incoming(operation.unit), operation.samplings, strict=True)
    }
