"""Every claim is computed, and exactly the known misprints do not hold."""

from __future__ import annotations

import pytest

from cosimo.core.errors import UnknownNameError
from cosimo.problems import CATALOGUE, find, reproduce
from cosimo.problems.claims import Claim
from cosimo.problems.reproduction import PAPERS

WRONG = {
    "glumac2018": {
        "δ(Control21) in the stated 1-norm",
        "δ(Control12) in the stated 1-norm",
        "Sec. 6: Jacobi cannot be modelled by matrix multiplication",
        "Sec. 4.3: a lower ρ means more robustness",
    },
    "gomes2018": {
        "substitution (18) has the smaller ρ, at each H listed",
        "the FMI restriction raises ρ, at each H listed",
    },
}


@pytest.mark.parametrize("paper", PAPERS)
def test_only_known_misprints_fail(paper: str) -> None:
    items = list(reproduce([paper]))
    assert len(items) >= 9
    assert {item.claim.item for item in items if item.claim.verdict != "holds"} == WRONG[paper]
    assert all(item.claim.reason for item in items if item.claim.verdict != "holds")


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
