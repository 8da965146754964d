"""A master: a schedule, the couplings it uses, and the macro step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cosimo.core.coupling import Coupling, Mixer
from cosimo.core.errors import ConfigurationError
from cosimo.core.schedule import Schedule


@dataclass(frozen=True)
class Master:
    """How a system is run: `schedule`, macro step `step`, and a coupling per connection.

    `couplings` maps a target input `"unit.variable"` to its coupling; every other input uses `coupling`. A unit in
    `mixers` gets all its connected inputs from its mixer instead.
    """

    name: str
    schedule: Schedule
    step: float
    coupling: Coupling
    couplings: Mapping[str, Coupling] = field(default_factory=dict)
    mixers: Mapping[str, Mixer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.step, int | float) or not (math.isfinite(self.step) and self.step > 0):
            raise ConfigurationError(f"the macro step must be a positive number, not {self.step}.")

        for coupling in (self.coupling, *self.couplings.values()):
            if not isinstance(coupling, Coupling):
                raise ConfigurationError(f"a coupling is an object such as Hold(order=1), not {coupling!r}.")

    def __str__(self) -> str:
        return str(self.schedule)

    def coupling_of(self, target: str) -> Coupling:
        """The coupling of the input written `"unit.variable"`."""
        return self.couplings.get(target, self.coupling)

    def with_step(self, step: float) -> Master:
        """The same master with another macro step."""
        return replace(self, step=step)
