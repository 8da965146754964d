"""One target under atheris: `python -m fuzz.harness TARGET SEEDS [options of libFuzzer]`."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

from fuzz import load

MODULES = ("cosimo.", "fmpy.model_description", "fmpy.validation", "zipfile", "tomllib", "csv")


def main() -> None:
    """Put coverage counters into what the target has loaded, then hand over to libFuzzer, which never returns."""
    import atheris

    name, folder, *options = sys.argv[1:]
    warnings.simplefilter("ignore")
    target = load(name)
    for function in _functions():
        atheris.instrument_func(function)
    from cosimo.core.errors import CosimoError

    def one(data: bytes) -> None:
        try:
            target.check(data)
        except CosimoError as error:
            if "\n" in str(error):  # one line, whatever names the file holds
                raise AssertionError(f"the message has several lines: {error!r}") from None

    seeds = Path(folder, "seeds")
    seeds.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (seeds / f"{number:03}").write_bytes(seed)
    words = Path(folder, "words")
    words.write_text("".join(f'"{_escape(word)}"\n' for word in target.WORDS), encoding="ascii")
    atheris.Setup([name, f"-dict={words}", f"-artifact_prefix={folder}/", *options, str(seeds)], one)
    atheris.Fuzz()


def _functions() -> Iterator[types.FunctionType]:
    """Those of this package and of the readers it relies on. An editable install has an import hook that atheris'
    own instrumentation of imports does not get along with."""
    for name, module in list(sys.modules.items()):
        if name.startswith(MODULES):
            for value in list(vars(module).values()):
                members = vars(value).values() if isinstance(value, type) else (value,)
                for member in members:
                    plain = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
                    if isinstance(plain, types.FunctionType) and plain.__module__ == name:
                        yield plain
                    if isinstance(inner := getattr(plain, "__wrapped__", None), types.FunctionType):
                        yield inner


def _escape(word: bytes) -> str:
    return "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in word)


if __name__ == "__main__":
    main()
