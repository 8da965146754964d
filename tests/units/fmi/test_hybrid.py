"""Couplings of units with events, whose answers are known exactly: when each event is, and who sees it when."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from fmpy import simulate_fmu
from fmu_builder import build
from hybrid import build_model

import cosimo as co
from cosimo.execution.options import EngineOptions
from cosimo.units.fmi.component import FMU2Library
from cosimo.units.fmi.fmu import Fmu, FmuOptions
from cosimo.units.fmi.model_exchange import Solver

G, HEIGHT = 9.81, 1.0
FALL = math.sqrt(2.0 * HEIGHT / G)
RK4 = FmuOptions(solver=Solver("rk4"))
engines = pytest.mark.parametrize("engine", ["kernel", "reference"])
versions = pytest.mark.parametrize("version", [2, 3])


def bounces(e: float, until: float) -> list[float]:
    """When a ball that falls from `HEIGHT` meets the floor: FALL, then after flights of 2 FALL e^k."""
    times, k = [FALL], 1
    while times[-1] + 2.0 * FALL * e**k <= until:
        times.append(times[-1] + 2.0 * FALL * e**k)
        k += 1
    return times


@engines
@versions
def test_two_integrators_are_reset_at_one_instant(tmp_path: Path, version: int, engine: str) -> None:
    """Both meet the floor at FALL, between two communication points, and leave it as fast as each rebounds."""
    path = build_model(tmp_path, "BALL", version)
    losses = {"a": 0.7, "b": 0.5}
    balls = {name: Fmu(path, name=name, parameters={"e": e}, options=RK4) for name, e in losses.items()}
    system = co.System(balls)
    found = co.run(system, co.masters.jacobi(system, step=0.05), stop=0.6, engine=EngineOptions(kind=engine))
    row = int(np.argmax(found.time > FALL))
    for name, e in losses.items():
        assert bounces(e, 0.6) == [FALL]
        assert (found[f"{name}.v"][:row] <= 0.0).all()
        # v = e g FALL − g (t − event): where the event was, from the first row after it.
        event = found.time[row] - (e * G * FALL - found[f"{name}.v"][row]) / G
        assert abs(event - FALL) < 1e-9
    assert np.array_equal(found["a.h"][:row], found["b.h"][:row])


class Counter:
    """Counts how often its input turned from negative to positive."""

    inputs, outputs = {"v": 0.0}, ("count",)

    def __init__(self) -> None:
        self.count, self._before = 0, 0.0

    def step(self, time: float, duration: float) -> None:
        self.count += self._before < 0.0 < self.v
        self._before = self.v


@engines
@pytest.mark.parametrize("order", ["jacobi", "gauss_seidel"])
def test_a_detector_of_crossings_and_a_counter(tmp_path: Path, order: str, engine: str) -> None:
    """Every crossing counts, at the communication point after it, or with Jacobi one macro step later."""
    ball = Fmu(build_model(tmp_path, "BALL", 2), options=RK4)
    system = co.System({"ball": ball, "counter": co.PythonUnit(Counter)}, [("ball.v", "counter.v")])
    master = getattr(co.masters, order)(system, step=0.02)
    found = co.run(system, master, stop=1.6, engine=EngineOptions(kind=engine))
    events = np.array(bounces(0.7, 1.6))
    late = 0.02 if order == "jacobi" else 0.0
    expected = [int((events <= time - late + 1e-12).sum()) for time in found.time]
    assert len(events) == 3
    assert found["counter.count"].tolist() == expected


@engines
@versions
@pytest.mark.parametrize("order", ["jacobi", "gauss_seidel"])
def test_a_sample_and_an_event_of_the_plant_at_one_instant(
    tmp_path: Path, version: int, order: str, engine: str
) -> None:
    """The plant rises by one every 0.1 s, and the clock of the controller ticks at every second of these instants.

    Gauss–Seidel gives the controller what the plant has after its event, Jacobi what it had one macro step before.
    """
    plant = Fmu(build_model(tmp_path, "STAIRS", version))
    ticks = {'intervalDecimal="0.25" shiftDecimal="0.125"': 'intervalDecimal="0.2"'}
    sampler = Fmu(build(tmp_path, "clocks3", changes=ticks), isolate=False)
    system = co.System({"plant": plant, "controller": sampler}, [("plant.y", "controller.u")])
    master = getattr(co.masters, order)(system, step=0.1)
    found = co.run(system, master, stop=2.0, engine=EngineOptions(kind=engine))
    assert found["plant.y"].tolist() == list(range(21))
    assert found["controller.count"].tolist() == [k // 2 + 1 for k in range(21)]
    last = [k - k % 2 for k in range(21)]
    early = 1 if order == "jacobi" else 0
    assert found["controller.sample"].tolist() == [max(k - early, 0) for k in last]
    slow = [0.5 * (k // 5) for k in range(21)]
    assert found["controller.last"].tolist() == [max(0.2 * (k // 2), s) for k, s in zip(last, slow, strict=True)]


CS = ["lag2", "feedthrough2", "feedthrough3", "arrays3", "texts3"]


@pytest.mark.parametrize("name", CS)
def test_a_co_simulation_fmu_has_the_numbers_of_fmpy_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # FMPy refuses libraries without optional functions.
    monkeypatch.setattr("fmpy.fmi1._FMU._loadFunctions", FMU2Library._loadFunctions)
    path = build(tmp_path, name)
    unit = Fmu(path, isolate=False)
    system = co.System({"a": unit})
    found = co.run(system, co.masters.jacobi(system, step=0.125), stop=2.0)
    owners = list(dict.fromkeys(unit.owners[output] for output in unit.outputs))
    scalars = (info for info in unit.input_infos if info.element is None and info.type != "Enumeration")
    arrays = dict.fromkeys(unit.owners[info.name] for info in unit.input_infos if info.element is not None)
    start = {info.name: info.start for info in scalars}
    start |= {owner: [unit.variables[element].start for element in unit.elements_of(owner)] for owner in arrays}
    owners = [owner for owner in owners if not owner.lower().startswith("enum")]  # FMPy wants their names
    known = simulate_fmu(path, stop_time=2.0, output_interval=0.125, output=owners, start_values=start)
    assert np.array_equal(found.time, known["time"])
    for owner in owners:
        columns = np.stack([found[f"a.{element}"] for element in unit.elements_of(owner)], axis=-1)
        assert np.array_equal(columns.ravel(), known[owner].astype(float).ravel()), owner
