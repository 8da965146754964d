"""What can be said of a coupling before running it: stability, modes, consistency, accuracy, the critical step."""

from cosimo.analysis.accuracy import GlobalError, convergence_order, global_error
from cosimo.analysis.consistency import consistency
from cosimo.analysis.critical import CriticalStep, critical_step
from cosimo.analysis.laplace import Delay, LaplaceModel, PrimaryPole
from cosimo.analysis.pade import pade_poles
from cosimo.analysis.roots import Region
from cosimo.analysis.spectrum import Mode, Spectrum
from cosimo.analysis.verdict import Verdict, analyse, sweep_factor

__all__ = [
    "CriticalStep",
    "Delay",
    "GlobalError",
    "LaplaceModel",
    "Mode",
    "PrimaryPole",
    "Region",
    "Spectrum",
    "Verdict",
    "analyse",
    "consistency",
    "convergence_order",
    "critical_step",
    "global_error",
    "pade_poles",
    "sweep_factor",
]
