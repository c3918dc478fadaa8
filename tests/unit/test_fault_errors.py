"""Every kind of fault at a wrong place, time or value: the line, the key, what is wrong and what to write."""

from __future__ import annotations

import pytest

from fabemu.compile import compile_plan
from fabemu.errors import ScenarioError
from fabemu.scenario import scenario_from_toml

SCENARIO = """\
[fabric]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 2
spines = 2
[[workload]]
kind = "permutation"
size = "1MB"
"""
LINK = 'link = ["leaf0", "spine1"]\n'
CREDITS = '[link]\nflow_control = "credit"'


def problem(text: str) -> str:
    """The one problem of a scenario with more text, which begins at line 9: key path, value and message."""
    with pytest.raises(ScenarioError) as caught:
        compile_plan(scenario_from_toml(SCENARIO + text, "s.toml"))
    assert len(caught.value.problems) == 1, str(caught.value)
    return str(caught.value)


def fault(kind: str, text: str) -> str:
    found = problem(f'[[fault]]\nkind = "{kind}"\n{text}')
    return found.removeprefix("s.toml:").lstrip("0123456789: ").removeprefix("fault.0").lstrip(".: ")


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        # Places.
        ("link-down", "", 'key "link" is missing (the two devices that the cable joins, in any order)'),
        (
            "link-down",
            'link = ["leaf0", "spine9"]',
            'link = "spine9": the fabric has no device "spine9"; did you mean "spine1"?',
        ),
        ("link-down", 'link = ["leaf0", "leaf1"]', 'link = "leaf0", "leaf1": no link joins these two devices'),
        ("link-down", 'link = ["leaf0", "leaf0"]', 'link = ["leaf0", "leaf0"]: names one device twice'),
        ("link-down", 'link = ["leaf0"]', 'link = ["leaf0"]: must have two elements'),
        ("link-down", LINK + "index = 1", "index = 1: one link joins these two devices: index is 0"),
        ("flap", 'link = ["h0", "h1"]\ndown = "1us"\nperiod = "2us"\nend = "1ms"', 'link = "h0", "h1": no link joins'),
        ("loss", LINK + 'rate = 0.1\nfrom = "h0"', 'from = "h0": must be one of the two devices of the link: "leaf0"'),
        ("storm", 'host = "leaf0"\nend = "1ms"', 'host = "leaf0": "leaf0" is a switch, not a host'),
        ("storm", 'host = "h7"\nend = "1ms"', 'host = "h7": the fabric has no host "h7"'),
        ("storm", 'host = "h0"\nend = "1ms"\nclasses = ["rmda"]', 'classes.0 = "rmda": there is no class "rmda"; did'),
        ("storm", 'host = "h0"\nend = "1ms"\nclasses = ["cnp"]', 'classes.0 = "cnp": class "cnp" is not lossless: PFC'),
        ("storm", 'host = "h0"\nend = "1ms"\nclasses = []', "classes = []: the list is empty: leave the key out for"),
        ("slow-receiver", 'host = "spine0"\nrate = "1Gbps"', 'host = "spine0": "spine0" is a switch, not a host'),
        ("pfc-off", 'at = "leaf7"', 'at = "leaf7": the fabric has no device "leaf7"; did you mean'),
        ("pfc-off", 'at = "leaf0"\npeer = "leaf1"', 'peer = "leaf1": no link joins "leaf0" and this device'),
        ("pfc-off", 'at = "leaf0"\nclasses = ["best-effort"]', 'classes.0 = "best-effort": class "best-effort" is not'),
        ("ecn-off", 'at = "h0"', 'at = "h0": "h0" is a host, not a switch'),
        ("ecn-off", 'at = "leaf0"\nclasses = ["cnp"]', 'classes.0 = "cnp": class "cnp" has no ECN'),
        ("priority-map", 'switch = "h0"\nmap = { rdma = "cnp" }', 'switch = "h0": "h0" is a host, not a switch'),
        ("priority-map", 'switch = "leaf0"\nmap = { rdma = "cpn" }', 'map.rdma = "cpn": there is no class "cpn"; did'),
        ("headroom", 'switch = "leaf9"\nheadroom = "1KB"', 'switch = "leaf9": the fabric has no switch "leaf9"; did'),
        ("reboot", 'switch = "h1"\nend = "1ms"', 'switch = "h1": "h1" is a host, not a switch'),
        ("storm", 'host = "h0"\nend = "1ms"\nclasses = ["rdma", "rdma"]', 'classes = ["rdma", "rdma"]: names a class'),
        ("loss", LINK + 'rate = 1\nframes = ["ack", "ack"]', 'frames = ["ack", "ack"]: names a kind twice'),
        ("loss", LINK + 'rate = 1\nframes = ["credit"]', "frames: leaf0->spine1 has no credits: there are no such"),
        ("loss", LINK + f'rate = 1\nframes = ["pfc"]\n{CREDITS}', "frames: leaf0->spine1 has credits: there are no"),
        ("headroom", f'switch = "leaf0"\nheadroom = "0B"\n{CREDITS}', 'switch = "leaf0": has links with credits only'),
        ("storm", f'host = "h0"\nend = "1ms"\n{CREDITS}', 'host = "h0": is on a link with credits, where nothing is'),
        ("pfc-off", f'at = "leaf0"\n{CREDITS}', 'at = "leaf0": has no PFC there that could be off'),
        ("priority-map", f'switch = "leaf0"\nmap = {{ rdma = "cnp" }}\n{CREDITS}', 'switch = "leaf0": has links with'),
        ("ecn-off", 'at = "leaf0"\n[switch.ecn]\nenabled = false', 'at = "leaf0": marks nothing there that could be'),
        ("storm", 'host = "h\\u0007"\nend = "1ms"', 'host = "h\\u0007": the fabric has no host "h\\u0007"'),
        ("priority-map", 'switch = "leaf0"\nmap = { "a\\nb" = "cnp" }', 'map.a\\nb = "cnp": there is no class "a\\nb"'),
        ("priority-map", 'switch = "leaf0"\nmap = { rdma = 0 }', "map.rdma = 0: must be a text in quotes, found a"),
        # Times.
        ("link-down", LINK + 'start = "2us"\nend = "2us"', 'end = "2us": must be after start = 2us'),
        ("link-down", LINK + "start = 5", "start = 5: a time needs a unit"),
        ("flap", LINK + 'down = "2us"\nperiod = "2us"\nend = "1ms"', 'down = "2us": must be shorter than period = 2us'),
        ("flap", LINK + 'down = "1us"\nperiod = "2us"', 'key "end" is missing: without it, the fault ends at the'),
        ("flap", LINK + 'down = "1ps"\nperiod = "2ps"\nend = "1ms"', "period: the fault would happen 500,000,000"),
        ("storm", 'host = "h0"', 'key "end" is missing: without it, the fault ends at the run\'s until'),
        ("slow-receiver", 'host = "h0"\nstall = "2us"\nperiod = "2us"\nend = "1ms"', 'stall = "2us": must be shorter'),
        ("slow-receiver", 'host = "h0"\nstall = "1us"\nperiod = "2us"', 'key "end" is missing: without it, the fault'),
        # Values.
        ("loss", LINK, 'give one of "rate" (share of frames) and "ber" (bit error rate)'),
        ("loss", LINK + "rate = 0.1\nber = 1e-9", 'give one of "rate" (share of frames) and "ber" (bit error rate)'),
        ("loss", LINK + "rate = 1.5", "rate = 1.5: must be at most 1"),
        ("loss", LINK + "ber = -1e-9", "ber = -1e-09: a ratio cannot be negative"),
        ("loss", LINK + 'rate = 1\nframes = ["dta"]', 'frames.0 = "dta": must be "data", "ack", "nak", "cnp", "pfc",'),
        ("loss", LINK + "rate = 1\nframes = []", "frames = []: the list is empty: nothing would be lost"),
        ("slow-receiver", 'host = "h0"', 'give "rate", or "stall" and "period"'),
        ("slow-receiver", 'host = "h0"\nrate = "1bps"\nend = "1s"\nstall = "1us"\nperiod = "2us"', 'rate = "1bps": is'),
        ("slow-receiver", 'host = "h0"\nrate = "0Gbps"', 'rate = "0Gbps": a rate must be above 0'),
        ("priority-map", 'switch = "leaf0"\nmap = {}', "map: the map is empty: nothing would change"),
        ("headroom", 'switch = "leaf0"\nheadroom = "1GB"', 'headroom = "1GB": leaf0->h0 has '),
        ("headroom", 'switch = "leaf0"\nheadroom = "-1B"', 'headroom = "-1B": a size cannot be negative'),
        ("headroom", 'switch = "leaf0"\nheadroom = "1B"\nstart = "2us"\nend = "1us"', 'end = "1us": must be after'),
        ("link-done", "", 'kind = "link-done": must be "link-down", "flap", "loss", "storm", "slow-receiver",'),
    ],
)  # fmt: skip
def test_one_thing_wrong(kind: str, text: str, message: str) -> None:
    found = fault(kind, text)
    assert found.startswith(message), found


