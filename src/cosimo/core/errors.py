"""Every error the package raises, in one tree.

    CosimoError                     exit code
    ├── ConfigurationError              2   the description is wrong; nothing has run
    │   ├── UnknownNameError            2   a name nobody knows, with the nearest known one
    │   ├── DimensionError              2   shapes that do not fit together
    │   ├── ScheduleError               2   operations that do not make one macro step
    │   ├── AlgebraicLoopError          2   outputs that cannot be solved for, with the variables on the loop
    │   └── FileError                   2   something wrong in a file, with file and line
    ├── UnsafeInputError                8   an input was refused as unsafe
    ├── IdentificationError             3   no linear model could be had from a unit, with the reason
    ├── RunError                            something happened while running; the rows so far are in `.result`
    │   ├── UnitError                   3   a unit raised or returned an error
    │   ├── StepDiscarded               3   a unit could not make a step this long; it may make a shorter one
    │   ├── StepTooShort                3   an adaptive step would have to be shorter than allowed
    │   ├── NonFiniteError              6   NaN or infinity came out of a unit
    │   └── Interrupted               130   Ctrl-C (143 on termination)
    └── OutputError                     7   results could not be written

A message names what happened, where (unit, variable, time) and what to do. Instability is a result, never an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cosimo.core.result import Result


class CosimoError(Exception):
    """Base of all errors of this package."""

    exit_code = 2


class ConfigurationError(CosimoError):
    """The description of a system, a master or an option is wrong."""


class DimensionError(ConfigurationError):
    """Matrices or vectors whose shapes do not fit together."""


class ScheduleError(ConfigurationError):
    """Operations that do not make one macro step of every unit."""


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
    """A name nobody knows; the message offers the nearest known one.

    >>> print(UnknownNameError("master", "jacobbi", ["jacobi", "gauss-seidel"]))
    unknown master 'jacobbi'; did you mean 'jacobi'? Known: gauss-seidel, jacobi.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        shown = ", ".join(names[:20]) + (" …" if len(names) > 20 else "") if names else "none"
        super().__init__(f"unknown {kind} '{name}'; {hint}Known: {shown}.")


class FileError(ConfigurationError):
    """Something wrong in a file that was read.

    >>> print(FileError("the name is missing.", file="truck.ssd", line=7))
    truck.ssd:7: the name is missing.
    """

    def __init__(self, reason: str, *, file: str, line: int | None = None) -> None:
        self.reason, self.file, self.line = reason, file, line
        super().__init__(f"{file}{'' if line is None else f':{line}'}: {reason}")


class UnsafeInputError(CosimoError):
    """An input was refused as unsafe."""

    exit_code = 8


class IdentificationError(CosimoError):
    """No linear model could be had from a unit; the message says what it did."""

    exit_code = 3


class RunError(CosimoError):
    """Something happened while running; `result` holds the rows completed before it."""

    result: Result | None = None


class UnitError(RunError):
    """A unit raised or returned an error."""

    exit_code = 3


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
    """NaN or infinity came out of a unit."""

    exit_code = 6


class Interrupted(RunError):
    """The run was stopped from outside."""

    exit_code = 130


class OutputError(CosimoError):
    """Results could not be written."""

    exit_code = 7
