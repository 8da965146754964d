"""The five scripts of the Python page: short, and they print what is shown."""

from __future__ import annotations

import contextlib
import io
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cosimo.cli import app
from test_readme import BLOCK, ROOT, matches

PAGE = BLOCK.findall((ROOT / "docs" / "api.md").read_text(encoding="utf-8"))
SCRIPTS = [(code, PAGE[place + 1]) for place, (language, code) in enumerate(PAGE) if language == "python"]


@pytest.mark.parametrize("number", range(5))
def test_a_script_prints_what_is_shown(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (text for language, text in PAGE if language == "bash"):
        program, *arguments = shlex.split(command)
        assert program == "cosimo"
        assert CliRunner().invoke(app, arguments).exit_code == 0
    code, (language, output) = SCRIPTS[number]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/api.md", "exec"), {"__name__": "script"})
    assert language == "output"
    assert matches(output, printed.getvalue()), printed.getvalue()


def test_there_are_five_of_3_to_12_lines() -> None:
    lengths = [len([line for line in code.splitlines() if line.strip()]) for code, _ in SCRIPTS]
    assert len(lengths) == 5
    assert all(3 <= length <= 12 for length in lengths), lengths
