"""Twelve pairs of nonlinear units, each with the step and the horizon that an engineer would try first.

The units solve their own equations with many small steps, inputs held, so that the error of a run is that of the
coupling alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cosimo.core.system import System
from cosimo.units import PythonUnit


class Ode:
    """ẋ = f(t, x, u), y = g(x, u): Heun's method with `micro` inner steps per macro step.

    That makes the error of the units small against that of the coupling.
    """

    micro = 20
    inputs: Any = ()
    outputs: Any = ()
    start: tuple[float, ...] = ()

    def __init__(self) -> None:
        self.x = list(self.start)
        for name in self.inputs:
            setattr(self, name, 0.0)
        self.look()

    def f(self, t: float, x: list[float]) -> list[float]:
        raise NotImplementedError

    def look(self) -> None:
        raise NotImplementedError

    def set_inputs(self) -> None:
        self.look()

    def step(self, time: float, duration: float) -> None:
        h, f, now = duration / self.micro, self.f, self.x
        for k in range(self.micro):
            t = time + k * h
            a = f(t, now)
            b = f(t + h, [x + h * d for x, d in zip(now, a)])  # noqa: B905 (this takes most of the time of many tests)
            now = [x + h * (d + e) / 2 for x, d, e in zip(now, a, b)]  # noqa: B905
        self.x = now
        self.look()


class Prey(Ode):
    inputs, outputs, start = {"fox": 1.0}, ("hare",), (1.5,)
    fox: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [x[0] * (1.0 - self.fox)]

    def look(self) -> None:
        self.hare = self.x[0]


class Predator(Ode):
    inputs, outputs, start = {"hare": 1.0}, ("fox",), (0.8,)
    hare: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [x[0] * (self.hare - 1.0)]

    def look(self) -> None:
        self.fox = self.x[0]


class Thermostat:
    """Heats below 19, stops above 21: a switch with hysteresis."""

    inputs, outputs = {"temperature": 15.0}, ("power",)

    def __init__(self) -> None:
        self.temperature, self.power = 15.0, 1.0

    def step(self, time: float, duration: float) -> None:
        if self.temperature < 19.0:
            self.power = 1.0
        elif self.temperature > 21.0:
            self.power = 0.0


class Room(Ode):
    inputs, outputs, start = {"power": 1.0}, ("temperature",), (15.0,)
    power: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [(5.0 + 25.0 * self.power - x[0]) / 4.0]

    def look(self) -> None:
        self.temperature = self.x[0]


class Pi(Ode):
    """A PI controller with anti-windup around a limited actuator."""

    inputs, outputs, start = {"level": 0.0}, ("drive",), (0.0,)
    level: float

    def f(self, t: float, x: list[float]) -> list[float]:
        wanted = 3.0 * (1.0 - self.level) + x[0]
        return [2.0 * (1.0 - self.level) + 5.0 * (min(max(wanted, -1.0), 1.0) - wanted)]

    def look(self) -> None:
        self.drive = min(max(3.0 * (1.0 - self.level) + self.x[0], -1.0), 1.0)


class Plant(Ode):
    inputs, outputs, start = {"drive": 0.0}, ("level",), (0.0, 0.0)
    drive: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [x[1], 2.0 * self.drive - 1.5 * x[1] - 0.5 * x[0]]

    def look(self) -> None:
        self.level = self.x[0]


class Slider(Ode):
    """A mass on a belt that moves at 0.3: dry friction that falls with the speed of sliding, smoothed."""

    inputs, outputs, start = {"pull": 0.0}, ("position",), (0.0, 0.0)
    pull: float

    def f(self, t: float, x: list[float]) -> list[float]:
        slip = 0.3 - x[1]
        return [x[1], self.pull + math.tanh(slip / 0.02) * (0.4 + 0.4 * math.exp(-abs(slip) / 0.2))]

    def look(self) -> None:
        self.position = self.x[0]


class Holder(Ode):
    inputs, outputs, start = {"position": 0.0}, ("pull",), (0.0,)
    position: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [40.0 * (self.position - x[0])]

    def look(self) -> None:
        self.pull = -4.0 * self.x[0] - 4.0 * (self.position - self.x[0])


class Pendulum(Ode):
    inputs, outputs, start = {"torque": 0.0}, ("angle",), (0.5, 0.0)
    torque: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [x[1], self.torque - 9.81 * math.sin(x[0]) - 0.1 * x[1]]

    def look(self) -> None:
        self.angle = self.x[0]


class Duffing(Ode):
    inputs, outputs, start = {"angle": 0.5}, ("torque",), (0.2, 0.0)
    angle: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [x[1], 4.0 * (self.angle - x[0]) - 5.0 * x[0] - 20.0 * x[0] ** 3 - 0.2 * x[1]]

    def look(self) -> None:
        self.torque = 4.0 * (self.x[0] - self.angle)


class Inverted(Ode):
    inputs, outputs, start = {"torque": 0.0}, ("angle", "rate"), (0.1, 0.0)
    torque: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [x[1], 9.81 * math.sin(x[0]) + self.torque]

    def look(self) -> None:
        self.angle, self.rate = self.x


class Pd(Ode):
    inputs, outputs, start = {"angle": 0.1, "rate": 0.0}, ("torque",), (0.0,)
    angle: float
    rate: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [(-30.0 * self.angle - 8.0 * self.rate - x[0]) / 0.01]

    def look(self) -> None:
        self.torque = self.x[0]


class Gear(Ode):
    """A motor side with backlash of ± 0.05 before its shaft touches the load."""

    inputs, outputs, start = {"angle": 0.0}, ("torque",), (0.3, 0.0)
    angle: float

    def _twist(self, x: float) -> float:
        gap = x - self.angle
        return 60.0 * (gap - 0.05 if gap > 0.05 else gap + 0.05 if gap < -0.05 else 0.0)

    def f(self, t: float, x: list[float]) -> list[float]:
        return [x[1], -self._twist(x[0]) - 2.0 * x[1] - 10.0 * (x[0] - 0.3 * math.cos(2.0 * t))]

    def look(self) -> None:
        self.torque = self._twist(self.x[0])


class Load(Ode):
    inputs, outputs, start = {"torque": 0.0}, ("angle",), (0.0, 0.0)
    torque: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [x[1], 0.5 * self.torque - 1.0 * x[1]]

    def look(self) -> None:
        self.angle = self.x[0]


class Wheel(Ode):
    inputs, outputs, start = {"speed": 10.0}, ("force",), (10.0,)
    speed: float

    def _force(self, spin: float) -> float:
        return 4.0 * math.tanh(3.0 * (spin - self.speed) / 2.0)

    def f(self, t: float, x: list[float]) -> list[float]:
        return [3.0 - self._force(x[0])]

    def look(self) -> None:
        self.force = self._force(self.x[0])


class Car(Ode):
    inputs, outputs, start = {"force": 0.0}, ("speed",), (10.0,)
    force: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [0.4 * self.force - 0.004 * x[0] * abs(x[0])]

    def look(self) -> None:
        self.speed = self.x[0]


class Valve(Ode):
    """Opens above 2 bar."""

    inputs, outputs, start = {"pressure": 1.0}, ("flow",), (0.0, 0.0)
    pressure: float

    def f(self, t: float, x: list[float]) -> list[float]:
        seat = 400.0 * max(-x[0], 0.0)
        return [x[1], 30.0 * (self.pressure - 2.0) + seat - 12.0 * x[1] - 20.0 * x[0]]

    def look(self) -> None:
        self.flow = max(self.x[0], 0.0) * math.sqrt(max(self.pressure, 0.0))


class Volume(Ode):
    inputs, outputs, start = {"flow": 0.0}, ("pressure",), (1.0,)
    flow: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [1.0 - 2.0 * self.flow]

    def look(self) -> None:
        self.pressure = self.x[0]


class Battery(Ode):
    inputs, outputs, start = {"current": 0.0}, ("voltage",), (0.9, 0.0)
    current: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [-self.current / 400.0, (self.current * (0.02 + 0.05 * (1 - x[0])) - x[1]) / 2.0]

    def look(self) -> None:
        charge = self.x[0]
        self.voltage = 3.0 + 1.2 * charge - 0.3 * math.exp(-20 * charge) - self.x[1] - 0.02 * self.current


class Drive(Ode):
    """A load that takes constant power."""

    inputs, outputs, start = {"voltage": 4.0}, ("current",), (0.0,)
    voltage: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [(20.0 / max(self.voltage, 1.0) - x[0]) / 0.5]

    def look(self) -> None:
        self.current = self.x[0]


class Pwm:
    """On for a share of every 0.1 s that the last current sets; changes at multiples of 5 ms only."""

    inputs, outputs = {"current": 0.0}, ("voltage",)

    def __init__(self) -> None:
        self.current, self.voltage = 0.0, 10.0

    def step(self, time: float, duration: float) -> None:
        tick = round((time + duration) / 0.005)
        share = min(max(0.5 + 0.4 * (1.0 - self.current), 0.0), 1.0)
        self.voltage = 10.0 if (tick % 20) < round(20 * share) else 0.0


class Coil(Ode):
    inputs, outputs, start = {"voltage": 0.0}, ("current",), (0.0,)
    voltage: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [(self.voltage - 5.0 * x[0]) / 1.0]

    def look(self) -> None:
        self.current = self.x[0]


class Pipe:
    """What goes in comes out 0.5 s later, on straight lines between what was seen."""

    inputs, outputs = {"level": 0.0}, ("late",)

    def __init__(self) -> None:
        self.level = self.late = 0.0
        self._seen = [(-10.0, 0.0), (0.0, 0.0)]

    def step(self, time: float, duration: float) -> None:
        self._seen.append((time + duration, self.level))
        wanted = time + duration - 0.5
        for (t0, y0), (t1, y1) in zip(self._seen, self._seen[1:], strict=False):
            if t0 <= wanted <= t1:
                self.late = y0 + (y1 - y0) * (wanted - t0) / (t1 - t0)


class Reservoir(Ode):
    inputs, outputs, start = {"late": 0.0}, ("level",), (0.0,)
    late: float

    def f(self, t: float, x: list[float]) -> list[float]:
        return [1.2 * (1.0 - self.late)]

    def look(self) -> None:
        self.level = self.x[0]


@dataclass(frozen=True)
class Pair:
    """A coupling: units by name with their classes, connections, macro step and horizon in seconds."""

    name: str
    units: dict[str, type]
    connections: tuple[tuple[str, str], ...]
    step: float
    horizon: float

    def system(self) -> System:
        return System({n: PythonUnit(kind) for n, kind in self.units.items()}, list(self.connections), name=self.name)


def _pair(name: str, one: type, two: type, step: float, horizon: float) -> Pair:
    """Two units, connected by the names they share."""
    a, b = one.__name__.lower(), two.__name__.lower()
    there = [(f"{a}.{n}", f"{b}.{n}") for n in one.outputs if n in two.inputs]
    back = [(f"{b}.{n}", f"{a}.{n}") for n in two.outputs if n in one.inputs]
    return Pair(name, {a: one, b: two}, tuple(there + back), step, horizon)


PAIRS: tuple[Pair, ...] = (
    _pair("predator and prey", Prey, Predator, 0.05, 20.0),
    _pair("thermostat and room", Thermostat, Room, 0.05, 20.0),
    _pair("limited PI and plant", Pi, Plant, 0.02, 8.0),
    _pair("stick and slip", Slider, Holder, 0.005, 6.0),
    _pair("pendulum and Duffing", Pendulum, Duffing, 0.002, 5.0),
    _pair("inverted pendulum and PD", Inverted, Pd, 0.002, 3.0),
    _pair("gear backlash", Gear, Load, 0.005, 6.0),
    _pair("tyre with saturation", Wheel, Car, 0.02, 10.0),
    _pair("relief valve", Valve, Volume, 0.01, 6.0),
    _pair("battery and drive", Battery, Drive, 0.1, 60.0),
    _pair("PWM and coil", Pwm, Coil, 0.005, 2.0),
    _pair("delay and reservoir", Pipe, Reservoir, 0.02, 10.0),
)

Build = Callable[[], System]
