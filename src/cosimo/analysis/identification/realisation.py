"""From pulse answers to a state-space model: the eigensystem realisation on chosen moments.

The answers to unit pulses are the Markov parameters h_0 = D, h_k = C A^{k−1} B. With moments r_i and c_j,

    H0_ij = h_{r_i + c_j + 1} = (C A^{r_i}) (A^{c_j} B),   H1_ij = h_{r_i + c_j + 2} = (C A^{r_i}) A (A^{c_j} B),

so that H0 = U S Vᵀ has rank n and A = S^{−½} Uᵀ H1 V S^{−½} (Juang and Pappa 1985, with every moment there). Moments
that grow like a geometric series see fast and slow modes alike and keep the matrices small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cosimo.core.arrays import Array, ComplexArray

EPS = float(np.finfo(float).eps)
CLEAR = 1e10
MOMENTS = 48
MOST_STATES = 40


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
        p, m = self.h.shape[1:]
        root = np.sqrt(self.singular_values[:n])
        U, V = self._U[:, :n], self._V[:, :n]
        A = (U / root).T @ self._H1 @ (V / root)
        # What has no part in any answer has exactly none in the model.
        moved = np.abs(self.h[1:]).max(axis=0, initial=0.0) > 0
        C = (U[:p] * root) * (self._outputs * moved.any(axis=1))[:, None]
        B = (V[:m] * root).T * (self._inputs * moved.any(axis=0))
        return Realisation(A, B, C, self.h[0])


def scales(h: Array, noise: Array) -> tuple[Array, Array]:
    """Sizes of outputs (p,) and inputs (m,) such that no answer h / outputs / inputs is larger than 1.

    An answer that stands less than CLEAR times above its noise is made smaller than 1 in proportion, so that what is
    mostly noise does not decide.
    """
    size = np.maximum(np.abs(h).max(axis=0, initial=0.0), CLEAR * noise)
    outputs = _sizes(size.max(axis=1, initial=0.0))
    return outputs, _sizes((size / outputs[:, None]).max(axis=0, initial=0.0))


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
    # Projecting on the modes kept: conjugate pairs have equal shares and stay together.
    basis = _real_basis(right[:, kept], values[kept])
    inverse = np.linalg.pinv(basis)
    dual = np.linalg.inv(right)[kept]
    project = (right[:, kept] @ dual).real
    return replace(model, A=inverse @ model.A @ project @ basis, B=inverse @ project @ model.B, C=model.C @ basis)


def _real_basis(vectors: ComplexArray, values: ComplexArray) -> Array:
    columns = [part for v, z in zip(vectors.T, values, strict=True) if z.imag >= 0 for part in _parts(v, z)]
    return np.array(columns).T.reshape(len(vectors), len(columns))


def _parts(vector: ComplexArray, value: complex) -> list[Array]:
    return [vector.real, vector.imag] if value.imag > 0 else [vector.real]


def _sizes(found: Array) -> Array:
    return np.where(found > 0, found, 1.0)


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
