"""Results: named time series with exact time stamps t_k = t0 + k·h."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import OutputError, UnknownNameError

if TYPE_CHECKING:
    import pandas


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
    """Rows of a run: `time` (K,), `values` (K, n) with one column per name in `names`.

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

    def __getitem__(self, name: str) -> Array:
        if name == "time":
            return self.time
        if name not in self.names:
            raise UnknownNameError("signal", name, self.names)
        column: Array = self.values[:, self.names.index(name)]
        return column

    def __len__(self) -> int:
        return len(self.time)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __repr__(self) -> str:
        end = f" to t = {self.time[-1]:g}" if len(self) else ""
        state = "" if self.complete else ", incomplete"
        return f"Result({len(self)} rows{end}, {len(self.names)} signals{state})"

    def _repr_html_(self) -> str:
        from cosimo.core.display import result_card

        return result_card(self)

    def to_numpy(self) -> Array:
        """Time and all signals side by side, (K, 1 + n)."""
        return np.column_stack([self.time, self.values])

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame indexed by time (needs the extra `pandas`)."""
        import pandas

        return pandas.DataFrame(self.values, index=pandas.Index(self.time, name="time"), columns=list(self.names))

    def write_csv(self, path: str | Path) -> Path:
        """Write all rows with full precision (every number reads back to the same bits)."""
        path = Path(path)
        try:
            with path.open("w", encoding="utf-8") as file:
                file.write(",".join(["time", *map(_quote, self.names)]) + "\n")
                for row in self.to_numpy().tolist():
                    file.write(",".join(map(repr, row)) + "\n")
        except OSError as error:
            raise OutputError(f"cannot write results to '{path}': {error.strerror}.") from None
        return path

    def plot(self, names: Sequence[str] | None = None) -> Any:
        """A matplotlib figure of the signals over time (needs the extra `plot`)."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
        for name in names or self.names:
            axes.plot(self.time, self[name], label=name)
        axes.set_xlabel("time / s")
        axes.legend()
        axes.grid(alpha=0.3)
        return figure


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(c in name for c in ',"\n') else name
