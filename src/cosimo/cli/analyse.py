"""The verb `analyse`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cosimo.cli.application import Json, app, say
from cosimo.cli.arguments import Described, with_system
from cosimo.cli.isolating import isolating
from cosimo.cli.voice import hint
from cosimo.core.errors import ConfigurationError

ALONG = 12
"""Times of a run at which `analyse --along` looks, unless it is told."""


class _Analyse(TyperCommand):
    """Lets `--along` stand alone: as many times of the run as are usual."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given: list[str] = []
        for word, following in zip(args, [*args[1:], ""], strict=False):
            given += [word, str(ALONG)] if word == "--along" and not following.lstrip("-").isdigit() else [word]
        return super().parse_args(ctx, given)


@app.command(cls=_Analyse)
@isolating
@with_system
def analyse(
    described: Described,
    stop_time: Annotated[float | None, typer.Option(help="Horizon of the global error in seconds.")] = None,
    at: Annotated[str | None, typer.Option(help="Also at these times of a reference run, such as 0,1.5,3.")] = None,
    along: Annotated[
        int | None, typer.Option(metavar="[N]", help=f"Also along a reference run, at N times (alone: {ALONG}).")
    ] = None,
    json_: Json = False,
) -> None:
    """Say whether the coupling is stable, how wrong it will be, which modes move, and what to do.

    Units that are not linear are identified by small experiments; the system itself is run only for --at and --along.
    """
    from cosimo.reporting.assessing import Question, analysis_fields, analysis_text

    start, stop = described.start, described.stop
    usual = stop - start if stop is not None and stop > start else None
    asked = Question(described.system, described.master, start, usual, stop_time, _times(at), along)
    say(analysis_fields(asked) if json_ else analysis_text(asked))
    if not json_:
        hint(f"cosimo run {described.scenario['scenario']['system']} --output-file {described.system.name}.parquet")


def _times(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in (text or "").split(",") if word.strip())
    except ValueError:
        raise ConfigurationError(f"--at wants times in seconds separated by commas, not '{text}'.") from None
