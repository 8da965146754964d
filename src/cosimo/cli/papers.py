"""The verbs of the built-in problems and the papers they come from: `problems`, `reproduce`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cosimo.cli.application import app
from cosimo.cli.console_output import say
from cosimo.cli.option_groups import Json, argument, option


@app.command()
def problems(json_: Json = False) -> None:
    """List the built-in problems and their parameters."""
    from cosimo.core.document import Column, DocumentTable, table_lines
    from cosimo.problems import CATALOGUE

    rows = [
        {"name": p.name, "title": p.title, "citation": p.citation, "step_size": p.step, "parameters": p.parameters}
        for p in CATALOGUE.values()
    ]
    columns = (
        Column("name", "problem", str, False),
        Column("step_size", "step/s", lambda step: f"{step:g}"),
        Column("title", "what", str, False),
        Column("citation", "from", str, False),
        Column("parameters", "parameters (--set)", lambda p: " ".join(f"{n}={v:g}" for n, v in p.items()), False),
    )
    say({"problems": rows} if json_ else "\n".join(table_lines(DocumentTable("", "", columns, rows))))


@app.command()
def reproduce(
    papers: Annotated[
        list[str] | None, argument("[PAPER]…", "Papers to recompute, such as tamellin2022; default: all.")
    ] = None,
    figures: Annotated[Path | None, option("Draw the papers' figures into this folder.", metavar="DIR")] = None,
    json_: Json = False,
) -> None:
    """Recompute every number of the implemented papers: published, computed, verdict, reason; draw their figures."""
    from cosimo.papers import reproduce as reproduce_papers

    # First: a folder that cannot be written is known before anything long has been computed.
    drawn = {} if figures is None else {"figures": _draw(papers or [], figures)}
    if json_:
        say({"items": [item.fields for item in reproduce_papers(papers or ())]} | drawn)
        return
    for path in drawn.get("figures", ()):
        print(path, flush=True)
    for item in reproduce_papers(papers or ()):
        print(item, flush=True)


def _draw(papers: list[str], folder: Path) -> list[str]:
    from cosimo.papers import draw, without_figures

    files = [str(path) for path in draw(papers, folder)]
    if none := without_figures(papers):
        print(f"no figures are drawn for {', '.join(none)}", file=sys.stderr)
    return files
