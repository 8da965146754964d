"""A master: a schedule, its couplings and the macro step; the signals it works on; couplings that learn in a run."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling, CouplingMatrices, Mixer, ModelCheck, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.schedule import Repeat, Save, Schedule, Step, flatten
from cosimo.core.system import Inlet, Link, System

if TYPE_CHECKING:
    from cosimo._kernel import Predictor


@checked
@dataclass(frozen=True)
class Master:
    """How a system is run: `schedule`, macro step `step`, and a coupling per connection.

    `couplings` maps a target input `"unit.variable"` to its coupling; every other input uses `coupling`. A unit in
    `mixers` gets all its connected inputs from its mixer instead; while one of the `checks` finds that a model does not
    fit, from plain holds.
    """

    name: str
    schedule: Schedule
    step: float
    coupling: Coupling
    couplings: Mapping[str, Coupling] = field(default_factory=dict)
    mixers: Mapping[str, Mixer] = field(default_factory=dict)
    checks: tuple[ModelCheck, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.step, int | float) or not (math.isfinite(self.step) and self.step > 0):
            raise ConfigurationError(f"the macro step must be a positive number, not {self.step}.")

        for coupling in (self.coupling, *self.couplings.values()):
            if not isinstance(coupling, Coupling):
                raise ConfigurationError(f"a coupling is an object such as Hold(order=1), not {coupling!r}.")

    def __str__(self) -> str:
        return str(self.schedule)

    def coupling_of(self, target: str) -> Coupling:
        """The coupling of the input written `"unit.variable"`."""
        return self.couplings.get(target, self.coupling)

    @property
    def saved(self) -> list[str]:
        """The units that the schedule saves and restores."""
        return list(dict.fromkeys(op.unit for op in flatten(self.schedule.operations) if isinstance(op, Save)))

    @property
    def durations(self) -> dict[str, float]:
        """How far each unit steps at a time, in seconds."""
        steps = (op for op in flatten(self.schedule.operations) if isinstance(op, Step))
        return dict.fromkeys(self.schedule.units, self.step) | {op.unit: float(op.fraction) * self.step for op in steps}

    def with_step(self, step: float) -> Master:
        """The same master with another macro step."""
        return replace(self, step=step)


# ---- the layout of z: which block of numbers stands where ------------------------------------------------------------
# x  states of linear units (known only to the algebra)      y  outputs
# u  input polynomials, c_0 of all inputs, then c_1, …       w  memory of one link's coupling (m: of a mixer)
# X, U  what `Save` keeps of x and u                         e  given from outside: external samples, and the number 1


Kind = Literal["x", "y", "u", "w", "m", "X", "U", "e"]


class Block(NamedTuple):
    """A block of z: its kind and whose it is (unit, link number, or external input with its moment)."""

    kind: Kind
    owner: str | int
    time: Fraction | None = None


ONE = Block("e", "1")


class Layout:
    """Blocks one after the other.

    >>> layout = Layout([(Block("x", "a"), 2), (Block("y", "a"), 1)])
    >>> layout.size, layout[Block("y", "a")]
    (3, slice(2, 3, None))
    """

    def __init__(self, blocks: Iterable[tuple[Block, int]]) -> None:
        self._slices: dict[Block, slice] = {}
        self.size = 0
        for block, width in blocks:
            self._slices[block] = slice(self.size, self.size + width)
            self.size += width

    def __getitem__(self, block: Block) -> slice:
        return self._slices[block]

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks in order."""
        return tuple(self._slices)

    def width(self, block: Block) -> int:
        """How many numbers the block holds."""
        part = self._slices[block]
        return int(part.stop - part.start)

    def indices(self, *kinds: Kind) -> list[int]:
        """The places of all numbers of these kinds, in order."""
        return [i for block, s in self._slices.items() if block.kind in kinds for i in range(s.start, s.stop)]


def formed_degree(master: Master, unit: str, inlet: Inlet) -> int:
    """The degree of the polynomial that the master forms for one input of the unit."""
    if inlet.link is None and inlet.source is None:
        return 0
    mixer = master.mixers.get(unit) if inlet.link is not None else None
    return master.coupling_of(inlet.target).degree if mixer is None else mixer.degree


def input_degree(system: System, master: Master, unit: str) -> int:
    """The degree of the polynomials that the master forms for the unit's inputs."""
    return max((formed_degree(master, unit, inlet) for inlet in system.inlets[unit]), default=0)


def mixer_of(system: System, master: Master, unit: str) -> Mixer | None:
    """The mixer of a unit, its rows and columns as the variables stand in this system."""
    mixer = master.mixers.get(unit)
    if mixer is None:
        return None
    return mixer.placed(system.outputs, tuple(link.connection.target for link in system.incoming(unit)))


def mixer_offsets(system: System, unit: str, mixer: Mixer, time: Fraction) -> Array:
    """What is added to F^uw w' at a coupling: the mixer's own constants and the offsets of the connections."""
    links = system.incoming(unit)
    offsets = np.array([link.connection.offset for link in links] + [0.0] * (mixer.degree * len(links)))
    return offsets + mixer.constant_at(time) if mixer.constants else offsets


