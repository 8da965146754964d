"""Every number of the implemented papers: published value, ours, verdict, reason; and their figures.

A paper is a module with a function `claims`; where figures are drawn of it, another one beside it has `pictures`. Both
are imported when they are asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cosimo.core import dataclass
from cosimo.core.errors import OutputError, UnknownNameError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS: dict[str, str | None] = {
    "glumac2018": "glumac2018_figures",
    "gomes2018": None,
    "tamellin2022": "tamellin2022_figures",
    "pikulinski2025": "pikulinski2025_figures",
    "richiedei2024": "richiedei2024",
}
"""The papers, and the module of the figures of each."""


@dataclass(frozen=True)
class Claim:
    """One number or statement of a paper: `published` beside `computed`.

    Numbers hold when they agree within `tolerance` (of the size of the printed rounding); of statements `holds` says
    it. What the paper draws or leaves to the reader has no published value (None): there is nothing to agree with, and
    the verdict is "computed". `reason` explains a reading, or why a printed number is wrong.
    """

    item: str
    published: float | str | None
    computed: float | str
    tolerance: float | None = None
    holds: bool | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """ "holds", "does not hold", or "computed" where the paper says nothing to compare with."""
        if self.published is None:
            return "computed"
        if self.holds is not None:
            return "holds" if self.holds else "does not hold"
        if not isinstance(self.published, float | int) or not isinstance(self.computed, float | int):
            return "holds" if self.published == self.computed else "does not hold"
        near = abs(self.computed - self.published) <= (self.tolerance or 0.0)
        return "holds" if near else "does not hold"


def printed_claim(item: str, published: str, computed: float, reason: str = "") -> Claim:
    """A number in the digits in which it is printed, which say its rounding.

    >>> printed_claim("ξ", "0.0033", 0.00334).verdict, printed_claim("ξ", "0.0033", 0.0034).verdict
    ('holds', 'does not hold')
    """
    return Claim(item, float(published), computed, tolerance=half_digit(published) * (1 + 1e-9), reason=reason)


def half_digit(printed: str) -> float:
    """Half of the last digit of a number as it is printed.

    >>> half_digit("-7.05e-4"), half_digit("3.499")
    (5e-07, 0.0005)
    """
    digits, _, power = printed.partition("e")
    return float(f"5e{int(power or 0) - len(digits.partition('.')[2]) - 1}")


def pole_claim(item: str, published: complex, computed: complex, rounding: complex, reason: str = "") -> Claim:
    """A pole as printed: both parts must agree within `rounding` (a real number counts for both parts)."""
    allowed = complex(rounding)
    limits = (allowed.real, allowed.imag or allowed.real)
    parts = ((published.real, computed.real), (published.imag, computed.imag))
    holds = all(abs(a - b) <= limit * (1 + 1e-9) for (a, b), limit in zip(parts, limits, strict=True))
    return Claim(item, _shown(published, ".10g"), _shown(computed, ".7f"), holds=holds, reason=reason)


def _shown(pole: complex, form: str) -> str:
    # A real part that is only rounding is shown as none.
    real = pole.real if abs(pole.real) > 1e-9 * abs(pole) else 0.0
    return f"{real:{form}} ± {abs(pole.imag):{form}}j"


@dataclass(frozen=True)
class Item:
    """A claim and the paper that makes it."""

    paper: str
    claim: Claim

    @property
    def fields(self) -> dict[str, Any]:
        """One entry of `items` in `reproduce --json`."""
        names = ("item", "published", "computed", "tolerance", "verdict", "reason")
        return {"paper": self.paper} | {name: getattr(self.claim, name) for name in names}

    def __str__(self) -> str:
        """Two or three lines: published, computed, verdict; then the reason."""
        claim = self.claim
        published, computed = (
            f"{v:.10g}" if isinstance(v, float) else str(v) for v in (claim.published, claim.computed)
        )
        values = computed if claim.published is None else f"published {published}; computed {computed}"
        lines = [f"{self.paper:12} {claim.item}", f"{'':12}   {claim.verdict}: {values}"]
        return "\n".join([*lines, f"{'':12}   {claim.reason}"] if claim.reason else lines)


class Picture(NamedTuple):
    """A drawn figure; `name` becomes the file's name, such as fig-03-primary-poles."""

    name: str
    figure: Figure


def reproduce(papers: Iterable[str] = ()) -> Iterator[Item]:
    """The claims of the given papers (all, when none is given), computed one after the other."""
    for paper in _chosen(papers):
        for claim in importlib.import_module(f"cosimo.papers.{paper}").claims():
            yield Item(paper, claim)


def draw(papers: Iterable[str], folder: Path) -> list[Path]:
    """Draw the figures of the given papers (all, when none is given) as PNG files; the files written, in order."""
    from cosimo.reporting.pictures import look, require, write

    chosen = _chosen(papers)
    require()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create the folder '{folder}': {error.strerror}; choose another one.") from None
    with look():
        return [
            write(picture.figure, folder / f"{paper}-{picture.name}.png", "choose another folder")
            for paper in chosen
            for picture in pictures(paper)
        ]


def pictures(paper: str) -> Iterator[Picture]:
    """The figures of a paper, drawn one after the other; none where there are none."""
    module = PAPERS[paper]
    if module is not None:
        yield from importlib.import_module(f"cosimo.papers.{module}").pictures()


def without_figures(papers: Iterable[str]) -> list[str]:
    """Those of the given papers (all, when none is given) that have no figures here."""
    return [paper for paper in _chosen(papers) if PAPERS[paper] is None]


def _chosen(papers: Iterable[str]) -> list[str]:
    chosen = list(dict.fromkeys(papers)) or list(PAPERS)
    for paper in chosen:
        if paper not in PAPERS:
            raise UnknownNameError("paper", paper, PAPERS)
    return chosen
