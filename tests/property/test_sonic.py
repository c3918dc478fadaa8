"""SONiC configurations with arbitrary values: never a crash, and profiles that scenarios can take in."""

import copy
import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fabemu.errors import InputError, ScenarioError
from fabemu.importers.sonic import import_sonic
from fabemu.lint.sonic import lint_sonic
from fabemu.scenario import load_scenario

DATA = Path(__file__).parents[1] / "data" / "sonic"
LOOKUP = DATA / "pg_profile_lookup.ini"
CONFIGURATIONS = {name: json.loads((DATA / name).read_text()) for name in ("t0.json", "t1-400g-flat.json", "bad.json")}
SCENARIO = """\
[fabric]
kind = "single-switch"
hosts = 2
[switch]
profile = "switch.toml"
[[workload]]
kind = "permutation"
size = "1KB"
"""


def places(data, path=()):
    """Every place of nested objects."""
    for key, value in data.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1", "3,4", "3-4", "7-0", "1e9", "99999999999999999", "NULL", "none", "[X|y]", "5m"]
    ),
    st.integers(-2, 2**40).map(str),
    st.text(max_size=4),
    st.none(),
    st.booleans(),
    st.integers(),
    st.lists(st.text(max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)
REMOVE = object()


@st.composite
def configurations(draw):
    data = copy.deepcopy(CONFIGURATIONS[draw(st.sampled_from(sorted(CONFIGURATIONS)))])
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(sorted(places(data))))
        table = data
        for key in path[:-1]:
            table = table[key]
        value = draw(st.one_of(st.just(REMOVE), VALUES))
        if value is REMOVE:
            del table[path[-1]]
        else:
            table[path[-1]] = value
    return data


@given(configurations(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_any_configuration_gets_findings_or_one_error(data, with_lookup):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config_db.json"
        path.write_text(json.dumps(data))
        lookup = LOOKUP if with_lookup else None
        try:
            found = lint_sonic(path, lookup)
        except InputError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)
            return
        assert all(finding.places and str(finding).startswith(f"{finding.code} {path}") for finding in found)
        try:
            profile, _ = import_sonic(path, lookup, Path(directory) / "switch.toml")
        except InputError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)
            assert {finding.code for finding in found} & {"FB601", "FB603", "FB606"}, "check says it too"
            return
        scenario = Path(directory) / "scenario.toml"
        scenario.write_text(SCENARIO)
        try:
            load_scenario(scenario)
        except ScenarioError as error:
            # A number that scenarios do not take, at its place in the profile.
            assert all(str(profile) in problem.where for problem in error.problems), error
