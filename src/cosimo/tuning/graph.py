"""Which calling orders differ: the acyclic orientations of the coupling graph.

In a Gauss–Seidel master the operations of two units that exchange nothing commute. An order therefore acts through one
bit per coupled pair only: which of the two goes first. These bits orient the edges of the coupling graph without a
cycle, and every acyclic orientation belongs to some order: their number is T_G(2, 0) (Stanley 1973), never more than n!
and for sparse graphs far fewer.

The spectral radius sees less still. Moving the first unit to the end only rotates the product Φ, which turns a source
of the orientation into a sink; and connections that lie on no loop do not enter the spectrum. In every class of
orientations under such moves exactly one has a given unit as its only source, so that there are T_G(1, 0) classes.
Rotation holds for couplings that do not look at the times of their samples (`Hold(0)`, `Nepce`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import Literal

from cosimo.core import dataclass
from cosimo.core.system import System, components

Order = tuple[str, ...]
Stages = tuple[tuple[str, ...], ...]
"""Groups of units that step together, in calling order."""
Equal = Literal["map", "radius"]
"""When two orders are the same: they give the same Φ, or the same ρ(Φ)."""


@dataclass(frozen=True)
class CouplingGraph:
    """Units, and for each the set of units it exchanges values with, as the bits of a number.

    >>> graph = CouplingGraph(("a", "b", "c"), (0b010, 0b101, 0b010))        # a – b – c
    >>> list(graph.orders())
    [('a', 'b', 'c'), ('a', 'c', 'b'), ('b', 'a', 'c'), ('c', 'b', 'a')]
    >>> list(graph.orders(rooted=True))
    [('a', 'b', 'c')]
    """

    units: Order
    neighbours: tuple[int, ...]

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs i < j of coupled units."""
        n = len(self.units)
        return tuple((i, j) for i in range(n) for j in range(i + 1, n) if self.neighbours[i] >> j & 1)

    @cached_property
    def number(self) -> dict[str, int]:
        """The place of every unit."""
        return {name: i for i, name in enumerate(self.units)}

    @cached_property
    def roots(self) -> int:
        """The first unit of every connected part, as bits."""
        roots, seen = 0, 0
        for i in range(len(self.units)):
            if not seen >> i & 1:
                roots |= 1 << i
                part, front = 0, 1 << i
                while front:
                    part |= front
                    front = _union(self.neighbours[j] for j in _bits(front)) & ~part
                seen |= part
        return roots

    def key(self, order: Sequence[str]) -> int:
        """One bit per edge: whether its first unit goes first. Equal keys, equal Φ."""
        rank = [order.index(name) for name in self.units]
        return sum((rank[i] < rank[j]) << place for place, (i, j) in enumerate(self.edges))

    def orders(self, *, rooted: bool = False) -> Iterator[Order]:
        """One order per acyclic orientation; `rooted`: only those with one source in each connected part, its root.

        By deletion and contraction of the edges between the units placed so far and the next one, u. Either u follows
        placed units only, and is placed (contraction); or it also follows one that is still to come, so that these
        edges say nothing (deletion), which is possible as long as the others still reach it. No branch ends in vain.
        Without roots, an additional unit in front that is coupled with all others is the root.
        """
        everything, n = (1 << len(self.units)) - 1, len(self.units)
        first = (list(_bits(self.roots)), self.roots, 0) if rooted else ([], 0, everything)
        stack: list[tuple[list[int], int, int, tuple[int, ...]]] = [(*first, (0,) * n)]
        while stack:
            placed, done, free, deleted = stack.pop()
            if done == everything:
                yield tuple(self.units[i] for i in placed)
                continue
            u = next(i for i in range(n) if not done >> i & 1 and self._held(i, done, free, deleted))
            without = (*deleted[:u], done, *deleted[u + 1 :])
            if self._connected(done, free & ~(1 << u), without):
                stack.append((placed, done, free & ~(1 << u), without))
            stack.append(([*placed, u], done | 1 << u, free, deleted))

    def _held(self, i: int, done: int, free: int, deleted: tuple[int, ...]) -> bool:
        """Whether an edge that is not deleted leads from what is placed to unit i."""
        return bool(free >> i & 1 or self.neighbours[i] & done & ~deleted[i])

    def _connected(self, done: int, free: int, deleted: tuple[int, ...]) -> bool:
        """Whether all that is not placed is reached from what is placed."""
        rest = ((1 << len(self.units)) - 1) & ~done
        front = _union(1 << i for i in _bits(rest) if self._held(i, done, free, deleted))
        reached = 0
        while front:
            reached |= front
            front = _union(self.neighbours[i] for i in _bits(front)) & rest & ~reached
        return reached == rest

    def rooted_key(self, order: Sequence[str]) -> int:
        """The key of the one orientation with the roots as only sources that rotations lead to. Equal keys, equal ρ."""
        rank, n = [order.index(name) for name in self.units], len(self.units)
        before = [sum(1 << j for j in _bits(self.neighbours[i]) if rank[j] < rank[i]) for i in range(n)]
        sources = [i for i in range(n) if not before[i] and not self.roots >> i & 1]
        while sources:
            i = sources.pop()
            # A source goes last: it follows all its neighbours, none of which follows it any longer.
            before[i] = self.neighbours[i]
            for j in _bits(self.neighbours[i]):
                before[j] &= ~(1 << i)
                if not before[j] and not self.roots >> j & 1:
                    sources.append(j)
        return sum((before[j] >> i & 1) << place for place, (i, j) in enumerate(self.edges))


