"""Saved states and derivatives."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmu_builder import build

from cosimo.core.errors import ConfigurationError, UnitError, UnknownNameError
from cosimo.units.fmi.fmu import Fmu

pytestmark = pytest.mark.usefixtures("temporary")


def values(*numbers: float) -> np.ndarray:
    return np.array([numbers], dtype=float)


@pytest.mark.parametrize("name", ["feedthrough2", "feedthrough3"])
def test_states_are_restored_and_their_memory_is_used_again(tmp_path: Path, name: str) -> None:
    fmu = Fmu(build(tmp_path, name))
    instance = fmu.instantiate()
    integral, states = fmu.outputs.index("integral"), fmu.outputs.index("states")
    state = instance.save()
    for k in range(50):
        instance.step(k * 0.1, 0.1)
        state = instance.save()
    at_five = instance.read()[integral]
    assert instance.read()[states] <= 2  # the state before is let go after the next one is taken
    for _ in range(3):
        instance.step(5.0, 0.1)
        assert instance.read()[integral] == pytest.approx(5.1 * 1.5)
        instance.restore(state)
        assert instance.read()[integral] == at_five
    with pytest.raises(ConfigurationError, match="a state that another instance saved"):
        fmu.instantiate().restore(state)


@pytest.mark.parametrize("name", ["feedthrough2", "feedthrough3"])
def test_serialised_state_continues_in_another_instance(tmp_path: Path, name: str) -> None:
    fmu = Fmu(build(tmp_path, name))
    first, second = fmu.instantiate(), fmu.instantiate()
    first.step(0.0, 0.1)
    data = first.serialise()
    assert isinstance(data, bytes)
    second.deserialise(data)
    states = fmu.outputs.index("states")
    assert np.array_equal(np.delete(first.read(), states), np.delete(second.read(), states))
    second.step(0.1, 0.1)
    assert second.read()[fmu.outputs.index("integral")] == pytest.approx(0.3)


def test_what_is_not_declared_is_refused(tmp_path: Path) -> None:
    instance = Fmu(build(tmp_path, "minimal2")).instantiate()
    with pytest.raises(ConfigurationError, match=r"cannot save and restore its state .* canGetAndSetFMUstate"):
        instance.save()
    with pytest.raises(ConfigurationError, match="canSerializeFMUstate"):
        instance.serialise()
    with pytest.raises(ConfigurationError, match="canSerializeFMUstate"):
        instance.deserialise(b"")
    with pytest.raises(ConfigurationError, match="providesDirectionalDerivative"):
        instance.directional_derivative(["y"], ["u"], [1.0])


@pytest.mark.parametrize(
    ("name", "unknowns", "known"),
    [
        ("feedthrough2", ["integral", "real_out"], "real_in"),
        ("feedthrough3", ["integral", "Float64_out"], "Float64_in"),
    ],
)
def test_directional_derivatives(tmp_path: Path, name: str, unknowns: list[str], known: str) -> None:
    instance = Fmu(build(tmp_path, name), parameters={"gain": 3.0}).instantiate()
    instance.finish_initialisation()
    assert instance.directional_derivative(unknowns, [known], [2.0]).tolist() == [0.0, 6.0]
    with pytest.raises(ConfigurationError, match="1 knowns need as many seeds, not 2"):
        instance.directional_derivative(unknowns, [known], [2.0, 1.0])
    with pytest.raises(UnknownNameError, match="nothing"):
        instance.directional_derivative(["nothing"], [known], [2.0])


def test_directional_derivatives_of_array_elements(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "arrays3"))
    instance = fmu.instantiate()
    result = instance.directional_derivative(["y[2,1]", "y[1,3]"], ["u[1,3]", "u[2,1]"], [1.0, 5.0])
    assert result.tolist() == [10.0, 2.0]
    with pytest.raises(ConfigurationError, match=r"'m\[1\]' is of type Int32 and has no derivatives"):
        instance.directional_derivative(["m[1]"], ["u[1,3]"], [1.0])


def test_input_derivatives_make_the_integral_exact(tmp_path: Path) -> None:
    """u = 1 + 2 t + 3 t² over [0, 0.6], set once and stepped three times: ∫u = t + t² + t³."""
    fmu = Fmu(build(tmp_path, "feedthrough2"))
    instance = fmu.instantiate()
    h = 0.6
    c = np.zeros((3, 4))
    c[:, 0] = 1.0, 2.0 * h, 3.0 * h**2
    c[0, 1:] = 1.0, 0.0, 1.0
    c[1, 1] = 0.5  # no slope for an integer
    instance.set_input(c, h)
    for k in range(3):
        instance.step(k * 0.2, 0.2)
        t = (k + 1) * 0.2
        y = instance.read()
        assert y[:3] == pytest.approx([1 + 2 * t + 3 * t**2, t + t**2 + t**3, 1.0], abs=1e-14)


def test_a_missing_optional_function_matters_only_when_used(tmp_path: Path) -> None:
    """Declares input derivatives, but the library has no function for them."""
    old = 'modelIdentifier="minimal2"'
    fmu = Fmu(build(tmp_path, "minimal2", changes={old: f'{old} canInterpolateInputs="true"'}))
    assert fmu.input_degree == 2
    instance = fmu.instantiate()
    instance.set_input(values(1.0), 0.1)
    instance.step(0.0, 0.1)
    assert instance.read()[0] == 0.1
    instance.set_input(np.ones((2, 1)), 0.1)
    with pytest.raises(UnitError, match="lacks the function fmi2SetRealInputDerivatives"):
        instance.step(0.1, 0.1)
