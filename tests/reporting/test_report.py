"""What a report says, draws and keeps, without a browser."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import re
import sys
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cosimo as co
from cosimo.analysis.critical import EigenvalueSizes
from cosimo.analysis.model import Model
from cosimo.analysis.pilots import Pilots
from cosimo.analysis.trust import MARKS
from cosimo.cli import app
from cosimo.core.errors import ConfigurationError, CosimoError, OutputError
from cosimo.core.result import Result, Warned, decimate
from cosimo.formats.results import ResultFile
from cosimo.reporting.report import Report, Variation
from cosimo.reporting.report.computation import Asked, prepare
from cosimo.reporting.report.contents import ReportedRun
from cosimo.reporting.report.diagram import draw, layers, loop_links
from cosimo.reporting.report.run_signals import Pack, watched
from cosimo.reporting.report.sections import opening
from cosimo.reporting.report.step_sweeps import RadiusCurve, curves, radius_map
from cosimo.tuning import Space
from testbed.build import Options, export_linear


def keys(report: Report) -> list[str]:
    return [section.key for section in report.sections]


def data(report: Report, key: str) -> dict[str, Any]:
    return next(section.data for section in report.sections if section.key == key)


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


# ---- decimation and packing ------------------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(st.floats(-1e9, 1e9), st.sampled_from([np.nan, np.inf, -np.inf])), min_size=1, max_size=300),
    st.integers(1, 20),
)
def test_decimation_keeps_extremes_ends_and_gaps_of_every_bucket(values: list[float], buckets: int) -> None:
    signal = np.array(values)
    kept = decimate(signal, buckets)
    assert (np.diff(kept) > 0).all()
    assert (kept[0], kept[-1]) == (0, len(signal) - 1)
    if len(signal) <= 2 * buckets:
        assert len(kept) == len(signal)
        return
    assert len(kept) <= 3 * buckets + 2
    edges = np.linspace(0, len(signal), buckets + 1).astype(int)
    for begin, end in itertools.pairwise(edges):
        part, shown = signal[begin:end], signal[kept[(kept >= begin) & (kept < end)]]
        finite = part[np.isfinite(part)]
        if len(finite):
            assert finite.min() in shown
            assert finite.max() in shown
        assert np.isfinite(part).all() == np.isfinite(shown).all()


def test_decimation_refuses_no_buckets() -> None:
    with pytest.raises(ConfigurationError, match="1 or more"):
        decimate(np.zeros(3), 0)


def unpack(pack: Pack, part: dict[str, Any]) -> np.ndarray[Any, Any]:
    kind = {"Float64Array": "<f8", "Float32Array": "<f4", "Uint32Array": "<u4"}[part["type"]]
    return np.frombuffer(gzip.decompress(base64.b64decode(pack.text())), kind, part["length"], part["start"])


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e5, 1e308])
def test_signals_come_back_from_the_page_as_they_were(size: float) -> None:
    pack, time = Pack(), 3.0 + 1e-3 * np.arange(1001)
    values = size * np.sin(time)
    values[500] = np.nan
    pack.add(np.arange(3, dtype=np.uint32))  # what comes first must not shift what follows
    entry = pack.signal(time, values, 10_000)
    back = entry["shift"] + entry["scale"] * unpack(pack, entry["y"]).astype(float)
    np.testing.assert_allclose(back, values, atol=1e-7 * size)
    np.testing.assert_allclose(entry["t0"] + entry["dt"] * unpack(pack, entry["x"]), time, rtol=1e-13)
    assert entry["all"]


def test_a_ripple_on_a_large_value_stays_visible() -> None:
    pack, time = Pack(), np.linspace(0.0, 1.0, 400) ** 2
    values = 1e9 + 1e-3 * np.sin(30 * time)
    entry = pack.signal(time, values, 1000)
    back = entry["shift"] + entry["scale"] * unpack(pack, entry["y"]).astype(float)
    assert np.abs(back - values).max() < 1e-6
    np.testing.assert_array_equal(unpack(pack, entry["x"]), time)  # unequal steps keep their times


# ---- drawing ---------------------------------------------------------------------------------------------------------


def test_layers_follow_the_flow_and_survive_cycles() -> None:
    assert layers(["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("a", "c"), ("c", "a"), ("c", "d")]) == [
        ["a"],
        ["b"],
        ["c"],
        ["d"],
    ]
    assert layers(["a"], [("a", "a")]) == [["a"]]
    crossing = layers(["a", "b", "x", "y"], [("a", "y"), ("b", "x")])
    assert [crossing[0].index(n) for n in "ab"] == [crossing[1].index(n) for n in "yx"]


def loop_system() -> co.System:
    one = co.StateSpace([[-1.0]], [[1.0]], [[1.0]], [[0.3]], inputs=["u"], outputs=["y"])
    two = co.StateSpace([[-2.0]], [[1.0]], [[1.0]], [[0.5]], inputs=["u"], outputs=["y"])
    three = co.StateSpace([[-2.0]], [[1.0]], [[1.0]], inputs=["u"], outputs=["y"])
    return co.System(
        {"one": one, "two": two, "three": three}, [("one.y", "two.u"), ("two.y", "one.u"), ("two.y", "three.u")]
    )


def test_the_drawing_marks_feedthrough_loops_and_the_worst_connection() -> None:
    system = loop_system()
    assert loop_links(system) == {0, 1}
    drawing = draw(system, worst="two.y → one.u")
    assert drawing.count('class="unit"') == 3
    assert len(re.findall(r'class="link[^"]*"', drawing)) == 3
    assert len(re.findall(r'class="link[^"]* loop"', drawing)) == 2
    assert re.findall(r'class="link worst loop".*?<title>(.*?)</title>', drawing) == ["two.y → one.u"]
    assert drawing.count('class="through"') == 2
    assert drawing.count("most critical") == 1


def test_large_systems_are_not_drawn_but_listed() -> None:
    units = {f"u{n}": co.StateSpace([[-1.0]], [[1.0]], [[1.0]], inputs=["u"], outputs=["y"]) for n in range(60)}
    system = co.System(units, [(f"u{n}.y", f"u{(n + 1) % 60}.u") for n in range(60)])
    assert draw(system) == ""
    page = co.report(system).html()
    assert "too many units to draw" in page
    assert "u59.y" in page


def test_a_meter_does_not_make_the_curves_unstable() -> None:
    """A chain of integrators has a multiple eigenvalue 1 that rounding drives apart; the verdict leaves it out too."""
    plain = co.problems.two_mass()
    chain = np.eye(3, k=1)
    meter = co.StateSpace(chain, [[0.0], [0.0], [1.0]], np.eye(3)[:1], inputs=["u"], outputs=["y"])
    system = co.System({**plain.units, "meter": meter}, [*plain.connections, ("two.x", "meter.u")])
    shown = co.report(plain, co.masters.jacobi(plain, 1e-3), horizon=1.0).contents
    with_meter, without = (
        curves(replace(shown, system=one, master=co.masters.jacobi(one, 1e-3)))[0] for one in (system, plain)
    )
    assert co.analyse(system, co.masters.jacobi(system, 1e-3), horizon=1.0, details=False).stable
    assert list(with_meter.stable_ranges()) == list(without.stable_ranges())
    assert with_meter.now == pytest.approx(without.now, rel=1e-9)


def test_stable_ranges_need_not_be_connected() -> None:
    curve = RadiusCurve("m", np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([0.9, 1.1, 1.0, 0.8, 2.0]))
    assert list(curve.stable_ranges()) == [(1.0, 1.0), (3.0, 4.0)]


# ---- what is said ----------------------------------------------------------------------------------------------------


def test_the_whole_report_has_all_parts(whole: Report) -> None:
    parts = ["verdict", "runs", "steps", "system", "front", "compensation"]
    folded = ["modes", "monitors", "timing", "provenance"]
    assert keys(whole) == [*parts, *folded]
    assert [section.key for section in whole.sections if section.folded] == folded
    page = whole.html()
    found = opening(whole.contents)
    assert found
    assert (found.mark, found.headline) == ("bad", "Do not trust: unstable")
    assert '<div class="verdict bad">' in page
    assert found == whole.contents.verdict.document
    for sentence in (*found.sentences, found.advice):
        assert sentence in unescape(page)
    assert "amplitudes double every 7.79" in page
    assert "without its delay ρ" in page
    figures = embedded(page)
    assert [trace["name"] for trace in figures["modes"]["figure"]["data"]] == [
        "monolithic",
        "co-simulated",
        "compensated",
    ]
    assert [run["name"].split(":")[0] for run in figures["runs"]["runs"]] == [
        "exact solution",
        "given",
        "nearest",
        "compensated",
    ]
    poles = figures["modes"]["figure"]["data"]
    assert poles[1]["x"][1] == pytest.approx(0.0889675, abs=1e-6)  # as `cosimo compensate` says
    assert poles[2]["x"][1] == pytest.approx(-0.10997, abs=1e-5)
    assert len(page.encode()) < 5e6
    assert not re.search(r'(src|href)="(?!#)', page), "nothing is fetched"


def test_alternatives_are_compared_by_their_runs(whole: Report) -> None:
    rows = {row["role"]: row for row in data(whole, "verdict")["alternatives"].rows}
    assert list(rows) == ["given", "nearest", "compensated"]
    assert rows["given"]["verdict"] == "Do not trust: unstable"
    assert rows["nearest"]["verdict"].startswith(("Trust", "Trust with care", "Do not trust: "))
    assert rows["compensated"]["verdict"].startswith("Do not trust: "), "the units' own solver, which it follows"
    for role in rows:
        assert rows[role]["measured"] == pytest.approx(rows[role]["error"], rel=1e-6), (
            "one error, predicted or measured"
        )
    assert rows["given"]["measured"] > 10 * rows["compensated"]["measured"] > 0


def test_energy_over_time_ends_where_the_monitor_says(whole: Report) -> None:
    pack = Pack()
    panels = watched(whole.contents, pack)
    assert panels[0]["title"].startswith("energy")
    entry = panels[0]["lines"][0]["series"]
    last = entry["shift"] + entry["scale"] * float(unpack(pack, entry["y"])[-1])
    bond = whole.contents.runs[0].result.info["monitors"]["bonds"][0]
    assert last == pytest.approx(bond["residual_energy"], rel=1e-5)
    defect = panels[1]["lines"][0]["series"]
    worst = whole.contents.runs[0].result.info["monitors"]["connections"][0]
    largest = defect["shift"] + defect["scale"] * float(unpack(pack, defect["y"]).max())
    assert largest == pytest.approx(worst["largest_defect"], rel=1e-5)


def test_the_parameter_map_agrees_with_the_analysis(whole: Report) -> None:
    variation, master = whole.contents.variation, whole.contents.master
    values, radii = radius_map(variation, master, np.array([4e-3]))
    middle = int(np.abs(values - 100.0).argmin())
    assert values[middle] == pytest.approx(100.0)
    assert radii[middle, 0] == pytest.approx(1.000355933312396, rel=1e-9)


def test_only_parts_with_content_appear() -> None:
    system = co.problems.two_mass()
    verdict = co.analyse(system, co.masters.gauss_seidel(system, 1e-3))
    assert keys(co.report(verdict)) == ["verdict", "steps", "modes", "provenance"]
    result = Result(("a.x",), np.array([0.0, 1.0]), np.array([[1.0], [2.0]]))
    assert keys(co.report(result)) == ["verdict", "runs", "provenance"]
    assert keys(co.report(co.compensate(system, co.masters.jacobi(system, 4e-3))))[:3] == ["verdict", "steps", "system"]


def advised(**asked: Any) -> Report:
    """Two masses at a step that is unstable, and what is recommended instead."""
    system = co.problems.two_mass()
    master = co.masters.jacobi(system, 4e-3)
    ready = prepare(Asked(system, master, stop=2.0, **asked))
    return co.report(system, master, *ready.things, reference=ready.reference, model=ready.model)


def test_what_is_recommended_stands_beside_what_was_given_with_its_price() -> None:
    made = advised()
    advice, shown = made.contents.verdict.recommendation, data(made, "verdict")
    rows = {row["role"]: row for row in shown["alternatives"].rows}
    assert list(rows) == ["given", "recommended"]
    assert rows["recommended"]["error"] == advice.error
    for row in rows.values():
        assert row["measured"] == pytest.approx(row["error"], rel=1e-6)
    assert rows["recommended"]["cost"] / rows["given"]["cost"] == pytest.approx(advice.cost / advice.cost_before)
    assert "× as many unit steps" in shown["price"]
    assert "; the run took" in shown["price"]
    page = made.html()
    for text in (advice.options, advice.lines):
        assert f"<code>{text}</code>" in unescape(page)
    # One picture first: the worst output, given, recommended and true.
    assert data(made, "runs")["shown"] == [made.contents.verdict.error.output]
    assert [run["name"].split(":")[0] for run in data(made, "runs")["runs"]] == [
        "exact solution",
        "given",
        "recommended",
    ]


def test_runs_that_nobody_asked_for_are_made_only_where_they_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "runs" not in keys(advised(run=False))
    monkeypatch.setattr("cosimo.reporting.report.computation.WORTH", 0.0)
    assert "runs" not in keys(advised())
    assert "runs" in keys(advised(run=True))


def test_a_run_that_leaves_the_picture_is_cut_off() -> None:
    time = np.linspace(0.0, 1.0, 11)
    true, away = Result(("x",), time, np.sin(time)[:, None]), Result(("x",), time, np.exp(40 * time)[:, None])
    near = Result(("x",), time, 1.1 * np.sin(time)[:, None])
    assert data(co.report(("near", near), reference=true), "runs")["ranges"] == {}
    low, high = data(co.report(("near", near), ("away", away), reference=true), "runs")["ranges"]["x"]
    assert low < 0 < np.sin(1.0) < high < 3.0


@pytest.mark.slow
def test_units_that_were_identified_have_curves_over_the_step_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two FMUs with solvers that follow the step are identified at every step: the curves of their equations."""
    monkeypatch.setattr("cosimo.reporting.report.step_sweeps.IDENTIFIED", 5)
    known = co.problems.two_mass()
    files = export_linear(known, tmp_path, Options())
    system = co.System({name: co.Fmu(path) for name, path in files.items()}, known.connections)
    shown = co.report(system, co.masters.jacobi(system, 4e-3), horizon=0.2).contents
    found = curves(shown)
    assert len(found) > 2
    assert all(curve.identified for curve in found)
    true = EigenvalueSizes(known, co.masters.jacobi(known, 4e-3)).sizes(found[0].steps)[:, 0]
    told = np.isfinite(found[0].radii)
    assert told[:-1].all(), "at the longest step the units cannot be identified"
    np.testing.assert_allclose(found[0].radii[told], true[told], rtol=1e-6)


