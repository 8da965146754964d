"""What is left of a mixer once its start-up is over: a finite filter of the outputs.

Slots of a mixer's memory that no output feeds, directly or through others, follow w' = N w from their start values; if
N^k = 0 they are zero after k uses and can be left out. Where every other slot is just a copy of an output or of another
slot, it holds an output as it was d uses ago, and the mixer is u_i = Σ_j g_ij y_{a(j)}(now − d(j)): a few copies and
one short sum per input, instead of products with matrices that are mostly zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosimo.core.arrays import BoolArray
from cosimo.core.coupling import Mixer


@dataclass(frozen=True)
class Settled:
    """A mixer from use number `startup` on, counted from 0.

    First w[to] ← w[from] for the `shifts` (to, from), one after the other in their order, then w[slot] ← y[output] for
    the `samples` (slot, output); each input is the sum of gain · w[slot] over its `taps` (slot, gain), in the order of
    the slots. Slots that no tap needs are no longer kept up to date.
    """

    startup: int
    shifts: tuple[tuple[int, int], ...]
    samples: tuple[tuple[int, int], ...]
    taps: tuple[tuple[tuple[int, float], ...], ...]


def settled(mixer: Mixer) -> Settled | None:
    """What the mixer becomes; None where its memory is more than delayed outputs.

    The filter gives the same numbers as the matrices, except that a zero may have another sign.

    >>> gains = np.array([[2.0, -1.0]])
    >>> settled(Mixer(ww=np.eye(2, k=-1), wy=np.eye(2, 1), uw=gains, start=np.zeros(2), start_map=np.zeros((2, 0))))
    Settled(startup=0, shifts=((1, 0),), samples=((0, 0),), taps=(((0, 2.0), (1, -1.0)),))
    """
    if mixer.later:
        return None  # a slot that one coupling does not need another one may
    if not all(np.isfinite(part).all() for part in (mixer.ww, mixer.wy, mixer.uw, mixer.start)):
        return None  # zero times infinity is not zero: nothing may be left out
    fed = _fed(mixer)
    startup = _nilpotency(mixer.ww[np.ix_(~fed, ~fed)] != 0)
    # Of what is fed, each row must be a single 1: columns are the slots that are fed, then the outputs.
    rows = np.hstack([np.where(fed, mixer.ww, 0.0), mixer.wy])
    copies = ((rows != 0).sum(axis=1) == 1) & (rows.sum(axis=1) == 1)
    if startup is None or not copies[fed].all():
        return None
    size, sources = len(fed), rows.argmax(axis=1).tolist()
    taps = tuple(
        tuple((slot, float(row[slot])) for slot in np.flatnonzero((row != 0) & fed).tolist()) for row in mixer.uw
    )
    delays: dict[int, int] = {}
    for slot in {slot for row in taps for slot, _ in row}:
        chain = [slot]
        while (source := sources[chain[-1]]) < size:
            chain.append(source)
        delays.update((link, delay) for delay, link in enumerate(reversed(chain)))
    # The oldest first, so that each number is taken on before its slot is overwritten.
    order = sorted(delays, key=lambda slot: (-delays[slot], slot))
    shifts = tuple((slot, sources[slot]) for slot in order if delays[slot] > 0)
    samples = tuple((slot, sources[slot] - size) for slot in order if delays[slot] == 0)
    return Settled(startup, shifts, samples, taps)


def _fed(mixer: Mixer) -> BoolArray:
    """Which slots outputs reach, directly or through other slots."""
    fed: BoolArray = (mixer.wy != 0).any(axis=1)
    for _ in fed:
        fed = fed | ((mixer.ww != 0) & fed).any(axis=1)
    return fed


def _nilpotency(pattern: BoolArray) -> int | None:
    """After how many uses slots that feed only each other are zero whatever they were; None where they may stay."""
    alive: BoolArray = np.ones(len(pattern), dtype=bool)
    for uses in range(len(pattern) + 1):
        if not alive.any():
            return uses
        alive = np.any(pattern & alive, axis=1)
    return None
