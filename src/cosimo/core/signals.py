"""The layout of z: which block of numbers stands where.

x  states of linear units (known only to the algebra)      y  outputs
u  input polynomials, c_0 of all inputs, then c_1, …       w  memory of one link's coupling (m: of a mixer)
X, U  what `Save` keeps of x and u                         e  given from outside: external samples, and the number 1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from cosimo.core.coupling import Mixer
from cosimo.core.master import Master
from cosimo.core.system import System

Kind = Literal["x", "y", "u", "w", "m", "X", "U", "e"]


@dataclass(frozen=True)
class Block:
    """A block of z: its kind and whose it is (unit, link number, or external input with its moment)."""

    kind: Kind
    owner: str | int
    time: Fraction | None = None


ONE = Block("e", "1")


class Layout:
    """Blocks one after the other.

    >>> layout = Layout([(Block("x", "a"), 2), (Block("y", "a"), 1)])
    >>> layout.size, layout[Block("y", "a")]
    (3, slice(2, 3, None))
    """

    def __init__(self, blocks: Iterable[tuple[Block, int]]) -> None:
        self._slices: dict[Block, slice] = {}
        self.size = 0
        for block, width in blocks:
            self._slices[block] = slice(self.size, self.size + width)
            self.size += width

    def __getitem__(self, block: Block) -> slice:
        return self._slices[block]

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks in order."""
        return tuple(self._slices)

    def width(self, block: Block) -> int:
        """How many numbers the block holds."""
        part = self._slices[block]
        return int(part.stop - part.start)

    def indices(self, *kinds: Kind) -> list[int]:
        """The places of all numbers of these kinds, in order."""
        return [i for block, s in self._slices.items() if block.kind in kinds for i in range(s.start, s.stop)]


def input_degree(system: System, master: Master, unit: str) -> int:
    """The degree of the polynomials that the master forms for the unit's inputs."""
    mixer = master.mixers.get(unit)
    coupled = [inlet for inlet in system.inlets[unit] if inlet.source or (inlet.link and mixer is None)]
    degrees = [master.coupling_of(inlet.target).degree for inlet in coupled]
    return max([*degrees, 0 if mixer is None else mixer.degree], default=0)


def mixer_of(system: System, master: Master, unit: str) -> Mixer | None:
    """The mixer of a unit, its rows and columns as the variables stand in this system."""
    mixer = master.mixers.get(unit)
    if mixer is None:
        return None
    return mixer.placed(system.outputs, tuple(link.connection.target for link in system.incoming(unit)))
