"""Pictures drawn with matplotlib: one look for all of them, and one way to write them to files.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; markers and line widths differ as well,
so that a copy in grey remains readable. matplotlib is loaded when something is drawn, not by importing this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.errors import ConfigurationError, OutputError
from cosimo.core.formatting import MOST_ROBUST, step_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cosimo.studies.trials import MasterTrial, Reference
    from cosimo.tuning import Tuned

BLACK, GREY, VERMILION, BLUE, GREEN, PURPLE = "#000000", "#b0b0b0", "#d55e00", "#0072b2", "#009e73", "#cc79a7"
DARK = "#404040"
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0}
"""Behind words that may lie over lines."""
DOTS_PER_INCH = 130
_RC = {
    "axes.axisbelow": True,
    "axes.edgecolor": DARK,
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.unicode_minus": True,
    "figure.facecolor": "white",
    "font.size": 9,
    "grid.alpha": 0.6,
    "grid.color": "#dcdcdc",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "path.simplify": True,
    "savefig.facecolor": "white",
}


def require() -> None:
    """Raise `ConfigurationError` where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigurationError("figures need matplotlib; install it with 'pip install cosimo[plot]'.") from None


def look() -> AbstractContextManager[None]:
    """The style, for what is drawn and saved inside; a user's own settings do not matter there."""
    import matplotlib as mpl

    context: AbstractContextManager[None] = mpl.rc_context({**_defaults(), **_RC})
    return context


def panels(rows: int, columns: int, *, size: tuple[float, float], **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of `size` inches and its panels, row after row; it needs no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.ravel())


def draw_panels(
    drawings: Mapping[str, Callable[[Axes], None]], *, size: tuple[float, float], columns: int = 4, **options: Any
) -> Figure:
    """A row of panels, each drawn by its function below its title, and one legend above all."""
    figure, axes = panels(1, len(drawings), size=size, **options)
    for number, (panel, (title, draw)) in enumerate(zip(axes, drawings.items(), strict=True)):
        draw(panel)
        panel.set_title(letter(number, title) if len(axes) > 1 else title)
    legend(figure, *axes, columns=columns)
    return figure


@contextmanager
def picture(path: Path, size: tuple[float, float], remedy: str) -> Iterator[tuple[Figure, Axes]]:
    """A figure of one panel in our look, written to `path` when the block ends."""
    require()
    with look():
        figure, (axes,) = panels(1, 1, size=size)
        yield figure, axes
        write(figure, path, remedy)


def write(figure: Figure, path: Path, remedy: str) -> Path:
    """Write a figure in the format of its suffix; equal data give an equal file. `remedy` ends an error's message."""
    try:
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None} if path.suffix.lower() == ".png" else None)
    except (OSError, ValueError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or error
        raise OutputError(f"cannot write '{path}': {cause}; {remedy}.") from None
    return path


def letter(number: int, text: str) -> str:
    """The title of panel `number` (from 0): "(a) text"."""
    return f"({'abcdefgh'[number]}) {text}"


def legend(figure: Figure, *axes: Axes, columns: int = 4) -> None:
    """The entries of some panels, each once, above all panels, where they cover no data."""
    entries: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside upper center",
        ncols=columns,
        handletextpad=0.5,
        columnspacing=1.6,
    )


def _defaults() -> dict[str, Any]:
    import matplotlib as mpl

    # The backend is left alone: switching it is a matter of the program that calls us.
    return {key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")}


# ---- pictures of `cosimo compare` and `cosimo tune` ------------------------------------------------------------------


COLOURS = (BLUE, VERMILION, GREEN, PURPLE, "#e69f00", "#56b4e9")
SYMBOLS = ("o", "s", "^", "D", "v", "P")
OBJECTIVES = {
    "error": "error of the worst output",
    "robustness": "change that rates and gains may have",
    "cost": "cost per simulated second",
    "radius": "spectral radius ρ",
    "defect": "consistency δ",
}
"""The goals of a tuning as titles of axes."""


def draw_comparison(title: str, wanted: Reference, trials: list[MasterTrial], path: Path) -> Path:
    """Error against cost per macro step; colour: coupling, marker: master; hollow: unstable."""
    with picture(path, (7.2, 4.4), "choose another file, such as compare.png") as (figure, axes):
        couplings = list(dict.fromkeys(trial.coupling for trial in trials))
        names = list(dict.fromkeys(trial.word for trial in trials))
        for trial in trials:
            if trial.measured is None or trial.measured.diverged is not None:
                continue
            axes.plot(
                [trial.seconds_per_step * 1e6],
                [max(trial.measured.error, 1e-16)],
                marker=SYMBOLS[names.index(trial.word) % len(SYMBOLS)],
                color=COLOURS[couplings.index(trial.coupling) % len(COLOURS)],
                fillstyle="full" if trial.verdict and trial.verdict.stable else "none",
                markersize=8,
                linestyle="none",
            )
        for place, coupling in enumerate(couplings):
            axes.plot([], [], "o", color=COLOURS[place % len(COLOURS)], label=coupling)
        for place, name in enumerate(names):
            axes.plot([], [], SYMBOLS[place % len(SYMBOLS)], color=GREY, label=name)
        missing = [f"{t.word}, {t.coupling}" for t in trials if t.measured and t.measured.diverged is not None]
        if missing:
            axes.text(0.01, 0.01, f"diverged: {'; '.join(missing)}", transform=axes.transAxes, fontsize=7)
        if wanted.own_error:
            axes.axhline(wanted.own_error, color=GREY, linestyle=":")
        axes.set(xscale="log", yscale="log", title=title)
        axes.set(xlabel="time per macro step / µs", ylabel="measured error of the worst output")
        axes.margins(0.15)
        figure.legend(loc="outside right upper")
    return path


def draw_front(tuned: Tuned, path: Path) -> Path:
    """The first goal against the last; the colour is the one in between; a ring marks the recommended point."""
    first, last = tuned.goals[0], tuned.goals[-1]

    def values(name: str) -> Any:
        found = [getattr(point, name) for point in tuned.front]
        return np.minimum(found, MOST_ROBUST) if name == "robustness" else np.array(found)

    with picture(path, (7.2, 4.4), "choose another file, such as front.png") as (figure, axes):
        x, y = values(last.name), values(first.name)
        if len(tuned.goals) > 2:
            middle = tuned.goals[1]
            shown = axes.scatter(x, y, c=values(middle.name), cmap="viridis", s=36, zorder=3)
            bar = figure.colorbar(shown, ax=axes, label=OBJECTIVES[middle.name])
            if middle.name == "robustness":
                bar.ax.yaxis.set_major_formatter(lambda value, _: f"± {value:.0%}")
        else:
            axes.scatter(x, y, color=BLUE, s=36, zorder=3)
        x_chosen, y_chosen = ([getattr(tuned.chosen, goal.name)] for goal in (last, first))
        ring: dict[str, Any] = {"facecolors": "none", "edgecolors": VERMILION, "linewidths": 1.8}
        axes.scatter(x_chosen, y_chosen, s=160, zorder=4, label="recommended", **ring)
        axes.legend(loc="best")
        axes.set(xlabel=OBJECTIVES[last.name], ylabel=OBJECTIVES[first.name])
        axes.set(xscale="log" if last.logarithmic else "linear", yscale="log" if first.logarithmic else "linear")
        axes.set_title(f"{tuned.system}: {tuned.chosen.words} at {step_text(tuned.chosen.step)}", fontsize=9, wrap=True)
    return path
