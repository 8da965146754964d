"""`python -m wheels [TARGET …]`: the source distribution and from it wheels for Linux, Windows and macOS.

All are compiled here by zig, which brings the C and C++ libraries of the systems along: those of Linux for glibc 2.28,
which `auditwheel` checks. Without a target those of Linux are made, for CPython 3.11 and with the stable interface from
3.12 on, which `abi3audit` checks; for macOS only the latter. `make test-all` tests that for Linux and CPython 3.11,
`make windows` that for Windows. Nobody has run those for macOS: they stay in `build/wheels`, where the others go to
`dist`. All bring the libraries inside exported FMUs for all systems, which the target `libraries` alone makes, in
`build/wheels/libraries`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "wheels"
TOOLS = (
    "abi3audit",
    "auditwheel",
    "build",
    "cmake",
    "nanobind>=2.4",
    "ninja",
    "scikit-build-core>=0.10",
    "wheel",
)
LARGEST = 6_000_000
"""Bytes of a wheel."""


@dataclass(frozen=True)
class Target:
    """A system: what zig and CMake call it, the tag of its wheels, and the ending of its extension modules."""

    zig: str
    system: str
    processor: str
    tag: str
    module: str  # of CPython 3.11; {} stands for its number
    tried: bool = True  # somebody has run it


TARGETS = {
    "linux": Target("x86_64-linux-gnu.2.28", "Linux", "x86_64", "manylinux_2_28_x86_64", "cpython-{}-x86_64-linux-gnu"),
    "windows": Target("x86_64-windows-gnu", "Windows", "AMD64", "win_amd64", "cp{}-win_amd64"),
    "macos-arm": Target("aarch64-macos.13.0", "Darwin", "arm64", "macosx_13_0_arm64", "cpython-{}-darwin", False),
    "macos-intel": Target("x86_64-macos.13.0", "Darwin", "x86_64", "macosx_13_0_x86_64", "cpython-{}-darwin", False),
}
PROCESSORS = {"x86_64": (0x01000007, 3, 12), "aarch64": (0x0100000C, 0, 14)}
"""As a library of macOS for several names them: processor, variant, alignment of the part as a power of two."""
PYCONFIG = """\
#ifndef Py_CONFIG_H /* what the headers of CPython ask of 64-bit Windows, for compilers with GNU extensions */
#define Py_CONFIG_H
#include <io.h>
#define MS_WINDOWS
#define MS_WIN64
#define NT_THREADS
#define Py_ENABLE_SHARED 1
#define HAVE_DECLSPEC_DLL
#define PLATFORM "win32"
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_WCHAR_T 2
#define ALIGNOF_SIZE_T 8
#define ALIGNOF_LONG 4
#define HAVE_UINTPTR_T 1
#define HAVE_SSIZE_T 1
#define HAVE_STDDEF_H 1
#define HAVE_STDINT_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_WCHAR_H 1
#define WITH_PYMALLOC 1
#endif
"""


@dataclass(frozen=True)
class Interpreter:
    """A CPython that builds wheels for its version, or with the stable interface, in an environment of its own."""

    python: Path
    number: str  # "311"
    include: Path

    @property
    def stable(self) -> bool:
        """Whether its wheels do for all later versions too."""
        return int(self.number) >= 312

    def run(self, *arguments: str | Path, environment: Mapping[str, str] | None = None) -> None:
        """Run a module of the environment."""
        folder = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [self.python, "-m", *arguments],
            env=os.environ | {"PATH": folder} | dict(environment or {}),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}\nfailed: python -m {' '.join(map(str, arguments))}")


def main() -> int:
    """Make what was asked for, and print each wheel with its size."""
    parser = argparse.ArgumentParser(prog="wheels", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}, libraries; linux if none is given"
    )
    parser.add_argument("--python", default="3.11,3.12", help="3.11, 3.12 (the stable interface) or both")
    given = parser.parse_args()
    for name in set(given.targets) - set(TARGETS) - {"libraries"}:
        parser.error(f"there is no target '{name}'; choose from {', '.join(TARGETS)}, libraries")
    interpreters = [interpreter(version) for version in given.python.split(",")]
    exported = libraries(interpreters[0])
    targets = [TARGETS[name] for name in given.targets or ["linux"] if name != "libraries"]
    source = unpack(sdist(interpreters[0])) if targets else None
    for target, one in itertools.product(targets, interpreters):
        if source is None or not (target.tried or one.stable):
            continue
        wheel = build(target, one, source, exported)
        size = wheel.stat().st_size
        print(f"{wheel.relative_to(ROOT)}: {size / 1e6:.2f} MB{'' if target.tried else ', never run'}", flush=True)
        if size > LARGEST:
            sys.exit(f"{wheel.name} is larger than {LARGEST / 1e6:g} MB")
    return 0


def interpreter(version: str) -> Interpreter:
    """The environment with the tools for a version of Python, set up where there is none; newer ones do for 3.12."""
    python = environment(f"python-{version}", version, TOOLS)
    ask = "import sys, sysconfig; print('%d%d' % sys.version_info[:2], sysconfig.get_path('include'))"
    number, include = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    return Interpreter(python, number, Path(include))


def environment(name: str, version: str, packages: Sequence[str]) -> Path:
    """The Python of an environment with these packages, set up where there is none."""
    folder = WORK / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([find_python(version), "-m", "venv", folder], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True
        )
        (folder / "ready").touch()
    return python


def find_python(version: str) -> str:
    """The program of a Python of this version, or from 3.12 on of a newer one."""
    later = range(12, 20) if version != "3.11" else (11,)
    managed = sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin"))
    places = [os.environ["PATH"], *map(str, managed)]
    for minor, place in itertools.product(later, places):
        if (program := shutil.which(f"python3.{minor}", path=place)) is None:
            continue
        tried = subprocess.run([program, "-c", "import venv"], capture_output=True, check=False)
        if tried.returncode == 0:  # the shim of a version that is not there fails
            return program
    sys.exit(f"there is no Python {version}{'' if version == '3.11' else ' or newer'}; install one with its headers")


def sdist(interpreter: Interpreter) -> Path:
    """The source distribution in `dist/`."""
    shutil.rmtree(WORK / "sdist", ignore_errors=True)
    interpreter.run("build", "--sdist", "--no-isolation", "--outdir", WORK / "sdist", clean_tree())
    (made,) = (WORK / "sdist").iterdir()
    (ROOT / "dist").mkdir(exist_ok=True)
    return Path(shutil.copy(made, ROOT / "dist"))


def clean_tree() -> Path:
    """A copy of the files that git does not ignore: the builder looks at every file, of environments too.

    Where there is no git, the folder itself.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        return ROOT
    folder = WORK / "tree"
    shutil.rmtree(folder, ignore_errors=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():  # not removed since
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def unpack(archive: Path) -> Path:
    """The folder of the sources that were packed: what is missing there must fail here.

    In the archive all files are of the same day; with the times of the tree, those that changed are compiled again.
    """
    shutil.rmtree(WORK / "source", ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(WORK / "source", filter="data")
    (folder,) = (WORK / "source").iterdir()
    for file in folder.rglob("*"):
        if (origin := ROOT / file.relative_to(folder)).is_file():
            shutil.copystat(origin, file)
    return folder


# ---- compilers -------------------------------------------------------------------------------------------------------


def compiler() -> list[str | Path]:
    """The command of zig, one for all interpreters: what it keeps of a system's libraries is for its own path only."""
    return [environment("zig", "3.11", ["ziglang"]), "-m", "ziglang"]


PROGRAM = """#!/bin/sh
for word do
    shift
    case $word in -Wl,@*) ;; *) set -- "$@" "$word" ;; esac
done
exec {} "$@"
"""
"""A compiler in one file, as CMake wants it. Lists of symbols that may stay undefined, which zig does not read, are
left out: all may, where nanobind gives one."""


def program(name: str, *words: str) -> Path:
    """A program that calls zig with `words` first."""
    path = WORK / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROGRAM.format(shlex.join(map(str, (*compiler(), *words)))), encoding="utf-8")
    path.chmod(0o755)
    return path


def toolchain(name: str, target: Target) -> Path:
    """CMake's description of the compiler for a target."""
    lines = {
        "CMAKE_C_COMPILER": program(f"{name}-cc", "cc", "-target", target.zig, "-g0"),
        "CMAKE_CXX_COMPILER": program(f"{name}-c++", "c++", "-target", target.zig, "-g0"),
        "CMAKE_AR": program("ar", "ar"),
        "CMAKE_RANLIB": program("ranlib", "ranlib"),
        "CMAKE_RC_COMPILER": program("rc", "rc"),
        "CMAKE_MODULE_LINKER_FLAGS_INIT": "-s",
        "CMAKE_EXE_LINKER_FLAGS_INIT": "-s",
        "CMAKE_FIND_ROOT_PATH_MODE_PROGRAM": "NEVER",
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    }
    # What CMake would find out by linking programs, for each of which zig compiles the C++ library anew.
    lines |= {"CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY", "CMAKE_HAVE_LIBC_PTHREAD": "ON"}
    known = {"ID_RUN": "1", "ID": "Clang", "VERSION": "20.0", "FRONTEND_VARIANT": "GNU"}
    for language in ("C", "CXX"):
        lines |= {f"CMAKE_{language}_COMPILER_{key}": value for key, value in known.items()}
        lines[f"CMAKE_{language}_STANDARD_COMPUTED_DEFAULT"] = "17"
        lines[f"CMAKE_{language}_EXTENSIONS_COMPUTED_DEFAULT"] = "ON"
    if target.system == "Linux":
        lines["can_hide_libraries"] = "OFF"  # CMakeLists.txt
    else:
        lines |= {"CMAKE_SYSTEM_NAME": target.system, "CMAKE_SYSTEM_PROCESSOR": target.processor}
    if target.system == "Darwin":  # nothing of an SDK is looked for, and nothing is installed under another name
        lines |= {"CMAKE_OSX_SYSROOT": "", "CMAKE_OSX_DEPLOYMENT_TARGET": "", "CMAKE_INSTALL_NAME_TOOL": "true"}
        lines["CMAKE_MODULE_LINKER_FLAGS_INIT"] = "-s -undefined dynamic_lookup"
        # The linker of zig knows no bundles; Python and importers of FMUs load a dynamic library as well.
        lines["CMAKE_USER_MAKE_RULES_OVERRIDE"] = WORK / "no-bundles.cmake"
        made = "".join(f'set(CMAKE_SHARED_MODULE_CREATE_{language}_FLAGS "-shared")\n' for language in ("C", "CXX"))
        (WORK / "no-bundles.cmake").write_text(made, encoding="utf-8")
    path = WORK / f"{name}.cmake"
    path.write_text("".join(f'set({key} "{value}")\n' for key, value in lines.items()), encoding="utf-8")
    return path


def libraries(interpreter: Interpreter) -> Path:
    """The libraries inside exported FMUs, of units and of couplings, for all systems in one folder."""
    folder = WORK / "libraries"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    parts: dict[str, list[tuple[str, bytes]]] = {}
    for name, target in TARGETS.items():
        older = replace(target, zig=target.zig.replace("gnu.2.28", "gnu.2.17"))  # than systems that wheels are for
        made, out = WORK / "build" / f"libraries-{name}", WORK / f"libraries-{name}"
        tools = f"-DCMAKE_TOOLCHAIN_FILE={toolchain(f'libraries-{name}', older)}"
        shutil.rmtree(out, ignore_errors=True)
        interpreter.run("cmake", "-G", "Ninja", "-S", ROOT, "-B", made, tools, "-DCOSIMO_ONLY_LIBRARIES=ON")
        interpreter.run("cmake", "--build", made)
        interpreter.run("cmake", "--install", made, "--prefix", out)
        for file in (out / "cosimo" / "formats" / "_fmu").iterdir():
            parts.setdefault(file.name, []).append((target.zig.partition("-")[0], file.read_bytes()))
    for file, found in parts.items():
        (folder / file).write_bytes(found[0][1] if len(found) == 1 else universal(found))
    return folder


def universal(parts: Sequence[tuple[str, bytes]]) -> bytes:
    """One library of macOS for several processors: a table of big-endian numbers, then the parts, aligned.

    The layout is that of `fat_header` and `fat_arch` in <mach-o/fat.h>.
    """
    table, body = struct.pack(">II", 0xCAFEBABE, len(parts)), b""
    begin = 1 << max(PROCESSORS[name][2] for name, _ in parts)
    for name, content in parts:
        kind, variant, power = PROCESSORS[name]
        body += bytes(-len(body) % (1 << power))
        table += struct.pack(">5I", kind, variant, begin + len(body), len(content), power)
        body += content
    return table + bytes(begin - len(table)) + body


# ---- Python for Windows, from the headers of the Python here ---------------------------------------------------------


def windows_python(interpreter: Interpreter) -> Iterator[str]:
    """Options of CMake: headers for Windows, and libraries that name what python3x.dll and python3.dll hold."""
    folder = WORK / f"windows-python-{interpreter.number}"
    if not (folder / "include").exists():  # what is written again is compiled again
        shutil.copytree(interpreter.include, folder / "include")
        (folder / "include" / "pyconfig.h").write_text(PYCONFIG, encoding="utf-8")
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((folder / "include").rglob("*.h")))
    functions = set(re.findall(r"PyAPI_FUNC\([^)]*\)\s*\**\s*(\w+)\s*\(", text))
    variables = set(re.findall(r"PyAPI_DATA\([^)]*\)\s*\**\s*(\w+)", text))
    names = [*sorted(functions - variables), *(f"{name} DATA" for name in sorted(variables))]
    yield f"-DPython_INCLUDE_DIR={folder / 'include'}"
    for option, name in (("Python_LIBRARY", f"python{interpreter.number}"), ("Python_SABI_LIBRARY", "python3")):
        (folder / f"{name}.def").write_text(f"LIBRARY {name}.dll\nEXPORTS\n" + "\n".join(names), encoding="utf-8")
        library = folder / f"lib{name}.a"
        command = [*compiler(), "dlltool", "-m", "i386:x86-64", "-d", folder / f"{name}.def", "-l", library]
        subprocess.run(command, check=True)
        yield f"-D{option}={library}"


