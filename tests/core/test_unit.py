"""The contract of units: nothing is asked of a unit or an instance but what its base class names."""

from __future__ import annotations

import ast
from pathlib import Path

import cosimo
from cosimo.core.unit import Instance, Unit


def test_nobody_probes_units_for_attributes() -> None:
    """`getattr(unit, "…", …)` hides from a new kind of unit what it may provide: the contract has a default instead."""
    contract = {name for kind in (Unit, Instance) for name in dir(kind)} | set(Unit.__annotations__)
    contract = {name for name in contract if not name.startswith("_")} - {"path", "name"}  # files and classes have them
    probed = []
    for file in Path(cosimo.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "attr(" in text else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("getattr", "hasattr")
            ):
                asked = node.args[1]
                if isinstance(asked, ast.Constant) and asked.value in contract and file.name != "python.py":
                    probed.append(f"{file.name}:{node.lineno}: {asked.value}")
    assert not probed
