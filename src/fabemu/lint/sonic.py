"""The linter for SONiC: one switch's config_db.json, on its own."""

from __future__ import annotations

from pathlib import Path

from fabemu.importers.sonic_lookup import Lookup, look_up, read_lookup
from fabemu.importers.sonic_switch import SonicSwitch, read_switch
from fabemu.lint import sonic_buffers, sonic_marking, sonic_priorities, sonic_values, sonic_watchdog
from fabemu.lint.finding import SEVERITIES, Finding

RULES = (
    *sonic_values.RULES,
    *sonic_buffers.RULES,
    *sonic_marking.RULES,
    *sonic_priorities.RULES,
    *sonic_watchdog.RULES,
)


def lint_sonic(path: Path, lookup_path: Path | None = None) -> list[Finding]:
    """Check the configuration of one switch.

    Parameters
    ----------
    path
        Its config_db.json.
    lookup_path
        Its pg_profile_lookup.ini, for the profiles that the switch makes itself.

    Returns
    -------
    list
        As of `lint_switch`.

    Raises
    ------
    InputError
        A file cannot be read, or is not what it should be.
    """
    switch = read_switch(path)
    lookup = None if lookup_path is None else read_lookup(lookup_path)
    if lookup is not None:
        look_up(switch, lookup)
    return lint_switch(switch, lookup)


def lint_switch(switch: SonicSwitch, lookup: Lookup | None) -> list[Finding]:
    """Check one switch that was read.

    Parameters
    ----------
    switch
        Its profiles looked up, if there is a lookup file.
    lookup
        That file.

    Returns
    -------
    list
        What was found, most severe first, then by code; places are file, line and key.
    """
    found = [
        *sonic_values.check_values(switch),
        *sonic_buffers.check_buffers(switch, lookup),
        *sonic_marking.check_marking(switch),
        *sonic_priorities.check_priorities(switch),
        *sonic_watchdog.check_watchdog(switch),
    ]
    return sorted(found, key=lambda finding: (SEVERITIES.index(finding.severity), finding.code))
