"""What a unit is: a description, and the live instance it makes; in which units of measure its variables are.

A unit solves, between communication points and with its own solver,

    ẋ = f(x, u(t)),   y = g(x, u)          linear: ẋ = A x + B u,   y = C x + D u      (glumac2018, Eq. 4)

and is given its input over one step as a polynomial in θ = (t − t_now) / h,  u = Σ_j c_j θ^j.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.errors import ConfigurationError
from cosimo.core.plain import from_bytes, to_bytes

# ---- units of measure ------------------------------------------------------------------------------------------------
# base = factor · value + offset, with the exponents of the SI base units saying what base is. Two units of measure fit
# together when their exponents agree; then
#
#     value_target = (f_s / f_t) · value_source + (o_s − o_t) / f_t
#
# A relative quantity (a temperature difference) has no offset: 1 K and 1 °C are then the same.

BASE = ("kg", "m", "s", "A", "K", "mol", "cd", "rad")
"""The base units whose exponents a definition gives, in this order (FMI 2.0 and 3.0, element BaseUnit)."""


class Conversion(NamedTuple):
    """target = gain · source + offset."""

    gain: float = 1.0
    offset: float = 0.0

    @property
    def identity(self) -> bool:
        """Nothing is changed."""
        return self.gain == 1.0 and self.offset == 0.0


@dataclass(frozen=True)
class UnitOfMeasure:
    """A named unit of measure; `exponents` is None where the description only names the unit.

    >>> celsius = UnitOfMeasure("degC", (0, 0, 0, 0, 1, 0, 0, 0), offset=273.15)
    >>> kelvin = UnitOfMeasure("K", (0, 0, 0, 0, 1, 0, 0, 0))
    >>> convert(celsius, kelvin)
    Conversion(gain=1.0, offset=273.15)
    """

    name: str
    exponents: tuple[int, ...] | None = None
    factor: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if self.exponents is not None and len(self.exponents) != len(BASE):
            raise ConfigurationError(f"physical unit '{self.name}' needs {len(BASE)} exponents: {', '.join(BASE)}.")
        if not abs(self.factor) > 0:
            raise ConfigurationError(f"physical unit '{self.name}' has the factor {self.factor}; it must not be 0.")

    def __str__(self) -> str:
        return self.name

    @property
    def relative(self) -> UnitOfMeasure:
        """The unit for differences of such values."""
        return replace(self, offset=0.0)

    @property
    def base(self) -> str:
        """The base units written out, for messages.

        >>> UnitOfMeasure("N", (1, 1, -2, 0, 0, 0, 0, 0)).base
        'kg·m·s^-2'
        """
        parts = [
            name + (f"^{power}" if power != 1 else "")
            for name, power in zip(BASE, self.exponents or (), strict=False)
            if power
        ]
        return "·".join(parts) or "1"


def convert(source: UnitOfMeasure | None, target: UnitOfMeasure | None) -> Conversion | None:
    """What turns values in `source` into values in `target`; None when the two do not fit together.

    A missing unit fits everything. Units without a definition fit only their own name.
    """
    if source is None or target is None or source == target:
        return Conversion()
    if source.exponents is None or target.exponents is None:
        return Conversion() if source.name == target.name else None
    if source.exponents != target.exponents:
        return None
    return Conversion(source.factor / target.factor, (source.offset - target.offset) / target.factor)


# ---- units and their instances ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearModel:
    """ẋ = A x + B u, y = C x + D u; A (n, n), B (n, m), C (p, n), D (p, m)."""

    A: Array
    B: Array
    C: Array
    D: Array


@dataclass(frozen=True)
class DiscreteModel:
    """What a linear unit does over one step: x' = A x + Σ_j B_j c_j, with the input c_0 + c_1 θ + … for θ in [0, 1].

    A (…, n, n) and B (…, n, (q + 1) m) with the blocks B_0 … B_q side by side; leading axes run over step sizes.
    """

    A: Array
    B: Array


Text = str | bytes
"""A value that is no number: it is held and exchanged as it is, and nothing is computed with it."""


class Instance(ABC):
    """A live unit. Time, state and input belong to it; `read` may be called at any time after `set_input`."""

    @property
    def ended(self) -> float | None:
        """The time at which the unit wants the simulation to end, once it has asked for that."""
        return None

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user of a run should know of the instance, one sentence each: what a sandbox kept it from, say."""
        return ()

    @abstractmethod
    def set_input(self, coefficients: Array, h: float) -> None:
        """Take the input from now on: row j holds c_j of u(t) = Σ_j c_j ((t − t_now) / h)^j, one column per input."""

    @abstractmethod
    def step(self, time: float, duration: float) -> None:
        """Advance from `time` by `duration`."""

    @abstractmethod
    def read(self) -> Array:
        """The outputs now, in the order of the unit's `outputs`."""

    @abstractmethod
    def save(self) -> Any:
        """All that `restore` needs to continue from here, input included."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Continue from what `save` returned; it may be restored many times."""

    def serialise(self) -> bytes:
        """What `save` returns as bytes that another instance takes, also in another process; needs plain data."""
        return to_bytes(self.save())

    def deserialise(self, data: bytes) -> None:
        """Continue from what `serialise` returned."""
        self.restore(from_bytes(data))

    def take_texts(self, sources: Mapping[str, Callable[[], Text | None]]) -> None:  # noqa: B027  most units have none
        """Where the unit's `text_inputs` that are connected come from: asked whenever `set_input` is called."""

    def text(self, name: str) -> Text | None:
        """What one of the unit's `text_outputs` was at the last `read`; None before."""
        return None

    def take_back(self, time: float, texts: Mapping[str, Text | None]) -> None:  # noqa: B027  most units have none
        """`text_outputs` are again what they were at `time`: what was read later belongs to steps that do not count."""

    def texts_at(self, times: Array) -> list[list[Text]]:
        """What `text_outputs` were at increasing `times`, a list each; nobody will ask for earlier times again."""
        return []

    def join_events(self, clocks: Collection[str]) -> EventMode | None:
        """Leave events to the master, in a system whose units meet at them; None: the unit has none that others see.

        `clocks` are its input clocks that are connected.
        """
        return None

    def finish_initialisation(self) -> None:  # noqa: B027  most units have no such mode
        """The inputs at the start are settled: leave initialisation. `step` does so itself if nobody has before."""

    def close(self) -> None:  # noqa: B027  most units hold nothing that needs releasing
        """Release what the instance holds."""

    def native(self, powers: int) -> Any:
        """The instance's own compiled functions, which the kernel calls without Python; None where it cannot.

        `powers`: coefficients of the input polynomials. FMUs give a `NativeFmu` (`cosimo.units.fmi.instance`).
        """
        return None

    def explain(self, doing: str, status: int, time: float, duration: float) -> None:  # noqa: B027  most have none
        """Raise the error for a bad status that `native` functions returned when told to "set", "step", "get", …"""


