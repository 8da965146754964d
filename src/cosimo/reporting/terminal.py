"""Text for terminals: colours where they can be seen, and compact tables."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

STYLES: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_GOOD = re.compile(r"(?<![\w-])(stable)(?![\w-])")
_BAD = re.compile(r"(?<![\w-])(UNSTABLE|unstable|NO|does not hold)(?![\w-])")


def colourful(stream: TextIO) -> bool:
    """Whether colours can be seen there: a terminal, and nobody said NO_COLOR (see no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """The text in these styles where the stream (standard output if left out) shows them, else as it is."""
    if not text or not styles or not colourful(stream or sys.stdout):
        return text
    return f"\x1b[{';'.join(STYLES[style] for style in styles)}m{text}\x1b[0m"


def highlight(text: str, stream: TextIO | None = None) -> str:
    """Verdicts in green and red, the first of several lines in bold; as it is where no colours are shown."""
    if not colourful(stream or sys.stdout):
        return text

    def coloured(line: str) -> str:
        line = _BAD.sub(lambda found: paint(found[1], "red", "bold", stream=stream), line)
        return _GOOD.sub(lambda found: paint(found[1], "green", stream=stream), line)

    first, newline, rest = text.partition("\n")
    head = first if not newline or _BAD.search(first) or _GOOD.search(first) else paint(first, "bold", stream=stream)
    return "\n".join([coloured(head), *map(coloured, rest.split("\n"))]) if newline else coloured(head)


def width_of(text: str) -> int:
    """Characters that are seen.

    >>> width_of("\\x1b[31mred\\x1b[0m")
    3
    """
    return len(_ESCAPES.sub("", text))


def table(rows: Sequence[Sequence[str]], header: Sequence[str], numbers: Sequence[int] = ()) -> list[str]:
    """Lines of columns two blanks apart; the columns in `numbers` are aligned to the right.

    >>> print("\\n".join(table([["one.x", "2.5"], ["two.force", "10"]], ["signal", "last"], numbers=[1])))
    signal     last
    one.x       2.5
    two.force    10
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(width_of(line[place]) for line in lines) for place in range(len(header))]

    def cell(text: str, place: int) -> str:
        blanks = " " * (widths[place] - width_of(text))
        return blanks + text if place in numbers else text + blanks

    return ["  ".join(cell(text, place) for place, text in enumerate(line)).rstrip() for line in lines]
