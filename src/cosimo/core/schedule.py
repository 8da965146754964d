"""The idea: a master is a short list of operations on one signal vector z.

All signals of a coupled system form one vector

    z = [x, y, u, w]        states, outputs, inputs, memories of the couplings

and one macro step of length h applies, one after the other, operations that each change one unit's part of it:

    F_i  Couple         w_i, u_i ← F_i(w_i, y)          the newest outputs become the unit's next input
    W_i  SampleOutputs  w_i      ← F_i(w_i, y)          the same, but the unit keeps the input it has
    G_i  Step           x_i      ← G_i(x_i, u_i)        the unit advances by a fraction of h
    H_i  Read           y_i      ← C_i x_i + D_i u_i    the unit's outputs are read
    S_i  Save           keep     (x_i, u_i)
    R_i  Restore        put back (x_i, u_i)
    (…)^n  Repeat       the same operations n times, or (…)^* until the outputs no longer change

Two interpreters read a schedule. *Executing* it on units gives a simulation. *Multiplying* its matrices, which for
linear units exist for every operation, gives the one-step map Φ with z ← Φ z; stability, accuracy, tuning and repair
of the coupling follow from Φ. For linear units both give the same numbers, to rounding. An operation is admitted only
together with its matrix.

The well-known masters are words over these letters. For two units:

    Jacobi                   F1 F2 G1 G2 H1 H2
    Gauss–Seidel             F1 G1 H1 F2 G2 H2
    Strang splitting         F1 G1(1/2) H1 F2 G2 H2 F1 G1(1/2) H1
    Jacobi, early read       F2 F1 H1 G1 G2 H2        (unit 1 feeds its input through to its output)
    successive substitution  S1 S2 (R1 R2 F1 F2 G1 G2 H1 H2)^*
    waveform iteration       S1 S2 (R1 R2 F1 F2 G1(1/2) G2(1/2) H1 H2 W1 W2 G1(1/2) G2(1/2) H1 H2)^*

The letters F, G, H and the vector z are those of glumac2018, Eqs. 20-29.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.errors import ConfigurationError, ScheduleError, UnknownNameError


@dataclass(frozen=True)
class Couple:
    """F: turn the newest outputs into the unit's next input."""

    unit: str


@dataclass(frozen=True)
class SampleOutputs:
    """W: remember the newest outputs for the unit's next coupling; its input stays."""

    unit: str


@dataclass(frozen=True)
class Step:
    """G: advance the unit by `fraction` of the macro step."""

    unit: str
    fraction: Fraction = Fraction(1)


@dataclass(frozen=True)
class Read:
    """H: read the unit's outputs."""

    unit: str


@dataclass(frozen=True)
class Save:
    """S: keep the unit's state and input."""

    unit: str


@dataclass(frozen=True)
class Restore:
    """R: put back what the last `Save` kept."""

    unit: str


@checked
@dataclass(frozen=True)
class Convergence:
    """When an iteration ends: max |Δy| ≤ tolerance · max(1, max |y|), or after `limit` sweeps, which is reported.

    `anderson` is the number of earlier sweeps that Anderson acceleration combines (0: plain substitution); it finds the
    fixed point also where plain substitution diverges. `quasi_newton` is the same for the interface quasi-Newton method
    IQN-ILS, which keeps what it has learned from one macro step to the next. Its first corrections follow the
    `jacobian` of the outputs after a sweep with respect to those before it, row by row in the order of all outputs;
    `cosimo.analysis.warm_start` gives it. For linear units one correction then suffices.
    """

    tolerance: float = 1e-10
    limit: int = 100
    anderson: int = 0
    quasi_newton: int = 0
    jacobian: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.tolerance > 0:
            raise ConfigurationError(f"tolerance of an iteration must be positive, not {self.tolerance}.")
        if self.limit < 1:
            raise ConfigurationError(f"sweep limit of an iteration must be at least 1, not {self.limit}.")
        if self.anderson < 0:
            raise ConfigurationError(f"Anderson depth must be 0 or more, not {self.anderson}.")
        if self.quasi_newton < 0:
            raise ConfigurationError(f"quasi-Newton depth must be 0 or more, not {self.quasi_newton}.")
        if self.anderson and self.quasi_newton:
            raise ConfigurationError("an iteration takes Anderson acceleration or quasi-Newton; give one of the two.")
        if self.jacobian and not self.quasi_newton:
            raise ConfigurationError(
                "a Jacobian starts a quasi-Newton iteration; give quasi_newton=8, or leave it out."
            )
        if any(len(row) != len(self.jacobian) or not all(map(math.isfinite, row)) for row in self.jacobian):
            raise ConfigurationError("the Jacobian of an iteration must be a square matrix of finite numbers.")


