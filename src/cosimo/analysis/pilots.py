"""Pilot runs: the coupling itself, run a few times before the answer is given, as a careful engineer would.

The asked master is run over the horizon at h, and then at h/2, h/4, … until what these runs tend to is known to a tenth
of what is judged. The limit is the true solution (Richardson, where the last three runs approach it by a constant
factor 2^p; p is the observed order), and the run at h has a measured error. What pilot runs cannot see: errors that
the units' own solvers make at every step alike, and what happens after the part that was run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from cosimo.analysis.truth import OutputErrors, Truth, count_steps, output_errors
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError, NonFiniteError, RunError
from cosimo.core.formatting import percent, step_text
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.execution import run
from cosimo.masters import jacobi

SHARE = 0.1
"""Part of the judged error that the reference may be wrong by."""
MULTIPLES = 20
"""Runs as long as the one asked for that all finer ones together may cost, unless they are short."""
SHORT = 100_000
"""Macro steps of all finer runs together that are always allowed: a fraction of a second for most units."""
SECONDS = 10.0
"""Wall time after which no finer run is begun."""
PROBE, LEAST, LEVELS = 50, 100, 15
"""Macro steps of the run that is timed first, and of the shortest part of a horizon; what h, h/2, h/4, h/8 cost."""
LEAST_PARTS = 4
"""Into how many parts a macro step is divided at least, whatever that costs."""
MOVES = 10
"""Changes of outputs from which a fixed internal step can be told."""
ORDERS = (1.5, 70.0)
"""Factors between successive changes that are plausible for a method of order 0.6 to 6."""
ALIKE = 0.25
"""By how much the shapes of two successive changes may differ, relative, to be extrapolated."""
ROUNDING = 1e-9
"""Relative errors below this are rounding."""
GROWS = 2.0
"""By what the deviation grows from the third to the last quarter of a run that is called growing."""
FADES = 0.5
"""What is left of the largest deviation in the last quarter of a run that is called stable."""
OFF = 1.0
"""Relative deviation beyond which growth is looked for: smaller ones may be a phase that runs away."""


@dataclass(frozen=True)
class Budget:
    """What pilot runs may cost: `multiples` of the run asked for (short ones more), and `seconds` of wall time."""

    multiples: float = MULTIPLES
    seconds: float = SECONDS

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


@dataclass(frozen=True, eq=False)
class Pilot:
    """What pilot runs of one master showed.

    `errors` are measured, None where the runs did not converge (`reason` says why); `own_error` is how wrong the
    reference `truth` may be, `order` the observed power of h, `runs` how many finer runs there were. `bounded` tells
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
    """Whether runs grow at every step tried: the system itself does, whatever the master."""
    truth: Truth | None = field(default=None, repr=False)


