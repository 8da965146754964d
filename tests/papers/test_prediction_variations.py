"""The automatic window on ten kinds of oscillators, drawn by seed, not used in its making (docs/prediction.md).

Unit `one` is that of pikulinski2025, Sec. 3.1: mass 1, a spring to the wall and the coupling spring, whose force it
returns at once. Unit `two` is a mass under another law of each kind. All steps are velocity-first symplectic Euler.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from cosimo.core.coupling import Coupling
from cosimo.core.errors import RunError
from cosimo.core.system import Connection, System
from cosimo.couplings import Dmd
from cosimo.papers.pikulinski2025 import HELD, KINEMATIC, predicted
from cosimo.problems.oscillators import run_monolithic
from cosimo.units import Mechanical
from cosimo.units.python import PythonUnit

WINDOWS = (4, 6, 10, 20, 50, 100)
SEEDS = range(11, 17)
"""Constants of the predictor were tried out on seeds 1 to 6, and left as they were; these were only reported on."""

STOP = 8.0
Law = Callable[[float, float, float], float]
"""The acceleration of mass 2 but for the coupling force, from its position, speed and the time."""


class Mass:
    """ẍ = f / m + law(x, ẋ, t)."""

    inputs, outputs = ("f",), ("x", "v")

    def __init__(self, mass: float, law: Law, speed: float) -> None:
        self.mass, self.law = mass, law
        self.x, self.v = 0.0, speed
        self.f: float

    def step(self, time: float, duration: float) -> None:
        """v first, then x with the new v."""
        self.v += duration * (self.f / self.mass + self.law(self.x, self.v, time))
        self.x += duration * self.v

    def save(self) -> tuple[float, float]:
        """All that changes."""
        return self.x, self.v

    def restore(self, state: tuple[float, float]) -> None:
        """Put it back."""
        self.x, self.v = state


def _laws(w: float, r: float) -> dict[str, Law]:
    """The kinds, with a frequency w in rad/s (15 to 35) and a number r in 0 … 1; speeds are about 1 m/s."""
    a = w * 1.0  # the size of the wall's acceleration: x is about 1 / w
    return {
        "damped": lambda x, v, t: -w * w * x - (0.2 + r) * v,
        "forced by a sine": lambda x, v, t: -w * w * x + a * math.sin((0.3 + r) * w * t),
        "forced by a chirp": lambda x, v, t: -w * w * x + a * math.sin((0.1 + 0.1 * r * t) * w * t),
        "forced by a square wave": lambda x, v, t: -w * w * x + a * math.copysign(1.0, math.sin((1 + 2 * r) * t)),
        "hardening spring": lambda x, v, t: -w * w * x * (1 + (1 + r) * (w * x) ** 2),
        "softening spring": lambda x, v, t: -w * a * x / math.sqrt((0.5 + r) + (w * x) ** 2),
        "dry friction": lambda x, v, t: -w * w * x - (0.05 + 0.1 * r) * a * math.tanh(20 * v),
        "self-excited": lambda x, v, t: -w * w * x + (0.5 + r) * (1 - (2 * w * x) ** 2) * v,
        "stiffness that varies": lambda x, v, t: -w * w * x * (1 + (0.2 + 0.3 * r) * math.sin(2 * t)),
        "end stop": lambda x, v, t: -w * w * x - 8 * w * w * max(0.0, x - (0.3 + 0.5 * r) / w),
    }


KINDS = tuple(_laws(1.0, 0.0))


@dataclass(frozen=True)
class Variation:
    """One drawn system with its step, and its monolithic run."""

    kind: str
    seed: int

    def build(self) -> tuple[System, float]:
        """The system and its macro step: 10 to 25 steps per radian of the wall spring."""
        draw = np.random.default_rng([self.seed, KINDS.index(self.kind)])
        w, r, m2, ratio, share = draw.uniform((15, 0, 0.5, 0.1, 0.04), (35, 1, 2, 0.6, 0.1)).tolist()
        kc = ratio * w * w
        one = Mechanical(
            1.0,
            0.0,
            10.0 + kc,
            B=[[kc, 0.0]],
            displacement=[[-kc], [1.0], [0.0]],
            velocity=[[0.0], [0.0], [1.0]],
            feedthrough=[[kc, 0.0], [0.0, 0.0], [0.0, 0.0]],
            initial=[0.0, 1.0],
            inputs=["x2", "v2"],
            outputs=["f", "x", "v"],
        )
        two = PythonUnit(Mass, mass=m2, law=_laws(w, r)[self.kind], speed=-1.0)
        connections = [Connection("one.f", "two.f", gain=-1.0), ("two.x", "one.x2"), ("two.v", "one.v2")]
        return System({"one": one, "two": two}, connections, name=self.kind), share / w

    def errors(self, couplings: dict[str, Coupling]) -> dict[str, float]:
        """The rms error of x2 against the monolithic run, infinite where a run diverges."""
        system, step = self.build()
        stop = round(STOP / step) * step
        wanted = run_monolithic(system, step=step, stop=stop)["two.x"]
        found = {}
        for name, coupling in couplings.items():
            try:
                x = predicted(system, "one", coupling, step=step, stop=stop)["two.x"]
                found[name] = float(np.sqrt(np.mean((x - wanted) ** 2)))
            except RunError:
                found[name] = math.inf
        return found


@pytest.mark.slow
def test_the_automatic_window_on_kinds_that_were_not_used_before() -> None:
    """Measured: geometric mean 1.13, median 1.00, nine of ten within 3.1, worst 8.1 of the best window in hindsight."""
    fixed: dict[str, Coupling] = {f"{window}": Dmd(window, pairs=KINEMATIC["one"]) for window in WINDOWS}
    ratios = []
    for kind in KINDS:
        for seed in SEEDS:
            errors = Variation(kind, seed).errors(fixed | {"auto": Dmd(pairs=KINEMATIC["one"]), "hold": HELD})
            automatic, held = errors.pop("auto"), errors.pop("hold")
            assert automatic < 0.1 * held, (kind, seed)
            ratios.append(automatic / min(errors.values()))
    assert len(ratios) == 60
    assert np.exp(np.mean(np.log(ratios))) < 1.3
    assert np.median(ratios) < 1.05
    assert np.quantile(ratios, 0.9) < 4.0
