"""The verb `plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cosimo.cli.application import app
from cosimo.cli.completion import RESULTS
from cosimo.cli.console_output import say
from cosimo.cli.option_groups import Json, argument, option, time_option
from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.core.result import Result


@app.command()
def plot(
    what: Annotated[list[str], argument("RESULT… [VAR]…", "Result files, then signals such as two.x or 'two.*'.")],
    output: Annotated[Path | None, option("Plot to a file: .png, .svg, .pdf or .html.", "--output", "-o")] = None,
    start_time: Annotated[float | None, time_option("Start of the plotted time range, in seconds.")] = None,
    stop_time: Annotated[float | None, time_option("End of the plotted time range, in seconds.")] = None,
    json_: Json = False,
) -> None:
    """Plot signals of results, in the terminal or to a file; several results are overlaid.

    Without signals, list the signals in the results.
    """
    from cosimo.reporting.plotting import curve_fields, draw_figure, gather, signals_text, terminal_text

    results, patterns = _results(what)
    if not patterns:
        if output is not None:
            raise ConfigurationError(f"no signals were chosen for '{output}'; name some, or '*' for all.")
        if json_:
            say({"results": {label: list(result.names) for label, result in results.items()}})
        else:
            say(signals_text(results))
        return
    curves = gather(results, patterns, (start_time, stop_time))
    drawn = None if output is None else str(draw_figure(curves, output, ", ".join(results)))
    if json_:
        say({"figure": drawn, "curves": [curve_fields(curve) for curve in curves]})
    else:
        say(terminal_text(curves) if drawn is None else drawn)


def _results(words: list[str]) -> tuple[dict[str, Result], list[str]]:
    """Results by a short name, and what is left: the patterns of signals."""
    from cosimo.formats.results import read_result

    files = [word for word in words if Path(word).suffix in RESULTS]
    if not files:
        raise ConfigurationError(
            f"no result file was named ('{words[0]}' does not end in {', '.join(RESULTS[:-1])}); write one with "
            f"'cosimo run SYSTEM --output-file result.parquet', then 'cosimo plot result.parquet'."
        )
    names = [Path(file).name for file in files]
    labels = files if len(set(names)) < len(names) else names
    return dict(zip(labels, map(read_result, files), strict=True)), [word for word in words if word not in files]
