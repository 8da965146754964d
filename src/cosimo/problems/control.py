"""A PI controller, which several problems share.

İ = ki (r − y),      u = kp (r − y) + I
"""

from __future__ import annotations

from cosimo.units import Integrator, StateSpace


def pi_controller(
    kp: float, ki: float, *, measured: str, command: str, integrator: Integrator, micro_steps: int
) -> StateSpace:
    """The controller with state I, inputs `measured` (y) and `reference` (r), and output `command` (u), given at once.

    >>> from cosimo.units import Exact
    >>> pi_controller(2.0, 0.5, measured="speed", command="voltage", integrator=Exact(), micro_steps=1).inputs
    ('speed', 'reference')
    """
    return StateSpace(
        0.0,
        [[-ki, ki]],
        1.0,
        [[-kp, kp]],
        integrator=integrator,
        micro_steps=micro_steps,
        inputs=[measured, "reference"],
        outputs=[command],
    )
