"""The options that keep units apart from the master: `--isolate`, `--sandbox` and the limits of a unit."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosimo.cli.completing import SYSTEMS
from cosimo.core.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:
    from cosimo.core.system import System
    from cosimo.units.fmi.isolation import Isolation

ALL = "*"
"""What stands for all units, where `--isolate` is given alone."""
UNUSABLE, LONGEST = '/\\:*?"<>|', 60
"""Characters that not every system allows in the name of a file, and how many of a unit's name are used in one."""


@dataclass(frozen=True)
class Request:
    """Which units are isolated, and how."""

    names: tuple[str, ...] = ()
    isolation: Isolation | None = None
    beside: Path | None = None
    """The output file, beside which units that fail leave their logs."""


_REQUEST: ContextVar[Request] = ContextVar("isolation", default=Request())  # noqa: B039  frozen


def _added(
    isolate: Annotated[
        list[str] | None,
        typer.Option(metavar="[UNIT]", help="Run an FMU in a process of its own (alone: all of them). Repeatable."),
    ] = None,
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Isolate all FMUs, without network, processes, or files but their own.")
    ] = False,
    unit_timeout: Annotated[float | None, typer.Option(help="Seconds that one call of a unit may take.")] = None,
    unit_memory: Annotated[float | None, typer.Option(help="Megabytes that an isolated unit may take.")] = None,
) -> None:
    """Only its signature counts: the options that `isolating` adds to a verb."""


def isolating(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options; what it loads is then isolated as they say, and all it runs is guarded."""
    added = inspect.signature(_added, eval_str=True).parameters
    own = list(inspect.signature(verb, eval_str=True).parameters.values())

    @functools.wraps(verb)
    def isolated(**given: Any) -> None:
        from cosimo.core.guarding import guard_options, guarded

        said = {name: given.pop(name) for name in added}
        token = _REQUEST.set(_request(output=given.get("output_file"), **said))
        try:
            with (
                own_output(bool(given.get("json_"))) as document,
                guard_options(exits=True, document=document, timeout=said["unit_timeout"]),
                guarded(None),
            ):
                verb(**given)
        finally:
            _REQUEST.reset(token)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *added.values())]
    isolated.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    isolated.__annotations__ = {p.name: p.annotation for p in parameters}
    del isolated.__wrapped__
    return isolated


@contextmanager
def own_output(wanted: bool) -> Iterator[int | None]:
    """Keep standard output for the one document that is written to it: what units print goes to standard error."""
    if not wanted:
        yield None
        return
    sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # no file: nobody else writes to it
        yield None
        return
    kept = os.dup(descriptor)
    before = sys.stdout
    os.dup2(sys.__stderr__.fileno() if sys.__stderr__ else 2, descriptor)
    try:
        with open(kept, "w", encoding=before.encoding, closefd=False) as sys.stdout:
            yield kept
    finally:
        sys.stdout = before
        os.dup2(kept, descriptor)
        os.close(kept)


def _request(
    *,
    isolate: list[str] | None,
    sandbox: bool,
    unit_timeout: float | None,
    unit_memory: float | None,
    output: Path | None,
) -> Request:
    from cosimo.units.fmi.isolation import Isolation, require_available

    isolation = Isolation(timeout=unit_timeout, memory=unit_memory, sandbox=sandbox)
    # A sandbox is for FMUs that are not trusted: none is left out because another one is named.
    names = (*(isolate or ()), *((ALL,) if sandbox else ()))
    if unit_memory is not None and not names:
        raise ConfigurationError("--unit-memory limits isolated units only; give --isolate as well.")
    if names:
        require_available(isolation)
    return Request(names, isolation, output)


def isolate_units(system: System) -> None:
    """Isolate the FMUs of a system as the options of the verb say."""
    from cosimo.units.fmi.fmu import Fmu

    asked = _REQUEST.get()
    fmus = {name: unit for name, unit in system.units.items() if isinstance(unit, Fmu)}
    for name in asked.names:
        if name != ALL and name not in system.units:
            raise UnknownNameError("unit", name, system.units)
        if name != ALL and name not in fmus:
            raise ConfigurationError(f"unit '{name}' is no FMU; only FMUs are isolated.")
    logs = {} if asked.beside is None else log_files(asked.beside, fmus)
    for name, fmu in fmus.items():
        chosen = asked.isolation if ALL in asked.names or name in asked.names else None
        if (chosen or fmu.isolation) is None:
            continue
        # What a scenario says of a unit stays, as far as the command line says nothing.
        isolation = fmu.isolation or chosen
        assert isolation is not None
        if asked.isolation is not None:
            isolation = replace(
                isolation,
                timeout=asked.isolation.timeout or isolation.timeout,
                memory=asked.isolation.memory or isolation.memory,
                sandbox=asked.isolation.sandbox or isolation.sandbox,
            )
        fmu.isolation = replace(isolation, log=logs.get(name))


def log_files(output: Path, units: Iterable[str]) -> dict[str, Path]:
    """Where each unit leaves its log beside the output file; what a file name cannot have is replaced.

    >>> [str(path) for path in log_files(Path("rows.csv"), ["motor", "a/b", "a_b"]).values()]
    ['rows.csv.motor.log', 'rows.csv.a_b.log', 'rows.csv.a_b-2.log']
    """
    found: dict[str, Path] = {}
    taken: set[Path] = set()
    for name in units:
        plain = "".join(c if c.isprintable() and c not in UNUSABLE else "_" for c in name)[:LONGEST]
        path, number = output.parent / f"{output.name}.{plain}.log", 1
        while path in taken:
            number += 1
            path = output.parent / f"{output.name}.{plain}-{number}.log"
        found[name] = path
        taken.add(path)
    return found


def spell_out(words: list[str]) -> list[str]:
    """`--isolate` alone, or before a file or another option, means all units.

    >>> spell_out(["run", "--isolate", "truck.toml", "--isolate", "motor"])
    ['run', '--isolate=*', 'truck.toml', '--isolate', 'motor']
    """
    found = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        alone = not following or following.startswith("-") or Path(following).suffix.lower() in SYSTEMS
        found.append(f"--isolate={ALL}" if word == "--isolate" and alone else word)
    return found
