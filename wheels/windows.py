"""`python -m wheels.windows [TEST …]`: the tests with the wheel of Windows, in a CPython for Windows under Wine.

The interpreter is in the folder COSIMO_TESTBED, as `python` with its packages in `site` and the compiler `zig` beside
it; where there is none, `testbed` in the folder COSIMO_WINDOWS_TOOLS sets it up. `left_out.toml` names the tests that
are left out, with the reason. Every file of tests runs in a process of its own: a crash in one of them ends no other.
COSIMO_WINDOWS_JOBS says how many run at once (as many as there are processors), COSIMO_WINDOWS_PATIENCE after how many
seconds a file is ended (1800).
What passed is kept in `build/windows.json` and is not run again before the wheel or the file changes, so that a run
that was ended goes on where it was. In the end trajectories of both systems are compared to the bit, also those of FMUs
that are exported on Windows. How long anything takes under Wine says nothing of Windows.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = Path(os.environ.get("COSIMO_WINDOWS_TOOLS", "."))
PATIENCE = float(os.environ.get("COSIMO_WINDOWS_PATIENCE", 1800))
"""Seconds after which a file of tests is ended: it hangs."""
PACKAGES = (
    "asammdf", "distributed", "fmpy", "h5py", "helics", "hypothesis", "ipykernel", "jinja2", "lxml", "matplotlib",
    "nanobind", "nbclient", "numpy", "pandas", "plotly", "pyarrow", "pydantic", "pydmd", "pymoo", "pytest",
    "pytest-xdist", "pythonfmu", "pythonfmu3", "rich", "scipy", "starlette", "typer", "uvicorn", "websockets",
)  # fmt: skip
"""What cosimo and its tests require."""
SOURCES = ("DyMat",)
"""The same, of packages that are there as sources in Python only."""
COMPARED = """
import json, sys, tempfile
from pathlib import Path
import fmpy
import numpy as np
import cosimo as co
from cosimo.formats.export import export_coupling, export_ssp, export_unit
found, fmus = {}, Path(sys.argv[2])
exporting = not fmus.exists()
fmus.mkdir(exist_ok=True)
def keep(name, result, names):
    found[name] = {label: [float(value).hex() for value in result[label]] for label in names}
def simulate(name, file, step, stop):
    variables = fmpy.read_model_description(file).modelVariables
    inputs, outputs = ([one.name for one in variables if one.causality == kind] for kind in ("input", "output"))
    rows = np.zeros(round(stop / step) + 1, dtype=[(one, float) for one in ("time", *inputs)])
    rows["time"] = np.arange(len(rows)) * step
    for place, one in enumerate(inputs):  # the same bits on every system, which those of a sine need not be
        rows[one] = (np.arange(len(rows)) * (37 + place) % 101) / 101
    how = {"step_size": step, "output_interval": step, "stop_time": stop, "validate": False}
    keep(f"{name} in FMPy", fmpy.simulate_fmu(file, input=rows if inputs else None, **how), outputs)
for name, step, stop in (("two-mass", 1e-3, 5.0), ("quarter-truck", 1e-3, 3.0)):
    system = getattr(co.problems, name.replace("-", "_"))()
    master = co.masters.gauss_seidel(system, step=step)
    ran = co.run(system, master, stop=stop)
    keep(name, ran, ran.names)
    for fmi in (2, 3):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = export_ssp(system, Path(folder, "system.ssp"), fmi=fmi, step=step, stop=stop)
            ran = co.load(path).run()
            keep(f"{name}, exported as FMI {fmi}", ran, ran.names)
        one, unit = next(iter(system.units.items()))
        alone, whole = fmus / f"{name}-{one}-{fmi}.fmu", fmus / f"{name}-{fmi}.fmu"
        if exporting:
            export_unit(unit, alone, name=one, fmi=fmi)
            export_coupling(system, whole, master=master, fmi=fmi)
        simulate(f"{name}, unit {one} as FMI {fmi}", str(alone), step, stop)
        simulate(f"{name} as one FMU of FMI {fmi}", str(whole), step, stop)
