"""The schedule multiplied: one matrix per operation, their product Φ, and the exact coupled system beside it.

From the bottom up: `operations` (one matrix per operation), `product` (Φ of one master, and the coupled system),
`backends`, `batched_map` and `batch` (many masters in one call), `spectral_radius`. Names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
_HOMES = {"Batch": "batch", "Operations": "operations", "Update": "operations"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cosimo.algebra' has no attribute '{name}'")
    home = importlib.import_module(f"cosimo.algebra.{_HOMES.get(name, 'product')}")
    globals()[name] = getattr(home, name)
    return globals()[name]
