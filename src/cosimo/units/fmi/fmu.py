"""FMUs as units: what the description inside the archive says. No binary is loaded and nothing is extracted here."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.errors import ConfigurationError, UnknownNameError, UnsafeInputError
from cosimo.core.formatting import counted
from cosimo.core.guarding import unwatched
from cosimo.core.unit import Conversion, DiscreteModel, LinearModel, Unit, UnitOfMeasure
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi.archive import (
    COMPILE,
    Lease,
    find_library,
    has_sources,
    lease,
    libraries_by_platform,
    platform_folders,
    platforms,
    read_description,
)
from cosimo.units.fmi.isolation import Isolate, Isolation, as_isolation
from cosimo.units.fmi.model_exchange import CO_SIMULATION, CVODE, KINDS, MODEL_EXCHANGE, Adapter, Solver, adapter_for
from cosimo.units.fmi.variables import (
    SETTABLE,
    STRUCTURAL,
    TEXTS,
    Value,
    VariableInfo,
    check_connection,
    find_derivatives,
    left_out,
    parse_value,
    read_clocks,
    read_variables,
    resize,
)
from cosimo.units.linear import Exact, ForwardEuler, Integrator, RungeKutta4, discretise

if TYPE_CHECKING:
    from cosimo.units.fmi.instance import FmuInstance, Reserve


@dataclass(frozen=True)
class Experiment:
    """What an FMU is told about the run: where it starts, and (only if given) where it stops and how accurate to be."""

    start_time: float = 0.0
    stop_time: float | None = None
    tolerance: float | None = None


@checked
@dataclass(frozen=True)
class FmuOptions:
    """How an FMU is read and run.

    `exact_difference` passes t_{k+1} − t_k instead of h as the step, for FMUs that add steps up and compare the sum
    with the next communication point. `logging` asks the FMU for all its messages, not only errors. `validate=False`
    takes descriptions that break the standard; None validates unless the environment says COSIMO_VALIDATE=off. `limits`
    bound what the archive may be; None takes the usual ones, or those of the environment. `kind` is "co-simulation" or
    "model-exchange"; None takes what the FMU offers, co-simulation if it offers both. `solver` integrates it in model
    exchange. `compile` compiles an FMU that has sources and no library for this platform: "sandbox" inside the sandbox,
    "trusted" also where there is none.
    """

    exact_difference: bool = False
    logging: bool = False
    validate: bool | None = None
    limits: ArchiveLimits | None = None
    kind: str | None = None
    solver: Solver | None = None
    compile: str | None = None

    def __post_init__(self) -> None:
        if self.compile is not None and self.compile not in COMPILE:
            raise UnknownNameError("way to compile", self.compile, COMPILE)
        if self.kind is not None and self.kind not in KINDS:
            raise UnknownNameError("kind of FMU", self.kind, KINDS)


@dataclass(frozen=True)
class Capabilities:
    """What the FMU declares to be able to do."""

    restore: bool
    serialise: bool
    directional_derivatives: bool
    interpolate_inputs: bool
    variable_step: bool
    single_instance: bool
    event_mode: bool
    early_return: bool
    intermediate_update: bool


_INTEGRATORS: Mapping[str, type[Integrator]] = {CVODE: Exact, "euler": ForwardEuler, "rk4": RungeKutta4}
"""What the solvers make of linear equations."""


@checked
class Fmu(Unit):
    """An FMU of FMI 1.0, 2.0 or 3.0, for co-simulation or with a `solver` of ours for model exchange.

    `parameters` and `start` give values by variable name: a number, a Boolean or a string; for an array the name
    without brackets and a sequence, or single elements as `v[1]`, `v[1,2]`. `name` is the instance's name in
    messages. `isolate` runs it in a separate process (True, "all", or an `Isolation` with limits or a sandbox), in
    the process of the master (False, "none"), or there only after a first trial in a separate one ("auto", see
    `isolation.py`); an FMU that allows one instance per process is always isolated, where the platform permits.
    """

    equations: LinearModel | None = None
    """Of a model-exchange FMU that is known to be linear (`analysis/equations.py`)."""
    state_at_start: Array = np.zeros(0)

    reserve: Reserve | None = None
    """Where instances come from and go back to, in studies of many runs (`with_values`)."""

    def __init__(
        self,
        path: str | Path,
        *,
        parameters: Mapping[str, Any] | None = None,
        start: Mapping[str, Any] | None = None,
        name: str | None = None,
        experiment: Experiment | None = None,
        options: FmuOptions | None = None,
        isolate: Isolate = "auto",
    ) -> None:
        self.path: Path = Path(path)
        self.isolation = as_isolation(isolate)
        self.trial: Isolation | None = Isolation() if isolate == "auto" else None
        """How it is kept apart if a first trial, which is still to be made, fails; None: there is none to make."""
        self.label = str(self.path)
        self.options = options or FmuOptions()
        self.experiment = experiment or Experiment()
        self.name = name or self.path.stem
        description, root, self.overlooked = read_description(
            self.path, validate=self.options.validate, limits=self.options.limits
        )
        self.kind, self.offered = self._kind(description)
        declared = description.coSimulation if self.solver is None else description.modelExchange
        found = root.find("CoSimulation" if self.solver is None else "ModelExchange")
        element = root if found is None else found  # FMI 1.0 has no such element
        self.fmi_version: str = description.fmiVersion
        # What the standard demands may be missing where the description is not validated.
        self.model_name: str = description.modelName or self.path.stem
        self.description: str = description.description or ""
        self.generation_tool: str | None = description.generationTool
        self.model_identifier: str = declared.modelIdentifier or ""
        self.token: str = description.guid or ""
        self.capabilities = _capabilities(declared, element)
        self.event_indicators = int(description.numberOfEventIndicators or 0)
        self.needs_completed_steps = _flag(element, "needsCompletedIntegratorStep") or (
            self.fmi_version == "2.0" and not _flag(element, "completedIntegratorStepNotNeeded")
        )
        self.log_categories: tuple[str, ...] = tuple(one.name for one in description.logCategories if one.name)
        self.single_instance = self.capabilities.single_instance
        self.provides_directional_derivatives = self.capabilities.directional_derivatives
        self.variable_step, self.can_restore = self.capabilities.variable_step, self.capabilities.restore
        self.default_experiment = _default_experiment(self.path, description)
        self.suggested_step = self.default_experiment.get("stepSize")
        self._describe(description, root, {**(parameters or {}), **(start or {})})
        self.input_degree = 2 if self.capabilities.interpolate_inputs or self.followed_inputs.any() else 0
        self.given = self._accept(parameters or {}, ("parameter", STRUCTURAL)) | self._accept(start or {}, ())
        self.start = self._start_values()

    def _describe(self, description: Any, root: Any, values: Mapping[str, Any]) -> None:
        """The variables, and what depends on what; arrays are as long as structural parameters in `values` say."""
        self.variables: Mapping[str, VariableInfo] = self._read_variables(description, root, values)
        self.left_out = left_out(description)
        self._structure = {
            unknown.variable.name: frozenset(known.name for known in unknown.dependencies)
            for unknown in description.outputs
            if unknown.dependencies is not None
        }
        # A state and its derivative, by name; a derivative of nothing has None.
        self._state_names = [
            (None if unknown.variable.derivative is None else unknown.variable.derivative.name, unknown.variable.name)
            for unknown in description.derivatives
        ]
        self._sort_variables()

    def __repr__(self) -> str:
        return (
            f"Fmu({str(self.path)!r}, FMI {self.fmi_version}: {counted(len(self.inputs), 'input')}, "
            f"{counted(len(self.outputs), 'output')})"
        )

    # ---- the contract --------------------------------------------------------------------------------------------

    def instantiate(self, start_time: float | None = None) -> FmuInstance:
        """Extract, load and bring into initialisation mode, for a run that begins at `start_time` (the unit's own)."""
        with unwatched():  # the first time, this takes longer than many a unit may
            from cosimo.units.fmi.instance import FmuInstance

        experiment = self.experiment if start_time is None else replace(self.experiment, start_time=start_time)
        if self.reserve is not None:
            return self.reserve.instance(self, experiment, FmuInstance)
        return FmuInstance(self, experiment)

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        able = [
            n for n, info in self.variables.items() if info.causality == "structuralParameter" or not _computed(info)
        ]
        return (*able, *dict.fromkeys(self.owners[name] for name in able))

    def with_values(self, values: Mapping[str, Any], *, reserve: Reserve | None = None) -> Fmu:
        """The same FMU with other values of parameters or start values, its instances taken from `reserve`."""
        changed = copy.copy(self)
        changed.reserve = reserve
        if values:
            sizes = {n: v for n, v in {**self.given, **values}.items() if self._is_structural(n)}
            if any(sizes[name] != self.given.get(name) for name in sizes):
                limits, validate = self.options.limits, self.options.validate
                description, root, _ = read_description(self.path, validate=validate, limits=limits)
                changed._describe(description, root, sizes)
            kept = {name: value for name, value in self.given.items() if name in changed.variables}
            changed.given = kept | changed._accept(values, ())
            changed.start = changed._start_values()
        return changed

    def _is_structural(self, name: str) -> bool:
        return name in self.variables and self.variables[name].causality == STRUCTURAL

    @property
    def structure(self) -> tuple[tuple[VariableInfo, Value], ...]:
        """The structural parameters that were given, which decide how long arrays are."""
        return tuple((self.variables[n], value) for n, value in self.given.items() if self._is_structural(n))

    def parts(self) -> tuple[Any, ...]:
        values = [[n, v.hex() if isinstance(v, float) else repr(v)] for n, v in sorted(self.given.items())]
        solver = () if self.solver is None else (repr(self.solver),)
        return self.path, values, repr(self.experiment), *solver

    @property
    def isolated(self) -> bool:  # type: ignore[override]
        """As `isolation` says."""
        return self.isolation is not None

    @property
    def notice(self) -> str:  # type: ignore[override]
        """Why it was isolated without being requested."""
        return self.isolation.reason if self.isolation is not None else ""

    @cached_property
    def discrete_inputs(self) -> tuple[str, ...]:
        return tuple(info.name for info in self.input_infos if not info.continuous)

    @property
    def followed_inputs(self) -> BoolArray:
        """Which inputs (m,) follow a polynomial within a step: by derivatives, by our solver, or as the FMU asks."""
        infos, able = self.input_infos, self.capabilities
        asked = [able.interpolate_inputs or (able.intermediate_update and info.intermediate) for info in infos]
        followed = [info.continuous and info.type == "Float64" for info in infos]
        return np.array([one and other for one, other in zip(asked, followed, strict=True)], dtype=bool)

    @property
    def discrete_outputs(self) -> tuple[str, ...]:
        # What is only recorded has no say in the length of steps either.
        infos = self.output_infos
        return tuple(info.name for info in infos if not info.continuous or info.causality != "output")

    @property
    def observable(self) -> tuple[str, ...]:
        """All other numbers: local variables, parameters, further names of one variable."""
        known = {*self.inputs, *self.outputs}
        infos = (info for info in self.variables.values() if info.numeric and info.causality != "independent")
        return tuple(info.name for info in infos if info.name not in known)

    def with_outputs(self, names: Sequence[str]) -> Fmu:
        # FMI reads arrays whole: of one element that is asked for, all come along.
        owners = dict.fromkeys(self.owners[name] for name in names)
        added = [self.variables[element] for owner in owners for element in self.elements_of(owner)]
        changed = copy.copy(self)
        changed.output_infos = (*self.output_infos, *added)
        changed.outputs = tuple(info.name for info in changed.output_infos)
        return changed

    def measure(self, variable: str) -> UnitOfMeasure | None:
        return self.variables[variable].unit

    def conversion(self, output: int, taker: Unit, variable: int) -> Conversion:
        if not isinstance(taker, Fmu):
            return Conversion()
        return check_connection(self.output_infos[output], taker.input_infos[variable])

    def linear(self) -> LinearModel | None:
        return self.equations

    def discrete(self, duration: float | Array) -> DiscreteModel:
        if self.equations is None:
            return super().discrete(duration)
        return self.step_map(self.equations, duration)

    def step_map(self, model: LinearModel, duration: float | Array) -> DiscreteModel:
        """What its solver makes of linear equations in one step; CVODE their exact solution, to its tolerance."""
        assert self.solver is not None
        integrator = _INTEGRATORS[self.solver.name]()
        if self.solver.micro_step is None or np.ndim(duration) == 0:
            count = self.solver.micro_steps_in(float(np.max(duration)))
            return discretise(model, integrator, count, duration)
        maps = [self.step_map(model, one) for one in np.ravel(duration).tolist()]
        return DiscreteModel(np.array([one.A for one in maps]), np.array([one.B for one in maps]))

    @property
    def initial_state(self) -> Array:
        return self.state_at_start

    def feedthrough(self) -> BoolArray:
        """As the model structure declares; an output without declared dependencies may depend on every input."""
        if self.equations is not None:
            return np.asarray(self.equations.D != 0)
        through = np.ones((len(self.outputs), len(self.inputs)), dtype=bool)
        columns: dict[str, list[int]] = {}
        for column, name in enumerate(self.inputs):
            columns.setdefault(self.owners[name], []).append(column)
        for row, output in enumerate(self.outputs):
            known = self._structure.get(self.owners[output])
            if known is not None:
                through[row] = False
                through[row, [column for name in known for column in columns.get(name, ())]] = True
        return through

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {
            info.name: (
                -math.inf if info.minimum is None else info.minimum,
                math.inf if info.maximum is None else info.maximum,
            )
            for info in (*self.input_infos, *self.output_infos)
            if (info.minimum, info.maximum) != (None, None)
        }

    def derivatives(self) -> Mapping[int, int]:
        return find_derivatives([info for info in self.output_infos if info.causality == "output"])

    def refusal(self, variable: str) -> str | None:
        """Clocks are connected from outputs to triggered inputs, where the FMU has event mode."""
        if variable not in self.left_out or variable in (*self.clock_inputs, *self.clock_outputs):
            return None
        if self.clocks.triggered.keys() | self.clocks.outputs.keys() >= {variable}:
            return "is a clock, and these tick in the event mode of co-simulation FMUs only; leave the connection out."
        return "is a clock that ticks by itself; leave the connection out, or connect to a triggered input clock."

    @property
    def clock_inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Triggered input clocks, where there is event mode for them to tick in."""
        return tuple(self.clocks.triggered) if self.capabilities.event_mode else ()

    @property
    def clock_outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Output clocks, where there is event mode."""
        return tuple(self.clocks.outputs) if self.capabilities.event_mode else ()

    # ---- what else can be asked ----------------------------------------------------------------------------------

    @property
    def major_version(self) -> int:
        """The FMI that it is spoken to in, 2 or 3; FMUs of FMI 1.0 through an adapter (`model_exchange.py`)."""
        return max(int(self.fmi_version[0]), 2)

    @property
    def can_serialise(self) -> bool:
        """The state can be serialised."""
        return self.capabilities.serialise

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms the archive has libraries for, as its folder names."""
        return platforms(self.path, self.options.limits)

    def problems(self) -> tuple[str, ...]:
        """What would prevent the FMU from being instantiated here, one sentence each."""
        try:
            self.library()
        except ConfigurationError as error:
            return (str(error),)
        return ()

    def library(self) -> str:
        """The archive member to load: named after the model identifier, or the only one there is for this platform.

        One that is not in the archive is compiled from its sources.
        """
        limits, folders = self.options.limits, platform_folders(self.major_version)
        if self.options.compile and not {*folders} & {*self.platforms} and has_sources(self.path, limits):
            return f"binaries/{folders[0]}/{self.model_identifier}.so"
        return find_library(self.path, self.major_version, self.model_identifier, limits)

    def libraries(self) -> dict[str, str]:
        """The archive members to load on 64-bit platforms, by the names of FMI 3.0 for these.

        Of an FMU behind an adapter only that of this platform: the adapter and its solver are those of this platform.
        """
        here = {platform_folders(3)[0]: self.library()}
        if self.adapter is not None:
            return here
        return libraries_by_platform(self.path, self.model_identifier, self.options.limits) | here

    def lease(self, *, single: bool = False) -> Lease:
        """The folder that holds the extracted archive until it is released; `single`: for one instance alone."""
        return lease(self.path, limits=self.options.limits, single=single)

    @property
    def adapter(self) -> Adapter | None:
        """What stands between us and the FMU; None where it is called itself."""
        direct = self.fmi_version != "1.0" and not self.capabilities.intermediate_update and self.solver is None
        return None if direct else adapter_for(self)

    def elements_of(self, owner: str) -> list[str]:
        """The scalars of a variable."""
        return [name for name, whole in self.owners.items() if whole == owner]

    def continuous_states(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the states and of their derivatives, element by element, in the order of the model structure.

        Co-simulation FMUs need not list any; nothing is given where the list cannot be trusted. A state can be read at
        every communication point; whether it can also be set there is for the FMU to say (the standard only promises
        it until initialisation ends).
        """
        states = [element for state, _ in self._state_names for element in self.elements_of(state or "")]
        derivatives = [element for _, name in self._state_names for element in self.elements_of(name)]
        unknown = any(state is None for state, _ in self._state_names)
        if unknown or len(states) != len(derivatives) or len(set(states)) != len(states):
            return (), ()
        return tuple(states), tuple(derivatives)

    @property
    def solver(self) -> Solver | None:
        """What integrates it in model exchange; None where it has a solver of its own."""
        return None if self.kind == CO_SIMULATION else self.options.solver or Solver()

    @property
    def state_count(self) -> int:
        """How many continuous states the model structure lists."""
        return sum(len(self.elements_of(name)) for _, name in self._state_names)

    def settings(self) -> tuple[tuple[VariableInfo, Value], ...]:
        """Values to give before initialisation: those of the user, and the start values of inputs.

        An array is set as a whole: elements not given keep their start values. A binary input has its own already, and
        structural parameters are given before all others (`structure`).
        """
        arrays = {self.owners[name] for name in self.given}
        wanted = [
            info
            for name, info in self.variables.items()
            if not info.alias
            and info.causality != STRUCTURAL
            and (
                self.owners[name] in arrays
                or (info.causality == "input" and info.start is not None and info.type != "Binary")
            )
        ]
        values = []
        for info in wanted:
            value = self.given.get(info.name, info.start)
            if value is None:
                raise ConfigurationError(
                    f"FMU '{self.path}': '{info.name}' has no start value; give all elements of its array."
                )
            values.append((info, value))
        return tuple(values)

    # ---- reading -------------------------------------------------------------------------------------------------

    def _kind(self, description: Any) -> tuple[str, tuple[str, ...]]:
        """What it is used for, and what it offers."""
        found = (description.coSimulation, description.modelExchange)
        offered = tuple(kind for kind, part in zip(KINDS, found, strict=True) if part is not None)
        if not offered:
            raise ConfigurationError(
                f"FMU '{self.path}' is for scheduled execution only; export it for co-simulation or model exchange."
            )
        kind = self.options.kind or offered[0]
        if kind not in offered:
            raise ConfigurationError(f"FMU '{self.path}' is for {offered[0]} only, not for {kind}; leave the kind out.")
        if kind == CO_SIMULATION and self.options.solver is not None:
            also = ' or use it for model exchange (kind = "model-exchange")' if MODEL_EXCHANGE in offered else ""
            raise ConfigurationError(
                f"FMU '{self.path}' is used for co-simulation and has a solver of its own; leave the solver out{also}."
            )
        return kind, offered

    def _read_variables(self, description: Any, root: Any, values: Mapping[str, Any]) -> dict[str, VariableInfo]:
        # FMPy does not keep these attributes of variables.
        relative, intermediate = (
            frozenset(
                element.get("name") or element.getparent().get("name")
                for element in root.iterfind(f"ModelVariables//*[@{attribute}]")
                if _flag(element, attribute)
            )
            for attribute in ("relativeQuantity", "intermediateUpdate")
        )
        try:
            limits = self.options.limits or ArchiveLimits.from_environment()
            resize(description, values)
            self.clocks = read_clocks(root)
            return read_variables(description, relative, intermediate, most=limits.variables)
        except (ConfigurationError, UnsafeInputError) as error:
            raise type(error)(f"FMU '{self.path}': {error}") from None

    def _sort_variables(self) -> None:
        # The variable each scalar is, or is an element of.
        self.owners: Mapping[str, str] = {
            name: name if info.element is None else name.rpartition("[")[0] for name, info in self.variables.items()
        }
        ports = [info for info in self.variables.values() if not info.alias]
        self.input_infos = tuple(info for info in ports if info.causality == "input" and info.numeric)
        self.output_infos = tuple(info for info in ports if info.causality == "output" and info.numeric)
        texts = [info for info in ports if info.type in TEXTS]
        self.text_inputs = {info.name: info.type for info in texts if info.causality == "input"}
        self.text_outputs = {info.name: info.type for info in texts if info.causality == "output"}
        self.inputs = tuple(info.name for info in self.input_infos)
        self.outputs = tuple(info.name for info in self.output_infos)

    def _start_values(self) -> dict[str, float]:
        return {
            info.name: float(value)
            for info in self.input_infos
            if (value := self.given.get(info.name, info.start)) is not None
        }

    def _accept(self, values: Mapping[str, Any], causalities: tuple[str, ...]) -> dict[str, Value]:
        """Values given by the user, checked against the description and spread over the elements of arrays."""
        accepted: dict[str, Value] = {}
        for name, value in values.items():
            elements = self._elements(name)
            self._require_settable(elements[0], causalities)
            parts = [value] if name in self.variables else np.asarray(value, dtype=object).ravel().tolist()
            if len(parts) != len(elements):
                raise ConfigurationError(
                    f"FMU '{self.path}': '{name}' has {len(elements)} elements, but {len(parts)} values were given."
                )
            try:
                accepted |= {info.name: parse_value(info, part) for info, part in zip(elements, parts, strict=True)}
            except ConfigurationError as error:
                raise ConfigurationError(f"FMU '{self.path}': {error}") from None
        return accepted

    def _elements(self, name: str) -> list[VariableInfo]:
        if name in self.variables:
            return [self.variables[name]]
        elements = [self.variables[element] for element in self.elements_of(name)]
        if not elements:
            raise UnknownNameError(f"variable of FMU '{self.path}'", name, {*self.variables, *self.owners.values()})
        return elements

    def _require_settable(self, info: VariableInfo, causalities: tuple[str, ...]) -> None:
        if causalities and info.causality not in causalities:
            reason = f"not a parameter but has the causality {info.causality}; give it as a start value"
        elif _computed(info):
            reason = "computed by the FMU and cannot be given a value"
        else:
            return
        raise ConfigurationError(f"FMU '{self.path}': '{info.name}' is {reason}.")


def _computed(info: VariableInfo) -> bool:
    """Whether only the FMU itself gives the variable a value."""
    return info.variability == "constant" or not (info.causality == "input" or info.initial in SETTABLE)


def _flag(element: Any, name: str) -> bool:
    return element.get(name) in ("true", "1")


def _capabilities(declared: Any, element: Any) -> Capabilities:
    # In model exchange, steps and inputs are our solver's. FMPy knows the name of derivatives in FMI 2.0 only.
    ours = element.tag == "ModelExchange"
    names = ("providesDirectionalDerivatives", "providesDirectionalDerivative")
    return Capabilities(
        restore=declared.canGetAndSetFMUstate,
        serialise=declared.canGetAndSetFMUstate and declared.canSerializeFMUstate,
        directional_derivatives=any(_flag(element, name) for name in names),
        interpolate_inputs=ours or declared.canInterpolateInputs,
        variable_step=ours or declared.canHandleVariableCommunicationStepSize,
        single_instance=declared.canBeInstantiatedOnlyOncePerProcess,
        event_mode=not ours and declared.hasEventMode,
        early_return=not ours and declared.mightReturnEarlyFromDoStep,
        intermediate_update=not ours and _flag(element, "providesIntermediateUpdate"),
    )


def _default_experiment(path: Path, description: Any) -> Mapping[str, float]:
    """What the FMU proposes: some of startTime, stopTime, tolerance, stepSize."""
    proposed = {}
    for name in ("startTime", "stopTime", "tolerance", "stepSize"):
        text = getattr(description.defaultExperiment, name, None)
        try:
            proposed.update({} if text is None else {name: float(text)})
        except ValueError:
            raise ConfigurationError(
                f"FMU '{path}': {name} of the default experiment is '{text:.40}', which is no number; export it again."
            ) from None
    return proposed
