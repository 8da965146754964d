"""The two engines as `run` uses them: options, threads, requests to stop, progress, what is recorded when."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from fmu_builder import build
from native_units import KERNEL, REFERENCE, bits, exported, lag

from cosimo import masters
from cosimo.core.errors import ConfigurationError, Interrupted, NonFiniteError, UnitError
from cosimo.core.schedule import Convergence
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.engines import KernelEngine
from cosimo.execution.live import Live
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.execution.session import IN_PLACE
from cosimo.problems import chain, two_mass
from cosimo.units import Fmu, PythonUnit, StateSpace

PARALLEL, SERIAL = EngineOptions(parallel=True, threads=3), EngineOptions(parallel=False)


def ring(count: int, **options: Any) -> System:
    """Native units in a ring."""
    units = {f"n{i}": lag(1.0 + i, **options) for i in range(count)}
    connections = [Connection(f"n{i}.y", f"n{(i + 1) % count}.u", gain=-0.9) for i in range(count)]
    return System(units, connections)


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "kernal"}, "'kind' must be 'kernel' or 'reference', not 'kernal' .*; did you mean 'kernel'"),
        ({"threads": 0}, "number of threads must be between 1 and 1048576, not 0"),
        ({"threads": -2}, "number of threads must be between 1 and 1048576, not -2"),
        ({"threads": 2**40}, "number of threads must be between 1 and 1048576, not 1099511627776"),
        *(({"interval": value}, "returns after 0 to 1e.08 seconds") for value in (-1.0, float("nan"), 1e300)),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        EngineOptions(**options)


def test_the_kernel_is_the_default() -> None:
    assert EngineOptions() == EngineOptions(kind="kernel", parallel=None, threads=None)


# ---- threads ---------------------------------------------------------------------------------------------------------


def _threads() -> int:
    return psutil.Process().num_threads()


def _ends_with(threads: int) -> bool:
    """Whether so many are left; a thread that was waited for stays in the list for a moment."""
    deadline = time.monotonic() + 60.0
    while _threads() != threads and time.monotonic() < deadline:
        time.sleep(0.01)
    return _threads() == threads


def _engine(system: System, master: Any, options: EngineOptions) -> tuple[KernelEngine, Live]:
    live = Live(system, master, 0.0)
    live.initialise()
    return KernelEngine(live, system.outputs, options), live


@pytest.mark.parametrize("count", [2, 3, 5])
def test_parallel_steps_of_native_units_are_serial_ones(count: int) -> None:
    system = ring(count)
    for master in (
        masters.jacobi(system, 0.01),
        masters.groups(system, 0.01, order=[system.names[:1], system.names[1:]], coupling=Hold(1)),
        masters.iterative(system, 0.01, sweeps=Convergence(1e-12, limit=9, anderson=2)),
        masters.multirate(system, 0.01, multiples={"n0": 3}),
    ):
        together, alone = (run(system, master, stop=30.0, record="all", engine=e) for e in (PARALLEL, SERIAL))
        assert np.array_equal(bits(together), bits(alone))


def test_threads_claim_many_units_in_portions() -> None:
    system = ring(61)  # for three threads 24 portions, of two or three units
    master = masters.jacobi(system, 0.01)
    together, alone = (run(system, master, stop=5.0, engine=e) for e in (PARALLEL, SERIAL))
    assert np.array_equal(bits(together), bits(alone))


@pytest.mark.parametrize("fmi", [2, 3])
@pytest.mark.parametrize("count", [2, 5])
def test_parallel_steps_of_fmus_are_serial_ones(count: int, fmi: int, tmp_path: Path) -> None:
    system = exported(chain(n=count), tmp_path, fmi=fmi)
    master = masters.jacobi(system, 0.01, coupling=Hold(1))
    together, alone = (run(system, master, stop=100.0, engine=e) for e in (PARALLEL, SERIAL))
    assert np.array_equal(bits(together), bits(alone))


@pytest.mark.parametrize(
    ("system", "options", "shared"),
    [
        (ring(3), PARALLEL, True),
        (ring(3), SERIAL, False),
        (ring(3), EngineOptions(parallel=True, threads=1), False),
        (ring(1), PARALLEL, False),
    ],
)
def test_who_is_stepped_in_threads(system: System, options: EngineOptions, shared: bool) -> None:
    engine, live = _engine(system, masters.jacobi(system, 0.1), options)
    assert engine.shared is shared
    engine.close()
    live.close()


class Idle:
    inputs, outputs, y = (), ("y",), 0.0

    def step(self, time: float, duration: float) -> None: ...


def test_stages_with_units_in_python_are_never_shared() -> None:
    system = System({**ring(2).units, "idle": PythonUnit(Idle)})
    engine, live = _engine(system, masters.jacobi(system, 0.1), PARALLEL)
    assert not engine.shared
    engine.close()
    live.close()


@pytest.mark.parametrize(("rounds", "shared"), [(0, False), (20_000, True)])
def test_the_first_steps_decide_whether_threads_pay(rounds: int, shared: bool) -> None:
    system = ring(2, step="busy_step", settings=(float(rounds),))
    master = masters.jacobi(system, 0.01)
    engine, live = _engine(system, master, EngineOptions(threads=2))
    rows = np.empty((50, 3))
    made = 0
    while made < 40:
        engine.advance(made, rows[: 40 - made])  # before it is known whether it really paid on this machine
        made += engine.made
    assert engine.shared is shared
    engine.close()
    live.close()
    measured, alone = (run(system, master, stop=0.5, engine=e) for e in (EngineOptions(threads=2), SERIAL))
    assert np.array_equal(bits(measured), bits(alone))


def test_threads_end_with_the_run() -> None:
    before, during = _threads(), []
    good, bad = ring(3), ring(3, step="refusing_step", settings=(3.0, 0.5))
    run(good, masters.jacobi(good, 0.1), stop=1.0, engine=PARALLEL, progress=lambda *_: during.append(_threads()))
    assert during[0] > before + 1
    assert _ends_with(before)
    with pytest.raises(UnitError):
        run(bad, masters.jacobi(bad, 0.1), stop=1.0, engine=PARALLEL)
    assert _ends_with(before)
    with pytest.raises(RuntimeError, match="no"):
        run(good, masters.jacobi(good, 0.1), stop=1.0, engine=PARALLEL, progress=_refuse)
    assert _ends_with(before)


def _refuse(*_: float) -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize("engine", [PARALLEL, SERIAL, REFERENCE])
def test_failures_in_a_parallel_stage(engine: EngineOptions) -> None:
    """Of two units that fail in the same step, the first in order is named, whichever thread was faster."""
    names = ("a", "b", "c", "d")
    late = {"step": "refusing_step", "settings": (5.0, 0.5)}
    for _ in range(20):
        system = System({name: lag(**(late if name in "bd" else {})) for name in names})
        with pytest.raises(
            UnitError, match=r"unit 'b' failed at t = 0\.5 while being stepped: .* returned 5\."
        ) as info:
            run(system, masters.jacobi(system, 0.1), stop=1.0, engine=engine)
        assert info.value.result is not None
        assert len(info.value.result) == 6
    broken = System({"calm": lag(), "odd": lag(step="broken_step", settings=(np.nan, 0.5))})
    with pytest.raises(NonFiniteError, match=r"odd\.y became nan at t = 0\.6"):
        run(broken, masters.jacobi(broken, 0.1), stop=1.0, engine=engine)


# ---- requests to stop ------------------------------------------------------------------------------------------------


class Interrupting:
    """Progress of a run that is interrupted once time `at` is reached; `calls` in all, and `before` the signal."""

    def __init__(self, at: float = 0.0) -> None:
        self.at, self.calls, self.before, self.sent = at, 0, 0, False

    def __call__(self, reached: float, stop: float) -> None:
        self.calls += 1
        if reached >= self.at and not self.sent:
            self.sent = True
            interrupt_soon(self.count)

    def count(self) -> None:
        self.before = self.calls


def interrupt_soon(first: Callable[[], object] = lambda: None) -> None:
    """Send SIGINT from a thread, a moment later: the main thread is then where it stays for long."""

    def send() -> None:
        first()
        if sys.platform == "win32":  # os.kill would end the process, and raise_signal let the main thread go on before
            getattr(ctypes.PyDLL("ucrtbase"), "raise")(signal.SIGINT)
        else:  # to the process, not to this thread: the main thread wakes up
            os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.05, send).start()


@pytest.mark.parametrize("engine", [SERIAL, PARALLEL])
def test_a_slow_run_answers_within_a_macro_step(engine: EngineOptions) -> None:
    """Of 0.3 s, so that the kernel returns after each; the signal comes in the one from t = 0.3 on."""
    system = System({"a": lag(step="interrupting_step", settings=(0.3, 0.3)), "b": lag()}, [("a.y", "b.u")])
    with pytest.raises(Interrupted, match=r"interrupted at t = 0\.4; the rows so far are kept") as info:
        run(system, masters.jacobi(system, 0.1), stop=100.0, engine=engine)
    assert info.value.result is not None
    assert len(info.value.result) == 5
    assert not info.value.result.complete
    assert np.array_equal(info.value.result.time, 0.1 * np.arange(len(info.value.result)))


@pytest.mark.parametrize("kind", ["linear", "native", "fmu", "python"])
def test_a_fast_run_answers_at_once(kind: str, tmp_path: Path) -> None:
    systems = {
        "linear": lambda: two_mass(damping=1.0),
        "native": lambda: ring(2),
        "fmu": lambda: exported(two_mass(damping=1.0), tmp_path, fmi=2),
        "python": lambda: System({"idle": PythonUnit(Idle)}),
    }
    system = systems[kind]()
    progress = Interrupting(at=1.0)
    with pytest.raises(Interrupted) as info:
        run(system, masters.jacobi(system, 1e-3), stop=1e7, progress=progress)
    # The kernel returns four times a second; one call may come between the count and the signal.
    assert progress.calls - progress.before <= 2
    assert info.value.result is not None
    assert len(info.value.result) > 1000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_runs_in_several_threads_share_the_handling_of_signals() -> None:
    """Runs overlap in every way; afterwards a signal is handled as ever, and stops the next run."""
    systems = [ring(2, step="slow_step", settings=(0.01 * i,)) for i in range(1, 5)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda s: run(s, masters.jacobi(s, 0.1), stop=1.0), systems))
    assert [len(result) for result in results] == [11] * 4
    with pytest.raises(KeyboardInterrupt):
        _sleep_until_interrupted()
    slow = ring(1, step="slow_step", settings=(0.05,))
    with pytest.raises(Interrupted):
        run(slow, masters.jacobi(slow, 0.1), stop=1e4, progress=Interrupting())


def _sleep_until_interrupted() -> None:
    interrupt_soon()
    time.sleep(60)


def test_a_signal_while_several_runs_go_on_stops_them_all() -> None:
    systems = [ring(1, step="slow_step", settings=(0.02,)) for _ in range(3)]
    stopped: list[Interrupted] = []
    going_on: set[int] = set()

    def make(system: System) -> None:
        try:
            run(system, masters.jacobi(system, 0.1), stop=1e4, progress=lambda *_: going_on.add(id(system)))
        except Interrupted as error:
            stopped.append(error)

    workers = [threading.Thread(target=make, args=(system,)) for system in systems]
    for worker in workers:
        worker.start()
    while len(going_on) < 3:
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        _sleep_until_interrupted()
    for worker in workers:
        worker.join(timeout=60)
    assert len(stopped) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_user_is_still_called() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        system = ring(1, step="interrupting_step", settings=(0.05, 0.3))
        with pytest.raises(Interrupted):
            run(system, masters.jacobi(system, 0.1), stop=100.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


# ---- what a run gives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [KERNEL, REFERENCE])
def test_progress(engine: EngineOptions) -> None:
    calls: list[tuple[float, float]] = []
    system = ring(2)
    stop = 0.3 * IN_PLACE if engine is KERNEL else 10.0
    run(system, masters.jacobi(system, 0.1), start=2.0, stop=2.0 + stop, engine=engine, progress=_collect(calls))
    reached, stops = zip(*calls, strict=True)
    assert list(reached) == sorted(set(reached))
    assert reached[-1] == pytest.approx(2.0 + stop)
    assert set(stops) == {reached[-1]}
    assert len(calls) > 2


def _collect(calls: list[tuple[float, float]]) -> Any:
    return lambda now, stop: calls.append((now, stop))


def test_slow_runs_report_progress_while_they_go_on() -> None:
    calls: list[tuple[float, float]] = []
    system = ring(1, step="slow_step", settings=(0.1,))
    run(system, masters.jacobi(system, 0.1), stop=1.0, progress=_collect(calls))
    assert 3 <= len(calls) <= 10


@pytest.mark.parametrize("engine", [KERNEL, REFERENCE])
@pytest.mark.parametrize("start", [0.0, 2.5, -3.0])
def test_fmus_start_at_the_start_time(start: float, engine: EngineOptions, tmp_path: Path) -> None:
    # This FMU compares every communication point with the time it has counted itself; 2⁻³ adds up exactly.
    system = System({"strict": Fmu(build(tmp_path, "awkward2"), parameters={"strict": 1.0})})
    result = run(system, masters.jacobi(system, 0.125), start=start, stop=start + 4.0, engine=engine)
    assert np.array_equal(result.time, start + 0.125 * np.arange(33))
    assert np.array_equal(result["strict.y"], result.time)


@pytest.mark.parametrize("engine", [KERNEL, REFERENCE])
def test_a_stop_time_between_steps(engine: EngineOptions, tmp_path: Path) -> None:
    system = exported(two_mass(), tmp_path, fmi=2)
    result = run(system, masters.jacobi(system, 0.003), stop=0.01, engine=engine)
    assert result.time == pytest.approx([0.0, 0.003, 0.006, 0.009])
    assert "not a multiple of the step size" in str(result.warnings[0])


def test_inputs_are_recorded_on_request(tmp_path: Path) -> None:
    system = exported(two_mass(), tmp_path, fmi=3)
    master = masters.jacobi(system, 1e-3)
    outputs = run(system, master, stop=0.1)
    everything = run(system, master, stop=0.1, record="all")
    assert outputs.names == system.outputs
    assert everything.names == system.outputs + system.input_names
    assert np.array_equal(everything.values[:, : len(outputs.names)], outputs.values)
    # Under Jacobi, an input at the end of a step holds the output at its beginning.
    assert np.array_equal(everything["two.f"][1:], -outputs["one.f"][:-1])


def test_blocks_do_not_show(tmp_path: Path) -> None:
    """More steps than one call of the kernel makes, with samples from outside in every block."""
    system = System({"tank": StateSpace(-1.0, 1.0, 1.0)}, inputs={"tank.u1": np.sin})
    master = masters.jacobi(system, 0.01, coupling=Hold(2))
    ours, oracle = (run(system, master, stop=90.0, engine=e) for e in (KERNEL, REFERENCE))
    assert len(ours) == 9001
    assert np.array_equal(bits(ours), bits(oracle))


def test_stages_are_not_shared_while_units_live_in_python() -> None:
    """The loop then keeps the interpreter lock, for which a unit on another thread might wait forever."""

    class Echo:
        inputs, outputs = {"u": 0.0}, ("y",)

        def __init__(self) -> None:
            self.y = 0.0

        def step(self, time: float, duration: float) -> None:
            self.y = self.u  # type: ignore[attr-defined]

    linear = {name: StateSpace(-1.0, 1.0, 1.0, initial=1.0) for name in ("a", "b")}
    system = System({**linear, "p": PythonUnit(Echo)}, [("a.y1", "b.u1"), ("b.y1", "p.u"), ("p.y", "a.u1")])
    live = Live(system, masters.jacobi(system, 0.1), 0.0)
    live.initialise()
    engine = KernelEngine(live, system.outputs, EngineOptions(parallel=True, threads=2))
    assert not engine.shared
    engine.close()
