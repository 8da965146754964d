"""One coupling, one answer: trust, stability, error and advice are the same from every verb, in every form.

Ten couplings (accurate, wrong, unstable; linear, FMU, Python, mixed) are judged by `co.analyse`, and what every other
surface says is compared with that, to the digit.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import cosimo as co
from cosimo.analysis import Verdict
from cosimo.cli import app
from cosimo.core.formatting import plain
from cosimo.formats.export import export_ssp
from thinning import mostly_slow

UNITS = '''
import math


class Mass:
    """ẍ = f, exact while f is held."""

    inputs, outputs = ("f",), ("x", "v")

    def __init__(self, m=1.0):
        self.f, self.x, self.v, self.m = 0.0, 1.0, 0.0, m

    def step(self, time, h):
        a = self.f / self.m
        self.x += h * self.v + h * h * a / 2
        self.v += h * a


class Spring:
    """f = −k x − c v, at once."""

    inputs, outputs = ("x", "v"), ("f",)

    def __init__(self, k=4.0, c=1.0, cubic=0.0):
        self.x, self.v, self.f, self.k, self.c, self.cubic = 0.0, 0.0, 0.0, k, c, cubic

    def set_inputs(self):
        self.f = -self.k * self.x - self.c * self.v - self.cubic * self.x**3

    def step(self, time, h):
        self.set_inputs()
'''
PYTHON = """
step-size = {step}
stop-time = 4.0
connections = ["mass.x -> spring.x", "mass.v -> spring.v", "spring.f -> mass.f"]

[units.mass]
kind = "python"
class = "units.py:Mass"

[units.spring]
kind = "python"
class = "units.py:Spring"
parameters = {{ cubic = {cubic} }}
"""
MIXED = """
step-size = {step}
stop-time = 4.0
connections = ["mass.x -> spring.x", "mass.v -> spring.v", "spring.f -> mass.f"]

[units.mass]
kind = "python"
class = "units.py:Mass"

