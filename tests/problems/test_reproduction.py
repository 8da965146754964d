"""Every claim is computed, and exactly the known misprints do not hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosimo import masters, problems
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.execution.running import run
from cosimo.formats.export import export_ssp
from cosimo.formats.scenario import load
from cosimo.papers import PAPERS, Claim, Item, reproduce
from cosimo.papers.pikulinski2025 import HELD, papers_dmd, predicted, without_soft_start
from cosimo.papers.tamellin2022 import CASES, free_evolution
from cosimo.problems import CATALOGUE, find
from cosimo.problems.oscillators import LINEAR
from thinning import mostly_slow

WRONG = {
    "glumac2018": {
        "δ(Control21) in the stated 1-norm",
        "δ(Control12) in the stated 1-norm",
        "Sec. 6: Jacobi cannot be modelled by matrix multiplication",
        "Sec. 4.3: a lower ρ means more robustness",
    },
    "pikulinski2025": {
        "Sec. 3.1.2: energy error below 10 % for most of the time, the paper's start",
        "Fig. 14: longer windows are better",
        "Sec. 3.3.1: NMSE with DMD, window 10",
    },
    "richiedei2024": {
        "Sec. 3.3: with the printed gains the poles match those of the monolithic system",
        "Table 1: |Im w̃3|, entry of the load",
    },
    "gomes2018": set(),
}

POLES = {
    "Table 1": ("pole 1, undamped, 1 ms", "pole 2, undamped, 1 ms"),
    "Table 2": ("pole 1, damped, 1 ms", "pole 2, damped, 1 ms", "pole 2, damped, 4 ms"),
    "Table 7": tuple(f"pole {mode}, four-mass, 3 ms" for mode in (1, 2, 4)),
}
ERRORS = {
    "Table 5": ("x2", ("undamped, 1 ms", "damped, 1 ms", "damped, 4 ms")),
    "Table 6": ("x2", ("undamped, 1 ms", "damped, 1 ms", "damped, 4 ms")),
    "Table 9": ("x3", ("four-mass, 3 ms",)),
}
RUNS = ("monolithic", "without compensation", "with compensation")
MODAL = {
    f"Tables 1 and 3: {what} of mode {mode}, co-simulated, undamped, 1 ms" for what in ("ω_n", "ξ") for mode in (1, 2)
} | {
    *(
        f"Table 3: {what} of mode {mode}, co-simulated, undamped, 1 ms"
        for what in ("e_ω in %", "e_ξ")
        for mode in (1, 2)
    ),
    *(f"Table 2: {what}, co-simulated, damped, 1 ms" for what in ("ω_n of mode 1", "ξ of mode 1", "ξ of mode 2")),
    *(f"Table 2: {what}, co-simulated, damped, 4 ms" for what in ("ω_n of mode 1", "ξ of mode 2")),
    *(f"Table 8: ξ of mode {mode}, co-simulated, four-mass, 3 ms" for mode in (1, 2, 3)),
}
"""What follows from printed poles that are themselves wrong or rounded."""
WRONG["tamellin2022"] = (
    {f"{table}: co-simulated {pole}" for table, poles in POLES.items() for pole in poles}
    | {
        f"{table}: NRMS of {signal}, {run_}, {case}"
        for table, (x, cases) in ERRORS.items()
        for signal in (x, "fc")
        for run_ in RUNS
        for case in cases
    }
    | {"Table 3: w̃3, entry of mass 1"}
    | MODAL
)
COMPUTED = {"glumac2018": 3, "gomes2018": 9, "tamellin2022": 6, "pikulinski2025": 2, "richiedei2024": 2}
"""How many rows have nothing printed to compare with."""


@pytest.mark.parametrize("paper", mostly_slow(PAPERS, set(PAPERS) - {"pikulinski2025", "tamellin2022"}))
def test_only_known_misprints_fail(paper: str, reproduced: Callable[[str], list[Item]]) -> None:
    items = reproduced(paper)
    assert len(items) >= 9
    assert {item.claim.item for item in items if item.claim.verdict == "does not hold"} == WRONG[paper]
    assert sum(item.claim.verdict == "computed" for item in items) == COMPUTED[paper]
    assert all(item.claim.reason for item in items if item.claim.verdict != "holds")


@pytest.mark.parametrize("case", ["undamped 1 ms", "damped 1 ms", "damped 4 ms"])
def test_compensated_rows_are_computed_with_the_printed_gains(case: str) -> None:
    """Other gains, by 1e-3 of the printed ones, give another run: the rows tell them apart."""
    known = CASES[case]
    table = [[float(gain) for gain in part.split()] for part in known.gains.split(";")]
    assert np.shape(table) == (3, 4)
    other = replace(known, gains=";".join(" ".join(f"{1.001 * gain!r}" for gain in part) for part in table))
    printed, changed = (short.printed(known.assignment()) for short in (known, other))
    assert np.hstack(printed.gains) == pytest.approx(np.array(table), abs=0)
    motions = [free_evolution(replace(one, stop=1.0))["with compensation"].positions for one in (known, other)]
    assert np.abs(motions[0] - motions[1]).max() > 1e-6
    assert changed.residual != printed.residual


def test_nothing_published_is_not_a_verdict() -> None:
    assert Claim("x", None, 1.0, reason="drawn").verdict == "computed"
    assert Claim("x", None, 1.0, holds=True, reason="drawn").verdict == "computed"


def test_without_soft_start_holds_until_the_window_is_full() -> None:
    """With a window that never fills it is the held run; with one of three pairs it is the paper's own start."""
    held = predicted(LINEAR.system(), "one", HELD, step=0.01, stop=2.0)
    rows = without_soft_start(LINEAR, 0.01, 2.0, 10_000)
    assert rows[:, 2] == pytest.approx(held["two.x"], rel=1e-9, abs=1e-9)
    soft = predicted(LINEAR.system(), "one", papers_dmd(100), step=0.01, stop=2.0)
    near = without_soft_start(LINEAR, 0.01, 2.0, 3)[:, 2]
    assert np.abs(near - soft["two.x"]).max() < 0.1 * np.abs(near - held["two.x"]).max()


