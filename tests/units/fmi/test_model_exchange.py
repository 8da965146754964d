"""Model-exchange FMUs: what our solvers make of them, against exact solutions and FMPy's own loop."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmu_builder import build
from hybrid import build_model

import cosimo as co
from cosimo.core.errors import ConfigurationError, UnitError, UnknownNameError
from cosimo.execution.options import EngineOptions
from cosimo.units.fmi import model_exchange
from cosimo.units.fmi.component import LazyFunctions
from cosimo.units.fmi.fmu import Fmu, FmuOptions
from cosimo.units.fmi.isolation import Isolation
from cosimo.units.fmi.model_exchange import Solver

pytestmark = pytest.mark.usefixtures("temporary")
CVODE, EULER, RK4 = Solver(), Solver("euler", micro_steps=5), Solver("rk4")
versions = pytest.mark.parametrize("version", [2, 3])


def exchanged(path: Path, solver: Solver | None = None, **given: Any) -> Fmu:
    return Fmu(path, options=FmuOptions(solver=solver), **{"isolate": False, **given})


def stepped(unit: Fmu, h: float, steps: int) -> np.ndarray:
    """The outputs at all communication points."""
    instance = unit.instantiate(0.0)
    instance.finish_initialisation()
    rows = [instance.read()]
    for k in range(steps):
        instance.step(k * h, h)
        rows.append(instance.read())
    instance.close()
    return np.array(rows)


def ball(t: float, e: float = 0.7, g: float = 9.81) -> tuple[float, float]:
    """Height and velocity of a ball that falls from 1 m and has not come to rest yet."""
    begin, speed = math.sqrt(2.0 / g), math.sqrt(2.0 * g)
    if t < begin:
        return 1.0 - g * t * t / 2.0, -g * t
    while True:
        speed *= e
        if t < begin + 2.0 * speed / g:
            return speed * (t - begin) - g * (t - begin) ** 2 / 2.0, speed - g * (t - begin)
        begin += 2.0 * speed / g


# ---- against exact solutions -----------------------------------------------------------------------------------------


@versions
@pytest.mark.parametrize(("solver", "close"), [(CVODE, 2e-5), (RK4, 1e-9)])
def test_a_ball_bounces_where_it_must(tmp_path: Path, version: int, solver: Solver, close: float) -> None:
    """Of order 2 in time, its flight is exact with Runge-Kutta: what remains is how bounces are located.

    CVODE is late or early at a bounce by its tolerance; five bounces multiply that by 2 g (1 + e) at most.
    """
    rows = stepped(exchanged(build_model(tmp_path, "BALL", version), solver), 0.05, 40)
    exact = [ball(0.05 * k) for k in range(41)]
    assert np.abs(rows - exact).max() < close


@versions
def test_a_ball_comes_to_rest(tmp_path: Path, version: int) -> None:
    rows = stepped(exchanged(build_model(tmp_path, "BALL", version)), 0.1, 40)
    assert rows[-1].tolist() == [0.0, 0.0]


@pytest.mark.one_in(2)
@versions
def test_a_stiff_oscillator(tmp_path: Path, version: int) -> None:
    """Beyond the fast transition of van der Pol's oscillator with μ = 1000 (at t ≈ 807)."""
    rows = stepped(exchanged(build_model(tmp_path, "OSCILLATOR", version)), 10.0, 100)

    def f(_: float, x: np.ndarray) -> list[float]:
        return [x[1], 1000.0 * (1.0 - x[0] ** 2) * x[1] - x[0]]

    times = np.linspace(0.0, 1000.0, 101)
    exact = solve_ivp(f, (0.0, 1000.0), [2.0, 0.0], method="Radau", rtol=1e-10, atol=1e-12, t_eval=times).y.T
    assert np.abs(rows[:, 0] - exact[:, 0]).max() < 1e-4
    assert rows[:, 0].min() < -1.0


