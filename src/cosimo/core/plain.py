"""Plain data as bytes and back, to the last bit, without ever running code from them (unlike pickle).

    length of the text (8 bytes) | text (JSON: the tree and the lengths of the blocks) | block | block | …

Numbers, texts, lists, tuples, dicts, bytes, NumPy arrays and scalars, and random generators are plain. An object that
is met twice is refused: changed through one name, it would afterwards no longer change under the other.
"""

from __future__ import annotations

import json
import random
import re
import struct
from typing import Any

import numpy as np

from cosimo.core.errors import ConfigurationError

KINDS = "biufc"  # kinds of array elements: truth values, whole numbers with and without sign, real and complex ones
TYPE = re.compile(rf"[<>|][{KINDS}][0-9]{{1,2}}")
"""What NumPy calls a type of these kinds; of other texts it makes a program's worth of things."""
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
DEEPEST = 100  # levels of nesting


class NotPlainError(ConfigurationError):
    """An object that cannot be serialised; the message says what it is and where."""


class DamagedError(ConfigurationError):
    """Data that cosimo did not write, or that has changed since."""


def to_bytes(value: Any) -> bytes:
    """`value` as bytes.

    >>> from_bytes(to_bytes({"x": np.array([0.1, np.nan]), "names": ("a", None)}))
    {'x': array([0.1, nan]), 'names': ('a', None)}
    """
    writer = _Writer()
    tree = writer.tree(value, "", 0)
    text = json.dumps({"tree": tree, "blocks": [len(block) for block in writer.blocks]}, allow_nan=False).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *writer.blocks])


def from_bytes(data: bytes | memoryview) -> Any:
    """What `to_bytes` was given; raises `DamagedError` for anything else."""
    try:
        view = memoryview(data)
        (length,) = struct.unpack_from("<Q", view)
        document = json.loads(bytes(view[8 : 8 + length]))
        blocks, start = [], 8 + length
        for size in document["blocks"]:
            if not isinstance(size, int) or size < 0 or start + size > len(view):
                raise ValueError("a block reaches beyond the end")
            blocks.append(view[start : start + size])
            start += size
        if start != len(view):
            raise ValueError("there is more than the blocks")
        return _value(document["tree"], blocks)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, struct.error, RecursionError) as problem:
        raise DamagedError(f"not plain data, or damaged: {problem}.") from None


class _Writer:
    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self._seen: dict[int, str] = {}
        self._alive: list[Any] = []  # so that no second object gets the number of a first one

    def tree(self, value: Any, path: str, depth: int) -> Any:
        """`value` as JSON knows it; what is more than that has a tag."""
        kind = type(value)
        if depth > DEEPEST:
            raise NotPlainError(f"{path or 'it'} is nested more than {DEEPEST} levels deep; flatten it.")
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if np.isfinite(value) else {"$": "float", "at": self._block(struct.pack("<d", value))}
        if kind is bytes:
            return {"$": "bytes", "at": self._block(value)}
        if isinstance(value, np.generic) and value.dtype.kind in KINDS:
            return {"$": "scalar", "type": value.dtype.str, "at": self._block(value.tobytes())}
        self._once(value, path)
        if kind in (list, tuple):
            items = [self.tree(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(value)]
            return items if kind is list else {"$": "tuple", "items": items}
        if kind is dict:
            pairs = [
                [self.tree(key, path, depth + 1), self.tree(item, f"{path}.{key}" if path else f"{key}", depth + 1)]
                for key, item in value.items()
            ]
            return {"$": "dict", "items": pairs}
        if kind is np.ndarray and value.dtype.kind in KINDS:
            whole = np.ascontiguousarray(value)
            return {"$": "array", "type": whole.dtype.str, "shape": value.shape, "at": self._block(whole.tobytes())}
        if kind is random.Random:
            return {"$": "random", "state": self.tree(value.getstate(), path, depth + 1)}
        if kind is np.random.Generator and type(value.bit_generator).__name__ in BIT_GENERATORS:
            return {"$": "generator", "state": self.tree(value.bit_generator.state, path, depth + 1)}
        named = f"{kind.__module__}.{kind.__qualname__}"
        raise NotPlainError(f"{path or 'it'} is a {named}, which is not plain data; keep numbers, texts and lists.")

    def _block(self, data: bytes) -> int:
        self.blocks.append(data)
        return len(self.blocks) - 1

    def _once(self, value: Any, path: str) -> None:
        """Refuse what can be changed and was met before; arrays also when they share their memory."""
        if type(value) is tuple:
            return
        owner = value
        while type(owner) is np.ndarray and isinstance(owner.base, np.ndarray):
            owner = owner.base
        if id(owner) in self._seen:
            first = self._seen[id(owner)] or "it"
            raise NotPlainError(f"{first} and {path} are, or share, the same object; copy one of them.")
        self._seen[id(owner)] = path
        self._alive.append(owner)


def _value(tree: Any, blocks: list[memoryview]) -> Any:
    """What `_Writer.tree` was given."""
    if isinstance(tree, list):
        return [_value(item, blocks) for item in tree]
    if not isinstance(tree, dict):
        return tree
    match tree["$"]:
        case "float":
            return struct.unpack("<d", _block(tree, blocks))[0]
        case "bytes":
            return bytes(_block(tree, blocks))
        case "tuple":
            return tuple(_value(item, blocks) for item in tree["items"])
        case "dict":
            return {_value(key, blocks): _value(item, blocks) for key, item in tree["items"]}
        case "array":
            return _array(tree, blocks).reshape([int(n) for n in tree["shape"]]).copy()
        case "scalar":
            return _array(tree, blocks)[0]
        case "random":
            generator = random.Random()
            generator.setstate(_value(tree["state"], blocks))
            return generator
        case "generator":
            state = _value(tree["state"], blocks)
            if (name := state["bit_generator"]) not in BIT_GENERATORS:
                raise ValueError(f"unknown random generator {name!r:.40}")
            made = np.random.Generator(getattr(np.random, name)())
            made.bit_generator.state = state
            return made
        case other:
            raise ValueError(f"unknown kind of value {other!r:.40}")


def _block(tree: dict[str, Any], blocks: list[memoryview]) -> memoryview:
    at = tree["at"]
    if not isinstance(at, int) or at < 0:
        raise ValueError("a block has no number")
    return blocks[at]


def _array(tree: dict[str, Any], blocks: list[memoryview]) -> Any:
    if not TYPE.fullmatch(str(tree["type"])):
        raise ValueError(f"arrays of {tree['type']!r:.40} are not plain")
    return np.frombuffer(_block(tree, blocks), dtype=np.dtype(tree["type"]))
