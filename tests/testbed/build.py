"""Builds the FMUs of the test bed: linear ones by the exporter, nonlinear ones from C sources beside this file.

What a unit can do is switched here. In the nonlinear ones, functions that are not declared are not compiled either; in
the exported ones the declaration is taken away, and a caller must not use what is not declared.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from cosimo.core.system import System
from cosimo.formats.export import export_system
from cosimo.units.fmi.archive import platform_folders

HERE = Path(__file__).parent
FMUS = HERE.parent / "fmus"
sys.path.insert(0, str(FMUS))
from compiling import compile_library  # noqa: E402
from fmu_builder import ENDING  # noqa: E402

Fmi = Literal[2, 3]
SOLVERS = {"euler": 1, "rk4": 4}


@dataclass(frozen=True)
class Options:
    """What the FMUs are like: whether they save states and give directional derivatives, and the version of FMI."""

    states: bool = True
    derivatives: bool = True
    fmi: Fmi = 2


@dataclass(frozen=True)
class Model:
    """A nonlinear unit: its C source, start values of states, inputs and parameters, and what depends on what.

    `depends` names, for every derivative `der(x)` and every output, the states and inputs in its equation. The solver
    makes steps of at most `micro_step` seconds.
    """

    source: str
    states: Mapping[str, float]
    inputs: Mapping[str, float]
    parameters: Mapping[str, float]
    depends: Mapping[str, tuple[str, ...]]
    solver: Literal["euler", "rk4"] = "rk4"
    micro_step: float = 1e-3

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(name for name in self.depends if name not in self.rates)

    @property
    def rates(self) -> tuple[str, ...]:
        return tuple(f"der({name})" for name in self.states)

    @property
    def references(self) -> dict[str, int]:
        """Value references, as `model.h` counts."""
        names = (*self.states, *self.inputs, *self.outputs, *self.rates, *self.parameters)
        return {name: number for number, name in enumerate(names)}


def build_model(model: Model, path: Path, options: Options) -> Path:
    """Write the FMU of a nonlinear unit."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("modelDescription.xml", _describe(model, options))
        folder = platform_folders(options.fmi)[0]
        archive.writestr(f"binaries/{folder}/{model.source}{ENDING}", _compile(*_command(model, options)))
    return path


def export_linear(system: System, folder: Path, options: Options) -> dict[str, Path]:
    """Export the units and take away what they shall not declare."""
    paths = export_system(system, folder, fmi=options.fmi)
    for path in paths.values():
        _withhold(path, options)
    return paths


# ---- what is declared --------------------------------------------------------------------------------------------


def _flags(options: Options) -> dict[str, bool]:
    if options.fmi == 2:
        return {"canGetAndSetFMUstate": options.states, "providesDirectionalDerivative": options.derivatives}
    return {"canGetAndSetFMUState": options.states, "providesDirectionalDerivatives": options.derivatives}


def _withhold(path: Path, options: Options) -> None:
    withheld = {name for name, able in _flags(options).items() if not able}
    withheld |= {"canSerializeFMUstate", "canSerializeFMUState"} if not options.states else set()
    withheld |= {"providesAdjointDerivatives"} if not options.derivatives else set()
    with zipfile.ZipFile(path) as archive:
        members = {info: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in members.items():
            if info.filename == "modelDescription.xml":
                root = ElementTree.fromstring(content)
                declared = root.find("CoSimulation")
                assert declared is not None
                for name in withheld & set(declared.attrib):
                    declared.set(name, "false")
                content = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
            archive.writestr(info, content)


def _describe(model: Model, options: Options) -> bytes:
    token = {2: "guid", 3: "instantiationToken"}[options.fmi]
    head = {"fmiVersion": f"{options.fmi}.0", "modelName": model.source, token: _token(model)}
    root = ElementTree.Element("fmiModelDescription", head)
    able = {name: str(value).lower() for name, value in _flags(options).items()}
    able |= {"modelIdentifier": model.source, "canHandleVariableCommunicationStepSize": "true"}
    ElementTree.SubElement(root, "CoSimulation", able)
    variables = ElementTree.SubElement(root, "ModelVariables")
    structure = ElementTree.SubElement(root, "ModelStructure")
    (_describe2 if options.fmi == 2 else _describe3)(model, variables, structure)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)


