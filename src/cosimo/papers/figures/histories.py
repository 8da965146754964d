"""Time histories with magnified views, and mechanical energies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.papers.figures.style import LABELS, LINES, PAPER, WIDE_MONOLITHIC, legend, letter, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXPLODED = 8.0
"""An uncompensated signal this many times larger than the one to follow would make it unreadable."""
SPREAD = 10.0
"""An uncompensated energy this many times larger than the others calls for a logarithmic scale."""
FOLLOWED = ("exact", "monolithic", "with compensation")


@dataclass(frozen=True)
class Signal:
    """One signal by kind of solution, with its unit of measure."""

    name: str
    unit: str
    values: Mapping[str, Array]

    def without(self, name: str) -> Signal:
        """The same with one solution left out."""
        return replace(self, values={kind: values for kind, values in self.values.items() if kind != name})


def draw_signal(axes: Axes, time: Array, signal: Signal, window: tuple[float, float]) -> None:
    """All solutions in a window of time; where the uncompensated one explodes the view is cut, and that is said."""
    inside = (time >= window[0] - 1e-12) & (time <= window[1] + 1e-12)
    draw_lines(axes, time[inside], {name: values[inside] for name, values in signal.values.items()})
    followed = max(float(np.abs(signal.values[name][inside]).max()) for name in FOLLOWED if name in signal.values)
    largest = max(float(np.abs(values[inside]).max()) for values in signal.values.values())
    top = 1.08 * largest if largest <= EXPLODED * followed else 2.0 * followed
    axes.set(xlabel="time / s", ylabel=f"{signal.name} / {signal.unit}", xlim=window, ylim=(-top, top))
    if largest > top:
        note = f"view cut: without compensation up to ±{largest:,.{0 if largest >= 100 else 1}f} {signal.unit}"
        place: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "top", "fontsize": 8, "zorder": 5}
        axes.text(0.5, 0.985, note, bbox=PAPER | {"alpha": 0.9}, **place)


def draw_lines(axes: Axes, time: Array, values: Mapping[str, Array]) -> None:
    """Every solution in its line."""
    wide = {} if "exact" in values else {"monolithic": WIDE_MONOLITHIC}
    for name, column in values.items():
        axes.plot(time, column, label=LABELS[name], **{**LINES, **wide}[name])


def draw_histories(time: Array, signals: Sequence[Signal], magnified: tuple[float, float]) -> Figure:
    """Two rows: every signal over the whole run, and below in the window `magnified`.

    The monolithic run is drawn only there: over the whole run it could not be told from the others.
    """
    figure, axes = panels(2, len(signals), size=(4.9 * len(signals), 5.6))
    whole = (float(time[0]), magnified[1])
    for row, window in enumerate((whole, magnified)):
        for column, signal in enumerate(signals):
            number = row * len(signals) + column
            draw_signal(axes[number], time, signal if row else signal.without("monolithic"), window)
            axes[number].set_title(letter(number, signal.name + (", magnified view" if row else "")))
    legend(figure, *axes)
    return figure


def end_of(time: Array) -> float:
    """The last time, rounded: with a macro step of 3 ms a run of 10 s ends at 9.999 s."""
    return round(float(time[-1]), 2)


def draw_energy(axes: Axes, time: Array, energies: Mapping[str, Array]) -> None:
    """The mechanical energy of every solution, in logarithmic scale where one of them explodes."""
    draw_lines(axes, time, energies)
    largest = max(float(values.max()) for values in energies.values())
    followed = max(float(energies[name].max()) for name in FOLLOWED if name in energies)
    axes.set(xlabel="time / s", xlim=(time[0], end_of(time)))
    if largest > SPREAD * followed:
        axes.set(yscale="log", ylabel="mechanical energy / J, logarithmic")
    else:
        axes.set(ylim=(0.0, 1.06 * largest), ylabel="mechanical energy / J")
