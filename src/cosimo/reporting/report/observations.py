"""Parts of a page that come from runs: monitors and timing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosimo.core.formatting import amount, digits, minus, percent, step_text
from cosimo.reporting.report import runs
from cosimo.reporting.report.material import Material
from cosimo.reporting.report.packing import Pack

MOST_ROWS = 60
"""Rows of a table; the rest is counted."""


def monitors(material: Material, pack: Pack) -> dict[str, Any] | None:
    """What was watched in the runs: warnings, energy and defects over time, power bonds, connections."""
    panels = runs.watched(material, pack)
    defects: list[dict[str, Any]] = []
    bonds: list[dict[str, Any]] = []
    for run in material.runs:
        for entry in runs.connections_of(run.result):
            share = entry["relative"]
            defects.append(
                {
                    "run": run.label,
                    "connection": f"{entry['source']} → {entry['target']}",
                    "share": "–" if share is None else percent(share),
                    "bar": 0.0 if share is None else min(1.0, float(share)),
                    "largest": "–" if entry["largest_defect"] is None else digits(entry["largest_defect"]),
                    "time": f"{entry['time']:g} s",
                }
            )
        bonds += [_bond(run.label, entry) for entry in (run.result.info.get("monitors") or {}).get("bonds") or ()]
    warnings = runs.marks(material)
    if not (panels or defects or bonds or warnings):
        return None
    return {
        "panels": panels,
        "marks": warnings,
        "defects": sorted(defects, key=lambda row: -row["bar"])[:MOST_ROWS],
        "bonds": bonds[:MOST_ROWS],
        "watched": bool(defects or bonds),
        "missing": bool(material.runs) and not panels,
        "energy": any(panel["kind"] == "energy" for panel in panels),
    }


def timing(material: Material) -> dict[str, Any] | None:
    """What steps of units and of the whole take."""
    rows = []
    for run in material.runs:
        info = run.result.info
        seconds, steps = info.get("stepping_time"), info.get("steps")
        if not isinstance(seconds, int | float) or not isinstance(steps, int) or not steps or seconds <= 0:
            continue
        simulated = float(info.get("end", run.result.time[-1] if len(run.result) else 0.0))
        rows.append(
            {
                "run": run.label,
                "steps": f"{steps:,}",
                "seconds": step_text(seconds),
                "each": step_text(seconds / steps),
                "speed": f"{amount(simulated / seconds)} ×",
            }
        )
    whole = sum(material.seconds.values())
    alone = [
        {"unit": name, "each": step_text(seconds), "share": percent(seconds / whole), "bar": seconds / whole}
        for name, seconds in sorted(material.seconds.items(), key=lambda item: -item[1])
    ]
    return {"runs": rows, "units": alone[:MOST_ROWS]} if rows or alone else None


def _bond(label: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    residual, exchanged, ratio = (entry[name] for name in ("residual_energy", "exchanged_energy", "ratio"))
    return {
        "run": label,
        "bond": ", ".join(f"{ends['source']} → {ends['target']}" for ends in entry["connections"]),
        "kind": entry["kind"],
        "residual": "–" if residual is None else minus(digits(residual)),
        "exchanged": "–" if exchanged is None else digits(exchanged),
        "share": "–" if ratio is None else percent(ratio),
    }
