"""Many masters of one system in one call.

    Evaluation(system, master, steps=h, gains={"two.F": alpha}).compute(Stability(), Consistency())

takes masters that share the schedule of `master` and differ in the macro step, in gains of `Nepce` and in parameters of
the units; `evaluate(system, masters, objectives)` takes any masters and groups them itself. Masters go through in
chunks: on all cores with NumPy, one large chunk after the other on a graphics processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosimo.core.arrays import Array, BoolArray
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Nepce
from cosimo.tuning.backends import Backend, find_backend
from cosimo.tuning.binding import Bound
from cosimo.tuning.objectives import Accuracy, Consistency, Cost, Objective, Stability
from cosimo.tuning.program import Program, Varied

__all__ = ["Accuracy", "Consistency", "Cost", "Evaluation", "Objective", "Stability", "Table", "evaluate"]


@dataclass(frozen=True)
class Table:
    """Columns by name, one number or truth value per master, all of one shape."""

    columns: Mapping[str, Any]

    def __getitem__(self, name: str) -> Array:
        if name not in self.columns:
            raise UnknownNameError("column", name, self.columns)
        found: Array = self.columns[name]
        return found

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def stable(self) -> BoolArray:
        """The column `stable`."""
        found: BoolArray = self["stable"]  # type: ignore[assignment]
        return found


class Evaluation:
    """N masters that share a schedule.

    `steps` and the arrays in `gains` (by target input, any value) are broadcast against each other; results have that
    shape. The inputs in `gains` must be coupled in `master` by something with the memory of `Nepce`. `systems` are
    variants of the system with other parameters, same units and connections, and `which` says which one each master
    runs (an index array that is broadcast too). `backend` is "numpy", "torch", "cupy" or "auto"; `workers` is the
    number of threads of NumPy (default: all cores), `chunk` how many masters go through together.
    """

    def __init__(
        self,
        system: System,
        master: Master,
        *,
        steps: npt.ArrayLike | None = None,
        gains: Mapping[str, npt.ArrayLike] | None = None,
        systems: Sequence[System] = (),
        which: npt.ArrayLike | None = None,
        backend: str | Backend = "numpy",
        workers: int | None = None,
        chunk: int | None = None,
    ) -> None:
        h = np.asarray(master.step if steps is None else steps, dtype=float)
        alphas = {target: np.asarray(alpha, dtype=float) for target, alpha in (gains or {}).items()}
        if bool(systems) != (which is not None):
            raise ConfigurationError("variants of the system need both `systems` and `which` of them each master runs.")
        number = None if which is None else np.asarray(which)
        self.shape = np.broadcast_shapes(
            h.shape, *(a.shape for a in alphas.values()), () if number is None else number.shape
        )
        self._check(h, alphas, number, len(systems), master)

        def flat(values: Any) -> Any:
            return np.ascontiguousarray(np.broadcast_to(values, self.shape)).reshape(-1)

        self.varied = Varied(
            flat(h), {t: flat(a) for t, a in alphas.items()}, None if number is None else flat(number).astype(np.intp)
        )
        self.backend = find_backend(backend)
        self.program = Program(systems or [system], master, tuple(alphas))
        self.workers, self._chunk = workers, chunk

    @staticmethod
    def _check(h: Array, alphas: Mapping[str, Array], which: Any, systems: int, master: Master) -> None:
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
        return len(self.varied.steps)

    @property
    def parts(self) -> list[slice]:
        """The chunks, all of nearly the same size and a few for every worker."""
        size = len(self)
        chunk = self._chunk or self.backend.chunk(self.program.layout.size // 2)
        count = -(-size // chunk)
        return [slice(size * i // count, size * (i + 1) // count) for i in range(count)]

    def compute(self, *objectives: Objective) -> Table:
        """All objectives of all masters, in one pass."""

        def work(part: slice) -> dict[str, Any]:
            with self.backend.quiet():
                bound = Bound(self.program, self.varied.part(part), self.backend)
                found = {name: column for o in objectives for name, column in o.compute(bound).items()}
                return {name: self.backend.host(column) for name, column in found.items()}

        if len(self) == 0:
            raise ConfigurationError("there are no masters to evaluate; give at least one.")
        parts = self.parts
        if len(parts) > 1:
            work(slice(0, 1))  # What is shared is worked out before threads ask for it at the same time.
        found = self.backend.map(work, parts, self.workers)
        return Table({name: np.concatenate([part[name] for part in found]).reshape(self.shape) for name in found[0]})

    def spectral_radius(self, *, accuracy: float = 1e-10) -> Array:
        """ρ(Φ) of every master."""
        return self.compute(Stability(accuracy))["spectral_radius"]

    def consistency(self, *, k: int, norm: Any) -> Array:
        """δ of every master."""
        return self.compute(Consistency(k, norm))["consistency"]


def evaluate(
    system: System,
    masters: Sequence[Master],
    objectives: Sequence[Objective],
    *,
    backend: str | Backend = "numpy",
    workers: int | None = None,
) -> Table:
    """The objectives of any masters of one system, in their order.

    Masters with the same schedule and couplings of the same kind form one batch, whatever their steps and Nepce gains.
    """
    if not masters:
        raise ConfigurationError("there are no masters to evaluate; give at least one.")
    groups: dict[Any, list[int]] = {}
    for number, master in enumerate(masters):
        groups.setdefault(_structure(system, master), []).append(number)
    library = find_backend(backend)
    columns: dict[str, Any] = {}
    for members in groups.values():
        first = masters[members[0]]
        gains = {
            target: [masters[i].coupling_of(target).alpha for i in members]  # type: ignore[attr-defined]
            for target in _targets(system, first)
            if isinstance(first.coupling_of(target), Nepce)
        }
        steps = [masters[i].step for i in members]
        table = Evaluation(system, first, steps=steps, gains=gains, backend=library, workers=workers).compute(
            *objectives
        )
        for name, values in table.columns.items():
            columns.setdefault(name, np.zeros(len(masters), dtype=values.dtype))[members] = values
    return Table(columns)


def _targets(system: System, master: Master) -> list[str]:
    """The connected inputs that a coupling feeds."""
    return [link.connection.target for link in system.links if link.target.unit not in master.mixers]


def _structure(system: System, master: Master) -> Any:
    """What masters of one batch have in common: schedule and couplings but for gains; mixers are nobody else's."""
    couplings = tuple(
        Nepce if isinstance(master.coupling_of(t), Nepce) else master.coupling_of(t) for t in system.input_names
    )
    mixers = tuple((name, id(mixer)) for name, mixer in master.mixers.items())
    return master.schedule, couplings, mixers, master.step if mixers else None
