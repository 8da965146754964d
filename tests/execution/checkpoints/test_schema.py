"""Checkpoints whose checksum fits and whose entries make no sense are refused: exit code 2, with the file's name."""

from __future__ import annotations

import shutil
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from interrupted import interrupt_scenario, write_scenario

from cosimo.core.errors import CheckpointError
from cosimo.execution.checkpoints import encode, read_checkpoint
from cosimo.formats.results import read_result
from cosimo.formats.resuming import Form, resume

WRONG: list[tuple[str, Any]] = [
    *(("step", value) for value in ("x", None, -5, 100.5, 10**30, 5000, True)),
    *(("every", value) for value in ("x", -1.0, float("nan"))),
    *(("position.taken", value) for value in (-3, 0, "a")),
    *(("position.written", value) for value in (-3, "a", 10**6)),
    ("position", None),
    ("position.run", "another"),
    *(("memory", value) for value in (None, {}, {"level": 10**9})),
    *(("memory.kernel", value) for value in (None, b"abc")),
    *(("memory.units", value) for value in (None, {}, {"tank": b"junk"}, {"tank": 5})),
    *(("after", value) for value in ({}, None, {"outputs": [], "inputs": {}, "memories": np.zeros(0)})),
    ("after.outputs", {"tank": np.zeros((2, 2))}),
    ("after.memories", np.zeros(7)),
    *(("request.start", value) for value in ("x", float("inf"))),
    ("request.stop", -1.0),
    ("request.record", 7),
    ("request.record", ["outputs"]),
    ("request.record", np.zeros(2)),
    *(("versions", value) for value in (None, np.zeros(2), {"cosimo": np.zeros(2)}, {})),
    *(("request.metadata", value) for value in ("[1]", "{", "[" * 10**5, 5, '{"scenario": 3}', '{"scenario": null}')),
    ("request.metadata", '{"scenario": {"master": {"bogus": 1}, "path": "s.toml"}}'),
    ("request.metadata", '{"scenario": {"master": {"bogus": 1}, "system": "two-mass", "settings": {}, "step": 1}}'),
    ("request.metadata", '{"scenario": {"master": {"name": "x"}, "system": "two-mass", "settings": {}, "step": 1}}'),
    ("request.metadata", '{"scenario": {"master": {}, "system": "two-mass", "settings": {}, "step": "x"}}'),
    ("request.metadata", '{"scenario": {"master": {}, "system": "two-mass", "settings": 5, "step": 1}}'),
    ("request.metadata", '{"scenario": {"master": 5, "system": ["two-mass"], "settings": {}, "step": 1}}'),
    *(("request.engine", value) for value in ({"kind": 5}, None)),
    *(("request.engine.kind", value) for value in (5, "fast")),
    *(("request.engine.threads", value) for value in (-1, 2**40)),
    ("request.engine.interval", 1e300),
    ("request.engine", {"kind": "kernel"}),
    ("request.engine.monitors", 1),
    ("request.stop_on_divergence", "yes"),
    ("request.power_pairs", [5]),
    ("request.power_pairs", [["a"]]),
    ("fingerprint", 5),
    *(("fingerprint.units", value) for value in ([1], {"tank": 1}, {})),
    *(("isolation", value) for value in ([1], {"tank": 5})),
    *(("resumed_at", value) for value in (None, ["x"])),
    *(("ranges", value) for value in ({"tank.level": 3}, {"tank.level": (0.0, 1.0, 1)}, [])),
    *(("stepping", value) for value in ("x", -1.0)),
    ("iterations", {}),
    ("iterations.count", "x"),
    ("output.path", 5),
    ("output.variables", 5),
    ("output.every", 0),
    ("output.every", 2),
    ("output.flush_interval", "x"),
    ("folder", None),
    ("careful", 1),
    ("careful", True),
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cosimo.execution.session.BLOCK", 7)
        interrupt_scenario(write_scenario(folder), folder / "rows.csv")
    return folder


def craft(kept: Path, folder: Path, name: str, value: Any) -> Path:
    """A copy of the folder with one entry of the checkpoint changed."""
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    document = deepcopy(read_checkpoint(kept / "rows.csv"))
    document.pop("path")
    *way, last = name.split(".")
    entry = document
    for part in way:
        entry = entry[part]
    entry[last] = value
    path = folder / "rows.csv.checkpoint"
    path.write_bytes(encode(document))
    return path


def test_the_table_knows_all_entries(kept: Path) -> None:
    found = read_checkpoint(kept / "rows.csv").keys() - {"path", "versions"}
    assert found == set(Form.model_fields)


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda part: f"{part!r:.40}")
def test_what_makes_no_sense_is_refused(name: str, value: Any, kept: Path, tmp_path: Path) -> None:
    path = craft(kept, tmp_path, name, value)
    stream = path.with_suffix(".partial").read_bytes()
    with pytest.raises(CheckpointError) as found:
        resume(path)
    assert found.value.exit_code == 2
    assert str(tmp_path) in str(found.value)
    assert len(str(found.value)) < 1000
    assert path.with_suffix(".partial").read_bytes() == stream  # nothing was touched


def test_a_refusal_names_the_entry(kept: Path, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError,
        match=r"is damaged: its entry 'position.taken' cannot be -3; "
        r"start the run again",
    ):
        resume(craft(kept, tmp_path, "position.taken", -3))
    with pytest.raises(CheckpointError, match=r"unknown master 'x'"):
        resume(craft(kept, tmp_path, "request.metadata", WRONG_MASTER))


WRONG_MASTER = '{"scenario": {"master": {"name": "x"}, "system": "two-mass", "settings": {}, "step": 1}}'


def test_what_was_not_changed_goes_on(kept: Path, tmp_path: Path) -> None:
    resume(craft(kept, tmp_path, "every", 3))
    assert read_result(tmp_path / "rows.csv").complete
