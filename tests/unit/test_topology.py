"""Devices and cables of every kind of fabric, and what is said of wrong ones."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fabemu.errors import InputError, ScenarioError
from fabemu.scenario import scenario_from_dict
from fabemu.topology.cable import Cable, Fabric
from fabemu.topology.fabric import build_fabric, check_fabric
from fabemu.topology.fat_tree import fat_tree


def built(table: dict[str, Any], base_dir: Path = Path()) -> Fabric:
    data = {"fabric": table, "workload": [{"kind": "flows", "flow": [{"src": "x", "dst": "y", "size": "1B"}]}]}
    return build_fabric(scenario_from_dict(data), base_dir)


def tiers(fabric: Fabric) -> Counter[str]:
    return Counter(cable.tier for cable in fabric.cables)


def joined(fabric: Fabric) -> list[tuple[str, str]]:
    return [(fabric.node_names[cable.a], fabric.node_names[cable.b]) for cable in fabric.cables]


def test_leaf_spine() -> None:
    fabric = built({"kind": "leaf-spine", "leaves": 3, "hosts_per_leaf": 2, "spines": 2, "uplinks": 2})
    assert fabric.host_names == [f"h{index}" for index in range(6)]
    assert fabric.switch_names == ["leaf0", "leaf1", "leaf2", "spine0", "spine1"]
    assert fabric.switch_tiers == ["leaf"] * 3 + ["spine"] * 2
    assert tiers(fabric) == {"host": 6, "fabric": 12}
    assert joined(fabric)[5:8] == [("h5", "leaf2"), ("leaf0", "spine0"), ("leaf0", "spine0")]
    assert set(Counter(joined(fabric)[6:]).values()) == {2}


def test_k_ary_fat_tree() -> None:
    fabric = built({"kind": "fat-tree", "k": 4})
    assert (fabric.host_count, fabric.switch_count) == (16, 20)
    assert tiers(fabric) == {"host": 16, "edge-agg": 16, "agg-core": 16}
    assert Counter(fabric.switch_tiers) == {"edge": 8, "agg": 8, "core": 4}
    degree = Counter(end for cable in fabric.cables for end in (cable.a, cable.b))
    assert {degree[node] for node in range(16, 36)} == {4}
    assert ("agg2-1", "core3") in joined(fabric)
    assert ("agg2-1", "core1") not in joined(fabric)


def test_fat_tree_by_counts_with_oversubscription() -> None:
    fabric = built(
        {
            "kind": "fat-tree",
            "pods": 2,
            "edges_per_pod": 3,
            "aggs_per_pod": 2,
            "cores": 4,
            "hosts_per_edge": 2,
            "oversubscription": "2:1",
        }
    )
    assert fabric.host_count == 2 * 3 * 2 * 2
    assert fabric.switch_names[:4] == ["edge0-0", "edge0-1", "edge0-2", "edge1-0"]
    assert tiers(fabric) == {"host": 24, "edge-agg": 12, "agg-core": 8}


def test_fat_tree_refuses_cores_that_do_not_share_out() -> None:
    with pytest.raises(ValueError, match="cores = 3 is not a multiple of aggs_per_pod = 2"):
        fat_tree(pods=2, edges_per_pod=1, aggs_per_pod=2, cores=3, hosts_per_edge=1)


def test_lines() -> None:
    chain = built({"kind": "chain", "switches": 3, "hosts_per_switch": 2})
    assert joined(chain)[-2:] == [("sw0", "sw1"), ("sw1", "sw2")]
    assert joined(chain)[4] == ("h4", "sw2")
    dumbbell = built({"kind": "dumbbell", "left": 2, "right": 3, "trunks": 2})
    assert joined(dumbbell)[1:3] == [("h1", "sw0"), ("h2", "sw1")]
    assert tiers(dumbbell) == {"host": 5, "trunk": 2}
    single = built({"kind": "single-switch", "hosts": 3})
    assert joined(single) == [("h0", "sw0"), ("h1", "sw0"), ("h2", "sw0")]


def test_graph_from_the_scenario() -> None:
    fabric = built(
        {
            "kind": "graph",
            "hosts": ["a", "b"],
            "switches": 2,
            "links": [
                {"a": "a", "b": "sw0", "rate": "10Gbps"},
                {"a": "sw0", "b": "sw1", "length": "10m"},
                {"a": "sw1", "b": "b", "tier": "slow"},
            ],
        }
    )
    assert fabric.cables == [
        Cable(0, 2, "host", 10**10, None),
        Cable(2, 3, "fabric", None, 50_000),
        Cable(3, 1, "slow", None, None),
    ]


GRAPH = {"kind": "graph", "hosts": ["a", "b"], "switches": ["s"], "links_csv": "links.csv"}


def read(tmp_path: Path, text: str | bytes) -> Fabric:
    path = tmp_path / "links.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return built(GRAPH, tmp_path)


def test_graph_from_a_file(tmp_path: Path) -> None:
    text = "\ufeffB, A, rate, length\r\n# the slow one\r\ns, a, 10Gbps, 2m\r\n\r\ns,b\r\n"
    assert read(tmp_path, text).cables == [Cable(0, 2, "host", 10**10, 10_000), Cable(1, 2, "host")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "links.csv: no header line"),
        ("a,c\n", 'links.csv:1: unknown column "c"'),
        (
            "a,b,rat\n",
            'links.csv:1: unknown column "rat"; allowed are a, b, rate, delay, length, tier; did you mean "rate"?',
        ),
        ("a,rate\n", 'links.csv:1: no column "b"'),
        ("a,b,a\n", 'links.csv:1: column "a" appears twice'),
        ("a,b\na,s\na,a\n", 'links.csv:3: the link joins "a" to itself'),
        ("a,b\na,\n", 'links.csv:2: no device in column "b"'),
        ("a,b\na,s,1\n", "links.csv:2: 3 values for 2 columns"),
        ("a,b\nb,ss\n", 'links.csv:2: there is no device "ss" in hosts or switches; did you mean "s"?'),
        ("a,b,rate\na,s,400Gb\n", 'links.csv:2: a rate needs /s: write "400Gbps"'),
        ("a,b,rate\na,s,0Gbps\n", "links.csv:2: a rate must be above 0"),
        ("a,b,rate\na,s,200Tbps\n", "links.csv:2: rate 200Tbps is above 100Tbps"),
        ("a,b,delay,length\na,s,1us,1m\n", "links.csv:2: delay and length are both given"),
        ("a,b,length\na,s,0.0001mm\n", "links.csv:2: length 0.0001mm gives no whole number of picoseconds"),
        (b"a,b\na,\xff\n", "links.csv: not a text file: invalid UTF-8 at byte 6"),
    ],
)
def test_wrong_link_files(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_all_wrong_lines_are_reported_but_not_thousands(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, "a,b\n" + "a,x\n" * 100)
    lines = str(error.value).splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith("and 80 more lines with errors")


def test_link_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        built(GRAPH, tmp_path)
    (tmp_path / "links.csv").mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        built(GRAPH, tmp_path)
    (tmp_path / "links.csv").rmdir()
    os.mkfifo(tmp_path / "links.csv")
    with pytest.raises(InputError, match="not a regular file"):
        built(GRAPH, tmp_path)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([{"a": "a", "b": "a"}], 'joins "a" to itself'),
        ([{"a": "a", "b": "x1"}], 'there is no device "x1"'),
        ([{"a": "a", "b": "leef"}], 'did you mean "leaf"?'),
    ],
)
def test_wrong_links_of_a_scenario(links: list[dict[str, str]], message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        built({"kind": "graph", "hosts": ["a", "b"], "switches": ["leaf"], "links": links})
    assert message in str(error.value)


def test_a_fabric_built_in_python_is_checked() -> None:
    with pytest.raises(ScenarioError) as error:
        check_fabric(Fabric(["a", "a"], ["s"], ["switch"], [Cable(0, 0, "host"), Cable(0, 7, "host")]))
    text = str(error.value)
    assert 'the device "a" is named 2 times' in text
    assert 'cable 0 joins "a" to itself' in text
    assert "cable 1 ends at node 7; nodes are 0 to 2" in text
    with pytest.raises(ScenarioError, match="no host"):
        check_fabric(Fabric([], [], [], []))
