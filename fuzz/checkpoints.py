"""Checkpoints, as `cosimo resume` reads them before it goes on: raw bytes, and such whose checksum fits.

An input begins with a letter: `r` is a file as it is; `c` is text and blocks, with length and checksum put around
it, so that mutated content gets past them; `n` is the same, resumed without a system, which the checkpoint names. What
is recognised is put into fresh units, and the macro step after it is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.dictionary import words
from fuzz.places import folder

WORDS = words(
    r"""
    tree blocks items state type shape at $ tuple dict bytes float scalar array random generator request output every
    fingerprint run step position iterations ranges stepping resumed_at careful memory after isolation versions cosimo
    path variables folder inputs units taken written level scenario settings master name system two-mass iterative
    gauss-seidel hold1 sweeps 1e-10 kernel reference monitors flush_interval
    <f8 <i8 |b1 >f4 O null true -1 1e999 99999999999999999999 [] {} PCG64 MT19937
    """
)
CUT = b"\0%%"
"""Between the text and the blocks of an input."""
MODULES = (
    "cosimo.formats.resuming",
    "cosimo.execution.checkpoints",
    "cosimo.execution.running",
    "cosimo.formats.results",
)


def _case(name: str = "gauss-seidel") -> tuple[Any, Any]:
    from cosimo.masters.words import MasterOptions, build_master
    from cosimo.problems import two_mass

    system = two_mass()
    return system, build_master(system, 1e-2, MasterOptions(name))


def _metadata(name: str) -> dict[str, Any]:
    """As the command line writes them for a built-in problem."""
    return {"scenario": {"system": "two-mass", "settings": {}, "step": 1e-2, "master": {"name": name}}}


@cache
def _written(name: str = "gauss-seidel", kind: Any = "kernel") -> bytes:
    """The checkpoint of a run that was interrupted."""
    from cosimo.core.errors import Interrupted
    from cosimo.execution.options import Checkpoint, EngineOptions
    from cosimo.execution.running import run
    from cosimo.formats.results import ResultFile

    def stop(now: float, _: float) -> None:
        for thread in threading.enumerate():
            if thread.name == "checkpoint":
                thread.join()
        if now > 0.5:
            raise KeyboardInterrupt

    there = folder() / "interrupted"
    there.mkdir(exist_ok=True)
    output = ResultFile(there / "o.csv", flush_interval=0.0)
    with contextlib.suppress(Interrupted):
        run(
            *_case(name),
            stop=200.0,
            output=output,
            checkpoint=Checkpoint(every=0.0),
            progress=stop,
            metadata=_metadata(name),
            engine=EngineOptions(kind),
        )
    return Path(there, "o.csv.checkpoint").read_bytes()


def seeds() -> Iterator[bytes]:
    """A whole file, a cut one, and its content, with and without a system; other masters and engines."""
    whole = _written()
    yield b"r" + whole
    yield b"r" + whole[: len(whole) // 2]
    yield b"c" + _content(whole)
    yield b"n" + _content(whole)
    yield b"n" + _content(_written("iterative"))
    yield b"n" + _content(_written("jacobi", "reference"))
    yield b'c{"tree": null, "blocks": []}'


def _content(whole: bytes) -> bytes:
    from cosimo.execution.checkpoints import DIGEST, HEAD

    length = int.from_bytes(whole[len(HEAD) : len(HEAD) + 8], "little")
    return whole[len(HEAD) + 8 :][:length] + CUT + whole[len(HEAD) + 8 + length : -DIGEST]


def _take_up(found: Any) -> None:
    """As `execute` does, up to where the rows would be opened."""
    from cosimo.execution.session import EqualSteps, watch_of

    session = EqualSteps(found.system, found.master, found.options, 1, watch_of(found.system, found.options))
    try:
        session.take_up(found.saved)
    finally:
        session.release()


def check(data: bytes) -> None:
    """Read, recognise, and make one macro step; no rows are touched."""
    from cosimo.execution.checkpoints import HEAD
    from cosimo.formats.resuming import resumable

    content = data[1:]
    if data[:1] in (b"c", b"n"):
        text, _, blocks = content.partition(CUT)
        content = HEAD + len(text).to_bytes(8, "little") + text + blocks
        content += hashlib.sha256(content).digest()
    path = folder() / "a.checkpoint"
    path.write_bytes(content)
    _take_up(resumable(path, *(() if data[:1] == b"n" else _case())))
