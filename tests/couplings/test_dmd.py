"""The predictors of the kernel, one by one: exact where they must be, and unharmed by whatever arrives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from thinning import examples

Array = npt.NDArray[np.float64]
STEP = 0.01
METHODS = ("recursive", "robust", "auto")


def predictor(n: int = 2, p: int = 1, *, method: str = "robust", window: int = 100, **options: Any) -> Any:
    given = {"centred": False, "delays": 0, "pairs": [(0, 1)] if n > 1 else [], "step": STEP, "tolerance": 1e-9}
    return import_module("cosimo._kernel").Predictor(n, p, method=method, window=window, **{**given, **options})


def follow(made: Any, x: Array, u: Array) -> Array:
    """The predictions along a record: row k is x̃_{k+1}."""
    ahead = np.empty(x.shape)
    made.follow(np.ascontiguousarray(x), np.ascontiguousarray(u), ahead)
    return ahead


def record(S: Array, u: Array, x0: Array) -> Array:
    """x_{k+1} = S [x_k; u_k]."""
    x = np.empty((len(u), len(x0)))
    now = x0
    for k in range(len(u)):
        x[k] = now
        now = S @ np.concatenate([now, u[k]])
    return x


def model(made: Any) -> tuple[Array, Array]:
    _, S, b = made.model()
    return np.reshape(S, (len(b), -1)), np.array(b)


# A damped oscillator under a force, by symplectic Euler.
OSCILLATOR = np.array([[1 - STEP**2 * 500, STEP * 0.99, STEP**2], [-STEP * 500, 0.99, STEP]])


def relative(ahead: Array, x: Array) -> Array:
    worst: Array = np.abs((ahead[:-1] - x[1:]) / np.abs(x).max(axis=0)).max(axis=1)
    return worst


# ---------------------------------------------------------------------------------------------- against batch oracles


# The recursion only with long windows: with short ones it drifts, see below.
@pytest.mark.parametrize(
    ("method", "window"), [*(("robust", w) for w in (3, 4, 7, 20, 21, 60)), ("recursive", 20), ("recursive", 60)]
)
def test_a_window_is_its_batch_least_squares(method: str, window: int) -> None:
    # Noise in every signal: nothing fits exactly, so that each pair of the window counts, and no other.
    rng = np.random.default_rng(window)
    x, u = rng.standard_normal((150, 2)), rng.standard_normal((150, 1))
    made = predictor(method=method, window=window, pairs=[])
    for k in range(150):
        ahead = np.array(made.advance(x[k], u[k]))
        first = max(0, k - window)
        if k - first < 3:
            continue
        Z, Y = np.hstack([x[first:k], u[first:k]]), x[first + 1 : k + 1]
        S = np.linalg.lstsq(Z, Y, rcond=None)[0].T
        assert ahead == pytest.approx(S @ np.concatenate([x[k], u[k]]), rel=1e-9, abs=1e-9 * np.abs(S).max())
        assert model(made)[0] == pytest.approx(S, rel=1e-9, abs=1e-9 * np.abs(S).max())


@pytest.mark.parametrize("window", [6, 30])
def test_a_centred_window_is_least_squares_with_a_constant(window: int) -> None:
    rng = np.random.default_rng(1)
    x, u = rng.standard_normal((90, 2)) + 7.0, rng.standard_normal((90, 1)) - 40.0
    made = predictor(window=window, centred=True)
    for k in range(90):
        ahead = np.array(made.advance(x[k], u[k]))
        first = max(0, k - window)
        if k - first < 4:
            continue
        Z = np.hstack([x[first:k], u[first:k], np.ones((k - first, 1))])
        S = np.linalg.lstsq(Z, x[first + 1 : k + 1], rcond=None)[0].T
        assert ahead == pytest.approx(S @ np.concatenate([x[k], u[k], [1.0]]), rel=1e-8)
        learned, offset = model(made)
        assert learned == pytest.approx(S[:, :3], rel=1e-7, abs=1e-8)
        assert offset == pytest.approx(S[:, 3], rel=1e-7)


def test_delays_see_hidden_states() -> None:
    # The position alone of an oscillator: x_{k+1} depends on x_k, x_{k-1} and the forces then.
    rng = np.random.default_rng(2)
    u = rng.standard_normal((400, 1))
    seen = np.ascontiguousarray(record(OSCILLATOR, u, np.array([1.0, 0.0]))[:, :1])
    blind = relative(follow(predictor(1, 1, window=20), seen, u), seen)
    informed = predictor(1, 1, window=20, delays=1)
    assert relative(follow(informed, seen, u), seen)[10:].max() < 1e-12
    assert blind[10:].max() > 1e-3
    assert informed.model()[0] == 2
    assert model(informed)[0].shape == (1, 4)


def test_it_agrees_with_pydmd() -> None:
    from pydmd import DMDc  # type: ignore[import-untyped]

    rng = np.random.default_rng(3)
    u = rng.standard_normal((40, 1))
    x = record(OSCILLATOR, u, np.array([1.0, 0.0])) + 1e-2 * rng.standard_normal((40, 2))
    made = predictor(window=30)
    follow(made, x, u)
    oracle = DMDc(svd_rank=-1, svd_rank_omega=-1)
    oracle.fit(x[9:].T, u[9:-1].T)
    # PyDMD keeps A in the coordinates of its basis.
    A = oracle.basis @ oracle.operator.as_numpy_array @ oracle.basis.T
    assert model(made)[0] == pytest.approx(np.hstack([A, oracle.B]), rel=1e-8, abs=1e-8)


# -------------------------------------------------------------------------------------------------------- the numerics


@pytest.mark.slow
@pytest.mark.parametrize("window", [5, 100])
def test_a_million_steps(window: int) -> None:
    rng = np.random.default_rng(4)
    u = rng.standard_normal((1_000_000, 1))
    x = record(OSCILLATOR, u, np.array([1.0, 0.0]))
    assert relative(follow(predictor(window=window), x, u), x)[10:].max() <= 1e-10


# Left alone the oscillator settles: after 20,000 steps nothing is left of the motion, after 3000 steps 3e-7 of it. If
# it is stopped then, the jump is learned by a model that looks that closely, and not by one with a larger tolerance.
@pytest.mark.parametrize("place", [0.0, 0.5])
@pytest.mark.parametrize(
    ("method", "window", "settling", "tolerance"),
    [
        ("robust", 5, 20_000, 1e-9),
        ("robust", 100, 20_000, 1e-9),
        ("auto", 1, 20_000, 1e-9),
        ("robust", 5, 3000, 1e-6),
        ("robust", 100, 3000, 1e-6),
    ],
)
@pytest.mark.one_in(3)
def test_rest_is_survived(method: str, window: int, settling: int, tolerance: float, place: float) -> None:
    rng = np.random.default_rng(5)
    force = 500 * place  # holds the oscillator where it rests
    u = np.concatenate([rng.standard_normal((300, 1)), np.zeros((settling, 1)), np.zeros((10_000, 1))]) + force
    x = record(OSCILLATOR, u, np.array([place, 0.0]))
    x[300 + settling :] = place, 0.0
    again = rng.standard_normal((50, 1)) + force
    x, u = np.vstack([x, record(OSCILLATOR, again, np.array([place, 0.0]))]), np.vstack([u, again])
    made = predictor(method=method, window=window, tolerance=tolerance)
    wrong = relative(follow(made, x, u), x)
    moved = 300 + settling + 10_000
    assert wrong[20 : 300 + settling - 1].max() <= 1e-10
    assert wrong[moved:].max() <= 1e-9


def test_the_recursion_drifts_where_the_default_does_not() -> None:
    rng = np.random.default_rng(6)
    u = rng.standard_normal((100_000, 1))
    x = record(OSCILLATOR, u, np.array([1.0, 0.0]))
    paper, ours = (relative(follow(predictor(method=m, window=5), x, u), x)[10:].max() for m in ("recursive", "robust"))
    assert ours < 1e-13
    assert paper > 1e3 * ours


def test_three_pairs_determine_the_model() -> None:
    # As for pikulinski2025, Eq. 24. Before anything is learned, the kinematic prior stands.
    u = np.array([[0.0], [3.0], [-1.0], [2.0]])
    x = record(OSCILLATOR, u, np.array([1.0, 2.0]))
    made = predictor(window=100)
    ahead = follow(made, x, u)
    assert ahead[0] == pytest.approx([1.0 + STEP * 2.0, 2.0])
    assert ahead[3] == pytest.approx(OSCILLATOR @ np.concatenate([x[3], u[3]]), rel=1e-10)
    assert model(made)[0] == pytest.approx(OSCILLATOR, rel=1e-8, abs=1e-10)


def test_the_papers_start_holds_until_two_pairs() -> None:
    u = np.array([[0.0], [3.0], [-1.0], [2.0], [1.0]])
    x = record(OSCILLATOR, u, np.array([1.0, 2.0]))
    made = predictor(method="recursive")
    charge = []
    for k in range(5):
        ahead = np.array(made.advance(x[k], u[k]))
        charge.append(made.experts[made.expert])
        if k == 2:
            Z, Y = np.hstack([x[:2], u[:2]]), x[1:3]
            least = np.linalg.pinv(Z) @ Y
            assert ahead == pytest.approx(np.concatenate([x[2], u[2]]) @ least, rel=1e-9)
        if k < 2:
            assert np.array_equal(ahead, x[k])
    assert charge == ["hold", "hold", "batch", "recursion", "recursion"]


# ------------------------------------------------------------------------------------------------------ whatever comes

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300, 1e-30, 1e30, 1e140, -1e140, 5e-324]),
    st.floats(-1e3, 1e3, allow_nan=False),
)
PLANS: dict[str, Callable[[list[float], int], list[float]]] = {
    "as drawn": lambda drawn, k: [drawn[(3 * k + i) % len(drawn)] for i in range(3)],
    "constant": lambda drawn, k: drawn[:3],
    "repeated": lambda drawn, k: [drawn[((k % 2) * 3 + i) % len(drawn)] for i in range(3)],
    "zero, then moved": lambda drawn, k: [0.0] * 3 if k < 40 else [drawn[(k + i) % len(drawn)] for i in range(3)],
    "a jump": lambda drawn, k: [drawn[i] + (drawn[3 + i] if k >= 30 else 0.0) for i in range(3)],
}


@settings(max_examples=examples(60))
@example([0.0] * 7 + [1.0, 0.0, 1e140], "robust", "as drawn", 2, True, 1)
@given(
    st.lists(NUMBERS, min_size=6, max_size=40),
    st.sampled_from(METHODS),
    st.sampled_from(sorted(PLANS)),
    st.integers(1, 30),
    st.booleans(),
    st.integers(0, 2),
)
def test_no_data_break_it(drawn: list[float], method: str, plan: str, window: int, centred: bool, delays: int) -> None:
    made = predictor(method=method, window=window, centred=centred, delays=delays)
    for k in range(80):
        *x, u = PLANS[plan](drawn, k)
        ahead = np.array(made.advance(x, [u]))
        assert np.isfinite(ahead).all()
        assert np.isfinite(made.error)
        assert 0 <= made.expert < len(made.experts)
        S, b = model(made)
        assert np.isfinite(b).all()
        assert np.isfinite(S).all()


@settings(max_examples=examples(40))
@given(st.sampled_from(METHODS), st.integers(0, 200), st.integers(1, 40), st.booleans(), st.integers(0, 2**32 - 1))
def test_what_was_saved_continues_bit_for_bit(method: str, after: int, window: int, centred: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((260, 1))
    x = record(OSCILLATOR, u, np.array([1.0, 0.0])) + 1e-3 * rng.standard_normal((260, 2))
    one = predictor(method=method, window=window, centred=centred)
    follow(one, x[:after], u[:after])
    saved = one.save()
    expected = follow(one, x[after:], u[after:])
    once_more = predictor(method=method, window=window, centred=centred)
    follow(once_more, x[::-1], u)
    for made in (one, once_more):
        made.restore(saved)
        assert np.array_equal(follow(made, x[after:], u[after:]), expected)
        assert made.save() == one.save()


@settings(max_examples=examples(200))
@given(st.data(), st.sampled_from(METHODS), st.integers(0, 120), st.integers(1, 40))
def test_what_somebody_else_wrote_is_refused_or_harmless(
    data: st.DataObject, method: str, after: int, window: int
) -> None:
    """Memories come back from files; a counter out of range would lead out of the array (see `make sanitize`)."""
    u = np.random.default_rng(after).standard_normal((320, 1))
    x = record(OSCILLATOR, u, np.array([1.0, 0.0]))
    made = predictor(method=method, window=window)
    follow(made, x[:after], u[:after])
    saved = made.save()
    places = data.draw(st.lists(st.integers(0, len(saved) - 1), min_size=1, max_size=30))
    for place in places:
        saved[place] = data.draw(st.sampled_from([0.0, 0.5, 1.0, 20.0, 40.0, -1.0, 1e6, 1e18, 1e300, np.inf, np.nan]))
    with suppress(ValueError):
        made.restore(saved)
        follow(made, x[after:], u[after:])


@pytest.mark.parametrize("method", METHODS)
def test_a_counter_out_of_range_is_refused(method: str) -> None:
    made = predictor(method=method, window=20)
    for known in (-1.0, 0.5, 4.0, 1e18, np.nan):
        with pytest.raises(ValueError, match="not saved"):
            made.restore([known, *made.save()[1:]])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_a_value_that_is_no_number_is_handed_on_and_not_learned(method: str, bad: float) -> None:
    rng = np.random.default_rng(7)
    u = rng.standard_normal((120, 1))
    x = record(OSCILLATOR, u, np.array([1.0, 0.0]))
    made = predictor(method=method, window=20)
    follow(made, x[:60], u[:60])
    before = model(made)[0]
    assert np.array_equal(made.advance([bad, 0.0], [1.0]), [bad, 0.0], equal_nan=True)
    assert np.array_equal(made.advance([1.5, 0.0], [bad]), [1.5, 0.0])
    assert np.array_equal(model(made)[0], before)
    made.restore(made.save())
    # No pair spans the gap: what follows is predicted as if it had not been.
    assert relative(follow(made, x[61:], u[61:]), x[61:])[2:].max() < 1e-6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-120, 1e-9, 1e9, 1e120])
def test_units_of_measurement_do_not_matter(method: str, scale: float) -> None:
    rng = np.random.default_rng(8)
    u = rng.standard_normal((200, 1))
    x = record(OSCILLATOR, u, np.array([1.0, 0.0]))
    # A power of two: everything is then the same number in other units, and so to the last bit.
    exact = 2.0 ** round(np.log2(scale))
    window = 20
    usual = follow(predictor(method=method, window=window), x, u)
    changed = follow(predictor(method=method, window=window), exact * x, exact * u)
    if method == "recursive":
        assert relative(changed / exact, x)[20:].max() < 1e-6
    else:
        assert np.array_equal(changed, exact * usual)


@pytest.mark.parametrize("method", METHODS)
def test_frozen_it_is_the_linear_map_it_shows(method: str) -> None:
    rng = np.random.default_rng(9)
    u = rng.standard_normal((200, 1))
    x = np.sin(record(OSCILLATOR, u, np.array([1.0, 0.0])))
    made = predictor(method=method, window=20, centred=True)
    follow(made, x[:100], u[:100])
    samples, S, b = made.model()
    made.freeze()
    assert made.frozen
    S = np.reshape(S, (2, -1))
    for k in range(100, 200):
        z = np.concatenate([np.concatenate([x[k - age], u[k - age]]) for age in range(samples)])
        assert made.advance(x[k], u[k]) == pytest.approx(S @ z + b, rel=1e-12, abs=1e-14)
    assert made.model()[1] == pytest.approx(S.ravel())
    saved = made.save()
    other = predictor(method=method, window=20, centred=True)
    other.restore(saved)
    assert other.frozen


def test_the_error_is_that_of_the_last_prediction() -> None:
    made = predictor(window=10, pairs=[])
    assert made.error == 0.0
    made.advance([2.0, 4.0], [0.0])
    made.advance([1.0, 4.0], [0.0])
    assert made.error == pytest.approx(np.sqrt(((1.0 / 2.0) ** 2 + 0.0) / 2))


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (0, {}, "at least one sample"),
        (2, {"method": "best"}, "the method is"),
        (2, {"window": 0}, "at least one pair"),
        (2, {"pairs": [(0, 2)]}, "a pair is"),
        (2, {"pairs": [(1, 1)]}, "a pair is"),
    ],
)
def test_what_cannot_be_meant_is_refused(n: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predictor(n, **options)


def test_samples_of_another_size_are_refused() -> None:
    made = predictor()
    with pytest.raises(ValueError, match="do not fit"):
        made.advance([1.0], [1.0])
    with pytest.raises(ValueError, match="not saved"):
        made.restore(predictor(method="auto").save())
