"""A stiff thermal pair: a small body, quick to warm, on a large one that is slow.

    C1 Ṫ1 = P − q − g1 T1,       q = G (T1 − T2)
    C2 Ṫ2 = q − g2 T2

Unit `device` holds the small body; it is given the heat flow q that leaves it and the power P. Unit `sink` holds the
large body and the contact; it is given T1 and returns q at once: it has feedthrough. Temperatures are measured from the
surroundings. The time constants C1/G and C2/g2 lie more than three decades apart; the small one limits the macro step.
"""

from __future__ import annotations

from cosimo.core.system import Connection, System
from cosimo.problems.checks import require_finite, require_not_negative, require_positive
from cosimo.units import ForwardEuler, Integrator, StateSpace


def thermal_pair(
    *,
    c1: float = 2.0,
    c2: float = 2_000.0,
    contact: float = 5.0,
    g1: float = 0.05,
    g2: float = 2.0,
    power: float = 20.0,
    warm: float = 5.0,
    integrator: Integrator | None = None,
    micro_steps: int = 10,
) -> System:
    """C1 and C2 in J/K, conductances G (`contact`), g1 and g2 in W/K, P in W; the sink starts `warm` K above all else.

    Both units make `micro_steps` forward Euler steps per macro step unless `integrator` says otherwise.
    """
    require_positive("thermal-pair", c1=c1, c2=c2)
    require_not_negative("thermal-pair", contact=contact, g1=g1, g2=g2)
    require_finite("thermal-pair", power=power, warm=warm)
    solver = integrator or ForwardEuler()
    device = StateSpace(
        -g1 / c1,
        [[-1 / c1, 1 / c1]],
        1.0,
        integrator=solver,
        micro_steps=micro_steps,
        inputs=["flow", "power"],
        outputs=["temperature"],
    )
    sink = StateSpace(
        -(contact + g2) / c2,
        contact / c2,
        [[-contact], [1.0]],
        [[contact], [0.0]],
        initial=warm,
        integrator=solver,
        micro_steps=micro_steps,
        inputs=["temperature"],
        outputs=["flow", "own_temperature"],
    )
    connections = [
        Connection("sink.flow", "device.flow"),
        Connection("device.temperature", "sink.temperature"),
    ]
    return System({"device": device, "sink": sink}, connections, inputs={"device.power": power}, name="thermal-pair")
