"""Import of a simulation of the HPCC family of ns-3 simulators: topology, flows and configuration to a scenario.

The scenario has ``compat = "ns3"``: time in whole truncated ns, the frame sizes, the buffer rule and the ACK handling
of that family (docs/MODEL.md section 13). It runs as it is.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from fabemu.deferred import dataclass
from fabemu.errors import InputError, OutputError
from fabemu.importers.hpcc_config import CC_DCQCN, EcnPoint, HpccConfig, default_config, read_config
from fabemu.importers.hpcc_flows import HpccFlows, read_flows
from fabemu.importers.hpcc_topology import HpccTopology, read_topology
from fabemu.units import format_bytes, format_rate, format_time
from fabemu.whole_file import write_text

PS_PER_NS = 1_000

_USUAL_GROUP = 3
"""Priority group of data if no flow tells."""

_CNP_PRIORITY = 0
"""Priority group 0 carries no flow, so the class that every fabric needs for CNPs can have it; none are sent here."""


@dataclass(frozen=True)
class HpccScenario:
    """The files of an imported scenario, as text.

    Attributes
    ----------
    toml
        The scenario. It names the other two files as `links_name` and `flows_name`.
    links_csv
        One line per cable, in the order of the topology file.
    flows_csv
        One line per flow, in the order of the flow file.
    links_name, flows_name
        File names of the two tables, beside the scenario.
    notes
        What was left out or is done otherwise, one line each.
    """

    toml: str
    links_csv: str
    flows_csv: str
    links_name: str
    flows_name: str
    notes: tuple[str, ...]


def import_hpcc(
    topology_path: Path,
    flows_path: Path,
    config_path: Path | None,
    output: Path,
    *,
    force: bool = False,
    shift_start: bool = False,
) -> tuple[Path, tuple[str, ...]]:
    """Read the files of one simulation and write a scenario.

    Parameters
    ----------
    topology_path, flows_path, config_path
        The simulator's files; without a configuration the family's DCQCN settings at 100 Gb/s are used.
    output
        A path that ends in ``.toml``: the scenario; its tables go beside it. Any other path: a directory.
    force
        Overwrite existing files.
    shift_start
        Let the first flow start at 0.

    Returns
    -------
    tuple
        Path of the scenario, and the notes for the user.

    Raises
    ------
    InputError
        A file is malformed or asks for what is not supported.
    OutputError
        A file exists and `force` is not set, or cannot be written.
    """
    topology = read_topology(topology_path)
    flows = read_flows(flows_path, topology)
    config = read_config(config_path) if config_path is not None else default_config()
    scenario_path = output if output.suffix == ".toml" else output / "scenario.toml"
    prefix = f"{output.stem}-" if output.suffix == ".toml" else ""
    scenario = convert_hpcc(
        topology,
        flows,
        config,
        name=topology_path.stem,
        links_name=f"{prefix}links.csv",
        flows_name=f"{prefix}flows.csv",
        shift_start=shift_start,
    )
    directory = scenario_path.parent
    # The scenario comes last: if it is there, its tables are.
    files = [
        (directory / scenario.links_name, scenario.links_csv),
        (directory / scenario.flows_name, scenario.flows_csv),
        (scenario_path, scenario.toml),
    ]
    if not force:
        for path, _ in files:
            if path.exists():
                raise OutputError(f"{path}: exists already; choose another -o or overwrite with --force")
    for path, text in files:
        write_text(path, text)
    return scenario_path, scenario.notes


def convert_hpcc(
    topology: HpccTopology,
    flows: HpccFlows,
    config: HpccConfig,
    *,
    name: str,
    links_name: str,
    flows_name: str,
    shift_start: bool = False,
) -> HpccScenario:
    """Convert what was read to a scenario.

    Raises
    ------
    InputError
        There is no host, or a port's rate has no ECN thresholds.
    """
    if not topology.hosts:
        raise InputError(f"{topology.source}: all {topology.node_count} nodes are switches; a fabric needs hosts")
    shift_ns = min((flow.start_ns for flow in flows.flows), default=0) if shift_start else 0
    groups = sorted({flow.priority_group for flow in flows.flows}) or [_USUAL_GROUP]
    toml = [
        *_head(topology, flows, config, name, shift_ns),
        *_fabric(topology, links_name),
        *_switch(topology, config),
        *_nic(config),
        *_classes(groups),
        "[[workload]]",
        'kind = "flow-file"',
        'label = "flows"',
        f"path = {_quoted(flows_name)}",
        f'class = "{_class_name(groups[0])}"',
    ]
    return HpccScenario(
        toml="\n".join(toml) + "\n",
        links_csv=_links_csv(topology),
        flows_csv=_flows_csv(topology, flows, config, shift_ns),
        links_name=links_name,
        flows_name=flows_name,
        notes=topology.notes + flows.notes + config.notes,
    )


def _head(topology: HpccTopology, flows: HpccFlows, config: HpccConfig, name: str, shift_ns: int) -> list[str]:
    """Top level of the scenario."""
    sources = [Path(source).name for source in (topology.source, flows.source, config.source) if source]
    lines = [
        "# Imported with `fabemu import hpcc` from " + ", ".join(json.dumps(source) for source in sources) + ".",
        f"name = {_quoted(name)}",
        'compat = "ns3"',
    ]
    if shift_ns:
        lines.insert(1, f"# All start times are {format_time(shift_ns * PS_PER_NS)} earlier than in the flow file.")
    if config.stop_ns is not None and config.stop_ns > shift_ns:
        lines.append(f'until = "{format_time((config.stop_ns - shift_ns) * PS_PER_NS)}"')
    return [*lines, ""]


def _fabric(topology: HpccTopology, links_name: str) -> list[str]:
    """Table of the fabric."""
    return [
        "[fabric]",
        'kind = "graph"',
        *_name_list("hosts", [topology.name(node) for node in topology.hosts]),
        *_name_list("switches", [topology.name(node) for node in topology.switches]),
        f"links_csv = {_quoted(links_name)}",
        "",
    ]


def _name_list(key: str, names: list[str]) -> list[str]:
    """Write a list of names, ten to a line."""
    if len(names) <= 10:
        return [f"{key} = {json.dumps(names)}"]
    rows = [names[start : start + 10] for start in range(0, len(names), 10)]
    return [f"{key} = [", *("    " + ", ".join(f'"{name}"' for name in row) + "," for row in rows), "]"]


def _switch(topology: HpccTopology, config: HpccConfig) -> list[str]:
    """Tables of the switches: buffer and ECN thresholds by the rate of the egress port."""
    lines = ["[switch]", f'buffer = "{format_bytes(config.buffer_bytes)}"', "", "[switch.ecn]"]
    if not config.ecn_enabled:
        return [*lines, "enabled = false", ""]
    switches = set(topology.switches)
    points: dict[int, EcnPoint] = {}
    for link in topology.links:
        if link.rate_bps in points or not {link.a, link.b} & switches:
            continue
        point = config.ecn_at(link.rate_bps)
        if point is None:
            raise InputError(
                f"{topology.source}:{link.line}: rate {format_rate(link.rate_bps)} has no ECN thresholds in "
                f"{config.source}; KMIN_MAP, KMAX_MAP and PMAX_MAP need every rate of a switch port"
            )
        points[link.rate_bps] = point
    if len(points) == 1:
        lines += [f"{key} = {value}" for key, value in _thresholds(next(iter(points.values())))]
    elif points:
        lines.append("by_rate = [")
        for rate, point in sorted(points.items()):
            keys = ", ".join(f"{key} = {value}" for key, value in _thresholds(point))
            lines.append(f'    {{ rate = "{format_rate(rate)}", {keys} }},')
        lines.append("]")
    return [*lines, ""]


def _thresholds(point: EcnPoint) -> list[tuple[str, str]]:
    """Thresholds as keys and TOML values."""
    return [
        ("kmin", f'"{_kilobytes(point.kmin_bytes)}"'),
        ("kmax", f'"{_kilobytes(point.kmax_bytes)}"'),
        ("pmax", repr(point.pmax)),
    ]


def _kilobytes(size_bytes: int) -> str:
    """Write a size in the unit of the simulator's thresholds where it can be."""
    return f"{size_bytes // 1000}KB" if size_bytes and size_bytes % 1000 == 0 else format_bytes(size_bytes)


