"""Consistent outputs of live units at the start: u = L y + b and y = g(x, u) at once (glumac2018, Eqs. 34, 52).

Without an algebraic loop one pass in the order of dependence settles it. On a loop the fixed-point iteration is used
where it contracts (conditions 50, 51); where it does not, Newton's method on the outputs of the loop. When even that
has no solution, det(I − D L) = 0, and the error names the variables on the loop.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import AlgebraicLoopError
from cosimo.core.system import System

SWEEPS = 50
"""Fixed-point sweeps on a loop before Newton takes over."""
NEWTON = 20
TOLERANCE = 1e-13

Evaluate = Callable[[str, dict[str, Array]], Array]
"""Set the unit's inputs from all outputs, and read its outputs."""


def settle(system: System, outputs: dict[str, Array], evaluate: Evaluate) -> dict[str, Array]:
    """Outputs that agree with the inputs formed from them; `outputs` is the first guess."""
    order = _order(system)

    def sweep(guess: dict[str, Array]) -> dict[str, Array]:
        settled = dict(guess)
        for name in order:
            settled[name] = evaluate(name, settled)
        return settled

    loops = system.loops()
    for _ in range(SWEEPS if loops else len(order) + 1):
        settled = sweep(outputs)
        if not all(np.isfinite(y).all() for y in settled.values()):
            if not loops:
                return settled  # Not a matter of solving: a unit gives it, and the caller names the variable.
            break
        if _distance(settled, outputs) <= TOLERANCE:
            return settled
        outputs = settled
    return _newton(
        system, {name: np.nan_to_num(y, posinf=0.0, neginf=0.0) for name, y in outputs.items()}, sweep, loops
    )


def _distance(new: dict[str, Array], old: dict[str, Array]) -> float:
    scale = max([1.0, *(float(np.abs(y).max()) for y in new.values() if y.size)])
    return max([0.0, *(float(np.abs(new[name] - old[name]).max()) for name in new if new[name].size)]) / scale


def _newton(
    system: System,
    outputs: dict[str, Array],
    sweep: Callable[[dict[str, Array]], dict[str, Array]],
    loops: list[tuple[str, ...]],
) -> dict[str, Array]:
    """Newton on r(y) = sweep(y) − y, with the Jacobian by differences in the outputs that are on loops."""
    names = [name for loop in loops for name in loop] or list(system.outputs)
    where = [system.output(name) for name in names]

    def pick(values: dict[str, Array]) -> Array:
        return np.array([values[v.unit][v.index] for v in where])

    def put(values: dict[str, Array], numbers: Array) -> dict[str, Array]:
        changed = {name: y.copy() for name, y in values.items()}
        for v, number in zip(where, numbers, strict=True):
            changed[v.unit][v.index] = number
        return changed

    y = pick(outputs)
    for _ in range(NEWTON):
        swept = sweep(put(outputs, y))
        residual = pick(swept) - y
        if not np.isfinite(residual).all() or np.abs(residual).max() <= TOLERANCE * max(1.0, float(np.abs(y).max())):
            return swept
        increment = 1e-4 * np.maximum(1.0, np.abs(y))
        columns = [
            (pick(sweep(put(outputs, y + step * unit))) - pick(swept)) / step
            for step, unit in zip(increment, np.eye(len(y)), strict=True)
        ]
        matrix = np.eye(len(y)) - np.column_stack(columns)
        if not np.isfinite(matrix).all():
            break
        if np.linalg.cond(matrix) > 1e10:
            raise AlgebraicLoopError.singular(names)
        y = y + np.linalg.solve(matrix, residual)
    raise AlgebraicLoopError(
        f"the outputs on the algebraic loop {', '.join(names)} could not be solved for at the start in {NEWTON} Newton "
        f"steps; give start values nearer to the solution."
    )


def _order(system: System) -> list[str]:
    """Units so that, loops apart, every unit comes after those whose outputs reach it through feedthrough."""
    waits = {
        name: {link.source.unit for link in system.incoming(name) if unit.feedthrough()[:, link.target.index].any()}
        - {name}
        for name, unit in system.units.items()
    }
    order: list[str] = []
    state: dict[str, int] = {}
    for root in waits:
        stack = [root]
        while stack:
            name = stack[-1]
            if state.get(name) is None:
                state[name] = 0
                stack += [other for other in sorted(waits[name]) if other not in state]
                continue
            stack.pop()
            if state[name] == 0:
                state[name] = 1
                order.append(name)
    return order
