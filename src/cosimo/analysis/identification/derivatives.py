"""Models from directional derivatives: the continuous A, B, C, D of an FMU that lists its states."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosimo.analysis.identification.bench import Bench, TrialFailed
from cosimo.analysis.identification.operating import FmuStates
from cosimo.core.arrays import Array
from cosimo.core.unit import LinearModel


def linearise(bench: Bench) -> LinearModel:
    """ẋ = A x + B u, y = C x + D u at the operating point, one derivative per state and continuous input."""
    access, unit = bench.access, bench.unit
    if not isinstance(access, FmuStates):
        raise TrialFailed("its description lists no continuous states, so that derivatives would miss its dynamics")
    knowns = [*access.names, *(unit.inputs[i] for i in bench.free)]
    unknowns = [*access.derivatives, *_real_outputs(unit)]
    n = len(access.names)
    jacobian = np.empty((len(unknowns), len(knowns)))
    with bench.instance() as live:
        instance: Any = live
        try:
            for column, known in enumerate(knowns):
                jacobian[:, column] = instance.directional_derivative(unknowns, [known], [1.0])
        except Exception as error:
            raise TrialFailed(f"its directional derivatives failed: {error}") from error
    if not np.isfinite(jacobian).all():
        raise TrialFailed("its directional derivatives are not all finite")
    return LinearModel(
        jacobian[:n, :n],
        _wide(jacobian[:n, n:], bench),
        _tall(jacobian[n:, :n], unit),
        _tall(_wide(jacobian[n:, n:], bench), unit),
    )


def _real_outputs(unit: Any) -> list[str]:
    return [info.name for info in unit.output_infos if info.continuous]


def _wide(columns: Array, bench: Bench) -> Array:
    """Columns of zeros for the inputs that are held fixed."""
    full = np.zeros((len(columns), len(bench.unit.inputs)))
    full[:, list(bench.free)] = columns
    return full


def _tall(rows: Array, unit: Any) -> Array:
    """Rows of zeros for the outputs that have no derivatives."""
    full = np.zeros((len(unit.outputs), rows.shape[1]))
    full[[place for place, info in enumerate(unit.output_infos) if info.continuous]] = rows
    return full
