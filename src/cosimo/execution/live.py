"""Live units: the instances of a run, their initialisation, and the signals with which both engines begin.

Consistent outputs at the start satisfy u = L y + b and y = g(x, u) at once (glumac2018, Eqs. 34, 52). Without an
algebraic loop one pass in the order of dependence settles it. On a loop the fixed-point iteration is used where it
contracts (conditions 50, 51); where it does not, Newton's method on the outputs of the loop. When even that has no
solution, det(I − D L) = 0, and the error names the variables on the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from cosimo.core.arrays import Array, loop_is_singular, output_values, product, value_row
from cosimo.core.errors import (
    AlgebraicLoopError,
    ConfigurationError,
    CosimoError,
    EndRequested,
    NonFiniteError,
    RunError,
    UnitCrashed,
    UnitError,
)
from cosimo.core.guarding import copies_ended, copies_text, enter, go_back, here, leave
from cosimo.core.master import Joint, Master, input_degree, joints, sample_period
from cosimo.core.result import Warned
from cosimo.core.schedule import Convergence
from cosimo.core.system import Source, System
from cosimo.core.timing import TimedCouple, time_rounding, timeline
from cosimo.core.unit import EventMode, Instance, Text

SAME = 1e-12  # relative change of an output by the end of initialisation mode that is rounding


class Signals(NamedTuple):
    """All signals between units: per unit its outputs and its input polynomial, and the memories of all couplings."""

    outputs: dict[str, Array]
    inputs: dict[str, Array]
    memories: Array


class Live:
    """The instances of a system's units, and the signals with which a run begins once `initialise` was called.

    Outputs `y` and input polynomials `c` by unit, memories `w` of the couplings by link, `mixed` of the mixers by unit,
    and `nodes` of the predictors. An engine takes these and goes on: the interpreter changes them in place, the kernel
    has copies of its own.
    """

    def __init__(self, system: System, master: Master, start_time: float, *, tolerant: bool = False) -> None:
        self.system, self.master, self.start_time = system, master, start_time
        self.tolerant = tolerant
        """Whether values that are not finite are only noted, by the name of the output: the first time, and which."""
        self.not_finite: dict[str, tuple[float, float]] = {}
        self.timeline = timeline(system, master)
        self.instances: dict[str, Instance] = {}
        self._notices = {f"unit '{name}' {u.notice}": start_time for name, u in system.units.items() if u.notice}
        try:
            for name, unit in system.units.items():
                with self.guard(name, "instantiated", start_time):
                    self.instances[name] = unit.instantiate(start_time)
        except BaseException:
            self.close()
            raise
        for name in system.units:
            links = [link for link in system.text_links if link.target[0] == name]
            sources = {link.target[1]: partial(self.instances[link.source[0]].text, link.source[1]) for link in links}
            self.instances[name].take_texts(sources)
        self.events: dict[str, EventMode] = {}
        """Units that meet at events, where some are connected by clocks."""
        for name, instance in self.instances.items() if system.clock_links else ():
            joined = instance.join_events([link.target[1] for link in system.clock_links if link.target[0] == name])
            if joined is not None:
                self.events[name] = joined
        self.settled: dict[str, Array] = {}
        """The outputs from which the inputs in initialisation mode were formed."""
        self.y: dict[str, Array] = {}
        self.c: dict[str, Array] = {}
        self.w: list[Array] = []
        self.mixed: dict[str, Array] = {}
        self.checked: list[Array] = []
        self.nodes: list[Array] = []
        self.joints = joints(system, master)
        self.periods = [self._period(joint) for joint in self.joints]
        self.predictors = [j.coupling.predictor(j, period) for j, period in zip(self.joints, self.periods, strict=True)]
        clocks = self.timeline.clocks.items()
        self.input_rows = {n: value_row(input_degree(system, master, n), clock.now) for n, clock in clocks}
        """By unit the row that evaluates its input polynomial at the end of the macro step."""

    def _period(self, joint: Joint) -> float:
        """Seconds between the samples that a predictor sees."""
        couples = (op for op in self.timeline.operations if isinstance(op, TimedCouple) and op.unit == joint.unit)
        place = self.system.incoming(joint.unit).index(joint.links[0])
        return float(sample_period(next(couples).samplings[place])) * self.master.step

    def initialise(self) -> None:
        """Consistent outputs at the start, and coupling memories filled as if signals had been constant before."""
        guess = {}
        for name, unit in self.system.units.items():
            guess[name] = self._evaluate(name, unit.start_inputs)
        self._settle(guess)
        for name, instance in self.instances.items():
            with self.guard(name, "initialised", self.start_time):
                instance.finish_initialisation()
        self._read_again()
        for name, unit in self.system.units.items():
            self.c[name] = np.zeros((input_degree(self.system, self.master, name) + 1, len(unit.inputs)))
            self.c[name][0] = self.connected(name, self.y)
        self.mixed.update((name, mixer.start) for name, mixer in self.master.mixers.items())
        self.checked += [np.zeros(check.size) for check in self.master.checks]
        self.checked += [np.zeros(2)] if self.master.checks else []  # whether inputs are held, and for how long all fit
        for joint in self.joints:
            now = self.c[joint.unit][0, [link.target.index for link in joint.links]]
            self.nodes.append(np.tile(now, (3, 1)))
        for link in self.system.links:
            history = self.master.coupling_of(link.connection.target).history
            self.w.append(np.full(history, self.c[link.target.unit][0, link.target.index]))

    def _settle(self, guess: dict[str, Array]) -> None:
        """Make the outputs consistent with the inputs formed from them."""
        settled = settle(self.system, guess, lambda name, y: self._evaluate(name, self.connected(name, y)))
        self.settled = self.settled or settled
        for name in self.system.units:
            self.y[name] = self._evaluate(name, self.connected(name, settled))
            self.require_finite(name, self.start_time)

    def _read_again(self) -> None:
        """Outputs of some FMUs are valid only after initialisation mode has ended: take them, and pass them on."""
        now = {}
        for name, unit in self.system.units.items():
            with self.guard(name, "read", self.start_time):
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
        self._settle(now)
        shown = f"{', '.join(changed[:3])}{' …' if len(changed) > 3 else ''}"
        said = f"{shown} changed when initialisation mode ended; the new values were passed on"
        self._notices.setdefault(said, self.start_time)

    def connected(self, name: str, y: dict[str, Array], time: float | None = None) -> Array:
        """The unit's inputs at `time` (the start), from outputs, external sources and start values."""
        values = []
        for inlet in self.system.inlets[name]:
            if inlet.link is not None:
                connection, source = inlet.link.connection, inlet.link.source
                values.append(connection.gain * y[source.unit][source.index] + connection.offset)
            elif inlet.source is not None:
                values.append(self.sample(inlet.target, inlet.source, self.start_time if time is None else time))
            else:
                values.append(inlet.start)
        return np.array(values, dtype=float)

    def _evaluate(self, name: str, inputs: Array) -> Array:
        with self.guard(name, "initialised", self.start_time):
            self.instances[name].set_input(inputs[None, :], self.master.step)
            return output_values(self.instances[name].read(), len(self.system.units[name].outputs))

    def require_finite(self, name: str, time: float) -> None:
        y = self.y[name]
        if not np.isfinite(y).all():
            variable = self.system.units[name].outputs[int(np.argmin(np.isfinite(y)))]
            if self.tolerant:
                for output, value in zip(self.system.units[name].outputs, y.tolist(), strict=True):
                    if not math.isfinite(value):
                        self.not_finite.setdefault(f"{name}.{output}", (time, value))
                return
            raise non_finite(name, variable, float(y[~np.isfinite(y)][0]), time)

    def time(self, k: int, fraction: float) -> float:
        """t0 + (k + fraction)·h, by multiplication."""
        return self.start_time + (k + fraction) * self.master.step

    def sample(self, target: str, source: Source, time: float) -> float:
        """The value of an external input; the function behind it is the user's, so it may fail in any way."""
        try:
            value = float(source(time))
        except (Exception, SystemExit) as error:
            raise RunError(
                f"the external input {target} failed at t = {time:g}: {type(error).__name__}: {error}."
            ) from error
        if not math.isfinite(value):
            raise NonFiniteError(f"the external input {target} became {value} at t = {time:g}; give finite values.")
        return value

    def outputs(self) -> list[float]:
        """The values of all outputs."""
        return [v for name in self.system.units for v in self.y[name].tolist()]

    def inputs(self) -> list[float]:
        """The values of all inputs at the end of the macro step."""
        return [
            v for name in self.system.units for v in product(self.input_rows[name][None, :], self.c[name])[0].tolist()
        ]

    def texts(self, times: Array) -> list[list[Text]]:
        """The text outputs of all units at the times of rows, which are asked for in order."""
        units = self.system.units
        return [texts for name in units if units[name].text_outputs for texts in self.instances[name].texts_at(times)]

    def told(self) -> list[float]:
        """What predictors say of themselves: which expert is in charge, and the last error."""
        return [value for predictor in self.predictors for value in (float(predictor.expert), predictor.error)]

    def row(self, time: float, names: Sequence[str]) -> list[float]:
        """Time, outputs, inputs where `names` has them, and what predictors say, in the order of `names`."""
        told = self.told()
        inputs = self.inputs() if len(names) > len(self.system.outputs) + len(told) else []
        return [time, *self.outputs(), *inputs, *told]

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
                    "held": predictor.watch[1],
                }
            )
        return found

    def last_row(self, row: Array, names: Sequence[str], asked: EndRequested) -> Array | None:
        """The row at the time at which a unit ended the simulation within a macro step, after the last `row`.

        It has the outputs of this unit then; all else is as it was. None where the unit got no further than `row`.
        """
        unit = asked.unit
        if unit is None or asked.end - row[0] <= time_rounding(row[0], asked.end):
            return None
        outputs = self.system.units[unit].outputs
        try:
            with self.guard(unit, "read", asked.end):
                values = output_values(self.instances[unit].read(), len(outputs))
        except RunError:
            return None
        if not np.isfinite(values).all():
            return None
        last = row.copy()
        last[0] = asked.end
        last[[1 + names.index(f"{unit}.{output}") for output in outputs]] = values
        return last

    def predictor_states(self) -> list[Array]:
        """All that predictors remember."""
        return [np.array(predictor.save()) for predictor in self.predictors]

    def load_predictors(self, states: list[Array]) -> None:
        """Put back what `predictor_states` gave."""
        for predictor, state in zip(self.predictors, states, strict=True):
            predictor.restore(state.tolist())

    def states(self, time: float, names: Iterable[str] | None = None) -> dict[str, bytes]:
        """The states of units (default: all) as bytes."""
        found = {}
        for name in self.instances if names is None else names:
            with self.guard(name, "serialised", time):
                found[name] = self.instances[name].serialise()
        return found

    def load_states(self, states: Mapping[str, bytes], time: float) -> None:
        """Continue units from their states as bytes."""
        for name, state in states.items():
            with self.guard(name, "given a state", time):
                self.instances[name].deserialise(state)

    def notices(self, time: float) -> list[Warned]:
        """What the user should know of the start, and what units were kept from until `time`."""
        for name, instance in self.instances.items():
            for told in instance.notices:
                self._notices.setdefault(f"unit '{name}' {told}", time)
        count, name = copies_ended()
        if count:
            self._notices[f"unit '{name}' {copies_text(count)}"] = time
        return [Warned(text, at) for text, at in self._notices.items()]

    def close(self, time: float | None = None) -> None:
        """Release all units, which have reached `time`; raises the first of what went wrong in that."""
        failure: RunError | None = None
        time = self.start_time if time is None else time
        self.notices(time)
        for name, instance in self.instances.items():
            try:
                with self.guard(name, "terminated", time):
                    instance.close()
            except RunError as error:
                failure = failure or error
        self.notices(time)  # some have said what went wrong at their end
        if failure is not None:
            raise failure

    @contextmanager
    def guard(self, name: str, doing: str, time: float) -> Iterator[None]:
        """Turn whatever a unit raises into an error that names the unit and the time, and undo a change of folder.

        Paths of units that come later, and of files, may be relative.
        """
        folder = here()
        try:
            enter(name, PHASES.get(doing, doing), time)
            yield
        except CosimoError as error:
            raise named(error, name, time, doing) from error.__cause__
        except (Exception, SystemExit) as error:
            raise unit_failed(name, doing, time, error) from error
        finally:
            leave()
            go_back(folder)


