"""What monitors found: warnings with time, connection and remedy, and plain data for the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cosimo.core.result import Warned
from cosimo.core.system import Link
from cosimo.execution.divergence import NOISE, Grown
from cosimo.execution.monitoring import Findings, Watch
from cosimo.execution.power_bonds import Bond

DEFECT = 0.3
"""A connection is warned of when inputs miss outputs by more than this share of the outputs' motion (both rms): a held
sinusoid does when it has fewer than about 20 macro steps per period."""
RESIDUAL = 0.1
"""A power bond is warned of when the two units disagree on more than this share of the energy they exchange."""
ENOUGH = 16
"""Macro steps before anything is said of defects and residuals."""
NAMED = 5
"""Connections that are warned of by name."""
LISTED = 20
"""Connections that are listed in the result, worst first."""


@dataclass(frozen=True)
class MonitorReport:
    """The findings of a run whose macro step k ended at `time(k)`; h is the macro step."""

    watch: Watch
    findings: Findings
    time: Callable[[int], float]
    h: float

    def warnings(self) -> list[Warned]:
        """Growth first; once per kind and connection, many connections summed up."""
        found = [*self._growing(), *self._residuals()]
        large = [(link, relative) for link, relative in self._defects() if relative > DEFECT and self._smooth(link)]
        for link, relative in large[:NAMED]:
            message = (
                f"connection {link.connection}: the input misses the output by {relative:.0%} of its motion, here by "
                f"{self.findings.largest[link.number]:.3g}; use a smaller step, extrapolate (hold1), or iterate"
            )
            found.append(Warned(message, self.time(self.findings.when[link.number])))
        if more := large[NAMED:]:
            first = min(self.findings.when[link.number] for link, _ in more)
            found.append(
                Warned(
                    f"{len(more)} further connections miss more than {DEFECT:.0%}; use a smaller step", self.time(first)
                )
            )
        return found

    def info(self) -> dict[str, Any]:
        """Plain data: the worst connections, the bonds, the outputs that grow."""
        connections = [
            {
                **_ends(link),
                "largest_defect": _number(self.findings.largest[link.number]),
                "time": self.time(self.findings.when[link.number]),
                "relative": _number(relative),
            }
            for link, relative in self._defects()[:LISTED]
        ]
        bonds = [
            {
                "connections": [_ends(bond.forward), _ends(bond.back)],
                "kind": bond.why,
                "residual_energy": _number(residual * self.h),
                "exchanged_energy": _number(exchanged * self.h),
                "ratio": _number(_ratio(residual, exchanged)),
            }
            for bond, residual, exchanged in self._bonds()
        ]
        growing = [
            {"output": self.watch.system.outputs[one.output], "time": self.time(one.step), "factor": one.factor}
            for one in self.findings.grown
        ]
        return {"connections": connections, "bonds": bonds, "growing": growing}

    def _growing(self) -> Iterator[Warned]:
        if not self.findings.grown:
            return
        first, *others = self.findings.grown
        names = self.watch.system.outputs
        also = (
            f" (so do {', '.join(names[one.output] for one in others[:3])}{' …' * (len(others) > 3)})" if others else ""
        )
        doubling = math.log(2.0) / math.log(first.factor) * self.h
        message = (
            f"{names[first.output]} of unit '{self._owner(first)}' grows by the factor {first.factor:.7g} per macro "
            f"step, doubling every {doubling:.3g} s{also}, as an unstable coupling does{self._leaving(first)}; ask "
            f"'cosimo analyse', and use a smaller step, Gauss–Seidel, or an iterative master"
        )
        yield Warned(message, self.time(first.step), grows=True)

    def _owner(self, grown: Grown) -> str:
        return self.watch.system.names[self.watch.owners[grown.output]]

    def _leaving(self, grown: Grown) -> str:
        """The connection through which a growing output is felt."""
        links = [
            link
            for link, source in zip(self.watch.system.links, self.watch.sources, strict=True)
            if source == grown.output
        ]
        return f" (connection {links[0].connection})" if links else ""

    def _residuals(self) -> Iterator[Warned]:
        for bond, residual, exchanged in self._bonds():
            ratio = _ratio(residual, exchanged)
            if ratio > RESIDUAL and self.findings.steps >= ENOUGH:
                message = (
                    f"power bond {bond} ({bond.why}): up to here the units '{bond.forward.source.unit}' and "
                    f"'{bond.forward.target.unit}' disagree on {ratio:.0%} of the energy they exchange; use a smaller "
                    f"step, Gauss–Seidel, or compensation"
                )
                yield Warned(message, self.time(self.findings.steps))

    def _bonds(self) -> Iterator[tuple[Bond, float, float]]:
        yield from zip(self.watch.bonds, self.findings.residual, self.findings.exchanged, strict=True)

    def _defects(self) -> list[tuple[Link, float]]:
        """Links with √(Σ d² / Σ (s − mean s)²), s = gain y + offset; worst first. Signals that rest are left out."""
        found, n = self.findings, self.findings.steps
        if n < ENOUGH:
            return []
        rows = []
        for link, source in zip(self.watch.system.links, self.watch.sources, strict=True):
            high, low = found.high[source], found.low[source]
            variance = (found.squares[source] - found.sums[source] * found.sums[source] / n) * link.connection.gain**2
            if high - low > NOISE * max(abs(high), abs(low)) and 0.0 < variance < math.inf:
                rows.append((link, math.sqrt(found.defects[link.number] / variance)))
        return sorted((row for row in rows if not math.isnan(row[1])), key=lambda row: -row[1])

    def _smooth(self, link: Link) -> bool:
        """Whole numbers and switches jump by their nature."""
        unit = self.watch.system.units[link.target.unit]
        return unit.inputs[link.target.index] not in unit.discrete_inputs


def _ends(link: Link) -> dict[str, str]:
    return {"source": link.connection.source, "target": link.connection.target}


def _ratio(residual: float, exchanged: float) -> float:
    return abs(residual) / exchanged if 0.0 < exchanged < math.inf else 0.0


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
