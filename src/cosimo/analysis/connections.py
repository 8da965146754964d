"""The most critical connection: what a little delay there, or none at all, does to stability and to the error.

A delay of ε macro steps on one connection, all others as they are, is modelled by mixing each sample with the one
before it,

    s'_k = (1 − ε) s_k + ε s_{k−1},

exact to first order in ε, and for −1 < ε < 0 a prediction. The hold itself delays by half a step on average: a sample
taken at the start of the step acts ½ too late, one taken at its end ½ too early. A connection is *fresh* when ε takes
back just that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from cosimo.algebra.operations import Operations, flattened
from cosimo.algebra.product import CoupledModel, LinearSystem
from cosimo.analysis.cost import Cost
from cosimo.analysis.model import Model
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.truth import undivided
from cosimo.core import dataclass
from cosimo.core.arrays import Array, exponential, interpolation_matrix
from cosimo.core.coupling import Coupling, CouplingMatrices, Sampling
from cosimo.core.document import Column, Document, DocumentTable, Figure, Section
from cosimo.core.errors import ConfigurationError, CosimoError, UnknownNameError
from cosimo.core.formatting import percent, step_text
from cosimo.core.master import Master
from cosimo.core.system import Link, System
from cosimo.core.timing import TimedCouple, timeline
from cosimo.couplings import Hold
from cosimo.masters import gauss_seidel, jacobi, multirate
from cosimo.masters.words import command_options, describe

SMALL = 1e-3
"""The delay, in macro steps, over which derivatives are taken."""


@dataclass(frozen=True, eq=False)
class Delayed(Coupling):
    """Like `Hold(inner.degree)`, but each sample mixed with the one before it: `delay` macro steps later."""

    inner: Coupling
    delay: float

    @property
    def history(self) -> int:  # type: ignore[override]
        return self.inner.history + 1

    @property
    def degree(self) -> int:  # type: ignore[override]
        return self.inner.degree

    @property
    def error_order(self) -> int:  # type: ignore[override]
        return 1  # a delay is an error of first order

    def matrices(self, sampling: Sampling) -> CouplingMatrices:
        """The memory holds samples as they came; they are mixed when the polynomial is formed."""
        d, known = self.history, len(sampling.stamps)
        ww, ws, uw = np.zeros((d, d)), np.zeros((d, 1)), np.zeros((self.degree + 1, d))
        ws[0, 0] = 1.0
        for new, old in enumerate(sampling.kept, 1):
            ww[new, old] = 1.0
        used = min(known, self.inner.history)
        mix = np.zeros((used, d))
        for row in range(used):
            earlier = min(row + 1, known - 1)
            gap = float(sampling.stamps[row] - sampling.stamps[earlier])
            share = self.delay / gap if gap else 0.0
            mix[row, row] += 1 - share
            mix[row, earlier] += share
        uw[:used] = interpolation_matrix(sampling.stamps[:used]) @ mix
        return CouplingMatrices(ww, ws, uw)


@dataclass(frozen=True)
class ConnectionEffect:
    """What the delay of one connection does.

    `delay`: how late its samples act on average, in macro steps (½ for a hold from the start of the step, −½ from its
    end); `radius_slope` and `error_slope`: change of ρ(Φ) and of the typical error (root mean square over time and
    outputs) per macro step of delay more; `fresh_radius` and `fresh_error`: both with this delay taken back. Errors are
    NaN where none could be predicted.
    """

    connection: str
    delay: float
    radius_slope: float
    error_slope: float
    fresh_radius: float
    fresh_error: float


def effects(system: System, master: Master, model: Model | None) -> list[ConnectionEffect]:
    """The effect of every connection that is held (the newest sample, or a polynomial through the last ones)."""
    ages, plain = _ages(system, master), Operations(system, master)
    found = []
    for link in system.links:
        target = link.connection.target
        coupling = master.coupling_of(target)
        if not coupling.interpolates or link.target.unit in master.mixers or target not in ages:
            continue
        delay = ages[target] + (0.5 if coupling.degree == 0 else 0.0)

        def delayed(by: float, target: str = target, coupling: Coupling = coupling) -> tuple[float, float]:
            changed = replace(master, couplings={**master.couplings, target: Delayed(coupling, by)})
            linear = LinearSystem(system, changed, Operations(system, changed, plain))
            try:
                radius = Spectrum(linear).radius
            except (ConfigurationError, np.linalg.LinAlgError):
                radius = math.nan
            return radius, _typical_error(model, changed, linear)

        (less, less_error), (more, more_error) = delayed(-SMALL), delayed(SMALL)
        fresh, fresh_error = delayed(-delay)
        slope, error_slope = (more - less) / (2 * SMALL), (more_error - less_error) / (2 * SMALL)
        found.append(ConnectionEffect(str(link.connection), delay, slope, error_slope, fresh, fresh_error))
    return found


def _typical_error(model: Model | None, master: Master, linear: LinearSystem) -> float:
    """The error that the verdict would show of this master: with the units' own solvers, where these are not exact."""
    if model is None or model.rests:
        return math.nan
    exact = model.base is not None and model.base.exact
    return (model.predict_coupling(master, linear) if exact else model.predict(master)).typical


