"""The coupled system itself, as if it were one model: what every co-simulation is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cosimo.core.arrays import Array, loop_is_singular
from cosimo.core.errors import AlgebraicLoopError
from cosimo.core.system import System
from cosimo.core.unit import LinearModel


@dataclass(frozen=True)
class CoupledModel:
    """ẋ = A x, y = C x of the coupled system (glumac2018, Eq. 16), with the connections L and all units' B and D.

    A = A_units + B L (I − D L)⁻¹ C_units,   C = (I − D L)⁻¹ C_units;   dense or sparse.
    """

    A: Any
    B: Any
    C: Any
    D: Any
    L: Any
    loop: Any

    def solve_loop(self, right: Any) -> Any:
        """(I − D L)⁻¹ right."""
        return _solve(self.loop, right)

    def flow(self, h: float) -> Array:
        """exp(A h), the exact one-step map of the states."""
        A: Array = self.A.toarray() if sp.issparse(self.A) else self.A
        flow: Array = scipy.linalg.expm(A * h)
        return flow


def coupled_model(system: System, models: Mapping[str, LinearModel], *, sparse: bool = False) -> CoupledModel:
    """Assemble the coupled model; a loop with det(I − D L) = 0 is refused, naming its variables."""
    parts = {letter: [getattr(models[name], letter) for name in system.units] for letter in "ABCD"}
    L = connection_matrix(system, sparse=sparse)
    if sparse:
        A, B, C, D = (sp.block_diag([sp.csr_array(part) for part in own], format="csr") for own in parts.values())
        loop: Any = sp.csc_array(sp.eye_array(D.shape[0]) - D @ L)
    else:
        A, B, C, D = (_diagonal(own) for own in parts.values())
        loop = np.eye(len(D)) - D @ L
    _require_solvable(system, loop)
    outputs = _solve(loop, C)
    return CoupledModel(A + B @ (L @ outputs), B, outputs, D, L, loop)


def _diagonal(parts: Sequence[Array]) -> Array:
    """Dense blocks on the diagonal, also those without rows or columns."""
    found = np.zeros(tuple(np.sum([part.shape for part in parts], axis=0)))
    row = column = 0
    for part in parts:
        found[row : row + part.shape[0], column : column + part.shape[1]] = part
        row, column = row + part.shape[0], column + part.shape[1]
    return found


def connection_matrix(system: System, *, sparse: bool = True) -> Any:
    """L with u = L y + …, gains included (inputs, outputs)."""
    outputs = {name: i for i, name in enumerate(system.outputs)}
    inputs = {name: i for i, name in enumerate(system.input_names)}
    rows = [inputs[link.connection.target] for link in system.links]
    columns = [outputs[link.connection.source] for link in system.links]
    gains = [link.connection.gain for link in system.links]
    if sparse:
        return sp.csr_array((gains, (rows, columns)), shape=(len(inputs), len(outputs)))
    dense = np.zeros((len(inputs), len(outputs)))
    dense[rows, columns] = gains  # every input has one source at most
    return dense


def _require_solvable(system: System, loop: Any) -> None:
    place = {name: i for i, name in enumerate(system.outputs)}
    for group in system.loops():
        own = [place[name] for name in group]
        inside = loop[own][:, own]
        if loop_is_singular(np.eye(len(own)) - (inside.toarray() if sp.issparse(inside) else inside), 1e-12):
            raise AlgebraicLoopError.singular(group)


def _solve(loop: Any, right: Any) -> Any:
    if not sp.issparse(loop):
        return np.linalg.solve(loop, right)
    if not sp.issparse(right):
        return spl.splu(loop).solve(right)
    # The solver returns a single column as a plain vector.
    return sp.csr_array(spl.spsolve(loop, sp.csc_array(right))).reshape(right.shape)
