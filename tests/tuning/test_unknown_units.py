"""Tuning of units whose equations are not known: identified first, judged at their own steps, verified by running."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import cosimo as co
from cosimo.analysis.pilots import limit
from cosimo.cli import app
from cosimo.core.errors import ConfigurationError, Interrupted
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.formats.export import export_ssp
from cosimo.problems import find, two_mass
from cosimo.tuning import Settings, Space, tune
from cosimo.units import PythonUnit

PLAIN = Space(steps=(0.5, 1.0), families=("jacobi", "gauss-seidel"), kinds=(0, 1))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, found = tmp_path_factory.mktemp("packages"), {}
    for name in ("tank", "two-mass-damped"):
        problem = find(name)
        found[name] = folder / f"{name}.ssp"
        export_ssp(problem.system(), found[name], fmi=2, step=problem.step, stop=problem.stop)
    return found


def test_fmus_are_tuned_like_the_units_that_they_were_made_from(packages: dict[str, Path]) -> None:
    known, found = (
        tune(system, PLAIN, evaluations=20, horizon=100.0, settings=Settings(points=4))
        for system in (find("tank").system(), co.load(packages["tank"]).system)
    )
    assert found.model.valid
    assert not found.model.known
    assert (found.fields()["evidence"], known.fields()["evidence"]) == ("identified", "proved")
    assert [point.words for point in found.front] == [point.words for point in known.front]
    for ours, theirs in zip(found.front, known.front, strict=True):
        assert ours.error == pytest.approx(theirs.error, rel=1e-3)
        assert ours.robustness == pytest.approx(theirs.robustness, rel=1e-3)
    (entry,) = found.verify(1)
    assert entry.deviation < 0.01
    assert entry.measured.reference_error < 0.01 * entry.measured.error


def test_solvers_that_depend_on_the_step_are_identified_at_the_steps_of_the_front(packages: dict[str, Path]) -> None:
    """Symplectic Euler over the macro step: converted maps are wrong, those of the points are not."""
    space = Space(steps=(5e-4, 4e-3), families=("gauss-seidel",), kinds=(0,), order=("two", "one"))
    settings = Settings(points=3, identify_at=1e-3)
    found = tune(co.load(packages["two-mass-damped"]).system, space, evaluations=9, horizon=2.0, settings=settings)
    assert any("depend on the macro step" in note for note in found.notes)
    known = tune(find("two-mass-damped").system(), space, evaluations=9, horizon=2.0, settings=settings)
    truth = {point.step: point for point in known.front}
    assert {point.step for point in found.front} == set(truth)
    for point in found.front:
        assert point.radius == pytest.approx(truth[point.step].radius, abs=1e-7)
        assert point.error == pytest.approx(truth[point.step].error, rel=0.05)
    assert all(entry.deviation < 0.25 for entry in found.verify(2))


class Spring:
    """ẍ = −x − 0.4 ẋ + f with a solver of its own."""

    inputs, outputs = {"f": 0.0}, ("x",)

    def __init__(self, cubic: float = 0.0) -> None:
        self.x, self.v, self.cubic, self.f = 1.0, 0.0, cubic, 0.0

    def step(self, time: float, duration: float) -> None:
        micro = duration / 20
        for _ in range(20):
            self.v += micro * (self.f - self.x - self.cubic * self.x**3 - 0.4 * self.v)
            self.x += micro * self.v


def springs(cubic: float) -> co.System:
    lag = co.StateSpace(-2.0, 1.0, -0.5, inputs=["u"], outputs=["y"])
    units = {"spring": co.PythonUnit(Spring, cubic=cubic), "lag": lag}
    return co.System(units, [("spring.x", "lag.u"), ("lag.y", "spring.f")], name="springs")


def test_python_units_that_cannot_restore_are_not_iterated() -> None:
    system = springs(0.0)
    system.units["spring"].can_restore = False
    space = Space(steps=0.05, kinds=(0,))
    found = tune(system, space, evaluations=10, horizon=5.0, settings=Settings(points=3))
    assert not any("sweep" in point.words for point in found.front)
    assert any("spring cannot restore" in note for note in found.notes)
    assert found.verify(1)[0].deviation < 0.25


def test_a_motion_that_leaves_the_linear_range_is_said_so() -> None:
    space = Space(steps=0.05, kinds=(0,), families=("jacobi",))
    found = tune(springs(3.0), space, evaluations=5, horizon=5.0, settings=Settings(points=2))
    assert not found.model.valid
    assert found.fields()["evidence"] == "measured"
    assert any("leaves the range" in note for note in found.notes)
    # Every point shown was run.
    assert {point.errors.kind for point in found.front if point.errors} == {"measured"}
    (entry,) = found.verify(1)
    assert entry.deviation == 0.0


def test_the_largest_cost_holds_where_masters_are_run() -> None:
    """Two unit steps per macro step: 20 a second at 0.1 s, 40 at 0.05 s."""
    space = Space(steps=(0.05, 0.1), kinds=(0,), families=("jacobi",), max_cost=25.0)
    found = tune(springs(3.0), space, horizon=5.0)
    assert not found.model.valid
    assert [point.step for point in found.front] == [0.1]
    with pytest.raises(ConfigurationError, match="costs less than 5 per simulated second"):
        tune(springs(3.0), replace(space, max_cost=5.0), horizon=5.0)


def test_trial_steps_need_a_length() -> None:
    with pytest.raises(ConfigurationError, match=r"spring are not known.*identify_at"):
        tune(springs(0.0), evaluations=5)


def test_the_command_line_says_how_units_were_identified(packages: dict[str, Path], tmp_path: Path) -> None:
    arguments = ["tune", str(packages["tank"]), "--step-size", "0.5", "--masters", "gauss-seidel", "--stop-time", "50"]
    more = ["--couplings", "hold0", "--resume", str(tmp_path / "kept.npz"), "--json"]
    first, second = (
        json.loads(CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False).stdout) for _ in range(2)
    )
    assert first | {"wall_time": 0} == second | {"wall_time": 0}
    assert first["evidence"] == "identified"
    assert {unit["name"]: unit["means"] for unit in first["units"]}["tank"] == "derivatives"


@pytest.mark.parametrize("order", [1, 2])
def test_what_runs_with_halved_steps_tend_to(order: int) -> None:
    exact: Any = np.linspace(1.0, 2.0, 7)[:, None]
    levels = [exact * (1 + 0.1 / parts**order) for parts in (8, 16, 32)]
    truth, observed = limit(levels)
    assert truth.rows == pytest.approx(exact, rel=1e-9)
    assert observed == pytest.approx(order)
    # Of the change that the limit adds a tenth is in doubt, however alike the changes are.
    assert truth.own_error == pytest.approx(0.1 * 0.1 / 32**order, rel=0.01)


class Cubic:
    inputs, outputs = {"u": 0.0}, ("x",)

    def __init__(self) -> None:
        self.u, self.x = 0.0, 1.0

    def step(self, now: float, duration: float) -> None:
        self.x += duration * (self.u - self.x**3)


def test_ctrl_c_while_masters_are_measured_keeps_those_that_were() -> None:
    """The first master takes some runs; then three masters per step are run, until the interrupt."""
    links = [co.Connection("b.x", "a.u", gain=-1.0), co.Connection("a.x", "b.u")]
    system = co.System({"a": co.PythonUnit(Cubic), "b": co.PythonUnit(Cubic)}, links)
    whole = tune(system, horizon=2.0, present=co.masters.jacobi(system, 0.1), settings=Settings(identify_at=0.1))
    assert whole.fields()["evidence"] == "measured"
    runs: list[int] = []

    def interrupt(now: Any) -> None:
        runs.append(now.runs)
        if now.runs >= 12:
            raise KeyboardInterrupt

    with pytest.raises(
        Interrupted, match=r"interrupted after measuring \d+ masters; the best of these are shown"
    ) as caught:
        tune(
            system,
            horizon=2.0,
            present=co.masters.jacobi(system, 0.1),
            settings=Settings(identify_at=0.1),
            progress=interrupt,
        )
    found: Any = caught.value.result
    assert max(runs) == 12, "nothing was run after the interrupt"
    assert 0 < found.evaluations < whole.evaluations
    measured = {(point.master.name, point.step): point.error for point in whole.front}
    known = [point for point in found.front if (point.master.name, point.step) in measured]
    assert all(point.error == measured[point.master.name, point.step] for point in known)
    assert found.front


def test_units_without_slopes_try_substeps() -> None:
    class Lag:
        inputs, outputs = ("u",), ("y",)

        def __init__(self) -> None:
            self.y = 1.0

        def step(self, time: float, duration: float) -> None:
            e = math.exp(-duration)
            self.y = e * self.y + (1 - e) * self.u  # type: ignore[attr-defined]

    blunt = System({"a": PythonUnit(Lag), "b": PythonUnit(Lag)}, [("a.y", "b.u"), ("b.y", "a.u")])
    kinds = {kind for mapping in Space()._kinds(blunt) for _, kind in mapping}
    assert kinds == {0, "nepce", "hold1:4"}
    found = Space(steps=0.1).resolve(blunt, fastest=1.0, horizon=1.0).structures
    structure = next(s for s in found if "hold1:4" in str(s))
    assert structure.master(blunt, 0.1).coupling == Hold(1, substeps=4)
    assert {kind for mapping in Space()._kinds(two_mass()) for _, kind in mapping} == {0, 1, 2, "nepce"}
    assert {kind for mapping in Space(kinds=(0,))._kinds(blunt) for _, kind in mapping} == {0}