def worst_connection(found: list[ConnectionEffect], radius: float, error: float) -> ConnectionEffect | None:
    """The connection whose delay, taken back, helps most: stability first where it is lost, else the error."""
    name = "fresh_radius" if radius > 1 or not math.isfinite(error) else "fresh_error"
    best: ConnectionEffect | None = min(
        found, key=lambda effect: (not math.isfinite(getattr(effect, name)), getattr(effect, name)), default=None
    )
    return best


def _ages(system: System, master: Master) -> Mapping[str, float]:
    """How old the newest sample is when it is used, in macro steps, by target input; of an iteration the last sweep."""
    return {
        link.connection.target: -float(sampling.stamps[0])
        for operation in flattened(timeline(system, master).operations)
        if isinstance(operation, TimedCouple)
        for link, sampling in zip(system.incoming(operation.unit), operation.samplings, strict=True)
    }


# ---- steps where they matter: rates of the units and orders of the connections for one output ------------------------
# What a connection delivers wrongly, its defect d_c(t) = (held input) − (true input), moves an output by
#
#     e_c(t_k) = Σ_j w_c(k − j) d_c(t_j),     w_c(i) = c Φ^i Γ_c,     Φ = exp(A_c τ),  Γ_c = ∫_0^τ exp(A_c s) ds b_c,
#
# to first order in d, with c the row of the output and b_c the column of the input in the closed loop. The rows c Φ^i
# are the adjoint solution: one product with a vector per tick gives the weights of all connections at once. d follows
# from the true motion for every sampling period and order, so that any choice of rates is priced by sums of known
# signals.


TICKS = 2048
"""Ticks of the horizon on which defects are formed at least; the shortest step that is considered is one of them."""
ORDERS = (0, 1, 2)
LONGEST = 7
"""Doublings of the shortest step that are considered."""
MOST = 100_000
"""Macro steps over the horizon that are considered at most."""
REFINED = 12
"""Steps that are tried to bring the predicted error to the tolerance."""
SHARES = (1.0, 1 / 4, 4.0)
"""Parts of the tolerance for which rates are chosen; afterwards all steps are stretched, which weights do not know."""
CLOSE = 0.8
"""Share of the tolerance that is close enough to it."""


