"""Power pairs that a scenario declares: read, checked with file and line, and watched in a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
from command_line import cosimo

from cosimo.core.errors import ConfigurationError
from cosimo.formats.scenario_building import load_scenario

SPRING = """
name = "two masses"
step-size = 1e-3
stop-time = 0.05
connections = ["one.y1 -> two.u1", "two.y1 -> one.u1"]
{pairs}

[units.one]
kind = "state-space"
A = -1.0
B = 1.0
C = 1.0
initial = 1.0

[units.two]
kind = "state-space"
A = -2.0
B = 1.0
C = 1.0
"""


def write(folder: Path, pairs: str) -> Path:
    path = folder / "masses.toml"
    path.write_text(SPRING.format(pairs=pairs), encoding="utf-8")
    return path


def test_pairs_are_read_and_none_is_the_default(tmp_path: Path) -> None:
    assert load_scenario(write(tmp_path, 'power-pairs = [["two.u1", "two.y1"]]')).power_pairs == (("two.u1", "two.y1"),)
    assert load_scenario(write(tmp_path, 'power_pairs = [["one.u1", "one.y1"]]')).power_pairs == (("one.u1", "one.y1"),)
    assert load_scenario(write(tmp_path, "")).power_pairs == ()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ('power-pairs = [["two.u1"]]', r"masses\.toml:6: power-pairs\[0\]: a power pair is an input and an output"),
        ('power-pairs = [["two.u1", "one.y1"]]', r"masses\.toml:6: power-pairs\[0\]: .*does not belong to one unit"),
        ('power-pairs = [["two.u1", "two.force"]]', r"masses\.toml:6: power-pairs\[0\]: .*force"),
        ('power-pairs = "two.u1"', r"power-pairs: must be a list"),
    ],
)
def test_wrong_pairs_are_refused_where_they_stand(pairs: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_scenario(write(tmp_path, pairs))


def test_a_run_watches_them(tmp_path: Path) -> None:
    """State-space units have no measures, so that no bond is detected: the one declared is the only one."""

    def bonds(pairs: str, *options: str) -> int:
        done = cosimo(tmp_path, "run", str(write(tmp_path, pairs)), "--json", *options)
        assert done.returncode == 0, done.stderr
        return len(json.loads(done.stdout)["monitors"]["bonds"])

    declared = 'power-pairs = [["two.u1", "two.y1"]]'
    assert bonds("") == 0
    assert bonds(declared) == 1
    # On the command line further ones are added; the bond seen from the other unit is the same one.
    assert bonds(declared, "--power-pair", "one.u1,one.y1") == 1
