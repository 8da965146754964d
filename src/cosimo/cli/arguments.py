"""The arguments that name a system and a master, shared by all verbs that work on one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosimo.cli.completing import RESULTS
from cosimo.cli.isolating import isolate_units
from cosimo.cli.voice import detail, warn
from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.formats.loaded import Loaded
    from cosimo.masters.words import MasterOptions
    from cosimo.scenario import Scenario as Scenario
else:
    Scenario = Any  # the name alone, for the signatures of verbs: what it stands for is loaded when a verb needs it

MANY = "Repeatable."
SYSTEM = "A .toml scenario, an .ssp, .ssd or .fmu file, or a built-in problem (see 'cosimo problems')."


def _shared(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help=SYSTEM)],
    step_size: Annotated[float | None, typer.Option(help="Macro step in seconds.")] = None,
    master: Annotated[
        str | None,
        typer.Option(help="jacobi (default), jacobi-early-read, gauss-seidel, groups, multirate, iterative."),
    ] = None,
    order: Annotated[str | None, typer.Option(help="Units in order, 'a,b,c'; for groups 'a,b;c'.")] = None,
    coupling: Annotated[
        list[str] | None,
        typer.Option(help=f"hold0, hold1, hold2, nepce:GAIN, dmd, dmd:WINDOW; UNIT.INPUT=… for one. {MANY}"),
    ] = None,
    sweeps: Annotated[int | None, typer.Option(help="iterative: a fixed number of sweeps.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="iterative: sweep until outputs change by less.")] = None,
    sweep_limit: Annotated[int | None, typer.Option(help="iterative: give up, and say so, after this many.")] = None,
    anderson: Annotated[int | None, typer.Option(help="iterative: accelerate with this many earlier sweeps.")] = None,
    multiple: Annotated[
        list[str] | None, typer.Option(help=f"multirate: UNIT=N, the unit steps by N base steps. {MANY}")
    ] = None,
    inputs: Annotated[str | None, typer.Option(help="multirate: held or interpolated.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help=f"NAME=VALUE of a problem parameter. {MANY}")] = None,
    target_error: Annotated[
        float | None, typer.Option(help="The error that is small enough, a share of the largest value: 0.01 is 1 %.")
    ] = None,
) -> None:
    """Only its signature counts: the options that `with_system` adds to a verb."""


def with_system(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the shared arguments and hand it what they describe as its first parameter."""
    shared, own = (inspect.signature(f, eval_str=True).parameters for f in (_shared, verb))
    rest = list(own.values())[1:]

    @functools.wraps(verb)
    def wrapped(**given: Any) -> None:
        verb(_describe({name: given.pop(name) for name in shared}), **given)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*shared.values(), *rest)]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    del wrapped.__wrapped__
    return wrapped


def with_targets(verb: Callable[..., None]) -> Callable[..., None]:
    """As `with_system`, for verbs whose `targets` are a system (or None, where there is none) and result files."""
    shared, own = (dict(inspect.signature(f, eval_str=True).parameters) for f in (_shared, verb))
    del shared["system"]
    targets, *rest = list(own.values())[1:]

    @functools.wraps(verb)
    def wrapped(targets: list[str], **given: Any) -> None:
        options = {name: given.pop(name) for name in shared}
        systems = [target for target in targets if Path(target).suffix not in RESULTS]
        if len(systems) > 1:
            raise ConfigurationError(f"'{systems[0]}' and '{systems[1]}' are two systems; give one, and results of it.")
        if not systems and any(options.values()):
            name = next(name for name, value in options.items() if value).strip("_").replace("_", "-")
            raise ConfigurationError(f"--{name} describes how a system is run; give the system as well.")
        described = _describe({"system": systems[0], **options}) if systems else None
        verb(described, [target for target in targets if target not in systems], **given)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (targets, *shared.values(), *rest)]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    del wrapped.__wrapped__
    return wrapped


