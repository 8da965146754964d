"""The hydraulic manipulator: its equations against independent forms, and parameters without meaning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, UnitError
from cosimo.execution.running import run
from cosimo.problems.hydraulic_manipulator import (
    Cylinder,
    ForceLinkage,
    Linkage,
    Manipulator,
    Sinusoid,
    manipulator,
    manipulator_pressure,
    manipulator_steps,
    steps,
)


def test_the_equilibrium() -> None:
    problem = Manipulator()
    p1, p2, opening = problem.equilibrium
    assert problem.linkage.holding_force == pytest.approx(8829, rel=1e-12)
    assert (p1, p2) == pytest.approx((3.170846e6, 4.529154e6), abs=1)
    assert opening == pytest.approx(0.45434559, abs=1e-8)
    assert problem.linkage.length == pytest.approx(0.5, abs=1e-15)
    rest = Manipulator(control=lambda time: opening)
    for build in (rest, Manipulator(control=lambda time: opening, pressure=True)):
        result = run(build.system(), masters.jacobi(build.system(), 0.012), stop=12.0)
        assert result["mechanics.s"] == pytest.approx(0.5, abs=1e-11)


def points(linkage: Linkage, angles: Array) -> Array:
    """P, Q and R of the paper's Fig. 16, (3, 2)."""
    first, second = (np.array([math.cos(angle), math.sin(angle)]) for angle in angles)
    Q = linkage.l1 * first
    return np.array([Q / 2, Q, Q + linkage.l2 * second])


def energy(linkage: Linkage, angles: Array, rates: Array) -> float:
    """Kinetic and potential energy from the velocities of the points (by central differences) and of the rod."""
    ahead, behind = (points(linkage, angles + sign * 1e-6 * rates) for sign in (1, -1))
    velocity = (ahead - behind) / 2e-6
    masses = np.array([linkage.m, linkage.m_q, linkage.m_r])
    spin = linkage.m * linkage.l1**2 / 12 * rates[0] ** 2
    heights = points(linkage, angles)[:, 1]
    return float(0.5 * (masses @ (velocity**2).sum(axis=1) + spin) + linkage.g * masses @ heights)


@pytest.mark.parametrize("seed", range(5))
def test_the_cylinder_changes_the_energy_of_the_links_by_its_power(seed: int) -> None:
    rng = np.random.default_rng(seed)
    linkage = Linkage()
    angles, rates, force = rng.uniform(0.2, 2.0, 2), rng.normal(size=2), float(rng.normal() * 1e4)
    unit = ForceLinkage(linkage)
    unit.restore((*angles.tolist(), *rates.tolist()))
    unit.f = force
    power = force * unit.v
    unit.step(0.0, 1e-6)
    state = np.array(unit.save())
    acceleration = (state[2:] - rates) / 1e-6
    # dE/dt along the motion with this acceleration, by central differences.
    h = 1e-4
    ahead, behind = (
        energy(linkage, angles + s * h * rates + h * h / 2 * acceleration, rates + s * h * acceleration)
        for s in (1, -1)
    )
    assert (ahead - behind) / (2 * h) == pytest.approx(power, rel=1e-4, abs=1e-2)


def test_length_and_lever_of_the_cylinder() -> None:
    linkage = Linkage(l1=1.3)
    foot = np.array([math.sqrt(3) / 2 * linkage.l1, 0.0])
    for angle in (0.1, 0.5, 1.5, 2.5):
        P = points(linkage, np.array([angle, 0.0]))[0]
        assert linkage.reach(angle) == pytest.approx(np.linalg.norm(P - foot), rel=1e-12)
        slope = (linkage.reach(angle + 1e-6) - linkage.reach(angle - 1e-6)) / 2e-6
        assert linkage.lever(angle) == pytest.approx(slope, rel=1e-6)


