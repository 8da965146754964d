"""Units at different rates, and integrators that a constant input cannot lead where they shall be."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.compensation import compare, compensate
from cosimo.compensation.target import TargetMotion
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.schedule import Couple, Read, Schedule, Step
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.problems import chain, double_mass_spring_damper, four_mass, motor_gearbox, two_mass, two_mass_glumac
from cosimo.units import Exact, ForwardEuler, Integrator, RungeKutta4, SymplecticEuler

BASE = 4e-3
K = np.array([[110.0, -100.0], [-100.0, 1100.0]])
C = np.array([[0.2, -0.1], [-0.1, 0.2]])
START = np.array([0.0, 0.0, 100.0, -100.0])


def multirate(system: System, multiples: dict[str, int], inputs: str = "held") -> Master:
    return masters.multirate(system, BASE, multiples=multiples, inputs=inputs)  # type: ignore[arg-type]


RATES: dict[str, Callable[[System], Master]] = {
    "one slow": lambda system: multirate(system, {"one": 2}),
    "two slow": lambda system: multirate(system, {"two": 2}),
    "two to three": lambda system: multirate(system, {"one": 2, "two": 3}),
    "interpolated": lambda system: multirate(system, {"one": 2}, "interpolated"),
}


def undivided(integrator: Integrator, h: float) -> Array:
    """One step of the two masses as one system, states [q; v], written out for each integrator."""
    A = np.block([[np.zeros((2, 2)), np.eye(2)], [-K, -C]])
    one = np.eye(4)
    if isinstance(integrator, SymplecticEuler):
        v = np.hstack([-h * K, np.eye(2) - h * C])
        return np.vstack([one[:2] + h * v, v])
    if isinstance(integrator, RungeKutta4):
        Z = h * A
        return one + Z + Z @ Z / 2 + Z @ Z @ Z / 6 + Z @ Z @ Z @ Z / 24
    return np.asarray(scipy.linalg.expm(h * A))


def positions(step: Array, count: int, every: int) -> Array:
    """x2 after every so many steps."""
    x, rows = START, [START[1]]
    for k in range(1, count * every + 1):
        x = step @ x
        if k % every == 0:
            rows.append(x[1])
    return np.array(rows)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("integrator", [SymplecticEuler(), Exact(), RungeKutta4()], ids=lambda i: type(i).__name__)
@pytest.mark.one_in(5)
def test_at_every_rate_the_run_follows_the_whole_at_the_base_step(integrator: Integrator, rate: str) -> None:
    system = two_mass(integrator=integrator)
    master = RATES[rate](system)
    parts, count = round(master.step / BASE), 1500
    for target, step in (("monolithic", undivided(integrator, BASE)), ("exact", undivided(Exact(), BASE))):
        found = compensate(system, master, target=target)  # type: ignore[arg-type]
        assert found.stable
        assert found.latent_radius < 0.2
        assert found.gain_size < 10
        expected = positions(step, count, parts)
        ours = run(system, found.master, stop=count * master.step)["two.x"]
        assert np.abs(ours - expected).max() <= 1e-9 * np.abs(expected).max()
    plain = run(system, master, stop=count * master.step)["two.x"]
    assert np.abs(plain - expected).max() > 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("integrator", [SymplecticEuler(), Exact()], ids=lambda i: type(i).__name__)
def test_executed_equals_multiplied_and_the_kernel_the_interpreter(integrator: Integrator) -> None:
    system = two_mass(integrator=integrator)
    master = compensate(system, multirate(system, {"one": 2, "two": 3})).master
    assert {name: len(mixer.later) for name, mixer in master.mixers.items()} == {"one": 2, "two": 1}
    stop = 60 * master.step
    compiled = run(system, master, stop=stop, record="all")
    plain = run(system, master, stop=stop, record="all", engine=EngineOptions("reference"))
    np.testing.assert_array_equal(compiled.to_numpy(), plain.to_numpy())
    linear = LinearSystem(system, master)
    z = linear.start()
    for k, row in enumerate(compiled.values[:, :3]):
        np.testing.assert_allclose(linear.outputs(z[:, None])[:, 0], row, atol=1e-11 * np.abs(compiled.values).max())
        z = linear.one_step.Phi @ z + linear.one_step.Gamma @ linear.given_values(k)


@pytest.mark.parametrize("build", [masters.jacobi, masters.jacobi_early_read, masters.gauss_seidel])
@pytest.mark.parametrize(
    ("make", "h", "names"),
    [
        (lambda: chain(n=3), 0.01, ("u1.x", "u2.x", "u3.x")),
        (two_mass_glumac, 0.1, ("two.x",)),
        (double_mass_spring_damper, 1e-3, ("one.x",)),
        (lambda: motor_gearbox(integrator=Exact()), 1e-4, ("load.angle", "motor.angle")),
        (lambda: four_mass(integrator=Exact()), 3e-3, ("right.x3", "right.x4")),
    ],
)
@pytest.mark.one_in(4)
def test_exact_integrators_are_given_slopes(
    make: Callable[[], System], h: float, names: tuple[str, ...], build: Callable[[System, float], Master]
) -> None:
    """An input held over a step reaches one state of each; with its slope (and bend) it reaches all."""
    system = make()
    found = compensate(system, build(system, h), target="exact")
    assert found.stable
    assert all(mixer.degree in (1, 2) for mixer in found.master.mixers.values())
    compared = compare(found, stop=1000 * h)
    assert compared.compensated.nrms is not None
    assert compared.uncompensated.nrms is not None
    # What is read early, before the step, is compared with that moment.
    for name in names:
        assert compared.compensated.nrms[name] < 1e-9
        assert compared.uncompensated.nrms[name] > 1e-4


def test_wrong_models_are_tried_at_every_rate() -> None:
    system = two_mass()
    found = compensate(system, multirate(system, {"one": 2}))
    change = next(c for c in found.sensitivity if (c.unit, c.matrix, c.factor) == ("two", "K", 1.1))
    heavier = TargetMotion(two_mass(k2=1100.0), multirate(two_mass(k2=1100.0), {"one": 2}), "monolithic")
    assert change.target_radius == pytest.approx(np.abs(np.linalg.eigvals(heavier.F)).max(), rel=1e-12)
    assert found.worst_change is not None
    assert found.worst_change.stable


def test_what_is_refused_says_why() -> None:
    system = four_mass()
    slow = masters.multirate(system, 3e-3, multiples={"left": 2})
    with pytest.raises(ConfigurationError, match=r"unit 'left' cannot follow .* let it step as often as the others"):
        compensate(system, slow)
    with pytest.raises(ConfigurationError, match=r"unit 'right' cannot follow .* let it step as often as the others"):
        compensate(system, masters.multirate(system, 3e-3, multiples={"right": 2}))
    euler = two_mass(integrator=ForwardEuler())
    with pytest.raises(ConfigurationError, match=r"unit 'one' cannot follow .* connect more inputs"):
        compensate(euler, multirate(euler, {"one": 2}))
    half = Fraction(1, 2)
    operations = (
        Couple("one"), Couple("two"), Step("one", half), Step("one", half), Step("two"), Read("one"), Read("two"),
    )  # fmt: skip
    odd = Master("odd", Schedule(("one", "two"), operations), BASE, Hold(0))
    with pytest.raises(ConfigurationError, match="unit 'one' is not coupled exactly once before each of its steps"):
        compensate(two_mass(), odd)
