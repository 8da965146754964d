"""Studies in one process: what is run, what is kept, what fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cosimo as co
from cosimo.analysis.error_norms import nrms
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.formats.results import ResultFile
from cosimo.masters.words import MasterOptions
from cosimo.studies import Grid, Outcome, Points, Sample, Study, Uniform, run_study


class Pump:
    """A Python unit with a parameter, an input of its own, and a value at which it breaks."""

    inputs, outputs = {"speed": 1.0}, ("flow",)

    def __init__(self, gain: float = 1.0, breaks: float = np.inf) -> None:
        self.gain, self.breaks, self.flow = gain, breaks, 0.0

    def step(self, time: float, duration: float) -> None:
        if self.gain > self.breaks:
            raise RuntimeError("the shaft broke")
        self.flow += duration * (self.gain * self.speed - self.flow)  # type: ignore[attr-defined]


def here(study: Study) -> Outcome:
    return run_study(study, workers=1)


def test_every_row_is_the_run_it_says() -> None:
    points = Sample({"kc": Uniform(50.0, 150.0), "step": Uniform(1e-3, 5e-3)}, runs=6, seed=2)
    kinds = ["final", "min", "max", "mean", "rms"]
    found = here(
        Study("two-mass", points, [f"{kind}:two.x" for kind in kinds], MasterOptions("gauss-seidel"), stop=1.0)
    )
    assert found.complete
    assert found.counts == {"ran": 6, "diverged": 0, "failed": 0, "crashed": 0}
    for place, (kc, step) in enumerate(points.points().values):
        system = co.problems.two_mass(kc=kc)
        x = co.run(system, co.masters.gauss_seidel(system, step), stop=1.0)["two.x"]
        wanted = [x[-1], x.min(), x.max(), x.mean(), np.sqrt(np.mean(x * x))]
        assert [found[f"{kind}:two.x"][place] for kind in kinds] == wanted
        assert (found["kc"][place], found["step"][place]) == (kc, step)


def test_errors_are_those_against_the_exact_solution() -> None:
    study = Study("two-mass", Grid({"step": [1e-3, 2e-3, 4e-3]}), ["error:two.x", "nrms:two.x"], stop=2.0)
    found = here(study)
    errors, spread = found["error:two.x"], found["nrms:two.x"]
    # First order: twice the step, twice the error, or a little more where the coupling is close to unstable.
    assert [spread[1] / spread[0], spread[2] / spread[1]] == pytest.approx([2.0, 2.0], rel=0.15)
    system = co.problems.two_mass()
    fine = co.run(system, co.masters.gauss_seidel(system, 1e-5, coupling=co.couplings.Hold(1)), stop=2.0)["two.x"]
    for place, step in enumerate((1e-3, 2e-3, 4e-3)):
        rough = co.run(system, co.masters.jacobi(system, step), stop=2.0)["two.x"]
        true = fine[:: round(step / 1e-5)]
        assert errors[place] == pytest.approx(np.abs(rough - true).max() / np.abs(fine).max(), rel=0.02)
        assert spread[place] == pytest.approx(nrms(rough, true), rel=0.02)


def test_the_error_of_a_row_is_that_of_the_verdict() -> None:
    """Predicted from the matrix there, measured in the run here: of linear units the same number."""
    found = here(Study("two-mass", Grid({"step": [5e-4, 2e-3]}), ["error"], stop=2.0))
    system = co.problems.two_mass()
    for place, step in enumerate((5e-4, 2e-3)):
        verdict = co.analyse(system, co.masters.jacobi(system, step), horizon=2.0)
        assert verdict.error is not None
        row = {name: found[f"error:{name}"][place] for name in system.outputs}
        assert row == pytest.approx(dict(verdict.error.outputs), rel=1e-6)
        assert found["trust"][place] == verdict.trust


def test_every_row_has_its_trust() -> None:
    """Accurate, too rough, unstable; a run that could not be made; units of which nothing is known."""
    study = Study("two-mass-damped", Grid({"step": [1e-4, 1e-3, 4e-3, 50.0]}), ["stable"], stop=2.0)
    found = here(study)
    assert found["status"].tolist() == ["ran", "ran", "ran", "failed"]
    assert found["trust"].tolist() == ["yes", "no", "no", "no"]
    assert found.trust == {"yes": 1, "with care": 0, "no": 3, "not assessed": 0}
    # Up to five targets with care: 0.8 %, 8 %; what is unstable stays so.
    assert here(replace(study, target=0.02))["trust"].tolist() == ["yes", "with care", "no", "no"]
    assert here(replace(study, target=0.5))["trust"].tolist() == ["yes", "yes", "no", "no"]
    pump = co.System({"pump": co.PythonUnit(Pump)})
    assert here(Study(pump, Grid({"pump.gain": [1.0]}), ["final"], step=0.1, stop=1.0))["trust"].tolist() == [
        "not assessed"
    ]


def test_errors_against_a_file_find_the_parameter_it_was_made_with(tmp_path: Path) -> None:
    system = co.problems.two_mass(kc=120.0)
    measured = tmp_path / "measured.csv"
    co.run(system, co.masters.jacobi(system, 1e-3), stop=2.0, output=ResultFile(measured, every=2))
    study = Study("two-mass", Grid({"kc": [100.0, 110.0, 120.0, 130.0]}), ["error:two.x"], stop=2.0, reference=measured)
    errors = here(study)["error:two.x"]
    assert errors.argmin() == 2
    # What is left is the interpolation between every second point, at most (33 rad/s · 2 ms)² / 8 of the amplitude.
    assert errors[2] < 1e-3 < 0.02 < min(errors[1], errors[3])


def test_stability_by_the_matrix_and_by_the_run() -> None:
    points = Grid({"step": [1e-3, 4e-3]})
    found = here(Study("two-mass-damped", points, ["stable", "radius"], stop=20.0))
    assert found["stable"].tolist() == [1.0, 0.0]
    assert found["radius"][0] < 1 < found["radius"][1]
    nonlinear = Study("oscillator-nonlinear", Points(["step"], [[0.002], [0.05]]), ["stable"], stop=10.0)
    # Where the run cannot tell (here its motion comes away from that of finer runs), there is no number.
    assert here(nonlinear).table.column("stable").to_pylist() == [None, 0.0]


class Motion:
    """x' = rate · x, of which no equations are known."""

    inputs, outputs = (), ("x",)

    def __init__(self, rate: float = -1.0) -> None:
        self.rate, self.x = rate, 1.0

    def step(self, time: float, duration: float) -> None:
        self.x *= float(np.exp(self.rate * duration))


