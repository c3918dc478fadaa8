"""Switch profiles taken into scenarios."""

from fractions import Fraction

import pytest

from fabemu.compile import compile_plan
from fabemu.errors import ScenarioError
from fabemu.scenario import Switch, load_scenario, scenario_from_dict, scenario_from_toml
from fabemu.scenario.load import locate

FABRIC = """\
[fabric]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 2
spines = 1
"""
TRAFFIC = """\
[[workload]]
kind = "permutation"
size = "10KB"
"""
PROFILE = """\
[switch]
buffer = "20MB"
[switch.pfc]
alpha = "1/4"
headroom = "200KB"
[switch.ecn]
kmin = "100KB"
kmax = "300KB"
"""


def write(directory, scenario="", profile=PROFILE, name="leaf.toml"):
    (directory / name).write_text(profile)
    path = directory / "scenario.toml"
    path.write_text(FABRIC + scenario + TRAFFIC)
    return path


def problems(path):
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return [str(problem) for problem in caught.value.problems]


def test_own_keys_go_before_those_of_the_profile(tmp_path):
    path = write(
        tmp_path, '[switch]\nprofile = "leaf.toml"\n[switch.pfc]\nheadroom = "300KB"\n[switch.ecn]\nkmin = "1KB"\n'
    )
    switch = load_scenario(path).switch_for("leaf", "leaf0")
    assert (switch.buffer, switch.pfc.alpha, switch.pfc.headroom) == (20_000_000, Fraction(1, 4), 300_000)
    assert (switch.ecn.kmin, switch.ecn.kmax) == (1_000, 300_000)
    assert switch.pfc.xon_offset == 8192, "what neither says is the default"


def test_a_tier_and_one_switch_have_profiles_of_their_own(tmp_path):
    (tmp_path / "one.toml").write_text('[switch]\nbuffer = "30MB"\n[switch.pfc]\nreserved = "1KB"\n')
    text = """\
[switch]
buffer = "10MB"
[switch.tier.leaf]
profile = "leaf.toml"
[[switch.override]]
name = "leaf1"
profile = "one.toml"
"""
    scenario = load_scenario(write(tmp_path, text))
    spine, leaf, one = (scenario.switch_for(name.rstrip("01"), name) for name in ("spine0", "leaf0", "leaf1"))
    assert [item.buffer for item in (spine, leaf, one)] == [10_000_000, 20_000_000, 30_000_000]
    assert [item.pfc.alpha for item in (spine, leaf, one)] == [Fraction(1, 8), Fraction(1, 4), Fraction(1, 4)]
    assert (leaf.pfc.reserved, one.pfc.reserved) == (4096, 1000)


def test_an_option_can_name_the_profile_and_go_before_it(tmp_path):
    path = write(tmp_path)
    scenario = load_scenario(path, ["switch.profile=leaf.toml", "switch.buffer=40MB"])
    assert (scenario.switch.buffer, scenario.switch.pfc.headroom) == (40_000_000, 200_000)


def test_a_resolved_scenario_holds_what_its_profiles_say(tmp_path):
    scenario = load_scenario(write(tmp_path, '[switch.tier.leaf]\nprofile = "leaf.toml"\n'))
    text = scenario.to_toml()
    assert "profile" not in text
    assert scenario_from_toml(text) == scenario


def test_the_plan_is_that_of_the_same_keys_written_out(tmp_path):
    with_profile = load_scenario(write(tmp_path, '[switch]\nprofile = "leaf.toml"\n'))
    path = tmp_path / "plain.toml"
    path.write_text(FABRIC + PROFILE + TRAFFIC)
    plain = load_scenario(path)
    digests = [compile_plan(item, base_dir=tmp_path).plan.digest() for item in (with_profile, plain)]
    assert digests[0] == digests[1]


def test_what_is_wrong_is_reported_where_it_is_written(tmp_path):
    profile = '[switch]\nbuffer = "20MB"\n[switch.pfc]\nalpha = "much"\nheadroms = "1KB"\n'
    found = problems(write(tmp_path, '[switch.tier.leaf]\nprofile = "leaf.toml"\n', profile))
    assert found[0].startswith(f"{tmp_path}/leaf.toml:4: switch.tier.leaf.pfc.alpha") or found[1].startswith(
        f"{tmp_path}/leaf.toml:4: switch.tier.leaf.pfc.alpha"
    )
    assert any(item.startswith(f"{tmp_path}/leaf.toml:5: switch.tier.leaf.pfc.headroms") for item in found)
    assert any('did you mean "headroom"' in item for item in found)


def test_a_rule_that_both_break_together_names_the_nearest_key(tmp_path):
    found = problems(write(tmp_path, '[switch]\nprofile = "leaf.toml"\n[switch.ecn]\nkmin = "1MB"\n'))
    assert len(found) == 1
    assert found[0].startswith(f"{tmp_path}/scenario.toml:9: switch.ecn.kmin")
    assert "above kmax 300KB" in found[0]


