"""Built-in systems with their citations: `problems.two_mass()` builds the problem "two-mass" of the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cosimo.problems.catalogue import CATALOGUE, Problem, find

if TYPE_CHECKING:
    from cosimo.core.system import System

__all__ = ["CATALOGUE", "Problem", "find"]


def __getattr__(name: str) -> Callable[..., System]:
    """The function that builds a problem, loaded when it is first asked for."""
    problem = CATALOGUE.get(name.replace("_", "-"))
    if problem is None or "-" in name:
        raise AttributeError(f"module 'cosimo.problems' has no attribute '{name}'")
    return problem.build


def __dir__() -> list[str]:
    return [*__all__, *(name.replace("-", "_") for name in CATALOGUE)]