@versions
@pytest.mark.parametrize("solver", [CVODE, EULER])
def test_stairs_rise_at_their_times(tmp_path: Path, version: int, solver: Solver) -> None:
    """Also where the event falls on a communication point but for rounding, and where several are in a step."""
    unit = exchanged(build_model(tmp_path, "STAIRS", version), solver)
    assert stepped(unit, 0.05, 40)[:, 0].tolist() == [k // 2 for k in range(41)]
    assert stepped(unit, 0.35, 4)[:, 0].tolist() == [0, 3, 7, 10, 14]


@versions
def test_an_event_after_a_step_of_the_integrator(tmp_path: Path, version: int) -> None:
    """With a micro step of 0.3, x = 1.2 is the first that is beyond 1."""
    flags = 'needsCompletedIntegratorStep="true"' if version == 3 else ""
    unit = exchanged(build_model(tmp_path, "SAW", version, flags=flags), Solver("euler", micro_steps=2))
    assert stepped(unit, 0.6, 3)[:, 0] == pytest.approx([0.0, 0.6, 0.0, 0.6])
    other = 'completedIntegratorStepNotNeeded="true"' if version == 2 else ""
    unit = exchanged(build_model(tmp_path, "SAW", version, flags=other, file="unheard.fmu"), Solver("euler"))
    assert stepped(unit, 0.6, 3)[:, 0] == pytest.approx([0.0, 0.6, 1.2, 1.8])


A, B = np.array([[0.0, 1.0], [-4.0, -0.4]]), np.array([[0.0], [1.0]])


def exact_step(x: np.ndarray, coefficients: list[float], h: float) -> np.ndarray:
    """x(h) for u(t) = Σ c_j (t/h)^j: the states of u are appended, and the exponential of the whole taken."""
    n = len(coefficients)
    whole = np.zeros((2 + n, 2 + n))
    whole[:2, :2], whole[:2, 2:3] = A, B
    for j in range(n - 1):
        whole[2 + j, 3 + j] = 1.0
    derivatives = [math.factorial(j) * c / h**j for j, c in enumerate(coefficients)]
    return (expm(whole * h) @ [*x, *derivatives])[:2]


@versions
@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("coefficients", [[1.0], [1.0, 0.5], [1.0, 0.5, -0.7]])
def test_inputs_are_polynomials_within_the_step(
    tmp_path: Path, version: int, isolate: bool, coefficients: list[float]
) -> None:
    unit = exchanged(build_model(tmp_path, "LINEAR", version), Solver(relative_tolerance=1e-9), isolate=isolate)
    instance = unit.instantiate(0.0)
    x = np.zeros(2)
    for k in range(5):
        instance.set_input(np.array(coefficients)[:, None], 0.2)
        instance.step(0.2 * k, 0.2)
        x = exact_step(x, coefficients, 0.2)
        assert instance.read() == pytest.approx([x[0]], abs=1e-9)


def euler_matrix(h: float) -> np.ndarray:
    return np.linalg.matrix_power(np.eye(2) + A * h / 5, 5)


def runge_kutta_matrix(h: float) -> np.ndarray:
    return sum(np.linalg.matrix_power(A * h, j) / math.factorial(j) for j in range(5))


@versions
@pytest.mark.parametrize(("solver", "matrix"), [(EULER, euler_matrix), (RK4, runge_kutta_matrix)])
def test_fixed_steps_make_the_map_they_should(
    tmp_path: Path, version: int, solver: Solver, matrix: Callable[[float], np.ndarray]
) -> None:
    unit = exchanged(build_model(tmp_path, "LINEAR", version), solver, start={"x": 1.0})
    x = np.array([1.0, 0.0])
    for row in stepped(unit, 0.1, 20):
        assert row == pytest.approx([x[0]], abs=1e-14)
        x = matrix(0.1) @ x


def test_a_micro_step_in_seconds_divides_the_macro_step(tmp_path: Path) -> None:
    path = build_model(tmp_path, "LINEAR")
    rows = [
        stepped(exchanged(path, solver, start={"x": 1.0}), 0.1, 5)
        for solver in (
            Solver("euler", micro_steps=4),
            Solver("euler", micro_step=0.03),
            Solver("euler", micro_step=0.025),
        )
    ]
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])


# ---- saved states ----------------------------------------------------------------------------------------------------


