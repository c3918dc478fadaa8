"""``fabemu explain``: what a code of the linter means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict

import click

from fabemu.cli import EXIT_FINE


@click.command("explain")
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(code: str | None, as_json: bool) -> int:
    """Say what CODE means, why it matters, by which formula and source, and how to fix it; without CODE, list all.

    \b
    Examples:
      fabemu explain
      fabemu explain FB101
    """
    from fabemu.lint.catalogue import CATALOGUE, explanation, listing

    if code is None:
        rules = [asdict(rule) for rule in CATALOGUE.values()]
        click.echo(json.dumps(rules, indent=2, ensure_ascii=False) if as_json else listing())
        return EXIT_FINE
    rule = CATALOGUE.get(code.upper())
    if rule is None:
        near = _nearest(code.upper(), CATALOGUE)
        hint = f"; did you mean {near}?" if near else "; `fabemu explain` lists all"
        raise click.UsageError(f"there is no code {code!r}{hint}")
    click.echo(json.dumps(asdict(rule), indent=2, ensure_ascii=False) if as_json else explanation(rule))
    return EXIT_FINE


def _nearest(code: str, known: Iterable[str]) -> str | None:
    """The code of the nearest number, of the same family if there is one; None for what has no number."""
    digits = re.search(r"\d+$", code)
    if digits is None or len(digits[0]) > 4:
        return None
    family, number = f"FB{digits[0][0]}", int(digits[0])
    return min(known, key=lambda other: (not other.startswith(family), abs(int(other[2:]) - number), other))
