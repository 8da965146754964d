"""First crossings that can be worked out by hand, and what is searched for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cosimo import masters, problems
from cosimo.algebra import Batch, LinearSystem, product
from cosimo.analysis import critical
from cosimo.analysis.critical import ChangingSteps, changing_steps, critical_step
from cosimo.analysis.spectrum import Spectrum
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.adaptive.variable import Lengths, VariableInterpreter, choose_lengths
from cosimo.execution.live import Live
from cosimo.execution.options import Adaptive
from cosimo.problems import find
from cosimo.units import Exact, ForwardEuler, StateSpace
from thinning import mostly_slow


def fed_back(gain: float, rate: float = 1.0) -> System:
    """ẋ = −r x + r u with u = −gain x through a unit that only passes it on.

    Held over a step, x' = e^{−rh} x − gain (1 − e^{−rh}) x_before.
    """
    lag = StateSpace(-rate, rate, 1.0, initial=1.0, integrator=Exact(), inputs=["u"], outputs=["y"])
    passing = StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), 1.0, inputs=["u"], outputs=["y"])
    return System({"lag": lag, "gain": passing}, [Connection("lag.y", "gain.u", gain=-gain), ("gain.y", "lag.u")])


def crossing(gain: float, build: Any = masters.gauss_seidel, rate: float = 1.0, step: float = 0.1) -> Any:
    system = fed_back(gain, rate)
    return critical_step(system, build(system, step))


@pytest.mark.parametrize("gain", [2.0, 3.0, 10.0])
@pytest.mark.parametrize("rate", [1.0, 250.0])
def test_a_delayed_feedback_by_hand(gain: float, rate: float) -> None:
    """Gauss–Seidel (lag, gain) feeds back x_k itself: x' = (a − g (1 − a)) x, a = e^{−rh}; −1 at a = (g−1)/(g+1)."""
    found = crossing(gain, rate=rate, step=0.1 / rate)
    assert found.step == pytest.approx(-math.log((gain - 1) / (gain + 1)) / rate, rel=1e-9)


@pytest.mark.parametrize("gain", [2.0, 3.0, 10.0])
def test_one_delay_more_by_hand(gain: float) -> None:
    """Jacobi feeds back x_{k−1}: μ² − a μ + g (1 − a) = 0 leaves the circle as a pair when g (1 − a) = 1."""
    assert crossing(gain, masters.jacobi).step == pytest.approx(-math.log(1 - 1 / gain), rel=1e-9)


@pytest.mark.parametrize("step", [1e-3, 0.1, 5.0])
def test_its_own_step_only_sets_the_scale(step: float) -> None:
    assert crossing(3.0, step=step).step == pytest.approx(math.log(2), rel=1e-9)


@pytest.mark.parametrize("gain", [2.0, 3.0])
def test_an_undamped_generator_that_nothing_feeds_says_nothing(gain: float) -> None:
    """Its eigenvalues lie on the circle at every step; they are those of no coupling."""
    system = fed_back(gain)
    wave = StateSpace([[0.0, 2.0], [-2.0, 0.0]], np.zeros((2, 0)), [[1.0, 0.0]], initial=[1.0, 0.0], outputs=["y"])
    joined = System({**system.units, "wave": wave}, [link.connection for link in system.links])
    alone, beside = (
        critical_step(one, masters.gauss_seidel(one, 0.1, order=["lag", "gain", "wave"][: len(one.units)]))
        for one in (system, joined)
    )
    assert alone is not None
    assert beside is not None
    assert alone.step == pytest.approx(-math.log((gain - 1) / (gain + 1)), rel=1e-9)
    assert beside.step == pytest.approx(alone.step, rel=1e-6)


def test_forward_euler_by_hand() -> None:
    """1 − 4 h = −1."""
    unit = StateSpace(-4.0, 1.0, 1.0, initial=1.0, integrator=ForwardEuler())
    system = System({"a": unit}, inputs={"a.u1": 0.0})
    assert critical_step(system, masters.jacobi(system, 0.1)).step == pytest.approx(0.5, rel=1e-9)


def test_a_loop_gain_below_one_is_stable_at_every_step() -> None:
    found = crossing(0.5)
    assert math.isinf(found.step)
    # A ten-thousandth to a hundred times 1/|λ| of the fastest mode, 1.5 1/s here.
    assert found.searched == pytest.approx((1e-4 / 1.5, 100 / 1.5))


@pytest.mark.parametrize(("step", "searched"), [(1e-6, (1e-6, 100 / 1.5)), (30.0, (1e-4 / 1.5, 300.0))])
def test_the_search_reaches_beyond_the_step_of_the_master(step: float, searched: tuple[float, float]) -> None:
    assert crossing(0.5, step=step).searched == pytest.approx(searched)


