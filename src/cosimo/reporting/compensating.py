"""What `cosimo compensate` shows: the verdict on the design, and the runs side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from cosimo.compensation import Compensation
from cosimo.compensation.comparison import Comparison, Trajectory
from cosimo.core.document import Column, Document, Figure, Section, Table


def compensation_document(found: Compensation, compared: Comparison) -> Document:
    """The document of the design with one column per run."""
    figures = (
        Figure("stop_time", "", compared.stop),
        Figure("energy_start", "", compared.energy_start),
        Figure("runs", "", {name: _run(trajectory) for name, trajectory in compared.runs.items()}),
    )
    section = Section("compared", "Runs", figures, (_side_by_side(compared),))
    return replace(found.document, sections=(*found.document.sections, section))


def _run(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "stable": trajectory.stable,
        "spectral_radius": trajectory.radius,
        "diverged_at": trajectory.diverged,
        "energy_end": trajectory.energy,
        "final": trajectory.final,
        "nrms": trajectory.nrms,
    }


def _side_by_side(compared: Comparison) -> Table:
    runs = compared.runs
    rows: list[dict[str, str]] = []

    def add(label: str, cells: list[str]) -> None:
        rows.append({"label": label, **dict(zip(runs, cells, strict=True))})

    add("stable", ["yes" if t.stable else "NO" for t in runs.values()])
    add("spectral radius", [f"{t.radius:.9f}" for t in runs.values()])
    if any(t.diverged is not None for t in runs.values()):
        add("diverged at", ["–" if t.diverged is None else f"{t.diverged:g} s" for t in runs.values()])
    if compared.energy_start is not None:
        cells = ["–" if t.energy is None else f"{t.energy:.5g} J" for t in runs.values()]
        add(f"energy ({compared.energy_start:.5g} J)", cells)
    for name in compared.exact.final:
        mark = "*" if name in compared.fed_through else ""
        add(f"{name}{mark}, end", [_value(t.final.get(name)) for t in runs.values()])
        add("  NRMS", [_share((t.nrms or {}).get(name), t) for t in runs.values()])
    until = f"until t = {compared.stop:g} s"
    columns = (Column("label", until, str, False), *(Column(name, name) for name in runs))
    note = (
        "* compensated: shows the corrected input of the step, not the force at its end" if compared.fed_through else ""
    )
    return Table("", "", columns, rows, note)


def _value(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


def _share(value: float | None, trajectory: Trajectory) -> str:
    if value is None:
        return "–" if trajectory.nrms is None else "unbounded"
    return f"{value:.2e}" if math.isfinite(value) else "unbounded"
