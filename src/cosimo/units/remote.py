"""FMUs on other hosts: the unit whose instance lives with a worker there, and what travels between the two.

The master and every worker (`execution/serving.py`) are federates of one HELICS broker. They exchange HELICS commands,
which need no common time: hosts come and go, and a schedule is executed as on one machine. A message is

    kind (1 byte) | session (8) | counter (8) | unit (4) | content | authentication code (16)        as base64

with the kinds HELLO, WELCOME and REFUSED at the beginning, NUMBERS and PLAIN for operations and their answers, FAILED
for errors, LEAVING at the end. NUMBERS are doubles: the operations on one unit since its last answer, ending with a
step or a read, each a code and its arguments; the answer has the outputs, so that a stage costs one round trip. All
else is plain data (`core/plain.py`). Files and states travel in pieces, known by their SHA-256.

Both sides know the token; it never travels. HELLO and WELCOME carry a random number each and a code made with the
token; the key of a session is made of all three, so that no
message can be forged, repeated or moved to another session.
"""

from __future__ import annotations

import atexit
import base64
import ctypes
import hashlib
import hmac
import importlib
import importlib.util
import os
import queue
import secrets
import socket
import struct
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cosimo.core import __version__, dataclass, errors
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError, RunError, UnitCrashed, UnitError
from cosimo.core.plain import from_bytes, to_bytes
from cosimo.core.storage import file_digest
from cosimo.core.unit import Instance
from cosimo.units.fmi.fmu import Experiment, Fmu

PROTOCOL = 1
TOKEN = "COSIMO_TOKEN"
"""The variable with the token of runs on several hosts."""
HELLO, WELCOME, REFUSED, NUMBERS, PLAIN, FAILED, LEAVING = range(7)
SET, STEP, READ, SAVE, RESTORE, FREE = (float(code) for code in range(1, 7))
"""Operations: powers, h and coefficients; time and duration; nothing; a slot; a slot; a slot."""
HEAD, CODE = struct.Struct("<BQQI"), 16
PIECE = 1 << 18
"""Bytes of a file or a state in one message."""
LONGEST = {"zmq": 1 << 20, "tcp": 3000}
"""Characters in one command: HELICS's tcp cores lose all that follows one of more than 4096 bytes."""
MORE, LAST, END = "+", ".", "!"
"""How a command begins that is continued, that is the last or only one of a message, that ends its own sender."""
CALLS = ("finish_initialisation", "get_variables", "set_variables", "directional_derivative", "get_string")
"""What is passed on to the instance as it is."""


@checked
@dataclass(frozen=True)
class Hosts:
    """Where workers are met: the `broker` as ADDRESS:PORT, and how HELICS connects to it (`core`).

    `token_file` holds the token, unless the environment variable COSIMO_TOKEN does. `wait`: seconds for workers to
    join. `patience`: seconds without a sign of life after which a host counts as lost.
    """

    broker: str
    core: str = "zmq"
    token_file: Path | None = None
    wait: float = 30.0
    patience: float = 10.0

    CORES = ("zmq", "tcp")

    def __post_init__(self) -> None:
        if self.core not in self.CORES:
            raise errors.UnknownNameError("core type", self.core, self.CORES)
        address, colon, port = self.broker.rpartition(":")
        if not (colon and address and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigurationError(f"the broker is written ADDRESS:PORT, as 192.168.1.10:23404, not '{self.broker}'.")
        for word, value in (("wait", self.wait), ("patience", self.patience)):
            if not value > 0:
                raise ConfigurationError(f"'{word}' of hosts is {value:g}; give a positive number of seconds.")

    @property
    def place(self) -> tuple[str, int]:
        """Address and port of the broker."""
        address, _, port = self.broker.rpartition(":")
        return address, int(port)

    def token(self) -> bytes:
        """The token as a key of 32 bytes."""
        text = os.environ.get(TOKEN, "")
        if self.token_file is not None:
            try:
                text = self.token_file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"the token file '{self.token_file}' cannot be read: {error}.") from None
        if len(text.strip()) < SHORTEST:
            where = f"'{self.token_file}'" if self.token_file else f"the environment variable {TOKEN}"
            raise ConfigurationError(
                f"hosts need a common token of at least {SHORTEST} characters in {where}; make one with "
                "'openssl rand -hex 16', and give the same to the workers."
            )
        return hashlib.sha256(text.strip().encode()).digest()


