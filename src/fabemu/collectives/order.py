"""Orders of ranks: the rings and trees that collectives run on."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rank_orders(
    rank_count: int, channels: int, ring_order: ArrayLike | None = None, ranks_per_node: int | None = None
) -> NDArray[np.int64]:
    """The order of the ranks in each channel, (channels, R).

    Parameters
    ----------
    ring_order
        (R,) a permutation of the ranks for all channels, or (channels, R) one for each, taken as it is. The ranks in
        their order unless given.
    ranks_per_node
        Consecutive ranks of the order that form a node. The ring of channel c then begins every even node at its rank
        c (modulo the node) and runs through it in order, and through every odd node the other way. So channels leave
        the nodes by different ranks, and as many channels as a node has ranks use each once; and a ring arrives with
        the local number that it left the node before with, which keeps it on its rail. If the number of nodes is odd,
        the way from the last to the first changes the rail.

    Raises
    ------
    ValueError
        The order is not a permutation, or the ranks are not whole nodes.
    """
    order = np.arange(rank_count) if ring_order is None else np.asarray(ring_order, dtype=np.int64)
    if order.shape not in {(rank_count,), (channels, rank_count)}:
        raise ValueError(
            f"ring_order has shape {order.shape}; it must be a permutation of the {rank_count} ranks, "
            f"or one for each of the {channels} channels"
        )
    orders = np.broadcast_to(order, (channels, rank_count)).copy()
    if (np.sort(orders, axis=1) != np.arange(rank_count)).any():
        raise ValueError(f"ring_order must have each of the ranks 0..{rank_count - 1} once")
    if ranks_per_node is None or order.ndim == 2:
        return orders
    nodes = node_count(rank_count, ranks_per_node)
    local = (np.arange(ranks_per_node) + np.arange(channels)[:, None]) % ranks_per_node  # channel, place in the node
    places = np.repeat(local[:, None, :], nodes, axis=1)
    places[:, 1::2] = places[:, 1::2, ::-1]
    places += (np.arange(nodes) * ranks_per_node)[:, None]
    return np.take_along_axis(orders, places.reshape(channels, rank_count), axis=1)


def node_count(rank_count: int, ranks_per_node: int) -> int:
    """Number of nodes.

    Raises
    ------
    ValueError
        The ranks are not whole nodes.
    """
    if ranks_per_node < 1 or rank_count % ranks_per_node:
        near = max(rank_count // max(ranks_per_node, 1), 1) * max(ranks_per_node, 1)
        raise ValueError(
            f"{rank_count} ranks are not whole nodes of {ranks_per_node}; take {near} or "
            f"{near + max(ranks_per_node, 1)} ranks, or a ranks_per_node that divides {rank_count}"
        )
    return rank_count // ranks_per_node


def in_order_tree(count: int) -> NDArray[np.int64]:
    """Parent of each place of a binary tree over 0..count-1, (count,); -1 for place 0, the root, with one child.

    Place p > 0 with lowest set bit b hangs below p - b + 2b, or below p - b where that does not exist: the in-order
    binary tree of Sanders, Speck, Traff 2009, which has its leaves at odd places.
    """
    place = np.arange(count, dtype=np.int64)
    bit = place & -place
    parent = (place ^ bit) | (bit << 1)
    parent = np.where(parent >= count, place ^ bit, parent)
    if count:
        parent[0] = -1
    return parent


def _moved(parent: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """A tree in which member m stands at `place[m]` of the given one."""
    member = np.empty_like(place)
    member[place] = np.arange(len(place))
    above = parent[place]
    return np.where(above < 0, -1, member[above])


def double_tree(count: int) -> NDArray[np.int64]:
    """Parents in two binary trees over 0..count-1 that complement each other, (2, count); -1 for a root.

    The second tree is the first one mirrored if `count` is even, shifted by one if it is odd, so that inner members of
    one are leaves of the other (Sanders, Speck, Traff 2009), but for roots, which have one child and so the
    load of a leaf. With half of the data on each tree nobody sends or receives more than twice the data in all.
    """
    tree = in_order_tree(count)
    member = np.arange(count, dtype=np.int64)
    place = count - 1 - member if count % 2 == 0 else (member - 1) % max(count, 1)
    return np.stack([tree, _moved(tree, place)])


def rooted_double_tree(count: int) -> NDArray[np.int64]:
    """Parents in two complementing binary trees with the same root, member 0, (2, count); -1 for the root.

    As `double_tree`, with the trees over the other members and the root above both: the two-tree broadcast of Sanders,
    Speck, Traff 2009.
    """
    tree = in_order_tree(count)
    member = np.arange(count, dtype=np.int64)
    place = count - member if count % 2 else np.where(member == 1, count - 1, member - 1)
    if count:
        place[0] = 0
    return np.stack([tree, _moved(tree, place)])


def node_double_tree(nodes: int, ranks_per_node: int) -> NDArray[np.int64]:
    """`double_tree` over nodes, a chain inside each, (2, nodes * ranks_per_node); place = node * size + local.

    Local 0 of a node, the head of its chain, is the one that stands in the tree; local l hangs below local l - 1.
    """
    place = np.arange(nodes * ranks_per_node, dtype=np.int64)
    parents = np.broadcast_to(place - 1, (2, len(place))).copy()
    above = double_tree(nodes)
    parents[:, ::ranks_per_node] = np.where(above < 0, -1, above * ranks_per_node)
    return parents


def depths(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distance of each member of a tree from its root, (count,)."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return depth
