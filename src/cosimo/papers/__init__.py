"""Every number of the implemented papers: published value, ours, verdict, reason."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cosimo.core.errors import UnknownNameError
from cosimo.papers.claims import Claim

PAPERS = ("glumac2018", "gomes2018", "tamellin2022", "pikulinski2025", "richiedei2024")
"""Each is a module here with `claims()`, loaded when it is computed."""


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


def reproduce(papers: Iterable[str] = ()) -> Iterator[Item]:
    """The claims of the given papers (all, when none is given), computed one after the other."""
    chosen = list(papers) or list(PAPERS)
    for paper in chosen:
        if paper not in PAPERS:
            raise UnknownNameError("paper", paper, PAPERS)
    for paper in chosen:
        for claim in importlib.import_module(f"cosimo.papers.{paper}").claims():
            yield Item(paper, claim)
