"""FMUs that bring sources only: compiled in the sandbox, with the numbers of the library, and refused readably."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmu_builder import HERE, build

import cosimo as co
import processes
from cosimo.core.errors import ConfigurationError
from cosimo.units.fmi import archive
from cosimo.units.fmi.fmu import Fmu, FmuOptions

SOURCES = {"<CoSimulation modelIdentifier=\"lag2\" canHandleVariableCommunicationStepSize=\"true\"/>":
           '<CoSimulation modelIdentifier="lag2" canHandleVariableCommunicationStepSize="true"><SourceFiles>'
           '<File name="lag2.c"/></SourceFiles></CoSimulation>'}  # fmt: skip
BUILD = """<?xml version="1.0" encoding="UTF-8"?>
<fmiBuildDescription fmiVersion="3.0">
  <BuildConfiguration modelIdentifier="arrays3" platform="x86-amiga"><SourceFileSet/></BuildConfiguration>
  <BuildConfiguration modelIdentifier="feedthrough3">
    <SourceFileSet language="C99"{options}>
      <SourceFile name="unit.c"/>
      <PreprocessorDefinition name="END" value="0.5"/>
      <PreprocessorDefinition name="LONGEST" value="0.01" optional="true"/>
      <IncludeDirectory name="headers"/>
    </SourceFileSet>
  </BuildConfiguration>
</fmiBuildDescription>
"""
sandbox = pytest.mark.sandbox


@pytest.fixture(autouse=True)
def _no_compiled_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that another test compiled from the same sources would be taken without asking for a sandbox."""
    monkeypatch.setenv("COSIMO_CACHE", str(tmp_path / "cache"))


def source(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def lag(folder: Path, code: str | None = None, **changes: str) -> Path:
    files = {"sources/lag2.c": source("lag2.c") if code is None else code, "sources/fmi2.h": source("fmi2.h")}
    return build(folder, "lag2", platform="", changes={**SOURCES, **changes}, files=files)


def feedthrough(folder: Path, description: str) -> Path:
    files = {
        "sources/unit.c": source("feedthrough3.c"),
        "sources/headers/fmi3.h": source("fmi3.h"),
        "sources/buildDescription.xml": description,
    }
    return build(folder, "feedthrough3", platform="", files=files)


def compiling(path: Path, how: str = "sandbox") -> Fmu:
    return Fmu(path, options=FmuOptions(compile=how), isolate=False)


def rows(unit: Fmu, name: str) -> np.ndarray:
    system = co.System({"a": unit})
    return co.run(system, co.masters.jacobi(system, step=0.125), stop=1.0)[name]


@sandbox
def test_sources_of_fmi_2_give_the_numbers_of_the_library(tmp_path: Path) -> None:
    assert np.array_equal(rows(compiling(lag(tmp_path / "s")), "a.x"), rows(Fmu(build(tmp_path, "lag2")), "a.x"))


@sandbox
def test_a_build_description_says_what_is_defined_and_where_headers_are(tmp_path: Path) -> None:
    system = co.System({"a": compiling(feedthrough(tmp_path, BUILD.format(options="")))})
    found = co.run(system, co.masters.jacobi(system, step=0.125), stop=1.0)
    assert found.time[-1] == 0.5  # END is defined; LONGEST, which is optional, would discard the first step


@sandbox
def test_the_prefix_of_static_linking_is_taken_away(tmp_path: Path) -> None:
    names = {
        line.partition("(")[0].split()[-1].strip("*") for line in source("lag2.c").splitlines() if "EXPORT" in line
    }
    prefix = "".join(f"#define {name} lag2_{name}\n" for name in sorted(names))
    assert "lag2_fmi2DoStep" in prefix
    assert rows(compiling(lag(tmp_path, prefix + source("lag2.c"))), "a.x")[-1] > 0.5


@sandbox
def test_what_was_compiled_is_kept_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lag(tmp_path)
    again = shutil.copy(path, tmp_path / "again.fmu")
    first = rows(compiling(path), "a.x")
    (kept,) = (tmp_path / "cache").glob("*.so")
    monkeypatch.setattr(archive._Build, "call", lambda build, words: pytest.fail("compiled again"))
    assert np.array_equal(rows(compiling(again), "a.x"), first)
    kept.chmod(0o666)  # somebody else may have written to it
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        rows(compiling(path), "a.x")


@sandbox
def test_errors_of_the_compiler_are_one_sentence(tmp_path: Path) -> None:
    code = "int x = one;\nint y = two;\n" + source("lag2.c")
    with pytest.raises(ConfigurationError) as caught:
        compiling(lag(tmp_path, code)).instantiate()
    said = str(caught.value)
    assert "lag2.fmu' cannot be compiled: lag2.c:1:9: error:" in said
    assert "lag2.c:2:9: error:" in said
    assert "\n" not in said
    with pytest.raises(
        ConfigurationError, match=r"cannot be compiled: .*undefined reference|cannot be loaded: .*undefined"
    ):
        compiling(lag(tmp_path, source("lag2.c") + "extern int nobody(void); EXPORT int fmi2Cancel(void) "
                      "{ return nobody(); }")).instantiate()  # fmt: skip


@sandbox
@pytest.mark.parametrize("file", ["/etc/passwd", "{folder}/secret"])
def test_hostile_sources_read_no_files(tmp_path: Path, file: str) -> None:
    (tmp_path / "secret").write_text("int secret;\n")
    file = file.format(folder=tmp_path)
    assert os.path.exists(file)
    with pytest.raises(ConfigurationError, match="No s"):  # long names are cut
        compiling(lag(tmp_path, f'#include "{file}"\n' + source("lag2.c"))).instantiate()


@sandbox
def test_hostile_options_write_no_files(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    options = f' compilerOptions="-MD -MF {mark}"'
    with pytest.raises(ConfigurationError, match="cannot be compiled"):
        compiling(feedthrough(tmp_path, BUILD.format(options=options))).instantiate()
    assert not mark.exists()


def test_without_a_sandbox_only_trusted_sources_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "available", lambda: False)
    path = lag(tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"in a sandbox only.*install the package bubblewrap.*--compile trusted"
    ):
        compiling(path).instantiate()
    assert rows(compiling(path, "trusted"), "a.x")[-1] > 0.5


def test_without_a_compiler_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="no compiler 'cc' to compile them; install one"):
        compiling(lag(tmp_path)).instantiate()


