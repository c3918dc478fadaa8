"""The page docs/TRACES.md, made from the table schemas.

``python -m fabemu.trace_reference > docs/TRACES.md`` writes it anew.
"""

from __future__ import annotations

from fabemu.trace import ENUMS, SCHEMA_VERSION, TABLES, Column, arrow_type, is_dictionary

_HEAD = """\
# Traces

<!-- Made by `python -m fabemu.trace_reference`; change src/fabemu/trace.py instead. -->

A run directory holds

| file | what |
|---|---|
| `run.json` | status, seed, version, digests, seconds, memory, totals, invariants, findings, resolved scenario |
| `scenario.toml` | the scenario as resolved; `fabemu run DIR/scenario.toml` does the same run again |
| `inputs/` | copies of the files that the scenario reads, if any |
| `<table>.arrow` | one Arrow IPC file per table, described below |

Which tables are written is said by `tables` under `[trace]` in the scenario, or by `--trace` on the command line:
`off` (none), `flows`, `default` (flows, ports, pauses, drops, events), `budget` (these, and of packets
what hosts send and the last packet of each message at every switch), `packets` (these and all packets).

The files are Arrow IPC (Feather version 2), LZ4 compressed: `pandas.read_feather`, `polars.read_ipc`, DuckDB and
`pyarrow.feather.read_table` open them as they are. `fabemu.load(DIR)` gives the tables as `run.flows`, `run.ports`, ...
and also reads what a killed run left behind, up to its last complete batch.

- Times are int64 picoseconds since the start of the run and end in `_ps`.
- Names (hosts, ports, classes, causes) are dictionary-encoded strings. A port is called after what it connects:
  `leaf0->spine1`, with `#0`, `#1`, ... where several cables join the same two devices.
- What did not happen is null: `receiver_done_ps` of an unfinished message, `egress_port` of a frame without a route.
- Every column carries its `unit` and `meaning` as field metadata. The schema metadata has `fabemu.table`,
  `fabemu.schema_version`, `fabemu.plan_digest`, `fabemu.seed` and `fabemu.version`.
- The same scenario, seed and version give the same bytes. Only `run.json` holds wall-clock facts.
"""


def _type_name(column: Column) -> str:
    return "name" if is_dictionary(column) else str(arrow_type(column))


def traces_page() -> str:
    """Text of docs/TRACES.md."""
    parts = [_HEAD, f"\nSchema version {SCHEMA_VERSION}.\n"]
    for table in TABLES.values():
        parts.append(f"\n## {table.name}\n\n{table.meaning}\n\n| column | type | unit | meaning |\n|---|---|---|---|\n")
        for column in table.columns:
            null = "; may be null" if column.nullable else ""
            parts.append(f"| `{column.name}` | {_type_name(column)}{null} | {column.unit} | {column.meaning} |\n")
    parts.append("\n## Values of the fixed names\n\n| name | values |\n|---|---|\n")
    for name, values in ENUMS.items():
        parts.append(f"| {name.replace('_', ' ')} | {', '.join(f'`{value}`' for value in values)} |\n")
    return "".join(parts)


if __name__ == "__main__":
    print(traces_page(), end="")
