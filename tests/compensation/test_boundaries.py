"""Systems on the boundary of what can be compensated: a verdict or a typed error, never NaN gains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cosimo import masters
from cosimo.compensation import compare, compensate
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.problems import chain, two_mass, two_mass_undamped
from cosimo.units import ForwardEuler, Mechanical, StateSpace

Build = Callable[[System, float], Master]
MASTERS: tuple[Build, ...] = (masters.jacobi, masters.jacobi_early_read, masters.gauss_seidel)


def free_floating() -> System:
    """Nothing holds the two masses: K of the coupled system is singular."""
    return two_mass(k1=0.0, k2=0.0, name="free")


def without_gain() -> System:
    """Connected, but with the gain 0."""
    system = two_mass()
    return System(system.units, [Connection(c.source, c.target, gain=0.0) for c in system.connections], name="zero")


def equal_poles() -> System:
    """Two equal oscillators that do not feel each other: every pole twice."""
    return two_mass(k1=100.0, k2=100.0, kc=0.0, damping=0.0, name="equal")


def unobservable() -> System:
    """Unit c hears b, and nobody hears c; mass 2 of unit a is neither heard nor pushed."""
    units = {
        "a": Mechanical(np.eye(2), np.diag([0.1, 0.2]), np.diag([100.0, 50.0]), B=[[1.0], [0.0]],
                        displacement=[[1.0, 0.0]], initial=[1.0, 1.0, 0.0, 0.0]),
        "b": Mechanical(1.0, 0.1, 10.0, B=1.0, displacement=1.0),
        "c": Mechanical(2.0, 0.1, 30.0, B=1.0, displacement=1.0),
    }  # fmt: skip
    connections = [Connection("a.y1", "b.u1", gain=10.0), Connection("b.y1", "a.u1", gain=10.0), ("b.y1", "c.u1")]
    return System(units, connections, name="unobservable")


def without_inputs() -> System:
    """Unit a is driven by nothing."""
    first = StateSpace(-1.0, np.zeros((1, 0)), 1.0, initial=1.0)
    return System({"a": first, "b": StateSpace(-2.0, 1.0, 1.0)}, [("a.y1", "b.u1")], name="driven")


def single() -> System:
    """One unit, nothing to exchange."""
    return chain(n=1)


def fed_back() -> System:
    """One unit connected to itself."""
    unit = Mechanical(1.0, 0.1, 10.0, B=1.0, displacement=1.0, initial=[1.0, 0.0], inputs=["f"], outputs=["x"])
    return System({"a": unit}, [Connection("a.x", "a.f", gain=-5.0)], name="fed back")


def static() -> System:
    """Unit a has no states."""
    through = StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), 2.0)
    units = {"a": through, "b": StateSpace(-2.0, 1.0, 1.0, initial=1.0)}
    return System(units, [("b.y1", "a.u1"), Connection("a.y1", "b.u1", gain=-1.0)], name="static")


SYSTEMS = (
    two_mass_undamped, free_floating, without_gain, equal_poles, unobservable, without_inputs, single, fed_back, static,
)  # fmt: skip


@pytest.mark.parametrize("build", MASTERS)
@pytest.mark.parametrize("make", SYSTEMS)
@pytest.mark.one_in(4)
def test_monolithic_target(make: Callable[[], System], build: Build) -> None:
    """All of them can be compensated, and states then follow the monolithic run."""
    system = make()
    found = compensate(system, build(system, 0.01))
    assert found.stable
    assert found.residual < 1e-9
    assert all(np.isfinite(K).all() for gains in found.gains.values() for K in gains)
    assert str(found)
    assert np.isfinite([change.radius for change in found.sensitivity]).all()
    compared = compare(found, stop=2.0)
    assert compared.monolithic is not None
    assert compared.compensated.nrms is not None
    assert compared.monolithic.nrms is not None
    heard = [n for n in system.outputs if not system.units[system.output(n).unit].feedthrough().any()]
    for name in heard:
        # What feeds inputs through also shows the corrected inputs; all else is the monolithic run.
        assert compared.compensated.nrms[name] == pytest.approx(compared.monolithic.nrms[name], rel=1e-6, abs=1e-11)


@pytest.mark.parametrize("build", MASTERS)
@pytest.mark.parametrize("make", SYSTEMS)
@pytest.mark.one_in(4)
def test_exact_target(make: Callable[[], System], build: Build) -> None:
    """Followed, or refused where no connected input can move what would have to move."""
    system = make()
    if make in (equal_poles, unobservable):
        with pytest.raises(ConfigurationError, match="cannot follow the target: its connected inputs do not reach"):
            compensate(system, build(system, 0.01), target="exact")
        return
    found = compensate(system, build(system, 0.01), target="exact")
    assert found.stable
    assert all(np.isfinite(K).all() for gains in found.gains.values() for K in gains)
    compared = compare(found, stop=2.0)
    assert compared.compensated.nrms is not None
    positions = {"two-mass-undamped": "two.x", "free": "two.x", "zero": "two.x", "fed back": "a.x", "static": "b.y1",
                 "driven": "b.y1", "chain of 1": "u1.x"}  # fmt: skip
    assert compared.compensated.nrms[positions[system.name]] < 1e-10


def test_a_connection_without_gain_has_no_plain_hold_to_compare_with() -> None:
    system = without_gain()
    assert compensate(system, masters.jacobi(system, 0.01)).gain_size == 1
    assert np.isinf(compensate(system, masters.jacobi(system, 0.01), target="exact").gain_size)


@pytest.mark.parametrize("pole", [-1e4, -100.0])
def test_a_target_that_forgets_a_state_is_followed_once_it_is_gone(pole: float) -> None:
    """Within a step the fast state is gone (or, under Euler's rule with h λ = −1, exactly 0); b is driven by it."""
    rule = ForwardEuler() if pole == -100.0 else None
    fast, slow = (StateSpace(a, 1.0, 1.0, initial=1.0, integrator=rule) for a in (pole, -2.0))
    system = System({"a": fast, "b": slow}, [("a.y1", "b.u1"), Connection("b.y1", "a.u1", gain=0.0)])
    found = compensate(system, masters.jacobi(system, 0.01))
    assert found.stable
    assert np.isfinite(found.gain_size)
    rows, x = run(system, found.master, stop=1.0).values, np.array([1.0, 1.0])
    exact = [x := found.path.F @ x for _ in range(100)]
    assert np.abs(rows[1:] - exact).max() < 1e-12


@pytest.mark.parametrize("coupling", [Hold(0), Hold(1)], ids=str)
def test_a_fast_unit_in_a_loop_with_offsets_follows_the_converged_iteration(coupling: Hold) -> None:
    fast, slow = StateSpace(-1e4, 1e4, 1.0, initial=1.0), StateSpace(-2.0, 1.0, 1.0, initial=0.3)
    links = [Connection("a.y1", "b.u1", 0.8, 0.5), Connection("b.y1", "a.u1", -0.7, 0.2)]
    system = System({"a": fast, "b": slow}, links)
    found = compensate(system, masters.jacobi(system, 0.01, coupling=coupling), target="converged")
    assert found.stable
    rows = run(system, found.master, stop=5.0).values
    iterated = run(system, masters.iterative(system, 0.01, coupling=coupling, tolerance=1e-13), stop=5.0).values
    assert np.abs(rows - iterated).max() < 1e-10


def test_a_step_beyond_all_numbers_is_refused() -> None:
    system = two_mass(k1=-1e8)
    with pytest.raises(ConfigurationError, match="overflows double precision"):
        compensate(system, masters.jacobi(system, 1.0), target="exact")


def test_external_inputs_are_not_used_for_the_correction() -> None:
    """The force on the mass is external: nothing of it may be asked for, so that nothing reaches the mass."""
    unit = Mechanical(1.0, 0.1, 10.0, B=1.0, displacement=1.0, initial=[1.0, 0.0], inputs=["f"])
    system = System({"a": unit}, inputs={"a.f": np.sin})
    with pytest.raises(ConfigurationError, match="unit 'a' cannot follow the target"):
        compensate(system, masters.jacobi(system, 0.01), target="exact")
    assert compensate(system, masters.jacobi(system, 0.01)).stable


def test_latent_eigenvalues_that_grow_are_a_verdict() -> None:
    """Two and a half radians per step: on its target for ever, but every rounding error grows."""
    system = two_mass(k1=3000.0, k2=10.0)
    found = compensate(system, masters.jacobi(system, 0.04), target="exact")
    assert found.residual < 1e-9
    assert found.latent_radius > 1
    assert not found.follows
    assert not found.stable
    assert "NOT STABLE" in str(found)
    compared = compare(found, stop=100.0)
    assert compared.compensated.diverged is not None
    assert not compared.compensated.stable


def test_a_system_whose_memories_do_not_fit_is_refused_at_once() -> None:
    system = chain(n=500)
    with pytest.raises(
        ConfigurationError, match=r"500 units with 500 .* 134 GiB .* 2 GiB is the limit. Compensate a part"
    ):
        compensate(system, masters.jacobi(system, 1e-2))


@pytest.mark.parametrize("n", [20, pytest.param(40, marks=pytest.mark.slow)])
def test_a_long_chain_is_compensated(n: int) -> None:
    """Every unit remembers all samples: of 40 units 8,000 slots of which some hundred differ, and all on the target."""
    system = chain(n=n)
    found = compensate(system, masters.jacobi(system, 1e-2))
    assert found.stable
    assert found.radius_after == pytest.approx(found.target_radius, rel=1e-10)
    assert found.radius_before > found.radius_after
