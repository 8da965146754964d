"""Running a system: `run` makes the macro steps, records the rows, and keeps them whatever happens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Protocol
from uuid import uuid4

from cosimo.core.arguments import checked, showing
from cosimo.core.errors import ConfigurationError, RunError
from cosimo.core.guarding import guarded, rescue_with
from cosimo.core.master import Master, formed_degree
from cosimo.core.result import Result, Warned
from cosimo.core.system import System
from cosimo.execution.checkpoints import CheckpointWriter, beside, require_states
from cosimo.execution.checkpoints.fingerprints import fingerprint
from cosimo.execution.options import RunOptions
from cosimo.execution.recording import Position, open_recorder, recorded_texts
from cosimo.execution.session import EqualSteps, Session, recorded_names, watch_of
from cosimo.units.fmi import first_trials, fmus

MOST_STEPS = 2.0**53  # beyond this, time stamps t0 + k·h could no longer be told apart
Keywords = ParamSpec("Keywords")


class _Run(Protocol[Keywords]):
    """What `run` is: a system, a master, and the keywords of its options."""

    def __call__(self, system: System, master: Master, *given: Keywords.args, **keywords: Keywords.kwargs) -> Result:
        """See `run`."""


def _taking_options(options: Callable[Keywords, RunOptions]) -> _Run[Keywords]:
    """`run` with the fields of the options as its keywords: they are written once."""

    @checked
    def run(system: System, master: Master, *given: Keywords.args, **keywords: Keywords.kwargs) -> Result:
        """Run `system` under `master`, with the keywords of `RunOptions`; one row per macro step, the first included.

        Errors while running carry the rows completed so far in `.result`. A unit may end the run; `info["ended_by"]`
        is then the unit, `info["ended_at"]` the time. Within a macro step the last row has the outputs of this unit
        at that time, and those of all others from the macro step before.
        """
        return execute(system, master, options(*given, **keywords))

    run.__qualname__ = "run"
    return showing(options)(run)


run = _taking_options(RunOptions)


def execute(system: System, master: Master, options: RunOptions, saved: Mapping[str, Any] | None = None) -> Result:
    """Run with these options, from the beginning or from what a checkpoint `saved`.

    With `saved`, nothing on disk is touched before the macro step after it was made again and gave the same signals.
    """
    system = observed(system, options)
    moved = fmus(system.units)
    fixed = [name for name in system.units if name not in moved]
    with guarded(options.path, fixed), first_trials(system.units, options.start, master.durations):
        plan = _plan(system, master, options)
        if saved is None and plan.saved:
            require_states(system, master, options.start, plan.saved, as_bytes=False)
        return _execute(system, master, options, plan, saved)


class _Plan(NamedTuple):
    """How a run makes its macro steps: what begins it, the units whose states it saves, what it records and tells."""

    begin: Callable[[CheckpointWriter | None], Session]
    saved: Iterable[str]
    names: tuple[str, ...]
    rows: int  # 0: not known before
    info: dict[str, Any]
    warnings: list[Warned]


def _plan(system: System, master: Master, options: RunOptions) -> _Plan:
    names = recorded_names(system, master, options)
    if options.adaptive is not None:
        from cosimo.execution.adaptive import STEP, AdaptiveSteps, plan_of

        adaptive = partial(AdaptiveSteps, system, master, options, plan_of(system, master, options))
        saved = tuple(system.units) if options.adaptive.kind == "doubling" else ()
        info: dict[str, Any] = {"adaptive": options.adaptive.to_dict()}
        return _Plan(adaptive, saved, (*names, STEP), 0, info, _known_before(system, master, options))
    steps, warnings = _count(options.start, options.stop, master.step)
    warnings += _known_before(system, master, options)
    require_divisible(system, master)
    equal = partial(EqualSteps, system, master, options, steps, watch_of(system, options))
    return _Plan(equal, master.saved, names, steps + 1, {}, warnings)


def _execute(
    system: System, master: Master, options: RunOptions, plan: _Plan, saved: Mapping[str, Any] | None
) -> Result:
    writer, warnings = _checkpoint_writer(system, master, options, saved), plan.warnings
    info = plan.info if writer is None else {**plan.info, "run": writer.run}
    with ExitStack() as stack:
        session, position = None, None
        if saved is not None:
            session, position = plan.begin(writer), Position(**saved["position"])
            stack.callback(session.release)
            session.take_up(saved)
        recorder = stack.enter_context(open_recorder(system, master, options, plan.names, info, position))
        if writer is not None and saved is None:
            writer.begin()
        recorder.reserve(plan.rows)
        session = session or plan.begin(writer)
        rescue_with(partial(session.rescue, recorder))
        try:
            with session.keeping_rows(recorder), session.interrupts:
                session.run(recorder)
                recorder.flush()
                session.release()  # units may still crash when they are ended
        finally:
            with suppress(RunError):  # of two errors the first counts
                session.release()
            recorder.keep = writer is not None and writer.wait() is not None
        if session.stopped_at is not None or session.ended_by is not None:
            warnings = [warned for warned in warnings if warned.time <= session.reached]
        return session.close(recorder, warnings, complete=session.stopped_at is None, ended=True)


def _checkpoint_writer(
    system: System, master: Master, options: RunOptions, saved: Mapping[str, Any] | None
) -> CheckpointWriter | None:
    """What writes checkpoints; refuses before the run what would make them useless."""
    checkpoint, output = options.checkpoint, options.output
    if checkpoint is None:
        return None
    if options.path is None:
        raise ConfigurationError("checkpoints need an output file for the rows; give one as well.")
    path = options.path.absolute()
    rows: dict[str, Any] = asdict(output)  # type: ignore[call-overload]
    variables = rows["variables"]
    fixed = {
        "request": options.to_plain(),
        "output": {**rows, "path": str(path), "variables": None if variables is None else list(variables)},
        "every": checkpoint.every,
        "fingerprint": fingerprint(system, master, options.start),
        "isolation": _isolation(system),
        "run": uuid4().hex if saved is None else saved["run"],
    }
    if saved is None:
        require_states(system, master, options.start, system.units, as_bytes=True)
    return CheckpointWriter(Path(checkpoint.path or beside(path)), checkpoint.every, fixed, fresh=saved is None)


def _isolation(system: System) -> dict[str, dict[str, Any]]:
    """The units that live in processes of their own, and how."""
    isolations = {name: unit.isolation for name, unit in fmus(system.units).items()}
    plain = {name: asdict(isolation) for name, isolation in isolations.items() if isolation is not None}
    for fields in plain.values():
        fields["reason"] = ""  # a notice of the run that was interrupted
        fields["log"] = None if fields["log"] is None else str(Path(fields["log"]).absolute())
    return plain


def observed(system: System, options: RunOptions) -> System:
    """The system, with those local variables and parameters as outputs that shall be recorded."""
    return system if options.output is None else system.observing(options.output.variables or ())


def _known_before(system: System, master: Master, options: RunOptions) -> list[Warned]:
    """What the user should know before the first step."""
    warned = _unused_slopes(system, master, options.start)
    if system.clock_links and options.engine.kind == "kernel":
        said = "units are connected by clocks: macro steps end at events and are made in plain Python"
        warned.append(Warned(said, options.start))
    if not recorded_names(system, master, options) and not recorded_texts(system):
        further = system.observable
        remedy = f"; record local variables with --variable, such as '{further[0]}'" if further else ""
        warned.append(Warned(f"only the time is recorded: no unit has outputs{remedy}", options.start))
    return warned


def require_divisible(system: System, master: Master) -> None:
    """Refuse masters whose macro step cannot end at the events of units that are connected by clocks."""
    if not system.clock_links:
        return
    source, target = (".".join(end) for end in system.clock_links[0])
    wrong = "compensates its inputs" if master.mixers else ""
    for inlet in (inlet for inlets in system.inlets.values() for inlet in inlets):
        coupling = master.coupling_of(inlet.target)
        if (inlet.link or inlet.source) and not coupling.follows_step_lengths:
            wrong = f"has the coupling {coupling} at {inlet.target}"
    if wrong:
        raise ConfigurationError(
            f"the clocks {source} → {target} end macro steps at events, and master '{master.name}' {wrong}, which is "
            "set up for one macro step; use Hold(0), Hold(1) or Hold(2), and no compensation."
        )


def _unused_slopes(system: System, master: Master, start: float) -> list[Warned]:
    """A warning for inputs whose unit takes less of the polynomial than their coupling forms."""
    cut = [
        inlet.target
        for name, unit in system.units.items()
        for inlet in system.inlets[name]
        if formed_degree(master, name, inlet) > unit.input_degree
    ]
    if not cut:
        return []
    names = f"{', '.join(cut[:5])}{' …' if len(cut) > 5 else ''}"
    return [
        Warned(f"{names} does not support input derivatives: the input is held during each step (zero order)", start)
    ]


def _count(start: float, stop: float, step: float) -> tuple[int, list[Warned]]:
    """How many macro steps fit, and a warning when they do not end at `stop`."""
    ratio = (stop - start) / step
    if ratio > MOST_STEPS:
        raise ConfigurationError(
            f"the run has {ratio:.1e} macro steps of {step:g}; check the step size and the stop time."
        )
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
    return steps, [
        Warned(f"the run ends here: the stop time {stop:g} s is not a multiple of the step size {step:g} s", end)
    ]
