"""Parameters that differ between settings, by the key paths that ``--set`` takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabemu.comparison.groups import Group
from fabemu.deferred import dataclass
from fabemu.scenario.write import toml_key, toml_value

_DIGEST_SHOWN = 12


@dataclass(frozen=True)
class Parameter:
    """One key with its value in each group, as a scenario file holds it; None where the scenario has no such key."""

    key: str
    values: tuple[str | None, ...]


def differences(groups: Sequence[Group]) -> tuple[Parameter, ...]:
    """Keys whose values are not the same in all groups, in the order of the scenario, then files, version and engine.

    Plan digests are listed for the first seed that all groups have, where they differ: what was simulated is the same
    if they do not, whatever the scenarios say.
    """
    columns = [dict(_flat(group.members[0].scenario, "")) for group in groups]
    columns = [
        {
            **column,
            **{f"{name} (SHA-256)": digest[:_DIGEST_SHOWN] for name, digest in group.members[0].inputs.items()},
            "fabemu version": str(group.members[0].run.info.get("version")),
            "engine": str(group.members[0].run.info.get("engine")),
        }
        for group, column in zip(groups, columns, strict=True)
    ]
    keys = dict.fromkeys(key for column in columns for key in column)
    found = [Parameter(key, tuple(column.get(key) for column in columns)) for key in keys]
    digests = plan_digests(groups)
    if digests is not None:
        seed, values = digests
        found.append(Parameter(f"plan digest (seed {seed})", tuple(value[:_DIGEST_SHOWN] for value in values)))
    return tuple(item for item in found if len(set(item.values)) > 1)


def plan_digests(groups: Sequence[Group]) -> tuple[int, tuple[str, ...]] | None:
    """The first seed that all groups have and the plan digests of its runs; None if there is no such seed."""
    return _digests(groups, "plan_digest")


def result_digests(groups: Sequence[Group]) -> tuple[int, tuple[str, ...]] | None:
    """As `plan_digests`, of what came out: the same digest means the same run, packet by packet."""
    return _digests(groups, "digest")


def are_different_scenarios(first: Group, other: Group) -> bool:
    """Whether both the fabric and the workloads differ: then it is not one scenario with another setting."""
    one, two = first.members[0].scenario, other.members[0].scenario
    return all(one.get(key) != two.get(key) for key in ("fabric", "workload")) and bool(one) and bool(two)


def _digests(groups: Sequence[Group], name: str) -> tuple[int, tuple[str, ...]] | None:
    for seed in groups[0].seeds:
        runs = [next((member.run for member in group.members if member.seed == seed), None) for group in groups]
        values = [run.info.get(name) if run is not None else None for run in runs]
        if seed is not None and all(isinstance(value, str) for value in values):
            return seed, tuple(str(value) for value in values)
    return None


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a tree of tables and lists of tables, each value as TOML, words bare."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{toml_key(key)}" if path else toml_key(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{path}.{index}")
    else:
        yield path, value if isinstance(value, str) else toml_value(value)