@versions
@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("model", ["BALL", "LINEAR", "STAIRS"])
def test_a_repeated_step_has_the_same_bits(tmp_path: Path, version: int, isolate: bool, model: str) -> None:
    unit = exchanged(build_model(tmp_path, model, version), isolate=isolate)
    instance, undisturbed = unit.instantiate(0.0), unit.instantiate(0.0)
    for k in range(10):
        for one in (instance, undisturbed):
            one.set_input(np.full((1, len(unit.inputs)), math.sin(k)), 0.1)
        state = instance.save()
        instance.step(0.1 * k, 0.1)
        first = instance.read()
        instance.restore(state)
        instance.step(0.1 * k, 0.1)
        undisturbed.step(0.1 * k, 0.1)
        assert instance.read().tolist() == first.tolist() == undisturbed.read().tolist()
    other = unit.instantiate(0.0)
    other.deserialise(instance.serialise())
    for one in (instance, other):
        one.step(1.0, 0.1)
    assert instance.read().tolist() == other.read().tolist()


# ---- runs ------------------------------------------------------------------------------------------------------------


@versions
@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_both_engines_and_a_process_of_its_own_agree(tmp_path: Path, version: int, isolate: bool, order: int) -> None:
    """Two oscillators push each other; the kernel and the interpreter give the same bits."""
    path = build_model(tmp_path, "LINEAR", version)
    units = {name: exchanged(path, isolate=isolate, name=name, start={"x": x}) for name, x in (("a", 1.0), ("b", 0.0))}
    system = co.System(units, [("a.y", "b.u"), ("b.y", "a.u")])
    master = co.masters.gauss_seidel(system, step=0.05, coupling=co.couplings.Hold(order))
    rows = [co.run(system, master, stop=2.0, engine=EngineOptions(kind)) for kind in ("kernel", "reference")]
    assert np.array_equal(rows[0].values, rows[1].values)


@versions
def test_the_end_that_a_unit_asks_for(tmp_path: Path, version: int) -> None:
    unit = exchanged(build_model(tmp_path, "STAIRS", version), parameters={"last": 7})
    system = co.System({"s": unit}, [])
    result = co.run(system, co.masters.jacobi(system, step=0.25), stop=5.0)
    assert (result.info["ended_by"], result["s.y"][-1]) == ("s", 7.0)
    assert result.info["ended_at"] == pytest.approx(0.7)


@pytest.mark.sandbox
@versions
def test_a_sandbox_shows_the_solver(tmp_path: Path, version: int) -> None:
    path = build_model(tmp_path, "BALL", version)
    rows = [stepped(exchanged(path, isolate=how), 0.1, 10) for how in (Isolation(sandbox=True), False)]
    assert np.array_equal(rows[0], rows[1])


# ---- against FMPy ----------------------------------------------------------------------------------------------------


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """FMPy looks all functions up, also those that nobody calls."""
    for kind in ("fmpy.fmi2.FMU2Model", "fmpy.fmi3.FMU3Model"):
        monkeypatch.setattr(f"{kind}._loadFunctions", lambda self: setattr(self, "_functions", LazyFunctions(self)))


@pytest.mark.usefixtures("lenient")
@versions
@pytest.mark.parametrize(("model", "close"), [("BALL", 1e-4), ("LINEAR", 1e-5), ("STAIRS", 0.0)])
def test_fmpy_finds_the_same(tmp_path: Path, version: int, model: str, close: float) -> None:
    from fmpy import simulate_fmu

    path = build_model(tmp_path, model, version)
    start = {"x": 1.0} if model == "LINEAR" else {}
    h, steps = 0.0625, 16
    rows = stepped(exchanged(path, Solver(relative_tolerance=1e-6), start=start), h, steps)
    found = simulate_fmu(
        str(path), stop_time=h * steps, output_interval=h, relative_tolerance=1e-6, start_values=start, solver="CVode",
        record_events=False,
    )  # fmt: skip
    names = exchanged(path).outputs
    theirs = np.array([found[name] for name in names]).T
    assert np.abs(rows - theirs).max() <= close


# ---- what is asked for -----------------------------------------------------------------------------------------------


