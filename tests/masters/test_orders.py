"""Orders of masters, predicted from Φ before the run and measured by it, on two masses with published errors.

Two unit masses between walls: springs of 4π² to the walls and 16π² between them, x = (1, 0) at rest, hence
x = (cos 2πt ± cos 6πt) / 2. The units exchange displacements; inside they use Runge–Kutta of order 4. Largest error of
both displacements at the ends of N steps until t = 1.
"""

from __future__ import annotations

import numpy as np
import pytest

from cosimo import masters
from cosimo.analysis.error_norms import convergence_order
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.units import RungeKutta4, StateSpace

WALL, BETWEEN = 4 * np.pi**2, 16 * np.pi**2


def masses() -> System:
    A = [[0.0, 1.0], [-(WALL + BETWEEN), 0.0]]
    units = {
        name: StateSpace(A, [[0.0], [BETWEEN]], [[1.0, 0.0]], initial=[x, 0.0], integrator=RungeKutta4())
        for name, x in (("one", 1.0), ("two", 0.0))
    }
    return System(units, [("one.y1", "two.u1"), ("two.y1", "one.u1")])


def chain() -> System:
    """Three masses in a row; the middle one sees both others."""
    A = [[0.0, 1.0], [-5.0, -0.1]]
    middle = StateSpace(A, [[0.0, 0.0], [2.0, 3.0]], [[1.0, 0.0]], initial=[1.0, 0.0])
    ends = {name: StateSpace(A, [[0.0], [2.0]], [[1.0, 0.0]], initial=[0.0, 1.0]) for name in ("left", "right")}
    links = [("left.y1", "middle.u1"), ("right.y1", "middle.u2"), ("middle.y1", "left.u1"), ("middle.y1", "right.u1")]
    return System({**ends, "middle": middle}, links)


def fed_through() -> System:
    """As the masses, but the second shows a force, into which the first one's displacement goes directly."""
    A = [[0.0, 1.0], [-WALL, 0.0]]
    one = StateSpace(A, [[0.0], [1.0]], [[1.0, 0.0]], initial=[1.0, 0.0])
    two = StateSpace([[0.0, 1.0], [-WALL - BETWEEN, 0.0]], [[0.0], [BETWEEN]], [[BETWEEN, 0.0]], [[-BETWEEN]])
    return System({"one": one, "two": two}, [("one.y1", "two.u1"), ("two.y1", "one.u1")])


def error(master: Master, system: System | None = None) -> float:
    result = run(system or masses(), master, stop=1.0)
    slow, fast = np.cos(2 * np.pi * result.time), np.cos(6 * np.pi * result.time)
    exact = np.column_stack([slow + fast, slow - fast]) / 2
    return float(np.abs(result.values - exact).max())


@pytest.mark.parametrize(
    ("kind", "options", "published", "within", "order"),
    [
        ("jacobi", {}, (0.4040248, 0.09884993), 2e-7, 1),
        # At N = 100 the fixed point has .4055878; three sweeps have .4055348: the published iteration ended between.
        ("iterative", {}, (0.4055851, 0.09885582), 7e-6, 1),
        ("iterative", {"coupling": Hold(1)}, (0.006632087, 4.147094e-4), 3e-7, 2),
    ],
    ids=["jacobi", "converged, held", "converged, linear"],
)
def test_published_errors(
    kind: str, options: dict[str, Hold], published: tuple[float, float], within: float, order: int
) -> None:
    found = [error(getattr(masters, kind)(masses(), 1 / count, **options)) for count in (100, 400)]
    assert found == pytest.approx(published, rel=within)
    predicted = convergence_order(masses(), getattr(masters, kind)(masses(), 0.01, **options), horizon=1.0)
    assert predicted == pytest.approx(order, abs=0.1)


def test_strang_is_of_second_order_without_slopes_and_without_rollback() -> None:
    predicted = convergence_order(masses(), masters.strang(masses(), 0.01), horizon=1.0)
    assert predicted == pytest.approx(2, abs=0.01)
    coarse, fine = (error(masters.strang(masses(), 1 / count)) for count in (100, 400))
    assert coarse == pytest.approx(0.0033, abs=5e-5)  # published with two digits, and the next with three
    assert fine == pytest.approx(2.07e-4, abs=5e-7)
    assert np.log2(coarse / fine) / 2 == pytest.approx(predicted, abs=0.01)


