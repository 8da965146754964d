"""Roots and primary poles where earlier searches lost some: many held signals, rigid motion, no stiffness at all."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from tests.compensation.test_compensation import ring
from tests.papers.other_poles import count_turns

from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.system import System
from cosimo.papers.assignment import assign
from cosimo.papers.laplace import Delay, LaplaceModel
from cosimo.papers.roots import Region
from cosimo.papers.stiffness import Coordinate, DynamicStiffness, Force, Placement, Signal, available_forces
from cosimo.problems import chain, two_mass
from cosimo.units import Mechanical


def free_chain() -> System:
    """Three masses that nothing holds; s (s + 0.025) = 0 is their rigid motion."""
    return chain(n=3, stiffness=0.0, damping=0.025, coupling=25.0)


def loose() -> System:
    """Two masses without any spring or damper."""
    return two_mass(k1=0.0, k2=0.0, kc=0.0, damping=0.0)


def test_a_region_whose_edge_passes_several_roots() -> None:
    model, region = LaplaceModel(two_mass(), 1e-3), Region(-14.03e3, 100.7, -31.7, 96.3e3)
    assert len(model.roots(region)) == 33
    assert count_turns(model, region, spacing=20.0) == 33


@pytest.mark.parametrize("make", [two_mass, lambda: chain(n=3), pytest.param(ring, marks=pytest.mark.slow)])
def test_random_regions(make: Callable[[], System]) -> None:
    """All different, all inside, all roots, and as many as a count along a much finer curve says."""
    rng = np.random.default_rng(3)
    model = LaplaceModel(make(), 2e-3)
    for _ in range(4):
        low, high = rng.uniform([-20, 0.05, -5.0], [-5, 1.0, -0.03]), rng.uniform(20, 60)
        region = Region(*(edge / model.step for edge in (*low.tolist(), high)))
        roots = model.roots(region)
        assert len(roots) == count_turns(model, region, spacing=0.01 / model.step)
        assert all(root in region for root in roots.tolist())
        gaps = np.abs(roots[:, None] - roots) + np.diag(np.full(len(roots), np.inf))
        assert gaps.min() > 1e-6 / model.step
        sizes = np.linalg.svd(model.matrix(roots), compute_uv=False)
        assert (sizes[:, -1] < 1e-8 * sizes[:, 0]).all()


def test_60_roots_take_less_than_half_a_second() -> None:
    """Measured as the processor's time: other work on the machine does not count."""
    model, times = LaplaceModel(two_mass(), 1e-3), []
    for _ in range(3):
        begin = time.process_time()
        found = model.roots(Region(-20e3, 2e3, -98e3, 98e3))
        times.append(time.process_time() - begin)
    assert len(found) > 60
    assert min(times) < 0.5


def test_latent_roots_of_the_ring_need_no_region_of_the_user() -> None:
    found = assign(DynamicStiffness(ring(), 5e-3))
    assert found.rightmost_latent_root().real < 0


@pytest.mark.parametrize(("step", "slow"), [(2e-3, -0.0583), (5e-3, -0.1084), (1e-2, -0.1918)])
def test_no_primary_pole_is_found_twice(step: float, slow: float) -> None:
    model = LaplaceModel(free_chain(), step)
    poles = model.primary_poles()
    assert [p.monolithic.real for p in poles[:2]] == pytest.approx([0, -0.025], abs=1e-9)
    assert [p.cosimulated.real for p in poles[:2]] == pytest.approx([0, slow], abs=1e-4)
    roots = model.roots(Region(-1.0, 1.0, -0.5, 10.0))
    for pole in poles:
        assert np.abs(roots - pole.cosimulated).min() < 1e-8
    gains = assign(DynamicStiffness(free_chain(), step))
    left = [p.cosimulated for p in gains.primary_poles()]
    assert len({round(s.real, 6) + 1j * round(s.imag, 6) for s in left}) == len(left)


def test_a_real_pole_that_meets_a_latent_root_goes_on_as_a_pair() -> None:
    model = LaplaceModel(two_mass(damping=60.0), 4e-3)
    pole = model.primary_poles()[-1]
    assert pole.monolithic.imag == 0
    assert pole.cosimulated.imag > 0
    region = Region(
        pole.cosimulated.real - 5, pole.cosimulated.real + 5, pole.cosimulated.imag - 5, pole.cosimulated.imag + 5
    )
    assert np.abs(model.roots(region) - pole.cosimulated).min() < 1e-8


def test_rigid_motion_has_a_critical_step() -> None:
    model = LaplaceModel(free_chain(), 1e-3)
    critical = model.critical_step()
    worst = [max(s.real for s in row) for row in model.sweep([0.99 * critical, 1.01 * critical])]
    assert worst[0] < 1e-9 < worst[1]


def test_masses_without_springs_drift_and_nothing_else() -> None:
    model = LaplaceModel(loose(), 1e-3)
    assert [p.cosimulated for p in model.primary_poles()] == [0, 0, 0, 0]
    assert model.critical_step() == np.inf
    found = assign(DynamicStiffness(loose(), 1e-3))
    with np.errstate(all="raise"):
        assert found.regular
    assert found.require().residual == 0
    assert found.rightmost_latent_root() == -12e3


def test_rigid_poles_are_not_latent() -> None:
    """The double pole 0 is known to about 1e-8 only; that is nothing beside the other poles."""
    for system in (two_mass(k1=0.0, k2=0.0, damping=0.0), two_mass(k1=0.0, k2=0.0)):
        assert assign(DynamicStiffness(system, 1e-3)).rightmost_latent_root().real < -1e3


def test_units_without_inputs() -> None:
    unit = Mechanical(1.0, 0.1, 10.0, B=np.zeros((1, 0)), displacement=1.0)
    stiffness = DynamicStiffness(System({"a": unit}), 1e-3)
    (pole,) = stiffness.laplace.primary_poles()
    assert pole.cosimulated == pytest.approx(pole.monolithic, rel=1e-12)
    assert not stiffness.perturbation(1j).any()


def test_wrong_input_is_refused_by_name() -> None:
    for step in (np.inf, np.nan):
        with pytest.raises(ConfigurationError, match="macro step must be a positive number"):
            LaplaceModel(two_mass(), step)
    with pytest.raises(ConfigurationError, match="macro step must be a positive number"):
        LaplaceModel(two_mass(), 1e-3).with_step(-1.0)
    for value in (np.nan, np.inf):
        with pytest.raises(ConfigurationError, match="delays of sending and receiving"):
            Delay(send=value)
    with pytest.raises(ConfigurationError, match="finite"):
        Region(-np.inf, 0.0, 0.0, 1.0)
    with pytest.raises(ConfigurationError, match="at least one coordinate"):
        Force((), ())
    stiffness = DynamicStiffness(two_mass(), 1e-3)
    first = available_forces(stiffness)[0]
    with pytest.raises(UnknownNameError, match="zzz"):
        assign(stiffness, (Force(first.acts_on, (Signal(Coordinate("two", 0), "one.zzz"),)),))
    with pytest.raises(UnknownNameError, match="zzz"):
        assign(stiffness, (Force((Placement(Coordinate("two", 0), 1.0, "two.zzz"),), first.sees),))