inner = fmus / "two-mass-2.fmu"
for depth in (1, 2):  # a coupling of FMUs inside a coupling
    outer = fmus / f"nested-{depth}.fmu"
    if exporting:
        unit = co.Fmu(inner, name="inner")
        lag = co.StateSpace([[-20.0 * depth]], [[20.0 * depth]], [[1.0]], inputs=("u",), outputs=("y",))
        seen = next(name for name in unit.outputs if name.endswith("two.x"))
        system = co.System({"inner": unit, "lag": lag}, [(f"inner.{seen}", "lag.u")], name="outer")
        export_coupling(system, outer, master=co.masters.gauss_seidel(system, step=2e-3))
    simulate(f"two-mass, nested {depth} times", str(outer), 2e-3, 2.0)
    inner = outer
Path(sys.argv[1]).write_text(json.dumps(found))
"""
"""Trajectories of problems, and of FMUs that the first system exports and both run: to a file, by name and output."""


@dataclass(frozen=True)
class Outcome:
    """What became of a file of tests: how many passed and failed, and the last line of pytest or how it ended."""

    passed: int
    failed: int
    said: str
    lacking: str = ""  # the tests that a program is missing for, which `tests/conftest.py` leaves out


def main() -> int:
    """Run the files that were asked for (all but those left out), then compare; 1 where anything failed."""
    bed = testbed()
    wheel = install(bed)
    compiler = make_compiler(bed)
    kept = Kept(ROOT / "build" / "windows.json", wheel)
    left_out = read_left_out()
    names = [name for names in left_out.values() for name in names]
    files = sys.argv[1:] or test_files(names)
    outcomes = {} if sys.argv[1:] else {file: known for file in files if (known := kept.find(file))}
    print(f"{len(outcomes)} of {len(files)} files passed before", flush=True)
    jobs = int(os.environ.get("COSIMO_WINDOWS_JOBS", os.cpu_count() or 1))
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run_tests, bed, compiler, file, names): file for file in files if file not in outcomes}
        for done in as_completed(running):
            file, outcome = running[done], done.result()
            outcomes[file] = outcome
            kept.add(file, outcome)
            print(f"{len(outcomes)}/{len(files)} {file}: {outcome.said}", flush=True)
    print("\n".join(summary(outcomes, left_out)), flush=True)
    return max(compare(bed), *(int(outcome.failed > 0) for outcome in outcomes.values()))


def test_files(left_out: Sequence[str]) -> list[str]:
    """Every file of tests that is not left out as a whole, by its path in the repository."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    return [file for file in found if not any(file == name or file.startswith(f"{name}/") for name in left_out)]


def run_tests(bed: Path, compiler: Path, file: str, left_out: Sequence[str]) -> Outcome:
    """Run one file in a process of its own."""
    options = [f"--deselect={name}" for name in left_out if "::" in name]
    words = ["-m", "pytest", "-m", "not slow", "--tb=short", "-p", "no:cacheprovider", *options, file]
    environment = os.environ | {"WINEPATH": f"Z:{compiler.parent}".replace("/", "\\"), "COSIMO_CACHE": "off"}
    command = [str(bed / "python"), *words]
    log = ROOT / "build" / "windows" / f"{file.replace('/', '.')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return Outcome(0, 1, f"ended after {PATIENCE:g} s; see {log.relative_to(ROOT)}")
    return read_outcome(log.read_text(encoding="utf-8", errors="replace"), code, str(log.relative_to(ROOT)))


def read_outcome(text: str, code: int, log: str) -> Outcome:
    """What pytest says in its last line; a file that it did not get to the end of counts as one failed test.

    Without any quick test it ends with code 5.
    """
    last = re.findall(r"^=*\s*((?:\d+ \w+(?:, )?)+|no tests ran) in [\d.]+s.*$", text, re.MULTILINE)
    if not last or code not in (0, 1, 5):
        return Outcome(0, 1, f"ended with code {code} before its end; see {log}")
    counts = Counter({word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last[-1])})
    failed = sum(counts[word] for word in ("failed", "error", "errors"))
    if code == 1 and not failed:
        return Outcome(counts["passed"], 1, f"ended with code 1; see {log}")
    lacking = re.search(r"^LEFT OUT: (.*)$", text, re.MULTILINE)
    said = last[-1] + (f"; see {log}" if failed else "")
    return Outcome(counts["passed"], failed, said, lacking[1] if lacking else "")