def newton_correction(until: Convergence, outputs: int) -> Array:
    """(I − J)⁻¹, which turns a residual into Newton's correction; empty where the Jacobian J is not known."""
    if not until.jacobian:
        return np.zeros((0, 0))
    J = np.array(until.jacobian)
    if len(J) != outputs:
        raise ConfigurationError(
            f"the Jacobian of the iteration has {len(J)} rows, and the system {outputs} outputs; compute it anew."
        )
    if loop_is_singular(J, 1e-12):
        raise ConfigurationError(
            "the Jacobian of the iteration has an eigenvalue 1, so that it has no fixed point; use a smaller step."
        )
    return np.linalg.inv(np.eye(outputs) - J)


# ---- errors of units, in the same words by both engines --------------------------------------------------------------


def non_finite(name: str, variable: str, value: float, time: float) -> NonFiniteError:
    """The error for an output that is not a number any more."""
    return NonFiniteError(
        f"{name}.{variable} became {value} at t = {time:g}; `cosimo analyse` tells whether the coupling is unstable "
        "at this step size."
    ).locate(unit=name, phase="get", time=time, variable=variable)


def end_requested(name: str, end: float) -> EndRequested:
    """A unit wants the simulation to end before the macro step is over."""
    asked = EndRequested(f"unit '{name}' ended the simulation at t = {end:g}; set an earlier stop time.", end)
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


