"""The benchmark of many queue pairs at its smallest: all of them send, and twice the same."""

from __future__ import annotations

import json

import pytest

from bench import qps


@pytest.mark.parametrize("cc", qps.PACING)
@pytest.mark.parametrize("senders, hosts", [("one", 1), ("all", 16)])
def test_every_queue_pair_is_in_the_choice(senders: str, hosts: int, cc: str) -> None:
    first, second = (qps.run_once(senders, cc, 40, smoke=True) for _ in range(2))
    assert first["queue_pairs"] == first["queue_pairs_that_sent"] == 40 * hosts
    assert first["measured_hops"] > 0
    assert first["digest"] == second["digest"]


def test_hosts_receive_what_they_send() -> None:
    plan = qps.build("all", "none", 30, smoke=True)[0].plan
    received = [int((plan.qp_dst == host).sum()) for host in range(plan.host_count)]
    assert received == [30] * 16
    assert (plan.qp_src != plan.qp_dst).all()


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--smoke", "--senders", "one", "--cc", "none", "--repeats", "1", "--counts", "1", "4"]
    assert qps.main([*few, "--json"]) == 0
    one, four = json.loads(capsys.readouterr().out)["results"]
    assert (one["speed_share"], four["queue_pairs"]) == (1.0, 4)
    with pytest.raises(SystemExit):
        qps.main(["--counts", "0"])
    assert "at least 1" in capsys.readouterr().err
