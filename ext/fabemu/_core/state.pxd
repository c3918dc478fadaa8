"""All state that changes during a run, as plain structs.

Owns      port_t, queue_t, qp_t, rx_t, host_t, worker_t, engine_t.
Invariant the state of one device (its ports, queues, QPs, receivers) is written by that device alone; a link ring is
          written at its tail by the sender and at its head by the receiver, which one worker steps, or else there is a
          mailbox between them. So workers can run side by side within a window.
"""
from .types cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, ps_t
from .memory cimport arena_t
from .packet cimport packet_t
from .plan cimport plan_t
from .port_columns cimport port_columns_t

cdef struct queue_t:
    # Line 0: egress side of (port, class).
    packet_t* first               # NULL = no frame waits
    packet_t* end                 # place behind the last one
    int64_t bytes                 # frames that wait
    int64_t bytes_max             # interval maximum
    int64_t tx_bytes              # interval counters, here since a host's sending looks at no other line
    int64_t tx_frames
    uint64_t ecn_count            # data frames that have left
    ps_t pause_until_ps
    # Line 1: ingress side, the priority group.
    int64_t reserved_used_bytes
    int64_t shared_used_bytes
    int64_t headroom_used_bytes
    uint32_t reserved_bytes
    uint32_t xon_offset_bytes
    int64_t headroom_bytes
    int64_t alpha_q16
    uint32_t* held                # lossless class: bytes that wait at each egress port (local index)
    ps_t pause_since_ps           # of the egress side; -1 = not paused, or already accounted
    # Line 2: marking, interval statistics.
    int64_t kmin_bytes
    int64_t kmax_bytes
    double area_byte_ps           # integral of bytes over time
    ps_t area_since_ps
    ps_t paused_ps
    uint32_t xoff_sent
    uint32_t xoff_received
    uint32_t marks
    uint32_t headroom_max_bytes   # of the priority group
    uint32_t drops                # of frames that came in here

cdef struct port_t:
    # Line 0: sending.
    ps_t busy_until_ps
    ps_t delay_ps
    uint64_t digest               # over all departures
    ps_t busy_ps                  # total
    int64_t hops                  # packets sent, PFC frames not counted
    int64_t sent_bytes
    uint32_t ps_per_byte          # 0 = the rate gives no whole number
    int32_t peer                  # port at the other end
    int32_t peer_node
    uint8_t waiting_mask          # classes with frames in their egress queue; of a host: that may have any to send
    uint8_t pfc_pending
    uint8_t last_class            # round robin (compatibility)
    # Line 1: receiving, when something is due, and rare things.
    packet_t* ring                # packets in flight towards this port
    uint32_t head
    uint32_t tail
    uint32_t mask
    uint32_t pending_count        # PFC frames received and not yet in effect
    ps_t kick_ps                  # time of the next transmit choice; FOREVER = none set
    ps_t refresh_ps               # FOREVER = none
    ps_t stamp_ps                 # instant of the last arrival bound for this port
    int64_t rate_bps
    int32_t node
    uint16_t local                # index within the node
    uint8_t xoff_mask             # classes for which XOFF stands (ingress)

# Cold companion of a priority group: the pause row that is being written.
cdef struct pause_t:
    ps_t xoff_ps                  # -1 = no row open
    ps_t sent_ps
    ps_t start_ps
    ps_t xon_ps
    ps_t peer_until_ps
    int64_t ingress_bytes
    int64_t headroom_bytes
    int64_t threshold_bytes
    int32_t egress_port
    int32_t parent_port
    uint8_t crossed               # CROSSED_*

# Weighted classes of a switch port (deficit round robin).
cdef struct schedule_t:
    uint32_t weighted_mask        # classes with a quantum; 0 = all strict
    int32_t cursor
    int64_t deficit_bytes[8]

