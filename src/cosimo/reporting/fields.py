"""The fields of `--json`, which others script against: change them only by adding.

Complex numbers are [re, im]; what is infinite or was not computed is null.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a run that is interrupted must not wait for them before it says so
    from cosimo.analysis import CriticalStep, Mode, Verdict
    from cosimo.assessment import Assessment, ConnectionEffect, Moment, Recommendation, UnitReport
    from cosimo.core.result import Result
    from cosimo.problems import Item


def number(value: float | None) -> float | None:
    """A finite number, or null."""
    return float(value) if value is not None and math.isfinite(value) else None


def complex_pair(value: complex) -> list[float | None]:
    """[re, im]."""
    return [number(value.real), number(value.imag)]


def verdict_fields(verdict: Verdict | None, found: Assessment | None = None) -> dict[str, Any]:
    """What `analyse --json` prints; without a verdict only what was asked is known, and the loops."""
    if verdict is None:
        assert found is not None
        asked = {"system": found.system, "step_size": found.step_size, "master": found.master}
        empty = {"output_errors": {}, "modes": [], "algebraic_loops": [list(loop) for loop in found.loops]}
        return dict.fromkeys(VERDICT) | asked | empty
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


VERDICT = (
    "system",
    "stable",
    "spectral_radius",
    "exact_spectral_radius",
    "exact_stable",
    "growth_rate",
    "step_size",
    "master",
    "schedule",
    "defect",
    "global_error",
    "global_error_relative",
    "output_errors",
    "horizon",
    "convergence_order",
    "critical_step",
    "critical_step_searched",
    "sweep_factor",
    "converges",
    "algebraic_loops",
    "foreign_mode",
    "modes",
)
"""The fields of a verdict."""


def assessment_fields(found: Assessment | None) -> dict[str, Any]:
    """What `analyse --json` adds for systems of any units; null where nothing was assessed."""
    if found is None:
        return dict.fromkeys(ASSESSMENT)
    limits, error = found.limits, found.error
    steps = (
        {"jacobi": limits.jacobi, "gauss_seidel": limits.gauss_seidel, "iterative": limits.iterative} if limits else {}
    )
    return {
        "confidence": found.confidence.level,
        "confidence_reason": found.confidence.reason,
        "units": [_unit(unit) for unit in found.units],
        "expected_errors": {name: number(value) for name, value in error.outputs.items()} if error else None,
        "expected_error_includes": found.included or None,
        "critical_steps": {name: _critical(step) for name, step in steps.items()} if limits else None,
        "best_order": list(limits.order) if limits else None,
        "worst_connection": _effect(found.worst_connection),
        "recommendation": _recommendation(found.recommendation),
        "along": [_moment(moment) for moment in found.along],
        "reasons": list(found.reasons),
        "unit_steps": found.unit_steps,
        "identification_time": number(found.identification_seconds),
    }


ASSESSMENT = (
    "confidence",
    "confidence_reason",
    "units",
    "expected_errors",
    "expected_error_includes",
    "critical_steps",
    "best_order",
    "worst_connection",
    "recommendation",
    "along",
    "reasons",
    "unit_steps",
    "identification_time",
)


def _critical(limit: CriticalStep | None) -> float | None:
    return number(limit.step) if limit is not None else None


def _unit(unit: UnitReport) -> dict[str, Any]:
    return {
        "name": unit.name,
        "means": unit.means,
        "valid": unit.valid,
        "fit": number(unit.fit),
        "linear": number(unit.linear),
        "invariant": number(unit.invariant),
        "departure": number(unit.departure),
        "unit_steps": unit.unit_steps,
        "poles": [complex_pair(rate) for rate in unit.rates],
        "reasons": list(unit.reasons),
    }


def _effect(effect: ConnectionEffect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    names = ("delay", "radius_slope", "error_slope", "fresh_radius", "fresh_error")
    return {"connection": effect.connection} | {name: number(getattr(effect, name)) for name in names}


def _recommendation(advice: Recommendation | None) -> dict[str, Any] | None:
    if advice is None:
        return None
    master = advice.master
    return {
        "text": advice.text,
        "master": master.name if master else None,
        "step_size": number(master.step) if master else None,
        "predicted_error": number(advice.predicted_error),
        "options": advice.options or None,
    }


def _moment(moment: Moment) -> dict[str, Any]:
    return {
        "time": number(moment.time),
        "stable": moment.stable,
        "spectral_radius": number(moment.spectral_radius),
        "critical_step": number(moment.critical_step),
        "applies": moment.applies,
        "notes": list(moment.notes),
        "changes": list(moment.changes),
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