def test_the_points_searched_lie_six_per_cent_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[np.ndarray] = []

    class Spy(Batch):
        def again(self, steps: Any, gains: Any = None) -> Batch:
            tried.append(steps)
            return super().again(steps, gains)

    monkeypatch.setattr(critical, "Batch", Spy)
    crossing(3.0)
    assert tried[0][1:] / tried[0][:-1] == pytest.approx(np.full(239, 10 ** (6 / 239)))


def test_nothing_that_moves_takes_the_step_of_the_master_as_its_scale() -> None:
    unit = StateSpace(0.0, 1.0, 1.0, initial=1.0)
    system = System({"a": unit, "b": StateSpace(0.0, 1.0, 1.0)}, [("a.y1", "b.u1")], inputs={"a.u1": 0.0})
    found = critical_step(system, masters.jacobi(system, 0.2))
    assert math.isinf(found.step)
    assert found.searched == pytest.approx((0.2e-4, 20.0))


def test_a_system_that_grows_has_none() -> None:
    unit = StateSpace(0.5, 1.0, 1.0, initial=1.0)
    system = System({"a": unit}, inputs={"a.u1": 0.0})
    assert critical_step(system, masters.jacobi(system, 0.1)) is None


def test_unstable_however_small() -> None:
    """An oscillator cut between position and velocity: ρ = 1 + O(h²)."""
    units = {name: StateSpace(0.0, 1.0, 1.0, initial=1.0, integrator=Exact()) for name in ("x", "v")}
    system = System(units, [Connection("v.y1", "x.u1"), Connection("x.y1", "v.u1", gain=-1.0)])
    found = critical_step(system, masters.jacobi(system, 0.1))
    assert (found.step, found.searched) == (0.0, pytest.approx((1e-4, 100.0)))


@pytest.mark.parametrize("gain", [1.2, 2.0, 7.0])
def test_just_below_stable_and_just_above_not(gain: float) -> None:
    system = fed_back(gain)
    step = crossing(gain).step
    for factor, stable in ((1 - 1e-6, True), (1 + 1e-6, False)):
        master = masters.gauss_seidel(system, step * factor)
        assert Spectrum(LinearSystem(system, master)).stable is stable


def test_a_meter_does_not_change_it() -> None:
    system = fed_back(3.0)
    meter = StateSpace(0.0, 1.0, 1.0, integrator=Exact(), inputs=["u"], outputs=["y"])
    more = System({**system.units, "meter": meter}, [*system.connections, ("lag.y", "meter.u")])
    assert critical_step(more, masters.gauss_seidel(more, 0.1)).step == pytest.approx(math.log(2), rel=1e-9)


