"""tamellin2022, without compensation: ρ(Φ) and the growth of real runs of the two-mass systems."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.problems import two_mass_damped, two_mass_undamped

CASES = {
    "undamped, 1 ms": (two_mass_undamped, 1e-3),
    "damped, 1 ms": (two_mass_damped, 1e-3),
    "damped, 4 ms": (two_mass_damped, 4e-3),
}


def nrms(signal: Array, reference: Array) -> float:
    """Eq. 42."""
    return float(np.sqrt(np.mean((signal - reference) ** 2)) / np.ptp(reference))


def exact(system: System, result: Result) -> tuple[Array, Array]:
    """x2 and the coupling force of the coupled system itself."""
    coupled = LinearSystem(system, masters.jacobi(system, 1.0)).coupled
    x0 = np.concatenate([unit.initial_state for unit in system.units.values()])
    flow = scipy.linalg.expm(coupled.A * float(result.time[1]))
    states = [x0]
    for _ in result.time[1:]:
        states.append(flow @ states[-1])
    outputs = np.array(states) @ coupled.C.T
    return outputs[:, 1], outputs[:, 0]


@pytest.mark.parametrize(("case", "rho"), [("undamped, 1 ms", 1.000054454), ("damped, 4 ms", 1.000435814)])
def test_convention_c_radius(case: str, rho: float) -> None:
    build, h = CASES[case]
    system = build()
    assert Spectrum(LinearSystem(system, masters.jacobi_early_read(system, h))).radius == pytest.approx(rho, abs=1e-8)


@pytest.mark.parametrize(
    ("case", "x2", "force"),
    [("undamped, 1 ms", 0.2745, 0.1090), ("damped, 1 ms", 0.0609, 0.0257), ("damped, 4 ms", 1.158, 0.484)],
)
def test_free_evolution_without_compensation(case: str, x2: float, force: float) -> None:
    """Convention C over 20 s, against the analytical solution."""
    build, h = CASES[case]
    system = build()
    result = run(system, masters.jacobi_early_read(system, h), stop=20.0)
    position, coupling = exact(system, result)
    # Under early read a row holds the force of the step that ended there: it belongs to the time before.
    assert nrms(result["two.x"], position) == pytest.approx(x2, rel=0.02)
    assert nrms(result["one.f"][1:], coupling[:-1]) == pytest.approx(force, rel=0.02)


@pytest.mark.parametrize("master", [masters.jacobi, masters.jacobi_early_read])
@pytest.mark.parametrize("case", ["undamped, 1 ms", "damped, 4 ms"])
def test_runs_grow_as_predicted(case: str, master: Callable[[System, float], Master]) -> None:
    build, h = CASES[case]
    system = build()
    chosen = master(system, h)
    radius = Spectrum(LinearSystem(system, chosen)).radius
    assert radius > 1
    # The velocity of mass 2 is nearly all of the second mode, the one that grows; its amplitude over a second at the
    # end against that ten seconds earlier.
    x = run(system, chosen, stop=60.0)["two.v"]
    window, apart = round(1.0 / h), round(10.0 / h)
    late, early = (float(np.abs(x[i : i + window]).max()) for i in (len(x) - window, len(x) - window - apart))
    assert np.log(late / early) / apart == pytest.approx(np.log(radius), rel=0.02)
