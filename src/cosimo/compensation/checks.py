"""How identified models are checked while a compensated master runs: innovations, one step ahead, of every unit.

Changes from one macro step to the next obey the model without its constants: Δx' = A Δx + B Δc, Δy = C Δx' + D Δc. N
changes of the outputs, stacked, are Y = O Δx + T c; from them follow the state, by least squares, and the next change,

    y_N = o Δx + t c ≈ o O⁺ Y + (t − o O⁺ T) c

With N about twice the number of states, errors of single samples are not amplified much.
"""

from __future__ import annotations

import numpy as np

from cosimo.analysis.linearisation import LocalSystem
from cosimo.compensation.target import TargetMotion
from cosimo.core.arrays import Array, value_row
from cosimo.core.coupling import ModelCheck
from cosimo.core.master import Master, input_degree
from cosimo.core.timing import TimedRead

MOST_SAMPLES = 32
"""Changes of outputs from which the next one is foreseen, at most."""
SAFETY, MOST_SHARE = 10.0, 0.3
"""How much larger than the errors that identification found innovations may be; and what part of Δy at most, so that a
compensation is worth more than the hold, whose error is Δy."""
ROUNDING = 1e-11
"""Part of the largest output that innovations may be by rounding."""
CUT = 1e-9
"""Relative size of singular values of O that are cut off: what outputs hardly show."""


def model_checks(local: LocalSystem, path: TargetMotion, master: Master) -> tuple[ModelCheck, ...]:
    """One check for every identified unit whose outputs are connected."""
    found = []
    for name, identified in local.units.items():
        unit = path.units[name]
        connected = {path.system.outputs[place] for place in path.used}
        connected -= {f"{name}.{output}" for output in identified.source.discrete_outputs}
        places = tuple(i for i, output in enumerate(unit.outputs) if f"{name}.{output}" in connected)
        if identified.means == "known" or not places:
            continue
        late = any(isinstance(op, TimedRead) and op.unit == name and op.elapsed > 0 for op in path.operations)
        degree = min(input_degree(path.system, master, name), unit.input_degree)
        samples = min(2 * max(1, identified.order), MOST_SAMPLES)
        own, driven = _foresight(path, name, list(places), degree, samples, late=late)
        error = max(identified.fit, identified.linear, identified.invariant)
        share = np.full(len(places), min(SAFETY * error, MOST_SHARE))
        noise = ROUNDING * (1 + np.abs(own).sum(axis=1))
        found.append(ModelCheck(name, places, (degree + 1) * len(unit.inputs), samples, own, driven, share, noise))
    return tuple(found)


def _foresight(
    path: TargetMotion, name: str, places: list[int], degree: int, samples: int, *, late: bool
) -> tuple[Array, Array]:
    """a (p, N p) and b (p, (N + 1) m) of a unit, newest first."""
    unit, n = path.units[name], len(path.units[name].model.A)
    m = len(unit.inputs)
    width = (degree + 1) * m
    A, B = path.discrete[name].A, path.discrete[name].B[:, :width]
    powers = value_row(degree, 1 if late else 0)
    C, D = unit.model.C[places], unit.model.D[places] @ np.kron(powers, np.eye(m))
    state = np.hstack([np.eye(n), np.zeros((n, (samples + 1) * width))])
    rows = []
    for step in range(samples + 1):
        given = np.zeros((width, state.shape[1]))
        given[:, n + step * width : n + (step + 1) * width] = np.eye(width)
        after = A @ state + B @ given
        rows.append(C @ (after if late else state) + D @ given)
        state = after
    seen, ahead = np.vstack(rows[:-1]), rows[-1]
    own = ahead[:, :n] @ np.linalg.pinv(seen[:, :n], rcond=CUT)
    driven = ahead[:, n:] - own @ seen[:, n:]
    p = len(places)
    newest_first = np.concatenate([np.arange(j * p, (j + 1) * p) for j in reversed(range(samples))])
    inputs = np.concatenate([np.arange(j * width, (j + 1) * width) for j in reversed(range(samples + 1))])
    return own[:, newest_first], driven[:, inputs]
