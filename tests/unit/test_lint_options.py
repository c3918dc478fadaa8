"""The linter on scenario files with options of PFC, buffers, class maps, credits and watchdogs, as users write them."""

from __future__ import annotations

import pytest

from fabemu.compile import compile_plan
from fabemu.errors import ScenarioError
from fabemu.headroom import headroom_bound_bytes
from fabemu.lint import Finding, lint
from fabemu.scenario import scenario_from_toml

# sw0 - sw1 - sw2, a host at each, 100 Gb/s over 5 m.
CHAIN = """
[fabric]
kind = "chain"
switches = 3
[link]
rate = "100Gbps"
length = "5m"
{link}
[[workload]]
kind = "permutation"
pattern = "shift"
size = "100KB"
"""
FRAME_BYTES, BOUND_BYTES = 4_174, 13_271


def findings(text: str, *codes: str, link: str = "") -> list[Finding]:
    """Findings of some codes, all but notes if none are given."""
    checked = scenario_from_toml(CHAIN.format(link=link) + text, "s.toml")
    found = lint(checked, compile_plan(checked))
    return [item for item in found if (item.code in codes if codes else item.severity != "note")]


def places(text: str, code: str, **more: str) -> set[str]:
    return {place for item in findings(text, code, **more) for place in item.places}


def test_the_chain_is_clean() -> None:
    assert findings("") == []


# Headroom.


def test_headroom_in_cells_and_behind_a_response_delay() -> None:
    def at(headroom: int, more: str) -> list[Finding]:
        return findings(f'[switch]\n{more}\npfc.headroom = "{headroom}B"\n', "FB101")

    assert at(BOUND_BYTES, "") == []
    cells = headroom_bound_bytes(rate_bps=10**11, delay_ps=25_000, frame_bytes=FRAME_BYTES, cell_bytes=208)
    late = headroom_bound_bytes(rate_bps=10**11, delay_ps=25_000, frame_bytes=FRAME_BYTES, response_ps=600_000)
    for bound, more in ((cells, 'cell = "208B"'), (late, 'pfc.response_delay = "600ns"')):
        assert bound > BOUND_BYTES and at(bound, more) == []
        (finding,) = at(bound - 1, more)
        assert finding.figures["bound_bytes"] == bound and finding.severity == "error"


def test_headroom_of_one_port_for_a_cable_that_is_longer() -> None:
    long = '[[link.override]]\nbetween = ["sw0", "sw1"]\nlength = "300m"'
    assert findings(long, "FB101") == []
    short = f'[switch.pfc]\nheadroom = "{BOUND_BYTES}B"\n'
    assert places(short + long, "FB101") == {"sw0->sw1", "sw1->sw0"}
    one = '[[switch.override]]\nname = "sw0"\npeer = "sw1"\npfc.headroom = "auto"\n'
    assert places(short + long + "\n" + one, "FB101") == {"sw1->sw0"}


@pytest.mark.parametrize(("given", "found"), [(64 * 1024 - 1 + BOUND_BYTES, 0), (64 * 1024 - 2 + BOUND_BYTES, 1)])
def test_buffer_of_a_slow_receiver(given: int, found: int) -> None:
    slow = '[[fault]]\nkind = "slow-receiver"\nhost = "h1"\nrate = "10Gbps"\n'
    text = f'[[nic.override]]\nname = "h1"\nreceiver = {{ xoff = "64KiB", buffer = "{given}B" }}\n'
    assert len(findings(slow + text, "FB107")) == found
    assert findings(slow, "FB107") == []


def test_lossless_classes_share_the_buffer_of_a_slow_receiver() -> None:
    classes = """
        [[class]]
        name = "cnp"
        priority = 6
        cnp = true
        [[class]]
        name = "rdma"
        priority = 4
        lossless = true
        [[class]]
        name = "storage"
        priority = 3
        lossless = true
    """
    enough = 2 * (64 * 1024 - 1 + BOUND_BYTES)
    for given, found in ((enough, []), (enough - 1, [f"= {enough:,} B: lossless classes may drop at the receiver"])):
        text = f'[[nic.override]]\nname = "h1"\nreceiver = {{ xoff = "64KiB", buffer = "{given}B" }}\n'
        messages = [finding.message for finding in findings(classes + text, "FB107")]
        assert [message[-len(end) :] for message, end in zip(messages, found, strict=True)] == found
    assert findings(classes, "FB107") == []


# PFC.


