"""The double mass-spring-damper of gomes2018, and its stability matrices (14) and (18) as the paper writes them.

Both units are exact. Unit `one` returns its motion; unit `two` holds the coupling spring, returns its force and has
feedthrough. The paper's derivation takes D2 = 0: its index 1 is the unit with feedthrough, our `two`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis.spectrum import Spectrum
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.schedule import Couple, Read, Schedule, Step
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.problems.claims import Claim
from cosimo.units import Exact, Mechanical

STEPS = (0.001, 0.005, 0.01, 0.1)
REFERENCE = ((0.999376, 0.999363, 1.004629, 1.280113), (0.999275, 0.996878, 0.995004, 1.525466))
"""ρ of Eqs. 14 and 18 at these steps, evaluated independently; the paper prints no numbers."""


def double_mass_spring_damper(
    *,
    m1: float = 1.0,
    c1: float = 1.0,
    d1: float = 1.0,
    m2: float = 1.0,
    c2: float = 1.0,
    d2: float = 2.0,
    cc: float = 200.0,
    dc: float = 0.0,
) -> System:
    """Masses m, springs c, dampers d as in the paper's figure; cc and dc couple the two."""
    one = Mechanical(
        m1,
        d1,
        c1,
        B=1.0,
        displacement=[[1.0], [0.0]],
        velocity=[[0.0], [1.0]],
        initial=[1.0, 0.0],
        integrator=Exact(),
        inputs=["f"],
        outputs=["x", "v"],
    )
    two = Mechanical(
        m2,
        d2 + dc,
        c2 + cc,
        B=[[cc, dc]],
        displacement=cc,
        velocity=dc,
        feedthrough=[[-cc, -dc]],
        integrator=Exact(),
        inputs=["x1", "v1"],
        outputs=["f"],
    )
    connections = [("two.f", "one.f"), ("one.x", "two.x1"), ("one.v", "two.v1")]
    return System({"one": one, "two": two}, connections, name="double-mass-spring-damper")


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
    """The paper prints no numbers: its equations were evaluated independently, and are compared with what runs."""
    system = double_mass_spring_damper()
    equations = ("(14), FMI Jacobi", masters.jacobi), ("(18), successive substitution", masters.iterative)
    for (name, build), values in zip(equations, REFERENCE, strict=True):
        for H, value in zip(STEPS, values, strict=True):
            yield Claim(
                f"ρ of Eq. {name}, H = {H:g} (evaluated)",
                value,
                Spectrum(LinearSystem(system, build(system, H))).radius,
                tolerance=1e-6,
                reason="masses 1, c1 = d1 = c2 = 1, d2 = 2, coupling spring 200; the paper prints no numbers",
            )
    yield from _general_statements(system)


def _general_statements(system: System) -> Iterator[Claim]:
    """What is easily read out of the paper's words, and does not hold for every parameter set."""
    radii = {H: [_radius(matrix) for matrix in stability_matrices(system, H)] for H in STEPS}
    ideal = {H: Spectrum(LinearSystem(system, ideal_jacobi(system, H))).radius for H in STEPS}
    worse = [H for H, (jacobi, substitution) in radii.items() if substitution > jacobi]
    helped = [H for H, (jacobi, _) in radii.items() if ideal[H] > jacobi]
    cases = (
        (
            "substitution (18) is always more stable than Jacobi (14)",
            "in most cases",
            worse,
            "true at small steps only",
        ),
        ("the FMI restriction always hurts, against Eq. 11", "it impacts stability", helped, "it may also lower ρ"),
    )
    for item, published, against, reason in cases:
        computed = f"not at H = {', '.join(f'{H:g}' for H in against)}" if against else "at all H listed"
        yield Claim(item, published, computed, holds=not against, reason=f"{reason}; the analysis must decide per case")


def ideal_jacobi(system: System, H: float) -> Master:
    """Eq. 11: the unit with feedthrough is read again with its new input before its output is delivered."""
    operations = (Couple("two"), Read("two"), Couple("one"), Step("one"), Step("two"), Read("one"), Read("two"))
    return Master("ideal-jacobi", Schedule(system.names, operations), H, Hold(0))


def _radius(matrix: Array) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())
