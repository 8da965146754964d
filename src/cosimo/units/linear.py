"""Linear units: general state space, mechanical systems M q̈ + C q̇ + K q = f, and the solvers inside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, BoolArray, exponential, frozen, matrix, product, shift_matrix
from cosimo.core.errors import ConfigurationError, DimensionError, UnknownNameError
from cosimo.core.unit import DiscreteModel, Instance, LinearModel, Unit

DEGREE = 2  # the highest power of the input that linear units take (`Exact` takes derivatives of quadratics)

Signal = Callable[[float], Array]


class Integrator(ABC):
    """To add an integrator, provide `advance`; `order` is the power of δ in its global error (a test measures it)."""

    order: float

    @abstractmethod
    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        """The state one micro step of length `step` (…, 1, 1) after `x` (…, n, k), under the input `u(θ)` (m, k)."""


@dataclass(frozen=True)
class Exact(Integrator):
    """x' = e^{Aδ} x + δ ∫ e^{Aδ(1−θ)} B u(θ) dθ, by one exponential of an augmented matrix (A may be singular)."""

    order = np.inf

    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        """The augmented system [x, u, u', u''] in θ has constant coefficients, so its flow is one exponential."""
        n, m = model.B.shape[-2:]
        size = n + (DEGREE + 1) * m
        generator = np.zeros((*np.broadcast_shapes(model.A.shape[:-2], step.shape[:-2]), size, size))
        generator[..., :n, :n], generator[..., :n, n : n + m] = model.A * step, model.B * step
        generator[..., n : n + DEGREE * m, n + m :] = np.eye(DEGREE * m)
        flow = exponential(generator)[..., :n, :]
        # The derivatives at the start of a quadratic signal, from its values at three points.
        start, middle, end = u(0.0), u(0.5), u(1.0)
        derivatives = [start, 4 * middle - 3 * start - end, 4 * (start - 2 * middle + end)]
        columns: Array = flow[..., :n] @ x
        for j, derivative in enumerate(derivatives):
            columns = columns + flow[..., n + j * m : n + (j + 1) * m] @ derivative
        return columns


@dataclass(frozen=True)
class ForwardEuler(Integrator):
    """x' = x + δ (A x + B u(0))."""

    order = 1

    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        return x + step * (model.A @ x + model.B @ u(0.0))


@dataclass(frozen=True)
class RungeKutta4(Integrator):
    """The classical method of four stages."""

    order = 4

    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        """Stages at θ = 0, ½, ½, 1."""

        def slope(state: Array, theta: float) -> Array:
            return step * (model.A @ state + model.B @ u(theta))

        k1 = slope(x, 0.0)
        k2 = slope(x + k1 / 2, 0.5)
        k3 = slope(x + k2 / 2, 0.5)
        k4 = slope(x + k3, 1.0)
        return x + (k1 + 2 * k2 + 2 * k3 + k4) / 6


@dataclass(frozen=True)
class SymplecticEuler(Integrator):
    """Velocity first: v' = v + δ a(q, v, u(0)), q' = q + δ v' (tamellin2022, Sec. 5.1). Needs x = [q; v]."""

    order = 1

    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        """The lower half of A and B is the acceleration."""
        n = x.shape[-2] // 2
        q, v = x[..., :n, :], x[..., n:, :]
        v = v + step * (model.A[..., n:, :] @ x + model.B[..., n:, :] @ u(0.0))
        return np.concatenate([q + step * v, v], axis=-2)


INTEGRATORS: Mapping[str, type[Integrator]] = {
    "exact": Exact,
    "forward-euler": ForwardEuler,
    "runge-kutta-4": RungeKutta4,
    "symplectic-euler": SymplecticEuler,
}
"""The words of scenario files."""


@cache
def _along(inputs: int) -> Array:
    """The coefficients of the polynomials of so many inputs, one step later."""
    return frozen(np.kron(shift_matrix(DEGREE, 1.0), np.eye(inputs)))


