"""The schedule multiplied: one matrix per operation, their product Φ, and the exact coupled system beside it.

From the bottom up: `operations` (one matrix per operation), `product` (Φ of one master, and the coupled system),
`backends`, `batched_map` and `batch` (many masters in one call), `spectral_radius`. Names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Batch": "batch",
    "CoupledModel": "product",
    "LinearSystem": "product",
    "OneStepMap": "product",
    "Operations": "operations",
    "Update": "operations",
    "connection_matrix": "product",
    "coupled_model": "product",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cosimo.algebra' has no attribute '{name}'")
    return getattr(importlib.import_module(f"cosimo.algebra.{_HOMES[name]}"), name)
