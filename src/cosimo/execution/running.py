"""Running a system: `run` makes the macro steps, records the rows, and keeps them whatever happens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from cosimo.core.errors import ConfigurationError, RunError, UnknownNameError
from cosimo.core.guarding import guarded, rescue_with
from cosimo.core.joint import joints
from cosimo.core.master import Master
from cosimo.core.result import Result, Warned
from cosimo.core.system import Inlet, System
from cosimo.execution.adaptive import Adaptive, run_adaptive
from cosimo.execution.adaptive.session import Span
from cosimo.execution.checkpoints import Checkpoint
from cosimo.execution.checkpoints.files import beside
from cosimo.execution.checkpoints.fingerprints import fingerprint
from cosimo.execution.checkpoints.keeper import Keeper
from cosimo.execution.checkpoints.requests import Request, Target, kept_apart
from cosimo.execution.checkpoints.self_test import require_states, saved_units
from cosimo.execution.engines import EngineOptions
from cosimo.execution.monitoring import Watch
from cosimo.execution.power_bonds import power_bonds
from cosimo.execution.recording import Output, Recorder, keeping_rows
from cosimo.execution.sessions import Progress, Session

MOST_STEPS = 2.0**53
"""Beyond this, time stamps t0 + k·h could no longer be told apart."""


def run(
    system: System,
    master: Master,
    *,
    stop: float,
    start: float = 0.0,
    record: Literal["outputs", "all"] = "outputs",
    output: Output | None = None,
    engine: EngineOptions | None = None,
    adaptive: Adaptive | None = None,
    progress: Progress | None = None,
    metadata: Mapping[str, Any] | None = None,
    power_pairs: Sequence[tuple[str, str]] = (),
    stop_on_divergence: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Run `system` under `master` from `start` to `stop`; one row per macro step, the initial one included.

    Rows stay in memory, or go to `output` while the run goes on (the result then holds no rows but all else), together
    with `metadata`, plain data that says where the run comes from. Errors while running carry the rows completed so far
    in `.result`. With `adaptive`, macro steps are as long as its tolerances allow, by the plain interpreter; `step` is
    recorded too.

    Runs are watched (monitoring.py): what is found is in the result's warnings and in `info["monitors"]`. `power_pairs`
    are pairs (input, output) of one unit whose product is the power that enters it, beside those that are detected.
    `stop_on_divergence` ends a run that is found to be unstable; `info["stopped_at"]` is then the time. A run also ends
    where a unit wants it to; `info["ended_by"]` is then the unit, `info["ended_at"]` the time. Within a macro step the
    last row has the outputs of this unit at that time, and those of all others from the macro step before.

    With a `checkpoint`, what the run needs to go on later (`formats.resuming.resume`) is written from time to time.
    """
    if record not in ("outputs", "all"):
        raise UnknownNameError("choice of what to record", record, ("outputs", "all"))
    if adaptive is not None:
        if stop_on_divergence:
            raise ConfigurationError("an adaptive run is not watched for growth; leave stop_on_divergence out.")
        if checkpoint is not None:
            raise ConfigurationError("an adaptive run cannot be resumed; leave the checkpoints or --adaptive out.")
        span = Span(start, stop, power_pairs)
        return _run_adaptive(system, master, adaptive, span, record, output, engine, progress, metadata)
    options = engine or EngineOptions()
    request = Request(start, stop, record, options, tuple(power_pairs), stop_on_divergence, dict(metadata or {}))
    return execute(system, master, request, output=output, progress=progress, checkpoint=checkpoint)


def execute(
    system: System,
    master: Master,
    request: Request,
    *,
    output: Output | None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    saved: Mapping[str, Any] | None = None,
) -> Result:
    """Run what is requested, from the beginning or from what a checkpoint `saved`.

    With `saved`, nothing on disk is touched before the macro step after it was made again and gave the same signals.
    """
    with guarded(getattr(output, "path", None)):
        return _execute(system, master, request, output, progress, checkpoint, saved)


def _execute(
    system: System,
    master: Master,
    request: Request,
    output: Output | None,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
    saved: Mapping[str, Any] | None,
) -> Result:
    steps, warnings = _count(request.start, request.stop, master.step)
    warnings += _cut(system, master, request.start)
    watch = _watch(system, request.engine, request.power_pairs, request.stop_on_divergence)
    names = system.outputs + (system.input_names if request.record == "all" else ())
    names += tuple(signal for joint in joints(system, master) for signal in joint.signals)
    info: dict[str, Any] = {"system": system.name, "master": master.name, "schedule": str(master), "step": master.step}
    info |= request.metadata
    if saved is None:
        require_states(system, master, request.start, saved_units(master), as_bytes=False)
    keeper = _keeper(system, master, request, output, checkpoint, saved)
    if keeper is not None:
        info["run"] = keeper.run
    with ExitStack() as stack:
        make = partial(Session, system, master, request.start, names, request.engine, watch, keeper)
        session = None
        if saved is not None:
            session = make()
            stack.callback(session.release)
            session.take_up(saved)
        recorder = output.open(names, info) if output else Recorder(None, names, metadata=info)
        stack.enter_context(recorder)
        if keeper is not None and saved is None:
            keeper.begin()
        recorder.reserve(steps + 1)
        session = session or make()
        rescue_with(partial(session.rescue, recorder))
        try:
            with keeping_rows(session, recorder), session.interrupts:
                session.run(steps, recorder, progress)
                recorder.flush()
                session.release()  # units may still crash when they are ended
        finally:
            with suppress(RunError):  # of two errors the first counts
                session.release()
            recorder.keep = keeper is not None and keeper.wait() is not None
        if session.stopped_at is not None or session.ended_by is not None:
            warnings = [warned for warned in warnings if warned.time <= session.reached]
        return session.close(recorder, warnings, complete=session.stopped_at is None, ended=True)


