"""How every verb speaks: text or one JSON document, quiet, usual or verbose, with colours only on a terminal.

Results go to standard output. All else goes to standard error: warnings, details (`--verbose`), what to do next (only
where somebody sits at a terminal). With `--quiet` only errors are left, and the document where `--json` asks for it.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from typing import Annotated, Any, ClassVar

from cosimo.cli.option_groups import OptionGroup, option
from cosimo.core import dataclass
from cosimo.core.document import Document, as_json, as_text, paint, paint_mark
from cosimo.core.errors import ConfigurationError, OutputError

_VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)


@dataclass(frozen=True)
class Loudness(OptionGroup):
    """How much a verb says."""

    title: ClassVar[str | None] = "Messages"
    quiet: Annotated[bool, option("Print errors only; the exit code says the rest.", "--quiet", "-q")] = False
    verbose: Annotated[
        bool, option("Also print what was loaded and chosen, and how long it took.", "--verbose", "-v")
    ] = False
    last: ClassVar[bool] = True

    @contextmanager
    def around(self, given: Mapping[str, Any]) -> Iterator[None]:
        if self.quiet and self.verbose:
            raise ConfigurationError("--quiet and --verbose contradict each other; give one of them.")
        with ExitStack() as stack:
            if self.quiet:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(redirect_stderr(nowhere))
                if not given.get("json_"):
                    stack.enter_context(redirect_stdout(nowhere))
            stack.callback(_VERBOSE.reset, _VERBOSE.set(self.verbose))
            begin = time.perf_counter()
            yield
            detail(f"done in {time.perf_counter() - begin:.3g} s")


_PLAIN = {"µ": "u", "→": "->", "×": "x", "–": "-", "−": "-", "…": "...", "ρ": "rho", "Φ": "Phi", "±": "+-", "≤": "<="}
"""Plain replacements for characters that the encoding of a stream lacks."""


def _in_plain_characters(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_PLAIN.get(c, "?") for c in error.object[error.start : error.end]), error.end


def make_streams_sound() -> None:
    """Replace closed streams by a sink, and characters that a stream cannot encode (ASCII, Latin-1) by plain ones."""
    codecs.register_error("plain", _in_plain_characters)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  for the life of the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


@contextmanager
def writing_to_streams() -> Iterator[None]:
    """Turn a failed write to standard output inside the block, such as on a full disk, into an OutputError.

    A pipe whose reader has gone is an invalid argument for Windows; elsewhere typer knows it, and ends without a word.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        gone = sys.platform == "win32" and error.errno == errno.EINVAL and error.filename is None
        if not gone and error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT):
            raise
        _drop(1)
        reason = "nobody reads it any more" if gone else error.strerror
        raise OutputError(f"standard output cannot be written: {reason}.") from None


def say(content: Any) -> None:
    """Print text as it is, anything else as one JSON document, which loses no character in any encoding."""
    if isinstance(content, str):
        print(content)
    else:
        narrow = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        print(json.dumps(content, ensure_ascii=narrow, allow_nan=False))


def present(document: Document, *, as_fields: bool, details: bool = True) -> None:
    """Print a document: as JSON, or as text with its headline in the colour of its mark."""
    say(as_json(document) if as_fields else as_text(document, details=details, paint=paint_mark))


def warn(text: object) -> None:
    """Something the user should know, though the verb goes on."""
    print(f"{paint('warning:', 'yellow', 'bold', stream=sys.stderr)} {text}", file=sys.stderr)


def detail(text: str) -> None:
    """What only `--verbose` shows."""
    if _VERBOSE.get():
        print(paint(text, "dim", stream=sys.stderr), file=sys.stderr)


def hint(command: str) -> None:
    """What could be done next; for people, so only on a terminal."""
    if sys.stdout.isatty():
        print(paint(f"next: {command}", "dim", stream=sys.stderr), file=sys.stderr)


def complain(error: object, document: Any = None) -> None:
    """An error, on one line, and its document; where one cannot be written, the exit code still tells."""
    try:
        print(f"{paint('cosimo:', 'red', 'bold', stream=sys.stderr)} {error}", file=sys.stderr, flush=True)
    except OSError:
        _drop(2)
    try:
        if document is not None:
            say(document)
            sys.stdout.flush()
    except OSError:
        _drop(1)


def _drop(stream: int) -> None:
    """What is left in the buffer must not be tried again when the interpreter ends: that changes the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
