"""Studies: a thousand runs of FMUs on one and two worker processes, and per run against FMPy's simulate_fmu."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernel import as_fmus
from benchmarks.measure import Table, in_turns, scatter
from cosimo.core.system import System
from cosimo.formats.export import export_system
from cosimo.problems import two_mass
from cosimo.studies import Outcome, Sample, Study, Uniform, run_study
from cosimo.studies.pools import local_workers
from cosimo.units import Fmu

RUNS = 1000
STEP = 1e-3


def _load() -> str:
    return f"load average of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the end"


def _spent(client: Any = None) -> float:
    """CPU seconds so far of this process and of the workers."""
    others = client.run(os.times).values() if client is not None else ()
    return time.process_time() + sum(times.user + times.system for times in others)


def _equal(one: Outcome, other: Outcome) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in (*one.parameters, *one.measures))


def workers(repeat: int = 5) -> Table:
    """A thousand runs of the two-mass system as FMUs: this process, one worker process, two."""
    table = Table(
        f"A study of {RUNS:,} FMU runs",
        ("where", "seconds", "runs per second", "× one worker", "× this process", "CPU seconds, all processes"),
    )
    with tempfile.TemporaryDirectory() as folder, local_workers(1) as one, local_workers(2) as two:
        system = as_fmus(two_mass(), Path(folder))
        points = Sample({"one.v1": Uniform(50.0, 150.0), "two.q1": Uniform(-0.1, 0.1)}, runs=RUNS, seed=0)
        study = Study(system, points, ["max:two.x", "rms:one.f"], step=STEP, stop=20.0)
        places: dict[str, Any] = {"this process": None, "one worker": one, "two workers": two}
        spent: dict[str, list[float]] = {name: [] for name in places}
        outcomes: dict[str, Outcome] = {}

        def work(name: str) -> None:
            before = _spent(places[name])
            outcomes[name] = run_study(study, client=places[name], workers=None if places[name] else 1)
            spent[name].append(_spent(places[name]) - before)

        found = in_turns({name: partial(work, name) for name in places}, repeat, time.perf_counter)
        assert all(_equal(outcome, outcomes["this process"]) for outcome in outcomes.values())
        assert outcomes["this process"].counts["ran"] == RUNS
    for name in places:
        took, ratios = found.median(name), (found.ratio(other, name) for other in ("one worker", "this process"))
        table.add(name, f"{took:.2f}", f"{RUNS / took:,.0f}", *ratios, f"{np.median(spent[name]):.2f}")
    table.note = (
        f"Two FMI 2 FMUs coupled (two-mass), 20,000 macro steps per run, two parameters drawn; wall time, medians of "
        f"{repeat} turns, ratios are those within a turn, with their quartiles. Worker processes are there already "
        f"(starting two takes a few seconds), describing, sending and collecting are counted. Where others use the "
        f"machine, the CPU seconds tell what free cores would make of it. "
        f"All rows equal to the bit. {_load()[0].upper()}{_load()[1:]}."
    )
    return table


def fmpy(repeat: int = 5, single: int = 40) -> Table:
    """One run of one FMU inside a study, against FMPy."""
    from fmpy import extract, read_model_description, simulate_fmu
    from fmpy.simulation import instantiate_fmu

    table = Table("One run in a study, against FMPy", ("how", "ms per run", "× study"))
    with tempfile.TemporaryDirectory() as folder:
        path = export_system(two_mass(), Path(folder), fmi=2)["one"]
        points = Sample({"one.v1": Uniform(50.0, 150.0)}, runs=RUNS, seed=0)
        study = Study(System({"one": Fmu(path)}), points, ["final"], step=STEP, stop=1.0)
        velocities = points.points().values[:single, 0].tolist()
        unzipped = extract(str(path), str(Path(folder) / "unzipped"))
        description = read_model_description(unzipped)
        options: dict[str, Any] = {"stop_time": 1.0, "step_size": STEP, "output_interval": STEP}
        options |= {"fmi_type": "CoSimulation", "output": ["f"]}
        live = instantiate_fmu(unzipped, description, "CoSimulation")

        def final(target: str, velocity: float, **more: Any) -> float:
            return float(simulate_fmu(target, start_values={"v1": velocity}, **options, **more)["f"][-1])

        def reused(velocity: float) -> float:
            live.reset()
            again = {"model_description": description, "fmu_instance": live, "terminate": False}
            return final(unzipped, velocity, **again)

        peers: dict[str, Callable[[float], float]] = {
            "FMPy, simulate_fmu(file)": lambda v: final(str(path), v),
            "FMPy, extracted and described once": lambda v: final(unzipped, v, model_description=description),
            "FMPy, instance reset and reused": reused,
        }
        outcomes: list[Outcome] = []
        finals: dict[str, list[float]] = {}

        def call(name: str) -> None:
            finals[name] = [peers[name](v) for v in velocities]

        works = {"study": lambda: outcomes.append(run_study(study, workers=1))}
        found = in_turns(works | {name: partial(call, name) for name in peers}, repeat, time.perf_counter)
        live.terminate()
        live.freeInstance()
    for name, values in finals.items():
        assert np.allclose(values, outcomes[0]["final:one.f"][:single], rtol=1e-9), name
    each = {name: found.each(name) / (RUNS if name == "study" else single) for name in found.seconds}
    for name, took in each.items():
        label = f"study of {RUNS:,} runs, one process" if name == "study" else name
        ratio = scatter(took / each["study"], 1) if name != "study" else "1"
        table.add(label, f"{np.median(took) * 1e3:.2f}", ratio)
    table.note = (
        f"The same FMU (unit `one` of two-mass), 1,000 steps of 1 ms, its output at every step, one start value drawn; "
        f"wall time, medians of {repeat} turns with {single} calls of FMPy each; ratios are those within a turn, with "
        "their quartiles. Final values agree to 1e-9. "
        f"{_load()[0].upper()}{_load()[1:]}."
    )
    return table


if __name__ == "__main__":
    for made in (workers(), fmpy()):
        print(made.markdown())
