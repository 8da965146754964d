"""Models of units whose states can be seen: pulses move the states, and least squares reads the map off them.

With deviations x_k of the states after a unit pulse of input i, x_1 = B e_i, x_{k+1} = A x_k and y_k = C x_k for k ≥ 1.
Where states can also be set, a nudge of each adds x_0 = e_j and no input is needed to reach them. States that neither
moves are left out: what is modelled is the part of the state space that the unit can be in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cosimo.analysis.identification.excitation import Answers, Pulses
from cosimo.analysis.identification.input_output_models import PREDICTED, error_of, noise_level
from cosimo.analysis.identification.models import EPS, Realisation, positive
from cosimo.analysis.identification.test_rig import FmuStates, Rig, TrialFailed
from cosimo.core.arrays import Array
from cosimo.core.unit import LinearModel

FIRST, NUDGED = 16, 4
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
    reached, length = -1, FIRST
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
    instance = rig.prepare()
    try:
        rig.nudge(instance, np.zeros(rig.width - rig.outputs))
    except TrialFailed:
        return False
    finally:
        instance.close()
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
            raise TrialFailed(f"its directional derivatives failed: {error}") from error
    if not np.isfinite(jacobian).all():
        raise TrialFailed("its directional derivatives are not all finite")
    # Columns of zeros for the inputs that are held fixed, rows of zeros for the outputs that have no derivatives.
    n = len(access.names)
    full = np.zeros((n + len(unit.outputs), n + len(unit.inputs)))
    full[np.ix_([*range(n), *(n + i for i in real)], [*range(n), *(n + i for i in rig.free)])] = jacobian
    return LinearModel(full[:n, :n], full[:n, n:], full[n:, :n], full[n:, n:])
