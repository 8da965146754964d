"""The verdict on a coupling: everything that can be said before running it, and the document that says it.

To add a figure, add a property (or a field that `analyse` fills) to `Verdict` and a `Figure` to one of the sections
below: it then stands in the text, in JSON, in notebooks and in the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from textwrap import shorten
from typing import Any

from cosimo.analysis.connections import ConnectionEffect
from cosimo.analysis.critical import ChangingSteps, CriticalStep
from cosimo.analysis.limits import SWEEPS, Limits
from cosimo.analysis.linearisation import UnitReport
from cosimo.analysis.recommendation import Recommendation
from cosimo.analysis.spectrum import Mode
from cosimo.analysis.stability import RIGID
from cosimo.analysis.trust import Evidence, Grounds, Judgement, Trust, judge
from cosimo.analysis.truth import OutputErrors
from cosimo.core import dataclass
from cosimo.core.document import Column, Document, DocumentTable, Figure, Section, as_card, as_json, as_text, attributes
from cosimo.core.formatting import minus, percent, pole, shift, small, step_text

BRIEF = (
    "system", "master", "description", "schedule", "step_size", "trust", "headline", "stable", "target", "start_time",
    "horizon", "error", "error_kind", "error_horizon", "worst_output", "errors", "from_any_start", "unsettled_outputs",
    "evidence", "pilot_runs", "pilot_horizon", "spectral_radius", "exact_stable", "converges", "critical_step",
    "critical_step_between", "recommendation", "reasons",
)  # fmt: skip
"""The fields of the short form."""
SHOWN_MODES = 12
SHOWN_OUTPUTS = 12
LONG_SCHEDULE = 200
"""Characters of a schedule that people are shown; JSON has all of it."""


@dataclass(frozen=True)
class Moment:
    """The verdict at one time of a reference run.

    `applies` is False where the linear picture does not apply: a unit answers small pulses of two sizes differently,
    as at a switch or a limit, or could not be identified; `notes` names it. `changes` says what differs from the
    moment before.
    """

    time: float
    stable: bool | None
    spectral_radius: float
    critical_step: float
    applies: bool
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """All that is to be said of it."""
        return (*self.changes, *self.notes)


@dataclass(frozen=True)
class Verdict:
    """What is known about a system under a master before it is run.

    What is not known is None, and `reasons` says why, by the name of the attribute. `spectral_radius` is ρ(Φ),
    `exact_spectral_radius` that of the exact coupled system over one macro step; `foreign` the pole of the dominant
    mode when the exact system has none like it; `defect` δ with k = 2 in the 2-norm (glumac2018, Eq. 59); `order` the
    convergence order (predicted by Φ, or observed in pilot runs); `sweep_factor` by which factor an iteration changes
    the error per sweep (None without iteration), `converges` whether it converges. `error` is that of every output
    over `horizon` seconds from `start` on, `measured_error` the error measured in pilot runs, where there is a
    prediction too, and `pilot_horizon` the seconds until which they confirm it.
    `limits` are critical steps of the usual masters, `connections` what the delay of each connection does, `along`
    verdicts at times of a run. `changing_steps` is what is known of all sequences of adaptive steps.
    """

    system: str
    master: str
    description: str
    schedule: str
    step_size: float
    horizon: float
    target: float
    evidence: Evidence
    stable: bool | None = None
    error: OutputErrors | None = None
    measured_error: OutputErrors | None = None
    pilot_horizon: float | None = None
    spectral_radius: float | None = None
    exact_spectral_radius: float | None = None
    exact_stable: bool | None = None
    modes: tuple[Mode, ...] = ()
    foreign: complex | None = None
    defect: float | None = None
    order: float | None = None
    critical_step: CriticalStep | None = None
    limits: Limits | None = None
    sweep_factor: float | None = None
    converges: bool | None = None
    connections: tuple[ConnectionEffect, ...] = ()
    worst_connection: ConnectionEffect | None = None
    recommendation: Recommendation | None = None
    units: tuple[UnitReport, ...] = ()
    along: tuple[Moment, ...] = ()
    loops: tuple[tuple[str, ...], ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pilot_runs: int = 0
    unit_steps: int = 0
    seconds: float = 0.0
    start: float = 0.0
    changing_steps: ChangingSteps | None = None

    @cached_property
    def judgement(self) -> Judgement:
        """Whether to trust the run, and why."""
        reason = self.reasons.get("error" if self.evidence != "none" else "evidence", "")
        grows, steps = self.exact_stable is False, self.changing_steps
        return judge(
            Grounds(
                self.stable,
                self.error,
                self.evidence,
                self.target,
                self.converges,
                grows,
                reason,
                self.horizon,
                steps is not None and steps.outcome == "grows",
                self.pilot_horizon,
            )
        )

    @property
    def trust(self) -> Trust:
        """ "yes", "with care", "no" or "not assessed"."""
        return self.judgement.trust

    @property
    def headline(self) -> str:
        """Trust and its reason in one line."""
        return self.judgement.headline

    @property
    def growth(self) -> float | None:
        """The rate of growth (positive) or decay of the slowest-decaying mode, log ρ(Φ) / h, in 1/s."""
        if not self.spectral_radius:
            return None
        return math.log(self.spectral_radius) / self.step_size

    @property
    def doubling(self) -> float | None:
        """The time in which the amplitude of an unstable run doubles, in seconds."""
        return math.log(2) / self.growth if self.growth and self.growth > 0 and self.stable is False else None

    @property
    def _own_doubling(self) -> str:
        """How fast the coupled system itself grows; empty where that is not known."""
        growth = math.log(self.exact_spectral_radius) / self.step_size if self.exact_spectral_radius else 0.0
        return f": its amplitudes double every {step_text(math.log(2) / growth)}" if growth > 0 else ""

    @cached_property
    def document(self) -> Document:
        """What is said, in its four forms."""
        advice = self.recommendation
        return Document(
            f"{self.system} with {self.description}",
            self.judgement.mark,
            self.headline,
            tuple(self._sentences()),
            tuple(self._sections()),
            (advice.options,) if advice is not None and advice.options else (),
            self._advice(),
        )

    def __str__(self) -> str:
        return self.text()

    def text(self, *, details: bool = False) -> str:
        """For the terminal; with `details` modes and connections too."""
        return as_text(self.document, details=details)

    def _repr_html_(self) -> str:
        return as_card(self.document)

    def fields(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return as_json(self.document)

    def brief(self) -> dict[str, Any]:
        """The fields that `run`, `sweep` and result files carry, and that are remembered."""
        every = self.fields()
        return {name: every[name] for name in BRIEF}

    @classmethod
    def from_brief(cls, fields: Mapping[str, Any]) -> Verdict:
        """The verdict that `brief` was taken from, without what led to it; a ValueError where it is none.

        Trust is not read but decided again: fields that contradict themselves are not believed.
        """
        try:
            verdict = _read(fields)
        except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"no verdict: {error}") from None
        if (fields["trust"], fields["headline"]) != (verdict.trust, verdict.headline):
            raise ValueError("a verdict that contradicts itself")
        return verdict

    # ---- the document --------------------------------------------------------------------------------------------

    def _sentences(self) -> Iterator[str]:
        if self.converges is False:
            factor = self.sweep_factor  # not known where the verdict was recalled
            each = f": each sweep makes the error {factor:.3g} × larger" if factor is not None else ""
            yield f"The iteration does not converge{each}."
        elif self.stable is False and self.doubling is not None:
            yield f"The run grows without bound: amplitudes double every {step_text(self.doubling)}."
        if self.exact_stable is False:
            yield (
                f"{'The' if self.evidence == 'proved' else 'According to its models the'} coupled system itself grows, "
                f"whatever the master{self._own_doubling}."
                if self.stable is False
                else "The exact solution grows; a run that does not is wrong."
            )
        elif self.converges is False:
            pass  # neither the system nor the delay of the coupling is the cause
        elif self.stable is False and (why := self.reasons.get("stable")):
            yield f"The system itself does not grow: {why}."
        elif self.stable is False and self.foreign is not None:
            yield "The growing mode is not a mode of the system: the coupling adds it."
        elif self.stable is False and self.exact_stable:
            yield "The system itself does not grow; the delay of the exchanged values feeds energy into it."
        if self.changing_steps is not None:
            yield from self._changing(self.changing_steps)
        if self._spurious:
            yield "It decays faster than the exact solution: part of the damping is numerical."

    def _changing(self, steps: ChangingSteps) -> Iterator[str]:
        among = f"steps between {step_text(steps.shortest)} and {step_text(steps.longest)}"
        models = "" if all(unit.means == "known" for unit in self.units) else "According to the identified models, "
        limit = (
            f"--longest-step {steps.certified:.3g} excludes it" if steps.certified else "shorter ones were not found"
        )
        if steps.outcome == "stable":
            yield _begun(f"{models}every sequence of {among} is stable.")
        elif steps.outcome == "grows" and steps.lower:
            doubled = step_text(math.log(2) / steps.lower)
            yield _begun(
                f"{models}{among} can lead to growth: repeated steps of {steps.words} double amplitudes every "
                f"{doubled}. Only the tolerance keeps the controller from them; {limit}."
            )
        else:
            yield _begun(f"{models}whether all sequences of {among} are stable is not decided: {steps.reason}.")
            if steps.certified:
                yield f"Up to --longest-step {_down(steps.certified)} all are."

    def _advice(self) -> str:
        advice = self.recommendation
        if advice is None or not advice.text:
            return ""
        return f"{'Fix' if self.trust in ('no', 'with care') and not advice.keep else 'Advice'}: {advice.text}"

    @property
    def _spurious(self) -> bool:
        ours, exact = self.spectral_radius, self.exact_spectral_radius
        return bool(self.stable and ours is not None and exact is not None and ours < exact * (1 - 1e-9))

    def _sections(self) -> Iterator[Section]:
        yield Section("verdict", "Verdict", tuple(self._summary()), (self._error_table(),))
        yield Section("stability", "Stability", tuple(self._stability()), (self._limits_table(),))
        yield Section("units", "Units", tuple(self._identification()), (self._unit_table(),))
        yield Section("modes", "Modes", (), (self._mode_table(),), brief=False)
        yield Section("connections", "Connections", (), (self._connection_table(),), brief=False)
        yield Section("along", "Along the run", tuple(self._smallest()), (self._moment_table(),))

    def _summary(self) -> Iterator[Figure]:
        error = self.error
        yield Figure("system", "", self.system)
        yield Figure("master", "", self.master)
        yield Figure("description", "", self.description)
        yield Figure("step_size", "", self.step_size)
        yield Figure("trust", "", self.trust)
        yield Figure("headline", "", self.headline)
        yield Figure("stable", "", self.stable)
        yield Figure("target", "", self.target)
        yield Figure("start_time", "", self.start)
        yield Figure("horizon", "", self.horizon)
        note = self.reasons.get("error", "").rstrip(".") if error is None else f"target {percent(self.target)}"
        if error is not None and error.any_start:
            note += "; from the worst initial state, as nothing moves from the given one"
        name = f"{error.kind} error" if error else "error"
        yield Figure("error", name, error.worst if error else None, error.words if error else "not known", note)
        yield Figure("error_kind", "", error.kind if error else None)
        yield Figure("error_horizon", "", error.horizon if error else None)
        yield Figure("worst_output", "", error.output if error else None)
        yield Figure("typical_error", "", error.typical if error else None)
        yield Figure("errors", "", dict(error.outputs) if error else None)
        yield Figure("from_any_start", "", error.any_start if error else None)
        unsettled = list(error.unsettled) if error else []
        yield Figure("unsettled_outputs", "not settled" if unsettled else "", unsettled, ", ".join(unsettled))
        measured = self.measured_error
        yield Figure(
            "measured_error",
            "measured error" if measured else "",
            measured.worst if measured else None,
            measured.words if measured else "",
        )
        yield Figure("pilot_horizon", "", self.pilot_horizon)
        yield Figure("evidence", "evidence", self.evidence, self.evidence, self._evidence_note())
        advice = self.recommendation
        yield Figure("recommendation", "", advice.fields() if advice is not None else None)
        yield Figure("reasons", "", dict(self.reasons))
        yield Figure("notes", "", list(self.notes))
        for note in self.notes:
            yield Figure("", "note", None, note)

    def _evidence_note(self) -> str:
        runs = f"{self.pilot_runs} pilot run{'s' if self.pilot_runs != 1 else ''}"
        return {
            "proved": "the equations of all units are known",
            "confirmed": f"units were identified, and {runs} agree with the prediction",
            "measured": f"{runs}; {self.reasons.get('model', 'no linear model is used')}",
            "none": "",  # the headline says why
        }[self.evidence]

    def _error_table(self) -> DocumentTable:
        outputs = self.error.outputs if self.error is not None else {}
        rows = [{"output": name, "error": value} for name, value in sorted(outputs.items(), key=lambda item: -item[1])]
        until = self.error.until if self.error is not None else f"{self.start + self.horizon:g} s"
        columns = (Column("output", "output", str, False), Column("error", f"error until {until}", percent))
        return DocumentTable("", "", columns, rows, most=SHOWN_OUTPUTS)

    def _stability(self) -> Iterator[Figure]:
        radius, exact = self.spectral_radius, self.exact_spectral_radius
        yield Figure(
            "spectral_radius",
            "spectral radius" if radius is not None else "",
            radius,
            f"{radius:.9f}" if radius is not None else "",
            f"exact system {exact:.9f}" if exact is not None else "",
        )
        yield Figure("exact_spectral_radius", "", exact)
        yield Figure("exact_stable", "", self.exact_stable)
        yield Figure("growth_rate", "", self.growth)
        yield Figure("doubling_time", "doubling time" if self.doubling else "", self.doubling, unit="s")
        foreign = self.foreign if self.stable is False else None
        yield Figure("foreign_mode", "added mode" if foreign else "", self.foreign, pole(foreign) if foreign else "")
        limit = self.critical_step
        yield Figure(
            "critical_step",
            "largest stable step" if self._own_limit else "",
            limit.step if limit else None,
            limit_text(limit),
        )
        yield Figure("critical_step_searched", "", limit.searched if limit else None)
        steps = self.changing_steps
        yield Figure("changing_steps", "", None if steps is None else {**vars(steps), "sequence": list(steps.sequence)})
        yield Figure("critical_step_between", "", list(limit.between) if limit and limit.between else None)
        worst = self.worst_connection
        yield Figure(
            "worst_connection",
            "most critical connection" if worst else "",
            dict(vars(worst)) if worst else None,
            worst.connection if worst else "",
            self._without_delay(worst) if worst else "",
        )
        defect = self.defect
        yield Figure("defect", "connection defect" if defect is not None else "", defect, f"{defect or 0:.4g}", "k = 2")
        order = self.order if self.order is not None and math.isfinite(self.order) else None
        yield Figure("convergence_order", "convergence order" if order else "", order, f"{order or 0:.2f}")
        yield Figure("schedule", "schedule", self.schedule, shorten(self.schedule, LONG_SCHEDULE, placeholder=" …"))
        factor = self.sweep_factor
        swept = "converges" if (factor or 0.0) < 1 else "plain substitution diverges"
        yield Figure(
            "sweep_factor",
            "iteration" if factor is not None else "",
            factor,
            f"error × {factor or 0:.3g} per sweep, {swept}",
            "" if self.converges else "use Anderson acceleration or a smaller step",
        )
        yield Figure("converges", "", self.converges)
        yield Figure("algebraic_loops", "", [list(loop) for loop in self.loops])
        for loop in self.loops:
            yield Figure("", "algebraic loop", None, " → ".join(loop))

    @property
    def _own_limit(self) -> bool:
        """Whether the master's own critical step is not in the table of limits."""
        return self.critical_step is not None and self.limits is None

    def _without_delay(self, effect: ConnectionEffect) -> str:
        changes = []
        if self.spectral_radius is not None and math.isfinite(effect.fresh_radius):
            changes.append(f"ρ {self.spectral_radius:.5f} → {effect.fresh_radius:.5f}")
        typical = self.error.typical if self.error is not None else math.nan
        if math.isfinite(effect.fresh_error) and typical > 0 and math.isfinite(typical):
            changes.append(f"error × {effect.fresh_error / typical:.2g}")
        return f"without its delay {', '.join(changes)}" if changes else ""

    def _limits_table(self) -> DocumentTable:
        limits = self.limits
        rows: list[dict[str, Any]] = []
        if limits is not None:
            usual = [
                ("jacobi", limits.jacobi),
                (f"gauss-seidel({','.join(limits.order)})", limits.gauss_seidel),
                (f"iterative(jacobi;{SWEEPS})", limits.iterative),
            ]
            if all(name != self.master or limit != limits.own for name, limit in usual):
                usual.insert(0, (f"{self.master}, as it is", limits.own))
            rows = [
                {"master": name, "step": limit.step, "text": limit_text(limit)}
                for name, limit in usual
                if limit is not None
            ]
        columns = (
            Column("master", "largest stable step of", str, False),
            Column("step"),
            Column("text", "step", str, False, aside=True),
        )
        return DocumentTable("critical_steps", "", columns, rows)

    def _identification(self) -> Iterator[Figure]:
        yield Figure("unit_steps", "", self.unit_steps)
        yield Figure("identification_time", "", self.seconds)
        yield Figure("pilot_runs", "", self.pilot_runs)

    def _unit_table(self) -> DocumentTable:
        identified = any(unit.means != "known" for unit in self.units)
        shown = ("unit", "identified by", "valid", "fit", "linear", "invariant", "departure", "unit steps", "remarks")
        names = shown if identified else ("",) * len(shown)
        columns = (
            Column("name", names[0], str, False),
            Column("means", names[1], lambda means: str(means or "not identified"), False),
            Column("valid", names[2], lambda valid: "yes" if valid else "NO", False),
            Column("fit", names[3], small),
            Column("linear", names[4], small),
            Column("invariant", names[5], small),
            Column("departure", names[6], percent),
            Column("unit_steps", names[7], lambda steps: f"{steps:,}"),
            Column("poles"),
            Column("reasons", names[8], "; ".join, False),
        )
        return DocumentTable("units", "", columns, attributes(self.units, columns))

    def _mode_table(self) -> DocumentTable:
        moving: dict[str, tuple[str, Callable[[float], str]]] = {
            "frequency": ("frequency/Hz", lambda value: f"{value:.6g}"),
            "damping": ("damping", lambda value: minus(f"{100 * value:.3g} %")),
            "frequency_shift": ("frequency shift", shift),
            "damping_shift": ("damping shift", shift),
        }
        columns = (
            Column("monolithic", "pole", pole),
            Column("cosimulated", "co-simulated", pole),
            *(Column(key) for key in moving),
            *(Column(f"{key}_text", name, aside=True) for key, (name, _) in moving.items()),
            Column("mac", "MAC", lambda value: "–" if value is None else f"{value:.5f}"),
        )
        slowest = RIGID * max((abs(mode.monolithic) for mode in self.modes), default=0.0)
        rows = []
        for number, mode in enumerate(self.modes, 1):
            row = {column.key: getattr(mode, column.key) for column in columns if not column.aside} | {"number": number}
            # Rounding gives a pole at 0 a direction, which means nothing.
            rigid = dict.fromkeys(moving, "–") | {"frequency": "rigid"} if abs(mode.monolithic) <= slowest else {}
            rows.append(row | {f"{key}_text": rigid.get(key) or show(row[key]) for key, (_, show) in moving.items()})
        note = "MAC 1: the shape of the mode is unchanged" if rows else ""
        return DocumentTable(
            "modes", "", (Column("number", "mode", aside=True), *columns), rows, note, most=SHOWN_MODES
        )

    def _connection_table(self) -> DocumentTable:
        columns = (
            Column("connection", "connection", str, False),
            Column("delay", "delay/steps", lambda value: f"{value:g}"),
            Column("fresh_radius", "ρ without delay", lambda value: f"{value:.6f}"),
            Column("radius_slope"),
            Column("error_slope"),
            Column("fresh_error"),
        )
        return DocumentTable("connections", "", columns, attributes(self.connections, columns))

    def _smallest(self) -> Iterator[Figure]:
        limits = [moment for moment in self.along if moment.critical_step > 0]
        if limits:
            least = min(limits, key=lambda moment: moment.critical_step)
            text = f"{least.critical_step:.4g} s, at t = {least.time:g} s"
            yield Figure("", "smallest critical step", None, text)

    def _moment_table(self) -> DocumentTable:
        columns = (
            Column("time", "time/s", lambda value: f"{value:.6g}"),
            Column("stable", "stable", lambda value: "–" if value is None else "yes" if value else "NO", False),
            Column("spectral_radius", "spectral radius", lambda value: f"{value:.6f}"),
            Column("critical_step", "critical step/s", lambda value: f"{value:.4g}" if value == value else "–"),
            Column("applies", "linear", lambda value: "yes" if value else "no", False),
            Column("notes"),
            Column("changes"),
            Column("remarks", "remarks", "; ".join, False, aside=True),
        )
        return DocumentTable("along", "", columns, attributes(self.along, columns))


