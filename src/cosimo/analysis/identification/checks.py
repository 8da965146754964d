"""Whether the model can be trusted: data not used for it, the same at another time, the free motion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosimo.analysis.identification.excitation import EPS, LONG, relative
from cosimo.analysis.identification.powers import SEED, excitation
from cosimo.analysis.identification.pulses import Pulses
from cosimo.analysis.identification.realisation import Realisation
from cosimo.core.arrays import Array

BOUND = 0.01
"""Relative error of fit, linearity, invariance or repetition beyond which a model is not valid."""
UNSEEN, ONCE_MORE = 160, 48
"""Steps of the trial under random inputs; of one at a further macro step."""
SHIFT, AFTER = 96, 48
"""Steps before a pulse is repeated, and after it."""

GENTLY = 0.1
"""Share of the pulses' amplitude for random inputs of a unit that is not linear, as their answers add up."""
WEAK = 1e6 * EPS
"""An answer smaller than this share of the output itself is judged by this share."""


def fit_error(model: Realisation, B: Array, pulses: Pulses, length: int = UNSEEN) -> float:
    """The relative error of the model over random inputs that it was not fitted to.

    `B` holds the columns of all powers; the answer is the deviation from the free motion, output by output.
    """
    bench, amplitudes = pulses.bench, pulses.amplitudes()
    if not amplitudes.any():
        return 0.0
    length = min(length, pulses.reach)
    if not pulses.straight:
        amplitudes = amplitudes * GENTLY
    base = pulses.free_motion(length)[:, : bench.outputs]
    deviations = excitation(bench, length, amplitudes, powers=range(bench.powers), seed=SEED + 1)
    answer = bench.trial().run(deviations)[:, : bench.outputs] - base
    m = len(amplitudes)
    inputs = deviations.reshape(length, -1)
    whole = Realisation(model.A, B, model.C, np.hstack([model.D, np.zeros((len(model.C), inputs.shape[1] - m))]))
    with np.errstate(over="ignore", invalid="ignore"):
        difference = whole.answer(inputs) - answer
    if not np.isfinite(difference).all():
        return np.inf
    return relative(difference, answer, WEAK * np.abs(base).max(axis=0))


def variation(pulses: Pulses) -> float:
    """How much the answer to a pulse of all inputs differs when it comes SHIFT steps later, relative to itself.

    Where that is little it is noise to whoever looks for a model that does not change: `pulses.varying`.
    """
    bench, amplitudes = pulses.bench, pulses.amplitudes()
    if not amplitudes.any():
        return 0.0
    base = pulses.free_motion(SHIFT + AFTER)
    pulse = np.zeros((SHIFT + AFTER, bench.powers, len(amplitudes)))
    pulse[SHIFT, 0] = amplitudes
    later = (bench.trial().run(pulse) - base)[SHIFT:]
    pulses.answers(LONG)
    rows = min(AFTER, pulses.reach)
    now = pulses.answers(AFTER).h[:rows] @ amplitudes
    apart, p = later[:rows] - now, bench.outputs
    found = relative(apart[:, :p], now[:, :p], WEAK * np.abs(base[:, :p]).max(axis=0))
    if found <= BOUND:
        pulses.varying = np.abs(apart).max(axis=0)
    return found


def repeats(pulses: Pulses) -> float:
    """How much a second, equal run differs, relative to the motion; 0 for a unit that computes the same every time."""
    base = pulses.base
    return relative(pulses.unlike[None, :], base - base[0], WEAK * np.abs(base).max(axis=0))


@dataclass(frozen=True)
class FreeMotion:
    """y_k = C x_k + D (u + input_offset) + output_offset from x_0 = initial, with relative `error`."""

    initial: Array
    input_offset: Array
    output_offset: Array
    error: float


def free_motion(model: Realisation, held: Array, base: Array, sizes: Array, initial: Array | None) -> FreeMotion:
    """The initial state and the offsets with which the model moves as the unit does under the held inputs.

    `sizes` (p,) is what errors are relative to, `initial` a state known beforehand. Offsets are used only as far as
    they are needed: none, then of the outputs (an operating point that is not 0), then of the inputs (a constant push).
    """
    n, (p, m) = len(model.A), model.D.shape
    with np.errstate(over="ignore", invalid="ignore"):
        forced = model.answer(np.tile(held, (len(base), 1)))
        rest = (base - forced) / sizes
        decay = _stack(model.answer_to_states(len(base)), sizes)
        constant = _stack(np.broadcast_to(np.eye(p), (len(base), p, p)), sizes)
        steps = _stack(np.cumsum(model.markov(len(base)), axis=0), sizes)
    if not np.isfinite(rest).all():
        return FreeMotion(np.zeros(n), np.zeros(m), np.zeros(p), np.inf)
    good = 1e-8
    if initial is not None:
        error = float(np.abs(decay @ initial - rest.ravel()).max(initial=0.0))
        if error <= good:
            return FreeMotion(initial, np.zeros(m), np.zeros(p), error)
    best: FreeMotion | None = None
    for parts in ([decay], [decay, constant], [decay, constant, steps]):
        left = np.hstack(parts)
        if not np.isfinite(left).all():
            continue  # a model that leaves the range of numbers has no motion to compare
        size = np.abs(left).max(axis=0, initial=0.0)
        size = np.where(size > 0, size, 1.0)
        solution = np.linalg.lstsq(left / size, rest.ravel(), rcond=1e-12)[0] / size
        error = float(np.abs(left @ solution - rest.ravel()).max(initial=0.0))
        if best is None or error < best.error / 2:
            padded = np.concatenate([solution, np.zeros(n + p + m - len(solution))])
            best = FreeMotion(padded[:n], padded[n + p :], padded[n : n + p], error)
        if best.error <= good:
            break
    return best or FreeMotion(np.zeros(n), np.zeros(m), np.zeros(p), np.inf)


def _stack(columns: Array, sizes: Array) -> Array:
    """(N, p, k) as a matrix (N p, k), rows relative to the sizes."""
    count, p, k = columns.shape
    return (columns / sizes[:, None]).reshape(count * p, k)
