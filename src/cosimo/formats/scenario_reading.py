"""Reading a scenario file: TOML, checked against the model, with file, line and key in every message."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosimo.core.errors import ConfigurationError, UnknownNameError, UnsafeInputError, nearest
from cosimo.formats.findings import Findings, Place
from cosimo.formats.scenario import Scenario, check_scenario, known_keys
from cosimo.formats.scenario_lines import PARTS, Key, Lines, deep_key
from cosimo.units.archives import ArchiveLimits, remedy

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

    def near(self, file: str) -> Path:
        """A file named in the scenario: relative names count from the scenario's folder."""
        return self.path.parent / file


def read_scenario(path: Path, findings: Findings, limits: ArchiveLimits | None = None) -> tuple[Scenario, Source]:
    """The scenario in a file; raises the first of all errors that `findings` then holds."""
    most = (limits or ArchiveLimits.from_environment()).text_size
    try:
        if path.stat().st_size > most:
            raise UnsafeInputError(f"'{path}' is larger than {most:,} bytes; {remedy('text_size')}.")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"'{path}' cannot be read: {error.strerror}.") from None
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
    for part in problem["loc"]:
        found = _member(data, part)
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
        return str(UnknownNameError("kind of unit", context["tag"], Scenario.kinds))
    if kind == "union_tag_not_found":
        return f"a unit is a table with 'fmu' (a path) or 'kind' ({', '.join(Scenario.kinds)})."
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
