"""Parameters of a sweep and the points that designs make of them."""

import itertools
import tomllib

import numpy as np
import pytest

from fabemu.errors import InputError, ScenarioError
from fabemu.sweeps.design import combinations
from fabemu.sweeps.key import Key, find_key
from fabemu.sweeps.parameter import Parameter, parameters_of, read_settings, written
from fabemu.sweeps.points import plan_sweep
from tests.small import SMALL

DATA = tomllib.loads(SMALL)


def values_of(option):
    (parameter,) = read_settings([option])[1]
    return parameter.values


def shares(design, parameters, points, seed=1):
    keys = [find_key(DATA, parameter.key) for parameter in parameters]
    return combinations(design, parameters, keys, points, seed)


# What is typed.


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[100KiB,200KiB]", ("100KiB", "200KiB")),
        ('["100KiB", "200KiB"]', ("100KiB", "200KiB")),
        ("[ auto , 100KiB ]", ("auto", "100KiB")),
        ("[1,2,0.5]", (1, 2, 0.5)),
        ("[true,false]", (True, False)),
        ("[1/8, 1]", ("1/8", 1)),
        ('[["h1","h2"],all]', (["h1", "h2"], "all")),
        ('["a,b",c]', ("a,b", "c")),
        ("[7]", (7,)),
    ],
)
def test_lists_are_parameters(text, values):
    assert values_of(f"a.b={text}") == values


@pytest.mark.parametrize(
    ("text", "low", "high", "log"),
    [
        ("100KiB..400KiB", "100KiB", "400KiB", False),
        ("0.1..0.9", 0.1, 0.9, False),
        ("1/16 .. 1:log", "1/16", 1, True),
        ("1us..1ms:log", "1us", "1ms", True),
    ],
)
def test_two_ends_are_a_range(text, low, high, log):
    assert read_settings([f"a.b={text}"]) == ([], [Parameter("a.b", low=low, high=high, log=log)])


@pytest.mark.parametrize("option", ["a.b=5", "a.b=h0:h3", "workload.0.path=../flows.csv", 'a="1..2 of it"'])
def test_anything_else_is_common_to_all_points(option):
    assert read_settings([option]) == ([option], [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["a=[]"], "--set a=[]: the list is empty"),
        (["a=[1,2"], "the list does not end"),
        (["a=[x,,y]"], "is not a list of values"),
        (["a=[x,'y]"], "is not a list of values"),
        (["a=[10KiB,20KiB,10KiB]"], "10KiB is listed twice"),
        (["a=[1,2]", "a=[3,4]"], "a: is set twice"),
        (["a=[1,2]", "a=3"], "a: is set twice"),
        (["a.b"], "--set a.b: write key=[value, value], key=low..high or key=value"),
        (["=[1,2]"], "--set =[1,2]: write key=[value, value], key=low..high or key=value"),
        (["seed=[1,2]"], "seed: give the seeds of a sweep with --seeds"),
    ],
)
def test_settings_that_cannot_be_followed(options, message):
    with pytest.raises(InputError) as error:
        read_settings(options)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["1KiB..", "..1KiB", "1..inf", "nan..1", "-inf..1", "1/8..", "nan..inf", "1.. :log"])
def test_half_a_range_is_no_value(text):
    with pytest.raises(InputError) as error:
        read_settings([f"a.b={text}"])
    assert str(error.value).startswith(f"--set a.b={text}: a range has a number at either end: write a.b=low..high")


@pytest.mark.parametrize("text", ["1MiB..", "..4MiB", " 1/8.. ", "1..:log", "nan..2", "..inf"])
def test_half_a_range_from_python_is_refused(text):
    with pytest.raises(InputError) as error:
        parameters_of({"a.b": text})
    assert str(error.value) == (
        f'a.b = "{text}": a range has a number at either end: write "low..high", such as "1/8..2" or '
        f'"4MiB..32MiB:log"; a text is given as a list, ["{text}"]'
    )
    assert parameters_of({"a.b": [text]})[1][0].values == (text,)


@pytest.mark.parametrize("text", ["../1.csv", "2026/../x.csv", "..", "a..b", '"1.."', "'..1'", "1.5", "1..x", "..x"])
def test_a_text_with_dots_may_be_a_value(text):
    assert read_settings([f"a.b={text}"]) == ([f"a.b={text}"], [])


