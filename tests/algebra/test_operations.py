"""The matrix of every operation equals what executing the operation does, difference by difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import LinearSystem, Operations, Update
from cosimo.algebra.operations import flattened
from cosimo.core.arrays import Array, shift_matrix
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import ONE, Block, Kind, Master
from cosimo.core.schedule import Restore, Save
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, TimedOperation, TimedRead, TimedRepeat, TimedStep
from cosimo.couplings import Hold
from cosimo.execution.interpreter import Interpreter
from cosimo.execution.live import Live
from cosimo.problems import chain
from cosimo.units import StateSpace


def walk(operations: tuple[TimedOperation, ...]) -> Iterator[TimedOperation]:
    for operation in operations:
        if isinstance(operation, TimedRepeat):
            for number in range(operation.times if isinstance(operation.times, int) else len(operation.sweeps)):
                yield from walk(operation.sweep(number))
        else:
            yield operation


def seen(c: Array, now: Fraction) -> Any:
    """The input polynomial from `now` on."""
    return shift_matrix(len(c) - 1, now) @ c


class Bench:
    """An interpreter whose signals can be set to any z before one operation and collected after it.

    A live linear unit holds its input as seen from its present time: `now` says how far that is after the coupling.
    """

    def __init__(self, make_system: Any, make_master: Callable[[System], Master]) -> None:
        self.samples: dict[float, float] = {}
        self.system: System = make_system(lambda t: self.samples.get(round(t, 12), 0.0))
        self.master = make_master(self.system)
        self.operations = Operations(self.system, self.master)
        self.layout = self.operations.layout
        live = Live(self.system, self.master, 0.0)
        live.initialise()
        self.interpreter = Interpreter(live)
        # What a plain hold remembers is never read; the interpreter may leave it alone.
        self.idle = [
            self.layout[Block("w", link.number)].start
            for link in self.system.links
            if self.master.coupling_of(link.connection.target) == Hold(0)
        ]

    def polynomial(self, z: Array, kind: Kind, name: str) -> Array:
        """The coefficients of the unit's inputs, one row per power."""
        return z[self.layout[Block(kind, name)]].reshape(-1, len(self.system.units[name].inputs)).copy()

    def put(self, z: Array, now: dict[str, Fraction], saved: dict[str, Fraction]) -> None:
        live, h = self.interpreter, self.master.step
        self.samples = {
            round(float(block.time) * h, 12): z[self.layout[block]][0]
            for block in self.layout.blocks
            if block.kind == "e" and block != ONE
        }
        for block in self.layout.blocks:
            part, name = z[self.layout[block]].copy(), str(block.owner)
            if block.kind == "x":
                live.c[name] = self.polynomial(z, "u", name)
                live.instances[name].restore((part, seen(live.c[name], now[name]), h))
            elif block.kind == "y":
                live.y[name] = part
            elif block.kind == "w":
                live.w[int(block.owner)] = part
            elif block.kind == "X":
                c = self.polynomial(z, "U", name)
                live._saved[name] = ((part, seen(c, saved.get(name, Fraction(0))), h), c)

    def get(self) -> Array:
        live, z = self.interpreter, np.zeros(self.layout.size)
        for block in self.layout.blocks:
            name = str(block.owner)
            values: dict[str, Callable[[], Any]] = {
                "x": lambda name=name: live.instances[name].save()[0],
                "y": lambda name=name: live.y[name],
                "u": lambda name=name: live.c[name].ravel(),
                "w": lambda block=block: live.w[int(block.owner)],
                "X": lambda name=name: live._saved[name][0][0],
                "U": lambda name=name: live._saved[name][1].ravel(),
            }
            if block.kind in values:
                z[self.layout[block]] = values[block.kind]()
        return z

    def executed(self, operation: TimedOperation, now: dict[str, Fraction], saved: dict[str, Fraction]) -> Array:
        """The matrix of the operation by differences: exact, since it is affine in all but the number 1."""
        act = self.interpreter._action(operation)

        def f(z: Array) -> Array:
            self.put(z, now, saved)
            act(0)
            return self.get()

        constant = f(np.zeros(self.layout.size))
        columns = [f(unit) - constant for unit in np.eye(self.layout.size)]
        columns[self.layout[ONE].start] = constant
        given = self.layout.indices("e")
        matrix = np.column_stack(columns)
        matrix[given] = np.eye(self.layout.size)[given]
        return matrix

    def multiplied(self, update: Update) -> Array:
        matrix = np.eye(self.layout.size)
        rows = [i for block in update.targets for i in range(self.layout.size)[self.layout[block]]]
        columns = [i for block in update.sources for i in range(self.layout.size)[self.layout[block]]]
        matrix[rows] = 0.0
        matrix[np.ix_(rows, columns)] = update.matrix
        return matrix


