"""Results: named time series with exact time stamps t_k = t0 + k·h, and how they show themselves in notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.document import CARD_ROWS, Column, Document, DocumentTable, Figure, Mark, Section, as_card
from cosimo.core.errors import ConfigurationError, OutputError, UnknownNameError
from cosimo.core.formatting import counted

if TYPE_CHECKING:
    import pandas
    import xarray

TARGET = 0.01  # the error that is small enough unless told otherwise: 1 % of the largest value of an output


@dataclass(frozen=True)
class Warned:
    """Something the user should know of a run that went on: first time, how often, and what; whether it `grows`."""

    message: str
    time: float
    count: int = 1
    grows: bool = False

    def __str__(self) -> str:
        often = f" ({self.count} times)" if self.count > 1 else ""
        return f"t = {self.time:g}: {self.message}{often}"


@dataclass(frozen=True)
class Result:
    """Rows of a run: `time` (K,), `values` (K, n) with one column per name in `names`, both read-only.

    >>> result = Result(("a.x",), np.array([0.0, 0.1]), np.array([[1.0], [0.5]]))
    >>> result["a.x"]
    array([1. , 0.5])
    """

    names: tuple[str, ...]
    time: Array
    values: Array
    warnings: tuple[Warned, ...] = ()
    complete: bool = True
    info: dict[str, Any] = field(default_factory=dict)
    texts: Mapping[str, Any] = field(default_factory=dict)
    """Outputs that are no numbers, texts (str) and binary values (bytes), one for each row."""

    def __post_init__(self) -> None:
        columns = {name: np.empty(len(self.time), dtype=object) for name in self.texts}
        for name, column in columns.items():
            column[:] = self.texts[name]
            column.setflags(write=False)
        object.__setattr__(self, "texts", columns)
        for name in ("time", "values"):  # views: rows may be many
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    def __getitem__(self, name: str) -> Array:
        if name == "time":
            return self.time
        if name in self.texts:
            texts: Array = self.texts[name]
            return texts
        if name not in self.names:
            raise UnknownNameError("signal", name, (*self.names, *self.texts))
        column: Array = self.values[:, self.names.index(name)]
        return column

    def __len__(self) -> int:
        return len(self.time)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __repr__(self) -> str:
        end = f" to t = {self.time[-1]:g}" if len(self) else ""
        state = "" if self.complete else ", incomplete"
        return f"Result({counted(len(self), 'row')}{end}, {counted(len(self.names), 'signal')}{state})"

    def _repr_html_(self) -> str:
        """A small table: whether the run is complete, its warnings, and each signal with its range and its course."""

        def number(pick: Callable[[Array], float]) -> Callable[[str], str]:
            return lambda name: f"{pick(self[name]) if np.isfinite(self[name]).any() else np.nan:.5g}"

        columns = (
            Column("signal", "signal", right=False),
            Column("signal", "least", number(lambda values: values[np.isfinite(values)].min())),
            Column("signal", "largest", number(lambda values: values[np.isfinite(values)].max())),
            Column("signal", "last", number(lambda values: values[-1])),
            Column("signal", "course", lambda name: sparkline(self[name]), html=True),
        )
        facts = [Figure("", name, self.info[name]) for name in ("system", "master") if name in self.info]
        facts += [Figure("", "warning", text=str(entry)) for entry in self.warnings]
        table = DocumentTable("", "", columns, [{"signal": name} for name in self.names], most=CARD_ROWS)
        mark: Mark = "open" if self.complete else "bad"
        word = "complete" if self.complete else "incomplete"
        document = Document(repr(self), mark, word, sections=(Section("", "", tuple(facts), (table,)),))
        return as_card(document, signed=not self.complete)

    @property
    def physical_units(self) -> dict[str, str]:
        """The physical units of the signals for which FMUs declare them, such as {"motor.speed": "rad/s"}."""
        return {name: unit for name, unit in self.info.get("physical_units", {}).items() if name in self.names}

    @property
    def held_inputs(self) -> tuple[str, ...]:
        """Inputs that are held during a macro step: in the row of its end stands what acted all the step long."""
        return tuple(name for name in self.info.get("held_inputs", ()) if name in self.names)

    def at_communication_points(self) -> Result:
        """One row for each macro step, as without events; at an event the row after it."""
        if not self.info.get("events") or not len(self):
            return self
        start, step = self.time[0], self.info["step"]
        k = np.rint((self.time - start) / step)
        last = np.append(self.time[1:] != self.time[:-1], True)
        kept = np.flatnonzero((self.time == start + k * step) & last)
        texts = {name: column[kept] for name, column in self.texts.items()}
        return replace(self, time=self.time[kept], values=self.values[kept], texts=texts)

    def to_numpy(self) -> Array:
        """Time and all signals as columns, (K, 1 + n)."""
        return np.column_stack([self.time, self.values])

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame indexed by time, with `attrs["units"]` (needs the extra `pandas`)."""
        import pandas

        index = pandas.Index(self.time, name="time")
        frame = pandas.DataFrame(self.values.copy(), index=index, columns=list(self.names)).assign(**self.texts)
        frame.attrs["units"] = self.physical_units
        return frame

    def to_xarray(self) -> xarray.Dataset:
        """A dataset over time, each signal with `attrs["units"]` where it is known (needs xarray)."""
        import xarray

        units = {name: {"units": unit} for name, unit in self.physical_units.items()}
        signals = {name: ("time", self[name].copy(), units.get(name, {})) for name in (*self.names, *self.texts)}
        about = {name: self.info[name] for name in ("system", "master") if name in self.info}
        return xarray.Dataset(signals, {"time": ("time", self.time.copy(), {"units": "s"})}, about)

    def save(self, path: str | Path) -> Path:
        """Write rows, warnings and all that is known of the run; the suffix gives the format, as in `cosimo run -o`.

        `cosimo plot` and `cosimo report` read it.
        """
        # Not an import: what is written to files is known further out, and loaded only here.
        written: Path = import_module("cosimo.formats.results").save_result(self, Path(path))
        return written

    def write_csv(self, path: str | Path) -> Path:
        """Write all rows with full precision (numbers are read back bit-identically)."""
        path = Path(path)
        try:
            with path.open("w", encoding="utf-8") as file:
                file.write(",".join(["time", *map(quote_cell, (*self.names, *self.texts))]) + "\n")
                for row, *texts in zip(self.to_numpy().tolist(), *self.texts.values(), strict=True):
                    words = (quote_cell(text if isinstance(text, str) else text.hex()) for text in texts)
                    file.write(",".join([*map(repr, row), *words]) + "\n")
        except OSError as error:
            raise OutputError(f"cannot write results to '{path}': {error.strerror}.") from None
        return path

    def plot(self, names: Sequence[str] | None = None) -> Any:
        """A matplotlib figure of the signals over time, one panel per physical unit (needs the extra `plot`).

        Held inputs are drawn as stairs, each value over the macro step in which it acted.
        """
        units, held = self.physical_units, self.held_inputs
        curves = ((name, *(stairs if name in held else _line)(self.time, self[name])) for name in names or self.names)
        return draw_by_unit((name, units.get(name, ""), x, y) for name, x, y in curves)


