"""Numbers as text, the same way everywhere: errors, times, costs, poles; and as JSON.

Every verb, table and page formats its figures here, so that one number has one spelling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DIVERGED = 1e3
"""Relative errors from here on are called divergence: a thousand times the signal says nothing more than that."""
MOST_ROBUST = 9.0  # changes are searched up to tenfold; what is still stable then counts alike


def percent(value: float | None) -> str:
    """Format a relative error: two digits, three from 100 % on, a multiple from ten times on.

    >>> percent(0.00412), percent(0.35), percent(2.684), percent(12.0), percent(1e-9), percent(math.inf)
    ('0.41 %', '35 %', '268 %', '12 ×', '1e-07 %', 'diverges')
    """
    if value is None or math.isnan(value):
        return "–"
    if abs(value) >= DIVERGED:
        return "diverges"
    if abs(value) >= 10:
        return f"{amount(value)} ×"
    if value == 0:
        return "0 %"
    if abs(value) < 1e-5:
        return f"{100 * value:.0e} %"
    return f"{float(f'{100 * value:.{3 if abs(value) >= 1 else 2}g}'):g} %"


def amount(value: float) -> str:
    """Two or three digits.

    >>> amount(2.134), amount(21.34), amount(2134.0)
    ('2.1', '21', '2,130')
    """
    if abs(value) >= 100 and math.isfinite(value):
        digits = 2 - math.floor(math.log10(abs(value)))
        return f"{round(value, digits):,.0f}"
    return f"{value:.2g}"


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "signal"), counted(12_000, "signal")
    ('1 signal', '12000 signals')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def step_text(step: float) -> str:
    """A time in the unit in which it has few digits.

    >>> step_text(0.004), step_text(2.5e-5), step_text(9.11), step_text(120.0)
    ('4 ms', '25 µs', '9.11 s', '120 s')
    """
    if step >= 1000:
        return f"{step:g} s"
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if step >= size * (1 - 1e-12):
            return f"{step / size:.4g} {name}"
    return f"{step / 1e-9:.4g} ns"


def cost_text(cost: float) -> str:
    """Three digits.

    >>> cost_text(1234.0), cost_text(0.00123)
    ('1,230', '0.00123')
    """
    if math.isnan(cost):
        return "–"
    return amount(cost) if cost >= 100 else f"{cost:.3g}"


def robustness_text(robustness: float) -> str:
    """The relative change of the units' rates and gains up to which a master stays stable.

    >>> robustness_text(0.35), robustness_text(math.inf)
    ('± 35 %', '> ± 900 %')
    """
    if math.isnan(robustness):
        return "–"
    return f"> ± {percent(MOST_ROBUST)}" if math.isinf(robustness) else f"± {percent(robustness)}"


def pole(value: complex) -> str:
    """A pair of poles, or a real one."""
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


def small(value: float | None) -> str:
    """A small relative number in powers of ten."""
    return "–" if value is None or math.isnan(value) else f"{value:.1e}"


def plain(value: Any) -> Any:
    """Plain data for JSON."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    if isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    number = value.item() if hasattr(value, "item") else float(value)
    if isinstance(number, complex):
        return plain(number)
    return number if isinstance(number, bool | int) or math.isfinite(number) else None
