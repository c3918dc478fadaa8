"""Captures: bytes decoded by the standards and held against the trace, by a decoder of its own and by tshark."""

import json
import shutil
import struct
import subprocess
import zlib
from collections import Counter

import numpy as np
import pytest

import fabemu
from fabemu.compile.traffic import ROCE_PORT, UDP, source_ports
from fabemu.errors import InputError, OutputError
from fabemu.export import export_pcapng
from fabemu.export.hops import Hops
from fabemu.export.icrc import icrc
from fabemu.hashing import hash64, low32
from fabemu.recorded.source import Source
from fabemu.recorded.transport import Messages, PacketNumbers

TSHARK = shutil.which("tshark")
needs_tshark = pytest.mark.skipif(TSHARK is None, reason="tshark is not installed (Debian package tshark)")

# PFC, marks and CNPs; two tiers; a small class of its own for the CNPs.
CONGESTED = {
    "fabric": {"kind": "dumbbell", "left": 5, "right": 2},
    "link": {"rate": "100Gbps", "tier": {"trunk": {"rate": "400Gbps"}}},
    "switch": {"buffer": "1MiB", "ecn": {"kmin": "40KB", "kmax": "60KB"}, "pfc": {"quanta": 1000}},
    "workload": [
        {"kind": "incast", "receiver": "h5", "senders": "h0:h3", "size": "150KB"},
        {"kind": "flows", "flow": [{"src": "h4", "dst": "h6", "size": "50001B", "sport": 777}]},
    ],
}
# Losses, so that there are NAKs; WRITEs, SENDs and READs, several messages to a queue pair, sizes of all remainders.
LOSSY = {
    "fabric": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2},
    "nic": {"mtu": 1024, "timeout": 4, "first_psn": 2**24 - 10},
    "fault": [
        {"kind": "loss", "link": ["spine0", "leaf1"], "rate": 0.05},
        {"kind": "loss", "link": ["spine1", "leaf1"], "rate": 0.05},
    ],
    "workload": [
        {
            "kind": "flows",
            "verb": verb,
            "flow": [{"src": "h0", "dst": "h2", "size": f"{20_000 + size}B", "start": f"{size}us"}],
        }
        for size, verb in enumerate(("write", "send", "read", "send", "write", "read"))
    ]
    + [{"kind": "flows", "verb": "send", "flow": [{"src": "h1", "dst": "h3", "size": "0B"}]}],
}


def run(scenario, folder, **changes):
    return fabemu.run(scenario | changes, folder, trace="packets")


@pytest.fixture(scope="module")
def congested(tmp_path_factory):
    return run(CONGESTED, tmp_path_factory.mktemp("congested") / "run")


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    return run(LOSSY, tmp_path_factory.mktemp("lossy") / "run")


def export(result, tmp_path, **options):
    path = tmp_path / "capture.pcapng"
    capture = export_pcapng(result.directory, path, force=True, **options)
    return path, capture


# A reader of captures, from the standards alone.


def blocks(data):
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        assert length % 4 == 0
        assert struct.unpack_from("<I", data, at + length - 4)[0] == length
        yield kind, data[at + 8 : at + length - 4]
        at += length
    assert at == len(data)


def options(body):
    found, at = [], 0
    while True:
        code, length = struct.unpack_from("<HH", body, at)
        if code == 0:
            return found
        found.append((code, body[at + 4 : at + 4 + length]))
        at += 4 + (length + 3) // 4 * 4


def read_capture(path):
    """Comments, interfaces (name, speed, resolution) and frames (interface, stamp, whole length, bytes)."""
    comments, interfaces, frames = [], [], []
    for kind, body in blocks(path.read_bytes()):
        if kind == 0x0A0D0D0A:
            assert struct.unpack_from("<IHH", body) == (0x1A2B3C4D, 1, 0)
            comments += [value.decode() for code, value in options(body[16:]) if code == 1]
        elif kind == 1:
            assert struct.unpack_from("<H", body)[0] == 1
            known = dict(options(body[8:]))
            interfaces.append((known[2].decode(), struct.unpack("<Q", known[8])[0], known[9][0]))
            assert known[13] == b"\0"
        else:
            assert kind == 6
            interface, high, low, kept, whole = struct.unpack_from("<IIIII", body)
            assert len(body) == 20 + (kept + 3) // 4 * 4
            assert not any(body[20 + kept :])
            frames.append((interface, high << 32 | low, whole, body[20 : 20 + kept]))
    return comments, interfaces, frames


