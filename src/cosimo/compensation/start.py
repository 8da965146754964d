"""How a compensated run begins, so that it is on its target from the first macro step on."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cosimo.compensation.target import SMALL, Target
from cosimo.core.arrays import Array
from cosimo.core.coupling import Mixer
from cosimo.core.polynomial import value_row
from cosimo.core.timing import TimedCouple, TimedRead, TimedStep

Gains = tuple[Array, ...]
"""K of one unit, one for each of its couplings within a macro step."""


class Start:
    """The first steps: memories as if the target had run before, and what outputs and inputs lack of it at the start.

    At the start outputs agree with inputs at once, while later they lag; and the exact target's velocities differ from
    the given ones. Both are made up for by corrections that are used once each in the first couplings.
    """

    STEPS = 4

    def __init__(self, path: Target, gains: dict[str, Gains]) -> None:
        self.path, self.gains = path, gains
        self.lacking: dict[str, list[tuple[Array, Array]]] = {name: [] for name in gains}
        self._walk()

    def _walk(self) -> None:
        path, n, ticks = self.path, self.path.n, self.path.rhythm.ticks
        state = {name: np.eye(n)[part] for name, part in path.place.items()}
        given = {name: np.zeros_like(U) for name, U in path.U.items()}
        rows = np.split(path.coupled.C, np.cumsum([len(u.outputs) for u in path.units.values()])[:-1])
        outputs = dict(zip(path.units, rows, strict=True))
        for begin in range(0, self.STEPS * ticks, ticks):
            for operation in path.operations:
                assert isinstance(operation, TimedCouple | TimedStep | TimedRead), "others were refused before"
                name, now = operation.unit, begin + int(operation.time * ticks)
                step, model = path.discrete[name], path.units[name].model
                B = step.B[:, : len(path.U[name])]
                if isinstance(operation, TimedCouple) and name in self.gains:
                    span, links = path.rhythm.spans[name], path.connected(name, path.degree(name))
                    seen = np.vstack(list(outputs.values()))[path.used]
                    position = (now - begin) // span
                    given[name] = path.U[name] @ path.flow(now)
                    wanted = path.X[name] @ path.flow(now + span) - step.A @ state[name] - B @ given[name]
                    push = np.linalg.pinv(B[:, links], rcond=SMALL) @ wanted
                    given[name][links] += push
                    self.lacking[name].append((path.samples(name, position) @ path.flow(now) - seen, push))
                elif isinstance(operation, TimedStep):
                    state[name] = step.A @ state[name] + B @ given[name]
                elif isinstance(operation, TimedRead):
                    powers = value_row(path.degree(name), operation.offset + operation.elapsed)
                    value = np.kron(powers, np.eye(len(path.units[name].inputs))) @ given[name]
                    outputs[name] = model.C @ state[name] + model.D @ value

    def mixers(self) -> dict[str, Mixer]:
        """The mixer of every compensated unit."""
        return {name: self._mixer(name, gains) for name, gains in self.gains.items()}

    def _mixer(self, name: str, gains: Gains) -> Mixer:
        path, span = self.path, self.path.rhythm.spans[name]
        q, (m, width), n = len(path.used), gains[0].shape, path.n
        count, turns = width // q, len(gains)
        S = [path.samples(name, position) for position in range(turns)]
        lacking = _trimmed(self.lacking[name], float(np.abs(S).max()), float(np.abs(path.U[name]).max()))
        steps = len(lacking)
        # Slots: samples, newest first; corrections of samples and of inputs, next first; the input's correction now.
        late, push, now = count * q, (count + steps) * q, (count + steps) * q + steps * m
        size = now + m
        ww, wy, start = np.zeros((size, size)), np.zeros((size, len(path.system.outputs))), np.zeros((size, n))
        for row, output in enumerate(path.used):
            wy[row, output] = 1.0
        ww[q:late, : late - q] = np.eye(late - q)
        for level in range(count):
            earlier = S[-(level + 1) % turns] @ path.flow(-(level + 1) * span)
            start[level * q : (level + 1) * q] = earlier
        if steps:
            ww[:q, late : late + q] = np.eye(q)
            ww[late : push - q, late + q : push] = np.eye(push - q - late)
            ww[push : now - m, push + m : now] = np.eye(now - m - push)
            ww[now:, push : push + m] = np.eye(m)
            for j, (sample, extra) in enumerate(lacking):
                start[late + j * q : late + (j + 1) * q] = sample
                start[push + j * m : push + (j + 1) * m] = extra
        uw = [np.hstack([K, np.zeros((m, now - late)), np.eye(m) if steps else np.zeros((m, m))]) for K in gains]
        x0 = np.concatenate([unit.initial_state for unit in path.units.values()])
        moments = [Fraction(turn * span, path.rhythm.ticks) for turn in range(turns)]
        later = dict(zip(moments[1:], uw[1:], strict=True))
        inputs = tuple(link.connection.target for link in path.system.incoming(name))
        return Mixer(ww, wy, uw[0], start @ x0, start, path.degree(name), later, path.system.outputs, inputs)


def _trimmed(lacking: list[tuple[Array, Array]], samples: float, inputs: float) -> list[tuple[Array, Array]]:
    """Without the last ones that are nothing but rounding."""
    while lacking and (
        np.abs(lacking[-1][0]).max() <= 1e-10 * samples and np.abs(lacking[-1][1]).max(initial=0.0) <= 1e-10 * inputs
    ):
        lacking = lacking[:-1]
    return lacking
