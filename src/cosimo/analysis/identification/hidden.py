"""Models from inputs and outputs alone: realisations of growing length until one predicts what comes next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosimo.analysis.identification.excitation import EPS, LONG, relative
from cosimo.analysis.identification.pulses import Answers, Pulses
from cosimo.analysis.identification.realisation import Candidates, Realisation, scales, without_idle_modes
from cosimo.core.arrays import Array

FIRST, ONCE_MORE = 48, 24
"""Rows of the first record; of the first one at a further macro step. Each further one is twice as long."""
PREDICTED = 1e-9
"""A relative error of prediction over the second half of the record that is good enough, where noise allows it."""
ROUNDING = 1e-11
"""Answers reproduced so well leave nothing for further states."""
LOCAL, SHARE = 8, 0.03
"""Rows of a local record, and how well its model need reproduce them."""
SETTLED = 1e-7
"""How far eigenvalues may still move when the record is doubled."""


@dataclass(frozen=True)
class Found:
    """A model of [y] from all inputs, and how well the shorter record predicted the longer."""

    model: Realisation
    answers: Answers
    error: float


def realise(pulses: Pulses, longest: int, first: int = FIRST) -> Found:
    """The model from records of `first` to `longest` rows.

    The free motion of a linear unit serves as one more input: with x_{k+1} − x_k = A (x_k − x_{k−1}) under held inputs,
    its differences are the pulse answers of an input through which the initial state came, and modes that no input
    reaches show in them.
    """
    free_motion = pulses.straight
    if not pulses.straight:
        pulses.answers(LONG)  # to see how far answers reach
    length = min(first, longest, pulses.reach)
    found = _attempt(pulses, length, free_motion, ROUNDING)
    while length < longest and not pulses.still:
        length = min(2 * length, longest)
        pulses.answers(length)
        if pulses.reach < length:
            return found  # beyond, the unit no longer answers as linearised
        before, found = found, _attempt(pulses, length, free_motion, ROUNDING)
        tolerance = max(PREDICTED, 30 * noise_level(found.answers))
        if found.error <= tolerance and _moved(before.model, found.model) <= max(SETTLED, tolerance):
            break
    return found


def realise_locally(pulses: Pulses) -> Found:
    """The model from the first rows only and with no more states than they need to a few percent.

    For a unit whose answers change along its motion: a longer record would be explained by ever more states, none of
    which the unit has.
    """
    return _attempt(pulses, min(LOCAL, pulses.reach), False, SHARE)


def _attempt(pulses: Pulses, length: int, free_motion: bool, enough: float) -> Found:
    """Realise from all rows, with the fewest states that are nearly as good as more, and predict by the first half."""
    answers = pulses.answers(length)
    p = pulses.bench.outputs
    h, noise = _channels(answers, pulses.rough[:p], free_motion)
    if not np.abs(h[1:]).max(initial=0.0) > 0:
        m = h.shape[2]
        return Found(Realisation(np.zeros((0, 0)), np.zeros((0, m)), np.zeros((p, 0)), h[0]), answers, 0.0)
    half, whole = Candidates(h[: length // 2], noise), Candidates(h, noise)
    least = 1 if enough > ROUNDING else max(whole.order - 3, 1)
    models = {n: whole.realise(n) for n in range(least, min(whole.order + 2, whole.most) + 1)}
    errors = {n: error_of(model, h, noise) for n, model in models.items()}
    # The smallest order that is nearly the best one: further states would only model rounding.
    order = next(
        n for n, error in errors.items() if error <= max(10 * min(errors.values()), enough, 3 * noise_level(answers))
    )
    predicted = error_of(half.realise(order), h, noise) if order <= half.most else np.inf
    return Found(without_idle_modes(models[order], length, noise), answers, predicted)


def _channels(answers: Answers, rough: Array, free_motion: bool) -> tuple[Array, Array]:
    """The answers of the outputs and their noise, the free motion as one more input; `rough` (p,) is its noise."""
    p = len(rough)
    h, noise = answers.h[:, :p], answers.noise[:p]
    if not free_motion:
        return h, noise
    base = answers.base[:, :p]
    channel = np.zeros((len(h), p, 1))
    channel[1:, :, 0] = np.diff(base, axis=0)
    rounding = np.maximum(4 * EPS * np.abs(base).max(axis=0), rough)
    if not (np.abs(channel).max(axis=0)[:, 0] > 1e3 * rounding).any():
        return h, noise  # it rests
    return np.concatenate([h, channel], axis=2), np.concatenate([noise, rounding[:, None]], axis=1)


def error_of(model: Realisation, h: Array, noise: Array) -> float:
    """The largest error of the pulse answers beyond their noise, each relative to itself unless it is mostly noise."""
    with np.errstate(over="ignore", invalid="ignore"):
        difference = model.markov(len(h)) - h
    if not np.isfinite(difference).all():
        return np.inf
    outputs, inputs = scales(h, noise)
    floor = np.maximum(1e3 * noise, 1e-9 * outputs[:, None] * inputs)
    flat = (len(h), h.shape[1] * h.shape[2])
    beyond = np.maximum(np.abs(difference) - 10 * noise, 0.0)
    return relative(beyond.reshape(flat), h.reshape(flat), floor.ravel())


def noise_level(answers: Answers) -> float:
    """How uncertain the answers are, relative to themselves."""
    size = np.abs(answers.h).max(axis=0)
    used = size > 1e3 * answers.noise
    return float((answers.noise[used] / size[used]).max(initial=0.0))


def _moved(before: Realisation, after: Realisation) -> float:
    """The largest distance between the eigenvalues of two models, matched; infinite when their numbers differ."""
    from scipy.optimize import linear_sum_assignment

    if len(before.A) != len(after.A):
        return np.inf
    distance = np.abs(before.poles[:, None] - after.poles[None, :])
    rows, columns = linear_sum_assignment(distance)
    return float(distance[rows, columns].max(initial=0.0))
