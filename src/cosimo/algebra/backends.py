"""Where stacks of small matrices are multiplied: NumPy on all cores, PyTorch or CuPy on a graphics processor.

A stack of N matrices is one array (rows, columns, N), the masters last: every operation is then one long loop over
masters, which a processor's vector unit and a graphics processor's threads both run through without gaps, however
small the matrices are. A last axis of length 1 stands for the same matrix in all N masters and stays that short.

The rest of the package calls functions that NumPy, CuPy and PyTorch name and spell alike through `backend.xp`; what
they do not share is a method here. Everything is in double precision.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.guarding import processors

NAMES = ("auto", "cupy", "numpy", "torch")
SINGULAR = 1e13
"""Condition from which a linear system has no solution that can be believed: its digits are gone."""
WORTH_A_THREAD = 2e-3
"""Seconds of work for which a thread is started, which takes about a twentieth of that."""
BLAS_FROM = 40
"""The size of matrices from which a call of BLAS for each is faster than one loop over all."""
Stack = Any
"""An array of the backend, (rows, columns, N) or (rows, columns, 1)."""


class Backend:
    """NumPy, and CuPy, which has the same functions. To add a library, override what it spells differently."""

    name = "numpy"
    squares_up_to = 12
    """The size of matrices up to which squaring them pays against the eigenvalue solver of the host."""
    squares_from = 1000
    """The number of matrices from which it pays: below, the calls that it takes cost more than the solver."""
    impatient = True
    """Whether that solver is near at hand: then squaring is given up early where it settles little."""

    def __init__(self, xp: Any = np) -> None:
        self.xp = xp

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def device(self) -> str:
        """Where the numbers are, in words."""
        return f"NumPy, {os.cpu_count()} cores"

    # To and fro.

    def array(self, values: Any) -> Stack:
        """Numbers of the host as an array here."""
        return np.ascontiguousarray(values, dtype=float)

    def indices(self, values: Any) -> Any:
        """Whole numbers of the host as an array here."""
        return np.ascontiguousarray(values, dtype=np.intp)

    def host(self, stack: Stack) -> Any:
        """An array of this backend as a NumPy array."""
        return stack

    def zeros(self, *shape: int) -> Stack:
        """Zeros."""
        return np.zeros(shape)

    # What the libraries do not share.

    def multiply(self, a: Stack, b: Stack) -> Stack:
        """The products of two stacks, (r, s, N) times (s, c, N); either may be (…, 1)."""
        if a.shape[2] == 1 and not self.is_packed(b):
            product = a[:, :, 0] @ b.reshape(b.shape[0], -1)
            return product.reshape(a.shape[0], b.shape[1], b.shape[2])
        return self._products(a, b)

    def packed(self, stack: Stack) -> Stack:
        """The same numbers with each matrix in one piece: for stacks that are multiplied again and again.

        Their products are packed too. A call of BLAS for each is then up to ten times faster than one loop over all.
        """
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(stack, -1, 0)), 0, -1)

    def is_packed(self, stack: Stack) -> bool:
        """Whether the masters come first in memory."""
        return bool(stack.strides[2] > stack.strides[0])

    def _products(self, a: Stack, b: Stack) -> Stack:
        if a.shape[1] >= BLAS_FROM or self.is_packed(a) or self.is_packed(b):
            left, right = (np.ascontiguousarray(np.moveaxis(stack, -1, 0)) for stack in (a, b))
            return np.moveaxis(left @ right, 0, -1)
        if b.shape[2] == 1:
            return np.einsum("isn,sk->ikn", a, b[:, :, 0])
        return np.einsum("isn,skn->ikn", a, b)

    def gram(self, a: Stack) -> Stack:
        """a aᵀ of every matrix."""
        return np.einsum("isn,ksn->ikn", a, a)

    def square_sum(self, a: Stack) -> Stack:
        """‖a‖_F² of every matrix, (N,)."""
        return np.einsum("ijn,ijn->n", a, a)

    def trace(self, a: Stack) -> Stack:
        """The trace of every matrix, (N,)."""
        return np.einsum("iin->n", a)

    def join(self, parts: list[Stack], axis: int) -> Stack:
        """Arrays one after the other along `axis`, short last axes made long where others are."""
        size = max(part.shape[-1] for part in parts)
        wide = [self.xp.broadcast_to(part, (*part.shape[:-1], size)) for part in parts]
        return self.xp.concatenate(wide, axis)

    def pick(self, stack: Stack, places: Any) -> Stack:
        """The matrices at these places of the stack."""
        return self.xp.take(stack, places, -1)

    def distinct(self, values: Stack) -> tuple[Stack, Any]:
        """The distinct values in rising order, and for each value which one it is."""
        found, inverse = self.xp.unique(values, return_inverse=True)
        return found, inverse

    def solve(self, a: Stack, b: Stack) -> Stack:
        """a⁻¹ b of every matrix; not a number where a is singular to working precision."""
        xp = self.xp
        left, right = (xp.moveaxis(m, -1, 0) for m in (a, b))
        size = max(len(left), len(right))
        left, right = (xp.broadcast_to(m, (size, *m.shape[1:])) for m in (left, right))
        left = xp.where(xp.isfinite(left).all(-1).all(-1)[:, None, None], left, 0.0)
        regular = (xp.linalg.cond(left) < SINGULAR)[:, None, None]
        eye = self.array(np.eye(left.shape[-1]))
        found = xp.where(regular, xp.linalg.solve(xp.where(regular, left, eye), right), float("nan"))
        return self.xp.moveaxis(found, 0, -1)

    def on_host(self, work: Callable[[Array], Any], values: Array) -> Any:
        """Eigenvalue problems (N, n, n) on the host, by all cores where that takes longer than starting threads.

        LAPACK takes about 5 µs and 3 ns · n³ for each, without the interpreter lock, and the same ones whoever asks.
        """
        seconds = len(values) * (5e-6 + 3e-9 * values.shape[-1] ** 3)
        cores = min(processors(), len(values), int(seconds / WORTH_A_THREAD))
        if cores <= 1:
            return work(values)
        with ThreadPoolExecutor(cores) as pool:
            return np.concatenate(list(pool.map(work, np.array_split(values, cores))))

    # How much at a time, and by how many.

    def chunk(self, size: int) -> int:
        """How many masters go through together, for matrices of `size` × `size`: what stays in the caches."""
        return int(np.clip(2**19 // max(size, 1) ** 2, 64, 8192))

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Overflow is a result here, not worth a warning."""
        with np.errstate(all="ignore"):
            yield

    def map(self, work: Callable[[slice], Any], parts: list[slice], workers: int | None) -> list[Any]:
        """`work` on every part, on several cores; NumPy computes without the interpreter lock."""
        # The common C library gives memory back to the system and asks for it anew, page by page, for each of the many
        # arrays of a megabyte; having once freed one of 32 MB it keeps that much, which saves a third of the time.
        np.empty(2**22 - 1024)
        count = min(workers or os.cpu_count() or 1, len(parts))
        if count <= 1:
            return [work(part) for part in parts]
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(work, parts))


