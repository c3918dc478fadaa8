"""Comparisons against runs made by hand, and their statistics against SciPy and plain enumeration."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

import fabemu
from fabemu.comparison import compare
from fabemu.comparison.distributions import distance
from fabemu.comparison.limits import canonical_name, read_limit
from fabemu.comparison.significance import assess, design
from fabemu.errors import InputError
from fabemu.run_directory import FORMAT_VERSION
from fabemu.table_writer import TableWriter
from fabemu.trace import NONE, SCHEMA_VERSION, TABLES, TraceNames

stats = pytest.importorskip("scipy.stats")

IDEAL_PS = 1000
SCENARIO = {
    "name": "made",
    "seed": 1,
    "fabric": {"kind": "dumbbell", "left": 2},
    "switch": {"ecn": {"kmin": "100KB", "kmax": "400KB"}},
    "workload": [{"kind": "incast", "size": "1MB"}],
}


def changed(**values):
    """The scenario with other values, by key path with "__" for dots."""
    scenario = json.loads(json.dumps(SCENARIO))
    for key, value in values.items():
        *tables, last = key.split("__")
        place = scenario
        for name in tables:
            place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
        place[last] = value
    return scenario


def make_run(
    path,
    slowdowns=(1, 2, 3),
    *,
    labels=None,
    seed=1,
    scenario=SCENARIO,
    pauses=(),
    tables=("flows",),
    totals=None,
    **info,
):
    """A run directory by hand: one message per slowdown (None: unfinished), one pause per length in ps."""
    path.mkdir(parents=True)
    labels = labels or ["incast"] * len(slowdowns)
    known = sorted(set(labels))
    names = TraceNames(["h0", "h1", "sw"], ["h0->sw", "sw->h1"], ["rdma"], known, host_count=2)
    done = np.array([value is not None for value in slowdowns], np.bool_)
    fct = np.array([NONE if value is None else value * IDEAL_PS for value in slowdowns])
    ratio = np.array([math.nan if value is None else value for value in slowdowns], np.float64)
    count = len(slowdowns)
    zeros = np.zeros(count, np.int64)
    flows = {column.name: zeros + (NONE if column.nullable else 0) for column in TABLES["flows"].columns} | {
        "op": np.arange(count),
        "label": np.array([known.index(label) for label in labels], np.int64),
        "bytes": zeros + 5000,
        "fct_ps": fct,
        "ideal_ps": zeros + IDEAL_PS,
        "slowdown": ratio,
        "measured": np.ones(count, np.bool_),
        "status": np.where(done, 0, 2),
    }
    zeros = np.zeros(len(pauses), np.int64)
    paused = {column.name: zeros for column in TABLES["pauses"].columns} | {"end_ps": np.array(pauses, np.int64)}
    for table, columns in (("flows", flows), ("pauses", paused)):
        if table in tables:
            writer = TableWriter(path, table, names.dictionaries(), {})
            writer.append(columns)
            writer.close()
    document = {
        "fabemu_run": FORMAT_VERSION,
        "status": "finished",
        "name": scenario["name"] if scenario else "made",
        "version": "1.0",
        "engine": "fast",
        "seed": seed,
        "plan_digest": f"plan {seed} {path.name}",
        "digest": f"came out of {path.name}",
        "trace": {"schema_version": SCHEMA_VERSION, "tables": list(tables)},
        "simulated_ps": 10**6,
        "totals": {"marks": 7, "packets_dropped": 0, "packet_hops": 100} | (totals or {}),
        "messages": {
            "count": count,
            "done": int(done.sum()),
            "failed": 0,
            "unfinished": int((~done).sum()),
            "not_run": 0,
        },
        "scenario": None if scenario is None else {**scenario, "seed": seed},
        **info,
    }
    (path / "run.json").write_text(json.dumps(document), encoding="utf-8")
    return path


OTHER = changed(switch__ecn__kmin="200KB")


@pytest.fixture
def pair(tmp_path):
    return make_run(tmp_path / "a", (1, 2, 3, 10)), make_run(tmp_path / "b", (1, 2, 4, 15), scenario=OTHER)


# Settings.


def test_seeds_of_one_setting_are_one_group_and_the_first_is_the_baseline(tmp_path):
    runs = [
        make_run(tmp_path / "b2", seed=2, scenario=OTHER),
        make_run(tmp_path / "a1", seed=1),
        make_run(tmp_path / "b1", seed=1, scenario=OTHER),
        make_run(tmp_path / "a2", seed=2),
        make_run(tmp_path / "c1", seed=1, engine="exact"),
    ]
    found = compare(runs)
    assert [group.seeds for group in found.groups] == [(2, 1), (1, 2), (1,)]
    assert found.letters == ("A", "B", "C")
    assert [member.run.directory.name for member in found.groups[0].members] == ["b2", "b1"]


def test_the_same_setting_and_seed_again_is_a_group_of_its_own(tmp_path):
    runs = [make_run(tmp_path / f"{build}{seed}", seed=seed) for build in "ab" for seed in (1, 2)]
    found = compare(runs)
    assert [[member.run.directory.name for member in group.members] for group in found.groups] == [
        ["a1", "a2"],
        ["b1", "b2"],
    ]
    assert any("B is the setting of A again" in note for note in found.notes)


def test_the_name_of_a_scenario_is_no_setting(tmp_path):
    with pytest.raises(InputError, match="all 2 runs are seeds of one setting"):
        compare([make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=2, scenario=changed(name="renamed"))])


def test_another_file_is_another_setting(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed) for seed, name in enumerate("ab")]
    for run, text in zip(runs, ("one", "two"), strict=True):
        (run / "inputs").mkdir()
        (run / "inputs" / "flows.csv").write_text(text)
    keys = {item.key: item.values for item in compare(runs).parameters}
    assert len(set(keys["flows.csv (SHA-256)"])) == 2


def test_parameters_that_differ_have_the_paths_of_set_and_their_units(tmp_path):
    scenario = changed(
        switch__ecn__kmin="200KB", workload__0__size="2MB", workload__0__window=True, fabric={"kind": "dumbbell"}
    )
    scenario["link"] = {"tier": {"a b": {"rate": "1Gbps"}}}
    found = compare([make_run(tmp_path / "a"), make_run(tmp_path / "b", scenario=scenario, version="2.0")])
    assert {item.key: item.values for item in found.parameters} == {
        "fabric.left": ("2", None),
        "switch.ecn.kmin": ("100KB", "200KB"),
        "workload.0.size": ("1MB", "2MB"),
        "workload.0.window": (None, "true"),
        'link.tier."a b".rate': (None, "1Gbps"),
        "fabemu version": ("1.0", "2.0"),
        "plan digest (seed 1)": ("plan 1 a", "plan 1 b"),
    }
    assert found.parameters_table().to_pydict()["B"][0] is None


def test_what_has_no_effect_is_said(tmp_path):
    first = make_run(tmp_path / "a", plan_digest="p", digest="x")
    same = compare([first, make_run(tmp_path / "b", scenario=OTHER, plan_digest="p", digest="x")])
    assert any("came out the same, packet by packet" in note for note in same.notes)
    plan = compare([first, make_run(tmp_path / "c", scenario=OTHER, plan_digest="p", digest="y")])
    assert any("simulated the same plan" in note for note in plan.notes)


def test_different_scenarios_are_compared_and_said(tmp_path):
    other = changed(name="other", fabric={"kind": "torus"}, workload=[{"kind": "flows"}])
    found = compare([make_run(tmp_path / "a"), make_run(tmp_path / "b", scenario=other)])
    assert any("A (made) and B (other) are different scenarios" in note for note in found.notes)
    assert not any(
        "different scenarios" in note
        for note in compare([tmp_path / "a", *[make_run(tmp_path / "c", scenario=OTHER)]]).notes
    )


# Figures.


def test_figures_by_hand(pair):
    found = compare(pair)
    row = found.figure("slowdown.max")
    assert row.values == ((10.0,), (15.0,))
    assert (row.changes[0].absolute, row.changes[0].relative, row.changes[0].direction) == (5.0, 0.5, "worse")
    mean = found.figure("fct_ps.mean")
    assert mean.medians == (4000.0, 5500.0)
    assert mean.changes[0].relative == 0.375
    assert found.figure("slowdown.p50").changes[0].direction == "same"
    assert found.figure("totals.marks").is_same
    assert not found.figure("slowdown.max").is_same
    with pytest.raises(KeyError):
        found.figure("slowdown.p42")


def test_which_way_is_better(tmp_path):
    runs = [
        make_run(tmp_path / "a", (1, 2, None), totals={"marks": 5, "packets_dropped": 3}),
        make_run(tmp_path / "b", (1, 2, 3), totals={"marks": 9, "packets_dropped": 1}, scenario=OTHER),
    ]
    found = compare(runs)
    directions = {row.figure.name: row.changes[0].direction for row in found.figures}
    assert directions["messages.done"] == directions["messages.unfinished"] == "better"
    assert directions["totals.packets_dropped"] == "better"
    assert directions["totals.marks"] == "changed"
    backwards = {row.figure.name: row.changes[0].direction for row in compare(runs[::-1]).figures}
    assert backwards["messages.done"] == backwards["totals.packets_dropped"] == "worse"


def test_medians_over_the_seeds(tmp_path):
    slow = {1: 3, 2: 9, 3: 5}
    runs = [make_run(tmp_path / f"a{seed}", (1, value), seed=seed) for seed, value in slow.items()]
    runs += [make_run(tmp_path / f"b{seed}", (1, value + 1), seed=seed, scenario=OTHER) for seed, value in slow.items()]
    row = compare(runs).figure("slowdown.max")
    assert row.medians == (5.0, 6.0)
    assert row.changes[0].assessment.mean_change == 1.0
    assert (row.changes[0].assessment.low, row.changes[0].assessment.high) == (1.0, 1.0)
    assert row.changes[0].assessment.p == 2 / 8


def test_what_does_not_finish_is_infinite(tmp_path):
    never = make_run(tmp_path / "a", (1, None))
    also = make_run(tmp_path / "b", (2, None), scenario=OTHER)
    ended = make_run(tmp_path / "c", (1, 3), scenario=changed(switch__ecn__kmin="1KB"))
    found = compare([never, also, ended]).figure("slowdown.max")
    assert found.medians == (math.inf, math.inf, 3.0)
    assert [(change.absolute, change.relative, change.direction) for change in found.changes] == [
        (0.0, 0.0, "same"),
        (-math.inf, None, "better"),
    ]
    row = compare([ended, never]).figure("slowdown.max")
    assert (row.changes[0].absolute, row.changes[0].direction) == (math.inf, "worse")
    document = compare([ended, never]).to_dict()
    json.dumps(document, allow_nan=False)
    assert next(item for item in document["figures"] if item["name"] == "slowdown.max")["medians"] == [3.0, "inf"]


def test_workloads_have_figures_of_their_own(tmp_path):
    labels = ["all-reduce", "odd <b>&\u202e name", "all-reduce"]
    runs = [
        make_run(tmp_path / "a", (1, 2, 4), labels=labels),
        make_run(tmp_path / "b", (1, 6, 4), labels=labels, scenario=OTHER),
    ]
    found = compare(runs)
    assert found.figure("workload.odd <b>&\u202e name.slowdown.max").medians == (2.0, 6.0)
    assert found.figure("workload.all-reduce.fct_ps.max").changes[0].direction == "same"
    assert {item.workload for item in found.distances} == {None, *labels}
    assert found.judge(["workload.odd <b>&\u202e name.slowdown.max 5%"])[0].exceeded


def test_collectives_and_jobs_of_real_runs_are_figures(tmp_path):
    scenario = Path(__file__).parents[2] / "scenarios" / "jobs" / "two-jobs.toml"
    small = ["workload.0.size=64KiB", "workload.1.size=64KiB", "workload.0.iterations=1", "workload.1.iterations=1"]
    runs = [
        fabemu.run(scenario, tmp_path / name, overrides=[*small, f"link.rate={rate}"])
        for name, rate in (("fast", "400Gbps"), ("slow", "100Gbps"))
    ]
    found = compare(runs)
    names = [row.figure.name for row in found.figures]
    busbw = next(name for name in names if name.startswith("collective.") and name.endswith("all-reduce.busbw_bps"))
    assert found.figure(busbw).changes[0].direction == "worse"
    completion = {row["job"]: row["completion_ps"] for row in runs[1].table("jobs").to_pylist()}
    assert found.figure("job.a.completion_ps").medians[1] == completion["a"]
    assert found.figure("job.a.completion_ps").changes[0].direction == "worse"
    assert found.figure("busiest_link.mean_utilisation").figure.better == "neither"
    assert ("link.rate", ("400Gbps", "100Gbps")) in [(item.key, item.values) for item in found.parameters]


def test_missing_tables_are_said(tmp_path):
    runs = [make_run(tmp_path / "a", tables=()), make_run(tmp_path / "b", scenario=OTHER)]
    found = compare(runs)
    assert any("has no table flows, ports, pauses" in note for note in found.notes)
    assert found.figure("slowdown.max").changes[0].direction == "unknown"
    assert found.figure("slowdown.max").medians == (None, 3.0)
    assert found.figure("totals.marks").medians == (7.0, 7.0)
    assert found.distances == ()
    with pytest.raises(InputError, match=r"A has no slowdown\.p99"):
        found.judge(["slowdown.p99 5%"])


def test_an_empty_run_and_an_interrupted_one(tmp_path):
    empty = make_run(tmp_path / "a", ())
    cut = make_run(tmp_path / "b", scenario=OTHER, status="interrupted")
    found = compare([empty, cut])
    assert any("B, " in note and "partial: the run is interrupted" in note for note in found.notes)
    assert found.groups[1].to_dict()["runs"][0]["partial"]
    assert found.figure("messages.count").medians == (0.0, 3.0)
    assert "slowdown.max" in str(found)


def test_a_run_that_was_killed_at_once(tmp_path):
    killed = make_run(tmp_path / "a", tables=(), scenario=None, status="running")
    document = json.loads((killed / "run.json").read_text())
    for key in ("totals", "messages", "simulated_ps", "digest", "plan_digest", "seed", "scenario"):
        document.pop(key)
    (killed / "run.json").write_text(json.dumps(document))
    found = compare([killed, make_run(tmp_path / "b")])
    assert any("does not say which scenario it ran" in note for note in found.notes)
    assert str(found)


# Bad input.


def test_bad_input(tmp_path, pair):
    a, b = pair
    with pytest.raises(InputError, match="was given"):
        compare([a])
    with pytest.raises(InputError, match="none was given"):
        compare([])
    with pytest.raises(InputError, match="is given twice"):
        compare([a, b, tmp_path / "b" / ".." / "a"])
    with pytest.raises(InputError, match="does not exist"):
        compare([a, tmp_path / "nowhere"])
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is not a run directory"):
        compare([a, tmp_path / "folder"])
    newer = make_run(tmp_path / "newer", trace={"schema_version": SCHEMA_VERSION + 1, "tables": []})
    with pytest.raises(InputError, match=f"schema version {SCHEMA_VERSION + 1}"):
        compare([a, newer])
    (tmp_path / "folder" / "sweep.json").write_text("{}")
    with pytest.raises(InputError, match="a sweep that kept no runs"):
        compare([a, tmp_path / "folder"])
    with pytest.raises(InputError, match="only"):
        compare(str(a))


def test_a_sweep_stands_for_its_runs(tmp_path):
    for name, seed, scenario in (("a1", 1, SCENARIO), ("a2", 2, SCENARIO), ("b1", 1, OTHER), ("b2", 2, OTHER)):
        make_run(tmp_path / "x.sweep" / "runs" / name, seed=seed, scenario=scenario)
    (tmp_path / "x.sweep" / "sweep.json").write_text("{}")
    assert [group.seeds for group in compare([tmp_path / "x.sweep"]).groups] == [(1, 2), (1, 2)]


# Limits.


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("slowdown.p99", "slowdown.p99"),
        ("p99_slowdown", "slowdown.p99"),
        ("p99.9_fct", "fct_ps.p99.9"),
        ("fct.p99", "fct_ps.p99"),
        ("max_slowdown", "slowdown.max"),
        ("pauses.paused", "pauses.paused_ps"),
        ("pauses", "pauses.count"),
        ("marks", "totals.marks"),
        ("drops", "totals.packets_dropped"),
        ("drops_headroom_full", "totals.drops_headroom_full"),
        ("job.a.completion", "job.a.completion_ps"),
        ("workload.x.fct.p99", "workload.x.fct_ps.p99"),
        ("p99_workload.x.slowdown", "workload.x.slowdown.p99"),
    ],
)
def test_names_of_figures(text, name):
    known = ["job.a.completion_ps", "workload.x.fct_ps.p99", "workload.x.slowdown.p99"]
    assert canonical_name(text, known) == name


def test_an_unknown_figure_has_its_nearest():
    with pytest.raises(InputError, match=r"there is no figure 'slowdwn.p99'; did you mean 'slowdown.p99'"):
        canonical_name("slowdwn.p99", [])
    with pytest.raises(InputError, match="they are"):
        canonical_name("xyzzy", [])


@pytest.mark.parametrize(
    ("text", "worse", "allowed", "exceeded"),
    [
        ("slowdown.max 50%", 5, 5, False),
        ("max_slowdown 49.9 %", 5, 4.99, True),
        ("slowdown.max 5", 5, 5, False),
        ("slowdown.max 4.5", 5, 4.5, True),
        ("fct.max 5ns", 5000, 5000, False),
        ("fct.max 4999 ps", 5000, 4999, True),
        ("slowdown.p50 0", 0, 0, False),
        ("slowdown.p50 0%", 0, 0, False),
        ("pauses.count 1", 2, 1, True),
        ("pauses.count 0%", 2, 0, True),
        ("pauses.count 100%", 2, 0, True),  # of nothing
        ("pauses.paused 300ps", 300, 300, False),
        ("marks 2", 3, 2, True),
        ("packet_hops 40", 50, 40, True),  # neither better nor worse: may not change
        ("packet_hops 60%", 50, 60, False),
        ("drops 0", -1, 0, False),
    ],
)
def test_limits(tmp_path, text, worse, allowed, exceeded):
    totals = {"marks": 4, "packet_hops": 50, "packets_dropped": 2}
    tables = ("flows", "pauses")
    runs = [
        make_run(tmp_path / "a", (1, 2, 3, 10), tables=tables, totals={"packets_dropped": 3}),
        make_run(tmp_path / "b", (1, 2, 4, 15), tables=tables, pauses=(100, 200), totals=totals, scenario=OTHER),
    ]
    verdict = compare(runs).judge([text])[0]
    assert (verdict.worse, verdict.allowed, verdict.exceeded) == (worse, pytest.approx(allowed), exceeded)


def test_more_can_be_better_and_every_group_is_judged(tmp_path):
    runs = [make_run(tmp_path / "a", (1, 2)), make_run(tmp_path / "b", (1, None), scenario=OTHER)]
    runs.append(make_run(tmp_path / "c", (1, 2), scenario=changed(switch__ecn__kmin="1KB")))
    verdicts = compare(runs).judge(["messages.done 0", "slowdown.max 1000000%"])
    assert [(item.group, item.exceeded) for item in verdicts] == [("B", True), ("C", False), ("B", True), ("C", False)]
    assert verdicts[0].worse == 1
    assert verdicts[2].worse == math.inf
    backwards = compare([runs[1], runs[0]]).judge(["slowdown.max 0", "messages.done 5%"])
    assert not any(item.exceeded for item in backwards)


def test_infinite_stays_infinite(tmp_path):
    runs = [make_run(tmp_path / "a", (1, None)), make_run(tmp_path / "b", (1, None), scenario=OTHER)]
    for text in ("slowdown.max 0", "slowdown.max 0%", "slowdown.max 5%"):
        assert not compare(runs).judge([text])[0].exceeded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p99_slowdown", "is no limit: write a figure and how much worse"),
        ("", "is no limit"),
        ("5%", "is no limit"),
        ("slowdown.p99 -5%", "cannot be negative"),
        ("slowdown.p99 five%", "is no limit"),
        ("slowdown.p99 1.2.3%", "is not a ratio"),
    ],
)
def test_limits_that_cannot_be_read(text, message):
    with pytest.raises(InputError, match=message):
        read_limit(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fct.p99 10", "needs a unit"),
        ("fct.p99 10KB", "is not a unit of time"),
        ("slowdown.p99 10us", "is not a ratio"),
        ("queue_max_bytes 1us", "A, B have no queue_max_bytes"),
        ("slowdown.p42 1", "did you mean"),
    ],
)
def test_limits_that_cannot_be_judged(pair, text, message):
    with pytest.raises(InputError, match=message):
        compare(pair).judge([text])


# Significance.


def sign_flip_p(differences):
    """Two-sided p by trying all signs, in plain Python."""
    observed = sum(differences)
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    tolerance = 1e-9 * max(1.0, *map(abs, differences))
    less = sum(value <= observed + tolerance for value in sums)
    more = sum(value >= observed - tolerance for value in sums)
    return min(1.0, 2 * min(less, more) / len(sums))


def two_sample_p(first, other):
    """Two-sided p by trying all divisions, in plain Python."""
    pooled = [*first, *other]

    def change(chosen):
        rest = [value for index, value in enumerate(pooled) if index not in chosen]
        return sum(rest) / len(rest) - sum(pooled[index] for index in chosen) / len(chosen)

    observed = change(range(len(first)))
    changes = [change(set(chosen)) for chosen in itertools.combinations(range(len(pooled)), len(first))]
    tolerance = 1e-9 * max(1.0, *map(abs, pooled))
    less = sum(value <= observed + tolerance for value in changes)
    more = sum(value >= observed - tolerance for value in changes)
    return min(1.0, 2 * min(less, more) / len(changes))


def ranks(values):
    """Mean ranks, in plain Python."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2 for value in values
    ]


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_paired_p_values_are_those_of_all_signs(count):
    generator = np.random.default_rng(count)
    first = {"even": generator.normal(size=count), "whole": generator.integers(0, 5, count).astype(float)}
    other = {"even": generator.normal(0.8, size=count), "whole": generator.integers(0, 7, count).astype(float)}
    plan = design(range(count), range(count))
    assert (plan.kind, plan.permutations, plan.least_p) == ("paired", 2**count, 2 / 2**count)
    found = assess(plan, first, other)
    for name in first:
        differences = other[name] - first[name]
        assert found[name].p == pytest.approx(sign_flip_p(differences.tolist()))
        if differences.std() > 0:
            interval = stats.ttest_rel(other[name], first[name]).confidence_interval(0.95)
            assert (found[name].low, found[name].high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize(("first_count", "other_count"), [(2, 2), (3, 4), (5, 5), (2, 7)])
def test_independent_p_values_are_those_of_all_divisions(first_count, other_count):
    generator = np.random.default_rng(first_count)
    first = {"even": generator.normal(size=first_count), "whole": generator.integers(0, 5, first_count).astype(float)}
    other = {
        "even": generator.normal(1, size=other_count),
        "whole": generator.integers(0, 9, other_count).astype(float),
    }
    plan = design(range(first_count), range(100, 100 + other_count))
    assert plan.kind == "independent"
    assert plan.least_p == 2 / math.comb(first_count + other_count, first_count)
    found = assess(plan, first, other)
    for name in first:
        assert found[name].p == pytest.approx(two_sample_p(first[name].tolist(), other[name].tolist()))
    interval = stats.ttest_ind(other["even"], first["even"], equal_var=False).confidence_interval(0.95)
    assert (found["even"].low, found["even"].high) == pytest.approx((interval.low, interval.high))


def test_infinite_values_are_tested_by_their_ranks():
    inf = math.inf
    first = {"x": np.array([1.0, 2.0, inf, 4.0])}
    other = {"x": np.array([inf, 5.0, inf, 3.0])}
    paired = assess(design(range(4), range(4)), first, other)["x"]
    # Differences inf, 3, 0 (both never ended) and -1 have the ranks 4, 3, 1 and 2.
    assert paired.p == sign_flip_p([4, 3, 0, -2])
    assert (paired.mean_change, paired.low) == (None, None)
    independent = assess(design(range(4), range(4, 8)), first, other)["x"]
    pooled = ranks([1.0, 2.0, inf, 4.0, inf, 5.0, inf, 3.0])
    assert independent.p == pytest.approx(two_sample_p(pooled[:4], pooled[4:]))


def test_what_never_changes_is_not_significant():
    constant = {"x": np.full(6, 0.1), "y": np.full(6, 3.0)}
    other = {"x": np.full(6, 0.1), "y": np.full(6, 4.0)}
    found = assess(design(range(6), range(6)), constant, other)
    assert found["x"].p == 1.0
    assert found["y"].p == 2 / 2**6 < 0.05
    assert (found["y"].mean_change, found["y"].low, found["y"].high) == (1.0, 1.0, 1.0)


def test_seeds_that_both_have_are_paired_whatever_their_order():
    plan = design((3, 1, 2), (9, 1, 3))
    assert (plan.kind, plan.first, plan.other) == ("paired", (0, 1), (2, 1))
    assert design((1,), (1,)).kind == design((1,), (2, 3)).kind == "none"
    assert design((1, 2), (2, 3)).kind == "independent"
    assert design((None, None), (None, None)).kind == "independent"


def test_many_seeds_are_drawn_and_the_same_every_time():
    generator = np.random.default_rng(3)
    first = {"x": generator.normal(size=18)}
    other = {"x": first["x"] + generator.normal(0.4, 1, size=18)}
    plan = design(range(18), range(18))
    assert not plan.exact
    found = [assess(plan, first, other)["x"].p for _ in range(2)]
    assert found[0] == found[1] == pytest.approx(sign_flip_by_sums(other["x"] - first["x"]), abs=0.01)


def sign_flip_by_sums(differences):
    """All signs of many differences, by doubling the sums."""
    sums = np.zeros(1)
    for value in differences:
        sums = np.concatenate([sums + value, sums - value])
    more = np.count_nonzero(np.abs(sums) >= abs(differences.sum()) - 1e-12)
    return more / len(sums)


def test_too_few_seeds_are_said(tmp_path):
    runs = [make_run(tmp_path / f"a{seed}", (1, seed + 1), seed=seed) for seed in range(6)]
    runs += [make_run(tmp_path / f"b{seed}", (1, seed + 3), seed=seed, scenario=OTHER) for seed in range(6)]

    def notes(count):
        return " ".join(compare([*runs[:count], *runs[6 : 6 + count]]).notes)

    assert "are too few to tell a change from chance" in notes(1)
    assert "p cannot be below 0.0625 with so few: give six pairs" in notes(5)
    assert "p cannot be below" not in notes(6)
    row = compare(runs).figure("slowdown.max")
    assert row.changes[0].significant
    assert row.changes[0].assessment.p == 2 / 64


def test_without_scipy_it_is_said(pair, monkeypatch, tmp_path):
    make_run(tmp_path / "a2", seed=2)
    make_run(tmp_path / "b2", seed=2, scenario=OTHER)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = compare([*pair, tmp_path / "a2", tmp_path / "b2"])
    assert any("pip install 'fabemu[analysis]'" in note for note in found.notes)
    assert found.figure("slowdown.max").changes[0].assessment.p is None


# Distributions.


def test_distances_are_those_of_scipy():
    generator = np.random.default_rng(5)
    for first_count, other_count in ((1, 1), (5, 9), (300, 200)):
        first = np.sort(generator.integers(0, 20, first_count).astype(float))
        other = np.sort(generator.integers(3, 25, other_count).astype(float))
        assert distance(first, other) == pytest.approx(stats.ks_2samp(first, other).statistic)
    assert distance(np.array([1.0, math.inf]), np.array([math.inf, math.inf])) == 0.5
    with pytest.raises(ValueError):
        distance(np.array([]), np.array([1.0]))


def test_distributions_of_seeds_are_pooled_and_thinned(tmp_path):
    many = tuple(range(1, 3001))
    runs = [make_run(tmp_path / f"a{seed}", many, seed=seed) for seed in (1, 2)]
    runs.append(make_run(tmp_path / "b", (None,), scenario=OTHER))
    found = compare(runs)
    curve = next(item for item in found.curves if (item.group, item.figure) == ("A", "slowdown"))
    assert curve.count == 6000
    assert len(curve.values) <= 400
    assert curve.values[-1] == 3000.0
    assert curve.shares[-1] == 1.0
    values = np.sort(np.repeat(many, 2))
    for value, share in zip(curve.values, curve.shares, strict=True):
        assert values[round(share * 6000) - 1] == value
    assert [item.distance for item in found.distances] == [1.0]
    table = found.curves_table()
    assert table.column("workload").null_count == len(table)


# Tables and text.


def test_tables(pair):
    found = compare(pair)
    rows = {(row["figure"], row["group"]): row for row in found.figures_table().to_pylist()}
    assert rows["slowdown.max", "A"]["median"] == 10.0
    assert rows["slowdown.max", "A"]["change"] is None
    assert rows["slowdown.max", "B"]["relative"] == 0.5
    assert rows["slowdown.max", "B"]["direction"] == "worse"
    assert len(rows) == 2 * len(found.figures)


def test_text(pair):
    text = str(compare(pair))
    assert "comparing 2 settings, 2 runs" in text
    assert [line.split() for line in text.splitlines() if line.startswith("  slowdown.max")] == [
        ["slowdown.max", "10", "15", "+5", "+50.0", "worse"]
    ]
    assert "switch.ecn.kmin" in text
    assert fabemu.compare is compare
    assert isinstance(compare(pair), fabemu.Comparison)


# Pictures.


def test_distributions_are_drawn_over_each_other(tmp_path):
    pytest.importorskip("plotly", reason="pip install 'fabemu[report]'")
    from fabemu.figures import compared, notes_of

    labels = ["odd <b>&", "other", "other", "other"]
    first = make_run(tmp_path / "a", (1, 2, 3, 10), labels=labels)
    comparison = compare([first, make_run(tmp_path / "b", (1, 2, 4, None), labels=labels, scenario=OTHER)])
    figure = compared(comparison)
    slow = {trace.name: trace for trace in figure.data if trace.xaxis == "x"}
    assert list(slow) == ["A: made (4)", "B: made (4)"]
    assert list(slow["A: made (4)"].x) == [1, 2, 3, 10]
    assert list(slow["A: made (4)"].y) == [0.25, 0.5, 0.75, 1]
    assert list(slow["B: made (4)"].y) == [0.25, 0.5, 0.75]
    assert notes_of(figure) == ["Messages of B did not all finish: these curves end below 100 %."]
    times = [trace for trace in figure.data if trace.xaxis == "x2"]
    assert list(times[0].x) == [1000, 2000, 3000, 10000]
    assert list(compared(comparison, "odd <b>&").data[0].x) == [1]
    with pytest.raises(InputError, match="no setting has messages of a workload 'none'"):
        compared(comparison, "none")
    empty = compare([make_run(tmp_path / "c", tables=()), make_run(tmp_path / "d", (None,), scenario=OTHER)])
    assert "no message finished" in notes_of(compared(empty))[0]


def test_the_page_needs_nothing_else_and_escapes_names(tmp_path):
    pytest.importorskip("plotly", reason="pip install 'fabemu[report]'")
    from fabemu.comparison.page import document

    name = "<script>alert(1)</script>&"
    first = make_run(tmp_path / "a", (1, 2), labels=[name, "x"], scenario=changed(name=name))
    other = changed(name=name, switch__ecn__kmin="<i>200KB")
    found = compare([first, make_run(tmp_path / "b", (1, 4), labels=[name, "x"], scenario=other)])
    page = document(found, found.judge(["slowdown.max 5%"]))
    assert "alert(1)</script>" not in page
    assert "&lt;i&gt;200KB" in page
    assert '<td class="name worse">worse</td>' in page
    assert '<h2 class="alarm">Limits</h2>' in page
    assert page.count('id="distribution-') == 3
    assert 'src="http' not in page
    assert len(page) < 10_000_000