def test_the_kind_is_chosen_or_what_there_is(tmp_path: Path) -> None:
    both = {"<CoSimulation": '<ModelExchange modelIdentifier="lag2"/><CoSimulation'}
    path = build(tmp_path, "lag2", changes=both)
    assert (Fmu(path).kind, Fmu(path).solver, Fmu(path).offered) == (
        "co-simulation", None, ("co-simulation", "model-exchange"),
    )  # fmt: skip
    assert Fmu(path, options=FmuOptions(kind="model-exchange")).solver == Solver()
    assert Fmu(build_model(tmp_path, "SAW")).kind == "model-exchange"
    with pytest.raises(ConfigurationError, match=r"leave the solver out or use it for model exchange \(kind"):
        Fmu(path, options=FmuOptions(solver=Solver()))
    with pytest.raises(ConfigurationError, match=r"saw2.fmu' is for model-exchange only, not for co-simulation"):
        Fmu(tmp_path / "saw2.fmu", options=FmuOptions(kind="co-simulation"))
    with pytest.raises(UnknownNameError, match="did you mean 'model-exchange'"):
        FmuOptions(kind="model-exchang")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "cvod"}, "did you mean 'cvode'"),
        ({"relative_tolerance": -1e-6}, "is -1e-06; give a number between 0 and 1"),
        ({"relative_tolerance": math.nan}, "is nan; give"),
        ({"name": "rk4", "relative_tolerance": 1e-3}, "'rk4' has fixed steps and no tolerance"),
        ({"micro_steps": 2}, "CVODE chooses its steps itself"),
        ({"name": "rk4", "micro_steps": 0}, "micro-steps = 0; give 1 or more"),
        ({"name": "rk4", "micro_step": -1.0}, "is -1; give a positive time"),
        ({"name": "rk4", "micro_step": 0.1, "micro_steps": 2}, "micro-steps or micro-step, not both"),
    ],
)
def test_solvers_that_make_no_sense(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Solver(**given)


# ---- what goes wrong -------------------------------------------------------------------------------------------------


@versions
@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("solver", [CVODE, RK4])
@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ("fail_at", r"its solver stopped at t = 0\.\d+: fmi{0}Get\w*Derivatives returned fmi{0}Error at t = 0\.3"),
        ("nan_at", r"its solver stopped at t = 0\.\d+: the derivative of state 'v' is -?nan at t = 0\.3"),
    ],
)
def test_derivatives_that_fail(
    tmp_path: Path, version: int, isolate: bool, solver: Solver, parameter: str, said: str
) -> None:
    path = build_model(tmp_path, "LINEAR", version)
    unit = exchanged(path, solver, isolate=isolate, parameters={parameter: 0.3})
    with pytest.raises(UnitError, match=rf"fmi{version}DoStep from t = 0\.[23].*" + said.format(version)):
        stepped(unit, 0.1, 10)


@pytest.mark.parametrize("isolate", [False, True])
def test_no_solver_library(tmp_path: Path, isolate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_exchange, "sundials", lambda: (tmp_path / "core.so", tmp_path / "cvode.so"))
    path = build_model(tmp_path, "SAW")
    with pytest.raises(ConfigurationError, match=r"saw2.fmu' cannot be loaded: the solver CVODE .* the solver euler"):
        exchanged(path, isolate=isolate).instantiate()
    assert stepped(exchanged(path, EULER, isolate=isolate), 0.1, 1)[-1] == pytest.approx([0.1])


@pytest.mark.parametrize("isolate", [False, True])
def test_a_library_without_derivatives(tmp_path: Path, isolate: bool) -> None:
    unit = exchanged(build_model(tmp_path, "SAW", defines=("NO_DERIVATIVES",)), isolate=isolate)
    with pytest.raises(UnitError, match="its library has no function fmi2GetDerivatives"):
        unit.instantiate()


@versions
def test_discrete_states_that_never_settle(tmp_path: Path, version: int) -> None:
    unit = exchanged(build_model(tmp_path, "STAIRS", version, defines=("UNSETTLED",)))
    with pytest.raises(UnitError, match="its discrete states do not settle at t = 0; contact its supplier"):
        stepped(unit, 0.1, 1)


@versions
def test_a_step_from_elsewhere(tmp_path: Path, version: int) -> None:
    instance = exchanged(build_model(tmp_path, "SAW", version)).instantiate(0.0)
    instance.step(0.0, 0.1)
    with pytest.raises(UnitError, match=r"it was to step from t = 0\.3 but is at t = 0\.1"):
        instance.step(0.3, 0.1)
