"""The page in one file, without a server: what it can show is computed before and lies inside it.

Its controls are the communication step and, as a grid, the masters with their usual couplings: every position of the
slider under every master has figures of its own. `co.explore` shows it in a notebook, `cosimo report --interactive` and
the button "Freeze" write it to a file.
"""

from __future__ import annotations

import base64
import html
import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.master import Master
from cosimo.core.storage import writing
from cosimo.core.system import System
from cosimo.masters import MasterOptions
from cosimo.masters.words import options_of
from cosimo.studio import page_state
from cosimo.studio.page_state import State

if TYPE_CHECKING:
    from cosimo.formats.scenario import Scenario

SHOWN = 2
"""Trajectories that a page shows unless it is told."""
COUPLINGS = ("hold0", "hold1")
"""Couplings of all inputs that every master of a frozen page has, beside those of the state."""
FEW = 20
"""Poles in the upper half plane up to which these couplings are computed too; beyond, all masters with the state's."""
HEIGHT = 760
"""Pixels of the page in a notebook."""
FIRST = 0.1
"""Step of a system that comes without one, in time constants 1 / |λ| of its fastest mode: it shows errors, and runs."""

Message = dict[str, Any]


def page_file(name: str) -> str | None:
    """The text of a file of the page; the report's style is that of the page too."""
    if name == "report.css":
        return files("cosimo.reporting.report").joinpath("templates/style.css").read_text(encoding="utf-8")
    if re.fullmatch(r"[a-z]+\.(html|css|js)", name) is None:
        return None
    found = files("cosimo.studio").joinpath("page", name)
    return found.read_text(encoding="utf-8") if found.is_file() else None


def frozen_page(data: Any) -> str:
    """The page in one file: styles, scripts and data inside it, and nothing that could be loaded from elsewhere."""
    text = str(page_file("page.html"))
    script = str(page_file("plot.js")).replace("export function", "function")
    script += re.sub(r"^import .*$", "", str(page_file("studio.js")), flags=re.MULTILINE)
    packed = base64.b64encode(zlib.compress(json.dumps(data).encode())).decode()
    for name in ("report.css", "studio.css"):
        text = text.replace(f'<link rel="stylesheet" href="{name}">', f"<style>{page_file(name)}</style>")
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    tag = '<script type="module" src="studio.js"></script>'
    inside = f'<script type="text/plain" id="frozen">{packed}</script><script type="module">{script}</script>'
    return text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{meta}').replace(tag, inside)


