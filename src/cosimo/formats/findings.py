"""What is wrong, or only odd, in a file: collected while reading goes on, so that one look shows everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from cosimo.core.errors import ConfigurationError, FileError, one_line

MOST = 100  # nobody reads more errors than this, and finding the nearest known name for each takes time


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
        if self._errors >= MOST:
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
