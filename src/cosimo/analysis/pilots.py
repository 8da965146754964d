"""Pilot runs: the coupling itself, run a few times before the answer is given, as a careful engineer would.

The asked master is run over the horizon at h, and then at h/2, h/4, … until what these runs tend to is known to a tenth
of what is judged. The limit is the true solution (Richardson, where the last three runs approach it by a constant
factor 2^p; p is the observed order), and the run at h has a measured error. Runs at other steps, by bisection, bracket
the critical step: from the longest step at which a run fades to the shortest at which one grows. What pilot runs cannot
see: errors that the units' own solvers make at every step alike, and what happens after the part that was run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from itertools import pairwise, takewhile

import numpy as np
import numpy.typing as npt

from cosimo.analysis.critical import CriticalStep
from cosimo.analysis.pilot_runs import Job, Ran, Workers, make_run
from cosimo.analysis.truth import OutputErrors, Truth, count_steps, output_errors
from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError, Interrupted, RunError
from cosimo.core.formatting import percent, step_text
from cosimo.core.guarding import own_clock
from cosimo.core.master import Master
from cosimo.core.system import System

SHARE = 0.1
"""Part of the judged error that the reference may be wrong by."""
SHARP, MOST = 0.02, 0.2
"""The same, sought as long as runs are short, and accepted where the budget ends (a factor 1.25 at most)."""
ENOUGH = 64
"""Macro steps from which a run can be called bounded: shorter ones hold few periods of what may grow."""
MULTIPLES = 20
"""Runs as long as the one asked for that all finer ones together may cost, unless they are short."""
SHORT = 100_000
"""Macro steps of all finer runs together that are always allowed: a fraction of a second for most units."""
SECONDS = 10.0
"""Seconds after which no finer run is begun; not counted is what other processes had of the processors meanwhile."""
WAIT = 2.5
"""Seconds that one more finer run may take by default, whatever the multiples: what a verdict is worth waiting for."""
PROBE, LEAST, LEVELS = 50, 100, 15
"""Macro steps of the run that is timed first, and of the shortest part of a horizon; what h, h/2, h/4, h/8 cost."""
FARTHER, QUICK = (8, 4, 2), 0.1
"""How many times finer than the last run the one is that shows whether units begin to compute otherwise below it: the
first of these that is allowed for, and takes no more than this part of the seconds."""
LEAST_PARTS = 4
"""Into how many parts a macro step is divided at least, whatever that costs."""
ORDERS = (1.5, 70.0)
"""Factors between successive changes that are plausible for a method of order 0.6 to 6."""
ALIKE = 0.25
"""By how much the shapes of two successive changes may differ, relative, to be extrapolated."""
FAR = 0.1
"""Change from one run to the next, relative, beyond which an observed order may still be another one."""
LEAST_ERROR = 1e-9
"""Relative errors below this are rounding: units' own solvers and sums over a run leave about so much."""
FAINT = 1e-6
"""Relative error up to which a bound is as good as a figure: solvers with usual tolerances leave so much noise."""
GROWS = 2.0
"""By what the deviation grows from the third to the last quarter of a run that is called growing."""
OFF = 1.0
"""Relative deviation beyond which growth is looked for: smaller ones may be a phase that runs away."""
FADES, GOES_ON = 0.7, 0.8
"""What is left of a motion that fades, at most, and of one that goes on, at least, from one stretch to the next."""
STEADY, REPEATS = 1.1, 0.02
"""By what a deviation that does not grow changes meanwhile, and the part of it by which a range that repeats widens."""
KEEPS_GROWING = 0.83
"""Ratio of two successive logarithms of growth: halfway between 0.66 of powers of time and 1 of an exponential."""
LEVELS_OF_A_SWITCH = 4
"""Different values from which an output is no longer taken for that of a switch."""
ROWS = 16
"""Macro steps from which a run has four quarters to be compared."""
NARROW = 1.1
"""Ratio of two neighbouring steps that the bisection of the critical step is content with."""
TRIALS = 30
"""Steps that it tries at most."""
KEPT = 20_000_000
"""Numbers of the finest run that are kept for it: 160 MB."""
STARTING, HANDING = 2.0, 0.2
"""Seconds that runs side by side must save to be worth starting processes, and to be worth handing over."""


