"""The picture of `cosimo compare`: error against cost, one point per master and coupling."""

from __future__ import annotations

from pathlib import Path

from cosimo.core.errors import OutputError
from cosimo.papers.figures.style import BLUE, DOTS_PER_INCH, GREEN, GREY, PURPLE, VERMILION, look, panels, require
from cosimo.studies.trials import Reference, Trial

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P")


def draw_comparison(title: str, wanted: Reference, trials: list[Trial], path: Path) -> Path:
    """Error against cost per macro step; colour: coupling, marker: master; hollow: unstable."""
    require()
    with look():
        figure, (axes,) = panels(1, 1, size=(7.2, 4.4))
        couplings = list(dict.fromkeys(trial.coupling for trial in trials))
        names = list(dict.fromkeys(trial.word for trial in trials))
        for trial in trials:
            if trial.measured is None or trial.measured.diverged is not None:
                continue
            colour = COLOURS[couplings.index(trial.coupling) % len(COLOURS)]
            marker = MARKERS[names.index(trial.word) % len(MARKERS)]
            axes.plot(
                [trial.seconds_per_step * 1e6],
                [max(trial.measured.error, 1e-16)],
                marker=marker,
                color=colour,
                fillstyle="full" if trial.verdict and trial.verdict.stable else "none",
                markersize=8,
                linestyle="none",
            )
        for place, coupling in enumerate(couplings):
            axes.plot([], [], "o", color=COLOURS[place % len(COLOURS)], label=coupling)
        for place, name in enumerate(names):
            axes.plot([], [], MARKERS[place % len(MARKERS)], color=GREY, label=name)
        missing = [f"{t.word}, {t.coupling}" for t in trials if t.measured and t.measured.diverged is not None]
        if missing:
            axes.text(0.01, 0.01, f"diverged: {'; '.join(missing)}", transform=axes.transAxes, fontsize=7)
        if wanted.own_error:
            axes.axhline(wanted.own_error, color=GREY, linestyle=":")
        axes.set(
            xscale="log",
            yscale="log",
            title=title,
            xlabel="time per macro step / µs",
            ylabel="measured error of the worst output",
        )
        axes.margins(0.15)
        figure.legend(loc="outside right upper")
        try:
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot write '{path}': {error}; choose another file, such as compare.png.") from None
    return path
