"""The schedule executed on live units, in plain Python: readable, exact, the oracle for every faster way to run it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from cosimo.core.arrays import Array, output_values, product
from cosimo.core.coupling import Sampling
from cosimo.core.errors import CosimoError, EndRequested, NonFiniteError, RunError, UnitError
from cosimo.core.guarding import enter, go_back, here, leave
from cosimo.core.joint import Joint, Segment, joints, segment
from cosimo.core.master import Master
from cosimo.core.polynomial import external_fit, shift_matrix, value_row
from cosimo.core.result import Warned
from cosimo.core.schedule import Convergence, Restore, Save
from cosimo.core.signals import input_degree, mixer_of
from cosimo.core.sources import Source
from cosimo.core.system import Inlet, System
from cosimo.core.timing import TimedCouple, TimedOperation, TimedRead, TimedRepeat, TimedStep, timeline
from cosimo.core.unit import Instance
from cosimo.execution.anderson import Anderson
from cosimo.execution.initialisation import settle

SAME = 1e-12
"""Relative change of an output by the end of initialisation mode that is rounding."""
ROUNDING = 8
"""Units in the last place by which a unit may stay before the end of a macro step, and still have reached it."""
Action = Callable[[int], None]
"""One operation with its constants worked out; called with the number of the macro step."""


class Signals(NamedTuple):
    """All signals between units: per unit its outputs and its input polynomial, and the memories of all couplings."""

    outputs: dict[str, Array]
    inputs: dict[str, Array]
    memories: Array


class Interpreter:
    """Live units and the signals between them: outputs `y`, input polynomials `c`, coupling memories `w`."""

    def __init__(self, system: System, master: Master, start_time: float, *, tolerant: bool = False) -> None:
        self.system, self.master, self.start_time = system, master, start_time
        self.tolerant = tolerant
        """Whether values that are not finite are only noted, by the name of the output: the first time, and which."""
        self.not_finite: dict[str, tuple[float, float]] = {}
        self.timeline = timeline(system, master)
        self.instances: dict[str, Instance] = {}
        self.ends: dict[str, float] = {}
        """Units that want the run to end with this macro step, and how far they got; they are given no more inputs."""
        self._notices: dict[str, float] = {}
        try:
            for name, unit in system.units.items():
                with self._guard(name, "instantiated", start_time):
                    self.instances[name] = unit.instantiate(start_time)
        except BaseException:
            self.close()
            raise
        self.y: dict[str, Array] = {}
        self.c: dict[str, Array] = {}
        self.w: list[Array] = []
        self.mixed: dict[str, Array] = {}
        self.joints = joints(system, master)
        self.predictors: list[Any] = []
        self.nodes: list[Array] = []
        self.sweeps: list[int] = []
        self.residuals: list[float] = []
        self._saved: dict[str, tuple[Any, Array]] = {}
        self._prepare()

    def _prepare(self) -> None:
        """Work out the constants of all operations."""
        self.predictors = [joint.coupling.predictor(joint, self._period(joint)) for joint in self.joints]
        self._actions = [self._action(operation) for operation in self.timeline.operations]
        clocks = self.timeline.clocks.items()
        self._input_rows = {n: value_row(input_degree(self.system, self.master, n), c.now) for n, c in clocks}

    def _period(self, joint: Joint) -> float:
        """Seconds between the samples that a predictor sees."""
        couples = (op for op in self.timeline.operations if isinstance(op, TimedCouple) and op.unit == joint.unit)
        place = self.system.incoming(joint.unit).index(joint.links[0])
        return segment(joint, next(couples).samplings[place]).period * self.master.step

    def finer(self, parts: int) -> Interpreter:
        """An interpreter of the same live units and signals whose macro step is a fraction of this one's."""
        twin = copy.copy(self)
        twin.master = self.master.with_step(self.master.step / parts)
        twin._prepare()
        return twin

    def initialise(self) -> None:
        """Consistent outputs at the start, and coupling memories filled as if signals had been constant before."""
        guess = {}
        for name, unit in self.system.units.items():
            values = np.array([unit.start.get(variable, 0.0) for variable in unit.inputs], dtype=float)
            guess[name] = self._evaluate(name, values)
        settled = settle(self.system, guess, lambda name, y: self._evaluate(name, self._connected(name, y)))
        for name in self.system.units:
            self.y[name] = self._evaluate(name, self._connected(name, settled))
            self._require_finite(name, self.start_time)
        for name, instance in self.instances.items():
            with self._guard(name, "initialised", self.start_time):
                instance.finish_initialisation()
        self._read_again()
        for name, unit in self.system.units.items():
            self.c[name] = np.zeros((input_degree(self.system, self.master, name) + 1, len(unit.inputs)))
            self.c[name][0] = self._connected(name, self.y)
        self.mixed.update((name, mixer.start) for name, mixer in self.master.mixers.items())
        for joint in self.joints:
            now = self.c[joint.unit][0, [link.target.index for link in joint.links]]
            self.nodes.append(np.tile(now, (3, 1)))
        for link in self.system.links:
            history = self.master.coupling_of(link.connection.target).history
            self.w.append(np.full(history, self.c[link.target.unit][0, link.target.index]))

    def _read_again(self) -> None:
        """Outputs of some FMUs are valid only after initialisation mode has ended: take them, and pass them on."""
        now = {}
        for name, unit in self.system.units.items():
            with self._guard(name, "read", self.start_time):
                now[name] = output_values(self.instances[name].read(), len(unit.outputs))
        changed = [
            f"{name}.{variable}"
            for name, unit in self.system.units.items()
            for variable, old, new in zip(unit.outputs, self.y[name], now[name], strict=True)
            if not abs(new - old) <= SAME * max(abs(new), abs(old))
        ]
        if any(instance.ended is not None for instance in self.instances.values()):
            self.y.update(now)  # there is no step to pass them on for
            return
        if not changed:
            return
        settled = settle(self.system, now, lambda name, y: self._evaluate(name, self._connected(name, y)))
        for name in self.system.units:
            self.y[name] = self._evaluate(name, self._connected(name, settled))
            self._require_finite(name, self.start_time)
        shown = f"{', '.join(changed[:3])}{' …' if len(changed) > 3 else ''}"
        said = f"{shown} changed when initialisation mode ended; the new values were passed on"
        self._notices.setdefault(said, self.start_time)

    def last_row(self, row: Array, names: Sequence[str], asked: EndRequested) -> Array | None:
        """The row at the time at which a unit ended the simulation within a macro step, after the last `row`.

        It has the outputs of this unit then; all else is as it was. None where the unit got no further than `row`.
        """
        unit = asked.unit
        if unit is None or asked.end - row[0] <= ROUNDING * math.ulp(max(abs(asked.end), abs(row[0]))):
            return None
        outputs = self.system.units[unit].outputs
        try:
            with self._guard(unit, "read", asked.end):
                values = output_values(self.instances[unit].read(), len(outputs))
        except RunError:
            return None
        if not np.isfinite(values).all():
            return None
        last = row.copy()
        last[0] = asked.end
        last[[1 + names.index(f"{unit}.{output}") for output in outputs]] = values
        return last

    def macro_step(self, k: int) -> None:
        """From t_k to t_{k+1}."""
        for action in self._actions:
            action(k)

    def inputs(self) -> list[float]:
        """The values of all inputs at the end of the macro step."""
        return [
            v for name in self.system.units for v in product(self._input_rows[name][None, :], self.c[name])[0].tolist()
        ]

    def outputs(self) -> list[float]:
        """The values of all outputs."""
        return [v for name in self.system.units for v in self.y[name].tolist()]

    def told(self) -> list[float]:
        """What predictors say of themselves: which expert is in charge, and the last error."""
        return [value for predictor in self.predictors for value in (float(predictor.expert), predictor.error)]

    def learned(self) -> list[dict[str, Any]]:
        """The models that predictors hold now, as plain data: x_{k+1} = S z_k + b, z = [x; u] of one sample or more."""
        found = []
        for joint, predictor in zip(self.joints, self.predictors, strict=True):
            samples, S, b = predictor.model()
            outputs = self.system.units[joint.unit].outputs
            found.append(
                {
                    "unit": joint.unit,
                    "source": joint.source,
                    "inputs": [link.connection.target for link in joint.links],
                    "actions": [f"{joint.unit}.{outputs[place]}" for place in joint.actions],
                    "samples": samples,
                    "S": np.reshape(S, (len(joint.links), -1)).tolist(),
                    "b": list(b),
                    "experts": list(predictor.experts),
                }
            )
        return found

    def signals(self) -> Signals:
        """All signals between units as they are now."""
        memories = [*self.w, *self.mixed.values(), *(np.ravel(nodes) for nodes in self.nodes)]
        outputs, inputs = ({name: np.array(values) for name, values in found.items()} for found in (self.y, self.c))
        return Signals(outputs, inputs, np.concatenate([*memories, np.zeros(0)]))

    def memory(self) -> dict[str, Any]:
        """All that is remembered between macro steps outside of the units, as plain data."""
        signals = {name: {k: np.array(v) for k, v in getattr(self, name).items()} for name in ("y", "c", "mixed")}
        lists = {name: [np.array(part) for part in getattr(self, name)] for name in ("w", "nodes")}
        return {**signals, **lists, "predictors": self.predictor_states(), "not_finite": dict(self.not_finite)}

    def load(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave; finer interpreters of the same signals see it too."""
        for name in ("y", "c", "mixed", "not_finite"):
            getattr(self, name).update(memory[name])
        for name in ("w", "nodes"):
            getattr(self, name)[:] = memory[name]
        self.load_predictors(memory["predictors"])

    def predictor_states(self) -> list[Array]:
        """All that predictors remember."""
        return [np.array(predictor.save()) for predictor in self.predictors]

    def load_predictors(self, states: list[Array]) -> None:
        """Put back what `predictor_states` gave."""
        for predictor, state in zip(self.predictors, states, strict=True):
            predictor.restore(state.tolist())

    def serialise(self, name: str, time: float) -> bytes:
        """The state of a unit as bytes."""
        with self._guard(name, "serialised", time):
            return self.instances[name].serialise()

    def deserialise(self, name: str, data: bytes, time: float) -> None:
        """Continue a unit from its state as bytes."""
        with self._guard(name, "given a state", time):
            self.instances[name].deserialise(data)

    def notices(self, time: float) -> list[Warned]:
        """What the user should know of the start, and what units were kept from until `time`."""
        for name, instance in self.instances.items():
            for told in getattr(instance, "notices", ()):
                self._notices.setdefault(f"unit '{name}' {told}", time)
        return [Warned(text, at) for text, at in self._notices.items()]

    def close(self, time: float | None = None) -> None:
        """Release all units, which have reached `time`; raises the first of what went wrong in that."""
        failure: RunError | None = None
        time = self.start_time if time is None else time
        self.notices(time)
        for name, instance in self.instances.items():
            try:
                with self._guard(name, "terminated", time):
                    instance.close()
            except RunError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def time(self, k: int, fraction: float) -> float:
        """t0 + (k + fraction)·h, by multiplication."""
        return self.start_time + (k + fraction) * self.master.step

    # ---- the operations ------------------------------------------------------------------------------------------

    def _action(self, operation: TimedOperation) -> Action:
        match operation:
            case TimedCouple():
                return self._couple(operation)
            case TimedStep():
                return self._step(operation)
            case TimedRead():
                return self._read(operation)
            case Save():
                return self._save(operation)
            case Restore():
                return self._restore(operation)
            case TimedRepeat():
                return self._repeat(operation)

    def _couple(self, operation: TimedCouple) -> Action:
        name, h = operation.unit, self.master.step
        instance, unit = self.instances[name], self.system.units[name]
        samplings = iter(operation.samplings)
        shape = (input_degree(self.system, self.master, name) + 1, len(unit.inputs))
        mixer = self._mix(operation)
        predicted = self._predict(operation)
        together = {link.number for joint in self.joints for link in joint.links}
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
            with self._guard(name, "given its inputs", self.time(k, time)):
                if name not in self.ends:
                    instance.set_input(c[: unit.input_degree + 1], h)

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
        offsets = np.array([link.connection.offset for link in links] + [0.0] * (mixer.degree * len(links)))
        update, uw = np.hstack([mixer.ww, mixer.wy]), mixer.uw_at(operation.time)

        def act(c: Array) -> None:
            self.mixed[name] = product(update, np.concatenate([self.mixed[name], self._join()]))
            c[:powers, targets] = (product(uw, self.mixed[name]) + offsets).reshape(powers, -1)

        return act

    def _predict(self, operation: TimedCouple) -> list[Callable[[Array], None]]:
        """Sets the inputs of a unit that are predicted together (core/joint.py)."""
        samplings = dict(zip(self.system.incoming(operation.unit), operation.samplings, strict=True))
        return [
            self._predict_joint(number, joint, segment(joint, samplings[joint.links[0]]))
            for number, joint in enumerate(self.joints)
            if joint.unit == operation.unit
        ]

    def _predict_joint(self, number: int, joint: Joint, place: Segment) -> Callable[[Array], None]:
        targets = [link.target.index for link in joint.links]
        sources = [link.source.index for link in joint.links]
        gains = np.array([link.connection.gain for link in joint.links])
        offsets = np.array([link.connection.offset for link in joint.links])
        actions, predictor = list(joint.actions), self.predictors[number]

        def act(c: Array) -> None:
            if place.fresh:
                x = gains * self.y[joint.source][sources] + offsets
                ahead = predictor.advance(x, self.y[joint.unit][actions])
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
        if inlet.source is not None:
            source, (points, fit) = inlet.source, external_fit(coupling.degree, operation.span)
            times = [float(operation.time + point) for point in points]
            return lambda k: product(fit, np.array([self.sample(inlet.target, source, self.time(k, t)) for t in times]))
        constant = np.array([inlet.start])
        return lambda k: constant

    def _step(self, operation: TimedStep) -> Action:
        name, h = operation.unit, self.master.step
        instance, unit = self.instances[name], self.system.units[name]
        time, duration = float(operation.time), float(operation.fraction) * h
        degree = input_degree(self.system, self.master, name)
        # A unit that takes fewer powers than the master forms is given, at each step, what it can take of them.
        cut = shift_matrix(degree, operation.offset, keep=unit.input_degree)
        again = unit.input_degree < degree and operation.offset > 0

        def act(k: int) -> None:
            with self._guard(name, "stepped", self.time(k, time)):
                if again:
                    instance.set_input(product(cut, self.c[name]), h)
                instance.step(self.time(k, time), duration)
                if instance.ended is not None:
                    self._end(name, instance.ended, k)

        return act

    def _end(self, name: str, end: float, k: int) -> None:
        """A unit that got to the end of the macro step, but for rounding, lets it be finished; as in the kernel."""
        begin, over = self.time(k, 0.0), self.time(k, 1.0)
        near = min(ROUNDING * math.ulp(max(abs(begin), abs(over))), 0.01 * self.master.step)
        if end < over - near:
            raise end_requested(name, end)
        self.ends[name] = end

    def _read(self, operation: TimedRead) -> Action:
        name, instance = operation.unit, self.instances[operation.unit]
        unit, h = self.system.units[name], self.master.step
        at, count = float(operation.time), len(unit.outputs)
        cut = shift_matrix(input_degree(self.system, self.master, name), operation.offset, keep=unit.input_degree)

        def act(k: int) -> None:
            with self._guard(name, "read", self.time(k, at)):
                if operation.again and name not in self.ends:
                    instance.set_input(product(cut, self.c[name]), h)
                self.y[name] = output_values(instance.read(), count)
            self._require_finite(name, self.time(k, at))

        return act

    def _save(self, operation: Save) -> Action:
        name, instance = operation.unit, self.instances[operation.unit]

        def act(k: int) -> None:
            with self._guard(name, "saved", self.time(k, 0.0)):
                self._saved[name] = (instance.save(), self.c[name])

        return act

    def _restore(self, operation: Restore) -> Action:
        name, instance = operation.unit, self.instances[operation.unit]

        def act(k: int) -> None:
            state, self.c[name] = self._saved[name]
            self.ends.pop(name, None)
            with self._guard(name, "restored", self.time(k, 0.0)):
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
        return lambda k: self._iterate(until, sweep, k)

    def _iterate(self, until: Convergence, sweep: Callable[[int, int], None], k: int) -> None:
        accelerate = Anderson(until.anderson)
        y = self._join()
        residual = np.inf
        for number in range(until.limit):
            sweep(number, k)
            g = self._join()
            residual = float(np.abs(g - y).max()) / max(1.0, float(np.abs(g).max()))
            if residual <= until.tolerance:
                break
            if number + 1 < until.limit:
                y = accelerate.propose(y, g)
                self._split(y)
        self.sweeps.append(number + 1)
        self.residuals.append(residual)

    # ---- small parts ---------------------------------------------------------------------------------------------

    def _join(self) -> Array:
        return np.concatenate(list(self.y.values()))

    def _split(self, joined: Array) -> None:
        start = 0
        for name, y in self.y.items():
            self.y[name] = joined[start : start + len(y)]
            start += len(y)

    def _connected(self, name: str, y: dict[str, Array]) -> Array:
        """The unit's inputs at the start, from outputs, external sources and start values."""
        values = []
        for inlet in self.system.inlets[name]:
            if inlet.link is not None:
                connection, source = inlet.link.connection, inlet.link.source
                values.append(connection.gain * y[source.unit][source.index] + connection.offset)
            elif inlet.source is not None:
                values.append(self.sample(inlet.target, inlet.source, self.start_time))
            else:
                values.append(inlet.start)
        return np.array(values, dtype=float)

    def sample(self, target: str, source: Source, time: float) -> float:
        """The value of an external input; the function behind it is the user's, so it may fail in any way."""
        try:
            value = float(source(time))
        except Exception as error:
            raise RunError(
                f"the external input {target} failed at t = {time:g}: {type(error).__name__}: {error}."
            ) from error
        if not math.isfinite(value):
            raise NonFiniteError(f"the external input {target} became {value} at t = {time:g}; give finite values.")
        return value

    def _evaluate(self, name: str, inputs: Array) -> Array:
        with self._guard(name, "initialised", self.start_time):
            self.instances[name].set_input(inputs[None, :], self.master.step)
            return output_values(self.instances[name].read(), len(self.system.units[name].outputs))

    def _require_finite(self, name: str, time: float) -> None:
        y = self.y[name]
        if not np.isfinite(y).all():
            variable = self.system.units[name].outputs[int(np.argmin(np.isfinite(y)))]
            if self.tolerant:
                for output, value in zip(self.system.units[name].outputs, y.tolist(), strict=True):
                    if not math.isfinite(value):
                        self.not_finite.setdefault(f"{name}.{output}", (time, value))
                return
            raise non_finite(name, variable, float(y[~np.isfinite(y)][0]), time)

    @contextmanager
    def _guard(self, name: str, doing: str, time: float) -> Iterator[None]:
        """Turn whatever a unit raises into an error that names the unit and the time, and undo a change of folder.

        Paths of units that come later, and of files, may be relative.
        """
        folder = here()
        try:
            enter(name, PHASES.get(doing, doing), time)
            yield
        except CosimoError as error:
            raise named(error, name, time, doing) from error.__cause__
        except Exception as error:
            raise unit_failed(name, doing, time, error) from error
        finally:
            leave()
            go_back(folder)


def non_finite(name: str, variable: str, value: float, time: float) -> NonFiniteError:
    """The error for an output that is not a number any more."""
    return NonFiniteError(
        f"{name}.{variable} became {value} at t = {time:g}; `cosimo analyse` tells whether the coupling is unstable at "
        f"this step size."
    ).locate(unit=name, phase="get", time=time, variable=variable)


def end_requested(name: str, end: float) -> EndRequested:
    """A unit wants the simulation to end before the macro step is over."""
    asked = EndRequested(f"unit '{name}' ended the simulation at t = {end:g}; stop the run before.", end)
    return asked.locate(unit=name, phase="doStep", time=end)


PHASES = {
    "instantiated": "instantiate",
    "initialised": "initialise",
    "given its inputs": "set",
    "stepped": "doStep",
    "read": "get",
    "saved": "save",
    "restored": "restore",
    "serialised": "serialise",
    "given a state": "deserialise",
    "terminated": "terminate",
}
"""What was done to a unit, and what this phase of a run is called in reports of errors."""


def named(error: CosimoError, name: str, time: float, doing: str) -> CosimoError:
    """The same error, saying which unit of the system it comes from, when, and what was done to it."""
    if isinstance(error, RunError):
        error.locate(unit=name, phase=PHASES.get(doing, doing), time=time, cause=str(error))
    if f"unit '{name}'" not in str(error):
        when = "" if " t = " in str(error) else f" at t = {time:g}"
        error.args = (f"unit '{name}'{when}: {error}", *error.args[1:])
    return error


def unit_failed(name: str, doing: str, time: float, error: Exception) -> UnitError:
    """The error for whatever a unit raised."""
    said = " ".join(str(error).split())  # one line
    detail = f"{type(error).__name__}: {said}" if said else type(error).__name__
    failed = UnitError(f"unit '{name}' failed at t = {time:g} while being {doing}: {detail}.")
    return failed.locate(unit=name, phase=PHASES.get(doing, doing), time=time, cause=detail)
