"""Putting a master into a scenario file: only the step and the master change, and the old file is kept."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from cosimo import compensate, masters
from cosimo.core.errors import ConfigurationError, OutputError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Hold, Nepce
from cosimo.formats.scenario_building import load_scenario
from cosimo.formats.writing import write_connection, write_master
from cosimo.problems import two_mass

PLAIN = 'problem = "two-mass"\nstep-size = 0.05\nstop-time = 3.0\n\n[master]\nname = "jacobi"\n'
UNITS = """# A ring.
stop-time = 1.0
outputs = [
  "a.*",
  "b.y1",
]
power-pairs = [
  ["a.u1", "a.y1"],
  ["b.u1",
   "b.y1"]
]
connections = ["a.y1 -> b.u1", "b.y1 -> a.u1"]

[units.a]  # the first
kind = "state-space"
A = [
  [-1.0, 0.5],
  [0.0, -2.0]
]
B = [[1.0],
[0.0]]
C = [[1.0, 0.0]]

[units."b"]
kind = "state-space"
A = -2.0
B = 1.0
C = 1.0
"""


def better(system: System, step: float = 2e-3) -> Master:
    return masters.gauss_seidel(system, step, order=tuple(reversed(system.names)), coupling=Hold(1))


def written(path: Path, master: Master) -> Path:
    return write_master(path, master, load_scenario(path).system)


def master_of(path: Path) -> Master:
    found = load_scenario(path)
    assert "options" in found.specified
    return found.master


def rest(text: str) -> dict[str, object]:
    return {n: v for n, v in tomllib.loads(text).items() if n not in ("master", "step-size", "step_size")}


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("step-size", "step_size"),
        PLAIN.replace("step-size = 0.05\n", ""),
        PLAIN.partition("[master]")[0],
        'problem = "two-mass"\nmaster = { name = "iterative", sweeps = 3 }\nstep-size = 0.05\n',
        'master.name = "gauss-seidel"\nmaster.order = "one,two"\nproblem = "two-mass"\nstep-size = 0.05\n',
        PLAIN + 'couplings = [\n  "hold1",\n  "two.f=nepce:0.5",\n]\n',
        PLAIN.replace('"jacobi"', '"multirate"') + "\n[master.multiples]\none = 2\n",
        '[problem]\nname = "two-mass"\n\n["master"]\nname = "jacobi"\n',
        PLAIN.replace("\n", "\r\n"),
        PLAIN.rstrip("\n"),
        '[master]\nname = "jacobi"\n[problem]\nname = "two-mass"\nparameters = { kc = 120.0 }\n',
    ],
    ids=[
        "plain", "snake case", "no step", "no master", "inline table", "dotted keys", "array over lines", "sub-table",
        "quoted key", "lines of Windows", "no last line end", "master first",
    ],
)  # fmt: skip
def test_step_and_master_are_replaced_and_nothing_else(text: str, tmp_path: Path) -> None:
    path = tmp_path / "masses.toml"
    path.write_bytes(text.encode())
    master = better(two_mass())
    kept = written(path, master)
    assert master_of(path) == master
    after = path.read_bytes().decode()
    assert rest(after) == rest(text)
    assert (kept.name, kept.read_bytes().decode()) == ("masses.toml.old", text)
    assert sorted(os.listdir(tmp_path)) == ["masses.toml", "masses.toml.old"]
    # A second time: the same file but for another step, and the first one is still there.
    other = written(path, master.with_step(1e-3))
    assert (other.name, other.read_bytes().decode()) == ("masses.toml.old1", after)
    assert kept.read_bytes().decode() == text
    assert path.read_bytes().decode() == after.replace("0.002", "0.001")


def test_remarks_and_places_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "masses.toml"
    path.write_text(
        "# Two masses.\n"
        'problem = "two-mass"  # built in\n'
        "step-size = 0.05  # a guess\n"
        "\n"
        "[master]  # to be tuned\n"
        "# the simplest\n"
        'name = "jacobi"\n'
    )
    written(path, better(two_mass()))
    assert path.read_text() == (
        "# Two masses.\n"
        'problem = "two-mass"  # built in\n'
        "step-size = 0.002  # a guess\n"
        "\n"
        "[master]  # to be tuned\n"
        'name = "gauss-seidel"\n'
        'order = "two,one"\n'
        'couplings = ["hold1"]\n'
        "# the simplest\n"
    )


@pytest.mark.parametrize("place", ["first", "between", "last"])
def test_arrays_of_arrays_and_tables_around_the_master(place: str, tmp_path: Path) -> None:
    table = '[master]\nname = "gauss-seidel"\norder = "a,b"\n# units follow\n'
    top, first, second = UNITS.partition("[units.a]")[0], *UNITS.partition("[units.a]")[2].split('[units."b"]')
    parts = [f"[units.a]{first}", f'[units."b"]{second}']
    parts.insert(["first", "between", "last"].index(place), f"{table}\n")
    path = tmp_path / "ring.toml"
    path.write_text("step-size = 0.1\n" + top + "".join(parts))
    before = path.read_text()
    system = load_scenario(path).system
    master = masters.groups(system, 0.05, order=[("b", "a")], couplings={"a.u1": Nepce(0.123456789012345)})
    write_master(path, master, system)
    assert master_of(path) == master
    gone = {"step-size = 0.1", 'name = "gauss-seidel"', 'order = "a,b"'}
    after = path.read_text().splitlines()
    assert [line for line in before.splitlines() if line not in gone] == [line for line in after if line in before]


def test_steps_and_gains_keep_all_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "masses.toml"
    path.write_text(PLAIN)
    system = two_mass()
    for master in (
        better(system, 1 / 700),
        masters.multirate(system, 1e-3 / 7, multiples={"one": 3, "two": 7}),
        masters.jacobi(system, 0.1 + 0.2, couplings={"two.f": Nepce(1 / 3)}),
    ):
        written(path, master)
        assert master_of(path) == master


def test_a_link_leads_to_the_file_and_its_permissions_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "masses.toml", tmp_path / "link.toml"
    file.write_text(PLAIN)
    file.chmod(0o640)
    link.symlink_to(file)
    kept = written(link, better(two_mass()))
    assert link.is_symlink()
    assert master_of(file) == better(two_mass())
    assert file.stat().st_mode & 0o777 == 0o640
    assert kept == file.with_name("masses.toml.old")


@pytest.mark.parametrize(
    "text",
    [
        'problem = "two-mass"\nmaster = { name = "jacobi", couplings = [\n  "hold0",\n] }\nstep-size = 0.05\n',
        'problem = "two-mass"\n"step-size" = 0.05\n',
        'name = """\nstep-size = 0.05\n"""\nproblem = "two-mass"\nstep-size = 0.05\n',
        'problem = "two-mass"\nname = """\n[master]\nof all\n"""\nstep-size = 0.05\n',
    ],
    ids=["inline table over lines", "quoted step", "text that looks like a step", "text that looks like a table"],
)
def test_what_cannot_be_changed_safely_stays_as_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "masses.toml"
    path.write_text(text)
    with pytest.raises(
        ConfigurationError,
        match=r"cannot be edited automatically .*add these lines by "
        r"hand: 'step-size = 0.002",
    ):
        written(path, better(two_mass()))
    assert path.read_text() == text
    assert os.listdir(tmp_path) == ["masses.toml"]


def test_other_files_and_masters_without_words_are_refused(tmp_path: Path) -> None:
    system = two_mass()
    path = tmp_path / "masses.toml"
    path.write_text(PLAIN)
    with pytest.raises(ConfigurationError, match=r"only scenario files \(.toml\)"):
        write_master(tmp_path / "masses.ssp", better(system), system)
    corrected = replace(compensate(system, masters.jacobi(system, 4e-3)).master, name="jacobi+feedback")
    with pytest.raises(ConfigurationError, match="it has couplings or unit names that"):
        write_master(path, corrected, system)
    with pytest.raises(ConfigurationError, match="would be read back differently"):
        # Of a system with other units.
        write_master(path, masters.jacobi(System({"one": system.units["two"]}, inputs={"one.f": 0.0}), 1e-3), system)
    assert path.read_text() == PLAIN
    assert os.listdir(tmp_path) == ["masses.toml"]


def test_a_file_that_is_not_there_and_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = two_mass()
    with pytest.raises(OutputError, match=r"cannot write .*nothing was changed"):
        write_master(tmp_path / "none.toml", better(system), system)
    path = tmp_path / "masses.toml"
    path.write_text(PLAIN)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("core.storage.tempfile.mkstemp", "formats.writing.shutil.copy2", "core.storage.os.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(f"cosimo.{name}", refuse)
            with pytest.raises(OutputError, match="Permission denied; nothing was changed"):
                write_master(path, better(system), system)
        assert path.read_text() == PLAIN
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


TANKS = """
[units]
a = { kind = "python", class = "tanks.py:Tank" }
b = { kind = "python", class = "tanks.py:Tank" }
"""
TANK = 'class Tank:\n    inputs, outputs = {"inflow": 1.0}, ("outflow",)\n    def step(self, time, duration): ...\n'


@pytest.mark.parametrize(
    "connections",
    ["", "connections = []\n", 'connections = ["b.outflow -> a.inflow"]  # one\n',
     'connections = [  # all\n  "b.outflow -> a.inflow",\n]\n'],
)  # fmt: skip
def test_a_connection_is_added_and_all_else_stays(tmp_path: Path, connections: str) -> None:
    (tmp_path / "tanks.py").write_text(TANK)
    path = tmp_path / "tanks.toml"
    path.write_text(before := f"# mine\nstep-size = 0.1\n{connections}{TANKS}")
    kept = write_connection(path, "a.outflow", "b.inflow")
    assert kept.read_text() == before
    found = [(link.connection.source, link.connection.target) for link in load_scenario(path).system.links]
    assert found[0] == ("a.outflow", "b.inflow")
    assert len(found) == 1 + ("->" in connections)
    assert "# mine" in path.read_text()


@pytest.mark.parametrize(("source", "why"), [("a.nothing", "nothing"), ("c.outflow", "c")])
def test_a_connection_that_does_not_exist_changes_nothing(tmp_path: Path, source: str, why: str) -> None:
    (tmp_path / "tanks.py").write_text(TANK)
    path = tmp_path / "tanks.toml"
    path.write_text(before := f"step-size = 0.1\n{TANKS}")
    with pytest.raises(ConfigurationError, match=why):
        write_connection(path, source, "b.inflow")
    assert path.read_text() == before
    assert not list(tmp_path.glob("*.old*"))
