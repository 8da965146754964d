"""Two-mass systems with random parameters: how many explicit co-simulation makes unstable (tamellin2022, Sec. 5.4).

m1, m2 ∈ [1, 10] kg; k1, k2, kc ∈ [1, 1000] N/m; ξ1, ξ2 ∈ [0.001, 0.1] with c_i = 2 ξ_i √(m_i k_i); cc ∈ [0, c1]; all
even over their range, macro step 5 ms, free evolution from 100 and −100 m/s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis.spectrum import Spectrum
from cosimo.compensation import compensate
from cosimo.core.system import System
from cosimo.papers.assignment import assign
from cosimo.papers.feedback import with_feedback
from cosimo.papers.mechanics import cosimulated_motion, energy, exact_motion, nrms
from cosimo.papers.stiffness import DynamicStiffness
from cosimo.problems.masses import two_mass

COUNT, STEP, SEED, STOP = 100, 5e-3, 2022, 20.0


@dataclass(frozen=True)
class Outcome:
    """Spectral radius and NRMS error of the mechanical energy: plain, the papers' compensator, the discrete design."""

    plain_radius: float
    feedback_radius: float
    discrete_radius: float
    plain_error: float
    feedback_error: float
    discrete_error: float


def random_two_mass(*, count: int = COUNT, seed: int = SEED) -> Iterator[System]:
    """The systems, the same ones for the same seed."""
    draw = np.random.default_rng(seed)
    for number in range(count):
        m1, m2 = draw.uniform(1, 10, 2).tolist()
        k1, k2, kc = draw.uniform(1, 1000, 3).tolist()
        xi1, xi2 = draw.uniform(0.001, 0.1, 2).tolist()
        c1, c2 = 2 * xi1 * np.sqrt(m1 * k1), 2 * xi2 * np.sqrt(m2 * k2)
        cc = draw.uniform(0, c1)
        yield two_mass(m1=m1, m2=m2, k1=k1, k2=k2, kc=kc, dampers=(c1, c2, float(cc)), name=f"random {number + 1}")


def random_study(*, count: int = COUNT, seed: int = SEED, stop: float = STOP) -> list[Outcome]:
    """All systems co-simulated in the papers' order of operations: plain, and with either compensator."""
    return [_outcome(system, round(stop / STEP)) for system in random_two_mass(count=count, seed=seed)]


def _outcome(system: System, steps: int) -> Outcome:
    plain = masters.jacobi_early_read(system, STEP)
    feedback = with_feedback(assign(DynamicStiffness(system, STEP)).require(), masters.jacobi_early_read)
    runs = [(system, plain), feedback, (system, compensate(system, plain).master)]
    exact = energy(system, exact_motion(system, STEP, steps))
    radii = [Spectrum(LinearSystem(*pair)).radius for pair in runs]
    errors = [nrms(energy(system, cosimulated_motion(*pair, steps)), exact) for pair in runs]
    return Outcome(*radii, *errors)
