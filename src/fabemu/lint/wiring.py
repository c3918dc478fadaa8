"""Devices without a cable, and remarks of files that a scenario reads."""

from __future__ import annotations

import numpy as np

from fabemu.lint.finding import Finding, Rule
from fabemu.lint.subject import Subject

LONELY = Rule(
    code="FB902",
    severity="warning",
    title="device without a link",
    meaning="A host or switch of the fabric has no cable.",
    reason="It takes part in nothing; probably a line of the link list is missing.",
    formula="",
    source="",
    remedy="Add its links, or take it out of the fabric.",
)
FILE = Rule(
    code="FB903",
    severity="warning",
    title="remark about a file",
    meaning="A file that the scenario reads, such as a flow list, was understood, but something in it looks wrong.",
    reason="The run may not be the one that was meant.",
    formula="",
    source="",
    remedy="Look at the place named.",
)
RULES = (LONELY, FILE)


def lonely_devices(subject: Subject) -> list[Finding]:
    """FB902."""
    lonely = np.flatnonzero(np.diff(subject.plan.node_port_start) == 0).tolist()
    return [LONELY.at([subject.node(node) for node in lonely], "no link")] if lonely else []


def file_remarks(subject: Subject) -> list[Finding]:
    """FB903."""
    return [FILE.at((), text) for text in subject.compiled.flows.warnings]