def _describe2(model: Model, variables: ElementTree.Element, structure: ElementTree.Element) -> None:
    for name, reference in model.references.items():
        attributes = {"name": name, "valueReference": str(reference), **_kind(model, name)}
        item = ElementTree.SubElement(variables, "ScalarVariable", attributes)
        ElementTree.SubElement(item, "Real", _start(model, name) | _rate_of(model, name, first=1))
    groups = (("Outputs", model.outputs), ("Derivatives", model.rates), ("InitialUnknowns", model.depends))
    for group, names in groups:
        parent = ElementTree.SubElement(structure, group)
        for name in sorted(names, key=model.references.__getitem__):
            ElementTree.SubElement(parent, "Unknown", {"index": str(model.references[name] + 1), **_on(model, name, 1)})


def _describe3(model: Model, variables: ElementTree.Element, structure: ElementTree.Element) -> None:
    for name, reference in model.references.items():
        attributes = {"name": name, "valueReference": str(reference), **_kind(model, name)}
        ElementTree.SubElement(variables, "Float64", attributes | _start(model, name) | _rate_of(model, name, first=0))
    clock = {"name": "time", "valueReference": str(len(model.references)), "causality": "independent"}
    ElementTree.SubElement(variables, "Float64", clock | {"variability": "continuous"})
    groups = (("Output", model.outputs), ("ContinuousStateDerivative", model.rates), ("InitialUnknown", model.depends))
    for group, names in groups:
        for name in sorted(names, key=model.references.__getitem__):
            unknown = {"valueReference": str(model.references[name]), **_on(model, name, 0)}
            ElementTree.SubElement(structure, group, unknown)


def _kind(model: Model, name: str) -> dict[str, str]:
    if name in model.parameters:
        return {"causality": "parameter", "variability": "fixed", "initial": "exact"}
    if name in model.inputs:
        return {"causality": "input", "variability": "continuous"}
    causality = "output" if name in model.outputs else "local"
    initial = "exact" if name in model.states else "calculated"
    return {"causality": causality, "variability": "continuous", "initial": initial}


def _start(model: Model, name: str) -> dict[str, str]:
    values = {**model.states, **model.inputs, **model.parameters}
    return {"start": repr(float(values[name]))} if name in values else {}


def _rate_of(model: Model, name: str, first: int) -> dict[str, str]:
    return {"derivative": str(model.rates.index(name) + first)} if name in model.rates else {}


def _on(model: Model, name: str, first: int) -> dict[str, str]:
    return {"dependencies": " ".join(str(model.references[known] + first) for known in model.depends[name])}


# ---- what is compiled --------------------------------------------------------------------------------------------


def _token(model: Model) -> str:
    return f"testbed-{model.source}"


def _command(model: Model, options: Options) -> tuple[str, tuple[str, ...]]:
    starts = {"X": model.states, "U": model.inputs, "P": model.parameters}
    defines = [f"START_{letter}={{{','.join(map(repr, values.values()))}}}" for letter, values in starts.items()]
    defines += [f'MODEL="{model.source}.c"', f'TOKEN="{_token(model)}"']
    defines += [f"SOLVER={SOLVERS[model.solver]}", f"MICRO={model.micro_step!r}"]
    defines += ["STATES"] * options.states + ["DERIVATIVES"] * options.derivatives
    return f"interface{options.fmi}.c", tuple(defines)


def _compile(interface: str, defines: tuple[str, ...]) -> bytes:
    flags = ("-fvisibility=hidden", f"-I{FMUS}", *(f"-D{define}" for define in defines))
    return compile_library(HERE / interface, flags)