def discretise(model: LinearModel, integrator: Integrator, micro_steps: int, duration: float | Array) -> DiscreteModel:
    """The map of `micro_steps` micro steps that together last `duration`; an array of durations gives a stack.

    So do models with leading axes, one entry per unit.
    """
    n, m = model.B.shape[-2:]
    size = n + (DEGREE + 1) * m
    step = np.asarray(duration, dtype=float)[..., None, None] / micro_steps
    lead = np.broadcast_shapes(model.A.shape[:-2], step.shape[:-2])
    identity = np.eye(size)
    blocks = [identity[n + j * m : n + (j + 1) * m] for j in range(DEGREE + 1)]

    def u(theta: float) -> Array:
        return blocks[0] + theta * blocks[1] + theta**2 * blocks[2]

    start = np.broadcast_to(identity[:n], (*lead, n, size))
    matrix = np.zeros((*lead, size, size))
    matrix[..., :n, :] = integrator.advance(model, start, u, step)
    matrix[..., n:, n:] = _along(m)
    matrix = np.linalg.matrix_power(matrix, micro_steps)
    # A polynomial over the whole step, in the micro steps' own measure of time: c_j / n^j.
    scale = np.repeat([float(micro_steps) ** -j for j in range(DEGREE + 1)], m)
    return DiscreteModel(matrix[..., :n, :n], matrix[..., :n, n:] * scale)


def discretise_units(units: Mapping[str, Unit], duration: float) -> dict[str, DiscreteModel]:
    """The maps of many units over one duration: of linear ones with equal shapes and solvers all at once."""
    found: dict[str, DiscreteModel] = {}
    alike: dict[Any, dict[str, LinearUnit]] = {}
    for name, unit in units.items():
        if type(unit).discrete is LinearUnit.discrete and isinstance(unit, LinearUnit):
            key = unit.model.B.shape, unit.integrator, unit.micro_steps
            alike.setdefault(key, {})[name] = unit
        else:
            found[name] = unit.discrete(duration)
    for (_, integrator, micro_steps), group in alike.items():
        A, B = (np.array([getattr(unit.model, part) for unit in group.values()]) for part in "AB")
        maps = discretise(LinearModel(A, B, A[:, :0], B[:, :0]), integrator, micro_steps, duration)
        found |= {name: DiscreteModel(*both) for name, *both in zip(group, maps.A, maps.B, strict=True)}
    return found


def require_micro_steps(count: int) -> None:
    """Refuse anything but a positive whole number."""
    if not isinstance(count, int) or count < 1:
        raise ConfigurationError(f"micro_steps must be a positive whole number, not {count}.")


# ---- linear units: general state space, and mechanical systems M q̈ + C q̇ + K q = f ---------------------------------


class LinearUnit(Unit):
    """What state-space and mechanical units share: a continuous model, an integrator, names, an initial state."""

    input_degree = DEGREE

    def __init__(
        self,
        model: LinearModel,
        initial: npt.ArrayLike | None,
        integrator: Integrator,
        micro_steps: int,
        inputs: Sequence[str] | None,
        outputs: Sequence[str] | None,
        start: Mapping[str, float] | None,
    ) -> None:
        n = model.A.shape[0]
        require_micro_steps(micro_steps)
        self.model, self.integrator, self.micro_steps = model, integrator, micro_steps
        self._initial: Array = matrix("initial", np.zeros(n) if initial is None else initial, (n, 1))[:, 0]
        self.inputs = _names("inputs", inputs, "u", model.B.shape[1])
        self.outputs = _names("outputs", outputs, "y", model.C.shape[0])
        self.start = dict(start or {})
        if unknown := set(self.start) - set(self.inputs):
            raise UnknownNameError("input with a start value", min(unknown), self.inputs)

    def linear(self) -> LinearModel:
        return self.model

    def discrete(self, duration: float | Array) -> DiscreteModel:
        return discretise(self.model, self.integrator, self.micro_steps, duration)

    @property
    def initial_state(self) -> Array:
        return self._initial

    def feedthrough(self) -> BoolArray:
        through: BoolArray = self.model.D != 0
        return through

    def derivatives(self) -> Mapping[int, int]:
        """ẏ_i = C_i A x + C_i B u is y_j where C_i B = 0, D_i = 0, C_j = C_i A and D_j = 0."""
        model, found = self.model, {}
        slopes, through = model.C @ model.A, model.C @ model.B
        for i in range(len(model.C)):
            if not model.D[i].any() and not through[i].any():
                alike = [
                    j for j in range(len(model.C)) if np.array_equal(model.C[j], slopes[i]) and not model.D[j].any()
                ]
                if alike and slopes[i].any():
                    found[i] = alike[0]
        return found

    def parts(self) -> tuple[Any, ...]:
        return repr(self.integrator), self.micro_steps

    def instantiate(self, start_time: float = 0.0) -> LinearInstance:
        return LinearInstance(self)


