"""Results as lines of text."""

from __future__ import annotations

from cosimo.problems import Item


def item_lines(item: Item) -> list[str]:
    """A claim of a paper in one or two lines: published, computed, verdict; then the reason."""
    claim = item.claim
    published, computed = (f"{v:.10g}" if isinstance(v, float) else str(v) for v in (claim.published, claim.computed))
    values = computed if claim.published is None else f"published {published}; computed {computed}"
    lines = [f"{item.paper:12} {claim.item}", f"{'':12}   {claim.verdict}: {values}"]
    if claim.reason:
        lines.append(f"{'':12}   {claim.reason}")
    return lines
