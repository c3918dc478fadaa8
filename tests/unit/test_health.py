"""Health checks: what is found in the textbook incidents, what is not in a healthy run, and how alerts are joined."""

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import fabemu
from fabemu.analysis.alarms import ALARMS, DEFAULTS, FAMILIES, SEVERITIES, Alert, Incident, Thresholds
from fabemu.analysis.balance import balance
from fabemu.analysis.health import check, examine
from fabemu.analysis.storms import storms
from fabemu.cli import command
from fabemu.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    found = {}

    def run(scenario, *overrides):
        key = json.dumps([scenario, overrides])
        if key not in found:
            source = ROOT / "scenarios" / f"{scenario}.toml" if isinstance(scenario, str) else scenario
            directory = tmp_path_factory.mktemp("health") / "run"
            found[key] = fabemu.run(source, output=directory, overrides=list(overrides))
        return found[key]

    return run


def codes(incident):
    return [incident.root.code, *sorted({alert.code for alert in incident.others})]


def one(incidents, code, where=None):
    """The only alert of a code."""
    found = [alert for incident in incidents for alert in incident.alerts if alert.code == code]
    found = [alert for alert in found if where in (None, alert.where)]
    assert len(found) == 1, found
    return found[0]


def test_a_healthy_run_has_no_incident(run_of):
    health = examine(run_of("smoke/two-hosts"))
    assert (health.incidents, health.notes) == ((), ())


def test_congestion_its_victim_and_the_marks_that_nobody_heeds_are_one_incident(run_of):
    run = run_of("incast/victim")
    (incident,) = check(run)
    assert codes(incident) == ["FH101", "FH104", "FH201"]
    assert (incident.severity, incident.root.where) == ("critical", "sw1->h5")
    figures = incident.root.figures
    rows = run.pauses.to_pylist()
    trunk = sum(row["end_ps"] - row["start_ps"] for row in rows if row["paused_port"] == "sw0->sw1")
    assert figures["most_paused_port"] == "sw0->sw1" and figures["share"] == trunk / run.info["simulated_ps"]
    assert (figures["pauses"], figures["storms"], figures["made_by"]) == (747, 1, ["overload"])
    assert incident.root.sentence.startswith(storms(run)[0].sentence())
    victim = one([incident], "FH104")
    assert (victim.where, victim.severity) == ("victim", "warning")
    assert victim.figures["share"] == pytest.approx(0.879, abs=0.001)
    flows = [row for row in run.flows.to_pylist() if row["label"] == "overload"]
    unheeded = one([incident], "FH201", "overload")
    assert unheeded.figures == {name: sum(row[name] for row in flows) for name in ("marks", "cnps")}
    assert "no congestion control" in unheeded.sentence
    assert "with it came: 1 message of workload victim held up" in incident.sentence


def test_senders_that_heed_marks_are_not_blamed(run_of):
    found = check(run_of("incast/victim", "nic.cc.kind=dcqcn"))
    assert not [alert for item in found for alert in item.alerts if alert.code == "FH201"]
    # Told, but without anything that would slow them down.
    found = check(run_of("incast/victim", "nic.cc.kind=fixed", "nic.cc.rate=100Gbps"))
    assert "no congestion control" in one(found, "FH201", "overload").sentence


def test_senders_that_do_not_heed_marks_are_found_beside_one_that_does(run_of):
    fabric = {"kind": "dumbbell", "left": 3, "right": 1}
    cc = {"kind": "none", "rate_min": "100Mbps", "rate_ai": "100Mbps", "rate_hai": "1Gbps"}
    scenario = {
        "fabric": fabric,
        "switch": {"buffer": "8MiB", "ecn": {"kmin": "100KB", "kmax": "400KB"}},
        "nic": {"cc": cc, "override": [{"name": "h0", "cc": {"kind": "dcqcn"}}]},
        "workload": [{"kind": "incast", "label": "all", "receiver": "h3", "senders": "h0:h2", "size": "2MB"}],
    }
    run = run_of(scenario)
    marks = {row["src"]: row["marks"] for row in run.flows.to_pylist()}
    assert set(marks) == {"h0", "h1", "h2"} and all(marks.values())
    unheeded = one(check(run), "FH201", "all")
    assert unheeded.figures["marks"] == marks["h1"] + marks["h2"] >= DEFAULTS.marks
    lost, total = marks["h1"] + marks["h2"], sum(marks.values())
    why = "some of its senders have no congestion control"
    assert unheeded.sentence == f"{lost:,} of {total:,} marks of all changed no rate: {why}"
    # From the threshold on.
    for limit, count in ((lost, 1), (lost + 1, 0)):
        found = check(run, replace(DEFAULTS, marks=limit))
        assert len([alert for item in found for alert in item.alerts if alert.code == "FH201"]) == count


