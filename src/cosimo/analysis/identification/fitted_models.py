"""Models fitted to what trials showed: from inputs and outputs alone, from states that can be seen, from derivatives.

From inputs and outputs: realisations of growing length until one predicts what comes next.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from cosimo.analysis.identification.excitation import LONG, Answers, Pulses, relative
from cosimo.analysis.identification.models import (
    EPS,
    Candidates,
    Identified,
    Realisation,
    balanced,
    continuous_model,
    positive,
    scales,
    without_idle_modes,
)
from cosimo.analysis.identification.test_rig import FmuStates, Rig, TrialFailed, failed
from cosimo.core import dataclass
from cosimo.core.arrays import Array, match
from cosimo.core.unit import DiscreteModel, LinearModel
from cosimo.units.linear import Exact, discretise

FIRST, FIRST_AGAIN = 48, 24
"""Rows of the first record; of the first one at a further macro step. Each further one is twice as long."""
PREDICTED = 1e-9
"""A relative error of prediction over the second half of the record that is good enough, where noise allows it."""
REPRODUCED = 1e-11
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
    found = _attempt(pulses, length, free_motion, REPRODUCED)
    while length < longest and not pulses.still:
        length = min(2 * length, longest)
        pulses.answers(length)
        if pulses.reach < length:
            return found  # beyond, the unit no longer answers as linearised
        before, found = found, _attempt(pulses, length, free_motion, REPRODUCED)
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
    p = pulses.rig.outputs
    h, noise = _channels(answers, pulses.rough[:p], free_motion)
    if not np.abs(h[1:]).max(initial=0.0) > 0:
        return Found(_at_once(h), answers, 0.0)
    half, whole = Candidates(h[: length // 2], noise), Candidates(h, noise)
    least = 1 if enough > REPRODUCED else max(whole.order - 3, 1)
    models = {n: whole.realise(n) for n in range(least, min(whole.order + 2, whole.most) + 1)}
    errors = {n: error_of(model, h, noise) for n, model in models.items()}
    # The smallest order that is nearly the best one: further states would only model rounding.
    least_error = min(errors.values(), default=np.inf)
    near = max(10 * least_error, enough, 3 * noise_level(answers))
    order = next((n for n, error in errors.items() if error <= near), None)
    if order is None:  # nothing above the noise, or too few rows for a single state
        return Found(_at_once(h), answers, np.inf)
    predicted = error_of(half.realise(order), h, noise) if order <= half.most else np.inf
    return Found(without_idle_modes(models[order], length, noise), answers, predicted)


def _at_once(h: Array) -> Realisation:
    """The model without states."""
    _, p, m = h.shape
    return Realisation(np.zeros((0, 0)), np.zeros((0, m)), np.zeros((p, 0)), h[0])


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
    if len(before.A) != len(after.A):
        return np.inf
    distance = np.abs(before.poles[:, None] - after.poles[None, :])
    return float(distance[match(distance)].max(initial=0.0))


# ---- what the higher powers of the input polynomial do over one step: B_1 … B_q, by one trial that excites the -------


SEED = 20180401
"""All random excitation is the same every time."""

EXPLAINED = 1e-7
"""Relative error of the exact solution over the trial up to which it is taken as it is."""
SHOWS = 1e-9
"""Directions of B_j that show less than this, relative to the one that shows most, are left alone."""


GENTLER = (1.0, 0.1, 0.01, 0.001)
"""Shares of the amplitudes that are tried under random inputs: answers add up, and may leave the range of the unit's
variables where no pulse did."""


def shake(rig: Rig, length: int, amplitudes: Array, *, powers: range, seed: int = SEED) -> tuple[Array, Array]:
    """Random deviations (length, powers, inputs) of these powers, and the readings of a trial under them.

    They go up to the amplitudes at their inputs, or to the largest share of `GENTLER` that the unit takes.
    """
    rng = np.random.default_rng(seed)
    deviations = np.zeros((length, rig.powers, len(amplitudes)))
    for power in powers:
        deviations[:, power] = rng.uniform(-1, 1, (length, len(amplitudes))) * amplitudes
    for share in GENTLER[:-1]:
        trial = rig.trial()
        try:
            return share * deviations, trial.run(share * deviations)
        except TrialFailed:
            trial.close()
    return GENTLER[-1] * deviations, rig.trial().run(GENTLER[-1] * deviations)


def with_powers(model: Realisation, rig: Rig, base: Array, amplitudes: Array) -> Array:
    """[B_0 … B_q] (n, (q + 1) m): B_0 of the model, the others by least squares on one trial as long as `base`.

    Row k of the trial deviates from the free motion by C ξ_k, ξ_{k+1} = A ξ_k + Σ_j B_j c_j,k: linear in B_1 … B_q. The
    model may have as many outputs as rows are wide, or the unit's own only. What the trial says nothing about (B_j in
    directions that hardly show) stays as in the exact solution of the continuous model.
    """
    n, m = model.B.shape
    higher = rig.powers - 1
    if not higher or not amplitudes.any() or not n:
        return np.hstack([model.B, np.zeros((n, higher * m))])
    prior = _prior(model, rig.step, higher)
    deviations, readings = shake(rig, len(base), amplitudes, powers=range(1, rig.powers))
    moved = (readings - base)[:, : len(model.C)]
    signals = deviations[:, 1:].reshape(len(base), higher * m)
    expected = Realisation(model.A, prior, model.C, np.zeros((len(model.C), higher * m))).answer(signals)
    if relative(moved - expected, moved, EPS * 1e6 * np.abs(base[:, : len(model.C)]).max(axis=0)) <= EXPLAINED:
        return np.hstack([model.B, prior])
    heights = np.abs(signals).max(axis=0)
    used = np.flatnonzero(heights)
    sensitivity = np.zeros((n, n * len(used)))
    pushes = np.einsum("ij,tk->tijk", np.eye(n), signals[:, used] / heights[used])  # I ⊗ c_k at every moment
    rows = []
    for push in pushes.reshape(len(base), n, -1):
        rows.append(model.C @ sensitivity)
        sensitivity = model.A @ sensitivity + push
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
    found, _ = continuous_model(model.A, model.B, model.C, model.D, step)
    if found is None:
        return np.hstack([model.B / (j + 1) for j in range(1, higher + 1)])
    return discretise(found, Exact(), 1, step).B[:, m : (higher + 1) * m].copy()


# ---- the free motion of a model, fitted to that of the unit ----------------------------------------------------------


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
    best = FreeMotion(np.zeros(n), np.zeros(m), np.zeros(p), np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        forced = model.answer(np.tile(held, (len(base), 1)))
        rest = (base - forced) / sizes
        decay = _stack(model.answer_to_states(len(base)), sizes)
        constant = _stack(np.broadcast_to(np.eye(p), (len(base), p, p)), sizes)
        steps = _stack(np.cumsum(model.markov(len(base)), axis=0), sizes)
    if not np.isfinite(rest).all():
        return best
    good = 1e-8
    if initial is not None:
        error = float(np.abs(decay @ initial - rest.ravel()).max(initial=0.0))
        if error <= good:
            return FreeMotion(initial, np.zeros(m), np.zeros(p), error)
    for parts in ([decay], [decay, constant], [decay, constant, steps]):
        left = np.hstack(parts)
        if not np.isfinite(left).all():
            continue  # a model that leaves the range of numbers has no motion to compare
        size = positive(np.abs(left).max(axis=0, initial=0.0))
        solution = np.linalg.lstsq(left / size, rest.ravel(), rcond=1e-12)[0] / size
        error = float(np.abs(left @ solution - rest.ravel()).max(initial=0.0))
        if error < best.error / 2:
            padded = np.concatenate([solution, np.zeros(n + p + m - len(solution))])
            best = FreeMotion(padded[:n], padded[n + p :], padded[n : n + p], error)
        if best.error <= good:
            break
    return best


def _stack(columns: Array, sizes: Array) -> Array:
    """(N, p, k) as a matrix (N p, k), rows relative to the sizes."""
    count, p, k = columns.shape
    return (columns / sizes[:, None]).reshape(count * p, k)


# ---- models with no more states than matter, of units that are linear only for a while -------------------------------
# The answers of a unit that bends along its motion can be reproduced by ever more states: products of its motions look
# like modes of their own. They do little, but nothing of them survives into the next window of a run. What is kept are
# the directions that carry the answers: the singular values of their Hankel matrix above a small share.


REDUCED_ROWS = 32
"""Steps over which answers and free motion are compared."""
REDUCED_SHARE = 0.02
"""Singular values of the answers below this share of the largest are left out."""


def reduced(found: Identified) -> Identified:
    """The same unit with the states that matter, as its answers have it; itself where it is known.

    Its own equations by derivatives are left out: at a kink they say one side of it, answers something in between.
    """
    if found.means == "known":
        return found
    A, B, C, D, m = found.model.A, found.model.B, found.C, found.D, found.D.shape[1]
    continuous, _ = continuous_model(A, B[:, :m], C, D, found.step)
    found = replace(found, continuous=continuous, generator=continuous)
    answers = Realisation(A, B, C, np.zeros((len(C), B.shape[1]))).markov(2 * REDUCED_ROWS + 1)[1:]
    if found.order <= 1 or not np.isfinite(answers).all():
        return found
    outputs, inputs = positive(np.abs(answers).max(axis=(0, 2))), positive(np.abs(answers).max(axis=(0, 1)))
    scaled = answers / outputs[:, None] / inputs
    hankel, shifted = (
        np.vstack([np.hstack(list(scaled[i : i + REDUCED_ROWS - 1])) for i in range(first, first + REDUCED_ROWS)])
        for first in (0, 1)
    )
    U, s, Vt = np.linalg.svd(hankel, full_matrices=False)
    order = int((s > REDUCED_SHARE * s[0]).sum()) if s[0] > 0 else 0
    if order >= found.order or order == 0:
        return found
    A, B, C = balanced(U[:, :order], s[:order], Vt[:order].T, shifted, outputs, inputs)
    # Its free motion is fitted to that of the model it replaces.
    base = found.outputs(np.tile(found.held, (REDUCED_ROWS, 1)))
    sizes = positive(np.maximum(np.abs(base - base[0]).max(axis=0), 1e-9 * np.abs(base).max(axis=0)))
    motion = free_motion(Realisation(A, B[:, :m], C, D), found.held, base, sizes, None)
    continuous, _ = continuous_model(A, B[:, :m], C, D, found.step)
    return replace(
        found,
        model=DiscreteModel(A, B),
        C=C,
        initial=motion.initial,
        input_offset=motion.input_offset,
        output_offset=motion.output_offset,
        free=max(found.free, motion.error),
        continuous=continuous,
        generator=continuous,
    )


# ---- models of units whose states can be seen: pulses move them, and least squares reads the map off them ------------
# With deviations x_k of the states after a unit pulse of input i, x_1 = B e_i, x_{k+1} = A x_k and y_k = C x_k for
# k ≥ 1. Where states can also be set, a nudge of each adds x_0 = e_j and no input is needed to reach them. States that
# neither moves are left out: what is modelled is the part of the state space that the unit can be in.


FIRST_SEEN, NUDGED = 16, 4
"""Rows of the first record of pulses; of answers to nudges."""
NUDGE = 1e-4
"""How far a state is nudged, relative to its size."""
CONDITION = 1e8
"""Beyond this condition of the states' motion a direction counts as not reached."""


