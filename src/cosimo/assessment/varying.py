"""The error of a master on a system that is linear only piece by piece: one linear system after the other.

The time is cut into windows, each with the system as identified at its beginning. In a window the co-simulation moves
as z' = Φ z + Γ e and the coupled system as x' = exp(A_c h) x + …, which begins in the state that was identified there.
What the co-simulation is ahead of a consistent start, δ = z − z_c(x), is handed to the next window: outputs, inputs and
memories as they are; states through what they do, T = O⁺' O with the observability matrices of the unit before and
after, since models found from outputs alone choose their states anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosimo.algebra import LinearSystem
from cosimo.assessment.accuracy import Predicted, count_steps, measure
from cosimo.assessment.local import LocalSystem
from cosimo.assessment.motion import Motion
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.identification import Identified

LATER, VISIBLE = 0.1, 1e-5
"""Weight of each further step when states of two models are compared by what they do; the share that does nothing."""


@dataclass(frozen=True, eq=False)
class Window:
    """The system as identified at `time`, which holds from there on."""

    time: float
    local: LocalSystem


class VaryingAccuracy:
    """Predicted errors of masters along a run; `sizes` (p,) of the outputs there is what errors are relative to."""

    whole = False

    def __init__(
        self, system: System, windows: Sequence[Window], sizes: Array, *, start: float, horizon: float
    ) -> None:
        self._system, self._windows, self._sizes = system, tuple(windows), sizes
        self.start, self.horizon = start, horizon

    def of_coupling(self, master: Master) -> Predicted:
        """The error of the coupling, piece by piece."""
        steps = count_steps(self.horizon, master.step)
        begins = [min(max(round((w.time - self.start) / master.step), 0), steps) for w in self._windows]
        begins[0] = 0
        ends = [*begins[1:], steps]
        errors = np.zeros((steps + 1, len(self._system.outputs)))
        ahead: Array | None = None
        before: tuple[LocalSystem, LinearSystem] | None = None
        for window, begin, end in zip(self._windows, begins, ends, strict=True):
            if end <= begin and before is not None:
                continue
            linear = LinearSystem(window.local.linear, master)
            if ahead is not None and before is not None:
                ahead = _hand_over(ahead, before[0], before[1], window.local, linear)
            motion = Motion(window.local, linear, self.start + begin * master.step)
            errors[begin : end + 1], ahead = motion.errors(end - begin, ahead)
            before = window.local, linear
            if not np.isfinite(ahead).all():
                errors[begin:] = np.inf
                break
        return measure(self._system.outputs, errors, self._sizes[None, :])

    def of(self, master: Master) -> Predicted:
        """The same: the units' own solvers are as good or bad in the reference as here."""
        return self.of_coupling(master)


def _hand_over(
    ahead: Array, local: LocalSystem, linear: LinearSystem, after: LocalSystem, following: LinearSystem
) -> Array:
    """δ in the numbers of the next window."""
    found = np.zeros(following.size)
    for block in following.layout.blocks:
        if block.kind == "e":
            continue
        here, there = linear.layout[block], following.layout[block]
        if block.kind == "x":
            name = str(block.owner)
            found[there] = _translate(local.units[name], after.units[name]) @ ahead[here]
        elif block.kind != "X":
            found[there] = ahead[here]
    return found


def _translate(unit: Identified, after: Identified) -> Array:
    """T (n', n) with the same outputs to come: O' T = O."""
    if unit.means == "known":
        return np.eye(unit.order)
    rows = max(unit.order, after.order)
    # Both in the same measure: outputs relative to what the states of the next model do to them.
    size = np.abs(after.C).max(axis=1, initial=0.0)
    scale: Array = np.where(size > 0, size, 1.0)[:, None]
    seen, meant = _observability(unit, rows, scale), _observability(after, rows, scale)
    return np.asarray(np.linalg.lstsq(meant, seen, rcond=VISIBLE)[0], dtype=float)


def _observability(unit: Identified, rows: int, scale: Array) -> Array:
    """[C; w C A; w² C A²; …]: what the outputs say now counts most, as the motions to come differ a little."""
    row, found = unit.C / scale, []
    for _ in range(rows):
        found.append(row)
        row = LATER * row @ unit.model.A
    return np.concatenate(found) if found else np.zeros((0, unit.order))
