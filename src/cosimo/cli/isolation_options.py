"""The options that keep units apart from the master: `--isolate`, `--sandbox` and the limits of a unit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cosimo.cli.option_groups import ALL, OptionGroup, Texts, many, option, time_option
from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:
    from cosimo.core.system import System
    from cosimo.units.fmi.isolation import Isolation

UNUSABLE, LONGEST = '/\\:*?"<>|', 60
"""Characters that not every system allows in the name of a file, and how many of a unit's name are used in one."""


@dataclass(frozen=True)
class IsolationOptions(OptionGroup):
    """Which FMUs a verb isolates, and how; all that it runs is guarded."""

    title: ClassVar[str | None] = "Process isolation"
    isolate: Annotated[
        Texts, many("Run an FMU in a separate process (without a name: all FMUs).", metavar="[UNIT]")
    ] = None
    sandbox: Annotated[
        bool, option("Isolate all FMUs and deny them network access, new processes and files other than their own.")
    ] = False
    trust_units: Annotated[bool, option("Run FMUs in this process without a first trial in a separate one.")] = False
    unit_timeout: Annotated[float | None, time_option("Time limit for one call of a unit, in seconds.")] = None
    unit_memory: Annotated[float | None, option("Memory limit of an isolated unit, in megabytes.")] = None
    last: ClassVar[bool] = True

    @property
    def names(self) -> tuple[str, ...]:
        """The units that are isolated. A sandbox is for FMUs that are not trusted: it leaves none out."""
        return (*(self.isolate or ()), *((ALL,) if self.sandbox else ()))

    @contextmanager
    def around(self, given: Mapping[str, Any]) -> Iterator[None]:
        from cosimo.core.guarding import guard_options, guarded

        self.require()
        token = _CHOSEN.set((self, given.get("output_file")))
        try:
            with (
                own_output(bool(given.get("json_"))) as document,
                guard_options(exits=True, document=document, timeout=self.unit_timeout),
                guarded(None),
            ):
                yield
        finally:
            _CHOSEN.reset(token)

    def require(self) -> None:
        """Refuse what contradicts itself or cannot be had on this machine."""
        if self.trust_units and ALL in self.names:
            raise ConfigurationError(
                "--trust-units runs FMUs in this process; --isolate without a name and --sandbox isolate all of "
                "them; give only one of these."
            )
        if self.unit_memory is not None and not self.names:
            raise ConfigurationError("--unit-memory limits isolated units only; give --isolate as well.")
        if self.names or self.unit_timeout is not None:
            from cosimo.units.fmi.isolation import Isolation, require_available

            isolation = Isolation(timeout=self.unit_timeout, memory=self.unit_memory, sandbox=self.sandbox)
            if self.names:
                require_available(isolation)

    def refine(self, isolation: Isolation) -> Isolation:
        """What a scenario says of a unit stays, as far as the command line says nothing."""
        return replace(
            isolation,
            timeout=self.unit_timeout or isolation.timeout,
            memory=self.unit_memory or isolation.memory,
            sandbox=self.sandbox or isolation.sandbox,
        )


@dataclass(frozen=True)
class PassedIsolation(IsolationOptions):
    """The same for a verb that starts others, to which it passes the options on: nothing runs in its own process."""

    @contextmanager
    def around(self, given: Mapping[str, Any]) -> Iterator[None]:
        self.require()
        token = _CHOSEN.set((self, None))
        try:
            yield
        finally:
            _CHOSEN.reset(token)


_CHOSEN: ContextVar[tuple[IsolationOptions, Path | None]] = ContextVar("isolation", default=(IsolationOptions(), None))
"""The options of the verb that runs, and its output file, beside which units that fail leave their logs."""


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
        with open(kept, "w", encoding=before.encoding, errors=before.errors, closefd=False) as sys.stdout:
            yield kept
    finally:
        sys.stdout = before
        os.dup2(kept, descriptor)
        os.close(kept)


def isolate_units(system: System) -> None:
    """Isolate the FMUs of a system as the options of the verb say."""
    from cosimo.units.fmi import fmus
    from cosimo.units.fmi.isolation import Isolation

    options, output = _CHOSEN.get()
    found = fmus(system.units)
    for name in options.names:
        if name != ALL and name not in system.units:
            raise UnknownNameError("unit", name, system.units)
        if name != ALL and name not in found:
            raise ConfigurationError(f"unit '{name}' is not an FMU; only FMUs can be isolated.")
    logs = {} if output is None else log_files(output, found)
    for name, fmu in found.items():
        if fmu.isolation is not None or ALL in options.names or name in options.names:
            fmu.isolation = replace(options.refine(fmu.isolation or Isolation()), log=logs.get(name))
        if fmu.trial is not None:
            tried = fmu.isolation is None and not options.trust_units
            fmu.trial = replace(fmu.trial, log=logs.get(name)) if tried else None


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
