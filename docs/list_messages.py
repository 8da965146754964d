"""Every error and warning that the package can emit, read from its source: `python docs/list_messages.py`.

Writes docs/messages.md, as `make test` does before the tests; `tests/test_messages.py` compares every message with the
form that CONTRIBUTING.md describes.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cosimo"
ERRORS = SOURCE / "core" / "errors.py"
PAGE = ROOT / "docs" / "messages.md"

WARNING, FILE_WARNING = "Warned", "Finding"
"""Warnings of a run, and of a file that was read."""


@dataclass(frozen=True)
class Message:
    """One place in the source that makes a message; `template` has {…} where values go, None where all is a value."""

    kind: str
    template: str | None
    file: str
    line: int
    what: str = ""

    @property
    def where(self) -> str:
        """For people who look for it."""
        return f"src/cosimo/{self.file}:{self.line}"


@functools.cache
def error_classes() -> dict[str, tuple[str, int, str]]:
    """All errors of the package by name: their base, their exit code, and what they say of themselves."""
    found: dict[str, tuple[str, int | None, str]] = {}
    for tree, _ in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.bases:
                base, code = ast.unparse(node.bases[0]).split(".")[-1], None
                for item in node.body:
                    if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "exit_code":
                        code = ast.literal_eval(item.value)
                # Other things of the package may be called like an error; those of the tree come first.
                found.setdefault(node.name, (base, code, (ast.get_docstring(node) or "").split("\n")[0]))
    kinds: dict[str, tuple[str, int, str]] = {}

    def code_of(name: str) -> int | None:
        if name not in found:
            return None
        base, code, _ = found[name]
        return code if code is not None else code_of(base)

    def belongs(name: str) -> bool:
        return name == "CosimoError" or (name in found and belongs(found[name][0]))

    for name in found:
        if belongs(name):
            kinds[name] = (found[name][0], code_of(name) or 2, found[name][2])
    return kinds


@functools.cache
def trees() -> list[tuple[ast.Module, str]]:
    """Every module of the package, that of the errors first, with its path in the package."""
    files = sorted(SOURCE.rglob("*.py"), key=lambda path: (path != ERRORS, path))
    return [(ast.parse(file.read_text(encoding="utf-8")), file.relative_to(SOURCE).as_posix()) for file in files]


@functools.cache
def messages() -> list[Message]:
    """All places that make an error or a warning, in the order of the source."""
    kinds = error_classes()
    return [found for tree, file in trees() for found in _messages(tree, file, kinds)]


def _messages(tree: ast.Module, file: str, kinds: dict[str, tuple[str, int, str]]) -> Iterator[Message]:
    owners: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        found = _made(node, kinds)
        if found is None:
            continue
        kind, argument = found
        if isinstance(argument, ast.Name):
            owners = owners or {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
            argument = _assigned(node, argument.id, owners) or argument
        what = template(argument) if kind == "UnknownNameError" else ""
        text = None if kind == "UnknownNameError" else template(argument)
        if text is not None and re.fullmatch(r"(\{[^}]*\})+", text):
            text = None  # made elsewhere, or passed on
        yield Message(kind, text, file, node.lineno, what or "")


def _made(node: ast.Call, kinds: dict[str, tuple[str, int, str]]) -> tuple[str, ast.expr] | None:
    """The kind of message that a call makes, and the argument with its text."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "cls" or not node.args:
        return None
    if name in kinds:
        return name, node.args[0]
    if name == "error" and isinstance(node.func, ast.Attribute):
        return "FileError", node.args[0]
    if name in (WARNING, FILE_WARNING):
        return name, node.args[0]
    if name == "warn" and isinstance(node.func, ast.Attribute) and "findings" in ast.unparse(node.func):
        return FILE_WARNING, node.args[0]
    if name == "PydanticCustomError":
        return "FileError", node.args[1]
    return None


def _assigned(node: ast.AST, name: str, owners: dict[ast.AST, ast.AST]) -> ast.expr | None:
    """What a name was set to in the same function, when that is said once."""
    while node in owners and not isinstance(node, ast.FunctionDef):
        node = owners[node]
    values = [
        item.value
        for item in ast.walk(node)
        if isinstance(item, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in item.targets)
    ]
    return values[0] if len(values) == 1 else None


def template(node: ast.expr) -> str:
    """The text with {…} for what is only known when it happens."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _value(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return _value(node)


def _value(node: ast.expr) -> str:
    """A value: the name of what it is, where it has one."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return f"{{{node.attr.strip('_')}}}"
    if isinstance(node, ast.Name):
        return f"{{{node.id.strip('_')}}}"
    return "{…}"


def page() -> str:
    """docs/messages.md."""
    found = messages()
    lines = [
        "# Messages",
        "",
        "Every error and warning that the package can emit, read from its source by `docs/list_messages.py`. Each says",
        "what happened, where, and what to do; `{name}` stands for what is known when it happens. An error ends the",
        "command with the exit code of its kind.",
    ]
    for kind, (_, code, about) in error_classes().items():
        own = [m for m in found if m.kind == kind]
        if own:
            lines += ["", f"## {kind}, exit code {code}", "", about, "", *_listed(own)]
    lines += ["", "## Warnings of a run", "", "The run goes on; `t` is when it was seen first.", ""]
    lines += _listed([m for m in found if m.kind == WARNING])
    lines += ["", "## Findings in a file", "", "What `cosimo validate` lists; the file and the line come first.", ""]
    lines += _listed([m for m in found if m.kind == FILE_WARNING])
    return "\n".join(lines) + "\n"


def _listed(found: list[Message]) -> list[str]:
    """The templates, each once; names that nobody knows by what they are names of."""
    names = sorted({m.what for m in found if m.what})
    told = [f"- unknown {name} '…'; did you mean '…'? Known: …" for name in names]
    texts = sorted({m.template for m in found if m.template})
    return [_plain(line) for line in told] + [_plain(f"- {text}") for text in texts]


def _plain(text: str) -> str:
    """So that Markdown shows it as it is."""
    return re.sub(r"([*_<\[|])", r"\\\1", " ".join(text.split()))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
