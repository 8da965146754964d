"""Scenario files, as `cosimo validate` and `run` read them; Python files that one names are not imported here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from fuzz import structures
from fuzz.dictionary import words
from fuzz.places import folder

WORDS = words(
    r"""
    [units. [master] [inputs] [problem] kind fmu = step-size step_size stop-time start-time connections outputs
    name from to gain offset -> state-space mechanical python class A B C D M K initial integrator micro-steps
    inputs start parameters exact forward-euler symplectic-euler runge-kutta-4 csv column time-column
    interpolation linear hold jacobi gauss-seidel groups multirate iterative order couplings sweeps tolerance
    anderson multiples hold1 nepce:0.5 dmd:8 two-mass inf nan 1e999 0x10 1_000 true false [[ ]] {{ }} '''
    \u0000 1979-05-27
    """,
    b'"""',
)
_HEAD = 'step-size = 1e-3\nstop-time = 1.0\nconnections = ["a.y1 -> b.u1", {from = "b.y1", to = "a.u1", gain = -1.0}]\n'
_UNIT = '[units.{}]\nkind = "state-space"\nA = [[-1.0]]\nB = [[1.0]]\nC = [[1.0]]\ninitial = [1.0]\n'
SEEDS = (
    _HEAD + _UNIT.format("a") + _UNIT.format("b"),
    _HEAD + _UNIT.format("a") + _UNIT.format("b") + '[master]\nname = "iterative"\nsweeps = 3\norder = ["a", "b"]\n',
    _HEAD
    + _UNIT.format("a")
    + '[units.b]\nkind = "mechanical"\nM = 1.0\nC = [0.1]\nK = [[4.0]]\nB = [[1.0]]\ndisplacement = 1.0\n'
    + 'integrator = "symplectic-euler"\nmicro-steps = 4\n[units.b.start]\nu1 = 1.0\n',
    'problem = "two-mass"\noutputs = ["*.x"]\n[master]\nname = "multirate"\nmultiples = {one = 2}\n',
    'connections = ["f.real_out -> g.real_in"]\n[units.f]\nfmu = "f.fmu"\n[units.f.parameters]\ngain = 2.0\n'
    '[units.g]\nfmu = "g.fmu"\nvalidate = false\n'
    '[inputs]\n"f.real_in" = 1.0\n"f.int_in" = {csv = "t.csv", column = "v"}\n',
    '[units.p]\nkind = "python"\nclass = "meter.py:Meter"\n',
)
LARGE = (
    "a." * 40_000 + "a = 1\n",
    "[[" + "a ." * 20_000 + "a]]\n",
    "".join(f"[b{k}{'.a' * 15}]\n{'a.' * 15}a = 1\n" for k in range(500)),
    "a = " + "{a.a.a = " * 200 + "[" + "1, " * 20_000 + "]" + "}" * 200,
    'a = """' + '\\"""x"\n' * 10_000,
    "connections = [" + '"a.y -> b.u",\n' * 5_000 + "]\n",
)
"""Hostile by their length, at which whatever grows with its square takes longer than 5 s."""

MODULES = ("cosimo.formats.scenario_building", "cosimo.problems")


def _refuse(where: object) -> NoReturn:
    from cosimo.core.errors import ConfigurationError

    raise ConfigurationError("not imported here.")


@cache
def _files() -> Path:
    there = structures._files()
    (there / "t.csv").write_text("time,v\n0,1\n1,2\n", encoding="utf-8")
    return there


def seeds() -> Iterator[bytes]:
    """Linear units, FMUs, a built-in problem, external inputs, masters."""
    yield from (text.encode() for text in SEEDS)


def large() -> Iterator[bytes]:
    """What a fuzzer does not get to: mutating so long inputs leaves it no time."""
    yield from (text.encode() for text in LARGE)


def check(data: bytes) -> None:
    """The file as it is."""
    from cosimo.core.errors import FileFindings
    from cosimo.formats import scenario_building
    from cosimo.formats.scenario_building import load_scenario

    _files()
    path = folder() / "s.toml"
    path.write_bytes(data)
    # A mutated name could be any module of Python's library.
    with patch.object(scenario_building, "_import", _refuse):
        loaded = load_scenario(path, FileFindings())
    loaded.system.loops()
