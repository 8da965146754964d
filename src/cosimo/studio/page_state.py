"""What the page shows: its state as one immutable object, and what that state evaluates to.

A state is what the command line says after `cosimo analyse`: a system with its settings, a macro step, a master in
words, a target and a stop time. Figures of a state are those of `analyse` with the same options; a *frame* is the part
of them that follows the slider, at one of the steps of its grid. `main` answers requests, one line of JSON each, in a
process of its own, so that a unit that crashes or hangs ends that process and not the page.
"""

from __future__ import annotations

import itertools
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.formatting import percent, step_text
from cosimo.core.result import decimate
from cosimo.core.storage import writing
from cosimo.masters import MASTERS, MasterOptions
from cosimo.masters.words import build_master, command_options, options_of, scenario_lines
from cosimo.masters.words import describe as in_words

if TYPE_CHECKING:
    from cosimo.analysis.model import Model
    from cosimo.core.master import Master
    from cosimo.core.system import System
    from cosimo.formats.scenario import Scenario

POSITIONS = 97
"""Steps on the slider: four decades with 24 each, 10 % from one to the next."""
MOST_VALUES = 400_000
"""Values of all outputs over the horizon at the shortest step of the slider: a frame stays cheap, and all together."""
COURSE = 160
"""Buckets of a trajectory, each with its smallest and largest value: about what a chart has columns of pixels for."""
SHOWN_COURSES = 3
MOST_PARAMETERS = 60
MOST_MASTERS = 12
"""Masters of the error–cost front at one step."""
ISOLATION = ("isolate", "sandbox", "trust_units", "unit_timeout", "unit_memory")
"""Options that the process which evaluates states gets as `analyse` and `run` do."""
ALL = "*"
"""All units, where `--isolate` names none (`cli.option_groups.ALL`)."""
GIVEN_UP = 10.0
"""Errors from which on a master is not shown on the front."""
FAR = 3.0
"""Poles farther out than this many times the fastest exact one are not drawn: the picture would show nothing else."""


@dataclass(frozen=True)
class State:
    """The controls of the page. None: as the system's file says; `settings` are values by name as `--set` takes them.

    `fixed` are the other options of a system, by the names of `SystemChoice`: given at the start, not by the page.
    """

    system: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    step: float | None = None
    master: MasterOptions | None = None
    target: float | None = None
    stop: float | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, given: Any) -> State:
        """From the page, or from a link; whatever is not a state is refused.

        >>> State.read({"system": "two-mass", "step": 0.004, "master": {"name": "gauss-seidel"}}).master.name
        'gauss-seidel'
        """
        if not isinstance(given, dict) or not isinstance(given.get("system"), str):
            raise ConfigurationError("the state of the page names no system; open the address that was printed.")
        _require(given, [one.name for one in fields(cls)], "state")
        state = cls(**given)
        for name in ("step", "target", "stop"):
            value = getattr(state, name)
            if value is not None and not (_number(value) and (value > 0 or name == "stop")):
                raise ConfigurationError(f"'{name}' of the page must be a positive number, not {value!r}; correct it.")
        fixed = {name: one for name, value in dict(state.fixed).items() for one in _each(value)}
        for values in (state.settings, fixed):
            if not isinstance(values, dict) or not all(_plain(value) for value in values.values()):
                raise ConfigurationError("settings of the page are names with numbers or texts; correct them.")
        return state if state.master is None else replace(state, master=_master(state.master))

    def plain(self) -> dict[str, Any]:
        """For JSON; what is not set is left out."""
        found = {name: value for name, value in asdict(self).items() if value not in (None, {})}
        if self.master is not None:
            found["master"] = {n: v for n, v in asdict(self.master).items() if v not in (None, {}, (), [])}
        return found

    def at(self, step: float) -> State:
        """The same at another macro step."""
        return replace(self, step=step)

    @cached_property
    def scenario(self) -> Scenario:
        """What `cosimo analyse` would analyse."""
        loaded = _load(*self._loaded)
        given = {"step": self.step, "options": self.master, "target": self.target, "stop": self.stop}
        return loaded.changed(**{name: value for name, value in given.items() if value is not None})

    @property
    def _loaded(self) -> tuple[str, str, str, int]:
        """What a system, and all that is known of it, follows from: the file as it is now among it."""
        path = Path(self.system)
        written = path.stat().st_mtime_ns if path.is_file() else 0
        return self.system, json.dumps(self.settings, sort_keys=True), json.dumps(self.fixed, sort_keys=True), written

    @property
    def words(self) -> str:
        """The options of the command line that make this state, the system first."""
        scenario, found = self.scenario, [self.system]
        for name, value in self.settings.items():
            found += ["--set", f"{name}={value}"]
        found += option_words(self.fixed)
        said = command_options(scenario.master, scenario.system)
        if not said:
            raise ConfigurationError(
                f"the command line has no words for {scenario.master.name}; choose another master."
            )
        for name, own in (("target-error", self.target), ("stop-time", self.stop)):
            found += [] if own is None else [f"--{name}", repr(float(own))]
        return f"{shlex.join(found)} {said}"


