"""Masters and couplings as words: the edge where text becomes objects, and the one notation in which they are printed.

`build_master` reads the words of files and of the command line; `options_of` writes them again, so that whatever is
recommended can be run. `describe` is how every text names a master: in plain words, with those of the command line in
brackets.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.formatting import step_text
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import COUPLINGS, parse_coupling
from cosimo.masters import MASTERS, MasterOptions, Target

__all__ = [
    "MasterOptions",
    "base_step",
    "build_master",
    "command_options",
    "describe",
    "options_of",
    "parse_couplings",
    "scenario_lines",
]

OPTIONS = tuple(field.name for field in fields(MasterOptions) if field.name not in ("name", "couplings", "follow"))
"""What may be said of a master beside its name and its couplings."""


def build_master(system: System, step: float, options: MasterOptions) -> Master:
    """The master that `options` describes; options that the master does not know are refused."""
    if options.name not in MASTERS:
        raise UnknownNameError("master", options.name, MASTERS)
    if options.follow is not None:
        raise ConfigurationError(
            "a master that follows a target is designed for one system and step; leave follow out here, or give the "
            "plain master to 'compensate'."
        )
    word = MASTERS[options.name]
    for option in OPTIONS:
        if getattr(options, option) not in (None, {}) and option not in word.options:
            takers = sorted(name for name, other in MASTERS.items() if option in other.options)
            raise ConfigurationError(
                f"master '{options.name}' does not take the option {option.replace('_', ' ')}; use it with "
                f"{' or '.join(takers)}."
            )
    general, special = parse_couplings(system, options.couplings)
    return word.build(system, step, coupling=general, couplings=special, **word.arguments(options))


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


# ---- from objects to words -------------------------------------------------------------------------------------------

NAMED = 4
"""Up to how many couplings of single inputs are named in words."""


def options_of(master: Master, system: System | None = None) -> MasterOptions | None:
    """The words that `build_master` makes this master from; None where there are none.

    Inputs that are corrected otherwise than by `compensate` have none, nor have couplings of one's own, and units whose
    names contain the signs between words.
    Inputs that cannot be extrapolated are held anyway; with the `system` they are left out.

    >>> from cosimo.problems import two_mass
    >>> options_of(build_master(two_mass(), 1e-3, MasterOptions("gauss-seidel", couplings=["hold1"])))
    MasterOptions(name='gauss-seidel', order='one,two', couplings=('hold1',), sweeps=None, tolerance=None, \
sweep_limit=None, anderson=None, quasi_newton=None, samples=None, multiples={}, inputs=None, follow=None)
    """
    follow: Any = None
    if master.mixers:
        name, _, follow = master.name.rpartition("+")  # jacobi+converged
        if follow not in get_args(Target):
            return None
        master = replace(master, name=name, mixers={}, checks=())
    kind, _, rest = master.name.removesuffix(")").partition("(")
    if kind not in MASTERS or not _sayable(master):
        return None
    said = MASTERS[kind].read(master, rest)
    return MasterOptions(name=kind, couplings=_coupling_words(master, system), follow=follow, **said)


def _sayable(master: Master) -> bool:
    """Whether the names of its units, where the words have them, and all its couplings can be read again."""
    named = MASTERS[master.name.partition("(")[0]].options
    if named and any(set(",;=") & set(name) or name != name.strip() for name in master.schedule.units):
        return False
    for coupling in (master.coupling, *master.couplings.values()):
        try:
            if parse_coupling(coupling.word) != coupling:
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
    >>> command_options(build_master(two_mass(), 5e-4, MasterOptions("gauss-seidel", couplings=["hold1"])))
    '--master gauss-seidel --order one,two --coupling hold1 --step-size 0.0005'
    """
    options = options_of(master, system)
    if options is None:
        return ""
    pairs = [("master", options.name), *_plain_options(options)]
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
    lines += [f"{name} = {_toml(value)}" for name, value in _plain_options(options)]
    if options.multiples:
        pairs = ", ".join(f"{_toml(unit)} = {count}" for unit, count in options.multiples.items())
        lines.append(f"multiples = {{ {pairs} }}")
    if options.couplings:
        lines.append(f"couplings = {_toml(list(options.couplings))}")
    return "\n".join(lines)


def _plain_options(options: MasterOptions) -> list[tuple[str, Any]]:
    """What is said beside name, couplings and multiples, as the command line and scenario files call it."""
    return [
        (name.replace("_", "-"), value)
        for name in (*OPTIONS, "follow")
        if name != "multiples" and (value := getattr(options, name)) is not None
    ]


def _toml(value: object) -> str:
    """Text, numbers and lists are written as in JSON, characters beyond ASCII as they are."""
    return json.dumps(value, ensure_ascii=False)


def describe(master: Master, system: System | None = None, *, step: bool = True) -> str:
    """How every text names a master: plain words, and the word of the command line in brackets where it is another.

    >>> from cosimo.problems import two_mass
    >>> describe(build_master(two_mass(), 5e-4, MasterOptions("gauss-seidel", couplings=["hold1"])))
    'Gauss–Seidel one → two at 500 µs, linear extrapolation (hold1)'
    """
    plain = master.name.rpartition("+")[0] or master.name if master.mixers else master.name  # jacobi+monolithic
    kind, _, rest = plain.removesuffix(")").partition("(")
    options = options_of(master, system)
    name = MASTERS[kind].title(rest, options) if kind in MASTERS else kind
    if not name.casefold().replace("–", "-").startswith(kind):
        name += f" ({kind})"
    if step:
        name += f" at {step_text(master.step)}"
    if master.mixers:
        return f"{name}, compensated inputs"
    words = options.couplings if options else _coupling_words(master, system)
    shown = [_coupling_name(word) for word in words[:NAMED]]
    return ", ".join([name, *shown, *([f"{len(words) - NAMED} more couplings"] if len(words) > NAMED else [])])


def _coupling_words(master: Master, system: System | None) -> tuple[str, ...]:
    general = master.coupling.word
    held = {f"{name}.{v}" for name, unit in system.units.items() for v in unit.discrete_inputs} if system else set()
    special = [f"{t}={c.word}" for t, c in master.couplings.items() if t not in held and c.word != general]
    usual = "hold1" if master.name.startswith("multirate(") and master.name.endswith(";interpolated)") else "hold0"
    return (*([general] if general != usual else []), *special)


def _coupling_name(text: str) -> str:
    target, equals, word = text.rpartition("=")
    known = COUPLINGS.get(word.partition(":")[0])
    plain = f"{known.title} ({word})" if known and known.title else word
    return f"{target} {plain}" if equals else plain
