"""Many masters of one system in one call.

    Batch(system, master, steps=h, gains={"two.F": alpha}).compute(Consistency(k=2))

takes masters that share the schedule of `master` and differ in the macro step, in gains of `Nepce` and in parameters of
the units. Masters go through in chunks: on all cores with NumPy, one large chunk
after the other on a graphics processor.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cosimo.algebra.backends import Backend, find_backend
from cosimo.algebra.batched_map import BatchedMap, MasterNumbers, SharedSchedule
from cosimo.algebra.spectral_radius import Norm, norms, spectral_radii
from cosimo.core import dataclass
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.system import System

Columns = dict[str, Any]


class Objective(ABC):
    """Something to know about every master of a batch. To add one, derive from it and provide `compute`."""

    @abstractmethod
    def compute(self, maps: BatchedMap) -> Columns:
        """The columns by name, one number (or truth value) per master each."""


@dataclass(frozen=True)
class SpectralRadius(Objective):
    """`spectral_radius` ρ(Φ) to a relative `accuracy`; infinite where Φ is not finite."""

    accuracy: float = 1e-10

    def compute(self, maps: BatchedMap) -> Columns:
        return {"spectral_radius": spectral_radii(maps.cycle, maps.backend, accuracy=self.accuracy).value}


@dataclass(frozen=True)
class Consistency(Objective):
    """`consistency` δ = ‖(S_u − L S_y) Φ^k E‖ (glumac2018, Eq. 59; see `cosimo.analysis.error_norms`)."""

    k: int = 2
    norm: Norm = 2

    def __post_init__(self) -> None:
        if self.k < 1 or self.norm not in (1, 2):
            raise ConfigurationError(f"δ needs k ≥ 1 and the norm 1 or 2, not k = {self.k} and norm {self.norm}.")

    def compute(self, maps: BatchedMap) -> Columns:
        rows = maps.start()
        for _ in range(self.k):
            rows = maps.macro_step(rows)
        defect = maps.full(maps.observe(maps.schedule.defects, rows))
        return {"consistency": norms(defect, maps.backend, norm=self.norm)}


@dataclass(frozen=True)
class BatchTable:
    """Columns by name, one number or truth value per master, all of one shape."""

    columns: Mapping[str, Any]

    def __getitem__(self, name: str) -> Array:
        if name not in self.columns:
            raise UnknownNameError("column", name, self.columns)
        column: Array = self.columns[name]
        return column

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def stable(self) -> BoolArray:
        """The column `stable`."""
        labels: BoolArray = self["stable"]  # type: ignore[assignment]
        return labels


class Batch:
    """N masters that share a schedule.

    `steps` and the arrays in `gains` (by target input, any value) are broadcast against each other; results have that
    shape. The inputs in `gains` must be coupled in `master` by something with the memory of `Nepce`. `systems` are
    variants of the system with other parameters, same units and connections, and `which` says which one each master
    runs (an index array that is broadcast too). `backend` is "numpy", "torch", "cupy" or "auto"; `workers` is the
    number of threads of NumPy (default: all cores), `chunk` how many masters go through together. With `series` False,
    flows of units are what `Unit.discrete` says to the last digit, which takes longer for many different steps.
    """

    def __init__(
        self,
        system: System,
        master: Master,
        steps: npt.ArrayLike | None = None,
        gains: Mapping[str, npt.ArrayLike] | None = None,
        *,
        systems: Sequence[System] = (),
        which: npt.ArrayLike | None = None,
        backend: str | Backend = "numpy",
        workers: int | None = None,
        chunk: int | None = None,
        series: bool = True,
    ) -> None:
        if bool(systems) != (which is not None):
            raise ConfigurationError("variants of the system need both `systems` and `which` of them each master runs.")
        self.backend, self.workers, self._chunk = find_backend(backend), workers, chunk
        self.schedule = SharedSchedule(systems or [system], master, tuple(gains or {}), series=series)
        self._vary(master.step if steps is None else steps, gains or {}, which)

    def again(self, steps: npt.ArrayLike, gains: Mapping[str, npt.ArrayLike] | None = None) -> Batch:
        """The same schedule with other numbers, without setting everything up again."""
        other = copy.copy(self)
        other._vary(steps, gains or {})
        return other

    def _vary(
        self, steps: npt.ArrayLike, gains: Mapping[str, npt.ArrayLike], which: npt.ArrayLike | None = None
    ) -> None:
        h = np.asarray(steps, dtype=float)
        alphas = {name: np.asarray(values, dtype=float) for name, values in gains.items()}
        number = None if which is None else np.asarray(which)
        self._check(h, alphas, number)
        every = [h, *alphas.values(), *([] if number is None else [number])]
        self.shape = np.broadcast_shapes(*(values.shape for values in every))

        def flat(values: Any) -> Any:
            return np.ascontiguousarray(np.broadcast_to(values, self.shape)).reshape(-1)

        chosen = None if number is None else flat(number).astype(np.intp)
        self.variation = MasterNumbers(flat(h), {name: flat(values) for name, values in alphas.items()}, chosen)

    def _check(self, h: Array, alphas: Mapping[str, Array], which: Any) -> None:
        master, systems = self.schedule.master, len(self.schedule.systems)
        if not (np.isfinite(h).all() and (h > 0).all()):
            raise ConfigurationError("the macro steps of a batch must be positive numbers.")
        for target, alpha in alphas.items():
            if not np.isfinite(alpha).all():
                raise ConfigurationError(f"the gains of the input {target} must be finite numbers.")
        if which is not None and not (which.dtype.kind in "iu" and ((which >= 0) & (which < systems)).all()):
            raise ConfigurationError(f"`which` must hold whole numbers from 0 to {systems - 1}, one per master.")
        if master.mixers and (h != master.step).any():
            raise ConfigurationError(
                f"the master is compensated for the step {master.step}; evaluate other steps with masters of their own."
            )

    def __len__(self) -> int:
        return len(self.variation.steps)

    def compute(self, *objectives: Objective) -> BatchTable:
        """All objectives of all masters, in one pass."""

        def work(part: slice) -> dict[str, Any]:
            with self.backend.quiet():
                maps = BatchedMap(self.schedule, self.variation.part(part), self.backend)
                columns = {name: column for o in objectives for name, column in o.compute(maps).items()}
                return {name: self.backend.host(column) for name, column in columns.items()}

        if len(self) == 0:
            raise ConfigurationError("there are no masters to evaluate; give at least one.")
        # All chunks are of nearly the same size.
        size = len(self)
        count = -(-size // (self._chunk or self.backend.chunk(self.schedule.layout.size // 2)))
        parts = [slice(size * i // count, size * (i + 1) // count) for i in range(count)]
        if len(parts) > 1:
            work(slice(0, 1))  # What is shared is worked out before threads ask for it at the same time.
        done = self.backend.map(work, parts, self.workers)
        return BatchTable({name: np.concatenate([part[name] for part in done]).reshape(self.shape) for name in done[0]})

    @property
    def maps(self) -> Array:
        """Φ from the point of the schedule where least is carried, (N, n, n); NaN where an iteration has no limit."""
        with self.backend.quiet():
            cycle = BatchedMap(self.schedule, self.variation, self.backend).cycle
        return np.ascontiguousarray(np.moveaxis(self.backend.host(cycle), -1, 0))

    def spectral_radius(self, *, accuracy: float = 1e-10) -> Array:
        """ρ(Φ) of every master."""
        return self.compute(SpectralRadius(accuracy))["spectral_radius"]

    def exact_spectral_radius(self) -> Array:
        """ρ(exp(A_c h)) of the exact coupled system at every step, the measure for ρ(Φ)."""
        growth = float(np.linalg.eigvals(self.schedule.linear[0].coupled.A).real.max(initial=-np.inf))
        return np.exp(growth * self.variation.steps).reshape(self.shape)

    def consistency(self, *, k: int, norm: Norm) -> Array:
        """δ of every master."""
        return self.compute(Consistency(k, norm))["consistency"]
