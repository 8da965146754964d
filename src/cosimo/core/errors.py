"""Every error the package raises, in one tree; at the end of the file, how errors in a file are collected.

    CosimoError                     exit code
    ├── ConfigurationError              2   the description is wrong; nothing has run
    │   ├── UnknownNameError            2   a name nobody knows, with the nearest known one
    │   ├── DimensionError              2   shapes that do not fit together
    │   ├── ScheduleError               2   operations that do not make one macro step
    │   ├── AlgebraicLoopError          2   outputs that cannot be solved for, with the variables on the loop
    │   ├── FileError                   2   something wrong in a file, with file and line
    │   └── CheckpointError             2   a checkpoint that is damaged or foreign, or does not continue the run
    ├── UnsafeInputError                8   an input was refused as unsafe
    ├── IdentificationError             3   no linear model could be had from a unit, with the reason
    ├── RunError                            something happened while running; the rows so far are in `.result`
    │   ├── UnitError                   3   a unit raised or returned an error
    │   │   ├── EndRequested                a unit wants the simulation to end; a run then ends as if its time were over
    │   │   └── EventInside                 a unit met an event inside its step that others have to meet as well
    │   ├── UnitCrashed                 4   a unit crashed, ended its process, or wanted more memory than its limit
    │   ├── UnitTimeout                 5   a call of a unit took longer than its limit
    │   ├── StepDiscarded               3   a unit could not make a step this long; it may make a shorter one
    │   ├── StepTooShort                3   an adaptive step would have to be shorter than allowed
    │   ├── NonFiniteError              6   NaN or infinity came out of a unit
    │   └── Interrupted               130   Ctrl-C (143 on termination)
    └── OutputError                     7   results could not be written

A message names what happened, where (unit, variable, time) and what to do. Instability is a result, never an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from cosimo.core import dataclass

if TYPE_CHECKING:
    from cosimo.core.result import Result


class CosimoError(Exception):
    """Base of all errors of this package; a message is one line, whatever names of the user's are in it."""

    exit_code = 2

    def __str__(self) -> str:
        return one_line(super().__str__())


