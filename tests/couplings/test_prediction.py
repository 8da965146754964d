"""Predicted inputs in schedules: what belongs together, both engines, several rates, FMUs, refusals, frozen models."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.cli import app
from cosimo.core.coupling import Coupling, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master, Segment, joints, segment
from cosimo.core.result import Result
from cosimo.core.system import Connection, System
from cosimo.couplings import Dmd, Hold, Nepce, parse_coupling
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.formats.export import export_ssp
from cosimo.formats.results import read_result
from cosimo.formats.scenario import load
from cosimo.papers.freezing import freeze
from cosimo.problems import chain, find, four_mass, oscillator_linear, oscillator_nonlinear, pendula, two_mass
from cosimo.units import PythonUnit, StateSpace


def predicted(system: System, coupling: Dmd, step: float = 0.01) -> Master:
    return masters.jacobi(system, step, couplings={"one.x2": coupling, "one.v2": coupling})


def both(system: System, master: Master, stop: float) -> Result:
    """The run, which must be the same bit for bit in both engines."""
    fast, plain = (run(system, master, stop=stop, engine=EngineOptions(kind)) for kind in ("kernel", "reference"))
    assert fast.names == plain.names
    np.testing.assert_array_equal(fast.values, plain.values)
    return fast


@pytest.mark.parametrize(
    "coupling",
    [
        Dmd(),
        Dmd(window=5),
        Dmd(window=20, centred=True),
        Dmd(window=20, delays=2),
        Dmd(window=20, method="recursive", pairs=()),
        Dmd(window=10, pairs=(("x2", "v2"),)),
    ],
)
@pytest.mark.parametrize("build", [masters.jacobi, masters.jacobi_early_read, masters.gauss_seidel])
@pytest.mark.one_in(5)
def test_engines_agree(build: object, coupling: Dmd) -> None:
    system = oscillator_linear()
    both(system, build(system, 0.01, coupling=coupling), 1.0)  # type: ignore[operator]


def test_several_predictors_in_one_system() -> None:
    system = chain(n=4)
    result = both(system, masters.jacobi(system, 0.05, coupling=Dmd(window=20)), 5.0)
    names = [name for name in result.names if ".predict" in name]
    assert len(names) == len(set(names)) == 2 * len(joints(system, masters.jacobi(system, 0.05, coupling=Dmd(20))))
    assert np.isfinite(result.values).all()


def test_signals_between_two_units_are_predicted_together() -> None:
    system = four_mass()
    left, right = joints(system, masters.jacobi(system, 3e-3, coupling=Dmd()))
    assert (left.unit, left.source, len(left.links), left.actions) == ("left", "right", 2, (0,))
    assert (right.unit, right.source, len(right.links), right.actions) == ("right", "left", 1, (0, 1))
    assert left.pairs == ((0, 1),)  # x3 and v3
    assert left.signals == ("left.predictor", "left.prediction_error")


def test_different_couplings_do_not_belong_together() -> None:
    system = oscillator_linear()
    master = masters.jacobi(system, 0.01, couplings={"one.x2": Dmd(window=5), "one.v2": Dmd(window=9)})
    first, second = joints(system, master)
    assert first.signals != second.signals
    both(system, master, 0.5)


@pytest.mark.parametrize(
    ("stamps", "kept", "expected"),
    [
        ((0, -1), (0,), Segment(0, 0.0, 1.0, True)),
        ((-1, -2), (0,), Segment(1, 0.0, 1.0, True)),
        ((1, 0), (0,), Segment(-1, 0.0, 1.0, True)),
        ((Fraction(-1, 4), Fraction(-5, 4)), (1,), Segment(0, 0.25, 1.0, False)),
        ((0, Fraction(-1, 2)), (0,), Segment(0, 0.0, 0.5, True)),
    ],
)
def test_where_on_the_line_an_operation_stands(stamps: tuple, kept: tuple, expected: Segment) -> None:  # type: ignore[type-arg]
    joint = joints(oscillator_linear(), predicted(oscillator_linear(), Dmd()))[0]
    assert segment(joint, Sampling(tuple(map(Fraction, stamps)), kept), Fraction(1)) == expected


def test_samples_that_are_too_old_are_refused() -> None:
    joint = joints(oscillator_linear(), predicted(oscillator_linear(), Dmd()))[0]
    with pytest.raises(ConfigurationError, match="3 macro steps old"):
        segment(joint, Sampling((Fraction(-3), Fraction(-4)), (0,)), Fraction(1))


@pytest.mark.parametrize("multiples", [{"two": 4}, {"one": 2}, {"one": 2, "two": 3}])
@pytest.mark.parametrize("inputs", ["held", "interpolated"])
@pytest.mark.one_in(5)
def test_several_rates(multiples: dict[str, int], inputs: str) -> None:
    """Prediction is interpolated over the steps of the faster unit, and beats the held input."""
    system = oscillator_linear()
    dmd = {target: Dmd(window=30) for target in ("one.x2", "one.v2")}
    plain, ours = (
        masters.multirate(system, 1e-3, multiples=multiples, inputs=inputs, coupling=Hold(0), couplings=couplings)  # type: ignore[arg-type]
        for couplings in ({}, dmd)
    )
    exact = run(system, masters.jacobi(system, 1e-5), stop=1.8)["two.x"][:: round(plain.step / 1e-5)]
    found, held = both(system, ours, 1.8)["two.x"], run(system, plain, stop=1.8)["two.x"]
    if inputs == "held":
        assert np.abs(found - exact).max() < 0.5 * np.abs(held - exact).max()


def test_fmus_and_python_units_are_read_with_the_predicted_input(tmp_path: Path) -> None:
    """An FMI 3.0 FMU takes no slopes; its force is still formed with the predicted position."""
    system = oscillator_linear()
    ours = run(system, predicted(system, Dmd(window=50)), stop=2.0)
    for fmi in (2, 3):
        again = load(export_ssp(system, tmp_path / f"{fmi}.ssp", fmi=fmi, step=0.01, stop=2.0)).system  # type: ignore[arg-type]
        # What a description does not say must be declared.
        theirs = run(again, predicted(again, Dmd(window=50, pairs=(("x2", "v2"),))), stop=2.0)
        for name in system.outputs:
            np.testing.assert_allclose(theirs[name], ours[name], atol=1e-9 * np.abs(ours[name]).max())


def test_python_units() -> None:
    system = oscillator_nonlinear()
    assert isinstance(system.units["two"], PythonUnit)
    both(system, predicted(system, Dmd(pairs=(("x2", "v2"),))), 1.0)
    system = pendula(links=3)
    targets = [f"single.{name}" for name in system.units["single"].inputs]
    both(system, masters.jacobi(system, 1e-3, couplings=dict.fromkeys(targets, Dmd(window=10))), 0.1)


def test_gains_and_offsets_of_connections_reach_the_predictor() -> None:
    lag = {name: StateSpace(-1.0, 1.0, 1.0, initial=1.0) for name in ("a", "b")}
    ring = [Connection("a.y1", "b.u1", gain=-2.0, offset=0.5), Connection("b.y1", "a.u1", gain=0.3)]
    system = System(lag, ring)
    result = both(system, masters.jacobi(system, 0.1, coupling=Dmd(window=8)), 5.0)
    exact = run(system, masters.jacobi(system, 1e-4), stop=5.0)["a.y1"][::1000]
    held = run(system, masters.jacobi(system, 0.1), stop=5.0)["a.y1"]
    assert np.abs(result["a.y1"] - exact).max() < 0.6 * np.abs(held - exact).max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "1 or more"),
        ({"window": 2.5}, "'window' must be a whole number or 'auto', not 2.5"),
        ({"window": 5, "method": "magic"}, "'method' must be 'robust' or 'recursive', not 'magic'"),
        ({"window": "auto", "centred": True}, "chooses method and model itself"),
        ({"window": 5, "delays": -1}, "from 0 to 20"),
        ({"window": 5, "tolerance": 0.0}, "between 0 and 1"),
        ({"pairs": ("x2", "v2")}, "'pairs'.* must be "),
    ],
)
def test_wrong_options_are_refused(options: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ConfigurationError, match=message):
        Dmd(**options)


def test_half_a_pair_is_refused() -> None:
    system = oscillator_linear()
    with pytest.raises(ConfigurationError, match=r"pair \(x2, speed\) of a Dmd is not complete"):
        run(system, predicted(system, Dmd(pairs=(("x2", "speed"),))), stop=0.1)


def test_iterative_masters_and_analysis_are_refused() -> None:
    system = two_mass()
    with pytest.raises(ConfigurationError, match="needs no prediction"):
        run(system, masters.iterative(system, 1e-3, sweeps=2, coupling=Dmd()), stop=0.01)
    with pytest.raises(ConfigurationError, match="has no matrices"):
        LinearSystem(system, masters.jacobi(system, 1e-3, coupling=Dmd())).one_step  # noqa: B018


def test_words_for_predictions() -> None:
    assert parse_coupling("dmd") == parse_coupling("dmd:auto") == Dmd()
    assert parse_coupling("dmd:100") == Dmd(window=100)
    assert parse_coupling("dmd:100:recursive") == Dmd(window=100, method="recursive")
    with pytest.raises(ConfigurationError, match="dmd:100"):
        parse_coupling("dmd:many")


def test_learned_models_are_part_of_the_result() -> None:
    result = run(oscillator_linear(), predicted(oscillator_linear(), Dmd(window=50)), stop=1.0)
    (model,) = result.info["learned"]
    assert model["inputs"] == ["one.x2", "one.v2"]
    assert model["actions"] == ["one.f"]
    np.testing.assert_allclose(model["S"], [[0.9, 0.01, -0.0001], [-10.0, 1.0, -0.01]], atol=1e-10)
    assert result["one.prediction_error"][-1] < 1e-12


@pytest.mark.parametrize("delays", [0, 1])
@pytest.mark.parametrize("build", [masters.jacobi, masters.gauss_seidel, masters.jacobi_early_read])
def test_frozen_models_can_be_analysed_and_run(build: object, delays: int) -> None:
    """Executed equals multiplied for the frozen master, and Jacobi with the exact model is as good as no coupling."""
    system = oscillator_linear()
    couplings = dict.fromkeys(["one.x2", "one.v2"], Dmd(window=20, delays=delays))
    master = build(system, 0.01, couplings=couplings)  # type: ignore[operator]
    frozen = freeze(system, master, run(system, master, stop=10.0))
    linear = LinearSystem(system, frozen)
    z = linear.start()
    rows = []
    for _ in range(50):
        z = linear.one_step.Phi @ z
        rows.append(linear.outputs(z[:, None])[:, 0])
    found = both(system, frozen, 0.5)
    places = [found.names.index(name) for name in system.outputs]
    np.testing.assert_allclose(np.array(rows), found.values[1:, places], rtol=1e-9, atol=1e-7)
    if build is masters.jacobi:
        assert Spectrum(linear).radius == pytest.approx(1.0, abs=1e-9)
        assert Spectrum(LinearSystem(system, masters.jacobi(system, 0.01))).radius > 1.004


def test_a_filtered_input_beside_a_frozen_one_starts_with_the_signal_as_it_is() -> None:
    """Before the beginning a signal is taken as constant, so that its filter has settled on it: v2 = −100 m/s."""
    system = oscillator_linear()
    master = masters.jacobi(system, 0.01, couplings={"one.x2": Dmd(window=20), "one.v2": Nepce(0.6)})
    mixer = freeze(system, master, run(system, master, stop=1.0)).mixers["one"]
    assert (mixer.uw @ mixer.start)[mixer.inputs.index("one.v2")] == pytest.approx(-100.0)
    np.testing.assert_allclose(mixer.ww @ mixer.start + mixer.wy @ (0.0, 0.0, 100.0, 0.0, -100.0), mixer.start)


def test_what_cannot_be_frozen_is_refused() -> None:
    system = oscillator_linear()
    with pytest.raises(ConfigurationError, match="nothing to freeze"):
        freeze(system, masters.jacobi(system, 0.01), [])
    master = predicted(system, Dmd(window=5))
    with pytest.raises(ConfigurationError, match="no model of 'two'"):
        freeze(system, master, [])
    with pytest.raises(ConfigurationError, match="not linear"):
        freeze(oscillator_nonlinear(), predicted(oscillator_nonlinear(), Dmd(window=5)), [])


# ---- units that take no slopes ---------------------------------------------------------------------------------------


class Spring:
    """A mass whose spring hardens and whose input acts more and more: no linear model holds for long."""

    inputs, outputs = ("u",), ("y",)

    def __init__(self, *, at: float, drift: float = 0.0) -> None:
        self.y, self.v, self.u, self.drift = at, 0.0, 0.0, drift

    def step(self, time: float, duration: float) -> None:
        """Heun's method, in 20 micro steps."""
        h, gain = duration / 20, 12 * (1 + self.drift * time)
        for _ in range(20):
            a = -30 * self.y - 100 * self.y**3 - 0.2 * self.v + gain * self.u
            x = self.y + h * self.v
            b = -30 * x - 100 * x**3 - 0.2 * (self.v + h * a) + gain * self.u
            self.y, self.v = self.y + h * (self.v + h * a / 2), self.v + h * (a + b) / 2


