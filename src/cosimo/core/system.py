"""A coupled system: named units, connections between them, external inputs. It describes; it loads and runs nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, frozen, require_finite
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.formatting import counted
from cosimo.core.unit import Unit

# ---- external inputs: signals that no unit of the system produces, known for all times -------------------------------

Source = Callable[[float], float]


@dataclass(frozen=True)
class Constant:
    """The same value at all times."""

    value: float

    def __post_init__(self) -> None:
        require_finite("a constant input", np.asarray(float(self.value)))

    def __call__(self, time: float) -> float:
        return self.value


@checked
class Table:
    """Values over time, linear in between or held from the left; constant outside the table.

    Two rows at the same time are a jump: the first applies before it, the second from this time on.

    >>> Table([0.0, 1.0], [10.0, 20.0])(0.25)
    12.5
    >>> step = Table([0.0, 1.0, 1.0, 2.0], [0.0, 0.0, 5.0, 5.0])
    >>> step(0.999), step(1.0)
    (0.0, 5.0)
    """

    def __init__(
        self, times: npt.ArrayLike, values: npt.ArrayLike, *, interpolation: Literal["linear", "hold"] = "linear"
    ) -> None:
        try:
            self.times: Array = frozen(times)
            self.values: Array = frozen(values)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"a table holds numbers only: {error}.") from None
        self.interpolation = interpolation
        if self.times.ndim != 1 or self.times.shape != self.values.shape or not self.times.size:
            raise ConfigurationError(
                f"a table needs as many times as values, at least one; got {self.times.shape} and {self.values.shape}."
            )
        require_finite("the times of a table", self.times)
        require_finite("the values of a table", self.values)
        if (np.diff(self.times) < 0).any():
            raise ConfigurationError("the times of a table must not decrease; sort the rows by time.")
        if (self.times[2:] == self.times[:-2]).any():
            time = self.times[2:][self.times[2:] == self.times[:-2]][0]
            raise ConfigurationError(
                f"a table has more than two rows at time {time:g}; keep only the values before and after the jump."
            )

    @property
    def jumps(self) -> Array:
        """The times at which the value jumps."""
        later = self.times[1:]
        found: Array = later if self.interpolation == "hold" else later[np.diff(self.times) == 0]
        return found

    def __call__(self, time: float) -> float:
        if self.interpolation == "linear":  # takes the last of two rows of one time
            return float(np.interp(time, self.times, self.values))
        return float(self.values[max(int(np.searchsorted(self.times, time, side="right")) - 1, 0)])


def as_source(target: str, value: float | Source) -> Source:
    """A number becomes a constant; a function or a table is taken as it is; errors name the input `target`."""
    if callable(value):
        return value
    try:
        return Constant(float(value))
    except (TypeError, ValueError, ConfigurationError):
        raise ConfigurationError(
            f"the external input {target} is {value!r}; give a finite number, a function of time, or a Table."
        ) from None


# ---- units and connections -------------------------------------------------------------------------------------------


@checked
@dataclass(frozen=True)
class Connection:
    """Output → input: target = gain · source + offset, both written `"unit.variable"`.

    Where both ends declare a physical unit, values are converted first (`convert=False`: taken unchanged).
    """

    source: str
    target: str
    gain: float = 1.0
    offset: float = 0.0
    convert: bool = True

    def __post_init__(self) -> None:
        for name, value in (("gain", self.gain), ("offset", self.offset)):
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ConfigurationError(f"connection {self} has the {name} {value}; give a finite number.")

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def identity(self) -> bool:
        """Whether values pass unchanged."""
        return self.gain == 1 and self.offset == 0


@dataclass(frozen=True)
class Variable:
    """One variable of one unit: the unit's name and the place among its inputs or outputs."""

    unit: str
    index: int


@dataclass(frozen=True)
class Link:
    """A connection whose two ends have been found, its gain and offset with the conversion of units of measure.

    `number` is its place in `System.links`.
    """

    number: int
    connection: Connection
    source: Variable
    target: Variable