def _down(step: float) -> str:
    """A step rounded down to three digits."""
    unit = 10.0 ** (math.floor(math.log10(step)) - 2)
    return f"{math.floor(step / unit * (1 + 1e-12)) * unit:.3g}"


def _begun(text: str) -> str:
    """A sentence with its capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def _read(fields: Mapping[str, Any]) -> Verdict:
    error, start = None, float(fields["start_time"])
    if fields["errors"] is not None:
        # What is not finite is null in JSON.
        outputs = {str(name): math.inf if e is None else float(e) for name, e in dict(fields["errors"]).items()}
        if fields["error_kind"] not in ("predicted", "measured") or not all(value >= 0 for value in outputs.values()):
            raise ValueError("errors that are none")
        any_start = fields["from_any_start"] is True
        unsettled = tuple(str(name) for name in fields["unsettled_outputs"])
        error = OutputErrors(
            outputs,
            float(fields["error_horizon"]),
            fields["error_kind"],
            any_start=any_start,
            unsettled=unsettled,
            start=start,
        )
    if fields["evidence"] not in ("proved", "confirmed", "measured", "none"):
        raise ValueError("evidence that nobody knows")
    flags = {name: fields[name] for name in ("stable", "exact_stable", "converges")}
    if not all(flag is None or isinstance(flag, bool) for flag in flags.values()):
        raise ValueError("flags that are none")
    texts = {name: str(fields[name]) for name in ("system", "master", "description", "schedule")}
    numbers = {name: float(fields[name]) for name in ("step_size", "horizon", "target")}
    if not isinstance(fields["pilot_runs"], int):
        raise ValueError("a number of runs that is none")
    radius, advice = fields["spectral_radius"], fields["recommendation"]
    known: dict[str, Any] = {**texts, **numbers, **flags}
    return Verdict(
        **known,
        start=start,
        evidence=fields["evidence"],
        error=error,
        spectral_radius=None if radius is None else float(radius),
        critical_step=_read_limit(fields),
        recommendation=None if advice is None else _read_advice(advice),
        pilot_runs=fields["pilot_runs"],
        pilot_horizon=None if (reach := fields.get("pilot_horizon")) is None else float(reach),
        reasons={str(name): str(text) for name, text in dict(fields["reasons"]).items()},
    )


def _read_limit(fields: Mapping[str, Any]) -> CriticalStep | None:
    step, between = fields["critical_step"], fields["critical_step_between"]
    if between is None:
        return None if step is None else CriticalStep(float(step), (float(step), float(step)))
    low, high = map(float, between)
    if not (0 < low < high < math.inf and float(step) == low):
        raise ValueError("a bracket that is none")
    until = float(fields["start_time"]) + float(fields["error_horizon"]) if fields["evidence"] == "measured" else None
    return CriticalStep(low, (low, high), (low, high), until)


def _read_advice(fields: Mapping[str, Any]) -> Recommendation:
    """A recommendation whose fields are of the kinds that it has; a ValueError otherwise."""
    advice = Recommendation(**fields)
    texts = (advice.text, advice.options, advice.lines, advice.name or "", advice.output or "")
    numbers = [value for name, value in advice.fields().items() if name not in _WORDS and value is not None]
    fits = all(isinstance(text, str) for text in texts) and isinstance(advice.keep, bool)
    if not fits or not all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
        raise ValueError("a recommendation that is none")
    return advice


_WORDS = ("text", "keep", "options", "lines", "name", "output")


def limit_text(limit: CriticalStep | None) -> str:
    """A critical step."""
    if limit is None:
        return "–"
    if limit.step == 0:
        return f"none: unstable at every step down to {step_text(limit.searched[0])}"
    if limit.between is not None:
        low, high = map(step_text, limit.between)
        known = "the first proved stable, the second unstable"
        return f"between {low} and {high}, " + (known if limit.until is None else f"measured until {limit.until:g} s")
    return f"{limit.step:.6g} s" if math.isfinite(limit.step) else f"none up to {step_text(limit.searched[1])}"
