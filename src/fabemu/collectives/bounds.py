"""How long collectives take at least, or take on an empty network: what measured times are held against.

Pure functions of bytes, bit/s and picoseconds. Every rank has a port that sends and one that receives at the same time,
both at `payload_bps`; data is in the hands of the receiver `latency_ps` after its last byte was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from fabemu.collectives.order import depths, double_tree

_BITS_PS = 8 * 10**12

BUS_FACTORS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "broadcast",
    "reduce",
    "send_recv",
)
"""Operations that have a bus factor."""


def bus_factor(operation: str, rank_count: int) -> Fraction:
    """Bus bandwidth over algorithm bandwidth, where the latter is size over time (nccl-tests, doc/PERFORMANCE.md).

    2 (n - 1) / n for all-reduce; (n - 1) / n for all-gather, reduce-scatter, all-to-all, gather and scatter; 1 for
    broadcast, reduce and send/recv. With it, the bus bandwidth of an algorithm that is as good as any is the bandwidth
    of a port, whatever the operation and the number of ranks.

    Raises
    ------
    ValueError
        The operation is unknown or there are no ranks.
    """
    if rank_count < 1:
        raise ValueError(f"rank_count is {rank_count}; it must be at least 1")
    if operation not in BUS_FACTORS:
        raise ValueError(f'unknown operation "{operation}"; one of {", ".join(BUS_FACTORS)}')
    if operation in {"broadcast", "reduce", "send_recv"}:
        return Fraction(1)
    return Fraction(rank_count - 1, rank_count) * (2 if operation == "all_reduce" else 1)


def payload_bps(line_bps: int, mtu_bytes: int = 4096, overhead_bytes: int = 82) -> int:
    """Payload of a link full of whole packets, bit/s rounded down: line rate times mtu / (mtu + overhead).

    82 bytes are what a RoCEv2 packet of 4096 takes besides on the wire, with preamble and gap: 4096 / 4178.
    """
    return line_bps * mtu_bytes // (mtu_bytes + overhead_bytes)


def transfer_ps(size_bytes: int | Fraction, payload_bps: int) -> int:
    """Time to send this much payload, rounded up."""
    return ceil(Fraction(size_bytes) * _BITS_PS / payload_bps)


def bandwidth_bound_ps(operation: str, rank_count: int, size_bytes: int, payload_bps: int) -> int:
    """No algorithm is faster: the bus factor times the size, through one port.

    For all-reduce see Patarasu, Yuan 2009; for gather, scatter, broadcast and reduce it is what the root
    sends or receives.
    """
    return transfer_ps(bus_factor(operation, rank_count) * size_bytes, payload_bps)


def ring_all_reduce_ps(rank_count: int, size_bytes: int, payload_bps: int, latency_ps: int) -> int:
    """2 (n - 1) / n S / B + 2 (n - 1) latencies: a block of S / n in each of 2 (n - 1) steps (Patarasu, Yuan 2009)."""
    return 2 * ring_gather_ps(rank_count, size_bytes, payload_bps, latency_ps)


def ring_gather_ps(rank_count: int, size_bytes: int, payload_bps: int, latency_ps: int) -> int:
    """All-gather or reduce-scatter on a ring: (n - 1) / n S / B + (n - 1) latencies; S is all blocks together."""
    block = Fraction(size_bytes, rank_count)
    return (rank_count - 1) * (transfer_ps(block, payload_bps) + latency_ps)


def doubling_gather_ps(rank_count: int, size_bytes: int, payload_bps: int, latency_ps: int) -> int:
    """All-gather by recursive doubling, or reduce-scatter by halving, on a power of two of ranks, else more.

    (n - 1) / n S / B + log2(n) latencies (Thakur, Rabenseifner, Gropp 2005). Beyond the largest
    power of two p, ranks give a block before, and then get all other blocks: two more steps.
    """
    power = 1 << (rank_count.bit_length() - 1)
    if power == rank_count:
        steps = power.bit_length() - 1
        return transfer_ps(Fraction(size_bytes * (rank_count - 1), rank_count), payload_bps) + steps * latency_ps
    # The slowest member sends what most others stand in for: two blocks of each that does.
    double = rank_count - power
    block = Fraction(size_bytes, rank_count)
    total = block + block * (rank_count - 1)
    held = [2 if member < double else 1 for member in range(power)]
    for level in range(power.bit_length() - 1):
        width = 1 << level
        total += block * max(sum(held[group : group + width]) for group in range(0, power, width))
    return transfer_ps(total, payload_bps) + (power.bit_length() - 1 + 2) * latency_ps


def halving_doubling_all_reduce_ps(rank_count: int, size_bytes: int, payload_bps: int, latency_ps: int) -> int:
    """Recursive halving and doubling (Thakur, Rabenseifner, Gropp 2005).

    With p the largest power of two: 2 (p - 1) / p S / B + 2 log2(p) latencies, and if there are more ranks, all the
    data twice and two latencies more.
    """
    power = 1 << (rank_count.bit_length() - 1)
    total = Fraction(2 * (power - 1) * size_bytes, power)
    steps = 2 * (power.bit_length() - 1)
    if power != rank_count:
        total += 2 * size_bytes
        steps += 2
    return transfer_ps(total, payload_bps) + steps * latency_ps


def tree_height(rank_count: int) -> int:
    """Steps from the leaves to the root of the deeper of two in-order trees: ceil(log2(n)), one for two ranks."""
    return max((rank_count - 1).bit_length(), 0)


def double_tree_load(rank_count: int) -> Fraction:
    """Data that the busiest rank sends in a double binary tree all-reduce, over the data: 2, less on 1 to 3 ranks.

    Half of the data for every parent and every child that a rank has in either tree; it receives as much.
    """
    halves = [0] * rank_count
    for parent in double_tree(rank_count).tolist():
        for member, above in enumerate(parent):
            if above >= 0:
                halves[member] += 1
                halves[above] += 1
    return Fraction(max(halves), 2)


def double_tree_all_reduce_ps(
    rank_count: int, size_bytes: int, payload_bps: int, latency_ps: int, chunk_bytes: int
) -> int:
    """Double binary tree all-reduce in chunks of c bytes: an estimate of the time, not a bound.

    2 S / B + 2 h (latency + 2 c / B), h = ceil(log2 n) (Sanders, Speck, Traff 2009, with a reduction and a
    broadcast in one pipeline). The first term is what an inner rank of one tree, a leaf of the other, sends: half of
    the data once up and twice down as the one, once up as the other (`double_tree_load` for few ranks). The second is
    how long the first chunk is on its way: up h levels and down again, on each behind a chunk of the other tree, or of
    its sibling, on a shared port. It takes ports that serve their connections in turn: where a leaf may send all it has
    before what it has to pass on, the trees take up to a quarter longer.
    """
    if rank_count == 1:
        return 0
    chunk = min(chunk_bytes, -(-size_bytes // 2))
    fill = 2 * tree_height(rank_count) * (latency_ps + transfer_ps(2 * chunk, payload_bps))
    return transfer_ps(double_tree_load(rank_count) * size_bytes, payload_bps) + fill


def double_tree_bound_ps(rank_count: int, size_bytes: int, payload_bps: int, latency_ps: int) -> int:
    """No double binary tree all-reduce is faster: the most loaded port, and the longest path of the first byte.

    The larger of the time for the bytes that the busiest rank sends, 2 S, and of 2 h latencies, h the height of the
    trees.
    """
    height = max(int(depths(parent).max()) for parent in double_tree(rank_count))
    return max(transfer_ps(double_tree_load(rank_count) * size_bytes, payload_bps), 2 * height * latency_ps)


def all_to_all_ps(rank_count: int, size_bytes: int, payload_bps: int, latency_ps: int) -> int:
    """Pairwise all-to-all, everything at once: (n - 1) / n S / B and one latency; S is the data of one rank."""
    if rank_count == 1:
        return 0
    return transfer_ps(Fraction(size_bytes * (rank_count - 1), rank_count), payload_bps) + latency_ps


def uneven_all_to_all_bound_ps(matrix: Sequence[Sequence[int]], payload_bps: int, latency_ps: int) -> int:
    """No all-to-all of `matrix[i][j]` bytes from i to j is faster: who sends or receives most, one latency."""
    count = range(len(matrix))
    sent = max(sum(int(matrix[i][j]) for j in count if j != i) for i in count)
    received = max(sum(int(matrix[i][j]) for i in count if i != j) for j in count)
    most = max(sent, received)
    return transfer_ps(most, payload_bps) + latency_ps if most else 0


def hierarchical_all_reduce_ps(
    nodes: int,
    ranks_per_node: int,
    size_bytes: int,
    *,
    local_bps: int,
    local_latency_ps: int,
    payload_bps: int,
    latency_ps: int,
    local_steps: int = 1,
) -> int:
    """Hierarchical all-reduce of whole phases: two local ones and a ring all-reduce of S / g across the nodes.

    2 ((g - 1) / g S / B_local + k latency_local) + 2 (N - 1) / N (S / g) / B + 2 (N - 1) latency, with g ranks in each
    of N nodes and k local steps: 1 for "direct", g - 1 for "ring". Phases that overlap, in chunks, end earlier.
    """
    local = transfer_ps(Fraction(size_bytes * (ranks_per_node - 1), ranks_per_node), local_bps)
    local += local_steps * local_latency_ps if ranks_per_node > 1 else 0
    step = transfer_ps(Fraction(size_bytes, ranks_per_node * nodes), payload_bps) + latency_ps
    return 2 * local + 2 * (nodes - 1) * step