@pytest.mark.parametrize(
    ("name", "text", "where", "expected"),
    [
        ("none.toml", None, "scenario.toml:7: switch.profile", "no such file"),
        ("dir", None, "scenario.toml:7: switch.profile", "is a directory"),
        ("leaf.toml", "[switch\n", "leaf.toml:1:8", "not valid TOML"),
        ("leaf.toml", "", "leaf.toml", "it has no [switch] table"),
        ("leaf.toml", "[switch]\n[nic]\nmtu = 1024\n", "leaf.toml:2: nic", 'holds "switch", "map" or "class" only'),
        (
            "leaf.toml",
            '[switch]\n[switch.tier.leaf]\nbuffer = "1MB"\n',
            "leaf.toml:2: switch.tier",
            "no tier of its own",
        ),
        ("leaf.toml", '[switch]\nprofile = "leaf.toml"\n', "leaf.toml:2: switch.profile", "no profile of its own"),
        ("leaf.toml", "[switch]\n[map]\ndscps = 3\n", "leaf.toml:3: map.dscps", "unknown key"),
        ("leaf.toml", "[switch]\n[map]\ndscp = { 64 = 3 }\n", "leaf.toml:3: map.dscp", "0 to 63"),
        ("leaf.toml", "[switch]\n[map]\ndscp = { 3 = 8 }\n", "leaf.toml:3: map.dscp", "up to 7"),
        ("leaf.toml", "[switch]\n[map]\nlossless = [8]\n", "leaf.toml:3: map.lossless", "a list of queues, 0 to 7"),
        ("leaf.toml", "map = 3\n[switch]\n", "leaf.toml:1: map", "must be a table"),
        (
            "leaf.toml",
            '[switch]\n[[switch.override]]\npeer = "h0"\npfc.headroom = "1KB"\n',
            "leaf.toml:2: switch.override",
            "take this profile in for one switch",
        ),
    ],
)
def test_wrong_profiles(tmp_path, name, text, where, expected):
    (tmp_path / "dir").mkdir()
    path = write(tmp_path, f'[switch]\nprofile = "{name}"\n')
    if text is not None:
        (tmp_path / name).write_text(text)
    found = problems(path)
    assert len(found) == 1, found
    assert found[0].startswith(f"{tmp_path}/{where}")
    assert expected in found[0]


def test_a_profile_must_be_a_name(tmp_path):
    found = problems(write(tmp_path, "[switch]\nprofile = 3\n"))
    assert len(found) == 1
    assert "scenario.toml:7: switch.profile = 3" in found[0]


def test_a_switch_made_in_python_has_no_profile_to_take_in():
    with pytest.raises(ValueError, match="load_scenario"):
        Switch(profile="leaf.toml")


CLASSES = """\
[[class]]
name = "fast"
priority = 3
dscp = 26
lossless = true
[[class]]
name = "slow"
priority = 1
dscp = 0
cnp = true
"""


def test_a_scenario_without_classes_has_those_of_its_profile(tmp_path):
    scenario = load_scenario(write(tmp_path, '[switch]\nprofile = "leaf.toml"\n', PROFILE + CLASSES))
    assert [item.name for item in scenario.classes_by_priority] == ["fast", "slow"]
    own = FABRIC.replace("[fabric]", "[fabric]") + '[switch]\nprofile = "leaf.toml"\n'
    path = tmp_path / "own.toml"
    path.write_text(own + CLASSES.replace("fast", "quick") + TRAFFIC)
    assert [item.name for item in load_scenario(path).classes_by_priority] == ["quick", "slow"]


def test_profiles_with_different_classes_ask_for_own_ones(tmp_path):
    (tmp_path / "spine.toml").write_text(PROFILE + CLASSES.replace("26", "27"))
    text = '[switch]\nprofile = "leaf.toml"\n[switch.tier.spine]\nprofile = "spine.toml"\n'
    found = problems(write(tmp_path, text, PROFILE + CLASSES))
    assert found == [
        f"{tmp_path}/spine.toml:9: class: its classes are not those of {tmp_path}/leaf.toml: write [[class]] into the "
        "scenario"
    ]


def test_a_wrong_class_of_a_profile_is_reported_there(tmp_path):
    profile = PROFILE + CLASSES.replace("priority = 3", "priority = 9")
    found = problems(write(tmp_path, '[switch]\nprofile = "leaf.toml"\n', profile))
    assert found[0].startswith(f"{tmp_path}/leaf.toml:11: class.0.priority = 9")


def test_a_class_whose_queue_no_class_has(tmp_path):
    profile = PROFILE + "[map]\ndscp = { 26 = 2, 48 = 6, default = 0 }\n"
    found = problems(write(tmp_path, '[switch]\nprofile = "leaf.toml"\n', profile))
    assert len(found) == 1
    assert 'class "rdma" has DSCP 26' in found[0]
    assert "maps to queue 2, and no class has priority 2" in found[0]


