"""How a compensated run begins, so that it is on its target from the first macro step on."""

from __future__ import annotations

import numpy as np

from cosimo.compensation.target import SMALL, Target, unit_of
from cosimo.core.arrays import Array
from cosimo.core.coupling import Mixer
from cosimo.core.timing import TimedCouple, TimedRead, TimedStep


class Start:
    """The first steps: memories as if the target had run before, and what outputs and inputs lack of it at the start.

    At the start outputs agree with inputs at once, while later they lag; and the exact target's velocities differ from
    the given ones. Both are made up for by corrections that are used once each in the first macro steps.
    """

    STEPS = 4

    def __init__(self, path: Target, gains: dict[str, tuple[Array, int]]) -> None:
        self.path, self.gains = path, gains
        self.lacking: dict[str, list[tuple[Array, Array]]] = {name: [] for name in gains}
        self._walk()

    def _walk(self) -> None:
        path, n = self.path, self.path.n
        state = {name: np.eye(n)[part] for name, part in path.place.items()}
        given = {name: np.zeros((len(unit.inputs), n)) for name, unit in path.units.items()}
        rows = np.split(path.coupled.C, np.cumsum([len(u.outputs) for u in path.units.values()])[:-1])
        outputs = dict(zip(path.units, rows, strict=True))
        ahead = np.eye(n)
        for _ in range(self.STEPS):
            for operation in path.operations:
                name = unit_of(operation)
                step, model = path.discrete[name], path.units[name].model
                if isinstance(operation, TimedCouple) and name in self.gains:
                    seen = np.vstack(list(outputs.values()))[path.used]
                    wanted = path.X[name] @ path.F @ ahead - step.A @ state[name] - step.B @ path.U[name] @ ahead
                    push = np.linalg.pinv(step.B, rcond=SMALL) @ wanted
                    links = [link.target.index for link in path.system.incoming(name)]
                    self.lacking[name].append((path.samples(name)[path.used] @ ahead - seen, push[links]))
                    given[name] = path.U[name] @ ahead + push
                elif isinstance(operation, TimedStep):
                    state[name] = step.A @ state[name] + step.B @ given[name]
                elif isinstance(operation, TimedRead):
                    outputs[name] = model.C @ state[name] + model.D @ given[name]
            ahead = path.F @ ahead

    def mixers(self) -> dict[str, Mixer]:
        """The mixer of every compensated unit."""
        return {name: self._mixer(name, K, count) for name, (K, count) in self.gains.items()}

    def _mixer(self, name: str, K: Array, count: int) -> Mixer:
        path = self.path
        q, m, n = len(path.used), len(K), path.n
        S = path.samples(name)[path.used]
        lacking = _trimmed(self.lacking[name], float(np.abs(S).max()), float(np.abs(path.U[name]).max()))
        steps = len(lacking)
        # Slots: samples, newest first; corrections of samples and of inputs, next first; the input's correction now.
        late, push, now = count * q, (count + steps) * q, (count + steps) * q + steps * m
        size = now + m
        ww, wy, uw = np.zeros((size, size)), np.zeros((size, len(path.system.outputs))), np.zeros((m, size))
        start = np.zeros((size, n))
        for row, output in enumerate(path.used):
            wy[row, output] = 1.0
        ww[q:late, : late - q] = np.eye(late - q)
        uw[:, :late] = K
        for level in range(count):
            start[level * q : (level + 1) * q] = S @ np.linalg.matrix_power(path.back, level + 1)
        if steps:
            ww[:q, late : late + q] = np.eye(q)
            ww[late : push - q, late + q : push] = np.eye(push - q - late)
            ww[push : now - m, push + m : now] = np.eye(now - m - push)
            ww[now:, push : push + m] = np.eye(m)
            uw[:, now:] = np.eye(m)
            for j, (sample, extra) in enumerate(lacking):
                start[late + j * q : late + (j + 1) * q] = sample
                start[push + j * m : push + (j + 1) * m] = extra
        x0 = np.concatenate([unit.initial_state for unit in path.units.values()])
        return Mixer(ww, wy, uw, start @ x0, start)


def _trimmed(lacking: list[tuple[Array, Array]], samples: float, inputs: float) -> list[tuple[Array, Array]]:
    """Without the last ones that are nothing but rounding."""
    while lacking and (
        np.abs(lacking[-1][0]).max() <= 1e-10 * samples and np.abs(lacking[-1][1]).max(initial=0.0) <= 1e-10 * inputs
    ):
        lacking = lacking[:-1]
    return lacking
