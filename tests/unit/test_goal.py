"""GOAL traces: read, refused, run and written."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fabemu
from fabemu.compile import compile_plan
from fabemu.errors import InputError, ScenarioError
from fabemu.importers.goal import parse_goal, read_goal
from fabemu.importers.goal_text import CALC, RECV, SEND
from fabemu.precedence import cycle, levels
from fabemu.scenario import scenario_from_dict
from fabemu.workload.goal_export import goal_text

NS = 1000


def parse(*lines: str):
    return parse_goal("\n".join(lines).encode(), "t.goal")


def refusal(*lines: str) -> list[str]:
    with pytest.raises(InputError) as error:
        parse(*lines)
    return str(error.value).splitlines()


def two_ranks(first: list[str], second: list[str]) -> list[str]:
    return ["num_ranks 2", "rank 0 {", *first, "}", "rank 1 {", *second, "}"]


# Reading.


def test_statements_of_every_form_are_read():
    trace = parse(
        "\ufeff/* a comment",
        "of two lines */ num_ranks 2 // and another",
        "rank 0 {",
        "l1: calc 1000 cpu 3",
        "  l2:send 100b to 1 tag 7 cpu 0 nic 2",
        "l2 requires l1",
        "calc 5 // nobody waits for it",
        "}",
        "rank 1 { l1: recv 100b from 0 nic 1 tag 7 }",
    )
    assert trace.rank_count == 2
    assert trace.kind.tolist() == [CALC, SEND, CALC, RECV]
    assert trace.rank.tolist() == [0, 0, 0, 1]
    assert trace.value.tolist() == [1000, 100, 5, 100]
    assert (trace.tag[1], trace.nic[1], trace.nic[3]) == (7, 2, 1)
    assert trace.send.tolist() == [-1, -1, -1, 1]
    assert trace.line.tolist() == [4, 5, 7, 9]
    assert (trace.before.tolist(), trace.after.tolist()) == ([0], [1])
    assert trace.level.tolist() == [0, 1, 0, 2]
    assert trace.uses_cpus


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_usual_form_and_any_other_mean_the_same(newline):
    usual = ["num_ranks 2", "rank 0 {", "a: send 4096b to 1 tag 3 nic 1", "b: calc 17", "b requires a", "}"]
    usual += ["rank 1 {", "recv 4096b from 0 tag 3", "}"]
    other = ["num_ranks 2", "rank 0 {", "a : send 0004096 b to 1 nic 1 tag 3", "\tb :calc 17", "b  requires\ta", "}"]
    other += ["", "rank 1{recv 4096 b from 0 tag 3}"]
    one, two = (parse_goal(newline.join(lines).encode(), "t.goal") for lines in (usual, other))
    for name in ("kind", "rank", "value", "peer", "tag", "nic", "send", "before", "after", "level"):
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name


def test_labels_of_any_length_are_told_apart():
    names = ["a", "a1", "abcdefgh", "abcdefghi", "abcdefghijklmnop", "abcdefghijklmnopq", "abcdefghijklmnopr", "_" * 70]
    lines = [f"{name}: calc {at}" for at, name in enumerate(names)]
    waits = [f"{later} requires {earlier}" for earlier, later in itertools.pairwise(names)]
    trace = parse("num_ranks 1", "rank 0 {", *lines, *reversed(waits), "}")
    assert trace.level.tolist() == list(range(len(names)))


def test_dependencies_may_stand_before_what_they_name():
    trace = parse("num_ranks 1", "rank 0 {", "b requires a", "b: calc 1", "a: calc 2", "}")
    assert (trace.before.tolist(), trace.after.tolist()) == ([1], [0])


def test_messages_match_by_source_destination_and_tag_in_order():
    trace = parse(
        *two_ranks(
            ["send 1b to 1 tag 5", "send 2b to 1", "send 3b to 1 tag 5"],
            ["recv 2b from 0 tag 0", "recv 1b from 0 tag 5", "recv 3b from 0 tag 5"],
        )
    )
    assert trace.send.tolist() == [-1, -1, -1, 1, 0, 2]


def test_a_message_to_itself_is_a_copy_that_takes_no_time():
    trace = parse("num_ranks 1", "rank 0 {", "a: recv 8b from 0", "s: send 8b to 0", "s requires c", "c: calc 9", "}")
    assert trace.kind.tolist() == [CALC, CALC, CALC]
    assert trace.value.tolist() == [0, 0, 9]
    assert sorted(zip(trace.before.tolist(), trace.after.tolist(), strict=True)) == [(1, 0), (2, 1)]


def test_a_file_that_ranks_leave_empty_is_fine():
    assert len(parse("num_ranks 3", "rank 1 {", "}")) == 0
    assert parse("num_ranks 3").rank_count == 3


# Refusing.


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "t.goal: the number of ranks is missing"),
        (["rank 0 {", "}"], "t.goal: the number of ranks is missing"),
        (["num_ranks 0"], "t.goal:1: num_ranks is 0; 1 to"),
        (["num_ranks 99999999999"], "t.goal:1: num_ranks is 99,999,999,999; 1 to"),
        (["num_ranks x"], 't.goal:1: the number of ranks is "x"; a whole number is needed'),
        (["num_ranks 2", "num_ranks 2"], "t.goal:2: num_ranks is given again"),
        (["num_ranks 2", "rank 0 {"], "t.goal:2: rank 0 has no end: the file ends before its }"),
        (["num_ranks 2", "rank 0 {", "rank 1 {", "}"], "t.goal:3: rank 0 of line 2 is still open"),
        (["num_ranks 2", "rank 2 {", "}"], "t.goal:2: there is no rank 2: num_ranks is 2, so ranks are 0 to 1"),
        (["num_ranks 2", "rank 0 {", "}", "rank 0 {", "}"], "t.goal:4: rank 0 begins again; line 2 has it already"),
        (["num_ranks 2", "}"], "t.goal:2: a } without a rank"),
        (["num_ranks 2", "rank 0", "{", "}"], "t.goal:2: found the end of the line after rank 0; a rank is written"),
        (["num_ranks 2", "calc 5"], "t.goal:2: outside of any rank"),
        (["num_ranks 2", "/* never", "closed"], "t.goal:2: the comment that begins here has no end"),
        (["num_ranks 2", "rank 0 {", "foo 5", "}"], 't.goal:3: "foo" is no statement; allowed are calc, send, recv'),
        (["num_ranks 2", "rank 0 {", "a: foo 5", "}"], 't.goal:3: found "foo" after the label "a"; allowed are calc'),
        (["num_ranks 2", "rank 0 {", "1a: calc 5", "}"], "t.goal:3: "),
        (["num_ranks 2", "rank 0 {", "7: calc 5", "}"], 't.goal:3: "7" is no label: letters, digits and _'),
        (["num_ranks 2", "rank 0 {", "calc", "}"], "t.goal:3: the length is the end of the line; a whole number"),
        (["num_ranks 2", "rank 0 {", "calc -5", "}"], 't.goal:3: the length is "-"; a whole number'),
        (["num_ranks 2", "rank 0 {", "calc 5 nic 1", "}"], 't.goal:3: found "nic" after calc ...; allowed: cpu NUMBER'),
        (["num_ranks 2", "rank 0 {", f"calc {10**18}", "}"], "it must be below 10^18"),
        (["num_ranks 2", "rank 0 {", "send 5 to 1", "}"], "sizes are in bytes with a b"),
        (["num_ranks 2", "rank 0 {", "send 5b from 1", "}"], 'send needs "to" and a rank'),
        (["num_ranks 2", "rank 0 {", "send 5b to", "}"], "t.goal:3: the rank is the end of the line"),
        (["num_ranks 2", "rank 0 {", "send 5b to 1 tag", "}"], "t.goal:3: tag is the end of the line"),
        (["num_ranks 2", "rank 0 {", "send 5b to 1 tag 1 tag 2", "}"], 'found "tag" again'),
        (["num_ranks 2", "rank 0 {", "send 5b to 2", "}"], "t.goal:3: send to rank 2: ranks are 0 to 1"),
        (["num_ranks 2", "rank 0 {", "recv 5b from -1", "}"], "messages from any rank are not supported"),
        (["num_ranks 2", "rank 0 {", "recv 5b from 1 tag -1", "}"], "messages with any tag are not supported"),
        (["num_ranks 2", "rank 0 {", "a: calc 1", "a: calc 2", "}"], 't.goal:4: label "a" is taken: rank 0 has it on'),
        (["num_ranks 1", "rank 0 {", "a: calc 1", "a requires b", "}"], 't.goal:4: rank 0 has no operation "b"'),
        (["num_ranks 1", "rank 0 {", "a: calc 1", "a requires", "}"], "where a label is needed"),
        (["num_ranks 1", "rank 0 {", "a: calc 1", "b: calc 1", "a requires b b", "}"], 'found "b" after a requires b'),
        (two_ranks(["a: calc 1"], ["b: calc 1", "b requires a"]), "rank 0 has one, but only a message crosses ranks"),
        (two_ranks(["send 5b to 1"], []), "t.goal:3: this send has no recv: rank 0 sends 1 to rank 1 with tag 0"),
        (two_ranks(["send 5b to 1"], ["recv 5b from 0 tag 1"]), "t.goal:6: this recv has no send"),
        (two_ranks(["send 5b to 1"] * 2, ["recv 5b from 0"] * 3), "t.goal:9: this recv has no send: rank 0 sends 2"),
        (two_ranks(["send 5b to 1"], ["recv 6b from 0"]), "t.goal:6: rank 1 receives 6 B, but the matching send"),
        (["num_ranks 1", "rank 0 {", "a\x00b: calc 1", "}"], "t.goal:3: "),
        (["num_ranks 1", "rank 0 {", "é: calc 1", "}"], "t.goal:3: "),
    ],
)
def test_what_is_wrong_is_said_with_its_line(lines, message):
    found = refusal(*lines)
    assert any(message in line for line in found), found
    assert all(line.startswith("t.goal:") for line in found)


def test_several_mistakes_are_reported_at_once_but_not_all():
    found = refusal("num_ranks 1", "rank 0 {", "send 5 to 0", "a: calc 1", "a: calc 2", "b requires a", "}")
    assert [line.split(": ")[0] for line in found] == ["t.goal:3", "t.goal:5", "t.goal:6"]
    found = refusal("num_ranks 1", "rank 0 {", *["nonsense"] * 50, "}")
    assert len(found) == 21
    assert found[-1] == "t.goal: 30 more mistakes"


def test_a_cycle_is_shown():
    (found,) = refusal("num_ranks 1", "rank 0 {", "a: calc 1", "b: calc 1", "a requires b", "b requires a", "}")
    assert found.endswith("none of them begins: rank 0: a -> b -> a")
    (found,) = refusal("num_ranks 1", "rank 0 {", "a: calc 1", "a requires a", "}")
    assert found.endswith("rank 0: a -> a")


def test_a_cycle_through_messages_is_shown():
    ping = ["in: recv 5b from 1", "send 5b to 1 tag 1", "out: send 5b to 1", "out requires in"]
    pong = ["recv 5b from 0 tag 1", "in: recv 5b from 0", "out: send 5b to 0", "out requires in"]
    (found,) = refusal(*two_ranks(ping, pong))
    assert found.startswith("t.goal:3: ")
    assert found.endswith("rank 0: in -> out -> rank 1: in -> out -> rank 0: in")


def test_a_long_cycle_is_shortened():
    count = 100
    lines = [f"l{at}: calc 1" for at in range(count)] + [f"l{(at + 1) % count} requires l{at}" for at in range(count)]
    (found,) = refusal("num_ranks 1", "rank 0 {", *lines, "}")
    assert "l15 -> (84 more) -> rank 0: l0" in found


@pytest.mark.parametrize("width", [1, 3, 200])
def test_levels_are_longest_paths(width):
    rng = np.random.default_rng(width)
    count = 4000
    after = np.repeat(np.arange(width, count), 2)
    before = after - rng.integers(1, width + 1, len(after))
    level = levels(count, before, after)
    expected = np.zeros(count, dtype=np.int64)
    for one, other in zip(before.tolist(), after.tolist(), strict=True):
        expected[other] = max(expected[other], expected[one] + 1)
    assert level.tolist() == expected.tolist()
    # One edge back closes a cycle, and what lies before it keeps its level.
    before, after = np.append(before, count - 1), np.append(after, count // 2)
    stuck = levels(count, before, after)
    assert (stuck[: count // 2] == expected[: count // 2]).all()
    assert (stuck < 0).any()
    ring = cycle(stuck, before, after)
    edges = set(zip(before.tolist(), after.tolist(), strict=True))
    assert all(pair in edges for pair in zip(ring, [*ring[1:], ring[0]], strict=True))


# Running.


def scenario_of(hosts: int = 2, **keys):
    return scenario_from_dict(
        {
            "fabric": {"kind": "single-switch", "hosts": hosts},
            "nic": {"cc": {"kind": "none"}},
            "workload": [{"kind": "goal", "path": "t.goal", **keys}],
        }
    )


def flows_of(scenario, folder) -> list[dict]:
    """Run a scenario whose files are in a folder; gives the rows of its messages."""
    (folder / "t.toml").write_text(scenario.to_toml())
    result = fabemu.run(folder / "t.toml", folder / "t.run", force=True)
    rows = result.flows.to_pylist()
    assert {row["status"] for row in rows} == {"done"}
    return rows


@pytest.fixture
def run(tmp_path):
    """Run a trace; gives when each message was posted and delivered, by size, in ns."""

    def go(lines, **keys):
        (tmp_path / "t.goal").write_text("\n".join(lines))
        rows = flows_of(scenario_of(**keys), tmp_path)
        assert len({row["bytes"] for row in rows}) == len(rows)
        return {row["bytes"]: (row["posted_ps"] / NS, row["receiver_done_ps"] / NS) for row in rows}

    return go


def test_operations_run_when_they_may(run):
    lines = two_ranks(
        ["c: calc 5000", "s: send 1000b to 1", "s requires c"],
        ["r: recv 1000b from 0", "c: calc 700", "c requires r", "s: send 2000b to 0", "s requires c"],
    )
    lines.insert(3, "recv 2000b from 1")
    times = run(lines)
    assert times[1000][0] == 5000
    assert times[2000][0] == times[1000][1] + 700
    assert run(lines, calc_unit="2ns")[1000][0] == 10_000
    assert run(lines, start="3us")[1000][0] == 8000


def test_has_begun_means_posted(run):
    # The recv is posted at 300 ns, and done much later; what needs it to have begun goes on at once.
    first = ["w: calc 300", "r: recv 999b from 1", "r requires w", "c: calc 50", "c irequires r"]
    first += ["s: send 100b to 1", "s requires c", "e: send 200b to 1", "e irequires w"]
    second = ["r: recv 100b from 0", "s: send 999b to 0", "s requires r", "recv 200b from 0"]
    times = run(two_ranks(first, second))
    assert times[100][0] == 350
    assert times[999][0] == times[100][1]
    assert times[200][0] == 0


def test_begun_operations_follow_each_other(run):
    first = ["w: calc 300", "a: calc 1000", "a requires w", "b: calc 40", "b irequires a", "c: calc 2", "c irequires b"]
    first += [
        "s: send 100b to 1",
        "s requires c",
        "t: send 200b to 1",
        "t requires b",
        "u: send 300b to 1",
        "u requires a",
    ]
    times = run(two_ranks(first, ["recv 100b from 0", "recv 200b from 0", "recv 300b from 0"]), qps="message")
    assert [times[size][0] for size in (100, 200, 300)] == [302, 340, 1300]


def test_a_queue_pair_sends_in_an_order_that_comes_to_an_end(run):
    # The first message waits for an answer to the second; in the order of the file neither would ever leave.
    first = ["a: send 100b to 1", "b: send 200b to 1 tag 1", "r: recv 50b from 1", "a requires r"]
    second = ["recv 100b from 0", "r: recv 200b from 0 tag 1", "s: send 50b to 0", "s requires r"]
    times = run(two_ranks(first, second))
    assert times[200][0] == 0
    assert times[100][0] == times[50][1]


@pytest.mark.parametrize(("sharing", "queue_pairs"), [("nic", 2), ("tag", 3), ("message", 4)])
def test_queue_pairs_are_shared_as_asked(tmp_path, sharing, queue_pairs):
    sends = ["send 1b to 1", "send 2b to 1", "send 3b to 1 tag 1", "send 4b to 1 nic 1"]
    recvs = ["recv 1b from 0", "recv 2b from 0", "recv 3b from 0 tag 1", "recv 4b from 0 nic 1"]
    (tmp_path / "t.goal").write_text("\n".join(two_ranks(sends, recvs)))
    plan = compile_plan(scenario_of(qps=sharing), base_dir=tmp_path).plan
    assert len(plan.qp_src) == queue_pairs


def test_ranks_are_those_of_the_job_and_compute_at_its_pace(tmp_path):
    lines = two_ranks(["c: calc 100", "recv 1b from 1"], ["c: calc 100", "s: send 1b to 0", "s requires c"])
    (tmp_path / "t.goal").write_text("\n".join(lines))
    scenario = scenario_from_dict(
        {
            "fabric": {"kind": "single-switch", "hosts": 4},
            "job": [{"name": "j", "hosts": ["h3", "h1"], "straggler": [{"rank": 1, "slowdown": 2}]}],
            "workload": [{"kind": "goal", "path": "t.goal", "job": "j"}],
        }
    )
    graph = compile_plan(scenario, base_dir=tmp_path).graph
    assert (graph.flows.src.tolist(), graph.flows.dst.tolist()) == ([1], [3])
    calc = graph.flow < 0
    assert graph.host[calc].tolist() == [3, 1]
    assert graph.duration_ps[calc].tolist() == [100 * NS, 200 * NS]


def test_more_ranks_than_hosts_are_refused(tmp_path):
    (tmp_path / "t.goal").write_text("num_ranks 3\n")
    with pytest.raises(ScenarioError, match=r"has 3 ranks, but there are 2 hosts.*enlarge \[fabric\]"):
        compile_plan(scenario_of(), base_dir=tmp_path)


def test_calcs_that_take_for_ever_are_refused(tmp_path):
    (tmp_path / "t.goal").write_text("num_ranks 1\nrank 0 {\ncalc 99999999999999\n}\n")
    with pytest.raises(InputError, match=r"t.goal:3: calc 99999999999999 takes too long in units of 1s"):
        compile_plan(scenario_of(calc_unit="1s"), base_dir=tmp_path)


def test_files_that_are_none_are_refused(tmp_path):
    for path in (tmp_path / "none.goal", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            read_goal(path)


# Writing.


def written(scenario, base_dir, **keys) -> tuple[str, tuple[str, ...]]:
    compiled = compile_plan(scenario, base_dir=base_dir)
    text = goal_text(compiled.graph, compiled.plan.host_count, **keys)
    return "".join(text.parts), text.notes


def test_start_times_are_calcs(tmp_path):
    flow = {"src": "h0", "dst": "h1", "size": "1KB"}
    scenario = scenario_from_dict(
        {
            "fabric": {"kind": "single-switch", "hosts": 2},
            "workload": [{"kind": "flows", "flow": [flow, {**flow, "start": "2us"}, {**flow, "start": "2us"}]}],
        }
    )
    text, notes = written(scenario, tmp_path)
    assert text.splitlines() == [
        "num_ranks 2",
        "rank 0 {",
        "l1: send 1000b to 1 tag 0",
        "l2: send 1000b to 1 tag 1 nic 1",
        "l3: send 1000b to 1 tag 2 nic 2",
        "l4: calc 2000",
        "l2 requires l4",
        "l3 requires l4",
        "}",
        "rank 1 {",
        "l1: recv 1000b from 0 tag 0",
        "l2: recv 1000b from 0 tag 1 nic 1",
        "l3: recv 1000b from 0 tag 2 nic 2",
        "}",
    ]
    assert notes == ()


def test_times_finer_than_the_unit_are_rounded_and_that_is_said(tmp_path):
    (tmp_path / "t.goal").write_text("num_ranks 1\nrank 0 {\ncalc 1499\ncalc 1500\ncalc 3000\n}\n")
    text, notes = written(scenario_of(calc_unit="1ps"), tmp_path)
    assert [line.split()[-1] for line in text.splitlines() if "calc" in line] == ["1", "2", "3"]
    assert notes == ("2 of 3 times are rounded to whole 1ns; --calc-unit 1ps keeps them",)
    text, notes = written(scenario_of(calc_unit="1ps"), tmp_path, calc_unit_ps=1)
    assert [line.split()[-1] for line in text.splitlines() if ": calc" in line] == ["1499", "1500", "3000"]
    assert 'import with calc_unit = "1ps"' in notes[0]


def test_reads_cannot_be_written(tmp_path):
    scenario = scenario_from_dict(
        {
            "fabric": {"kind": "single-switch", "hosts": 2},
            "workload": [{"kind": "permutation", "size": "1KB", "verb": "read", "label": "pull"}],
        }
    )
    with pytest.raises(ScenarioError, match=r'2 messages, the first of workload "pull", are READs'):
        written(scenario, tmp_path)


COLLECTIVES = [
    {"operation": "all-reduce", "algorithm": "ring", "size": "100KB", "channels": 2, "qps": 2, "iterations": 2},
    {"operation": "all-reduce", "algorithm": "tree", "size": "64KB", "chunk": "8KB", "reduce_rate": "200Gbps"},
    {"operation": "all-reduce", "algorithm": "halving-doubling", "size": "33333B", "compute": "3us", "iterations": 3},
    {"operation": "all-to-all", "size": "60KB", "window": 2},
    {"operation": "broadcast", "algorithm": "tree", "size": "70KB", "chunk": "10KB"},
]


@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda item: f"{item['operation']}-{item.get('algorithm', '')}")
@pytest.mark.parametrize("scale_up", [False, True], ids=["", "scale-up"])
def test_a_collective_that_was_written_takes_the_same_time(tmp_path, collective, scale_up):
    tables = {"fabric": {"kind": "single-switch", "hosts": 6}}
    if scale_up:
        tables = {"fabric": {"kind": "single-switch", "hosts": 6, "gpus_per_node": 3}, "scale_up": {}}
    first = scenario_from_dict({**tables, "workload": [{"kind": "collective", **collective}]})
    text, _ = written(first, tmp_path, calc_unit_ps=1)
    (tmp_path / "t.goal").write_text(text)
    second = scenario_from_dict({**tables, "workload": [{"kind": "goal", "path": "t.goal", "calc_unit": "1ps"}]})
    assert written(second, tmp_path, calc_unit_ps=1)[0] == text
    times = []
    for scenario in (first, second):
        columns = ("src", "dst", "bytes", "posted_ps", "first_sent_ps", "receiver_done_ps", "sender_done_ps")
        times.append(sorted(tuple(row[name] for name in columns) for row in flows_of(scenario, tmp_path)))
    assert len(times[0]) > 5
    assert times[0] == times[1]