def test_maps_become_class_map_and_weights(tmp_path):
    profile = PROFILE + "[map]\ndscp = { 26 = 0, 48 = 6, default = 0 }\nweights = { 0 = 40, 3 = 60 }\n"
    own = load_scenario(write(tmp_path, '[switch.tier.leaf]\nprofile = "leaf.toml"\n', profile))
    leaf, spine = own.switch_for("leaf", "leaf0"), own.switch_for("spine", "spine0")
    assert leaf.class_map == {"rdma": "best-effort"}
    assert leaf.weights == {"rdma": 60, "best-effort": 40}
    assert (spine.class_map, spine.weights) == ({}, {})
    text = '[switch]\nprofile = "leaf.toml"\nclass_map = {}\nweights = { rdma = 1 }\n'
    own = load_scenario(write(tmp_path, text, profile))
    assert (own.switch.class_map, own.switch.weights) == ({}, {"rdma": 1})


def test_single_ports_of_one_switch(tmp_path):
    profile = PROFILE + '[[switch.override]]\npeer = "h1"\npfc.enabled = false\n'
    text = '[[switch.override]]\nname = "leaf0"\nprofile = "leaf.toml"\n'
    path = write(tmp_path, text, profile)
    loaded = load_scenario(path)
    assert [(item.name, item.peer) for item in loaded.switch.override] == [("leaf0", None), ("leaf0", "h1")]
    compiled = compile_plan(loaded, base_dir=tmp_path)
    port = compiled.port_names.index("leaf0->h1")
    sends = compiled.plan.pq_pfc_send.reshape(-1, len(loaded.classes))
    assert not sends[port].any()
    assert sends[compiled.port_names.index("leaf0->h0")].any()
    (tmp_path / "leaf.toml").write_text(profile.replace("h1", "h9"))
    with pytest.raises(ScenarioError) as caught:
        compile_plan(load_scenario(path), base_dir=tmp_path)
    assert f"{tmp_path}/leaf.toml:" in str(locate(caught.value, path))


@pytest.mark.parametrize(("lossless", "said"), [("[]", "lossless, but queue 3"), ("[0, 3]", "lossy, but queue 0")])
def test_a_class_that_is_lossless_on_one_side_only(tmp_path, lossless, said):
    profile = PROFILE + f"[map]\nlossless = {lossless}\n"
    found = problems(write(tmp_path, '[switch]\nprofile = "leaf.toml"\n', profile))
    assert len(found) == 1
    assert said in found[0]


def test_problems_of_compiling_find_the_profile(tmp_path):
    profile = '[switch]\n\nbuffer = "1MB"\n[switch.pfc]\nheadroom = "900KB"\n'
    path = write(tmp_path, '[switch]\nprofile = "leaf.toml"\n', profile)
    with pytest.raises(ScenarioError) as caught:
        compile_plan(load_scenario(path), base_dir=tmp_path)
    assert str(locate(caught.value, path).problems[0]).startswith(f"{tmp_path}/leaf.toml:3: switch.buffer")


def by_link(*entries, **pfc):
    return scenario_from_dict(
        {
            "fabric": {
                "kind": "graph",
                "hosts": 3,
                "switches": 1,
                "links": [
                    {"a": "h0", "b": "sw0", "rate": "100Gbps", "length": "3m"},
                    {"a": "h1", "b": "sw0", "rate": "100Gbps", "length": "40m"},
                    {"a": "h2", "b": "sw0", "rate": "200Gbps", "length": "3m"},
                ],
            },
            "switch": {"pfc": {"by_link": list(entries), **pfc}},
            "workload": [{"kind": "permutation", "size": "1KB"}],
        }
    )


def headrooms(scenario):
    plan = compile_plan(scenario, base_dir=".").plan
    lossless = next(index for index, item in enumerate(scenario.classes_by_priority) if item.lossless)
    classes = len(scenario.classes_by_priority)
    return [int(plan.pq_headroom_bytes[port * classes + lossless]) for port in range(3, 6)]


def test_headroom_by_rate_and_cable(tmp_path):
    short = {"rate": "100Gbps", "length": "5m", "headroom": "30KB"}
    middle = {"rate": "100Gbps", "length": "30m", "headroom": "50KB"}
    long = {"rate": "100Gbps", "length": "100m", "headroom": "90KB"}
    assert headrooms(by_link(long, short, middle, headroom="1KB")) == [30_000, 90_000, 1_000]
    assert headrooms(by_link(short, middle, headroom="1KB")) == [30_000, 50_000, 1_000], "longer than all: the longest"
    auto = headrooms(by_link())
    assert headrooms(by_link({"rate": "100Gbps", "length": "5m", "reserved": "1KB"})) == auto


def test_an_entry_by_link_cannot_be_there_twice():
    entry = {"rate": "100Gbps", "length": "5m", "headroom": "30KB"}
    with pytest.raises(ScenarioError, match="100Gbps and 5m are listed twice"):
        by_link(entry, entry)
    with pytest.raises(ScenarioError, match=r"switch\.pfc\.by_link\.0.*length.*is missing"):
        by_link({"rate": "100Gbps"})
