"""Signals during a run: they wait while rows are written, and whoever handled them before still does."""

from __future__ import annotations

import ctypes
import signal
import threading
from typing import Any

import pytest

from cosimo import _kernel, masters
from cosimo.core import guarding
from cosimo.core.errors import Interrupted
from cosimo.core.guarding import Interrupts, guarded
from cosimo.core.system import System
from cosimo.execution.lowering import Lowering
from cosimo.execution.recording import Recorder
from cosimo.execution.running import run
from cosimo.execution.session import IN_PLACE
from cosimo.units import StateSpace


def _interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_signal_passes_at_once_or_waits() -> None:
    done: list[str] = []
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            _interrupt()

        def hold() -> None:
            with interrupts.held():
                _interrupt()
                done.append("the whole block")

        with pytest.raises(KeyboardInterrupt):
            hold()
    assert done == ["the whole block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_comes_first() -> None:
    def hold() -> None:
        with Interrupts() as interrupts, interrupts.held():
            _interrupt()
            raise ValueError("full")

    with pytest.raises(ValueError, match="full"):
        hold()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts, interrupts.held():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            _interrupt()
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_handlers_alone() -> None:
    found: list[Any] = []

    def work() -> None:
        with Interrupts() as interrupts, interrupts.held():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_signals_are_counted_while_units_may_be_called() -> None:
    """Whoever waits for a unit in another process looks at the count: Python's own handlers do not run meanwhile."""
    counted = ctypes.c_uint.from_address(_kernel.interrupts())
    before = counted.value

    def expect(more: int) -> None:
        with pytest.raises(KeyboardInterrupt):
            _interrupt()
        assert counted.value == before + more

    with guarded(None):
        expect(1)
        with Interrupts():  # installs handlers of Python's, which stand in front of whatever was there
            expect(2)
            with guarded(None):
                expect(3)
            expect(4)
        expect(5)
    expect(5)


class Disturbed(Recorder):
    """Is interrupted in the middle of taking its third block."""

    calls = 0

    def record(self, block: Any) -> None:
        self.calls += 1
        if self.calls == 3:
            _interrupt()
        super().record(block)


class Output:
    variables = None

    def open(self, names: Any, metadata: Any, position: Any = None) -> Recorder:
        return Disturbed(None, names, metadata=metadata)


def test_rows_being_written_are_neither_lost_nor_doubled() -> None:
    system = System({"decay": StateSpace(-1.0, [[]], 1.0, initial=1.0)})
    with pytest.raises(Interrupted, match=rf"interrupted at t = {0.2 * IN_PLACE:g}; ") as info:
        run(system, masters.jacobi(system, 0.1), stop=1e5, output=Output())
    result = info.value.result
    assert result is not None
    assert len(result) == result.info["steps"] + 1 == 2 * IN_PLACE + 1


def test_an_interrupt_before_the_engine_is_called_records_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the last call are still in the block then, and the program still says how many it made."""
    given, calls = Lowering.given, [0]

    def disturbed(self: Lowering, first: int, count: int) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return given(self, first, count)

    monkeypatch.setattr(Lowering, "given", disturbed)
    system = System({"decay": StateSpace(-1.0, [[]], 1.0, initial=1.0)})
    with pytest.raises(Interrupted) as info:
        run(system, masters.jacobi(system, 0.1), stop=1e5)
    assert info.value.result is not None
    assert len(info.value.result) == 2 * IN_PLACE + 1
    assert (info.value.result.time[1:] > info.value.result.time[:-1]).all()


def test_handlers_are_put_back_when_a_signal_comes_at_the_beginning_or_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was interrupted twice on a busy machine left its handler behind."""
    count_again = guarding._count_again

    def disturbed() -> None:
        _interrupt()
        count_again()

    def enter() -> None:
        with Interrupts():
            pytest.fail("the signal came before")

    def leave() -> None:
        with Interrupts():
            monkeypatch.setattr(guarding, "_count_again", disturbed)

    for use in (leave, enter):
        with pytest.raises(KeyboardInterrupt):
            use()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        monkeypatch.setattr(guarding, "_count_again", disturbed if use is leave else count_again)