# ---- couplings that look at all signals between two units at once, and learn while the run goes on -------------------
# A joint coupling is given, at each communication point, the samples x_k that one unit receives from another and the
# values u_k that it sends back, and predicts the next samples x̃_{k+1}. Between samples the input follows the line
# through them. With the newest sample `−τ` old (in macro steps), samples P apart, and the nodes
#
#     X_{−1} = x_{k−1},   X_0 = x_k,   X_1 = x̃_{k+1},   X_2 = 2 X_1 − X_0
#
# the input over the coming step is c_0 + c_1 σ with j = ⌊−τ/P⌋, φ = −τ/P − j, and
#
#     c_0 = X_j + φ (X_{j+1} − X_j),      c_1 = (X_{j+1} − X_j) / P.
#
# For Jacobi (τ = 0, P = 1) that is the line from x_k to x̃_{k+1} (pikulinski2025, Sec. 2.2). Where a unit takes no
# slopes and `mean` is asked for, it is given the mean of that line over its coming step, which is its value half a step
# ahead: φ is larger by so much, and c_1 half as large, so that both lines end alike, where outputs are read.


class JointCoupling(Coupling):
    """To add a coupling that learns, provide `predictor(joint, period)`: a fresh predictor of the kernel's kind.

    Its `advance(x, u)` gives the samples one period ahead; x (n,) are those of now, u (p,) what is sent now. Recorded
    are `expert`, which of its ways to predict is in charge, and `error`, by how much the last prediction missed,
    relative to the size of the signals.
    """

    history = 2
    degree = 1
    error_order = 1
    mean = False
    """Whether units that take no slopes are given the mean of the line, instead of its beginning."""

    @abstractmethod
    def predictor(self, joint: Joint, period: float) -> Predictor:
        """A predictor for these signals, sampled every `period` seconds."""

    def matrices(self, sampling: Sampling) -> CouplingMatrices:
        """It has none: it learns while the run goes on."""
        raise ConfigurationError(
            "a coupling that learns while running has no matrices; run the system, `freeze` what was learned, "
            "and analyse that."
        )


@dataclass(frozen=True, eq=False)
class Joint:
    """All signals that `unit` receives from `source` through one joint coupling, and what it sends there.

    `actions` are places among the outputs of `unit`: those that are connected to inputs of `source`.
    """

    unit: str
    source: str
    links: tuple[Link, ...]
    actions: tuple[int, ...]
    coupling: JointCoupling
    label: str  # distinguishes the joints of a unit in names of recorded signals; empty where there is one only
    pairs: tuple[tuple[int, int], ...]  # (position, velocity) among the links, as the source itself knows them
    mean: bool  # whether the unit is given the mean of the line
    lines: bool  # whether the end of the line matters: the unit takes slopes, or feeds these inputs through

    @property
    def signals(self) -> tuple[str, str]:
        """Names of what is recorded of the predictor: which expert is in charge, and the prediction error."""
        return f"{self.unit}.predictor{self.label}", f"{self.unit}.prediction_error{self.label}"


class Segment(NamedTuple):
    """Where on the line through the nodes a coupling stands: node j, the way φ to the next; `fresh`: a new sample.

    c_1 is the difference between the nodes over `period`.
    """

    node: int
    phase: float
    period: float
    fresh: bool


def joints(system: System, master: Master) -> tuple[Joint, ...]:
    """The joints of a master, unit after unit."""
    found: list[Joint] = []
    for name in system.units:
        groups: dict[tuple[str, JointCoupling], list[Link]] = {}
        for link in system.incoming(name) if name not in master.mixers else ():
            coupling = master.coupling_of(link.connection.target)
            if isinstance(coupling, JointCoupling):
                groups.setdefault((link.source.unit, coupling), []).append(link)
        for number, ((source, coupling), links) in enumerate(groups.items(), 1):
            sent = {link.source.index for link in system.incoming(source) if link.source.unit == name}
            label = str(number) if len(groups) > 1 else ""
            pairs = tuple(_pairs(links, system.units[source].derivatives()))
            unit = system.units[name]
            mean = coupling.mean and unit.input_degree == 0
            lines = unit.input_degree > 0 or bool(unit.feedthrough()[:, [link.target.index for link in links]].any())
            found.append(Joint(name, source, tuple(links), tuple(sorted(sent)), coupling, label, pairs, mean, lines))
    if found and any(isinstance(operation, Repeat) for operation in master.schedule.operations):
        raise ConfigurationError(
            f"inputs of unit '{found[0].unit}' are predicted, which needs one exchange per macro step; an iterative "
            f"master computes them and needs no prediction (use Hold(0))."
        )
    return tuple(found)


def _pairs(links: list[Link], derivatives: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Links whose sources are an output and its derivative, passed on with the same gain."""
    for i, position in enumerate(links):
        for j, velocity in enumerate(links):
            same = position.connection.gain == velocity.connection.gain and velocity.connection.offset == 0
            if same and derivatives.get(position.source.index) == velocity.source.index:
                yield i, j


def segment(joint: Joint, sampling: Sampling, span: Fraction) -> Segment:
    """The constants of one coupling operation, from the times of the samples; the unit then steps by `span`."""
    newest, *earlier = sampling.stamps
    period = sample_period(sampling)
    way = -newest / period
    node = way.numerator // way.denominator
    if not -1 <= node <= 1:
        raise ConfigurationError(
            f"unit '{joint.unit}' sees samples of '{joint.source}' that are {float(-newest):g} macro steps old; "
            f"predictions reach only slightly beyond one sample. Read '{joint.source}' more often, or use a hold."
        )
    # A sample of the same time as the one before replaces it: nothing new is learned.
    fresh = 0 in sampling.kept or not earlier
    if joint.mean:
        return Segment(node, float(way - node + span / period / 2), float(2 * period), fresh)
    return Segment(node, float(way - node), float(period), fresh)


def sample_period(sampling: Sampling) -> Fraction:
    """Macro steps between two samples."""
    newest, *earlier = sampling.stamps
    return newest - earlier[0] if earlier else Fraction(1)
