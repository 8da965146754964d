"""Loaded by every Python that `python -m sanitize` starts: puts the sanitized build in place of the installed one."""

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_BUILD = Path(os.environ["COSIMO_SANITIZED"])


class _Isolation:
    """Loads the module as its own loader does, and lets it find the worker and the libraries in the sanitized build."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        module.part = lambda name: next(_BUILD.glob(f"src/*/{name}"))


def _find(name: str, others: list[Any], path: Any, target: Any) -> ModuleSpec | None:
    if name == "cosimo._kernel":
        (file,) = _BUILD.glob("src/kernel/_kernel*.so")
        return importlib.util.spec_from_file_location(name, file)
    if name == "cosimo.units.fmi.isolation":
        found = (finder.find_spec(name, path, target) for finder in others)
        spec: ModuleSpec | None = next(filter(None, found), None)
        if spec is not None:
            spec.loader = _Isolation(spec.loader)
        return spec
    return None


class _First(list[Any]):
    """The list of finders with ours in front of those that are still to come, such as that of an editable install."""

    def __iter__(self) -> Any:
        others = list(super().__iter__())
        yield type(
            "Ours",
            (),
            {"find_spec": staticmethod(lambda name, path=None, target=None: _find(name, others, path, target))},
        )
        yield from others


sys.meta_path = _First(sys.meta_path)
