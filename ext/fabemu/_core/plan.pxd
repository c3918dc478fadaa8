"""The plan as the core sees it: constant flat arrays.

Owns      plan_t, borrowed pointers into the numpy arrays of fabemu.plan.Plan (documented there, same names); plan_read.
Invariant nothing in it changes after engine_init, but for `route`: the table of the present epoch.
"""
from .types cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t
from .memory cimport pointer

cdef extern from *:
    """
    static const int32_t fabemu_no_sets[2];
    """
    const int32_t NO_SETS "fabemu_no_sets"[2]

cdef struct nic_profile_t:
    uint8_t cc                      # CC_*
    uint8_t notify                  # NOTIFY_*
    uint8_t clamp_target
    int32_t threshold               # F
    int32_t ack_every               # packets
    int32_t retry_count
    int64_t fixed_rate_bps
    int64_t window_packets          # 0 = none
    uint8_t selective               # retransmission: selective repeat
    int64_t selective_window        # packets
    int64_t reorder                 # packets by which one may come late before it counts as lost
    ps_t rto_ps
    ps_t cnp_interval_ps
    double g                        # weight of the new value
    double alpha_init
    double min_dec_fac
    ps_t alpha_timer_ps
    ps_t decrease_timer_ps
    ps_t decrease_offset_ps
    ps_t increase_timer_ps
    int64_t byte_reset              # 0 = no byte counter
    int64_t rate_ai_bps
    int64_t rate_hai_bps
    int64_t rate_min_bps

cdef struct plan_t:
    uint64_t seed
    ps_t until_ps
    ps_t sample_ps
    int32_t scheduler
    bint truncate_ns
    bint ns3_buffer
    bint ns3_nic
    bint ns3_pfc
    bint round_robin
    int32_t mtu_bytes
    int32_t header_bytes
    int32_t reth_bytes
    int32_t ack_bytes               # padded to the least frame
    int32_t cnp_bytes               # same
    int32_t read_request_bytes      # same
    int32_t aeth_bytes
    int32_t read_outstanding_max    # messages
    uint32_t psn_start
    bint has_read                   # some QP reads
    bint has_selective              # some NIC repeats selectively
    int32_t pfc_bytes               # same
    int32_t wire_overhead_bytes
    int32_t frame_min_bytes
    int32_t pad_bytes
    int32_t class_count
    int32_t node_count
    int32_t host_count
    int32_t port_count
    int32_t qp_count
    int32_t op_count
    int32_t group_count
    int32_t cnp_class
    uint32_t lossless_mask          # bit per class
    const uint8_t* class_ecn
    const uint8_t* class_ack
    const int32_t* node_port_start
    const uint32_t* node_seed
    const int32_t* node_route_row
    const int64_t* switch_buffer_bytes
    const int64_t* switch_pool_bytes
    const int64_t* switch_latency_ps
    const int32_t* port_node
    const int32_t* port_peer
    const int64_t* port_rate_bps
    const int64_t* port_delay_ps
    const int64_t* port_pause_ps
    const int64_t* port_pfc_response_ps
    const int64_t* pq_static_bytes
    const int64_t* pq_egress_static_bytes
    const int32_t* pq_quantum_bytes
    const uint8_t* pq_ecn
    const uint8_t* switch_class_map
    const uint8_t* port_credit
    const int64_t* pq_credit_bytes
    const int64_t* port_credit_refresh_ps
    int32_t credit_bytes            # padded to the least frame
    const int64_t* pq_egress_alpha_q16
    const int64_t* pq_pmax_q32
    const int32_t* host_group
    const int32_t* host_access_port
    const int32_t* route
    const int32_t* nexthop_start
    const int32_t* nexthop_port
    const uint32_t* nexthop_weight
    const int32_t* host_nic
    const int32_t* host_domain      # scale-up; NONE = of none
    const int64_t* host_scale_up_rate_bps
    const int64_t* host_scale_up_latency_ps
    bint has_scale_up               # some operation is one
    int32_t message_count           # operations below it may be sends, those above are not
    nic_profile_t* nic              # owned by the engine
    const int32_t* qp_src
    const int32_t* qp_dst
    const uint8_t* qp_class
    const uint8_t* qp_verb
    const uint32_t* qp_hash
    const uint32_t* qp_ack_hash
    const int32_t* qp_op_start
    const int32_t* qp_op
    const uint8_t* op_kind
    const int32_t* op_host
    const int32_t* op_qp
    const int64_t* op_bytes
    const int64_t* op_duration_ps
    const int64_t* op_start_ps
    const int32_t* op_peer
    const int32_t* op_dependency_count
    const int32_t* op_successor_start
    const int32_t* op_successor
    const int32_t* host_op_start
    const int32_t* host_op
    const int64_t* port_rx_xoff_bytes
    const int64_t* port_rx_xon_bytes
    const int64_t* port_rx_buffer_bytes
    ps_t deadlock_interval_ps       # 0 = at the end only
    bint deadlock_stop
    const int64_t* pq_kmin_bytes    # only if there are actions
    int64_t action_count
    const ps_t* action_time_ps
    const uint8_t* action_kind
    const int32_t* action_target
    const int32_t* action_mask
    const int64_t* action_value
    const int32_t* route_first      # table of epoch 0
    int64_t route_epoch_entries     # of one table
    int64_t loss_row_entries        # of one row of loss_q32
    const uint64_t* loss_q32


