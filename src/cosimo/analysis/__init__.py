"""What can be said of a coupling before running it: `analyse` and the verdict it returns.

Where each word is defined: *stable* in `stability`; *horizon*, *true solution* and *error* in `truth`; *cost* in
`cost`; *trust* in `trust`; the recommendation in `recommendation`; what is known of the units in `model`; pilot runs in
`pilots`. Names are loaded when first used: the numerics are needed in many places, `analyse` with all it calls in few.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosimo.analysis.accuracy import GlobalError, consistency, convergence_order, global_error
    from cosimo.analysis.analysing import analyse
    from cosimo.analysis.critical import CriticalStep, critical_step
    from cosimo.analysis.model import Model
    from cosimo.analysis.pilots import Budget
    from cosimo.analysis.recommendation import Recommendation
    from cosimo.analysis.spectrum import Mode, Spectrum, sweep_factor
    from cosimo.analysis.truth import OutputErrors
    from cosimo.analysis.verdict import Verdict

_HOMES = {
    "Budget": "pilots",
    "CriticalStep": "critical",
    "GlobalError": "accuracy",
    "Mode": "spectrum",
    "Model": "model",
    "OutputErrors": "truth",
    "Recommendation": "recommendation",
    "Spectrum": "spectrum",
    "Verdict": "verdict",
    "analyse": "analysing",
    "consistency": "accuracy",
    "convergence_order": "accuracy",
    "critical_step": "critical",
    "global_error": "accuracy",
    "sweep_factor": "spectrum",
}

__all__ = [
    "Budget",
    "CriticalStep",
    "GlobalError",
    "Mode",
    "Model",
    "OutputErrors",
    "Recommendation",
    "Spectrum",
    "Verdict",
    "analyse",
    "consistency",
    "convergence_order",
    "critical_step",
    "global_error",
    "sweep_factor",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cosimo.analysis' has no attribute '{name}'")
    found = getattr(importlib.import_module(f"cosimo.analysis.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