class _Device(Backend):
    """What graphics processors share: one large chunk at a time, since launching costs more than computing."""

    squares_up_to = 64
    squares_from = 0
    impatient = False

    def packed(self, stack: Stack) -> Stack:
        return stack

    def is_packed(self, stack: Stack) -> bool:
        return False

    def _products(self, a: Stack, b: Stack) -> Stack:
        product = a[:, 0, None, :] * b[None, 0, :, :]
        for s in range(1, a.shape[1]):
            product = self._add_product(product, a[:, s, None, :], b[None, s, :, :])
        return product

    def _add_product(self, total: Stack, a: Stack, b: Stack) -> Stack:
        total += a * b
        return total

    def gram(self, a: Stack) -> Stack:
        return self.multiply(a, a.swapaxes(0, 1))

    def square_sum(self, a: Stack) -> Stack:
        return (a * a).sum((0, 1))

    def trace(self, a: Stack) -> Stack:
        return sum(a[i, i] for i in range(a.shape[0]))

    def chunk(self, size: int) -> int:
        return int(np.clip(2**25 // max(size, 1) ** 2, 2**10, 2**20))

    def map(self, work: Callable[[slice], Any], parts: list[slice], workers: int | None) -> list[Any]:
        return [work(part) for part in parts]


class CuPy(_Device):
    """Arrays of CuPy on the current device."""

    name = "cupy"

    def __init__(self) -> None:
        super().__init__(importlib.import_module("cupy"))

    @property
    def device(self) -> str:
        properties = self.xp.cuda.runtime.getDeviceProperties(self.xp.cuda.Device().id)
        return f"CuPy, {properties['name'].decode()}"

    def array(self, values: Any) -> Stack:
        return self.xp.asarray(values, dtype=self.xp.float64)

    def indices(self, values: Any) -> Any:
        return self.xp.asarray(values, dtype=self.xp.int64)

    def host(self, stack: Stack) -> Any:
        return self.xp.asnumpy(stack)

    def zeros(self, *shape: int) -> Stack:
        return self.xp.zeros(shape)


class Torch(_Device):
    """Tensors of PyTorch on the graphics processor when there is one, else on the processor."""

    name = "torch"

    def __init__(self, place: str | None = None) -> None:
        super().__init__(importlib.import_module("torch"))
        self.place = place or ("cuda" if self.xp.cuda.is_available() else "cpu")

    @property
    def device(self) -> str:
        return "PyTorch, " + (self.xp.cuda.get_device_name() if self.place.startswith("cuda") else "processor")

    def array(self, values: Any) -> Stack:
        # A copy, since tensors must not share memory with arrays that may be read-only.
        return self.xp.tensor(np.asarray(values, dtype=float), device=self.place)

    def indices(self, values: Any) -> Any:
        return self.xp.tensor(np.asarray(values, dtype=np.int64), device=self.place)

    def host(self, stack: Stack) -> Any:
        return stack.cpu().numpy() if isinstance(stack, self.xp.Tensor) else stack

    def zeros(self, *shape: int) -> Stack:
        return self.xp.zeros(shape, dtype=self.xp.float64, device=self.place)

    def _add_product(self, total: Stack, a: Stack, b: Stack) -> Stack:
        return total.addcmul_(a, b)

    def join(self, parts: list[Stack], axis: int) -> Stack:
        size = max(part.shape[-1] for part in parts)
        return self.xp.cat([part.expand(*part.shape[:-1], size) for part in parts], axis)

    def pick(self, stack: Stack, places: Any) -> Stack:
        return stack.index_select(-1, places)

    def distinct(self, values: Stack) -> tuple[Stack, Any]:
        found, inverse = self.xp.unique(values, sorted=True, return_inverse=True)
        return found, inverse

    def chunk(self, size: int) -> int:
        return super().chunk(size) if self.place != "cpu" else Backend.chunk(self, size)


def find_backend(name: str | Backend = "numpy") -> Backend:
    """The backend of this name; "auto" takes a graphics processor when a library here reaches one, else NumPy.

    >>> find_backend("numpy").name
    'numpy'
    """
    if isinstance(name, Backend):
        return name
    if name not in NAMES:
        raise UnknownNameError("backend", name, NAMES)
    if name == "auto":
        return _graphics_processor() or Backend()
    if name == "numpy":
        return Backend()
    if importlib.util.find_spec(name) is None:
        extra = "gpu" if name == "torch" else "gpu-cupy"
        raise ConfigurationError(
            f"the backend '{name}' is not installed; install cosimo with the extra '{extra}', or use 'numpy'."
        )
    return Torch() if name == "torch" else CuPy()


def _graphics_processor() -> Backend | None:
    if importlib.util.find_spec("torch") is not None:
        torch = Torch()
        if torch.place != "cpu":
            return torch
    if importlib.util.find_spec("cupy") is not None:
        cupy = CuPy()
        try:
            if cupy.xp.cuda.runtime.getDeviceCount() > 0:
                return cupy
        except cupy.xp.cuda.runtime.CUDARuntimeError:
            return None  # The library is there, the driver is not.
    return None
