"""Tables in the docs are what the code writes."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from cosimo.papers import PAPERS, Item
from thinning import mostly_slow

DOCS = Path(__file__).parents[2] / "docs"
GENERATE = runpy.run_path(str(DOCS / "generate.py"))
CELL = re.compile(r"(?<!\\) \| ")
NUMBER = re.compile(r"[+-]?\d+\.?\d*(?:e[+-]?\d+)?")


def rows(text: str) -> list[list[str]]:
    return [CELL.split(line[2:-2]) for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("paper", mostly_slow(PAPERS, set(PAPERS) - {"pikulinski2025", "tamellin2022"}))
def test_papers_show_what_is_computed(
    paper: str, reproduced: Callable[[str], list[Item]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the digits that do not depend on the machine: words are equal, numbers agree to 1e-8."""
    monkeypatch.setitem(GENERATE["paper"].__globals__, "reproduce", lambda names: reproduced(*names))
    page = (DOCS / "papers" / f"{paper}.md").read_text(encoding="utf-8")
    shown = rows(page.split("-->", 1)[1].split("<!-- end -->")[0])
    computed = rows(GENERATE["paper"](paper))
    assert [row[0] for row in shown] == [row[0] for row in computed]
    for mine, wanted in zip(shown, computed, strict=True):
        assert mine[3:] == wanted[3:], mine[0]
        for text, value in zip(mine[1:3], wanted[1:3], strict=True):
            if NUMBER.fullmatch(value):
                assert float(text) == pytest.approx(float(value), rel=1e-8), mine[0]
            else:
                # Rounding errors in words differ between machines.
                assert re.sub(r"[\d.]+e[+-]?\d+", "#", text) == re.sub(r"[\d.]+e[+-]?\d+", "#", value), mine[0]


def test_every_paper_has_a_page() -> None:
    pages = {path.stem for path in (DOCS / "papers").glob("*.md")}
    assert pages == {*PAPERS, "index"}


def test_keys_of_scenarios_are_those_of_the_model() -> None:
    page = (DOCS / "scenario-keys.md").read_text(encoding="utf-8")
    assert GENERATE["renewed"](page) == page, "run: python docs/generate.py"
