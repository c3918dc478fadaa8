"""``fabemu explain``: what a code of the linter or of the health checks means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fabemu.cli import EXIT_FINE

if TYPE_CHECKING:
    from fabemu.analysis.alarms import Alarm
    from fabemu.lint.finding import Rule


@click.command("explain")
@click.argument("codes", metavar="[CODE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(codes: tuple[str, ...], as_json: bool) -> int:
    """Say what each CODE means, why it matters, by which formula and source, and how to fix it; without CODE, list all.

    \b
    Examples:
      fabemu explain
      fabemu explain FB101
      fabemu explain FB201 FH101
    """
    from fabemu.analysis.alarms import ALARMS
    from fabemu.lint.catalogue import CATALOGUE, explanation, listing

    known: dict[str, Rule | Alarm] = {**CATALOGUE, **ALARMS}
    if not codes:
        rules = [asdict(rule) for rule in known.values()]
        click.echo(json.dumps(rules, indent=2, ensure_ascii=False) if as_json else listing(known.values()))
        return EXIT_FINE
    found = []
    for code in codes:
        rule = known.get(code.upper())
        if rule is None:
            near = _nearest(code.upper(), known)
            hint = f"; did you mean {near}?" if near else "; `fabemu explain` lists all"
            raise click.UsageError(f"there is no code {code!r}{hint}")
        found.append(rule)
    if as_json:
        shown = asdict(found[0]) if len(found) == 1 else [asdict(rule) for rule in found]
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        click.echo("\n\n\n".join(map(explanation, found)))
    return EXIT_FINE


def _nearest(code: str, known: Iterable[str]) -> str | None:
    """The code of the nearest number, of the same family if there is one; None for what has no number."""
    digits = re.search(r"\d+$", code)
    if digits is None or len(digits[0]) > 4:
        return None
    kind = "FH" if code.startswith("FH") else "FB"
    family, number = f"{kind}{digits[0][0]}", int(digits[0])
    known = [other for other in known if other.startswith(kind)]
    return min(known, key=lambda other: (not other.startswith(family), abs(int(other[2:]) - number), other))
