"""An engine that only pretends: the API of the real one, with scripted records and failures."""

from __future__ import annotations

import numpy as np

from fabemu.plan import OP_SEND

STEP_PS = 10**6

FLOW = np.dtype([("op", "i4")])
PORT = np.dtype(
    [
        ("start_ps", "i8"),
        ("end_ps", "i8"),
        ("port", "i4"),
        ("class", "u1"),
        ("tx_bytes", "i8"),
        ("wire_bytes", "i8"),
        ("tx_frames", "i8"),
        ("queue_byte_ps", "f8"),
        ("queue_max_bytes", "i8"),
        ("paused_ps", "i8"),
        ("xoff_sent", "i8"),
        ("xoff_received", "i8"),
        ("marks", "i8"),
        ("drops", "i8"),
        ("headroom_max_bytes", "i8"),
    ]
)
# As the core has them, places that hold nothing included.
PAUSE = np.dtype(
    [
        ("emit_ps", "i8"),
        ("node", "i4"),
        ("port", "i4"),
        ("xoff_ps", "i8"),
        ("sent_ps", "i8"),
        ("start_ps", "i8"),
        ("xon_ps", "i8"),
        ("end_ps", "i8"),
        ("ingress_bytes", "i8"),
        ("headroom_bytes", "i8"),
        ("threshold_bytes", "i8"),
        ("egress_port", "i4"),
        ("parent_port", "i4"),
        ("class", "u1"),
        ("end", "u1"),
        ("crossed", "u1"),
        ("pad", "u1", 5),
    ]
)
DROP = np.dtype(
    [
        ("time_ps", "i8"),
        ("node", "i4"),
        ("ingress_port", "i4"),
        ("egress_port", "i4"),
        ("class", "u1"),
        ("cause", "u1"),
        ("kind", "u1"),
        ("qp", "i4"),
        ("psn", "i8"),
        ("frame_bytes", "i4"),
    ]
)
PACKET = np.dtype(
    [
        ("time_ps", "i8"),
        ("port", "i4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("class", "u1"),
        ("qp", "i4"),
        ("psn", "i8"),
        ("frame_bytes", "i4"),
    ]
)


class FakeEngine:
    """One message ends per call of `run`, unless the arguments say that something goes wrong."""

    def __init__(
        self,
        plan,
        *,
        packets=False,
        ends=False,
        threads=1,
        never_ends=False,
        fault_at=None,
        error_at=None,
        broken=False,
        failing=(),
    ):
        self.plan = plan
        self.now_ps = 0
        self.calls = 0
        self.turn = 0
        self.packets = packets
        self.never_ends = never_ends
        self.fault_at = fault_at
        self.error_at = error_at
        self.broken = broken
        self.failing = failing
        self.finished = False
        self.sends = np.flatnonzero(plan.op_kind == OP_SEND)
        count = plan.op_count
        self.state = {
            name: np.full(count, -1, np.int64) for name in ("posted_ps", "first_sent_ps", "delivered_ps", "done_ps")
        }
        self.state |= {name: np.zeros(count, np.int64) for name in ("packets", "retransmissions", "cnps", "marks")}
        self.state["status"] = np.zeros(count, np.uint8)
        self.ended = []
        self.pauses = []

    @property
    def packet_hops(self):
        return 3 * self.calls

    @property
    def events(self):
        return 4 * self.calls

    in_flight_packets = 0
    digest = "0123456789abcdef"

    is_deadlocked = False

    windows = 0

    def run(self, stop_ps, budget, patience_s=1e9):
        self.calls += 1
        if self.error_at == self.calls:
            raise MemoryError
        if self.fault_at == self.calls:
            return 3
        if self.now_ps + STEP_PS > stop_ps:
            self.now_ps = stop_ps
            return 1
        self.now_ps += STEP_PS
        self.turn += 1
        if self.turn <= len(self.sends) and not (self.never_ends and self.turn > 1):
            op = int(self.sends[self.turn - 1])
            failed = op in self.failing
            self.state["posted_ps"][op] = self.plan.op_start_ps[op]
            self.state["first_sent_ps"][op] = self.plan.op_start_ps[op]
            if not failed:
                self.state["delivered_ps"][op] = self.now_ps
                self.state["done_ps"][op] = self.now_ps
            self.state["status"][op] = 3 if failed else 2
            self.state["packets"][op] = 1
            self.ended.append(op)
            if self.plan.port_count:
                pause = np.zeros((), PAUSE)
                for before_ps, name in enumerate(("end_ps", "xon_ps", "start_ps", "sent_ps", "xoff_ps"), start=1):
                    pause[name] = self.now_ps - before_ps
                pause["ingress_bytes"], pause["headroom_bytes"], pause["threshold_bytes"] = 9, 1, 8
                pause["egress_port"] = pause["parent_port"] = -1
                self.pauses.append(pause)
        if self.never_ends:
            return 0
        return 2 if self.turn >= len(self.sends) else 0

    def fill_ports(self, columns, first, end):
        assert first < end

    def filled_ports(self):
        return 0

    def drain(self):
        records = {
            "flows": np.array([(op,) for op in self.ended], FLOW),
            "ports": np.empty(0, PORT),
            "pauses": np.array(self.pauses, PAUSE),
            "drops": np.empty(0, DROP),
            "packets": np.empty(0, PACKET),
        }
        self.ended, self.pauses = [], []
        return records

    def ops(self):
        return {name: values.copy() for name, values in self.state.items()}

    def finish(self):
        self.finished = True

    def verify(self):
        return [("time", True, ""), ("conservation", not self.broken, "sent 5, delivered 4" if self.broken else "")]

    def fault(self):
        return ("time ran back", 77, 1, 2) if self.fault_at is not None else None

    def totals(self):
        return {"packet_hops": self.packet_hops, "events": self.events, "marks": 0}
