"""What is kept of each run: one number per measure.

Of a signal y at the communication points t_0 … t_K: `final` y_K, `min`, `max`, `mean` Σ y_k / (K + 1), `rms`
√(Σ y_k² / (K + 1)); `error`, the largest deviation from the true solution as a share of its largest value, measured in
the run (`cosimo.analysis.truth`), and `nrms` (tamellin2022, Eq. 42). Of the coupling: `radius` ρ(Φ), for linear units,
and `stable` (1 or 0): by the verdict where there is one, otherwise by whether the run was seen to grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.system import System
from cosimo.execution.recording import choose

SIGNALS: Mapping[str, Callable[[Array], float]] = {
    "final": lambda y: float(y[-1]),
    "min": lambda y: float(y.min()),
    "max": lambda y: float(y.max()),
    "mean": lambda y: float(y.mean()),
    "rms": lambda y: float(np.sqrt(np.mean(y * y))),
}
ERRORS = ("error", "nrms")
COUPLING = ("stable", "radius")
USUAL = ("final", "min", "max")


@dataclass(frozen=True)
class Measure:
    """One number of a run; `signal` is empty for measures of the coupling."""

    kind: str
    signal: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.signal}" if self.signal else self.kind


def find_measures(texts: Sequence[str], system: System) -> tuple[Measure, ...]:
    """Measures from words: `kind` (of all outputs), `kind:unit.variable` or `kind:pattern`, `stable`, `radius`.

    A pattern stands for the outputs it matches, or where there are none, for inputs. Errors exist for outputs only.

    >>> from cosimo.problems import two_mass
    >>> [str(measure) for measure in find_measures(["rms:*.x", "stable"], two_mass())]
    ['rms:two.x', 'stable']
    """
    found: dict[Measure, None] = {}
    for text in texts:
        kind, colon, pattern = text.strip().partition(":")
        if kind in COUPLING:
            if colon:
                raise ConfigurationError(f"'{text}': {kind} is of the whole coupling; leave '{pattern}' out.")
            found[Measure(kind)] = None
            continue
        if kind not in (*SIGNALS, *ERRORS):
            raise UnknownNameError("measure", kind, (*SIGNALS, *ERRORS, *COUPLING))
        names = system.outputs if kind in ERRORS or not colon else (*system.outputs, *system.input_names)
        chosen = _matching(names, pattern, len(system.outputs)) if colon else system.outputs
        found |= dict.fromkeys(Measure(kind, name) for name in chosen)
    if not found:
        raise ConfigurationError("a study keeps at least one measure of each run; name one, such as final.")
    return tuple(found)


def _matching(names: Sequence[str], pattern: str, outputs: int) -> list[str]:
    places = choose(names, [pattern])
    among = [place for place in places if place < outputs] or places
    return [names[place] for place in among]
