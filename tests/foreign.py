"""Runs couplings of other people's FMUs and compares what is measured and said with what is known to be true.

    python -m tests.foreign FOLDER          (make foreign FMUS=FOLDER)

Every case is a folder with a scenario `case.toml` or a package (.ssp, .ssd), and `truth.toml`:

    stable = true                   whether the run with the master and step of the scenario stays bounded
    critical-step = [2.5, 100.0]    between which steps the first instability lies
    note = "…"
    [[value]]                       signal, time, expect, tolerance of a run with `master` and `step-size`
    [[error]]                       signal, expect, tolerance of its error, with `master` and `step-size`

One row per statement: expected, measured by running, predicted, evidence, trust. The exit code is 1 where a true value
is missed or a false word is said: a verdict of stability that is not true, an error shown as confirmed or measured that
is off by more than the tolerance, a traceback. A verdict that is not assessed is no false word; it is listed.
"""

from __future__ import annotations

import sys
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import cosimo as co
from cosimo.analysis.verdict import Verdict
from cosimo.core.errors import CosimoError, StepDiscarded
from cosimo.core.result import Result
from cosimo.masters.words import MasterOptions, build_master

STOP = 10.0
"""Seconds that a package is run where no value is known later."""
COLUMNS = ("case", "what", "expected", "measured", "predicted", "evidence", "trust", "")


@dataclass(frozen=True)
class Line:
    """One row of the table; `wrong` says why it fails, `listed` what is no failure but should be seen."""

    case: str
    what: str
    expected: str = ""
    measured: str = ""
    predicted: str = ""
    evidence: str = ""
    trust: str = ""
    wrong: str = ""
    listed: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        last = f"WRONG: {self.wrong}" if self.wrong else self.listed or "ok"
        return (self.case, self.what, self.expected, self.measured, self.predicted, self.evidence, self.trust, last)


def find_cases(folder: Path) -> list[Path]:
    """The folders that hold a truth."""
    return sorted(path.parent for path in folder.glob("*/truth.toml"))