def option_words(given: Mapping[str, Any]) -> list[str]:
    """Options of the command line by the names of their fields; a switch has no value, and all units no name.

    >>> option_words({"isolate": ["*"], "sandbox": True, "unit_timeout": 2.0})
    ['--isolate', '--sandbox', '--unit-timeout', '2.0']
    """
    words = ((f"--{name.replace('_', '-')}", one) for name, value in given.items() for one in _each(value))
    return [word for name, one in words for word in ((name,) if one is True or one == ALL else (name, str(one)))]


def recommended(state: State, options: str) -> State:
    """The state with the master of a recommendation, given as options of the command line (`command_options`)."""
    words = shlex.split(options)
    said: dict[str, Any] = {"couplings": [], "multiples": {}}
    step = state.step
    for name, value in zip(words[::2], words[1::2], strict=True):
        key = name.removeprefix("--").replace("-", "_")
        if key == "step_size":
            step = float(value)
        elif key == "coupling":
            said["couplings"].append(value)
        elif key == "multiple":
            unit, _, count = value.partition("=")
            said["multiples"][unit] = int(count)
        else:
            said["name" if key == "master" else key] = json.loads(value) if key in _COUNTED else value
    return replace(state, step=step, master=_master(said))


_COUNTED = ("sweeps", "sweep_limit", "anderson", "quasi_newton", "tolerance")


def _master(given: Any) -> MasterOptions:
    if isinstance(given, MasterOptions):
        return given
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ConfigurationError(f"the page describes no master; choose one of {', '.join(MASTERS)}.")
    _require(given, [one.name for one in fields(MasterOptions)], "master")
    couplings = given.get("couplings", ())
    if isinstance(couplings, str) or not all(isinstance(one, str) for one in couplings):
        raise ConfigurationError(f"couplings of the page are a list of words, not {couplings!r}.")
    return MasterOptions(**{**given, "couplings": tuple(couplings)})


