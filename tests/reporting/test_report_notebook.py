"""The example notebook, executed by a kernel of its own: every cell runs, and objects show themselves richly."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
RICH = {
    "co.analyse(system, master)": "Do not trust: unstable",
    "\nplain": "<svg",
    "\ndesign": "target monolithic",
    "\ntuned": "Pareto-optimal master",
}


@pytest.mark.filterwarnings(  # of the kernel's own plumbing
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore:Proactor event loop:RuntimeWarning"
)
def test_the_notebook_runs_and_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, startup_timeout=600, resources=resources).execute()
    for end, word in RICH.items():
        cell = next(cell for cell in notebook.cells if cell.cell_type == "code" and ("\n" + cell.source).endswith(end))
        shown = cell.outputs[-1]["data"]["text/html"]
        assert word in shown, cell.source
    assert (tmp_path / "two-mass.html").stat().st_size > 1e6
