"""Hypothesis strategies: random linear systems, and random schedules over all operations and couplings."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from cosimo import masters
from cosimo.core.coupling import Coupling
from cosimo.core.master import Master
from cosimo.core.schedule import Couple, Operation, Read, Repeat, Restore, SampleOutputs, Save, Schedule, Step
from cosimo.core.system import Connection, System, Table
from cosimo.couplings import COUPLINGS, Hold, Nepce, parse_coupling
from cosimo.masters import MASTERS
from cosimo.units import Exact, ForwardEuler, Mechanical, RungeKutta4, StateSpace, SymplecticEuler

MATRIX_SEEDS = st.integers(0, 2**32 - 1)


class Coarse(StateSpace):
    """A linear unit that takes only constant (or linear) inputs, as many real units do."""

    def __init__(self, degree: int, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.input_degree = degree


@st.composite
def units(draw: st.DrawFn) -> StateSpace | Mechanical:
    rng = np.random.default_rng(draw(MATRIX_SEEDS))
    n, m, p = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    micro = draw(st.integers(1, 3))
    if draw(st.booleans()):
        root = rng.normal(size=(n, n))
        return Mechanical(
            np.eye(n) + 0.3 * root @ root.T,
            0.2 * np.eye(n),
            root.T @ root,
            B=rng.normal(size=(n, m)),
            displacement=rng.normal(size=(p, n)),
            velocity=rng.normal(size=(p, n)),
            acceleration=0.05 * rng.normal(size=(p, n)) * draw(st.sampled_from([0, 1])),
            feedthrough=0.1 * rng.normal(size=(p, m)) * draw(st.sampled_from([0, 1])),
            initial=rng.normal(size=2 * n),
            integrator=draw(st.sampled_from([SymplecticEuler(), Exact(), RungeKutta4(), ForwardEuler()])),
            micro_steps=micro,
        )
    return Coarse(
        draw(st.integers(0, 2)),
        rng.normal(size=(n, n)) - 1.5 * np.eye(n),
        rng.normal(size=(n, m)),
        rng.normal(size=(p, n)),
        # Small feedthrough keeps every loop of it a contraction, hence solvable.
        0.1 * rng.normal(size=(p, m)) * draw(st.sampled_from([0, 1])),
        initial=rng.normal(size=n),
        integrator=draw(st.sampled_from([Exact(), RungeKutta4(), ForwardEuler()])),
        micro_steps=micro,
    )


@st.composite
def systems(draw: st.DrawFn) -> System:
    members = {f"unit{i}": draw(units()) for i in range(1, draw(st.integers(2, 6)) + 1)}
    rng = np.random.default_rng(draw(MATRIX_SEEDS))
    outputs = [f"{name}.{y}" for name, unit in members.items() for y in unit.outputs]
    connections, external = [], {}
    for name, unit in members.items():
        for u in unit.inputs:
            target = f"{name}.{u}"
            if rng.random() < 0.15:
                a, b = rng.normal(size=2)
                external[target] = (
                    Table(np.linspace(0, 2, 9), rng.normal(size=9)) if a > 0 else (lambda t, b=b: np.sin(b * t))
                )
            elif rng.random() < 0.1:
                unit.start = {**unit.start, u: float(rng.normal())}
            else:
                offset = float(rng.normal()) if rng.random() < 0.3 else 0.0
                connections.append(Connection(str(rng.choice(outputs)), target, float(rng.normal(scale=0.7)), offset))
    return System(members, connections, inputs=external)


@st.composite
def couplings(draw: st.DrawFn) -> Coupling:
    """Of every kind that has matrices: those of the registry, and NEPCE with any gain."""
    known = [parse_coupling(word.example) for word in COUPLINGS.values() if word.tuned]
    known += [Hold(3), Hold(1, substeps=3), Hold(2, substeps=2)]
    return draw(st.one_of(st.sampled_from(known), st.builds(Nepce, st.floats(0, 0.9))))


@st.composite
def words(draw: st.DrawFn, system: System) -> tuple[Operation, ...]:
    """A random schedule: every unit's own sequence of operations, with repeats and rollbacks, shuffled together."""
    sequences: list[list[Operation]] = []
    for name in system.names:
        parts = draw(st.sampled_from([[1], [2], [1, 1], [1, 2], [1, 1, 1]]))
        own: list[Operation] = [Couple(name)]
        for part in parts:
            fraction = Fraction(part, sum(parts))
            choice = draw(st.integers(0, 5))
            if choice == 0:
                own += [Read(name)]
            elif choice == 1:
                own += [Couple(name)]
            elif choice == 4:
                own += [SampleOutputs(name)]
            elif choice == 2:
                own += [Save(name), Step(name, fraction), Read(name), Restore(name), Couple(name)]
            elif choice == 3:
                body = (Restore(name), Couple(name), Step(name, fraction), Read(name))
                own += [Save(name), Repeat(body, draw(st.integers(1, 3))), Restore(name)]
            own += [Step(name, fraction)]
        own += [Read(name)]
        if draw(st.booleans()):
            own = own[1:2] + own[:1] + own[2:] if isinstance(own[1], Read) else own
        sequences.append(own)
    order = draw(st.permutations([i for i, own in enumerate(sequences) for _ in own]))
    operations = tuple(sequences[i].pop(0) for i in order)
    if draw(st.integers(0, 3)) == 0:
        saves, restores = tuple(map(Save, system.names)), tuple(map(Restore, system.names))
        # Inner saves would overwrite the outer ones: keep the outer iteration to schedules without them.
        if not any(isinstance(op, (Save, Repeat)) for op in operations):
            return (*saves, Repeat((*restores, *operations), draw(st.integers(1, 3))))
    return operations


