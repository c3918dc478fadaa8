"""Import of a SONiC configuration: one switch to a switch profile, which scenarios take in.

A profile is a TOML file with [switch], [map] and [[class]] (docs/SCENARIO.md, Switch profiles). What fabemu cannot
express is listed in it, line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from fabemu.errors import InputError, OutputError
from fabemu.importers.sonic_classes import QueueMaps, class_tables, queue_maps
from fabemu.importers.sonic_lookup import look_up, read_lookup
from fabemu.importers.sonic_switch import COLOURS, TABLES, Pool, Port, Profile, SonicSwitch, Wred, read_switch, usual
from fabemu.scenario.device import KMAX_LIMIT_BYTES
from fabemu.scenario.write import toml_value
from fabemu.units import format_bytes, format_length, format_rate
from fabemu.whole_file import write_text

ONLY_WHEN_EMPTY = "4294967295B"
"""An XON offset below which no threshold reaches: XON comes when nothing but the reserve is used."""

_EMPTY_TEXT = f"here XON comes when nothing but the reserve is used, xon_offset = {ONLY_WHEN_EMPTY}"

_ALPHA_MAX = 10  # of the scenario: 2^10


def import_sonic(
    config_path: Path, lookup_path: Path | None, output: Path | None, *, force: bool = False
) -> tuple[Path, tuple[str, ...]]:
    """Read one switch and write its profile.

    Parameters
    ----------
    config_path, lookup_path
        Its config_db.json and, for the profiles that the switch makes itself, its pg_profile_lookup.ini.
    output
        The profile to write; by default named after the switch, in the current directory.
    force
        Overwrite an existing file.

    Returns
    -------
    tuple
        Path of the profile, and what was not carried over.

    Raises
    ------
    InputError
        A file is malformed.
    OutputError
        The file exists and `force` is not set, or cannot be written.
    MachineError
        The disk is full.
    """
    switch = read_switch(config_path)
    _refuse_malformed(switch)
    if lookup_path is not None:
        look_up(switch, read_lookup(lookup_path))
    sources = [path.name for path in (config_path, lookup_path) if path is not None]
    text, notes = convert_sonic(switch, sources)
    path = output if output is not None else Path(f"{_file_stem(switch.hostname) or config_path.stem}.toml")
    if path.exists() and not force:
        raise OutputError(f"{path}: exists already; choose another -o or overwrite with --force")
    write_text(path, text)
    return path, notes


def convert_sonic(switch: SonicSwitch, sources: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Convert one switch to the text of its profile, and the notes on what was not carried over.

    Parameters
    ----------
    switch
        What was read, its profiles looked up.
    sources
        Names of the files, for the first line.
    """
    return _Conversion(switch, list(sources)).text()


def _file_stem(name: str | None) -> str:
    """A host name as a file name."""
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in name or "").strip(".")


def _refuse_malformed(switch: SonicSwitch) -> None:
    """Refuse a file with values that cannot be read or references to nothing: a profile of the rest would mislead."""
    found = [(fault.keys, fault.message) for fault in switch.faults if fault.kind in ("type", "value")]
    found += [(keys, f'names "{name}", which {table} does not have') for keys, table, name in switch.dangling]
    if found:
        keys, message = found[0]
        more = f" (and {len(found) - 1} more: fabemu check lists them)" if len(found) > 1 else ""
        raise InputError(f"{switch.tables.at(keys)}: {message}{more}")


def _setting(key: str, value: str) -> list[str]:
    """A line "key = value" of the table of [switch] that a key such as ``pfc.alpha`` belongs to."""
    return [f"{key.rsplit('.', 1)[-1]} = {value}"]


