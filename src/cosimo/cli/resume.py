"""The verb `resume`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cosimo.cli.application import Json, app
from cosimo.cli.isolating import isolate_units, isolating
from cosimo.cli.voice import detail
from cosimo.core.errors import RunError

FILE = "A checkpoint, or the output file of a run with --checkpoint-every."


@app.command()
@isolating
def resume(
    file: Annotated[Path, typer.Argument(metavar="CHECKPOINT|OUTPUT", help=FILE)],
    json_: Json = False,
) -> None:
    """Go on with an interrupted run from its last checkpoint, as if nothing had happened.

    The macro step after the checkpoint is made again first and must give the same values, bit by bit.
    """
    from cosimo.cli.run import report_run
    from cosimo.formats.resuming import resumable
    from cosimo.reporting.progress import DELAY, RunProgress, show_on_terminal

    begin = time.perf_counter()
    failure: RunError | None = None
    found = resumable(file)
    isolate_units(found.system)
    start = found.options.start + found.saved["step"] * found.master.step
    detail(f"going on from t = {start:g} s to {found.options.stop:g} s")
    try:
        with show_on_terminal(RunProgress(start, found.options.stop, found.master.step), delay=DELAY) as progress:
            result = found.run(progress=progress)
    except RunError as error:
        if error.result is None:
            raise
        failure, result = error, error.result
    report_run(result, time.perf_counter() - begin, found.options.path, json_, failure)
    if failure is not None:
        raise failure
