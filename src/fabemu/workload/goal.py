"""Operations of a GOAL file on the hosts of a fabric."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.errors import InputError
from fabemu.importers.goal import GoalTrace, read_goal
from fabemu.importers.goal_text import RECV, SEND
from fabemu.plan import OP_CALC, OP_RECV
from fabemu.precedence import levels
from fabemu.scenario.workload import Goal
from fabemu.units import LIMIT, format_time
from fabemu.workload.context import WorkloadContext
from fabemu.workload.flow import NONE
from fabemu.workload.graph import GraphBuilder, OperationGraph

Int64s = NDArray[np.int64]


def goal_graph(table: Goal, context: WorkloadContext) -> OperationGraph:
    """Operations of a `goal` workload: rank i is host i of its hosts, or rank i of its job.

    Raises
    ------
    ScenarioError
        A host is unknown, or there are more ranks than hosts.
    InputError
        The file is wrong, or a calc takes too long.
    """
    hosts = context.ranks(table.hosts, gpus=False)
    trace = read_goal(context.base_dir / table.path)
    if trace.rank_count > len(hosts):
        of = f'job "{context.job.name}" has' if context.job and table.hosts == "all" else "there are"
        message = f"has {trace.rank_count:,} ranks, but {of} {len(hosts):,} hosts: each rank needs one of its own"
        way_out = "; enlarge the job" if context.job else "; enlarge [fabric], or name more hosts"
        raise context.error("path", message + way_out, f'"{table.path}"')
    host = hosts[trace.rank]
    number = np.empty(len(trace), dtype=np.int64)
    builder = GraphBuilder(label=context.label, class_id=context.class_id, verb=context.verb, start_ps=table.start)

    sends = np.flatnonzero(trace.kind == SEND)
    lane = _lanes(trace, sends, table.qps)
    sends, lane = _possible(trace, sends, lane)
    number[sends] = builder.sends(host[sends], hosts[trace.peer[sends]], trace.value[sends], lane=lane)
    # The rest keeps the order of the file: it decides what runs first of what is due at once.
    rest = np.flatnonzero(trace.kind != SEND)
    recv = trace.kind[rest] == RECV
    duration_ps = np.zeros(len(rest), dtype=np.int64)
    duration_ps[~recv] = _durations_ps(trace, rest[~recv], table, context.slowdown(hosts))
    received = np.where(recv, number[trace.send[rest]], NONE) if len(sends) else NONE
    number[rest] = builder.others(np.where(recv, OP_RECV, OP_CALC), host[rest], received, duration_ps)
    builder.edges(number[trace.before], number[trace.after])
    return builder.build()


def _durations_ps(trace: GoalTrace, calcs: Int64s, table: Goal, slowdown: NDArray[np.float64] | None) -> Int64s:
    value = trace.value[calcs]
    slowest = 1.0 if slowdown is None else float(slowdown.max())
    most = int(LIMIT // table.calc_unit / slowest)
    late = calcs[value >= most]
    if len(late):
        first = int(late[0])
        raise InputError(
            f"{trace.source}:{trace.line[first]}: calc {trace.value[first]} takes too long in units of "
            f"{format_time(table.calc_unit)}; it must be below {most}"
        )
    length_ps = value * table.calc_unit
    if slowdown is None:
        return length_ps
    return np.rint(length_ps * slowdown[trace.rank[calcs]]).astype(np.int64)


def _lanes(trace: GoalTrace, sends: Int64s, sharing: str) -> Int64s:
    """(M,) a number for every message; those of one source and destination with the same one share a queue pair."""
    if sharing == "message":
        return np.arange(len(sends))
    if sharing == "nic":
        return _dense(trace.nic[sends])
    return _dense(_dense(trace.nic[sends]) * (len(sends) + 1) + _dense(trace.tag[sends]))


def _dense(values: Int64s) -> Int64s:
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _possible(trace: GoalTrace, sends: Int64s, lane: Int64s) -> tuple[Int64s, Int64s]:
    """Sends in the order of the file, or in one in which every queue pair can send its messages.

    A queue pair sends in order, whereas a trace may let a message go first that stands later. Such queue pairs send
    what depends on less before what depends on more, if and only if their order in the file could never come to an end.
    """
    if not len(sends):
        return sends, lane
    pair = trace.rank[sends] * trace.rank_count + trace.peer[sends]
    order = np.lexsort((lane, pair))
    same = (pair[order][1:] == pair[order][:-1]) & (lane[order][1:] == lane[order][:-1])
    level = trace.level[sends]
    backwards = same & (level[order][1:] < level[order][:-1])
    if not backwards.any():
        # Dependencies lead to higher levels and queue pairs never to lower ones: no cycle.
        return sends, lane
    queue = np.concatenate([sends[order[:-1][same]], sends[order[1:][same]]]).reshape(2, -1)
    sent, received = trace.message_edges()
    before, after = np.concatenate([trace.before, sent, queue[0]]), np.concatenate([trace.after, received, queue[1]])
    if (levels(len(trace), before, after) >= 0).all():
        return sends, lane
    number = np.cumsum(np.concatenate([[True], ~same])) - 1
    turned = np.zeros(number[-1] + 1, np.bool_)
    turned[number[1:][backwards]] = True
    # The messages of such a queue pair share out the places that they have among all sends.
    moved = turned[number]
    by_level = order[np.lexsort((level[order], number))]
    sends = sends.copy()
    sends[order[moved]] = sends[by_level[moved]]
    return sends, lane