class _Conversion:
    """The parts of one profile, and the notes that they leave."""

    def __init__(self, switch: SonicSwitch, sources: list[str]) -> None:
        self.switch = switch
        self.sources = sources
        self.notes: list[str] = []
        self.xon_left: dict[str, list[str]] = {}  # profiles by what is not carried over of their xon
        self.up = [port for port in switch.data_ports if switch.is_up(port)]
        self.pfc: frozenset[int] = usual(switch.pfc_of(port) for port in self.up) or frozenset()
        groups = Counter(number for (_, number), _, _ in switch.lossless_groups())
        self.lossless = sorted({switch.queue_of(self.up[0], item) for item in self.pfc} if self.up else [])
        self.lossless = sorted({*self.lossless, *(item for item, count in groups.items() if 2 * count > len(self.up))})
        self.maps: QueueMaps = queue_maps(switch, self.up, self.notes)
        self.pool = self._pool()

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def text(self) -> tuple[str, tuple[str, ...]]:
        buffer = [] if self.pool is None else self._buffer(self.pool)
        body = [
            "[switch]",
            *buffer,
            "",
            *self._pfc_table(),
            *self._lossy_table(),
            *self._ecn_table(),
            *self._watchdog_table(),
            *self._port_tables(),
            *self._map_table(),
            *class_tables(self.maps, self.lossless, self._marked_queues()),
        ]
        self._general_notes()
        head = self._head()
        listed = [f"# - {note}" for note in self.notes]
        lines = [*head, *(["#", "# Not carried over, or done otherwise:", *listed] if listed else []), "", *body]
        return "\n".join(lines).rstrip() + "\n", tuple(self.notes)

    def _head(self) -> list[str]:
        switch = self.switch
        links = Counter((port.rate_bps, port.cable_m) for port in switch.ports.values() if port.is_up)
        shown = ", ".join(
            f"{count} x {'?' if rate is None else format_rate(rate)} {'?' if cable is None else format_length(cable)}"
            for (rate, cable), count in links.items()
        )
        name = f" ({_printable(switch.hostname)})" if switch.hostname else ""
        return [
            f"# Switch profile, imported with `fabemu import sonic` from {' and '.join(map(toml_value, self.sources))}"
            f"{name}.",
            '# A scenario takes it in with profile = "FILE" in [switch], [switch.tier.NAME] or [[switch.override]].',
            *([f"# Ports that are up: {shown}."] if shown else []),
        ]

    # Buffers

    def _pool(self) -> Pool | None:
        switch = self.switch
        names = [profile.pool for _, profile, _ in switch.lossless_groups()]
        if not names:
            names = [profile.pool for profile in self._lossy_profiles()]
        name = usual(item for item in names if item is not None)
        pool = switch.pools.get(name or "ingress_lossless_pool")
        others = [
            item.name
            for item in switch.pools.values()
            if item.direction == "ingress" and pool and item.name != pool.name
        ]
        if others:
            self.note(
                f"pools {', '.join(sorted(others))}: a switch has one pool here, that of {pool.name if pool else ''}"
            )
        return pool

    def _buffer(self, pool: Pool) -> list[str]:
        if pool.size_bytes is None or pool.size_bytes == 0:
            self.note(f"size of {pool.name}: the switch computes it; write [switch] buffer yourself")
            return []
        if pool.xoff_bytes:
            wanted = sum(profile.xoff_bytes or 0 for _, profile, _ in self.switch.lossless_groups())
            sums = f"; {wanted:,} B for all ports of this switch" if wanted else ""
            self.note(
                f"shared headroom pool of {pool.xoff_bytes:,} B: every priority group has its own headroom here, taken "
                f"from the buffer{sums}"
            )
        return _setting("buffer", _size(pool.size_bytes))

    def _pfc_table(self) -> list[str]:
        switch = self.switch
        groups = [
            (switch.ports.get(port), profile) for (port, _), profile, _ in switch.lossless_groups() if port in self.up
        ]
        lines: list[str] = []
        if groups:
            lines += self._threshold("pfc", [profile for _, profile in groups])
        if self.lossless:
            if not switch.qos:
                self.note("there is no PORT_QOS_MAP: PFC is taken to be on for the priority groups with xoff")
            lines += _setting("pfc.enabled", toml_value(bool(self.pfc) or not switch.qos))
        lossless_groups = {number for (_, number), _, _ in switch.lossless_groups()}
        for priority in sorted(self.pfc):
            number = switch.group_of(self.up[0], priority)
            if number not in lossless_groups and not switch.computed:
                self.note(f"priority {priority} has PFC, but its priority group {number} has no xoff: no headroom here")
        if self.pfc and switch.computed:
            ports = sorted({port for port, _ in switch.computed})
            whose = ports[0] if len(ports) == 1 else f"{len(ports)} ports ({ports[0]} and so on)"
            self.note(
                f"headroom of {whose}: the switch computes it, or looks it up in "
                'pg_profile_lookup.ini; here it is "auto", the bound of each link'
            )
        elif self.pfc and not groups:
            lines.append('headroom = "0B"')
        by_link = self._by_link(groups)
        for text, names in self.xon_left.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.note(f"xon of {names[0]}{more} {text}")
        if len({values for _, _, values in by_link}) == 1:
            lines += _group_lines(by_link[0][2])
            return ["[switch.pfc]", *lines, ""]
        table = ["[switch.pfc]", *lines, ""] if lines else []
        for rate, cable, values in by_link:
            table += [
                "[[switch.pfc.by_link]]",
                f'rate = "{format_rate(rate)}"',
                f'length = "{format_length(cable)}"',
                *_group_lines(values),
                "",
            ]
        return table

    def _by_link(self, groups: list[tuple[Port | None, Profile]]) -> list[tuple[int, Fraction, tuple[int, int, str]]]:
        """Reserved, headroom and XON offset of the lossless priority groups by rate and cable."""
        found: dict[tuple[int, Fraction], list[Profile]] = {}
        unknown: list[Profile] = []
        for port, profile in groups:
            if port is None or port.rate_bps is None or port.cable_m is None:
                unknown.append(profile)
            else:
                found.setdefault((port.rate_bps, port.cable_m), []).append(profile)
        if unknown and found:
            self.note(f"profile {unknown[0].name} of a port without speed or cable")
        elif unknown:
            # Nothing tells links apart: one entry stands for all.
            found[10**9, Fraction(0)] = unknown
        result = []
        for (rate, cable), profiles in sorted(found.items()):
            chosen = max(profiles, key=profiles.count)
            if len(set(profiles)) > 1:
                names = ", ".join(sorted({item.name for item in profiles}))
                self.note(
                    f"ports of {format_rate(rate)} and {format_length(cable)} have several profiles ({names}): all "
                    f"have {chosen.name} here"
                )
            result.append((rate, cable, self._group_values(chosen)))
        return result

    def _group_values(self, profile: Profile) -> tuple[int, int, str]:
        size, xoff = profile.size_bytes or 0, profile.xoff_bytes or 0
        pool = self.switch.pools.get(profile.pool or "")
        within = size >= xoff and not (pool is not None and pool.xoff_bytes)
        reserved = size - xoff if within else size
        if profile.xon_offset_bytes:
            if profile.xon_bytes:
                self.xon_left.setdefault(f"({profile.xon_bytes:,} B): XON follows xon_offset alone", []).append(
                    profile.name
                )
            return reserved, xoff, f"{profile.xon_offset_bytes}B"
        if not profile.xon_bytes:
            return reserved, xoff, "0B"
        # By SAI, XON is due when the group holds no more than xon: reserve and shared bytes together.
        if profile.xon_bytes == reserved:
            text = f"({reserved:,} B), the reserve: {_EMPTY_TEXT}, which is the same"
        else:
            where = "above" if profile.xon_bytes > reserved else "below"
            text = (
                f"({profile.xon_bytes:,} B), {where} the reserve of {reserved:,} B: {_EMPTY_TEXT}, "
                f"{'later' if where == 'above' else 'sooner'} than there"
            )
        self.xon_left.setdefault(text, []).append(profile.name)
        return reserved, xoff, ONLY_WHEN_EMPTY

    def _threshold(self, table: str, profiles: list[Profile], prefix: str = "") -> list[str]:
        """Lines of the threshold that most profiles have."""
        pairs = [(item.dynamic_th, item.static_bytes) for item in profiles]
        chosen = usual(pairs)
        if chosen is None:
            return []
        dynamic, static = chosen
        if len(set(pairs)) > 1:
            names = sorted({item.name for item in profiles if (item.dynamic_th, item.static_bytes) != chosen})
            self.note(f"threshold of {', '.join(names)}: all have the one of the other profiles of their kind")
        if static is not None:
            # A threshold above the buffer is none.
            size = self.pool.size_bytes if self.pool is not None else None
            return _setting(f"{table}.{prefix}static", _size(min(static, size) if size else static))
        if dynamic is None:
            self.note(f"profiles {', '.join(sorted({item.name for item in profiles}))} have no threshold")
            return []
        alpha = Fraction(2) ** min(dynamic, _ALPHA_MAX)
        return _setting(f"{table}.{prefix}alpha", toml_value(str(alpha)))

    def _lossy_profiles(self) -> list[Profile]:
        found = [
            self.switch.profiles.get(binding.name or "")
            for (port, _), binding in self.switch.groups.items()
            if self.switch.is_up(port)
        ]
        return [profile for profile in found if profile is not None and not profile.is_lossless]

    def _lossy_table(self) -> list[str]:
        switch = self.switch
        ingress = self._lossy_profiles()
        egress = [
            profile
            for (port, queue), binding in switch.queue_buffers.items()
            if switch.is_up(port) and queue not in self.lossless
            if (profile := switch.profiles.get(binding.name or "")) is not None
        ]
        lines = self._threshold("lossy", ingress) + self._threshold("lossy", egress, "egress_")
        reserved = usual(profile.size_bytes or 0 for profile in ingress)
        if reserved is not None:
            lines += _setting("lossy.reserved", _size(reserved))
        if any(profile.size_bytes for profile in egress):
            self.note("size of egress profiles: nothing is reserved at egress here")
        limited = {
            profile.name
            for (port, queue), binding in switch.queue_buffers.items()
            if switch.is_up(port) and queue in self.lossless
            if (profile := switch.profiles.get(binding.name or "")) is not None and self._limits(profile)
        }
        if limited:
            self.note(f"egress limit of lossless queues ({', '.join(sorted(limited))}): they have none here")
        return ["[switch.lossy]", *lines, ""] if lines else []

    def _limits(self, profile: Profile) -> bool:
        """Whether an egress profile limits a queue before its pool is full."""
        pool = self.switch.pools.get(profile.pool or "")
        if profile.static_bytes is not None:
            return pool is None or pool.size_bytes is None or profile.static_bytes < pool.size_bytes
        return profile.dynamic_th is not None and profile.dynamic_th < 7

    # Marking

    def _marked_queues(self) -> list[int]:
        return sorted(
            queue
            for queue in {queue for _, queue in self.switch.queue_wred}
            if (wred := self._wred_of(queue)) is not None and wred.marks
        )

    def _wred_of(self, queue: int, rate_bps: int | None = None) -> Wred | None:
        name = usual(
            binding.name
            for (port, number), binding in self.switch.queue_wred.items()
            if number == queue and binding.name is not None and self.switch.is_up(port)
            if rate_bps is None or (port in self.switch.ports and self.switch.ports[port].rate_bps == rate_bps)
        )
        return None if name is None else self.switch.wreds.get(name)

    def _ecn_table(self) -> list[str]:
        queues = [queue for queue in self._marked_queues() if queue in self.lossless] or self._marked_queues()
        if not queues:
            return ["[switch.ecn]", "enabled = false", ""]
        names = {
            binding.name
            for (port, queue), binding in self.switch.queue_wred.items()
            if queue in queues and binding.name is not None and self.switch.is_up(port)
        }
        main = self._wred_of(queues[0])
        assert main is not None
        for name in sorted(item for item in names if item is not None):
            wred = self.switch.wreds.get(name)
            if wred is not None:
                self._wred_notes(wred)
        thresholds = self._thresholds(main)
        if thresholds is None:
            return ["[switch.ecn]", "enabled = false", ""]
        lines = ["[switch.ecn]", *thresholds, ""]
        rates = sorted({port.rate_bps for port in self.switch.ports.values() if port.is_up and port.rate_bps})
        carried = {main.name}
        for rate in rates:
            wred = self._wred_of(queues[0], rate)
            other = None if wred is None else self._thresholds(wred)
            if wred is not None and other is not None and other != thresholds:
                lines += ["[[switch.ecn.by_rate]]", f'rate = "{format_rate(rate)}"', *other, ""]
            if wred is not None and other is not None:
                carried.add(wred.name)
        left = sorted(item for item in names if item is not None and item not in carried)
        if left:
            self.note(
                f"WRED profiles {', '.join(left)}: the thresholds are those of queue {queues[0]} by rate of the port"
            )
        return lines

    def _wred_notes(self, wred: Wred) -> None:
        values = {
            (wred.minimum_bytes[colour], wred.maximum_bytes[colour], wred.percent[colour])
            for colour in COLOURS
            if wred.minimum_bytes[colour] is not None
        }
        if len(values) > 1:
            self.note(f"thresholds of yellow and red in {wred.name}: all packets are green here")
        if wred.ecn not in ("ecn_all", "ecn_none") and "green" not in wred.ecn:
            self.note(f"{wred.name} marks by {wred.ecn}: all packets are green here")

    def _thresholds(self, wred: Wred) -> list[str] | None:
        low, high, percent = (item["green"] for item in (wred.minimum_bytes, wred.maximum_bytes, wred.percent))
        if low is None or high is None or percent is None:
            self.note(f"{wred.name} has no green thresholds: nothing is marked")
            return None
        if high >= KMAX_LIMIT_BYTES or low > high:
            self.note(f"thresholds {low:,} B and {high:,} B of {wred.name} are no pair below 2 GiB: nothing is marked")
            return None
        return [f"kmin = {_size(low)}", f"kmax = {_size(high)}", f"pmax = {percent / 100!r}"]

    # Watchdog

    def _watchdog_table(self) -> list[str]:
        switch = self.switch
        watched = {port: watch for port, watch in switch.watch.items() if switch.is_up(port)}
        chosen = usual(
            (watch.action, watch.detection_ms, watch.restoration_ms)
            for watch in watched.values()
            if watch.detection_ms is not None
        )
        if chosen is None:
            return []
        action, detection, restoration = chosen
        if any((item.action, item.detection_ms, item.restoration_ms) != chosen for item in watched.values()):
            self.note("watchdog times or actions that differ between ports: all have the most frequent ones")
        assert detection is not None
        if restoration is None:
            restoration = 2 * detection
            self.note("watchdog without restoration time: twice the detection time, as SONiC has it by default")
        least = min(detection, restoration)
        poll = least if switch.poll_ms is None else min(switch.poll_ms, least)
        if switch.poll_ms is not None and poll < switch.poll_ms:
            self.note(f"watchdog poll of {switch.poll_ms} ms, above its times: {poll} ms here")
        lines = [
            "[switch.watchdog]",
            f'detection_time = "{detection}ms"',
            f'restoration_time = "{restoration}ms"',
            f'poll_interval = "{poll}ms"',
            f'action = "{action}"',
        ]
        unwatched = [port for port in self.up if port not in watched]
        peers = [self._peer(port) for port in self.up if port in watched]
        if not unwatched:
            lines.append('ports = "all"')
        elif all(peers):
            lines.append(f"ports = {toml_value([peer for peer in peers if peer])}")
        else:
            lines.append('ports = "all"')
            self.note(f"watchdog only on {len(watched)} of {len(self.up)} ports: here on all; set watchdog.ports")
        return [*lines, ""]

    def _peer(self, port: str) -> str | None:
        return self.switch.ports[port].neighbour if port in self.switch.ports else None

    # Ports and queues

    def _port_tables(self) -> list[str]:
        """Ports whose PFC is unlike that of the others."""
        lines: list[str] = []
        left: dict[frozenset[int], list[str]] = {}
        for port in self.up:
            enabled = self.switch.pfc_of(port)
            if enabled == self.pfc:
                continue
            peer = self._peer(port)
            partly = enabled and enabled != self.pfc and self.pfc
            if peer is not None and not partly:
                lines += [
                    f"# {port}",
                    "[[switch.override]]",
                    f"peer = {toml_value(peer)}",
                    f"pfc.enabled = {toml_value(bool(enabled))}",
                    "",
                ]
            else:
                left.setdefault(enabled, []).append(port)
        for enabled, ports in left.items():
            has = f"PFC for priorities {sorted(enabled)}" if enabled else "no PFC"
            who, that = f"{ports[0]} has", "that port"
            if len(ports) > 1:
                who, that = f"{len(ports)} ports ({ports[0]} and so on) have", "those ports"
            self.note(
                f"{who} {has}, the others {sorted(self.pfc)}: write pfc.enabled for {that} in [[switch.override]] with "
                "the peer"
            )
        return lines

    def _map_table(self) -> list[str]:
        lines = []
        if self.maps.queue_of_dscp:
            rest = usual(self.maps.queue_of_dscp.values())
            entries = [f"{dscp} = {queue}" for dscp, queue in self.maps.queue_of_dscp.items() if queue != rest]
            lines.append(f"dscp = {{ {', '.join([*entries, f'default = {rest}'])} }}")
        lines.append(f"lossless = {toml_value(self.lossless)}")
        if self.maps.weights:
            lines.append(
                f"weights = {{ {', '.join(f'{queue} = {weight}' for queue, weight in self.maps.weights.items())} }}"
            )
        return ["[map]", *lines, ""]

    def _general_notes(self) -> None:
        switch = self.switch
        down = [port.name for port in switch.ports.values() if not port.is_up]
        if down:
            self.note(
                f"{len(down)} ports that are down ({down[0]} and so on)"
                if len(down) > 1
                else f"{down[0]}, which is down"
            )
        mtus = sorted({port.mtu_bytes for port in switch.ports.values() if port.mtu_bytes is not None})
        if mtus:
            self.note(f"MTU of the ports ({', '.join(map(str, mtus))}): frames are as large as [nic] mtu makes them")
        if any(port.cable_m is not None for port in switch.ports.values()):
            self.note("CABLE_LENGTH: links have the length that [link] says; headroom is chosen by it")
        if switch.foreign:
            self.note(f"{len(switch.foreign)} queues towards ports of other chips or line cards")
        for fault in switch.faults:
            if fault.kind == "repeated":
                self.note(f"{'.'.join(fault.keys)} is given twice: the last one counts")
        for keys, _, (port, number) in switch.clashes:
            self.note(f"{keys[0]} of {port} {number} is given twice: that of {keys[1]} counts")
        others = sorted(name for name in switch.tables.tables if name not in TABLES)
        if others:
            shown = ", ".join(others[:6]) + (" ..." if len(others) > 6 else "")
            self.note(f"{len(others)} other tables ({shown})")


def _group_lines(values: tuple[int, int, str]) -> list[str]:
    reserved, headroom, xon_offset = values
    remark = "  # XON when nothing but the reserve is used" if xon_offset == ONLY_WHEN_EMPTY else ""
    return [f"reserved = {_size(reserved)}", f"headroom = {_size(headroom)}", f'xon_offset = "{xon_offset}"{remark}']


def _size(size_bytes: int) -> str:
    return f'"{format_bytes(size_bytes)}"'


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
