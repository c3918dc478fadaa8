"""The scenario reference page and the JSON schema, made from the models.

``python -m fabemu.scenario.reference > docs/SCENARIO.md`` writes the page; a test checks that it is current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Set
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from fabemu.scenario.model import Scenario
from fabemu.scenario.presets import DCQCN_PRESETS, NS3_DEFAULTS
from fabemu.scenario.quantity import DEVICES_MAX
from fabemu.scenario.shape import choices_of, inner_tables, is_mapping, table_keys, table_kind
from fabemu.scenario.unsupported import UNSUPPORTED_KEYS, UNSUPPORTED_VALUES
from fabemu.scenario.write import quantity_of, toml_value

SMALLEST = """\
[fabric]
kind = "leaf-spine"
leaves = 4
hosts_per_leaf = 8
spines = 4

[[workload]]
kind = "poisson"
load = 0.5
stop = "1ms"
"""
"""A complete scenario: everything else has a default."""

_NOUNS = {
    "ps": "time",
    "bytes": "size",
    "bit/s": "rate",
    "FLOP/s": "rate of computation",
    "m (Fraction)": "length",
    "ratio (Fraction)": "ratio",
}


def scenario_schema() -> dict[str, Any]:
    """JSON schema of a scenario file, for editors: the TOML keys with their texts, defaults and allowed values."""
    schema = _without_null(Scenario.model_json_schema(by_alias=True))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "fabemu scenario"}


def _without_null(node: Any) -> Any:
    """TOML has no null: a key is there or not."""
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {
        key: _without_null(value) for key, value in node.items() if not (key == "default" and value in (None, [], {}))
    }
    if "const" in result.get("properties", {}).get("kind", {}):
        result["required"] = ["kind", *result.get("required", [])]
    choices = result.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        remaining = [item for item in choices if item != {"type": "null"}]
        del result["anyOf"]
        result = {**remaining[0], **result} if len(remaining) == 1 else {**result, "anyOf": remaining}
    return result


def reference_page() -> str:
    """Markdown of docs/SCENARIO.md."""
    parts = [_INTRODUCTION.replace("SMALLEST", SMALLEST.strip()), *_tables(), _presets(), _compatibility(), _not_yet()]
    return "\n".join(part.rstrip() + "\n" for part in parts)


_INTRODUCTION = """\
# The scenario file

<!-- Made by `python -m fabemu.scenario.reference > docs/SCENARIO.md`; do not edit. -->

A scenario is a TOML file. The smallest useful one, to which everything else is default:

```toml
SMALLEST
```

`fabemu check FILE` tells all problems of a file at once; `fabemu check --show FILE` prints it with every default spelt
out. `--set key.path=value` changes a key for one run, list elements by index from 0: `--set link.rate=200Gbps`,
`--set workload.0.load=0.8`. Unknown keys are errors. File names in a scenario are relative to the scenario.

## Units

Physical values are texts with a unit; a bare number in their place is an error. Counts and ratios are numbers.

| kind | written | units | in Python |
|---|---|---|---|
| time | `"1.5us"` | ps, ns, us, ms, s | int, ps |
| rate | `"400Gbps"` | bps, kbps, Mbps, Gbps, Tbps, also b/s, bit/s; decimal | int, bit/s |
| size | `"64KiB"` | B, kB (also KB), MB, GB, TB are decimal; KiB, MiB, GiB, TiB binary | int, bytes |
| rate of computation | `"400TFLOP/s"` | FLOP/s, with k, M, G, T, P; also TFLOPS | int, FLOP/s |
| length | `"120m"` | mm, cm, m, km | Fraction, m |
| ratio | `0.125`, `"1/8"`, `"2:1"` | | Fraction, or float where it is a probability, share or load |

Host sets (`hosts`, `senders` and the like) are `"all"`, a name, a range `"h0:h63"` with both ends, a pattern `"h1*"`,
or a list of these.

