"""The verdict on a coupling: everything that can be said before running it, as one object that prints well."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cosimo.algebra import LinearSystem
from cosimo.analysis.accuracy import GlobalError, convergence_order, global_error
from cosimo.analysis.consistency import consistency
from cosimo.analysis.critical import CriticalStep, critical_step
from cosimo.analysis.spectrum import Mode, Spectrum
from cosimo.analysis.text import verdict_text
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence
from cosimo.core.system import System
from cosimo.core.timing import TimedRepeat

MOST_STEPS = 2_000_000
"""How many macro steps the global error is followed at most."""


@dataclass(frozen=True)
class Verdict:
    """What the analysis says of a system under a master.

    `spectral_radius` is ρ(Φ), `exact_spectral_radius` that of the exact coupled system over one macro step; `foreign`
    the pole of the dominant mode when the exact system has none like it; `defect` is δ with k = 2 in the 2-norm;
    `order` the measured convergence order; `sweep_factor` how much an iteration shrinks the error per sweep (None
    without iteration; at 1 or more plain substitution diverges), `converges` whether the iteration as it is set up
    does. `left_out` tells that external inputs or offsets exist, which the global error leaves out. What was not
    computed is None.
    """

    system: str
    master: str
    schedule: str
    step_size: float
    stable: bool
    spectral_radius: float
    exact_spectral_radius: float
    exact_stable: bool
    modes: tuple[Mode, ...]
    foreign: complex | None
    defect: float
    global_error: GlobalError
    horizon: float
    order: float | None
    critical_step: CriticalStep | None
    sweep_factor: float | None
    converges: bool | None
    left_out: bool
    loops: tuple[tuple[str, ...], ...]

    @property
    def growth(self) -> float:
        """The rate of growth (positive) or decay of the slowest-decaying mode, log ρ(Φ) / h, in 1/s."""
        return math.log(self.spectral_radius) / self.step_size if self.spectral_radius > 0 else -math.inf

    def __str__(self) -> str:
        return verdict_text(self)

    def _repr_html_(self) -> str:
        from cosimo.analysis.display import verdict_card

        return verdict_card(self)


def analyse(system: System, master: Master, *, horizon: float | None = None) -> Verdict:
    """Analyse `system` under `master` without simulating it; `horizon` in seconds bounds the global error.

    The default horizon is ten periods (or time constants) of the slowest mode, at most 10,000 macro steps. For systems
    with more than a hundred or so states the critical step and the convergence order are left out (None): ask for them
    with `cosimo.analysis.critical_step` and `convergence_order`.
    """
    if horizon is not None and not (math.isfinite(horizon) and horizon > 0):
        raise ConfigurationError(f"the horizon of an analysis must be a positive number of seconds, not {horizon}.")
    try:
        with np.errstate(over="raise", invalid="raise"):
            return _analyse(system, master, horizon)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError) as error:
        raise ConfigurationError(
            f"'{system.name}' cannot be analysed at the macro step {master.step:g}: its numbers leave the range of "
            f"double precision ({error}); check parameters and step size."
        ) from None


def _analyse(system: System, master: Master, horizon: float | None) -> Verdict:
    linear = LinearSystem(system, master)
    spectrum = Spectrum(linear)
    steps = _steps(spectrum, horizon)
    error = global_error(linear, steps=steps)
    seconds = steps * master.step
    factor, converges = sweep_factor(linear), None
    if factor is not None:
        converges = factor < 1 or any(until.anderson for until in _iterations(linear))
    return Verdict(
        system=system.name,
        master=master.name,
        schedule=str(master),
        step_size=master.step,
        stable=spectrum.stable and converges is not False,
        spectral_radius=spectrum.radius,
        exact_spectral_radius=spectrum.exact_radius,
        exact_stable=spectrum.exact_stable,
        modes=spectrum.modes(),
        foreign=spectrum.foreign(),
        defect=consistency(linear, k=2, norm=2),
        global_error=error,
        horizon=seconds,
        order=convergence_order(system, master, horizon=min(seconds, 100 * master.step)) if error.worst_case else None,
        critical_step=None if linear.sparse else critical_step(system, master),
        sweep_factor=factor,
        converges=converges,
        left_out=bool(system.inputs) or any(link.connection.offset for link in system.links),
        loops=tuple(system.loops()),
    )


def _steps(spectrum: Spectrum, horizon: float | None) -> int:
    if horizon is None:
        speeds = np.abs(spectrum.poles)
        slowest = float(speeds[speeds > 1e-9].min(initial=np.inf))
        horizon = 20 * math.pi / slowest if math.isfinite(slowest) else 100 * spectrum.step
        limit = 10_000 if len(spectrum.poles) <= 100 else 200
        return int(min(max(10.0, math.ceil(min(horizon / spectrum.step, 1e9))), limit))
    if horizon / spectrum.step > MOST_STEPS:
        raise ConfigurationError(
            f"a horizon of {horizon:g} s is more than {MOST_STEPS:,} macro steps of {spectrum.step:g} s; shorten it."
        )
    return max(1, round(horizon / spectrum.step))


def _iterations(linear: LinearSystem) -> list[Convergence]:
    repeats = [op for op in linear.operations.timeline.operations if isinstance(op, TimedRepeat)]
    return [repeat.times for repeat in repeats if isinstance(repeat.times, Convergence)]


def sweep_factor(linear: LinearSystem) -> float | None:
    """ρ(B_vv) of the sweep of an iteration until convergence: by what plain substitution multiplies the error."""
    for operation in linear.operations.timeline.operations:
        if isinstance(operation, TimedRepeat) and isinstance(operation.times, Convergence):
            B, changed, _ = linear.sweep_matrix(operation.sweeps[-1])
            block = B[changed][:, changed] if linear.sparse else B[np.ix_(changed, changed)]
            return float(np.abs(np.linalg.eigvals(block.toarray() if linear.sparse else block)).max(initial=0.0))
    return None
