"""SONiC configurations to switch profiles."""

import json
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabemu.cli import command
from fabemu.compile import compile_plan
from fabemu.errors import InputError, OutputError
from fabemu.importers.sonic import ONLY_WHEN_EMPTY, import_sonic
from fabemu.importers.sonic_json import read_tables
from fabemu.importers.sonic_lookup import read_lookup
from fabemu.importers.sonic_switch import read_switch
from fabemu.scenario import load_scenario

DATA = Path(__file__).parents[1] / "data" / "sonic"
LOOKUP = DATA / "pg_profile_lookup.ini"
PORTS = ("Ethernet4", "Ethernet8", "Ethernet12")


def imported(tmp_path, name, lookup=None):
    path, notes = import_sonic(DATA / name, lookup, tmp_path / "switch.toml", force=True)
    return tomllib.loads(path.read_text()), "\n".join(notes)


def changed(tmp_path, change, name="t0.json"):
    """A copy of a configuration with changes."""
    data = json.loads((DATA / name).read_text())
    change(data)
    path = tmp_path / "config_db.json"
    path.write_text(json.dumps(data, indent=1))
    return path


def scenario(tmp_path, links, text=""):
    """A scenario with one switch of this profile and a host a link."""
    hosts = [f"h{index}" for index in range(len(links))]
    cables = [
        f'{{ a = "{host}", b = "sw0", rate = "{rate}", length = "{length}" }}'
        for host, (rate, length) in zip(hosts, links, strict=True)
    ]
    path = tmp_path / "scenario.toml"
    path.write_text(
        f'[fabric]\nkind = "graph"\nhosts = {json.dumps(hosts)}\nswitches = 1\nlinks = [{", ".join(cables)}]\n'
        f'[switch]\nprofile = "switch.toml"\n{text}\n[[workload]]\nkind = "permutation"\nsize = "10KB"\n'
    )
    return load_scenario(path)


# Profiles


def test_headroom_within_the_size(tmp_path):
    profile, notes = imported(tmp_path, "t0.json")
    switch = profile["switch"]
    assert switch["buffer"] == "12MB"
    assert switch["pfc"]["alpha"] == "1/4", "dynamic_th -2"
    assert switch["pfc"]["by_link"] == [
        {"rate": "50Gbps", "length": "5m", "reserved": "20KB", "headroom": "20KB", "xon_offset": ONLY_WHEN_EMPTY},
        {"rate": "100Gbps", "length": "40m", "reserved": "20KB", "headroom": "28KB", "xon_offset": ONLY_WHEN_EMPTY},
    ]
    assert switch["lossy"] == {"alpha": "8", "egress_alpha": "4", "reserved": "4KiB"}
    assert switch["ecn"] == {"kmin": "250KB", "kmax": "1MB", "pmax": 0.05}
    assert profile["map"]["dscp"] == {"26": 3, "27": 4, "46": 5, "48": 6, "default": 0}
    assert profile["map"]["lossless"] == [3, 4]
    assert profile["map"]["weights"] == {"0": 14, "1": 14, "2": 14, "3": 15, "4": 15, "5": 14}
    assert {item["name"]: item["dscp"] for item in profile["class"]} == {
        "cnp": 48,
        "lossy-5": 46,
        "lossless-4": 27,
        "lossless-3": 26,
        "lossy-0": 0,
    }
    assert "pools ingress_lossy_pool" in notes
    (note,) = [note for note in notes.splitlines() if "xon of" in note]
    assert note.endswith(
        "xon of pg_lossless_50000_5m_profile and 1 more (20,000 B), the reserve: here XON comes when nothing but the "
        "reserve is used, xon_offset = 4294967295B, which is the same"
    )


def test_profiles_by_the_lookup_file(tmp_path):
    profile, notes = imported(tmp_path, "t1-400g-flat.json", LOOKUP)
    assert profile["switch"]["pfc"]["alpha"] == "1"
    assert profile["switch"]["pfc"]["by_link"] == [
        {"rate": "400Gbps", "length": "3m", "reserved": "2560B", "headroom": "65KB", "xon_offset": "3328B"},
        {"rate": "400Gbps", "length": "120m", "reserved": "2560B", "headroom": "140KB", "xon_offset": "3328B"},
    ]
    assert "shared headroom pool of 800,000 B" in notes
    assert "1,080,000 B for all ports" in notes