class Pilots:
    """Pilot runs of masters on one system, from `start` over `horizon` seconds; what was run is remembered.

    Where the budget does not allow for the whole horizon, a part of it is run, `reach` seconds. Once it is spent (twice
    over, as recommended masters are run too), further runs are refused.
    """

    def __init__(self, system: System, *, start: float, horizon: float, budget: Budget | None = None) -> None:
        self.system, self.start, self.budget = system, start, budget or Budget()
        self.horizon = self.reach = horizon
        self.seconds = 0.0
        """Wall time spent so far."""
        self._pilots: dict[tuple[str, float], Pilot] = {}
        self._rows: dict[tuple[str, float, int], tuple[Array, float | None, bool]] = {}
        self._stepping: dict[tuple[str, float], float] = {}
        self.internal: dict[str, float] = {}
        """Units whose outputs change only at multiples of a step of their own, and that step in seconds."""
        self._sweeps: dict[tuple[str, float], float] = {}

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent."""
        return self.seconds > 2 * self.budget.seconds

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
            return OutputErrors(dict.fromkeys(self.system.outputs, math.inf), self.reach, "measured", math.inf)
        return output_errors(self.system, master, rows[::parts], truth, self.reach, "measured")

    def rows(self, master: Master, parts: int) -> tuple[Array, float | None, bool]:
        """All outputs at the communication points of `master`, run with h / `parts`; when it diverged; if it grows."""
        key = (_key(master), master.step, parts)
        if key not in self._rows:
            if self.exhausted:
                raise ConfigurationError(
                    f"the budget of {self.budget.seconds:g} s for pilot runs is spent; give a longer one (--budget)."
                )
            begin = time.perf_counter()
            self._rows[key] = self._run(master, parts)
            self.seconds += time.perf_counter() - begin
        return self._rows[key]

    def stepping(self, master: Master) -> float:
        """Seconds that stepping the units of this master took; 0 where it was not run to its end."""
        return self._stepping.get((_key(master), master.step), 0.0)

    def sweeps(self, master: Master) -> float | None:
        """How many sweeps per macro step the run of an iterating master took; None where it was not run to its end."""
        return self._sweeps.get((_key(master), master.step))

    def _run(self, master: Master, parts: int) -> tuple[Array, float | None, bool]:
        steps = count_steps(self.reach, master.step)
        finer = master.with_step(master.step / parts)
        try:
            result = run(self.system, finer, start=self.start, stop=self.start + steps * master.step)
        except NonFiniteError as error:
            kept = error.result
            reached = float(kept.time[-1]) if kept is not None and len(kept) else self.start
            return np.full((steps + 1, len(self.system.outputs)), np.nan), reached, True
        if "ended_at" in result.info:
            steps = self._until(result, master.step, steps)
        if parts == 1:
            self._stepping[_key(master), master.step] = float(result.info["stepping_time"])
            if result.info.get("sweeps"):
                self._sweeps[_key(master), master.step] = result.info["sweeps"] / steps
        self._look_inside(result, finer.step)
        places = [result.names.index(name) for name in self.system.outputs]
        grows = bool((result.info.get("monitors") or {}).get("growing"))
        return result.values[::parts][: steps + 1, places], None, grows

    def _until(self, result: Result, step: float, steps: int) -> int:
        """Macro steps before the end that a unit asked for; the first run decides how far all of them go."""
        unit, end = result.info["ended_by"], result.info["ended_at"]
        whole = int((end - self.start) / step * (1 + 1e-12))
        if whole < steps:
            if self._rows or whole == 0:
                raise ConfigurationError(f"unit '{unit}' ended the simulation at t = {end:g}; stop before.")
            self.reach = whole * step
        return min(whole, steps)

    def _look_inside(self, result: Result, step: float) -> None:
        """Recognise a fixed internal step: outputs of a unit that move, but only every so many macro steps."""
        for name, unit in self.system.units.items():
            columns = [result.names.index(f"{name}.{output}") for output in unit.outputs]
            moves = np.flatnonzero((np.diff(result.values[:, columns], axis=0) != 0).any(axis=1)) + 1
            if len(moves) < MOVES:
                continue
            gaps = np.diff(moves)
            usual = int(np.median(gaps))
            # Rounding of the unit's own clock moves a change by a step now and then.
            if usual > 1 and (np.abs(gaps - usual * np.round(gaps / usual)) <= 1).all() and gaps.min() >= usual - 1:
                self.internal[name] = usual * step

    def _fit(self, master: Master) -> None:
        """Time a short run, and take only as much of the horizon as the budget allows for."""
        if math.isinf(self.budget.seconds):
            return
        steps = count_steps(self.horizon, master.step)
        probe = min(steps, PROBE)
        begin, stepping = time.perf_counter(), 0.0
        with suppress(RunError):
            result = run(self.system, master, start=self.start, stop=self.start + probe * master.step)
            stepping = float(result.info["stepping_time"])
        self.seconds += time.perf_counter() - begin
        allowed = self.budget.seconds / max(stepping / probe, 1e-12) / LEVELS
        if allowed < steps:
            # A round time, so that a little more or less of the clock gives the same figures.
            reach = max(math.floor(allowed), min(LEAST, steps)) * master.step
            size = 10.0 ** math.floor(math.log10(reach))
            self.reach = min(max(d for d in (1, 2, 5) if d * size <= reach * (1 + 1e-9)) * size, self.horizon)

    def _pilot(self, master: Master) -> Pilot:
        begin = time.perf_counter()
        # Corrected inputs belong to one step: finer runs are plain.
        finer = jacobi(self.system, master.step) if master.mixers else master
        try:
            if not self._pilots:
                self._fit(master)
            rows, diverged, grows = self.rows(master, 1)
        except (RunError, ConfigurationError) as error:
            return Pilot(None, None, None, math.nan, 0, time.perf_counter() - begin, reason=f"the run failed: {error}")
        steps, levels = len(rows) - 1, list[Array]()
        errors: OutputErrors | None = None
        truth, order, own, spent, parts, reason, finest = None, None, math.inf, 0, 2, "", False
        while True:
            spent += parts
            if parts > LEAST_PARTS and spent > self.budget.multiples and spent * steps > SHORT:
                reason = "finer runs would cost more than the budget" if levels else "finer runs diverge too"
                break
            try:
                fine, failed, finest = self.rows(finer, parts)
            except CosimoError as error:
                reason = f"a run with steps of {master.step / parts:g} s failed: {error}"
                break
            levels = [*levels, fine] if failed is None else []
            if len(levels) > 1:
                truth, order = limit([rows, *levels] if diverged is None and not master.mixers else levels)
                errors = output_errors(self.system, master, rows, truth, self.reach, "measured")
                errors, own = settled(self.system.outputs, errors, truth), truth.own_error
                if not errors.unsettled:
                    break
            parts *= 2
        seconds, itself = time.perf_counter() - begin, grows and finest and not self.internal
        if self.internal and reason:
            inside = ", ".join(f"{name} by {step_text(step)}" for name, step in self.internal.items())
            reason += f"; units step by a length of their own inside ({inside}), shorter macro steps change nothing"
        if not levels and diverged is not None:
            # It may be a unit that returns no numbers as well as a system that grows beyond all bounds.
            reason = f"every run leaves the range of numbers, at t = {diverged:g} s and with shorter steps too"
            return Pilot(None, None, None, own, 0, seconds, diverged, reason)
        if truth is None or errors is None or (errors.unsettled and not errors.outputs):
            seen = f"; the last two runs differ by {percent(own)}" if errors is not None else ""
            stays = False if grows else None
            return Pilot(None, stays, order, own, len(levels), seconds, diverged, reason + seen, itself, truth)
        stays = bounded(rows, truth, diverged, grows and not itself)
        return Pilot(errors, stays, order, own, len(levels), seconds, diverged, reason, itself, truth)


def _key(master: Master) -> str:
    special = sorted((target, repr(coupling)) for target, coupling in master.couplings.items())
    return f"{master} {master.coupling!r} {special} {sorted(master.mixers)}"


def limit(levels: Sequence[Array]) -> tuple[Truth, float | None]:
    """What runs (rows, p) with halved steps tend to, how far that still is, and the observed order.

    From the last three: where their changes have the same shape and shrink by a plausible factor 2^p, the limit is
    y + (change) / (2^p − 1). It is uncertain by as much as the shapes differ, and as the limit would move if p were the
    whole number that it tends to. Otherwise it is the last run, uncertain by its last change.
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
    product = float((before * scaled).sum())
    factor = float((before * before).sum()) / product if product > 0 else math.inf
    order = math.log2(factor) if 0 < factor < math.inf else None
    rest = float(np.linalg.norm(before - factor * scaled)) if math.isfinite(factor) else math.inf
    off = rest / max(float(np.linalg.norm(before)), 1e-300)
    if not (ORDERS[0] <= factor <= ORDERS[1] and off <= ALIKE):
        return Truth(last, size, change), order
    added = 1 / (factor - 1)
    rows = last + after * added
    size = np.abs(rows).max(axis=0)
    tends = max(1, round(math.log2(factor)))
    return Truth(rows, size, change * max(max(off, 0.1) * added, abs(added - 1 / (2**tends - 1)))), order


