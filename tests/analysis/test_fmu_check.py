"""One FMU on its own: sound ones pass, and each way of breaking a promise is a row that fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
import faulty
from fmu_builder import build
from typer.testing import CliRunner

import cosimo as co
from cosimo.analysis.fmu_check import FmuCheck, check_fmu
from cosimo.cli import app
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import step_text
from cosimo.formats.export import export_unit


def results(found: FmuCheck) -> dict[str, str]:
    return {row.check: row.result for row in found.checks}


def remark(found: FmuCheck, check: str) -> str:
    return next(row.remark for row in found.checks if row.check == check)


def exported(folder: Path) -> Path:
    unit = co.StateSpace([[-1.0]], [[1.0]], [[1.0], [0.0]], [[0.0], [2.0]], initial=[1.0])
    return export_unit(unit, folder / "lag.fmu", name="lag", fmi=2)


def test_a_sound_fmu_passes_every_check(tmp_path: Path) -> None:
    found = check_fmu(exported(tmp_path), 0.1)
    assert set(results(found).values()) == {"pass"}, found.checks
    assert "iterative" in found.masters
    assert "checkpoints" in found.masters
    assert remark(found, "direct feedthrough") == "seen for 1 of 1 declared pairs of output and input"
    assert remark(found, "step sizes") == "outputs do not depend on the communication step while inputs are held"


def test_the_order_of_its_solver_is_measured(tmp_path: Path) -> None:
    """Forward Euler with the communication step: x' = 1 − x."""
    found = check_fmu(build(tmp_path, "lag2"), 0.01)
    assert found.order == pytest.approx(1.0, abs=0.05)
    assert found.internal_step is None
    assert results(found)["saved states"] == "note"
    assert "iterative" not in found.masters


def test_feedthrough_that_the_model_structure_denies(tmp_path: Path) -> None:
    changes = {'<Unknown index="2" dependencies="1"/>': '<Unknown index="2" dependencies=""/>'}
    found = check_fmu(build(tmp_path, "feedthrough2", changes=changes))
    assert "direct feedthrough" in found.failed
    said = "'real_out' follows 'real_in' at once, which the model structure denies"
    assert remark(found, "direct feedthrough") == said


@pytest.mark.parametrize(
    ("fault", "check", "says"),
    [
        ("segfault", "steps", f"crashed in fmi2DoStep: {faulty.SEGFAULT}"),
        ("nan", "steps", "is nan within"),
        ("wrong_restore", "saved states", "does not restore its state"),
        ("error", "steps", "fmi2Error from fmi2DoStep"),
    ],
)
def test_faults_are_rows(tmp_path: Path, fault: str, check: str, says: str) -> None:
    found = check_fmu(faulty.build(tmp_path / "sick.fmu"), 0.01, values={"fault": fault, "fault_time": 0.1})
    assert check in found.failed, found.checks
    assert says in remark(found, check)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("step", "longest", "taken"), [(0.1, 0.013, 0.0125), (None, 0.003, 0.0025)])
def test_a_discarded_step_is_halved_until_one_is_taken(
    tmp_path: Path, step: float | None, longest: float, taken: float
) -> None:
    """An FMU may discard steps; where nobody says how long they are, 1 % of the experiment is only a guess."""
    path = build(tmp_path, "feedthrough3", defines=(f"LONGEST={longest}",))
    found = check_fmu(path, step)
    assert found.failed == ("states as bytes",), "it counts its saved states in an output"
    assert found.step == taken
    assert remark(found, "steps") == f"64 of {step_text(taken)}; it does not take steps of {step_text(2 * taken)}"


def test_descriptions_libraries_and_instantiation(tmp_path: Path) -> None:
    broken = build(tmp_path, "lag2", file="a.fmu", changes={'guid="lag2"': 'guid="lag2" colour="red"'})
    assert check_fmu(broken).failed == ("description",)
    assert check_fmu(build(tmp_path, "lag2", file="b.fmu", platform="")).failed == ("library",)
    crash = faulty.build(tmp_path / "c.fmu", early="crash_instantiate")
    assert check_fmu(crash).failed == ("initialisation",)
    with pytest.raises(ConfigurationError, match="does not exist"):
        check_fmu(tmp_path / "nowhere.fmu")
    with pytest.raises(ConfigurationError, match="must be a positive number of seconds, not 0"):
        check_fmu(build(tmp_path, "lag2"), 0.0)


def test_the_verbs(tmp_path: Path) -> None:
    sound, run = exported(tmp_path), CliRunner().invoke
    outcome = run(app, ["check-fmu", str(sound), "--step-size", "100ms"])
    assert outcome.exit_code == 0, outcome.output
    assert "All 10 checks passed" in " ".join(outcome.stdout.split())
    sick = faulty.build(tmp_path / "sick.fmu", early="crash_instantiate")
    outcome = run(app, ["check-fmu", str(sick), "--json"])
    fields = json.loads(outcome.stdout)
    assert (outcome.exit_code, fields["passed"]) == (3, False)
    assert [row["check"] for row in fields["checks"] if row["result"] == "fail"] == ["initialisation"]
    outcome = run(app, ["analyse", str(sound), "--step-size", "0.1", "--no-pilots", "--stop-time", "1", "--json"])
    fields = json.loads(outcome.stdout)
    assert {"trust", "checks", "passed", "internal_step"} <= set(fields)
