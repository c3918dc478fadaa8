"""``fabemu schema``: JSON schema of scenario files."""

from __future__ import annotations

import json

import click

from fabemu.cli import EXIT_FINE


@click.command("schema")
def command() -> int:
    """Print the JSON schema of scenario files, for completion and checks in editors.

    \b
    Example:
      fabemu schema > fabemu.schema.json
    """
    from fabemu.scenario import Scenario

    click.echo(json.dumps(Scenario.model_json_schema(by_alias=True), indent=2, ensure_ascii=False))
    return EXIT_FINE
