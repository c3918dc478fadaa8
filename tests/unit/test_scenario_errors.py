"""What a user is told about a wrong scenario: place, key path, value, what is allowed, the likely fix."""

from __future__ import annotations

import os
import pickle
import socket
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabemu.errors import FabemuError, Problem, ScenarioError
from fabemu.scenario import load_scenario, scenario_from_dict, scenario_from_toml

FABRIC = '[fabric]\nkind = "leaf-spine"\nleaves = 2\nhosts_per_leaf = 2\nspines = 2\n'  # lines 1 to 5
TRAFFIC = '[[workload]]\nkind = "poisson"\nload = 0.5\nstop = "1ms"\n'  # lines 6 to 9
CNP = '[[class]]\nname = "cnp"\npriority = 6\ncnp = true\n'


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        scenario_from_toml(text, "s.toml", overrides)
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [str(problem) for problem in caught.value.problems]


def only(text: str, *overrides: str) -> str:
    found = problems(text, *overrides)
    assert len(found) == 1, "\n".join(found)
    return found[0]


def extra(text: str) -> str:
    """The one problem of a good scenario with more text, which begins at line 10."""
    return only(FABRIC + TRAFFIC + text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # Units
        ('[link]\nrate = "400Gb"', 's.toml:11: link.rate = "400Gb": a rate needs /s: write "400Gbps", not "400Gb"'),
        (
            '[link]\nrate = "5 apples"',
            's.toml:11: link.rate = "5 apples": "apples" is not a unit of rate: use bps, kbps, Mbps, Gbps or Tbps,'
            ' such as "400Gbps"',
        ),
        (
            "[link]\nrate = 400",
            's.toml:11: link.rate = 400: a rate needs a unit: write "400Gbps" or the like'
            " (bps, kbps, Mbps, Gbps or Tbps), not 400",
        ),
        ('[link]\nrate = "-1Gbps"', 's.toml:11: link.rate = "-1Gbps": a rate cannot be negative: "-1Gbps"'),
        (
            '[link]\nrate = "0Gbps"',
            's.toml:11: link.rate = "0Gbps": a rate must be above 0: write for example "400Gbps" (found "0Gbps")',
        ),
        ('[link]\nrate = "1000Tbps"', 's.toml:11: link.rate = "1000Tbps": must be at most 100Tbps'),
        ('[switch]\nbuffer = "0B"', 's.toml:11: switch.buffer = "0B": must be above 0'),
        (
            '[switch.pfc]\nheadroom = "autp"',
            's.toml:11: switch.pfc.headroom = "autp": "autp" is not a size: write a number and a unit'
            ' (B, kB, MB, GB, TB, KiB, MiB, GiB or TiB), such as "64KiB"; did you mean "auto"?',
        ),
        (
            "[nic]\nwindow = true",
            's.toml:11: nic.window = true: a size is needed, such as "64KiB", found true; or "none"',
        ),
        # Unknown keys and words
        (
            '[link]\nrat = "1Gbps"',
            's.toml:11: link.rat = "1Gbps": unknown key; did you mean "rate"?'
            " (allowed: rate, delay, length, flow_control, credit_buffer, credit_refresh, tier, override)",
        ),
        (
            '[switch]\nkmin = "1KB"',
            's.toml:11: switch.kmin = "1KB": unknown key; "kmin" belongs in [switch.ecn]',
        ),
        (
            "[nic]\nseed = 4",
            's.toml:11: nic.seed = 4: unknown key; "seed" belongs at the top of the file, before the first table',
        ),
        (
            "[switches]\nx = 1",
            's.toml:10: switches: unknown key; did you mean "switch"? (allowed: name, seed, until, compat, measure,'
            " fabric, scale_up, frames, link, switch, nic, class, workload, job, deadlock, routing, fault, trace)",
        ),
        (
            '[nic.cc]\nkind = "dcqnc"',
            's.toml:11: nic.cc.kind = "dcqnc": must be "none", "fixed" or "dcqcn"; did you mean "dcqcn"?',
        ),
        (
            '[nic.cc]\npreset = "cx7"',
            's.toml:11: nic.cc.preset = "cx7": must be "paper", "connectx" or "ns3"',
        ),
        (
            '[[workload]]\nkind = "poison"',
            's.toml:11: workload.1.kind = "poison": must be "flows", "flow-file", "poisson", "incast", "permutation"'
            ', "all-to-all", "collective", "transfer", "goal" or "training"; did you mean "poisson"?',
        ),
        ("[[workload]]\nload = 1", 's.toml:10: workload.1: key "kind" is missing: it says which workload this is'),
        # Not supported yet
        (
            "[switch]\ncut_through = true",
            's.toml:11: switch.cut_through = true: "cut_through" is not supported yet: cut-through forwarding'
            " (switches store and forward)",
        ),
        (
            '[switch.pfc]\nheadroom_pool = "1MB"',
            's.toml:11: switch.pfc.headroom_pool = "1MB": "headroom_pool" is not supported yet: a shared headroom pool'
            " (every priority group has its own headroom)",
        ),
        (
            '[switch.watchdog]\ndetection_time = "10ms"',
            "s.toml:11: switch.watchdog.detection_time = \"10ms\": is shorter than poll_interval = 100ms: nothing is "
            "seen between two polls",
        ),
        (
            '[switch.watchdog]\ndetection_time = "1ms"\npoll_interval = "1ms"\nrestoration_time = "999us"',
            "s.toml:13: switch.watchdog.restoration_time = \"999us\": is shorter than poll_interval = 1ms: nothing is "
            "seen between two polls",
        ),
        (
            '[switch.watchdog]\naction = "shutdown"',
            "s.toml:11: switch.watchdog.action = \"shutdown\": must be \"drop\", \"forward\" or \"alert\"",
        ),
        (
            '[nic.receiver]\nxoff = "32KiB"',
            "s.toml:10: nic.receiver.xon: 32KiB is not below xoff = 32KiB",
        ),
        (
            '[nic.receiver]\nbuffer = "32KiB"',
            's.toml:11: nic.receiver.buffer = "32KiB": is below xoff = 64KiB',
        ),
        (
            "[deadlock]\nstop = true",
            's.toml:11: deadlock.stop = true: needs checks during the run: write for example interval = "100us"',
        ),
        (
            '[deadlock]\ninterval = "1ns"',
            's.toml:11: deadlock.interval = "1ns": must be at least 100ns',
        ),
        (
            '[switch.ecn]\nmark_on = "enqueue"',
            's.toml:11: switch.ecn.mark_on = "enqueue": "mark_on" is not supported yet: ECN marking on enqueue'
            " (packets are marked when they leave the queue)",
        ),
        (
            "[link]\nloss = 0.1",
            's.toml:11: link.loss = 0.1: unknown key; this is a fault: write [[fault]] with kind = "loss"',
        ),
        (
            '[switch.tier.leaf]\nscheduler = "wfq"',
            's.toml:11: switch.tier.leaf.scheduler = "wfq": "scheduler" is not supported yet: a choice of scheduler'
            " (classes are served by strict priority, then by weights)",
        ),
        (
            '[switch]\nload_balancing = "wheighted"',
            's.toml:11: switch.load_balancing = "wheighted": must be "ecmp", "weighted", "spray", "flowlet",'
            ' "least-loaded" or "least-loaded-flow"; did you mean "weighted"?',
        ),
        (
            '[[workload]]\nkind = "flows"\nverb = "READ"\nflow = [{ src = "h0", dst = "h1", size = "1B" }]',
            's.toml:12: workload.1.verb = "READ": must be "write", "send" or "read"; did you mean "read"?',
        ),
        (
            '[nic.cc]\nkind = "hpcc"',
            's.toml:11: nic.cc.kind = "hpcc": not supported yet: HPCC (allowed: "none", "fixed" or "dcqcn")',
        ),
        (
            '[[workload]]\nkind = "all-reduce"',
            's.toml:11: workload.1.kind = "all-reduce": is a collective: write kind = "collective" and '
            'operation = "all-reduce"',
        ),
        # Types
        ('[nic]\nack_every = "2"', 's.toml:11: nic.ack_every = "2": must be a whole number, found a text: write 2'
         " without quotes"),
        ("[nic]\ntimeout = 1.5", "s.toml:11: nic.timeout = 1.5: must be a whole number, found a number with a"
         " fraction"),
        ("[frames]\nvlan = 1", "s.toml:11: frames.vlan = 1: must be true or false, found a whole number"),
        ("[nic]\ncc = 3", "s.toml:11: nic.cc = 3: must be a table ([nic.cc]), found a whole number"),
        (
            '[class]\nname = "x"',
            "s.toml:10: class: must be a list of tables: write [[class]] with two brackets",
        ),
        ("[trace]\ntables = 3", "s.toml:11: trace.tables = 3: must be a list, found a whole number"),
        (
            '[trace]\ntables = ["flow"]',
            's.toml:11: trace.tables.0 = "flow": must be "flows", "ports", "pauses", "drops", "events", '
            '"collectives", "jobs", "steps" or "packets"; did you mean "flows"?',
        ),
        # Ranges
        ("[nic]\ntimeout = 32", "s.toml:11: nic.timeout = 32: must be at most 31"),
        ("[switch.pfc]\nquanta = 0", "s.toml:11: switch.pfc.quanta = 0: must be at least 1"),
        ("[switch.pfc]\nquanta = 65536", "s.toml:11: switch.pfc.quanta = 65536: must be at most 65535"),
        (
            '[switch.pfc]\nreserved = "4GiB"',
            's.toml:11: switch.pfc.reserved = "4GiB": must be at most 4294967295B',
        ),
        (
            '[switch.pfc]\nxon_offset = "5GiB"',
            's.toml:11: switch.pfc.xon_offset = "5GiB": must be at most 4294967295B',
        ),
        (
            '[switch.lossy]\nreserved = "4GiB"',
            's.toml:11: switch.lossy.reserved = "4GiB": must be at most 4294967295B',
        ),
        ('[trace]\ninterval = "99ns"', 's.toml:11: trace.interval = "99ns": must be at least 100ns'),
        ('[nic.cc]\nrate_min = "999bps"', 's.toml:11: nic.cc.rate_min = "999bps": must be at least 1kbps'),
        (
            '[[nic.override]]\nname = "h0"\ncc.rate_min = "1bps"',
            's.toml:12: nic.override.0.cc.rate_min = "1bps": must be at least 1kbps',
        ),
        ("[switch.ecn]\npmax = 1.5", "s.toml:11: switch.ecn.pmax = 1.5: must be at most 1"),
        ("[switch.ecn]\npmax = -0.5", "s.toml:11: switch.ecn.pmax = -0.5: a ratio cannot be negative, found -0.5:"
         ' write a number such as 0.5, or "1/8", or "2:1"'),
        ("[switch.pfc]\nalpha = 0", "s.toml:11: switch.pfc.alpha = 0: must be above 0"),
        ("[switch]\necmp_seed = -1", "s.toml:11: switch.ecmp_seed = -1: must be at least 0"),
        # Between keys
        (
            '[switch.ecn]\nkmin = "2MB"\nkmax = "1MB"',
            's.toml:11: switch.ecn.kmin = "2MB": kmin 2MB is above kmax 1MB',
        ),
        ('[switch.ecn]\nkmax = "2GiB"', 's.toml:11: switch.ecn.kmax = "2GiB": must be below 2GiB'),
        (
            '[switch.ecn]\nby_rate = [{ rate = "1Gbps", kmin = "2KB", kmax = "1KB" }]',
            's.toml:11: switch.ecn.by_rate.0.kmin = "2KB": kmin 2KB is above kmax 1KB',
        ),
        (
            '[link]\ndelay = "1us"\nlength = "3m"',
            's.toml:12: link.length = "3m": delay and length are both given: give one of them',
        ),
        (
            '[link.tier.host]\ndelay = "1us"\nlength = "3m"',
            's.toml:12: link.tier.host.length = "3m": delay and length are both given: give one of them',
        ),
        (
            "[nic]\nmtu = 1500",
            "s.toml:11: nic.mtu = 1500: must be 256, 512, 1024, 2048 or 4096 (InfiniBand path MTU);"
            " any_mtu = true allows others",
        ),
        (
            '[nic.cc]\nkind = "fixed"',
            's.toml:10: nic.cc.rate: kind = "fixed" needs the rate: write for example rate = "100Gbps"',
        ),
        # Frame sizes
        (
            "[nic]\nmtu = 65500\nany_mtu = true\n[frames]\nvxlan = true",
            "s.toml:11: nic.mtu = 65500: the largest data frame is 65,628 B (nic.mtu 65,500 + frames.header 62 +"
            " frames.reth 16 + frames.vxlan 50); it must be at most 65,535 B",
        ),
        (
            "[nic]\nmtu = 65457\nany_mtu = true",
            "s.toml:11: nic.mtu = 65457: the largest data frame is 65,538 B (nic.mtu 65,457 padded to 65,460 +"
            " frames.header 62 + frames.reth 16); it must be at most 65,535 B",
        ),
        (
            '[frames]\nack = "64KiB"',
            's.toml:11: frames.ack = "64KiB": the largest ACK frame is 65,536 B (frames.ack 65,536);'
            " it must be at most 65,535 B",
        ),
        (
            '[frames]\npfc = "64KiB"',
            's.toml:11: frames.pfc = "64KiB": the largest PFC frame is 65,536 B (frames.pfc 65,536);'
            " it must be at most 65,535 B",
        ),
        (
            '[frames]\nminimum = "64KiB"',
            's.toml:11: frames.minimum = "64KiB": must be at most 65535B, the largest frame',
        ),
        (
            '[frames]\ncnp = "65530B"\nvlan = true\nvxlan = true',
            's.toml:11: frames.cnp = "65530B": the largest CNP frame is 65,584 B (frames.cnp 65,530 + frames.vlan 4 +'
            " frames.vxlan 50); it must be at most 65,535 B",
        ),
        (
            '[frames]\nheader = "0B"\nreth = "0B"\nminimum = "0B"\nwire_overhead = "0B"',
            's.toml:11: frames.header = "0B": the smallest data frame is 0 B on the wire (frames.header 0 +'
            " frames.reth 0 + frames.minimum 0 + frames.wire_overhead 0); it must be at least 1 B",
        ),
        (
            '[frames]\nack = "0B"\nminimum = "0B"\nwire_overhead = "0B"',
            's.toml:11: frames.ack = "0B": the smallest ACK frame is 0 B on the wire (frames.ack 0 +'
            " frames.minimum 0 + frames.wire_overhead 0); it must be at least 1 B",
        ),
        # Between a table and what it is laid over
        (
            '[switch.tier.leaf.ecn]\nkmin = "2MB"',
            's.toml:11: switch.tier.leaf.ecn.kmin = "2MB": kmin 2MB is above kmax 1600KB',
        ),
        (
            '[[switch.override]]\nname = "leaf0"\necn = { kmax = "1KB" }',
            "s.toml:12: switch.override.0.ecn.kmin: kmin 400KB is above kmax 1KB",
        ),
        (
            '[[nic.override]]\nname = "h0"\ncc.kind = "fixed"',
            's.toml:12: nic.override.0.cc.rate: kind = "fixed" needs the rate: write for example rate = "100Gbps"',
        ),
        (
            '[[nic.override]]\nname = "h0"\nmtu = 256',
            's.toml:12: nic.override.0.mtu = 256: unknown key; "mtu" belongs in [nic]',
        ),
        (
            "[link.tier.hots]\n",
            's.toml:10: link.tier.hots: a leaf-spine fabric has no link tier "hots"; did you mean "host"?',
        ),
        (
            "[switch.tier.tor]\n",
            's.toml:10: switch.tier.tor: a leaf-spine fabric has no switch tier "tor" (tiers: "leaf" or "spine")',
        ),
        (
            '[[link.override]]\nbetween = ["leaf0"]',
            's.toml:11: link.override.0.between = ["leaf0"]: must have two elements',
        ),
        # Classes
        (
            CNP + '[[class]]\nname = "cnp"\npriority = 5\n',
            's.toml:15: class.1.name = "cnp": two classes cannot have the same name',
        ),
        (
            CNP + '[[class]]\nname = "b"\npriority = 6\n',
            's.toml:16: class.1.priority = 6: two classes cannot have the same priority as "cnp"',
        ),
        (
            CNP + '[[class]]\nname = "b"\npriority = 1\ndscp = 48\n',
            's.toml:17: class.1.dscp = 48: two classes cannot have the same dscp as "cnp"',
        ),
        (
            CNP + '[[class]]\nname = "b"\npriority = 1\nack_class = "cpn"\n',
            's.toml:17: class.1.ack_class = "cpn": there is no class "cpn"; did you mean "cnp"?',
        ),
        (
            CNP + '[[class]]\nname = "b"\npriority = 1\ncnp = true\n',
            's.toml:17: class.1.cnp = true: exactly one class must have cnp = true; "cnp" has it already',
        ),
        (
            '[[class]]\nname = "b"\npriority = 1\n',
            "s.toml:10: class: exactly one class must have cnp = true, to carry the congestion notifications; none has",
        ),
        (CNP + '[[class]]\nname = "b"\npriority = 8\n', "s.toml:16: class.1.priority = 8: must be at most 7"),
        ('[[class]]\nname = "b"\n' + CNP, 's.toml:10: class.0: key "priority" is missing (strict priority, 7 is served'
         " first; also its PFC priority)"),
        # Workloads
        (
            '[[workload]]\nkind = "permutation"\nsize = "1MB"\nclass = "rmda"',
            's.toml:13: workload.1.class = "rmda": there is no class "rmda"; did you mean "rdma"?',
        ),
        (
            '[[workload]]\nkind = "permutation"\nsize = "1MB"\nclass = "gold"',
            's.toml:13: workload.1.class = "gold": there is no class "gold" (classes: "rdma", "cnp" or "best-effort")',
        ),
        (
            '[[workload]]\nkind = "permutation"\nsize = "1MB"\nstart = "2us"\nstop = "1us"',
            's.toml:14: workload.1.stop = "1us": must be after start = 2us',
        ),
        (
            '[[workload]]\nkind = "poisson"\nload = 1.2\nstop = "1ms"',
            "s.toml:12: workload.1.load = 1.2: must be at most 1",
        ),
        (
            '[[workload]]\nkind = "poisson"\nload = 0.2',
            's.toml:10: workload.1: key "stop" is missing: arrivals must end some time, at stop or at the run\'s until',
        ),
        (
            '[[workload]]\nkind = "flows"\nflow = []',
            "s.toml:12: workload.1.flow = []: there is no flow: add at least one [[workload.flow]]",
        ),
        (
            '[[workload]]\nkind = "flows"\n[[workload.flow]]\nsrc = "h1"\ndst = "h1"\nsize = "0B"',
            's.toml:14: workload.1.flow.0.dst = "h1": host "h1" sends to itself',
        ),
        (
            '[[workload]]\nkind = "flows"\n[[workload.flow]]\nsrc = "h1"\ndst = "h0"\nsize = "-1B"',
            's.toml:15: workload.1.flow.0.size = "-1B": a size cannot be negative: "-1B"',
        ),
        (
            '[[workload]]\nkind = "incast"\nsize = "1B"\nfan_in = 2',
            's.toml:10: workload.1: key "receiver" is missing: the receiving host, such as "h0"',
        ),
        (
            '[[workload]]\nkind = "incast"\nsize = "1B"\nreceiver = "h0"',
            's.toml:10: workload.1: give one of "fan_in" (how many senders) and "senders" (which)',
        ),
        (
            '[[workload]]\nkind = "incast"\nsize = "1B"\nreceiver = "h0"\nsenders = ["h0"]',
            's.toml:14: workload.1.senders = ["h0"]: host "h0" sends to itself',
        ),
        (
            '[[workload]]\nkind = "permutation"\nsize = "1B"\nhosts = []',
            "s.toml:13: workload.1.hosts = []: a list of host names cannot be empty",
        ),
        (
            '[[workload]]\nkind = "permutation"\nsize = "1B"\nhosts = ["h0", "h0"]',
            's.toml:13: workload.1.hosts = ["h0", "h0"]: host "h0" is listed twice',
        ),
    ],
)  # fmt: skip
def test_one_thing_wrong(text: str, message: str) -> None:
    assert extra(text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('measure = ["2us", "1us"]', "the measured time must end after it begins: measure = [from, to]"),
        ('measure = ["2us", "3us"]\nuntil = "1us"', "begins after the run's end, until = 1us"),
        ('until = "0us"', "must be above 0"),
        ("seed = -1", "must be at least 0"),
        ('compat = "ns4"', 'must be "none" or "ns3"; did you mean "ns3"?'),
        ('name = ""', "must not be empty"),
        ('measure = ["1us"]', 'measure = ["1us"]: must have two elements'),
        ('measure = ["1us", "2us", "3us"]', 'measure = ["1us", "2us", "3us"]: must have two elements'),
    ],
)
def test_top_level(text: str, message: str) -> None:
    assert only(f"{text}\n{FABRIC}{TRAFFIC}").endswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'kind = "leafspine"',
            's.toml:2: fabric.kind = "leafspine": must be "leaf-spine", "fat-tree", "rail", "rail-only", "torus",'
            ' "dragonfly", "chain", "dumbbell", "single-switch" or "graph"; did you mean "leaf-spine"?',
        ),
        ("leaves = 2", 's.toml:1: fabric: key "kind" is missing: it says which fabric this is'),
        (
            'kind = "hyperx"',
            's.toml:2: fabric.kind = "hyperx": not supported yet: HyperX fabrics (allowed: "leaf-spine", "fat-tree",'
            ' "rail", "rail-only", "torus", "dragonfly", "chain", "dumbbell", "single-switch" or "graph")',
        ),
        ('kind = "fat-tree"\nk = 3', "s.toml:3: fabric.k = 3: k must be even: 2 or 4"),
        (
            'kind = "fat-tree"\nk = 4\npods = 2',
            "s.toml:3: fabric.k = 4: give k or the explicit counts, not both (pods)",
        ),
        (
            'kind = "fat-tree"\npods = 2\ncores = 4',
            "s.toml:1: fabric: edges_per_pod, aggs_per_pod, hosts_per_edge missing: give k (even), or pods,"
            " edges_per_pod, aggs_per_pod, cores, hosts_per_edge",
        ),
        (
            'kind = "fat-tree"\npods = 2\nedges_per_pod = 2\naggs_per_pod = 2\ncores = 3\nhosts_per_edge = 1',
            "s.toml:6: fabric.cores = 3: must be a multiple of aggs_per_pod = 2",
        ),
        (
            'kind = "fat-tree"\nk = 4\noversubscription = "4:3"',
            's.toml:4: fabric.oversubscription = "4:3": gives 2 x 4/3 = 2.66667 hosts per edge switch,'
            " not a whole number",
        ),
        (
            'kind = "leaf-spine"\nleaves = 2\nhosts_per_leaf = 0\nspines = 1',
            "s.toml:4: fabric.hosts_per_leaf = 0: must be at least 1",
        ),
        (
            'kind = "leaf-spine"\nleaves = 9999\nhosts_per_leaf = 9999\nspines = 1',
            "s.toml:3: fabric.leaves = 9999: this fabric has 99,980,001 hosts; at most 1,000,000 are supported",
        ),
        (
            'kind = "graph"\nhosts = ["a", "b"]\nswitches = ["s"]\nlinks = [\n{ a = "a", b = "s" },\n'
            '{ a = "b", b = "s2" },\n]',
            's.toml:7: fabric.links.1.b = "s2": there is no device "s2" in hosts or switches; did you mean "s"?',
        ),
        (
            'kind = "graph"\nhosts = 2\nlinks = [{ a = "h1", b = "h1" }]',
            's.toml:4: fabric.links.0.b = "h1": the link joins "h1" to itself',
        ),
        (
            'kind = "graph"\nhosts = ["a", "a"]',
            's.toml:3: fabric.hosts = ["a", "a"]: device "a" is listed twice',
        ),
        (
            'kind = "graph"\nhosts = ["a"]\nswitches = ["a"]',
            's.toml:4: fabric.switches = ["a"]: "a" is a host and a switch',
        ),
        ('kind = "graph"\nhosts = 0', "s.toml:3: fabric.hosts = 0: a fabric needs at least one host"),
        (
            'kind = "graph"\nhosts = 1\nlinks_csv = "x"\nlinks = [{ a = "h0", b = "h1" }]',
            's.toml:4: fabric.links_csv = "x": links and links_csv are both given: give one of them',
        ),
    ],
)
def test_fabrics(text: str, message: str) -> None:
    found = problems(f"[fabric]\n{text}\n{TRAFFIC}")
    assert message in found


