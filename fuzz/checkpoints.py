"""Checkpoints, as `cosimo resume` reads them before it goes on: raw bytes, and such whose checksum fits.

An input begins with a letter: `r` is a file as it is; `c` is text and blocks, with length and checksum put around
it, so that mutated content gets past them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
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
    path variables flush_interval <f8 <i8 |b1 >f4 O null true -1 1e999 99999999999999999999 [] {} PCG64 MT19937
    """
)
CUT = b"\0%%"
"""Between the text and the blocks of an input."""
MODULES = ("cosimo.resuming", "cosimo.checkpoints", "cosimo.execution", "cosimo.formats.results")


def load() -> None:
    """Import what is tested."""
    for name in MODULES:
        importlib.import_module(name)


def _case() -> tuple[Any, Any]:
    from cosimo.masters import gauss_seidel
    from cosimo.problems import two_mass

    system = two_mass()
    return system, gauss_seidel(system, step=1e-2)


@cache
def _written() -> bytes:
    """The checkpoint of a run that was interrupted."""
    from cosimo.checkpoints import Checkpoint
    from cosimo.core.errors import Interrupted
    from cosimo.execution import run
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
        run(*_case(), stop=200.0, output=output, checkpoint=Checkpoint(every=0.0), progress=stop)
    return Path(there, "o.csv.checkpoint").read_bytes()


def seeds() -> Iterator[bytes]:
    """A whole file, a cut one, and its content."""
    from cosimo.checkpoints.files import DIGEST, HEAD

    whole = _written()
    yield b"r" + whole
    yield b"r" + whole[: len(whole) // 2]
    length = int.from_bytes(whole[len(HEAD) : len(HEAD) + 8], "little")
    text, blocks = whole[len(HEAD) + 8 :][:length], whole[len(HEAD) + 8 + length : -DIGEST]
    yield b"c" + text + CUT + blocks
    yield b'c{"tree": null, "blocks": []}'


def check(data: bytes) -> None:
    """Read and recognise; nothing is run."""
    from cosimo.checkpoints.files import HEAD
    from cosimo.resuming import resumable

    content = data[1:]
    if data[:1] == b"c":
        text, _, blocks = content.partition(CUT)
        content = HEAD + len(text).to_bytes(8, "little") + text + blocks
        content += hashlib.sha256(content).digest()
    path = folder() / "a.checkpoint"
    path.write_bytes(content)
    resumable(path, *_case())