def test_units_without_slopes_are_given_the_mean_of_the_predicted_line() -> None:
    """Models updated along the run: several times as accurate as the hold, in both engines alike."""
    units = {"a": PythonUnit(Spring, at=0.5), "b": PythonUnit(Spring, at=0.0, drift=0.1)}
    system = System(units, [("a.y", "b.u"), ("b.y", "a.u")])
    assert {unit.input_degree for unit in units.values()} == {0}
    h, exact = 0.02, run(system, masters.strang(system, 0.02 / 32), stop=4.0).values[::32]
    found = both(system, masters.jacobi(system, h, coupling=parse_coupling("dmd:mean")), 4.0)
    held = run(system, masters.jacobi(system, h), stop=4.0).values
    assert np.abs(found.values[:, :2] - exact).max() < 0.2 * np.abs(held - exact).max()
    assert np.array_equal(found.values[1, :2], held[1])  # nothing is known yet


# ---- watched: learned models are used where they predict what comes, and inputs are held elsewhere ----------------


class Changing(Spring):
    """The same spring, linear, until it is hit: from then on it is forced by noise that nobody can predict."""

    def __init__(self, *, at: float, hit: float = 1e9, until: float = 1e9) -> None:
        super().__init__(at=at)
        self.hit, self.until, self.noise = hit, until, np.random.default_rng(1)

    def step(self, time: float, duration: float) -> None:
        h, push = duration / 20, 200 * self.noise.standard_normal() if self.hit <= time < self.until else 0.0
        for _ in range(20):
            self.v += h * (-30 * self.y - 0.2 * self.v + 12 * self.u + push)
            self.y += h * self.v


