"""Runs that are over before anything can happen."""

from __future__ import annotations

import numpy as np

from fabemu.lint.finding import Finding, Rule
from fabemu.lint.subject import Subject
from fabemu.units import format_time

TOO_EARLY = Rule(
    code="FB904",
    severity="warning",
    title="run that ends before anything can arrive",
    meaning="`until` is not after the first message is posted and the shortest link is passed: no byte can arrive.",
    reason="Nothing is simulated, and all figures of the run are zero or missing; often a unit was mistaken.",
    formula="until <= earliest start of a message + shortest propagation delay",
    source="",
    remedy="Give a later end, or leave `until` out: the run then ends when all is done.",
)
RULES = (TOO_EARLY,)


def ends_too_early(subject: Subject) -> list[Finding]:
    """FB904."""
    plan = subject.plan
    starts = plan.op_start_ps[plan.is_message]
    inside = plan.host_scale_up_latency_ps[plan.host_scale_up_rate_bps > 0]
    delays_ps = np.concatenate([plan.port_delay_ps, inside])
    if not starts.size or not delays_ps.size:
        return []
    first_ps = int(starts.min()) + int(delays_ps.min())
    if plan.until_ps > first_ps:
        return []
    text = f"is before a first byte can arrive, at {format_time(first_ps)}: nothing is simulated"
    return [TOO_EARLY.at(f"until = {format_time(plan.until_ps)}", text, first_ps=first_ps)]