# Credits of one virtual lane, in blocks. Each field is written by the device of its port alone.
cdef struct lane_t:
    int64_t sent                  # sender: of all frames started
    int64_t known                 # sender: freed at the peer, by its last frame
    int64_t freed                 # receiver: of all frames that left its buffer
    int64_t capacity              # receiver

cdef struct totals_t:
    int64_t freed[8]              # per class

# Credit frames in flight towards a port.
cdef struct credit_port_t:
    totals_t* ring
    uint32_t head
    uint32_t tail
    uint32_t mask                 # all ones before the first allocation
    int32_t repeats               # frames since the last free

cdef struct pending_t:
    ps_t time_ps
    uint32_t mask
    uint32_t classes              # classes the frame speaks of

cdef struct pending_queue_t:
    pending_t* buffer
    uint32_t head
    uint32_t tail
    uint32_t mask

cdef struct cc_t:
    # What sending a packet needs, in half a cache line.
    int64_t rate_bps
    ps_t next_ps                  # earliest of the timers below; FOREVER before the first CNP
    int64_t byte_count
    uint8_t is_active             # a CNP has come
    uint8_t cnp_alpha
    uint8_t cnp_decrease
    uint8_t counts_bytes
    int32_t byte_stage            # nB
    # What CNPs and timers need.
    int64_t target_bps
    double alpha
    ps_t alpha_next_ps
    ps_t increase_next_ps
    ps_t decrease_next_ps
    int32_t timer_stage           # nT

cdef struct qp_t:
    # Line 0: sending in the middle of a message, and its acknowledgements.
    uint64_t snd_nxt
    uint64_t snd_una
    uint64_t snd_max
    uint64_t available_end        # packets of posted messages
    uint64_t message_first        # of the message at snd_nxt
    uint64_t message_end
    uint64_t una_end
    int32_t qp
    uint8_t in_heap               # an entry of the ready heap exists
    uint8_t has_timer             # an entry of the host's timer heap exists
    uint8_t mode                  # MODE_*
    uint8_t repair                # selective: a packet waits to be sent again, sacked_t.rtx
    # Line 1: the rest of sending, the first half of `cc` included.
    ps_t next_send_ps
    ps_t deadline_ps              # FOREVER = none
    uint32_t hash
    uint32_t dst
    uint32_t window_packets       # 0 = none
    uint16_t group
    uint16_t klass
    cc_t cc
    # Rest of line 2, and line 3: what messages begin and end with, and timeouts.
    int64_t message_bytes
    uint64_t una_first
    int32_t port
    uint16_t first_extra          # header bytes that the first packet of a message has more
    uint16_t last_extra           # same, of the last one if it is not the first
    int32_t message_index         # position of the message at snd_nxt in the QP's list
    int32_t available_index       # messages posted, in list order
    int32_t una_index             # message at snd_una
    int32_t retries               # timeouts at timeout_una
    uint64_t timeout_una          # snd_una when the last timeout came
    int32_t free_next
    uint8_t spare[28]             # slots lie on cache lines

# A cache line.
cdef struct rx_t:
    uint64_t expected
    uint64_t message_end
    ps_t last_cnp_ps              # -1 = none yet
    uint64_t ack_position         # of the waiting ACK in the control queue, + 1; 0 = none
    uint32_t marks
    int32_t qp
    int32_t message_index         # of a slot that is free: the next free one
    int32_t since_ack
    int32_t port                  # that its ACKs and CNPs leave by
    uint32_t hash                 # of ACKs, NAKs and CNPs
    uint32_t dst
    uint16_t group
    uint8_t ack_class
    uint8_t state                 # MODE_*, and RX_NAK_SENT

# Companion of qp_t under selective repeat.
cdef struct sacked_t:
    uint64_t* bits                # ring of the packets that the receiver has beyond snd_una
    uint64_t mask                 # packets in the ring - 1
    uint64_t rtx                  # nothing below waits to be sent again
    uint64_t top                  # the highest packet sacked, + 1
    uint64_t recovery_end         # in recovery until snd_una is here; 0 = not in recovery
    uint64_t reorder              # a packet is lost when one this far beyond it has come
    bint all_lost                 # the recovery follows a timeout: snd_una and every gap are lost

