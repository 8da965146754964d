"""One look for all figures: sizes, and one colour, line and marker for each kind of solution.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; markers and line widths differ as well,
so that a copy in grey remains readable. matplotlib is loaded when something is drawn, not by importing this module.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, GREY, VERMILION, BLUE, GREEN, PURPLE = "#000000", "#b0b0b0", "#d55e00", "#0072b2", "#009e73", "#cc79a7"
DISCRETE_MONOLITHIC, DISCRETE_EXACT = "discrete design, target monolithic", "discrete design, target exact"
LINES: dict[str, dict[str, Any]] = {
    # What is followed is wide and pale; what should follow it runs thin on top.
    "exact": {"color": GREY, "linewidth": 3.2, "zorder": 2.2},
    "monolithic": {"color": BLACK, "linewidth": 1.1, "zorder": 2.7, "linestyle": (0, (4, 3))},
    "without compensation": {"color": VERMILION, "linewidth": 0.9, "zorder": 2.1},
    "with compensation": {"color": BLUE, "linewidth": 1.2, "zorder": 2.5},
    DISCRETE_MONOLITHIC: {"color": GREEN, "linewidth": 1.3, "zorder": 2.6},
    DISCRETE_EXACT: {"color": PURPLE, "linewidth": 1.3, "zorder": 2.6},
}
WIDE_MONOLITHIC = {"color": BLACK, "linewidth": 2.6, "zorder": 2.2}
"""The monolithic run where it is the one to follow, because no exact motion is shown."""
MARKERS: dict[str, dict[str, Any]] = {
    "monolithic": {"color": BLACK, "marker": "o", "markersize": 10, "fillstyle": "none", "markeredgewidth": 1.3},
    "without compensation": {"color": VERMILION, "marker": "x", "markersize": 7, "markeredgewidth": 1.8},
    "with compensation": {"color": BLUE, "marker": "+", "markersize": 8, "markeredgewidth": 1.8},
}
LABELS = {"monolithic": "monolithic", "exact": "exact"} | {
    f"{word} compensation": f"co-simulated {word} compensation" for word in ("without", "with")
}
"""How a solution is called in legends, where that differs from its name."""
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