def _require(given: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise ConfigurationError(f"the {what} of the page has no '{unknown[0]}'; it has {', '.join(known)}.")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _plain(value: Any) -> bool:
    return isinstance(value, str | bool) or _number(value)


# ---- what a state evaluates to ---------------------------------------------------------------------------------------


IN_CODE = "SYSTEM"
"""What a system that was made in code is called in command lines."""
_IN_CODE: dict[str, Scenario] = {}
_PREPARED: list[Callable[[System], None]] = []


def prepare_with(prepare: Callable[[System], None]) -> None:
    """From now on, do this to every system that is loaded: the command line isolates its units so."""
    _PREPARED[:] = [prepare]


def open_scenario(scenario: Scenario) -> State:
    """The state of a scenario that no file describes; the one before is forgotten."""
    for cached in (_load, _model):
        cached.cache_clear()
    _IN_CODE[IN_CODE] = scenario
    return State(IN_CODE)


@lru_cache(maxsize=4)
def _load(system: str, settings: str, fixed: str, written: int) -> Scenario:
    if system in _IN_CODE:
        return _IN_CODE[system]
    from cosimo.formats.scenario import load
    from cosimo.units.fmi.model_exchange import CVODE, Solver

    given = json.loads(fixed)
    name, tolerance = given.get("solver"), given.get("relative_tolerance")
    solver = Solver(name or CVODE, relative_tolerance=tolerance) if name or tolerance else None
    more = {"input_file": given.get("input_file"), "solver": solver, "compile": given.get("compile")}
    scenario = load(system, settings=json.loads(settings), **more)
    for prepare in _PREPARED:
        prepare(scenario.system)
    if scenario.step is None:
        raise ConfigurationError(f"'{system}' does not specify a step size; give --step-size.")
    return scenario


@lru_cache(maxsize=4)
def _model(loaded: tuple[str, str, str, int], start: float, horizon: float | None) -> Model:
    """Of every system one model, whatever the slider does: units are identified once."""
    from cosimo.analysis.model import Model

    scenario = _load(*loaded)
    return Model(scenario.system, step=scenario.step, start=start, horizon=horizon)


def model_of(state: State) -> Model:
    """What is known of the system in this state."""
    scenario = state.scenario
    model = _model(state._loaded, scenario.start, scenario.horizon)
    model.linearisation.renew()  # of every position of the slider
    return model


def describe(state: State) -> dict[str, Any]:
    """What does not follow the slider: the drawing, the words, the outputs, the steps of the slider, what is known."""
    from cosimo.analysis.recommendation import round_steps
    from cosimo.couplings import coupling_forms
    from cosimo.problems import CATALOGUE
    from cosimo.reporting.report.diagram import draw

    scenario, model = state.scenario, model_of(state)
    system, live = scenario.system, model.known or model.valid
    problem = CATALOGUE.get(state.system)
    own = problem.parameters if problem is not None else {}
    return {
        "name": system.name,
        "file": None if scenario.source is None else scenario.source.name,
        "graph": draw(system),
        "units": list(system.units),
        "inputs": [link.connection.target for link in system.links],
        "outputs": list(system.outputs),
        "masters": [name for name, word in MASTERS.items() if word.tuned and _can_be_had(name, scenario)],
        "ordered": [name for name, word in MASTERS.items() if "order" in word.options],
        "couplings": [form for form in coupling_forms() if ":" not in form],
        "parameters": {name: value for name, value in own.items() if _number(value)} or parameters(system),
        "open": open_inputs(system),
        "links": [str(link.connection) for link in system.links],
        "master": _words_of(scenario),
        "step": scenario.step,
        "target": scenario.target,
        "stop": scenario.stop,
        "horizon": model.horizon,
        "start": model.start,
        "steps": (steps := slider(model, state)),
        "rungs": round_steps(steps[0], steps[-1]) if live and model.large is None else [],
        "live": live,
        "known": model.known,
        "doubt": "" if model.known else model.doubt,
    }


def parameters(system: System) -> dict[str, float]:
    """The numbers of the units that can be set, by name: parameters, then inputs that nothing feeds; not too many."""
    from cosimo.units.fmi.fmu import Fmu

    found: dict[str, Any] = {}
    for name, unit in system.units.items():
        if isinstance(unit, Fmu):
            infos = (info for info in unit.variables.values() if info.causality == "parameter")
            own = {info.name: unit.given.get(info.name, info.start) for info in infos}
        else:
            own = getattr(unit, "parameters", {})
        found |= {f"{name}.{key}": own[key] for key in unit.parameter_names if key in own}
    inlets = (inlet for row in system.inlets.values() for inlet in row)
    found |= {inlet.target: inlet.start for inlet in inlets if inlet.link is None and inlet.source is None}
    return dict(itertools.islice(((name, value) for name, value in found.items() if _number(value)), MOST_PARAMETERS))


def open_inputs(system: System) -> list[dict[str, Any]]:
    """The inputs of FMUs that nothing feeds, each with why and with the outputs that may feed it, as `cosimo new`."""
    from cosimo.formats.writing import propose
    from cosimo.units.fmi.fmu import Fmu

    free = {i.target for row in system.inlets.values() for i in row if i.link is None and i.source is None}
    units = {name: unit for name, unit in system.units.items() if isinstance(unit, Fmu)}
    if not free or len(units) < 2:
        return []
    found = propose(units).fields()
    clear = (
        {"target": one["target"], "reason": "one output fits", "candidates": [one]} for one in found["connections"]
    )
    return [one for one in (*clear, *found["undecided"]) if one["target"] in free]


def _can_be_had(name: str, scenario: Scenario) -> bool:
    """Whether a master needs no further options, and its units can do what it asks of them."""
    if name == "iterative" and not all(unit.can_restore for unit in scenario.system.units.values()):
        return False
    try:
        build_master(scenario.system, float(scenario.step or 1.0), MasterOptions(name))
    except CosimoError:
        return name == scenario.options.name
    return True


def _words_of(scenario: Scenario) -> dict[str, Any]:
    options = options_of(scenario.master, scenario.system) or scenario.options
    return {n: v for n, v in asdict(options).items() if v not in (None, {}, (), [])}


def slider(model: Model, state: State) -> list[float]:
    """The macro steps of the slider, to three digits, so that the command line reads well, with the file's and this."""
    from cosimo.analysis.truth import step_range

    given = float(replace(state, step=None).scenario.step or 1.0)
    poles = model.poles if model.known or model.valid else np.zeros(0)
    shortest, longest = step_range(float(np.abs(poles).max(initial=0.0)), model.horizon)
    most = MOST_VALUES / max(1, len(model.system.outputs))
    shortest, longest = min(max(shortest, model.horizon / most), given), max(longest, given)
    grid = {float(f"{value:.3g}") for value in np.geomspace(shortest, longest, POSITIONS)}
    return sorted({value for value in grid if value <= model.horizon} | {given, state.step or given})


def curve(state: State, steps: Sequence[float]) -> dict[str, Any]:
    """ρ(Φ) and growth over the steps of the slider, all at once by the batched map; nulls where there is no map."""
    from cosimo.analysis.critical import EigenvalueSizes
    from cosimo.analysis.stability import is_stable

    model, scenario = model_of(state), state.scenario
    if not model.known or model.large is not None:
        return {"steps": [], "growth": [], "stable": [], "own": None}
    grid = np.array(steps)
    radii = EigenvalueSizes(scenario.system, scenario.master).sizes(grid)[:, 0]
    with np.errstate(divide="ignore"):
        growth = np.log(radii) / grid
    stable = [bool(is_stable(one)) if math.isfinite(one) else None for one in radii.tolist()]
    return {"steps": list(steps), "growth": _listed(growth), "stable": stable, "own": _own(model)}


def _own(model: Model) -> float | None:
    """The growth of the exact system, in 1/s."""
    largest = float(model.poles.real.max(initial=-math.inf))
    return largest if math.isfinite(largest) else None


def frame(state: State) -> dict[str, Any]:
    """The verdict of one position of the slider, without what takes long: the figures of `analyse`, details left out.

    Where units were identified it is a prediction of their models, and says so: only pilot runs confirm it.
    """
    from cosimo.analysis import analyse
    from cosimo.analysis.cost import Cost
    from cosimo.analysis.recommendation import master_cost

    scenario, model = state.scenario, model_of(state)
    master = scenario.master
    if not (model.known or model.valid):
        raise ConfigurationError(f"nothing is predicted: {model.doubt}; pilot runs tell when the slider rests.")
    if model.known:
        over: Any = {"start": model.start, "horizon": model.horizon, "target": scenario.target}
        verdict = analyse(scenario.system, master, model=model, details=False, **over)
        found = verdict.judgement
        said = {"trust": found.trust, "mark": found.mark, "headline": found.headline, "evidence": verdict.evidence}
        errors, stable, radius = verdict.error, verdict.stable, verdict.spectral_radius
        said["text"] = " ".join(verdict.document.sentences)
        said["master"] = verdict.description
    else:
        said, errors, stable, radius = _predicted(scenario, model, master)
    outputs = dict(errors.outputs) if errors is not None else {}
    with suppress(ConfigurationError):  # no words for this master: `text` says so
        said |= text(state)
    return {
        **said,
        "step": master.step,
        "step_text": step_text(master.step),
        "stable": stable,
        "spectral_radius": radius,
        "growth_rate": math.log(radius) / master.step if radius else None,
        "error": _or_none(errors.worst) if errors is not None else None,
        "errors": {name: _or_none(value) for name, value in outputs.items()},
        "texts": {name: percent(value) for name, value in outputs.items()},
        "poles": list(_poles(model, master)),
        "cost": master_cost(model, master, Cost()),
    }


def _predicted(
    scenario: Scenario, model: Model, master: Master
) -> tuple[dict[str, Any], Any, bool | None, float | None]:
    """What models identified at its step say of a master: not assessed before pilot runs agree."""
    from cosimo.analysis.trust import Grounds, judge

    errors, (stable, converging, _) = model.predict(master), model.stability(master)
    found = judge(Grounds(stable, errors, "confirmed", scenario.target, converging, model.grows, "", model.horizon))
    said = {"trust": "not assessed", "mark": "open", "evidence": "none", "master": in_words(master, scenario.system)}
    said["headline"] = f"Predicted, not confirmed: {found.because}"
    said["text"] = "The units were identified; pilot runs (cosimo analyse) confirm or replace this."
    return said, errors, stable, model.spectrum(master).radius


def _poles(model: Model, master: Master) -> Iterator[tuple[float, float]]:
    """The poles log(μ) / h of the co-simulation, upper half plane, as far as the picture reaches."""
    from cosimo.analysis.spectrum import Spectrum, nearest_pole

    if model.large is not None:
        return
    spectrum = model.spectrum(master)
    assert isinstance(spectrum, Spectrum)
    reach = FAR * float(np.abs(model.poles).max(initial=0.0))
    for mu in spectrum.eigenvalues.tolist():
        pole = nearest_pole(complex(mu), master.step, 0j)
        if pole.imag >= 0 and abs(pole) <= reach:
            yield pole.real, pole.imag


def front(state: State, step: float) -> list[dict[str, Any]]:
    """What the usual masters would cost and err at one step: the candidates of the recommendation, by its words.

    Those that grow, or fail, are left out.
    """
    from cosimo.analysis.cost import Cost
    from cosimo.analysis.recommendation import judge_point, master_cost, usual_masters

    model, scenario, found = model_of(state), state.scenario, []
    for master in itertools.islice(usual_masters(scenario.system, step), MOST_MASTERS):
        with suppress(CosimoError, ArithmeticError, ValueError):
            if model.known:
                point = judge_point(model, master, Cost(), robust=False)
                stable, error, cost = point.stable, point.error, point.cost
            else:
                _, errors, stable, _ = _predicted(scenario, model, master)
                error, cost = errors.worst, master_cost(model, master, Cost())
            if stable and 0 < error < GIVEN_UP:
                options = command_options(master, scenario.system)
                found.append(
                    {"error": error, "cost": cost, "name": in_words(master, scenario.system), "options": options}
                )
    return found


def wires(state: State) -> list[dict[str, Any]]:
    """Every connection: gain, coupling, and its defect.

    The defect is (S_u − L S_y) z at the end of a macro step (glumac2018, Eq. 53), how far an input is from what the
    outputs then say: the largest over the horizon, as a share of the largest true value of that input.
    """
    scenario, model = state.scenario, model_of(state)
    system, master = scenario.system, scenario.master
    shares = _defects(model, master) if model.known and model.large is None else {}
    return [
        {
            "connection": str(link.connection),
            "source": link.connection.source,
            "target": link.connection.target,
            "gain": link.connection.gain,
            "offset": link.connection.offset,
            "coupling": str(master.coupling_of(link.connection.target)),
            "defect": _or_none(shares.get(link.connection.target, math.nan)),
        }
        for link in system.links
    ]


def _defects(model: Model, master: Master) -> dict[str, float]:
    from cosimo.analysis.truth import Recursion, count_steps

    linear, system = model.linear(master), model.system
    steps, truth = count_steps(model.horizon, master.step), model.truth(master.step).rows
    one = linear.one_step
    seen = linear.defect(np.eye(linear.size))
    with np.errstate(over="ignore", invalid="ignore"):
        given = linear.given_values(np.arange(steps + 1.0), model.start)
        process = Recursion(one.Phi, one.Gamma, seen, np.zeros((len(seen), one.Gamma.shape[1])))
        rows = process.rows(linear.start(model.start), given)[1:]
        found = {}
        for link in system.links:
            connection = link.connection
            place = list(system.input_names).index(connection.target)
            fed = connection.gain * truth[:, list(system.outputs).index(connection.source)] + connection.offset
            size, off = float(np.abs(fed).max()), float(np.abs(rows[:, place] - connection.offset).max())
            found[connection.target] = off / size if size > 0 else math.nan
    return found


def contributions(verdict: Mapping[str, Any]) -> dict[str, float]:
    """What every connection contributes to the error, from 0 to 1: by what share it falls without the delay of that
    connection alone; where the master is unstable, by what share of its growth ρ(Φ) − 1."""
    error, radius = verdict.get("typical_error"), verdict.get("spectral_radius")
    unstable = verdict.get("stable") is False
    found = {}
    for one in verdict.get("connections") or ():
        now, fresh = (radius, one["fresh_radius"]) if unstable else (error, one["fresh_error"])
        least = 1.0 if unstable else 0.0
        if now is not None and _number(now) and _number(fresh) and now > least:
            found[one["connection"]] = min(1.0, max(0.0, (now - fresh) / (now - least)))
    return found


def timing(state: State) -> dict[str, float]:
    """Seconds that one step of every unit takes, measured."""
    from cosimo.analysis.cost import measured_weights

    return measured_weights(state.scenario.system, state.scenario.master.step)


def exact_poles(state: State) -> list[tuple[float, float]]:
    """Those of the coupled system itself, upper half plane."""
    model = model_of(state)
    known = (model.known or model.valid) and model.large is None
    return [(pole.real, pole.imag) for pole in (model.poles.tolist() if known else ()) if pole.imag >= 0]


def course(state: State, outputs: Sequence[str], *, truth: bool = True) -> dict[str, Any]:
    """The predicted trajectory of some outputs, and the true one where it is wanted, decimated for a chart."""
    scenario, model = state.scenario, model_of(state)
    master, names = scenario.master, list(model.system.outputs)
    rows, true = model.courses(master)
    time: Array = model.start + master.step * np.arange(float(len(rows)))
    found = {}
    for name in [one for one in outputs if one in names][:SHOWN_COURSES]:
        place = names.index(name)
        found[name] = {"predicted": _chart(time, rows[:, place])}
        if truth:
            found[name]["true"] = _chart(time, true.rows[:, place])
    return {"step": master.step, "outputs": found}


def position(state: State, outputs: Sequence[str]) -> dict[str, Any]:
    """All that follows the slider; trajectories are null where there are none."""
    found: dict[str, Any] = {"frame": frame(state), "course": None}
    with suppress(CosimoError, ArithmeticError, ValueError):
        found["course"] = course(state, outputs)
    return found


def _chart(time: Array, values: Array) -> list[list[float | None]]:
    places = decimate(values, COURSE)
    return [_listed(time[places]), _listed(values[places])]


def _listed(values: Array) -> list[float | None]:
    """Numbers for JSON: six digits draw the same picture, and what is not finite is a gap."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def text(state: State) -> dict[str, Any]:
    """Every setting as text: the command line, and the lines of the scenario."""
    scenario = state.scenario
    lines = scenario_lines(scenario.master, scenario.system)
    command = f"cosimo analyse {state.words}"
    return {"step": scenario.step, "stop": scenario.stop, "command": command, "lines": lines}


def apply(state: State) -> dict[str, str]:
    """Write master and step into the scenario file; the previous file is kept."""
    from cosimo.formats.writing import write_master

    scenario = state.scenario
    if scenario.source is None:
        raise ConfigurationError(
            "a built-in problem has no file to write to; write a scenario with 'problem = …', or copy the command."
        )
    kept = write_master(scenario.source, scenario.master, scenario.system)
    return {"file": scenario.source.name, "kept": Path(kept).name}


def connect(state: State, source: str, target: str, *, sign: bool = False) -> dict[str, str]:
    """Write a connection into the scenario file, or the other sign of one; the previous file is kept."""
    from cosimo.formats.writing import write_connection, write_sign

    path = state.scenario.source
    if path is None:
        raise ConfigurationError("a built-in problem has no file to write to; its connections are fixed.")
    kept = (write_sign if sign else write_connection)(path, source, target)
    return {"file": path.name, "kept": Path(kept).name}


def couple(folder: Path, files: Sequence[str]) -> dict[str, Any]:
    """Write a scenario for FMUs into the folder, as `cosimo new` does; its name, and what was proposed."""
    from cosimo.formats.writing import scaffold

    names = (f"system{number}.toml" for number in ("", *range(2, 10_000)))
    path = next(folder / name for name in names if not (folder / name).exists())
    made = scaffold(path, files)
    with writing(path, "choose a folder that exists and can be written to", what="the scenario"):
        path.write_text(made.text, encoding="utf-8")
    return {"system": path.name, **made.fields()}


# ---- a process of its own --------------------------------------------------------------------------------------------


def answer(request: Mapping[str, Any]) -> Any:
    """What the page asks for, in a state."""
    if request["kind"] == "couple":
        return couple(Path.cwd(), request["files"])
    state, kind = State.read(request["state"]), request["kind"]
    build_master(state.scenario.system, float(state.scenario.step or 1.0), replace(state.scenario.options, follow=None))
    horizon = state.scenario.horizon
    if horizon is not None and state.scenario.step is not None and state.scenario.step > horizon:
        raise ConfigurationError(
            f"the macro step {state.scenario.step:g} s is longer than the horizon of {horizon:g} s; shorten it."
        )
    match kind:
        case "describe":
            return {**describe(state), "exact": exact_poles(state)}
        case "curve":
            return curve(state, request["steps"])
        case "frame":
            return position(state, request.get("outputs", ()))
        case "front":
            return front(state, float(request["at"]))
        case "wires":
            return wires(state)
        case "timing":
            return timing(state)
        case "connect":
            return connect(state, str(request["source"]), str(request["target"]), sign=bool(request["sign"]))
        case "text":
            return text(state)
        case "words":
            return state.words
        case "apply":
            return apply(state)
        case "recommended":
            return recommended(state, str(request["options"])).plain()
    raise ConfigurationError(f"the page asks for '{kind}', which is not known; reload it.")


def main(prepare: Callable[[System], None]) -> None:
    """Answer requests, one line of JSON each, until there are no more; a user's mistake is an answer too."""
    prepare_with(prepare)
    out = sys.stdout
    sys.stdout = sys.stderr  # what units print is no answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found: dict[str, Any] = {"answer": answer(request)}
        except CosimoError as error:
            found = {"error": str(error)}
        except (ArithmeticError, ValueError, TypeError, IndexError, KeyError) as error:
            found = {"error": f"this setting cannot be evaluated ({type(error).__name__}: {error}); choose another."}
        out.write(json.dumps(found) + "\n")
        out.flush()