def ones_complement(octets):
    total = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


EXTENDED = {0x06: "reth", 0x0A: "reth", 0x0C: "reth", 0x0D: "aeth", 0x0F: "aeth", 0x10: "aeth", 0x11: "aeth"}


def decode(frame):
    """Fields of one frame, with every length and sum checked."""
    fields = {"dmac": frame[:6].hex(), "smac": frame[6:12].hex()}
    kind, at = struct.unpack_from(">H", frame, 12)[0], 14
    if kind == 0x8808:
        opcode, enabled = struct.unpack_from(">HH", frame, 14)
        return fields | {
            "pfc": opcode,
            "enabled": enabled,
            "quanta": struct.unpack_from(">8H", frame, 18),
            "rest": frame[34:],
        }
    if kind == 0x8100:
        fields["tag"], kind = struct.unpack_from(">HH", frame, 14)
        at = 18
    assert kind == 0x0800
    head, tos, length, identification, flags, ttl, protocol, _, source, destination = struct.unpack_from(
        ">BBHHHBBHII", frame, at
    )
    assert (head, flags, protocol) == (0x45, 0x4000, 17)
    assert ones_complement(frame[at : at + 20]) == 0xFFFF
    packet, trailer = frame[at : at + length], frame[at + length :]
    assert len(packet) == length
    assert not any(trailer)
    sport, dport, udp_length, checksum = struct.unpack_from(">HHHH", packet, 20)
    assert (udp_length, checksum) == (length - 20, 0)
    fields |= {"dscp": tos >> 2, "ecn": tos & 3, "id": identification, "ttl": ttl, "source": source}
    fields |= {"destination": destination, "sport": sport, "trailer": len(trailer)}
    if dport == 4789:
        assert packet[28:36] == bytes([8, 0, 0, 0, 0, 0, 1, 0])
        return fields | {"inner": decode(packet[36:])}
    assert dport == 4791
    masked = bytearray(packet[:-4])
    for byte in (1, 8, 10, 11, 26, 27, 32):
        masked[byte] = 0xFF
    fields["icrc"] = int.from_bytes(packet[-4:], "big")
    fields["icrc_good"] = packet[-4:] == zlib.crc32(b"\xff" * 8 + masked).to_bytes(4, "little")
    bits, fecn = packet[29], packet[32]
    fields |= {"opcode": packet[28], "se": bits >> 7, "m": bits >> 6 & 1, "pad": bits >> 4 & 3, "version": bits & 15}
    fields |= {"pkey": struct.unpack_from(">H", packet, 30)[0], "fecn": fecn >> 7, "becn": fecn >> 6 & 1}
    fields |= {"qp": int.from_bytes(packet[33:36], "big"), "a": packet[36] >> 7}
    fields["psn"] = int.from_bytes(packet[37:40], "big")
    at = 40
    extension = EXTENDED.get(packet[28])
    if extension == "reth":
        fields |= dict(zip(("va", "key", "length"), struct.unpack_from(">QII", packet, at), strict=True))
        at += 16
    elif extension == "aeth":
        fields |= {"syndrome": packet[at], "msn": int.from_bytes(packet[at + 1 : at + 4], "big")}
        at += 4
    fields["payload"] = len(packet) - 4 - at - fields["pad"]
    assert not any(packet[at:-4])
    return fields


def test_the_icrc_is_that_of_an_adapter():
    # A CNP of a ConnectX-4 Lx, published with the test of scapy's RoCE layer (test/contrib/roce.uts).
    frame = bytes.fromhex(
        "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b700280000"
        "8100ffff4000011800000000" + "00" * 16 + "82fd002a"
    )
    assert len(frame) == 74
    headers = np.frombuffer(frame[14:-4], np.uint8)[None]
    assert int(icrc(headers, np.array([0]))[0]).to_bytes(4, "little") == frame[-4:]
    assert int(icrc(headers[:, :40], np.array([16]))[0]).to_bytes(4, "little") == frame[-4:]


