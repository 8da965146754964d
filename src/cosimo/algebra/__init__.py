"""The schedule multiplied: one matrix per operation, their product Φ, and the exact coupled system beside it.

From the bottom up: `operations` (one matrix per operation), `product` (Φ of one master, and the coupled system),
`backends`, `batched_map` and `batch` (many masters in one call), `spectral_radius`. Names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosimo.core import loaded_when_used

if TYPE_CHECKING:
    from cosimo.algebra.batch import Batch as Batch
    from cosimo.algebra.operations import Operations as Operations
    from cosimo.algebra.operations import Update as Update
    from cosimo.algebra.product import CoupledModel as CoupledModel
    from cosimo.algebra.product import LinearSystem as LinearSystem
    from cosimo.algebra.product import OneStepMap as OneStepMap
    from cosimo.algebra.product import connection_matrix as connection_matrix
    from cosimo.algebra.product import coupled_model as coupled_model

_HOMES = {
    "Batch": ".batch",
    "CoupledModel": ".product",
    "LinearSystem": ".product",
    "OneStepMap": ".product",
    "Operations": ".operations",
    "Update": ".operations",
    "connection_matrix": ".product",
    "coupled_model": ".product",
}
__all__ = list(_HOMES)
__getattr__ = loaded_when_used("cosimo.algebra", _HOMES)
