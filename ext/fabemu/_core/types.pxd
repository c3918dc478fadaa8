"""Base types and constants of the core.

Owns      integer types, sentinels, event classes, packet kinds and flags, fault codes.
Invariant the values of the kinds, causes and flags are those of the trace tables.
"""
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

ctypedef int64_t ps_t

cdef extern from *:
    """
    #define FABEMU_FOREVER (((int64_t)1) << 62)
    /* The empty statement keeps compilers from taking a function that only prefetches for one without effect. */
    #define FABEMU_PREFETCH(p) do { __builtin_prefetch((p), 0, 3); __asm__ __volatile__(""); } while (0)
    #define FABEMU_PREFETCH_WRITE(p) do { __builtin_prefetch((p), 1, 3); __asm__ __volatile__(""); } while (0)
    #define FABEMU_LIKELY(x) __builtin_expect(!!(x), 1)
    #define FABEMU_UNLIKELY(x) __builtin_expect(!!(x), 0)
    #ifndef FABEMU_CHECK
    #define FABEMU_CHECK 0
    #endif
    """
    const ps_t FOREVER "FABEMU_FOREVER"
    const bint CHECK "FABEMU_CHECK"
    const char* BUILD_PROFILE "FABEMU_PROFILE"
    void prefetch "FABEMU_PREFETCH"(const void* address) noexcept nogil
    void prefetch_write "FABEMU_PREFETCH_WRITE"(void* address) noexcept nogil
    bint likely "FABEMU_LIKELY"(bint condition) noexcept nogil
    bint unlikely "FABEMU_UNLIKELY"(bint condition) noexcept nogil
    int ctz "__builtin_ctz"(uint32_t value) noexcept nogil
    int ctz64 "__builtin_ctzll"(uint64_t value) noexcept nogil

cdef enum:
    NONE = -1
    PSN_MASK = 0xffffff           # packet numbers on the wire have 24 bits
    PSN_HALF = 0x800000           # at most this many may be outstanding
    PSN_BITS = 24                 # above: messages that a READ request spans; low bits of a selective NAK's sack

# Event classes at one device and instant (MODEL 5), in their order.
cdef enum:
    EVENT_PFC = 0
    EVENT_ARRIVAL = 1
    EVENT_TIMER = 2
    EVENT_OPERATION = 3
    EVENT_TRANSMIT = 4

# Rows of the events table, beside the control actions.
cdef enum:
    EVENT_ROW_STORM = 16
    EVENT_ROW_RESTORED = 17
    EVENT_ROW_DEADLOCK = 18
    EVENT_ROW_QP_ERROR = 19

# Timers of one device and instant, in their order.
cdef enum:
    TIMER_SERVICE = 0             # a slow receiver is done with a frame
    TIMER_QP = 1                  # QP timeouts
    TIMER_REFRESH = 2             # PFC frames
    TIMER_CREDIT = 3              # credit frames
    TIMER_WATCHDOG = 4            # polls

cdef enum:
    KIND_DATA = 0
    KIND_ACK = 1
    KIND_NAK = 2
    KIND_CNP = 3
    KIND_PFC = 4
    KIND_READ = 5                 # a READ request
    KIND_CREDIT = 6
    KINDS_OF_LINKS = 80           # bits of the kinds that belong to a link: PFC, credit
    KIND_MASK = 7                 # a selective NAK has a part of its sack above
    SACK_KIND_SHIFT = 3
    SACK_KIND_BITS = 4
    KIND_CORRUPT = 0x80           # or-ed in while on a link: the receiver drops it

cdef enum:
    FLAG_CE = 1
    FLAG_FIRST = 2
    FLAG_LAST = 4
    FLAG_ECHO = 8
    FLAG_AGAIN = 8                # of a READ request: what was asked for before
    FLAG_WIRE = 15                # the flags a trace shows; the class sits above them
    CLASS_SHIFT = 4