# Companion of rx_t under selective repeat.
cdef struct kept_t:
    uint64_t* bits                # ring of the packets that came too early
    uint64_t mask

# Companion of rx_t at the requester of a QP that reads.
cdef struct read_t:
    uint64_t next                 # first packet that was not asked for yet
    ps_t deadline_ps              # FOREVER = none
    int32_t requested_index       # messages asked for
    int32_t available_index       # messages posted, in list order
    int32_t retries
    uint8_t has_timer

cdef struct control_t:
    int32_t qp
    uint32_t psn
    uint32_t hash
    uint32_t dst
    uint16_t group
    uint8_t kind
    uint8_t flags

cdef struct control_queue_t:
    control_t* buffer
    uint64_t head
    uint64_t tail
    uint32_t mask

cdef struct ready_t:
    ps_t ready_ps
    int32_t qp
    int32_t slot

cdef struct timed_t:
    ps_t time_ps
    int32_t id
    int32_t node

cdef struct timed_heap_t:
    timed_t* entries
    int64_t count
    int64_t capacity

cdef struct ready_heap_t:
    ready_t* entries              # `own` until there is more than one
    int32_t count
    int32_t capacity              # 1 = that of `own`
    ready_t own

# Sending side of one (host port, class): a cache line.
cdef struct outbox_t:
    control_queue_t control
    ready_heap_t ready

cdef struct host_t:
    # Line 0: what every visit looks at.
    qp_t* qps
    rx_t* receivers
    ps_t timer_key_ps             # time of the timer key that is set; FOREVER = none
    ps_t op_key_ps
    sacked_t* sacked              # by slot of qps; NULL without selective repeat
    kept_t* kept                  # by slot of receivers; NULL without selective repeat
    read_t* reads                 # by slot of receivers; NULL without QPs that read
    int32_t qp_free
    int32_t rx_free
    # Line 1: when something is due.
    timed_heap_t timers           # (time, qp)
    timed_heap_t due              # (time, op)
    int32_t next_op               # into plan.host_op
    int32_t qp_capacity
    int32_t rx_capacity

# A host's port to its scale-up domain.
cdef struct scale_up_t:
    timed_heap_t inbound          # (time, op): begins to arrive; (time, op with the top bit set): has arrived
    ps_t out_free_ps
    ps_t in_free_ps

# What a switch remembers of a flow, or of those that share a place among its flowlets.
cdef struct flowlet_t:
    ps_t last_ps                  # its last packet came
    int32_t port                  # by which that left; NONE = no packet yet
    uint32_t qp                   # least-loaded-flow

cdef struct switch_t:
    int64_t pool_bytes
    int64_t shared_used_bytes
    ps_t latency_ps
    uint32_t* held                # (lossless class, ingress, egress) bytes; queue_t.held points into it
    int64_t alpha_min_q16         # least over the PGs of lossless classes
    int64_t lossy_bytes           # frames of lossy classes that wait
    int32_t port_count
    int32_t fault_count           # ports that are down, and links that lose frames on their way in
    uint32_t unusual              # UNUSUAL_* bits; 0 = plain: express lane and shortcuts apply
    int32_t cell_bytes            # buffers count whole cells of this size
    int32_t xoff_count            # PGs for which XOFF stands, and queues in storm: above 0, nothing takes a shortcut
    bint headroom_untold          # a PG may use headroom and no XOFF stand, now or later: PFC was off, a link down
    int32_t storm_count           # egress queues that the watchdog has found in storm
    int32_t balance               # BALANCE_*
    int32_t flowlet_count         # places of `flowlets`; least-loaded-flow: a power of two, or 0
    int32_t flow_count            # least-loaded-flow: of them in use
    flowlet_t* flowlets           # NULL until the first packet that needs it
    ps_t flowlet_gap_ps

