"""`cosimo sweep` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cosimo.cli import app
from cosimo.core.errors import ConfigurationError
from cosimo.studies import read_study

QUICK = ["two-mass", "--stop-time", "1", "--measure", "max:two.x", "--workers", "1"]


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["sweep", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_json_has_the_fields_of_the_page() -> None:
    found = json.loads(run(*QUICK, "--vary", "step=1e-3,2e-3,5", "--measure", "stable", "--json").stdout)
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = page.split("## sweep")[1].split("\n## ")[0]
    names = {*found, *found["measures"]["stable"], *found["failures"][0]}
    assert not [name for name in names if f"`{name}`" not in section]
    assert (found["runs"], found["ran"], found["failed"]) == (3, 2, 1)
    assert found["failures"][0]["point"] == {"step": 5.0}


def test_the_step_is_named_as_its_option_and_written_as_a_time() -> None:
    found, same, spaced = (
        json.loads(run(*QUICK, "--vary", text, "--measure", "radius", "--json").stdout)
        for text in ("step=1e-3,2e-3", "step-size=1ms,2 ms", "step-size=1ms:2ms:2")
    )
    assert found["measures"] == same["measures"] == spaced["measures"]


def test_text_has_the_spread_what_matters_and_what_failed() -> None:
    text = run(*QUICK, "--vary", "kc=50:150:6", "--vary", "step=1e-3,5").stdout
    first, second, *rest = [line.strip() for line in text.splitlines()]
    # Trust comes first: "ran" says nothing of it, and what failed cannot be trusted.
    assert first == "two-mass. 4 with care, 8 not to be trusted."
    assert second.startswith("12 runs (6 ran, 6 failed)")
    assert "kc=150, step=0.001" in text
    place = rest.index("and 1 more")
    assert rest[place - 1].startswith("run 9 failed at kc=130, step=5: ")


def test_samples_are_drawn_with_the_seed(tmp_path: Path) -> None:
    sample = ["--sample", "kc=uniform:90:110", "--sample", "m1=normal:1:0.05", "--runs", "5"]
    points = []
    for seed in ("1", "1", "2"):
        run(*QUICK, *sample, "--seed", seed, "-o", str(tmp_path / "study.arrow"))
        points.append(read_study(tmp_path / "study.arrow")["kc"].tolist())
    assert points[0] == points[1] != points[2]


def test_grid_and_sample_together(tmp_path: Path) -> None:
    path = tmp_path / "study.csv"
    arguments = ["--vary", "step=1e-3,2e-3", "--sample", "kc=log-uniform:1:100", "--runs", "3", "--sampling", "random"]
    found = json.loads(run(*QUICK, *arguments, "-o", str(path), "--json").stdout)
    assert found["runs"] == 6
    assert found["output_file"] == str(path)
    assert path.read_text().splitlines()[0] == "run,step,kc,status,trust,message,seconds,max:two.x"


def test_resuming_what_is_complete_makes_nothing(tmp_path: Path) -> None:
    arguments = [*QUICK, "--vary", "kc=50:150:4", "-o", str(tmp_path / "study.parquet"), "--resume"]
    assert "4 runs (4 ran)" in run(*arguments).stdout
    assert "4 runs, 4 of them from before (4 ran)" in run(*arguments).stdout


def test_the_master_is_the_one_of_the_options() -> None:
    arguments = ["--vary", "step=4e-3", "--measure", "radius", "--json"]
    plain, seidel = (
        json.loads(run(*QUICK, *arguments, *more).stdout)["measures"]["radius"]["most"]
        for more in ([], ["--master", "gauss-seidel", "--order", "two,one", "--coupling", "hold1"])
    )
    assert plain > 1 > seidel
    analysed = CliRunner().invoke(app, ["analyse", "two-mass", "--step-size", "4e-3", "--json"])
    assert plain == pytest.approx(json.loads(analysed.stdout)["spectral_radius"], rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing is varied"),
        (["--vary", "kc"], "--vary expects NAME="),
        (["--vary", "kc=1:2"], "a:b:n"),
        (["--vary", "kc=1", "--vary", "kc=2"], "twice"),
        (["--vary", "kz=1"], "kz"),
        (["--sample", "kc=uniform:1:2"], "--runs"),
        (["--vary", "kc=1", "--runs", "3"], "--runs sets how many"),
        (["--sample", "kc=weibull:1:2", "--runs", "3"], "weibull"),
        (["--sample", "kc=uniform:1:2", "--runs", "3", "--sampling", "sobol"], "sobol"),
        (["--vary", "kc=1", "--measure", "max:two.y"], "two.y"),
        (["--vary", "kc=1", "--scheduler", "tcp://nowhere:1"], "give only one of them"),
        (["--vary", "kc=1", "--resume"], "name it"),
        (["--vary", "kc=1", "-o", "study.xlsx"], "study.xlsx"),
    ],
)
def test_mistakes_are_named(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        CliRunner().invoke(app, ["sweep", *QUICK, *arguments], catch_exceptions=False)
