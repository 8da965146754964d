"""Text for terminals: colours where they can be seen."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from cosimo.core.document import Mark

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
MARKS: Mapping[Mark, tuple[str, ...]] = {
    "good": ("green",),
    "care": ("yellow",),
    "bad": ("red", "bold"),
    "open": ("dim",),
}
"""The styles of a headline by its mark."""


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


def paint_mark(text: str, mark: Mark, stream: TextIO | None = None) -> str:
    """A headline in the colour of its mark; as it is where no colours are shown."""
    return paint(text, *MARKS[mark], stream=stream)
