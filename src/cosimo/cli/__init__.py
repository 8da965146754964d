"""The command line: arguments in, objects out. Everything heavy is imported inside the verbs.

Loading even the light parts takes a moment, in which Ctrl-C and its like are answered already (`main`).
"""

from __future__ import annotations

import _io
import atexit
import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from cosimo.core.guarding import SIGNALS

__all__ = ["app", "main"]

_MODULES = {
    "analyse": ("analyse", "analyze"),
    "files": ("new", "info", "validate", "check-fmu", "export"),
    "hosts": ("worker", "federate"),
    "papers": ("problems", "reproduce"),
    "plot": ("plot",),
    "report": ("report", "studio", "evaluate"),
    "run": ("run", "resume"),
    "studies": ("compensate", "compare", "sweep"),
    "tune": ("tune",),
}
"""The verbs that each module of this package has."""
BETWEEN_COLLECTIONS = 100_000
"""New objects between two searches for cycles; Python's 700 are for less than what is loaded here."""


class Interruption:
    """What a signal that comes while no verb is at work is answered with; before it, also the document of `--json`."""

    state = "nothing was written"
    answers = True
    output: Any = None
    """The file that the verb writes rows to."""
    code: int | None = None
    """With what the process ends."""


def main() -> None:
    """Run the command line, as `cosimo` does."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, _end)
    sys.unraisablehook = _say_nothing_of_interrupts
    atexit.register(_leave)  # the first to be registered is called last
    gc.set_threshold(BETWEEN_COLLECTIONS)
    try:
        _load(*sys.argv[1:2]).main()
    except SystemExit as end:
        if Interruption.code is None and isinstance(end.code, int):
            Interruption.code = end.code
        raise


def _say_nothing_of_interrupts(found: Any) -> None:
    """One that came while Python called a finaliser gets lost there; the run raises it again."""
    if not issubclass(found.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(found)


def _leave() -> None:
    """End at once, with all that is still in buffers written: taking modules apart one by one takes 0.1 s.

    It also keeps the code: an exception that passed through `exec`, as in what dataclasses do, makes Python end itself
    by SIGINT. After an error that is none of ours, Python ends as usual.
    """
    if Interruption.code is None:
        return
    files = [one for one in gc.get_objects() if issubclass(type(one), _io._IOBase)]
    for stream in (*files, sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    if "ctypes" in sys.modules:  # what units print
        sys.modules["ctypes"].CDLL("ucrtbase" if os.name == "nt" else None).fflush(None)
    os._exit(Interruption.code)


def _end(number: int, frame: object) -> NoReturn:
    code, said = 128 + number, f"interrupted; {Interruption.state}."
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(OSError):
        if Interruption.answers and "--json" in sys.argv:
            os.write(1, f'{{"error": "{said}", "exit_code": {code}}}\n'.encode())
        os.write(2, f"cosimo: {said}\n".encode())
    os._exit(code)


def _load(word: str = "") -> Any:
    """The application: with the verb that the command line begins with, or with all where it begins otherwise."""
    for name in [name for name, verbs in _MODULES.items() if word in verbs] or _MODULES:
        import_module(f"cosimo.cli.{name}")
    application: Any = import_module("cosimo.cli.application")
    order = [*application.EXAMPLES, "evaluate"]
    application.app.registered_commands.sort(key=lambda command: order.index(application.word_of(command.callback)))
    return application


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'cosimo.cli' has no attribute '{name}'")
    return _load().app
