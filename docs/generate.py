"""Writes the tables that the code knows into the pages that show them: `python docs/generate.py`.

A page marks the place of a table with two comments; what stands between them is replaced:

    <!-- generated: reproduce glumac2018 -->
    <!-- end -->

`tests/docs` compares every page with what is written here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cosimo.formats.scenario_tables import scenario_schema
from cosimo.papers import reproduce

SCALARS = ("boolean", "integer", "number", "string")
PLACE = re.compile(r"(<!-- generated: (\w+) ?([\w-]*) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; a bar inside a cell is written so that it does not end the cell."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def paper(name: str) -> str:
    """Every number of a paper: published, ours, verdict, reason."""
    rows = []
    for item in (item.fields for item in reproduce([name])):
        shown = ("–" if item["published"] is None else item["published"], item["computed"])
        values = (f"{v:.10g}" if isinstance(v, float) else str(v) for v in shown)
        rows.append([item["item"], *values, item["verdict"], item["reason"] or "–"])
    return table(("item", "published", "computed", "verdict", "reason"), rows)


def schema(_: str = "") -> str:
    """One table per part of a scenario file, from the model that reads it."""
    whole = scenario_schema()
    parts = {"The file": whole, **whole.get("$defs", {})}
    written = []
    for title, part in parts.items():
        if "properties" not in part:
            continue
        needed = set(part.get("required", ()))
        rows = [
            [f"`{key}`", kind(value), "needed" if key in needed else default(value), value.get("description", "")]
            for key, value in part["properties"].items()
        ]
        about = " ".join(part.get("description", "").split())
        written.append(f"**{title}.** {about}\n\n{table(('key', 'kind', 'if left out', 'meaning'), rows)}")
    return "\n".join(written)


def kind(value: dict[str, Any]) -> str:
    """The type of a key in words."""
    if "$ref" in value:
        return value["$ref"].rsplit("/", 1)[-1]
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{word}`" for word in value["enum"])
    for several in ("anyOf", "oneOf"):
        if several in value:
            words = list(dict.fromkeys(kind(one) for one in value[several] if one.get("type") != "null"))
            plain = [word for word in words if word not in SCALARS]
            return " or ".join(["value", *plain] if len(words) - len(plain) == len(SCALARS) else words)
    if value.get("type") == "array":
        return f"list of {kind(value['items'])}" if "items" in value else "list"
    if value.get("type") == "object":
        inside = value.get("additionalProperties")
        return f"table of {kind(inside)}" if isinstance(inside, dict) else "table"
    return str(value.get("type", "anything"))


def default(value: dict[str, Any]) -> str:
    """What a key is when it is left out."""
    given = value.get("default")
    return "–" if given is None or given in ({}, []) else f"`{given}`"


GENERATORS = {"reproduce": paper, "schema": schema}


def pages() -> list[Path]:
    """The pages that have something generated in them."""
    return [path for path in sorted(Path(__file__).parent.rglob("*.md")) if PLACE.search(path.read_text("utf-8"))]


def renewed(text: str) -> str:
    """The page with every generated part written anew."""
    return PLACE.sub(lambda m: f"{m[1]}\n{GENERATORS[m[2]](m[3]).rstrip()}\n\n{m[4]}", text)


def main() -> None:
    """Write all pages anew, and name them."""
    for path in pages():
        path.write_text(renewed(path.read_text("utf-8")), encoding="utf-8")
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
