"""FMUs that nobody knows yet are tried in a process of their own; those that get through are remembered by content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from faulty import SEGFAULT, build
from test_verbs import cosimo, scenario

from cosimo.analysis import analyse
from cosimo.cli.isolation_options import IsolationOptions, isolate_units
from cosimo.core.errors import ConfigurationError, UnitCrashed, UnitError, UnitTimeout
from cosimo.core.guarding import guard_options
from cosimo.core.storage import file_digest
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.formats.scenario import load
from cosimo.masters import jacobi
from cosimo.studies import Grid, Study, run_study
from cosimo.studies.runner import Runner
from cosimo.units import Fmu, Isolation
from cosimo.units.fmi import isolation

NOTICE = f"is isolated after a first trial (crashed in fmi2DoStep: {SEGFAULT}); --trust-units"


@pytest.fixture(autouse=True)
def trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the FMUs that are tried, in a process that has seen none; answers are kept in a folder."""
    made: list[str] = []
    original = isolation._try

    def noted(unit: Fmu, *more: object) -> None:
        made.append(unit.name)
        original(unit, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(isolation, "_try", noted)
    monkeypatch.setattr(isolation, "_passed", set())
    monkeypatch.setenv("COSIMO_CACHE", str(tmp_path / "cache"))
    return made


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(isolation, "_passed", set())


def one(path: Path, fault: str = "", at: float = 0.0, **options: object) -> System:
    given = {"fault": fault, "fault_time": at} if fault else {}  # one that is built in stays
    return System({"sick": Fmu(path, name="sick", parameters=given, **options)})  # type: ignore[arg-type]


def go(system: System) -> tuple[Fmu, list[str]]:
    """Run a few steps: the unit, and what was said."""
    result = run(system, jacobi(system, 0.01), stop=0.05)
    unit = system.units["sick"]
    assert isinstance(unit, Fmu)
    return unit, [str(warned) for warned in result.warnings]


def test_an_fmu_that_gets_through_stays_and_is_remembered(
    fmu: Path, trials: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, warned = go(one(fmu))
    assert (unit.isolation, unit.trial, warned, trials) == (None, None, [], ["sick"])
    go(one(fmu))
    forget(monkeypatch)
    go(one(fmu))
    go(one(Path(shutil.copy(fmu, tmp_path / "elsewhere.fmu"))))
    assert trials == ["sick"]  # known by what it holds, here and in later processes
    (entry,) = (tmp_path / "cache").iterdir()
    assert json.loads(entry.read_text())["key"]["trial"] == file_digest(fmu)
    go(one(build(tmp_path / "other.fmu", changes={'modelName="Faulty"': 'modelName="Other"'})))
    assert trials == ["sick", "sick"]


def test_without_a_folder_once_per_process_is_enough(
    fmu: Path, trials: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSIMO_CACHE", "off")
    for _ in range(3):
        go(one(fmu))
    assert trials == ["sick"]
    forget(monkeypatch)
    go(one(fmu))
    assert trials == ["sick", "sick"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("crash_instantiate", f"crashed in fmi2Instantiate: {SEGFAULT}"),
        ("crash_initialise", f"crashed in fmi2ExitInitializationMode: {SEGFAULT}"),
        ("segfault", f"crashed in fmi2DoStep: {SEGFAULT}"),
        ("exit", "the unit ended the process in fmi2DoStep (exit code 0)"),
        ("crash_terminate", f"crashed in fmi2Terminate: {SEGFAULT}"),
        ("crash_free", f"crashed in fmi2FreeInstance: {SEGFAULT}"),
    ],
)
def test_one_that_takes_its_process_down_is_isolated(fault: str, says: str, tmp_path: Path, trials: list[str]) -> None:
    system = one(build(tmp_path / "sick.fmu", early=fault))
    for _ in range(2):
        with pytest.raises(UnitCrashed):
            go(system)
    unit = system.units["sick"]
    assert isinstance(unit, Fmu)
    assert unit.isolated
    assert unit.notice.startswith(f"is isolated after a first trial ({says})")
    assert trials == ["sick"]  # decided
    with pytest.raises(UnitCrashed):
        go(one(unit.path))
    assert trials == ["sick", "sick"]  # but not remembered


def test_one_that_fails_alone_runs_isolated_and_says_so(fmu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "TRIAL_STEPS", 100)
    unit, warned = go(one(fmu, "segfault", at=0.5))
    assert unit.isolated
    (told,) = warned
    assert told.startswith(f"t = 0: unit 'sick' {NOTICE}")


def test_one_that_does_not_return_is_isolated_with_the_limit(fmu: Path) -> None:
    system = one(fmu, "hang")
    with guard_options(timeout=1.5), pytest.raises(UnitTimeout):
        go(system)
    unit = system.units["sick"]
    assert isinstance(unit, Fmu)
    assert unit.isolation is not None
    assert unit.isolation.timeout == 1.5
    assert "took longer in fmi2DoStep than its limit of 1.5 s" in unit.notice


def test_one_that_returns_an_error_stays_but_is_not_remembered(fmu: Path, trials: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        system = one(fmu, "error")
        with pytest.raises(UnitError, match="no fuel"):
            go(system)
        assert not system.units["sick"].isolated
    assert trials == ["sick", "sick"]
    assert not (tmp_path / "cache").exists()


def test_nothing_is_tried_that_was_decided(fmu: Path, trials: list[str]) -> None:
    for isolate in (False, "none", True, "all", Isolation()):
        unit, _ = go(one(fmu, isolate=isolate))
        assert unit.isolated == (isolate not in (False, "none"))
    assert trials == []
    with pytest.raises(ConfigurationError, match="'isolate' must be"):
        one(fmu, isolate="some")


@pytest.mark.parametrize(
    ("said", "isolated", "tried"),
    [
        ("", False, 1),
        ('isolate = "auto"\n', False, 1),
        ('isolate = "none"\n', False, 0),
        ("isolate = false\n", False, 0),
        ('isolate = "all"\n', True, 0),
        ("isolate = true\n", True, 0),
    ],
)
def test_a_scenario_says_it_in_the_same_words(
    said: str, isolated: bool, tried: int, fmu: Path, tmp_path: Path, trials: list[str]
) -> None:
    (tmp_path / "s.toml").write_text(f"step-size = 0.01\n[units.sick]\nfmu = {str(fmu)!r}\n{said}")
    unit, _ = go(load(tmp_path / "s.toml").system)
    assert (unit.isolated, len(trials)) == (isolated, tried)


def test_the_option_trusts_units_that_nobody_isolates(fmu: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("".join(f"[units.{name}]\nfmu = {str(fmu)!r}\n" for name in ("a", "b")))
    system = load(tmp_path / "s.toml").system
    with IsolationOptions(isolate=["a"], trust_units=True).around({}):
        isolate_units(system)
    assert [(u.isolated, u.trial) for u in system.units.values() if isinstance(u, Fmu)] == [(True, None), (False, None)]
    for all_of_them in ({"isolate": ["*"]}, {"sandbox": True}):
        with pytest.raises(ConfigurationError, match="--trust-units runs FMUs in this process"):
            IsolationOptions(**all_of_them, trust_units=True).require()  # type: ignore[arg-type]


def test_an_analysis_names_what_it_isolated(fmu: Path) -> None:
    system = one(fmu, "segfault")
    found = analyse(system, jacobi(system, 0.01), horizon=0.1)
    assert [note for note in found.notes if NOTICE in note]
    assert found.trust == "not assessed"


def test_a_study_decides_before_its_workers(fmu: Path, tmp_path: Path, trials: list[str]) -> None:
    path = tmp_path / scenario(tmp_path, fmu)
    sick = build(tmp_path / "sick.fmu", early="segfault")
    said = 'parameters = {fault = "", fault_time = 0.0}\n'
    path.write_text(path.read_text().replace(repr(str(fmu)), repr(str(sick)), 1).replace(said, ""))
    study = Study(path, Grid({"sound.amount": [0.0, 1.0]}))
    with Runner(study) as runner:
        decided = runner.study.isolation
    assert trials == ["sick", "sound"]
    assert decided["sound"] is None
    assert decided["sick"] is not None
    with Runner(runner.study):  # as a worker does
        pass
    assert trials == ["sick", "sound"]
    found = run_study(study, workers=1)
    assert trials == ["sick", "sound", "sick"]
    assert found.counts == {"ran": 0, "diverged": 0, "failed": 0, "crashed": 2}


def test_the_command_line_survives_the_first_crash_of_an_fmu(fmu: Path, tmp_path: Path) -> None:
    found = cosimo(tmp_path, "run", scenario(tmp_path, fmu, "segfault"))
    assert found.returncode == 4
    notice, line = found.stderr.splitlines()
    assert notice.startswith(f"warning: t = 0: unit 'sick' {NOTICE}")
    assert line == f"cosimo: sick · doStep · t = 0 s · – · crashed in fmi2DoStep: {SEGFAULT} · –"
