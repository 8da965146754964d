"""Live FMUs kept between runs: a study of a thousand runs loads and instantiates each FMU once.

`fmi2Reset` and `fmi3Reset` bring a component back to where it was after its instantiation. What a run closes goes back
to the reserve and is reset when the next run wants an FMU of the same file, name and options. An FMU whose reset is
missing or fails is instantiated anew, from the same extracted folder; so is one after an error, and every one once
`distrust` was called, because a reset was found not to bring everything back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING

from cosimo.core.errors import RunError
from cosimo.units.fmu_archive import Lease, lease

if TYPE_CHECKING:
    from cosimo.units.fmu import Experiment, Fmu
    from cosimo.units.fmu_instance import FmuInstance

# Loading a library changes the working directory for a moment, which belongs to the whole process.
_loading = threading.RLock()


class Reserve:
    """Idle instances by what they are instances of; belongs to one thread.

    `reused` counts the resets that replaced an instantiation, `fresh` the instantiations.
    """

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[FmuInstance]] = {}
        self._folders: dict[Hashable, Lease] = {}
        self._keeps = True
        self.reused = self.fresh = 0

    @property
    def keeps(self) -> bool:
        """Whether instances are reused."""
        return self._keeps

    def instance(
        self, unit: Fmu, experiment: Experiment, make: Callable[[Fmu, Experiment], FmuInstance]
    ) -> FmuInstance:
        """An instance in initialisation mode: a kept one, reset, or what `make` makes."""
        key = _key(unit)
        while idle := self._idle.get(key):
            kept = idle.pop()
            try:
                kept.begin_again(unit, experiment)
            except RunError:
                kept.keep = None
                kept.close()
            else:
                self.reused += 1
                return kept
        with _loading:
            if key not in self._folders and not unit.single_instance:
                self._folders[key] = lease(unit.path, limits=unit.options.limits)
            made = make(unit, experiment)
        self.fresh += 1
        made.keep = self._take_back
        return made

    def flush(self) -> None:
        """Close what is idle: the next runs begin with fresh instances, which are kept in turn."""
        for idle in self._idle.values():
            while idle:
                kept = idle.pop()
                kept.keep = None
                kept.close()

    def distrust(self) -> None:
        """Reuse nothing from now on."""
        self._keeps = False
        self.flush()

    def close(self) -> None:
        """Close all, and remove the extracted folders."""
        self.distrust()
        while self._folders:
            self._folders.popitem()[1].release()

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of the interpreter, when not much is left
            self.close()

    def _take_back(self, instance: FmuInstance) -> bool:
        """Whether an instance that is no longer used is kept: not after an error, nor before it was initialised."""
        if not (self._keeps and instance.healthy):
            return False
        self._idle.setdefault(_key(instance.unit), []).append(instance)
        return True


def _key(unit: Fmu) -> Hashable:
    return (str(unit.path.absolute()), unit.name, unit.options, unit.isolation)
