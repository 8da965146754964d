"""Beyond the papers: the compensator designed on the one-step map of the schedule, beside the one designed on D(s)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from cosimo import masters
from cosimo.compensation import compensate
from cosimo.core.arrays import Array
from cosimo.papers.figures.style import DISCRETE_EXACT, DISCRETE_MONOLITHIC, LABELS, LINES, legend, letter, panels
from cosimo.papers.mechanics import Motion, cosimulated_motion
from cosimo.papers.tamellin2022 import Case, free_evolution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINDOW = 0.2
"""Errors oscillate; what is drawn is the largest one in every such stretch of time, in seconds."""
PAPERS = ("without compensation", "with compensation")
FROM_MONOLITHIC = (*PAPERS, DISCRETE_MONOLITHIC)
FROM_EXACT = (*PAPERS, "monolithic", DISCRETE_EXACT)
LABELS_HERE = LABELS | {
    "monolithic": "monolithic run",
    "with compensation": "with the papers' compensator",
    "without compensation": "without compensation",
    DISCRETE_MONOLITHIC: DISCRETE_MONOLITHIC,
    DISCRETE_EXACT: DISCRETE_EXACT,
}


def figure(cases: Mapping[str, Case]) -> Figure:
    """Upper row: how far x₂ is from the monolithic run; lower row: from the exact motion. One column per case."""
    found, axes = panels(2, len(cases), size=(4.0 * len(cases), 6.4), sharex=True, sharey=True)
    for column, case in enumerate(cases.values()):
        exact, runs = motions(case)
        for row, (reference, name, kinds) in enumerate(
            ((runs["monolithic"], "monolithic run", FROM_MONOLITHIC), (exact, "exact motion", FROM_EXACT))
        ):
            number = row * len(cases) + column
            axis = axes[number]
            for kind in kinds:
                axis.plot(*error_over_time(runs[kind], reference), label=LABELS_HERE[kind], **LINES[kind])
            axis.set_title(letter(number, f"two-mass {case.name}"))
            axis.set(yscale="log", xlim=(0.0, case.stop))
            if column == 0:
                axis.set_ylabel(f"distance of $x_2$ from the {name}\n(largest $x_2$ = 1), logarithmic")
            if row == 1:
                axis.set_xlabel("time / s")
    legend(found, axes[0], axes[-1], columns=5)
    return found


def motions(case: Case) -> tuple[Motion, dict[str, Motion]]:
    """The exact motion, and the others with both targets of the discrete design among them."""
    exact, runs = free_evolution(case)
    system, steps = case.build(), round(case.stop / case.step)
    plain = masters.jacobi_early_read(system, case.step)
    targets: tuple[tuple[str, Literal["monolithic", "exact"]], ...] = (
        (DISCRETE_MONOLITHIC, "monolithic"),
        (DISCRETE_EXACT, "exact"),
    )
    for name, target in targets:
        runs[name] = cosimulated_motion(system, compensate(system, plain, target=target).master, steps)
    return exact, runs


def error_over_time(motion: Motion, reference: Motion) -> tuple[Array, Array]:
    """Ends of windows, and max |x₂ − x₂,ref| in each of them over the largest |x₂,ref| of the whole run."""
    length = round(WINDOW / float(reference.time[1]))
    difference = np.abs(motion.positions[:, 1] - reference.positions[:, 1]) / np.abs(reference.positions[:, 1]).max()
    windows = difference[1:][: (len(difference) - 1) // length * length].reshape(-1, length)
    return reference.time[length::length][: len(windows)], windows.max(axis=1)
