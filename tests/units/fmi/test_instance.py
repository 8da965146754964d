"""Live FMUs: order of initialisation, libraries, release on every way out."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import fmpy
import numpy as np
import pytest

import processes

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from compiling import FLAGS, HERE, KEPT
from fmu_builder import ENDING, build

from cosimo.core.errors import ConfigurationError, StepDiscarded, UnitError
from cosimo.units.fmi.archive import platform_folders
from cosimo.units.fmi.component import imported_libraries
from cosimo.units.fmi.fmu import Experiment, Fmu
from cosimo.units.fmi.instance import FmuInstance

pytestmark = pytest.mark.usefixtures("temporary")


def values(*numbers: float) -> np.ndarray:
    return np.array([numbers], dtype=float)


def test_parameters_survive_the_setup_that_resets_them(tmp_path: Path) -> None:
    instance = Fmu(build(tmp_path, "awkward2"), parameters={"longest_step": 0.25}).instantiate()
    with pytest.raises(StepDiscarded):
        instance.step(0.0, 0.5)


def test_start_time_is_handed_over(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "awkward2"), experiment=Experiment(start_time=2.0))
    assert fmu.instantiate().read()[0] == 2.0
    assert fmu.instantiate(3.0).read()[0] == 3.0
    told = Fmu(fmu.path, experiment=Experiment(start_time=3.0, stop_time=4.0, tolerance=1e-6))
    assert told.instantiate().read()[0] == 3.0
    with pytest.raises(
        UnitError, match=r"start at t = 2.0, but its first step starts at t = 0.0; give it an Experiment"
    ):
        fmu.instantiate().step(0.0, 0.1)


def test_initialisation_is_finished_once(tmp_path: Path) -> None:
    instance = Fmu(build(tmp_path, "events3")).instantiate()
    instance.set_input(values(2.0, 5.0), 0.1)  # in initialisation mode: discrete inputs may be set
    instance.finish_initialisation()
    instance.finish_initialisation()
    assert instance.read().tolist() == [0.0, 0.0, 5.0]
    instance.step(0.0, 0.1)
    assert instance.read()[0] == pytest.approx(0.2)


def test_wrong_token_gives_the_reason(tmp_path: Path, temporary: Path) -> None:
    fmu = Fmu(build(tmp_path, "awkward2", changes={'guid="awkward2"': 'guid="older"'}))
    with pytest.raises(UnitError, match="could not be instantiated; it says: wrong token older, wanted awkward2"):
        fmu.instantiate()
    assert not list(temporary.iterdir())


def test_library_of_another_name(tmp_path: Path) -> None:
    for name in ("minimal2", "arrays3"):
        instance = Fmu(build(tmp_path, name, library="something-else")).instantiate()
        instance.step(0.0, 0.1)


def test_broken_library(tmp_path: Path, temporary: Path) -> None:
    here = os.getcwd()
    good = Fmu(build(tmp_path, "minimal2"))
    path = build(tmp_path, "minimal2", platform="", files={good.library(): "no library"})
    with pytest.raises(ConfigurationError, match=r"minimal2.fmu' cannot be loaded: .*"):
        Fmu(path).instantiate()
    assert not list(temporary.iterdir())
    assert os.getcwd() == here


def test_single_instance(tmp_path: Path, temporary: Path) -> None:
    flag = {'modelIdentifier="awkward2"': 'modelIdentifier="awkward2" canBeInstantiatedOnlyOncePerProcess="true"'}
    fmu = Fmu(build(tmp_path, "awkward2", changes=flag, defines=("SINGLE",)))
    assert fmu.single_instance
    # Each lives in a process of its own: the library itself refuses a second instance.
    first, second = fmu.instantiate(), fmu.instantiate()
    for instance in (first, second):
        instance.step(0.0, 0.1)
    assert first.read()[0] == second.read()[0] == pytest.approx(0.1)
    first.close()
    second.close()
    assert not list(temporary.iterdir())


def test_single_instance_where_units_cannot_be_isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = {'modelIdentifier="awkward2"': 'modelIdentifier="awkward2" canBeInstantiatedOnlyOncePerProcess="true"'}
    fmu = Fmu(build(tmp_path, "awkward2", changes=flag, defines=("SINGLE",)))
    monkeypatch.setattr("cosimo.units.fmi.instance.available", lambda: False)
    first = fmu.instantiate()
    with pytest.raises(ConfigurationError, match="only once per process"):
        fmu.instantiate()
    first.close()
    fmu.instantiate().close()


def test_two_instances_do_not_share_values(tmp_path: Path, temporary: Path) -> None:
    fmu = Fmu(build(tmp_path, "minimal2"))
    first, second = fmu.instantiate(), fmu.instantiate()
    assert len([path for path in temporary.iterdir() if path.is_dir()]) == 1  # Windows has a file beside it
    first.step(0.0, 0.1)
    assert (first.read()[0], second.read()[0]) == (0.1, 0.0)
    first.close()
    second.step(0.0, 0.1)
    second.close()
    second.close()
    assert not list(temporary.iterdir())


def test_garbage_collection_releases(tmp_path: Path, temporary: Path) -> None:
    instance: FmuInstance | None = Fmu(build(tmp_path, "feedthrough2")).instantiate()
    assert instance is not None
    state = instance.save()
    instance = None
    gc.collect()
    assert not list(temporary.iterdir())
    assert state is not None


@pytest.mark.parametrize("end", ["", "raise RuntimeError", "import sys; sys.exit(3)"])
def test_the_end_of_the_process_releases(tmp_path: Path, temporary: Path, end: str) -> None:
    path = build(tmp_path, "feedthrough2")
    code = f"from cosimo.units import Fmu; i = Fmu({str(path)!r}).instantiate(); s = i.save(); i.step(0.0, 0.1)\n{end}"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = processes.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == {"": 0, "raise RuntimeError": 1}.get(end, 3), done.stderr
    assert not list(temporary.iterdir())


def test_a_forked_child_leaves_the_folder_to_its_parent(tmp_path: Path, temporary: Path) -> None:
    path = build(tmp_path, "minimal2")
    code = (
        "import os, sys, pathlib; from cosimo.units.fmi.fmu import Fmu\n"
        f"i = Fmu({str(path)!r}).instantiate()\n"
        "child = os.fork()\n"
        "if child == 0: i.close(); sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        f"print(len(os.listdir({str(temporary)!r})))"
    )
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = processes.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
    assert not list(temporary.iterdir())


def test_native_description(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "arrays3"))
    native = fmu.instantiate().native(1)
    assert [(group.code, group.references, group.positions) for group in native.inputs] == [
        ("Float64", (1,), (0, 1, 2, 3, 4, 5)),
        ("Int32", (4,), (6, 7, 8)),
    ]
    assert [group.code for group in native.outputs] == ["Float64", "Int32"]
    assert native.version == 3
    with pytest.raises(UnitError, match="lacks the function fmi3Reset"):
        native.address("fmi3Reset")


def test_native_addresses_can_be_called(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "feedthrough2"))
    instance = fmu.instantiate()
    instance.finish_initialisation()
    native = instance.native(1)
    assert [(group.code, group.references, group.positions) for group in native.inputs] == [
        ("Real", (0,), (0,)),
        ("Integer", (0, 2), (1, 3)),
        ("Boolean", (0,), (2,)),
    ]
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_double, ctypes.c_double, ctypes.c_int)
    step = prototype(native.address("fmi2DoStep"))
    assert step(native.component, 0.0, 0.1, 1) == 0
    assert instance.read()[1] == pytest.approx(0.15)


def test_a_library_that_needs_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named where it is not found; Windows finds it in PATH."""
    elsewhere, library = tmp_path / "elsewhere", tmp_path / f"lag2{ENDING}"
    sources = {"helper": "int help(void) { return 1; }"}
    sources["lag2"] = '#include "lag2.c"\nint help(void);\nint needed(void) { return help(); }'
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:  # where a compiler of another system finds it, too
        made = {name: Path(folder, f"{name}{ENDING}") for name in sources}
        for name, text in sources.items():
            source, others = Path(folder, f"{name}-source.c"), [made["helper"], "-lm"] if name == "lag2" else []
            source.write_text(text, encoding="utf-8")
            command = [shutil.which("cc") or "cc", *FLAGS, f"-I{HERE}", "-o", made[name], source, *others]
            subprocess.run(command, check=True)
        shutil.copy(made["lag2"], library)
        elsewhere.mkdir()
        shutil.copy(made["helper"], elsewhere)
    path = build(tmp_path, "lag2", platform="")
    with zipfile.ZipFile(path, "a") as archive:
        archive.write(library, f"binaries/{platform_folders(2)[0]}/{library.name}")
    with pytest.raises(ConfigurationError, match=f"helper{ENDING}"):
        Fmu(path).instantiate()
    if sys.platform == "win32":
        monkeypatch.setenv("PATH", f"{elsewhere};{os.environ['PATH']}")
        Fmu(path).instantiate().close()


def test_what_a_library_of_windows_needs_is_read_from_it() -> None:
    folder = Path(fmpy.__file__).parent / "sundials" / "x86_64-windows"
    content = (folder / "sundials_sunlinsoldense.dll").read_bytes()
    assert imported_libraries(content) == ["sundials_sunmatrixdense.dll", "sundials_core.dll", "KERNEL32.dll"]
    for damaged in (b"", b"MZ", content[:200], content[:600], b"\x7fELF" + content[4:0x3C] + b"\xff" * 4, b"\0" * 4000):
        assert imported_libraries(damaged) == []
