"""What the site shows of files outside docs: they keep their place in the repository and appear as pages too."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/RESULTS.md": "project/benchmarks.md",
}
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that live elsewhere."""
    for source, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where a file is on the site; what is only in the repository is named, not linked."""
    home = {place: source for source, place in PAGES.items()}
    here = home.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def moved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        if target in PAGES:
            wanted = PAGES[target]
        elif target.startswith("docs/"):
            wanted = target.removeprefix("docs/")
        else:
            return match[0]
        return match[1] + posixpath.relpath(wanted, posixpath.dirname(page.file.src_uri) or ".") + match[3]

    return LINK.sub(moved, markdown)
