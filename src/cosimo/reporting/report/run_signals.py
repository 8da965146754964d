"""Signals of runs, differences, energies and defects, decimated and packed for the page."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import CosimoError
from cosimo.core.result import Result, decimate
from cosimo.core.system import Link, System
from cosimo.execution.power_bonds import Bond, power_bonds
from cosimo.reporting.report.charts import DASHES, LINES, ROLES

if TYPE_CHECKING:
    from cosimo.reporting.report.contents import Contents, ReportedRun

MOST_SIGNALS = 200
"""Signals on a page; the rest is counted."""
SHOWN = 3
"""Signals that are drawn at first."""
WATCHED = 2
"""Connections whose defect is drawn over time."""
MOST_MARKS = 30
CUT = 2.0
"""Runs that go twice as far beyond the true solution as this many of its ranges are cut off there."""


def styled(contents: Contents) -> list[tuple[ReportedRun, str, str, float]]:
    """Every run with its colour, dash and width; what the others are compared with is wide and lies below."""
    every = [*([contents.reference] if contents.reference else []), *contents.runs]
    found: list[tuple[ReportedRun, str, str, float]] = []
    free = iter(range(len(every)))
    for run in every:
        colour, dash = ROLES.get(run.role, ("", ""))
        if not colour or any(colour == other[1] for other in found):
            number = next(free)
            colour, dash = LINES[number % len(LINES)], DASHES[number % len(DASHES)]
        found.append((run, colour, dash, 4.0 if run.role == "reference" else 1.6))
    return found


def signals(contents: Contents, pack: Pack) -> dict[str, Any]:
    """All signals of all runs, decimated, with their differences from the reference."""
    runs = styled(contents)
    names = list(dict.fromkeys(name for run, *_ in runs for name in run.result.names))
    kept = names[:MOST_SIGNALS]
    reference = contents.reference or (contents.runs[0] if len(contents.runs) > 1 else None)
    doubled = 2 if reference else 1
    buckets = buckets_for(doubled * sum(len(set(kept) & set(run.result.names)) for run, *_ in runs))
    values: dict[str, list[Any]] = {name: [] for name in kept}
    apart: dict[str, list[Any]] = {name: [] for name in kept}
    for run, *_ in runs:
        for name in kept:
            has = name in run.result.names and len(run.result) > 0
            values[name].append(pack.signal(run.result.time, run.result[name], buckets) if has else None)
            if reference is not None:
                off = difference(run.result, reference.result, name) if has and run is not reference else None
                apart[name].append(pack.signal(*off, buckets) if off else None)
    first = [name for name in kept if sum(entry is not None for entry in values[name]) == len(runs)] or kept
    worst = contents.verdict.error.output if contents.verdict and contents.verdict.error else ""
    ranges = {name: range_ for name in kept if (range_ := _range(contents, name)) is not None}
    return {
        "signals": kept,
        "shown": [worst] if worst in first else first[:SHOWN],
        "ranges": ranges,
        "physical": {name: unit for run, *_ in runs for name, unit in run.result.physical_units.items()},
        "cut": bool(ranges),
        "left_out": len(names) - len(kept),
        "runs": [{"name": run.label, "colour": c, "dash": d, "width": w} for run, c, d, w in runs],
        "values": values,
        "differences": apart if reference else None,
        "reference": reference.label if reference else None,
        "marks": marks(contents),
        "whole": all(entry["all"] for entries in values.values() for entry in entries if entry),
    }


def _range(contents: Contents, name: str) -> list[float] | None:
    """What of a signal is drawn at first where a run leaves the true solution far behind; None: all of it."""
    true = contents.reference
    if true is None or name not in true.result.names or not len(true.result):
        return None
    low, high = float(true.result[name].min()), float(true.result[name].max())
    room = CUT * (high - low)
    runs = [run.result[name] for run in contents.runs if name in run.result.names]
    far = any((values < low - 2 * room).any() or (values > high + 2 * room).any() for values in runs)
    return [low - room, high + room] if room > 0 and far else None


def marks(contents: Contents) -> list[dict[str, Any]]:
    """The warnings of all runs, in the order of time, numbered."""
    found = [
        (warned.time, run.label, warned.message, warned.count)
        for run in contents.runs
        for warned in run.result.warnings
    ]
    return [
        {"number": number, "time": float(time), "run": label, "message": message, "count": count}
        for number, (time, label, message, count) in enumerate(sorted(found)[:MOST_MARKS], 1)
    ]


def difference(result: Result, reference: Result, name: str) -> tuple[Array, Array] | None:
    """Times and result − reference there; a reference with other times is taken between its rows on straight lines."""
    if name not in reference.names or len(reference) < 2:
        return None
    time, theirs = result.time, reference[name]
    if len(time) == len(reference) and np.array_equal(time, reference.time):
        return time, result[name] - theirs
    slack = 1e-9 * (1.0 + abs(float(reference.time[-1])))
    inside = (time >= reference.time[0] - slack) & (time <= reference.time[-1] + slack)
    if not inside.any():
        return None
    return time[inside], result[name][inside] - np.interp(time[inside], reference.time, theirs)


def watched(contents: Contents, pack: Pack) -> list[dict[str, Any]]:
    """Panels over time: energy on which the units of a power bond disagree, and defects of the worst connections."""
    system = contents.system
    if system is None:
        return []
    try:
        bonds = power_bonds(system)
    except CosimoError:
        bonds = ()
    runs = [found for found in styled(contents) if found[0].role != "reference"]
    buckets = buckets_for(4 * max(1, len(runs)))

    def line(styled: tuple[ReportedRun, str, str, float], label: str, values: Array) -> dict[str, Any]:
        run, colour, dash, _ = styled
        series = pack.signal(run.result.time, values, buckets)
        return {"name": label, "colour": colour, "dash": dash, "series": series}

    title = "energy created by the coupling" + (" / J" if all("force" in bond.why for bond in bonds) else "")
    lines = [
        line(one, one[0].label if len(bonds) == 1 else f"{one[0].label}: {bond}", found)
        for one in runs
        for bond in bonds
        if (found := _energy(bond, one[0].result)) is not None
    ]
    panels = [{"kind": "energy", "title": title, "lines": lines}]
    for link in _worst(system, contents):
        lines = [line(one, one[0].label, off) for one in runs if (off := _defect(link, one[0].result)) is not None]
        panels.append({"kind": "defect", "title": f"defect of {link.connection}", "lines": lines})
    return [panel for panel in panels if panel["lines"]]


def _energy(bond: Bond, result: Result) -> Array | None:
    """h Σ (u_b y_b − (g_p / g_q) y_a u_a) of a power bond; None where the rows do not hold all of it."""
    there, back = bond.forward.connection, bond.back.connection
    ends = (there.source, there.target, back.source, back.target)
    if len(result) != result.info.get("steps", -2) + 1 or not set(ends) <= set(result.names) or back.gain == 0:
        return None
    y_a, u_b, y_b, u_a = (result[name] for name in ends)
    with np.errstate(over="ignore", invalid="ignore"):
        power = u_b * y_b - there.gain / back.gain * y_a * u_a
        power[0] = 0.0  # the row of the start is no step
        energy: Array = np.cumsum(power) * float(result.info["step"])
    return energy


def _defect(link: Link, result: Result) -> Array | None:
    """|gain y + offset − u| of one connection; None where the rows do not hold both."""
    own = link.connection
    if not {own.source, own.target} <= set(result.names) or not len(result):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        off: Array = np.abs(own.gain * result[own.source] + own.offset - result[own.target])
    return off


def _worst(system: System, contents: Contents) -> Iterator[Link]:
    """The links with the largest relative defects in any run."""
    largest: dict[tuple[str, str], float] = {}
    for run in contents.runs:
        for entry in (run.result.info.get("monitors") or {}).get("connections") or ():
            ends = (str(entry["source"]), str(entry["target"]))
            largest[ends] = max(largest.get(ends, 0.0), float(entry["relative"] or 0.0))
    links = {(link.connection.source, link.connection.target): link for link in system.links}
    for ends in sorted(largest, key=lambda ends: -largest[ends])[:WATCHED]:
        if ends in links:
            yield links[ends]


# ---- typed arrays in one compressed piece of text --------------------------------------------------------------------


POINTS = 160_000
"""Points of all signals of a page together, about."""
MOST_BUCKETS, FEWEST_BUCKETS = 4_000, 150


def buckets_for(series: int) -> int:
    """Into how many buckets each of so many signals may be divided."""
    return int(np.clip(POINTS // (2 * max(1, series)), FEWEST_BUCKETS, MOST_BUCKETS))


class Pack:
    """Collects arrays and says where they lie."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Keep an array of 64-bit or 32-bit numbers: its type, place and length."""
        kind = {"f8": "Float64Array", "f4": "Float32Array", "u4": "Uint32Array"}[values.dtype.str[1:]]
        data = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes()
        found = {"type": kind, "start": self._size, "length": len(values)}
        data += bytes(-len(data) % 8)
        self._parts.append(data)
        self._size += len(data)
        return found

    def signal(self, time: Array, values: Array, buckets: int) -> dict[str, Any]:
        """A signal over time, decimated."""
        places = decimate(values, buckets)
        kept = values[places]
        finite = kept[np.isfinite(kept)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        # Halves are added: the sum of two numbers near the largest one is none.
        shift, scale = low / 2 + high / 2, (high / 2 - low / 2) or 1.0
        with np.errstate(invalid="ignore", over="ignore"):
            small = ((kept - shift) / scale).astype(np.float32)
        small[~np.isfinite(kept)] = np.nan
        found: dict[str, Any] = {"shift": shift, "scale": scale, "y": self.add(small), "all": len(places) == len(time)}
        even = _even_step(time)
        if even is None:
            return found | {"x": self.add(np.asarray(time[places], dtype=np.float64))}
        return found | {"x": self.add(places.astype(np.uint32)), "t0": float(time[0]), "dt": even}

    def text(self) -> str:
        """All of it as base64."""
        return compressed(b"".join(self._parts))


def compressed(data: bytes) -> str:
    """Equal data give equal text."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def _even_step(time: Array) -> float | None:
    """The step of equally spaced times, exact enough that no picture shows a difference."""
    if len(time) < 2:
        return None
    step = float(time[-1] - time[0]) / (len(time) - 1)
    off = np.abs(time - (time[0] + step * np.arange(len(time)))).max()
    return step if step > 0 and off <= 1e-6 * step else None
