"""What the shell completes after `cosimo --install-completion`: systems, files, masters, couplings, papers, variables.

Whoever presses the tab key waits: nothing heavy is imported, and a file is opened only to list its variables.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import cosimo as co
from cosimo.core.storage import RESULT_SUFFIXES

SYSTEMS = (".toml", ".ssp", ".ssd", ".xml", ".json", ".fmu")
RESULTS = (*RESULT_SUFFIXES, ".partial")
WORDS: dict[str, Callable[[], Iterable[str]]] = {
    "master": lambda: masters(),
    "coupling": lambda: couplings(),
    "engine": lambda: ("kernel", "reference"),
    "inputs": lambda: ("held", "interpolated"),
    "adaptive": lambda: ("energy", "doubling"),
    "method": lambda: ("auto", "nsga2", "nsga3", "grid"),
    "backend": lambda: ("auto", "cupy", "numpy", "torch"),
    "reference": lambda: ("auto", "exact", "fine", "monolithic"),
    "fmi": lambda: ("2", "3"),
    "solver": lambda: import_module("cosimo.units.fmi.model_exchange").SOLVERS,
    "papers": lambda: papers(),
}
"""Options whose values are known words."""
LISTS: dict[str, Callable[[], Iterable[str]]] = {
    "masters": lambda: masters(),
    "couplings": lambda: couplings(),
    "objectives": lambda: ("error", "robustness", "cost", "radius", "defect"),
}
"""Options that take such words separated by commas."""
Completer = Callable[..., list[str]]
"""Takes what is typed (`incomplete`), maybe after the context, and gives what it could become."""


def add_completion(verb: Callable[..., None]) -> Callable[..., None]:
    """Tell typer how the arguments of a verb are completed, by their names and metavars."""
    for parameter in inspect.signature(verb).parameters.values():
        for info in getattr(parameter.annotation, "__metadata__", ()):
            found = _completer(parameter.name, getattr(info, "metavar", None) or "")
            if found is not None and getattr(info, "autocompletion", found) is None:
                info.autocompletion = found
    return verb


def _completer(name: str, metavar: str) -> Completer | None:
    if metavar in ("SYSTEM", "FILE") and name in ("system", "target"):
        return complete_system
    if metavar.startswith("SYSTEM|RESULT"):
        return lambda incomplete: complete_system(incomplete) + complete_files(incomplete, RESULTS)
    if metavar == "RESULT":
        return lambda incomplete: complete_files(incomplete, RESULTS)
    if metavar.startswith("RESULT"):
        return complete_plotted
    if metavar.startswith("FMU"):
        return lambda incomplete: complete_files(incomplete, (".fmu",))
    if name in WORDS:
        return lambda incomplete: complete_words(incomplete, WORDS[name]())
    return (lambda incomplete: complete_list(incomplete, LISTS[name]())) if name in LISTS else None


def complete_words(incomplete: str, known: Iterable[str]) -> list[str]:
    """Those that begin so."""
    return [word for word in known if word.startswith(incomplete)]


def complete_list(incomplete: str, known: Iterable[str]) -> list[str]:
    """The last of several words separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{word}" for word in known if word.startswith(last) and word not in taken]


def complete_files(incomplete: str, suffixes: Sequence[str]) -> list[str]:
    """Files that end so, and folders."""
    folder, _, start = incomplete.rpartition("/")
    lead = incomplete[: len(incomplete) - len(start)]
    try:
        entries = sorted(Path(folder or ("/" if lead else ".")).iterdir())
    except OSError:
        return []
    fitting = [e for e in entries if e.name.startswith(start) and (start.startswith(".") or e.name[0] != ".")]
    return [lead + e.name + ("/" if e.is_dir() else "") for e in fitting if e.is_dir() or e.suffix in suffixes]


def complete_system(incomplete: str) -> list[str]:
    """Built-in problems and files."""
    return complete_words(incomplete, problems()) + complete_files(incomplete, SYSTEMS)


def complete_plotted(ctx: Any, incomplete: str) -> list[str]:
    """Result files, and the variables of those that are named already."""
    given = next((value for value in ctx.params.values() if isinstance(value, list | tuple) and value), ())
    files = [word for word in map(str, given) if Path(word).suffix in RESULTS]
    names = dict.fromkeys(name for file in files for name in variables(Path(file)))
    found = [name for name in names if name.startswith(incomplete)]
    return found + complete_files(incomplete, RESULTS)


def variables(path: Path) -> Iterator[str]:
    """The names in a result file, from its first bytes; nothing where they cannot be had quickly."""
    try:
        if path.suffix == ".csv":
            with path.open(encoding="utf-8") as file:
                yield from (name.strip().strip('"') for name in file.readline().split(",")[1:])
        elif path.suffix == ".parquet":
            from pyarrow.parquet import read_schema

            yield from read_schema(path).names[1:]
        elif path.suffix in (".arrow", ".arrows", ".partial"):
            import pyarrow

            read = pyarrow.ipc.open_file if path.suffix == ".arrow" else pyarrow.ipc.open_stream
            with pyarrow.OSFile(str(path)) as file:
                yield from read(file).schema.names[1:]
    except (OSError, ValueError):
        return


def problems() -> list[str]:
    """The names of built-in problems."""
    return list(co.problems.CATALOGUE)


def masters() -> list[str]:
    """The words of masters."""
    return list(co.masters.MASTERS)


def couplings() -> list[str]:
    """The words of couplings, up to what must be given: hold0, nepce:, dmd, dmd:"""
    return ["".join(form.partition(":")[:2]) for form in co.couplings.coupling_forms()]


def papers() -> list[str]:
    """The papers that are reproduced."""
    # Each is a module named after author and year; importing them would take a second.
    return sorted(path.stem for path in (Path(__file__).parents[1] / "papers").glob("*[0-9][0-9][0-9][0-9].py"))
