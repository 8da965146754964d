"""Isolated units that crash, hang, end their process or take all memory: named, and nothing lost."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from isolation_processes import children, descendants, started

import processes
from cosimo import masters
from cosimo.core.errors import ConfigurationError, RunError, UnitCrashed, UnitError, UnitTimeout
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.units import Fmu
from cosimo.units.fmi.isolation import Isolation

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
import faulty

LIMIT = 2.5
"""Seconds for units that hang; a busy machine takes much less for a call of one that does not."""
PATIENCE = 60.0
"""Seconds after which a fault counts as not noticed. `make faults` measures how soon it is."""
LIMITS = Isolation(timeout=2 * PATIENCE, memory=100)
"""Crashes must be noticed as such, and not because the time is up."""
WINDOWS = sys.platform == "win32"
SEGFAULT = "access violation" if WINDOWS else "SIGSEGV"
SANDBOX_OR_NOT = [False, pytest.param(True, marks=pytest.mark.sandbox)]


def wait_until(reached: Callable[[], object]) -> None:
    """Wait for something that must come, however busy the machine is."""
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def failing(fmu: Path, fault: str, isolation: Isolation = LIMITS, **parameters: float | str) -> RunError:
    """The error of a run of 200 steps whose fault comes at 0.3 s."""
    given = {"fault": fault, "fault_time": 0.3, **parameters}
    system = System({"sound": Fmu(fmu, isolate=isolation), "sick": Fmu(fmu, isolate=isolation, parameters=given)})
    with pytest.raises(RunError) as raised:
        run(system, masters.jacobi(system, 0.01), stop=2.0)
    return raised.value


@pytest.mark.parametrize(
    ("fault", "kind", "cause", "phase", "rows"),
    [
        ("segfault", UnitCrashed, SEGFAULT, "doStep", 31),
        ("abort", UnitCrashed, "; it says: faulty: assertion failed", "doStep", 31),
        ("abort", UnitCrashed, "crashed in fmi2DoStep: SIGABRT", "doStep", 31),
        ("stack_overflow", UnitCrashed, "stack overflow", "doStep", 31),
        ("floating_point", UnitCrashed, "integer division by zero" if WINDOWS else "SIGFPE", "doStep", 31),
        ("kill", UnitCrashed, "SIGKILL", "doStep", 31),
        ("exit", UnitCrashed, "the unit ended the process in fmi2DoStep (exit code 0)", "doStep", 31),
        ("exit_at_once", UnitCrashed, "the unit ended the process", "doStep", 31),
        ("crash_initialise", UnitCrashed, SEGFAULT, "initialise", 0),
        ("crash_terminate", UnitCrashed, SEGFAULT, "terminate", 201),
        ("crash_free", UnitCrashed, SEGFAULT, "free", 201),
        ("hang", UnitTimeout, "longer in fmi2DoStep than its limit of 2.5 s", "doStep", 31),
        ("spin", UnitTimeout, "limit of 2.5 s", "doStep", 31),
        ("allocate", UnitCrashed, "memory limit: the unit requested more than 100 MB", "doStep", 31),
        ("error", UnitError, "it says: no fuel at t = 0.3", "doStep", 31),
        ("fatal", UnitError, "it says: engine lost at t = 0.3", "doStep", 31),
        ("illegal", UnitError, "the unknown status 42", "doStep", 31),
        ("negative", UnitError, "a negative status", "doStep", 31),
    ],
)
def test_what_is_said_and_kept(fmu: Path, fault: str, kind: type, cause: str, phase: str, rows: int) -> None:
    begin = time.monotonic()
    error = failing(fmu, fault, replace(LIMITS, timeout=LIMIT) if kind is UnitTimeout else LIMITS)
    assert time.monotonic() - begin < PATIENCE
    assert type(error) is kind
    assert cause in error.line
    assert (error.unit, error.phase) == ("sick", phase)
    assert error.time == pytest.approx(0.3 if rows == 31 else 2.0 if rows else 0.0)
    assert error.result is not None
    assert len(error.result.time) == rows
    assert not error.result.complete
    assert not children()


@pytest.mark.parametrize("byte", [0, 1, 0x7F, 0xA5, 0xFF])
@pytest.mark.parametrize("limits", [Isolation(), LIMITS], ids=["unlimited", "limited"])
def test_a_unit_that_writes_over_the_shared_memory(fmu: Path, limits: Isolation, byte: int) -> None:
    """Nothing of what stands there is believed: neither a signal, nor that memory was refused."""
    error = failing(fmu, "overwrite", limits, amount=float(byte))
    assert type(error) is UnitCrashed
    assert (error.unit, error.phase, error.time) == ("sick", "doStep", pytest.approx(0.3))
    assert error.cause == "overwrote the memory that it shares with the master in fmi2DoStep"
    assert error.result is not None
    assert len(error.result.time) == 31
    assert not children()


def test_a_leak_ends_at_the_limit(fmu: Path) -> None:
    error = failing(fmu, "leak")
    assert type(error) is UnitCrashed
    assert "memory limit" in error.line
    assert error.result is not None
    # 100 MB at 1 MB a step from step 30 on.
    assert 100 < len(error.result.time) < 140


def test_aligned_memory_is_limited_too(fmu: Path) -> None:
    error = failing(fmu, "leak_aligned")
    assert "memory limit" in error.line


def test_shared_memory_cannot_be_cut_off(fmu: Path) -> None:
    system = System({"sick": Fmu(fmu, isolate=LIMITS, parameters={"fault": "cut_memory"})})
    result = run(system, masters.jacobi(system, 0.01), stop=0.1)
    assert result.complete
    assert result["sick.allowed"][-1] == 0


def test_what_the_unit_has_started_ends_with_it(fmu: Path) -> None:
    seconds = f"{4000 + os.getpid() / 1e7:.7f}"  # told from those of other tests
    failing(fmu, "helper", text=seconds)
    wait_until(lambda: not _sleeping(seconds))


def _sleeping(seconds: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if seconds in entry.read_text():
                found.append(entry.parent.name)
    return found


@pytest.mark.parametrize("sandbox", SANDBOX_OR_NOT)
@pytest.mark.parametrize(
    ("fault", "kind", "cause"),
    [
        ("exit", UnitCrashed, "the unit ended the process in load (exit code 0)"),
        ("hang", UnitTimeout, "took longer in load than its limit of 2.5 s"),
    ],
)
def test_a_fault_while_the_library_is_loaded(
    fmu: Path, monkeypatch: pytest.MonkeyPatch, fault: str, kind: type, cause: str, sandbox: bool
) -> None:
    monkeypatch.setenv("LC_FAULT_WHILE_LOADING", fault)
    limit = LIMIT if kind is UnitTimeout else 2 * PATIENCE
    begin = time.monotonic()
    with pytest.raises(kind) as raised:
        Fmu(fmu, isolate=Isolation(timeout=limit, sandbox=sandbox)).instantiate()
    assert cause in raised.value.line
    assert raised.value.phase == "instantiate"
    assert time.monotonic() - begin < 15.0  # units without a limit have 20 s


def test_an_interrupt_just_before_a_call_ends_it_too(fmu: Path) -> None:
    """A signal may come when a call is about to be made; nobody answers it until the call has returned."""
    unit = Fmu(fmu, isolate=LIMITS, parameters={"fault": "hang", "fault_time": 0.005})
    instance = unit.instantiate()
    instance.step(0.0, 0.01)
    counter = ctypes.c_uint.from_address(import_module("cosimo._kernel").interrupts())
    counter.value += 1  # what the handler of signals does
    with pytest.raises(KeyboardInterrupt):
        instance.step(0.01, 0.01)
    instance.close()


@pytest.mark.parametrize(("fault", "cause"), [("segfault", SEGFAULT), ("", "")])
def test_where_nobody_hears_of_children(fmu: Path, fault: str, cause: str) -> None:
    """A program may ignore SIGCHLD, and a shell may have it ignored for us."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        if fault:
            assert cause in failing(fmu, fault).line
        else:
            # Its end must be noticed as such, and not because the time is up.
            system = System({"a": Fmu(fmu, isolate=LIMITS)})
            begin = time.monotonic()
            assert run(system, masters.jacobi(system, 0.01), stop=0.1).complete
            assert time.monotonic() - begin < PATIENCE
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_crash_before_parameters_are_known(tmp_path: Path) -> None:
    for fault, cause in (("crash_instantiate", SEGFAULT), ("exit_instantiate", "the unit ended the process")):
        unit = Fmu(faulty.build(tmp_path / f"{fault}.fmu", early=fault), isolate=True)
        with pytest.raises(UnitCrashed, match=cause) as raised:
            unit.instantiate()
        assert raised.value.phase == "instantiate"