def summary(outcomes: dict[str, Outcome], left_out: dict[str, list[str]]) -> list[str]:
    """The numbers of tests, what failed, and what was left out, by name under its reason."""
    passed, failed = (sum(getattr(one, what) for one in outcomes.values()) for what in ("passed", "failed"))
    lines = [f"{len(outcomes)} files, {passed + failed} tests run, {passed} passed, {failed} failed"]
    lines += [f"  failed: {file}: {outcome.said}" for file, outcome in outcomes.items() if outcome.failed]
    lines.append(f"left out: {sum(map(len, left_out.values()))} files and tests")
    for reason, names in left_out.items():
        lines += [f"  {reason}", *(f"    {name}" for name in names)]
    lines += [f"  {file}: {outcome.lacking}" for file, outcome in outcomes.items() if outcome.lacking]
    return lines


class Kept:
    """Files of tests that passed with this wheel, from one run of this program to the next."""

    def __init__(self, path: Path, wheel: str) -> None:
        self.path, self.wheel = path, wheel
        self.files = {}
        if path.exists() and (kept := json.loads(path.read_text(encoding="utf-8")))["wheel"] == wheel:
            self.files = kept["files"]

    def find(self, file: str) -> Outcome | None:
        """The outcome, where the file passed and is still the same."""
        kept = self.files.get(file)
        if kept is None or kept["digest"] != digest(ROOT / file) or kept["outcome"]["failed"]:
            return None
        return Outcome(**kept["outcome"])

    def add(self, file: str, outcome: Outcome) -> None:
        """Keep an outcome, on the disk too."""
        if (path := ROOT / file).is_file():
            self.files[file] = {"digest": digest(path), "outcome": asdict(outcome)}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"wheel": self.wheel, "files": self.files}, indent=1)
            self.path.write_text(text, encoding="utf-8")


def digest(path: Path) -> str:
    """By which a file is known."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def testbed() -> Path:
    """The folder with the interpreter, set up where there is none."""
    bed = Path(os.environ.get("COSIMO_TESTBED") or ROOT / "build" / "testbed")
    if not (bed / "python").exists():
        if not (TOOLS / "testbed").exists():
            sys.exit("there is no Python for Windows; set COSIMO_TESTBED, or COSIMO_WINDOWS_TOOLS to set one up.")
        subprocess.run([TOOLS / "testbed", bed, *PACKAGES], check=True)
        command = [bed / "tools" / "bin" / "pip", "install", "--quiet", "--no-deps", "--target", bed / "site", *SOURCES]
        subprocess.run(command, check=True)
        complete_runtime(bed)
        complete_clock(bed)
    return bed


def complete_runtime(bed: Path) -> None:
    """Let HDF5 import the C runtime through a library with `feholdexcept`, which Wine 8 only names.

    It becomes `fegetenv`: exceptions are held by default.
    """
    library, name = bed / "site" / "h5py" / "hdf5.dll", b"api-ms-win-crt-runtime-l1-1-0"
    own = b"x" + name[1:]  # of the same length
    listed = subprocess.run(["objdump", "-p", library], capture_output=True, text=True, check=True).stdout
    imported = listed.partition(f"DLL Name: {name.decode()}")[2].partition("DLL Name")[0]
    names = re.findall(r"^\s+[0-9a-f]+\s+\d+\s+(\w+)$", imported, re.MULTILINE)
    lines = [f"{one}=ucrtbase.{one.replace('feholdexcept', 'fegetenv')}" for one in names]
    source, exports = bed / "runtime.c", bed / "runtime.def"
    source.write_text("", encoding="utf-8")
    exports.write_text(f"LIBRARY {own.decode()}\nEXPORTS\n" + "\n".join(lines), encoding="utf-8")
    made = bed / "windows" / f"{own.decode()}.dll"
    compile_it = [bed / "zig", "cc", "-target", "x86_64-windows-gnu", "-shared", "-o", made, source, exports]
    subprocess.run(compile_it, check=True)
    library.write_bytes(library.read_bytes().replace(name + b".dll", own + b".dll"))


def complete_clock(bed: Path) -> None:
    """Let Dask take the clock as it does elsewhere.

    On Windows it waits until five readings are the same, as that clock moves every 16 ms; under Wine no two are.
    """
    path = bed / "site" / "distributed" / "metrics.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("if WINDOWS and sys.version_info < (3, 13):", "if False:"), encoding="utf-8")


COMPILER = """
import os, subprocess, sys, tempfile, time
with tempfile.TemporaryDirectory() as folder:  # Wine does not wait for programs of this system
    ended = os.path.join(folder, "ended")
    subprocess.run(["start", "/unix", {script!r}, ended, *sys.argv[1:]], check=True)
    while not (os.path.exists(ended) and (code := open(ended).read().strip())):
        time.sleep(0.02)
