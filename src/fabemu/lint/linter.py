"""Runs every rule over a compiled scenario."""

from __future__ import annotations

from fabemu.compile import Compiled
from fabemu.lint import (
    buffer,
    capacity,
    deadlock,
    effect,
    ending,
    fault,
    frame,
    headroom,
    marking,
    pausing,
    polarisation,
    reordering,
    timer,
    wiring,
)
from fabemu.lint.finding import SEVERITIES, Finding
from fabemu.lint.subject import Subject
from fabemu.scenario.model import Scenario

_CHECKS = (
    wiring.lonely_devices,
    effect.without_effect,
    headroom.short_headrooms,
    headroom.short_receivers,
    pausing.short_pauses,
    pausing.hops_without,
    pausing.mapped_hops,
    fault.faulted,
    buffer.oversubscribed,
    buffer.small_pools,
    marking.late_marks,
    marking.unreached_marks,
    marking.missing_marks,
    deadlock.deadlocks,
    polarisation.polarised,
    reordering.overtaken,
    capacity.oversubscription,
    capacity.mixed_rates,
    capacity.rails,
    timer.slow_notifications,
    timer.short_timeouts,
    timer.late_watchdogs,
    frame.small_lanes,
    frame.small_quanta,
    wiring.file_remarks,
    ending.ends_too_early,
)


def lint(scenario: Scenario, compiled: Compiled, *, congested_ports: int | None = None) -> tuple[Finding, ...]:
    """Everything that is found, the most severe first, then by code.

    Parameters
    ----------
    scenario, compiled
        A scenario, and what `fabemu.compile.compile_plan` made of it.
    congested_ports
        Ports of every switch to expect congested at once, for the ECN rules; None: what the traffic can congest.
    """
    subject = Subject(scenario, compiled, congested_ports)
    found = [finding for check in _CHECKS for finding in check(subject)]
    return tuple(sorted(found, key=lambda item: (SEVERITIES.index(item.severity), item.code)))
