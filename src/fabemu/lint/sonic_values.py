"""SONiC: values, keys and references that cannot mean what was meant."""

from __future__ import annotations

from collections.abc import Iterator

from fabemu.importers.sonic_switch import SonicSwitch
from fabemu.lint.finding import Finding, Grouped, Rule

_SCHEMA = "SONiC configuration schema (YANG models of sonic-buildimage)"

TYPE = Rule(
    "FB601",
    "error",
    "a table, entry or value of the wrong JSON type",
    "Tables and entries of a SONiC configuration are objects, values are texts or lists of texts. What is something "
    "else is left out of all other checks.",
    "The loader of the switch refuses it, or the database holds something that no daemon reads.",
    "",
    _SCHEMA,
    "Write the table as {key: {field: value}}, or the value as a text in quotes.",
)
NUMBER = Rule(
    "FB602",
    "note",
    "a JSON number or boolean where SONiC keeps texts",
    "A value is a JSON number or boolean. It is read as the text of it.",
    'Tools that compare texts, and some loaders, take "1024" and 1024 for different values.',
    "",
    _SCHEMA,
    "Put the value in quotes.",
)
VALUE = Rule(
    "FB603",
    "error",
    "a value that cannot be read",
    "Numbers are whole and in their range, lengths are metres (300m), queues and priority groups 0 to 7, alone or as a "
    "range (3-4), words are of those that the field knows. What cannot be read counts as not given in other checks.",
    "The daemon that reads it stops, or keeps a default that nobody chose.",
    "",
    _SCHEMA,
    "Correct the value as the message says.",
)
REPEATED = Rule(
    "FB604",
    "warning",
    "a key that is given twice",
    "An object of the file has the same key twice. JSON readers keep the last one.",
    "The first of them looks as if it were in force.",
    "",
    "RFC 8259, section 4",
    "Remove one of the two.",
)
ABSENT = Rule(
    "FB605",
    "warning",
    "a table that is not there",
    "A table is absent that other checks need. The message says what is not checked.",
    "A file that is only a part of a configuration, or a switch that runs on defaults.",
    "",
    _SCHEMA,
    "Check a full dump of the configuration, or add the table.",
)
DANGLING = Rule(
    "FB606",
    "error",
    "a reference to nothing",
    "A field names a profile, pool, map or scheduler that its table does not have. Old references [TABLE|name] and "
    "plain ones are understood.",
    "The orchestration of the switch waits for the missing entry for ever: the port, queue or priority group stays on "
    "hardware defaults.",
    "",
    _SCHEMA,
    "Add the entry or correct the name.",
)
STRAY_PORT = Rule(
    "FB607",
    "warning",
    "a port that PORT does not have",
    "A buffer, queue, map or watchdog entry names a port that is not in PORT.",
    "The entry has no effect; the port that was meant goes without it.",
    "",
    _SCHEMA,
    "Correct the name of the port, or remove the entry.",
)
CLASH = Rule(
    "FB608",
    "warning",
    "two keys give one queue or priority group different values",
    "Keys that overlap, such as Ethernet0|3-4 and Ethernet0|4, bind the same group to different values.",
    "Which of them wins depends on the order in which the switch reads them.",
    "",
    _SCHEMA,
    "Let every queue and priority group be in one key.",
)
RULES = (TYPE, NUMBER, VALUE, REPEATED, ABSENT, DANGLING, STRAY_PORT, CLASH)

_BY_KIND = {"type": TYPE, "number": NUMBER, "value": VALUE, "repeated": REPEATED}

_NEEDED = {
    "PORT": "speeds, and which ports there are",
    "BUFFER_POOL": "pools against what is taken from them",
    "BUFFER_PROFILE": "headroom and thresholds",
    "BUFFER_PG": "which priority groups are lossless",
    "PORT_QOS_MAP": "PFC and the maps in force",
    "DSCP_TO_TC_MAP": "where a DSCP goes",
    "TC_TO_PRIORITY_GROUP_MAP": "which priority group a traffic class uses",
    "TC_TO_QUEUE_MAP": "which queue a traffic class uses",
}
_NEEDED_IF_LOSSLESS = {
    "CABLE_LENGTH": "headroom against the bound of speed and cable",
    "QUEUE": "ECN of the lossless queues",
}


def check_values(switch: SonicSwitch) -> Iterator[Finding]:
    """What is wrong in the file itself."""
    at = switch.tables.at
    grouped = {rule: Grouped(rule) for rule in _BY_KIND.values()}
    for fault in switch.faults:
        grouped[_BY_KIND[fault.kind]].add(at(fault.keys), fault.message)
    for group in grouped.values():
        yield from group.findings()
    yield from _absent(switch)
    dangling = Grouped(DANGLING)
    for keys, table, name in switch.dangling:
        near = sorted(switch.tables.table(table))
        has = f"; it has {', '.join(near[:5])}{' ...' if near[5:] else ''}" if near else "; there is no such table"
        dangling.add(at(keys), f'names "{name}", which {table} does not have{has}', table=table, name=name)
    yield from dangling.findings()
    for keys, other, (port, number) in switch.clashes:
        line = switch.tables.where(other)
        yield CLASH.at(at(keys), f"{port} {number} has another value in {line}: {other[1]}", port=port, number=number)
    yield from _stray_ports(switch)


def _absent(switch: SonicSwitch) -> Iterator[Finding]:
    wrong = {fault.keys[0] for fault in switch.faults if fault.kind == "type" and len(fault.keys) == 1}
    needed = dict(_NEEDED)
    if any(switch.pfc_of(port) for port in switch.qos):
        needed |= _NEEDED_IF_LOSSLESS
    for table, unchecked in needed.items():
        if not switch.tables.table(table) and table not in wrong:
            yield ABSENT.at(switch.tables.source, f"{table} is absent: not checked: {unchecked}", table=table)


def _stray_ports(switch: SonicSwitch) -> Iterator[Finding]:
    if not switch.ports:
        return
    # Ports of other cards of a chassis are named like its own, so that only PORT can tell.
    named = [
        *((port, binding.keys) for (port, _), binding in (*switch.groups.items(), *switch.queue_buffers.items())),
        *((port, qos.keys) for port, qos in switch.qos.items() if port != "global"),
        *((port, watch.keys) for port, watch in switch.watch.items()),
        *(
            (port, ("CABLE_LENGTH", key, port))
            for key, row in switch.tables.table("CABLE_LENGTH").items()
            for port in row
        ),
    ]
    grouped = Grouped(STRAY_PORT)
    for port, keys in named:
        if port not in switch.ports:
            grouped.add(switch.tables.at(keys), f"{port} is not in PORT", port=port)
    yield from grouped.findings()
