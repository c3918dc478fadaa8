"""What `fabemu health` looks for: rules with stable codes, their thresholds, and alerts joined into incidents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Literal

from fabemu.deferred import dataclass
from fabemu.run_directory import plain

Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
"""Most severe first: something is broken or lost; something costs time and has a cause that can be removed; a fact that
explains others."""


@dataclass(frozen=True)
class Alarm:
    """One thing that a run is looked through for, with all that `fabemu explain` says of it."""

    code: str
    severity: Severity
    title: str
    meaning: str  # what is checked, exactly
    reason: str  # why it matters
    formula: str  # "" if there is none
    source: str
    remedy: str


@dataclass(frozen=True)
class Thresholds:
    """From when on something is worth an alert; the metadata say what each is."""

    pause_share: float = field(
        default=0.05, metadata={"meaning": "FH101: share of the run for which a storm held its most paused port"}
    )
    pause_share_critical: float = field(
        default=0.5, metadata={"meaning": "FH101 to FH103 are critical from this share on"}
    )
    victim_share: float = field(
        default=0.1, metadata={"meaning": "FH104: share of its time for which a job, collective or message was held up"}
    )
    unmarked_pauses: int = field(
        default=10, metadata={"meaning": "FH105: pauses that go back to a port without a mark there"}
    )
    headroom_share: float = field(default=0.9, metadata={"meaning": "FH106: share of the configured headroom in use"})
    marks: int = field(default=100, metadata={"meaning": "FH201: marked packets of a workload that changed no rate"})
    effective_share: float = field(
        default=0.5, metadata={"meaning": "FH401: use of the uplinks of a switch while they were needed, below it"}
    )
    even_index: float = field(
        default=0.8,
        metadata={"meaning": "FH401: Jain index of the uplinks of a switch while they were needed, below it"},
    )
    needed_share: float = field(
        default=0.05, metadata={"meaning": "FH401: share of the run for which they were needed, at least"}
    )
    paused_share: float = field(
        default=0.1, metadata={"meaning": "FH401: share of that time for which they were paused, at most"}
    )
    tail_ratio: float = field(default=5.0, metadata={"meaning": "FH402: p99 of the slowdown over its median"})
    tail_messages: int = field(default=20, metadata={"meaning": "FH402: messages of a workload, at least"})


DEFAULTS = Thresholds()
NAMES = tuple(item.name for item in fields(Thresholds))
"""Names of the thresholds."""


@dataclass(frozen=True)
class Alert:
    """One thing that was found.

    Attributes
    ----------
    code
        Of its `Alarm`.
    severity
        Of this case; may be more than that of the alarm.
    where
        Port, switch, host, workload or queue pair.
    since_ps, until_ps
        When; None where it is of the whole run.
    sentence
        What happened.
    phrase
        The same in few words, for a sentence about several alerts.
    figures
        The evidence.
    """

    code: str
    severity: Severity
    where: str
    since_ps: int | None
    until_ps: int | None
    sentence: str
    phrase: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        found: dict[str, Any] = plain(vars(self))
        return {**found, "title": ALARMS[self.code].title}


@dataclass(frozen=True)
class Incident:
    """Alerts of one root: the alert that explains the others, and these."""

    root: Alert
    others: tuple[Alert, ...] = ()

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """All of them, the root first."""
        return (self.root, *self.others)

    @property
    def severity(self) -> Severity:
        """That of the most severe alert."""
        return min((alert.severity for alert in self.alerts), key=SEVERITIES.index)

    @property
    def sentence(self) -> str:
        """What happened, and what came of it."""
        alike: dict[str, list[Alert]] = {}
        for alert in self.others:
            alike.setdefault(alert.code, []).append(alert)
        phrases = [
            alerts[0].phrase + (f" (and {len(alerts) - 1} more alike)" if len(alerts) > 1 else "")
            for alerts in alike.values()
        ]
        return f"{self.root.sentence}; with it came: {'; '.join(phrases)}" if phrases else self.root.sentence

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "severity": self.severity,
            "sentence": self.sentence,
            "root": self.root.to_dict(),
            "others": [alert.to_dict() for alert in self.others],
        }


_OPERATORS = "The alerts of an operator's fabric monitor, taken from what the run recorded."

ALARMS: dict[str, Alarm] = {
    alarm.code: alarm
    for alarm in (
        Alarm(
            "FH101",
            "warning",
            "Pauses go back to a congested port",
            "A storm of pauses (docs/ANALYSIS.md) whose root is an egress port with more to send than it can held one "
            "of the ports that it reached for `pause_share` of the run or more. Storms of one port and class are one "
            "alert.",
            "What is paused does not send, whoever it is for.",
            "paused time of the most paused port / simulated time",
            "IEEE 802.1Qbb; Zhu et al., SIGCOMM 2015, section 2.",
            "Look at who made it: spread the senders in time or over receivers, mark earlier (ECN), slow them down "
            "(congestion control), or give the port more rate.",
        ),
        Alarm(
            "FH102",
            "critical",
            "A host paused its link in a storm",
            "A host sent PFC frames without being slow: a NIC that went mad.",
            "Everything that leads to it fills up, and then what shares a link with that.",
            "",
            "Guo et al., RDMA over Commodity Ethernet at Scale, SIGCOMM 2016, section 4.3.",
            "Turn on the PFC watchdog of the switches; repair or replace the NIC.",
        ),
        Alarm(
            "FH103",
            "warning",
            "A host takes data in slowly and pauses its link",
            "PFC frames of a host whose receive buffer was full held a port for `pause_share` of the run or more.",
            "The whole fabric adapts to one slow host.",
            "paused time of the most paused port / simulated time",
            "Guo et al., SIGCOMM 2016, section 4.4 (slow-receiver symptom).",
            "Find what slows the host down: PCIe, page faults of the NIC's translation tables, a throttled CPU.",
        ),
        Alarm(
            "FH104",
            "warning",
            "Messages were held up by a storm that they had no part in",
            "Messages of a workload waited behind ports that a storm paused, for `victim_share` of the completion time "
            "of their job, collective or themselves or more, though their paths do not lead by its root. The time is "
            "what it cost them at most.",
            "That is the price of PFC to others: head-of-line blocking.",
            "time in which a port on their path was paused / completion time",
            "Zhu et al., SIGCOMM 2015, section 2 (victim flows).",
            "End the storm at its root; or give the victims a class of their own.",
        ),
        Alarm(
            "FH105",
            "warning",
            "Pausing came before marking",
            "`unmarked_pauses` pauses or more go back to a congested port that marked no packet of the class until the "
            "last of them was over.",
            "Where PFC acts before ECN does, no sender is told to slow down, and congestion spreads.",
            "",
            "Zhu et al., SIGCOMM 2015, section 4 (kmin below the PFC threshold).",
            "Turn ECN on, and set kmin well below what raises XOFF: `fabemu check` has the bounds (FB201).",
        ),
        Alarm(
            "FH106",
            "warning",
            "Headroom nearly used up",
            "A priority group had `headroom_share` of its headroom in use or more.",
            "A little longer cable or a larger frame, and lossless frames are dropped.",
            "most bytes in use / configured bytes",
            "IEEE 802.1Qbb (buffer requirements of PFC).",
            "Raise the headroom to the bound that `fabemu check` names (FB101).",
        ),
        Alarm(
            "FH107",
            "critical",
            "The PFC watchdog found a storm",
            "A watched queue did not move while it was paused, for the detection time.",
            "It drops what the queue holds, or lets it out unasked: loss in a lossless class, by intent.",
            "",
            "SONiC, PFC watchdog, high level design.",
            "Find who paused the queue: the root of the incident.",
        ),
        Alarm(
            "FH201",
            "warning",
            "Marks changed no rate",
            "`marks` packets or more of a workload arrived with a congestion mark from hosts that were not notified "
            "for any of its messages, or have no congestion control that would react.",
            "ECN works only if somebody slows down.",
            "",
            "RFC 3168; Zhu et al., SIGCOMM 2015.",
            "Set `nic.cc.kind` to dcqcn, and let receivers send CNPs.",
        ),
        Alarm(
            "FH301",
            "critical",
            "Drops in a lossless class",
            "Frames of a lossless class found no room: headroom_full, shared_full, egress_full or receiver_full.",
            "RoCE goes back and sends again; PFC is there to prevent just this.",
            "",
            "IEEE 802.1Qbb.",
            "Enough headroom for the cable and PFC on every hop: `fabemu check` (FB101, FB104).",
        ),
        Alarm(
            "FH302",
            "warning",
            "Frames were lost on links or had no route",
            "Frames were dropped for link_down, corrupt or no_route.",
            "Each costs a timeout or a repeat.",
            "",
            _OPERATORS,
            "Repair the link; faster detection and convergence of routes.",
        ),
        Alarm(
            "FH303",
            "info",
            "Drops in a lossy class",
            "Frames of a class without PFC found no room: shared_full, egress_full or receiver_full.",
            "That is how such a class is told of congestion; it explains repeats and long tails.",
            "",
            _OPERATORS,
            "None is needed unless completion times suffer: then mark earlier, or allow the class more of the buffer.",
        ),
        Alarm(
            "FH401",
            "warning",
            "Uplinks are loaded unevenly",
            "While one of the ports that a switch chooses among was full or had frames waiting, which was at least "
            "`needed_share` of the run, all of them together carried less than `effective_share` of what they could, "
            "their Jain index (the mean over these intervals, weighted by what was sent; 1 if all carry the same) was "
            "below `even_index`, and the ports of the switch were not paused for more than `paused_share` of that "
            "time.",
            "Hashing puts flows on the same uplink while others idle.",
            "use of all of them / their rate; (sum x)^2 / (n sum x^2), x the use of each of n; in these intervals",
            "Jain, Chiu and Hawe, 1984; Hopps, RFC 2992 (collisions of hashes).",
            "More queue pairs per message, weights, adaptive routing or spraying (`switch.load_balancing`).",
        ),
        Alarm(
            "FH402",
            "warning",
            "A long tail",
            "Of a workload with `tail_messages` messages or more, the 99th percentile of the slowdown is `tail_ratio` "
            "times its median or more, of those that finished.",
            "A collective is as slow as its slowest message.",
            "p99 of the slowdown / median",
            "Dean and Barroso, The Tail at Scale, 2013.",
            "`fabemu budget` says where the time of the slowest messages went.",
        ),
        Alarm(
            "FH501",
            "critical",
            "Deadlock",
            "Queues wait for one another for ever: an event `deadlock`.",
            "Nothing that needs one of them ever moves again.",
            "",
            "Hu et al., Deadlocks in Datacenter Networks, HotNets 2016.",
            "Routes without cycles of buffers: `fabemu check` (FB301 to FB303); a watchdog breaks it at a price.",
        ),
        Alarm(
            "FH502",
            "critical",
            "Queue pairs in error",
            "Queue pairs gave up after their last retry: an event `qp_error`.",
            "Everything that waits for them fails.",
            "",
            "InfiniBand Architecture, volume 1, section 9.9 (transport retry counter exceeded).",
            "Find what lost the packets; timeouts longer than the outages that the fabric is to survive.",
        ),
        Alarm(
            "FH503",
            "critical",
            "Messages did not finish",
            "Messages failed, or were not done when the run ended. A warning if `until` ended it, or if it was "
            "interrupted; messages that were not due are left out.",
            "Figures of what finished look better than the run was.",
            "",
            _OPERATORS,
            "Look at the incident that they belong to; or let the run go on.",
        ),
        Alarm(
            "FH504",
            "warning",
            "Links went down",
            "An event `link_down`.",
            "What was on the way is lost, and what is left carries all.",
            "",
            _OPERATORS,
            "Repair them; look at what the incident cost.",
        ),
    )
}
"""Every alarm by its code. A code never changes its meaning, and is never used again."""

FAMILIES = {
    "FH1": "PFC",
    "FH2": "Congestion control",
    "FH3": "Losses",
    "FH4": "Load and tails",
    "FH5": "Failures",
}
"""What the first digit of a code says."""
