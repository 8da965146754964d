"""The best calling order of a Gauss–Seidel master: all that differ when they are few, a search when they are many.

The search starts from an order in which little weight lies on stale connections (those whose source goes after their
target, so that they deliver a value one step old): the feedback arc set problem, by the greedy rule of Eades, Lin and
Smyth (1993) with weights. Then one unit at a time is moved to where the score is best, among the places that differ
for it: before or after each unit that it is coupled with. Local optima are left by a few random moves. Orders that are
the same are scored once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from cosimo.algebra.product import CoupledModel, LinearSystem
from cosimo.analysis.error_norms import OPERATOR_UP_TO, global_error
from cosimo.analysis.spectrum import Spectrum
from cosimo.core import dataclass
from cosimo.core.arrays import Array, block_diagonal
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.masters import gauss_seidel
from cosimo.tuning.graph import CouplingGraph, Equal, Order, coupling_graph, orientations

__all__ = [
    "ErrorOfOrders",
    "OrderChoice",
    "RadiusOfOrders",
    "Sequential",
    "best_order",
    "connection_weights",
    "coupling_graph",
    "feedback_order",
    "orientations",
]

Score = Callable[[Sequence[Order]], Sequence[float]]
"""Numbers for many orders in one call, the smaller the better."""
BATCH = 256
FRUITLESS = 25
"""How many kicks in a row that lead to no new order end the search."""
THROUGH = 4.0
"""How much more a stale connection weighs that is fed through its target at once than one that is integrated first."""


@dataclass(frozen=True)
class OrderChoice:
    """The best order found, its score, how many orders were scored, and whether these were all that differ."""

    order: Order
    score: float
    evaluations: int
    complete: bool

    def __str__(self) -> str:
        scope = "of all that differ" if self.complete else "found by search"
        return f"{' → '.join(self.order)}: {self.score:.6g}, the best {scope} ({self.evaluations} evaluated)"


def best_order(
    system: System,
    score: Score,
    *,
    equal: Equal | None = None,
    limit: int = 1000,
    evaluations: int = 1000,
    start: Sequence[str] | None = None,
    seed: int = 0,
) -> OrderChoice:
    """The calling order with the smallest `score`: proven the best if at most `limit` orders differ, else searched.

    `equal` says which orders the score does not tell apart (default: what the score itself says, else those with the
    same Φ). The search begins at `start` or at `feedback_order`, and ends after `evaluations` scores; equal seeds give
    equal results. It guarantees no more than a local optimum under moves of one unit, unless evaluations ran out first.

    >>> from cosimo.problems import two_mass_glumac
    >>> system = two_mass_glumac()
    >>> print(best_order(system, ErrorOfOrders(Sequential(system, 1.0), horizon=20.0)))
    two → one: 0.0989823, the best of all that differ (2 evaluated)
    """
    same: Equal = getattr(score, "equal", "map") if equal is None else equal
    if evaluations < 1:
        raise ConfigurationError(f"a search for an order needs at least one evaluation, not {evaluations}.")
    few = list(islice(orientations(system, same), limit + 1))
    if len(few) <= limit:
        scores = [value for i in range(0, len(few), BATCH) for value in _checked(score, few[i : i + BATCH])]
        best = int(np.argmin(scores))
        return OrderChoice(few[best], scores[best], len(few), True)
    first = feedback_order(system) if start is None else tuple(start)
    gauss_seidel(system, 1.0, order=first)  # Refuses an order that does not name every unit once.
    return _Search(coupling_graph(system, same), score, same, evaluations, seed).run(first)


def connection_weights(system: System) -> dict[tuple[str, str], float]:
    """How much it hurts that a connection source → target is stale, summed per pair of units: its share in the loop.

    |gain| relative to the largest gain into the same input's unit, and four times as much where the target feeds the
    input through to an output, since then the old value acts at once instead of being integrated first.

    >>> from cosimo.problems import two_mass_glumac
    >>> connection_weights(two_mass_glumac())
    {('one', 'two'): 1.0, ('two', 'one'): 8.0}
    """
    largest = {name: max((abs(x.connection.gain) for x in system.incoming(name)), default=0) for name in system.units}
    weights: dict[tuple[str, str], float] = {}
    for link in system.links:
        source, target = link.source.unit, link.target.unit
        if source == target:
            continue
        through = bool(system.units[target].feedthrough()[:, link.target.index].any())
        size = abs(link.connection.gain) / (largest[target] or 1.0)
        weights[source, target] = weights.get((source, target), 0.0) + size * (THROUGH if through else 1.0)
    return weights


def feedback_order(system: System, weights: Mapping[tuple[str, str], float] | None = None) -> Order:
    """An order with little weight on stale connections (greedy: sinks last, sources first, else the largest surplus).

    >>> from cosimo.problems import two_mass_glumac
    >>> feedback_order(two_mass_glumac())
    ('two', 'one')
    """
    weights = connection_weights(system) if weights is None else weights
    out: dict[str, dict[str, float]] = {name: {} for name in system.names}
    into: dict[str, dict[str, float]] = {name: {} for name in system.names}
    for (source, target), weight in weights.items():
        out[source][target] = into[target][source] = weight
    left: list[str] = []
    right: list[str] = []
    rest = dict.fromkeys(system.names)

    def take(name: str) -> None:
        del rest[name]
        for other in out.pop(name):
            into[other].pop(name, None)
        for other in into.pop(name):
            out[other].pop(name, None)

    while rest:
        sinks = [name for name in rest if not out[name]]
        sources = [name for name in rest if not into[name]]
        surplus = [] if sinks or sources else [max(rest, key=lambda n: sum(out[n].values()) - sum(into[n].values()))]
        chosen = (sinks or sources or surplus)[0]
        (right if sinks else left).append(chosen)
        take(chosen)
    return (*left, *reversed(right))


def _checked(score: Score, orders: Sequence[Order]) -> list[float]:
    values = [float(value) for value in score(orders)]
    if len(values) != len(orders):
        raise ConfigurationError(
            f"the score returned {len(values)} numbers for {len(orders)} orders; one for each is needed."
        )
    if np.isnan(values).any():
        bad = orders[int(np.isnan(values).argmax())]
        raise ConfigurationError(f"the score of the order {', '.join(bad)} is not a number; exclude this order.")
    return values


class _Search:
    """Insertion search with a memory of all scores."""

    def __init__(self, graph: CouplingGraph, score: Score, equal: Equal, evaluations: int, seed: int) -> None:
        self.graph, self.score, self.left = graph, score, evaluations
        self.key = graph.rooted_key if equal == "radius" else graph.key
        self.known: dict[int, float] = {}
        self.rng = np.random.default_rng(seed)

    def run(self, start: Order) -> OrderChoice:
        best, value = self.descend(start)
        kick, fruitless = 2, 0
        while self.left > 0 and fruitless < FRUITLESS:
            before = self.left
            order, found = self.descend(self.kicked(best, kick))
            if found < value:
                best, value, kick = order, found, 2
            elif found == value:
                best = order
            # Where all that a kick leads to is known already, kick harder; in the end there is nothing new to find.
            fruitless = fruitless + 1 if self.left == before else 0
            kick = min(kick + 1, len(best)) if self.left == before else kick
        return OrderChoice(best, value, len(self.known), False)

    def descend(self, order: Order) -> tuple[Order, float]:
        """Move one unit after the other to its best place, until a whole round improves nothing."""
        value = self.values([order])[0]
        names, idle = list(order), 0
        self.rng.shuffle(names)
        while idle < len(names) and self.left > 0:
            name = names[0]
            names = [*names[1:], name]
            moves = self.moves(order, name)
            values = self.values(moves)
            idle += 1
            if values and min(values) < value - 1e-12 * abs(value):
                place = int(np.argmin(values))
                order, value, idle = moves[place], values[place], 0
        return order, value

    def moves(self, order: Order, name: str) -> list[Order]:
        """The orders that differ from this one by the place of one unit: just before or after a coupled one."""
        i = self.graph.number[name]
        rest = [other for other in order if other != name]
        near = [k for k, other in enumerate(rest) if self.graph.neighbours[i] >> self.graph.number[other] & 1]
        places = [*near, near[-1] + 1] if near else []
        return [(*rest[:place], name, *rest[place:]) for place in places]

    def kicked(self, order: Order, count: int) -> Order:
        """`count` units moved to random places."""
        names = list(order)
        for _ in range(count):
            names.insert(int(self.rng.integers(len(names))), names.pop(int(self.rng.integers(len(names)))))
        return tuple(names)

    def values(self, orders: Sequence[Order]) -> list[float]:
        """Scores, new ones computed in one call, as far as evaluations are left (infinite beyond)."""
        keys = [self.key(order) for order in orders]
        new = {key: order for key, order in zip(keys, orders, strict=True) if key not in self.known}
        asked = list(new.items())[: self.left]
        if asked:
            self.left -= len(asked)
            found = _checked(self.score, [order for _, order in asked])
            self.known.update(zip((key for key, _ in asked), found, strict=True))
        return [self.known.get(key, np.inf) for key in keys]


# ---- all calling orders of one Gauss–Seidel master at once, by one formula -------------------------------------------
# With every input held and every unit making one step, an order enters through the connections only: L = L_f + L_s,
# those whose source has already stepped (fresh) and the others (stale). With the units' matrices on the diagonals,
#
#     u = L_f y' + L_s y,    x' = A x + B u,    y' = C x' + D u
#
# give (I − K L_f) y' = C A x + K L_s y with K = C B + D, where K L_f is nilpotent, and from it Φ on [x; y]: the map
# that the schedule multiplies out to, without going through it. Other couplings take the general way, order by order.


WORK = 4_000_000
"""Numbers of Φ held at once."""


@dataclass(frozen=True)
class Sequential:
    """A Gauss–Seidel master of a system whose order is still open: step and couplings."""

    system: System
    step: float
    coupling: Coupling | None = None
    couplings: Mapping[str, Coupling] | None = None

    @property
    def used(self) -> list[Coupling]:
        """All couplings."""
        return [*(self.couplings or {}).values(), self.coupling or Hold(0)]

    @property
    def held(self) -> bool:
        """Whether every input is held, so that the formula applies."""
        return all(coupling.held for coupling in self.used)

    @property
    def rotates(self) -> bool:
        """Whether no coupling looks at the times of its samples, so that rotated orders have the same ρ."""
        return not any(coupling.timed for coupling in self.used)

    def linear(self, order: Order) -> LinearSystem:
        """The master with this order, multiplied out by its schedule."""
        master = gauss_seidel(self.system, self.step, order=order, coupling=self.coupling, couplings=self.couplings)
        return LinearSystem(self.system, master)

    def scores(
        self, orders: Sequence[Order], one: Callable[[LinearSystem], float], many: Callable[[Array], Array]
    ) -> list[float]:
        """Numbers of all orders: of many Φ at once where inputs are held, else of each by its schedule."""
        if not self.held:
            return [one(self.linear(order)) for order in orders]
        _, A, _, C = self.parts
        count = max(1, WORK // max(1, (len(A) + len(C)) ** 2))
        parts = [many(self.maps(orders[i : i + count])) for i in range(0, len(orders), count)]
        return [value for part in parts for value in part.tolist()]

    @cached_property
    def parts(self) -> tuple[CoupledModel, Array, Array, Array]:
        """The exact coupled system; A and B of all units' steps, and C, on diagonals."""
        coupled = LinearSystem(self.system, gauss_seidel(self.system, self.step)).coupled.dense()
        units = [(unit.discrete(self.step), unit.linear(), len(unit.inputs)) for unit in self.system.units.values()]
        own = [(step.A, step.B[:, :m], model.C) for step, model, m in units if model is not None]
        A, B, C = map(block_diagonal, zip(*own, strict=True))
        return coupled, A, B, C

    def maps(self, orders: Sequence[Order]) -> Array:
        """Φ on [x; y] for every order, (N, n + p, n + p); for held inputs only."""
        units = self.system.units.values()
        giver = [i for i, unit in enumerate(units) for _ in unit.outputs]
        taker = [i for i, unit in enumerate(units) for _ in unit.inputs]
        rank = np.array([[order.index(name) for name in self.system.names] for order in orders])
        coupled, A, B, C = self.parts
        L, K, n = coupled.L, C @ B + coupled.D, len(A)
        fresh = np.where(rank[:, None, giver] < rank[:, taker, None], L, 0.0)
        stale = L - fresh
        free = np.broadcast_to(C @ A, (len(orders), len(K), n))
        y = np.linalg.solve(np.eye(len(K)) - K @ fresh, np.concatenate([free, K @ stale], axis=-1))
        u = fresh @ y
        u[..., n:] += stale
        x = B @ u
        x[..., :n] += A
        return np.concatenate([x, y], axis=-2)


