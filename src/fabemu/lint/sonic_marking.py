"""SONiC: WRED and ECN."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fabemu.importers.sonic_switch import COLOURS, ECN_COLOURS, SonicSwitch, Wred
from fabemu.lint.finding import Finding, Grouped, Rule

_SOURCE = "SAI WRED attributes; RFC 3168"

UNSET = Rule(
    "FB620",
    "error",
    "ECN without thresholds",
    "A WRED profile marks a colour (ecn), but has no minimum or maximum threshold or no probability for it.",
    "The queue marks nothing, or by defaults of the hardware that nobody chose: senders learn of congestion by PFC "
    "only.",
    "",
    _SOURCE,
    "Give min_threshold, max_threshold and drop_probability of every colour that is marked.",
)
UNMARKED = Rule(
    "FB621",
    "warning",
    "thresholds without ECN",
    "A WRED profile has thresholds, but ecn is ecn_none or absent, or leaves out the colour.",
    "With wred_*_enable the profile drops instead of marking; without it, it does nothing.",
    "",
    _SOURCE,
    "Set ecn to ecn_all, or remove the thresholds.",
)
DROPPING = Rule(
    "FB622",
    "error",
    "a lossless queue that WRED drops from",
    "A queue that PFC pauses has a WRED profile which is enabled for a colour that is not marked.",
    "Early drops make a lossless class lose packets long before any buffer is full.",
    "",
    _SOURCE,
    "Set ecn to ecn_all in the profile of lossless queues.",
)
ORDER = Rule(
    "FB623",
    "error",
    "minimum threshold above the maximum",
    "min_threshold of a colour is above its max_threshold.",
    "The switch refuses the profile, or marks everything or nothing.",
    "min_threshold <= max_threshold",
    _SOURCE,
    "Exchange the two, or correct the unit: both are bytes.",
)
NOT_MARKED = Rule(
    "FB624",
    "warning",
    "a lossless queue without ECN",
    "A queue that PFC pauses has no WRED profile with ECN at a port where others of its number have one, or nowhere.",
    "Senders are not slowed down by this hop: PFC alone has to, and its pauses spread.",
    "",
    "Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015",
    "Bind a WRED profile with ecn_all to the queue.",
)
LATE = Rule(
    "FB625",
    "warning",
    "ECN threshold above the PFC threshold",
    "The marking threshold of a lossless queue is compared with the use at which PFC pauses a priority group that is "
    "alone in filling its pool. With more of them congested the PFC threshold is lower still.",
    "PFC pauses before packets are marked: congestion control learns of nothing in time.",
    "max_threshold <= pool x alpha / (1 + alpha), with pool = size - reserved",
    "Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998",
    "Lower the ECN thresholds or raise dynamic_th.",
)
RULES = (UNSET, UNMARKED, DROPPING, ORDER, NOT_MARKED, LATE)


def check_marking(switch: SonicSwitch) -> Iterator[Finding]:
    """What is wrong with WRED and ECN."""
    for wred in switch.wreds.values():
        yield from _profile(switch, wred)
    yield from _queues(switch)


def _profile(switch: SonicSwitch, wred: Wred) -> Iterator[Finding]:
    at = switch.tables.at(("WRED_PROFILE", wred.name))
    marked = ECN_COLOURS.get(wred.ecn, COLOURS)
    for colour in COLOURS:
        low, high, percent = wred.minimum_bytes[colour], wred.maximum_bytes[colour], wred.percent[colour]
        missing = [
            f"{colour}_{name}"
            for name, value in (("min_threshold", low), ("max_threshold", high), ("drop_probability", percent))
            if value is None
        ]
        if colour in marked and missing and _is_meant(wred, colour):
            yield UNSET.at(
                at,
                f"ecn = {wred.ecn}, but {listed(missing)} {'is' if len(missing) == 1 else 'are'} not given",
                missing=missing,
            )
        if colour not in marked and (low is not None or high is not None):
            effect = "drops" if wred.enabled[colour] else "does nothing"
            yield UNMARKED.at(at, f"{colour} has thresholds, but ecn = {wred.ecn}: the profile {effect}", colour=colour)
        if low is not None and high is not None and low > high:
            yield ORDER.at(
                switch.tables.at(("WRED_PROFILE", wred.name, f"{colour}_min_threshold")),
                f"{low:,} B is above {colour}_max_threshold, {high:,} B",
                minimum_bytes=low,
                maximum_bytes=high,
            )


def _is_meant(wred: Wred, colour: str) -> bool:
    """Green is the colour of all traffic that nothing has coloured; the others only if something is said of them."""
    return colour == "green" or wred.enabled[colour] or wred.minimum_bytes[colour] is not None


def _queues(switch: SonicSwitch) -> Iterator[Finding]:
    if not switch.tables.table("QUEUE"):
        return
    dropping, unmarked, late = _ByQueue(DROPPING), _ByQueue(NOT_MARKED), _Late(switch)
    for port in switch.data_ports:
        for priority in sorted(switch.pfc_of(port)):
            queue = switch.queue_of(port, priority)
            binding = switch.queue_wred.get((port, queue))
            if binding is None:
                unmarked.add(
                    switch.tables.at(switch.qos[port].keys), queue, "paused by PFC, but no WRED profile is bound"
                )
            wred = None if binding is None or binding.name is None else switch.wreds.get(binding.name)
            if wred is None or binding is None:
                continue
            place = switch.tables.at(binding.keys)
            if not wred.marks:
                unmarked.add(place, queue, f"paused by PFC, but {wred.name} does not mark")
            marked = ECN_COLOURS.get(wred.ecn, COLOURS)
            colours = [colour for colour in COLOURS if wred.enabled[colour] and colour not in marked]
            if colours:
                dropping.add(place, queue, f"lossless, but {wred.name} drops {listed(colours)} packets early")
            if wred.marks:
                late.add(wred, port, priority)
    yield from dropping.findings()
    yield from unmarked.findings()
    yield from late.findings()


class _ByQueue:
    """Findings about queues of ports: those of one place together, then equal ones of all places."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.queues: dict[tuple[str, str], set[int]] = {}

    def add(self, place: str, queue: int, text: str) -> None:
        self.queues.setdefault((place, text), set()).add(queue)

    def findings(self) -> list[Finding]:
        grouped = Grouped(self.rule)
        for (place, text), queues in self.queues.items():
            noun, verb = ("queue", "is") if len(queues) == 1 else ("queues", "are")
            grouped.add(place, f"{noun} {listed(map(str, sorted(queues)))} {verb} {text}", queues=sorted(queues))
        return grouped.findings()