def test_python_takes_values_as_they_are():
    common, parameters = parameters_of({"a": ["1KiB", "2KiB"], "b": "1KiB..2KiB", "c": 5, "d": "x", "e": (True, "1")})
    assert common == ["c=5", "d=x"]
    assert [parameter.values for parameter in parameters] == [("1KiB", "2KiB"), (), (True, "1")]
    assert [written(value) for value in (True, "1", 1, "h0", ["a"])] == ["true", '"1"', "1", "h0", '["a"]']


# Keys.


@pytest.mark.parametrize(
    ("path", "value", "number", "unit"),
    [
        ("switch.ecn.kmin", "100KiB", 102_400, "bytes"),
        ("link.rate", "400Gbps", 400 * 10**9, "bit/s"),
        ("link.delay", "1.5us", 1_500_000, "ps"),
        ("link.length", "2.5m", 2.5, "m"),
        ("switch.pfc.alpha", "1/8", 0.125, ""),
        ("switch.pfc.headroom", "auto", "auto", "bytes"),
        ("switch.ecn.enabled", True, True, ""),
        ("workload.0.size", "1MB", 10**6, "bytes"),
        ("workload.0.senders", ["h1"], None, ""),
        ("nic.cc.kind", "dcqcn", "dcqcn", ""),
        ("switch.tier.leaf.buffer", "1MiB", 2**20, "bytes"),
    ],
)
def test_keys_know_their_numbers(path, value, number, unit):
    key = find_key(DATA, path)
    assert key.is_known
    assert key.base(value) == number and type(key.base(value)) is type(number)
    assert key.unit == unit


@pytest.mark.parametrize("path", ["switch.ecn.kmn", "nowhere", "workload.7.size", "workload.0.load", "a..b"])
def test_keys_that_are_none(path):
    assert not find_key(DATA, path).is_known


# Designs.


def test_a_grid_is_every_combination():
    parameters = [Parameter("a", (1, 2)), Parameter("b", ("x", "y", "z"))]
    assert shares("grid", parameters, None) == list(itertools.product((1, 2), ("x", "y", "z")))


def test_a_list_goes_in_step():
    parameters = [Parameter("a", (1, 2)), Parameter("b", ("x", "y"))]
    assert shares("list", parameters, None) == [(1, "x"), (2, "y")]


def test_draws_lie_in_their_range_and_are_always_the_same():
    parameters = [
        Parameter("switch.buffer", low="1MiB", high="32MiB"),
        Parameter("switch.pfc.alpha", low="1/64", high=2, log=True),
        Parameter("workload.0.waves", low=1, high=3),
        Parameter("nic.cc.kind", ("none", "dcqcn")),
    ]
    for design in ("random", "lhs"):
        points = shares(design, parameters, 200)
        assert points == shares(design, parameters, 200) != shares(design, parameters, 200, seed=2)
        sizes = [find_key(DATA, "switch.buffer").base(point[0]) for point in points]
        assert 2**20 <= min(sizes) < 1.5 * 2**20 and 31 * 2**20 < max(sizes) <= 2**25
        alphas = np.array([point[1] for point in points])
        assert alphas.min() >= 1 / 64 and alphas.max() <= 2
        assert 80 <= (alphas < 2**-2.5).sum() <= 120, "half of the ratios"
        assert {point[2] for point in points} == {1, 2, 3}
        assert 70 <= sum(point[3] == "none" for point in points) <= 130
    # A parameter that comes along leaves the draws of the others as they are.
    alone = shares("lhs", parameters[:1], 200)
    assert [point[0] for point in alone] == [point[0] for point in shares("lhs", parameters, 200)]


def test_a_latin_hypercube_has_a_point_in_every_strip():
    parameters = [Parameter("switch.ecn.pmax", low=0.0, high=1.0), Parameter("switch.pfc.alpha", low=1, high=2)]
    points = np.array(shares("lhs", parameters, 50), dtype=float) - [0, 1]
    for column in points.T:
        assert sorted((column * 50).astype(int)) == list(range(50))