# Watchdog of one switch.
cdef struct watchdog_t:
    ps_t poll_ps                  # 0 = no watchdog
    ps_t detect_ps
    ps_t restore_ps
    ps_t next_ps                  # armed poll; FOREVER = none
    uint8_t action                # WATCHDOG_*

# What the watchdog knows of one egress queue.
cdef struct watch_t:
    ps_t left_ps                  # a frame left the queue
    ps_t pause_begin_ps           # of the present continuous pause
    uint8_t is_watched
    uint8_t in_storm

# Receiving side of one host port: data frames that wait to be processed, and the reasons for XOFF.
cdef struct receiver_t:
    packet_t* buffer
    uint32_t head
    uint32_t tail
    uint32_t mask
    uint8_t in_service
    uint8_t storm_mask            # classes for which the host sends XOFF whatever it holds
    uint8_t want_mask             # classes that fill the buffer
    int64_t rate_bps              # 0 = stopped, -1 = unlimited
    int64_t bytes                 # in the buffer, the frame in service included
    int64_t class_bytes[8]
    ps_t end_ps                   # of the service; FOREVER = none

cdef struct record_buffer_t:
    char* data
    int64_t count
    int64_t capacity
    int32_t size                  # of one record

# An arrival of a visit that takes the express lane.
cdef struct express_t:
    const packet_t* packet
    ps_t time_ps
    uint64_t shape                # packet_shape of the packet, `ingress` being the local port by which it came
    express_t* next               # arrival for the same queue; NULL = last

# The arrivals of such a visit that are bound for one egress queue.
cdef struct bound_t:
    express_t* head               # NULL = none
    express_t* tail
    express_t* cursor             # the one that was last put into the list
    uint8_t mixed                 # they are not known to be in order

# Where packets for a device of another worker wait for the end of the window: companion of the port that stands for
# the receiving one, whose ring they are in.
cdef struct mailbox_t:
    int32_t to                    # worker
    uint32_t posted               # ring position up to which letters have told of them
    packet_t* outgrown            # the ring before it grew: a letter may still speak of it
    uint32_t outgrown_places
    uint32_t outgrown_turn        # window in which it grew

# What one worker tells another at the end of a window: packets of one link.
cdef struct letter_t:
    const packet_t* ring
    uint32_t mask
    uint32_t first                # ring positions
    uint32_t end
    int32_t box                   # port that stands for the receiving one

cdef struct post_t:
    letter_t* letters
    int32_t count
    int32_t capacity

