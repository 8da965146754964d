"""Builds the model-exchange FMUs of `hybrid.h`: descriptions of FMI 2.0 and 3.0 from the lists of variables here."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from fmu_builder import ENDING, compiled

from cosimo.units.fmi.archive import platform_folders


class Model(NamedTuple):
    """Names of the variables, in the order of their references; a state's derivative is `der(state)`."""

    states: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    start: Mapping[str, float] = MappingProxyType({})
    indicators: int = 0
    directional: bool = False
    clocks: str = ""  # their lines in a description of FMI 3.0


MODELS = {
    "BALL": Model(("h", "v"), parameters=("g", "e"), start={"h": 1.0, "g": -9.81, "e": 0.7}, indicators=1),
    "OSCILLATOR": Model(("x", "v"), parameters=("mu",), start={"x": 2.0, "mu": 1000.0}),
    "STAIRS": Model(outputs=("y",), parameters=("last",), start={"last": 1e9}),
    "SAW": Model(("x",)),
    "SAMPLER": Model(
        ("x",),
        ("u",),
        ("sample", "count", "late", "lates"),
        ("delay",),
        {"delay": -1.0},
        clocks='<Clock name="tick" valueReference="20" causality="input" intervalVariability="constant" '
        'intervalDecimal="0.25" shiftDecimal="0.125"/>'
        '<Clock name="later" valueReference="21" causality="input" intervalVariability="countdown"/>',
    ),
    "LINEAR": Model(
        ("x", "v"),
        ("u",),
        ("y",),
        ("k", "c", "d", "fail_at", "nan_at", "square", "drift", "late", "stop"),
        {"k": 4.0, "c": 0.4, "fail_at": 1e300, "nan_at": 1e300},
        directional=True,
    ),
}


def build_model(
    folder: Path, name: str, version: int = 2, *, defines: tuple[str, ...] = (), flags: str = "", file: str = ""
) -> Path:
    """Write the FMU of a model into `folder`; `flags` are further attributes of its ModelExchange element."""
    path = folder / (file or f"{name.lower()}{version}.fmu")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (_description2 if version == 2 else _description3)(name, MODELS[name], flags)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("modelDescription.xml", text)
        place = f"binaries/{platform_folders(version)[0]}/{name}{ENDING}"
        archive.writestr(place, compiled(f"hybrid{version}", (name, *defines)))
    return path


def _variables(model: Model) -> list[tuple[str, str, float | None]]:
    """Name, causality and start value of each, in order."""
    found: list[tuple[str, str, float | None]] = []
    outputs = () if model.outputs else model.states
    found += [(name, "output" if name in outputs else "local", model.start.get(name, 0.0)) for name in model.states]
    found += [(f"der({name})", "local", None) for name in model.states]
    found += [(name, "input", 0.0) for name in model.inputs]
    found += [(name, "output", None) for name in model.outputs]
    return found + [(name, "parameter", model.start.get(name, 0.0)) for name in model.parameters]


def _description2(name: str, model: Model, flags: str) -> str:
    variables, states = _variables(model), len(model.states)
    lines = []
    for number, (variable, causality, value) in enumerate(variables):
        variability = ' variability="fixed"' if causality == "parameter" else ""
        initial = ' initial="exact"' if number < states else ' initial="calculated"' if value is None else ""
        start = "" if value is None else f' start="{value!r}"'
        derivative = f' derivative="{number - states + 1}"' if states <= number < 2 * states else ""
        lines.append(
            f'<ScalarVariable name="{variable}" valueReference="{number}" causality="{causality}"{variability}'
            f"{initial}><Real{start}{derivative}/></ScalarVariable>"
        )
    outputs = [n + 1 for n, (_, causality, _) in enumerate(variables) if causality == "output"]
    unknowns = "".join(f'<Unknown index="{n}"/>' for n in outputs)
    derivatives = "".join(f'<Unknown index="{states + n + 1}"/>' for n in range(states))
    calculated = sorted({n for n in outputs if n > states} | {states + n + 1 for n in range(states)})
    first = "".join(f'<Unknown index="{n}"/>' for n in calculated)
    parts = [f"<Outputs>{unknowns}</Outputs>"]
    parts += [f"<Derivatives>{derivatives}</Derivatives>"] if states else []
    parts += [f"<InitialUnknowns>{first}</InitialUnknowns>"] if first else []
    gives = ' providesDirectionalDerivative="true"' if model.directional else ""
    return (
        f'<?xml version="1.0"?><fmiModelDescription fmiVersion="2.0" modelName="{name}" guid="hybrid" '
        f'numberOfEventIndicators="{model.indicators}"><ModelExchange modelIdentifier="{name}" '
        f'canGetAndSetFMUstate="true" canSerializeFMUstate="true"{gives} {flags}/>'
        f'<DefaultExperiment stopTime="1" stepSize="0.01"/><ModelVariables>{"".join(lines)}</ModelVariables>'
        f"<ModelStructure>{''.join(parts)}</ModelStructure></fmiModelDescription>"
    )


def _description3(name: str, model: Model, flags: str) -> str:
    variables, states = _variables(model), len(model.states)
    lines = ['<Float64 name="time" valueReference="1000" causality="independent" variability="continuous"/>']
    for number, (variable, causality, value) in enumerate(variables):
        variability = ' variability="fixed"' if causality == "parameter" else ""
        initial = ' initial="exact"' if number < states else ' initial="calculated"' if value is None else ""
        start = "" if value is None else f' start="{value!r}"'
        derivative = f' derivative="{number - states}"' if states <= number < 2 * states else ""
        lines.append(
            f'<Float64 name="{variable}" valueReference="{number}" causality="{causality}"{variability}{initial}'
            f"{start}{derivative}/>"
        )
    lines.append(model.clocks)
    outputs = [n for n, (_, causality, _) in enumerate(variables) if causality == "output"]
    derivatives = [states + n for n in range(states)]
    first = sorted({n for n in outputs if n >= states} | set(derivatives))
    parts = [f'<Output valueReference="{n}"/>' for n in outputs]
    parts += [f'<ContinuousStateDerivative valueReference="{n}"/>' for n in derivatives]
    parts += [f'<InitialUnknown valueReference="{n}"/>' for n in first]
    # Of the indicators only the number counts; they are listed by the variable that crosses zero.
    parts += [f'<EventIndicator valueReference="{n}"/>' for n in range(model.indicators)]
    gives = ' providesDirectionalDerivatives="true"' if model.directional else ""
    return (
        f'<?xml version="1.0"?><fmiModelDescription fmiVersion="3.0" modelName="{name}" instantiationToken="hybrid">'
        f'<ModelExchange modelIdentifier="{name}" canGetAndSetFMUState="true" canSerializeFMUState="true"{gives} '
        f'{flags}/><DefaultExperiment stopTime="1" stepSize="0.01"/><ModelVariables>{"".join(lines)}</ModelVariables>'
        f"<ModelStructure>{''.join(parts)}</ModelStructure></fmiModelDescription>"
    )
