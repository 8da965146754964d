"""Which output probably feeds which input: proposals from names, units of measure and types, each with its reason.

Only what types and units of measure allow is considered (`check_connection`). What speaks for a pair adds up:

    4      the same name                                     3.5    named after the other unit: motor.speed, motor_speed
    3      the same but for case, digits, "in" and "out"     2      words for the same quantity: force, f
    1      a word in common                                  2      the same unit of measure (1.5: converted)

An input is connected when its best pair reaches `ENOUGH` and is `CLEAR` ahead of the next; otherwise it is left to the
reader, with what could be meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cosimo.core.errors import ConfigurationError
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.variables import VariableInfo, check_connection

ENOUGH = 1.5
"""What must speak for a pair before it is proposed."""
CLEAR = 0.75
"""By how much a pair must be ahead of the next one for the same input."""
MENTIONED = 4
"""Pairs that are mentioned where none is clear."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]+")
_DIRECTION = frozenset({"in", "out", "input", "output", "inlet", "outlet"})
_SYNONYMS = (
    ("force", "f", "fx", "fy", "fz", "load"),
    ("torque", "moment", "tau", "t", "m"),
    ("position", "displacement", "pos", "x", "y", "z", "s", "q"),
    ("velocity", "speed", "vel", "v", "vx", "vy", "vz", "xdot"),
    ("speed", "omega", "w", "n", "rpm"),
    ("acceleration", "acc", "a"),
    ("angle", "phi", "theta", "alpha", "rotation"),
    ("voltage", "volt", "u", "v"),
    ("current", "i", "amps"),
    ("temperature", "temp", "t"),
    ("heat", "flow", "q", "qdot", "power", "p"),
    ("pressure", "p"),
    ("level", "height", "h"),
)
"""Words for one quantity; a word may stand for several."""
_SIGNED = frozenset({"force", "torque", "current", "heat"})
"""Quantities that two tools often count in opposite directions: what acts on one unit acts back on the other."""
_QUANTITIES: dict[str, set[str]] = {}
for _group in _SYNONYMS:
    for _word in _group:
        _QUANTITIES.setdefault(_word, set()).add(_group[0])


@dataclass(frozen=True)
class Proposal:
    """A connection and what speaks for it; `signed`: the direction in which it counts should be looked at."""

    source: str
    target: str
    score: float
    reason: str
    signed: bool = False


@dataclass(frozen=True)
class Undecided:
    """An input for which no output is clear; `candidates`, best first, may be none."""

    target: str
    reason: str
    candidates: tuple[Proposal, ...] = ()


@dataclass(frozen=True)
class Proposals:
    """For every input of every unit what it could be fed by."""

    connections: tuple[Proposal, ...]
    undecided: tuple[Undecided, ...]


def propose(units: Mapping[str, Fmu]) -> Proposals:
    """The connections between units that their descriptions suggest."""
    connections: list[Proposal] = []
    undecided: list[Undecided] = []
    for name, unit in units.items():
        for taken in unit.input_infos:
            found = sorted(_candidates(units, name, taken), key=lambda p: (-p.score, p.source))
            chosen = _choose(f"{name}.{taken.name}", found)
            (connections if isinstance(chosen, Proposal) else undecided).append(chosen)  # type: ignore[arg-type]
    return _once_per_unit(Proposals(tuple(connections), tuple(undecided)), tuple(units))


def _once_per_unit(found: Proposals, units: tuple[str, ...]) -> Proposals:
    """Of several inputs of one unit that the same output would feed, only the one that fits best is connected."""
    best: dict[tuple[str, str], Proposal] = {}
    owner = {p.target: max((u for u in units if p.target.startswith(u + ".")), key=len) for p in found.connections}
    for proposal in sorted(found.connections, key=lambda p: -p.score):
        best.setdefault((proposal.source, owner[proposal.target]), proposal)
    kept = tuple(p for p in found.connections if best[p.source, owner[p.target]] is p)
    given_up = tuple(
        Undecided(p.target, f"{p.source} fits {best[p.source, owner[p.target]].target} better", (p,))
        for p in found.connections
        if p not in kept
    )
    return Proposals(kept, found.undecided + given_up)


def _choose(target: str, found: list[Proposal]) -> Proposal | Undecided:
    if not found or found[0].score < ENOUGH:
        return Undecided(target, "no output of another unit has a name or a unit of measure that fits")
    near = [one for one in found if one.score > found[0].score - CLEAR]
    if len(near) > 1:
        return Undecided(target, f"{len(near)} outputs fit about equally well", tuple(near[:MENTIONED]))
    return found[0]


def _candidates(units: Mapping[str, Fmu], name: str, taken: VariableInfo) -> Iterator[Proposal]:
    for giver, unit in units.items():
        if giver == name:
            continue
        for given in unit.output_infos:
            source, target = f"{giver}.{given.name}", f"{name}.{taken.name}"
            try:
                conversion = check_connection(given, taken)
            except ConfigurationError:
                continue
            score, reason = _names(giver, given.name, name, taken.name)
            reasons = [reason] if reason else []
            if given.unit is not None and taken.unit is not None:
                score += 2.0 if conversion.identity else 1.5
                same = given.unit.name == taken.unit.name
                reasons.append(f"both in {given.unit}" if same else f"converted from {given.unit} to {taken.unit}")
            if given.type != taken.type:
                score -= 0.5
                reasons.append(f"{given.type} into {taken.type}")
            signed = bool(_SIGNED & (_quantities(given.name) | _quantities(taken.name)))
            yield Proposal(source, target, score, ", ".join(reasons), signed)


def _names(giver: str, output: str, taker: str, entry: str) -> tuple[float, str]:
    """How far two names agree, and why."""
    if output == entry:
        return 4.0, "same name"
    (a, m), (b, n) = _split(output), _split(entry)
    # x1 and x2 are rather not the same thing; x and x2 may be.
    numbers = -0.75 if m and n and m != n else 0.25 if m and m == n else 0.0
    if a and b:
        if set(b) == {*a, *_split(giver)[0]} or set(a) == {*b, *_split(taker)[0]}:
            return 3.5 + numbers, "named after the unit"
        if a == b:
            return 3.0 + numbers, "same name but for case, digits, 'in' and 'out'"
        if common := _quantities(output) & _quantities(entry):
            return 2.0 + numbers, f"both stand for a {' or '.join(sorted(common))}"
        if shared := set(a) & set(b):
            return 1.0 + numbers, f"'{min(shared)}' in both names"
    return 0.0, ""


def _split(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Words of a name, without those for a direction, and its numbers.

    >>> _split("inMotorSpeed_2")
    (('motor', 'speed'), ('2',))
    """
    words = [word.lower() for word in _WORD.findall(name)]
    letters = tuple(word for word in words if not word.isdigit() and word not in _DIRECTION)
    return letters, tuple(word for word in words if word.isdigit())


def _quantities(name: str) -> set[str]:
    """What the last word that stands for quantities stands for; a name often begins with where it is measured."""
    return next((_QUANTITIES[word] for word in reversed(_split(name)[0]) if word in _QUANTITIES), set())
