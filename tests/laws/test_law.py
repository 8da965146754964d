"""The central law: for linear units, executing a schedule equals multiplying its matrices, to rounding.

And both ways to execute it, compiled and in plain Python, agree to the last bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thinning import examples

sys.path.insert(0, str(Path(__file__).parent))
from random_systems import cases

from cosimo.algebra import Batch, LinearSystem
from cosimo.algebra.batched_map import BatchedMap
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run

STEPS = 5


@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(cases())
def test_executed_equals_multiplied(case: tuple[System, Master]) -> None:
    system, master = case
    executed = run(system, master, stop=STEPS * master.step, record="all", engine=EngineOptions("reference"))
    compiled = run(system, master, stop=STEPS * master.step, record="all")
    np.testing.assert_array_equal(compiled.to_numpy(), executed.to_numpy())

    linear = LinearSystem(system, master)
    step = linear.one_step
    z = linear.start()
    for k in range(STEPS + 1):
        outputs, inputs = linear.outputs(z[:, None])[:, 0], linear.inputs(z[:, None])[:, 0]
        expected = np.concatenate([outputs, inputs])
        scale = max(1.0, float(np.abs(executed.values[k]).max()))
        assert np.abs(executed.values[k] - expected).max() <= 1e-12 * scale
        z = step.Phi @ z + step.Gamma @ linear.given_values(k)


@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
@given(cases(), st.floats(0.2, 5.0))
def test_a_batch_equals_its_masters_one_by_one(case: tuple[System, Master], factor: float) -> None:
    """Φ of two steps in one call, to rounding; a compensated master has its own step only."""
    system, master = case
    steps = np.array([1.0, 1.0 if master.mixers else factor]) * master.step
    batch = Batch(system, master, steps)
    maps = BatchedMap(batch.schedule, batch.variation, batch.backend)
    blocks = [block for block in batch.schedule.layout.blocks if block.kind != "e"]
    Phi = maps.full(maps.gather(maps.macro_step(maps.identity(blocks)), blocks))
    for place, step in enumerate(steps.tolist()):
        expected = LinearSystem(system, master.with_step(step) if place else master).one_step.Phi
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        assert np.abs(Phi[:, :, place] - expected).max(initial=0.0) <= 1e-11 * scale
