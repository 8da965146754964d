"""The state of the page: what it evaluates to is what the command line says of the same setting."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cosimo as co
from cosimo.analysis.identification.test_rig import Allowance
from cosimo.cli import app
from cosimo.core.errors import ConfigurationError
from cosimo.formats.export import SuggestedExperiment, export_system
from cosimo.formats.writing import scaffold
from cosimo.studio import page_state
from cosimo.studio.page_state import State

SYSTEMS = ("two-mass", "quarter-truck", "dc-motor", "thermal-pair")
MASTERS = ("jacobi", "gauss-seidel", "strang", "iterative")


def setting(number: int) -> State:
    """One of twenty random settings of the controls."""
    rng = np.random.default_rng(number)
    system = SYSTEMS[number % 4]
    state = State(system)
    steps = page_state.describe(state)["steps"]
    master: dict[str, Any] = {"name": MASTERS[rng.integers(4)]}
    if rng.random() < 0.6:
        master["couplings"] = [f"hold{rng.integers(3)}"]
    target = float(rng.choice([0.001, 0.01, 0.05]))
    return State.read(
        {"system": system, "master": master, "step": steps[rng.integers(20, len(steps) - 20)], "target": target}
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("number", range(20))
def test_figures_are_those_of_the_command_line(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    state = setting(number)
    frame = page_state.answer({"kind": "frame", "state": state.plain()})["frame"]
    app(["analyse", *shlex.split(state.words), "--json"], standalone_mode=False)
    said = json.loads(capsys.readouterr().out)
    same = ("trust", "headline", "stable", "evidence", "spectral_radius", "growth_rate")
    assert {name: frame[name] for name in same} == {name: said[name] for name in same}
    assert frame["step"] == said["step_size"]
    assert frame["errors"].keys() == said["errors"].keys()
    for name, error in said["errors"].items():
        assert frame["errors"][name] == (pytest.approx(error, rel=1e-12) if math.isfinite(error) else None)


def test_the_curve_agrees_with_the_frames() -> None:
    state = State("quarter-truck")
    about = page_state.describe(state)
    curve = page_state.curve(state, about["steps"])
    assert False in curve["stable"]
    assert True in curve["stable"]
    for place in range(0, len(about["steps"]), 12):
        frame = page_state.frame(state.at(about["steps"][place]))
        assert curve["stable"][place] == frame["stable"]
        assert curve["growth"][place] == pytest.approx(frame["growth_rate"], rel=1e-4, abs=1e-6)


def test_the_course_is_off_by_the_error_that_is_said() -> None:
    """Where no point is left out by decimation, the largest distance of the two lines is the error."""
    state = State.read({"system": "quarter-truck", "step": 0.02, "stop": 3.0})
    frame = page_state.frame(state)
    lines = page_state.course(state, ["wheel.position"])["outputs"]["wheel.position"]
    predicted, true = (np.array(lines[which][1]) for which in ("predicted", "true"))
    size = page_state.model_of(state).truth(0.02).sizes[page_state.describe(state)["outputs"].index("wheel.position")]
    assert np.abs(predicted - true).max() / size == pytest.approx(frame["errors"]["wheel.position"], rel=1e-4)


def test_a_recommendation_is_taken_as_it_is_said() -> None:
    options = "--master gauss-seidel --order two,one --coupling hold1 --coupling two.f=hold0 --step-size 0.0005"
    taken = page_state.recommended(State("two-mass", target=0.02), options)
    assert (taken.step, taken.target) == (0.0005, 0.02)
    assert taken.words == f"two-mass --target-error 0.02 {options}"


def test_the_state_goes_through_the_link() -> None:
    given = {
        "system": "two-mass",
        "step": 0.004,
        "settings": {"kc": 120.0},
        "master": {"name": "iterative", "sweeps": 2},
    }
    assert json.loads(json.dumps(State.read(given).plain())) == given
    assert "--set kc=120.0" in State.read(given).words


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "names no system"),
        ({"step": 1.0}, "names no system"),
        ({"system": "two-mass", "stepp": 1.0}, "has no 'stepp'"),
        ({"system": "two-mass", "step": -1.0}, "positive number"),
        ({"system": "two-mass", "step": math.nan}, "positive number"),
        ({"system": "two-mass", "step": "1"}, "positive number"),
        ({"system": "two-mass", "settings": {"kc": [1]}}, "names with numbers"),
        ({"system": "two-mass", "master": "jacobi"}, "no master"),
        ({"system": "two-mass", "master": {"name": "jacobi", "swaps": 1}}, "has no 'swaps'"),
        ({"system": "two-mass", "master": {"name": "jacobi", "couplings": "hold1"}}, "list of words"),
    ],
)
def test_what_is_no_state_is_refused(given: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        State.read(given)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"master": {"name": "jacoby"}}, "unknown master"),
        ({"master": {"name": "jacobi", "order": "one,two"}}, "does not take the option order"),
        ({"master": {"name": "jacobi", "couplings": ["hold9"]}}, "hold9"),
        ({"settings": {"kd": 1.0}}, "unknown parameter"),
        ({"step": 100.0}, "longer than the horizon"),
    ],
)
def test_a_setting_that_does_not_exist_is_said(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        page_state.answer({"kind": "frame", "state": {"system": "two-mass", **changed}})


def test_a_model_that_is_only_identified_is_not_called_assessed(tmp_path: Path) -> None:
    """Only pilot runs confirm it: a light that shines before would say what is not known."""
    system = co.problems.quarter_truck()
    export_system(system, tmp_path, fmi=2, experiment=SuggestedExperiment(step=1e-3, stop=3.0))
    made = page_state.couple(tmp_path, [str(path) for path in sorted(tmp_path.glob("*.fmu"))])
    assert {one["target"] for one in made["connections"]} == {str(link.connection.target) for link in system.links}
    state = State(str(tmp_path / made["system"]))
    about = page_state.describe(state)
    assert (about["live"], about["known"]) == (True, False)
    frame, known = page_state.frame(state), page_state.frame(State("quarter-truck"))
    assert (frame["trust"], frame["mark"], frame["evidence"]) == ("not assessed", "open", "none")
    assert frame["headline"] == f"Predicted, not confirmed: {known['headline'].partition(': ')[2]}"
    for name, error in known["errors"].items():
        assert frame["errors"][name] == pytest.approx(error, rel=1e-3)


def test_units_are_identified_at_the_step_of_the_slider(tmp_path: Path) -> None:
    """The solvers of these FMUs are off by other amounts at other steps; a map converted from one would be wrong."""
    export_system(co.problems.two_mass(), tmp_path, fmi=2)
    wires = 'connections = ["two.x -> one.x2", "two.v -> one.v2", "one.f -> two.f"]'
    units = '[units]\none.fmu = "one.fmu"\ntwo.fmu = "two.fmu"\n'
    (tmp_path / "pair.toml").write_text(f"step-size = 1e-3\nstop-time = 5.0\n{wires}\n{units}")
    # The sign was wrong: what was known of the file as it was is forgotten.
    state = {"system": str(tmp_path / "pair.toml")}
    wrong = page_state.answer({"kind": "frame", "state": state})["frame"]["errors"]
    page_state.answer({"kind": "connect", "state": state, "source": "one.f", "target": "two.f", "sign": True})
    assert 'to = "two.f", gain = -1.0 }' in (tmp_path / "pair.toml").read_text()
    for step in (1e-3, 2e-3):
        known = page_state.frame(State.read({"system": "two-mass", "step": step, "stop": 5.0}))
        assert known["errors"]["two.v"] != pytest.approx(wrong["two.v"], rel=0.1)
        frame = page_state.frame(State.read({"system": str(tmp_path / "pair.toml"), "step": step}))
        for name, error in known["errors"].items():
            assert frame["errors"][name] == pytest.approx(error, rel=0.02)


def test_every_position_has_the_whole_time_for_identification(tmp_path: Path) -> None:
    export_system(co.problems.quarter_truck(), tmp_path, fmi=2, experiment=SuggestedExperiment(step=1e-3, stop=0.5))
    fmus = [str(path) for path in sorted(tmp_path.glob("*.fmu"))]
    (tmp_path / "system.toml").write_text(scaffold(tmp_path / "system.toml", fmus).text)
    state = State(str(tmp_path / "system.toml"))
    page_state.model_of(state).linearisation._allowance = Allowance(0.0)  # spent by the positions before
    assert page_state.frame(state.at(2e-3))["errors"]


def test_where_no_model_is_believed_nothing_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State("two-mass")
    doubted = page_state.model_of(state).distrusted()
    doubted.known = False
    monkeypatch.setattr(page_state, "model_of", lambda _: doubted)
    about = page_state.describe(state)
    assert (about["live"], about["doubt"]) == (False, "pilot runs do not agree with it")
    with pytest.raises(ConfigurationError, match="nothing is predicted: pilot runs do not agree"):
        page_state.frame(state)


def test_apply_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "pair.toml"
    path.write_text('problem = "two-mass"\nstep-size = 0.004  # guessed\n')
    state = State.read({"system": str(path), "step": 0.0005, "master": {"name": "jacobi", "couplings": ["hold1"]}})
    written = page_state.answer({"kind": "apply", "state": state.plain()})
    assert written == {"file": "pair.toml", "kept": "pair.toml.old"}
    assert (tmp_path / "pair.toml.old").read_text() == 'problem = "two-mass"\nstep-size = 0.004  # guessed\n'
    assert page_state.State(str(path)).scenario.step == 0.0005


def test_a_problem_has_no_file_to_apply_to() -> None:
    with pytest.raises(ConfigurationError, match="no file to write to"):
        page_state.answer({"kind": "apply", "state": {"system": "two-mass"}})


def test_the_defect_is_how_far_an_input_lags(tmp_path: Path) -> None:
    """A held input lags by what its source moves in one macro step (Jacobi, zero-order hold)."""
    state = State("two-mass")
    wires = {one["target"]: one for one in page_state.wires(state)}
    truth = page_state.course(State.read({"system": "two-mass", "step": 0.02, "stop": 2.0}), ["two.x"])
    assert wires["two.f"]["gain"] == -1
    fine, coarse = (
        {
            one["target"]: one["defect"]
            for one in page_state.wires(State.read({"system": "two-mass", "step": h, "stop": 2.0}))
        }
        for h in (1e-4, 2e-4)
    )
    assert coarse["one.x2"] == pytest.approx(2 * fine["one.x2"], rel=0.02)
    predicted = np.array(truth["outputs"]["two.x"]["predicted"][1])
    lag = {
        one["target"]: one["defect"]
        for one in page_state.wires(State.read({"system": "two-mass", "step": 0.02, "stop": 2.0}))
    }
    true = np.array(truth["outputs"]["two.x"]["true"][1])
    assert lag["one.x2"] == pytest.approx(np.abs(np.diff(predicted)).max() / np.abs(true).max(), rel=1e-3)


def test_contributions_are_what_falls_without_a_delay() -> None:
    verdict: dict[str, Any] = {
        "stable": True, "typical_error": 0.2, "spectral_radius": 0.99,
        "connections": [
            {"connection": "a", "fresh_error": 0.05, "fresh_radius": 0.98},
            {"connection": "b", "fresh_error": 0.3, "fresh_radius": 0.98},
            {"connection": "c", "fresh_error": None, "fresh_radius": 0.98},
        ],
    }  # fmt: skip
    assert page_state.contributions(verdict) == {"a": pytest.approx(0.75), "b": 0.0}
    unstable = {**verdict, "stable": False, "spectral_radius": 1.04}
    unstable["connections"] = [{"connection": "a", "fresh_error": None, "fresh_radius": 1.01}]
    assert page_state.contributions(unstable) == {"a": pytest.approx(0.75)}
    assert page_state.contributions({}) == {}


def test_the_front_has_the_figures_of_the_recommendation() -> None:
    points = page_state.front(State("two-mass"), 1e-3)
    assert len(points) > 3
    for point in points[:4]:
        frame = page_state.frame(page_state.recommended(State("two-mass"), point["options"]))
        assert (frame["error"], frame["cost"]) == (pytest.approx(point["error"], rel=1e-9), point["cost"])


def test_an_open_input_is_connected_by_its_proposal(tmp_path: Path) -> None:
    system = co.problems.quarter_truck()
    export_system(system, tmp_path, fmi=2, experiment=SuggestedExperiment(step=1e-3, stop=3.0))
    path = tmp_path / page_state.couple(tmp_path, [str(path) for path in sorted(tmp_path.glob("*.fmu"))])["system"]
    before = path.read_text()
    lines = before.splitlines(keepends=True)
    taken = next(line for line in lines if line.startswith('  "'))
    source, target = taken.split('"')[1].split(" -> ")
    path.write_text("".join(line for line in lines if line is not taken))
    state = State(str(path))
    (missing,) = [one for one in page_state.describe(state)["open"] if one["target"] == target]
    assert (missing["candidates"][0]["source"], bool(missing["candidates"][0]["reason"])) == (source, True)
    written = page_state.answer(
        {"kind": "connect", "state": state.plain(), "source": source, "target": target, "sign": False}
    )
    assert written == {"file": path.name, "kept": f"{path.name}.old"}
    assert target not in [one["target"] for one in page_state.describe(State(str(path)))["open"]]
    with pytest.raises(ConfigurationError, match="cannot be edited automatically"):
        page_state.connect(state, "nobody.x", target)
    with pytest.raises(ConfigurationError, match="no file to write to"):
        page_state.connect(State("two-mass"), "a.x", "b.y")
