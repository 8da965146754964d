"""Other co-simulation tools on the same exported FMUs, in the same run, as multiples of the bare C loop."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from fmpy import read_model_description

from benchmarks import peers_install
from benchmarks.bare import BareLoop, library
from benchmarks.kernel import REPEAT, Steps, start
from benchmarks.measure import Table, Turns, in_turns, scatter
from benchmarks.peers_job import CHECKED, DONE, READY
from cosimo import masters
from cosimo.core.system import System
from cosimo.execution.engines import KernelEngine
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.formats.export import export_coupling, export_system, export_unit
from cosimo.problems import chain, two_mass
from cosimo.units import Fmu, Mechanical

STEP = 1e-3
PATIENCE = 240
"""Seconds after which a peer is ended."""
LEAST, TURNS = 0.25, 5
"""Seconds that the steps of one turn take at least, and how many turns there are."""
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Peer:
    """A tool, the way it is used, its package, and the module that runs it (None: not measured)."""

    title: str
    package: str
    module: str | None = None
    variant: str = "-"


PEERS = (
    Peer("FMPy loop", "fmpy", "fmpy"),
    Peer("libcosim", "libcosimpy", "libcosim"),
    Peer("libcosim, one core", "libcosimpy", "libcosim", "one core"),
    Peer("Ecos", "ecospy", "ecos"),
    Peer("Ecos, one core", "ecospy", "ecos", "one core"),
    Peer("FMU container, stepped", "fmu-manipulation-toolbox", "container", "stepped"),
    Peer("FMU container, raw calls", "fmu-manipulation-toolbox", "container", "raw calls"),
    Peer("FMU container, datalog", "fmu-manipulation-toolbox", "container", "datalog"),
    Peer("OMSimulator", "OMSimulator"),
    Peer("PyFMI", "pyfmi"),
)

NOTE = """Exported FMI 2 FMUs, Jacobi with a macro step of 1 ms, loading not counted. Every tool is a process of its
own and makes steps of at least a quarter of a second in turns with the bare loop and our kernel: wall time, medians of
five turns; ratios are those within a turn, with their quartiles. That of our kernel alone is of processor time, as in
its own table. "Recorded": all outputs of every macro step kept; "not recorded": the same without, for comparison.
Trajectories are compared with ours over the first {checked} steps. In two-mass the sign of the force is moved from the
connection into unit `two`, since not every tool has gains. Units of a chain that are alike are instances of one FMU
file, whose library the bare loop, our kernel and the FMPy loop load once; the FMU container unpacks and loads a copy
per unit even so, which is part of its time here. With "own files" every tool has a copy of the library per unit.

What each does: the *FMPy loop* sets, steps and gets unit after unit from Python and keeps rows in a list. *libcosim*
makes all steps in one call and records with its time-series observer in memory; it starts a thread per processor it
sees, hence also on one core. *Ecos* makes all steps in one call; it records with its CSV writer (six decimals), having
no recorder in memory. The *FMU container* holds all FMUs and is stepped through FMPy: "stepped" is one call per macro
step and FMPy's `getReal` into a list; "raw calls" the same with the C functions called directly on arrays made
beforehand; "datalog" thousands of macro steps in one call, recorded by the container's
own CSV log (17 digits).

