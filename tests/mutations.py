"""One-token mutations of the modules that decide: does a test of their folder notice each?

    python -m tests.mutations --seed 1 --count 40          # or: make mutations

A mutation changes one token of one function or constant: a comparison, an arithmetic operator, a number (× 2 or + 1),
`and`/`or`, `True`/`False`, `min`/`max`, `not`. It is applied in a copy of `src`; then the tests in `tests/analysis` run
against it, those that mirror the module first, until one fails. A mutation that no test notices is printed with file,
line and tokens: either it changes no result, or a test is missing. Nothing here is collected by pytest.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "analysis"
MODULES = ("stability", "truth", "trust", "recommendation", "spectrum", "critical", "cost", "pilots", "limits")
"""The modules of `cosimo.analysis` that are mutated."""
SLOW = ("test_analysing.py", "test_linear_fmus.py", "test_nonlinear_fmus.py", "test_verdict.py")
"""Left out with --quick: files that take minutes."""
LIMIT = 900.0
"""Seconds after which tests that do not end count as noticing."""
OPERATORS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"),
    ast.Eq: ("!=",), ast.NotEq: ("==",), ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",),
    ast.Add: ("-",), ast.Sub: ("+",), ast.Mult: ("/",), ast.Div: ("*",), ast.Pow: ("*",), ast.MatMult: ("*",),
    ast.FloorDiv: ("/",), ast.Mod: ("*",),
    ast.And: ("or",), ast.Or: ("and",),
}  # fmt: skip
WORDS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**",
    ast.MatMult: "@", ast.FloorDiv: "//", ast.Mod: "%", ast.And: "and", ast.Or: "or",
}  # fmt: skip
START = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Redirecting' not in type(f).__name__]"
"""What is run first: an editable installation sends every import of the package to the sources it was made from."""
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutation:
    """`old` at byte `begin` of a module becomes `new`."""

    module: str
    line: int
    begin: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.module}.py:{self.line}: {self.old} → {self.new}"

    def apply(self, source: bytes) -> bytes:
        """The source with the one token changed."""
        old = self.old.encode()
        assert source[self.begin : self.begin + len(old)] == old, self
        return source[: self.begin] + self.new.encode() + source[self.begin + len(old) :]


def mutations(module: str, source: bytes) -> list[Mutation]:
    """All mutations of one module; docstrings, annotations and texts are left alone."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    found = []
    for node in _code(ast.parse(source)):
        for line, begin, old, news in _tokens(node, source, place):
            found += [Mutation(module, line, begin, old, new) for new in news]
    return sorted(set(found), key=lambda m: (m.begin, m.new))


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are computed with: no annotations, no texts."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns") or isinstance(tree, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
                yield from _code(child)


def _tokens(node: ast.AST, source: bytes, place: object) -> Iterator[tuple[int, int, str, tuple[str, ...]]]:
    """Line, byte, token and what may take its place."""
    at = place
    assert callable(at)

    def between(left: ast.expr, right: ast.expr, word: str) -> tuple[int, int]:
        """Where the operator stands between two operands."""
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        begin, end = at(left.end_lineno, left.end_col_offset), at(right.lineno, right.col_offset)
        offset = source[begin:end].find(word.encode())
        return left.end_lineno + source[begin : begin + offset].count(b"\n"), begin + offset

    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, node.comparators, strict=False):
            if type(operator) in OPERATORS:
                word = WORDS[type(operator)]  # type: ignore[index]
                yield *between(left, right, word), word, OPERATORS[type(operator)]
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        word = WORDS[type(node.op)]  # type: ignore[index]
        yield *between(node.left, node.right, word), word, OPERATORS[type(node.op)]
    elif isinstance(node, ast.BoolOp):
        word = WORDS[type(node.op)]  # type: ignore[index]
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield *between(left, right, word), word, OPERATORS[type(node.op)]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.lineno, at(node.lineno, node.col_offset), "not ", ("",)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node.lineno, at(node.lineno, node.col_offset), str(node.value), (str(not node.value),)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        assert node.end_col_offset is not None
        begin, end = at(node.lineno, node.col_offset), at(node.lineno, node.end_col_offset)
        old = source[begin:end].decode()
        doubled = repr(node.value * 2) if node.value else "2"
        yield node.lineno, begin, old, (doubled, repr(node.value + 1))
    elif isinstance(node, ast.Name) and node.id in SWAPPED:
        yield node.lineno, at(node.lineno, node.col_offset), node.id, (SWAPPED[node.id],)
    elif isinstance(node, ast.Attribute) and node.attr in SWAPPED:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = at(node.end_lineno, node.end_col_offset) - len(node.attr)
        yield node.end_lineno, begin, node.attr, (SWAPPED[node.attr],)