def debian_headers(interpreter: Interpreter) -> Iterator[str]:
    """An option of CMake: the header that Debian keeps among those of the system, which zig must not see."""
    own = Path("x86_64-linux-gnu", interpreter.include.name)
    if (kept := interpreter.include.parent / own).exists():
        shutil.copytree(kept, WORK / "debian" / own, dirs_exist_ok=True)
        yield f"-DCMAKE_CXX_FLAGS=-isystem {WORK / 'debian'}"


# ---- one wheel -------------------------------------------------------------------------------------------------------


def build(target: Target, interpreter: Interpreter, source: Path, exported: Path) -> Path:
    """The wheel for a target, in `dist/`."""
    name = target.tag
    options = [
        f"-DCMAKE_TOOLCHAIN_FILE={toolchain(name, target)}",
        f"-DCOSIMO_LIBRARIES={exported}",
        f"-DSKBUILD_SOABI={target.module.format(interpreter.number)}",
    ]
    if target.system == "Linux":
        options += debian_headers(interpreter)
    if target.system == "Windows":
        # nanobind takes the endings of the Python that runs here.
        endings = [f"-DNB_SUFFIX=.{target.module.format(interpreter.number)}.pyd", "-DSKBUILD_SOSABI="]
        options += [*windows_python(interpreter), *endings]
    made, folder = WORK / f"{name}-{interpreter.number}", WORK / "build" / f"{name}-{interpreter.number}"
    shutil.rmtree(made, ignore_errors=True)
    settings = {"build-dir": str(folder), "install.strip": "false", "cmake.args": ";".join(options)}
    words = [f"-C{key}={value}" for key, value in settings.items()]
    interpreter.run("build", "--wheel", "--no-isolation", *words, "--outdir", made, source)
    (wheel,) = made.iterdir()
    interpreter.run("wheel", "tags", "--remove", "--platform-tag", target.tag, wheel)
    (wheel,) = made.iterdir()
    if target.system == "Linux":
        check_manylinux(interpreter, wheel, target.tag)
    if interpreter.stable:
        check_stable(interpreter, wheel)
    return Path(shutil.copy(wheel, ROOT / "dist")) if target.tried else wheel


def check_stable(interpreter: Interpreter, wheel: Path) -> None:
    """Refuse a module that uses more than the stable interface of CPython 3.12.

    It is looked at alone: of all libraries in a wheel `abi3audit` expects the format of the wheel's system, and those
    inside exported FMUs, which use nothing of Python, are of all systems.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.startswith("cosimo/_kernel.") and not one.endswith(".pyi"))
        module = archive.extract(name, WORK / f"{wheel.stem}-module")
    interpreter.run("abi3audit", "--strict", "--assume-minimum-abi3", "3.12", module)


def check_manylinux(interpreter: Interpreter, wheel: Path, tag: str) -> None:
    """Refuse a wheel that needs a newer system than its name says."""
    command = [interpreter.python, "-m", "auditwheel", "show", wheel]
    said = " ".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    least = re.search(r"manylinux_(\d+)_(\d+)_x86_64", said.partition("following platform tag")[2])
    allowed = re.match(r"manylinux_(\d+)_(\d+)", tag)
    if least is None or allowed is None or tuple(map(int, least.groups())) > tuple(map(int, allowed.groups())):
        sys.exit(f"{wheel.name} does not hold what its name says: {said}")


if __name__ == "__main__":
    sys.exit(main())