def _line(x: Array, y: Array) -> tuple[Array, Array]:
    return x, y


def stairs(x: Array, y: Array) -> tuple[Array, Array]:
    """The corners of a signal that has the value y_k from x_(k−1) to x_k.

    >>> [corner.tolist() for corner in stairs(np.array([0.0, 1.0, 2.0]), np.array([5.0, 6.0, 7.0]))]
    [[0.0, 0.0, 1.0, 1.0, 2.0], [5.0, 6.0, 6.0, 7.0, 7.0]]
    """
    return np.repeat(x, 2)[:-1], np.repeat(y, 2)[1:]


def draw_by_unit(curves: Iterable[tuple[str, str, Array, Array]]) -> Any:
    """A matplotlib figure of curves (name, physical unit, x, y) over time: one panel per physical unit."""
    from matplotlib.figure import Figure

    drawn = list(curves)
    units = list(dict.fromkeys(unit for _, unit, _, _ in drawn))
    figure = Figure(figsize=(7.6, 1.7 + 2.5 * len(units)), layout="constrained")
    panels = dict(zip(units, figure.subplots(len(units), sharex=True, squeeze=False).flat, strict=True))
    for name, unit, x, y in drawn:
        panels[unit].plot(x, y, label=name, linewidth=1.1)
    for unit, axes in panels.items():
        axes.set(ylabel=unit)
        axes.legend(fontsize=8)
        axes.grid(True)
    figure.axes[-1].set_xlabel("time / s")
    return figure


