"""Writing scenario files: a master or a connection into one that is there, and a first one for given FMUs.

With a master, the step and the table `[master]` change; all else stays as it is written.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, CosimoError, OutputError, no_such_file
from cosimo.core.master import Master
from cosimo.core.storage import replacing
from cosimo.core.system import System
from cosimo.formats.scenario_building import load_scenario
from cosimo.masters.words import options_of, scenario_lines
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.model_exchange import SOLVERS
from cosimo.units.fmi.variables import VariableInfo, check_connection

HEADER = re.compile(r"""^\s*\[{1,2}\s*[\w"'-][^\[\]=,]*\]{1,2}\s*(#.*)?$""")
MASTER = re.compile(r"""^\s*\[\s*["']?master["']?\s*(\]|\.)""")
STEP = re.compile(r"^\s*step[-_]size\s*=[^#]*(#.*)?$")
INLINE = re.compile(r"^\s*master\s*(\.|=)")
CONNECTIONS = re.compile(r"^\s*connections\s*=\s*\[")


def write_master(path: Path, master: Master, system: System) -> Path:
    """Write `master` with its step into the scenario; the name of the file in which the old one is kept.

    The new text is read again before anything is replaced: if that gives another master, or anything else than before
    beside it, the file stays as it was.
    """
    lines = scenario_lines(master, system)
    if path.suffix.lower() == ".toml" and not lines:
        raise ConfigurationError(
            f"a scenario cannot describe master {master.name}: it has couplings or unit names that the file format "
            "cannot express; choose another."
        )
    step, _, table = lines.partition("\n\n")

    def check(before: str, new: Path) -> None:
        _require_rest(before, new)
        _require_master(new, master)

    return _edit(path, lambda text: _changed(text, step, table), check, lines)


def write_connection(path: Path, source: str, target: str) -> Path:
    """Add a connection to the scenario, as its first; the name of the file in which the old one is kept."""
    entry = _quoted(f"{source} -> {target}")

    def change(text: str) -> str:
        lines, end = text.split("\n"), "\r" if "\r\n" in text else ""
        top = next((number for number, line in enumerate(lines) if HEADER.match(line)), len(lines))
        place = next((number for number in range(top) if CONNECTIONS.match(lines[number])), None)
        if place is None:
            return "\n".join([f"connections = [{entry}]{end}", *lines])
        begin, bracket, rest = lines[place].partition("[")
        own = rest.strip() and not rest.lstrip().startswith("#")
        first = [f"{begin}{bracket}{entry}, {rest}"] if own else [lines[place], f"  {entry},{end}"]
        return "\n".join([*lines[:place], *first, *lines[place + 1 :]])

    def check(before: str, new: Path) -> None:
        old, found = tomllib.loads(before), _parsed(new)
        if found != {**old, "connections": [f"{source} -> {target}", *old.get("connections", ())]}:
            raise ConfigurationError("writing the connection would change other parts of the file; edit it by hand.")
        load_scenario(new)

    return _edit(path, change, check, entry)


def write_sign(path: Path, source: str, target: str) -> Path:
    """Give a connection without a gain the gain −1; the name of the file in which the old one is kept."""
    entry = {"from": source, "to": target, "gain": -1.0}
    line = f"{{ from = {_quoted(source)}, to = {_quoted(target)}, gain = -1.0 }}"

    def change(text: str) -> str:
        return text.replace(_quoted(f"{source} -> {target}"), line, 1)

    def check(before: str, new: Path) -> None:
        old, found = tomllib.loads(before), _parsed(new)
        wanted = [entry if one == f"{source} -> {target}" else one for one in old.get("connections", ())]
        if entry not in wanted or found != {**old, "connections": wanted}:
            raise ConfigurationError("writing the sign would change other parts of the file; edit it by hand.")
        load_scenario(new)

    return _edit(path, change, check, line)


def _edit(path: Path, change: Callable[[str], str], check: Callable[[str, Path], None], lines: str) -> Path:
    """Replace the text of a scenario by a changed one that passes its `check`; where the old one is kept."""
    if path.suffix.lower() != ".toml":
        raise ConfigurationError(f"only scenario files (.toml) can be changed, not '{path}'; use the options instead.")
    place = Path(os.path.realpath(path))  # what a link points to is changed, not the link
    try:
        before = place.read_bytes().decode()
        with replacing(place, unique=True) as new:
            new.write_bytes(change(before).encode())
            check(before, new)
            kept = _free_name(place)
            shutil.copy2(place, kept)
            shutil.copymode(place, new)
    except CosimoError as error:
        raise ConfigurationError(
            f"'{path}' cannot be edited automatically ({error}); add these lines by hand: {lines!r}."
        ) from None
    except OSError as error:
        raise OutputError(f"cannot write '{path}': {error.strerror or error}; nothing was changed.") from None
    return kept


def _changed(text: str, step: str, table: str) -> str:
    """The step where it stood, or first; the table where it stood, or last; remarks in both places stay."""
    end = "\r" if "\r\n" in text else ""
    head, *entries = (f"{line}{end}" for line in table.split("\n"))
    top: list[str] = []
    rest: list[str] = []
    first: str | None = f"{step}{end}"
    inside, header_seen, written = False, False, False
    for line in text.split("\n"):
        if HEADER.match(line):
            header_seen, inside = True, bool(MASTER.match(line))
            if inside:
                rest += [] if written else [line if line.strip().startswith("[master]") else head, *entries]
                written = True
                continue
        if inside:
            rest += [line] if not line.strip() or line.lstrip().startswith("#") else []
        elif not header_seen and (found := STEP.match(line)):
            remark = (found[1] or "").rstrip()
            top += [f"{step}  {remark}{end}" if remark else f"{step}{end}"]
            first = None
        elif header_seen or not INLINE.match(line):
            (rest if header_seen else top).append(line)
    lines = [*([first] if first else []), *top, *rest]
    if not written:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += [end, head, *entries, ""]
    return "\n".join(lines)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the edited file would not be valid TOML: {error}") from None


def _require_rest(before: str, path: Path) -> None:
    if _rest(_parsed(path)) != _rest(tomllib.loads(before)):
        raise ConfigurationError("writing the master would change other parts of the file; edit it by hand.")


def _rest(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name.replace("_", "-") not in ("step-size", "master")}


def _require_master(path: Path, master: Master) -> None:
    found = load_scenario(path)
    read = found.master if "options" in found.specified and found.step is not None else None
    if master.mixers and read is not None and options_of(read) == options_of(master):
        return  # designed again, from the same words
    if read != master:
        raise ConfigurationError("the master would be read back differently from the file; write it by hand.")


def _free_name(path: Path) -> Path:
    for number in range(1000):
        name = path.with_name(f"{path.name}.old{number or ''}")
        if not name.exists():
            return name
    raise OSError("too many old files beside it; remove some")


# ---- a first scenario file for given FMUs: units, proposed connections with their reasons, step and stop time --------


STEPS = 1000  # macro steps of a run whose length or step nobody says
STOP = 10.0  # seconds of a run of which nobody says anything
PARAMETERS = 6  # parameters that are shown per unit
SIGN = "check its sign; if each unit counts what acts on it as positive, write instead"


@dataclass(frozen=True)
class Scaffold:
    """A scenario file to be: its text, and what was proposed; step and stop time in seconds."""

    text: str
    units: Mapping[str, Fmu]
    proposals: Proposals
    step: float
    stop: float

    def fields(self) -> dict[str, Any]:
        """For JSON: what was proposed, and what could not be decided."""

        return self.proposals.fields()


def scaffold(path: Path, fmus: Sequence[str | Path]) -> Scaffold:
    """A scenario at `path` (nothing is written yet) of the FMUs, which are named after their files."""
    if path.suffix.lower() != ".toml":
        raise ConfigurationError(f"'{path}' must end in .toml; give the scenario first, then the FMUs.")
    for fmu in fmus:
        if Path(fmu).suffix.lower() != ".fmu":
            raise ConfigurationError(f"'{fmu}' does not end in .fmu; give the scenario first, then only FMUs.")
        if not Path(fmu).exists():
            raise no_such_file(Path(fmu), (".fmu",))
    if not fmus:
        raise ConfigurationError(f"no FMU was given for '{path}'; write 'cosimo new {path} A.fmu B.fmu'.")
    units = {name: Fmu(file, name=name) for name, file in name_units(fmus).items()}
    proposals, (start, stop, step, reason) = propose(units), _times(units)
    head = [f"# A scenario for cosimo, proposed by 'cosimo new' from {len(units)} FMU{'s' * (len(units) > 1)}."]
    head += [f"# Check it, then: cosimo analyse {path.name}", "", f"# Seconds. {reason}.", f"step-size = {step!r}"]
    head += [f"start-time = {start!r}"] if start else []
    head += [f"stop-time = {stop!r}", ""]
    text = "\n".join([*head, *_lines(path, units, proposals)]) + "\n"
    return Scaffold(text, units, proposals, step, stop)


def name_units(files: Sequence[str | Path]) -> dict[str, Path]:
    """Units named after their files; equal names are numbered.

    >>> list(name_units(["a/wheel.fmu", "b/wheel.fmu", "left wheel.fmu"]))
    ['wheel1', 'wheel2', 'left_wheel']
    """
    stems = [re.sub(r"[^\w-]", "_", Path(file).stem) or "unit" for file in files]
    named: dict[str, Path] = {}
    for place, (stem, file) in enumerate(zip(stems, files, strict=True)):
        name = stem if stems.count(stem) == 1 else f"{stem}{stems[:place].count(stem) + 1}"
        while name in named:
            name += "_"
        named[name] = Path(file)
    return named


def _times(units: Mapping[str, Fmu]) -> tuple[float, float, float, str]:
    """Start, stop and step as the FMUs suggest, and where they come from; what none of them says is guessed."""

    def told(key: str) -> dict[str, float]:
        given = {name: unit.default_experiment.get(key) for name, unit in units.items()}
        return {name: float(value) for name, value in given.items() if value is not None and math.isfinite(value)}

    steps = {name: step for name, step in told("stepSize").items() if step > 0}
    starts, stops = told("startTime"), told("stopTime")
    start = min(starts.values(), default=0.0)
    stops = {name: stop for name, stop in stops.items() if stop > start}
    if stops:
        stop, stop_reason = max(stops.values()), _suggested(stops, "the longest that")
    else:
        stop = start + (STEPS * min(steps.values()) if steps else STOP)
        stop_reason = "a guess: the FMUs suggest none"
    if steps:
        step, step_reason = min(steps.values()), _suggested(steps, "the shortest that")
    else:
        step = float(f"{(stop - start) / STEPS:.1g}")
        step_reason = "a guess: the FMUs suggest none ('cosimo analyse' recommends one)"
    return start, stop, step, f"step-size: {step_reason}; stop-time: {stop_reason}"


def _suggested(given: Mapping[str, float], which: str) -> str:
    names = f"{', '.join(list(given)[:3])}{' …' * (len(given) > 3)}"
    return (
        f"as {names} suggest{'s' * (len(given) == 1)}" if len(set(given.values())) == 1 else f"{which} {names} suggest"
    )


def _lines(path: Path, units: Mapping[str, Fmu], found: Proposals) -> Iterator[str]:
    yield "connections = ["
    for proposal in found.connections:
        yield f"  {_quoted(f'{proposal.source} -> {proposal.target}')},  # {proposal.reason}"
        if proposal.signed:
            ends = f"from = {_quoted(proposal.source)}, to = {_quoted(proposal.target)}"
            yield f"  # {SIGN}:"
            yield f"  # {{ {ends}, gain = -1.0 }},"
    for undecided in found.undecided:
        yield f"  # {undecided.target} is left unconnected: {undecided.reason}."
        for candidate in undecided.candidates:
            line = _quoted(f"{candidate.source} -> {candidate.target}")
            yield f"  # {line},  # {candidate.reason or 'the types fit'}"
    yield "]"
    for name, unit in units.items():
        yield ""
        yield from _unit(path, name, unit)
    yield from _inputs(units, found)
    yield ""
    yield "# [master]"
    yield "# name = \"gauss-seidel\"  # default: jacobi; 'cosimo tune' finds a suitable one"


def _unit(path: Path, name: str, unit: Fmu) -> Iterator[str]:
    file = os.path.relpath(unit.path.resolve(), path.resolve().parent)
    yield f"[units.{_key(name)}]"
    yield f"fmu = {_quoted(Path(file).as_posix())}"
    if unit.solver is not None:
        yield f'# solver = "{unit.solver.name}"  # for model exchange: {", ".join(SOLVERS)}'
    shown = [
        f"{_key(info.name)} = "
        f"{json.dumps(info.start.hex() if isinstance(info.start, bytes) else info.start, ensure_ascii=False)}"
        for info in unit.variables.values()
        if info.causality == "parameter"
        and info.start is not None
        and (not isinstance(info.start, float) or math.isfinite(info.start))
    ]
    if shown:
        yield f"# parameters = {{ {', '.join(shown[:PARAMETERS])}{', …' * (len(shown) > PARAMETERS)} }}  # as they are"


def _inputs(units: Mapping[str, Fmu], found: Proposals) -> Iterator[str]:
    """Inputs that nothing feeds: those without a start value must have one, the others may."""
    open_inputs = [undecided.target for undecided in found.undecided]
    if not open_inputs:
        return
    start = {f"{name}.{variable}": value for name, unit in units.items() for variable, value in unit.start.items()}
    needed = [target for target in open_inputs if target not in start]
    yield ""
    yield '# External inputs: a number, or { csv = "road.csv", column = "height" }.'
    yield "[inputs]" if needed else "# [inputs]"
    for target in open_inputs:
        note = "the FMU has no start value" if target in needed else "its start value"
        yield f"{'' if target in needed else '# '}{_quoted(target)} = {start.get(target, 0.0)!r}  # {note}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _quoted(name)


# ---- which output probably feeds which input: proposals from names, units of measure and types, each with it ---------
# Only what types and units of measure allow is considered (`check_connection`). What speaks for a pair adds up:
#
#     4      the same name                                     3.5    named after the unit: motor.speed, motor_speed
#     3      the same but for case, digits, "in" and "out"     2      words for the same quantity: force, f
#     1      a word in common                                  2      the same unit of measure (1.5: converted)
#
# An input is connected when its best pair reaches `ENOUGH` and is `CLEAR` ahead of the next; otherwise it is left to
# the reader, with what could be meant.


ENOUGH = 1.5  # what must speak for a pair before it is proposed
TELLING = 4  # letters from which the beginning of a name says what it is
CLEAR = 0.75  # by how much a pair must be ahead of the next one for the same input
MENTIONED = 4  # pairs that are mentioned where none is clear

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

    def fields(self) -> dict[str, Any]:
        """For JSON."""

        def plain(one: Proposal) -> dict[str, Any]:
            return {"source": one.source, "target": one.target, "reason": one.reason, "check_sign": one.signed}

        return {
            "connections": [plain(one) for one in self.connections],
            "undecided": [
                {"target": o.target, "reason": o.reason, "candidates": [plain(c) for c in o.candidates]}
                for o in self.undecided
            ],
        }


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
        return Undecided(target, "no output of another unit has a matching name or physical unit")
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
            return 3.0 + numbers, "same name except for case, digits, 'in' and 'out'"
        if common := _quantities(output) & _quantities(entry):
            return 2.0 + numbers, f"both stand for a {' or '.join(sorted(common))}"
        if shared := set(a) & set(b):
            return 1.0 + numbers, f"'{min(shared)}' in both names"
    short, long = sorted((output.lower(), entry.lower()), key=len)
    if len(short) >= TELLING and long.startswith(short):
        return (3.0, "same name except for case") if short == long else (2.0, f"both begin with '{short}'")
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
