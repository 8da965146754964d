"""From a schedule to the kernel's instructions: which are chosen, how they are grouped, what they are given."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmu_builder import build
from native_units import exported, lag

import cosimo._kernel as kernel
from cosimo import masters
from cosimo.core.errors import RunError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Couple, Read, Schedule, Step
from cosimo.core.system import Connection, System, Table
from cosimo.couplings import Hold, Nepce
from cosimo.execution.live import Live
from cosimo.execution.lowering import Lowering
from cosimo.problems import two_mass
from cosimo.units import Fmu, PythonUnit, StateSpace


class Spy:
    """Takes all calls that build a program and notes them."""

    def __init__(self, *signals: Any) -> None:
        self.signals = signals
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def note(*arguments: Any) -> int:
            self.calls.append((name, *arguments))
            return 0

        return note

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] in names]

    @property
    def words(self) -> str:
        """The operations, with the numbers of their units."""
        letters = {"couple": "F", "step": "G", "read": "H", "barrier": "|", "shift": "C"}
        keep = {False: "S", True: "R"}
        words = []
        for name, *rest in self.calls:
            if name in letters:
                words.append(letters[name] + (str(rest[0] + 1) if rest else ""))
            elif name == "keep":
                words.append(f"{keep[rest[1]]}{rest[0] + 1}")
            elif name in ("begin_repeat", "end_repeat"):
                words.append("(" if name == "begin_repeat" else ")")
        return " ".join(words)


@pytest.fixture
def lower(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("cosimo._kernel.Program", Spy)

    def make(system: System, master: Master, *, record: bool = False) -> tuple[Spy, Lowering]:
        live = Live(system, master, 0.5)
        live.initialise()
        lowering = Lowering(live, system.outputs + (system.input_names if record else ()))
        live.close()
        return lowering.program, lowering

    return make


def pair(**options: Any) -> System:
    """Two tanks in a ring, one connection with a gain."""
    units = {name: StateSpace(-1.0, 1.0, 1.0, initial=1.0) for name in ("a", "b")}
    return System(units, [Connection("a.y1", "b.u1", gain=2.0, offset=-1.0), Connection("b.y1", "a.u1")], **options)


# ---- operations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build_master", "words"),
    [
        (masters.jacobi, "F1 F2 G1 G2 H1 H2"),
        (masters.gauss_seidel, "F1 G1 H1 F2 G2 H2"),
        (lambda s, h: masters.multirate(s, h, multiples={"a": 2}), "F1 F2 G1 G2 H2 F2 G2 H1 H2"),
        (lambda s, h: masters.iterative(s, h, sweeps=1), "S1 S2 ( R1 R2 F1 F2 G1 G2 H1 H2 )"),
    ],
)
def test_every_operation_becomes_an_instruction(build_master: Any, words: str, lower: Any) -> None:
    program, _ = lower(pair(), build_master(pair(), 0.1))
    assert program.words == words


def test_a_unit_that_comes_again_begins_a_new_stage(lower: Any) -> None:
    half = Fraction(1, 2)
    operations = (
        *(Couple("a"), Couple("b")),
        *(Step("a", half), Step("b", half), Step("a", half), Step("b", half)),
        *(Read("a"), Read("b")),
    )
    master = Master("halves", Schedule(("a", "b"), operations), 0.1, Hold(0), {})
    program, _ = lower(pair(), master)
    assert program.words == "F1 F2 G1 G2 | G1 G2 H1 H2"
    assert [call[3:] for call in program.of("step")] == [(0.0, 0.05), (0.0, 0.05), (0.5, 0.05), (0.5, 0.05)]


def test_iterations_carry_their_criterion(lower: Any) -> None:
    until = Convergence(1e-7, limit=9, anderson=3)
    program, _ = lower(pair(), masters.iterative(pair(), 0.1, sweeps=until))
    (begin,) = program.of("begin_repeat")
    assert begin[:4] == ("begin_repeat", 0, 1e-7, 9)
    assert program.of("accelerate") == [("accelerate", 3, False, 0, [])]
    program, _ = lower(pair(), masters.iterative(pair(), 0.1, sweeps=4))
    (begin,) = program.of("begin_repeat")
    assert begin[1] == 4
    assert len(program.of("begin_sweep")) == len(program.of("end_sweep")) == begin[4]


def test_units_that_take_fewer_powers_are_given_the_rest_at_each_step(lower: Any) -> None:
    system = System({"lag": lag()}, inputs={"lag.u": np.sin})
    half = Fraction(1, 2)
    operations = (Couple("lag"), Step("lag", half), Step("lag", half), Read("lag"))
    program, _ = lower(system, Master("halves", Schedule(("lag",), operations), 0.1, Hold(1), {}))
    # Only the second step begins where the polynomial has moved on: c_0 + c_1 / 2.
    (shift,) = program.of("shift")
    assert shift == ("shift", 0, 0, 1, 2, 0.5, [1.0, 0.5])
    assert program.words.replace("| ", "") == "F1 G1 C1 G1 H1"


# ---- couplings -------------------------------------------------------------------------------------------------------


def test_plain_connections_are_copied_or_scaled(lower: Any) -> None:
    program, _ = lower(pair(), masters.jacobi(pair(), 0.1))
    # c of b is place 1, y of a place 0, and the other way round.
    assert program.of("copy") == [("copy", 0, 1)]
    assert program.of("scale") == [("scale", 1, 0, 2.0, -1.0)]
    assert program.of("link", "external") == []


@pytest.mark.parametrize("coupling", [Hold(1), Hold(2), Nepce(0.5)])
def test_couplings_with_memory_are_links(coupling: Any, lower: Any) -> None:
    program, _ = lower(pair(), masters.jacobi(pair(), 0.1, coupling=coupling))
    first, second = program.of("link")
    assert program.of("copy", "scale") == []
    places = {(source, target): (gain, offset) for _, source, target, _, gain, offset, *_ in (first, second)}
    assert places == {(0, coupling.degree + 1): (2.0, -1.0), (1, 0): (1.0, 0.0)}
    history = coupling.history
    assert sorted(call[6] for call in (first, second)) == [0, history]
    for _, *_, ww, ws, uw in (first, second):
        assert (len(ww), len(ws), len(uw)) == (history**2, history, history * (coupling.degree + 1))


def test_signals_begin_as_initialised(lower: Any) -> None:
    program, _ = lower(pair(), masters.jacobi(pair(), 0.25, coupling=Hold(1)))
    start, step, y, c, w = program.signals
    assert (start, step) == (0.5, 0.25)
    assert y == [1.0, 1.0]
    assert c == [1.0, 0.0, 1.0, 0.0]
    assert w == [1.0] * 4


def test_samples_of_external_inputs(lower: Any) -> None:
    table = Table([0.0, 1.0], [0.0, 10.0])
    units = {name: StateSpace(-1.0, 1.0, 1.0) for name in ("a", "b")}
    system = System(units, inputs={"a.u1": table, "b.u1": lambda t: -t})
    program, lowering = lower(system, masters.jacobi(system, 0.1, coupling=Hold(1)))
    assert len(program.of("external")) == 2
    # t = 0.5 + (k + point) · 0.1; with Hold(1) each input has two samples per macro step.
    given = lowering.given(2, 3)
    assert given.shape == (3, 4)
    times = 0.5 + 0.1 * np.array([2, 3, 4])
    points = [t for _, _, t in lowering.samples]
    for column, (target, point) in enumerate(zip("aabb", points, strict=True)):
        wanted = 10 * (times + 0.1 * point) if target == "a" else -(times + 0.1 * point)
        assert given[:, column] == pytest.approx(wanted)


def test_samples_end_before_the_first_that_fails(lower: Any) -> None:
    def data(t: float) -> float:
        if t > 0.75:
            raise LookupError("no data")
        return t

    system = System({"a": StateSpace(-1.0, 1.0, 1.0)}, inputs={"a.u1": data})
    _, lowering = lower(system, masters.jacobi(system, 0.1))
    assert lowering.given(0, 100) == pytest.approx(np.array([[0.5], [0.6], [0.7]]))
    with pytest.raises(RunError, match=r"external input a\.u1 failed at t = 0\.8: LookupError: no data"):
        lowering.given(3, 100)


def test_without_external_inputs_there_are_no_samples(lower: Any) -> None:
    _, lowering = lower(pair(), masters.jacobi(pair(), 0.1))
    assert lowering.samples == []
    assert lowering.given(0, 4096).size == 0


# ---- units and columns -----------------------------------------------------------------------------------------------


class Idle:
    inputs, outputs, y = (), ("y",), 0.0

    def step(self, time: float, duration: float) -> None: ...


def test_every_kind_of_unit_finds_its_way(lower: Any, tmp_path: Path) -> None:
    second, third = (exported(two_mass(), tmp_path, fmi=fmi) for fmi in (2, 3))
    units = {
        "linear": StateSpace(-1.0, np.zeros((1, 0)), 1.0),
        "native": lag(),
        "python": PythonUnit(Idle),
        "two": second.units["two"],
        "three": third.units["two"],
        "events": Fmu(build(tmp_path, "events3")),
        "ticks": Fmu(build(tmp_path, "ticks3")),  # with clocks: stepped from Python
    }
    system = System(units)
    program, _ = lower(system, masters.jacobi(system, 0.1))
    kinds = [name for name, *_ in program.calls if name in KINDS]
    assert kinds == ["linear", "compiled", "python_object", "fmi2", "fmi3", "fmi3", "python_instance"]


KINDS = ("linear", "compiled", "python_object", "fmi2", "fmi3", "python_instance")


def test_input_derivatives_are_prepared_where_they_are_used(lower: Any, tmp_path: Path) -> None:
    system = exported(two_mass(), tmp_path, fmi=2)
    program, _ = lower(system, masters.jacobi(system, 0.1))
    assert program.of("input_derivatives") == []
    program, _ = lower(system, masters.jacobi(system, 0.1, coupling=Hold(2)))
    one, two = program.of("input_derivatives")
    references = [info.value_reference for info in system.units["one"].input_infos]
    assert one[3:5] == ([*references, *references], [1, 1, 2, 2])
    assert one[5] == pytest.approx([10.0, 10.0, 200.0, 200.0])
    assert two[4] == [1, 2]


def test_maps_are_made_once_per_duration(lower: Any) -> None:
    program, _ = lower(pair(), masters.multirate(pair(), 0.1, multiples={"a": 3}))
    assert [call[1] for call in program.of("linear_map")] == [0, 1]


def test_columns(lower: Any) -> None:
    program, _ = lower(pair(), masters.jacobi(pair(), 0.1, coupling=Hold(1)), record=True)
    # Outputs as they are; inputs at the end of the macro step: c_0 + c_1.
    assert program.of("column") == [
        ("column", 0, 0, []),
        ("column", 1, 0, []),
        ("column", 0, 1, [1.0, 1.0]),
        ("column", 2, 1, [1.0, 1.0]),
    ]


# ---- the program itself ----------------------------------------------------------------------------------------------


def _program() -> Any:
    """One lag by hand: x ← x / 2, recorded."""
    program = kernel.Program(0.0, 0.1, [1.0], [], [])
    program.linear([1.0], [], 0, [1.0], 1, False)
    program.step(0, program.linear_map(0, [0.5], [1.0]), 0.0, 0.1)
    program.read(0, 0, 0.0)
    program.column(0, 0, [])
    program.finish(1, 0, 60.0)
    return program


def test_rows_must_fit_the_program() -> None:
    program, given = _program(), np.empty((1, 0))
    for count, shape in ((2, (1, 2)), (1, (1, 3)), (1, (1, 1))):
        with pytest.raises(ValueError, match="rows do not fit"):
            program.run(0, count, given, np.empty(shape))
    with pytest.raises(TypeError):
        program.run(0, 1, given, np.empty((1, 2), dtype="f4"))
    rows = np.empty((3, 2))
    assert program.run(0, 3, given, rows) == 0
    assert rows.tolist() == [[0.1, 0.5], [0.2, 0.25], [pytest.approx(0.3), 0.125]]
    assert program.made == 3
    program.release()


def test_units_that_are_not_there_are_refused() -> None:
    program = kernel.Program(0.0, 0.1, [1.0], [], [])
    with pytest.raises(IndexError):
        program.read(3, 0, 0.0)


def test_couplings_that_remember_too_much_are_refused() -> None:
    program = kernel.Program(0.0, 0.1, [1.0], [0.0], [0.0] * 17)
    with pytest.raises(ValueError, match="remembers more numbers"):
        program.link(0, 0, 1, 1.0, 0.0, 0, [0.0] * 17 * 17, [0.0] * 17, [0.0] * 17)
