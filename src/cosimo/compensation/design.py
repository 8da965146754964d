"""The design: gains of all units, a start on the target, and the eigenvalues that come of it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from cosimo.algebra.product import LinearSystem
from cosimo.analysis.linearisation import LocalSystem
from cosimo.analysis.model import Model
from cosimo.analysis.spectrum import Spectrum
from cosimo.compensation.assessment import Compensation
from cosimo.compensation.target import SMALL, SOLVED, Gains, TargetMotion, tick_pattern
from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, value_row
from cosimo.core.coupling import Coupling, Mixer, ModelCheck
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import step_text
from cosimo.core.master import Master, input_degree
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, TimedRead, TimedStep, timeline
from cosimo.couplings import Hold
from cosimo.masters import Target
from cosimo.units.linear import DEGREE, ForwardEuler, LinearUnit, SymplecticEuler

ROOM = 2 * 2**30
"""Most memory in bytes that the matrices of all compensated units may need: as a desktop computer has it to spare."""
CALM = 0.9
"""What a design adds should decay at least this much per macro step; otherwise another one is tried."""


@checked
def compensate(
    system: System,
    master: Master,
    *,
    target: Target = "monolithic",
    start: float = 0.0,
    horizon: float | None = None,
    model: Model | None = None,
) -> Compensation:
    """Correct the inputs so that the co-simulation follows `target`; an error says why the signals do not suffice.

    Units whose equations are not known are identified at `start`, at the step of the master, or taken from `model`: the
    design uses their models, a run the units themselves, once per macro step. Pilot runs over `horizon` seconds confirm
    it.
    """
    if master.mixers:
        raise ConfigurationError(f"master {master.name} is compensated already; give the plain one.")
    _require_room(system)
    pattern = tick_pattern(system, timeline(system, master).operations)
    if all(isinstance(unit, LinearUnit) for unit in system.units.values()):
        return _best(system, TargetMotion(system, master, target), target)
    _require_continuous(system)
    if pattern.ticks > 1:
        raise ConfigurationError(
            f"master {master.name} steps units several times in a macro step, at which identified models cannot be "
            "checked; use jacobi, gauss-seidel or groups."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        model = model or Model(system, step=master.step, start=start, horizon=horizon)
        if model.known:  # linear model-exchange FMUs: the run steps them, so that they are identified like any FMU
            model = Model(system, step=master.step, start=start, horizon=horizon, means="experiments")
    local = _identified(model, master.step, target)
    path = TargetMotion(local.linear, master, target)
    found = _best(system, path, target)
    checked = replace(found.master, checks=model_checks(local, path, found.master))
    return replace(found, master=local.inside(checked, -1.0), model=model)


def _require_continuous(system: System) -> None:
    """Outputs that are not continuous are held: on the target they stay what they are."""
    for link in system.links:
        taker = system.units[link.target.unit]
        if taker.inputs[link.target.index] in taker.discrete_inputs:
            raise ConfigurationError(
                f"input '{link.connection.target}' is not continuous, and a compensation corrects continuous inputs "
                "only; leave this system as it is, or join the units that exchange it."
            )


def _identified(model: Model, step: float, target: str) -> LocalSystem:
    """The linear units in place of the real ones; refused where one could not be identified or failed its checks."""
    wrong = [f"unit '{unit.name}': {unit.error or '; '.join(unit.reasons)}" for unit in model.units if not unit.valid]
    if wrong or model.failure:
        raise ConfigurationError(
            f"'{model.system.name}' cannot be compensated at {step_text(step)}: "
            f"{(wrong or [str(model.failure)])[0].rstrip('.')}. A compensation needs a linear model of every unit; try "
            "another step size, or splitting (master strang)."
        )
    local = model.local_at(step)
    if target != "converged" and not local.continuous:
        raise ConfigurationError(
            f"the units of '{model.system.name}' have no continuous model at {step_text(step)}, which target "
            f"'{target}' needs; use target 'converged', or a shorter step."
        )
    return local


def _best(system: System, path: TargetMotion, target: str) -> Compensation:
    before = Spectrum(path.linear)
    best: Compensation | None = None
    # With few samples and insensitive to external forces where that is stable; otherwise more samples, or without.
    for insensitive, more in ((True, 0), (True, 1), (False, 0), (False, 1), (False, 2)):
        found = _design(system, path, target, before, insensitive=insensitive, more=more)
        if best is None or found.latent_radius < best.latent_radius:
            best = found
        if best.latent_radius < CALM:
            break
    assert best is not None
    return best


def _require_room(system: System) -> None:
    """Refuse, before anything is allocated, designs whose memories would not fit.

    Every compensated unit remembers up to `LEVELS` samples of all q connected outputs and `Start.STEPS` corrections of
    them; its matrix F^ww is square in that.
    """
    outputs = len({(link.source.unit, link.source.index) for link in system.links})
    units = sum(bool(system.incoming(name)) for name in system.units)
    slots = (LEVELS + Start.STEPS) * outputs
    bytes_ = 8 * units * slots**2
    if bytes_ > ROOM:
        raise ConfigurationError(
            f"compensating {units} units with {outputs} connected outputs may need {bytes_ / 2**30:.3g} GiB of memory "
            f"({slots} numbers remembered per unit), and {ROOM / 2**30:g} GiB is the limit. Compensate a part of the "
            f"system by itself, or join units that may be stepped together."
        )


def _design(
    system: System, path: TargetMotion, target: str, before: Spectrum, *, insensitive: bool, more: int
) -> Compensation:
    """One choice of gains for all units, and what becomes of the eigenvalues."""
    master = path.master
    solved = {name: unit_gains(path, name, insensitive, more) for name in system.units if system.incoming(name)}
    gains = {name: solution.gains for name, solution in solved.items()}
    mixers, couplings = Start(path, gains).mixers(), _external(path, target)
    compensated = replace(master, name=f"{master.name}+{target}", mixers=mixers, couplings=couplings)
    return Compensation(
        master=compensated,
        target=target,
        levels={name: solution.count for name, solution in solved.items()},
        residual=max((solution.residual for solution in solved.values()), default=0.0),
        gains=gains,
        path=path,
        before=before,
        after=Spectrum(LinearSystem(path.system, compensated)),
        system=system,
    )


def _external(path: TargetMotion, target: str) -> dict[str, Coupling]:
    """The couplings of the master; an exact solution also wants external inputs as they are throughout the step."""
    couplings = dict(path.master.couplings)
    for name, unit in path.units.items():
        if target == "exact" and not isinstance(unit.integrator, SymplecticEuler | ForwardEuler):
            couplings |= {inlet.target: Hold(DEGREE) for inlet in path.system.inlets[name] if inlet.source is not None}
    return couplings


# ---- the gains of one unit: one linear equation per coupling, solved with the smallest change of the hold ------------


LEVELS = 8
"""Most samples of a signal that a correction may use."""
CAUTIONS = (1e-7, 1e-4, 1e-2)
"""μ: how much errors of the samples may count, compared with external pushes, when gains are chosen against these."""
MODEST = 5.0
"""How much larger gains may become for the sake of external pushes; where they would, errors of samples count more."""


@dataclass(frozen=True)
class Solution:
    """K of one unit for each of its couplings in a macro step, on `count` samples of all connected outputs.

    Columns: the present samples, then those of the coupling before, …; `residual` of K Σ = U, relative; `amplified`:
    how large the terms of the sum are, compared with the inputs.
    """

    gains: tuple[Array, ...]
    count: int
    residual: float
    amplified: float


def unit_gains(path: TargetMotion, name: str, insensitive: bool, more: int) -> Solution:
    """With as few samples as solve K Σ = U, plus `more`, or one beyond where that passes less rounding errors on."""
    found: list[Solution] = []
    for count in range(1, LEVELS + 1):
        positions = range(len(path.pattern.seen[name]))
        parts = [_solution(path, name, position, count, insensitive) for position in positions]
        solved = [part for part in parts if part is not None]
        if len(solved) == len(parts):
            gains, residuals, sizes = zip(*solved, strict=True)
            found.append(Solution(gains, count, max(residuals), max(sizes)))
        if len(found) == 2 + more:
            break
    if not found:
        raise ConfigurationError(
            f"unit '{name}' cannot be compensated: {LEVELS} samples of the connected outputs "
            f"{', '.join(path.system.outputs[i] for i in path.used)} do not determine its inputs on the target; "
            f"connect more outputs."
        )
    choice = found[more:] or found[-1:]
    least = min(solution.amplified for solution in choice)
    # Among equally calm ones the longest: it averages over more samples.
    return [solution for solution in choice if solution.amplified <= 2 * least][-1]


def _solution(
    path: TargetMotion, name: str, position: int, count: int, insensitive: bool
) -> tuple[Array, float, float] | None:
    """K of one coupling, its residual, and how much it amplifies; None where K Σ = U has no solution."""
    U = path.U[name][path.connected(name, path.degree(name))] @ path.lasting * path.scale
    S, S_e = _levels(path, name, position, count)
    S = S @ path.lasting * path.scale
    hold = np.zeros((len(U), len(S)))
    plain = path.hold(name)
    hold[: len(plain), : len(path.used)] = plain
    scale = np.linalg.norm(S, axis=1)
    scale[scale == 0] = 1.0
    sized, missing = S / scale[:, None], U - hold @ S
    change = missing @ np.linalg.pinv(sized, rcond=SMALL)
    # Inputs have different units of measure: each is compared with itself.
    size = np.maximum(np.abs(U).max(axis=1), np.abs(hold @ S).max(axis=1))
    size[size == 0] = 1.0
    if (np.abs(missing - change @ sized).max(axis=1) > SOLVED * size).any():
        return None
    K = hold + change / scale
    # What is left free are combinations that vanish on the target: they are used against external forces.
    left, sizes, _ = np.linalg.svd(sized)
    free = left[:, int((sizes > SMALL * sizes.max(initial=0.0)).sum()) :].T
    if insensitive and len(free) and S_e.shape[1]:
        K = K + _calmed(K * scale, free, S_e / scale[:, None]) / scale
    return K, float((np.abs(K @ S - U).max(axis=1) / size).max()), float((np.abs(K * scale).max(axis=1) / size).max())


def _levels(path: TargetMotion, name: str, position: int, count: int) -> tuple[Array, Array]:
    """Σ on ξ at the coupling, and the same samples on external pushes, which arrive at the ends of units' steps.

    ξ(t + 1) = F ξ(t) + Σ_i G_i e_i(t + 1), with e_i where a step of unit i ends.
    """
    span, turns = path.pattern.spans[name], len(path.pattern.seen[name])
    seen = [
        {offset - level * span: part for offset, part in path.terms(name, (position - level) % turns).items()}
        for level in range(count)
    ]
    offsets = [offset for terms in seen for offset in terms] or [0]
    low, high = min(0, *offsets), max(0, *offsets)
    arrivals = [
        (tick, unit)
        for tick in range(low + 1, high + 1)
        for unit in path.units
        if (tick + position * span) % path.pattern.spans[unit] == 0
    ]
    columns, width = {}, path.n
    for arrival in arrivals:
        columns[arrival] = slice(width, width := width + path.pushes[arrival[1]].shape[1])
    states = {0: np.hstack([np.eye(path.n), np.zeros((path.n, width - path.n))])}

    def pushed(tick: int) -> Array:
        total = np.zeros((path.n, width))
        for (at, unit), part in columns.items():
            if at == tick:
                total[:, part] = path.pushes[unit]
        return total

    for tick in range(1, high + 1):
        states[tick] = path.tick @ states[tick - 1] + pushed(tick)
    for tick in range(-1, low - 1, -1):
        states[tick] = path.back @ (states[tick + 1] - pushed(tick + 1))
    none = np.zeros((len(path.used), width))
    rows = np.vstack([sum((part @ states[offset] for offset, part in terms.items()), none) for terms in seen])
    return rows[:, : path.n], rows[:, path.n :]


def _calmed(K: Array, free: Array, S_e: Array) -> Array:
    """The change Z · free that makes ‖(K + Z · free) S_e‖² + μ² ‖Z · free‖² least.

    The first is what external pushes do to the inputs, the second what errors of the samples do through the change.
    """
    change = np.zeros_like(K)
    for caution in CAUTIONS:
        both = free @ np.hstack([S_e, caution * np.eye(len(S_e))])
        change = np.hstack([-K @ S_e, np.zeros_like(K)]) @ np.linalg.pinv(both, rcond=SMALL) @ free
        if np.linalg.norm(K + change) <= MODEST * np.linalg.norm(K):
            break
    return change


# ---- how a compensated run begins, so that it is on its target from the first macro step on --------------------------


class Start:
    """The first steps: memories as if the target had run before, and what outputs and inputs lack of it at the start.

    At the start outputs agree with inputs at once, while later they lag; and the exact target's velocities differ from
    the given ones. Both are made up for by corrections that are used once each in the first couplings.
    """

    STEPS = 4

    def __init__(self, path: TargetMotion, gains: dict[str, Gains]) -> None:
        self.path, self.gains = path, gains
        self.lacking: dict[str, list[tuple[Array, Array]]] = {name: [] for name in gains}
        self._walk()

    def _walk(self) -> None:
        path, n, ticks = self.path, self.path.n, self.path.pattern.ticks
        state = {name: np.eye(n)[part] for name, part in path.place.items()}
        given = {name: np.zeros_like(U) if name in self.gains else U for name, U in path.U.items()}
        rows = np.split(path.outputs, np.cumsum([len(u.outputs) for u in path.units.values()])[:-1])
        outputs = dict(zip(path.units, rows, strict=True))
        for begin in range(0, self.STEPS * ticks, ticks):
            for operation in path.operations:
                assert isinstance(operation, TimedCouple | TimedStep | TimedRead), "others were refused before"
                name, now = operation.unit, begin + int(operation.time * ticks)
                step, model = path.discrete[name], path.units[name].model
                B = step.B[:, : len(path.U[name])]
                if isinstance(operation, TimedCouple) and name in self.gains:
                    span, links = path.pattern.spans[name], path.connected(name, path.degree(name))
                    seen = np.vstack(list(outputs.values()))[path.used]
                    position = (now - begin) // span
                    given[name] = path.U[name] @ path.flow(now)
                    wanted = path.X[name] @ path.flow(now + span) - step.A @ state[name] - B @ given[name]
                    push = np.linalg.pinv(B[:, links], rcond=SMALL) @ wanted
                    given[name][links] += push
                    self.lacking[name].append((path.samples(name, position) @ path.flow(now) - seen, push))
                elif isinstance(operation, TimedStep):
                    state[name] = step.A @ state[name] + B @ given[name]
                elif isinstance(operation, TimedRead):
                    powers = value_row(path.degree(name), operation.offset + operation.elapsed)
                    value = np.kron(powers, np.eye(len(path.units[name].inputs))) @ given[name]
                    outputs[name] = model.C @ state[name] + model.D @ value

    def mixers(self) -> dict[str, Mixer]:
        """The mixer of every compensated unit."""
        return {name: self._mixer(name, gains) for name, gains in self.gains.items()}

    def _mixer(self, name: str, gains: Gains) -> Mixer:
        path, span = self.path, self.path.pattern.spans[name]
        q, (m, width), n = len(path.used), gains[0].shape, path.n
        count, turns = width // q, len(gains)
        S = [path.samples(name, position) for position in range(turns)]
        # Without the last ones that are nothing but rounding.
        least = 1e-10 * float(np.abs(S).max()), 1e-10 * float(np.abs(path.U[name]).max())
        lacking = self.lacking[name]
        if turns == 1 and not np.array_equal(path.lasting, np.eye(n)):
            lacking = [(sample, push + self._missed(name, use, gains[0])) for use, (sample, push) in enumerate(lacking)]
        while lacking and all(np.abs(x).max(initial=0.0) <= y for x, y in zip(lacking[-1], least, strict=True)):
            lacking = lacking[:-1]
        steps = len(lacking)
        # Slots: samples, newest first; corrections of samples and of inputs, next first; the input's correction now.
        late, push, now = count * q, (count + steps) * q, (count + steps) * q + steps * m
        size = now + m
        ww, wy, start = np.zeros((size, size)), np.zeros((size, len(path.system.outputs))), np.zeros((size, n))
        for row, output in enumerate(path.used):
            wy[row, output] = 1.0
        ww[q:late, : late - q] = np.eye(late - q)
        for level in range(count):
            earlier = S[-(level + 1) % turns] @ path.flow(-(level + 1) * span)
            start[level * q : (level + 1) * q] = earlier
        if steps:
            ww[:q, late : late + q] = np.eye(q)
            ww[late : push - q, late + q : push] = np.eye(push - q - late)
            ww[push : now - m, push + m : now] = np.eye(now - m - push)
            ww[now:, push : push + m] = np.eye(m)
            for j, (sample, extra) in enumerate(lacking):
                start[late + j * q : late + (j + 1) * q] = sample
                start[push + j * m : push + (j + 1) * m] = extra
        uw = [np.hstack([K, np.zeros((m, now - late)), np.eye(m) if steps else np.zeros((m, m))]) for K in gains]
        x0 = np.concatenate([unit.initial_state for unit in path.units.values()])
        rest = start[:, -1]
        moments = [Fraction(turn * span, path.pattern.ticks) for turn in range(turns)]
        later = dict(zip(moments[1:], uw[1:], strict=True))
        inputs = tuple(link.connection.target for link in path.system.incoming(name))
        mixer = Mixer(
            ww, wy, uw[0], start[:, :-1] @ x0, start[:, :-1], path.degree(name), later, path.system.outputs, inputs
        )
        constants = {
            moment: self._constant(name, turn, K) for turn, (moment, K) in enumerate(zip(moments, gains, strict=True))
        }
        if not rest.any() and not any(constant.any() for constant in constants.values()):
            return mixer
        return replace(mixer, start=mixer.start + rest, start_rest=rest, constants=constants)

    def _missed(self, name: str, use: int, K: Array) -> Array:
        """U less what the gains make of the samples at one of the first uses, which show modes that will be gone."""
        path, span = self.path, self.path.pattern.spans[name]
        S, now = path.samples(name), use * span
        seen = [S @ path.flow(now - level * span) for level in range(K.shape[1] // len(path.used))]
        missed: Array = path.U[name][path.connected(name, path.degree(name))] @ path.flow(now) - K @ np.vstack(seen)
        constant = self._constant(name, 0, K)
        constant[: len(path.system.incoming(name))] += [link.connection.offset for link in path.system.incoming(name)]
        missed[:, -1] -= constant
        return missed

    def _constant(self, name: str, turn: int, K: Array) -> Array:
        """k with K σ + k = U on the target where that is affine, less the offsets that connections bring anyway."""
        path, span = self.path, self.path.pattern.spans[name]
        turns, links = len(path.pattern.seen[name]), path.system.incoming(name)
        seen = [
            path.samples(name, (turn - level) % turns) @ path.flow(-level * span)
            for level in range(K.shape[1] // len(path.used))
        ]
        rest = path.lasting[:, -1]
        found: Array = path.U[name][path.connected(name, path.degree(name))] @ rest - K @ np.vstack(seen) @ rest
        found[: len(links)] -= [link.connection.offset for link in links]
        return found


# ---- checks of identified models while the compensated master runs: innovations, one step ahead, of every unit -------
# Changes from one macro step to the next obey the model without its constants: Δx' = A Δx + B Δc, Δy = C Δx' + D Δc.
# N changes of the outputs, stacked, are Y = O Δx + T c; the state follows by least squares, then the next change,
#
#     y_N = o Δx + t c ≈ o O⁺ Y + (t − o O⁺ T) c
#
# With N about twice the number of states, errors of single samples are not amplified much.


MOST_SAMPLES = 32
"""Changes of outputs from which the next one is foreseen, at most."""
SAFETY, MOST_SHARE = 10.0, 0.3
"""How much larger than the errors that identification found innovations may be; and what part of Δy at most, so that a
compensation is worth more than the hold, whose error is Δy."""
ROUNDING = 1e-11
"""Part of the largest output that innovations may be by rounding."""
CUT = 1e-9
"""Relative size of singular values of O that are cut off: what outputs hardly show."""


def model_checks(local: LocalSystem, path: TargetMotion, master: Master) -> tuple[ModelCheck, ...]:
    """One check for every identified unit whose outputs are connected."""
    found = []
    for name, identified in local.units.items():
        unit = path.units[name]
        connected = {path.system.outputs[place] for place in path.used}
        connected -= {f"{name}.{output}" for output in identified.source.discrete_outputs}
        places = tuple(i for i, output in enumerate(unit.outputs) if f"{name}.{output}" in connected)
        if identified.means == "known" or not places:
            continue
        late = any(isinstance(op, TimedRead) and op.unit == name and op.elapsed > 0 for op in path.operations)
        degree = min(input_degree(path.system, master, name), unit.input_degree)
        samples = min(2 * max(1, identified.order), MOST_SAMPLES)
        own, driven = _foresight(path, name, list(places), degree, samples, late=late)
        error = max(identified.fit, identified.linear, identified.invariant)
        share = np.full(len(places), min(SAFETY * error, MOST_SHARE))
        noise = ROUNDING * (1 + np.abs(own).sum(axis=1))
        found.append(ModelCheck(name, places, (degree + 1) * len(unit.inputs), samples, own, driven, share, noise))
    return tuple(found)


def _foresight(
    path: TargetMotion, name: str, places: list[int], degree: int, samples: int, *, late: bool
) -> tuple[Array, Array]:
    """a (p, N p) and b (p, (N + 1) m) of a unit, newest first."""
    unit, n = path.units[name], len(path.units[name].model.A)
    m = len(unit.inputs)
    width = (degree + 1) * m
    A, B = path.discrete[name].A, path.discrete[name].B[:, :width]
    powers = value_row(degree, 1 if late else 0)
    C, D = unit.model.C[places], unit.model.D[places] @ np.kron(powers, np.eye(m))
    state = np.hstack([np.eye(n), np.zeros((n, (samples + 1) * width))])
    rows = []
    for step in range(samples + 1):
        given = np.zeros((width, state.shape[1]))
        given[:, n + step * width : n + (step + 1) * width] = np.eye(width)
        after = A @ state + B @ given
        rows.append(C @ (after if late else state) + D @ given)
        state = after
    seen, ahead = np.vstack(rows[:-1]), rows[-1]
    own = ahead[:, :n] @ np.linalg.pinv(seen[:, :n], rcond=CUT)
    driven = ahead[:, n:] - own @ seen[:, n:]
    p = len(places)
    newest_first = np.concatenate([np.arange(j * p, (j + 1) * p) for j in reversed(range(samples))])
    inputs = np.concatenate([np.arange(j * width, (j + 1) * width) for j in reversed(range(samples + 1))])
    return own[:, newest_first], driven[:, inputs]
