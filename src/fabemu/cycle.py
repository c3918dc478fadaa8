"""Cycles of a directed graph given as arrays of edges."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from fabemu.distinct import distinct

Nodes = NDArray[np.int64]


def on_cycles(count: int, source: Nodes, target: Nodes) -> NDArray[np.bool_]:
    """(edges,) the edges left when nodes without a way in or without a way out are taken away, again and again.

    Every cycle is left; nothing is left of a graph without one.
    """
    alive = np.ones(len(source), dtype=bool)
    while True:
        has_in, has_out = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        has_in[target[alive]] = True
        has_out[source[alive]] = True
        kept = alive & has_in[source] & has_out[target]
        if kept.sum() == alive.sum():
            return alive
        alive = kept


def components(count: int, source: Nodes, target: Nodes) -> list[list[int]]:
    """Strongly connected components that hold a cycle, each sorted, in order of their first node.

    Tarjan's algorithm without recursion, on what `on_cycles` leaves.
    """
    alive = on_cycles(count, source, target)
    order = np.argsort(source[alive], kind="stable")
    ways = target[alive][order].tolist()
    start = np.searchsorted(source[alive][order], np.arange(count + 1)).tolist()
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    waiting: list[int] = []
    open_nodes: set[int] = set()
    found: list[list[int]] = []
    for root in distinct(source[alive]).tolist():
        if root in number:
            continue
        stack = [(root, start[root])]
        number[root] = low[root] = len(number)
        waiting.append(root)
        open_nodes.add(root)
        while stack:
            node, at = stack.pop()
            if at < start[node + 1]:
                stack.append((node, at + 1))
                following = ways[at]
                if following not in number:
                    number[following] = low[following] = len(number)
                    waiting.append(following)
                    open_nodes.add(following)
                    stack.append((following, start[following]))
                elif following in open_nodes:
                    low[node] = min(low[node], number[following])
                continue
            if stack:
                low[stack[-1][0]] = min(low[stack[-1][0]], low[node])
            if low[node] == number[node]:
                component = []
                while True:
                    member = waiting.pop()
                    open_nodes.discard(member)
                    component.append(member)
                    if member == node:
                        break
                if len(component) > 1 or node in ways[start[node] : start[node + 1]]:
                    found.append(sorted(component))
    return sorted(found)


def shortest_cycle(component: list[int], source: Nodes, target: Nodes) -> list[int]:
    """A shortest cycle through the first node of a strongly connected component."""
    members, first = set(component), component[0]
    inside = np.isin(source, component) & np.isin(target, component)
    ways: dict[int, list[int]] = {}
    for node, following in sorted(zip(source[inside].tolist(), target[inside].tolist(), strict=True)):
        ways.setdefault(node, []).append(following)
    came_from: dict[int, int] = {}
    queue = deque([first])
    while queue:
        node = queue.popleft()
        for following in ways.get(node, []):
            if following == first:
                path = [node]
                while path[-1] != first:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if following in members and following not in came_from:
                came_from[following] = node
                queue.append(following)
    raise ValueError("the component has no cycle through its first node")
