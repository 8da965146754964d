"""The situation in which masters are compared: where the system starts, what drives it, for how long.

Constant external inputs and start values of open inputs become outputs of one more unit, `OUTSIDE`, with a state that
never changes; the system is then free, ẋ = A_c x, and errors follow from powers of Φ and exp(A_c h) alone. Inputs that
vary, and offsets of connections, are left out while searching; predictions for the points of the front have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError
from cosimo.core.sources import Constant
from cosimo.core.system import System
from cosimo.units import StateSpace

OUTSIDE = "(outside)"
PERIODS = 10
"""How many periods, or time constants, of the slowest mode the horizon covers unless it is given."""
MOST_MODES = 3000
"""The horizon is at most so many times 1/|λ| of the fastest mode, unless it is given."""
GRID = 2000
"""Moments at which the sizes of the outputs are looked up."""


@dataclass(frozen=True, eq=False)
class Scene:
    """`free`: the system with everything constant inside; `columns` (n, c): the initial states that errors are for.

    One column, the start of the system; or, where it starts at rest and nothing drives it, all unit vectors: errors are
    then those of the worst initial state. `left_out` tells that something else drives it.
    """

    system: System
    free: System
    columns: Array
    horizon: float
    left_out: bool

    @property
    def worst_case(self) -> bool:
        """Whether errors are for any initial state."""
        return bool(self.columns.shape[1] > 1)

    @cached_property
    def poles(self) -> ComplexArray:
        """The eigenvalues of the coupled system, in 1/s."""
        return np.linalg.eigvals(_states(self.system)).astype(complex)

    @property
    def fastest(self) -> float:
        """|λ| of the fastest mode."""
        return float(np.abs(self.poles).max(initial=0.0))

    @cached_property
    def grows(self) -> bool:
        """Whether the coupled system itself is unstable."""
        return bool(self.poles.real.max(initial=-np.inf) > 1e-8 * max(1.0, self.fastest))

    @cached_property
    def sizes(self) -> Array:
        """Of every output, the largest value of the exact solution within the horizon (p,); 0: it never moves."""
        coupled = LinearSystem(self.free, masters.jacobi(self.free, 1.0)).coupled
        A, C = _dense(coupled.A), _dense(coupled.C)
        # Enough moments for the slow motion; what is faster shows at some of them too, as they are no multiples of it.
        count = GRID
        flow, x = scipy.linalg.expm(A * (self.horizon / count)), self.columns
        found = np.zeros(len(C))
        for _ in range(count + 1):
            found = np.maximum(found, np.linalg.norm(C @ x, axis=1))
            x = flow @ x
        if not np.isfinite(found).all():
            raise ConfigurationError(
                f"the exact solution of '{self.system.name}' grows beyond all numbers within {self.horizon:g} s; "
                f"choose a shorter horizon."
            )
        return found


def scene(system: System, horizon: float | None = None) -> Scene:
    """How masters of this system are compared, over `horizon` seconds."""
    for name, unit in system.units.items():
        if unit.linear() is None:
            raise ConfigurationError(
                f"unit '{name}' is a {type(unit).__name__} whose equations are not known; put a linear unit in its "
                f"place, such as co.identify(unit, step).unit(), and tune that system."
            )
    if horizon is not None and not (np.isfinite(horizon) and horizon > 0):
        raise ConfigurationError(f"the horizon must be a positive number of seconds, not {horizon}.")
    constants: dict[str, float] = {}
    left_out = False
    for inlets in system.inlets.values():
        for inlet in inlets:
            value = inlet.source.value if isinstance(inlet.source, Constant) else inlet.start
            left_out |= inlet.source is not None and not isinstance(inlet.source, Constant)
            left_out |= inlet.link is not None and inlet.link.connection.offset != 0
            if inlet.link is None and value != 0:
                constants[inlet.target] = value
    free = _free(system, constants)
    start = np.concatenate([unit.initial_state for unit in free.units.values()])
    columns = start[:, None] if start.any() else np.eye(len(start))
    found = Scene(system, free, columns, 1.0, left_out)
    return Scene(system, free, columns, _horizon(found) if horizon is None else float(horizon), left_out)


def _horizon(found: Scene) -> float:
    """Ten periods or time constants of the slowest mode that is not a rigid motion."""
    size = np.abs(found.poles)
    moving = size[size > 1e-6 * max(found.fastest, 1e-300)]
    if not moving.size:
        return 1.0
    slowest = 2 * np.pi * PERIODS / moving.min() if (np.abs(found.poles.imag) > 0).any() else PERIODS / moving.min()
    return float(min(slowest, MOST_MODES / found.fastest))


def _free(system: System, constants: dict[str, float]) -> System:
    """The system with one more unit for what is constant; what varies is taken as 0."""
    rest = {target: 0.0 for target in system.inputs if target not in constants}
    if not constants:
        return System(system.units, system.connections, inputs=rest, name=system.name)
    values = np.array(list(constants.values()))[:, None]
    outside = StateSpace(np.zeros((1, 1)), np.zeros((1, 0)), values, initial=[1.0], inputs=[], outputs=list(constants))
    given = [(f"{OUTSIDE}.{target}", target) for target in constants]
    return System({OUTSIDE: outside, **system.units}, [*system.connections, *given], inputs=rest, name=system.name)


def _states(system: System) -> Array:
    return _dense(LinearSystem(system, masters.jacobi(system, 1.0)).coupled.A)


def _dense(matrix: object) -> Array:
    dense: Array = matrix.toarray() if sp.issparse(matrix) else matrix  # type: ignore[attr-defined,assignment]
    return dense
