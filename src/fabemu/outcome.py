"""What collectives, jobs and training steps came to: rows of tables from what operations came to at the end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fabemu.distinct import distinct
from fabemu.plan import OP_CALC, OP_SCALE_UP, Plan
from fabemu.trace import ALGORITHMS, COLLECTIVES, NONE, PURPOSES
from fabemu.workload.graph import OperationGraph, StepTrack
from fabemu.workload.pipeline import ideal_bubble

_DONE = 2  # `status` of Engine.ops()

Int64s = NDArray[np.int64]


def collective_rows(
    graph: OperationGraph, plan: Plan, state: Mapping[str, np.ndarray], receiver: np.ndarray
) -> dict[str, np.ndarray]:
    """Columns of the `collectives` table.

    Parameters
    ----------
    graph
        Operations by their numbers.
    plan
        What was simulated.
    state
        As `Engine.ops` gives it.
    receiver
        (F,) host that receives each message.
    """
    count = len(graph.collectives)
    of_op = graph.op_collective
    member = np.flatnonzero(of_op != NONE)
    number = of_op[member]
    posted_ps, done_ps, done = state["posted_ps"][member], state["done_ps"][member], state["status"][member] == _DONE
    never = np.iinfo(np.int64).max
    start_ps = np.full(count, never)
    # A stage of a pipeline is ready to receive long before there is anything to send.
    one_way = np.array([item.purpose == "pipeline" for item in graph.collectives], np.bool_)
    begun = (posted_ps >= 0) & (plan.is_message[member] | ~one_way[number])
    np.minimum.at(start_ps, number[begun], posted_ps[begun])
    # The data is where it belongs when the last recv is done, and what is added to it: acknowledgements come later.
    ends = ~plan.is_message[member]
    end_ps = np.full(count, NONE, dtype=np.int64)
    np.maximum.at(end_ps, number[ends], done_ps[ends])
    whole = np.ones(count, np.bool_)
    whole[number[~done]] = False
    end_ps[~whole] = NONE
    start_ps[start_ps == never] = NONE
    known = whole & (end_ps != NONE) & (start_ps != NONE)
    time_ps = np.where(known, end_ps - start_ps, NONE)

    flows = graph.flows
    moved = np.flatnonzero(flows.collective != NONE)
    inside = plan.op_kind[moved] == OP_SCALE_UP
    arrival_ps = state["delivered_ps"][moved]
    came = arrival_ps >= 0
    # Of equal times the message with the highest number.
    order = np.lexsort((moved, arrival_ps, flows.collective[moved]))
    last_of = np.flatnonzero(np.diff(flows.collective[moved][order], append=-2))
    last_flow = np.full(count, NONE, dtype=np.int64)
    last_flow[flows.collective[moved][order][last_of]] = moved[order][last_of]
    last_flow[~known] = NONE
    items = graph.collectives
    size = np.array([item.size_bytes for item in items], dtype=np.int64)
    factor = np.array([item.bus_factor for item in items])
    with np.errstate(divide="ignore", invalid="ignore"):
        algbw = np.where(time_ps > 0, size * 8e12 / time_ps, np.nan)
    labels = {label: index for index, label in enumerate(flows.labels)}
    return {
        "collective": np.arange(count),
        "label": np.array([labels[item.label] for item in items]),
        "job": graph.job_of_label[[labels[item.label] for item in items]],
        "operation": np.array([COLLECTIVES.index(item.operation) for item in items]),
        "algorithm": np.array([ALGORITHMS.index(item.algorithm) for item in items]),
        "purpose": np.array([NONE if item.purpose is None else PURPOSES.index(item.purpose) for item in items]),
        "iteration": np.array([item.iteration for item in items]),
        "ranks": np.array([item.ranks for item in items]),
        "bytes": size,
        "start_ps": start_ps,
        "end_ps": end_ps,
        "time_ps": time_ps,
        "ideal_ps": np.array([item.ideal_ps for item in items], dtype=np.int64),
        "algbw_bps": algbw,
        "busbw_bps": algbw * factor,
        "messages": np.bincount(flows.collective[moved], minlength=count),
        "scale_up_bytes": _sums(flows.collective[moved[inside & came]], flows.bytes[moved[inside & came]], count),
        "network_bytes": _sums(flows.collective[moved[~inside & came]], flows.bytes[moved[~inside & came]], count),
        "last_host": np.where(last_flow == NONE, NONE, receiver[last_flow] if len(receiver) else NONE),
        "last_flow": last_flow,
    }


def job_rows(
    graph: OperationGraph,
    plan: Plan,
    state: Mapping[str, np.ndarray],
    end_ps: int,
    collectives: Mapping[str, np.ndarray] | None,
    host_node: np.ndarray,
) -> dict[str, np.ndarray]:
    """Columns of the `jobs` table.

    Parameters
    ----------
    graph, plan, state
        As for `collective_rows`.
    end_ps
        End of the run: what is computed then ends there.
    collectives
        What `collective_rows` gave, if there are any.
    host_node
        (H,) server of every host.
    """
    jobs = graph.jobs
    count = len(jobs)
    of_op = graph.job_of_label[graph.op_label_id]
    status, done_ps = state["status"], state["done_ps"]
    mine = of_op != NONE
    last_ps = np.full(count, NONE, dtype=np.int64)
    np.maximum.at(last_ps, of_op[mine], done_ps[mine])
    left = np.bincount(of_op[mine & (status != _DONE)], minlength=count)
    last_ps[left > 0] = NONE
    start_ps = np.array([job.start_ps for job in jobs], dtype=np.int64)
    completion_ps = np.where(last_ps == NONE, NONE, last_ps - start_ps)

    sends = mine & plan.is_message
    inside = plan.op_kind == OP_SCALE_UP
    came = sends & (state["delivered_ps"] >= 0)
    ranks = np.array([len(job.hosts) for job in jobs])
    compute_ps = np.zeros(count, dtype=np.int64)
    for index in range(count):
        calc = np.flatnonzero((of_op == index) & (plan.op_kind == OP_CALC) & (state["posted_ps"] >= 0))
        stop_ps = np.where(done_ps[calc] < 0, end_ps, done_ps[calc])
        compute_ps[index] = round(_covered_ps(plan.op_host[calc], state["posted_ps"][calc], stop_ps) / ranks[index])
    busbw = np.full(count, np.nan)
    if collectives is not None:
        known = (collectives["job"] != NONE) & (collectives["time_ps"] > 0)
        job, time_ps = collectives["job"][known], collectives["time_ps"][known]
        weighted = np.bincount(job, collectives["busbw_bps"][known] * time_ps, minlength=count)
        total = np.bincount(job, time_ps, minlength=count)
        np.divide(weighted, total, out=busbw, where=total > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(completion_ps > 0, 1 - compute_ps / completion_ps, np.nan)
    return {
        "job": np.arange(count),
        "ranks": ranks,
        "nodes": np.array([len(distinct(host_node[job.hosts])) for job in jobs]),
        "start_ps": start_ps,
        "end_ps": last_ps,
        "completion_ps": completion_ps,
        "messages": np.bincount(of_op[sends], minlength=count),
        "unfinished": np.bincount(of_op[sends & (status != _DONE)], minlength=count),
        "scale_up_bytes": _sums(of_op[came & inside], plan.op_bytes[came & inside], count),
        "network_bytes": _sums(of_op[came & ~inside], plan.op_bytes[came & ~inside], count),
        "compute_ps": compute_ps,
        "communication_share": share,
        "busbw_bps": busbw,
    }


def step_rows(graph: OperationGraph, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the `steps` table; arguments as of `collective_rows`."""
    labels = {label: index for index, label in enumerate(graph.flows.labels)}
    parts = []
    for track in graph.tracks:
        label = labels[track.label]
        columns = _steps_of(track, len(graph.flows), state)
        count = track.steps
        columns |= {
            "label": np.full(count, label),
            "job": np.full(count, graph.job_of_label[label]),
            "step": np.arange(count),
            "bubble_ideal": np.full(count, ideal_bubble(track.stages, track.micro_batches)),
            "tokens": np.full(count, track.tokens),
        }
        parts.append(columns)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _steps_of(track: StepTrack, message_count: int, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the steps of one workload came to."""
    order = np.argsort(track.rank, kind="stable")
    op = track.calc[order] + message_count
    rank, step, purpose = track.rank[order], track.step[order], track.purpose[order]
    posted_ps, done_ps, done = state["posted_ps"][op], state["done_ps"][op], state["status"][op] == _DONE
    left = np.bincount(step[~done], minlength=track.steps)
    # Steps are whole up to the first that is not.
    whole = np.cumsum(left) == 0
    last_ps = np.full(track.steps, track.start_ps)
    np.maximum.at(last_ps, step[done], done_ps[done])
    last_ps = np.maximum.accumulate(last_ps)
    begin_ps = np.append(track.start_ps, last_ps[:-1])

    kept = whole[step]
    rank, step, purpose = rank[kept], step[kept], purpose[kept]
    posted_ps, done_ps = posted_ps[kept], done_ps[kept]
    first = np.diff(rank, prepend=NONE) != 0
    ended_ps = np.where(first, track.start_ps, np.roll(done_ps, 1))
    before = np.where(first, 0, np.roll(step, 1))
    # A rank that is done with a step waits for the others until the step ends: what is left is of the next one.
    turn_ps = np.where(before == step, ended_ps, np.clip(last_ps[before], ended_ps, posted_ps))
    waited = np.zeros((len(PURPOSES), track.steps), dtype=np.int64)
    of = np.where(purpose == NONE, PURPOSES.index("data"), purpose)
    np.add.at(waited, (of, before), turn_ps - ended_ps)
    np.add.at(waited, (of, step), posted_ps - turn_ps)
    computed = np.zeros(track.steps, dtype=np.int64)
    np.add.at(computed, step, done_ps - posted_ps)
    final = np.diff(rank, append=NONE) != 0
    others = np.full(len(of), PURPOSES.index("pipeline")) if track.stages > 1 else of
    np.add.at(waited, (others[final], step[final]), last_ps[step[final]] - done_ps[final])

    count = track.rank_count
    mean = np.where(whole, waited // count, NONE)
    step_ps = np.where(whole, last_ps - begin_ps, NONE)
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(step_ps > 0, step_ps * 1e-12, np.nan)
        flops = track.flops / seconds / count
    return {
        "start_ps": np.where(whole, begin_ps, NONE),
        "end_ps": np.where(whole, last_ps, NONE),
        "step_ps": step_ps,
        "compute_ps": np.where(whole, computed // count, NONE),
        "exposed_ps": np.where(whole, mean.sum(axis=0), NONE),
        **{f"{name}_ps": mean[index] for index, name in enumerate(PURPOSES)},
        "bubble_share": mean[PURPOSES.index("pipeline")] * 1e-12 / seconds,
        "tokens_per_s": track.tokens / seconds,
        "flops": flops,
        "utilisation": np.full(track.steps, np.nan) if track.peak_flops is None else flops / track.peak_flops,
    }


def _sums(number: np.ndarray, values: np.ndarray, count: int) -> Int64s:
    """(count,) exact sums of int64 values by number."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, number, values)
    return total


def _covered_ps(host: np.ndarray, start_ps: np.ndarray, end_ps: np.ndarray) -> int:
    """Time that intervals of each host cover, overlaps once, summed over the hosts."""
    order = np.lexsort((start_ps, host))
    host, start_ps, end_ps = host[order], start_ps[order], end_ps[order]
    edges = np.append(np.flatnonzero(np.diff(host, prepend=NONE)), len(host))
    total = 0
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        start, end = start_ps[first:last], end_ps[first:last]
        before = np.concatenate([[0], np.maximum.accumulate(end)[:-1]])
        total += int(np.maximum(end - np.maximum(start, before), 0).sum())
    return total