def _keeper(
    system: System,
    master: Master,
    request: Request,
    output: Output | None,
    checkpoint: Checkpoint | None,
    saved: Mapping[str, Any] | None,
) -> Keeper | None:
    """Who writes checkpoints; refuses before the run what would make them useless."""
    if checkpoint is None:
        return None
    target = Target.of(output)
    fixed = {
        "request": request.to_plain(),
        "output": target.to_plain(),
        "every": checkpoint.every,
        "fingerprint": fingerprint(system, master, request.start),
        "isolation": kept_apart(system),
        "run": uuid4().hex if saved is None else saved["run"],
    }
    if saved is None:
        require_states(system, master, request.start, system.units, as_bytes=True)
    return Keeper(Path(checkpoint.path or beside(target.path)), checkpoint.every, fixed, fresh=saved is None)


def _run_adaptive(
    system: System,
    master: Master,
    adaptive: Adaptive,
    span: Span,
    record: str,
    output: Output | None,
    engine: EngineOptions | None,
    progress: Progress | None,
    metadata: Mapping[str, Any] | None,
) -> Result:
    if engine is not None and (engine.parallel or engine.threads):
        raise ConfigurationError("an adaptive run steps its units one after the other; leave parallel and threads out.")
    if engine is not None and engine.allow_non_finite:
        raise ConfigurationError("errors of an adaptive step need finite values; leave allow_non_finite out.")
    if adaptive.kind == "doubling":
        require_states(system, master, span.start, system.units, as_bytes=False)
    span = replace(span, warnings=_cut(system, master, span.start))
    with guarded(getattr(output, "path", None)):
        return run_adaptive(
            system,
            master,
            adaptive,
            span,
            inputs=record == "all",
            output=output,
            progress=progress,
            metadata=metadata or {},
        )


def _watch(
    system: System, options: EngineOptions, pairs: Sequence[tuple[str, str]], stop_on_divergence: bool
) -> Watch | None:
    """What is watched, or nothing."""
    if options.monitors:
        return Watch(system, power_bonds(system, pairs), stop_on_divergence)
    if stop_on_divergence or pairs:
        raise ConfigurationError("power pairs and divergence need monitors, which are switched off; leave one out.")
    return None


def _cut(system: System, master: Master, start: float) -> list[Warned]:
    """A warning for inputs whose unit takes less of the polynomial than their coupling forms."""
    cut = [
        inlet.target
        for name, unit in system.units.items()
        for inlet in system.inlets[name]
        if _formed(master, name, inlet) > unit.input_degree
    ]
    if not cut:
        return []
    names = f"{', '.join(cut[:5])}{' …' if len(cut) > 5 else ''}"
    return [Warned(f"{names} cannot take the slope of the input: each step holds its value at the start", start)]


def _formed(master: Master, unit: str, inlet: Inlet) -> int:
    """The degree of the polynomial that the master forms for one input."""
    if inlet.link is None and inlet.source is None:
        return 0
    mixer = master.mixers.get(unit) if inlet.link is not None else None
    return master.coupling_of(inlet.target).degree if mixer is None else mixer.degree


def _count(start: float, stop: float, step: float) -> tuple[int, list[Warned]]:
    """How many macro steps fit, and a warning when they do not end at `stop`."""
    if not (math.isfinite(start) and math.isfinite(stop) and stop > start):
        raise ConfigurationError(f"the stop time ({stop:g}) must be a number greater than the start time ({start:g}).")
    ratio = (stop - start) / step
    if ratio > MOST_STEPS:
        raise ConfigurationError(f"the run has {ratio:.1e} macro steps of {step:g}; that cannot be meant.")
    steps = round(ratio)
    # The stop time itself is rounded, which counts when the start is late and the step short.
    rounding = 2 * math.ulp(max(abs(start), abs(stop))) / step
    if abs(ratio - steps) <= 1e-9 * max(1.0, ratio) + rounding and steps > 0:
        return steps, []
    steps = math.floor(ratio)
    if steps < 1:
        raise ConfigurationError(
            f"the macro step {step:g} is longer than the run from {start:g} to {stop:g}; shorten it, or stop later."
        )
    end = start + steps * step
    return steps, [Warned(f"the run ends here: {stop:g} is not a whole number of macro steps of {step:g} away", end)]
