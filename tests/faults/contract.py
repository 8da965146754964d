"""The contract of every fault: a command in a process of its own, and what must be true when it has ended.

    exit code as DESIGN.md says · one line on standard error · the same as JSON · completed rows readable and marked
    incomplete · no process and no temporary file left · reported in time

Outcomes are appended to the file named by FAULT_TABLE, one JSON object per line, where that is set.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes
from cosimo.core.errors import CheckpointError
from cosimo.core.result import Result
from cosimo.execution.checkpoints import read_checkpoint
from cosimo.formats.results import read_result

COSIMO = [sys.executable, "-m", "cosimo.cli"]
FIELDS = ("unit", "phase", "time", "variable", "cause", "log")
"""Of an error that happened while running."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `took` are seconds on the wall from the disturbance to the end."""

    command: tuple[str, ...]
    code: int
    output: str
    errors: str
    wall: float
    took: float | None
    orphans: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` printed: one document and nothing else."""
        found: dict[str, Any] = json.loads(self.output)
        return found

    @property
    def line(self) -> str:
        """The one line that says what happened."""
        lines = [line for line in self.errors.splitlines() if line.startswith("cosimo: ")]
        assert len(lines) == 1, f"{len(lines)} lines say what happened:\n{self.errors}"
        return lines[0]


PATIENCE = 60.0
"""Seconds for what is over at once on a quiet machine; `make faults` judges by the times that are promised instead."""
orphans_after = PATIENCE
"""Seconds from the end of a command on after which its processes count as left behind; `make faults` changes it."""
Disturb = Callable[[subprocess.Popen[str]], None]
"""What is done to a command while it runs."""


def command(
    folder: Path,
    *arguments: str,
    program: Sequence[str] = COSIMO,
    disturb: Disturb | None = None,
    environment: Mapping[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
    timeout: float = 300.0,
) -> Outcome:
    """Run `cosimo` (or another program) in `folder`, with a folder of its own for temporary files."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    begin = time.monotonic()
    process = processes.Popen(
        [*program, *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary), "OPENBLAS_NUM_THREADS": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=prepare,
    )
    disturbed = None
    try:
        if disturb is not None:
            disturb(process)
            disturbed = time.monotonic()
        output, errors = process.communicate(timeout=timeout)
    finally:
        ended = time.monotonic()
        if process.poll() is None:
            process.kill()
            process.wait()
    left = tuple(sorted(str(file.relative_to(temporary)) for file in temporary.rglob("*")))
    took = None if disturbed is None else ended - disturbed
    orphans = await_orphans(process.pid)
    return Outcome(tuple(arguments), process.returncode, output, errors, ended - begin, took, orphans, left)


def await_orphans(session: int) -> tuple[str, ...]:
    """Processes of the command's session that are there some time after its end; they are then ended."""
    deadline = time.monotonic() + orphans_after
    while (found := _members(session)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return tuple(f"{pid} {name}" for pid, name in found.items())


def _members(session: int) -> dict[int, str]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name, _, rest = (folder / "stat").read_text().rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, _, _, owner, *_ = rest.split()
            if int(owner) == session and state != "Z":
                found[int(folder.name)] = name.partition("(")[2]
    return found


def require_contract(outcome: Outcome, *, code: int, names: Sequence[str] = (), within: float | None = None) -> None:
    """What holds for every fault; `names` must be in the one line, `within` are seconds from the fault on."""
    assert outcome.code == code, f"exit code {outcome.code}, not {code}:\n{outcome.errors}"
    assert "Traceback" not in outcome.errors, outcome.errors
    for name in names:
        assert name in outcome.line, outcome.line
    if "--json" in outcome.command:
        document = outcome.document
        assert document["exit_code"] == code
        assert document["error"]
        if code in (3, 4, 5, 6):
            assert set(FIELDS) <= set(document), sorted(document)
    assert not outcome.orphans
    assert not outcome.left
    if within is not None:
        assert outcome.took is not None
        assert outcome.took <= within, f"reported after {outcome.took:.2f} s, not {within}"


def require_rows(path: Path, *, at_least: int = 1) -> Result:
    """Rows that the ordinary reader finds, marked incomplete."""
    rows = read_result(path)
    assert not rows.complete
    assert len(rows) >= at_least
    return rows


def note(row: str, **figures: Any) -> None:
    """An outcome for the table of all faults."""
    if path := os.environ.get("FAULT_TABLE"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"row": row, **figures}, ensure_ascii=False) + "\n")


def once_recording(path: Path, *, rows: int = 1, seconds: float = 0.0) -> Callable[[subprocess.Popen[str]], None]:
    """Wait until `rows` have been written to `path` while the run goes on, and then a while."""

    def wait(process: subprocess.Popen[str]) -> None:
        stream, deadline = Path(f"{path}.partial"), time.monotonic() + 2 * PATIENCE
        while not (stream.exists() and stream.stat().st_size > 2000 and len(read_result(path)) >= rows):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(seconds)

    return wait


def once_checkpointed(path: Path) -> Callable[[subprocess.Popen[str]], None]:
    """Wait until a checkpoint after the first macro step of the run that writes `path` can be resumed."""

    def step() -> int:
        try:
            return int(read_checkpoint(path)["step"])
        except CheckpointError:  # none yet, or the newest one is just being put in its place
            return 0

    def wait(process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 2 * PATIENCE
        while not step():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    return wait
