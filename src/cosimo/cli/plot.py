"""The verb `plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cosimo.cli.application import app
from cosimo.cli.completion import RESULTS, complete_files
from cosimo.cli.console_output import say
from cosimo.cli.option_groups import Json, Texts, argument, many, option, time_option
from cosimo.core.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from cosimo.core.result import Result


FIRST = 3
"""Signals that are drawn where none are named."""


@app.command()
def plot(
    what: Annotated[list[str], argument("RESULT… [VAR]…", "Result files, then signals such as two.x or 'two.*'.")],
    variable: Annotated[Texts, many("Plot only variables that match, such as 'a.*'.")] = None,
    output: Annotated[Path | None, option("Plot to a file: .png, .svg, .pdf or .html.", "--output", "-o")] = None,
    start_time: Annotated[float | None, time_option("Start of the plotted time range, in seconds.")] = None,
    stop_time: Annotated[float | None, time_option("End of the plotted time range, in seconds.")] = None,
    json_: Json = False,
) -> None:
    """Plot signals of results, in the terminal or to a file; several results are overlaid.

    Without signals, plot the first ones and list all.
    """
    from cosimo.reporting.plotting import curve_fields, draw_figure, gather, signals_text, terminal_text

    results, patterns = _results(what)
    patterns += variable or []
    names = list(dict.fromkeys(name for result in results.values() for name in result.names))
    curves = gather(results, patterns or names[:FIRST], (start_time, stop_time))
    drawn = None if output is None else str(draw_figure(curves, output, ", ".join(results)))
    if json_:
        held = {} if patterns else {"results": {label: list(result.names) for label, result in results.items()}}
        say({"figure": drawn, "curves": [curve_fields(curve) for curve in curves], **held})
    elif drawn is not None:
        say(drawn)
    else:
        say(terminal_text(curves, table=bool(patterns)))
        if not patterns:
            say(signals_text(results))


def _results(words: list[str]) -> tuple[dict[str, Result], list[str]]:
    """Results by a short name, and what is left: the patterns of signals."""
    from cosimo.formats.results import read_result

    files = [word for word in words if Path(word).suffix in RESULTS]
    if not files:
        near = nearest(words[0], complete_files(words[0].rpartition("/")[0], RESULTS))
        raise ConfigurationError(
            f"no result file was named ('{words[0]}' does not end in {', '.join(RESULTS[:-1])}); "
            + (f"did you mean '{near}'?" if near else "write one with 'cosimo run SYSTEM', and plot that.")
        )
    names = [Path(file).name for file in files]
    labels = files if len(set(names)) < len(names) else names
    return dict(zip(labels, map(read_result, files), strict=True)), [word for word in words if word not in files]
