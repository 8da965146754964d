"""What `cosimo compensate` prints: the verdict on the design, and the runs side by side."""

from __future__ import annotations

import math
from typing import Any

from cosimo.compensation import Compensation
from cosimo.compensation.comparison import Comparison, Trajectory
from cosimo.reporting.fields import complex_pair, number


def compensation_fields(found: Compensation, compared: Comparison) -> dict[str, Any]:
    """What `compensate --json` prints."""
    return {
        "system": found.path.system.name,
        "master": found.path.master.name,
        "schedule": str(found.path.master),
        "step_size": found.path.master.step,
        "target": found.target,
        "stable": found.stable,
        "follows_target": found.follows,
        "residual": number(found.residual),
        "samples": found.levels,
        "gain_size": number(found.gain_size),
        "target_spectral_radius": number(found.target_radius),
        "latent": [complex_pair(complex(value)) for value in found.latent],
        "modes": [
            {name: complex_pair(getattr(mode, name)) for name in ("exact", "target", "before", "after")}
            for mode in found.modes
        ],
        "sensitivity": [
            {
                "unit": change.unit,
                "matrix": change.matrix,
                "factor": change.factor,
                "spectral_radius": number(change.radius),
                "target_spectral_radius": number(change.target_radius),
                "stable": change.stable,
                "follows_target": change.follows,
            }
            for change in found.sensitivity
        ],
        "stop_time": compared.stop,
        "energy_start": number(compared.energy_start),
        "runs": {name: _run(trajectory) for name, trajectory in compared.runs.items()},
    }


def _run(trajectory: Trajectory) -> dict[str, Any]:
    nrms = trajectory.nrms
    return {
        "stable": trajectory.stable,
        "spectral_radius": number(trajectory.radius),
        "diverged_at": number(trajectory.diverged),
        "energy_end": number(trajectory.energy),
        "final": {name: number(value) for name, value in trajectory.final.items()},
        "nrms": None if nrms is None else {name: number(value) for name, value in nrms.items()},
    }


def compensation_text(found: Compensation, compared: Comparison) -> str:
    """The verdict, then one column per run."""
    return "\n".join([str(found), "", *_side_by_side(compared)])


def _side_by_side(compared: Comparison) -> list[str]:
    runs = compared.runs
    lines = [
        _line(f"until t = {compared.stop:g} s", list(runs)),
        _line("stable", ["yes" if t.stable else "NO" for t in runs.values()]),
        _line("spectral radius", [f"{t.radius:.9f}" for t in runs.values()]),
    ]
    if any(t.diverged is not None for t in runs.values()):
        lines.append(_line("diverged at", ["–" if t.diverged is None else f"{t.diverged:g} s" for t in runs.values()]))
    if compared.energy_start is not None:
        start = compared.energy_start
        lines.append(
            _line(f"energy ({start:.5g} J)", ["–" if t.energy is None else f"{t.energy:.5g} J" for t in runs.values()])
        )
    for name in compared.exact.final:
        mark = "*" if name in compared.fed_through else ""
        lines.append(_line(f"{name}{mark}, end", [_value(t.final.get(name)) for t in runs.values()]))
        lines.append(_line("  NRMS error", [_share((t.nrms or {}).get(name), t) for t in runs.values()]))
    if compared.fed_through:
        lines.append("  * compensated: shows the corrected input of the step, not the force at its end")
    return lines


def _line(label: str, cells: list[str]) -> str:
    return f"  {label:22}" + "".join(f"{cell:>16}" for cell in cells)


def _value(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


def _share(value: float | None, trajectory: Trajectory) -> str:
    if value is None:
        return "–" if trajectory.nrms is None else "unbounded"
    return f"{value:.2e}" if math.isfinite(value) else "unbounded"
