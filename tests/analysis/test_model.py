"""What is known of a system before it is run: when the linear picture holds, and that its errors are those of runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cosimo.analysis import analyse
from cosimo.analysis import model as modelling
from cosimo.analysis.cost import Cost
from cosimo.analysis.model import Measured, Model, _extrapolate, _settled
from cosimo.analysis.recommendation import judge_point
from cosimo.analysis.truth import OutputErrors, default_horizon, output_errors
from cosimo.core.errors import ConfigurationError, NonFiniteError
from cosimo.core.schedule import Convergence
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.masters import gauss_seidel, iterative, jacobi, jacobi_early_read
from cosimo.problems import find
from cosimo.units import Exact, PythonUnit, StateSpace


class Lag:
    """ẋ = −x + u, exact for a held u."""

    inputs, outputs = ("u",), ("y",)

    def __init__(self) -> None:
        self.u, self.y = 0.0, 1.0

    def step(self, time: float, duration: float) -> None:
        self.y = self.u + (self.y - self.u) * math.exp(-duration)


class Bent(Lag):
    """ẏ = −y³ / 4 + u, by many small steps: linear near 0 only, and it starts at 1."""

    def step(self, time: float, duration: float) -> None:
        for _ in range(20):
            self.y += duration / 20 * (self.u - self.y**3 / 4)


class Broken(Lag):
    def step(self, time: float, duration: float) -> None:
        raise ValueError("out of order")


class Deaf(Lag):
    def step(self, time: float, duration: float) -> None:
        pass


class Jumpy(Lag):
    """Answers a pulse by its sign alone."""

    def step(self, time: float, duration: float) -> None:
        self.y = 0.5 * self.y + (0.5 if self.u > 0 else -0.5) * duration


def lag(rate: float, **more: Any) -> StateSpace:
    return StateSpace(-rate, rate, 1.0, inputs=["u"], outputs=["y"], integrator=Exact(), **more)


def loop(kind: type = Lag, gain: float = -1.0) -> System:
    units = {"a": PythonUnit(kind), "b": lag(2.0)}
    return System(units, [Connection("b.y", "a.u", gain=gain), ("a.y", "b.u")], name="loop")


def known(gain: float = -1.0, *, initial: float = 1.0) -> System:
    units = {"a": lag(1.0, initial=initial), "b": lag(2.0)}
    return System(units, [Connection("b.y", "a.u", gain=gain), ("a.y", "b.u")], name="loop")


# ---- when the picture holds ------------------------------------------------------------------------------------------


def test_known_units_are_taken_as_they_are() -> None:
    model = Model(known())
    assert model.known
    assert model.valid
    assert (model.doubt, model.failure, model.away) == ("", "", ())
    assert [unit.means for unit in model.units] == ["known", "known"]
    assert model.linearisation.unit_steps == 0
    assert model.at(0.3) is model.system
    assert (model.slack, model.instant) == (0.0, math.inf)
    assert sorted(model.poles, key=lambda p: p.imag) == pytest.approx(
        [complex(-1.5, -math.sqrt(7) / 2), complex(-1.5, math.sqrt(7) / 2)]
    )


def test_a_python_unit_that_is_linear_is_believed() -> None:
    model = Model(loop(), step=0.1, horizon=5.0)
    assert not model.known
    assert model.valid
    assert model.doubt == ""
    assert [unit.means for unit in model.units] == ["differences", "known"]
    assert model.slack == pytest.approx(1e-7 / model.local.step)
    assert model.instant == pytest.approx(20 / model.local.step)
    assert not model.grows


def test_a_motion_that_leaves_the_range_of_a_model_is_not_predicted() -> None:
    model = Model(loop(Bent), step=0.1, horizon=5.0)
    assert model.away == ("a",)
    assert not model.valid
    assert "the motion leaves the range where the linear model of a holds (outputs differ by" in model.doubt


def test_a_unit_that_cannot_be_identified_is_named() -> None:
    model = Model(loop(Broken), step=0.1, horizon=5.0)
    assert not model.valid
    assert model.doubt == model.failure == "a could not be identified"
    assert model.base is None
    with pytest.raises(ConfigurationError, match="there is no linear model of 'loop'"):
        _ = model.local
    assert [unit.valid for unit in model.units] == [False, True]


def test_a_unit_that_never_changes_is_believed() -> None:
    model = Model(loop(Deaf), step=0.1, horizon=5.0)
    assert model.valid
    assert model.units[0].poles == ()


def test_a_unit_that_fails_its_checks_is_named() -> None:
    model = Model(loop(Jumpy), step=0.1, horizon=5.0)
    assert not model.valid
    assert "a" in model.doubt


def test_without_identification_only_runs_count() -> None:
    model = Model(loop(), step=0.1, horizon=5.0, identify=False)
    assert not model.valid
    assert model.doubt == "no unit was identified"
    assert [unit.name for unit in model.units] == ["b"]
    assert model.linearisation.unit_steps == 0
    assert Model(known(), step=0.1, horizon=5.0, identify=False).valid


def test_what_pilot_runs_have_refuted_is_not_believed() -> None:
    model = Model(loop(), step=0.1, horizon=5.0)
    other = model.distrusted()
    assert model.valid
    assert not other.valid
    assert other.doubt == "pilot runs do not agree with it"
    assert other.pilots is model.pilots


# ---- steps and horizon -----------------------------------------------------------------------------------------------


def test_the_horizon() -> None:
    assert Model(known()).horizon == pytest.approx(default_horizon(Model(known()).poles))
    assert Model(known(), horizon=3.0).horizon == 3.0
    model = Model(loop(), step=0.1)
    assert model.horizon == pytest.approx(default_horizon(model.poles))
    assert Model(loop(Broken), step=0.1).horizon == pytest.approx(100.0)  # a thousand steps
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigurationError, match="horizon"):
            Model(known(), horizon=wrong)


def test_the_step_of_identification() -> None:
    assert Model(loop(), horizon=5.0).step == pytest.approx(5e-3)  # a thousandth of the horizon
    assert Model(loop(), step=0.2, horizon=5.0).step == 0.2
    with pytest.raises(ConfigurationError, match="the equations of a are not known"):
        Model(loop())
    suggested = loop()
    suggested.units["a"].suggested_step = 0.05
    suggested.units["b"].suggested_step = 0.02
    assert Model(suggested).step == 0.02


# ---- errors ----------------------------------------------------------------------------------------------------------

MASTERS = {
    "jacobi": lambda s: jacobi(s, 0.1),
    "gauss-seidel": lambda s: gauss_seidel(s, 0.1, coupling=Hold(1)),
    "two sweeps": lambda s: iterative(s, 0.05, sweeps=2),
    "early read": lambda s: jacobi_early_read(s, 0.1),
}


@pytest.mark.parametrize("name", MASTERS)
def test_what_is_predicted_is_what_is_measured(name: str) -> None:
    system = known(-3.0)
    model, master = Model(system, horizon=4.0), MASTERS[name](system)
    predicted, measured = model.predict(master), model.measure(master)
    assert predicted.kind == "predicted"
    assert measured.errors.kind == "measured"
    assert predicted.worst > 1e-4
    assert measured.errors.outputs == pytest.approx(predicted.outputs, rel=1e-6)
    assert measured.errors.typical == pytest.approx(predicted.typical, rel=1e-6)
    assert measured.error == measured.errors.worst
    assert (measured.diverged, measured.reference_error) == (None, 0.0)
    assert predicted.horizon == measured.errors.horizon == 4.0


@pytest.mark.parametrize("name", ["jacobi", "two sweeps"])
def test_of_identified_units_too(name: str) -> None:
    system = loop(gain=-3.0)
    model, master = Model(system, step=0.1, horizon=4.0), MASTERS[name](system)
    predicted = model.predict(master)
    same = Model(known(-3.0), horizon=4.0).predict(MASTERS[name](known(-3.0)))
    assert predicted.outputs == pytest.approx(same.outputs, rel=1e-6)
    rows = run(system, master, stop=4.0).values
    measured = output_errors(system, master, rows, model.truth(master.step), 4.0, "measured")
    assert predicted.outputs == pytest.approx(measured.outputs, rel=1e-6)
    piloted = model.measure(master)
    assert piloted.errors.worst == pytest.approx(predicted.worst, rel=0.1)
    assert 0 < piloted.reference_error <= 0.1 * piloted.errors.worst


def test_quick_errors_of_exact_units_are_the_full_ones() -> None:
    system = known(-3.0)
    model = Model(system, horizon=4.0)
    for name in MASTERS:
        master = MASTERS[name](system)
        assert model.predict_coupling(master).outputs == pytest.approx(model.predict(master).outputs, rel=1e-9)


def test_nothing_moves() -> None:
    model = Model(known(initial=0.0), horizon=4.0)
    assert model.rests
    found = model.predict(jacobi(model.system, 0.1))
    assert found.any_start
    assert found.horizon == 4.0
    assert found.worst > 0
    with pytest.raises(ConfigurationError, match="at rest"):
        model.measure(jacobi(model.system, 0.1))
    assert not Model(known(), horizon=4.0).rests


def test_the_system_itself_grows() -> None:
    assert Model(known(gain=2.0), horizon=1.0).grows
    assert not Model(known(gain=0.5), horizon=1.0).grows
    assert not Model(known(gain=1.0), horizon=1.0).grows  # it stays where it is


def test_a_run_that_diverges_is_measured_as_infinite() -> None:
    system = known(gain=-400.0)
    found = Model(system, horizon=200.0).measure(jacobi(system, 0.2))
    assert math.isinf(found.error)
    assert found.diverged is not None


def test_what_was_not_measured_is_no_number() -> None:
    assert math.isnan(Measured(OutputErrors({}, 1.0, "measured"), 0.0).error)


# ---- the truth of units with solvers of their own --------------------------------------------------------------------


class Euler(Lag):
    """ẋ = −x + u by forward Euler with one step per macro step: its error depends on the macro step."""

    def step(self, time: float, duration: float) -> None:
        self.y += duration * (self.u - self.y)


def test_the_truth_is_what_the_solvers_tend_to() -> None:
    """Not what they make of the equations at the master's step: the error of the solver counts."""
    system = loop(Euler, gain=-1.0)
    model = Model(system, step=0.1, horizon=4.0)
    assert model.base is not None
    assert not model.base.exact
    master = jacobi(system, 0.1)
    rows = run(system, master, stop=4.0).values
    true = Model(known(-1.0), horizon=4.0).truth(0.1)
    expected = output_errors(system, master, rows, true, 4.0, "measured")
    assert model.predict(master).outputs == pytest.approx(expected.outputs, rel=0.05)
    # Without the solver's own error, which is of the other sign here, it would be a third more.
    assert model.predict_coupling(master).worst > 1.2 * expected.worst


