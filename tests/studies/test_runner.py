"""FMUs kept between the runs of a study: to the bit as fresh ones, or not kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from fmu_builder import build

import cosimo as co
from cosimo.core.errors import ConfigurationError
from cosimo.formats.export import export_system
from cosimo.studies import Grid, Outcome, Sample, Study, Uniform, run_study
from cosimo.studies.runner import LONG, Runner
from cosimo.units.fmi.archive import _folders
from cosimo.units.fmi.instance import Reserve

GAINS = [1.0, 3.0, 2.0, 3.0]


def two_mass(folder: Path, fmi: Any) -> co.System:
    system = co.problems.two_mass()
    files = export_system(system, folder, fmi=fmi)
    return co.System({name: co.Fmu(path) for name, path in files.items()}, system.connections)


def lag(folder: Path, *defines: str) -> Study:
    unit = co.Fmu(build(folder, "lag2", defines=defines))
    return Study(co.System({"lag": unit}), Grid({"lag.gain": GAINS}), ["final", "max"], step=0.1, stop=2.0)


def here(study: Study) -> Outcome:
    return run_study(study, workers=1)


@pytest.fixture(autouse=True)
def _no_run_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: after a long one, units are not kept."""
    monkeypatch.setattr("cosimo.studies.runner.LONG", np.inf)


@pytest.mark.parametrize("fmi", [2, 3])
@pytest.mark.parametrize("master", ["jacobi", "iterative"])
def test_reset_units_give_the_same_bits_as_fresh_ones(fmi: int, master: str, tmp_path: Path) -> None:
    """Iterating saves and restores states, which must not survive a reset either."""
    system = two_mass(tmp_path, fmi)
    fmus = {name: unit for name, unit in system.units.items() if isinstance(unit, co.Fmu)}
    values = Sample({"one.q1": Uniform(-1.0, 1.0), "two.v1": Uniform(-1.0, 1.0)}, runs=12, seed=1)
    made = getattr(co.masters, master)(system, 1e-3)
    study = Study(system, values, master=made, stop=0.5)
    with Runner(study) as runner:
        for place, (one, two) in enumerate(values.points().values):
            row, changed = runner.evaluate(place), {"one": {"q1": one}, "two": {"v1": two}}
            fresh = {name: unit.with_values(changed[name]) for name, unit in fmus.items()}
            result = co.run(co.System(fresh, system.connections), made, stop=0.5)
            wanted = [f(result[name]) for f in (lambda y: y[-1], np.min, np.max) for name in system.outputs]
            assert np.array_equal(np.array(row.measured, dtype=float), np.array(wanted)), place
        # Two for the first run, two for the run that the reset ones were compared with.
        assert runner.reserve.fresh == 4
        assert runner.reserve.reused >= 22
        assert runner.note == ""


def test_a_right_reset_is_used(tmp_path: Path) -> None:
    with Runner(lag(tmp_path)) as runner:
        rows = [runner.evaluate(place) for place in range(len(GAINS))]
        assert runner.reserve.reused == 3
    assert [row.measured[0] for row in rows] == pytest.approx([gain * (1 - 0.9**20) for gain in GAINS])


@pytest.mark.parametrize("habit", ["KEEPS_STATE", "KEEPS_GAIN"])
def test_a_wrong_reset_is_found_and_not_used(habit: str, tmp_path: Path) -> None:
    right, wrong = here(lag(tmp_path)), here(lag(tmp_path, habit))
    for name in ("final:lag.x", "max:lag.x"):
        assert np.array_equal(right[name], wrong[name])
    assert right.notes == ()
    assert "'lag.x' differed" in wrong.notes[0]
    assert "instantiated again" in wrong.notes[0]


def test_without_the_comparison_the_wrong_reset_would_show(tmp_path: Path) -> None:
    """The comparison is what keeps rows right: without it this unit gives other ones."""
    with Runner(lag(tmp_path, "KEEPS_STATE")) as runner:
        runner._tested = True
        rows = [runner.evaluate(place) for place in range(len(GAINS))]
    right = here(lag(tmp_path))["final:lag.x"]
    assert rows[0].measured[0] == right[0]
    assert rows[1].measured[0] != right[1]


