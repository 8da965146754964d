"""The variables of an FMU as the rest of the package sees them: one entry per scalar, arrays element by element.

Types carry the names of FMI 3.0 (Real of FMI 2.0 is Float64, Integer is Int32). Signals are exchanged as float64: a
Boolean is 0 or 1, an integer or enumeration value is exact up to 2^53.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, UnsafeInputError
from cosimo.core.timing import time_rounding
from cosimo.core.unit import BASE, Conversion, Text, UnitOfMeasure, convert
from cosimo.units.archives import remedy

Value = float | int | bool | str | bytes

EXACT = 2**53  # the largest integer up to which every integer is a float64


class FmiType(NamedTuple):
    """A type of variables: its functions and the C type of its values in FMI 3.0 (`fmi3Set…`) and 2.0, its range.

    `integers`: the least and the largest value of an integer type. `mantissa`: up to where a floating-point type holds
    every integer.
    """

    fmi3: tuple[str, Any]
    fmi2: tuple[str, Any] | None = None
    integers: tuple[int, int] | None = None
    mantissa: int | None = None


def _integer(bits: int, c_type: Any, fmi2: tuple[str, Any] | None = None) -> dict[str, FmiType]:
    name, half = f"Int{bits}", 2 ** (bits - 1)
    unsigned = getattr(ctypes, f"c_uint{bits}")
    return {
        name: FmiType((name, c_type), fmi2, (-half, half - 1)),
        f"U{name}": FmiType((f"U{name}", unsigned), None, (0, 2 * half - 1)),
    }


TYPES: Mapping[str, FmiType] = {
    "Float64": FmiType(("Float64", ctypes.c_double), ("Real", ctypes.c_double), mantissa=EXACT),
    "Float32": FmiType(("Float32", ctypes.c_float), mantissa=2**24),
    **_integer(8, ctypes.c_int8),
    **_integer(16, ctypes.c_int16),
    **_integer(32, ctypes.c_int32, ("Integer", ctypes.c_int32)),
    **_integer(64, ctypes.c_int64),
    "Boolean": FmiType(("Boolean", ctypes.c_bool), ("Boolean", ctypes.c_int32)),
    "Enumeration": FmiType(("Int64", ctypes.c_int64), ("Integer", ctypes.c_int32), (-(2**31), 2**31 - 1)),
    "String": FmiType(("String", ctypes.c_char_p), ("String", ctypes.c_char_p)),
    "Binary": FmiType(("Binary", ctypes.POINTER(ctypes.c_uint8))),
}
"""All types that are exchanged, by their names in FMI 3.0; an enumeration's values are those that FMI 2.0 allows."""
INTEGERS = {name: kind.integers for name, kind in TYPES.items() if kind.integers is not None}
MANTISSA = {name: kind.mantissa for name, kind in TYPES.items() if kind.mantissa is not None}
TEXTS: Mapping[str, Text] = {"String": "", "Binary": b""}
"""Types that are no numbers, which are exchanged as they are, and the value that is empty."""
LEFT_OUT = {"Clock": "a clock"}  # types of variables that are not exchanged, in words

SETTABLE = ("exact", "approx")  # `initial` of variables whose value may be given before initialisation


@dataclass(frozen=True)
class VariableInfo:
    """One scalar: a scalar variable, or one element of an array (`element` counts from 0, row after row)."""

    name: str
    type: str
    value_reference: int
    element: int | None = None
    unit: UnitOfMeasure | None = None
    start: Value | None = None
    minimum: float | None = None
    maximum: float | None = None
    causality: str = "local"
    variability: str = "continuous"
    description: str = ""
    initial: str | None = None
    alias: bool = False  # a further name of another variable (FMI 3.0); it is not exchanged
    derivative_of: str | None = None
    """The variable of which this one is the time derivative, where the description says so."""
    clocks: tuple[str, ...] = ()
    """The clocks of a clocked variable: it changes only while one of them is active (FMI 3.0)."""
    intermediate: bool = False
    """It is exchanged within steps, too (FMI 3.0, `intermediateUpdate`)."""

    @property
    def numeric(self) -> bool:
        """It can be part of the signal vector."""
        return self.type in INTEGERS or self.type in MANTISSA or self.type == "Boolean"

    @property
    def continuous(self) -> bool:
        """It may change smoothly in time, so that derivatives make sense."""
        return self.type in MANTISSA and self.variability == "continuous"