def test_pauses_without_marks(run_of):
    (incident,) = check(run_of("incidents/head-of-line", "switch.ecn.enabled=false"))
    assert codes(incident) == ["FH101", "FH104", "FH105"]
    assert one([incident], "FH105").figures == {"pauses": 297, "marks": 0, "class": "rdma"}
    with_ecn = check(run_of("incidents/head-of-line"))
    assert not [alert for item in with_ecn for alert in item.alerts if alert.code == "FH105"]


def test_smaller_storms_inside_a_larger_one_belong_to_it(run_of):
    (incident,) = check(run_of("incidents/pause-tree"))
    assert codes(incident) == ["FH101", "FH101", "FH105", "FH106"]
    assert incident.root.where == "edge0-0->h0"
    assert {alert.where for alert in incident.others if alert.code == "FH101"} == {"core0->agg0-0", "core1->agg0-1"}
    assert "(and 1 more alike)" in incident.sentence


def test_a_storm_of_a_host_its_watchdog_and_its_drops(run_of):
    incidents = check(run_of("incidents/storm"))
    assert codes(incidents[0]) == ["FH102", "FH104", "FH107"]
    assert incidents[0].root.where == "h3->leaf1" and incidents[0].severity == "critical"
    assert one(incidents, "FH107").figures == {"found": 1, "dropped_frames": 1736, "classes": ["rdma"]}


def test_a_slow_receiver(run_of):
    (incident,) = check(run_of("incidents/slow-receiver"))
    assert codes(incident) == ["FH103", "FH104"] and incident.root.where == "h3->sw1"


def test_a_deadlock_has_the_storms_of_its_cycle_and_all_that_came_of_it(run_of):
    (incident,) = check(run_of("incidents/deadlock"))
    assert codes(incident) == ["FH501", "FH101", "FH104", "FH502", "FH503"]
    assert set(incident.root.figures["cycle"]) == {"sw0->sw1", "sw1->sw2", "sw2->sw3", "sw3->sw0"}
    assert incident.root.since_ps == 30 * 10**6
    assert one([incident], "FH503").figures["failed"] == 4
    assert len([alert for alert in incident.others if alert.code == "FH502"]) == 4


def test_drops_of_a_lossless_class_belong_to_the_storm_or_to_the_headroom_that_ran_out(run_of):
    (incident,) = check(run_of("incidents/long-cable"))
    assert codes(incident) == ["FH101", "FH105", "FH106", "FH301"]
    drops = one([incident], "FH301")
    assert (drops.severity, drops.where, drops.figures["frames"]) == ("critical", "sw0", 217)
    # Without PFC at that hop there is no storm: the headroom that was full is part of the losses.
    incidents = check(run_of("incidents/unmarked-hop"))
    (losses,) = [item for item in incidents if item.root.code == "FH301"]
    assert codes(losses) == ["FH301", "FH106"] and losses.root.figures["frames"] == 3261


def test_drops_of_a_lossy_class_are_a_fact(run_of):
    incidents = check(run_of("incidents/lossless-beside-lossy"))
    fact = one(incidents, "FH303")
    assert (fact.severity, fact.figures["frames"]) == ("info", 708)
    assert not [alert for item in incidents for alert in item.alerts if alert.code == "FH301"]


def test_links_that_go_down_explain_the_frames_that_were_lost_there(run_of):
    incidents = check(run_of("incidents/clos-deadlock", "routing.convergence=10ms", "until=300us"))
    links = [item for item in incidents if item.root.code == "FH504"]
    assert {item.root.where for item in links} == {"leaf0->spine1", "leaf1->spine0"}
    for item in links:
        assert "FH302" in codes(item) and item.root.since_ps == 50 * 10**6 and item.root.until_ps is None
        assert item.root.figures == {"times": 1, "down_ps": 250 * 10**6}


def test_uplinks_that_share_flows_while_others_idle(run_of):
    run = run_of("balancing/elephants-ecmp", "workload.0.flow.0.size=2MB")
    uneven = one(check(run), "FH401")
    assert uneven.where == "leaf0" and uneven.figures["effective"] < 0.5 and uneven.figures["jain"] < 0.6
    # Pauses keep uplinks from being used, however even their choice is.
    assert not [
        alert for item in check(run_of("incidents/pause-tree")) for alert in item.alerts if alert.code == "FH401"
    ]


