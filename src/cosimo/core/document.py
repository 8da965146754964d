"""One document, four forms: what a verdict, a comparison, a tuning, a compensation or a study says.

A document has a mark (the traffic light), a headline, sentences, and sections of figures, tables and charts. A figure
and a table are written once, with the JSON field, the name for people, the value and its text; `as_text` (terminal),
`as_json`, `as_card` (notebook) and the report (`cosimo.reporting.report`) render them. To add a figure, add a `Figure`
to the section it belongs to: it then appears in all four.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from html import escape
from typing import Any, Literal, TextIO

from cosimo.core import dataclass
from cosimo.core.formatting import plain

Mark = Literal["good", "care", "bad", "open"]  # trust: yes, with care, no, not assessed
SIGNS: Mapping[Mark, str] = {"good": "✓", "care": "!", "bad": "✕", "open": "?"}
"""The mark does not rest on colour alone."""
COLOURS: Mapping[Mark, str] = {"good": "#12805c", "care": "#a16207", "bad": "#c8500a", "open": "#6b7280"}
WIDTH, MARGIN = 118, 28  # characters of a line on the terminal, and of the names in its margin
REMARKS = 30  # the least width of a column that is wrapped
CARD_ROWS = 12  # rows of a table in a notebook; the rest is counted


@dataclass(frozen=True)
class Figure:
    """One value: `key` is its JSON field (empty: none), `name` what people read (empty: JSON only), `unit` physical.

    `text` shows the value where its digits and `unit` are not enough; `note` explains it in a few words.

    >>> Figure("doubling_time", "doubling time", 0.16, unit="s").shown
    '0.16 s'
    """

    key: str
    name: str
    value: Any = None
    text: str = ""
    note: str = ""
    unit: str = ""

    @property
    def words(self) -> str:
        """The value for people."""
        value = f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)
        return self.text or f"{value} {self.unit}".rstrip()

    @property
    def shown(self) -> str:
        """The value with its explanation."""
        return f"{self.words}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True)
class Column:
    """A column of a table: `key` of its values and in JSON, `name` for people (empty: JSON only).

    `show` makes the text of a value; with `aside` the column is for people only, `html` is markup for notebooks.
    """

    key: str
    name: str = ""
    show: Callable[[Any], str] = str
    right: bool = True
    aside: bool = False
    html: bool = False


@dataclass(frozen=True)
class DocumentTable:
    """Rows of values by key of their column; people see those at `places`, or the first `most`. `chosen` is marked."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    note: str = ""
    most: int = 60
    chosen: int | None = None
    places: tuple[int, ...] | None = None

    @property
    def shown(self) -> tuple[int, ...]:
        """The places of the rows that people see."""
        return self.places if self.places is not None else tuple(range(min(self.most, len(self.rows))))

    @property
    def head(self) -> list[Column]:
        """The columns that people see."""
        return [column for column in self.columns if column.name]

    def cells(self) -> Iterator[list[str]]:
        """The rows that people see, as text."""
        for place in self.shown:
            yield [column.show(self.rows[place][column.key]) for column in self.head]

    @property
    def more(self) -> int:
        """How many rows are not shown."""
        return len(self.rows) - len(self.shown)


@dataclass(frozen=True)
class Section:
    """A part of a document; `brief` ones are printed by default, the others where details are asked for.

    `charts` are figures in the form of plotly, drawn on the page only.
    """

    key: str
    title: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[DocumentTable, ...] = ()
    charts: tuple[Mapping[str, Any], ...] = ()
    brief: bool = True


@dataclass(frozen=True)
class Document:
    """What is said: `title` (of what), `mark` and `headline` (can it be trusted), `sentences` (why), `advice`."""

    title: str
    mark: Mark
    headline: str
    sentences: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    commands: tuple[str, ...] = field(default=())  # what can be copied: a command, lines of a scenario
    advice: str = ""

    def section(self, key: str) -> Section | None:
        """The section with this key."""
        return next((section for section in self.sections if section.key == key), None)


# ---- JSON ------------------------------------------------------------------------------------------------------------


