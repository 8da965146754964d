"""HELICS: the configuration files of a federation as a system, with the master that its settings mean.

A federation file lists the federates as that of `helics run` does, and names the configuration of each; what the
members compute stands under "cosimo", in the words of a scenario file, or in a scenario file that is named there:

    {"federates": [{"name": "tyre", "exec": "python tyre.py", "config": "tyre.json", "program": "FGH"}, …],
     "cosimo": {"units": {"tyre": {"fmu": "tyre.fmu"}, …}, "stop-time": 10}}

A configuration says when a federate is granted times (period, offset, wait_for_current_time_update) and
what it exchanges (publications, subscriptions, inputs). What its program does with a grant no file of HELICS says: that
is "program", as `cosimo.masters.Grants` has it, and "iterations" or "iteration_tolerance". HELICS-FMI publishes, takes
inputs and steps (HFG). Keys are taken as HELICS takes them: time_delta, timeDelta and timedelta are one.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, FileFindings, Place, UnknownNameError, no_such_file
from cosimo.core.system import Connection, System
from cosimo.core.unit import Unit
from cosimo.formats.scenario import Scenario
from cosimo.formats.scenario_building import build_unit, experiment, external_inputs
from cosimo.formats.scenario_reading import Lines, Source, read_annotation, read_scenario
from cosimo.formats.scenario_tables import ScenarioTable
from cosimo.masters import Grants, MasterOptions
from cosimo.masters.words import build_master
from cosimo.units.archives import ArchiveLimits, read_text

SECONDS = {
    "": "1",
    "s": "1",
    "sec": "1",
    "ms": "1e-3",
    "us": "1e-6",
    "ns": "1e-9",
    "min": "60",
    "hr": "3600",
    "day": "86400",
}
LONGEST = 1e9
"""Seconds: HELICS' times end at some nine times that."""
TICK = 1_000_000_000
"""HELICS counts time in nanoseconds."""
NUMBERS = ("", "double", "float", "int", "integer", "int64", "bool", "boolean", "any", "def", "default")
REFUSED = ("input_delay", "output_delay", "delayed_update", "real_time", "event_triggered")
"""Settings that change when values arrive, in a way that no schedule here has."""
OUTSIDE = ("endpoints", "filters", "translators", "globals")


def load_federation(
    path: str | Path,
    findings: FileFindings | None = None,
    *,
    limits: ArchiveLimits | None = None,
    validate: bool | None = None,
) -> Scenario:
    """The scenario in a federation file; with `findings` all that was found on the way can be seen there."""
    path, findings = Path(path), findings or FileFindings()
    limits = limits or ArchiveLimits.from_environment()
    place = Place(str(path))
    document = read_settings(path, limits)
    federates = [_federate(entry, path, limits) for entry in _listed(document, place)]
    for federate in federates:
        for warning in federate.warnings():
            findings.warn(warning, federate.place)
    names = [federate.name for federate in federates]
    if twice := {name for name in names if names.count(name) > 1}:
        raise place.error(f"two federates are called '{min(twice)}'; rename one.")
    table, source = _scenario(document.get("cosimo"), path, findings, limits)
    units: dict[str, Unit] = {}
    for federate in federates:
        with findings.collect(federate.place), federate.place.blame(f"federate '{federate.name}'"):
            if federate.name not in table.units:
                raise UnknownNameError("unit under 'cosimo'", federate.name, table.units)
            unit = table.units[federate.name]
            units[federate.name] = build_unit(federate.name, unit, source, table.start_time or 0.0, limits, validate)
    for name in sorted(set(table.units) - set(names)):
        findings.fail(UnknownNameError("federate", name, names), place)
    findings.require_no_errors()
    connections = list(_connections(federates, units, findings))
    findings.require_no_errors()
    known = System(units, inputs={f"{name}.{v}": 0.0 for name, unit in units.items() for v in unit.inputs})
    inputs = external_inputs(table, known, source.near, partial(source.collecting, findings))
    with place.blame("the federation"):
        system = System(units, connections, inputs=inputs, name=table.name or str(document.get("name") or path.stem))
        step, options = federation_options(federates)
        build_master(system, float(step), options)
    run = experiment(table, system, float(step), partial(source.collecting, findings))
    findings.require_no_errors()
    told = {"start": table.start_time, "stop": table.stop_time, "warnings": tuple(findings.warnings)}
    return Scenario.of(system, step=float(step), source=path, **told, **(run | {"options": options}))


