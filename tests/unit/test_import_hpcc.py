"""Import of the HPCC family's files: variants, conversion, and one message for everything that is wrong."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from fabemu.cli import main
from fabemu.errors import InputError, OutputError
from fabemu.importers.hpcc import import_hpcc
from fabemu.importers.hpcc_config import default_config, read_config
from fabemu.importers.hpcc_flows import read_flows
from fabemu.importers.hpcc_lines import rate_bps, time_ns, whole
from fabemu.importers.hpcc_topology import read_topology
from fabemu.scenario import load_scenario
from fabemu.topology.fabric import build_fabric
from fabemu.workload import compile_workload

DATA = Path(__file__).parents[1] / "data" / "ns3"
RUNS = {
    "A_dcqcn": "A",
    "B_dcqcn": "B",
    "B_dcqcn_f5": "B",
    "B_none": "B",
    "C_dcqcn_buf32": "C",
    "C_dcqcn_buf4": "C",
    "C_dcqcn_paper_buf32": "C",
    "C_none_buf32": "C",
    "C_none_buf4": "C",
    "E100_dcqcn_buf4": "E100",
    "E100_dcqcn_f5_buf4": "E100",
    "E100_none_buf4": "E100",
}

TOPOLOGY = "4 1 3\n3\n0 3 100Gbps 1000ns 0\n1 3 100Gbps 1000ns 0\n2 3 100Gbps 1000ns 0\n"
FLOWS = "2\n0 2 3 100 1000 2.0\n1 2 3 100 5000 2.001\n"
CONFIG = "CC_MODE 0\nHAS_WIN 0\nACK_HIGH_PRIO 1\n"


@pytest.fixture
def case(tmp_path):
    """Write the three files and import them."""

    def run(topology=TOPOLOGY, flows=FLOWS, config=None, output="out", **keys):
        paths = []
        for name, text in (("topo.txt", topology), ("flow.txt", flows), ("config.txt", config)):
            path = tmp_path / name
            if text is not None:
                path.write_bytes(text.encode())
            paths.append(path if text is not None else None)
        return import_hpcc(*paths, tmp_path / output, force=True, **keys)

    return run


@pytest.fixture
def message(case, tmp_path):
    """Import what is wrong and give the message, without the folder."""

    def run(**keys):
        with pytest.raises(InputError) as caught:
            case(**keys)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return run


def compiled(path):
    scenario = load_scenario(path)
    fabric = build_fabric(scenario, path.parent)
    return scenario, fabric, compile_workload(scenario, fabric, path.parent, np.full(fabric.host_count, 10**11)).flows


# --- The recorded runs


@pytest.mark.parametrize("run", RUNS)
def test_recorded_inputs_become_scenarios_that_load(run, tmp_path):
    inputs = DATA / "inputs"
    path, _ = import_hpcc(
        inputs / f"topology_{RUNS[run]}.txt", inputs / f"flows_{RUNS[run]}.txt", inputs / f"config_{run}.txt", tmp_path
    )
    scenario, fabric, table = compiled(path)
    assert scenario.compat == "ns3"
    assert scenario.switch.buffer == (4 if run.endswith("buf4") else 32) * 2**20
    assert scenario.nic.cc.kind == ("none" if "none" in run else "dcqcn")
    assert scenario.nic.cc.notification == "echo"
    assert scenario.nic.mtu == 1000
    assert {cable.rate_bps for cable in fabric.cables} == {10**11}
    assert {cable.delay_ps for cable in fabric.cables} == {10**6}
    if "f5" in run:
        cc = scenario.nic.cc
        assert (cc.threshold, cc.alpha_timer, cc.decrease_timer, cc.increase_timer) == (
            5,
            55 * 10**6,
            50 * 10**6,
            55 * 10**6,
        )
        assert (cc.rate_ai, cc.rate_hai, cc.rate_min) == (40 * 10**6, 400 * 10**6, 10**9)
        assert (scenario.switch.ecn.kmin, scenario.switch.ecn.kmax) == (100_000, 400_000)
    results = DATA / "results" / f"{run}_fct.csv"
    if results.exists():
        with results.open() as file:
            recorded = list(csv.DictReader(file))
        # Truncated like ns-3 does: 2.001 s is 2000999999 ns.
        assert table.start_ps.tolist() == [int(row["start_ns"]) * 1000 for row in recorded]
        assert table.bytes.tolist() == [int(row["size"]) for row in recorded]
        assert [fabric.host_names[host] for host in table.src] == [f"h{row['src']}" for row in recorded]


@pytest.mark.parametrize("run", ["D_k4_dcqcn", "D_ls128_dcqcn"])
def test_start_times_truncate_like_ns3(run):
    with (DATA / "results" / f"{run}_fct.csv").open() as file:
        starts = [int(row["start_ns"]) for row in csv.DictReader(file)]
    # The flow files had nine decimals, so that the true time is the recorded one or the next.
    for start in starts:
        texts = [f"2.{(start + more) % 10**9:09d}" for more in (0, 1)]
        assert start in [time_ns(text) for text in texts]
    assert time_ns("2.001000000") == 2_000_999_999


# --- What comes out


def test_scenario_text(case):
    path, notes = case(config=CONFIG)
    assert path.name == "scenario.toml"
    text = path.read_text()
    assert 'from "topo.txt", "flow.txt", "config.txt"' in text
    assert (path.parent / "links.csv").read_text().splitlines() == [
        "a,b,rate,delay",
        "h0,sw3,100Gbps,1us",
        "h1,sw3,100Gbps,1us",
        "h2,sw3,100Gbps,1us",
    ]
    assert (path.parent / "flows.csv").read_text().splitlines() == [
        "src,dst,bytes,start_ps,class,sport",
        "h0,h2,1000,2000000000000,pg3,10000",
        "h1,h2,5000,2000999999000,pg3,10000",
    ]
    assert all("not given" in note for note in notes)
    scenario, _, table = compiled(path)
    assert scenario.name == "topo"
    assert [item.name for item in scenario.classes_by_priority] == ["pg3", "cnp"]
    assert len(table) == 2


def test_shift_start(case):
    path, _ = case(shift_start=True, config=CONFIG + "SIMULATOR_STOP_TIME 2.5\n")
    scenario, _, table = compiled(path)
    assert table.start_ps.tolist() == [0, 999_999_000]
    assert scenario.until == 500 * 10**9
    assert "2s earlier" in path.read_text()


def test_output_as_a_file_and_no_overwriting(case, tmp_path):
    path, _ = case(output="sub/mine.toml")
    assert path == tmp_path / "sub" / "mine.toml"
    assert {item.name for item in path.parent.iterdir()} == {"mine.toml", "mine-links.csv", "mine-flows.csv"}
    compiled(path)
    with pytest.raises(
        OutputError, match=r"mine-links.csv: exists already; choose another -o or overwrite with --force"
    ):
        import_hpcc(tmp_path / "topo.txt", tmp_path / "flow.txt", None, path)


def test_priority_groups_become_classes(case):
    path, _ = case(flows="3\n0 2 5 100 1 0\n1 2 1 100 1 0\n0 1 5 100 1 0\n")
    scenario, _, table = compiled(path)
    assert [(item.name, item.priority, item.lossless, item.cnp) for item in scenario.classes_by_priority] == [
        ("pg5", 5, True, False),
        ("pg1", 1, True, False),
        ("cnp", 0, False, True),
    ]
    assert table.class_id.tolist() == [0, 1, 0]


def test_source_ports_count_the_flows_of_a_pair(case):
    path, _ = case(flows="4\n0 2 3 100 1 0\n0 2 3 100 1 0\n2 0 3 100 1 0\n0 2 3 100 1 0\n")
    assert compiled(path)[2].sport.tolist() == [10000, 10001, 10000, 10002]


def test_no_flows(case):
    path, _ = case(flows="0\n")
    assert len(compiled(path)[2]) == 0


def test_hosts_and_switches_keep_their_ids(case):
    path, _ = case(
        topology="4 2 3\n2 0\n1 0 10Gbps 1us 0\n0 2 10Gbps 1us 0\n2 3 10Gbps 1us 0\n", flows="1\n3 1 3 100 9 0\n"
    )
    _, fabric, table = compiled(path)
    assert fabric.host_names == ["h1", "h3"] and fabric.switch_names == ["sw0", "sw2"]
    assert [(fabric.node_names[cable.a], fabric.node_names[cable.b]) for cable in fabric.cables] == [
        ("h1", "sw0"),
        ("sw0", "sw2"),
        ("sw2", "h3"),
    ]
    assert (table.src.tolist(), table.dst.tolist()) == ([1], [0])


def test_ecn_by_rate(case):
    topology = "4 2 3\n2 3\n0 2 25Gbps 1us 0\n1 3 25Gbps 1us 0\n2 3 100000000000.0 1us 0\n"
    flows = "1\n0 1 3 100 9 0\n"
    maps = (
        "KMIN_MAP 2 25000000000 100 100000000000 400\n"
        "KMAX_MAP 2 100000000000 1600 25000000000 400\n"
        "PMAX_MAP 2 25000000000 0.1 100000000000 0.2\n"
    )
    for config in (None, CONFIG + maps):
        path, _ = case(topology=topology, flows=flows, config=config)
        ecn = load_scenario(path).switch.ecn
        assert ecn.at_rate(25 * 10**9)[:2] == (100_000, 400_000)
        assert ecn.at_rate(100 * 10**9) == (400_000, 1_600_000, 0.2)
    assert ecn.at_rate(25 * 10**9).pmax == 0.1


def test_ecn_off(case):
    path, _ = case(config=CONFIG + "ENABLE_QCN 0\n")
    assert load_scenario(path).switch.ecn.enabled is False


# --- Variants of the formats


@pytest.mark.parametrize(
    "topology",
    [
        "4 1 3\r\n3\r\n0 3 100Gbps 1000ns 0\r\n1 3 100Gbps 1000ns 0\r\n2 3 100Gbps 1000ns 0",
        "4\t1  3\n 3 \n0\t3\t100Gbps\t0.001ms\t0.000000\n\n1 3 100000000000 1us 0\n2 3 100000000000.0 1.0us 0\n\n",
        "4 1 1 3\n3\n0 3 1e11 1us 0\n1 3 100Gb/s 1us 0\n2 3 0.1Tbps 1us 0\n",
        "4 2 0 1 3 H100\n3\n0 3 100Gbps 1us 0\n1 3 100Gbps 1us 0\n2 3 100Gbps 1us 0\n",
        "4 2 1 0 3 H100\n3\n0 3 100Gbps 1us 0\n1 3 100Gbps 1us 0\n2 3 100Gbps 1us 0\n",
        TOPOLOGY + "\n10 racks as in the paper\nFirst line: nodes switches links\nsrc dst rate delay error\n",
    ],
)
def test_topology_variants(case, topology):
    _, fabric, _ = compiled(case(topology=topology)[0])
    assert [(cable.a, cable.b, cable.rate_bps, cable.delay_ps) for cable in fabric.cables] == [
        (host, 3, 10**11, 10**6) for host in range(3)
    ]


def test_switch_ids_may_be_wrapped(case):
    _, fabric, _ = compiled(
        case(
            topology="5 3 4\n2 3\n4\n0 2 1Gbps 1us 0\n1 3 1Gbps 1us 0\n2 4 1Gbps 1us 0\n3 4 1Gbps 1us 0\n",
            flows="1\n0 1 3 100 9 0\n",
        )[0]
    )
    assert fabric.switch_names == ["sw2", "sw3", "sw4"]


def test_conweave_flows_have_no_port(case):
    table = compiled(case(flows="2\n0 2 3 1000 2.0\n1 2 3 5000 2.5\nend of file\n")[0])[2]
    assert table.bytes.tolist() == [1000, 5000]
    assert table.start_ps.tolist() == [2 * 10**12, 25 * 10**11]


def test_old_flows_count_packets(case):
    path, notes = case(flows="2\n0 2 3 10 2.0 9.5\n1 2 3 5 2.5 9.5\n", config=CONFIG + "PACKET_PAYLOAD_SIZE 1024\n")
    assert compiled(path)[2].bytes.tolist() == [10240, 5120]
    assert any("end times are not carried over" in note for note in notes)


def test_hpcc_flows_of_a_few_bytes_are_not_taken_for_old_ones(case):
    assert compiled(case(flows="2\n0 2 3 100 1 2.0\n1 2 3 100 2 2.5\n")[0])[2].bytes.tolist() == [1, 2]


def test_unsorted_flows_are_sorted_stably(case):
    path, notes = case(flows="4\n0 2 3 100 1 3\n0 2 3 100 2 2\n0 2 3 100 3 3\n0 2 3 100 4 2\n")
    assert compiled(path)[2].bytes.tolist() == [2, 4, 1, 3]
    assert [row.split(",")[2] for row in (path.parent / "flows.csv").read_text().split()[1:]] == ["1", "2", "3", "4"]
    assert any("flow.txt:3: start times are not sorted" in note for note in notes)


def test_parallel_links_are_all_kept(case):
    path, notes = case(
        topology="3 1 3\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n0 2 1Gbps 1us 0\n", flows="1\n0 1 3 9 9 0\n"
    )
    assert len(compiled(path)[1].cables) == 3
    assert any("topo.txt:5: nodes 0 and 2 have parallel links" in note for note in notes)


# --- Values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100Gbps", 10**11),
        ("25Gb/s", 25 * 10**9),
        ("20Mb/s", 20 * 10**6),
        ("1GBps", 8 * 10**9),
        ("25000000000.0", 25 * 10**9),
        ("1e12", 10**12),
        ("0.5Gbps", 5 * 10**8),
        ("0", None),
        ("-1Gbps", None),
        ("fast", None),
        ("100Gb", None),
        ("1e300", None),
        ("1e999999999", None),
        ("nan", None),
        ("1.2.3", None),
    ],
)
def test_rates(text, value):
    assert rate_bps(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1000ns", 1000),
        ("0.001ms", 1000),
        ("1us", 1000),
        ("1.5us", 1500),
        ("0.000001", 999),  # the double nearest to 1e-6 is below it
        ("2.001", 2_000_999_999),
        ("2", 2 * 10**9),
        ("999ps", 0),
        ("-1ns", None),
        ("1 fortnight", None),
        ("nan", None),
        ("1e30", None),
    ],
)
def test_times(text, value):
    assert time_ns(text) == value


def test_whole_numbers():
    assert [whole(text) for text in ("5", "5.0", "1e3", "5.5", "x", "nan", "1e999999")] == [
        5,
        5,
        1000,
        None,
        None,
        None,
        None,
    ]


# --- Malformed topologies


def links(count):
    return "".join(f"{host} {count} 100Gbps 1us 0\n" for host in range(count))


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (
            "25 1 20\n24\n" + links(24),
            "topo.txt:23: surplus link '20 24 100Gbps 1us 0': the header in line 1 says 20 links, but the file has 24",
        ),
        (
            "25 1 24\n24\n" + "".join(links(24).splitlines(True)[:20]),
            "topo.txt:1: the header says 24 links, but the file has 20",
        ),
        (
            "4 1 3\n3\n0 3 100Gbps 1us 0\nFigure 3\n",
            "topo.txt:1: the header says 3 links, but the file has 1; line 4, 'Figure 3', is none",
        ),
        (
            "4 1 3\n3\n0 3 100Gbps 1us 0\n1 x 100Gbps 1us 0\n2 3 100Gbps 1us 0\n",
            "topo.txt:4: '1 x 100Gbps 1us 0' is not a link",
        ),
        (
            "4 1 2\n3\n0 3 100Gbps 1us 0\nand then\n2 3 100Gbps 1us 0\n",
            "topo.txt:4: 'and then' is not a link; text may only follow the last one",
        ),
        ("4 1 1\n3\n0 4 100Gbps 1us 0\n", "topo.txt:3: link to unknown node 4; the header says nodes 0 to 3"),
        ("4 1 1\n3\n3 3 100Gbps 1us 0\n", "topo.txt:3: link from node 3 to itself"),
        ("4 1 1\n4\n0 3 100Gbps 1us 0\n", "topo.txt:2: switch id 4 is out of range; the header says nodes 0 to 3"),
        ("4 2 1\n3 3\n0 3 100Gbps 1us 0\n", "topo.txt:2: switch id 3 is listed twice"),
        (
            "4 1 1\n2 3\n0 3 100Gbps 1us 0\n",
            "topo.txt:2: 2 switch ids, but the header says 1 switches; the first surplus one is 3",
        ),
        (
            "4 2 1\n3\n0 3 100Gbps 1us 0\n",
            "topo.txt:3: '0 3 100Gbps 1us 0' where switch ids are expected: the header says 2 switches, "
            "but only 1 ids come before",
        ),
        ("4 2 1\n3\n", "topo.txt:1: the header says 2 switches, but the file has 1 switch ids"),
        (
            "4 1 1\n3\n0 3 100Gbps 1us 0.01\n",
            "topo.txt:3: loss rate 0.01: links that lose packets are not supported yet; only 0 is",
        ),
        ("4 1 1\n3\n0 3 100Gbps 1us 2\n", "topo.txt:3: loss rate 2 is not between 0 and 1"),
        ("4 1 1\n3\n0 3 100Gbps 1us x\n", "topo.txt:3: the loss rate is 'x'; a number is needed"),
        (
            "4 1 1\n3\n0 3 100Gb 1us 0\n",
            "topo.txt:3: rate '100Gb' is not a rate from 1bps to 100Tbps, such as 100Gbps or 100000000000",
        ),
        (
            "4 1 1\n3\n0 3 -1 1us 0\n",
            "topo.txt:3: rate '-1' is not a rate from 1bps to 100Tbps, such as 100Gbps or 100000000000",
        ),
        (
            "4 1 1\n3\n0 3 100Gbps 1m 0\n",
            "topo.txt:3: delay '1m' is not a time, such as 1000ns, 0.001ms or (in seconds) 0.000001",
        ),
        (
            "4 1 1\n3\n0 3 100Gbps 1us\n",
            "topo.txt:3: '0 3 100Gbps 1us' has 4 fields; a link has 5: a b rate delay loss",
        ),
        ("4 1\n3\n", None),
        ("four 1 3\n3\n", "topo.txt:1: the number of nodes is 'four'; a whole number is needed"),
        ("-4 1 3\n3\n", "topo.txt:1: the number of nodes is -4; it cannot be negative"),
        ("1e9 1 3\n0\n", "topo.txt:1: the number of nodes is 1000000000; at most 1000000 are supported"),
        ("1 3 3\n0\n", "topo.txt:1: 3 switches among 1 nodes"),
        ("1 1 0\n0\n", "topo.txt: all 1 nodes are switches; a fabric needs hosts"),
        ("", "topo.txt: the file is empty"),
        ("\n \n", "topo.txt: the file is empty"),
    ],
)
def test_malformed_topologies(message, topology, expected):
    flows = "0\n"
    if expected is None:
        expected = (
            "topo.txt:1: line 1 has 2 fields; known are 3 (nodes switches links), 4 (nodes switches ToRs links) "
            "and 6 (nodes GPUs-per-server NVSwitches switches links GPU-type)"
        )
    assert message(topology=topology, flows=flows) == expected


# --- Malformed flow files


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        (
            "1\n" + FLOWS[2:],
            "flow.txt:3: surplus flow '1 2 3 100 5000 2.001': the header in line 1 says 1 flows, but the file has 2",
        ),
        ("3\n" + FLOWS[2:], "flow.txt:1: the header says 3 flows, but the file has 2"),
        ("x\n", "flow.txt:1: the number of flows is 'x'; a whole number is needed"),
        ("-1\n", "flow.txt:1: the number of flows is -1; it cannot be negative"),
        ("0 2 3 100 1 2\n", "flow.txt:1: '0 2 3 100 1 2': line 1 must be the number of flows and nothing else"),
        ("1\n0 3 3 100 1 2\n", "flow.txt:2: destination 3 is a switch; only hosts send and receive"),
        ("1\n3 0 3 100 1 2\n", "flow.txt:2: source 3 is a switch; only hosts send and receive"),
        ("1\n0 4 3 100 1 2\n", "flow.txt:2: destination 4 is no node of topo.txt, which has nodes 0 to 3"),
        ("1\n1 1 3 100 1 2\n", "flow.txt:2: flow from node 1 to itself"),
        ("1\n0 1 3 100 -1 2\n", "flow.txt:2: the number of bytes is -1; it cannot be negative"),
        ("1\n0 1 3 100 1.5 1\n", "flow.txt:2: the number of bytes is '1.5'; a whole number is needed"),
        ("1\n0 1 3 100 1 -2\n", "flow.txt:2: the start time is -2 s; it cannot be negative"),
        ("1\n0 1 3 100 1 soon\n", "flow.txt:2: the last field is 'soon'; a number is needed"),
        ("1\n0 1 9 100 1 2\n", "flow.txt:2: priority group 9 is not between 1 and 7"),
        ("1\n0 1 0 100 1 2\n", None),
        ("2\n0 1 3 100 1 2\n0 1 3 100 2\n", "flow.txt:3: '0 1 3 100 2' has 5 fields, but the flow in line 2 has 6"),
        ("1\n0 1 x 100 1 2\n", "flow.txt:2: the priority group is 'x'; a whole number is needed"),
    ],
)
def test_malformed_flows(message, flows, expected):
    if expected is None:
        expected = (
            "flow.txt:2: priority group 0 is served before all others and outside PFC, "
            "which is not supported; use 1 to 7"
        )
    assert message(flows=flows) == expected


def test_flow_of_an_isolated_host(message):
    assert (
        message(topology="4 1 2\n3\n0 3 1Gbps 1us 0\n1 3 1Gbps 1us 0\n")
        == "flow.txt:2: destination 2 has no link in topo.txt"
    )


def test_flow_of_ten_terabytes(case):
    assert compiled(case(flows="1\n0 2 3 100 10000000000000 2\n")[0])[2].bytes.tolist() == [10**13]


# --- Configuration


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("CC_MODE 3", "CC_MODE 3 (HPCC) is not supported; supported are 0 (none) and 1 (DCQCN)"),
        ("CC_MODE 99", "CC_MODE 99 is not supported; supported are 0 (none) and 1 (DCQCN)"),
        ("HAS_WIN 1", "HAS_WIN 1: a window per flow is not supported; only HAS_WIN 0 is"),
        ("ENABLE_PFC 0", "ENABLE_PFC 0: running without PFC is not supported; only ENABLE_PFC 1 is"),
        (
            "ERROR_RATE_PER_LINK 0.01",
            "ERROR_RATE_PER_LINK 0.01: links that lose packets are not supported yet; only ERROR_RATE_PER_LINK 0 is",
        ),
        ("LINK_DOWN 100 0 3", "LINK_DOWN 100 0 3: link failures are not supported yet; only LINK_DOWN 0 0 0 is"),
        ("BUFFER_SIZE 0", "BUFFER_SIZE is '0'; a whole number from 1 to 1048576 is needed"),
        ("BUFFER_SIZE 4 4", "BUFFER_SIZE has 2 values; it takes one"),
        ("RATE_AI fast", "RATE_AI is 'fast'; a rate above 0 such as 50Mb/s is needed"),
        ("EWMA_GAIN 2", "EWMA_GAIN is '2'; a number from 0 to 1 is needed"),
        ("RP_TIMER -1", "RP_TIMER is '-1'; a time in us, of at least 1, is needed"),
        (
            "L2_ACK_INTERVAL 4000",
            "L2_ACK_INTERVAL 4000: an ACK that waits for a number of bytes is not supported; only L2_ACK_INTERVAL 1 is",
        ),
        ("KMIN_MAP 2 100000000000 400", "KMIN_MAP says 2 pairs of rate and value, but 2 numbers follow"),
        ("KMIN_MAP 1 100000000000 400", "KMIN_MAP without KMAX_MAP; give KMIN_MAP, KMAX_MAP and PMAX_MAP, or none"),
        ("PMAX_MAP 1 100000000000 1.5", "PMAX_MAP at 100Gbps is 1.5; allowed is 0 to 1"),
        ("buffer 3", "'buffer 3' is not a setting; a line is KEY value"),
    ],
)
def test_malformed_config(message, line, expected):
    assert message(config="PACKET_PAYLOAD_SIZE 1000\n" + line + "\n") == f"config.txt:2: {expected}"


def test_config_that_contradicts_itself(message):
    assert (
        message(config="CC_MODE 1\nBUFFER_SIZE 3\nCC_MODE 0\n") == "config.txt:3: CC_MODE is set twice, first in line 1"
    )
    maps = "KMIN_MAP 1 {0} {1}\nKMAX_MAP 1 {0} 400\nPMAX_MAP 1 {2} 0.2\n"
    assert (
        message(config=maps.format(10**11, 500, 10**11))
        == "config.txt:1: KMIN_MAP 500 is above KMAX_MAP 400 at 100Gbps"
    )
    assert (
        message(config=maps.format(10**11, 100, 25 * 10**9))
        == "config.txt:3: PMAX_MAP and KMIN_MAP are not for the same rates: only one has 25Gbps"
    )
    assert message(config=maps.format(25 * 10**9, 100, 25 * 10**9)) == (
        "topo.txt:3: rate 100Gbps has no ECN thresholds in config.txt; KMIN_MAP, KMAX_MAP and PMAX_MAP need every rate "
        "of a switch port"
    )


def test_every_key_that_is_not_carried_over_has_a_note(case, tmp_path):
    _, notes = case(config=CONFIG + "U_TARGET 0.95\nVAR_WIN 1\nFLOW_FILE mix/flow.txt\nBUFER_SIZE 3\nLINK_DOWN 0 0 0\n")
    text = "\n".join(notes).replace(f"{tmp_path}/", "")
    for part in (
        "config.txt:4: U_TARGET is not carried over: it belongs to other congestion controls",
        "config.txt:5: VAR_WIN is not carried over: it belongs to windows",
        "config.txt:6: FLOW_FILE is not carried over: files are arguments of this command, and the run directory holds",
        "config.txt:7: BUFER_SIZE is not carried over: unknown key; did you mean BUFFER_SIZE?",
        "config.txt:8: LINK_DOWN is not carried over: no link fails",
        "config.txt: not given, so the family's DCQCN settings at 100 Gb/s apply: PACKET_PAYLOAD_SIZE, BUFFER_SIZE, ",
    ):
        assert part in text


def test_missing_config_has_a_note_that_tells_the_settings():
    (note,) = default_config().notes
    for part in ("CC_MODE 1", "payload 1000 B", "buffer 32 MiB", "RP_TIMER 300", "MIN_RATE 1000Mb/s"):
        assert part in note


def test_defaults_are_those_of_the_recorded_dcqcn_runs():
    recorded = read_config(DATA / "inputs" / "config_B_dcqcn.txt")
    default = default_config()
    for name in [
        "cc_mode",
        "payload_bytes",
        "buffer_bytes",
        "ecn_enabled",
        "alpha_timer_ns",
        "decrease_timer_ns",
        "increase_timer_ns",
        "gain",
        "fast_recovery_steps",
        "clamp_target",
        "rate_ai_bps",
        "rate_hai_bps",
        "rate_min_bps",
        "ack_every",
    ]:
        assert getattr(default, name) == getattr(recorded, name), name
    for rate in (100 * 10**9, 400 * 10**9):
        assert default.ecn_at(rate) == recorded.ecn_at(rate)


def test_readers_take_paths():
    topology = read_topology(DATA / "inputs" / "topology_E100.txt")
    assert topology.hosts == (0, 1, 2, 3, 4, 5, 6) and topology.switches == (7, 8)
    assert read_flows(DATA / "inputs" / "flows_E100.txt", topology).form == "HPCC"


# --- The command


def command(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(["import", "hpcc", *map(str, arguments)])
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


def test_command_prints_the_path_and_the_notes(capsys, tmp_path, monkeypatch):
    inputs = DATA / "inputs"
    monkeypatch.chdir(tmp_path)
    code, out, err = command(capsys, inputs / "topology_B.txt", inputs / "flows_B.txt", "--shift-start")
    assert (code, out) == (0, "flows_B/scenario.toml\n")
    assert err.startswith("note: no configuration file: the family's DCQCN settings at 100 Gb/s are used (CC_MODE 1, ")
    code, out, err = command(capsys, inputs / "topology_B.txt", inputs / "flows_B.txt")
    assert code == 2 and out == ""
    assert err == "error: flows_B/links.csv: exists already; choose another -o or overwrite with --force\n"
    code, out, _ = command(capsys, inputs / "topology_B.txt", inputs / "flows_B.txt", "--force", "-o", "flows_B")
    assert (code, out) == (0, "flows_B/scenario.toml\n")


def test_command_errors_are_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("topo.txt").write_text("25 1 20\n24\n" + links(24))
    Path("flow.txt").write_text("0\n")
    assert command(capsys, "topo.txt", "flow.txt", "-o", "x") == (
        2,
        "",
        "error: topo.txt:23: surplus link '20 24 100Gbps 1us 0': the header in line 1 says 20 links, "
        "but the file has 24\n",
    )
    assert not Path("x").exists()
    assert command(capsys, "none.txt", "flow.txt", "-o", "x") == (2, "", "error: none.txt: No such file or directory\n")
    assert command(capsys, ".", "flow.txt", "-o", "x") == (2, "", "error: .: not a regular file\n")
    Path("topo.txt").write_bytes(b"\xff\xfe4 1 3\n")
    assert command(capsys, "topo.txt", "flow.txt", "-o", "x") == (
        2,
        "",
        "error: topo.txt: not a text file: invalid UTF-8 at byte 0\n",
    )


def test_command_that_cannot_write(capsys, tmp_path, monkeypatch):
    inputs = DATA / "inputs"
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    code, _, err = command(capsys, inputs / "topology_B.txt", inputs / "flows_B.txt", "-o", "file")
    assert code == 2 and "file: cannot write: " in err