def coupling_graph(system: System, equal: Equal = "map") -> CouplingGraph:
    """An edge for every pair of units with a connection; for "radius" only for those on a common loop of connections.

    Units that do not take their inputs from the connections alone (a master with mixers) may see more than this graph.
    """
    number = {name: i for i, name in enumerate(system.names)}
    pairs = [(number[link.source.unit], number[link.target.unit]) for link in system.links]
    groups = components(pairs) if equal == "radius" else [list(range(len(number)))]
    label = {i: group for group, members in enumerate(groups) for i in members}
    neighbours = [0] * len(number)
    for i, j in pairs:
        if i != j and label[i] == label[j]:
            neighbours[i] |= 1 << j
            neighbours[j] |= 1 << i
    return CouplingGraph(system.names, tuple(neighbours))


def orientations(system: System, equal: Equal = "map") -> Iterator[Order]:
    """One calling order for each that differs in Φ ("map"), or of those one for each class of equal ρ ("radius").

    Lazily, so that the first few of very many may be taken; "radius" needs couplings that do not look at sample times.

    >>> from cosimo.problems import two_mass_glumac
    >>> list(orientations(two_mass_glumac())), list(orientations(two_mass_glumac(), "radius"))
    ([('one', 'two'), ('two', 'one')], [('one', 'two')])
    """
    return coupling_graph(system, equal).orders(rooted=equal == "radius")


def groupings(system: System) -> list[Stages]:
    """Groups, one after the other, one choice for each that differs in Φ; neither Jacobi nor Gauss–Seidel.

    A choice acts through the coupled pairs only: one goes first, or both go together. All of n^n choices are looked at.

    >>> from cosimo.problems import chain
    >>> len(groupings(chain(n=3))), groupings(chain(n=3))[0]
    (4, (('u1', 'u2'), ('u3',)))
    """
    graph = coupling_graph(system)
    found: dict[tuple[int, ...], Stages] = {}
    for ranks in itertools.product(range(len(graph.units)), repeat=len(graph.units)):
        key = tuple((ranks[i] > ranks[j]) - (ranks[i] < ranks[j]) for i, j in graph.edges)
        if 0 in key and any(key) and key not in found:
            found[key] = tuple(
                tuple(name for name, own in zip(graph.units, ranks, strict=True) if own == rank)
                for rank in sorted(set(ranks))
            )
    return list(found.values())


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def _union(numbers: Iterator[int]) -> int:
    return reduce(or_, numbers, 0)
