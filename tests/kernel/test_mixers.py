"""Mixers in the kernel: matrices during the start-up, copies and short sums afterwards, and every bit the oracle's."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from native_units import lag, mixed, require_same

from cosimo import masters
from cosimo.compensation import compensate
from cosimo.core.coupling import Mixer, settled
from cosimo.core.master import Master
from cosimo.core.system import Connection, System
from cosimo.problems import four_mass, motor_gearbox, two_mass

OUTPUTS = 4


def system(offset: float = 0.0) -> System:
    """Four outputs; a unit with two connected inputs and two with one."""
    units = {"a": mixed(), "b": lag(0.5), "c": lag(-2.0)}
    connections = [
        Connection("b.y", "a.u", gain=2.0, offset=offset),
        Connection("c.y", "a.v", offset=-0.25),
        Connection("a.y", "b.u", offset=offset),
        Connection("a.z", "c.u"),
    ]
    return System(units, connections)


def register(rng: np.random.Generator, inputs: int) -> Mixer:
    """Registers of delayed outputs of different lengths, corrections that are used once each, slots in any order."""
    lengths = rng.integers(0, 5, OUTPUTS)
    lengths[0] += 1
    late = int(lengths.sum())
    steps = int(rng.integers(0, 4))
    size = late + steps + int(steps > 0)
    ww, wy = np.zeros((size, size)), np.zeros((size, OUTPUTS))
    uw = rng.normal(size=(inputs, size)) * (rng.random((inputs, size)) < 0.7)
    first = 0
    for output, length in enumerate(lengths):
        for slot in range(first, first + length):
            if slot == first:
                wy[slot, output] = 1.0
            else:
                ww[slot, slot - 1] = 1.0
        first += length
    for slot in range(late, late + steps):
        ww[slot, slot + 1] = rng.choice([1.0, -0.5])
    if steps:
        ww[rng.integers(0, late), late] = 1.0
        uw[:, late] = 1.0
    order = rng.permutation(size)
    start = rng.normal(size=size) * (rng.random(size) < 0.8)
    return Mixer(ww[np.ix_(order, order)], wy[order], uw[:, order], start[order], np.zeros((size, 0)))


def mixing(mixers: dict[str, Mixer], coupled: System) -> Master:
    return replace(masters.jacobi(coupled, 0.05), mixers=mixers)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.one_in(4)
def test_registers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mixers = {"a": register(rng, 2), "c": register(rng, 1)}
    assert all(settled(mixer) is not None for mixer in mixers.values())
    coupled = system()
    require_same(coupled, mixing(mixers, coupled), steps=30)


@pytest.mark.parametrize("seed", range(5))
def test_any_matrices(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def matrices(inputs: int) -> Mixer:
        ww, wy, uw = (rng.normal(size=shape) / 4 for shape in ((5, 5), (5, OUTPUTS), (inputs, 5)))
        return Mixer(ww, wy, uw, rng.normal(size=5), np.zeros((5, 0)))

    mixers = {"a": matrices(2), "b": matrices(1)}
    assert all(settled(mixer) is None for mixer in mixers.values())
    coupled = system(0.5)
    require_same(coupled, mixing(mixers, coupled), steps=30)


@pytest.mark.parametrize("offset", [0.0, -0.0])
@pytest.mark.parametrize("value", [0.0, -0.0, -1.5])
def test_zeros_keep_the_sign_of_the_oracle(value: float, offset: float) -> None:
    """With an offset of −0 an input of zero has the sign of its sum, and that the signs of all products."""
    units = {name: lag(value, step="still_step", start={}) for name in ("a", "b")}
    coupled = System(units, [Connection("b.y", "a.u", offset=offset), ("a.y", "b.u")])
    for gains in ([[0.0, 0.0]], [[-1.0, 0.0]], [[0.0, -1.0]], [[1.0, 1.0]], [[1.0, -1.0]]):
        mixer = Mixer(np.eye(2, k=-1), np.eye(2)[:, ::-1] * [[1], [0]], np.array(gains), np.zeros(2), np.zeros((2, 0)))
        require_same(coupled, mixing({"a": mixer}, coupled), steps=4)


def test_beside_an_overflow_products_with_zeros_count() -> None:
    """The first sample and its correction overflow; from then on 0 · ∞ is in every sum of the matrices."""
    units = {name: lag(1.5e308, step="still_step", start={}) for name in ("a", "b")}
    coupled = System(units, [("b.y", "a.u"), ("a.y", "b.u")])
    ww, wy = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    mixer = Mixer(ww, wy, np.array([[0.0, 1.0]]), np.array([0.0, 1.5e308]), np.zeros((2, 0)))
    assert settled(mixer) is not None
    ours = require_same(coupled, mixing({"a": mixer}, coupled), steps=5)
    assert np.isnan(ours["a.u"][1:]).all()


@pytest.mark.parametrize("build", [masters.jacobi, masters.jacobi_early_read, masters.gauss_seidel])
@pytest.mark.parametrize("make", [two_mass, four_mass, motor_gearbox])
def test_compensated_masters_settle(make: object, build: object) -> None:
    """After the start-up, no matrices are left: the kernel's cost per macro step is that of a few products."""
    problem = make()  # type: ignore[operator]
    found = compensate(problem, build(problem, 1e-4))  # type: ignore[operator]
    for name, mixer in found.master.mixers.items():
        short = settled(mixer)
        assert short is not None
        assert 0 <= short.startup <= 5
        # As many products per input as there are gains that are not zero.
        (gains,) = found.gains[name]
        assert [len(row) for row in short.taps] == (gains != 0).sum(axis=1).tolist()
    require_same(problem, found.master, steps=40)
