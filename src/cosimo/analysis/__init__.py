"""What can be said of a coupling before running it: `analyse` and the verdict it returns.

Where each word is defined: *stable* in `stability`; *horizon*, *true solution* and *error* in `truth`; *cost* in
`cost`; *trust* in `trust`; the recommendation in `recommendation`; what is known of the units in `model`; pilot runs in
`pilots`. Names are loaded when first used: the numerics are needed in many places, `analyse` with all it calls in few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosimo.core import loaded_when_used

if TYPE_CHECKING:
    from cosimo.analysis.analysing import analyse as analyse
    from cosimo.analysis.critical import CriticalStep as CriticalStep
    from cosimo.analysis.critical import critical_step as critical_step
    from cosimo.analysis.error_norms import GlobalError as GlobalError
    from cosimo.analysis.error_norms import consistency as consistency
    from cosimo.analysis.error_norms import convergence_order as convergence_order
    from cosimo.analysis.error_norms import global_error as global_error
    from cosimo.analysis.model import Model as Model
    from cosimo.analysis.model import warm_start as warm_start
    from cosimo.analysis.pilots import Budget as Budget
    from cosimo.analysis.recommendation import Recommendation as Recommendation
    from cosimo.analysis.spectrum import Mode as Mode
    from cosimo.analysis.spectrum import Spectrum as Spectrum
    from cosimo.analysis.spectrum import sweep_factor as sweep_factor
    from cosimo.analysis.truth import OutputErrors as OutputErrors
    from cosimo.analysis.verdict import Verdict as Verdict

_HOMES = {
    "Budget": ".pilots",
    "CriticalStep": ".critical",
    "GlobalError": ".error_norms",
    "Mode": ".spectrum",
    "Model": ".model",
    "OutputErrors": ".truth",
    "Recommendation": ".recommendation",
    "Spectrum": ".spectrum",
    "Verdict": ".verdict",
    "analyse": ".analysing",
    "consistency": ".error_norms",
    "convergence_order": ".error_norms",
    "critical_step": ".critical",
    "global_error": ".error_norms",
    "sweep_factor": ".spectrum",
    "warm_start": ".model",
}

__all__ = list(_HOMES)
__getattr__ = loaded_when_used("cosimo.analysis", _HOMES)
