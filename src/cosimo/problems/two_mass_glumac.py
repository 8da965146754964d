"""The two-mass oscillator of glumac2018 (Sec. 3), its four masters, and every number the paper prints of it.

Unit `one` returns the coupling force and has feedthrough; unit `two` returns its motion. Both are integrated exactly.
B_2 is read as [0; 1/m2]. The paper gives no initial state; here mass 1 starts displaced by 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from cosimo import masters
from cosimo.algebra import Batch, LinearSystem
from cosimo.analysis.spectrum import Spectrum
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Nepce
from cosimo.problems.claims import Claim
from cosimo.units import StateSpace

CONTROL_21 = {"two.F": 0.6}
CONTROL_12 = {"one.x": 0.59, "one.v": 0.36}
"""The gains α of the paper's Control masters, Eqs. 70 and 71."""
FRONT = 70
"""Points of the Pareto front on the grid of Fig. 6 with α < 1, counted independently."""


def two_mass_glumac(
    *,
    m1: float = 10.0,
    c1: float = 1.0,
    d1: float = 1.0,
    ck: float = 1.0,
    dk: float = 2.0,
    m2: float = 10.0,
    c2: float = 1.0,
    d2: float = 2.0,
) -> System:
    """The system with the parameters of Eq. 41: masses m, stiffnesses c, dampings d; ck and dk couple the two."""
    one = StateSpace(
        [[0.0, 1.0], [-(c1 + ck) / m1, -(d1 + dk) / m1]],
        [[0.0, 0.0], [ck / m1, dk / m1]],
        [[ck, dk]],
        [[-ck, -dk]],
        initial=[1.0, 0.0],
        inputs=["x", "v"],
        outputs=["F"],
    )
    two = StateSpace([[0.0, 1.0], [-c2 / m2, -d2 / m2]], [[0.0], [1 / m2]], np.eye(2), inputs=["F"], outputs=["x", "v"])
    connections = [("one.F", "two.F"), ("two.x", "one.x"), ("two.v", "one.v")]
    return System({"one": one, "two": two}, connections, name="two-mass-glumac")


def paper_masters(
    system: System,
    step: float,
    *,
    control12: Mapping[str, float] = CONTROL_12,
    control21: Mapping[str, float] = CONTROL_21,
) -> dict[str, Master]:
    """The four masters of Table 1: Seidel and Control (with NEPCE at the first unit's inputs), in both orders."""
    orders = {"12": ["one", "two"], "21": ["two", "one"]}
    gains = {"12": control12, "21": control21}
    found = {f"Seidel{key}": masters.gauss_seidel(system, step, order=order) for key, order in orders.items()}
    for key, order in orders.items():
        couplings = {target: Nepce(alpha) for target, alpha in gains[key].items()}
        found[f"Control{key}"] = masters.gauss_seidel(system, step, order=order, couplings=couplings)
    return found


def pareto_front(objectives: Array) -> npt.NDArray[np.bool_]:
    """Which rows of `objectives` (N, 2) no other row dominates (Eqs. 66, 67 with the inequality the right way)."""
    order = np.lexsort((objectives[:, 1], objectives[:, 0]))
    front = np.zeros(len(objectives), dtype=bool)
    best, last = np.inf, np.full(2, np.nan)
    for i in order:
        first, second = objectives[i]
        if second < best or (first == last[0] and second == last[1]):
            front[i] = True
            best, last = second, objectives[i]
    return front


def first_crossing(name: str, parameter: str, *, step: float = 9.0) -> float:
    """The last point of logspace(−5, 5, 100) before ρ first reaches 1, as (63) and (64) read their intervals off."""
    grid = np.logspace(-5, 5, 100)
    stable = []
    for value in grid:
        system = two_mass_glumac(**{parameter: float(value)})
        stable.append(Spectrum(LinearSystem(system, paper_masters(system, step)[name])).radius < 1)
    first = stable.index(False) if False in stable else len(stable)
    return float(grid[first - 1])


def figure_6() -> tuple[Array, Array, Array, Array]:
    """α (100,), h (100,), ρ and δ (100, 100) of Control21 over the grid of Eq. 68; δ with k = 2 in the 2-norm."""
    alpha, h = np.linspace(0, 1.1, 100), np.logspace(-3, 1, 100)
    system = two_mass_glumac()
    master = paper_masters(system, 1.0)["Control21"]
    batch = Batch(system, master, h[None, :], {"two.F": alpha[:, None]})
    return alpha, h, batch.spectral_radius(), batch.consistency(k=2, norm=2)


def claims() -> Iterator[Claim]:
    """Every number of the paper, and what it says in words."""
    yield from _points()
    yield from _intervals()
    yield from _grid()
    yield from _statements()


