"""One tree of errors, with the exit codes of the command line."""

from __future__ import annotations

import pytest

from cosimo.core import errors
from cosimo.core.errors import CosimoError, RunError, UnknownNameError


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ConfigurationError", 2),
        ("UnknownNameError", 2),
        ("DimensionError", 2),
        ("ScheduleError", 2),
        ("AlgebraicLoopError", 2),
        ("UnitError", 3),
        ("NonFiniteError", 6),
        ("OutputError", 7),
        ("Interrupted", 130),
    ],
)
def test_exit_codes(name: str, code: int) -> None:
    assert getattr(errors, name).exit_code == code


def test_everything_is_a_cosimo_error() -> None:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert all(issubclass(error, CosimoError) for error in found)
    assert len(found) >= 10


@pytest.mark.parametrize("name", ["UnitError", "NonFiniteError", "Interrupted"])
def test_errors_of_a_run_carry_rows(name: str) -> None:
    error = getattr(errors, name)("something")
    assert isinstance(error, RunError)
    assert error.result is None


def test_unknown_names() -> None:
    assert str(UnknownNameError("unit", "xyz", [])) == "unknown unit 'xyz'; known: none."
    many = UnknownNameError("unit", "u7x", [f"u{i}" for i in range(30)])
    assert "…" in str(many)
    assert "did you mean 'u7'" in str(many)
