"""Identification: a linear model of what a unit really does over one macro step.

    co.identification.identify(unit, step) → Identified(model, C, D, …, valid, reasons)

A unit is a black box with its own solver. Around an operating point, and for one macro step, what it does is a linear
map as long as it answers small pulses linearly; that map is what stability and accuracy of a coupling depend on. It is
found from directional derivatives, from differences between runs that begin in the same saved state, or from pulse
answers of fresh instances, in this order of preference, and checked on data that was not used. What does
all this is loaded when it is first used: known equations need none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosimo.analysis.identification.models import Identified, IdentifiedUnit, Means
from cosimo.core import loaded_when_used

if TYPE_CHECKING:
    from cosimo.analysis.identification.procedure import identify, means_offered
    from cosimo.analysis.identification.test_rig import OperatingPoint

_HOMES = {"OperatingPoint": ".test_rig", "identify": ".procedure", "means_offered": ".procedure"}
__all__ = ["Identified", "IdentifiedUnit", "Means", "OperatingPoint", "identify", "means_offered"]
__getattr__ = loaded_when_used("cosimo.analysis.identification", _HOMES)
