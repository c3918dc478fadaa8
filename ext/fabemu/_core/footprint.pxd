"""What an engine takes before its first event: the bytes of its fixed state, from the counts of a plan.

Owns      shape_t; footprint_fabric, footprint_operations, footprint_accounts.
Invariant footprint_fabric + footprint_operations is what the arena of an engine has handed out when it is made, to the
          byte; a new array of `_allocate`, `actions_init`, `options_init`, `receivers_make` or `watchdogs_make` has its
          line here.
"""
from .types cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, ps_t
from .inbox cimport INBOX_BUCKETS
from .memory cimport zeroed_bytes
from .plan cimport nic_profile_t
from .state cimport (bound_t, credit_port_t, express_t, host_t, lane_t, mailbox_t, outbox_t, pause_t, pending_queue_t,
                     port_t, queue_t, receiver_t, scale_up_t, schedule_t, switch_t, watch_t, watchdog_t, worker_t)
from .wake cimport DUE_FEW, WHEEL_SLOTS

# What the size of the fixed state depends on.
cdef struct shape_t:
    int64_t host_count
    int64_t node_count
    int64_t port_count
    int64_t host_port_count
    int64_t class_count
    int64_t lossless_count        # of the classes
    int64_t widest_ports          # of the device with the most
    int64_t port_pairs            # sum over the switches of the square of their ports
    int64_t qp_count
    int64_t op_count
    int64_t message_count         # of the operations
    int64_t profile_count         # of NICs
    int64_t epoch_count           # of routes
    int64_t thread_count          # most that may step it
    bint has_actions
    bint has_weights
    bint has_credits
    bint has_receivers            # control actions of hosts
    bint has_watchdogs
    bint has_reads
    bint has_scale_up


cdef inline int64_t footprint_fabric(const shape_t* s) noexcept nogil:
    """Bytes for devices, ports and the one that steps them."""
    cdef int64_t queue_count = s.port_count * s.class_count
    cdef int64_t switch_count = s.node_count - s.host_count
    cdef int64_t mirrored = 2 if s.thread_count > 1 else 1
    cdef int64_t total = zeroed_bytes(s.profile_count, sizeof(nic_profile_t))
    if s.has_actions:
        total += 2 * zeroed_bytes(s.port_count, 1)
        total += zeroed_bytes(8 * s.port_count, sizeof(int32_t))
        total += zeroed_bytes(queue_count, sizeof(int64_t))
        total += zeroed_bytes(switch_count, sizeof(int64_t))
        total += zeroed_bytes(s.epoch_count, 1)
    total += zeroed_bytes(mirrored * s.port_count, sizeof(port_t))
    total += zeroed_bytes(queue_count, sizeof(queue_t))
    total += zeroed_bytes(2 * s.port_count * s.lossless_count, sizeof(pause_t))
    total += zeroed_bytes(s.port_count, sizeof(pending_queue_t))
    total += zeroed_bytes(mirrored * s.port_count, sizeof(ps_t))
    # port_touched, pfc_send_mask, pfc_obey_mask, stuck_mask
    total += 4 * zeroed_bytes(s.port_count, 1)
    total += zeroed_bytes(s.port_count, sizeof(int32_t))  # closing
    total += zeroed_bytes(switch_count, sizeof(switch_t))
    total += zeroed_bytes(switch_count * s.class_count, sizeof(int64_t))
    total += zeroed_bytes(switch_count * s.class_count, 1)
    if s.has_weights:
        total += zeroed_bytes(s.port_count, sizeof(schedule_t))
    if s.has_credits:
        total += zeroed_bytes(queue_count, sizeof(lane_t))
        total += zeroed_bytes(s.port_count, sizeof(credit_port_t))
    total += zeroed_bytes(s.host_count, sizeof(host_t))
    if s.has_scale_up:
        total += zeroed_bytes(s.host_count, sizeof(scale_up_t))
    total += zeroed_bytes(s.host_port_count * s.class_count, sizeof(outbox_t))
    total += zeroed_bytes(s.node_count, sizeof(ps_t))
    total += zeroed_bytes(s.node_count, sizeof(uint16_t))
    total += zeroed_bytes(s.node_count, 1)
    total += zeroed_bytes(s.thread_count, sizeof(worker_t*)) + zeroed_bytes(1, sizeof(worker_t))
    if s.thread_count > 1:
        total += zeroed_bytes(s.port_count + 1, sizeof(mailbox_t))
    total += s.thread_count * footprint_worker(s)
    if s.has_receivers:
        total += zeroed_bytes(s.host_port_count, sizeof(receiver_t))
    if s.has_watchdogs:
        total += zeroed_bytes(switch_count, sizeof(watchdog_t))
        total += zeroed_bytes(queue_count, sizeof(watch_t))
    return total


cdef inline int64_t footprint_worker(const shape_t* s) noexcept nogil:
    """Bytes that each thread has for itself."""
    cdef int64_t words = (s.node_count + 63) // 64
    cdef int64_t total = zeroed_bytes(WHEEL_SLOTS * words, sizeof(uint64_t))
    total += zeroed_bytes(WHEEL_SLOTS * ((words + 63) // 64), sizeof(uint64_t))
    total += 3 * zeroed_bytes(256, sizeof(uint64_t))
    total += zeroed_bytes((s.port_count + 63) // 64, sizeof(uint64_t))
    total += zeroed_bytes((s.port_count + 4095) // 4096, sizeof(uint64_t))
    total += zeroed_bytes(INBOX_BUCKETS, sizeof(uint32_t))
    total += 3 * zeroed_bytes(s.widest_ports, sizeof(int32_t))
    total += zeroed_bytes(s.widest_ports + DUE_FEW, sizeof(int32_t))
    total += 2 * zeroed_bytes(s.widest_ports, sizeof(uint32_t))
    total += zeroed_bytes(s.widest_ports, sizeof(int64_t))
    total += zeroed_bytes(256, sizeof(express_t))
    total += zeroed_bytes(s.widest_ports * s.class_count, sizeof(bound_t))
    total += zeroed_bytes(s.widest_ports, 1)
    total += zeroed_bytes(4 * s.widest_ports + 64, sizeof(int32_t))
    total += zeroed_bytes(4 * s.widest_ports + 64, sizeof(uint64_t))
    return total


cdef inline int64_t footprint_operations(const shape_t* s) noexcept nogil:
    """Bytes for operations and queue pairs that have not begun."""
    cdef int64_t total = 2 * zeroed_bytes(s.qp_count, sizeof(int32_t))
    if s.has_reads:
        total += zeroed_bytes(s.qp_count, sizeof(uint64_t))
    # Two times, and of messages two more; their packets, retransmissions, CNPs and marks.
    total += 2 * zeroed_bytes(s.op_count, sizeof(ps_t)) + 2 * zeroed_bytes(s.message_count, sizeof(ps_t))
    total += 4 * zeroed_bytes(s.message_count, sizeof(int64_t))
    total += zeroed_bytes(s.op_count, 1) + zeroed_bytes(s.op_count, sizeof(int32_t))
    return total


cdef inline int64_t footprint_accounts(const shape_t* s) noexcept nogil:
    """Bytes that the buffer accounts of the switches take at most, when every pair of ports has met."""
    return s.lossless_count * s.port_pairs * <int64_t>sizeof(uint32_t)
