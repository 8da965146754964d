"""The arguments that name a system and a master, shared by all verbs that work on one."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosimo.cli.completing import RESULTS
from cosimo.cli.isolating import isolate_units
from cosimo.cli.voice import detail, warn
from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.core.master import Master
    from cosimo.core.system import System
    from cosimo.formats.loaded import Loaded
    from cosimo.formats.masters import MasterOptions

MANY = "Repeatable."
SYSTEM = "A .toml scenario, an .ssp, .ssd or .fmu file, or a built-in problem (see 'cosimo problems')."


@dataclass(frozen=True)
class Described:
    """What the arguments of a verb name: the system, its master, and when it is run."""

    system: System
    master: Master
    start: float
    stop: float | None
    outputs: tuple[str, ...] | None
    scenario: dict[str, Any]
    options: MasterOptions
    """The master in words, and the `step` that goes with them, from which it can be built again."""
    step: float
    power_pairs: tuple[tuple[str, str], ...] = ()


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


def _describe(given: dict[str, Any]) -> Described:
    from cosimo.formats.loading import load
    from cosimo.formats.masters import build_master

    settings = {n: _number(n, v, float) for n, v in _pairs("--set", given["set_"]).items()}
    loaded = load(given["system"], settings=settings)
    isolate_units(loaded.system)
    _tell(given["system"], loaded)
    step = loaded.step if given["step_size"] is None else given["step_size"]
    if step is None:
        raise ConfigurationError(f"'{given['system']}' does not say the macro step; give --step-size.")
    options = _options(given, loaded.master)
    master = build_master(loaded.system, step, options)
    detail(f"master {master.name}, macro step {step:g} s, schedule {_cut(str(master))}")
    how = {"step": step, "master": asdict(options)}
    scenario = {"scenario": _provenance(given["system"], loaded.source, settings) | how}
    start = loaded.start or 0.0
    return Described(
        loaded.system, master, start, loaded.stop, loaded.outputs, scenario, options, step, loaded.power_pairs
    )


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
        place = f" {unit.path}" if hasattr(unit, "path") else ""
        detail(f"  {name}: {type(unit).__name__}{place}, {len(unit.inputs)} inputs, {len(unit.outputs)} outputs")


def _cut(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def bare_system(
    target: str, step_size: float | None, stop_time: float | None, set_: list[str] | None
) -> tuple[System, float, float, float]:
    """A system without a master: itself, the macro step, and from when to when it is run."""
    loaded = load_target(target, set_)
    step = loaded.step if step_size is None else step_size
    stop = loaded.stop if stop_time is None else stop_time
    if step is None:
        raise ConfigurationError(f"'{target}' does not say the macro step; give --step-size.")
    if stop is None:
        raise ConfigurationError(f"'{target}' does not say when to stop; give --stop-time.")
    return loaded.system, step, loaded.start or 0.0, stop


def _provenance(target: str, source: Path | None, settings: dict[str, float]) -> dict[str, Any]:
    """Where a system came from, so that a result can be traced: name, settings, and a file's fingerprint."""
    found: dict[str, Any] = {"system": target, "settings": settings}
    if source is not None:
        found["path"] = str(source.absolute())
        found["sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()
        if source.suffix == ".toml":
            found["text"] = source.read_text(encoding="utf-8")
    return found


def _options(given: dict[str, Any], written: MasterOptions | None) -> MasterOptions:
    """The master in words: of the file, as far as the command line does not say otherwise."""
    from cosimo.formats.masters import MasterOptions

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
