"""Masters and couplings as words: the edge where text becomes objects, and the one notation in which they are printed.

`build_master` reads the words of files and of the command line; `options_of` writes them again, so that whatever is
recommended can be run. `describe` is how every text names a master: in plain words, with those of the command line in
brackets.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from cosimo import masters
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.formatting import step_text
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Repeat, Step
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


# ---- from objects to words -------------------------------------------------------------------------------------------

EXTRAPOLATION = {
    "hold1": "linear extrapolation",
    "hold2": "quadratic extrapolation",
    "dmd": "data-driven extrapolation",
}
NAMED = 4
"""Up to how many couplings of single inputs are named in words."""


def options_of(master: Master, system: System | None = None) -> MasterOptions | None:
    """The words that `build_master` makes this master from; None where there are none.

    Corrected inputs have none, nor have couplings of one's own, and units whose names contain the signs between words.
    Inputs that cannot be extrapolated are held anyway; with the `system` they are left out.

    >>> from cosimo.problems import two_mass
    >>> options_of(masters.gauss_seidel(two_mass(), 1e-3, coupling=Hold(1)))
    MasterOptions(name='gauss-seidel', order='one,two', couplings=('hold1',), sweeps=None, tolerance=None, \
sweep_limit=None, anderson=None, multiples={}, inputs=None)
    """
    kind, _, rest = master.name.removesuffix(")").partition("(")
    if master.mixers or kind not in _BUILDERS or not _sayable(master):
        return None
    options = MasterOptions(name=kind, couplings=_coupling_words(master, system))
    if kind in ("gauss-seidel", "groups"):
        return replace(options, order=rest)
    if kind == "multirate":
        pairs, _, inputs = rest.partition(";")
        multiples = {unit: int(count) for unit, _, count in (pair.rpartition(":") for pair in pairs.split(","))}
        slower = {unit: count for unit, count in multiples.items() if count > 1}
        return replace(options, multiples=slower, inputs="interpolated" if inputs == "interpolated" else None)
    if kind == "iterative":
        repeat = next(op for op in master.schedule.operations if isinstance(op, Repeat))
        order = ",".join(op.unit for op in repeat.body if isinstance(op, Step)) if "gauss" in rest else None
        if not isinstance(repeat.times, Convergence):
            return replace(options, order=order, sweeps=repeat.times)
        usual, until = Convergence(), repeat.times
        return replace(
            options,
            order=order,
            tolerance=until.tolerance if until.tolerance != usual.tolerance else None,
            sweep_limit=until.limit if until.limit != usual.limit else None,
            anderson=until.anderson if until.anderson != usual.anderson else None,
        )
    return options


def _sayable(master: Master) -> bool:
    """Whether the names of its units, where the words have them, and all its couplings can be read again."""
    named = not master.name.startswith("jacobi")
    if named and any(set(",;=") & set(name) or name != name.strip() for name in master.schedule.units):
        return False
    for coupling in (master.coupling, *master.couplings.values()):
        try:
            if parse_coupling(_exactly(coupling)) != coupling:
                return False
        except ConfigurationError:
            return False
    return True


def base_step(master: Master) -> float:
    """The step that goes with the words: of a multirate master that of its fastest unit, to the last bit."""
    options = options_of(master)
    period = math.lcm(*options.multiples.values()) if options and options.multiples else 1
    step = master.step / period
    near = (float(f"{step:.15g}"), step, math.nextafter(step, 0.0), math.nextafter(step, math.inf))
    return next((base for base in near if base * period == master.step), step)


def command_options(master: Master, system: System | None = None) -> str:
    """The options of the command line that make this master; empty where there are none.

    >>> from cosimo.problems import two_mass
    >>> command_options(masters.gauss_seidel(two_mass(), 5e-4, coupling=Hold(1)))
    '--master gauss-seidel --order one,two --coupling hold1 --step-size 0.0005'
    """
    options = options_of(master, system)
    if options is None:
        return ""
    names = ("order", "sweeps", "tolerance", "sweep_limit", "anderson", "inputs")
    given = [(name.replace("_", "-"), getattr(options, name)) for name in names]
    pairs = [("master", options.name), *((name, value) for name, value in given if value is not None)]
    pairs += [("multiple", f"{unit}={count}") for unit, count in options.multiples.items()]
    pairs += [("coupling", coupling) for coupling in options.couplings]
    pairs.append(("step-size", repr(float(base_step(master)))))
    return " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in pairs)


def scenario_lines(master: Master, system: System | None = None) -> str:
    """The lines of a scenario file that make this master; empty where there are none."""
    options = options_of(master, system)
    if options is None:
        return ""
    lines = [f"step-size = {float(base_step(master))!r}", "", "[master]", f"name = {_toml(options.name)}"]
    values = {n: getattr(options, n) for n in ("order", "sweeps", "tolerance", "sweep_limit", "anderson", "inputs")}
    lines += [f"{n.replace('_', '-')} = {_toml(value)}" for n, value in values.items() if value is not None]
    if options.multiples:
        pairs = ", ".join(f"{_toml(unit)} = {count}" for unit, count in options.multiples.items())
        lines.append(f"multiples = {{ {pairs} }}")
    if options.couplings:
        lines.append(f"couplings = {_toml(list(options.couplings))}")
    return "\n".join(lines)


def _toml(value: object) -> str:
    """Text, numbers and lists are written as in JSON, characters beyond ASCII as they are."""
    return json.dumps(value, ensure_ascii=False)


def describe(master: Master, system: System | None = None, *, step: bool = True) -> str:
    """How every text names a master: plain words, and the words of the command line in brackets.

    >>> from cosimo.problems import two_mass
    >>> describe(masters.gauss_seidel(two_mass(), 5e-4, coupling=Hold(1)))
    'Gauss–Seidel one → two (gauss-seidel) at 500 µs, linear extrapolation (hold1)'
    """
    plain = master.name.rpartition("+")[0] or master.name if master.mixers else master.name  # jacobi+monolithic
    kind, _, rest = plain.removesuffix(")").partition("(")
    options = options_of(master, system)
    name = f"{_plain_name(kind, rest, options)}{f' ({kind})' if kind in _BUILDERS else ''}"
    if step:
        name += f" at {step_text(master.step)}"
    if master.mixers:
        return f"{name}, compensated inputs"
    words = options.couplings if options else _coupling_words(master, system)
    shown = [_coupling_name(word) for word in words[:NAMED]]
    return ", ".join([name, *shown, *([f"{len(words) - NAMED} more couplings"] if len(words) > NAMED else [])])


def _plain_name(kind: str, rest: str, options: MasterOptions | None) -> str:
    if kind == "jacobi-early-read":
        return "Jacobi with early read"
    if kind == "gauss-seidel":
        return f"Gauss–Seidel {rest.replace(',', ' → ')}"
    if kind == "groups":
        return "groups " + " → ".join(f"({group.replace(',', ', ')})" for group in rest.split(";"))
    if kind == "multirate" and options:
        rates = " and ".join(f"{unit} every {count} steps" for unit, count in options.multiples.items())
        return f"multirate, {rates or 'all units every step'}{', interpolated' if options.inputs else ''}"
    if kind == "iterative" and options:
        swept = f"Gauss–Seidel {options.order.replace(',', ' → ')}" if options.order else "Jacobi"
        return f"{swept}, {_sweeps(options.sweeps)}"
    return "Jacobi" if kind == "jacobi" else kind


def _sweeps(count: int | None) -> str:
    return "iterated until converged" if count is None else f"{count} sweep{'s' if count > 1 else ''}"


def _coupling_words(master: Master, system: System | None) -> tuple[str, ...]:
    general = _exactly(master.coupling)
    held = {f"{name}.{v}" for name, unit in system.units.items() for v in unit.discrete_inputs} if system else set()
    special = [f"{t}={_exactly(c)}" for t, c in master.couplings.items() if t not in held and _exactly(c) != general]
    usual = "hold1" if master.name.startswith("multirate(") and master.name.endswith(";interpolated)") else "hold0"
    return (*([general] if general != usual else []), *special)


def _coupling_name(text: str) -> str:
    target, equals, word = text.rpartition("=")
    name = EXTRAPOLATION.get(word.partition(":")[0])
    plain = f"{name} ({word})" if name else word
    return f"{target} {plain}" if equals else plain


def _exactly(coupling: Coupling) -> str:
    """With all digits of a gain."""
    return f"nepce:{float(coupling.alpha)!r}" if isinstance(coupling, Nepce) else str(coupling)