def test_profiles_that_the_switch_computes(tmp_path):
    profile, notes = imported(tmp_path, "t1-400g-flat.json")
    assert "headroom" not in profile["switch"].get("pfc", {})
    assert "headroom of 6 ports (Ethernet0 and so on): the switch computes it" in notes


def test_a_switch_without_pfc(tmp_path):
    profile, _ = imported(tmp_path, "lossy.json")
    assert "headroom" not in profile["switch"].get("pfc", {})
    assert profile["switch"]["ecn"] == {"enabled": False}
    assert profile["map"]["lossless"] == []
    assert not any(item.get("lossless") for item in profile["class"])
    loaded = scenario(tmp_path, [("25Gbps", "3m")] * 2)
    assert not any(item.lossless for item in loaded.classes)


def test_every_profile_runs_in_a_scenario_as_it_is(tmp_path):
    for name, lookup, links in (
        ("t0.json", None, [("50Gbps", "5m"), ("50Gbps", "5m"), ("100Gbps", "40m"), ("100Gbps", "40m")]),
        ("t1-400g-flat.json", None, [("400Gbps", "3m")] * 4 + [("400Gbps", "120m")] * 2),
        ("t1-400g-flat.json", LOOKUP, [("400Gbps", "3m")] * 4 + [("400Gbps", "120m")] * 2),
        ("lossy.json", None, [("25Gbps", "3m")] * 2),
    ):
        imported(tmp_path, name, lookup)
        loaded = scenario(tmp_path, links)
        plan = compile_plan(loaded, base_dir=tmp_path).plan
        assert int(plan.switch_buffer_bytes[0]) == loaded.switch.buffer


def test_what_a_port_gets_is_what_its_speed_and_cable_have(tmp_path):
    imported(tmp_path, "t0.json")
    loaded = scenario(tmp_path, [("50Gbps", "5m"), ("50Gbps", "5m"), ("100Gbps", "40m"), ("100Gbps", "40m")])
    plan = compile_plan(loaded, base_dir=tmp_path).plan
    classes = len(loaded.classes)
    of_class = plan.pq_headroom_bytes.reshape(-1, classes)[4:, loaded.class_id("lossless-3")]
    assert of_class.tolist() == [20_000, 20_000, 28_000, 28_000]
    assert plan.pq_reserved_bytes.reshape(-1, classes)[4:, loaded.class_id("lossy-0")].tolist() == [4096] * 4


def test_own_classes_by_their_dscp(tmp_path):
    imported(tmp_path, "t0.json")
    classes = '[[class]]\nname = "rdma"\npriority = 3\nlossless = true\ndscp = 26\n'
    classes += '[[class]]\nname = "rest"\npriority = 0\ncnp = true\n'
    loaded = scenario(tmp_path, [("50Gbps", "5m")] * 2, classes)
    assert [item.name for item in loaded.classes] == ["rdma", "rest"]
    with pytest.raises(
        ValueError, match=r'class "rdma" has DSCP 46, which .*switch.toml maps to queue 5, and no class'
    ):
        scenario(tmp_path, [("50Gbps", "5m")] * 2, classes.replace("26", "46"))


def test_no_xon_means_no_offset(tmp_path):
    def change(data):
        for name in ("pg_lossless_50000_5m_profile", "pg_lossless_100000_40m_profile"):
            del data["BUFFER_PROFILE"][name]["xon"]

    path = changed(tmp_path, change)
    written, _ = import_sonic(path, None, tmp_path / "switch.toml")
    links = tomllib.loads(written.read_text())["switch"]["pfc"]["by_link"]
    assert [item["xon_offset"] for item in links] == ["0B", "0B"]


