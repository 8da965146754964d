"""What is left of a mixer after its start-up, and when nothing may be left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosimo.core.arrays import Array, product
from cosimo.core.coupling import Mixer, Settled, settled


def mixer(ww: object, wy: object, uw: object) -> Mixer:
    first = np.array(ww, dtype=float)
    size = len(first)
    return Mixer(first, np.array(wy, dtype=float), np.array(uw, dtype=float), np.ones(size), np.zeros((size, 0)))


# Two delayed samples of output 1, and a correction of the first in slot 3 that comes from slot 2.
DELAYED = mixer(
    [[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]],
    [[0, 1], [0, 0], [0, 0], [0, 0]],
    [[2, -1, 0, 3], [0, 0, 0, 1]],
)


def follow(short: Settled, w: Array, y: Array) -> tuple[Array, list[float]]:
    """One use, as the class describes it."""
    w = w.copy()
    for to, source in short.shifts:
        w[to] = w[source]
    for slot, output in short.samples:
        w[slot] = y[output]
    return w, [sum(gain * w[slot] for slot, gain in row) for row in short.taps]


def test_a_register_with_corrections() -> None:
    short = settled(DELAYED)
    assert short == Settled(startup=2, shifts=((1, 0),), samples=((0, 1),), taps=(((0, 2.0), (1, -1.0)), ()))
    rng = np.random.default_rng(0)
    w, ours = DELAYED.start, DELAYED.start
    for use in range(6):
        y = rng.normal(size=2)
        w = product(DELAYED.ww, w) + product(DELAYED.wy, y)
        if use < short.startup:
            ours = w
            continue
        ours, u = follow(short, ours, y)
        assert u == product(DELAYED.uw, w).tolist()


def test_slots_that_no_tap_needs_are_left_out() -> None:
    short = settled(replace(DELAYED, uw=np.array([[2.0, 0.0, 0.0, 1.0]])))
    assert short == Settled(startup=2, shifts=(), samples=((0, 1),), taps=(((0, 2.0),),))


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("a slot that stays for ever", {(2, 2): 1.0}),
        ("slots that swap", {(2, 3): 1.0}),
        ("a copy with a factor", {(1, 0): 0.5}),
        ("a sum of slots", {(1, 1): 1.0}),
        ("a mean of slots", {(1, 0): 0.5, (1, 1): 0.5}),
    ],
)
def test_what_is_more_than_delays(what: str, changes: dict[tuple[int, int], float]) -> None:
    ww = DELAYED.ww.copy()
    for place, value in changes.items():
        ww[place] = value
    assert settled(replace(DELAYED, ww=ww)) is None, what


@pytest.mark.parametrize("part", ["ww", "wy", "uw", "start"])
def test_infinity_times_zero_is_not_left_out(part: str) -> None:
    changed = getattr(DELAYED, part).copy()
    changed.flat[-1] = np.inf
    assert settled(replace(DELAYED, **{part: changed})) is None


def test_samples_from_outputs_need_a_factor_of_one() -> None:
    assert settled(mixer([[0.0]], [[2.0]], [[1.0]])) is None
    assert settled(mixer([[0.0]], [[1.0]], [[1.0]])) == Settled(0, (), ((0, 0),), (((0, 1.0),),))
