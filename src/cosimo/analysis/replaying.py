"""Whether a linear model holds over the whole motion: the unit itself is led through what the model predicts for it.

A model found with small pulses says nothing of limits, friction and geometry that large motions meet. Real unit and
model are both given the inputs of the coupled linear system, held over each macro step; how far their outputs come
apart is what the linear picture leaves out. It costs one unit step per macro step.
"""

from __future__ import annotations

import numpy as np

from cosimo.analysis.identification import Identified, OperatingPoint
from cosimo.analysis.identification.bench import Bench, TrialFailed
from cosimo.analysis.identification.realisation import Realisation
from cosimo.analysis.local import LocalSystem
from cosimo.analysis.truth import undivided
from cosimo.core.arrays import Array
from cosimo.core.system import System

MOST = 1_000
"""Macro steps that are replayed at most."""
BOUND = 0.05
"""How far outputs may come apart, relative to their size, for the linear picture to hold."""


def departures(system: System, local: LocalSystem, *, start: float, horizon: float) -> dict[str, float]:
    """Per unit that is not known to be linear: the largest departure of its outputs from its model, relative.

    Infinite where the unit fails under these inputs.
    """
    steps = int(min(max(1, round(horizon / local.step)), MOST))
    rows = undivided(local, step=local.step, start=start, steps=steps)
    if not np.isfinite(rows).all():
        # It grows beyond all bounds by itself: follow it as long as there are numbers.
        steps = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0]) - 1
    found = {}
    for name, identified in local.units.items():
        if identified.means != "known" and steps > 0:
            inputs = _inputs(system, name, rows[: steps + 1], start, local.step)
            found[name] = _departure(identified, inputs, start, local.step)
    return found


def _inputs(system: System, name: str, rows: Array, start: float, step: float) -> Array:
    """The inputs of a unit over every macro step: means of the signals at its ends."""
    places = {output: i for i, output in enumerate(system.outputs)}
    columns = []
    for index, inlet in enumerate(system.inlets[name]):
        if inlet.link is not None:
            connection = inlet.link.connection
            values = connection.gain * rows[:, places[connection.source]] + connection.offset
        elif inlet.source is not None:
            values = np.array([inlet.source(start + k * step) for k in range(len(rows))], dtype=float)
        else:
            values = np.full(len(rows), inlet.start)
        whole = system.units[name].inputs[index] in system.units[name].discrete_inputs
        columns.append(values[:-1] if whole else (values[:-1] + values[1:]) / 2)
    return np.array(columns).reshape(len(columns), len(rows) - 1).T


def _departure(identified: Identified, inputs: Array, start: float, step: float) -> float:
    unit, m = identified.source, identified.D.shape[1]
    first = dict(zip(unit.inputs, inputs[0].tolist(), strict=True))
    deviations = np.zeros((len(inputs), unit.input_degree + 1, m))
    deviations[:, 0] = inputs - inputs[0]
    bench = Bench(unit, step, OperatingPoint(start, start, first), restore=False)
    try:
        theirs = bench.trial().run(deviations)
    except TrialFailed:
        return np.inf
    finally:
        bench.close()
    model = Realisation(identified.model.A, identified.model.B[:, :m], identified.C, identified.D)
    ours = model.answer(inputs + identified.input_offset, identified.initial) + identified.output_offset
    ours[:, bench.constant] = theirs[:, bench.constant]
    size = np.abs(theirs).max(axis=0, initial=0.0)
    difference = np.abs(ours - theirs).max(axis=0, initial=0.0)
    shares = np.divide(difference, size, out=(difference > 0).astype(float), where=size > 0)
    worst = float(shares.max(initial=0.0))
    return worst if np.isfinite(worst) else np.inf