@pytest.mark.parametrize(("xon", "where", "when"), [("21000", "above", "later"), ("19000", "below", "sooner")])
def test_xon_unlike_the_reserve_is_noted(tmp_path, xon, where, when):
    def change(data):
        data["BUFFER_PROFILE"]["pg_lossless_50000_5m_profile"]["xon"] = xon

    path, notes = import_sonic(changed(tmp_path, change), None, tmp_path / "switch.toml")
    assert (
        f"xon of pg_lossless_50000_5m_profile ({int(xon):,} B), {where} the reserve of 20,000 B: here XON comes when "
        f"nothing but the reserve is used, xon_offset = 4294967295B, {when} than there"
    ) in notes
    assert 'xon_offset = "4294967295B"  # XON when nothing but the reserve is used\n' in path.read_text()


def test_what_many_profiles_have_alike_is_one_note(tmp_path):
    def change(data):
        for name in ("pg_lossless_50000_5m_profile", "pg_lossless_100000_40m_profile"):
            data["BUFFER_PROFILE"][name] |= {"xon": "2544", "xon_offset": "4096"}

    _, notes = import_sonic(changed(tmp_path, change), None, tmp_path / "switch.toml")
    (note,) = [note for note in notes if note.startswith("xon of")]
    assert note == "xon of pg_lossless_50000_5m_profile and 1 more (2,544 B): XON follows xon_offset alone"


def test_one_set_of_values_needs_no_list(tmp_path):
    def change(data):
        data["BUFFER_PROFILE"]["pg_lossless_50000_5m_profile"] |= {"size": "48000", "xoff": "28000"}

    path, _ = import_sonic(changed(tmp_path, change), None, tmp_path / "switch.toml")
    pfc = tomllib.loads(path.read_text())["switch"]["pfc"]
    assert (pfc["reserved"], pfc["headroom"]) == ("20KB", "28KB")
    assert "by_link" not in pfc


def test_thresholds_by_speed(tmp_path):
    def change(data):
        wred = dict(data["WRED_PROFILE"]["AZURE_LOSSLESS"], green_min_threshold="100000", green_max_threshold="400000")
        data["WRED_PROFILE"]["SLOW"] = wred
        queue = data["QUEUE"].pop("Ethernet0,Ethernet4,Ethernet8,Ethernet12|3-4")
        data["QUEUE"]["Ethernet8,Ethernet12|3-4"] = queue
        data["QUEUE"]["Ethernet0,Ethernet4|3-4"] = {**queue, "wred_profile": "SLOW"}

    path, notes = import_sonic(changed(tmp_path, change), None, tmp_path / "switch.toml")
    ecn = tomllib.loads(path.read_text())["switch"]["ecn"]
    points = {item["rate"]: (item["kmin"], item["kmax"]) for item in ecn.pop("by_rate")}
    given = {"50Gbps": ("100KB", "400KB"), "100Gbps": ("250KB", "1MB")}
    assert {rate: points.get(rate, (ecn["kmin"], ecn["kmax"])) for rate in given} == given
    assert not any("WRED profiles" in note for note in notes)


def test_ports_with_other_pfc_are_set(tmp_path):
    def change(data):
        data["PORT_QOS_MAP"]["Ethernet4"]["pfc_enable"] = ""

    path, notes = import_sonic(changed(tmp_path, change), None, tmp_path / "switch.toml")
    profile = tomllib.loads(path.read_text())
    assert profile["switch"]["override"] == [{"peer": "h1", "pfc": {"enabled": False}}]
    assert not any(note.startswith("Ethernet4 has no PFC") for note in notes)


def test_watchdog(tmp_path):
    profile, _ = imported(tmp_path, "t0.json")
    assert profile["switch"]["watchdog"] == {
        "detection_time": "200ms",
        "restoration_time": "400ms",
        "poll_interval": "200ms",
        "action": "drop",
        "ports": "all",
    }


