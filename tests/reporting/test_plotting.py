"""Curves in the terminal and in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosimo.core.errors import ConfigurationError, OutputError, UnknownNameError
from cosimo.core.result import Result
from cosimo.reporting.plotting import (
    Canvas,
    Curve,
    Frame,
    by_unit,
    curve_fields,
    draw_figure,
    frame_of,
    gather,
    plot_text,
    signals_text,
    terminal_text,
)

BLANK = 0x2800


def points(canvas: Canvas) -> set[tuple[int, int]]:
    """All points that are set, (column, row) from the top left."""
    bits = {(0, 0): 1, (0, 1): 2, (0, 2): 4, (1, 0): 8, (1, 1): 16, (1, 2): 32, (0, 3): 64, (1, 3): 128}
    return {
        (2 * column + i, 4 * row + j)
        for row, line in enumerate(canvas.lines())
        for column, letter in enumerate(line)
        if letter != " "
        for (i, j), bit in bits.items()
        if (ord(letter) - BLANK) & bit
    }


def test_points_lie_where_the_formula_says() -> None:
    canvas = Canvas(3, 2, Frame(0.0, 5.0, 0.0, 7.0))
    canvas.draw(Curve("y", np.array([0.0]), np.array([0.0])))
    canvas.draw(Curve("y", np.array([5.0]), np.array([7.0])))
    canvas.draw(Curve("y", np.array([2.0]), np.array([3.0])))
    assert points(canvas) == {(0, 7), (5, 0), (2, 4)}


def test_a_line_has_no_gaps() -> None:
    canvas = Canvas(10, 10, Frame(0.0, 1.0, 0.0, 1.0))
    canvas.draw(Curve("y", np.array([0.0, 1.0]), np.array([0.0, 1.0])))
    assert {j for _, j in points(canvas)} == set(range(40))
    assert {i for i, _ in points(canvas)} == set(range(20))


def test_no_peak_is_lost() -> None:
    x = np.linspace(0.0, 1.0, 1_000_001)
    y = np.zeros_like(x)
    y[123_457] = 1.0
    canvas = Canvas(40, 5, Frame(0.0, 1.0, -1.0, 1.0))
    canvas.draw(Curve("y", x, y))
    assert (round(0.123457 * 79), 0) in points(canvas)
    _, thin = Curve("y", x, y).thinned(4000)
    assert len(thin) <= 4002
    assert thin.max() == 1.0
    assert thin.min() == 0.0


def test_gaps_where_values_are_not_finite() -> None:
    x = np.arange(5.0)
    curve = Curve("y", x, np.array([1.0, np.nan, np.inf, 2.0, 3.0]))
    assert frame_of([curve]) == Frame(0.0, 4.0, 1.0, 3.0)
    assert "3 ┤" in plot_text([curve], 40, 5)
    nothing = Curve("n", x, np.full(5, np.nan))
    assert plot_text([nothing], 40, 5).count("\n") == 7
    assert curve_fields(nothing)["largest"] is None


def test_constants_have_room() -> None:
    frame = frame_of([Curve("c", np.array([0.0, 1.0]), np.array([3.0, 3.0]))])
    assert frame.y0 < 3.0 < frame.y1
    assert frame_of([Curve("c", np.array([0.0, 1.0]), np.zeros(2))]).y0 == -1.0


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.9, 4.1), (1e6, 1e6 + 4.0), (-2e-9, 1e-9), (1.0, 1e9)])
@pytest.mark.parametrize("rows", [5, 8, 16])
def test_axes_carry_round_numbers_at_their_place(low: float, high: float, rows: int) -> None:
    x = np.array([0.0, 1.0])
    lines = plot_text([Curve("y", x, np.array([low, high]))], 60, rows).split("\n")[1:-2]
    marked = {row: float(line.split("┤")[0]) for row, line in enumerate(lines) if "┤" in line}
    assert len(marked) >= 2
    for row, value in marked.items():
        place = (high - value) / (high - low) * (4 * rows - 1)
        assert abs(place - (4 * row + 1.5)) <= 2.01


def test_lines_fit_the_width() -> None:
    x = np.linspace(0.0, 1.0, 100)
    text = plot_text([Curve("y", x, 1e6 + np.sin(9 * x))], 50, 8)
    assert max(map(len, text.split("\n"))) <= 50


def result(**signals: float) -> Result:
    time = np.linspace(0.0, 1.0, 11)
    columns = [gain * time for gain in signals.values()]
    return Result(tuple(name.replace("_", ".") for name in signals), time, np.column_stack(columns))


def test_patterns_choose_signals_of_all_results() -> None:
    runs = {"a": result(one_x=1.0, one_v=2.0), "b": result(one_x=3.0)}
    found = gather(runs, ["*.x"], (None, None))
    assert [curve.name for curve in found] == ["one.x (a)", "one.x (b)"]
    assert [c.name for c in gather({"a": runs["a"]}, ["one.v"], (0.25, 0.75))] == ["one.v"]
    assert gather({"a": runs["a"]}, ["one.v"], (0.25, 0.75))[0].x[[0, -1]] == pytest.approx([0.3, 0.7])


def test_unknown_signals_suggest_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown signal 'one\.xx'; did you mean 'one\.x'\?"):
        gather({"a": result(one_x=1.0, one_v=2.0)}, ["one.v", "one.xx"], (None, None))


def test_times_outside_are_refused() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"'a' has no rows in the chosen time range; it covers "
        r"from 0 s to 1 s",
    ):
        gather({"a": result(one_x=1.0)}, ["one.x"], (5.0, None))


def test_without_colours_every_curve_has_a_plot_of_its_own() -> None:
    text = terminal_text(gather({"a": result(one_x=1.0, one_v=-2.0)}, ["*"], (None, None)), columns=60)
    assert text.count("time / s") == 2
    assert text.split("\n")[-1].split() == ["one.v", "-0", "-2", "-2", "-0"]
    assert "one.x" in signals_text({"a": result(one_x=1.0)})


@pytest.mark.parametrize(
    ("suffix", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("html", b"<!doctype html>")]
)
def test_figures_are_written(suffix: str, begin: bytes, tmp_path: Path) -> None:
    plotted = gather({"a": result(one_x=1.0)}, ["one.x"], (None, None))
    path = draw_figure(plotted, tmp_path / f"figure.{suffix}", "a")
    assert path.read_bytes().lstrip().startswith(begin)


def test_figures_that_cannot_be_written(tmp_path: Path) -> None:
    plotted = gather({"a": result(one_x=1.0)}, ["one.x"], (None, None))
    with pytest.raises(ConfigurationError, match=r"is not a figure format; use \.png"):
        draw_figure(plotted, tmp_path / "figure.xyz", "a")
    for suffix in ("png", "html"):
        with pytest.raises(OutputError, match="No such file or directory; choose another file"):
            draw_figure(plotted, tmp_path / "nowhere" / f"figure.{suffix}", "a")


def test_curves_of_one_physical_unit_share_an_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(0.0, 1.0, 5)
    curves = [Curve("a.f", x, x, "N"), Curve("b.v", x, 3 * x, "m/s"), Curve("b.f", x, 2 * x, "N")]
    assert {unit: [curve.name for curve in of] for unit, of in by_unit(curves).items()} == {
        "N": ["a.f", "b.f"],
        "m/s": ["b.v"],
    }
    monkeypatch.setattr("cosimo.reporting.plotting.colourful", lambda stream: True)
    text = terminal_text(curves, 60)
    assert text.count("time / s") == 2
    assert "a.f / N" in text
    assert curve_fields(curves[1])["unit"] == "m/s"
    drawn = draw_figure(curves, tmp_path / "a.svg", "a").read_text()
    assert drawn.count('id="axes_') == 2
