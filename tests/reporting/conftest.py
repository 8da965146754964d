"""Pages that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

import cosimo as co
from cosimo.problems import CATALOGUE
from cosimo.reporting.report import Report, Variation
from cosimo.reporting.report.computation import Asked, prepare
from cosimo.tuning import Space


@pytest.fixture(scope="session")
def whole() -> Report:
    """The unstable two-mass coupling with everything that can be shown of it."""
    system = co.problems.two_mass()
    master = co.masters.jacobi(system, 4e-3)
    space = Space(steps=(1e-3, 4e-3), families=("jacobi", "gauss-seidel"), kinds=(0, 1))
    asked = Asked(system, master, stop=5.0, tune=True, space=space, evaluations=40, compensate=True, run=True)
    ready = prepare(asked)
    variation = Variation("kc", 10.0, 1000.0, lambda value: CATALOGUE["two-mass"].system({"kc": value}), 100.0)
    return co.report(
        system,
        master,
        *ready.things,
        reference=ready.reference,
        seconds=ready.seconds,
        model=ready.model,
        variation=variation,
        horizon=5.0,
        command="cosimo report two-mass",
    )


@pytest.fixture(scope="session")
def whole_page(whole: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole.write(tmp_path_factory.mktemp("report") / "report.html")