[units.spring]
kind = "state-space"
A = [[-400.0]]
B = [[400.0, 100.0]]
C = [[-4.0]]
inputs = ["x", "v"]
outputs = ["f"]
"""


@dataclass(frozen=True)
class Case:
    """A coupling: the system as the command line names it, its master and coupling in words, and its step."""

    name: str
    target: str
    master: str
    coupling: str
    step: float
    trust: str


CASES = [
    Case("linear accurate", "tank", "gauss-seidel", "hold1", 0.5, "yes"),
    Case("linear wrong", "two-mass", "jacobi", "hold0", 1e-3, "no"),
    Case("linear unstable", "two-mass", "jacobi", "hold0", 4e-3, "no"),
    Case("linear with care", "two-mass", "gauss-seidel", "hold1", 1e-3, "with care"),
    Case("fmu accurate", "truck.ssp", "jacobi", "hold1", 1e-4, "yes"),
    Case("fmu wrong", "truck.ssp", "jacobi", "hold0", 1e-3, "no"),
    Case("fmu unstable", "truck.ssp", "jacobi", "hold0", 0.05, "no"),
    Case("python accurate", "fine.toml", "gauss-seidel", "hold0", 2e-3, "yes"),
    Case("python wrong", "coarse.toml", "jacobi", "hold0", 0.1, "no"),
    Case("mixed", "mixed.toml", "jacobi", "hold0", 0.01, "with care"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("one answer")
    export_ssp(co.problems.quarter_truck(), place / "truck.ssp", fmi=2, step=1e-3, stop=3.0)
    (place / "units.py").write_text(UNITS, encoding="utf-8")
    (place / "fine.toml").write_text(PYTHON.format(step=2e-3, cubic=0.0))
    (place / "coarse.toml").write_text(PYTHON.format(step=0.1, cubic=2.0))
    (place / "mixed.toml").write_text(MIXED.format(step=0.02))
    return place


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COSIMO_CACHE", str(folder / "cache"))


def cosimo(*words: str) -> str:
    found = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def answer(fields: dict[str, Any]) -> dict[str, Any]:
    """Trust, stable, error and recommendation in the fields of any verb."""
    return {name: fields[name] for name in ("trust", "headline", "stable", "error", "error_kind", "recommendation")}


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("case", mostly_slow(CASES, ("linear wrong", "mixed")))
def test_every_surface_gives_the_same_answer(case: Case, folder: Path) -> None:
    options = ["--master", case.master, "--coupling", case.coupling, "--step-size", repr(case.step)]
    scenario = co.load(case.target)
    master = scenario.changed(
        step=case.step, options=co.masters.words.MasterOptions(name=case.master, couplings=(case.coupling,))
    ).master
    verdict = co.analyse(scenario.system, master, horizon=scenario.horizon, target=scenario.target)
    assert verdict.trust == case.trust, verdict
    wanted = answer(plain(verdict.fields()))
    advice = verdict.recommendation
    assert advice is not None
    assert wanted["error"] is not None

    assert answer(json.loads(cosimo("analyse", case.target, *options, "--json"))) == wanted
    text = words(cosimo("analyse", case.target, *options))
    assert verdict.headline in text
    assert words(advice.text) in text
    for name in verdict.error.outputs if verdict.error else ():
        assert name in text

    ran = json.loads(cosimo("run", case.target, *options, "--json", "--output-file", "rows.parquet"))
    assert answer(ran["verdict"]) == wanted
    said = words(cosimo("run", case.target, *options))
    assert verdict.headline in said

    pages = [["report", case.target, *options], ["report", "rows.parquet"]]
    for page in pages:
        cosimo(*page, "--output-file", "page.html")
        shown = words(html.unescape(re.sub(r"<[^>]+>", " ", (folder / "page.html").read_text(encoding="utf-8"))))
        assert verdict.headline in shown
        assert words(advice.text) in shown

    tried = ["--masters", case.master, "--couplings", case.coupling, "--step-size", repr(case.step)]
    compared = json.loads(cosimo("compare", case.target, *tried, "--json"))
    assert answer(compared["trials"][0]) == wanted

    swept = json.loads(
        cosimo("sweep", case.target, *options, "--vary", f"step={case.step!r}", "--workers", "1", "--json")
    )
    assert answer(swept["verdict"]) == wanted
    assert swept["trust"][verdict.trust] == 1

    card = words(html.unescape(re.sub(r"<[^>]+>", " ", verdict._repr_html_())))
    assert verdict.headline in card
    assert words(advice.text) in card


def test_what_was_not_assessed_is_said_so(folder: Path) -> None:
    """An FMU that nobody has analysed: grey everywhere, never green."""
    (folder / "fresh.toml").write_text(PYTHON.format(step=0.05, cubic=1.0))
    said = cosimo("run", "fresh.toml", "--output-file", "fresh.csv")
    assert "Not assessed: run 'cosimo analyse fresh.toml " in said
    assert json.loads(cosimo("run", "fresh.toml", "--json"))["verdict"] is None
    cosimo("report", "fresh.csv", "--output-file", "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert 'class="verdict open"' in page
    assert 'class="verdict good"' not in page
    swept = json.loads(cosimo("sweep", "fresh.toml", "--vary", "step=0.04", "--workers", "1", "--json"))
    assert swept["trust"]["not assessed"] == 1
    assert swept["ran"] == 1


def test_a_run_that_is_checked_first(folder: Path) -> None:
    refused = CliRunner().invoke(app, ["run", "two-mass", "--step-size", "0.004", "--check"])
    assert refused.exit_code == 2 or isinstance(refused.exception, co.CosimoError)
    assert "unstable" in str(refused.exception)
    assert "--anyway" in str(refused.exception)
    assert "Do not trust: unstable" in cosimo("run", "two-mass", "--step-size", "0.004", "--check", "--anyway")
    good = ["run", "tank", "--master", "gauss-seidel", "--coupling", "hold1", "--check"]
    assert "Trust: every output" in cosimo(*good)


def test_verdicts_survive_the_short_form() -> None:
    system = co.problems.two_mass()
    for step in (1e-3, 4e-3, 0.2):
        verdict = co.analyse(system, co.masters.jacobi(system, step), horizon=20.0)
        fields = json.loads(json.dumps(plain(verdict.brief())))
        again = Verdict.from_brief(fields)
        assert again.headline == verdict.headline
        assert plain(again.brief()) == fields