def test_even_uplinks_with_little_to_send_are_not_blamed(run_of):
    run = run_of("websearch-leaf-spine", "until=300us", "switch.load_balancing=spray", "workload.0.load=0.4")
    needed = [row for row in balance(run).uplinks.to_pylist() if row["needed_ps"] > 0]
    assert len(needed) > 4
    assert all(row["effective"] < 0.5 and row["jain"] > 0.95 for row in needed)
    assert "FH401" not in {alert.code for item in check(run) for alert in item.alerts}
    # The same load by hashes.
    run = run_of("websearch-leaf-spine", "until=300us", "workload.0.load=0.4")
    assert "FH401" in {alert.code for item in check(run) for alert in item.alerts}


def test_uneven_uplinks_of_two_each(run_of):
    found = check(run_of("permutation/fat-tree-k4"))
    uneven = [alert for item in found for alert in item.alerts if alert.code == "FH401"]
    assert uneven and all(alert.figures["ports"] == 2 and alert.figures["jain"] < 0.6 for alert in uneven)


def test_uneven_uplinks_of_many_switches_are_one_incident(run_of):
    run = run_of("permutation/fat-tree-k4", "fabric.k=8", "workload.0.count=1")
    found = [incident for incident in check(run) if "FH401" in codes(incident)]
    (incident,) = found
    effective = [alert.figures["effective"] for alert in incident.alerts]
    assert len(effective) > 2 and effective == sorted(effective)
    assert f"(and {len(effective) - 2} more alike)" in incident.sentence


