"""What a coupling is: it turns samples of one connection into the input over the next step.

A connection delivers samples s (gain and offset applied) that belong to known times. In the form of glumac2018, Eq. 18,

    w' = F^ww w + F^ws s,        c = F^uw w',        u(t) = Σ_j c_j σ^j,   σ = (t − t_couple) / h.

Sample times are exact fractions of the macro step, known before anything runs, so the matrices are constant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.errors import ConfigurationError


@dataclass(frozen=True)
class Sampling:
    """When the samples of one connection were taken, at one `Couple` operation, in macro steps from its moment.

    `stamps[0]` belongs to the newest sample, just arrived; `stamps[j]` for j ≥ 1 to the remembered sample that stood in
    slot `kept[j − 1]` of the memory. Samples that the newest one replaces (same or later time) are no longer listed.
    """

    stamps: tuple[Fraction, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True)
class CouplingMatrices:
    """F^ww (d, d), F^ws (d, 1), F^uw (q + 1, d); leading axes run over parameter values."""

    ww: Array
    ws: Array
    uw: Array

    @property
    def plain(self) -> bool:
        """Whether the input is just the newest sample."""
        return self.uw.shape == (1, 1) and bool(self.ww == 0 and self.ws == 1 and self.uw == 1)


@dataclass(frozen=True, eq=False)
class Mixer:
    """All connected inputs of one unit at once, from all outputs of the system (glumac2018, Eq. 18 as it stands):

        w' = F^ww w + F^wy y,        u = F^uw w' + k

    It takes the place of the couplings of these inputs. ww (d, d), wy (d, all outputs), uw (connected inputs, d); the
    memory starts as `start` (d,), which for other initial states x of linear units is `start_map` x + `start_rest`.
    Inputs of a `degree` above 0 are polynomials in time: below the rows of uw for c_0 are those for c_1, … A unit that
    is coupled several times in a macro step may use another uw each time: `later` has them by the unit's local time, as
    `constants` has k (none: 0). `outputs` and `inputs` name the columns of wy and the rows of uw, so that it fits
    systems whose variables stand in another order.
    """

    ww: Array
    wy: Array
    uw: Array
    start: Array
    start_map: Array
    degree: int = 0
    later: Mapping[Fraction, Array] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    constants: Mapping[Fraction, Array] = field(default_factory=dict)
    start_rest: Array | None = None

    def placed(self, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> Mixer:
        """The same mixer for all `outputs` of a system and the connected `inputs` of its unit, as they stand there."""
        own_outputs, own_inputs = self.outputs or outputs, self.inputs or inputs
        if (own_outputs, own_inputs) == (outputs, inputs) and self._fits(len(outputs), len(inputs)):
            return self
        missing = [name for name in own_outputs if name not in outputs]
        if missing or sorted(own_inputs) != sorted(inputs) or not self._fits(len(own_outputs), len(own_inputs)):
            lacks = f"output {missing[0]}" if missing else f"connected inputs {', '.join(own_inputs)}"
            raise ConfigurationError(f"a compensated master was designed for a system with {lacks}; design it again.")
        wy = np.zeros((len(self.ww), len(outputs)))
        wy[:, [outputs.index(name) for name in own_outputs]] = self.wy
        order = [own_inputs.index(name) for name in inputs]
        rows = [power * len(inputs) + place for power in range(self.degree + 1) for place in order]
        later = {time: uw[rows] for time, uw in self.later.items()}
        constants = {time: constant[rows] for time, constant in self.constants.items()}
        return replace(self, wy=wy, uw=self.uw[rows], later=later, constants=constants, outputs=outputs, inputs=inputs)

    def shifted(self, outputs: Array, held: Array) -> Mixer:
        """The same where all outputs are larger by the constants `outputs`, and inputs that are just held by `held`.

        Where y → y + e, the memory is larger by ω = F^ww ω + F^wy e; then k loses F^uw ω and gains what is held.
        """
        memory: Array = np.linalg.solve(np.eye(len(self.ww)) - self.ww, self.wy @ outputs).astype(float)
        more = np.concatenate([held, np.zeros(self.degree * len(held))])
        times = (Fraction(0), *self.later)
        constants = {time: self.constant_at(time) + more - self.uw_at(time) @ memory for time in times}
        rest: Array = memory if self.start_rest is None else self.start_rest + memory
        return replace(self, start=self.start + memory, start_rest=rest, constants=constants)

    def _fits(self, outputs: int, inputs: int) -> bool:
        return self.wy.shape[1] == outputs and len(self.uw) == (self.degree + 1) * inputs

    def uw_at(self, time: Fraction) -> Array:
        """F^uw of the coupling at local `time`."""
        return self.later.get(time, self.uw)

    def constant_at(self, time: Fraction) -> Array:
        """k of the coupling at local `time`, (rows of uw,)."""
        return self.constants.get(time, np.zeros(len(self.uw)))


@dataclass(frozen=True, eq=False)
class ModelCheck:
    """The identified model of a `unit` against the unit itself, in every macro step; mixers rely on it.

    With Δ the changes from one macro step to the next, of p of its outputs (`places`) and of its input polynomials
    (`width` numbers, all powers it takes), N = `samples` earlier ones determine the next:

        Δy_k = Σ_{j=1…N} a_j Δy_{k−j} + Σ_{j=0…N} b_j Δc_{k−j} + r_k

    Constants drop out, so that a drifting operating point is followed. `own` (p, N p) and `driven` (p, (N + 1) width)
    hold a and b, newest first. The innovation r is compared with what inputs bring (q, the second sum) and with Δy,
    over some macro steps (sums Σ with the weight `FADING` per step). The model fits as long as, for every output,

        Σ r² ≤ TOLERATED² Σ q² + share² Σ Δy² + (noise max |y|)²

    with `share` (p,) and `noise` (p,) what identification left open, and rounding.
    """

    FADING: ClassVar[float] = 0.8
    TOLERATED: ClassVar[float] = 0.05
    AGAIN: ClassVar[int] = 10
    """Macro steps in a row in which all models must fit before inputs are compensated again."""

    unit: str
    places: tuple[int, ...]
    width: int
    samples: int
    own: Array
    driven: Array
    share: Array
    noise: Array

    @property
    def size(self) -> int:
        """Numbers remembered: how many samples there were; y, c; Δy, Δc; three sums and the largest |y|."""
        p, n = len(self.places), self.samples
        return 1 + p + self.width + n * (p + self.width) + 4 * p


class Coupling(ABC):
    """To add a coupling, provide:

    1. `history`: how many samples (or other numbers) it remembers, d;
    2. `degree`: the degree q of the polynomial it yields;
    3. `error_order`: the power of h with which its error vanishes for smooth signals (one test measures it);
    4. `matrices(sampling)`: its matrices, given when the samples were taken;
    5. `__str__`: its word in files and on the command line, and where that rounds, `word` with all digits;
    6. `interpolates`, where its input is the polynomial through the newest `degree` + 1 samples at their true times,
       whatever the step and the age of the samples; `timed = False`, where no matrix depends on these times.

    At the start the memory holds d equal samples: signals are assumed constant before the start.
    """

    history: int
    degree: int
    error_order: int
    interpolates: bool = False
    timed: bool = True
    substeps: int = 1
    """How many steps a unit that takes fewer powers than `degree` makes with one polynomial."""

    @property
    def projected(self) -> bool:
        """Whether such a unit is given, in each step, the best approximation over it, not the value at its start."""
        return self.substeps > 1 or self.degree > 2

    @property
    def held(self) -> bool:
        """Whether the input is the newest sample, until the next one."""
        return self.interpolates and self.degree == 0

    @property
    def follows_step_lengths(self) -> bool:
        """Whether macro steps may differ in length: the engines interpolate up to three samples at any times."""
        return self.interpolates and self.degree <= 2

    @property
    def word(self) -> str:
        """The text that is read back as exactly this coupling."""
        return str(self)

    @abstractmethod
    def matrices(self, sampling: Sampling) -> CouplingMatrices:
        """F^ww, F^ws and F^uw."""


# ---- what is left of a mixer once its start-up is over: a finite filter of the outputs -------------------------------
# Slots of a mixer's memory that no output feeds, directly or through others, follow w' = N w from their start values;
# if N^k = 0 they are zero after k uses and can be left out. Where every other slot is just a copy of an output or of
# another slot, it holds an output as it was d uses ago, and the mixer is u_i = Σ_j g_ij y_{a(j)}(now − d(j)): a few
# copies and one short sum per input, instead of products with matrices that are mostly zero.


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
