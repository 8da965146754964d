"""The fields of `--json`, which others script against: change them only by adding.

Complex numbers are [re, im]; what is infinite or was not computed is null.
"""

from __future__ import annotations

import math
from typing import Any

from cosimo.analysis import Mode, Verdict
from cosimo.core.result import Result
from cosimo.problems import Item


def number(value: float | None) -> float | None:
    """A finite number, or null."""
    return float(value) if value is not None and math.isfinite(value) else None


def complex_pair(value: complex) -> list[float | None]:
    """[re, im]."""
    return [number(value.real), number(value.imag)]


def verdict_fields(verdict: Verdict) -> dict[str, Any]:
    """What `analyse --json` prints."""
    error, critical = verdict.global_error, verdict.critical_step
    return {
        "system": verdict.system,
        "stable": verdict.stable,
        "spectral_radius": number(verdict.spectral_radius),
        "exact_spectral_radius": number(verdict.exact_spectral_radius),
        "exact_stable": verdict.exact_stable,
        "growth_rate": number(verdict.growth),
        "step_size": verdict.step_size,
        "master": verdict.master,
        "schedule": verdict.schedule,
        "defect": number(verdict.defect),
        "global_error": number(error.absolute),
        "global_error_relative": number(error.relative),
        "output_errors": {name: number(value) for name, value in error.outputs.items()},
        "horizon": verdict.horizon,
        "convergence_order": number(verdict.order),
        "critical_step": number(critical.step) if critical else None,
        "critical_step_searched": list(critical.searched) if critical else None,
        "sweep_factor": number(verdict.sweep_factor),
        "converges": verdict.converges,
        "algebraic_loops": [list(loop) for loop in verdict.loops],
        "foreign_mode": None if verdict.foreign is None else complex_pair(verdict.foreign),
        "modes": [_mode(mode) for mode in verdict.modes],
    }


def _mode(mode: Mode) -> dict[str, Any]:
    return {
        "monolithic": complex_pair(mode.monolithic),
        "cosimulated": complex_pair(mode.cosimulated),
        "frequency": number(mode.frequency),
        "damping": number(mode.damping),
        "frequency_shift": number(mode.frequency_shift),
        "damping_shift": number(mode.damping_shift),
        "mac": number(mode.mac),
    }


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
        "stopped_at": number(result.info.get("stopped_at")),
        "warnings": [str(warned) for warned in result.warnings],
    }
    if "monitors" in result.info:
        fields["monitors"] = result.info["monitors"]
    if "sweeps" in result.info:
        fields["sweeps"] = result.info["sweeps"]
        fields["largest_residual"] = number(result.info["largest_residual"])
        fields["unconverged"] = result.info["unconverged"]
    return fields


def item_fields(item: Item) -> dict[str, Any]:
    """One entry of `items` in `reproduce --json`."""
    claim = item.claim
    return {
        "paper": item.paper,
        "item": claim.item,
        "published": claim.published,
        "computed": claim.computed,
        "tolerance": claim.tolerance,
        "verdict": claim.verdict,
        "reason": claim.reason,
    }
