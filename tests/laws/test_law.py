"""The central law: for linear units, executing a schedule equals multiplying its matrices, to rounding.

And both ways to execute it, compiled and in plain Python, agree to the last bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings

from thinning import examples

sys.path.insert(0, str(Path(__file__).parent))
from random_systems import cases

from cosimo.algebra import LinearSystem
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
