"""The report in a real browser: drawn without an error, without the network, in time, and usable."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cosimo as co
from cosimo.core.result import Result, Warned
from cosimo.reporting.report.computation import Asked, prepare

from .browser import Page, chromium

CHIPS = "[...document.querySelectorAll('#chips button')]"


pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(browser: str) -> Iterator[Page]:
    with chromium(browser) as opened:
        yield opened


def text_colour(page: Page) -> str:
    return str(page.ask("getComputedStyle(document.querySelector('#plot-modes-0 .xtick text')).fill"))


def test_a_reader_clicks_through_all_parts(page: Page, whole_page: Path) -> None:
    page.open(whole_page)
    drawn = page.ask(
        "[...document.querySelectorAll('.plot')].map((p) => [p.id, p.querySelectorAll('.main-svg').length])"
    )
    assert [name for name, _ in drawn] == [
        *("plot-runs-0", "plot-steps-0", "plot-steps-1", "plot-front-0", "plot-modes-0", "plot-monitors-0")
    ]
    assert all(count for _, count in drawn)
    # Every part can be reached from the top.
    assert page.ask("[...document.querySelectorAll('nav a')].every((a) => document.querySelector(a.hash))")
    # Parts for specialists are folded until they are asked for; their figures are then as wide as the page.
    assert not page.ask("document.querySelector('#modes > details').open")
    page.ask("document.querySelector('nav a[href=\"#modes\"]').click()")
    page.wait("document.querySelector('#plot-modes-0 .main-svg').clientWidth > 900")
    # Rows of tables and points of figures light up together.
    page.ask("document.querySelector('#table-modes tr.link:nth-child(2)').click()")
    assert page.ask("document.querySelectorAll('#plot-modes-0 .hovertext').length") == 3
    assert page.ask("document.querySelector('#table-modes tr.lit').dataset.point") == "1"
    page.ask("document.querySelector('#table-front tr.link').click()")
    assert page.ask("document.querySelectorAll('#plot-front-0 .hovertext').length") == 1
    # The other view of the step sizes.
    page.ask("document.querySelector('#steps [data-view=\"1\"]').click()")
    page.wait("document.querySelector('#plot-steps-0 .ytitle').textContent === 'spectral radius ρ'")
    # Signals come and go; differences to the reference are others than values.
    lines = "document.querySelectorAll('#plot-runs-0 .scatterlayer .trace').length"
    before = page.ask(lines)
    page.ask(f"{CHIPS}.find((b) => b.getAttribute('aria-pressed') === 'false').click()")
    page.wait(f"{lines} === {before} + 4")
    page.ask("document.getElementById('show-differences').click()")
    page.wait(f"{lines} === {before + 4} - 2")  # the reference itself has no difference
    assert not page.trouble


def test_light_and_dark_follow_the_system_and_the_button(page: Page, whole_page: Path) -> None:
    page.open(whole_page)
    light = text_colour(page)
    page.ask("document.getElementById('theme').click()")
    dark = text_colour(page)
    assert light != dark
    page.open(whole_page, dark=True)
    assert text_colour(page) == dark
    page.ask("document.getElementById('theme').click()")
    assert text_colour(page) == light
    assert not page.trouble


def test_nothing_is_wider_than_a_laptop_or_a_sheet(page: Page, whole_page: Path) -> None:
    page.open(whole_page)
    assert page.ask("document.documentElement.scrollWidth") <= 1280
    page.ask("dispatchEvent(new Event('beforeprint'))")
    assert page.ask("Math.max(...[...document.querySelectorAll('.main-svg')].map((s) => s.clientWidth))") <= 690
    page.ask("dispatchEvent(new Event('afterprint'))")
    page.wait("document.querySelector('#plot-runs-0 .main-svg').clientWidth > 900")
    assert len(page.call("Page.printToPDF", printBackground=True)["data"]) > 100_000
    assert not page.trouble


def test_a_summary_fits_on_one_sheet_and_commands_can_be_copied(page: Page, tmp_path: Path) -> None:
    system = co.problems.two_mass()
    master = co.masters.jacobi(system, 4e-3)
    ready = prepare(Asked(system, master, stop=2.0))
    short = co.report(system, master, *ready.things, reference=ready.reference, summary=True)
    page.open(short.write(tmp_path / "summary.html"))
    printed = base64.b64decode(page.call("Page.printToPDF", printBackground=True)["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.ask("document.querySelector('button.copy').click()")
    page.wait("document.querySelector('button.copy').textContent === 'Copied'")
    assert page.ask("getSelection().toString().trim()") == short.contents.verdict.recommendation.options
    assert not page.trouble


@pytest.mark.slow
def test_a_long_run_opens_in_time(page: Page, tmp_path: Path) -> None:
    """10^6 rows of 50 signals: under 5 MB, and open after 3 s of the processor."""
    rows, signals = 1_000_000, 50
    time, random = np.arange(rows) * 1e-3, np.random.default_rng(0)
    noise = random.standard_normal(rows).astype(np.float32)
    values = np.empty((rows, signals), order="F")
    for column in range(signals):
        values[:, column] = np.sin(2 * np.pi * (0.01 + 0.003 * column) * time) + 0.1 * np.roll(noise, 997 * column)
    values[123_456, 0], values[700_000, 0] = 9.0, np.nan
    names = tuple(f"unit.signal{number}" for number in range(signals))
    long = Result(names, time, values, (Warned("look here", 500.0),), info={"steps": rows - 1, "step": 1e-3})
    path = co.report(long).write(tmp_path / "long.html")
    assert path.stat().st_size < 5e6
    # Processors differ in speed with what else they do; three attempts tell what the page itself needs.
    assert min(page.open(path) for _ in range(3)) < 3.0
    drawn = "document.getElementById('plot-runs-0').data[0]"
    assert page.ask(f"Math.max(...{drawn}.y.filter(Number.isFinite))") == pytest.approx(9.0, rel=1e-6)
    assert page.ask(f"{drawn}.y.filter(Number.isNaN).length") == 1
    assert page.ask(f"{drawn}.x[{drawn}.y.indexOf(Math.max(...{drawn}.y.filter(Number.isFinite)))]") == pytest.approx(
        123.456
    )
    page.ask(
        "const find = document.getElementById('filter'); find.value = 'signal49';find.dispatchEvent(new Event('input'))"
    )
    assert page.ask(f"{CHIPS}.filter((b) => !b.hidden).length") == 1
    assert not page.trouble


def test_names_are_never_read_as_html(page: Page, tmp_path: Path) -> None:
    nasty = "<script>window.bad = 1</script><img src=x onerror='window.bad = 2'>"
    unit = co.StateSpace([[-1.0]], [[1.0]], [[1.0]], inputs=["u"], outputs=["<b>y"], initial=[1.0])
    other = co.StateSpace([[-2.0]], [[-1.0]], [[1.0]], inputs=["u"], outputs=["y"], initial=[0.5])
    links = [(f"{nasty}.<b>y", "other.u"), ("other.y", f"{nasty}.u")]
    system = co.System({nasty: unit, "other": other}, links, name=f"</title></script>{nasty}")
    master = co.masters.jacobi(system, 0.1)
    result = co.run(system, master, stop=5.0, record="all")
    told = Result(
        result.names, result.time, result.values, (Warned(nasty, 1.0),), True, {**result.info, "master": nasty}
    )
    path = co.report(system, master, told, command=nasty, source={"text": nasty, "system": nasty}).write(
        tmp_path / "nasty.html"
    )
    page.open(path)
    assert page.ask("window.bad === undefined")
    assert page.ask("document.title").startswith("</title></script><script>")
    assert page.ask("document.querySelectorAll('img, main script').length") == 0
    assert page.ask(f"{CHIPS}.map((b) => b.textContent)") == list(told.names)
    assert not page.trouble
