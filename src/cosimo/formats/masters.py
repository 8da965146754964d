"""Masters and couplings as words: the edge where text from files and the command line becomes objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cosimo import masters
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence
from cosimo.core.system import System
from cosimo.couplings import Dmd, Hold, Nepce


@dataclass(frozen=True)
class MasterOptions:
    """A master in words.

    `couplings` are texts such as `hold1` (for all inputs) or `two.F=nepce:0.6` (for one). `order` lists units,
    separated by commas, groups by semicolons. `sweeps`, `tolerance`, `sweep_limit` and `anderson` belong to
    `iterative`, `multiples` and `inputs` to `multirate`.
    """

    name: str = "jacobi"
    order: str | None = None
    couplings: Sequence[str] = ()
    sweeps: int | None = None
    tolerance: float | None = None
    sweep_limit: int | None = None
    anderson: int | None = None
    multiples: Mapping[str, int] = field(default_factory=dict)
    inputs: Literal["held", "interpolated"] | None = None


def build_master(system: System, step: float, options: MasterOptions) -> Master:
    """The master that `options` describes; options that the master does not know are refused."""
    if options.name not in _BUILDERS:
        raise UnknownNameError("master", options.name, _BUILDERS)
    allowed, build = _BUILDERS[options.name]
    for name in ("order", "sweeps", "tolerance", "sweep_limit", "anderson", "multiples", "inputs"):
        if getattr(options, name) not in (None, {}) and name not in allowed:
            takers = sorted(key for key, (names, _) in _BUILDERS.items() if name in names)
            raise ConfigurationError(
                f"master '{options.name}' has no {name.replace('_', ' ')}; {' and '.join(takers)} have."
            )
    general, special = parse_couplings(system, options.couplings)
    return build(system, step, options, general, special)


Build = Callable[[System, float, MasterOptions, Coupling | None, dict[str, Coupling]], Master]


def _jacobi(s: System, h: float, o: MasterOptions, c: Coupling | None, cs: dict[str, Coupling]) -> Master:
    return masters.jacobi(s, h, coupling=c, couplings=cs)


def _early(s: System, h: float, o: MasterOptions, c: Coupling | None, cs: dict[str, Coupling]) -> Master:
    return masters.jacobi_early_read(s, h, coupling=c, couplings=cs)


def _seidel(s: System, h: float, o: MasterOptions, c: Coupling | None, cs: dict[str, Coupling]) -> Master:
    return masters.gauss_seidel(s, h, order=_names(o.order), coupling=c, couplings=cs)


def _groups(s: System, h: float, o: MasterOptions, c: Coupling | None, cs: dict[str, Coupling]) -> Master:
    if o.order is None:
        raise ConfigurationError("master 'groups' needs an order such as 'a,b;c'.")
    order = [_names(group) or () for group in o.order.split(";")]
    return masters.groups(s, h, order=order, coupling=c, couplings=cs)


def _multirate(s: System, h: float, o: MasterOptions, c: Coupling | None, cs: dict[str, Coupling]) -> Master:
    return masters.multirate(s, h, multiples=o.multiples, inputs=o.inputs or "held", coupling=c, couplings=cs)


def _iterative(s: System, h: float, o: MasterOptions, c: Coupling | None, cs: dict[str, Coupling]) -> Master:
    until = {"tolerance": o.tolerance, "limit": o.sweep_limit, "anderson": o.anderson}
    given = {name: value for name, value in until.items() if value is not None}
    if o.sweeps is not None and given:
        raise ConfigurationError(
            "an iteration has a fixed number of sweeps or runs until converged, not both; leave out sweeps or the rest."
        )
    sweeps = o.sweeps if o.sweeps is not None else Convergence(**given)  # type: ignore[arg-type]
    return masters.iterative(s, h, sweeps=sweeps, order=_names(o.order), coupling=c, couplings=cs)


_BUILDERS: Mapping[str, tuple[frozenset[str], Build]] = {
    "jacobi": (frozenset(), _jacobi),
    "jacobi-early-read": (frozenset(), _early),
    "gauss-seidel": (frozenset({"order"}), _seidel),
    "groups": (frozenset({"order"}), _groups),
    "multirate": (frozenset({"multiples", "inputs"}), _multirate),
    "iterative": (frozenset({"order", "sweeps", "tolerance", "sweep_limit", "anderson"}), _iterative),
}

MASTERS = tuple(_BUILDERS)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def parse_couplings(system: System, texts: Sequence[str]) -> tuple[Coupling | None, dict[str, Coupling]]:
    """The coupling for all inputs (the last one given) and those for single inputs."""
    general: Coupling | None = None
    special: dict[str, Coupling] = {}
    for text in texts:
        target, equals, name = text.rpartition("=")
        coupling = parse_coupling(name)
        if equals:
            system.input(target)
            special[target] = coupling
        else:
            general = coupling
    return general, special


def parse_coupling(text: str) -> Coupling:
    """`hold0`, `hold1`, `hold2`, `nepce:0.6`, `dmd` (automatic window), `dmd:100`, or `dmd:100:recursive`.

    >>> parse_coupling("nepce:0.6")
    Nepce(alpha=0.6)
    """
    name, colon, argument = text.strip().partition(":")
    if name == "nepce":
        try:
            return Nepce(float(argument))
        except ValueError:
            raise ConfigurationError(f"coupling '{text}' needs its gain as a number, such as 'nepce:0.6'.") from None
    if name == "dmd":
        return _dmd(text, argument)
    holds: dict[str, Coupling] = {f"hold{order}": Hold(order) for order in (0, 1, 2)}
    if name not in holds or colon:
        raise UnknownNameError("coupling", text, [*holds, "nepce:GAIN", "dmd", "dmd:WINDOW"])
    return holds[name]


def _dmd(text: str, argument: str) -> Dmd:
    window, _, method = argument.partition(":")
    if window in ("", "auto") and not method:
        return Dmd()
    if not window.isdigit() or method not in ("", "robust", "recursive"):
        raise ConfigurationError(f"coupling '{text}' is not understood; write dmd, dmd:100 or dmd:100:recursive.")
    return Dmd(window=int(window), method="recursive" if method == "recursive" else "robust")
