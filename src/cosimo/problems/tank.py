"""A tank whose level a PI controller holds, linear about its operating point.

    a ẋ = q − k x,            k = c / (2 √h0)        from  a ḣ = Q − c √h  with  h = h0 + x,  Q = c √h0 + q
    İ = ki (x_ref − x),       q = kp (x_ref − x) + I

Unit `tank` (state x, the level above h0) is given the change q of the inflow; unit `controller` (state I) is given the
level and its set point and answers with q at once: it has feedthrough. The run begins with a step of the set point.
"""

from __future__ import annotations

import math

from cosimo.core.system import Connection, System
from cosimo.problems.checks import require_finite, require_not_negative, require_positive
from cosimo.problems.control import pi_controller
from cosimo.units import Exact, Integrator, StateSpace


def tank(
    *,
    area: float = 0.5,
    outflow: float = 0.02,
    level: float = 1.5,
    kp: float = 0.05,
    ki: float = 0.002,
    reference: float = 0.1,
    integrator: Integrator | None = None,
    micro_steps: int = 1,
) -> System:
    """`area` a in m², `outflow` c in m^2.5/s, operating `level` h0 in m, kp in m²/s, ki in m²/s², `reference` in m."""
    require_positive("tank", area=area, outflow=outflow, level=level)
    require_not_negative("tank", kp=kp, ki=ki)
    require_finite("tank", reference=reference)
    solver = integrator or Exact()
    vessel = StateSpace(
        -outflow / (2 * math.sqrt(level) * area),
        1 / area,
        1.0,
        integrator=solver,
        micro_steps=micro_steps,
        inputs=["inflow"],
        outputs=["level"],
    )
    controller = pi_controller(kp, ki, measured="level", command="inflow", integrator=solver, micro_steps=micro_steps)
    connections = [Connection("controller.inflow", "tank.inflow"), Connection("tank.level", "controller.level")]
    given = {"controller.reference": reference}
    return System({"tank": vessel, "controller": controller}, connections, inputs=given, name="tank")
