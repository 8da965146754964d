"""The situation in which masters are compared: where the system starts, what drives it, for how long.

Constant external inputs and start values of open inputs become outputs of one more unit, `OUTSIDE`, with a state that
never changes; offsets of connections become such a state of the unit that gets them. The system is then free,
ẋ = A_c x, and errors follow from powers of Φ and exp(A_c h) alone. Inputs that vary are left out while searching;
predictions for the points of the front have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis.model import Model
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.sources import Constant
from cosimo.core.system import Connection, System
from cosimo.core.unit import ChangedUnit, DiscreteModel, LinearModel, Unit
from cosimo.units import StateSpace

OUTSIDE = "(outside)"
GRID = 2000
"""Moments at which the sizes of the outputs are looked up."""


@dataclass(frozen=True, eq=False)
class TuningProblem:
    """`free`: the system with everything constant inside; `columns` (n, c): the initial states that errors are for.

    One column, the start of the system; or, where it starts at rest and nothing drives it, all unit vectors: errors are
    then those of the worst initial state. `left_out` tells that something else drives it.
    """

    system: System
    free: System
    columns: Array
    horizon: float
    left_out: bool
    model: Model

    @property
    def worst_case(self) -> bool:
        """Whether errors are for any initial state."""
        return bool(self.columns.shape[1] > 1)

    @property
    def joined(self) -> bool:
        """Whether something constant has joined the system."""
        return dict(self.free.units) != dict(self.system.units)

    @property
    def fastest(self) -> float:
        """|λ| of the fastest mode."""
        sizes = np.abs(self.model.poles)
        return float(sizes[sizes < self.model.instant].max(initial=0.0))

    @property
    def grows(self) -> bool:
        """Whether the coupled system itself is unstable."""
        return self.model.grows

    @cached_property
    def sizes(self) -> Array:
        """Of every output, the largest value of the exact solution within the horizon (p,); 0: it never moves."""
        coupled = LinearSystem(self.free, masters.jacobi(self.free, 1.0)).coupled
        A, C = _dense(coupled.A), _dense(coupled.C)
        # Enough moments for the slow motion; what is faster shows at some of them too, as they are no multiples of it.
        count = GRID
        flow, x = scipy.linalg.expm(A * (self.horizon / count)), self.columns
        found, lacking = np.zeros(len(C)), np.zeros((len(C), 1))
        lacking[len(C) - len(self.system.outputs) :, 0] = self.model.local.offsets
        for _ in range(count + 1):
            found = np.maximum(found, np.linalg.norm(C @ x + lacking, axis=1))
            x = flow @ x
        if not np.isfinite(found).all():
            raise ConfigurationError(
                f"the exact solution of '{self.system.name}' grows beyond all numbers within {self.horizon:g} s; "
                f"choose a shorter horizon."
            )
        return found


def tuning_problem(model: Model) -> TuningProblem:
    """How masters are compared on the linear picture of a model."""
    system = model.local.linear
    constants: dict[str, float] = {}
    left_out = False
    for inlets in system.inlets.values():
        for inlet in inlets:
            value = inlet.source.value if isinstance(inlet.source, Constant) else inlet.start
            left_out |= inlet.source is not None and not isinstance(inlet.source, Constant)
            if inlet.link is None and value != 0:
                constants[inlet.target] = value
    free = _free(system, constants)
    first = np.concatenate([unit.initial_state for unit in free.units.values()])
    moving = np.concatenate([unit.initial_state for unit in system.units.values()]).any()
    driven = bool(constants) or any(isinstance(unit, Pushed) for unit in free.units.values())
    columns = first[:, None] if moving or driven else np.eye(len(first))
    return TuningProblem(system, free, columns, model.horizon, left_out, model)


class Pushed(ChangedUnit):
    """A linear unit that gets u + d: the number 1 joins its states, [x; 1]' = [A_d B_0 d; 0 1] [x; 1] + [B; 0] u.

    Every coupling of ours passes a constant on as it is, so that it may as well come after the coupling.
    """

    def __init__(self, unit: Unit, push: Array) -> None:
        super().__init__(unit)
        self.push = push

    @property
    def initial_state(self) -> Array:
        """The states of the unit and the number 1."""
        return np.append(self.unit.initial_state, 1.0)

    def linear(self) -> LinearModel | None:
        model = self.unit.linear()
        if model is None:
            return None
        A, B = (_bordered(part, 0.0) for part in (model.A, model.B))
        A[:-1, -1] = model.B @ self.push
        return LinearModel(A, B[:, :-1], np.column_stack([model.C, model.D @ self.push]), model.D)

    def discrete(self, duration: float | Array) -> DiscreteModel:
        found = self.unit.discrete(duration)
        A = _bordered(found.A, 1.0)
        A[..., :-1, -1] = found.B[..., : len(self.inputs)] @ self.push
        return DiscreteModel(A, _bordered(found.B, 0.0)[..., :-1])


def _bordered(matrix: Array, corner: float) -> Array:
    """With a row and a column of zeros, and the corner."""
    *lead, rows, columns = matrix.shape
    found = np.zeros((*lead, rows + 1, columns + 1))
    found[..., :rows, :columns] = matrix
    found[..., rows, columns] = corner
    return found


def _free(system: System, constants: dict[str, float]) -> System:
    """The system with one more unit for what is constant, and offsets inside; what varies is taken as 0."""
    rest = {target: 0.0 for target in system.inputs if target not in constants}
    units, connections = dict(system.units), []
    for name, unit in system.units.items():
        links = [inlet.link for inlet in system.inlets[name]]
        push = np.array([link.connection.offset if link else 0.0 for link in links])
        if push.any():
            units[name] = Pushed(unit, push)
    for link in system.links:
        own = link.connection
        # Measures are converted already, in the gain and the offset.
        connections.append(Connection(own.source, own.target, own.gain, 0.0, convert=False))
    if not constants:
        return System(units, connections, inputs=rest, name=system.name)
    values = np.array(list(constants.values()))[:, None]
    outside = StateSpace(np.zeros((1, 1)), np.zeros((1, 0)), values, initial=[1.0], inputs=[], outputs=list(constants))
    given = [(f"{OUTSIDE}.{target}", target) for target in constants]
    return System({OUTSIDE: outside, **units}, [*connections, *given], inputs=rest, name=system.name)


def _dense(matrix: object) -> Array:
    dense: Array = matrix.toarray() if sp.issparse(matrix) else matrix  # type: ignore[attr-defined,assignment]
    return dense
