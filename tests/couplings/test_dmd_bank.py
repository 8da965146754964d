"""The window chosen while running: it follows what the unit does, and is stable where the hold is."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[np.float64]


def predictor(step: float, *, method: str = "auto", window: int = 1) -> Any:
    return import_module("cosimo._kernel").Predictor(
        2, 1, method=method, window=window, centred=False, delays=0, pairs=[(0, 1)], step=step, tolerance=1e-6
    )


def follow(made: Any, x: Array, u: Array) -> Array:
    ahead = np.empty(x.shape)
    made.follow(np.ascontiguousarray(x), np.ascontiguousarray(u), ahead)
    return ahead


def motion(steps: int, *, jump: int | None = None, stiffer: int | None = None, seed: int = 0) -> tuple[Array, Array]:
    """An oscillator under a smooth force; at `jump` its velocity is reversed, at `stiffer` its spring is replaced."""
    rng = np.random.default_rng(seed)
    times = np.arange(steps) * 0.01
    u = (np.sin(3.1 * times) + 0.5 * np.sin(1.7 * times + 1.0) + 0.1 * rng.standard_normal(steps))[:, None]
    x = np.empty((steps, 2))
    place, speed = 1.0, 0.0
    for k in range(steps):
        if k == jump:
            speed = -speed
        x[k] = place, speed
        stiffness = 150.0 if stiffer is not None and k >= stiffer else 60.0
        speed += 0.01 * (30 * u[k, 0] - stiffness * place - 0.4 * speed)
        place += 0.01 * speed
    return x, u


def missed(ahead: Array, x: Array) -> Array:
    worst: Array = np.abs((ahead[:-1] - x[1:]) / np.abs(x).max(axis=0)).max(axis=1)
    return worst


def test_a_linear_unit_is_known_after_a_few_pairs() -> None:
    x, u = motion(500)
    assert missed(follow(predictor(0.01), x, u), x)[6:].max() < 1e-10


def test_an_impact_costs_one_prediction() -> None:
    # The velocity is reversed; the unit remains what it was. The pair that spans the impact is kept out.
    x, u = motion(400, jump=200)
    auto = missed(follow(predictor(0.01), x, u), x)
    assert auto[199] > 1e-2
    assert auto[200:].max() < 1e-10
    fixed = missed(follow(predictor(0.01, method="robust", window=50), x, u), x)
    assert fixed[200:240].max() > 1e-3


def test_another_spring_is_learned_at_once() -> None:
    x, u = motion(400, stiffer=200)
    auto = missed(follow(predictor(0.01), x, u), x)
    fixed = missed(follow(predictor(0.01, method="robust", window=50), x, u), x)
    assert auto[215:].max() < 1e-9
    assert fixed[215:240].max() > 1e-4


def test_it_says_who_is_in_charge() -> None:
    made = predictor(0.01)
    names = made.experts
    assert len(names) == len(set(names)) == 19
    x, u = motion(300)
    charge = set()
    for k in range(300):
        made.advance(x[k], u[k])
        charge.add(names[made.expert])
    assert charge <= set(names)
    assert made.error < 1e-12


@pytest.mark.parametrize("name", ["random walk", "white noise"])
def test_the_hold_is_not_beaten_by_much_where_nothing_can_be_predicted(name: str) -> None:
    rng = np.random.default_rng(1)
    noise, u = rng.standard_normal((4000, 2)), rng.standard_normal((4000, 1))
    x = noise.cumsum(axis=0) if name == "random walk" else noise
    made = import_module("cosimo._kernel").Predictor(
        2, 1, method="auto", window=1, centred=False, delays=0, pairs=[], step=0.01, tolerance=1e-6
    )
    ahead = follow(made, x, u)
    ours, hold = (np.sqrt(((a[200:-1] - x[201:]) ** 2).mean()) for a in (ahead, x))
    assert ours < 1.1 * hold


def coupled(made: Any, *, mass: float, damping: float, stiffness: float, step: float, steps: int) -> Array:
    """Two masses with a spring and a damper between them; the force is formed with the predicted motion of the second.

    The damper feeds through: with the hold this is stable for damping · step / mass below one.
    """
    x1, v1, x2, v2, f = 0.0, 1.0, 0.0, -1.0, 0.0
    size = np.empty(steps)
    for k in range(steps):
        ahead = [x2, v2] if made is None else made.advance([x2, v2], [f])
        force = stiffness * (x1 - x2) + damping * (v1 - v2)
        v1 += step * (-3.0 * x1 - force)
        v2 += step * (f - 5.0 * x2) / mass
        x1 += step * v1
        x2 += step * v2
        f = stiffness * (x1 - ahead[0]) + damping * (v1 - ahead[1])
        size[k] = max(abs(x1), abs(v1), abs(x2), abs(v2))
        if size[k] > 1e6:
            size[k:] = np.inf
            break
    return size


def test_it_is_stable_where_the_hold_is() -> None:
    step, compared = 0.02, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mass = 10.0 ** rng.uniform(-1, 1)
        damping, stiffness = rng.uniform(0, 1.2) * mass / step, 10.0 ** rng.uniform(0, 3) * mass
        case = {"mass": mass, "damping": damping, "stiffness": stiffness, "step": step, "steps": 3000}
        held = coupled(None, **case)
        if not np.isfinite(held).all() or held[2500:].max() > 1.2 * held[:500].max():
            continue
        compared += 1
        assert coupled(predictor(step), **case).max() <= 2.0 * held.max(), seed
    assert compared >= 10


@pytest.mark.slow
@pytest.mark.parametrize(("method", "limit"), [("robust", 2.0), ("auto", 8.0)])
def test_cost_of_a_prediction(method: str, limit: float) -> None:
    x, u = motion(3000)
    made = predictor(0.01, method=method, window=100)
    spent = []
    for _ in range(20):
        start = time.process_time()
        follow(made, x, u)
        spent.append((time.process_time() - start) / len(x) * 1e6)
    assert min(spent) < limit