def finite(found: Any) -> Any:
    """The same with null for numbers that JSON does not have."""
    if isinstance(found, dict):
        return {name: finite(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [finite(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found


# ---- the grid --------------------------------------------------------------------------------------------------------


def freeze(state: State, outputs: Sequence[str] = ()) -> str:
    """The page of a state; of every master the positions of the slider, of its own also the verdict of `analyse`."""
    about = {**page_state.describe(state), "exact": page_state.exact_poles(state)}
    shown = [name for name in outputs if name in about["outputs"]] or about["outputs"][:SHOWN]
    own = [*_positions(state, about, shown), *_verdict(state)]
    entries = [{"coupling": _general(about["master"]), "master": about["master"], "messages": own}]
    for master in _masters(about) if about["live"] else ():  # units are identified once at a step, for all masters
        try:
            messages = list(_positions(replace(state, master=master), about, shown, truth=False))
        except CosimoError:  # this master cannot be had for these units
            continue
        words = {name: value for name, value in vars(master).items() if value not in (None, {}, ())}
        entries.append({"coupling": _general(words), "master": words, "messages": messages})
    for key, found in (
        ("masters", [e["master"]["name"] for e in entries]),
        ("couplings", [e["coupling"] for e in entries]),
    ):
        about[key] = [word for word in about[key] if word in found] + [w for w in found[:1] if w not in about[key]]
    fronts = [page_state.front(replace(state, step=None, master=None, target=None), step) for step in about["rungs"]]
    common = [{"kind": "front", "points": points} for points in fronts]
    told = {"state": state.plain(), "outputs": shown, "description": about, "common": common, "entries": entries}
    return frozen_page(told)


def _general(master: Message) -> str:
    """The coupling of all inputs that have none of their own."""
    return next((word for word in reversed(master.get("couplings", ())) if "=" not in word), "hold0")


def _masters(about: Message) -> Iterator[MasterOptions]:
    """Every master that the page offers under every usual coupling, but the state's own; single inputs keep theirs."""
    few = len(about["exact"]) <= FEW
    own, single = about["master"], [word for word in about["master"].get("couplings", ()) if "=" in word]
    for name in about["masters"]:
        for general in dict.fromkeys((*(COUPLINGS if few else ()), _general(own))):
            if (name, general) != (own["name"], _general(own)):
                given = own if name == own["name"] else {"name": name}
                couplings = (*(() if general == "hold0" else (general,)), *single)
                yield MasterOptions(**{**given, "couplings": couplings})


def _positions(state: State, about: Message, outputs: Sequence[str], *, truth: bool = True) -> Iterator[Message]:
    """What the page gets of a master, for all positions of the slider; true trajectories are those of any master."""
    yield {"kind": "wires", "step": about["step"], "wires": page_state.wires(state)}
    if about["live"]:
        yield {"kind": "curve", **page_state.curve(state.at(about["step"]), about["steps"])}
    for step in about["steps"] if about["live"] else [about["step"]]:
        there = state.at(step)
        if not about["live"]:
            yield {"kind": "text", **page_state.text(there)}
            continue
        try:
            yield {"kind": "frame", "frame": finite(page_state.frame(there))}
            course = page_state.course(there, outputs, truth=truth)
        except CosimoError as error:  # this position alone
            yield {"kind": "gap", "step": step, "text": str(error)}
            continue
        yield {"kind": "course", **course}


def _verdict(state: State) -> Iterator[Message]:
    verdict = finite(state.scenario.analyse().fields())
    told = {"verdict": verdict, "shares": page_state.contributions(verdict)}
    yield {"kind": "verdict", "step": state.scenario.step, **told}


# ---- in a notebook ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrozenPage:
    """A page that needs no server: shown by a notebook, or written to a file."""

    html: str

    def write(self, path: str | Path) -> Path:
        """Write it to a file."""
        path = Path(path)
        with writing(path, "choose a folder that exists and can be written to", what="the page"):
            path.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        inside = html.escape(self.html, quote=True)
        return (
            f'<iframe srcdoc="{inside}" sandbox="allow-scripts" title="cosimo studio" '
            f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<page of {len(self.html) / 1e6:.2g} MB; a notebook shows it, write(path) writes it>"


@checked
def explore(
    system: System | Scenario | str | Path,
    master: Master | None = None,
    *,
    stop: float | None = None,
    target: float | None = None,
    outputs: Sequence[str] = (),
) -> FrozenPage:
    """Show the page of `cosimo studio` in a notebook: turn the step and the master, and see the verdict move.

    `system`: a system, a scenario, or what `load` takes. `stop` and `target`: until when, in seconds, and how large an
    error is accepted. `outputs` are those whose trajectories are shown. All is computed in this process, first.

    >>> import cosimo as co
    >>> page = co.explore(co.problems.two_mass(), stop=2.0)  # doctest: +SKIP
    >>> page.write("page.html").name  # doctest: +SKIP
    'page.html'
    """
    from cosimo.formats.scenario import Scenario, load

    named = isinstance(system, str | Path)
    scenario = load(system) if isinstance(system, str | Path) else system
    if not isinstance(scenario, System | Scenario):
        raise ConfigurationError("explore shows a system, a scenario, or what 'load' takes; give one of these first.")
    scenario = scenario if isinstance(scenario, Scenario) else Scenario.of(scenario, stop=stop)
    step, options = (None, None) if master is None else (master.step, options_of(master, scenario.system))
    if master is not None and (options is None or master.mixers):  # its inputs are compensated for one step
        raise ConfigurationError(f"the page cannot turn {master.name}; give a master of co.masters.")
    if step is None and scenario.step is None:
        step = _first_step(scenario)
    if named:
        return FrozenPage(freeze(State(str(system), step=step, master=options, target=target, stop=stop), outputs))
    given = {"step": step, "options": options, "stop": stop, "target": target}
    scenario = scenario.changed(**{name: value for name, value in given.items() if value is not None})
    return FrozenPage(freeze(page_state.open_scenario(scenario), outputs))


def _first_step(scenario: Scenario) -> float:
    """A round step at which a system that comes without one is shown first."""
    from cosimo.analysis.model import Model
    from cosimo.analysis.recommendation import round_steps
    from cosimo.analysis.truth import step_range

    model = Model(scenario.system, start=scenario.start, horizon=scenario.horizon)
    if not (model.known or model.valid):
        return model.step
    fastest = float(abs(model.poles).max(initial=0.0))
    shortest, longest = step_range(fastest, model.horizon)
    usual = FIRST / fastest if fastest > 0 else longest
    return next((step for step in round_steps(shortest, longest) if step <= usual), longest)
