"""Checkpoints: what a run needs to go on later, in another process, as if it had never been interrupted.

At a macro step boundary k everything the run remembers is taken (`Engine.memory`), then one macro step is made, and the
signals after it are kept too. Whoever resumes puts the memory into fresh units, makes that step again, and must find
the same signals, bit by bit; only then does the run go on.

Files are written at once or not at all, recognised, and read without running anything that is in them.

"cosimo checkpoint 4\\n" | plain data (core/plain.py) | SHA-256 of all before (32 bytes)

A new file is written beside the old one, brought to the disk, and put in its place; the old one stays as `.earlier`.
A kill at any moment leaves at least one whole file.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core import __version__
from cosimo.core.arrays import Array
from cosimo.core.errors import CheckpointError, ConfigurationError, CosimoError, OutputError
from cosimo.core.guarding import enter, go_back, here, leave
from cosimo.core.master import Master
from cosimo.core.plain import DamagedError, from_bytes, to_bytes
from cosimo.core.storage import RESULT_SUFFIXES, bring_to_disk, replacing, writing
from cosimo.core.system import System
from cosimo.core.unit import Instance, Unit

MAGIC = b"cosimo checkpoint "
HEAD = MAGIC + b"4\n"
DIGEST = hashlib.sha256().digest_size
SUFFIX, EARLIER, NEW = ".checkpoint", ".earlier", ".new"
"""After the name of the output file; of the one before; of the one that is being written."""
REMEDY = "give a checkpoint file in a folder that exists and can be written to"


def beside(output: str | Path) -> Path:
    """Where the checkpoint of a run lies that records to `output`."""
    return Path(f"{output}{SUFFIX}")


def versions() -> dict[str, str]:
    """What must be the same for bytes to mean the same."""
    return {"cosimo": __version__, "machine": platform.machine()}


def encode(document: Mapping[str, Any]) -> bytes:
    """A checkpoint as it lies on disk."""
    data = HEAD + to_bytes(dict(document))
    return data + hashlib.sha256(data).digest()


def decode(data: bytes, path: Path) -> dict[str, Any]:
    """What `encode` was given."""
    if not data.startswith(MAGIC):
        raise CheckpointError(f"'{path}' is not a checkpoint of cosimo; give the output file of the run.")
    if not data.startswith(HEAD):
        raise CheckpointError(f"'{path}' is a checkpoint of another version of cosimo; resume it with that one.")
    if len(data) < len(HEAD) + DIGEST or hashlib.sha256(data[:-DIGEST]).digest() != data[-DIGEST:]:
        earlier = Path(f"{path}{EARLIER}")
        hint = f"; the one before is '{earlier}'" if earlier.is_file() else ""
        raise CheckpointError(f"'{path}' is damaged: its checksum does not match{hint}.")
    try:
        document = from_bytes(memoryview(data)[len(HEAD) : -DIGEST])
    except DamagedError as problem:
        raise CheckpointError(f"'{path}' is damaged: {problem}") from None
    if not isinstance(document, dict):
        raise CheckpointError(f"'{path}' is damaged: it has no entries.")
    return document


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The entries of a checkpoint, or of the one of an output file; `path` is added as where it was found."""
    found = find_checkpoint(Path(path))
    try:
        data = found.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read '{found}': {os.strerror(error.errno or 0)}.") from None
    document = decode(data, found)
    stated = document.get("versions")
    stated = stated if isinstance(stated, dict) and all(isinstance(text, str) for text in stated.values()) else {}
    if stated != versions():
        written = " on ".join(stated.values()) or "of no known version"
        here = " on ".join(versions().values())
        raise CheckpointError(
            f"'{found}' was written by cosimo {written}, and this is {here}; resume it with that one."
        )
    return {**document, "path": found}


def find_checkpoint(path: Path) -> Path:
    """The checkpoint file that is meant: itself, the one of an output file, or the one before it."""
    for candidate in (beside(path), path):
        for file in (candidate, Path(f"{candidate}{EARLIER}")):
            # A result file without a checkpoint is better said to be one than a damaged checkpoint.
            if file.is_file() and (candidate != path or file.suffix not in RESULT_SUFFIXES or _begins(file)):
                return file
    raise CheckpointError(f"there is no checkpoint '{path}', and no output file of that name has one; check the path.")


def write_checkpoint(path: Path, data: bytes) -> None:
    """Put a checkpoint in place and keep the one before."""
    with writing(path, REMEDY, what="the checkpoint"), replacing(path) as new:
        new.write_bytes(data)
        bring_to_disk(new)  # before the old one gives up its name
        with suppress(FileNotFoundError):
            os.replace(path, f"{path}{EARLIER}")


