"""External inputs from CSV files: a line of names, a column of times, and columns of values."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

from cosimo.core.errors import ConfigurationError, UnknownNameError, no_such_file, require_regular
from cosimo.core.system import Source, System, Table
from cosimo.formats.findings import Place


class CsvColumns:
    """A CSV file with a line of names, read once for all inputs that use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        require_regular(path)
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file)
                self.names = [name.strip() for name in next(reader, [])]
                self._rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
        except OSError as error:
            raise ConfigurationError(f"'{path}' cannot be read: {error.strerror}.") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise ConfigurationError(f"'{path}' is not a CSV file in UTF-8: {error}.") from None
        if not self.names:
            raise ConfigurationError(
                f"'{path}' is empty; it needs a header line with column names, and rows of numbers."
            )

    def pair(self, time: str | None, column: str) -> tuple[list[float], list[float]]:
        """Times and values; times must not decrease, and of one time there are at most two rows, a jump."""
        times, values = self._column(self.names[0] if time is None else time), self._column(column)
        for (line, _), (before, now) in zip(self._rows[1:], itertools.pairwise(times), strict=True):
            if now < before:
                raise Place(str(self._path), line).error(
                    f"the time {now:g} is less than the one before ({before:g}); sort the rows."
                )
        for (line, _), first, third in zip(self._rows[2:], times, times[2:], strict=False):
            if first == third:
                raise Place(str(self._path), line).error(
                    f"this is the third row at time {third:g}; keep only the values before and after the jump."
                )
        return times, values

    def _column(self, name: str) -> list[float]:
        if name not in self.names:
            raise UnknownNameError(f"column of '{self._path}'", name, self.names)
        index = self.names.index(name)
        values = []
        for line, row in self._rows:
            text = row[index].strip() if index < len(row) else ""
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise Place(str(self._path), line).error(f"column '{name}' has '{text}'; a finite number is needed.")
            values.append(value)
        if not values:
            raise ConfigurationError(f"'{self._path}' has column names but no rows; add some rows.")
        return values


def inputs_from_csv(system: System, path: str | Path) -> dict[str, Source]:
    """The columns of a CSV file as sources of the open inputs they are named after; the first column is the time.

    A column is named `unit.input`, or after the input alone where only one open input has this name. Values are linear
    in between, and held for inputs that are not continuous. A column that fits no open input is refused.
    """
    path = Path(path)
    if not path.exists():
        raise no_such_file(path, (".csv",))
    columns = CsvColumns(path)
    known: dict[str, list[tuple[str, str]]] = {}
    for unit, row in system.inlets.items():
        for variable, inlet in zip(system.units[unit].inputs, row, strict=True):
            for name in (f"{unit}.{variable}", variable) if inlet.link is None else ():
                known.setdefault(name, []).append((unit, variable))
    found: dict[str, Source] = {}
    for column in columns.names[1:]:
        places = known.get(column, [])
        if len(places) > 1:
            several = " and ".join(map(".".join, places))
            raise ConfigurationError(f"column '{column}' of '{path}' fits {several}; write which one.")
        if not places:
            raise UnknownNameError(f"open input (column of '{path}')", column, known)
        unit, variable = places[0]
        held = variable in system.units[unit].discrete_inputs
        source = Table(*columns.pair(None, column), interpolation="hold" if held else "linear")
        if found.setdefault(f"{unit}.{variable}", source) is not source:
            raise ConfigurationError(f"'{path}' has two columns for {unit}.{variable}; remove one of them.")
    if not found:
        raise ConfigurationError(f"'{path}' has only a time column; add one named after an open input.")
    return found
