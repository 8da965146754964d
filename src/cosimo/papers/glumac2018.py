"""glumac2018: its four masters of the two-mass oscillator (`problems.two_mass_glumac`), and every number it prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from cosimo import masters
from cosimo.algebra.batch import Batch
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import ROUNDING
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.timing import TimedStep
from cosimo.couplings import Nepce
from cosimo.execution.running import run
from cosimo.papers import Claim
from cosimo.problems.masses import two_mass_glumac
from cosimo.tuning.goals import nondominated

CONTROL_21 = {"two.F": 0.6}
CONTROL_12 = {"one.x": 0.59, "one.v": 0.36}
"""The gains α of the paper's Control masters, Eqs. 70 and 71."""
HORIZON = 50.0
"""How long Figs. 2 and 3 are followed, in s; the paper does not say."""


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
    front = objectives[nondominated(objectives)]
    equal: npt.NDArray[np.bool_] = (objectives[:, None] == front[None]).all(axis=-1).any(axis=1)
    return equal


def first_crossing(name: str, parameter: str, *, step: float = 9.0) -> float:
    """The last point of logspace(−5, 5, 100) before ρ first reaches 1, as (63) and (64) read their intervals off."""
    grid: list[float] = np.logspace(-5, 5, 100).tolist()
    for before, value in pairwise(grid):
        system = two_mass_glumac(**{parameter: value})
        if Spectrum(LinearSystem(system, paper_masters(system, step)[name])).radius >= 1:
            return before
    return grid[-1]


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
    reason = "with α < 1; at α ≥ 1 the input no longer follows the output; drawn, not counted"
    yield Claim("Fig. 6: points of the Pareto front in (ρ, δ)", None, f"{int(front.sum())}", reason=reason)


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
    yield from _initialisation(system)
    yield _responses(system)
    yield from _errors_follow_consistency(system)
    yield _stability_radius(system)
    yield _conflict(system)
    yield from _figure_7(system)
    yield _jacobi_is_a_product(system)
    yield _radius_and_robustness()


def _initialisation(system: System) -> Iterator[Claim]:
    """Eqs. 50 and 51: the eigenvalues of Φ0, the macro step without its steps (Eq. 30), at h = 1."""
    values = []
    for master in paper_masters(system, 1.0).values():
        linear = LinearSystem(system, master)
        rows = linear.identity()
        linear.apply([op for op in linear.operations.timeline.operations if not isinstance(op, TimedStep)], rows)
        values.append(np.linalg.eigvals(linear.join(rows)))
    found = np.concatenate(values)
    radius = float(np.abs(found).max())
    on_circle = found[np.abs(np.abs(found) - 1) < ROUNDING]
    other = int((np.abs(on_circle - 1) >= ROUNDING).sum())
    reason = "the four masters of Table 1; states that are not stepped have the eigenvalue 1"
    yield Claim("(50): ρ(Φ0) of the test system", "≤ 1", radius, holds=radius <= 1 + ROUNDING, reason=reason)
    yield Claim("(51): eigenvalues of Φ0 on the unit circle other than 1", "none", f"{other}", holds=not other)


def _output_errors(system: System, master: Master) -> Array:
    """max over t ≤ `HORIZON` of |y − y_exact| for F, x, v, as shares of the largest true values, from our start."""
    result = run(system, master, stop=round(HORIZON / master.step) * master.step)
    x0 = np.concatenate([u.initial_state for u in system.units.values()])
    wanted = exact_outputs(LinearSystem(system, master), x0, len(result))
    found = np.column_stack([result[name] for name in system.outputs])
    errors: Array = np.abs(found - wanted).max(axis=0) / np.abs(wanted).max(axis=0)
    return errors


def exact_outputs(linear: LinearSystem, x: Array, rows: int) -> Array:
    """y(t_k) of the coupled system itself from the states x, row after row."""
    flow, found = linear.coupled.flow(linear.master.step), []
    for _ in range(rows):
        found.append(linear.coupled.C @ x)
        x = flow @ x
    return np.array(found)


def _responses(system: System) -> Claim:
    shown = {name: float(_output_errors(system, master).max()) for name, master in paper_masters(system, 1.0).items()}
    return Claim(
        "Fig. 2: largest error of an output, h = 1",
        None,
        ", ".join(f"{name} {error:.1%}" for name, error in shown.items()),
        reason=f"drawn, not printed; mass 1 displaced by 1, until {HORIZON:g} s, of the largest true value",
    )