def test_signals_carry_their_physical_units() -> None:
    time = np.linspace(0.0, 1.0, 3)
    result = Result(("a.x", "a.y"), time, np.zeros((3, 2)), info={"physical_units": {"a.x": "rad/s"}})
    assert embedded(co.report(result).html())["runs"]["physical"] == {"a.x": "rad/s"}


def test_a_summary_is_the_verdict_and_the_runs() -> None:
    system = co.problems.two_mass()
    result = co.run(system, co.masters.jacobi(system, 1e-3), stop=1.0)
    made = co.report(system, co.masters.jacobi(system, 1e-3), result, horizon=1.0, summary=True)
    assert keys(made) == ["verdict", "runs"]


def test_a_system_that_is_not_linear_gets_a_verdict() -> None:
    system = co.problems.CATALOGUE["oscillator-nonlinear"].system()
    made = co.report(system, co.masters.jacobi(system, 0.01), horizon=1.0)
    assert "units" in keys(made)
    assert "differences" in made.html() or "experiments" in made.html()
    verdict = made.contents.verdict
    assert data(made, "verdict")["document"] is verdict.document
    assert verdict.evidence in ("confirmed", "measured")


def test_without_evidence_the_page_is_grey() -> None:
    class Counter:
        """Answers nothing that could be identified, and is told not to be run."""

        inputs: ClassVar = {"u": 0.0}
        outputs, count = ("count",), 0.0

        def step(self, time: float, duration: float) -> None:
            self.count += 1.0

    system = co.System({"a": co.PythonUnit(Counter), "b": co.PythonUnit(Counter)}, [("a.count", "b.u")])
    verdict = co.analyse(system, co.masters.jacobi(system, 0.1), horizon=1.0, pilots=False)
    assert verdict.trust == "not assessed"
    page = co.report(verdict).html()
    assert '<div class="verdict open">' in page
    assert "Not assessed: " in page


