"""How hard to shake: an amplitude per input at which the unit answers linearly and well above its rounding.

With y(±a) the answers to pulses of height ±a and y(0) the free motion,

    odd(a) = (y(a) − y(−a)) / 2a = ∂y + O(a²),   even(a) = (y(a) + y(−a) − 2 y(0)) / 2a = O(a) or, at a kink, O(1).

Too large an a shows in odd(a) − odd(a/3) as a², beyond what rounding explains; too small a one drowns in rounding / a.
The ladder of amplitudes is climbed in decades: down while the unit is not linear; up, in one go, where rounding is
what limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cosimo.core.arrays import Array
from cosimo.identification.bench import Bench, Trial, TrialFailed

EPS = float(np.finfo(float).eps)
SHORT, LONG = 8, 64
"""Steps of a probe; of one that looks for a late answer."""
GOOD = 1e-10
"""An uncertainty of the answer that needs no improvement."""
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


def find_amplitude(bench: Bench, base: Array, column: int, scale: float) -> Probe:
    """The best rung of the ladder around `scale`; raises TrialFailed where the unit takes none.

    `base` is the free motion over at least LONG steps.
    """
    probes: dict[int, Probe] = {}
    failures: list[str] = []

    def probe(rung: int) -> float:
        try:
            probes[rung] = _probe(bench, base, column, scale * 10.0**rung)
        except TrialFailed as failure:
            failures.append(str(failure))
            return np.inf
        return probes[rung].uncertainty

    first = probe(0)
    if probes and not probes[0].responds:
        for far in (-3, 3, -6, 6):
            if np.isfinite(probe(far)):
                return find_amplitude(bench, base, column, scale * 10.0**far)
    elif not probes or probes[0].error > probes[0].rounding:
        _descend(probe, first)
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


def _probe(bench: Bench, base: Array, column: int, amplitude: float) -> Probe:
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
    # Rounding of outputs, and of what they are made of inside the unit.
    rounding = 8 * EPS * np.abs(answers).max(axis=(0, 1)) / amplitude
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
