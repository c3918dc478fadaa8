"""The page docs/HEALTH.md: ``python -m fabemu.analysis.alarm_page > docs/HEALTH.md``."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import fields

from fabemu.analysis.alarms import ALARMS, FAMILIES, Thresholds

_OPENING = """\
# What `fabemu health` looks for

`fabemu health DIR` looks through a run as the monitor of a fabric would. What it finds are alerts, each with a code
that `fabemu explain CODE` explains; codes are stable. Alerts of one root are one incident: a storm, with the messages
that it held up, the frames that were dropped behind it, and the tail that came of it. Incidents come most severe first.

**Critical**: something is broken, or was lost. **Warning**: something cost time, and has a cause that can be removed.
**Info**: a fact that explains others. Some alerts are critical from a larger share on.

The exit code is 0 whatever is found, unless `--fail-on warning` or `--fail-on critical` asks for 4. Tables that a run
does not have are named, and the checks that need them left out; the notes say which. If not all could be looked at and
nothing was found, as in a run that was killed, `--fail-on` exits with 2: there is nothing to go by. A table that is
there but damaged, though the run came to its end, is exit code 2 without `--fail-on` too, after what was found.

This page is made from the catalogue: `python -m fabemu.analysis.alarm_page > docs/HEALTH.md`.
"""


def health_page() -> str:
    """The whole page."""
    parts = [_OPENING, "## Thresholds\n", "Each can be set: `--threshold pause_share=0.2`.\n", _thresholds()]
    family = ""
    for alarm in ALARMS.values():
        if alarm.code[:3] != family:
            family = alarm.code[:3]
            parts.append(f"## {FAMILIES[family]}\n")
        lines = [
            f"### {alarm.code}: {alarm.title}\n",
            f"*{alarm.severity.capitalize()}.* {alarm.meaning} {alarm.reason}\n",
        ]
        lines += [f"- {name}: {text}" for name, text in (("Formula", alarm.formula), ("Source", alarm.source)) if text]
        lines.append(f"- To fix it: {alarm.remedy}")
        parts.append("\n".join(_filled(line) for line in "\n".join(lines).splitlines()) + "\n")
    return "\n".join(parts)


def _thresholds() -> str:
    rows = [f"| `{item.name}` | {item.default:g} | {item.metadata['meaning']} |" for item in fields(Thresholds)]
    return "\n".join(("| threshold | default | meaning |", "|---|---|---|", *rows)) + "\n"


def _filled(line: str) -> str:
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(health_page())
