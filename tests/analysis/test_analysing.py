"""What the one analysis says, and does not say, of systems of all kinds."""

from __future__ import annotations

import functools
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
import fmu_builder
from command_line import cosimo

from cosimo import masters, problems
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum, Verdict, analyse, critical_step, pilot_runs
from cosimo.analysis.connections import Delayed
from cosimo.analysis.pilots import Budget, Pilots
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import Connection, System
from cosimo.couplings import Dmd, Hold
from cosimo.execution.running import run
from cosimo.formats.export import export_ssp, export_system
from cosimo.masters import gauss_seidel, iterative, jacobi
from cosimo.units import Fmu, PythonUnit, StateSpace
from cosimo.units.linear import ForwardEuler


class Heater:
    """T' = (P − T + 20) / 2, exact for a held P; starts in the cold: an operating point that is not 0."""

    inputs, outputs = ("power",), ("temperature",)

    def __init__(self) -> None:
        self.power, self.temperature = 0.0, 5.0

    def step(self, time: float, duration: float) -> None:
        rest = 20.0 + self.power
        self.temperature = rest + (self.temperature - rest) * math.exp(-duration / 2)


class Broken(Heater):
    def step(self, time: float, duration: float) -> None:
        raise ValueError("the boiler is cold")


class Deaf(Heater):
    def step(self, time: float, duration: float) -> None:
        pass


def room(kind: type = Heater, gain: float = -3.0, profile: Any = None) -> System:
    """A heater under proportional control to 40 degrees, the set point an external input."""
    control = StateSpace(
        -5.0, [[5.0, -5.0]], [[-gain]], inputs=["wanted", "measured"], outputs=["power"], initial=[0.0]
    )
    units = {"heater": PythonUnit(kind), "control": control}
    links = [("control.power", "heater.power"), ("heater.temperature", "control.measured")]
    return System(units, links, inputs={"control.wanted": 40.0 if profile is None else profile}, name="room")


def exact_room() -> System:
    """The same with known equations; the surroundings come in by a constant input."""
    heater = StateSpace(
        -0.5, [[0.5, 0.5]], [[1.0]], inputs=["power", "outside"], outputs=["temperature"], initial=[5.0]
    )
    known = room()
    links = [("control.power", "heater.power"), ("heater.temperature", "control.measured")]
    units = {"heater": heater, "control": known.units["control"]}
    return System(units, links, inputs={"control.wanted": 40.0, "heater.outside": 20.0}, name="room")


def test_python_units_are_assessed_like_the_linear_units_they_are():
    system, known, h = room(), exact_room(), 0.2
    found, same = (analyse(s, jacobi(s, h), horizon=20.0) for s in (system, known))
    assert (found.evidence, same.evidence) == ("confirmed", "proved")
    assert [unit.means for unit in found.units] == ["differences", "known"]
    assert found.spectral_radius == pytest.approx(same.spectral_radius, rel=1e-8)
    assert found.exact_spectral_radius == pytest.approx(same.exact_spectral_radius, rel=1e-8)
    for ours, theirs in zip(found.modes, same.modes, strict=True):
        assert ours.cosimulated == pytest.approx(theirs.cosimulated, rel=1e-6)
    for kind, build in (
        ("jacobi", jacobi),
        ("gauss_seidel", gauss_seidel),
        ("iterative", lambda s, step: iterative(s, step, sweeps=2)),
    ):
        expected = critical_step(known, build(known, h))
        assert getattr(found.limits, kind).step == pytest.approx(expected.step, rel=1e-3), kind
    assert same.unit_steps == 0
    assert found.unit_steps > 0
    assert (found.trust, found.stable, found.headline) == (same.trust, same.stable, same.headline)
    for name, error in same.error.outputs.items():
        assert found.error.outputs[name] == pytest.approx(error, rel=1e-6)
        assert found.measured_error.outputs[name] == pytest.approx(error, rel=0.1)
    measured = run(system, jacobi(system, h), stop=20.0)
    exact = run(known, gauss_seidel(known, h / 512), stop=20.0).values[::512]
    size = np.abs(exact).max(axis=0)
    errors = np.abs(measured.values - exact).max(axis=0) / size
    assert np.array(list(found.error.outputs.values())) == pytest.approx(errors, rel=0.02)


