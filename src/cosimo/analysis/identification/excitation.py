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
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cosimo.analysis.identification.bench import Bench, Trial, TrialFailed
from cosimo.core.arrays import Array

EPS = float(np.finfo(float).eps)
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


def pulse(bench: Bench, length: int, column: int, height: float, *, power: int = 0, at: int = 0) -> Array:
    """Deviations (length, powers, inputs) that are `height` at one coefficient of one input during step `at`."""
    deviations = np.zeros((length, bench.powers, len(bench.unit.inputs)))
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


def find_amplitude(bench: Bench, base: Array, column: int, scale: float, unlike: Array) -> Probe:
    """The best rung of the ladder around `scale`; raises TrialFailed where the unit takes none.

    `base` is the free motion over at least LONG steps, `unlike` (width,) what two equal runs differ by.
    """
    probes: dict[int, Probe] = {}
    failures: list[str] = []

    def probe(rung: int) -> float:
        try:
            probes[rung] = _probe(bench, base, column, scale * 10.0**rung, unlike)
        except TrialFailed as failure:
            failures.append(str(failure))
            return np.inf
        return probes[rung].uncertainty

    first = probe(0)
    if probes and not probes[0].responds:
        for far in (-3, 3, -6, 6):
            if np.isfinite(probe(far)):
                found = find_amplitude(bench, base, column, scale * 10.0**far, unlike)
                # A linear unit that answers large pulses answers small ones: this one has a dead zone, or sticks.
                seen = found.rounding * found.amplitude / scale <= HIDDEN
                return replace(found, error=max(found.error, 1.0)) if far > 0 and seen else found
    elif not probes or probes[0].error > probes[0].rounding:
        _descend(probe, first)
        best = min(probes, key=lambda rung: probes[rung].uncertainty, default=None)
        if best == 0 and _noisy(bench, base, column, probes[0]):
            _ascend(probe, first)
    elif unlike.any():
        _ascend(probe, first)
    elif first > GOOD:
        probe(min(UP, math.ceil(math.log10(first / GOOD))))
    if not probes:
        raise TrialFailed(
            f"no pulse of input '{bench.unit.inputs[column]}' from {scale * 10.0**-DOWN:g} to {scale:g} was taken: "
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


def _noisy(bench: Bench, base: Array, column: int, probe: Probe) -> bool:
    """Whether what two sizes of a pulse disagree by is noise: two nearly equal pulses disagree about as much."""
    moved = []
    for height in (1.0, 1.0 + NEAR):
        trial = bench.trial()
        deviations = pulse(bench, SHORT, column, height * probe.amplitude)
        moved.append((trial.run(deviations) - base[:SHORT]) / height)
        trial.close()
    apart = np.abs(moved[1] - moved[0]).max(axis=0)
    return bool((probe.noise * probe.amplitude <= EXPLAINS * apart).all())


def _probe(bench: Bench, base: Array, column: int, amplitude: float, unlike: Array) -> Probe:
    heights = (amplitude, -amplitude, amplitude / 3, -amplitude / 3)
    trials = [bench.trial() for _ in heights]
    answers = _answers(bench, trials, column, heights, 0, SHORT)
    if not (answers != base[:SHORT]).any():
        late = _answers(bench, trials[:1], column, heights, SHORT, LONG)
        if (late != base[SHORT:LONG]).any():
            late = np.concatenate([late, _answers(bench, trials[1:], column, heights[1:], SHORT, LONG)])
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


def _answers(bench: Bench, trials: list[Trial], column: int, heights: tuple[float, ...], begin: int, end: int) -> Array:
    """The readings of all trials from step `begin` to `end`, pulses at step 0: (trials, end − begin, width)."""
    found = [
        trial.run(pulse(bench, end, column, height)[begin:]) for trial, height in zip(trials, heights, strict=False)
    ]
    return np.array(found)
