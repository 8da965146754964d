"""What predictions have learned, frozen: a master that can be analysed, and run, with the model as it stands.

A joint coupling that learns has no matrices. Once its model x_{k+1} = S z_k is fixed it is linear: the samples (and,
with delays, earlier ones) are its memory, and the line to the predicted sample (core/master.py) is a product with S.
Together with the unit's other couplings that is a `Mixer` of degree 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cosimo.algebra.product import coupled_model
from cosimo.core.arrays import Array
from cosimo.core.coupling import Mixer
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Joint, Master, joints, segment
from cosimo.core.result import Result
from cosimo.core.system import Link, System
from cosimo.core.timing import TimedCouple, timeline

CONSTANT = 1e-9
"""A constant part b of a model up to this size, relative to the largest prediction, is rounding."""


def freeze(system: System, master: Master, learned: Result | Sequence[Mapping[str, Any]]) -> Master:
    """The master with every prediction fixed to the model that `learned` holds (a result of a run, or its "learned").

    >>> from cosimo import masters, problems, run
    >>> from cosimo.analysis import Spectrum
    >>> from cosimo.algebra import LinearSystem
    >>> from cosimo.couplings import Dmd
    >>> system = problems.oscillator_linear()
    >>> master = masters.jacobi(system, 0.01, couplings=dict.fromkeys(["one.x2", "one.v2"], Dmd()))
    >>> frozen = freeze(system, master, run(system, master, stop=5.0))
    >>> held = masters.jacobi(system, 0.01)
    >>> [round(Spectrum(LinearSystem(system, m)).radius, 6) for m in (held, frozen)]
    [1.004938, 1.0]
    """
    models = learned.info.get("learned", ()) if isinstance(learned, Result) else learned
    found = {(model["unit"], model["source"], tuple(model["inputs"])): model for model in models}
    own = joints(system, master)
    if not own:
        raise ConfigurationError("no input of this master is predicted: there is nothing to freeze; use Dmd.")
    mixers = dict(master.mixers)
    for unit in dict.fromkeys(joint.unit for joint in own):
        maker = _Freezing(system, master, unit)
        for joint in own:
            if joint.unit == unit:
                key = (unit, joint.source, tuple(link.connection.target for link in joint.links))
                if key not in found:
                    raise ConfigurationError(
                        f"no model of '{joint.source}' was learned for the inputs of '{unit}'; run for longer."
                    )
                maker.predict(joint, found[key])
        mixers[unit] = maker.mixer()
    return replace(master, name=f"{master.name}+frozen prediction", mixers=mixers)


class _Freezing:
    """Collects the rows of one unit's mixer: memory slots, what feeds them, and what the inputs take from them."""

    def __init__(self, system: System, master: Master, unit: str) -> None:
        self.system, self.links = system, system.incoming(unit)
        couples = [op for op in timeline(system, master).operations if isinstance(op, TimedCouple) and op.unit == unit]
        if len(couples) != 1:
            raise ConfigurationError(f"unit '{unit}' is coupled several times in a macro step; it cannot be frozen.")
        offset = next((link for link in self.links if link.connection.offset), None)
        if offset is not None:
            raise ConfigurationError(f"connection {offset.connection} has an offset; a frozen prediction takes none.")
        self.samplings = dict(zip(self.links, couples[0].samplings, strict=True))
        models = {name: system.units[name].linear() for name in system.units}
        unknown = [name for name, model in models.items() if model is None]
        if unknown:
            raise ConfigurationError(
                f"unit '{unknown[0]}' is not linear; identify it before a frozen master is analysed."
            )
        self.outputs = coupled_model(system, models).C  # type: ignore[arg-type]
        self.rows: list[tuple[Array, dict[int, float]]] = []
        """Per slot what it takes from all outputs, and from which old slots with which factor."""
        self.inputs: dict[tuple[int, Link], dict[int, float]] = {}
        self.degree = 1
        joined = {link for joint in joints(system, master) for link in joint.links}
        for link in self.links:
            if link not in joined:
                self._plain(link, master.coupling_of(link.connection.target).matrices(self.samplings[link]))

    def predict(self, joint: Joint, model: Mapping[str, Any]) -> None:
        """The line to S z, with z = [x; u] of now and of earlier samples."""
        n, width = len(joint.links), len(joint.links) + len(joint.actions)
        S, samples = np.array(model["S"]), int(model["samples"])
        if np.abs(model["b"]).max(initial=0.0) > CONSTANT * max(1.0, float(np.abs(S).max())):
            raise ConfigurationError(
                f"the model of '{joint.source}' has a constant part; learn it without (centred=False), then freeze."
            )
        place = segment(joint, self.samplings[joint.links[0]])
        newest = [self._slot(self._sample(link)) for link in joint.links]
        newest += [self._slot(self._output(f"{joint.unit}.{name}")) for name in self._actions(joint)]
        history = [newest]
        for _ in range(max(samples - 1, 1)):
            history.append([self._slot(None, {slot: 1.0}) for slot in history[-1]])
        before, now = ([{slot: 1.0} for slot in row[:n]] for row in (history[1], history[0]))
        z = [slot for row in history[:samples] for slot in row]
        ahead = [dict(zip(z, S[i, : width * samples].tolist(), strict=True)) for i in range(n)]
        beyond = [_sum((2.0, a), (-1.0, b)) for a, b in zip(ahead, now, strict=True)]
        begin, end = ((before, now), (now, ahead), (ahead, beyond))[place.node + 1]
        for link, first, last in zip(joint.links, begin, end, strict=True):
            self.inputs[0, link] = _sum((1 - place.phase, first), (place.phase, last))
            self.inputs[1, link] = _sum((1 / place.period, last), (-1 / place.period, first))

    def mixer(self) -> Mixer:
        """All rows put together; the memory starts as if signals had been constant before."""
        size, count = len(self.rows), len(self.links)
        ww, uw = np.zeros((size, size)), np.zeros(((self.degree + 1) * count, size))
        wy = np.array([row for row, _ in self.rows])
        for slot, (_, kept) in enumerate(self.rows):
            for source, factor in kept.items():
                ww[slot, source] = factor
        for (power, link), taps in self.inputs.items():
            for slot, gain in taps.items():
                uw[power * count + self.links.index(link), slot] += gain
        # A slot that copies another one starts with what that one samples.
        start = wy @ self.outputs
        for slot, (row, kept) in enumerate(self.rows):
            if not row.any() and len(kept) == 1:
                start[slot] = start[next(iter(kept))]
        x0 = np.concatenate([unit.initial_state for unit in self.system.units.values()])
        inputs = tuple(link.connection.target for link in self.links)
        names = self.system.outputs
        return Mixer(ww, wy, uw, start @ x0, start, degree=self.degree, outputs=names, inputs=inputs)

    def _plain(self, link: Link, f: Any) -> None:
        first = len(self.rows)
        for i in range(len(f.ww)):
            kept = {first + j: float(f.ww[i, j]) for j in range(len(f.ww)) if f.ww[i, j]}
            self._slot(float(f.ws[i, 0]) * self._sample(link), kept)
        for power in range(len(f.uw)):
            self.inputs[power, link] = {first + j: float(f.uw[power, j]) for j in range(len(f.ww))}
        self.degree = max(self.degree, len(f.uw) - 1)

    def _actions(self, joint: Joint) -> list[str]:
        return [self.system.units[joint.unit].outputs[place] for place in joint.actions]

    def _sample(self, link: Link) -> Array:
        return link.connection.gain * self._output(link.connection.source)

    def _output(self, name: str) -> Array:
        row = np.zeros(len(self.system.outputs))
        row[self.system.outputs.index(name)] = 1.0
        return row

    def _slot(self, sample: Array | None, kept: dict[int, float] | None = None) -> int:
        row = np.zeros(len(self.system.outputs)) if sample is None else sample
        self.rows.append((row, kept or {}))
        return len(self.rows) - 1


def _sum(*parts: tuple[float, dict[int, float]]) -> dict[int, float]:
    total: dict[int, float] = {}
    for factor, taps in parts:
        for slot, gain in taps.items():
            total[slot] = total.get(slot, 0.0) + factor * gain
    return total
