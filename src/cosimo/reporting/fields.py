"""The fields of `--json`, which others script against: change them only by adding.

Complex numbers are [re, im]; what is infinite or was not computed is null.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a run that is interrupted must not wait for them before it says so
    from cosimo.core.result import Result


def number(value: float | None) -> float | None:
    """A finite number, or null."""
    return float(value) if value is not None and math.isfinite(value) else None


def complex_pair(value: complex) -> list[float | None]:
    """[re, im]."""
    return [number(value.real), number(value.imag)]


def run_fields(result: Result, wall_time: float, output_file: str | None) -> dict[str, Any]:
    """What `run --json` prints."""
    steps = int(result.info["steps"])
    fields: dict[str, Any] = {
        "steps": steps,
        "end_time": number(result.info["end"]),
        "wall_time": wall_time,
        "steps_per_second": number(steps / wall_time) if wall_time > 0 else None,
        "output_file": output_file,
        "complete": result.complete,
        "verdict": result.info.get("verdict"),
        "stopped_at": number(result.info.get("stopped_at")),
        "warnings": [str(warned) for warned in result.warnings],
    }
    if "ended_by" in result.info:
        fields |= {"ended_by": result.info["ended_by"], "ended_at": number(result.info["ended_at"])}
    if "monitors" in result.info:
        fields["monitors"] = result.info["monitors"]
    if "rollbacks" in result.info:
        fields["rollbacks"] = result.info["rollbacks"]
    if "rejected" in result.info:
        fields["rejected"] = result.info["rejected"]
        fields["shortest_step"] = number(result.info.get("shortest_step"))
        fields["longest_step"] = number(result.info.get("longest_step"))
    if "sweeps" in result.info:
        fields["sweeps"] = result.info["sweeps"]
        fields["largest_residual"] = number(result.info["largest_residual"])
        fields["unconverged"] = result.info["unconverged"]
    return fields