SHORTEST = 16


def require_helics() -> None:
    """Refuse, before anything is started, what needs the extra."""
    if importlib.util.find_spec("helics") is None:
        raise ConfigurationError(
            "units on other hosts and federations need HELICS; install it with: pip install 'cosimo[helics]'."
        )


@cache
def helics() -> Any:
    """The library, which is an extra."""
    require_helics()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = importlib.import_module("helics")
    # Federates leave where they are closed; waiting for those that are lost would keep a command from ending.
    atexit.unregister(found.helicsCloseLibrary)
    return found


# ---- one federate ----------------------------------------------------------------------------------------------------


class Pulse:
    """Whether other federates and the broker are still there, as a federate sees it."""

    def __init__(self, federate: Any) -> None:
        self._h, self._federate = helics(), federate
        self._asked: dict[str, tuple[Any, float]] = {}
        self._answered: dict[str, float] = {}

    def silent(self, name: str) -> float:
        """Seconds for which a question to a federate has been without an answer; `root` is the broker.

        Asks once a second, as long as this is called. The answer comes from threads of HELICS: a process that computes
        gives it, one that is stopped does not.
        """
        now, since = time.monotonic(), None
        if name in self._asked:
            query, since = self._asked[name]
            if not self._h.helicsQueryIsCompleted(query):
                return now - since
            del self._asked[name]
            with suppress(self._h.HelicsException):
                if isinstance(self._h.helicsQueryExecuteComplete(query), str):
                    self._answered[name], since = now, None
        if since is not None or now - self._answered.get(name, now - 2.0) > 1.0:
            query = self._h.helicsCreateQuery(name if name == "root" else core_of(name), "version")
            with suppress(self._h.HelicsException):
                self._h.helicsQueryExecuteAsync(query, self._federate)
                self._asked[name] = (query, now if since is None else since)
        return 0.0 if since is None else now - since

    def has_answered(self, name: str) -> bool:
        """Whether a federate has ever answered `silent`."""
        return name in self._answered

    def has_lost_broker(self) -> bool:
        """Whether the broker leaves a question without an answer; asks nothing."""
        return "root" in self._asked and time.monotonic() - self._asked["root"][1] > 1.5


