"""The linter for SONiC configurations."""

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fabemu.cli import command
from fabemu.headroom import headroom_bound_bytes
from fabemu.importers.sonic_switch import read_switch
from fabemu.lint.sonic import RULES, lint_sonic
from fabemu.lint.sonic_buffers import headroom_bound
from fabemu.lint.sonic_priorities import spans

DATA = Path(__file__).parents[1] / "data" / "sonic"
LOOKUP = DATA / "pg_profile_lookup.ini"
PORTS = ("Ethernet0", "Ethernet4", "Ethernet8", "Ethernet12")
ALL = ",".join(PORTS)
SLOW, FAST = "pg_lossless_50000_5m_profile", "pg_lossless_100000_40m_profile"


def changed(tmp_path, change, name="t0.json"):
    data = json.loads((DATA / name).read_text())
    change(data)
    path = tmp_path / "config_db.json"
    path.write_text(json.dumps(data, indent=1))
    return path


def codes(found):
    return [finding.code for finding in found]


def test_codes_are_unique_and_of_one_family():
    assert len({rule.code for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"FB6\d\d", rule.code)
        assert rule.title[0].islower() or rule.title.startswith(("ECN", "JSON", "PFC"))
        assert not rule.title.endswith(".")
        for text in (rule.meaning, rule.reason, rule.remedy):
            assert text.endswith(".")
        assert rule.source


def test_a_good_configuration_has_no_finding():
    assert lint_sonic(DATA / "t0.json") == []
    assert lint_sonic(DATA / "lossy.json") == []


def test_a_flat_dump_has_the_findings_of_the_nested_one(tmp_path):
    nested = json.loads((DATA / "bad.json").read_text())
    flat = {
        f"{table}|{key}": fields
        for table, entries in nested.items()
        if isinstance(entries, dict)
        for key, fields in entries.items()
    }
    flat["LOSSLESS_TRAFFIC_PATTERN"] = nested["LOSSLESS_TRAFFIC_PATTERN"]
    paths = [tmp_path / "flat.json", tmp_path / "nested.json"]
    for path, data in zip(paths, (flat, nested), strict=True):
        path.write_text(json.dumps(data, indent=1))
    found = [[re.sub(r"\S+\.json(:\d+)?(: )?", "", str(finding)) for finding in lint_sonic(path)] for path in paths]
    assert found[0] == found[1]


def test_computed_profiles_are_noted_or_looked_up():
    assert codes(lint_sonic(DATA / "t1-400g-flat.json")) == ["FB618"]
    found = lint_sonic(DATA / "t1-400g-flat.json", LOOKUP)
    assert codes(found) == ["FB611"]
    assert found[0].figures == {
        "xoff_bytes": 8 * 65_000 + 4 * 140_000,
        "pool_bytes": 800_000,
        "ratio": 1.35,
        "over_subscribe_ratio": 2,
    }


def test_everything_is_wrong_in_the_bad_file():
    found = lint_sonic(DATA / "bad.json")
    missing = {rule.code for rule in RULES} - set(codes(found))
    assert missing == {"FB605", "FB610", "FB614", "FB615", "FB634", "FB643"}
    severities = [finding.severity for finding in found]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    lines = (DATA / "bad.json").read_text().splitlines()
    for finding in found:
        for place in finding.places:
            line, path = re.fullmatch(r".*bad\.json:(\d+): (.*)", place).groups()
            assert f'"{path.split(".")[-1]}"' in lines[int(line) - 1] or "." in path, place
    assert "FB614" in codes(lint_sonic(DATA / "bad.json", LOOKUP))


def _set(*path):
    """A change that sets a value: table, key, field, value; or removes with None."""

    def change(data):
        *keys, value = path
        table = data
        for key in keys[:-1]:
            table = table[key]
        if value is None:
            del table[keys[-1]]
        else:
            table[keys[-1]] = value

    return change


def _all(*changes):
    def change(data):
        for item in changes:
            item(data)

    return change


def _pfc(port, value):
    return _set("PORT_QOS_MAP", port, "pfc_enable", value)


def _new_queue(name):
    return lambda data: data["QUEUE"][f"{ALL}|3-4"].update(wred_profile=name)


def _remap(dscp, traffic_class):
    return _set("DSCP_TO_TC_MAP", "AZURE", dscp, traffic_class)


WRED = ("WRED_PROFILE", "AZURE_LOSSLESS")
CASES = {
    "a number": (_set("PORT", "Ethernet0", "mtu", 9100), ["FB602"], 'write "9100"'),
    "a boolean": (_set(*WRED, "wred_green_enable", True), ["FB602"], 'write "true"'),
    "an object as a value": (_set("PORT", "Ethernet0", "alias", {}), ["FB601"], "is an object; a value is a text"),
    "a speed in words": (_set("PORT", "Ethernet0", "speed", "50G"), ["FB603"], 'is "50G"; a speed in Mb/s is needed'),
    "no queues": (_set("QUEUE", {}), ["FB605"], "QUEUE is absent: not checked: ECN of the lossless queues"),
    "no map": (
        _set("TC_TO_QUEUE_MAP", None),
        ["FB606", "FB605"],
        'names "AZURE", which TC_TO_QUEUE_MAP does not have; there is no such table',
    ),
    "a stray port": (_set("PFC_WD", "Ethernet1", {"detection_time": "200"}), ["FB607"], "Ethernet1 is not in PORT"),
    "overlapping keys": (
        _set("BUFFER_PG", "Ethernet0|4", {"profile": FAST}),
        ["FB608", "FB613"],
        "Ethernet0 4 has another value in",
    ),
    "a pool that is too small": (
        _set("BUFFER_POOL", "ingress_lossless_pool", "size", "351999"),
        ["FB610"],
        "reserved 352,000 B = 352,000 B are above the pool of 351,999 B: 1 B too much",
    ),
    "a pool that just fits": (
        _all(
            _set("BUFFER_POOL", "ingress_lossless_pool", "size", "352000"),
            _set("QUEUE", {"Ethernet0|0": {"scheduler": "scheduler.0"}}),
        ),
        ["FB624"],
        "queues 3 and 4 are paused by PFC, but no WRED profile is bound",
    ),
    "a shared headroom pool that just fits": (
        _set("BUFFER_POOL", "ingress_lossless_pool", "xoff", str(2 * 2 * (20_000 + 28_000))),
        [],
        "",
    ),
    "a shared headroom pool one byte smaller": (
        _set("BUFFER_POOL", "ingress_lossless_pool", "xoff", str(2 * 2 * (20_000 + 28_000) - 1)),
        ["FB611"],
        "8 lossless priority groups with 192,000 B of xoff share 191,999 B: oversubscribed 1.00:1",
    ),
    "a longer cable": (
        _set("CABLE_LENGTH", "AZURE", "Ethernet8", "300m"),
        ["FB612", "FB613"],
        "xoff 28,000 B of pg_lossless_100000_40m_profile is below the",
    ),
    "another speed": (_set("PORT", "Ethernet8", "speed", "50000"), ["FB613"], "used by a port of 50Gbps and 40m"),
    "no threshold": (_set("BUFFER_PROFILE", SLOW, "dynamic_th", None), ["FB616"], "neither dynamic_th nor static_th"),
    "two thresholds": (_set("BUFFER_PROFILE", SLOW, "static_th", "1"), ["FB616", "FB625"], "dynamic_th and static_th"),
    "a static threshold above the pool": (
        _all(_set("BUFFER_PROFILE", SLOW, "dynamic_th", None), _set("BUFFER_PROFILE", SLOW, "static_th", "12000000")),
        ["FB617"],
        "12,000,000 B is not below the 12,000,000 B of ingress_lossless_pool",
    ),
    "ECN without a threshold": (
        _set(*WRED, "green_max_threshold", None),
        ["FB620"],
        "ecn = ecn_all, but green_max_threshold is not given",
    ),
    "ECN of green packets only": (
        _all(
            _set(*WRED, "ecn", "ecn_green"),
            *(_set(*WRED, f"wred_{colour}_enable", "false") for colour in ("yellow", "red")),
        ),
        ["FB621", "FB621"],
        "yellow has thresholds, but ecn = ecn_green: the profile does nothing",
    ),
    "thresholds without ECN": (
        _set(*WRED, "ecn", "ecn_none"),
        ["FB622", "FB621", "FB621", "FB621", "FB624"],
        "queues 3 and 4 are lossless, but AZURE_LOSSLESS drops green, yellow and red packets early",
    ),
    "thresholds the wrong way round": (
        _set(*WRED, "green_min_threshold", "1000001"),
        ["FB623"],
        "1,000,001 B is above green_max_threshold, 1,000,000 B",
    ),
    "a port without ECN": (
        lambda data: data["QUEUE"].update({"Ethernet0,Ethernet4,Ethernet8|3-4": data["QUEUE"].pop(f"{ALL}|3-4")}),
        ["FB624"],
        "queues 3 and 4 are paused by PFC, but no WRED profile is bound",
    ),
    "ECN above PFC": (
        _set(*WRED, "green_max_threshold", "3000000"),
        ["FB625"],
        "green_max_threshold: 3,000,000 B are above the 2,329,600 B at which PFC pauses a priority group that is alone",
    ),
    "a DSCP that nobody maps": (_remap("26", None), ["FB630", "FB634"], "maps no DSCP 26 (1 of 64)"),
    "a class without queue": (
        _set("TC_TO_QUEUE_MAP", "AZURE", "6", None),
        ["FB631"],
        "TC_TO_QUEUE_MAP AZURE has no traffic class 6",
    ),
    "a class that is not used without queue": (_set("TC_TO_QUEUE_MAP", "AZURE", "7", None), [], ""),
    "a lossless class on a lossy group": (
        _set("BUFFER_PG", "Ethernet0,Ethernet4|3-4", "profile", "ingress_lossy_profile"),
        ["FB632", "FB632"],
        "PFC is on for priority 3, but its priority group has ingress_lossy_profile without xoff",
    ),
    "a lossless group without PFC": (
        _all(*(_pfc(port, "3") for port in PORTS)),
        ["FB633", "FB633"],
        "priority group 4 is lossless (pg_lossless_50000_5m_profile), but pfc_enable = 3",
    ),
    "a PFC priority that nobody has": (
        _remap("27", "0"),
        ["FB634"],
        "PFC is on for priority 4, but no DSCP leads to priority group 4",
    ),
    "one port without PFC": (
        _pfc("Ethernet12", ""),
        ["FB633", "FB633", "FB635"],
        "has no PFC; 3 of 4 ports have it for 3-4",
    ),
    "one port without PFC for one priority": (
        _pfc("Ethernet12", "3"),
        ["FB633", "FB635"],
        "has PFC for priority 3; 3 of 4 ports have it for 3-4",
    ),
    "a port without PFC that is down": (
        _all(_pfc("Ethernet12", ""), _set("PORT", "Ethernet12", "admin_status", "down")),
        [],
        "",
    ),
    "a pause of another queue": (
        _set("MAP_PFC_PRIORITY_TO_QUEUE", "AZURE", "3", "2"),
        ["FB636", "FB624", "FB638", "FB638"],
        "traffic class 3 uses priority group 3, whose pause (priority 3) stops queue 2, but it leaves by queue 3",
    ),
    "other traffic in a lossless group": (
        _set("TC_TO_PRIORITY_GROUP_MAP", "AZURE", "0", "3"),
        ["FB637"],
        "traffic class 0 uses priority group 3, whose pause (priority 3) stops queue 3, but it leaves by queue 0",
    ),
    "a lossless queue with a lossy profile": (
        _set("BUFFER_QUEUE", f"{ALL}|3-4", "profile", "egress_lossy_profile"),
        ["FB638", "FB638"],
        "queue 3 is lossless and has egress_lossy_profile, as lossy queues have",
    ),
    "a slow poll": (
        _set("PFC_WD", "GLOBAL", "POLL_INTERVAL", "201"),
        ["FB640"],
        "the detection time of 200 ms is below the poll interval of 201 ms",
    ),
    "a port without watchdog": (_set("PFC_WD", "Ethernet4", None), ["FB641"], "3 other ports have one"),
    "a watchdog that was asked for": (
        _all(_set("PFC_WD", None), _set("PORT_QOS_MAP", "Ethernet0", "pfcwd_sw_enable", "3,4")),
        ["FB641"],
        "pfcwd_sw_enable asks for one",
    ),
    "no detection time": (_set("PFC_WD", "Ethernet4", "detection_time", None), ["FB642"], "has no detection_time"),
    "no watchdog": (_set("PFC_WD", None), ["FB643"], "4 ports have PFC, none a watchdog"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_thing_is_wrong(tmp_path, name):
    change, expected, message = CASES[name]
    found = lint_sonic(changed(tmp_path, change))
    assert sorted(codes(found)) == sorted(expected), list(map(str, found))
    assert any(message in str(finding) for finding in found) or not expected, list(map(str, found))


def test_the_lookup_file_and_the_configuration_differ(tmp_path):
    lookup = tmp_path / "pg_profile_lookup.ini"
    lookup.write_text("50000 5m 40000 20000 20000 -2\n100000 40m 48000 20000 28001 -2\n")
    found = lint_sonic(DATA / "t0.json", lookup)
    assert codes(found) == ["FB615"]
    assert f"xoff of {FAST} is 28,000; {lookup}:2 has 28,001" in found[0].message


def test_the_lookup_file_lacks_a_cable(tmp_path):
    path = changed(tmp_path, lambda data: data["CABLE_LENGTH|AZURE"].update(Ethernet0="4m"), "t1-400g-flat.json")
    found = lint_sonic(path, LOOKUP)
    assert codes(found) == ["FB614", "FB611"]
    assert "has no line for 400Gbps and 4m" in found[0].message


def test_a_key_that_is_there_twice(tmp_path):
    text = (DATA / "t0.json").read_text().replace('"mtu": "9100",', '"mtu": "1500", "mtu": "9100",', 1)
    path = tmp_path / "config_db.json"
    path.write_text(text)
    found = lint_sonic(path)
    assert codes(found) == ["FB604"]
    assert found[0].places[0].endswith("PORT.Ethernet0.mtu")


def test_the_bound_is_that_of_scenarios():
    """With no larger frame in the way the bound is exactly that of FB101, and xoff at the bound is enough."""
    port = read_switch(DATA / "t0.json").ports["Ethernet8"]
    for mtu in (1024, 4096, 9100):
        bound, _ = headroom_bound(port, mtu)
        largest = max(mtu, 9100) + 18
        exact = headroom_bound_bytes(rate_bps=10**11, delay_ps=200_000, frame_bytes=mtu + 18)
        assert bound == exact + largest - mtu - 18
    assert headroom_bound(port, 9100)[0] == headroom_bound_bytes(rate_bps=10**11, delay_ps=200_000, frame_bytes=9118)


@pytest.mark.parametrize(("missing", "codes_found"), [(1, ["FB612"]), (0, [])])
def test_xoff_at_the_bound_and_one_byte_below(tmp_path, missing, codes_found):
    port = read_switch(DATA / "t0.json").ports["Ethernet8"]
    xoff = headroom_bound(port, 4096)[0] - missing
    path = changed(tmp_path, _set("BUFFER_PROFILE", FAST, "xoff", str(xoff)))
    assert codes(lint_sonic(path)) == codes_found


def test_spans():
    assert spans([5, 0, 1, 2, 7]) == "0-2, 5, 7"
    assert spans([]) == ""


# The command


def check(*arguments):
    return CliRunner().invoke(command, ["check", *map(str, arguments)], standalone_mode=False)


def test_check_of_a_good_file():
    result = check(DATA / "t0.json")
    assert result.return_value == 0
    assert result.stdout.startswith(f"{DATA / 't0.json'}: fine\n")
    assert "4 ports" in result.stdout


def test_check_of_a_bad_file():
    result = check(DATA / "bad.json")
    assert result.return_value == 2
    assert "FB632" in result.stdout
    assert "fabemu explain" in result.stderr


def test_check_with_the_lookup_file():
    result = check(DATA / "t1-400g-flat.json", "--profiles", LOOKUP)
    assert result.return_value == 0
    assert "FB611" in result.stdout
    assert "fine, 1 warning" in result.stdout


def test_check_as_json():
    result = check(DATA / "bad.json", "--json")
    assert result.return_value == 2
    found = json.loads(result.stdout)["findings"]
    assert {"code", "severity", "places", "message", "figures"} <= set(found[0])
    assert codes(lint_sonic(DATA / "bad.json")) == [item["code"] for item in found]


def test_options_of_scenarios_say_nothing_about_a_switch(tmp_path):
    for option in (["--set", "a=1"], ["--show"], ["--congested-ports", "2"]):
        assert isinstance(check(DATA / "t0.json", *option).exception, click.UsageError)
    scenario = tmp_path / "s.toml"
    scenario.write_text("")
    with pytest.raises(click.UsageError, match="--profiles is for"):
        raise check(scenario, "--profiles", LOOKUP).exception


def test_every_code_is_explained():
    for rule in RULES:
        result = CliRunner().invoke(command, ["explain", rule.code], standalone_mode=False)
        assert result.return_value in (0, None)
        assert f"{rule.code}: {rule.title} ({rule.severity})" in result.stdout


CHASSIS_PORT = {"speed": "400000", "mtu": "9100", "admin_status": "up"}
CHASSIS_QUEUES = {
    f"{card}|{chip}|Ethernet{port}|3": {"wred_profile": profile}
    for card, chip, ports, profile in (
        ("card-1", "asic0", (0, 8), "ECN"),
        ("card-1", "asic1", (144, 152), "ECN"),
        ("card-2", "Asic0", (0, 8), "OTHER"),
    )
    for port in ports
}


def chassis(tmp_path, **more):
    """One chip of a line card: queues towards the ports of all chips, PFC on its own."""
    wred = {"ecn": "ecn_green", "green_min_threshold": "100000", "green_max_threshold": "200000"}
    wred |= {"green_drop_probability": "5", "wred_green_enable": "true"}
    data = {
        "PORT_QOS_MAP": {"global": {}, "Ethernet0": {"pfc_enable": "3"}, "Ethernet8": {"pfc_enable": "3"}},
        "WRED_PROFILE": {"ECN": wred, "OTHER": {**wred, "green_min_threshold": "1000"}},
        "QUEUE": CHASSIS_QUEUES,
        **more,
    }
    path = tmp_path / "config_db.json"
    path.write_text(json.dumps(data))
    return path


NAMED = {"DEVICE_METADATA": {"localhost": {"hostname": "card-2", "asic_name": "asic0"}}}
PORT_TABLE = {"PORT": {"Ethernet0": CHASSIS_PORT, "Ethernet8": CHASSIS_PORT}}


@pytest.mark.parametrize(
    ("more", "profile"), [({}, "ECN"), (PORT_TABLE, "ECN"), (NAMED, "OTHER"), (NAMED | PORT_TABLE, "OTHER")]
)
def test_queues_towards_other_chips_of_a_chassis_are_not_of_this_switch(tmp_path, more, profile):
    switch = read_switch(chassis(tmp_path, **more))
    assert {port: binding.name for (port, _), binding in switch.queue_wred.items()} == {
        "Ethernet0": profile,
        "Ethernet8": profile,
    }
    assert switch.data_ports == ["Ethernet0", "Ethernet8"] and switch.clashes == []
    assert len(switch.foreign) == len(CHASSIS_QUEUES) - 2
    found = codes(lint_sonic(tmp_path / "config_db.json"))
    assert "FB635" not in found and "FB608" not in found


def test_what_an_absent_table_would_say_is_not_held_against_a_file(tmp_path):
    path = changed(tmp_path, lambda data: data.pop("PORT_QOS_MAP"))
    found = lint_sonic(path)
    assert "FB633" not in codes(found)
    assert any("PORT_QOS_MAP is absent" in finding.message for finding in found)


def test_a_port_is_down_unless_it_is_said_to_be_up(tmp_path):
    def unused(data):
        """A port as switches have it that nothing is plugged into: no status, no PFC, no profiles."""
        data["PORT"]["Ethernet16"] = {"speed": "100000", "mtu": "9100"}

    path = changed(tmp_path, unused)
    assert not read_switch(path).is_up("Ethernet16")
    assert lint_sonic(path) == []

    def silent(data):
        unused(data)
        for fields in data["PORT"].values():
            fields.pop("admin_status", None)

    path = changed(tmp_path, silent)
    assert read_switch(path).is_up("Ethernet16")
    assert "FB635" in codes(lint_sonic(path))
