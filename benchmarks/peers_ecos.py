"""Ecos through ecospy: all steps in one call, its CSV writer (it has no recorder in memory)."""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path

from ecospy import EcosLib, EcosSimulation, EcosSimulationStructure

from benchmarks.peers_job import Job


class Simulation:
    def __init__(self, job: Job, recording: bool) -> None:
        EcosLib.set_log_level("warn")
        structure = EcosSimulationStructure()
        for unit in job.units:
            structure.add_model(unit.name, unit.path)
        for source, output, target, name in job.connections:
            structure.make_real_connection(f"{job.units[source].name}::{output}", f"{job.units[target].name}::{name}")
        self.simulation = EcosSimulation(structure=structure, step_size=job.step)
        self.identifiers = [f"{unit.name}::{name}" for unit in job.units for name in unit.outputs]
        self.file = Path(job.folder) / "ecos.csv"
        if recording:
            self.simulation.add_csv_writer(str(self.file), identifiers=self.identifiers)
        assert self.simulation.init(), EcosLib.get_last_error()

    def advance(self, steps: int) -> None:
        self.simulation.step(steps)

    def rows(self, count: int) -> list[list[float]]:
        self.simulation.terminate()
        self.simulation.free()
        with self.file.open(newline="") as file:
            lines = csv.reader(file)
            head = [column.strip() for column in next(lines)]
            places = [
                next(i for i, column in enumerate(head) if column.startswith(f"{name}[")) for name in self.identifiers
            ]
            # The first row is the state before the first step.
            return [[float(line[i]) for i in places] for line in islice(lines, 1, count + 1)]


def start(job: Job, recording: bool, variant: str) -> Simulation:
    return Simulation(job, recording)