def watched(system: System, stop: float, step: float = 0.02) -> Result:
    return both(system, masters.jacobi(system, step, coupling=parse_coupling("dmd:adapt")), stop)


def spoken(result: Result) -> list[tuple[float, str]]:
    return [(warning.time, str(warning)) for warning in result.warnings if "predicts" in str(warning)]


def test_what_is_learned_is_used_once_it_predicts_what_comes() -> None:
    """Held for ten samples at least, without a warning; then several times as accurate as the hold."""
    units = {"a": PythonUnit(Spring, at=0.5), "b": PythonUnit(Spring, at=0.0, drift=0.1)}
    system = System(units, [("a.y", "b.u"), ("b.y", "a.u")])
    found, held = watched(system, 4.0), run(system, masters.jacobi(system, 0.02), stop=4.0).values
    assert [10 <= each["held"] < 60 for each in found.info["learned"]] == [True, True]
    assert spoken(found) == []
    assert np.array_equal(found.values[:2, :2], held[:2])
    exact = run(system, masters.strang(system, 0.02 / 32), stop=4.0).values[::32]
    assert np.abs(found.values[:, :2] - exact).max() < 0.5 * np.abs(held - exact).max()


def test_a_unit_that_cannot_be_predicted_is_noticed_and_used_again_later() -> None:
    units = {"a": PythonUnit(Changing, at=0.5), "b": PythonUnit(Changing, at=0.0, hit=2.0, until=3.0)}
    system = System(units, [("a.y", "b.u"), ("b.y", "a.u")])
    found = watched(system, 8.0)
    (begin, said), (end, again), *_ = spoken(found)
    assert 2.0 < begin <= 2.0 + 20 * 0.02
    assert said.endswith("unit 'a': what was learned no longer predicts what 'b' sends: inputs are held until it does")
    assert begin < end < 8.0
    assert "unit 'a': what was learned predicts what 'b' sends again" in again
    assert len(found) == 401


