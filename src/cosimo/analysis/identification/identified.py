"""What identification returns: a discrete linear model, how good it is, and the unit that the algebra can use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cosimo.analysis.identification.pulses import Manner
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import IdentificationError
from cosimo.core.quantities import Conversion
from cosimo.core.unit import DiscreteModel, LinearModel, Unit
from cosimo.units.integrators import Exact, discretise
from cosimo.units.linear import LinearUnit, Names

Means = Literal["known", "derivatives", "differences", "experiments"]
SAME = 1e-12
"""Two steps that differ by less than this share are the same."""


@dataclass(frozen=True, eq=False)
class Identified:
    """x_{k+1} = A x_k + Σ_j B_j c_j,k, y_k = C x_k + D (u_k + input_offset) + output_offset, x_0 = `initial`.

    `model` holds A and [B_0 … B_q] for the powers of the input that the unit takes; inputs are absolute, so that
    `initial` and the offsets (0 where the unit is linear and not merely affine) give the free motion of the unit at its
    operating point, where the inputs are `held`, with the relative error `free`. Columns of discrete inputs and rows
    of discrete outputs are 0.

    `fit`, `linear` and `invariant` are relative errors, 0 at best: of predicting an answer to random inputs that was
    not used; between two amplitudes and two signs; between a pulse now and later. `valid` says whether all three are
    within bounds; `reasons` what was found, whether it makes the model invalid or not. `continuous` is a continuous
    model with this one-step map (by derivatives: of the unit itself), or None; `generator` the one by which the map is
    converted to other steps. `manner` is what other steps need not find out again, None where they must.
    """

    source: Unit = field(repr=False)
    step: float
    time: float
    model: DiscreteModel
    C: Array
    D: Array
    initial: Array
    held: Array
    input_offset: Array
    output_offset: Array
    continuous: LinearModel | None
    means: Means
    unit_steps: int
    fit: float
    linear: float
    invariant: float
    free: float
    amplitudes: Array
    valid: bool
    reasons: tuple[str, ...]
    generator: LinearModel | None = field(default=None, repr=False)
    again: Callable[[float], Identified] | None = field(default=None, repr=False)
    manner: Manner | None = field(default=None, repr=False)

    @property
    def order(self) -> int:
        """The number of states."""
        return len(self.initial)

    @property
    def poles(self) -> ComplexArray:
        """The eigenvalues of the one-step map."""
        values: ComplexArray = np.linalg.eigvals(self.model.A).astype(complex)
        return values

    @property
    def deviation(self) -> Array:
        """`initial` from the rest position under the inputs held at the operating point: ξ_k = A^k ξ_0 moves freely.

        Where the unit has none (it drifts), the nearest there is.
        """
        n, m = self.order, self.D.shape[1]
        push = self.model.B[:, :m] @ (self.held + self.input_offset)
        rest: Array = self.initial - np.linalg.lstsq(np.eye(n) - self.model.A, push, rcond=1e-10)[0]
        return rest

    def at(self, step: float) -> Identified:
        """The same unit identified at another macro step, by new trials: its solver may behave differently there."""
        if self.again is None:
            raise IdentificationError(
                "this model was not identified from a unit; identify one at the step that is wanted."
            )
        return self.again(step)

    def unit(self, *, stand_in: bool = False) -> IdentifiedUnit:
        """The model as a unit for the algebra.

        Its `discrete(step)` is the identified map; other durations are converted by the continuous model, which is
        exact if the unit's own solver is, or if its micro step does not depend on the macro step (`at` identifies
        anew instead). Without a continuous model both are refused. `stand_in` then takes (A − I) / h for it, so that
        Φ at this step, and with it stability, can be computed; comparisons with the exact coupled system are then
        only of first order.
        """
        model, generator = self.continuous, self.generator
        if model is None:
            if not stand_in:
                raise IdentificationError(
                    f"the unit identified at the step {self.step:g} has no continuous model "
                    f"({'; '.join(self.reasons)}); identify it at a shorter step, or ask for unit(stand_in=True)."
                )
            n, m = self.order, self.D.shape[1]
            rate = (self.model.A - np.eye(n)) / self.step
            model = LinearModel(rate, self.model.B[:, :m] / self.step, self.C, self.D)
        return IdentifiedUnit(self, model, generator)

    def __str__(self) -> str:
        word = "valid" if self.valid else "NOT VALID"
        lines = [
            f"{self.order} states at the step {self.step:g} s, t = {self.time:g} s, by {self.means}: {word}",
            f"  fit {self.fit:.2g}, linear {self.linear:.2g}, invariant {self.invariant:.2g}, free motion "
            f"{self.free:.2g}; {self.unit_steps} unit steps",
        ]
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])


class IdentifiedUnit(LinearUnit):
    """A linear unit with the identified one-step map, the names of the unit it came from, and its initial state."""

    def __init__(self, identified: Identified, model: LinearModel, generator: LinearModel | None) -> None:
        source = identified.source
        start = {name: value for name, value in source.start.items() if name in source.inputs}
        super().__init__(model, identified.initial, Exact(), 1, Names(source.inputs, source.outputs, start))
        self.identified, self.input_degree = identified, source.input_degree
        self._generator = generator

    @property
    def discrete_inputs(self) -> tuple[str, ...]:
        """Those of the unit it came from."""
        return self.identified.source.discrete_inputs

    def conversion(self, output: int, taker: Unit, variable: int) -> Conversion:
        """As between the units that were identified."""
        other = taker.identified.source if isinstance(taker, IdentifiedUnit) else taker
        return self.identified.source.conversion(output, other, variable)

    def discrete(self, duration: float | Array) -> DiscreteModel:
        """The identified map at its step; otherwise that of the continuous model over `duration`."""
        step, found = self.identified.step, self.identified.model
        if self.identified.means == "known":
            return self.identified.source.discrete(duration)
        durations = np.asarray(duration, dtype=float)
        same = np.abs(durations - step) <= SAME * step
        columns = found.B.shape[-1]
        A = np.broadcast_to(found.A, (*durations.shape, *found.A.shape))
        B = np.broadcast_to(found.B, (*durations.shape, *found.B.shape))
        if not same.all():
            if self._generator is None:
                other = float(durations[~same].flat[0]) if durations.ndim else float(durations)
                raise IdentificationError(
                    f"the unit was identified at the step {step:g} and has no continuous model to convert it to "
                    f"{other:g}; identify it there with Identified.at({other:g})."
                )
            converted = discretise(self._generator, Exact(), 1, durations)
            keep = same[..., None, None]
            A, B = np.where(keep, A, converted.A), np.where(keep, B, converted.B[..., :columns])
        return DiscreteModel(A, B)
