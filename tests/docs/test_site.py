"""The site builds without a warning, and every link on it leads somewhere, anchors included."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # links and anchors of the sources: `tests/test_readme.py`


class Page(HTMLParser):
    """Where a page leads, and where one can be led on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        # The builder advertises its successor on standard error.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def broken(site: Path) -> Iterator[str]:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        # The page for what is not found is served from anywhere: its links begin at the root.
        for link in page.links if path.name != "404.html" else ():
            if link.startswith(("https://", "data:", "mailto:")):
                continue
            place, anchor = urldefrag(link)
            target = (path.parent / unquote(place)).resolve() if place else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(site)}: {link}"
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                yield f"{path.relative_to(site)}: {link} has no such anchor"


def test_links_lead_somewhere(site: Path) -> None:
    assert not list(broken(site))


def test_the_site_needs_no_network(site: Path) -> None:
    """Nothing that a page loads comes from elsewhere; links that a reader may follow are something else."""
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert '<script src="https://' not in text
        assert '<link rel="stylesheet" href="https://' not in text
        assert "fonts.googleapis" not in text