def test_a_unit_that_grows_by_itself_is_not_called_stable() -> None:
    system = co.System({"a": co.PythonUnit(Motion)})
    points = Grid({"a.rate": [-1.0, 1.0]})
    found = here(Study(system, points, ["stable"], step=0.01, stop=5.0)).table.column("stable").to_pylist()
    assert found[0] == 1.0
    assert found[1] != 1.0


def test_divergence_is_a_row() -> None:
    points = Grid({"step": [1e-3, 0.1]})
    found = here(Study("two-mass", points, ["max:two.x", "stable"], stop=100.0))
    assert found["status"].tolist() == ["ran", "diverged"]
    assert np.isfinite(found["max:two.x"][0])
    assert found.table.column("max:two.x").to_pylist()[1] is None
    assert found["stable"][1] == 0.0
    assert "two." in found["message"][1] or "one." in found["message"][1]
    growing = Study("two-mass", Grid({"step": [1e-3, 0.02]}), ["stable"], stop=100.0, stop_on_divergence=True)
    stopped = here(growing)
    assert stopped["status"].tolist() == ["ran", "diverged"]
    assert "stopped at t" in stopped["message"][1]
    assert here(replace(growing, stop_on_divergence=False))["status"].tolist() == ["ran", "ran"]


def test_failing_points_are_rows_and_the_others_are_made() -> None:
    system = co.System({"pump": co.PythonUnit(Pump, breaks=2.5)})
    found = here(Study(system, Grid({"pump.gain": [1.0, 2.0, 3.0, 2.2]}), ["final"], step=0.1, stop=1.0))
    assert found["status"].tolist() == ["ran", "ran", "failed", "ran"]
    assert "pump" in found["message"][2]
    assert "the shaft broke" in found["message"][2]
    assert found.failures() == [(2, "failed", found["message"][2])]
    assert found["final:pump.flow"][[0, 1, 3]] == pytest.approx((1 - 0.9**10) * np.array([1.0, 2.0, 2.2]))
    spread = found.spread("final:pump.flow")
    assert spread is not None
    assert (spread.count, spread.least_at, spread.most_at) == (3, 0, 3)


def test_points_that_cannot_be_built_are_rows_too() -> None:
    found = here(Study("chain", Grid({"n": [2.0, 2.5, 3.0]}), ["stable"], stop=0.1))
    assert found["status"].tolist() == ["ran", "failed", "ran"]
    assert "whole number" in found["message"][1]
    long = here(Study("two-mass", Grid({"step": [1e-3, 5.0]}), ["stable"], stop=1.0))
    assert long["status"].tolist() == ["ran", "failed"]
    assert "longer than the run" in long["message"][1]


def test_warnings_are_kept() -> None:
    found = here(Study("two-mass", Grid({"step": [3e-3]}), ["final:two.x"], stop=1.0))
    assert found["status"].tolist() == ["ran"]
    assert "not a multiple of the step size" in found["message"][0]


def test_inputs_of_units_can_be_varied_and_measured() -> None:
    system = co.System({"pump": co.PythonUnit(Pump)})
    study = Study(system, Grid({"pump.speed": [1.0, 2.0]}), ["final", "max:pump.speed"], step=0.1, stop=1.0)
    found = here(study)
    assert found["final:pump.flow"] == pytest.approx((1 - 0.9**10) * np.array([1.0, 2.0]))
    assert found["max:pump.speed"].tolist() == [1.0, 2.0]


