"""The nonlinear systems of the test bed: their units, their connections, and the same equations as one model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.integrate import solve_ivp
from scipy.optimize import fsolve

from .build import Model

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Nonlinear:
    """Two coupled models and the whole: ẋ = rates(x), outputs(x), x the states of all units one after the other.

    The equations of the whole are written apart from the C sources, so that each checks the other.
    """

    models: Mapping[str, Model]
    connections: tuple[tuple[str, str], ...]
    inputs: Mapping[str, float]
    rates: Callable[[Array], Array]
    outputs: Callable[[Array], Array]

    @property
    def start(self) -> Array:
        """The initial states."""
        return np.array([value for model in self.models.values() for value in model.states.values()])

    def reference(self, times: Array, start: Array | None = None) -> Array:
        """All outputs at `times` (K, p), integrated as one model with tolerances near rounding."""
        solution = solve_ivp(
            lambda _, x: self.rates(x),
            (0.0, float(times[-1])),
            self.start if start is None else start,
            method="DOP853",
            t_eval=times,
            rtol=1e-12,
            atol=1e-14,
            # The limits of the controller are kinks: short steps keep an undetected one from mattering.
            max_step=float(times[-1]) / 2000,
        )
        assert solution.success, solution.message
        return np.array([self.outputs(x) for x in solution.y.T])

    def equilibrium(self) -> Array:
        """The states at which the whole comes to rest."""
        far = solve_ivp(lambda _, x: self.rates(x), (0.0, self.settling), self.start, rtol=1e-9, atol=1e-12).y[:, -1]
        # Whether the last digits still make "good progress" depends on the processor; how small the rates are does not.
        rest: Array = fsolve(self.rates, far, xtol=1e-12, full_output=True)[0]
        assert np.abs(self.rates(rest)).max() < 1e-12
        return rest

    settling: float = 1.0
    """Seconds after which the whole is close to rest."""


# ---- tank ----------------------------------------------------------------------------------------------------------

AREA, OUTFLOW, SET_POINT, KP, KI, MOST, UNWIND = 0.5, 0.02, 1.5, 0.05, 0.002, 0.05, 10.0
FIRST_LEVEL = 0.5


def _tank_inflow(x: Array) -> tuple[float, float]:
    wanted = KP * (SET_POINT - x[0]) + x[1]
    return wanted, min(max(wanted, 0.0), MOST)


def _tank_rates(x: Array) -> Array:
    wanted, inflow = _tank_inflow(x)
    level = (inflow - OUTFLOW * math.sqrt(max(x[0], 0.0))) / AREA
    return np.array([level, KI * (SET_POINT - x[0]) + (inflow - wanted) / UNWIND])


TANK = Nonlinear(
    {
        "tank": Model(
            "tank",
            {"x": FIRST_LEVEL},
            {"inflow": 0.0},
            {"area": AREA, "outflow": OUTFLOW},
            {"level": ("x",), "der(x)": ("x", "inflow")},
            micro_step=0.5,
        ),
        "controller": Model(
            "level_controller",
            {"integral": OUTFLOW * math.sqrt(FIRST_LEVEL)},
            {"level": 0.0, "reference": 0.0},
            {"kp": KP, "ki": KI, "most": MOST, "unwind": UNWIND},
            {
                "inflow": ("integral", "level", "reference"),
                "der(integral)": ("integral", "level", "reference"),
            },
            micro_step=0.5,
        ),
    },
    (("controller.inflow", "tank.inflow"), ("tank.level", "controller.level")),
    {"controller.reference": SET_POINT},
    _tank_rates,
    lambda x: np.array([x[0], _tank_inflow(x)[1]]),
    settling=1000.0,
)
"""A tank that empties by gravity under a limited PI controller: `cosimo.problems.tank` is its linear part at rest."""


# ---- pendulum ------------------------------------------------------------------------------------------------------

MASS, LENGTH, VISCOUS, COULOMB, CREEP, GRAVITY = 1.0, 0.5, 0.05, 0.02, 0.1, 9.81
STIFF, DAMPED, TORQUE, LAG, ANGLE = 20.0, 2.0, 10.0, 0.02, 1.0


def _pendulum_rates(x: Array) -> Array:
    angle, rate, torque = x
    friction = VISCOUS * rate + COULOMB * math.tanh(rate / CREEP)
    turned = (torque - MASS * GRAVITY * LENGTH * math.sin(angle) - friction) / (MASS * LENGTH**2)
    wanted = TORQUE * math.tanh((STIFF * (ANGLE - angle) - DAMPED * rate) / TORQUE)
    return np.array([rate, turned, (wanted - torque) / LAG])


PENDULUM = Nonlinear(
    {
        "pendulum": Model(
            "pendulum",
            {"x1": 0.0, "x2": 0.0},
            {"torque": 0.0},
            {"mass": MASS, "length": LENGTH, "viscous": VISCOUS, "coulomb": COULOMB, "creep": CREEP},
            {"angle": ("x1",), "rate": ("x2",), "der(x1)": ("x2",), "der(x2)": ("x1", "x2", "torque")},
            micro_step=5e-3,
        ),
        "actuator": Model(
            "actuator",
            {"x": 0.0},
            {"angle": 0.0, "rate": 0.0, "reference": 0.0},
            {"kp": STIFF, "kd": DAMPED, "most": TORQUE, "lag": LAG},
            {"torque": ("x",), "der(x)": ("x", "angle", "rate", "reference")},
            solver="euler",
            micro_step=2e-3,
        ),
    },
    (
        ("actuator.torque", "pendulum.torque"),
        ("pendulum.angle", "actuator.angle"),
        ("pendulum.rate", "actuator.rate"),
    ),
    {"actuator.reference": ANGLE},
    _pendulum_rates,
    lambda x: np.array([x[0], x[1], x[2]]),
    settling=5.0,
)
"""A pendulum with friction, swung up to an angle by an actuator of limited torque and position control."""
