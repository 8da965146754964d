"""Models with no more states than matter, of units that are linear only for a while.

The answers of a unit that bends along its motion can be reproduced by ever more states: products of its motions look
like modes of their own. They do little, but nothing of them survives into the next window of a run. What is kept are
the directions that carry the answers: the singular values of their Hankel matrix above a small share.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cosimo.analysis.identification import Identified
from cosimo.analysis.identification.checks import free_motion
from cosimo.analysis.identification.continuous import continuous_model
from cosimo.analysis.identification.realisation import Realisation
from cosimo.core.arrays import Array
from cosimo.core.unit import DiscreteModel

ROWS = 32
"""Steps over which answers and free motion are compared."""
SHARE = 0.02
"""Singular values of the answers below this share of the largest are left out."""


def reduced(found: Identified) -> Identified:
    """The same unit with the states that matter, as its answers have it; itself where it is known.

    Its own equations by derivatives are left out: at a kink they say one side of it, answers something in between.
    """
    if found.means == "known":
        return found
    measured = continuous_model(found.model.A, found.model.B[:, : found.D.shape[1]], found.C, found.D, found.step).model
    return _reduce(replace(found, continuous=measured, generator=measured))


def _reduce(found: Identified) -> Identified:
    if found.order <= 1:
        return found
    A, B, C, m = found.model.A, found.model.B, found.C, found.D.shape[1]
    answers = np.empty((2 * ROWS, len(C), B.shape[1]))
    power = B
    for row in answers:
        row[:] = C @ power
        power = A @ power
    if not np.isfinite(answers).all():
        return found
    outputs, inputs = _sizes(np.abs(answers).max(axis=(0, 2))), _sizes(np.abs(answers).max(axis=(0, 1)))
    scaled = answers / outputs[:, None] / inputs
    hankel, shifted = _hankel(scaled, 0), _hankel(scaled, 1)
    U, s, Vt = np.linalg.svd(hankel, full_matrices=False)
    order = int((s > SHARE * s[0]).sum()) if s[0] > 0 else 0
    if order >= found.order or order == 0:
        return found
    root = np.sqrt(s[:order])
    A = (U[:, :order] / root).T @ shifted @ (Vt[:order].T / root)
    B = (root[:, None] * Vt[:order])[:, : B.shape[1]] * inputs
    C = outputs[:, None] * (U[:, :order] * root)[: len(C)]
    return _with(found, Realisation(A, B[:, :m], C, found.D), B)


def _with(found: Identified, model: Realisation, B: Array) -> Identified:
    """The model in place of that found; its free motion is fitted to that of the model it replaces."""
    base = _free_motion(found)
    sizes = _sizes(np.maximum(np.abs(base - base[0]).max(axis=0), 1e-9 * np.abs(base).max(axis=0)))
    motion = free_motion(model, found.held, base, sizes, None)
    continuous = continuous_model(model.A, model.B, model.C, model.D, found.step).model
    return replace(
        found,
        model=DiscreteModel(model.A, B),
        C=model.C,
        initial=motion.initial,
        input_offset=motion.input_offset,
        output_offset=motion.output_offset,
        free=max(found.free, motion.error),
        continuous=continuous,
        generator=continuous,
    )


def _free_motion(found: Identified) -> Array:
    """The outputs under the held inputs."""
    push, rows = found.held + found.input_offset, []
    x, B = found.initial, found.model.B[:, : len(found.held)]
    for _ in range(ROWS):
        rows.append(found.C @ x + found.D @ push + found.output_offset)
        x = found.model.A @ x + B @ push
    return np.array(rows)


def _hankel(answers: Array, first: int) -> Array:
    rows = [np.hstack(list(answers[first + i : first + i + ROWS - 1])) for i in range(ROWS)]
    return np.vstack(rows)


def _sizes(found: Array) -> Array:
    return np.where(found > 0, found, 1.0)
