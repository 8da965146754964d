"""100,000 variables or 10,000 connections load in seconds. Counted in seconds of the processor, not of the clock.

In `make test` a quarter of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from large import write_fmu2, write_fmu3, write_scenario, write_structure

from cosimo.formats.information import describe, validate
from cosimo.formats.scenario import load
from thinning import mostly_slow

SECONDS = 10.0


@contextmanager
def within(seconds: float) -> Iterator[None]:
    begin = time.process_time()
    yield
    taken = time.process_time() - begin
    assert taken < seconds, f"{taken:.1f} s"


@pytest.mark.parametrize("variables", mostly_slow([25_000, 100_000], [25_000]))
@pytest.mark.parametrize("write", mostly_slow([write_fmu2, write_fmu3], [write_fmu2]))
def test_many_variables(tmp_path: Path, write: Callable[[Path, int, int], Path], variables: int) -> None:
    path = write(tmp_path / "a.fmu", variables, 500)
    with within(SECONDS):
        unit = load(path).system.units["a"]
    assert (len(unit.inputs), len(unit.outputs), int(unit.feedthrough().sum())) == (500, 500, 500)


@pytest.mark.parametrize("size", mostly_slow(["250x10", "1000x10", "100x100"], ["250x10"]))
@pytest.mark.parametrize(("write", "name"), [(write_scenario, "s.toml"), (write_structure, "s.ssd")])
def test_many_connections(tmp_path: Path, write: Callable[[Path, int, int], Path], name: str, size: str) -> None:
    units, ends = map(int, size.split("x"))
    path = write(tmp_path / name, units, ends)
    with within(SECONDS):
        loaded = load(path)
    assert len(loaded.system.connections) == units * ends


def test_one_unit_with_many_connections_and_what_it_is(tmp_path: Path) -> None:
    path = write_structure(tmp_path / "s.ssd", 2, 2500)
    with within(SECONDS):
        assert len(describe(path)["feedthrough"]) == 5000


@pytest.mark.parametrize("ends", mostly_slow([500, 2500], [500]))
def test_many_mistakes(tmp_path: Path, ends: int) -> None:
    path = write_structure(tmp_path / "s.ssd", 2, ends)
    path.write_text(path.read_text(encoding="utf-8").replace('startConnector="body', 'startConnector="boby'))
    with within(SECONDS):
        found = validate(path)
    assert len(found) == 100
    assert "did you mean 'body" in found[0].message


@pytest.mark.parametrize("text", ["a." * 20_000 + "a = 1", "[" + "a ." * 20_000 + "a]", '"a".' * 20_000 + "a = 1"])
def test_a_key_of_many_parts(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "s.toml").write_text(f"step-size = 0.1\n{text}\n", encoding="utf-8")
    with within(1.0):
        (found,) = validate(path)
    assert (found.line, found.exit_code) == (2, 2)
    assert "a key has more than 20 parts" in found.message


def test_many_namespaces(tmp_path: Path) -> None:
    """Names that elements declare hold inside them only; the child of an undeclared one is not of SSP."""
    write_structure(path := tmp_path / "s.ssd", 2, 2)
    spaces = " ".join(f'xmlns:a{k}="u"' for k in range(60_000))
    text = path.read_text(encoding="utf-8").replace(" name=", f" {spaces} name=", 1)
    wires = "<ssd:Connections>"
    assert wires in text
    odd = '<q:b xmlns:q="z"/>' * 60_000 + '<ssd:Connections xmlns:ssd="z"><ssd:Connection/></ssd:Connections>'
    path.write_text(text.replace(wires, odd + wires, 1), encoding="utf-8")
    with within(SECONDS / 2):
        assert len(load(path).system.connections) == 4
