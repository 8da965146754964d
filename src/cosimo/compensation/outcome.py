"""What `compensate` returns: the compensated master, with the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cosimo.analysis import Spectrum
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
from cosimo.core.master import Master

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
        return self.follows and bounded(np.linalg.eigvals(self.path.F).astype(complex), self.before)

    @cached_property
    def modes(self) -> tuple[CompensatedMode, ...]:
        """What becomes of every mode of the coupled system, lowest frequency first."""
        return compensated_modes(self.path, self.before, self.after)

    @cached_property
    def gain_size(self) -> float:
        """How much larger than under the plain hold errors of the samples enter the inputs (1: as large)."""
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
        used = ", ".join(f"{name}: {count}" for name, count in self.levels.items()) or "none: nothing is connected"
        lines = [
            f"compensated {self.master.name}, target {self.target}: {self._word()}",
            f"  spectral radius      {self.radius_before:.9f} before, {self.radius_after:.9f} after, "
            f"target {self.target_radius:.9f}",
            f"  latent eigenvalues   {len(self.latent)}, up to {self.latent_radius:.3g}",
            f"  samples per signal   {used}",
            f"  residual             {self.residual:.1e}",
            f"  gain size            {self.gain_size:.3g} (the plain hold has 1)",
            *self._robustness(),
            "",
            *self._mode_table(),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        from cosimo.core.display import card

        radii = f"{self.radius_before:.9f} before, {self.radius_after:.9f} after, target {self.target_radius:.9f}"
        facts = [
            ("spectral radius", radii),
            ("residual", f"{self.residual:.1e}"),
            ("gain size", f"{self.gain_size:.3g}"),
        ]
        rows = [
            [str(number), *(_pole_text(pole) for pole in (mode.target, mode.before, mode.after))]
            for number, mode in enumerate(self.modes, 1)
        ]
        mark = ("good" if self.stable else "bad", self._word().lower())
        title = f"compensated {self.master.name}, target {self.target}"
        return card(title, mark, facts, ("mode", "target pole", "before", "after"), rows)

    def _word(self) -> str:
        if self.stable:
            return "stable"
        return "grows as its target does" if self.follows else "NOT STABLE"

    def _robustness(self) -> list[str]:
        worst = self.worst_change
        if worst is None:
            return []
        return [
            f"  10 % wrong model     {worst.verdict}; at worst {worst.radius:.9f} with {worst.factor:g} {worst.matrix} "
            f"of '{worst.unit}', target {worst.target_radius:.9f}"
        ]

    def _mode_table(self) -> list[str]:
        rows = [f"  mode{'target pole':>27}{'before':>27}{'after':>27}   in 1/s"]
        for number, mode in enumerate(self.modes[:SHOWN_MODES], 1):
            poles = "".join(f"{_pole_text(pole):>27}" for pole in (mode.target, mode.before, mode.after))
            rows.append(f"  {number:4d}{poles}")
        if len(self.modes) > SHOWN_MODES:
            rows.append(f"  … {len(self.modes)} in all")
        return rows


def _severity(change: Change) -> tuple[bool, bool, float]:
    """Worst is what grows faster than its target, then what grows with it."""
    return not (change.stable or change.follows), not change.stable, change.excess


def _pole_text(pole: complex) -> str:
    return f"{pole.real:.6g} ± {abs(pole.imag):.6f}j"
