"""libcosim through libcosimpy: its fixed-step algorithm, all steps in one call, its time-series observer in memory."""

from __future__ import annotations

from libcosimpy.CosimEnums import CosimVariableType
from libcosimpy.CosimExecution import CosimExecution
from libcosimpy.CosimLogging import CosimLogLevel, log_output_level
from libcosimpy.CosimObserver import CosimObserver
from libcosimpy.CosimSlave import CosimLocalSlave

from benchmarks.peers_job import Job


class Execution:
    def __init__(self, job: Job, recording: bool) -> None:
        log_output_level(CosimLogLevel.ERROR)
        self.job = job
        self.execution = CosimExecution.from_step_size(step_size=round(job.step * 1e9))
        self.loaded = [CosimLocalSlave(fmu_path=unit.path, instance_name=unit.name) for unit in job.units]
        self.indices = [self.execution.add_local_slave(live) for live in self.loaded]
        for source, output, target, name in job.connections:
            status = self.execution.connect_real_variables(
                self.indices[source],
                job.units[source].outputs[output],
                self.indices[target],
                job.units[target].inputs[name],
            )
            assert status == 0, f"cannot connect {output} to {name}"
        if recording:
            self.observer = CosimObserver.create_time_series(buffer_size=1 << 30)
            assert self.execution.add_observer(self.observer)
            for index, unit in zip(self.indices, job.units, strict=True):
                for reference in unit.outputs.values():
                    assert self.observer.start_time_series(index, reference, CosimVariableType.REAL)

    def advance(self, steps: int) -> None:
        assert self.execution.step(steps)

    def rows(self, count: int) -> list[list[float]]:
        columns = [
            self.observer.time_series_real_samples(index, reference, from_step=1, sample_count=count)[2]
            for index, unit in zip(self.indices, self.job.units, strict=True)
            for reference in unit.outputs.values()
        ]
        return [list(row) for row in zip(*columns, strict=True)]


def start(job: Job, recording: bool, variant: str) -> Execution:
    return Execution(job, recording)
