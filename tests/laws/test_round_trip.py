"""Law: a scenario that is exported as a package and loaded again is the same scenario."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
sys.path.insert(0, str(Path(__file__).parent))
from fmu_builder import build
from random_systems import MATRIX_SEEDS

from cosimo.core.storage import file_digest
from cosimo.core.system import Connection, Constant, System, Table
from cosimo.core.unit import convert
from cosimo.formats.export import export_ssp
from cosimo.formats.scenario import Scenario, load
from cosimo.masters import MasterOptions
from cosimo.units.fmi.fmu import Experiment, Fmu, FmuOptions
from cosimo.units.fmi.isolation import Isolation
from thinning import examples

TIMES = st.floats(1e-3, 10.0)


@pytest.fixture(scope="module")
def fmus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("fmus")
    return {name: build(folder, name) for name in ("feedthrough2", "feedthrough3")}


def plain(scenario: Scenario) -> dict[str, Any]:
    """All of a scenario but where it came from."""
    system = scenario.system
    return {
        "units": {name: _unit(unit) for name, unit in system.units.items()},
        "texts": sorted((*link.source, *link.target) for link in system.text_links),
        "connections": sorted((c.source, c.target, c.gain, c.offset) for c in (k.connection for k in system.links)),
        "inputs": {target: _source(source) for target, source in system.inputs.items()},
        "starts": {i.target: i.start for row in system.inlets.values() for i in row if i.link is None},
        **{name: getattr(scenario, name) for name in ("step", "start", "stop", "target", "outputs", "power_pairs")},
        "options": replace(scenario.options, couplings=tuple(scenario.options.couplings)),
        "name": system.name,
    }


def _unit(unit: Any) -> Any:
    told = (unit.inputs, unit.outputs)
    if not isinstance(unit, Fmu):
        return told
    solver, options = unit.solver, unit.options
    how = (options.exact_difference, options.logging, unit.isolation, unit.trial is None, unit.experiment.start_time)
    return told, unit.kind, solver, how, file_digest(unit.path)


def _source(source: Any) -> Any:
    if isinstance(source, Table):
        return source.times.tolist(), source.values.tolist(), source.interpolation
    assert isinstance(source, Constant)
    return source.value


def _fits(units: dict[str, Fmu], output: str, target: Any) -> bool:
    name = next(name for name in units if output.startswith(f"{name}."))
    return convert(units[name].measure(output.removeprefix(f"{name}.")), target.unit) is not None


@st.composite
def scenarios(draw: st.DrawFn, fmus: dict[str, Path]) -> Scenario:
    """One to three FMUs of two versions, with values, conversions, inputs, masters, options."""
    rng = np.random.default_rng(draw(MATRIX_SEEDS))
    start = draw(st.sampled_from([0.0, 0.25, 1.5]))
    units: dict[str, Fmu] = {}
    for number in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(["unit{}", "left wheel.{}", "ä<{}>"])).format(number)
        version = draw(st.sampled_from(sorted(fmus)))
        values: dict[str, Any] = {}
        if version == "feedthrough2" and draw(st.booleans()):
            values = {"gain": draw(st.floats(0, 10)), "int_in": draw(st.integers(-9, 9)), "bool_in": False}
            values |= {"text_in": draw(st.sampled_from(["", "a < b & c", "ü"])), "enum_in": 1}
        isolate = draw(st.sampled_from(["auto", False, True, Isolation(timeout=2.5, memory=100.0)]))
        options = FmuOptions(exact_difference=draw(st.booleans()), logging=draw(st.booleans()))
        experiment = Experiment(start_time=start)
        units[name] = Fmu(
            fmus[version], name=name, start=values, experiment=experiment, options=options, isolate=isolate
        )
    outputs = [f"{n}.{v}" for n, u in units.items() for v in u.outputs if u.variables[v].type == "Float64"]
    connections, inputs = [], {}
    for name, unit in units.items():
        for variable in unit.inputs:
            target, kind = f"{name}.{variable}", unit.variables[variable].type
            choice = rng.random() if kind == "Float64" else 1.0
            fitting = [name for name in outputs if _fits(units, name, unit.variables[variable])]
            if choice < 0.5 and fitting:
                source = str(rng.choice(fitting))
                connections.append(Connection(source, target, float(rng.normal()), float(rng.normal())))
            elif choice < 0.6:
                inputs[target] = float(rng.normal())
            elif choice < 0.75:
                held = "hold" if rng.random() < 0.5 else "linear"
                inputs[target] = Table(np.sort(rng.random(4)), rng.normal(size=4), interpolation=held)
    texts = [(n, u) for n, u in units.items() if "text_out" in u.text_outputs]
    if len(texts) > 1 and draw(st.booleans()):
        connections.append(Connection(f"{texts[0][0]}.text_out", f"{texts[1][0]}.text_in"))
    system = System(units, connections, inputs=inputs, name=draw(st.sampled_from(["truck", "a & b"])))
    named = draw(st.sampled_from(["jacobi", "gauss-seidel", "iterative", "multirate"]))
    first = next(iter(units))
    couplings = draw(st.sampled_from([(), ("hold1",), (f"{first}.{units[first].inputs[0]}=hold1",)]))
    extra: dict[str, Any] = {}
    if named == "iterative":
        extra = {"tolerance": draw(st.floats(1e-9, 1e-2)), "sweep_limit": draw(st.integers(2, 50))}
    if named == "multirate":
        extra = {"multiples": {first: draw(st.integers(1, 4))}}
    step = draw(TIMES)
    return Scenario.of(
        system,
        options=MasterOptions(named, couplings=couplings, **extra),
        step=step,
        start=start,
        stop=start + 20.0 * step,
        target=draw(st.floats(1e-4, 0.5)),
        outputs=draw(st.sampled_from([None, ("*",), (outputs[0],)])),
    )


@settings(max_examples=examples(200))
@given(data=st.data())
def test_a_scenario_of_fmus_comes_back_equal(
    data: st.DataObject, fmus: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenario = data.draw(scenarios(fmus))
    path = tmp_path_factory.mktemp("package") / "s.ssp"
    assert scenario.step is not None
    assert scenario.stop is not None
    again = load(export_ssp(scenario, path, fmi=2, step=scenario.step, stop=scenario.stop))
    assert again.warnings == ()
    assert plain(again) == plain(scenario)
