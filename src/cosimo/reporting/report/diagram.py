"""The system as a drawing (SVG): units as boxes with their ports, connections as arrows, what matters marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from cosimo.core import dataclass
from cosimo.core.formatting import counted
from cosimo.core.system import Link, System

MOST_UNITS = 40
"""Systems of more units are not drawn: nobody could read it."""
MOST_PAIRS = 16
"""Units with more pairs of feedthrough only say that they have it."""
LETTER, ROW, HEAD, GAP, ACROSS, LANE = 7.0, 20.0, 38.0, 30.0, 96.0, 11.0

KINDS = {"Fmu": "FMU", "PythonUnit": "Python class", "StateSpace": "state space", "Mechanical": "mechanical"}
"""What a reader calls a class of units."""


@dataclass(frozen=True)
class Box:
    """A unit: its place, size, and the inputs and outputs that are shown, top to bottom."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    feedthrough: tuple[tuple[str, str], ...]
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """Wide enough for its name, and for inputs and outputs beside each other."""
        sides = [max(map(len, names), default=0) for names in (self.inputs, self.outputs)]
        return max(116.0, LETTER * (sum(sides)) + 66, LETTER * 1.15 * max(len(self.name), len(self.kind)) + 28)

    @property
    def height(self) -> float:
        """One row per port."""
        return HEAD + ROW * max(len(self.inputs), len(self.outputs), 1) + 6

    def port(self, name: str, *, output: bool) -> tuple[float, float]:
        """Where an arrow begins or ends."""
        number = (self.outputs if output else self.inputs).index(name)
        return self.x + (self.width if output else 0.0), self.y + HEAD + ROW * (number + 0.5)


def draw(system: System, *, worst: str | None = None) -> str:
    """The drawing; `worst` is the connection to be marked, as it is printed. Empty for systems too large to draw."""
    if len(system.units) > MOST_UNITS:
        return ""
    boxes, wide, below = _placed(system)
    looped = loop_links(system)
    arrows = list(_arrows(system, boxes, below, worst, looped))
    lanes = 1 + sum(1 for _, lane in arrows if lane)
    high = below + LANE * lanes + 4
    parts = [text for text, _ in arrows] + [_box(box) for box in boxes.values()]
    parts += [_outside(boxes[unit], target, name) for unit, target, name in _external(system)]
    label = f"{counted(len(system.units), 'unit')} and {counted(len(system.links), 'connection')} of {system.name}"
    return (
        f'<svg class="graph" viewBox="0 0 {wide:.0f} {high:.0f}" style="max-width:{wide:.0f}px" role="img" '
        f'aria-label="{escape(label)}">{_MARKERS}{"".join(parts)}</svg>'
    )


COLOURS = "--ink:currentColor;--muted:#6b7280;--faint:transparent;--surface:Canvas;--accent:#2563eb;--bad:#b91c1c"
"""What the style of the page takes from elsewhere: a drawing that stands alone has the colours of what is around it."""


def standalone(system: System) -> str:
    """The drawing with its style, for notebooks; systems too large to draw in one line of text."""
    if not (drawing := draw(system)):
        return f"<p>{escape(repr(system))}</p>"
    style = (Path(__file__).parent / "templates" / "style.css").read_text(encoding="utf-8").splitlines()
    rules = "".join(line for line in style if line.startswith("svg.graph"))
    return f'<div style="{COLOURS}"><style>{rules}</style>{drawing}</div>'


def loop_links(system: System) -> set[int]:
    """The numbers of the links that lie on an algebraic loop."""
    found = set()
    for loop in system.loops():
        for link in system.links:
            unit = system.units[link.target.unit]
            through = {f"{link.target.unit}.{unit.outputs[row]}" for row in _rows(system, link)}
            if link.connection.source in loop and through & set(loop):
                found.add(link.number)
    return found


def _rows(system: System, link: Link) -> Iterator[int]:
    column = system.units[link.target.unit].feedthrough()[:, link.target.index]
    return (row for row, through in enumerate(column.tolist()) if through)


