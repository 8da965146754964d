"""What may be chosen: step sizes, masters, couplings, and the limits that a user gives.

A `Space` says what is open; `Space.resolve(system)` writes it out for one system: a list of structures (a family of
masters with its order, sweeps and kinds of coupling, all that is not a number) and, for the numbers, the range of the
macro step and of the gains of NEPCE. A candidate is a row of numbers in [0, 1]: which structure, the step, the gains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import islice, product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cosimo.analysis.truth import step_range
from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import SUBSTEPS, Hold, Nepce, parse_coupling, tuned_couplings
from cosimo.masters import MASTERS, gauss_seidel, groups, multirate
from cosimo.tuning.graph import Order, Stages, coupling_graph, groupings, orientations
from cosimo.tuning.orders import ErrorOfOrders, RadiusOfOrders, Sequential, best_order, feedback_order

IntArray = npt.NDArray[np.intp]
FAMILIES = tuple(name for name, word in MASTERS.items() if word.tuned)
USUAL = ("jacobi", "gauss-seidel", "strang", "iterative")
ORDERS = 24
"""Up to how many different calling orders all are tried."""
GROUPED = 4
"""Up to how many units all groupings are tried."""
ITERATED = 6
"""In how many orders iterative masters are tried."""
TRIED = 200
"""Orders that a search for the best ones looks at."""
STRUCTURES = 2000
"""How many structures a space may have."""


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`; `logarithmic`: each decade counts alike."""

    low: float
    high: float
    logarithmic: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ConfigurationError(
                f"a range goes from the smaller to the larger number, not from {self.low} to {self.high}."
            )
        if self.logarithmic and self.low <= 0:
            raise ConfigurationError(f"a logarithmic range must begin above 0, not at {self.low}.")

    def at(self, share: Array) -> Array:
        """The numbers at shares from 0 to 1 of the range."""
        if self.low == self.high:
            return np.full(np.shape(share), float(self.low))
        if self.logarithmic:
            found: Array = np.exp(np.log(self.low) + share * (np.log(self.high) - np.log(self.low)))
            return np.clip(found, self.low, self.high)
        return self.low + share * (self.high - self.low)

    def share(self, value: float) -> float:
        """Where a number lies, the inverse of `at`."""
        if self.low == self.high:
            return 0.0
        a, b, x = (math.log(v) if self.logarithmic else v for v in (self.low, self.high, value))
        return (x - a) / (b - a)


Steps = float | Sequence[float] | Range | None


