"""The verdict on a compensation: what became of every mode, what the correction adds, and what a wrong model does.

Poles are s = log(z) / h. Each mode of the coupled system is matched, one to one, with an eigenvalue of the target's F,
one of Φ under the plain master and one of Φ under the compensated one; what the latter has beyond is latent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cosimo.algebra.product import LinearSystem
from cosimo.analysis.robustness import relative_radius
from cosimo.analysis.spectrum import Spectrum, nearest_pole
from cosimo.analysis.stability import ROUNDING, is_stable, moving_radius
from cosimo.compensation.target import Gains, TargetMotion, rebuild, require_linear
from cosimo.core import dataclass
from cosimo.core.arrays import ComplexArray, match
from cosimo.core.document import Column, Document, DocumentTable, Figure, Section, as_card, as_text
from cosimo.core.errors import CosimoError
from cosimo.core.formatting import percent
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.masters.words import describe
from cosimo.units import Mechanical

if TYPE_CHECKING:
    from cosimo.analysis.model import Model
    from cosimo.analysis.verdict import Verdict

ERROR = 0.1
"""Relative error of the model for which the sensitivity is computed."""
MOST_WRONG = 1.0
"""Largest change of rates and gains for which the stability of a design on identified models is looked at."""
SHELLS = 6
"""Sizes of changes up to that largest one that are tried in every direction before a crossing is bracketed."""
ZERO = 1e-12
"""Eigenvalues smaller than this are zero."""


@dataclass(frozen=True)
class CompensatedMode:
    """One mode (of a conjugate pair, the upper one): its poles in 1/s, in the coupled system itself and in three runs.

    `exact` is λ of the coupled system, `target` what the compensation aims at, `before` and `after` are the poles of
    the co-simulation without and with it.
    """

    exact: complex
    target: complex
    before: complex
    after: complex


@dataclass(frozen=True)
class Change:
    """The nominal design on a system whose `matrix` of `unit` is `factor` times as large.

    `radius` is ρ(Φ) of the compensated co-simulation of the changed system, `target_radius` that of the changed
    system's own target (its monolithic run, or its exact flow). `stable` tells whether the co-simulation stays bounded,
    `follows` whether it grows no faster than that target.
    """

    unit: str
    matrix: str
    factor: float
    radius: float
    target_radius: float
    stable: bool
    follows: bool

    @property
    def verdict(self) -> str:
        """In words."""
        return "stable" if self.stable else "grows as its target does" if self.follows else "UNSTABLE"

    @property
    def excess(self) -> float:
        """By what the wrong model makes the co-simulation grow faster than its target, per macro step."""
        return self.radius - self.target_radius


def _changed(system: System) -> Iterator[tuple[str, str, float, System]]:
    """(unit, matrix, factor, system) for every matrix that is not zero."""
    for name, unit in require_linear(system).items():
        parts = vars(unit if isinstance(unit, Mechanical) else unit.model)
        for matrix in ("M", "C", "K") if isinstance(unit, Mechanical) else ("A", "B"):
            for factor in (1 - ERROR, 1 + ERROR) if parts[matrix].any() else ():
                units = {**system.units, name: rebuild(unit, **{matrix: factor * parts[matrix]})}
                yield name, matrix, factor, System(units, system.connections, inputs=system.inputs, name=system.name)


def _nearest(wanted: ComplexArray, found: ComplexArray) -> npt.NDArray[np.intp]:
    """For each wanted value the place of the one found that it is matched with; no two share one."""
    rows, columns = match(np.abs(wanted[:, None] - found))
    places = np.zeros(len(wanted), dtype=np.intp)
    places[rows] = columns
    return places


# ---- what `compensate` returns: the compensated master, with the verdict on it ---------------------------------------


SHOWN_MODES = 12


@dataclass(frozen=True)
class Compensation:
    """A compensated master and what is known of it before running.

    `residual` is the largest relative residual of K Σ = U; `levels` how many samples of each signal are used; `gains`
    K per unit, one for each of its couplings within a macro step; `path` the target; `before` and `after` the spectra
    of Φ without and with the correction. What else the verdict tells is computed when it is asked for. Where units of
    the `system` were identified, `model` has what is known of them, and `path` is that of their linear models.
    """

    master: Master
    target: str
    levels: dict[str, int]
    residual: float
    gains: dict[str, Gains] = field(repr=False)
    path: TargetMotion = field(repr=False)
    before: Spectrum = field(repr=False)
    after: Spectrum = field(repr=False)
    system: System = field(repr=False)
    model: Model | None = field(default=None, repr=False)

    # ---- of identified units -------------------------------------------------------------------------------------

    @cached_property
    def verdicts(self) -> tuple[Verdict, Verdict] | None:
        """The verdicts on the plain and on the compensated master, with pilot runs of both; None of known equations.

        Where the compensated run is better than finer plain ones can tell, its error is at most what these leave open.
        """
        from cosimo.analysis.analysing import analyse

        if self.model is None:
            return None
        plain, compensated = (
            analyse(self.system, master, model=self.model, details=False) for master in (self.path.master, self.master)
        )
        pilot = self.model.pilots.of(self.path.master)
        if compensated.evidence == "none" and pilot.truth is not None and pilot.errors is not None:
            seen = self.model.pilots.against(self.master, pilot.truth)
            seen = replace(seen, outputs={name: max(e, pilot.own_error) for name, e in seen.outputs.items()})
            compensated = replace(compensated, evidence="measured", error=seen)
        return plain, compensated

    @property
    def refusal(self) -> str:
        """Why the compensated master is not offered, empty where it is: runs of the units must show that it is better.

        Known equations need no runs.
        """
        if self.verdicts is None:
            return ""
        before, after = self.verdicts
        if after.evidence == "none" or after.error is None:
            return f"pilot runs do not confirm it ({after.reasons.get('evidence', 'no error is known')})"
        if before.error is not None and not after.error.worst < before.error.worst:
            return f"the error is {percent(after.error.worst)} with it and {percent(before.error.worst)} without"
        return "" if after.stable is not False else "the compensated run grows"

    @cached_property
    def margin(self) -> float | None:
        """By how much rates and gains of the identified models may be wrong, all at once, before ρ reaches 1.

        The relative radius (`cosimo.analysis.robustness`) of the compensated master; None where the models cannot be
        converted to other rates.
        """
        try:
            return relative_radius(self.path.system, self.master, limit=MOST_WRONG, shells=SHELLS).change
        except CosimoError:
            return None

    @property
    def radius_before(self) -> float:
        """ρ(Φ) of the plain master."""
        return self.before.radius

    @property
    def radius_after(self) -> float:
        """ρ(Φ) of the compensated master."""
        return self.after.radius

    @cached_property
    def _targets(self) -> ComplexArray:
        """The eigenvalues of F."""
        return np.linalg.eigvals(self.path.F).astype(complex)

    @property
    def target_radius(self) -> float:
        """ρ(F) of the target."""
        return float(np.abs(self._targets).max(initial=0.0))

    @cached_property
    def latent(self) -> ComplexArray:
        """The eigenvalues of Φ that are left when the target's are taken away, each with its nearest; largest first.

        Zeros, of memories that only hand their content on, are left out.
        """
        rest = np.delete(self.after.eigenvalues, _nearest(self._targets, self.after.eigenvalues))
        rest = rest[np.abs(rest) > ZERO]
        return rest[np.argsort(-np.abs(rest), kind="stable")]

    @property
    def latent_radius(self) -> float:
        """The modulus of the largest latent eigenvalue."""
        return float(np.abs(self.latent).max(initial=0.0))

    @property
    def follows(self) -> bool:
        """Whether nothing that the correction adds grows, and the target's own modes are met."""
        return self.latent_radius < 1 and self.radius_after <= self.target_radius * (1 + 1e-8)

    @property
    def stable(self) -> bool:
        """Whether the compensated co-simulation follows its target, and the target does not grow."""
        return self.follows and bool(is_stable(moving_radius(self.path.F, self.before.rest, self.path.h)))

    @cached_property
    def modes(self) -> tuple[CompensatedMode, ...]:
        """What becomes of every mode of the coupled system, lowest frequency first."""
        found, poles, h = self.before.modes(), self.before.poles, self.path.h
        # From exact poles to the target's eigenvalues, and from these to the compensated ones: each to its nearest.
        aimed = self._targets[_nearest(np.exp(poles * h), self._targets)]
        reached = self.after.eigenvalues[_nearest(aimed, self.after.eigenvalues)]
        modes = []
        for mode, place in zip(found, _nearest(np.array([mode.monolithic for mode in found]), poles), strict=True):
            aim, got = (nearest_pole(complex(values[place]), h, mode.monolithic) for values in (aimed, reached))
            modes.append(CompensatedMode(mode.monolithic, aim, mode.cosimulated, got))
        return tuple(modes)

    @cached_property
    def gain_size(self) -> float:
        """How much the corrections amplify, compared with the plain hold K⁰: max over inputs i of

            Σ_j |K_ij| s_j / Σ_j |K⁰_ij| s_j

        with s_j the largest value of sample j on the target for states of size 1. States are measured in the units of
        measure in which the coupled system is balanced, so that metres or millimetres make no difference. The hold
        itself has 1; with 5, an error of the samples (noise, rounding) enters the inputs five times as large as under
        the hold. Infinite where an input is used whose connection has the gain 0.
        """
        path, largest = self.path, 1.0
        for name, couplings in self.gains.items():
            links, used = len(path.system.incoming(name)), len(path.used)
            for position, K in enumerate(couplings):
                sizes = np.linalg.norm(path.samples(name, position) * path.scale, axis=1)
                # The input at the start of a step, and at its end where it is a polynomial in time.
                share = path.pattern.spans[name] / path.pattern.ticks
                powers = K.reshape(-1, links, K.shape[1])
                for weights in (np.arange(len(powers)) == 0, share ** np.arange(len(powers))):
                    whole = np.abs(np.tensordot(weights, powers, 1)) @ np.tile(sizes, K.shape[1] // used)
                    for ours, held in zip(whole, np.abs(path.hold(name)) @ sizes, strict=True):
                        if ours > 0:
                            largest = max(largest, float(ours / held) if held > 0 else np.inf)
        return largest

    @cached_property
    def sensitivity(self) -> tuple[Change, ...]:
        """The master, designed for the nominal system, when one matrix of one unit is 10 % larger or smaller.

        Empty where units were identified: `margin` is for them.
        """
        changes: list[Change] = []
        if self.model is not None:
            return ()
        for name, matrix, factor, changed in _changed(self.path.system):
            linear = LinearSystem(changed, self.master)
            F = TargetMotion(changed, self.path.master, self.target).F
            own, spectrum = float(np.abs(np.linalg.eigvals(F)).max(initial=0.0)), Spectrum(linear)
            stable, follows = spectrum.stable, spectrum.radius <= own * (1 + ROUNDING)
            changes.append(Change(name, matrix, factor, spectrum.radius, own, stable, follows))
        return tuple(changes)

    @property
    def worst_change(self) -> Change | None:
        """The change of the model under which the co-simulation is worst off; None where there is nothing to change.

        First what is unstable beyond its target, then what is unstable with it, then by excess growth beyond rounding,
        then by growth.
        """

        def badness(c: Change) -> tuple[bool, bool, float, float]:
            return not (c.stable or c.follows), not c.stable, round(c.excess, 9), c.radius

        return max(self.sensitivity, key=badness, default=None)

    def __str__(self) -> str:
        return as_text(self.document)

    def _repr_html_(self) -> str:
        return as_card(self.document)

    # ---- the document --------------------------------------------------------------------------------------------

    @property
    def word(self) -> str:
        """The verdict on the design."""
        if self.stable:
            return "stable"
        return "grows as its target does" if self.follows else "NOT STABLE"

    @cached_property
    def document(self) -> Document:
        """What is said of the design, in its four forms."""
        title = f"{self.path.system.name} with {describe(self.path.master)}, compensated, target {self.target}"
        sections = [
            Section("compensation", "Compensation", tuple(self._figures())),
            Section("compensated_modes", "Modes", (), (self._mode_table(), self._sensitivity_table())),
        ]
        good, headline = self.stable, self.word[:1].upper() + self.word[1:]
        if self.verdicts is not None:
            sections.append(Section("errors", "Errors", tuple(self._error_figures()), (self._error_table(),)))
            good, headline = not self.refusal, f"Not offered: {self.refusal}" if self.refusal else "Offered"
        return Document(title, "good" if good else "bad", headline, (), tuple(sections))

    def _error_figures(self) -> Iterator[Figure]:
        assert self.verdicts is not None
        before, after = self.verdicts
        errors = [None if verdict.error is None else verdict.error.worst for verdict in (before, after)]
        yield Figure("offered", "", not self.refusal)
        yield Figure("refusal", "", self.refusal)
        yield Figure("error_before", "error without", errors[0], percent(errors[0]), before.evidence)
        yield Figure("error_after", "error with", errors[1], percent(errors[1]), after.evidence)
        yield Figure("horizon", "until", after.horizon, unit="s")
        if not self.refusal and self.margin is not None:
            wrong = percent(min(self.margin, MOST_WRONG)) + " at least" * math.isinf(self.margin)
            text = f"stable for errors of the models' rates and gains up to {wrong}" if self.margin else "unstable"
            yield Figure("model_margin", "wrong models", self.margin, text)

    def _error_table(self) -> DocumentTable:
        assert self.verdicts is not None
        found = [verdict.error.outputs if verdict.error is not None else {} for verdict in self.verdicts]
        names = [name for name in self.system.outputs if any(name in errors for errors in found)]
        rows = [{"output": n, "before": found[0].get(n), "after": found[1].get(n)} for n in names]
        columns = (
            Column("output", "output", str, False),
            Column("before", "error without", percent),
            Column("after", "error with", percent),
        )
        return DocumentTable("output_errors", "", columns, rows)

    def _figures(self) -> Iterator[Figure]:
        used = ", ".join(f"{name}: {count}" for name, count in self.levels.items()) or "none: nothing is connected"
        radii = f"{self.radius_before:.9f} before, {self.radius_after:.9f} after, target {self.target_radius:.9f}"
        yield Figure("system", "", self.path.system.name)
        yield Figure("master", "", self.path.master.name)
        yield Figure("schedule", "", str(self.path.master))
        yield Figure("step_size", "", self.path.master.step)
        yield Figure("target", "", self.target)
        yield Figure("stable", "", self.stable)
        yield Figure("follows_target", "", self.follows)
        yield Figure("target_spectral_radius", "spectral radius", self.target_radius, radii)
        text = f"{len(self.latent)}, up to {self.latent_radius:.3g}"
        yield Figure("latent", "latent eigenvalues", [complex(value) for value in self.latent], text)
        yield Figure("samples", "samples per signal", self.levels, used)
        yield Figure("residual", "residual", self.residual, f"{self.residual:.1e}")
        yield Figure("gain_size", "noise gain", self.gain_size, f"{self.gain_size:.3g}", "the plain hold has 1")
        worst = self.worst_change
        if worst is not None:
            text = (
                f"{worst.verdict}; at worst {worst.radius:.9f} with {worst.factor:g} {worst.matrix} of '{worst.unit}', "
                f"target {worst.target_radius:.9f}"
            )
            yield Figure("", "10 % wrong model", None, text)

    def _mode_table(self) -> DocumentTable:
        names = {"exact": "", "target": "target pole", "before": "before", "after": "after"}
        rows = [
            {"number": number, **{name: getattr(mode, name) for name in names}}
            for number, mode in enumerate(self.modes, 1)
        ]
        columns = (
            Column("number", "mode", aside=True),
            *(Column(key, f"{name} /s⁻¹" if name else "", _pole_text) for key, name in names.items()),
        )
        return DocumentTable("modes", "", columns, rows, most=SHOWN_MODES)

    def _sensitivity_table(self) -> DocumentTable:
        keys = ("unit", "matrix", "factor", "spectral_radius", "target_spectral_radius", "stable", "follows_target")
        rows = [dict(zip(keys, vars(change).values(), strict=True)) for change in self.sensitivity]
        return DocumentTable("sensitivity", "", tuple(Column(key) for key in keys), rows)


def _pole_text(pole: complex) -> str:
    return f"{pole.real:.6g} ± {abs(pole.imag):.6f}j"