@dataclass(frozen=True)
class GoalPlan:
    """A multirate master that keeps one `output` within `tolerance`, from the weights of defects on it.

    `weights` is, by connection, the error of the output if this connection alone were held at the common step, relative
    to the output's size. `unit_steps` are those of the master per second, `common_steps` those of the best Jacobi or
    Gauss–Seidel master, whose units all take one step. `predicted` and `measured` are errors of the output; `reason`
    says why nothing is gained, empty where at most half of the unit steps are needed.
    """

    output: str
    tolerance: float
    master: Master
    weights: Mapping[str, float]
    predicted: float
    measured: float
    unit_steps: float
    common: Master
    common_steps: float

    @property
    def reason(self) -> str:
        """Why fewer than half of the unit steps cannot be saved; empty where they can."""
        if self.unit_steps <= self.common_steps / 2:
            return ""
        if len(self.master.durations) == 2:
            return "of two units the faster one alone makes half of the steps, and a longer step of it misses the goal"
        if len(set(self.master.durations.values())) == 1:
            return f"no unit matters so little to {self.output} that a longer step of its own is permitted"
        return f"too few units matter so little to {self.output} that longer steps of their own are permitted"

    @property
    def document(self) -> Document:
        """For text and JSON."""
        met = self.measured <= 2 * self.tolerance
        share = self.unit_steps / self.common_steps
        units = [{"unit": name, "step_size": step} for name, step in self.master.durations.items()]
        connections = [
            {"connection": name, "weight": weight, "coupling": str(self.master.coupling_of(name.rpartition("→ ")[2]))}
            for name, weight in sorted(self.weights.items(), key=lambda pair: -pair[1])
        ]
        figures = (
            Figure("output", "", self.output),
            Figure("tolerance", "tolerance", self.tolerance, percent(self.tolerance)),
            Figure("predicted_error", "predicted error", self.predicted, percent(self.predicted)),
            Figure("measured_error", "measured error", self.measured, percent(self.measured)),
            Figure("unit_steps", "unit steps per second", self.unit_steps),
            Figure("common_steps", "with one common step", self.common_steps, note=describe(self.common)),
            Figure("master", "master", describe(self.master), describe(self.master)),
            Figure("options", "", command_options(self.master)),
            Figure("reason", "not half of the steps" if self.reason else "", self.reason or None, self.reason),
        )
        columns = (Column("unit", "unit", right=False), Column("step_size", "step", step_text))
        wires = (
            Column("connection", "connection", right=False),
            Column("weight", "error at the common step", percent),
            Column("coupling", "coupling", right=False),
        )
        tables = (
            DocumentTable("units", "Steps", columns, units),
            DocumentTable("connections", "Weights of the connections", wires, connections),
        )
        text = f"{self.output} within {percent(self.measured)} at {share:.2g} × the unit steps of one common step"
        section = Section("goal", "", figures, tables)
        return Document(f"goal of {percent(self.tolerance)}", "good" if met else "bad", text, sections=(section,))


