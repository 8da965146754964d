"""gomes2018: the stability matrices (14) and (18) against reference values and against the schedules that run."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.papers.gomes2018 import STEPS, stability_matrices
from cosimo.problems.masses import double_mass_spring_damper

JACOBI = (0.999376, 0.999363, 1.004629, 1.280113)
SUBSTITUTION = (0.999275, 0.996878, 0.995004, 1.525466)


@pytest.mark.parametrize(("H", "jacobi", "substitution"), list(zip(STEPS, JACOBI, SUBSTITUTION, strict=True)))
def test_reference_values(H: float, jacobi: float, substitution: float) -> None:
    system = double_mass_spring_damper()
    radii = [np.abs(np.linalg.eigvals(matrix)).max() for matrix in stability_matrices(system, H)]
    assert radii == pytest.approx([jacobi, substitution], abs=1e-6)
    ours = [Spectrum(LinearSystem(system, build(system, H))).radius for build in (masters.jacobi, masters.iterative)]
    assert ours == pytest.approx([jacobi, substitution], abs=1e-6)


@pytest.mark.parametrize("H", STEPS)
@pytest.mark.parametrize("damper", [0.0, 3.0])
def test_equations_have_the_spectrum_of_the_schedules(H: float, damper: float) -> None:
    system = double_mass_spring_damper(dc=damper)
    for matrix, build in zip(stability_matrices(system, H), (masters.jacobi, masters.iterative), strict=True):
        theirs = np.abs(np.linalg.eigvals(matrix)).max()
        assert Spectrum(LinearSystem(system, build(system, H))).radius == pytest.approx(theirs, rel=1e-9)