def unit_failed(name: str, doing: str, time: float, error: Exception | SystemExit) -> RunError:
    """The error for whatever a unit raised; one that calls `sys.exit` would end the run as if all were well."""
    if isinstance(error, SystemExit):
        detail = f"it called exit({'' if error.code is None else error.code})"
        failed: RunError = UnitCrashed(
            f"unit '{name}' ended at t = {time:g} while being {doing}: {detail}; let it raise an exception instead."
        )
    else:
        said = " ".join(str(error).split())  # one line
        detail = f"{type(error).__name__}: {said}" if said else type(error).__name__
        failed = UnitError(f"unit '{name}' failed at t = {time:g} while being {doing}: {detail}.")
    return failed.locate(unit=name, phase=PHASES.get(doing, doing), time=time, cause=detail)


# ---- consistent outputs at the start ---------------------------------------------------------------------------------

SWEEPS = 50  # fixed-point sweeps on a loop before Newton takes over
DIVERGED = 10.0  # how much larger than the smallest change so far a change may be before substitution is given up
NEWTON = 20
HALVINGS = 10  # of a Newton step that does not make the residual smaller
TOLERANCE = 1e-13

Evaluate = Callable[[str, dict[str, Array]], Array]  # set the unit's inputs from all outputs, and read its outputs


