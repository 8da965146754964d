"""modelDescription.xml of a linear unit, for FMI 2.0 and 3.0.

Value references count through [x, u, y, ẋ, time], as the compiled library does. Outputs and derivatives are
y = C x + D u and ẋ = A x + B u, so each depends on exactly the states and inputs whose coefficient is not zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.etree import ElementTree

import numpy as np

from cosimo.core.arrays import BoolArray
from cosimo.core.errors import ConfigurationError
from cosimo.units.linear import LinearUnit, Mechanical

Fmi = Literal[2, 3]


@dataclass(frozen=True)
class Experiment:
    """The step and stop time that an FMU suggests to who runs it."""

    step: float | None = None
    stop: float | None = None

    def attributes(self) -> dict[str, str]:
        """As both versions write them; empty when there is nothing to suggest."""
        given = {"startTime": 0.0, "stopTime": self.stop, "stepSize": self.step}
        known = {name: repr(float(value)) for name, value in given.items() if value is not None}
        return known if self != Experiment() else {}


@dataclass(frozen=True)
class ScalarVariable:
    """One variable; `state` is the value reference of the state that it is the derivative of."""

    name: str
    reference: int
    causality: Literal["input", "output", "local", "independent"]
    initial: Literal["exact", "calculated"] | None = None
    start: float | None = None
    state: int | None = None

    def attributes(self) -> dict[str, str]:
        """What both versions say about the variable itself, apart from its type."""
        initial = {} if self.initial is None else {"initial": self.initial}
        return {
            "name": self.name,
            "valueReference": str(self.reference),
            "causality": self.causality,
            "variability": "continuous",
            **initial,
        }


@dataclass(frozen=True)
class Description:
    """All that modelDescription.xml says of `unit`; `start` overrides the start values of inputs."""

    unit: LinearUnit
    name: str
    start: Mapping[str, float] = field(default_factory=dict)
    experiment: Experiment = field(default_factory=Experiment)

    @property
    def identifier(self) -> str:
        """The name as an identifier of C, which also names the library in the FMU."""
        return identifier(self.name)

    def input_start(self) -> list[float]:
        """The start value of every input."""
        unit = self.unit
        return [float(self.start.get(name, unit.start.get(name, 0.0))) for name in unit.inputs]

    def variables(self) -> list[ScalarVariable]:
        """In the order of their value references."""
        states = state_names(self.unit)
        n, known = len(states), len(states) + len(self.unit.inputs)
        rows = known + len(self.unit.outputs)
        initial, start = self.unit.initial_state, self.input_start()
        found = [
            *(ScalarVariable(s, i, "local", "exact", float(initial[i])) for i, s in enumerate(states)),
            *(ScalarVariable(s, n + i, "input", None, start[i]) for i, s in enumerate(self.unit.inputs)),
            *(ScalarVariable(s, known + i, "output", "calculated") for i, s in enumerate(self.unit.outputs)),
            *(ScalarVariable(f"der({s})", rows + i, "local", "calculated", state=i) for i, s in enumerate(states)),
            ScalarVariable("time", rows + n, "independent"),
        ]
        _check_names(self.name, found)
        return found

    def depends(self) -> BoolArray:
        """Which output or derivative (row) depends on which state or input (column): [C D; A B] ≠ 0."""
        model = self.unit.linear()
        found: BoolArray = np.block([[model.C, model.D], [model.A, model.B]]) != 0
        return found


def identifier(name: str) -> str:
    """`name` as an identifier of C.

    >>> identifier("left wheel.3")
    'left_wheel_3'
    """
    letters = re.sub(r"[^A-Za-z0-9_]", "_", name)[:100]
    return letters if re.match(r"[A-Za-z_]", letters) else f"unit_{letters}"


def state_names(unit: LinearUnit) -> list[str]:
    """q1, …, v1, … for a mechanical unit, x1, … for others; `state.x1`, … where an input or output is called so."""
    n = len(unit.initial_state)
    half = n // 2
    if isinstance(unit, Mechanical):
        names = [f"{letter}{i}" for letter in "qv" for i in range(1, half + 1)]
    else:
        names = [f"x{i}" for i in range(1, n + 1)]
    taken = {*unit.inputs, *unit.outputs}
    clash = any(name in taken or f"der({name})" in taken for name in names)
    return [f"state.{name}" for name in names] if clash else names


def write_model_description(description: Description, token: str, fmi: Fmi) -> bytes:
    """modelDescription.xml of that version."""
    root = _write_fmi2(description, token) if fmi == 2 else _write_fmi3(description, token)
    return to_bytes(root)


def to_bytes(root: ElementTree.Element) -> bytes:
    """The document as indented UTF-8."""
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"


def _check_names(unit: str, variables: Sequence[ScalarVariable]) -> None:
    seen: set[str] = set()
    for variable in variables:
        if not variable.name or not variable.name.isprintable():
            raise ConfigurationError(
                f"variable {variable.name!r} of unit '{unit}' cannot be exported; give it a printable name."
            )
        if variable.name in seen:
            raise ConfigurationError(
                f"unit '{unit}' has two variables called '{variable.name}' (input, output, state or time), and FMI "
                f"wants unique names; rename one."
            )
        seen.add(variable.name)


def _head(description: Description, version: str) -> dict[str, str]:
    return {
        "fmiVersion": version,
        "modelName": description.name,
        "generationTool": "cosimo",
        "variableNamingConvention": "flat",
    }


def _finish_head(root: ElementTree.Element, description: Description) -> None:
    ElementTree.SubElement(
        ElementTree.SubElement(root, "LogCategories"),
        "Category",
        {"name": "logStatusError", "description": "Why a call was refused"},
    )
    if attributes := description.experiment.attributes():
        ElementTree.SubElement(root, "DefaultExperiment", attributes)


def _write_fmi2(description: Description, token: str) -> ElementTree.Element:
    root = ElementTree.Element("fmiModelDescription", _head(description, "2.0") | {"guid": token})
    able = (
        "canHandleVariableCommunicationStepSize",
        "canInterpolateInputs",
        "canGetAndSetFMUstate",
        "canSerializeFMUstate",
        "providesDirectionalDerivative",
    )
    flags = {"modelIdentifier": description.identifier, "maxOutputDerivativeOrder": "0"} | dict.fromkeys(able, "true")
    ElementTree.SubElement(root, "CoSimulation", flags)
    _finish_head(root, description)
    listed = ElementTree.SubElement(root, "ModelVariables")
    # FMI 2.0 needs no variable for time; indices count from 1 in the order of the value references.
    for variable in description.variables()[:-1]:
        item = ElementTree.SubElement(listed, "ScalarVariable", variable.attributes())
        start = {} if variable.start is None else {"start": repr(variable.start)}
        state = {} if variable.state is None else {"derivative": str(variable.state + 1)}
        ElementTree.SubElement(item, "Real", start | state)
    structure = ElementTree.SubElement(root, "ModelStructure")
    unknowns = list(_unknowns(description, first=1))
    outputs = len(description.unit.outputs)
    for group, members in (("Outputs", unknowns[:outputs]), ("Derivatives", unknowns[outputs:])):
        _add_group(structure, group, [{"index": index, **_dependent(on)} for index, on in members])
    initial = [{"index": index, "dependencies": " ".join(on)} for index, on in unknowns]
    _add_group(structure, "InitialUnknowns", initial)
    return root


def _add_group(structure: ElementTree.Element, group: str, members: list[dict[str, str]]) -> None:
    if members:
        parent = ElementTree.SubElement(structure, group)
        for attributes in members:
            ElementTree.SubElement(parent, "Unknown", attributes)


def _write_fmi3(description: Description, token: str) -> ElementTree.Element:
    root = ElementTree.Element("fmiModelDescription", _head(description, "3.0") | {"instantiationToken": token})
    able = (
        "canHandleVariableCommunicationStepSize",
        "canGetAndSetFMUState",
        "canSerializeFMUState",
        "providesDirectionalDerivatives",
        "providesAdjointDerivatives",
    )
    flags = {"modelIdentifier": description.identifier, "maxOutputDerivativeOrder": "0"} | dict.fromkeys(able, "true")
    ElementTree.SubElement(root, "CoSimulation", flags)
    _finish_head(root, description)
    listed = ElementTree.SubElement(root, "ModelVariables")
    for variable in description.variables():
        start = {} if variable.start is None else {"start": repr(variable.start)}
        state = {} if variable.state is None else {"derivative": str(variable.state)}
        ElementTree.SubElement(listed, "Float64", variable.attributes() | start | state)
    structure = ElementTree.SubElement(root, "ModelStructure")
    unknowns = list(_unknowns(description, first=0))
    outputs = len(description.unit.outputs)
    for place, (reference, on) in enumerate(unknowns):
        kind = "Output" if place < outputs else "ContinuousStateDerivative"
        ElementTree.SubElement(structure, kind, {"valueReference": reference, **_dependent(on)})
    for reference, on in unknowns:
        attributes = {"valueReference": reference, "dependencies": " ".join(on)}
        ElementTree.SubElement(structure, "InitialUnknown", attributes)
    return root


def _unknowns(description: Description, first: int) -> Iterator[tuple[str, list[str]]]:
    """Each output, then each derivative, with what it depends on; variables are counted from `first`."""
    depends = description.depends()
    for row, on in enumerate(depends):
        yield str(first + depends.shape[1] + row), [str(first + column) for column in np.flatnonzero(on)]


def _dependent(on: list[str]) -> dict[str, str]:
    # "constant": the dependence is linear with a factor that never changes.
    return {"dependencies": " ".join(on), "dependenciesKind": " ".join(["constant"] * len(on))}
