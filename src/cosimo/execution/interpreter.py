"""The schedule executed on live units, in plain Python: readable, exact, the oracle for every faster way to run it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array, external_fit, output_values, product, shift_matrix
from cosimo.core.coupling import ModelCheck, Sampling
from cosimo.core.master import Joint, Segment, input_degree, mixer_of, mixer_offsets, segment
from cosimo.core.schedule import Convergence, Restore, Save
from cosimo.core.system import Constant, Inlet
from cosimo.core.timing import (
    TimedCouple,
    TimedOperation,
    TimedRead,
    TimedRepeat,
    TimedStep,
    settled_sweep,
    time_rounding,
)
from cosimo.core.unit import Text
from cosimo.execution.live import Live, Signals, end_requested, newton_correction

RANK = 1e-12  # a difference of residuals that is this close to the span of newer ones is left out of an acceleration
FILTER = 1e-8  # the same where differences outlast the macro step: what stands out less is rounding
Action = Callable[[int], None]  # one operation with its constants worked out; called with the number of the macro step


@dataclass(frozen=True)
class Saved:
    """All units and signals before macro step `k`, and, where macro steps vary, when samples were taken."""

    k: int
    states: dict[str, Any]
    y: dict[str, Array]
    c: dict[str, Array]
    w: list[Array]
    texts: dict[str, dict[str, Text | None]]
    stamps: Sequence[tuple[int, ...]] = ()
    read_at: Mapping[str, int] = field(default_factory=dict)


class Interpreter:
    """Executes the master's schedule on live units; the signals `y`, `c`, `w`, … are those of `live`, moved on."""

    def __init__(self, live: Live) -> None:
        self.live, self.system, self.master, self.instances = live, live.system, live.master, live.instances
        self.y, self.c, self.w, self.mixed, self.nodes = live.y, live.c, live.w, live.mixed, live.nodes
        self.checked = live.checked
        self.switches: list[tuple[int, int]] = []
        """Macro steps from which inputs are held, with the number of the check; −1: compensated again."""
        self.ends: dict[str, float] = {}
        """Units that want the run to end with this macro step, and how far they got; they are given no more inputs."""
        self.sweeps: list[int] = []
        self.residuals: list[float] = []
        self.span: tuple[float, float] | None = None
        """Where the macro step begins and ends, where these are not multiples of its length."""
        self.moved: set[str] = set()
        """Units that were stepped, since somebody cleared it."""
        self.ahead: set[str] = set()
        """Units that are already where their next step leads to."""
        self._saved: dict[str, tuple[Any, Array]] = {}
        self.accelerations: list[Acceleration] = []
        """Of the iteration until convergence, where there is one."""
        self._prepare()

    def _prepare(self) -> None:
        """Work out the constants of all operations."""
        self._actions = [self._action(operation) for operation in self.live.timeline.operations]

    def finer(self, parts: int) -> Interpreter:
        """An interpreter of the same live units and signals whose macro step is a fraction of this one's."""
        twin = copy.copy(self)
        twin.master = self.master.with_step(self.master.step / parts)
        twin._prepare()
        return twin

    def spanning(self, duration: float) -> Interpreter:
        """An interpreter of the same live units and signals whose macro step goes where its `span` says."""
        twin = copy.copy(self)
        twin.master = self.master.with_step(duration)
        twin._prepare()
        return twin

    def macro_step(self, k: int) -> None:
        """From t_k to t_{k+1}."""
        if self.checked and k > 0:
            self._check(k)
        for action in self._actions:
            action(k)

    def _check(self, k: int) -> None:
        """Compare the models with the last macro step, and decide whether inputs are compensated in the next."""
        state, wrong = self.checked[-1], -1
        for number, check in enumerate(self.master.checks):
            y = self.y[check.unit][list(check.places)]
            if not fits(check, self.checked[number], y, np.ravel(self.c[check.unit])[: check.width]) and wrong < 0:
                wrong = number
        state[1] = state[1] + 1.0 if wrong < 0 else 0.0
        if wrong >= 0 and not state[0]:
            state[0] = 1.0
            self.switches.append((k, wrong))
        elif state[0] and state[1] >= ModelCheck.AGAIN:
            state[0] = 0.0
            self.switches.append((k, -1))

    def save(self, k: int) -> Saved:
        """All that `restore` needs to make macro step `k` again."""
        states = {}
        for name, instance in self.instances.items():
            with self.live.guard(name, "saved", self.time(k, 0.0)):
                states[name] = instance.save()
        units = self.system.units
        texts = {n: {text: one.text(text) for text in units[n].text_outputs} for n, one in self.instances.items()}
        return Saved(k, states, dict(self.y), dict(self.c), [w.copy() for w in self.w], texts)

    def restore(self, saved: Saved) -> None:
        """Go on from there."""
        for name, instance in self.instances.items():
            with self.live.guard(name, "restored", self.time(saved.k, 0.0)):
                instance.restore(saved.states[name])
                if saved.texts[name]:
                    instance.take_back(self.time(saved.k, 0.0), saved.texts[name])
        self.ends.clear()
        self.y.update(saved.y)
        self.c.update(saved.c)
        self.w[:] = [w.copy() for w in saved.w]

    def signals(self) -> Signals:
        """All signals between units as they are now."""
        memories = [*self.w, *self.mixed.values(), *(np.ravel(nodes) for nodes in self.nodes), *self.checked]
        outputs, inputs = ({name: np.array(values) for name, values in found.items()} for found in (self.y, self.c))
        return Signals(outputs, inputs, np.concatenate([*memories, np.zeros(0)]))

    def memory(self) -> dict[str, Any]:
        """All that is remembered between macro steps outside of the units, as plain data."""
        live = self.live
        signals = {name: {k: np.array(v) for k, v in getattr(live, name).items()} for name in ("y", "c", "mixed")}
        lists = {name: [np.array(part) for part in getattr(live, name)] for name in ("w", "nodes", "checked")}
        lists["switches"] = [np.array(self.switches)]
        lists["differences"] = [np.array(step) for accelerate in self.accelerations for step in accelerate.lasting]
        return {**signals, **lists, "predictors": live.predictor_states(), "not_finite": dict(live.not_finite)}

    def load(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave; finer interpreters of the same signals see it too."""
        for name in ("y", "c", "mixed", "not_finite"):
            getattr(self.live, name).update(memory[name])
        for name in ("w", "nodes", "checked"):
            getattr(self.live, name)[:] = memory[name]
        self.switches[:] = [(int(k), int(number)) for k, number in memory["switches"][0].reshape(-1, 2)]
        for accelerate in self.accelerations:
            accelerate.differences = [(dy, df) for dy, df in memory["differences"]]
        self.live.load_predictors(memory["predictors"])

    def time(self, k: int, fraction: float) -> float:
        """t0 + (k + fraction)·h, by multiplication."""
        if self.span is not None:
            begin, end = self.span
            return end if fraction == 1 else begin + fraction * (end - begin)
        return self.live.start_time + (k + fraction) * self.master.step

    # ---- the operations ------------------------------------------------------------------------------------------

    def _action(self, operation: TimedOperation) -> Action:
        makers: dict[type, Callable[[Any], Action]] = {
            TimedCouple: self._couple, TimedStep: self._step, TimedRead: self._read,
            Save: self._save, Restore: self._restore, TimedRepeat: self._repeat,
        }  # fmt: skip
        return makers[type(operation)](operation)

    def _couple(self, operation: TimedCouple) -> Action:
        name, h = operation.unit, self.master.step
        if not operation.gives:
            return self._sample(operation)
        instance, unit = self.instances[name], self.system.units[name]
        samplings = iter(operation.samplings)
        shape = (input_degree(self.system, self.master, name) + 1, len(unit.inputs))
        mixer = self._mix(operation)
        predicted = self._predict(operation)
        together = {link.number for joint in self.live.joints for link in joint.links}
        columns = []
        for index, inlet in enumerate(self.system.inlets[name]):
            sampling = next(samplings) if inlet.link is not None else None
            if inlet.link is None or (mixer is None and inlet.link.number not in together):
                columns.append((index, self._column(inlet, operation, sampling)))
        time = float(operation.time)

        def act(k: int) -> None:
            c = np.zeros(shape)
            for index, column in columns:
                values = column(k)
                c[: len(values), index] = values
            if mixer is not None:
                mixer(c)
            for predict in predicted:
                predict(c)
            self.c[name] = c
            with self.live.guard(name, "given its inputs", self.time(k, time)):
                if name not in self.ends:
                    instance.set_input(c[: unit.input_degree + 1], h)

        return act

    def _sample(self, operation: TimedCouple) -> Action:
        links = zip(self.system.incoming(operation.unit), operation.samplings, strict=True)
        inlets = {inlet.link.number: inlet for inlet in self.system.inlets[operation.unit] if inlet.link is not None}
        columns = [self._column(inlets[link.number], operation, sampling) for link, sampling in links]

        def act(k: int) -> None:
            for column in columns:
                column(k)

        return act

    def _mix(self, operation: TimedCouple) -> Callable[[Array], None] | None:
        """Sets the connected inputs of a unit that has a mixer."""
        name = operation.unit
        mixer = mixer_of(self.system, self.master, name)
        if mixer is None:
            return None
        links = self.system.incoming(name)
        targets = [link.target.index for link in links]
        powers = mixer.degree + 1
        offsets = mixer_offsets(self.system, name, mixer, operation.time)
        update, uw = np.hstack([mixer.ww, mixer.wy]), mixer.uw_at(operation.time)

        def act(c: Array) -> None:
            self.mixed[name] = product(update, np.concatenate([self.mixed[name], self._join()]))
            if self.checked and self.checked[-1][0]:
                for link in links:
                    sample = self.y[link.source.unit][link.source.index]
                    c[0, link.target.index] = link.connection.gain * sample + link.connection.offset
            else:
                c[:powers, targets] = (product(uw, self.mixed[name]) + offsets).reshape(powers, -1)

        return act

    def _predict(self, operation: TimedCouple) -> list[Callable[[Array], None]]:
        """Sets the inputs of a unit that are predicted together (core/master.py)."""
        samplings = dict(zip(self.system.incoming(operation.unit), operation.samplings, strict=True))
        return [
            self._predict_joint(number, joint, segment(joint, samplings[joint.links[0]], operation.span))
            for number, joint in enumerate(self.live.joints)
            if joint.unit == operation.unit
        ]

    def _predict_joint(self, number: int, joint: Joint, place: Segment) -> Callable[[Array], None]:
        targets = [link.target.index for link in joint.links]
        sources = [link.source.index for link in joint.links]
        gains = np.array([link.connection.gain for link in joint.links])
        offsets = np.array([link.connection.offset for link in joint.links])
        actions, predictor = list(joint.actions), self.live.predictors[number]

        def act(c: Array) -> None:
            if place.fresh:
                x = gains * self.y[joint.source][sources] + offsets
                ahead = predictor.advance(x.tolist(), self.y[joint.unit][actions].tolist())
                self.nodes[number] = np.stack([self.nodes[number][1], x, ahead])
            before, now, ahead = self.nodes[number]
            begin, end = ((before, now), (now, ahead), (ahead, 2.0 * ahead - now))[place.node + 1]
            c[0, targets] = begin + place.phase * (end - begin)
            c[1, targets] = (end - begin) / place.period

        return act

    def _column(self, inlet: Inlet, operation: TimedCouple, sampling: Sampling | None) -> Callable[[int], Array]:
        """The coefficients of one input's polynomial."""
        coupling = self.master.coupling_of(inlet.target)
        if inlet.link is not None and sampling is not None:
            link, matrices = inlet.link, coupling.matrices(sampling)
            gain, offset = link.connection.gain, link.connection.offset
            identity, plain = link.connection.identity, matrices.plain

            def linked(k: int) -> Array:
                sample = self.y[link.source.unit][link.source.index]
                if not identity:
                    sample = gain * sample + offset
                if plain:
                    w = c = np.array([sample])
                else:
                    w = product(matrices.ww, self.w[link.number]) + matrices.ws[:, 0] * sample
                    c = product(matrices.uw, w)
                self.w[link.number] = w
                return c

            return linked
        if inlet.source is not None and not isinstance(inlet.source, Constant):
            source, (points, fit) = inlet.source, external_fit(coupling.degree, operation.span)
            times = [float(operation.time + point) for point in points]
            sample = partial(self.live.sample, inlet.target, source)
            return lambda k: product(fit, np.array([sample(self.time(k, t)) for t in times]))
        constant = np.array([inlet.start if inlet.source is None else inlet.source.value])
        return lambda k: constant

    def _step(self, operation: TimedStep) -> Action:
        name, h = operation.unit, self.master.step
        instance, unit = self.instances[name], self.system.units[name]
        time, duration = float(operation.time), float(operation.fraction) * h
        degree = input_degree(self.system, self.master, name)
        # A unit that takes fewer powers than the master forms is given, at each step, what it can take of them.
        cut = operation.given(degree, unit.input_degree)
        again = unit.input_degree < degree and (operation.offset > 0 or operation.projects)

        def act(k: int) -> None:
            if name in self.ahead:
                self.ahead.discard(name)
                return
            self.moved.add(name)
            with self.live.guard(name, "stepped", self.time(k, time)):
                if again:
                    instance.set_input(product(cut, self.c[name]), h)
                instance.step(self.time(k, time), duration)
                if instance.ended is not None:
                    self._end(name, instance.ended, k)

        return act

    def _end(self, name: str, end: float, k: int) -> None:
        """A unit that got to the end of the macro step, but for rounding, lets it be finished; as in the kernel."""
        begin, over = self.time(k, 0.0), self.time(k, 1.0)
        if end < over - time_rounding(begin, over, self.master.step):
            raise end_requested(name, end)
        self.ends[name] = end

    def _read(self, operation: TimedRead) -> Action:
        name, instance = operation.unit, self.instances[operation.unit]
        unit, h = self.system.units[name], self.master.step
        at, count = float(operation.time), len(unit.outputs)
        cut = shift_matrix(input_degree(self.system, self.master, name), operation.offset, keep=unit.input_degree)

        def act(k: int) -> None:
            with self.live.guard(name, "read", self.time(k, at)):
                if operation.again and name not in self.ends:
                    instance.set_input(product(cut, self.c[name]), h)
                self.y[name] = output_values(instance.read(), count)
            self.live.require_finite(name, self.time(k, at))

        return act

    def _save(self, operation: Save) -> Action:
        name, instance = operation.unit, self.instances[operation.unit]

        def act(k: int) -> None:
            with self.live.guard(name, "saved", self.time(k, 0.0)):
                self._saved[name] = (instance.save(), self.c[name])

        return act

    def _restore(self, operation: Restore) -> Action:
        name, instance = operation.unit, self.instances[operation.unit]

        def act(k: int) -> None:
            state, self.c[name] = self._saved[name]
            self.ends.pop(name, None)
            with self.live.guard(name, "restored", self.time(k, 0.0)):
                instance.restore(state)

        return act

    def _repeat(self, operation: TimedRepeat) -> Action:
        sweeps = [[self._action(inner) for inner in sweep] for sweep in operation.sweeps]

        def sweep(number: int, k: int) -> None:
            for action in sweeps[min(number, len(sweeps) - 1)]:
                action(k)

        if isinstance(operation.times, int):
            times = operation.times

            def fixed(k: int) -> None:
                for number in range(times):
                    sweep(number, k)

            return fixed
        until = operation.times
        accelerate = Acceleration(until, settled_sweep(self.system, self.master, operation), len(self.system.outputs))
        self.accelerations = [accelerate]
        return lambda k: self._iterate(until, accelerate, sweep, k)

    def _iterate(self, until: Convergence, accelerate: Acceleration, sweep: Callable[[int, int], None], k: int) -> None:
        accelerate.begin()
        y = self._join()
        residual = np.inf
        for number in range(until.limit):
            sweep(number, k)
            g = self._join()
            residual = float(np.abs(g - y).max()) / max(1.0, float(np.abs(g).max()))
            accelerate.observe(number, y, g)
            if residual <= until.tolerance:
                break
            if number + 1 < until.limit:
                y = accelerate.propose(y, g)
                self._split(y)
        self.sweeps.append(number + 1)
        self.residuals.append(residual)

    def _join(self) -> Array:
        return np.concatenate(list(self.y.values()))

    def _split(self, joined: Array) -> None:
        start = 0
        for name, y in self.y.items():
            self.y[name] = joined[start : start + len(y)]
            start += len(y)


def fits(check: ModelCheck, memory: Array, y: Array, c: Array) -> bool:
    """Whether the model foresaw the outputs `y` that the inputs `c` led to; too early to tell counts as yes."""
    p, n, m = len(check.places), check.samples, check.width
    last_y, last_c, dy, dc, sums = np.split(memory[1:], np.cumsum([p, m, n * p, n * m]))
    before = (*dy, *dc)
    change, drive = y - last_y, np.concatenate([c - last_c, dc])
    r2, q2, d2, peak = sums.reshape(4, p)
    peak[:] = np.maximum(peak, np.abs(y))
    good = True
    if memory[0] > n:
        driven = product(check.driven, drive) if m else np.zeros(p)
        r = change - product(check.own, dy) - driven
        fading, tolerated = check.FADING, check.TOLERATED
        r2[:], q2[:], d2[:] = fading * r2 + r * r, fading * q2 + driven * driven, fading * d2 + change * change
        room = tolerated * tolerated * q2 + check.share * check.share * d2
        floor = check.noise * peak
        good = bool((r2 <= room + floor * floor).all())
    dy[p:], dy[:p] = before[: (n - 1) * p], change
    dc[m:], dc[:m] = before[n * p : n * p + (n - 1) * m], drive[:m]
    last_y[:], last_c[:] = y, c
    memory[0] += 1.0
    return good


class Acceleration:
    """Acceleration of a fixed-point iteration y ← g(y) by the differences of earlier sweeps, up to `depth` of them.

    With residuals f_k = g(y_k) − y_k it minimises |f_k − ΔF γ| and returns g(y_k) − (ΔY + ΔF) γ. For an affine g of
    dimension n and depth ≥ n it is exact after n + 1 evaluations, also where plain substitution diverges.

    Anderson acceleration (type II) forgets the differences with the macro step. Quasi-Newton is the same least-squares
    model of the inverse Jacobian (IQN-ILS: Degroote, Bathe, Vierendeels, Comput. Struct. 87, 2009), with differences
    that last: those of older macro steps come last in the QR decomposition, and the ones that add nothing to the newer
    ones are deleted (the filter of Haelterman et al., Comput. Struct. 171, 2016). What is left of the residual beside
    ΔF γ follows the Jacobian J of a sweep where it is known:

        y_{k+1} = y_k − ΔY γ + (I − J)⁻¹ (f_k − ΔF γ),

    Newton's method where all of the residual is left, and the rule above for J = 0. Differences between the first
    sweeps of a macro step, which see samples of other times, belong to another g and are not kept.

    Every sum runs in a fixed order, so that the compiled kernel, which does the same, agrees to the last bit.
    """

    def __init__(self, until: Convergence, settled: int, size: int) -> None:
        self.depth, self.lasts = until.anderson or until.quasi_newton, until.quasi_newton > 0
        self.first = settled if self.lasts else 0  # the first sweep whose differences count
        self.correction = newton_correction(until, size)
        self.differences: list[tuple[Array, Array]] = []
        self._last: tuple[Array, Array] | None = None

    @property
    def lasting(self) -> list[tuple[Array, Array]]:
        """The differences that the next macro step begins with."""
        return self.differences if self.lasts else []

    def begin(self) -> None:
        """A new macro step."""
        self._last, self.differences = None, self.lasting

    def observe(self, number: int, y: Array, g: Array) -> None:
        """Take in sweep `number`, which gave g = g(y)."""
        if not self.depth or number < self.first:
            return
        residual = g - y
        if self._last is not None:
            self.differences = [(y - self._last[0], residual - self._last[1]), *self.differences][: self.depth]
        self._last = (y, residual)

    def propose(self, y: Array, g: Array) -> Array:
        """The next argument after g = g(y), which was observed."""
        if self._last is None or not (self.differences or self.correction.size):
            return g
        return self._correct(y, g)

    def _correct(self, y: Array, g: Array) -> Array:
        """Orthogonalise the differences, newest first, and solve the triangular system for γ."""
        rest = g - y
        q: list[Array] = []
        r: list[list[float]] = []
        right: list[float] = []
        kept: list[tuple[Array, Array]] = []
        for step in self.differences:
            column, entries = step[1], []
            size = math.sqrt(_dot(column, column))
            for direction in q:
                entries.append(_dot(direction, column))
                column = column - entries[-1] * direction
            length = math.sqrt(_dot(column, column))
            if not length > (FILTER if self.lasts else RANK) * size:
                continue
            column = column / length
            along = _dot(column, rest)
            rest = rest - along * column
            q.append(column)
            r.append([*entries, length])
            right.append(along)
            kept.append(step)
        gamma = [0.0] * len(q)
        for i in reversed(range(len(q))):
            value = right[i]
            for j in range(i + 1, len(q)):
                value = value - r[j][i] * gamma[j]
            gamma[i] = value / r[i][i]
        if self.lasts:
            self.differences = kept
        warm = self.correction.size > 0
        proposal = y + product(self.correction, rest) if warm else g
        for factor, (dy, df) in zip(gamma, kept, strict=True):
            proposal = proposal - factor * (dy if warm else dy + df)
        return proposal


def _dot(a: Array, b: Array) -> float:
    """The scalar product, added up from first to last."""
    return float(np.add.accumulate(a * b)[-1])
