"""What is watched in every run: connection defects, energy residuals, growth (docs/monitors.md); and what is counted.

After every macro step, with y the newest outputs and u(now) the values of the input polynomials at the units' time:

    defect      d_l = |gain y + offset − u(now)|                     per connection l
    residual    P_b = u_b y_b − (g_p / g_q) y_a u_a                  per power bond (power_bonds.py), energy h Σ P_b
    exchanged   ½ (|u_b y_b| + |(g_p / g_q) y_a u_a|)                the same summed up, to compare with

and growth of every output (divergence.py). `Monitor` is the plain-Python form of what the compiled loop does
(monitor.cpp), rounding for rounding: eight macro steps are summed in halves, then added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.coupling import ModelCheck
from cosimo.core.formatting import plain
from cosimo.core.master import Master
from cosimo.core.result import Warned
from cosimo.core.schedule import Convergence, Repeat
from cosimo.core.system import Link, System
from cosimo.execution.divergence import NOISE, WINDOW, Grown, Growth
from cosimo.execution.power_bonds import Bond, disagreement

if TYPE_CHECKING:
    from cosimo.execution.live import Live

BLOCK = WINDOW  # macro steps that are looked at together
DEFECT = 0.3
"""A connection is warned of when inputs miss outputs by more than this share of the outputs' motion (both rms): a held
sinusoid does when it has fewer than about 20 macro steps per period."""
RESIDUAL = 0.1
"""A power bond is warned of when the two units disagree on more than this share of the energy they exchange."""
ENOUGH = 16  # macro steps before anything is said of defects and residuals
NAMED = 5  # connections that are warned of by name
LISTED = 20  # connections that are listed in the result, worst first


@dataclass(frozen=True, eq=False)
class Watch:
    """What to watch in a system; `stop`: end the run when it is found to grow."""

    system: System
    bonds: tuple[Bond, ...] = ()
    stop: bool = False

    @property
    def inputs(self) -> list[str]:
        """Inputs whose values are followed: those of the links in their order, then external ones."""
        return [link.connection.target for link in self.system.links] + list(self.system.inputs)

    @property
    def sources(self) -> list[int]:
        """The place of every link's source among all outputs."""
        places = {name: place for place, name in enumerate(self.system.outputs)}
        return [places[link.connection.source] for link in self.system.links]

    @property
    def owners(self) -> list[int]:
        """The number of every output's unit."""
        return [number for number, unit in enumerate(self.system.units.values()) for _ in unit.outputs]

    @property
    def groups(self) -> list[list[int]]:
        """Per unit the outputs of itself and of units it is connected to: where its energy may come from."""
        near = [{number} for number in range(len(self.system.units))]
        numbers = {name: number for number, name in enumerate(self.system.units)}
        for link in self.system.links:
            a, b = numbers[link.source.unit], numbers[link.target.unit]
            near[a].add(b)
            near[b].add(a)
        outputs: list[list[int]] = [[] for _ in near]
        for output, owner in enumerate(self.owners):
            outputs[owner].append(output)
        return [[output for number in sorted(group) for output in outputs[number]] for group in near]


@dataclass(frozen=True)
class Findings:
    """What was seen in `steps` macro steps.

    Per link the largest defect, the number of the macro step after which it was seen, and Σ d²; per output the extremes
    (of whole blocks), Σ (y − y_0) and Σ (y − y_0)²; per bond Σ P and the sum exchanged.
    """

    steps: int
    largest: tuple[float, ...]
    when: tuple[int, ...]
    defects: tuple[float, ...]
    high: tuple[float, ...]
    low: tuple[float, ...]
    sums: tuple[float, ...]
    squares: tuple[float, ...]
    residual: tuple[float, ...]
    exchanged: tuple[float, ...]
    grown: tuple[Grown, ...]

    @classmethod
    def told(cls, told: Any) -> Findings:
        """From the fields in order, in lists, as the compiled loop hands them over."""
        names = [field.name for field in fields(cls)]
        *parts, grown = (told[0], *map(tuple, told[1:]))
        return cls(**dict(zip(names, (*parts, tuple(Grown(*one) for one in grown)), strict=True)))


