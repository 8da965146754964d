"""Writing checkpoints while a run goes on: when one is due, and the thread that brings it to the disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cosimo.core.errors import CosimoError, OutputError
from cosimo.execution.checkpoints.files import EARLIER, REMEDY, encode, remove, require_writable, versions, write
from cosimo.execution.recording import writing


class Keeper:
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
        self.time: float | None = None
        """The simulated time of the newest checkpoint on disk."""
        if fresh:
            require_writable(self.path)

    def begin(self) -> None:
        """Remove what an earlier run left: its rows are gone too."""
        remove(self.path)

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
                write(self.path, data)
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
        remove(self.path)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if isinstance(error, CosimoError):
            raise error
        if error is not None:
            raise OutputError(
                f"the checkpoint '{self.path}' could not be written: {error}; free some space."
            ) from error
