"""What `compensate` returns: the compensated master, with the verdict on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cosimo.analysis.spectrum import Spectrum
from cosimo.compensation.start import Gains
from cosimo.compensation.target import Target
from cosimo.compensation.verdict import (
    Change,
    CompensatedMode,
    bounded,
    compensated_modes,
    gain_size,
    latent_eigenvalues,
    sensitivity,
)
from cosimo.core.arrays import ComplexArray
from cosimo.core.document import Column, Document, Figure, Section, Table, as_card, as_text
from cosimo.core.master import Master
from cosimo.masters.words import describe

SHOWN_MODES = 12


@dataclass(frozen=True)
class Compensation:
    """A compensated master and what is known of it before running.

    `residual` is the largest relative residual of K Σ = U; `levels` how many samples of each signal are used; `gains`
    K per unit, one for each of its couplings within a macro step; `path` the target; `before` and `after` the spectra
    of Φ without and with the correction. What else the verdict tells is computed when it is asked for.
    """

    master: Master
    target: str
    levels: dict[str, int]
    residual: float
    gains: dict[str, Gains] = field(repr=False)
    path: Target = field(repr=False)
    before: Spectrum = field(repr=False)
    after: Spectrum = field(repr=False)

    @property
    def radius_before(self) -> float:
        """ρ(Φ) of the plain master."""
        return self.before.radius

    @property
    def radius_after(self) -> float:
        """ρ(Φ) of the compensated master."""
        return self.after.radius

    @cached_property
    def target_radius(self) -> float:
        """ρ(F) of the target."""
        return float(np.abs(np.linalg.eigvals(self.path.F)).max(initial=0.0))

    @cached_property
    def latent(self) -> ComplexArray:
        """The eigenvalues that the compensated co-simulation has beyond the target's, largest first."""
        return latent_eigenvalues(self.path, self.after)

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
        return self.follows and bounded(self.path.F, self.path, self.before)

    @cached_property
    def modes(self) -> tuple[CompensatedMode, ...]:
        """What becomes of every mode of the coupled system, lowest frequency first."""
        return compensated_modes(self.path, self.before, self.after)

    @cached_property
    def gain_size(self) -> float:
        """Noise gain of the corrected inputs relative to a plain hold (1: the same)."""
        return gain_size(self.path, self.gains)

    @cached_property
    def sensitivity(self) -> tuple[Change, ...]:
        """The compensated co-simulation when one matrix of one unit is 10 % larger or smaller than designed for."""
        return sensitivity(self.path, self.master, self.target)

    @property
    def worst_change(self) -> Change | None:
        """The change of the model under which the co-simulation is worst off, compared with the changed target.

        None where there is nothing to change.
        """
        return max(self.sensitivity, key=_severity, default=None)

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
        sections = (
            Section("compensation", "Compensation", tuple(self._figures())),
            Section("compensated_modes", "Modes", (), (self._mode_table(), self._sensitivity_table())),
        )
        return Document(title, "good" if self.stable else "bad", self.word[:1].upper() + self.word[1:], (), sections)

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

    def _mode_table(self) -> Table:
        names = {"exact": "", "target": "target pole", "before": "before", "after": "after"}
        rows = [
            {"number": number, **{name: getattr(mode, name) for name in names}}
            for number, mode in enumerate(self.modes, 1)
        ]
        columns = (
            Column("number", "mode", aside=True),
            *(Column(key, f"{name} /s⁻¹" if name else "", _pole_text) for key, name in names.items()),
        )
        return Table("modes", "", columns, rows, most=SHOWN_MODES)

    def _sensitivity_table(self) -> Table:
        rows = [
            {
                "unit": change.unit,
                "matrix": change.matrix,
                "factor": change.factor,
                "spectral_radius": change.radius,
                "target_spectral_radius": change.target_radius,
                "stable": change.stable,
                "follows_target": change.follows,
            }
            for change in self.sensitivity
        ]
        keys = ("unit", "matrix", "factor", "spectral_radius", "target_spectral_radius", "stable", "follows_target")
        return Table("sensitivity", "", tuple(Column(key) for key in keys), rows)


def _severity(change: Change) -> tuple[bool, bool, float]:
    """Sort key: first unstable beyond the target, then unstable with the target, then by excess growth."""
    return not (change.stable or change.follows), not change.stable, change.excess


def _pole_text(pole: complex) -> str:
    return f"{pole.real:.6g} ± {abs(pole.imag):.6f}j"
