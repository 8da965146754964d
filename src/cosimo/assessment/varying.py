"""The error of a master on a system that is linear only piece by piece: one linear system after the other.

The time is cut into windows, each with the system as identified at its beginning. In a window the co-simulation moves
as z' = Φ z + Γ e and the coupled system as x' = exp(A_c h) x + …, which begins in the state that was identified there.
What the co-simulation is ahead of a consistent start, δ = z − z_c(x), is handed to the next window: outputs, inputs and
memories as they are; states through what they do, T = O⁺' O with the observability matrices of the unit before and
after, since models found from outputs alone choose their states anew each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from cosimo.algebra import LinearSystem
from cosimo.assessment.accuracy import Predicted, count_steps, measure
from cosimo.assessment.local import LocalSystem
from cosimo.assessment.motion import Motion
from cosimo.assessment.solvers import own_errors, sent_round
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.result import Result
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
    """Predicted errors of masters along the `reference` run; errors are relative to the sizes of the outputs there."""

    def __init__(self, system: System, windows: Sequence[Window], reference: Result, *, horizon: float) -> None:
        self._system, self._windows, self._reference = system, tuple(windows), reference
        self.start, self.horizon = float(reference.time[0]), horizon
        self._own: dict[float, Array] = {}
        self._sizes = np.array([np.abs(reference[name]).max() for name in system.outputs])

    def of_coupling(self, master: Master) -> Predicted:
        """The error of the coupling, piece by piece."""
        return self._measure(self._by_coupling(master))

    def of(self, master: Master) -> Predicted:
        """With that of the units' own solvers; to first order they add up."""
        coupling = self._by_coupling(master)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._measure(coupling + self._by_solvers(master.step, len(coupling) - 1))

    def _measure(self, errors: Array) -> Predicted:
        return measure(self._system.outputs, errors, self._sizes[None, :])

    def _pieces(self, step: float, steps: int) -> Iterator[tuple[LocalSystem, int, int]]:
        """The system of every window, and the macro steps at which it begins and ends."""
        begins = [min(max(round((w.time - self.start) / step), 0), steps) for w in self._windows]
        begins[0] = 0
        for place, (window, begin, end) in enumerate(zip(self._windows, begins, [*begins[1:], steps], strict=True)):
            if end > begin or place == 0:
                yield window.local, begin, end

    def _by_coupling(self, master: Master) -> Array:
        """y_k − y(t_k) (steps + 1, p); infinite from where it leaves the range of numbers."""
        steps = count_steps(self.horizon, master.step)
        errors = np.zeros((steps + 1, len(self._system.outputs)))
        ahead: Array | None = None
        before: tuple[LocalSystem, LinearSystem] | None = None
        for local, begin, end in self._pieces(master.step, steps):
            linear = LinearSystem(local.linear, master)
            if ahead is not None and before is not None:
                ahead = _hand_over(ahead, before[0], before[1], local, linear)
            motion = Motion(local, linear, self.start + begin * master.step)
            errors[begin : end + 1], ahead = motion.errors(end - begin, ahead)
            before = local, linear
            if not np.isfinite(ahead).all():
                errors[begin:] = np.inf
                break
        return errors

    def _by_solvers(self, step: float, steps: int) -> Array:
        """δy (steps + 1, p) of the units' own errors, sent round through the couplings of every window."""
        if step not in self._own:
            self._own[step] = own_errors(self._system, self._reference, step=step, steps=steps)
        own = self._own[step]
        errors, x = np.zeros_like(own), np.zeros(0)
        before: LocalSystem | None = None
        for local, begin, end in self._pieces(step, steps):
            if before is None:
                x = np.zeros(sum(unit.order for unit in local.units.values()))
            else:
                x = block_diag(*(_translate(before.units[name], unit) for name, unit in local.units.items())) @ x
            errors[begin : end + 1], x = sent_round(local.converted, step, own[begin : end + 1], x)
            before = local
        return errors


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
