"""Many masters of one system in one call: macro steps and coupling gains as arrays instead of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from cosimo.algebra.operations import Operations
from cosimo.algebra.product import LinearSystem
from cosimo.core.arrays import Array
from cosimo.core.coupling import CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.unit import DiscreteModel
from cosimo.couplings import Nepce, nepce_matrices

Norm = Literal[1, 2]
"""Which induced norm: the largest column sum, or the largest singular value."""


def require_gains(system: System, master: Master, targets: Iterable[str]) -> None:
    """Refuse inputs whose coupling has not the memory of `Nepce`, so that its gain cannot be varied."""
    for target in targets:
        system.input(target)
        coupling = master.coupling_of(target)
        if (coupling.history, coupling.degree) != (Nepce.history, Nepce.degree):
            raise ConfigurationError(
                f"the input {target} is coupled by {coupling}, which has not the memory of Nepce; give the master "
                f"a Nepce there to vary its gain."
            )


class _Stacked(Operations):
    """The matrices of the operations for N steps and, at some inputs, N NEPCE gains."""

    def __init__(self, system: System, master: Master, steps: Array, alphas: Mapping[str, Array]) -> None:
        super().__init__(system, master)
        self._steps, self._inverse = np.unique(steps, return_inverse=True)
        self._alphas = {target: alpha[:, None, None] for target, alpha in alphas.items()}

    def duration(self, fraction: Fraction) -> Array:
        return float(fraction) * self._steps

    def coupling_matrices(self, target: str, sampling: Sampling) -> CouplingMatrices:
        if target in self._alphas:
            return nepce_matrices(self._alphas[target])
        return super().coupling_matrices(target, sampling)

    def _discretise(self, name: str, fraction: Fraction) -> DiscreteModel:
        # Each distinct step size is discretised once, then handed out to the masters that use it.
        if (name, fraction) not in self._discrete:
            distinct = self.system.units[name].discrete(self.duration(fraction))
            self._discrete[name, fraction] = DiscreteModel(distinct.A[self._inverse], distinct.B[self._inverse])
        return self._discrete[name, fraction]


class Batch:
    """N masters that share a schedule: `steps` (N,), and `alphas` with N gains of `Nepce` per target input (any value).

    The inputs in `alphas` must be coupled by something with the memory of `Nepce` in `master`.
    """

    def __init__(
        self,
        system: System,
        master: Master,
        steps: npt.ArrayLike,
        alphas: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        lists = {target: np.asarray(alpha, dtype=float) for target, alpha in (alphas or {}).items()}
        self.steps: Array = np.broadcast_to(
            np.asarray(steps, dtype=float), np.broadcast_shapes(np.shape(steps), *(a.shape for a in lists.values()))
        )
        self.alphas = {target: np.broadcast_to(alpha, self.steps.shape) for target, alpha in lists.items()}
        if not (np.isfinite(self.steps).all() and (self.steps > 0).all()):
            raise ConfigurationError("the macro steps of a batch must be positive numbers.")
        require_gains(system, master, lists)
        self.linear = LinearSystem(
            system, master, _Stacked(system, master, self.steps.ravel(), self._flat(slice(None)))
        )

    def _flat(self, part: slice) -> dict[str, Array]:
        return {target: alpha.ravel()[part] for target, alpha in self.alphas.items()}

    def spectral_radius(self) -> Array:
        """ρ(Φ) of every master, in the shape of `steps`."""
        radius: Array = np.abs(np.linalg.eigvals(self.linear.cycle.matrix)).max(axis=-1, initial=0.0)
        return self._shaped(radius)

    def exact_spectral_radius(self) -> Array:
        """ρ(exp(A_c h)) of the exact coupled system at every step, the measure for ρ(Φ)."""
        growth = float(np.linalg.eigvals(self.linear.coupled.A).real.max(initial=-np.inf))
        return np.exp(growth * self.steps)

    def consistency(self, *, k: int, norm: Norm) -> Array:
        """δ = ‖(S_u − L S_y) Φ^k E‖ of every master (see `cosimo.analysis.accuracy`)."""
        linear = self.linear
        given = np.zeros((linear.layout.size - linear.size, linear.coupled.A.shape[0]))
        rows = linear.split(np.concatenate([linear.start_map(), given]))
        for _ in range(k):
            rows = linear.macro_step(rows)
        defect = linear.defect(linear.join(rows))
        delta: Array = np.linalg.norm(defect, ord=norm, axis=(-2, -1))
        return self._shaped(delta)

    def _shaped(self, found: Array) -> Array:
        """One number per master; what depends on no step and no gain comes as a single one."""
        return np.broadcast_to(found, self.steps.size).reshape(self.steps.shape)
