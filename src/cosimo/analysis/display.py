"""A verdict as notebooks show it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cosimo.core.display import card, share

if TYPE_CHECKING:
    from cosimo.analysis.verdict import Verdict


def verdict_card(verdict: Verdict) -> str:
    """The headline, the numbers that matter, and what becomes of every mode."""
    word = "stable" if verdict.stable else "unstable"
    if verdict.converges is False:
        word = "the iteration diverges"
    radius = f"{verdict.spectral_radius:.9f} (exact system {verdict.exact_spectral_radius:.9f})"
    facts = [("schedule", verdict.schedule), ("spectral radius", radius)]
    if verdict.growth > 0 and not verdict.stable:
        facts.append(("growth", f"amplitudes double every {math.log(2) / verdict.growth:.3g} s"))
    facts.append(("global error", f"{share(verdict.global_error.relative)} of the outputs in {verdict.horizon:g} s"))
    facts.append(("connection defect", f"{verdict.defect:.4g}"))
    if verdict.critical_step is not None and 0 < verdict.critical_step.step < math.inf:
        facts.append(("critical step", f"{verdict.critical_step.step:.5g} s"))
    facts += [("algebraic loop", " → ".join(loop)) for loop in verdict.loops]
    rows = [
        [
            str(number),
            f"{mode.frequency:.6g}",
            f"{mode.damping:.5f}",
            share(mode.frequency_shift),
            f"{mode.damping_shift:.3e}",
        ]
        for number, mode in enumerate(verdict.modes, 1)
    ]
    title = f"{verdict.system} under {verdict.master} at the macro step {verdict.step_size:g} s"
    head = ("mode", "frequency/Hz", "damping", "frequency shift", "damping shift")
    return card(title, ("good" if verdict.stable else "bad", word), facts, head, rows)
