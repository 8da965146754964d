"""`cosimo tune` on the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cosimo.cli import app
from cosimo.core.errors import ConfigurationError, Interrupted, OutputError

QUICK = ["--couplings", "hold0,hold1", "--evaluations", "40", "--stop-time", "100"]


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["tune", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def tuned() -> Any:
    """The document of one search."""
    return json.loads(run("tank", *QUICK, "--verify", "2", "--json").stdout)


def test_json_has_the_fields_of_the_page(tuned: Any) -> None:
    found = tuned
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8").split("## tune")[1]
    names = {*found, *found["front"][0], *found["verified"][0]}
    assert not [name for name in names if f"`{name}`" not in page.split("## info")[0]]
    assert found["recommended"] in found["front"]
    assert len(found["verified"]) == 2
    assert all(entry["deviation"] < 0.25 for entry in found["verified"])


def test_the_options_of_a_point_make_the_same_master(tuned: Any) -> None:
    for point in tuned["front"][:3]:
        arguments = ["analyse", "tank", *shlex.split(point["options"]), "--json"]
        verdict = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
        assert verdict["schedule"] == point["schedule"]
        assert verdict["spectral_radius"] == pytest.approx(point["spectral_radius"], abs=1e-9)


def test_text_has_the_recommendation_the_front_and_the_runs(tmp_path: Path) -> None:
    text = run("tank", *QUICK, "--verify", "1", "--figure", str(tmp_path / "front.png")).stdout
    first = text.splitlines()[0]
    assert first.startswith("tank, ")
    assert "Pareto-optimal masters out of 40. Use Gauss–Seidel tank → controller at " in first
    chosen = [line for line in text.splitlines() if line.lstrip().startswith("→")]
    assert len(chosen) == 1
    predicted, measured = next(line for line in text.splitlines() if line.strip().startswith("predicted")).split()[:2]
    assert (predicted, measured) == ("predicted", "measured")
    assert (tmp_path / "front.png").stat().st_size > 10_000


def test_limits_from_the_command_line() -> None:
    arguments = ["--step-size", "0.5", "--order", "controller,tank", "--masters", "gauss-seidel", "--workers", "2"]
    found = json.loads(run("tank", *QUICK, *arguments, "--json").stdout)
    assert {point["step_size"] for point in found["front"]} == {0.5}
    assert {point["master"] for point in found["front"]} == {"gauss-seidel(controller,tank)"}


def test_cost_by_the_clock() -> None:
    arguments = ["--step-size", "0.5", "--objectives", "error,cost", "--measure-cost"]
    found = json.loads(run("tank", *QUICK, *arguments, "--json").stdout)
    assert all(0 < point["cost"] < 1 for point in found["front"])


def test_other_objectives_and_resuming(tmp_path: Path) -> None:
    arguments = ["tank", *QUICK, "--objectives", "radius,defect", "--resume", str(tmp_path / "kept.npz"), "--json"]
    first, second = (json.loads(run(*arguments).stdout) for _ in range(2))
    assert first | {"wall_time": 0} == second | {"wall_time": 0}
    assert first["objectives"] == ["radius", "defect"]
    assert first["front"][0]["defect"] is not None


def test_the_whole_space_can_be_named() -> None:
    arguments = ["--step-size", "0.25,0.5", "--masters", "gauss-seidel", "--order", "tank,controller"]
    arguments += ["--multiple", "controller=2", "--groups", "tank;controller", "--coupling", "tank.inflow=hold0,nepce"]
    arguments += ["--gains", "0:0.5", "--sweeps", "2", "--cannot-restore", "tank", "--weight", "tank=3,controller=1"]
    found = json.loads(run("tank", *QUICK, *arguments, "--method", "nsga3", "--json").stdout)
    assert {point["step_size"] for point in found["front"]} <= {0.25, 0.5, 1.0}
    kinds = {point["options"].split()[1] for point in found["front"]}
    assert kinds <= {"gauss-seidel", "multirate", "groups"}
    jacobi = json.loads(run("tank", *QUICK, "--step-size", "0.5", "--masters", "jacobi", "--json").stdout)
    assert jacobi["recommended"]["cost"] == 4.0
    assert all(point["cost"] > 4.0 for point in found["front"])


def test_a_range_of_steps_and_what_is_wanted() -> None:
    arguments = ["--step-size", "0.1:0.4", "--masters", "gauss-seidel", "--max-error", "0.001"]
    found = json.loads(run("tank", *QUICK, *arguments, "--min-robustness", "0.5", "--json").stdout)
    assert all(0.1 <= point["step_size"] <= 0.4 for point in found["front"])
    assert "0.1 %" in found["reason"]
    assert "50 %" in found["reason"]
    assert found["recommended"]["error"] <= 0.001


def test_an_interrupt_shows_the_front_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: object, reach: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cosimo.tuning.search.MasterSearch.refine", interrupt)
    kept = tmp_path / "kept.npz"
    shown = CliRunner().invoke(app, ["tune", "tank", *QUICK, "--resume", str(kept)])
    assert isinstance(shown.exception, Interrupted)
    assert f"candidates; the same search continues from '{kept}'" in str(shown.exception)
    assert "Pareto-optimal" in shown.stdout
    assert kept.exists()
    told = CliRunner().invoke(app, ["tune", "tank", *QUICK, "--json"])
    fields = json.loads(told.stdout)
    assert fields["front"]
    assert fields["recommended"]["error"] <= 0.01
    assert (fields["exit_code"], fields["error"]) == (130, str(told.exception))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step-size", "fast"], "--step-size expects numbers"),
        (["--step-size", "1:2:3"], "LOW:HIGH"),
        (["--step-size", "0:1"], "positive"),
        (["--multiple", "controller"], "UNIT=NUMBER"),
        (["--multiple", "valve=2"], "valve"),
        (["--sweeps", "two"], "whole numbers"),
        (["--groups", "tank"], "exactly once"),
        (["--gains", "0:2"], "gains of Nepce"),
        (["--coupling", "tank.nothing=hold0"], "tank.nothing"),
        (["--cannot-restore", "valve"], "valve"),
        (["--backend", "abacus"], "abacus"),
        (["--couplings", "hold9"], "hold9"),
        (["--masters", "seidel"], "seidel"),
        (["--objectives", "speed"], "speed"),
        (["--method", "luck"], "luck"),
    ],
)
def test_mistakes_are_named(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        CliRunner().invoke(app, ["tune", "tank", *arguments], catch_exceptions=False)


def test_a_figure_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        run("tank", *QUICK, "--objectives", "error,cost", "--figure", str(tmp_path / "no" / "front.png"))