def test_watchdog_polls_no_slower_than_its_times(tmp_path):
    def change(data):
        data["PFC_WD"]["GLOBAL"]["POLL_INTERVAL"] = "1000"
        for port in PORTS:
            del data["PFC_WD"][port]["restoration_time"]
        del data["PFC_WD"]["Ethernet0"]

    path, notes = import_sonic(changed(tmp_path, change), None, tmp_path / "switch.toml")
    watchdog = tomllib.loads(path.read_text())["switch"]["watchdog"]
    assert watchdog["poll_interval"] == "200ms"
    assert watchdog["restoration_time"] == "400ms"
    assert watchdog["ports"] == ["h1", "spine0", "spine1"]
    assert "watchdog poll of 1000 ms, above its times: 200 ms here" in notes
    assert any("twice the detection time" in note for note in notes)


def test_other_tables_are_named(tmp_path):
    path = changed(tmp_path, lambda data: data.update({"VLAN": {"Vlan1000": {"vlanid": "1000"}}, "NTP": {}}))
    _, notes = import_sonic(path, None, tmp_path / "switch.toml")
    assert "2 other tables (NTP, VLAN)" in notes


def test_queues_without_scheduler_are_named(tmp_path):
    _, notes = imported(tmp_path, "t1-400g-flat.json", LOOKUP)
    assert "queues without scheduler (5, 6): they are strict here" in notes
    _, notes = imported(tmp_path, "t0.json")
    assert "without scheduler" not in notes


def test_static_thresholds_stay_within_the_buffer(tmp_path):
    def change(data):
        data["BUFFER_PROFILE"]["egress_lossy_profile"] = {"pool": "egress_lossy_pool", "static_th": "99000000"}

    path, _ = import_sonic(changed(tmp_path, change), None, tmp_path / "switch.toml")
    assert tomllib.loads(path.read_text())["switch"]["lossy"]["egress_static"] == "12MB"


# What is read


def test_flat_and_nested_say_the_same(tmp_path):
    nested = json.loads((DATA / "t0.json").read_text())
    flat = {f"{table}|{key}": fields for table, entries in nested.items() for key, fields in entries.items()}
    path = tmp_path / "flat.json"
    path.write_text(json.dumps(flat))
    assert read_tables(path).tables == read_tables(DATA / "t0.json").tables


def test_lines_are_those_of_the_file():
    tables = read_tables(DATA / "t0.json")
    lines = (DATA / "t0.json").read_text().splitlines()
    for (table, key, field), line in ((keys, line) for keys, line in tables.lines.items() if len(keys) == 3):
        assert f'"{field}":' in lines[line - 1], (table, key)
    assert tables.where(("BUFFER_PROFILE", "none", "size")) == f"{DATA / 't0.json'}:{tables.lines[('BUFFER_PROFILE',)]}"


def test_ranges_lists_and_references():
    switch = read_switch(DATA / "t0.json")
    assert switch.groups["Ethernet4", 3].name == switch.groups["Ethernet0", 4].name == "pg_lossless_50000_5m_profile"
    assert switch.profiles["pg_lossless_50000_5m_profile"].pool == "ingress_lossless_pool"
    assert switch.ports["Ethernet8"].cable_m == Fraction(40)
    assert switch.map_of("Ethernet0", "dscp_to_tc_map")[26] == 3
    assert switch.faults == [] and switch.dangling == []


def test_names_of_a_chassis(tmp_path):
    def change(data):
        data["QUEUE"]["card3|Asic0|Ethernet0|3"] = {"wred_profile": "AZURE_LOSSLESS"}

    switch = read_switch(changed(tmp_path, change))
    assert switch.queue_wred["Ethernet0", 3].name == "AZURE_LOSSLESS"


def test_empty_entries_of_the_database(tmp_path):
    path = changed(tmp_path, lambda data: data["BUFFER_POOL"].update({"none": {"NULL": "NULL"}}))
    assert read_tables(path).tables["BUFFER_POOL"]["none"] == {}


