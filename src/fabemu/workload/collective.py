"""Collectives of a workload: the schedule that its ranks follow, run again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabemu.collectives import exchange, experts, operations
from fabemu.collectives.bounds import bus_factor
from fabemu.collectives.extent import extents
from fabemu.collectives.schedule import Schedule
from fabemu.errors import ScenarioError
from fabemu.scenario import workload
from fabemu.units import LIMIT
from fabemu.workload.context import WorkloadContext
from fabemu.workload.draw import Draw
from fabemu.workload.flow import NONE
from fabemu.workload.graph import Collective, GraphBuilder, OperationGraph
from fabemu.workload.placement import ranks_of_nodes
from fabemu.workload.program import Program

if TYPE_CHECKING:
    from fabemu.topology.fabric import Fabric

_BY_NODE = ("ring", "tree", "hierarchical")


def collective_graph(table: workload.Collective, context: WorkloadContext) -> OperationGraph:
    """Operations of a `collective` workload: its runs one after another, at every rank by itself.

    A rank begins the next run when all that it had to receive in the last one has come and all that it had to send is
    acknowledged, and it has computed.

    Raises
    ------
    ScenarioError
        A host is unknown, or the operation cannot be done so by these ranks.
    """
    hosts = context.ranks(table.hosts)
    schedule, algorithm, ranks = collective_schedule(table, context, hosts)
    stragglers = () if context.job is None else context.job.straggler
    slowest = max((float(item.slowdown) for item in stragglers), default=1.0)
    if table.iterations * table.compute * slowest >= LIMIT:
        raise context.error("compute", "with all iterations is more than 2^62 ps: fewer, or less", str(table.compute))
    builder = GraphBuilder(label=context.label, class_id=context.class_id, verb=context.verb, start_ps=table.start)
    program = Program(builder, hosts, slowdown=context.slowdown(hosts))
    lanes = program.connections(table.channels * table.qps)
    after = np.full(len(hosts), NONE, dtype=np.int64)
    size_bytes = table.size if table.size is not None else int(np.max(schedule.input_bytes, initial=0))
    named = "all_to_all" if table.is_moe else table.operation.replace("-", "_")
    runs = []
    for iteration in range(table.iterations):
        if not schedule.transfer_count:
            # Nothing to send, or nobody to send it to: it is done at once, and has its time like any other.
            after = program.compute(ranks, 0, after, collective=iteration)
        before, rank = program.run(
            schedule,
            ranks,
            after,
            lanes=lanes,
            qps=table.qps,
            element_bytes=table.element,
            reduce_rate_bps=table.reduce_rate,
            collective=iteration,
        )
        after = program.join(before, rank, ranks, after, duration_ps=table.compute, collective=NONE)
        runs.append(
            Collective(
                label=context.label,
                operation=table.operation,
                algorithm=algorithm,
                iteration=iteration,
                ranks=len(hosts),
                size_bytes=size_bytes,
                bus_factor=float(bus_factor(named, len(hosts))),
            )
        )
    return builder.build(runs)


def collective_schedule(
    table: workload.Collective, context: WorkloadContext, hosts: np.ndarray
) -> tuple[Schedule, str, np.ndarray]:
    """The schedule of one run, the algorithm that it follows, and (R,) the rank that each of its ranks is.

    Raises
    ------
    ScenarioError
        The operation cannot be done so by these ranks.
    """
    count = len(hosts)
    if (table.size or 0) * 2 * count >= LIMIT:
        limit = LIMIT // (2 * count)
        raise context.error("size", f"at most {limit:,} B with {count} ranks", f"{table.size} B")
    if table.root >= count:
        raise context.error("root", f"there are ranks 0 to {count - 1}", str(table.root))
    options: dict[str, Any] = {"channels": table.channels, "element_bytes": table.element}
    try:
        if table.operation == "all-to-all" or table.is_moe:
            return _exchange(table, context, hosts, options)
        if table.operation == "send-recv":
            # As nccl-tests has it: every rank to the next, and from the one before.
            ranks = np.arange(count)
            following = (ranks + 1) % count
            chunk = table.chunk or 0
            schedule = exchange.send_recv(count, ranks, following, table.size or 0, chunk_bytes=chunk, **options)
            return schedule, "direct", ranks
        if table.operation in ("gather", "scatter"):
            build = exchange.gather if table.operation == "gather" else exchange.scatter
            schedule = build(count, table.size or 0, root=table.root, chunk_bytes=table.chunk or 0, **options)
            return schedule, "direct", np.arange(count)
        return *_reduction(table, context, hosts, options), np.arange(count)
    except ValueError as error:
        if isinstance(error, ScenarioError):
            raise
        raise context.error("operation", str(error), f'"{table.operation}"') from None


def _exchange(
    table: workload.Collective, context: WorkloadContext, hosts: np.ndarray, options: dict[str, Any]
) -> tuple[Schedule, str, np.ndarray]:
    count = len(hosts)
    order = np.arange(count)
    algorithm = "pairwise" if table.algorithm == "auto" else table.algorithm
    more = {**options, "algorithm": algorithm, "chunk_bytes": table.chunk or 0, "window": table.window}
    if algorithm == "hierarchical":
        # Nodes are consecutive ranks in the schedule, whatever they are in the job.
        order, more["ranks_per_node"] = ranks_of_nodes(context.fabric, hosts)
        if more["ranks_per_node"] is None:
            raise context.error(
                "algorithm", "needs as many ranks on every node: use pairwise, or another placement", '"hierarchical"'
            )
    if table.matrix is not None:
        if len(table.matrix) != count:
            raise context.error("matrix", f"has {len(table.matrix)} rows, there are {count} ranks")
        matrix = np.array(table.matrix, dtype=np.int64)
    elif table.is_moe:
        matrix = _copies(table, context, count)
    else:
        matrix = _even(count, table.size or 0, table.element)
    return exchange.all_to_all_uneven(matrix[np.ix_(order, order)], **more), algorithm, order


def _even(count: int, size_bytes: int, element_bytes: int) -> np.ndarray:
    """(R, R) bytes from each rank to each: blocks as even as whole elements allow."""
    _, block = extents(size_bytes, count, element_bytes)
    return np.broadcast_to(block, (count, count))


def _copies(table: workload.Collective, context: WorkloadContext, count: int) -> np.ndarray:
    """(R, R) bytes of tokens from each rank to each."""
    tokens, expert_count = table.tokens or 0, count if table.experts is None else table.experts
    if expert_count % count:
        least = -(-expert_count // count) * count
        raise context.error("experts", f"are not spread evenly over {count} ranks; take {least}", str(expert_count))
    if table.top_k > expert_count:
        raise context.error("top_k", f"there are {expert_count} experts", str(table.top_k))
    if table.routing == "balanced":
        copies = experts.balanced_copies(count, tokens, table.top_k)
    else:
        # By the seed and the layer alone: what comes back is what went out.
        draw = Draw(context.scenario.seed, f"{tokens}/{table.top_k}/{expert_count}", 0, "experts")
        draws = draw.uniform(tokens * table.top_k).reshape(tokens, table.top_k)
        copies = experts.drawn_copies(draws, count, expert_count)
    matrix = experts.combine_matrix if table.operation == "moe-combine" else experts.dispatch_matrix
    return matrix(copies, table.width, table.token_element)


def _reduction(
    table: workload.Collective, context: WorkloadContext, hosts: np.ndarray, options: dict[str, Any]
) -> tuple[Schedule, str]:
    if table.operation in ("broadcast", "reduce"):
        options["root"] = table.root
    try:
        return reduction_schedule(
            table.operation,
            table.algorithm,
            table.size or 0,
            hosts,
            context.fabric,
            by_node=table.order == "node",
            chunk_bytes=table.chunk,
            **options,
        )
    except UnevenNodesError as error:
        raise context.error("algorithm", str(error), f'"{table.algorithm}"') from None


class UnevenNodesError(ValueError):
    """An algorithm wants as many ranks on every node."""


def reduction_schedule(
    operation: str,
    algorithm: str,
    size_bytes: int,
    hosts: np.ndarray,
    fabric: Fabric,
    *,
    by_node: bool = True,
    **options: Any,
) -> tuple[Schedule, str]:
    """The schedule of an all-reduce, all-gather, reduce-scatter, broadcast or reduce, and its algorithm.

    Parameters
    ----------
    operation, algorithm
        As a scenario names them.
    size_bytes
        As nccl-tests counts it.
    hosts
        (R,) of the ranks.
    fabric
        Where servers are.
    by_node
        Whether rings and trees go node by node.
    options
        Further parameters of the functions of `fabemu.collectives.operations`.

    Raises
    ------
    UnevenNodesError
        The algorithm is hierarchical and nodes differ in their ranks.
    ValueError
        These ranks cannot do it so.
    """
    named, count = operation.replace("-", "_"), len(hosts)
    order, per_node = ranks_of_nodes(fabric, hosts)
    several = per_node is not None and 1 < per_node < count
    chosen = operations.chosen_algorithm(
        named, algorithm.replace("-", "_"), count, size_bytes, per_node if several else None
    )
    if chosen == "hierarchical":
        if per_node is None:
            raise UnevenNodesError("needs as many ranks on every node: use ring, or another placement")
        options |= {"ranks_per_node": per_node, "ring_order": order}
    elif by_node and chosen in _BY_NODE:
        options["ring_order"] = order
        if several:
            options["ranks_per_node"] = per_node
    schedule: Schedule = getattr(operations, named)(count, size_bytes, algorithm=chosen, **options)
    return schedule, chosen.replace("_", "-")
