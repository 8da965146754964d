"""The report: one self-contained HTML page that says whether a coupling can be trusted, and shows why.

    co.report(system, master, result).write("report.html")

`contents` sorts what is given and computes what is missing, `sections` says it in words and tables, `charts` and
`diagram` draw it, `run_signals` makes the rows of runs small. Here all of it is put into the template: everything the
page needs inside it, and nothing of a user's text as HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import amount, digits, minus, percent, step_text
from cosimo.core.result import TARGET, Result
from cosimo.core.storage import writing
from cosimo.reporting.report.contents import Contents, ReportedRun, Variation, collect
from cosimo.reporting.report.run_signals import Pack, compressed
from cosimo.reporting.report.sections import SUMMARY, PageSection, origin, sections

if TYPE_CHECKING:
    from cosimo.analysis.model import Model

__all__ = ["Report", "Variation", "report"]

FIGURES = ("figure", "figures", "panels", "values")
"""Data of a section that is drawn."""


@dataclass(frozen=True)
class Report:
    """A report that can be written; `contents` is what it shows.

    >>> from cosimo import analyse, masters, problems
    >>> system = problems.two_mass()
    >>> [section.key for section in report(analyse(system, masters.jacobi(system, 4e-3))).sections]
    ['verdict', 'steps', 'modes', 'provenance']
    """

    contents: Contents
    sections: tuple[PageSection, ...]
    numbers: str
    summary: bool = False

    def html(self) -> str:
        """The whole page."""
        drawn = any(set(FIGURES) & set(section.data) for section in self.sections)
        data = {
            section.key: {name: section.data[name] for name in _drawn(section)}
            for section in self.sections
            if _drawn(section)
        }
        page = _environment().get_template("page.html.j2")
        text: str = page.render(
            title=self.contents.title,
            origin=origin(self.contents),
            summary=self.summary,
            sections=self.sections,
            style=_text("style.css"),
            script=_text("report.js"),
            data=_json(data),
            numbers=self.numbers,
            plotly=_plotly() if drawn else "",
        )
        return text

    def write(self, path: str | Path) -> Path:
        """Write the page to a file."""
        path = Path(path)
        with writing(path, "choose another file", what="the report"):
            path.write_text(self.html(), encoding="utf-8")
        return path


@checked
def report(
    *things: Any,
    title: str | None = None,
    reference: Result | ReportedRun | None = None,
    variation: Variation | None = None,
    horizon: float | None = None,
    start: float = 0.0,
    target: float = TARGET,
    seconds: Mapping[str, float] | None = None,
    command: str = "",
    source: Mapping[str, Any] | None = None,
    model: Model | None = None,
    summary: bool = False,
) -> Report:
    """A report about `things`: a system, a master, a verdict, a tuned front, a compensation, results.

    A result may come with its name, `("plain", result)`. A system and a master without a verdict are analysed, errors
    over `horizon` seconds from `start` on, judged by the `target`. Runs are compared with `reference`; `variation`
    asks for the stability over a parameter; `seconds` is the time per step of each unit
    (`cosimo.tuning.measured_weights`). `command` and `source` record the provenance; `model` is the basis of the
    verdict, for curves over the step size. A `summary` fits on one page: the verdict and the runs.

        co.report(system, master, result).write("report.html")
    """
    contents = collect(
        things,
        horizon=horizon,
        start=start,
        target=target,
        title=title,
        reference=reference,
        variation=variation,
        seconds=seconds or {},
        command=command,
        source=source or {},
        model=model,
    )
    pack = Pack()
    found = tuple(part for part in sections(contents, pack) if not summary or part.key in SUMMARY)
    return Report(contents, found, pack.text(), summary)


RUNS = ("signals", "shown", "runs", "values", "ranges", "physical", "differences", "reference", "marks")


def _drawn(section: PageSection) -> list[str]:
    if section.key == "runs":
        return list(RUNS)
    return [
        name for name in ("figure", "figures", "panels", "marks") if name in section.data and section.key != "verdict"
    ]


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("cosimo.reporting.report", "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"amount": amount, "digits": _digits, "minus": minus, "percent": percent, "step_text": step_text}
    return made


def _digits(value: float | None) -> str:
    return "–" if value is None else digits(value)


def _text(name: str) -> str:
    return (files("cosimo.reporting.report") / "templates" / name).read_text(encoding="utf-8")


def _json(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plotly() -> str:
    """The drawing library, compressed; its Python side is not needed."""
    bundle = files("plotly") / "package_data" / "plotly.min.js"
    try:
        return compressed(bundle.read_bytes())
    except OSError:
        raise ConfigurationError("the JavaScript library of plotly is missing; reinstall plotly.") from None
