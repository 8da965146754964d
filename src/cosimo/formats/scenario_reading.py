"""Reading a scenario file: TOML, checked against the model, with file, line and key in every message."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cosimo.core import dataclass
from cosimo.core.errors import FileFindings, Place, UnknownNameError, nearest, require_regular
from cosimo.formats.scenario_tables import ScenarioTable, check_scenario, known_keys
from cosimo.units.archives import ArchiveLimits, read_text
from cosimo.units.fmi.model_exchange import KINDS

_WANTED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a positive number",
    "greater_than_equal": "1 or more",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a table",
    "string_type": "a text",
}


@dataclass(frozen=True)
class Source:
    """A scenario file that was read: where it is and on which line what stands."""

    path: Path
    lines: Lines

    def place(self, *key: str | int) -> Place:
        """Where the key stands."""
        return Place(str(self.path), self.lines.of(key))

    @contextmanager
    def collecting(self, findings: FileFindings, *key: str | int) -> Iterator[None]:
        """Keep an error in what stands under the key, with its place, and go on after the block."""
        place = self.place(*key)
        with findings.collect(place), place.blame(show_key(key)):
            yield

    def near(self, file: str) -> Path:
        """A file named in the scenario: relative names count from the scenario's folder."""
        return self.path.parent / file


def read_scenario(
    path: Path, findings: FileFindings, limits: ArchiveLimits | None = None
) -> tuple[ScenarioTable, Source]:
    """The scenario in a file; raises the first of all errors that `findings` then holds."""
    require_regular(path)
    content = read_text(path, limits or ArchiveLimits.from_environment())
    try:
        text = content.decode("utf-8").replace("\r\n", "\n")
        if (deep := deep_key(text)) is not None:
            raise Place(str(path), deep).error(f"a key has more than {PARTS} parts; put names with dots in quotes.")
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Place(str(path), line).error("the text is not UTF-8; save the file in this encoding.") from None
    except (ValueError, RecursionError) as error:
        at = re.search(r" \(at line (\d+), column \d+\)", str(error))
        reason = str(error).replace(at[0], "") if at else str(error).replace(" (at end of document)", " at the end")
        raise Place(str(path), int(at[1]) if at else None).error(f"not valid TOML: {reason}.") from None
    source = Source(path, Lines(text))
    scenario, problems = check_scenario(data)
    for key, message in sorted(_explain(problems, data), key=lambda found: source.place(*found[0]).line or 0):
        place = source.place(*key)
        findings.fail(place.error(f"{show_key(key)}: {message}" if key else message), place)
    findings.require_no_errors()
    assert scenario is not None
    return scenario, source


def read_annotation(text: str, place: Place) -> ScenarioTable:
    """The scenario that a package carries with it: the keys of a scenario file, written as JSON."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise place.error(f"the annotation of cosimo is not JSON: {error}; remove it.") from None
    scenario, problems = check_scenario(data if isinstance(data, dict) else {})
    if scenario is None:
        key, message = _explain(problems, data if isinstance(data, dict) else {})[0]
        raise place.error(f"the annotation of cosimo: {show_key(key)}{': ' * bool(key)}{message}")
    return scenario


def show_key(key: Sequence[str | int]) -> str:
    """The key as it would be written in the file.

    >>> show_key(["units", "left wheel", "A", 0])
    'units."left wheel".A[0]'
    """
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch("[A-Za-z0-9_-]+", part) else f'"{part}"')
    return text


@dataclass(frozen=True)
class _Located:
    """A problem with its key in the file; `choice` is the key with several branches it belongs to, and the branch."""

    problem: dict[str, Any]
    key: Key
    choice: tuple[Key, str]


def _explain(problems: list[dict[str, Any]], data: Mapping[str, Any]) -> list[tuple[Key, str]]:
    """Key and sentence of each problem. Of the branches of a choice, those that got furthest say what is wrong."""
    located = [_locate(problem, data) for problem in problems]
    reach: dict[Key, int] = {}
    for item in located:
        reach[item.choice[0]] = max(reach.get(item.choice[0], 0), len(item.key))
    far = {item.choice for item in located if len(item.key) == reach[item.choice[0]]}
    found: dict[Key, list[dict[str, Any]]] = {}
    for item in located:
        if item.choice in far:
            found.setdefault(item.key, []).append(item.problem)
    return [(key, _sentence(same)) for key, same in found.items()]


def _locate(problem: dict[str, Any], data: Any) -> _Located:
    """The place in the file: what is not in the data was added by the checker, to name the branch of a choice."""
    key: Key = ()
    choice: tuple[Key, str] = ((), "")
    for place, part in enumerate(problem["loc"]):
        # The kind of a unit is such a branch, and may be named like a key: 'fmu'.
        kind = place == 2 and problem["loc"][0] == "units"
        found = None if kind else _member(data, part)
        if found is None:
            choice = (key, str(part))
        else:
            key, data = (*key, found), data[found]
    if problem["type"] == "missing":
        key, choice = (*key, problem["loc"][-1]), ((*key, problem["loc"][-1]), "")
    return _Located(problem, key, choice)


def _member(data: Any, part: str | int) -> str | int | None:
    """The key under which the data has `part`, as it is or in snake case."""
    if isinstance(part, int):
        return part if isinstance(data, list) else None
    return next((name for name in (part, part.replace("-", "_")) if isinstance(data, dict) and name in data), None)


def _sentence(problems: list[dict[str, Any]]) -> str:
    kind, context, given = problems[0]["type"], problems[0].get("ctx", {}), problems[0]["input"]
    if kind == "union_tag_invalid":
        fmu = isinstance(given, dict) and "fmu" in given
        return str(UnknownNameError("kind of unit", context["tag"], KINDS if fmu else ScenarioTable.kinds))
    if kind == "union_tag_not_found" and isinstance(given, dict) and "kind" in given:
        known = KINDS if "fmu" in given else ScenarioTable.kinds
        return f"kind must be one of {', '.join(known)}, not {_short(given['kind'])}."
    if kind == "union_tag_not_found":
        return f"a unit is a table with 'fmu' (a path) or 'kind' ({', '.join(ScenarioTable.kinds)})."
    if kind == "extra_forbidden":
        where = problems[0]["loc"]
        return str(UnknownNameError("key", str(where[-1]), known_keys(where)))
    if kind == "missing":
        return "the key is missing."
    if kind == "literal_error":
        near = nearest(str(given), re.findall("'([^']*)'", context["expected"]))
        return f"must be {context['expected']}, not {given!r}{f'; did you mean {near!r}?' if near else '.'}"
    if kind == "string_pattern_mismatch":
        return f"must be written 'file.py:Class' or 'module:Class', not {given!r}."
    wanted = dict.fromkeys(_WANTED[problem["type"]] for problem in problems if problem["type"] in _WANTED)
    if wanted:
        return f"must be {' or '.join(wanted)}, not {_short(given)}."
    return str(problems[0]["msg"]).rstrip(".") + "."


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# ---- on which line of a TOML document a key stands. Python's reader checks the syntax but does not tell --------------
# The document has been read before, so that it is known to be correct; what follows only has to keep count. Before,
# `deep_key` finds keys with so many parts that Python's reader, which looks at all beginnings of a key, takes minutes.


Key = tuple[str | int, ...]
PARTS = 20
"""Parts of one key. Scenarios need four or five; with 100, Python's reader takes 10 s for a megabyte of such keys."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LONG = r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}'
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
    tables: int = 0  # how many tables an array of tables has so far

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
            names.append(str(tomllib.loads(f"k = {word}")["k"]) if quoted else word)
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
