"""The true solution, the horizon and the error: each defined here, once, for every verb.

**Horizon.** The stop time of the scenario where there is one; otherwise `default_horizon`.

**True solution.** Of linear units the exact one: ẋ = A_c x + …, with nothing between communication points
(`undivided`). Of other units what runs with ever smaller steps tend to (`cosimo.analysis.pilots`).

**Error.** Of every output j, the largest deviation from the true solution over the horizon, as a share of the largest
true value of that output:

    e_j = max_k |y_j,k − y_j(t_k)| / max_t |y_j(t)|

*predicted* from Φ (`cosimulated`), or *measured* in a run. Co-simulation and true solution are both a recursion,

    v_{k+1} = F v_k + G e_k,   y_k = C v_k + D e_k,

for the co-simulation with F = Φ, G = Γ and e_k the samples that the master takes of external inputs; for the coupled
system with F = exp(A_c h / s) over s parts of a macro step, in each of which external inputs are parabolas through
three samples. Rows are computed in blocks of L: L steps are one product (`block_length`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from cosimo.algebra.product import CoupledModel, LinearSystem, given_inputs, samples
from cosimo.analysis.linearisation import LocalSystem
from cosimo.analysis.stability import RIGID, balanced
from cosimo.core import dataclass
from cosimo.core.arrays import Array, ComplexArray, external_fit
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import DIVERGED, percent
from cosimo.core.master import Master
from cosimo.core.system import Constant, System
from cosimo.core.timing import UnitClock, timeline
from cosimo.core.unit import LinearModel
from cosimo.units.linear import Exact, discretise

BLOCK = 32
OVERFLOWING = 1e100
"""A number that overflows when it is squared a few times is as good as infinite."""
ROWS = 128
"""Rows of a large system that are kept at a time."""
ROOM = 2**31
"""Bytes that a table of all rows may take."""
REACH, TERMS = 3.5, 30
"""‖A‖ d over which a Taylor series is used, and about how many terms that takes."""
MOST_WORK = 3e11
"""Products of numbers that the true solution of a large system may take: some minutes."""
PARTS = 8
"""Parts of a macro step over each of which an external input that varies is taken as a parabola."""
PERIODS = 10
"""Periods, or time constants, of the slowest mode that the default horizon covers."""
FAST_MODES = 3000
"""The default horizon is at most so many times 1/|λ| of the fastest mode."""
MOST_STEPS = 2_000_000
"""Macro steps that an error is followed over at most."""
GRID = 2000
"""Moments, beside the communication points, at which the largest true value of an output is looked for."""
STILL = 1e-12
"""An output whose true value stays below this share of what its terms could add up to is taken to be at rest."""
OFFSET = 0.2
"""Range of an output, as a share of its largest value, below which its error says little of how it moves."""
SHORTEST, LONGEST = 1e-3, 10.0
"""The range of steps that is searched, in units of 1/|λ| of the fastest mode of the coupled system."""
SEARCHED_STEPS = 200_000
"""Macro steps that a run over the horizon has at most at the shortest step."""


def default_horizon(poles: ComplexArray) -> float:
    """Seconds that errors are followed over where no stop time is given.

    Ten periods 2π/|λ| of the slowest mode that moves (ten time constants 1/|λ| where nothing oscillates), at most
    3000/|λ| of the fastest one; 1 s where nothing moves. It depends on the system alone, not on the master, so that
    errors of all masters can be compared.

    >>> round(default_horizon(np.array([-0.1 + 2j, -0.1 - 2j, -50.0])), 3)
    31.377
    """
    speeds = np.abs(poles)
    fastest = float(speeds.max(initial=0.0))
    moving = speeds[speeds > RIGID * fastest]
    if not moving.size:
        return 1.0
    cycle = 2 * math.pi if (np.abs(poles.imag) > RIGID * fastest).any() else 1.0
    return float(min(PERIODS * cycle / moving.min(), FAST_MODES / fastest))


def step_range(fastest: float, horizon: float) -> tuple[float, float]:
    """The shortest and longest step that are searched for a system whose fastest mode has |λ| = `fastest`."""
    scale = 1 / fastest if fastest > 0 else horizon / 100
    longest = min(LONGEST * scale, horizon / 4)
    return min(max(SHORTEST * scale, horizon / SEARCHED_STEPS), longest), longest


def count_steps(horizon: float, step: float) -> int:
    """The whole macro steps of a horizon, at least one."""
    count = horizon / step * (1 + 1e-12)
    if not count <= MOST_STEPS:
        raise ConfigurationError(
            f"a horizon of {horizon:g} s is more than {MOST_STEPS:,} macro steps of {step:g} s; shorten it."
        )
    return max(1, math.floor(count))


ErrorKind = Literal["predicted", "measured"]


@dataclass(frozen=True)
class OutputErrors:
    """e_j of every output that moves, over `horizon` seconds from `start` on; `kind` says how it is known.

    `typical` is the root mean square over time and outputs, each relative to its size. `any_start`: the given start
    is at rest, and the errors are those from the worst initial state. `unsettled` are outputs for which finer runs do
    not converge (switches that jump at other times, for example) and no error is given.
    """

    outputs: Mapping[str, float]
    horizon: float
    kind: ErrorKind = "predicted"
    typical: float = math.nan
    any_start: bool = False
    unsettled: tuple[str, ...] = ()
    start: float = 0.0

    @property
    def until(self) -> str:
        """The time at which the horizon ends."""
        return f"{self.start + self.horizon:g} s"

    @property
    def output(self) -> str:
        """The worst output."""
        return max(self.outputs, key=lambda name: self.outputs[name], default="")

    @property
    def worst(self) -> float:
        """The error of the worst output: what is printed as *error*."""
        return max(self.outputs.values(), default=0.0)

    def __float__(self) -> float:
        return self.worst

    @property
    def words(self) -> str:
        """The error of the worst output, and until when."""
        if self.worst >= DIVERGED:
            return f"{self.output} diverges before {self.until}"
        return f"{percent(self.worst)} of {self.output} until {self.until}"

    def __str__(self) -> str:
        return f"{self.words} ({self.kind})"


@dataclass(frozen=True, eq=False)
class Truth:
    """The true solution at the communication points of one master: `rows` (N + 1, p), and the `sizes` (p,) over time.

    `own` (p,) is how wrong, relative to the sizes, the rows may be themselves; None for the exact solution.
    """

    rows: Array
    sizes: Array
    own: Array | None = None

    @property
    def own_error(self) -> float:
        """The largest of them; 0 for the exact solution."""
        return 0.0 if self.own is None else float(self.own.max(initial=0.0))


def output_errors(
    system: System,
    master: Master,
    rows: Array,
    truth: Truth,
    horizon: float,
    kind: ErrorKind,
    clocks: Mapping[str, UnitClock] | None = None,
    *,
    start: float = 0.0,
) -> OutputErrors:
    """The errors of `rows` (N + 1, p), each output compared at the time at which the master reads it.

    `clocks` are those of the master's timeline where that is there already.
    """
    wanted = _as_read(system, truth.rows, _read_early(clocks or timeline(system, master).clocks))
    return replace(_shares(system, rows, wanted, truth.sizes, horizon, kind), start=start)


def _read_early(clocks: Mapping[str, UnitClock]) -> list[str]:
    """The units that are read before their step."""
    return [unit for unit, clock in clocks.items() if clock.read < 1]


def _as_read(system: System, rows: Array, early: Sequence[str], before: Array | None = None) -> Array:
    """The true rows at the times at which the master reads outputs, of `early` units those before; `before` is the row
    before the first."""
    if not early:
        return rows
    wanted, place = rows.copy(), 0
    for name, unit in system.units.items():
        own = slice(place, place := place + len(unit.outputs))
        if name in early:
            wanted[1:, own] = rows[:-1, own]
            wanted[0, own] = rows[0, own] if before is None else before[own]
    return wanted


def _shares(system: System, rows: Array, wanted: Array, sizes: Array, horizon: float, kind: ErrorKind) -> OutputErrors:
    moving = sizes > 0
    names = [name for name, moves in zip(system.outputs, moving, strict=True) if moves]
    with np.errstate(over="ignore", invalid="ignore"):
        shares = np.abs(rows - wanted)[:, moving] / sizes[moving]
        if not (shares < OVERFLOWING).all():
            return OutputErrors(dict.fromkeys(names, math.inf), horizon, kind, math.inf)
    typical = float(np.sqrt(np.mean(shares**2))) if shares.size else 0.0
    return OutputErrors(dict(zip(names, shares.max(axis=0, initial=0.0).tolist(), strict=True)), horizon, kind, typical)


def offset_notes(system: System, errors: OutputErrors, truth: Truth, target: float) -> Iterator[str]:
    """Of outputs that move little beside their largest value (kelvin, absolute pressure): the error beside that motion.

    An error is a share of the largest value; where the output moves by less than `OFFSET` of it, and the error is more
    than the target of what it moves by, readers are told both.
    """
    for name, values, size in zip(system.outputs, truth.rows.T, truth.sizes, strict=True):
        error, moved = errors.outputs.get(name, 0.0), float(np.ptp(values)) / size if size > 0 else 0.0
        if STILL < moved < OFFSET and target * moved < error < DIVERGED:
            between = f"{name} stays between {values.min():.6g} and {values.max():.6g}"
            yield f"{between}: {percent(error)} of its largest value is {percent(error / moved)} of that range"


def worst_start_errors(linear: LinearSystem, start: float, horizon: float) -> OutputErrors:
    """The same for the worst initial state, where nothing moves from the given one: rows of matrices, in the 2-norm."""
    from cosimo.analysis.error_norms import OPERATOR_UP_TO, global_error

    found = global_error(linear, steps=count_steps(horizon, linear.master.step))
    if not found.worst_case:
        raise ConfigurationError(
            f"'{linear.system.name}' starts at rest, and with more than {OPERATOR_UP_TO} states the error is computed "
            f"from the given start only; give it initial states."
        )
    return OutputErrors(found.outputs, horizon, any_start=True, start=start)


def block_length(states: int, outputs: int, rows: int) -> int:
    """Rows that are computed together: the power of 2 with the least work, counted in products of n × n with a vector.

    L rows take (L − 1) p such products for C F^k, n log2 L for F^L, and one for every block, whose state follows from
    the one before; these wait for each other and count four times.

    >>> block_length(4, 2, 20_000), block_length(250, 50, 300), block_length(250, 50, 10)
    (32, 2, 1)
    """

    def work(exponent: int) -> float:
        length: int = 2**exponent
        return (length - 1) * outputs + states * exponent + 4 * rows / length

    return int(2 ** min(range(BLOCK.bit_length()), key=work))


@dataclass(frozen=True)
class Recursion:
    """v' = F v + G e, y = C v + D e: F (n, n), G (n, m), C (p, n), D (p, m)."""

    F: Array
    G: Array
    C: Array
    D: Array

    def rows(self, start: Array, given: Array) -> Array:
        """y_0 … y_N (N + 1, p) for `given` e_0 … e_N (N + 1, m); overflow gives infinities, not errors."""
        (p, n), m, count = self.C.shape, self.G.shape[1], len(given)
        if m and (given == given[0]).all():
            return self._steady(given[0]).rows(np.append(start, 1.0), np.zeros((count, 0)))
        length = block_length(n, p, count)
        blocks = -(-count // length)
        with np.errstate(over="ignore", invalid="ignore"):
            # C F^k and F^k G, and F^length by squares: F^k itself, of many states, is never needed.
            looks, pushes = [self.C], [self.G]
            for _ in range(length - 1):
                looks.append(looks[-1] @ self.F)
                pushes.append(self.F @ pushes[-1])
            leap, seen = np.linalg.matrix_power(self.F, length), np.vstack(looks)
            answers = [self.D, *(look @ self.G for look in looks[:-1])]
            driven = np.zeros((length, p, length, m))
            for lag, answer in enumerate(answers if m else ()):
                columns = np.arange(length - lag)
                driven[columns + lag, :, columns] = answer
            pushed = np.hstack(pushes[::-1])
            inputs = np.vstack([given, np.zeros((blocks * length - count, m))]).reshape(blocks, length * m)
            push = inputs @ pushed.T
            if length > 1 and blocks > BLOCK >= n:  # the states at the beginning of all blocks follow a recursion too
                first = Recursion(leap, np.eye(n), np.eye(n), np.zeros((n, n))).rows(start, push)
            else:
                first, v = np.empty((blocks, n)), start
                for block in range(blocks):
                    first[block] = v
                    v = leap @ v + push[block]
            found = first @ seen.T + inputs @ driven.reshape(length * p, length * m).T
        return found.reshape(blocks * length, p)[:count]

    def _steady(self, given: Array) -> Recursion:
        """The same with constant inputs inside: [v; 1]' = [F  G e; 0  1] [v; 1]."""
        n, p = len(self.F), len(self.C)
        F = np.block([[self.F, (self.G @ given)[:, None]], [np.zeros((1, n)), np.ones((1, 1))]])
        C = np.column_stack([self.C, self.D @ given])
        return Recursion(F, np.zeros((n + 1, 0)), C, np.zeros((p, 0)))


def cosimulated(
    local: LocalSystem, master: Master, *, start: float, steps: int, linear: LinearSystem | None = None
) -> Array:
    """All outputs (steps + 1, p) of the linear co-simulation, from the initial states, with external inputs.

    `linear` is `local.linear` under the master where that is there already.
    """
    linear = linear or LinearSystem(local.linear, local.inside(master))
    if linear.sparse:
        require_room(steps + 1, len(local.linear.outputs))
        return np.concatenate(list(_stepped(linear, start, steps))) + local.offsets
    Phi, Gamma, places = linear.one_step.Phi, linear.one_step.Gamma, linear.layout.indices("y")
    given, z = linear.given_values(np.arange(steps + 1.0), start), linear.start(start)
    kept = np.flatnonzero(Phi.any(axis=0) | np.isin(np.arange(linear.size), places))  # on the others nothing depends
    seen = np.eye(linear.size)[places][:, kept]
    process = Recursion(Phi[np.ix_(kept, kept)], Gamma[kept], seen, np.zeros((len(places), Gamma.shape[1])))
    return process.rows(z[kept], given) + local.offsets


def _stepped(linear: LinearSystem, start: float, steps: int) -> Iterator[Array]:
    """The outputs of a large system, step after step, some rows at a time."""
    places, size = np.array(linear.layout.indices("y"), dtype=np.intp), linear.size
    z = np.concatenate([linear.start(start), np.zeros(len(linear.given))])
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, steps + 1, ROWS):
            rows = np.empty((min(ROWS, steps + 1 - begin), len(places)))
            given = linear.given_values(begin + np.arange(float(len(rows))), start)
            for k in range(len(rows)):
                rows[k] = z[places]
                z[size:] = given[k]
                z = linear.sparse_step.step(z)
            yield rows