def test_runs_alone_say_how_they_ended() -> None:
    time, rows = np.array([0.0, 1.0]), np.array([[1.0], [2.0]])
    cut = Result(("a.x",), time, rows, (Warned("too fast", 0.5, 3),), False, {"system": "s"})
    made = co.report(("first", cut), ("first", cut))
    page = made.html()
    assert "first is incomplete: it ended at 1 s" in page
    assert "first (2)" in page
    assert "too fast (3 times)" in page
    assert '<span class="tag bad">incomplete</span>' in page
    assert '<div class="verdict open">' in page, "a result alone is never green"


def test_a_run_is_as_good_as_the_verdict_that_it_carries() -> None:
    scenario = co.load("two-mass")
    good, bad = scenario.changed(step=5e-4).run(stop=1.0), scenario.changed(step=4e-3).run(stop=1.0)
    verdicts = [run.info["verdict"] for run in (good, bad)]
    page = co.report(("bad", bad)).html()
    assert f'<div class="verdict {MARKS[verdicts[1]["trust"]]}">' in page
    assert verdicts[1]["headline"] in page
    worst = max((verdict["trust"] for verdict in verdicts), key=["yes", "with care", "no"].index)
    assert f'<div class="verdict {MARKS[worst]}">' in co.report(("good", good), ("bad", bad)).html()
    bare = Result(bad.names, bad.time, bad.values)
    assert '<div class="verdict open">' in co.report(("bare", bare)).html()


