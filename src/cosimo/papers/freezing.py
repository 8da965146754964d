"""What predictions have learned, frozen: a master that can be analysed, and run, with the model as it stands.

A joint coupling that learns has no matrices. Once its model x_{k+1} = S z_k is fixed it is linear: the samples (and,
with delays, earlier ones) are its memory, and the line to the predicted sample (core/master.py) is a product with S.
Side by side with the unit's other couplings that is a `Mixer` of degree 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag

from cosimo.algebra.product import coupled_model
from cosimo.core.arrays import Array
from cosimo.core.coupling import CouplingMatrices, Mixer, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Joint, Master, Segment, joints, segment
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
        samplings, outputs = _samplings(system, master, unit), _outputs(system)
        joined = [joint for joint in own if joint.unit == unit]
        predicted = {link for joint in joined for link in joint.links}
        blocks = [
            _plain(link, master.coupling_of(link.connection.target).matrices(sampling), system)
            for link, sampling in samplings.items()
            if link not in predicted
        ]
        for joint in joined:
            key = (unit, joint.source, tuple(link.connection.target for link in joint.links))
            if key not in found:
                raise ConfigurationError(
                    f"no model of '{joint.source}' was learned for the inputs of '{unit}'; run longer."
                )
            place = segment(joint, samplings[joint.links[0]], Fraction(1))  # coupled once: a whole macro step follows
            blocks.append(_predicted(joint, found[key], place, system))
        mixers[unit] = _mixer(system, unit, blocks, outputs)
    return replace(master, name=f"{master.name}+frozen prediction", mixers=mixers)


class _Block(NamedTuple):
    """Memory of its own for some links: w' = ww w + wy y, and c_0, c_1, … of each link as rows of `inputs` times w'."""

    ww: Array
    wy: Array
    inputs: dict[Link, Array]


def _samplings(system: System, master: Master, unit: str) -> dict[Link, Sampling]:
    """When the samples of each connection into the unit belong; refused where there is more than one answer."""
    couples = [op for op in timeline(system, master).operations if isinstance(op, TimedCouple) and op.unit == unit]
    if len(couples) != 1:
        raise ConfigurationError(f"unit '{unit}' is coupled several times in a macro step; it cannot be frozen.")
    links = system.incoming(unit)
    offset = next((link for link in links if link.connection.offset), None)
    if offset is not None:
        raise ConfigurationError(
            f"connection {offset.connection} has an offset, which a frozen prediction does not support; remove it."
        )
    return dict(zip(links, couples[0].samplings, strict=True))


def _outputs(system: System) -> Array:
    """All outputs from all states of the coupled system."""
    models = {name: unit.linear() for name, unit in system.units.items()}
    unknown = [name for name, model in models.items() if model is None]
    if unknown:
        raise ConfigurationError(f"unit '{unknown[0]}' is not linear; identify it before a frozen master is analysed.")
    outputs: Array = coupled_model(system, models).C  # type: ignore[arg-type]
    return outputs


def _row(system: System, output: str, gain: float = 1.0) -> Array:
    return gain * np.eye(len(system.outputs))[[system.outputs.index(output)]]


def _plain(link: Link, f: CouplingMatrices, system: System) -> _Block:
    return _Block(f.ww, f.ws @ _row(system, link.connection.source, link.connection.gain), {link: f.uw})


def _predicted(joint: Joint, model: Mapping[str, Any], place: Segment, system: System) -> _Block:
    """The line to S z, with z = [x; u] of now and of earlier samples."""
    n, width = len(joint.links), len(joint.links) + len(joint.actions)
    S, samples = np.array(model["S"]), int(model["samples"])
    if np.abs(model["b"]).max(initial=0.0) > CONSTANT * max(1.0, float(np.abs(S).max())):
        raise ConfigurationError(
            f"the model of '{joint.source}' has a constant part; learn it without (centred=False), then freeze."
        )
    names = [f"{joint.unit}.{system.units[joint.unit].outputs[place]}" for place in joint.actions]
    newest = [_row(system, link.connection.source, link.connection.gain) for link in joint.links]
    newest += [_row(system, name) for name in names]
    size = width * max(samples, 2)
    ww = np.eye(size, k=-width)
    wy = np.vstack([*newest, np.zeros((size - width, len(system.outputs)))])
    now, before = np.eye(size)[:n], np.eye(size)[width : width + n]
    ahead = np.zeros((n, size))
    ahead[:, : width * samples] = S[:n, : width * samples]
    begin, end = ((before, now), (now, ahead), (ahead, 2 * ahead - now))[place.node + 1]
    line = np.stack([(1 - place.phase) * begin + place.phase * end, (end - begin) / place.period], axis=1)
    return _Block(ww, wy, dict(zip(joint.links, line, strict=True)))


def _mixer(system: System, unit: str, blocks: Sequence[_Block], outputs: Array) -> Mixer:
    """All blocks side by side; the memory starts as if signals had been constant before, w = ww w + wy y."""
    links = system.incoming(unit)
    ww, wy = block_diag(*(block.ww for block in blocks)), np.vstack([block.wy for block in blocks])
    degree = max([1, *(len(rows) - 1 for block in blocks for rows in block.inputs.values())])
    uw, first = np.zeros((degree + 1, len(links), len(ww))), 0
    for block in blocks:
        last = first + len(block.ww)
        for link, rows in block.inputs.items():
            uw[: len(rows), links.index(link), first:last] = rows
        first = last
    start = np.linalg.solve(np.eye(len(ww)) - ww, wy) @ outputs
    x0 = np.concatenate([unit.initial_state for unit in system.units.values()])
    inputs = tuple(link.connection.target for link in links)
    flat = uw.reshape(-1, len(ww))
    return Mixer(ww, wy, flat, start @ x0, start, degree=degree, outputs=system.outputs, inputs=inputs)