def attributes(things: Iterable[Any], columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Rows of a table: of each thing the attributes that the columns name."""
    keys = [column.key for column in columns]
    return [{key: getattr(thing, key) for key in keys} for thing in things]


def as_json(document: Document) -> dict[str, Any]:
    """All figures and tables by their keys; complex numbers as [re, im]; what is not finite is null."""
    fields: dict[str, Any] = {}
    for section in document.sections:
        for figure in section.figures:
            if figure.key:
                fields[figure.key] = plain(figure.value)
        for table in section.tables:
            keys = [column.key for column in table.columns if not column.aside]
            if table.key:
                fields[table.key] = [{key: plain(row[key]) for key in keys} for row in table.rows]
    return fields


# ---- terminal --------------------------------------------------------------------------------------------------------


def as_text(document: Document, *, details: bool = True, paint: Callable[[str, Mark], str] | None = None) -> str:
    """For the terminal: the headline, why and what to do, then figures and tables; all sections with `details`.

    `paint` colours the headline by the mark.
    """
    head = f"{document.title}. {document.headline.rstrip('.')}."
    lines = _wrapped(head, WIDTH, subsequent_indent="  ")
    if paint is not None:
        lines = [paint(line, document.mark) for line in lines]
    for sentence in (*document.sentences, *([document.advice] if document.advice else [])):
        lines += _wrapped(sentence, WIDTH, initial_indent="  ", subsequent_indent="  ")
    lines += [f"    {command}" for command in document.commands]
    for section in document.sections:
        if section.brief or details:
            part = [line for figure in section.figures if figure.name for line in _figure(figure)]
            for table in section.tables:
                shown = table_lines(table)
                part += [*([""] if part and shown else []), *shown]
            lines += ["", *part] if part else []
    return "\n".join(lines)


def _wrapped(text: str, width: int, **indents: Any) -> list[str]:
    """Lines of whole words; a number stays with its % or ×."""
    kept = text.replace(" %", "\u00a0%").replace(" ×", "\u00a0×")
    lines = textwrap.wrap(kept, width, break_on_hyphens=False, break_long_words=False, **indents)
    return [line.replace("\u00a0", " ") for line in lines]


def _figure(figure: Figure) -> list[str]:
    rows = _wrapped(figure.shown, WIDTH - MARGIN) or [""]
    return [f"  {figure.name if not place else '':<{MARGIN - 3}} {row}" for place, row in enumerate(rows)]


def table_lines(table: DocumentTable) -> list[str]:
    """A table as lines, by rich; without rows nothing."""
    rows = list(table.cells())
    if not rows or not table.head:
        return []
    from io import StringIO

    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    marked = table.chosen is not None
    widths = [max(len(column.name), *(len(row[i]) for row in rows)) + 2 for i, column in enumerate(table.head)]
    wide, last = sum(widths) + 4, table.head[-1]
    # The remarks in a last column are wrapped, unless the others leave too little room.
    wraps = not last.right and wide > WIDTH and wide - widths[-1] + REMARKS <= WIDTH
    for column in ([Column("", "")] if marked else []) + table.head:
        side: Literal["left", "right"] = "right" if column.right and column.name else "left"
        grid.add_column(Text(column.name), justify=side, no_wrap=not (wraps and column is last))
    for place, row in zip(table.shown, rows, strict=True):
        cells = ["→" if place == table.chosen else " "] if marked else []
        grid.add_row(*(Text(cell) for cell in (*cells, *row)))
    width = WIDTH - 2 if wraps else max(wide, WIDTH)
    console = Console(file=StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(grid)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [*([f"  {table.title}"] if table.title else []), *(f"  {line}".rstrip() for line in text.splitlines())]
    lines += [f"  … {table.more} more"] if table.more else []
    return lines + ([f"  {table.note}"] if table.note else [])


# ---- colours of the terminal, where they can be seen -----------------------------------------------------------------


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


# ---- notebook --------------------------------------------------------------------------------------------------------


def as_card(document: Document, *, signed: bool = True) -> str:
    """For notebooks: a small piece of HTML without scripts, the headline `signed` with the mark."""
    word = f"{SIGNS[document.mark]} {document.headline}" if signed else document.headline
    parts = [
        f'<div style="margin:.3em 0"><strong>{escape(document.title)}</strong> '
        f'<span style="color:{COLOURS[document.mark]};font-weight:600">{escape(word)}</span></div>'
    ]
    told = (*document.sentences, *([document.advice] if document.advice else []))
    parts += [f'<div style="margin:.2em 0">{escape(sentence)}</div>' for sentence in told]
    parts += [f"<pre>{escape(command)}</pre>" for command in document.commands]
    for section in document.sections:
        facts = "".join(
            f'<tr><td style="text-align:left;opacity:.65">{escape(figure.name)}</td>'
            f'<td style="text-align:left">{escape(figure.shown)}</td></tr>'
            for figure in section.figures
            if figure.name
        )
        parts += [f'<table style="margin:.3em 0">{facts}</table>'] if facts else []
        parts += [_card_table(table) for table in section.tables if table.rows and table.head]
    return f'<div class="cosimo">{"".join(parts)}</div>'


def _card_table(table: DocumentTable) -> str:
    def cell(tag: str, text: str, column: Column) -> str:
        shown = text if column.html and tag == "td" else escape(text)
        return f'<{tag} style="text-align:{"right" if column.right else "left"}">{shown}</{tag}>'

    top = "".join(cell("th", column.name, column) for column in table.head)
    rows = list(table.cells())
    body = "".join(
        f"<tr>{''.join(cell('td', text, column) for text, column in zip(row, table.head, strict=True))}</tr>"
        for row in rows[:CARD_ROWS]
    )
    more = len(table.rows) - min(len(rows), CARD_ROWS)
    left = f'<div style="opacity:.65">… {more} more</div>' if more else ""
    return f'<table style="margin:.3em 0"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{left}'