def test_a_verdict_that_contradicts_itself_is_not_believed() -> None:
    run = co.load("two-mass").changed(step=4e-3).run(stop=1.0)
    run.info["verdict"] |= {"trust": "yes", "headline": "Trust: every output within 0.1 % until 1 s"}
    page = co.report(("forged", run)).html()
    assert '<div class="verdict open">' in page
    assert "within 0.1 %" not in page


def test_differences_are_taken_where_both_have_rows() -> None:
    time = np.linspace(0.0, 1.0, 11)
    coarse = Result(("x",), time[::2], 2 * time[::2, None])
    fine = Result(("x",), time[:9], time[:9, None])
    made = co.report(("coarse", coarse), reference=fine)
    entry = data(made, "runs")["differences"]["x"]
    assert entry[0] is None  # the reference itself
    assert entry[1]["y"]["length"] == 5  # from 0 to 0.8


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_are_named(tmp_path: Path) -> None:
    system = co.problems.two_mass()
    with pytest.raises(ConfigurationError, match="cannot show 3; it takes systems"):
        co.report(3)
    with pytest.raises(ConfigurationError, match="remove one of the two arguments of the kind System"):
        co.report(system, system)
    with pytest.raises(ConfigurationError, match="something to show"):
        co.report()
    with pytest.raises(ConfigurationError, match="smaller number first"):
        Variation("kc", 2.0, 1.0, lambda value: system)
    with pytest.raises(OutputError, match="choose another file"):
        co.report(system).write(tmp_path / "no" / "report.html")
    with pytest.raises(ConfigurationError, match="kc cannot be varied"):
        co.report(system, variation=Variation("kc", 1.0, 2.0, lambda value: system))


