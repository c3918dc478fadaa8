"""DCQCN reaction point: the rate of one QP.

Owns      cc_t. Two machines: `paper` (a CNP restarts everything) and `adapter` (alpha and decrease are checked on
          timers).
Invariant rate_min <= rate, target <= line rate; timers cost no events: they are caught up when the rate is read or a
          CNP comes.
Order     events of one instant: alpha timer, increase timer, decrease check.
Source    Zhu et al., SIGCOMM 2015, sections 5 and 6; docs/MODEL.md 12.
"""
from .types cimport int32_t, int64_t, ps_t, CC_PAPER, FOREVER
from .plan cimport nic_profile_t
from .state cimport cc_t


cdef inline void cc_init(cc_t* cc, int64_t line_rate_bps) noexcept nogil:
    cc.rate_bps = line_rate_bps
    cc.target_bps = line_rate_bps
    cc.alpha = 1.0
    cc.next_ps = FOREVER
    cc.alpha_next_ps = FOREVER
    cc.increase_next_ps = FOREVER
    cc.decrease_next_ps = FOREVER
    cc.byte_count = 0
    cc.timer_stage = 0
    cc.byte_stage = 0
    cc.is_active = 0
    cc.cnp_alpha = 0
    cc.cnp_decrease = 0
    cc.counts_bytes = 0


cdef inline void cc_set_next(cc_t* cc) noexcept nogil:
    cdef ps_t next_ps = cc.alpha_next_ps
    if cc.increase_next_ps < next_ps:
        next_ps = cc.increase_next_ps
    if cc.decrease_next_ps < next_ps:
        next_ps = cc.decrease_next_ps
    cc.next_ps = next_ps


cdef inline void cc_restart_stages(cc_t* cc) noexcept nogil:
    cc.timer_stage = 0
    cc.byte_stage = 0
    cc.byte_count = 0


cdef inline void cc_increase(const nic_profile_t* nic, cc_t* cc, int64_t line_rate_bps) noexcept nogil:
    """Fast recovery, additive or hyper increase, by the stages so far (the caller counts afterwards)."""
    cdef int32_t low = cc.timer_stage
    cdef int32_t high = cc.timer_stage
    cdef int64_t steps = 1
    if nic.byte_reset > 0:
        if cc.byte_stage < low:
            low = cc.byte_stage
        if cc.byte_stage > high:
            high = cc.byte_stage
        steps = low - nic.threshold
    if high >= nic.threshold:
        if low > nic.threshold:
            cc.target_bps += steps * nic.rate_hai_bps
        else:
            cc.target_bps += nic.rate_ai_bps
    if cc.target_bps > line_rate_bps:
        cc.target_bps = line_rate_bps
    cc.rate_bps = cc.target_bps // 2 + cc.rate_bps // 2
    if cc.rate_bps < 1:
        cc.rate_bps = 1


cdef inline void cc_decrease(const nic_profile_t* nic, cc_t* cc) noexcept nogil:
    cdef int64_t rate = <int64_t>(<double>cc.rate_bps * (1.0 - cc.alpha / 2.0))
    cdef int64_t least
    if nic.cc != CC_PAPER:
        # The bound on one decrease is the adapter's.
        least = <int64_t>(<double>cc.rate_bps * nic.min_dec_fac)
        if rate < least:
            rate = least
    if rate < nic.rate_min_bps:
        rate = nic.rate_min_bps
    cc.rate_bps = rate


cdef inline void cc_step(const nic_profile_t* nic, cc_t* cc, int64_t line_rate_bps, ps_t upto_ps) noexcept nogil:
    """Run the timer events up to and including `upto_ps`."""
    cdef ps_t now, end_ps
    cdef double keep
    while cc.next_ps <= upto_ps:
        now = cc.next_ps
        end_ps = cc.increase_next_ps if cc.increase_next_ps < cc.decrease_next_ps else cc.decrease_next_ps
        if end_ps > now and not cc.cnp_alpha:
            # Ticks of alpha alone, until another timer or the end: nothing is added to what is kept.
            if end_ps > upto_ps:
                end_ps = upto_ps + 1
            keep = 1.0 - nic.g
            while cc.alpha_next_ps < end_ps:
                cc.alpha *= keep
                cc.alpha_next_ps += nic.alpha_timer_ps
            cc_set_next(cc)
            continue
        if cc.alpha_next_ps == now:
            cc.alpha = (1.0 - nic.g) * cc.alpha + (nic.g if cc.cnp_alpha else 0.0)
            cc.cnp_alpha = 0
            cc.alpha_next_ps = now + nic.alpha_timer_ps
        if cc.increase_next_ps == now:
            cc_increase(nic, cc, line_rate_bps)
            cc.timer_stage += 1
            cc.increase_next_ps = now + nic.increase_timer_ps
        if cc.decrease_next_ps == now:
            if cc.cnp_decrease:
                if cc.timer_stage > 0 or cc.byte_stage > 0 or nic.clamp_target:
                    cc.target_bps = cc.rate_bps
                cc_decrease(nic, cc)
                cc_restart_stages(cc)
                cc.counts_bytes = 1
                cc.increase_next_ps = now + nic.increase_timer_ps
                cc.cnp_decrease = 0
            cc.decrease_next_ps = now + nic.decrease_timer_ps
        cc_set_next(cc)


cdef inline void cc_on_cnp(const nic_profile_t* nic, cc_t* cc, int64_t line_rate_bps, ps_t now) noexcept nogil:
    """A CNP, or an ACK with an echo, has come."""
    if cc.next_ps < now:
        cc_step(nic, cc, line_rate_bps, now - 1)
    if nic.cc == CC_PAPER:
        if not cc.is_active:
            cc.alpha = nic.alpha_init
            cc.is_active = 1
            cc.counts_bytes = 1
        cc.target_bps = cc.rate_bps
        cc_decrease(nic, cc)
        cc.alpha = (1.0 - nic.g) * cc.alpha + nic.g
        cc_restart_stages(cc)
        cc.alpha_next_ps = now + nic.alpha_timer_ps
        cc.increase_next_ps = now + nic.increase_timer_ps
        cc_set_next(cc)
    elif not cc.is_active:
        cc.is_active = 1
        cc.alpha = nic.alpha_init
        cc.cnp_alpha = 0
        cc.cnp_decrease = 1
        cc.alpha_next_ps = now + nic.alpha_timer_ps
        cc.decrease_next_ps = now + nic.decrease_timer_ps + nic.decrease_offset_ps
        cc_set_next(cc)
    else:
        cc.cnp_alpha = 1
        cc.cnp_decrease = 1


cdef inline void cc_on_sent(const nic_profile_t* nic, cc_t* cc, int64_t line_rate_bps,
                            int64_t frame_bytes) noexcept nogil:
    """Advance the byte counter by one data packet, after its gap was set."""
    if not cc.counts_bytes or nic.byte_reset == 0:
        return
    cc.byte_count += frame_bytes
    if cc.byte_count >= nic.byte_reset:
        cc.byte_count -= nic.byte_reset
        cc_increase(nic, cc, line_rate_bps)
        cc.byte_stage += 1