class _Late:
    """Thresholds above that of PFC: of every profile the one that is the farthest above."""

    def __init__(self, switch: SonicSwitch) -> None:
        self.switch = switch
        self.lowest: dict[str, tuple[int, str, str]] = {}

    def add(self, wred: Wred, port: str, priority: int) -> None:
        found = _pfc_threshold(self.switch, port, self.switch.group_of(port, priority))
        if found is None:
            return
        for noun, value in (("min", wred.minimum_bytes["green"]), ("max", wred.maximum_bytes["green"])):
            if value is not None and value > found[0]:
                earlier = self.lowest.get(wred.name)
                if earlier is None or found[0] < earlier[0]:
                    self.lowest[wred.name] = (*found, noun)
                return

    def findings(self) -> Iterator[Finding]:
        for name, (threshold, terms, noun) in self.lowest.items():
            wred = self.switch.wreds[name]
            value = (wred.minimum_bytes if noun == "min" else wred.maximum_bytes)["green"]
            text = (
                f"{value:,} B are above the {threshold:,} B at which PFC pauses a priority group that is alone "
                f"({terms})"
            )
            place = self.switch.tables.at(("WRED_PROFILE", name, f"green_{noun}_threshold"))
            yield LATE.at(place, text, threshold_bytes=threshold, value_bytes=value)


def listed(words: Iterable[str]) -> str:
    """Join words: "green, yellow and red"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _pfc_threshold(switch: SonicSwitch, port: str, group: int) -> tuple[int, str] | None:
    """Use at which PFC pauses a group that is alone in its pool, bytes, and its terms; None if nothing tells."""
    profile = switch.profile_of(port, group)
    pool = None if profile is None or profile.pool is None else switch.pools.get(profile.pool)
    if profile is None or not profile.is_lossless:
        return None
    if profile.static_bytes is not None:
        return profile.static_bytes, f"static_th of {profile.name}"
    if profile.alpha is None or pool is None or pool.size_bytes is None:
        return None
    free = pool.size_bytes - switch.reserved_bytes(pool.name)
    if free <= 0:
        return None  # the pool itself is what is wrong
    alpha = profile.alpha
    return int(free * alpha / (1 + alpha)), f"{free:,} B free in {pool.name}, alpha {alpha} of {profile.name}"