def from_states(pulses: Pulses, longest: int) -> tuple[Realisation, Array] | None:
    """The model and the basis V (states, n) with x = V ξ of its state; None where what is seen is no state."""
    rig = pulses.rig
    assert rig.access is not None
    nudges = _nudges(rig, pulses)
    found: tuple[Realisation, Array] | None = None
    reached, length = -1, FIRST_SEEN
    while True:
        answers = pulses.answers(length)
        if np.abs(answers.h[0, rig.outputs :]).max(initial=0.0) > 0:
            return None  # it changes with the input, at once
        model, basis, error = _fit(answers, nudges, rig.outputs, pulses.straight)
        # The shortest record that reaches all states is kept unless a longer one predicts: a unit whose behaviour
        # changes along its motion is described best where it is now.
        if basis.shape[1] > reached or error <= PREDICTED:
            found, reached = (model, basis), basis.shape[1]
        if length >= min(longest, pulses.reach) or error <= max(PREDICTED, 30 * noise_level(answers)):
            return found
        length = min(2 * length, longest, pulses.reach)


def _fit(answers: Answers, nudges: Array, p: int, straight: bool) -> tuple[Realisation, Array, float]:
    """Least squares over all channels; the error of its prediction of the pulse answers."""
    h = answers.h
    channels = [h[1:, :, i] for i in range(h.shape[2])] + list(nudges)
    if straight:
        channels.append(np.diff(answers.base, axis=0))
    sizes = positive(np.max([np.abs(rows).max(axis=0) for rows in channels], axis=0))
    past, later, outputs = [], [], []
    for rows in channels:
        scaled = rows / sizes
        top = np.abs(scaled).max(initial=0.0)
        if top > 0:
            past.append(scaled[:-1, p:] / top)
            later.append(scaled[1:, p:] / top)
            outputs.append(scaled[:-1, :p] / top)
    n, D = h.shape[1] - p, h[0, :p]
    if not past:
        nothing = np.zeros((n, 0))
        return Realisation(np.zeros((0, 0)), np.zeros((0, h.shape[2])), np.zeros((p, 0)), D), nothing, 0.0
    X, X1, Y = (np.concatenate(part) for part in (past, later, outputs))
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    rank = int((s > s[0] / CONDITION).sum())
    V, solve = Vt[:rank].T, (U[:, :rank] / s[:rank]).T
    # ξ = Vᵀ x in scaled states: x' = (X1ᵀ …) ξ and y = (Yᵀ …) ξ.
    A, C = V.T @ (solve @ X1).T, sizes[:p, None] * (solve @ Y).T
    basis, inverse = sizes[p:, None] * V, V.T / sizes[p:]
    if rank == n:  # all states reached: keep them as they are
        A, C, basis, inverse = basis @ A @ inverse, C @ inverse, np.eye(n), np.eye(n)
    model = Realisation(A, inverse @ h[1, p:], C, D)
    both = Realisation(model.A, model.B, np.vstack([model.C, basis]), h[0])
    # A map from nudges is known only as well as these stand out from the states' rounding.
    noise = answers.noise / NUDGE if len(nudges) else answers.noise
    return model, basis, error_of(both, h, noise)


