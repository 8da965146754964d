"""FMPy: a loop in Python over its `FMU2Slave` objects, rows kept in a list."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fmpy import extract, read_model_description
from fmpy.fmi2 import FMU2Slave
from fmpy.model_description import ModelDescription

from benchmarks.peers_job import Job, UnitFile


@cache
def unpacked(path: str, folder: Path) -> tuple[ModelDescription, str]:
    """Description and folder of a file, which several units may be instances of."""
    return read_model_description(path, validate=False), extract(path, folder / Path(path).stem)


def load(unit: UnitFile, folder: Path, start_time: float = 0.0) -> FMU2Slave:
    """An instance in initialisation mode."""
    description, unzipped = unpacked(unit.path, folder)
    live = FMU2Slave(
        guid=description.guid,
        unzipDirectory=unzipped,
        modelIdentifier=description.coSimulation.modelIdentifier,
        instanceName=unit.name,
    )
    live.instantiate()
    live.setupExperiment(startTime=start_time)
    live.enterInitializationMode()
    return live


class Loop:
    """Set all, step all, get all."""

    def __init__(self, job: Job, recording: bool) -> None:
        self.h, self.k, self.recording = job.step, 0, recording
        self.live = [load(unit, Path(job.folder)) for unit in job.units]
        self.inputs = [list(unit.inputs.values()) for unit in job.units]
        self.outputs = [list(unit.outputs.values()) for unit in job.units]
        place = {(i, name): (i, j) for i, unit in enumerate(job.units) for j, name in enumerate(unit.outputs)}
        fed = {(target, name): place[source, output] for source, output, target, name in job.connections}
        self.sources = [[fed[i, name] for name in unit.inputs] for i, unit in enumerate(job.units)]
        self.y = [live.getReal(vr) for live, vr in zip(self.live, self.outputs, strict=True)]
        for _ in range(2):  # feedthrough is at most one unit deep here
            self._exchange()
            self._read()
        for live in self.live:
            live.exitInitializationMode()
        self.recorded: list[list[float]] = []

    def _exchange(self) -> None:
        y = self.y
        for live, vr, sources in zip(self.live, self.inputs, self.sources, strict=True):
            live.setReal(vr, [y[i][j] for i, j in sources])

    def _read(self) -> None:
        self.y = [live.getReal(vr) for live, vr in zip(self.live, self.outputs, strict=True)]

    def advance(self, steps: int) -> None:
        for k in range(self.k, self.k + steps):
            self._exchange()
            for live in self.live:
                live.doStep(k * self.h, self.h)
            self._read()
            if self.recording:
                self.recorded.append([(k + 1) * self.h, *(value for values in self.y for value in values)])
        self.k += steps

    def rows(self, count: int) -> list[list[float]]:
        return [row[1:] for row in self.recorded[:count]]


def start(job: Job, recording: bool, variant: str) -> Loop:
    return Loop(job, recording)
