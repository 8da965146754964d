"""Whether two one-step maps of a unit are of the same motion, told by what comes out and not by their states.

Eigenvalues will not do: a model of a unit that is not quite linear has states that hardly show, other ones at every
identification. What is compared are the free motion and the answers to steps of the inputs.
"""

from __future__ import annotations

import numpy as np

from cosimo.analysis.identification import Identified
from cosimo.core.arrays import Array
from cosimo.core.unit import LinearModel
from cosimo.units.integrators import Exact, discretise

ROWS = 40


def responses(found: Identified, A: Array, B: Array, rows: int = ROWS) -> Array:
    """What comes out over `rows` steps of the map A, B (n, m): answers to a step of every input, and the free motion.

    (rows, p, m + 1); the free motion is that under the inputs held at the operating point, less its first row.
    """
    n, m = B.shape
    push = found.held + found.input_offset
    states = np.hstack([np.zeros((n, m)), found.initial[:, None]])
    steady = np.hstack([B, (B @ push)[:, None]])
    through = np.hstack([found.D, (found.D @ push + found.output_offset)[:, None]])
    seen = np.empty((rows, len(found.C), m + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for row in range(rows):
            seen[row] = found.C @ states + through
            states = A @ states + steady
        seen[:, :, m] -= seen[0, :, m].copy()
    return seen


def converted(found: Identified, step: float) -> tuple[Array, Array] | None:
    """The map A, B of the unit at another step by its continuous model, or None without one."""
    generator, m = found.generator, found.D.shape[1]
    if found.means == "known":
        known = found.source.discrete(step)
        return known.A, known.B[:, :m]
    if generator is None:
        return None
    model: LinearModel = generator
    exact = discretise(model, Exact(), 1, step)
    return exact.A, exact.B[:, :m]


def apart(found: Identified, other: Identified) -> float:
    """How far `found`, converted to the step of `other`, answers from it: relative, channel by channel, the largest.

    Infinite where `found` cannot be converted.
    """
    if found.means == "known":
        return 0.0
    there = converted(found, other.step)
    if there is None:
        return np.inf
    ours, theirs = responses(found, *there), responses(other, other.model.A, other.model.B[:, : other.D.shape[1]])
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return np.inf
    size = np.abs(theirs).max(axis=0)
    # Channels that hardly show count by what shows most of the same output, or of the same input.
    size = np.maximum(size, 1e-3 * size.max(axis=1, keepdims=True) * (size > 0))
    difference = np.abs(ours - theirs).max(axis=0)
    share = np.divide(difference, size, out=np.zeros_like(size), where=size > 0)
    return float(share.max(initial=0.0))
