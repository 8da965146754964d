"""Assessment: the verdict on systems of any units, FMUs included, before they are run.

    found = assess(system, master, horizon=10.0)
    print(found)                          # units, stability, error, critical steps, worst connection, recommendation

Units whose equations are not known are identified (`cosimo.identification`) at the start of the run, or along one; the
linear models take their places, and the coupling is analysed as that of linear units. What cannot be said has a reason
instead of a number.
"""

from cosimo.assessment.accuracy import Predicted
from cosimo.assessment.assessing import assess
from cosimo.assessment.assessment import Assessment, Confidence, Moment, UnitReport
from cosimo.assessment.connections import ConnectionEffect
from cosimo.assessment.limits import Limits
from cosimo.assessment.recommending import Recommendation

__all__ = [
    "Assessment",
    "Confidence",
    "ConnectionEffect",
    "Limits",
    "Moment",
    "Predicted",
    "Recommendation",
    "UnitReport",
    "assess",
]
