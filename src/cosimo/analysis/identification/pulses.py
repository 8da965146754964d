"""Pulse answers of a unit, as long as they are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cosimo.analysis.identification.bench import Bench, Trial
from cosimo.analysis.identification.excitation import EPS, LONG, SHORT, UP, Probe, find_amplitude, pulse, relative
from cosimo.core.arrays import Array

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

    def __init__(self, bench: Bench, scales: Array, known: Manner | None = None) -> None:
        self.bench = bench
        self._base = bench.trial()
        self.base: Array = self._base.run(self._nothing(SHORT if known else LONG))
        """The free motion as far as it was followed."""
        again = bench.once(self._nothing(LONG)) if known is None else None
        self.unlike: Array = np.zeros(bench.width) if again is None else np.abs(again - self.base).max(axis=0)
        """(width,) What a second, equal run differs by; 0 of a unit that computes the same every time."""
        self.varying: Array = np.zeros(bench.width)
        """(width,) By how much an answer to pulses of all inputs differs when they come later, as far as is known."""
        self.probes: dict[int, Probe] = self._known(known) if known else {}
        for column in bench.free if known is None else ():
            self.probes[column] = find_amplitude(bench, self.base, column, scales[column], self.unlike)
        self.responding = tuple(column for column, probe in self.probes.items() if probe.responds)
        """The inputs that have an effect."""
        self._trials: dict[tuple[int, float], Trial] = {}
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
        found = np.zeros(len(self.bench.unit.inputs))
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
        h = np.zeros((length, self.bench.width, len(self.bench.unit.inputs)))
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
        rows = self._rows.get(key, np.zeros((0, self.bench.width)))
        if len(rows) < length:
            trial = self._trials.setdefault(key, self.bench.trial())
            height = share * self.probes[column].amplitude
            more = trial.run(pulse(self.bench, length, column, height)[len(rows) :])
            rows = self._rows[key] = np.concatenate([rows, more])
        return rows[:length] - self.free_motion(length)

    def _known(self, manner: Manner) -> dict[int, Probe]:
        """The probes of another step; what is uncertain is rounding.

        Over a shorter step a pulse is made higher, up to a limit, so that it moves the unit as far.
        """
        size = np.abs(self.base).max(axis=0)
        higher = min(max(manner.step / self.bench.step, 1.0), 10.0**UP)
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
        return np.zeros((length, self.bench.powers, len(self.bench.unit.inputs)))
