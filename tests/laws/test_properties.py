"""What must not matter, and what must come out the same: laws of Φ and of time over random systems."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from thinning import examples

sys.path.insert(0, str(Path(__file__).parent))
from random_systems import MATRIX_SEEDS, cases, couplings, units

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.schedule import Operation, Repeat, Schedule
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.units import Mechanical, StateSpace

some = settings(max_examples=examples(80), suppress_health_check=list(HealthCheck))


# ---- comparing spectra ---------------------------------------------------------------------------------------------


def assert_same_spectrum(one: Array, other: Array) -> None:
    """The non-zero eigenvalues of two matrices agree: traces of powers, which are well conditioned, and the radius."""
    scale = max(1.0, float(np.linalg.norm(one)), float(np.linalg.norm(other)))
    for power in (1, 2, 3, 4):
        traces = [np.trace(np.linalg.matrix_power(matrix, power)) for matrix in (one, other)]
        assert abs(traces[0] - traces[1]) <= 1e-11 * scale**power
    (rho, slack), (other_rho, other_slack) = radius(one), radius(other)
    assert abs(rho - other_rho) <= 1e-10 * max(1.0, rho) + slack + other_slack


def radius(matrix: Array) -> tuple[float, float]:
    """ρ, and how far rounding may move it: ε ‖M‖ times the condition of the eigenvalues near the circle."""
    values, left, right = scipy.linalg.eig(matrix, left=True)
    rho = float(np.abs(values).max())
    angles = np.abs((left.conj() * right).sum(axis=0))[np.abs(values) >= 0.99 * rho]
    return rho, 1e-14 * float(np.linalg.norm(matrix)) / max(float(angles.min()), 1e-12)


def spectrum_of(system: System, master: Master) -> Array:
    matrix: Array = LinearSystem(system, master).cycle.matrix
    return matrix


# ---- building the same system otherwise ------------------------------------------------------------------------------


def state_space(unit: Any, A: Array, B: Array, C: Array, D: Array, initial: Array, start: Any) -> StateSpace:
    """A unit like `unit` with other matrices."""
    made = StateSpace(
        A, B, C, D, initial=initial, integrator=unit.integrator, micro_steps=unit.micro_steps,
        inputs=unit.inputs, outputs=unit.outputs, start=start,
    )  # fmt: skip
    made.input_degree = unit.input_degree
    return made


def random_coordinates(rng: np.random.Generator, n: int) -> Array:
    rotation = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return np.asarray(rotation * rng.uniform(0.5, 2.0, size=n))


def in_other_coordinates(unit: StateSpace | Mechanical, rng: np.random.Generator) -> StateSpace | Mechanical:
    if isinstance(unit, Mechanical):
        n = len(unit.M)
        T = random_coordinates(rng, n)
        initial = np.linalg.solve(T, unit.initial_state.reshape(2, n).T).T.ravel()
        made = Mechanical(
            T.T @ unit.M @ T, T.T @ unit.C @ T, T.T @ unit.K @ T, B=T.T @ unit.B,
            displacement=unit.displacement @ T, velocity=unit.velocity @ T, acceleration=unit.acceleration @ T,
            feedthrough=unit.direct, initial=initial, integrator=unit.integrator, micro_steps=unit.micro_steps,
            inputs=unit.inputs, outputs=unit.outputs, start=unit.start,
        )  # fmt: skip
        made.input_degree = unit.input_degree
        return made
    T = random_coordinates(rng, len(unit.model.A))
    inverse = np.linalg.inv(T)
    A, B, C = inverse @ unit.model.A @ T, inverse @ unit.model.B, unit.model.C @ T
    return state_space(unit, A, B, C, unit.model.D, inverse @ unit.initial_state, unit.start)


def scaled(unit: StateSpace, inputs: Array, outputs: Array) -> StateSpace:
    """The same unit with its inputs and outputs measured in other units of measure."""
    m = unit.model
    start = {name: value * inputs[unit.inputs.index(name)] for name, value in unit.start.items()}
    D = outputs[:, None] * m.D / inputs
    return state_space(unit, m.A, m.B / inputs, outputs[:, None] * m.C, D, unit.initial_state, start)


def times(factor: float, source: Callable[[float], float]) -> Callable[[float], float]:
    return lambda t: factor * source(t)


# ---- invariance ------------------------------------------------------------------------------------------------------


@some
@given(cases(), MATRIX_SEEDS)
def test_coordinates_of_the_states_do_not_matter(case: tuple[System, Master], seed: int) -> None:
    system, master = case
    rng = np.random.default_rng(seed)
    turned = {name: in_other_coordinates(unit, rng) for name, unit in system.units.items()}  # type: ignore[arg-type]
    other = System(turned, system.connections, inputs=system.inputs)
    assert_same_spectrum(spectrum_of(system, master), spectrum_of(other, master))
    assert_same_rows(run(system, master, stop=4 * master.step).values, run(other, master, stop=4 * master.step).values)


def assert_same_rows(one: Array, other: Array) -> None:
    assert np.abs(one - other).max() <= 1e-10 * max(1.0, float(np.abs(one).max()))


@st.composite
def state_space_systems(draw: st.DrawFn, *, least: int = 2, most: int = 4) -> System:
    """Random systems of state-space units only, every input connected or external."""
    members = {
        f"unit{i}": draw(units().filter(lambda u: isinstance(u, StateSpace)))
        for i in range(draw(st.integers(least, most)))
    }
    rng = np.random.default_rng(draw(MATRIX_SEEDS))
    outputs = [f"{name}.{y}" for name, unit in members.items() for y in unit.outputs]
    targets = [f"{name}.{u}" for name, unit in members.items() for u in unit.inputs]
    external = {target: times(float(rng.normal()), np.cos) for target in targets if rng.random() < 0.2}
    connections = [
        Connection(str(rng.choice(outputs)), target, float(rng.normal()), float(rng.normal()))
        for target in targets
        if target not in external
    ]
    return System(members, connections, inputs=external)


@some
@given(state_space_systems(), couplings(), MATRIX_SEEDS, st.sampled_from(["jacobi", "seidel", "iterative"]))
def test_units_of_measure_do_not_matter(system: System, coupling: Any, seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    into = {n: 2.0 ** rng.integers(-6, 7, size=len(u.inputs)) for n, u in system.units.items()}
    out = {n: 2.0 ** rng.integers(-6, 7, size=len(u.outputs)) for n, u in system.units.items()}
    measured = {name: scaled(unit, into[name], out[name]) for name, unit in system.units.items()}  # type: ignore[arg-type]
    connections = []
    for link in system.links:
        g, f = into[link.target.unit][link.target.index], out[link.source.unit][link.source.index]
        old = link.connection
        connections.append(replace(old, gain=float(g * old.gain / f), offset=float(g * old.offset)))
    external = {
        target: times(float(into[system.input(target).unit][system.input(target).index]), source)
        for target, source in system.inputs.items()
    }
    other = System(measured, connections, inputs=external)
    build = {"jacobi": masters.jacobi, "seidel": masters.gauss_seidel, "iterative": two_sweeps}[kind]
    first, second = build(system, 0.1, coupling=coupling), build(other, 0.1, coupling=coupling)
    one, two = LinearSystem(system, first), LinearSystem(other, second)
    factor = measure(one, into, out)
    back = two.one_step.Phi / factor[:, None] * factor
    assert np.abs(back - one.one_step.Phi).max() <= 1e-12 * max(1.0, float(np.abs(back).max()))
    assert_same_spectrum(one.one_step.Phi, back)
    factors = np.concatenate([out[name] for name in other.names])
    rows = run(other, second, stop=0.5).values / factors
    assert_same_rows(run(system, first, stop=0.5).values, rows)


def two_sweeps(system: System, step: float, **options: Any) -> Master:
    return masters.iterative(system, step, sweeps=2, **options)


def measure(linear: LinearSystem, into: dict[str, Array], out: dict[str, Array]) -> Array:
    """By which factor every number of z is larger in the new units of measure."""
    factor = np.ones(linear.layout.size)
    for block in linear.layout.blocks:
        name, place = str(block.owner), linear.layout[block]
        if block.kind == "y":
            factor[place] = out[name]
        elif block.kind in "uU":
            factor[place] = np.tile(into[name], linear.layout.width(block) // len(into[name]))
        elif block.kind == "w":
            target = linear.system.links[int(block.owner)].target
            factor[place] = into[target.unit][target.index]
    return factor[: linear.size]


def renamed(operations: tuple[Operation, ...], name: dict[str, str]) -> tuple[Operation, ...]:
    return tuple(
        replace(op, body=renamed(op.body, name)) if isinstance(op, Repeat) else replace(op, unit=name[op.unit])
        for op in operations
    )


@some
@given(cases(), st.randoms(use_true_random=False))
def test_names_and_places_of_units_do_not_matter(case: tuple[System, Master], random: Any) -> None:
    system, master = case
    places = list(system.names)
    random.shuffle(places)
    name = {old: f"{'xyzuvw'[i]}.{i}" for i, old in enumerate(places)}

    def variable(text: str) -> str:
        unit, rest = text.split(".")
        return f"{name[unit]}.{rest}"

    links = [replace(c, source=variable(c.source), target=variable(c.target)) for c in system.connections]
    random.shuffle(links)
    other = System(
        {name[old]: system.units[old] for old in places},
        links,
        inputs={variable(target): source for target, source in system.inputs.items()},
    )
    schedule = Schedule(other.names, renamed(master.schedule.operations, name))
    chosen = {variable(target): coupling for target, coupling in master.couplings.items()}
    same = replace(master, schedule=schedule, couplings=chosen)
    assert_same_spectrum(spectrum_of(system, master), spectrum_of(other, same))
    one, two = (run(s, m, stop=4 * m.step, record="all") for s, m in ((system, master), (other, same)))
    for signal in one.names:
        assert_same_rows(one[signal], two[variable(signal)])


# ---- calling orders ----------------------------------------------------------------------------------------------


@settings(some, max_examples=examples(60))
@given(state_space_systems(most=2), st.sampled_from([0.01, 0.1, 1.0, 3.0]))
def test_two_units_have_one_gauss_seidel_radius(system: System, step: float) -> None:
    """F1 G1 H1 F2 G2 H2 and F2 G2 H2 F1 G1 H1 are AB and BA (glumac2018: ρ(Seidel12) = ρ(Seidel21))."""
    first, second = system.names
    there = spectrum_of(system, masters.gauss_seidel(system, step, order=[first, second], coupling=Hold(0)))
    back = spectrum_of(system, masters.gauss_seidel(system, step, order=[second, first], coupling=Hold(0)))
    assert_same_spectrum(there, back)


@st.composite
def trees(draw: st.DrawFn) -> System:
    """Units on a random tree, neighbours feeding each other: few edges, so that many orders are alike."""
    rng = np.random.default_rng(draw(MATRIX_SEEDS))
    n = draw(st.integers(3, 7))
    edges = [(int(rng.integers(i)), i) for i in range(1, n)]
    ends = {i: [e for e in edges if i in e] for i in range(n)}
    members, links = {}, []
    for i, own in ends.items():
        d = len(own)
        members[f"u{i}"] = StateSpace(
            rng.normal(size=(2, 2)) - 2 * np.eye(2),
            rng.normal(size=(2, d)),
            rng.normal(size=(d, 2)),
            0.2 * rng.normal(size=(d, d)) * (rng.random() < 0.5),
            initial=rng.normal(size=2),
        )
    for a, b in edges:
        ya, yb = ends[a].index((a, b)) + 1, ends[b].index((a, b)) + 1
        links += [(f"u{a}.y{ya}", f"u{b}.u{yb}"), (f"u{b}.y{yb}", f"u{a}.u{ya}")]
    return System(members, links)


@some
@given(trees(), couplings(), st.data())
def test_orders_with_the_same_orientation_have_the_same_map(system: System, coupling: Any, data: st.DataObject) -> None:
    """Swapping neighbours in the order that are none in the coupling graph changes no edge's direction."""
    joined = {frozenset((link.source.unit, link.target.unit)) for link in system.links}
    order = list(data.draw(st.permutations(system.names)))
    other = list(order)
    for place in data.draw(st.lists(st.integers(0, len(order) - 2), min_size=5, max_size=30)):
        if frozenset(other[place : place + 2]) not in joined:
            other[place], other[place + 1] = other[place + 1], other[place]
    assume(other != order)
    first, second = (
        LinearSystem(system, masters.gauss_seidel(system, 0.1, order=o, coupling=coupling)) for o in (order, other)
    )
    assert np.abs(first.one_step.Phi - second.one_step.Phi).max() <= 1e-12
    assert_same_spectrum(first.cycle.matrix, second.cycle.matrix)


# ---- schedules and time ----------------------------------------------------------------------------------------------


@settings(some, max_examples=examples(100))
@given(cases())
def test_schedules_survive_a_file(case: tuple[System, Master]) -> None:
    schedule = case[1].schedule
    again = Schedule.from_dict(json.loads(json.dumps(schedule.to_dict())))
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert str(again) == str(schedule)


@settings(some, max_examples=examples(300))
@given(st.floats(1e-6, 1e3), st.integers(1, 60), st.floats(0.0, 1e3))
def test_rows_and_stamps_are_exact(step: float, count: int, start: float) -> None:
    system = System({"clock": StateSpace([], np.zeros((0, 0)), np.zeros((0, 0)))})
    result = run(system, masters.jacobi(system, step), start=start, stop=start + count * step)
    assert len(result) == count + 1
    assert [warning.message for warning in result.warnings] == ["only the time is recorded: no unit has outputs"]
    for k, stamp in enumerate(result.time.tolist()):
        true = Fraction(start) + k * Fraction(step)
        assert abs(Fraction(stamp) - true) <= Fraction(math.ulp(stamp))