class Defects:
    """The effect of every connection's defect on one output, for periods of 1, 2, 4, … ticks and every order."""

    def __init__(self, model: Model, output: str) -> None:
        local = model.local
        self.system = local.linear
        if output not in self.system.outputs:
            raise UnknownNameError("output", output, self.system.outputs)
        place = list(self.system.outputs).index(output)
        fastest = float(np.abs(model.poles).max(initial=0.0))
        count = TICKS if fastest == 0 else max(TICKS, math.ceil(2 * model.horizon * fastest))
        self.tick = model.horizon / min(count, 16 * TICKS)
        ticks = round(model.horizon / self.tick)
        self.rows = undivided(local, step=self.tick, start=model.start, steps=ticks)
        self.size = float(np.abs(self.rows[:, place]).max())
        if not self.size > 0:
            raise ConfigurationError(f"the output {output} stays 0; name one that moves.")
        self.weights = self._adjoint(local.coupled.dense(), place, ticks)
        self._effects: dict[tuple[int, int, int], Array] = {}

    def _adjoint(self, coupled: CoupledModel, place: int, ticks: int) -> Array:
        """w_c(i) for all inputs (ticks, m), from the last tick backwards."""
        n, m = coupled.B.shape
        closed = coupled.B @ np.linalg.inv(np.eye(m) - coupled.L @ coupled.D)
        joined = exponential(np.block([[coupled.A, closed], [np.zeros((m, n + m))]]) * self.tick)
        Phi, Gamma = joined[:n, :n], joined[:n, n:]
        row, found = coupled.C[place], np.empty((ticks, m))
        for i in range(ticks):
            found[i] = row @ Gamma
            row = row @ Phi
        return found

    def effect(self, link: Link, period: int, order: int) -> Array:
        """e_c over time, relative to the size of the output, of a connection sampled every `period` ticks."""
        key = (link.number, period, order)
        if key not in self._effects:
            outputs, inputs = list(self.system.outputs), list(self.system.input_names)
            u = link.connection.gain * self.rows[:, outputs.index(link.connection.source)]
            now = np.arange(len(u) - 1)
            last = now // period * period
            samples = [u[np.maximum(last - j * period, 0)] for j in range(order + 1)]
            theta = (now - last + 0.5) / period
            held = sum(
                sample * np.prod([(theta + i) / (i - j) for i in range(order + 1) if i != j], axis=0)
                for j, sample in enumerate(samples)
            )
            defect = held - (u[:-1] + u[1:]) / 2
            weight = self.weights[:, inputs.index(link.connection.target)]
            size = 2 ** math.ceil(math.log2(2 * len(defect)))
            spectra = np.fft.rfft(defect, size) * np.fft.rfft(weight, size)
            self._effects[key] = np.fft.irfft(spectra, size)[: len(defect)] / self.size
        return self._effects[key]

    def best(self, link: Link, period: int) -> tuple[int, Array]:
        """The order with the smallest effect, among those that the unit takes."""
        taken = [q for q in ORDERS if q <= self.system.units[link.target.unit].input_degree]
        return min(((q, self.effect(link, period, q)) for q in taken), key=lambda pair: float(np.abs(pair[1]).max()))

    def choose(self, tolerance: float) -> dict[str, int]:
        """Ticks per step of every unit: doubled, where it saves most for what it costs, while the error permits."""
        periods = dict.fromkeys(self.system.names, 1)

        def error(periods: Mapping[str, int]) -> float:
            total = np.zeros(len(self.rows) - 1)
            for link in self.system.links:
                total += self.best(link, max(periods[link.source.unit], periods[link.target.unit]))[1]
            return float(np.abs(total).max(initial=0.0))

        now = error(periods)
        while True:
            longer = [
                (changed, after, 0.5 / periods[name] / max(after - now, 1e-300))
                for name in periods
                if periods[name] < 2**LONGEST
                and (after := error(changed := {**periods, name: 2 * periods[name]})) <= tolerance
            ]
            if not longer:
                return periods
            periods, now, _ = max(longer, key=lambda option: option[2])


def plan_goal(model: Model, output: str, tolerance: float) -> GoalPlan:
    """Rates of the units and orders of the connections that keep `output` within `tolerance`, with the fewest steps.

    The weights choose the rates; the master itself, with its own Φ, is then stretched or shortened until its predicted
    error meets the tolerance, and run. Unit models are needed that pass their checks.
    """
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise ConfigurationError(f"the tolerance of a goal must be a positive fraction, not {tolerance}.")
    if not model.valid:
        raise ConfigurationError(f"the weights of the connections need models of the units: {model.doubt}.")
    defects, cost, search = Defects(model, output), Cost(), _StepSearch(model, output, tolerance)
    masters = _masters_of_rates(model, defects, search)
    alone = _masters_in_step(model, defects, search)
    if not masters or not alone:
        raise ConfigurationError(
            f"no step was found at which {output} stays within {percent(tolerance)}; the units' own solvers may set "
            f"this limit."
        )
    master, predicted = min(masters + alone, key=lambda pair: cost.per_second(model.system, pair[0]))
    common = min((m for m, _ in alone), key=lambda m: cost.per_second(model.system, m))
    period = max(1, min(2**LONGEST, 2 ** round(math.log2(common.step / defects.tick))))
    weights = {
        str(link.connection): float(np.abs(defects.effect(link, period, 0)).max()) for link in defects.system.links
    }
    measured = float(model.measure(master).errors.outputs.get(output, math.nan))
    if not math.isfinite(measured):
        raise ConfigurationError(
            f"{output} is predicted to stay within {percent(predicted)} with {describe(master)}, but pilot runs of it "
            f"did not settle; give a larger tolerance."
        )
    steps = [cost.per_second(model.system, m) for m in (master, common)]
    return GoalPlan(output, tolerance, master, weights, predicted, measured, steps[0], common, steps[1])


