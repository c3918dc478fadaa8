"""Verbs and loss recovery, scenario to result: exact times, outstanding READs, packet numbers, exhausted retries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fabemu._core.engine import Engine

import fabemu
from fabemu.compile import compile_plan
from fabemu.compile.compiled import Compiled
from fabemu.errors import ScenarioError
from fabemu.plan import EVENT_QP_ERROR, FOREVER_PS, SCHEDULER_CLASSIC, VERB_READ, VERB_SEND, VERB_WRITE, Plan
from fabemu.scenario import scenario_from_dict

US = 1_000_000
PS_PER_BYTE = 80  # 100 Gb/s
DELAY_PS = US
RTO_PS = 4_096_000
DONE, FAILED, NOT_RUN = 2, 3, 0


def compiled(workload: list[dict[str, Any]], hosts: int = 2, **tables: Any) -> Compiled:
    nic = {"mtu": 1024, "cc": {"kind": "none"}, "timeout": 5} | tables.pop("nic", {})
    return compile_plan(
        scenario_from_dict(
            {
                "fabric": {"kind": "single-switch", "hosts": hosts},
                "link": {"rate": "100Gbps", "delay": "1us"},
                "nic": nic,
                "workload": workload,
            }
            | tables
        )
    )


def flows(verb: str, *sizes: int, qp: str | None = "q", **more: Any) -> dict[str, Any]:
    named = {} if qp is None else {"qp": qp}
    flow = [{"src": "h0", "dst": "h1", "size": f"{size}B", **named} for size in sizes]
    return {"kind": "flows", "verb": verb, "flow": flow} | more


def finished(plan: Plan, **options: Any) -> Engine:
    engine = Engine(plan, **options)
    while engine.run(FOREVER_PS, 10**6) == 0:
        pass
    engine.finish()
    assert [verdict for verdict in engine.verify() if not verdict[1]] == []
    return engine


def wire_ps(frame_bytes: int) -> int:
    return (max(64, frame_bytes) + 20) * PS_PER_BYTE


def way_ps(*frames: int) -> int:
    """A message of these frames over host, switch, host: all but the largest hide behind one another."""
    return 2 * DELAY_PS + sum(wire_ps(frame) for frame in frames) + max(wire_ps(frame) for frame in frames)


@pytest.mark.parametrize(
    ("verb", "size", "frames"),
    [
        ("write", 1000, [1000 + 62 + 16]),
        ("send", 1000, [1000 + 62]),
        ("send", 0, [62]),
        ("send", 3000, [1024 + 62, 1024 + 62, 952 + 62]),
        ("read", 1000, [1000 + 62 + 4]),
        ("read", 0, [62 + 4]),
        ("read", 3000, [1024 + 62 + 4, 1024 + 62, 952 + 62 + 4]),
    ],
)
def test_one_message_takes_exactly_its_time(verb, size, frames):
    result = compiled([flows(verb, size)])
    request_ps = way_ps(78) if verb == "read" else 0
    expected_ps = request_ps + way_ps(*frames)
    ops = finished(result.plan).ops()
    assert result.ideal_ps.tolist() == ops["delivered_ps"].tolist() == [expected_ps]
    assert ops["first_sent_ps"].tolist() == [request_ps]
    # A READ is done when its last byte has come, the others when their ACK is back.
    assert ops["done_ps"].tolist() == [expected_ps if verb == "read" else expected_ps + way_ps(66)]
    assert ops["packets"].tolist() == [len(frames)]


@pytest.mark.parametrize("count", [1, 5, 16, 17, 60])
def test_sixteen_reads_are_outstanding(count):
    """The seventeenth request leaves when the answer to the first has come whole."""
    result = compiled([flows("read", *[1024] * count)])
    engine = finished(result.plan, packets=True)
    packets = engine.drain()["packets"]
    requests = packets[(packets["kind"] == 5) & (packets["port"] == 0)]
    assert len(requests) == count == engine.totals()["read_requests"]
    assert requests["psn"].tolist() == list(range(count))
    delivered_ps = engine.ops()["delivered_ps"]
    for number, row in enumerate(requests):
        if number < 16:
            assert row["time_ps"] == number * wire_ps(78)
        else:
            assert row["time_ps"] == delivered_ps[number - 16]


def test_reads_move_data_towards_the_reader():
    result = compiled([flows("read", 100_000)])
    ports = finished(result.plan).ports()
    assert ports["hops"].tolist() == [1, 98, 98, 1]
    write = compiled([flows("write", 100_000)])
    # The hash is that of the way of the data.
    assert result.plan.qp_hash.tolist() != write.plan.qp_hash.tolist()
    assert result.plan.op_host.tolist() == [0]


TIGHT = {"switch": {"buffer": "30KB", "pfc": {"headroom": "0B", "reserved": "0B"}, "ecn": {"enabled": False}}}


@pytest.mark.parametrize("verb", ["write", "send", "read"])
@pytest.mark.parametrize("retransmission", ["go-back-n", "selective"])
@pytest.mark.parametrize("first_psn", [0, 2**24 - 5])
def test_what_a_small_buffer_drops_comes_once_and_in_order(verb, retransmission, first_psn):
    """Three hosts at once towards one through a buffer of thirty frames, in a class without PFC."""
    names = ["h1", "h2", "h3"]
    ends = [("h0", name) if verb == "read" else (name, "h0") for name in names]
    flow = [{"src": a, "dst": b, "size": "90KB", "qp": "q"} for a, b in ends for _ in range(2)]
    result = compiled(
        [{"kind": "flows", "verb": verb, "class": "best-effort", "flow": flow}],
        hosts=4,
        nic={"retransmission": retransmission, "first_psn": first_psn, "retry_count": 1000},
        **TIGHT,
    )
    engine = finished(result.plan, packets=True)
    ops = engine.ops()
    assert set(ops["status"]) == {DONE}
    assert ops["retransmissions"].sum() > 0
    assert engine.totals()["drops_shared_full"] + engine.totals()["drops_egress_full"] > 0
    for qp in range(result.plan.qp_count):
        mine = result.plan.qp_op[result.plan.qp_op_start[qp] : result.plan.qp_op_start[qp + 1]]
        assert (np.diff(ops["delivered_ps"][mine]) > 0).all()
    packets = engine.drain()["packets"]
    sent = packets[(packets["kind"] == 0) & np.isin(packets["port"], [0, 1, 2, 3])]
    assert {int(number) for number in sent["psn"]} == {(first_psn + n) % 2**24 for n in range(176)}
    # Neither the scheduler, nor the shortcuts, nor the windows change anything.
    digests = {
        finished(result.plan, express=False).digest,
        finished(result.plan, window_divisor=7).digest,
        finished(replace(result.plan, scheduler=SCHEDULER_CLASSIC)).digest,
        engine.digest,
    }
    assert len(digests) == 1


def test_first_psn_changes_nothing_but_the_numbers():
    workload = [flows("write", 20_000, 5_000), flows("read", 20_000, qp="r")]
    plain, shifted = (compiled(workload, nic={"first_psn": first}) for first in (0, 2**24 - 7))
    a, b = finished(plain.plan, packets=True), finished(shifted.plan, packets=True)
    assert a.ops()["delivered_ps"].tolist() == b.ops()["delivered_ps"].tolist()
    rows, moved = a.drain()["packets"], b.drain()["packets"]
    assert ((rows["psn"] + 2**24 - 7) % 2**24).tolist() == moved["psn"].tolist()


def test_selective_repeat_sends_less_again():
    sent = {}
    for retransmission in ("go-back-n", "selective"):
        flow = [{"src": f"h{i}", "dst": "h0", "size": "200KB"} for i in (1, 2, 3)]
        result = compiled(
            [{"kind": "flows", "class": "best-effort", "flow": flow}],
            hosts=4,
            nic={"retransmission": retransmission, "retry_count": 1000},
            **TIGHT,
        )
        sent[retransmission] = int(finished(result.plan).ops()["retransmissions"].sum())
    assert 0 < sent["selective"] < sent["go-back-n"]


@pytest.mark.parametrize("window", [1, 7, 100])
def test_selective_window_limits_what_is_outstanding(window):
    result = compiled([flows("write", 300_000)], nic={"retransmission": "selective", "selective_window": window})
    engine = finished(result.plan)
    trip_ps = way_ps(1024 + 62) + way_ps(66)
    at_least_ps = (293 / window - 1) * trip_ps
    assert engine.ops()["delivered_ps"][0] >= at_least_ps


@pytest.mark.parametrize("verb", ["write", "send", "read"])
@pytest.mark.parametrize("retransmission", ["go-back-n", "selective"])
@pytest.mark.parametrize(("retries", "timeout"), [(0, 0), (3, 2), (7, 5)])
def test_retries_are_exhausted_after_their_time(verb, retransmission, retries, timeout):
    """Nothing comes through: (retry_count + 1) timeouts after the first packet the QP gives up."""
    first = flows(verb, 5_000, 0, **{"class": "best-effort"})
    result = compiled(
        [first],
        nic={"retransmission": retransmission, "retry_count": retries, "timeout": timeout},
        switch={"lossy": {"reserved": "0B"}},
    )
    # What waits for a failed operation is never run.
    plan = replace(
        result.plan,
        pq_static_bytes=np.zeros(len(result.plan.pq_static_bytes), dtype=np.int64),  # the switch drops everything
        op_kind=[0, 0, 2],
        op_host=[0, 0, 0],
        op_qp=[0, 0, -1],
        op_bytes=[5_000, 0, 0],
        op_duration_ps=[0, 0, US],
        op_start_ps=[0, 0, 0],
        op_peer=[-1, -1, -1],
        op_dependency_count=[0, 0, 1],
        op_successor_start=[0, 0, 1, 1],
        op_successor=[2],
        host_op=[0, 1],
        host_op_start=[0, 2, 2],
    )
    engine = finished(plan)
    ops = engine.ops()
    assert ops["status"].tolist() == [FAILED, FAILED, NOT_RUN]
    assert ops["done_ps"].tolist()[:2] == [(retries + 1) * RTO_PS * 2**timeout] * 2
    events = engine.drain()["events"]
    assert [(row["time_ps"], row["kind"], row["node"], row["qp"]) for row in events] == [
        ((retries + 1) * RTO_PS * 2**timeout, EVENT_QP_ERROR, 0, 0)
    ]
    again = engine.totals()["read_requests"] - 2 if verb == "read" else engine.totals()["retransmissions"]
    assert again >= retries


def test_verbs_are_compiled():
    result = compiled([flows("write", 1), flows("send", 1), flows("read", 1, qp=None)])
    assert result.plan.qp_verb.tolist() == [VERB_WRITE, VERB_SEND, VERB_READ]
    assert result.plan.op_host.tolist() == [0, 0, 0]


def test_a_flow_file_may_say_the_verb(tmp_path):
    path = tmp_path / "flows.csv"
    path.write_text(
        "src,dst,bytes,start_ps,qp,verb\nh0,h1,1,0,a,read\nh0,h1,1,0,a,\nh1,h0,1,0,,send\nh0,h1,1,0,a,read\n"
    )
    result = compiled([{"kind": "flow-file", "path": str(path), "verb": "write"}])
    assert result.flows.verb.tolist() == [VERB_READ, VERB_WRITE, VERB_SEND, VERB_READ]
    # Two verbs are two QPs, whatever their name.
    assert result.plan.qp_verb.tolist() == [VERB_READ, VERB_WRITE, VERB_SEND]


@pytest.mark.parametrize(
    ("tables", "error"),
    [
        ({"workload": [flows("reed", 1)]}, 'workload.0.verb = "reed": must be "write", "send" or "read"'),
        ({"nic": {"retransmission": "sack"}}, "nic.retransmission"),
        ({"nic": {"retransmission": "selective", "selective_window": 4097}}, "nic.selective_window = 4097"),
        ({"nic": {"retransmission": "selective", "selective_window": 0}}, "nic.selective_window = 0"),
        ({"nic": {"first_psn": 2**24}}, "nic.first_psn = 16777216"),
        ({"nic": {"override": [{"name": "h1", "first_psn": 3}]}}, "nic.override.0.first_psn"),
        (
            {"nic": {"override": [{"name": "h1", "retransmission": "selective"}]}},
            "both ends of a QP must repeat lost packets alike, but h0 goes back N and h1 repeats selectively within "
            "1024 packets",
        ),
        (
            {"nic": {"mtu": 256}, "workload": [flows("read", 2**31 + 1)]},
            "flow 0: a READ of 2,147,483,649 B has more than 2^23 packets of 256 B",
        ),
        (
            {"compat": "ns3", "workload": [flows("send", 1)]},
            'workload.0.verb = "send": compat = "ns3" knows WRITE only',
        ),
        ({"compat": "ns3", "nic": {"first_psn": 1}}, 'packet numbers of compat = "ns3" begin with 0'),
        ({"compat": "ns3", "nic": {"retransmission": "selective"}}, 'compat = "ns3" knows go-back-n only'),
    ],
)
def test_wrong_settings_are_refused(tables, error):
    tables = {"workload": [flows("write", 1)]} | tables
    with pytest.raises(ScenarioError) as caught:
        compiled(**tables)
    assert error in str(caught.value)


def test_the_engine_refuses_what_it_cannot_keep():
    plan = compiled([flows("read", 1)]).plan
    for change, error in (
        ({"psn_start": 2**24}, "psn_start"),
        ({"read_outstanding_max": 256}, "read_outstanding_max"),
        ({"nic_selective": [1], "nic_selective_window": [5000]}, "selective window"),
        ({"ns3_nic": True}, "compatibility NIC"),
        ({"op_bytes": [2**34]}, "2\\^23 packets"),
    ):
        with pytest.raises(ValueError, match=error):
            Engine(replace(plan, **change))


def test_the_flows_table_names_the_verb():
    fabric = {"kind": "single-switch", "hosts": 2}
    workload = [flows(verb, 5000, label=verb) for verb in ("read", "write", "send")]
    run = fabemu.run(scenario_from_dict({"fabric": fabric, "workload": workload}))
    rows = run.flows.to_pylist()
    assert [row["status"] for row in rows] == ["done"] * 3
    assert {row["label"] for row in rows} == {"read", "write", "send"}
    assert all(row["verb"] == row["label"] for row in rows)


@pytest.mark.parametrize("verb", ["write", "read"])
def test_drops_name_the_host_that_sent_the_frame(verb):
    scenario = {
        "fabric": {"kind": "single-switch", "hosts": 2},
        "nic": {"timeout": 5, "retry_count": 1000},
        "fault": [{"kind": "loss", "link": [host, "sw0"], "from": host, "rate": 0.3} for host in ("h0", "h1")],
        "workload": [{"kind": "flows", "verb": verb, "flow": [{"src": "h0", "dst": "h1", "size": "200KB"}]}],
    }
    drops = fabemu.run(scenario).drops.to_pylist()
    assert {row["kind"] for row in drops} >= {"data", {"write": "ack", "read": "read"}[verb]}
    for row in drops:
        other = {"h0": "h1", "h1": "h0"}[row["src"]]
        assert (row["dst"], row["ingress_port"]) == (other, f"sw0->{row['src']}")
