"""The verdict in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cosimo.analysis import CriticalStep, Verdict
from cosimo.assessment import Assessment
from cosimo.core.display import share
from cosimo.reporting.report.material import Material
from cosimo.tuning.wording import amount, step_text

Kind = Literal["good", "bad", "open"]
SIGNS: dict[Kind, str] = {"good": "✓", "bad": "✕", "open": "?"}


@dataclass(frozen=True)
class Fact:
    """A number that matters, its name, and what to compare it with."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Opening:
    """What the page begins with."""

    kind: Kind
    word: str
    sentences: tuple[str, ...]
    advice: str = ""
    options: str = ""
    facts: tuple[Fact, ...] = ()

    @property
    def sign(self) -> str:
        """The verdict does not rest on colour alone."""
        return SIGNS[self.kind]


def opening(material: Material) -> Opening | None:
    """The verdict first; of runs alone, how they ended."""
    verdict, assessment = material.verdict, material.assessment
    if verdict is None and assessment is None:
        return _of_runs(material)
    kind, word = mark(verdict, assessment)
    found = assessment.recommendation if assessment else None
    options = found.options if found else ""
    # The options stand below, where they can be copied.
    advice = found.text.replace(f" ({options})", "") if found else ""
    sentences = list(_verdict_sentences(verdict)) if verdict else []
    sentences += list(_assessment_sentences(assessment, verdict)) if assessment else []
    return Opening(kind, word, tuple(sentences), _capital(advice), options, tuple(_facts(verdict, assessment)))


def mark(verdict: Verdict | None, assessment: Assessment | None = None) -> tuple[Kind, str]:
    """Good or bad, and the word for it; open where the verdict itself is doubtful."""
    if verdict is None:
        return "open", "No verdict"
    if assessment is not None and assessment.confidence.level in ("low", "none"):
        return "open", f"{'Stable' if verdict.stable else 'Unstable'}, but confidence is {assessment.confidence.level}"
    if verdict.stable and not verdict.exact_stable:
        return "open", "Stable, but the system is not"
    if verdict.converges is False:
        return "bad", "The iteration diverges"
    return ("good", "Stable") if verdict.stable else ("bad", "Unstable")


def _verdict_sentences(verdict: Verdict) -> Iterator[str]:
    begin = f"With {verdict.master} at a macro step of {step_text(verdict.step_size)}, "
    if verdict.converges is False:
        yield f"{begin}the iteration does not converge: each sweep makes the error {verdict.sweep_factor:.3g} × larger."
    elif verdict.stable:
        yield f"{begin}the coupling is stable."
    else:
        double = _time(math.log(2) / verdict.growth)
        yield f"{begin}the coupled run grows without bound: amplitudes double every {double}."
    if not verdict.exact_stable:
        yield (
            "The system itself grows, so that a run that does not is wrong."
            if verdict.stable
            else "The coupled system itself is unstable, whatever the master."
        )
    elif not verdict.stable and verdict.converges is not False:
        if verdict.foreign is not None:
            yield "The system itself does not grow; what grows is no mode of it but one that the coupling adds."
        else:
            yield "The system itself does not grow; the delay of the exchanged values feeds energy into it."
    elif verdict.spectral_radius < verdict.exact_spectral_radius * (1 - 1e-9):
        yield "It decays faster than the system itself does: part of that damping is not real."


def _assessment_sentences(found: Assessment, verdict: Verdict | None) -> Iterator[str]:
    if found.error is not None and found.error.outputs and verdict is not None:
        worst = max(found.error.outputs, key=lambda name: found.error.outputs[name] if found.error else 0.0)
        yield (
            f"Within {_time(verdict.horizon)} its worst output, {worst}, is predicted to be off by "
            f"{share(found.error.worst)} of its largest value."
        )
    effect = found.worst_connection
    if effect is not None and verdict is not None:
        yield (
            f"The connection that hurts most is {effect.connection}: without its delay the spectral radius would be "
            f"{effect.fresh_radius:.6f} instead of {verdict.spectral_radius:.6f}."
        )
    if found.confidence.level != "high":
        yield f"Confidence is {found.confidence.level}: {found.confidence.reason}."
    if verdict is None:
        yield from found.reasons


def _facts(verdict: Verdict | None, assessment: Assessment | None) -> Iterator[Fact]:
    if verdict is None:
        return
    yield Fact(
        "Spectral radius ρ", f"{verdict.spectral_radius:.6f}", f"the system itself {verdict.exact_spectral_radius:.6f}"
    )
    limit = verdict.critical_step or (assessment.limits.own if assessment and assessment.limits else None)
    if limit is not None:
        yield Fact("Critical step", limit_text(limit), f"now {step_text(verdict.step_size)}")
    if assessment is not None and assessment.error is not None:
        yield Fact("Expected error", share(assessment.error.worst), f"worst output, {_time(verdict.horizon)}")
    else:
        yield Fact("Global error", share(verdict.global_error.relative), f"of the outputs, {_time(verdict.horizon)}")
    if assessment is not None:
        yield Fact("Confidence", assessment.confidence.level, _shorter(assessment.confidence.reason))
    elif verdict.order is not None and math.isfinite(verdict.order):
        yield Fact("Convergence order", f"{verdict.order:.2f}", "measured from Φ")


def limit_text(limit: CriticalStep | None) -> str:
    """A critical step in words."""
    if limit is None:
        return "–"
    if limit.step == 0:
        return "none: always unstable"
    return step_text(limit.step) if math.isfinite(limit.step) else f"beyond {step_text(limit.searched[1])}"


def _of_runs(material: Material) -> Opening | None:
    """What can be said of runs alone."""
    if not material.runs:
        return None
    sentences, bad = [], False
    for run in material.runs:
        result = run.result
        end = f"{result.time[-1]:g} s" if len(result) else "its start"
        state = f"reached {end} in {len(result):,} rows"
        if not result.complete:
            state, bad = f"is incomplete: it ended at {end}", True
        growing = (result.info.get("monitors") or {}).get("growing") or ()
        if growing:
            state, bad = f"{state}, and {growing[0]['output']} grows as an unstable coupling does", True
        sentences.append(f"{run.label} {state}; {_count(len(result.warnings), 'warning')}.")
    watched = any("monitors" in run.result.info for run in material.runs)
    word = "The runs need a look" if bad else "The runs show nothing unusual" if watched else "Runs"
    return Opening("bad" if bad else "good" if watched else "open", word, tuple(sentences))


def _count(number: int, noun: str) -> str:
    return f"{'no' if number == 0 else number} {noun}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    return f"{amount(seconds)} s" if seconds >= 1 else step_text(seconds)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shorter(text: str) -> str:
    return text if len(text) <= 64 else text[:61].rsplit(" ", 1)[0] + " …"
