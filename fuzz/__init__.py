"""Inputs nobody would write: every reader of files is given mutated ones, and may only refuse them with a typed error.

Each module with a function `check(data)`, a function `seeds()` and the `MODULES` that it tests is a target;
`python -m fuzz` runs them all with atheris (coverage-guided, libFuzzer), `make fuzz` gives each 10^5 inputs. An input
on which a target crashes, hangs for more than 5 s or raises anything but `CosimoError` is kept in
`tests/safety/findings/<target>/`, where a test runs all of them without atheris. The test also reads, once each, what
`large()` of a target yields: inputs of a length that leaves a fuzzer no time.
"""

from __future__ import annotations

import importlib
from types import ModuleType

TARGETS = ("model_description", "build_description", "structures", "scenario", "archives", "results", "checkpoints")


def load(name: str) -> ModuleType:
    """The target, after what it tests was imported."""
    target = importlib.import_module(f"fuzz.{name}")
    for module in target.MODULES:
        importlib.import_module(module)
    return target