@pytest.mark.parametrize("step", [0.1, 0.5, 5.0])
def test_large_systems_between_two_proofs(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty loops, of which the one with the largest gain is the first to grow."""
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    loops = {number: fed_back(3.0 if number == 7 else 1.5 + 0.02 * number) for number in range(30)}
    units = {f"{name}{number}": unit for number, one in loops.items() for name, unit in one.units.items()}
    connections = [
        Connection(f"{c.source.replace('.', f'{number}.')}", f"{c.target.replace('.', f'{number}.')}", c.gain)
        for number, one in loops.items()
        for c in one.connections
    ]
    system = System(units, connections)
    found = critical_step(system, masters.gauss_seidel(system, step))
    assert found is not None
    assert found.between is not None
    low, high = found.between
    assert found.step == low < math.log(2) < high < 1.002 * math.log(2)
    assert low > 0.39 * high


@pytest.mark.parametrize("stiffness", [1.0, 9.0])
def test_what_is_neither_damped_nor_fed_has_a_critical_step(stiffness: float) -> None:
    """Two integrators in a ring: x'' = −k x by the symplectic Euler method, which is stable up to h = 2 / √k."""
    units = {name: StateSpace(0.0, 1.0, 1.0, initial=1.0, inputs=["u"], outputs=["y"]) for name in "ab"}
    system = System(units, [Connection("b.y", "a.u", gain=-stiffness), ("a.y", "b.u")])
    for identified in (False, True):
        found = critical_step(system, masters.gauss_seidel(system, 0.1), identified=identified)
        assert found is not None
        assert found.step == pytest.approx(2 / math.sqrt(stiffness), rel=1e-6)
        grows = critical_step(system, masters.jacobi(system, 0.1), identified=identified)
        assert grows is not None
        assert grows.step == 0


# ---- steps that change -----------------------------------------------------------------------------------------------


def lengths_of(system: System, step: float, **limits: float) -> Lengths:
    return choose_lengths(Adaptive(**limits), step, 0.0, 20_000 * step)  # type: ignore[arg-type]


def bounds(system: System, master: Master, lengths: Lengths) -> ChangingSteps:
    steps = np.array(lengths.usual) * lengths.grid.quantum
    return changing_steps(system, master, steps, shrink=0.2, grow=2.0)


def largest_outputs(
    system: System, master: Master, lengths: Lengths, sequence: list[int], cycles: tuple[int, ...]
) -> list[float]:
    """The largest output in some cycles of a run that makes the macro steps of the sequence again and again."""
    live = Live(system, master.with_step(sequence[-1] * lengths.grid.quantum), 0.0)
    live.initialise()
    interpreter, place = VariableInterpreter(live, lengths.grid, sequence[-1]), 0
    outputs = []
    for parts in sequence * max(cycles):
        interpreter.lasting(parts).macro_step(place)
        place += parts
        outputs.append(np.abs(live.outputs()).max())
    length = len(sequence)
    return [float(max(outputs[(cycle - 1) * length : cycle * length]) / outputs[0]) for cycle in cycles]


@pytest.mark.parametrize("coupling", mostly_slow([Hold(0), Hold(1), Hold(2)], [Hold(0)]))
def test_a_growing_sequence_grows_when_it_is_run_although_no_equal_steps_do(coupling: Hold) -> None:
    """Lightly damped masses are pumped by steps that change in their rhythm: the run itself shows the rate."""
    system = problems.two_mass()
    master = masters.gauss_seidel(system, 1e-3, coupling=coupling)
    lengths = lengths_of(system, 1e-3, longest=6e-3)
    found = bounds(system, master, lengths)
    assert all(Spectrum(LinearSystem(system, master.with_step(h))).stable for h in set(found.sequence))
    assert (found.outcome, len(set(found.sequence)) > 1) == ("grows", True)
    sequence = [round(step / lengths.grid.quantum) for step in found.sequence]
    ratios = np.array(sequence) / np.roll(sequence, 1)
    assert ratios.min() >= 0.2
    assert ratios.max() <= 2.0
    few, many = largest_outputs(system, master, lengths, sequence, (80, 160))
    assert found.lower is not None
    assert math.log(many / few) / (80 * sum(found.sequence)) == pytest.approx(found.lower, rel=0.05)
    assert many > 2 * few


@pytest.mark.parametrize(("order", "longest"), [(0, 1.0), (1, 1.0), pytest.param(2, 0.22, marks=pytest.mark.slow)])
def test_what_is_certified_decays_for_random_steps(order: int, longest: float) -> None:
    problem = find("two-mass-glumac")
    system, step = problem.system(), problem.step
    master = masters.gauss_seidel(system, step, coupling=Hold(order))
    lengths = lengths_of(system, step, shortest=longest * step / 16, longest=longest * step)
    found = bounds(system, master, lengths)
    assert (found.outcome, found.sequence, found.certified) == ("stable", (), found.longest)
    assert found.upper is not None
    assert found.lower is not None
    assert found.lower <= found.upper < 0
    rng, usual = np.random.default_rng(1), np.array(lengths.usual)
    long = usual[usual >= usual[-1] / 8]
    sequence = [int(usual[-1])]
    while len(sequence) < 100:
        sequence.append(int(rng.choice(long[long <= 2 * sequence[-1]])))
    few, many = largest_outputs(system, master, lengths, sequence, (1, round(6 / longest)))
    assert many < few / 2


def test_the_growth_of_equal_steps_is_found_and_the_limit_below_it_certified() -> None:
    system = problems.quarter_truck()
    master = masters.jacobi(system, 1e-3)
    found = bounds(system, master, lengths_of(system, 1e-3))
    (step,) = found.sequence
    radius = Spectrum(LinearSystem(system, master.with_step(step))).radius
    assert found.lower == pytest.approx(math.log(radius) / step)
    limit = critical_step(system, master)
    assert limit is not None
    assert found.certified is not None
    assert 0.9 * limit.step < found.certified < limit.step
    again = bounds(system, master, lengths_of(system, 1e-3, longest=found.certified))
    assert again.outcome == "stable"


@pytest.mark.parametrize(("size", "outcome"), [(0.5, "stable"), (0.63, "grows")])
def test_the_golden_ratio(size: float, outcome: str) -> None:
    """The joint spectral radius of [[1, 1], [0, 1]] and its transpose is (1 + √5)/2: that of their product, halved."""
    shear = size * np.array([[1.0, 1.0], [0.0, 1.0]])
    maps = np.array([[shear], [shear.T]])
    norm = critical._Norm(critical._StepMaps(np.array([1.0, 1.0]), maps, np.ones((2, 2, 1))))
    golden = math.log(size * (1 + math.sqrt(5)) / 2)
    assert bool((norm.sizes <= 1).all()) == (outcome == "stable")
    assert norm.growing(0.2, 2.0)[0] == pytest.approx(golden)
    assert norm.rate >= golden


def on_a_plane(count: int) -> System:
    """Masses in a row on a plane, with springs and dampers between them: where they are does not matter."""
    units, links = {}, []
    for i in range(count):
        sides = [side for side, there in (("left", i > 0), ("right", i < count - 1)) if there]
        A, B = [[0.0, 1.0], [-4.0 * len(sides), -len(sides)]], [[0.0, 0.0] * len(sides), [4.0, 1.0] * len(sides)]
        inputs = [f"{what}_{side}" for side in sides for what in "xv"]
        units[f"m{i}"] = StateSpace(A, B, np.eye(2), initial=[0.1 * i, 1.0], inputs=inputs, outputs=["x", "v"])
        for what in "xv" if i else ():
            links += [(f"m{i - 1}.{what}", f"m{i}.{what}_left"), (f"m{i}.{what}", f"m{i - 1}.{what}_right")]
    return System(units, links)


@pytest.mark.parametrize("kind", ["jacobi", "gauss_seidel"])
@pytest.mark.parametrize(("count", "order"), [(2, 0), (2, 1), (2, 2), pytest.param(3, 1, marks=pytest.mark.slow)])
def test_motion_of_constant_velocity_is_divided_out(count: int, order: int, kind: str) -> None:
    """Held positions lag, and brake common motion; straight lines and parabolas follow it at all steps."""
    system = on_a_plane(count)
    master = getattr(masters, kind)(system, 0.01, coupling=Hold(order))
    lengths = lengths_of(system, 0.01, shortest=2e-3, longest=0.02)
    found = bounds(system, master, lengths)
    assert (found.outcome, found.certified) == ("stable", found.longest)
    assert found.lower is not None
    assert found.lower > (-0.01 if order == 0 else -2)  # the brake is weak; what is left moves by springs and dampers
    rng = np.random.default_rng(0)
    sequence = [int(part) for part in rng.choice(lengths.usual, 50)]
    few, many = largest_outputs(system, master, lengths, sequence, (1, 2))
    assert many < 3 * few  # it moves on, and does no more


def test_the_corners_enclose_the_map_after_every_step() -> None:
    """Φ(h, h₁) of parabolas, from the corners and from the operations themselves, in both kinds of coordinates."""
    system = problems.quarter_truck()
    for kind in (masters.jacobi, masters.gauss_seidel):
        differences = critical._DividedDifferences(system, kind(system, 1e-3, coupling=Hold(2)))
        steps = np.array([1e-4, 3e-4, 1e-3])
        for scaled in (False, True):
            maps = differences.maps(steps, 2.0, scaled=scaled)
            assert (maps.weights >= 0).all()
            assert maps.weights.sum(axis=2) == pytest.approx(1.0)
            for j, before in list(enumerate(steps.tolist()))[1:]:  # the first is less than half as long
                true = differences._at(3e-4, scaled)(before, 7e-4)  # whatever the step before that one was
                assert maps.after()[1, j] == pytest.approx(true, rel=1e-7, abs=1e-9 * np.abs(true).max())


def test_what_is_not_decided_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    system = problems.quarter_truck()
    with pytest.raises(ConfigurationError, match="in a way for which no norm is looked for"):
        bounds(system, masters.jacobi(system, 1e-3, coupling=Hold(3)), lengths_of(system, 1e-3))
    lengths = lengths_of(system, 1e-3, shortest=2e-4, longest=4e-3)
    found = bounds(system, masters.jacobi(system, 1e-3, coupling=Hold(1)), lengths)
    assert (found.outcome, "no norm was found" in found.reason) == ("open", True)
    monkeypatch.setattr(critical, "MOST_STATES", 3)
    found = bounds(system, masters.jacobi(system, 1e-3), lengths)
    assert (found.outcome, found.reason) == ("open", "more than 3 numbers are carried from step to step")


def test_the_usual_lengths_are_all_that_a_controller_is_given() -> None:
    lengths = lengths_of(problems.quarter_truck(), 1e-3, shortest=3.1e-5, longest=2e-3)
    wanted = range(lengths.shortest, lengths.longest + 1)
    assert lengths.usual == sorted({lengths.first, *map(lengths.fit, wanted)})