def _names(what: str, given: Sequence[str] | None, letter: str, count: int) -> tuple[str, ...]:
    """As given, or numbered."""
    names = tuple(given) if given is not None else tuple(f"{letter}{i}" for i in range(1, count + 1))
    if len(names) != count:
        raise DimensionError(
            f"{len(names)} names of {what} ({', '.join(names)}) for {count} columns or rows; give one for each."
        )
    if len(set(names)) != count:
        raise ConfigurationError(f"the {what} {', '.join(names)} are not all different; rename one.")
    return names


@checked
class StateSpace(LinearUnit):
    """ẋ = A x + B u, y = C x + D u, x(0) = `initial`.

    A (n, n), B (n, m), C (p, n), D (p, m; default 0). The unit makes `micro_steps` steps of `integrator` each time the
    master steps it. Names default to u1, u2, … and y1, y2, …; `start` gives values of inputs left unconnected.

    >>> tank = StateSpace(-0.5, 1.0, 1.0, initial=2.0, inputs=["inflow"], outputs=["level"])
    >>> tank.discrete(1.0).A.round(4)
    array([[0.6065]])
    """

    def __init__(
        self,
        A: npt.ArrayLike,
        B: npt.ArrayLike,
        C: npt.ArrayLike,
        D: npt.ArrayLike | None = None,
        *,
        initial: npt.ArrayLike | None = None,
        integrator: Integrator | None = None,
        micro_steps: int = 1,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        start: Mapping[str, float] | None = None,
    ) -> None:
        if isinstance(integrator, SymplecticEuler):
            raise ConfigurationError("SymplecticEuler needs positions and velocities; describe the unit as Mechanical.")
        n = matrix("A", A, (None, None)).shape[0]
        states = matrix("A", A, (n, n))
        entry = matrix("B", B, (n, None if inputs is None else len(inputs)))
        exit_ = matrix("C", C, (None if outputs is None else len(outputs), n))
        through = np.zeros((exit_.shape[0], entry.shape[1])) if D is None else D
        model = LinearModel(states, entry, exit_, matrix("D", through, (exit_.shape[0], entry.shape[1])))
        super().__init__(model, initial, integrator or Exact(), micro_steps, inputs, outputs, start)

    @classmethod
    def from_scipy(cls, lti: Any, **options: Any) -> StateSpace:
        """The unit of a continuous `scipy.signal` system (transfer function, zeros and poles, or state space).

        A tuple stands for `scipy.signal.lti`: (num, den), (z, p, k) or (A, B, C, D). `options` are those of the class.

        >>> StateSpace.from_scipy(([2.0], [0.5, 1.0]), inputs=["u"], outputs=["y"]).linear().A
        array([[-2.]])
        """
        from scipy import signal

        try:
            lti = signal.lti(*lti) if isinstance(lti, tuple) else lti
            if getattr(lti, "dt", None) is not None:
                raise ConfigurationError(
                    f"the system has the sampling time {lti.dt}; a unit is continuous, convert it."
                )
            space = lti.to_ss()
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigurationError(f"this is no continuous LTI system of scipy.signal: {error}.") from None
        return cls(space.A, space.B, space.C, space.D, **options)

    @classmethod
    def from_control(cls, lti: Any, **options: Any) -> StateSpace:
        """The unit of a continuous system of python-control (state space or transfer function), with its names.

        `options` are those of the class, also other names of inputs and outputs.
        """
        if getattr(lti, "dt", None) not in (None, 0):
            raise ConfigurationError(f"the system has the sampling time {lti.dt}; a unit is continuous, convert it.")
        if not hasattr(lti, "A"):
            lti = import_module("control").ss(lti)  # it made the transfer function
        labels = {"inputs": getattr(lti, "input_labels", None), "outputs": getattr(lti, "output_labels", None)}
        return cls(lti.A, lti.B, lti.C, lti.D, **{**labels, **options})


