"""From pulse answers to a state-space model: the eigensystem realisation on chosen moments.

The answers to unit pulses are the Markov parameters h_0 = D, h_k = C A^{k−1} B. With moments r_i and c_j,

    H0_ij = h_{r_i + c_j + 1} = (C A^{r_i}) (A^{c_j} B),   H1_ij = h_{r_i + c_j + 2} = (C A^{r_i}) A (A^{c_j} B),

so that H0 = U S Vᵀ has rank n and A = S^{−½} Uᵀ H1 V S^{−½} (Juang and Pappa 1985, with every moment there). Moments
that grow like a geometric series see fast and slow modes alike and keep the matrices small.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from cosimo.core import dataclass
from cosimo.core.arrays import Array, ComplexArray, balancing, exponential, logarithm
from cosimo.core.errors import IdentificationError
from cosimo.core.unit import Conversion, DiscreteModel, LinearModel, Unit
from cosimo.units.linear import Exact, LinearUnit, discretise

if TYPE_CHECKING:
    from cosimo.analysis.identification.excitation import Manner

EPS = float(np.finfo(float).eps)
ABOVE_NOISE = 1e10
"""Answers that stand less far above their noise than this count less: all digits of a double, but for some."""
MOMENTS = 48
"""Moments of the Hankel matrix at most, per kind of spacing."""
MOST_STATES = 40
"""States of a model at most."""


@dataclass(frozen=True)
class Realisation:
    """x_{k+1} = A x_k + B u_k, y_k = C x_k + D u_k."""

    A: Array
    B: Array
    C: Array
    D: Array

    @property
    def poles(self) -> ComplexArray:
        """The eigenvalues of A."""
        values: ComplexArray = np.linalg.eigvals(self.A).astype(complex)
        return values

    def markov(self, count: int) -> Array:
        """h_0 … h_{count−1}, (count, p, m)."""
        found = np.empty((count, *self.D.shape))
        found[:1] = self.D
        state = self.B
        for k in range(1, count):
            found[k] = self.C @ state
            state = self.A @ state
        return found

    def answer_to_states(self, count: int) -> Array:
        """C A^k for k below `count`, (count, p, n)."""
        found = np.empty((count, *self.C.shape))
        row = self.C
        for k in range(count):
            found[k] = row
            row = row @ self.A
        return found

    def answer(self, inputs: Array, initial: Array | None = None) -> Array:
        """The outputs (N, p) under inputs (N, m)."""
        x = np.zeros(len(self.A)) if initial is None else initial
        rows = np.empty((len(inputs), len(self.C)))
        for k, u in enumerate(inputs):
            rows[k] = self.C @ x + self.D @ u
            x = self.A @ x + self.B @ u
        return rows


class Candidates:
    """Realisations of one set of answers h (N + 1, p, m) of every order; `noise` (p, m) is how uncertain h is."""

    def __init__(self, h: Array, noise: Array) -> None:
        self.h = h
        # Inputs and outputs of any unit of measure: every row and column is brought to size 1.
        self._outputs, self._inputs = scales(h[1:], noise)
        scaled = h / self._outputs[:, None] / self._inputs
        moments = _moments(len(h) - 1)
        index = moments[:, None] + moments[None, :] + 1
        self._H1 = _flat(scaled[index + 1])
        H0 = _flat(scaled[index])
        U, self.singular_values, Vt = np.linalg.svd(H0, full_matrices=False)
        self._U, self._V = U, Vt.T
        spread = float((noise / self._outputs[:, None] / self._inputs).max(initial=0.0))
        # The norm of a random matrix, with some room; and the rounding of the decomposition itself.
        floor = 2 * spread * (np.sqrt(H0.shape[0]) + np.sqrt(H0.shape[1]))
        self.tolerance = max(floor, 10 * EPS * float(self.singular_values.max(initial=0.0)))
        self.most = min(int((self.singular_values > 0).sum()), MOST_STATES)
        self.order = min(int((self.singular_values > self.tolerance).sum()), self.most)

    def realise(self, n: int) -> Realisation:
        """The model with the n largest singular values."""
        # What has no part in any answer has exactly none in the model.
        moved = np.abs(self.h[1:]).max(axis=0, initial=0.0) > 0
        outputs, inputs = self._outputs * moved.any(axis=1), self._inputs * moved.any(axis=0)
        A, B, C = balanced(self._U[:, :n], self.singular_values[:n], self._V[:, :n], self._H1, outputs, inputs)
        return Realisation(A, B, C, self.h[0])


def balanced(U: Array, s: Array, V: Array, H1: Array, outputs: Array, inputs: Array) -> tuple[Array, Array, Array]:
    """A, B, C of scaled answers whose Hankel matrix is U diag(s) Vᵀ, H1 one step later; `outputs`, `inputs`: scales."""
    root = np.sqrt(s)
    A: Array = (U / root).T @ H1 @ (V / root)
    return A, (V[: len(inputs)] * root).T * inputs, (U[: len(outputs)] * root) * outputs[:, None]


def scales(h: Array, noise: Array) -> tuple[Array, Array]:
    """Sizes of outputs (p,) and inputs (m,) such that no answer h / outputs / inputs is larger than 1.

    An answer that stands less than ABOVE_NOISE times above its noise is made smaller than 1 in proportion, so that what
    is mostly noise does not decide.
    """
    size = np.maximum(np.abs(h).max(axis=0, initial=0.0), ABOVE_NOISE * noise)
    outputs = positive(size.max(axis=1, initial=0.0))
    return outputs, positive((size / outputs[:, None]).max(axis=0, initial=0.0))


def without_idle_modes(model: Realisation, count: int, noise: Array) -> Realisation:
    """Leave out modes whose share of the first `count` Markov parameters lies within the noise (p, m)."""
    values, right = np.linalg.eig(model.A)
    if not len(values) or np.linalg.cond(right) > 1e10:
        return model  # modes that cannot be told apart cannot be dropped one by one
    left = np.linalg.solve(right, model.B)
    shares = model.C @ right  # (p, n)
    longest = np.max(np.abs(values)[None, :] ** np.array([[0], [count - 1]]), axis=0)
    share = np.abs(shares)[:, :, None] * np.abs(left)[None, :, :] * longest[None, :, None]
    kept = (share > noise[:, None, :]).any(axis=(0, 2))
    if kept.all():
        return model
    if not kept.any():
        return Realisation(np.zeros((0, 0)), np.zeros((0, model.B.shape[1])), np.zeros((len(model.C), 0)), model.D)
    # Projecting on the modes kept: conjugate pairs have equal shares and stay together, as real and imaginary part.
    upper = [(v, z) for v, z in zip(right[:, kept].T, values[kept], strict=True) if z.imag >= 0]
    basis = np.array([part for v, z in upper for part in ([v.real, v.imag] if z.imag > 0 else [v.real])]).T
    inverse = np.linalg.pinv(basis)
    dual = np.linalg.inv(right)[kept]
    project = (right[:, kept] @ dual).real
    return replace(model, A=inverse @ model.A @ project @ basis, B=inverse @ project @ model.B, C=model.C @ basis)


def positive(sizes: Array) -> Array:
    """Sizes to divide by: 1 where there is none."""
    return np.where(sizes > 0, sizes, 1.0)


def _moments(count: int) -> npt.NDArray[np.intp]:
    """Moments from 0 to (count − 2) / 2, dense at the start, with an even spread over the rest."""
    last = max((count - 2) // 2, 0)
    growing = np.geomspace(1, last + 1, MOMENTS).round().astype(int) - 1
    even = np.linspace(0, last, MOMENTS // 3).astype(int)
    first = np.arange(min(MOMENTS // 3, last + 1))
    return np.unique(np.concatenate([growing, even, first]))


def _flat(blocks: Array) -> Array:
    """(r, c, p, m) as a matrix (r p, c m)."""
    r, c, p, m = blocks.shape
    return blocks.transpose(0, 2, 1, 3).reshape(r * p, c * m)


# ---- the continuous model that has the identified one-step map: the logarithm of its zero-order hold -----------------
#     log [A_d B_d; 0 I] / h = [A B; 0 0]      for the input held over the step
#
# It exists and is real if A_d has no eigenvalue on the negative real axis (nor 0). Modes that are gone after one step,
# |z| below e^−25, have no logarithm worth the name: they become lags of rate 25 / h with the same steady state, fast
# enough to be instantaneous and slow enough to be numbers. An eigenvalue far round the circle may be the alias of a
# faster one; that no data at this step can tell, so it is reported.


FAST = 25.0
"""A mode that decays by e^−FAST within one step counts as instantaneous."""
BARELY = 1e-3
"""A remainder so small and not positive is taken for instantaneous too: its sign is within what can be identified."""
FEW = np.pi / 2
"""Angle of an eigenvalue from which there are fewer than four steps per period."""


def continuous_model(A: Array, B: Array, C: Array, D: Array, step: float) -> tuple[LinearModel | None, tuple[str, ...]]:
    """A continuous model of the one-step map A, B (n, m) with outputs C, D, or None, and what is to be said of it."""
    n, m = B.shape
    T, slow = split_modes(A, _lasts)
    inverse = np.linalg.inv(T)
    blocks, entry = inverse @ A @ T, inverse @ B
    kept = blocks[:slow, :slow]
    values: ComplexArray = np.linalg.eigvals(kept).astype(complex)
    negative = values[(values.real < 0) & (np.abs(values.imag) <= 1e-9 * np.abs(values))]
    if len(negative):
        return None, (
            f"no continuous model has this one-step map: its eigenvalue {negative[0].real:.6g} is negative, as of a "
            f"solver at the edge of its stability; use a shorter step",
        )
    generator = np.zeros((n, n + m))
    whole = np.zeros((slow + m, slow + m))
    whole[:slow] = np.hstack([kept, entry[:slow]])
    whole[slow:, slow:] = np.eye(m)
    log = _logarithm(whole)
    if not (np.abs(np.imag(log)) <= 1e-8 * max(1.0, float(np.abs(log).max(initial=0.0)))).all():
        return None, ("the one-step map has no real logarithm; use a shorter step",)
    generator[:slow, :slow] = log.real[:slow, :slow] / step
    generator[:slow, n:] = log.real[:slow, slow:] / step
    gone = n - slow
    settled = np.linalg.solve(np.eye(gone) - blocks[slow:, slow:], entry[slow:])
    generator[slow:, slow:n] = -FAST / step * np.eye(gone)
    generator[slow:, n:] = FAST / step * settled
    model = LinearModel(T @ generator[:, :n] @ inverse, T @ generator[:, n:], C, D)
    return model, tuple(_notes(values, gone, whole, log))


def _logarithm(matrix: Array) -> Array | ComplexArray:
    """log of a matrix whose rows may be in very different units of measure: balanced first."""
    if not matrix.size:
        return matrix
    sizes: Array = np.exp2(np.round(np.log2(balancing(matrix[None])[0])))  # powers of two round nothing
    balanced = matrix * sizes / sizes[:, None]
    own = logarithm(balanced)
    if own is not None:
        return sizes[:, None] * own / sizes
    import scipy.linalg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # how accurate it is, is measured below
        found: Array | ComplexArray = scipy.linalg.logm(balanced)
    return sizes[:, None] * found / sizes


def _notes(values: ComplexArray, gone: int, whole: Array, log: Array | ComplexArray) -> Iterator[str]:
    back = float(np.abs(exponential(log.real) - whole).max(initial=0.0))
    if back > 1e-6 * max(1.0, float(np.abs(whole).max(initial=0.0))):
        yield f"the continuous model returns the one-step map only to {back:.1g}"
    angle = float(np.abs(np.angle(values)).max(initial=0.0))
    if angle > FEW:
        yield (
            f"the fastest oscillation has {2 * np.pi / angle:.1f} steps per period and may be an alias of a faster "
            "one; trust the continuous model only at this step"
        )
    if gone:
        modes, them = ("1 mode decays", "it") if gone == 1 else (f"{gone} modes decay", "them")
        yield f"{modes} completely within one step; the continuous model treats {them} as instantaneous"


def _lasts(z: complex) -> bool:
    return bool(abs(z) > np.exp(-FAST) and (abs(z) > BARELY or z.real > 0))


def split_modes(A: Array, lasts: Callable[[complex], bool]) -> tuple[Array, int]:
    """T with T⁻¹ A T block diagonal: first the modes that last, how many, then the others."""
    if all(lasts(z) for z in np.linalg.eigvals(A).astype(complex)):
        return np.eye(len(A)), len(A)
    import scipy.linalg

    schur, Q, slow = scipy.linalg.schur(A, output="real", sort=lambda real, imaginary: lasts(complex(real, imaginary)))
    decouple = np.eye(len(A))
    slower, faster, across = schur[:slow, :slow], schur[slow:, slow:], schur[:slow, slow:]
    decouple[:slow, slow:] = scipy.linalg.solve_sylvester(slower, -faster, -across)
    return Q @ decouple, int(slow)


# ---- what identification returns: a discrete linear model, how good it is, and the unit that the algebra can u -------


Means = Literal["known", "derivatives", "differences", "experiments"]
SAME = 1e-12
"""Two steps that differ by less than this share are the same."""


@dataclass(frozen=True, eq=False)
class Identified:
    """x_{k+1} = A x_k + Σ_j B_j c_j,k, y_k = C x_k + D (u_k + input_offset) + output_offset, x_0 = `initial`.

    `model` holds A and [B_0 … B_q] for the powers of the input that the unit takes; inputs are absolute, so that
    `initial` and the offsets (0 where the unit is linear and not merely affine) give the free motion of the unit at its
    operating point, where the inputs are `held`, with the relative error `free`. Columns of discrete inputs and rows
    of discrete outputs are 0.

    `fit`, `linear` and `invariant` are relative errors, 0 at best: of predicting an answer to random inputs that was
    not used; between two amplitudes and two signs; between a pulse now and later. `valid` says whether all three are
    within bounds; `reasons` what was found, whether it makes the model invalid or not. `continuous` is a continuous
    model with this one-step map (by derivatives: of the unit itself), or None; `generator` the one by which the map is
    converted to other steps. `manner` is what other steps need not find out again, None where they must.
    """

    source: Unit = field(repr=False)
    step: float
    time: float
    model: DiscreteModel
    C: Array
    D: Array
    initial: Array
    held: Array
    input_offset: Array
    output_offset: Array
    continuous: LinearModel | None
    amplitudes: Array
    means: Means = "known"
    unit_steps: int = 0
    fit: float = 0.0
    linear: float = 0.0
    invariant: float = 0.0
    free: float = 0.0
    valid: bool = True
    reasons: tuple[str, ...] = ()
    generator: LinearModel | None = field(default=None, repr=False)
    again: Callable[[float], Identified] | None = field(default=None, repr=False)
    manner: Manner | None = field(default=None, repr=False)

    @property
    def order(self) -> int:
        """The number of states."""
        return len(self.initial)

    @property
    def poles(self) -> ComplexArray:
        """The eigenvalues of the one-step map."""
        values: ComplexArray = np.linalg.eigvals(self.model.A).astype(complex)
        return values

    @property
    def deviation(self) -> Array:
        """`initial` from the rest position under the inputs held at the operating point: ξ_k = A^k ξ_0 moves freely.

        Where the unit has none (it drifts), the nearest there is.
        """
        n, m = self.order, self.D.shape[1]
        push = self.model.B[:, :m] @ (self.held + self.input_offset)
        rest: Array = self.initial - np.linalg.lstsq(np.eye(n) - self.model.A, push, rcond=1e-10)[0]
        return rest

    def outputs(self, inputs: Array) -> Array:
        """The outputs (N, p) from `initial` on under absolute inputs (N, m), held over each step."""
        model = Realisation(self.model.A, self.model.B[:, : self.D.shape[1]], self.C, self.D)
        return model.answer(inputs + self.input_offset, self.initial) + self.output_offset

    def at(self, step: float) -> Identified:
        """The same unit identified at another macro step, by new trials: its solver may behave differently there."""
        if self.again is None:
            raise IdentificationError(
                "this model was not identified from a unit; identify one at the step that is wanted."
            )
        return self.again(step)

    def unit(self, *, stand_in: bool = False) -> IdentifiedUnit:
        """The model as a unit for the algebra.

        Its `discrete(step)` is the identified map; other durations are converted by the continuous model, which is
        exact if the unit's own solver is, or if its micro step does not depend on the macro step (`at` identifies
        anew instead). Without a continuous model both are refused. `stand_in` then takes (A − I) / h for it, so that
        Φ at this step, and with it stability, can be computed; comparisons with the exact coupled system are then
        only of first order.
        """
        model, generator = self.continuous, self.generator
        if model is None:
            if not stand_in:
                raise IdentificationError(
                    f"the unit identified at the step {self.step:g} has no continuous model "
                    f"({'; '.join(self.reasons)}); identify it at a shorter step, or ask for unit(stand_in=True)."
                )
            n, m = self.order, self.D.shape[1]
            rate = (self.model.A - np.eye(n)) / self.step
            model = LinearModel(rate, self.model.B[:, :m] / self.step, self.C, self.D)
        return IdentifiedUnit(self, model, generator)

    def __str__(self) -> str:
        word = "valid" if self.valid else "NOT VALID"
        lines = [
            f"{self.order} states at the step {self.step:g} s, t = {self.time:g} s, by {self.means}: {word}",
            f"  fit {self.fit:.2g}, linear {self.linear:.2g}, invariant {self.invariant:.2g}, free motion "
            f"{self.free:.2g}; {self.unit_steps} unit steps",
        ]
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])


class IdentifiedUnit(LinearUnit):
    """A linear unit with the identified one-step map, the names of the unit it came from, and its initial state."""

    def __init__(self, identified: Identified, model: LinearModel, generator: LinearModel | None) -> None:
        source = identified.source
        start = {name: value for name, value in source.start.items() if name in source.inputs}
        super().__init__(model, identified.initial, Exact(), 1, source.inputs, source.outputs, start)
        self.identified, self.input_degree = identified, source.input_degree
        self._generator = generator

    @property
    def discrete_inputs(self) -> tuple[str, ...]:
        """Those of the unit it came from."""
        return self.identified.source.discrete_inputs

    def conversion(self, output: int, taker: Unit, variable: int) -> Conversion:
        """As between the units that were identified."""
        other = taker.identified.source if isinstance(taker, IdentifiedUnit) else taker
        return self.identified.source.conversion(output, other, variable)

    def discrete(self, duration: float | Array) -> DiscreteModel:
        """The identified map at its step; otherwise that of the continuous model over `duration`."""
        step, found = self.identified.step, self.identified.model
        if self.identified.means == "known":
            return self.identified.source.discrete(duration)
        durations = np.asarray(duration, dtype=float)
        same = np.abs(durations - step) <= SAME * step
        columns = found.B.shape[-1]
        A = np.broadcast_to(found.A, (*durations.shape, *found.A.shape))
        B = np.broadcast_to(found.B, (*durations.shape, *found.B.shape))
        if not same.all():
            if self._generator is None:
                other = float(durations[~same].flat[0]) if durations.ndim else float(durations)
                raise IdentificationError(
                    f"the unit was identified at the step {step:g} and has no continuous model to convert it to "
                    f"{other:g}; identify it there with Identified.at({other:g})."
                )
            converted = discretise(self._generator, Exact(), 1, durations)
            keep = same[..., None, None]
            A, B = np.where(keep, A, converted.A), np.where(keep, B, converted.B[..., :columns])
        return DiscreteModel(A, B)