def sample(seed: int, count: int, modules: tuple[str, ...]) -> list[Mutation]:
    """So many mutations, at most one per token, by seed."""
    every = [m for module in modules for m in mutations(module, _path(ROOT / "src", module).read_bytes())]
    chosen: dict[tuple[str, int], Mutation] = {}
    for mutation in random.Random(seed).sample(every, len(every)):
        if len(chosen) == count:
            break
        chosen.setdefault((mutation.module, mutation.begin), mutation)
    return sorted(chosen.values(), key=lambda m: (modules.index(m.module), m.begin))


def _path(source: Path, module: str) -> Path:
    return source / "cosimo" / "analysis" / f"{module}.py"


def survives(mutation: Mutation, source: Path, quick: bool) -> tuple[bool, str]:
    """Whether no test notices the mutation in this copy of the sources; otherwise which one does."""
    path = _path(source, mutation.module)
    before = path.read_bytes()
    path.write_bytes(mutation.apply(before))
    first = TESTS / f"test_{mutation.module}.py"
    others = [p for p in sorted(TESTS.glob("test_*.py")) if p != first and not (quick and p.name in SLOW)]
    command = [sys.executable, "-c", f"{START}; import pytest; sys.exit(pytest.main())", "-x", "-m", "not slow"]
    environment = {**os.environ, "PYTHONPATH": str(source), "COSIMO_CACHE": "off", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", "--tb=no", str(first), *map(str, others)],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, "took too long"
    finally:
        path.write_bytes(before)
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"pytest did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed = [line.split("::", 1)[-1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode == 0, (failed[0].split(" - ")[0] if failed else "")


def main() -> int:
    """Print the fate of every mutation, and the share that was noticed; 1 where one survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--modules", nargs="+", choices=MODULES, default=MODULES)
    parser.add_argument("--only", nargs="+", default=[], metavar="MODULE.py:LINE", help="of the sample, only these")
    parser.add_argument("--quick", action="store_true", help=f"without {', '.join(SLOW)}")
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    options = parser.parse_args()
    chosen = sample(options.seed, options.count, tuple(options.modules))
    chosen = [m for m in chosen if not options.only or f"{m.module}.py:{m.line}" in options.only]
    if options.list:
        print(*chosen, sep="\n")
        return 0
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        _link_compiled(source)
        _check_copy(source)
        for mutation in chosen:
            begin = time.monotonic()
            alive, by = survives(mutation, source, options.quick)
            survivors += [mutation] if alive else []
            fate = "SURVIVED" if alive else f"killed by {by}"
            print(f"{mutation}   {fate}   ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed")
    return int(bool(survivors))


def _link_compiled(source: Path) -> None:
    """Compiled parts are installed beside the sources, or elsewhere; the copy uses the same ones."""
    kernel = Path(_said("import cosimo._kernel as k; print(k.__file__)", None))
    for part in (kernel, *(kernel.parent / name for name in ("units/_isolation", "formats/_fmu"))):
        here = source / "cosimo" / part.relative_to(kernel.parent)
        if part.exists() and not here.exists():
            here.symlink_to(part)


def _check_copy(source: Path) -> None:
    """That tests import the copy and not the installed package: mutations would all survive otherwise."""
    found = _said(f"{START}; import cosimo._kernel, cosimo.analysis.truth as t; print(t.__file__)", source)
    if not Path(found).is_relative_to(source):
        raise RuntimeError(f"the tests would import {found} and not the copy in {source}.")


def _said(program: str, source: Path | None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source)} if source else dict(os.environ)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
