"""Results: indexing, export, and files that read back to the same bits."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosimo.core.errors import OutputError, UnknownNameError
from cosimo.core.result import Result, Warned
from cosimo.formats.results import read_result


def awkward() -> Result:
    """Numbers that six decimals would spoil."""
    values = np.array([[0.1 + 0.2, 1e-310, -0.0], [np.pi * 1e17, np.nextafter(1.0, 2.0), 1 / 3], [5e-324, -1e308, 0.0]])
    return Result(("a.x", "a.y", 'b."odd", name'), np.arange(3) * 0.1, values)


def test_indexing_by_name() -> None:
    result = awkward()
    assert np.array_equal(result["a.y"], result.values[:, 1])
    assert np.array_equal(result["time"], [0.0, 0.1, 0.2])
    assert len(result) == 3
    assert list(result) == list(result.names)


def test_unknown_name_suggests_the_nearest() -> None:
    result = Result(("chassis.position", "wheel.force"), np.zeros(1), np.zeros((1, 2)))
    with pytest.raises(
        UnknownNameError, match=r"unknown signal 'chasis\.position'; did you mean 'chassis\.position'\?"
    ):
        result["chasis.position"]


def test_csv_reads_back_to_the_same_bits(tmp_path: Path) -> None:
    result = awkward()
    path = result.write_csv(tmp_path / "rows.csv")
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["time", *result.names]
    read = np.array(rows, dtype=float)
    assert read.tobytes() == result.to_numpy().tobytes()


def test_csv_of_random_bits_survives(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 2**63, size=(500, 2), dtype=np.int64).view(np.float64)
    values = np.where(np.isfinite(values), values, 0.0)
    path = Result(("a", "b"), np.arange(500) / 60, values).write_csv(tmp_path / "bits.csv")
    assert np.loadtxt(path, delimiter=",", skiprows=1)[:, 1:].tobytes() == values.tobytes()


@pytest.mark.parametrize("place", ["missing/rows.csv", ""])
def test_unwritable_file_is_named(tmp_path: Path, place: str) -> None:
    with pytest.raises(OutputError, match="cannot write results to") as caught:
        awkward().write_csv(tmp_path / place)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.exit_code == 7


def test_numpy_and_pandas_hold_the_same_numbers() -> None:
    result = awkward()
    frame = result.to_pandas()
    assert list(frame.columns) == list(result.names)
    assert frame.index.name == "time"
    assert np.array_equal(frame.index.to_numpy(), result.time)
    assert np.array_equal(frame.to_numpy(), result.values)
    assert np.array_equal(result.to_numpy(), np.column_stack([result.time, result.values]))


def test_plot_draws_the_chosen_signals() -> None:
    result = awkward()
    (axes,) = result.plot(["a.y"]).axes
    (line,) = axes.lines
    assert line.get_label() == "a.y"
    assert np.array_equal(line.get_ydata(), result["a.y"])
    assert len(result.plot().axes[0].lines) == 3


def with_units() -> Result:
    info = {"system": "drive", "physical_units": {"a.v": "m/s", "b.v": "m/s", "a.f": "N", "gone.x": "m"}}
    return Result(("a.v", "a.f", "b.v", "b.n"), np.arange(3) * 0.1, np.arange(12.0).reshape(3, 4), info=info)


def test_physical_units_go_along() -> None:
    result = with_units()
    assert result.physical_units == {"a.v": "m/s", "b.v": "m/s", "a.f": "N"}
    assert result.to_pandas().attrs["units"] == result.physical_units
    data = result.to_xarray()
    assert (data["a.f"].attrs, data["b.n"].attrs, data["time"].attrs) == ({"units": "N"}, {}, {"units": "s"})
    assert np.array_equal(data["b.v"], result["b.v"])
    assert data.attrs == {"system": "drive"}


def test_plot_has_one_panel_per_physical_unit() -> None:
    shown = [(axes.get_ylabel(), [line.get_label() for line in axes.lines]) for axes in with_units().plot().axes]
    assert shown == [("m/s", ["a.v", "b.v"]), ("N", ["a.f"]), ("", ["b.n"])]


def test_held_inputs_are_drawn_over_the_step_in_which_they_act() -> None:
    result = Result(("a.u", "a.y"), np.arange(3) * 0.1, np.arange(6.0).reshape(3, 2), info={"held_inputs": ["a.u"]})
    held, line = result.plot().axes[0].lines
    assert held.get_xydata().tolist() == [[0.0, 0.0], [0.0, 2.0], [0.1, 2.0], [0.1, 4.0], [0.2, 4.0]]
    assert line.get_xydata().tolist() == [[0.0, 1.0], [0.1, 3.0], [0.2, 5.0]]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".arrow", ".arrows", ".mat"])
def test_a_result_is_saved_with_all_that_is_known_of_it(suffix: str, tmp_path: Path) -> None:
    result = replace(with_units(), warnings=(Warned("grows", 0.1, 2),), complete=False)
    again = read_result(result.save(tmp_path / f"rows{suffix}"))
    assert (again.names, again.warnings, again.complete) == (result.names, result.warnings, False)
    assert again.to_numpy().tobytes() == result.to_numpy().tobytes()
    assert again.physical_units == result.physical_units
    assert again.info["system"] == "drive"


def test_empty_and_incomplete_results_print() -> None:
    empty = Result(("a.x",), np.zeros(0), np.zeros((0, 1)), complete=False)
    assert repr(empty) == "Result(0 rows, 1 signal, incomplete)"
    assert repr(awkward()) == "Result(3 rows to t = 0.2, 3 signals)"
    assert empty.to_numpy().shape == (0, 2)


def test_warnings_say_when_and_how_often() -> None:
    assert str(Warned("not converged", 0.5)) == "t = 0.5: not converged"
    assert str(Warned("not converged", 0.5, 3)) == "t = 0.5: not converged (3 times)"