def quote_cell(name: str) -> str:
    """A name as a cell of a CSV file."""
    return '"' + name.replace('"', '""') + '"' if any(c in name for c in ',"\r\n') else name


# ---- fewer points of a long signal that draw the same picture: smallest and largest of every bucket stay -------------


Places = npt.NDArray[np.intp]


def decimate(values: Array, buckets: int) -> Places:
    """The places (increasing) of the points of `values` (K,) that are kept.

    Rows are divided into `buckets` runs of nearly equal length. Of each run its smallest and its largest value are
    kept, and, where it has values that are not finite, the first of them, so that a gap stays a gap. The first and the
    last point are always kept. Signals of at most 2 · buckets points are kept whole.

    >>> decimate(np.array([0.0, 1.0, 5.0, 2.0, -3.0, 0.0, 1.0, 0.5]), 2).tolist()
    [0, 2, 4, 6, 7]
    """
    if buckets < 1:
        raise ConfigurationError(f"a signal is divided into {buckets} buckets; give a whole number of 1 or more.")
    count = len(values)
    if count <= 2 * buckets:
        return np.arange(count, dtype=np.intp)
    finite = np.isfinite(values)
    edges = np.linspace(0, count, buckets + 1).astype(np.intp)
    # All buckets as rows of one table; the shorter ones repeat their last value.
    width = int(np.diff(edges).max())
    table = np.minimum(edges[:-1, None] + np.arange(width), edges[1:, None] - 1)
    lowest, highest = np.where(finite, values, np.inf)[table], np.where(finite, values, -np.inf)[table]
    rows = np.arange(buckets)
    kept = [table[rows, lowest.argmin(axis=1)], table[rows, highest.argmax(axis=1)]]
    if not finite.all():
        broken = ~finite[table]
        some = broken.any(axis=1)
        kept.append(table[some, broken[some].argmax(axis=1)])
    found: Places = np.unique(np.concatenate([*kept, np.array([0, count - 1])]))
    return found


def sparkline(values: Array, *, width: int = 150, height: int = 26) -> str:
    """A signal as a small drawing, with its extremes where they are; gaps where it is not finite."""
    places = decimate(values, width)
    shown, low, high = values[places], np.nan, np.nan
    finite = np.isfinite(shown)
    if not finite.any():
        return "–"
    low, high = float(shown[finite].min()), float(shown[finite].max())
    # Halves first: the range of a signal that blew up may not be a number itself.
    span = high / 2 - low / 2 or 1.0
    x = places / max(1, len(values) - 1) * width
    y = height - 1 - (shown / 2 - low / 2) / span * (height - 2)
    path, pen = [], "M"
    for ok, across, down in zip(finite.tolist(), x.tolist(), y.tolist(), strict=True):
        if ok:
            path.append(f"{pen}{across:.1f},{down:.1f}")
        pen = "L" if ok else "M"
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="over time">'
        f'<path d="{"".join(path)}" fill="none" stroke="currentColor" stroke-width="1"/></svg>'
    )