def test_the_icrc_of_any_number_of_zeros_is_that_of_zlib():
    lengths = np.array([0, 1, 3, 4, 255, 256, 4096, 9001, 65_535, 100_003])
    headers = np.random.default_rng(1).integers(0, 256, (len(lengths), 44), np.uint8)
    for row, length, found in zip(headers, lengths.tolist(), icrc(headers, lengths).tolist(), strict=True):
        masked = bytearray(row.tobytes())
        for byte in (1, 8, 10, 11, 26, 27, 32):
            masked[byte] = 0xFF
        assert found == zlib.crc32(b"\xff" * 8 + masked + bytes(length))


# Every frame against its row.


def rows_of(result):
    return [row for row in result.packets.to_pylist() if row["kind"] != "credit"]


def opcode_of(row, verb):
    place = (row["first"], row["last"])
    if row["kind"] != "data":
        return {"ack": 0x11, "nak": 0x11, "cnp": 0x81, "read": 0x0C}[row["kind"]]
    return {
        "send": {(True, False): 0, (False, False): 1, (False, True): 2, (True, True): 4},
        "write": {(True, False): 6, (False, False): 7, (False, True): 8, (True, True): 10},
        "read": {(True, False): 13, (False, False): 14, (False, True): 15, (True, True): 16},
    }[verb][place]


