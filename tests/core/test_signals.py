"""The layout of z."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.master import Block, Layout, input_degree
from cosimo.core.system import System
from cosimo.couplings import Hold, Nepce
from cosimo.units import StateSpace

BLOCKS = [(Block("x", "a"), 2), (Block("x", "b"), 3), (Block("y", "a"), 1), (Block("w", 0), 0), (Block("y", "b"), 2)]


def test_blocks_follow_each_other_without_gaps() -> None:
    layout = Layout(BLOCKS)
    assert layout.size == 8
    assert layout.blocks == tuple(block for block, _ in BLOCKS)
    covered = [i for block in layout.blocks for i in range(8)[layout[block]]]
    assert covered == list(range(8))
    assert [layout.width(block) for block in layout.blocks] == [2, 3, 1, 0, 2]


def test_indices_by_kind_in_the_order_of_z() -> None:
    layout = Layout(BLOCKS)
    assert layout.indices("x") == [0, 1, 2, 3, 4]
    assert layout.indices("y") == [5, 6, 7]
    assert layout.indices("y", "x") == list(range(8))
    assert layout.indices("U") == []


def test_external_samples_are_told_apart_by_their_moment() -> None:
    early, late = Block("e", "a.u"), Block("e", "a.u", Fraction(1, 2))
    layout = Layout([(early, 1), (late, 1)])
    assert layout[early] != layout[late]
    with pytest.raises(KeyError):
        layout[Block("e", "a.u", Fraction(1, 3))]


def test_the_degree_of_the_input_is_that_of_its_couplings() -> None:
    units = {"a": StateSpace(-1.0, np.ones((1, 3)), 1.0, start={"u3": 1.0}), "b": StateSpace(-1.0, 1.0, 1.0)}
    system = System(units, [("b.y1", "a.u1"), ("a.y1", "b.u1")], inputs={"a.u2": np.sin})
    # A start value is constant whatever its coupling; an external input counts.
    master = masters.jacobi(system, 0.1, couplings={"a.u1": Hold(1), "a.u3": Hold(2), "b.u1": Nepce(0.5)})
    assert (input_degree(system, master, "a"), input_degree(system, master, "b")) == (1, 0)
    master = masters.jacobi(system, 0.1, couplings={"a.u2": Hold(2)})
    assert input_degree(system, master, "a") == 2
