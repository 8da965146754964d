"""Remembered verdicts: found again for just this coupling; nothing wrong, damaged or foreign is believed."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cosimo.analysis import memory as remembering
from cosimo.analysis.analysing import analyse
from cosimo.analysis.critical import CriticalStep
from cosimo.analysis.memory import Memory
from cosimo.analysis.recommendation import Recommendation
from cosimo.analysis.truth import OutputErrors
from cosimo.analysis.verdict import Verdict
from cosimo.core import storage
from cosimo.core.master import Master
from cosimo.core.storage import default_folder
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.formats.export import export_system
from cosimo.masters import gauss_seidel, jacobi
from cosimo.units import Exact, Fmu, StateSpace

HORIZON, TARGET = 5.0, 0.01


def lags(rate: float = 2.0, name: str = "lags") -> System:
    units = {
        "a": StateSpace(-1.0, 1.0, 1.0, initial=1.0, inputs=["u"], outputs=["y"], integrator=Exact()),
        "b": StateSpace(-rate, rate, 1.0, inputs=["u"], outputs=["y"], integrator=Exact()),
    }
    return System(units, [Connection("b.y", "a.u", gain=-1.0), ("a.y", "b.u")], name=name)


SYSTEM = lags()
MASTER = jacobi(SYSTEM, 0.1)


def verdict(master: Master = MASTER, **changed: Any) -> Verdict:
    made = Verdict(
        system=SYSTEM.name,
        master=master.name,
        description="Jacobi at 100 ms",
        schedule=str(master),
        step_size=master.step,
        horizon=HORIZON,
        target=TARGET,
        evidence="proved",
        stable=True,
        error=OutputErrors({"a.y": 0.02, "b.y": 0.004}, HORIZON),
        spectral_radius=0.9,
        exact_stable=True,
        critical_step=CriticalStep(0.4, (0.4, 0.4)),
        recommendation=Recommendation("use another.", name="gauss-seidel(a,b)", step_size=0.05, error=0.002),
        reasons={"order": "left out"},
    )
    return replace(made, **changed)


def recalled(memory: Memory, system: System = SYSTEM, master: Master = MASTER, **other: float) -> Verdict | None:
    return memory.recall(
        system, master, other.get("start", 0.0), other.get("horizon", HORIZON), other.get("target", TARGET)
    )


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "cache")


# ---- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"error": OutputErrors({"a.y": math.inf, "b.y": math.inf}, HORIZON, "measured"), "evidence": "measured"},
        {"error": OutputErrors({"a.y": 0.001}, 2.0, "measured"), "evidence": "measured", "stable": None},
        {"error": OutputErrors({"a.y": 0.001}, HORIZON, any_start=True)},
        {"error": OutputErrors({"a.y": 0.001}, HORIZON, start=10.0), "start": 10.0},
        {"error": None, "reasons": {"error": "nothing moves"}},
        {"evidence": "none", "stable": None, "error": None, "reasons": {"evidence": "no pilot runs"}},
        {"stable": False, "converges": False},
        {"stable": False, "exact_stable": False, "recommendation": None, "critical_step": None},
        {"spectral_radius": None, "exact_stable": None},
        {"recommendation": Recommendation("keep it.", True, "jacobi", 0.1, 0.02)},
        {"recommendation": Recommendation("no master was found.")},
    ],
)
def test_what_is_remembered_is_recalled(changed: dict[str, Any], memory: Memory) -> None:
    made = verdict(**changed)
    assert recalled(memory) is None
    memory.remember(made, SYSTEM, MASTER, 0.0)
    found = recalled(memory)
    assert found is not None
    for name in ("trust", "headline", "stable", "evidence", "reasons", "recommendation", "critical_step", "converges"):
        assert getattr(found, name) == getattr(made, name), name
    assert (found.error is None) is (made.error is None)
    if made.error is not None and found.error is not None:
        assert found.error.outputs == made.error.outputs
        assert (found.error.horizon, found.error.kind, found.error.any_start) == (
            made.error.horizon,
            made.error.kind,
            made.error.any_start,
        )
    assert found.brief() == made.brief()
    assert found.headline in " ".join(str(found).split())


def test_a_verdict_of_analyse_comes_back_as_it_was(memory: Memory) -> None:
    made = analyse(SYSTEM, MASTER, horizon=HORIZON)
    memory.remember(made, SYSTEM, MASTER, 0.0)
    found = recalled(memory)
    assert found is not None
    assert found.brief() == made.brief()


def test_the_newest_counts(memory: Memory) -> None:
    memory.remember(verdict(), SYSTEM, MASTER, 0.0)
    memory.remember(verdict(stable=False), SYSTEM, MASTER, 0.0)
    found = recalled(memory)
    assert found is not None
    assert found.trust == "no"
    assert memory.folder is not None
    assert [path.suffix for path in memory.folder.iterdir()] == [".json"]


# ---- only of just this coupling --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        {"master": jacobi(SYSTEM, 0.1 * (1 + 1e-12))},
        {"master": gauss_seidel(SYSTEM, 0.1)},
        {"master": jacobi(SYSTEM, 0.1, coupling=Hold(1))},
        {"system": lags(rate=2.0 + 1e-12)},
        {"system": lags(name="other")},
        {"start": 1.0},
        {"horizon": HORIZON + 1e-9},
        {"target": 0.02},
    ],
)
def test_other_couplings_have_no_entry(other: dict[str, Any], memory: Memory) -> None:
    memory.remember(verdict(), SYSTEM, MASTER, 0.0)
    assert recalled(memory) is not None
    assert recalled(memory, **other) is None


def test_the_content_of_fmus_counts_and_not_their_names(memory: Memory, tmp_path: Path) -> None:
    def fmus(folder: Path, rate: float) -> System:
        known = lags(rate)
        files = export_system(known, folder, fmi=2)
        return System({name: Fmu(path) for name, path in files.items()}, known.connections, name="lags")

    system = fmus(tmp_path / "one", 2.0)
    master = jacobi(system, 0.1)
    memory.remember(verdict(master), system, master, 0.0)
    assert recalled(memory, system, master) is not None
    changed = fmus(tmp_path / "one", 2.5)  # the same paths
    assert recalled(memory, changed, jacobi(changed, 0.1)) is None


def test_another_version_has_no_entry(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.remember(verdict(), SYSTEM, MASTER, 0.0)
    with monkeypatch.context() as other:
        other.setattr(remembering, "__version__", "0.0.1")
        assert recalled(memory) is None
    with monkeypatch.context() as other:
        other.setattr(remembering, "FORMAT", remembering.FORMAT + 1)
        assert recalled(memory) is None
    assert recalled(memory) is not None


def test_a_unit_that_cannot_say_what_it_is_is_not_remembered(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> dict[str, Any]:
        raise ZeroDivisionError

    monkeypatch.setattr(remembering, "fingerprint", fails)
    memory.remember(verdict(), SYSTEM, MASTER, 0.0)
    assert recalled(memory) is None
    assert memory.folder is not None
    assert not memory.folder.exists()


# ---- wrong entries ---------------------------------------------------------------------------------------------------


def entry(memory: Memory) -> Path:
    memory.remember(verdict(), SYSTEM, MASTER, 0.0)
    assert memory.folder is not None
    (path,) = memory.folder.iterdir()
    return path


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a key of another coupling": lambda e: e["key"]["numbers"].reverse(),
    "a key of another version": lambda e: e["key"].update(cosimo="0.0.1"),
    "no key": lambda e: e.pop("key"),
    "no verdict": lambda e: e.pop("verdict"),
    "a verdict that is a text": lambda e: e.update(verdict="yes"),
    "a verdict that is a list": lambda e: e.update(verdict=[1, 2]),
    "trust that contradicts the numbers": lambda e: e["verdict"].update(trust="yes"),
    "trust that nobody knows": lambda e: e["verdict"].update(trust="perhaps"),
    "another headline": lambda e: e["verdict"].update(headline="Trust: every output within 0.1 % until 5 s"),
    "errors smaller than the headline says": lambda e: e["verdict"]["errors"].update({"a.y": 0.001}),
    "an error that is negative": lambda e: e["verdict"]["errors"].update({"b.y": -0.004}),
    "an error that is no number": lambda e: e["verdict"]["errors"].update({"b.y": "small"}),
    "an error beyond all numbers": lambda e: e["verdict"]["errors"].update({"b.y": 10**400}),
    "an output that the system has not": lambda e: e["verdict"]["errors"].update({"c.y": 0.004}),
    "errors that are a list": lambda e: e["verdict"].update(errors=[0.02, 0.004]),
    "errors of a kind that nobody knows": lambda e: e["verdict"].update(error_kind="guessed"),
    "no horizon of the errors": lambda e: e["verdict"].update(error_horizon=None),
    "evidence that nobody knows": lambda e: e["verdict"].update(evidence="hearsay"),
    "unstable all the same": lambda e: e["verdict"].update(stable=False),
    "stable that is a text": lambda e: e["verdict"].update(stable="yes"),
    "stable that is a number": lambda e: e["verdict"].update(stable=1),
    "another system": lambda e: e["verdict"].update(system="other"),
    "another master": lambda e: e["verdict"].update(master="gauss-seidel(a,b)"),
    "another schedule": lambda e: e["verdict"].update(schedule="F1 G1 H1"),
    "another step": lambda e: e["verdict"].update(step_size=0.2),
    "another horizon": lambda e: e["verdict"].update(horizon=6.0),
    "another target": lambda e: e["verdict"].update(target=0.03),
    "a target that is no number": lambda e: e["verdict"].update(target="low"),
    "no target": lambda e: e["verdict"].pop("target"),
    "a radius that is no number": lambda e: e["verdict"].update(spectral_radius="large"),
    "a radius beyond all numbers": lambda e: e["verdict"].update(spectral_radius=10**400),
    "a number of runs that is a text": lambda e: e["verdict"].update(pilot_runs="many"),
    "reasons that are a number": lambda e: e["verdict"].update(reasons=5),
    "a master recommended that nobody knows": lambda e: e["verdict"]["recommendation"].update(name="magic"),
    "a master recommended that is a number": lambda e: e["verdict"]["recommendation"].update(name=7),
    "a recommendation with more than there is": lambda e: e["verdict"]["recommendation"].update(more=1),
    "a recommendation that is a text": lambda e: e["verdict"].update(recommendation="use it"),
    "a recommended error that is a text": lambda e: e["verdict"]["recommendation"].update(error="small"),
    "a recommended step that is a flag": lambda e: e["verdict"]["recommendation"].update(step_size=True),
    "a recommendation to keep that is a text": lambda e: e["verdict"]["recommendation"].update(keep="no"),
    "a recommendation without a text": lambda e: e["verdict"]["recommendation"].update(text=None),
    "lines that are a list": lambda e: e["verdict"]["recommendation"].update(lines=["rm"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_entry_is_not_believed(what: str, memory: Memory) -> None:
    path = entry(memory)
    content = json.loads(path.read_text())
    WRONG[what](content)
    path.write_text(json.dumps(content))
    assert recalled(memory) is None
    memory.remember(verdict(), SYSTEM, MASTER, 0.0)  # and a new one takes its place
    assert recalled(memory) is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\x00\xff\xfe\x80binary",
        b"[" * 100_000,
        b'{"key": NaN, "verdict": NaN}',
    ],
    ids=["empty", "cut", "null", "list", "binary", "deep", "nan"],
)
def test_a_damaged_entry_is_not_believed(content: bytes, memory: Memory) -> None:
    path = entry(memory)
    path.write_bytes(content)
    assert recalled(memory) is None


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_cut_entry_is_not_believed(part: float, memory: Memory) -> None:
    path = entry(memory)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    assert recalled(memory) is None


def test_a_huge_entry_is_not_read(memory: Memory) -> None:
    path = entry(memory)
    content = path.read_bytes()
    path.write_bytes(content + b" " * (1_000_000 - len(content)))
    assert recalled(memory) is not None
    path.write_bytes(content + b" " * (1_000_001 - len(content)))
    assert recalled(memory) is None


def test_a_folder_in_the_place_of_an_entry(memory: Memory) -> None:
    path = entry(memory)
    path.unlink()
    path.mkdir()
    assert recalled(memory) is None
    memory.remember(verdict(), SYSTEM, MASTER, 0.0)
    assert recalled(memory) is None
    assert memory.folder is not None
    assert [one.name for one in memory.folder.iterdir()] == [path.name]  # nothing half written is left


# ---- the folder ------------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here first")
    memory = Memory(tmp_path / "file" / "cache")
    memory.remember(verdict(), SYSTEM, MASTER, 0.0)
    assert recalled(memory) is None


@pytest.mark.parametrize("what", ["mkstemp", "replace", "mkdir"])
def test_a_folder_that_cannot_be_written(what: str, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    owner = {"mkstemp": tempfile, "replace": os, "mkdir": Path}[what]
    monkeypatch.setattr(owner, what, refuses)
    memory.remember(verdict(), SYSTEM, MASTER, 0.0)
    assert recalled(memory) is None


def test_where_verdicts_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(storage.sys, "platform", "linux")
    monkeypatch.setenv("COSIMO_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    for off in ("off", "OFF"):
        monkeypatch.setenv("COSIMO_CACHE", off)
        assert default_folder() is None
    monkeypatch.delenv("COSIMO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_folder() == tmp_path / "cache" / "cosimo" / "verdicts"
    monkeypatch.delenv("XDG_CACHE_HOME")
    for name in ("HOME", "USERPROFILE"):  # the latter on Windows
        monkeypatch.setenv(name, str(tmp_path / "home"))
    assert default_folder() == tmp_path / "home" / ".cache" / "cosimo" / "verdicts"
    monkeypatch.setattr(storage.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert default_folder() == tmp_path / "local" / "cosimo" / "verdicts"


def test_nobody_is_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("no home directory")

    for name in ("COSIMO_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert default_folder() is None
    nothing = Memory()
    assert nothing.folder is None
    nothing.remember(verdict(), SYSTEM, MASTER, 0.0)
    assert recalled(nothing) is None


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIMO_CACHE", "off")
    nothing = Memory()
    nothing.remember(verdict(), SYSTEM, MASTER, 0.0)
    assert recalled(nothing) is None


def test_the_oldest_go_when_there_are_too_many(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MOST", 4)
    monkeypatch.setattr(storage, "DROPPED", 2)
    assert memory.folder is not None
    chosen = [jacobi(SYSTEM, 0.1 + 0.01 * k) for k in range(5)]
    for age, master in enumerate(chosen[:4]):
        memory.remember(verdict(master), SYSTEM, master, 0.0)
        newest = max(memory.folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (1e6 + age, 1e6 + age))
    assert len(list(memory.folder.iterdir())) == 4
    memory.remember(verdict(chosen[4]), SYSTEM, chosen[4], 0.0)
    assert [recalled(memory, master=master) is not None for master in chosen] == [False, False, True, True, True]
