"""First-order lags in Python that misbehave, for macro steps that vary."""

from __future__ import annotations

import math
from typing import ClassVar

from cosimo.core.errors import StepDiscarded


class Lag:
    inputs = ("u",)
    outputs = ("y",)

    def __init__(self) -> None:
        self.y = 1.0

    def step(self, time: float, duration: float) -> None:
        self.y += duration * (self.u - self.y)  # type: ignore[attr-defined]


class Impatient(Lag):
    """Discards steps above 3 ms within a span of time."""

    span: ClassVar = (0.2, 0.9)

    def step(self, time: float, duration: float) -> None:
        if self.span[0] < time < self.span[1] and duration > 3e-3:
            raise StepDiscarded("too long", time)
        super().step(time, duration)


class Noisy(Lag):
    def step(self, time: float, duration: float) -> None:
        self.y = math.sin(1e9 * duration + 1e5 * time)


class Dying(Lag):
    """Becomes NaN after some time."""

    end = 0.5

    def step(self, time: float, duration: float) -> None:
        self.y = math.nan if time + duration > self.end else self.y
