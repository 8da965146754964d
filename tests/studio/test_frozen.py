"""The page without a server: every master at every step, and the same in a notebook."""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cosimo as co
from cosimo.core.errors import ConfigurationError
from cosimo.formats.export import SuggestedExperiment, export_system
from cosimo.formats.writing import scaffold
from cosimo.studio import page_state
from cosimo.studio.page_state import State


def unpacked(page: str) -> Any:
    """What lies inside a frozen page."""
    return json.loads(zlib.decompress(base64.b64decode(page.partition('id="frozen">')[2].partition("</script>")[0])))


@pytest.fixture(scope="module", autouse=True)
def few_positions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_state, "POSITIONS", 13)
        yield


@pytest.fixture(scope="module")
def page(few_positions: None) -> Any:
    system = co.problems.dc_motor()
    return co.explore(system, co.masters.gauss_seidel(system, 1e-3), stop=0.1, target=0.02)


def test_every_master_has_the_figures_of_analyse_at_every_step(page: Any) -> None:
    data = unpacked(page.html)
    about, entries = data["description"], data["entries"]
    assert {(e["master"]["name"], e["coupling"]) for e in entries} == {
        (name, coupling) for name in about["masters"] for coupling in about["couplings"]
    }
    assert entries[0]["master"]["name"] == "gauss-seidel"
    for entry in entries:
        frames = [message["frame"] for message in entry["messages"] if message["kind"] == "frame"]
        assert [frame["step"] for frame in frames] == about["steps"]
    entry = next(one for one in entries if (one["master"]["name"], one["coupling"]) == ("strang", "hold1"))
    frame = [message["frame"] for message in entry["messages"] if message["kind"] == "frame"][8]
    given = {"system": "dc-motor", "step": frame["step"], "stop": 0.1, "target": 0.02, "master": entry["master"]}
    again = json.loads(json.dumps(page_state.frame(State.read(given))))
    assert {**frame, "command": ""} == {**again, "command": ""}
    verdict = next(message["verdict"] for message in entries[0]["messages"] if message["kind"] == "verdict")
    system = co.problems.dc_motor()
    said = co.analyse(system, co.masters.gauss_seidel(system, 1e-3), horizon=0.1, target=0.02)
    assert (verdict["headline"], verdict["target"]) == (said.headline, 0.02)


def test_a_notebook_shows_it_alone(page: Any, tmp_path: Path) -> None:
    shown = page._repr_html_()
    assert shown.startswith('<iframe srcdoc="')
    assert 'sandbox="allow-scripts"' in shown
    written = page.write(tmp_path / "page.html").read_text(encoding="utf-8")
    assert html.unescape(shown.split('"')[1]) == page.html == written
    assert "src=" not in page.html.partition('id="frozen">')[0]
    assert "MB" in repr(page)


def test_a_system_without_a_master_begins_at_a_round_step() -> None:
    data = unpacked(co.explore(co.problems.dc_motor(), stop=0.1, outputs=["motor.speed"]).html)
    assert str(data["description"]["step"])[-1] in "125"
    assert data["outputs"] == [data["description"]["outputs"][0]] or data["outputs"] == ["motor.speed"]


def test_a_master_of_one_step_is_refused() -> None:
    system = co.problems.two_mass()
    master = co.compensate(system, co.masters.jacobi(system, 1e-3)).master
    with pytest.raises(ConfigurationError, match="the page cannot turn"):
        co.explore(system, master)


def test_identified_units_have_every_master(tmp_path: Path) -> None:
    export_system(co.problems.quarter_truck(), tmp_path, fmi=2, experiment=SuggestedExperiment(step=1e-3, stop=0.5))
    made = scaffold(tmp_path / "system.toml", [str(path) for path in sorted(tmp_path.glob("*.fmu"))])
    (tmp_path / "system.toml").write_text(made.text)
    data = unpacked(co.explore(tmp_path / "system.toml").html)
    assert {entry["master"]["name"] for entry in data["entries"]} == set(data["description"]["masters"])
    for entry in data["entries"][1:]:
        heads = [message["frame"]["headline"] for message in entry["messages"] if message["kind"] == "frame"]
        assert heads
        assert all(head.startswith("Predicted, not confirmed") for head in heads)