def settled(names: Sequence[str], errors: OutputErrors, truth: Truth) -> OutputErrors:
    """The errors of those outputs whose true solution is known well enough to judge them; the others are named."""
    assert truth.own is not None
    own = dict(zip(names, truth.own.tolist(), strict=True))
    good = {name: e for name, e in errors.outputs.items() if own[name] <= max(SHARE * e, ROUNDING)}
    return replace(errors, outputs=good, unsettled=tuple(name for name in errors.outputs if name not in good))


def bounded(rows: Array, truth: Truth, diverged: float | None, grows: bool) -> bool | None:
    """Whether a run stays bounded; None where one run cannot tell.

    False where it diverged, was seen to grow, or comes away from the true solution faster and faster. True only where
    its deviation fades: that a run is still near the truth at its end does not say that it stays there.
    """
    if diverged is not None or grows:
        return False
    moving = truth.sizes > 0
    off = np.abs(rows - truth.rows)[:, moving] / truth.sizes[moving]
    quarter = len(off) // 4
    if quarter < 4 or not off.size:
        return None
    third, fourth = off[2 * quarter : 3 * quarter].max(axis=0), off[3 * quarter :].max(axis=0)
    if (fourth > GROWS * np.maximum(third, OFF)).any():
        return False
    return True if (fourth <= np.maximum(FADES * off.max(axis=0), ROUNDING)).all() else None
