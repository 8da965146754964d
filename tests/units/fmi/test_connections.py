"""Connections between FMUs in a system: types are checked and units of measure converted."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmu_builder import build

from cosimo import masters
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Connection, System
from cosimo.execution.running import run
from cosimo.units import Fmu

pytestmark = pytest.mark.usefixtures("temporary")

UNITS = """<UnitDefinitions>
    <Unit name="degC"><BaseUnit K="1" offset="273.15"/></Unit>
    <Unit name="K"><BaseUnit K="1"/></Unit>
    <Unit name="m"><BaseUnit m="1"/></Unit>
  </UnitDefinitions>
  <ModelVariables>"""


def lag(folder: Path, name: str, measure: str, variable: str) -> Fmu:
    """The minimal FMU with a unit of measure on one of its variables."""
    text = (Path(__file__).parents[2] / "fmus" / "minimal2.xml").read_text(encoding="utf-8")
    begin = text.index(f'<ScalarVariable name="{variable}"')
    real = text.index("<Real", begin)
    marked = text[begin:real] + f'<Real unit="{measure}"'
    path = build(folder / name, "minimal2", changes={text[begin : real + 5]: marked, "<ModelVariables>": UNITS})
    return Fmu(path, name=name, start={"y": 20.0} if variable == "y" else None)


def test_values_are_converted(tmp_path: Path) -> None:
    system = System({"a": lag(tmp_path, "a", "degC", "y"), "b": lag(tmp_path, "b", "K", "u")}, [("a.y", "b.u")],
                    inputs={"a.u": 20.0})  # fmt: skip
    assert (system.links[0].connection.gain, system.links[0].connection.offset) == (1.0, 273.15)
    result = run(system, masters.jacobi(system, 0.1), stop=0.2, record="all")
    np.testing.assert_allclose(result["b.u"], 293.15, atol=1e-12)


def test_own_gain_comes_after_the_conversion_and_can_be_had_without(tmp_path: Path) -> None:
    units = {"a": lag(tmp_path, "a", "degC", "y"), "b": lag(tmp_path, "b", "K", "u")}
    scaled = System(units, [Connection("a.y", "b.u", gain=2.0, offset=1.0)], inputs={"a.u": 0.0})
    assert (scaled.links[0].connection.gain, scaled.links[0].connection.offset) == (2.0, 547.3)
    plain = System(units, [Connection("a.y", "b.u", convert=False)], inputs={"a.u": 0.0})
    assert plain.links[0].connection.identity


def test_other_quantities_and_lossy_types_are_refused_by_name(tmp_path: Path) -> None:
    units = {"a": lag(tmp_path, "a", "m", "y"), "b": lag(tmp_path, "b", "K", "u")}
    with pytest.raises(ConfigurationError, match=r"a\.y → b\.u: 'y' is in .*m.* and 'u' in .*K.* incompatible"):
        System(units, [("a.y", "b.u")], inputs={"a.u": 0.0})
    mixed = {name: Fmu(build(tmp_path, "feedthrough2")) for name in ("p", "q")}
    with pytest.raises(ConfigurationError, match=r"connection p\.real_out → q\.int_in: .*Float64.*Int32"):
        System(mixed, [("p.real_out", "q.int_in")])


def test_extrapolation_leaves_discrete_inputs_alone(tmp_path: Path) -> None:
    system = System({"p": Fmu(build(tmp_path, "feedthrough2"))}, inputs={"p.int_in": lambda t: float(int(20 * t))})
    from cosimo.couplings import Hold

    master = masters.jacobi(system, 0.1, coupling=Hold(1))
    assert master.coupling_of("p.int_in") == Hold(0)
    result = run(system, master, stop=1.0)
    assert (result["p.int_out"] == np.round(result["p.int_out"])).all()
    with pytest.raises(ConfigurationError, match=r"input p\.int_in is not continuous; it can only be held"):
        masters.jacobi(system, 0.1, couplings={"p.int_in": Hold(1)})