class EventMode(ABC):
    """A live unit at an event, at which time stands still; what FMI 3.0 calls event mode (section 4.2.1).

    The master steps the unit to its `next` event at the latest, or to where a step raised `EventInside`. There it
    calls `enter`, then `activate`, `ticked`, `give` until nothing is new, and `update`; all this again until no unit
    wants more; then `leave`.
    """

    met = False  # whether the last step ended with an event
    entered = False  # whether it is in event mode, as after initialisation
    returns_early = False  # whether its steps may end at events that were not known before

    @abstractmethod
    def next(self) -> float:
        """When the next event is that is known now."""

    @abstractmethod
    def changes(self, inputs: Array) -> bool:
        """Whether these inputs are an event: discrete ones are others than before."""

    @abstractmethod
    def enter(self, time: float) -> None:
        """Enter event mode; clocks that are due tick."""

    @abstractmethod
    def activate(self, clocks: Collection[str]) -> None:
        """Input clocks tick."""

    @abstractmethod
    def ticked(self) -> Sequence[str]:
        """The output clocks that tick now."""

    @abstractmethod
    def give(self, inputs: Array) -> bool:
        """Take inputs, and texts from where they come; whether one is another than before."""

    @abstractmethod
    def update(self, time: float) -> bool:
        """Take over new discrete states; whether it wants to do so again."""

    @abstractmethod
    def leave(self, time: float) -> None:
        """Time goes on."""