def require_writable(path: Path) -> None:
    """Refuse a place that cannot be written to.

    It is tried under a name of its own, as long as the longest of ours: another run may be writing here, and whether
    it is, only the lock on the rows says, later.
    """
    with writing(path, REMEDY, what="the checkpoint"):
        if path.is_dir():
            raise IsADirectoryError(21, "is a folder")
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name):
            pass


def remove_checkpoint(path: Path) -> None:
    """All files of a checkpoint."""
    for suffix in ("", EARLIER, NEW):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _begins(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class CheckpointWriter:
    """Keeps the checkpoint of one run up to date at `path`; `fixed` are the entries that do not change.

    Taking the memory of a run happens between two macro steps; writing it, which waits for the disk, in a thread.
    """

    def __init__(self, path: Path, every: float, fixed: Mapping[str, Any], *, fresh: bool = True) -> None:
        self.path = path.absolute()  # units may change the working folder
        self._every, self.run = every, str(fixed["run"])
        self._fixed = {**fixed, "versions": versions(), "folder": str(self.path.parent)}
        self._begun = time.monotonic()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.written = 0
        self.time: float | None = None  # the simulated time of the newest checkpoint on disk
        if fresh:
            require_writable(self.path)

    def begin(self) -> None:
        """Remove what an earlier run left: its rows are gone too."""
        remove_checkpoint(self.path)

    def go_on(self, found: Path) -> None:
        """The run goes on from the checkpoint `found`. When that is the one before the newest, it is now the newest.

        The other one, if there is any, is damaged or was not wanted, and must not become the one before the next.
        """
        if str(found).endswith(EARLIER):
            with writing(self.path, REMEDY, what="the checkpoint"):
                os.replace(f"{self.path}{EARLIER}", self.path)

    def due(self) -> bool:
        """Whether a checkpoint shall be taken now; raises what went wrong with the last one."""
        if self._thread is not None and self._thread.is_alive():
            return False  # the disk is slower than checkpoints are wanted
        self._raise()
        return time.monotonic() - self._begun >= self._every

    def take(self, entries: Mapping[str, Any], reached: float, sync: Callable[[], None]) -> None:
        """Write a checkpoint; `sync` brings the rows before it to the disk first."""
        self._begun = time.monotonic()
        document = {**self._fixed, **entries}

        def work() -> None:
            try:
                data = encode(document)
                sync()
                write_checkpoint(self.path, data)
                self.written, self.time = self.written + 1, reached
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=work, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> float | None:
        """For the last one to be on disk; the simulated time from which the run can go on, if any."""
        if self._thread is not None:
            self._thread.join()
        return self.time

    def remove(self) -> None:
        """Nothing is left of the checkpoints of a run that ended."""
        self.wait()
        remove_checkpoint(self.path)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if isinstance(error, CosimoError):
            raise error
        if error is not None:
            raise OutputError(
                f"the checkpoint '{self.path}' could not be written: {error}; free some space."
            ) from error


# ---- a test before a run that relies on saved states -----------------------------------------------------------------
#
# Save, step, restore, step must give the same outputs twice, bit by bit. A fresh instance of the unit is tested, and
# released before the run begins, so that the run's own units are untouched. A state as bytes is put into a second one,
# as whoever resumes does; the first is released before. Not where that costs a process (isolated units), nor where the
# unit allows one instance only: those put it back into the first. Inputs are moved a little, and two steps are made
# before and after: a unit at rest, or one that has not yet remembered anything, would give the same outputs whatever
# its `restore` does.

STEPS = 2
NUDGE = 1e-3  # by how much inputs are moved, relative to their size or to 1

Found = tuple[Array, Array] | str
"""Outputs that should be the same, before and after; or why the state could not be put back."""

_passed: weakref.WeakKeyDictionary[Unit, set[bool]] = weakref.WeakKeyDictionary()


def require_states(system: System, master: Master, start: float, names: Iterable[str], *, as_bytes: bool) -> None:
    """Refuse units that restore something else than they saved; `as_bytes`: those that cannot be written, too."""
    durations = master.durations
    mute: dict[str, str] = {}
    for name in names:
        unit = system.units[name]
        if unit.linear() is not None or as_bytes in _passed.setdefault(unit, set()):
            continue
        if not (unit.can_restore or as_bytes):
            continue  # who restores states refuses it by name
        found = _found(name, unit, start, durations[name], as_bytes)
        if isinstance(found, ConfigurationError):
            mute[name] = str(found)
        elif found is not None:
            raise ConfigurationError(_wrong(name, unit, found, as_bytes))
        else:
            _passed[unit].add(as_bytes)
    if mute:
        raise ConfigurationError(_cannot(mute))


def restoring_fault(unit: Unit, start: float, h: float, *, as_bytes: bool) -> str:
    """What is wrong with saving and restoring a unit, also as bytes; empty where nothing is."""
    found = _found(unit.name, unit, start, h, as_bytes)
    if isinstance(found, ConfigurationError):
        return f"its state cannot be written: {found}"
    return "" if found is None else f"it {_difference(unit, found)}."


def _found(name: str, unit: Unit, start: float, h: float, as_bytes: bool) -> Found | ConfigurationError | None:
    """What is wrong with restoring; why the state cannot be written; None when all is well.

    Whatever else is wrong with the unit the run itself says.
    """
    folder = here()
    enter(name, "self-test", start)
    try:
        with ExitStack() as alive:
            instance = _begin(unit, start, h, alive)
            if as_bytes and (mute := _mute(instance)):
                return mute
            u = nudged(unit)[None, :]
            _step(instance, u, start, 0, h)
            if as_bytes and (mute := _mute(instance)):  # it may have come by something that is not plain
                return mute
            return _compare(instance, unit, u, start, h, as_bytes, alive)
    except Exception:
        return None
    finally:
        leave()
        go_back(folder)


def _begin(unit: Unit, start: float, h: float, alive: ExitStack) -> Instance:
    """A fresh instance, ready to step; `alive` closes it."""
    instance = unit.started(start, h)
    alive.callback(_close, instance)
    return instance


def _close(instance: Instance) -> None:
    with suppress(Exception):
        instance.close()


def _mute(instance: Instance) -> ConfigurationError | None:
    """Why the state cannot be written."""
    try:
        instance.serialise()
    except Exception as error:
        return ConfigurationError(str(error) or type(error).__name__)
    return None


def _compare(
    instance: Instance, unit: Unit, u: Array, start: float, h: float, as_bytes: bool, alive: ExitStack
) -> Found | None:
    """The unit has made STEPS steps; the next ones are made, taken back, and made again."""
    try:
        state = instance.serialise() if as_bytes else instance.save()
    except Exception as error:
        return f"saving it failed ({_cause(error)})"
    before = np.array(instance.read())
    ours = _step(instance, u, start, STEPS, h)
    if as_bytes and not unit.isolated and not unit.single_instance:
        alive.close()
        instance = _begin(unit, start, h, alive)
    try:
        put = instance.deserialise if as_bytes else instance.restore
        put(state)
    except Exception as error:
        return f"putting it back failed ({_cause(error)})"
    try:
        again = np.array(instance.read())
        theirs = _step(instance, u, start, STEPS, h)
    except Exception as error:
        return f"after that, it failed ({_cause(error)})"
    for a, b in ((before, again), *zip(ours, theirs, strict=True)):
        if a.tobytes() != b.tobytes():
            return a, b
    return None


def _cause(error: Exception) -> str:
    """An error in one clause; those of others with their kind."""
    return str(error).rstrip(".") if isinstance(error, CosimoError) else f"{type(error).__name__}: {error}"


def _step(instance: Instance, u: Array, start: float, first: int, h: float) -> list[Array]:
    outputs = []
    for k in range(first, first + STEPS):
        instance.set_input(u, h)
        instance.step(start + k * h, h)
        outputs.append(np.array(instance.read()))
    return outputs


def nudged(unit: Unit) -> Array:
    """The start values of the inputs (m,), a little moved within their ranges; those that are not continuous stay."""
    u, ranges = unit.start_inputs, unit.ranges()
    moved = u + NUDGE * np.maximum(1.0, np.abs(u))
    for place, name in enumerate(unit.inputs):
        low, high = ranges.get(name, (-np.inf, np.inf))
        if not low <= moved[place] <= high:
            moved[place] = 2 * u[place] - moved[place]
        if name in unit.discrete_inputs or not low <= moved[place] <= high:
            moved[place] = u[place]
    return moved


def _wrong(name: str, unit: Unit, found: Found, as_bytes: bool) -> str:
    remedy = "run without checkpoints" if as_bytes else "use a master that does not iterate, or equal steps"
    return f"unit '{name}' {_difference(unit, found)}; {remedy}."


def _difference(unit: Unit, found: Found) -> str:
    if isinstance(found, str):
        return f"does not restore its state: {found}"
    before, after = found
    place = next(i for i in range(len(before)) if before[i].tobytes() != after[i].tobytes())
    return (
        "does not restore its state: saved, stepped, restored and stepped again, its output "
        f"'{unit.outputs[place]}' is {after[place].tolist()!r:.40} instead of {before[place].tolist()!r:.40}"
    )


def _cannot(mute: Mapping[str, str]) -> str:
    if len(mute) == 1:
        ((name, reason),) = mute.items()
        return f"checkpoints need the state of unit '{name}', which cannot be written: {reason.rstrip('.')}."
    told = "; ".join(f"'{name}' ({reason.rstrip('.')})" for name, reason in mute.items())
    return f"checkpoints need the states of units that cannot be written: {told}."