def _listed(document: Mapping[str, Any], place: Place) -> list[Mapping[str, Any]]:
    entries = document.get("federates")
    if entries is None and {"publications", "subscriptions", "inputs"} & set(document):
        raise place.error("this is the configuration of one federate; give a file that lists all under 'federates'.")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise place.error("'federates' must be a list of objects, one for each federate.")
    return entries


def _scenario(given: Any, path: Path, findings: FileFindings, limits: ArchiveLimits) -> tuple[ScenarioTable, Source]:
    """What the federation file says of its members, and where files are found that it names."""
    place = Place(str(path))
    if isinstance(given, str):
        table, source = read_scenario(path.parent / given, findings, limits)
    elif isinstance(given, dict):
        table, source = read_annotation(json.dumps(given), place), Source(path, Lines(""))
    else:
        raise place.error(
            'what the members compute is missing: give "cosimo": {"units": {…}} with a unit for each federate, as '
            "in a scenario file, or the name of a scenario file."
        )
    if table.connections or table.master or table.step_size or table.problem:
        raise place.error(
            "the configurations of the federates say what is connected, and when; leave out connections, master, "
            "step-size and problem under 'cosimo'."
        )
    return table, source


# ---- one federate ----------------------------------------------------------------------------------------------------


def normal(key: str) -> str:
    """A key as HELICS compares them.

    >>> normal("wait_for_current_time_update") == normal("waitForCurrentTimeUpdate")
    True
    """
    return key.replace("_", "").lower()


@dataclass(frozen=True)
class Federate:
    """One federate as its configuration describes it; `settings` by `normal` keys."""

    name: str
    place: Place
    settings: Mapping[str, Any]

    def get(self, key: str) -> Any:
        """A setting; None where it is not given."""
        return self.settings.get(normal(key))

    def flag(self, key: str) -> bool:
        """Whether a flag is set, by its own key or among the "flags"."""
        flags = self.get("flags") or ()
        flags = flags.split(",") if isinstance(flags, str) else flags if isinstance(flags, list) else [flags]
        return bool(self.get(key)) or normal(key) in {normal(str(flag)).strip() for flag in flags}

    def time(self, key: str) -> Fraction:
        """A time in seconds, exact to the nanosecond; 0 where it is not given."""
        value = self.get(key)
        found = re.fullmatch(r"\s*([-+.\deE]*\d\.?)\s*([a-z]*)\s*", str(0 if value is None else value))
        try:
            if found is None or isinstance(value, bool) or not abs(float(found[1])) < LONGEST:
                raise ValueError
            seconds = Fraction(found[1]) * Fraction(SECONDS[found[2]])
        except (KeyError, ValueError):
            raise self.place.error(
                f"federate '{self.name}': {key} is {value!r}; give seconds, or a text such as '10 ms'."
            ) from None
        return Fraction(round(seconds * TICK), TICK)

    @property
    def period(self) -> Fraction:
        """Seconds between grants."""
        period = self.time("period") or self.time("time_delta")
        if period <= 0:
            raise self.place.error(
                f"federate '{self.name}' has no period; give the seconds between the times that it asks for."
            )
        return period

    @property
    def iteration(self) -> tuple[int | None, float | None]:
        """How often it computes at one granted time, or the change of its outputs below which it no longer publishes.

        HELICS goes on iterating as long as somebody publishes; that, too, is in the program of the federate.
        """
        count, tolerance = self.get("iterations"), self.get("iteration_tolerance")
        if count is not None and (type(count) is not int or not 1 <= count <= 10_000):
            raise self.place.error(f"federate '{self.name}': iterations is {count!r}; give a number from 1 to 10,000.")
        if tolerance is not None and (type(tolerance) not in (int, float) or not 0 < tolerance < math.inf):
            raise self.place.error(f"federate '{self.name}': iteration_tolerance is {tolerance!r}; give a number > 0.")
        return count, None if tolerance is None else float(tolerance)

    def grants(self, macro_step: Fraction) -> Grants:
        """When it is granted times within the macro step, and what it does then."""
        program: Any = self.get("program") or "HFG"
        if program not in ("FGH", "FHG", "HFG"):
            raise self.place.error(
                f"federate '{self.name}': program is {program!r}; give FGH, FHG or HFG: F takes inputs, G steps, "
                "H publishes."
            )
        waits = self.flag("wait_for_current_time_update")
        with self.place.blame(f"federate '{self.name}'"):
            return Grants(
                self.name,
                self.period / macro_step,
                offset=self.time("offset") / macro_step,
                program=program,
                waits=waits,
            )

    def warnings(self) -> Iterator[str]:
        """What of its settings the verdict does not cover."""
        for key in REFUSED:
            if self.flag(key) or (key.endswith("delay") and self.time(key)):
                raise self.place.error(
                    f"federate '{self.name}': {key} changes when values arrive, which is not judged; leave it out."
                )
        for key in OUTSIDE:
            if self.get(key):
                yield f"federate '{self.name}': the verdict says nothing of its {key}."
        if self.get("max_iterations") is not None and self.iteration == (None, None):
            yield (
                f"federate '{self.name}': max_iterations alone does not say that it iterates; give how often its "
                "program computes at one time as 'iterations'."
            )
        if self.get("program") is None:
            yield (
                f"federate '{self.name}' has no 'program': it is taken to publish, then to take its inputs, then to "
                "step (HFG), as HELICS-FMI does."
            )
        for entry in self.entries("publications"):
            if entry.get("tolerance") not in (None, 0, -1):
                yield (
                    f"federate '{self.name}' does not send changes of '{entry['key']}' below its tolerance; the "
                    "verdict takes every value as sent."
                )

    def entries(self, kind: str) -> Iterator[dict[str, Any]]:
        """Publications, subscriptions or inputs, by `normal` keys, each with "key"."""
        listed = self.get(kind) or []
        if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
            raise self.place.error(f"federate '{self.name}': {kind} must be a list of objects.")
        for entry in listed:
            found = {normal(key): value for key, value in entry.items()}
            found["key"] = found.get("key") or found.get("name") or (found.get("target") if kind[0] == "s" else None)
            if not isinstance(found["key"], str):
                raise self.place.error(f"federate '{self.name}': one of its {kind} has no key; give it one.")
            if str(found.get("type") or "").lower() not in NUMBERS:
                raise self.place.error(
                    f"federate '{self.name}': '{found['key']}' has the type {found['type']!r}; only numbers are "
                    "judged, one for each publication."
                )
            yield found

    def full_name(self, entry: Mapping[str, Any]) -> str:
        """What an interface is called in the federation."""
        return str(entry["key"]) if entry.get("global") else f"{self.name}/{entry['key']}"


