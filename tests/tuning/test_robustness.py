"""Stability radii: proven below, attained above; relative radii across step sizes; first crossings."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from tests.tuning.networks import rescaled

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum, critical_step
from cosimo.analysis.robustness import Change, RescaledRadii, _selected, _signs, search
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, DimensionError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.schedule import Couple, Read, Schedule, Step
from cosimo.core.system import Connection, System
from cosimo.core.unit import DiscreteModel
from cosimo.couplings import Hold
from cosimo.papers.glumac2018 import first_crossing as glumac_crossing
from cosimo.papers.glumac2018 import paper_masters
from cosimo.problems.masses import two_mass_glumac
from cosimo.tuning.stability_radius import (
    Structure,
    first_crossing,
    parameter_structure,
    relative_radius,
    stability_radius,
    unit_structure,
)
from cosimo.units import StateSpace
from thinning import examples, mostly_slow

SEEDS = st.integers(0, 2**32 - 1)
STEPS = np.geomspace(0.5, 9, 12)


def rho(matrix: Array) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())


def random_structure(seed: int, n: int, q: int, p: int, radius: float = 0.9) -> Structure:
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(n, n))
    Phi *= radius / rho(Phi)
    return Structure.of(Phi, rng.normal(size=(n, q)), rng.normal(size=(p, n)))


# ---- radii of matrices -----------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=examples(60))
def test_complex_radius_is_proven_and_attained(seed: int, n: int, q: int, p: int) -> None:
    structure = random_structure(seed, n, q, p)
    found = stability_radius(structure)
    assert 0 < found.lower <= found.value <= found.lower * (1 + 2e-4)
    assert np.linalg.norm(found.perturbation, 2) == pytest.approx(found.value, rel=1e-12)
    assert rho(structure.perturbed(found.perturbation)) == pytest.approx(1, abs=1e-7)
    assert rho(structure.perturbed(1.001 * found.perturbation)) > 1
    rng = np.random.default_rng(seed + 1)
    for _ in range(100):
        Delta = rng.normal(size=(q, p)) + 1j * rng.normal(size=(q, p))
        assert rho(structure.perturbed(Delta * found.lower * 0.999 / np.linalg.norm(Delta, 2))) < 1


@given(SEEDS, st.integers(2, 5), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=examples(25))
def test_real_radius_is_proven_and_attained(seed: int, n: int, q: int, p: int) -> None:
    structure = random_structure(seed, n, q, p)
    found, complex_ = stability_radius(structure, real=True, tolerance=1e-3), stability_radius(structure)
    assert found.value >= complex_.lower
    if np.isinf(found.value):
        assert q == p == 1
        return
    assert found.lower <= found.value * (1 + 1e-12)
    assert found.value <= found.lower * 1.01
    assert not np.iscomplexobj(found.perturbation)
    assert np.linalg.norm(found.perturbation, 2) == pytest.approx(found.value, rel=1e-9)
    assert rho(structure.perturbed(found.perturbation)) == pytest.approx(1, abs=1e-6)
    rng = np.random.default_rng(seed + 1)
    for _ in range(100):
        Delta = rng.normal(size=(q, p))
        assert rho(structure.perturbed(Delta * found.lower * 0.999 / np.linalg.norm(Delta, 2))) < 1


def test_unstructured_radius_is_the_smallest_singular_value_on_the_circle() -> None:
    rng = np.random.default_rng(3)
    Phi = rng.normal(size=(7, 7))
    Phi *= 0.8 / rho(Phi)
    z = np.exp(1j * np.linspace(0, np.pi, 20001))
    grid = np.linalg.svd(z[:, None, None] * np.eye(7) - Phi, compute_uv=False)[:, -1].min()
    found = stability_radius(Phi)
    assert found.lower <= found.value <= grid * (1 + 1e-12)
    assert grid - found.value < np.pi / 20000  # σ_min changes by no more than the distance on the circle


@given(SEEDS, st.integers(1, 6))
@settings(max_examples=examples(30))
def test_of_a_normal_matrix_the_radius_is_what_rho_lacks(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = rng.uniform(-0.95, 0.95, size=n)
    Phi = turn @ np.diag(values) @ turn.T
    expected = 1 - np.abs(values).max()
    assert stability_radius(Phi).value == pytest.approx(expected, rel=1e-9)
    assert stability_radius(Phi, real=True).value == pytest.approx(expected, rel=1e-9)


def test_one_real_number_against_a_scan() -> None:
    for seed in range(10):
        structure = random_structure(seed, 5, 1, 1)
        found = stability_radius(structure, real=True)
        assert rho(structure.perturbed(found.perturbation)) == pytest.approx(1, abs=1e-7)
        for delta in np.linspace(-0.9999, 0.9999, 1001) * found.value:
            assert rho(structure.perturbed(np.array([[delta]]))) < 1


def test_several_blocks_lie_between_bounds() -> None:
    rng = np.random.default_rng(2)
    Phi = rng.normal(size=(6, 6))
    Phi *= 0.8 / rho(Phi)
    whole = Structure.of(Phi, rng.normal(size=(6, 3)), rng.normal(size=(3, 6)))
    blocks = Structure(whole.Phi, whole.E, whole.F, whole.H, ((1, 1), (1, 1), (1, 1)))
    full, found = stability_radius(whole), stability_radius(blocks)
    assert full.value < found.lower <= found.value
    # Three complex scalars: the scaled bound is exact in theory, the Perron scaling comes near it.
    assert found.value < 1.15 * found.lower
    assert np.count_nonzero(found.perturbation) == 3
    assert rho(blocks.perturbed(found.perturbation)) == pytest.approx(1, abs=1e-7)
    for _ in range(300):
        Delta = np.diag(np.exp(2j * np.pi * rng.random(3))) * found.lower * 0.999
        assert rho(blocks.perturbed(Delta)) < 1
    # Units of measure do not matter: scaled blocks have the same bound.
    D = np.diag([1e3, 1.0, 1e-3])
    other = Structure(Phi, whole.E @ np.linalg.inv(D), D @ whole.F, whole.H, blocks.blocks)
    assert stability_radius(other).lower == pytest.approx(found.lower, rel=1e-3)


def test_unstable_and_untouchable() -> None:
    assert stability_radius([[1.0]]).value == 0
    assert stability_radius([[0.3, 0.0], [0.0, 1.2]], real=True).lower == 0
    beside = Structure.of(np.diag([0.5, 0.2]), [[1.0], [0.0]], [[0.0, 1.0]])
    assert stability_radius(beside).value == np.inf
    assert stability_radius(beside, real=True).lower == np.inf


def test_wrong_uses_are_refused() -> None:
    with pytest.raises(DimensionError, match="must fit together"):
        Structure.of(np.eye(2), np.ones((3, 1)), np.ones((1, 2)))
    with pytest.raises(ConfigurationError, match="non-finite"):
        stability_radius([[np.nan]])
    with pytest.raises(ConfigurationError, match="tolerance"):
        stability_radius([[0.5]], tolerance=0)
    blocks = Structure(0.5 * np.eye(2), np.eye(2), np.eye(2), np.zeros((2, 2)), ((1, 1), (1, 1)))
    with pytest.raises(ConfigurationError, match="one uncertain block"):
        stability_radius(blocks, real=True)
    system = two_mass_glumac()
    with pytest.raises(UnknownNameError, match="three"):
        unit_structure(LinearSystem(system, masters.jacobi(system, 1.0)), "three")


def test_few_evaluations_still_give_a_bound() -> None:
    structure = random_structure(5, 6, 2, 2)
    rough, fine = stability_radius(structure, evaluations=100), stability_radius(structure)
    assert rough.lower <= fine.lower <= fine.value <= rough.value * (1 + 1e-12)


# ---- structures from schedules ---------------------------------------------------------------------------------------


class Disturbed(StateSpace):
    """A unit whose discrete map is wrong by a matrix."""

    error: Array

    def discrete(self, duration: float | Array) -> DiscreteModel:
        model = super().discrete(duration)
        n, m = self.model.B.shape
        B = model.B.copy()
        B[..., :m] += self.error[:, n:]
        return DiscreteModel(model.A + self.error[:, :n], B)


def disturbed(system: System, name: str, error: Array) -> System:
    old = system.units[name]
    assert isinstance(old, StateSpace)
    m = old.model
    unit = Disturbed(m.A, m.B, m.C, m.D, initial=old.initial_state, inputs=old.inputs, outputs=old.outputs)
    unit.error = error
    return System({**system.units, name: unit}, system.connections)


def some_masters(system: System, h: float) -> dict[str, Master]:
    return {
        "gauss-seidel": masters.gauss_seidel(system, h),
        "nepce": paper_masters(system, h)["Control12"],
        "extrapolation": masters.jacobi(system, h, coupling=Hold(1)),
        "sweeps": masters.iterative(system, h, sweeps=3),
        "converged": masters.iterative(system, h),
        "multirate": masters.multirate(system, h, multiples={"one": 2}),
    }


@pytest.mark.parametrize("kind", list(some_masters(two_mass_glumac(), 1.0)))
@pytest.mark.parametrize("unit", ["one", "two"])
def test_structure_is_the_map_of_the_disturbed_unit(kind: str, unit: str) -> None:
    system = two_mass_glumac()
    master = some_masters(system, 0.8)[kind]
    structure = unit_structure(LinearSystem(system, master), unit)
    model = system.units[unit].linear()
    assert model is not None
    rng = np.random.default_rng(4)
    for size in (0.02, 0.3):
        error = size * rng.normal(size=np.hstack([model.A, model.B]).shape)
        # What the algebra sees of an extrapolated input: the value first, then the slope, which is not disturbed here.
        widths = [p for _, p in structure.blocks]
        blocks = [np.hstack([error, np.zeros((len(error), p - error.shape[1]))]) for p in widths]
        Delta = np.zeros((sum(q for q, _ in structure.blocks), sum(widths)))
        row = column = 0
        for block in blocks:
            Delta[row : row + len(block), column : column + block.shape[1]] = block
            row, column = row + len(block), column + block.shape[1]
        real = LinearSystem(disturbed(system, unit, error), master).cycle.matrix
        mine = np.asarray(structure.perturbed(Delta))
        # Traces of powers compare spectra without the ill conditioning of single eigenvalues.
        for power in range(1, 6):
            traces = [np.trace(np.linalg.matrix_power(matrix, power)) for matrix in (mine, real)]
            assert traces[0] == pytest.approx(traces[1], rel=1e-9, abs=1e-11)


def test_unit_radius_holds_in_the_system() -> None:
    system = two_mass_glumac()
    linear = LinearSystem(system, masters.gauss_seidel(system, 4.0))
    rng = np.random.default_rng(1)
    for unit in system.names:
        structure = unit_structure(linear, unit)
        for real in (False, True):
            found = stability_radius(structure, real=real)
            assert found.lower > 0.999 * found.value
        assert rho(LinearSystem(disturbed(system, unit, 1.001 * found.perturbation), linear.master).cycle.matrix) > 1
        for _ in range(examples(200)):
            error = rng.normal(size=found.perturbation.shape)
            error *= 0.999 * found.lower / np.linalg.norm(error, 2)
            assert rho(LinearSystem(disturbed(system, unit, error), linear.master).cycle.matrix) < 1


def test_relative_unit_structure_and_reads() -> None:
    system = two_mass_glumac()
    linear = LinearSystem(system, masters.gauss_seidel(system, 4.0))
    discrete = system.units["two"].discrete(4.0)
    size = np.linalg.norm(np.hstack([discrete.A, discrete.B[:, :1]]), 2)
    plain, scaled = (stability_radius(unit_structure(linear, "two", relative=r)).value for r in (False, True))
    assert scaled == pytest.approx(plain / size, rel=1e-9)
    both = unit_structure(linear, "two", parts=("step", "read"))
    assert len(both.blocks) == 2
    assert stability_radius(both).lower < plain


def test_parameter_structure_is_the_derivative() -> None:
    def build(values: Mapping[str, float]) -> tuple[System, Master]:
        system = two_mass_glumac(**values)
        return system, masters.gauss_seidel(system, 4.0)

    structure = parameter_structure(build, {"ck": 1.0, "m2": 10.0})
    small = 1e-4
    for place, changed in enumerate(({"ck": 1.0 + small, "m2": 10.0}, {"ck": 1.0, "m2": 10.0 * (1 + small)})):
        sizes = [q for q, _ in structure.blocks]
        delta = np.diag(np.repeat([small * (place == 0), small * (place == 1)], sizes))
        exact = LinearSystem(*build(changed)).cycle.matrix
        step = np.abs(exact - structure.Phi).max()
        assert np.abs(structure.perturbed(delta) - exact).max() < 1e-3 * step
    # To first order ρ stays below 1 for all changes within the bound; ck really crosses at +74 %.
    found = stability_radius(parameter_structure(build, {"ck": 1.0}))
    assert 0 < found.lower < 0.74
    with pytest.raises(ConfigurationError, match="nonzero nominal value"):
        parameter_structure(build, {"ck": 0.0})


# ---- the relative radius ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mostly_slow(["Seidel12", "Control12"], []))
def test_relative_radius_ranks_steps_rightly_where_rho_does_not(name: str) -> None:
    """Over steps from 0.5 to 9: a robust master has a wide stable range of the coupling stiffness."""
    system = two_mass_glumac()
    radii, unstructured, relative, stable_range = [], [], [], []
    for h in STEPS.tolist():
        master = paper_masters(system, h)[name]
        linear = LinearSystem(system, master)
        radii.append(Spectrum(linear).radius)
        unstructured.append(stability_radius(linear, tolerance=1e-2).value)
        relative.append(relative_radius(system, master).change)
        stable_range.append(glumac_crossing(name, "ck", step=h))

    def agreement(measure: list[float]) -> float:
        return float(spearmanr(measure, stable_range).statistic)

    # "A lower ρ is more robust" and "a larger unstructured radius is more robust" both rank the wrong way round.
    assert agreement([-r for r in radii]) < -0.3
    assert agreement(unstructured) < -0.3
    assert agreement(relative) > (0.85 if name == "Seidel12" else 0.5)


def test_relative_radius_does_not_reward_damping() -> None:
    system = two_mass_glumac()
    slow, fast = (masters.gauss_seidel(system, h) for h in (1.0, 5.0))
    assert Spectrum(LinearSystem(system, fast)).radius < Spectrum(LinearSystem(system, slow)).radius
    one, other = (relative_radius(system, master) for master in (slow, fast))
    assert other.change < 0.5 * one.change
    critical = critical_step(system, slow)
    assert critical is not None
    for h, found in ((1.0, one), (5.0, other)):
        assert found.change <= critical.step / h - 1 + 1e-9


def test_rescaled_units_are_longer_steps() -> None:
    system = two_mass_glumac()
    master = masters.gauss_seidel(system, 2.0, coupling=Hold(1))
    both = rescaled(system, rates={"one": 3.0, "two": 3.0})
    expected = Spectrum(LinearSystem(system, master.with_step(6.0))).radius
    assert Spectrum(LinearSystem(both, master)).radius == pytest.approx(expected, rel=1e-12)
    stiffer = rescaled(system, gains={"one": 2.0})
    names = [("rate", "one"), ("gain", "one")]
    batch = RescaledRadii(system, master, names)(np.array([[1.0, 1.0], [1.0, 2.0]]))
    single = [Spectrum(LinearSystem(s, master)).radius for s in (system, stiffer)]
    assert batch == pytest.approx(single, rel=1e-12)
    # The exact model follows: A_c of the system with both rates tripled is three times A_c.
    changed, nominal = (LinearSystem(s, master).coupled.A for s in (both, system))
    assert np.abs(changed - 3 * nominal).max() < 1e-14


@given(SEEDS)
@settings(max_examples=examples(8))
def test_smaller_changes_keep_the_two_masses_stable(seed: int) -> None:
    rng = np.random.default_rng(seed)
    system = two_mass_glumac()
    master = masters.gauss_seidel(system, float(rng.uniform(0.5, 9)))
    found = relative_radius(system, master)
    assume(0 < found.change < np.inf)
    names = [(change, unit) for change in ("rate", "gain") for unit in system.names]
    factors = np.array([list(found.factors.values())])
    assert RescaledRadii(system, master, names)(factors)[0] > 1
    inside = (1 + found.change) ** rng.uniform(-0.999, 0.999, size=(300, 4))
    # Searched, not proven: a rare point inside may be missed, so this states how rarely.
    assert (RescaledRadii(system, master, names)(inside) > 1).mean() <= 0.01


def rings(*each: tuple[float, ...]) -> System:
    """Rings of lags with these gains, that do not feed each other."""
    lag, units, links = StateSpace([[-1.0]], [[1.0]], [[1.0]], inputs=["u"], outputs=["y"]), {}, []
    for ring, gains in enumerate(each):
        names = [f"lag{ring}{place}" for place in range(len(gains))]
        units |= dict.fromkeys(names, lag)
        links += [Connection(f"{names[place - 1]}.y", f"{names[place]}.u", gain) for place, gain in enumerate(gains)]
    return System(units, links)


def metered(system: System, output: str) -> System:
    """With a meter, an integrator that feeds nobody."""
    meter = StateSpace([[0.0]], [[1.0]], [[1.0]], inputs=["u"], outputs=["y"])
    return System({**system.units, "meter": meter}, [*(link.connection for link in system.links), (output, "meter.u")])


CYCLES = {
    "a ring of three": rings((0.5, -1.0, 0.9)),
    "a unit with itself": rings((-0.8,)),
    "two rings": rings((-0.8,), (0.9, -1.0)),
    "two masses": two_mass_glumac(),
    "two masses and a meter": metered(two_mass_glumac(), "two.x"),
}


@pytest.mark.parametrize("name", list(CYCLES))
def test_combinations_left_out_change_no_radius(name: str) -> None:
    system = CYCLES[name]
    master = masters.jacobi(system, 0.7)
    names = [(change, unit) for change in ("rate", "gain") for unit in system.names]
    every = np.array(_signs(len(names)))
    labels = tuple(f"{unit} {change}" for change, unit in names)
    expected = search(RescaledRadii(system, master, names), labels, every, limit=9.0, shells=12, ahead=7)
    found = relative_radius(system, master, shells=12)
    assert 0 < expected.change < np.inf
    assert found.change == pytest.approx(expected.change, rel=1e-8)
    assert found.directions <= (0.6 if len(system.names) > 1 else 1.0) * expected.directions


def test_a_gain_that_feeds_no_loop_is_not_varied() -> None:
    system = metered(two_mass_glumac(), "two.x")
    found = relative_radius(system, masters.jacobi(system, 0.7), changes=["gain"], units=["meter"])
    assert (found.change, found.directions) == (np.inf, 1)


def test_many_units_are_searched_along_selected_directions() -> None:
    unit = StateSpace([[-1.0]], [[0.6, 0.6]], [[1.0]], inputs=["a", "b"], outputs=["y"])
    count = 8
    links = [(f"u{(i + s) % count}.y", f"u{i}.{v}") for i in range(count) for s, v in ((1, "a"), (-1, "b"))]
    system = System({f"u{i}": unit for i in range(count)}, links)
    found = relative_radius(system, masters.jacobi(system, 0.5), changes=["gain"])
    assert found.change == 0  # 1.2 > 1: the exact system is unstable too
    weak = rescaled(system, gains=dict.fromkeys(system.names, 0.5))
    found = relative_radius(weak, masters.jacobi(weak, 0.5), changes=["gain"])
    assert found.change == pytest.approx(1 / 0.6 - 1, rel=1e-6)  # all gains together, up to a loop gain of 1


def network(seed: int, count: int) -> System:
    """Units of two states with two inputs each, fed by others at random."""
    rng, units, links = np.random.default_rng(seed), {}, []
    for number in range(count):
        A = rng.normal(size=(2, 2))
        A -= (np.linalg.eigvals(A).real.max() + rng.uniform(0.3, 2)) * np.eye(2)
        B, C = rng.normal(size=(2, 2)), rng.normal(size=(1, 2))
        units[f"u{number}"] = StateSpace(A, B, C, inputs=["a", "b"], outputs=["y"])
    for number in range(count):
        others = rng.choice([other for other in range(count) if other != number], 2, replace=False)
        pairs = zip(others, "ab", strict=True)
        links += [Connection(f"u{other}.y", f"u{number}.{name}", rng.normal() / 4) for other, name in pairs]
    return System(units, links)


@pytest.mark.parametrize("seed", mostly_slow([0, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15], [0, 5, 14]))
def test_many_factors_cross_no_later_than_by_moving_one_after_the_other(seed: int) -> None:
    """As from all directions and each factor alone at every size, with every component of the best one moved."""
    system = network(seed, 4 + seed % 4)
    master = (masters.jacobi, masters.gauss_seidel)[seed % 2](system, 0.3)
    names = [(change, unit) for change in ("rate", "gain") for unit in system.names]
    radii, labels = RescaledRadii(system, master, names), tuple(f"{unit} {change}" for change, unit in names)
    k = len(names)
    every = np.concatenate([np.eye(k), -np.eye(k), _selected(radii, names, 9.0)])
    expected = search(radii, labels, every, limit=9.0, ahead=7)
    found = relative_radius(system, master)
    assert found.change <= expected.change * (1 + 1e-6)
    assert radii(np.array([list(found.factors.values())]))[0] >= 1 - 1e-9
    assert radii(np.array([list(found.factors.values())]) ** 0.99)[0] < 1


def test_slopes_are_those_of_the_radius() -> None:
    system = network(3, 4)
    names = [(change, unit) for change in ("rate", "gain") for unit in system.names]
    radii = RescaledRadii(system, masters.jacobi(system, 0.3), names)
    point = np.exp(np.random.default_rng(1).uniform(-1, 1, len(names)))
    shift = np.exp(1e-5 * np.eye(len(names)))
    expected = np.log(radii(point * shift) / radii(point / shift)) / 2e-5
    assert radii.slopes(point) == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert not radii.slopes(np.full(len(names), np.nan)).any()


def test_slopes_leave_modes_at_rest_out() -> None:
    """Two carts joined by a spring roll together for ever: their eigenvalues 1 are larger than that of the swing."""
    cart = StateSpace([[0.0, 1.0], [0.0, 0.0]], [[0.0], [1.0]], np.eye(2), inputs=["F"], outputs=["x", "v"])
    D = [[-100.0, -2.0, 100.0, 2.0], [100.0, 2.0, -100.0, -2.0]]
    spring = StateSpace(
        np.zeros((0, 0)), np.zeros((0, 4)), np.zeros((2, 0)), D, inputs=list("abcd"), outputs=list("pq")
    )
    links = [("one.x", "spring.a"), ("one.v", "spring.b"), ("two.x", "spring.c"), ("two.v", "spring.d")]
    units = {"one": cart, "two": cart, "spring": spring}
    system = System(units, [*links, ("spring.p", "one.F"), ("spring.q", "two.F")])
    names: list[tuple[Change, str]] = [("rate", "one"), ("rate", "two"), ("gain", "spring")]
    radii = RescaledRadii(system, masters.gauss_seidel(system, 0.01, order=["one", "two", "spring"]), names)
    assert radii.rest.count == 2
    point = np.array([1.1, 0.9, 1.2])
    shift = np.exp(1e-4 * np.eye(3))
    expected = np.log(radii(point * shift) / radii(point / shift)) / 2e-4
    assert radii(point[None])[0] < 0.999
    assert radii.slopes(point) == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_relative_radius_refuses_wrong_names() -> None:
    system = two_mass_glumac()
    master = masters.gauss_seidel(system, 1.0)
    with pytest.raises(UnknownNameError, match="three"):
        relative_radius(system, master, units=["three"])
    with pytest.raises(ConfigurationError, match="at least one"):
        relative_radius(system, master, changes=[])


# ---- first crossings -------------------------------------------------------------------------------------------------


def build_seidel(values: Mapping[str, float]) -> tuple[System, Master]:
    system = two_mass_glumac(**values)
    return system, masters.gauss_seidel(system, 4.0)


def radius_of(values: Mapping[str, float]) -> float:
    return Spectrum(LinearSystem(*build_seidel(values))).radius


def test_one_parameter_crosses_where_a_fine_scan_says() -> None:
    found = first_crossing(build_seidel, {"ck": 1.0})
    scan = np.exp(np.linspace(0, np.log(2), 301))
    first = scan[next(i for i, ck in enumerate(scan) if radius_of({"ck": ck}) > 1)]
    assert first / 1.0024 < found.factors["ck"] <= first
    assert found.change == pytest.approx(found.factors["ck"] - 1)
    assert str(found).startswith("first crossing at a change of 73.9")
    assert radius_of({"ck": 0.99999 * found.factors["ck"]}) < 1 < radius_of({"ck": 1.00001 * found.factors["ck"]})


@pytest.mark.slow
@pytest.mark.parametrize("norm", mostly_slow(["box", "ellipsoid"], ["box"]))
def test_several_parameters_cross_no_later_than_one(norm: str) -> None:
    alone = first_crossing(build_seidel, {"ck": 1.0}).change
    nominal = {"ck": 1.0, "dk": 2.0, "m2": 10.0}
    two = first_crossing(build_seidel, {"ck": 1.0, "dk": 2.0}, norm=norm, resolution=3)  # type: ignore[arg-type]
    three = first_crossing(build_seidel, nominal, norm=norm, resolution=3)  # type: ignore[arg-type]
    assert three.change <= two.change * (1 + 1e-3) <= alone * (1 + 1e-3)
    assert radius_of({name: nominal[name] * factor for name, factor in three.factors.items()}) > 1
    rng = np.random.default_rng(0)
    for _ in range(examples(80)):
        d = rng.normal(size=3)
        d *= rng.random() * 0.99 / (np.abs(d).max() if norm == "box" else np.linalg.norm(d))
        changed = {k: v * (1 + three.change) ** s for (k, v), s in zip(nominal.items(), d, strict=True)}
        assert radius_of(changed) < 1


def test_relative_scale_and_limits() -> None:
    found = first_crossing(build_seidel, {"ck": 1.0}, scale="relative", limit=0.95)
    assert found.factors["ck"] == pytest.approx(1 + found.change)
    assert found.change == pytest.approx(first_crossing(build_seidel, {"ck": 1.0}).change, rel=1e-6)
    calm = first_crossing(build_seidel, {"ck": 1.0}, limit=0.5)
    assert calm.change == np.inf
    assert "no crossing up to a change of 50%" in str(calm)
    wild = first_crossing(build_seidel, {"ck": 3.0})
    assert wild.change == 0
    assert str(wild) == "unstable even without a change"


def test_crossing_refuses_wrong_uses() -> None:
    with pytest.raises(ConfigurationError, match="one to three"):
        first_crossing(build_seidel, {"ck": 1.0, "dk": 1.0, "m1": 1.0, "m2": 1.0})
    with pytest.raises(ConfigurationError, match="'dk' is 0"):
        first_crossing(build_seidel, {"dk": 0.0})
    with pytest.raises(ConfigurationError, match="limit"):
        first_crossing(build_seidel, {"ck": 1.0}, scale="relative", limit=1.5)
    with pytest.raises(ConfigurationError, match="ball"):
        first_crossing(build_seidel, {"ck": 1.0}, norm="ball")  # type: ignore[arg-type]


def test_several_steps_of_one_unit_are_blocks_of_their_own() -> None:
    system = two_mass_glumac()
    half = Fraction(1, 2)
    operations = (
        *(Couple("one"), Step("one"), Read("one")),
        *(Couple("two"), Step("two", half), Couple("two"), Step("two", half), Read("two")),
    )
    master = Master("halves", Schedule(system.names, operations), 2.0, Hold(0))
    structure = unit_structure(LinearSystem(system, master), "two")
    assert structure.blocks == ((2, 3), (2, 3))
    assert structure.H.any()  # the second half step sees the error of the first
    found = stability_radius(structure)
    assert 0 < found.lower <= found.value
    assert rho(structure.perturbed(found.perturbation)) == pytest.approx(1, abs=1e-6)
