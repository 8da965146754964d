"""What the page begins with: the document of the verdict; of runs alone, what they carry with them."""

from __future__ import annotations

from collections.abc import Iterator

from cosimo.analysis.verdict import Verdict
from cosimo.core.document import Document, Figure, Section
from cosimo.reporting.report.material import Material, Run


def opening(material: Material) -> Document | None:
    """The verdict first; runs alone are as good as the verdict that was made before them, or not assessed."""
    if material.verdict is not None:
        return material.verdict.document
    if not material.runs:
        return None
    verdicts = [carried_verdict(run) for run in material.runs]
    known = [verdict for verdict in verdicts if verdict is not None]
    sentences = tuple(_ending(run) for run in material.runs)
    if len(material.runs) == 1 and known:
        document = known[0].document
        return Document(document.title, document.mark, document.headline, (*sentences, *document.sentences),
                        document.sections[:1], document.commands, document.advice)  # fmt: skip
    figures = tuple(
        Figure("", run.label, None, verdict.headline if verdict else "Not assessed")
        for run, verdict in zip(material.runs, verdicts, strict=True)
    )
    worst = max(
        known, key=lambda verdict: ["yes", "not assessed", "with care", "no"].index(verdict.trust), default=None
    )
    if worst is None or (len(known) < len(verdicts) and worst.trust == "yes"):
        advice = "A result alone does not say whether it can be trusted; 'cosimo analyse SYSTEM' does."
        return Document("Results", "open", "Not assessed", sentences, (Section("verdict", "", figures),), (), advice)
    return Document("Results", worst.judgement.mark, worst.headline, sentences, (Section("verdict", "", figures),))


def carried_verdict(run: Run) -> Verdict | None:
    """The verdict that a run was made with; None where there was none, or it contradicts itself."""
    said = run.result.info.get("verdict")
    try:
        return Verdict.from_brief(said) if isinstance(said, dict) else None
    except ValueError:
        return None


def _ending(run: Run) -> str:
    return f"{run.label} {', '.join(_states(run))}."


def _states(run: Run) -> Iterator[str]:
    result = run.result
    end = f"{result.time[-1]:g} s" if len(result) else "its start"
    yield f"reached {end} in {len(result):,} rows" if result.complete else f"is incomplete: it ended at {end}"
    growing = (result.info.get("monitors") or {}).get("growing") or ()
    if growing:
        yield f"{growing[0]['output']} grows as an unstable coupling does"
    count = len(result.warnings)
    yield f"{'no' if count == 0 else count} warning{'' if count == 1 else 's'}"