def undivided(
    local: LocalSystem, *, step: float, start: float, steps: int, coupled: CoupledModel | None = None
) -> Array:
    """All outputs (steps + 1, p) of the coupled system itself (or of `coupled`) at t_k = start + k step.

    With b(t) what is given to all inputs from outside, and y = C x + (I − D L)⁻¹ D b:

        ẋ = A_c x + B (I + L (I − D L)⁻¹ D) b(t)
    """
    coupled = coupled or local.coupled
    if not isinstance(coupled.A, np.ndarray):
        require_room(steps + 1, len(local.linear.outputs))
        return np.concatenate([rows for rows, _ in _sparse_flow(local, coupled, step, start, steps)]) + local.offsets
    drive = _Drive(local.linear, start)
    parts = PARTS if drive.varying else 1
    process = _flow(coupled, drive, step / parts)
    x = np.concatenate([unit.initial_state for unit in local.linear.units.values()])
    rows = process.rows(x, drive.samples(start, step / parts, steps * parts + 1))
    return rows[::parts] + local.offsets


def undivided_at(local: LocalSystem, places: Array, quantum: float, start: float) -> Array:
    """The same (rows, p) at t = start + places · quantum, whole numbers that need not be evenly spaced."""
    if not isinstance(local.coupled.A, np.ndarray):
        raise ConfigurationError(
            "the exact solution of so large a system is computed at equal steps only; use fixed steps."
        )
    drive, flows = _Drive(local.linear, start), dict[int, Recursion]()
    parts = PARTS if drive.varying else 1
    x = np.concatenate([unit.initial_state for unit in local.linear.units.values()])
    lengths = np.diff(places).astype(int).tolist()
    rows = np.empty((len(places), len(local.linear.outputs)))
    for row, length in enumerate([*lengths, lengths[-1]]):
        if length not in flows:
            flows[length] = _flow(local.coupled, drive, length * quantum / parts)
        flow = flows[length]
        given = drive.samples(start + float(places[row]) * quantum, length * quantum / parts, parts)
        rows[row] = flow.C @ x + flow.D @ given[0]
        for e in given:
            x = flow.F @ x + flow.G @ e
    return rows + local.offsets