def settle(system: System, outputs: dict[str, Array], evaluate: Evaluate) -> dict[str, Array]:
    """Outputs that agree with the inputs formed from them; `outputs` is the first guess."""
    order = order_of_dependence(system)

    def sweep(guess: dict[str, Array]) -> dict[str, Array]:
        settled = dict(guess)
        for name in order:
            settled[name] = evaluate(name, settled)
        return settled

    loops = system.loops()
    nearest, smallest = outputs, np.inf
    for _ in range(SWEEPS if loops else len(order) + 1):
        settled = sweep(outputs)
        if not all(np.isfinite(y).all() for y in settled.values()):
            return settled  # Not a matter of solving: a unit gives it, and the caller names the variable.
        change = _largest({name: settled[name] - outputs[name] for name in settled})
        if change <= TOLERANCE * max(1.0, _largest(settled)):
            if not loops:
                return settled
            nearest = settled
            break
        if loops and change > DIVERGED * smallest:
            break  # Before the numbers grow beyond what the units can bear.
        if change < smallest:
            nearest, smallest = outputs, change
        outputs = settled
    return _newton(system, nearest, sweep, loops)


def _largest(values: dict[str, Array]) -> float:
    return max([0.0, *(float(np.abs(y).max()) for y in values.values() if y.size)])