def _nudges(rig: Rig, pulses: Pulses) -> Array:
    """The answers to nudges of each state, per unit, (states, NUDGED, width); none where states cannot be set."""
    p, base = rig.outputs, pulses.free_motion(NUDGED)
    none = np.zeros((0, NUDGED, rig.width))
    nudged = _way(rig, base)
    if nudged is None:
        return none
    answers = pulses.answers(NUDGED)
    moved = np.abs(pulses.base[:, p:]).max(axis=0)
    for column in pulses.responding:
        moved = np.maximum(moved, np.abs(answers.h[:, p:, column]).max(axis=0) * pulses.probes[column].amplitude)
    heights = NUDGE * np.where(moved > 0, moved, 1.0)
    found = []
    try:
        for height, unit in zip(heights, np.eye(len(heights)), strict=True):
            found.append((nudged(height * unit) - nudged(-height * unit)) / (2 * height))
    except TrialFailed:
        return none
    answer = np.array(found).reshape(len(heights), NUDGED, rig.width)
    # Only if the nudge arrived as it was given, and nowhere else.
    sizes = np.maximum(heights, EPS / NUDGE)
    return answer if np.abs((answer[:, 0, p:] - np.eye(len(heights))) * sizes).max() < 1e-6 * sizes.min() else none