def test_the_line_of_the_key_is_named():
    found = problem('[[fault]]\nkind = "storm"\nhost = "h0"\nend = "1us"\nclasses = ["rdma", "cnp"]')
    assert found == 's.toml:13: fault.0.classes.1 = "cnp": class "cnp" is not lossless: PFC has nothing to do with it'


def test_two_faults_do_not_set_one_thing_at_the_same_time():
    one = '[[fault]]\nkind = "loss"\nlink = ["leaf0", "spine0"]\nrate = 0.1\n'
    found = problem(one + 'end = "3us"\n' + one + 'start = "2us"\nfrom = "leaf0"')
    assert found == (
        'fault.1.start = "2us": sets what fault.0 sets at the same time, from 0us to 3us: let one end before the other '
        "begins"
    )
    later = scenario_from_toml(SCENARIO + one + 'end = "3us"\n' + one + 'start = "3us"\nfrom = "leaf0"', "s.toml")
    assert len(compile_plan(later).plan.action_time_ps) == 5


def test_faults_end_before_the_run():
    text = 'until = "1ms"\n' + SCENARIO + '[[fault]]\nkind = "storm"\nhost = "h0"\nstart = "1ms"'
    with pytest.raises(ScenarioError, match="is not before the run's end, until = 1ms"):
        scenario_from_toml(text, "s.toml")


