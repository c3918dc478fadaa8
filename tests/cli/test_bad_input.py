"""Bad input, one example each: what the user reads, the exit code, and that nothing is left behind.

Through the entry point of the command, in this process: quick, and the streams are those of a user.
"""

import os
import subprocess
import sys

import pyarrow.compute as pc
import pytest

import fabemu
from fabemu.cli import main

STAR = '[fabric]\nkind = "single-switch"\nhosts = 4\n'
GRAPH = '[fabric]\nkind = "graph"\nhosts = ["a", "b", "c"]\nswitches = ["s", "t"]\n'
POISSON = '[[workload]]\nkind = "poisson"\nload = 0.3\nstop = "10us"\n'


def flow(*texts):
    return '[[workload]]\nkind = "flows"\nflow = [' + ", ".join(f"{{{text}}}" for text in texts) + "]\n"


ONE = flow('src = "h0", dst = "h1", size = "10KB"')
LETTERS = flow('src = "a", dst = "b", size = "10KB"')


@pytest.fixture
def fabemu_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err and "fault in fabemu" not in err
        return ended.value.code, out, err

    return command


WRONG = {
    "reserved and headroom above the buffer": (
        STAR + ONE + '[switch]\nbuffer = "1MiB"\npfc = { reserved = "128KiB", headroom = "200KiB" }\n',
        "s.toml:8: switch.buffer: sw0: reserved 524,288 B + headroom 819,200 B = 1,343,488 B on 4 ports do not fit "
        "buffer = 1MiB (1,048,576 B): 294,912 B too much",
    ),
    "buffer smaller than its headrooms": (
        STAR + ONE + '[switch]\nbuffer = "64KB"\npfc = { headroom = "1MB" }\n',
        "s.toml:8: switch.buffer: sw0: reserved 16,384 B + headroom 4,000,000 B = 4,016,384 B on 4 ports do not fit "
        "buffer = 64KB (64,000 B): 3,952,384 B too much",
    ),
    "credits smaller than one frame": (
        STAR + ONE + '[link]\nflow_control = "credit"\ncredit_buffer = "4KiB"\n',
        "s.toml:9: link.credit_buffer: h0->sw0 and 7 more: 4,096 B of credits, in whole blocks of 64 B, do not hold "
        "the largest frame, 4,174 B: it could never be sent",
    ),
    "credits at one end and PFC at the other": (
        STAR
        + ONE
        + '[link]\nflow_control = "credit"\n[[switch.override]]\nname = "sw0"\npeer = "h1"\npfc.enabled = true\n',
        's.toml:12: switch.override.0.pfc: the link of "sw0" to "h1" uses credits: a link has PFC or credits, the same '
        "at both ends",
    ),
    "cells with credits": (
        STAR + ONE + '[link]\nflow_control = "credit"\n[switch]\ncell = "208B"\n',
        "s.toml:10: switch.cell: sw0 has links with credits, which count bytes: cell = 208B is not for it",
    ),
    "a class map with credits": (
        STAR + ONE + '[link]\nflow_control = "credit"\n[switch]\nclass_map = { rdma = "best-effort" }\n',
        "s.toml:10: switch.class_map: sw0 has links with credits, where a frame belongs to the same class at both ends",
    ),
    "a SEND of nothing": (
        STAR
        + '[[workload]]\nkind = "flows"\nverb = "send"\nflow = [{ src = "h0", dst = "h1", size = "0B" }]\n'
        + '[frames]\nheader = "0B"\nminimum = "0B"\nwire_overhead = "0B"\n',
        "s.toml:9: frames.header: flow 0: a SEND of 0 B is a frame of 0 B on the wire (frames.header 0 + "
        "frames.minimum 0 + frames.wire_overhead 0); it must be at least 1 B",
    ),
    "a receiver under compat": (
        'compat = "ns3"\n' + STAR + ONE + '[nic.receiver]\nxoff = "64KB"\n',
        's.toml:9: nic.receiver.xoff = "64KB": hosts of compat = "ns3" keep up with their links: it has no receiver',
    ),
    "a receiver of one host under compat": (
        'compat = "ns3"\n' + STAR + ONE + '[[nic.override]]\nname = "h1"\nreceiver.buffer = "1MB"\n',
        's.toml:10: nic.override.0.receiver.buffer = "1MB": hosts of compat = "ns3" keep up with their links: it has '
        "no receiver",
    ),
    "no way of flow control": (
        STAR + ONE + '[link]\nflow_control = "credits"\n',
        's.toml:8: link.flow_control = "credits": must be "pfc" or "credit"',
    ),
    "no time of a refresh": (
        STAR + ONE + '[link]\ncredit_refresh = "0us"\n',
        's.toml:8: link.credit_refresh = "0us": must be above 0',
    ),
    "a static threshold above the buffer": (
        STAR + ONE + '[switch]\nbuffer = "8MiB"\npfc.static = "9MiB"\n',
        's.toml:9: switch.pfc.static = "9MiB": 9MiB is more than the buffer, 8MiB',
    ),
    "a lossy static limit above the buffer of one tier": (
        STAR + ONE + '[switch]\nlossy.egress_static = "9MiB"\n[switch.tier.switch]\nbuffer = "8MiB"\n',
        "s.toml:9: switch.tier.switch.lossy.egress_static: 9MiB is more than the buffer, 8MiB",
    ),
    "two kinds of threshold": (
        STAR + ONE + '[switch.pfc]\nstatic = "1MB"\nalpha = "1/4"\n',
        's.toml:8: switch.pfc.static = "1MB": alpha and static are both given: give one of them',
    ),
    "two kinds of threshold in an override": (
        STAR + ONE + '[[switch.override]]\nname = "sw0"\nlossy = { egress_static = "1MB", egress_alpha = 1 }\n',
        's.toml:9: switch.override.0.lossy.egress_static = "1MB": egress_alpha and egress_static are both given: give '
        "one of them",
    ),
    "a weight of nothing": (
        STAR + ONE + "[switch]\nweights = { rdma = 0 }\n",
        "s.toml:8: switch.weights.rdma = 0: must be at least 1",
    ),
    "a weight of a class that is not there": (
        STAR + ONE + "[switch]\nweights = { rmda = 60 }\n",
        's.toml:8: switch.weights.rmda = 60: there is no class "rmda"; did you mean "rdma"?',
    ),
    "a class map to nowhere": (
        STAR + ONE + '[switch]\nclass_map = { rdma = "best-efort" }\n',
        's.toml:8: switch.class_map.rdma = "best-efort": there is no class "best-efort"; did you mean "best-effort"?',
    ),
    "a cell larger than any frame": (
        STAR + ONE + '[switch]\ncell = "1MiB"\n',
        's.toml:8: switch.cell = "1MiB": must be at most 65535B',
    ),
    "an override of a port that is not there": (
        STAR + ONE + '[[switch.override]]\nname = "sw0"\npeer = "h9"\npfc.enabled = false\n',
        's.toml:9: switch.override.0.peer = "h9": the fabric has no device "h9"',
    ),
    "an override of a port to another switch's host": (
        GRAPH
        + 'links = [{ a = "a", b = "s" }, { a = "b", b = "s" }, { a = "c", b = "t" }, { a = "s", b = "t" }]\n'
        + LETTERS
        + '[[switch.override]]\nname = "s"\npeer = "c"\necn.enabled = false\n',
        's.toml:11: switch.override.0.peer = "c": no link joins "s" and this device',
    ),
    "a buffer of one port": (
        STAR + ONE + '[[switch.override]]\nname = "sw0"\npeer = "h1"\nbuffer = "1MiB"\n',
        's.toml:10: switch.override.0.buffer = "1MiB": belongs to the whole switch; with peer there may be "pfc", '
        '"lossy", "ecn" or "weights"',
    ),
    "what compat does not have": (
        'compat = "ns3"\n' + STAR + ONE + "[switch]\nweights = { rdma = 60 }\n",
        's.toml:9: switch.weights: compat = "ns3" does not have it',
    ),
    "unknown key": (
        STAR + ONE + '[switch]\nbufer = "64MB"\n',
        's.toml:8: switch.bufer = "64MB": unknown key; did you mean "buffer"? (allowed: buffer, latency, ',
    ),
    "unknown key that is like no other": (
        STAR + "zzzz = 1\n" + ONE,
        "s.toml:4: fabric.zzzz = 1: unknown key (allowed: kind, hosts, gpus_per_node, frontend)",
    ),
    "bits instead of bits per second": (
        STAR + ONE + '[link]\nrate = "400Gb"\n',
        's.toml:8: link.rate = "400Gb": a rate needs /s: write "400Gbps", not "400Gb"',
    ),
    "no unit at all": (
        STAR + ONE + '[link]\nrate = "5 apples"\n',
        's.toml:8: link.rate = "5 apples": "apples" is not a unit of rate: use bps, kbps, Mbps, Gbps or Tbps',
    ),
    "negative rate": (
        STAR + ONE + '[link]\nrate = "-4Gbps"\n',
        's.toml:8: link.rate = "-4Gbps": a rate cannot be negative',
    ),
    "rate of zero": (
        STAR + ONE + '[link]\nrate = "0Gbps"\n',
        's.toml:8: link.rate = "0Gbps": a rate must be above 0: write for example "400Gbps"',
    ),
    "kmin above kmax": (
        STAR + ONE + '[switch.ecn]\nkmin = "2MB"\nkmax = "1MB"\n',
        's.toml:8: switch.ecn.kmin = "2MB": kmin 2MB is above kmax 1MB',
    ),
    "host that sends to itself": (
        STAR + flow('src = "h0", dst = "h0", size = "1KB"'),
        's.toml:6: workload.0.flow.0.dst = "h0": host "h0" sends to itself',
    ),
    "unreachable destination": (
        GRAPH + 'links = [{ a = "a", b = "s" }, { a = "b", b = "t" }, { a = "c", b = "t" }]\n' + LETTERS,
        "s.toml: b is unreachable from a: no path",
    ),
    "traffic of an isolated host": (
        GRAPH + 'links = [{ a = "a", b = "s" }, { a = "c", b = "s" }]\n' + LETTERS,
        "s.toml: b is unreachable from a: b has no link",
    ),
    "flow to a switch": (
        STAR + flow('src = "h0", dst = "sw0", size = "1KB"'),
        's.toml:6: workload.0.flow.0.dst: "sw0" is a switch: only hosts send and receive',
    ),
    "link to itself": (
        GRAPH + 'links = [{ a = "a", b = "s" }, { a = "s", b = "s" }]\n' + LETTERS,
        's.toml:5: fabric.links.1.b = "s": the link joins "s" to itself',
    ),
    "link to an unknown node": (
        GRAPH + 'links = [{ a = "a", b = "s" }, { a = "b", b = "zz" }]\n' + LETTERS,
        's.toml:5: fabric.links.1.b = "zz": there is no device "zz" in hosts or switches',
    ),
    "no workload": (STAR, "s.toml: there is no traffic: add at least one [[workload]]"),
    "workload without flows": (
        STAR + flow(),
        "s.toml:6: workload.0.flow = []: there is no flow: add at least one [[workload.flow]]",
    ),
    "no TOML": ("hello world", "s.toml:1:7: not valid TOML: "),
    "invalid UTF-8": (b'name = "\xff"\n', "s.toml:1: not valid UTF-8: byte 0xff at offset 8; save the file as UTF-8"),
    "CDF that is not monotone": (
        STAR + POISSON + 'sizes = "sizes.cdf"\n',
        "workload.0.sizes: sizes.cdf:3: not monotone: 200 bytes, probability 40 after 100 bytes, probability 50",
    ),
    "CDF of no such name": (
        STAR + POISSON + 'sizes = "WebSaerch"\n',
        "workload.0.sizes: no size distribution 'WebSaerch': it is neither a file nor one of WebSearch, ",
    ),
    "not a number": (STAR + POISSON.replace("0.3", "nan"), "s.toml:6: workload.0.load = nan: a ratio must be finite"),
    "time before the start": (
        STAR + flow('src = "h0", dst = "h1", size = "1KB", start = "-1us"'),
        's.toml:6: workload.0.flow.0.start = "-1us": a time cannot be negative',
    ),
    "name that commands the terminal": (
        'name = "\\u001b[31mred"\n' + STAR + ONE,
        r's.toml:1: name = "\u001b[31mred": must not hold control characters',
    ),
    "device that breaks the line": (
        GRAPH.replace('"c"', r'"c\nd"') + 'links = [{ a = "a", b = "s" }, { a = "b", b = "s" }]\n' + LETTERS,
        "must not hold control characters",
    ),
    "nested too deeply": ("x = " + "[" * 5000 + "]" * 5000, "s.toml: is nested too deeply"),
}


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_scenario(fabemu_command, tmp_path, command, name):
    text, message = WRONG[name]
    (tmp_path / "s.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "sizes.cdf").write_text("1 0\n100 50\n200 40\n300 100\n")
    code, out, err = fabemu_command(command, "s.toml")
    assert (code, out) == (2, "")
    assert any(line.startswith("error: ") and message in line for line in err.splitlines()), err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.toml", "sizes.cdf"]


@pytest.mark.parametrize("command", ["run", "check"])
def test_no_regular_file(fabemu_command, tmp_path, command):
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name, message in (
        ("directory", "directory: is a directory; give the scenario file in it"),
        ("fifo", "fifo: is a FIFO (named pipe), not a regular file"),
        ("nothing.toml", "nothing.toml: no such file"),
    ):
        assert fabemu_command(command, name) == (2, "", f"error: {message}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "fifo"]


def test_options_are_named_as_typed(fabemu_command, tmp_path):
    (tmp_path / "s.toml").write_text(STAR + ONE)
    code, _, err = fabemu_command("run", "s.toml", "--set", "switch.buffer=100KB")
    assert code == 2 and err.startswith("error: --set switch.buffer=100KB: switch.buffer: sw0: reserved 16,384 B + ")
    code, _, err = fabemu_command("run", "s.toml", "--set", "a.b.c=1")
    assert code == 2 and err.startswith("error: --set a.b.c=1: a: unknown key (allowed: name, ")
    code, _, err = fabemu_command("run", "s.toml", "--set", "nonsense")
    assert code == 2 and err == 'error: --set nonsense: write key.path=value, such as "link.rate=200Gbps"\n'


def test_header_with_a_wrong_number_of_links(fabemu_command, tmp_path):
    (tmp_path / "topology.txt").write_text("3 1 1\n0\n0 1 100Gbps 1us 0\n0 2 100Gbps 1us 0\n")
    (tmp_path / "flow.txt").write_text("1\n1 2 3 100 1000 2\n")
    code, out, err = fabemu_command("import", "hpcc", "topology.txt", "flow.txt")
    assert (code, out) == (2, "")
    assert "topology.txt:4: surplus link '0 2 100Gbps 1us 0': the header in line 1 says 1 link" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flow.txt", "topology.txt"]


def test_ecn_above_the_pfc_threshold_is_a_warning_that_names_both(fabemu_command, tmp_path):
    (tmp_path / "s.toml").write_text(STAR + ONE + '[switch.ecn]\nkmin = "20MB"\nkmax = "40MB"\n')
    code, out, err = fabemu_command("check", "s.toml")
    assert (code, err) == (0, "") and out.startswith("s.toml: fine, 1 warning\n")
    text = "FB203 sw0: ECN kmin = 20MB (20,000,000 B) is above the PFC threshold 7,422,432 B "
    code, _, err = fabemu_command("run", "s.toml")
    assert code == 0 and err.startswith(f"warning: {text}")


def finished(fabemu_command, tmp_path, text, *options):
    (tmp_path / "s.toml").write_text(text)
    code, out, err = fabemu_command("run", "s.toml", *options)
    assert code == 0, err
    assert out.startswith("s: finished\n")
    run = fabemu.load(tmp_path / "s.run")
    assert run.info["invariants"] and all(check["held"] for check in run.info["invariants"]), run.info["invariants"]
    return run, err


def test_flow_of_no_bytes_is_one_frame(fabemu_command, tmp_path):
    run, _ = finished(fabemu_command, tmp_path, STAR + flow('src = "h0", dst = "h1", size = "0B"'))
    assert run.flows["packets"].to_pylist() == [1] and run.flows["status"].to_pylist() == ["done"]


def test_flow_of_ten_terabytes(fabemu_command, tmp_path):
    text = STAR + flow('src = "h0", dst = "h1", size = "10TB"')
    run, _ = finished(fabemu_command, tmp_path, text, "--until", "20us")
    assert run.flows["bytes"].to_pylist() == [10**13]
    assert run.flows["ideal_ps"].to_pylist()[0] > 10**13 * 8 * 1000 // 400
    assert run.info["messages"]["unfinished"] == 1


def test_two_flows_at_the_same_picosecond(fabemu_command, tmp_path):
    flows = (
        'src = "h0", dst = "h1", size = "50KB", start = "7ps"',
        'src = "h2", dst = "h1", size = "50KB", start = "7ps"',
    )
    run, _ = finished(fabemu_command, tmp_path, STAR + flow(*flows))
    again, _ = finished(fabemu_command, tmp_path, STAR + flow(*flows), "--force")
    assert run.info["digest"] == again.info["digest"]
    assert again.flows["posted_ps"].to_pylist() == [7, 7]


def test_parallel_links_all_carry_traffic(fabemu_command, tmp_path):
    text = '[fabric]\nkind = "dumbbell"\nleft = 4\nright = 4\ntrunks = 3\n'
    text += '[[workload]]\nkind = "all-to-all"\nsize = "20KB"\n'
    run, _ = finished(fabemu_command, tmp_path, text)
    sent = {}
    for port, count in zip(run.ports["port"].to_pylist(), run.ports["bytes"].to_pylist(), strict=True):
        if port.startswith(("sw0->sw1", "sw1->sw0")):
            sent[port] = sent.get(port, 0) + count
    assert len(sent) == 6 and min(sent.values()) > 20_000, sent


def test_isolated_host_is_a_warning(fabemu_command, tmp_path):
    links = 'links = [{ a = "a", b = "s" }, { a = "b", b = "s" }, { a = "s", b = "t" }]\n'
    _, err = finished(fabemu_command, tmp_path, GRAPH + links + LETTERS)
    assert err.startswith("warning: FB902 c: no link\n")


def test_4096_ports_on_one_switch(fabemu_command, tmp_path):
    text = STAR.replace("4", "4096") + '[switch]\nbuffer = "1GiB"\n' + ONE
    run, _ = finished(fabemu_command, tmp_path, text.replace('"h1"', '"h4095"'))
    assert run.flows["status"].to_pylist() == ["done"]


def test_10_000_queue_pairs_on_one_host(fabemu_command, tmp_path):
    rows = "".join(f"h0,h{1 + number % 3},4096,0,q{number}\n" for number in range(10_000))
    (tmp_path / "flows.csv").write_text("src,dst,bytes,start_ps,qp\n" + rows)
    run, _ = finished(fabemu_command, tmp_path, STAR + '[[workload]]\nkind = "flow-file"\npath = "flows.csv"\n')
    assert run.flows.num_rows == 10_000 and pc.count_distinct(run.flows["qp"]).as_py() == 10_000


def test_closed_and_full_standard_streams(tmp_path):
    (tmp_path / "s.toml").write_text(STAR + ONE)
    root = os.path.dirname(os.path.dirname(os.path.abspath(fabemu.__file__)))

    def shell(line):
        command = f'"{sys.executable}" -m fabemu.cli {line}'
        environment = {**os.environ, "PYTHONPATH": root}
        return subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)

    done = shell("run s.toml --force -q >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert shell("run s.toml --force >&- 2>&- <&-").returncode == 0
    assert fabemu.load(tmp_path / "s.run").info["status"] == "finished"
    assert shell("run nothing.toml >&- 2>&-").returncode == 2
    if os.path.exists("/dev/full"):
        assert shell("run nothing.toml 2>/dev/full").returncode == 2


def test_python_is_told_the_place_as_well(tmp_path):
    (tmp_path / "s.toml").write_text(STAR + ONE + '[switch]\nbuffer = "100KB"\n')
    with pytest.raises(fabemu.ScenarioError, match=r"s\.toml:8: switch\.buffer: sw0: reserved 16,384 B \+ headroom "):
        fabemu.run(tmp_path / "s.toml")
    with pytest.raises(fabemu.ScenarioError, match=r"^--set switch\.buffer=90KB: switch\.buffer: sw0: reserved "):
        fabemu.run(tmp_path / "s.toml", overrides=["switch.buffer=90KB"])