@pytest.mark.parametrize("habit", ["REFUSES", "NO_RESET"])
def test_units_that_cannot_be_reset_are_made_anew(habit: str, tmp_path: Path) -> None:
    with Runner(lag(tmp_path, habit)) as runner:
        rows = [runner.evaluate(place) for place in range(len(GAINS))]
        assert (runner.reserve.fresh, runner.reserve.reused) == (len(GAINS), 0)
        assert len(_folders) == 1  # extracted once for all of them
    assert [row.measured[0] for row in rows] == here(lag(tmp_path))["final:lag.x"].tolist()
    assert not _folders


def test_after_an_error_the_next_run_has_a_fresh_unit(tmp_path: Path) -> None:
    study = lag(tmp_path)
    points = Grid({"lag.fail_at": [1e300, 1.0, 1e300, 1e300]})
    with Runner(Study(study.source, points, ["final"], step=0.1, stop=2.0)) as runner:
        rows = [runner.evaluate(place) for place in range(4)]
        assert [row.status for row in rows] == ["ran", "failed", "ran", "ran"]
        assert rows[0].measured == rows[2].measured == rows[3].measured
        assert "fmi2DoStep" in rows[1].message
        assert "'lag'" in rows[1].message
        # Fresh: at first, again when the reset unit gave the error, after the error, and for the comparison.
        assert runner.reserve.fresh == 4
        assert runner.note == ""


def test_one_instance_per_process_is_enough(tmp_path: Path) -> None:
    only = {"canHandleVariable": 'canBeInstantiatedOnlyOncePerProcess="true" canHandleVariable'}
    unit = co.Fmu(build(tmp_path, "lag2", changes=only))
    found = here(Study(co.System({"lag": unit}), Grid({"lag.gain": GAINS}), ["final"], step=0.1, stop=2.0))
    assert found.counts["ran"] == len(GAINS)


def test_a_unit_that_ends_its_own_process_is_a_row(tmp_path: Path) -> None:
    """In a process of its own it takes nothing with it, and the next run has a new one."""
    unit = co.Fmu(build(tmp_path, "lag2"), isolate=True)
    points = Grid({"lag.crash_at": [1e300, 1e300, 1.0, 1e300]})
    found = here(Study(co.System({"lag": unit}), points, ["final"], step=0.1, stop=2.0))
    assert found["status"].tolist() == ["ran", "ran", "crashed", "ran"]
    assert ("SIGABRT" if sys.platform == "win32" else "SIGKILL") in found["message"][2]  # how it ends itself there
    assert np.delete(found["final:lag.x"].astype(float), 2) == pytest.approx(1 - 0.9**20)


def test_long_runs_are_made_on_fresh_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LONG >= 0.5
    monkeypatch.setattr("cosimo.studies.runner.LONG", 0.0)
    with Runner(lag(tmp_path)) as runner:
        for place in range(len(GAINS)):
            runner.evaluate(place)
        assert (runner.reserve.fresh, runner.reserve.reused) == (len(GAINS), 0)
        assert runner.note == ""


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    before = set(_folders)
    here(lag(tmp_path))
    assert set(_folders) == before
    reserve = Reserve()
    unit = co.Fmu(build(tmp_path, "lag2")).with_values({}, reserve=reserve)
    co.run(co.System({"lag": unit}), co.masters.jacobi(co.System({"lag": unit}), 0.1), stop=1.0)
    assert len(_folders) == len(before) + 1
    reserve.close()
    assert set(_folders) == before


def test_values_of_a_copy_are_its_own(tmp_path: Path) -> None:
    unit = co.Fmu(build(tmp_path, "lag2"), parameters={"gain": 2.0})
    other = unit.with_values({"gain": 5.0})
    assert (unit.given["gain"], other.given["gain"]) == (2.0, 5.0)
    with pytest.raises(ConfigurationError, match="computed by the FMU"):
        unit.with_values({"x": 1.0})


@pytest.mark.parametrize(("name", "said"), [("lag.gian", "did you mean 'gain'"), ("lag.x", "computed by its unit")])
def test_names_that_cannot_be_varied(name: str, said: str, tmp_path: Path) -> None:
    system = lag(tmp_path).source
    with pytest.raises(ConfigurationError, match=said):
        here(Study(system, Grid({name: [1.0]}), step=0.1, stop=1.0))
