"""The application that the verbs join: `@app.command()` gives each what all have (option_groups.py, completion.py)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from cosimo.cli import Interruption
from cosimo.cli.completion import SYSTEMS, add_completion
from cosimo.cli.console_output import Loudness, complain, make_streams_sound, writing_to_streams
from cosimo.cli.option_groups import ALL, compose, known_words, option
from cosimo.core.errors import CosimoError, Interrupted, RunError
from cosimo.core.guarding import SIGNALS, interrupt

ALONG = 12
"""Times of a run at which `analyse --along` looks, unless it is told."""


EXAMPLES = {
    "new": ("system.toml motor.fmu load.fmu", "system.toml motor.fmu load.fmu --force"),
    "analyse": ("two-mass --step-size 4ms", "system.toml --master gauss-seidel --coupling hold1 --details"),
    "run": ("system.toml --stop-time 10 -o rows.parquet", "two-mass.ssp --step-size 2ms --check"),
    "resume": ("rows.parquet", "rows.parquet.checkpoint"),
    "plot": ("rows.parquet two.x", "rows.parquet 'two.*' -o figure.png"),
    "compensate": ("two-mass --step-size 4ms", "two-mass --step-size 4ms --target exact"),
    "compare": ("two-mass --step-size 4ms", "system.toml --masters gauss-seidel --couplings hold0,hold1"),
    "tune": ("two-mass --target-error 0.005", "system.toml --step-size 1ms:20ms --masters jacobi,gauss-seidel --write"),
    "sweep": ("two-mass --vary kc=10:1000:20 -o study.parquet", "system.toml --vary load.k=1,2,5 --workers 4"),
    "report": ("two-mass --step-size 4ms --tune -o report.html", "system.toml rows.parquet -o report.html"),
    "studio": ("two-mass", "system.toml --no-browser --port 8123"),
    "worker": (
        "--broker 192.168.1.10:23404 --name lab3 --token-file token",
        "--broker 192.168.1.10:23404 --name lab3 --sandbox --unit-timeout 10",
    ),
    "federate": (
        "system.toml --broker 192.168.1.10:23404 --subscribe load.torque=grid/torque --publish load.speed",
        "system.toml --broker 192.168.1.10:23404 --period 100ms --offset 20ms",
    ),
    "info": ("motor.fmu", "system.toml"),
    "validate": ("motor.fmu", "system.toml --json"),
    "check-fmu": ("motor.fmu", "motor.fmu --step-size 1ms --json"),
    "export": ("two-mass --ssp -o two-mass.ssp", "system.toml --as-fmu system.fmu --connector 'load.*'"),
    "problems": ("", "--json"),
    "reproduce": ("gomes2018", "tamellin2022 --figures figures"),
}
"""The verbs in the order of the help, and what follows 'cosimo VERB' in their examples."""


def word_of(verb: Any) -> str:
    """What the command line calls the verb that a function is."""
    name: str = verb.__name__
    return name.replace("_", "-")


class _Converter:
    """Converts what is given to an option; typer, which loads pydantic for it (0.1 s), only says what does not fit."""

    PLAIN: ClassVar[dict[Any, Callable[[str], Any]]] = {str: str, int: int, float: float, Path: Path}

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        described = param.type_descriptor
        convert = described.parameter_info.parser or self.PLAIN.get(described.annotation)
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(value, str) and convert is not None:
            with suppress(ValueError):
                return convert(value)
        if isinstance(value, list | tuple) and described.annotation == list[str]:
            return list(value)
        if convert is not None and isinstance(value, described.annotation):
            return value  # a default
        return import_module("typer._coercion").build_runtime_param(described).coerce(value, param, ctx)


def _convert_plainly(parameters: list[Any]) -> None:
    for one in parameters:
        one._runtime_param = _Converter()  # where typer looks for its own


class _Verb(TyperCommand):
    """Reads options that may stand alone, and fills the words of masters and couplings into its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _convert_plainly(self.get_params(ctx))
        return super().parse_args(ctx, spell_out(args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        marked: list[Any] = [one for one in self.params if "{" in (getattr(one, "help", None) or "")]
        for one in marked:
            for mark, words in known_words():
                one.help = one.help.replace(mark, words)
        for one in self.params:
            if isinstance(one, TyperArgument):
                # Its name and its help say what it is; typer would add a type, and braces in the usage.
                vars(one)["display_type_rich"] = lambda ctx: None
                vars(one)["get_usage_pieces"] = lambda ctx, shown=one.display_name_raw: [shown]
        if (shown := self.get_help_option(ctx)) is not None:
            shown.metavar = ""
        super().format_help(ctx, formatter)


def spell_out(words: list[str]) -> list[str]:
    """Give options that stand alone the value that this means: `--isolate` all units, `--along` 12 times,
    `--compile` the sandbox.

    >>> spell_out(["--isolate", "truck.toml", "--isolate", "motor", "--along"])
    ['--isolate=*', 'truck.toml', '--isolate', 'motor', '--along=12']
    """
    spelled = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        last = not following or following.startswith("-")
        if word == "--isolate" and (last or Path(following).suffix.lower() in SYSTEMS):
            word = f"--isolate={ALL}"
        if word == "--compile" and following not in ("sandbox", "trusted"):
            word = "--compile=sandbox"
        if word == "--along" and not following.lstrip("-").isdigit():
            word = f"--along={ALONG}"
        spelled.append(word)
    return spelled


class _Verbs(TyperGroup):
    """Says what an interrupt means, wherever it comes; typer itself would end without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _convert_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for one in self.get_params(ctx):
            if getattr(one, "is_flag", False):
                vars(one)["metavar"] = ""  # a flag takes no value
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        try:
            with signals_raised():
                return super().invoke(ctx)
        except BaseException as error:
            if isinstance(error, CosimoError) or not _comes_of_interrupt(error):
                raise
            raise Interrupted(f"interrupted; {_kept()}.") from None


def _comes_of_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt is at the root of an exception: Python 3.11 turns one that comes while a class is made, as
    a module is loaded, into a RuntimeError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _kept() -> str:
    """What an interrupted verb has left of its rows."""
    following = dict(zip(sys.argv, sys.argv[1:], strict=False))
    output = Interruption.output or following.get("--output-file") or following.get("-o")
    stream = f"{output}.partial"
    return f"rows recorded so far are in '{stream}'" if output and os.path.exists(stream) else "nothing was written"


class _Application(typer.Typer):
    """Adds to every verb its groups of options, `--quiet` and `--verbose`, and what the shell can complete."""

    def command(self, *names: Any, **options: Any) -> Callable[[Any], Any]:
        """As typer's, with examples at the end of the help; the function itself stays as it was."""

        def join(verb: Any) -> Any:
            word = word_of(verb)
            examples = EXAMPLES.get(word, ())  # what is hidden has none
            told = "\n\n".join(["Examples:", *(f"cosimo {word} {words}" for words in examples)])
            register = super(_Application, self).command(*names, cls=_Verb, epilog=told, **options)
            register(add_completion(compose(verb, Loudness)))
            return verb

        return join


app = _Application(
    name="cosimo",
    cls=_Verbs,
    help="Co-simulation: find out before the run whether the coupling is stable and how accurate it is, "
    "then run it.\n\nWith your own FMUs, start with 'cosimo new system.toml A.fmu B.fmu', then 'cosimo analyse "
    "system.toml'; without FMUs, try 'cosimo analyse two-mass'. Options of a verb: 'cosimo VERB --help'.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    archive_limits: Annotated[
        str | None,
        option("Change the size limits of FMUs and packages, such as total-size=8GiB.", metavar="NAME=VALUE,…"),
    ] = None,
    no_validate: Annotated[
        bool,
        option("Accept FMUs and packages that violate their standard; what was overlooked is listed.", "--no-validate"),
    ] = False,
) -> None:
    """Options before the verb."""
    if not no_validate and archive_limits is None:
        return
    from cosimo.units.archives import ENVIRONMENT, VALIDATE, ArchiveLimits

    # Processes that the run starts read the same files.
    if no_validate:
        os.environ[VALIDATE] = "off"
    if archive_limits is not None:
        ArchiveLimits.parse(archive_limits)
        os.environ[ENVIRONMENT] = archive_limits


@contextmanager
def signals_raised() -> Iterator[None]:
    """In a verb, a signal is an exception, which whoever writes rows answers first."""

    def arrive(number: int, frame: object) -> NoReturn:
        Interrupted.exit_code = 128 + number
        interrupt()

    Interruption.output = None
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # as nohup wants it
                signal.signal(number, arrive)
        yield
    finally:
        Interruption.state, Interruption.answers = "all else was done", False
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and an exit code, never a traceback."""
    # Our matrices are small: threads inside the linear algebra cost more than they bring. Set before NumPy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # reads what all installed packages say of themselves
    make_streams_sound()
    try:
        with writing_to_streams():
            app(standalone_mode=True, windows_expand_args=False)  # 'two.*' are signals, also beside a file 'two.fmu'
    except CosimoError as error:
        document = None
        # A failed run has already printed its document, with the rows kept and the error.
        if "--json" in sys.argv and not (isinstance(error, RunError) and error.result is not None):
            where = error.fields() if isinstance(error, RunError) else {}
            document = {"error": str(error), "exit_code": error.exit_code, **where}
        complain(error.line if isinstance(error, RunError) and error.unit else error, document)
        if isinstance(error, Interrupted):
            Interruption.code = error.exit_code
        sys.exit(error.exit_code)
