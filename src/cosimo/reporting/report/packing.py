"""The numbers of a page: typed arrays in one compressed piece of text.

Arrays lie one after the other, each at a multiple of eight bytes; the whole is compressed (gzip) and written as base64.
The page inflates it once and looks at it in place. A signal is kept as

    y = shift + scale · v,   |v| ≤ 1 in single precision        x: row numbers (equal steps), or times in double

so that a small ripple on a large value, or a run that grew to 1e300, is drawn as it is.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.decimation import decimate

POINTS = 160_000
"""Points of all signals of a page together, about."""
MOST_BUCKETS, FEWEST_BUCKETS = 4_000, 150


def buckets_for(series: int) -> int:
    """Into how many buckets each of so many signals may be divided."""
    return int(np.clip(POINTS // (2 * max(1, series)), FEWEST_BUCKETS, MOST_BUCKETS))


class Pack:
    """Collects arrays and says where they lie."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Keep an array of 64-bit or 32-bit numbers: its type, place and length."""
        kind = {"f8": "Float64Array", "f4": "Float32Array", "u4": "Uint32Array"}[values.dtype.str[1:]]
        data = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes()
        found = {"type": kind, "start": self._size, "length": len(values)}
        data += bytes(-len(data) % 8)
        self._parts.append(data)
        self._size += len(data)
        return found

    def signal(self, time: Array, values: Array, buckets: int) -> dict[str, Any]:
        """A signal over time, decimated."""
        places = decimate(values, buckets)
        kept = values[places]
        finite = kept[np.isfinite(kept)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        # Halves are added: the sum of two numbers near the largest one is none.
        shift, scale = low / 2 + high / 2, (high / 2 - low / 2) or 1.0
        with np.errstate(invalid="ignore", over="ignore"):
            small = ((kept - shift) / scale).astype(np.float32)
        small[~np.isfinite(kept)] = np.nan
        found: dict[str, Any] = {"shift": shift, "scale": scale, "y": self.add(small), "all": len(places) == len(time)}
        even = _even_step(time)
        if even is None:
            return found | {"x": self.add(np.asarray(time[places], dtype=np.float64))}
        return found | {"x": self.add(places.astype(np.uint32)), "t0": float(time[0]), "dt": even}

    def text(self) -> str:
        """All of it as base64."""
        return compressed(b"".join(self._parts))


def compressed(data: bytes) -> str:
    """Equal data give equal text."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def _even_step(time: Array) -> float | None:
    """The step of equally spaced times, exact enough that no picture shows a difference."""
    if len(time) < 2:
        return None
    step = float(time[-1] - time[0]) / (len(time) - 1)
    off = np.abs(time - (time[0] + step * np.arange(len(time)))).max()
    return step if step > 0 and off <= 1e-6 * step else None
