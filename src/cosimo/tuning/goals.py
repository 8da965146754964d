"""What a good master is: the goals of the search, and the error of all outputs as an objective of the batch.

    error        largest error of any output within the horizon, relative to the largest value of that output
    robustness   relative radius: how much faster or stronger the units may be until the coupling is unstable; maximised
    cost         unit steps per simulated second
    radius       ρ(Φ), glumac2018
    defect       δ, glumac2018, Eq. 59, with k = 2 in the 2-norm

`error`, `robustness` and `cost` are the default: none of them rewards spurious damping, as ρ does across step sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.formatting import MOST_ROBUST
from cosimo.tuning.backends import Stack
from cosimo.tuning.binding import Bound
from cosimo.tuning.objectives import Accuracy, Columns, Objective, _powers

SMALLEST = 1e-12
"""Errors below this are rounding; they count alike."""
SEGMENT = 24
"""Samples per segment of the early steps."""


@dataclass(frozen=True)
class Goal:
    """One number to make small, or with `maximise` large; `logarithmic`: what counts is its ratio."""

    name: str
    maximise: bool = False
    logarithmic: bool = False

    def scaled(self, values: Array) -> Array:
        """Values in which the search measures distances, the smaller the better; dominance stays as it is."""
        if self.name == "robustness":
            found: Array = -np.log10(1 + np.clip(values, 0.0, MOST_ROBUST))
        elif self.logarithmic:
            found = np.log10(np.maximum(values, SMALLEST))
        else:
            found = -values if self.maximise else values
        return found


GOALS = {
    goal.name: goal
    for goal in (
        Goal("error", logarithmic=True),
        Goal("robustness", maximise=True),
        Goal("cost", logarithmic=True),
        Goal("radius"),
        Goal("defect"),
    )
}
DEFAULT = ("error", "robustness", "cost")


def find_goals(names: Sequence[str] | None) -> tuple[Goal, ...]:
    """The goals by name; the default without names.

    >>> [goal.name for goal in find_goals(None)]
    ['error', 'robustness', 'cost']
    """
    chosen = DEFAULT if names is None else tuple(names)
    for name in chosen:
        if name not in GOALS:
            raise UnknownNameError("objective", name, GOALS)
    if not chosen or len(set(chosen)) != len(chosen):
        raise ConfigurationError("objectives must be at least one, all different.")
    return tuple(GOALS[name] for name in chosen)


@dataclass(frozen=True, eq=False)
class OutputError(Objective):
    """`error` = max over outputs j and k h ≤ `horizon` of ‖(S_y Φ^k E − C_c exp(A_c k h))_j X‖ / size_j.

    X (n, c) are the initial states, c = 1: the error of the run from there; the unit matrix: of the worst start.
    `sizes` (p,) are those of the outputs; outputs of size 0 are left out. Of many macro steps not all are looked at:
    evenly spread ones, as in `Accuracy`, and for what happens early the first `SEGMENT` ones, as many every 4 steps, …
    """

    columns: Array
    sizes: Array
    horizon: float
    samples: int = 160

    def compute(self, bound: Bound) -> Columns:
        backend = bound.backend
        with backend.quiet():
            walk = _Walk(self, bound)
            counts = np.maximum(np.floor(self.horizon / bound.varied.steps * (1 + 1e-12)), 1.0)
            stride, samples = Accuracy(self.horizon, self.samples).points(bound.varied.steps)
            error = walk.error(stride, samples)
            leap, done = 1, 0
            while done < counts.max() and (stride > leap).any():
                inside = np.clip(np.ceil((counts - done) / leap), 0, SEGMENT).astype(np.int64)
                error = backend.xp.maximum(error, walk.error(np.full(len(stride), leap), inside, done))
                done += SEGMENT * leap
                leap *= 4
        return {"error": error}


class _Walk:
    """Co-simulation and exact solution of all masters of a batch, side by side."""

    def __init__(self, wanted: OutputError, bound: Bound) -> None:
        self.bound, self.backend = bound, bound.backend
        program, blocks = bound.program, bound.program.needed()
        end = bound.macro_step(bound.identity(blocks))
        self.Phi = bound.full(bound.gather(end, blocks))
        self.y = bound.full(bound.observe(program.outputs, end))
        self.C = bound.chosen(program.exact_outputs)
        X = self.backend.array(wanted.columns[:, :, None])
        self.z = bound.full(self.backend.multiply(bound.gather(bound.start(), blocks), X))
        self.x = bound.full(X)
        self.flow = program.exact_flow.at(bound.grid, 1.0, self.backend)
        moving = wanted.sizes > 0
        self.weight = self.backend.array(np.where(moving, 1 / np.where(moving, wanted.sizes, 1.0), 0.0)[:, None])

    def error(self, stride: Any, samples: Any, done: int = 0) -> Stack:
        """The largest error after done + stride, done + 2 stride, … macro steps, `samples` of them."""
        backend, xp = self.backend, self.backend.xp
        before = np.full(len(stride), done)
        # y_k = Y Φ^(k−1) E: the first sample begins one step early.
        z = backend.multiply(_powers(self.Phi, before + stride - 1, backend), self.z)
        x = backend.multiply(_powers(self.flow, before + stride, backend), self.x)
        leap, flow = _powers(self.Phi, stride, backend), _powers(self.flow, stride, backend)
        error, number = backend.zeros(len(stride)), backend.array(samples)
        for sample in range(1, int(samples.max(initial=0)) + 1):
            off = backend.multiply(self.y, z) - backend.multiply(self.C, x)
            worst = xp.amax((off * off).sum(1) ** 0.5 * self.weight, 0)
            worst = xp.where(xp.isfinite(worst), worst, xp.inf)
            error = xp.where(number >= sample, xp.maximum(error, worst), error)
            z, x = backend.multiply(leap, z), backend.multiply(flow, x)
        return error
