"""SONiC: pools, headroom and thresholds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from fabemu.headroom import headroom_bound_bytes
from fabemu.importers.sonic_lookup import Lookup
from fabemu.importers.sonic_switch import Port, SonicSwitch
from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.units import format_length, format_rate

_SAI = "SAI buffer pool and buffer profile attributes"

POOL = Rule(
    "FB610",
    "error",
    "reserved and headroom above the pool",
    "What all priority groups of the ports that are up reserve (size), and the headroom beside it, is compared with "
    "the size of their pool. Headroom is the pool's own xoff if it has a shared headroom pool; else it is within size "
    "where size is not below xoff, and beside it where it is.",
    "Nothing is left to share, and the switch refuses the configuration or lets headrooms overlap.",
    "sum of size + headroom <= size of the pool",
    _SAI,
    "Reduce size or xoff, take ports down that are not used, or enlarge the pool.",
)
OVERSUBSCRIBED = Rule(
    "FB611",
    "warning",
    "shared headroom pool is oversubscribed",
    "The xoff of all lossless priority groups of the ports that are up is compared with the shared headroom pool, the "
    "xoff of the pool.",
    "If more priority groups than fit are paused at once with full links, the headroom pool runs out and lossless "
    "packets are dropped. Switches are run like this on purpose; the ratio says how much is trusted to luck.",
    "ratio = sum of xoff / xoff of the pool",
    _SAI + "; SONiC shared headroom pool design",
    "Enlarge the pool's xoff, or know that so many ports are never paused at once.",
)
SHORT = Rule(
    "FB612",
    "error",
    "xoff below the bound of speed and cable",
    "The xoff of a lossless priority group is compared with the bound of `fabemu explain FB101` for the speed and "
    "cable of each port that uses it. Lossless frames are taken as large as LOSSLESS_TRAFFIC_PATTERN says (mtu), else "
    "as RoCE with an MTU of 4096 makes them (4174 B); the frame that may keep a PFC frame waiting as large as the "
    "port's MTU. "
    "Response time and cells count nothing, so that a real switch needs more.",
    "When the link is full, packets that are on their way when the pause begins are dropped.",
    "xoff >= F + R (w(B) + w(PFC) + 2 d) + F + 20 B, with F the largest lossless frame, B the largest of any",
    "As FB101",
    "Use the headroom of the port's speed and cable, or correct CABLE_LENGTH.",
)
MISMATCH = Rule(
    "FB613",
    "warning",
    "profile of another speed or cable",
    "A profile is named pg_lossless_SPEED_CABLE_profile, and a port that uses it has another speed or cable.",
    "The headroom was computed for another link; after a change of speed or cable it was not computed anew.",
    "",
    "SONiC buffer manager, names of its profiles",
    "Bind the profile of the port's speed and cable.",
)
NO_LINE = Rule(
    "FB614",
    "error",
    "speed and cable that pg_profile_lookup.ini does not have",
    "A port with PFC has a speed and cable for which the lookup file has no line. Both must match exactly.",
    "The buffer manager creates no profile: the priority group stays without headroom.",
    "",
    "SONiC buffer manager, lookup of lossless profiles",
    "Correct speed or CABLE_LENGTH, or add the line.",
)
DIFFERENT = Rule(
    "FB615",
    "warning",
    "profile differs from pg_profile_lookup.ini",
    "size, xon, xoff, xon_offset and threshold of the profile of a port are compared with the line of its speed and "
    "cable.",
    "One of the two is not what is in force, or was changed by hand.",
    "",
    "SONiC buffer manager, lookup of lossless profiles",
    "Decide which of the two is right.",
)
THRESHOLD = Rule(
    "FB616",
    "error",
    "no threshold, or two",
    "A profile has neither dynamic_th nor static_th, or both.",
    "The switch refuses the profile, or takes one of the two.",
    "",
    _SAI,
    "Give exactly one.",
)
NEVER = Rule(
    "FB617",
    "warning",
    "static threshold that the pool cannot reach",
    "static_th of a lossless priority group is not below the size of its pool.",
    "The pool is full before PFC pauses: other classes are starved, and the headroom is all that is left.",
    "static_th < size of the pool",
    _SAI,
    "Lower static_th, or use a dynamic threshold.",
)
UNCHECKED = Rule(
    "FB618",
    "note",
    "headroom that the switch computes",
    "A priority group with PFC has the profile NULL or no entry in BUFFER_PG: the switch computes its profile from "
    "speed, cable and MTU (dynamic buffer model) or looks it up in pg_profile_lookup.ini, which was not given.",
    "There is nothing in the file to check.",
    "",
    "SONiC dynamic buffer calculation design",
    "Give --profiles pg_profile_lookup.ini, or check the table of the running switch.",
)
RULES = (POOL, OVERSUBSCRIBED, SHORT, MISMATCH, NO_LINE, DIFFERENT, THRESHOLD, NEVER, UNCHECKED)

PS_PER_METRE = 5_000
ETHERNET_BYTES = 18
"""Header and FCS around what PORT calls the MTU."""
USUAL_MTU_BYTES = 9_100
ROCE_FRAME_BYTES = 4_174
"""Largest frame of RoCE with an MTU of 4096, without tag: 62 B of headers, 16 B RETH."""

_NAMED = re.compile(r"pg_lossless_(\d+)_(\d+(?:\.\d+)?)m(?:_\w+)?_profile")


def check_buffers(switch: SonicSwitch, lookup: Lookup | None) -> Iterator[Finding]:
    """What is wrong with pools, headroom and thresholds."""
    yield from _pools(switch)
    yield from _thresholds(switch)
    yield from _headroom(switch)
    yield from _looked_up(switch, lookup)


def headroom_bound(port: Port, lossless_bytes: int | None) -> tuple[int, str] | None:
    """Headroom that a lossless priority group of a port needs, bytes, and its terms; None if speed or cable is unknown.

    Parameters
    ----------
    port
        Speed, cable and MTU.
    lossless_bytes
        MTU of the lossless traffic, None if nothing tells.
    """
    if port.rate_bps is None or port.cable_m is None:
        return None
    largest = (port.mtu_bytes or USUAL_MTU_BYTES) + ETHERNET_BYTES
    lossless = min(largest, ROCE_FRAME_BYTES if lossless_bytes is None else lossless_bytes + ETHERNET_BYTES)
    bound = headroom_bound_bytes(
        rate_bps=port.rate_bps, delay_ps=int(port.cable_m * PS_PER_METRE), frame_bytes=lossless
    )
    # The frame in the way of the PFC frame may be of another class, and larger.
    terms = f"lossless frames of {lossless:,} B, others of {largest:,} B"
    return bound + largest - lossless, terms


def lossless_mtu(switch: SonicSwitch) -> int | None:
    """MTU of the lossless traffic, as LOSSLESS_TRAFFIC_PATTERN says; None if nothing does."""
    for fields in switch.tables.table("LOSSLESS_TRAFFIC_PATTERN").values():
        text = fields.get("mtu", "")
        if text.isascii() and text.isdecimal() and 64 <= int(text) <= 65_535:
            return int(text)
    return None


def _pools(switch: SonicSwitch) -> Iterator[Finding]:
    at = switch.tables.at
    for pool in switch.pools.values():
        if pool.direction == "egress":
            continue
        reserved, beside, wanted, count = switch.reserved_bytes(pool.name), 0, 0, 0
        for _, profile, _ in switch.lossless_groups():
            if profile.pool != pool.name:
                continue
            wanted += profile.xoff_bytes or 0
            count += 1
            if (profile.size_bytes or 0) < (profile.xoff_bytes or 0):
                beside += profile.xoff_bytes or 0
        headroom = pool.xoff_bytes or beside
        where = at(("BUFFER_POOL", pool.name, "size"))
        if pool.size_bytes is not None and reserved + headroom > pool.size_bytes:
            what = f" + {'shared ' if pool.xoff_bytes else ''}headroom {headroom:,} B" if headroom else ""
            total = reserved + headroom
            text = (
                f"reserved {reserved:,} B{what} = {total:,} B are above the pool of {pool.size_bytes:,} B: "
                f"{total - pool.size_bytes:,} B too much"
            )
            yield POOL.at(where, text, reserved_bytes=reserved, headroom_bytes=headroom, pool_bytes=pool.size_bytes)
        if pool.xoff_bytes and wanted > pool.xoff_bytes:
            ratio = Fraction(wanted, pool.xoff_bytes)
            meant = switch.over_subscribe_ratio
            wish = f"; over_subscribe_ratio = {meant}" if meant else ""
            text = (
                f"{count} lossless priority groups with {wanted:,} B of xoff share {pool.xoff_bytes:,} B: "
                f"oversubscribed {float(ratio):.2f}:1{wish}"
            )
            yield OVERSUBSCRIBED.at(
                at(("BUFFER_POOL", pool.name, "xoff")),
                text,
                xoff_bytes=wanted,
                pool_bytes=pool.xoff_bytes,
                ratio=float(ratio),
                over_subscribe_ratio=meant,
            )


def _thresholds(switch: SonicSwitch) -> Iterator[Finding]:
    at = switch.tables.at
    faulty = {fault.keys for fault in switch.faults}
    for profile in switch.profiles.values():
        keys = ("BUFFER_PROFILE", profile.name)
        if {(*keys, "dynamic_th"), (*keys, "static_th")} & faulty:
            continue  # said already
        if profile.dynamic_th is None and profile.static_bytes is None:
            yield THRESHOLD.at(at(keys), "has neither dynamic_th nor static_th")
        if profile.dynamic_th is not None and profile.static_bytes is not None:
            yield THRESHOLD.at(at(keys), "has dynamic_th and static_th")
        pool = switch.pools.get(profile.pool or "")
        if pool is None or pool.size_bytes is None or profile.static_bytes is None or not profile.is_lossless:
            continue
        if profile.static_bytes >= pool.size_bytes:
            text = f"{profile.static_bytes:,} B is not below the {pool.size_bytes:,} B of {pool.name}"
            yield NEVER.at(
                at((*keys, "static_th")), text, static_bytes=profile.static_bytes, pool_bytes=pool.size_bytes
            )


def _headroom(switch: SonicSwitch) -> Iterator[Finding]:
    short, mismatch = Grouped(SHORT), Grouped(MISMATCH)
    pattern = lossless_mtu(switch)
    for (name, _), profile, binding in switch.lossless_groups():
        port = switch.ports.get(name)
        if port is None:
            continue
        link = f"{_rate(port)} and {_cable(port)}"
        place = switch.tables.at(binding.keys)
        bound = headroom_bound(port, pattern)
        if bound is not None and (profile.xoff_bytes or 0) < bound[0]:
            text = (
                f"xoff {profile.xoff_bytes:,} B of {profile.name} is below the {bound[0]:,} B that {link} need "
                f"({bound[1]})"
            )
            short.add(place, text, xoff_bytes=profile.xoff_bytes, bound_bytes=bound[0])
        named = _NAMED.fullmatch(profile.name)
        if named is None:
            continue
        speed_differs = port.rate_bps is not None and port.rate_bps != int(named[1]) * 10**6
        cable_differs = port.cable_m is not None and port.cable_m != Fraction(named[2])
        if speed_differs or cable_differs:
            mismatch.add(place, f"{profile.name} is used by a port of {link}", profile=profile.name)
    yield from short.findings()
    yield from mismatch.findings()


def _rate(port: Port) -> str:
    return "an unknown speed" if port.rate_bps is None else format_rate(port.rate_bps)


def _cable(port: Port) -> str:
    return "a cable of unknown length" if port.cable_m is None else format_length(port.cable_m)


def _looked_up(switch: SonicSwitch, lookup: Lookup | None) -> Iterator[Finding]:
    computed, missing, different = Grouped(UNCHECKED), Grouped(NO_LINE), Grouped(DIFFERENT)
    for (name, number), keys in switch.computed.items():
        port = switch.ports.get(name)
        place = switch.tables.at(keys)
        if lookup is None:
            computed.add(place, "the switch computes the profile of a lossless priority group: headroom is not checked")
        elif port is None or port.rate_bps is None or port.cable_m is None:
            missing.add(place, f"{lookup.source} needs speed and cable of the port, which are not given")
        else:
            text = f"{lookup.source} has no line for {_rate(port)} and {_cable(port)}"
            missing.add(place, text, port=name, number=number)
    for (name, _), profile, binding in switch.lossless_groups():
        port = switch.ports.get(name)
        line = None if lookup is None or port is None else lookup.find(port.rate_bps, port.cable_m)
        if line is None or lookup is None:
            continue
        dynamic = profile.dynamic_th is not None
        pairs = (
            ("size", profile.size_bytes, line.size_bytes),
            ("xon", profile.xon_bytes or 0, line.xon_bytes),
            ("xoff", profile.xoff_bytes, line.xoff_bytes),
            ("xon_offset", profile.xon_offset_bytes or 0, line.xon_offset_bytes or 0),
            (
                "dynamic_th" if dynamic else "static_th",
                profile.dynamic_th if dynamic else profile.static_bytes,
                line.threshold,
            ),
        )
        for field, given, expected in pairs:
            if given is not None and given != expected:
                text = f"{field} of {profile.name} is {given:,}; {lookup.source}:{line.line} has {expected:,}"
                different.add(switch.tables.at(binding.keys), text, field=field, given=given, expected=expected)
    for group in (computed, missing, different):
        yield from group.findings()