def test_flows_into_the_chambers() -> None:
    cylinder, (p1, p2), opening, out, rate = Cylinder(), (3e6, 5e6), 0.4, 0.01, 0.02
    a, b, area = 6.53e-10, -1.19e-18, 65e-4

    def flow(drop: float) -> float:
        return 0.67 * math.sqrt(2 * drop / 850)

    def bulk(p: float) -> float:
        return (1 + a * p + b * p * p) / (a + 2 * b * p)

    into1 = 5e-4 * 0.4 * flow(7.6e6 - p1) - 5e-4 * 0.6 * flow(p1 - 0.1e6)
    into2 = 5e-4 * 0.6 * flow(7.6e6 - p2) - 5e-4 * 0.4 * flow(p2 - 0.1e6)
    expected = (
        bulk(p1) / (area * (0.221 - out)) * (area * rate + into1),
        bulk(p2) / (area * (0.221 + out)) * (-area * rate + into2),
    )
    assert cylinder.rates(p1, p2, opening, out, rate) == pytest.approx(expected, rel=1e-12)
    # Valves let nothing back: beyond the pump's pressure nothing comes from the pump.
    above = cylinder.rates(8e6, p2, 1.0, 0.0, 0.0)[0]
    assert above == 0.0


def test_controls() -> None:
    wave, table = Sinusoid(0.5), steps(0.5)
    assert [wave(t) for t in (0.0, 0.5, 10.0, 11.0)] == pytest.approx([0.5] * 4)
    assert wave(2.125) == pytest.approx(0.45)
    assert wave(0.125) == pytest.approx(0.5 * (1 - 0.0125))
    assert wave(9.625) == pytest.approx(0.5 * (1 - 0.0375 * math.sin(4 * math.pi * 9.625)))
    assert [table(t) for t in (1.0, 2.0, 2.0005, 3.0, 6.001, 7.0)] == pytest.approx(
        [0.5, 0.5, 0.495, 0.49, 0.505, 0.52]
    )


def test_both_couplings_have_one_reference() -> None:
    force, pressure = (Manipulator(pressure=p).reference(stop=1.0) for p in (False, True))
    for signal in ("mechanics.s", "mechanics.v", "hydraulics.p1", "hydraulics.p2"):
        assert pressure[signal] == pytest.approx(force[signal], rel=1e-9, abs=1e-12)


def test_feedthrough_is_in_the_force_only() -> None:
    hydraulics = manipulator().units["hydraulics"]
    assert hydraulics.feedthrough().any(axis=1).tolist() == [True, False, False]
    assert hydraulics.input_degree >= 1
    for unit in manipulator_pressure().units.values():
        assert not unit.feedthrough().any()
    assert manipulator_steps().name == "manipulator-steps"


def test_the_micro_step_can_be_set() -> None:
    coarse, fine = (manipulator(micro_step=m) for m in (4e-4, 2e-4))
    results = [run(s, masters.jacobi(s, 0.012), stop=1.2)["mechanics.s"] for s in (coarse, fine)]
    assert np.abs(results[0] - results[1]).max() > 1e-9


def test_a_piston_that_leaves_its_cylinder_is_said() -> None:
    problem = Manipulator(control=lambda time: 0.1)
    with pytest.raises(UnitError, match=r"unit 'hydraulics' failed .* the piston has left its cylinder") as caught:
        run(problem.system(), masters.jacobi(problem.system(), 0.012), stop=12.0)
    assert caught.value.result is not None
    assert len(caught.value.result) > 10


@pytest.mark.parametrize(
    ("build", "values", "message"),
    [
        (Manipulator, {"micro_step": 0.0}, "parameter micro_step of problem 'manipulator' must be a positive"),
        (Manipulator, {"control": 0.5}, "control of problem 'manipulator' is a function of time, not 0.5"),
        (Linkage, {"m": -1.0}, "parameter m "),
        (Linkage, {"l2": math.nan}, "parameter l2"),
        (Linkage, {"angle1": 0.0}, "has no lever"),
        (Cylinder, {"density": 0.0}, "parameter density"),
        (Cylinder, {"friction": -1.0}, "parameter friction"),
        (Cylinder, {"pump": 0.0}, "pump pressure of the manipulator .* must exceed"),
    ],
)
def test_parameters_without_meaning_are_refused(build: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build(**values)


def test_a_cylinder_that_is_too_weak_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot hold 8829 N"):
        Manipulator(cylinder=Cylinder(area=1e-4)).system()
