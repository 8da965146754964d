"""SSP 1.0: a package (.ssp) or a plain description (.ssd) as a system of FMUs.

Nested systems are made flat, with names joined by dots; what is connected through connectors of systems becomes one
connection, with all transformations and unit conversions on the way multiplied into it. Nothing of the user's is ever
written.
"""

from __future__ import annotations

from pathlib import Path

from cosimo.core.system import System
from cosimo.formats.findings import Findings, Place
from cosimo.formats.loaded import Loaded
from cosimo.formats.ssp_files import discard
from cosimo.formats.ssp_flattening import Flattening
from cosimo.formats.ssp_network import components
from cosimo.formats.ssp_structure import open_structure
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi.fmu import FmuOptions


def load_ssp(
    path: str | Path,
    findings: Findings | None = None,
    *,
    limits: ArchiveLimits | None = None,
    validate: bool | None = None,
) -> Loaded:
    """The system in an .ssp or .ssd; with `findings` everything that was found on the way can be seen there.

    SSP says nothing about the step: the smallest that an FMU suggests is taken.
    """
    path, findings = Path(path), findings or Findings()
    limits = limits or ArchiveLimits.from_environment()
    structure, files = open_structure(path, findings, limits)
    try:
        flat = Flattening(structure, findings, FmuOptions(limits=limits, validate=validate))
        units, connections = flat.units(), flat.connections()
        findings.require_no_errors()
        with Place(str(path), structure.root.place.line if path.suffix.lower() == ".ssd" else None).blame("the system"):
            system = System(units, connections, name=structure.name)
    except BaseException:
        discard(files)
        raise
    finally:
        for _, component in components(structure.root):
            component.files.close()
        files.close()
    steps = [fmu.default_experiment["stepSize"] for fmu in units.values() if "stepSize" in fmu.default_experiment]
    return Loaded(
        system,
        step=min(steps, default=None),
        start=structure.start,
        stop=structure.stop,
        source=path,
        warnings=tuple(findings.warnings),
    )
