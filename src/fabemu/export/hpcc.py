"""The files ``fct.txt`` and ``pfc.txt`` of the HPCC family of ns-3 simulators, for the scripts that read them.

Source: alibaba-edu/High-Precision-Congestion-Control, commit 9f4be2a, simulation/scratch/third.cc: `qp_finish` writes a
line of ``fct.txt`` when the last byte is acknowledged, `get_pfc` one of ``pfc.txt`` when a PFC frame arrives.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fabemu.compile import Compiled
from fabemu.compile.traffic import source_ports
from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError, OutputError
from fabemu.export.output import refuse_existing, replacing
from fabemu.ideal import ideal_paths
from fabemu.plan import VERB_SCALE_UP
from fabemu.recorded.source import Source
from fabemu.trace import PAUSE_ENDS, VERBS, dictionary_column, integer_column, read_table

FCT_FILE, PFC_FILE = "fct.txt", "pfc.txt"
DESTINATION_PORT = 100
"""What flow files of the family usually have, and what their script for completion times asks for."""

_PS_PER_NS = 1000
_IP_FIRST, _IP_HIGH, _IP_LOW = 0x0B000001, 0x10000, 0x100
_NODES_MAX = 65_536
_XON = PAUSE_ENDS.index("xon")
_LINES = 65_536  # made into text at once

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class HpccFiles:
    """What was written.

    Attributes
    ----------
    directory
        Where the files are.
    flows, frames
        Lines of ``fct.txt``, and of ``pfc.txt``.
    notes
        What is not in them.
    """

    directory: Path
    flows: int
    frames: int
    notes: tuple[str, ...]


def export_hpcc(directory: Path, output: Path, *, force: bool = False) -> HpccFiles:
    """Write ``fct.txt`` and ``pfc.txt``.

    ``fct.txt``: source and destination address in hex, source and destination port, bytes, start in ns, completion time
    in ns up to the last acknowledgement, and what the simulator takes for the completion time on an empty network; in
    the order in which the messages were done. ``pfc.txt``: time in ns, node, 1 if it is a switch, interface (from 1),
    and 1 for a pause or 0 for its end, at the node that is paused.

    Parameters
    ----------
    directory
        Run directory with the `flows` table; with `pauses`, both files are written.
    output
        Directory to write to; made if it is not there.
    force
        Replace existing files.

    Raises
    ------
    InputError
        No run, no `flows` table, a scenario that is not that of the run, or more nodes than addresses.
    OutputError, MachineError
        A file exists, or cannot be written.
    """
    source = Source.open(directory)
    flows_path = source.table("flows")
    compiled = source.compiled
    nodes = _node_ids(compiled)
    if int(nodes.max(initial=0)) >= _NODES_MAX:
        raise InputError(f"{len(nodes):,} nodes; addresses of the format have 16 bits for them")
    pauses_path = directory / "pauses.arrow"
    notes = []
    if source.partial is not None:
        notes.append(f"partial: {source.partial}")
    if output.exists() and not output.is_dir():
        raise OutputError(f"{output}: is a file; choose a directory with -o")
    for name in (FCT_FILE, PFC_FILE):
        refuse_existing(output / name, force=force, inside=directory)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{output}: cannot be made: {error.strerror or error}") from error
    fct, left_out = _fct(compiled, nodes, flows_path)
    if left_out:
        are = "is" if left_out == 1 else "are"
        notes.append(f"{counted(left_out, 'message')} {are} not in {FCT_FILE}: not done, or inside a scale-up domain")
    _write(output / FCT_FILE, "%08x %08x %d %d %d %d %d %d\n", fct, directory, force=force)
    frames = 0
    if pauses_path.is_file():
        pfc = _pfc(compiled, nodes, pauses_path)
        _write(output / PFC_FILE, "%d %d %d %d %d\n", pfc, directory, force=force)
        frames = len(pfc)
    else:
        notes.append(f"no {PFC_FILE}: the run has no pauses table")
    return HpccFiles(output, len(fct), frames, tuple(notes))


def _write(path: Path, form: str, lines: Int64s, directory: Path, *, force: bool) -> None:
    with replacing(path, force=force, inside=directory) as file:
        for first in range(0, len(lines), _LINES):
            part = lines[first : first + _LINES]
            file.write(((form * len(part)) % tuple(part.ravel().tolist())).encode())


def _node_ids(compiled: Compiled) -> Int64s:
    """(N,) ids of the nodes: those in the names that `fabemu import hpcc` gives, else their own numbers."""
    hosts = compiled.plan.host_count
    found = [
        re.fullmatch("h([0-9]+)" if node < hosts else "sw([0-9]+)", name)
        for node, name in enumerate(compiled.node_names)
    ]
    ids = [int(match[1]) for match in found if match is not None]
    count = len(compiled.node_names)
    # Only in those files are the ids of hosts and switches those of one list.
    if sorted(ids) == list(range(count)):
        return np.array(ids, dtype=np.int64)
    return np.arange(count)


def _fct(compiled: Compiled, nodes: Int64s, path: Path) -> tuple[Int64s, int]:
    """Lines of completion times, and how many messages have none."""
    plan = compiled.plan
    table = read_table(path, ["op", "qp", "src", "dst", "verb", "bytes", "posted_ps", "sender_done_ps"])
    verb, _ = dictionary_column(table, "verb")
    posted_ps, done_ps = integer_column(table, "posted_ps"), integer_column(table, "sender_done_ps")
    chosen = np.flatnonzero((done_ps >= 0) & (posted_ps >= 0) & (verb != VERBS.index("scale-up")))
    assert VERBS[VERB_SCALE_UP] == "scale-up"
    op = integer_column(table, "op")[chosen]
    order = np.lexsort((op, done_ps[chosen]))
    chosen, op = chosen[order], op[order]
    src, dst = (dictionary_column(table, name)[0][chosen] for name in ("src", "dst"))
    size, qp = integer_column(table, "bytes")[chosen], integer_column(table, "qp")[chosen]
    first_flow = plan.qp_op[plan.qp_op_start[:-1]]
    ports, _ = source_ports(plan.seed, compiled.flows.sport[first_flow].astype(np.int64))
    start_ns = posted_ps[chosen] // _PS_PER_NS
    lines = np.stack(
        [
            _address(nodes[src]),
            _address(nodes[dst]),
            ports[qp] if len(qp) else qp,
            np.full(len(qp), DESTINATION_PORT),
            size,
            start_ns,
            (done_ps[chosen] - posted_ps[chosen]) // _PS_PER_NS,
            _standalone_ns(compiled, src, dst, size),
        ],
        axis=1,
    )
    return lines, len(table) - len(lines)


def _address(node: Int64s) -> Int64s:
    return _IP_FIRST + (node >> 8) * _IP_HIGH + (node & 0xFF) * _IP_LOW


def _standalone_ns(compiled: Compiled, src: Int64s, dst: Int64s, size: Int64s) -> Int64s:
    """(n,) completion time without other traffic by the formula of the simulator.

    Twice the delays of the links, the time of one full payload on each, and all bytes with their headers at the slowest
    link; whole ns, each part cut.
    """
    plan = compiled.plan
    result = np.zeros(len(size), dtype=np.int64)
    for first in range(0, len(size), _LINES):
        part = slice(first, first + _LINES)
        pairs, which = np.unique(np.stack([src[part], dst[part]]), axis=1, return_inverse=True)
        ports, lengths = ideal_paths(plan, pairs[0].astype(np.int32), pairs[1].astype(np.int32))
        present = np.arange(ports.shape[1])[None, :] < lengths[:, None]
        rate_bps = plan.port_rate_bps[ports]
        payload_ns = np.where(present, plan.mtu_bytes * 8 * 10**9 // rate_bps, 0).sum(axis=1)
        delay_ns = np.where(present, plan.port_delay_ps[ports] // _PS_PER_NS, 0).sum(axis=1)
        slowest_bps = np.where(present, rate_bps, np.iinfo(np.int64).max).min(axis=1)
        which = which.reshape(-1)
        packets = np.maximum(1, -(-size[part] // plan.mtu_bytes))
        # bits * 10^9 // rate, digit by digit: the product passes 2^63 for messages above a gigabyte.
        sent_ns, rest = np.divmod((size[part] + packets * plan.header_bytes) * 8, slowest_bps[which])
        for _ in range(3):
            more, rest = np.divmod(rest * 1000, slowest_bps[which])
            sent_ns = sent_ns * 1000 + more
        result[part] = 2 * delay_ns[which] + payload_ns[which] + sent_ns
    return result


def _pfc(compiled: Compiled, nodes: Int64s, path: Path) -> Int64s:
    """Lines of pauses and their ends, by time."""
    plan = compiled.plan
    table = read_table(path, ["start_ps", "end_ps", "paused_port", "end"])
    start_ps, end_ps = integer_column(table, "start_ps"), integer_column(table, "end_ps")
    end, _ = dictionary_column(table, "end")
    port, _ = dictionary_column(table, "paused_port")
    node = plan.port_node[port].astype(np.int64)
    interface = port - plan.node_port_start[node] + 1
    parts = []
    for time_ps, kind in ((start_ps, 1), (np.where(end == _XON, end_ps, -1), 0)):
        there = np.flatnonzero(time_ps >= 0)
        columns = (
            time_ps[there] // _PS_PER_NS,
            nodes[node[there]],
            node[there] >= plan.host_count,
            interface[there],
            np.full(len(there), kind),
        )
        parts.append(np.stack(columns, axis=1).astype(np.int64))
    lines = np.concatenate(parts)
    return lines[np.lexsort((lines[:, 4], lines[:, 3], lines[:, 1], lines[:, 0]))]
