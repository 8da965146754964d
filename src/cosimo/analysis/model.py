"""What is known of a system before it is run: linear models of all units, how far they hold, and errors of masters.

Units whose equations are known are taken as they are. Others are identified at the start of the run (in
`identification`); where their models pass their own checks and hold over the whole motion, the coupling is analysed as
that of linear units. A model that failed a check is used for nothing: then only runs are believed
(`cosimo.analysis.pilots`). `analyse`, `tune`, `compare` and the report all ask the same model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from cosimo.algebra.product import LinearSystem, dense
from cosimo.analysis.equations import tolerances, with_equations
from cosimo.analysis.identification import Identified, Means
from cosimo.analysis.large import LargePoles, LargeSpectrum
from cosimo.analysis.limits import INSTANT, SAME, apart, find_base, responses
from cosimo.analysis.linearisation import (
    Linearisation,
    LocalSystem,
    Situation,
    UnitReport,
    at_start,
    known_unit,
    unit_report,
)
from cosimo.analysis.pilots import USUAL, Budget, Pilots, Report, limit
from cosimo.analysis.spectrum import SHAPES_UP_TO, MasterStability, Spectrum, converges, sweep_factor, sweep_jacobian
from cosimo.analysis.stability import IDENTIFIED, find_rest, grows
from cosimo.analysis.trust import TARGET
from cosimo.analysis.truth import (
    OutputErrors,
    Truth,
    cosimulated,
    count_steps,
    default_horizon,
    exact_truth,
    large_errors,
    output_errors,
    output_sizes,
    undivided,
    undivided_at,
    worst_start_errors,
)
from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import AlgebraicLoopError, ConfigurationError, CosimoError, IdentificationError
from cosimo.core.formatting import percent
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Repeat
from cosimo.core.system import System
from cosimo.execution.options import Adaptive
from cosimo.units.fmi import first_trials

STEPS = 1000
"""Parts of the horizon that units are identified at unless a step is known."""
HALVINGS = 5
"""How often the step of identification is halved to see what the units' own solvers tend to."""
ENOUGH = 0.02
"""Part of the error by which the truth may still move when that step is halved."""
COARSER = 1.5
"""How much longer than the master's the first step may be at which the truth is looked for."""


AT_REST = "'{}' is at rest and has no external inputs, so nothing would move; give it nonzero initial states."


@dataclass(frozen=True)
class Measured:
    """What a run gave: the `errors`, the `seconds` that the stepping took, and when it `diverged`, None if it did not.

    `reference_error` is how wrong, relative, the reference may be: 0 for the exact solution.
    """

    errors: OutputErrors
    seconds: float
    diverged: float | None = None
    reference_error: float = 0.0

    @property
    def error(self) -> float:
        """Of the worst output."""
        return self.errors.worst if self.errors.outputs else math.nan


@partial(checked, owner="analyse")
@dataclass(frozen=True)
class AnalysisOptions:
    """The options of an analysis: `analyse` and `Model` take these as keywords, or one such object.

    The run begins at `start` and lasts `horizon` seconds (None: derived from the slowest mode). `target` is the
    acceptable error. `at` requests verdicts at these times of a reference run too, `along` at that many times.
    `means` prescribes how units are identified, where they offer it; `pilots` permits runs of the coupling itself,
    within `budget`, reported to `progress`. Without `details`, only trust, stability and error are computed. With
    `adaptive`, the verdict is that of a run whose steps are chosen by it.
    """

    horizon: float | None = None
    start: float = 0.0
    target: float = TARGET
    at: Sequence[float] = ()
    along: int | None = None
    means: Means | None = None
    pilots: bool = True
    budget: Budget | None = None
    details: bool = True
    progress: Report | None = None
    adaptive: Adaptive | None = None

    def __post_init__(self) -> None:
        if self.along is not None and self.along < 2:
            raise ConfigurationError(f"a verdict along a run needs at least two times, not {self.along}.")
        for time in self.at:
            if not math.isfinite(time):
                raise ConfigurationError(f"an operating point needs a finite time, not {time}.")
        if not self.target > 0:
            raise ConfigurationError(f"the target error must be a positive fraction, not {self.target}.")
        if self.horizon is not None and not (math.isfinite(self.horizon) and self.horizon > 0):
            raise ConfigurationError(f"the horizon must be a positive number of seconds, not {self.horizon}.")