BAD = {
    "nothing": ("<x/>", "has no configuration for 'feedthrough3'"),
    "no files": (BUILD.format(options="").replace('<SourceFile name="unit.c"/>', ""), "names no source files"),
    "a file elsewhere": (
        BUILD.format(options="").replace('"unit.c"', '"../modelDescription.xml"'),
        "names the source file '../modelDescription.xml', which the archive does not hold",
    ),
    "another language": (BUILD.format(options="").replace("C99", "Fortran77"), "sources in 'Fortran77'"),
    "bad options": (BUILD.format(options=" compilerOptions=\"'\""), "compiler options in .* cannot be understood"),
    "no XML": ("<x", "not well-formed XML"),
}  # fmt: skip


@sandbox
@pytest.mark.parametrize("case", BAD)
def test_build_descriptions_that_make_no_sense_are_refused(tmp_path: Path, case: str) -> None:
    description, reason = BAD[case]
    with pytest.raises(ConfigurationError, match=reason):
        compiling(feedthrough(tmp_path, description)).instantiate()


def test_a_way_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown way to compile 'sandbx'; did you mean 'sandbox'"):
        FmuOptions(compile="sandbx")


def command(folder: Path, *words: str) -> Any:
    given = [sys.executable, "-m", "cosimo.cli", *words]
    return processes.run(given, cwd=folder, capture_output=True, text=True, check=False)


@sandbox
def test_the_command_line_and_scenarios_compile(tmp_path: Path) -> None:
    lag(tmp_path)
    scenario = 'step-size = 0.1\nstop-time = 1.0\n[units.a]\nfmu = "lag2.fmu"\ncompile = "sandbox"\n'
    (tmp_path / "a.toml").write_text(scenario)
    plain = ("run", "lag2.fmu", "--step-size", "0.1", "--stop-time", "1")
    refused = command(tmp_path, *plain)
    assert refused.returncode == 2
    assert "or compile its sources (--compile)" in refused.stderr
    assert command(tmp_path, *plain, "--compile").returncode == 0
    assert command(tmp_path, "run", "a.toml").returncode == 0
    assert command(tmp_path, "check-fmu", "lag2.fmu", "--compile", "--step-size", "0.1").returncode == 0
