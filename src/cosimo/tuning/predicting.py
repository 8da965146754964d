"""Errors of one master, all of it: predicted from Φ and Γ, and measured by running.

Both are compared with the exact solution of the coupled system at every communication point,

    e = max over outputs j and points k of |y_j,k − y_j(t_k)| / max_t |y_j(t)|,

with the initial states, start values, offsets and external inputs of the system. Predicted is z' = Φ z + Γ e; measured
is what the compiled engine makes of the units. Outputs that never move are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.compensation.whole import as_system, dense, exact_unit
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, NonFiniteError
from cosimo.core.master import Master
from cosimo.core.sources import Constant
from cosimo.core.system import System
from cosimo.core.timing import timeline
from cosimo.couplings import Hold
from cosimo.execution import run
from cosimo.units.integrators import DEGREE

BLOCK = 64
GRID = 2000
"""Moments at which the sizes of the outputs are looked up."""
PARTS = 8
"""Parts of a macro step over each of which the exact solution takes an external input that varies as a polynomial."""
MOST_STEPS = 1_000_000


@dataclass(frozen=True)
class Measured:
    """What a run gave: `error` of the worst output, per output `errors`, and the seconds that the stepping took.

    `diverged` is when the run left the range of numbers, None if it did not. `reference_error` is how wrong, relative,
    the finer run may be that it was measured against: 0 for the exact solution, NaN where none could be made and the
    solution of the identified models was taken.
    """

    error: float
    errors: dict[str, float]
    seconds: float
    diverged: float | None = None
    reference_error: float = 0.0


class Judge:
    """The exact solution of a system over a horizon from `start` on, and the errors of masters against it."""

    def __init__(self, system: System, horizon: float, start: float = 0.0) -> None:
        self.system, self.horizon, self.start = system, horizon, start
        self._exact: dict[float, Array] = {}

    def steps(self, master: Master) -> int:
        """How many macro steps the horizon has."""
        count = max(1, int(np.floor(self.horizon / master.step * (1 + 1e-12))))
        if count > MOST_STEPS:
            raise ConfigurationError(
                f"a horizon of {self.horizon:g} s is more than {MOST_STEPS:,} macro steps of {master.step:g} s; "
                f"shorten it."
            )
        return count

    def predicted(self, master: Master) -> float:
        """The error of the worst output, without running the master; infinite if it overflows."""
        linear, steps = LinearSystem(self.system, master), self.steps(master)
        with np.errstate(over="ignore", invalid="ignore"):
            rows = _rows(linear, steps, self.start)
        return max(self._errors(master, rows).values(), default=0.0)

    def measured(self, master: Master) -> Measured:
        """The same by running the master."""
        if not self._sizes.any():
            raise ConfigurationError(
                f"'{self.system.name}' is at rest and nothing drives it: a run shows nothing; give it initial states."
            )
        stop = self.start + self.steps(master) * master.step
        try:
            result = run(self.system, master, start=self.start, stop=stop)
        except NonFiniteError as error:
            reached = error.result.time[-1] if error.result is not None and len(error.result) else self.start
            return Measured(np.inf, dict.fromkeys(self.system.outputs, np.inf), 0.0, float(reached))
        places = [result.names.index(name) for name in self.system.outputs]
        errors = self._errors(master, result.values[:, places])
        return Measured(max(errors.values(), default=0.0), errors, float(result.info["stepping_time"]))

    def _errors(self, master: Master, rows: Array) -> dict[str, float]:
        """Per output; one that is read before the end of the step belongs to the row before."""
        clocks = timeline(self.system, master).clocks
        exact, found = self.exact(master), {}
        sizes = np.maximum(np.abs(exact).max(axis=0), self._sizes)
        for place, name in enumerate(self.system.outputs):
            late = int(clocks[self.system.output(name).unit].read < 1)
            ours = rows[late:, place]
            count = min(len(ours), len(exact))
            size = float(sizes[place])
            with np.errstate(over="ignore", invalid="ignore"):
                off = np.abs(ours[:count] - exact[:count, place]).max()
            if size > 0:
                found[name] = float(off) / size if np.isfinite(off) else np.inf
        return found

    def exact(self, master: Master) -> Array:
        """All outputs (steps + 1, p) of the coupled system at the communication points."""
        if master.step not in self._exact:
            self._exact[master.step] = self._driven(master) if self._varying else self._free(master)
        return self._exact[master.step]

    def _free(self, master: Master) -> Array:
        """Nothing varies: ẋ = A x + B b with constant b, y = C x + D b."""
        unit = next(iter(self._whole.units.values()))
        model = unit.linear()
        assert model is not None
        b = np.array([source(self.start) for source in self._whole.inputs.values()])
        n = len(model.A)
        joined = np.zeros((n + 1, n + 1))
        joined[:n, :n], joined[:n, n] = model.A, model.B @ b
        look = np.hstack([model.C, (model.D @ b)[:, None]])[: len(self.system.outputs)]
        start = np.append(unit.initial_state, 1.0)
        rows = _blocks(scipy.linalg.expm(joined * master.step), look, start, self.steps(master))
        if not np.isfinite(rows).all():
            raise ConfigurationError(self._unbounded(master))
        return rows

    def _unbounded(self, master: Master) -> str:
        return (
            f"the exact solution of '{self.system.name}' grows beyond all numbers within "
            f"{self.steps(master) * master.step:g} s; choose a shorter horizon."
        )

    def _driven(self, master: Master) -> Array:
        """External inputs vary: the coupled system as one exact unit, run."""
        couplings = {f"{next(iter(self._whole.units))}.{name}": Hold(DEGREE) for name in self._varying}
        plain = masters.jacobi(self._whole, master.step / PARTS, couplings=couplings)
        try:
            stop = self.start + self.steps(master) * master.step
            rows = run(self._whole, plain, start=self.start, stop=stop).values
        except NonFiniteError:
            raise ConfigurationError(self._unbounded(master)) from None
        found: Array = rows[::PARTS, : len(self.system.outputs)]
        return found

    @cached_property
    def _sizes(self) -> Array:
        """The largest value of every output, on a grid of its own: few communication points may miss it."""
        grid = masters.jacobi(self.system, self.horizon / GRID)
        found: Array = np.abs(self._driven(grid) if self._varying else self._free(grid)).max(axis=0)
        return found

    @cached_property
    def _varying(self) -> tuple[str, ...]:
        return tuple(name for name, source in self.system.inputs.items() if not isinstance(source, Constant))

    @cached_property
    def _whole(self) -> System:
        coupled = dense(LinearSystem(self.system, masters.jacobi(self.system, 1.0)).coupled)
        return as_system(self.system, exact_unit(self.system, coupled))


def _rows(linear: LinearSystem, steps: int, start: float) -> Array:
    """y_0 … y_N (N + 1, p) of z' = Φ z + Γ e."""
    Phi, Gamma = _dense(linear.one_step.Phi), _dense(linear.one_step.Gamma)
    n, places = linear.size, linear.layout.indices("y")
    z = linear.start(start)
    if any(not isinstance(source, Constant) for source in linear.system.inputs.values()):
        found = np.empty((steps + 1, len(places)))
        found[0] = z[places]
        for k in range(steps):
            z = Phi @ z + Gamma @ linear.given_values(k, start)
            found[k + 1] = z[places]
        return found
    # Nothing varies: the number 1 joins z, and a block of steps is one product.
    whole = np.zeros((n + 1, n + 1))
    whole[:n, :n], whole[:n, n], whole[n, n] = Phi, Gamma @ linear.given_values(0, start), 1.0
    return _blocks(whole, np.eye(n + 1)[places], np.append(z, 1.0), steps)


def _blocks(F: Array, look: Array, state: Array, steps: int) -> Array:
    """look F^k state for k = 0 … steps (steps + 1, p)."""
    seen = [look]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(BLOCK - 1):
            seen.append(seen[-1] @ F)
        power, stacked = np.linalg.matrix_power(F, BLOCK), np.vstack(seen)
        found = []
        for _ in range(-(-(steps + 1) // BLOCK)):
            found.append((stacked @ state).reshape(BLOCK, len(look)))
            state = power @ state
    return np.concatenate(found)[: steps + 1]


def _dense(matrix: object) -> Array:
    found: Array = matrix.toarray() if sp.issparse(matrix) else matrix  # type: ignore[attr-defined,assignment]
    return found
