"""What `cosimo export` writes."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.formats.export import export_ssp, export_system, export_unit
from cosimo.formats.loading import load
from cosimo.formats.model_description import Experiment, Fmi


def export_files(target: str, output: Path, *, unit: str | None, fmi: int, ssp: bool) -> list[Path]:
    """The files written for a system: one FMU of `unit`, an SSP package, or the FMUs of all units in a folder."""
    if fmi not in (2, 3):
        raise ConfigurationError(f"FMUs are written for FMI 2 or 3, not {fmi}.")
    if ssp and unit is not None:
        raise ConfigurationError("an SSP package holds the whole system; leave out --unit or --ssp.")
    version = cast(Fmi, fmi)
    loaded = load(target)
    step, stop = loaded.step or 1e-3, loaded.stop or 1.0
    if ssp:
        return [export_ssp(loaded.system, output, fmi=version, step=step, stop=stop)]
    experiment = Experiment(step=step, stop=stop)
    if unit is None:
        return list(export_system(loaded.system, output, fmi=version, experiment=experiment).values())
    if unit not in loaded.system.units:
        raise UnknownNameError("unit", unit, loaded.system.units)
    return [export_unit(loaded.system.units[unit], output, name=unit, fmi=version, experiment=experiment)]
