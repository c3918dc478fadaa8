"""Sequences worked out by hand from docs/MODEL.md, against the oracle."""

from __future__ import annotations

import pytest

from fabemu.plan import CC_DCQCN_ADAPTER, CC_DCQCN_PAPER, CC_FIXED, NOTIFY_ECHO
from tests.oracle.build import US, Cable, NicSpec, PortBuffer, SwitchSpec, TrafficClass, Work, build_plan
from tests.oracle.dcqcn import Adapter, Paper
from tests.oracle.hashing import hash64, mix32, mix64
from tests.oracle.packet import unwrap, wire_number, wire_ps
from tests.oracle.pauses import CROSSED_DYNAMIC
from tests.oracle.simulator import Simulator, UnsupportedError, simulate

GBPS = 10**9
DATA, ACK, NAK, CNP, PFC = range(5)


def star(hosts: int, work: Work, rate_bps: int = 100 * GBPS, delay_ps: int = US, **parts):
    """Hosts around one switch; host h has port h, the switch's port to it is hosts + h."""
    cables = [Cable(host, hosts, rate_bps, delay_ps) for host in range(hosts)]
    return build_plan(hosts, 1, cables, work, **parts)


def of_kind(result, kind: int) -> list[tuple[int, ...]]:
    return [row for row in result.packets if row[2] == kind]