class Noise:
    """An output that nobody can predict."""

    inputs, outputs = ("u",), ("y",)

    def __init__(self) -> None:
        self.random, self.y, self.u = np.random.default_rng(1), 0.0, 0.0

    def step(self, time: float, duration: float) -> None:
        self.y = float(self.random.standard_normal())


def test_what_is_never_predicted_is_held_all_the_time() -> None:
    units = {"a": PythonUnit(Changing, at=0.5), "b": PythonUnit(Noise)}
    system = System(units, [("a.y", "b.u"), ("b.y", "a.u")])
    found = watched(system, 2.0)
    assert found.info["learned"][0]["held"] == 100
    assert np.array_equal(found.values[:, :2], run(system, masters.jacobi(system, 0.02), stop=2.0).values)
    assert any("unit 'a': no model that was learned predicts what 'b' sends" in said for _, said in spoken(found))


@pytest.mark.parametrize("name", ["quarter-truck", "dc-motor"])
def test_inputs_that_jump_at_the_start_are_never_worse_than_held(name: str) -> None:
    """Where predictions err by several times as much as the hold before there is anything to learn from."""
    problem = find(name)
    system, h = problem.system(), problem.step
    exact = run(system, masters.iterative(system, h / 32, coupling=Hold(1)), stop=200 * h).values[::32]

    def error(coupling: Coupling) -> float:
        found = run(system, masters.jacobi(system, h, coupling=coupling), stop=200 * h).values[:, : exact.shape[1]]
        return float((np.abs(found - exact).max(axis=0) / np.abs(exact).max(axis=0)).max())

    assert error(Dmd(mean=True, watched=True)) <= 1.1 * error(Hold(1)) < error(Dmd(mean=True))


def test_watching_goes_with_the_mean() -> None:
    assert str(parse_coupling("dmd:adapt")) == "dmd:adapt"
    with pytest.raises(ConfigurationError, match="write dmd:adapt"):
        Dmd(watched=True)


def test_adapt_on_the_command_line(tmp_path: Path) -> None:
    """It is the coupling of that name, and not to be combined with another one."""
    file = tmp_path / "rows.csv"
    arguments = ["run", "two-mass", "--stop-time", "0.1", "--adapt"]
    done = CliRunner().invoke(app, [*arguments, "--output-file", str(file), "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["steps"] == 100
    system = two_mass()
    wanted = run(system, masters.jacobi(system, 1e-3, coupling=Dmd(mean=True, watched=True)), stop=0.1)
    assert read_result(file)["two.x"] == pytest.approx(wanted["two.x"], rel=1e-12)
    for more in (["--coupling", "hold1"], ["--follow", "converged"]):
        with pytest.raises(ConfigurationError, match=f"leave out --adapt or {more[0]}"):
            CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False)
