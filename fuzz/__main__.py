"""`python -m fuzz [--runs N] [TARGET …]`: every target in a process of its own; exit code 1 if one found something."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuzz import TARGETS
from fuzz.places import PLACE, memory

FINDINGS = Path(__file__).parents[1] / "tests" / "safety" / "findings"
LIMITS = ("-timeout=5", "-rss_limit_mb=3000", "-max_len=10000", "-verbosity=1")


def main() -> int:
    """Run the targets, print one line for each, keep what they found."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all if none is given")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    given = parser.parse_args()
    for name in set(given.targets) - set(TARGETS):
        parser.error(f"there is no target '{name}'")
    print(f"{'target':20} {'inputs':>9} {'seconds':>9} {'coverage':>9}  verdict", flush=True)
    return max([_run(name, given.runs, given.seed) for name in given.targets or TARGETS])


def _run(name: str, runs: int, seed: int) -> int:
    with tempfile.TemporaryDirectory(dir=memory()) as folder, tempfile.TemporaryDirectory(dir=memory()) as place:
        options = (f"-runs={runs}", f"-seed={seed}", *LIMITS)
        command = [sys.executable, "-m", "fuzz.harness", name, folder, *options]
        begin = time.perf_counter()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=Path(__file__).parents[1],
            env={**os.environ, PLACE: place},
        )
        seconds = time.perf_counter() - begin
        found = [file for file in Path(folder).iterdir() if re.match("(crash|timeout|oom|leak|slow-unit)-", file.name)]
        kept = []
        for file in found:
            target = FINDINGS / name / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
            kept.append(str(target))
    inputs = re.findall(r"^#(\d+)", done.stderr, re.MULTILINE)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    good = done.returncode == 0 and not found
    verdict = "clean" if good else f"FOUND (exit code {done.returncode}) {' '.join(kept)}"
    print(f"{name:20} {inputs[-1] if inputs else 0:>9} {seconds:9.1f} {covered[-1] if covered else 0:>9}  {verdict}")
    if not good:
        print(done.stdout[-3000:], done.stderr[-1500:], sep="\n")
    sys.stdout.flush()
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
