"""Numbers as they stand in the tables of a page."""

from __future__ import annotations

import math


def pole(value: complex) -> str:
    """A pair of poles, or one that is real."""
    if not math.isfinite(value.real):
        return "–"
    real = minus(f"{value.real:.5f}")
    return f"{real} ± {abs(value.imag):.4f} j" if value.imag else real


def shift(share: float) -> str:
    """A change in per cent, with its sign."""
    return minus(f"{100 * share:+.3g} %")


def minus(text: str) -> str:
    """A minus sign instead of a hyphen."""
    return text.replace("e-", "e−").replace("-", "−")


def digits(value: float) -> str:
    """Four digits.

    >>> digits(1000210.9), digits(0.0123456), digits(2.5e12)
    ('1,000,000', '0.01235', '2.5e+12')
    """
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if 1e3 <= abs(rounded) < 1e9 else f"{rounded:.4g}"
