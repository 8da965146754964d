"""The server of the page: on this machine alone, for whoever has its address.

The address holds a random token; without it nothing is answered. Requests with another host name (a page elsewhere
whose name was made to point here) or from another origin are refused before anything is read. Files are read and
written in one folder; everything the page can do is a command that is shown on it.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import shlex
import socket
import struct
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.studio.frozen import finite, page_file
from cosimo.studio.page_state import ISOLATION, State, contributions, option_words
from cosimo.studio.processes import Evaluator, Run, command, free_file

LARGEST_MESSAGE = 1 << 20
"""Bytes of a message from the page; its largest is a state."""
MOST_CONNECTIONS = 64
"""Connections at once; a page needs two."""
LARGEST_FMU = 1 << 31
"""Bytes of a file that is dropped onto the page, as of an archive (`ArchiveLimits`)."""
FMU_NAME = re.compile(r"[\w-][\w .+-]*\.fmu", re.IGNORECASE)
MOST_KEPT = 1_000
"""Answers that are kept, of some tens of kB: turning the slider back, or a master, computes nothing."""
CURVE = 12
"""Steps of the growth curve in one request: 60 ms of computing for 100 states."""
REST = 0.4
"""Seconds that the controls must rest before the full verdict is computed."""
BEAT = 0.25
"""Seconds between two frames of samples of a run."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

Message = dict[str, Any]


