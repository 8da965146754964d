"""The error that the units' own solvers add along a run.

Every unit is led alone through the inputs of the reference run, held over the macro steps: once stepped as the master
does, and twice much finer, to see what its solver tends to. What the outputs of the first are ahead, d, is an error
that comes with the solver whatever the coupling. Coupled, it goes round: with S = (I − D L)⁻¹,

    δẋ = A_c δx + B L S d,   δy = C_c δx + S d.
"""

from __future__ import annotations

import numpy as np

from cosimo.algebra import CoupledModel
from cosimo.assessment.motion import Recursion
from cosimo.core.arrays import Array
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.core.unit import LinearModel
from cosimo.masters import jacobi
from cosimo.units.integrators import Exact, discretise

FINE = 16
"""Parts of the macro step in which units are stepped, and then twice as many, to see what their solvers tend to."""
MOST_STEPS = 200_000
"""How many such steps are made at most; long runs are divided into fewer parts."""
NEARLY = 1e-6
"""Part of a step by which times of finer steps may be rounded otherwise and still be at its beginning."""


def own_errors(system: System, reference: Result, *, step: float, steps: int) -> Array:
    """d (steps + 1, p): the outputs of units stepped by `step` less those of the same units stepped ever finer.

    A solver of first order is extrapolated to what it tends to; better ones hardly differ between the two fine steps.
    """
    fine = min(max(MOST_STEPS // steps // 2, 1), FINE)
    start = float(reference.time[0])
    inputs = {
        f"{name}.{variable}": _Held(
            reference.time, reference[f"{name}.{variable}"], variable in unit.discrete_inputs, step, steps
        )
        for name, unit in system.units.items()
        for variable in unit.inputs
    }
    apart = System(dict(system.units), [], inputs=inputs, name=system.name)

    def outputs(parts: int) -> Array:
        from cosimo.execution import run

        result = run(apart, jacobi(apart, step / parts), start=start, stop=start + steps * step)
        rows: Array = np.stack([result[name][::parts] for name in system.outputs], axis=1)
        return rows

    return outputs(1) - (2 * outputs(2 * fine) - outputs(fine))


class _Held:
    """The mean of a recorded signal over each macro step, held over it; of whole numbers and switches the first value.

    A list and a division: it is asked some hundred thousand times.
    """

    def __init__(self, times: Array, values: Array, discrete: bool, step: float, steps: int) -> None:
        self._start, self._step = float(times[0]), step
        moments: Array = self._start + np.arange(steps + 1.0) * step
        if discrete:
            rows = np.maximum(np.searchsorted(times, moments[:-1] + NEARLY * step, side="right") - 1, 0)
            self._means: list[float] = values[rows].tolist()
        else:
            areas = np.concatenate([[0.0], np.cumsum(np.diff(times) * (values[1:] + values[:-1]) / 2)])
            self._means = (np.diff(np.interp(moments, times, areas)) / step).tolist()

    def __call__(self, time: float) -> float:
        place = int((time - self._start) / self._step + NEARLY)
        return self._means[min(place, len(self._means) - 1)]


def sent_round(coupled: CoupledModel, step: float, own: Array, x: Array) -> tuple[Array, Array]:
    """δy (N + 1, p) and δx at the end, for d (N + 1, p) at the ends of macro steps, beginning with δx = `x`."""
    A, B, C, L = (np.asarray(part) for part in (coupled.A, coupled.B, coupled.C, coupled.L))
    S: Array = coupled.solve_loop(np.eye(len(C)))
    exact = discretise(LinearModel(A, B @ L @ S, C, S), Exact(), 1, step)
    n, p = len(A), len(C)
    states = Recursion(exact.A, exact.B[:, :p], np.eye(n), np.zeros((n, p)))
    between = np.vstack([(own[:-1] + own[1:]) / 2, np.zeros((1, p))])
    moved = states.rows(x, between)
    return moved @ C.T + own @ S.T, moved[-1]