@pytest.mark.parametrize(
    ("override", "hops"),
    [
        # A port without PFC neither pauses its peer nor is paused by it.
        ('name = "sw1"\npeer = "sw0"\npfc.enabled = false', {"sw1->sw0"}),
        ('name = "sw2"\npfc.enabled = false', {"sw2->sw1", "sw2->h2"}),
    ],
)
def test_pfc_off_at_a_port_and_at_a_switch(override: str, hops: set[str]) -> None:
    text = f"[[switch.override]]\n{override}\n"
    found = findings(text, "FB103")
    assert {place for item in found for place in item.places} >= hops
    assert all(item.severity == "error" and "lossless class rdma" in item.message for item in found)
    ends = {hop for hop in hops} | {"->".join(reversed(hop.split("->"))) for hop in hops}
    assert {place for item in found for place in item.places} <= ends


def test_no_pfc_is_needed_where_there_are_credits() -> None:
    credit = '[link.tier.trunk]\nflow_control = "credit"'
    off = '[[switch.override]]\nname = "sw1"\npfc.enabled = false\n'
    assert places(off, "FB103") != set()
    # All ports of sw1 but the one to its host have credits.
    assert all("h1" in place for place in places(off, "FB103", link=credit))
    assert findings("[switch.pfc]\nheadroom = '1KB'\n", "FB101", link='flow_control = "credit"') == []


def test_class_maps_of_one_switch_and_of_all() -> None:
    lossy = '[[switch.override]]\nname = "sw1"\nclass_map = { rdma = "best-effort" }\n'
    found = findings(lossy, "FB104", "FB105")
    assert {item.code: set(item.places) for item in found if item.code == "FB104"} == {
        "FB104": {"h1->sw1", "sw0->sw1", "sw2->sw1"}
    }
    assert places(lossy, "FB105") == {"sw1->sw0", "sw1->sw2"}
    # Of all switches: lossless from no switch on, but the hosts still send it as rdma.
    everywhere = '[switch]\nclass_map = { rdma = "best-effort" }\n'
    assert places(everywhere, "FB104") == {"h0->sw0", "h1->sw1", "h2->sw2"}
    assert findings(everywhere, "FB105") == []
    assert findings('[switch]\nclass_map = { best-effort = "cnp" }\n', "FB104", "FB105") == []


def test_a_class_map_onto_another_lossless_class() -> None:
    classes = """
[[class]]
name = "a"
priority = 5
lossless = true
[[class]]
name = "b"
priority = 4
lossless = true
[[class]]
name = "cnp"
priority = 6
cnp = true
"""
    text = '[switch]\nclass_map = { a = "b" }\n' + classes
    found = findings(text, "FB104", "FB105")
    assert {(item.code, *item.places) for item in found} == {("FB105", f"h{at}->sw{at}") for at in range(3)}
    assert found[0].message.startswith("frames of class a wait here as a, but their buffer at sw0 pauses b")


# Thresholds.


@pytest.mark.parametrize(
    ("static", "codes"), [("399999B", {"FB203"}), ("400KB", {"FB204"}), ("1599999B", {"FB204"}), ("1600KB", set())]
)
def test_static_threshold_below_the_marks(static: str, codes: set[str]) -> None:
    assert {item.code for item in findings(f'[switch.pfc]\nstatic = "{static}"\n', "FB203", "FB204")} == codes


@pytest.mark.parametrize(("kmin", "found"), [("131071B", False), ("128KiB", True)])
def test_marks_that_credits_never_let_a_queue_reach(kmin: str, found: bool) -> None:
    """The switch in the middle has three ports: what two of them let in, 64 KiB each, waits at the third."""
    link = 'flow_control = "credit"'
    text = f'[switch.ecn]\nkmin = "{kmin}"\nkmax = "1MB"\n'
    assert (places(text, "FB208", link=link) >= {"sw1->h1", "sw1->sw0", "sw1->sw2"}) == found
    assert findings(text, "FB203", "FB204", link=link) == []
    # One port without credits may let in whatever its PFC does.
    mixed = link + '\n[[link.override]]\nbetween = ["sw1", "h1"]\nflow_control = "pfc"'
    assert "sw1->sw0" not in places(text, "FB208", link=mixed)
    assert findings(text, "FB208") == []


def test_marks_of_a_lossy_class_behind_its_limit() -> None:
    classes = """
[[class]]
name = "bulk"
priority = 2
ecn = true
[[class]]
name = "cnp"
priority = 6
cnp = true
"""

    def at(lossy: str, kmin: str) -> list[Finding]:
        ecn = f'ecn = {{ kmin = "{kmin}", kmax = "999MB" }}'
        return findings(f'[switch]\nbuffer = "4MB"\n{ecn}\n{lossy}\n{classes}', "FB208")

    limit = 'lossy.egress_static = "200KB"'
    assert at(limit, "199999B") == []
    (finding,) = at(limit, "200KB")
    assert finding.message == (
        "ECN kmin = 200KB (200,000 B) of class bulk is not below the 200,000 B that its egress limit lets wait: "
        "nothing is marked"
    )
    assert len(finding.places) == 7
    assert at("", "3999999B") == [] and "the buffer holds" in at("", "4MB")[0].message