class Model:
    """`system` from `start` on, over `horizon` seconds; units are identified at `step`, or near it.

    Without `identify` only runs are made of units whose equations are not known, and a horizon is needed. `failure`
    says why there is no linear picture of the coupled system, empty where there is one; `valid` whether it can be
    believed.
    """

    def __init__(
        self,
        system: System,
        *,
        step: float | None = None,
        identify: bool = True,
        options: AnalysisOptions | None = None,
        **keywords: Any,
    ) -> None:
        asked = replace(options or AnalysisOptions(), **keywords)
        start, horizon, budget = asked.start, asked.horizon, asked.budget
        self.system, self.start, self._asked = system, start, horizon
        self.known = all(unit.linear() is not None for unit in system.units.values())
        self.step = self._first_step(step)
        with first_trials(system.units, start, dict.fromkeys(system.units, self.step)):
            if identify and asked.means is None:
                self.system = system = with_equations(system, start, horizon or STEPS * self.step)
            self.known = all(unit.linear() is not None for unit in system.units.values())
            self.notes = [f"unit '{name}' {unit.notice}" for name, unit in system.units.items() if unit.notice]
            self.notes += tolerances(system)
        self.failure = "" if identify or self.known else "no unit was identified"
        self.base: LocalSystem | None = None
        self.linearisation = Linearisation(
            system, self._situation(), means=asked.means, allowed=(budget or USUAL).seconds
        )
        self._departures: dict[str, float] = {}
        self._look()
        if horizon is None:
            # A model that failed its checks says nothing, not even how long to look.
            believed = self.base is not None and all(unit.valid for unit in self.units)
            horizon = default_horizon(self.poles) if believed else STEPS * self.step
        self.horizon = horizon
        if not self.failure and not self.known:
            with self._failing("the motion of the coupled system cannot be predicted"):
                self._departures = departures(system, self.local, start=start, horizon=horizon)
        self.pilots = Pilots(system, start=start, horizon=self.horizon, budget=budget, progress=asked.progress)
        self._truths: dict[float, Truth] = {}
        self._converted: dict[float, Truth] = {}
        self._linear: tuple[Master, LinearSystem] | None = None
        self._kinds: dict[tuple[str, str], LinearSystem] = {}
        self._courses: tuple[Master, tuple[Array, Truth]] | None = None
        self._spectrum: Spectrum | LargeSpectrum | None = None

    # ---- identification ------------------------------------------------------------------------------------------

    def _first_step(self, step: float | None) -> float:
        if step is not None or self.known:
            return step or 1.0
        suggested = [unit.suggested_step for unit in self.system.units.values() if unit.suggested_step]
        if suggested:
            return min(suggested)
        if self._asked is not None:
            return self._asked / STEPS
        names = ", ".join(name for name, unit in self.system.units.items() if unit.linear() is None)
        raise ConfigurationError(
            f"the equations of {names} are not known, and trial steps need a length: give a horizon (--stop-time), a "
            f"step to try (--step-size), or Settings(identify_at=…)."
        )

    def _situation(self) -> Situation:
        """Consistent inputs; where the units do not get so far together, each with its own start values."""
        units = self.system.units
        if not self.known and not self.failure:
            try:
                return at_start(self.system, self.start)
            except CosimoError as error:
                # What cannot even be loaded is no coupling to be judged; an algebraic loop is.
                if isinstance(error, ConfigurationError) and not isinstance(error, AlgebraicLoopError):
                    raise
                self.notes.append(f"the system does not initialise: {error}")
        inputs = {name: {v: float(u.start.get(v, 0.0)) for v in u.inputs} for name, u in units.items()}
        outputs = {name: np.zeros(len(unit.outputs)) for name, unit in units.items()}
        return Situation(self.start, self.start, inputs, outputs)

    def _look(self) -> None:
        """Identify the units and couple their models."""
        if self.known:
            self.base = replace(self.linearisation.at(self.step), exact=True)
        if (self.system.text_links or self.system.clock_links) and not self.known:
            passed = "texts are passed on" if self.system.text_links else "clocks tick"
            self.failure = f"{passed} between units, which linear models do not have"
        if self.known or self.failure:
            return
        outcomes = self.linearisation.outcomes(self.step)
        failed = [name for name, outcome in outcomes.items() if not isinstance(outcome, Identified)]
        if failed:
            self.failure = f"{', '.join(failed)} could not be identified"
            return
        with self._failing("the coupled system cannot be analysed"):
            self.base = find_base(self.linearisation, self.step)

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """What fails meanwhile leaves no linear picture."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                yield
        except (CosimoError, np.linalg.LinAlgError, ArithmeticError, ValueError) as error:
            self.failure = f"{what}: {str(error).rstrip('.')}"

    # ---- what is known -------------------------------------------------------------------------------------------

    @property
    def local(self) -> LocalSystem:
        """The system of linear units from which it is converted to other steps."""
        if self.base is None:
            raise ConfigurationError(f"there is no linear model of '{self.system.name}': {self.failure}.")
        return self.base

    def at(self, step: float) -> System:
        """The linear system for a master with this macro step."""
        return self.system if self.known else self.local_at(step).linear

    def local_at(self, step: float) -> LocalSystem:
        """The same with what it lacks of the real one."""
        return self.local if self.base is not None and self.base.exact else self.linearisation.at(step)

    def conversion_misleads(self, step: float) -> bool:
        """Whether models of this step, converted to others, grow by the error of the units' solvers alone."""
        if self.known or self.base is None or self.base.exact:
            return False
        return self.linearisation.at(step).growth_by_conversion > 0

    def checked(self, step: float) -> Model:
        """This model, where its units are at `step` what they were identified as; else one that is identified there.

        Two equal answers at h and h/2 may come from micro steps of one length; below that, a solver takes shorter ones.
        Where a unit cannot be identified there, nothing is believed: runs will tell.
        """
        if self.known or self.base is None or step >= self.local.step / 2 * (1 - 1e-9):
            return self
        try:
            there = self.linearisation.at(step).units
        except IdentificationError:
            return self.distrusted()
        # Outputs that come in steps do not answer at all within a short one.
        silent = any(_silent(there[name]) and not _silent(found) for name, found in self.local.units.items())
        if silent or not all(found.valid for found in there.values()):
            return self.distrusted()
        if not self.base.exact or all(apart(found, there[name]) <= SAME for name, found in self.local.units.items()):
            return self
        other = copy(self)
        other.base, other._linear, other._kinds, other._courses = replace(self.local, exact=False), None, {}, None
        return other

    def linear(self, master: Master) -> LinearSystem:
        """The linear system under a master; the last one is kept, as several figures are read off it.

        So is one of every kind of master: at another step it has the same schedule.
        """
        if self._linear is None or self._linear[0] is not master:
            inside = master if self.known else self.local_at(master.step).inside(master)
            before = None if self._linear is None else self._linear[1]
            kind = master.name, str(master.coupling)
            linear = LinearSystem(self.at(master.step), inside, like=self._kinds.get(kind, before))
            self._linear, self._kinds[kind] = (master, linear), linear
        return self._linear[1]

    @cached_property
    def units(self) -> tuple[UnitReport, ...]:
        """How every unit is known."""
        found = []
        asked = not self.known and self.failure != "no unit was identified"
        outcomes = self.linearisation.outcomes(self.step) if asked else {}
        for name, unit in self.system.units.items():
            if unit.linear() is not None:
                found.append(known_unit(name, unit))
                continue
            if not asked:
                continue
            like = self.base.units.get(name) if self.base is not None else None
            found.append(unit_report(name, outcomes[name], like, self._departures.get(name, math.nan)))
        return tuple(found)

    @property
    def away(self) -> tuple[str, ...]:
        """The units that the motion leads out of the range where their models hold."""
        return tuple(name for name, share in self._departures.items() if not share <= BOUND)

    @property
    def valid(self) -> bool:
        """Whether the linear picture can be believed: all models passed all their checks, over the whole motion."""
        return not self.failure and not self.away and all(unit.valid for unit in self.units)

    def distrusted(self) -> Model:
        """The same without its linear picture, after pilot runs have shown that it is wrong."""
        other = copy(self)
        other.failure = other.failure or "pilot runs do not agree with it"
        return other

    def _grows_alone(self, name: str) -> bool:
        """Whether a unit, led outside the loop, departs from any model of it: e^(λ T) makes much of what is little."""
        found = self.local.units[name]
        reach = min(self.horizon, MOST * self.local.step)
        largest = float(np.abs(found.poles).max(initial=0.0))
        return largest > 1 and math.log(largest) * reach / found.step > math.log(1 / BOUND)

    @property
    def doubt(self) -> str:
        """Why the linear picture cannot be believed."""
        if self.failure:
            return self.failure
        if alone := [name for name in self.away if self._grows_alone(name)]:
            return (
                f"{', '.join(alone)} grows by itself according to its linear model, which outside the loop cannot be "
                f"checked over the motion"
            )
        if self.away:
            off, names = percent(max(self._departures.values())), ", ".join(self.away)
            return f"the motion leaves the range where the linear model of {names} holds (outputs differ by {off})"
        failed = [unit.name for unit in self.units if not unit.valid]
        return f"the linear models of {', '.join(failed)} do not pass their checks" if failed else ""

    @cached_property
    def poles(self) -> ComplexArray:
        """The eigenvalues of the coupled system, in 1/s; of a large one the slowest and the fastest."""
        if self.large is not None:
            return self.large.extremes
        return np.linalg.eigvals(dense(self.local.coupled.A)).astype(complex)

    @property
    def slack(self) -> float:
        """Growth rates, in 1/s, that identification may make up."""
        return 0.0 if self.known else IDENTIFIED / self.local.step

    @property
    def instant(self) -> float:
        """Rates, in 1/s, of modes that are gone after one step of identification."""
        return math.inf if self.known else INSTANT / self.local.step

    @property
    def states(self) -> int:
        """How many states the coupled linear system has."""
        return int(self.local.coupled.A.shape[0])

    @cached_property
    def large(self) -> LargePoles | None:
        """The poles of a large system, of which nothing is formed as a full matrix; None of others."""
        return LargePoles(self.local.coupled.A) if self.states > SHAPES_UP_TO else None

    @cached_property
    def exact_stable(self) -> bool | None:
        """Whether the coupled system itself does not grow; None where that could not be told of a large one."""
        if self.large is not None:
            return None if self.large.grows is None else not self.large.grows
        return not grows(self.poles, slack=self.slack, rest=find_rest(dense(self.local.coupled.A)).count)

    @property
    def grows(self) -> bool:
        """Whether the coupled system itself is known to grow."""
        return self.exact_stable is False

    def spectrum(self, master: Master) -> Spectrum | LargeSpectrum:
        """The eigenvalues under a master; the last ones are kept, and what does not depend on the master."""
        linear = self.linear(master)
        if self._spectrum is None or self._spectrum.linear is not linear:
            before = self._spectrum if isinstance(self._spectrum, Spectrum) else None
            large = self.large
            self._spectrum = Spectrum(linear, like=before) if large is None else LargeSpectrum(linear, large)
        return self._spectrum

    def stability(self, master: Master) -> MasterStability:
        """Whether a master stays bounded: what every verb means by "stable" where the model can be believed.

        An iteration that diverges is not stable, whatever Φ of its fixed point says: no run reaches that point.
        """
        factor = sweep_factor(self.linear(master))
        converging = converges(master, factor)
        stable = self.spectrum(master).stays_bounded(identified=not self.known)
        return MasterStability(stable if converging or factor is None else converging, converging, factor)

    @cached_property
    def rests(self) -> bool:
        """Whether nothing moves: from the given start, with the given inputs, every output stays 0."""
        return not self._sizes.any()

    # ---- errors --------------------------------------------------------------------------------------------------

    @cached_property
    def _sizes(self) -> Array:
        return output_sizes(self.local, start=self.start, horizon=self.horizon)

    def predict(self, master: Master, *, beyond: float = math.inf) -> OutputErrors:
        """The error of a master, without running it: that of the coupling and of the units' own solvers.

        Infinite where an iteration diverges: Φ is then that of a fixed point which no run reaches. Of large systems,
        errors far `beyond` what is asked for may be larger still.
        """
        errors = self._predict(master, beyond)
        if converges(master, sweep_factor(self.linear(master))) is False:
            return replace(errors, outputs=dict.fromkeys(errors.outputs, math.inf), typical=math.inf)
        return errors

    def _predict(self, master: Master, beyond: float) -> OutputErrors:
        with np.errstate(over="ignore", invalid="ignore"):
            if self.rests:
                return worst_start_errors(self.linear(master), self.start, self.horizon)
            exact, linear = self.base is not None and self.base.exact, self.linear(master)
            if exact and linear.sparse and self.large is not None:
                local = self.local_at(master.step)
                span = {"start": self.start, "horizon": self.horizon}
                return large_errors(local, linear, sizes=self._sizes, beyond=beyond, **span)
            rows, truth = self.courses(master)
            clocks = linear.operations.timeline.clocks
            return output_errors(self.system, master, rows, truth, self.horizon, "predicted", clocks, start=self.start)

    def courses(self, master: Master) -> tuple[Array, Truth]:
        """All outputs at the communication points: as a run of the master will have them, and as they truly are.

        Those of the last master are kept: errors and charts are read off them.
        """
        if self._courses is None or self._courses[0] is not master:
            exact, local = self.base is not None and self.base.exact, self.local_at(master.step)
            steps = count_steps(self.horizon, master.step)
            with np.errstate(over="ignore", invalid="ignore"):
                rows = cosimulated(local, master, start=self.start, steps=steps, linear=self.linear(master))
                truth = self.truth(master.step) if exact else self._solvers_truth(local, master, rows)
            self._courses = master, (rows, truth)
        return self._courses[1]

    def predict_coupling(self, master: Master, linear: LinearSystem | None = None) -> OutputErrors:
        """The error of the coupling alone, with models converted to the master's step: quick, for searches.

        `linear` is a system under this master that is there already; it is used where it is that of these models.
        """
        local, step = self.local, master.step
        linear = linear if linear is not None and linear.system is local.linear else None
        with np.errstate(over="ignore", invalid="ignore"):
            steps = count_steps(self.horizon, step)
            if step not in self._converted:
                rows = undivided(local, step=step, start=self.start, steps=steps, coupled=local.converted)
                self._converted[step] = Truth(rows, self._sizes)
            rows = cosimulated(local, master, start=self.start, steps=steps, linear=linear)
            truth = self._converted[step]
            return output_errors(local.linear, master, rows, truth, self.horizon, "predicted", start=self.start)

    def measure(self, master: Master) -> Measured:
        """The error of a master by running it: against the exact solution where that is known, else by pilot runs."""
        if not self.known:
            pilot = self.pilots.of(master)
            errors = pilot.errors or OutputErrors({}, self.horizon, "measured", start=self.start)
            return Measured(errors, self.pilots.stepping(master), pilot.diverged, pilot.own_error)
        if self.rests:
            raise ConfigurationError(AT_REST.format(self.system.name))
        rows, diverged, _ = self.pilots.rows(master, 1)
        truth = self.truth(master.step)
        errors = output_errors(self.system, master, rows, truth, self.horizon, "measured", start=self.start)
        return Measured(errors, self.pilots.stepping(master), diverged)

    def measure_adaptive(self, master: Master, adaptive: Adaptive) -> Measured:
        """The error of one run with adaptive steps, against the exact solution at the times of its rows."""
        from cosimo.execution.running import run

        if not self.known:
            raise ConfigurationError(
                "errors of adaptive steps are measured against the exact solution, which needs the equations of all "
                "units; run with two tolerances and compare."
            )
        if self.rests:
            raise ConfigurationError(AT_REST.format(self.system.name))
        found = run(self.system, master, start=self.start, stop=self.start + self.horizon, adaptive=adaptive)
        places = np.rint((found.time - self.start) / found.info["quantum"])
        rows = undivided_at(self.local, places, found.info["quantum"], self.start)
        sizes = np.where(self._sizes > 0, np.maximum(self._sizes, np.abs(rows).max(axis=0)), 0.0)
        ours = np.column_stack([found[name] for name in self.system.outputs])
        errors = output_errors(
            self.system, master, ours, Truth(rows, sizes), self.horizon, "measured", start=self.start
        )
        return Measured(errors, found.info["stepping_time"])

    def truth(self, step: float) -> Truth:
        """The true solution of the linear picture at the communication points of a master."""
        if step not in self._truths:
            self._truths[step] = exact_truth(
                self.local, step=step, start=self.start, horizon=self.horizon, sizes=self._sizes
            )
        return self._truths[step]

    def _solvers_truth(self, local: LocalSystem, master: Master, rows: Array) -> Truth:
        """What the units' own solvers tend to as the step of identification is halved again and again."""
        steps = len(rows) - 1

        def flow(system: LocalSystem) -> Array:
            return undivided(system, step=master.step, start=self.start, steps=steps)

        def sized(found: Array) -> Truth:
            return Truth(found, np.maximum(np.abs(found).max(axis=0), self._sizes * (self._sizes > 0)))

        if local.own:
            return sized(flow(local))
        levels: list[Array] = []
        base = self.local.step
        step = base / 2.0 ** max(0, math.ceil(math.log2(base / (COARSER * master.step))))
        for _ in range(HALVINGS + 1):
            finer = None
            with suppress(CosimoError):
                finer = self.linearisation.at(step)
            if finer is not None and finer.continuous:
                levels.append(flow(finer))
                if len(levels) > 1 and _settled(levels, rows):
                    return sized(levels[-1])
                if len(levels) > 2 and (extrapolated := _extrapolate(levels)) is not None:
                    return sized(extrapolated)
            step /= 2
        if not levels:
            raise ConfigurationError("the units have no continuous model at any step tried; give another step.")
        return sized(levels[-1])


