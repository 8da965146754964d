"""The worker on another host: it joins the broker, and serves units to runs that know the token (`units/remote.py`).

One thread listens; every unit has a thread of its own, so that the units of one stage step at the same time. FMUs are
isolated, unless they are trusted: one that crashes or hangs is told to its run, and the worker goes on. A run that says
goodbye, or is not seen any more, loses its units; where its broker is gone as well, the worker waits for the next one.
"""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import queue
import secrets
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, UnsafeInputError
from cosimo.core.guarding import raise_lost_interrupt
from cosimo.core.plain import DamagedError, from_bytes, to_bytes
from cosimo.core.storage import default_folder, file_digest, replacing
from cosimo.core.unit import Instance
from cosimo.units import remote
from cosimo.units.archives import ArchiveLimits, remedy
from cosimo.units.fmi.fmu import Experiment, Fmu, FmuOptions
from cosimo.units.fmi.isolation import Isolation, available
from cosimo.units.fmi.model_exchange import Solver
from cosimo.units.remote import HEAD, HelicsLink, Hosts, Message, Seal

PHASES = {remote.SET: "set", remote.STEP: "doStep", remote.READ: "get", remote.SAVE: "save", remote.RESTORE: "restore"}


@dataclass(frozen=True)
class Serving:
    """How a worker serves: its `name`, how FMUs are isolated (`apart`; None: not at all), and where files are kept."""

    hosts: Hosts
    name: str
    apart: Isolation | None = field(default_factory=Isolation)
    folder: Path | None = None
    once: bool = False
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        if not self.name or not all(c.isalnum() or c in "-_" for c in self.name):
            raise ConfigurationError(f"the worker's name is '{self.name}'; use letters, digits, - and _.")


def serve(how: Serving) -> None:
    """Serve one broker after the other, until interrupted; with `once`, until the first run that came has ended."""
    token = how.hosts.token()
    remote.require_helics()
    with ExitStack() as stack:
        folder = how.folder or default_folder()
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cosimo-worker-")))
        files = folder / "units"
        files.mkdir(parents=True, exist_ok=True)
        waiting = False
        while True:
            raise_lost_interrupt()  # one that came while a process was started, say
            if not remote.answers(how.hosts.place):
                if not waiting:
                    how.say(f"worker '{how.name}' waits for a broker at {how.hosts.broker}")
                waiting = True
                time.sleep(0.3)
                continue
            waiting = False
            code = _in_child(how, token, files)
            if code == SECOND:
                raise ConfigurationError(
                    f"another worker '{how.name}' has joined the broker at {how.hosts.broker} before; "
                    "give each a name of its own."
                )
            if code == SERVED and how.once:
                return
            time.sleep(0.3)  # for a broker that is about to end


SERVED, SECOND = 10, 11
"""Exit codes of a process that has served a run, or left because another worker of its name was there before."""


def _in_child(how: Serving, token: bytes, files: Path) -> int | None:
    """Join the broker in a process of its own: what HELICS leaves behind when a broker dies ends with it."""
    methods = multiprocessing.get_all_start_methods()
    way: Any = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    child = way.Process(target=_join, args=(how, token, files, os.getpid()), name="cosimo-worker")
    child.start()
    try:
        child.join()
    except BaseException:
        child.terminate()
        child.join(5.0)
        raise
    finally:
        if child.is_alive():
            child.kill()
            child.join()
    code: int | None = child.exitcode
    return code


def _join(how: Serving, token: bytes, files: Path, parent: int) -> None:
    code = 0
    try:
        with _Worker(how, token, files, parent) as worker:
            try:
                worker.serve()
            finally:
                code = SECOND if worker.second else SERVED if worker.served else 0
    except ConfigurationError as error:  # the broker has gone meanwhile
        how.say(str(error))
    except KeyboardInterrupt:
        pass
    finally:
        sys.stderr.flush()
        _end_now(code)


def _end_now(code: int) -> NoReturn:
    """End this process, whatever its libraries still want: HELICS waits for its broker, on Windows in `_exit` too."""
    if sys.platform == "win32":
        ctypes.WinDLL("kernel32").TerminateProcess(ctypes.c_void_p(-1), code)
    os._exit(code)