@dataclass(frozen=True)
class _StepSearch:
    """Stretches a master until the predicted error of its output meets the tolerance."""

    model: Model
    output: str
    tolerance: float

    def error(self, master: Master) -> float:
        """The predicted error of the output; none where the units are not what they were identified as."""
        try:
            there = self.model.checked(min(master.durations.values()))
            if not there.valid or (not Spectrum(there.linear(master)).stable and not there.grows):
                return math.inf
            return float(there.predict(master).outputs.get(self.output, 0.0))
        except CosimoError:  # a step at which a unit cannot be identified, or fails
            return math.inf

    def longest(self, build: Callable[[float], Master]) -> list[tuple[Master, float]]:
        """The master with the longest steps whose predicted error meets the tolerance, and that error; or nothing."""
        low, high, found = 2.0**-LONGEST, 2.0**LONGEST, list[tuple[Master, float]]()
        stretch = 1.0
        for _ in range(REFINED):
            master = build(stretch)
            if master.step < self.model.horizon / MOST:
                break
            value = self.error(master) if master.step <= self.model.horizon else math.inf
            if value <= self.tolerance:
                low, found = stretch, [(master, value)]
                if value >= CLOSE * self.tolerance:
                    break
                stretch = math.sqrt(low * high) if high < 2.0**LONGEST else 2 * stretch
            else:
                high = stretch
                stretch = math.sqrt(low * high) if found else stretch / 2
        return found


def _masters_of_rates(model: Model, defects: Defects, search: _StepSearch) -> list[tuple[Master, float]]:
    """Masters with the rates and orders that the weights choose for some tolerances, and their predicted errors."""

    def made(periods: Mapping[str, int], inputs: Literal["held", "interpolated"], stretch: float) -> Master:
        shortest = min(periods.values())
        multiples = {name: count // shortest for name, count in periods.items() if count > shortest}
        step = defects.tick * shortest * stretch
        orders = {
            link.connection.target: Hold(
                defects.best(link, max(periods[link.source.unit], periods[link.target.unit]))[0]
            )
            for link in defects.system.links
        }
        if inputs == "interpolated":
            return multirate(model.system, step, multiples=multiples, inputs=inputs)
        if not multiples:
            return jacobi(model.system, step, couplings=orders)
        return multirate(model.system, step, multiples=multiples, couplings=orders)

    tried = [share * search.tolerance for share in SHARES]
    chosen = {tuple(periods.items()): periods for periods in map(defects.choose, tried)}.values()
    ways: tuple[Literal["held", "interpolated"], ...] = ("held", "interpolated")
    found = [(p, way, fit) for p in chosen for way in ways for fit in search.longest(partial(made, p, way))]
    if not found:
        return []

    def steps(option: tuple[Any, Any, tuple[Master, float]]) -> float:
        return Cost().per_second(model.system, option[2][0])

    # Weights do not know the errors of the units' own solvers: units are slowed down further by what Φ says itself. Of
    # identified units these errors are known at one step only.
    best = min(found, key=steps)
    while model.known:
        periods, way, _ = best
        slower = [{**periods, name: 2 * count} for name, count in periods.items() if count < 2**LONGEST]
        further = [(p, way, fit) for p in slower for fit in search.longest(partial(made, p, way))]
        if not further or steps(min(further, key=steps)) >= steps(best):
            break
        best = min(further, key=steps)
    return [fit for _, _, fit in [*found, best]]


def _masters_in_step(model: Model, defects: Defects, search: _StepSearch) -> list[tuple[Master, float]]:
    """Jacobi and Gauss–Seidel of every order with one step for all units, and their predicted errors."""

    def made(kind: Callable[..., Master], order: int, stretch: float) -> Master:
        return kind(model.system, 8 * defects.tick * stretch, coupling=Hold(order))

    return [fit for kind in (jacobi, gauss_seidel) for q in ORDERS for fit in search.longest(partial(made, kind, q))]
