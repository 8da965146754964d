"""Many masters in one call equal the same masters one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import Batch, LinearSystem, product
from cosimo.algebra.batched_map import BatchedMap
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Hold, Nepce

GAINS = {"a.u1": Nepce(0.0), "b.u2": Nepce(0.0)}
STEPS = np.array([0.01, 0.2, 0.2, 1.0, 0.05])
ALPHAS = {"a.u1": np.array([0.0, 0.3, 0.9, 0.1, 0.5]), "b.u2": np.array([0.7, 0.0, 0.2, 0.99, 0.5])}

BUILDERS: dict[str, Callable[..., Master]] = {
    "jacobi": masters.jacobi,
    "early read": masters.jacobi_early_read,
    "seidel": lambda s, h, **o: masters.gauss_seidel(s, h, order=["c", "b", "a"], **o),
    "multirate": lambda s, h, **o: masters.multirate(s, h, multiples={"b": 2}, **o),
    "two sweeps": lambda s, h, **o: masters.iterative(s, h, sweeps=2, **o),
    "until converged": masters.iterative,
}


def one_by_one(system: System, builder: Callable[..., Master], others: Any) -> list[LinearSystem]:
    found = []
    for i, step in enumerate(STEPS):
        couplings = {**others, **{target: Nepce(alpha[i]) for target, alpha in ALPHAS.items()}}
        master = builder(system, 1.0, couplings=couplings)
        found.append(LinearSystem(system, master.with_step(step)))
    return found


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("hold", [0, 1])
@pytest.mark.one_in(5)
def test_radius_and_consistency_equal_those_one_by_one(make_system: Any, name: str, hold: int) -> None:
    system, builder = make_system(), BUILDERS[name]
    others = {"a.u2": Hold(hold), "b.u1": Hold(hold), "c.u1": Hold(hold)}
    batch = Batch(system, builder(system, 1.0, couplings={**others, **GAINS}), STEPS, ALPHAS)
    radius, exact = batch.spectral_radius(), batch.exact_spectral_radius()
    maps = BatchedMap(batch.schedule, batch.variation, batch.backend)
    blocks = [block for block in batch.schedule.layout.blocks if block.kind != "e"]
    Phi = maps.full(maps.gather(maps.macro_step(maps.identity(blocks)), blocks))
    deltas = {(k, norm): batch.consistency(k=k, norm=norm) for k in (1, 3) for norm in (1, 2)}  # type: ignore[arg-type]
    for i, linear in enumerate(one_by_one(system, builder, others)):
        assert Phi[:, :, i] == pytest.approx(linear.one_step.Phi, abs=1e-12)
        assert radius[i] == pytest.approx(np.abs(np.linalg.eigvals(linear.cycle.matrix)).max(), rel=1e-10)
        flow = linear.coupled.flow(linear.master.step)
        assert exact[i] == pytest.approx(np.abs(np.linalg.eigvals(flow)).max(), rel=1e-10)
        for (k, norm), delta in deltas.items():
            z = np.linalg.matrix_power(linear.one_step.Phi, k) @ linear.start_map()
            assert delta[i] == pytest.approx(np.linalg.norm(linear.defect(z), norm), rel=1e-11, abs=1e-12)


def test_grids_keep_their_shape(make_system: Any) -> None:
    system = make_system()
    master = masters.jacobi(system, 1.0, couplings=GAINS)
    alpha, step = np.linspace(0, 0.9, 4)[:, None], np.array([0.01, 0.1, 0.3])
    batch = Batch(system, master, step, {"a.u1": alpha})
    radius = batch.spectral_radius()
    assert radius.shape == batch.exact_spectral_radius().shape == batch.consistency(k=1, norm=2).shape == (4, 3)
    one = LinearSystem(system, masters.jacobi(system, 0.3, couplings={**GAINS, "a.u1": Nepce(alpha[2, 0])}))
    assert radius[2, 2] == pytest.approx(np.abs(np.linalg.eigvals(one.cycle.matrix)).max(), rel=1e-12)


def test_gains_beyond_one_are_computed_not_refused(make_system: Any) -> None:
    """The papers' grids go to α = 1.1; the memory alone then grows."""
    system = make_system()
    batch = Batch(system, masters.jacobi(system, 1.0, couplings=GAINS), 0.1, {"a.u1": [1.1]})
    assert batch.spectral_radius()[0] >= 1.0


def test_large_systems_are_batched_too(chain: Callable[[int], System], monkeypatch: pytest.MonkeyPatch) -> None:
    system = chain(4)
    master = masters.jacobi(system, 0.1)
    expected = Batch(system, master, [0.1, 0.2])
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    batch = Batch(system, master, [0.1, 0.2])
    assert np.array_equal(batch.spectral_radius(), expected.spectral_radius())
    assert np.array_equal(batch.consistency(k=2, norm=2), expected.consistency(k=2, norm=2))
    assert np.array_equal(batch.exact_spectral_radius(), expected.exact_spectral_radius())


def test_unknown_inputs_are_refused(make_system: Any) -> None:
    system = make_system()
    with pytest.raises(UnknownNameError, match="unknown input of unit 'a' 'u9'"):
        Batch(system, masters.jacobi(system, 0.1), [0.1], {"a.u9": [0.5]})


@pytest.mark.parametrize("coupling", [Hold(1), Hold(2)])
def test_other_memories_than_that_of_nepce_are_refused(make_system: Any, coupling: Hold) -> None:
    system = make_system()
    with pytest.raises(ConfigurationError, match=rf"input a\.u1 is coupled by {coupling}, not by Nepce"):
        Batch(system, masters.jacobi(system, 0.1, coupling=coupling), [0.1], {"a.u1": [0.5]})


@pytest.mark.parametrize("step", [0.0, -0.1, np.nan, np.inf])
def test_steps_must_be_positive(make_system: Any, step: float) -> None:
    system = make_system()
    with pytest.raises(ConfigurationError, match="macro steps of a batch must be positive"):
        Batch(system, masters.jacobi(system, 0.1), [0.1, step])
