"""A drawn figure and the file it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cosimo.core.errors import OutputError
from cosimo.papers.figures.style import DOTS_PER_INCH

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure; `name` becomes the file's name, such as fig-03-primary-poles."""

    name: str
    figure: Figure

    def write(self, folder: Path, paper: str) -> Path:
        """Write DIR/paper-name.png; equal data give an equal file."""
        path = folder / f"{paper}-{self.name}.png"
        try:
            self.figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
        except OSError as error:
            raise OutputError(f"cannot write '{path}': {error.strerror or error}; choose another folder.") from None
        return path


def make_folder(folder: Path) -> None:
    """Create the folder, or say why it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create the folder '{folder}': {error.strerror}; choose another one.") from None