def test_when_a_truth_has_settled() -> None:
    rows = np.zeros((3, 2))
    last = np.array([[1.0, 1.0]] * 3)
    assert _settled([last + 0.019, last], rows)
    assert not _settled([last + 0.021, last], rows)
    assert not _settled([last + np.array([0.0, 0.021]), last], rows)
    exact = last.copy()
    assert _settled([last + 0.9e-9, last], exact)
    assert not _settled([last + 1.5e-9, last], exact)


def test_three_levels_are_extrapolated_where_they_agree() -> None:
    t = np.linspace(0, 1, 11)[:, None]
    final, shape = np.cos(t), t * (1 - t)
    levels = [final + shape * 0.1 / 2**k for k in range(4)]
    assert _extrapolate(levels) == pytest.approx(final, abs=1e-12)
    assert _extrapolate([final, final + shape, final]) is None
    assert _extrapolate([levels[0], levels[1], np.full_like(final, np.nan)]) is None


def test_notes_of_a_system_that_does_not_initialise() -> None:
    class Moody(Lag):
        def __init__(self) -> None:
            raise RuntimeError("not today")

    model = Model(loop(Moody), step=0.1, horizon=5.0)
    assert any("does not initialise" in note and "not today" in note for note in model.notes)
    assert not model.valid
    assert modelling.STEPS == 1000


def test_an_iteration_that_diverges_is_unstable_for_every_verb_although_its_fixed_point_decays() -> None:
    """Plain substitution multiplies the error by 2.5 per sweep; Φ of the fixed point, which no run reaches, decays."""
    system = find("dc-motor").system()
    master = iterative(system, 0.05, sweeps=Convergence())
    model = Model(system, horizon=0.5)
    assert model.spectrum(master).stays_bounded() is True
    assert model.stability(master)[:2] == (False, False)
    assert min(model.predict(master).outputs.values()) == np.inf
    assert judge_point(model, master, Cost()).stable is False
    verdict = analyse(system, master, horizon=0.5)
    assert (verdict.stable, verdict.trust) == (False, "no")
    assert "feeds energy" not in str(verdict)
    with pytest.raises(NonFiniteError, match=r"motor\.speed became inf"):
        run(system, master, stop=0.5)
    helped = iterative(system, 0.05, sweeps=Convergence(anderson=3))
    assert model.stability(helped)[:2] == (True, True)
    assert max(model.predict(helped).outputs.values()) < 1
