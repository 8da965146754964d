"""Consistent outputs of live units at the start: u = L y + b and y = g(x, u) at once (glumac2018, Eqs. 34, 52).

Without an algebraic loop one pass in the order of dependence settles it. On a loop the fixed-point iteration is used
where it contracts (conditions 50, 51); where it does not, Newton's method on the outputs of the loop. When even that
has no solution, det(I − D L) = 0, and the error names the variables on the loop.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cosimo.core.arrays import Array, loop_is_singular
from cosimo.core.errors import AlgebraicLoopError
from cosimo.core.system import System

SWEEPS = 50
"""Fixed-point sweeps on a loop before Newton takes over."""
DIVERGED = 10.0
"""How much larger than the smallest change so far a change may be before substitution is given up."""
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
    nearest, smallest = outputs, np.inf
    for _ in range(SWEEPS if loops else len(order) + 1):
        settled = sweep(outputs)
        if not all(np.isfinite(y).all() for y in settled.values()):
            return settled  # Not a matter of solving: a unit gives it, and the caller names the variable.
        change = _largest({name: settled[name] - outputs[name] for name in settled})
        if change <= TOLERANCE * max(1.0, _largest(settled)):
            if not loops:
                return settled
            nearest = settled
            break
        if loops and change > DIVERGED * smallest:
            break  # Before the numbers grow beyond what the units can bear.
        if change < smallest:
            nearest, smallest = outputs, change
        outputs = settled
    return _newton(system, nearest, sweep, loops)


def _largest(values: dict[str, Array]) -> float:
    return max([0.0, *(float(np.abs(y).max()) for y in values.values() if y.size)])


def _newton(
    system: System,
    outputs: dict[str, Array],
    sweep: Callable[[dict[str, Array]], dict[str, Array]],
    loops: list[tuple[str, ...]],
) -> dict[str, Array]:
    """Newton on r(y) = sweep(y) − y, with the Jacobian by differences in the outputs that are on loops.

    Where substitution has found a solution already, this only makes sure that it is the only one near: a system at rest
    satisfies also a loop with det(I − D L) = 0.
    """
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
        if not np.isfinite(residual).all():
            return swept
        increment = 1e-4 * np.maximum(1.0, np.abs(y))
        columns = [
            (pick(sweep(put(outputs, y + step * unit))) - pick(swept)) / step
            for step, unit in zip(increment, np.eye(len(y)), strict=True)
        ]
        gain = np.column_stack(columns)
        if not np.isfinite(gain).all():
            break
        if loop_is_singular(gain, 1e-10):
            raise AlgebraicLoopError.singular(names)
        if np.abs(residual).max() <= TOLERANCE * max(1.0, float(np.abs(y).max())):
            return swept
        update = np.linalg.solve(np.eye(len(y)) - gain, residual)
        y = y + update
        # A loop of large gain magnifies the rounding of y in its residual, but not in the update.
        if np.abs(update).max() <= TOLERANCE * max(1.0, float(np.abs(y).max())):
            return put(sweep(put(outputs, y)), y)
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
