"""Couplings: what turns the outputs of other units into the next input."""

from cosimo.core.coupling import Coupling, CouplingMatrices, Sampling
from cosimo.couplings.dmd import Dmd
from cosimo.couplings.hold import Hold
from cosimo.couplings.nepce import Nepce

__all__ = ["Coupling", "CouplingMatrices", "Dmd", "Hold", "Nepce", "Sampling"]
