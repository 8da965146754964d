"""`compare`: a run that was not seen to grow is not called stable."""

from __future__ import annotations

from cosimo import PythonUnit, System
from cosimo.analysis.model import Model
from cosimo.studies.trials import MasterTrial, combinations, reference, try_masters

STOP = 5.0


class Mass:
    inputs, outputs = {"f": 0.0}, ("x",)

    def __init__(self) -> None:
        self.x, self.v, self.f = 1.0, 0.0, 0.0

    def step(self, time: float, duration: float) -> None:
        for _ in range(20):
            self.v += duration / 20 * self.f
            self.x += duration / 20 * self.v


class Spring:
    inputs, outputs = {"x": 1.0}, ("f",)

    def __init__(self) -> None:
        self.x, self.f = 1.0, -10.0

    def step(self, time: float, duration: float) -> None:
        self.f = -10.0 * self.x


def tried(start: float = 0.0) -> dict[str, MasterTrial]:
    units = {"mass": PythonUnit(Mass), "spring": PythonUnit(Spring)}
    system = System(units, [("mass.x", "spring.x"), ("spring.f", "mass.f")])
    model = Model(system, step=0.01, horizon=STOP, start=start, identify=False)
    wanted = reference(system, step=0.01, start=start, stop=start + STOP, model=model)
    trials = try_masters(model, combinations(system, 0.01, "jacobi,gauss-seidel", "hold0"), wanted)
    return {trial.master.name.partition("(")[0]: trial for trial in trials if trial.master is not None}


def test_growth_that_a_short_run_cannot_show_is_left_open() -> None:
    """ρ(Φ) is 1.0007: amplitudes double every 9.4 s, and in 5 s the error is 44 %."""
    for trial in tried().values():
        assert trial.verdict is not None
        assert trial.verdict.stable is None
    assert tried()["jacobi"].verdict.headline == "Do not trust: spring.f is off by 44 %"  # type: ignore[union-attr]


def test_a_late_start_is_compared_until_its_end() -> None:
    verdict = tried(start=10.0)["jacobi"].verdict
    assert verdict is not None
    assert verdict.error is not None
    assert (verdict.start, verdict.error.until) == (10.0, "15 s")