def test_rows_of_a_unit_whose_code_has_changed_are_not_mixed_with_new_ones() -> None:
    """Of a class that is in no file, such as one made in a notebook, its code counts; of others, their file."""

    def slower(self: Pump, time: float, duration: float) -> None:
        self.flow += duration * (self.gain * self.speed - 2 * self.flow)  # type: ignore[attr-defined]

    kinds = [type("Made", (Pump,), {"__module__": "made", "step": step}) for step in (Pump.step, slower, Pump.step)]
    found = []
    for kind in kinds:
        study = Study(co.System({"pump": co.PythonUnit(kind)}), Grid({"pump.gain": [1.0]}), step=0.1, stop=1.0)
        found.append(here(study).document["fingerprint"])
    assert found[0] == found[2] != found[1]


def test_a_master_made_in_code() -> None:
    system = co.problems.two_mass()
    master = co.masters.iterative(system, 2e-3, sweeps=3)
    found = here(Study(system, Grid({"step": [2e-3, 1e-3]}), ["final:two.x"], master, stop=1.0))
    for place, step in enumerate((2e-3, 1e-3)):
        assert found["final:two.x"][place] == co.run(system, master.with_step(step), stop=1.0)["two.x"][-1]


def test_scenarios_with_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "masses.toml"
    file.write_text('step-size = 0.002\nstop-time = 1.0\nproblem = "two-mass"\n[master]\nname = "gauss-seidel"\n')
    found = here(Study(file, Grid({"kc": [100.0]}), ["final:two.x"], settings={"m1": 2.0}))
    system = co.problems.two_mass(m1=2.0)
    assert found["final:two.x"][0] == co.run(system, co.masters.gauss_seidel(system, 2e-3), stop=1.0)["two.x"][-1]


def test_correlations_tell_what_matters() -> None:
    points = Sample({"kc": Uniform(90.0, 110.0), "damping": Uniform(0.09, 0.11)}, runs=30, seed=4)
    spread = here(Study("two-mass", points, ["max:two.x"], stop=1.0)).spread("max:two.x")
    assert spread is not None
    assert abs(spread.correlations["kc"] or 0) > 0.9 > 0.5 > abs(spread.correlations["damping"] or 0)
    assert spread.least < spread.low < spread.median < spread.high < spread.most


@pytest.mark.parametrize(
    ("points", "options", "said"),
    [
        ({"kd": [1.0]}, {}, "unknown parameter of 'two-mass' 'kd'"),
        ({"one.x9": [1.0]}, {}, "unknown parameter or input of unit 'one' 'x9'"),
        ({"one.x2": [1.0]}, {}, "one.x2 is fed by two.x"),
        ({"kc": [1.0]}, {"measures": ["speed:two.x"]}, "unknown measure 'speed'"),
        ({"kc": [1.0]}, {"measures": ["max:two.y"]}, "two.y"),
        ({"kc": [1.0]}, {"measures": ["stable:two.x"]}, "leave 'two.x' out"),
        ({"kc": [1.0]}, {"measures": []}, "at least one measure"),
        ({"kc": [1.0]}, {"measures": "max"}, "sequence of words"),
        ({"kc": [1.0]}, {"measures": ["error"], "reference": "fin"}, "fin"),
        ({"kc": [1.0]}, {"settings": {"kc": 1.0}}, "varied and fixed"),
        ({"kc": [1.0]}, {"settings": {"kx": 1.0}}, "kx"),
        ({"step": [0.1]}, {"step": 0.1}, "varied and fixed"),
        ({"kc": [1.0]}, {"stop": np.nan}, "finite"),
        ({"kc": [1.0]}, {"master": MasterOptions("jacobbi")}, "did you mean 'jacobi'"),
    ],
)
def test_wrong_studies_are_refused_before_anything_runs(
    points: dict[str, list[float]], options: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        here(Study("two-mass", Grid(points), **options))  # type: ignore[arg-type]


def test_wrong_systems() -> None:
    system = co.problems.two_mass()
    with pytest.raises(UnknownNameError, match="step"):
        here(Study(system, Grid({"kc": [1.0]}), stop=1.0, step=0.1))
    with pytest.raises(ConfigurationError, match="stop"):
        here(Study(system, Grid({"step": [0.1]})))
    with pytest.raises(ConfigurationError, match="step size"):
        here(Study(co.System({"pump": co.PythonUnit(Pump)}), Grid({"pump.gain": [1.0]}), stop=1.0))
    with pytest.raises(ConfigurationError, match="runs only with the system it was built for"):
        Study("two-mass", Grid({"kc": [1.0]}), master=co.masters.jacobi(system, 0.1))
    with pytest.raises(ConfigurationError, match="at least 1"):
        run_study(Study("two-mass", Grid({"kc": [1.0]})), workers=0)
    with pytest.raises(ConfigurationError, match="only one of workers, scheduler"):
        run_study(Study("two-mass", Grid({"kc": [1.0]})), workers=2, scheduler="tcp://nowhere:1")
