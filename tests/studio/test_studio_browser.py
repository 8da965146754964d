"""The studio in a real browser: a newcomer turns the step, takes the advice, runs, and passes the link on."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cosimo as co
from cosimo.formats.export import SuggestedExperiment, export_system
from reporting.browser import Page, chromium

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(browser: str) -> Iterator[Page]:
    with chromium(browser) as opened:
        yield opened


def text(page: Page, name: str) -> str:
    return str(page.ask(f"document.getElementById('{name}').textContent"))


def click(page: Page, name: str) -> None:
    page.ask(f"document.getElementById('{name}').click()")


def turn(page: Page, place: str) -> float:
    """Move the slider as a hand does; the step it stands at."""
    moved = f"s.value = {place}; s.dispatchEvent(new Event('input')); "
    page.ask(f"(() => {{ const s = document.getElementById('step'); {moved} }})()")
    return float(page.wait("Number(document.documentElement.dataset.shown)"))


def visit(page: Page, address: str, *, width: int = 1280) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.call("Emulation.setDeviceMetricsOverride", **size)
    page.call("Page.navigate", url="about:blank")
    page.trouble.clear()
    page.call("Page.navigate", url=address)
    page.wait("document.documentElement?.dataset.full")


def foreign(page: Page, address: str) -> list[str]:
    """What went wrong, and requests to anywhere else than the studio."""
    own = ("/".join(address.split("/")[:4]), "about:blank", "ws://")
    return [line for line in page.trouble if not any(place in line for place in own)]


@pytest.mark.slow
def test_a_newcomer_mends_a_coupling(page: Page, studio: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text('problem = "two-mass"\nstep-size = 0.001\nstop-time = 20\n')
    with studio("pair.toml") as found:
        visit(page, found.address)
        assert text(page, "headline").startswith("Do not trust: two.v is off by 21 %")
        assert page.ask("document.querySelectorAll('#graph .unit').length") == 2
        assert page.ask("document.querySelectorAll('#graph path.worst').length") == 1
        # A connection tells its details; the thickest is the one that contributes most.
        page.wait("document.querySelector('#graph path.worst')?.style.strokeWidth > '1.5px'")
        page.ask("document.querySelector('#graph path.worst').dispatchEvent(new Event('click'))")
        page.wait("document.getElementById('wire').textContent.includes('falls by')")
        told = text(page, "wire")
        assert all(word in told for word in ("gain", "delay", "0.5 macro steps", "defect", "falls by")), told
        page.wait("document.getElementById('front').spec?.points.length > 20")
        # The step is turned until it is unstable: light, sentence, command and link follow.
        step = turn(page, "Number(s.max) * 0.6")
        page.wait("document.getElementById('headline').textContent === 'Do not trust: unstable'")
        # Until its full verdict is there, that of another step is not shown for it.
        head = "document.getElementById('headline')"
        note = f"new MutationObserver(() => window.seen.push({head}.textContent))"
        page.ask(f"(() => {{ window.seen = []; {note}.observe({head}, {{ childList: true }}); }})()")
        page.wait("document.documentElement.dataset.full")
        assert page.ask("window.seen") == []
        assert page.ask("document.getElementById('card').className") == "verdict bad"
        assert page.ask("document.getElementById('step').getAttribute('aria-valuetext')").endswith("unstable")
        page.wait(f"document.getElementById('command').textContent.endsWith('--step-size {step}')")
        # The advice is taken, written to the file, and run.
        page.wait("!document.getElementById('advice').hidden")
        click(page, "take")
        page.wait("document.getElementById('headline').textContent.startsWith('Trust: ')")
        page.wait("document.getElementById('lines').textContent.includes('hold1')")
        lines = text(page, "lines")
        click(page, "apply")
        page.wait("document.getElementById('applied').textContent.includes('pair.toml.old')")
        assert set(lines.split()) <= set((tmp_path / "pair.toml").read_text().split())
        click(page, "run")
        page.wait("document.getElementById('run-list').textContent.includes('done')")
        page.wait("Number(document.querySelector('#run-charts canvas')?.dataset.points) > 1000")
        # Whoever gets the link sees the same; the run is still there.
        page.wait("location.hash.includes('hold1')")
        link, command = page.ask("location.href"), text(page, "command")
        visit(page, link)
        assert text(page, "command") == command
        page.wait("document.getElementById('run-list').textContent.includes('pair-run-1.parquet')")
        assert foreign(page, found.address) == []
        # A phone shows all of it without scrolling sideways.
        visit(page, link, width=390)
        assert page.ask("document.documentElement.scrollWidth") <= 390
        # Frozen, the slider still works, without the studio.
        page.wait("document.documentElement.dataset.filled")
        click(page, "freeze")
        page.wait("document.getElementById('applied').textContent.includes('without a server')", patience=900.0)
    (frozen,) = tmp_path.glob("*.html")
    visit(page, frozen.as_uri())
    assert text(page, "headline").startswith("Trust: ")
    turn(page, "Number(s.max)")
    page.wait("document.getElementById('headline').textContent === 'Do not trust: unstable'")
    assert page.ask("getComputedStyle(document.getElementById('runs')).display") == "none"
    assert page.trouble == []


def test_fmus_are_chosen_on_the_page(page: Page, studio: Callable[..., Any], tmp_path: Path) -> None:
    elsewhere, usual = tmp_path / "elsewhere", SuggestedExperiment(step=1e-3, stop=3.0)
    files = export_system(co.problems.quarter_truck(), elsewhere, fmi=2, experiment=usual).values()
    with studio("two-mass") as found:
        visit(page, found.address)
        root = page.call("DOM.getDocument")["root"]["nodeId"]
        field = page.call("DOM.querySelector", nodeId=root, selector="#fmus")["nodeId"]
        page.call("DOM.setFileInputFiles", nodeId=field, files=[str(file) for file in files])
        page.wait("document.getElementById('command').textContent.includes('system.toml')")
        page.wait("document.documentElement.dataset.full && document.getElementById('evidence').textContent")
        page.wait("document.getElementById('evidence').textContent.startsWith('Confirmed by pilot runs')")
        assert "named after the unit" in text(page, "proposals")
        assert "open: wheel.road" in text(page, "open")
        assert page.ask("document.querySelectorAll('#graph .unit').length") == 2
        assert foreign(page, found.address) == []
    assert (tmp_path / "system.toml").exists()


def dropped(page: Page, files: list[str]) -> None:
    """Drop files onto the page as a hand does."""
    data = {"items": [], "files": files, "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        page.call("Input.dispatchDragEvent", type=kind, x=600, y=500, data=data)


def dragged(page: Page, to: str) -> None:
    """Drag the thumb of the slider by the mouse to a place, a share of its length."""
    box = "document.getElementById('step').getBoundingClientRect()"
    page.ask("document.getElementById('step').scrollIntoView({ block: 'center' })")
    now = "(8 + (b.width - 16) * Number(s.value) / Number(s.max))"
    begin, end, high = page.ask(
        f"(() => {{ const s = document.getElementById('step'), b = {box}; "
        f"return [b.x + {now}, b.x + 8 + (b.width - 16) * {to}, b.y + b.height / 2]; }})()"
    )
    for kind, x in (("mousePressed", begin), *(("mouseMoved", begin + (end - begin) * i / 9) for i in range(1, 10)),
                    ("mouseReleased", end)):  # fmt: skip
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=high, button="left", buttons=1, clickCount=1)


def kept(page: Page, name: str) -> None:
    """Pictures of all of the page, wide, in the dark and as a phone shows it, where somebody wants to look at them."""
    if (folder := os.environ.get("SCREENSHOTS")) is None:
        return
    for kind, width, scheme in (("", 1280, "light"), ("-dark", 1280, "dark"), ("-phone", 390, "light")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.call("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        size["height"] = page.ask("document.documentElement.scrollHeight")
        page.call("Emulation.setDeviceMetricsOverride", **size)  # all of it is drawn
        page.ask("new Promise((done) => setTimeout(done, 400))")
        data = page.call("Page.captureScreenshot", format="png")["data"]
        Path(folder, f"{name}{kind}.png").write_bytes(base64.b64decode(data))
    page.call("Emulation.setEmulatedMedia", features=[])
    page.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)


@pytest.mark.slow
def test_two_fmus_become_a_run_that_can_be_trusted(
    page: Page, studio: Callable[..., Any], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Drop, wires, drag until red, take, apply, run, compare, freeze, link; `SCREENSHOTS=folder` keeps pictures."""
    elsewhere, usual = tmp_path_factory.mktemp("elsewhere"), SuggestedExperiment(step=1e-3, stop=5.0)
    fmus = export_system(co.problems.two_mass(), elsewhere, fmi=2, experiment=usual)
    full, evidence = "document.documentElement.dataset.full", "document.getElementById('evidence').textContent"
    confirmed = f"{full} && {evidence}.startsWith('Confirmed')"
    with studio() as found:
        visit(page, found.address)
        kept(page, "1-open")
        dropped(page, [str(file) for file in fmus.values()])
        page.wait("document.getElementById('command').textContent.includes('system.toml')")
        page.wait(confirmed)
        kept(page, "2-dropped")
        # The force between two masses acts on both, with opposite signs: the page says so, and a click writes it.
        page.ask("[...document.querySelectorAll('#proposals button')].at(-1).click()")
        page.wait("document.getElementById('proposals').textContent.includes('with gain −1 is written')")
        page.wait(confirmed)
        assert text(page, "headline").startswith("Do not trust: two.")
        assert "gain = -1.0" in (tmp_path / "system.toml").read_text()
        kept(page, "3-wired")
        dragged(page, "0.55")
        page.wait("document.getElementById('card').className === 'verdict bad'")
        page.wait("document.getElementById('headline').textContent.includes('unstable')")
        page.wait("!document.getElementById('advice').hidden")
        kept(page, "4-red")
        click(page, "run")  # what it warns of is seen in the run
        page.wait("document.getElementById('run-list').textContent.includes('done')")
        click(page, "take")
        page.wait("document.getElementById('headline').textContent.startsWith('Trust: ')")
        page.wait(confirmed)
        kept(page, "5-taken")
        click(page, "apply")
        page.wait("document.getElementById('applied').textContent.includes('system.toml.old')")
        page.wait(confirmed)
        kept(page, "6-applied")
        click(page, "run")
        page.wait("document.querySelectorAll('#run-list tbody tr').length === 2")
        page.wait(
            "[...document.querySelectorAll('#run-list tbody tr')].every((row) => row.textContent.includes('done'))"
        )
        page.wait(
            "document.querySelector('#run-charts canvas')?.spec?.lines.length >= 4"
        )  # two runs, truth, prediction
        kept(page, "7-compared")
        click(page, "freeze")
        page.wait("document.getElementById('applied').textContent.includes('without a server')", patience=900.0)
        link, command = page.ask("location.href"), text(page, "command")
        visit(page, link)
        assert text(page, "command") == command
        page.wait("document.querySelectorAll('#run-list tbody tr').length === 2")
        kept(page, "8-reloaded")
        assert foreign(page, found.address) == []
    (frozen,) = tmp_path.glob("*.html")
    visit(page, frozen.as_uri())
    assert text(page, "headline").startswith("Trust: ")
    turn(page, "Number(s.max) * 0.75")
    page.wait("document.getElementById('headline').textContent.includes('unstable')")
    kept(page, "9-frozen")
    # It holds every master; where the units cannot be identified, it says so.
    chosen = "m.value = 'strang'; m.dispatchEvent(new Event('change'));"
    page.ask(f"(() => {{ const m = document.getElementById('master'); {chosen} }})()")
    page.wait("document.getElementById('command').textContent.includes('--master strang')")
    turn(page, "Number(s.max)")
    page.wait("document.getElementById('headline').textContent === 'Not assessed'")
    assert page.trouble == []


