"""The application that the verbs join, and how each of them speaks: text or one JSON document."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from cosimo.core.errors import CosimoError, Interrupted, RunError


class _Verbs(TyperGroup):
    """Says what an interrupt means, wherever it comes; typer itself would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            kept = (
                "; rows recorded so far are in the '.partial' file beside the output"
                if "--output-file" in sys.argv
                else ""
            )
            raise Interrupted(f"interrupted{kept}.") from None


app = typer.Typer(
    name="cosimo",
    cls=_Verbs,
    help="Co-simulation: say before running whether a coupling is stable and how wrong it is, then run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def _version(show: bool) -> None:
    if show:
        from cosimo import __version__

        print(f"cosimo {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the verb."""


def say(content: Any) -> None:
    """Print text as it is, anything else as one JSON document."""
    print(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, allow_nan=False))


def words(text: str) -> tuple[str, ...]:
    """What stands between the commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _terminate(number: int, frame: object) -> NoReturn:
    Interrupted.exit_code = 128 + number
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and an exit code, never a traceback."""
    # Our matrices are small: threads inside the linear algebra cost more than they bring. Set before NumPy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(standalone_mode=True)
    except CosimoError as error:
        print(f"cosimo: {error}", file=sys.stderr)
        # A failed run has already printed its document, with the rows kept and the error.
        if "--json" in sys.argv and not (isinstance(error, RunError) and error.result is not None):
            say({"error": str(error), "exit_code": error.exit_code})
        sys.exit(error.exit_code)
