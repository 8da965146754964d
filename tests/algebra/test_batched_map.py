"""Many masters in one call: the same numbers as one by one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.tuning.networks import rescaled

from cosimo import masters
from cosimo.algebra import Batch, LinearSystem
from cosimo.algebra.backends import Backend
from cosimo.algebra.batch import BatchTable, Consistency, SpectralRadius
from cosimo.algebra.batched_map import BatchedMap, MasterNumbers, SharedSchedule
from cosimo.analysis import Spectrum
from cosimo.analysis.cost import Cost
from cosimo.analysis.error_norms import consistency
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold, Nepce
from cosimo.papers.glumac2018 import figure_6, paper_masters
from cosimo.problems import chain, four_mass, quarter_truck, thermal_pair, two_mass
from cosimo.problems.masses import two_mass_glumac
from cosimo.tuning import goals
from cosimo.tuning.goals import Stability, WorstOutputError
from cosimo.units import StateSpace
from thinning import ALL

GLUMAC = two_mass_glumac()


def one_by_one(system, batch):
    """ρ, the label and δ of masters by the analysis of single ones."""
    linear = [LinearSystem(system, master) for master in batch]
    return (
        np.array([Spectrum(one).radius for one in linear]),
        np.array([Spectrum(one).stable for one in linear]),
        np.array([consistency(one, k=2, norm=2) for one in linear]),
    )


def test_the_grid_of_figure_6():
    alpha, h, rho, delta = figure_6()
    master = paper_masters(GLUMAC, 1.0)["Control21"]
    table = Batch(GLUMAC, master, steps=h[None, :], gains={"two.F": alpha[:, None]}).compute(
        Stability(), Consistency(k=2, norm=2)
    )
    assert table["spectral_radius"].shape == (100, 100)
    assert np.abs(table["spectral_radius"] - rho).max() < 1e-10
    assert np.abs(table["consistency"] - delta).max() < 1e-10
    assert np.unravel_index(table["spectral_radius"].argmin(), (100, 100)) == (54, 98)


def test_published_points():
    found = paper_masters(GLUMAC, 9.11)["Control21"], paper_masters(GLUMAC, 8.9)["Control12"]
    table = evaluate(GLUMAC, found, [Stability(), Consistency()])
    assert table["spectral_radius"] == pytest.approx([0.45038240, 0.41253314], abs=1e-8)
    assert table["consistency"] == pytest.approx([0.78253255, 1.07589279], abs=1e-8)


@pytest.mark.parametrize("name", ["Control21", "Control12", "Seidel12"])
@pytest.mark.one_in(2)
def test_scattered_masters(name):
    rng = np.random.default_rng(0)
    master = paper_masters(GLUMAC, 1.0)[name]
    gains = {target: rng.uniform(0, 0.999, 20_000) for target in master.couplings}
    steps = rng.uniform(1e-4, 15, 20_000)
    table = Batch(GLUMAC, master, steps=steps, gains=gains, chunk=3000).compute(Stability(), Consistency(k=2, norm=2))
    places = range(0, 20_000, 101 if ALL else 401)
    singles = [
        replace(master.with_step(float(steps[i])), couplings={t: Nepce(float(gain[i])) for t, gain in gains.items()})
        for i in places
    ]
    radius, stable, delta = one_by_one(GLUMAC, singles)
    assert np.abs(table["spectral_radius"][places] - radius).max() < 1e-10
    assert (table.stable[places] == stable).all()
    assert table["consistency"][places] == pytest.approx(delta, rel=1e-10)


def test_rates_and_strengths_of_units_are_those_of_systems_built_anew():
    rng = np.random.default_rng(4)
    for system, longest in ((GLUMAC, 5.0), (two_mass(), 0.01), (quarter_truck(), 0.01)):
        rates, strengths = ({name: rng.uniform(0.3, 3, 5) for name in system.names} for _ in range(2))
        steps = rng.uniform(longest / 100, longest, 5)
        for master in families(system):
            numbers = MasterNumbers(steps * master.step, rates=rates, strengths=strengths)
            maps = BatchedMap(SharedSchedule([system], master), numbers, Backend())
            for i, radius in enumerate(SpectralRadius().compute(maps)["spectral_radius"].tolist()):
                own = rescaled(
                    system,
                    rates={name: float(values[i]) for name, values in rates.items()},
                    gains={name: float(values[i]) for name, values in strengths.items()},
                )
                single = Spectrum(LinearSystem(own, master.with_step(float(steps[i] * master.step)))).radius
                assert radius == pytest.approx(single, rel=1e-9), master.name


def evaluate(system, masters, objectives):
    """Each master in a batch of its own."""
    tables = [Batch(system, master).compute(*objectives) for master in masters]
    return BatchTable({name: np.array([table[name] for table in tables]).ravel() for name in tables[0].columns})


def families(system):
    """A master of every family, with couplings of every order."""
    yield masters.jacobi(system, 1.0)
    yield masters.jacobi_early_read(system, 1.0)
    yield masters.gauss_seidel(system, 1.0, coupling=Hold(1))
    yield masters.gauss_seidel(system, 1.0, order=system.names[::-1], coupling=Nepce(0.3))
    yield masters.jacobi(system, 1.0, coupling=Hold(2))
    yield masters.multirate(system, 1.0, multiples={system.names[0]: 3})
    yield masters.multirate(system, 1.0, multiples={system.names[1]: 2}, inputs="interpolated")
    yield masters.iterative(system, 1.0, sweeps=3)
    yield masters.iterative(system, 1.0)
    yield masters.iterative(system, 1.0, order=system.names, coupling=Hold(1))


@pytest.mark.parametrize(
    ("system", "longest"),
    [(GLUMAC, 9.0), (two_mass(), 0.02), (four_mass(), 0.05), (quarter_truck(), 0.02), (chain(n=4), 0.05)],
    ids=lambda value: getattr(value, "name", None),
)
@pytest.mark.one_in(2)
def test_every_family_agrees_with_single_analysis(system, longest):
    steps = np.geomspace(longest / 300, longest, 4)
    for master in families(system):
        batch = [master.with_step(float(step)) for step in steps]
        radius, stable, delta = one_by_one(system, batch)
        table = evaluate(system, batch, [Stability(), Consistency(k=2, norm=2)])
        assert table["spectral_radius"] == pytest.approx(radius, rel=1e-10), master.name
        assert (table.stable == stable).all(), master.name
        # δ of a converged iteration is nothing but rounding.
        assert table["consistency"] == pytest.approx(delta, rel=1e-9, abs=1e-9 * np.abs(delta).max() + 1e-11), (
            master.name
        )


def test_external_inputs_and_offsets_do_not_enter():
    system = thermal_pair()
    batch = [masters.gauss_seidel(system, step) for step in (0.1, 1.0, 10.0)]
    radius, stable, delta = one_by_one(system, batch)
    table = evaluate(system, batch, [Stability(), Consistency()])
    assert table["spectral_radius"] == pytest.approx(radius, rel=1e-10)
    assert (table.stable == stable).all()
    assert table["consistency"] == pytest.approx(delta, rel=1e-10)


def test_rigid_motion_is_labelled_as_by_the_analysis():
    """A free mass pulled along by another: a double eigenvalue 1, split by rounding."""
    free = StateSpace(
        [[0.0, 1.0], [0.0, 0.0]], [[0.0], [1.0]], np.eye(2), inputs=["f"], outputs=["x", "v"], start={"f": 0.0}
    )
    spring = StateSpace(
        np.zeros((0, 0)), np.zeros((0, 2)), np.zeros((1, 0)), [[0.0, -1.0]], inputs=["x", "v"], outputs=["f"]
    )
    system = System(
        {"free": free, "brake": spring}, [("free.x", "brake.x"), ("free.v", "brake.v"), ("brake.f", "free.f")]
    )
    two = System({"a": free, "b": free}, [("a.x", "b.f")])
    for case in (system, two):
        batch = [masters.jacobi(case, step) for step in np.geomspace(1e-3, 1.0, 9).tolist()]
        _, stable, _ = one_by_one(case, batch)
        assert (evaluate(case, batch, [Stability()]).stable == stable).all()


def test_the_error_of_outputs_is_that_of_powers_of_the_map():
    """At every communication point, and of very many at every q-th and at the early ones."""
    rng = np.random.default_rng(1)
    steps, sizes = rng.uniform(0.05, 3.0, 12), np.array([1.0, 2.0, 0.0, 5.0])[: len(GLUMAC.outputs)]
    for columns in (np.eye(4), np.array([[1.0], [0.0], [0.5], [0.0]])):
        error = WorstOutputError(columns, sizes, 30.0, samples=40)
        for master in (paper_masters(GLUMAC, 1.0)["Control21"], masters.jacobi(GLUMAC, 1.0, coupling=Hold(1))):
            found = Batch(GLUMAC, master, steps=steps).compute(error)["error"]
            for place, step in enumerate(steps.tolist()):
                linear = LinearSystem(GLUMAC, master.with_step(step))
                stride, samples = (int(number[0]) for number in error.points(np.array([step])))
                count = int(30.0 / step * (1 + 1e-12))
                looked = {stride * k for k in range(1, samples + 1)}
                leap, done = 1, 0
                while stride > leap and done < count:
                    looked |= {done + leap * k for k in range(1, 25) if done + leap * (k - 1) < count}
                    done, leap = done + 24 * leap, leap * 4
                z, flow, worst = linear.start_map() @ columns, linear.coupled.flow(step), 0.0
                for k in range(1, max(looked) + 1):
                    z = linear.one_step.Phi @ z
                    if k in looked:
                        exact = linear.coupled.C @ np.linalg.matrix_power(flow, k) @ columns
                        off = np.linalg.norm(linear.outputs(z) - exact, axis=1)[sizes > 0] / sizes[sizes > 0]
                        worst = max(worst, float(off.max()))
                assert found[place] == pytest.approx(worst, rel=1e-9)


def test_the_points_at_which_errors_are_taken():
    stride, samples = WorstOutputError(np.eye(4), np.ones(4), 10.0, samples=7).points(np.array([1.0, 0.1, 20.0]))
    assert stride.tolist() == [2, 16, 1]
    assert samples.tolist() == [5, 6, 1]


def test_long_sequences_are_cut_into_pieces(monkeypatch):
    error = WorstOutputError(np.eye(4), np.ones(len(GLUMAC.outputs)), 30.0)
    batch = Batch(GLUMAC, masters.jacobi(GLUMAC, 1.0), steps=[0.1, 0.3])
    whole = batch.compute(error)["error"]
    monkeypatch.setattr(goals, "WORK", 300)
    assert batch.compute(error)["error"] == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("build", [two_mass_glumac, lambda ck: two_mass(k1=100 + ck)], ids=["exact", "symplectic"])
def test_unit_parameters(build):
    rng = np.random.default_rng(3)
    values = rng.uniform(0.1, 20, 6)
    systems = [build(ck=value) for value in values.tolist()]
    exact = build is two_mass_glumac
    steps, which = rng.uniform(0.5, 12, 300) * (1 if exact else 1e-3), rng.integers(6, size=300)
    master = masters.jacobi(systems[0], 1.0)
    error = WorstOutputError(np.eye(4), np.ones(len(systems[0].outputs)), float(steps.max()) * 5)
    table = Batch(systems[0], master, steps=steps, systems=systems, which=which).compute(
        Stability(), Consistency(), error
    )
    for number, system in enumerate(systems):
        own = which == number
        alone = Batch(system, masters.jacobi(system, 1.0), steps=steps[own]).compute(Stability(), Consistency(), error)
        for name in ("spectral_radius", "consistency", "error"):
            assert table[name][own] == pytest.approx(alone[name], rel=1e-9), name
        assert (table.stable[own] == alone.stable).all()


def test_cost_counts_parallel_and_repeated_steps():
    weights = {"one": 3.0, "two": 1.0}
    cases = [
        (masters.jacobi(GLUMAC, 0.5), Cost(weights), 8.0),
        (masters.jacobi(GLUMAC, 0.5), Cost(weights, workers=2), 6.0),
        (masters.gauss_seidel(GLUMAC, 0.5), Cost(weights, workers=2), 8.0),
        (masters.iterative(GLUMAC, 0.5, sweeps=3), Cost(weights, workers=2), 18.0),
        (masters.iterative(GLUMAC, 0.5), Cost(weights, sweeps=4), 32.0),
        (masters.multirate(GLUMAC, 0.5, multiples={"one": 2}), Cost(weights), 5.0),
    ]
    for master, cost, expected in cases:
        assert cost.per_second(GLUMAC, master) == pytest.approx(expected), master.name
    with pytest.raises(ConfigurationError, match="sweeps"):
        Cost().per_second(GLUMAC, masters.iterative(GLUMAC, 0.5))
    with pytest.raises(UnknownNameError, match="three"):
        Cost({"three": 1.0}).per_second(GLUMAC, masters.jacobi(GLUMAC, 0.5))


def test_masters_without_finite_map_are_infinitely_bad():
    """A unit that overflows within the step, and an iteration without a fixed point."""
    unstable = StateSpace(100.0, 1.0, 1.0, inputs=["u"], outputs=["y"])
    system = System({"a": unstable, "b": unstable}, [("a.y", "b.u"), ("b.y", "a.u")])
    table = evaluate(system, [masters.jacobi(system, step) for step in (1e-3, 1e3)], [Stability(), Consistency()])
    assert np.isfinite(table["spectral_radius"]).tolist() == [True, False]
    assert not table.stable.any()
    assert table["consistency"][1] == np.inf
    gain = StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), 1.0, inputs=["u"], outputs=["y"])
    half = StateSpace(-1.0, 1.0, 1.0, inputs=["u"], outputs=["y"])
    loop = System({"a": gain, "b": half}, [("a.y", "b.u"), ("b.y", "a.u")])
    # x' = e^-h x + (1 − e^-h) u with u = y: the fixed point exists, and is the held value.
    assert evaluate(loop, [masters.iterative(loop, 0.1)], [Stability()])["spectral_radius"][0] == pytest.approx(1.0)


def test_threads_change_nothing():
    steps = np.linspace(0.1, 9, 5000)
    master = paper_masters(GLUMAC, 1.0)["Control12"]
    tables = [
        Batch(GLUMAC, master, steps=steps, workers=workers, chunk=500).compute(Stability(), Consistency())
        for workers in (1, 4)
    ]
    for name in tables[0].columns:
        assert (tables[0][name] == tables[1][name]).all()


def test_wrong_arguments_are_refused():
    master = paper_masters(GLUMAC, 1.0)["Control21"]
    reduced = System(GLUMAC.units, [Connection(c.source, c.target, gain=0.0) for c in GLUMAC.connections])
    for arguments, message in (
        ({"steps": [1.0, -1.0]}, "positive"),
        ({"steps": [1.0, np.nan]}, "positive"),
        ({"gains": {"two.F": [np.nan]}}, "finite"),
        ({"systems": [GLUMAC]}, "which"),
        ({"systems": [GLUMAC], "which": [1]}, "from 0 to 0"),
        ({"systems": [GLUMAC, chain(n=2)], "which": [1]}, "schedule is for units"),
        ({"systems": [GLUMAC, reduced], "which": [1]}, "system 1 of the batch differs"),
        ({"backend": "numpi"}, "numpy"),
        ({"steps": np.zeros(0)}, "no masters"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            Batch(GLUMAC, master, **arguments).compute(Stability())
    with pytest.raises(ConfigurationError, match="Nepce"):
        Batch(GLUMAC, masters.jacobi(GLUMAC, 1.0, coupling=Hold(1)), gains={"two.F": [0.1]})
    with pytest.raises(UnknownNameError, match="spectral_radius"):
        evaluate(GLUMAC, [master], [Stability()])["spectral_radios"]
    with pytest.raises(ConfigurationError, match="k ≥ 1"):
        Consistency(k=0)


BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"fmpy", "pyarrow", "pydantic", "lxml", "typer", "rich", "torch", "pandas"}:
            raise ImportError(name)
        if name == "cosimo._kernel":
            raise ImportError(name)
sys.meta_path.insert(0, Blocker())
import numpy as np
from cosimo.papers.glumac2018 import paper_masters
from cosimo.problems.masses import two_mass_glumac
from cosimo.algebra import Batch
system = two_mass_glumac()
print(Batch(system, paper_masters(system, 9.11)["Control21"]).spectral_radius())
"""


def test_nothing_compiled_and_no_fmu_library_is_needed():
    """So that it runs on a machine that has little more than a graphics processor."""
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=False)
    assert "0.450382" in done.stdout, done.stderr
