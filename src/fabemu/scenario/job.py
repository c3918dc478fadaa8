"""Scenario tables of jobs: which GPUs belong together, from when on, and which of them are slow."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from fabemu.scenario.fabric import close_to
from fabemu.scenario.quantity import NOT_PRINTABLE, Count, HostSet, Ratio, Text, Time, is_printable
from fabemu.scenario.table import Broken, Table, optional


class Straggler(Table):
    """A rank that computes more slowly than the others."""

    rank: Annotated[int, Strict(), Field(ge=0)] = Field(description="rank of the job, from 0")
    slowdown: Ratio = Field(description="its computations take so many times as long; at least 1")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.slowdown < 1:
            yield ("slowdown",), "must be at least 1: the others set the pace"


class Job(Table):
    """A set of GPUs that work together, one rank each. Workloads name it with job = "..."."""

    name: Text = Field(description="its name")
    ranks: Count | None = optional(None, description="number of GPUs, placed by `placement`; or give hosts")
    hosts: HostSet | None = optional(None, description="the GPUs, in the order of the ranks; instead of ranks")
    placement: Literal["packed", "spread", "random", "rail"] = optional(
        "packed",
        description="of GPUs that no earlier job has: packed: node by node; spread: one of every node, then the next of"
        " every node; rail: rail by rail; random: drawn from the seed, ranks in the order of the fabric",
    )
    start: Time = optional("0us", description="the job arrives: its workloads count from here")
    straggler: tuple[Straggler, ...] = optional((), description="ranks that compute slowly")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if (self.ranks is None) == (self.hosts is None):
            yield (), 'give one of "ranks" (how many GPUs) and "hosts" (which)'
        if not is_printable(self.name):
            yield ("name",), NOT_PRINTABLE
        seen: set[int] = set()
        for index, item in enumerate(self.straggler):
            if self.ranks is not None and item.rank >= self.ranks:
                yield ("straggler", index, "rank"), f"there are ranks 0 to {self.ranks - 1}"
            if item.rank in seen:
                yield ("straggler", index, "rank"), f"rank {item.rank} is listed twice"
            seen.add(item.rank)


def job_rules(parts: Mapping[str, Any], workloads: Mapping[int, Any]) -> Iterator[Broken]:
    """Yield what is wrong between jobs and workloads; arguments as of `scenario_rules`."""
    jobs = parts.get("job")
    if jobs is None:
        return
    names = [item.name for item in jobs]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield ("job", index, "name"), "two jobs cannot have the same name"
    owner: dict[str, str | None] = {}
    used = {item.job for item in workloads.values()}
    for index, item in workloads.items():
        if item.job is not None and item.job not in names:
            hint = close_to(item.job, names) or ("; there are no [[job]] tables" if not names else "")
            yield ("workload", index, "job"), f'there is no job "{item.job}"{hint}'
        if item.label is not None and owner.setdefault(item.label, item.job) != item.job:
            yield ("workload", index, "label"), "workloads of different jobs need different labels"
    for index, name in enumerate(names):
        if workloads and name not in used:
            yield ("job", index, "name"), f'no workload has job = "{name}"'