def _nic(config: HpccConfig) -> list[str]:
    """Tables of the adapters."""
    lines = [
        "[nic]",
        f"mtu = {config.payload_bytes}",
        "any_mtu = true",
        f"ack_every = {config.ack_every}",
        "",
        "[nic.cc]",
        f'kind = "{"dcqcn" if config.cc_mode == CC_DCQCN else "none"}"',
        'preset = "ns3"',
    ]
    if config.cc_mode == CC_DCQCN:
        lines += [
            f"g = {config.gain!r}",
            f'alpha_timer = "{format_time(config.alpha_timer_ns * PS_PER_NS)}"',
            f'decrease_timer = "{format_time(config.decrease_timer_ns * PS_PER_NS)}"',
            f'increase_timer = "{format_time(config.increase_timer_ns * PS_PER_NS)}"',
            f"threshold = {config.fast_recovery_steps}",
            f'rate_ai = "{format_rate(config.rate_ai_bps)}"',
            f'rate_hai = "{format_rate(config.rate_hai_bps)}"',
            f'rate_min = "{format_rate(config.rate_min_bps)}"',
            f"clamp_target = {str(config.clamp_target).lower()}",
        ]
    return [*lines, ""]


def _classes(groups: list[int]) -> list[str]:
    """One lossless class per priority group in use, and the class that a fabric needs for CNPs."""
    lines = []
    for group in reversed(groups):
        lines += [
            "[[class]]",
            f'name = "{_class_name(group)}"',
            f"priority = {group}",
            "lossless = true",
            "ecn = true",
            f"dscp = {8 * group}",
            "",
        ]
    lines += [
        "# Marks ride back on ACKs, so this class stays empty; a fabric must have one.",
        "[[class]]",
        'name = "cnp"',
        f"priority = {_CNP_PRIORITY}",
        "lossless = false",
        "ecn = false",
        "dscp = 0",
        "cnp = true",
        "",
    ]
    return lines


def _class_name(group: int) -> str:
    """Name of the class of a priority group."""
    return f"pg{group}"


def _links_csv(topology: HpccTopology) -> str:
    """Write the cables."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["a", "b", "rate", "delay"])
    for link in topology.links:
        delay = format_time(link.delay_ns * PS_PER_NS)
        rows.writerow([topology.name(link.a), topology.name(link.b), format_rate(link.rate_bps), delay])
    return text.getvalue()


def _flows_csv(topology: HpccTopology, flows: HpccFlows, config: HpccConfig, shift_ns: int) -> str:
    """Write the flows."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["src", "dst", "bytes", "start_ps", "class", "sport"])
    unit = config.payload_bytes if flows.form == "ns3-rdma" else 1
    for flow in flows.flows:
        rows.writerow(
            [
                topology.name(flow.src),
                topology.name(flow.dst),
                flow.size * unit,
                (flow.start_ns - shift_ns) * PS_PER_NS,
                _class_name(flow.priority_group),
                flow.sport,
            ]
        )
    return text.getvalue()


def _quoted(text: str) -> str:
    """Write a TOML string."""
    return json.dumps(text, ensure_ascii=False)
