"""What the higher powers of the input polynomial do over one step: B_1 … B_q, by one trial that excites them all."""

from __future__ import annotations

import numpy as np

from cosimo.analysis.identification.bench import Bench
from cosimo.analysis.identification.continuous import continuous_model
from cosimo.analysis.identification.excitation import EPS, relative
from cosimo.analysis.identification.realisation import Realisation
from cosimo.core.arrays import Array
from cosimo.units.integrators import Exact, discretise

SEED = 20180401
"""All random excitation is the same every time."""

EXPLAINED = 1e-7
"""Relative error of the exact solution over the trial up to which it is taken as it is."""
SHOWS = 1e-9
"""Directions of B_j that show less than this, relative to the one that shows most, are left alone."""


def excitation(bench: Bench, length: int, amplitudes: Array, *, powers: range, seed: int = SEED) -> Array:
    """Random deviations (length, powers, inputs) of these powers, up to the amplitudes at their inputs."""
    rng = np.random.default_rng(seed)
    deviations = np.zeros((length, bench.powers, len(amplitudes)))
    for power in powers:
        deviations[:, power] = rng.uniform(-1, 1, (length, len(amplitudes))) * amplitudes
    return deviations


def with_powers(model: Realisation, bench: Bench, base: Array, amplitudes: Array) -> Array:
    """[B_0 … B_q] (n, (q + 1) m): B_0 of the model, the others by least squares on one trial as long as `base`.

    Row k of the trial deviates from the free motion by C ξ_k, ξ_{k+1} = A ξ_k + Σ_j B_j c_j,k: linear in B_1 … B_q. The
    model may have as many outputs as rows are wide, or the unit's own only. What the trial says nothing about (B_j in
    directions that hardly show) stays as in the exact solution of the continuous model.
    """
    n, m = model.B.shape
    higher = bench.powers - 1
    if not higher or not amplitudes.any() or not n:
        return np.hstack([model.B, np.zeros((n, higher * m))])
    prior = _prior(model, bench.step, higher)
    deviations = excitation(bench, len(base), amplitudes, powers=range(1, bench.powers))
    moved = (bench.trial().run(deviations) - base)[:, : len(model.C)]
    signals = deviations[:, 1:].reshape(len(base), higher * m)
    expected = Realisation(model.A, prior, model.C, np.zeros((len(model.C), higher * m))).answer(signals)
    if relative(moved - expected, moved, EPS * 1e6 * np.abs(base[:, : len(model.C)]).max(axis=0)) <= EXPLAINED:
        return np.hstack([model.B, prior])
    heights = np.abs(signals).max(axis=0)
    used = np.flatnonzero(heights)
    sensitivity = np.zeros((n, n * len(used)))
    rows = []
    for signal in signals[:, used] / heights[used]:
        rows.append(model.C @ sensitivity)
        sensitivity = model.A @ sensitivity + np.kron(np.eye(n), signal)
    sizes = np.maximum(np.abs(moved).max(axis=0), np.abs(expected).max(axis=0))
    weight = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    left = (np.array(rows) * weight[:, None]).reshape(-1, n * len(used))
    right = ((moved - expected) * weight).ravel()
    correction = np.linalg.lstsq(left, right, rcond=SHOWS)[0]
    prior[:, used] += correction.reshape(n, len(used)) / heights[used]
    return np.hstack([model.B, prior])


def _prior(model: Realisation, step: float, higher: int) -> Array:
    """B_1 … B_q of the exact solution; without a continuous model the share ∫ θ^j dθ = 1 / (j + 1) of B_0."""
    m = model.B.shape[1]
    found = continuous_model(model.A, model.B, model.C, model.D, step).model
    if found is None:
        return np.hstack([model.B / (j + 1) for j in range(1, higher + 1)])
    return discretise(found, Exact(), 1, step).B[:, m : (higher + 1) * m].copy()
