"""The FMU container of fmu-manipulation-toolbox, stepped through FMPy.

Variants: "stepped", one call per macro step and FMPy's `getReal` into a list; "raw calls", the same with FMPy's C
functions called directly on arrays made beforehand, the least that Python can do; "datalog", thousands of macro steps
in one call, the container writing its own log (CSV, 17 digits).
"""

from __future__ import annotations

import csv
import ctypes
import logging
import os
from itertools import islice
from pathlib import Path

import numpy as np
from fmpy import read_model_description
from fmu_manipulation_toolbox.container import FMUContainer

from benchmarks.peers_fmpy import load
from benchmarks.peers_job import Job, UnitFile


def build(job: Job, datalog: bool) -> UnitFile:
    """One FMU that holds all of them; outputs are called unit_variable.

    The log holds connected outputs anyway, as unit.variable, and would hold what is exposed a second time.
    """
    logging.disable(logging.INFO)
    container = FMUContainer("container", Path(job.units[0].path).parent)
    files = [f"{unit.name}.fmu" for unit in job.units]  # several units may be instances of one file
    for unit, file in zip(job.units, files, strict=True):
        container.get_fmu(Path(unit.path).name, name=file)
    for source, output, target, name in job.connections:
        container.add_link(files[source], output, files[target], name)
    for unit, file in zip(job.units, files, strict=True):
        for name in () if datalog else unit.outputs:
            container.add_output(file, name, f"{unit.name}_{name}")
    target = Path(job.folder) / "container.fmu"
    container.make_fmu(target, step_size=job.step, datalog=datalog)
    variables = read_model_description(str(target), validate=False).modelVariables
    references = {variable.name: variable.valueReference for variable in variables if variable.causality == "output"}
    return UnitFile("container", str(target), {}, references)


class Container:
    """What all variants share."""

    def __init__(self, job: Job, recording: bool, *, datalog: bool = False) -> None:
        os.chdir(job.folder)  # where the log is written
        self.h, self.k, self.recording, self.names = job.step, 0, recording, job.outputs
        self.unit = build(job, datalog)
        self.live = load(self.unit, Path(job.folder))
        self.live.exitInitializationMode()
        outputs = [name.replace(".", "_") for name in self.names]
        self.references = [self.unit.outputs[name] for name in outputs if name in self.unit.outputs]


class Stepped(Container):
    """One call per macro step."""

    def __init__(self, job: Job, recording: bool) -> None:
        super().__init__(job, recording)
        self.recorded: list[list[float]] = []

    def advance(self, steps: int) -> None:
        for k in range(self.k, self.k + steps):
            self.live.doStep(k * self.h, self.h)
            if self.recording:
                self.recorded.append([(k + 1) * self.h, *self.live.getReal(self.references)])
        self.k += steps

    def rows(self, count: int) -> list[list[float]]:
        return [row[1:] for row in self.recorded[:count]]


class RawCalls(Container):
    """The C functions as FMPy holds them, outputs written straight into the rows."""

    def __init__(self, job: Job, recording: bool) -> None:
        super().__init__(job, recording)
        self.blocks: list[np.ndarray] = []

    def advance(self, steps: int) -> None:
        step, get, component = self.live.fmi2DoStep, self.live.fmi2GetReal, self.live.component
        width = len(self.references)
        references = (ctypes.c_uint * width)(*self.references)
        block = np.zeros((steps + 1 if self.recording else 1, width))
        first, row = ctypes.c_double.from_buffer(block), 8 * width
        for i in range(steps):
            step(component, (self.k + i) * self.h, self.h, 1)
            if self.recording:
                get(component, references, width, ctypes.byref(first, row * i))
        self.k += steps
        self.blocks.append(block)

    def rows(self, count: int) -> list[list[float]]:
        found: list[list[float]] = self.blocks[0][:count].tolist()
        return found


class Datalog(Container):
    """Many macro steps per call, and the container's own log."""

    def __init__(self, job: Job, recording: bool) -> None:
        super().__init__(job, recording, datalog=recording)

    def advance(self, steps: int) -> None:
        self.live.doStep(self.k * self.h, steps * self.h)
        self.k += steps

    def rows(self, count: int) -> list[list[float]]:
        self.live.terminate()
        self.live.freeInstance()
        (file,) = Path.cwd().glob("*datalog*.csv")
        with file.open(newline="") as lines:
            reader = csv.reader(lines)
            head = [column.strip() for column in next(reader)]
            places = [head.index(name) for name in self.names]
            # The first row is the state before the first step.
            return [[float(line[i]) for i in places] for line in islice(reader, 1, count + 1)]


def start(job: Job, recording: bool, variant: str) -> Container:
    return {"stepped": Stepped, "raw calls": RawCalls, "datalog": Datalog}[variant](job, recording)
