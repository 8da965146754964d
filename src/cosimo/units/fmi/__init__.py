"""FMUs: archives, descriptions, variables, components, instances, processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosimo.units.fmi.fmu import Fmu


def fmus(units: Mapping[str, Any]) -> dict[str, Fmu]:
    """The FMUs among units; where the module that makes them was never loaded, there are none, and it stays so."""
    loaded = sys.modules.get("cosimo.units.fmi.fmu")
    return {} if loaded is None else {name: unit for name, unit in units.items() if isinstance(unit, loaded.Fmu)}


def first_trials(units: Mapping[str, Any], start: float, steps: Mapping[str, float]) -> AbstractContextManager[None]:
    """`decided_isolation` (`cosimo.units.fmi.isolation`) of the FMUs among units; nothing where there are none."""
    found = fmus(units)
    if not found:
        return nullcontext()
    from cosimo.units.fmi.isolation import decided_isolation

    return decided_isolation(found, start, steps)