def test_a_latin_hypercube_fills_space_as_that_of_scipy_does():
    qmc = pytest.importorskip("scipy.stats").qmc
    names = ("switch.ecn.pmax", "workload.0.load", "switch.x")
    parameters = [Parameter(name, low=0.0, high=1.0) for name in names]
    ours = [qmc.discrepancy(np.array(shares("lhs", parameters, 64, seed), dtype=float)) for seed in range(20)]
    theirs = [qmc.discrepancy(qmc.LatinHypercube(3, seed=seed).random(64)) for seed in range(20)]
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.2)


@pytest.mark.parametrize(
    ("design", "options", "points", "message"),
    [
        ("grid", [], None, "no parameter: give one or more with --set"),
        ("grid", ["a=1..2"], None, "a: a range needs --design random or lhs with --points"),
        ("grid", ["a=[1,2]"], 5, "--points is for the designs random and lhs"),
        ("random", ["a=1..2"], None, "--design random needs the number of points: --points 100"),
        ("lhs", ["a=1..2"], 0, "0 points: a sweep has 1 to 20,000"),
        ("grid", [f"a={list(range(200))}", f"b={list(range(101))}"], None, "20,200 points: a sweep has 1 to 20,000"),
        (
            "list",
            ["a=[1,2]", "b=[1,2,3]"],
            None,
            "takes lists of one length, one element of each for a point; found a 2",
        ),
        ("cube", ["a=[1,2]"], None, "there is no design 'cube'; they are grid, list, random, lhs"),
    ],
)
def test_designs_that_cannot_be_made(design, options, points, message):
    with pytest.raises(InputError) as error:
        shares(design, read_settings(options)[1], points)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("switch.buffer=1MiB..5us", 'switch.buffer = 1MiB..5us: "us" is not a unit of size'),
        ("switch.buffer=2MiB..1MiB", "a range goes from its lower end to its higher one"),
        ("switch.pfc.alpha=0..1:log", "a logarithmic range begins above 0"),
        ("switch.ecn.enabled=1..x", ""),
    ],
)
def test_ranges_that_are_none(option, message):
    if not message:
        assert read_settings([option])[1] == []
        return
    with pytest.raises(InputError) as error:
        shares("random", read_settings([option])[1], 3)
    assert message in str(error.value)


# Points.


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def planned(scenario, options, **more):
    return plan_sweep(scenario, *read_settings(options), **more)


def test_points_are_validated_one_by_one(file):
    plan = planned(file, ["switch.ecn.kmin=[100KiB,3MiB]", "switch.ecn.kmax=2MiB"], seeds=3)
    good, bad = plan.points
    assert good.scenario.switch.ecn.kmin == 102_400 and good.error == ""
    assert bad.scenario is None and "kmin 3MiB is above kmax 2MiB" in bad.error
    assert plan.seeds == (3, 4, 5) and plan.run_count == 6 and plan.name == "small"


@pytest.mark.parametrize("option", ["switch.ecn.kmn=[100KiB,200KiB]", "switch.ecn.kmn=1KiB..2KiB"])
def test_an_unknown_key_is_the_same_error_as_everywhere(file, option):
    more = {"design": "lhs", "points": 3} if ".." in option else {}
    with pytest.raises(ScenarioError) as error:
        planned(file, [option], **more)
    assert 'unknown key; did you mean "kmin"?' in str(error.value)


@pytest.mark.parametrize(
    ("option", "first", "second"),
    [
        ("switch.buffer=[4MiB,8MiB,4096KiB]", "4MiB", "4096KiB"),
        ("switch.buffer=[4194304B,4MiB]", "4194304B", "4MiB"),
        ("link.rate=[100Gbps,0.1Tbps]", "100Gbps", "0.1Tbps"),
        ("link.delay=[1us,500ns,1000ns]", "1us", "1000ns"),
        ("link.length=[5m,5.0m]", "5m", "5.0m"),
        ("until=[1ms,1000us]", "1ms", "1000us"),
        ("switch.pfc.alpha=[1/8,1,0.125]", "1/8", "0.125"),
        ("switch.ecn.pmax=[0.5,1/2]", "0.5", "1/2"),
        ("workload.0.size=[100KB,0.1MB]", "100KB", "0.1MB"),
    ],
)
@pytest.mark.parametrize("design", ["grid", "list", "random"])
def test_one_value_in_two_spellings_is_refused(file, option, first, second, design):
    key = option.partition("=")[0]
    with pytest.raises(InputError) as error:
        planned(file, [option], design=design, points=4 if design == "random" else None)
    assert str(error.value) == f"{key}: {first} and {second} are the same value; list it once"


