"""What the packet numbers of a trace stand for: messages, positions in them, and what headers say of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.plan import Plan

PSN_BITS = 24

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """Where data packets are in their messages; all arrays (n,).

    Attributes
    ----------
    first, last
        bool, first and last packet of the message.
    payload_bytes
        int64, without padding.
    message
        int64, number of the message in its queue pair.
    message_bytes
        int64, payload of the whole message.
    offset_bytes
        int64, where the packet's payload begins in all that its queue pair carries.
    rest_bytes
        int64, payload of the message from this packet on.
    """

    first: NDArray[np.bool_]
    last: NDArray[np.bool_]
    payload_bytes: Int64s
    message: Int64s
    message_bytes: Int64s
    offset_bytes: Int64s
    rest_bytes: Int64s


class Messages:
    """The messages of all queue pairs, in the order in which they are sent, by packet number."""

    def __init__(self, plan: Plan) -> None:
        """Take the messages of a plan."""
        self._mtu_bytes = plan.mtu_bytes
        self._bytes = plan.op_bytes[plan.qp_op]
        packets = np.maximum(1, -(-self._bytes // plan.mtu_bytes))
        # Packets and bytes of all queue pairs, one after the other.
        self._end = np.cumsum(packets)
        self._start = self._end - packets
        self._first_byte = np.cumsum(self._bytes) - self._bytes
        self._message_of_qp = plan.qp_op_start.astype(np.int64)
        self._packet_of_qp = np.concatenate([[0], self._end])[self._message_of_qp]
        self._byte_of_qp = np.concatenate([[0], np.cumsum(self._bytes)])[self._message_of_qp]

    @property
    def packets(self) -> Int64s:
        """(Q,) packets of every queue pair."""
        return np.diff(self._packet_of_qp)

    def packet(self, qp: Int64s, number: Int64s) -> Int64s:
        """(n,) packets of queue pairs, counted over all queue pairs."""
        return np.asarray(self._packet_of_qp[qp] + number)

    def message(self, packet: Int64s) -> Int64s:
        """(n,) row in `Plan.qp_op` of the messages that hold packets, counted over all queue pairs."""
        return np.searchsorted(self._end, packet, side="right")

    def end(self, message: Int64s) -> Int64s:
        """(n,) first packet after messages, counted over all queue pairs."""
        return np.asarray(self._end[message])

    def place(self, qp: Int64s, number: Int64s) -> Place:
        """Where packets are in their messages.

        Parameters
        ----------
        qp, number
            (n,) queue pair, and packet number in it from 0 on, below the packets of the queue pair.
        """
        packet = self._packet_of_qp[qp] + number
        message = np.searchsorted(self._end, packet, side="right")
        position = packet - self._start[message]
        size = self._bytes[message]
        done_bytes = position * self._mtu_bytes
        return Place(
            first=position == 0,
            last=packet == self._end[message] - 1,
            payload_bytes=np.minimum(size - done_bytes, self._mtu_bytes),
            message=message - self._message_of_qp[qp],
            message_bytes=size,
            offset_bytes=self._first_byte[message] - self._byte_of_qp[qp] + done_bytes,
            rest_bytes=size - done_bytes,
        )

    def completed(self, qp: Int64s, number: Int64s) -> Int64s:
        """(n,) messages of queue pairs that end before packet `number`."""
        done = np.searchsorted(self._end, self._packet_of_qp[qp] + number, side="right")
        return np.asarray(done - self._message_of_qp[qp])


class PacketNumbers:
    """Packet numbers on the wire, of 24 bits, to numbers from 0 on.

    Those of queue pairs with 2^24 packets and more are told apart by what came before: rows have to be given in order
    of time, all of them.
    """

    def __init__(self, plan: Plan, packets: Int64s) -> None:
        """Take the packets of every queue pair, (Q,)."""
        self._start = plan.psn_start
        self._long = packets >= 1 << PSN_BITS
        self._any_long = bool(self._long.any())
        self._last = np.zeros(len(packets), dtype=np.int64)

    @property
    def needs_all(self) -> bool:
        """Whether rows may not be left out: some queue pair has 2^24 packets or more."""
        return self._any_long

    def unwrap(self, qp: Int64s, psn: Int64s) -> Int64s:
        """(n,) packet numbers from 0 on."""
        mask = (1 << PSN_BITS) - 1
        number = (psn - self._start) & mask
        if not self._any_long:
            return number
        rows = np.flatnonzero(self._long[qp])
        rows = rows[np.argsort(qp[rows], kind="stable")]
        found, first = np.unique(qp[rows], return_index=True)
        for pair, part in zip(found.tolist(), np.split(rows, first[1:]), strict=True):
            before = self._last[pair] & mask
            steps = np.diff(number[part], prepend=before)
            half = 1 << (PSN_BITS - 1)
            # The nearest number with these bits: all that is on the way lies within 2^23 packets.
            number[part] = self._last[pair] + np.cumsum(((steps + half) & mask) - half)
            self._last[pair] = number[part[-1]]
        return number