@pytest.mark.one_in(3)
def test_every_operation_against_its_execution(make_system: Any, make_master: Callable[[System], Master]) -> None:
    bench = Bench(make_system, make_master)
    line = bench.operations.timeline
    now = {name: clock.now for name, clock in line.clocks.items()}
    saved: dict[str, Fraction] = {}
    kinds = set()
    for operation in walk(line.operations):
        executed = bench.executed(operation, now, saved)
        multiplied = bench.multiplied(bench.operations.update(operation))
        executed[bench.idle], multiplied[bench.idle] = 0.0, 0.0
        assert np.abs(executed - multiplied).max() <= 1e-13 * max(1.0, np.abs(executed).max()), operation
        kinds.add(type(operation))
        if isinstance(operation, TimedCouple):
            now[operation.unit] = Fraction(0)
        elif isinstance(operation, TimedStep):
            now[operation.unit] += operation.fraction
        elif isinstance(operation, Save):
            saved[operation.unit] = now[operation.unit]
        elif isinstance(operation, Restore):
            now[operation.unit] = saved[operation.unit]
    assert kinds >= {TimedCouple, TimedStep, TimedRead}


def test_each_operation_changes_only_its_unit(make_system: Any, make_master: Callable[[System], Master]) -> None:
    system = make_system()
    operations = Operations(system, make_master(system))
    for operation in walk(operations.timeline.operations):
        unit = operation.unit  # type: ignore[union-attr]
        for block in operations.update(operation).targets:
            owner = system.links[int(block.owner)].target.unit if block.kind == "w" else block.owner
            assert owner == unit


def test_z_holds_what_the_master_needs(make_system: Any) -> None:
    system = make_system()
    plain = Operations(system, masters.jacobi(system, 0.1)).layout
    swept = Operations(system, masters.iterative(system, 0.1)).layout
    assert len(plain.indices("x")) == 2 + 4 + 1
    assert len(plain.indices("y")) == 6
    assert len(plain.indices("u")) == 7
    assert len(plain.indices("w")) == 5
    assert plain.indices("X", "U") == []
    assert len(swept.indices("X", "U")) == 7 + 7


def test_only_linear_units_can_be_multiplied() -> None:
    class Unknown(StateSpace):
        def linear(self) -> Any:
            return None

    system = System({"black": Unknown(-1.0, np.zeros((1, 0)), 1.0)})
    with pytest.raises(ConfigurationError, match="unit 'black' is a Unknown, whose equations are not known"):
        Operations(system, masters.jacobi(system, 0.1))


@pytest.mark.parametrize("name", ["jacobi", "gauss_seidel", "iterative"])
def test_masters_that_differ_in_a_coupling_share_all_other_matrices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit what they are when computed anew; and units are not discretised again."""
    system = chain(n=4)
    master = getattr(masters, name)(system, 0.02, coupling=Hold(1))
    plain = Operations(system, master)
    for operation in flattened(plain.timeline.operations):
        plain.update(operation)
    for link in system.links:
        for other in (Hold(0), Hold(2)):
            changed = replace(master, couplings={link.connection.target: other})
            alone = LinearSystem(system, changed).one_step.Phi
            with monkeypatch.context() as patch:
                patch.setattr("cosimo.units.linear.discretise", None)
                shared = LinearSystem(system, changed, Operations(system, changed, plain)).one_step.Phi
            assert (alone == shared).all()
    slower = replace(master, step=0.01)
    assert (
        LinearSystem(system, slower, Operations(system, slower, plain)).one_step.Phi
        == LinearSystem(system, slower).one_step.Phi
    ).all()