@pytest.mark.parametrize(
    "option", ["switch.buffer=[4MiB,4MB]", "switch.pfc.enabled=[true,false]", "until=[1ms,nothing]"]
)
def test_values_that_differ_are_points(file, option):
    assert len(planned(file, [option]).points) == 2


@pytest.mark.parametrize("option", ["workload.0.senders=[[h1,h2],[h2,h1]]", "switch.ecn=[{kmin=1KiB},{kmin=2KiB}]"])
def test_lists_and_tables_are_told_apart(option):
    (parameter,) = read_settings([option])[1]
    key = find_key({"workload": [{"kind": "incast"}]}, parameter.key)
    key.refuse_equals(parameter)
    twice = Parameter(parameter.key, (*parameter.values, parameter.values[0]))
    with pytest.raises(InputError, match="are the same value; list it once"):
        key.refuse_equals(twice)


def test_many_values_are_told_apart_without_comparing_all_with_all():
    compared = []

    class Value(int):
        def __eq__(self, other):
            compared.append(other)
            return int(self) == other

        __hash__ = int.__hash__

    Key("x").refuse_equals(Parameter("x", tuple(Value(number) for number in range(2000))))
    assert len(compared) < 2000


def test_no_valid_point_at_all_is_an_error(file):
    with pytest.raises(ScenarioError, match="kmin 3MiB is above kmax 2MiB"):
        planned(file, ["switch.ecn.kmin=[3MiB,4MiB]", "switch.ecn.kmax=2MiB"])


def test_the_digest_is_that_of_what_is_run(file, tmp_path):
    first = planned(file, ["switch.ecn.kmin=[100KiB,200KiB]"]).digest
    assert planned(file, ["switch.ecn.kmin=[102400B,200KiB]"]).digest == first
    assert planned(file, ["switch.ecn.kmin=[100KiB,300KiB]"]).digest != first
    assert planned(file, ["switch.ecn.kmin=[100KiB,200KiB]"], seeds=2).digest != first
    assert planned(file, ["switch.ecn.kmin=[100KiB,200KiB]", "until=1ms"]).digest != first
    flows = tmp_path / "flows.csv"
    flows.write_text("src,dst,bytes,start_ps\nh1,h0,1000,0\n")
    options = ["workload.0={kind='flow-file', path='flows.csv'}", "switch.buffer=[4MiB,8MiB]"]
    with_file = planned(file, options).digest
    assert planned(file, options).digest == with_file
    flows.write_text("src,dst,bytes,start_ps\nh1,h0,2000,0\n")
    assert planned(file, options).digest != with_file


def test_a_mapping_is_a_scenario_too():
    plan = planned(DATA, ["workload.0.size=[1KB,2KB]"])
    assert [point.scenario.workload[0].size for point in plan.points] == [1000, 2000]
    assert DATA["workload"][0]["size"] == "100KB"


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (0, "0 seeds: a sweep has 1 to 100,000"),
        (2**63 - 1, f"for seed {2**63 - 1} alone write a list: {2**63 - 1},"),
        (2**63, "seeds: a sweep has 1 to 100,000 of them$"),
        (-1, "seeds: a sweep has 1 to 100,000 of them$"),
        ([], "0 seeds"),
        ([1, 2, 1], "seed 1 is listed twice"),
        ([-1], "seed -1: a seed is 0 to"),
        (100_000, None),
    ],
)
def test_seeds(file, seeds, message):
    if message is None:
        assert len(planned(file, ["switch.buffer=[4MiB,8MiB]"], seeds=seeds).seeds) == seeds
        return
    with pytest.raises(InputError, match=message):
        planned(file, ["switch.buffer=[4MiB,8MiB]"], seeds=seeds)


def test_too_many_runs_are_refused(file):
    with pytest.raises(InputError, match="a sweep has at most 1,000,000 runs"):
        planned(file, ["switch.buffer=[1MiB,2MiB,3MiB,4MiB,5MiB,6MiB,7MiB,8MiB,9MiB,10MiB,11MiB]"], seeds=100_000)
