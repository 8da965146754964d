"""Units to identify: linear ones of known poles as FMUs that offer more or less, and Python classes that misbehave."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.optimize import linear_sum_assignment

from cosimo.formats.export import export_unit
from cosimo.units import Fmu, PythonUnit, StateSpace

NO_DERIVATIVES = ("providesDirectionalDerivative", "providesDirectionalDerivatives")
NO_STATES = ("canGetAndSetFMUstate", "canGetAndSetFMUState", "canSerializeFMUstate", "canSerializeFMUState")


def exported(unit: Any, folder: Path, *, fmi: int = 2, without: tuple[str, ...] = (), extra: str = "") -> Fmu:
    """The unit as an FMU, with some of its abilities no longer declared, and `extra` attributes of co-simulation."""
    path = export_unit(unit, folder / f"whole{fmi}.fmu", name="box", fmi=fmi)
    changed = folder / f"box{fmi}.fmu"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for item in old.infolist():
            content = old.read(item)
            if item.filename == "modelDescription.xml":
                text = content.decode()
                for flag in without:
                    text = text.replace(f'{flag}="true"', f'{flag}="false"')
                content = text.replace("<CoSimulation ", f"<CoSimulation {extra} ").encode()
            new.writestr(item, content)
    return Fmu(changed)


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest distance between two sets of poles; the larger set's surplus must be 0 (modes gone at once)."""
    size = max(len(found), len(wanted))
    first, second = (np.concatenate([z, np.zeros(size - len(z))]) for z in (found, wanted))
    pairs = np.abs(first[:, None] - second[None, :])
    return float(pairs[linear_sum_assignment(pairs)].max(initial=0.0))


def chain(masses: int, damping: float = 0.002, **options: Any) -> StateSpace:
    """Masses between walls, pushed at the first, seen at the last: lightly damped, far from collocated."""
    K = 100.0 * (2 * np.eye(masses) - np.eye(masses, k=1) - np.eye(masses, k=-1))
    A = np.block([[np.zeros((masses, masses)), np.eye(masses)], [-K, -damping * K]])
    B, C = np.zeros((2 * masses, 1)), np.zeros((1, 2 * masses))
    B[masses, 0] = C[0, masses - 1] = 1.0
    return StateSpace(A, B, C, initial=np.linspace(-1, 1, 2 * masses), **options)


def stiff(n: int, **options: Any) -> StateSpace:
    """Real poles from 1/s to 10,000/s, mixed."""
    rng = np.random.default_rng(1)
    T = rng.normal(size=(n, n))
    A = T @ np.diag(-np.geomspace(1, 1e4, n)) @ np.linalg.inv(T)
    return StateSpace(A, rng.normal(size=(n, 1)), rng.normal(size=(1, n)), initial=rng.normal(size=n), **options)


def many_sided(**options: Any) -> StateSpace:
    """Five states, two inputs, three outputs, feedthrough from one input to one output each, an idle pair."""
    rng = np.random.default_rng(7)
    A = rng.normal(size=(5, 5)) - 2 * np.eye(5)
    B, C = rng.normal(size=(5, 2)), rng.normal(size=(3, 5))
    D = np.array([[0.0, 0.5], [0.0, 0.0], [-2.0, 0.0]])
    return StateSpace(A, B, C, D, initial=rng.normal(size=5), start={"u1": 0.25}, **options)


class Pendulum:
    """θ̈ = −g sin θ − d θ̇ + torque, by Runge–Kutta."""

    inputs, outputs = {"torque": 0.0}, ("angle", "rate")
    g, d = 9.81, 0.1

    def __init__(self, angle: float = 0.0) -> None:
        self.angle, self.rate = angle, 0.0

    def step(self, time: float, duration: float) -> None:
        def slope(x: np.ndarray) -> np.ndarray:
            return np.array([x[1], -self.g * math.sin(x[0]) - self.d * x[1] + self.torque])

        x, h = np.array([self.angle, self.rate]), duration / 5
        for _ in range(5):
            k1 = slope(x)
            k2 = slope(x + h / 2 * k1)
            k3 = slope(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(x + h * k3))
        self.angle, self.rate = float(x[0]), float(x[1])


class Lag:
    """y' = drive(t, u) − y by forward Euler; subclasses say what drives."""

    inputs, outputs = {"u": 0.0}, ("y",)

    def __init__(self, y: float = 0.0) -> None:
        self.y = y

    def drive(self, time: float) -> float:
        return self.u

    def step(self, time: float, duration: float) -> None:
        self.y += duration * (self.drive(time) - self.y)


class Saturated(Lag):
    def drive(self, time: float) -> float:
        return max(-0.5, min(0.5, self.u))


class Relay(Lag):
    on = False

    def drive(self, time: float) -> float:
        self.on = self.u > 0 or (self.on and self.u == 0)
        return self.u + (1.0 if self.on else -1.0)


class Varying(Lag):
    def drive(self, time: float) -> float:
        return (1 + math.sin(time)) * self.u


class Crashing(Lag):
    def drive(self, time: float) -> float:
        raise ValueError("singular matrix")


class Picky(Lag):
    def drive(self, time: float) -> float:
        if self.u != 0:
            raise ValueError("u must be 0")
        return 0.0


class Cautious(Lag):
    """Takes small pulses only."""

    def drive(self, time: float) -> float:
        if abs(self.u) > 0.01:
            raise ValueError("u is out of range")
        return self.u