ENGINE = """
class Engine:
    inputs, outputs = {"load": 0.0}, ("speed",)
    def __init__(self, power=1.0):
        self.power, self.speed = power, 0.0
    def step(self, time, duration):
        self.speed += duration * (self.power - self.load - self.speed)
"""


def test_a_parameter_is_turned_and_mistakes_are_said(page: Page, studio: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(ENGINE)
    unit = '{ kind = "python", class = "engine.py:Engine", parameters = { power = 2.0 } }'
    (tmp_path / "pair.toml").write_text(
        f'step-size = 0.1\nstop-time = 5\nconnections = ["a.speed -> b.load"]\n[units]\na = {unit}\nb = {unit}\n'
    )
    with studio("pair.toml") as found:
        visit(page, found.address)
        field = "document.querySelector('[data-parameter=\"a.power\"]')"
        assert page.ask(f"{field}.value") == "2"
        page.ask(f"(() => {{ const i = {field}; i.value = '3'; i.dispatchEvent(new Event('change')); }})()")
        page.wait("document.getElementById('command').textContent.includes('--set a.power=3')")
        for control, value, why in (
            ("step-exact", "-1", "not a positive number"),
            ("step-exact", "1000", "longer than the horizon"),
            ("target", "abc", "not a positive number"),
        ):
            script = f"i.value = '{value}'; i.dispatchEvent(new Event('change'));"
            page.ask(f"(() => {{ const i = document.getElementById('{control}'); {script} }})()")
            page.wait(f"document.getElementById('trouble').textContent.includes('{why}')")
            assert not page.ask("document.getElementById('trouble').hidden")
