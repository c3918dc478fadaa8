"""Congestion control of one QP at its sender (MODEL 12).

Timers are stepped one by one, in time order, whenever somebody looks.
"""

from __future__ import annotations

from types import SimpleNamespace

NONE, FIXED, PAPER, ADAPTER = range(4)


class RateLimit:
    """No congestion control: line rate, or a fixed one below it."""

    def __init__(self, rate_bps: int) -> None:
        self.rate_bps = rate_bps

    def notify(self, now: int) -> None:
        """A CNP (or an echo) came."""

    def catch_up(self, now: int) -> None:
        """Run all timers up to and including `now`."""

    def sent(self, frame_bytes: int) -> None:
        """A data packet left, after its gap was set."""


class Dcqcn(RateLimit):
    """The part both machines share: increase events."""

    def __init__(self, plan: SimpleNamespace, nic: int, line_rate_bps: int) -> None:
        super().__init__(line_rate_bps)
        self.line_rate_bps = line_rate_bps
        self.g = plan.nic_g[nic]
        self.alpha_init = plan.nic_alpha_init[nic]
        self.alpha_timer_ps = plan.nic_alpha_timer_ps[nic]
        self.decrease_timer_ps = plan.nic_decrease_timer_ps[nic]
        self.decrease_offset_ps = plan.nic_decrease_offset_ps[nic]
        self.increase_timer_ps = plan.nic_increase_timer_ps[nic]
        self.byte_reset = plan.nic_byte_reset[nic]
        self.threshold = plan.nic_threshold[nic]
        self.rate_ai_bps = plan.nic_rate_ai_bps[nic]
        self.rate_hai_bps = plan.nic_rate_hai_bps[nic]
        self.rate_min_bps = plan.nic_rate_min_bps[nic]
        self.min_dec_fac = plan.nic_min_dec_fac[nic]
        self.clamp_target = plan.nic_clamp_target[nic]
        self.target_bps = line_rate_bps
        self.active = False
        self.counts_bytes = False
        self.alpha = 0.0
        self.timer_count = 0
        self.byte_count = 0
        self.bytes_since = 0
        self.alpha_at_ps: int | None = None
        self.increase_at_ps: int | None = None
        self.decrease_at_ps: int | None = None

    def begin(self) -> None:
        self.active = True
        self.alpha = self.alpha_init
        self.rate_bps = self.target_bps = self.line_rate_bps

    def restart(self, now: int) -> None:
        self.timer_count = self.byte_count = self.bytes_since = 0
        self.increase_at_ps = now + self.increase_timer_ps
        self.counts_bytes = True

    def increase(self, by_timer: bool) -> None:
        timer = self.timer_count
        byte = self.byte_count if self.byte_reset else timer
        if max(timer, byte) < self.threshold:
            pass
        elif min(timer, byte) > self.threshold:
            steps = min(timer, byte) - self.threshold if self.byte_reset else 1
            self.target_bps += steps * self.rate_hai_bps
        else:
            self.target_bps += self.rate_ai_bps
        self.target_bps = min(self.target_bps, self.line_rate_bps)
        self.rate_bps = self.target_bps // 2 + self.rate_bps // 2
        if by_timer:
            self.timer_count += 1
        else:
            self.byte_count += 1

    def sent(self, frame_bytes: int) -> None:
        if not self.byte_reset or not self.counts_bytes:
            return
        self.bytes_since += frame_bytes
        if self.bytes_since >= self.byte_reset:
            self.bytes_since -= self.byte_reset
            self.increase(by_timer=False)

    def catch_up(self, now: int) -> None:
        while True:
            timers = [
                (at, order)
                for order, at in enumerate((self.alpha_at_ps, self.increase_at_ps, self.decrease_at_ps))
                if at is not None and at <= now
            ]
            if not timers:
                return
            at, order = min(timers)
            (self.run_alpha, self.run_increase, self.run_decrease)[order](at)

    def run_alpha(self, at: int) -> None:
        raise NotImplementedError

    def run_increase(self, at: int) -> None:
        self.increase(by_timer=True)
        self.increase_at_ps = at + self.increase_timer_ps

    def run_decrease(self, at: int) -> None:
        raise NotImplementedError


class Paper(Dcqcn):
    """Zhu et al., SIGCOMM 2015: every CNP cuts the rate and restarts all timers."""

    def notify(self, now: int) -> None:
        self.catch_up(now - 1)
        if not self.active:
            self.begin()
        self.target_bps = self.rate_bps
        self.rate_bps = max(self.rate_min_bps, int(self.rate_bps * (1.0 - self.alpha / 2.0)))
        self.alpha = (1.0 - self.g) * self.alpha + self.g
        self.restart(now)
        self.alpha_at_ps = now + self.alpha_timer_ps

    def run_alpha(self, at: int) -> None:
        self.alpha = (1.0 - self.g) * self.alpha
        self.alpha_at_ps = at + self.alpha_timer_ps


class Adapter(Dcqcn):
    """The adapters' machine: alpha and the decrease are looked at on periodic timers."""

    def __init__(self, plan: SimpleNamespace, nic: int, line_rate_bps: int) -> None:
        super().__init__(plan, nic, line_rate_bps)
        self.cnp_alpha = False
        self.cnp_decrease = False

    def notify(self, now: int) -> None:
        self.catch_up(now - 1)
        if self.active:
            self.cnp_alpha = self.cnp_decrease = True
            return
        self.begin()
        self.alpha_at_ps = now + self.alpha_timer_ps
        self.decrease_at_ps = now + self.decrease_timer_ps + self.decrease_offset_ps
        self.cnp_alpha = False
        self.cnp_decrease = True

    def run_alpha(self, at: int) -> None:
        self.alpha = (1.0 - self.g) * self.alpha + (self.g if self.cnp_alpha else 0.0)
        self.cnp_alpha = False
        self.alpha_at_ps = at + self.alpha_timer_ps

    def run_decrease(self, at: int) -> None:
        self.decrease_at_ps = at + self.decrease_timer_ps
        if not self.cnp_decrease:
            return
        if self.timer_count > 0 or self.byte_count > 0 or self.clamp_target:
            self.target_bps = self.rate_bps
        self.rate_bps = max(
            self.rate_min_bps,
            int(self.rate_bps * self.min_dec_fac),
            int(self.rate_bps * (1.0 - self.alpha / 2.0)),
        )
        self.restart(at)
        self.cnp_decrease = False


def congestion_control(plan: SimpleNamespace, nic: int, line_rate_bps: int) -> RateLimit:
    kind = plan.nic_cc[nic]
    if kind == NONE:
        return RateLimit(line_rate_bps)
    if kind == FIXED:
        return RateLimit(min(plan.nic_fixed_rate_bps[nic], line_rate_bps))
    return (Paper if kind == PAPER else Adapter)(plan, nic, line_rate_bps)
