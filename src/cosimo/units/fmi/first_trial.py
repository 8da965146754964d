"""FMUs that nobody knows yet: a first trial in a process of their own decides whether they are let into the master's.

The trial instantiates and initialises the FMU with its start values, makes two macro steps, saves and restores where it
can, and terminates it. An FMU that gets through stays in the master's process and is remembered by the content of its
archive. One that crashes, ends its process or does not return is isolated, and named in a notice. One that returns
an error endangers nobody: it stays, for the run to say, and is not remembered; so is one that cannot be isolated.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

from cosimo.core.errors import CosimoError, UnitCrashed, UnitTimeout
from cosimo.core.guarding import enter, leave, time_limit
from cosimo.core.storage import Remembered, file_digest
from cosimo.units.fmi.archive import lease
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.isolation import Isolation, available

FORMAT = 1
"""Changed with what a trial is."""
STEPS = 2
LONGEST = 10.0
"""Seconds that one call may take in the trial: one that takes longer may never return."""
_passed: set[str] = set()
"""The contents that this process has seen get through: also without a folder to remember them, once is enough."""


@contextmanager
def decided_isolation(units: Mapping[str, Fmu], start: float, steps: Mapping[str, float]) -> Iterator[None]:
    """Make the first trials that are still to be made; `steps` are the units' communication step sizes.

    In the block `isolation` holds of every FMU, and has the reason where the trial decided; what was extracted for the
    trials stays, for whoever instantiates the units there.
    """
    with ExitStack() as extracted:
        for name, unit in units.items():
            if unit.trial is None:
                continue
            if unit.isolation is None and available() and not unit.single_instance:
                limited = replace(unit.trial, timeout=unit.trial.timeout or time_limit())
                reason = _refusal(name, unit, limited, start, steps[name], extracted)
                unit.isolation = replace(limited, reason=reason) if reason else None
            unit.trial = None
        yield


def _refusal(name: str, unit: Fmu, isolation: Isolation, start: float, step: float, extracted: ExitStack) -> str:
    """Why an FMU is isolated; empty where it stays in the master's process."""
    try:
        digest = file_digest(unit.path)
        digest += "" if unit.solver is None else unit.kind
    except OSError:  # whoever loads it says so
        return ""
    key = {"trial": digest, "format": FORMAT}
    answers = Remembered()
    if digest in _passed or answers.recall(key) is not None:
        return ""
    enter(name, "first trial", start)
    try:
        extracted.callback(lease(unit.path, limits=unit.options.limits).release)
        _try(unit, isolation, start, step)
    except (UnitCrashed, UnitTimeout) as error:
        cause = str(error.fields()["cause"]).rstrip(".")
        return f"is isolated after a first trial ({cause}); --trust-units would run it in the master's process"
    except CosimoError:
        return ""
    finally:
        leave()
    _passed.add(digest)
    answers.remember(key, {"passed": True})
    return ""


def _try(unit: Fmu, isolation: Isolation, start: float, h: float) -> None:
    tried = copy.copy(unit)
    tried.isolation = replace(isolation, timeout=isolation.timeout or LONGEST, log=None)
    tried.reserve = None
    with closing(tried.started(start, h)) as instance:
        for k in range(STEPS):
            instance.set_input(unit.start_inputs[None, :], h)
            instance.step(start + k * h, h)
            instance.read()
        if unit.can_restore:
            instance.restore(instance.save())
