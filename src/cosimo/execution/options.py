"""What a run takes besides the system and the master: made once, at the edge, and handed through as one value.

A new option is a field of a class in this file and its use. `run` takes it as a keyword (`RunOptions`), checkpoints
keep it, and the command line offers what is declared with `offered`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cosimo.core import dataclass
from cosimo.core.arguments import checked, duration
from cosimo.core.errors import CheckpointError, ConfigurationError

if TYPE_CHECKING:
    from cosimo.execution.recording import Position, Recorder

INTERVAL = 0.25
"""Seconds after which the kernel returns between two macro steps, so that rows are written and progress is seen."""
LONGEST_INTERVAL = 1e8  # seconds that the kernel's clock, which counts nanoseconds, can wait; years of them
MOST_THREADS = 2**20  # more than any machine has processors

Progress = Callable[[float, float], None]
"""Called from time to time with the simulated time reached and the stop time. If it has a method `watch`, that is
called before the first macro step with the run, whose `warnings_now()` and `busy()` can then be asked."""


def offered(default: Any, help: str, word: str = "", *, time: bool = False) -> Any:
    """A field that the command line offers as an option of its own name, or of `word`; `time`: it is in seconds."""
    return field(default=default, metadata={"help": help, "word": word, "time": time})


class Output(Protocol):
    """Where a run's rows shall go: makes the recorder once the names are known.

    `variables` are patterns of what is recorded, also of local variables and parameters; None: inputs and outputs.
    """

    @property
    def variables(self) -> Sequence[str] | None: ...

    def open(
        self,
        names: Sequence[str],
        metadata: Mapping[str, Any],
        position: Position | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> Recorder:
        """A recorder of these signals; raises before the first step what would stop it from writing.

        With a `position`, it goes on with the rows that an interrupted run left there.
        """


@partial(checked, owner="engine")
@dataclass(frozen=True)
class EngineOptions:
    """How a schedule is run.

    `kind`: "kernel" (compiled) or "reference" (plain Python, slow, for comparison). `parallel`: None steps the units of
    a stage in several threads where the first steps show that it pays, True always, False never; `threads` limits them
    (default: as many as there are processors). `monitors`: whether the run is watched (monitoring.py); off only to
    measure what that costs. `allow_non_finite`: NaN and infinity from a unit are warned of, once per output, and the
    run goes on. `interval`: seconds after which the kernel returns to write rows, 0: only at the end, which spares
    short runs a thread. `unit_times`: a thread looks every millisecond which unit the kernel is in, and
    `info["unit_times"]` tells for how many seconds each was at work (exchange counts to the unit that was called last).
    """

    kind: Literal["kernel", "reference"] = offered("kernel", "kernel (compiled) or reference (plain Python).", "engine")
    parallel: bool | None = offered(None, "Step units in parallel threads; default: where it is faster.")
    threads: int | None = None
    monitors: bool = True
    allow_non_finite: bool = offered(False, "Continue with a warning when a unit returns NaN or infinity.")
    interval: float = INTERVAL
    unit_times: bool = offered(False, "Measure for how long each unit is at work.")

    def __post_init__(self) -> None:
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise ConfigurationError(
                f"the number of threads must be between 1 and {MOST_THREADS}, not {self.threads}; leave it out to use "
                "one per processor."
            )
        if not 0 <= self.interval <= LONGEST_INTERVAL:
            raise ConfigurationError(
                f"the kernel returns after 0 to {LONGEST_INTERVAL:g} seconds, not {self.interval}; give an interval "
                f"between them."
            )


@partial(checked, owner="checkpoint")
@dataclass(frozen=True)
class Checkpoint:
    """Write a checkpoint to `path` (default: beside the output file) every so many seconds of wall time.

    The one before is kept as `<path>.earlier`. Both are removed when the run completes.
    """

    path: str | Path | None = None
    every: float = offered(
        60.0,
        "Write a checkpoint for 'cosimo resume' every so many seconds of wall time.",
        "checkpoint_every",
        time=True,
    )

    def __post_init__(self) -> None:
        if not (math.isfinite(self.every) and self.every >= 0):
            raise ConfigurationError(f"the interval between checkpoints must be 0 or more seconds, not {self.every}.")


@partial(checked, owner="adaptive")
@dataclass(frozen=True)
class Adaptive:
    """How macro steps are chosen: `kind` "energy" (nothing is repeated) or "doubling" (units must restore states).

    `relative` and `absolute` are the tolerances: the error of a signal in a step may be `relative` times the largest
    size it has had, plus `absolute`. The step of the master is the nominal one: with "energy", errors are those that a
    step of that length would have. `first` (at the start, and after external inputs jump), `shortest` and `longest`
    step are in seconds; by default 1/16, 1/128 and 16 times the nominal one, the first two with "energy" at most
    `relative` times it. `order` of the master: by default that of
    its couplings, which holds when the solvers inside the units are at least as good.

    >>> Adaptive("doubling", relative=1e-3).absolute
    1e-09
    """

    kind: Literal["energy", "doubling"] = offered(
        "energy",
        "Adapt the step size by energy (power residuals) or doubling (step doubling; restores states).",
        "adaptive",
    )
    relative: float = offered(
        1e-2, "adaptive: error per step, relative to the largest value so far.", "tolerance_relative"
    )
    absolute: float = offered(1e-9, "adaptive: added to the relative tolerance.", "tolerance_absolute")
    first: float | None = None
    shortest: float | None = offered(None, "adaptive: shortest step in seconds.", "shortest_step", time=True)
    longest: float | None = offered(None, "adaptive: longest step in seconds.", "longest_step", time=True)
    order: int | None = None

    def __post_init__(self) -> None:
        for name in ("relative", "first", "shortest", "longest"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigurationError(f"'{name}' of an adaptive step must be a positive number, not {value}.")
        if not (math.isfinite(self.absolute) and self.absolute >= 0):
            raise ConfigurationError(f"'absolute' of an adaptive step must be 0 or positive, not {self.absolute}.")
        if self.order is not None and self.order < 1:
            raise ConfigurationError(f"the order of a master is a whole number of 1 or more, not {self.order}.")
        given = [(name, getattr(self, name)) for name in ("shortest", "first", "longest")]
        known = [(name, value) for name, value in given if value is not None]
        for (small, less), (large, more) in pairwise(known):
            if less > more:
                raise ConfigurationError(
                    f"the {small} step ({less:g} s) is longer than the {large} one ({more:g} s); swap them."
                )

    def to_dict(self) -> dict[str, object]:
        """Plain data for the result."""
        return asdict(self)


@partial(checked, owner="run")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The keywords of `run`.

    From `start` to `stop`, in seconds. `record`: the outputs, or the inputs as well. Rows stay in memory, or go to
    `output` while the run goes on (the result then holds no rows but all else), together with `metadata`, plain data
    that says where the run comes from. `engine`: how the schedule is executed. With `adaptive`, macro steps are as long
    as its tolerances allow; `step` is recorded too. `progress` is called from time to time.

    Runs are watched (monitoring.py): what is found is in the result's warnings and in `info["monitors"]`. `power_pairs`
    are pairs (input, output) of one unit whose product is the power that enters it, beside those that are detected.
    `stop_on_divergence` ends a run that is found to be unstable; `info["stopped_at"]` is then the time.

    With a `checkpoint`, what the run needs to go on later (`formats.resuming.resume`) is written from time to time.
    """

    stop: float
    start: float = 0.0
    record: Literal["outputs", "all"] = "outputs"
    output: Output | None = None
    engine: EngineOptions = EngineOptions()
    adaptive: Adaptive | None = None
    progress: Progress | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    power_pairs: Sequence[tuple[str, str]] = ()
    stop_on_divergence: bool = offered(False, "Stop a run that becomes unstable.")
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        duration(self.start, self.stop)
        if self.adaptive is not None:
            self._require_adaptive()
        elif not self.engine.monitors and (self.stop_on_divergence or self.power_pairs):
            raise ConfigurationError(
                "power pairs and stop_on_divergence need the monitors, which are switched off; leave one out."
            )

    def _require_adaptive(self) -> None:
        """Refuse what a run with an adaptive step does not have."""
        if self.stop_on_divergence:
            raise ConfigurationError("an adaptive run has no divergence monitor; leave stop_on_divergence out.")
        if self.engine.parallel or self.engine.threads:
            raise ConfigurationError(
                "an adaptive run steps its units one after the other; leave parallel and threads out."
            )
        if self.engine.unit_times:
            raise ConfigurationError("an adaptive run does not measure its units; leave unit_times out.")
        if self.engine.allow_non_finite:
            raise ConfigurationError("adaptive error control needs finite values; leave allow_non_finite out.")

    @property
    def path(self) -> Path | None:
        """The file that rows go to; None where they stay in memory."""
        path = getattr(self.output, "path", None)
        return None if path is None else Path(path)

    # ---- as a checkpoint keeps them --------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """Numbers, texts, lists and dicts; what lives only as long as the process is left out (`PASSING`)."""
        kept = {name: getattr(self, name) for name in KEPT}
        kept |= {"engine": asdict(self.engine), "power_pairs": [list(pair) for pair in self.power_pairs]}
        kept["adaptive"] = None if self.adaptive is None else self.adaptive.to_dict()
        return {**kept, "metadata": json.dumps(self.metadata, default=as_plain)}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any], path: object, **passing: Any) -> RunOptions:
        """What `to_plain` gave, with what it left out; `path` is the checkpoint that has it."""
        try:
            if stored["engine"].keys() != {option.name for option in fields(EngineOptions)}:
                raise TypeError(f"its engine has the options {', '.join(stored['engine'])}")
            engine = EngineOptions(**stored["engine"])
            adaptive = None if stored["adaptive"] is None else Adaptive(**stored["adaptive"])
            pairs = tuple((str(into), str(out)) for into, out in stored["power_pairs"])
            metadata = json.loads(stored["metadata"])
            if not isinstance(metadata, dict):
                raise TypeError(f"its metadata are {metadata!r:.40}")
            made = {"engine": engine, "adaptive": adaptive, "power_pairs": pairs, "metadata": metadata}
            return cls(**{**stored, **made, **passing})
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, ConfigurationError) as problem:
            raise CheckpointError(f"'{path}' does not record what was run: {str(problem).rstrip('.')}.") from None


PASSING = ("output", "progress", "checkpoint")
"""Options that a checkpoint keeps in another form, or not at all."""
KEPT = tuple(option.name for option in fields(RunOptions) if option.name not in PASSING)


def as_plain(value: Any) -> Any:
    """NumPy's arrays and numbers, and paths, as JSON knows them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r} is not plain data")
