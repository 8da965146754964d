"""How hard to shake: an amplitude per input at which the unit answers linearly and well above its rounding.

With y(±a) the answers to pulses of height ±a and y(0) the free motion,

    odd(a) = (y(a) − y(−a)) / 2a = ∂y + O(a²),   even(a) = (y(a) + y(−a) − 2 y(0)) / 2a = O(a) or, at a kink, O(1).

Too large an a shows in odd(a) − odd(a/3) as a², beyond what noise explains; too small a one drowns in noise / a. Noise
is rounding, what two equal runs differ by, and what a loose solver makes of two that are nearly equal. The ladder of
amplitudes is climbed in decades: down while the unit is not linear, up where noise is what limits (in one go where it
is rounding). Switches, dead zones and stick also disagree more the smaller the pulses are; but there two nearly equal
pulses are answered nearly alike, and larger ones would only hide what happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from cosimo.analysis.identification.models import EPS
from cosimo.analysis.identification.test_rig import Rig, RigTrial, TrialFailed
from cosimo.core import dataclass
from cosimo.core.arrays import Array

SHORT, LONG = 8, 64
"""Steps of a probe; of one that looks for a late answer."""
GOOD = 1e-10
"""An uncertainty of the answer that needs no improvement."""
CLEAR = 1e-5
"""One by noise that is small enough: a map that is measured so well passes every check with room to spare."""
DOWN, UP = 9, 3
"""How many decades are tried: few upwards, as a large pulse may lead far away later than a probe sees."""


@dataclass(frozen=True)
class Probe:
    """What a probe of one input found, relative to the answer.

    `error`: what two amplitudes differ by; `even`: what the two signs differ by, both beyond rounding; `rounding`: how
    large that is. `noise` (width,): how uncertain the answer per unit of input is, output by output. An input without
    effect has `responds` False.
    """

    amplitude: float
    error: float
    even: float
    rounding: float
    noise: Array
    responds: bool

    @property
    def uncertainty(self) -> float:
        """What is known no better of the answer."""
        return self.error + self.rounding if self.responds else np.inf


NEAR, EXPLAINS = 0.01, 20.0
"""By what share nearly equal pulses differ, and how many times their disagreement may be that of two sizes, to be its
cause. A loose solver disagrees about as much with both; a switch of height J by 2 J with the sizes and NEAR J here."""
HIDDEN = 1e-3
"""Rounding, as a share of the answer, from which an answer may go unseen."""


def pulse(rig: Rig, length: int, column: int, height: float, *, power: int = 0, at: int = 0) -> Array:
    """Deviations (length, powers, inputs) that are `height` at one coefficient of one input during step `at`."""
    deviations = np.zeros((length, rig.powers, len(rig.unit.inputs)))
    deviations[at, power, column] = height
    return deviations


def relative(difference: Array, answer: Array, floor: Array) -> float:
    """The largest difference over time, output by output relative to the answer (at least `floor`).

    0 without any difference; 1 where there should be no answer at all.
    """
    size = np.maximum(np.abs(answer).max(axis=0, initial=0.0), floor)
    found = np.abs(difference).max(axis=0, initial=0.0)
    size = np.where(size > 0, size, np.where(found > 0, found, 1.0))
    return float((found / size).max(initial=0.0))


def find_amplitude(rig: Rig, base: Array, column: int, scale: float, unlike: Array) -> Probe:
    """The best rung of the ladder around `scale`; raises TrialFailed where the unit takes none.

    `base` is the free motion over at least LONG steps, `unlike` (width,) what two equal runs differ by.
    """
    probes: dict[int, Probe] = {}
    failures: list[str] = []

    def probe(rung: int) -> float:
        try:
            probes[rung] = _probe(rig, base, column, scale * 10.0**rung, unlike)
        except TrialFailed as failure:
            failures.append(str(failure))
            return np.inf
        return probes[rung].uncertainty

    first = probe(0)
    if probes and not probes[0].responds:
        for far in (-3, 3, -6, 6):
            if np.isfinite(probe(far)):
                found = find_amplitude(rig, base, column, scale * 10.0**far, unlike)
                # A linear unit that answers large pulses answers small ones: this one has a dead zone, or sticks.
                seen = found.rounding * found.amplitude / scale <= HIDDEN
                return replace(found, error=max(found.error, 1.0)) if far > 0 and seen else found
    elif not probes or probes[0].error > probes[0].rounding:
        _descend(probe, first)
        best = min(probes, key=lambda rung: probes[rung].uncertainty, default=None)
        if best == 0 and _noisy(rig, base, column, probes[0]):
            _ascend(probe, first)
    elif unlike.any():
        _ascend(probe, first)
    elif first > GOOD:
        probe(min(UP, math.ceil(math.log10(first / GOOD))))
    if not probes:
        raise TrialFailed(
            f"no pulse of input '{rig.unit.inputs[column]}' from {scale * 10.0**-DOWN:g} to {scale:g} was taken: "
            f"{failures[0]}"
        )
    return min(probes.values(), key=lambda found: found.uncertainty)


def _descend(probe: Callable[[int], float], first: float) -> None:
    """Go on while it gets better (or while no pulse was taken yet)."""
    best, since = first, 0
    for rung in range(1, DOWN + 1):
        uncertainty = probe(-rung)
        since = since + 1 if uncertainty >= best and np.isfinite(best) else 0
        best = min(best, uncertainty)
        if since == 2 or best <= GOOD:
            return


def _ascend(probe: Callable[[int], float], first: float) -> None:
    """Go on while noise is too near and recedes."""
    best = first
    for rung in range(1, UP + 1):
        if best <= CLEAR:
            return
        uncertainty = probe(rung)
        if uncertainty > best:
            return
        best = uncertainty


def _noisy(rig: Rig, base: Array, column: int, probe: Probe) -> bool:
    """Whether what two sizes of a pulse disagree by is noise: two nearly equal pulses disagree about as much."""
    moved = []
    for height in (1.0, 1.0 + NEAR):
        trial = rig.trial()
        deviations = pulse(rig, SHORT, column, height * probe.amplitude)
        moved.append((trial.run(deviations) - base[:SHORT]) / height)
        trial.close()
    apart = np.abs(moved[1] - moved[0]).max(axis=0)
    return bool((probe.noise * probe.amplitude <= EXPLAINS * apart).all())


def _probe(rig: Rig, base: Array, column: int, amplitude: float, unlike: Array) -> Probe:
    heights = (amplitude, -amplitude, amplitude / 3, -amplitude / 3)
    trials = [rig.trial() for _ in heights]
    answers = _answers(rig, trials, column, heights, 0, SHORT)
    if not (answers != base[:SHORT]).any():
        late = _answers(rig, trials[:1], column, heights, SHORT, LONG)
        if (late != base[SHORT:LONG]).any():
            late = np.concatenate([late, _answers(rig, trials[1:], column, heights[1:], SHORT, LONG)])
            answers = np.concatenate([answers, late], axis=1)
    for trial in trials:
        trial.close()
    free = base[: answers.shape[1]]
    plus, minus, some, less = answers
    odd, smaller = (plus - minus) / (2 * amplitude), (some - less) / (2 * amplitude / 3)
    even = (plus + minus - 2 * free) / (2 * amplitude)
    # Rounding of outputs, and of what they are made of inside the unit; four readings make a difference of two.
    rounding = np.maximum(8 * EPS * np.abs(answers).max(axis=(0, 1)), 4 * unlike) / amplitude
    # An answer within a thousand roundings of the output itself is too weak to judge.
    floor = 1e3 * rounding
    return Probe(
        amplitude=amplitude,
        error=relative(np.maximum(np.abs(odd - smaller) - rounding, 0.0), odd, floor),
        even=relative(np.maximum(np.abs(even) - rounding, 0.0), odd, floor),
        rounding=relative(rounding[None, :], odd, floor),
        noise=np.maximum(np.abs(odd - smaller).max(axis=0), rounding / 4),
        responds=bool((answers != free).any()),
    )


def _answers(rig: Rig, trials: list[RigTrial], column: int, heights: tuple[float, ...], begin: int, end: int) -> Array:
    """The readings of all trials from step `begin` to `end`, pulses at step 0: (trials, end − begin, width)."""
    found = [trial.run(pulse(rig, end, column, height)[begin:]) for trial, height in zip(trials, heights, strict=False)]
    return np.array(found)


# ---- pulse answers of a unit, as long as they are wanted -------------------------------------------------------------


NO_END = 2**31
STRAIGHT = 3e-11
"""Below this share of cubic and even parts the unit is linear to rounding, and one pulse says as much as three."""
BENT = 1e-3
"""From this share on the answer is no longer that of the linearised unit."""
MADE_UP = 6.0
"""How many times its noise |cubic| + |even| may be of a unit that does not bend: it is known from a few rows only."""
LEFT = 1 / 30
"""How much of the cubic part is taken to remain when it has been removed."""


@dataclass(frozen=True)
class Answers:
    """h (N, width, inputs): the answers to unit pulses of the constant part of the input, row k before step k.

    Inputs that are held fixed or have no effect have columns of zeros. `base` (N, width) is the free motion; `noise`
    (width, inputs) how uncertain h is.
    """

    h: Array
    base: Array
    noise: Array


@dataclass(frozen=True)
class Manner:
    """What is true of a unit that is linear to rounding at any macro step: how hard it may be shaken, how it repeats.

    `probes` by input, made at `step`; `steady` and `repeat` are the relative errors of the checks that were made.
    """

    step: float
    probes: Mapping[int, Probe]
    steady: float
    repeat: float


class Pulses:
    """The free motion and the answers to pulses of each input, from the same operating point.

    A pulse of height a tells all of a linear unit. Where a second one of −a/3 disagrees beyond rounding, a third of −a
    is made: with answers y = ∂y a + E a² + F a³, odd and even part give ∂y + F a² and E a, and the small pulse F a².
    With `known`, from another macro step, nothing is probed.
    """

    def __init__(self, rig: Rig, scales: Array, known: Manner | None = None) -> None:
        self.rig = rig
        self._base = rig.trial()
        self.base: Array = self._base.run(self._nothing(SHORT if known else LONG))
        """The free motion as far as it was followed."""
        again = rig.once(self._nothing(LONG)) if known is None else None
        self.unlike: Array = np.zeros(rig.width) if again is None else np.abs(again - self.base).max(axis=0)
        """(width,) What a second, equal run differs by; 0 of a unit that computes the same every time."""
        self.varying: Array = np.zeros(rig.width)
        """(width,) By how much an answer to pulses of all inputs differs when they come later, as far as is known."""
        self.probes: dict[int, Probe] = self._known(known) if known else {}
        for column in rig.free if known is None else ():
            self.probes[column] = find_amplitude(rig, self.base, column, scales[column], self.unlike)
        self.responding = tuple(column for column, probe in self.probes.items() if probe.responds)
        """The inputs that have an effect."""
        self._trials: dict[tuple[int, float], RigTrial] = {}
        self._rows: dict[tuple[int, float], Array] = {}
        self._bending: set[int] = set()
        self.reach = NO_END
        """Rows over which the answers are those of the linearised unit, as far as they were followed."""
        for column in self.responding if known is None else ():
            plus, third = (self._moved(column, share, LONG) for share in (1.0, -1 / 3))
            rounding = 8 * EPS * (np.abs(self.base).max(axis=0) + np.abs(plus).max(axis=0)) + 4 * self.unlike
            apart = np.maximum(np.abs(plus + 3 * third) - 4 * rounding, 0.0)
            probe = self.probes[column]
            share = max(relative(apart, plus, 1e3 * rounding), probe.error, probe.even)
            if share > STRAIGHT or probe.amplitude < 0.5 * scales[column]:
                self._bending.add(column)  # a pulse that had to be made smaller bends too, if less
        self.linear = max((max(p.error, p.even) for p in self.probes.values() if p.responds), default=0.0)
        """The largest relative departure from linearity found, of two amplitudes or of the two signs."""

    @property
    def count(self) -> int:
        """Trials that cost a step each per step of length, the free motion included."""
        return 1 + len(self.responding) + 2 * len(self._bending)

    @property
    def done(self) -> int:
        """Rows of these trials that are there already."""
        going_on = [rows for (column, share), rows in self._rows.items() if share == 1 or column in self._bending]
        return len(self.base) + sum(map(len, going_on))

    @property
    def straight(self) -> bool:
        """Whether the unit is linear to rounding."""
        return not self._bending

    @property
    def still(self) -> bool:
        """Whether nothing moves, on its own or under pulses."""
        return not self.responding and bool((self.base == self.base[0]).all())

    def amplitudes(self) -> Array:
        """The height of the pulses at every input; 0 at those held fixed or without effect."""
        found = np.zeros(len(self.rig.unit.inputs))
        for column in self.responding:
            found[column] = self.probes[column].amplitude
        return found

    def free_motion(self, length: int) -> Array:
        """`length` rows of the free motion."""
        if len(self.base) < length:
            more = self._base.run(self._nothing(length - len(self.base)))
            self.base = np.concatenate([self.base, more])
        return self.base[:length]

    @property
    def rough(self) -> Array:
        """(width,) How uncertain the outputs themselves are: what equal runs, or two sizes of a pulse, differ by."""
        sizes = [self.probes[column].noise * self.probes[column].amplitude for column in self.responding]
        rough: Array = np.max([2 * self.unlike, *sizes], axis=0)
        return rough

    def answers(self, length: int) -> Answers:
        """Answers of `length` rows; what is there already is not run again."""
        base = self.free_motion(length)
        h = np.zeros((length, self.rig.width, len(self.rig.unit.inputs)))
        noise = np.zeros(h.shape[1:])
        largest = np.abs(base).max(axis=0)
        for column in self.responding:
            probe = self.probes[column]
            a, plus = probe.amplitude, self._moved(column, 1.0, length)
            h[:, :, column] = plus / a
            if column in self._bending:
                minus, third = self._moved(column, -1.0, length), self._moved(column, -1 / 3, length)
                odd, even, small = (plus - minus) / (2 * a), (plus + minus) / (2 * a), -third / (a / 3)
                cubic = 9 / 8 * (odd - small - even / 3)
                h[:, :, column] = odd - cubic
                bend = np.abs(cubic) + np.abs(even)
                self._watch(np.abs(odd), np.maximum(bend - MADE_UP * self.rough / a, 0.0), EPS * largest / a)
                noise[:, column] = LEFT * np.abs(cubic[: self.reach]).max(axis=0)
            moved = np.abs(h[:, :, column]).max(axis=0)
            noise[:, column] += probe.noise + EPS * (largest / a + moved) + (2 * self.unlike + self.varying) / a
        return Answers(h, base, noise)

    def _moved(self, column: int, share: float, length: int) -> Array:
        """How far a pulse of this share of the amplitude moves the outputs from the free motion."""
        key = (column, share)
        rows = self._rows.get(key, np.zeros((0, self.rig.width)))
        if len(rows) < length:
            trial = self._trials.setdefault(key, self.rig.trial())
            height = share * self.probes[column].amplitude
            more = trial.run(pulse(self.rig, length, column, height)[len(rows) :])
            rows = self._rows[key] = np.concatenate([rows, more])
        return rows[:length] - self.free_motion(length)

    def _known(self, manner: Manner) -> dict[int, Probe]:
        """The probes of another step; what is uncertain is rounding.

        Over a shorter step a pulse is made higher, up to a limit, so that it moves the unit as far.
        """
        size = np.abs(self.base).max(axis=0)
        higher = min(max(manner.step / self.rig.step, 1.0), 10.0**UP)
        return {
            column: replace(probe, amplitude=higher * probe.amplitude, noise=2 * EPS * size / probe.amplitude / higher)
            for column, probe in manner.probes.items()
        }

    def _watch(self, odd: Array, bend: Array, rounding: Array) -> None:
        """Note from which row on the answer bends, and how much within reach."""
        top = np.maximum(np.maximum.accumulate(odd, axis=0), 1e3 * rounding)
        share = np.divide(bend, top, out=np.zeros_like(bend), where=top > 0).max(axis=1)
        late = np.flatnonzero(share > BENT)
        if len(late):
            self.reach = min(self.reach, max(int(late[0]), SHORT))
        self.linear = max(self.linear, float(share[: self.reach].max(initial=0.0)))

    def _nothing(self, length: int) -> Array:
        return np.zeros((length, self.rig.powers, len(self.rig.unit.inputs)))