@st.composite
def grants(draw: st.DrawFn, unit: str, waits: bool) -> masters.Grants:
    """When a federate is granted times; who publishes before it takes inputs may be refused, and is left out."""
    period = Fraction(1, draw(st.integers(1, 3)))
    if draw(st.booleans()):
        return masters.Grants(unit, period, program="FGH", waits=waits)
    offset = period * draw(st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(1, 3)]))
    return masters.Grants(unit, period, offset=offset, program="FHG", waits=waits)


@st.composite
def cases(draw: st.DrawFn) -> tuple[System, Master]:
    system = draw(systems())
    step = draw(st.sampled_from([0.01, 0.05, 0.1, 0.3]))
    chosen = {inlet.target: draw(couplings()) for name in system.names for inlet in system.inlets[name]}
    kind = draw(st.integers(0, 8))
    if kind == 6:
        order = draw(st.permutations(system.names))
        cut = draw(st.integers(1, len(order) - 1))
        build = draw(st.sampled_from([masters.groups, masters.strang]))
        return system, build(system, step, order=[order[:cut], order[cut:]], couplings=chosen)
    if kind == 8:
        waiting = draw(st.sampled_from([None, *system.names]))
        members = [draw(grants(name, name == waiting)) for name in system.names]
        return system, masters.federation(system, step, members=members, couplings=chosen)
    if kind == 7:
        sweeps, samples = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        return system, masters.iterative(system, step, sweeps=sweeps, samples=samples, couplings=chosen)
    if kind == 0:
        multiples = {name: draw(st.integers(1, 3)) for name in system.names}
        inputs = draw(st.sampled_from(["held", "interpolated"]))
        return system, masters.multirate(system, step, multiples=multiples, inputs=inputs, couplings=chosen)
    if kind == 1:  # every master that needs no options, beyond the most usual one
        word = draw(st.sampled_from([name for name, word in MASTERS.items() if not word.options and name != "jacobi"]))
        return system, MASTERS[word].build(system, step, couplings=chosen)
    if kind == 2:
        order = draw(st.permutations(system.names))
        return system, masters.iterative(system, step, sweeps=draw(st.integers(1, 4)), order=order, couplings=chosen)
    operations = draw(words(system))
    return system, Master("random", Schedule(system.names, operations), step, Hold(0), chosen)