class TextLink(NamedTuple):
    """A connection of values that are no numbers, or of clocks: unit and variable at both ends."""

    source: tuple[str, str]
    target: tuple[str, str]


@dataclass(frozen=True)
class Inlet:
    """What one input is fed by: a link, an external source, or (neither) its start value."""

    target: str
    link: Link | None = None
    source: Source | None = None
    start: float = 0.0


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern such as `"truck.*"` means a signal; a whole name means itself: in "a.x[1]" [1] is an index.

    >>> matches("a.x[2,1]", "a.x[*]"), matches("a.x[2,1]", "a.x[?,1]"), matches("unit2.x", "unit[12].x")
    (True, True, True)
    """
    if name == pattern or fnmatchcase(name, pattern):
        return True
    return "[" in pattern and fnmatchcase(name, _INDEX.sub(r"[[]\1]", pattern))


_INDEX = re.compile(r"\[([\d,*?]*)\]")
"""What may be meant as an index of an array."""


def components(edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The strongly connected components of a directed graph, by their smallest numbers (Tarjan 1972).

    >>> components([(0, 1), (1, 2), (2, 1), (3, 3)])
    [[0], [1, 2], [3]]
    """
    following: dict[int, list[int]] = {}
    for source, target in edges:
        following.setdefault(source, []).append(target)
        following.setdefault(target, [])
    met: dict[int, int] = {}
    low: dict[int, int] = {}
    waiting: list[int] = []
    done: set[int] = set()
    found = []
    for root in following:
        path = [] if root in met else [(root, iter(following[root]))]
        while path:
            node, ahead = path[-1]
            if node not in met:
                met[node] = low[node] = len(met)
                waiting.append(node)
            for other in ahead:
                if other not in met:
                    path.append((other, iter(following[other])))
                    break
                if other not in done:
                    low[node] = min(low[node], low[other])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == met[node]:
                    group = [waiting.pop()]
                    while group[-1] != node:
                        group.append(waiting.pop())
                    found.append(sorted(group))
                    done.update(group)
    return sorted(found)


