"""FMUs that need more than calls of a co-simulation FMU of FMI 2.0 or 3.0: the libraries that make such ones of them.

A library of ours (`src/model_exchange`) has the functions of a co-simulation FMU and calls those of the FMU: for
states, derivatives and events in model exchange, under their names in FMI 1.0, or with the callback that an FMU uses
to ask for inputs within a step (intermediate update of FMI 3.0). It is loaded in place of the FMU's own, in this
process or in a worker, so that all else (the kernel, isolation, rollback, checkpoints, identification) sees an ordinary
FMU. CVODE comes from the SUNDIALS libraries in the installed FMPy.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import platform
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.formatting import counted
from cosimo.units.fmi.isolation import part

if TYPE_CHECKING:
    from cosimo.units.fmi.fmu import Fmu
    from cosimo.units.fmi.variables import VariableInfo

CO_SIMULATION, MODEL_EXCHANGE = "co-simulation", "model-exchange"
KINDS = (CO_SIMULATION, MODEL_EXCHANGE)
"""What an FMU can be for."""
CVODE = "cvode"
SOLVERS = (CVODE, "euler", "rk4")
TOLERANCE = 1e-6
"""The relative tolerance of CVODE where nobody gives one: errors of the units stay far below the target of 1 %."""


@checked
@dataclass(frozen=True)
class Solver:
    """How a model-exchange FMU is integrated between communication points.

    `name`: "cvode" (variable order and step, stiff systems), "euler" or "rk4" (fixed steps). `relative_tolerance` is
    for CVODE. Fixed-step solvers make `micro_steps` steps in each macro step, or steps of at most `micro_step` seconds.
    """

    name: str = CVODE
    relative_tolerance: float | None = None
    micro_steps: int | None = None
    micro_step: float | None = None

    def __post_init__(self) -> None:
        if self.name not in SOLVERS:
            raise UnknownNameError("solver", self.name, SOLVERS)
        tolerance = self.relative_tolerance
        if tolerance is not None and not (math.isfinite(tolerance) and 0 < tolerance < 1):
            raise ConfigurationError(
                f"the relative tolerance of a solver is {tolerance:g}; give a number between 0 and 1, such as 1e-6."
            )
        if self.micro_steps is not None and self.micro_steps < 1:
            raise ConfigurationError(f"a solver has micro-steps = {self.micro_steps}; give 1 or more.")
        if self.micro_step is not None and not (math.isfinite(self.micro_step) and self.micro_step > 0):
            raise ConfigurationError(f"the micro step of a solver is {self.micro_step:g}; give a positive time in s.")
        if self.micro_steps is not None and self.micro_step is not None:
            raise ConfigurationError("a solver takes micro-steps or micro-step, not both; leave one out.")
        fixed = self.micro_steps is not None or self.micro_step is not None
        if self.name == CVODE and fixed:
            raise ConfigurationError("CVODE chooses its steps itself; leave micro steps out, or choose euler or rk4.")
        if self.name != CVODE and tolerance is not None:
            raise ConfigurationError(
                f"'{self.name}' has fixed steps and no tolerance; leave the relative tolerance out, or choose cvode."
            )

    def tolerance(self, usual: float | None = None) -> float:
        """The relative tolerance: its own, the `usual` one of an experiment, or ours."""
        return self.relative_tolerance or usual or TOLERANCE

    def micro_steps_in(self, duration: float) -> int:
        """How many steps a fixed-step solver makes in a macro step; as compiled code counts them."""
        if self.micro_step is None:
            return self.micro_steps or 1
        return max(1, math.ceil(duration / self.micro_step * (1.0 - 1e-12)))

    def __str__(self) -> str:
        if self.name == CVODE:
            return f"cvode, relative tolerance {self.tolerance():g}"
        if self.micro_step is not None:
            return f"{self.name}, micro step {self.micro_step:g} s"
        return f"{self.name}, {counted(self.micro_steps or 1, 'micro step')} per macro step"


def sundials() -> tuple[Path, Path]:
    """The libraries of SUNDIALS that come with FMPy: its core and CVODE."""
    found = importlib.util.find_spec("fmpy")
    assert found is not None
    assert found.origin is not None
    machine = "aarch64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"
    system, ending = {"darwin": ("darwin", "dylib"), "win32": ("windows", "dll")}.get(sys.platform, ("linux", "so"))
    folder = Path(found.origin).parent / "sundials" / f"{machine}-{system}"
    return folder / f"sundials_core.{ending}", folder / f"sundials_cvode.{ending}"


@dataclass(frozen=True)
class Adapter:
    """A library that is called in place of an FMU's own, what it must know, and the folders it reads in a sandbox."""

    name: str
    settings: str
    readable: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The compiled library."""
        return part(self.name)

    def library(self) -> Any:
        """The same, loaded."""
        return _library(self.path)


@cache
def _library(path: Path) -> Any:
    found = ctypes.CDLL(str(path))
    found.cosimoAdapterUse.restype = ctypes.c_char_p
    found.cosimoAdapterUse.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    return found


def adapter_for(unit: Fmu) -> Adapter:
    """The library that an FMU which cannot be called as it is (`Fmu.adapter`) is called through."""
    if unit.fmi_version == "1.0":
        return Adapter("fmi1.so", f"identifier={unit.model_identifier}\n")
    if unit.capabilities.intermediate_update:
        asked = [info for info, followed in zip(unit.input_infos, unit.followed_inputs, strict=True) if followed]
        return Adapter("intermediate.so", "".join(f"{line}\n" for line in _inputs(unit, asked)))
    assert unit.solver is not None
    folders = {str(found.parent) for found in sundials()}
    return Adapter("model_exchange.so", _settings(unit, unit.solver, unit.experiment.tolerance), tuple(folders))


def _settings(unit: Fmu, solver: Solver, tolerance: float | None) -> str:
    """What the library with solvers must know of a unit, as lines."""
    core, cvode = sundials()
    states, _ = unit.continuous_states()
    lines = [
        f"version={unit.major_version}",
        f"solver={solver.name}",
        f"tolerance={solver.tolerance(tolerance)!r}",
        f"micro-steps={solver.micro_steps or 1}",
        f"micro-step={solver.micro_step or 0.0!r}",
        f"states={unit.state_count}",
        f"indicators={unit.event_indicators}",
        f"completed={int(unit.needs_completed_steps)}",
        f"core={core}",
        f"cvode={cvode}",
        *(f"state={name}" for name in states),
        *(f"state-reference={unit.variables[name].value_reference}" for name in _scalars(unit, states)),
    ]
    for clock in unit.clocks.timed:
        aperiodic = int(clock.aperiodic)
        lines.append(f"clock={clock.value_reference} {aperiodic} {clock.interval!r} {clock.first!r} {clock.name}")
    lines += _inputs(unit, [info for info in unit.input_infos if info.type == "Float64"])
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"


def _inputs(unit: Fmu, infos: Sequence[VariableInfo]) -> Iterator[str]:
    """A line for each of the variables, which may be arrays."""
    for owner in dict.fromkeys(unit.owners[info.name] for info in infos):
        elements = unit.elements_of(owner)
        first = unit.variables[elements[0]]
        yield f"input={first.value_reference}:{len(elements)}:{'c' if first.continuous else 'd'}"


def _scalars(unit: Fmu, states: Sequence[str]) -> list[str]:
    """One name of each variable that has states; none where states are only some elements of an array."""
    return [name for name in states if not unit.variables[name].element]
