"""The schedule multiplied: one matrix per operation, their product Φ, and the exact coupled system beside it."""

from cosimo.algebra.batch import Batch
from cosimo.algebra.operations import Operations, Update
from cosimo.algebra.product import CoupledModel, LinearSystem, OneStepMap, connection_matrix, coupled_model

__all__ = [
    "Batch",
    "CoupledModel",
    "LinearSystem",
    "OneStepMap",
    "Operations",
    "Update",
    "connection_matrix",
    "coupled_model",
]
