"""The verdict on a compensation: what became of every mode, what the correction adds, and what a wrong model does.

Poles are s = log(z) / h. Each mode of the coupled system is matched, one to one, with an eigenvalue of the target's F,
one of Φ under the plain master and one of Φ under the compensated one; what the latter has beyond is latent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from cosimo.algebra import LinearSystem
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import ROUNDING, is_stable, moving_radius
from cosimo.compensation.start import Gains
from cosimo.compensation.target import Target, target_map
from cosimo.compensation.whole import dense, rebuilt, require_linear
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.units import Mechanical

ERROR = 0.1
"""Relative error of the model for which the sensitivity is computed."""
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


def compensated_modes(path: Target, before: Spectrum, after: Spectrum) -> tuple[CompensatedMode, ...]:
    """Every mode before and after, lowest frequency first."""
    found = before.modes()
    poles, targets = before.poles, np.linalg.eigvals(path.F).astype(complex)
    # From exact poles to the target's eigenvalues, and from these to the compensated ones: each to its nearest.
    aimed = targets[_nearest(np.exp(poles * path.h), targets)]
    reached = after.eigenvalues[_nearest(aimed, after.eigenvalues)]
    modes = []
    for mode, place in zip(found, _nearest(np.array([mode.monolithic for mode in found]), poles), strict=True):
        aim, got = (_pole(complex(values[place]), path.h, mode.monolithic) for values in (aimed, reached))
        modes.append(CompensatedMode(mode.monolithic, aim, mode.cosimulated, got))
    return tuple(modes)


def latent_eigenvalues(path: Target, after: Spectrum) -> ComplexArray:
    """The eigenvalues of Φ that are left when the target's are taken away, each with its nearest; largest first.

    Zeros, of memories that only hand their content on, are left out.
    """
    wanted = np.linalg.eigvals(path.F).astype(complex)
    rest = np.delete(after.eigenvalues, _nearest(wanted, after.eigenvalues))
    rest = rest[np.abs(rest) > ZERO]
    ordered: ComplexArray = rest[np.argsort(-np.abs(rest), kind="stable")]
    return ordered


def gain_size(path: Target, gains: dict[str, Gains]) -> float:
    """How much the corrections amplify, compared with the plain hold K⁰: max over inputs i of

        Σ_j |K_ij| s_j / Σ_j |K⁰_ij| s_j

    with s_j the largest value of sample j on the target for states of size 1. States are measured in the units of
    measure in which the coupled system is balanced, so that metres or millimetres make no difference. The hold itself
    has 1; with 5, an error of the samples (noise, rounding) enters the inputs five times as large as under the hold.
    Infinite where an input is used whose connection has the gain 0.
    """
    largest = 1.0
    for name, couplings in gains.items():
        links, used = len(path.system.incoming(name)), len(path.used)
        for position, K in enumerate(couplings):
            sizes = np.linalg.norm(path.samples(name, position) * path.scale, axis=1)
            # The input at the start of a step, and at its end where it is a polynomial in time.
            share = path.rhythm.spans[name] / path.rhythm.ticks
            powers = K.reshape(-1, links, K.shape[1])
            for weights in (share**0 * (np.arange(len(powers)) == 0), share ** np.arange(len(powers))):
                whole = np.abs(np.tensordot(weights, powers, 1)) @ np.tile(sizes, K.shape[1] // used)
                for ours, held in zip(whole, np.abs(path.hold(name)) @ sizes, strict=True):
                    if ours > 0:
                        largest = max(largest, float(ours / held) if held > 0 else np.inf)
    return largest


def sensitivity(path: Target, master: Master, target: str) -> tuple[Change, ...]:
    """`master`, designed for the nominal system, on systems of which one matrix of one unit is 10 % off."""
    changes, ticks = [], path.rhythm.ticks
    for name, matrix, factor, changed in _changed(path.system):
        linear = LinearSystem(changed, master)
        F = target_map(changed, dense(linear.coupled), master.step / ticks, target)
        own, spectrum = float(np.abs(np.linalg.eigvals(F)).max(initial=0.0)) ** ticks, Spectrum(linear)
        stable, follows = spectrum.stable, spectrum.radius <= own * (1 + ROUNDING)
        changes.append(Change(name, matrix, factor, spectrum.radius, own, stable, follows))
    return tuple(changes)


def bounded(F: Array, path: Target, spectrum: Spectrum) -> bool:
    """Whether the one-step map F of a target of the spectrum's system stays bounded (`cosimo.analysis.stability`)."""
    return bool(is_stable(moving_radius(F, spectrum.rest, path.h)))


def _changed(system: System) -> Iterator[tuple[str, str, float, System]]:
    """(unit, matrix, factor, system) for every matrix that is not zero."""
    for name, unit in require_linear(system).items():
        parts = vars(unit if isinstance(unit, Mechanical) else unit.model)
        for matrix in ("M", "C", "K") if isinstance(unit, Mechanical) else ("A", "B"):
            for factor in (1 - ERROR, 1 + ERROR) if parts[matrix].any() else ():
                units = {**system.units, name: rebuilt(unit, **{matrix: factor * parts[matrix]})}
                yield name, matrix, factor, System(units, system.connections, inputs=system.inputs, name=system.name)


def _nearest(wanted: ComplexArray, found: ComplexArray) -> npt.NDArray[np.intp]:
    """For each wanted value the place of the one found that it is matched with; no two share one."""
    rows, columns = linear_sum_assignment(np.abs(wanted[:, None] - found))
    places = np.zeros(len(wanted), dtype=np.intp)
    places[rows] = columns
    return places


def _pole(mu: complex, h: float, near: complex) -> complex:
    """log(μ) / h on the branch nearest to the pole `near`."""
    if mu == 0:
        return complex(-np.inf)
    principal, turn = np.log(mu) / h, 2 * np.pi / h
    return complex(principal + 1j * turn * np.round((near.imag - principal.imag) / turn))
