"""A structure: all of a master that is not a number. With a step and gains it becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cosimo.core.coupling import Coupling
from cosimo.core.errors import UnknownNameError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Hold, Nepce, parse_coupling, tuned_couplings
from cosimo.masters import MASTERS, multirate
from cosimo.tuning.graph import coupling_graph

Kind = int | str
"""The order of a hold, "nepce" with a gain that is still open, or the word of another coupling."""
Kinds = tuple[tuple[str, Kind], ...]
"""The kinds of coupling of all connected inputs, by target."""


@dataclass(frozen=True)
class Structure:
    """`family` with its `stages` (units that step together), kinds of coupling by target, `sweeps`, `multiples`.

    Multirate masters are of the family "multirate" (inputs held) or "interpolated".
    """

    family: str
    stages: tuple[tuple[str, ...], ...]
    kinds: Kinds
    sweeps: int = 1
    multiples: tuple[tuple[str, int], ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The inputs with a gain."""
        return tuple(target for target, kind in self.kinds if kind == "nepce")

    @property
    def order(self) -> tuple[str, ...]:
        """The units in calling order."""
        return tuple(name for stage in self.stages for name in stage)

    def master(self, system: System, step: float, gains: Mapping[str, float] | None = None) -> Master:
        """The master with its numbers; units of `system` that are in no stage go first (see `cosimo.tuning.scene`).

        >>> from cosimo.problems import two_mass_glumac
        >>> system = two_mass_glumac()
        >>> str(Structure("gauss-seidel", (("two",), ("one",)), ()).master(system, 1.0))
        'F2 G2 H2 F1 G1 H1'
        """
        general, special = self._couplings(gains or {})
        more = tuple(name for name in system.names if name not in self.order)
        order = (*more, *self.order)
        if self.multiples or self.family not in MASTERS:
            inputs: Literal["held", "interpolated"] = "interpolated" if self.family == "interpolated" else "held"
            return multirate(
                system, step, multiples=dict(self.multiples), inputs=inputs, coupling=general, couplings=special
            )
        word = MASTERS[self.family]
        given: dict[str, Any] = {"sweeps": self.sweeps} if self.family == "iterative" else {}
        if self.family == "groups":
            given["order"] = [(*more, *self.stages[0]), *self.stages[1:]]
        elif "order" in word.options and len(self.stages) > 1:
            given["order"] = order
        return word.build(system, step, coupling=general, couplings=special, **given)

    def _couplings(self, gains: Mapping[str, float]) -> tuple[Coupling, dict[str, Coupling]]:
        """The most frequent one without a gain for all inputs, the others by target."""
        fixed = [kind for _, kind in self.kinds if kind != "nepce"]
        usual = max(dict.fromkeys(fixed), key=fixed.count, default=0)
        special: dict[str, Coupling] = {
            target: Nepce(float(gains.get(target, 0.0))) if kind == "nepce" else coupling_of_kind(kind)
            for target, kind in self.kinds
            if kind != usual
        }
        return coupling_of_kind(usual), special

    def without_idle(self, gains: Mapping[str, float]) -> Structure:
        """The same with inputs held where the gain of NEPCE is 0, which is what such a filter does."""
        kinds = tuple((t, 0 if kind == "nepce" and not gains.get(t, 0.0) else kind) for t, kind in self.kinds)
        return replace(self, kinds=kinds)


def coupling_of_kind(kind: Kind) -> Coupling:
    """The coupling that a kind without a gain stands for."""
    return Hold(kind) if isinstance(kind, int) else parse_coupling(kind)


def parse_kinds(words: Sequence[str]) -> tuple[Kind, ...]:
    """Kinds of coupling as the command line writes them.

    >>> parse_kinds(["hold0", "nepce"])
    (0, 'nepce')
    """
    holds: dict[str, Kind] = {f"hold{order}": order for order in (0, 1, 2)}
    known = {word: holds.get(word, word) for word in tuned_couplings()}
    for word in words:
        if word not in known:
            raise UnknownNameError("coupling to try", word, known)
    return tuple(known[word] for word in words)


def side_by_side(system: System, structure: Structure) -> Structure:
    """The same Gauss–Seidel master with units that do not see each other stepped together; Φ is the same.

    >>> from cosimo.problems import chain
    >>> system = chain(n=4)
    >>> order = tuple((name,) for name in system.names)
    >>> [len(stage) for stage in side_by_side(system, Structure("gauss-seidel", order, ())).stages]
    [1, 1, 1, 1]
    """
    if structure.family != "gauss-seidel":
        return structure
    graph = coupling_graph(system)
    level: dict[str, int] = {}
    for name in structure.order:
        near = graph.neighbours[graph.number[name]]
        earlier = [level[other] for other in level if near >> graph.number[other] & 1]
        level[name] = 1 + max(earlier, default=-1)
    stages = [tuple(n for n in structure.order if level[n] == k) for k in range(1 + max(level.values()))]
    if len(stages) == len(structure.order):
        return structure
    return replace(structure, family="groups", stages=tuple(stages))
