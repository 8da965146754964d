"""NaN, infinity and values out of range; steps that a unit discards; states that it restores wrongly."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faulty
from contract import command, require_contract, require_rows

from cosimo import masters
from cosimo.core.errors import ConfigurationError, NonFiniteError, StepDiscarded
from cosimo.core.schedule import Convergence
from cosimo.core.system import System
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.formats.results import read_result
from cosimo.units import Fmu, PythonUnit, StateSpace

KINDS = ["kernel", "reference"]
Kind = Literal["kernel", "reference"]


def broken(folder: Path, fault: str, *, at: float = 0.0, **changes: Any) -> Fmu:
    path = faulty.build(folder / "faulty.fmu", changes=changes.pop("changes", None))
    return Fmu(path, parameters={"fault": fault, "fault_time": at, **changes})


def ring(unit: Fmu) -> System:
    return System({"bad": unit, "good": StateSpace(-1.0, 1.0, 1.0)}, [("bad.y", "good.u1"), ("good.y1", "bad.u")])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["nan", "infinity"])
def test_values_that_are_not_finite_end_the_run(fault: str, kind: Kind, tmp_path: Path) -> None:
    system = ring(broken(tmp_path, fault, at=0.5))
    with pytest.raises(NonFiniteError, match=r"bad\.y became (nan|inf) at t = 0\.6") as caught:
        run(system, masters.jacobi(system, 0.1), stop=2.0, engine=EngineOptions(kind))
    assert caught.value.exit_code == 6
    assert (caught.value.unit, caught.value.variable) == ("bad", "y")
    assert caught.value.time == pytest.approx(0.6)
    result = caught.value.result
    assert result is not None
    assert len(result) == 6
    assert np.isfinite(result.values).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("master", ["jacobi", "gauss_seidel"])
def test_a_run_that_is_told_to_goes_on(kind: Kind, master: str, tmp_path: Path) -> None:
    system = ring(broken(tmp_path, "nan", at=0.5))
    options = EngineOptions(kind, allow_non_finite=True)
    result = run(system, getattr(masters, master)(system, 0.1), stop=2.0, engine=options)
    assert result.complete
    assert len(result) == 21
    assert np.isnan(result["bad.y"][6:]).all()
    assert np.isnan(result["good.y1"][-1])
    told = {warned.message.partition(" ")[0]: warned.time for warned in result.warnings if "became nan" in str(warned)}
    assert set(told) == {"bad.y", "good.y1"}
    assert told["bad.y"] == pytest.approx(0.6)


def test_the_command_line_says_so(tmp_path: Path) -> None:
    faulty.build(tmp_path / "faulty.fmu")
    (tmp_path / "s.toml").write_text(
        'step-size = 0.1\nstop-time = 2.0\n[units.bad]\nfmu = "faulty.fmu"\n'
        'parameters = { fault = "nan", fault_time = 0.5 }\n'
    )
    run_it = ("run", "s.toml", "--json", "--output-file", "rows.csv")
    outcome = command(tmp_path, *run_it)
    require_contract(outcome, code=6, names=["bad", "y", "0.6"])
    assert (outcome.document["unit"], outcome.document["variable"]) == ("bad", "y")
    assert len(require_rows(tmp_path / "rows.csv")) == 6
    outcome = command(tmp_path, *run_it, "--allow-non-finite")
    assert outcome.code == 0, outcome.errors
    assert any("bad.y became nan" in warned for warned in outcome.document["warnings"])
    assert read_result(tmp_path / "rows.csv").complete


@pytest.mark.parametrize("kind", KINDS)
def test_values_out_of_range_are_warned_of_once_per_variable(kind: Kind, tmp_path: Path) -> None:
    declared = {
        '<Real start="0"/></ScalarVariable>\n    <ScalarVariable name="u" valueReference="1" causality="input">'
        '<Real start="1"/>': '<Real start="0" max="0.25"/></ScalarVariable>\n    <ScalarVariable name="u" '
        'valueReference="1" causality="input"><Real start="1" min="0" max="0.2"/>'
    }
    system = System({"unit": broken(tmp_path, "", changes=declared)}, inputs={"unit.u": lambda t: 0.5 * t})
    result = run(system, masters.jacobi(system, 0.1), stop=2.0, record="all", engine=EngineOptions(kind))
    assert result.complete
    found = {warned.message.partition(" ")[0]: warned for warned in result.warnings if "outside" in warned.message}
    assert set(found) == {"unit.y", "unit.u"}
    above = result["unit.y"] > 0.25
    assert found["unit.y"].time == result.time[above][0]
    assert found["unit.y"].count == above.sum() > 1
    assert "outside its declared range (−∞, 0.25]" in found["unit.y"].message
    assert "[0, 0.2]" in found["unit.u"].message


# ---- discarded steps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restores", [True, False])
def test_a_step_that_is_always_discarded(restores: bool, tmp_path: Path) -> None:
    changes = {} if restores else {' canGetAndSetFMUstate="true" canSerializeFMUstate="true"': ""}
    system = ring(broken(tmp_path, "discard", at=0.5, changes=changes))
    with pytest.raises(StepDiscarded, match=r"unit 'bad'.*discarded the step from t = 0\.5") as caught:
        run(system, masters.jacobi(system, 0.1), stop=2.0)
    assert caught.value.exit_code == 3
    assert caught.value.last_successful_time == pytest.approx(0.5)
    result = caught.value.result
    assert result is not None
    assert result.time[-1] == 0.5
    if restores:
        assert result.info["rollbacks"] == 10
    else:
        assert "bad cannot" in str(caught.value)


class Choosy:
    """Refuses steps longer than 30 ms between 0.5 and 0.7."""

    inputs, outputs = {"u": 0.0}, ("y",)

    def __init__(self) -> None:
        self.y = 1.0

    def step(self, time: float, duration: float) -> None:
        if duration > 0.03 and 0.5 <= time < 0.7:
            raise StepDiscarded("too long", time)
        self.y += duration * (self.u - self.y)


def test_a_discarded_step_is_made_in_shorter_parts() -> None:
    units = {"a": PythonUnit(Choosy), "b": StateSpace(-1.0, 1.0, 1.0)}
    system = System(units, [("a.y", "b.u1"), ("b.y1", "a.u")])
    result = run(system, masters.jacobi(system, 0.1), stop=2.0)
    assert result.complete
    assert len(result) == 21
    assert result.info["rollbacks"] == 2


# ---- states that are restored wrongly --------------------------------------------------------------------------------


def test_a_wrong_restore_is_found_before_the_run(tmp_path: Path) -> None:
    wrong = ring(broken(tmp_path, "wrong_restore"))
    right = ring(broken(tmp_path, ""))
    for system, raises in ((wrong, True), (right, False)):
        for master in (
            masters.iterative(system, 0.1, sweeps=2),
            masters.iterative(system, 0.1, sweeps=Convergence(anderson=2)),
        ):
            if not raises:
                assert run(system, master, stop=1.0).complete
                continue
            with pytest.raises(ConfigurationError, match=r"unit 'bad' does not restore its state: .*'y' is"):
                run(system, master, stop=1.0)
    assert run(wrong, masters.jacobi(wrong, 0.1), stop=1.0).complete  # nothing is restored there
