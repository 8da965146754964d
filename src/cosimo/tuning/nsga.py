"""NSGA-II (Deb and others, 2002) and NSGA-III (Deb and Jain, 2014) by pymoo, on batches.

pymoo is asked for candidates and told their values. NSGA-II keeps of equally good candidates those in the emptiest
places of the front; with more objectives ever more of them are equally good, and NSGA-III keeps those nearest to evenly
spread directions instead. Real numbers cross by simulated binary crossover and mutate polynomially. The number that
names the structure is none: parents swap it, and a mutation draws another one.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.tuning.search import Search

STAGES = {"nsga2": "NSGA-II", "nsga3": "NSGA-III"}
OTHER_STRUCTURE = 0.1
"""How often a mutation draws another structure."""
FRUITLESS = 20
"""After so many generations in a row without a new candidate there is nothing left to find."""


def evolve(search: Search, evaluations: int) -> None:
    """Generations from all that is known, until `evaluations` more were made."""
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.algorithms.moo.nsga3 import NSGA3
        from pymoo.core.population import Population
        from pymoo.core.problem import Problem
        from pymoo.core.termination import NoTermination
    except ImportError:
        raise ConfigurationError(
            "the search needs pymoo: install cosimo with the extra 'tune', or search by method 'grid'."
        ) from None
    pool, space = search.pool, search.pool.space
    problem = Problem(n_var=space.width, n_obj=len(pool.goals), n_ieq_constr=1, xl=0.0, xu=1.0)
    method, goals, population = search.options.evolution(len(pool.goals)), len(pool.goals), search.options.population
    kinds = {"nsga2": NSGA2, "nsga3": partial(NSGA3, directions(goals, population) if method == "nsga3" else None)}
    algorithm = kinds[method](
        pop_size=population,
        # The grid: pymoo asks for it first, and gets its values without new evaluations.
        sampling=Population.new("X", pool.rows),
        crossover=_crossover(),
        mutation=_mutation(len(space.structures)),
        eliminate_duplicates=True,
    )
    algorithm.setup(problem, termination=NoTermination(), seed=search.options.seed, verbose=False)
    until, fruitless = pool.count + evaluations, -1
    while pool.count < until and fruitless < FRUITLESS:
        before = pool.count
        asked = algorithm.ask()
        if asked is None or not len(asked):
            break
        rows = space.tidy(asked.get("X"))
        values, violation = search.evaluate(rows, STAGES[method])
        asked.set("X", rows)
        asked.set("F", np.where(np.isfinite(values), values, 1e6))
        asked.set("G", np.where(np.isfinite(violation), violation, 1e6)[:, None])
        for individual in asked:
            individual.evaluated.update({"F", "G", "H"})
        algorithm.tell(infills=asked)
        fruitless = fruitless + 1 if pool.count == before else 0


def directions(goals: int, population: int) -> Any:
    """Evenly spread directions of NSGA-III (N, goals), no more than the population has members."""
    from pymoo.util.ref_dirs import get_reference_directions

    parts = 1
    while math.comb(parts + goals, goals - 1) <= population:
        parts += 1
    return get_reference_directions("das-dennis", goals, n_partitions=parts)


def _crossover() -> Any:
    from pymoo.core.crossover import Crossover
    from pymoo.operators.crossover.sbx import SBX

    class Mixed(Crossover):  # type: ignore[misc]
        """SBX for numbers, a swap for the structure."""

        def __init__(self) -> None:
            super().__init__(2, 2)
            self.real = SBX(eta=15, prob=0.9)

        def _do(self, problem: Any, X: Any, *args: Any, random_state: Any = None, **kwargs: Any) -> Any:
            found = self.real._do(problem, X, *args, random_state=random_state, **kwargs)
            swap = random_state.random(X.shape[1]) < 0.5
            found[:, :, 0] = np.where(swap, X[::-1, :, 0], X[:, :, 0])
            return found

    return Mixed()


def _mutation(structures: int) -> Any:
    from pymoo.core.mutation import Mutation
    from pymoo.operators.mutation.pm import PM

    class Mixed(Mutation):  # type: ignore[misc]
        """Polynomial for numbers, any other one for the structure."""

        def __init__(self) -> None:
            super().__init__()
            self.real = PM(eta=20, prob=0.9)

        def _do(self, problem: Any, X: Any, *args: Any, random_state: Any = None, **kwargs: Any) -> Any:
            found = self.real._do(problem, X, *args, random_state=random_state, **kwargs)
            other = random_state.random(len(X)) < OTHER_STRUCTURE
            drawn = (random_state.integers(structures, size=len(X)) + 0.5) / structures
            found[:, 0] = np.where(other, drawn, X[:, 0])
            return found

    return Mixed()
