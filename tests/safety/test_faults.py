"""Rows of the table of faults that are about files: broken and incomplete FMUs, paths, names that clash."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from command_line import cosimo
from fmu_builder import ENDING, build, compiled

from cosimo.core.result import Result
from cosimo.formats.export import export_ssp, export_system
from cosimo.formats.results import read_result
from cosimo.problems import two_mass
from cosimo.units.fmi.archive import platform_folders

RUN = ("--step-size", "0.1", "--stop-time", "1", "--output-file", "out.csv")
LIBRARY = f"binaries/{platform_folders(2)[0]}/minimal2{ENDING}"
NEEDED, NOWHERE = ("KERNEL32.dll", "KERNELXX.dll") if sys.platform == "win32" else ("libc.so.6", "libc.so.X")
"""A library that every library of an FMU needs, and one of a name of the same length that is not there."""


def edited(path: Path, **contents: bytes | None) -> Path:
    """The FMU with its library replaced (`library`) or left out (None), or with another description."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[LIBRARY] = contents.get("library", members[LIBRARY])  # type: ignore[assignment]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if content is not None:
                archive.writestr(name, content)
    return path


def without_symbol(path: Path) -> Path:
    """The library without the function that every step needs."""
    return edited(path, library=compiled("minimal2").replace(b"fmi2DoStep\0", b"fmi2DoStop\0"))


def of_a_library_that_is_not_there(path: Path) -> Path:
    """The library needs another one that nobody has."""
    name, needed = NEEDED.encode() + b"\0", compiled("minimal2")
    assert name in needed
    return edited(path, library=needed.replace(name, NOWHERE.encode() + b"\0"))


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-300])
    return path


FAULTS = {
    "truncated": (cut, (2,), "damaged or incomplete"),
    "not a zip": (lambda path: path.write_bytes(b"hello"), (2,), "not a zip archive"),
    "empty": (lambda path: path.write_bytes(b""), (2,), "not a zip archive"),
    "no library": (lambda path: edited(path, library=None), (2,), "holds no library for this platform"),
    "not a library": (lambda path: edited(path, library=b"hello"), (2,), "cannot be loaded"),
    "cut library": (lambda path: edited(path, library=compiled("minimal2")[:2000]), (2,), "cannot be loaded"),
    "missing symbol": (without_symbol, (2,), "lacks the function fmi2DoStep"),
    "missing dependency": (of_a_library_that_is_not_there, (2,), NOWHERE),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_fmus(work: Path, fault: str) -> None:
    spoil, codes, says = FAULTS[fault]
    spoil(build(work, "minimal2"))
    done = cosimo(work, "run", "minimal2.fmu", *RUN)
    assert done.returncode in codes, done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.strip().splitlines() if line.startswith("cosimo:")]
    assert len(said) == 1, done.stderr
    assert says in said[0]
    assert "minimal2" in said[0]


def test_a_broken_description_is_named_with_its_line(work: Path) -> None:
    build(work, "minimal2", changes={"</ModelVariables>": "</Variables>"})
    (work / "s.ssd").write_text("<a>\n<b>\n</a>", encoding="utf-8")
    (work / "s.toml").write_text("a = 1\nb = = 2\n", encoding="utf-8")
    for name, place in (
        ("minimal2.fmu", "minimal2.fmu/modelDescription.xml:7:"),
        ("s.ssd", "s.ssd:3:"),
        ("s.toml", "s.toml:2:"),
    ):
        for verb in ("info", "validate", "run"):
            done = cosimo(work, verb, name, *(RUN if verb == "run" else ()))
            assert done.returncode == 2
            assert place in done.stdout + done.stderr, (verb, name)
            assert "Traceback" not in done.stdout + done.stderr


# ---- paths -----------------------------------------------------------------------------------------------------------


def rows(folder: Path, target: str, *more: str) -> Result:
    done = cosimo(folder, "run", target, "--step-size", "1e-3", "--stop-time", "0.2", "--output-file", "out.csv", *more)
    assert done.returncode == 0, done.stderr
    return read_result(folder / "out.csv")


@pytest.mark.parametrize("name", ["with spaces and 'quotes'", "Größe µ", "二質点 模型", "100%25 #1", "emoji 🚂"])
def test_paths(tmp_path: Path, name: str) -> None:
    for folder in (plain := tmp_path / "plain", odd := tmp_path / name):
        (folder / "work").mkdir(parents=True)
        (folder / "temporary files").mkdir()
        export_system(two_mass(), folder / "work", fmi=3)
        export_ssp(two_mass(), folder / "work" / "system.ssp", fmi=3, step=1e-3, stop=1.0)
    (odd / "work" / "system.ssp").rename(odd / "work" / f"{name}.ssp")
    expected, found = rows(plain / "work", "system.ssp"), rows(odd / "work", f"{name}.ssp")
    assert found.names == expected.names
    assert np.array_equal(found.to_numpy(), expected.to_numpy())
    assert list((odd / "temporary files").iterdir()) == []


# ---- names that clash ------------------------------------------------------------------------------------------------


def test_two_units_with_equal_symbols(work: Path) -> None:
    """Both libraries have the same file name and export the same functions; each unit gets its own."""
    build(work, "feedthrough2", file="a.fmu", library="same")
    build(work, "awkward2", file="b.fmu", library="same")
    export_system(two_mass(), work, fmi=2)
    assert len({path.stat().st_size for path in work.glob("*.fmu")}) >= 3
    scenario = 'connections = ["one.f -> two.f", "two.x -> one.x2", "two.v -> one.v2"]\n'
    tables = "".join(f'[units.{unit}]\nfmu = "{unit}.fmu"\n' for unit in ("one", "two"))
    others = '[units.a]\nfmu = "a.fmu"\n[units.b]\nfmu = "b.fmu"\n'
    (work / "alone.toml").write_text(scenario + tables, encoding="utf-8")
    (work / "all.toml").write_text(scenario + tables + others, encoding="utf-8")
    alone, together = rows(work, "alone.toml"), rows(work, "all.toml")
    for name in alone.names:
        assert np.array_equal(alone[name], together[name])


def test_a_single_instance_unit_used_twice(work: Path) -> None:
    only_once = {'canHandleVariableCommunicationStepSize="true"': 'canBeInstantiatedOnlyOncePerProcess="true" '
                 'canHandleVariableCommunicationStepSize="true"'}  # fmt: skip
    build(work, "minimal2", file="once.fmu", changes=only_once)
    build(work, "minimal2", file="often.fmu")
    for name in ("once", "often"):
        units = "".join(
            f'[units.{unit}]\nfmu = "{name}.fmu"\nstart = {{u = {u}.0}}\n' for unit, u in (("a", 2), ("b", 3))
        )
        (work / f"{name}.toml").write_text(units, encoding="utf-8")
    once, often = rows(work, "once.toml"), rows(work, "often.toml")
    assert np.array_equal(once.to_numpy(), often.to_numpy())
    assert not np.array_equal(once["a.y"], once["b.y"])