def require_room(rows: int, columns: int) -> None:
    """Refuse tables of more than 2 GiB before memory is asked for."""
    if 8 * rows * columns > ROOM:
        raise ConfigurationError(
            f"{rows:,} rows of {columns:,} outputs need {8 * rows * columns / 2**30:.3g} GiB, and {ROOM / 2**30:g} GiB "
            f"is the limit; shorten the horizon, or lengthen the step."
        )


def _sparse_flow(
    local: LocalSystem, coupled: CoupledModel, step: float, start: float, steps: int
) -> Iterator[tuple[Array, Array]]:
    """Outputs (k, p) and states (k, n) at t = 0, step, …, steps · step of a large system, some rows at a time.

    Over a time d with ‖A‖₁ d ≤ 3.5 (in balanced units) the solution is its Taylor series, of some 30 terms to rounding
    (Al-Mohy and Higham, SIAM J. Sci. Comput. 33 (2011), Table 3.1), however many rows lie within d. External inputs are
    parabolas over each part of a step, as in `_flow`, and enter the first three derivatives.
    """
    drive = _Drive(local.linear, start)
    A, scale = balanced(coupled.A)
    through = coupled.solve_loop(coupled.D @ drive.spread)
    push = (coupled.B @ (drive.spread + coupled.L @ through)) / scale[:, None]
    piece, pieces = (step / PARTS, steps * PARTS) if drive.varying else (max(steps, 1) * step, 1)
    inner = max(1, math.ceil(float(abs(A).sum(axis=0).max(initial=0.0)) * piece / REACH))
    if pieces * inner * TERMS * A.nnz > MOST_WORK:
        raise ConfigurationError(
            f"the system is large and its fastest mode is too fast for {steps * step:g} s: some "
            f"{pieces * inner * TERMS:.0e} products with its matrix; shorten the horizon."
        )
    d, fit, done = piece / inner, external_fit(2, Fraction(1))[1], 0
    x = np.concatenate([unit.initial_state for unit in local.linear.units.values()]) / scale
    seen, total = (coupled.C * scale).T.tocsr(), pieces * inner
    for number in range(total):
        begin, after = divmod(number, inner)
        given = drive.parabola(start + begin * piece, piece, after / inner, fit)
        terms = _taylor(A, x, [push @ column for column in given], d)
        last = steps if number == total - 1 else min(steps, math.ceil((number + 1) * d / step * (1 - 1e-14)) - 1)
        for first in range(done, last + 1, ROWS):
            k = np.arange(first, min(first + ROWS, last + 1))
            powers = ((k * step - number * d) / d)[:, None] ** np.arange(len(terms))
            states = powers @ terms
            yield states @ seen + drive.at(start + k * step) @ through.T, states * scale
        done = max(done, last + 1)
        x = terms.sum(axis=0)