In Python the attributes of `fabemu.scenario.Scenario` have the names of the keys, but for `class`, a keyword: [[class]]
is `classes`, and the `class` of a workload is `class_name`. Objects are built with the same values as in a file
(`Link(rate="200Gbps")`), or with `scenario_from_dict`. A word such as `"auto"` stays that word. `scenario.link_for`,
`switch_for` and `nic_for` give the parameters of one device with its tier and overrides worked in.

## Switch profiles

`profile = "leaf.toml"` in [switch], [switch.tier.NAME] or [[switch.override]] takes in the [switch] table of another
file, below the keys that stand beside `profile`: what the scenario says itself at that place goes before. File names
are relative to the scenario. `fabemu import sonic config_db.json` writes such a file. Besides [switch] it may hold

- `[map]`: what the switch makes of the classes. `dscp = { 26 = 3, default = 0 }`: the queue of each DSCP, by which
  `class_map` follows for the classes of the scenario; `lossless = [3, 4]`: the queues with PFC, which
  the classes must agree with; `weights = { 3 = 15 }`: by which `weights` follows. Queue numbers are priorities of
  classes.
- `[[class]]`: the classes that it was made for. A scenario without [[class]] has these.
- `[[switch.override]]` with `peer` and no `name`: single ports; such a profile is for one switch, in
  [[switch.override]].

