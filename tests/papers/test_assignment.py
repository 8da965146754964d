"""What an assignment lacks, and which assignments may run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.papers.assignment import SOLVED, assign, with_feedback
from cosimo.papers.stiffness import DynamicStiffness, available_forces
from cosimo.problems import chain, two_mass
from cosimo.units import Mechanical


def side_by_side() -> System:
    """Two units of two masses each, told only the displacement of the mass beyond the cut."""

    def unit(k: float) -> Mechanical:
        return Mechanical(np.eye(2), np.diag([0.1, 0.1]), [[k + 20, -k], [-k, k + 50]], B=[[0.0], [50.0]],
                          displacement=[[0.0, 1.0]], inputs=["x"], outputs=["x"])  # fmt: skip

    return System({"a": unit(100.0), "b": unit(150.0)}, [("a.x", "b.x"), ("b.x", "a.x")])


def through() -> System:
    """Unit a is pushed by a force that b forms from its own displacement and that of c, which a never hears of."""
    first = Mechanical(1.0, 0.1, 60.0, B=1.0, displacement=40.0, inputs=["f"], outputs=["f"])
    second = Mechanical(1.5, 0.1, 90.0, B=[[40.0, 1.0]], displacement=[[50.0], [1.0]],
                        feedthrough=[[-50.0, 0.0], [0.0, 0.0]], inputs=["xc", "f"], outputs=["f", "x"])  # fmt: skip
    third = Mechanical(np.diag([2.0, 1.0]), 0.1 * np.eye(2), [[160.0, -40.0], [-40.0, 70.0]], B=[[40.0], [0.0]],
                       displacement=[[1.0, 0.0]], inputs=["x"], outputs=["x"])  # fmt: skip
    links = [("b.f", "a.f"), ("a.f", "b.f"), ("c.x", "b.xc"), ("b.x", "c.x")]
    return System({"a": first, "b": second, "c": third}, links)


def test_sets_of_signals_are_named_where_none_suffices_alone() -> None:
    stiffness = DynamicStiffness(two_mass(), 1e-3)
    first, second = available_forces(stiffness)
    found = assign(stiffness, (first.without("two.q1"), second.without("one.q1")))
    words = "signal two.q1* in the force on one.q1 and signal one.q1* in the force on two.q1"
    assert found.missing() == (words,)
    with pytest.raises(ConfigurationError, match="missing: signal"):
        found.require()
    assert assign(stiffness, (first, second)).missing() == ()
    three = DynamicStiffness(chain(n=3), 3e-2)
    (both,) = assign(three, available_forces(three)[:1]).missing()
    assert "independent force on u2.q1" in both
    assert "independent force on u3.q1" in both


def test_coordinates_that_are_not_exchanged_are_named() -> None:
    found = assign(DynamicStiffness(through(), 1e-2))
    assert not found.assignable
    assert any("signal c.q1* in the force on a.q1" in words for words in found.missing())


def test_assignable_and_require_agree_where_ranks_are_rounding() -> None:
    found = assign(DynamicStiffness(side_by_side(), 1e-2))
    assert (found.rank, found.rank_augmented) == (14, 15)
    assert found.residual < SOLVED
    assert found.assignable
    assert found.missing() == ()
    assert found.require() is found


def test_gains_that_assign_nothing_do_not_run() -> None:
    good = assign(DynamicStiffness(two_mass(), 1e-3))
    wrong = replace(good, gains=tuple(0 * part for part in good.gains))
    with pytest.raises(ConfigurationError, match=r"do not assign .* check=False"):
        with_feedback(wrong, masters.jacobi)


def test_other_gains_run_when_asked_to_and_say_what_they_leave() -> None:
    good = assign(DynamicStiffness(two_mass(), 1e-3))
    others = replace(good, gains=tuple(0.9 * part for part in good.gains))
    assert not others.assignable
    with pytest.warns(UserWarning, match=rf"leave {others.residual:.1e} of L k = n"):
        system, master = with_feedback(others, masters.jacobi_early_read, check=False)
    radius, wanted = (
        Spectrum(LinearSystem(*pair)).radius
        for pair in ((system, master), with_feedback(good, masters.jacobi_early_read))
    )
    assert abs(radius - wanted) > 1e-7
    with_feedback(good, masters.jacobi_early_read, check=False)  # Nothing to say of good ones.


def test_schedules_of_other_rates_do_not_run() -> None:
    good = assign(DynamicStiffness(two_mass(), 1e-3))

    def half(system: System, step: float) -> Master:
        return masters.multirate(system, step / 2, multiples={"one": 2})

    def slow(system: System, step: float) -> Master:
        return masters.jacobi(system, 2 * step)

    def repeated(system: System, step: float) -> Master:
        return masters.iterative(system, step)

    for master in (half, slow, repeated):
        with pytest.raises(ConfigurationError, match="one step of every unit per macro step"):
            with_feedback(good, master)


def test_at_long_steps_latent_roots_on_the_left_are_not_enough() -> None:
    found = assign(DynamicStiffness(two_mass(), 5e-2)).require()
    assert found.rightmost_latent_root().real < 0
    radius = Spectrum(LinearSystem(*with_feedback(found, masters.jacobi_early_read))).radius
    assert radius == pytest.approx(1.117, abs=5e-4)