def read_variables(
    description: Any,
    relative: frozenset[str] = frozenset(),
    intermediate: frozenset[str] = frozenset(),
    *,
    most: int = 1_000_000,
) -> dict[str, VariableInfo]:
    """All exchangeable scalars by name, in model order.

    `relative` names the variables that are differences, `intermediate` those that are exchanged within steps.
    `description` is FMPy's model description. Clocks are left out, and those without a name, which
    only a description that is not validated can have. More than `most` scalars are refused: a single line can declare
    an array of any size.
    """
    count = sum(math.prod(max(size, 0) for size in variable.shape or ()) for variable in description.modelVariables)
    if count > most:
        raise UnsafeInputError(f"the description declares {count:,} scalars, more than {most:,}; "
                               f"{remedy('variables')}.")  # fmt: skip
    units = {unit.name: _unit(unit) for unit in description.unitDefinitions}
    found: dict[str, VariableInfo] = {}
    for variable in description.modelVariables:
        if variable.name and variable.type not in LEFT_OUT:
            for info in _elements(variable, units, variable.name in relative):
                found[info.name] = replace(info, intermediate=True) if variable.name in intermediate else info
    return found


STRUCTURAL = "structuralParameter"


def resize(description: Any, values: Mapping[str, Any]) -> None:
    """Give structural parameters other values, and arrays the sizes that follow from them (FMI 3.0, section 2.4.7.5).

    Start values that no longer fit the size of their array are those of nobody: they must be given anew.
    """
    for variable in description.modelVariables:
        if variable.causality == STRUCTURAL and variable.name in values:
            (info,) = _elements(variable, {}, relative=False)
            variable.start = str(parse_value(info, values[variable.name]))
    for variable in description.modelVariables:
        sizes = (part.start if part.start is not None else part.variable.start for part in variable.dimensions)
        shape = tuple(map(int, sizes))
        if shape != tuple(variable.shape or ()):
            variable.shape = shape
            if variable.start is not None and len(variable.start.split()) not in (1, math.prod(shape)):
                variable.start = None


@dataclass(frozen=True)
class Clock:
    """A time-based input clock (FMI 3.0, section 2.2.8.3).

    A periodic one ticks `first` + k · `interval` seconds after the start; an interval of 0 is asked for before the
    start. Of an aperiodic one (changing, countdown) the time until the next tick is asked for at every event.
    """

    name: str
    value_reference: int
    interval: float = 0.0
    first: float = 0.0
    aperiodic: bool = False

    def next(self, start: float, now: float) -> float:
        """The first tick after `now`, by multiplication; one at `now` itself, but for rounding, is over."""
        first = start + self.first
        if now < start:
            return first
        k = math.floor((now - first) / self.interval)
        while first + k * self.interval <= now + time_rounding(now, first):
            k += 1
        return first + max(k, 0) * self.interval


class Clocks(NamedTuple):
    """The clocks of an FMU: those that tick by time, triggered inputs, outputs (value references), all other inputs."""

    timed: tuple[Clock, ...] = ()
    triggered: Mapping[str, int] = {}
    outputs: Mapping[str, int] = {}
    idle: tuple[str, ...] = ()


def read_clocks(root: Any) -> Clocks:
    """What the description says of clocks; FMPy does not read their intervals: `root` is the description in XML."""
    timed, triggered, outputs, idle = [], {}, {}, []
    for element in root.iterfind("ModelVariables/Clock"):
        name, digits = element.get("name"), element.get("valueReference") or ""
        causality, kind = element.get("causality"), element.get("intervalVariability")
        if not name or causality not in ("input", "output"):
            continue
        interval, shift = _period(element)
        sound = 0 <= shift < math.inf and (0 < interval < math.inf or (kind in ("fixed", "tunable") and not interval))
        if not (digits.isdecimal() and int(digits) < 1 << 32):
            idle += [name] if causality == "input" else []
        elif causality == "output":
            outputs[name] = int(digits)
        elif kind == "triggered":
            triggered[name] = int(digits)
        elif kind in ("changing", "countdown"):
            timed.append(Clock(name, int(digits), aperiodic=True))
        elif kind in ("constant", "fixed", "tunable") and sound:
            timed.append(Clock(name, int(digits), interval, shift))
        else:
            idle.append(name)
    return Clocks(tuple(timed), triggered, outputs, tuple(idle))


def _period(element: Any) -> tuple[float, float]:
    """Interval and shift in seconds, or counted in ticks of a resolution; an interval of 0 where there is none."""
    try:
        if element.get("intervalDecimal") is not None:
            return float(element.get("intervalDecimal")), float(element.get("shiftDecimal") or 0.0)
        if element.get("intervalCounter") is not None and element.get("resolution") is not None:
            resolution = int(element.get("resolution"))
            return int(element.get("intervalCounter")) / resolution, int(element.get("shiftCounter") or 0) / resolution
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ConfigurationError(
            f"the clock '{element.get('name')}' (line {element.sourceline}) has an interval that is no number; export "
            "the FMU again."
        ) from None
    return 0.0, 0.0


