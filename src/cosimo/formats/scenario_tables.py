"""Scenario files: a coupled system, its master and its experiment in TOML.

One model describes the format. It checks what is read, and yields the JSON schema that editors use. Keys are written in
kebab case (`step-size`); snake case is taken too. Keys that nobody knows are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cosimo.couplings import coupling_forms
from cosimo.masters import MASTERS, Target
from cosimo.units.fmi.model_exchange import KINDS, SOLVERS
from cosimo.units.linear import INTEGRATORS

SCHEMA = "https://json-schema.org/draft/2020-12/schema"

Matrix = float | list[float] | list[list[float]]
Scalar = bool | int | float | str
Value = Scalar | list[Scalar] | list[list[Scalar]]
if TYPE_CHECKING:
    IntegratorName = str
    SolverName = str
else:
    IntegratorName = Literal[tuple(INTEGRATORS)]
    SolverName = Literal[SOLVERS]


class TomlTable(BaseModel):
    """A table of the file; unknown keys are refused."""

    model_config = ConfigDict(
        alias_generator=lambda name: name.rstrip("_").replace("_", "-"),
        populate_by_name=False,
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # what checks a scenario checks its tables: theirs are never built
    )

    @model_validator(mode="before")
    @classmethod
    def _take_snake_case(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known, taken = cls.keys(), {}
        for key, value in data.items():
            kebab = key if key in known else key.replace("_", "-")
            name = kebab if kebab in known else key
            if name in taken:
                message = f"the key appears twice, as '{name}' and as '{name.replace('-', '_')}'; remove one."
                raise PydanticCustomError("twice", "{message}", {"message": message})
            taken[name] = value
        return taken

    @classmethod
    def keys(cls) -> list[str]:
        """The keys that the table may have."""
        return [field.alias or name for name, field in cls.model_fields.items()]


class FmuTable(TomlTable):
    """An FMU, for co-simulation or for model exchange."""

    fmu: str = Field(description="Path of the FMU, relative to this file.")
    kind: Literal["co-simulation", "model-exchange"] | None = Field(
        None, description="What the FMU is used for; co-simulation if it offers both."
    )
    solver: SolverName | None = Field(None, description="model-exchange: how it is integrated; cvode if left out.")
    relative_tolerance: float | None = Field(None, description="cvode: the relative tolerance; 1e-6 if left out.")
    micro_steps: int | None = Field(None, description="euler, rk4: steps within each step of the master.")
    micro_step: float | None = Field(None, description="euler, rk4: the longest step in seconds.")
    parameters: dict[str, Value] = Field({}, description="Values of parameters, by variable name.")
    start: dict[str, Value] = Field({}, description="Values of inputs and other settable variables at the start.")
    exact_difference: bool = Field(
        False,
        description="Pass the difference of two communication points as the step, for FMUs that "
        "accumulate time themselves.",
    )
    logging: bool = Field(False, description="Switch on debug logging of the FMU.")
    validate_: bool = Field(True, description="Refuse a model description that violates the FMI standard.")
    compile: Literal["sandbox", "trusted"] | None = Field(
        None,
        description="Compile the sources of an FMU without a library for this platform: in the sandbox, or anyhow.",
    )
    isolate: bool | Literal["auto", "all", "none"] = Field(
        "auto", description="Run the FMU in a separate process; auto: only if it fails a first trial there."
    )
    sandbox: bool = Field(
        False, description="Isolate the FMU and deny it network access, new processes and files other than its own."
    )
    timeout: float | None = Field(None, gt=0, description="isolated: time limit for one call of the FMU, in seconds.")
    memory: float | None = Field(None, gt=0, description="isolated: memory limit of the FMU, in megabytes.")
    host: str | None = Field(None, description="The worker ('cosimo worker --name') on another host that runs the FMU.")


class LinearTable(TomlTable):
    """What state-space and mechanical units share."""

    initial: float | list[float] | None = Field(None, description="The state at the start; zero if left out.")
    integrator: IntegratorName | None = Field(None, description="How the unit integrates between macro steps.")
    micro_steps: int = Field(1, ge=1, description="Steps of the integrator within each step of the master.")
    inputs: list[str] | None = Field(None, description="Names of the inputs; u1, u2, … if left out.")
    outputs: list[str] | None = Field(None, description="Names of the outputs; y1, y2, … if left out.")
    start: dict[str, float] = Field({}, description="Values of inputs that are left unconnected.")


class StateSpaceTable(LinearTable):
    """ẋ = A x + B u, y = C x + D u."""

    kind: Literal["state-space"] = Field(description="The kind of unit.")
    A: Matrix = Field(description="System matrix, n × n, as a list of rows.")
    B: Matrix = Field(description="Input matrix, n × m.")
    C: Matrix = Field(description="Output matrix, p × n.")
    D: Matrix | None = Field(None, description="Direct feedthrough matrix, p × m; zero if left out.")


class MechanicalTable(LinearTable):
    """M q̈ + C q̇ + K q = B u, with outputs made of displacement, velocity and acceleration."""

    kind: Literal["mechanical"] = Field(description="The kind of unit.")
    M: Matrix = Field(description="Mass matrix, n × n.")
    C: Matrix = Field(description="Damping matrix, n × n.")
    K: Matrix = Field(description="Stiffness matrix, n × n.")
    B: Matrix = Field(description="Input matrix, n × m.")
    displacement: Matrix | None = Field(None, description="Contribution of the displacements to the outputs, p × n.")
    velocity: Matrix | None = Field(None, description="Contribution of the velocities to the outputs, p × n.")
    acceleration: Matrix | None = Field(None, description="Contribution of the accelerations to the outputs, p × n.")
    feedthrough: Matrix | None = Field(None, description="Direct feedthrough of the inputs to the outputs, p × m.")


class PythonTable(TomlTable):
    """A Python class. Loading the scenario runs the file or module it is in."""

    kind: Literal["python"] = Field(description="The kind of unit.")
    class_: str = Field(
        pattern="^[^:]+:[A-Za-z_][A-Za-z0-9_]*$",
        description="'file.py:Class', relative to this file, or 'package.module:Class'.",
    )
    parameters: dict[str, Value] = Field({}, description="Arguments for the class when it is instantiated.")
    start: dict[str, float] = Field({}, description="Values of inputs that are left unconnected.")


class ConnectionTable(TomlTable):
    """target = gain · source + offset."""

    from_: str = Field(description="The output, as 'unit.variable'.")
    to: str = Field(description="The input, as 'unit.variable'.")
    gain: float = Field(1.0, description="Factor, applied after conversion of physical units.")
    offset: float = Field(0.0, description="Added after the factor.")


class CsvTable(TomlTable):
    """An external input over time."""

    csv: str = Field(description="Path of a CSV file with a header line, relative to this file.")
    column: str = Field(description="The column with the values.")
    time_column: str | None = Field(None, description="The column with the times in seconds; the first if left out.")
    interpolation: Literal["linear", "hold"] = Field(
        "linear", description="Between rows: linear or held; two rows at the same time are a jump."
    )


class ProblemTable(TomlTable):
    """A built-in problem instead of units."""

    name: str = Field(description="Its name; 'cosimo problems' lists them.")
    parameters: dict[str, float] = Field({}, description="Values of its parameters.")


class HostsTable(TomlTable):
    """Where workers on other hosts are met."""

    broker: str = Field(description="Address and port of the HELICS broker, as '192.168.1.10:23404'.")
    core: Literal["zmq", "tcp"] = Field("zmq", description="How HELICS connects to it; the same for all workers.")
    token_file: str | None = Field(
        None, description="File with the token that workers must know; COSIMO_TOKEN in the environment if left out."
    )
    wait: float = Field(30.0, gt=0, description="Seconds for workers to join.")
    patience: float = Field(10.0, gt=0, description="Seconds without a sign of life after which a host is lost.")


class MasterTable(TomlTable):
    """The master algorithm, in the words of the command line."""

    name: str = Field("jacobi", description=f"One of {', '.join(MASTERS)}.")
    order: str | list[str] | list[list[str]] | None = Field(
        None,
        description="Units in order: 'a,b,c' or a list; for groups, strang, multirate 'a,b;c' or a list of lists; "
        "for federation 'a:FGH:1,b:HFG:1/2:wait'.",
    )
    couplings: list[str] = Field(
        [], description=f"{', '.join(coupling_forms())}: for all inputs; 'unit.input=hold1' for one."
    )
    sweeps: int | None = Field(None, description="iterative: a fixed number of sweeps.")
    tolerance: float | None = Field(None, description="iterative: sweep until the outputs change by less than this.")
    sweep_limit: int | None = Field(None, description="iterative: stop with a warning after this many sweeps.")
    anderson: int | None = Field(None, description="iterative: Anderson acceleration with this many earlier sweeps.")
    quasi_newton: int | None = Field(
        None,
        description="iterative: quasi-Newton (IQN-ILS) with this many differences of sweeps, kept over macro steps.",
    )
    samples: int | None = Field(None, description="iterative: read the units so often per macro step, and interpolate.")
    multiples: dict[str, int] = Field({}, description="multirate: number of base steps in one step of each unit.")
    inputs: Literal["held", "interpolated"] | None = Field(None, description="multirate: inputs between steps.")
    follow: Target | None = Field(
        None, description="Correct the inputs as 'compensate' does, so that the run follows this target."
    )


def _unit_tag(table: Any) -> str | None:
    if not isinstance(table, dict):
        return None
    kind = table.get("kind")
    return "fmu" if "fmu" in table and kind in (None, *KINDS) else kind if isinstance(kind, str) else None


def _table_tag(value: Any) -> str:
    return "table" if isinstance(value, dict) else "plain"


def _arrow(text: str) -> str:
    if text.count("->") != 1 or not all(end.strip() for end in text.split("->")):
        raise PydanticCustomError("arrow", "write a connection as 'unit.output -> unit.input'.")
    return text


def _two_ends(pair: list[str]) -> list[str]:
    if len(pair) != 2:
        raise PydanticCustomError("pair", "a power pair is an input and an output of one unit; give these two names.")
    return pair


UNITS: dict[str, type[TomlTable]] = {
    "fmu": FmuTable,
    "state-space": StateSpaceTable,
    "mechanical": MechanicalTable,
    "python": PythonTable,
}
"""The kinds of units; an FMU needs no `kind`, and its kind is what it is used for."""
if TYPE_CHECKING:
    UnitEntry = FmuTable | StateSpaceTable | MechanicalTable | PythonTable
else:
    UnitEntry = Annotated[
        Union[tuple(Annotated[table, Tag(kind)] for kind, table in UNITS.items())],  # noqa: UP007
        Discriminator(_unit_tag),
    ]
ConnectionEntry = Annotated[
    Annotated[str, AfterValidator(_arrow), Tag("plain")] | Annotated[ConnectionTable, Tag("table")],
    Discriminator(_table_tag),
]
InputEntry = Annotated[Annotated[float, Tag("plain")] | Annotated[CsvTable, Tag("table")], Discriminator(_table_tag)]
ProblemEntry = Annotated[
    Annotated[str, Tag("plain")] | Annotated[ProblemTable, Tag("table")], Discriminator(_table_tag)
]


class ScenarioTable(TomlTable):
    """A coupled system (units and connections, or a built-in problem), its master and its experiment."""

    kinds: ClassVar[tuple[str, ...]] = tuple(kind for kind in UNITS if kind != "fmu")

    name: str | None = Field(None, description="Name of the system; the file's name if left out.")
    problem: ProblemEntry | None = Field(None, description="A built-in problem instead of units.")
    units: dict[str, UnitEntry] = Field({}, description="The units by name: FMUs or built-in kinds.")
    connections: list[ConnectionEntry] = Field(
        [], description="'unit.output -> unit.input', or tables with gain and offset."
    )
    inputs: dict[str, InputEntry] = Field({}, description="External inputs by 'unit.input': constants or CSV columns.")
    power_pairs: list[Annotated[list[str], AfterValidator(_two_ends)]] = Field(
        [], description="['unit.input', 'unit.output'] of one unit whose product is the power that enters it."
    )
    master: MasterTable | None = Field(None, description="The master algorithm.")
    hosts: HostsTable | None = Field(None, description="Where workers on other hosts are met, for units with a 'host'.")
    step_size: float | None = Field(None, gt=0, description="Communication step size (macro step) in seconds.")
    start_time: float | None = Field(None, description="Start of the run in seconds.")
    stop_time: float | None = Field(None, description="End of the run in seconds.")
    target_error: float | None = Field(
        None, gt=0, description="The acceptable error as a fraction of an output's largest value (0.01)."
    )
    outputs: list[str] | None = Field(None, description="What to record: names or patterns such as 'truck.*'.")

    @model_validator(mode="after")
    def _whole(self) -> ScenarioTable:
        if self.problem is None and not self.units:
            raise PydanticCustomError("whole", "give units, or a built-in problem.")
        if self.problem is not None and (self.units or self.connections or self.inputs):
            raise PydanticCustomError(
                "whole", "a built-in problem has its units, connections and inputs already; remove them."
            )
        away = [name for name, unit in self.units.items() if isinstance(unit, FmuTable) and unit.host is not None]
        if away and self.hosts is None:
            raise PydanticCustomError(
                "whole", "a unit has a 'host': add a table [hosts] that says where the 'broker' is."
            )
        if self.stop_time is not None and self.stop_time <= (self.start_time or 0.0):
            raise PydanticCustomError("whole", "stop-time must be greater than start-time.")
        return self


_TABLES: dict[str, type[TomlTable]] = {
    "master": MasterTable,
    "connections": ConnectionTable,
    "inputs": CsvTable,
    "problem": ProblemTable,
    "hosts": HostsTable,
}


def known_keys(location: tuple[str | int, ...]) -> list[str]:
    """The keys of the table in which pydantic found an unknown one at `location`."""
    if len(location) == 1:
        return ScenarioTable.keys()
    table = UNITS[str(location[2])] if location[0] == "units" else _TABLES[str(location[0])]
    return table.keys()


def check_scenario(data: dict[str, Any]) -> tuple[ScenarioTable | None, list[dict[str, Any]]]:
    """The scenario, or what is wrong with it, as pydantic lists it."""
    try:
        return ScenarioTable.model_validate(data), []
    except ValidationError as error:
        return None, [dict(item) for item in error.errors(include_url=False)]


def scenario_schema() -> dict[str, Any]:
    """The format as a JSON schema, for editors."""
    schema = ScenarioTable.model_json_schema(by_alias=True)
    return {"$schema": SCHEMA, "title": "cosimo scenario", **{k: v for k, v in schema.items() if k != "title"}}