@dataclass(frozen=True)
class Space:
    """What is open, and the limits.

    `steps`: one macro step (fixed), a list to choose from, a `Range` (the step is searched by decades), or None: from
    0.001 to 10 times 1/|λ| of the fastest mode. `families`: among "jacobi", "gauss-seidel", "strang", "iterative"
    (fixed numbers of `sweeps`; left out where a unit cannot restore its state, or is named in `cannot_restore`) and
    "groups" (units of a group step together, one group after the other: those in `groups`, or for up to four units all
    that differ). `order`: one calling order instead of all that differ (at most `orders` of them). `kinds`: couplings
    to try, orders of `Hold` and "nepce", with `gains` the range of its gains, one per connection; `couplings`: other
    kinds for single inputs. All other inputs have the same kind, unless `mixed`, which multiplies the structures. Tried
    as well: `Hold(1)` in substeps where 1 is among the kinds and units take no slopes; `multiples` of the step per
    unit, as for `masters.multirate`; with `compensation`, Jacobi corrected by `compensate`. `max_cost`: the most that a
    simulated second may cost, in unit steps (weighted as the cost is).

    >>> Space(steps=0.004, families=("gauss-seidel",), kinds=(0, 1)).families
    ('gauss-seidel',)
    """

    steps: Steps = None
    families: tuple[str, ...] = USUAL
    order: Sequence[str] | None = None
    orders: int = ORDERS
    sweeps: tuple[int, ...] = (2, 3)
    kinds: tuple[Kind, ...] = (0, 1, 2, "nepce")
    gains: Range = field(default_factory=lambda: Range(0.0, 0.95))
    couplings: Mapping[str, Sequence[Kind]] = field(default_factory=dict)
    mixed: bool = False
    groups: Sequence[Sequence[Sequence[str]]] = ()
    multiples: Sequence[Mapping[str, int]] = ()
    cannot_restore: Sequence[str] = ()
    compensation: bool = False
    max_cost: float | None = None

    def __post_init__(self) -> None:
        for name in self.families:
            if name not in FAMILIES:
                raise UnknownNameError("family of masters", name, FAMILIES)
        if not (self.families or self.groups or self.multiples):
            raise ConfigurationError("a search space needs at least one family of masters.")
        if any(count < 1 for count in self.sweeps):
            raise ConfigurationError(f"the number of sweeps must be at least 1, not {self.sweeps}.")
        words = [word for word in tuned_couplings() if not word.startswith("hold")]
        for kind in (*self.kinds, *(kind for some in self.couplings.values() for kind in some)):
            if isinstance(kind, bool) or kind not in (0, 1, 2, *words):
                known = f"0, 1 or 2 (the order of a hold) or {' or '.join(map(repr, words))}"
                raise ConfigurationError(f"a coupling to try is {known}, not {kind!r}.")
        if not self.kinds or not all(self.couplings.values()):
            raise ConfigurationError("a search space needs at least one coupling for every input.")
        if not 0 <= self.gains.low <= self.gains.high < 1:
            raise ConfigurationError(f"gains of Nepce lie in [0, 1), not {self.gains.low} to {self.gains.high}.")
        if self.max_cost is not None and not self.max_cost > 0:
            raise ConfigurationError(f"the maximum cost must be positive, not {self.max_cost}.")
        if isinstance(self.steps, int | float | Sequence):
            given = self.given
            if not given or not all(isinstance(h, int | float) and math.isfinite(h) and h > 0 for h in given):
                raise ConfigurationError(f"steps must be positive numbers, not {self.steps}.")

    @property
    def given(self) -> tuple[float, ...]:
        """The steps to choose from where they are numbers."""
        if self.steps is None or isinstance(self.steps, Range):
            return ()
        return (self.steps,) if isinstance(self.steps, int | float) else tuple(self.steps)

    def resolve(self, system: System, *, fastest: float, horizon: float) -> Resolved:
        """Written out for a system whose fastest mode has |λ| = `fastest`, run for `horizon` seconds."""
        notes: list[str] = []
        steps = self._steps(fastest, horizon)
        usual = float(np.sqrt(steps.low * steps.high)) if isinstance(steps, Range) else steps[len(steps) // 2]
        return Resolved(self._structures(system, usual, notes), steps, self.gains, tuple(notes))

    def _steps(self, fastest: float, horizon: float) -> Range | tuple[float, ...]:
        if isinstance(self.steps, Range):
            return Range(self.steps.low, self.steps.high, logarithmic=True)
        if self.given:
            return tuple(sorted(float(h) for h in self.given))
        return Range(*step_range(fastest, horizon), logarithmic=True)

    def _structures(self, system: System, step: float, notes: list[str]) -> tuple[MasterStructure, ...]:
        ordered = [name for name in self.families if name != "groups" and "order" in MASTERS[name].options]
        orders = self._orders(system, step, notes) if ordered else []
        kinds = self._kinds(system)
        filtered = {mapping for mapping in kinds if any(kind == "nepce" for _, kind in mapping)}
        found = []
        for family in (name for name in FAMILIES if name in self.families and name not in ("groups", "iterative")):
            if family not in ordered:
                found += [MasterStructure(family, (system.names,), k) for k in kinds]
            elif len(system.units) > 1:
                found += [MasterStructure(family, tuple((n,) for n in order), k) for order in orders for k in kinds]
        found += [MasterStructure("groups", stages, k) for stages in self._groups(system) for k in kinds]
        if "iterative" in self.families and self._restores(system, notes):
            several = orders[:ITERATED] if len(system.units) > 1 else []
            stages = [(system.names,), *(tuple((n,) for n in order) for order in several)]
            # Within a step the samples of later sweeps replace those of earlier ones; a filter would count them twice.
            found += [
                MasterStructure("iterative", s, k, n)
                for s in stages
                for n in self.sweeps
                for k in kinds
                if k not in filtered
            ]
        for rates in self.multiples:
            multirate(system, 1.0, multiples=rates)  # Refuses units that are not there, and rates that are none.
            # Inputs of faster units held or extrapolated; where they are straight lines, also interpolated.
            plain = [k for k in kinds if k not in filtered]
            ways = [("multirate", k) for k in plain]
            ways += [("interpolated", k) for k in plain if {kind for _, kind in k} == {1}]
            every = tuple(sorted(rates.items()))
            found += [MasterStructure(family, (system.names,), k, multiples=every) for family, k in ways]
        found = list(dict.fromkeys(found))
        if not found:
            raise ConfigurationError(
                "no master is left in the space: " + (" ".join(notes) or "a single unit needs the family 'jacobi'.")
            )
        if len(found) > STRUCTURES:
            raise ConfigurationError(
                f"the space has {len(found)} structures, more than {STRUCTURES}; fix the calling order, or use fewer "
                "couplings."
            )
        return tuple(found)

    def _groups(self, system: System) -> list[Stages]:
        for stages in self.groups:
            groups(system, 1.0, order=stages)  # Refuses groups that do not name every unit once.
        if self.groups or "groups" not in self.families:
            return [tuple(tuple(stage) for stage in stages) for stages in self.groups]
        if len(system.units) > GROUPED:
            raise ConfigurationError(
                f"there are too many ways to group {len(system.units)} units; name those to try, such as "
                f"Space(groups=[[('a', 'b'), ('c',)]]) or --groups 'a,b;c'."
            )
        return groupings(system)

    def _restores(self, system: System, notes: list[str]) -> bool:
        for name in self.cannot_restore:
            if name not in system.units:
                raise UnknownNameError("unit", name, system.units)
        unable = [n for n, unit in system.units.items() if not unit.can_restore or n in self.cannot_restore]
        if unable:
            notes.append(f"Iterative masters are left out: {', '.join(unable)} cannot restore a state.")
        return not unable

    def _orders(self, system: System, step: float, notes: list[str]) -> list[Order]:
        if self.order is not None:
            gauss_seidel(system, 1.0, order=self.order)  # Refuses an order that does not name every unit once.
            return [tuple(self.order)]
        found = list(islice(orientations(system), self.orders + 1))
        if len(found) <= self.orders:
            return found
        first, sequential = feedback_order(system), Sequential(system, step)
        scores = (ErrorOfOrders(sequential, horizon=100 * step), RadiusOfOrders(sequential))
        best = [best_order(system, score, limit=0, evaluations=TRIED, start=first).order for score in scores]
        notes.append(
            f"Of more than {self.orders} calling orders, only those are tried that a search at the step {step:.3g} s "
            "rates best in error and in ρ, and the one with the fewest stale connections, in both directions."
        )
        return list(dict.fromkeys([*best, first, tuple(reversed(first))]))

    def _kinds(self, system: System) -> list[Kinds]:
        """The kinds of coupling of all connected inputs, by target."""
        discrete = {f"{name}.{v}" for name, unit in system.units.items() for v in unit.discrete_inputs}
        targets = [link.connection.target for link in system.links if link.connection.target not in discrete]
        for target in self.couplings:
            if target not in targets:
                raise UnknownNameError("connected, continuous input", target, targets)
        sloped = any(unit.input_degree > 0 for unit in system.units.values())
        usual: list[Kind] = [k for k in self.kinds if sloped or k == "nepce" or not coupling_of_kind(k).degree] or [0]
        # Units that take no slopes but steps of any length follow a straight line in substeps.
        blunt = [u for u in system.units.values() if u.inputs and not u.input_degree]
        if 1 in self.kinds and blunt and all(unit.variable_step for unit in blunt):
            usual.append(str(Hold(1, substeps=SUBSTEPS)))
        special = [[(target, kind) for kind in kinds] for target, kinds in self.couplings.items()]
        rest = [target for target in targets if target not in self.couplings]
        general = product(usual, repeat=len(rest)) if self.mixed else [(kind,) * len(rest) for kind in usual]
        found = [tuple(sorted([*zip(rest, some, strict=True), *own])) for some in general for own in product(*special)]
        return list(dict.fromkeys(found)) or [()]


@dataclass(frozen=True)
class Resolved:
    """A space written out for one system. Rows of numbers in [0, 1] are candidates: structure, step, gains."""

    structures: tuple[MasterStructure, ...]
    steps: Range | tuple[float, ...]
    gains: Range
    notes: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The inputs that have a gain in some structure."""
        return tuple(sorted({target for structure in self.structures for target in structure.targets}))

    @property
    def width(self) -> int:
        """How many numbers a candidate has."""
        return 2 + len(self.targets)

    def structure_of(self, rows: Array) -> IntArray:
        """Which structure each row names."""
        return _index(rows[:, 0], len(self.structures))

    def place(self, structure: int) -> float:
        """The number in [0, 1] that names a structure."""
        return (structure + 0.5) / len(self.structures)

    def steps_of(self, rows: Array) -> Array:
        """The macro step of each row."""
        if isinstance(self.steps, Range):
            return self.steps.at(rows[:, 1])
        return np.asarray(self.steps)[_index(rows[:, 1], len(self.steps))]

    def gains_of(self, rows: Array, structure: MasterStructure) -> dict[str, Array]:
        """The gains of rows that share a structure, by target."""
        return {t: self.gains.at(rows[:, 2 + self.targets.index(t)]) for t in structure.targets}

    def tidy(self, rows: Array) -> Array:
        """The same candidates with unused numbers set to 0 and chosen ones to the middle, so that equal are equal."""
        found = np.clip(rows, 0.0, 1.0)
        numbers = self.structure_of(found)
        found[:, 0] = (numbers + 0.5) / len(self.structures)
        if not isinstance(self.steps, Range):
            found[:, 1] = (_index(found[:, 1], len(self.steps)) + 0.5) / len(self.steps)
        elif self.steps.low == self.steps.high:
            found[:, 1] = 0.0
        for number, structure in enumerate(self.structures):
            unused = [2 + i for i, target in enumerate(self.targets) if target not in structure.targets]
            found[np.ix_(numbers == number, unused)] = 0.0
        return found

    def free(self, structure: int) -> list[int]:
        """The places of the numbers that are continuous in a structure."""
        step = [1] if isinstance(self.steps, Range) and self.steps.low < self.steps.high else []
        return [*step, *(2 + self.targets.index(t) for t in self.structures[structure].targets)]


def _index(shares: Array, count: int) -> IntArray:
    """Which of `count` equal parts of [0, 1] numbers lie in."""
    return np.clip((shares * count).astype(np.intp), 0, count - 1)


# ---- a structure: all of a master that is not a number. With a step and gains it becomes one -------------------------


Kind = int | str
"""The order of a hold, "nepce" with a gain that is still open, or the word of another coupling."""
Kinds = tuple[tuple[str, Kind], ...]
"""The kinds of coupling of all connected inputs, by target."""


@dataclass(frozen=True)
class MasterStructure:
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
        """The master with its numbers; units of `system` that are in no stage go first (what is constant).

        >>> from cosimo.problems import two_mass_glumac
        >>> system = two_mass_glumac()
        >>> str(MasterStructure("gauss-seidel", (("two",), ("one",)), ()).master(system, 1.0))
        'F2 G2 H2 F1 G1 H1'
        """
        general, special = self._couplings(gains or {})
        more = tuple(name for name in system.names if name not in self.order)
        order = (*more, *self.order)
        if self.multiples or self.family not in MASTERS:
            inputs: Literal["held", "interpolated"] = "interpolated" if self.family == "interpolated" else "held"
            return multirate(
                system, step, multiples=dict(self.multiples), inputs=inputs, coupling=general, couplings=special
            )
        word = MASTERS[self.family]
        given: dict[str, Any] = {"sweeps": self.sweeps} if self.family == "iterative" else {}
        if self.family == "groups":
            given["order"] = [(*more, *self.stages[0]), *self.stages[1:]]
        elif "order" in word.options and len(self.stages) > 1:
            given["order"] = order
        return word.build(system, step, coupling=general, couplings=special, **given)

    def _couplings(self, gains: Mapping[str, float]) -> tuple[Coupling, dict[str, Coupling]]:
        """The most frequent one without a gain for all inputs, the others by target."""
        fixed = [kind for _, kind in self.kinds if kind != "nepce"]
        usual = max(dict.fromkeys(fixed), key=fixed.count, default=0)
        special: dict[str, Coupling] = {
            target: Nepce(float(gains.get(target, 0.0))) if kind == "nepce" else coupling_of_kind(kind)
            for target, kind in self.kinds
            if kind != usual
        }
        return coupling_of_kind(usual), special

    def without_idle(self, gains: Mapping[str, float]) -> MasterStructure:
        """The same with inputs held where the gain of NEPCE is 0, which is what such a filter does."""
        kinds = tuple((t, 0 if kind == "nepce" and not gains.get(t, 0.0) else kind) for t, kind in self.kinds)
        return replace(self, kinds=kinds)


def coupling_of_kind(kind: Kind) -> Coupling:
    """The coupling that a kind without a gain stands for."""
    return Hold(kind) if isinstance(kind, int) else parse_coupling(kind)


def parse_kinds(words: Sequence[str]) -> tuple[Kind, ...]:
    """Kinds of coupling as the command line writes them.

    >>> parse_kinds(["hold0", "nepce"])
    (0, 'nepce')
    """
    holds: dict[str, Kind] = {f"hold{order}": order for order in (0, 1, 2)}
    known = {word: holds.get(word, word) for word in tuned_couplings()}
    for word in words:
        if word not in known:
            raise UnknownNameError("coupling to try", word, known)
    return tuple(known[word] for word in words)


def side_by_side(system: System, structure: MasterStructure) -> MasterStructure:
    """The same Gauss–Seidel master with units that do not see each other stepped together; Φ is the same.

    >>> from cosimo.problems import chain
    >>> system = chain(n=4)
    >>> order = tuple((name,) for name in system.names)
    >>> [len(stage) for stage in side_by_side(system, MasterStructure("gauss-seidel", order, ())).stages]
    [1, 1, 1, 1]
    """
    if structure.family != "gauss-seidel":
        return structure
    graph = coupling_graph(system)
    level: dict[str, int] = {}
    for name in structure.order:
        near = graph.neighbours[graph.number[name]]
        earlier = [level[other] for other in level if near >> graph.number[other] & 1]
        level[name] = 1 + max(earlier, default=-1)
    stages = [tuple(n for n in structure.order if level[n] == k) for k in range(1 + max(level.values()))]
    if len(stages) == len(structure.order):
        return structure
    return replace(structure, family="groups", stages=tuple(stages))
