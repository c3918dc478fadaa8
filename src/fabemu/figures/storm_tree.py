"""A storm of pauses as a tree: its root to the left, what each pause led to beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fabemu.analysis.storms import Storm, storms
from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.figures.canvas import blank, literal, nothing, short
from fabemu.figures.palette import GROUND, INK, MUTED, OUTLINE, PAUSE, PAUSED
from fabemu.report import time_text
from fabemu.result import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NODES_SHOWN = 60
"""Most ports drawn; of the others of one parent, those paused least, only the number."""

_STEPS = (0.1, 0.25, 0.5, 0.75)  # where the levels of the paused share end


@dataclass(frozen=True)
class Node:
    """One port of a drawn tree, or several that are not drawn one by one.

    Attributes
    ----------
    row
        Its row of the tree; -1 for the root and for those that are joined.
    parent
        Place of its parent in the list of nodes; -1 for the root.
    depth
        0 for the root.
    place
        Down the page: leaves in whole numbers, others in the middle of their children.
    joined
        How many ports it stands for.
    """

    row: int
    parent: int
    depth: int
    place: float
    joined: int = 1


def laid_out(parents: Sequence[int | None], weights: Sequence[int], limit: int = NODES_SHOWN) -> list[Node]:
    """Place a tree.

    Parameters
    ----------
    parents
        Row of the parent of every row; None below the root.
    weights
        What decides who is drawn if there are more than `limit`: the greater. Parents of those drawn are drawn too.
    limit
        Most rows that are drawn one by one.

    Returns
    -------
    list of Node
        The root first, parents before their children.
    """
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(parents):
        children.setdefault(-1 if parent is None else parent, []).append(row)
    drawn: set[int] = set()
    for row in sorted(range(len(parents)), key=lambda item: (-weights[item], item)):
        line: list[int] = []
        above: int | None = row
        while above is not None and above not in drawn:
            line.append(above)
            above = parents[above]
        if len(drawn) + len(line) <= limit:
            drawn |= set(line)
    sizes = [1] * len(parents)
    for row in reversed(_from_the_root(children)):
        parent = parents[row]
        if parent is not None:
            sizes[parent] += sizes[row]
    # Without recursion: a chain of pauses may be as long as the fabric is wide.
    order: list[tuple[int, int, int, int]] = []  # row (-1 root, -2 joined), place of the parent, depth, how many
    stack = [(-1, -1, 0, 1)]
    while stack:
        row, parent_place, depth, joined = stack.pop()
        mine = len(order)
        order.append((row, parent_place, depth, joined))
        if row == -2:
            continue
        below = children.get(row, [])
        left = sum(sizes[child] for child in below if child not in drawn)
        if left:
            stack.append((-2, mine, depth + 1, left))
        shown = sorted((child for child in below if child in drawn), key=lambda item: (-weights[item], item))
        stack += [(child, mine, depth + 1, 1) for child in reversed(shown)]
    places = [0.0] * len(order)
    next_leaf = 0
    spans: list[list[float]] = [[] for _ in order]
    for mine, _ in enumerate(order):
        has_children = mine + 1 < len(order) and order[mine + 1][1] == mine
        if not has_children:
            places[mine] = float(next_leaf)
            next_leaf += 1
    for mine in range(len(order) - 1, -1, -1):
        parent_place = order[mine][1]
        if spans[mine]:
            places[mine] = (min(spans[mine]) + max(spans[mine])) / 2
        if parent_place >= 0:
            spans[parent_place].append(places[mine])
    return [
        Node(max(row, -1), parent_place, depth, places[mine], joined)
        for mine, (row, parent_place, depth, joined) in enumerate(order)
    ]


def _from_the_root(children: dict[int, list[int]]) -> list[int]:
    """Rows, parents before children."""
    found: list[int] = []
    stack = list(children.get(-1, ()))
    while stack:
        row = stack.pop()
        found.append(row)
        stack += children.get(row, ())
    return found


def storm_tree(run: Run, number: int = 0) -> Figure:
    """The tree of one storm of a run; number 0 is that with most paused time.

    Raises
    ------
    InputError
        The run has no pauses table, or not so many storms.
    """
    found = storms(run, max(number + 1, 0) or None)
    if not found and number == 0:
        return nothing("No link was paused: there is no storm.")
    if not 0 <= number < len(found):
        raise InputError(f"{run.directory}: has no storm {number}; they are 0 to {len(found) - 1}")
    return tree_of(found[number])


def tree_of(storm: Storm) -> Figure:
    """The tree of a storm."""
    from plotly.graph_objects import Scatter

    tree: pa.Table = storm.tree
    rows = tree.to_pylist()
    nodes = laid_out([row["parent"] for row in rows], [row["paused_ps"] for row in rows])
    deepest = max(node.depth for node in nodes)
    leaves = sum(1 for index in range(len(nodes)) if not any(node.parent == index for node in nodes))
    hidden = sum(node.joined for node in nodes if node.row < 0 and node.parent >= 0)
    notes = []
    if hidden:
        notes.append(f"Of {len(rows):,} ports {hidden:,} with less paused time are joined.")
    notes += [str(note) for note in storm.notes]
    figure = blank(max(220, 70 + 26 * leaves), notes=notes)
    x: list[float | None] = []
    y: list[float | None] = []
    for node in nodes[1:]:
        above = nodes[node.parent]
        x += [above.depth, above.depth + 0.5, above.depth + 0.5, node.depth, None]
        y += [above.place, above.place, node.place, node.place, None]
    figure.add_trace(
        Scatter(x=x, y=y, mode="lines", line={"color": OUTLINE, "width": 1.3}, hoverinfo="skip", showlegend=False)
    )
    texts, labels, colours, sizes, outlines = [], [], [], [], []
    longest = max((row["paused_ps"] for row in rows), default=1) or 1
    for index, node in enumerate(nodes):
        if index == 0:
            labels.append(short(storm.root_port, 34))
            texts.append(
                f"<b>{literal(storm.root_port)}</b><br>root of the storm: {literal(storm.cause)}<br>"
                f"class {literal(storm.class_name)}, from {time_text(storm.start_ps)} to {time_text(storm.end_ps)}<br>"
                f"{counted(storm.pauses, 'pause')}, {time_text(storm.paused_ps)} in all, {counted(storm.ports, 'port')}"
            )
            colours.append(PAUSED)
            sizes.append(17.0)
        elif node.row < 0:
            labels.append(f"{node.joined:,} more")
            texts.append(f"{counted(node.joined, 'more port')}, paused less")
            colours.append(GROUND)
            sizes.append(9.0)
        else:
            row = rows[node.row]
            labels.append(short(row["paused_port"], 34))
            texts.append(
                f"<b>{literal(row['paused_port'])}</b> was paused by {literal(row['port'])}<br>"
                f"{counted(row['pauses'], 'pause')}, {time_text(row['paused_ps'])} in all: {row['share']:.1%} of the "
                "storm<br>"
                + (
                    f"first XOFF at {time_text(row['xoff_ps'])}, {time_text(row['xoff_ps'] - storm.start_ps)} after "
                    "the storm began"
                )
            )
            level = sum(row["share"] > step for step in _STEPS)
            colours.append(PAUSE[level])
            sizes.append(7.0 + 9.0 * (row["paused_ps"] / longest) ** 0.5)
        outlines.append(INK if index == 0 else MUTED)
    figure.add_trace(
        Scatter(
            x=[node.depth for node in nodes],
            y=[node.place for node in nodes],
            mode="markers+text",
            text=labels,
            customdata=texts,
            textposition="middle right",
            textfont={"size": 11, "color": INK},
            hovertemplate="%{customdata}<extra></extra>",
            cliponaxis=False,
            marker={"color": colours, "size": sizes, "line": {"color": outlines, "width": 1.2}},
            showlegend=False,
        )
    )
    # An empty trace per level is its line of the legend.
    ends = ["0", *(f"{100 * step:.0f}" for step in _STEPS), "100"]
    for level, colour in enumerate(PAUSE):
        figure.add_trace(
            Scatter(
                x=[None],
                y=[None],
                mode="markers",
                name=f"{ends[level]}–{ends[level + 1]} %",
                marker={"color": colour, "size": 11, "line": {"color": MUTED, "width": 1.2}},
                hoverinfo="skip",
            )
        )
    figure.update_xaxes(
        range=[-0.15, deepest + 1.0],
        tickvals=list(range(deepest + 1)),
        title_text="hops from the root",
        showgrid=False,
    )
    figure.update_yaxes(visible=False, range=[leaves - 0.4, -0.6])
    figure.update_layout(
        hovermode="closest",
        dragmode="pan",
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1,
            "yanchor": "bottom",
            "title": {"text": "paused, of the storm's duration:  "},
            "itemclick": False,
            "itemdoubleclick": False,
        },
        margin={"l": 8, "r": 8, "t": 36, "b": 40},
    )
    return figure
