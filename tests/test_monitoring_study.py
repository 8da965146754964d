"""The false-alarm study of docs/monitors.md: 1,800 looks at stable oscillators, free and driven, and no alarm."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from cosimo.core.arrays import Array
from cosimo.growth import WINDOW, Growth

KINDS = ("free", "one struck", "sine", "resonance", "chirp", "step", "ramp", "noise", "pulse", "swelling sine")
BATCHES, SYSTEMS = 9, 10


def oscillators(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """A random chain of two to four masses with damping from 1e-4 to 0.3 of its stiffest spring: A, B, frequencies."""
    q = int(rng.integers(2, 5))
    inverse = np.diag(1 / np.exp(rng.uniform(-1, 1, q)))
    K = np.diag(np.exp(rng.uniform(0, 5, q)))
    for i, k in enumerate(np.exp(rng.uniform(-2, 5, q - 1))):
        K[i : i + 2, i : i + 2] += k * np.array([[1, -1], [-1, 1]])
    C = K * 10 ** rng.uniform(-4, -0.5) / np.sqrt(K.max())
    A = np.block([[np.zeros((q, q)), np.eye(q)], [-inverse @ K, -inverse @ C]])
    return A, np.vstack([np.zeros((q, 1)), inverse[:, :1]]), np.abs(np.linalg.eigvals(A))


def force(kind: str, t: Array, omega: Array, rng: np.random.Generator) -> Array:
    """The force on the first mass."""
    any_ = np.exp(rng.uniform(np.log(omega.min() / 3), np.log(omega.max() * 1.5)))
    near = rng.choice(omega) * (1 + rng.normal() * 10 ** rng.uniform(-4, -1))
    low, high, end = 0.3 * omega.min(), 1.3 * omega.max(), t[-1]
    forces = {
        "sine": np.sin(any_ * t),
        "resonance": np.sin(near * t),
        "chirp": np.sin((low + (high - low) * t / (2 * end)) * t),
        "step": np.ones_like(t),
        "ramp": t / end,
        "noise": rng.standard_normal(len(t)),
        "pulse": ((t > 0.3 * end) & (t < 0.35 * end)).astype(float),
        "swelling sine": np.minimum(1, t / (0.6 * end)) * np.sin(any_ * t),
    }
    return forces.get(kind, np.zeros_like(t))


def motion(A: Array, B: Array, x: Array, u: Array, h: float) -> Array:
    """All states at t = k h, the force held."""
    n = len(A)
    flow = expm(h * np.block([[A, B], [np.zeros((1, n + 1))]]))
    Ad, b = flow[:n, :n], flow[:n, n]
    rows = np.empty((len(u), n))
    for k, value in enumerate(u):
        rows[k] = x
        x = Ad @ x + b * value
    return rows


def alarms(y: Array, u: Array) -> int:
    p = y.shape[1]
    signals = np.column_stack([y, u])
    growth = Growth(signals[0], [range(p)] * p)
    for k in range(1, len(signals) - WINDOW + 1, WINDOW):
        growth.window(signals[k : k + WINDOW].max(axis=0), signals[k : k + WINDOW].min(axis=0))
    return len(growth.found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(BATCHES))
def test_no_alarm_in_stable_motion(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    for _ in range(SYSTEMS):
        A, B, omega = oscillators(rng)
        h = 10 ** rng.uniform(-2.3, -0.7) / omega.max()
        t = np.arange(int(10 ** rng.uniform(2.5, 4.6))) * h
        for kind in KINDS:
            x = rng.standard_normal(len(A)) * (kind == "free")
            x[rng.integers(len(A))] += kind == "one struck"
            u = force(kind, t, omega, rng)
            rows = motion(A, B, x, u, h)
            some = rng.permutation(len(A))[: rng.integers(1, 3)]
            assert not alarms(rows, u), kind
            assert not alarms(rows[:, some], u), kind
