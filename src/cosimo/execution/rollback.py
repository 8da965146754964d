"""Macro steps that a unit discards are rolled back and made again in shorter parts.

Only when all units can restore their states. The step is halved until it is accepted and stays that short. Couplings
that extrapolate begin anew where the step changes: their samples are no longer equally far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cosimo.core.errors import StepDiscarded
from cosimo.execution.engines import ReferenceEngine
from cosimo.execution.monitoring import Watch
from cosimo.execution.reference import Interpreter, end_requested

HALVINGS = 10
"""How often a macro step is halved before the unit's refusal is passed on."""


class CarefulEngine(ReferenceEngine):
    """The plain interpreter with a safety net: every macro step begins with saving all units."""

    def __init__(self, interpreter: Interpreter, names: Sequence[str], watch: Watch | None = None) -> None:
        super().__init__(interpreter, names, watch)
        self._levels = [interpreter]
        self.rollbacks = 0

    def _macro_step(self, k: int) -> None:
        saved = self._save()
        while True:
            level = len(self._levels) - 1
            try:
                for part in range(k << level, (k + 1) << level):
                    self._levels[-1].macro_step(part)
                    if self._interpreter.ends and part + 1 < (k + 1) << level:
                        raise end_requested(*next(iter(self._interpreter.ends.items())))
                return
            except StepDiscarded:
                if level == HALVINGS:
                    raise
                self._restore(saved)
                self.rollbacks += 1
                self._levels.append(self._interpreter.finer(1 << (level + 1)))
                # A hold keeps its newest sample in front; before it, the signal counts as constant again.
                for w in self._interpreter.w:
                    w[:] = w[0]

    def memory(self, k: int) -> dict[str, Any]:
        """Also how short steps are by now."""
        return {**super().memory(k), "level": len(self._levels) - 1, "rollbacks": self.rollbacks}

    def load(self, memory: dict[str, Any], k: int) -> None:
        """Go on with steps as short as they were."""
        super().load(memory, k)
        self._levels = [self._interpreter.finer(1 << n) if n else self._interpreter for n in range(memory["level"] + 1)]
        self.rollbacks = memory["rollbacks"]

    def _save(self) -> Any:
        live = self._interpreter
        states = {name: instance.save() for name, instance in live.instances.items()}
        return states, dict(live.y), dict(live.c), [w.copy() for w in live.w]

    def _restore(self, saved: Any) -> None:
        live = self._interpreter
        states, y, c, w = saved
        live.ends.clear()
        for name, instance in live.instances.items():
            instance.restore(states[name])
        for signals, before in ((live.y, y), (live.c, c)):
            signals.update(before)
        live.w[:] = [memory.copy() for memory in w]
