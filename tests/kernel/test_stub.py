"""The types of the kernel, `src/cosimo/_kernel.pyi`, are those of what is compiled."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from nanobind.stubgen import StubGen

STUB = Path(__file__).parents[2] / "src" / "cosimo" / "_kernel.pyi"


def test_the_stub_is_that_of_the_compiled_kernel() -> None:
    kernel = import_module("cosimo._kernel")
    generator = StubGen(kernel)
    generator.put(kernel)

    assert STUB.read_text(encoding="utf-8") == generator.get(), (
        f"write it anew: python -m nanobind.stubgen -m cosimo._kernel -o {STUB.relative_to(STUB.parents[2])}"
    )