@partial(checked, owner="budget")
@dataclass(frozen=True)
class Budget:
    """What pilot runs may cost: `multiples` of the run asked for (short ones more), and `seconds` (`own_clock`).

    A run that takes less than `wait` seconds is made whatever the multiples.
    """

    multiples: float = MULTIPLES
    seconds: float = SECONDS
    wait: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Seconds as "30", or multiples of the run asked for as "50x".

        >>> Budget.parse("30").seconds, Budget.parse("50x").multiples
        (30.0, 50.0)
        """
        word = text.strip().lower()
        try:
            value = float(word.removesuffix("x"))
        except ValueError:
            value = math.nan
        if not (value > 0 and math.isfinite(value)):
            raise ConfigurationError(f"a budget is in seconds (30) or multiples of the run (50x), not '{text}'.")
        return cls(multiples=value) if word.endswith("x") else cls(math.inf, value)


USUAL = Budget(wait=WAIT)
"""The budget that nobody asked for otherwise."""


@dataclass(frozen=True, eq=False)
class Pilot:
    """What pilot runs of one master showed.

    `errors` are measured, None where the runs did not converge (`reason` says why); `own_error` is how wrong the
    reference `truth` may be, `order` the observed power of h, `runs` how many finer runs they rest on. `bounded` tells
    whether the run at h stays bounded, None where that cannot be told; `diverged` is when it left the range of numbers.
    """

    errors: OutputErrors | None
    bounded: bool | None
    order: float | None
    own_error: float
    runs: int
    seconds: float
    diverged: float | None = None
    reason: str = ""
    itself: bool = False
    """Whether the runs grow at every step size tried: the system itself is unstable, whatever the master."""
    truth: Truth | None = field(default=None, repr=False)
    faint: tuple[str, ...] = ()
    """Outputs whose error is a bound, among the noise of the units' solvers."""


@dataclass
class _FinerRuns:
    """What the runs of a pilot at h/2, h/4, … have shown: their rows, the solution they tend to, errors against it."""

    levels: list[Array] = field(default_factory=list)
    truth: Truth | None = None
    errors: OutputErrors | None = None
    """Of all outputs, however well the truth of each is known."""
    order: float | None = None
    own: float = math.inf
    finest: bool = False
    """Whether the finest run grows."""
    reason: str = ""
    """Why no finer run was made, where the errors are not known well enough."""


@dataclass(frozen=True)
class Standing:
    """Where pilot runs stand: `runs` made, the `seconds` they took, those `allowed`, and whether one is `running`."""

    runs: int
    seconds: float
    allowed: float
    running: bool


Report = Callable[[Standing], None]