def _taylor(A: Any, x: Array, derivatives: list[Array], d: float) -> Array:
    """The terms v_j (m, n) of x(t + θ d) = Σ_j θ^j v_j, with ẋ = A x + b and b, ḃ, b̈ the `derivatives`."""
    terms, before = [x], math.inf
    for j in range(1, 2 * TERMS):
        term = (d / j) * (A @ terms[-1])
        if j <= len(derivatives):
            term = term + d**j / math.factorial(j) * derivatives[j - 1]
        terms.append(term)
        size = float(np.abs(term).max(initial=0.0))
        if j > len(derivatives) and size + before <= 1e-17 * float(np.abs(x).max(initial=0.0)):
            break
        before = size
    return np.array(terms)


def _flow(coupled: CoupledModel, drive: _Drive, duration: float) -> Recursion:
    """The exact step of the coupled system; inputs e = [1, b(0), b(½), b(1) of every input that varies]."""
    given = drive.spread
    through, width = coupled.solve_loop(coupled.D @ given), given.shape[1]
    model = LinearModel(coupled.A, coupled.B @ (given + coupled.L @ through), coupled.C, through)
    discrete = discretise(model, Exact(), 1, duration)
    fit = external_fit(2, Fraction(1))[1] if drive.varying else np.zeros((3, 3))
    G, now = [discrete.B[:, :1]], [through[:, :1]]
    for i in range(1, width):
        G.append(discrete.B[:, [i, width + i, 2 * width + i]] @ fit)
        now.append(np.hstack([through[:, [i]], np.zeros((len(coupled.C), 2))]))
    return Recursion(discrete.A, np.hstack(G), coupled.C, np.hstack(now))


