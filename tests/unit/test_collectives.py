"""Collectives: what every schedule does, how many bytes it moves, and that a broken one is caught."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fabemu.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_uneven,
    bounds,
    broadcast,
    contents,
    gather,
    reduce,
    reduce_scatter,
    scatter,
    semantics,
    send_recv,
)
from fabemu.collectives.exchange import OUTPUT
from fabemu.collectives.experts import (
    balanced_copies,
    combine_matrix,
    dispatch_matrix,
    drawn_copies,
    drawn_experts,
)
from fabemu.collectives.extent import extents
from fabemu.collectives.operations import ALL_GATHER, ALL_REDUCE, BROADCAST, PIPELINE_CHUNK_BYTES, REDUCE_SCATTER
from fabemu.collectives.order import depths, double_tree, node_double_tree, rank_orders, rooted_double_tree
from fabemu.collectives.schedule import assemble, chunked, concatenate, empty, on_groups, reverse, split, then
from fabemu.collectives.semantics import MANNERS, SemanticError, find_race, run

RANKS = range(1, 34)
FLAT = tuple(algorithm for algorithm in ALL_REDUCE if algorithm != "hierarchical")


def check(schedule, promise):
    """The check, with one manner of running for many ranks."""
    ranks = schedule.rank_count
    semantics.check(schedule, promise, (ranks,), MANNERS if ranks < 12 else (MANNERS[ranks % 3],))


def sizes(count):
    odd = sorted({0, 1, 7, count - 1, count, count + 1})
    return [*(odd if count < 10 else odd[count % 3 :: 3]), 1000003]


def chunk_of(size, count):
    """Some chunks per block, not too many."""
    return size // (2 * count) + 1 if size > 1000 else 3


# What they do.


@pytest.mark.parametrize("count", RANKS)
@pytest.mark.parametrize("algorithm", FLAT)
def test_all_reduce(algorithm, count):
    for size, channels in zip(sizes(count), (1, 2, 3, 4, 1, 2, 3), strict=False):
        whole = all_reduce(count, size, algorithm=algorithm, channels=channels if count < 10 else 1, chunk_bytes=0)
        check(whole, contents.all_reduce_promise(count, size))
    size = 1000003
    cut = all_reduce(count, size, algorithm=algorithm, chunk_bytes=chunk_of(size, count))
    whole = all_reduce(count, size, algorithm=algorithm, chunk_bytes=0)
    assert cut.transfer_count > whole.transfer_count or count == 1
    assert (cut.sent_bytes() == whole.sent_bytes()).all()
    run(cut, contents.all_reduce_promise(count, size), MANNERS[count % 3], count)


@pytest.mark.parametrize("nodes,local", [(1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (2, 3), (3, 5), (4, 8), (5, 4)])
@pytest.mark.parametrize("algorithm,inside", [("hierarchical", "direct"), ("hierarchical", "ring"), ("tree", "direct")])
def test_all_reduce_on_nodes(algorithm, inside, nodes, local):
    count = nodes * local
    for size, channels in product((0, 1, 7, count, 10007), (1, 3)):
        schedule = all_reduce(
            count,
            size,
            algorithm=algorithm,
            local_algorithm=inside,
            channels=channels,
            ranks_per_node=local,
            chunk_bytes=chunk_of(size, count) if channels == 1 else 0,
        )
        check(schedule, contents.all_reduce_promise(count, size))


@pytest.mark.parametrize("count", RANKS)
def test_all_gather_and_reduce_scatter(count):
    for number, size in enumerate(sizes(count)):
        options = {"channels": 1 + number % 4 if count < 10 else 1 + number % 2, "element_bytes": 1 + number % 2}
        element = options["element_bytes"]
        for algorithm in ALL_GATHER:
            schedule = all_gather(count, size, algorithm=algorithm, **options)
            check(schedule, contents.all_gather_promise(count, size, element))
        for algorithm in REDUCE_SCATTER:
            schedule = reduce_scatter(count, size, algorithm=algorithm, **options)
            check(schedule, contents.reduce_scatter_promise(count, size, element))


@pytest.mark.parametrize("count", RANKS)
@pytest.mark.parametrize("algorithm", BROADCAST)
def test_broadcast_and_reduce(algorithm, count):
    for number, size in enumerate(sizes(count)):
        root = (7 * number) % count
        options = {"root": root, "algorithm": algorithm, "channels": 1 + number % 4}
        options["chunk_bytes"] = size // 5 + 1
        check(broadcast(count, size, **options), contents.broadcast_promise(count, size, root))
        check(reduce(count, size, **options), contents.reduce_promise(count, size, root))


@pytest.mark.parametrize("count", RANKS)
def test_gather_scatter_and_all_to_all(count):
    for number, size in enumerate(sizes(count)):
        root, element = (5 * number) % count, 1 + number % 3
        options = {"channels": 1 + number % 3, "chunk_bytes": size // count + 1, "element_bytes": element}
        check(gather(count, size, root=root, **options), contents.gather_promise(count, size, root, element))
        check(scatter(count, size, root=root, **options), contents.scatter_promise(count, size, root, element))
    size = 1000003
    matrix = np.broadcast_to(extents(size, count)[1], (count, count))
    check(all_to_all(count, size), contents.all_to_all_promise(matrix))


@pytest.mark.parametrize("window", [None, 1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_uneven_all_to_all(count, window):
    draw = np.random.default_rng(count)
    matrix = draw.integers(0, 50, (count, count)) * draw.integers(0, 2, (count, count))
    schedule = all_to_all_uneven(matrix, window=window, channels=2, chunk_bytes=7)
    check(schedule, contents.all_to_all_promise(matrix))
    others = matrix * ~np.eye(count, dtype=bool)
    assert (schedule.sent_bytes() == others.sum(axis=1)).all()
    assert (schedule.received_bytes() == others.sum(axis=0)).all()
    if window is not None:
        for waiter, waited in zip(schedule.waiters(), schedule.wait, strict=True):
            assert schedule.step[waiter] >= schedule.step[waited] + window


@pytest.mark.parametrize("nodes,local", [(1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (2, 3), (3, 4), (4, 8)])
def test_hierarchical_all_to_all(nodes, local):
    count = nodes * local
    draw = np.random.default_rng(count)
    full = draw.integers(1, 50, (count, count))
    for matrix, options in (
        (full, {}),
        (full * draw.integers(0, 2, (count, count)), {"chunk_bytes": 30}),
        (full * draw.integers(0, 2, (count, count)), {"channels": 2}),
    ):
        schedule = all_to_all_uneven(matrix, algorithm="hierarchical", ranks_per_node=local, **options)
        check(schedule, contents.all_to_all_promise(matrix, local))
        across = schedule.src // local != schedule.dst // local
        assert (schedule.src[across] % local == schedule.dst[across] % local).all()
        node = np.arange(count) // local
        assert schedule.bytes[across].sum() == matrix[node[:, None] != node].sum()
    schedule = all_to_all_uneven(full, algorithm="hierarchical", ranks_per_node=local)
    across = schedule.src // local != schedule.dst // local
    assert across.sum() == count * (nodes - 1), "one message for each rank of its number"
    assert schedule.transfer_count - across.sum() == count * (local - 1) * nodes


def test_a_window_holds_a_rank_back():
    schedule = all_to_all(8, 800, window=3)
    assert np.diff(schedule.wait_start).tolist() == [0] * 24 + [1] * 32
    assert (schedule.step[schedule.wait] == schedule.step[schedule.waiters()] - 3).all()


def test_a_window_looks_past_empty_messages():
    matrix = np.full((5, 5), 10)
    matrix[3, 0] = 0  # what comes to rank 0 in step 1
    schedule = all_to_all_uneven(matrix, window=1)
    held = np.flatnonzero((schedule.src == 0) & (schedule.step == 2))[0]
    waits = schedule.wait[schedule.wait_start[held] : schedule.wait_start[held + 1]]
    assert schedule.src[waits].tolist() == [4] and schedule.step[waits].tolist() == [0]


def test_a_store_beside_a_sum_is_a_race():
    columns = {"src": [0, 1], "dst": 2, "bytes": 5, "src_offset": 0, "input_bytes": 5}
    assert find_race(assemble(3, reduce=[True, True], **columns)) is None
    for sums in ([True, False], [False, True], [False, False]):
        race = find_race(assemble(3, reduce=sums, **columns))
        assert race is not None and race.rank == 2 and "is written by transfer 1" in str(race)


def test_send_and_receive():
    src, dst, size = [0, 0, 1, 2, 2, 2], [1, 1, 0, 2, 0, 1], [5, 7, 3, 11, 0, 2]
    schedule = send_recv(3, src, dst, size, channels=2)
    check(schedule, contents.send_recv_promise(3, src, dst, size))
    assert schedule.sent_bytes().tolist() == [12, 3, 2], "what a rank sends to itself is not sent"
    assert schedule.bytes[schedule.src == 0].tolist() == [3, 2, 4, 3]
    assert (schedule.dst_buffer == OUTPUT).all()


def test_one_rank_has_nothing_to_send():
    for function in (all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, all_to_all):
        assert function(1, 1000).transfer_count == 0
        assert function(8, 0).transfer_count == 0


# How many bytes they move.


@pytest.mark.parametrize("count", [2, 3, 8, 17])
def test_bytes_of_rings(count):
    size = count * 3 * 1000
    assert (all_reduce(count, size, algorithm="ring", channels=3).sent_bytes() == 2 * (count - 1) * 3000).all()
    assert (all_gather(count, size, algorithm="ring").sent_bytes() == (count - 1) * 3000).all()
    for algorithm in REDUCE_SCATTER if count & (count - 1) == 0 else ("ring", "direct"):
        schedule = reduce_scatter(count, size, algorithm=algorithm)
        assert (schedule.sent_bytes() == (count - 1) * 3000).all()
        assert (schedule.received_bytes() == (count - 1) * 3000).all()


@pytest.mark.parametrize("count", [*range(2, 34), 64, 100, 1023])
def test_nobody_sends_more_than_twice_the_data_on_trees(count):
    size = 1000
    schedule = all_reduce(count, size, algorithm="tree", chunk_bytes=0)
    sent = schedule.sent_bytes()
    assert sent.sum() == 2 * (count - 1) * size
    assert sent.max() <= 2 * size
    assert (sent == schedule.received_bytes()).all()


@pytest.mark.parametrize("count", [2, 4, 16, 32])
def test_bytes_of_halving_and_doubling(count):
    schedule = all_reduce(count, 32 * count, algorithm="halving_doubling")
    assert (schedule.sent_bytes() == 2 * (count - 1) * 32).all()
    assert schedule.step_count == 2 * (count.bit_length() - 1)


def test_remainder_ranks_send_their_data_once_and_get_the_result_once():
    sent = all_reduce(11, 800, algorithm="halving_doubling").sent_bytes()
    assert sent[[0, 2, 4]].tolist() == [800] * 3
    assert sent[[6, 7, 8, 9, 10]].tolist() == [1400] * 5
    assert sent[[1, 3, 5]].tolist() == [2200] * 3


def test_only_a_share_crosses_nodes_in_a_hierarchical_all_reduce():
    size, nodes, local = 64000, 4, 8
    schedule = all_reduce(32, size, algorithm="hierarchical", ranks_per_node=local)
    across = schedule.src // local != schedule.dst // local
    assert (schedule.src[across] % local == schedule.dst[across] % local).all(), "each on its own rail"
    total = np.bincount(schedule.src[across], weights=schedule.bytes[across])
    assert (total == 2 * (nodes - 1) / nodes * size / local).all()


def test_the_dispatch_of_a_mixture_of_experts():
    copies = balanced_copies(64, 2**20, 2)
    schedule = all_to_all_uneven(dispatch_matrix(copies, 4096, 2))
    assert (schedule.sent_bytes() == 264_241_152).all()
    assert (schedule.received_bytes() == 264_241_152).all()
    back = all_to_all_uneven(combine_matrix(copies, 4096, 2))
    assert (back.sent_bytes() == 264_241_152).all()


@pytest.mark.parametrize("devices,tokens,top_k", [(1, 5, 2), (3, 10, 2), (8, 1001, 3), (7, 3, 1)])
def test_balanced_copies_lose_nothing(devices, tokens, top_k):
    copies = balanced_copies(devices, tokens, top_k)
    assert (copies.sum(axis=1) == extents(tokens, devices)[1] * top_k).all()
    assert copies.max() - copies.min() <= 2
    assert np.ptp(copies, axis=1).max() <= 1


def test_drawn_experts_are_different_and_equally_likely():
    draws = np.random.default_rng(3).random((60_000, 3))
    experts = drawn_experts(draws, 6)
    assert (np.diff(np.sort(experts, axis=1), axis=1) > 0).all()
    sets = np.bincount((1 << experts).sum(axis=1), minlength=64)
    found = sets[sets > 0]
    assert len(found) == 20
    assert abs(found - 3000).max() < 5 * 3000**0.5
    for column in experts.T:
        assert abs(np.bincount(column) - 10_000).max() < 5 * 10_000**0.5
    assert drawn_experts([[0.0, 0.0, 0.999]], 4).tolist() == [[0, 1, 3]]


def test_drawn_copies_count_every_copy():
    draws = np.random.default_rng(4).random((1000, 4))
    copies = drawn_copies(draws, 4, 16)
    assert (copies.sum(axis=1) == 1000).all()
    once = drawn_copies(draws, 4, 16, once_per_device=True)
    devices = drawn_experts(draws, 16) // 4
    assert once.sum() == sum(len(set(row)) for row in devices.tolist())
    assert (once <= copies).all()
    assert (once[0] == [sum(device in row for row in devices[:250].tolist()) for device in range(4)]).all()


# Orders.


@pytest.mark.parametrize("count", range(1, 70))
@pytest.mark.parametrize("form", [double_tree, rooted_double_tree])
def test_trees_complement_each_other(form, count):
    parents = form(count)
    inner = []
    for parent in parents:
        root = np.flatnonzero(parent < 0)
        assert len(root) == 1
        children = np.bincount(parent[parent >= 0], minlength=count)
        assert children.max(initial=0) <= 2
        assert children[root[0]] <= 1
        assert depths(parent).max() <= bounds.tree_height(count)
        inner.append((children > 0) & (parent >= 0))
    assert not (inner[0] & inner[1])[1:].any(), "an inner member of one is a leaf of the other"
    if form is rooted_double_tree:
        assert (parents[:, 0] == -1).all()


def test_trees_of_nodes_have_chains_inside():
    parents = node_double_tree(4, 3)
    assert parents[0].tolist() == [-1, 0, 1, 6, 3, 4, 0, 6, 7, 6, 9, 10]
    crossing = parents // 3 != np.arange(12) // 3
    assert crossing.sum(axis=1).tolist() == [4, 4]


def test_rings_of_nodes_keep_their_rail():
    orders = rank_orders(32, 8, ranks_per_node=8)
    leaves = []
    for order in orders:
        following = np.roll(order, -1)
        across = order // 8 != following // 8
        assert across.sum() == 4
        assert (order[across] % 8 == following[across] % 8).all()
        leaves += order[across].tolist()
    assert sorted(leaves) == list(range(32)), "every NIC sends for one channel"


def test_orders_that_are_given():
    assert rank_orders(4, 2, [3, 1, 0, 2]).tolist() == [[3, 1, 0, 2]] * 2
    assert rank_orders(4, 2, [[3, 1, 0, 2], [0, 1, 2, 3]], 2).tolist() == [[3, 1, 0, 2], [0, 1, 2, 3]]
    assert rank_orders(4, 1, [3, 1, 0, 2], 2).tolist() == [[3, 1, 2, 0]]
    order = [3, 1, 0, 2]
    schedule = all_reduce(4, 400, algorithm="ring", ring_order=order)
    assert {(int(a), int(b)) for a, b in zip(schedule.src, schedule.dst, strict=True)} == {
        (3, 1),
        (1, 0),
        (0, 2),
        (2, 3),
    }
    for algorithm in ("ring", "direct"):
        given = reduce_scatter(4, 403, algorithm=algorithm, ring_order=order, channels=2)
        check(given, contents.reduce_scatter_promise(4, 403))
        given = all_gather(4, 403, algorithm=algorithm, ring_order=order, channels=2)
        check(given, contents.all_gather_promise(4, 403))


def test_orders_of_channels_are_taken_as_they_are():
    orders = [[3, 1, 0, 2], [0, 1, 2, 3]]
    for node in (1, 2, 4):
        schedule = all_reduce(4, 400, algorithm="tree", ring_order=orders, channels=2, ranks_per_node=node)
        check(schedule, contents.all_reduce_promise(4, 400))
        for channel, order in enumerate(orders):
            up = schedule.reduce & (schedule.channel == channel) & (schedule.src_offset == 200 * channel)
            assert set(range(4)) - set(schedule.src[up].tolist()) == {order[0]}, "the root of the first tree"


def test_auto_goes_by_the_bytes_per_rank():
    small, large = 8 * 65536 - 1, 8 * 65536

    def same(one, other):
        return one.transfer_count == other.transfer_count and (one.dst == other.dst).all()

    assert same(all_reduce(8, small), all_reduce(8, small, algorithm="tree"))
    assert same(all_reduce(8, large), all_reduce(8, large, algorithm="ring"))
    assert same(
        all_reduce(8, large, ranks_per_node=4), all_reduce(8, large, algorithm="hierarchical", ranks_per_node=4)
    )
    assert same(all_reduce(8, large, ranks_per_node=8), all_reduce(8, large, algorithm="ring", ranks_per_node=8))
    assert same(all_gather(8, small), all_gather(8, small, algorithm="doubling"))
    assert same(reduce_scatter(8, small), reduce_scatter(8, small, algorithm="halving"))
    order = np.roll(np.arange(8), 3)
    assert same(all_gather(8, 800, ring_order=order), all_gather(8, 800, algorithm="ring", ring_order=order))
    assert same(reduce_scatter(8, 800, ring_order=order), reduce_scatter(8, 800, algorithm="ring", ring_order=order))
    assert same(broadcast(8, large), broadcast(8, large, algorithm="ring"))


# Schedules.


def test_extents_cover_the_range():
    for total, parts, element in product((0, 1, 7, 8, 1000), (1, 3, 8, 9), (1, 2, 4)):
        offset, size = extents(total, parts, element, 100)
        assert size.sum() == total and (size >= 0).all()
        assert (offset[1:] == offset[:-1] + size[:-1]).all() and offset[0] == 100
        assert ((offset - 100)[size > 0] % element == 0).all()
        assert np.ptp(size) <= 2 * element - 1 if total % element else np.ptp(size) <= element


def test_chunks_of_a_step_go_on_as_they_come():
    schedule = all_reduce(3, 30, algorithm="ring", chunk_bytes=4)
    assert schedule.bytes[:9].tolist() == [4, 4, 2] * 3
    assert (np.diff(schedule.wait_start) == (schedule.step > 0)).all(), "each waits for one chunk"
    assert (schedule.src_offset[schedule.wait] == schedule.src_offset[schedule.waiters()]).all()


def test_chunks_keep_to_elements():
    schedule = chunked(all_reduce(3, 999, algorithm="ring", element_bytes=4), 10, 4)
    assert (schedule.src_offset % 4 == 0).all()
    assert schedule.bytes.max() == 8
    check(schedule, contents.all_reduce_promise(3, 999))


def test_trees_are_pipelined_unless_told_otherwise():
    size = 6 * PIPELINE_CHUNK_BYTES
    assert all_reduce(4, size, algorithm="tree").bytes.max() == PIPELINE_CHUNK_BYTES
    assert all_reduce(4, size, algorithm="tree", chunk_bytes=0).bytes.max() == size // 2
    assert all_reduce(4, size, algorithm="ring").bytes.max() == size // 4


@pytest.mark.parametrize("pieces", [1, 2, 3, 5])
def test_messages_are_shared_without_loss(pieces):
    for whole, promise in (
        (all_reduce(6, 1000, algorithm="halving_doubling"), contents.all_reduce_promise(6, 1000)),
        (all_to_all(5, 33), contents.all_to_all_promise(np.broadcast_to(extents(33, 5)[1], (5, 5)))),
    ):
        parts = split(whole, pieces)
        check(parts, promise)
        assert (parts.sent_bytes() == whole.sent_bytes()).all()
        assert parts.transfer_count == np.minimum(-(-whole.bytes // -(-whole.bytes // pieces)), whole.bytes).sum()


def test_a_piece_that_waits_for_order_waits_for_all_pieces():
    parts = split(all_to_all(4, 40, window=1), 3)
    assert np.diff(parts.wait_start).tolist() == [0] * 12 + [3] * 24


def test_a_reversed_broadcast_is_a_reduction():
    schedule = reverse(broadcast(7, 100, root=2, algorithm="ring", chunk_bytes=0))
    assert (schedule.dst[schedule.step == schedule.step_count - 1] == 2).all()
    check(schedule, contents.reduce_promise(7, 100, 2))


def test_one_after_another():
    first = reduce_scatter(5, 103, algorithm="ring")
    schedule = then(first, all_gather(5, 103, algorithm="direct"))
    check(schedule, contents.all_reduce_promise(5, 103))
    later = np.diff(schedule.wait_start)[first.transfer_count :]
    assert (later == 1).all(), "for the last partial sum, not for all that went before"
    assert then(empty(5, 103), first).transfer_count == first.transfer_count == then(first, empty(5, 0)).transfer_count


def test_side_by_side():
    parts = [broadcast(4, 10, root=root, algorithm="ring") for root in (0, 1)]
    assert (np.diff(concatenate(parts).step) >= 0).all()
    with pytest.raises(ValueError, match="same number of ranks"):
        concatenate([broadcast(4, 10), broadcast(5, 10)])
    with pytest.raises(ValueError, match="no schedules"):
        concatenate([])
    with pytest.raises(ValueError, match="same number of ranks"):
        then(broadcast(4, 10), broadcast(5, 10))


def test_copies_for_groups():
    one = broadcast(3, 100, algorithm="ring", chunk_bytes=0)
    schedule = on_groups(one, [[5, 0, 3], [1, 2, 4]], 6)
    schedule.verify()
    pairs = [(int(a), int(b)) for a, b in zip(schedule.src, schedule.dst, strict=True)]
    assert pairs == [(5, 0), (1, 2), (0, 3), (2, 4)]
    assert schedule.wait.tolist() == [0, 1]


# A broken schedule is caught.


def without(schedule, transfer):
    """The schedule without a transfer, which others no longer wait for."""
    keep = np.arange(schedule.transfer_count) != transfer
    place = np.cumsum(keep) - 1
    waiter, waited = schedule.waiters(), schedule.wait
    both = keep[waiter] & keep[waited]
    return rebuilt(schedule, keep, place[waiter[both]], place[waited[both]])


def without_wait(schedule, entry):
    keep = np.arange(len(schedule.wait)) != entry
    every = np.ones(schedule.transfer_count, dtype=bool)
    return rebuilt(schedule, every, schedule.waiters()[keep], schedule.wait[keep])


def rebuilt(schedule, rows, waiter, waited):
    names = ("src", "dst", "bytes", "src_offset", "dst_offset", "src_buffer", "dst_buffer", "reduce", "step", "channel")
    return assemble(
        schedule.rank_count,
        **{name: getattr(schedule, name)[rows] for name in names},
        waiter=waiter,
        waited=waited,
        input_bytes=schedule.input_bytes,
        output_bytes=schedule.output_bytes,
        staging_bytes=schedule.staging_bytes,
    )


def doubled(schedule, transfer):
    rows = np.append(np.arange(schedule.transfer_count), transfer)
    start, end = schedule.wait_start[transfer], schedule.wait_start[transfer + 1]
    waiter = np.append(schedule.waiters(), np.full(end - start, schedule.transfer_count))
    return rebuilt(schedule, rows, waiter, np.append(schedule.wait, schedule.wait[start:end]))


BREAKABLE = {
    "ring": (all_reduce(5, 103, algorithm="ring"), contents.all_reduce_promise(5, 103)),
    "tree": (all_reduce(6, 103, algorithm="tree"), contents.all_reduce_promise(6, 103)),
    "halving": (all_reduce(6, 103, algorithm="halving_doubling"), contents.all_reduce_promise(6, 103)),
    "nodes": (
        all_reduce(6, 103, algorithm="hierarchical", ranks_per_node=2),
        contents.all_reduce_promise(6, 103),
    ),
    "scatter": (reduce_scatter(5, 103, algorithm="halving"), contents.reduce_scatter_promise(5, 103)),
    "gather": (all_gather(6, 103, algorithm="doubling"), contents.all_gather_promise(6, 103)),
    "relay": (
        all_to_all(6, 103, algorithm="hierarchical", ranks_per_node=2),
        contents.all_to_all_promise(np.broadcast_to(extents(103, 6)[1], (6, 6)), 2),
    ),
    "chain": (broadcast(5, 103, algorithm="ring", chunk_bytes=30), contents.broadcast_promise(5, 103)),
}


@pytest.mark.parametrize("name", BREAKABLE)
def test_a_transfer_that_is_missing_is_caught(name):
    schedule, promise = BREAKABLE[name]
    check(schedule, promise)
    for transfer in range(schedule.transfer_count):
        with pytest.raises(SemanticError):
            check(without(schedule, transfer), promise)


@pytest.mark.parametrize("name", BREAKABLE)
def test_a_sum_that_is_added_twice_is_caught(name):
    schedule, promise = BREAKABLE[name]
    caught = 0
    for transfer in np.flatnonzero(schedule.reduce).tolist():
        with pytest.raises(SemanticError):
            check(doubled(schedule, transfer), promise)
        caught += 1
    assert caught or name in {"gather", "relay", "chain"}


@pytest.mark.parametrize("name", BREAKABLE)
def test_a_store_that_comes_twice_is_a_race(name):
    schedule, _ = BREAKABLE[name]
    for transfer in np.flatnonzero(~schedule.reduce).tolist():
        race = find_race(doubled(schedule, transfer))
        assert race is not None and race.rank == schedule.dst[transfer]


@pytest.mark.parametrize("column", ["src_offset", "dst_offset"])
@pytest.mark.parametrize("name", BREAKABLE)
def test_a_shifted_offset_is_caught(name, column):
    schedule, promise = BREAKABLE[name]
    for transfer in range(schedule.transfer_count):
        shifted = getattr(schedule, column).copy()
        shifted[transfer] += 1 if shifted[transfer] == 0 else -1
        with pytest.raises(SemanticError):
            # Where there is a byte more behind the data, what is wrong is not the shape but what it does.
            check(grown(replace(schedule, **{column: shifted})), promise)


def grown(schedule):
    """The schedule with a byte more in every buffer."""
    sizes = ("input_bytes", "output_bytes", "staging_bytes")
    return replace(schedule, **{name: getattr(schedule, name) + 1 for name in sizes})


def is_implied(schedule, entry):
    """Whether other waits already order what this one orders."""
    before = [set() for _ in range(schedule.transfer_count)]
    waiter, kept = schedule.waiters().tolist(), schedule.wait.tolist()
    for place, (later, earlier) in enumerate(zip(waiter, kept, strict=True)):
        if place != entry:
            before[later] |= before[earlier] | {earlier}
    return kept[entry] in before[waiter[entry]]


@pytest.mark.parametrize("name", BREAKABLE)
def test_a_wait_that_is_missing_is_caught(name):
    schedule, promise = BREAKABLE[name]
    needed = 0
    for entry in range(len(schedule.wait)):
        broken = without_wait(schedule, entry)
        if is_implied(schedule, entry):
            check(broken, promise)
        else:
            needed += 1
            assert find_race(broken) is not None
            with pytest.raises(SemanticError, match="race at rank"):
                check(broken, promise)
    assert needed


def test_runs_alone_find_a_missing_wait_too():
    schedule, promise = BREAKABLE["ring"]
    for entry in range(0, len(schedule.wait), 7):
        broken = without_wait(schedule, entry)
        failures = 0
        for manner, seed in product(MANNERS, range(6)):
            try:
                run(broken, promise, manner, seed)
            except SemanticError:
                failures += 1
        assert failures


def test_what_was_never_there_cannot_be_sent():
    schedule = assemble(2, src=0, dst=1, bytes=5, src_offset=0, input_bytes=5)
    with pytest.raises(SemanticError, match="sends what rank 0 does not have"):
        run(schedule, contents.broadcast_promise(2, 5, root=1))


def test_an_end_that_was_not_promised_is_told():
    with pytest.raises(SemanticError, match=r"rank 0 ends with 1 x rank 0 .*; promised .*: each rank once"):
        run(empty(2, 5), contents.all_reduce_promise(2, 5))
    with pytest.raises(SemanticError, match="2 ranks, promised for 3"):
        check(empty(2, 5), contents.all_reduce_promise(3, 5))
    with pytest.raises(ValueError, match="unknown manner"):
        run(empty(2, 5), contents.all_reduce_promise(2, 5), "backwards")


@pytest.mark.parametrize(
    "change,message",
    [
        ({"src": np.array([0, 5, 1, 0, 1, 2], dtype=np.int32)}, "transfer 1 starts at a rank outside 0..2"),
        ({"dst": np.array([0, 1, 2, 0, 1, -1], dtype=np.int32)}, "transfer 5 ends at a rank outside"),
        ({"bytes": np.zeros(6, dtype=np.int64)}, "transfer 0 has no bytes"),
        ({"bytes": np.ones(6, dtype=np.int32)}, "bytes is int32"),
        ({"src_offset": np.full(6, 9, dtype=np.int64)}, "transfer 0 reads outside the buffer"),
        ({"dst_offset": np.full(6, -1, dtype=np.int64)}, "transfer 0 writes outside the buffer"),
        ({"dst_buffer": np.full(6, 1, dtype=np.uint8)}, "transfer 0 writes outside the buffer"),
        ({"dst_buffer": np.full(6, 3, dtype=np.uint8)}, "names a buffer"),
        ({"src_buffer": np.full(6, 2, dtype=np.uint8)}, "transfer 0 reads outside the buffer"),
        ({"wait": np.array([2, 2, 1], dtype=np.int32)}, "transfer 4 waits for 2, which goes to another rank"),
        ({"wait": np.array([5, 0, 1], dtype=np.int32)}, "transfer 3 waits for 5, not before it"),
        ({"wait_start": np.arange(7)}, "wait_start does not rise from 0 to the length"),
        ({"wait_start": np.arange(3)}, "one int64 entry more"),
        ({"step": np.array([3, 3, 3, 1, 1, 1], dtype=np.int32)}, "waits for a later step"),
    ],
)
def test_malformed_schedules_are_refused(change, message):
    schedule = all_gather(3, 9, algorithm="ring")
    schedule.verify()
    with pytest.raises(ValueError, match=message):
        replace(schedule, **change).verify()


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda: all_reduce(0, 1), "rank_count is 0"),
        (lambda: all_reduce(2, -1), "size_bytes is -1"),
        (lambda: all_reduce(2, 1, channels=0), "channels is 0"),
        (lambda: all_reduce(2, 1, chunk_bytes=-1), "chunk_bytes is -1"),
        (lambda: all_reduce(2, 1, element_bytes=0), "element_bytes is 0"),
        (lambda: all_reduce(2, 1, algorithm="butterfly"), "unknown algorithm .*one of auto, ring"),
        (lambda: all_reduce(6, 1, algorithm="hierarchical"), "needs ranks_per_node"),
        (lambda: all_reduce(10, 1, algorithm="hierarchical", ranks_per_node=4), "take 8 or 12 ranks"),
        (lambda: all_reduce(10, 1, algorithm="tree", ranks_per_node=4), "not whole nodes of 4"),
        (lambda: all_reduce(10, 1, algorithm="halving_doubling", ranks_per_node=4), "not whole nodes of 4"),
        (lambda: all_reduce(3, 1, ring_order=[0, 1, 1]), "each of the ranks 0..2 once"),
        (lambda: all_reduce(3, 1, ring_order=[0, 1]), "must be a permutation of the 3 ranks"),
        (lambda: all_gather(3, 1, algorithm="doubling", ring_order=[1, 0, 2]), "takes no ring_order"),
        (lambda: all_gather(6, 1, algorithm="direct", ranks_per_node=4), "not whole nodes"),
        (lambda: broadcast(3, 1, root=3), "root is 3; with 3 ranks it must be 0..2"),
        (lambda: reduce(3, 1, root=-1), "root is -1"),
        (lambda: gather(3, -1), "size_bytes is -1"),
        (lambda: scatter(3, 1, root=9), "root is 9"),
        (lambda: all_to_all_uneven([[1, 2]]), "square"),
        (lambda: all_to_all_uneven([[0, -2], [1, 0]]), "-2 bytes from rank 0 to rank 1"),
        (lambda: all_to_all(3, 9, window=0), "window is 0"),
        (lambda: all_to_all(3, 9, algorithm="bruck"), "unknown algorithm .*one of pairwise, hierarchical"),
        (lambda: all_to_all(4, 9, algorithm="hierarchical"), "needs ranks_per_node"),
        (lambda: all_to_all(4, 9, algorithm="hierarchical", ranks_per_node=3), "4 ranks are not whole nodes of 3"),
        (lambda: all_to_all(4, 9, algorithm="hierarchical", ranks_per_node=2, window=1), "leave window out"),
        (lambda: send_recv(2, [0], [2], [1]), "dst names rank 2"),
        (lambda: send_recv(2, [0], [1], [-1]), "-1 bytes"),
        (lambda: all_reduce(2, 2**40, chunk_bytes=1), "more than 2147483647 transfers; take larger"),
        (lambda: split(all_reduce(2, 9), 0), "cut into 0 pieces"),
        (lambda: drawn_experts([[0.1, 0.2, 0.3]], 2), "3 different experts of 2"),
        (lambda: drawn_experts([[1.0]], 2), "below 1"),
        (lambda: drawn_copies([[0.5]], 4, 6), "6 experts are not spread evenly over 4 devices; take 8"),
        (lambda: balanced_copies(0, 1, 1), "device_count is 0"),
        (lambda: bounds.bus_factor("all_reduce", 0), "rank_count is 0"),
        (lambda: bounds.bus_factor("exchange", 2), "unknown operation"),
    ],
)
def test_parameters_that_make_no_sense(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# How long they take.


def duration_ps(schedule, payload_bps, latency_ps):
    """Time of a schedule on ports that send and receive one transfer at a time.

    A port serves its connections in turn, and the transfers of each in the order in which they are ready.
    """
    sending, receiving = [0] * schedule.rank_count, [0] * schedule.rank_count
    missing = np.diff(schedule.wait_start).tolist()
    followers = [[] for _ in missing]
    for waiter, waited in zip(schedule.waiters().tolist(), schedule.wait.tolist(), strict=True):
        followers[waited].append(waiter)
    src, dst, size = schedule.src.tolist(), schedule.dst.tolist(), schedule.bytes.tolist()
    queues = [{} for _ in sending]  # by destination, least recently served first
    events = [(0, 0, transfer) for transfer in range(len(missing)) if not missing[transfer]]
    heapq.heapify(events)
    end = 0
    while events:
        now, kind, item = heapq.heappop(events)
        if kind == READY:
            queues[src[item]].setdefault(dst[item], deque()).append(item)
            heapq.heappush(events, (max(now, sending[src[item]]), FREE, src[item]))
        elif kind == FREE:
            chosen = next((key for key, queue in queues[item].items() if queue), None)
            if sending[item] > now or chosen is None:
                continue
            queue = queues[item].pop(chosen)
            transfer = queue.popleft()
            queues[item][chosen] = queue
            length = bounds.transfer_ps(size[transfer], payload_bps)
            sending[item] = now + length
            receiving[chosen] = max(now + length + latency_ps, receiving[chosen] + length)
            heapq.heappush(events, (sending[item], FREE, item))
            heapq.heappush(events, (receiving[chosen], ARRIVED, transfer))
        else:
            end = max(end, now)
            for follower in followers[item]:
                missing[follower] -= 1
                if not missing[follower]:
                    heapq.heappush(events, (now, READY, follower))
    return end


READY, FREE, ARRIVED = 0, 1, 2
BPS, LATENCY_PS = 8 * 10**9, 5_000_000  # a byte each nanosecond


def test_bus_factors_are_those_of_nccl_tests():
    assert bounds.bus_factor("all_reduce", 8) == Fraction(14, 8)
    for operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        assert bounds.bus_factor(operation, 8) == Fraction(7, 8)
    for operation in ("broadcast", "reduce", "send_recv"):
        assert bounds.bus_factor(operation, 8) == 1
    assert bounds.bandwidth_bound_ps("all_reduce", 4, 4000, BPS) == 6_000_000


def test_payload_of_a_line():
    assert bounds.payload_bps(400 * 10**9) == 400 * 10**9 * 4096 // 4178
    assert bounds.transfer_ps(4096, bounds.payload_bps(400 * 10**9)) == 83_561  # 83.56 ns, rounded up twice


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_rings_take_the_time_of_the_formula(count):
    size = count * 6000
    expected = bounds.ring_all_reduce_ps(count, size, BPS, LATENCY_PS)
    assert expected == 2 * (count - 1) * (6_000_000 + LATENCY_PS)
    assert duration_ps(all_reduce(count, size, algorithm="ring"), BPS, LATENCY_PS) == expected
    expected = bounds.ring_gather_ps(count, size, BPS, LATENCY_PS)
    assert duration_ps(all_gather(count, size, algorithm="ring"), BPS, LATENCY_PS) == expected
    assert duration_ps(reduce_scatter(count, size, algorithm="ring"), BPS, LATENCY_PS) == expected


@pytest.mark.parametrize("count", [1, 2, 4, 16, 3, 6, 7, 11, 13, 24])
def test_halving_and_doubling_take_the_time_of_the_formula(count):
    power = 1 << (count.bit_length() - 1)
    size = 1000 * count * power
    expected = bounds.halving_doubling_all_reduce_ps(count, size, BPS, LATENCY_PS)
    assert duration_ps(all_reduce(count, size, algorithm="halving_doubling"), BPS, LATENCY_PS) == expected
    expected = bounds.doubling_gather_ps(count, size, BPS, LATENCY_PS)
    found = duration_ps(all_gather(count, size, algorithm="doubling"), BPS, LATENCY_PS)
    assert found == expected if count == power else 0.7 * expected < found <= expected


@pytest.mark.parametrize("count", [2, 3, 4, 8, 15, 16, 33, 64])
def test_trees_take_about_the_time_of_the_formula(count):
    for size, chunk, least in ((4_000_000, 100_000, 0.85), (10_000_000, 100_000, 0.9), (4000, 1000, 0.67)):
        found = duration_ps(all_reduce(count, size, algorithm="tree", chunk_bytes=chunk), BPS, LATENCY_PS)
        expected = bounds.double_tree_all_reduce_ps(count, size, BPS, LATENCY_PS, chunk)
        assert bounds.double_tree_bound_ps(count, size, BPS, LATENCY_PS) <= found
        assert least * expected <= found <= 1.1 * expected


def test_all_to_all_takes_the_time_of_the_formula():
    expected = bounds.all_to_all_ps(8, 8 * 5000, BPS, LATENCY_PS)
    assert duration_ps(all_to_all(8, 8 * 5000), BPS, LATENCY_PS) == expected == 35_000_000 + LATENCY_PS
    matrix = np.random.default_rng(1).integers(0, 9000, (7, 7))
    bound = bounds.uneven_all_to_all_bound_ps(matrix, BPS, LATENCY_PS)
    assert bound <= duration_ps(all_to_all_uneven(matrix), BPS, LATENCY_PS) < 1.5 * bound
    assert bounds.uneven_all_to_all_bound_ps([[5]], BPS, LATENCY_PS) == 0 == bounds.all_to_all_ps(1, 5, BPS, 7)


@pytest.mark.parametrize("inside", ["direct", "ring"])
def test_hierarchical_takes_the_time_of_the_formula(inside):
    nodes, local, size = 3, 4, 12 * 4000
    schedule = all_reduce(12, size, algorithm="hierarchical", ranks_per_node=local, local_algorithm=inside)
    expected = bounds.hierarchical_all_reduce_ps(
        nodes,
        local,
        size,
        local_bps=BPS,
        local_latency_ps=LATENCY_PS,
        payload_bps=BPS,
        latency_ps=LATENCY_PS,
        local_steps=1 if inside == "direct" else local - 1,
    )
    assert duration_ps(schedule, BPS, LATENCY_PS) == pytest.approx(expected, rel=0.15)
    assert duration_ps(schedule, BPS, LATENCY_PS) <= expected