@pytest.mark.parametrize(
    ("system", "parts", "order"),
    [
        (chain(), ["left", "middle", "right"], 2),
        (chain(), [["left", "right"], "middle"], 2),
        (chain(), [["left", "middle"], "right"], 1),  # connected units of one group see each other's past
        (fed_through(), ["one", "two"], 1),  # the force belongs to the displacement that was given, not to the newest
    ],
    ids=["units", "groups", "connected group", "feedthrough"],
)
def test_where_strang_is_of_second_order(system: System, parts: list[str], order: int) -> None:
    master = masters.strang(system, 0.02, order=parts)
    assert convergence_order(system, master, horizon=1.0) == pytest.approx(order, abs=0.05)


@pytest.mark.parametrize("degree", [1, 2])
def test_strang_with_slopes_has_the_order_of_the_polynomial(degree: int) -> None:
    master = masters.strang(masses(), 0.01, coupling=Hold(degree))
    assert convergence_order(masses(), master, horizon=1.0) == pytest.approx(degree + 1, abs=0.1)


@pytest.mark.parametrize(("degree", "errors"), [(2, (4.976912e-6, 1.940835e-8)), (3, (1.450873e-7, 5.3376e-10))])
def test_waveforms_from_samples_inside_the_step_are_of_order_4(degree: int, errors: tuple[float, float]) -> None:
    """The degree 3 that the inputs are interpolated with; of degree 2 the odd error terms of both halves cancel."""

    def made(count: int) -> Master:
        return masters.iterative(masses(), 1 / count, samples=degree, coupling=Hold(degree))

    predicted = convergence_order(masses(), made(100), horizon=1.0)
    assert predicted == pytest.approx(4, abs=0.01)
    coarse, fine = error(made(100)), error(made(400))
    assert (coarse, fine) == pytest.approx(errors, rel=5e-3)
    assert np.log2(coarse / fine) / 2 == pytest.approx(predicted, abs=0.06)
    seidel = masters.iterative(masses(), 0.01, samples=degree, order=["two", "one"], coupling=Hold(degree))
    assert error(seidel) == pytest.approx(coarse, rel=1e-3)  # the same fixed point


class Blunt(StateSpace):
    """A unit that takes no slopes, as three FMUs of four."""

    input_degree = 0


def blunt(system: System) -> System:
    for unit in system.units.values():
        unit.__class__ = Blunt
    return system


@pytest.mark.parametrize("kind", ["jacobi", "iterative"])
def test_substeps_give_units_without_slopes_the_order_of_the_polynomial(kind: str) -> None:
    """Largest errors of the two displacements: with held inputs the order is 1, whatever is extrapolated."""
    build, system = getattr(masters, kind), blunt(masses())
    orders, errors = [], []
    for hold in (Hold(0), Hold(1, substeps=4)):
        orders.append(convergence_order(system, build(system, 0.0025, coupling=hold), horizon=1.0))
        found = [error(build(system, 1 / count, coupling=hold), system) for count in (400, 800)]
        assert np.log2(found[0] / found[1]) == pytest.approx(orders[-1], abs=0.15)
        errors.append(found[0])
    assert orders == pytest.approx([1, 2], abs=0.1)
    assert errors[1] < 0.1 * errors[0]
    assert str(build(system, 0.01, coupling=Hold(1, substeps=2))).count("G1(1/2)") == 2


def test_units_that_take_the_polynomial_make_no_substeps() -> None:
    assert str(masters.jacobi(masses(), 0.01, coupling=Hold(2, substeps=4))) == "F1 F2 G1 G2 H1 H2"


@pytest.mark.parametrize(
    ("options", "said"),
    [({"samples": 0}, "at least once"), ({"samples": 2, "anderson": 2}, "leave out one of the two")],
)
def test_impossible_samples_are_refused(options: dict[str, int], said: str) -> None:
    samples = options.pop("samples")
    with pytest.raises(ConfigurationError, match=said):
        masters.iterative(masses(), 0.01, sweeps=masters.Convergence(**options), samples=samples)
