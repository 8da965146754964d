"""A figure of the verdict stands in the text, in JSON, in notebooks and in the report."""

from __future__ import annotations

import numpy as np
import pytest

import cosimo as co


def test_the_doubling_time_is_that_of_a_run_and_stands_in_all_forms() -> None:
    system = co.problems.two_mass()
    master = co.masters.jacobi(system, 4e-3)
    verdict = co.analyse(system, master, horizon=1.0, details=False)
    assert verdict.doubling is not None
    late = 60.0  # by then only the growing mode is left
    velocity = np.abs(co.run(system, master, stop=late + 2 * verdict.doubling)["two.v"])
    half = round(verdict.doubling / master.step)
    first, last = velocity[-2 * half : -half].max(), velocity[-half:].max()
    # Peaks are half a period apart, in which the amplitude grows by 0.8 %.
    assert last / first == pytest.approx(2.0, rel=8e-3)

    assert verdict.fields()["doubling_time"] == verdict.doubling
    shown = f"{verdict.doubling:.4g} s"
    for form in (str(verdict), verdict._repr_html_(), co.report(verdict).html()):
        assert "doubling time" in form
        assert shown in form


def test_a_stable_run_has_no_doubling_time() -> None:
    system = co.problems.two_mass()
    verdict = co.analyse(system, co.masters.jacobi(system, 1e-3), horizon=1.0, details=False)
    assert verdict.stable
    assert verdict.fields()["doubling_time"] is None
    assert "doubling time" not in str(verdict)