# ---- the command line ------------------------------------------------------------------------------------------------


def verb(*arguments: str) -> None:
    """The verb in this process, which spares loading everything anew."""
    app(["report", *arguments], standalone_mode=False)


def test_the_verb_writes_a_page_about_a_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "--step-size 4e-3 --compensate --run --stop-time 1 --parameter kc=50:200 --json"
    arguments = ["two-mass", *words.split(" ")]
    monkeypatch.setattr(sys, "argv", ["cosimo", "report", *arguments])
    verb(*arguments)
    fields = json.loads(capsys.readouterr().out)
    assert fields["output_file"] == "report.html"
    parts = ["verdict", "runs", "steps", "system", "compensation"]
    assert fields["sections"] == [*parts, "modes", "monitors", "timing", "provenance"]
    assert fields["bytes"] == len((tmp_path / "report.html").read_bytes())
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "cosimo report two-mass --step-size 4e-3" in page


def test_tuning_does_without_the_optimisation_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymoo", None)
    system = co.problems.two_mass()
    space = Space(steps=(1e-3, 4e-3), families=("jacobi",), kinds=(0, 1))
    asked = Asked(system, co.masters.jacobi(system, 4e-3), stop=1.0, tune=True, space=space, evaluations=20)
    _, tuned = prepare(replace(asked, run=False)).things
    assert tuned.chosen.stable