# What one thread needs.
cdef struct worker_t:
    int32_t index
    arena_t* arena                # that what it grows lies in
    # Wheel of windows: which of its devices wake in which window.
    uint64_t wheel_slots          # slots with any device
    uint64_t* wheel               # [64][wheel_words]: one bit per device
    uint64_t* wheel_top           # [64][wheel_tops]: one bit per word that is not zero
    int64_t wheel_words
    int64_t wheel_tops
    timed_heap_t far
    int64_t next_index            # first window with something to do after the last one, for itself or by its letters
    ps_t last_hop_ps
    int32_t* noted                # mailboxes with packets of this window
    int32_t noted_count
    post_t* posts                 # (parity of the window, worker that they are for)
    arena_t own_arena             # worker 0 uses the engine's
    uint64_t* touched             # a bit per port: has statistics of the open interval
    uint64_t* touched_tops        # a bit per word of those
    # Blocks of egress queues.
    void* spare_blocks            # a place in the first, which points to one in the next
    char* fresh_blocks            # of the newest slab: not handed out yet
    int32_t fresh_count
    int32_t slab_blocks           # size of the newest slab
    int64_t block_bytes           # of all slabs
    uint64_t* inbox               # keys of the arrivals of this visit, sorted
    uint64_t* inbox_spare
    uint32_t* buckets
    int32_t* run_end              # inbox: where the keys of each link end
    int64_t inbox_count
    int64_t inbox_next
    int64_t inbox_capacity
    int64_t inbox_bytes           # frames that arrive in this visit (express lane)
    express_t* express
    int64_t express_capacity
    bound_t* bound                # per (local port, class)
    uint8_t* bound_classes        # per local port: classes with such arrivals
    uint64_t* heap                # keys of everything else
    int32_t heap_count
    int32_t heap_capacity
    int32_t node                  # being stepped
    bint lone                     # a host is stepped by itself: it looks for its next event, and wants no keys
    ps_t instant_ps               # being run; transmit choices of this instant go to `choices`
    int32_t* arrivals             # local ports with an arrival at this instant
    int32_t* due                  # port ids with something to do in this visit
    int64_t* due_bytes            # that arrive there
    uint32_t* due_classes         # of those arrivals
    uint32_t* due_end             # ring position after the last of them
    int32_t due_count
    ps_t least_ps                 # earliest event that this visit leaves behind
    int32_t* egress               # port ids that `arrivals` are bound for
    int32_t* choices              # local ports with a transmit choice at this instant
    uint64_t* ties                # hashes of `arrivals` or `choices`
    int32_t choice_count
    int32_t choice_capacity
    uint64_t seed                 # of the plan
    ps_t window_start_ps
    ps_t limit_ps                 # events before it run in this visit
    packet_t never                # arrives at FOREVER
    int64_t packet_hops
    int64_t events
    int64_t pfc_sent
    int64_t pfc_received
    int64_t credit_frames
    int64_t sent                  # packets put on a link by hosts
    int64_t sent_bytes
    int64_t delivered             # packets that reached their host
    int64_t delivered_bytes
    int64_t dropped
    int64_t dropped_bytes
    int64_t drops[8]              # by cause
    int64_t marks
    int64_t xoffs
    uint64_t row_digest           # over drops and pauses, whatever their order
    int64_t link_sent             # frames put on links, PFC included
    int64_t link_received
    int64_t data_sent
    int64_t retransmissions
    int64_t cnps
    int64_t requests              # READ requests sent
    int64_t requests_queued
    int64_t control_sent          # ACKs, NAKs, CNPs and READ requests
    int64_t finished_ops
    int64_t started_ops           # of those that wait for nothing but their time
    ps_t last_event_ps
    record_buffer_t flows
    record_buffer_t ports
    record_buffer_t pauses
    record_buffer_t drop_rows
    record_buffer_t packets
    record_buffer_t event_rows

cdef struct fault_t:
    int32_t code
    ps_t time_ps
    int32_t node
    int32_t port

