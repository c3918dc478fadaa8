"""The plan as the core sees it: constant flat arrays.

Owns      plan_t, borrowed pointers into the numpy arrays of fabemu.plan.Plan (documented there, same names).
Invariant nothing in it changes after engine_init, but for `route`: the table of the present epoch.
"""
from .types cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t

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
    const int32_t* host_nic
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
