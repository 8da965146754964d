"""The discrete design: a compensated co-simulation is its target, to rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import analyse
from cosimo.compensation import compensate
from cosimo.compensation.target import TargetMotion
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import Connection, System
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.formats.export import export_system
from cosimo.problems import four_mass, motor_gearbox, two_mass, two_mass_damped, two_mass_undamped
from cosimo.units import Fmu, Mechanical, PythonUnit, StateSpace

CASES = {
    "two-mass undamped, 1 ms": (two_mass_undamped, 1e-3, ("two.x", "two.v")),
    "two-mass damped, 1 ms": (two_mass_damped, 1e-3, ("two.x", "two.v")),
    "two-mass damped, 4 ms": (two_mass_damped, 4e-3, ("two.x", "two.v")),
    "four-mass, 3 ms": (four_mass, 3e-3, ("right.x3", "right.v3", "right.x4")),
    "motor-gearbox, 0.1 ms": (motor_gearbox, 1e-4, ("load.angle", "load.speed")),
}
Build = Callable[[System, float], Master]
MASTERS: tuple[Build, ...] = (masters.jacobi, masters.jacobi_early_read, masters.gauss_seidel)


def trajectory(system: System, master: Master, steps: int, target: str) -> Array:
    """All outputs of the coupled system on the target, computed without any co-simulation."""
    path = TargetMotion(system, master, target)
    x = np.concatenate([unit.initial_state for unit in system.units.values()])
    rows = []
    for _ in range(steps + 1):
        rows.append(path.coupled.C @ x)
        x = path.F @ x
    return np.array(rows)


def columns(system: System, names: tuple[str, ...]) -> list[int]:
    return [system.outputs.index(name) for name in names]


def ring() -> System:
    """Three units of two masses each in a ring; force one way, motion the other, at each of three cuts."""
    rng = np.random.default_rng(4)
    units, connections = {}, []
    for i in range(3):
        k, c = 40.0 + 10 * i, 0.2
        own = np.array([[150.0, -60.0], [-60.0, 180.0]]) + np.diag([0.0, k])
        units[f"u{i}"] = Mechanical(
            np.diag([1.0 + 0.2 * i, 1.5]),
            np.array([[0.5, -0.2], [-0.2, 0.6]]) + np.diag([0.0, c]),
            own,
            # First mass pushed by the force of the unit before, second mass held to the first mass of the next one.
            B=[[1.0, 0.0, 0.0], [0.0, k, c]],
            displacement=[[0.0, k], [1.0, 0.0], [0.0, 0.0]],
            velocity=[[0.0, c], [0.0, 0.0], [1.0, 0.0]],
            feedthrough=[[0.0, -k, -c], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
            initial=rng.normal(size=4),
            inputs=["force", "x", "v"],
            outputs=["force", "x", "v"],
        )
        after = f"u{(i + 1) % 3}"
        connections += [
            Connection(f"u{i}.force", f"{after}.force"),
            Connection(f"{after}.x", f"u{i}.x"),
            Connection(f"{after}.v", f"u{i}.v"),
        ]
    return System(units, connections, name="ring")


@pytest.mark.parametrize("build", MASTERS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_in(4)
def test_compensated_equals_monolithic_over_10000_steps(case: str, build: Build) -> None:
    make, h, names = CASES[case]
    system = make()
    found = compensate(system, build(system, h))
    assert found.stable
    result = run(system, found.master, stop=10_000 * h)
    expected = trajectory(system, build(system, h), 10_000, "monolithic")[:, columns(system, names)]
    ours = np.column_stack([result[name] for name in names])
    assert (np.abs(ours - expected).max(axis=0) <= 1e-10 * np.abs(expected).max(axis=0)).all()


@pytest.mark.parametrize("build", [masters.jacobi, masters.jacobi_early_read])
@pytest.mark.parametrize("case", list(CASES)[:3])
def test_exact_target_beats_the_monolithic_run(case: str, build: Build) -> None:
    make, h, _ = CASES[case]
    system = make()
    found = compensate(system, build(system, h), target="exact")
    result = run(system, found.master, stop=20.0)
    exact = trajectory(system, build(system, h), len(result) - 1, "exact")[:, columns(system, ("two.x",))][:, 0]
    nrms = np.sqrt(np.mean((result["two.x"] - exact) ** 2)) / np.ptp(exact)
    assert nrms < 1e-9


@pytest.mark.parametrize("build", MASTERS)
def test_a_ring_of_three_units_with_two_degrees_of_freedom(build: Build) -> None:
    system = ring()
    master = build(system, 5e-3)
    found = compensate(system, master)
    assert found.stable
    names = tuple(f"u{i}.{v}" for i in range(3) for v in ("x", "v"))
    result = run(system, found.master, stop=2000 * 5e-3)
    expected = trajectory(system, master, 2000, "monolithic")
    lag = 1 if build is masters.jacobi_early_read else 0
    for name in names:
        column = expected[:, system.outputs.index(name)]
        ours = result[name]
        # Under early read all three units, having feedthrough, are read at the start of the step.
        assert np.abs(ours[lag:] - column[: len(column) - lag]).max() <= 1e-9 * np.abs(column).max()


@pytest.mark.parametrize("build", MASTERS)
def test_executed_equals_multiplied_and_the_kernel_the_interpreter(build: Build) -> None:
    system = two_mass()
    found = compensate(system, build(system, 4e-3))
    compiled = run(system, found.master, stop=0.4, record="all")
    plain = run(system, found.master, stop=0.4, record="all", engine=EngineOptions("reference"))
    np.testing.assert_array_equal(compiled.to_numpy(), plain.to_numpy())
    linear = LinearSystem(system, found.master)
    z = linear.start()
    for k, row in enumerate(compiled.values[:, :3]):
        np.testing.assert_allclose(linear.outputs(z[:, None])[:, 0], row, atol=1e-12 * np.abs(compiled.values).max())
        z = linear.one_step.Phi @ z + linear.one_step.Gamma @ linear.given_values(k)


def test_the_verdict_knows_the_compensated_master() -> None:
    system = two_mass()
    plain, repaired = masters.jacobi(system, 4e-3), compensate(system, masters.jacobi(system, 4e-3))
    before = analyse(system, plain, horizon=4.0, details=False)
    verdict = analyse(system, repaired.master, horizon=4.0, details=False)
    assert (before.stable, verdict.stable) == (False, True)
    assert verdict.error.worst < before.error.worst
    assert "stable" in str(repaired)
    assert repaired.radius_before > 1 > repaired.radius_after


def test_external_forces_on_a_mass() -> None:
    """A chirp on mass 2: against the same force on the monolithic integration."""

    def chirp(t: float) -> float:
        return 50.0 * np.sin(2 * np.pi * (0.5 + 0.2 * t) * t)

    base = two_mass()
    one, two = base.units.values()
    assert isinstance(two, Mechanical)
    forced = Mechanical(
        two.M, two.C, two.K, B=[[1.0, 1.0]], displacement=two.displacement, velocity=two.velocity,
        inputs=["f", "force"], outputs=two.outputs,
    )  # fmt: skip
    at_rest = Mechanical(
        one.M, one.C, one.K, B=one.B, displacement=one.displacement, velocity=one.velocity,  # type: ignore[attr-defined]
        feedthrough=one.direct, inputs=one.inputs, outputs=one.outputs,  # type: ignore[attr-defined]
    )  # fmt: skip
    system = System({"one": at_rest, "two": forced}, base.connections, inputs={"two.force": chirp})
    h, steps = 4e-3, 2500
    found = compensate(system, masters.jacobi(system, h))
    ours = run(system, found.master, stop=steps * h)["two.x"]
    plain = run(system, masters.jacobi(system, h), stop=steps * h)["two.x"]
    path = TargetMotion(system, masters.jacobi(system, h), "monolithic")
    x, reference = np.zeros(4), []
    push = np.array([0.0, 0.0, h * h, h])
    for k in range(steps + 1):
        reference.append(x[2])
        x = path.F @ x + push * chirp(k * h)
    exact = np.array(reference)
    assert np.abs(ours - exact).max() <= 1e-9 * np.abs(exact).max()
    assert np.abs(plain - exact).max() > 1e-2 * np.abs(exact).max()


def test_fmus_take_the_correction_designed_on_their_linear_units(tmp_path: object) -> None:
    system = two_mass()
    found = compensate(system, masters.jacobi(system, 4e-3))
    fmus = {name: Fmu(path) for name, path in export_system(system, str(tmp_path), fmi=2).items()}
    coupled = System(fmus, system.connections, name="fmus")
    ours = run(coupled, found.master, stop=8.0)
    theirs = run(system, found.master, stop=8.0)
    assert np.abs(ours.values - theirs.values).max() <= 1e-11 * np.abs(theirs.values).max()


def test_monolithic_flow_is_the_integrator_of_the_whole() -> None:
    """Symplectic Euler of the assembled system, written out by hand."""
    h, k, d = 1e-3, np.array([[110.0, -100.0], [-100.0, 1100.0]]), np.array([[0.2, -0.1], [-0.1, 0.2]])
    path = TargetMotion(two_mass(), masters.jacobi(two_mass(), h), "monolithic")
    rng = np.random.default_rng(0)
    q, v = rng.normal(size=2), rng.normal(size=2)
    after_v = v - h * (k @ q + d @ v)
    after_q = q + h * after_v
    moved = path.F @ np.array([q[0], v[0], q[1], v[1]])
    np.testing.assert_allclose(moved, [after_q[0], after_v[0], after_q[1], after_v[1]], rtol=1e-12)
    np.testing.assert_allclose(
        TargetMotion(two_mass(), masters.jacobi(two_mass(), h), "exact").F,
        scipy.linalg.expm(path.coupled.A * h),
        atol=1e-12,
    )


def test_what_cannot_be_compensated_says_why() -> None:
    system = four_mass()
    with pytest.raises(ConfigurationError, match="unit 'left' cannot follow the target"):
        compensate(system, masters.jacobi(system, 3e-3), target="exact")
    with pytest.raises(ConfigurationError, match="masters that do not iterate"):
        compensate(system, masters.iterative(system, 3e-3))
    with pytest.raises(ConfigurationError, match="'target' must be 'monolithic' or 'exact' or 'converged', not 'best'"):
        compensate(system, masters.jacobi(system, 3e-3), target="best")  # type: ignore[arg-type]
    mixed = System(
        {"a": StateSpace(-1.0, 1.0, 1.0), "b": Mechanical(1.0, 0.1, 1.0, B=1.0, displacement=1.0)},
        [("a.y1", "b.u1"), ("b.y1", "a.u1")],
    )
    with pytest.raises(ConfigurationError, match="different integrators"):
        compensate(mixed, masters.jacobi(mixed, 0.01))

    class Box:
        inputs, outputs = {"u": 0.0}, ("y",)

        def step(self, time: float, duration: float) -> None: ...

    black = System({"a": PythonUnit(Box), "b": StateSpace(-1.0, 1.0, 1.0)}, [("a.y", "b.u1"), ("b.y1", "a.u")])
    with pytest.raises(ConfigurationError, match="PythonUnit"):
        compensate(black, masters.jacobi(black, 0.01))


def test_signals_that_do_not_suffice_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under early read one sample of the force cannot tell both position and velocity of mass 1."""
    monkeypatch.setattr("cosimo.compensation.design.LEVELS", 1)
    system = two_mass()
    with pytest.raises(
        ConfigurationError, match=r"unit 'two' cannot be compensated: 1 samples .* one\.f, two\.x, two\.v"
    ):
        compensate(system, masters.jacobi_early_read(system, 4e-3))