def _placed(system: System) -> tuple[dict[str, Box], float, float]:
    """Boxes layer by layer, each layer in the middle; the width of all, and where the room below begins."""
    plain = {name: _make(system, name) for name in system.units}
    rows = layers(list(plain), [(link.source.unit, link.target.unit) for link in system.links])
    heights = [sum(plain[name].height + GAP for name in row) - GAP for row in rows]
    tallest = max(heights)
    margin = 30.0 + min(LANE * len(system.links), 70.0)
    x = margin
    found: dict[str, Box] = {}
    for row, high in zip(rows, heights, strict=True):
        wide = max(plain[name].width for name in row)
        y = 16.0 + (tallest - high) / 2
        for name in row:
            found[name] = replace(plain[name], x=x + (wide - plain[name].width) / 2, y=y)
            y += plain[name].height + GAP
        x += wide + ACROSS
    return found, x - ACROSS + margin, 16.0 + tallest + 14


def _make(system: System, name: str) -> Box:
    unit = system.units[name]
    fed = {link.target.index for link in system.incoming(name)} | set(system.external(name))
    used = {link.source.index for link in system.links if link.source.unit == name}
    inputs = tuple(variable for index, variable in enumerate(unit.inputs) if index in fed)
    outputs = tuple(variable for index, variable in enumerate(unit.outputs) if index in used)
    matrix = unit.feedthrough()
    pairs = tuple(
        (unit.inputs[column], unit.outputs[row])
        for row, column in zip(*(part.tolist() for part in matrix.nonzero()), strict=True)
        if unit.inputs[column] in inputs and unit.outputs[row] in outputs
    )
    of = type(unit).__name__
    kind = KINDS.get(of, of) + (", feedthrough" if matrix.any() else "")
    return Box(name, kind, inputs, outputs, pairs)


def _box(box: Box) -> str:
    x, y = box.x, box.y
    parts = [
        f'<rect class="unit" x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="7"/>',
        f'<text class="name" x="{x + box.width / 2:.1f}" y="{y + 17:.1f}">{escape(box.name)}</text>',
        f'<text class="kind" x="{x + box.width / 2:.1f}" y="{y + 30:.1f}">{escape(box.kind)}</text>',
    ]
    for names, output in ((box.inputs, False), (box.outputs, True)):
        for name in names:
            px, py = box.port(name, output=output)
            place = f'x="{px + (-9 if output else 9):.1f}" y="{py + 4:.1f}"'
            parts.append(f'<circle class="port" cx="{px:.1f}" cy="{py:.1f}" r="3"/>')
            parts.append(f'<text class="{"out" if output else "in"}" {place}>{escape(name)}</text>')
    for source, target in box.feedthrough if len(box.feedthrough) <= MOST_PAIRS else ():
        (x0, y0), (x1, y1) = box.port(source, output=False), box.port(target, output=True)
        x0, x1 = x0 + 13 + LETTER * len(source), x1 - 13 - LETTER * len(target)
        parts.append(f'<path class="through" d="M{x0:.1f},{y0:.1f} L{x1:.1f},{y1:.1f}"/>')
    return f"<g>{''.join(parts)}</g>"


def _arrows(
    system: System, boxes: dict[str, Box], below: float, worst: str | None, looped: set[int]
) -> Iterator[tuple[str, int]]:
    """Every link as a path; what leads to the right neighbour as a curve, all else in a lane of its own below."""
    columns = sorted({round(box.x + box.width / 2) for box in boxes.values()})
    lane = 0
    for link in system.links:
        source, target = boxes[link.source.unit], boxes[link.target.unit]
        start = source.port(system.units[link.source.unit].outputs[link.source.index], output=True)
        end = target.port(system.units[link.target.unit].inputs[link.target.index], output=False)
        ahead = [columns.index(round(box.x + box.width / 2)) for box in (source, target)]
        if ahead[1] == ahead[0] + 1:
            path, here, at = _curve(start, end), 0, ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 - 7)
        else:
            lane += 1
            path, here = _around(start, end, below + LANE * lane, lane), lane
            at = (start[0] / 2 + end[0] / 2, below + LANE * lane - 4)
        own = str(link.connection)
        critical = own == worst
        kind = "link" + (" worst" if critical else "") + (" loop" if link.number in looped else "")
        arrow = "worst" if critical else "plain"
        gain = link.connection.gain
        more = f" (gain {gain:g})" if gain != 1 else ""
        title = f"<title>{escape(own + more)}</title>"
        text = f'<path class="{kind}" d="{path}" marker-end="url(#arrow-{arrow})">{title}</path>'
        if critical:
            text += f'<text class="mark" x="{at[0]:.1f}" y="{at[1]:.1f}">most critical</text>'
        yield text, here


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    bend = max(30.0, (end[0] - start[0]) / 2)
    return (
        f"M{start[0]:.1f},{start[1]:.1f} C{start[0] + bend:.1f},{start[1]:.1f} {end[0] - bend:.1f},{end[1]:.1f} "
        f"{end[0] - 4:.1f},{end[1]:.1f}"
    )