class Guard:
    """Answers only requests that name this machine, come from our own page, and know the token."""

    def __init__(self, app: Any, token: str) -> None:
        self.app, self.token = app, token
        self.hosts: tuple[str, ...] = ()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket") and (why := self.refusal(scope)):
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": why})
            else:
                await PlainTextResponse(why, 403, HEADERS)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def refusal(self, scope: Mapping[str, Any]) -> str:
        """Why a request is refused; empty where it is not."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        host, origin = headers.get("host", []), headers.get("origin", [])
        if len(host) != 1 or host[0] not in self.hosts:
            return "the studio answers on this machine alone; open the address that it printed."
        if origin != [f"http://{host[0]}"] and (origin or scope["type"] == "websocket"):
            return "the studio answers its own page alone; open the address that it printed."
        given = scope["path"].split("/")[1]
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            return "the token of this address is wrong; open the address that the studio printed."
        return ""


class Studio:
    """What all pages share: the folder, the system, the evaluator, what was answered, the runs."""

    def __init__(self, state: State, folder: Path) -> None:
        self.state, self.folder = state, folder
        self.token = secrets.token_urlsafe(24)
        self.isolation = {name: state.fixed[name] for name in ISOLATION if name in state.fixed}
        self.evaluator = Evaluator(folder, option_words(self.isolation))
        self.runs: dict[int, Run] = {}
        self.viewers: set[Viewer] = set()
        self.proposals: Message | None = None
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        prefix = f"/{self.token}"
        routes = [
            Route(f"{prefix}/", self._file),
            Route(f"{prefix}/{{name}}", self._file),
            Route(f"{prefix}/fmus/{{name}}", self._upload, methods=["PUT"]),
            WebSocketRoute(f"{prefix}/live", self._live),
        ]
        self.guard = Guard(Starlette(routes=routes), self.token)

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "page.html")
        text = page_file(name)
        if text is None:
            return PlainTextResponse("there is no such file", 404, HEADERS)
        return Response(text, 200, HEADERS, media_type=TYPES[name.rpartition(".")[2]])

    async def _upload(self, request: Request) -> Response:
        """An FMU that was dropped onto the page, into the folder; another file of its name stays as it is."""
        name = request.path_params["name"]
        path = self.folder / name
        if FMU_NAME.fullmatch(name) is None:
            return PlainTextResponse(f"'{name}' is not the name of an FMU; rename it.", 400, HEADERS)
        parts = self.folder / f".{secrets.token_hex(8)}.part"
        try:
            size = 0
            with parts.open("xb") as file:
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > LARGEST_FMU:
                        why = f"'{name}' is larger than 2 GiB; copy it into the folder."
                        return PlainTextResponse(why, 413, HEADERS)
                    file.write(chunk)
            if path.exists() and path.read_bytes() != parts.read_bytes():
                return PlainTextResponse(f"another '{name}' is in the folder already; rename one.", 409, HEADERS)
            parts.replace(path)
        except OSError as error:
            return PlainTextResponse(f"'{name}' cannot be written: {error.strerror}.", 507, HEADERS)
        finally:
            parts.unlink(missing_ok=True)
        return PlainTextResponse(name, 200, HEADERS)

    async def couple(self, names: list[str]) -> None:
        """Write a scenario for FMUs of the folder, and show it on every page."""
        if wrong := [name for name in names if FMU_NAME.fullmatch(name) is None]:
            raise ConfigurationError(f"'{wrong[0]}' is not the name of an FMU in the folder; drop FMUs onto the page.")
        made = await self.evaluator.ask({"kind": "couple", "files": names})
        self.state, self.proposals = State(made["system"], fixed=self.isolation), made
        await self._tell_all(Viewer.open)

    async def _live(self, socket: WebSocket) -> None:
        await socket.accept()
        viewer = Viewer(self, socket)
        self.viewers.add(viewer)
        try:
            await viewer.serve()
        except asyncio.CancelledError:  # the server ends
            pass
        finally:
            self.viewers.discard(viewer)

    def require(self, state: State) -> State:
        """The state, where it is one of the system that this studio was opened with."""
        if state.system != self.state.system:
            raise ConfigurationError(
                f"this studio shows '{self.state.system}', not '{state.system}'; start 'cosimo studio {state.system}'."
            )
        return replace(state, fixed=self.state.fixed)

    @property
    def stamp(self) -> int:
        """When the file of the system was written last, by the page or by an editor; 0 where there is none."""
        try:
            return (self.folder / self.state.system).stat().st_mtime_ns
        except OSError:
            return 0

    async def ask(self, kind: str, state: State, **more: Any) -> Any:
        """What a state evaluates to; what was answered before, of the file as it is, is not asked again."""
        request = {"kind": kind, "state": state.plain(), **more}
        key = f"{self.stamp} {json.dumps(request, sort_keys=True)}"
        if key not in self._known:
            self.keep(key, await self.evaluator.ask(request))
        self._known.move_to_end(key)
        return self._known[key]

    def keep(self, key: str, found: Any) -> None:
        """Keep an answer; the oldest is forgotten where there are too many."""
        self._known[key] = found
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)

    async def verdict(self, state: State) -> Any:
        """What `cosimo analyse --json` says."""
        words = f"analyse {await self.ask('words', state)}"
        key = f"{self.stamp} {words}"  # of the file as it was when the command began
        if key not in self._known:
            found = await command(words, self.folder)
            if "error" in found:
                return found
            self.keep(key, found)
        return self._known[key]

    async def run(self, state: State) -> Run:
        """Start a run; it goes on whether a page looks or not."""
        words, stop = await self.ask("words", state), (await self.ask("text", state))["stop"]
        found = Run(words, self.folder, free_file(self.folder, f"{Path(state.system).stem}-run"), stop)
        self.runs[found.number] = found
        self.begin(found.go())
        return found

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something go on, whether a page looks or not; the studio waits for its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def change(self, kind: str, state: State, **more: Any) -> Any:
        """Write something into the file of the state; every page shows the file as it is now."""
        found = await self.evaluator.ask({"kind": kind, "state": state.plain(), **more})
        await self._tell_all(Viewer.refresh)
        return found

    async def _tell_all(self, tell: Callable[[Viewer], Awaitable[None]]) -> None:
        for viewer in list(self.viewers):
            with suppress(WebSocketDisconnect, RuntimeError):  # closed meanwhile
                await tell(viewer)

    async def connect(self, state: State, ends: Message) -> Any:
        """Write a connection, or its other sign; a page that is opened later says of a proposal what became of it."""
        found = await self.change("connect", state, **ends)
        for one in (self.proposals or {}).get("connections", ()) if ends["sign"] else ():
            if (one["source"], one["target"]) == (ends["source"], ends["target"]):
                one |= {"check_sign": False, "reason": "written with gain −1"}
        return found

    async def freeze(self, state: State, outputs: list[str]) -> str:
        """Write the page as one file that needs no server, by the command that does so; the name of the file."""
        path = free_file(self.folder, f"{Path(state.system).stem}-studio", ".html")
        chosen = shlex.join(word for name in outputs for word in ("--variable", name))
        words = await self.ask("words", state)
        found = await command(f"report --interactive -o {shlex.quote(path.name)} {chosen} {words}", self.folder)
        if "error" in found:
            raise ConfigurationError(found["error"])
        return path.name

    async def close(self) -> None:
        """End the processes; rows of runs are kept as after Ctrl-C."""
        await self._tell_all(lambda viewer: viewer.socket.close(1001))
        for run in self.runs.values():
            run.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10.0)
        for task in self._tasks:
            task.cancel()
        await self.evaluator.close()


class Viewer:
    """One open page: what it wants to see, and the work that is left until it sees it."""

    def __init__(self, studio: Studio, socket: WebSocket) -> None:
        self.studio, self.socket = studio, socket
        self.wanted: Message | None = None
        self.changed = asyncio.Event()
        self._sending = asyncio.Lock()
        self._seen: dict[tuple[int, str], int] = {}
        self._watched: list[str] = []
        self._span: tuple[float, float] | None = None
        self._stamp = studio.stamp
        self._told: set[tuple[Any, ...]] = set()
        self._told_under: Any = None

    async def serve(self) -> None:
        """Until the page is closed."""
        tasks = [asyncio.create_task(part) for part in (self._listen(), self._work(), self._stream())]
        try:
            told = {"folder": self.studio.folder.name, "proposals": self.studio.proposals}
            await self.send(kind="hello", state=self.studio.state.plain(), **told)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except (WebSocketDisconnect, RuntimeError):  # closed meanwhile
            pass
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, **message: Any) -> None:
        """One message to the page."""
        async with self._sending:
            await self.socket.send_text(json.dumps(message))

    async def open(self) -> None:
        """Tell the page that the studio shows another system."""
        self._stamp = self.studio.stamp
        await self.send(kind="opened", state=self.studio.state.plain(), proposals=self.studio.proposals)

    async def refresh(self) -> None:
        """Tell the page to ask again, where the file of the system is another than it has seen."""
        if (stamp := self.studio.stamp) != self._stamp:
            self._stamp = stamp
            await self.send(kind="changed")

    async def _listen(self) -> None:
        while True:
            text = await self.socket.receive_text()
            try:
                message = json.loads(text)
                if not isinstance(message, dict):
                    raise ConfigurationError("the page sends no request; reload it.")
                await self._answer(message)
            except CosimoError as error:
                await self.send(kind="error", text=str(error))
            except (ValueError, KeyError, TypeError) as error:
                await self.send(kind="error", text=f"the page sends no request ({error}); reload it.")

    async def _answer(self, message: Message) -> None:
        kind = message.get("kind")
        if kind in ("stop", "pause"):
            if (run := self.studio.runs.get(message["run"])) is not None:
                run.stop() if kind == "stop" else run.pause(bool(message["wanted"]))
            return
        if kind == "watch":
            span = message.get("span")
            self._watched = [str(name) for name in message["names"]]
            self._span = None if span is None else (float(span[0]), float(span[1]))
            self._seen.clear()
            return
        if kind == "couple":
            await self.studio.couple([str(name) for name in message["files"]])
            return
        state = self.studio.require(State.read(message.get("state")))
        if kind == "look":
            self.wanted = {**message, "state": state}
            self.changed.set()
        elif kind == "apply":
            await self.send(kind="applied", **await self.studio.change("apply", state))
        elif kind == "connect":
            ends: Message = {name: str(message[name]) for name in ("source", "target")}
            ends["sign"] = bool(message.get("sign"))
            await self.send(kind="connected", **ends, **await self.studio.connect(state, ends))
        elif kind == "take":
            taken = await self.studio.ask("recommended", state, options=str(message["options"]))
            await self.send(kind="taken", state=taken)
        elif kind == "freeze":
            outputs = [str(name) for name in message.get("outputs", [])]
            self.studio.begin(self._freeze(state, outputs))
        elif kind == "run":
            await self.studio.run(state)
        else:
            raise ConfigurationError(f"the page asks for '{kind}', which is not known; reload it.")

    async def _freeze(self, state: State, outputs: list[str]) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # closed meanwhile: the file is written all the same
            try:
                await self.send(kind="frozen", file=await self.studio.freeze(state, outputs))
            except CosimoError as error:
                await self.send(kind="error", text=str(error))

    # ---- the verdict ---------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            await self.changed.wait()
            self.changed.clear()
            assert self.wanted is not None
            wanted = self.wanted
            try:
                description = await self._at_once(wanted)
            except CosimoError as error:
                await self.send(kind="error", text=str(error), key=wanted["key"])
                continue
            if description is not None:
                await self._at_rest(wanted, description)

    async def _at_rest(self, wanted: Message, description: Message) -> None:
        """All else of a state, until the controls move: the other positions of the slider, and the full verdict.

        Where the equations are known, a position takes milliseconds and nobody waits for it; units are identified when
        the controls rest.
        """
        verdict, changed = self.studio.begin(self._judge(wanted)), asyncio.create_task(self.changed.wait())
        try:
            try:
                if description["known"] or not await self._moves():
                    await self._fill(wanted, description)
            except CosimoError as error:
                await self.send(kind="error", text=str(error), key=wanted["key"])
            await asyncio.wait({verdict, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:  # nobody waits until the process of a verdict has ended
            verdict.cancel()
            changed.cancel()

    async def _at_once(self, wanted: Message) -> Message | None:
        """What the page shows of a state first; None where the controls have moved on meanwhile."""
        state = wanted["state"]
        description: Message = await self.studio.ask("describe", replace(state, step=None))
        await self._tell(wanted, "description", **description)
        if self.changed.is_set():
            return None
        if description["live"]:
            await self._position(wanted, state, state.step or description["step"])
        await self._tell(wanted, "text", **await self.studio.ask("text", state))
        return None if self.changed.is_set() else description

    async def _position(self, wanted: Message, state: State, step: float) -> None:
        """One position of the slider: its verdict, and the trajectories of the outputs that the page shows."""
        outputs = [str(name) for name in wanted.get("outputs", [])]
        try:
            found = await self.studio.ask("frame", state, outputs=outputs)
        except ConfigurationError as error:  # this position alone
            await self._tell(wanted, "gap", step=step, text=str(error))
        else:
            await self._tell(wanted, "frame", *outputs, **found)

    async def _curve(self, wanted: Message, steps: list[float]) -> None:
        """Growth over all steps, in parts, so that whoever moves the slider meanwhile waits for one of them at most."""
        parts: list[Message] = []
        for begin in range(0, len(steps), CURVE):
            if self.changed.is_set():
                return
            part = {"steps": steps[begin : begin + CURVE]}
            parts.append(await self.studio.ask("curve", replace(wanted["state"], step=None), **part))
        joined = {name: [one for part in parts for one in part[name]] for name in ("steps", "growth", "stable")}
        await self._tell(wanted, "curve", **joined, own=parts[0]["own"])

    async def _tell(self, wanted: Message, kind: str, *about: str, **told: Any) -> None:
        """Send an answer, unless the page has it: it keeps all that came under one key."""
        if self._told_under != wanted["key"]:
            self._told_under, self._told = wanted["key"], set()
        what = (kind, told.get("frame", told).get("step"), *about)
        if what not in self._told:
            self._told.add(what)
            await self.send(kind=kind, key=wanted["key"], **told)

    async def _moves(self) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), REST)
        return self.changed.is_set()

    async def _judge(self, wanted: Message) -> None:
        await asyncio.sleep(REST)
        with suppress(WebSocketDisconnect, RuntimeError):  # closed meanwhile
            await self.send(kind="judging", key=wanted["key"], step=wanted["state"].step)
            try:
                found = await self.studio.verdict(wanted["state"])
            except CosimoError as error:
                await self.send(kind="error", key=wanted["key"], text=str(error))
                return
            told = {"verdict": finite(found), "shares": contributions(found)}
            await self.send(kind="verdict", key=wanted["key"], step=wanted["state"].step, **told)

    async def _fill(self, wanted: Message, description: Message) -> None:
        """The other positions of the slider, nearest first, so that moving it shows what is there already."""
        state = wanted["state"]
        wires = await self.studio.ask("wires", state)
        await self.send(kind="wires", key=wanted["key"], step=state.step, wires=wires)
        if not description["live"]:
            return
        await self._curve(wanted, description["steps"])
        here = math.log(state.step or description["step"])
        nearest = sorted(description["steps"], key=lambda step: abs(math.log(step) - here))
        for step in nearest:
            if self.changed.is_set():
                return
            await self._position(wanted, state.at(step), step)
        for step in description["rungs"]:
            if self.changed.is_set():
                return
            points = await self.studio.ask("front", replace(state, step=None, master=None, target=None), at=step)
            await self._tell(wanted, "front", step=step, points=points)
        await self.send(kind="filled", key=wanted["key"])

    # ---- runs ----------------------------------------------------------------------------------------------------

    async def _stream(self) -> None:
        before: list[Message] = []
        while True:
            await self.refresh()
            told = [run.fields() for run in self.studio.runs.values()]
            if told != before:
                await self.send(kind="runs", runs=told)
                before = told
            for message in await asyncio.to_thread(lambda: list(self._samples())):
                async with self._sending:
                    await self.socket.send_bytes(message)
            await asyncio.sleep(BEAT)

    def _samples(self) -> Iterator[bytes]:
        """The watched signals that have new rows: number of the run and of the signal, times, values."""
        span = self._span
        for run in list(self.studio.runs.values()):
            for name in set(self._watched) & set(run.signals.names):
                if self._seen.get((run.number, name)) != run.changed:
                    self._seen[run.number, name] = run.changed
                    time, values = run.signal(name, span)
                    head = struct.pack("<II", run.number, run.signals.names.index(name))
                    yield head + np.concatenate([time, values]).astype("<f8").tobytes()


def bind(port: int) -> socket.socket:
    """A socket of this machine alone; port 0: any that is free."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        found.close()
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"port {port} cannot be used: {why}; give another --port.") from None
    return found


def serve(studio: Studio, opened: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `ready` gets the address when the page can be opened."""
    port = opened.getsockname()[1]
    studio.guard.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
    config = uvicorn.Config(
        studio.guard,
        log_level="error",
        ws="websockets-sansio",
        ws_max_size=LARGEST_MESSAGE,
        limit_concurrency=MOST_CONNECTIONS,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    server = _Server(config, lambda: ready(f"http://127.0.0.1:{port}/{studio.token}/"), studio.close)
    server.run(sockets=[opened])


class _Server(uvicorn.Server):
    """Says when it is ready, and ends what the studio has started."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], close: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._ready, self._close = ready, close

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._close()
        await super().shutdown(sockets)
