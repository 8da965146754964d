"""Units in processes of their own: what is asked for, and whether it can be had here.

The master loads a library of ours instead of the FMU's. It has the same functions, sends every call through shared
memory to a worker process that has loaded the FMU, and notices when that one crashes, hangs or is ended. All else (the
kernel, identification, rollback, checkpoints) calls FMI functions as ever.
"""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from cosimo.core.errors import ConfigurationError

MEGABYTE = 2**20


@dataclass(frozen=True)
class Isolation:
    """How a unit is kept apart.

    `timeout`: seconds that one call may take. `memory`: megabytes that the unit may take beyond what an empty worker
    has. `sandbox`: without network, processes of its own, and all files but its own, read-only; needs bubblewrap.
    `readable`: further files or folders that a unit in a sandbox may read. `spin`: whether both sides look for each
    other's messages for a moment before they sleep; off, processors are left to others and each call costs more.
    `log`: where a unit that failed leaves what it said.
    """

    timeout: float | None = None
    memory: float | None = None
    sandbox: bool = False
    readable: tuple[str, ...] = ()
    spin: bool = True
    log: Path | None = None

    def __post_init__(self) -> None:
        for what, value, measure in (("time", self.timeout, "seconds"), ("memory", self.memory, "megabytes")):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigurationError(
                    f"the {what} limit of a unit is {value:g}; give a positive number of {measure}."
                )


def as_isolation(asked: bool | Isolation) -> Isolation | None:
    """What `Fmu(isolate=…)` means."""
    if isinstance(asked, Isolation):
        return asked
    return Isolation() if asked else None


def available() -> bool:
    """Whether units can be isolated on this platform."""
    return sys.platform == "linux"


def require_available(isolation: Isolation) -> None:
    """Refuse, before anything is started, what cannot be had here."""
    if not available():
        raise ConfigurationError("units can be isolated on Linux only; run without --isolate and --sandbox.")
    if isolation.sandbox and shutil.which("bwrap") is None:
        raise ConfigurationError(
            "a sandbox needs bubblewrap, and there is no program 'bwrap'; install the package bubblewrap, or use "
            "--isolate, which keeps crashes away but not what a unit does to files and network."
        )


def part(name: str) -> Path:
    """The compiled library or the worker."""
    found: Any = resources.files("cosimo.units").joinpath("_isolation", name)
    path = Path(str(found))
    if not path.is_file():
        raise ConfigurationError(f"'{path}' is missing; install cosimo again, with a C++ compiler.")
    return path