def test_missing_tables() -> None:
    assert problems('name = "x"') == [
        's.toml: the table [fabric] is missing: write [fabric] with kind = "leaf-spine", "fat-tree", "rail",'
        ' "rail-only", "torus", "dragonfly", "chain", "dumbbell", "single-switch" or "graph"',
        "s.toml: there is no traffic: add at least one [[workload]]",
    ]
    assert only(FABRIC) == "s.toml: there is no traffic: add at least one [[workload]]"
    assert only("workload = []\n" + FABRIC) == (
        "s.toml:1: workload = []: there is no traffic: add at least one [[workload]]"
    )


def test_nine_classes() -> None:
    classes = "".join(f'[[class]]\nname = "c{n}"\npriority = {n % 8}\ndscp = {n}\ncnp = {str(n == 0).lower()}\n'
                      for n in range(9))  # fmt: skip
    found = problems(FABRIC + TRAFFIC + classes)
    assert found[0] == "s.toml:50: class.8: at most 8 classes are supported, found 9"


def test_everything_wrong_is_told_at_once_in_file_order() -> None:
    text = (
        "sed = 3\n"
        + FABRIC.replace("spines = 2", "spines = 0")
        + '[link]\nrate = "400Gb"\ndelay = "1us"\nlength = "3m"\n'
        + '[link.tier.fabrik]\nrate = "5 apples"\n'
        + '[switch]\nbuffer = 64\n[switch.ecn]\nkmin = "2MB"\n'
        + "[nic]\nmtu = 1500\n"
        + '[[class]]\nname = "a"\npriority = 9\n'
        + '[[workload]]\nkind = "flows"\nclass = "c"\nflow = [{ src = "h0", dst = "h0", size = "-1B" }]\n'
        + '[[workload]]\nkind = "poisson"\nload = "x"\nstart = "2us"\nstop = "1us"\n'
    )
    found = problems(text)
    places = [line.split(": ")[:2] for line in found]
    assert [(place.removeprefix("s.toml:"), path.split(" = ")[0]) for place, path in places] == [
        ("1", "sed"),
        ("6", "fabric.spines"),
        ("8", "link.rate"),
        ("10", "link.length"),
        ("11", "link.tier.fabrik"),
        ("12", "link.tier.fabrik.rate"),
        ("14", "switch.buffer"),
        ("16", "switch.ecn.kmin"),
        ("18", "nic.mtu"),
        ("21", "class.0.priority"),
        ("25", "workload.0.flow.0.size"),
        ("28", "workload.1.load"),
    ]