def test_a_hanging_instantiation(tmp_path: Path) -> None:
    unit = Fmu(faulty.build(tmp_path / "hang.fmu", early="hang_instantiate"), isolate=Isolation(timeout=LIMIT))
    with pytest.raises(UnitTimeout, match="fmi2Instantiate"):
        unit.instantiate()


def test_slow_is_not_dead(fmu: Path) -> None:
    """Steps that take 3 s together under a limit of 2.5 s for each."""
    unit = Fmu(fmu, isolate=Isolation(timeout=LIMIT), parameters={"fault": "slow", "amount": 0.06})
    system = System({"slow": unit})
    assert run(system, masters.jacobi(system, 0.01), stop=0.5).info["steps"] == 50


def test_nothing_is_called_after_a_fatal_status(fmu: Path) -> None:
    instance = Fmu(fmu, isolate=True, parameters={"fault": "fatal", "fault_time": 0.0}).instantiate()
    with pytest.raises(UnitError, match="fmi2Fatal"):
        instance.step(0.0, 0.1)
    with pytest.raises(UnitError, match="can no longer be used"):
        instance.read()
    instance.close()


def test_what_the_process_has_stays_as_it_was(fmu: Path, capfd: pytest.CaptureFixture[str]) -> None:
    here = os.getcwd()
    for fault in ("print", "locale", "folder", "rounding", "log_thread"):
        unit = Fmu(fmu, isolate=True, parameters={"fault": fault})
        clean = Fmu(fmu)
        found = []
        for each in (unit, clean):
            system = System({"a": each})
            found.append(run(system, masters.jacobi(system, 0.01), stop=0.1)["a.y"])
        if fault != "rounding":
            assert (found[0] == found[1]).all()
    assert os.getcwd() == here
    assert 1.0 + 2.0**-53 == 1.0
    assert capfd.readouterr().out == ""