class LeftOut(NamedTuple):
    """A variable that is not exchanged: its type in words, and its causality."""

    words: str
    causality: str


def left_out(description: Any) -> dict[str, LeftOut]:
    """The variables that `read_variables` leaves out because of their type."""
    return {
        variable.name: LeftOut(LEFT_OUT[variable.type], variable.causality or "local")
        for variable in description.modelVariables
        if variable.name and variable.type in LEFT_OUT
    }


def check_connection(source: VariableInfo, target: VariableInfo) -> Conversion:
    """What a connection from `source` to `target` must do to the values; refuses what would lose or misread them."""
    if not _holds(target.type, source.type):
        raise ConfigurationError(
            f"'{source.name}' ({source.type}) cannot be connected to '{target.name}' ({target.type}): "
            f"{_reason(source.type, target.type)}."
        )
    conversion = convert(source.unit, target.unit)
    if conversion is None:
        assert source.unit is not None
        assert target.unit is not None
        raise ConfigurationError(
            f"'{source.name}' is in {_show(source.unit)} and '{target.name}' in {_show(target.unit)}, which are "
            "incompatible physical units; connect a variable of the same quantity, or convert it in a separate unit."
        )
    return conversion


def find_derivatives(outputs: Sequence[VariableInfo]) -> dict[int, int]:
    """Which output is the time derivative of which: as declared, or the only one measured in that unit per second."""
    names = [info.name for info in outputs]
    found = {names.index(info.derivative_of): j for j, info in enumerate(outputs) if info.derivative_of in names}
    by_unit: dict[tuple[Any, float], list[int]] = {}
    for place, info in enumerate(outputs):
        if info.unit is not None and info.unit.exponents is not None and info.continuous:
            by_unit.setdefault((info.unit.exponents, info.unit.factor), []).append(place)
    second = BASE.index("s")
    for (exponents, factor), places in by_unit.items():
        slower = (*exponents[:second], exponents[second] - 1, *exponents[second + 1 :])
        rates = by_unit.get((slower, factor), [])
        if len(places) == len(rates) == 1:
            found.setdefault(places[0], rates[0])
    return found


def allowed_within(settings: Sequence[tuple[VariableInfo, Value]]) -> list[tuple[VariableInfo, Value]]:
    """The values that may be given in initialisation mode."""
    return [(info, value) for info, value in settings if info.causality == "input" or info.initial == "exact"]


def parse_value(info: VariableInfo, value: object) -> Value:
    """`value`, given by a user, as a value of the variable; refuses what does not fit it."""
    fitting = _fit(info, value)
    if fitting is None:
        wanted = {
            "Boolean": "true or false",
            "String": "a text",
            "Binary": "bytes, or hexadecimal digits in quotes",
        }.get(info.type, "a whole number in the range of the type" if info.type in INTEGERS else "a number")
        raise ConfigurationError(f"'{info.name}' is of type {info.type} and cannot be {value!r}; give {wanted}.")
    if isinstance(fitting, str | bytes | bool):
        return fitting
    low = -math.inf if info.minimum is None else info.minimum
    high = math.inf if info.maximum is None else info.maximum
    if not low <= fitting <= high:
        raise ConfigurationError(
            f"'{info.name}' cannot be {value!r}: its description allows {low:g} to {high:g}; give a "
            f"value in this range."
        )
    return fitting


def _fit(info: VariableInfo, value: object) -> Value | None:
    if info.type == "Binary":
        return _binary(value) if isinstance(value, str | bytes) else None
    if isinstance(value, str):
        return value if info.type == "String" else None
    if not hasattr(value, "__float__") or info.type == "String":
        return None
    if isinstance(value, bool) and info.type != "Boolean":
        return None
    number: Any = value
    if info.type in MANTISSA:
        return float(number) if math.isfinite(number) else None
    if not math.isfinite(number) or number != int(number):
        return None
    if info.type == "Boolean":
        return bool(number) if number in (0, 1) else None
    low, high = INTEGERS[info.type]
    return int(number) if low <= number <= high else None


def _binary(value: Text) -> bytes | None:
    """Bytes as they are, or as FMI 3.0 writes them, two hexadecimal digits each."""
    try:
        return bytes.fromhex(value) if isinstance(value, str) else value
    except ValueError:
        return None


