"""Where the units of a system stand when it is drawn: layers from left to right, few crossings.

Links that close a cycle are turned round for the layering (found by a depth-first walk in the order of the units),
every unit stands one layer right of the farthest unit that feeds it, and units of a layer are ordered by the mean place
of their neighbours in the layer before and after, a few times to and fro.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    following: dict[str, list[str]] = {name: [] for name in names}
    for source, fed in edges:
        if source != fed:
            following[source].append(fed)
    done: set[str] = set()
    walked: set[str] = set()
    found: set[tuple[str, str]] = set()
    for root in names:
        stack = [(root, iter(following[root]))] if root not in done else []
        walked.update(name for name, _ in stack)
        while stack:
            name, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                done.add(name)
                walked.discard(name)
                stack.pop()
                continue
            found.add((target, name) if target in walked else (name, target))
            if target not in done and target not in walked:
                walked.add(target)
                stack.append((target, iter(following[target])))
    return sorted(found)


def _depths(names: Sequence[str], forward: Edges) -> dict[str, int]:
    depth = dict.fromkeys(names, 0)
    for _ in names:
        moved = False
        for source, target in forward:
            if depth[target] <= depth[source]:
                depth[target], moved = depth[source] + 1, True
        if not moved:
            break
    return depth


def _ordered(layer: list[str], beside: list[str], neighbours: Mapping[str, list[str]]) -> list[str]:
    place = {name: number for number, name in enumerate(beside)}

    def middle(name: str) -> float:
        places = [place[other] for other in neighbours[name] if other in place]
        return sum(places) / len(places) if places else float(layer.index(name))

    return sorted(layer, key=middle)
