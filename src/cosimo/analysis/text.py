"""A verdict in words, for the terminal: the lines that every analysis prints, whatever the units are."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cosimo.analysis.critical import CriticalStep
    from cosimo.analysis.spectrum import Mode
    from cosimo.analysis.verdict import Verdict

WIDTH = 118
SHOWN_MODES = 12


def line(name: str, text: str) -> str:
    """A fact with its name in the margin."""
    return f"  {name:<20} {text}"


def wrapped(name: str, text: str) -> list[str]:
    """The same over as many lines as it needs."""
    rows = textwrap.wrap(text, WIDTH - 23, break_on_hyphens=False, break_long_words=False) or [""]
    return [line(name if place == 0 else "", row) for place, row in enumerate(rows)]


def percent(value: float) -> str:
    """A share in words."""
    if math.isnan(value):
        return "unknown"
    if not math.isfinite(value):
        return "unbounded"
    return f"{value:.1e} ×" if abs(value) >= 10 else f"{100 * value:.3g} %"


def verdict_text(verdict: Verdict) -> str:
    """All of a verdict on linear units."""
    lines = [headline(verdict), *stability(verdict), *_accuracy(verdict)]
    if verdict.critical_step is not None:
        lines.append(line("critical step", f"{step_text(verdict.critical_step)} (first crossing)"))
    return "\n".join([*lines, *structure(verdict), "", *mode_table(verdict.modes)])


def headline(verdict: Verdict) -> str:
    """What is asked, and the answer."""
    word = "stable" if verdict.stable else "UNSTABLE"
    if verdict.converges is False:
        word = "THE ITERATION DIVERGES"
    return f"{verdict.system} under {verdict.master} at the macro step {verdict.step_size:g} s: {word}"


def stability(verdict: Verdict) -> list[str]:
    """The spectral radius, and what is behind it."""
    radius = f"{verdict.spectral_radius:.9f}   (exact system {verdict.exact_spectral_radius:.9f})"
    growing = verdict.growth > 0 and not verdict.stable
    if growing:
        radius += f", amplitudes double every {math.log(2) / verdict.growth:.3g} s"
    lines = [line("spectral radius", radius)]
    if growing and verdict.foreign is not None:
        pole = f"{verdict.foreign.real:.3g} ± {abs(verdict.foreign.imag):.3g}j"
        lines.append(line("note", f"what grows is no mode of the exact system but the master's own ({pole})"))
    if not growing and verdict.spectral_radius < verdict.exact_spectral_radius * (1 - 1e-9):
        lines.append(line("note", "decays faster than the exact system: spurious damping"))
    if not verdict.exact_stable:
        lines.append(line("note", "the coupled system itself is unstable, whatever the master"))
    return lines


def _accuracy(verdict: Verdict) -> list[str]:
    error = verdict.global_error
    whose = "any initial state" if error.worst_case else "the given initial state"
    whose += "; external inputs left out" if verdict.left_out else ""
    share = "a share is unknown (the initial state is zero)" if math.isnan(error.relative) else percent(error.relative)
    lines = [line("global error", f"{share} of the outputs within {verdict.horizon:g} s, {whose}")]
    worst = max(error.outputs, key=lambda name: error.outputs[name], default="")
    if worst:
        lines.append(line("worst output", f"{worst}: {percent(error.outputs[worst])}"))
    lines.append(line("connection defect", f"{verdict.defect:.4g}   (k = 2, 2-norm)"))
    if verdict.order is not None and math.isfinite(verdict.order):
        lines.append(line("convergence order", f"{verdict.order:.2f}"))
    return lines


def step_text(limit: CriticalStep | None) -> str:
    """A critical step."""
    if limit is None:
        return "–"
    low, high = limit.searched
    if limit.step == 0:
        return f"none: unstable at every step down to {low:.3g} s"
    return f"{limit.step:.6g} s" if math.isfinite(limit.step) else f"none up to {high:.3g} s"


def structure(verdict: Verdict) -> list[str]:
    """The schedule, the iteration in it, and algebraic loops."""
    lines = [line("schedule", verdict.schedule)]
    if verdict.sweep_factor is not None:
        plain = "converges" if verdict.sweep_factor < 1 else "plain substitution diverges"
        remedy = "" if verdict.converges else ": use Anderson acceleration or a smaller step"
        lines.append(line("iteration", f"error × {verdict.sweep_factor:.3g} per sweep, {plain}{remedy}"))
    return lines + loops(verdict.loops)


def loops(found: tuple[tuple[str, ...], ...]) -> list[str]:
    """Algebraic loops."""
    return [line("algebraic loop", " → ".join(loop)) for loop in found]


def mode_table(modes: tuple[Mode, ...]) -> list[str]:
    """What became of every mode; of many, those that lose most damping."""
    rows = ["  mode   frequency/Hz     damping   frequency shift   damping shift       MAC"]
    shown = list(enumerate(modes, 1))
    if len(shown) > SHOWN_MODES:
        shown = sorted(shown, key=lambda entry: entry[1].damping_shift)[:SHOWN_MODES]
    for number, mode in shown:
        mac = f"{mode.mac:9.6f}" if mode.mac is not None else "        –"
        rows.append(
            f"  {number:4d}   {mode.frequency:12.6g}   {mode.damping:9.5f}   {percent(mode.frequency_shift):>15}   "
            f"{mode.damping_shift:13.3e}   {mac}"
        )
    if len(modes) > SHOWN_MODES:
        rows.append(f"  … the {SHOWN_MODES} modes that lose most damping, of {len(modes)}")
    return rows
