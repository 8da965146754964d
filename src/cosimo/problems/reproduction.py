"""Every number of the implemented papers: published value, ours, verdict, reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cosimo.core.errors import UnknownNameError
from cosimo.problems.claims import Claim
from cosimo.problems.double_mass_spring_damper import claims as gomes2018
from cosimo.problems.pikulinski2025 import claims as pikulinski2025
from cosimo.problems.richiedei2024 import claims as richiedei2024
from cosimo.problems.tamellin2022 import claims as tamellin2022
from cosimo.problems.two_mass_glumac import claims as glumac2018

PAPERS: dict[str, Callable[[], Iterator[Claim]]] = {
    "glumac2018": glumac2018,
    "gomes2018": gomes2018,
    "tamellin2022": tamellin2022,
    "pikulinski2025": pikulinski2025,
    "richiedei2024": richiedei2024,
}


@dataclass(frozen=True)
class Item:
    """A claim and the paper that makes it."""

    paper: str
    claim: Claim


def reproduce(papers: Iterable[str] = ()) -> Iterator[Item]:
    """The claims of the given papers (all, when none is given), computed one after the other."""
    chosen = list(papers) or list(PAPERS)
    for paper in chosen:
        if paper not in PAPERS:
            raise UnknownNameError("paper", paper, PAPERS)
    for paper in chosen:
        for claim in PAPERS[paper]():
            yield Item(paper, claim)
