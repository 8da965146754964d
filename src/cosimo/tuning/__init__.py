"""Choosing the master: the Pareto front of a space, how robust a master is, and in which order its units go."""

from cosimo.analysis.cost import Cost, measured_weights
from cosimo.analysis.recommendation import Point, Wanted
from cosimo.tuning.orders import (
    ErrorOfOrders,
    OrderChoice,
    RadiusOfOrders,
    Sequential,
    best_order,
    feedback_order,
    orientations,
)
from cosimo.tuning.search import Progress, Settings
from cosimo.tuning.space import Range, Space
from cosimo.tuning.stability_radius import (
    Crossing,
    Radius,
    Structure,
    first_crossing,
    parameter_structure,
    relative_radius,
    stability_radius,
    unit_structure,
)
from cosimo.tuning.tuned import Tuned, Verified
from cosimo.tuning.tuner import tune

__all__ = [
    "Cost",
    "Crossing",
    "ErrorOfOrders",
    "OrderChoice",
    "Point",
    "Progress",
    "Radius",
    "RadiusOfOrders",
    "Range",
    "Sequential",
    "Settings",
    "Space",
    "Structure",
    "Tuned",
    "Verified",
    "Wanted",
    "best_order",
    "feedback_order",
    "first_crossing",
    "measured_weights",
    "orientations",
    "parameter_structure",
    "relative_radius",
    "stability_radius",
    "tune",
    "unit_structure",
]