def test_overrides_are_named_by_the_option() -> None:
    assert only(FABRIC + TRAFFIC, "link.rate=400Gb") == (
        '--set link.rate=400Gb: link.rate = "400Gb": a rate needs /s: write "400Gbps", not "400Gb"'
    )
    assert only(FABRIC + TRAFFIC, "switch.ecn.kmim=1KB").startswith(
        '--set switch.ecn.kmim=1KB: switch.ecn.kmim = "1KB": unknown key; did you mean "kmin"?'
    )
    assert only(FABRIC + TRAFFIC, "workload.0.load=2").startswith("--set workload.0.load=2: workload.0.load = 2:")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("link.rate", 'write key.path=value, such as "link.rate=200Gbps"'),
        ("=3", 'write key.path=value, such as "link.rate=200Gbps"'),
        ("link..rate=3", '"link..rate" is not a key path: write keys joined by dots, such as switch.ecn.kmin'),
        ("a b=3", '"a b" is not a key path: write keys joined by dots, such as switch.ecn.kmin'),
        ("x\n[y]\nz=3", '"x\n[y]\nz" is not a key path: write keys joined by dots, such as switch.ecn.kmin'),
        ("workload.3.load=3", 'workload is a list of 1 element, 0 to 0; "3" is not an index of it'),
        ("workload.first.load=3", 'workload is a list of 1 element, 0 to 0; "first" is not an index of it'),
        ("fabric.leaves.x=3", 'fabric.leaves is a value, not a table: it has no key "x"'),
    ],
)
def test_options_that_cannot_be_followed(option: str, message: str) -> None:
    assert only(FABRIC + TRAFFIC, option) == f"--set {option}: {message}".replace("\n", "\\n")


