"""The engine: owns all state of one run, steps it, hands records and counters to Python.

Owns      engine_t and every allocation behind it.
Invariant no Python object is touched while it steps; the first fault ends the run and is reported once.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

import numpy as np

from .types cimport (ps_t, BUILD_PROFILE, FAULT_MEMORY, FAULT_NONE, FOREVER, OP_SCALE_UP, PAUSE_END_RUN,
                     VERB_READ, WATCH_ENDS, WATCH_RECORD)
from .action cimport actions_init
from .crew cimport crew_end, crew_new, crew_t
from .deadlock cimport deadlock_check
from .creation cimport creation_t, creation_free, creation_init, run_creation
from .drain cimport pauses_leave
from .invariants cimport invariants_hold
from .link cimport time_of_bytes
from .footprint cimport footprint_accounts, footprint_fabric, footprint_operations, shape_t
from .heaps cimport ready_init
from .holding cimport bytes_held
from .memory cimport arena_free, pointer, times, zeroed, zeroed_bytes
from .nic_send cimport frame_bytes_of
from .operation cimport host_next_op_ps
from .options cimport options_init
from .packet cimport packet_t
from .pfc cimport pauses_end
from .receiver cimport receivers_make
from .plan cimport nic_profile_t, op_packets, plan_read, plan_t
from .rng cimport fold64
from .state cimport (control_t, engine_t, flowlet_t, host_t, outbox_t, pause_t, pending_queue_t, port_t, qp_t, queue_t,
                     ready_t, record_buffer_t, rx_t, switch_t, timed_t, worker_t)
from .port_columns cimport port_columns_find, port_columns_t, port_row_t
from .scale_up cimport domains_are_whole, scale_ups_make
from .sides cimport sides_find
from .trace cimport drop_row_t, event_row_t, flow_row_t, packet_row_t, pause_row_t
from .transport cimport transport_holds, transport_init
from .wake cimport step_set, wake_far
from .workers cimport worker_free, workers_carved_bytes, workers_make, workers_share
from .watchdog cimport watchdogs_make
from .interval cimport intervals_end
from .window cimport DEADLOCKED, DRAINED, FAULTED, RUNNING, run_heap, run_windows, window_step

FAULT_TEXTS = {
    1: "time ran backwards at a device",
    2: "a link was given a frame before it had finished the one before",
    3: "the shared pool or a headroom of a switch does not add up",
    4: "a buffer counter went negative",
    5: "out of memory",
    6: "a QP has no way to its peer",
    7: "a device made more transmit choices at one instant than it has ports for",
    8: "a queue does not hold the bytes it counts, or a port forgot an event",
    9: "a credit frame gives back what was not sent, or takes back what was freed",
}
"""What each fault code of the core means."""

PROFILE = BUILD_PROFILE.decode()
"""How the core was built: "release", "check" or "profile" (setup.py)."""

SCHEDULER_CLASSIC = 1
EVENT_DEADLOCK = 18
HOST_ACTIONS = (8, 9)
"""Control actions of hosts: storm, receiver."""
ROUTE_NONE = -1
SCHEDULER_CREATION = 2

_FLOW = np.dtype([("emit_ps", "i8"), ("node", "i4"), ("op", "i4")])
_PORT = np.dtype([("end_ps", "i8"), ("port", "i4"), ("class", "u1"), ("pad", "u1", 3), ("start_ps", "i8"),
                  ("tx_bytes", "i8"), ("wire_bytes", "i8"), ("tx_frames", "i8"), ("queue_byte_ps", "f8"),
                  ("queue_max_bytes", "i8"), ("paused_ps", "i8"), ("xoff_sent", "u4"), ("xoff_received", "u4"),
                  ("marks", "u4"), ("drops", "u4"), ("headroom_max_bytes", "u4"), ("pad_1", "u4")])
_PAUSE = np.dtype([("emit_ps", "i8"), ("node", "i4"), ("port", "i4"), ("xoff_ps", "i8"), ("sent_ps", "i8"),
                   ("start_ps", "i8"), ("xon_ps", "i8"), ("end_ps", "i8"), ("ingress_bytes", "i8"),
                   ("headroom_bytes", "i8"), ("threshold_bytes", "i8"), ("egress_port", "i4"), ("parent_port", "i4"),
                   ("class", "u1"), ("end", "u1"), ("crossed", "u1"), ("pad", "u1", 5)])
_DROP = np.dtype([("time_ps", "i8"), ("node", "i4"), ("ingress_port", "i4"), ("egress_port", "i4"), ("qp", "i4"),
                  ("psn", "i8"), ("frame_bytes", "i4"), ("class", "u1"), ("cause", "u1"), ("kind", "u1"),
                  ("pad", "u1")])
_PACKET = np.dtype([("time_ps", "i8"), ("node", "i4"), ("port", "i4"), ("psn", "i8"), ("qp", "i4"),
                    ("frame_bytes", "i4"), ("kind", "u1"), ("flags", "u1"), ("class", "u1"), ("pad", "u1", 5)])
_EVENT = np.dtype([("time_ps", "i8"), ("node", "i4"), ("port", "i4"), ("value", "i8"), ("class", "i4"), ("qp", "i4"),
                   ("group", "i4"), ("kind", "u1"), ("pad", "u1", 3)])
assert _EVENT.itemsize == sizeof(event_row_t)
assert _FLOW.itemsize == sizeof(flow_row_t) and _PORT.itemsize == sizeof(port_row_t)
assert _PAUSE.itemsize == sizeof(pause_row_t) and _DROP.itemsize == sizeof(drop_row_t)
assert _PACKET.itemsize == sizeof(packet_row_t) and sizeof(packet_t) == 32
assert sizeof(port_t) == 128 and sizeof(queue_t) == 192 and sizeof(qp_t) == 256
assert sizeof(outbox_t) == 64 and sizeof(rx_t) == 64 and sizeof(host_t) == 128


cdef enum:
    WINDOW_PS_MAX = 16777216
    THREADS_MAX = 1024
    CORE_CACHE_BYTES = 1048576


cdef void worker_step(void* engine, int32_t index) noexcept nogil:
    """The share of a thread in a window."""
    window_step(<engine_t*>engine, (<engine_t*>engine).workers[index])


class EngineMemoryError(MemoryError):
    """The core could not get memory in mid-run."""


cdef class Engine:
    """One run of one plan.

    Parameters
    ----------
    plan : fabemu.plan.Plan
        What to simulate; kept, never changed.
    packets : bool
        Record every transmission start in the ``packets`` table.
    ends : bool
        Of these, record only what hosts send and, at switches, the last packet of each message.
    express : bool
        Let switches that can meet no threshold serve each egress port by itself. Results do not depend on it.
    shortcuts : bool
        Take that and any other shortcut; without, devices go event by event. Results do not depend on it.
    window_divisor : int
        Make steps this much shorter than the lookahead allows. Results do not depend on it.
    threads : int
        Most threads that `share` may have devices shared among; 1 to 1024.

    Raises
    ------
    ValueError
        The plan is not one that the core can step.
    MemoryError
        The state of the fabric does not fit.
    """

    cdef engine_t* e
    cdef object plan
    cdef bint finished
    cdef object port_columns      # memory that rows of ports go to, kept while they do
    cdef size_t fixed_bytes       # of the arena, when the engine had been made
    cdef int32_t last_status
    cdef bint busy                # a thread of Python's is in `run`, without the GIL

    def __cinit__(self, plan, *, bint packets=0, bint ends=0, bint express=1, bint shortcuts=1, int window_divisor=1,
                  int threads=1):
        cdef int32_t host
        if not 1 <= threads <= THREADS_MAX or window_divisor < 1:
            raise ValueError(f"an engine has 1 to {THREADS_MAX} threads and a window divisor of 1 or more, "
                             f"not {threads} and {window_divisor}")
        self.e = <engine_t*>calloc(1, sizeof(engine_t))
        if self.e == NULL:
            raise MemoryError("the engine does not fit")
        self.plan = plan
        self.finished = False
        self.last_status = RUNNING
        self._read_plan(plan)
        self._allocate((WATCH_RECORD if packets else 0) | (WATCH_ENDS if packets and ends else 0), express, shortcuts,
                       threads)
        self._set_step(window_divisor)
        self.fixed_bytes = workers_carved_bytes(self.e)
        self.e.port_columns.port_node = self.e.plan.port_node
        self.e.port_columns.port_peer = self.e.plan.port_peer
        self.e.port_columns.port_rate_bps = self.e.plan.port_rate_bps
        if plan.scheduler == SCHEDULER_CREATION:
            self.e.creation = zeroed(&self.e.arena, 1, sizeof(creation_t))
            self.fixed_bytes = workers_carved_bytes(self.e)
            creation_init(self.e, <creation_t*>self.e.creation)
        else:
            for host in range(self.e.plan.host_count):
                self.e.hosts[host].op_key_ps = host_next_op_ps(self.e, host)
                if self.e.hosts[host].op_key_ps < FOREVER:
                    wake_far(self.e, self.e.worker, host, self.e.hosts[host].op_key_ps)

    def share(self, owners):
        """Have devices stepped side by side by several threads from now on. Results do not depend on it.

        Parameters
        ----------
        owners : (N,) int array
            Thread that steps each device, from 0; thread 0 is the caller of `run`. All 0: no other thread is used.

        Raises
        ------
        ValueError
            A number is out of the range that the engine was made for, or the engine cannot be shared: the classic and
            the compatibility scheduler run one event after the other, and credits are known to both ends of a link.
        OSError
            The system gives no more threads; the devices stay with those that had them.
        MemoryError
            No memory for the mail between threads.
        """
        cdef engine_t* e = self.e
        cdef crew_t* crew = <crew_t*>e.crew
        cdef int32_t count
        self._refuse_a_second_thread()
        owners = np.asarray(owners)
        if (owners.shape != (e.plan.node_count,) or owners.dtype.kind not in "iu" or owners.min(initial=0) < 0
                or owners.max(initial=0) >= e.worker_count):
            raise ValueError(f"each of {e.plan.node_count} devices has a thread from 0 to {e.worker_count - 1}, "
                             "as one array of whole numbers")
        if owners.max(initial=0) > 0 and not self.can_share:
            raise ValueError("this engine runs on one thread only")
        owners = np.ascontiguousarray(owners, dtype="i4")
        if e.scale_ups != NULL and not domains_are_whole(e, <const int32_t*>pointer(owners)):
            raise ValueError("the hosts of one scale-up domain are stepped by one thread")
        count = int(owners.max(initial=0)) + 1
        if crew != NULL and crew.size != count - 1:
            crew = NULL
        if count > 1 and crew == NULL:
            crew = crew_new(e, worker_step, count - 1)
            if crew == NULL:
                raise OSError(f"the system gives no {count - 1} threads")
        if e.crew != crew:
            if e.crew != NULL:
                crew_end(<crew_t*>e.crew)
            e.crew = crew
        workers_share(e, <const int32_t*>pointer(owners), count)

    @property
    def can_share(self):
        """Whether the devices can be shared among threads."""
        return not self.e.by_heap and self.e.creation == NULL and self.e.lanes == NULL

    @property
    def threads(self):
        """Threads that step devices."""
        return self.e.crew_size

    cdef _read_plan(self, plan):
        """The plan as the core sees it, and what follows from it."""
        cdef plan_t* p = &self.e.plan
        cdef int32_t klass
        plan_read(p, plan)
        p.has_scale_up = bool((plan.op_kind == OP_SCALE_UP).any())
        if plan.scheduler == SCHEDULER_CREATION and plan.switch_balance.any():
            raise ValueError("ties in creation order go with ECMP by flow hash only")
        if p.has_scale_up and plan.scheduler == SCHEDULER_CREATION:
            raise ValueError("the compatibility scheduler knows no scale-up")
        for klass in range(p.class_count):
            self.e.lossless_index[klass] = self.e.lossless_count
            self.e.lossless_count += (p.lossless_mask >> klass) & 1
        self._read_nics(plan)
        transport_init(self.e, plan)

    cdef _read_nics(self, plan):
        cdef int32_t index
        cdef nic_profile_t* nic
        self.e.plan.nic = <nic_profile_t*>zeroed(&self.e.arena, len(plan.nic_cc), sizeof(nic_profile_t))
        for index in range(len(plan.nic_cc)):
            nic = &self.e.plan.nic[index]
            nic.cc = plan.nic_cc[index]
            nic.notify = plan.nic_notify[index]
            nic.clamp_target = plan.nic_clamp_target[index]
            nic.threshold = plan.nic_threshold[index]
            nic.ack_every = plan.nic_ack_every[index]
            nic.retry_count = plan.nic_retry_count[index]
            nic.fixed_rate_bps = plan.nic_fixed_rate_bps[index]
            nic.window_packets = plan.nic_window_packets[index]
            nic.rto_ps = plan.nic_rto_ps[index]
            nic.cnp_interval_ps = plan.nic_cnp_interval_ps[index]
            nic.g = plan.nic_g[index]
            nic.alpha_init = plan.nic_alpha_init[index]
            nic.min_dec_fac = plan.nic_min_dec_fac[index]
            nic.alpha_timer_ps = plan.nic_alpha_timer_ps[index]
            nic.decrease_timer_ps = plan.nic_decrease_timer_ps[index]
            nic.decrease_offset_ps = plan.nic_decrease_offset_ps[index]
            nic.increase_timer_ps = plan.nic_increase_timer_ps[index]
            nic.byte_reset = plan.nic_byte_reset[index]
            nic.rate_ai_bps = plan.nic_rate_ai_bps[index]
            nic.rate_hai_bps = plan.nic_rate_hai_bps[index]
            nic.rate_min_bps = plan.nic_rate_min_bps[index]

    cdef _allocate(self, uint32_t link_watch, bint express, bint shortcuts, int32_t threads):
        """All state, sized by the fabric and the list of operations; rings and pools grow with what is in flight."""
        cdef engine_t* e = self.e
        cdef plan_t* p = &e.plan
        cdef int64_t index, queue_count = <int64_t>p.port_count * p.class_count
        cdef int32_t node, local, klass
        cdef int64_t least
        cdef port_t* port
        cdef queue_t* queue
        cdef switch_t* mmu
        plan = self.plan
        cdef const int64_t* reserved = <const int64_t*>pointer(plan.pq_reserved_bytes)
        cdef const int64_t* headroom = <const int64_t*>pointer(plan.pq_headroom_bytes)
        cdef const int64_t* alpha = <const int64_t*>pointer(plan.pq_alpha_q16)
        cdef const int64_t* xon_offset = <const int64_t*>pointer(plan.pq_xon_offset_bytes)
        cdef const int64_t* kmin = <const int64_t*>pointer(plan.pq_kmin_bytes)
        cdef const int64_t* kmax = <const int64_t*>pointer(plan.pq_kmax_bytes)
        e.link_watch = link_watch
        e.shortcuts = shortcuts and p.scheduler != SCHEDULER_CLASSIC
        # A packet without a route is a drop, and drops are for the exact path.
        e.express_wanted = express and e.shortcuts and not p.ns3_buffer
        e.express = e.express_wanted and not bool((plan.route == ROUTE_NONE).any())
        e.by_heap = p.scheduler == SCHEDULER_CLASSIC
        e.data_full_bytes = <int32_t>frame_bytes_of(e, p.mtu_bytes, 0)
        e.frame_bytes_max = <int32_t>max(frame_bytes_of(e, p.mtu_bytes, max(p.reth_bytes, p.aeth_bytes)),
                                         p.ack_bytes, p.cnp_bytes, p.pfc_bytes, p.read_request_bytes)
        actions_init(e, plan)
        # Behind the ports: those that stand for ports of another worker's devices.
        e.ports = <port_t*>zeroed(&e.arena, p.port_count, sizeof(port_t), p.port_count if threads > 1 else 0)
        e.queues = <queue_t*>zeroed(&e.arena, queue_count, sizeof(queue_t))
        e.pauses = <pause_t*>zeroed(&e.arena, 2 * p.port_count * e.lossless_count, sizeof(pause_t))
        for index in range(<int64_t>2 * p.port_count * e.lossless_count):
            e.pauses[index].xoff_ps = -1
        e.pendings = <pending_queue_t*>zeroed(&e.arena, p.port_count, sizeof(pending_queue_t))
        e.port_next_ps = times(&e.arena, p.port_count, FOREVER, p.port_count if threads > 1 else 0)
        e.is_large = p.port_count * sizeof(port_t) + queue_count * sizeof(queue_t) > CORE_CACHE_BYTES
        e.port_touched = <uint8_t*>zeroed(&e.arena, p.port_count, 1)
        e.closing = <int32_t*>zeroed(&e.arena, p.port_count, sizeof(int32_t))
        for index in range(p.port_count):
            port = &e.ports[index]
            port.kick_ps = FOREVER
            port.refresh_ps = FOREVER
            port.delay_ps = p.port_delay_ps[index]
            port.rate_bps = p.port_rate_bps[index]
            if not p.truncate_ns and 8000000000000 % port.rate_bps == 0 and 8000000000000 // port.rate_bps < 1 << 31:
                port.ps_per_byte = <uint32_t>(8000000000000 // port.rate_bps)
            port.peer = p.port_peer[index]
            port.node = p.port_node[index]
            port.peer_node = p.port_node[port.peer]
            port.local = <unsigned short>(index - p.node_port_start[port.node])
            port.stamp_ps = -1
            port.mask = <uint32_t>0xffffffff
            e.pendings[index].mask = <uint32_t>0xffffffff
        for index in range(queue_count):
            queue = &e.queues[index]
            # Nothing is marked where marking is off; the frames still count.
            queue.kmin_bytes = kmin[index] if p.pq_ecn[index] else FOREVER
            queue.kmax_bytes = kmax[index]
            queue.reserved_bytes = <uint32_t>min(reserved[index], 0xffffffff)
            queue.headroom_bytes = headroom[index]
            queue.alpha_q16 = alpha[index]
            queue.xon_offset_bytes = <uint32_t>min(xon_offset[index], 0xffffffff)
            queue.pause_since_ps = -1
        e.switches = <switch_t*>zeroed(&e.arena, p.node_count - p.host_count, sizeof(switch_t))
        e.egress_alpha_min_q16 = <int64_t*>zeroed(
            &e.arena, <size_t>(p.node_count - p.host_count) * p.class_count, sizeof(int64_t))
        for node in range(p.host_count, p.node_count):
            for klass in range(p.class_count):
                least = FOREVER
                for local in range(p.node_port_start[node], p.node_port_start[node + 1]):
                    least = min(least, p.pq_egress_alpha_q16[<int64_t>local * p.class_count + klass])
                e.egress_alpha_min_q16[(node - p.host_count) * p.class_count + klass] = least
            mmu = &e.switches[node - p.host_count]
            mmu.pool_bytes = p.switch_pool_bytes[node - p.host_count]
            mmu.latency_ps = p.switch_latency_ps[node - p.host_count]
            mmu.cell_bytes = plan.switch_cell_bytes[node - p.host_count]
            mmu.port_count = p.node_port_start[node + 1] - p.node_port_start[node]
            mmu.alpha_min_q16 = 1 << 32
            for index in range(<int64_t>p.node_port_start[node] * p.class_count,
                               <int64_t>p.node_port_start[node + 1] * p.class_count):
                if (p.lossless_mask >> (index % p.class_count)) & 1:
                    mmu.alpha_min_q16 = min(mmu.alpha_min_q16, alpha[index])
            # Pairs of ports that never meet cost no memory: the system gives pages when they are first written.
            mmu.held = <uint32_t*>calloc(
                <size_t>e.lossless_count * mmu.port_count * mmu.port_count + 1, sizeof(uint32_t))
            if mmu.held == NULL:
                raise MemoryError(f"no memory for the buffer accounts of a switch with {mmu.port_count} ports")
            for local in range(mmu.port_count):
                for klass in range(p.class_count):
                    e.queues[<int64_t>(p.node_port_start[node] + local) * p.class_count + klass].held = (
                        mmu.held + (<int64_t>e.lossless_index[klass] * mmu.port_count + local) * mmu.port_count)
        options_init(e, plan)
        e.host_port_count = p.node_port_start[p.host_count]
        e.hosts = <host_t*>zeroed(&e.arena, p.host_count, sizeof(host_t))
        for node in range(p.host_count):
            e.hosts[node].qp_free = -1
            e.hosts[node].rx_free = -1
            e.hosts[node].next_op = p.host_op_start[node]
            e.hosts[node].timer_key_ps = FOREVER
            e.hosts[node].op_key_ps = FOREVER
        if p.has_scale_up:
            scale_ups_make(e)
        e.outboxes = <outbox_t*>zeroed(&e.arena, <size_t>e.host_port_count * p.class_count, sizeof(outbox_t))
        for index in range(<int64_t>e.host_port_count * p.class_count):
            e.outboxes[index].control.mask = <uint32_t>0xffffffff
            ready_init(&e.outboxes[index].ready)
        # One entry per port of the largest device.
        workers_make(e, threads, int(np.diff(plan.node_port_start).max(initial=1)))
        e.node_far_ps = times(&e.arena, p.node_count, FOREVER)
        e.node_side = <uint8_t*>zeroed(&e.arena, p.node_count, 1)
        e.qp_slot = <int32_t*>zeroed(&e.arena, p.qp_count, sizeof(int32_t))
        e.rx_slot = <int32_t*>zeroed(&e.arena, p.qp_count, sizeof(int32_t))
        memset(e.qp_slot, 0xff, p.qp_count * sizeof(int32_t))
        memset(e.rx_slot, 0xff, p.qp_count * sizeof(int32_t))
        if p.has_read:
            e.read_max = <uint64_t*>zeroed(&e.arena, p.qp_count, sizeof(uint64_t))
        e.op_posted_ps = times(&e.arena, p.op_count, -1)
        e.op_first_ps = times(&e.arena, p.message_count, -1)
        e.op_delivered_ps = times(&e.arena, p.message_count, -1)
        e.op_done_ps = times(&e.arena, p.op_count, -1)
        e.op_status = <uint8_t*>zeroed(&e.arena, p.op_count, 1)
        e.op_waiting = <int32_t*>zeroed(&e.arena, p.op_count, sizeof(int32_t))
        memcpy(e.op_waiting, p.op_dependency_count, p.op_count * sizeof(int32_t))
        e.op_packets = <int64_t*>zeroed(&e.arena, p.message_count, sizeof(int64_t))
        e.op_retransmissions = <int64_t*>zeroed(&e.arena, p.message_count, sizeof(int64_t))
        e.op_cnps = <int64_t*>zeroed(&e.arena, p.message_count, sizeof(int64_t))
        e.op_marks = <int64_t*>zeroed(&e.arena, p.message_count, sizeof(int64_t))
        e.stuck_mask = <uint8_t*>zeroed(&e.arena, p.port_count, 1)
        e.deadlock_next_ps = p.deadlock_interval_ps if p.deadlock_interval_ps > 0 else FOREVER
        if np.isin(plan.action_kind, HOST_ACTIONS).any():
            receivers_make(e)
        if plan.watchdog_poll_ps.any():
            watchdogs_make(e, plan)

    cdef _set_step(self, int divisor):
        """Lookahead: the least time from the start of a transmission to its arrival, over all links."""
        cdef plan_t* p = &self.e.plan
        cdef int64_t least_bytes = min(p.ack_bytes, p.cnp_bytes, p.pfc_bytes, p.credit_bytes,
                                       frame_bytes_of(self.e, 0, 0))
        cdef ps_t least_ps = FOREVER, least_scale_up_ps = FOREVER, ahead_ps
        if p.has_read:
            least_bytes = min(least_bytes, p.read_request_bytes)
        cdef int32_t port
        for port in range(p.port_count):
            ahead_ps = p.port_delay_ps[port] + time_of_bytes(p, least_bytes + p.wire_overhead_bytes,
                                                             p.port_rate_bps[port])
            if ahead_ps < least_ps:
                least_ps = ahead_ps
        if p.port_count == 0:
            least_ps = 1000000
        if self.e.scale_ups != NULL:
            for port in range(p.host_count):
                if p.host_domain[port] >= 0 and p.host_scale_up_latency_ps[port] < least_scale_up_ps:
                    least_scale_up_ps = p.host_scale_up_latency_ps[port]
            least_ps = min(least_ps, least_scale_up_ps)
        # Short enough for signals to be served between two.
        step_set(self.e, max(1, min(least_ps, WINDOW_PS_MAX) // divisor))
        sides_find(self.e, least_scale_up_ps < 2 * self.e.step_ps)

    def __dealloc__(self):
        cdef engine_t* e = self.e
        cdef int64_t index
        if e == NULL:
            return
        if e.creation != NULL:
            creation_free(e, <creation_t*>e.creation)
        if e.switches != NULL:
            for index in range(e.plan.node_count - e.plan.host_count):
                free(e.switches[index].held)
        if e.crew != NULL:
            crew_end(<crew_t*>e.crew)
        for index in range(e.worker_count):
            worker_free(e, e.workers[index])
        arena_free(&e.arena)
        free(e)

    def run(self, stop_ps, budget, double patience_s=1e9):
        """Step until `stop_ps` or for about `budget` packet hops, without the GIL.

        Parameters
        ----------
        stop_ps : int
            Simulated time before which events run, ps.
        budget : int
            Packet hops after which to return; checked at window edges.
        patience_s : float
            Seconds after which several threads return before that; checked at window edges. One does not.

        Returns
        -------
        int
            RUNNING 0 (budget used), STOPPED 1 (reached `stop_ps`), DRAINED 2 (nothing left), FAULT 3,
            DEADLOCKED 4 (a check found a deadlock, and the plan asks to stop at one).

        Raises
        ------
        MemoryError
            The core ran out of memory.
        RuntimeError
            Another thread is in this method; so say all methods that need the engine to stand still.
        """
        cdef ps_t stop = min(stop_ps, FOREVER)
        cdef int64_t limit = min(self.e.worker.packet_hops + max(1, budget), 1 << 62)
        cdef int32_t status
        cdef engine_t* e = self.e
        self._refuse_a_second_thread()
        if self.finished:
            raise ValueError("the run is finished")
        if e.fault.code != FAULT_NONE:
            return FAULTED
        if self.last_status == DEADLOCKED:
            return DEADLOCKED
        self.busy = True
        with nogil:
            if e.creation != NULL:
                status = run_creation(e, <creation_t*>e.creation, stop, limit)
            elif e.by_heap:
                status = run_heap(e, stop, limit)
            else:
                status = run_windows(e, stop, limit, patience_s)
        self.busy = False
        self.last_status = status
        if e.fault.code == FAULT_MEMORY:
            raise EngineMemoryError("the engine ran out of memory")
        return status

    cdef _refuse_a_second_thread(self):
        if self.busy:
            raise RuntimeError("the engine is being stepped by another thread: let one thread use it at a time")

    @property
    def windows(self):
        """Windows of either side that have been opened so far, modulo 2^32."""
        return self.e.turn

    @property
    def now_ps(self):
        """Simulated time up to which everything has run; after draining, the time of the last event."""
        if self.last_status == DRAINED:
            return self.e.worker.last_event_ps
        return self.e.now_ps

    @property
    def packet_hops(self):
        """Packets put on links so far, PFC frames not counted."""
        return self.e.worker.packet_hops

    @property
    def events(self):
        """Events run so far."""
        return self.e.worker.events

    @property
    def in_flight_packets(self):
        """Packets on links and in queues."""
        return self.e.worker.sent - self.e.worker.delivered - self.e.worker.dropped

    @property
    def is_deadlocked(self):
        """Whether the last check found egress queues that wait for one another for ever; `finish` makes one."""
        return self.e.is_deadlocked

    @property
    def window_ps(self):
        """Length of a window, ps; hosts that are near each other in a scale-up domain take it in two halves."""
        return (1 + self.e.side_mask) * self.e.step_ps

    def fault(self):
        """The first broken promise of the core: (text, time_ps, node, port), or None."""
        if self.e.fault.code == FAULT_NONE:
            return None
        return (FAULT_TEXTS[self.e.fault.code], self.e.fault.time_ps, self.e.fault.node, self.e.fault.port)

    cdef _take(self, record_buffer_t* buffer, dtype):
        """Copy the rows out, in the order in which they came, and empty the buffer."""
        rows = np.empty(buffer.count, dtype=dtype)
        cdef size_t address = rows.ctypes.data
        if buffer.count > 0:
            memcpy(<void*>address, buffer.data, buffer.count * buffer.size)
        buffer.count = 0
        return rows

    cdef _take_ordered(self, record_buffer_t* buffer, dtype):
        """The same, in the order (emit, node, sequence)."""
        rows = self._take(buffer, dtype)
        if len(rows) < 2:
            return rows
        # Choices of one instant may run in any order where they cannot touch each other: the port makes rows unique.
        if dtype is _PACKET:
            return rows[np.lexsort((rows["port"], rows["node"], rows["time_ps"]))]
        if dtype is _EVENT:
            # Control actions in their order, then cycles of waits in theirs, then what the devices found.
            rank = np.where(rows["kind"] < 16, 0, np.where(rows["kind"] == EVENT_DEADLOCK, 1, 2))
            return rows[np.lexsort((np.where(rank == 2, rows["node"], 0), rank, rows["time_ps"]))]
        return rows[np.lexsort((rows["node"], rows[dtype.names[0]]))]

    cdef _take_pauses(self):
        """Pause rows whose end has passed; the others stay. At the end of the run what is left ends with it."""
        cdef record_buffer_t* buffer = &self.e.worker.pauses
        cdef int64_t final = 0
        cdef ps_t end_ps = self.now_ps
        rows = np.empty(buffer.count, dtype=_PAUSE)
        cdef size_t address = rows.ctypes.data
        if buffer.count > 0 and not pauses_leave(buffer, <pause_row_t*>address, end_ps, &final):
            raise MemoryError("no memory for rows of pauses")
        if not self.finished:
            return rows[:final]
        buffer.count = 0
        late = rows["end_ps"] > end_ps
        rows["end_ps"][late] = np.maximum(end_ps, rows["start_ps"][late])
        rows["end"][late] = PAUSE_END_RUN
        return rows

    def fill_ports(self, columns, int64_t first, int64_t end):
        """Have rows of ports go to the columns of their table at once until `filled_ports`, as far as there is room.

        `run` returns when it is used up; rows that came by then are recorded as usual and follow those in the columns.

        Parameters
        ----------
        columns : dict of str to (n,) numpy array
            By the names of the table's columns, of the types in docs/TRACES.md, names as int32.
        first, end : int
            Place of the next row, and where the room ends.

        Raises
        ------
        ValueError
            There is no such room, a column is of another type, or rows of ports wait that came before: some in columns
            for `filled_ports`, or some for `drain`.
        """
        self._refuse_a_second_thread()
        if self.e.port_columns.place > self.e.port_columns.first or self.e.worker.ports.count > 0:
            raise ValueError("rows of ports that came before wait for filled_ports and drain")
        self.filled_ports()
        held = {name: memoryview(columns[name]) for name in columns}
        port_columns_find(&self.e.port_columns, held, first, end)
        self.port_columns = held

    def filled_ports(self):
        """How many rows have gone to the columns of `fill_ports`; no more do."""
        cdef port_columns_t* to = &self.e.port_columns
        cdef int64_t count = to.place - to.first
        self._refuse_a_second_thread()
        to.first = to.place = to.end = 0
        self.port_columns = None
        return count

    def drain(self):
        """Records since the last drain, by table, in their final order.

        Returns
        -------
        dict of str to structured numpy array
            Tables ``flows``, ``ports``, ``pauses``, ``drops``, ``packets``, ``events``; see docs/TRACES.md.
        """
        cdef worker_t* w = self.e.worker
        self._refuse_a_second_thread()
        return {
            "flows": self._take_ordered(&w.flows, _FLOW),
            "ports": self._take(&w.ports, _PORT),
            "pauses": self._take_pauses(),
            "drops": self._take_ordered(&w.drop_rows, _DROP),
            "packets": self._take_ordered(&w.packets, _PACKET),
            "events": self._take_ordered(&w.event_rows, _EVENT),
        }

    cdef _copy_i8(self, const int64_t* data, int64_t count, int64_t rest):
        """(O,) what is known of the first `count` operations, and `rest` for the others."""
        values = np.full(self.e.plan.op_count, rest, dtype="i8")
        cdef size_t address = values.ctypes.data
        memcpy(<void*>address, data, count * sizeof(int64_t))
        return values

    def ops(self):
        """State of every operation.

        Returns
        -------
        dict of str to (O,) numpy array
            ``posted_ps``, ``first_sent_ps``, ``delivered_ps``, ``done_ps`` (int64, ps, -1 = not yet), ``status``
            (uint8), ``packets`` (transmissions), ``retransmissions``, ``cnps``, ``marks`` (int64).
        """
        cdef engine_t* e = self.e
        cdef int32_t qp, index, op, receiver
        cdef uint64_t start, length, sent
        cdef qp_t* q
        self._refuse_a_second_thread()
        status = np.empty(e.plan.op_count, dtype="u1")
        cdef size_t address = status.ctypes.data
        memcpy(<void*>address, e.op_status, e.plan.op_count)
        packets = self._copy_i8(e.op_packets, e.plan.message_count, 0)
        marks = self._copy_i8(e.op_marks, e.plan.message_count, 0)
        cdef int64_t[::1] packets_view = packets
        cdef int64_t[::1] marks_view = marks
        # What live QPs have not yet booked, and what QPs that read never do.
        for qp in range(e.plan.qp_count):
            receiver = e.plan.qp_dst[qp]
            if e.plan.qp_verb[qp] == VERB_READ:
                receiver = e.plan.qp_src[qp]
                start = 0
                sent = e.read_max[qp]
                if e.qp_slot[qp] >= 0:
                    sent = e.hosts[e.plan.qp_dst[qp]].qps[e.qp_slot[qp]].snd_max
                for index in range(e.plan.qp_op_start[qp], e.plan.qp_op_start[qp + 1]):
                    op = e.plan.qp_op[index]
                    length = <uint64_t>op_packets(&e.plan, op)
                    packets_view[op] = e.op_retransmissions[op]
                    if sent > start:
                        packets_view[op] += <int64_t>min(length, sent - start)
                    start += length
            elif e.qp_slot[qp] >= 0:
                q = &e.hosts[e.plan.qp_src[qp]].qps[e.qp_slot[qp]]
                start = q.una_first
                for index in range(e.plan.qp_op_start[qp] + q.una_index, e.plan.qp_op_start[qp + 1]):
                    op = e.plan.qp_op[index]
                    if q.snd_max <= start:
                        break
                    length = <uint64_t>op_packets(&e.plan, op)
                    packets_view[op] = e.op_retransmissions[op] + <int64_t>min(length, q.snd_max - start)
                    start += length
            if e.rx_slot[qp] >= 0:
                index = e.plan.qp_op_start[qp] + e.hosts[receiver].receivers[e.rx_slot[qp]].message_index
                marks_view[e.plan.qp_op[index]] += e.hosts[receiver].receivers[e.rx_slot[qp]].marks
        return {
            "posted_ps": self._copy_i8(e.op_posted_ps, e.plan.op_count, -1),
            "first_sent_ps": self._copy_i8(e.op_first_ps, e.plan.message_count, -1),
            "delivered_ps": self._copy_i8(e.op_delivered_ps, e.plan.message_count, -1),
            "done_ps": self._copy_i8(e.op_done_ps, e.plan.op_count, -1),
            "status": status,
            "packets": packets,
            "retransmissions": self._copy_i8(e.op_retransmissions, e.plan.message_count, 0),
            "cnps": self._copy_i8(e.op_cnps, e.plan.message_count, 0),
            "marks": marks,
        }

    def finish(self):
        """Close the open interval and the standing pauses; drain once more afterwards."""
        cdef engine_t* e = self.e
        cdef worker_t* w = e.worker
        cdef ps_t end_ps = self.now_ps
        self._refuse_a_second_thread()
        if self.finished:
            return
        self.finished = True
        if e.creation == NULL:
            deadlock_check(e, w, end_ps)
        intervals_end(e, end_ps, self.last_status == DRAINED)
        pauses_end(e, w, end_ps)

    @property
    def digest(self):
        """Hex digest of every departure, completion, mark, pause, drop and event: equal runs have equal digests."""
        cdef engine_t* e = self.e
        cdef uint64_t h = 0
        cdef int64_t index
        for index in range(e.plan.port_count):
            h = fold64(h, e.ports[index].digest)
            h = fold64(h, <uint64_t>e.ports[index].hops)
        for index in range(e.plan.op_count):
            h = fold64(h, <uint64_t>(e.op_delivered_ps[index] if index < e.plan.message_count else -1))
            h = fold64(h, <uint64_t>e.op_done_ps[index])
            h = fold64(h, e.op_status[index])
        for index in range(<int64_t>e.plan.port_count * e.plan.class_count):
            h = fold64(h, e.queues[index].ecn_count)
        h = fold64(h, <uint64_t>e.worker.dropped)
        h = fold64(h, <uint64_t>e.worker.xoffs)
        h = fold64(h, e.worker.row_digest)
        return f"{h:016x}"

    def totals(self):
        """Counters of the whole run, by name."""
        cdef worker_t* w = self.e.worker
        return {
            "packet_hops": w.packet_hops,
            "events": w.events,
            "data_packets": w.data_sent,
            "packets_sent": w.sent,
            "packets_delivered": w.delivered,
            "packets_dropped": w.dropped,
            "packets_in_flight": w.sent - w.delivered - w.dropped,
            "retransmissions": w.retransmissions,
            "cnps": w.cnps,
            "read_requests": w.requests,
            "marks": w.marks,
            "xoffs": w.xoffs,
            "pfc_frames": w.pfc_sent,
            "credit_frames": w.credit_frames,
            "drops_headroom_full": w.drops[0],
            "drops_shared_full": w.drops[1],
            "drops_egress_full": w.drops[2],
            "drops_no_route": w.drops[3],
            "drops_watchdog": w.drops[4],
            "drops_link_down": w.drops[5],
            "drops_corrupt": w.drops[6],
            "drops_receiver_full": w.drops[7],
        }

    def ports(self):
        """Per port over the whole run: ``hops``, ``sent_bytes`` (frames, PFC not counted), ``busy_ps`` (with PFC)."""
        cdef int64_t index
        hops = np.zeros(self.e.plan.port_count, dtype="i8")
        sent = np.zeros(self.e.plan.port_count, dtype="i8")
        busy = np.zeros(self.e.plan.port_count, dtype="i8")
        cdef int64_t[::1] hops_view = hops
        cdef int64_t[::1] sent_view = sent
        cdef int64_t[::1] busy_view = busy
        for index in range(self.e.plan.port_count):
            hops_view[index] = self.e.ports[index].hops
            sent_view[index] = self.e.ports[index].sent_bytes
            busy_view[index] = self.e.ports[index].busy_ps
        return {"hops": hops, "sent_bytes": sent, "busy_ps": busy}

    def verify(self):
        """Walk all state and check the invariants of docs/MODEL.md 14.

        Returns
        -------
        list of (str, bool, str)
            Name, whether it holds, what was found.
        """
        fault = self.fault()
        return [
            *invariants_hold(self.e, self.now_ps, self.last_status == DRAINED, self.plan.lossless_guaranteed),
            *transport_holds(self.e, self.ops()),
            ("no_fault", fault is None, "" if fault is None else f"{fault[0]} at {fault[1]} ps, node {fault[2]}"),
        ]

    def memory_bytes(self):
        """Bytes the engine holds now, by kind."""
        return bytes_held(self.e, self.fixed_bytes)


def footprint(**counts):
    """Bytes of the fixed state of an engine that does not exist yet.

    Parameters
    ----------
    counts
        By name, what is not 0: ``hosts``, ``nodes``, ``ports``, ``host_ports``, ``classes``, ``lossless`` (of the
        classes), ``widest_ports`` (of the device with the most), ``port_pairs`` (sum over the switches of the square
        of their ports), ``qps``, ``ops``, ``messages`` (of the operations; default all), ``profiles`` (of NICs),
        ``epochs`` (of routes), ``threads``; and whether there are ``actions``, ``weights``, ``credits``, ``receivers``
        (actions of hosts), ``watchdogs``, ``reads``, ``scale_up``, ``creation`` (the compatibility scheduler).

    Returns
    -------
    dict of str to int
        ``fabric``, ``operations``: taken when the engine is made; ``accounts``: buffer accounts of the switches, of
        which only what is used takes memory. `Engine.memory_bytes` has ``accounts`` in its ``fabric``.
    """
    cdef shape_t s
    memset(&s, 0, sizeof(shape_t))
    s.host_count = counts.pop("hosts", 0)
    s.node_count = counts.pop("nodes", 0)
    s.port_count = counts.pop("ports", 0)
    s.host_port_count = counts.pop("host_ports", 0)
    s.class_count = counts.pop("classes", 0)
    s.lossless_count = counts.pop("lossless", 0)
    s.widest_ports = max(1, counts.pop("widest_ports", 0))
    s.port_pairs = counts.pop("port_pairs", 0)
    s.qp_count = counts.pop("qps", 0)
    s.op_count = counts.pop("ops", 0)
    s.message_count = counts.pop("messages", s.op_count)
    s.profile_count = counts.pop("profiles", 0)
    s.epoch_count = counts.pop("epochs", 0)
    s.thread_count = max(1, counts.pop("threads", 1))
    s.has_actions = counts.pop("actions", False)
    s.has_weights = counts.pop("weights", False)
    s.has_credits = counts.pop("credits", False)
    s.has_receivers = counts.pop("receivers", False)
    s.has_watchdogs = counts.pop("watchdogs", False)
    s.has_reads = counts.pop("reads", False)
    s.has_scale_up = counts.pop("scale_up", False)
    fabric = footprint_fabric(&s)
    if counts.pop("creation", False):
        fabric += zeroed_bytes(1, sizeof(creation_t))
    if counts:
        raise TypeError(f"no counts of a plan: {', '.join(counts)}")
    return {"fabric": fabric, "operations": footprint_operations(&s), "accounts": footprint_accounts(&s)}


def pauses_in_order(rows, ps_t end_ps):
    """Rows of pauses, as the engine has them, in the order in which a drain at `end_ps` gives them.

    Returns
    -------
    tuple
        Rows that are final, and those that are not.
    """
    cdef record_buffer_t buffer
    cdef int64_t final = 0
    given, made = np.array(rows), np.empty_like(rows)
    cdef size_t source = given.ctypes.data, target = made.ctypes.data
    buffer.data, buffer.count, buffer.size = <char*>source, len(rows), given.itemsize
    if given.dtype != _PAUSE:
        raise ValueError("rows of pauses, as the engine has them")
    if not pauses_leave(&buffer, <pause_row_t*>target, end_ps, &final):
        raise MemoryError("no memory for rows")
    return made[:final], given[:buffer.count]


def struct_bytes():
    """Bytes of what an engine holds many of, by name: what grows in the course of a run is made of these."""
    return {
        "packet": sizeof(packet_t),
        "qp": sizeof(qp_t),
        "receiver": sizeof(rx_t),
        "control": sizeof(control_t),
        "timed": sizeof(timed_t),
        "ready": sizeof(ready_t),
        "flowlet": sizeof(flowlet_t),
        "flow_row": sizeof(flow_row_t),
        "port_row": sizeof(port_row_t),
        "pause_row": sizeof(pause_row_t),
        "drop_row": sizeof(drop_row_t),
        "packet_row": sizeof(packet_row_t),
        "event_row": sizeof(event_row_t),
    }