@dataclass(frozen=True)
class Repeat:
    """(…)^n: a fixed number of times, or until convergence."""

    body: tuple[Operation, ...]
    times: int | Convergence

    def __post_init__(self) -> None:
        if not self.body:
            raise ScheduleError("a Repeat needs at least one operation in its body.")
        if not isinstance(self.times, int | Convergence):
            raise ScheduleError(f"a Repeat runs a whole number of times or until Convergence, not {self.times!r}.")
        if isinstance(self.times, int) and self.times < 1:
            raise ScheduleError(f"a Repeat must run at least once, not {self.times} times.")


Operation = Couple | SampleOutputs | Step | Read | Save | Restore | Repeat

LETTERS: Mapping[type, str] = {Couple: "F", SampleOutputs: "W", Step: "G", Read: "H", Save: "S", Restore: "R"}
_WORDS: Mapping[str, type[Couple | SampleOutputs | Read | Save | Restore]] = {
    "couple": Couple, "sample": SampleOutputs, "read": Read, "save": Save, "restore": Restore,
}  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """The operations of one macro step; `units` fixes the numbers in print.

    >>> print(Schedule(("tyre", "truck"), (Couple("tyre"), Step("tyre"), Read("tyre"))))
    F1 G1 H1
    """

    units: tuple[str, ...]
    operations: tuple[Operation, ...]

    def __post_init__(self) -> None:
        if len(set(self.units)) != len(self.units):
            raise ScheduleError(
                f"the units {', '.join(self.units)} of the schedule are not all different; name each once."
            )
        for operation in flatten(self.operations):
            if operation.unit not in self.units:
                raise UnknownNameError("unit in schedule", operation.unit, self.units)
            if isinstance(operation, Step) and not 0 < operation.fraction <= 1:
                raise ScheduleError(
                    f"unit '{operation.unit}' steps by {operation.fraction} of the macro step; use (0, 1]."
                )

    def __str__(self) -> str:
        number = {name: str(i) for i, name in enumerate(self.units, 1)}
        return " ".join(_show(operation, number) for operation in self.operations)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` turns back into an equal schedule."""
        return {"units": list(self.units), "operations": [_encode(operation) for operation in self.operations]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schedule:
        """The schedule that `to_dict` wrote."""
        if set(data) != {"units", "operations"}:
            raise ScheduleError(f"a schedule has the keys 'units' and 'operations', not {sorted(data)}.")
        for key, value in data.items():
            if not isinstance(value, list | tuple):
                raise ScheduleError(f"'{key}' of a schedule must be a list, not {value!r}.")
        return cls(tuple(data["units"]), tuple(_decode(item) for item in data["operations"]))


def flatten(operations: tuple[Operation, ...]) -> Iterator[Couple | SampleOutputs | Step | Read | Save | Restore]:
    """All operations in order, bodies of `Repeat` once."""
    for operation in operations:
        if isinstance(operation, Repeat):
            yield from flatten(operation.body)
        else:
            yield operation


def _show(operation: Operation, number: Mapping[str, str]) -> str:
    if isinstance(operation, Repeat):
        times = operation.times if isinstance(operation.times, int) else "*"
        return f"({' '.join(_show(inner, number) for inner in operation.body)})^{times}"
    text = LETTERS[type(operation)] + number[operation.unit]
    if isinstance(operation, Step) and operation.fraction != 1:
        text += f"({operation.fraction})"
    return text


def _encode(operation: Operation) -> dict[str, Any]:
    if isinstance(operation, Repeat):
        times = operation.times if isinstance(operation.times, int) else dict(vars(operation.times))
        return {"repeat": [_encode(inner) for inner in operation.body], "times": times}
    if isinstance(operation, Step):
        return {"step": operation.unit, "fraction": str(operation.fraction)}
    return {next(word for word, kind in _WORDS.items() if isinstance(operation, kind)): operation.unit}


def _decode(data: Any) -> Operation:
    keys = set(data) if isinstance(data, Mapping) else set()
    try:
        if keys == {"repeat", "times"}:
            times = data["times"]
            if isinstance(times, Mapping):
                times = Convergence(**{**times, "jacobian": tuple(map(tuple, times.get("jacobian", ())))})
            return Repeat(tuple(_decode(inner) for inner in data["repeat"]), times)
        if keys == {"step", "fraction"}:
            return Step(data["step"], Fraction(data["fraction"]))
    except (ConfigurationError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ScheduleError(f"the operation {data} cannot be read: {error}.") from None
    if len(keys) == 1 and (word := next(iter(keys))) in _WORDS and isinstance(data[word], str):
        return _WORDS[word](data[word])
    raise ScheduleError(f"{data!r} is not an operation of a schedule; those are in core/schedule.py.")
