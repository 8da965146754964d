"""MATLAB level-4 files in the layout that Modelica tools write and read ("binTrans").

A file is a row of matrices, each a header of five 32-bit numbers (type, rows, columns, 0, length of the name), the
name, and the elements column by column:

    Aclass       "Atrajectory", "1.1", "", "binTrans"
    name         one column per variable, time first
    description  one column per variable
    dataInfo     one column per variable: data matrix, ± row in it, interpolation, extrapolation
    data_1       constants (time row first), here none
    data_2       one *column* per time: time, then the variables; so rows of a run are appended as they come
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import OutputError

_DOUBLE, _INT32, _TEXT = 0, 20, 51
_LINEAR, _UNDEFINED = 0, -1  # between the rows interpolate linearly; there is nothing outside of them
_MOST_ROWS = 2**31 - 1
_MOST_TYPE = 4052
_WIDTHS = {0: 8, 1: 4, 2: 4, 3: 2, 4: 2, 5: 1}  # bytes per element, by the second digit of the type from the right


def write_mat(path: Path, names: Sequence[str], blocks: Iterable[Array]) -> None:
    """Write rows (K, 1 + n) block by block; the number of rows and the time span are filled in at the end."""
    count, start, stop = 0, 0.0, 0.0
    info = [(0, 1, _LINEAR, _UNDEFINED), *((2, row, _LINEAR, _UNDEFINED) for row in range(2, len(names) + 1))]
    with path.open("wb") as file:
        _text(file, "Aclass", _lines(["Atrajectory", "1.1", "", "binTrans"]))
        _text(file, "name", _lines(names).T)
        _text(file, "description", _lines(["Time in [s]", *("" for _ in names[1:])]).T)
        _header(file, "dataInfo", _INT32, (4, len(info)))
        file.write(np.array(info, dtype="<i4").tobytes())
        _header(file, "data_1", _DOUBLE, (1, 2))
        span_at = file.tell()
        file.write(struct.pack("<2d", start, stop))
        header_at = file.tell()
        _header(file, "data_2", _DOUBLE, (len(names), 0))
        for block in blocks:
            start, stop = (start if count else float(block[0, 0])), float(block[-1, 0])
            count += len(block)
            if count > _MOST_ROWS:
                raise OutputError(f"'{path}' cannot hold more than {_MOST_ROWS} rows; use .parquet or decimate.")
            file.write(np.ascontiguousarray(block, dtype="<f8").data)
        file.seek(span_at)
        file.write(struct.pack("<2d", start, stop))
        file.seek(header_at)
        _header(file, "data_2", _DOUBLE, (len(names), count))


def read_mat(path: Path) -> tuple[list[str], Array]:
    """Names, time first, and rows (K, 1 + n); constants fill their columns, aliases get their sign."""
    from scipy.io import loadmat

    _require_level4(path)
    found: dict[str, Any] = loadmat(path, chars_as_strings=False)
    if missing := {"Aclass", "name", "dataInfo", "data_2"} - set(found):
        raise ValueError(f"it lacks {', '.join(sorted(missing))}, which Modelica results have")
    layout = _strings(found["Aclass"])[3:]
    if layout not in (["binTrans"], ["binNormal"]):
        raise ValueError(f"its layout is {layout}, not 'binTrans' or 'binNormal'")
    for key in ("name", "dataInfo", "data_1", "data_2") if layout == ["binTrans"] else ():
        found[key] = found[key].T if key in found else None
    names = _strings(found["name"])
    rows = np.empty((len(found["data_2"]), len(names)), order="F")
    for number, (matrix, place, *_) in enumerate(found["dataInfo"].astype(int)):
        # Matrix 0 means both: time. Of the constants, the first value is as good as any.
        values = found["data_1"][0] if matrix == 1 else found["data_2"].T
        rows[:, number] = np.sign(place) * values[abs(place) - 1]
    return names, rows


def _require_level4(path: Path) -> None:
    """Every matrix must lie inside the file: a header can claim any size, and room for it would be made."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while head := file.read(20):
            if len(head) < 20:
                raise ValueError("it is cut off")
            order = "<" if 0 <= struct.unpack("<i", head[:4])[0] <= _MOST_TYPE else ">"
            kind, rows, columns, imaginary, name = struct.unpack(f"{order}5i", head)
            width = _WIDTHS.get(kind // 10 % 10)
            if not 0 <= kind <= _MOST_TYPE or width is None or kind % 10 > 1 or min(rows, columns, name) < 0:
                raise ValueError("it is not a level-4 file of full matrices")
            file.seek(name + rows * columns * width * (2 if imaginary else 1), 1)
            if file.tell() > size:
                raise ValueError("it is cut off")


def _header(file: IO[bytes], name: str, kind: int, shape: tuple[int, int]) -> None:
    file.write(struct.pack("<5i", kind, *shape, 0, len(name) + 1) + name.encode() + b"\0")


def _text(file: IO[bytes], name: str, characters: Any) -> None:
    _header(file, name, _TEXT, characters.shape)
    file.write(characters.tobytes(order="F"))


def _lines(lines: Sequence[str]) -> Any:
    """One row of bytes per line, padded with blanks."""
    encoded = [line.encode() for line in lines]
    width = max(1, *map(len, encoded))
    return np.frombuffer(b"".join(line.ljust(width) for line in encoded), dtype=np.uint8).reshape(-1, width)


def _strings(characters: Any) -> list[str]:
    """The lines of a character matrix; level-4 files know bytes only, which Modelica tools take for UTF-8."""
    return ["".join(line).rstrip(" \0").encode("latin-1").decode() for line in characters]