cdef inline int64_t op_packets(const plan_t* plan, int32_t op) noexcept nogil:
    """Packets of a send: at least one."""
    cdef int64_t size = plan.op_bytes[op]
    if size <= plan.mtu_bytes:
        return 1
    return (size + plan.mtu_bytes - 1) // plan.mtu_bytes


cdef inline int plan_read(plan_t* p, plan) except -1:
    """Borrow the arrays of a fabemu.plan.Plan, which must be kept alive; NICs, transport and actions have readers of
    their own."""
    cdef int32_t klass
    p.seed = plan.seed
    p.until_ps = plan.until_ps
    p.sample_ps = plan.sample_ps
    p.scheduler = plan.scheduler
    p.truncate_ns = plan.truncate_ns
    p.ns3_buffer = plan.ns3_buffer
    p.ns3_nic = plan.ns3_nic
    p.ns3_pfc = plan.ns3_pfc
    p.round_robin = plan.round_robin
    p.mtu_bytes = plan.mtu_bytes
    p.header_bytes = plan.header_bytes
    p.reth_bytes = plan.reth_bytes
    p.ack_bytes = max(plan.ack_bytes, plan.frame_min_bytes)
    p.cnp_bytes = max(plan.cnp_bytes, plan.frame_min_bytes)
    p.pfc_bytes = max(plan.pfc_bytes, plan.frame_min_bytes)
    p.wire_overhead_bytes = plan.wire_overhead_bytes
    p.frame_min_bytes = plan.frame_min_bytes
    p.pad_bytes = plan.pad_bytes
    if not 1 <= plan.class_count <= 8:
        raise ValueError(f"a plan has 1 to 8 classes, not {plan.class_count}")
    p.class_count = plan.class_count
    p.node_count = plan.node_count
    p.host_count = plan.host_count
    p.port_count = plan.port_count
    p.qp_count = plan.qp_count
    p.op_count = plan.op_count
    p.group_count = plan.group_count
    p.cnp_class = plan.cnp_class
    p.lossless_mask = 0
    for klass in range(p.class_count):
        if plan.class_lossless[klass]:
            p.lossless_mask |= <uint32_t>1 << klass
    p.class_ecn = <const uint8_t*>pointer(plan.class_ecn)
    p.class_ack = <const uint8_t*>pointer(plan.class_ack)
    p.node_port_start = <const int32_t*>pointer(plan.node_port_start)
    p.node_seed = <const uint32_t*>pointer(plan.node_seed)
    p.node_route_row = <const int32_t*>pointer(plan.node_route_row)
    p.switch_buffer_bytes = <const int64_t*>pointer(plan.switch_buffer_bytes)
    p.switch_pool_bytes = <const int64_t*>pointer(plan.switch_pool_bytes)
    p.switch_latency_ps = <const int64_t*>pointer(plan.switch_latency_ps)
    p.port_node = <const int32_t*>pointer(plan.port_node)
    p.port_peer = <const int32_t*>pointer(plan.port_peer)
    p.port_rate_bps = <const int64_t*>pointer(plan.port_rate_bps)
    p.port_delay_ps = <const int64_t*>pointer(plan.port_delay_ps)
    p.port_pause_ps = <const int64_t*>pointer(plan.port_pause_ps)
    p.port_pfc_response_ps = <const int64_t*>pointer(plan.port_pfc_response_ps)
    p.pq_static_bytes = <const int64_t*>pointer(plan.pq_static_bytes)
    p.pq_egress_static_bytes = <const int64_t*>pointer(plan.pq_egress_static_bytes)
    p.pq_quantum_bytes = <const int32_t*>pointer(plan.pq_quantum_bytes)
    p.pq_ecn = <const uint8_t*>pointer(plan.pq_ecn)
    p.switch_class_map = <const uint8_t*>pointer(plan.switch_class_map)
    p.port_credit = <const uint8_t*>pointer(plan.port_credit)
    p.pq_credit_bytes = <const int64_t*>pointer(plan.pq_credit_bytes)
    p.port_credit_refresh_ps = <const int64_t*>pointer(plan.port_credit_refresh_ps)
    p.credit_bytes = max(plan.credit_bytes, plan.frame_min_bytes)
    p.pq_egress_alpha_q16 = <const int64_t*>pointer(plan.pq_egress_alpha_q16)
    p.pq_pmax_q32 = <const int64_t*>pointer(plan.pq_pmax_q32)
    p.host_group = <const int32_t*>pointer(plan.host_group)
    p.host_access_port = <const int32_t*>pointer(plan.host_access_port)
    p.route = <const int32_t*>pointer(plan.route)
    # The first set is looked at for every packet, wanted or not.
    p.nexthop_start = <const int32_t*>pointer(plan.nexthop_start) if len(plan.nexthop_port) else NO_SETS
    p.nexthop_port = <const int32_t*>pointer(plan.nexthop_port) if len(plan.nexthop_port) else NO_SETS
    p.nexthop_weight = <const uint32_t*>pointer(plan.nexthop_weight)
    p.host_nic = <const int32_t*>pointer(plan.host_nic)
    p.host_domain = <const int32_t*>pointer(plan.host_domain)
    p.host_scale_up_rate_bps = <const int64_t*>pointer(plan.host_scale_up_rate_bps)
    p.host_scale_up_latency_ps = <const int64_t*>pointer(plan.host_scale_up_latency_ps)
    p.message_count = plan.message_count
    p.qp_src = <const int32_t*>pointer(plan.qp_src)
    p.qp_dst = <const int32_t*>pointer(plan.qp_dst)
    p.qp_class = <const uint8_t*>pointer(plan.qp_class)
    p.qp_hash = <const uint32_t*>pointer(plan.qp_hash)
    p.qp_ack_hash = <const uint32_t*>pointer(plan.qp_ack_hash)
    p.qp_op_start = <const int32_t*>pointer(plan.qp_op_start)
    p.qp_op = <const int32_t*>pointer(plan.qp_op)
    p.op_kind = <const uint8_t*>pointer(plan.op_kind)
    p.op_host = <const int32_t*>pointer(plan.op_host)
    p.op_qp = <const int32_t*>pointer(plan.op_qp)
    p.op_bytes = <const int64_t*>pointer(plan.op_bytes)
    p.op_duration_ps = <const int64_t*>pointer(plan.op_duration_ps)
    p.op_start_ps = <const int64_t*>pointer(plan.op_start_ps)
    p.op_peer = <const int32_t*>pointer(plan.op_peer)
    p.op_dependency_count = <const int32_t*>pointer(plan.op_dependency_count)
    p.op_successor_start = <const int32_t*>pointer(plan.op_successor_start)
    p.op_successor = <const int32_t*>pointer(plan.op_successor)
    p.host_op_start = <const int32_t*>pointer(plan.host_op_start)
    p.host_op = <const int32_t*>pointer(plan.host_op)
    p.port_rx_xoff_bytes = <const int64_t*>pointer(plan.port_rx_xoff_bytes)
    p.port_rx_xon_bytes = <const int64_t*>pointer(plan.port_rx_xon_bytes)
    p.port_rx_buffer_bytes = <const int64_t*>pointer(plan.port_rx_buffer_bytes)
    p.deadlock_interval_ps = plan.deadlock_interval_ps
    p.deadlock_stop = plan.deadlock_stop
    return 0