def test_printed_lines_and_messages_can_be_read(fmu: Path) -> None:
    instance = Fmu(fmu, isolate=True, parameters={"fault": "print"}).instantiate()
    instance.step(0.0, 0.1)
    wait_until(lambda: [instance.read(), *instance.messages][1:])
    assert instance.messages[0] == 'printed: {"not": "yours"'
    instance.close()


def test_floods_of_messages_are_capped(fmu: Path) -> None:
    quiet, loud = (
        Fmu(fmu, isolate=True, parameters={"fault": "log_flood", "amount": amount}) for amount in (0.0, 20000.0)
    )
    instance = loud.instantiate()
    for step in range(5):
        instance.step(step * 0.1, 0.1)
    state = instance._component._worker.state  # type: ignore[attr-defined]
    assert state.records == 100
    assert state.suppressed == 5 * 20000 - 100
    instance.close()
    quiet.instantiate().close()


def test_the_log_of_a_failed_unit_is_kept(fmu: Path, tmp_path: Path) -> None:
    error = failing(fmu, "abort", Isolation(log=tmp_path / "unit.log"))
    assert error.log == str(tmp_path / "unit.log")
    assert (tmp_path / "unit.log").read_text() == "printed: faulty: assertion failed\n"
    assert error.line.endswith("unit.log")


def test_workers_end_with_the_master(fmu: Path, tmp_path: Path) -> None:
    script = f"""
import sys, time
from cosimo.units import Fmu
instances = [Fmu({str(fmu)!r}, isolate=True).instantiate() for _ in range(2)]
print(*(i._component._worker.state.pid for i in instances), flush=True)
time.sleep(600)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with processes.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as master:
        assert master.stdout is not None
        workers = [int(word) for word in master.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(_alive, workers))
        master.kill()
        master.wait()
    wait_until(lambda: not any(map(_alive, workers)))


@pytest.mark.parametrize("sandbox", SANDBOX_OR_NOT)
def test_a_unit_cannot_outlive_its_master(fmu: Path, tmp_path: Path, sandbox: bool) -> None:
    """Also one that has replaced the descriptor by which its process notices the master's end."""
    script = f"""
from cosimo import System, masters, run
from cosimo.units import Fmu
from cosimo.units.fmi.isolation import Isolation
unit = Fmu({str(fmu)!r}, isolate=Isolation(sandbox={sandbox}), parameters={{"fault": "replace_descriptors"}})
system = System({{"a": unit}})
run(system, masters.jacobi(system, 0.01), stop=0.1)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with processes.Popen([sys.executable, "-c", script], env=environment) as master:
        try:
            wait_until(lambda: any(map(_replaced, descendants(master.pid))))
            started = descendants(master.pid)
        finally:
            master.send_signal(signal.SIGKILL)
            master.wait()
    assert started
    wait_until(lambda: not any(map(_alive, started)))


def _replaced(pid: int) -> bool:
    """Whether the process has put /dev/null in the place of all descriptors that it should leave alone."""
    with suppress(OSError):
        return all(os.readlink(f"/proc/{pid}/fd/{number}") == "/dev/null" for number in range(3, 64))
    return False


def _alive(pid: int) -> bool:
    if WINDOWS:
        return pid in started()
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    from fmu_builder import build

    path = build(tmp_path, "minimal2")
    import zipfile

    broken = tmp_path / "broken.fmu"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(broken, "w") as target:
        for member in source.infolist():
            target.writestr(member, b"no library" if member.filename.startswith("binaries/") else source.read(member))
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        Fmu(broken, isolate=True).instantiate()


@pytest.mark.parametrize(("given", "what"), [({"timeout": 0.0}, "time"), ({"memory": -1.0}, "memory")])
def test_limits_must_make_sense(given: dict[str, float], what: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the {what} limit"):
        Isolation(**given)  # type: ignore[arg-type]