# Files


def refused(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert len(caught.value.problems) == 1
    return str(caught.value).replace(str(path), "FILE")


def test_not_found(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.toml") == "FILE: no such file"
    assert refused(tmp_path / "none.toml" / "deeper.toml").startswith("FILE: no such file")


def test_a_directory(tmp_path: Path) -> None:
    assert refused(tmp_path) == "FILE: is a directory; give the scenario file in it"


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    assert refused(path) == "FILE: is a FIFO (named pipe), not a regular file"


def test_a_device_and_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(Path("/dev/null")) == "FILE: is a device, not a regular file"
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket-here")
        assert refused(Path("socket-here")) == "FILE: is a socket, not a regular file"


def test_names_that_no_file_has(tmp_path: Path) -> None:
    assert refused(tmp_path / ("x" * 5_000)) == "FILE: no such file: the name is too long"
    assert refused(tmp_path / "a\0b").endswith("a\\u0000b: cannot be read: embedded null byte")


def test_invalid_utf8(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(b"seed = 1\nname = '\xff'\n")
    assert refused(path) == "FILE:2: not valid UTF-8: byte 0xff at offset 17; save the file as UTF-8"


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    for text in ("", "\n# nothing\n"):
        path.write_text(text)
        assert refused(path) == (
            "FILE: the file is empty: a scenario needs [fabric] and at least one [[workload]]"
        )  # fmt: skip


def test_a_byte_order_mark_and_crlf_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(b"\xef\xbb\xbf" + (FABRIC + TRAFFIC).replace("\n", "\r\n").encode())
    assert load_scenario(path).name == "s"


def test_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("seed = 1\n[fabric\nkind = 2\n")
    assert refused(path).startswith("FILE:2:8: not valid TOML: ")
    path.write_text("seed = 1\nname = [1,\n")
    assert refused(path).startswith("FILE:3:1: not valid TOML: ")
    path.write_text("seed = 1\nseed = 2\n")
    assert refused(path).startswith("FILE:2:9: not valid TOML: ")
    path.write_text('{"fabric": {}}')
    assert refused(path).startswith("FILE:1:1: not valid TOML: ")


def test_absurd_toml(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("seed = " + "[" * 100_000)
    assert "TOML" in refused(path) or "nested too deeply" in refused(path)
    path.write_text("seed = " + "9" * 10_000)
    assert refused(path).startswith("FILE: not valid TOML: ") or "must be at most" in refused(path)
    path.write_text("seed = 1979-05-27\n" + FABRIC + TRAFFIC)
    assert refused(path) == "FILE:1: seed = 1979-05-27: must be a whole number, found a date"


def test_errors_of_dicts_have_the_path_only() -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_from_dict({"fabric": {"kind": "single-switch", "hosts": 0}, "workload": []})
    assert [str(problem) for problem in caught.value.problems] == [
        "<dict>: fabric.hosts = 0: must be at least 1",
        "<dict>: workload = []: there is no traffic: add at least one [[workload]]",
    ]


def test_problems_carry_their_parts() -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_from_toml(FABRIC + TRAFFIC + "[nic]\ntimeout = 99\n", "s.toml")
    assert caught.value.problems == (Problem("s.toml:11", "nic.timeout", "must be at most 31", "99", 11),)
    assert isinstance(caught.value, FabemuError)
    assert isinstance(caught.value, ValueError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.problems == caught.value.problems


def test_a_plain_message_is_one_problem() -> None:
    assert str(ScenarioError("flows need hosts")) == "flows need hosts"


# Whatever is wrong, it is told in order: no other exception

EVERYTHING = tomllib.loads(
    FABRIC
    + CNP
    + """
[[class]]
name = "rdma"
priority = 3
lossless = true
[frames]
vlan = true
[link]
rate = "100Gbps"
tier.host = { delay = "1us" }
override = [{ between = ["h0", "leaf0"], rate = "1Gbps" }]
[switch]
pfc = { alpha = "1/4" }
ecn = { by_rate = [{ rate = "1Gbps", kmin = "1KB", kmax = "2KB" }] }
tier.leaf = { ecn = { kmin = "1KB" } }
override = [{ name = "leaf0", lossy = { alpha = 2 } }]
[nic]
cc = { kind = "fixed", rate = "1Gbps" }
override = [{ name = "h0", timeout = 3 }]
[[workload]]
kind = "flows"
flow = [{ src = "h0", dst = "h1", size = "1B" }]
[[workload]]
kind = "incast"
receiver = "h0"
fan_in = 2
size = "1B"
[[workload]]
kind = "poisson"
load = 0.5
stop = "1us"
hosts = ["h0", "h1"]
[trace]
interval = "1us"
"""
)


def paths_of(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths_of(item, (*path, key))


PATHS = sorted(paths_of(EVERYTHING), key=str)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.dates()
    | st.sampled_from(["1us", "1Gbps", "1KB", "auto", "none", "h0", "fat-tree", "graph", "incast", "ns3", "1/8"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "name", "rate", "x", "kmin", "class", "flow"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), anything, st.booleans()), min_size=1, max_size=3))
def test_any_damage_is_a_scenario_error_or_none(damage) -> None:
    data = pickle.loads(pickle.dumps(EVERYTHING))
    for path, value, remove in damage:
        place = data
        try:
            for part in path[:-1]:
                place = place[part]
            if remove and isinstance(place, dict):
                place.pop(path[-1], None)
            else:
                place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier damage took the place away
    try:
        scenario_from_dict(data)
    except ScenarioError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.message
            assert "pydantic" not in str(problem)


@pytest.mark.parametrize("path", [path for path in PATHS if isinstance(path[-1], str)], ids=str)
def test_every_key_may_be_misspelt(path) -> None:
    data = pickle.loads(pickle.dumps(EVERYTHING))
    place = data
    for part in path[:-1]:
        place = place[part]
    wrong = f"{path[-1]}s_"
    place[wrong] = place.pop(path[-1])
    if len(path) > 1 and path[-2] == "tier":
        return  # names of tiers are the user's, and checked elsewhere
    with pytest.raises(ScenarioError) as caught:
        scenario_from_dict(data)
    named = [problem for problem in caught.value.problems if problem.path.endswith(wrong)]
    assert len(named) == 1
    assert named[0].message.startswith("unknown key; did you mean")
