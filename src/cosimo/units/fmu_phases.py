"""Which phase of a run a function of FMI belongs to."""

from __future__ import annotations

from functools import cache

PHASES = (
    ("load", "instantiate"),
    ("Instantiate", "instantiate"),
    ("InitializationMode", "initialise"),
    ("SetupExperiment", "initialise"),
    ("SetDebugLogging", "initialise"),
    ("DoStep", "doStep"),
    ("Terminate", "terminate"),
    ("FreeInstance", "free"),
    ("GetFMUstate", "save"),
    ("GetFMUState", "save"),
    ("SetFMUstate", "restore"),
    ("SetFMUState", "restore"),
)
"""The phase of a run that a function belongs to, by part of its name."""


@cache
def phase_of(function: str, *, running: bool) -> str:
    """The phase in which a function was called; values set or read before the first step belong to initialisation."""
    for part_of_name, phase in PHASES:
        if part_of_name in function:
            return phase
    if not running:
        return "initialise"
    return "get" if "Get" in function else "set" if "Set" in function else "between calls"