class Pilots:
    """Pilot runs of masters on one system, from `start` over `horizon` seconds; what was run is remembered.

    Where the budget does not allow for the whole horizon, a part of it is run, `reach` seconds. Once it is spent (twice
    over, as recommended masters are run too), further runs are refused. `progress` is told before and after every run.
    """

    def __init__(
        self,
        system: System,
        *,
        start: float,
        horizon: float,
        budget: Budget | None = None,
        progress: Report | None = None,
    ) -> None:
        self.system, self.start, self.budget, self._progress = system, start, budget or USUAL, progress
        self.horizon = self.reach = horizon
        self.seconds = 0.0
        """What was spent so far."""
        self._pilots: dict[tuple[str, float], Pilot] = {}
        self._rows: dict[tuple[str, float, int], tuple[Array, float | None, bool]] = {}
        self._whole: dict[tuple[str, float], Ran] = {}
        self._stepping: dict[tuple[str, float], float] = {}
        self._internal: dict[float, dict[str, float]] = {}
        """By macro step: the units whose outputs change only at multiples of a step of their own, and that step."""
        self._sweeps: dict[tuple[str, float], float] = {}
        self._pace = 0.0
        """Seconds that a macro step took in the last run."""
        self._made = 0
        self._finest: dict[str, tuple[float, Array]] = {}
        """By master: the step of its finest run, and all rows of that."""
        self._ahead: dict[tuple[str, float, int], Ran] = {}
        self._workers: Workers | None = None

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent."""
        return self.seconds > 2 * self.budget.seconds

    @property
    def internal(self) -> dict[str, float]:
        """Units with an internal step, in seconds: the finest run tells, unless another one tells otherwise.

        What goes round a loop of n units, one unit per macro step, moves every n-th step too, whatever these last.
        """
        if not self._internal:
            return {}
        finest = min(self._internal)
        found = {}
        for name, step in self._internal[finest].items():
            others = [seen[name] for at, seen in self._internal.items() if at > finest and name in seen]
            agree = any(abs(other - step) <= ALIKE * step for other in others)
            longer = step > (len(self.system.units) + 0.5) * finest  # than any round through all units
            if agree or (longer and not others):
                found[name] = step
        return found

    def of(self, master: Master) -> Pilot:
        """Run the master and finer ones, until its error is known."""
        key = (_key(master), master.step)
        if key not in self._pilots:
            self._pilots[key] = self._pilot(master)
        return self._pilots[key]

    def against(self, master: Master, truth: Truth) -> OutputErrors:
        """The measured error of another master at the step of `truth`, or at a whole part of it, by one run."""
        rows, diverged, _ = self.rows(master, 1)
        parts = (len(rows) - 1) // (len(truth.rows) - 1) if diverged is None else 0
        if not parts:
            infinite = dict.fromkeys(self.system.outputs, math.inf)
            return OutputErrors(infinite, self.reach, "measured", math.inf, start=self.start)
        return output_errors(self.system, master, rows[::parts], truth, self.reach, "measured", start=self.start)

    def rows(self, master: Master, parts: int) -> tuple[Array, float | None, bool]:
        """All outputs at the communication points of `master`, run with h / `parts`; when it diverged; if it grows."""
        key = (_key(master), master.step, parts)
        if key not in self._rows:
            if self.exhausted:
                raise ConfigurationError(
                    f"the budget of {self.budget.seconds:g} s for pilot runs is used up; give a larger one (--budget)."
                )
            with self._making(key not in self._ahead):
                self._rows[key] = self._run(master, parts)
        return self._rows[key]

    def ahead(self, runs: Iterable[tuple[Master, int]]) -> None:
        """Make runs that will be asked for side by side, in other processes, where that saves enough time.

        The same numbers to the bit: a run is a function of the system, the master and the times.
        """
        jobs = {}
        for master, parts in runs:
            key = (_key(master), master.step, parts)
            if key not in self._rows and key not in self._ahead:
                jobs[key] = self._job(master, parts)
        seconds = [job.steps * job.parts * self._pace for job in jobs.values()]
        if len(jobs) < 2 or self.exhausted:
            return
        self._workers = self._workers or Workers(self.system)
        saved = sum(seconds) - max(max(seconds), sum(seconds) / self._workers.count)
        if saved < (HANDING if self._workers.started else STARTING):
            return
        before, starting = self.seconds, 0.0 if self._workers.started else STARTING
        with self._making(len(jobs)):
            made = self._workers.make(list(jobs.values()))
        if None not in made:  # the clock of this process does not tell when the others had to wait
            took = sum(ran.seconds for ran in made if ran is not None) / self._workers.count
            self.seconds = min(self.seconds, before + starting + took)
        self._ahead |= {key: ran for key, ran in zip(jobs, made, strict=True) if ran is not None}

    def close(self) -> None:
        """End the other processes; they are started again where they are needed."""
        if self._workers is not None:
            self._workers.close()
        self._workers = None

    @contextmanager
    def _making(self, count: int = 1) -> Iterator[None]:
        """Runs are made meanwhile: time is taken, and told."""
        allowed, begin = 2 * self.budget.seconds, own_clock()
        if self._progress is not None:
            self._progress(Standing(self._made, self.seconds, allowed, True))
        try:
            yield
        finally:
            self.seconds += own_clock() - begin
            self._made += count
            if self._progress is not None:
                self._progress(Standing(self._made, self.seconds, allowed, False))

    def critical(self, master: Master) -> CriticalStep:
        """Between which steps the master becomes unstable, seen in runs at other steps; refused where none can tell.

        The ends are the longest step up to which all runs fade, and the shortest at which one grows (`bounded`).
        Half octaves first, from the step of the master on; then neighbours are parted until each end has one that is
        `NARROW`: runs between the ends that tell neither leave the bracket as wide as it is. All steps are whole
        multiples of that of the finest run, with which all are compared. As between the steps of any search, growth
        in a narrow window of steps below may be missed; that no step grows is never said.
        """
        pilot = self.of(master)
        if pilot.itself:
            raise ConfigurationError(
                "the runs grow at every step size tried: the system itself is unstable, whatever the master."
            )
        if pilot.errors is None or _key(master) not in self._finest or master.mixers:
            why = f" ({pilot.reason})" if pilot.reason else ""
            raise ConfigurationError(
                f"pilot runs are inconclusive{why}; give a smaller --step-size or a larger --budget."
            )
        finest, rows = self._finest[_key(master)]
        sizes, parts = np.abs(rows).max(axis=0), round(master.step / finest)
        seen: dict[int, bool | None] = {}

        def look(every: int) -> None:
            finer = parts // every if every <= parts and parts % every == 0 else 0
            at = parts if finer else every
            try:
                runs = self.rows(master, finer) if finer else self.rows(master.with_step(every * finest), 1)
            except RunError:  # a unit does not bear such a step: that says nothing of growth
                seen[every] = None
                return
            found, diverged, grows = runs
            true = rows[::at][: len(found)]
            seen[every] = bounded(found[: len(true)], Truth(true, sizes), diverged, grows)

        look(every := parts)
        while seen[every] is not True and every % 4 == 0:
            look(every := every // 2)
        every = parts
        grain = parts if self.internal else 1  # macro steps that are no multiples of an internal one differ in kind
        while seen[every] is not False and not self.exhausted:
            every = math.ceil(math.sqrt(2) * every / grain) * grain
            if count_steps(self.reach, every * finest) < ROWS:
                break
            look(every)
        return self._parted(seen, look, finest, grain)

    def _parted(
        self, seen: dict[int, bool | None], look: Callable[[int], None], step: float, grain: int
    ) -> CriticalStep:
        """Part the steps that were `seen`, multiples of `step`, next to both ends of the bracket; by whole `grain`s."""
        searched = (min(seen) * step, max(seen) * step)
        while True:
            tried = sorted(seen)
            high = min((every for every in tried if seen[every] is False), default=0)
            low = max(takewhile(lambda every: seen[every], tried), default=0)
            if not (low and high):
                said = f"a run grows at {step_text(high * step)}" if high else "no run grows"
                fades = f"one decays at {step_text(low * step)}" if low else "none is seen to decay below"
                within = f"until {self.start + self.reach:g} s, at steps from {step_text(tried[0] * step)} to"
                raise ConfigurationError(
                    f"{said} and {fades}, {within} {step_text(tried[-1] * step)}; a longer --stop-time may show more."
                )
            gaps = [(tried[tried.index(high) - 1], high), (low, tried[tried.index(low) + 1])]
            middles = [round(math.sqrt(a * b) / grain) * grain for a, b in gaps if b / a > NARROW]
            fresh = [every for every in middles if every and every not in seen]
            if not fresh or len(seen) >= TRIALS or self.exhausted:
                return CriticalStep(low * step, searched, (low * step, high * step), self.start + self.reach)
            look(fresh[0])

    def whole(self, master: Master) -> Ran | None:
        """The run of `master` over the whole horizon, of which finer ones reach a part; None beyond the budget."""
        key, steps = (_key(master), master.step), count_steps(self.horizon, master.step)
        if key not in self._whole and not self.exhausted and steps * self._pace <= self.budget.seconds:
            with suppress(RunError), self._making():
                self._whole[key] = self._here(Job(master, 1, self.start, steps))
        return self._whole.get(key)

    def errors_by_step(self, master: Master) -> dict[float, float]:
        """Of every pilot run of `master`, by its step: the error of the worst output at most.

        Whoever says what shorter steps will do starts from there. Empty where outputs did not settle, and without runs
        at steps that units internally exceed: shorter macro steps then change something else, or nothing.
        """
        pilot, found = self.of(master), dict[float, float]()
        truth = pilot.truth
        if truth is None or truth.own is None or pilot.errors is None or pilot.errors.unsettled or master.mixers:
            return {}
        own, inside = dict(zip(self.system.outputs, truth.own, strict=True)), max(self.internal.values(), default=0.0)
        for (key, step, parts), (rows, diverged, _) in self._rows.items():
            if (key, step) == (_key(master), master.step) and diverged is None and step / parts > inside:
                every = output_errors(self.system, master, rows, truth, self.reach, "measured", start=self.start)
                bounds = (error + own[name] for name, error in every.outputs.items())
                found[step / parts] = float(max(bounds, default=0.0))
        return found

    def stepping(self, master: Master) -> float:
        """Seconds that stepping the units of this master took; 0 where it was not run to its end."""
        return self._stepping.get((_key(master), master.step), 0.0)

    def sweeps(self, master: Master) -> float | None:
        """How many sweeps per macro step the run of an iterating master took; None where it was not run to its end."""
        return self._sweeps.get((_key(master), master.step))

    def _job(self, master: Master, parts: int) -> Job:
        return Job(master.with_step(master.step / parts), parts, self.start, count_steps(self.reach, master.step))

    def _run(self, master: Master, parts: int) -> tuple[Array, float | None, bool]:
        job = self._job(master, parts)
        ran = self._ahead.pop((_key(master), master.step, parts), None)
        if ran is None:
            ran = self._here(job)
        steps = job.steps
        if ran.diverged is not None:
            return np.full((steps + 1, len(self.system.outputs)), np.nan), ran.diverged, True
        if ran.ended is not None:
            steps = self._until(*ran.ended, master.step, steps)
        self._pace = ran.seconds / max(1, len(ran.rows) - 1)
        if parts == 1:
            self._stepping[_key(master), master.step] = ran.seconds
            if ran.sweeps:
                self._sweeps[_key(master), master.step] = ran.sweeps / steps
        self._internal[job.master.step] = ran.internal
        self._keep(_key(master), master.step / parts, ran.rows)
        return ran.rows[::parts][: steps + 1], None, ran.grows

    def _keep(self, key: str, step: float, rows: Array) -> None:
        """Keep the finest run of every master, the latest ones as long as there is room."""
        if step < self._finest.get(key, (math.inf,))[0]:
            self._finest.pop(key, None)
            self._finest[key] = (step, rows)
        while sum(kept.size for _, kept in self._finest.values()) > KEPT:
            del self._finest[next(iter(self._finest))]

    def _here(self, job: Job) -> Ran:
        """A run in this process."""
        try:
            return make_run(self.system, job)
        except Interrupted:
            # It is the analysis that was interrupted; no rows of a pilot run are of use to anybody.
            raise KeyboardInterrupt from None

    def _until(self, unit: str, end: float, step: float, steps: int) -> int:
        """Macro steps before the end that a unit asked for; the first run decides how far all of them go."""
        whole = int((end - self.start) / step * (1 + 1e-12))
        if whole < steps:
            if self._rows or whole == 0:
                raise ConfigurationError(
                    f"unit '{unit}' ended the simulation at t = {end:g}; set an earlier stop time."
                )
            self.reach = whole * step
        return min(whole, steps)

    def _fit(self, master: Master) -> None:
        """Time a short run, and take only as much of the horizon as the budget allows for."""
        if math.isinf(self.budget.seconds):
            return
        steps = count_steps(self.horizon, master.step)
        probe = min(steps, PROBE)
        stepping = 0.0
        with suppress(RunError), self._making(0):
            stepping = self._here(Job(master, 1, self.start, probe)).seconds
        allowed = self.budget.seconds / max(stepping / probe, 1e-12) / LEVELS
        if allowed < steps:
            # A round time, so that a little more or less of the clock gives the same figures.
            reach = max(math.floor(allowed), min(LEAST, steps)) * master.step
            size = 10.0 ** math.floor(math.log10(reach))
            self.reach = min(max(d for d in (1, 2, 5) if d * size <= reach * (1 + 1e-9)) * size, self.horizon)

    def _pilot(self, master: Master) -> Pilot:
        begin = time.perf_counter()
        # Corrected inputs belong to one step: finer runs are plain.
        finer = replace(master, mixers={}) if master.mixers else master
        try:
            if not self._pilots:
                self._fit(master)
            rows, diverged, grows = self.rows(master, 1)
            self.ahead([(finer, 2), (finer, 4)])
        except (RunError, ConfigurationError) as error:
            return Pilot(None, None, None, math.nan, 0, time.perf_counter() - begin, reason=f"the run failed: {error}")
        runs = self._refine(master, finer, rows, diverged)
        truth, every, errors, faint = runs.truth, runs.errors, None, tuple[str, ...]()
        if truth is not None and every is not None:
            truth = self._as_inside(truth, every, master.step)
            names = self.system.outputs
            errors, faint = with_bounds(names, settled(names, every, truth, MOST), every, truth)
        # Finer runs that grow too speak of the system itself only where they come together.
        known = errors is not None and bool(errors.outputs)
        seconds, itself = time.perf_counter() - begin, grows and runs.finest and known and not self.internal
        reason, order, own, count = self._with_internal(runs.reason, known), runs.order, runs.own, len(runs.levels)
        if not count and diverged is not None:
            # It may be a unit that returns no numbers as well as a system that grows beyond all bounds.
            reason = f"every run overflows, at t = {diverged:g} s and with shorter steps too"
            return Pilot(None, None, None, own, 0, seconds, diverged, reason)
        if truth is None or errors is None or (errors.unsettled and not errors.outputs):
            seen = f"; the last two runs differ by {percent(own)}" if errors is not None else ""
            stays = False if grows else None
            return Pilot(None, stays, order, own, count, seconds, diverged, reason + seen, itself, truth)
        stays = bounded(rows, truth, diverged, grows and not itself)
        return Pilot(errors, stays, order, own, count, seconds, diverged, reason, itself, truth, faint)

    def _refine(self, master: Master, finer: Master, rows: Array, diverged: float | None) -> _FinerRuns:
        """Halve the step until the error of `rows` is known, or no finer run can be made."""
        runs, steps, parts, spent = _FinerRuns(), len(rows) - 1, 2, 0
        while True:
            spent += parts
            if parts > LEAST_PARTS and spent > self.budget.multiples and not self._short(spent * steps, parts * steps):
                costly = "finer runs would cost more than the budget, see --budget"
                runs.reason = costly if runs.levels else "finer runs diverge too"
                return runs
            try:
                fine, failed, runs.finest = self.rows(finer, parts)
            except CosimoError as error:
                runs.reason = f"a run with steps of {master.step / parts:g} s failed: {error}"
                return runs
            runs.levels = [*runs.levels, fine] if failed is None else []
            if len(runs.levels) > 1:
                with_first = diverged is None and not master.mixers
                found, runs.order = limit([rows, *runs.levels] if with_first else runs.levels)
                # Units without states pass values on one by one: until all have, outputs are no part of the solution.
                every_row = self._finest.get(_key(finer), (0.0, fine))[1]
                found = over_all(found, every_row[1 + len(self.system.units) :], fine)
                truth = found if runs.truth is None else better(runs.truth, found)
                every = output_errors(self.system, master, rows, truth, self.reach, "measured", start=self.start)
                share = SHARP if spent * steps <= SHORT // 4 else SHARE
                if not settled(self.system.outputs, every, truth, share).unsettled:
                    truth, far = self._farther(finer, parts, spent, truth, fine)
                    spent += far
                runs.truth, runs.errors, runs.own = truth, every, truth.own_error
                if not settled(self.system.outputs, every, truth, share).unsettled:
                    return runs
            parts *= 2

    def _with_internal(self, reason: str, known: bool) -> str:
        """Why no error is known, with the internal steps of units where these may be the cause."""
        if not self.internal or (known and not reason):
            return reason
        inside = ", ".join(f"{name} by {step_text(step)}" for name, step in self.internal.items())
        said = f"units have a fixed internal step ({inside}), whatever the macro step"
        return f"{reason}; {said}" if reason else said

    def _short(self, steps: int, last: int) -> bool:
        """Whether runs of so many macro steps, `last` of them in the last run, are allowed whatever the multiples."""
        return steps <= SHORT or last * self._pace < self.budget.wait

    def _as_inside(self, truth: Truth, errors: OutputErrors, step: float) -> Truth:
        """The truth, as uncertain as the internal steps of the units leave it.

        Where all units that move step by d inside, runs with shorter macro steps are one and the same coupling, that of
        step d; its error is d / h of that at h, for a method of order 1, and no run shows it.
        """
        assert truth.own is not None
        moving = {
            self.system.output(name).unit
            for name, values in zip(self.system.outputs, truth.rows.T, strict=True)
            if len(np.unique(values)) > LEVELS_OF_A_SWITCH
        }
        inside = self.internal
        if not moving or not moving <= inside.keys():
            return truth
        share = max(inside[name] for name in moving) / step
        own = [share * errors.outputs.get(name, 0.0) if share <= MOST else math.inf for name in self.system.outputs]
        return replace(truth, own=np.maximum(truth.own, own))

    def _farther(self, master: Master, parts: int, spent: int, truth: Truth, last: Array) -> tuple[Truth, int]:
        """The truth, as uncertain as a much finer run leaves it; and the parts of that run, 0 where there was none.

        A unit that divides its steps into micro steps of at most d makes the same error at every macro step above d:
        runs come together, but not where the equations lead. Below d they move on. (A unit that steps by a length of
        its own does not bear shorter macro steps; such a run says nothing.) Runs that tend to the truth are nearer to
        it by more than a half of what the `last` was off.
        """
        assert truth.own is not None
        steps, kept = len(last) - 1, dict(self._finest)
        most = max(SHORT // 2 / steps, self.budget.multiples) - spent
        most = min(most, QUICK * self.budget.seconds / max(steps * self._pace, 1e-12))
        far = next((times * parts for times in FARTHER if times * parts <= most), 0)
        if not far:
            return truth, 0
        try:
            rows, failed, _ = self.rows(master, far)
        except CosimoError:
            return truth, 0
        if failed is not None or len(rows) != len(last) or self._internal[master.step / far]:
            self._finest = kept
            return truth, far
        scale = np.where(truth.sizes > 0, truth.sizes, 1.0)
        apart, rest = (np.abs(found - truth.rows).max(axis=0) / scale for found in (rows, last))
        return replace(truth, own=np.maximum(truth.own, apart - rest / 2)), far


def _key(master: Master) -> str:
    special = sorted((target, repr(coupling)) for target, coupling in master.couplings.items())
    mixers = sorted((name, hash(mixer.uw.tobytes())) for name, mixer in master.mixers.items())
    return f"{master} {master.coupling!r} {special} {mixers}"


def limit(levels: Sequence[Array]) -> tuple[Truth, float | None]:
    """What runs (rows, p) with halved steps tend to, how far that still is, and the observed order.

    From the last three: where their changes have the same shape and shrink by a plausible factor 2^p, the limit is
    y + (change) / (2^p − 1). It is uncertain by as much as the shapes differ, over all outputs and in each, and as the
    limit would move if p were the whole number that it tends to (1 while changes are still large). Otherwise there is
    no order, and the limit is the last run, uncertain by its last change, or by that before where the last is smaller
    than any method can explain. Either is uncertain by the `noise` of the runs at least.
    """
    last = levels[-1]
    after = last - levels[-2]
    size = np.abs(last).max(axis=0)
    scale = np.where(size > 0, size, 1.0)
    change = np.abs(after / scale).max(axis=0, initial=0.0)
    if len(levels) < 3:
        return Truth(last, size, change), None
    before = (levels[-2] - levels[-3]) / scale
    scaled = after / scale
    floor = noise([np.abs((b - a) / scale).max(axis=0, initial=0.0) for a, b in pairwise(levels[-4:])])
    product = float((before * scaled).sum())
    factor = float((before * before).sum()) / product if product > 0 else math.inf
    rest = float(np.linalg.norm(before - factor * scaled)) if math.isfinite(factor) else math.inf
    off = rest / max(float(np.linalg.norm(before)), 1e-300)
    if not (ORDERS[0] <= factor <= ORDERS[1] and off <= ALIKE):
        # Agreement that no method can explain is chance: switches that happen to fall on the same moments.
        moved = np.abs(before).max(axis=0, initial=0.0)
        return Truth(last, size, np.maximum(np.where(moved > ORDERS[1] * change, moved, change), floor)), None
    added = 1 / (factor - 1)
    rows = last + after * added
    size = np.abs(rows).max(axis=0)
    # Changes that are not small beside the values do not show the order yet: it may as well be 1.
    tends = max(1, round(math.log2(factor))) if float(np.abs(before).max(initial=0.0)) <= FAR else 1
    doubt = change * max(max(off, 0.1) * added, abs(added - 1 / (2**tends - 1)))
    # What does not fit the factor counts in every output by itself: small ones hide behind large ones.
    stray = np.abs(before - factor * scaled).max(axis=0, initial=0.0) / factor * added
    # As a share of the limit, which may be far smaller than the runs.
    share = scale / np.where(size > 0, size, scale)
    return Truth(rows, size, share * np.maximum(np.maximum(doubt, stray), floor)), math.log2(factor)


def noise(changes: Sequence[Array]) -> Array:
    """Of every output, the largest change (p,) from run to run that was hardly smaller than that before it.

    Solvers with a loose tolerance make errors that do not shrink with the macro step: runs wander, and that the next
    change happens to be small says nothing. Two in a row that shrink as those of a method do are believed.

    >>> noise([np.array([c]) for c in (4.0, 5.0, 2.0)]), noise([np.array([c]) for c in (8.0, 4.0, 2.0)])
    (array([5.]), array([0.]))
    """
    grown = [np.where(ORDERS[0] * after <= before, 0.0, after) for before, after in pairwise(changes)]
    found: Array = np.max(grown, axis=0)
    return found


def over_all(truth: Truth, rows: Array, points: Array) -> Truth:
    """The same solution, larger by what all `rows` of a run are larger than at the `points` of communication.

    The rows themselves are no measure: a run may still be far larger than what it tends to.
    """
    assert truth.own is not None
    sizes = truth.sizes + np.maximum(np.abs(rows).max(axis=0, initial=0.0) - np.abs(points).max(axis=0), 0.0)
    return Truth(truth.rows, sizes, truth.own * np.where(sizes > 0, truth.sizes, 1.0) / np.where(sizes > 0, sizes, 1.0))


def better(truth: Truth, finer: Truth) -> Truth:
    """Each output from the `finer` truth, or as it was where it is known better, as far apart as both are.

    Noise of the units' solvers does not shrink with the step: an output that is small beside it is known best before.
    """
    assert truth.own is not None
    assert finer.own is not None
    apart = np.abs(finer.rows - truth.rows).max(axis=0) / np.where(finer.sizes > 0, finer.sizes, 1.0)
    doubt = np.maximum(truth.own, apart)
    keep = doubt < finer.own
    rows, sizes = np.where(keep, truth.rows, finer.rows), np.where(keep, truth.sizes, finer.sizes)
    return Truth(rows, sizes, np.where(keep, doubt, finer.own))


def with_bounds(
    names: Sequence[str], errors: OutputErrors, every: OutputErrors, truth: Truth
) -> tuple[OutputErrors, tuple[str, ...]]:
    """Outputs that did not settle get a bound of their error where that is faint, and are named.

    The error is at most what was measured and what the truth may be wrong by: noise of the units' solvers, which does
    not shrink with the step.
    """
    assert truth.own is not None
    own = dict(zip(names, truth.own.tolist(), strict=True))
    bounds = {name: bound for name in errors.unsettled if (bound := every.outputs[name] + own[name]) <= FAINT}
    left = tuple(name for name in errors.unsettled if name not in bounds)
    return replace(errors, outputs={**errors.outputs, **bounds}, unsettled=left), tuple(bounds)


def settled(names: Sequence[str], errors: OutputErrors, truth: Truth, share: float = SHARE) -> OutputErrors:
    """The errors of those outputs whose true solution is known well enough to judge them; the others are named.

    An error is a share of the largest true value, so that this must be known too, however large the error is: finer
    runs that grow as well differ little from each other beside what the first grew to, and are no truth.
    """
    assert truth.own is not None
    own = dict(zip(names, truth.own.tolist(), strict=True))
    good = {
        name: e
        for name, e in errors.outputs.items()
        if e == math.inf or own[name] <= max(min(share * e, MOST), LEAST_ERROR)
    }
    return replace(errors, outputs=good, unsettled=tuple(name for name in errors.outputs if name not in good))


def _runs_away(true: Array) -> npt.NDArray[np.bool_]:
    """Of each output, whether its range widens from quarter to quarter by a factor that does not fall, as exp(t) does.

    Where an output moves as a power of t, like a vehicle that drives off, the logarithm of that factor falls to 0.66.
    """
    second, third, last = (np.maximum(np.ptp(part, axis=0), LEAST_ERROR) for part in np.array_split(true, 4)[1:])
    away: npt.NDArray[np.bool_] = (third > STEADY * second) & (
        np.log(last / third) >= KEEPS_GROWING * np.log(third / second)
    )
    return away


def bounded(rows: Array, truth: Truth, diverged: float | None, grows: bool) -> bool | None:
    """Whether a run stays bounded; None where one run cannot tell.

    False where it diverged, was seen to grow, or comes away from the true solution faster and faster while its own
    range widens. Otherwise two stretches of equal length are compared, which together are the last three quarters. True
    only where for every output the motion, or that of its deviation, fades from the first to the second, or both go on
    and neither does the range widen nor the deviation grow. (A mode that grows or runs out of phase makes the deviation
    grow in proportion to time at least; where units switch, levels bound the range, and the deviation is a matter of
    time.) That a run is still near the truth at its end says nothing, and nothing that deviations fade where the truth
    itself runs away.
    """
    if diverged is not None or grows:
        return False
    moving = truth.sizes > 0
    if len(rows) < ROWS or not moving.any() or rows[:, ~moving].any():
        return None
    run, true = rows[:, moving] / truth.sizes[moving], truth.rows[:, moving] / truth.sizes[moving]
    off = run - true
    third, last = slice(len(off) // 2, 3 * len(off) // 4), slice(3 * len(off) // 4, None)
    missed_third, missed_last = (np.abs(off[part]).max(axis=0) for part in (third, last))
    range_third, range_last = (np.abs(run[part]).max(axis=0) for part in (third, last))
    # A run out of phase is off by its own range and the true one at most, however fast it got there.
    if ((missed_last > GROWS * np.maximum(missed_third, OFF)) & (range_last > STEADY * range_third)).any():
        return False
    begin = len(run) // 4
    middle = begin + (len(run) - begin) // 2
    before, after = slice(begin, middle), slice(middle, None)
    missed = np.abs(off[after]).max(axis=0)
    fades = [np.ptp(x[after], axis=0) <= np.maximum(FADES * np.ptp(x[before], axis=0), LEAST_ERROR) for x in (run, off)]
    goes_on = np.ptp(true[after], axis=0) >= GOES_ON * np.ptp(true[before], axis=0)
    wider = np.maximum(
        run[after].max(axis=0) - run[before].max(axis=0), run[before].min(axis=0) - run[after].min(axis=0)
    )
    switches = any(len(np.unique(column)) <= LEVELS_OF_A_SWITCH for column in true.T if np.ptp(column))
    steady = switches | (missed <= STEADY * np.abs(off[before]).max(axis=0))
    calm = fades[0] | fades[1] & ~_runs_away(true) | goes_on & (wider <= REPEATS * missed) & steady
    return True if len(rows) > ENOUGH and calm.all() else None