class _Drive:
    """What is given to the inputs of a system from outside: `constant` (m,) and the places of those that `varying`."""

    def __init__(self, system: System, start: float) -> None:
        sources = [inlet.source for name in system.units for inlet in system.inlets[name]]
        driven = {i: source for i, source in enumerate(sources) if source and not isinstance(source, Constant)}
        self.varying, self._sources = list(driven), list(driven.values())
        self.constant = given_inputs(system, start)
        self.constant[self.varying] = 0.0

    @property
    def spread(self) -> Array:
        """Where `at` goes: (m, 1 + v), all that is constant, and then every input that varies."""
        found = np.zeros((len(self.constant), 1 + len(self.varying)))
        found[:, 0] = self.constant
        found[self.varying, 1 + np.arange(len(self.varying))] = 1.0
        return found

    def at(self, moments: Any) -> Array:
        """(k, 1 + v): 1, and the inputs that vary, at some times."""
        return np.column_stack([np.ones(len(moments)), *(samples(source, moments) for source in self._sources)])

    def parabola(self, begin: float, duration: float, share: float, fit: Array) -> list[Array]:
        """The values of `at` and of its two derivatives at a share of the part that begins then."""
        c = fit @ self.at(begin + duration * np.array([0.0, 0.5, 1.0])) if self.varying else np.ones((1, 1))
        if len(c) == 1:
            return [c[0]]
        return [c[0] + share * (c[1] + share * c[2]), (c[1] + 2 * share * c[2]) / duration, 2 * c[2] / duration**2]

    def samples(self, start: float, duration: float, count: int) -> Array:
        """e at the beginning of `count` parts: 1, then three samples of each input that varies."""
        given = np.ones((count, 1 + 3 * len(self.varying)))
        moments: Array = start + np.arange(2.0 * count + 1) * (duration / 2)
        for place, source in enumerate(self._sources):
            values = samples(source, moments)
            for s in range(3):
                given[:, 1 + 3 * place + s] = values[s : s + 2 * count - 1 : 2]
        return given


