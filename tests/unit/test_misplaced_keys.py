"""Keys that are misspelt, or stand in another table than their own, at every level of a scenario: none is ignored."""

import copy
import tomllib
from pathlib import Path

import pytest

from fabemu.errors import ScenarioError
from fabemu.scenario import load_scenario, scenario_from_dict

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FILES = sorted(SCENARIOS.rglob("*.toml"))[::9]


def tables(value, path=()):
    """Places of all tables of a scenario, of a list the first two."""
    if isinstance(value, dict):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, item in items:
        yield from tables(item, (*path, key))


def refused(data, place, key, value):
    """What is said of a key that is added to a table."""
    changed = copy.deepcopy(data)
    table = changed
    for step in place:
        table = table[step]
    table[key] = value
    with pytest.raises(ScenarioError) as found:
        scenario_from_dict(changed)
    return str(found.value)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_key_is_ignored(file):
    data = tomllib.loads(load_scenario(file).to_toml())
    for place in tables(data):
        table = data
        for step in place:
            table = table[step]
        for key in list(table)[:2]:
            wrong = f"{key[:-1]}x{key[-1]}"
            text = refused(data, place, wrong, table[key])
            assert wrong in text and "did you mean" in text, (place, text)
        for stranger in ("kmin", "hosts_per_leef", "load", "retry_count", "zzz"):
            if stranger not in table and not (place and place[-1] in ("ecn", "nic")):
                assert stranger in refused(data, place, stranger, 1), place