class HelicsLink:
    """A federate that sends commands, and hands those that come to `deliver`, in a thread of its own.

    `pulse` tells whether others are there. A `broker` of this process sends in place of the federate: that saves every
    message one of its two ways, the one to the broker.
    """

    def __init__(self, hosts: Hosts, name: str, deliver: Callable[[str, bytes], None], broker: Any = None) -> None:
        self.hosts, self.name, self._deliver, self._h = hosts, name, deliver, helics()
        self._broker = broker
        made = join(hosts, name)
        self._federate = made
        self.pulse = Pulse(made)
        self._begun: dict[str, list[str]] = {}  # by federate, what has come of a message in several commands
        self._sending = threading.Lock()
        self._listener = threading.Thread(target=self._listen, name="commands", daemon=True)

    def listen(self) -> None:
        """Begin to hand over what comes, also what has come; `deliver` may use the link from now on."""
        self._listener.start()

    def send(self, target: str, message: bytes, *, named: bool = False) -> None:
        """Send a message, in several commands where it is long; one that gets lost will be missed (`pulse`).

        `named`: as the federate itself, whose name the other side then has.
        """
        text, most = base64.b64encode(message).decode(), LONGEST[self.hosts.core]
        with self._sending, suppress(self._h.HelicsException):
            for begin in range(0, len(text), most):
                command = (MORE if begin + most < len(text) else LAST) + text[begin : begin + most]
                if self._broker is None or named:
                    self._h.helicsFederateSendCommand(self._federate, target, command)
                else:
                    self._h.helicsBrokerSendCommand(self._broker, target, command, None)

    def _listen(self) -> None:
        while (text := self._h.helicsFederateWaitCommand(self._federate)) != END:
            source = self._h.helicsFederateGetCommandSource(self._federate)
            if text[:1] == MORE:
                self._begun.setdefault(source, []).append(text[1:])
                if len(self._begun[source]) * LONGEST[self.hosts.core] > 4 * PIECE:
                    del self._begun[source]
            elif text[:1] == LAST:
                whole = "".join([*self._begun.pop(source, ()), text[1:]])
                with suppress(ValueError):
                    self._deliver(source, base64.b64decode(whole, validate=True))

    def others(self) -> list[str]:
        """All federates that the broker knows, in the order in which they joined."""
        query = self._h.helicsCreateQuery("root", "federates")
        with suppress(self._h.HelicsException):
            found = self._h.helicsQueryExecute(query, self._federate)
            return [str(name) for name in found] if isinstance(found, list) else []
        return []

    def close(self) -> bool:
        """Leave the federation; whether HELICS got that done: without a broker it may not."""

        def leave() -> bool:
            self._h.helicsFederateSendCommand(self._federate, self.name, END)
            self._listener.join(1.0)
            self._h.helicsFederateDisconnect(self._federate)
            self._h.helicsFederateFree(self._federate)
            return True

        return within(0.5 if self.pulse.has_lost_broker() else 3.0, leave) is True


def join(hosts: Hosts, name: str, prepare: Callable[[Any, Any], None] = lambda h, info: None) -> Any:
    """A new federate of the broker; `prepare` sets what else HELICS shall know of it."""
    h, (address, port) = helics(), hosts.place
    info = h.helicsCreateFederateInfo()
    h.helicsFederateInfoSetCoreTypeFromString(info, hosts.core)
    h.helicsFederateInfoSetCoreName(info, core_of(name))
    words = f"--federates=1 --broker_address={address} --brokerport={port} --loglevel=no_print"
    h.helicsFederateInfoSetCoreInitString(info, f"{words} --network_timeout={max(hosts.patience, 1.0):g}s")
    prepare(h, info)
    made = within(hosts.patience + 5.0, lambda: h.helicsCreateCombinationFederate(name, info))
    if made is None or isinstance(made, Exception):
        said = "it does not answer" if made is None else " ".join(str(made).split())
        raise ConfigurationError(f"the HELICS broker at {hosts.broker} does not accept '{name}': {said}.")
    return made