def exact_truth(local: LocalSystem, *, step: float, start: float, horizon: float, sizes: Array | None = None) -> Truth:
    """The exact solution at the communication points; `sizes` from `output_sizes` where they are known already."""
    steps = count_steps(horizon, step)
    rows = undivided(local, step=step, start=start, steps=steps)
    if not np.isfinite(rows).all():
        raise ConfigurationError(_beyond(local.linear.name, horizon))
    if sizes is None:
        sizes = output_sizes(local, start=start, horizon=horizon)
    return Truth(rows, np.where(sizes > 0, np.maximum(sizes, np.abs(rows).max(axis=0)), 0.0))


def _beyond(name: str, horizon: float) -> str:
    return f"the exact solution of '{name}' overflows within {horizon:g} s; choose a shorter horizon."


def output_sizes(local: LocalSystem, *, start: float, horizon: float) -> Array:
    """The largest true value of every output (p,) on a grid of its own, as communication points may be few; 0: rests.

    An output whose terms cancel but for rounding, |y| ≤ 1e-12 Σ_i |C_i| max |x_i|, is at rest.
    """
    if not isinstance(local.coupled.A, np.ndarray):
        return _sparse_sizes(local, start, horizon)
    count = GRID
    drive = _Drive(local.linear, start)
    parts = PARTS if drive.varying else 1
    part = horizon / count / parts
    flow = _flow(local.coupled, drive, part)
    n, p = len(flow.F), len(flow.C)
    joined = Recursion(
        flow.F, flow.G, np.vstack([flow.C, np.eye(n)]), np.vstack([flow.D, np.zeros((n, flow.D.shape[1]))])
    )
    x = np.concatenate([unit.initial_state for unit in local.linear.units.values()])
    with np.errstate(over="ignore", invalid="ignore"):
        rows = joined.rows(x, drive.samples(start, part, count * parts + 1))[::parts]
        sizes: Array = np.abs(rows[:, :p] + local.offsets).max(axis=0)
        if not np.isfinite(sizes).all():
            return sizes
        moved = np.abs(rows[:, p:]).max(axis=0, initial=0.0)
        terms = np.abs(flow.C) @ moved + np.abs(flow.D).sum(axis=1) + np.abs(local.offsets)
    return np.where(sizes > STILL * terms, sizes, 0.0)


