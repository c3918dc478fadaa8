"""SONiC: the PFC watchdog."""

from __future__ import annotations

from collections.abc import Iterator

from fabemu.importers.sonic_switch import SonicSwitch
from fabemu.lint.finding import Finding, Grouped, Rule

_SOURCE = "SONiC PFC watchdog design (doc/pfcwd)"

POLL = Rule(
    "FB640",
    "error",
    "watchdog poll above the detection time",
    "POLL_INTERVAL of PFC_WD|GLOBAL is compared with detection_time and restoration_time of every port, in ms.",
    "The watchdog looks at a queue only once a poll: a storm is found later than the detection time says, and the "
    "command that sets it refuses such values.",
    "poll <= detection_time",
    _SOURCE,
    "Lower POLL_INTERVAL, or raise the detection time.",
)
UNWATCHED = Rule(
    "FB641",
    "warning",
    "a lossless port without watchdog",
    "The watchdog runs on other ports, or pfcwd_sw_enable asks for it, but PFC_WD has no entry for this port with PFC.",
    "A storm that comes in here is not cut off, and spreads to the ports that are watched.",
    "",
    _SOURCE,
    "Start the watchdog on every port with PFC.",
)
UNTIMED = Rule(
    "FB642",
    "error",
    "a watchdog without detection time",
    "An entry of PFC_WD has no readable detection_time.",
    "The watchdog does not start on that port.",
    "",
    _SOURCE,
    "Give detection_time and restoration_time in ms.",
)
NONE = Rule(
    "FB643",
    "note",
    "PFC without any watchdog",
    "Ports have PFC, and PFC_WD has no entry at all.",
    "One adapter that sends pause frames without end can stop the fabric.",
    "",
    _SOURCE,
    "Start the watchdog, or know that something else finds storms.",
)
RULES = (POLL, UNWATCHED, UNTIMED, NONE)


def check_watchdog(switch: SonicSwitch) -> Iterator[Finding]:
    """What is wrong with the watchdog."""
    at = switch.tables.at
    untimed, slow, unwatched = Grouped(UNTIMED), Grouped(POLL), Grouped(UNWATCHED)
    for watch in switch.watch.values():
        if watch.detection_ms is None:
            untimed.add(at(watch.keys), "has no detection_time")
        for noun, time_ms in (("detection", watch.detection_ms), ("restoration", watch.restoration_ms)):
            if switch.poll_ms is not None and time_ms is not None and switch.poll_ms > time_ms:
                slow.add(
                    at((*watch.keys, f"{noun}_time")),
                    f"the {noun} time of {time_ms} ms is below the poll interval of {switch.poll_ms} ms",
                    poll_ms=switch.poll_ms,
                    time_ms=time_ms,
                )
    yield from untimed.findings()
    yield from slow.findings()
    lossless = [port for port in switch.data_ports if switch.pfc_of(port)]
    asked = [port for port in lossless if switch.qos[port].watched]
    if lossless and not switch.watch and not asked:
        yield NONE.at(switch.tables.source, f"{len(lossless)} ports have PFC, none a watchdog", ports=len(lossless))
    for port in lossless if switch.watch else asked:
        if port not in switch.watch:
            qos = switch.qos[port]
            asks = "pfcwd_sw_enable asks for one" if qos.watched else f"{len(switch.watch)} other ports have one"
            unwatched.add(at(qos.keys), f"has PFC, but no watchdog in PFC_WD; {asks}")
    yield from unwatched.findings()