Evaluated = tuple[Array, dict[str, Array], Array]
"""Outputs on loops, all outputs after one sweep with them, and by what the sweep changed those on loops."""


def _newton(
    system: System,
    outputs: dict[str, Array],
    sweep: Callable[[dict[str, Array]], dict[str, Array]],
    loops: list[tuple[str, ...]],
) -> dict[str, Array]:
    """Newton on r(y) = sweep(y) − y, with the Jacobian by differences in the outputs that are on loops.

    A step that does not make the residual smaller is halved, as far as that helps: a saturation or a square root leads
    the full step astray. Where nothing helps, the full step is taken: rounding decides then.

    Where substitution has found a solution already, this only makes sure that it is the only one near: a system at rest
    satisfies also a loop with det(I − D L) = 0.
    """
    names = [name for loop in loops for name in loop] or list(system.outputs)
    where = [system.output(name) for name in names]

    def pick(values: dict[str, Array]) -> Array:
        return np.array([values[v.unit][v.index] for v in where])

    def put(values: dict[str, Array], numbers: Array) -> dict[str, Array]:
        changed = {name: y.copy() for name, y in values.items()}
        for v, number in zip(where, numbers, strict=True):
            changed[v.unit][v.index] = number
        return changed

    def evaluated(y: Array) -> Evaluated:
        swept = sweep(put(outputs, y))
        return y, swept, pick(swept) - y

    def derivative(y: Array, swept: dict[str, Array]) -> Array:
        increment = 1e-4 * np.maximum(1.0, np.abs(y))
        columns = [
            (pick(sweep(put(outputs, y + step * unit))) - pick(swept)) / step
            for step, unit in zip(increment, np.eye(len(y)), strict=True)
        ]
        return np.column_stack(columns)

    y, swept, residual = evaluated(pick(outputs))
    for _ in range(NEWTON):
        if not np.isfinite(residual).all():
            return swept
        gain = derivative(y, swept)
        if not np.isfinite(gain).all():
            break
        if loop_is_singular(gain, 1e-10):
            raise AlgebraicLoopError.singular(names)
        if np.abs(residual).max() <= TOLERANCE * max(1.0, float(np.abs(y).max())):
            return swept
        update = np.linalg.solve(np.eye(len(y)) - gain, residual)
        full = evaluated(y + update)
        # A loop of large gain magnifies the rounding of y in its residual, but not in the update.
        if np.abs(update).max() <= TOLERANCE * max(1.0, float(np.abs(full[0]).max())):
            return put(full[1], full[0])
        parts = (evaluated(y + update / 2**halving) for halving in range(1, HALVINGS + 1))
        y, swept, residual = _damped(full, parts, float(np.abs(residual).max()))
    raise AlgebraicLoopError(
        f"the outputs on the algebraic loop {', '.join(names)} could not be solved for at the start in {NEWTON} Newton "
        f"steps (residual {float(np.abs(residual).max()):.1e}); give start values nearer to the solution."
    )


def _damped(full: Evaluated, parts: Iterator[Evaluated], size: float) -> Evaluated:
    """The full Newton step, or the first of its halves, quarters, … with a residual below `size`; or the full one."""
    return next((tried for tried in chain([full], parts) if float(np.abs(tried[2]).max()) < size), full)


def order_of_dependence(system: System) -> list[str]:
    """Units so that, loops apart, every unit comes after those whose outputs reach it through feedthrough."""
    waits = {
        name: {link.source.unit for link in system.incoming(name) if unit.feedthrough()[:, link.target.index].any()}
        - {name}
        for name, unit in system.units.items()
    }
    for link in system.text_links:
        waits[link.target[0]] |= {link.source[0]} - {link.target[0]}
    order: list[str] = []
    state: dict[str, int] = {}
    for root in waits:
        stack = [root]
        while stack:
            name = stack[-1]
            if state.get(name) is None:
                state[name] = 0
                stack += [other for other in sorted(waits[name]) if other not in state]
                continue
            stack.pop()
            if state[name] == 0:
                state[name] = 1
                order.append(name)
    return order