@dataclass(frozen=True)
class RadiusOfOrders:
    """ρ(Φ) of many orders; call it with a sequence of orders.

    >>> from cosimo.problems import two_mass_glumac
    >>> score = RadiusOfOrders(Sequential(two_mass_glumac(), 4.0))
    >>> [round(rho, 9) for rho in score([("one", "two"), ("two", "one")])]
    [0.875470017, 0.875470017]
    """

    sequential: Sequential

    @property
    def equal(self) -> Equal:
        """Which orders need not be told apart."""
        return "radius" if self.sequential.rotates else "map"

    def __call__(self, orders: Sequence[Order]) -> list[float]:
        return self.sequential.scores(orders, lambda linear: Spectrum(linear).radius, self._radii)

    @staticmethod
    def _radii(Phi: Array) -> Array:
        if not np.isfinite(Phi).all():
            raise ConfigurationError("Φ of a calling order is not finite; check the units and the step.")
        return np.asarray(np.abs(np.linalg.eigvals(Phi)).max(axis=-1, initial=0.0))


@dataclass(frozen=True)
class ErrorOfOrders:
    """The relative global error over `horizon` seconds of many orders (as `cosimo.analysis.global_error`).

    >>> from cosimo.problems import two_mass_glumac
    >>> score = ErrorOfOrders(Sequential(two_mass_glumac(), 1.0), horizon=20.0)
    >>> [round(error, 6) for error in score([("one", "two"), ("two", "one")])]
    [0.166278, 0.098982]
    """

    sequential: Sequential
    horizon: float
    equal: ClassVar[Equal] = "map"
    """Which orders need not be told apart: the error sees all of Φ."""

    def __call__(self, orders: Sequence[Order]) -> list[float]:
        steps = max(1, round(self.horizon / self.sequential.step))
        found = self.sequential.scores(
            orders, lambda linear: global_error(linear, steps=steps).relative, partial(self._errors, steps=steps)
        )
        if np.isnan(found).any():
            raise ConfigurationError(
                "the system is at rest, so its relative error is undefined; give its units nonzero initial states."
            )
        return found

    def _errors(self, Phi: Array, *, steps: int) -> Array:
        coupled = self.sequential.parts[0]
        n = len(coupled.A)
        units = self.sequential.system.units.values()
        x: Any = np.eye(n) if n <= OPERATOR_UP_TO else np.concatenate([unit.initial_state for unit in units])[:, None]
        z = np.broadcast_to(np.concatenate([x, coupled.C @ x]), (len(Phi), Phi.shape[-1], x.shape[1]))
        flow = coupled.flow(self.sequential.step)
        total, scale = np.zeros(len(Phi)), 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(steps + 1):
                exact = coupled.C @ x
                difference = z[:, n:] - exact
                # ‖·‖_2 ≤ ‖·‖_F: only where that is larger can the largest norm grow. What is not finite counts as ∞.
                larger = np.flatnonzero(~(np.linalg.norm(difference, axis=(-2, -1)) <= total))
                finite = larger[np.isfinite(difference[larger]).all(axis=(-2, -1))]
                total[np.setdiff1d(larger, finite)] = np.inf
                total[finite] = np.maximum(total[finite], np.linalg.norm(difference[finite], 2, axis=(-2, -1)))
                scale = max(scale, float(np.linalg.norm(exact, 2)) if np.linalg.norm(exact) > scale else 0.0)
                z, x = Phi @ z, flow @ x
        return total / scale if scale else np.full(len(Phi), np.nan)
