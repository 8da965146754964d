"""Python programs in processes of their own that begin with everything imported: `Popen` and `run` as in `subprocess`.

A process that has imported the package and its libraries (the *template*) is started once; a command that begins with
`sys.executable` and `-m`, `-c` or a file is a fork of it. That is a real process, with its own signals, exit code,
terminal and temporary files, and takes some 20 ms of processor time before its first line of code, where an interpreter
with the same imports takes one to three seconds. It becomes a child of this process, so that waiting and killing work
as with any other.

What a fork cannot show stays a new interpreter: other options, `preexec_fn`, variables that are read at the start
(`PYTHON*`, `LC_*`, `LD_*`); and tests of what is imported or of the interpreter's end, which call `subprocess`. In
`make test-all` (COSIMO_TESTS=all, see `thinning.py`) there are no forks at all.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

COSIMO = [sys.executable, "-m", "cosimo.cli"]
PLAIN = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
"""The environment without wishes about colours."""
ALL_CHARACTERS = {"PYTHONUTF8": "1"} if sys.platform == "win32" else {}
"""For the environment, with an `encoding` of UTF-8: on Windows a pipe has fewer characters than a console."""
ALL = os.environ.get("COSIMO_TESTS") == "all"
SUBREAPER = 36
"""Of prctl(2): who has it becomes the parent of grandchildren whose parent ends."""
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""How variables begin that are read when an interpreter starts."""
OPTIONS = ("-m", "-c", "-Werror")
"""Options of the interpreter that a fork follows."""
LIBRARIES = (
    "fmpy", "lxml.etree", "matplotlib.figure", "pyarrow.csv", "pyarrow.parquet", "pydantic", "rich.live",
    "rich.progress", "scipy.integrate", "scipy.io", "scipy.optimize", "scipy.signal",
    "scipy.stats", "typer.rich_utils",
)  # fmt: skip
"""What verbs import when they need it."""
FORKABLE = {"jemalloc_bg_thd"}
"""Threads of libraries that see to it themselves that a fork is sound: one of Arrow's allocators."""
LARGEST = 1 << 20
"""Bytes of a request: command, folder and environment."""


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """As `subprocess.Popen`, but a fork of the template where that makes no difference."""

    def _execute_child(self, *given: Any) -> None:
        if sys.platform == "win32":  # which has no forks
            super()._execute_child(*given)  # type: ignore[misc]
            return
        asked = inspect.signature(super()._execute_child).bind(*given).arguments  # type: ignore[misc]
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        if not _forkable(asked, environment):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        request = {
            "words": [os.fspath(word) for word in asked["args"][1:]],
            "folder": os.fspath(asked["cwd"] or os.getcwd()),
            "environment": {name: os.fspath(value) for name, value in environment.items()},
            "session": asked["start_new_session"],
        }
        ends = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
        self.pid = _template().fork(request, [number if end == -1 else end for number, end in enumerate(ends)])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pipes))  # type: ignore[attr-defined]


def run(args: Any, *, check: bool = False, timeout: float | None = None, **options: Any) -> Any:
    """As `subprocess.run` without input."""
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(args, **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        finally:
            process.kill()
    done = subprocess.CompletedProcess(args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


def at_terminal(*arguments: str, cwd: Path, **more: str) -> tuple[int, str]:
    """Exit code, and all that a person at a terminal sees."""
    import pty

    main, side = pty.openpty()
    environment = {**PLAIN, "OPENBLAS_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "140", **more}
    process = Popen([*COSIMO, *arguments], cwd=cwd, stdin=side, stdout=side, stderr=side, env=environment)
    os.close(side)
    seen = b""
    try:
        while chunk := os.read(main, 65536):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(main)
        code = process.wait(timeout=300)
    return code, seen.decode()


def _forkable(asked: dict[str, Any], environment: dict[str, str]) -> bool:
    """Whether the command is a Python program that a fork executes like a new interpreter."""
    words = asked["args"]
    same = all(
        environment.get(name) == os.environ.get(name)
        for name in {*environment, *os.environ}
        if name.startswith(AT_START)
    )
    python = isinstance(words, list | tuple) and len(words) > 1 and words[0] == sys.executable
    fresh = ALL or sys.platform != "linux"
    special = asked["preexec_fn"] or asked["pass_fds"] or asked["shell"] or asked["executable"]
    return python and same and not fresh and not special and (words[1] in OPTIONS or not str(words[1]).startswith("-"))


@functools.cache
def _template() -> _Template:
    return _Template()


class _Template:
    """The process that is forked, and the socket on which it is asked to."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        atexit.register(self._end)

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """Start the command with these file descriptors as 0, 1 and 2, and return its process id."""
        with _adopting():
            socket.send_fds(self.socket, [json.dumps(request).encode()], streams)
            answer = self.socket.recv(100)
        if not answer:
            raise RuntimeError("the process that is forked for tests has ended; see what it said on standard error")
        return int(answer)

    def _end(self) -> None:
        self.socket.close()
        self.process.wait()


@contextmanager
def _adopting() -> Iterator[None]:
    """Processes that lose their parent meanwhile become children of this one."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(SUBREAPER, 0, 0, 0, 0)


# ---- in the template and its forks -----------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> None:
    """Fork for every request; returns when nobody is there any more."""
    _import_everything()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, streams, _, _ = socket.recv_fds(requests, LARGEST, 3)
        if not data:
            return
        reading, writing = os.pipe()
        between = os.fork()
        if not between:  # ends at once, so that who asked becomes the parent of the fork
            child = os.fork()
            if not child:
                for number in (reading, writing):
                    os.close(number)
                requests.close()
                _become(json.loads(data), streams)
            os.write(writing, str(child).encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(between, 0)
        requests.send(os.read(reading, 100))
        for number in (reading, *streams):
            os.close(number)


def _import_everything() -> None:
    import cosimo

    names = [module.name for module in pkgutil.walk_packages(cosimo.__path__, "cosimo.")]
    for name in (*names, *LIBRARIES):
        if not name.endswith("__main__"):
            with suppress(ImportError):  # of extras that are not installed
                importlib.import_module(name)
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    if others := sorted(set(threads[1:]) - FORKABLE):
        raise RuntimeError(f"the imports start threads {others}, which do not survive a fork")
    gc.collect()
    gc.freeze()


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Turn this fork into the command, to its end."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    modes = (("stdin", "r", "strict"), ("stdout", "w", "strict"), ("stderr", "w", "backslashreplace"))
    for number, (name, mode, errors) in enumerate(modes):
        file = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        if isinstance(file, io.TextIOWrapper) and mode == "w":
            file.reconfigure(line_buffering=name == "stderr" or file.isatty())
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    code: object = 0
    try:
        os.chdir(request["folder"])
        _execute(request["words"])
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            file.flush()
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _execute(words: list[str]) -> None:
    """What the interpreter does with the words after its name."""
    if words[0] == "-Werror":
        warnings.simplefilter("error")
        words = words[1:]
    first, *rest = words
    sys.argv = [first, *rest[1:]] if first in ("-m", "-c") else words
    if first == "-m":
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    del sys.path[0]
    _serve(socket.socket(fileno=int(sys.argv[1])))