def _federate(entry: Mapping[str, Any], path: Path, limits: ArchiveLimits) -> Federate:
    settings = {normal(key): value for key, value in entry.items()}
    place, name = Place(str(path)), settings.get("name")
    if isinstance(config := settings.get("config"), str):
        file = path.parent / str(settings.get("directory") or ".") / config
        place = Place(str(file))
        own = {normal(key): value for key, value in read_settings(file, limits).items()}
        settings = {**own, **settings}
        name = own.get("name") or name
    if not isinstance(name, str) or not name:
        raise place.error("a federate has no name; give it one.")
    return Federate(name, place, settings)


def read_settings(path: Path, limits: ArchiveLimits) -> dict[str, Any]:
    """What a configuration file says, as HELICS reads it: JSON, which may have comments, or TOML."""
    if not path.is_file():
        raise no_such_file(path, (".json", ".toml"))
    place = Place(str(path))
    try:
        text = read_text(path, limits).decode("utf-8")
        if path.suffix.lower() == ".toml":
            found: Any = tomllib.loads(text)
        else:
            found = json.loads(re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', _blank, text, flags=re.DOTALL))
    except UnicodeDecodeError:
        raise place.error("the text is not UTF-8; save the file in this encoding.") from None
    except json.JSONDecodeError as error:
        raise Place(str(path), error.lineno).error(f"not valid JSON: {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        raise place.error(f"it cannot be read: {error}.") from None
    if not isinstance(found, dict):
        raise place.error("a configuration is an object with keys; correct the file.")
    return found


def _blank(found: re.Match[str]) -> str:
    """A text as it is, a comment as the empty lines it takes."""
    return found[1] or "\n" * found[0].count("\n")


# ---- what is connected, and when -------------------------------------------------------------------------------------


def _connections(federates: list[Federate], units: Mapping[str, Unit], findings: FileFindings) -> Iterator[Connection]:
    """One connection for every input that a publication feeds, whichever of the two names the other."""
    given: dict[str, tuple[str, Mapping[str, Any]]] = {}
    taken: dict[str, tuple[str, Mapping[str, Any]]] = {}
    wanted: list[tuple[str, tuple[str, Mapping[str, Any]], Place]] = []
    pushed: list[tuple[str, str, Place]] = []
    for federate in federates:
        unit = units[federate.name]
        with findings.collect(federate.place):
            for entry in federate.entries("publications"):
                full = federate.full_name(entry)
                variable = _variable(entry, unit.outputs, f"output of federate '{federate.name}'")
                given[full] = f"{federate.name}.{variable}", entry
                pushed += [(full, target, federate.place) for target in _targets(entry)]
            for kind in ("subscriptions", "inputs"):
                for entry in federate.entries(kind):
                    variable = _variable(entry, unit.inputs, f"input of federate '{federate.name}'")
                    end = f"{federate.name}.{variable}", entry
                    taken[federate.full_name(entry)] = end
                    sources = [entry["key"]] if kind == "subscriptions" else _targets(entry)
                    wanted += [(source, end, federate.place) for source in sources]
    for full, target, place in pushed:
        with findings.collect(place):
            if target not in taken:
                raise UnknownNameError("input", target, taken)
            wanted.append((full, taken[target], place))
    for source, (target, own), place in wanted:
        with findings.collect(place):
            if source not in given:
                raise UnknownNameError("publication", source, given)
            output, publication = given[source]
            yield Connection(output, target, *_converted(publication, own, target), convert=False)


def _targets(entry: Mapping[str, Any]) -> list[str]:
    found = entry.get("targets") or entry.get("target") or []
    return [str(name) for name in found] if isinstance(found, list) else [str(found)]


def _variable(entry: Mapping[str, Any], names: tuple[str, ...], what: str) -> str:
    """The variable of the unit: named by "variable", else by the key or its last part, else the only one."""
    if (told := entry.get("variable")) is not None:
        if told not in names:
            raise UnknownNameError(what, str(told), names)
        return str(told)
    for name in (entry["key"], re.split(r"[/.]", entry["key"])[-1]):
        if name in names:
            return str(name)
    if len(names) == 1:
        return names[0]
    raise ConfigurationError(f"'{entry['key']}' is no {what}: add \"variable\", one of {', '.join(names) or 'none'}.")


def _converted(publication: Mapping[str, Any], entry: Mapping[str, Any], target: str) -> tuple[float, float]:
    """Gain and offset from a publication to an input; HELICS converts units of measure, which are not known here."""
    gain, offset = entry.get("gain"), entry.get("offset") or 0.0
    units = [one.get("unit") or one.get("units") for one in (publication, entry)]
    if gain is None and all(units) and units[0] != units[1]:
        raise ConfigurationError(
            f"{target} is in '{units[1]}', '{publication['key']}' in '{units[0]}': HELICS converts between them; add "
            'the factor as "gain" (and "offset") to the input.'
        )
    try:
        return float(1.0 if gain is None else gain), float(offset)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{target} has the gain {gain!r} and the offset {offset!r}; give numbers.") from None


def federation_options(federates: list[Federate]) -> tuple[Fraction, MasterOptions]:
    """The macro step in seconds, after which the grants repeat, and the master in words."""
    periods = [federate.period for federate in federates]
    scale = math.lcm(*(period.denominator for period in periods))
    step = Fraction(math.lcm(*(int(period * scale) for period in periods)), scale)
    members = [federate.grants(step) for federate in federates]
    waiting = [federate for federate in federates if federate.flag("wait_for_current_time_update")]
    if len(waiting) > 1:
        raise waiting[1].place.error(
            f"the federates '{waiting[0].name}' and '{waiting[1].name}' both wait for the current update; HELICS "
            "refuses that as a deadlock: let only one wait."
        )
    for federate in federates[1:]:
        if federate.iteration != federates[0].iteration:
            raise federate.place.error(
                f"the federates '{federates[0].name}' and '{federate.name}' do not iterate alike; give all the same "
                "iterations or iteration_tolerance."
            )
    sweeps, tolerance = federates[0].iteration
    order = ",".join(map(str, members))
    return step, MasterOptions("federation", order=order, sweeps=sweeps, tolerance=tolerance)