def _points() -> Iterator[Claim]:
    system = two_mass_glumac()
    points = (
        ("Control21", "α = .6, h = 9.11", 9.11, 0.45, 0.78),
        ("Control12", "α = .59, .36, h = 8.9", 8.9, 0.41, 1.1),
    )
    for name, where, h, rho, delta in points:
        batch = Batch(system, paper_masters(system, h)[name], [h])
        radius = float(batch.spectral_radius()[0])
        yield Claim(f"ρ({name}), {where}", rho, radius, tolerance=0.005)
        computed = float(batch.consistency(k=2, norm=2)[0])
        rounding = 0.005 if delta < 1 else 0.05
        reading = "read with k = 2 and the 2-norm"
        yield Claim(f"δ({name}), {where}", delta, computed, tolerance=rounding, reason=reading)
        stated = float(batch.consistency(k=1, norm=1)[0])
        why = "the text says 1-norm; with k = 1 that gives this value, independent of α; printed is the 2-norm at k = 2"
        yield Claim(f"δ({name}) in the stated 1-norm", delta, stated, tolerance=rounding, reason=why)


def _intervals() -> Iterator[Claim]:
    printed = {
        "ck": ("(63)", {"Seidel12": 0.89, "Seidel21": 0.89, "Control12": 3.59, "Control21": 3.59}),
        "dk": ("(64)", {"Seidel12": 2.26, "Seidel21": 2.26, "Control12": 1e5, "Control21": 1e5}),
    }
    for parameter, (equation, values) in printed.items():
        for name, value in values.items():
            computed = first_crossing(name, parameter)
            index = int(np.abs(np.logspace(-5, 5, 100) - computed).argmin())
            yield Claim(
                f"{equation}: {name} stable up to {parameter}",
                value,
                computed,
                tolerance=0.006,
                reason=f"point {index} of logspace(−5, 5, 100), the last before the first crossing, at h = 9",
            )


def _grid() -> Iterator[Claim]:
    alpha, h, rho, delta = figure_6()
    i, j = (int(n) for n in np.unravel_index(rho.argmin(), rho.shape))
    yield Claim("Fig. 6: α of the smallest ρ", 0.6, float(alpha[i]), tolerance=0.005, reason=f"grid index {i}")
    yield Claim("Fig. 6: h of the smallest ρ", 9.11, float(h[j]), tolerance=0.005, reason=f"grid index {j}")
    inside = alpha < 1
    front = pareto_front(np.column_stack([rho[inside].ravel(), delta[inside].ravel()]))
    reason = f"{int(front.sum())} points with α < 1; at α ≥ 1 the input no longer follows the output"
    yield Claim(
        "Fig. 6: the Pareto front in (ρ, δ)",
        "drawn, not counted",
        f"{int(front.sum())} points",
        holds=int(front.sum()) == FRONT,
        reason=reason,
    )


def _statements() -> Iterator[Claim]:
    system = two_mass_glumac()
    difference = 0.0
    for h in np.geomspace(0.01, 10, 30):
        four = paper_masters(system, float(h))
        a, b = (Spectrum(LinearSystem(system, four[name])).radius for name in ("Seidel12", "Seidel21"))
        difference = max(difference, abs(a - b))
    yield Claim(
        "Fig. 4: the Seidel masters have the same ρ in both orders",
        "seen in the figure",
        f"largest difference {difference:.1e}",
        holds=difference < 1e-12,
        reason="a theorem for two units: Φ12 and Φ21 are cyclic rotations of one product",
    )
    yield _jacobi_is_a_product(system)
    yield _radius_and_robustness()


def _jacobi_is_a_product(system: System) -> Claim:
    linear = LinearSystem(system, masters.jacobi(system, 1.0))
    stages = [linear.identity() for _ in range(3)]
    order = linear.operations.timeline.operations
    for rows, first in zip(stages, (0, 2, 4), strict=True):
        linear.apply(order[first : first + 2], rows)
    F, G, H = (linear.join(rows) for rows in stages)
    n = linear.size
    error = float(np.abs((H @ G @ F)[:n, :n] - linear.one_step.Phi).max())
    return Claim(
        "Sec. 6: Jacobi cannot be modelled by matrix multiplication",
        "future work",
        f"(∏H)(∏G)(∏F) = Φ to {error:.0e}",
        holds=error > 1e-12,
        reason="stage by stage it is a product like any other schedule",
    )


def _radius_and_robustness() -> Claim:
    """ρ at the nominal stiffness against the stable range of ck, over step sizes, for Seidel12."""
    steps = np.geomspace(0.5, 9, 12)
    rho, limit = [], []
    for h in steps.tolist():
        nominal = two_mass_glumac()
        rho.append(Spectrum(LinearSystem(nominal, paper_masters(nominal, h)["Seidel12"])).radius)
        limit.append(first_crossing("Seidel12", "ck", step=h))
    correlation = float(spearmanr(rho, limit).statistic)
    return Claim(
        "Sec. 4.3: a lower ρ means more robustness",
        "argued from one step size",
        f"rank correlation of ρ with the stable ck range over steps: {correlation:+.2f}",
        holds=correlation < 0,
        reason="over steps from 0.5 to 9 a lower ρ does not go with a larger stable range: large steps damp more",
    )
