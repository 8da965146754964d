"""Resumed runs are those that were never interrupted, bit by bit; what cannot be resumed is refused with a reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fmu_builder import build
from hybrid import build_model
from interrupted import Choosy, change, interrupt, require_equal, wait_for_checkpoints, whole
from native_units import exported

from cosimo import masters
from cosimo.core.errors import CheckpointError, ConfigurationError, Interrupted, OutputError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence
from cosimo.core.system import System, Table
from cosimo.couplings import Dmd, Hold, Nepce
from cosimo.execution.checkpoints import encode, read_checkpoint
from cosimo.execution.options import Adaptive, Checkpoint, EngineOptions
from cosimo.execution.running import run
from cosimo.formats.results import ResultFile, read_result
from cosimo.formats.resuming import resumable, resume
from cosimo.problems import two_mass
from cosimo.units import Fmu, PythonUnit, StateSpace

H = 1e-3


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosimo.execution.session.BLOCK", 7)
    monkeypatch.setattr("cosimo.execution.adaptive.steppers.BLOCK", 7)


MASTERS: dict[str, Callable[[System], Master]] = {
    "hold0": lambda s: masters.jacobi(s, H),
    "hold1": lambda s: masters.jacobi(s, H, coupling=Hold(1)),
    "hold2": lambda s: masters.gauss_seidel(s, H, coupling=Hold(2)),
    "nepce": lambda s: masters.jacobi(s, H, coupling=Nepce(0.6)),
    "dmd": lambda s: masters.jacobi(s, H, coupling=Dmd()),
    "multirate": lambda s: masters.multirate(s, H, multiples={"one": 2}, inputs="interpolated"),
    "iterative": lambda s: masters.iterative(s, H, sweeps=Convergence(tolerance=1e-12, limit=4)),
    "quasi-newton": lambda s: masters.iterative(s, H, sweeps=Convergence(quasi_newton=4)),
    "anderson": lambda s: masters.iterative(s, H, sweeps=Convergence(anderson=2), coupling=Hold(1)),
}


@pytest.mark.parametrize("name", MASTERS)
@pytest.mark.one_in(3)
def test_fmus_go_on_to_the_same_bits(name: str, tmp_path: Path) -> None:
    system = exported(two_mass(), tmp_path, fmi=2)
    master = MASTERS[name](system)
    stop = 60 * master.step
    interrupt(system, master, tmp_path / "cut.parquet", at=0.6 * stop, stop=stop, record="all")
    assert not read_result(tmp_path / "cut.parquet").complete
    result = resume(tmp_path / "cut.parquet", system, master)
    assert 0.3 * stop < result.info["resumed_at"][0] < stop
    require_equal(
        read_result(tmp_path / "cut.parquet"),
        whole(system, master, tmp_path / "whole.parquet", stop=stop, record="all"),
    )
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == ["cut.parquet", "whole.parquet"]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["hold0", "hold2", "iterative"])
def test_model_exchange_goes_on_to_the_same_bits(name: str, version: int, tmp_path: Path) -> None:
    """When checkpoints are written is for the clock to say: they must not change what solvers do."""
    path = build_model(tmp_path, "LINEAR", version)
    units = {n: Fmu(path, name=n, start={"x": x}, isolate=False) for n, x in (("one", 1.0), ("two", 0.0))}
    system = System(units, [("one.y", "two.u"), ("two.y", "one.u")])
    master = MASTERS[name](system)
    stop = 60 * master.step
    interrupt(system, master, tmp_path / "cut.parquet", at=0.6 * stop, stop=stop)
    resume(tmp_path / "cut.parquet", system, master)
    require_equal(read_result(tmp_path / "cut.parquet"), whole(system, master, tmp_path / "whole.parquet", stop=stop))


def test_isolated_units_go_on_too(tmp_path: Path) -> None:
    system = exported(two_mass(), tmp_path, fmi=2)
    master = masters.iterative(system, H, sweeps=2, coupling=Hold(1))
    units = {name: Fmu(unit.path, name=name, isolate=True) for name, unit in system.units.items()}  # type: ignore[attr-defined]
    apart = System(units, system.connections, name=system.name)
    interrupt(apart, master, tmp_path / "cut.parquet", at=0.03, stop=0.06)
    resume(tmp_path / "cut.parquet", apart, master)
    require_equal(read_result(tmp_path / "cut.parquet"), whole(system, master, tmp_path / "whole.parquet", stop=0.06))


class Tank:
    """Nonlinear, with a memory of its own."""

    inputs, outputs = {"inflow": 0.0}, ("level",)

    def __init__(self) -> None:
        self.level, self.seen = 1.0, np.zeros(2)

    def step(self, time: float, duration: float) -> None:
        self.seen = np.array([self.level, self.seen[0]])
        self.level += duration * (self.inflow - np.sqrt(abs(self.seen[1])))


def driven() -> System:
    """A Python unit in a ring, with external inputs: a table and a function."""
    units = {"tank": PythonUnit(Tank), "pump": StateSpace(-1.0, [[1.0, 0.5]], 1.0, initial=0.4)}
    signals = {"pump.u2": Table([0.0, 0.5, 2.0], [0.0, 1.0, -1.0])}
    return System(units, [("tank.level", "pump.u1"), ("pump.y1", "tank.inflow")], inputs=signals)


@pytest.mark.parametrize("kind", ["kernel", "reference"])
@pytest.mark.parametrize("suffix", [".arrows", ".csv", ".mat"])
def test_other_units_engines_and_formats(kind: Any, suffix: str, tmp_path: Path) -> None:
    system = driven()
    master = masters.gauss_seidel(system, 0.01, coupling=Hold(1))
    options: dict[str, Any] = {
        "stop": 0.6,
        "engine": EngineOptions(kind),
        "file": {"every": 4, "variables": ["tank.*"]},
    }
    cut, uncut = tmp_path / f"cut{suffix}", tmp_path / f"whole{suffix}"
    theirs = whole(system, master, uncut, **dict(options))
    interrupt(system, master, cut, at=0.37, **dict(options))
    assert len(read_result(cut)) < len(theirs)
    resume(cut, system, master)
    require_equal(read_result(cut), theirs)


def test_a_run_may_be_interrupted_again_and_again(tmp_path: Path) -> None:
    system = driven()
    master = masters.jacobi(system, 0.01)
    cut = tmp_path / "cut.arrow"
    interrupt(system, master, cut, at=0.2, stop=1.0)
    times = [read_checkpoint(cut)["step"]]
    for at in (0.4, 0.6):

        def progress(now: float, _: float, at: float = at) -> None:
            wait_for_checkpoints()
            if now > at:
                raise KeyboardInterrupt

        with pytest.raises(Exception, match="continues from"):
            resume(cut, system, master, progress=progress)
        times.append(read_checkpoint(cut)["step"])
    assert times == sorted(set(times))
    result = resume(f"{cut}.checkpoint", system, master)
    assert len(result.info["resumed_at"]) == 3
    require_equal(read_result(cut), whole(system, master, tmp_path / "whole.arrow", stop=1.0))


def test_shortened_steps_stay_short(tmp_path: Path) -> None:
    units = {"a": PythonUnit(Choosy, since=0.15), "b": StateSpace(-1.0, 1.0, 1.0, initial=2.0)}
    system = System(units, [("a.y", "b.u1"), ("b.y1", "a.u")])
    master = masters.jacobi(system, 0.01, coupling=Hold(1))
    interrupt(system, master, tmp_path / "cut.csv", at=0.3, stop=0.5)
    assert read_checkpoint(tmp_path / "cut.csv")["careful"]
    resume(tmp_path / "cut.csv", system, master)
    require_equal(read_result(tmp_path / "cut.csv"), whole(system, master, tmp_path / "whole.csv", stop=0.5))


# ---- refusals --------------------------------------------------------------------------------------------------------


def checkpointed(folder: Path) -> tuple[System, Master, Path]:
    system = driven()
    master = masters.jacobi(system, 0.01)
    interrupt(system, master, folder / "rows.csv", at=0.3, stop=1.0)
    return system, master, folder / "rows.csv.checkpoint"


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    system, master, path = checkpointed(tmp_path)
    data = path.read_bytes()
    for place in (25, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(CheckpointError, match=r"damaged: its checksum .* the one before is '.*\.earlier'"):
            resume(path, system, master)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match="damaged"):
        resume(path, system, master)
    path.write_bytes(b"PK something else")
    with pytest.raises(CheckpointError, match="not a checkpoint of cosimo"):
        resume(path, system, master)
    path.write_bytes(data.replace(b"checkpoint 4", b"checkpoint 9", 1))
    with pytest.raises(CheckpointError, match="another version"):
        resume(path, system, master)
    path.unlink()  # killed between the two renames
    resume(tmp_path / "rows.csv", system, master)
    require_equal(read_result(tmp_path / "rows.csv"), whole(system, master, tmp_path / "whole.csv", stop=1.0))


def test_foreign_checkpoints_are_refused(tmp_path: Path) -> None:
    system, master, path = checkpointed(tmp_path)
    other = driven()
    other.units["pump"] = StateSpace(-1.5, [[1.0, 0.5]], 1.0, initial=0.4)
    with pytest.raises(CheckpointError, match="unit 'pump' has changed"):
        resume(path, other, master)
    with pytest.raises(CheckpointError, match="the master has changed"):
        resume(path, system, masters.jacobi(system, 0.02))
    with pytest.raises(CheckpointError, match="units tank, pump, not one, two"):
        resume(path, two_mass(), masters.jacobi(two_mass(), 0.01))
    with pytest.raises(CheckpointError, match="does not record where its system comes from"):
        resume(path)
    found = {key: value for key, value in read_checkpoint(path).items() if key != "path"}
    for entries, reason in (
        ({**found, "versions": {"cosimo": "0.0.1", "machine": "vax"}}, "written by cosimo 0.0.1 on vax"),
        ({**found, "memory": {**found["memory"], "kernel": b"abc"}}, "does not fit this system"),
        ({**found, "memory": {}}, "does not fit this system"),
        ({key: value for key, value in found.items() if key != "after"}, "'after' is missing"),
    ):
        path.write_bytes(encode(entries))
        with pytest.raises(CheckpointError, match=reason):
            resume(path, system, master)


def test_rows_of_another_run_are_refused_and_left_alone(tmp_path: Path) -> None:
    system, master, path = checkpointed(tmp_path)
    stream = tmp_path / "rows.csv.partial"
    kept = stream.read_bytes()
    stream.write_bytes(kept[: len(kept) // 3])
    with pytest.raises(CheckpointError, match="lacks rows from before the checkpoint"):
        resume(path, system, master)
    stream.unlink()
    with pytest.raises(CheckpointError, match="rows of the run are missing"):
        resume(path, system, master)
    other = tmp_path / "other"
    other.mkdir()
    interrupt(system, master, other / "rows.csv", at=0.3, stop=1.0)
    os.replace(other / "rows.csv.partial", stream)
    foreign = stream.read_bytes()
    with pytest.raises(CheckpointError, match="rows of another run"):
        resume(path, system, master)
    assert stream.read_bytes() == foreign
    stream.write_bytes(kept)
    resume(path, system, master)
    require_equal(read_result(tmp_path / "rows.csv"), whole(system, master, tmp_path / "whole.csv", stop=1.0))


def switched() -> System:
    """As `driven`, with an input that jumps, and refusals: what adaptive steps go back for."""
    system = driven()
    units = {**system.units, "choosy": PythonUnit(Choosy, since=0.2)}
    inputs = {**system.inputs, "choosy.u": lambda t: 1.0 if t < 0.45 else -1.0}
    return System(units, system.connections, inputs=inputs)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["kernel", "reference"])
@pytest.mark.parametrize("hold", [0, 1])
@pytest.mark.parametrize("adaptive", [Adaptive("energy", 0.1, shortest=2e-3), Adaptive("doubling", 1e-3)], ids=str)
def test_adaptive_steps_go_on_to_the_same_bits(adaptive: Adaptive, hold: int, kind: Any, tmp_path: Path) -> None:
    system = switched() if adaptive.kind == "doubling" else driven()
    master = masters.gauss_seidel(system, 0.01, coupling=Hold(hold))
    options: dict[str, Any] = {"stop": 0.8, "engine": EngineOptions(kind), "adaptive": adaptive, "record": "all"}
    theirs = whole(system, master, tmp_path / "whole.arrows", **options)
    assert adaptive.kind == "energy" or theirs.info["rejected"] > 0
    cut = tmp_path / "cut.arrows"
    for at in (0.3, 0.6):  # twice: the second time a run that was itself resumed
        if at == 0.3:
            interrupt(system, master, cut, at=at, **options)
        else:
            with pytest.raises(Interrupted, match="continues from t = "):
                resume(cut, system, master, progress=_interrupt_after(at))
    result = resume(cut, system, master)
    assert len(result.info["resumed_at"]) == 2
    require_equal(read_result(cut), theirs)


def _interrupt_after(at: float) -> Callable[[float, float], None]:
    def progress(now: float, _: float) -> None:
        wait_for_checkpoints()
        if now >= at:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("kind", ["energy", "doubling"])
def test_adaptive_steps_of_isolated_units_go_on_too(kind: Any, tmp_path: Path) -> None:
    system = exported(two_mass(), tmp_path, fmi=2)
    master = masters.jacobi(system, H, coupling=Hold(1))
    units = {name: Fmu(unit.path, name=name, isolate=True) for name, unit in system.units.items()}  # type: ignore[attr-defined]
    apart = System(units, system.connections, name=system.name)
    options: dict[str, Any] = {"stop": 0.05, "adaptive": Adaptive(kind, 1e-3)}
    interrupt(apart, master, tmp_path / "cut.parquet", at=0.02, **options)
    resume(tmp_path / "cut.parquet", apart, master)
    require_equal(read_result(tmp_path / "cut.parquet"), whole(system, master, tmp_path / "whole.parquet", **options))


@pytest.mark.parametrize("kind", ["kernel", "reference"])
def test_a_damaged_adaptive_checkpoint_is_refused(kind: Any, tmp_path: Path) -> None:
    system, path = driven(), tmp_path / "rows.csv"
    master = masters.jacobi(system, 0.01)
    interrupt(system, master, path, at=0.3, stop=0.6, engine=EngineOptions(kind), adaptive=Adaptive("energy", 0.1))
    file = Path(f"{path}.checkpoint")
    memory = read_checkpoint(file)["memory"]
    wrong = {"kernel": memory["kernel"][:-8]} if kind == "kernel" else {"stepper": {**memory["stepper"], "jumps": []}}
    change(file, memory={**memory, **wrong})
    with pytest.raises(CheckpointError, match="does not fit this system"):
        resume(path, system, master)


class Drifting(Tank):
    """Its own `save` forgets a part of the state, which shows one step later."""

    def save(self) -> float:
        return self.level

    def restore(self, state: float) -> None:
        self.level = state


def test_replaying_one_step_finds_what_was_not_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = driven()
    system.units["tank"] = PythonUnit(Drifting)
    master = masters.jacobi(system, 0.01)
    path = tmp_path / "rows.csv"
    with pytest.raises(ConfigurationError, match=r"unit 'tank' does not restore its state: .* 'level' is .* instead"):
        run(system, master, stop=1.0, output=ResultFile(path), checkpoint=Checkpoint())
    assert not any(tmp_path.iterdir())
    monkeypatch.setattr("cosimo.execution.running.require_states", lambda *_, **__: None)
    interrupt(system, master, path, at=0.3, stop=1.0)
    before = Path(f"{path}.partial").read_bytes()
    with pytest.raises(CheckpointError, match=r"unit 'tank' does not continue as it did: .* 'level' is .* instead of"):
        resume(path, system, master)
    assert Path(f"{path}.partial").read_bytes() == before  # nothing was touched


class Locked(Tank):
    def __init__(self) -> None:
        super().__init__()
        self.source = object()


def test_units_that_cannot_be_written_are_named_before_the_run(tmp_path: Path) -> None:
    units = {"tank": PythonUnit(Locked), "mute": Fmu(build(tmp_path, "minimal2"))}
    system = System(units)
    output = ResultFile(tmp_path / "rows.csv")
    with pytest.raises(
        ConfigurationError, match=r"'tank' \(state.source is a builtins.object.*'mute' \(.*canSerialize"
    ):
        run(system, masters.jacobi(system, 0.1), stop=1.0, output=output, checkpoint=Checkpoint())
    assert not (tmp_path / "rows.csv.partial").exists()


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    system = driven()
    master = masters.jacobi(system, 0.01)
    output = ResultFile(tmp_path / "rows.csv")
    with pytest.raises(ConfigurationError, match="output file for the rows"):
        run(system, master, stop=1.0, checkpoint=Checkpoint())
    with pytest.raises(ConfigurationError, match="0 or more seconds"):
        Checkpoint(every=-1.0)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        resumable(tmp_path / "rows.csv")
    with pytest.raises(OutputError, match=r"cannot write the checkpoint to .*nowhere.*No such file"):
        run(system, master, stop=1.0, output=output, checkpoint=Checkpoint(tmp_path / "nowhere" / "c", every=0))
    assert not any(tmp_path.iterdir())


def test_a_checkpoint_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    """The rows are kept; they can even go on from an earlier checkpoint."""
    system = driven()
    master = masters.jacobi(system, 0.01)
    place = tmp_path / "checkpoints"
    place.mkdir()

    def progress(now: float, _: float) -> None:
        wait_for_checkpoints()
        if now > 0.5 and place.exists():
            place.rename(tmp_path / "moved")

    output = ResultFile(tmp_path / "rows.csv")
    with pytest.raises(OutputError, match=r"cannot write the checkpoint to '.*checkpoints[/\\]c': No such file"):
        run(system, master, stop=2.0, output=output, checkpoint=Checkpoint(place / "c", every=0), progress=progress)
    assert not read_result(tmp_path / "rows.csv").complete
    resume(tmp_path / "moved" / "c", system, master)
    require_equal(read_result(tmp_path / "rows.csv"), whole(system, master, tmp_path / "whole.csv", stop=2.0))


def test_a_run_that_ends_leaves_no_checkpoint(tmp_path: Path) -> None:
    system = two_mass(damping=0.0)
    master = masters.jacobi(system, 0.02)
    output = ResultFile(tmp_path / "rows.csv")
    result = run(system, master, stop=400.0, output=output, checkpoint=Checkpoint(every=0), stop_on_divergence=True)
    assert result.info["stopped_at"] < 400.0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.csv", "rows.csv.json"]