A resolved scenario (`fabemu check --show`, and the copy in a run's directory) holds what its profiles say, not their
names.
"""


def _tables() -> Iterator[str]:
    """One section per table, in file order."""
    yield _section("Top level", "Before the first table.", _simple_keys(Scenario))
    for key, info in table_keys(Scenario).items():
        tables = inner_tables(info.annotation)
        if not tables:
            continue
        header = f"[[{key}]]" if _is_list(info) else f"[{key}]"
        if len(tables) == 1:
            yield from _table(header, key, tables[0])
            continue
        shared = set.intersection(*(set(table_keys(table)) for table in tables)) - {"kind"}
        kinds = ", ".join(f"`{toml_value(table_kind(table))}`" for table in tables)
        common = {name: item for name, item in table_keys(tables[0]).items() if name in shared}
        yield _section(header, f"{_sentence(info.description)} `kind` says which: {kinds}.", common)
        for table in tables:
            yield from _table(
                f"{header} kind = {toml_value(table_kind(table))}", key, table, without={*shared, "kind"}, depth=3
            )


def _table(
    header: str, path: str, table: type[BaseModel], *, without: Set[str] = frozenset(), depth: int = 2
) -> Iterator[str]:
    """Section of a table and of the tables in it."""
    keys = {name: info for name, info in _simple_keys(table).items() if name not in without}
    about = (table.__doc__ or "").strip().replace("\n    ", "\n")
    yield _section(header, about, keys, depth)
    for name, info in table_keys(table).items():
        for inner in inner_tables(info.annotation)[:1]:
            place = f"{path}.{name}"
            if is_mapping(info.annotation):
                yield _section(f"[{place}.NAME]", f"Any key of [{path}], for the {path} tier NAME.", {}, 3)
            elif name == "override" and path != "routing":
                own = {key: item for key, item in table_keys(inner).items() if key in inner.__annotations__}
                allowed = "any key of [nic] but mtu and any_mtu" if path == "nic" else f"any key of [{path}]"
                yield _section(f"[[{place}]]", f"{_sentence(inner.__doc__)} Besides these, {allowed}.", own, 3)
            else:
                yield from _table(f"[[{place}]]" if _is_list(info) else f"[{place}]", place, inner, depth=3)


def _section(header: str, about: str, keys: Mapping[str, FieldInfo], depth: int = 2) -> str:
    lines = [f"{'#' * depth} {header}", "", about]
    if keys:
        lines += ["", "| key | value | default | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{name}` | {_value_text(info)} | {_default_text(name, info)} | {_cell(info.description)} |"
            for name, info in keys.items()
        ]
    return "\n".join(lines) + "\n"


def _simple_keys(table: type[BaseModel]) -> dict[str, FieldInfo]:
    """Keys that hold no tables."""
    return {name: info for name, info in table_keys(table).items() if not inner_tables(info.annotation)}


def _is_list(info: FieldInfo) -> bool:
    return "tuple" in str(info.annotation)


def _sentence(text: str | None) -> str:
    text = (text or "").strip()
    return text if not text or text.endswith(".") else text[0].upper() + text[1:] + "."


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


def _value_text(info: FieldInfo) -> str:
    """What a key may hold."""
    quantity = quantity_of(info)
    choices = choices_of(info.annotation)
    if quantity is not None:
        noun = _NOUNS.get(quantity.unit, quantity.unit)
        if _is_list(info) and quantity.unit == "ps":
            return "two times"
        return " or ".join([noun, *(f"`{toml_value(word)}`" for word in quantity.words)])
    if choices:
        listed = ", ".join(f"`{toml_value(choice)}`" for choice in choices)
        return f"list of {listed}" if _is_list(info) else listed
    text = str(info.annotation)
    if "bool" in text:
        return "`true`, `false`"
    if "int" in text:
        return _range_text(info)
    if is_mapping(info.annotation):
        return "table"
    return ("list of names" if "..." in text else "two names") if _is_list(info) else "text"


def _range_text(info: FieldInfo) -> str:
    low, high = _limit(info, "ge"), _limit(info, "le")
    if low is None:
        return "whole number"
    if high is None or high == DEVICES_MAX:
        return f"whole number, {low} or more"
    return f"whole number, {low} to {'2^63 - 1' if high == 2**63 - 1 else high}"


def _limit(info: FieldInfo, name: str) -> Any:
    """Find a limit on a field, or on what is within `X | None`."""
    places = [*info.metadata]
    for argument in getattr(info.annotation, "__args__", ()):
        for item in getattr(argument, "__metadata__", ()):
            places += [item, *getattr(item, "metadata", ())]
    return next((value for item in places if (value := getattr(item, name, None)) is not None), None)


def _default_text(name: str, info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.default is PydanticUndefined or info.default is None:
        optional = "None" in str(info.annotation)
        return "" if optional else "8 x priority" if name == "dscp" else "by preset"
    if isinstance(info.default, tuple) and not info.default:
        return ""
    return f"`{toml_value(info.default)}`"


def _presets() -> str:
    names = list(DCQCN_PRESETS)
    about = 'Values of [nic.cc] for `kind = "dcqcn"`; what the file gives itself goes before.'
    lines = ["## DCQCN presets", "", about, ""]
    lines += [f"| key | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for key in DCQCN_PRESETS["paper"].values:
        cells = " | ".join(f"`{toml_value(DCQCN_PRESETS[name].values[key])}`" for name in names)
        lines.append(f"| `{key}` | {cells} |")
    for title, attribute in (("state machine", "machine"), ("notification", "notification")):
        lines.append(f"| {title} | {' | '.join(getattr(DCQCN_PRESETS[name], attribute) for name in names)} |")
    lines.append("")
    lines += [f"- `{name}`: {DCQCN_PRESETS[name].source}." for name in names]
    return "\n".join(lines) + "\n"


def _compatibility() -> str:
    lines = [
        '## compat = "ns3"',
        "",
        "Rules: docs/MODEL.md section 13. The setting also changes these defaults; what the file gives itself stays:",
        "",
        "| key | default |",
        "|---|---|",
    ]
    lines += [f"| `{key}` | `{toml_value(value)}` |" for key, value in _leaves(NS3_DEFAULTS)]
    lines += ["", 'There `headroom = "auto"` is 3 x rate x delay / 8.']
    return "\n".join(lines) + "\n"


def _leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _not_yet() -> str:
    things = list(UNSUPPORTED_KEYS.values())
    for values in UNSUPPORTED_VALUES.values():
        things += values.values()
    listed = "\n".join(f"- {thing}" for thing in sorted(set(things), key=str.casefold))
    return f"## Not supported yet\n\nKeys and values for these are refused by name:\n\n{listed}\n"


if __name__ == "__main__":
    sys.stdout.write(reference_page())
