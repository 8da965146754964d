"""What a paper claims and what we compute, side by side."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One number or statement of a paper: `published` beside `computed`.

    Numbers hold when they agree within `tolerance` (of the size of the printed rounding); of statements `holds` says
    it. What the paper draws or leaves to the reader has no published value (None): there is nothing to agree with, and
    the verdict is "computed". `reason` explains a reading, or why a printed number is wrong.
    """

    item: str
    published: float | str | None
    computed: float | str
    tolerance: float | None = None
    holds: bool | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """ "holds", "does not hold", or "computed" where the paper says nothing to compare with."""
        if self.published is None:
            return "computed"
        if self.holds is not None:
            return "holds" if self.holds else "does not hold"
        if not isinstance(self.published, float | int) or not isinstance(self.computed, float | int):
            return "holds" if self.published == self.computed else "does not hold"
        near = abs(self.computed - self.published) <= (self.tolerance or 0.0)
        return "holds" if near else "does not hold"


def printed_claim(item: str, published: str, computed: float, reason: str = "") -> Claim:
    """A number in the digits in which it is printed, which say its rounding.

    >>> printed_claim("ξ", "0.0033", 0.00334).verdict, printed_claim("ξ", "0.0033", 0.0034).verdict
    ('holds', 'does not hold')
    """
    half = 0.5 * 10.0 ** -len(published.partition(".")[2])
    return Claim(item, float(published), computed, tolerance=half * (1 + 1e-9), reason=reason)


def pole_claim(item: str, published: complex, computed: complex, rounding: complex, reason: str = "") -> Claim:
    """A pole as printed: both parts must agree within `rounding` (a real number counts for both parts)."""
    allowed = complex(rounding)
    limits = (allowed.real, allowed.imag or allowed.real)
    parts = ((published.real, computed.real), (published.imag, computed.imag))
    holds = all(abs(a - b) <= limit * (1 + 1e-9) for (a, b), limit in zip(parts, limits, strict=True))
    return Claim(item, _shown(published, ".10g"), _shown(computed, ".7f"), holds=holds, reason=reason)


def _shown(pole: complex, form: str) -> str:
    # A real part that is only rounding is shown as none.
    real = pole.real if abs(pole.real) > 1e-9 * abs(pole) else 0.0
    return f"{real:{form}} ± {abs(pole.imag):{form}}j"
