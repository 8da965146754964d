"""Units that change what others compute with, or that log without end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faulty

from cosimo import masters
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.engines import EngineOptions
from cosimo.execution import run
from cosimo.units import Fmu


def made(
    folder: Path, fault: str, *, amount: float = 0.0, isolate: bool = False, **engine: Literal["reference"]
) -> Result:
    path = faulty.build(folder / "faulty.fmu")
    sick = Fmu(path, parameters={"fault": fault, "amount": amount}, isolate=isolate)
    system = System({"sick": sick, "sound": Fmu(path)})
    return run(system, masters.jacobi(system, 0.01), stop=0.5, engine=EngineOptions(**engine))


@pytest.mark.parametrize("engine", [{}, {"kind": "reference"}], ids=["kernel", "reference"])
def test_a_rounding_mode_is_put_back(engine: dict[str, Literal["reference"]], tmp_path: Path) -> None:
    clean, upward = (made(tmp_path, fault, **engine) for fault in ("", "rounding"))
    assert np.array_equal(upward["sound.y"], clean["sound.y"])
    assert 1.0 + 2.0**-53 == 1.0


@pytest.mark.parametrize("isolate", [False, True])
def test_suppressed_lines_are_told_once(isolate: bool, tmp_path: Path) -> None:
    quiet, loud = (made(tmp_path, "log_flood", amount=lines, isolate=isolate) for lines in (0.0, 20_000.0))
    assert not quiet.warnings
    (told,) = loud.warnings
    assert told.message.startswith("unit 'sick' logged more than is kept (9")  # of 1,000,000
    assert told.message.endswith(" lines suppressed)")