def within(limit: float, work: Callable[[], Any]) -> Any:
    """What `work` returns or raises, which may be an exception of HELICS; None where it takes longer."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit)
    return found[0] if found else None


def core_of(name: str) -> str:
    """What the core of a federate is called."""
    return f"{name}-core"


def answers(place: tuple[str, int]) -> bool:
    """Whether anybody listens there."""
    try:
        socket.create_connection(place, timeout=2.0).close()
    except OSError:
        return False
    return True


# ---- messages --------------------------------------------------------------------------------------------------------


class Message(NamedTuple):
    """A message whose authentication code was right."""

    kind: int
    unit: int
    content: bytes


class Seal:
    """Makes and checks the messages of one session: counters only grow, and codes need the key.

    The code also covers who sends, the master or the `worker`: nobody is taken in by messages of its own.

    >>> one, two = Seal(b"k" * 32, 7), Seal(b"k" * 32, 7, worker=True)
    >>> two.open(one.seal(PLAIN, 3, b"x"))
    Message(kind=4, unit=3, content=b'x')
    """

    def __init__(self, key: bytes, session: int, *, worker: bool = False) -> None:
        self.key, self.session = key, session
        self._own, self._other = (b"w", b"m") if worker else (b"m", b"w")
        self._sent = self._received = 0

    def seal(self, kind: int, unit: int, content: bytes) -> bytes:
        """The message as bytes."""
        self._sent += 1
        body = HEAD.pack(kind, self.session, self._sent, unit) + content
        return body + code(self.key, self._own + body)

    def open(self, data: bytes) -> Message | None:
        """The message, or None where it is forged, repeated or of another session."""
        if len(data) < HEAD.size + CODE:
            return None
        kind, session, counter, unit = HEAD.unpack_from(data)
        right = hmac.compare_digest(code(self.key, self._other + data[:-CODE]), data[-CODE:])
        if not right or session != self.session or counter <= self._received:
            return None
        self._received = counter
        return Message(kind, unit, data[HEAD.size : -CODE])


def code(key: bytes, body: bytes) -> bytes:
    """The authentication code of a message."""
    return hashlib.blake2b(body, key=key, digest_size=CODE).digest()


def session_key(token: bytes, *parts: bytes) -> bytes:
    """The key of a session, from the token and what both sides drew."""
    return hashlib.blake2b(b"".join(parts), key=token, digest_size=32, person=b"cosimo session").digest()


def greeting() -> dict[str, Any]:
    """What both sides say of themselves at the beginning."""
    return {"protocol": PROTOCOL, "version": __version__, "nonce": secrets.token_bytes(16)}


def disagreement(other: Mapping[str, Any], here: str, there: str) -> str:
    """Why two sides do not fit together; empty where they do."""
    theirs = other.get("version"), other.get("protocol")
    if theirs == (__version__, PROTOCOL):
        return ""
    return f"{there} has cosimo {theirs[0]!s:.20} and {here} {__version__}; install the same version on both"


def failure(error: BaseException, phase: str | None = None) -> dict[str, Any]:
    """An error as plain data."""
    if not isinstance(error, CosimoError):
        error = UnitError(f"{type(error).__name__}: {' '.join(str(error).split())}.")
    where = {"phase": phase} | {n: v for n, v in vars(error).items() if n in FIELDS and v is not None}
    return {"kind": type(error).__name__, "text": str(error), "where": where}


FIELDS = ("phase", "variable", "cause", "end", "at", "last_successful_time")


def raise_failure(told: Mapping[str, Any], host: str) -> NoReturn:
    """Raise the error that `failure` told of; the message says on which host it happened."""
    kind = getattr(errors, str(told["kind"]), UnitError)
    if not (isinstance(kind, type) and issubclass(kind, CosimoError)):
        kind = UnitError
    error = kind.__new__(kind)
    error.args = (f"host '{host}': {told['text']}",)
    for name, value in told["where"].items():
        if name in FIELDS:
            setattr(error, name, value)
    raise error


# ---- the master's side -----------------------------------------------------------------------------------------------


class _Host:
    """A session with one worker."""

    def __init__(self, name: str, federate: str, seal: Seal) -> None:
        self.name, self.federate, self.seal = name, federate, seal
        self.left = False


class HostConnection:
    """The master among the federates: sessions with workers, and the answers that have come."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts, self._token = hosts, hosts.token()
        self._h = helics()
        self._broker = self._start_broker()
        try:
            name = f"cosimo.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
            self._inbox: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
            self.link = HelicsLink(hosts, name, lambda *taken: self._inbox.put(taken), self._broker)
            self.link.listen()
        except BaseException:
            self._stop_broker()
            raise
        self._hosts: dict[str, _Host] = {}
        self._answers: dict[int, Message] = {}
        self._units = 0
        self._process = os.getpid()
        self.going = True

    def _start_broker(self) -> Any:
        """A broker at the address, where none is there already and the address belongs to this machine."""
        address, port = self.hosts.place
        if answers((address, port)):
            return None
        try:
            socket.create_server((address, port)).close()
        except OSError as error:
            raise ConfigurationError(
                f"no HELICS broker answers at {self.hosts.broker}, and none can be started there from this machine: "
                f"{os.strerror(error.errno) if error.errno else error}; give an address of this machine."
            ) from None
        words = f"--federates=1000 --port={port} --local_interface={address} --loglevel=no_print"
        words += " --reuse_address" if self.hosts.core == "tcp" else ""
        try:
            return self._h.helicsCreateBroker(self.hosts.core, f"cosimo.{secrets.token_hex(4)}", words)
        except self._h.HelicsException as error:
            raise ConfigurationError(f"a HELICS broker at {self.hosts.broker} does not start: {error}.") from None

    def _stop_broker(self) -> None:
        if self._broker is not None:
            within(3.0, lambda: self._h.helicsBrokerDisconnect(self._broker))

    def host(self, name: str) -> _Host:
        """The session with a worker, made when it is needed first; waits for the worker to join."""
        if name in self._hosts:
            return self._hosts[name]
        begin, said, asked = time.monotonic(), "", dict[str, tuple[Seal, bytes, bytes]]()
        found: list[_Host] = []
        again = 0.0
        while not found:
            if time.monotonic() - begin > self.hosts.wait:
                raise ConfigurationError(said or self._absent(name))
            if time.monotonic() >= again:
                again = time.monotonic() + 0.5
                for federate in self.link.others():
                    if federate.startswith(worker_prefix(name)):
                        asked.setdefault(federate, self._greeting())
                        greeting = asked[federate][2]
                        self.link.send(federate, greeting, named=True)  # again: one that has just joined may miss it
            said = self._welcomed(name, asked, found) or said
            if said and not found:
                raise ConfigurationError(said)
            time.sleep(0.005)
        end = time.monotonic() + 0.3  # a second one of this name would answer now
        while len(asked) > 1 and time.monotonic() < end:
            self._welcomed(name, asked, found)
            time.sleep(0.005)
        if len(found) > 1:
            for one in found:
                self.link.send(one.federate, one.seal.seal(LEAVING, 0, b""))
            raise ConfigurationError(
                f"{len(found)} workers at {self.hosts.broker} are called '{name}'; give each a name of its own."
            )
        self._hosts[name] = found[0]
        return found[0]

    def _absent(self, name: str) -> str:
        prefix = worker_prefix("")
        there = {one.removeprefix(prefix).rpartition(".")[0] for one in self.link.others() if one.startswith(prefix)}
        if name in there:
            return (
                f"the worker '{name}' at {self.hosts.broker} has joined, and not answered for {self.hosts.wait:g} s: "
                "it hangs, was killed or is cut off; start it again."
            )
        known = f" (there: {', '.join(sorted(there))})" if there else ""
        return (
            f"no worker '{name}' joined the broker at {self.hosts.broker} within {self.hosts.wait:g} s{known}; start "
            f"one on that host with: cosimo worker --broker {self.hosts.broker} --name {name}"
        )

    def _greeting(self) -> tuple[Seal, bytes, bytes]:
        """For one worker: what makes and checks the greeting, what it says, and the message."""
        said, seal = to_bytes(greeting()), Seal(self._token, secrets.randbits(63))
        return seal, said, seal.seal(HELLO, 0, said)

    def _welcomed(self, name: str, asked: Mapping[str, tuple[Seal, bytes, bytes]], found: list[_Host]) -> str:
        """Take what workers answer to a greeting: those that accept it are found, else the reason."""
        while not self._inbox.empty():
            federate, data = self._inbox.get()
            if federate not in asked:
                self._take(federate, data)
                continue
            seal, said, _ = asked[federate]
            message = seal.open(data)
            if message is None and len(data) > HEAD.size and data[0] == REFUSED:
                reason = data[HEAD.size :].decode("utf-8", "replace")[:300]
                return f"host '{name}' refuses this run: {reason}; see what the worker there says."
            if message is None or message.kind != WELCOME:
                continue
            if other := disagreement(from_bytes(message.content), "this machine", f"host '{name}'"):
                return f"{other}."
            key = session_key(self._token, said, message.content)
            found.append(_Host(name, federate, Seal(key, seal.session)))
        return ""

    def number(self) -> int:
        """A number for a new unit."""
        self._units += 1
        return self._units

    def send(self, host: _Host, kind: int, unit: int, content: bytes) -> None:
        """Send a message of a session."""
        self.link.send(host.federate, host.seal.seal(kind, unit, content))

    def _take(self, federate: str, data: bytes) -> None:
        for host in self._hosts.values():
            if host.federate == federate and (message := host.seal.open(data)) is not None:
                if message.kind == LEAVING:
                    host.left = True
                else:
                    self._answers[message.unit] = message

    def wait(self, host: _Host, unit: int) -> Message:
        """The answer of a unit; raises where its host is lost, or the user wants an end."""
        before = _interrupts()
        while unit not in self._answers:
            with suppress(queue.Empty):
                self._take(*self._inbox.get(timeout=0.2))
                continue
            if host.left:
                raise UnitCrashed(f"the worker on host '{host.name}' was ended; start it again, and resume the run.")
            if _interrupts() != before:
                raise KeyboardInterrupt
            self._require_seen(host)
        return self._answers.pop(unit)

    def _require_seen(self, host: _Host) -> None:
        worker, broker = self.link.pulse.silent(host.federate), self.link.pulse.silent("root")
        if worker <= self.hosts.patience:
            return
        if self._broker is None and broker > min(2.0, self.hosts.patience / 2):
            raise UnitCrashed(
                f"host '{host.name}' is out of reach: the HELICS broker at {self.hosts.broker} has not answered for "
                f"{broker:.0f} s; start it again, and resume the run."
            )
        host.left = True
        raise UnitCrashed(
            f"host '{host.name}' has not answered for {worker:.0f} s: its worker has died, hangs or is cut off; "
            "start it again, and resume the run."
        )

    def close(self) -> None:
        """Say goodbye to all workers, and end the broker that was started here."""
        if not self.going or self._process != os.getpid():
            return
        self.going = False
        for host in self._hosts.values():
            if not host.left:
                self.send(host, LEAVING, 0, b"broker" if self._broker is not None else b"")
        self.link.close()
        self._stop_broker()
        _open.pop((self._process, self.hosts), None)