def _holds(target: str, source: str) -> bool:
    """Every value of `source` is a value of `target`.

    Values beyond 2^53 never enter the signal vector (reading one is an error), so that Float64 holds every integer.
    """
    if source == target:
        return True
    if source in TEXTS or target in TEXTS or target in ("Boolean", "Enumeration"):
        return False
    if target in MANTISSA:
        if source in MANTISSA:
            return target == "Float64"
        if source == "Boolean" or target == "Float64":
            return True
        low, high = INTEGERS[source]
        return max(-low, high) <= MANTISSA[target]
    if source in MANTISSA:
        return False
    low, high = (0, 1) if source == "Boolean" else INTEGERS[source]
    return INTEGERS[target][0] <= low and high <= INTEGERS[target][1]


def _reason(source: str, target: str) -> str:
    if source in TEXTS or target in TEXTS:
        return "a text or a binary value can be connected only to its like"
    if target in INTEGERS and source in MANTISSA:
        return "fractions would be lost; round in a separate unit"
    if target in ("Boolean", "Enumeration"):
        return "not every value of the source is one of the target; convert in a separate unit"
    return "values outside the range of the target would be lost; connect to a wider type"


def _show(unit: UnitOfMeasure) -> str:
    return f"'{unit}' ({unit.base if unit.exponents is not None else 'without a definition'})"


def _unit(unit: Any) -> UnitOfMeasure:
    base = unit.baseUnit
    if base is None:
        return UnitOfMeasure(unit.name)
    exponents = (base.kg, base.m, base.s, base.A, base.K, base.mol, base.cd, base.rad)
    return UnitOfMeasure(unit.name, exponents, base.factor, base.offset)


def _elements(variable: Any, units: Mapping[str, UnitOfMeasure], relative: bool) -> Iterator[VariableInfo]:
    declared = variable.declaredType
    unit = units.get(variable.unit or (declared.unit if declared else None) or "")
    if unit is not None and (relative or (declared is not None and declared.relativeQuantity)):
        unit = unit.relative
    kind = {"Real": "Float64", "Integer": "Int32"}.get(variable.type, variable.type)
    shape = variable.shape or ()
    indices = list(product(*(range(1, size + 1) for size in shape)))
    starts = _starts(variable, kind, len(indices))
    for number, (index, start) in enumerate(zip(indices, starts, strict=True)):
        yield VariableInfo(
            name=variable.name + (f"[{','.join(map(str, index))}]" if shape else ""),
            type=kind,
            value_reference=variable.valueReference,
            element=number if shape else None,
            unit=unit,
            start=start,
            minimum=_bound(variable, "min"),
            maximum=_bound(variable, "max"),
            causality=variable.causality,
            variability=variable.variability,
            description=variable.description or "",
            initial=variable.initial,
            alias=variable.alias is not None,
            derivative_of=variable.derivative.name if variable.derivative is not None and not shape else None,
            clocks=tuple(clock.name for clock in variable.clocks or ()),
        )


def _bound(variable: Any, name: str) -> float | None:
    own = getattr(variable, name)
    text = own if own is not None else getattr(variable.declaredType, name, None)
    try:
        return None if text is None else float(text)
    except ValueError:
        raise ConfigurationError(
            f"variable '{variable.name}' (line {variable.sourceline}) has '{text:.40}' as its {name}imum, which is no "
            "number; export the FMU again."
        ) from None


def _starts(variable: Any, kind: str, count: int) -> list[Value | None]:
    """The start values of all elements; one value stands for all."""
    if variable.start is None:
        return [None] * count
    words = [variable.start] if kind in TEXTS else variable.start.split()
    if len(words) not in (1, count):
        raise ConfigurationError(
            f"variable '{variable.name}' (line {variable.sourceline}) has {len(words)} start values for "
            f"{count} elements; export the FMU again."
        )
    values: list[Value | None] = [_literal(variable, kind, word) for word in words]
    return values * count if len(values) == 1 else values


def _literal(variable: Any, kind: str, word: str) -> Value:
    try:
        if kind == "String":
            return word
        if kind == "Binary":
            return bytes.fromhex(word)
        if kind == "Boolean":
            return {"true": True, "1": True, "false": False, "0": False}[word]
        return float(word) if kind in MANTISSA else int(word)
    except (KeyError, ValueError):
        raise ConfigurationError(
            f"variable '{variable.name}' (line {variable.sourceline}) of type {kind} has the start value '{word}'; "
            f"export the FMU again."
        ) from None
