"""Units on other hosts, in network namespaces with added latency: macro steps per second, beside the bound that the
latency sets and a plain HELICS federation of the same FMUs; and what two workers gain for two heavy units.

`python -m benchmarks.hosts run JOBS`, `… federate FOLDER NAME` and `… bare FOLDER NAME` are the programs inside the
namespaces.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Table, scatter

ROOT = Path(__file__).parents[1]
LATENCIES = (0.0, 0.2e-3, 5e-3)
MASTERS: dict[str, dict[str, Any]] = {
    "Jacobi": {"name": "jacobi"},
    "Gauss–Seidel": {"name": "gauss-seidel"},
    "iterative, 3 sweeps": {"name": "iterative", "sweeps": 3},
    "compensated Jacobi": {"name": "jacobi", "follow": "exact"},
}
STEP = 1e-3
SELF = [sys.executable, "-m", "benchmarks.hosts"]


def round_trips(master: str, units: int) -> int:
    """How often one macro step waits for an answer."""
    return {"Gauss–Seidel": units, "iterative, 3 sweeps": 3}.get(master, 1)


def steps_for(trips: int, latency: float) -> int:
    """So many macro steps that they take a second or two."""
    return max(20, min(200, int(1.0 / (trips * (2 * latency + 1.5e-3)))))


# ---- what runs in the namespaces -------------------------------------------------------------------------------------


def run_jobs(path: str) -> None:
    """Run each scenario of a list with its master: seconds for stepping, and a sum of all rows to the bit."""
    import cosimo as co
    from cosimo.execution.options import EngineOptions
    from cosimo.masters import MasterOptions

    designs: dict[str, Any] = {}  # made on one machine: a compensation needs thousands of steps
    for job in json.loads(Path(path).read_text()):
        scenario = co.load(job["file"])
        scenario = scenario.changed(stop=job["steps"] * scenario.step, options=MasterOptions(**job["master"]))
        if (words := str(job["master"])) not in designs:
            designs[words] = scenario.master
        result = scenario.run(master=designs[words], engine=EngineOptions(parallel=False))
        rows = np.column_stack([result.time, result.to_numpy()])
        digest = hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()
        print(json.dumps({"seconds": result.info["stepping_time"], "digest": digest}), flush=True)


def run_federate(place: str, name: str) -> None:
    """An FMU as a federate by FMPy and HELICS alone: takes inputs, steps, publishes (FGH). Its seconds per step."""
    import helics as h
    from fmpy import extract, read_model_description
    from fmpy.simulation import instantiate_fmu

    told = json.loads(Path(place, "plain.json").read_text())
    own = told["units"][name]
    unzipped = extract(own["file"])
    description = read_model_description(unzipped)
    references = {variable.name: variable.valueReference for variable in description.modelVariables}
    unit = instantiate_fmu(unzipped, description, "CoSimulation")
    unit.setupExperiment(startTime=0.0)
    unit.enterInitializationMode()
    unit.exitInitializationMode()
    info = h.helicsCreateFederateInfo()
    h.helicsFederateInfoSetCoreTypeFromString(info, "zmq")
    h.helicsFederateInfoSetCoreInitString(info, f"--federates=1 {told['broker']}")
    h.helicsFederateInfoSetTimeProperty(info, h.HELICS_PROPERTY_TIME_PERIOD, STEP)
    federate = h.helicsCreateValueFederate(name, info)
    outputs = [references[variable] for variable in own["outputs"]]
    published = [
        h.helicsFederateRegisterPublication(federate, v, h.HELICS_DATA_TYPE_DOUBLE, "") for v in own["outputs"]
    ]
    taken = [
        (references[v], gain, h.helicsFederateRegisterSubscription(federate, key, "")) for v, gain, key in own["inputs"]
    ]
    h.helicsFederateEnterInitializingMode(federate)
    for publication, value in zip(published, unit.getReal(outputs), strict=True):
        h.helicsPublicationPublishDouble(publication, value)
    h.helicsFederateEnterExecutingMode(federate)
    begin = time.perf_counter()
    for k in range(told["steps"]):
        h.helicsFederateRequestNextStep(federate)
        unit.setReal([one for one, _, _ in taken], [gain * h.helicsInputGetDouble(s) for _, gain, s in taken])
        unit.doStep(k * STEP, STEP)
        time.sleep(told["sleep"])
        for publication, value in zip(published, unit.getReal(outputs), strict=True):
            h.helicsPublicationPublishDouble(publication, value)
    print((time.perf_counter() - begin) / told["steps"], flush=True)
    h.helicsFederateDisconnect(federate)
    h.helicsCloseLibrary()


def run_bare(place: str, name: str) -> None:
    """Commands of HELICS alone, as a run and its workers exchange them: the run (no name) sends one to each worker, who
    sleeps and answers. The seconds that this takes."""
    import helics as h

    told = json.loads(Path(place, "bare.json").read_text())
    address, _, port = told["broker"].rpartition(":")
    if not name:
        words = f"--federates=9 --port={port} --local_interface={address} --loglevel=no_print"
        broker = h.helicsCreateBroker(told["core"], "", words + (" --reuse_address" if told["core"] == "tcp" else ""))
    info = h.helicsCreateFederateInfo()
    h.helicsFederateInfoSetCoreTypeFromString(info, told["core"])
    words = f"--federates=1 --broker_address={address} --brokerport={port} --loglevel=no_print"
    h.helicsFederateInfoSetCoreInitString(info, words)
    federate = h.helicsCreateCombinationFederate(name or "run", info)
    if name:
        h.helicsFederateSendCommand(federate, "run", name)
        while h.helicsFederateWaitCommand(federate) != "end":
            time.sleep(told["sleep"])
            h.helicsFederateSendCommand(federate, "run", "x" * 100)
        os._exit(0)
    there = [h.helicsFederateWaitCommand(federate) for _ in range(told["workers"])]
    took = np.zeros(told["steps"])
    for k in range(told["steps"]):
        begin = time.perf_counter()
        for worker in there:
            h.helicsBrokerSendCommand(broker, worker, "x" * 100, None)
        for _ in there:
            h.helicsFederateWaitCommand(federate)
        took[k] = time.perf_counter() - begin
    print(took.mean(), flush=True)
    for worker in there:
        h.helicsFederateSendCommand(federate, worker, "end")
    time.sleep(0.2)
    os._exit(0)


def run_broker(words: str) -> None:
    """A HELICS broker, until its federates have left."""
    import helics as h

    broker = h.helicsCreateBroker("zmq", "", words)
    print("ready", flush=True)
    h.helicsBrokerWaitForDisconnect(broker, -1)


# ---- two and eight hosts ---------------------------------------------------------------------------------------------


def write_chain(folder: Path, units: int, table: str) -> dict[str, Any]:
    """A chain of oscillators as FMUs: `here.toml`, and `there.toml` with each on a host of its own; for `run_federate`
    what they exchange."""
    from cosimo.formats.export import export_system
    from cosimo.problems import chain

    system = chain(n=units)
    files = export_system(system, folder, fmi=2)
    links = [f'{{ from = "{c.source}", to = "{c.target}", gain = {c.gain!r} }}' for c in system.connections]
    for name, where in (("here", ""), ("there", table)):
        text = f"step-size = {STEP}\nconnections = [{', '.join(links)}]\n"
        for number, (unit, file) in enumerate(files.items()):
            text += f'[units.{unit}]\nfmu = "{file.name}"\n' + (f'host = "host{number + 1}"\n' if where else "")
        (folder / f"{name}.toml").write_text(text + where)
    return {
        unit: {
            "file": str(file),
            "outputs": list(system.units[unit].outputs),
            "inputs": [
                [c.target.partition(".")[2], c.gain, c.source.replace(".", "/")]
                for c in system.connections
                if c.target.partition(".")[0] == unit
            ],
        }
        for unit, file in files.items()
    }


@contextmanager
def hosts(count: int, core: str = "zmq") -> Iterator[tuple[Any, Any]]:
    """A network, and a site with a worker on each host but the first."""
    sys.path.insert(0, str(ROOT))
    from tests.hosts import Network, Site

    with tempfile.TemporaryDirectory() as folder:
        network = Network(count + 1)
        site = Site(Path(folder), network)
        try:
            for number in range(1, count + 1):
                site.worker(f"host{number}", "--core", core, host=number)
            yield network, site
        finally:
            site.close()
            network.close()


def compared(network: Any, site: Any, steps: Mapping[str, int], latency: float) -> dict[str, float]:
    """Seconds for stepping with all units on other hosts, by master; the rows must be those of one machine."""
    jobs = [
        {"file": str(site.folder / f"{where}.toml"), "steps": steps[name], "master": MASTERS[name]}
        for where in ("here", "there", "there")  # the first ones there are slow: workers load what they need
        for name in steps
    ]
    (site.folder / "jobs.json").write_text(json.dumps(jobs))
    network.set(f"latency {latency}")
    said = [json.loads(line) for line in in_namespace(site, 0, "run", str(site.folder / "jobs.json")).splitlines()]
    here, *there = (said[begin : begin + len(steps)] for begin in range(0, len(said), len(steps)))
    for turn in there:
        assert [one["digest"] for one in turn] == [one["digest"] for one in here], "rows differ"
    return {name: min(turn[place]["seconds"] for turn in there) for place, name in enumerate(steps)}


def in_namespace(site: Any, host: int, *words: str) -> str:
    """What one of the programs above prints on a host."""
    done = subprocess.run(
        site.on(host, [*SELF, *words]), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def plain(site: Any, units: dict[str, Any], steps: int, sleep: float = 0.0) -> float:
    """Macro steps per second of the same FMUs as a federation by HELICS alone, each on its host."""
    address, _, port = site.broker.rpartition(":")
    broker_words = f"--broker_address={address} --brokerport={port}"
    told = {"units": units, "steps": steps, "broker": broker_words, "sleep": sleep}
    (site.folder / "plain.json").write_text(json.dumps(told))
    words = f"--federates={len(units)} --port={port} --local_interface={address} --loglevel=no_print"
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "cwd": ROOT}
    broker = subprocess.Popen(site.on(0, [*SELF, "broker", words]), **pipes)
    assert broker.stdout is not None
    broker.stdout.readline()
    federates = [
        subprocess.Popen(site.on(number, [*SELF, "federate", str(site.folder), name]), **pipes)
        for number, name in enumerate(units, 1)
    ]
    seconds = [float(federate.communicate(timeout=300)[0].split()[-1]) for federate in federates]
    broker.communicate(timeout=60)
    return 1 / max(seconds)


def latencies(counts: Sequence[int] = (2, 8)) -> Table:
    """Macro steps per second with units on other hosts, by master and added latency."""
    table = Table(
        "Units on other hosts",
        ("workers", "added latency / ms", "master", "macro steps/s", "bound by latency", "plain HELICS"),
    )
    for count in counts:
        for latency in LATENCIES:
            steps = {master: steps_for(round_trips(master, count), latency) for master in MASTERS}
            with hosts(count) as (network, site):
                units = write_chain(site.folder, count, site.table())
                seconds = compared(network, site, steps, latency)
                site.close()
                beside = {"Jacobi": plain(site, units, steps["Jacobi"])}
            if not latency and count == 2:
                with hosts(count, "tcp") as (network, site):
                    write_chain(site.folder, count, site.table("tcp"))
                    tcp = compared(network, site, {"Jacobi": steps["Jacobi"]}, latency)
                    steps["Jacobi, tcp core"], seconds["Jacobi, tcp core"] = steps["Jacobi"], tcp["Jacobi"]
            for master, took in seconds.items():
                bound = f"{1 / (round_trips(master, count) * 2 * latency):,.0f}" if latency else "–"
                other = f"{beside[master]:,.0f}" if master in beside else ""
                table.add(count, f"{1e3 * latency:g}", master, f"{steps[master] / took:,.0f}", bound, other)
    table.note = (
        "A chain of oscillators as FMUs, each with a worker in a network namespace of its own, the run and the broker "
        "in another; packets take the added latency from one namespace to another (`tests/network.c`). All rows are "
        "those of one machine, to the bit. Bound: round trips of a macro step (Jacobi 1, Gauss–Seidel one per unit, "
        "three sweeps 3) × 2 × latency. Plain HELICS: one federate per FMU with FMPy, program FGH, which is Jacobi. "
        "The better of two turns. " + _load()
    )
    return table


def bare(site: Any, core: str, steps: int, sleep: float) -> float:
    """Seconds for which two workers take by commands of HELICS alone, who only sleep."""
    told = {"broker": site.broker, "core": core, "workers": 2, "steps": steps, "sleep": sleep}
    (site.folder / "bare.json").write_text(json.dumps(told))
    there = [
        subprocess.Popen(site.on(number, [*SELF, "bare", str(site.folder), f"worker{number}"]), cwd=ROOT)
        for number in (1, 2)
    ]
    seconds = float(in_namespace(site, 0, "bare", str(site.folder), "").split()[-1])
    for worker in there:
        worker.wait(timeout=60)
    return seconds


def heavy(steps: int = 100) -> Table:
    """Two units that take 10 ms for a step, one after the other on one machine, and on two workers."""
    table = Table("Two units of 10 ms per step", ("where", "ms per macro step", "× one machine"))
    alone: list[float] = []
    for core in ("zmq", "tcp"):
        with hosts(2, core) as (_, site):
            _write_heavy(site, core)
            job = {"steps": steps, "master": MASTERS["Jacobi"]}
            jobs = [job | {"file": str(site.folder / f"{name}.toml")} for name in ("here", "there")] * 3
            (site.folder / "jobs.json").write_text(json.dumps(jobs))
            said = in_namespace(site, 0, "run", str(site.folder / "jobs.json")).splitlines()
            seconds = np.array([json.loads(line)["seconds"] / steps for line in said])
            here, there = seconds[::2], seconds[1::2]
            site.close()
            floor = bare(site, core, steps, 0.01)
            if not alone:
                alone = [float(np.median(here))]
                table.add("one machine, one thread", f"{1e3 * alone[0]:.2f}", "1")
                federation = 1 / plain(site, write_chain(site.folder, 2, site.table()), steps, 0.01)
                table.add("HELICS alone: a federation", f"{1e3 * federation:.2f}", f"{alone[0] / federation:.2f}")
        table.add(f"HELICS alone: commands, {core}", f"{1e3 * floor:.2f}", f"{alone[0] / floor:.2f}")
        table.add(f"two workers, {core}", f"{1e3 * np.median(there):.2f}", scatter(here / there))
    table.note = (
        f"Jacobi, {steps} macro steps, three turns; the units sleep. HELICS alone: two federates that sleep for 10 ms "
        "in Python, as a federation with time requests, and by the commands that a run exchanges with its workers: "
        f"what a run with its workers takes at least. All in network namespaces. {_load()}"
    )
    return table


def _write_heavy(site: Any, core: str) -> None:
    """`here.toml` with two units that sleep for 10 ms, and `there.toml` with each on a host of its own."""
    sys.path.insert(0, str(ROOT / "tests" / "faults"))
    import faulty

    for unit in ("one", "two"):
        faulty.build(site.folder / f"{unit}.fmu")
    for name, there in (("here", ()), ("there", ("host1", "host2"))):
        text = "step-size = 0.01\n"
        for number, unit in enumerate(("one", "two")):
            text += f'[units.{unit}]\nfmu = "{unit}.fmu"\nparameters = {{ fault = "slow", amount = 0.01 }}\n'
            text += f'host = "{there[number]}"\n' if there else ""
        (site.folder / f"{name}.toml").write_text(text + (site.table(core) if there else ""))


def _load() -> str:
    return f"Load while measuring: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    {"run": run_jobs, "broker": run_broker, "federate": run_federate, "bare": run_bare}[what](*given)
