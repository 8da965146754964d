"""Putting a master into a scenario file: the step and the table `[master]` change, all else stays as it is written."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from cosimo.core.errors import ConfigurationError, CosimoError, OutputError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.formats.scenario_building import load_scenario
from cosimo.masters.words import build_master, scenario_lines

HEADER = re.compile(r"""^\s*\[{1,2}\s*[\w"'-][^\[\]=,]*\]{1,2}\s*(#.*)?$""")
MASTER = re.compile(r"""^\s*\[\s*["']?master["']?\s*(\]|\.)""")
STEP = re.compile(r"^\s*step[-_]size\s*=[^#]*(#.*)?$")
INLINE = re.compile(r"^\s*master\s*(\.|=)")


def write_master(path: Path, master: Master, system: System) -> Path:
    """Write `master` with its step into the scenario; the name of the file in which the old one is kept.

    The new text is read again before anything is replaced: if that gives another master, or anything else than before
    beside it, the file stays as it was.
    """
    lines = scenario_lines(master, system)
    if path.suffix.lower() != ".toml":
        raise ConfigurationError(f"only scenario files (.toml) can be changed, not '{path}'; use the options instead.")
    if not lines:
        raise ConfigurationError(
            f"a scenario cannot describe master {master.name}: its inputs are corrected, or it has couplings or names "
            f"of units for which there are no words; choose another."
        )
    place = Path(os.path.realpath(path))  # what a link points to is changed, not the link
    part: str | None = None
    try:
        before = place.read_bytes().decode()
        step, _, table = lines.partition("\n\n")
        handle, part = tempfile.mkstemp(dir=place.parent, prefix=f".{place.stem}-", suffix=".toml")
        with os.fdopen(handle, "wb") as file:
            file.write(_changed(before, step, table).encode())
        _require_rest(before, Path(part))
        _require_master(Path(part), master)
        kept = _free_name(place)
        shutil.copy2(place, kept)
        shutil.copymode(place, part)
        os.replace(part, place)
    except CosimoError as error:
        raise ConfigurationError(
            f"'{path}' is written in a way that cannot be changed here ({error}); put in these lines: {lines!r}."
        ) from None
    except OSError as error:
        raise OutputError(f"cannot write '{path}': {error.strerror or error}; nothing was changed.") from None
    finally:
        if part is not None:
            with suppress(OSError):
                os.unlink(part)
    return kept


def _changed(text: str, step: str, table: str) -> str:
    """The step where it stood, or first; the table where it stood, or last; remarks in both places stay."""
    end = "\r" if "\r\n" in text else ""
    head, *entries = (f"{line}{end}" for line in table.split("\n"))
    top: list[str] = []
    rest: list[str] = []
    first: str | None = f"{step}{end}"
    inside, header_seen, written = False, False, False
    for line in text.split("\n"):
        if HEADER.match(line):
            header_seen, inside = True, bool(MASTER.match(line))
            if inside:
                rest += [] if written else [line if line.strip().startswith("[master]") else head, *entries]
                written = True
                continue
        if inside:
            rest += [line] if not line.strip() or line.lstrip().startswith("#") else []
        elif not header_seen and (found := STEP.match(line)):
            remark = (found[1] or "").rstrip()
            top += [f"{step}  {remark}{end}" if remark else f"{step}{end}"]
            first = None
        elif header_seen or not INLINE.match(line):
            (rest if header_seen else top).append(line)
    lines = [*([first] if first else []), *top, *rest]
    if not written:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += [end, head, *entries, ""]
    return "\n".join(lines)


def _require_rest(before: str, path: Path) -> None:
    try:
        found = tomllib.loads(path.read_bytes().decode())
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the new text would not be TOML: {error}") from None
    if _rest(found) != _rest(tomllib.loads(before)):
        raise ConfigurationError("more than the master would change; edit the file.")


def _rest(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name.replace("_", "-") not in ("step-size", "master")}


def _require_master(path: Path, master: Master) -> None:
    found = load_scenario(path)
    if found.master is None or found.step is None or build_master(found.system, found.step, found.master) != master:
        raise ConfigurationError("the master would not be read as it was meant; write it by hand.")


def _free_name(path: Path) -> Path:
    for number in range(1000):
        name = path.with_name(f"{path.name}.old{number or ''}")
        if not name.exists():
            return name
    raise OSError("too many old files beside it; remove some")
