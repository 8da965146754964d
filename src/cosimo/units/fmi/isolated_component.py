"""A component whose library lives in a worker: the same calls, and errors that say how the worker ended."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from fmpy.fmi1 import _FMU
from fmpy.fmi2 import fmi2CallbackFunctions

from cosimo.core.errors import ConfigurationError, CosimoError, RunError, UnitCrashed, UnitError, UnitTimeout
from cosimo.core.guarding import copies_text
from cosimo.units.fmi.component import (
    MESSAGES,
    Component,
    FMU2Library,
    FMU3Library,
    LazyFunctions,
    Log,
    missing,
    not_loaded,
    phase_of,
    status_label,
)
from cosimo.units.fmi.isolation import (
    PRINTED,
    PROXY,
    REFUSED,
    End,
    Isolation,
    Worker,
    WorkerState,
    part,
    require_available,
    signal_text,
)
from cosimo.units.fmi.model_exchange import Adapter


class _Functions(LazyFunctions):
    """Functions of the proxy, where the FMU's own library has them."""

    def __init__(self, owner: Any, known: Callable[[str], None]) -> None:
        super().__init__(owner)
        self._known = known

    def __missing__(self, name: str) -> Any:
        self._known(name)
        return super().__missing__(name)


class _Proxy3(FMU3Library):
    """FMPy forms the path of an FMI 3.0 library itself; ours is elsewhere."""

    def __init__(self, **given: Any) -> None:
        _FMU.__init__(self, **given)