def _around(start: tuple[float, float], end: tuple[float, float], y: float, lane: int) -> str:
    """Out to the right, down into the lane, back to the left, up, and in."""
    out, into, r = start[0] + 10 + min(LANE * lane, 70) * 0.8, end[0] - 14 - min(LANE * lane, 70) * 0.8, 6.0
    return (
        f"M{start[0]:.1f},{start[1]:.1f} H{out - r:.1f} q{r},0 {r},{r} V{y - r:.1f} q0,{r} {-r},{r} H{into + r:.1f} "
        f"q{-r},0 {-r},{-r} V{end[1] + r:.1f} q0,{-r} {r},{-r} H{end[0] - 4:.1f}"
    )


def _external(system: System) -> Sequence[tuple[str, str, str]]:
    return [
        (name, system.units[name].inputs[index], type(source).__name__)
        for name in system.units
        for index, source in system.external(name).items()
    ]


def _outside(box: Box, target: str, kind: str) -> str:
    x, y = box.port(target, output=False)
    return (
        f'<path class="link outside" d="M{x - 26:.1f},{y:.1f} H{x - 4:.1f}" marker-end="url(#arrow-plain)">'
        f"<title>from outside: {escape(kind)}</title></path>"
    )


_MARKERS = (
    "<defs>"
    + "".join(
        f'<marker id="arrow-{name}" class="{name}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="{size}" '
        f'markerHeight="{size}" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.6 L7.4,4 L0,7.4 z"/></marker>'
        for name, size in (("plain", 9), ("worst", 13))
    )
    + "</defs>"
)


# ---- where the units of a system stand when it is drawn: layers from left to right, few crossings --------------------
# Links that close a cycle are turned round for the layering (found by a depth-first walk in the order of the units),
# every unit stands one layer right of the farthest unit that feeds it, and units of a layer are ordered by the mean
# place of their neighbours in the layer before and after, a few times to and fro.


Edges = Sequence[tuple[str, str]]
SWEEPS = 4


def layers(names: Sequence[str], edges: Edges) -> list[list[str]]:
    """The units by layer, each layer from top to bottom.

    >>> layers(["a", "b", "c"], [("a", "b"), ("b", "a"), ("a", "c")])
    [['a'], ['b', 'c']]
    """
    forward = _forward(names, edges)
    depth = _depths(names, forward)
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for name in names:
        found[depth[name]].append(name)
    neighbours: dict[str, list[str]] = {name: [] for name in names}
    for source, target in forward:
        neighbours[source].append(target)
        neighbours[target].append(source)
    for sweep in range(SWEEPS):
        for number in range(1, len(found)) if sweep % 2 == 0 else range(len(found) - 2, -1, -1):
            beside = found[number - 1] if sweep % 2 == 0 else found[number + 1]
            found[number] = _ordered(found[number], beside, neighbours)
    return found


def _forward(names: Sequence[str], edges: Edges) -> list[tuple[str, str]]:
    """The edges between different units with those turned round that lead back to where a walk came from."""
    done: set[str] = set()
    walked: set[str] = set()
    forward: set[tuple[str, str]] = set()

    def walk(name: str) -> None:
        walked.add(name)
        for source, target in edges:
            if source == name != target:
                forward.add((target, name) if target in walked else (name, target))
                if target not in done | walked:
                    walk(target)
        walked.discard(name)
        done.add(name)

    for name in names:
        if name not in done:
            walk(name)
    return sorted(forward)


def _depths(names: Sequence[str], forward: Edges) -> dict[str, int]:
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in forward:
            depth[target] = max(depth[target], depth[source] + 1)
    return depth


def _ordered(layer: list[str], beside: list[str], neighbours: Mapping[str, list[str]]) -> list[str]:
    place = {name: number for number, name in enumerate(beside)}

    def middle(name: str) -> float:
        places = [place[other] for other in neighbours[name] if other in place]
        return sum(places) / len(places) if places else float(layer.index(name))

    return sorted(layer, key=middle)
