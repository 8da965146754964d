"""The options of `tune`, gathered into the objects they describe: the space that is searched, and how."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cosimo.cli.application import words
from cosimo.cli.arguments import MANY
from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.core.system import System
    from cosimo.tuning import Settings, Space
    from cosimo.tuning.space import Steps


def assembled(**builders: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb the options of all `builders`, and hand it what each makes of its own, by name."""

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in _parameters(verb) if p.name not in builders]
        parts = {name: _parameters(build) for name, build in builders.items()}

        @functools.wraps(verb)
        def wrapped(**given: Any) -> None:
            made = {
                name: build(**{part.name: given.pop(part.name) for part in parts[name]})
                for name, build in builders.items()
            }
            verb(**made, **given)

        # The verb's last parameter, `--json`, stays last.
        every = [*own[:1], *(part for some in parts.values() for part in some), *own[1:]]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in every]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        del wrapped.__wrapped__
        return wrapped

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """With annotations that are objects; those of what the builders make exist only for the type checker."""
    return [
        p.replace(annotation=eval(p.annotation, vars(inspect.getmodule(function))))
        if isinstance(p.annotation, str) and p.annotation.startswith(("Annotated", "Json"))
        else p
        for p in inspect.signature(function).parameters.values()
    ]


def space_of(
    step_size: Annotated[
        str | None, typer.Option(help="Macro step: fixed 'H', one of 'H,H,…', or within 'LOW:HIGH'; default: searched.")
    ] = None,
    masters: Annotated[
        str, typer.Option(help="Families to try: jacobi, gauss-seidel, groups, iterative, separated by commas.")
    ] = "jacobi,gauss-seidel,iterative",
    order: Annotated[str | None, typer.Option(help="A fixed calling order, 'a,b,c'; default: all that differ.")] = None,
    groups: Annotated[
        list[str] | None, typer.Option(help=f"Also try these groups, 'a,b;c': a and b step together. {MANY}")
    ] = None,
    multiple: Annotated[
        list[str] | None, typer.Option(help=f"Also try these multiples of the step, 'UNIT=N,UNIT=N'. {MANY}")
    ] = None,
    sweeps: Annotated[str, typer.Option(help="Numbers of sweeps of iterative masters.")] = "2,3",
    couplings: Annotated[str, typer.Option(help="Couplings to try, separated by commas.")] = "hold0,hold1,hold2,nepce",
    coupling: Annotated[
        list[str] | None, typer.Option(help=f"Other couplings for one input, 'UNIT.INPUT=hold0,hold1'. {MANY}")
    ] = None,
    gains: Annotated[str, typer.Option(help="Range of the gains of nepce.")] = "0:0.95",
    cannot_restore: Annotated[
        list[str] | None, typer.Option(metavar="UNIT", help=f"A unit that must not be rolled back. {MANY}")
    ] = None,
    compensation: Annotated[
        bool, typer.Option("--compensation", help="Also try corrected inputs, as by 'compensate'.")
    ] = False,
    budget: Annotated[float | None, typer.Option(help="The most that a simulated second may cost.")] = None,
) -> Space:
    """What is open, and the limits."""
    from cosimo.tuning import Range, Space
    from cosimo.tuning.space import parse_kinds

    low, high = _numbers("--gains", gains, ":", 2)
    return Space(
        steps=_steps(step_size),
        families=words(masters),
        order=words(order) if order else None,
        groups=tuple([words(group) for group in text.split(";")] for text in groups or ()),
        multiples=tuple(
            {unit: _whole("--multiple", count) for unit, count in _pairs("--multiple", text)} for text in multiple or ()
        ),
        sweeps=tuple(_whole("--sweeps", word) for word in words(sweeps)),
        kinds=parse_kinds(words(couplings)),
        couplings={
            target: parse_kinds(words(kinds)) for target, _, kinds in (text.partition("=") for text in coupling or ())
        },
        gains=Range(low, high),
        cannot_restore=tuple(cannot_restore or ()),
        compensation=compensation,
        budget=budget,
    )