def test_unknown_paper_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'gomes2018'"):
        next(reproduce(["glumac2018", "gomez2018"]))


@pytest.mark.parametrize(
    ("published", "computed", "tolerance", "verdict"),
    [(0.45, 0.4504, 0.005, "holds"), (0.45, 0.46, 0.005, "does not hold"), ("yes", "no", None, "does not hold")],
)
def test_verdict(published: float | str, computed: float | str, tolerance: float | None, verdict: str) -> None:
    assert Claim("x", published, computed, tolerance=tolerance).verdict == verdict


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_problem_builds_and_has_positive_defaults(name: str) -> None:
    problem = find(name)
    assert problem.system().names
    assert problem.step > 0
    assert problem.stop > problem.step


def test_parameters_can_be_set_and_are_checked() -> None:
    assert len(find("chain").system({"n": 3}).units) == 3
    with pytest.raises(UnknownNameError, match="did you mean 'damping'"):
        find("two-mass").system({"dampin": 1.0})
    with pytest.raises(UnknownNameError, match="two-mass"):
        find("two-masses")


def test_looking_up_a_problem_imports_no_other() -> None:
    code = (
        "import sys, cosimo.problems as p; before = set(sys.modules); p.two_mass();"
        "print(*sorted(m for m in set(sys.modules) - before if m.startswith('cosimo.problems')))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["cosimo.problems.masses"]


def test_problems_are_attributes_of_the_package() -> None:
    assert {problem.build for problem in CATALOGUE.values()} == {
        getattr(problems, name) for name in dir(problems) if name not in problems.__all__
    }
    with pytest.raises(AttributeError, match="no attribute 'two_masses'"):
        problems.two_masses  # noqa: B018


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_problem_runs_and_can_be_exported(name: str, tmp_path: Path) -> None:
    problem = find(name)
    system = problem.system()
    result = run(system, masters.jacobi(system, problem.step), stop=5 * problem.step, record="all")
    assert len(result) == 6
    if any(unit.linear() is None for unit in system.units.values()):
        with pytest.raises(ConfigurationError, match="can be exported"):
            export_ssp(system, tmp_path / "2.ssp", fmi=2, step=problem.step, stop=problem.stop)
        return
    for fmi in (2, 3):
        package = export_ssp(system, tmp_path / f"{fmi}.ssp", fmi=fmi, step=problem.step, stop=problem.stop)  # type: ignore[arg-type]
        again = load(package).system
        theirs = run(again, masters.jacobi(again, problem.step), stop=5 * problem.step)
        for signal in system.outputs:
            scale = max(1e-300, float(np.abs(result[signal]).max()))
            assert np.abs(theirs[signal] - result[signal]).max() <= 1e-12 * scale


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("chain", {"n": float("inf")}, "finite"),
        ("chain", {"n": 1e300}, "1 to 100,000"),
        ("chain", {"n": 2.5}, "whole number"),
        ("two-mass-glumac", {"m1": 0.0}, "is not defined for m1=0"),
    ],
)
def test_parameters_without_meaning_are_refused(name: str, values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        find(name).system(values)
