"""What a Dask worker does: unpack the study once, keep its FMUs between chunks, make the runs of a chunk."""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cosimo import __version__
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.studies.runner import Row, Runner
from cosimo.studies.study import Study


@dataclass(frozen=True)
class Packed:
    """A study as it travels."""

    data: bytes
    digest: str
    version: str


class Reply(NamedTuple):
    """The rows of a chunk, and what there is to say about how they were made."""

    rows: list[Row]
    note: str


class _Seat(NamedTuple):
    """A runner and who may use it: one thread at a time."""

    runner: Runner
    lock: threading.Lock


_seats: dict[tuple[str, int], _Seat] = {}
"""By study and thread: an FMU instance must not be used by two threads at once."""
_finding = threading.Lock()


def pack(study: Study) -> Packed:
    """The study as bytes; files under names that are the same from every working directory."""
    import cloudpickle

    if not isinstance(study.source, System) and Path(study.source).is_file():
        study = replace(study, source=Path(study.source).absolute())
    if Path(study.reference).is_file():
        study = replace(study, reference=Path(study.reference).absolute())
    try:
        data: bytes = cloudpickle.dumps(study)
    except Exception as error:  # whatever the objects in the user's system raise
        raise ConfigurationError(
            f"the system cannot be sent to other processes: {type(error).__name__}: {error}; use one worker, or "
            f"describe it in a file."
        ) from None
    return Packed(data, hashlib.sha256(data).hexdigest(), __version__)


def evaluate(packed: Packed, runs: Sequence[int]) -> Reply:
    """Make these runs."""
    seat = _find(packed)
    with seat.lock:
        rows = [seat.runner.evaluate(number) for number in runs]
    if seat not in _seats.values():
        _leave([seat])  # it was forgotten meanwhile
    return Reply(rows, seat.runner.note)


def forget(digest: str) -> None:
    """Let go of a study; FMUs that are being used are closed at the end of the chunk."""
    with _finding:
        _leave([_seats.pop(key) for key in list(_seats) if key[0] == digest])


def _leave(seats: Sequence[_Seat]) -> None:
    for seat in seats:
        if seat.lock.acquire(blocking=False):
            try:
                seat.runner.close()
            finally:
                seat.lock.release()


def _find(packed: Packed) -> _Seat:
    if packed.version != __version__:
        raise ConfigurationError(
            f"a worker has cosimo {__version__}, the study comes from {packed.version}; install the same version."
        )
    thread = threading.get_ident()
    with _finding:
        for place in (thread, 0):
            if (packed.digest, place) in _seats:
                return _seats[packed.digest, place]
        _leave([_seats.pop(key) for key in list(_seats) if key[0] != packed.digest and key[1] in (thread, 0)])
        seat = _Seat(Runner(pickle.loads(packed.data)), threading.Lock())
        units = seat.runner.recipe.nominal.units.values()
        # FMUs that allow one instance per process are shared by all threads.
        only = any(unit.single_instance for unit in units)
        return _seats.setdefault((packed.digest, 0 if only else thread), seat)