def check_frames(result, path):
    """Everything that a frame says is what the tables and the plan say; returns the decoded frames."""
    source = Source.open(result.directory)
    plan, scenario = source.compiled.plan, source.scenario
    classes = {item.name: item for item in scenario.classes}
    hosts = {name: index for index, name in enumerate(source.compiled.node_names)}
    _, interfaces, frames = read_capture(path)
    rows = rows_of(result)
    flows = {flow["qp"]: flow for flow in result.flows.to_pylist()}
    assert len(frames) == len(rows)
    decoded = []
    for row, (interface, stamp, whole, octets) in zip(rows, frames, strict=True):
        name, speed, resolution = interfaces[interface]
        assert name == row["port"]
        assert speed == plan.port_rate_bps[source.compiled.port_names.index(name)]
        assert (stamp, resolution) == (row["time_ps"] // 1000, 9)
        assert whole == len(octets) == row["frame_bytes"] - 4
        fields = decode(octets)
        decoded.append(fields)
        if row["kind"] == "pfc":
            assert fields["dmac"] == "0180c2000001"
            assert fields["pfc"] == 0x0101
            assert not any(fields["rest"])
            lossless = [index for index, item in enumerate(scenario.classes_by_priority) if item.lossless]
            expected = [0] * 8
            for index in lossless:
                priority = scenario.classes_by_priority[index].priority
                assert fields["enabled"] >> priority & 1
                expected[priority] = scenario.switch.pfc.quanta * (row["xoff_mask"] >> index & 1)
            assert fields["quanta"] == tuple(expected)
            assert fields["enabled"].bit_count() == len(lossless)
            continue
        flow = flows[row["qp"]]
        is_data = row["kind"] == "data"
        assert fields["icrc_good"]
        assert fields["dscp"] == classes[row["class"]].dscp
        capable = is_data and classes[row["class"]].ecn
        assert fields["ecn"] == (3 if row["marked"] else 2 if capable else 0)
        assert fields["qp"] == row["qp"] + 256
        assert fields["opcode"] == opcode_of(row, flow["verb"])
        if row["kind"] == "ack":
            assert fields["psn"] == (row["psn"] - 1) % 2**24
            assert fields["syndrome"] == 0x1F
        else:
            assert fields["psn"] == row["psn"]
        if row["kind"] == "nak":
            assert fields["syndrome"] == 0x60
        forward = is_data != (flow["verb"] == "read")
        ends = (flow["src"], flow["dst"]) if forward else (flow["dst"], flow["src"])
        assert (fields["source"], fields["destination"]) == tuple(0x0A000001 + hosts[end] for end in ends)
        assert (fields["se"], fields["version"], fields["pkey"], fields["fecn"]) == (0, 0, 0xFFFF, 0)
        assert fields["becn"] == (row["kind"] == "cnp" or row["echo"])
        assert fields["m"] == (row["kind"] != "cnp")
        assert fields["a"] == (is_data and row["last"] and flow["verb"] != "read")
        if is_data:
            assert (fields["payload"] + fields["pad"]) % 4 == 0
        else:
            assert fields["payload"] == (16 if row["kind"] == "cnp" else 0)
    return decoded


def test_every_frame_of_a_congested_run_says_what_its_row_says(congested, tmp_path):
    path, capture = export(congested, tmp_path)
    decoded = check_frames(congested, path)
    counts = Counter(row["kind"] for row in rows_of(congested))
    assert {kind: count for kind, count in capture.frames.items() if count} == counts
    assert set(counts) == {"data", "ack", "cnp", "pfc"}
    assert any(fields.get("ecn") == 3 for fields in decoded)
    assert {fields["quanta"][3] for fields in decoded if "pfc" in fields} == {0, 1000}
    assert capture.notes == []
    assert {
        fields["sport"] for fields in decoded if fields.get("source") == 0x0A000005 and fields["opcode"] < 0x11
    } == {777}


def test_messages_are_whole_and_of_their_size(lossy, tmp_path):
    path, _ = export(lossy, tmp_path)
    decoded = check_frames(lossy, path)
    rows = rows_of(lossy)
    kinds = Counter(row["kind"] for row in rows)
    assert {"data", "ack", "nak", "read"} <= set(kinds)
    assert sum(row["psn"] is not None and row["psn"] < 2**20 for row in rows) > 50, "packet numbers have gone round"
    for flow in lossy.flows.to_pylist():
        # What the last hop carried of each packet number, counted once, is the message.
        sender = flow["dst"] if flow["verb"] == "read" else flow["src"]
        payload = {
            row["psn"]: fields["payload"]
            for row, fields in zip(rows, decoded, strict=True)
            if row["qp"] == flow["qp"] and row["kind"] == "data" and row["node"] == sender
        }
        assert sum(payload.values()) == flow["bytes"]
        lengths = {
            fields["length"]
            for row, fields in zip(rows, decoded, strict=True)
            if row["qp"] == flow["qp"] and "length" in fields
        }
        if flow["verb"] == "read":
            assert max(lengths) == flow["bytes"]
        else:
            assert lengths == ({flow["bytes"]} if flow["verb"] == "write" else set())
        numbers = {
            fields["msn"]
            for row, fields in zip(rows, decoded, strict=True)
            if row["qp"] == flow["qp"] and row["kind"] == "ack"
        }
        assert numbers <= {0, 1}
        assert flow["verb"] == "read" or 1 in numbers


def test_the_time_to_live_falls_by_one_at_every_switch(lossy, tmp_path):
    path, _ = export(lossy, tmp_path)
    rows, (_, _, frames) = rows_of(lossy), read_capture(path)
    crossing = [
        (row["node"], decode(octets))
        for row, (_, _, _, octets) in zip(rows, frames, strict=True)
        if row["qp"] == 0 and row["kind"] == "data"
    ]
    by_node = {node.rstrip("0123456789"): set() for node, _ in crossing}
    for node, fields in crossing:
        by_node[node.rstrip("0123456789")].add((node, fields["ttl"]))
    assert by_node["h"] == {("h0", 64)}
    assert {ttl for _, ttl in by_node["spine"]} == {62}
    assert by_node["leaf"] == {("leaf0", 63), ("leaf1", 61)}
    assert {fields["id"] for _, fields in crossing} >= {(2**24 - 10) & 0xFFFF, 0}
    # Routed: the MAC addresses are those of the link, the others those of the ends.
    assert {fields["smac"] for node, fields in crossing if node == "h0"} == {"020000000000"}
    assert {fields["smac"] for node, fields in crossing if node == "leaf0"} == {"020001000000"}


def test_source_ports_are_those_that_the_hashes_are_of(congested):
    compiled = Source.open(congested.directory).compiled
    plan = compiled.plan
    data, answers = source_ports(plan.seed, compiled.flows.sport[plan.qp_op[plan.qp_op_start[:-1]]].astype(np.int64))
    assert 777 in data
    assert (low32(hash64(plan.qp_src, plan.qp_dst, UDP, data, ROCE_PORT)) == plan.qp_hash).all()
    assert (low32(hash64(plan.qp_dst, plan.qp_src, UDP, answers, ROCE_PORT)) == plan.qp_ack_hash).all()


def test_echoes_ride_on_acks_with_the_backward_bit(tmp_path):
    scenario = CONGESTED | {"nic": {"cc": {"kind": "dcqcn", "preset": "ns3"}}}
    result = run(scenario, tmp_path / "run")
    path, _ = export(result, tmp_path)
    decoded = check_frames(result, path)
    assert any(row["echo"] for row in rows_of(result))
    assert any(fields.get("becn") and fields["opcode"] == 0x11 for fields in decoded)


# Several messages to a queue pair, and long ones.


class SmallPlan:
    """As much of a plan as messages need: two queue pairs."""

    mtu_bytes = 100
    psn_start = 5
    qp_op = np.array([2, 0, 1])
    qp_op_start = np.array([0, 2, 3])
    op_bytes = np.array([0, 1000, 250])  # queue pair 0 sends 250 B, then nothing; 1 sends 1000 B


def test_messages_follow_each_other_in_a_queue_pair():
    messages = Messages(SmallPlan)
    assert messages.packets.tolist() == [4, 10]
    place = messages.place(np.array([0, 0, 0, 0, 1, 1]), np.array([0, 1, 2, 3, 0, 9]))
    assert place.first.tolist() == [True, False, False, True, True, False]
    assert place.last.tolist() == [False, False, True, True, False, True]
    assert place.payload_bytes.tolist() == [100, 100, 50, 0, 100, 100]
    assert place.message.tolist() == [0, 0, 0, 1, 0, 0]
    assert place.offset_bytes.tolist() == [0, 100, 200, 250, 0, 900]
    assert place.rest_bytes.tolist() == [250, 150, 50, 0, 1000, 100]
    done = messages.completed(np.array([0, 0, 0, 0, 1, 1]), np.array([0, 2, 3, 4, 9, 10]))
    assert done.tolist() == [0, 0, 1, 2, 0, 1]


def test_numbers_beyond_24_bits_are_told_apart_by_what_came_before():
    numbers = PacketNumbers(SmallPlan, np.array([40_000_000, 10]))
    true = np.concatenate([np.arange(0, 40_000_000, 1_000_003), [39_000_000, 39_999_000]])
    wire = (true + SmallPlan.psn_start) & 0xFFFFFF
    qp = np.zeros(len(true), np.int64)
    half = len(true) // 2
    found = [numbers.unwrap(qp[part], wire[part]) for part in (slice(0, half), slice(half, None))]
    assert np.concatenate(found).tolist() == true.tolist()
    assert numbers.unwrap(np.array([1, 0]), np.array([7, 5])).tolist() == [2, 33_554_432]


def test_hops_are_cables_between_devices(lossy):
    compiled = Source.open(lossy.directory).compiled
    names = list(compiled.node_names)
    hops = Hops(compiled.plan)
    pairs = {("h0", "h0"): 0, ("h0", "leaf0"): 1, ("h1", "spine1"): 2, ("h0", "leaf1"): 3, ("h3", "leaf1"): 1}
    hosts, nodes = (np.array([names.index(pair[end]) for pair in pairs]) for end in (0, 1))
    assert hops.between(hosts, nodes).tolist() == list(pairs.values())


# Encapsulations, other sizes, and what is left out.


def test_tags_and_tunnels_are_there_if_the_scenario_has_them(tmp_path):
    result = run(CONGESTED, tmp_path / "run", frames={"vlan": True, "vxlan": True})
    path, capture = export(result, tmp_path)
    _, _, frames = read_capture(path)
    assert capture.longer == 0
    seen = Counter()
    for row, (_, _, whole, octets) in zip(rows_of(result), frames, strict=True):
        assert whole == row["frame_bytes"] - 4
        fields = decode(octets)
        if "pfc" in fields:
            continue
        inner = fields["inner"]
        assert inner["icrc_good"]
        priority = {"rdma": 3, "cnp": 6}[row["class"]]
        assert fields["tag"] == priority << 13 | 1
        assert fields["ecn"] == (3 if row["marked"] else 2 if row["kind"] == "data" else 0)
        assert inner["ecn"] == (2 if row["kind"] == "data" else 0)
        assert fields["source"] - 0xAC100001 == inner["source"] - 0x0A000001 == int(inner["smac"][6:], 16)
        assert (fields["dscp"], fields["sport"], inner["ttl"]) == (inner["dscp"], inner["sport"], 64)
        seen[row["kind"], row["marked"]] += 1
    assert seen["data", True] > 0


def test_frames_of_other_sizes_are_those_of_roce_and_it_is_said(tmp_path):
    result = run(CONGESTED, tmp_path / "run", frames={"header": "40B", "ack": "100B"})
    path, capture = export(result, tmp_path)
    _, _, frames = read_capture(path)
    rows = rows_of(result)
    data = [index for index, row in enumerate(rows) if row["kind"] == "data"]
    assert capture.longer == len(data)
    assert any("longer than in the simulation" in note for note in capture.notes)
    assert all(frames[index][2] == rows[index]["frame_bytes"] - 4 + 22 for index in data)
    acks = [decode(frames[index][3]) for index, row in enumerate(rows) if row["kind"] == "ack"]
    assert {fields["trailer"] for fields in acks} == {34}
    assert all(fields["icrc_good"] for fields in acks)


def test_credit_frames_are_left_out_and_counted(tmp_path):
    scenario = {
        "fabric": {"kind": "single-switch", "hosts": 2},
        "link": {"flow_control": "credit"},
        "workload": [{"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "100KB"}]}],
    }
    result = run(scenario, tmp_path / "run")
    credits = sum(row["kind"] == "credit" for row in result.packets.to_pylist())
    path, capture = export(result, tmp_path)
    assert capture.credits == credits > 0
    assert any("credit frames are left out" in note for note in capture.notes)
    check_frames(result, path)


# Filters.


def test_links_and_times_are_chosen(congested, tmp_path):
    rows = rows_of(congested)
    window = {"from_ps": 10_000_000, "to_ps": 30_000_000}
    path, capture = export(congested, tmp_path, ports=["sw0->sw1"], hosts=["h5"], **window)
    _, interfaces, frames = read_capture(path)
    assert [name for name, _, _ in interfaces] == ["h5->sw1", "sw0->sw1", "sw1->h5"]
    wanted = [
        (row["port"], row["time_ps"] // 1000)
        for row in rows
        if row["port"] in {"h5->sw1", "sw0->sw1", "sw1->h5"} and 10_000_000 <= row["time_ps"] < 30_000_000
    ]
    assert [(interfaces[interface][0], stamp) for interface, stamp, _, _ in frames] == wanted
    assert 0 < len(wanted) < len(rows)
    assert sum(capture.frames.values()) == len(wanted)


def test_globs_match_ports(congested, tmp_path):
    path, _ = export(congested, tmp_path, ports=["h?->sw0", "sw1->*"])
    _, interfaces, _ = read_capture(path)
    assert {name for name, _, _ in interfaces} == {
        *(f"h{host}->sw0" for host in range(5)),
        "sw1->sw0",
        "sw1->h5",
        "sw1->h6",
    }


@pytest.mark.parametrize("snap_bytes", [1, 20, 60, 70, 100, 4153])
def test_frames_are_cut_where_it_is_asked_for(congested, tmp_path, snap_bytes):
    whole_path, _ = export(congested, tmp_path)
    whole = read_capture(whole_path)[2]
    path, _ = export(congested, tmp_path, snap_bytes=snap_bytes)
    cut = read_capture(path)[2]
    assert [(*frame[:3], frame[3][:snap_bytes]) for frame in whole] == cut


def test_stamps_are_picoseconds_if_asked_for(congested, tmp_path):
    path, _ = export(congested, tmp_path, picoseconds=True)
    _, interfaces, frames = read_capture(path)
    assert {resolution for _, _, resolution in interfaces} == {12}
    assert [stamp for _, stamp, _, _ in frames] == [row["time_ps"] for row in rows_of(congested)]


# Wrong input.


def test_what_matches_nothing_is_refused(congested, tmp_path):
    for chosen, text in (
        ({"ports": ["sw0->h9"]}, r'--port "sw0->h9" matches none of the 16 ports; did you mean sw0->h'),
        ({"hosts": ["leaf*"]}, r'--host "leaf\*" matches none of the 9 hosts and switches; there are h0, h1'),
        ({"from_ps": 10**12}, r"no frame on the 16 chosen links in this time; the table has [\d,]+ transmissions"),
        ({"from_ps": 5000, "to_ps": 5000}, r"--from 5ns is not before --to 5ns"),
    ):
        with pytest.raises(InputError, match=text):
            export(congested, tmp_path, **chosen)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_packets_is_refused_with_the_way_out(tmp_path):
    result = fabemu.run(CONGESTED, tmp_path / "run")
    with pytest.raises(InputError, match=r"has no packets table \(it has flows, .*--trace packets -o DIR` gives it"):
        export(result, tmp_path)


def test_files_are_not_replaced_unasked(congested, tmp_path):
    path = tmp_path / "there"
    path.write_text("mine")
    with pytest.raises(OutputError, match="exists already; replace it with --force"):
        export_pcapng(congested.directory, path)
    assert path.read_text() == "mine"
    with pytest.raises(OutputError, match="is a file of the run itself"):
        export_pcapng(congested.directory, congested.directory / "packets.arrow", force=True)
    with pytest.raises(OutputError, match="is a directory"):
        export_pcapng(congested.directory, tmp_path, force=True)
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        export_pcapng(congested.directory, tmp_path / "no" / "where")


def changed_copy(result, tmp_path, change):
    copy = tmp_path / "copy"
    shutil.copytree(result.directory, copy)
    info = json.loads((copy / "run.json").read_text())
    change(info)
    (copy / "run.json").write_text(json.dumps(info))
    return copy


def test_a_scenario_that_is_not_that_of_the_run_is_refused(congested, tmp_path):
    copy = changed_copy(congested, tmp_path, lambda info: None)
    text = (copy / "scenario.toml").read_text()
    assert "seed = 1" in text
    (copy / "scenario.toml").write_text(text.replace("seed = 1", "seed = 2", 1))
    with pytest.raises(InputError, match=r"compiles to plan \w+, but the run was of plan"):
        export_pcapng(copy, tmp_path / "capture")
    (copy / "scenario.toml").unlink()
    with pytest.raises(InputError, match=r"scenario.toml: is missing"):
        export_pcapng(copy, tmp_path / "capture")


def test_tables_of_a_newer_schema_are_refused(congested, tmp_path):
    copy = changed_copy(congested, tmp_path, lambda info: info["trace"].update(schema_version=99))
    with pytest.raises(InputError, match=r"schema version 99, this fabemu reads up to 2"):
        export_pcapng(copy, tmp_path / "capture")


def test_interrupted_runs_are_marked_as_partial(congested, tmp_path):
    copy = changed_copy(congested, tmp_path, lambda info: info.update(status="interrupted"))
    path = tmp_path / "capture"
    capture = export_pcapng(copy, path)
    assert capture.notes == ["partial: the run is interrupted: what its tables hold up to then"]
    assert capture.notes[0] in read_capture(path)[0]


def test_a_table_that_was_cut_off_gives_what_is_whole(congested, tmp_path):
    copy = changed_copy(congested, tmp_path, lambda info: info.update(status="running"))
    table = copy / "packets.arrow"
    table.write_bytes(table.read_bytes()[:-40])
    path = tmp_path / "capture"
    capture = export_pcapng(copy, path)
    assert capture.notes[0].startswith("partial: the run is still going on, or was killed")
    assert sum(capture.frames.values()) == len(rows_of(congested))
    table.write_bytes(table.read_bytes()[:3000])
    with pytest.raises(InputError, match=r"cut off inside its header|packets table is empty"):
        export_pcapng(copy, path, force=True)


# tshark.


def tshark(path, *fields, display=None):
    # Wireshark guesses that SENDs carry NFS over RDMA, and calls one of no byte malformed.
    command = [TSHARK, "--disable-protocol", "rpcordma", "-r", str(path), "-o", "ip.check_checksum:TRUE"]
    command += ["-T", "fields", "-E", "occurrence=l"]
    for field in fields:
        command += ["-e", field]
    if display:
        command += ["-Y", display]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


FIELDS = (
    "frame.interface_name",
    "frame.time_epoch",
    "frame.len",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "infiniband.bth.destqp",
    "ip.dsfield.ecn",
    "ip.dsfield.dscp",
    "ip.checksum.status",
    "infiniband.aeth.msn",
    "infiniband.reth.dmalen",
    "udp.srcport",
    "ip.ttl",
    "macc.opcode",
    "macc.cbfc.enbv",
    "macc.cbfc.pause_time.c3",
    "infiniband.invariant.crc",
)


@needs_tshark
@pytest.mark.parametrize("which", ["congested", "lossy"])
def test_tshark_reads_what_was_written(which, tmp_path, request):
    result = request.getfixturevalue(which)
    path, _ = export(result, tmp_path)
    decoded = check_frames(result, path)
    rows = rows_of(result)
    found = tshark(path, *FIELDS)
    assert len(found) == len(rows)
    number = {name: index for index, name in enumerate(FIELDS)}
    opcodes = Counter()
    for row, fields, values in zip(rows, decoded, found, strict=True):

        def value(name, values=values):
            return int(values[number[name]], 0)

        assert values[0] == row["port"]
        assert values[1] == f"{row['time_ps'] // 10**12}.{row['time_ps'] // 1000 % 10**9:09d}"
        assert value("frame.len") == row["frame_bytes"] - 4
        if row["kind"] == "pfc":
            assert value("macc.opcode") == 0x0101
            assert value("macc.cbfc.enbv") == 1 << 3
            assert value("macc.cbfc.pause_time.c3") == (1000 if row["xoff_mask"] else 0)
            continue
        opcodes[value("infiniband.bth.opcode")] += 1
        assert value("infiniband.bth.opcode") == fields["opcode"]
        assert value("infiniband.bth.psn") == (row["psn"] - (row["kind"] == "ack")) % 2**24
        assert value("infiniband.bth.destqp") == row["qp"] + 256
        assert value("ip.dsfield.ecn") == fields["ecn"]
        assert value("ip.dsfield.dscp") == fields["dscp"]
        assert value("ip.checksum.status") == 1
        assert value("udp.srcport") == fields["sport"]
        assert value("ip.ttl") == fields["ttl"]
        crc = values[number["infiniband.invariant.crc"]]
        assert crc == ("" if row["kind"] == "cnp" else f"0x{fields['icrc']:08x}"), "tshark shows none of CNPs"
        for name, field in (("infiniband.aeth.msn", "msn"), ("infiniband.reth.dmalen", "length")):
            assert (values[number[name]] != "") == (field in fields)
            if field in fields:
                assert value(name) == fields[field]
    assert opcodes == Counter(fields["opcode"] for fields in decoded if "opcode" in fields)
    assert tshark(path, "frame.number", display="_ws.malformed || _ws.expert.severity >= 0x600000") == []


@needs_tshark
def test_tshark_reads_tunnels(tmp_path):
    result = run(CONGESTED, tmp_path / "run", frames={"vlan": True, "vxlan": True})
    path, _ = export(result, tmp_path)
    found = tshark(path, "vlan.priority", "vxlan.vni", "infiniband.bth.psn", display="infiniband")
    rows = [row for row in rows_of(result) if row["kind"] != "pfc"]
    assert [int(psn) for _, _, psn in found] == [(row["psn"] - (row["kind"] == "ack")) % 2**24 for row in rows]
    assert {(priority, vni) for priority, vni, _ in found} == {("3", "1"), ("6", "1")}
    assert tshark(path, "frame.number", display="_ws.malformed") == []