class Case:
    """A coupling and what is known of it."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.truth: dict[str, Any] = tomllib.loads((folder / "truth.toml").read_text(encoding="utf-8"))
        found = [folder / "case.toml"] if (folder / "case.toml").exists() else []
        found = found or sorted([*folder.glob("*.ssp"), *folder.glob("*.ssd")])
        if len(found) != 1:
            raise CosimoError(f"'{folder}' holds {len(found)} scenarios or packages; one is needed.")
        scenario = co.load(found[0])
        if found[0].suffix != ".toml":  # the experiment of a package is often another one
            times = [float(value["time"]) for value in self.values]
            scenario = scenario.changed(start=0.0, stop=max(times, default=STOP) or STOP)
        self.scenario = scenario
        self._runs: dict[tuple[str, float], Result] = {}
        self._verdicts: dict[tuple[str, float], Verdict] = {}

    @property
    def values(self) -> list[dict[str, Any]]:
        return list(self.truth.get("value", ()))

    @property
    def errors(self) -> list[dict[str, Any]]:
        return list(self.truth.get("error", ()))

    def key(self, row: Mapping[str, Any]) -> tuple[str, float]:
        """Master and step of a row; those of the scenario where it does not say."""
        return row.get("master", self.scenario.options.name), float(row.get("step-size", self.scenario.step or 0.0))

    def own_key(self) -> tuple[str, float]:
        """The master and step that `stable` is about: those of the file, or of the first row where it says none."""
        rows = [*self.values, *self.errors]
        return self.key({}) if self.scenario.step is not None or not rows else self.key(rows[0])

    def result(self, key: tuple[str, float]) -> Result:
        """The run with this master and step."""
        if key not in self._runs:
            self._runs[key] = self.scenario.run(self._master(key))
        return self._runs[key]

    def verdict(self, key: tuple[str, float]) -> Verdict:
        """What is said about this master and step."""
        if key not in self._verdicts:
            self._verdicts[key] = self.scenario.analyse(self._master(key))
        return self._verdicts[key]

    def _master(self, key: tuple[str, float]) -> Any:
        name, step = key
        options = self.scenario.options if name == self.scenario.options.name else MasterOptions(name=name)
        return build_master(self.scenario.system, step, options)


def judge(folder: Path) -> Iterator[Line]:
    """All rows of one case; an exception that is none of ours is a wrong row."""
    try:
        case = Case(folder)
        for row in case.values:
            yield _value(case, row)
        yield from _judged(case)
    except CosimoError as error:
        yield Line(folder.name, "load", wrong=f"{type(error).__name__}: {error}")
    except Exception as error:
        traceback.print_exc()
        yield Line(folder.name, "traceback", wrong=f"{type(error).__name__}: {error}")


def _value(case: Case, row: Mapping[str, Any]) -> Line:
    key = case.key(row)
    line = Line(case.name, f"{row['signal']}({row['time']:g}) {_text(key)}", f"{row['expect']:.10g}")
    try:
        result = case.result(key)
    except CosimoError as error:
        return replace(line, wrong=f"{type(error).__name__}: {error}")
    near = int(np.argmin(np.abs(result.time - row["time"])))
    if abs(float(result.time[near]) - row["time"]) > 1e-6 * key[1]:
        return replace(line, wrong=f"the run has no row at {row['time']:g} s")
    found = float(result[row["signal"]][near])
    off = abs(found - row["expect"])
    wrong = "" if off <= row["tolerance"] else f"off by {off:.3g}, tolerance {row['tolerance']:g}"
    return replace(line, measured=f"{found:.10g}", wrong=wrong)


def _judged(case: Case) -> Iterator[Line]:
    """What the verdicts say, for the master of the scenario and those of errors."""
    key = case.own_key()
    what = f"stable {_text(key)}"
    if not key[1]:
        yield Line(case.name, "stable", listed="no step is known")
        return
    if not case.values:
        yield _runs(case, key)
    try:
        verdict = case.verdict(key)
    except CosimoError as error:
        yield Line(case.name, what, wrong=f"analyse fails: {type(error).__name__}: {error}")
        return
    if "stable" in case.truth:
        yield _stable(case, what, verdict)
    if "critical-step" in case.truth:
        yield _critical(case, verdict)
    for row in case.errors:
        yield from _error(case, row)


def _runs(case: Case, key: tuple[str, float]) -> Line:
    """A case of which no value is known must run, or say which unit refused, and when."""
    line = Line(case.name, f"run {_text(key)}", "runs, or names the unit")
    try:
        result = case.result(key)
    except StepDiscarded as error:
        named = error.unit is not None and error.time is not None
        said = f"{error.unit} discards the step at t = {error.time:g}" if named else str(error)[:60]
        return replace(line, measured=said, wrong="" if named else "does not name unit and time")
    except CosimoError as error:
        return replace(line, wrong=f"{type(error).__name__}: {error}")
    return replace(line, measured=f"{len(result) - 1} steps to {result.time[-1]:g} s")


def _stable(case: Case, what: str, verdict: Verdict) -> Line:
    wanted = case.truth["stable"]
    line = Line(case.name, what, _word(wanted), "", _word(verdict.stable), verdict.evidence, verdict.trust)
    if verdict.stable is None:
        return replace(line, listed=f"not said: {verdict.reasons.get('stable', '')}"[:70])
    if verdict.stable != wanted:
        return replace(line, wrong=f"'{verdict.headline}'"[:90])
    if not wanted and verdict.trust == "yes":
        return replace(line, wrong="trusted although it is unstable")
    return line


def _critical(case: Case, verdict: Verdict) -> Line:
    low, high = case.truth["critical-step"]
    found = verdict.critical_step
    line = Line(case.name, "critical step", f"{low:g} … {high:g} s", evidence=verdict.evidence, trust=verdict.trust)
    if found is None:
        return replace(line, predicted="–", listed=f"not said: {verdict.reasons.get('critical_step', '')}"[:70])
    # An infinite one says: stable up to the longest step that was searched.
    true = low <= found.step <= high if np.isfinite(found.step) else found.searched[1] <= high
    return replace(line, predicted=f"{found.step:.4g} s", wrong="" if true else "not between these")


def _error(case: Case, row: Mapping[str, Any]) -> Iterator[Line]:
    key = case.key(row)
    line = Line(case.name, f"error {row['signal']} {_text(key)}", f"{row['expect']:.4g} ± {row['tolerance']:g}")
    try:
        verdict = case.verdict(key)
    except CosimoError as error:
        yield replace(line, wrong=f"analyse fails: {type(error).__name__}: {error}")
        return
    shown = {
        "measured": _of(verdict.measured_error if verdict.measured_error is not None else verdict.error, row["signal"]),
        "predicted": _of(verdict.error, row["signal"]),
    }
    if verdict.measured_error is None and verdict.error is not None and verdict.error.kind == "predicted":
        shown["measured"] = None
    if verdict.error is not None and verdict.error.kind == "measured":
        shown["predicted"] = None
    line = replace(
        line,
        measured=_share(shown["measured"]),
        predicted=_share(shown["predicted"]),
        evidence=verdict.evidence,
        trust=verdict.trust,
    )
    said = [value for value in shown.values() if value is not None]
    if not said:
        yield replace(line, listed=f"not said: {verdict.reasons.get('error', '')}"[:70])
        return
    if verdict.evidence == "none":
        yield replace(line, listed="shown without evidence")
        return
    off = max(abs(value - row["expect"]) for value in said)
    yield replace(line, wrong="" if off <= row["tolerance"] else f"off by {off:.3g}")


def _of(errors: Any, signal: str) -> float | None:
    return None if errors is None else errors.outputs.get(signal)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _word(stable: bool | None) -> str:
    return {True: "stable", False: "unstable", None: "–"}[stable]


def _text(key: tuple[str, float]) -> str:
    return f"({key[0]}, {key[1]:g} s)"


def main(arguments: list[str]) -> int:
    """Print the table; 1 where something is wrong, 2 where there is nothing to run."""
    if len(arguments) != 1 or not (cases := find_cases(Path(arguments[0]))):
        print(f"{' '.join(arguments) or 'FOLDER'}: no folder with cases (NAME/truth.toml)", file=sys.stderr)
        return 2
    table = Table(*COLUMNS, title=f"{len(cases)} couplings")
    lines = []
    for folder in cases:
        for line in judge(folder):
            lines.append(line)
            table.add_row(*map(escape, line.cells))
        table.add_section()
    console = Console(width=200) if not sys.stdout.isatty() else Console()
    console.print(table)
    wrong = [line for line in lines if line.wrong]
    listed = [line for line in lines if line.listed and not line.wrong]
    print(f"{len(lines)} statements: {len(lines) - len(wrong) - len(listed)} true, {len(listed)} not assessed, "
          f"{len(wrong)} wrong")  # fmt: skip
    for line in wrong:
        print(f"wrong: {line.case}: {line.what}: {line.wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
