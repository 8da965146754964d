"""Where a report comes from: what was asked, which versions answered, and fingerprints of what was read."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cosimo.core.formatting import step_text
from cosimo.reporting.report.material import Material

PACKAGES = ("cosimo", "numpy", "scipy", "fmpy", "plotly")


def provenance(material: Material) -> dict[str, Any]:
    """Facts, texts of scenarios, and one line per run."""
    facts: list[tuple[str, str]] = [("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))]
    if material.command:
        facts.append(("command", material.command))
    if material.master is not None:
        facts.append(("master", f"{material.master.name}, {step_text(material.master.step)}, {material.master}"))
    facts += _source(material.source)
    facts.append(("versions", ", ".join([f"Python {platform.python_version()}", *_versions()])))
    facts.append(("platform", f"{platform.system()} {platform.machine()}"))
    texts = {str(text) for text in [material.source.get("text"), *_texts(material)] if text}
    rows = [
        {
            "run": run.label,
            "system": str(info.get("system", "–")),
            "master": str(info.get("master", "–")),
            "schedule": str(info.get("schedule", "–")),
            "step": step_text(float(info["step"])) if isinstance(info.get("step"), int | float) else "–",
            "started": str(info.get("started", "–"))[:16].replace("T", " "),
            "versions": ", ".join(f"{name} {value}" for name, value in (info.get("versions") or {}).items()) or "–",
            "hash": str((info.get("scenario") or {}).get("sha256", ""))[:16],
            "rows": f"{len(run.result):,}",
            "complete": run.result.complete,
        }
        for run in material.runs
        for info in (run.result.info,)
    ]
    return {"facts": facts, "texts": sorted(texts), "rows": rows}


def _source(source: Any) -> list[tuple[str, str]]:
    found = []
    if source.get("system"):
        settings = ", ".join(f"{name} = {value:g}" for name, value in (source.get("settings") or {}).items())
        found.append(("system", f"{source['system']}{f' with {settings}' if settings else ''}"))
    if source.get("sha256"):
        found.append(("SHA-256", str(source["sha256"])))
    return found


def _texts(material: Material) -> list[Any]:
    return [(run.result.info.get("scenario") or {}).get("text") for run in material.runs]


def _versions() -> list[str]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found