class _Worker:
    """A worker while it is joined to one broker."""

    def __init__(self, how: Serving, token: bytes, files: Path, parent: int) -> None:
        self.how, self.files, self._token, self._parent = how, files, token, parent
        self._sessions: dict[int, _Session] = {}
        self._greeted: dict[bytes, bytes] = {}  # greetings, and what was answered
        self._lock = threading.RLock()
        self._over = threading.Event()
        self.served = self.second = False
        prefix = remote.worker_prefix(how.name)
        self.link = HelicsLink(how.hosts, f"{prefix}{secrets.token_hex(6)}", self._take)
        self.link.listen()
        known = remote.within(how.hosts.patience, self.link.others)  # a broker that is about to end may not answer
        before = takewhile(lambda one: one != self.link.name, known if isinstance(known, list) else ())
        self._before = [one for one in before if one.startswith(prefix)]
        self._settled = time.monotonic() + how.hosts.patience
        how.say(f"worker '{how.name}' has joined the broker at {how.hosts.broker}")

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        # Without a broker HELICS may wait for ever; the process ends then all the same.
        remote.within(2 * self.how.hosts.patience + 3.0, self._leave)

    def _leave(self) -> None:
        for session in [*self._sessions.values()]:
            session.send(remote.LEAVING, 0, b"")
            session.close()
        if self._sessions:
            time.sleep(0.1)  # what was sent leaves through threads of HELICS
        self.link.close()

    def serve(self) -> None:
        """Until the broker is gone, or the first run has ended where only one is served."""
        while not self._over.wait(0.25):
            self._look_for_lost_runs()
            if self._is_second():
                self.second = True
                return
            if self.link.pulse.silent("root") > self.how.hosts.patience:
                self.how.say(f"the broker at {self.how.hosts.broker} is gone")
                return
            if self._is_orphan() or (self.how.once and self.served and not self._sessions):
                return

    def _is_orphan(self) -> bool:
        """Whether the process that has started this one is gone; on Windows its number stays."""
        started_by = multiprocessing.parent_process()
        return os.getppid() != self._parent or (started_by is not None and not started_by.is_alive())

    def _is_second(self) -> bool:
        """Whether a worker of this name was there before, and answers; one that was killed does not."""
        if self._sessions or time.monotonic() > self._settled:
            return False
        for one in self._before:
            self.link.pulse.silent(one)
        return any(map(self.link.pulse.has_answered, self._before))

    def _take(self, federate: str, data: bytes) -> None:
        """A message, in the thread that listens."""
        if len(data) < HEAD.size:
            return
        kind, number, *_ = HEAD.unpack_from(data)
        with self._lock:
            if kind == remote.HELLO:
                self._greet(federate, number, data)
                return
            session = self._sessions.get(number)
            if session is None or (message := session.seal.open(data)) is None:
                return
            if message.kind == remote.LEAVING:
                self._end(number, "has ended")
                if message.content == b"broker":
                    self._over.set()
                return
            session.take(message)

    def _greet(self, federate: str, number: int, data: bytes) -> None:
        message = Seal(self._token, number, worker=True).open(data)
        reason = "it has another token; give both sides the same one" if message is None else ""
        if message is not None and message.content in self._greeted:  # repeated, by the run or by somebody else
            self.link.send(federate, self._greeted[message.content])
            return
        if message is not None:
            with suppress(DamagedError):
                other = from_bytes(message.content)
                reason = remote.disagreement(other, "the worker", "the run")
        if message is None or reason:
            self.how.say(f"refused a run ({federate}): {reason}")
            self.link.send(federate, HEAD.pack(remote.REFUSED, number, 0, 0) + reason.encode())
            return
        said = to_bytes(remote.greeting())
        key = remote.session_key(self._token, message.content, said)
        self._sessions[number] = _Session(self, federate, Seal(key, number, worker=True))
        self.served = True
        self._greeted[message.content] = Seal(self._token, number, worker=True).seal(remote.WELCOME, 0, said)
        self.link.send(federate, self._greeted[message.content])

    def _look_for_lost_runs(self) -> None:
        with self._lock:
            for number, session in [*self._sessions.items()]:
                if self.link.pulse.silent(session.federate) > self.how.hosts.patience:
                    self._end(number, "is not seen any more")

    def _end(self, number: int, why: str) -> None:
        session = self._sessions.pop(number)
        count = session.close()
        self.how.say(f"a run {why}; units released: {count}")


