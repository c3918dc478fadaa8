"""The scenario model: defaults, merging of tiers and overrides, round trip through TOML."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fabemu.scenario import (
    DCQCN_PRESETS,
    FatTree,
    FatTreeShape,
    Flow,
    Flows,
    LeafSpine,
    Scenario,
    Switch,
    TrafficClass,
    load_scenario,
    scenario_from_dict,
    scenario_from_toml,
)
from fabemu.scenario.reference import SMALLEST, reference_page, scenario_schema
from fabemu.units import format_bytes, format_rate, format_time

ROOT = Path(__file__).parents[2]
FLOW = {"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "1MB"}]}
FABRIC = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 2, "spines": 2}


def scenario(**tables) -> Scenario:
    return scenario_from_dict({"fabric": FABRIC, "workload": [FLOW], **tables})


def test_the_smallest_scenario_has_sane_defaults(tmp_path: Path) -> None:
    path = tmp_path / "first-run.toml"
    path.write_text(SMALLEST)
    loaded = load_scenario(path)
    assert loaded.name == "first-run"
    assert loaded.seed == 1
    assert loaded.link.rate == 400 * 10**9
    assert loaded.link.delay_ps == 600_000
    assert loaded.switch.buffer == 64 * 2**20
    assert loaded.switch.pfc.alpha == Fraction(1, 8)
    assert loaded.switch.pfc.headroom == "auto"
    assert loaded.switch.ecn.at_rate(10**11) == (400_000, 1_600_000, 0.2)
    assert loaded.nic.mtu == 4096
    assert loaded.nic.window == "none"
    assert loaded.trace.interval == 10**8
    assert [item.name for item in loaded.classes_by_priority] == ["cnp", "rdma", "best-effort"]
    assert loaded.class_ack_ids == (0, 1, 2)
    assert loaded.cnp_class_id == 0
    assert loaded.class_id("rdma") == 1
    assert loaded.workload[0].label == "poisson"
    assert loaded.workload[0].class_name == "rdma"
    assert loaded.workload[0].stop == 10**9
    assert loaded.frames.header_bytes == 62


def test_the_default_adapter_is_the_connectx_preset() -> None:
    cc = scenario().nic.cc
    assert (cc.kind, cc.preset, cc.machine, cc.notification) == ("dcqcn", "connectx", "adapter", "cnp")
    assert cc.g == 5 / 1024
    assert cc.alpha_init == 1023 / 1024
    assert (cc.alpha_timer, cc.decrease_timer, cc.increase_timer) == (10**6, 4 * 10**6, 300 * 10**6)
    assert (cc.byte_reset, cc.threshold, cc.min_dec_fac, cc.clamp_target) == (32_767, 1, 0.5, False)
    assert (cc.rate_ai, cc.rate_hai, cc.rate_min) == (5 * 10**6, 50 * 10**6, 10**6)
    assert cc.cnp_interval == 4 * 10**6
    assert cc.decrease_offset_ps == 0


@pytest.mark.parametrize("preset", list(DCQCN_PRESETS))
def test_presets_fill_in_and_can_be_overridden(preset: str) -> None:
    cc = scenario(nic={"cc": {"preset": preset, "g": "1/16"}}).nic.cc
    assert cc.g == 1 / 16
    assert format_time(cc.increase_timer) == DCQCN_PRESETS[preset].values["increase_timer"]


def test_compat_ns3_changes_defaults_only() -> None:
    loaded = scenario(compat="ns3", switch={"pfc": {"xon_offset": "1KiB"}}, nic={"cc": {"kind": "none"}})
    assert (loaded.nic.mtu, loaded.nic.any_mtu) == (1000, True)
    frames = loaded.frames
    assert (frames.header, frames.reth, frames.ack, frames.pfc) == (48, 0, 60, 43)
    assert (frames.wire_overhead, frames.minimum, frames.pad) == (0, 0, 1)
    pfc = loaded.switch.pfc
    assert (pfc.alpha, pfc.headroom, pfc.reserved, pfc.xon_offset) == ("auto", "auto", 4096, 1024)
    assert (loaded.nic.cc.kind, loaded.nic.cc.preset) == ("none", "ns3")
    assert loaded.nic.cc.notification == "echo"
    assert loaded.nic.cc.decrease_offset_ps == 1_000


def test_encapsulation_adds_to_every_frame_but_pfc() -> None:
    frames = scenario(frames={"vlan": True, "vxlan": True}).frames
    assert (frames.header_bytes, frames.ack_bytes, frames.cnp_bytes, frames.pfc) == (116, 120, 132, 64)


def test_links_merge_from_general_to_special() -> None:
    loaded = scenario(
        link={
            "rate": "100Gbps",
            "delay": "1us",
            "tier": {"fabric": {"rate": "400Gbps", "length": "100m"}},
            "override": [
                {"between": ["spine1", "leaf0"], "rate": "200Gbps"},
                {"between": ["leaf0", "spine1"], "index": 1, "delay": "2us"},
            ],
        }
    )
    host = loaded.link_for("host", "h0", "leaf0")
    assert (host.rate, host.delay_ps) == (10**11, 10**6)
    fabric = loaded.link_for("fabric", "leaf0", "spine0")
    assert (fabric.rate, fabric.delay_ps, fabric.delay) == (4 * 10**11, 500_000, None)
    named = loaded.link_for("fabric", "leaf0", "spine1")
    assert (named.rate, named.delay_ps) == (2 * 10**11, 500_000)
    second = loaded.link_for("fabric", "leaf0", "spine1", 1)
    assert (second.rate, second.delay_ps, second.length) == (2 * 10**11, 2 * 10**6, None)
    own = loaded.link_for("fabric", "leaf0", "spine0", rate=10**9, delay=7)
    assert (own.rate, own.delay_ps) == (10**9, 7)
    assert loaded.link_for("host", "h0", "leaf0") is loaded.link_for("host", "h1", "leaf1")


def test_switches_merge_deeply() -> None:
    loaded = scenario(
        switch={
            "ecn": {"kmin": "100KB", "by_rate": [{"rate": "100Gbps", "kmin": "1KB", "kmax": "2KB"}]},
            "tier": {"leaf": {"buffer": "32MiB", "ecn": {"kmax": "200KB"}}},
            "override": [{"name": "leaf1", "pfc": {"alpha": 2}, "ecmp_seed": 7}],
        }
    )
    spine = loaded.switch_for("spine", "spine0")
    leaf = loaded.switch_for("leaf", "leaf0")
    other = loaded.switch_for("leaf", "leaf1")
    assert type(leaf) is Switch
    assert (spine.buffer, leaf.buffer, other.buffer) == (64 * 2**20, 32 * 2**20, 32 * 2**20)
    assert (leaf.ecn.kmin, leaf.ecn.kmax) == (100_000, 200_000)
    assert leaf.ecn.at_rate(10**11) == (1_000, 2_000, 0.2)
    assert (leaf.pfc.alpha, other.pfc.alpha, other.pfc.xon_offset) == (Fraction(1, 8), 2, 8192)
    assert (leaf.ecmp_seed, other.ecmp_seed) == ("per-switch", 7)
    assert loaded.switch_for("leaf", "leaf0") is leaf


def test_nics_merge_and_a_preset_brings_all_its_values() -> None:
    loaded = scenario(
        nic={
            "cc": {"g": 0.5},
            "override": [
                {"name": "h1", "cc": {"kind": "fixed", "rate": "10Gbps"}},
                {"name": "h2", "cc": {"preset": "paper"}, "timeout": 3},
            ],
        }
    )
    assert loaded.nic_for("h0").cc.g == 0.5
    assert (loaded.nic_for("h1").cc.kind, loaded.nic_for("h1").cc.rate) == ("fixed", 10**10)
    assert loaded.nic_for("h1").cc.g == 0.5
    assert loaded.nic_for("h2").cc.g == 1 / 256
    assert loaded.nic_for("h2").cc.cnp_interval == 50 * 10**6
    assert loaded.nic_for("h2").timeout == 3
    assert loaded.nic_for("h2").mtu == 4096


def test_fat_tree_shapes() -> None:
    assert FatTree(k=4).shape == FatTreeShape(4, 2, 2, 4, 2)
    assert FatTree(k=4, oversubscription="2:1").shape.hosts_per_edge == 4
    explicit = FatTree(
        pods=2, edges_per_pod=3, aggs_per_pod=2, cores=8, hosts_per_edge=5, oversubscription=Fraction(2, 5)
    )
    assert explicit.shape == FatTreeShape(2, 3, 2, 8, 2)


def test_python_objects_have_the_names_of_the_file() -> None:
    built = Scenario(
        fabric=LeafSpine(leaves=2, hosts_per_leaf=2, spines=2),
        classes=(TrafficClass(name="data", priority=4, lossless=True), TrafficClass(name="cnp", priority=5, cnp=True)),
        workload=[Flows(class_name="data", flow=[Flow(src="h0", dst="h1", size="1MB")])],
        seed=9,
    )
    assert built.classes[0].dscp == 32
    assert scenario_from_toml(built.to_toml()) == built
    assert pickle.loads(pickle.dumps(built)) == built
    with pytest.raises(ValidationError):
        built.seed = 3  # type: ignore[misc]


def test_labels_are_numbered_only_if_they_must() -> None:
    loaded = scenario(workload=[FLOW, FLOW, {**FLOW, "label": "mine"}])
    assert [item.label for item in loaded.workload] == ["flows-0", "flows-1", "mine"]


def test_receiver_and_receivers_say_the_same() -> None:
    one = scenario(workload=[{"kind": "incast", "receiver": "h0", "fan_in": 2, "size": "1B"}])
    other = scenario(workload=[{"kind": "incast", "receivers": "h0", "fan_in": 2, "size": "1B"}])
    assert one == other
    assert one.workload[0].receivers == "h0"


def test_a_flow_of_ten_terabytes_and_one_of_nothing() -> None:
    flows = [{"src": "h0", "dst": "h1", "size": size} for size in ("10TB", "0B")]
    loaded = scenario(workload=[{"kind": "flows", "flow": flows}])
    assert [flow.size for flow in loaded.workload[0].flow] == [10**13, 0]


def test_overrides_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SMALLEST)
    options = [
        "workload.0.load=0.8",
        "link.rate=200Gbps",
        "switch.tier.leaf.ecn.enabled=false",
        "name=other",
        "fabric.spines = 2",
        "nic.cc={ kind = 'fixed', rate = '1Gbps' }",
        "measure=['0us', '5us']",
        'switch.tier."spine".buffer="1MiB"',
    ]
    loaded = load_scenario(path, options)
    assert loaded.workload[0].load == 0.8
    assert loaded.link.rate == 2 * 10**11
    assert loaded.switch_for("leaf", "leaf0").ecn.enabled is False
    assert loaded.switch_for("spine", "spine0").buffer == 2**20
    assert loaded.name == "other"
    assert loaded.fabric.spines == 2
    assert loaded.nic.cc.rate == 10**9
    assert loaded.measure == (0, 5 * 10**6)


def test_overrides_leave_the_callers_dict_alone() -> None:
    data = tomllib.loads(SMALLEST)
    before = tomllib.loads(SMALLEST)
    scenario_from_dict(data, overrides=["workload.0.load=0.1", "fabric.spines=1"])
    assert data == before


def test_a_copy_derives_anew() -> None:
    first = scenario()
    assert first.switch_for("leaf", "leaf0").buffer == 64 * 2**20
    copy = first.model_copy(update={"switch": scenario(switch={"buffer": "1MiB"}).switch})
    assert copy.switch_for("leaf", "leaf0").buffer == 2**20


def test_the_reference_page_is_current() -> None:
    page = (ROOT / "docs" / "SCENARIO.md").read_text()
    assert page == reference_page(), "run: python -m fabemu.scenario.reference > docs/SCENARIO.md"


def test_the_schema_describes_the_file() -> None:
    schema = scenario_schema()
    assert schema["required"] == ["fabric", "workload"]
    assert "class" in schema["properties"]
    assert schema["additionalProperties"] is False
    definitions = schema["$defs"]
    assert definitions["LeafSpine"]["required"] == ["kind", "leaves", "hosts_per_leaf", "spines"]
    assert definitions["LinkTable"]["properties"]["rate"]["default"] == "400Gbps"
    assert definitions["CongestionControl"]["properties"]["preset"]["enum"] == ["paper", "connectx", "ns3"]
    assert "null" not in str(schema)


def test_the_import_needs_nothing_heavy() -> None:
    code = "import sys, fabemu.scenario; print([m for m in ('numpy', 'pyarrow', 'numba', 'rich') if m in sys.modules])"
    # The package itself may import more; what counts is what its scenario part asks for.
    code = f"import sys, types; p = types.ModuleType('fabemu'); p.__path__ = [{str(ROOT / 'src' / 'fabemu')!r}]; " + (
        f"sys.modules['fabemu'] = p; {code}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Round trip of anything that can be said

times = st.integers(0, 10**12).map(format_time)
durations = st.integers(1, 10**12).map(format_time)
rates = st.integers(1, 10**13).map(format_rate)
sizes = st.integers(0, 2**40).map(format_bytes)
sizes32 = st.integers(0, 2**32 - 1).map(format_bytes)
positive = st.integers(1, 2**40).map(format_bytes)
alphas = st.fractions(Fraction(1, 64), 100, max_denominator=64).map(str) | st.sampled_from([0.125, 2])
shares = st.floats(0, 1, allow_subnormal=False).filter(lambda value: value == 0 or value > 1e-30)
names = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=6)


def table(**keys) -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries({}, optional=keys)


ecn = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(sorted).flatmap(
    lambda pair: st.fixed_dictionaries(
        {"kmin": st.just(format_bytes(pair[0])), "kmax": st.just(format_bytes(pair[1]))},
        optional={"pmax": shares, "enabled": st.booleans()},
    )
)  # fmt: skip
pfc = table(
    alpha=alphas | st.just("auto"),
    xon_offset=sizes32,
    headroom=sizes | st.just("auto"),
    reserved=sizes32,
    quanta=st.integers(1, 65535),
    response_delay=times,
)
switch_keys = {
    "buffer": positive,
    "latency": times,
    "ecmp_seed": st.integers(0, 2**32 - 1) | st.just("per-switch"),
    "pfc": pfc,
    "lossy": table(alpha=alphas, egress_alpha=alphas, reserved=sizes32),
    "ecn": ecn,
}
switches = table(
    **switch_keys,
    tier=table(leaf=table(**switch_keys), spine=table(**switch_keys)),
    override=st.lists(
        st.fixed_dictionaries({"name": st.sampled_from(["leaf0", "spine1"])}, optional=switch_keys), max_size=2
    ),
)
link_keys = st.one_of(
    table(rate=rates, delay=times), table(rate=rates, length=st.integers(0, 10**4).map(lambda cm: f"{cm}cm"))
)
links = st.tuples(link_keys, table(tier=table(host=link_keys, fabric=link_keys))).map(lambda pair: pair[0] | pair[1])
cc = table(
    kind=st.sampled_from(["none", "dcqcn"]),
    preset=st.sampled_from(["paper", "connectx", "ns3"]),
    rate=rates,
    g=shares,
    alpha_init=shares,
    alpha_timer=durations,
    byte_reset=sizes,
    threshold=st.integers(0, 10),
    rate_ai=rates,
    min_dec_fac=shares,
    clamp_target=st.booleans(),
    cnp_interval=times,
)
nic_keys = {
    "ack_every": st.integers(1, 100),
    "window": positive | st.just("none"),
    "timeout": st.integers(0, 31),
    "retry_count": st.integers(0, 10),
    "cc": cc,
}
nics = table(
    **nic_keys,
    mtu=st.sampled_from([256, 512, 1024, 2048, 4096]),
    override=st.lists(st.fixed_dictionaries({"name": names}, optional=nic_keys), max_size=2),
)
hosts = st.just("all") | st.lists(st.sampled_from(["h0", "h1", "h2"]), min_size=1, unique=True) | st.just("h0:h2")
common = {"label": names, "class": st.just("rdma"), "start": times}


def workload(kind: str, required: dict, optional: dict) -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries({"kind": st.just(kind), **required}, optional={**common, **optional})


flow = st.fixed_dictionaries(
    {"src": st.just("h0"), "dst": st.just("h1"), "size": sizes},
    optional={"start": times, "sport": st.integers(0, 65535), "qp": names},
)
workloads = st.one_of(
    workload("flows", {"flow": st.lists(flow, min_size=1, max_size=3)}, {}),
    workload("flow-file", {"path": names}, {}),
    workload("poisson", {"load": shares.filter(bool), "stop": st.just("5s")}, {"hosts": hosts, "sources": hosts}),
    workload("incast", {"receiver": st.just("h0"), "fan_in": st.integers(1, 9), "size": sizes}, {"period": durations}),
    workload("permutation", {"size": sizes}, {"hosts": hosts, "pattern": st.sampled_from(["random", "shift"])}),
    workload("all-to-all", {"size": sizes}, {"mode": st.sampled_from(["parallel", "sequential"])}),
)
fabrics = st.just(FABRIC)
scenarios = st.fixed_dictionaries(
    {"fabric": fabrics, "workload": st.lists(workloads, min_size=1, max_size=3)},
    optional={
        "name": names,
        "seed": st.integers(0, 2**63 - 1),
        "compat": st.sampled_from(["none", "ns3"]),
        "link": links,
        "switch": switches,
        "nic": nics,
        "frames": table(header=st.just("70B"), vlan=st.booleans(), minimum=st.just("0B")),
        "trace": table(
            interval=st.integers(10**5, 10**12).map(format_time) | st.just("off"),
            tables=st.lists(st.sampled_from(["flows", "ports", "packets"]), unique=True),
        ),
        "measure": st.just(["0us", "1ms"]),
    },
)


def passes(data: dict) -> bool:
    """Overrides drawn without regard to each other may break kmin <= kmax together."""
    try:
        scenario_from_dict(data)
    except ValueError as error:
        assert "is above kmax" in str(error)
        return False
    return True


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenarios)
def test_any_scenario_round_trips_through_its_toml(data: dict) -> None:
    if not passes(data):
        return
    first = scenario_from_dict(data)
    text = first.to_toml()
    second = scenario_from_toml(text)
    assert second == first
    assert second.to_toml() == text


@pytest.mark.parametrize(
    "fabric",
    [
        {"kind": "fat-tree", "k": 4, "oversubscription": "3:2"},
        {
            "kind": "fat-tree",
            "pods": 2,
            "edges_per_pod": 2,
            "aggs_per_pod": 2,
            "cores": 4,
            "hosts_per_edge": 3,
        },
        {"kind": "chain", "switches": 3},
        {"kind": "dumbbell", "left": 2, "right": 3, "trunks": 2},
        {"kind": "single-switch", "hosts": 3},
        {"kind": "graph", "hosts": 2, "switches": 1, "links_csv": "links.csv"},
        {
            "kind": "graph",
            "hosts": ["a b", "é"],
            "switches": ["s.1"],
            "links": [
                {"a": "a b", "b": "s.1", "rate": "1Gbps", "length": "3m"},
                {"a": "é", "b": "s.1", "tier": "long", "delay": "1us"},
            ],
        },
    ],
)
def test_every_fabric_round_trips(fabric: dict) -> None:
    first = scenario(fabric=fabric)
    assert scenario_from_toml(first.to_toml()) == first
