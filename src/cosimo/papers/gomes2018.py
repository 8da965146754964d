"""gomes2018: its stability matrices (14) and (18) as the paper writes them, and what it says of them.

The system is `problems.double_mass_spring_damper`. The paper's derivation takes D2 = 0: its index 1 is the unit with
feedthrough, our `two`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cosimo import masters
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.spectrum import Spectrum
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.schedule import Couple, Read, Schedule, Step
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.papers import Claim
from cosimo.problems.masses import double_mass_spring_damper

STEPS = (0.001, 0.005, 0.01, 0.1)
SETS, SEED = 1000, 2018
"""How many parameter sets the paper's general sentences are judged by."""


def stability_matrices(system: System, H: float) -> tuple[Array, Array]:
    """Eqs. 14 and 18, on [x1, u1, x2, u2]: the FMI Jacobi master, and successive substitution until converged.

    With what a unit takes over from the last step in M0 and what it gets through the coupling in M1 (Eq. 17; an exact
    unit just holds its input), Jacobi adds both and substitution solves for the second: M0 + M1 and (I − M1)⁻¹ M0.
    ũ1(t) in Eq. 13 is read as ũ1(t_i).
    """
    (A1, B1, C1, D1), (A2, B2, C2, _) = (_matrices(system, name, H) for name in ("two", "one"))
    (n1, m1), (n2, m2) = B1.shape, B2.shape
    size = n1 + m1 + n2 + m2
    x1, u1, x2, u2 = np.split(np.arange(size), np.cumsum([n1, m1, n2]))
    M0, M1 = np.zeros((size, size)), np.zeros((size, size))
    M0[np.ix_(x1, x1)], M0[np.ix_(x2, x2)] = A1, A2
    M1[np.ix_(x1, x2)], M1[np.ix_(u1, x2)] = B1 @ C2, C2
    M1[np.ix_(x2, x1)], M1[np.ix_(x2, u1)] = B2 @ C1, B2 @ D1
    M1[np.ix_(u2, x1)], M1[np.ix_(u2, u1)] = C1, D1
    return M0 + M1, np.asarray(np.linalg.solve(np.eye(size) - M1, M0), dtype=np.float64)


def _matrices(system: System, name: str, H: float) -> tuple[Array, Array, Array, Array]:
    unit = system.units[name]
    model, discrete = unit.linear(), unit.discrete(H)
    assert model is not None, "both units are Mechanical"
    return discrete.A, discrete.B[:, : len(unit.inputs)], model.C, model.D


def claims() -> Iterator[Claim]:
    """The paper prints equations and sentences: what they give for our parameters, and for a sample of them."""
    system = double_mass_spring_damper()
    equations = ("(14), FMI Jacobi", masters.jacobi), ("(18), successive substitution", masters.iterative)
    for name, build in equations:
        for H in STEPS:
            yield Claim(
                f"ρ of Eq. {name}, H = {H:g}",
                None,
                Spectrum(LinearSystem(system, build(system, H))).radius,
                reason="masses 1, c1 = d1 = c2 = 1, d2 = 2, coupling spring 200; the paper prints no numbers",
            )
    yield _figure_1()
    yield _case_study(system)
    yield from _sampled()


def _figure_1() -> Claim:
    """ρ(I + A h) of one mass under forward Euler (Eq. 4), with the parameters that the caption prints."""
    h, A = 0.1, np.array([[0.0, 1.0], [-1.0, -1e-4]])
    euler = _radius(np.eye(2) + h * A)
    exact = float(np.exp(h * np.linalg.eigvals(A).real.max()))
    return Claim(
        "Fig. 1: ρ per step of forward Euler, and of the exact solution",
        None,
        f"{euler:.7f} and {exact:.7f}",
        reason="h = 0.1, m = c = 1, d = 1e-4 as printed: by Eq. 5 the approximation grows while the solution decays",
    )


def _case_study(system: System) -> Claim:
    """Jacobi unstable, substitution stable: at the one step of ours at which Jacobi has just become unstable."""
    H = 0.01
    jacobi, substitution = (_radius(matrix) for matrix in stability_matrices(system, H))
    return Claim(
        "Abstract: the double mass-spring-damper is unstable, and the stabilisation improves it",
        "improves the results",
        f"ρ {jacobi:.6f} with (14), {substitution:.6f} with (18), H = {H:g}",
        holds=jacobi > 1 > substitution,
        reason="our parameters and step; the paper leaves those of its case study to another document",
    )


def parameter_sets(count: int = SETS, seed: int = SEED) -> Iterator[tuple[System, float]]:
    """Random systems and steps: masses, springs and dampers over two decades each, H ω_max over three.

    m 0.1 … 10; c, d 0.1 … 10; cc 1 … 1000; dc 0.01 … 1; all even in their logarithm. H is 0.001 to 1 of 1 / ω with ω²
    the stiffness (c + cc) over the smaller mass: steps at which an engineer would expect an answer.
    """
    draw = np.random.default_rng(seed)
    for _ in range(count):
        m1, c1, d1, m2, c2, d2 = (10.0 ** draw.uniform(-1, 1, 6)).tolist()
        cc, dc, share = (10.0 ** draw.uniform((0, -2, -3), (3, 0, 0))).tolist()
        system = double_mass_spring_damper(m1=m1, c1=c1, d1=d1, m2=m2, c2=c2, d2=d2, cc=cc, dc=dc)
        yield system, share / np.sqrt((max(c1, c2) + cc) / min(m1, m2))


def _sampled() -> Iterator[Claim]:
    """The two sentences about stability in general, over a sample of parameter sets."""
    radii = np.array(
        [
            [
                *(_radius(matrix) for matrix in stability_matrices(system, H)),
                Spectrum(LinearSystem(system, ideal_jacobi(system, H))).radius,
            ]
            for system, H in parameter_sets()
        ]
    )
    jacobi, substitution, ideal = radii.T
    smaller = float((substitution < jacobi).mean())
    rescued, lost = int(((jacobi > 1) & (substitution < 1)).sum()), int(((jacobi < 1) & (substitution > 1)).sum())
    sets = f"{len(radii)} random parameter sets, each mass, spring and damper over two or three decades"
    yield Claim(
        "Sec. 3.3: ρ of (18) is smaller than ρ of (14)",
        "in most cases",
        f"in {smaller:.0%} of them",
        holds=smaller > 0.5,
        reason=f"{sets}; stable only with (18): {rescued}, only with (14): {lost}",
    )
    hurt, helped = int(((jacobi > 1) & (ideal < 1)).sum()), int(((jacobi < 1) & (ideal > 1)).sum())
    yield Claim(
        "Abstract: the FMI restriction (12) impacts stability, against Eq. 11",
        "impacts",
        f"ρ larger in {float((jacobi > ideal).mean()):.0%} of them",
        holds=hurt + helped > 0,
        reason=f"{sets}; stable only without the restriction: {hurt}, only with it: {helped}",
    )


def ideal_jacobi(system: System, H: float) -> Master:
    """Eq. 11: the unit with feedthrough is read again with its new input before its output is delivered."""
    operations = (Couple("two"), Read("two"), Couple("one"), Step("one"), Step("two"), Read("one"), Read("two"))
    return Master("ideal-jacobi", Schedule(system.names, operations), H, Hold(0))


def _radius(matrix: Array) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())