def worker_prefix(name: str) -> str:
    """How the federates of workers begin; what follows the name is their own."""
    return f"cosimo-worker.{name}." if name else "cosimo-worker."


_open: dict[tuple[int, Hosts], HostConnection] = {}
"""The connections of each process: one lasts until the process ends, for one run after the other."""


def connection(hosts: Hosts) -> HostConnection:
    """The connection of this process."""
    key = (os.getpid(), hosts)
    if key not in _open:
        _open[key] = HostConnection(hosts)
        atexit.register(_open[key].close)
    return _open[key]


def _interrupts() -> int:
    """How often the user has interrupted a compiled loop, which keeps signals from Python."""
    return int(_counter().value)


@cache
def _counter() -> Any:
    from cosimo._kernel import interrupts

    return ctypes.c_uint.from_address(interrupts())


# ---- the unit --------------------------------------------------------------------------------------------------------


class RemoteFmu(Fmu):
    """An FMU whose instances live with the worker `host`; it is described here, from the same file."""

    isolated = True

    hosts: Hosts
    trusted: bool

    @classmethod
    def of(cls, fmu: Fmu, host: str, hosts: Hosts) -> RemoteFmu:
        """The same FMU on another host."""
        if texts := [*fmu.text_inputs, *fmu.text_outputs]:
            raise ConfigurationError(
                f"FMU '{fmu.path}': '{texts[0]}' is no number, and only numbers are sent to other hosts; "
                "leave 'host' out."
            )
        made = cls.__new__(cls)
        vars(made).update(vars(fmu))
        made.host, made.hosts = host, hosts
        made.trusted = fmu.isolation is None and fmu.trial is None
        made.trial = None  # it is made where the unit lives, if at all
        return made

    clock_inputs = clock_outputs = ()

    def refusal(self, variable: str) -> str | None:
        if variable in self.left_out:
            return "is a clock of a unit on another host, which does not travel; leave 'host' or the connection out."
        return super().refusal(variable)

    def problems(self) -> tuple[str, ...]:
        return ()  # the host has its own platform

    def instantiate(self, start_time: float | None = None) -> RemoteInstance:  # type: ignore[override]
        experiment = self.experiment if start_time is None else replace(self.experiment, start_time=start_time)
        return RemoteInstance(self, experiment)

    def specification(self, experiment: Experiment) -> dict[str, Any]:
        """All that a worker needs to make an instance, as plain data."""
        options, solver, apart = self.options, self.options.solver, self.isolation
        names = ("exact_difference", "logging", "validate", "kind", "compile")
        limits = ("timeout", "memory", "sandbox")
        return {
            "file": file_digest(self.path),
            "size": self.path.stat().st_size,
            "name": self.name,
            "given": dict(self.given),
            "options": {name: getattr(options, name) for name in names},
            "solver": None if solver is None else asdict(solver),
            "experiment": asdict(experiment),
            "outputs": list(self.outputs),
            "isolation": None if apart is None else {name: getattr(apart, name) for name in limits},
            "trusted": self.trusted,
        }


