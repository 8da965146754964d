"""A plain Python class as a unit."""

from __future__ import annotations

import copy
import inspect
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, BoolArray
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
