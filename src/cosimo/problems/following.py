"""A Python unit that follows its inputs while they change during a step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cosimo.core.arrays import Array, shift_matrix
from cosimo.core.errors import ConfigurationError
from cosimo.core.unit import Instance
from cosimo.units.python import PythonInstance, PythonUnit

MOST = 1_000_000
"""Micro steps in one step beyond which the micro step cannot be meant."""


class FollowingUnit(PythonUnit):
    """As `PythonUnit`, but its inputs are polynomials in time.

    A step is made in n micro steps of equal length, none longer than `micro_step`. Before each, and after the last, the
    inputs are set as attributes to their values at that moment,

        u(t_i) = Σ_j c_j ((t_i − t_couple) / h)^j,      t_i = t + i · duration / n.

    So an integrator that uses the inputs at the start of a step needs to know nothing of polynomials, and an output
    that is a property is computed, when read after the step, from the inputs at its *end*: with a coupling that yields
    x_k + σ (x̃_{k+1} − x_k) it contains the prediction x̃_{k+1} (pikulinski2025, Secs. 2.2 and 3.3).
    """

    input_degree = 2

    def __init__(self, kind: type, *, micro_step: float = math.inf, **parameters: Any) -> None:
        if not isinstance(micro_step, int | float) or not micro_step > 0:
            raise ConfigurationError(f"the micro step of {kind.__name__} must be positive, not {micro_step!r}.")
        super().__init__(kind, **parameters)
        self.micro_step = micro_step

    def parts(self) -> tuple[Any, ...]:
        return *super().parts(), self.micro_step

    def instantiate(self, start_time: float = 0.0) -> FollowingInstance:  # type: ignore[override]  # not a PythonInstance
        return FollowingInstance(self)


class FollowingInstance(Instance):
    """The live object and its input polynomial c, (q + 1, m), as seen from the present time on.

    It holds a `PythonInstance` and is none itself: the kernel sets the attributes of those directly, once per coupling.
    """

    def __init__(self, unit: FollowingUnit) -> None:
        self._plain = PythonInstance(unit)
        self.object = self._plain.object
        self._micro_step = unit.micro_step
        self._c = np.array([[getattr(self.object, name) for name in unit.inputs]], dtype=float)
        self._h = 1.0
        self._moves: dict[tuple[int, float], Array] = {}

    def set_input(self, coefficients: Array, h: float) -> None:
        """Keep the polynomial and set its values now as attributes."""
        self._c, self._h = coefficients, h
        self._plain.set_input(coefficients, h)

    def step(self, time: float, duration: float) -> None:
        """Micro steps, each from the inputs at its start; then the inputs at the end."""
        # A quotient of two rounded numbers: what exceeds a whole number by rounding only is that whole number.
        count = max(1, math.ceil(duration / self._micro_step * (1 - 1e-12)))
        if count > MOST:
            raise ValueError(f"a step of {duration:g} s in micro steps of {self._micro_step:g} s cannot be meant")
        micro, advance = duration / count, self.object.step
        if len(self._c) == 1:
            for i in range(count):
                advance(time + i * micro, micro)
            return
        for i in range(count):
            if i:
                self._plain.set_input(self._at(i * micro), self._h)
            advance(time + i * micro, micro)
        self._c = self._at(duration)
        self._plain.set_input(self._c, self._h)

    def _at(self, elapsed: float) -> Array:
        """The polynomial around a later moment."""
        key = (len(self._c), elapsed / self._h)
        if key not in self._moves:
            self._moves[key] = shift_matrix(len(self._c) - 1, elapsed / self._h)
        moved: Array = self._moves[key] @ self._c
        return moved

    def read(self) -> Array:
        return self._plain.read()

    def save(self) -> Any:
        """The object's state and the polynomial, which is replaced and never changed in place."""
        return self._plain.save(), self._c, self._h

    def restore(self, state: Any) -> None:
        own, self._c, self._h = state
        self._plain.restore(own)
