"""An assessment in words, for the terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable

from cosimo.analysis import CriticalStep, Mode, Verdict
from cosimo.assessment.assessment import Assessment, Moment, UnitReport

WIDTH = 118
SHOWN_MODES = 12


def assessment_text(found: Assessment) -> str:
    """All that is known, headline first."""
    lines = _headline(found)
    lines += [*_error(found), *_limits(found), *_connection(found)]
    lines += [_line("algebraic loop", " → ".join(loop)) for loop in found.loops]
    lines += _wrapped("confidence", f"{found.confidence.level}: {found.confidence.reason}")
    for reason in found.reasons:
        lines += _wrapped("note", reason)
    lines += ["", *_units(found.units)]
    if found.verdict is not None and found.verdict.modes:
        lines += ["", *_modes(found.verdict.modes)]
    if found.along:
        lines += ["", *_along(found.along)]
    if found.recommendation is not None and found.recommendation.text:
        lines += ["", *_sentence(f"recommendation: {found.recommendation.text}")]
    return "\n".join(lines)


def _headline(found: Assessment) -> list[str]:
    verdict = found.verdict
    begin = f"{found.system} under {found.master} at the macro step {found.step_size:g} s"
    if verdict is None:
        return [f"{begin}: NO VERDICT"]
    word = "stable" if verdict.stable else "UNSTABLE"
    if verdict.converges is False:
        word = "THE ITERATION DIVERGES"
    radius = f"{verdict.spectral_radius:.9f}   (exact system {verdict.exact_spectral_radius:.9f})"
    lines = [f"{begin}: {word}", _line("schedule", verdict.schedule), _line("spectral radius", radius)]
    return [*lines, *_growth(verdict)]


def _growth(verdict: Verdict) -> list[str]:
    lines = []
    if verdict.growth > 0 and not verdict.stable:
        lines.append(_line("growth", f"amplitudes double every {math.log(2) / verdict.growth:.3g} s"))
        if verdict.foreign is not None:
            pole = f"{verdict.foreign.real:.3g} ± {abs(verdict.foreign.imag):.3g}j"
            lines.append(_line("note", f"what grows is no mode of the exact system but the master's own ({pole})"))
    if not verdict.exact_stable:
        lines.append(_line("note", "the coupled system itself is unstable, whatever the master"))
    return lines


def _error(found: Assessment) -> list[str]:
    if found.verdict is None:
        return []
    if found.error is None:
        return [_line("expected error", "not predicted")]
    worst = max(found.error.outputs, key=lambda name: found.error.outputs[name] if found.error else 0.0, default="")
    lines = [
        _line("expected error", f"{percent(found.error.worst)} of {worst} within {found.verdict.horizon:g} s"),
        *_wrapped("included", found.included),
    ]
    shown = sorted(found.error.outputs.items(), key=lambda item: -item[1])[:SHOWN_MODES]
    return lines + [_line("" if place else "per output", f"{percent(e):>9}  {n}") for place, (n, e) in enumerate(shown)]


def _limits(found: Assessment) -> list[str]:
    if found.limits is None:
        return []
    limits = found.limits
    rows = [
        ("jacobi", limits.jacobi),
        (f"gauss-seidel({','.join(limits.order)})", limits.gauss_seidel),
        ("iterative, two sweeps", limits.iterative),
    ]
    return [
        _line("" if place else "critical step", f"{_step(limit):>12}  {n}") for place, (n, limit) in enumerate(rows)
    ]


def _step(limit: CriticalStep | None) -> str:
    if limit is None:
        return "–"
    if limit.step == 0:
        return "none"
    return f"{limit.step:.5g} s" if math.isfinite(limit.step) else f"> {limit.searched[1]:.3g} s"


def _connection(found: Assessment) -> list[str]:
    effect, verdict = found.worst_connection, found.verdict
    if effect is None or verdict is None:
        return []
    text = f"{effect.connection}: without its delay ρ {verdict.spectral_radius:.5f} → {effect.fresh_radius:.5f}"
    if found.error is not None and math.isfinite(effect.fresh_error):
        text += f", error × {effect.fresh_error / found.error.typical:.2g}" if found.error.typical else ""
    return _wrapped("hurts most", text)


def _units(units: Iterable[UnitReport]) -> list[str]:
    rows = ["  unit                 means           fit     linear  invariant  unit steps"]
    for unit in units:
        if unit.error:
            rows += _wrapped(unit.name, f"NOT IDENTIFIED: {unit.error}")
            continue
        word = "" if unit.valid else "   NOT VALID"
        rows.append(
            f"  {unit.name:<20} {unit.means:<12} {unit.fit:8.1e}   {unit.linear:8.1e}   {unit.invariant:8.1e}  "
            f"{unit.unit_steps:10d}{word}"
        )
        rows += [line for reason in unit.reasons for line in _wrapped("", reason)]
    return rows


def _modes(modes: tuple[Mode, ...]) -> list[str]:
    rows = ["  mode   frequency/Hz     damping   frequency shift   damping shift"]
    shown = list(enumerate(modes, 1))
    if len(shown) > SHOWN_MODES:
        shown = sorted(shown, key=lambda entry: entry[1].damping_shift)[:SHOWN_MODES]
    for number, mode in shown:
        rows.append(
            f"  {number:4d}   {mode.frequency:12.6g}   {mode.damping:9.5f}   {percent(mode.frequency_shift):>15}   "
            f"{mode.damping_shift:13.3e}"
        )
    if len(modes) > SHOWN_MODES:
        rows.append(f"  … the {SHOWN_MODES} modes that lose most damping, of {len(modes)}")
    return rows


def _along(moments: tuple[Moment, ...]) -> list[str]:
    rows = ["  time/s       verdict    spectral radius   critical step/s"]
    for moment in moments:
        word = "–" if moment.stable is None else "stable" if moment.stable else "UNSTABLE"
        mark = "" if moment.applies else "   not linear here"
        limit = f"{moment.critical_step:.4g}" if moment.critical_step == moment.critical_step else "–"
        rows.append(f"  {moment.time:<10.6g}   {word:<8}   {moment.spectral_radius:15.6f}   {limit:>15}{mark}")
        rows += [line for change in moment.changes for line in _wrapped("", change)]
        rows += [line for note in moment.notes for line in _wrapped("", note)]
    limits = [moment for moment in moments if moment.critical_step > 0]
    if limits:
        least = min(limits, key=lambda moment: moment.critical_step)
        rows.append(f"  the smallest critical step is {least.critical_step:.4g} s, at t = {least.time:g} s")
    return rows


def percent(value: float) -> str:
    """A share in words."""
    if not math.isfinite(value):
        return "unbounded"
    return f"{value:.1e} ×" if abs(value) >= 10 else f"{100 * value:.3g} %"


def _sentence(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _line(name: str, text: str) -> str:
    return f"  {name:<20} {text}"


def _wrapped(name: str, text: str) -> list[str]:
    rows = textwrap.wrap(text, WIDTH - 23, break_on_hyphens=False, break_long_words=False) or [""]
    return [_line(name if place == 0 else "", row) for place, row in enumerate(rows)]
