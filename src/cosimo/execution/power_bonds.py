"""Power bonds: two opposite connections between two units whose product is a power.

    unit A                       unit B
      y_a  —— gain g_p ——>  u_b                 force, torque, voltage, pressure, or the flow that goes with it
      u_a  <—— gain g_q ——  y_b                 velocity, angular speed, current, volume flow, or the effort

Unit B computes that it receives the power u_b y_b, unit A that it sends (g_p / g_q) y_a u_a. Inputs are extrapolated,
so the two differ: the residual of energy conservation of Sadjina, Kyllingstad, Skjong and Pedersen (2017, "Energy
conservation and power bonds in co-simulations").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import plain
from cosimo.core.system import Link, System
from cosimo.core.unit import Unit, UnitOfMeasure
from cosimo.units.linear import Mechanical

Exponents = tuple[int, int, int, int]  # of kg, m, s, A; angles have none

_POWERS: dict[frozenset[Exponents | None], str] = {
    frozenset({(1, 1, -2, 0), (0, 1, -1, 0)}): "force and velocity",
    frozenset({(1, 2, -2, 0), (0, 0, -1, 0)}): "torque and angular speed",
    frozenset({(1, 2, -3, -1), (0, 0, 0, 1)}): "voltage and current",
    frozenset({(1, -1, -2, 0), (0, 3, -1, 0)}): "pressure and volume flow",
}
# Names of units of measure that descriptions use without saying what they are.
_NAMES: dict[str, Exponents] = {
    "N": (1, 1, -2, 0),
    "m/s": (0, 1, -1, 0),
    **dict.fromkeys(("N.m", "N*m", "Nm"), (1, 2, -2, 0)),
    "rad/s": (0, 0, -1, 0),
    "V": (1, 2, -3, -1),
    "A": (0, 0, 0, 1),
    "Pa": (1, -1, -2, 0),
    **dict.fromkeys(("m3/s", "m^3/s"), (0, 3, -1, 0)),
}


@dataclass(frozen=True)
class Bond:
    """`forward` ends at the input u_b, `back` starts at the output y_b of the same unit; `why` it carries power."""

    forward: Link
    back: Link
    why: str

    @property
    def ratio(self) -> float:
        """g_p / g_q, which brings both powers to the same measure and sign."""
        return self.forward.connection.gain / self.back.connection.gain

    def __str__(self) -> str:
        return f"{self.forward.connection}, {self.back.connection}"

    def balance(self, residual: float, exchanged: float) -> dict[str, Any]:
        """Plain data: what the units disagree on of the energy they exchanged; what is not finite is None."""
        both = (self.forward.connection, self.back.connection)
        return {
            "connections": [{"source": own.source, "target": own.target} for own in both],
            "kind": self.why,
            "residual_energy": plain(residual),
            "exchanged_energy": plain(exchanged),
            "ratio": disagreement(residual, exchanged),
        }


def disagreement(residual: float, exchanged: float) -> float:
    """The share of the exchanged energy on which the units of a bond disagree."""
    return abs(residual) / exchanged if 0.0 < exchanged < math.inf else 0.0


def power_bonds(system: System, declared: Sequence[tuple[str, str]] = ()) -> tuple[Bond, ...]:
    """All bonds: the pairs (input, output) of one unit that are `declared`, then what measures and structure tell."""
    found: dict[frozenset[int], Bond] = {}
    for bond in (*(_declared(system, *pair) for pair in declared), *_detected(system)):
        found.setdefault(frozenset((bond.forward.number, bond.back.number)), bond)
    return tuple(found.values())


def _opposite(system: System) -> Iterator[tuple[Link, Link]]:
    """Pairs of links that run between the same two units in opposite directions; plain factors only."""
    by_ends: dict[tuple[str, str], list[Link]] = {}
    for link in system.links:
        by_ends.setdefault((link.source.unit, link.target.unit), []).append(link)
    for (source, target), links in by_ends.items():
        if source != target:
            for forward in links:
                for back in by_ends.get((target, source), ()):
                    yield forward, back


def _usable(link: Link) -> bool:
    return link.connection.offset == 0.0 and link.connection.gain != 0.0


def _declared(system: System, into: str, out: str) -> Bond:
    target, source = system.input(into), system.output(out)
    if target.unit != source.unit:
        raise ConfigurationError(
            f"the power pair ({into}, {out}) does not belong to one unit; give an input and an output whose product "
            "is the power that enters their unit."
        )
    for forward, back in _opposite(system):
        if forward.target == target and back.source == source:
            if _usable(forward) and _usable(back):
                return Bond(forward, back, "declared")
            raise ConfigurationError(
                f"the power pair ({into}, {out}) is connected with an offset or a gain of 0, so it carries no power; "
                "connect both with nonzero gains only."
            )
    raise ConfigurationError(
        f"the power pair ({into}, {out}) is not connected in both directions to one other unit; connect "
        f"both to the same unit."
    )


def _detected(system: System) -> Iterator[Bond]:
    for forward, back in _opposite(system):
        if _usable(forward) and _usable(back):
            unit = system.units[forward.target.unit]
            if why := _conjugate(unit, forward.target.index, back.source.index):
                yield Bond(forward, back, why)


def _conjugate(unit: Unit, into: int, out: int) -> str:
    """Why the product of an input and an output of a unit is a power; empty where nothing says so.

    In M q̈ + C q̇ + K q = B u the inputs bring the power (B u)ᵀ q̇: an output that is a multiple of the velocity B_jᵀ q̇ is
    the other half of input j.
    """
    if isinstance(unit, Mechanical):
        force, velocity = unit.B[:, into], unit.velocity[out]
        others = (unit.displacement[out], unit.acceleration[out], unit.direct[out])
        if not force.any() or any(part.any() for part in others):
            return ""
        scale = float(velocity @ force) / float(force @ force)
        return "force and velocity" if scale and np.allclose(velocity, scale * force, rtol=1e-9, atol=0.0) else ""
    measures = [_exponents(unit.measure(name)) for name in (unit.inputs[into], unit.outputs[out])]
    return _POWERS.get(frozenset(measures), "")


def _exponents(measure: UnitOfMeasure | None) -> Exponents | None:
    if measure is None:
        return None
    if measure.exponents is None:
        return _NAMES.get(measure.name)
    kg, m, s, A, K, mol, cd, _rad = measure.exponents
    return (kg, m, s, A) if (K, mol, cd) == (0, 0, 0) else None
