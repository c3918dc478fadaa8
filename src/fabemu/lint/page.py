"""The page docs/CHECKS.md: ``python -m fabemu.lint.page > docs/CHECKS.md``."""

from __future__ import annotations

import sys
import textwrap

from fabemu.lint.catalogue import CATALOGUE, FAMILIES

_OPENING = """\
# What `fabemu check` looks for

`fabemu check scenario.toml` validates a scenario and tells what is worth knowing before a run or a purchase. Each
finding has a code, and `fabemu explain CODE` says what it means. Codes are stable: one never changes its meaning.

An **error** says that the scenario cannot do what it claims, such as a lossless class that may drop: `check` exits with
2. A **warning** is to be looked at before a result is trusted, a **note** is a fact of the fabric; with these alone
`check` exits with 0. Of findings with the same code the first three are shown and the others counted; `--all` shows
every one, and `--json` has them all. `fabemu run` prints errors and warnings first and runs all the same: an incident
that is to be reproduced is full of errors.

Rules look at the fabric as it is configured. Four of them also look at what a [[fault]] makes of it, from its start on
and even if it ends, and say when: FB103 at `pfc-off`, FB104 and FB105 at `priority-map`, FB101 (and FB201) at
`headroom`; FB301 to FB303 look at the routes after `link-down`, `flap` and `reboot`. The other kinds, such as `loss`,
`storm`, `slow-receiver` and `ecn-off`, are taken for what is to be studied: no rule is about them.

This page is made from the catalogue: `python -m fabemu.lint.page > docs/CHECKS.md`.
"""


def checks_page() -> str:
    """The whole page."""
    parts = [_OPENING]
    family = ""
    for rule in CATALOGUE.values():
        if rule.code[:3] != family:
            family = rule.code[:3]
            parts.append(f"## {FAMILIES[family]}\n")
        lines = [f"### {rule.code}: {rule.title}\n", f"*{rule.severity.capitalize()}.* {rule.meaning} {rule.reason}\n"]
        lines += [f"- {name}: {text}" for name, text in (("Formula", rule.formula), ("Source", rule.source)) if text]
        lines.append(f"- To fix it: {rule.remedy}")
        text = "\n".join(lines)
        parts.append("\n".join(_filled(line) for line in text.splitlines()) + "\n")
    return "\n".join(parts)


def _filled(line: str) -> str:
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(checks_page())
