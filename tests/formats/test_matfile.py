"""MATLAB level-4 files as Modelica tools write them."""

from __future__ import annotations

import struct

import DyMat
import numpy as np
import pytest
from scipy.io import loadmat, savemat

from cosimo.formats.results import read_mat, write_mat

NAMES = ["time", "truck.x", "größe.v"]
ROWS = np.array([[0.5, 1.0, -2.0], [0.6, 1.5, 1e-300], [0.7, np.pi, np.inf], [0.8, -0.0, 7.0]])


@pytest.fixture
def path(tmp_path):
    write_mat(tmp_path / "o.mat", NAMES, [ROWS[:1], ROWS[1:]])
    return tmp_path / "o.mat"


def test_what_was_written_is_read(path):
    names, rows = read_mat(path)
    assert names == NAMES
    assert rows.tobytes() == ROWS.tobytes()


def test_the_layout_is_that_of_modelica_tools(path):
    found = loadmat(path)
    assert [line.rstrip() for line in found["Aclass"]] == ["Atrajectory", "1.1", "", "binTrans"]
    assert found["dataInfo"].tolist() == [[0, 2, 2], [1, 2, 3], [0, 0, 0], [-1, -1, -1]]
    assert found["data_1"].tolist() == [[0.5, 0.8]]
    np.testing.assert_array_equal(found["data_2"], ROWS.T)
    order = [name for name in found if not name.startswith("__")]
    assert order == ["Aclass", "name", "description", "dataInfo", "data_1", "data_2"]


def test_bytes_of_the_first_matrix(path):
    header = struct.pack("<5i", 51, 4, 11, 0, 7) + b"Aclass\0"
    assert path.read_bytes().startswith(header + b"A1 b")


def test_dymat_reads_it(path):
    found = DyMat.DyMatFile(str(path))
    np.testing.assert_array_equal(found["truck.x"], ROWS[:, 1])
    times, name, description = found.abscissa("truck.x")
    np.testing.assert_array_equal(times, ROWS[:, 0])
    assert (name, description) == ("time", "Time in [s]")


def test_a_run_without_rows_or_variables(tmp_path):
    write_mat(tmp_path / "o.mat", ["time"], [])
    names, rows = read_mat(tmp_path / "o.mat")
    assert names == ["time"]
    assert rows.shape == (0, 1)


def characters(lines: list[str]) -> np.ndarray:
    width = max(map(len, lines))
    return np.array([list(line.ljust(width)) for line in lines])


def test_files_of_other_tools_with_constants_aliases_and_rows_the_other_way(tmp_path):
    savemat(
        tmp_path / "o.mat",
        {
            "Aclass": characters(["Atrajectory", "1.1", "", "binNormal"]),
            "name": characters(["Time", "x", "minus_x", "mass"]),
            "dataInfo": np.array([[0, 1, 0, -1], [2, 2, 0, -1], [2, -2, 0, -1], [1, 2, 0, 0]], dtype=np.int32),
            "data_1": np.array([[0.0, 3.5], [1.0, 3.5]]),
            "data_2": np.array([[0.0, 10.0], [0.5, 20.0], [1.0, 30.0]], dtype=np.float32),
        },
        format="4",
    )
    names, rows = read_mat(tmp_path / "o.mat")
    assert names == ["Time", "x", "minus_x", "mass"]
    assert rows.tolist() == [[0.0, 10.0, -10.0, 3.5], [0.5, 20.0, -20.0, 3.5], [1.0, 30.0, -30.0, 3.5]]


def test_other_mat_files_are_refused(tmp_path):
    savemat(tmp_path / "o.mat", {"x": np.eye(2)}, format="4")
    with pytest.raises(ValueError, match="lacks Aclass, dataInfo, data_2, name"):
        read_mat(tmp_path / "o.mat")
