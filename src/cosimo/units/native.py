"""A unit given by the addresses of compiled C functions: it runs at the cost of an FMU."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, BoolArray, frozen, matrix
from cosimo.core.errors import ConfigurationError
from cosimo.core.unit import Instance, Unit

_NUMBERS = ctypes.POINTER(ctypes.c_double)
STEP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_double, ctypes.c_double, _NUMBERS, _NUMBERS, _NUMBERS)
"""int step(double time, double duration, double *x, const double *u, double *y): advance x, fill y, return 0."""
OUTPUT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_double, _NUMBERS, _NUMBERS, _NUMBERS)
"""int output(double time, const double *x, const double *u, double *y): fill y, return 0."""


class BadStatus(Exception):
    """A compiled function did not return 0; who calls the unit knows its name and the time."""

    def __init__(self, status: int) -> None:
        super().__init__(f"its function returned {status}")


@checked
class NativeUnit(Unit):
    """Wraps two compiled functions, given by address (see `STEP` and `OUTPUT` for their signatures).

    With `output`, outputs are computed whenever they are read and may depend at once on inputs; without it they are
    what `step` left in y, and `initial_outputs` before the first step. All that the functions remember must be in x.
    """

    input_degree = 0

    def __init__(
        self,
        step: int,
        output: int | None = None,
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        initial: npt.ArrayLike,
        initial_outputs: npt.ArrayLike | None = None,
        start: Mapping[str, float] | None = None,
    ) -> None:
        if not step:
            raise ConfigurationError("a native unit needs the address of its step function.")
        self.step, self.output = step, output
        self.inputs, self.outputs, self.start = tuple(inputs), tuple(outputs), dict(start or {})
        for what, names in (("inputs", self.inputs), ("outputs", self.outputs)):
            if len(set(names)) != len(names):
                raise ConfigurationError(
                    f"the {what} {', '.join(names)} of a native unit are not all different; rename one."
                )
        self.initial: Array = np.atleast_1d(frozen(initial))
        first = np.zeros(len(self.outputs)) if initial_outputs is None else initial_outputs
        self.initial_outputs: Array = matrix("initial_outputs", first, (len(self.outputs), 1))[:, 0]

    def feedthrough(self) -> BoolArray:
        return np.full((len(self.outputs), len(self.inputs)), self.output is not None)

    def parts(self) -> tuple[Any, ...]:
        return (self.initial.tobytes().hex(),)

    def instantiate(self, start_time: float = 0.0) -> NativeInstance:
        return NativeInstance(self, start_time)


class NativeInstance(Instance):
    """State, inputs and outputs as arrays that the functions work on."""

    def __init__(self, unit: NativeUnit, start_time: float) -> None:
        self.unit = unit
        self.x = unit.initial.copy()
        self.u, self.y = np.zeros(len(unit.inputs)), unit.initial_outputs.copy()
        self._time = start_time
        self._step = STEP(unit.step)
        self._output = OUTPUT(unit.output) if unit.output else None

    def set_input(self, coefficients: Array, h: float) -> None:
        self.u[:] = coefficients[0]

    def step(self, time: float, duration: float) -> None:
        self._time = time + duration
        self._require(self._step(time, duration, *map(_pointer, (self.x, self.u, self.y))))

    def read(self) -> Array:
        """The outputs: computed now, or as the last step left them."""
        if self._output is not None:
            self._require(self._output(self._time, *map(_pointer, (self.x, self.u, self.y))))
        return self.y.copy()

    def save(self) -> Any:
        return self.x.copy(), self.u.copy(), self.y.copy(), self._time

    def restore(self, state: Any) -> None:
        self.x[:], self.u[:], self.y[:], self._time = state

    @staticmethod
    def _require(status: int) -> None:
        if status:
            raise BadStatus(status)


def _pointer(values: Array) -> Any:
    return values.ctypes.data_as(_NUMBERS)