def test_splitmix_finaliser_known_values() -> None:
    # First two outputs of splitmix64 seeded with 0 (state 0x9e37..., 2 * 0x9e37...).
    assert mix64(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert mix64(2 * 0x9E3779B97F4A7C15 % 2**64) == 0x6E789E6AA1B965F4
    assert hash64(0) == 0xE220A8397B1DCDAF
    # MurmurHash3's 32-bit finaliser.
    assert mix32(0) == 0
    assert mix32(1) == 0x514E28B7


def test_wire_time_rounds_up_and_truncates_on_request() -> None:
    plan = Simulator(star(2, Work())).plan
    assert wire_ps(plan, 4158, 100 * GBPS) == 334_240
    assert wire_ps(plan, 4158, 400 * GBPS) == 83_560
    assert wire_ps(plan, 64, 3 * GBPS) == 224_000
    assert wire_ps(plan, 65, 3 * GBPS) == 226_667
    plan.truncate_ns = True
    assert wire_ps(plan, 65, 3 * GBPS) == 226_000


def test_packet_numbers_unwrap_around_24_bits() -> None:
    plan = Simulator(star(2, Work())).plan
    assert unwrap(plan, 0, 2**24 - 1) == 2**24
    assert unwrap(plan, 2**24 - 1, 2**24) == 2**24 - 1
    assert unwrap(plan, 5, 3) == 5
    assert unwrap(plan, 2**24 - 1, 0) == -1
    plan.psn_start = 2**24 - 2
    assert [wire_number(plan, number) for number in range(4)] == [2**24 - 2, 2**24 - 1, 0, 1]
    assert all(unwrap(plan, wire_number(plan, number), number + 9) == number for number in range(4))


def test_one_packet_by_hand() -> None:
    """1000 B: 1000 + 62 + 16 = 1078 B frame, 1098 B on the wire = 87.84 ns; ACK 66 + 20 = 86 B = 6.88 ns."""
    work = Work()
    work.send(work.qp(0, 1), 1000, start_ps=5)
    result = simulate(star(2, work, switch=SwitchSpec(latency_ps=300)))
    at_switch = 5 + 87_840 + US
    at_host = at_switch + 300 + 87_840 + US
    assert result.packets == [
        (5, 0, DATA, 2 | 4, 0, 0, 0, 1078),
        (at_switch + 300, 3, DATA, 2 | 4, 0, 0, 0, 1078),
        (at_host, 1, ACK, 0, 0, 0, 1, 66),
        (at_host + 6_880 + US + 300, 2, ACK, 0, 0, 0, 1, 66),
    ]
    assert result.ops["posted_ps"] == [5]
    assert result.ops["first_sent_ps"] == [5]
    assert result.ops["delivered_ps"] == [at_host]
    assert result.ops["done_ps"] == [at_host + 2 * (6_880 + US) + 300]
    assert result.ops["status"] == [2]
    assert result.drained
    assert result.end_ps == result.ops["done_ps"][0]


def test_empty_message_is_one_frame_padded_to_the_minimum() -> None:
    work = Work()
    work.send(work.qp(0, 1), 0)
    result = simulate(star(2, work))
    assert [row[7] for row in of_kind(result, DATA)] == [78, 78]
    work.send(0, 1)
    result = simulate(star(2, work, pad_bytes=4))
    assert [row[7] for row in of_kind(result, DATA) if row[1] == 0] == [78, 82]


def test_one_megabyte_at_100g_takes_83_944_us() -> None:
    work = Work()
    work.send(work.qp(0, 1), 10**6)
    result = simulate(star(2, work))
    assert result.ops["delivered_ps"] == [83_944_000]
    assert result.ops["packets"] == [245]
    assert sum(row[7] + 20 for row in of_kind(result, DATA) if row[1] == 0) == 1_020_106


def test_incast_keeps_the_receiver_link_busy() -> None:
    """3 x 100 kB to one host: its link never rests, so the last byte comes after all the wire time there is."""
    work = Work()
    for source in range(3):
        work.send(work.qp(source, 3), 100_000)
    result = simulate(star(4, work))
    wire = 3 * (100_000 + 25 * 82 + 16) * 80
    first = (4174 + 20) * 80 + US
    assert max(result.ops["delivered_ps"]) == first + wire + US


def test_backlogged_qps_take_turns() -> None:
    """Three QPs of one host; each packet's successor is ready one gap later, behind those that wait."""
    work = Work()
    for destination in (1, 2, 3):
        work.send(work.qp(0, destination), 3 * 4096)
    result = simulate(star(4, work))
    sent = [row[5] for row in of_kind(result, DATA) if row[1] == 0]
    assert sent == [0, 1, 2] * 3


def test_messages_of_one_qp_keep_their_order() -> None:
    """The first message is posted late, so the second waits for it although it was posted at 0."""
    work = Work()
    qp = work.qp(0, 1)
    work.send(qp, 10, start_ps=7 * US)
    work.send(qp, 10)
    result = simulate(star(2, work))
    assert result.ops["posted_ps"] == [7 * US, 0]
    assert result.ops["first_sent_ps"] == [7 * US, 7 * US + 110 * 80]


def test_fixed_rate_paces_packets() -> None:
    work = Work()
    work.send(work.qp(0, 1), 3 * 4096)
    result = simulate(star(2, work, nic=NicSpec(cc=CC_FIXED, fixed_rate_bps=GBPS)))
    sent = [row[0] for row in of_kind(result, DATA) if row[1] == 0]
    assert sent == [0, 4194 * 8000, (4194 + 4178) * 8000]


def test_operations_of_length_zero_run_in_the_same_instant() -> None:
    work = Work()
    first = work.calc(0, 0, start_ps=9)
    second = work.calc(0, 4, after=[first])
    third = work.calc(0, 0, start_ps=20, after=[second])
    work.send(work.qp(0, 1), 1, after=[first])
    never = work.calc(0, 0, after=[third])
    result = simulate(star(2, work))
    assert result.ops["posted_ps"] == [9, 9, 20, 9, 20]
    assert result.ops["done_ps"][:3] == [9, 13, 20]
    assert result.ops["done_ps"][never] == 20


def test_recv_is_done_when_posted_and_delivered() -> None:
    work = Work()
    qp = work.qp(0, 1)
    early = work.recv(work.send(qp, 1))
    late = work.recv(work.send(qp, 1), start_ps=50 * US)
    reply = work.send(work.qp(1, 0), 1, after=[early])
    result = simulate(star(2, work))
    ops = result.ops
    assert ops["done_ps"][early] == ops["delivered_ps"][0]
    assert ops["done_ps"][late] == 50 * US
    assert ops["posted_ps"][reply] == ops["delivered_ps"][0]
    # The ACK of the same instant goes first.
    assert ops["first_sent_ps"][reply] == ops["delivered_ps"][0] + 6_880


def test_pfc_pause_by_hand() -> None:
    """Two hosts send one full packet each to a third, in the same instant; pool 16 kB, alpha 1/4.

    Frames of 4174 B (335.52 ns) arrive together. Thresholds after the charges: (16000 - 4174) / 4 = 2956 and
    (16000 - 8348) / 4 = 1913, both below 4174: both PGs raise XOFF. One frame leaves in the same instant, which clears
    the XOFF of its PG; the other PG stays paused for one frame.
    """
    work = Work()
    for source in (0, 1):
        work.send(work.qp(source, 2), 4096)
    buffers = (PortBuffer(headroom=10**5, alpha_q16=65536 // 4),)
    plan = star(3, work, switch=SwitchSpec(pool=16_000, buffers=buffers, pause_ps=0))
    result = simulate(plan)
    first = 335_520 + US
    assert [row[0] for row in result.pauses] == [first, first]
    assert sorted(row[10] for row in result.pauses) == [1913, 2956]
    out = [row for row in of_kind(result, DATA) if row[1] == 5]
    assert [row[0] for row in out] == [first, first + 335_520]
    left, stays = (3 + row[5] for row in out)
    # PFC frames leave in the same instant: 84 B = 6.72 ns, and 1 us of cable.
    standing = next(row for row in result.pauses if row[5] == stays)
    xon = first + 335_520
    reason = (4174, 0, standing[10], 5, CROSSED_DYNAMIC, -1)
    assert standing == (first, first, first + 6_720 + US, xon, xon + 6_720 + US, stays, 0, 0, *reason)
    assert (xon, stays, PFC, 0, 0, -1, 0, 64) in result.packets
    # The other was cleared at once; whether its XOFF was still written depends on the order of the three ports.
    other = next(row for row in result.pauses if row[5] == left)
    assert other[3] == first
    assert other[1] in (-1, first)
    assert all(status == 2 for status in result.ops["status"])
    assert not result.drops


def test_pause_expires_and_is_refreshed() -> None:
    """A slow egress keeps the PG over its threshold: refresh after half the pause time, no gap in the pause.

    XOFF on the first arrival (threshold 0). 1 Gb/s egress: one frame leaves per 33 us; pause 10 us, refresh 5 us.
    """
    work = Work()
    work.send(work.qp(0, 1), 2 * 4096)
    cables = [Cable(0, 2, 100 * GBPS, 0), Cable(1, 2, GBPS, 0)]
    buffers = (PortBuffer(headroom=10**5, alpha_q16=1),)
    spec = SwitchSpec(pool=1000, buffers=buffers, pause_ps=10 * US)
    result = simulate(build_plan(2, 1, cables, work, switch=spec))
    # Ports: 0 host 0, 1 host 1, 2 and 3 the switch's. The first frame arrives at 335.52 ns and leaves in that instant.
    first = 335_520
    second = first + 334_240
    leaves = first + 4194 * 8000
    rows = [row for row in result.pauses if row[5] == 2]
    # Row 1: raised by the first frame, cleared by its departure in the same instant. If the departure's choice came
    # first the XON left in the PFC frame at once and XOFF was never sent; otherwise the PFC frame carried XOFF.
    assert rows[0][0] == first == rows[0][3]
    # Row 2: the second frame waits until the first has left the slow link.
    standing = rows[1]
    assert (standing[0], standing[3]) == (second, leaves)
    sent = [row[0] for row in of_kind(result, PFC) if row[1] == 2 and row[6] == 1 and row[0] >= second]
    assert sent == [second + count * 5 * US for count in range(len(sent))]
    assert len(sent) == 7
    assert standing[1:3] == (second, second + 6_720)
    assert (standing[4], standing[7]) == (leaves + 6_720, 0)
    assert result.counts["refreshes"] == 6


def test_pause_runs_out_when_the_refresh_is_too_late() -> None:
    """The pause (2 us) ends while a long frame of the other direction holds the refresh back."""
    work = Work()
    work.send(work.qp(0, 1), 2 * 4096)
    cables = [Cable(0, 2, GBPS, 0), Cable(1, 2, 10**8, 0)]
    work.send(work.qp(1, 0), 4096)
    buffers = (PortBuffer(headroom=10**6, alpha_q16=1),)
    spec = SwitchSpec(pool=1000, buffers=buffers, pause_ps=2 * US)
    result = simulate(build_plan(2, 1, cables, work, switch=spec))
    ends = {row[7] for row in result.pauses}
    assert 1 in ends
    for row in result.pauses:
        assert row[4] >= row[2]
    expired = [row for row in result.pauses if row[7] == 1 and row[3] == -1]
    for row in expired:
        following = [
            other for other in result.pauses if other[5] == row[5] and other[0] == row[0] and other[2] > row[4]
        ]
        assert following, "a standing XOFF pauses again after it has run out"
    assert not result.drops


def test_go_back_n_by_hand() -> None:
    """A lossy class: pool 9000 B, egress limit of one frame; which packets drop follows from the arrivals.

    Host 0 sends 4 packets at 100 Gb/s to a 50 Gb/s port. The first leaves at once; the second waits (queue 4158);
    the third finds queue 4158 >= limit only if limit is lower.
    """
    work = Work()
    work.send(work.qp(0, 1), 4 * 4096)
    cables = [Cable(0, 2, 100 * GBPS, 0), Cable(1, 2, 50 * GBPS, 0)]
    classes = [TrafficClass(lossless=False, ecn=False)]
    # free after the second: 10000 - 4158 = 5842; limit 5842 x 0.5 = 2921 <= 4158: drop of number 2.
    buffers = (PortBuffer(egress_alpha_q16=2**15),)
    nic = NicSpec(rto_ps=1000 * US)
    result = simulate(
        build_plan(2, 1, cables, work, classes=classes, switch=SwitchSpec(pool=10_000, buffers=buffers), nic=nic)
    )
    arrive = [335_520, 335_520 + 334_240, 335_520 + 2 * 334_240, 335_520 + 3 * 334_240]
    assert [(row[0], row[5], row[8]) for row in result.drops] == [(arrive[2], 2, 2)]
    # 0 leaves at 335.52 and takes 671.04 (50 Gb/s); 1 follows at 1006.56 for 668.48; 3 arrives at 1338.24 and waits.
    leave = [row[0] for row in of_kind(result, DATA) if row[1] == 3]
    assert leave[:3] == [335_520, 1_006_560, 1_675_040]
    # 3 is in at 2343.52: NAK 2 (86 B: 13.76 ns at 50 Gb/s, 6.88 at 100), then 2 and 3 go again.
    nak = [row for row in of_kind(result, NAK) if row[1] == 1]
    assert [(row[0], row[6]) for row in nak] == [(2_343_520, 2)]
    back = 2_343_520 + 13_760 + 6_880
    again = [(row[0], row[6]) for row in of_kind(result, DATA) if row[1] == 0][4:]
    assert again == [(back, 2), (back + 334_240, 3)]
    assert result.ops["retransmissions"] == [2]
    assert result.ops["packets"] == [6]
    assert result.ops["status"] == [2]


def test_timeouts_end_in_failure() -> None:
    """No route back for the ACKs of host 1: three timeouts, then the QP fails; (retry_count + 1) x rto in all."""
    work = Work()
    send = work.send(work.qp(0, 1), 10)
    after = work.calc(0, 0, after=[send])
    cables = [Cable(0, 2), Cable(1, 3), Cable(2, 3)]
    nic = NicSpec(rto_ps=20 * US, retry_count=2)
    result = simulate(build_plan(2, 2, cables, work, nic=nic, unrouted=[(1, 0)]))
    assert [row[0] for row in of_kind(result, DATA) if row[1] == 0] == [0, 20 * US, 40 * US]
    assert result.ops["status"] == [3, 0]
    assert result.ops["done_ps"][send] == 60 * US
    assert result.ops["posted_ps"][after] == -1
    assert result.ops["delivered_ps"][send] > 0
    assert {row[5] for row in result.drops} == {3}
    assert len(result.drops) == 3


def test_acks_are_coalesced() -> None:
    work = Work()
    work.send(work.qp(0, 1), 10 * 4096)
    result = simulate(star(2, work, nic=NicSpec(ack_every=4)))
    assert [row[6] for row in of_kind(result, ACK) if row[1] == 1] == [4, 8, 10]


def test_window_waits_for_the_ack() -> None:
    work = Work()
    work.send(work.qp(0, 1), 3 * 4096)
    result = simulate(star(2, work, nic=NicSpec(window_packets=1)))
    sent = [row[0] for row in of_kind(result, DATA) if row[1] == 0]
    turn = 4 * US + 2 * 6_880
    assert sent == [0, turn + 2 * 335_520, 2 * turn + 2 * (335_520 + 334_240)]


def test_marks_follow_the_thresholds() -> None:
    """kmax 0: every data packet that leaves others behind is marked, none that leaves an empty queue."""
    work = Work()
    for source in (0, 1):
        work.send(work.qp(source, 2), 4 * 4096)
    buffers = (PortBuffer(kmin=0, kmax=0),)
    result = simulate(star(3, work, switch=SwitchSpec(buffers=buffers), nic=NicSpec(cnp_interval_ps=10 * US)))
    out = [row for row in of_kind(result, DATA) if row[1] == 5]
    assert len(out) == 8
    assert [row[3] & 1 for row in out] == [1] * 7 + [0]
    assert sum(result.ops["marks"]) == 7 == result.marks[5]
    # One CNP for each QP: the run is shorter than the interval.
    assert len([row for row in of_kind(result, CNP) if row[1] == 2]) == 2
    assert result.ops["cnps"] == [1, 1]
    echo = simulate(
        star(3, work, switch=SwitchSpec(buffers=buffers), nic=NicSpec(notify=NOTIFY_ECHO, cnp_interval_ps=10 * US))
    )
    assert not of_kind(echo, CNP)
    assert len([row for row in of_kind(echo, ACK) if row[1] == 2 and row[3] & 8]) == 7


def paper(**values) -> Paper:
    profile = {"cc": CC_DCQCN_PAPER, "g": 1 / 4, "alpha_timer_ps": 10, "increase_timer_ps": 100, "threshold": 1}
    plan = star(2, Work(), nic=NicSpec(**{**profile, "rate_ai_bps": 10, "rate_hai_bps": 1000, **values}))
    return Paper(Simulator(plan).plan, 0, 10_000)


def test_paper_machine_first_steps() -> None:
    control = paper(rate_min_bps=1)
    control.catch_up(10**9)
    assert control.rate_bps == 10_000
    control.notify(50)
    # alpha 1: halved; alpha' = 3/4 + 1/4.
    assert (control.target_bps, control.rate_bps, control.alpha) == (10_000, 5_000, 1.0)
    control.catch_up(59)
    assert control.alpha == 1.0
    control.catch_up(60)
    assert control.alpha == 0.75
    # A CNP at 70 comes before the alpha timer of 70 and restarts it.
    control.notify(70)
    assert (control.target_bps, control.rate_bps) == (5_000, 3_125)
    assert control.alpha == 0.75 * 0.75 + 0.25
    control.catch_up(79)
    assert control.alpha == 0.8125
    # Timer events at 170 (nT 0 < 1: fast), 270 (nT 1 = 1: additive), 370 (nT 2 > 1: hyper, once without bytes).
    control.catch_up(170)
    assert (control.target_bps, control.rate_bps) == (5_000, 2500 + 1562)
    control.catch_up(270)
    assert (control.target_bps, control.rate_bps) == (5_010, 2505 + 2031)
    control.catch_up(370)
    assert (control.target_bps, control.rate_bps) == (6_010, 3005 + 2268)


def test_paper_machine_byte_counter() -> None:
    control = paper(byte_reset=1000, threshold=1, rate_min_bps=1, increase_timer_ps=100)
    control.sent(999)
    control.notify(0)
    control.sent(999)
    assert control.byte_count == 0
    control.sent(1)
    assert (control.byte_count, control.bytes_since, control.rate_bps) == (1, 0, 7_500)
    control.sent(1_200)
    # max(0, 1) = 1 is not below 1 and min is 0: additive, but T stays at the line rate.
    assert (control.byte_count, control.bytes_since) == (2, 200)
    assert (control.target_bps, control.rate_bps) == (10_000, 8_750)


def test_paper_machine_ignores_the_least_decrease() -> None:
    control = paper(min_dec_fac=1.0, rate_min_bps=1)
    control.notify(0)
    assert control.rate_bps == 5_000


def test_adapter_machine_first_steps() -> None:
    nic = NicSpec(
        cc=CC_DCQCN_ADAPTER,
        g=1 / 4,
        alpha_init=0.5,
        alpha_timer_ps=10,
        decrease_timer_ps=40,
        decrease_offset_ps=5,
        increase_timer_ps=100,
        threshold=5,
        rate_min_bps=1,
        min_dec_fac=0.5,
    )
    control = Adapter(Simulator(star(2, Work(), nic=nic)).plan, 0, 10_000)
    control.notify(1000)
    assert control.rate_bps == 10_000
    control.catch_up(1010)
    assert control.alpha == 0.375
    # A CNP in the instant of the alpha timer counts for that timer.
    control.notify(1020)
    control.catch_up(1020)
    assert control.alpha == 0.375 * 0.75 + 0.25
    control.catch_up(1044)
    alpha = 0.375 * 0.75 + 0.25
    alpha = alpha * 0.75 * 0.75
    assert control.alpha == alpha
    assert control.rate_bps == 10_000
    # First check 45 after the first CNP: T stays (no increase has happened), the increase timer starts.
    control.catch_up(1045)
    assert (control.target_bps, control.rate_bps) == (10_000, int(10_000 * (1 - alpha / 2)))
    rate = control.rate_bps
    # No CNP since: the checks at 1085 and 1125 do nothing; the increase at 1145 is fast recovery.
    control.catch_up(1144)
    assert control.rate_bps == rate
    control.catch_up(1145)
    assert control.rate_bps == 5_000 + rate // 2
    # Next CNP at 1150: T follows R at the check of 1165 because an increase has happened.
    control.notify(1150)
    rate = control.rate_bps
    control.catch_up(1165)
    assert control.target_bps == rate
    assert control.rate_bps == max(rate // 2, int(rate * (1 - control.alpha / 2)))


def test_ecmp_spreads_over_parallel_links() -> None:
    work = Work()
    for index in range(64):
        work.send(work.qp(index % 2, 2 + index % 2), 10)
    cables = [Cable(0, 4), Cable(1, 4), Cable(2, 5), Cable(3, 5), *[Cable(4, 5)] * 4]
    result = simulate(build_plan(4, 2, cables, work))
    # Ports: hosts 0..3, switch 4: 4 and 5 to hosts, 6..9 trunks; switch 5: 10 and 11 to hosts, 12..15 trunks.
    assert {row[1] for row in of_kind(result, DATA)} == {0, 1, 6, 7, 8, 9, 10, 11}


def test_compatibility_rules_are_refused() -> None:
    for name in ("ns3_buffer", "ns3_nic", "ns3_pfc", "round_robin"):
        with pytest.raises(UnsupportedError):
            Simulator(star(2, Work(), **{name: True}))


def test_refreshes_fill_a_long_cable() -> None:
    """A refresh interval (23.875 ns) above a PFC frame's wire time, far below the 3 us of cable: hundreds in flight."""
    work = Work()
    for source in range(4):
        work.send(work.qp(source, 4), 5 * 4096)
    buffers = (PortBuffer(headroom=10**6, alpha_q16=1),)
    spec = SwitchSpec(pool=100_000, latency_ps=2_400_000, buffers=buffers, pause_ps=47_750)
    nic = NicSpec(rto_ps=477_485_000)
    result = simulate(star(5, work, rate_bps=70 * GBPS, delay_ps=3 * US, switch=spec, nic=nic))
    assert result.counts["pfc_frames"] > 400
    assert all(status == 2 for status in result.ops["status"])
