"""Going through a schedule: what all that multiplies operations has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from cosimo.core.signals import Block
from cosimo.core.timing import TimedOperation, TimedRepeat

Rows = dict[Block, Any]
"""A stack of columns of z, as row blocks."""


class Walk(ABC):
    """Applies operations to row blocks, one after the other; an iteration until convergence is its fixed point."""

    def apply(self, operations: Iterable[TimedOperation], rows: Rows) -> None:
        """Apply the operations to `rows`, in place."""
        for operation in operations:
            if not isinstance(operation, TimedRepeat):
                self._update(operation, rows)
            elif isinstance(operation.times, int):
                for number in range(operation.times):
                    self.apply(operation.sweep(number), rows)
            else:
                for sweep in operation.sweeps[:-1]:
                    self.apply(sweep, rows)
                self._settle(operation.sweeps[-1], rows)

    @abstractmethod
    def _update(self, operation: TimedOperation, rows: Rows) -> None:
        """Apply one operation that is no iteration."""

    @abstractmethod
    def _settle(self, sweep: tuple[TimedOperation, ...], rows: Rows) -> None:
        """Put the fixed point of a sweep in the place of `rows`."""