def _sparse_sizes(local: LocalSystem, start: float, horizon: float) -> Array:
    """The same for a large system."""
    coupled, drive = local.coupled, _Drive(local.linear, start)
    sizes, moved = np.zeros(coupled.C.shape[0]), np.zeros(coupled.C.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for rows, states in _sparse_flow(local, coupled, horizon / GRID, start, GRID):
            sizes = np.maximum(sizes, np.abs(rows + local.offsets).max(axis=0, initial=0.0))
            moved = np.maximum(moved, np.abs(states).max(axis=0, initial=0.0))
    if not np.isfinite(sizes).all():
        return sizes
    through = np.abs(coupled.solve_loop(coupled.D @ drive.spread)).sum(axis=1)
    terms = abs(coupled.C) @ moved + through + np.abs(local.offsets)
    return np.asarray(np.where(sizes > STILL * terms, sizes, 0.0))


def large_errors(
    local: LocalSystem,
    linear: LinearSystem,
    *,
    start: float,
    horizon: float,
    sizes: Array,
    beyond: float = math.inf,
) -> OutputErrors:
    """`output_errors` of a large system: some rows at a time, so that no table of all of them is kept.

    For whoever asks only whether errors stay below `beyond`, what follows after one of twice this size is left out.
    """
    if not np.isfinite(sizes).all():
        raise ConfigurationError(_beyond(local.linear.name, horizon))
    step, early, moving = linear.master.step, _read_early(linear.operations.timeline.clocks), sizes > 0
    steps, given, before = count_steps(horizon, step), sizes[moving], None
    names = [name for name, moves in zip(local.linear.outputs, moving, strict=True) if moves]
    largest, reached, squares, count = np.zeros(len(given)), given, np.zeros(len(given)), 0
    flow = (rows + local.offsets for rows, _ in _sparse_flow(local, local.coupled, step, start, steps))
    for rows, truth in zip(_stepped(linear, start, steps), _regrouped(flow, ROWS), strict=True):
        if not np.isfinite(truth).all():
            raise ConfigurationError(_beyond(local.linear.name, horizon))
        reached = np.maximum(reached, np.abs(truth).max(axis=0)[moving])
        apart = np.abs(rows + local.offsets - _as_read(local.linear, truth, early, before))[:, moving]
        before, count, shares = truth[-1], count + len(rows), apart / given
        if not (shares < OVERFLOWING).all():
            return OutputErrors(dict.fromkeys(names, math.inf), horizon, "predicted", math.inf, start=start)
        largest, squares = np.maximum(largest, apart.max(axis=0)), squares + (shares**2).sum(axis=0)
        if (largest > 2 * beyond * reached).any():
            break
    worst, squares = largest / reached, squares * (given / reached) ** 2
    typical = float(np.sqrt(squares.mean() / count)) if squares.size else 0.0
    return OutputErrors(dict(zip(names, worst.tolist(), strict=True)), horizon, "predicted", typical, start=start)


def _regrouped(parts: Iterable[Array], count: int) -> Iterator[Array]:
    """The same rows, so many at a time."""
    held: list[Array] = []
    for part in parts:
        held.append(part)
        while sum(map(len, held)) >= count:
            joined = np.concatenate(held)
            yield joined[:count]
            held = [joined[count:]]
    if rest := [part for part in held if len(part)]:
        yield np.concatenate(rest)
