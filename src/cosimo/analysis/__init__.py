"""What can be said of a coupling before running it: `analyse` and the verdict it returns.

Where each word is defined: *stable* in `stability`; *horizon*, *true solution* and *error* in `truth`; *cost* in
`cost`; *trust* in `trust`; the recommendation in `recommendation`; what is known of the units in `model`; pilot runs in
`pilots`. Names are loaded when first used: the numerics are needed in many places, `analyse` with all it calls in few.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Budget": "pilots",
    "CriticalStep": "critical",
    "GlobalError": "error_norms",
    "Mode": "spectrum",
    "Model": "model",
    "OutputErrors": "truth",
    "Recommendation": "recommendation",
    "Spectrum": "spectrum",
    "Verdict": "verdict",
    "analyse": "analysing",
    "consistency": "error_norms",
    "convergence_order": "error_norms",
    "critical_step": "critical",
    "global_error": "error_norms",
    "sweep_factor": "spectrum",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cosimo.analysis' has no attribute '{name}'")
    return getattr(importlib.import_module(f"cosimo.analysis.{_HOMES[name]}"), name)