def test_the_verb_writes_a_page_about_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    system = co.problems.two_mass()
    master = co.masters.jacobi(system, 4e-3)
    for name in ("a.parquet", "b.csv", "c.mat", "d.arrow", "e.arrows"):
        co.run(system, master, stop=1.0, record="all", output=ResultFile(name))
    stream = Path("e.arrows").read_bytes()
    Path("f.parquet.partial").write_bytes(stream[: 2 * len(stream) // 3])
    files = ("a.parquet", "b.csv", "c.mat", "d.arrow", "e.arrows", "f.parquet")
    verb(*files, "--reference", "b.csv", "-o", "out.html", "--title", "My <title>")
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<h1>My &lt;title&gt;</h1>" in page
    assert "f.parquet (jacobi), incomplete" in page
    assert "difference to b.csv (jacobi)" in page
    shown = embedded(page)["runs"]["runs"]
    assert [run["name"].split(" ")[0] for run in shown] == ["b.csv", *(name for name in files if name != "b.csv")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("a.csv --tune", "need a system"),
        ("a.csv --step-size 1", "--step-size describes how a system is run"),
        ("nosuch.parquet", "does not exist"),
        ("two-mass tank", "two systems"),
        ("two-mass --parameter kc", "NAME=FROM:TO"),
        ("two-mass --parameter kx=1:2", "unknown parameter"),
        ("a.csv -o no/where.html", "cannot write the report"),
    ],
)
def test_wrong_arguments(arguments: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("time,x\n0,1\n1,2\n")
    with pytest.raises(CosimoError, match=said):
        verb(*arguments.split(" "))


# ---- notebooks -------------------------------------------------------------------------------------------------------


def test_objects_show_themselves_in_notebooks(whole: Report) -> None:
    material = whole.contents
    nasty = Result(("<b>x",), np.arange(3.0), np.array([[1.0], [np.nan], [3.0]]), (Warned("<i>", 0.0),))
    shown = [
        (material.verdict, "Do not trust: unstable"),
        (material.verdict, "most critical connection"),
        (material.tuned, escape(material.tuned.document.headline)),
        (material.compensation, "stable"),
        (material.runs[0].result, "<svg"),
        (nasty, "&lt;b&gt;x"),
        (Result((), np.empty(0), np.empty((0, 0)), complete=False), "incomplete"),
    ]
    for thing, word in shown:
        html = thing._repr_html_()
        assert word in html
        assert "<script" not in html
        assert "<i>" not in html
        assert html.count("<table") == html.count("</table>")


def test_known_units_are_run_once_for_each_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors of a run are those of its own rows, to the bit those of another run of it."""
    system = co.problems.two_mass()
    master = co.masters.jacobi(system, 4e-3)
    asked = Asked(system, master, stop=2.0, run=True)
    expected = Model(system, step=4e-3, horizon=2.0).measure(master).errors
    monkeypatch.setattr(Pilots, "_run", lambda *_: pytest.fail("the master was run a second time"))
    runs = {thing.role: thing for thing in prepare(asked).things if isinstance(thing, ReportedRun)}
    assert runs["given"].measured == expected
