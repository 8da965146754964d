"""Many masters in one call: the same numbers as one by one."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import Batch, LinearSystem
from cosimo.analysis import Spectrum
from cosimo.analysis.accuracy import consistency, global_error
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold, Nepce
from cosimo.papers.glumac2018 import figure_6, paper_masters
from cosimo.problems import chain, four_mass, quarter_truck, thermal_pair, two_mass
from cosimo.problems.masses import two_mass_glumac
from cosimo.tuning.evaluation import Accuracy, Consistency, Cost, Evaluation, Stability, evaluate
from cosimo.units import StateSpace

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
    table = Evaluation(GLUMAC, master, steps=h[None, :], gains={"two.F": alpha[:, None]}).compute(
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
def test_scattered_masters(name):
    rng = np.random.default_rng(0)
    master = paper_masters(GLUMAC, 1.0)[name]
    gains = {target: rng.uniform(0, 1.1, 20_000) for target in master.couplings}
    steps = rng.uniform(1e-4, 15, 20_000)
    batch = Batch(GLUMAC, master, steps, gains)
    evaluation = Evaluation(GLUMAC, master, steps=steps, gains=gains, chunk=3000)
    table = evaluation.compute(Stability(), Consistency(k=2, norm=2))
    rho = batch.spectral_radius()
    assert np.abs(table["spectral_radius"] - rho).max() < 1e-10
    assert (table.stable == (rho <= 1 + 1e-10)).all()
    assert table["consistency"] == pytest.approx(batch.consistency(k=2, norm=2), rel=1e-10)
    assert evaluation.consistency(k=1, norm=1) == pytest.approx(batch.consistency(k=1, norm=1), rel=1e-10)


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
def test_every_family_agrees_with_single_analysis(system, longest):
    steps = np.geomspace(longest / 300, longest, 7)
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


def test_global_error_is_that_of_the_analysis():
    rng = np.random.default_rng(1)
    steps, horizon = rng.uniform(0.3, 3.0, 12), 30.0
    for master in (paper_masters(GLUMAC, 1.0)["Control21"], masters.jacobi(GLUMAC, 1.0, coupling=Hold(1))):
        table = Evaluation(GLUMAC, master, steps=steps).compute(Accuracy(horizon))
        for place, step in enumerate(steps.tolist()):
            linear = LinearSystem(GLUMAC, master.with_step(step))
            single = global_error(linear, steps=int(horizon / step))
            assert table["global_error"][place] == pytest.approx(single.absolute, rel=1e-9)
            assert table["relative_error"][place] == pytest.approx(single.relative, rel=1e-9)


def test_global_error_at_every_qth_point():
    accuracy = Accuracy(10.0, samples=7)
    stride, samples = accuracy.points(np.array([1.0, 0.1, 20.0]))
    assert stride.tolist() == [2, 15, 1]
    assert samples.tolist() == [5, 6, 1]
    master = masters.gauss_seidel(GLUMAC, 0.1)
    linear = LinearSystem(GLUMAC, master)
    z, flow, expected = linear.start_map(), linear.coupled.flow(0.1), 0.0
    for k in range(1, 91):
        z = linear.one_step.Phi @ z
        if k % 15 == 0:
            exact = linear.coupled.C @ np.linalg.matrix_power(flow, k)
            expected = max(expected, np.linalg.norm(linear.outputs(z) - exact, 2))
    assert evaluate(GLUMAC, [master], [accuracy])["global_error"][0] == pytest.approx(expected, rel=1e-9)


def test_masters_are_grouped_and_come_back_in_order():
    rng = np.random.default_rng(2)
    batch = []
    for _ in range(40):
        step = float(rng.uniform(0.1, 9))
        batch += [
            masters.gauss_seidel(GLUMAC, step, order=["two", "one"], couplings={"two.F": Nepce(float(rng.uniform()))}),
            masters.jacobi(GLUMAC, step, coupling=Hold(int(rng.integers(3)))),
            masters.gauss_seidel(GLUMAC, step, coupling=Nepce(float(rng.uniform()))),
        ]
    order = rng.permutation(len(batch))
    batch = [batch[i] for i in order]
    radius, stable, delta = one_by_one(GLUMAC, batch)
    table = evaluate(GLUMAC, batch, [Stability(), Consistency(), Cost()])
    assert len(table) == len(batch)
    assert table["spectral_radius"] == pytest.approx(radius, rel=1e-10)
    assert (table.stable == stable).all()
    assert table["consistency"] == pytest.approx(delta, rel=1e-10)
    assert table["cost"] == pytest.approx([2 / master.step for master in batch])


@pytest.mark.parametrize("build", [two_mass_glumac, lambda ck: two_mass(k1=100 + ck)], ids=["exact", "symplectic"])
def test_unit_parameters(build):
    rng = np.random.default_rng(3)
    values = rng.uniform(0.1, 20, 6)
    systems = [build(ck=value) for value in values.tolist()]
    exact = build is two_mass_glumac
    steps, which = rng.uniform(0.5, 12, 300) * (1 if exact else 1e-3), rng.integers(6, size=300)
    master = masters.jacobi(systems[0], 1.0)
    table = Evaluation(systems[0], master, steps=steps, systems=systems, which=which).compute(
        Stability(), Consistency(), Accuracy(float(steps.max()) * 5)
    )
    for number, system in enumerate(systems):
        own = which == number
        alone = Evaluation(system, masters.jacobi(system, 1.0), steps=steps[own]).compute(
            Stability(), Consistency(), Accuracy(float(steps.max()) * 5)
        )
        for name in ("spectral_radius", "consistency", "global_error"):
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
        assert evaluate(GLUMAC, [master], [cost])["cost"][0] == pytest.approx(expected), master.name
    with pytest.raises(ConfigurationError, match="sweeps"):
        evaluate(GLUMAC, [masters.iterative(GLUMAC, 0.5)], [Cost()])
    with pytest.raises(UnknownNameError, match="three"):
        evaluate(GLUMAC, [masters.jacobi(GLUMAC, 0.5)], [Cost({"three": 1.0})])


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
        Evaluation(GLUMAC, master, steps=steps, workers=workers, chunk=500).compute(Stability(), Consistency())
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
        ({"systems": [GLUMAC, reduced], "which": [1]}, "system 1 of the batch has other"),
        ({"backend": "numpi"}, "numpy"),
        ({"steps": np.zeros(0)}, "no masters"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            Evaluation(GLUMAC, master, **arguments).compute(Stability())
    with pytest.raises(ConfigurationError, match="Nepce"):
        Evaluation(GLUMAC, masters.jacobi(GLUMAC, 1.0, coupling=Hold(1)), gains={"two.F": [0.1]})
    with pytest.raises(UnknownNameError, match="spectral_radius"):
        evaluate(GLUMAC, [master], [Stability()])["spectral_radios"]
    with pytest.raises(ConfigurationError, match="no masters"):
        evaluate(GLUMAC, [], [Stability()])
    with pytest.raises(ConfigurationError, match="horizon"):
        Accuracy(-1.0)
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
from cosimo.tuning.evaluation import Evaluation, Stability
system = two_mass_glumac()
print(Evaluation(system, paper_masters(system, 9.11)["Control21"]).compute(Stability())["spectral_radius"])
"""


def test_nothing_compiled_and_no_fmu_library_is_needed():
    """So that it runs on a machine that has little more than a graphics processor."""
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=False)
    assert "0.450382" in done.stdout, done.stderr