class Unit(ABC):
    """Describes a unit; holds no live state. This is all that is required of a unit. To add a kind, provide:

    1. `inputs` and `outputs`: the names, in the order in which values are exchanged;
    2. `start`: values of inputs that may stay unconnected (an input in neither is refused);
    3. `input_degree`: the highest power of θ in the input that the unit takes itself; the master cuts off higher ones
       at the start of each step, and the algebra models this;
    4. `feedthrough()`: which output has direct feedthrough from which input, (p, m); say True when in doubt;
    5. `instantiate(start_time)`: a fresh `Instance` in its initial state;
    6. for linear units, and only for these: `linear()`, `discrete(duration)` and `initial_state`;
    7. `parts()`: where more than the names decides what the unit computes, for checkpoints and memories of results.

    Everything else has a default that suits a unit without limits, types and physical units.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    start: Mapping[str, float]
    text_inputs: Mapping[str, str] = {}
    """Inputs and outputs that are no numbers, with their type: they are exchanged as they are, and not analysed."""
    text_outputs: Mapping[str, str] = {}
    clock_inputs: tuple[str, ...] = ()
    """Clocks that others can make tick, and those that can make others tick; they have no values."""
    clock_outputs: tuple[str, ...] = ()
    input_degree: int = 0
    can_restore: bool = True
    variable_step: bool = True
    """Steps may have different lengths."""
    single_instance: bool = False
    """Only one live instance per process."""
    isolated: bool = False
    """Its instances live in processes of their own."""
    host: str = ""
    """The other machine on which its instances live."""
    notice: str = ""
    """What the user of a run should know of it from the start."""
    provides_directional_derivatives: bool = False
    """Its instances give derivatives of outputs with respect to inputs and states (`directional_derivative`)."""
    suggested_step: float | None = None
    """The communication step size that whoever made the unit proposes, in seconds."""
    name: str = ""
    """What it is called in messages where no system gives it a name."""
    path: Path | None = None
    """The file that it comes from."""
    label: str = ""
    """The file as messages call it."""
    overlooked: tuple[str, ...] = ()
    """How the file violates its standard, where validation is switched off."""

    @property
    def discrete_inputs(self) -> tuple[str, ...]:
        """Inputs that are not continuous (whole numbers, switches): they are held, never extrapolated."""
        return ()

    @property
    def discrete_outputs(self) -> tuple[str, ...]:
        """Outputs that are not continuous: they have no derivatives and no errors that a shorter step reduces."""
        return ()

    @property
    def observable(self) -> tuple[str, ...]:
        """Variables, beside inputs and outputs, that can be recorded (`with_outputs`)."""
        return ()

    def with_outputs(self, names: Sequence[str]) -> Unit:
        """The same unit with these `observable` variables after its outputs."""
        raise ConfigurationError(f"unit '{self.name}' has no variables besides its inputs and outputs; record those.")

    def measure(self, variable: str) -> UnitOfMeasure | None:
        """The physical unit of an input or output; None when not known."""
        return None

    def parts(self) -> tuple[Any, ...]:
        """What decides, beside names, start values and linear models, what the unit computes.

        A path stands for the content of the file, a class for its code, a mapping for parameters; all else is plain.
        """
        return ()

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names, beside the inputs, that `with_values` takes."""
        return ()

    def with_values(self, values: Mapping[str, Any]) -> Unit:
        """The same unit with other values of parameters, and of inputs at the start."""
        changed = copy.copy(self)
        changed.start = {**self.start, **{name: float(value) for name, value in values.items()}}
        return changed

    def refusal(self, variable: str) -> str | None:
        """Why a variable that the unit has cannot be connected; None for all others."""
        return None

    @abstractmethod
    def instantiate(self, start_time: float = 0.0) -> Instance:
        """A new live instance for a run that begins at `start_time`."""

    @property
    def start_inputs(self) -> Array:
        """The start values of all inputs (m,); 0 where none is given."""
        return np.array([self.start.get(name, 0.0) for name in self.inputs], dtype=float)

    def started(self, time: float, duration: float) -> Instance:
        """A fresh instance by itself, its inputs at their start values, ready to step; the caller closes it."""
        instance = self.instantiate(time)
        try:
            instance.set_input(self.start_inputs[None, :], duration)
            instance.read()
            instance.finish_initialisation()
        except BaseException:
            instance.close()
            raise
        return instance

    @abstractmethod
    def feedthrough(self) -> BoolArray:
        """Which output (row) has direct feedthrough from which input (column)."""

    def derivatives(self) -> Mapping[int, int]:
        """Outputs whose time derivative is an output too: its place, by the place of the first; {} when not known."""
        return {}

    def conversion(self, output: int, taker: Unit, variable: int) -> Conversion:
        """Gain and offset from this unit's output to the input of `taker`; refuses types and measures that do not fit.

        Units that know neither the types nor the measures of their variables leave values as they are.
        """
        return Conversion()

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """The declared minimum and maximum of variables; {} when nothing is declared."""
        return {}

    def linear(self) -> LinearModel | None:
        """The continuous model, or None when the unit is not known to be linear."""
        return None

    def discrete(self, duration: float | Array) -> DiscreteModel:
        """The map of one step of `duration`, the unit's integrator included; an array of durations gives a stack."""
        raise TypeError(f"{type(self).__name__} is not linear")

    @property
    def initial_state(self) -> Array:
        """The state of a linear unit at the start."""
        return np.zeros(0)
