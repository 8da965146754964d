"""SSP packages and descriptions that are wrong or unsafe, and what is left behind: nothing."""

from __future__ import annotations

import copy
import gc
import hashlib
import os
import pickle
import sys
import zipfile
from pathlib import Path

import pytest

import processes

sys.path.insert(0, str(Path(__file__).parent))
from ssp_builder import (
    NAMES,
    UNITS,
    array,
    array_value,
    binding,
    bindings,
    component,
    connectors,
    dictionary,
    document,
    pack,
    parameter_set,
    parameters,
    system,
    table,
    wire,
    write,
)

from cosimo import masters, run
from cosimo.core.errors import ConfigurationError, FileError, FileFindings, UnsafeInputError
from cosimo.formats.ssp import load_ssp
from cosimo.units.archives import ArchiveLimits

PAIR = component("a") + component("b")
A_TO_B = wire("a.real_out", "b.real_in")

UNSUPPORTED = "Unsupported encoding" + (": klingon" if os.name == "posix" else "")  # as the system's lxml says it


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for temporary files, so that what is left behind can be seen."""
    folder = tmp_path / "temporary files"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


# ---- what is refused -------------------------------------------------------------------------------------------------

BUS = (
    '<ssd:SignalDictionaryReference name="bus" dictionary="d">'
    + connectors("force inout Real m")
    + "</ssd:SignalDictionaryReference>\n"
)
SIGNALS = '<ssd:SignalDictionaryReference name="bus" dictionary="d"/>\n'
REFUSED = [
    ("unknown element", system(PAIR, wire("a.real_out", "bb.real_in")), 9, "did you mean 'b'?"),
    ("unknown connector", system(PAIR, wire("a.real_ot", "b.real_in")), 9, "did you mean 'real_out'?"),
    ("unknown system connector", system(PAIR, wire(".u", "b.real_in")), 9, "connector of system 'test'"),
    ("fed twice", system(PAIR, A_TO_B + wire("b.real_out", "b.real_in")), 10, "fed twice: by a.real_out"),
    ("two outputs", system(PAIR, wire("a.real_out", "b.real_out")), 9, "both give"),
    ("two inputs", system(PAIR, wire("a.real_in", "b.real_in")), 9, "both take"),
    ("a text", system(PAIR, wire("a.text_out", "b.real_in")), 9, "'a.text_out' (String) cannot be connected"),
    ("a fraction lost", system(PAIR, wire("a.real_out", "b.int_in")), 9, "fractions would be lost"),
    ("two parameters", system(PAIR, wire("a.gain", "b.gain")), 9, "both take"),
    ("signal dictionary", system(component("a") + SIGNALS), 6, "unknown signal dictionary 'd'"),
    ("signal", system(component("a") + BUS, "", dictionary("f Real")), 6, "unknown signal of dictionary 'd' 'force'"),
    (
        "signal in another unit",
        system(component("a") + BUS, "", dictionary("force Real kg")),
        6,
        "is declared in 'm', but the signal dictionary has 'kg'",
    ),
    (
        "a signal fed twice",
        system(PAIR + BUS, wire("a.real_out", "bus.force") + wire("b.real_out", "bus.force"), dictionary("force Real")),
        11,
        "<d>.force is fed twice",
    ),
    ("scheduled", system(component("a", more='implementation="ScheduledExecution"')), 5, "any, CoSimulation, Model"),
    (
        "arrays of two sizes",
        system(
            system(component("c"), name="s", inside=array("u", 2)) + system("", name="t", inside=array("v", 3)),
            wire("s.u", "t.v"),
        ),
        16,
        "joins 2 and 3 values",
    ),
    ("unknown FMU", system(component("a", source="g.fmu")), 5, "did you mean 'f.fmu'?"),
    ("a web address", system(component("a", source="http://x/f.fmu")), 5, "not a local file"),
    ("model exchange", system(component("a", more='implementation="ModelExchange"')), 5, "is for co-simulation only"),
    ("unknown type", system(component("a", more='type="text/x"')), 5, "FMUs, .ssd and .ssp can be read"),
    ("same name twice", system(component("a") + component("a")), 6, "are called 'a'"),
    ("no name", system(component("")), 5, "needs the attribute 'name'"),
    ("unknown id", system(component("x", source="#it")), 5, "no System of this document has the id 'it'"),
    ("kind", system(component("a", connectors("real_in output"))), 5, "but the FMU has the causality input"),
    ("unknown kind", system(component("a", connectors("real_in inputt"))), 5, "did you mean 'input'?"),
    ("unknown variable", system(component("a", connectors("real_inn input"))), 5, "did you mean 'real_in'?"),
    ("unit of the FMU", system(component("a", connectors("real_in input Real mm"))), 5, "but the FMU has 'm'"),
    ("inout", system(component("a"), wire(".u", "a.real_in"), connectors("u inout")), 8, "kind inout"),
    ("factor", system(PAIR, wire("a.real_out", "b.real_in", '<ssc:LinearTransformation factor="x"/>')), 9, "'x'"),
    ("flag", system(PAIR, wire("a.real_out", "b.real_in", more='suppressUnitConversion="ja"')), 9, "true or false"),
    (
        "a table",
        system(PAIR, wire("a.int_out", "b.int_in", "<ssc:IntegerMappingTransformation/>")),
        9,
        "the table of the connection is empty",
    ),
    (
        "a bent table",
        system(PAIR, wire("a.int_out", "b.int_in", table("Integer", "1 1", "2 4", "3 9"))),
        9,
        "(1 → 1, 2 → 4, 3 → 9) do not lie on one line",
    ),
    (
        "half a table",
        system(PAIR, wire("a.bool_out", "b.bool_in", table("Boolean", "true false"))),
        9,
        "an entry for true and one for false",
    ),
    ("no number in a table", system(PAIR, wire("a.int_out", "b.int_in", table("Integer", "a 1"))), 9, "the entry 'a'"),
    (
        "items of nothing",
        system(PAIR, wire("a.enum_out", "b.enum_in", table("Enumeration", "low high"))),
        9,
        "the connector names no enumeration",
    ),
    (
        "a component without source that feeds",
        system(component("a") + component("p", connectors("y output"), source=""), wire("p.y", "a.real_in")),
        6,
        "component 'p' has no source, but its y feeds others",
    ),
    (
        "too few values",
        system(component("a", bindings(binding(array_value("gain", 3, "1 2"))))),
        5,
        "has 3 elements, but 2 values",
    ),
    ("size 0", system(component("a", bindings(binding(array_value("gain", 0, "")))), ""), 5, "an array of size 0"),
    ("wrong type", system(component("a", bindings(binding(parameters(gain='String value="x"'))))), 6, "a.gain"),
    ("out of range", system(component("a", bindings(binding(parameters(gain='Real value="11"'))))), 6, "0 to 10"),
    ("no number", system(component("a", bindings(binding(parameters(gain='Real value="x"'))))), 6, "finite number"),
    ("no such file", system(component("a", bindings(binding(more='source="v.ssv"')))), 5, "v.ssv"),
    ("nothing inside", system(component("a", bindings(binding("<ssv:X/>")))), 5, "neither a source nor"),
    (
        "wrong unit",
        system(component("a", bindings(binding(parameters(real_in='Real value="1" unit="kg"'))))),
        6,
        "is in 'kg', its target in 'm'",
    ),
    (
        "unknown enumeration",
        system(component("a", bindings(binding(parameters(enum_in='Enumeration value="x" name="G"'))))),
        6,
        "unknown enumeration 'G'",
    ),
    (
        "unmapped",
        system(
            component(
                "a",
                bindings(
                    binding(
                        parameters(gain='Real value="2"'),
                        mapping='<ssd:ParameterMapping><ssm:ParameterMapping><ssm:MappingEntry source="x" '
                        'target="gain"/></ssm:ParameterMapping></ssd:ParameterMapping>',
                    )
                ),
            )
        ),
        6,
        "unknown parameter in the mapping 'x'",
    ),
]


@pytest.mark.parametrize(("root", "line", "part"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_wrong_descriptions_are_refused(tmp_path: Path, root: str, line: int, part: str) -> None:
    path = write(tmp_path, document(root))
    with pytest.raises(FileError) as caught:
        load_ssp(path)
    assert part in str(caught.value)
    assert (caught.value.file, caught.value.line) == (str(path), line)


def test_incompatible_units_on_the_way(tmp_path: Path) -> None:
    inner = system(component("c"), wire(".u", "c.real_in"), connectors("u input Real kg"), name="sub")
    with pytest.raises(FileError, match=r"'mm' cannot be converted to 'kg' of sub\.u"):
        load_ssp(write(tmp_path, document(system(component("a") + inner, wire("a.real_out", "sub.u")))))


def test_a_circle_without_a_component(tmp_path: Path) -> None:
    ring = system("", wire(".u", ".y"), connectors("u input", "y output"), name="ring")
    ring = ring.replace("<ssd:Elements>\n</ssd:Elements>\n", "")
    other = ring.replace('name="ring"', 'name="other"')
    wires = wire("ring.y", "other.u") + wire("other.y", "ring.u")
    inner = system(ring + other, wires, name="s")
    loaded = load_ssp(write(tmp_path, document(system(component("a") + inner))))
    assert loaded.system.names == ("a",)  # nobody asks for its value
    feeding = component("b") + ring + other
    wires += wire("other.y", "b.real_in")
    with pytest.raises(FileError, match="cycle without a component"):
        load_ssp(write(tmp_path, document(system(feeding, wires))))


def test_parameters_computed_by_others_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, document(system(PAIR, wire("a.integral", "b.gain"))))
    with pytest.raises(FileError, match=r"parameter b.gain is fed by a.integral"):
        load_ssp(path)


def test_all_errors_are_found_at_once(tmp_path: Path) -> None:
    elements = component("a") + component("b", source="g.fmu") + component("c", connectors("nothing input"))
    wires = wire("a.real_out", "b.real_in") + wire("a.nothing", "c.real_in") + wire("a.text_out", "c.int_in")
    findings = FileFindings()
    with pytest.raises(FileError, match=r"\(3 more"):
        load_ssp(write(tmp_path, document(system(elements, wires))), findings)
    assert sorted(f.line or 0 for f in findings.errors) == [6, 7, 11, 12]


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("<a>\n<b>\n</a>", 3, "not well-formed XML: Opening and ending tag mismatch"),
        ("", 1, "not well-formed XML: Document is empty"),
        ("hello", 1, "not well-formed"),
        ("<a/>", 1, "the root element is a"),
        (document("").replace(UNITS, ""), 2, "the description has no System"),
        (
            '<?xml version="1.0" encoding="klingon"?><a/>',
            1,
            UNSUPPORTED,
        ),
        (
            document(system(""), "<ssd:Units><ssc:Unit name='x'><ssc:BaseUnit factor='0'/></ssc:Unit></ssd:Units>"),
            7,
            "0",
        ),
        (document(system(PAIR), '<ssd:DefaultExperiment stopTime="soon"/>'), 9, "'soon'"),
    ],
)
def test_documents_that_are_none(tmp_path: Path, text: str, line: int, part: str) -> None:
    with pytest.raises(FileError) as caught:
        load_ssp(write(tmp_path, text))
    assert part in str(caught.value)
    assert caught.value.line == line


def test_wrong_parameter_files_are_named_with_their_line(tmp_path: Path) -> None:
    values = parameter_set({"gain": 'Real value="x"'}, names=NAMES)
    inside = bindings(binding(more='source="v.ssv"'))
    path = write(tmp_path, document(system(component("a", inside))), {"v.ssv": values})
    with pytest.raises(FileError) as caught:
        load_ssp(path)
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "v.ssv"), 2)


def test_document_types_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY x "xx"><!ENTITY y "&x;&x;">]>\n'
    with pytest.raises(UnsafeInputError, match=r"s\.ssd' has a DOCTYPE"):
        load_ssp(write(tmp_path, document(system(PAIR)).replace("?>\n", "?>\n" + bomb, 1)))


@pytest.mark.parametrize(("depth", "said"), [(101, "nests elements more than 100 deep"), (100_000, "depth")])
def test_deep_nesting_is_refused(tmp_path: Path, depth: int, said: str) -> None:
    with pytest.raises(UnsafeInputError, match=said):
        load_ssp(write(tmp_path, "<a>" * depth + "</a>" * depth))


def test_names_that_are_no_addresses_are_borne(tmp_path: Path) -> None:
    odd = document(system(PAIR)).replace("<ssd:System ", '<ssd:System xmlns:mine="mine" ', 1)
    assert len(load_ssp(write(tmp_path, odd)).system.units) == 2


# ---- packages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["../f.fmu", "/etc/f.fmu", "sub/../../f.fmu", "%2e%2e/f.fmu"])
def test_files_outside_a_package_are_refused(tmp_path: Path, temporary: Path, source: str) -> None:
    with pytest.raises((UnsafeInputError, ConfigurationError), match=r"outside the package|unknown file"):
        load_ssp(pack(tmp_path, document(system(component("a", source=source)))))
    assert list(temporary.iterdir()) == []


def test_a_package_may_not_be_larger_than_the_limit(tmp_path: Path) -> None:
    with pytest.raises(UnsafeInputError, match="bytes unpacked, more than 100"):
        load_ssp(pack(tmp_path, document(system(component("a")))), limits=ArchiveLimits(total_size=100))


def test_damaged_packages(tmp_path: Path) -> None:
    path = pack(tmp_path, document(system(component("a"))))
    content = path.read_bytes()
    for name, damaged in (("cut.ssp", content[: len(content) // 2]), ("text.ssp", b"hello"), ("empty.ssp", b"")):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(ConfigurationError, match=f"{name}' is (damaged or incomplete|not a zip archive)"):
            load_ssp(tmp_path / name)


def test_a_damaged_fmu_in_a_package_is_called_by_its_name(tmp_path: Path, temporary: Path) -> None:
    path = pack(tmp_path, document(system(component("a", source="g.fmu"))), {"g.fmu": b"PK nothing"})
    with pytest.raises(FileError) as caught:
        load_ssp(path)
    assert f"'{path}/g.fmu'" in str(caught.value)
    assert str(temporary) not in str(caught.value)
    assert list(temporary.iterdir()) == []


def test_a_package_without_description(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "s.ssp", "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(
        ConfigurationError, match=r"holds no SystemStructure\.ssd and is no package, or an incomplete one"
    ):
        load_ssp(tmp_path / "s.ssp")


def test_what_was_copied_goes_with_the_units(tmp_path: Path, temporary: Path) -> None:
    loaded = load_ssp(pack(tmp_path, document(system(PAIR, A_TO_B))))
    unit = loaded.system.units["a"]
    del loaded
    gc.collect()
    assert unit.instantiate().read().shape == (len(unit.outputs),)  # the file is still there for the unit
    del unit
    gc.collect()
    assert list(temporary.iterdir()) == []


def test_units_of_a_package_can_be_copied_and_sent(tmp_path: Path, temporary: Path) -> None:
    unit = load_ssp(pack(tmp_path, document(system(PAIR, A_TO_B)))).system.units["a"]
    sent = pickle.loads(pickle.dumps(unit))
    assert sent.outputs == unit.outputs
    del sent
    gc.collect()
    assert len([one for one in temporary.iterdir() if one.is_dir()]) == 1  # what was sent does not own the folder
    copied = copy.deepcopy(unit)
    del unit
    gc.collect()
    copied.instantiate().close()


def test_what_was_copied_goes_with_the_process(tmp_path: Path) -> None:
    path = pack(tmp_path, document(system(PAIR, A_TO_B)))
    folder = tmp_path / "of the process"
    folder.mkdir()
    code = "import sys, tempfile, os; from cosimo.formats.ssp import load_ssp; keep = load_ssp(sys.argv[1]); "
    code += "print(sum(one.is_dir() for one in os.scandir(tempfile.gettempdir())), flush=True); raise SystemExit(3)"
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = processes.run([sys.executable, "-c", code, str(path)], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (3, "1"), done.stderr
    assert list(folder.iterdir()) == []


def test_nothing_of_the_user_is_changed(tmp_path: Path, temporary: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = pack(home, document(system(PAIR, A_TO_B)))
    plain = write(home, document(system(PAIR, A_TO_B)))

    def state() -> list[tuple[str, int, str]]:
        files = sorted(file for file in home.rglob("*") if file.is_file())
        return [(str(f), f.stat().st_mtime_ns, hashlib.sha256(f.read_bytes()).hexdigest()) for f in files]

    before = state()
    for file in (path, plain):
        loaded = load_ssp(file)
        run(loaded.system, masters.jacobi(loaded.system, 0.1), stop=0.2)
    assert state() == before
