"""The figures of the papers, drawn from what the package computes.

The function `pictures` of a paper's module yields them one after the other; an entry in `FIGURES` has them drawn by
`cosimo reproduce --figures DIR`. matplotlib is loaded only while drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cosimo.core.errors import UnknownNameError
from cosimo.papers import PAPERS
from cosimo.papers.figures import glumac2018, pikulinski2025, richiedei2024, style, tamellin2022
from cosimo.papers.figures.picture import Picture, make_folder

FIGURES: dict[str, Callable[[], Iterator[Picture]]] = {
    "tamellin2022": tamellin2022.pictures,
    "glumac2018": glumac2018.pictures,
    "pikulinski2025": pikulinski2025.pictures,
    "richiedei2024": richiedei2024.pictures,
}


def draw(papers: Iterable[str], folder: Path) -> list[Path]:
    """Draw the figures of the given papers (all, when none is given) as PNG files; the files written, in order."""
    chosen = _chosen(papers)
    style.require()
    make_folder(folder)
    written = []
    with style.look():
        for paper in chosen:
            if paper in FIGURES:
                written += [picture.write(folder, paper) for picture in FIGURES[paper]()]
    return written


def without_figures(papers: Iterable[str]) -> list[str]:
    """Those of the given papers (all, when none is given) that have no figures here."""
    return [paper for paper in _chosen(papers) if paper not in FIGURES]


def _chosen(papers: Iterable[str]) -> list[str]:
    chosen = list(dict.fromkeys(papers)) or list(PAPERS)
    for paper in chosen:
        if paper not in PAPERS:
            raise UnknownNameError("paper", paper, PAPERS)
    return chosen
