"""Archive attacks: refused with exit code 8 and one line that names file and entry, before anything is written."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
from attacks import ATTACKS, GOOD, MIB, added, fmu, package
from command_line import cosimo

from cosimo.core.errors import ConfigurationError, UnsafeInputError
from cosimo.formats.scenario import load
from cosimo.formats.ssp import load_ssp
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi.archive import lease
from cosimo.units.fmi.fmu import Fmu, FmuOptions

PACKED = 'type="application/x-ssp-package"'


def refused(work: Path, *arguments: str) -> str:
    """The one line that the command says before it ends with 8."""
    before = sorted(path.name for path in work.rglob("*"))
    done = cosimo(work, *arguments)
    said = (done.stderr or done.stdout).strip()
    assert done.returncode == 8, said
    assert "Traceback" not in done.stderr + done.stdout
    assert len(said.splitlines()) == 1, said
    assert sorted(path.name for path in work.rglob("*")) == before
    return said


@pytest.mark.parametrize("name", ATTACKS)
def test_an_fmu(work: Path, name: str) -> None:
    attack, says = ATTACKS[name]
    path = fmu(work)
    path.write_bytes(attack(path.read_bytes()))
    with pytest.raises(UnsafeInputError) as caught:
        Fmu(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.raises(UnsafeInputError):
        lease(path)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_package_and_an_fmu_and_a_package_in_it(work: Path, name: str) -> None:
    attack, says = ATTACKS[name]
    good = fmu(work).read_bytes()
    bad = attack(good)
    (outer := package(work / "outer.ssp", good)).write_bytes(attack(outer.read_bytes()))
    inner = package(work / "inner.ssp", bad)
    nested = package(work / "nested.ssp", inner.read_bytes(), "inner.ssp", PACKED)
    for path, label in ((outer, outer), (inner, f"{inner}/f.fmu"), (nested, f"{nested}/inner.ssp/f.fmu")):
        with pytest.raises(UnsafeInputError) as caught:
            load_ssp(path)
        assert f"'{label}'" in str(caught.value)
        assert says in str(caught.value)
        assert "temporary" not in str(caught.value)


@pytest.mark.parametrize("verb", ["info", "validate", "run"])
@pytest.mark.parametrize("suffix", [".fmu", ".ssp", ".toml"])
def test_every_verb(work: Path, verb: str, suffix: str) -> None:
    bad = ATTACKS["parent folder"][0](fmu(work).read_bytes())
    (work / "a.fmu").write_bytes(bad)
    package(work / "a.ssp", bad)
    (work / "a.toml").write_text('step-size = 0.1\n[units.a]\nfmu = "a.fmu"\n', encoding="utf-8")
    more = ("--stop-time", "1", "--step-size", "0.1", "--output-file", "out.csv") if verb == "run" else ()
    said = refused(work, verb, f"a{suffix}", *more)
    assert "'../evil'" in said
    assert ("a.ssp/f.fmu" if suffix == ".ssp" else "a.fmu") in said


def test_a_scenario_is_not_proposed_from_it(work: Path) -> None:
    path = fmu(work)
    path.write_bytes(ATTACKS["link"][0](path.read_bytes()))
    assert "is a link" in refused(work, "new", "system.toml", "a.fmu")


def test_as_json(work: Path) -> None:
    path = fmu(work)
    path.write_bytes(ATTACKS["absolute"][0](path.read_bytes()))
    done = cosimo(work, "info", "a.fmu", "--json")
    assert done.returncode == 8
    told = json.loads(done.stdout)
    assert told["exit_code"] == 8
    assert "absolute name" in told["error"]


def test_a_package_that_holds_itself(work: Path) -> None:
    content = package(work / "p.ssp", b"", "p.ssp", PACKED).read_bytes()
    for _ in range(20):
        content = package(work / "p.ssp", content, "p.ssp", PACKED).read_bytes()
    with pytest.raises(UnsafeInputError, match="nested more than 16 deep"):
        load_ssp(work / "p.ssp")


def test_fmus_of_a_package_count_together(work: Path) -> None:
    from ssp_builder import component, document, system

    content = added(("resources/b", b"0123456789" * (MIB // 10)))(fmu(work).read_bytes())
    with zipfile.ZipFile(work / "p.ssp", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "SystemStructure.ssd", document(system(component("a", source="a.fmu") + component("b", source="b.fmu")))
        )
        archive.writestr("a.fmu", content)
        archive.writestr("b.fmu", content + b"")
    with pytest.raises(UnsafeInputError, match=r"the FMUs of .* would take .* more than 2,000,000"):
        load_ssp(work / "p.ssp", limits=ArchiveLimits(total_size=2_000_000, ratio=1000))


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (
            ArchiveLimits(entries=1),
            "2 entries, more than 1; refused. If you trust the file, raise the archive limit 'entries'",
        ),
        (ArchiveLimits(total_size=1000), "bytes unpacked, more than 1,000"),
        (ArchiveLimits(text_size=100), "larger than 100 bytes"),
        (ArchiveLimits(xml_depth=3), "nests elements more than 3 deep"),
        (ArchiveLimits(xml_items=20), "tags and attributes, more than 20"),
        (ArchiveLimits(variables=1), "declares 2 scalars, more than 1"),
    ],
)
def test_limits_of_an_fmu(work: Path, limits: ArchiveLimits, says: str) -> None:
    with pytest.raises(UnsafeInputError) as caught:
        load(fmu(work), limits=limits)
    assert says in str(caught.value)
    (work / "s.toml").write_text('step-size = 0.1\n[units.a]\nfmu = "a.fmu"\n', encoding="utf-8")
    with pytest.raises(UnsafeInputError, match="refused"):
        load(work / "s.toml", limits=limits)


def test_a_limit_that_was_raised(work: Path) -> None:
    path = fmu(work)
    path.write_bytes(ATTACKS["ratio"][0](path.read_bytes()))
    assert Fmu(path, options=FmuOptions(limits=ArchiveLimits(ratio=2000))).outputs == ("y",)
    assert cosimo(work, "--archive-limits", "ratio=2000", "info", "a.fmu").returncode == 0
    assert cosimo(work, "info", "a.fmu").returncode == 8


def test_limits_of_the_environment(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fmu(work)
    monkeypatch.setenv("COSIMO_ARCHIVE_LIMITS", "entries=1, total-size=8GiB")
    with pytest.raises(UnsafeInputError, match="more than 1;"):
        Fmu(path)
    monkeypatch.setenv("COSIMO_ARCHIVE_LIMITS", "entrie=1")
    with pytest.raises(
        ConfigurationError, match=r"COSIMO_ARCHIVE_LIMITS: unknown archive limit 'entrie'; did you mean"
    ):
        Fmu(path)


@pytest.mark.parametrize(
    ("text", "total"),
    [("", 2**31), ("total-size=500MB", 5 * 10**8), ("total-size=1.5GiB", 3 * 2**29), ("total-size=7", 7)],
)
def test_sizes_in_words(text: str, total: int) -> None:
    assert ArchiveLimits.parse(text).total_size == total


@pytest.mark.parametrize(
    "text", ["total-size", "total-size=", "total-size=-1", "total-size=0", "ratio=nan", "ratio=2 cows"]
)
def test_limits_that_are_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match="archive limit"):
        ArchiveLimits.parse(text)


def test_an_array_of_any_size(work: Path) -> None:
    xml = (Path(__file__).parents[1] / "fmus" / "arrays3.xml").read_text(encoding="utf-8")
    for sizes in ('<Dimension start="2"/><Dimension start="3"/>',):
        xml = xml.replace(sizes, '<Dimension start="4000000000"/><Dimension start="4000000000"/>')
    with zipfile.ZipFile(work / "a.fmu", "w") as archive:
        archive.writestr("modelDescription.xml", xml)
    with pytest.raises(UnsafeInputError, match="scalars, more than 1,000,000"):
        Fmu(work / "a.fmu")


# ---- descriptions ----------------------------------------------------------------------------------------------------

BOMB = b'<!DOCTYPE a [<!ENTITY a "xxxxxxxxxx">' + b"".join(
    b'<!ENTITY %c "&%c;&%c;&%c;&%c;">' % (c + 1, c, c, c, c) for c in range(ord("a"), ord("z"))
)
EXTERNAL = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize(
    ("xml", "code", "says"),
    [
        (GOOD.replace(b"?>", b"?>" + BOMB + b"]>").replace(b'"Minimal"', b'"&z;"'), (8,), ""),
        (GOOD.replace(b"?>", b"?>" + EXTERNAL).replace(b"<ModelVariables>", b"<ModelVariables>&x;"), (8,), "DOCTYPE"),
        (GOOD.replace(b"?>", b'?><!DOCTYPE a SYSTEM "http://localhost:1/a.dtd">'), (8,), "DOCTYPE"),
        (b"<a>" * 3000 + b"</a>" * 3000, (8,), "depth"),
        (b"<a>" * 150 + b"</a>" * 150, (8,), "nests elements more than 100 deep"),
        (GOOD.replace(b"</ModelVariables>", b"</Variables>"), (2,), "modelDescription.xml:7: "),
        (GOOD[:200], (2,), "not well-formed"),
        (b"", (2,), "not well-formed"),
        (b"\0\xff\xfe", (2,), "not well-formed"),
    ],
)
def test_descriptions(work: Path, xml: bytes, code: tuple[int, ...], says: str) -> None:
    with zipfile.ZipFile(work / "a.fmu", "w") as archive:
        archive.writestr("modelDescription.xml", xml)
    done = cosimo(work, "info", "a.fmu")
    assert done.returncode in code, done.stderr
    assert says in done.stderr
    assert "a.fmu" in done.stderr
    assert "root:" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("name", ["s.ssd", "p.ssv"])
def test_document_types_in_packages(work: Path, name: str) -> None:
    from ssp_builder import binding, bindings, component, document, parameters, system

    bound = bindings(binding(more='source="p.ssv"'))
    files = {"s.ssd": document(system(component("a", bound, source="a.fmu"))), "p.ssv": parameters(x='Real value="1"')}
    fmu(work)
    for file, text in files.items():
        kind = '<!DOCTYPE a [<!ENTITY x "y">]>' if file == name else ""
        (work / file).write_text(
            text.replace("?>\n", f"?>\n{kind}", 1) if "?>" in text else kind + text, encoding="utf-8"
        )
    assert f"{name}'" in (said := refused(work, "validate", "s.ssd"))
    assert "DOCTYPE" in said
