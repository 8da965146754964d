"""What is small enough for Hypothesis: texts of the command line, names of entries, lines of TOML."""

from __future__ import annotations

import io
import json
import tempfile
import tomllib
import zipfile
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.formats.scenario_reading import Lines
from cosimo.masters.words import MasterOptions, build_master
from cosimo.problems import two_mass
from cosimo.units.archives import ArchiveLimits, check_archive
from thinning import examples

PIECES = st.sampled_from(["..", ".", "/", "\\", "a", "A", "b", "C:", " ", "\x00", "\n", "\u00e9", "e\u0301", "\ud800"])
NAMES = st.lists(st.lists(PIECES, min_size=1, max_size=5).map("".join), min_size=1, max_size=4)


@given(
    st.text(max_size=40) | st.from_regex(r"(total-size|ratio|entries)=[0-9.e]{0,9}[kKmMgGiIbB]{0,3}", fullmatch=True)
)
def test_limits(text: str) -> None:
    try:
        assert ArchiveLimits.parse(text).total_size >= 1
    except ConfigurationError:
        return


@given(NAMES)
@settings(suppress_health_check=[HealthCheck.filter_too_much])
def test_entries_that_are_accepted_stay_inside_and_apart(names: list[str]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in dict.fromkeys(names):
            info = zipfile.ZipInfo("x")
            info.filename = name
            try:
                archive.writestr(info, name.encode("utf-8", "surrogatepass"))
            except UnicodeEncodeError:
                assume(False)
    with zipfile.ZipFile(buffer) as archive:
        try:
            check_archive(archive, "a.fmu", ArchiveLimits())
        except CosimoError as error:
            said = str(error)
            if "\n" in said:
                raise AssertionError(said) from None
            return
        with tempfile.TemporaryDirectory() as folder:
            for entry in archive.infolist():
                written = Path(archive.extract(entry, folder)).resolve()
                assert Path(folder).resolve() in written.parents
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            assert len(files) == sum(not entry.is_dir() for entry in archive.infolist())


WORDS = st.text("abhold012nepcdm:.=,;-_ \n", max_size=12) | st.sampled_from(
    ["hold1", "nepce:", "dmd:0", "dmd:1e9", "one"]
)


@given(st.lists(WORDS, max_size=2), st.none() | WORDS, st.none() | st.integers(-3, 3))
@settings(max_examples=examples(60))
def test_masters_in_words(couplings: list[str], order: str | None, sweeps: int | None) -> None:
    for name in ("jacobi", "gauss-seidel", "iterative", "multirate"):
        try:
            build_master(two_mass(), 1e-3, MasterOptions(name, couplings=tuple(couplings), order=order, sweeps=sweeps))
        except CosimoError as error:
            said = str(error)
            if "\n" in said:
                raise AssertionError(said) from None


KEYS = st.text("ab-1", min_size=1, max_size=3).map(str) | st.text('a.\n"#[=', max_size=3).map(json.dumps)
PLAIN = st.integers(0, 99).map(str) | st.text("ab,]}#\n\"'=", max_size=4).map(json.dumps) | st.just('"""a\n]#"""')
LISTS = st.lists(PLAIN, max_size=3).map(lambda items: "[\n" + ", # ]\n".join(items) + "]")
TABLES = st.dictionaries(KEYS, PLAIN | LISTS, max_size=2).map(
    lambda items: "{" + ", ".join(f"{key} = {value}" for key, value in items.items()) + "}"
)
PAIRS = st.tuples(KEYS, PLAIN | LISTS | TABLES).map(lambda pair: f"{pair[0]} = {pair[1]}")
HEADS = KEYS.map(lambda key: f"[{key}]") | KEYS.map(lambda key: f"[[{key}]]")


@given(st.lists(PAIRS | HEADS, max_size=5))
@settings(max_examples=examples(200))
def test_lines_of_any_document(parts: list[str]) -> None:
    text = "\n".join(parts) + "\n"
    try:
        data = tomllib.loads(text)
    except ValueError:
        return
    lines = Lines(text)
    for key in data:
        found = lines.of([key])
        assert found is not None
        assert 1 <= found <= text.count("\n")