def test_a_long_tail():
    flows = [{"src": "h0", "dst": "h4", "size": "4KB", "start": f"{10 * turn}us"} for turn in range(30)]
    flows += [{"src": f"h{host}", "dst": "h5", "size": "200KB", "start": "100us"} for host in (1, 2, 3)]
    flows += [{"src": "h0", "dst": "h5", "size": "4KB", "start": "110us"} for _ in range(2)]
    scenario = {
        "fabric": {"kind": "dumbbell", "left": 4, "right": 2},
        "link": {"rate": "100Gbps"},
        "nic": {"cc": {"kind": "none"}},
        "switch": {"ecn": {"enabled": False}},
        "workload": [{"kind": "flows", "label": "mixed", "flow": flows}],
    }
    run = fabemu.run(scenario)
    slowdown = sorted(row["slowdown"] for row in run.flows.to_pylist())
    tail = one(check(run, replace(DEFAULTS, tail_ratio=3)), "FH402")
    assert tail.figures["p50"] == slowdown[(len(slowdown) + 1) // 2 - 1]
    assert tail.figures["p99"] == tail.figures["max"] == slowdown[-1] >= 3 * tail.figures["p50"]
    over = replace(DEFAULTS, tail_ratio=slowdown[-1] / tail.figures["p50"] + 0.01)
    assert not [alert for item in check(run, over) for alert in item.alerts if alert.code == "FH402"]


def test_messages_that_did_not_finish(run_of):
    cut = one(check(run_of("incast/victim", "until=400us")), "FH503", "victim")
    assert (cut.severity, cut.figures["unfinished"]) == ("warning", 1)
    lost = one(check(run_of("incidents/deadlock")), "FH503")
    assert lost.severity == "critical"


def test_thresholds_change_what_is_found(run_of):
    run = run_of("incast/victim")
    assert check(run, replace(DEFAULTS, pause_share=0.9, victim_share=0.9, marks=10**6)) == []
    (incident,) = check(run, replace(DEFAULTS, pause_share_critical=0.9))
    assert incident.severity == "warning"


def test_incidents_come_most_severe_first(run_of):
    for case in (("incidents/storm",), ("incidents/unmarked-hop",), ("incidents/lossless-beside-lossy",)):
        places = [SEVERITIES.index(item.severity) for item in check(run_of(*case))]
        assert places == sorted(places)


def test_every_alert_is_of_an_alarm_that_is_explained(run_of):
    assert list(ALARMS) == sorted(ALARMS) and {code[:3] for code in ALARMS} == set(FAMILIES)
    text = " ".join(alarm.meaning for alarm in ALARMS.values())
    for item in fields(Thresholds):
        assert any(code in item.metadata["meaning"] for code in ALARMS), item.name
        assert f"`{item.name}`" in text or item.name == "pause_share_critical", item.name
    for alarm in ALARMS.values():
        assert alarm.severity in SEVERITIES and alarm.meaning.endswith(".") and alarm.remedy.endswith(".")


def test_alerts_of_one_code_are_told_once():
    def alert(code, phrase):
        return Alert(code, ALARMS[code].severity, "x", None, None, f"{phrase}, in full", phrase)

    others = (alert("FH301", "a"), alert("FH106", "b"), alert("FH106", "c"), alert("FH106", "d"))
    assert Incident(alert("FH101", "r")).sentence == "r, in full"
    incident = Incident(alert("FH101", "r"), others)
    assert incident.sentence == "r, in full; with it came: a; b (and 2 more alike)"
    assert incident.severity == "critical"


# Bad input.


@pytest.fixture
def copied(run_of, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(run_of("incidents/storm").directory, directory)
    return directory


@pytest.mark.parametrize("table", ["flows", "ports", "pauses", "drops", "events"])
def test_tables_that_are_not_there_are_noted(copied, table):
    whole = examine(fabemu.load(copied))
    (copied / f"{table}.arrow").unlink()
    found = examine(fabemu.load(copied))
    assert any(f"has no {table} table" in note for note in found.notes)
    # What needs it is left out, the rest is as before.
    expected = {alert.code for item in whole.incidents for alert in item.alerts}
    lost = {
        "flows": {"FH104"},
        "ports": {"FH105"},
        "pauses": {"FH102", "FH104", "FH105"},
        "drops": set(),
        "events": {"FH107"},
    }[table]
    assert {alert.code for item in found.incidents for alert in item.alerts} == expected - lost


def test_a_run_without_any_table_has_only_notes(copied):
    for table in copied.glob("*.arrow"):
        table.unlink()
    found = examine(fabemu.load(copied))
    assert found.incidents == () and len(found.notes) == 5


def test_a_run_that_was_killed_says_so(copied):
    info = json.loads((copied / "run.json").read_text(encoding="utf-8"))
    del info["simulated_ps"]
    (copied / "run.json").write_text(json.dumps({**info, "status": "running"}), encoding="utf-8")
    found = examine(fabemu.load(copied))
    assert "was killed" in found.notes[0] and codes(found.incidents[0])[0] == "FH102"


@pytest.mark.parametrize("status", ["running", "failed", "fault"])
def test_what_was_cut_off_is_not_called_healthy(run_of, tmp_path, status):
    directory = tmp_path / "cut"
    shutil.copytree(run_of("smoke/two-hosts").directory, directory)
    assert invoke(directory, "--fail-on", "warning").return_value == 0
    info = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    (directory / "run.json").write_text(json.dumps({**info, "status": status}), encoding="utf-8")
    found = examine(fabemu.load(directory))
    assert not found.incidents and set(found.unchecked) >= {"FH101", "FH301", "FH503"}
    done = invoke(directory)
    assert "Healthy" not in done.output and "not all could be looked at" in done.output
    with pytest.raises(InputError, match="--fail-on warning cannot be judged: FH101, "):
        invoke(directory, "--fail-on", "warning")


# The command.


def invoke(*arguments):
    return CliRunner().invoke(command, ["health", *map(str, arguments)], standalone_mode=False, catch_exceptions=False)


def test_the_command(run_of):
    directory = run_of("incidents/storm").directory
    done = invoke(directory)
    assert done.return_value == 0
    lines = done.stdout.splitlines()
    assert lines[:2] == ["2 incidents: 1 critical, 1 warning", "1. critical: a host paused its link in a storm"]
    assert any(line.startswith("  FH107 critical leaf1->h3: found 1, dropped frames 1,736") for line in lines)
    assert invoke(run_of("smoke/two-hosts").directory).stdout == "Healthy: nothing to report\n"


def test_the_command_fails_when_it_is_asked_to(run_of):
    storm, quiet = run_of("incidents/storm").directory, run_of("smoke/two-hosts").directory
    assert invoke(storm, "--fail-on", "critical").return_value == 4
    assert invoke(quiet, "--fail-on", "warning").return_value == 0
    mild = ("--threshold", "pause_share_critical=0.9", "--threshold", "pause_share=0.05")
    victim = run_of("incast/victim").directory
    assert invoke(victim, *mild, "--fail-on", "critical").return_value == 0
    assert invoke(victim, *mild, "--fail-on", "warning").return_value == 4


def test_the_command_gives_json(run_of):
    found = json.loads(invoke(run_of("incidents/storm").directory, "--threshold", "marks=7", "--json").stdout)
    assert found["thresholds"]["marks"] == 7 and found["notes"] == []
    root = found["incidents"][0]["root"]
    assert (root["code"], root["title"], root["figures"]["depth"]) == ("FH102", ALARMS["FH102"].title, 4)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("pause=1", "NAME=VALUE with a name of pause_share"),
        ("marks=x", "a whole number"),
        ("tail_ratio=-1", "a number"),
    ],
)
def test_thresholds_that_are_none(run_of, setting, message):
    from click import BadParameter

    with pytest.raises(BadParameter, match=message):
        invoke(run_of("smoke/two-hosts").directory, "--threshold", setting)