@dataclass(frozen=True)
class Plan:
    """How to search: `objectives`, how many `evaluations`, a `seed`, and `settings`; `measure`: time the units.

    `target` is the error that is small enough, None where the scenario says it.
    """

    objectives: tuple[str, ...]
    evaluations: int
    seed: int
    settings: Settings
    measure: bool
    target: float | None = None

    def timed(self, system: System, step: float) -> Plan:
        """With the cost of the units' steps by the clock where that is wanted; what was said of units is kept."""
        if not self.measure:
            return self
        from cosimo.tuning import measured_weights

        weights = {**measured_weights(system, step), **self.settings.cost.weights}
        return replace(self, settings=replace(self.settings, cost=replace(self.settings.cost, weights=weights)))


def plan_of(
    objectives: Annotated[
        str, typer.Option(help="Separated by commas: error, robustness, cost, radius, defect.")
    ] = "error,robustness,cost",
    target_error: Annotated[
        float | None,
        typer.Option("--target-error", "--max-error", help="The error that is small enough, a share: 0.01 is 1 %."),
    ] = None,
    min_robustness: Annotated[
        float, typer.Option(help="The change of units that it must bear, a share: 0.25 is ± 25 %.")
    ] = 0.25,
    evaluations: Annotated[int, typer.Option(help="Candidates to try at most.")] = 2000,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal results.")] = 0,
    method: Annotated[str, typer.Option(help="auto, nsga2, nsga3 or grid (every point of a grid).")] = "auto",
    weight: Annotated[
        list[str] | None, typer.Option(help=f"UNIT=COST of one step of a unit; default 1. {MANY}")
    ] = None,
    workers: Annotated[int, typer.Option(help="Units that step side by side share the cost.")] = 1,
    measure_cost: Annotated[
        bool, typer.Option("--measure-cost", help="Time the units: cost in seconds per simulated second.")
    ] = False,
    backend: Annotated[str, typer.Option(help="Arrays of the batches: numpy, torch, cupy or auto.")] = "numpy",
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep evaluations here and go on from it.")
    ] = None,
) -> Plan:
    """How to search, and what counts."""
    from cosimo.tuning import Cost, Settings, Wanted

    weights = {unit: _number("--weight", cost) for text in weight or () for unit, cost in _pairs("--weight", text)}
    settings = Settings(
        method=cast(Any, method),
        cost=Cost(weights, workers),
        wanted=Wanted(0.01 if target_error is None else target_error, min_robustness),
        backend=backend,
        resume=resume,
    )
    return Plan(words(objectives), evaluations, seed, settings, measure_cost, target_error)


def _steps(text: str | None) -> Steps:
    from cosimo.tuning import Range

    if text is None:
        return None
    if ":" in text:
        low, high = _numbers("--step-size", text, ":", 2)
        if not low > 0:
            raise ConfigurationError(f"--step-size wants a range of positive numbers, not '{text}'.")
        return Range(low, high)
    found = _numbers("--step-size", text, ",")
    return found[0] if len(found) == 1 else found


def _numbers(option: str, text: str, mark: str, count: int | None = None) -> tuple[float, ...]:
    found = tuple(_number(option, part) for part in text.split(mark) if part.strip())
    if not found or (count is not None and len(found) != count):
        raise ConfigurationError(f"{option} wants {f'LOW{mark}HIGH' if count else 'numbers'}, not '{text}'.")
    return found


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{option} wants numbers, not '{text}'.") from None


def _whole(option: str, text: str) -> int:
    if not text.strip().isdigit():
        raise ConfigurationError(f"{option} wants whole numbers, not '{text}'.")
    return int(text)


def _pairs(option: str, text: str) -> list[tuple[str, str]]:
    pairs = [tuple(part.strip() for part in entry.split("=")) for entry in words(text)]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise ConfigurationError(f"{option} wants UNIT=NUMBER, not '{text}'.")
    return cast(list[tuple[str, str]], pairs)
