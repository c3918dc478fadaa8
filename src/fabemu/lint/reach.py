"""Where frames for each group of destinations may travel, and which egress port they may pass to which.

A set of groups is a row of 64-bit words. What a port may carry is what its node routes over it and what may come to
that node; every equal-cost next hop may be taken, whatever the hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.plan import NONE, ROUTE_SET_BASE, VERB_READ, Plan

Words = NDArray[np.uint64]

_CHUNK = 2048  # nodes at a time: bounds the memory for what comes to them

_LITTLE_WORD = np.dtype("<u8")  # group g is bit g % 64 of word g // 64, on any machine


@dataclass(frozen=True, eq=False)
class Dependencies:
    """Egress ports of switches that lead to switches, and which one may wait for which: arrays of equal length."""

    port: NDArray[np.int64]
    next_port: NDArray[np.int64]
    carry: Words  # (P, words) groups whose frames a port may carry
    use: Words  # (P, words) groups towards which its node uses a port

    def group(self, port: int, next_port: int) -> int:
        """The first group of destinations whose frames pass from the one port to the other."""
        passing = self.carry[port] & self.use[next_port]
        word = int(np.flatnonzero(passing)[0])
        bits = int(passing[word])
        return 64 * word + (bits & -bits).bit_length() - 1


def group_words(plan: Plan) -> int:
    """Words of a set of groups."""
    return max(1, -(-plan.group_count // 64))


def routed(plan: Plan, epoch: int) -> Words:
    """(P, words) groups towards which its node uses each port in a routing epoch; all groups at a lone host port."""
    words = group_words(plan)
    result = np.zeros((plan.port_count, words), dtype=np.uint64)
    route = plan.route.reshape(plan.route_epochs, -1, plan.group_count)[epoch]
    start = plan.nexthop_start.tolist()
    for row in plan.node_route_row[plan.node_route_row != NONE].tolist():
        # All groups with one entry have the same ports: their bits are made once, whatever the number of ports.
        entries, choice = np.unique(route[row], return_inverse=True)
        used = np.flatnonzero((entries >= 0) | (entries <= ROUTE_SET_BASE))
        bits = np.zeros((len(used), 8 * words), dtype=np.uint8)
        packed = np.packbits(choice.reshape(-1) == used[:, None], axis=1, bitorder="little")
        bits[:, : packed.shape[1]] = packed
        masks = bits.view(_LITTLE_WORD).astype(np.uint64, copy=False)
        for entry, mask in zip(entries[used].tolist(), masks, strict=True):
            if entry >= 0:
                result[entry] |= mask
            else:
                number = ROUTE_SET_BASE - entry
                result[plan.nexthop_port[start[number] : start[number + 1]]] |= mask
    host_ports = np.arange(int(plan.node_port_start[plan.host_count]))
    lone = plan.node_route_row[plan.port_node[host_ports]] == NONE
    result[host_ports[lone]] = ~np.uint64(0)
    return result


def everything(plan: Plan) -> Words:
    """(H, words) every host sends to every group."""
    return np.full((plan.host_count, group_words(plan)), ~np.uint64(0))


def demand_by_class(plan: Plan) -> dict[int, Words]:
    """(H, words) groups to which each host sends, by class: data, ACKs, READ requests and CNPs of all queue pairs."""
    demands: dict[int, Words] = {}
    shape = (plan.host_count, group_words(plan))

    def add(item: int, src: NDArray[np.int32], dst: NDArray[np.int32]) -> None:
        if len(src):
            group = plan.host_group[dst]
            words = demands.setdefault(item, np.zeros(shape, dtype=np.uint64))
            np.bitwise_or.at(words, (src, group // 64), np.uint64(1) << (group % 64).astype(np.uint64))

    read = plan.qp_verb == VERB_READ
    src, dst = np.where(read, plan.qp_dst, plan.qp_src), np.where(read, plan.qp_src, plan.qp_dst)
    for item in range(plan.class_count):
        of_class = plan.qp_class == item
        add(item, src[of_class], dst[of_class])
        add(int(plan.class_ack[item]), dst[of_class], src[of_class])
    add(plan.cnp_class, dst, src)
    return demands


def demand(plan: Plan) -> Words:
    """(H, words) groups to which each host sends in any class."""
    total = np.zeros((plan.host_count, group_words(plan)), dtype=np.uint64)
    for words in demand_by_class(plan).values():
        total |= words
    return total


def carried(plan: Plan, tables: list[Words], demand: Words) -> list[Words]:
    """(P, words) groups whose frames each port may carry, for each of the routing tables.

    `demand` (H, words) says to which groups each host sends. Frames that are on their way when a table replaces another
    go on by the new one, so with several tables whatever reached a node under one of them may go on under each.
    """
    hosts = plan.host_count
    reached = np.zeros((plan.node_count, demand.shape[1]), dtype=np.uint64)
    reached[:hosts] = demand
    peer_node = plan.port_node[plan.port_peer]
    between = np.flatnonzero(peer_node >= hosts)  # hosts never forward
    order = between[np.argsort(peer_node[between], kind="stable")]
    if not len(order):
        return [table & reached[plan.port_node] for table in tables]
    first = np.append(np.flatnonzero(np.diff(peer_node[order], prepend=-1)), len(order))
    into = peer_node[order[first[:-1]]]
    while True:
        grows = False
        for table in tables:
            for begin in range(0, len(into), _CHUNK):
                nodes = into[begin : begin + _CHUNK]
                starts = first[begin : begin + len(nodes) + 1]
                ports = order[starts[0] : starts[-1]]
                arriving = np.bitwise_or.reduceat(
                    table[ports] & reached[plan.port_node[ports]], starts[:-1] - starts[0], axis=0
                )
                before = reached[nodes]
                arriving |= before
                if not np.array_equal(before, arriving):
                    grows = True
                    reached[nodes] = arriving
        if not grows:
            return [table & reached[plan.port_node] for table in tables]


def chosen_groups(plan: Plan, table: Words) -> Words:
    """(P, words) groups for which a port is one of several next hops."""
    once = np.zeros((plan.node_count, table.shape[1]), dtype=np.uint64)
    twice = np.zeros_like(once)
    rank = np.arange(plan.port_count) - plan.node_port_start[plan.port_node]
    for number in range(int(rank.max(initial=-1)) + 1):
        ports = np.flatnonzero(rank == number)
        nodes = plan.port_node[ports]
        twice[nodes] |= once[nodes] & table[ports]
        once[nodes] |= table[ports]
    return table & twice[plan.port_node]


def dependencies(plan: Plan, tables: list[Words], demand: Words) -> Dependencies:
    """Which egress port between switches may hold frames up in which: those that pass from the one to the other."""
    hosts = plan.host_count
    peer_node = plan.port_node[plan.port_peer]
    # With several tables, frames that came by any of them leave by any of them.
    carry = np.bitwise_or.reduce(carried(plan, tables, demand))
    use = np.bitwise_or.reduce(tables)
    channel = (plan.port_node >= hosts) & (peer_node >= hosts)
    occupied = (carry != 0).any(axis=1)
    carry_number, use_number = _numbered(carry, channel), _numbered(use, channel)
    sources, targets = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    known: dict[tuple[bytes, bytes], NDArray[np.bool_]] = {}  # which of the arriving ports pass to which
    for node in range(hosts, plan.node_count):
        ports = np.arange(plan.node_port_start[node], plan.node_port_start[node + 1])
        ports = ports[channel[ports]]
        arriving = plan.port_peer[ports]
        arriving = arriving[occupied[arriving]]
        # Fabrics are regular: many switches pass on alike, and many ports of one do.
        coming, going = carry_number[arriving], use_number[ports]
        key = coming.tobytes(), going.tobytes()
        if key not in known:
            _, first_in, kind_in = np.unique(coming, return_index=True, return_inverse=True)
            _, first_out, kind_out = np.unique(going, return_index=True, return_inverse=True)
            carried_in, used_out = carry[arriving[first_in]], use[ports[first_out]]
            passing = np.array([(row & used_out).any(axis=1) for row in carried_in], dtype=bool)
            passing = passing.reshape(len(first_in), len(first_out))
            known[key] = passing[kind_in][:, kind_out]
        source, target = np.nonzero(known[key])
        sources.append(arriving[source].astype(np.int64))
        targets.append(ports[target].astype(np.int64))
    return Dependencies(np.concatenate(sources), np.concatenate(targets), carry, use)


def _numbered(rows: Words, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(P,) a number for every row that is chosen, the same for equal ones; -1 for the others."""
    numbers: dict[bytes, int] = {}
    result = np.full(len(rows), NONE, dtype=np.int64)
    result[chosen] = [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows[chosen]]
    return result