class RemoteState:
    """A state that a worker keeps for its unit, until nobody has it any more."""

    def __init__(self, slot: int, freed: list[int]) -> None:
        self.slot, self._freed = slot, freed

    def __del__(self) -> None:
        self._freed.append(self.slot)


class RemoteInstance(Instance):
    """A live FMU on another host. Inputs and states are sent along with the next step or read."""

    def __init__(self, unit: RemoteFmu, experiment: Experiment) -> None:
        self._unit, self._connection = unit, connection(unit.hosts)
        self._host, self._number = self._connection.host(unit.host), self._connection.number()
        self._queue: list[float] = []
        self._outputs: Array | None = None
        self._awaited = self._closed = False
        self._failed: BaseException | None = None  # when a step was posted
        self._ended: float | None = None
        self._notices: tuple[str, ...] = ()
        self._slots, self._freed = 0, list[int]()
        specification = unit.specification(experiment)
        if self._ask("open", **specification)["missing"]:
            self._upload(specification["file"], unit.path.read_bytes())
            self._ask("open", **specification)

    # ---- the contract --------------------------------------------------------------------------------------------

    @property
    def ended(self) -> float | None:
        return self._ended

    @property
    def notices(self) -> tuple[str, ...]:
        return self._notices

    def set_input(self, coefficients: Array, h: float) -> None:
        c = coefficients[: self._unit.input_degree + 1]
        self._queue += [SET, float(len(c)), h, *np.ravel(c).tolist()]
        self._outputs = None

    def post(self, time: float, duration: float) -> None:
        """Send a step; `step` waits for it. What goes wrong is raised there."""
        try:
            self._send([STEP, time, duration, READ])
        except BaseException as error:
            self._failed = error

    def step(self, time: float, duration: float) -> None:
        if not self._awaited and self._failed is None:
            self._send([STEP, time, duration, READ])
        if (failed := self._failed) is not None:
            self._failed = None
            raise failed
        self._receive()

    def read(self) -> Array:
        if self._outputs is None:
            self._send([READ])
            self._receive()
        assert self._outputs is not None
        return self._outputs.copy()

    def save(self) -> RemoteState:
        self._slots += 1
        self._queue += [SAVE, float(self._slots)]
        return RemoteState(self._slots, self._freed)

    def restore(self, state: RemoteState) -> None:
        self._queue += [RESTORE, float(state.slot)]
        self._outputs, self._ended = None, None

    def finish_initialisation(self) -> None:
        self._ask("finish_initialisation")

    def serialise(self) -> bytes:
        told = self._ask("serialise")
        return b"".join([self._ask("piece", begin=begin)["data"] for begin in range(0, int(told["size"]), PIECE)])

    def deserialise(self, data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()
        self._upload(digest, data)
        self._ask("deserialise", state=digest)

    def close(self) -> None:
        """Let the worker release the unit; one that is lost has released it."""
        if self._closed or self._host.left or not self._connection.going:
            self._closed = True
            return
        self._closed = True
        self._queue.clear()
        if self._awaited:  # nobody needs the answer any more: the run was interrupted, or another unit has failed
            self._connection.send(self._host, PLAIN, self._number, to_bytes({"do": "close"}))
            return
        self._ask("close")

    # ---- beyond the contract: what the instance on the other host has --------------------------------------------

    @property
    def unit(self) -> RemoteFmu:
        """What it is an instance of."""
        return self._unit

    def get_variables(self, names: Sequence[str]) -> Array:
        """As of the FMU itself."""
        return np.asarray(self._ask("get_variables", arguments=[list(names)])["value"])

    def set_variables(self, names: Sequence[str], values: Sequence[float]) -> None:
        """As of the FMU itself."""
        self._ask("set_variables", arguments=[list(names), [float(value) for value in values]])

    def directional_derivative(self, unknowns: Sequence[str], knowns: Sequence[str], seed: Sequence[float]) -> Array:
        """As of the FMU itself."""
        arguments = [list(unknowns), list(knowns), [float(value) for value in seed]]
        return np.asarray(self._ask("directional_derivative", arguments=arguments)["value"])

    # ---- messages ------------------------------------------------------------------------------------------------

    def _send(self, operations: list[float]) -> None:
        """Send what was queued, and these operations; the answer is awaited by `_receive`."""
        self._settle()
        if self._host.left:
            raise UnitCrashed(f"the worker on host '{self._host.name}' is lost; start it again, and resume the run.")
        freed = [value for slot in self._freed for value in (FREE, float(slot))]
        self._freed.clear()
        numbers = [*self._queue, *operations, *freed]
        self._queue.clear()
        self._connection.send(self._host, NUMBERS, self._number, struct.pack(f"<{len(numbers)}d", *numbers))
        self._awaited = True

    def _receive(self) -> None:
        ended, *outputs = np.frombuffer(self._answer().content)
        self._ended = None if np.isnan(ended) else float(ended)
        self._outputs = np.array(outputs) if len(outputs) == len(self._unit.outputs) else None

    def _settle(self) -> None:
        """An answer that nobody waited for, because another unit of the stage had failed."""
        if self._awaited:
            self._answer()

    def _answer(self) -> Message:
        try:
            message = self._connection.wait(self._host, self._number)
        except RunError:
            self._awaited = False
            raise
        self._awaited = False  # after an interrupt the answer is still to come
        if message.kind == FAILED:
            self._told(from_bytes(message.content))
        return message

    def _told(self, told: Mapping[str, Any]) -> NoReturn:
        self._notices = tuple(told.get("notices", self._notices))
        raise_failure(told, self._host.name)

    def _ask(self, do: str, **given: Any) -> Any:
        """Have something done that is no operation of a schedule."""
        self._settle()
        if self._queue:
            self._send([])
            self._receive()
        self._outputs = None  # what is done may change them
        content = to_bytes({"do": do, **given})
        self._connection.send(self._host, PLAIN, self._number, content)
        self._awaited = True
        told = from_bytes(self._answer().content)
        self._notices = tuple(told.get("notices", self._notices))
        return told

    def _upload(self, digest: str, data: bytes) -> None:
        for begin in range(0, max(len(data), 1), PIECE):
            piece = data[begin : begin + PIECE]
            self._ask("take", digest=digest, begin=begin, size=len(data), data=piece)
