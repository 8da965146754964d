"""On which line of a TOML document a key stands. Python's reader checks the syntax but does not tell.

The document has been read before, so that it is known to be correct; what follows only has to keep count. Before that,
`deep_key` finds keys with so many parts that Python's reader, which looks at all beginnings of a key, takes minutes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

Key = tuple[str | int, ...]
PARTS = 20
"""Parts of one key. Scenarios need four or five; with 100, Python's reader takes 10 s for a megabyte of such keys."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LONG = r'"""(?:\\.|.)*?"{3,5}|\'\'\'.*?\'{3,5}'
_SHORT = r'"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
_STRING = re.compile(f"{_LONG}|{_SHORT}", re.DOTALL)
_PLAIN = re.compile(r"[^,\]}\n#]*")
# Written so that nothing is looked at twice: a text that is not TOML must not take long either.
_NAME = f"(?>{_LONG}|(?!\"\"\"|''')(?:{_SHORT})|{_BARE_KEY.pattern})"
_DOT = r"[ \t]*+\.[ \t]*+"
_TOKEN = re.compile(
    rf"{_NAME}(?:{_DOT}{_NAME}){{0,{PARTS - 1}}}+(?P<deep>{_DOT}{_NAME})?|(?P<open>[\"'])|#[^\n]*|[^\"'#A-Za-z0-9_-]+",
    re.DOTALL,
)


def deep_key(text: str) -> int | None:
    """The line of the first key of more than `PARTS` parts, in a document that has not been read yet.

    >>> deep_key("a = 1\\n" + "b." * 20 + "b = 2")
    2
    """
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "open":  # a string that never ends; Python's reader gets no further either
            return None
        if found.lastgroup == "deep":
            return text.count("\n", 0, found.start()) + 1
    return None


@dataclass(slots=True)
class _Node:
    """A key by its last part, below the node of the others: memory grows with the document, however long keys are."""

    line: int | None = None
    parts: dict[str | int, _Node] | None = None
    tables: int = 0
    """How many tables an array of tables has so far."""

    def at(self, part: str | int, line: int) -> _Node:
        """The node of a further part, which first stands on this line."""
        if self.parts is None:
            self.parts = {}
        if (node := self.parts.get(part)) is None:
            node = self.parts[part] = _Node(line)
        return node


class Lines:
    """The line of every key and every element of an array.

    >>> lines = Lines('a = 1\\n[units.tyre]\\nk = [\\n  1,\\n  2 ]\\n')
    >>> lines.of(["units", "tyre", "k", 1])
    5
    """

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._root = _Node()
        self._document()

    def of(self, path: Sequence[str | int]) -> int | None:
        """The line of the key, or of the nearest key around it."""
        node = self._root
        for part in path:
            if node.parts is None or part not in node.parts:
                break
            node = node.parts[part]
        return node.line

    def _document(self) -> None:
        table = self._root
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self) -> _Node:
        several = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if several else 1
        names = self._key()
        self._at += 2 if several else 1
        table = self._root
        for place, name in enumerate(names):
            table = table.at(name, line)
            if several and place == len(names) - 1:
                table.tables += 1
            if table.tables:
                table = table.at(table.tables - 1, line)
        return table

    def _pair(self, table: _Node) -> None:
        line = self._line()
        for name in self._key():
            table = table.at(name, line)
        self._at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(table)

    def _key(self) -> list[str]:
        names = []
        while True:
            self._skip(_SPACE)
            begin = self._at
            quoted = self._text[begin] in "\"'"
            self._skip(_STRING if quoted else _BARE_KEY)
            word = self._text[begin : self._at]
            names.append(_unquote(word) if quoted else word)
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _value(self, node: _Node) -> None:
        opening = self._text[self._at]
        if opening not in "[{":
            self._skip(_STRING if opening in "\"'" else _PLAIN)
            return
        closing, count = {"[": "]", "{": "}"}[opening], 0
        self._at += 1
        self._skip(_BLANK)
        while self._text[self._at] != closing:
            if opening == "{":
                self._pair(node)
            else:
                self._value(node.at(count, self._line()))
                count += 1
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_BLANK)
        self._at += 1

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._at)
        if found is not None:
            self._at = found.end()

    def _line(self) -> int:
        return bisect_left(self._ends, self._at) + 1


def _unquote(word: str) -> str:
    """A quoted key as it is meant."""
    if word[0] == "'":
        return word[1:-1]
    import tomllib

    return str(tomllib.loads(f"k = {word}")["k"])
