"""Every error and warning says what happened, where, and what to do; docs/list_messages.py lists them all."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]

REMEDY = re.compile(
    r";|: |\. \S|\?|\b(?:must|needs?|expects?|give|use|set|write|choose|leave|remove|install|shorten|add)\b|, not \S"
)
"""A second clause or sentence, or a verb that says what is wanted."""
ENDING = re.compile(r"(?:[.?…]|\{[^}]*\})$")

TOLD = {
    "{self} returned {…} from {where}{said}.": "what the FMU itself says follows, or how to make it say more",
    "{self} could not be instantiated{said}.": "the same",
    "{name} {reason}": "the reason says what is exchanged instead",
    "FMU '{path}' {what}.": "it says to copy or to export the file again",
    "coupling '{text}' {wanted}.": "what it needs is in the last value",
    "interrupted after {done} of {total} runs, which are kept{kept}.": "how to go on is in the last value",
}
"""Messages whose remedy is in one of their values."""
FOREIGN = {
    "AttributeError": "Python's own answer to a name that a module lacks",
    "ArithmeticError": "caught by the caller, which names problem and parameters",
    "ImportError": "caught by the caller, which says what to install",
    "BlockingIOError": "caught by whoever locks, as the system raises it where another process holds the file",
    "IsADirectoryError": "caught around the write, which names file and remedy",
    "KeyboardInterrupt": "becomes Interrupted, with the rows that are kept",
    "NotImplementedError": "a contract that a subclass must fulfil",
    "OSError": "caught around the write, which names file and remedy",
    "TypeError": "caught and named by the unit or the recorder, or a contract broken by the programmer",
    "ValueError": "caught by the reader, which names the file, or by the engine, which names the unit",
    "BadParameter": "said by typer, with the option",
    "BadZipFile": "caught by the reader of archives, which names the file",
    "BadStatus": "the cause inside an error that names unit and time",
    "FrozenInstanceError": "as a standard dataclass answers an assignment: a contract broken by the programmer",
    "Exit": "the exit code of a verb that has said everything",
}
"""Errors of others that the package raises itself, and why they never reach a user bare."""


def _load() -> ModuleType:
    path = ROOT / "docs" / "list_messages.py"
    spec = importlib.util.spec_from_file_location("list_messages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


LISTED = _load()


def test_the_walk_finds_the_messages() -> None:
    assert len(LISTED.messages()) > 400
    kinds = {message.kind for message in LISTED.messages()}
    assert {"ConfigurationError", "UnknownNameError", "FileError", "OutputError", "Warned", "Finding"} <= kinds
    told = [m for m in LISTED.messages() if m.template and "did not converge in {limit} sweeps" in m.template]
    assert [m.kind for m in told] == ["Warned"], "a text that was given a name first is found too"


def faults(kind: str, template: str) -> list[str]:
    """What a message lacks."""
    found = []
    if kind == "Warned":  # how often it was seen may follow: "(3 times)"
        found += ["ends with a full stop"] * template.endswith(".")
    elif not ENDING.search(template):
        found.append("does not end with a full stop or a question mark")
    if not REMEDY.search(template) and template not in TOLD:
        found.append("does not say what to do")
    if re.search(r"  |\n", template):
        found.append("has blanks or lines too many")
    if re.search(r"\b(?:[Ss]orry|[Oo]ops|[Pp]lease|!)", template) or template[:1] == " ":
        found.append("is not plain")
    return found


def test_every_message_follows_the_form() -> None:
    wrong = [
        f"{message.where}: {', '.join(lacking)}: {message.template}"
        for message in LISTED.messages()
        if message.template is not None and (lacking := faults(message.kind, message.template))
    ]
    assert not wrong, "CONTRIBUTING.md, 'Messages', describes the form:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("kind", "template", "fault"),
    [
        ("ConfigurationError", "something is wrong", "full stop"),
        ("ConfigurationError", "the value {value} is wrong.", "what to do"),
        ("Warned", "the step {step} is long; shorten it.", "ends with"),
        ("OutputError", "Oops, '{path}' cannot be written; choose another.", "plain"),
    ],
)
def test_the_form_can_be_missed(kind: str, template: str, fault: str) -> None:
    assert any(fault in found for found in faults(kind, template))


def test_only_errors_of_the_tree_are_raised() -> None:
    unknown, known = [], {*LISTED.error_classes(), *FOREIGN, *_own()}
    for tree, file in LISTED.trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call | ast.Name | ast.Attribute):
                continue
            called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = ast.unparse(called).split(".")[-1]
            if re.fullmatch(r"[A-Z]\w*", name) and name not in known:
                unknown.append(f"{file}:{node.lineno}: {name}")
    assert not unknown, f"raise an error of core/errors.py, or say in FOREIGN why this one is caught: {unknown}"


@functools.cache
def _own() -> set[str]:
    """Errors that modules define for themselves and catch."""
    own = {n.name for tree, _ in LISTED.trees() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    return own | {"PydanticCustomError"}


def test_bare_exceptions_are_never_raised() -> None:
    bare = [
        f"{file}:{node.lineno}"
        for tree, file in LISTED.trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and ast.unparse(node.exc.func) in ("Exception", "RuntimeError", "BaseException", "KeyError")
    ]
    assert not bare


def test_the_page_has_every_message_and_exit_code() -> None:
    """As it is written now: the file itself is written before the tests, and may be older while somebody works."""
    text = LISTED.page()
    for kind in {message.kind for message in LISTED.messages()} & set(LISTED.error_classes()):
        assert f"## {kind}, exit code {LISTED.error_classes()[kind][1]}" in text
    plain = text.replace("\\", "")
    assert not [m.where for m in LISTED.messages() if m.template and " ".join(m.template.split()) not in plain]
