"""Numbers as people say them."""

from __future__ import annotations

import math


def amount(value: float) -> str:
    """Two or three digits.

    >>> amount(2.134), amount(21.34), amount(2134.0)
    ('2.1', '21', '2,130')
    """
    if value >= 100:
        digits = 2 - math.floor(math.log10(value))
        return f"{round(value, digits):,.0f}"
    return f"{value:.2g}"


def percent(value: float) -> str:
    """A share as per cent, or what stands for it.

    >>> percent(0.00412), percent(0.35), percent(1e-9), percent(12.0)
    ('0.41 %', '35 %', '1e-07 %', '12 ×')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "unbounded"
    if value >= 10:
        return f"{amount(value)} ×"
    if value == 0:
        return "0 %"
    return f"{100 * value:.0e} %" if value < 1e-5 else f"{float(f'{100 * value:.2g}'):g} %"


def step_text(step: float) -> str:
    """A time in the unit in which it has few digits.

    >>> step_text(0.004), step_text(2.5e-5), step_text(9.11)
    ('4 ms', '25 µs', '9.11 s')
    """
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if step >= size:
            return f"{step / size:.3g} {name}"
    return f"{step / 1e-9:.3g} ns"


def cost_text(cost: float) -> str:
    """Three digits.

    >>> cost_text(1234.0), cost_text(0.00123)
    ('1,230', '0.00123')
    """
    if math.isnan(cost):
        return "–"
    return amount(cost) if cost >= 100 else f"{cost:.3g}"


def margin_text(robustness: float) -> str:
    """How much may change.

    >>> margin_text(0.35)
    'stays stable for ± 35 % in rates and gains of the units'
    """
    if math.isinf(robustness):
        return "stays stable for any change up to tenfold of rates and gains of the units"
    return f"stays stable for ± {percent(robustness)} in rates and gains of the units"
