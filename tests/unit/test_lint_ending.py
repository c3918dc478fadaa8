"""FB904: an `until` before which nothing can arrive."""

import pytest

import fabemu
from fabemu.compile import compile_plan
from fabemu.lint import lint
from fabemu.scenario import scenario_from_dict

STAR = {"fabric": {"kind": "single-switch", "hosts": 4}, "link": {"delay": "600ns"}}
INCAST = {"kind": "incast", "receiver": "h0", "senders": ["h1", "h2"], "size": "100KB"}


def found(until, start="0s", **more):
    whole = {**STAR, "workload": [{**INCAST, "start": start}], **more} | ({"until": until} if until else {})
    scenario = scenario_from_dict(whole)
    return [item for item in lint(scenario, compile_plan(scenario)) if item.code == "FB904"]


@pytest.mark.parametrize(
    ("until", "start", "is_found"),
    [
        ("1ps", "0s", True),
        ("600ns", "0s", True),
        ("601ns", "0s", False),
        ("1ms", "0s", False),
        (None, "0s", False),
        ("50500ns", "50us", True),
        ("51us", "50us", False),
    ],
)
def test_an_end_before_anything_can_arrive_is_a_warning(until, start, is_found):
    findings = found(until, start)
    assert [item.severity for item in findings] == ["warning"] * is_found
    if until == "1ps":
        assert str(findings[0]) == (
            "FB904 until = 1ps: is before a first byte can arrive, at 600ns: nothing is simulated"
        )


def test_nothing_arrives_in_such_a_run(tmp_path):
    run = fabemu.run({**STAR, "workload": [INCAST], "until": "600ns"}, output=tmp_path / "run")
    assert run.info["messages"]["done"] == 0 and run.info["totals"]["packets_delivered"] == 0
