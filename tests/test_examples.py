"""Every example runs in a process of its own, without a word on standard error, and shows what it is there to show."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import processes
from thinning import mostly_slow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SHOWS = {
    "analyse_before_running.py": [
        "at 5 ms. Do not trust: body.velocity is off by 12 %.",
        "at 50 ms. Do not trust: unstable.",
        "spectral radius           1.01487",
        "1.0149",
    ],
    "compare_masters.py": ["F2 G2 H2 F1 G1 H1", "NO       220.68%  174.53%", "yes        0.75%    0.61%"],
    "convergence_order.py": [
        "1.00                    1.00",
        "2.00                    2.00",
        "3.00                    1.92",
    ],
    "couple_fmus.py": [
        "one2.fmu: FMI 2.0, in x2, v2, out f",
        "hold 1: Do not trust: two.x is off by 7.6 % (confirmed)\n  Result(1251 rows to t = 5, 3 signals), equal",
        "hold 0: Do not trust: two.x is off by 9 % (confirmed)\n  Result(1251 rows to t = 5, 3 signals), equal",
    ],
    "iterative_loop.py": [
        "multiplies the error by 1.224",
        "did not converge in 20 sweeps",
        "Anderson: 5.0 sweeps per step",
    ],
    "multirate.py": ["both 10 ms               NO", "multirate, interpolated  yes             400 times"],
    "native_unit.py": ["angle after 10 s: -0.0753", "largest difference between C and Python: 0e+00"],
    "python_unit.py": [
        "Result(2161 rows to t = 21600, 3 signals)",
        "switched 88 times",
        "evidence: measured; Do not trust: thermostat.heat is off by 100 %",
    ],
}


LONG = ("couple_fmus.py", "python_unit.py")
"""Examples that take many seconds."""


def test_every_example_is_expected_to_show_something() -> None:
    assert {path.name for path in EXAMPLES} == set(SHOWS)


@pytest.mark.parametrize("path", mostly_slow(EXAMPLES, [path for path in EXAMPLES if path.name not in LONG]))
def test_example_runs_and_shows(path: Path, tmp_path: Path) -> None:
    # One thread: the matrices are small, and threads that wait for each other on a busy machine cost much more.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **processes.ALL_CHARACTERS}
    command = [sys.executable, "-Werror", str(path)]
    done = processes.run(
        command, capture_output=True, encoding="utf-8", cwd=tmp_path, env=environment, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    for text in SHOWS[path.name]:
        assert text in done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_says_what_it_teaches_and_stays_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert len(text.splitlines()) <= 70