class Bounded(Lag):
    """Takes every pulse, but not what many of them add up to."""

    def step(self, time: float, duration: float) -> None:
        super().step(time, duration)
        if abs(self.y) > 0.06:
            raise ValueError("y is out of range")


class NotANumber(Lag):
    def drive(self, time: float) -> float:
        return math.nan if self.u else 0.0


class Silent(Lag):
    def drive(self, time: float) -> float:
        return self.y


class Falling:
    """A mass under gravity, pushed: no rest position, and a constant push that is no input."""

    inputs, outputs = {"force": 0.0}, ("x", "v")

    def __init__(self) -> None:
        self.x, self.v = 5.0, 1.0

    def step(self, time: float, duration: float) -> None:
        a = self.force - 9.81
        self.x += duration * self.v + duration**2 / 2 * a
        self.v += duration * a


class Late:
    """`late` shows the input only after a step; `now` at once, though both are declared alike by being properties."""

    inputs, outputs = {"u": 0.0}, ("late", "now")

    def __init__(self) -> None:
        self.x, self.shown = 1.0, 0.0

    @property
    def late(self) -> float:
        return self.shown

    @property
    def now(self) -> float:
        return self.x + 2 * self.u

    def step(self, time: float, duration: float) -> None:
        self.x += duration * (self.u - self.x)
        self.shown = self.x + 3 * self.u


class Geared(PythonUnit):
    """A Python unit whose input `gear` is a whole number."""

    @property
    def discrete_inputs(self) -> tuple[str, ...]:
        return ("gear",)


class Gears(Lag):
    inputs: ClassVar = {"u": 0.0, "gear": 2.0}

    def drive(self, time: float) -> float:
        assert self.gear == int(self.gear)
        return self.gear * self.u


class Masses:
    """A chain of two masses pushed at one end, seen at both: four states, and outputs with noise of one of these kinds.

    none: exact; random: noise that never repeats; single: outputs of single precision; steps: outputs on a grid;
    solver: an adaptive solver with this tolerance.
    """

    inputs, outputs = {"force": 0.0}, ("first", "second")
    A = np.array([[0, 0, 1, 0], [0, 0, 0, 1], [-30, 20, -0.5, 0.2], [10, -25, 0.1, -0.4]], dtype=float)
    B = np.array([0, 0, 1.0, 0])
    chance = np.random.default_rng(20)

    def __init__(self, noise: str = "none", size: float = 0.0) -> None:
        self.noise, self.size, self.force = noise, size, 0.0
        self.x = np.array([0.1, -0.05, 0.2, 0.0])
        self._show()

    def _show(self) -> None:
        y = self.x[:2].copy()
        if self.noise == "random":
            y += self.size * self.chance.normal(size=2)
        if self.noise == "single":
            y = y.astype(np.float32)
        if self.noise == "steps":
            y = np.round(y / self.size) * self.size
        self.first, self.second = (float(value) for value in y)

    def step(self, time: float, duration: float) -> None:
        if self.noise == "solver":
            found = solve_ivp(
                lambda _, x: self.A @ x + self.B * self.force,
                (0.0, duration),
                self.x,
                rtol=self.size,
                atol=1e-3 * self.size,
            )
            self.x = found.y[:, -1]
        else:
            whole = np.zeros((5, 5))
            whole[:4, :4], whole[:4, 4] = self.A, self.B * self.force
            self.x = (expm(duration * whole) @ np.append(self.x, 1.0))[:4]
        self._show()

    def save(self) -> np.ndarray:
        return np.append(self.x, [self.first, self.second])

    def restore(self, state: np.ndarray) -> None:
        self.x, (self.first, self.second) = state[:4].copy(), state[4:].tolist()


class SmallRelay(Lag):
    """A jump that is small against the pulses."""

    def drive(self, time: float) -> float:
        return self.u + math.copysign(0.02, self.u)


class DeadZone(Lag):
    """Nothing happens below `gap`."""

    def __init__(self, gap: float = 0.1) -> None:
        self.y, self.gap = 0.0, gap

    def drive(self, time: float) -> float:
        return math.copysign(max(abs(self.u) - self.gap, 0.0), self.u)


class Play(Lag):
    """Backlash: the other side follows only when it is touched."""

    other = 0.0

    def __init__(self, gap: float = 0.1) -> None:
        self.y, self.gap = 0.0, gap

    def drive(self, time: float) -> float:
        self.other = min(max(self.other, self.u - self.gap), self.u + self.gap)
        return self.other


class Sticking:
    """A mass with dry friction that sticks while it is at rest and pushed by less than `hold`."""

    inputs, outputs = {"force": 0.0}, ("x",)

    def __init__(self, hold: float = 0.3) -> None:
        self.x = self.v = self.force = 0.0
        self.hold = hold

    def step(self, time: float, duration: float) -> None:
        if self.v == 0 and abs(self.force) <= self.hold:
            return
        way = self.v or self.force
        v = self.v + duration * (self.force - math.copysign(self.hold, way))
        self.v = 0.0 if v * way < 0 else v
        self.x += duration * self.v


class Hysteresis(Lag):
    """On above 0.5, off below −0.5."""

    on = False

    def drive(self, time: float) -> float:
        self.on = self.u > 0.5 or (self.on and self.u > -0.5)
        return 1.0 if self.on else 0.0
