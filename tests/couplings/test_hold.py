"""Holds pass the polynomial through the samples at the times these really belong to."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.polynomial import Polynomial

from cosimo import masters
from cosimo.core.arrays import Array, BoolArray, projection_matrix
from cosimo.core.coupling import Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.unit import Instance, Unit
from cosimo.couplings import Hold, parse_coupling
from cosimo.execution.running import run

H = 0.1


class Probe(Unit):
    """Takes polynomials and keeps every one it is given together with the time it is then stepped from."""

    inputs, outputs, input_degree = ("u",), ("y",), 2

    def __init__(self) -> None:
        self.start: dict[str, float] = {}
        self.seen: list[tuple[float, float, Polynomial]] = []

    def feedthrough(self) -> BoolArray:
        return np.zeros((1, 1), dtype=bool)

    def instantiate(self, start_time: float = 0.0) -> Instance:
        return ProbeInstance(self.seen)


class ProbeInstance(Instance):
    def __init__(self, seen: list[tuple[float, float, Polynomial]]) -> None:
        self.seen, self.input = seen, Polynomial([0.0])

    def set_input(self, coefficients: Array, h: float) -> None:
        self.input = Polynomial(coefficients[:, 0] / h ** np.arange(len(coefficients)))

    def step(self, time: float, duration: float) -> None:
        self.seen.append((time, duration, self.input))

    def read(self) -> Array:
        return np.zeros(1)

    def save(self) -> Any:
        return self.input

    def restore(self, state: Any) -> None:
        self.input = state


class Signal(Unit):
    """Its output is a given function of time."""

    inputs, outputs = (), ("y",)

    def __init__(self, function: Callable[[float], float]) -> None:
        self.start: dict[str, float] = {}
        self.function = function

    def feedthrough(self) -> BoolArray:
        return np.zeros((1, 0), dtype=bool)

    def instantiate(self, start_time: float = 0.0) -> Instance:
        return SignalInstance(self.function)


class SignalInstance(Instance):
    def __init__(self, function: Callable[[float], float]) -> None:
        self.function, self.now = function, 0.0

    def set_input(self, coefficients: Array, h: float) -> None: ...

    def step(self, time: float, duration: float) -> None:
        self.now = time + duration

    def read(self) -> Array:
        return np.array([self.function(self.now)])

    def save(self) -> Any:
        return self.now

    def restore(self, state: Any) -> None:
        self.now = state


def make_masters(system: System, order: int) -> dict[str, Master]:
    hold = Hold(order)
    fast, slow = {"probe": 3}, {"signal": 3}
    return {
        "extrapolating": masters.jacobi(system, H, coupling=hold),
        "source already stepped": masters.gauss_seidel(system, H, order=["signal", "probe"], coupling=hold),
        "source not yet stepped": masters.gauss_seidel(system, H, order=["probe", "signal"], coupling=hold),
        "slow probe": masters.multirate(system, H, multiples=fast, coupling=hold),
        "slow source, held": masters.multirate(system, H, multiples=slow, coupling=hold),
        "slow source, interpolated": masters.multirate(system, H, multiples=slow, inputs="interpolated", coupling=hold),
        "coprime": masters.multirate(system, H, multiples={"signal": 2, "probe": 3}, coupling=hold),
        "iterated": masters.iterative(system, H, sweeps=3, coupling=hold),
    }


NAMES = ["extrapolating", "source already stepped", "source not yet stepped", "slow probe", "slow source, held",
         "slow source, interpolated", "coprime", "iterated"]  # fmt: skip


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_polynomials_are_reproduced_exactly(name: str, order: int) -> None:
    truth = Polynomial([0.3, -1.2, 2.0][: order + 1])
    probe = Probe()
    system = System({"signal": Signal(truth), "probe": probe}, [("signal.y", "probe.u")])
    master = make_masters(system, order)[name]
    run(system, master, stop=12 * master.step)
    # The first macro steps still remember the constant past.
    settled = [entry for entry in probe.seen if entry[0] >= 4 * master.step]
    assert len(settled) >= 8
    for time, duration, given in settled:
        inside = np.linspace(0.0, duration, 5)
        assert given(inside) == pytest.approx(truth(time + inside), abs=1e-11)


def test_one_degree_more_is_not_reproduced() -> None:
    """The test above can fail."""
    probe = Probe()
    system = System({"signal": Signal(lambda t: t**2), "probe": probe}, [("signal.y", "probe.u")])
    run(system, masters.jacobi(system, H, coupling=Hold(1)), stop=2.0)
    time, duration, given = probe.seen[-1]
    # Linear extrapolation of t² errs by σ(σ + 1) h² at σ steps after the newest sample.
    assert given(duration) - (time + duration) ** 2 == pytest.approx(-2 * H**2, abs=1e-12)


def test_the_past_before_the_start_is_constant() -> None:
    probe = Probe()
    system = System({"signal": Signal(lambda t: 5.0 + t), "probe": probe}, [("signal.y", "probe.u")])
    run(system, masters.jacobi(system, H, coupling=Hold(2)), stop=1.0)
    assert probe.seen[0][2](np.array([0.0, H])) == pytest.approx([5.0, 5.0])


def test_matrices_of_a_known_case() -> None:
    # Newest sample at +1, remembered ones at 0 and −1 in slots 0 and 1: Lagrange by hand.
    matrices = Hold(2).matrices(Sampling((Fraction(1), Fraction(0), Fraction(-1)), (0, 1)))
    assert matrices.ws.tolist() == [[1.0], [0.0], [0.0]]
    assert matrices.ww.tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert matrices.uw.tolist() == [[0.0, 1.0, 0.0], [0.5, 0.0, -0.5], [0.5, -1.0, 0.5]]


def test_with_fewer_samples_the_degree_drops() -> None:
    matrices = Hold(2).matrices(Sampling((Fraction(0), Fraction(-2)), (2,)))
    assert matrices.ww.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    assert matrices.uw.tolist() == [[1.0, 0.0, 0.0], [0.5, -0.5, 0.0], [0.0, 0.0, 0.0]]


def test_declarations() -> None:
    for order in (0, 1, 2, 3):
        hold = Hold(order)
        assert (hold.degree, hold.history, hold.error_order, str(hold)) == (order, order + 1, order + 1, f"hold{order}")
    assert Hold() == Hold(0)
    assert len({Hold(0), Hold(1), Hold(1)}) == 2


@pytest.mark.parametrize("order", [-1, 4, 1.5, 1.0, True, "foh", None])
def test_other_orders_are_refused(order: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=f"(a hold has order 0, 1, 2 or 3|Hold: 'order' must be a whole number), not {order!r}"
    ):
        Hold(order)


def test_substeps_are_part_of_the_word() -> None:
    assert (str(Hold(1, substeps=4)), repr(Hold(2, substeps=3))) == ("hold1:4", "Hold(order=2, substeps=3)")
    assert parse_coupling("hold1:4") == Hold(1, substeps=4) != Hold(1)
    for order, count, said in ((1, 0, "1 to 1000 substeps"), (1, 1001, "not 1001"), (0, 2, "same in every substep")):
        with pytest.raises(ConfigurationError, match=said):
            Hold(order, substeps=count)
    with pytest.raises(ConfigurationError, match="such as 'hold1:4'"):
        parse_coupling("hold1:x")


def test_projection_has_the_moments_of_the_polynomial() -> None:
    rng = np.random.default_rng(3)
    for keep in (0, 1, 2):
        c = rng.normal(size=4)
        found = projection_matrix(3, 0.25, 0.5, keep) @ c
        whole = Polynomial(c)(Polynomial([0.25, 1.0]))
        for power in range(keep + 1):
            wanted, mean = ((p * Polynomial([0.0, 1.0]) ** power).integ()(0.5) for p in (whole, Polynomial(found)))
            assert mean == pytest.approx(wanted, abs=1e-12)