def _errors_follow_consistency(system: System) -> Iterator[Claim]:
    """Fig. 3: rank correlation of δ with the error of every output, over steps and over masters."""
    steps = np.geomspace(0.01, 2.0, 9)
    names = tuple(paper_masters(system, 1.0))
    delta, errors = np.empty((len(names), len(steps))), np.empty((len(names), len(steps), len(system.outputs)))
    for i, name in enumerate(names):
        for j, h in enumerate(steps.tolist()):
            master = paper_masters(system, h)[name]
            delta[i, j] = float(Batch(system, master, [h]).consistency(k=1, norm=1)[0])
            errors[i, j] = _output_errors(system, master)
    over_steps = [spearmanr(delta[i], errors[i, :, k]).statistic for i, k in np.ndindex(len(names), errors.shape[2])]
    yield Claim(
        "Fig. 3: the error of each output follows δ, over steps",
        "follows",
        f"rank correlations {min(over_steps):.2f} to {max(over_steps):.2f}",
        holds=min(over_steps) > 0.9,
        reason="steps 0.01 to 2, four masters, F, x and v; δ with k = 1 in the stated 1-norm",
    )
    pairs = [(a, b) for a in range(len(names)) for b in range(a)]
    # δ is independent of α: Seidel and Control in one order have the same, and say nothing about each other.
    told = [
        (delta[a, j] > delta[b, j]) == (errors[a, j, k] > errors[b, j, k])
        for a, b in pairs
        for j, k in np.ndindex(errors.shape[1:])
        if abs(delta[a, j] - delta[b, j]) > 1e-9 * delta[a, j]
    ]
    yield Claim(
        "Fig. 3: the same over masters at one step",
        None,
        f"of two masters the one with the smaller δ has the smaller error in {np.mean(told):.0%} of {len(told)} cases",
        reason="50 % is chance; the paper does not say whether it compares masters",
    )


def _stability_radius(system: System) -> Claim:
    """Eq. 62: r(Φ) = min over θ of σ_min(e^{jθ} I − Φ) against 1 − ρ(Φ)."""
    turns = np.exp(1j * np.linspace(0, np.pi, 400))
    ratios = []
    for h in np.geomspace(0.1, 9, 10).tolist():
        for master in paper_masters(system, h).values():
            Phi = LinearSystem(system, master).one_step.Phi
            rho = float(np.abs(np.linalg.eigvals(Phi)).max())
            if rho < 1:
                sizes = np.linalg.svd(turns[:, None, None] * np.eye(len(Phi)) - Phi, compute_uv=False)
                ratios.append(float(sizes[:, -1].min()) / (1 - rho))
    return Claim(
        "(62): r(Φ) ≤ 1 − ρ(Φ)",
        "≤ 1",
        f"r / (1 − ρ) from {min(ratios):.2f} to {max(ratios):.2f}",
        holds=max(ratios) <= 1 + 1e-3,
        reason=f"{len(ratios)} stable masters; equality is for normal matrices only",
    )


def _conflict(system: System) -> Claim:
    """Fig. 5: objectives conflict where more than one point is not dominated."""
    steps = np.logspace(-3, 1, 100)
    points = []
    for master in paper_masters(system, 1.0).values():
        batch = Batch(system, master, steps)
        points.append(np.column_stack([batch.spectral_radius(), batch.consistency(k=1, norm=1)]))
    front = pareto_front(np.vstack(points))
    return Claim(
        "Fig. 5: ρ and δ conflict over steps and the four masters",
        "seems to be the case",
        f"{int(front.sum())} of {len(front)} points are not dominated",
        holds=int(front.sum()) > 1,
        reason="100 steps from 0.001 to 10; δ with k = 1 in the stated 1-norm",
    )


def _figure_7(system: System) -> Iterator[Claim]:
    """Control12 over α1, α2 < 1 and h; δ with k = 2 in the 2-norm, as the printed values have it."""
    alphas, h = np.linspace(0, 1.1, 34)[:30], np.logspace(-3, 1, 80)
    master = paper_masters(system, 1.0)["Control12"]
    gains = {"one.x": alphas[:, None, None], "one.v": alphas[None, :, None]}
    batch = Batch(system, master, h[None, None, :], gains)
    points = np.stack([batch.spectral_radius(), batch.consistency(k=2, norm=2)], axis=-1)
    front = pareto_front(points.reshape(-1, 2)).reshape(points.shape[:-1])
    seidel = int(front[0, 0].sum())
    yield Claim(
        "Fig. 7: Seidel12 masters are part of the Pareto front of Control12",
        "a subset",
        f"{seidel} of {int(front.sum())} points have α = 0",
        holds=0 < seidel < int(front.sum()),
        reason="grid of 30 × 30 gains below 1 and 80 steps; the paper's grid is not printed",
    )
    chosen = Batch(system, paper_masters(system, 8.9)["Control12"], [8.9])
    value = np.array([float(chosen.spectral_radius()[0]), float(chosen.consistency(k=2, norm=2)[0])])
    better = (points < value - [0.005, 0.05]).all(axis=-1)
    yield Claim(
        "Fig. 7: the highlighted master (71) lies on the front",
        "on the front",
        f"{int(better.sum())} points of the grid are better by more than its printed rounding in both",
        holds=not better.any(),
    )


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
        "cannot be modelled so",
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
