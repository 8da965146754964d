"""Spectra of the co-simulation and of the exact system, and which mode became which.

Whether a spectrum is stable is decided in `cosimo.analysis.stability`. The exact system's radius, ρ(exp(A_c h)) =
exp(h max Re λ), stands beside ρ(Φ): a smaller ρ(Φ) than that is spurious damping, not merit. A monolithic mode λ with
shape v becomes the eigenpair (μ, z) of Φ that is nearest in value and shape; log(μ) / h is its co-simulated pole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosimo.algebra.product import LinearSystem, dense, merge_equal
from cosimo.algebra.sparse_step import SparseStep
from cosimo.analysis.stability import Rest, find_rest, grows, is_stable, moving_radius
from cosimo.core import dataclass
from cosimo.core.arrays import Array, ComplexArray, match
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Repeat
from cosimo.core.timing import TimedRepeat

SHAPES_UP_TO = 400
"""Number of states up to which all mode shapes are computed; beyond, modes are paired by their values only."""

MERGED_FROM = 128
"""Numbers that are carried from which on it is worth looking for equal ones."""


@dataclass(frozen=True)
class Mode:
    """A monolithic mode and its co-simulated counterpart; `mac` is 1 for equal shapes, None where not computed."""

    monolithic: complex
    cosimulated: complex
    mac: float | None

    @property
    def frequency(self) -> float:
        """Natural frequency of the monolithic mode, |λ| / 2π, in Hz."""
        return abs(self.monolithic) / (2 * np.pi)

    @property
    def damping(self) -> float:
        """Damping ratio of the monolithic mode, −Re λ / |λ|."""
        return _damping(self.monolithic)

    @property
    def frequency_shift(self) -> float:
        """Relative change of the natural frequency."""
        return abs(self.cosimulated) / abs(self.monolithic) - 1 if self.monolithic else abs(self.cosimulated)

    @property
    def damping_shift(self) -> float:
        """Change of the damping ratio; negative means that co-simulation feeds energy in."""
        return _damping(self.cosimulated) - _damping(self.monolithic)


def _damping(pole: complex) -> float:
    return -pole.real / abs(pole) if pole else 0.0


class MasterStability(NamedTuple):
    """Whether a master is stable; of an iteration, whether it converges and its factor per sweep (see `converges`)."""

    stable: bool | None
    converges: bool | None
    factor: float | None


class Spectrum:
    """Eigenvalues of Φ and of the exact system for one master."""

    def __init__(self, linear: LinearSystem, like: Spectrum | None = None) -> None:
        """`like`: that of another master, whose exact poles are taken over where its exact system is this one."""
        self.linear = linear
        self.step = linear.master.step
        if like is not None and like.linear.coupled is linear.coupled:
            self.poles, self.rest = like.poles, like.rest
        self.paired: ComplexArray = np.zeros(0, dtype=complex)

    @cached_property
    def _merged(self) -> tuple[Array, npt.NDArray[np.intp]]:
        """Φ on what is carried, and the place of every carried slot in it; of many, equal ones are merged."""
        matrix = self.linear.cycle.matrix
        if isinstance(matrix, np.ndarray) and len(matrix) < MERGED_FROM:
            return matrix, np.arange(len(matrix))
        merged, place = merge_equal(matrix)
        return merged.toarray(), place

    @property
    def _matrix(self) -> Array:
        return self._merged[0]

    @cached_property
    def _coupled(self) -> Array:
        return dense(self.linear.coupled.A)

    @cached_property
    def eigenvalues(self) -> ComplexArray:
        """Eigenvalues of Φ on what is carried from macro step to macro step, zeros of merged slots included."""
        matrix, place = self._merged
        values: ComplexArray = np.zeros(len(place), dtype=complex)
        values[: len(matrix)] = np.linalg.eigvals(matrix)
        return values

    @cached_property
    def poles(self) -> ComplexArray:
        """Eigenvalues λ of the exact coupled system."""
        values: ComplexArray = np.linalg.eigvals(self._coupled).astype(complex)
        return values

    @cached_property
    def rest(self) -> Rest:
        """The poles 0 of the exact coupled system."""
        return find_rest(self._coupled)

    @cached_property
    def moving_radius(self) -> float:
        """ρ(Φ) without the eigenvalues 1 of modes at rest."""
        return moving_radius(self._matrix, self.rest, self.step) if self.rest.count else self.radius

    @property
    def radius(self) -> float:
        """ρ(Φ)."""
        return float(np.abs(self.eigenvalues).max(initial=0.0))

    @property
    def exact_radius(self) -> float:
        """ρ(exp(A_c h)) = exp(h max Re λ)."""
        return float(np.exp(self.step * self.poles.real.max(initial=-np.inf)))

    @property
    def exact_stable(self) -> bool:
        """Whether the coupled system itself does not grow."""
        return not grows(self.poles, rest=self.rest.count)

    def stays_bounded(self, *, identified: bool = False) -> bool | None:
        """Whether the master stays bounded; `identified` units are known less well."""
        return bool(is_stable(self.moving_radius, identified=identified))

    @property
    def stable(self) -> bool:
        """Whether the master stays bounded."""
        return bool(is_stable(self.moving_radius))

    def modes(self) -> tuple[Mode, ...]:
        """All monolithic modes (one of each conjugate pair), lowest frequency first, each with its counterpart."""
        if not len(self.poles):
            return ()  # units without states
        if len(self.poles) <= SHAPES_UP_TO:
            return self._modes_with_shapes()
        poles = self.poles[self.poles.imag >= 0]
        cost = np.abs(np.exp(poles * self.step)[:, None] - self.eigenvalues)
        rows, columns = match(cost)
        pairs = zip(poles[rows], self.eigenvalues[columns], strict=True)
        return self._sorted(Mode(complex(p), nearest_pole(complex(mu), self.step, p), None) for p, mu in pairs)

    def _modes_with_shapes(self) -> tuple[Mode, ...]:
        poles, shapes = np.linalg.eig(self._coupled)
        matrix, place = self._merged
        size = max(len(matrix), len(poles))
        mu, carried = np.zeros(size, dtype=complex), np.zeros((len(matrix) + 1, size), dtype=complex)
        mu[: len(matrix)], carried[: len(matrix), : len(matrix)] = np.linalg.eig(matrix)
        # The last row is that of slots which are always 0.
        states = self._states(carried[place])
        rows, columns, mac = pair_modes(poles, shapes, mu, states, self.step)
        self.paired = mu[columns]
        return self._sorted(
            Mode(complex(poles[i]), nearest_pole(complex(mu[j]), self.step, poles[i]), float(mac[i, j]))
            for i, j in zip(rows, columns, strict=True)
            if poles[i].imag >= 0
        )

    def foreign(self) -> complex | None:
        """The pole of the largest eigenvalue of Φ when it belongs to no monolithic mode: a mode the master adds."""
        if not len(self.eigenvalues) or len(self.poles) > SHAPES_UP_TO:
            return None
        self.modes()
        largest = complex(self.eigenvalues[np.abs(self.eigenvalues).argmax()])
        if np.abs(self.paired - largest).min(initial=np.inf) <= 1e-9 * abs(largest):
            return None
        return nearest_pole(largest, self.step, 0j)

    def _states(self, carried: ComplexArray) -> ComplexArray:
        """The states at the end of the macro step, for columns of what is carried at the cut."""
        linear, cycle = self.linear, self.linear.cycle
        rows = {b: np.zeros((linear.layout.width(b), carried.shape[1]), dtype=complex) for b in linear.layout.blocks}
        start = 0
        for block in cycle.blocks:
            rows[block] = carried[start : start + linear.layout.width(block)]
            start += linear.layout.width(block)
        linear.apply(cycle.rest, rows)
        states: ComplexArray = linear.join(rows)[linear.layout.indices("x")]
        return states

    @staticmethod
    def _sorted(modes: Iterable[Mode]) -> tuple[Mode, ...]:
        return tuple(sorted(modes, key=lambda mode: (abs(mode.monolithic), mode.monolithic.imag)))


def nearest_pole(mu: complex, step: float, near: complex) -> complex:
    """log(μ) / h on the branch nearest to the pole `near` (the principal one below the Nyquist frequency)."""
    if mu == 0:
        return complex(-np.inf)
    principal, turn = np.log(mu) / step, 2 * np.pi / step
    return complex(principal + 1j * turn * np.round((near.imag - principal.imag) / turn))


def pair_modes(
    poles: ComplexArray, shapes: ComplexArray, mu: ComplexArray, states: ComplexArray, step: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Array]:
    """Which pole λ with its shape (n, k) became which eigenvalue μ of Φ with its states (n, l); and all MAC (k, l)."""
    mac = np.abs(shapes.conj().T @ states) ** 2
    mac /= np.maximum(np.outer(_squares(shapes), _squares(states)), 1e-300)
    # Both in units of one step's rotation: values decide, shapes break ties between nearly equal values.
    distance = np.abs(np.exp(poles * step)[:, None] - mu)
    sizes = np.sort(np.abs(poles) * step)  # the median; np.median loads masked arrays
    scale = (sizes[[(len(sizes) - 1) // 2, len(sizes) // 2]].mean() if len(sizes) else 0.0) + 1e-300
    return *match(distance / scale + (1 - np.minimum(mac, 1))), mac


def _squares(columns: ComplexArray) -> Array:
    total: Array = (np.abs(columns) ** 2).sum(axis=0)
    return total


def sweep_factor(linear: LinearSystem) -> float | None:
    """ρ(B_vv) of the sweep of an iteration until convergence: by what plain substitution multiplies the error.

    None without an iteration, NaN where a large system's was not found.
    """
    for operation in linear.operations.timeline.operations:
        if isinstance(operation, TimedRepeat) and isinstance(operation.times, Convergence):
            if linear.sparse:
                from cosimo.analysis.large import largest

                sweep = SparseStep(linear.operations, operation.sweeps[-1])
                B_vv = sweep.restricted(sweep.changed)
                found = largest(B_vv.product, B_vv.size, count=4, tolerance=1e-6)
                return float(np.abs(found).max()) if len(found) else math.nan
            B, changed, _ = linear.sweep_matrix(operation.sweeps[-1])
            return float(np.abs(np.linalg.eigvals(B[changed][:, changed])).max(initial=0.0))
    return None


def sweep_jacobian(linear: LinearSystem) -> Array:
    """J = ∂g/∂y of the last kind of sweep, y ← g(y): outputs after a sweep with respect to those before it (p, p)."""
    for operation in linear.operations.timeline.operations:
        if isinstance(operation, TimedRepeat) and isinstance(operation.times, Convergence):
            B, y = linear.sweep_matrix(operation.sweeps[-1])[0], linear.layout.indices("y")
            return dense(B[y][:, y])
    raise ConfigurationError("the master does not iterate until convergence; there is no sweep to differentiate.")


def converges(master: Master, factor: float | None) -> bool | None:
    """Whether an iteration that multiplies the error by `factor` per sweep converges; None without one, or unknown."""
    if factor is None:
        return None
    repeats = [operation.times for operation in master.schedule.operations if isinstance(operation, Repeat)]
    if any(isinstance(times, Convergence) and bool(times.anderson or times.quasi_newton) for times in repeats):
        return True
    return None if math.isnan(factor) else factor < 1