def _way(rig: Rig, base: Array) -> Callable[[Array], Array] | None:
    """How states can be nudged: after initialisation, or as start values of a fresh instance; None for neither.

    Each is tried with the states as they are, on an instance that is thrown away afterwards: the unit must then move
    as it does without.
    """
    if rig.unit.single_instance:
        return None
    still = np.zeros((NUDGED, rig.powers, len(rig.unit.inputs)))
    states = base[0, rig.outputs :]

    def restarted(by: Array) -> Array:
        return rig.restart(states + by, still)

    def set_now(by: Array) -> Array:
        return rig.trial(nudge=by).run(still)

    def works(way: Callable[[Array], Array]) -> bool:
        try:
            return bool(np.allclose(way(np.zeros(len(states))), base, rtol=1e-12, atol=0))
        except TrialFailed:
            return False

    if works(restarted):
        return restarted
    if rig.restore and _settable(rig) and works(set_now):
        return set_now
    return None


def _settable(rig: Rig) -> bool:
    """Whether states take values after initialisation, tried on an instance that is thrown away: it may be spoilt."""
    with closing(rig.prepare()) as instance:
        try:
            rig.nudge(instance, np.zeros(rig.width - rig.outputs))
        except TrialFailed:
            return False
    return True


# ---- models from directional derivatives: the continuous A, B, C, D of an FMU that lists its states ------------------


def linearise(rig: Rig) -> LinearModel:
    """ẋ = A x + B u, y = C x + D u at the operating point, one derivative per state and continuous input."""
    access, unit = rig.access, rig.unit
    if not isinstance(access, FmuStates):
        raise TrialFailed("its description lists no continuous states, so that derivatives would miss its dynamics")
    real = [i for i, name in enumerate(unit.outputs) if name not in unit.discrete_outputs]
    knowns = [*access.names, *(unit.inputs[i] for i in rig.free)]
    unknowns = [*access.derivatives, *(unit.outputs[i] for i in real)]
    jacobian = np.empty((len(unknowns), len(knowns)))
    with rig.instance() as live:
        instance: Any = live
        try:
            for column, known in enumerate(knowns):
                jacobian[:, column] = instance.directional_derivative(unknowns, [known], [1.0])
        except Exception as error:
            raise failed("asking for its directional derivatives", error) from error
    if not np.isfinite(jacobian).all():
        raise TrialFailed("its directional derivatives are not all finite")
    # Columns of zeros for the inputs that are held fixed, rows of zeros for the outputs that have no derivatives.
    n = len(access.names)
    full = np.zeros((n + len(unit.outputs), n + len(unit.inputs)))
    full[np.ix_([*range(n), *(n + i for i in real)], [*range(n), *(n + i for i in rig.free)])] = jacobian
    return LinearModel(full[:n, :n], full[:n, n:], full[n:, :n], full[n:, n:])
