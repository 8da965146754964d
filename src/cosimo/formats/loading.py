"""From a path or a name to a system: the one way in for files and built-in problems."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.system import System
from cosimo.formats.findings import Findings
from cosimo.formats.loaded import Loaded

__all__ = ["SUFFIXES", "Loaded", "load", "load_system", "load_with"]

SUFFIXES = (".toml", ".ssp", ".ssd", ".fmu")


def load(target: str | Path, *, settings: Mapping[str, float] | None = None) -> Loaded:
    """What a scenario `.toml`, an `.ssp`, an `.ssd`, an `.fmu` or the name of a built-in problem stands for.

    `settings` are parameters of a built-in problem, also of one that a scenario names.

    >>> load("two-mass").system.names
    ('one', 'two')
    """
    return load_with(target, Findings(), settings=settings)


def load_system(target: str | Path) -> System:
    """Just the system of a file or a built-in problem (this is `cosimo.load`)."""
    return load(target).system


def load_with(target: str | Path, findings: Findings, *, settings: Mapping[str, float] | None = None) -> Loaded:
    """As `load`; all that is found on the way, also when it raises, is added to `findings`."""
    path = Path(target)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        return _problem(str(target), settings)
    _require_file(path)
    if suffix == ".toml":
        from cosimo.formats.scenario_building import load_scenario

        return load_scenario(path, findings, settings=settings)
    if settings:
        raise ConfigurationError(f"'{path}' is no built-in problem whose parameters could be set; edit the file.")
    if suffix == ".fmu":
        return _fmu(path)
    from cosimo.formats.ssp import load_ssp

    return load_ssp(path, findings)


def _problem(name: str, settings: Mapping[str, float] | None) -> Loaded:
    from cosimo.problems import CATALOGUE

    if name in CATALOGUE:
        problem = CATALOGUE[name]
        return Loaded(problem.system(settings or {}), step=problem.step, stop=problem.stop)
    known = ", ".join(SUFFIXES)
    if Path(name).is_dir():
        raise ConfigurationError(f"'{name}' is a folder; give a file in it ({known}).")
    if Path(name).exists():
        raise ConfigurationError(f"'{name}' cannot be read as a system; files end in {known}.")
    raise UnknownNameError("system", name, [*CATALOGUE, f"a file ({known})"])


def _fmu(path: Path) -> Loaded:
    from cosimo.units.fmu import Fmu

    fmu = Fmu(path)
    given = fmu.default_experiment
    return Loaded(
        System({path.stem: fmu}, name=fmu.model_name),
        step=given.get("stepSize"),
        start=given.get("startTime"),
        stop=given.get("stopTime"),
        source=path,
    )


def _require_file(path: Path) -> None:
    if path.is_file():
        return
    if path.is_dir():
        raise ConfigurationError(f"'{path}' is a folder, not a file.")
    near: list[str] = []
    if path.parent.is_dir():
        near = get_close_matches(path.name, [f.name for f in path.parent.iterdir() if f.suffix in SUFFIXES], n=1)
    hint = f"did you mean '{path.with_name(near[0])}'?" if near else "check the path."
    raise ConfigurationError(f"the file '{path}' does not exist; {hint}")
