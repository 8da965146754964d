"""An assessment in words, for the terminal: the verdict, what to do, then why."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cosimo.analysis.text import (
    headline,
    line,
    loops,
    mode_table,
    percent,
    stability,
    step_text,
    structure,
    wrapped,
)
from cosimo.assessment.assessment import Assessment, Moment, UnitReport

SHOWN_OUTPUTS = 8

__all__ = ["assessment_text", "percent"]


def assessment_text(found: Assessment) -> str:
    """All that is known, the verdict first."""
    verdict = found.verdict
    if verdict is None:
        asked = f"{found.system} under {found.master} at the macro step {found.step_size:g} s"
        lines = [f"{asked}: NO VERDICT", *loops(found.loops)]
    else:
        lines = [headline(verdict), *_advice(found), *stability(verdict), *_error(found), *_limits(found)]
        lines += [*_connection(found), *structure(verdict)]
    lines += wrapped("confidence", f"{found.confidence.level}: {found.confidence.reason}")
    for reason in found.reasons:
        lines += wrapped("note", reason)
    identified = [unit for unit in found.units if unit.means != "known"]
    if identified:
        lines += ["", *_units(identified)]
    if verdict is not None and verdict.modes:
        lines += ["", *mode_table(verdict.modes)]
    if found.along:
        lines += ["", *_along(found.along)]
    return "\n".join(lines)


def _advice(found: Assessment) -> list[str]:
    if found.recommendation is None or not found.recommendation.text:
        return []
    return wrapped("recommendation", found.recommendation.text)


def _error(found: Assessment) -> list[str]:
    assert found.verdict is not None
    error, whole, horizon = found.error, found.verdict.global_error, found.verdict.horizon
    lines = []
    if error is None:
        lines.append(line("expected error", "not predicted"))
    else:
        shown = sorted(error.outputs.items(), key=lambda item: -item[1])
        parts = [f"{percent(value)} of {name}" for name, value in shown[:SHOWN_OUTPUTS]]
        more = f", less of {len(shown) - SHOWN_OUTPUTS} more" if len(shown) > SHOWN_OUTPUTS else ""
        lines += wrapped("expected error", f"{', '.join(parts)}{more}; within {horizon:g} s")
        lines += wrapped("", f"included: {found.included}")
    if whole.steps and whole is not error:
        whose = "any initial state" if whole.worst_case else "the given initial state"
        of = "the outputs together" if math.isfinite(whole.relative) else "the outputs"
        lines.append(line("", f"from {whose}: {percent(whole.relative)} of {of}"))
    return lines


def _limits(found: Assessment) -> list[str]:
    """Of the master itself, and of the usual ones."""
    verdict, limits = found.verdict, found.limits
    assert verdict is not None
    own = limits.own if limits else verdict.critical_step
    rows = (
        []
        if limits is None
        else [
            ("jacobi", limits.jacobi),
            (f"gauss-seidel({','.join(limits.order)})", limits.gauss_seidel),
            ("iterative, two sweeps", limits.iterative),
        ]
    )
    if (verdict.master, own) not in rows:
        rows.insert(0, (f"{verdict.master}, as it is", own))
    shown = [(step_text(limit), name) for name, limit in rows if limit is not None]
    width = max((len(text) for text, _ in shown), default=0)
    return [line("" if k else "critical step", f"{text:<{width}}  {name}") for k, (text, name) in enumerate(shown)]


def _connection(found: Assessment) -> list[str]:
    effect, verdict = found.worst_connection, found.verdict
    if effect is None or verdict is None:
        return []
    text = f"{effect.connection}: without its delay ρ {verdict.spectral_radius:.5f} → {effect.fresh_radius:.5f}"
    if found.error is not None and math.isfinite(effect.fresh_error):
        text += f", error × {effect.fresh_error / found.error.typical:.2g}" if found.error.typical else ""
    return wrapped("hurts most", text)


def _units(units: Iterable[UnitReport]) -> list[str]:
    rows = ["  unit                 means           fit     linear  invariant  unit steps"]
    for unit in units:
        if unit.error:
            rows += wrapped(unit.name, f"NOT IDENTIFIED: {unit.error}")
            continue
        word = "" if unit.valid else "   NOT VALID"
        rows.append(
            f"  {unit.name:<20} {unit.means:<12} {unit.fit:8.1e}   {unit.linear:8.1e}   {unit.invariant:8.1e}  "
            f"{unit.unit_steps:10d}{word}"
        )
        rows += [row for reason in unit.reasons for row in wrapped("", reason)]
    return rows


def _along(moments: tuple[Moment, ...]) -> list[str]:
    rows = ["  time/s       verdict    spectral radius   critical step/s"]
    for moment in moments:
        word = "–" if moment.stable is None else "stable" if moment.stable else "UNSTABLE"
        mark = "" if moment.applies else "   not linear here"
        limit = f"{moment.critical_step:.4g}" if moment.critical_step == moment.critical_step else "–"
        rows.append(f"  {moment.time:<10.6g}   {word:<8}   {moment.spectral_radius:15.6f}   {limit:>15}{mark}")
        rows += [row for text in (*moment.changes, *moment.notes) for row in wrapped("", text)]
    limits = [moment for moment in moments if moment.critical_step > 0]
    if limits:
        least = min(limits, key=lambda moment: moment.critical_step)
        rows.append(f"  the smallest critical step is {least.critical_step:.4g} s, at t = {least.time:g} s")
    return rows
