"""A structure: all of a master that is not a number. With a step and gains it becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cosimo import masters
from cosimo.core.coupling import Coupling
from cosimo.core.errors import UnknownNameError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Hold, Nepce

Kind = int | Literal["nepce"]
"""The order of a hold, or NEPCE with a gain that is still open."""
Kinds = tuple[tuple[str, Kind], ...]
"""The kinds of coupling of all connected inputs, by target."""
NAMED = 4
"""Up to how many gains are named in words."""
HELD = {0: "inputs held", 1: "inputs extrapolated linearly", 2: "inputs extrapolated quadratically"}


@dataclass(frozen=True)
class Structure:
    """`family` with its `stages` (units that step together), kinds of coupling by target, `sweeps`, `multiples`.

    Multirate masters are of the family "multirate" (inputs held) or "interpolated".
    """

    family: str
    stages: tuple[tuple[str, ...], ...]
    kinds: Kinds
    sweeps: int = 1
    multiples: tuple[tuple[str, int], ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The inputs with a gain."""
        return tuple(target for target, kind in self.kinds if kind == "nepce")

    @property
    def order(self) -> tuple[str, ...]:
        """The units in calling order."""
        return tuple(name for stage in self.stages for name in stage)

    def master(self, system: System, step: float, gains: Mapping[str, float] | None = None) -> Master:
        """The master with its numbers; units of `system` that are in no stage go first (see `cosimo.tuning.scene`).

        >>> from cosimo.problems import two_mass_glumac
        >>> system = two_mass_glumac()
        >>> str(Structure("gauss-seidel", (("two",), ("one",)), ()).master(system, 1.0))
        'F2 G2 H2 F1 G1 H1'
        """
        general, special = self._couplings(gains or {})
        more = tuple(name for name in system.names if name not in self.order)
        order = (*more, *self.order)
        if self.family == "jacobi":
            return masters.jacobi(system, step, coupling=general, couplings=special)
        if self.family == "gauss-seidel":
            return masters.gauss_seidel(system, step, order=order, coupling=general, couplings=special)
        if self.family == "iterative":
            given = order if len(self.stages) > 1 else None
            return masters.iterative(system, step, sweeps=self.sweeps, order=given, coupling=general, couplings=special)
        if self.family == "groups":
            stages = [(*more, *self.stages[0]), *self.stages[1:]]
            return masters.groups(system, step, order=stages, coupling=general, couplings=special)
        inputs: Literal["held", "interpolated"] = "interpolated" if self.family == "interpolated" else "held"
        return masters.multirate(
            system, step, multiples=dict(self.multiples), inputs=inputs, coupling=general, couplings=special
        )

    def _couplings(self, gains: Mapping[str, float]) -> tuple[Coupling, dict[str, Coupling]]:
        """The most frequent hold for all inputs, the others by target."""
        degrees = [kind for _, kind in self.kinds if kind != "nepce"]
        usual = max(dict.fromkeys(degrees), key=degrees.count, default=0)
        special: dict[str, Coupling] = {
            target: Nepce(float(gains.get(target, 0.0))) if kind == "nepce" else Hold(kind)
            for target, kind in self.kinds
            if kind != usual
        }
        return Hold(usual), special

    def words(self, gains: Mapping[str, float] | None = None) -> str:
        """For people: "Gauss–Seidel one → two, inputs held".

        >>> Structure("iterative", (("one", "two"),), (("two.F", 1),), sweeps=2).words()
        'Jacobi, 2 sweeps, inputs extrapolated linearly'
        """
        chain = " → ".join(", ".join(stage) for stage in self.stages)
        name = "Jacobi" if len(self.stages) == 1 else f"Gauss–Seidel {chain}"
        if self.family == "groups":
            name = "Groups " + " → ".join(f"({', '.join(stage)})" for stage in self.stages)
        if self.multiples:
            name = "Multirate " + " and ".join(f"{unit} every {n}" for unit, n in self.multiples)
        if self.family == "iterative":
            name += f", {self.sweeps} sweep{'s' if self.sweeps > 1 else ''}"
        return ", ".join([name, *self._coupling_words(gains or {})])

    def _coupling_words(self, gains: Mapping[str, float]) -> list[str]:
        holds = {kind for _, kind in self.kinds if kind != "nepce"}
        found = []
        if self.family == "interpolated":
            return ["slower inputs interpolated"]
        if len(holds) == 1:
            found = [HELD[min(holds)]] if not self.targets else [f"other {HELD[min(holds)]}"]
        elif holds:
            found = [f"{target} {HELD[kind].removeprefix('inputs ')}" for target, kind in self.kinds if kind != "nepce"]
        each = [f"{target} {gains[target]:.3g}" if target in gains else target for target in self.targets]
        filtered = ", ".join(each) if len(each) <= NAMED else f"at {len(each)} inputs"
        return [*([f"NEPCE {filtered}"] if filtered else []), *found]

    def options(self, step: float, gains: Mapping[str, float]) -> str:
        """For the command line."""
        words = [f"--master {'multirate --inputs interpolated' if self.family == 'interpolated' else self.family}"]
        if self.family == "gauss-seidel" or (self.family == "iterative" and len(self.stages) > 1):
            words.append(f"--order {','.join(self.order)}")
        if self.family == "groups":
            words.append(f"--order '{';'.join(','.join(stage) for stage in self.stages)}'")
        if self.family == "iterative":
            words.append(f"--sweeps {self.sweeps}")
        words += [f"--multiple {unit}={n}" for unit, n in self.multiples]
        general, special = self._couplings(gains)
        words += [f"--coupling {general}"] if str(general) != "hold0" else []
        words += [f"--coupling {t}={_exactly(c)}" for t, c in special.items()]
        return " ".join([*words, f"--step-size {step:.12g}"])


def _exactly(coupling: Coupling) -> str:
    """With all digits of a gain that matter."""
    return f"nepce:{coupling.alpha:.12g}" if isinstance(coupling, Nepce) else str(coupling)


def parse_kinds(words: Sequence[str]) -> tuple[Kind, ...]:
    """Kinds of coupling as the command line writes them.

    >>> parse_kinds(["hold0", "nepce"])
    (0, 'nepce')
    """
    known: dict[str, Kind] = {"hold0": 0, "hold1": 1, "hold2": 2, "nepce": "nepce"}
    for word in words:
        if word not in known:
            raise UnknownNameError("coupling to try", word, known)
    return tuple(known[word] for word in words)