sys.exit(int(code))
"""
SCRIPT = """#!/usr/bin/env bash
words=()
for word in "$@"; do word=${word#[Zz]:}; word=${word/#-I[Zz]:/-I}; words+=("${word//\\\\//}"); done
if [[ $1 == [Cc]:* ]]; then words[0]="$WINEPREFIX/drive_c/${words[0]#[Cc]:/}"; fi
ZIG cc -target x86_64-windows-gnu -s "${words[@]:1}"
echo $? > "${words[0]}"
"""


def make_compiler(bed: Path) -> Path:
    """The program `cc` for tests that compile FMUs: a command of Windows that calls the compiler of this system."""
    folder = bed / "bin"
    folder.mkdir(exist_ok=True)
    script, program, command = folder / "cc-here", folder / "cc.py", folder / "cc.cmd"
    contents = {
        script: SCRIPT.replace("ZIG", str(bed / "zig")),
        program: COMPILER.format(script=str(script)),
        command: f"@Z:{bed}/windows/python.exe Z:{program} %*\n".replace("/", "\\"),
    }
    for path, content in contents.items():  # what is new has every library of the tests compiled again
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
    script.chmod(0o755)
    for library in (bed / "windows").glob("xpi-ms-*.dll"):  # of TOOLS; units in workers need it too
        shutil.copy(library, folder)
    return command


def install(bed: Path) -> str:
    """Put the newest wheel for Windows where the interpreter finds it, and return its digest."""
    wheels = sorted((ROOT / "dist").glob("cosimo-*-cp311-cp311-win_amd64.whl"), key=os.path.getmtime)
    if not wheels:
        sys.exit("there is no wheel for Windows in 'dist'; run 'python -m wheels windows --python 3.11'.")
    for old in (bed / "site").glob("cosimo*"):
        shutil.rmtree(old)
    with zipfile.ZipFile(wheels[-1]) as archive:
        archive.extractall(bed / "site")
        content = hashlib.sha256(repr([(one.filename, one.CRC) for one in archive.infolist()]).encode()).hexdigest()
    if (TOOLS / "shims.py").exists():  # Wine 8 lacks a library of the C runtime
        subprocess.run([sys.executable, TOOLS / "shims.py", "turn", bed / "site" / "cosimo"], check=True)
    return content


def read_left_out() -> dict[str, list[str]]:
    """The files and tests that are left out, by the reason."""
    text = (Path(__file__).parent / "left_out.toml").read_text(encoding="utf-8")
    return {group["reason"]: group["tests"] for group in tomllib.loads(text)["group"]}


def compare(bed: Path) -> int:
    """Compare trajectories of Windows with those of this system; 1 where they differ by more than rounding."""
    folder = ROOT / "build" / "trajectories"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for python, file in ((bed / "python", "windows"), (Path(sys.executable), "here")):
        subprocess.run([python, "-c", COMPARED, str(folder / file), str(folder / "fmus")], cwd=ROOT, check=True)
    windows, here = (json.loads((folder / file).read_text(encoding="utf-8")) for file in ("windows", "here"))
    worst = 0.0
    for name, columns in here.items():
        pairs = [
            (float.fromhex(one), float.fromhex(other))
            for label, values in columns.items()
            for one, other in zip(values, windows[name][label], strict=True)
        ]
        scale = max(abs(one) for one, _ in pairs)
        difference = max(abs(one - other) for one, other in pairs) / scale
        worst = max(worst, difference)
        said = f"largest difference {difference:.1e} of the largest value" if difference else "equal to the bit"
        print(f"{name}: {len(pairs):,} values, {said}", flush=True)
    return int(worst > 1e-12)


if __name__ == "__main__":
    sys.exit(main())
