"""From a path or a name to a system: the one way in for files and built-in problems."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cosimo.core.errors import ConfigurationError, UnknownNameError, no_such_file
from cosimo.core.system import Source, System
from cosimo.formats.findings import FileFindings, Finding
from cosimo.masters import MasterOptions
from cosimo.units.archives import ArchiveLimits

__all__ = ["SUFFIXES", "Loaded", "load"]

SUFFIXES = (".toml", ".ssp", ".ssd", ".fmu")


@dataclass(frozen=True)
class Loaded:
    """A system with its default experiment; what the file does not say is None.

    `step`, `start` and `stop` are in seconds. `outputs` are patterns such as `"truck.*"` on the names to record.
    `warnings` tell what was odd in the file and how it was taken. `power_pairs` are pairs (input, output) of one unit
    whose product is the power that enters it; `target` the error that is small enough.
    """

    system: System
    master: MasterOptions | None = None
    step: float | None = None
    start: float | None = None
    stop: float | None = None
    outputs: tuple[str, ...] | None = None
    source: Path | None = None
    warnings: tuple[Finding, ...] = ()
    power_pairs: tuple[tuple[str, str], ...] = ()
    target: float | None = None


def load(
    target: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    input_file: str | Path | None = None,
    limits: ArchiveLimits | None = None,
    validate: bool | None = None,
    findings: FileFindings | None = None,
) -> Loaded:
    """What a scenario `.toml`, an `.ssp`, an `.ssd`, an `.fmu` or the name of a built-in problem stands for.

    `settings` are values of parameters: of a built-in problem by name, also of one that a scenario names; of units as
    `"unit.parameter"`, also of inputs that nothing is connected to (`System.with_values`). `input_file` is a CSV file
    whose columns feed such inputs. `limits` bound what files may be; without them the usual ones count, or those of the
    environment. `validate=False` takes FMUs whose descriptions break the standard; None validates unless the
    environment says COSIMO_VALIDATE=off. All that is found on the way, also when it raises, is added to `findings`.

    >>> load("two-mass").system.names
    ('one', 'two')
    """
    of_units = {name: value for name, value in (settings or {}).items() if "." in name}
    own = {name: value for name, value in (settings or {}).items() if name not in of_units}
    path = Path(target)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        loaded = _problem(str(target), own)
    elif not os.path.isfile(path):
        raise no_such_file(path, SUFFIXES)
    elif suffix == ".toml":
        from cosimo.formats.scenario_building import load_scenario

        loaded = load_scenario(path, findings, settings=own, limits=limits, validate=validate)
    else:
        of_units |= own
        loaded = _fmu(path, limits, validate) if suffix == ".fmu" else _ssp(path, findings, limits, validate)
    inputs: Mapping[str, Source] = {}
    if input_file is not None:
        from cosimo.formats.csv_inputs import inputs_from_csv

        inputs = inputs_from_csv(loaded.system, input_file)
    return replace(loaded, system=loaded.system.with_values(of_units, inputs)) if of_units or inputs else loaded


def _problem(name: str, settings: Mapping[str, Any]) -> Loaded:
    from cosimo.problems import CATALOGUE

    if name in CATALOGUE:
        problem = CATALOGUE[name]
        return Loaded(problem.system(settings), step=problem.step, stop=problem.stop)
    known = ", ".join(SUFFIXES)
    if not os.path.exists(name) and Path(name).name != Path(name).stem:
        raise no_such_file(Path(name), SUFFIXES)
    if os.path.isdir(name):
        raise ConfigurationError(f"'{name}' is a folder; give a file in it ({known}).")
    if os.path.exists(name):
        raise ConfigurationError(f"'{name}' cannot be read as a system; files end in {known}.")
    beside = [file.name for file in Path().iterdir() if file.suffix in SUFFIXES]
    raise UnknownNameError("system", name, [*CATALOGUE, *beside, f"a file ({known})"])


def _ssp(path: Path, findings: FileFindings | None, limits: ArchiveLimits | None, validate: bool | None) -> Loaded:
    from cosimo.formats.ssp import load_ssp

    return load_ssp(path, findings, limits=limits, validate=validate)


def _fmu(path: Path, limits: ArchiveLimits | None, validate: bool | None) -> Loaded:
    from cosimo.units.fmi.fmu import Fmu, FmuOptions

    fmu = Fmu(path, options=FmuOptions(limits=limits, validate=validate))
    given = fmu.default_experiment
    return Loaded(
        System({path.stem: fmu}, name=fmu.model_name),
        step=given.get("stepSize"),
        start=given.get("startTime"),
        stop=given.get("stopTime"),
        source=path,
    )
