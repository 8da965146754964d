"""On which line of a TOML document a key stands. Python's reader checks the syntax but does not tell.

The document has been read before, so that it is known to be correct; what follows only has to keep count.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

Key = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"""(?:\\.|.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)
_PLAIN = re.compile(r"[^,\]}\n#]*")


class Lines:
    """The line of every key and every element of an array.

    >>> lines = Lines('a = 1\\n[units.tyre]\\nk = [\\n  1,\\n  2 ]\\n')
    >>> lines.of(["units", "tyre", "k", 1])
    5
    """

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._found: dict[Key, int] = {}
        self._arrays: dict[Key, int] = {}
        self._document()

    def of(self, path: Sequence[str | int]) -> int | None:
        """The line of the key, or of the nearest key around it."""
        for length in range(len(path), 0, -1):
            if (line := self._found.get(tuple(path[:length]))) is not None:
                return line
        return None

    def _document(self) -> None:
        table: Key = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self) -> Key:
        several = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if several else 1
        names = self._key()
        self._at += 2 if several else 1
        table: Key = ()
        for place, name in enumerate(names):
            table = (*table, name)
            if several and place == len(names) - 1:
                self._arrays[table] = self._arrays.get(table, -1) + 1
            self._found.setdefault(table, line)
            if table in self._arrays:
                table = (*table, self._arrays[table])
            self._found.setdefault(table, line)
        return table

    def _pair(self, table: Key) -> None:
        line = self._line()
        for name in self._key():
            table = (*table, name)
            self._found.setdefault(table, line)
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

    def _value(self, key: Key) -> None:
        opening = self._text[self._at]
        if opening not in "[{":
            self._skip(_STRING if opening in "\"'" else _PLAIN)
            return
        closing, count = {"[": "]", "{": "}"}[opening], 0
        self._at += 1
        self._skip(_BLANK)
        while self._text[self._at] != closing:
            if opening == "{":
                self._pair(key)
            else:
                self._found[*key, count] = self._line()
                self._value((*key, count))
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