cdef enum:
    DROP_HEADROOM_FULL = 0
    DROP_SHARED_FULL = 1
    DROP_EGRESS_FULL = 2
    DROP_NO_ROUTE = 3
    DROP_WATCHDOG = 4
    DROP_LINK_DOWN = 5
    DROP_CORRUPT = 6
    DROP_RECEIVER_FULL = 7
    DROP_CAUSES = 8

# What keeps a switch off the express lane and the shortcuts; each owner sets and clears its own bit.
cdef enum:
    UNUSUAL_BY_THE_BOOK = 1       # classic scheduler, compatibility rules
    UNUSUAL_STATIC = 2            # a static threshold
    UNUSUAL_CELLS = 4
    UNUSUAL_WEIGHTS = 8
    UNUSUAL_CLASS_MAP = 16
    UNUSUAL_CREDIT = 32           # a port with credits
    UNUSUAL_FAULT = 64            # a port that is down
    UNUSUAL_WATCHDOG = 128
    UNUSUAL_BALANCE = 256         # next hops are chosen by the state of the switch

# How a switch chooses inside an equal-cost set.
cdef enum:
    BALANCE_ECMP = 0
    BALANCE_SPRAY = 1
    BALANCE_WEIGHTED = 2
    BALANCE_FLOWLET = 3           # from here on by the state of the switch
    BALANCE_LEAST_LOADED = 4
    BALANCE_LEAST_LOADED_FLOW = 5

cdef enum:
    STATUS_NOT_RUN = 0
    STATUS_POSTED = 1
    STATUS_DONE = 2
    STATUS_FAILED = 3

cdef enum:
    OP_SEND = 0
    OP_RECV = 1
    OP_CALC = 2
    OP_SCALE_UP = 3

cdef enum:
    VERB_WRITE = 0
    VERB_SEND = 1
    VERB_READ = 2

# What a queue pair does besides go-back-N of what it writes or sends.
cdef enum:
    MODE_PLAIN = 0
    MODE_SELECTIVE = 1
    MODE_READ = 2
    RX_NAK_SENT = 128             # of a receiver, beside its mode: the packet that it has asked for has not come

cdef enum:
    CC_NONE = 0
    CC_FIXED = 1
    CC_PAPER = 2
    CC_ADAPTER = 3

cdef enum:
    NOTIFY_CNP = 0
    NOTIFY_ECHO = 1

# Bits of pfc_pending. A link has PFC or credits.
cdef enum:
    PENDING_PFC = 1
    PENDING_CREDIT = 2
    CREDIT_REPEATS = 16           # refreshes without a new free

# What raised an XOFF.
cdef enum:
    CROSSED_HEADROOM = 0          # headroom in use
    CROSSED_DYNAMIC = 1           # the dynamic threshold
    CROSSED_STATIC = 2
    CROSSED_STORM = 3             # a host that is told to
    CROSSED_RECEIVER = 4          # a slow receiver

cdef enum:
    PAUSE_END_XON = 0
    PAUSE_END_EXPIRY = 1
    PAUSE_END_RUN = 2
    PAUSE_END_LINK = 3

# What link_commit has to look at besides the packet.
cdef enum:
    WATCH_RECORD = 1              # rows of the packets table
    WATCH_ENDS = 4                # of these, what hosts send and the last packets of messages alone
    WATCH_LOSS = 2                # some link loses frames

# Control actions (MODEL 18).
cdef enum:
    ACTION_LINK_DOWN = 0
    ACTION_LINK_UP = 1
    ACTION_ROUTES = 2
    ACTION_LOSS = 3
    ACTION_PFC = 4
    ACTION_ECN = 5
    ACTION_MAP = 6
    ACTION_HEADROOM = 7
    ACTION_STORM = 8
    ACTION_RECEIVER = 9

# Faults: broken promises of the engine itself. Texts are in engine.pyx.
cdef enum:
    FAULT_NONE = 0
    FAULT_TIME = 1
    FAULT_BUSY = 2
    FAULT_POOL = 3
    FAULT_RELEASE = 4
    FAULT_MEMORY = 5
    FAULT_ROUTE = 6
    FAULT_CHOICES = 7
    FAULT_QUEUE = 8
    FAULT_CREDIT = 9