@checked
class Mechanical(LinearUnit):
    """M q̈ + C q̇ + K q = B u; y = displacement · q + velocity · q̇ + acceleration · q̈ + feedthrough · u.

    M, C, K (n, n); B (n, m); the output maps (p, n) and `feedthrough` (p, m) default to 0. The state is [q; q̇]. The
    default integrator is the papers' velocity-first symplectic Euler.

    >>> mass = Mechanical(1.0, 0.0, 100.0, B=1.0, displacement=1.0, inputs=["force"], outputs=["position"])
    >>> mass.linear().A
    array([[   0.,    1.],
           [-100.,   -0.]])
    """

    def __init__(
        self,
        M: npt.ArrayLike,
        C: npt.ArrayLike,
        K: npt.ArrayLike,
        *,
        B: npt.ArrayLike,
        displacement: npt.ArrayLike | None = None,
        velocity: npt.ArrayLike | None = None,
        acceleration: npt.ArrayLike | None = None,
        feedthrough: npt.ArrayLike | None = None,
        initial: npt.ArrayLike | None = None,
        integrator: Integrator | None = None,
        micro_steps: int = 1,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        start: Mapping[str, float] | None = None,
    ) -> None:
        n = matrix("M", M, (None, None)).shape[0]
        self.M, self.C, self.K = matrix("M", M, (n, n)), matrix("C", C, (n, n)), matrix("K", K, (n, n))
        self.B = matrix("B", B, (n, None if inputs is None else len(inputs)))
        maps = {"displacement": displacement, "velocity": velocity, "acceleration": acceleration}
        rows = len(outputs) if outputs is not None else None
        given = {name: matrix(name, value, (rows, n)) for name, value in maps.items() if value is not None}
        counts = {value.shape[0] for value in given.values()}
        if len(counts) != 1:
            raise DimensionError(f"the output maps {', '.join(given) or '(none given)'} must have equally many rows.")
        p, m = counts.pop(), self.B.shape[1]
        self.displacement, self.velocity, self.acceleration = (given.get(name, np.zeros((p, n))) for name in maps)
        self.direct = matrix("feedthrough", np.zeros((p, m)) if feedthrough is None else feedthrough, (p, m))
        super().__init__(
            self._assemble(), initial, integrator or SymplecticEuler(), micro_steps, inputs, outputs, start
        )

    def _assemble(self) -> LinearModel:
        """The state-space form with x = [q; q̇]; q̈ = M⁻¹ (B u − C q̇ − K q) also enters the outputs."""
        n, m = self.B.shape
        try:
            solved = np.linalg.solve(self.M, np.hstack([-self.K, -self.C, self.B]))
        except np.linalg.LinAlgError:
            raise ConfigurationError("the mass matrix M is singular; remove massless degrees of freedom.") from None
        accelerate, force = solved[:, : 2 * n], solved[:, 2 * n :]
        A = np.vstack([np.hstack([np.zeros((n, n)), np.eye(n)]), accelerate])
        B = np.vstack([np.zeros((n, m)), force])
        C = np.hstack([self.displacement, self.velocity]) + self.acceleration @ accelerate
        return LinearModel(A, B, C, self.direct + self.acceleration @ force)


class LinearInstance(Instance):
    """A live linear unit: state x, and the input polynomial c as the unit sees it from its present time on."""

    def __init__(self, unit: LinearUnit) -> None:
        self.unit = unit
        self.x = unit.initial_state.copy()
        self.c = np.zeros((1, len(unit.inputs)))
        self._h = 1.0
        self._maps: dict[tuple[float, int, float], tuple[Array, Array]] = {}

    def set_input(self, coefficients: Array, h: float) -> None:
        self.c, self._h = coefficients, h

    def step(self, time: float, duration: float) -> None:
        """x ← A_d x + Σ_j B_j c_j, then move the polynomial along."""
        step, along = self.step_map(duration, len(self.c) - 1, self._h)
        self.x = product(step, np.concatenate([self.x, self.c.ravel()]))
        if len(self.c) > 1:
            self.c = product(along, self.c)

    def read(self) -> Array:
        """y = C x + D u(now)."""
        signals = np.concatenate([self.x, self.c[0]]) if self.feeds_through else self.x
        return product(self.output_map, signals)

    def save(self) -> Any:
        """State and input; both are replaced, never changed in place."""
        return self.x, self.c, self._h

    def restore(self, state: Any) -> None:
        self.x, self.c, self._h = state

    @cached_property
    def feeds_through(self) -> bool:
        """Whether outputs depend at once on inputs."""
        return bool(self.unit.model.D.any())

    @cached_property
    def output_map(self) -> Array:
        """[C D], or C alone without feedthrough."""
        model = self.unit.model
        return np.hstack([model.C, model.D]) if self.feeds_through else model.C

    def step_map(self, duration: float, degree: int, h: float) -> tuple[Array, Array]:
        """[A_d B_0 … B_q] on [x; c_0; …; c_q] for polynomials in t / h, and the matrix that moves these along."""
        key = (duration, degree, h)
        if key not in self._maps:
            discrete, ratio = self.unit.discrete(duration), duration / h
            m = len(self.unit.inputs)
            scale = np.repeat([ratio**j for j in range(degree + 1)], m)
            B = discrete.B[:, : (degree + 1) * m] * scale
            self._maps[key] = (np.hstack([discrete.A, B]), shift_matrix(degree, ratio))
        return self._maps[key]
