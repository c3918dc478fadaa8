"""Figures against the tables that they are drawn from, worked out the slow way."""

import math
import shutil

import pyarrow as pa
import pytest

import fabemu
from fabemu.errors import InputError, MachineError

pytest.importorskip("plotly")

from fabemu import figures
from fabemu.figures.canvas import literal
from fabemu.figures.completion_times import curves
from fabemu.figures.devices import devices_of
from fabemu.figures.folding import folded
from fabemu.figures.link_loads import link_loads
from fabemu.figures.palette import DARK, LIGHT
from fabemu.figures.port_series import port_series
from fabemu.figures.storm_tree import laid_out
from tests.unit.written_run import write_run

FLOWS = {
    "name": "figures",
    "fabric": {"kind": "fat-tree", "k": 4},
    "link": {"rate": "100Gbps"},
    "switch": {"buffer": "2MiB", "pfc": {"alpha": "1/32"}, "ecn": {"enabled": False}},
    "nic": {"cc": {"kind": "none"}},
    "trace": {"interval": "5us", "tables": ["flows", "ports", "pauses", "drops", "events", "packets"]},
    "workload": [
        {"kind": "incast", "receiver": "h0", "senders": "h2:h15", "size": "60KB"},
        {"kind": "permutation", "size": "5KB", "count": 2},
    ],
}
JOBS = {
    "name": "jobs",
    "fabric": {"kind": "single-switch", "hosts": 4},
    "job": [{"name": "a & b", "ranks": 4}],
    "workload": [{"kind": "collective", "job": "a & b", "operation": "all-reduce", "size": "64KB", "iterations": 2}],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fabemu.run(FLOWS, tmp_path_factory.mktemp("figures") / "flows.run")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return fabemu.run(JOBS, tmp_path_factory.mktemp("figures") / "jobs.run")


def test_every_light_colour_has_its_own_and_a_dark_one():
    assert len(set(LIGHT)) == len(LIGHT) == len(DARK)
    assert not set(LIGHT) & set(DARK.values())


def test_curves_are_the_sorted_values(run):
    flows = run.flows.to_pylist()
    for measure in ("fct_ps", "slowdown"):
        everything, *sizes = curves(run, measure, "size")
        expected = sorted(flow[measure] for flow in flows)
        assert everything.values.tolist() == expected
        assert everything.at_most.tolist() == [rank / len(expected) for rank in range(1, len(expected) + 1)]
        assert [(curve.name, curve.count) for curve in sizes] == [("<= 10 KB", 32), ("10-100 KB", 14)]
        assert sizes[0].values.tolist() == sorted(flow[measure] for flow in flows if flow["bytes"] <= 10_000)


def test_a_curve_of_few_points_has_exact_ranks(run):
    values = sorted(flow["fct_ps"] for flow in run.flows.to_pylist())
    curve = curves(run, "fct_ps", "size", points=12)[0]
    assert len(curve.values) <= 12
    for value, share in zip(curve.values.tolist(), curve.at_most.tolist(), strict=True):
        assert values[round(share * len(values)) - 1] == value
    assert curve.at_most[-1] == 1.0 and curve.at_most[-2] == (len(values) - 1) / len(values)


def test_unfinished_messages_keep_their_share(tmp_path):
    made = fabemu.run({**FLOWS, "until": "20us"}, tmp_path / "cut.run")
    flows = made.flows.to_pylist()
    done = [flow for flow in flows if flow["fct_ps"] is not None]
    curve = curves(made)[0]
    assert 0 < len(done) < curve.count
    assert curve.unfinished == curve.count - len(done)
    assert curve.at_most[-1] == pytest.approx(len(done) / curve.count)
    assert any("did not finish" in note for note in figures.notes_of(figures.completion_times(made)))


def test_tail_is_what_took_longer(run):
    shares = figures.completion_times(run).data[0]
    tail = figures.completion_times(run, tail=True).data[0]
    assert [1 - share for share in tail.y] == pytest.approx(list(shares.y[:-1]))
    assert list(tail.x) == list(shares.x[:-1])


def test_series_of_joined_intervals(run):
    table = run.ports.to_pylist()
    series = port_series(run, most=3)
    assert series.intervals <= 3 and series.joined in (5, 10, 20)
    step = series.joined * 5_000_000
    for name in ("h2->edge0-1", "edge0-0->h0", "agg0-0->edge0-0"):
        port = list(series.ports).index(name)
        for number in range(series.intervals):
            mine = [row for row in table if row["port"] == name and row["start_ps"] // step == number]
            length = series.edges_ps[number + 1] - series.edges_ps[number]
            busy = sum(row["utilisation"] * (row["end_ps"] - row["start_ps"]) for row in mine)
            assert series.line("use", port)[number] == pytest.approx(busy / length)
            queue = max((row["queue_max_bytes"] for row in mine), default=0)
            assert series.line("queue", port)[number] == queue
            stopped = sum(row["paused_ps"] for row in mine)
            assert series.line("paused", port)[number] == pytest.approx(stopped / length)
    assert series.whole("paused").max() > 0


def test_series_end_with_the_run(tmp_path):
    def row(start_ps, share, paused_ps=0):
        names = {"node": "a", "peer": "b", "port": "a->b", "class": "x"}
        return {"start_ps": start_ps, "end_ps": start_ps + 100, "utilisation": share, "paused_ps": paused_ps, **names}

    rows = [row(0, 0.5), row(100, 0.25, 90)]
    series = port_series(write_run(tmp_path / "known", {"simulated_ps": 150}, ports=rows))
    assert series.edges_ps.tolist() == [0, 100, 150]
    assert series.line("use", 0).tolist() == [0.5, 0.5]
    assert series.line("paused", 0).tolist() == [0, 1], "a pause that stays is counted to the end of the interval"
    assert series.whole("use")[0] == 0.5
    series = port_series(write_run(tmp_path / "unknown", ports=rows))
    assert series.edges_ps.tolist() == [0, 100, 200] and series.whole("use")[0] == 0.375
    series = port_series(write_run(tmp_path / "exact", {"simulated_ps": 200}, ports=[*rows, row(200, 0, 7)]))
    assert series.edges_ps.tolist() == [0, 100, 200] and series.line("paused", 0).tolist() == [0, 0.9]


def test_timelines_draw_the_ports_that_lead(run):
    series = port_series(run, most=1000)
    figure = figures.timelines(run, rank="queue", limit=2)
    longest = {}
    for row in run.ports.to_pylist():
        longest[row["port"]] = max(longest.get(row["port"], 0), row["queue_max_bytes"])
    leading = sorted(longest, key=lambda name: -longest[name])[:2]
    assert [literal(name) for name in leading] == [trace.name for trace in figure.data if trace.showlegend]
    queue = figure.data[1]
    assert max(queue.y) * 1e3 == pytest.approx(longest[leading[0]]) or max(queue.y) * 1e6 == pytest.approx(
        longest[leading[0]]
    )
    assert len(queue.x) == series.intervals + 1


def test_a_small_fabric_is_not_folded(run):
    found = folded(devices_of(run))
    assert len(found.names) == 36 and len(found.links) == 48 and not found.notes
    assert found.ranks.tolist() == [0] * 16 + [1] * 8 + [2] * 8 + [3] * 4


@pytest.mark.parametrize(
    ("links", "nodes"),
    [
        (45, [8, 8, 8, 4]),  # hosts of one switch
        (32, [8, 8, 8, 2]),  # and cores with the same neighbours
        (16, [4, 4, 4, 2]),  # and what a pod has of one tier
        (8, [2, 2, 2, 2]),  # and neighbours
    ],
)
def test_a_fabric_is_folded_step_by_step(run, links, nodes):
    found = folded(devices_of(run), links=links)
    assert [int((found.ranks == rank).sum()) for rank in range(4)] == nodes
    assert int(found.members.sum()) == 36 and int(found.cables.sum()) == 48
    assert len(found.links) <= max(links, 5)
    assert "16 hosts as" in found.notes[0]
    assert found.names[0].startswith("h0…")


def test_folded_links_show_their_busiest_port(run):
    series = port_series(run)
    found = folded(devices_of(run), links=16)
    loads = link_loads(found, series)
    place = dict(zip(found.devices.names, found.group.tolist(), strict=True))
    for index, (a, b) in enumerate(found.links.tolist()):
        for back, (sender, receiver) in enumerate(((a, b), (b, a))):
            ports = [
                port
                for port, (node, peer) in enumerate(zip(series.nodes, series.peers, strict=True))
                if (place.get(node), place.get(peer)) == (sender, receiver)
            ]
            use = [series.whole("use")[port] for port in ports]
            half = 2 * index + back
            assert loads.values["use"][0, 0, half] == pytest.approx(max(use, default=0.0))
            if max(use, default=0) > 0:
                assert series.ports[ports[use.index(max(use))]] == loads.busiest[half]
            queues = [max(series.line("queue", port)) for port in ports]
            assert loads.values["queue"][0, 1:, half].max() == max(queues, default=0)


def test_the_slider_has_a_frame_per_interval(run):
    figure = figures.fabric(run)
    assert [frame.name for frame in figure.frames] == [str(number) for number in range(len(figure.frames))]
    assert len(figure.layout.sliders[0].steps) == len(figure.frames) == port_series(run, 60).intervals + 1
    drawn = sum(len(trace.x) // 3 for trace in figure.data[1:7] if trace.x[0] is not None)
    assert drawn == 96  # both directions of every cable, each in one level


def test_a_tree_is_laid_out_without_crossings():
    #  root -> 0 -> (1 -> 3, 2), root -> 4
    nodes = laid_out([None, 0, 0, 1, None], [9, 8, 7, 6, 5])
    assert [(node.row, node.parent, node.depth) for node in nodes] == [
        (-1, -1, 0),
        (0, 0, 1),
        (1, 1, 2),
        (3, 2, 3),
        (2, 1, 2),
        (4, 0, 1),
    ]
    assert [node.place for node in nodes] == [1.25, 0.5, 0.0, 0.0, 1.0, 2.0]
    few = laid_out([None, 0, 0, 1, None], [9, 8, 7, 6, 5], limit=2)
    assert [(node.row, node.joined) for node in few] == [(-1, 1), (0, 1), (1, 1), (-1, 1), (-1, 1), (-1, 1)]
    assert sum(node.joined for node in few if node.row < 0) - 1 == 3


def test_the_storm_tree_has_every_port(run):
    from fabemu.analysis.storms import storms

    storm = storms(run, 1)[0]
    figure = figures.storm_tree(run)
    labels = figure.data[1].text
    assert set(labels[1:]) == set(map(literal, storm.tree.column("paused_port").to_pylist()))
    assert labels[0] == literal(storm.root_port) == "edge0-0-&gt;h0"
    depths = dict(zip(labels, figure.data[1].x, strict=True))
    for row in storm.tree.to_pylist():
        assert depths[literal(row["paused_port"])] >= 1
    with pytest.raises(InputError, match="has no storm 99"):
        figures.storm_tree(run, 99)


def test_budgets_add_up_to_completion_times(run):
    figure = figures.budgets(run)
    times = sorted((flow["fct_ps"] for flow in run.flows.to_pylist()), reverse=True)[:20]
    bars = [math.fsum(trace.x[place] for trace in figure.data) for place in range(20)]
    assert bars == pytest.approx([time_ps / 1e6 for time_ps in times], rel=1e-9)


def test_collectives_are_bars_of_their_table(jobs):
    figure = figures.collectives(jobs)
    rows = jobs.table("collectives").to_pylist()
    bars = figure.data[0]
    assert [base for base in bars.base] == pytest.approx([row["start_ps"] / 1e6 for row in rows])
    assert [length for length in bars.x] == pytest.approx([row["time_ps"] / 1e6 for row in rows])
    assert "a &amp; b" in figure.layout.yaxis.ticktext[0]


def test_figures_of_missing_tables_and_wrong_names_say_so(run, jobs):
    with pytest.raises(InputError, match="no such table"):
        figures.figure(run, "collectives")
    with pytest.raises(InputError, match=r"did you mean 'fabric'.*completion-times"):
        figures.figure(run, "fabrik")
    with pytest.raises(InputError, match="no class 'gold' in the ports table; there are rdma"):
        figures.fabric(run, class_name="gold")
    assert "no storm" in figures.notes_of(figures.storm_tree(jobs))[0]


@pytest.mark.parametrize("name", [name for name in figures.FIGURES if name not in ("collectives", "training-steps")])
def test_every_figure_is_json_without_numpy(run, name):
    figure = figures.figure(run, name)
    text = figure.to_json()
    assert "bdata" not in text and len(text) > 100
    dark = figures.in_dark(figure).to_json()
    assert DARK["#ffffff"] in dark and "#ffffff" not in dark


def test_a_table_of_flows_without_jobs_has_no_curve_by_job(run):
    assert len(curves(run, by="job")) == 1
    assert isinstance(run.flows, pa.Table)


# Pictures.


def test_a_picture_is_drawn_by_a_chromium(run):
    pytest.importorskip("kaleido")
    if not any(map(shutil.which, figures.picture.BROWSERS)):
        pytest.skip("no chromium")
    content = figures.png(figures.completion_times(run), width=400, scale=1)
    assert content.startswith(b"\x89PNG") and len(content) > 3000


def test_without_a_chromium_the_way_out_is_said(run, monkeypatch):
    pytest.importorskip("kaleido")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    with pytest.raises(InputError, match=r"there is none: install one \(the package chromium\), or set BROWSER_PATH"):
        figures.png(figures.timelines(run))
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chromium")
    with pytest.raises(InputError, match="BROWSER_PATH: there is no command /nowhere/chromium"):
        figures.png(figures.timelines(run))


def test_a_browser_that_fails_is_the_machine(run, monkeypatch):
    kaleido = pytest.importorskip("kaleido")
    if not any(map(shutil.which, figures.picture.BROWSERS)):
        pytest.skip("no chromium")

    def fail(*_, **__):
        raise RuntimeError("it closed")

    monkeypatch.setattr(kaleido, "calc_fig_sync", fail)
    with pytest.raises(MachineError, match=r"could not be drawn by .*: it closed"):
        figures.png(figures.timelines(run))