@pytest.mark.parametrize("weights", ["{ rdma = 1, best-effort = 1000 }", "{ rdma = 1 }", "{ cnp = 7, rdma = 3 }"])
def test_weights_of_a_scenario_always_let_the_largest_frame_go(weights: str) -> None:
    text = f"[switch]\nweights = {weights}\n[nic]\nmtu = 9000\nany_mtu = true\n"
    assert findings(text, "FB502") == []


# Faults: the same defects, from the start of a fault on.


def fault(kind: str, **keys: str) -> str:
    return "\n".join(["[[fault]]", f'kind = "{kind}"', *(f"{key} = {value}" for key, value in keys.items()), ""])


@pytest.mark.parametrize(
    ("times", "when"),
    [
        ({}, "(from 0us on, by fault.0)"),
        ({"start": '"10us"', "end": '"20us"'}, "(from 10us to 20us, by fault.0)"),
    ],
)
def test_pfc_that_a_fault_turns_off(times: dict[str, str], when: str) -> None:
    override = '[[switch.override]]\nname = "sw1"\npeer = "sw0"\npfc.enabled = false\n'
    text = fault("pfc-off", at='"sw1"', peer='"sw0"', **times)
    written, found = (sorted(findings(item, "FB103"), key=lambda one: one.message) for item in (override, text))
    assert [(item.places, f"{item.message} {when}") for item in written] == [
        (item.places, item.message) for item in found
    ]
    assert len(found) == 2 and all(item.severity == "error" for item in found)


def test_a_fault_that_changes_nothing_of_what_is_found_anyway() -> None:
    override = '[[switch.override]]\nname = "sw1"\npeer = "sw0"\npfc.enabled = false\n'
    rest = fault("pfc-off", at='"sw1"')
    messages = [item.message for item in findings(override + rest, "FB103") if "sw1->sw0" in item.places]
    assert len(messages) == 2 and not any("fault" in message for message in messages)
    assert "sw1->sw2" in {place for item in findings(override + rest, "FB103") for place in item.places}


def test_pfc_off_at_a_host_and_in_two_faults_after_each_other() -> None:
    first = fault("pfc-off", at='"h0"', end='"5us"')
    second = fault("pfc-off", at='"h0"', start='"5us"', end='"9us"')
    (finding,) = findings(first + second, "FB103")
    assert finding.places == ("h0->sw0",) and finding.message.endswith("(from 0us to 9us, by fault.0)")


def test_headroom_and_maps_that_a_fault_makes_wrong() -> None:
    low = fault("headroom", switch='"sw1"', peer='"sw2"', headroom='"1KB"', start='"1us"')
    (finding,) = findings(low, "FB101")
    assert finding.places == ("sw1->sw2",) and finding.message.endswith("(from 1us on, by fault.0)")
    assert finding.figures["given_bytes"] == 1000
    mapped = fault("priority-map", switch='"sw1"', map='{ rdma = "best-effort" }', end='"7us"')
    (finding,) = findings(mapped, "FB104")
    assert set(finding.places) == {"sw0->sw1", "sw2->sw1", "h1->sw1"}
    assert finding.message.endswith("(from 0us to 7us, by fault.0)")
    assert findings(fault("storm", host='"h0"', end='"7us"'), "FB101", "FB103", "FB104", "FB105") == []


# What a scenario cannot even say: the rules FB201, FB403 and FB501 are there for plans that are made otherwise.


@pytest.mark.parametrize(
    ("text", "link", "message"),
    [
        ('[switch]\nbuffer = "100KB"\npfc.headroom = "30KB"\n', "", "do not fit buffer = 100KB (100,000 B)"),
        (
            '[switch.watchdog]\ndetection_time = "1ms"\npoll_interval = "2ms"\nrestoration_time = "2ms"\n',
            "",
            "is shorter than poll_interval = 2ms",
        ),
        ("", 'flow_control = "credit"\ncredit_buffer = "4160B"', "4,160 B of credits, in whole blocks of 64 B, do not"),
    ],
)
def test_refused_before_it_is_checked(text: str, link: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        findings(text, link=link)
    assert message in str(caught.value)


def test_credits_of_the_largest_frame_and_watchdogs_that_poll_in_time_are_fine() -> None:
    assert findings("", "FB501", link='flow_control = "credit"\ncredit_buffer = "4224B"') == []
    dog = '[switch.watchdog]\ndetection_time = "2ms"\npoll_interval = "2ms"\nrestoration_time = "2ms"\n'
    assert findings(dog) == []
