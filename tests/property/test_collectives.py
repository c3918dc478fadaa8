"""Collectives of any size on any number of ranks, cut in any way: everyone ends with what was promised."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, event, given
from hypothesis import strategies as st

from fabemu.collectives import (
    all_gather,
    all_reduce,
    all_to_all_uneven,
    broadcast,
    contents,
    gather,
    reduce,
    reduce_scatter,
    scatter,
    send_recv,
)
from fabemu.collectives.bounds import bus_factor
from fabemu.collectives.experts import balanced_copies, dispatch_matrix, drawn_copies
from fabemu.collectives.operations import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE_SCATTER
from fabemu.collectives.schedule import split
from fabemu.collectives.semantics import check
from tests.property.strategies import example_settings

MOST = 1_500  # transfers that one example may check


@st.composite
def shapes(draw):
    """Ranks, bytes and how they are cut."""
    count = draw(st.integers(1, 33))
    near = st.sampled_from([0, 1, 7, count - 1, count, count + 1, 1000003])
    size = draw(near | st.integers(0, 300) | st.integers(0, 2**40))
    return (
        count,
        size,
        {
            "channels": draw(st.integers(1, 4)),
            "element_bytes": draw(st.sampled_from([1, 1, 2, 4, 8])),
            "chunk_bytes": draw(st.sampled_from([0, 0, 1, 3, 16, size // 7 + 1, size // count + 1, size // 60 + 1])),
        },
    )


def judged(schedule, promise, pieces, seed):
    """Check a schedule, split among queue pairs, unless it is large."""
    assume(schedule.transfer_count <= MOST)
    event(f"transfers {len(str(schedule.transfer_count))} digits")
    check(schedule, promise, (seed,))
    parts = split(schedule, pieces)
    assert (parts.sent_bytes() == schedule.sent_bytes()).all()
    assert (parts.received_bytes() == schedule.received_bytes()).all()
    if parts.transfer_count <= MOST:
        check(parts, promise, (seed,))


@given(shape=shapes(), algorithm=st.sampled_from([*ALL_REDUCE, "auto"]), data=st.data())
@example_settings(share=0.4)
def test_all_reduce(shape, algorithm, data):
    count, size, options = shape
    divisors = [node for node in range(1, count + 1) if count % node == 0]
    node = data.draw(st.sampled_from(divisors if algorithm == "hierarchical" else [None, *divisors]))
    order = data.draw(st.none() | st.permutations(range(count)))
    event(algorithm)
    if algorithm == "ring":
        assume(2 * (count - 1) * count * options["channels"] <= 2 * MOST)
    schedule = all_reduce(
        count,
        size,
        algorithm=algorithm,
        ranks_per_node=node,
        ring_order=order,
        local_algorithm=data.draw(st.sampled_from(["direct", "ring"])),
        **bounded(options, size),
    )
    judged(schedule, contents.all_reduce_promise(count, size), data.draw(st.integers(1, 3)), data.draw(seeds))
    if algorithm != "halving_doubling":
        assert schedule.sent_bytes().sum() == bus_factor("all_reduce", count) * size * count


seeds = st.integers(0, 2**31)


def bounded(options, size):
    """The options, with chunks that are not too many."""
    chunk = options["chunk_bytes"]
    return options | {"chunk_bytes": max(chunk, size // 100) if chunk else 0}


@given(shape=shapes(), data=st.data())
@example_settings(share=0.25)
def test_all_gather_and_reduce_scatter(shape, data):
    count, size, options = shape
    options, element = bounded(options, size), options["element_bytes"]
    pieces, seed = data.draw(st.integers(1, 3)), data.draw(seeds)
    algorithm = data.draw(st.sampled_from(ALL_GATHER))
    order = data.draw(st.none() | st.permutations(range(count))) if algorithm != "doubling" else None
    schedule = all_gather(count, size, algorithm=algorithm, ring_order=order, **options)
    judged(schedule, contents.all_gather_promise(count, size, element), pieces, seed)
    algorithm = REDUCE_SCATTER[ALL_GATHER.index(algorithm)]
    schedule = reduce_scatter(count, size, algorithm=algorithm, ring_order=order, **options)
    judged(schedule, contents.reduce_scatter_promise(count, size, element), pieces, seed)


@given(shape=shapes(), algorithm=st.sampled_from(BROADCAST), data=st.data())
@example_settings(share=0.25)
def test_broadcast_and_reduce(shape, algorithm, data):
    count, size, options = shape
    root = data.draw(st.integers(0, count - 1))
    divisors = [node for node in range(1, count + 1) if count % node == 0]
    options = bounded(options, size) | {
        "algorithm": algorithm,
        "root": root,
        "ring_order": data.draw(st.none() | st.permutations(range(count))),
        "ranks_per_node": data.draw(st.sampled_from([None, *divisors])),
    }
    pieces, seed = data.draw(st.integers(1, 3)), data.draw(seeds)
    down = broadcast(count, size, **options)
    assert down.bytes.sum() == (count - 1) * size
    judged(down, contents.broadcast_promise(count, size, root), pieces, seed)
    judged(reduce(count, size, **options), contents.reduce_promise(count, size, root), pieces, seed)


@given(shape=shapes(), data=st.data())
@example_settings(share=0.25)
def test_gather_and_scatter(shape, data):
    count, size, options = shape
    root, element = data.draw(st.integers(0, count - 1)), options["element_bytes"]
    options = bounded(options, size) | {"root": root}
    pieces, seed = data.draw(st.integers(1, 3)), data.draw(seeds)
    judged(gather(count, size, **options), contents.gather_promise(count, size, root, element), pieces, seed)
    judged(scatter(count, size, **options), contents.scatter_promise(count, size, root, element), pieces, seed)


@given(shape=shapes(), window=st.none() | st.integers(1, 9), seed=seeds, skew=st.floats(0.0, 12.0))
@example_settings(share=0.25)
def test_all_to_all(shape, window, seed, skew):
    count, _, options = shape
    assume(count <= 16)
    draw = np.random.default_rng(seed)
    matrix = (draw.random((count, count)) ** skew * 200).astype(np.int64)
    schedule = all_to_all_uneven(matrix, window=window, **bounded(options, 200))
    judged(schedule, contents.all_to_all_promise(matrix), 2, seed)
    assert (schedule.sent_bytes() == matrix.sum(axis=1) - np.diag(matrix)).all()
    node = int(draw.choice([size for size in range(1, count + 1) if count % size == 0]))
    relayed = all_to_all_uneven(matrix, algorithm="hierarchical", ranks_per_node=node, **bounded(options, 200))
    judged(relayed, contents.all_to_all_promise(matrix, node), 2, seed)


@given(data=st.data(), count=st.integers(2, 9))
@example_settings(share=0.25)
def test_pairs(data, count):
    rank = st.integers(0, count - 1)
    pairs = data.draw(st.lists(st.tuples(rank, rank, st.integers(0, 50)), min_size=1, max_size=30))
    src, dst, size = zip(*pairs, strict=True)
    schedule = send_recv(count, src, dst, size, channels=data.draw(st.integers(1, 3)))
    judged(schedule, contents.send_recv_promise(count, src, dst, size), data.draw(st.integers(1, 3)), 0)


@given(devices=st.integers(1, 12), on_each=st.integers(1, 4), tokens=st.integers(0, 200), data=st.data(), seed=seeds)
@example_settings(share=0.25)
def test_no_token_is_lost(devices, on_each, tokens, data, seed):
    top_k = data.draw(st.integers(1, min(devices * on_each, 8)))
    draws = np.random.default_rng(seed).random((tokens, top_k))
    drawn = drawn_copies(draws, devices, devices * on_each)
    balanced = balanced_copies(devices, tokens, top_k)
    assert (drawn.sum(axis=1) == balanced.sum(axis=1)).all()
    assert drawn.sum() == tokens * top_k
    once = drawn_copies(draws, devices, devices * on_each, once_per_device=True)
    assert ((once <= drawn) & ((once > 0) == (drawn > 0))).all()
    matrix = dispatch_matrix(drawn, 3, 2)
    judged(all_to_all_uneven(matrix), contents.all_to_all_promise(matrix), 1, seed)
