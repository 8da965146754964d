"""`python -m sanitize [address] [thread]`: build, run the tests of compiled code, and say what was reported."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = ("_kernel", "isolation.so", "cosimo-worker", "model_exchange.so", "unit.so")
"""Our libraries: a report with a frame in one of them is about our code."""


@dataclass(frozen=True)
class Kind:
    """One build: flags of the compiler, the library to load first, its options, and the tests that run on it."""

    name: str
    flags: str
    library: str
    options: dict[str, str]
    tests: tuple[str, ...]


KINDS = {
    "address": Kind(
        "address and undefined behaviour",
        "-fsanitize=address,undefined -fno-sanitize-recover=undefined",
        "libasan.so",
        # Leaks are reported at the end of each process, with enough of the call stack to see whose they are.
        {"ASAN_OPTIONS": "detect_leaks=1:exitcode=0:malloc_context_size=40", "UBSAN_OPTIONS": "print_stacktrace=1"},
        (
            "tests/kernel",
            "tests/laws/test_engines_agree.py",
            "tests/execution/test_engines.py",
            "tests/execution/test_lowering.py",
            "tests/execution/test_rollback.py",
            "tests/execution/test_monitoring.py",
            "tests/couplings",
            "tests/isolation/test_same_numbers.py",
            "tests/units/fmi/test_model_exchange.py",
        ),
    ),
    "thread": Kind(
        "threads",
        "-fsanitize=thread",
        "libtsan.so",
        {"TSAN_OPTIONS": "exitcode=0:history_size=4:report_signal_unsafe=0"},
        (
            "tests/execution/test_engines.py",
            "tests/kernel/test_trajectories.py",
            "tests/laws/test_engines_agree.py",
            "tests/isolation/test_same_numbers.py",
        ),
    ),
}
LEFT_OUT = ("answers_", "a_signal_while", "a_handler_of_the_user", "cost_of_a_prediction", "memory_does_not_grow")
"""Tests that send a signal after a fixed time, in which a sanitized run has hardly begun, or measure time or memory."""


def main() -> int:
    """Run the kinds that were asked for; 1 if a test failed or a report is about our code."""
    parser = argparse.ArgumentParser(prog="sanitize", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all of them if none is given")
    parser.add_argument("--tests", nargs="*", help="instead of the usual ones")
    given = parser.parse_args()
    for name in set(given.kinds) - set(KINDS):
        parser.error(f"there is no kind '{name}'")
    return max(_run(name, KINDS[name], given.tests) for name in given.kinds or KINDS)


def _run(name: str, kind: Kind, tests: list[str] | None) -> int:
    build = ROOT / "build" / "sanitize" / name
    begin = time.perf_counter()
    _build(build, kind)
    built = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            **{key: f"{value}:log_path={folder}/report" for key, value in kind.options.items()},
            # With the C++ library, whose exceptions the sanitizer looks for when it is loaded itself.
            "LD_PRELOAD": f"{_library(kind.library)} {_library('libstdc++.so')}",
            "PYTHONPATH": os.pathsep.join(filter(None, [f"{ROOT}/sanitize/site", os.environ.get("PYTHONPATH", "")])),
            "PYTHONMALLOC": "malloc",
            "COSIMO_SANITIZED": str(build),
            "OPENBLAS_NUM_THREADS": "1",
        }
        _require_awake(kind, environment, Path(folder))
        chosen = " and ".join(f"not {name}" for name in LEFT_OUT)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
        # Addresses that the sanitizers reserve must not be taken by chance.
        done = subprocess.run(["setarch", "-R", *command, *(tests or kind.tests)], cwd=ROOT, env=environment)
        reports = [text for file in Path(folder).iterdir() for text in _reports(file.read_text(errors="replace"))]
    ours = [report for report in reports if any(library in report for library in OURS)]
    for report in ours:
        print(report, file=sys.stderr)
    print(
        f"{kind.name}: built in {built - begin:.0f} s, tested in {time.perf_counter() - built:.0f} s; "
        f"exit code of the tests {done.returncode}, {len(ours)} reports about our code, "
        f"{len(reports) - len(ours)} about others'.",
        flush=True,
    )
    return int(done.returncode != 0 or bool(ours))


def _require_awake(kind: Kind, environment: dict[str, str], folder: Path) -> None:
    """A sanitizer that says nothing may be asleep: it must report a fault that is there."""
    library = folder / "fault.so"
    source = ROOT / "sanitize" / "fault.c"
    flags = (*kind.flags.split(), "-shared", "-fPIC", "-g1", "-pthread")
    subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
    code = f"import ctypes; ctypes.CDLL({str(library)!r}).fault()"
    subprocess.run(["setarch", "-R", sys.executable, "-c", code], env=environment)
    found = [file for file in folder.glob("report*") if "fault.c" in file.read_text(errors="replace")]
    if not found:
        sys.exit(f"sanitize: the sanitizer for {kind.name} does not report a fault that is there; nothing was shown.")
    for file in folder.iterdir():
        file.unlink()


def _build(folder: Path, kind: Kind) -> None:
    flags = f"{kind.flags} -fno-omit-frame-pointer -g1"
    options = {
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "Python_EXECUTABLE": sys.executable,
        "CMAKE_C_FLAGS": flags,
        "CMAKE_CXX_FLAGS": flags,
    }
    defined = [f"-D{key}={value}" for key, value in options.items()]
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(folder), *defined], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(folder), "--parallel", "2"], check=True, stdout=subprocess.DEVNULL)


def _library(name: str) -> str:
    """Where the compiler keeps the library; Python itself does not load it."""
    found = subprocess.run(["c++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return str(Path(found.stdout.strip()).resolve())


def _reports(text: str) -> list[str]:
    """The single reports of a log: leaks are listed in one, each with its own stack."""
    parts = re.split(r"(?m)^(?=={10,}|==\d+==ERROR|(?:Direct|Indirect) leak of|\S+: runtime error)", text)
    return [part for part in parts if re.search(r"leak of|ERROR: AddressS|WARNING: ThreadS|runtime error", part)]


if __name__ == "__main__":
    sys.exit(main())
