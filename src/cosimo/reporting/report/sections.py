"""The parts of a page, in their order: what each shows, as plain data for its template; None without content."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.compensation import Compensation
from cosimo.core.errors import ConfigurationError
from cosimo.reporting.report import figures, graph, masters, observations, runs, step_figures, words
from cosimo.reporting.report.drawing import Figure
from cosimo.reporting.report.material import Material
from cosimo.reporting.report.numbers import minus, pole, shift
from cosimo.reporting.report.observations import MOST_ROWS
from cosimo.reporting.report.packing import Pack
from cosimo.reporting.report.parameters import COLUMNS, radius_map
from cosimo.reporting.report.provenance import provenance
from cosimo.tuning.wording import cost_text, percent, step_text


@dataclass(frozen=True)
class Section:
    """A part: `key` names its template and its place on the page, `data` is what the template shows."""

    key: str
    title: str
    data: dict[str, Any]


def sections(material: Material, pack: Pack) -> list[Section]:
    """All parts that have content."""
    made: list[tuple[str, str, Callable[[], dict[str, Any] | None]]] = [
        ("verdict", "Verdict", lambda: _verdict(material)),
        ("system", "System", lambda: _system(material)),
        ("modes", "Modes", lambda: _modes(material)),
        ("steps", "Step size", lambda: _steps(material)),
        ("front", "Tuning", lambda: _front(material)),
        ("runs", "Runs", lambda: runs.signals(material, pack) if material.runs else None),
        ("monitors", "Monitors", lambda: observations.monitors(material, pack)),
        ("timing", "Timing", lambda: observations.timing(material)),
        ("units", "Units", lambda: observations.units(material)),
        ("provenance", "Provenance", lambda: provenance(material)),
    ]
    return [Section(key, title, data) for key, title, make in made if (data := make())]


def _verdict(material: Material) -> dict[str, Any] | None:
    found = words.opening(material)
    return {"opening": found, "alternatives": list(_alternatives(material))} if found else None


def _alternatives(material: Material) -> Iterator[dict[str, Any]]:
    """The given master and what would do instead, side by side."""
    verdict, tuned, compensation, master = material.verdict, material.tuned, material.compensation, material.master
    if verdict is None or not (tuned or compensation):
        return
    units = len(material.system.units) if material.system else None
    given = verdict.stable
    yield _row(material, "given", verdict.master, verdict.step_size, given, verdict.spectral_radius, units)
    if tuned is not None:
        point = tuned.chosen
        yield _row(material, "tuned", point.words, point.step, point.stable, point.radius, None) | {
            "cost": cost_text(point.cost) if not math.isnan(point.cost) else "–"
        }
    if compensation is not None and master is not None:
        name, step = compensation.master.name, compensation.master.step
        yield _row(material, "compensated", name, step, compensation.stable, compensation.radius_after, units)


def _row(
    material: Material, role: Any, name: str, step: float, stable: bool, radius: float, units: int | None
) -> dict[str, Any]:
    run = material.run_of(role)
    error = runs.largest_error(run.result, material.reference.result) if run and material.reference else None
    return {
        "role": role,
        "name": name,
        "step": step_text(step),
        "stable": stable,
        "radius": f"{radius:.9f}",
        "error": percent(error[1]) if error else "–",
        "output": error[0] if error else "",
        "cost": cost_text(units / step) if units else "–",
    }


def _system(material: Material) -> dict[str, Any] | None:
    system = material.system
    if system is None:
        return None
    assessment = material.assessment
    effects = {effect.connection: effect for effect in assessment.connections} if assessment else {}
    worst = assessment.worst_connection.connection if assessment and assessment.worst_connection else None
    looped = graph.loop_links(system)
    rows = []
    for link in system.links:
        own, effect = link.connection, effects.get(str(link.connection))
        coupling = material.master.coupling_of(own.target) if material.master else None
        rows.append(
            {
                "source": own.source,
                "target": own.target,
                "gain": minus(f"{own.gain:g}" + (f" {own.offset:+g}" if own.offset else "")),
                "coupling": "" if coupling is None else repr(coupling),
                "delay": f"{effect.delay:g}" if effect else "",
                "fresh": f"{effect.fresh_radius:.6f}" if effect and math.isfinite(effect.fresh_radius) else "",
                "worst": str(own) == worst,
                "loop": link.number in looped,
            }
        )
    return {
        "drawing": graph.draw(system, worst=worst),
        "rows": rows[:MOST_ROWS],
        "more": max(0, len(rows) - MOST_ROWS),
        "effects": bool(effects),
        "loops": [" → ".join(loop) for loop in material.loops],
        "through": any(unit.feedthrough().any() for unit in system.units.values()),
        "worst": worst,
        "units": len(system.units),
        "radius": f"{material.verdict.spectral_radius:.6f}" if material.verdict else "",
    }


def _modes(material: Material) -> dict[str, Any] | None:
    verdict, design = material.verdict, material.compensation
    if verdict is None or not verdict.modes:
        return None
    modes = verdict.modes
    poles = {"monolithic": [m.monolithic for m in modes], "co-simulated": [m.cosimulated for m in modes]}
    if design is not None and _same_modes(design, [m.monolithic for m in modes]):
        poles["compensated"] = [m.after for m in design.modes]
    rows = [
        {
            "number": number,
            "frequency": f"{mode.frequency:.5g}",
            "damping": minus(f"{100 * mode.damping:.3g} %"),
            "frequency_shift": shift(mode.frequency_shift),
            "damping_shift": shift(mode.damping_shift),
            "mac": "–" if mode.mac is None else f"{mode.mac:.5f}",
            "poles": [pole(values[number - 1]) for values in poles.values()],
            "grows": mode.cosimulated.real > 0,
        }
        for number, mode in enumerate(modes, 1)
    ]
    return {
        "figure": figures.poles(poles),
        "rows": rows[:MOST_ROWS],
        "more": max(0, len(rows) - MOST_ROWS),
        "kinds": list(poles),
        "foreign": None if verdict.foreign is None else pole(verdict.foreign),
    }


def _same_modes(design: Compensation, poles: list[complex]) -> bool:
    theirs = [mode.exact for mode in design.modes]
    return len(theirs) == len(poles) and all(
        abs(a - b) <= 1e-6 * (1 + abs(a)) for a, b in zip(theirs, poles, strict=True)
    )


def _steps(material: Material) -> dict[str, Any] | None:
    found = masters.curves(material)
    limits = material.assessment.limits if material.assessment else None
    rows = []
    if limits is not None and any((limits.own, limits.jacobi, limits.gauss_seidel, limits.iterative)):
        order = f"gauss-seidel({','.join(limits.order)})"
        known = (("the given master", limits.own), ("jacobi", limits.jacobi), (order, limits.gauss_seidel))
        rows = [
            {"name": name, "limit": words.limit_text(limit)}
            for name, limit in (*known, ("iterative, two sweeps", limits.iterative))
        ]
    drawn = []
    if found and material.system is not None and material.master is not None:
        spectrum = Spectrum(LinearSystem(material.system, material.master))
        drawn.append(step_figures.steps(found, float(spectrum.poles.real.max(initial=-math.inf))))
        if material.variation is not None:
            drawn.append(_map(material))
    elif material.variation is not None:
        raise ConfigurationError(
            f"parameter {material.variation.name} cannot be varied: the report shows no curves over the step size, for "
            f"which units must be linear and few; leave it out."
        )
    moments = material.assessment.along if material.assessment else ()
    shown = [moment for moment in moments if math.isfinite(moment.critical_step)]
    if len(shown) > 1 and material.assessment is not None:
        step = material.assessment.step_size
        drawn.append(figures.along([m.time for m in shown], [m.critical_step for m in shown], step))
    return {"figures": drawn, "rows": rows} if drawn or rows else None


def _map(material: Material) -> Figure:
    variation, master = material.variation, material.master
    assert variation is not None
    assert master is not None
    grid = masters.step_grid(material, COLUMNS)
    values, radii = radius_map(variation, master, grid)
    now = None if variation.current is None else (master.step, variation.current)
    return step_figures.parameter_map(variation.name, values, grid, radii, now, variation.logarithmic)


def _front(material: Material) -> dict[str, Any] | None:
    tuned = material.tuned
    if tuned is None:
        return None
    rows = [
        {
            "number": number,
            "words": point.words,
            "step": step_text(point.step),
            "error": percent(point.error),
            "margin": "–"
            if math.isnan(point.robustness)
            else "> ± 900 %"
            if math.isinf(point.robustness)
            else f"± {percent(point.robustness)}",
            "cost": cost_text(point.cost),
            "chosen": point is tuned.chosen,
        }
        for number, point in enumerate(tuned.front)
    ]
    return {
        "figure": figures.front(tuned),
        "rows": rows,
        "sentence": tuned.chosen.sentence,
        "reason": tuned.reason,
        "options": tuned.chosen.options,
        "notes": list(tuned.notes),
        "evaluations": tuned.evaluations,
        "priced": tuned.priced,
    }
