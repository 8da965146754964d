"""What figures share: plain data for the drawing library."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cosimo.core.arrays import Array

Figure = dict[str, Any]
SHADE = "rgba(214, 95, 14, 0.09)"
"""Where things are unstable."""


def listed(values: Array) -> list[float | None]:
    """Plain numbers."""
    return [finite(value) for value in np.asarray(values, dtype=float).tolist()]


def finite(value: float) -> float | None:
    """A number, or a gap."""
    return float(value) if math.isfinite(value) else None


def plain(text: str) -> str:
    """Text that the drawing library takes as it is: it would read tags and placeholders."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("%{", "% {")


def shade(**place: Any) -> dict[str, Any]:
    """The region where things are unstable."""
    return {"type": "rect", "fillcolor": SHADE, "line": {"width": 0}, "layer": "below", **place}


def note(text: str, **place: Any) -> dict[str, Any]:
    """A word in a figure."""
    return {"text": text, "showarrow": False, "font": {"size": 11}, "yanchor": "top", **place}