def test_external_inputs_are_followed_over_time():
    system, h = room(profile=lambda t: 40.0 + 10 * math.sin(0.8 * t)), 0.2
    for master in (jacobi(system, h), gauss_seidel(system, h, coupling=Hold(1))):
        found = analyse(system, master, horizon=20.0, details=False)
        rows = run(system, master, stop=20.0)
        fine, coarse = (run(system, gauss_seidel(system, h / k), stop=20.0).values[::k] for k in (256, 128))
        exact = 2 * fine - coarse
        errors = np.abs(rows.values - exact).max(axis=0) / np.abs(exact).max(axis=0)
        assert np.array(list(found.error.outputs.values())) == pytest.approx(errors, rel=0.05)


def test_a_later_start():
    """Time runs from the start of the run, for external inputs too."""
    system, h = room(profile=lambda t: 40.0 + 10 * math.sin(0.8 * t)), 0.2
    shifted = room(profile=lambda t: 40.0 + 10 * math.sin(0.8 * (t + 3.0)))
    late = analyse(system, jacobi(system, h), horizon=10.0, start=3.0, details=False)
    early = analyse(shifted, jacobi(shifted, h), horizon=10.0, details=False)
    assert late.error.outputs == pytest.approx(early.error.outputs, rel=1e-6)


def test_a_unit_that_cannot_be_identified_is_named_and_the_others_are_said():
    system, reason = room(Broken), "the boiler is cold"
    found = analyse(system, jacobi(system, 0.2), horizon=10.0)
    assert found.limits is None
    assert found.spectral_radius is None
    assert found.modes == ()
    assert found.reasons["model"] == "heater could not be identified"
    heater, control = found.units
    assert reason in heater.error
    assert math.isnan(heater.fit)
    assert control.means == "known"
    assert control.poles == pytest.approx((-5.0,))
    text = " ".join(str(found).split())
    assert reason in text
    assert "not identified" in text


def test_a_unit_that_never_changes_is_ordinary():
    """Its output is constant, so that the control alone moves: x' = −5 x + 5 (40 − 5), one pole, no loop."""
    system = room(Deaf)
    found = analyse(system, jacobi(system, 0.02), horizon=10.0)
    assert (found.evidence, found.stable) == ("confirmed", True)
    assert [len(unit.poles) for unit in found.units] == [0, 1]
    assert found.spectral_radius == pytest.approx(math.exp(-5.0 * 0.02), rel=1e-9)


PARTS = {
    "critical_step": ("cosimo.analysis.analysing", "critical_steps"),
    "modes": ("cosimo.analysis.spectrum.Spectrum", "modes"),
    "error": ("cosimo.analysis.model.Model", "predict"),
    "recommendation": ("cosimo.analysis.analysing", "recommend"),
    "connections": ("cosimo.analysis.analysing", "effects"),
}
"""Figures, and what works them out."""


@functools.cache
def unstable_room(kind: type | None) -> tuple[System, Master, Verdict]:
    """With the verdict on it when nothing fails."""
    system = exact_room() if kind is None else room(kind)
    master = jacobi(system, 2.0)
    return system, master, analyse(system, master, horizon=40.0)