# Malformed files


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ("", "", "the file is empty"),
        ("{", ":1:2", "not valid JSON"),
        ('{\n"PORT": {\n "Ethernet0": {,}}}', ":3:16", "not valid JSON"),
        ("{% set x = 1 %}\n{}", ":1:2", "this is a template"),
        ("[1, 2]", "", "a list instead of an object of tables"),
        ("3", "", "a number instead of an object"),
        ("null", "", "null instead of an object"),
        ("{}", "", "it has no table"),
        ('{"VLAN": {}, "NTP": {}}', "", "it has VLAN, NTP"),
        ('{"localhost": {"PORT": {}}, "asic0": {"PORT": {}}}', "", "holds 2 name spaces"),
        ('{"PORT": [1]}', ":1: PORT", "is a list; a table is an object"),
        ('{"PORT": {"Ethernet0": "up"}}', ":1: PORT.Ethernet0", "is a text; an entry is an object"),
        ('{"PORT": {"Ethernet0": {"speed": null}}}', ":1: PORT.Ethernet0.speed", "is null; a value is a text"),
        ('{"PORT":\n {"Ethernet0":\n {"speed": "fast"}}}', ":3: PORT.Ethernet0.speed", 'is "fast"; a speed in Mb/s'),
        ('{"BUFFER_PROFILE": {"a": {"size": "-1"}}}', ":1: BUFFER_PROFILE.a.size", "is 0 or more"),
        ('{"BUFFER_PROFILE": {"a": {"size": "1e6"}}}', ":1: BUFFER_PROFILE.a.size", "a whole number is needed"),
        ('{"BUFFER_PROFILE": {"a": {"dynamic_th": "40"}}}', ":1: BUFFER_PROFILE.a.dynamic_th", "is -8 to 8"),
        ('{"BUFFER_PROFILE": {"a": {"pool": "none"}}}', ":1: BUFFER_PROFILE.a.pool", "BUFFER_POOL does not have"),
        ('{"BUFFER_PG": {"Ethernet0|4-3": {"profile": "NULL"}}}', ":1: BUFFER_PG.Ethernet0|4-3", '"4-3" is no number'),
        ('{"BUFFER_PG": {"Ethernet0|8": {"profile": "NULL"}}}', ":1: BUFFER_PG.Ethernet0|8", '"8" is no number'),
        ('{"BUFFER_PG": {"Ethernet0": {"profile": "NULL"}}}', ":1: BUFFER_PG.Ethernet0", "is no port and number"),
        ('{"BUFFER_PG": {"Ethernet0|3": {}}}', ":1: BUFFER_PG.Ethernet0|3", "has no profile"),
        ('{"CABLE_LENGTH": {"AZURE": {"Ethernet0": "5"}}}', ":1: CABLE_LENGTH.AZURE.Ethernet0", "length in metres"),
        ('{"WRED_PROFILE": {"w": {"ecn": "on"}}}', ":1: WRED_PROFILE.w.ecn", "ecn_none, ecn_green"),
        ('{"DSCP_TO_TC_MAP": {"m": {"64": "3"}}}', ":1: DSCP_TO_TC_MAP.m.64", "is 0 to 63"),
        ('{"PFC_WD": {"Ethernet0": {"action": "stop"}}}', ":1: PFC_WD.Ethernet0.action", "drop, forward or alert"),
        ('{"SCHEDULER": {"s": {"type": "FIFO"}}}', ":1: SCHEDULER.s.type", "STRICT, DWRR or WRR"),
        ('{"PORT_QOS_MAP": {"Ethernet0": {"pfc_enable": "3,x"}}}', ":1: PORT_QOS_MAP.Ethernet0.pfc_enable", '"x"'),
    ],
)
def test_malformed_configurations(tmp_path, text, where, expected):
    path = tmp_path / "config_db.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        import_sonic(path, None, tmp_path / "switch.toml")
    assert str(caught.value).startswith(f"{path}{where}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "switch.toml").exists()


def test_further_problems_are_counted(tmp_path):
    path = tmp_path / "config_db.json"
    path.write_text('{"BUFFER_PROFILE": {"a": {"size": "x", "xon": "y", "pool": "z"}}}')
    with pytest.raises(InputError, match=r"and 2 more: fabemu check lists them"):
        import_sonic(path, None, tmp_path / "switch.toml")


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ("", "", "no line of speed"),
        ("# nothing\n", "", "no line of speed"),
        ("100000 5m 1 2\n", ":1", "4 columns"),
        ("100000 5m 1 2 3 4 5 6\n", ":1", "8 columns"),
        ("\n100000 5 1 2 3 4\n", ":2", 'cable is "5"'),
        ("fast 5m 1 2 3 4\n", ":1", 'speed is "fast"'),
        ("1 5m 1 2 3 4\n", ":1", "speed is 1; Mb/s"),
        ("100000 5m 1 2 3.5 4\n", ":1", 'xoff is "3.5"'),
        ("100000 5m 1 2 3 0\n100000 5m 1 2 3 1\n", ":2", "are in line 1 already"),
    ],
)
def test_malformed_lookup_files(tmp_path, text, where, expected):
    path = tmp_path / "pg_profile_lookup.ini"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_lookup(path)
    assert str(caught.value).startswith(f"{path}{where}: ")
    assert expected in str(caught.value)


