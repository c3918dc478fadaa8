"""``fabemu health``: what an operator would be alerted to in a run, by incident."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabemu.cli import EXIT_FINE, EXIT_WORSE, talk
from fabemu.cli.path import UserPath
from fabemu.counted import counted

if TYPE_CHECKING:
    from fabemu.analysis.alarms import Alert, Thresholds
    from fabemu.analysis.health import Health
    from fabemu.layout import Section

_SHOWN = 12
"""Alerts of an incident that are shown with their figures."""


@click.command(
    name="health",
    epilog="\b\nExamples:\n  fabemu health scenario.run\n  fabemu health scenario.run --threshold pause_share=0.2\n"
    "  fabemu health scenario.run --fail-on critical\n  fabemu explain FH101",
)
@click.argument("run", metavar="RUN_DIR", type=UserPath())
@click.option(
    "--threshold",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="From when on something is worth an alert; repeatable. docs/HEALTH.md lists them.",
)
@click.option(
    "--fail-on", type=click.Choice(("warning", "critical")), help="Exit with 4 if any incident is as severe or more."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(run: Path, settings: tuple[str, ...], fail_on: str | None, as_json: bool) -> int:
    """Look through a run as the monitor of a fabric would, and join alerts of one root to incidents.

    The exit code is 0 whatever is found, unless --fail-on asks for 4; it is 2 if tables of a run that came to its end
    are damaged. `fabemu explain CODE` says what an alert means.
    """
    from fabemu.analysis.alarms import SEVERITIES
    from fabemu.analysis.health import examine
    from fabemu.errors import InputError
    from fabemu.result import load

    thresholds = _thresholds(settings)
    found = examine(load(run), thresholds)
    if as_json:
        document = {
            "incidents": [incident.to_dict() for incident in found.incidents],
            "notes": list(found.notes),
            "unchecked": list(found.unchecked),
            "damaged": list(found.damaged),
            "thresholds": asdict(thresholds),
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from fabemu.layout import show

        show(_sections(found), sys.stdout)
        for note in found.notes:
            talk(f"note: {note}")
    worst = -1 if fail_on is None else [str(name) for name in SEVERITIES].index(fail_on)
    bad = [item for item in found.incidents if SEVERITIES.index(item.severity) <= worst]
    if bad:
        talk(f"error: incidents that are {fail_on} or worse: {len(bad)}")
        return EXIT_WORSE
    if found.damaged:
        tables, their = ("table", "its") if len(found.damaged) == 1 else ("tables", "their")
        raise InputError(
            f"{run}: the {tables} {', '.join(found.damaged)} cannot be read to {their} end, so not all could be looked "
            "at; the notes say why: run the scenario again"
        )
    if fail_on is not None and found.unchecked:
        raise InputError(
            f"{run}: --fail-on {fail_on} cannot be judged: {', '.join(found.unchecked)} could not be looked for; "
            "the notes say what is missing"
        )
    return EXIT_FINE


def _thresholds(settings: tuple[str, ...]) -> Thresholds:
    """The thresholds with what the user set.

    Raises click.BadParameter for a name that is none, or a value that is no number from 0 on.
    """
    from fabemu.analysis.alarms import DEFAULTS, NAMES

    found = DEFAULTS
    for text in settings:
        name, mark, value = text.partition("=")
        if not mark or name not in NAMES:
            raise click.BadParameter(
                f"{text!r} is not NAME=VALUE with a name of {', '.join(NAMES)}", param_hint="--threshold"
            )
        kind = type(getattr(DEFAULTS, name))
        try:
            number = kind(value)
            if not 0 <= number < float("inf"):
                raise ValueError
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            raise click.BadParameter(f"{text!r}: {wanted} from 0 on is needed", param_hint="--threshold") from None
        found = replace(found, **{name: number})
    return found


def _sections(found: Health) -> list[Section]:
    from fabemu.layout import Section

    incidents, unchecked = found.incidents, ", ".join(found.unchecked)
    if not incidents:
        nothing = "Healthy: nothing to report"
        return [Section(f"Nothing found, but not all could be looked at: not {unchecked}" if unchecked else nothing)]
    severities = [incident.severity for incident in incidents]
    counts = ", ".join(f"{severities.count(name)} {name}" for name in dict.fromkeys(severities))
    sections = [Section(f"{counted(len(incidents), 'incident')}: {counts}")]
    for number, incident in enumerate(incidents, start=1):
        lines = [incident.sentence, *(_line(alert) for alert in incident.alerts[:_SHOWN])]
        rest = len(incident.alerts) - _SHOWN
        if rest > 0:
            lines.append(f"... and {counted(rest, 'more alert')}; --json has them all")
        title = f"{number}. {incident.severity}: {_title(incident.root)}"
        sections.append(Section(title, lines=lines, alarm=incident.severity == "critical"))
    if unchecked:
        sections.append(Section(f"not looked for: {unchecked}"))
    return sections


def _title(alert: Alert) -> str:
    from fabemu.analysis.alarms import ALARMS

    first, _, rest = ALARMS[alert.code].title.partition(" ")
    return f"{first.lower()} {rest}".strip()


def _line(alert: Alert) -> str:
    shown = [
        f"{name.removesuffix('_ps').replace('_', ' ')} {text}"
        for name, value in alert.figures.items()
        if (text := _figure(name, value))
    ]
    return f"{alert.code} {alert.severity} {alert.where}: {', '.join(shown)}"


def _figure(name: str, value: Any) -> str:
    from fabemu.units import round_time

    if isinstance(value, list):
        rest = f", ... ({len(value)})" if len(value) > 3 else ""
        return ", ".join(map(str, value[:3])) + rest
    if name.endswith("_ps"):
        return round_time(value)
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
