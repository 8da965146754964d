"""`make foreign`: true statements pass, false ones fail, what is not known is listed, nothing ends in a traceback."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.foreign import judge, main

from cosimo.core.system import System
from cosimo.formats.export import export_system
from cosimo.units.linear import StateSpace

SCENARIO = """
step-size = 0.1
stop-time = 1.0
connections = ["a.y1 -> b.u1", { from = "b.y1", to = "a.u1", gain = -1.0 }]
[units.a]
fmu = "a.fmu"
[units.b]
fmu = "b.fmu"
"""
# x' = −y, y' = x, each held over a step: z_k = (1 + 0.1 i)^k, which grows by √1.01 in every step.
LAST = ((1 + 0.1j) ** 10).real
VALUE = '[[value]]\nsignal = "a.y1"\ntime = 1.0\nexpect = {}\ntolerance = 1e-12\nmaster = "jacobi"\nstep-size = 0.1\n'


def case(folder: Path, truth: str, scenario: str = SCENARIO) -> Path:
    there = folder / "masses"
    units = {"a": StateSpace(0.0, 1.0, 1.0, initial=[1.0]), "b": StateSpace(0.0, 1.0, 1.0)}
    export_system(System(units, inputs={"a.u1": 0.0, "b.u1": 0.0}), there, fmi=2)
    (there / "case.toml").write_text(scenario, encoding="utf-8")
    (there / "truth.toml").write_text(truth, encoding="utf-8")
    return folder


def test_true_values_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(case(tmp_path, VALUE.format(LAST)))]) == 0
    assert "0 wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("truth", "says"),
    [
        (VALUE.format(LAST + 1e-9), "off by 1e-09, tolerance 1e-12"),
        (VALUE.format(LAST).replace("1.0\nexpect", "1.55\nexpect"), "the run has no row at 1.55 s"),
        (VALUE.format(LAST).replace("a.y1", "a.w"), "unknown signal 'a.w'"),
        (VALUE.format(LAST).replace("jacobi", "jacobbi"), "did you mean 'jacobi'"),
    ],
)
def test_values_that_are_missed(tmp_path: Path, truth: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(case(tmp_path, truth))]) == 1
    assert says in capsys.readouterr().out


def test_false_words(tmp_path: Path) -> None:
    """The coupling is unstable: whoever holds it to be stable is contradicted by the verdict."""
    lines = [
        line
        for stable in ("false", "true")
        for line in judge(case(tmp_path / stable, f"stable = {stable}\n") / "masses")
        if line.what.startswith("stable")
    ]
    assert [line.predicted for line in lines] == ["unstable", "unstable"]
    assert [bool(line.wrong) for line in lines] == [False, True]


def test_errors_off_by_more_than_the_tolerance(tmp_path: Path) -> None:
    row = '[[error]]\nsignal = "a.y1"\nexpect = {}\ntolerance = {}\nmaster = "jacobi"\nstep-size = 0.1\n'

    def wrong(expect: float, tolerance: float) -> list[Any]:
        folder = case(tmp_path / str(expect), row.format(expect, tolerance)) / "masses"
        return [line for line in judge(folder) if line.what.startswith("error")]

    (right,) = wrong(abs(LAST - 0.5403023058681398), 0.01)
    assert (right.wrong, right.evidence in ("measured", "confirmed")) == ("", True)
    (off,) = wrong(0.9, 0.01)
    assert "off by" in off.wrong


def test_what_cannot_be_loaded_is_wrong(tmp_path: Path) -> None:
    (line,) = judge(case(tmp_path, "", SCENARIO.replace("a.fmu", "none.fmu")) / "masses")
    assert "FileError" in line.wrong


def test_a_folder_without_cases(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 2
    assert main([]) == 2