@checked
class System:
    """Named units, their connections and external inputs, checked on construction.

    `connections` are `Connection` objects or (source, target) pairs; `inputs` maps `"unit.variable"` to a number, a
    function of time, or a `Table`. Every input must be connected, external, or have a start value in its unit.
    """

    def __init__(
        self,
        units: Mapping[str, Unit],
        connections: Iterable[Connection | tuple[str, str]] = (),
        *,
        inputs: Mapping[str, float | Source] | None = None,
        name: str = "system",
    ) -> None:
        if not units:
            raise ConfigurationError("a system needs at least one unit.")
        self.name = name
        self.units: dict[str, Unit] = dict(units)
        self._places: dict[tuple[str, str], tuple[Sequence[str], dict[str, int]]] = {}
        self.connections = tuple(c if isinstance(c, Connection) else Connection(*c) for c in connections)
        self.inputs: dict[str, Source] = {target: as_source(target, value) for target, value in (inputs or {}).items()}
        sorts = [self._sort(connection) for connection in self.connections]
        numbers = [c for c, sort in zip(self.connections, sorts, strict=True) if sort == "number"]
        self.links = tuple(self.link(number, c) for number, c in enumerate(numbers))
        self.text_links: tuple[TextLink, ...] = ()
        self.clock_links: tuple[TextLink, ...] = ()
        for connection, sort in zip(self.connections, sorts, strict=True):
            if sort == "text":
                self.text_links += (self.text_link(connection),)
            elif sort == "clock":
                self.clock_links += (self.clock_link(connection),)
        self.inlets: dict[str, tuple[Inlet, ...]] = self._feed()

    def __repr__(self) -> str:
        units, connections = counted(len(self.units), "unit"), counted(len(self.connections), "connection")
        return f"System({self.name!r}: {units}, {connections})"

    def _repr_html_(self) -> str:
        """The units and their connections as a drawing, for notebooks."""
        # Not an import: who draws knows systems, not the other way round.
        drawn: str = import_module("cosimo.reporting.report.diagram").standalone(self)
        return drawn

    @property
    def names(self) -> tuple[str, ...]:
        """The units' names, in order."""
        return tuple(self.units)

    @property
    def outputs(self) -> tuple[str, ...]:
        """All outputs as `"unit.variable"`, unit after unit."""
        return tuple(f"{name}.{variable}" for name, unit in self.units.items() for variable in unit.outputs)

    @property
    def input_names(self) -> tuple[str, ...]:
        """All inputs as `"unit.variable"`, unit after unit."""
        return tuple(f"{name}.{variable}" for name, unit in self.units.items() for variable in unit.inputs)

    @property
    def observable(self) -> tuple[str, ...]:
        """What else can be recorded (`observing`): local variables and parameters as `"unit.variable"`."""
        return tuple(f"{name}.{variable}" for name, unit in self.units.items() for variable in unit.observable)

    def output(self, name: str) -> Variable:
        """The output written `"unit.variable"`."""
        return self._find(name, "output")

    def input(self, name: str) -> Variable:
        """The input written `"unit.variable"`."""
        return self._find(name, "input")

    def incoming(self, unit: str) -> tuple[Link, ...]:
        """The links that end at the unit, in the order of its inputs."""
        return tuple(inlet.link for inlet in self.inlets[unit] if inlet.link is not None)

    def external(self, unit: str) -> dict[int, Source]:
        """The external sources of the unit, by input index."""
        return {i: inlet.source for i, inlet in enumerate(self.inlets[unit]) if inlet.source is not None}

    def owner(self, name: str) -> tuple[str, str] | None:
        """The unit and its variable that `"unit.variable"` means, or the variable alone in a system of one unit."""
        unit = name
        while "." in unit:  # the longest name of a unit that fits
            unit = unit.rpartition(".")[0]
            if unit in self.units:
                return unit, name[len(unit) + 1 :]
        return (self.names[0], name) if len(self.units) == 1 else None

    def parameter(self, name: str) -> tuple[str, str]:
        """The unit and its parameter, start value or open input that `name` means (`owner`); refuses all else."""
        if (place := self.owner(name)) is None:
            raise ConfigurationError(
                f"'{name}' is no parameter of '{self.name}'; write UNIT.PARAMETER, with one of the units "
                f"{', '.join(self.units)}."
            )
        unit, variable = self.units[place[0]], place[1]
        if variable in unit.inputs:
            link = self.inlets[place[0]][unit.inputs.index(variable)].link
            if link is not None:
                raise ConfigurationError(f"{name} is fed by {link.connection.source}; change a value of that unit.")
        elif any(link.target == place for link in self.text_links):
            raise ConfigurationError(f"{name} is connected; change a value of the unit that feeds it.")
        elif variable not in unit.parameter_names:
            if variable in unit.outputs or variable in unit.observable:
                raise ConfigurationError(
                    f"{name} is computed by its unit and cannot be given a value; give one to a parameter or an input."
                )
            known = {*unit.parameter_names, *unit.inputs}
            raise UnknownNameError(f"parameter or input of unit '{place[0]}'", variable, known)
        return place

    def with_values(self, values: Mapping[str, Any], inputs: Mapping[str, Source] | None = None) -> System:
        """The same system with other `values` of parameters, start values and open inputs, by name (`parameter`).

        `inputs` are external sources of open inputs, those to which no output is connected.
        """
        of_units: dict[str, dict[str, Any]] = {}
        fed, sources = dict(inputs or {}), dict(self.inputs)
        for name, value in values.items():
            owner, variable = self.parameter(name)
            target = f"{owner}.{variable}"
            if target in fed:
                raise ConfigurationError(f"{target} has a value and an input over time at once; remove one of the two.")
            sources.pop(target, None)  # the start value takes its place
            of_units.setdefault(owner, {})[variable] = value
        changed = {name: self.units[name].with_values(given) for name, given in of_units.items()}
        return System({**self.units, **changed}, self.connections, inputs={**sources, **fed}, name=self.name)

    def observing(self, patterns: Iterable[str]) -> System:
        """The same system with further variables of its units as outputs, local ones and parameters, to be recorded.

        A pattern such as `"truck.*"` means outputs and inputs, and further variables only where it matches none.
        """
        known = (*self.outputs, *self.input_names)
        wanted = [pattern for pattern in patterns if not any(matches(name, pattern) for name in known)]
        changed = dict(self.units)
        for unit_name, unit in self.units.items() if wanted else ():
            names = (
                name for name in unit.observable if any(matches(f"{unit_name}.{name}", pattern) for pattern in wanted)
            )
            if found := tuple(names):
                changed[unit_name] = unit.with_outputs(found)
        return System(changed, self.connections, inputs=self.inputs, name=self.name) if wanted else self

    def loops(self) -> list[tuple[str, ...]]:
        """The algebraic loops: groups of outputs with direct feedthrough to each other, as declared by the units."""
        number = {name: i for i, name in enumerate(self.outputs)}
        through = {name: self.units[name].feedthrough() for name in {link.target.unit for link in self.links}}
        edges = [
            (number[link.connection.source], number[f"{link.target.unit}.{unit.outputs[row]}"])
            for link in self.links
            for unit in (self.units[link.target.unit],)
            for row in np.flatnonzero(through[link.target.unit][:, link.target.index])
        ]
        names, own = list(number), {source for source, target in edges if source == target}
        groups = [group for group in components(edges) if len(group) > 1 or group[0] in own]
        return [tuple(names[i] for i in group) for group in groups]

    def link(self, number: int, connection: Connection) -> Link:
        """The ends of a connection, and gain and offset with the conversion; refuses ends that do not fit together."""
        source, target = self.output(connection.source), self.input(connection.target)
        if connection.convert:
            giver, taker = self.units[source.unit], self.units[target.unit]
            try:
                gain, offset = giver.conversion(source.index, taker, target.index)
            except ConfigurationError as error:
                raise ConfigurationError(f"connection {connection}: {error}") from None
            if (gain, offset) != (1.0, 0.0):
                offset = connection.gain * offset + connection.offset
                connection = replace(connection, gain=connection.gain * gain, offset=offset, convert=False)
        return Link(number, connection, source, target)

    def fitting(self, connection: Connection) -> Connection:
        """The connection, with the conversion of its values; refuses ends that do not fit together."""
        if (sort := self._sort(connection)) != "number":
            (self.text_link if sort == "text" else self.clock_link)(connection)
            return connection
        return self.link(0, connection).connection

    def text_link(self, connection: Connection) -> TextLink:
        """The ends of a connection of values that are no numbers; refuses ends that do not fit together."""
        ends, types = [], []
        for name, kind in ((connection.source, "output"), (connection.target, "input")):
            unit, variable = self.owner(name) or ("", "")
            found = getattr(self.units[unit], f"text_{kind}s") if unit else {}
            if variable not in found:
                self._find(name, kind)
                raise ConfigurationError(
                    f"connection {connection}: '{name}' is a number, and the other end is not; a text or a binary "
                    "value is connected to its like only."
                )
            ends.append((unit, variable))
            types.append(found[variable])
        if types[0] != types[1]:
            raise ConfigurationError(
                f"connection {connection}: the types {types[0]} and {types[1]} differ; connect variables of one type."
            )
        if not connection.identity:
            raise ConfigurationError(f"connection {connection} has a gain or an offset, and no numbers; remove them.")
        link = TextLink(*ends)
        if any(other.target == link.target for other in self.text_links):
            raise ConfigurationError(f"input {connection.target} is fed twice; remove one of the connections.")
        return link

    def clock_link(self, connection: Connection) -> TextLink:
        """The ends of a connection of clocks; refuses what is no clock."""
        ends = []
        for name, kind in ((connection.source, "output"), (connection.target, "input")):
            unit, variable = self.owner(name) or ("", "")
            if variable not in (getattr(self.units[unit], f"clock_{kind}s") if unit else ()):
                if variable not in (getattr(self.units[unit], f"text_{kind}s") if unit else ()):
                    self._find(name, kind)
                raise ConfigurationError(
                    f"connection {connection}: '{name}' is no clock, and the other end is; connect clocks to clocks."
                )
            ends.append((unit, variable))
        if not connection.identity:
            raise ConfigurationError(f"connection {connection} has a gain or an offset, and no numbers; remove them.")
        link = TextLink(*ends)
        if any(other.target == link.target for other in self.clock_links):
            raise ConfigurationError(f"input {connection.target} is fed twice; remove one of the connections.")
        return link

    def _sort(self, connection: Connection) -> Literal["number", "text", "clock"]:
        """What is exchanged: whatever one of the ends is, unless it is a number."""
        names = ((connection.source, "outputs"), (connection.target, "inputs"))
        ends = [
            (self.units[place[0]], place[1], kind) for name, kind in names if (place := self.owner(name)) is not None
        ]
        if any(variable in getattr(unit, f"clock_{kind}") for unit, variable, kind in ends):
            return "clock"
        return "text" if any(variable in getattr(unit, f"text_{kind}") for unit, variable, kind in ends) else "number"

    def _find(self, name: str, kind: str) -> Variable:
        # Unit and variable names may both contain dots: the longest unit name that fits decides.
        dots = (place for place in range(len(name) - 1, -1, -1) if name[place] == ".")
        unit = next((name[:place] for place in dots if name[:place] in self.units), None)
        if unit is None and name in self.units:
            raise ConfigurationError(f"'{name}' is a unit; write the {kind} as '{name}.variable'.")
        if unit is None:
            raise UnknownNameError("unit", name.split(".")[0], self.units)
        variables = self.units[unit].inputs if kind == "input" else self.units[unit].outputs
        variable = name[len(unit) + 1 :]
        # Thousands of connections may end at one unit: its names are counted through once, and again if they change.
        counted, places = self._places.get((unit, kind), ((), {}))
        if counted is not variables:
            places = {variable: place for place, variable in reversed([*enumerate(variables)])}
            self._places[unit, kind] = (variables, places)
        if variable not in places:
            if reason := self.units[unit].refusal(variable):
                raise ConfigurationError(f"{name} {reason}")
            raise UnknownNameError(f"{kind} of unit '{unit}'", variable, variables)
        return Variable(unit, places[variable])

    def _feed(self) -> dict[str, tuple[Inlet, ...]]:
        fed: dict[Variable, Inlet] = {}
        for link in self.links:
            if link.target in fed:
                first = fed[link.target].link
                assert first is not None
                raise ConfigurationError(
                    f"input {link.connection.target} is fed twice: by {first.connection.source} and by "
                    f"{link.connection.source}; add them in a separate unit."
                )
            fed[link.target] = Inlet(link.connection.target, link=link)
        for target, source in self.inputs.items():
            variable = self.input(target)
            if variable in fed:
                raise ConfigurationError(
                    f"input {target} is both connected and an external input; remove one of the two."
                )
            fed[variable] = Inlet(target, source=source)
        inlets: dict[str, tuple[Inlet, ...]] = {}
        for name, unit in self.units.items():
            row = []
            for index, variable_name in enumerate(unit.inputs):
                inlet = fed.get(Variable(name, index))
                if inlet is None and variable_name not in unit.start:
                    raise ConfigurationError(
                        f"input {name}.{variable_name} is not connected and has no start value; connect it, give an "
                        f"external input, or a start value in the unit."
                    )
                if inlet is None and not math.isfinite(unit.start[variable_name]):
                    raise ConfigurationError(
                        f"the start value of {name}.{variable_name} is {unit.start[variable_name]}; give a finite one."
                    )
                row.append(inlet or Inlet(f"{name}.{variable_name}", start=float(unit.start[variable_name])))
            inlets[name] = tuple(row)
        return inlets