def _silent(found: Identified) -> bool:
    """Whether a unit was found to answer nothing."""
    return found.means != "known" and not responses(found, found.model.A, found.model.B[:, : found.D.shape[1]]).any()


def _settled(levels: list[Array], rows: Array) -> bool:
    """Whether the last halving changed little compared with the error that is to be measured."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved, error = np.abs(levels[-1] - levels[-2]).max(axis=0), np.abs(rows - levels[-1]).max(axis=0)
        size = np.abs(levels[-1]).max(axis=0)
        return bool((moved <= np.maximum(ENOUGH * error, 1e-9 * size)).all())


def _extrapolate(levels: list[Array]) -> Array | None:
    """What the last three levels tend to, if they shrink towards it by a constant factor 2^p; else None."""
    if not all(np.isfinite(level).all() for level in levels[-3:]):
        return None
    truth, _ = limit(levels[-3:])
    return truth.rows if truth.rows is not levels[-1] else None


# ---- whether a linear model holds over the whole motion: the unit itself is led through what the model predi ---------
# A model found with small pulses says nothing of limits, friction and geometry that large motions meet. Real unit and
# model are both given the inputs of the coupled linear system, held over each macro step; how far their outputs come
# apart is what the linear picture leaves out. It costs one unit step per macro step.


MOST = 1_000
"""Macro steps that are replayed at most."""
BOUND = 0.05
"""How far outputs may come apart, relative to their size, for the linear picture to hold."""


def departures(system: System, local: LocalSystem, *, start: float, horizon: float) -> dict[str, float]:
    """Per unit that is not known to be linear: the largest departure of its outputs from its model, relative.

    Infinite where the unit fails under these inputs.
    """
    steps = int(min(max(1, round(horizon / local.step)), MOST))
    rows = undivided(local, step=local.step, start=start, steps=steps)
    if not np.isfinite(rows).all():
        # It grows beyond all bounds by itself: follow it as long as there are numbers.
        steps = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0]) - 1
    found = {}
    for name, identified in local.units.items():
        if identified.means != "known" and steps > 0:
            inputs = _inputs(system, name, rows[: steps + 1], start, local.step)
            found[name] = _departure(identified, inputs, start, local.step)
    return found


def _inputs(system: System, name: str, rows: Array, start: float, step: float) -> Array:
    """The inputs of a unit over every macro step: means of the signals at its ends."""
    places = {output: i for i, output in enumerate(system.outputs)}
    columns = []
    for index, inlet in enumerate(system.inlets[name]):
        if inlet.link is not None:
            connection = inlet.link.connection
            values = connection.gain * rows[:, places[connection.source]] + connection.offset
        elif inlet.source is not None:
            values = np.array([inlet.source(start + k * step) for k in range(len(rows))], dtype=float)
        else:
            values = np.full(len(rows), inlet.start)
        whole = system.units[name].inputs[index] in system.units[name].discrete_inputs
        columns.append(values[:-1] if whole else (values[:-1] + values[1:]) / 2)
    return np.array(columns).reshape(len(columns), len(rows) - 1).T


def _departure(identified: Identified, inputs: Array, start: float, step: float) -> float:
    from cosimo.analysis.identification.test_rig import OperatingPoint, Rig, TrialFailed

    unit, m = identified.source, identified.D.shape[1]
    first = dict(zip(unit.inputs, inputs[0].tolist(), strict=True))
    deviations = np.zeros((len(inputs), unit.input_degree + 1, m))
    deviations[:, 0] = inputs - inputs[0]
    rig = Rig(unit, step, OperatingPoint(start, start, first), restore=False)
    try:
        theirs = rig.trial().run(deviations)
    except TrialFailed:
        return np.inf
    finally:
        rig.close()
    ours = identified.outputs(inputs)
    ours[:, rig.constant] = theirs[:, rig.constant]
    size = np.abs(theirs).max(axis=0, initial=0.0)
    difference = np.abs(ours - theirs).max(axis=0, initial=0.0)
    shares = np.divide(difference, size, out=(difference > 0).astype(float), where=size > 0)
    worst = float(shares.max(initial=0.0))
    return worst if np.isfinite(worst) else np.inf


def warm_start(system: System, master: Master, *, model: Model | None = None) -> Master:
    """The quasi-Newton iteration with the Jacobian of its sweep: for linear units one correction per step suffices.

    The Jacobian is that of the equations of the units, or of their identified models; units are identified where no
    `model` is given. Where a model failed its checks the master is returned as it is, and learns while it runs.
    """
    model = model or Model(system, step=master.step, horizon=STEPS * master.step)
    if not model.valid:
        return master
    linear = model.linear(master)
    places = [list(linear.system.outputs).index(name) for name in system.outputs]
    J = sweep_jacobian(linear)[np.ix_(places, places)]
    operations = tuple(
        replace(op, times=replace(op.times, jacobian=tuple(map(tuple, J.tolist()))))
        if isinstance(op, Repeat) and isinstance(op.times, Convergence)
        else op
        for op in master.schedule.operations
    )
    return replace(master, schedule=replace(master.schedule, operations=operations))