class _Session:
    """One run, with its units."""

    def __init__(self, worker: _Worker, federate: str, seal: Seal) -> None:
        self.worker, self.federate, self.seal = worker, federate, seal
        self._units: dict[int, _Served] = {}
        self._lock = threading.Lock()

    def send(self, kind: int, unit: int, content: bytes) -> None:
        """Answer; counters of messages grow in the order in which they are sent."""
        with self._lock:
            self.worker.link.send(self.federate, self.seal.seal(kind, unit, content))

    def take(self, message: Message) -> None:
        """Hand a message to its unit."""
        if message.unit not in self._units:
            self._units[message.unit] = _Served(self, message.unit)
        self._units[message.unit].inbox.put(message)

    def close(self) -> int:
        """Release all units; how many there were."""
        alive = [unit for unit in self._units.values() if unit.thread.is_alive()]
        for unit in alive:
            unit.inbox.put(None)
        end = time.monotonic() + self.worker.how.hosts.patience
        for unit in alive:
            unit.thread.join(max(0.0, end - time.monotonic()))
        return len(alive)


class _Served:
    """One unit in its thread."""

    def __init__(self, session: _Session, number: int) -> None:
        self.session, self.number = session, number
        self.inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._instance: Any = None
        self._unit: Fmu | None = None
        self._slots: dict[int, Any] = {}
        self._pieces, self._taken = b"", dict[str, bytearray]()
        self._blobs: dict[str, bytes] = {}
        self.thread = threading.Thread(target=self._work, name=f"unit-{number}", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            while (message := self.inbox.get()) is not None:
                if self._answer(message):
                    break
        finally:
            if self._instance is not None:
                with suppress(Exception):
                    self._instance.close()

    def _answer(self, message: Message) -> bool:
        """Do what a message says, and answer; whether it was the last one."""
        self._phase: str | None = None
        try:
            if message.kind == remote.NUMBERS:
                kind, content, last = remote.NUMBERS, self._operate(message.content), False
            else:
                given = from_bytes(message.content)
                told = self._do(given)
                kind, last = remote.PLAIN, given["do"] == "close"
                content = to_bytes({**told, "notices": self._notices()})
        except (Exception, SystemExit) as error:
            told = remote.failure(error, self._phase)
            kind, last = remote.FAILED, False
            content = to_bytes({**told, "notices": self._notices()})
        self.session.send(kind, self.number, content)
        return last

    def _notices(self) -> list[str]:
        return [] if self._instance is None else [str(text) for text in self._instance.notices]

    def _live(self) -> Instance:
        if self._instance is None:
            raise ConfigurationError("the unit has not been opened, or was closed; run again.")
        instance: Instance = self._instance
        return instance

    def _operate(self, content: bytes) -> bytes:
        """The operations of a schedule, as numbers; the answer is when the unit wants to end (NaN), and the outputs."""
        numbers, place, instance = struct.unpack(f"<{len(content) // 8}d", content), 0, self._live()
        assert self._unit is not None
        inputs, outputs = len(self._unit.inputs), np.zeros(0)
        while place < len(numbers):
            operation, place = numbers[place], place + 1
            self._phase = PHASES.get(operation)
            if operation == remote.SET:
                powers, h = int(numbers[place]), numbers[place + 1]
                begin, place = place + 2, place + 2 + powers * inputs
                instance.set_input(np.array(numbers[begin:place]).reshape(powers, inputs), h)
            elif operation == remote.STEP:
                instance.step(numbers[place], numbers[place + 1])
                place += 2
            elif operation == remote.READ:
                outputs = instance.read()
            else:
                slot, place = int(numbers[place]), place + 1
                if operation == remote.SAVE:
                    self._slots[slot] = instance.save()
                elif operation == remote.RESTORE:
                    instance.restore(self._slots[slot])
                else:
                    self._slots.pop(slot, None)
        self._phase = None
        ended = instance.ended
        return struct.pack("<d", float("nan") if ended is None else ended) + outputs.astype("<f8").tobytes()

    def _do(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All that is no operation of a schedule."""
        do = given["do"]
        match do:
            case "open":
                return self._open(given)
            case "take":
                self._take(given["digest"], given["begin"], given["size"], given["data"])
            case "serialise":
                self._pieces = self._live().serialise()
                return {"size": len(self._pieces)}
            case "piece":
                return {"data": self._pieces[given["begin"] : given["begin"] + remote.PIECE]}
            case "deserialise":
                self._live().deserialise(self._blobs.pop(given["state"]))
            case "close":
                self._slots.clear()
                instance, self._instance = self._instance, None
                if instance is not None:
                    instance.close()
                    self._instance = instance  # for what it still has to say
            case _ if do in remote.CALLS:
                return {"value": getattr(self._live(), do)(*given.get("arguments", ()))}
            case _:
                raise ConfigurationError(f"unknown message '{do!s:.20}'; install the same version on both sides.")
        return {}

    # ---- files ---------------------------------------------------------------------------------------------------

    def _take(self, digest: str, begin: int, size: int, data: bytes) -> None:
        """A piece of a file or a state; whole, it must be what its name says."""
        limit = ArchiveLimits.from_environment().total_size
        if size > limit:
            raise UnsafeInputError(f"a file of {size} bytes is larger than {limit} bytes; {remedy('total_size')}.")
        whole = self._taken.setdefault(digest, bytearray())
        if begin != len(whole) or begin + len(data) > size:
            raise ConfigurationError("a piece of a file came out of order; run again.")
        whole += data
        if len(whole) < size:
            return
        found = bytes(self._taken.pop(digest))
        if hashlib.sha256(found).hexdigest() != digest:
            raise UnsafeInputError("a file changed on its way; run again.")
        self._blobs[digest] = found

    def _file(self, digest: str, size: int) -> Path | None:
        """The FMU of this content in the folder of files; None where it is not there yet."""
        if len(digest) != 64 or not all(c in "0123456789abcdef" for c in digest):
            raise UnsafeInputError("a file is named by something else than its SHA-256; refused.")
        path = self.session.worker.files / f"{digest}.fmu"
        if digest in self._blobs:
            data = self._blobs.pop(digest)
            with replacing(path, unique=True, durable=False) as new:
                new.write_bytes(data)
        if not path.is_file() or file_digest(path) != digest:
            return None
        return path

    def _open(self, given: Mapping[str, Any]) -> dict[str, Any]:
        path = self._file(str(given["file"]), int(given["size"]))
        if path is None:
            return {"missing": True}
        how = self.session.worker.how
        options = dict(given["options"])
        if options["compile"] == "trusted" and how.apart is not None:
            options["compile"] = "sandbox"
        solver = None if given["solver"] is None else Solver(**given["solver"])
        unit = Fmu(
            path,
            name=str(given["name"]),
            start=given["given"],
            experiment=Experiment(**given["experiment"]),
            options=FmuOptions(**options, solver=solver, limits=ArchiveLimits.from_environment()),
            isolate=_apart(how.apart, given["isolation"]) or False,
        )
        unit.label = str(given["name"])
        more = [name for name in given["outputs"] if name not in unit.outputs]
        self._unit = unit.with_outputs(more) if more else unit
        if list(self._unit.outputs) != list(given["outputs"]):
            raise ConfigurationError("the FMU has other outputs on this host; install the same version on both sides.")
        self._instance = self._unit.instantiate()
        return {"missing": False}


def _apart(here: Isolation | None, asked: Mapping[str, Any] | None) -> Isolation | None:
    """How a unit is isolated: as the worker says, and as its scenario asks, the stricter of each."""
    if here is None and asked is None:
        return None
    if not available():
        return None
    one, other = here or Isolation(), Isolation(**(asked or {}))

    def least(a: float | None, b: float | None) -> float | None:
        return min((value for value in (a, b) if value is not None), default=None)

    return replace(
        one,
        timeout=least(one.timeout, other.timeout),
        memory=least(one.memory, other.memory),
        sandbox=one.sandbox or other.sandbox,
    )
