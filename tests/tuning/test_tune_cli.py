"""`cosimo tune` on the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cosimo.cli import app
from cosimo.core.errors import ConfigurationError, OutputError

QUICK = ["--couplings", "hold0,hold1", "--evaluations", "80", "--stop-time", "100"]


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["tune", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_json_has_the_fields_of_the_page() -> None:
    found = json.loads(run("tank", *QUICK, "--verify", "2", "--json").stdout)
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8").split("## tune")[1]
    names = {*found, *found["front"][0], *found["verified"][0]}
    assert not [name for name in names if f"`{name}`" not in page.split("## info")[0]]
    assert found["recommended"] in found["front"]
    assert len(found["verified"]) == 2
    assert all(entry["deviation"] < 0.25 for entry in found["verified"])


def test_the_options_of_a_point_make_the_same_master() -> None:
    found = json.loads(run("tank", *QUICK, "--json").stdout)
    for point in found["front"][:3]:
        arguments = ["analyse", "tank", *shlex.split(point["options"]), "--json"]
        verdict = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
        assert verdict["schedule"] == point["schedule"]
        assert verdict["spectral_radius"] == pytest.approx(point["spectral_radius"], abs=1e-9)


def test_text_has_the_recommendation_the_front_and_the_runs(tmp_path: Path) -> None:
    text = run("tank", *QUICK, "--verify", "1", "--figure", str(tmp_path / "front.png")).stdout
    assert "recommended" in text
    assert "→" in text
    assert "verified by running" in text
    assert (tmp_path / "front.png").stat().st_size > 10_000


def test_limits_from_the_command_line() -> None:
    arguments = ["--step-size", "0.5", "--order", "controller,tank", "--masters", "gauss-seidel", "--workers", "2"]
    found = json.loads(run("tank", *QUICK, *arguments, "--json").stdout)
    assert {point["step_size"] for point in found["front"]} == {0.5}
    assert {point["master"] for point in found["front"]} == {"gauss-seidel(controller,tank)"}


def test_cost_by_the_clock() -> None:
    found = json.loads(run("tank", *QUICK, "--step-size", "0.5", "--measure-cost", "--json").stdout)
    assert all(0 < point["cost"] < 1 for point in found["front"])


def test_other_objectives_and_resuming(tmp_path: Path) -> None:
    arguments = ["tank", *QUICK, "--objectives", "radius,defect", "--resume", str(tmp_path / "kept.npz"), "--json"]
    first, second = (json.loads(run(*arguments).stdout) for _ in range(2))
    assert first == second
    assert first["objectives"] == ["radius", "defect"]
    assert first["front"][0]["defect"] is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
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
        run("tank", *QUICK, "--step-size", "0.5", "--figure", str(tmp_path / "no" / "front.png"))
