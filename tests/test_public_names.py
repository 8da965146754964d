"""The public surface: this list changes only on purpose."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import cosimo
import cosimo.algebra
import cosimo.analysis

NAMES = [
    "Connection",
    "CosimoError",
    "Fmu",
    "Master",
    "Mechanical",
    "PythonUnit",
    "Result",
    "Scenario",
    "Schedule",
    "StateSpace",
    "System",
    "Table",
    "Unit",
    "analyse",
    "compensate",
    "couplings",
    "explore",
    "identify",
    "load",
    "masters",
    "problems",
    "report",
    "run",
    "simulate",
    "tune",
]


def test_the_list_is_locked() -> None:
    assert cosimo.__all__ == NAMES
    assert dir(cosimo) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_can_be_had(name: str) -> None:
    assert getattr(cosimo, name) is not None


def test_other_names_cannot() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulated'"):
        cosimo.simulated  # noqa: B018


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import cosimo, sys; print([m for m in ('numpy', 'scipy', 'pandas', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", [cosimo, cosimo.algebra, cosimo.analysis], ids=lambda package: package.__name__)
def test_type_checkers_see_what_is_loaded_when_first_used(package: ModuleType) -> None:
    """A name that stands in the table only would be Any to them."""
    (block,) = (node for node in ast.parse(inspect.getsource(package)).body if isinstance(node, ast.If))
    seen = {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert set(seen) == set(package.__all__)
    for name, module in seen.items():
        assert getattr(sys.modules[f"{module}"], name) is getattr(package, name)


def test_results_name_the_version_that_is_installed() -> None:
    assert cosimo.__version__ == importlib.metadata.version("cosimo")
