"""The vocabulary everything else is written in: schedules, signals, systems, contracts, results, errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__version__ = "0.1.0"
"""The version of the package; it goes into results and checkpoints."""


def loaded_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` says of each name in which module it is, loaded when first asked for.

    A module that is called as the name is the module itself.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = import_module(homes[name], package)
        return module if module.__name__ == f"{package}.{name}" else getattr(module, name)

    return get