Versions: {versions}."""


def systems() -> list[tuple[str, System, bool]]:
    """The systems compared, connections without gains; whether units that are alike share a file."""
    plain = two_mass()
    two = plain.units["two"]
    assert isinstance(two, Mechanical)
    turned = Mechanical(
        two.M,
        two.C,
        two.K,
        B=-two.B,
        displacement=two.displacement,
        velocity=two.velocity,
        initial=two.initial_state,
        integrator=two.integrator,
        inputs=two.inputs,
        outputs=two.outputs,
    )
    pair = System({"one": plain.units["one"], "two": turned}, [(c.source, c.target) for c in plain.connections])
    sizes = (10, 100, 1000)
    chains = [(f"chain of {n}", chain(n=n), True) for n in sizes]
    own = [(f"chain of {n}, own files", chain(n=n), False) for n in sizes]
    return [("two-mass", pair, False), *chains, *own]


def _export(system: System, folder: Path, shared: bool) -> dict[str, Path]:
    """One FMU per unit, or one for all units that are alike."""
    if not shared:
        return export_system(system, folder, fmi=2)
    files: dict[str, Path] = {}
    alike: dict[bytes, Path] = {}
    for name, unit in system.units.items():
        path = export_unit(unit, folder / f"kind{len(alike) + 1}.fmu", name="unit", fmi=2)
        files[name] = alike.setdefault(path.read_bytes(), path)
    return files


def compared() -> Table:
    """Peers on exported FMUs: time per macro step, as multiples of the bare loop and of our kernel."""
    missing = peers_install.failures()
    there = [peer.package for peer in PEERS if peer.package not in missing]
    known = peers_install.versions(*dict.fromkeys(there)) if there else {}
    table = Table(
        "Other tools on the same FMUs",
        ("system", "tool", "recorded / µs", "× bare loop", "× our kernel", "not recorded / µs", "trajectory"),
        note=NOTE.format(checked=CHECKED, versions=", ".join(f"{name} {v}" for name, v in known.items()) or "none"),
    )
    code = library()
    for name, system, shared in systems():
        with tempfile.TemporaryDirectory() as folder:
            files = _export(system, Path(folder), shared)
            fmus = System({n: Fmu(p) for n, p in files.items()}, system.connections)
            with _our_loops(code, fmus) as loops:
                found = in_turns(loops, REPEAT)
                bare, kernel = (found.median(loop) / loops[loop].steps for loop in ("bare", "kernel"))
            table.add(name, "bare C loop", f"{bare * 1e6:.3f}", "1", f"{bare / kernel:.2f}", "", "")
            table.add(name, "cosimo's kernel", f"{kernel * 1e6:.3f}", found.ratio("kernel", "bare"), "1", "", "")
            job = _write_job(system, files, Path(folder))
            for peer in PEERS:
                if peer.package not in missing and peer.module is not None:
                    with _our_loops(code, fmus) as loops:  # anew: damped motion must not become too small
                        _measure(table, name, peer, job, loops, system)
    for peer in PEERS:
        if peer.package in missing:
            table.add("all", peer.title, "–", "–", "–", "–", f"not installed: {missing[peer.package]}")
        elif peer.module is None:
            table.add("all", peer.title, "–", "–", "–", "–", "installed, but no measurement is written for it")
    return table


def packed() -> Table:
    """A coupling as one FMU beside the FMU container of the same units: time per macro step, in turns."""
    table = Table(
        "A coupling as one FMU beside the FMU container",
        ("system", "coupling / ns", "container / ns", "container ÷ coupling", "outputs at the end"),
        note="The same FMI 2 FMUs, Jacobi with a macro step of 1 ms, 1,000 macro steps per communication step; "
        "processor time, median of 15 turns, quartiles in brackets. FMPy imports both.",
    )
    for name, system, shared in systems()[:3]:
        with tempfile.TemporaryDirectory() as folder:
            files = _export(system, Path(folder), shared)
            fmus = System({n: Fmu(p) for n, p in files.items()}, system.connections)
            coupled = export_coupling(fmus, Path(folder, "coupled.fmu"), master=masters.jacobi(fmus, STEP))
            job = _write_job(system, files, Path(folder))
            job.write_text(job.read_text(encoding="utf-8").replace('"folder": "."', f'"folder": "{folder}"'))
            command = [peers_install.PYTHON, "-m", "benchmarks.peers_container", job, coupled]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=PATIENCE)
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        turns = Turns(answer["seconds"])
        ours, theirs = (np.array(answer["rows"][one]) for one in ("coupling", "container"))
        said = "equal to the bit" if np.array_equal(ours, theirs) else f"differ by {np.abs(ours - theirs).max():.1e}"
        times = [f"{turns.median(one) * 1e9:.0f}" for one in ("coupling", "container")]
        table.add(name, *times, turns.ratio("container", "coupling"), said)
    return table


@contextmanager
def _our_loops(code: object, fmus: System) -> Iterator[dict[str, Steps]]:
    """Steps of the bare loop and of the kernel."""
    ours, theirs = start(fmus), start(fmus)
    kernel = KernelEngine(ours, fmus.outputs, EngineOptions(parallel=False))
    bare = BareLoop(code, theirs)  # type: ignore[arg-type]
    steps = max(400, 800_000 // len(fmus.units) // (1 + len(fmus.units) // 50))
    yield {"bare": Steps(bare, len(fmus.outputs), steps), "kernel": Steps(kernel, len(fmus.outputs), steps)}
    kernel.close()
    ours.close()
    theirs.close()


def _write_job(system: System, files: dict[str, Path], folder: Path) -> Path:
    """What the peers are given."""
    units = []
    for name, unit in system.units.items():
        variables = read_model_description(str(files[name]), validate=False).modelVariables
        references = {variable.name: variable.valueReference for variable in variables}
        inputs, outputs = ({n: references[n] for n in names} for names in (unit.inputs, unit.outputs))
        units.append({"name": name, "path": str(files[name]), "inputs": inputs, "outputs": outputs})
    place = {name: i for i, name in enumerate(system.names)}
    connections = [
        (
            place[link.source.unit],
            system.units[link.source.unit].outputs[link.source.index],
            place[link.target.unit],
            system.units[link.target.unit].inputs[link.target.index],
        )
        for link in system.links
    ]
    path = folder / "job.json"
    document = {"units": units, "connections": connections, "step": STEP, "folder": "."}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _measure(table: Table, name: str, peer: Peer, job: Path, loops: dict[str, Steps], system: System) -> None:
    try:
        with PeerProcess(peer, job, "yes") as recording, PeerProcess(peer, job, "no") as silent:
            theirs = {"recorded": recording, "not recorded": silent}
            for each in theirs.values():
                each.choose_steps()
            found = in_turns({**loops, **theirs}, TURNS, time.perf_counter)
            rows = recording.rows()
    except PeerFailed as problem:
        table.add(name, peer.title, "–", "–", "–", "–", f"failed: {problem}")
        return
    each = {work: found.each(work) / steps.steps for work, steps in {**loops, **theirs}.items()}
    ratios = [each["recorded"] / each[loop] for loop in loops]
    shown = (scatter(ratio, 0 if np.median(ratio) >= 10 else 1) for ratio in ratios)
    took = (f"{np.median(each[work]) * 1e6:.3g}" for work in ("recorded", "not recorded"))
    table.add(name, peer.title, next(took), *shown, next(took), _verdict(system, rows))


class PeerFailed(Exception):
    """Why a peer gives no answer."""


class PeerProcess:
    """A peer in a process and a folder of its own; to be called for `steps` macro steps."""

    def __init__(self, peer: Peer, job: Path, recording: str) -> None:
        self.steps = 64
        self._folder = tempfile.TemporaryDirectory()
        own, self._said = Path(self._folder.name) / "job.json", Path(self._folder.name) / "said"
        document = json.loads(job.read_text(encoding="utf-8")) | {"folder": self._folder.name}
        own.write_text(json.dumps(document), encoding="utf-8")
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [peers_install.PYTHON, "-m", "benchmarks.peers_job", peer.module or "", peer.variant, recording, own],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                errors="replace",
                cwd=ROOT,
                env=os.environ | {"LD_LIBRARY_PATH": str(peers_install.FOLDER / "lib")},  # Ecos needs TBB from there
            )
        self._timer = threading.Timer(PATIENCE, self._process.kill)
        self._timer.start()

    def __enter__(self) -> Self:
        self._line(READY)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def __call__(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{self.steps}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # what ended it is said below
        self._line(DONE)

    def choose_steps(self) -> None:
        """As many that a turn is long enough."""
        while True:
            begin = time.perf_counter()
            self()
            took = time.perf_counter() - begin
            if took >= LEAST:
                return
            self.steps = int(self.steps * min(16.0, max(2.0, 1.2 * LEAST / max(took, 1e-9))))

    def rows(self) -> list[list[float]]:
        """End the simulation; the first rows as the peer recorded them."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        found: list[list[float]] = json.loads(self._line("{"))["rows"]
        return found

    def _line(self, begins: str) -> str:
        """The next line that begins so; what libraries print is passed over."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(begins):
                return line
        code = self._process.wait()
        if not self._timer.is_alive():
            raise PeerFailed(f"no answer within {PATIENCE} s")
        last = (self._said.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no message"])[-1]
        raise PeerFailed(f"exit code {code}, {last}")


def _verdict(system: System, rows: list[list[float]]) -> str:
    """How far a peer's rows are from ours, relative to the largest value; also when outputs are read once more."""
    values = run(system, masters.jacobi(system, STEP), stop=CHECKED * STEP).values
    ours, theirs = values[1:], np.array(rows)
    if theirs.shape != ours.shape:
        return f"{theirs.shape[0]} rows instead of {len(ours)}"
    difference = float(np.abs(theirs - ours).max() / np.abs(ours).max())
    if difference <= 1e-5:
        return _same(difference)
    again = float(np.abs(theirs - _read_again(system, values)).max() / np.abs(ours).max())
    if again <= 1e-5:
        return f"{_same(again)}; records feedthrough outputs with the inputs of the next step"
    return f"differs by {difference:.1e}"


def _same(difference: float) -> str:
    return "same to 1e-12" if difference <= 1e-12 else f"same to {difference:.0e}"


def _read_again(system: System, values: np.ndarray) -> np.ndarray:
    """The outputs if read once more after the exchange: y + D (u_k − u_{k−1}), each u made of the outputs then."""
    place = {name: i for i, name in enumerate(system.outputs)}
    changed = values[1:].copy()
    for link in system.links:
        model = system.units[link.target.unit].linear()
        assert model is not None
        for row, output in enumerate(system.units[link.target.unit].outputs):
            gain = model.D[row, link.target.index]
            moved = np.diff(values[:, place[link.connection.source]], axis=0)
            changed[:, place[f"{link.target.unit}.{output}"]] += gain * moved
    return changed
