"""What the page needs to redraw the fabric for any interval, measure, class and filter."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fabemu.figures.canvas import literal
from fabemu.figures.fabric import SCALES, FabricView
from fabemu.figures.palette import IDLE
from fabemu.figures.port_series import MEASURES
from fabemu.report import time_text

_TITLES = {"use": "use of the link", "queue": "longest queue", "paused": "time paused"}
_THOUSANDTHS = ("use", "paused")
DEVICES_LISTED = 150
"""Most devices to choose from one by one."""


def fabric_data(view: FabricView) -> dict[str, Any]:
    """Values of every direction of every link as whole numbers: thousandths of shares, bytes of queues.

    Returns
    -------
    dict
        As JSON: ``values`` by measure, class and interval (the whole run first); ``limits`` and ``levels`` by measure;
        ``x``, ``y`` of the halves of links; ``names`` (for texts of plotly), ``links``, ``cables``, ``busiest``,
        ``ranks``; ``times``, names of the intervals; ``classes``; ``filters``, links by what can be chosen.
    """
    fabric, series = view.fabric, view.series
    values: dict[str, Any] = {}
    for name in MEASURES:
        numbers = view.loads.values[name]
        whole = np.ceil(numbers * 1000) if name in _THOUSANDTHS else np.round(numbers)
        values[name] = whole.astype(np.int64).tolist()
    edges = series.edges_ps.tolist()
    return {
        "measures": [{"key": name, "title": _TITLES[name]} for name in MEASURES],
        "values": values,
        "limits": {
            name: [limit * 1000 if name in _THOUSANDTHS else limit for limit in view.limits(name)] for name in MEASURES
        },
        "levels": {name: view.level_names(name) for name in MEASURES},
        "colours": {name: [IDLE, *SCALES[name]] for name in MEASURES},
        "x": view.x.round(5).tolist(),
        "y": view.y.round(5).tolist(),
        "names": [literal(name) for name in fabric.names],
        "links": fabric.links.tolist(),
        "cables": fabric.cables.tolist(),
        "busiest": [literal(name) for name in view.loads.busiest],
        "times": [
            "whole run",
            *(f"{time_text(start)} – {time_text(end)}" for start, end in pairwise(edges)),
        ],
        "classes": list(series.classes),
        "filters": _filters(view),
    }


def _filters(view: FabricView) -> list[dict[str, Any]]:
    """Groups of choices: each with the numbers of the links that it keeps."""
    fabric = view.fabric
    tiers: dict[tuple[int, int], list[int]] = {}
    devices: dict[int, list[int]] = {}
    for number, (a, b) in enumerate(fabric.links.tolist()):
        low, high = sorted((a, b), key=lambda node: int(fabric.ranks[node]))
        tiers.setdefault((int(fabric.ranks[low]), int(fabric.ranks[high])), []).append(number)
        for node in (a, b):
            devices.setdefault(node, []).append(number)
    named = {}
    for rank in np.unique(fabric.ranks).tolist():
        mine = list(
            dict.fromkeys(tier for tier, other in zip(fabric.tiers, fabric.ranks, strict=True) if other == rank)
        )
        named[rank] = "/".join(mine) or "switch"
    groups = [
        {
            "title": "tiers",
            "options": [
                {"name": f"{named[low]} – {named[high]}", "links": links}
                for (low, high), links in sorted(tiers.items())
            ],
        }
    ]
    switches = [
        node for node in sorted(devices, key=lambda item: (-int(fabric.ranks[item]), item)) if fabric.ranks[node] > 0
    ]
    hosts = [node for node in sorted(devices) if fabric.ranks[node] <= 0]
    for title, nodes in (("switches", switches), ("hosts", hosts)):
        options = [{"name": fabric.names[node], "links": devices[node]} for node in nodes[:DEVICES_LISTED]]
        if options:
            groups.append({"title": title, "options": options})
    return groups
