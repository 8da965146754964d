"""A class of your own as a unit: a thermostat written in plain Python heats a room given as matrices.

`PythonUnit` needs `inputs`, `outputs` and `step(time, duration)`. Inputs are set as attributes before a step, outputs
are read as attributes after it. `analyse` knows no equations of such a unit: it tries linear models, and where they
fail, as at a switch, it rests on pilot runs of the whole system. A switch a step too late counts as an error of 100 %.
"""

from typing import ClassVar

import cosimo as co


class Thermostat:
    """Switches a heater with hysteresis: on below `low`, off above `high`."""

    inputs: ClassVar = {"temperature": 15.0}
    outputs = ("heat", "switched")

    def __init__(self, low: float = 19.5, high: float = 20.5, power: float = 2000.0) -> None:
        self.low, self.high, self.power = low, high, power
        self.temperature: float
        self.heat = 0.0
        self.switched = 0

    def step(self, time: float, duration: float) -> None:
        on = self.temperature < (self.high if self.heat else self.low)
        self.switched += on != bool(self.heat)
        self.heat = self.power if on else 0.0


# Air and walls: C_air Ṫ = heat + G (T_wall − T),  C_wall Ṫ_wall = G (T − T_wall) + G_out (T_out − T_wall).
C_AIR, C_WALL, G, G_OUT = 300e3, 4e6, 200.0, 60.0
room = co.StateSpace(
    [[-G / C_AIR, G / C_AIR], [G / C_WALL, -(G + G_OUT) / C_WALL]],
    [[1 / C_AIR, 0.0], [0.0, G_OUT / C_WALL]],
    [[1.0, 0.0]],
    initial=[15.0, 15.0],
    inputs=["heat", "outside"],
    outputs=["temperature"],
)
system = co.System(
    {"room": room, "thermostat": co.PythonUnit(Thermostat, power=3000.0)},
    [("thermostat.heat", "room.heat"), ("room.temperature", "thermostat.temperature")],
    inputs={"room.outside": co.Table([0.0, 6 * 3600.0], [5.0, -5.0])},
    name="heated room",
)

master = co.masters.gauss_seidel(system, step=10.0, order=["thermostat", "room"])
result = co.run(system, master, stop=6 * 3600.0)
settled = result["room.temperature"][result.time > 2 * 3600.0]
print(result)
print(f"temperature after two hours: {settled.min():.2f} to {settled.max():.2f} °C")
print(f"the heater switched {result['thermostat.switched'][-1]:.0f} times")

verdict = co.analyse(system, master, horizon=1800.0)
print(f"evidence: {verdict.evidence}; {verdict.headline}")
