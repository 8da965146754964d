"""The FMU container of fmu-manipulation-toolbox, stepped through FMPy.

Variants: "stepped", one call per macro step and FMPy's `getReal` into a list; "raw calls", the same with FMPy's C
functions called directly on arrays made beforehand, the least that Python can do; "datalog", thousands of macro steps
in one call, the container writing its own log (CSV, 17 digits).

python -m benchmarks.peers_container JOB FMU    the container and a coupling of cosimo as one FMU (FMU), in turns
"""

from __future__ import annotations

import csv
import ctypes
import json
import logging
import os
import sys
import time
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


def beside(path: str, coupled: str) -> None:
    """Print processor time per macro step of both, taken in turns, and all outputs at the end.

    Both take `block` macro steps per call, so that Python costs neither anything.
    """
    job, block, turns = Job.read(path), 1000, 15
    os.chdir(job.folder)
    container = build(job, datalog=False)
    variables = read_model_description(coupled, validate=False).modelVariables
    references = {v.name.replace(".", "_"): v.valueReference for v in variables if v.causality == "output"}
    units = {"container": container, "coupling": UnitFile("coupling", coupled, {}, references)}
    live = {name: load(unit, Path(job.folder)) for name, unit in units.items()}
    found: dict[str, list[float]] = {name: [] for name in live}
    for one in live.values():
        one.exitInitializationMode()
    for turn in range(turns + 1):
        for name, one in live.items():
            begin = time.process_time()
            for k in range(20 * turn, 20 * turn + 20):
                one.doStep(k * block * job.step, block * job.step)
            if turn:  # the first one warms up
                found[name].append((time.process_time() - begin) / (20 * block))
    names = [name.replace(".", "_") for name in job.outputs]
    rows = {name: one.getReal([units[name].outputs[output] for output in names]) for name, one in live.items()}
    print("\n" + json.dumps({"seconds": found, "rows": rows}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    beside(*sys.argv[1:])