def one_line(text: str) -> str:
    """The text with line ends and other control characters written out: a name from a file may hold any.

    >>> one_line("unit 'a\\nb'")
    "unit 'a\\\\nb'"
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


class ConfigurationError(CosimoError):
    """The description of a system, a master or an option is wrong."""


class DimensionError(ConfigurationError):
    """Matrices or vectors whose shapes do not fit together."""


class ScheduleError(ConfigurationError):
    """Operations that do not advance every unit by exactly one macro step."""


class AlgebraicLoopError(ConfigurationError):
    """The outputs cannot be solved for from the states: det(I − D L) = 0."""

    @classmethod
    def singular(cls, names: Iterable[str]) -> AlgebraicLoopError:
        """The error for a loop through these variables that has no unique solution."""
        return cls(
            f"the algebraic loop through {', '.join(names)} has no unique solution: det(I − D L) = 0; "
            f"remove one connection of the loop or the feedthrough of one of its units."
        )


class UnknownNameError(ConfigurationError):
    """An unknown name; the message suggests the closest known one.

    >>> print(UnknownNameError("master", "jacobbi", ["jacobi", "gauss-seidel"]))
    unknown master 'jacobbi'; did you mean 'jacobi'? Known: gauss-seidel, jacobi.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = nearest(name, names)
        hint = "known" if near is None else f"did you mean '{near}'? Known"
        shown = ", ".join(names[:20]) + (" …" if len(names) > 20 else "") if names else "none"
        super().__init__(f"unknown {kind} '{name}'; {hint}: {shown}.")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`, if any does; case counts least.

    >>> nearest("JACOBBI", ["jacobi", "gauss-seidel"])
    'jacobi'
    """
    names, name = list(known), name[:200]
    if len(names) > 500:  # comparing takes time: of very many names only those of about the same length are looked at
        names = [other for other in names if abs(len(other) - len(name)) < 2][:500]
    if near := difflib.get_close_matches(name, names, n=1):
        return near[0]
    small = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), small, n=1)
    return small[near[0]] if near else None


def require_regular(path: Path) -> None:
    """Refuse what is there but no ordinary file: reading a pipe never ends, and reading a device fills the memory."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file (a device, a pipe or a socket)"
        raise ConfigurationError(f"'{path}' is {what}; give a file.")


def no_such_file(path: Path, suffixes: Iterable[str] = ()) -> ConfigurationError:
    """The error for a file that is not there, with the nearest one beside it, of these kinds where some are given."""
    require_regular(path)
    kinds = tuple(suffixes)
    try:
        beside = [file.name for file in path.parent.iterdir() if not kinds or file.suffix in kinds]
    except OSError:
        beside = []
    near = nearest(path.name, beside)
    return ConfigurationError(
        f"the file '{path}' does not exist; "
        + (f"did you mean '{path.with_name(near)}'?" if near else "check the path and the current folder.")
    )


class FileError(ConfigurationError):
    """A file that was read contains an error.

    >>> print(FileError("the name is missing.", file="truck.ssd", line=7))
    truck.ssd:7: the name is missing.
    """

    def __init__(self, reason: str, *, file: str, line: int | None = None) -> None:
        self.reason, self.file, self.line = reason, file, line
        super().__init__(f"{file}{'' if line is None else f':{line}'}: {reason}")


class CheckpointError(ConfigurationError):
    """A checkpoint that is damaged, was not written by cosimo, or does not belong to the run."""


class UnsafeInputError(CosimoError):
    """An input was refused as unsafe."""

    exit_code = 8


class IdentificationError(CosimoError):
    """No linear model could be obtained from a unit; the message says what the unit did."""

    exit_code = 3


class RunError(CosimoError):
    """A run failed; `result` holds the rows completed before the failure.

    Where it happened, as far as that is known: `unit`, `phase` (instantiate, initialise, set, doStep, get, save,
    restore, terminate, free), `time`, `variable`, the bare `cause`, and the file `log` with what the unit said.
    """

    result: Result | None = None
    unit: str | None = None
    phase: str | None = None
    time: float | None = None
    variable: str | None = None
    cause: str | None = None
    log: str | None = None

    def locate(self, **found: str | float | None) -> Self:
        """Say where it happened, as far as nobody closer to it has."""
        for name, value in found.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def fields(self) -> dict[str, str | float | None]:
        """Where and why, as plain data."""
        places = {name: getattr(self, name) for name in ("unit", "phase", "time", "variable")}
        return {**places, "cause": self.cause or str(self), "log": self.log}

    @property
    def line(self) -> str:
        """unit · phase · simulated time · variable · cause · log path; a dash for what is not known.

        >>> UnitError("it says: no fuel.").locate(unit="motor", phase="doStep", time=0.25).line
        'motor · doStep · t = 0.25 s · – · it says: no fuel · –'
        """
        found = self.fields()
        when = None if self.time is None else f"t = {self.time:.12g} s"
        cause = str(found["cause"]).rstrip(".")
        return " · ".join(str(part or "–") for part in (self.unit, self.phase, when, self.variable, cause, self.log))


class UnitError(RunError):
    """A unit raised or returned an error."""

    exit_code = 3


class EndRequested(UnitError):
    """A unit ended the simulation at `end`: the run stops there, and the unit cannot continue."""

    def __init__(self, message: str, end: float) -> None:
        super().__init__(message)
        self.end = end


class EventInside(UnitError):
    """A unit met an event at `time`, inside its step, at which other units have to be as well."""

    def __init__(self, message: str, time: float) -> None:
        super().__init__(message)
        self.at = time


class UnitCrashed(RunError):
    """A unit crashed, ended its process, or exceeded its memory limit; it cannot be used again."""

    exit_code = 4


class UnitTimeout(RunError):
    """A call of a unit took longer than its limit; the unit was ended."""

    exit_code = 5


class StepDiscarded(RunError):
    """A unit could not make the whole step; it got to `last_successful_time`. A shorter step may succeed."""

    exit_code = 3

    def __init__(self, message: str, last_successful_time: float) -> None:
        super().__init__(message)
        self.last_successful_time = last_successful_time


class StepTooShort(RunError):
    """The error of an adaptive step stays above its tolerance even at the shortest length allowed."""

    exit_code = 3


class NonFiniteError(RunError):
    """A unit returned NaN or infinity."""

    exit_code = 6


class Interrupted(RunError):
    """The run was stopped from outside; of a search, `result` is what it had found (`cosimo.tune`)."""

    exit_code = 130
    result: Any = None


class OutputError(CosimoError):
    """Results could not be written."""

    exit_code = 7


# ---- what is wrong, or only odd, in a file: collected while reading goes on, so that one look shows all ------------


MOST_FINDINGS = 100  # nobody reads more errors than this, and finding the nearest known name for each takes time


@dataclass(frozen=True)
class Place:
    """A line of a file; `line` is None where only the file is known."""

    file: str
    line: int | None = None

    def error(self, reason: str) -> FileError:
        """The error that names this place."""
        return FileError(reason, file=self.file, line=self.line)

    @contextmanager
    def blame(self, what: str) -> Iterator[None]:
        """Give an error without a place this one, and say what was being read."""
        try:
            yield
        except FileError:
            raise
        except ConfigurationError as error:
            raise self.error(f"{what}: {error}") from None


@dataclass(frozen=True)
class Finding:
    """One sentence about one place.

    >>> print(Finding("unit 'N' is defined twice.", "truck.ssd", 12, "warning"))
    truck.ssd:12: warning: unit 'N' is defined twice.
    """

    message: str
    file: str = ""
    line: int | None = None
    severity: Literal["error", "warning", "notice"] = "error"
    exit_code: int = 2  # what the command line ends with: 8 where the file was refused as unsafe, 0 for a notice

    def __str__(self) -> str:
        where = self.file + ("" if self.line is None else f":{self.line}")
        kind = "" if self.severity == "error" else f"{self.severity}: "
        return one_line(f"{where + ': ' if where else ''}{kind}{self.message}")


class FileFindings:
    """Errors and warnings in the order in which they were found; reading ends when there are too many errors.

    With `relaxed`, what violates a standard but leaves a system that can be built (`tolerate`) is a warning.
    """

    def __init__(self) -> None:
        self._all: dict[Finding, None] = {}
        self._errors = 0
        self.relaxed = False

    @property
    def all(self) -> list[Finding]:
        """Everything found so far."""
        return list(self._all)

    @property
    def errors(self) -> list[Finding]:
        """Those that keep the file from being used."""
        return [finding for finding in self._all if finding.severity == "error"]

    @property
    def warnings(self) -> list[Finding]:
        """Those that do not, notices among them."""
        return [finding for finding in self._all if finding.severity != "error"]

    def warn(self, message: str, place: Place) -> None:
        """Something odd. What was found at the same place before is not repeated."""
        self._all[Finding(message, place.file, place.line, "warning")] = None

    def note(self, message: str, place: Place) -> None:
        """Something that is right but has no effect here."""
        self._all[Finding(message, place.file, place.line, "notice", 0)] = None

    def fail(self, error: ConfigurationError, place: Place) -> None:
        """Something wrong, at the place that the error names, or else at `place`; raised when it is one too many."""
        finding = (
            Finding(error.reason, error.file, error.line)
            if isinstance(error, FileError)
            else Finding(str(error), place.file, place.line)
        )
        self._errors += finding not in self._all
        self._all[finding] = None
        if self._errors >= MOST_FINDINGS:
            raise error

    @contextmanager
    def collect(self, place: Place) -> Iterator[None]:
        """Keep an error and go on after the block; what was refused as unsafe still ends everything."""
        try:
            yield
        except ConfigurationError as error:
            self.fail(error, place)

    @contextmanager
    def tolerate(self, place: Place, instead: str) -> Iterator[None]:
        """As `collect`; where validation is relaxed the error is a warning that says what is done `instead`."""
        try:
            yield
        except ConfigurationError as error:
            if not self.relaxed:
                self.fail(error, place)
                return
            at = Place(error.file, error.line) if isinstance(error, FileError) else place
            reason = error.reason if isinstance(error, FileError) else str(error)
            self.warn(f"overlooked: {reason} {instead}", at)

    def require_no_errors(self) -> None:
        """Raise the first error, and say how many more there are."""
        if not self.errors:
            return
        first, more = self.errors[0], len(self.errors) - 1
        rest = f" ({more} more; 'cosimo validate' lists all)" if more else ""
        raise FileError(first.message + rest, file=first.file, line=first.line)