class WorkerLog(Log):
    """What the unit said, fetched from the worker when somebody asks."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.refused: tuple[str, ...] = ()
        self.suppressed = 0
        self._kept: deque[tuple[str, str]] = deque(maxlen=MESSAGES)

    @property
    def messages(self) -> deque[tuple[str, str]]:  # type: ignore[override]
        """The last messages and lines printed, as pairs of label and text."""
        if self.worker is not None and self.worker.handle:
            records = list(self.worker.records())
            self.suppressed = int(self.worker.state.suppressed)
            self.refused = tuple(dict.fromkeys(record.text for record in records if record.kind == REFUSED))
            said = [
                ("printed" if kind == PRINTED else status_label(kind), text)
                for kind, text in records
                if kind != REFUSED
            ]
            self._kept = deque(said, maxlen=MESSAGES)
        return self._kept

    def clear(self) -> None:
        """Nothing is kept here."""

    @property
    def last(self) -> str:
        """As of any component; a unit that logged nothing may have printed why it ends."""
        printed = (text for label, text in reversed(self.messages) if label == "printed" and text)
        return super().last or next(printed, "")


class IsolatedComponent(Component):
    """A component in a worker process; when that ends, calls raise `UnitCrashed` or `UnitTimeout`."""

    isolated = True
    log: WorkerLog

    def __init__(self, version: int, file: str, name: str, adapter: Adapter | None, isolation: Isolation) -> None:
        super().__init__(version, file, name, adapter)
        require_available(isolation)
        self.isolation = isolation
        self.log = WorkerLog()
        self._worker: Worker | None = None
        self._library = ""
        self._told = False

    def load(self, library: Path, folder: Path, token: str) -> None:
        self._library = library.name
        isolation, adapter = self.isolation, self.adapter
        words = () if adapter is None else (str(adapter.path), adapter.settings)
        if adapter is not None:
            isolation = replace(isolation, readable=(*isolation.readable, str(adapter.path), *adapter.readable))
        self._worker = self.log.worker = Worker(library, folder, self.version, isolation, words)
        state = self._worker.state
        if state.end == End.NOT_STARTED:
            self._told = True
            raise self._not_started(state.text("problem").replace(str(folder) + os.sep, "").rstrip("."), library)
        self._require_alive()
        kind = FMU2Library if self.version == 2 else _Proxy3
        self._fmu = self._opened(kind, library, folder, token, libraryPath=str(part(PROXY)))
        self._fmu._functions = _Functions(self._fmu, self._require_function)

    def instantiate(self, **options: Any) -> None:
        self._talks = options["loggingOn"]
        assert self._worker is not None
        if self.version == 2:
            options["callbacks"] = fmi2CallbackFunctions()  # never called: the worker has its own
        try:
            self._worker.use()
            self._fmu.instantiate(**options)
        except CosimoError:  # such as a function that the library lacks
            raise
        except Exception:  # FMPy raises plain exceptions
            self._require_alive()
            raise self._logged(UnitError(f"{self} could not be instantiated{self.said}.")) from None

    def symbol(self, name: str) -> int:
        """The address of one of our functions, where the FMU's own library has it too."""
        if name.startswith("fmi"):
            self._require_function(name)
        return super().symbol(name)

    def fail(self, function: str, status: int, doing: str) -> NoReturn:
        """Raise how the worker ended, or the error for a bad status; calls may have been sent later than made."""
        self._require_alive()
        assert self._worker is not None
        try:
            super().fail(self._worker.state.text("refused") or function, status, doing)
        except UnitError as error:
            raise self._logged(error) from None

    def release(self) -> None:
        worker, self._worker = self._worker, None
        fatal = self.dead
        try:
            super().release()
        finally:
            failure = None
            if worker is not None:
                worker.end() if fatal else worker.leave()
                state = worker.state
                if not self._told and state.end not in (End.ALIVE, End.LEFT, End.INTERRUPTED):
                    failure = self._failure(state)
                self.log.messages  # noqa: B018  fetched once more
                worker.free()
        if failure is not None:
            raise failure

    @property
    def notices(self) -> tuple[str, ...]:
        found = list(super().notices)
        if self.log.worker is not None and self.log.worker.copies:
            found.append(copies_text(self.log.worker.copies))
        if self.log.worker is None or not self.isolation.sandbox:
            return tuple(found)
        if self.log.worker.handle:
            state = self.log.worker.state
            found += [f"tried to open a network connection ({state.sockets} times)"] if state.sockets else []
            found += [f"tried to start a process ({state.forks} times)"] if state.forks else []
        self.log.messages  # noqa: B018  fetches the refused files as well
        return tuple(found + [f"tried to {what}" for what in _refusals(self.log.refused)])

    # ---- how it ended --------------------------------------------------------------------------------------------

    def _require_function(self, name: str) -> None:
        if self._worker is not None and not self._worker.has(name):
            self._require_alive()
            raise missing(self._library, name)

    def _require_alive(self) -> None:
        if self._worker is None:
            return
        state = self._worker.state
        if state.end not in (End.ALIVE, End.LEFT):
            self._told = True  # what is raised here needs not be said again when the worker is let go
            failure = self._failure(state)
            self.dead, self.running = True, False
            raise failure

    def _not_started(self, reason: str, library: Path) -> ConfigurationError:
        if self.isolation.sandbox and ("bwrap:" in reason or "seccomp" in reason):
            return ConfigurationError(
                f"the sandbox for {self} could not be set up: {reason}; allow user namespaces on this machine, or use "
                "--isolate, which contains crashes but does not protect files and network."
            )
        if "undefined symbol: Py" in reason or "undefined symbol: _Py" in reason:
            reason += "; it uses the Python of the process that loads it, so it cannot be isolated"
        return not_loaded(self.file, reason, library)

    def _failure(self, state: WorkerState) -> RunError:
        if state.end == End.INTERRUPTED:
            raise KeyboardInterrupt
        during = state.text("during")
        where = f"in {during}" if during else "between two calls"
        limits = self.isolation
        causes = {
            End.CRASHED: f"crashed {where}: {_signal(state)}",
            End.EXITED: f"the unit ended the process {where} (exit code {state.number})",
            End.TIMEOUT: f"took longer {where} than its limit of {limits.timeout:g} s and was ended"
            if limits.timeout
            else f"did not answer {where} for {round(state.waited):g} s after it was let go and was ended"
            if during != "load"
            else f"did not load its library within {round(state.waited):g} s and was ended",
            End.MEMORY: f"memory limit: the unit requested more than {limits.memory or 0:g} MB {where}",
            End.BROKEN: f"overwrote the memory that it shares with the master {where}",
            End.NOT_STARTED: f"did not start: {state.text('problem')}",
        }
        cause = causes[state.end] + (f"; it says: {self.log.last.rstrip('.')}" if self.log.last else "")
        kind = UnitTimeout if state.end == End.TIMEOUT else UnitCrashed
        error = kind(f"{self}: {cause}.")
        return error.locate(phase=phase_of(during, running=self.initialised), cause=cause, log=self._write_log())

    def _logged(self, error: UnitError) -> UnitError:
        return error.locate(log=self._write_log())

    def _write_log(self) -> str | None:
        """Leave what the unit said in its file, where one is wanted and there is anything."""
        messages = self.log.messages
        if self.isolation.log is None or not messages:
            return None
        lines = [f"{label}: {text}" for label, text in messages]
        if self.log.suppressed:
            lines.insert(0, f"({self.log.suppressed} suppressed)")
        with suppress(OSError):
            self.isolation.log.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return str(self.isolation.log)
        return None


def _signal(state: WorkerState) -> str:
    name = signal_text(state.number)
    if state.overflow and not name.startswith("stack overflow"):
        return f"stack overflow, {name}"
    killed = "; the machine may have run out of memory" if state.number == 9 else ""
    return name + killed


def _refusals(records: Iterable[str]) -> list[str]:
    """Files that a unit wanted to write, and those it wanted to read that are there outside of the sandbox."""
    found = []
    for record in records:
        mode, path = record[:1], record[1:]
        if mode == "w":
            found.append(f"write '{path}'")
        elif os.path.lexists(path):
            found.append(f"read '{path}'")
    return found