def test_unreadable_files(tmp_path):
    for path, expected in (
        (tmp_path / "none.json", "No such file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "binary.json", "invalid UTF-8"),
    ):
        if path.name == "binary.json":
            path.write_bytes(b'{"PORT": "\xff"}')
        with pytest.raises(InputError, match=expected):
            read_switch(path)
    deep = tmp_path / "deep.json"
    deep.write_text('{"PORT": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(InputError, match="nested too deeply"):
        read_switch(deep)


# The command


def test_command_writes_and_keeps(tmp_path, monkeypatch):
    runner = CliRunner()
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        result = runner.invoke(command, ["import", "sonic", str(DATA / "t0.json")])
        assert result.exit_code == 0, result.output
        assert result.stdout.strip() == "tor-1.toml"
        assert "note: CABLE_LENGTH" in result.stderr
        assert "# - CABLE_LENGTH" in Path("tor-1.toml").read_text()
        again = runner.invoke(command, ["import", "sonic", str(DATA / "t0.json")])
        assert isinstance(again.exception, OutputError)
        forced = runner.invoke(command, ["import", "sonic", str(DATA / "t0.json"), "--force"])
        assert forced.exit_code == 0
        result = runner.invoke(command, ["import", "sonic", str(DATA / "lossy.json")])
        assert result.stdout.strip() == "lossy.toml"


def test_many_ports_without_pfc_are_one_note(tmp_path):
    def change(data):
        for name in PORTS[:2]:
            del data["PORT_QOS_MAP"][name]["pfc_enable"]
        del data["DEVICE_NEIGHBOR"]

    _, notes = import_sonic(changed(tmp_path, change), None, tmp_path / "switch.toml", force=True)
    (note,) = [note for note in notes if "no PFC" in note]
    assert note.startswith("2 ports (Ethernet4 and so on) have no PFC, the others [3, 4]: write pfc.enabled for those")


def test_queues_towards_other_line_cards_are_noted(tmp_path):
    def change(data):
        data["QUEUE"] |= {f"card-9|asic1|Ethernet{port}|3": {"scheduler": "none"} for port in (500, 508)}

    _, notes = import_sonic(changed(tmp_path, change), None, tmp_path / "switch.toml", force=True)
    assert "2 queues towards ports of other chips or line cards" in notes


def test_pfc_is_not_turned_off_by_a_table_that_is_not_there(tmp_path):
    def without_map(data):
        del data["PORT_QOS_MAP"]

    path, notes = import_sonic(changed(tmp_path, without_map), None, tmp_path / "switch.toml", force=True)
    profile = tomllib.loads(path.read_text())
    assert profile["map"]["lossless"] == [3, 4] and profile["switch"]["pfc"]["enabled"] is True
    assert "there is no PORT_QOS_MAP: PFC is taken to be on for the priority groups with xoff" in notes

    def without_pfc(data):
        for fields in data["PORT_QOS_MAP"].values():
            del fields["pfc_enable"]

    path, _ = import_sonic(changed(tmp_path, without_pfc), None, tmp_path / "switch.toml", force=True)
    assert tomllib.loads(path.read_text())["switch"]["pfc"]["enabled"] is False
