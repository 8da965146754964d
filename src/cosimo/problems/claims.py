"""What a paper claims and what we compute, side by side."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One number or statement of a paper: `published` beside `computed`.

    Numbers hold when they agree within `tolerance` (of the size of the printed rounding); of statements `holds` says
    it. `reason` explains a reading, or why a printed number is wrong.
    """

    item: str
    published: float | str
    computed: float | str
    tolerance: float | None = None
    holds: bool | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """ "holds" or "does not hold"."""
        if self.holds is not None:
            return "holds" if self.holds else "does not hold"
        if not isinstance(self.published, float | int) or not isinstance(self.computed, float | int):
            return "holds" if self.published == self.computed else "does not hold"
        near = abs(self.computed - self.published) <= (self.tolerance or 0.0)
        return "holds" if near else "does not hold"