class Monitor:
    """The plain interpreter's monitors: takes all outputs and the watched inputs after every macro step."""

    _KEPT = (
        *("_start", "_largest", "_when", "_defects", "_high", "_low"),
        *("_sums", "_squares", "_residual", "_exchanged"),
    )

    def __init__(self, watch: Watch, y: Array, u: Array) -> None:
        links, p = watch.system.links, len(y)
        self._watch, self._start, self._rows = watch, y.copy(), list[Array]()
        self._from = np.array(watch.sources, dtype=int)
        self._gain, self._offset = (np.array([getattr(n.connection, k) for n in links]) for k in ("gain", "offset"))
        self._links, self._p, self._steps = len(links), p, 0
        self._forward, self._back = (
            np.array([getattr(bond, end).number for bond in watch.bonds], dtype=int) for end in ("forward", "back")
        )
        self._ratio = np.array([bond.ratio for bond in watch.bonds])
        self._largest, self._when, self._defects = np.zeros(len(links)), [0] * len(links), np.zeros(len(links))
        self._high, self._low, self._sums, self._squares = y.copy(), y.copy(), np.zeros(p), np.zeros(p)
        self._residual, self._exchanged = np.zeros((2, len(watch.bonds)))
        groups, owners = watch.groups, watch.owners
        self._growth = Growth(np.concatenate([y, u[len(links) :]]), [groups[owner] for owner in owners])

    def observe(self, y: Array, u: Array) -> bool:
        """The signals after a macro step; whether the run shall end here."""
        self._rows.append(np.concatenate([y, u]))
        if len(self._rows) < BLOCK:
            return False
        rows = np.array(self._rows)
        self._sum_up(rows, BLOCK)
        self._window(rows)
        self._steps += BLOCK
        self._rows.clear()
        return self._watch.stop and bool(self._growth.found)

    def findings(self, final: bool = True) -> Findings:
        """What was seen; `final`, once at the end: the macro steps since the last whole block included."""
        if self._rows and final:
            count = len(self._rows)
            self._sum_up(np.array(self._rows + [self._rows[-1]] * (BLOCK - count)), count)
            self._steps += count
            self._rows.clear()
        seen = (self._largest, np.array(self._when, dtype=int), self._defects, self._high, self._low)
        sums = (self._sums, self._squares, self._residual, self._exchanged)
        return Findings.told((self._steps, *(part.tolist() for part in (*seen, *sums)), self._growth.found))

    def memory(self) -> dict[str, Any]:
        """All it remembers, as plain data."""
        kept = {name: np.array(getattr(self, name)) for name in self._KEPT}
        return {
            **kept,
            "rows": [row.copy() for row in self._rows],
            "steps": self._steps,
            "growth": self._growth.memory(),
        }

    def load(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        for name in self._KEPT:
            setattr(self, name, memory[name])
        self._when = memory["_when"].tolist()
        self._rows, self._steps = list(memory["rows"]), memory["steps"]
        self._growth.load(memory["growth"])

    def _sum_up(self, rows: Array, count: int) -> None:
        y, u = rows[:, : self._p], rows[:, self._p :]

        def cleared(x: Array) -> Array:
            x[count:] = 0.0
            return x

        with np.errstate(over="ignore", invalid="ignore"):
            moved = y - self._start
            self._sums += _sum(cleared(moved))
            self._squares += _sum(cleared(moved * moved))
            missed = cleared(np.abs(self._gain * y[:, self._from] + self._offset - u[:, : self._links]))
            self._defects += _sum(missed * missed)
            most = _largest(missed)
            for link in np.flatnonzero(most > self._largest):
                self._largest[link] = most[link]
                self._when[link] = self._steps + int(np.flatnonzero(missed[:, link] == most[link])[0]) + 1
            effort, flow = y[:, self._from[self._forward]], y[:, self._from[self._back]]
            received = u[:, self._forward] * flow
            given = self._ratio * (effort * u[:, self._back])
            self._residual += _sum(cleared(received - given))
            self._exchanged += _sum(cleared(0.5 * (np.abs(received) + np.abs(given))))

    def _window(self, rows: Array) -> None:
        watched = np.column_stack([rows[:, : self._p], rows[:, self._p + self._links :]])
        high, low = watched.max(axis=0), watched.min(axis=0)
        self._high = np.maximum(self._high, high[: self._p])
        self._low = np.minimum(self._low, low[: self._p])
        self._growth.window(high, low)


def _sum(x: Array) -> Array:
    """Over 8 rows, in halves."""
    four = x[:4] + x[4:]
    two = four[:2] + four[2:]
    total: Array = two[0] + two[1]
    return total


def _largest(x: Array) -> Array:
    four = np.where(x[:4] > x[4:], x[:4], x[4:])
    two = np.where(four[:2] > four[2:], four[:2], four[2:])
    largest: Array = np.where(two[0] > two[1], two[0], two[1])
    return largest


# ---- what monitors found: warnings with time, connection and remedy, and plain data for the result -------------------


@dataclass(frozen=True)
class MonitorReport:
    """The findings of a run whose macro step k ended at `time(k)`; h is the macro step."""

    watch: Watch
    findings: Findings
    time: Callable[[int], float]
    h: float

    def warnings(self) -> list[Warned]:
        """Growth first; once per kind and connection, many connections summed up."""
        found = [*self._growing(), *self._residuals()]
        large = [(link, relative) for link, relative in self._defects() if relative > DEFECT and self._smooth(link)]
        for link, relative in large[:NAMED]:
            message = (
                f"connection {link.connection}: the input lags its source by {100 * relative:.0f} % of the signal's "
                f"range, here by {self.findings.largest[link.number]:.3g}; use a smaller step, extrapolate (hold1), or "
                "iterate"
            )
            found.append(Warned(message, self.time(self.findings.when[link.number])))
        if more := large[NAMED:]:
            first = min(self.findings.when[link.number] for link, _ in more)
            found.append(
                Warned(
                    f"{len(more)} further connections lag by more than {100 * DEFECT:g} %; use a smaller step",
                    self.time(first),
                )
            )
        return found

    def info(self) -> dict[str, Any]:
        """Plain data: the worst connections, the bonds, the outputs that grow."""
        connections = [
            {
                "source": link.connection.source,
                "target": link.connection.target,
                "largest_defect": plain(self.findings.largest[link.number]),
                "time": self.time(self.findings.when[link.number]),
                "relative": plain(relative),
            }
            for link, relative in self._defects()[:LISTED]
        ]
        bonds = [bond.balance(residual * self.h, exchanged * self.h) for bond, residual, exchanged in self._bonds()]
        growing = [
            {"output": self.watch.system.outputs[one.output], "time": self.time(one.step), "factor": one.factor}
            for one in self.findings.grown
        ]
        return {"connections": connections, "bonds": bonds, "growing": growing}

    def _growing(self) -> Iterator[Warned]:
        if not self.findings.grown:
            return
        first, *others = self.findings.grown
        system, names = self.watch.system, self.watch.system.outputs
        more = ", ".join(names[one.output] for one in others[:3]) + " …" * (len(others) > 3)
        also = f" (so do {more})" if more else ""
        leaving = [link.connection for link in system.links if link.connection.source == names[first.output]]
        through = f" (connection {leaving[0]})" if leaving else ""
        doubling = math.log(2.0) / math.log(first.factor) * self.h
        message = (
            f"{names[first.output]} of unit '{system.names[self.watch.owners[first.output]]}' grows by the factor "
            f"{first.factor:.7g} per macro step, doubling every {doubling:.3g} s{also}, as in an unstable "
            f"coupling{through}; check with 'cosimo analyse', and use a smaller step, Gauss–Seidel, or an iterative "
            "master"
        )
        yield Warned(message, self.time(first.step), grows=True)

    def _residuals(self) -> Iterator[Warned]:
        for bond, residual, exchanged in self._bonds():
            ratio = disagreement(residual, exchanged)
            if ratio > RESIDUAL and self.findings.steps >= ENOUGH:
                message = (
                    f"power bond {bond} ({bond.why}): up to here the units '{bond.forward.source.unit}' and "
                    f"'{bond.forward.target.unit}' disagree on {100 * ratio:.0f} % of the energy they exchange; use a "
                    f"smaller step, Gauss–Seidel, or compensation"
                )
                yield Warned(message, self.time(self.findings.steps))

    def _bonds(self) -> Iterable[tuple[Bond, float, float]]:
        return zip(self.watch.bonds, self.findings.residual, self.findings.exchanged, strict=True)

    def _defects(self) -> list[tuple[Link, float]]:
        """Links with √(Σ d² / Σ (s − mean s)²), s = gain y + offset; worst first. Signals that rest are left out."""
        found, n = self.findings, self.findings.steps
        if n < ENOUGH:
            return []
        rows = []
        for link, source in zip(self.watch.system.links, self.watch.sources, strict=True):
            high, low = found.high[source], found.low[source]
            variance = (found.squares[source] - found.sums[source] * found.sums[source] / n) * link.connection.gain**2
            if high - low > NOISE * max(abs(high), abs(low)) and 0.0 < variance < math.inf:
                rows.append((link, math.sqrt(found.defects[link.number] / variance)))
        return sorted((row for row in rows if not math.isnan(row[1])), key=lambda row: -row[1])

    def _smooth(self, link: Link) -> bool:
        """Whole numbers and switches jump by their nature."""
        unit = self.watch.system.units[link.target.unit]
        return unit.inputs[link.target.index] not in unit.discrete_inputs


# ---- what is counted along a run, as sums, so that long runs take no more memory -------------------------------------


class Iterations:
    """What happened in iterations until convergence."""

    def __init__(self, master: Master) -> None:
        repeats = [op.times for op in master.schedule.operations if isinstance(op, Repeat)]
        self.until = next((times for times in repeats if isinstance(times, Convergence)), None)
        self.count = self.sweeps = self.failed = self.first_failed = 0
        self.worst = self.first_residual = 0.0

    def add(self, sweeps: Sequence[int], residuals: Sequence[float]) -> None:
        """Take over what an engine counted."""
        if not sweeps or self.until is None:
            return
        left = np.asarray(residuals, dtype=float)
        left = np.where(np.isnan(left), np.inf, left)  # of outputs that are no numbers
        over = np.flatnonzero(left > self.until.tolerance)
        if len(over) and not self.failed:
            self.first_failed, self.first_residual = self.count + int(over[0]), float(left[over[0]])
        self.failed += len(over)
        self.count += len(left)
        self.sweeps += int(np.sum(sweeps))
        self.worst = max(self.worst, float(left.max()))

    def info(self) -> dict[str, Any]:
        """For the result: all sweeps, the largest residual at the end of an iteration, and how many failed."""
        return {"sweeps": self.sweeps, "largest_residual": self.worst, "unconverged": self.failed}

    def warnings(self, start: float, step: float, made: int) -> list[Warned]:
        """One for all iterations that did not converge in the `made` macro steps, with the time of the first."""
        if self.until is None or not self.failed:
            return []
        per_step = self.count // max(1, made) or 1
        first = start + float(self.first_failed // per_step) * step
        message = (
            f"the iteration did not converge in {self.until.limit} sweeps (residual {self.first_residual:.1e}, wanted "
            f"{self.until.tolerance:g}); use Anderson acceleration, a smaller step, or a larger limit"
        )
        return [Warned(message, first, self.failed)]

    def memory(self) -> dict[str, Any]:
        """All that is counted, as plain data."""
        return {name: value for name, value in vars(self).items() if name != "until"}

    def load(self, memory: Mapping[str, Any]) -> None:
        """Go on counting from what `memory` gave."""
        vars(self).update({name: memory[name] for name in self.memory()})


class Ranges:
    """Values outside the range that their unit declares; looked at in the rows, so only what is recorded is seen."""

    def __init__(self, system: System, names: Sequence[str]) -> None:
        declared = {
            f"{unit}.{variable}": limits
            for unit, described in system.units.items()
            for variable, limits in described.ranges().items()
        }
        self._names = [name for name in names if name in declared]
        self._columns = [1 + place for place, name in enumerate(names) if name in declared]
        self._low, self._high = np.array([declared[name] for name in self._names]).reshape(-1, 2).T
        self._limits = declared
        self.found: dict[str, tuple[float, float, int]] = {}
        """By name: the time and the value of the first, and how many there were."""

    def look(self, rows: Array) -> None:
        """At the next rows, time first."""
        if not self._columns or not len(rows):
            return
        values = rows[:, self._columns]
        outside = (values < self._low) | (values > self._high)
        if not outside.any():
            return
        for place in np.flatnonzero(outside.any(axis=0)):
            name, hits = self._names[place], np.flatnonzero(outside[:, place])
            first = float(rows[hits[0], 0]), float(values[hits[0], place])
            time, value, count = self.found.get(name, (*first, 0))
            self.found[name] = (time, value, count + len(hits))

    def warnings(self) -> list[Warned]:
        """One per variable."""
        return [
            Warned(
                f"{name} is {value:.6g}, outside its declared range {_show(self._limits[name])}; the unit is used "
                "outside its valid range",
                time,
                count,
            )
            for name, (time, value, count) in self.found.items()
        ]


def _show(limits: tuple[float, float]) -> str:
    low, high = limits
    left = "(−∞" if low == -math.inf else f"[{low:g}"
    return f"{left}, {'∞)' if high == math.inf else f'{high:g}]'}"


# ---- identified models that do not fit any more: compensated inputs are held meanwhile -------------------------------

SWITCHES = 10
"""Changes between compensated and held inputs that are told one by one."""


def switch_warnings(
    checks: Sequence[ModelCheck], switches: Sequence[tuple[int, int]], time: Callable[[int, float], float]
) -> list[Warned]:
    """When inputs were held because a model did not fit, and when they were compensated again."""
    found = []
    for k, number in switches[:SWITCHES]:
        message = "all models fit again: inputs are compensated"
        if number >= 0:
            message = (
                f"unit '{checks[number].unit}' no longer responds as its model: inputs are held instead of "
                "compensated until it does; design the compensation again there, or use another master"
            )
        found.append(Warned(message, time(k, 0.0)))
    if len(switches) > SWITCHES:
        more, last = len(switches) - SWITCHES, switches[-1][0]
        message = f"inputs changed {more} more times between held and compensated; use a master that needs no models"
        found.append(Warned(message, time(last, 0.0)))
    return found


def watch_warnings(live: Live) -> list[Warned]:
    """When models that were learned in the run (`Dmd`, watched) were not used any more, and when again."""
    found = []
    for joint, predictor, period in zip(live.joints, live.predictors, live.periods, strict=True):
        used, held, changes, changed = predictor.watch
        whose, what = f"unit '{joint.unit}'", f"what '{joint.source}' sends"
        if held and not changes:
            message = f"{whose}: no model that was learned predicts {what} clearly better than a hold: inputs were held"
            found.append(Warned(message, live.start_time))
        for number, sample in enumerate(changed[1:]):
            message = f"{whose}: what was learned predicts {what} again, and is used"
            if number % 2 == 0:
                message = f"{whose}: what was learned no longer predicts {what}: inputs are held until it does"
            found.append(Warned(message, live.start_time + sample * period))
        if changes > len(changed):
            state = "used" if used else "held"
            message = f"{whose}: this changed {changes - len(changed)} more times; at the end inputs were {state}"
            found.append(Warned(message, live.start_time + changed[-1] * period))
    return found


def held_steps(switches: Sequence[tuple[int, int]], made: int) -> int:
    """How many macro steps were made with held inputs."""
    ends = [*(k for k, _ in switches), *([made] if len(switches) % 2 else [])]
    return sum(end - begin for begin, end in zip(ends[::2], ends[1::2], strict=True))
