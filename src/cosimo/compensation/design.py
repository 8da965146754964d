"""The design: gains of all units, a start on the target, and the eigenvalues that come of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from cosimo.algebra import LinearSystem
from cosimo.analysis.spectrum import Spectrum
from cosimo.compensation.gains import LEVELS, unit_gains
from cosimo.compensation.outcome import Compensation
from cosimo.compensation.start import Start
from cosimo.compensation.target import Target
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.units.integrators import DEGREE, ForwardEuler, SymplecticEuler

ROOM = 2 * 2**30
"""Most memory in bytes that the matrices of all compensated units may need: as a desktop computer has it to spare."""
CALM = 0.9
"""What a design adds should decay at least this much per macro step; otherwise another one is tried."""


def compensate(
    system: System, master: Master, *, target: Literal["monolithic", "exact"] = "monolithic"
) -> Compensation:
    """The master with inputs corrected so that the co-simulation follows `target`, or why signals do not suffice."""
    if target not in ("monolithic", "exact"):
        raise UnknownNameError("target of a compensation", target, ("monolithic", "exact"))
    _require_room(system)
    path = Target(system, master, target)
    before = Spectrum(path.linear)
    best: Compensation | None = None
    # With few samples and insensitive to external forces where that is stable; otherwise more samples, or without.
    for insensitive, more in ((True, 0), (True, 1), (False, 0), (False, 1), (False, 2)):
        found = _design(path, target, before, insensitive=insensitive, more=more)
        if best is None or found.latent_radius < best.latent_radius:
            best = found
        if best.latent_radius < CALM:
            break
    assert best is not None
    return best


def _require_room(system: System) -> None:
    """Refuse, before anything is allocated, designs whose memories would not fit.

    Every compensated unit remembers up to `LEVELS` samples of all q connected outputs and `Start.STEPS` corrections of
    them; its matrix F^ww is square in that.
    """
    outputs = len({(link.source.unit, link.source.index) for link in system.links})
    units = sum(bool(system.incoming(name)) for name in system.units)
    slots = (LEVELS + Start.STEPS) * outputs
    bytes_ = 8 * units * slots**2
    if bytes_ > ROOM:
        raise ConfigurationError(
            f"compensating {units} units with {outputs} connected outputs may need {bytes_ / 2**30:.3g} GiB of memory "
            f"({slots} numbers remembered per unit), and {ROOM / 2**30:g} GiB is the limit. Compensate a part of the "
            f"system by itself, or join units that may be stepped together."
        )


def _design(path: Target, target: str, before: Spectrum, *, insensitive: bool, more: int) -> Compensation:
    """One choice of gains for all units, and what becomes of the eigenvalues."""
    system, master = path.system, path.master
    solved = {name: unit_gains(path, name, insensitive, more) for name in system.units if system.incoming(name)}
    gains = {name: solution.gains for name, solution in solved.items()}
    mixers, couplings = Start(path, gains).mixers(), _external(path, target)
    compensated = replace(master, name=f"{master.name}+{target}", mixers=mixers, couplings=couplings)
    return Compensation(
        master=compensated,
        target=target,
        levels={name: solution.count for name, solution in solved.items()},
        residual=max((solution.residual for solution in solved.values()), default=0.0),
        gains=gains,
        path=path,
        before=before,
        after=Spectrum(LinearSystem(system, compensated)),
    )


def _external(path: Target, target: str) -> dict[str, Coupling]:
    """The couplings of the master; an exact solution also wants external inputs as they are throughout the step."""
    couplings = dict(path.master.couplings)
    for name, unit in path.units.items():
        if target == "exact" and not isinstance(unit.integrator, SymplecticEuler | ForwardEuler):
            couplings |= {inlet.target: Hold(DEGREE) for inlet in path.system.inlets[name] if inlet.source is not None}
    return couplings
