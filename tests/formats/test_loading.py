"""One way in for files of every kind and for built-in problems."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from fmu_builder import build

from cosimo.core.errors import ConfigurationError, FileError, UnknownNameError
from cosimo.formats.export import export_ssp
from cosimo.formats.findings import FileFindings, Finding, Place
from cosimo.formats.loading import load
from cosimo.problems import find


def test_built_in_problems() -> None:
    loaded = load("two-mass")
    assert (loaded.system.names, loaded.step, loaded.stop) == (("one", "two"), 1e-3, 20.0)
    assert (loaded.source, loaded.master, loaded.outputs, loaded.start) == (None, None, None, None)
    assert len(load("chain", settings={"n": 3}).system.units) == 3


def test_an_fmu_alone_is_a_system(tmp_path: Path) -> None:
    loaded = load(build(tmp_path, "feedthrough2", file="some unit.fmu"))
    assert loaded.system.names == ("some unit",)
    assert (loaded.step, loaded.start, loaded.stop) == (0.1, 0.0, 2.0)
    assert loaded.source == tmp_path / "some unit.fmu"


def test_files_by_their_ending(tmp_path: Path) -> None:
    package = export_ssp(find("two-mass").system(), tmp_path / "two.SSP", fmi=2, step=0.1, stop=1.0)
    assert load(str(package)).system.names == ("one", "two")
    (tmp_path / "a.toml").write_text('problem = "two-mass"\n')
    assert load(tmp_path / "a.toml", settings={"kc": 3.0}).source == tmp_path / "a.toml"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("two-mas", "unknown system 'two-mas'; did you mean 'two-mass'?"),
        ("nothing", "a file (.toml, .ssp, .ssd, .fmu)"),
        ("truk.toml", "truck.toml'?"),
        ("other.ssp", "does not exist; check the path"),
        ("nowhere/other.ssd", "does not exist; check the path"),
        ("folder", "is a folder; give a file in it"),
        ("folder.fmu", "is a folder; give a file"),
        ("note.txt", "cannot be read as a system; files end in .toml, .ssp, .ssd, .fmu"),
    ],
)
def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: str) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "folder.fmu"):
        (tmp_path / folder).mkdir()
    for file in ("truck.toml", "note.txt"):
        (tmp_path / file).write_text("")
    with pytest.raises(ConfigurationError) as caught:
        load(name)
    assert part in str(caught.value)


def test_settings_belong_to_problems(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no built-in problem"):
        load(build(tmp_path, "feedthrough2"), settings={"gain": 2.0})
    with pytest.raises(UnknownNameError, match="did you mean 'kc'"):
        load("two-mass", settings={"kcc": 2.0})


def test_findings_are_kept_and_not_repeated() -> None:
    findings, place = FileFindings(), Place("a.ssd", 3)
    for _ in range(2):
        findings.warn("odd.", place)
        with findings.collect(place):
            raise ConfigurationError("wrong.")
    with findings.collect(place):
        raise FileError("elsewhere.", file="b.ssv", line=7)
    assert findings.all == [
        Finding("odd.", "a.ssd", 3, "warning"),
        Finding("wrong.", "a.ssd", 3),
        Finding("elsewhere.", "b.ssv", 7),
    ]
    assert [str(finding) for finding in findings.all] == [
        "a.ssd:3: warning: odd.",
        "a.ssd:3: wrong.",
        "b.ssv:7: elsewhere.",
    ]
    with pytest.raises(FileError, match=r"a\.ssd:3: wrong\. \(1 more"):
        findings.require_no_errors()


def test_findings_of_a_failed_load_can_be_seen(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("x = 1\ny = 2\n")
    findings = FileFindings()
    with pytest.raises(FileError):
        load(tmp_path / "a.toml", findings=findings)
    assert [finding.line for finding in findings.errors] == [1, 2]