cdef struct engine_t:
    plan_t plan
    worker_t* worker              # the first; all counters and records are with it while no window is being stepped
    worker_t** workers
    int32_t worker_count          # that can be had
    int32_t crew_size             # that share the devices now
    uint16_t* node_worker
    mailbox_t* mailboxes          # of ports from plan.port_count on
    int32_t mailbox_count         # that have ever been used
    void* crew                    # crew_t; NULL = there was never more than one thread
    uint32_t turn                 # windows stepped
    ps_t window_start_ps
    ps_t window_end_ps
    ps_t limit_ps                 # events before it run in this window
    uint8_t* node_side            # per device: 0 or 1; sides_find
    int32_t side_mask             # 1: the devices of two sides take turns; 0: all are of one
    bint hosts_are_near           # hosts reach each other within two steps: side 0, theirs, goes step by step
    ps_t side_ps[2]               # every event of the devices of a side before it has run
    ps_t meet_ps                  # to where both sides are to run before anything else; FOREVER = nowhere
    fault_t fault
    arena_t arena
    ps_t now_ps                   # every event before it has run
    ps_t step_ps                  # what is sent arrives so much later, or more
    uint64_t step_inverse         # 2^64 / step_ps, rounded down
    uint32_t link_watch           # WATCH_*
    bint express                  # the express lane may be taken
    bint shortcuts                # straight-through forwarding; off in the classic scheduler
    bint by_heap                  # classic scheduler: wake-ups go to the heap, not to the wheel
    int32_t data_full_bytes       # frame of a full payload, without RETH
    int32_t frame_bytes_max       # of any frame
    int32_t lossless_index[8]     # class -> number among the lossless ones
    int32_t lossless_count
    port_t* ports
    queue_t* queues               # port * class_count + class
    pause_t* pauses               # two per (port, lossless class), see pause_of
    pending_queue_t* pendings     # per port
    ps_t* port_next_ps            # no event of the port is earlier; FOREVER = it has none
    uint8_t* pfc_send_mask        # per port: classes whose PGs may raise XOFF
    uint8_t* pfc_obey_mask        # per port: classes that a received PFC frame speaks to
    uint8_t* class_map            # (switch, class): as which a frame is treated
    schedule_t* schedules         # per port; NULL = no weights anywhere
    lane_t* lanes                 # (port, class) of links with credits; NULL = none
    credit_port_t* credits        # per port; NULL = none
    bint is_large                 # what ports and queues take is beyond the cache of a core
    uint8_t* port_touched         # classes with statistics of the open interval; if any, in `touched` of one worker
    int32_t* closing              # ports of the interval that is being closed
    switch_t* switches
    watchdog_t* watchdogs         # per switch; NULL = there is none
    watch_t* watches              # per (port, class); NULL with them
    receiver_t* receivers         # per host port; NULL = no host is slow or storms
    uint8_t* stuck_mask           # per port: classes whose egress queue waits for ever, while that is worked out
    ps_t deadlock_next_ps         # next check; FOREVER = none
    int32_t deadlock_count        # found so far
    bint is_deadlocked            # the last check found one
    int64_t* egress_alpha_min_q16  # (switch, class): least over the ports
    host_t* hosts
    scale_up_t* scale_ups         # per host; NULL = no operation uses one
    outbox_t* outboxes            # host ports * class_count
    int32_t host_port_count
    int64_t window_index
    ps_t* node_far_ps             # wake-up that is already in `far` of its worker
    ps_t sample_start_ps
    # Operations and QPs.
    int32_t* qp_slot              # sender: -1 not begun, -2 done, -3 failed
    int32_t* rx_slot              # receiver: -1 not begun, -2 done, -3 failed (READ)
    uint64_t* read_max            # READ: snd_max of a responder that was forgotten; NULL without QPs that read
    ps_t* op_posted_ps
    ps_t* op_first_ps
    ps_t* op_delivered_ps
    ps_t* op_done_ps
    uint8_t* op_status
    int32_t* op_waiting           # dependencies not yet done
    int64_t* op_packets
    int64_t* op_retransmissions
    int64_t* op_cnps
    int64_t* op_marks
    # Control actions; the arrays are NULL in a plan without any.
    int64_t action_next
    ps_t action_next_ps           # FOREVER = none is left
    uint8_t* down                 # per port: its link is down
    uint8_t* lossy                # per port: a loss rule has been set on it
    int32_t* loss_row             # port * 8 + kind; -1 = none
    int64_t* headroom_most_bytes  # per PG: greatest so far
    int64_t* headroom_added_bytes  # per switch: by actions, beyond the buffer that the plan divides up
    uint8_t* epoch_is_whole       # per epoch of routes: every entry leads somewhere
    bint express_wanted
    # Compatibility scheduler.
    void* creation                # creation_t; NULL = another scheduler
    int32_t touched_port          # host port that asked for a choice in this event; -1 = none
    port_columns_t port_columns   # where rows of ports go while there is room; others are recorded