@pytest.mark.parametrize("kind", [Heater, pytest.param(None, marks=pytest.mark.slow)], ids=["identified", "known"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.one_in(2)
def test_an_overflow_takes_one_figure_away(kind: type | None, part: str, monkeypatch: pytest.MonkeyPatch):
    """Unstable, so that runs confirm what models say even where no error is predicted."""
    system, master, whole = unstable_room(kind)
    assert whole.stable is False
    where, name = PARTS[part]

    def overflow(*_: Any, **__: Any) -> Any:
        raise OverflowError("math range error")

    monkeypatch.setattr(f"{where}.{name}", overflow)
    found = analyse(system, master, horizon=40.0)
    assert found.evidence == whole.evidence
    assert found.spectral_radius == whole.spectral_radius
    lost = {"critical_step": "limits"}.get(part, part)
    assert found.reasons[lost] == "math range error"
    for other in ("critical_step", "modes", "error", "recommendation", "connections"):
        if other not in (part, "recommendation" if part == "error" else part):
            assert bool(getattr(found, other)) == bool(getattr(whole, other)), other


def test_a_unit_that_fails_leaves_no_verdict():
    system = room(Broken)
    found = analyse(system, jacobi(system, 0.2), horizon=10.0)
    assert (found.trust, found.stable, found.error, found.recommendation) == ("not assessed", None, None, None)
    assert found.evidence == "none"
    assert found.headline.startswith("Not assessed: heater could not be identified, and pilot runs did not converge")
    assert "the boiler is cold" in found.headline


def test_a_unit_whose_output_never_moves_is_ordinary():
    """Its output never moves: an ordinary unit, whose runs show the error."""
    system = room(Deaf)
    found = analyse(system, jacobi(system, 0.2), horizon=10.0)
    assert found.evidence == "confirmed"
    assert found.stable is True
    fine, coarse = (run(system, jacobi(system, 0.2 / k), stop=10.0).values[::k] for k in (128, 64))
    exact = 2 * fine - coarse
    rows = run(system, jacobi(system, 0.2), stop=10.0).values
    errors = np.abs(rows - exact).max(axis=0) / np.abs(exact).max(axis=0)
    assert list(found.measured_error.outputs.values()) == pytest.approx(errors, rel=0.1, abs=1e-9)
    assert found.measured_error.kind == "measured"


def test_a_prediction_beyond_the_pilot_runs_is_trusted_with_care(monkeypatch: pytest.MonkeyPatch):
    """What the units do after 4 s nobody has seen."""
    system, asked = room(), {"horizon": 10.0, "target": 0.05, "budget": Budget(seconds=math.inf), "details": False}
    whole = analyse(system, jacobi(system, 0.02), **asked)
    assert (whole.evidence, whole.trust, whole.pilot_horizon) == ("confirmed", "yes", 10.0)
    monkeypatch.setattr(Pilots, "_fit", lambda self, master: setattr(self, "reach", 4.0))
    found = analyse(system, jacobi(system, 0.02), **asked)
    assert (found.evidence, found.trust, found.pilot_horizon) == ("confirmed", "with care", 4.0)
    assert found.headline.endswith("until 10 s; pilot runs confirm that until 4 s only")
    assert found.error.horizon == 10.0


def test_without_pilot_runs_identified_models_prove_nothing():
    system = room()
    found = analyse(system, jacobi(system, 0.2), horizon=10.0, pilots=False)
    assert (found.trust, found.evidence, found.stable, found.error) == ("not assessed", "none", None, None)
    assert "pilot runs were switched off" in found.headline
    known = exact_room()
    assert analyse(known, jacobi(known, 0.2), horizon=10.0, pilots=False, details=False).evidence == "proved"


def test_details_are_sought_only_of_models_that_are_believed():
    system = room()
    brief, unbelieved, believed = (
        analyse(room(), jacobi(system, 0.2), horizon=10.0, pilots=pilots, details=details)
        for pilots, details in ((False, False), (False, True), (True, True))
    )
    assert unbelieved.unit_steps == brief.unit_steps < believed.unit_steps
    assert unbelieved.limits is None
    assert "no linear model is believed" in unbelieved.reasons["limits"]
    assert believed.limits is not None


class Drunk(Heater):
    """Linear for the small pulses of identification and over the motion, but it sleeps through every hundredth call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def step(self, time: float, duration: float) -> None:
        self.calls += 1
        if 1.9 < time < 4.1:
            duration = 0.0
        super().step(time, duration)


def test_a_prediction_that_pilot_runs_refute_is_used_for_nothing():
    system = room(Drunk)
    found = analyse(system, jacobi(system, 0.2), horizon=10.0)
    assert found.evidence in ("measured", "none")
    assert found.spectral_radius is None
    assert found.limits is None
    assert found.modes == ()
    assert "model" in found.reasons


def test_a_system_that_does_not_initialise_is_still_looked_at():
    class Moody(Heater):
        def __init__(self) -> None:
            raise RuntimeError("out of order")

    system = room(Moody)
    found = analyse(system, jacobi(system, 0.2), horizon=10.0)
    assert any("does not initialise" in note for note in found.notes)
    assert "out of order" in found.units[0].error
    assert found.units[1].valid
    assert found.trust == "not assessed"


def test_instability_of_the_system_itself_is_said():
    # Positive feedback of 2: the coupled heater runs away whatever the master.
    system = room(gain=2.0)
    found = analyse(system, jacobi(system, 0.05), horizon=5.0)
    assert found.exact_stable is False
    assert found.limits.jacobi is None
    assert "itself grows, whatever the master" in str(found)


def test_loops_are_those_of_the_real_feedthrough():
    """The description says that every output depends on every input; the unit says otherwise."""

    class Adder:
        inputs, outputs = ("a",), ("b",)

        def __init__(self) -> None:
            self.a, self.b = 0.0, 1.0

        def set_inputs(self) -> None: ...

        def step(self, time: float, duration: float) -> None:
            self.b = 0.5 * self.a

    system = System(
        {"one": PythonUnit(Adder), "two": PythonUnit(Adder)}, [("one.b", "two.a"), ("two.b", "one.a")], name="ring"
    )
    found = analyse(system, jacobi(system, 0.1), horizon=1.0)
    assert found.loops == ()
    assert found.spectral_radius == pytest.approx(0.5, abs=1e-6)


def test_the_connection_that_hurts_most():
    """Two heaters on one control: the one with the larger gain matters; taking back its delay helps most."""
    A = -0.5 * np.eye(2)
    heaters = StateSpace(A, 0.5 * np.eye(2), np.eye(2), inputs=["p", "q"], outputs=["s", "t"], initial=[5.0, 1.0])
    control = StateSpace(
        -5.0 * np.eye(2), 5.0 * np.eye(2), np.diag([-0.1, -4.0]), inputs=["s", "t"], outputs=["p", "q"]
    )
    links = [
        ("control.p", "heaters.p"),
        ("control.q", "heaters.q"),
        ("heaters.s", "control.s"),
        ("heaters.t", "control.t"),
    ]
    system = System({"heaters": heaters, "control": control}, links, name="two heaters")
    found = analyse(system, jacobi(system, 0.2), horizon=20.0)
    assert found.worst_connection.connection in ("control.q → heaters.q", "heaters.t → control.t")
    effect = {e.connection: e for e in found.connections}
    strong, weak = effect["control.q → heaters.q"], effect["control.p → heaters.p"]
    assert strong.error_slope > 5 * abs(weak.error_slope)
    assert strong.fresh_error < found.error.typical
    assert strong.delay == 0.5
    seidel = analyse(system, gauss_seidel(system, 0.2), horizon=20.0)
    ages = {e.connection: e.delay for e in seidel.connections}
    assert ages["control.q → heaters.q"] == 0.5
    assert ages["heaters.t → control.t"] == -0.5


@pytest.mark.slow
def test_delays_of_fmus_count_as_those_of_their_equations(tmp_path: Path):
    """The units' own solvers are off at this step: what a delay does is compared with the error that is shown."""
    known = problems.two_mass()
    files = export_system(known, tmp_path, fmi=2)
    system = System({name: Fmu(path) for name, path in files.items()}, known.connections, name="two-mass")
    wanted, found = (analyse(each, jacobi(each, 1e-3), horizon=5.0) for each in (known, system))
    shown = {e.connection: e.fresh_error / wanted.error.typical for e in wanted.connections}
    assert shown.keys() == {e.connection for e in found.connections}
    for effect in found.connections:
        assert effect.fresh_error / found.error.typical == pytest.approx(shown[effect.connection], rel=0.02)


def test_a_delay_of_a_whole_step_is_that():
    """Mixing with the sample before by one whole step is exactly that sample: Φ with one more delay."""
    system, h = problems.two_mass(), 1e-3
    target = "two.f"
    late = masters.jacobi(system, h, couplings={target: Delayed(Hold(0), 1.0)})
    whole = Spectrum(LinearSystem(system, late)).radius
    none = Spectrum(LinearSystem(system, masters.jacobi(system, h, couplings={target: Delayed(Hold(0), 0.0)}))).radius
    plain = Spectrum(LinearSystem(system, masters.jacobi(system, h))).radius
    assert none == pytest.approx(plain, rel=1e-12)
    # Jacobi holds f from the step before already; one step more is what a longer chain of copies would do.
    result = run(system, late, stop=0.05)
    linear = LinearSystem(system, late)
    z = linear.start()[:, None]
    for k in range(50):
        z = linear.one_step.Phi @ z + linear.one_step.Gamma @ linear.given_values(k)[:, None]
    assert linear.outputs(z)[:, 0] == pytest.approx(result.values[-1], rel=1e-9)
    assert whole > plain


def test_recommendations_respect_what_units_can_do():
    class Stuck(PythonUnit):
        can_restore = False

    system = room()
    stuck = System({**system.units, "heater": Stuck(Heater)}, system.connections, inputs={"control.wanted": 40.0})
    found = analyse(stuck, jacobi(stuck, 0.2), horizon=20.0)
    assert found.limits.iterative is None
    assert "cannot restore" in " ".join(found.notes)
    assert found.recommendation.error < 0.01
    assert "iterative" not in found.recommendation.text


def test_what_is_good_is_kept():
    system = room()
    first = analyse(system, jacobi(system, 0.2), horizon=20.0)
    assert first.trust != "yes"
    assert not first.recommendation.keep
    again = analyse(system, first.recommendation.master, horizon=20.0)
    assert again.trust == "yes"
    assert again.recommendation.keep
    assert again.recommendation.text.startswith("keep ")
    assert again.recommendation.master is first.recommendation.master
    assert again.error.worst == pytest.approx(first.recommendation.error, rel=1e-6)


def test_a_meter_that_is_not_fed_back_does_not_hide_the_critical_step():
    """It keeps an eigenvalue 1 at all steps; two of them even a defective one."""
    known = exact_room()
    meter = StateSpace([[0.0, 1.0], [0.0, 0.0]], [[0.0], [1.0]], [[1.0, 0.0]], inputs=["power"], outputs=["work"])
    more = System(
        {**known.units, "meter": meter},
        [*known.connections, ("control.power", "meter.power")],
        inputs=known.inputs,
        name="metered",
    )
    for build in (jacobi, gauss_seidel, iterative):
        step, expected = (critical_step(system, build(system, 0.2)).step for system in (more, known))
        assert step == pytest.approx(expected, rel=1e-6)
    found = analyse(more, jacobi(more, 0.2), horizon=5.0, details=False)
    assert found.stable
    assert found.spectral_radius == pytest.approx(1.0)


def test_a_step_longer_than_the_horizon_is_refused_as_by_run():
    system = room()
    with pytest.raises(ConfigurationError, match="the macro step 100 is longer than the horizon of 10 s"):
        analyse(system, jacobi(system, 100.0), horizon=10.0)
    assert analyse(system, jacobi(system, 2.0), horizon=2.0).horizon == 2.0


def test_identification_keeps_to_the_budget():
    """No trial is begun when the time is over; runs are still made, each whole."""
    system = room()
    verdict = analyse(system, jacobi(system, 0.02), horizon=2.0, budget=Budget(seconds=1e-9))
    assert verdict.reasons["model"] == "heater could not be identified"
    heater = next(unit for unit in verdict.units if unit.name == "heater")
    assert not heater.valid
    assert any("trials take longer than the budget allows for" in reason for reason in heater.reasons)
    assert analyse(system, jacobi(system, 0.02), horizon=2.0).evidence == "confirmed"


def test_wrong_requests_are_refused():
    system = room()
    master = jacobi(system, 0.2)
    for wrong in ({"horizon": -1.0}, {"along": 1}, {"at": [math.nan]}, {"target": 0.0}, {"target": math.nan}):
        with pytest.raises(ConfigurationError):
            analyse(system, master, **wrong)


def test_gains_and_measures_of_connections_count(tmp_path: Path):
    """A connection with gain and offset between FMUs: the identified system has both."""
    one = StateSpace(-1.0, 1.0, 1.0, initial=1.0, inputs=["u"], outputs=["y"])
    two = StateSpace(-2.0, 1.0, 1.0, initial=0.0, inputs=["u"], outputs=["y"])
    links = [Connection("one.y", "two.u", gain=3.0, offset=1.0), Connection("two.y", "one.u", gain=-2.0, offset=0.5)]
    known = System({"one": one, "two": two}, links, name="pair")
    files = export_system(known, tmp_path, fmi=2)
    system = System({name: Fmu(path) for name, path in files.items()}, links, name="pair")
    ours, theirs = (analyse(s, jacobi(s, 0.1), horizon=5.0) for s in (system, known))
    assert ours.spectral_radius == pytest.approx(theirs.spectral_radius, rel=1e-9)
    assert ours.error.outputs == pytest.approx(theirs.error.outputs, rel=1e-6)
    assert ours.recommendation.text == theirs.recommendation.text


# ---- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command line")
    export_ssp(problems.quarter_truck(), folder / "truck.ssp", fmi=2, step=1e-3, stop=3.0)
    return folder


def test_analyse_a_package_of_fmus(folder: Path):
    done = cosimo(folder, "analyse", "truck.ssp", "--step-size", "0.05", "--json")
    assert done.returncode == 0, done.stderr
    fields = json.loads(done.stdout)
    assert fields["stable"] is False
    assert (fields["trust"], fields["evidence"]) == ("no", "confirmed")
    assert [unit["name"] for unit in fields["units"]] == ["chassis", "wheel"]
    limits = {row["master"].partition("(")[0]: row["step"] for row in fields["critical_steps"]}
    assert set(limits) == {"jacobi", "gauss-seidel", "iterative"}
    assert limits["jacobi"] == pytest.approx(0.01144, rel=0.01)
    assert fields["error"] == max(fields["errors"].values())
    advice = fields["recommendation"]
    assert advice["error"] < 0.01
    assert fields["headline"].startswith("Do not trust: unstable")
    good = json.loads(cosimo(folder, "analyse", "truck.ssp", "--json", *advice["options"].split()).stdout)
    assert good["errors"]["chassis.position"] < 0.01
    assert good["trust"] == "yes"
    assert good["recommendation"]["keep"] is True


def test_linear_systems_are_answered_in_the_same_words(folder: Path):
    """Trust, recommendation, errors, critical steps of other masters, the worst connection: as for FMUs."""
    command = ["analyse", "quarter-truck", "--step-size", "0.002", "--stop-time", "3"]
    text = cosimo(folder, *command).stdout
    packed = cosimo(folder, "analyse", "truck.ssp", *command[2:]).stdout

    def row(of: str, name: str) -> str:
        return next(line for line in of.splitlines() if line.strip().startswith(name))

    for name in (
        "spectral radius",
        "most critical connection",
        "jacobi ",
        "gauss-seidel(",
        "schedule",
        "predicted error",
    ):
        assert row(text, name) == row(packed, name)
    assert text.splitlines()[0].partition(". ")[2] == packed.splitlines()[0].partition(". ")[2]
    assert len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 120
    verdict = analyse(problems.quarter_truck(), jacobi(problems.quarter_truck(), 0.002), horizon=3.0)
    fields = json.loads(cosimo(folder, *command, "--json").stdout)
    assert fields["errors"] == pytest.approx(verdict.error.outputs)
    assert fields["convergence_order"] == pytest.approx(verdict.order)
    assert fields["recommendation"]["text"] == verdict.recommendation.text
    assert {unit["means"] for unit in fields["units"]} == {"known"}
    assert fields["recommendation"]["text"] in " ".join(text.split())


def test_a_learning_coupling_is_run_and_not_predicted():
    """Known units, but no matrices of the coupling: its error is measured against the exact solution."""
    system = problems.two_mass()
    master = jacobi(system, 1e-3, coupling=Dmd())
    found = analyse(system, master, horizon=1.0, details=False)
    assert (found.evidence, found.error.kind, found.pilot_runs) == ("measured", "measured", 1)
    assert found.stable is None  # bounded until 1 s, but nothing fades
    assert "does not decay" in found.reasons["stable"]
    assert found.spectral_radius is None
    assert "learns" in found.reasons["model"]
    result = run(system, master, stop=1.0)
    rows = np.column_stack([result[name] for name in system.outputs])
    fine, coarse = (run(system, gauss_seidel(system, 1e-3 / k), stop=1.0).values[::k] for k in (64, 32))
    exact = 2 * fine - coarse
    errors = np.abs(rows - exact).max(axis=0) / np.abs(exact).max(axis=0)
    assert list(found.error.outputs.values()) == pytest.approx(errors, rel=0.02)


@pytest.mark.parametrize(
    ("options", "times"),
    [
        (["--at", "0,1.5"], [0.0, 1.5]),
        (["--along", "2"], None),
        pytest.param(["--along"], None, marks=pytest.mark.slow),
    ],
)
def test_analyse_along_a_run(options: list[str], times: list[float] | None, folder: Path):
    done = cosimo(folder, "analyse", "truck.ssp", "--step-size", "0.005", "--no-pilots", *options, "--json")
    assert done.returncode == 0, done.stderr
    along = json.loads(done.stdout)["along"]
    assert len({round(moment["critical_step"], 6) for moment in along}) == 1  # linear: the same everywhere
    assert all(moment["applies"] and not moment["changes"] for moment in along[1:])
    if times is not None:
        assert [moment["time"] for moment in along] == times
    assert len(along) == (2 if options[1:] else 12)


def test_wrong_times_are_refused(folder: Path):
    done = cosimo(folder, "analyse", "truck.ssp", "--at", "0;1")
    assert done.returncode == 2
    assert "--at expects times" in done.stderr


def test_masters_of_units_with_an_internal_step_are_run_before_they_are_recommended(monkeypatch: pytest.MonkeyPatch):
    """Their linear models hold at the step they were made for; what is promised of another is measured there."""
    system = room()
    kinds = []
    for internal in ({}, {"heater": 0.01}):
        monkeypatch.setattr(pilot_runs, "internal_steps", lambda *_, seen=internal: seen)
        advice = analyse(system, jacobi(system, 0.2), horizon=10.0).recommendation
        assert advice.point is not None
        kinds.append(advice.point.errors.kind)
    assert kinds == ["predicted", "measured"]


def test_a_solver_that_is_unstable_by_itself_is_named() -> None:
    """x' = −100 x by Euler with 50 ms grows by |1 − 5| per step, and no delay of a value has to do with it."""
    integrator, start = ForwardEuler(), {"u": 0.0}
    unit = StateSpace(
        [[-100.0]], [[1.0]], [[1.0]], [[0.0]], initial=[1.0], inputs=["u"], start=start, integrator=integrator
    )
    system = System({"lag": unit})
    found = analyse(system, jacobi(system, 0.05), horizon=1.0)
    assert found.stable is False
    assert found.spectral_radius == pytest.approx(4.0)
    assert "the solver of lag is unstable at its step of 50 ms" in str(found)
    assert "feeds energy" not in str(found)


def test_a_unit_that_cannot_be_loaded_is_no_coupling_to_judge(tmp_path: Path) -> None:
    library = Fmu(fmu_builder.build(tmp_path, "lag2")).library()
    path = fmu_builder.build(tmp_path, "lag2", platform="", files={library: "no library"})
    system = System({"a": Fmu(path)})
    with pytest.raises(ConfigurationError, match=r"unit 'a' .*lag2.fmu' cannot be loaded"):
        analyse(system, jacobi(system, 0.1), horizon=1.0)


class Sink(Heater):
    inputs, outputs = ("power",), ()


def test_units_without_outputs_are_said_to_have_none() -> None:
    system = System({"heater": PythonUnit(Sink)}, [], inputs={"heater.power": 1.0})
    verdict = analyse(system, jacobi(system, 0.1), horizon=1.0)
    assert verdict.trust == "not assessed"
    assert verdict.reasons["evidence"] == "no unit has outputs, so there is nothing to compare"


def test_people_are_shown_the_beginning_of_a_long_schedule() -> None:
    system = problems.chain(n=60)
    verdict = analyse(system, jacobi(system, 1e-3), horizon=0.01, details=False)
    assert " F52 …" in " ".join(str(verdict).split())
    assert "H60" not in str(verdict)
    assert verdict.fields()["schedule"] == str(jacobi(system, 1e-3))
    assert verdict.schedule.endswith("H60")
