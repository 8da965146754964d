"""A plain Python class as a unit, and one that follows its inputs while they change during a step."""

from __future__ import annotations

import copy
import inspect
import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, BoolArray, shift_matrix
from cosimo.core.errors import ConfigurationError
from cosimo.core.plain import NotPlainError, from_bytes, to_bytes
from cosimo.core.unit import Instance, Unit


@checked
class PythonUnit(Unit):
    """Wraps a class whose attributes are its variables.

    The class has `inputs` and `outputs` (names, or for inputs a mapping to start values) and `step(time, duration)`.
    Before a step the inputs are set as attributes; afterwards the outputs are read as attributes. An output that
    depends directly on an input is a property: it is computed when read, and counts as direct feedthrough. `save()` and
    `restore(state)` are optional; without them the object's attributes are copied.

    >>> class Tank:
    ...     inputs, outputs = ("inflow",), ("level",)
    ...     def __init__(self, level: float = 0.0) -> None:
    ...         self.level = level
    ...     def step(self, time: float, duration: float) -> None:
    ...         self.level += duration * (self.inflow - 0.5 * self.level)
    >>> PythonUnit(Tank, level=1.0).outputs
    ('level',)
    """

    input_degree = 0

    def __init__(self, kind: type, /, **parameters: Any) -> None:
        for needed in ("inputs", "outputs", "step"):
            if not hasattr(kind, needed):
                raise ConfigurationError(
                    f"class {kind.__name__} has no '{needed}'; a Python unit needs inputs, outputs, step."
                )
        self.kind, self.parameters, self.name = kind, _copied(parameters), kind.__name__
        given = getattr(kind, "inputs")  # noqa: B009  the type checker knows nothing of the class
        self.start = dict(given) if isinstance(given, Mapping) else {}
        self.inputs = _names(kind, "inputs")
        self.outputs = _names(kind, "outputs")
        if hasattr(kind, "save") != hasattr(kind, "restore"):
            raise ConfigurationError(f"class {kind.__name__} must have both 'save' and 'restore', or neither.")

    def feedthrough(self) -> BoolArray:
        """Outputs that are properties may have direct feedthrough from every input."""
        computed = [isinstance(inspect.getattr_static(self.kind, name, None), property) for name in self.outputs]
        return np.repeat(np.array(computed, dtype=bool)[:, None], len(self.inputs), axis=1)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.kind).parameters)

    def with_values(self, values: Mapping[str, Any]) -> PythonUnit:
        own = {name: value for name, value in values.items() if name in self.parameter_names}
        changed = copy.copy(self)
        changed.parameters = {**self.parameters, **own}
        changed.start = {**self.start, **{name: float(value) for name, value in values.items() if name not in own}}
        return changed

    def parts(self) -> tuple[Any, ...]:
        return self.kind, self.parameters

    def instantiate(self, start_time: float = 0.0) -> PythonInstance:
        return PythonInstance(self)


def _copied(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters; of lists, mappings and arrays a copy, which neither the caller nor another object shares."""
    data = (np.ndarray, list, dict, set)
    return {name: copy.deepcopy(value) if isinstance(value, data) else value for name, value in parameters.items()}


def _names(kind: type, what: str) -> tuple[str, ...]:
    given = getattr(kind, what)
    if isinstance(given, str) or not isinstance(given, Sequence | Mapping):
        raise ConfigurationError(f"'{what}' of class {kind.__name__} must be a sequence of names, not {given!r}.")
    return tuple(given)


def as_number(name: str, value: Any) -> float:
    """The value of an output: unlike `float` and NumPy, `array` takes numbers only, not None and not text."""
    try:
        return float(array("d", (value,))[0])
    except TypeError:
        raise TypeError(f"output '{name}' is {value!r:.60}, not a number") from None


class PythonInstance(Instance):
    """The live object."""

    def __init__(self, unit: PythonUnit) -> None:
        self._inputs, self._outputs = unit.inputs, unit.outputs
        self.object = unit.kind(**_copied(unit.parameters))
        for name in self._inputs:
            setattr(self.object, name, float(unit.start.get(name, 0.0)))
        self._own_save = hasattr(unit.kind, "save")

    def set_input(self, coefficients: Array, h: float) -> None:
        for name, value in zip(self._inputs, coefficients[0].tolist(), strict=True):
            setattr(self.object, name, value)

    def step(self, time: float, duration: float) -> None:
        self.object.step(time, duration)

    def read(self) -> Array:
        return np.array([as_number(name, getattr(self.object, name)) for name in self._outputs], dtype=float)

    def save(self) -> Any:
        """The object's own save, or a copy of its attributes; the inputs in either case."""
        inputs = [getattr(self.object, name) for name in self._inputs]
        return (self.object.save() if self._own_save else copy.deepcopy(vars(self.object))), inputs

    def serialise(self) -> bytes:
        """As bytes, where all attributes (or what the object's own `save` returns) are plain data."""
        own, inputs = self.save()
        try:
            return to_bytes({"state": own, "inputs": inputs})
        except NotPlainError as error:
            kind = type(self.object).__name__
            raise NotPlainError(f"{error} Give class {kind} 'save' and 'restore' that use plain data.") from None

    def deserialise(self, data: bytes) -> None:
        found = from_bytes(data)
        self.restore((found["state"], found["inputs"]))

    def restore(self, state: Any) -> None:
        own, inputs = state
        if self._own_save:
            self.object.restore(own)
        else:
            vars(self.object).clear()
            vars(self.object).update(copy.deepcopy(own))
        for name, value in zip(self._inputs, inputs, strict=True):
            setattr(self.object, name, value)


MOST_MICRO_STEPS = 1_000_000
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
        if count > MOST_MICRO_STEPS:
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