def _describe(given: dict[str, Any]) -> Scenario:
    from cosimo import scenario as scenarios
    from cosimo.formats.loading import load

    settings = {n: _number(n, v, float) for n, v in _pairs("--set", given["set_"]).items()}
    loaded = load(given["system"], settings=settings)
    isolate_units(loaded.system)
    _tell(given["system"], loaded)
    step = loaded.step if given["step_size"] is None else given["step_size"]
    if step is None:
        raise ConfigurationError(f"'{given['system']}' does not say the macro step; give --step-size.")
    options = _options(given, loaded.master)
    how = {"step": step, "master": asdict(options)}
    provenance = {"scenario": _provenance(given["system"], loaded.source, settings) | how}
    scenario = scenarios.Scenario.of(loaded, provenance).changed(step=step, options=options)
    scenario = _with_target(scenario, given["target_error"])
    master = scenario.master
    detail(f"master {master.name}, macro step {step:g} s, schedule {_cut(str(master))}")
    return scenario


def _with_target(scenario: Scenario, error: float | None) -> Scenario:
    if error is None:
        return scenario
    if not error > 0:
        raise ConfigurationError(f"--target-error wants a positive share, not {error}.")
    return scenario.changed(target=error)


def load_target(target: str, set_: list[str] | None) -> Loaded:
    """What a file or a name stands for; warnings go to standard error."""
    from cosimo.formats.loading import load

    loaded = load(target, settings={n: _number(n, v, float) for n, v in _pairs("--set", set_).items()})
    isolate_units(loaded.system)
    _tell(target, loaded)
    return loaded


def _tell(target: str, loaded: Loaded) -> None:
    """What was odd in a file and, for who wants to know, what was found in it."""
    for finding in loaded.warnings:
        warn(finding)
    system = loaded.system
    detail(f"loaded {target}: {system.name}, {len(system.units)} units, {len(system.connections)} connections")
    for name, unit in system.units.items():
        place = f" {unit.path}" if unit.path else ""
        detail(f"  {name}: {type(unit).__name__}{place}, {len(unit.inputs)} inputs, {len(unit.outputs)} outputs")


def _cut(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def bare_scenario(
    target: str, step_size: float | None, stop_time: float | None, set_: list[str] | None, target_error: float | None
) -> Scenario:
    """A system without a master: with the macro step, and from when to when it is run."""
    from cosimo import scenario as scenarios

    loaded = load_target(target, set_)
    scenario = scenarios.Scenario.of(loaded)
    step = loaded.step if step_size is None else step_size
    stop = loaded.stop if stop_time is None else stop_time
    if step is None:
        raise ConfigurationError(f"'{target}' does not say the macro step; give --step-size.")
    if stop is None:
        raise ConfigurationError(f"'{target}' does not say when to stop; give --stop-time.")
    return _with_target(scenario.changed(step=step, stop=stop), target_error)


def stop_of(scenario: Scenario, stop_time: float | None) -> float:
    """When a run ends; refused where nobody says."""
    stop = scenario.stop if stop_time is None else stop_time
    if stop is None:
        raise ConfigurationError(f"'{scenario.system.name}' does not say when to stop; give --stop-time.")
    return stop


def _provenance(target: str, source: Path | None, settings: dict[str, float]) -> dict[str, Any]:
    """Where a system came from, so that a result can be traced: name, settings, and a file's fingerprint."""
    from cosimo.core.storage import file_digest

    found: dict[str, Any] = {"system": target, "settings": settings}
    if source is not None:
        found["path"] = str(source.absolute())
        found["sha256"] = file_digest(source)
        if source.suffix == ".toml":
            found["text"] = source.read_text(encoding="utf-8")
    return found


def _options(given: dict[str, Any], written: MasterOptions | None) -> MasterOptions:
    """The master in words: of the file, as far as the command line does not say otherwise."""
    from cosimo.masters.words import MasterOptions

    plain = ("order", "sweeps", "tolerance", "sweep_limit", "anderson", "inputs")
    said = {name: given[name] for name in plain if given[name] is not None}
    if given["coupling"]:
        said["couplings"] = tuple(given["coupling"])
    if given["multiple"]:
        said["multiples"] = {n: _number(n, v, int) for n, v in _pairs("--multiple", given["multiple"]).items()}
    if given["master"] is not None and (written is None or given["master"] != written.name):
        return MasterOptions(name=given["master"], **said)
    return replace(written or MasterOptions(), **said)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"{option} wants NAME=VALUE, not '{text}'.")
        pairs[name.strip()] = value.strip()
    return pairs


def _number(name: str, text: str, kind: type[Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ConfigurationError(f"{name} wants {wanted}, not '{text}'.") from None
