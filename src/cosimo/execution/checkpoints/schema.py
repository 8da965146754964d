"""What the entries of a checkpoint must be. A checksum that fits says that nothing was lost, not that it makes sense.

What units, engines and couplings remember is theirs to check, when it is put back; so are the values of options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cosimo.core.errors import CheckpointError
from cosimo.execution.engines import HALVINGS
from cosimo.execution.options import KEPT
from cosimo.units.fmi.isolation import Isolation

Whole = Annotated[int, Field(ge=0, le=2**53)]  # larger ones are counts of nothing
Finite = Annotated[float, Field(allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _with(names: Iterable[str]) -> AfterValidator:
    """Exactly these entries."""
    known = set(names)

    def check(value: dict[str, Any]) -> dict[str, Any]:
        if value.keys() != known:
            raise ValueError("other entries")
        return value

    return AfterValidator(check)


class _Entries(BaseModel):
    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True)


class _Output(_Entries):
    path: str
    variables: list[str] | None
    every: Annotated[int, Field(gt=0, le=2**53)]
    flush_interval: Duration


class _Fingerprint(_Entries):
    units: dict[str, str]
    inputs: dict[str, str]
    connections: str
    master: str


class _Position(_Entries):
    taken: Whole
    written: Whole
    run: str


class _Iterations(_Entries):
    count: Whole
    sweeps: Whole
    failed: Whole
    first_failed: Whole
    worst: float
    first_residual: float


class _Memory(_Entries):
    level: Annotated[int, Field(ge=0, le=HALVINGS)] = 0  # how often a macro step is halved
    rollbacks: Whole = 0


class _Signals(_Entries):
    outputs: dict[str, np.ndarray]
    inputs: dict[str, np.ndarray]
    memories: np.ndarray


class Form(_Entries):
    """All entries of a checkpoint but its versions."""

    request: Annotated[dict[str, Any], _with(KEPT)]
    output: _Output
    folder: str
    every: Duration
    fingerprint: _Fingerprint
    isolation: dict[str, Annotated[dict[str, Any], _with(field.name for field in fields(Isolation))]]
    run: str
    step: Whole
    position: _Position
    iterations: _Iterations
    ranges: dict[str, tuple[Finite, float, Whole]]
    stepping: Duration
    resumed_at: list[Finite]
    careful: bool
    memory: _Memory
    after: _Signals


def require_form(saved: Mapping[str, Any], path: object) -> None:
    """Refuse a checkpoint with an entry that is missing or is not what it must be."""
    try:
        form = Form.model_validate(dict(saved))
    except ValidationError as found:
        first = found.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise CheckpointError(f"'{path}' is not complete: '{name}' is missing; start anew.") from None
        raise _damaged(name, first["input"], path) from None
    if form.position.taken <= form.step:
        raise _damaged("position.taken", form.position.taken, path)
    if form.position.written != -(-form.position.taken // form.output.every):
        raise _damaged("position.written", form.position.written, path)


def _damaged(name: str, value: Any, path: object) -> CheckpointError:
    return CheckpointError(f"'{path}' is damaged: its entry '{name}' cannot be {value!r:.40}; start anew.")