def test_the_compatibility_mode_has_no_faults():
    text = 'compat = "ns3"\n' + SCENARIO + '[[fault]]\nkind = "reboot"\nswitch = "leaf0"\nend = "1us"'
    with pytest.raises(ScenarioError, match='"reboot": compat = "ns3" has no faults'):
        scenario_from_toml(text, "s.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[routing]\ndetection = 1', "routing.detection = 1: a time needs a unit"),
        ('[routing]\ndetecton = "1ms"', 'routing.detecton = "1ms": unknown key; did you mean "detection"?'),
        ('[[routing.override]]\nat = "h0"\nto = "h1"\nvia = ["leaf0"]', 'routing.override.0.at = "h0": "h0" is a host'),
        ('[[routing.override]]\nat = "leaf0"\nto = "h9"\nvia = ["spine0"]', 'override.0.to: there is no host "h9"'),
        (
            '[[routing.override]]\nat = "leaf0"\nto = "h3"\nvia = ["leaf1"]',
            'routing.override.0.via.0 = "leaf1": no link joins "leaf0" and this switch',
        ),
        ('[[routing.override]]\nat = "leaf0"\nto = "h3"\nvia = []', "routing.override.0.via = []: the list is empty"),
        (
            '[[routing.override]]\nat = "spine0"\nto = "h3"\nvia = ["leaf0"]\n',
            "routing.override.0: packets to h3 would go round in a circle: leaf0 -> spine0 -> leaf0",
        ),
    ],
)  # fmt: skip
def test_wrong_routing(text: str, message: str) -> None:
    assert message in problem(text)
