"""What a generator needs to know besides its own table of the scenario."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fabemu.deferred import dataclass
from fabemu.errors import Problem, ScenarioError
from fabemu.plan import NONE
from fabemu.workload.draw import Draw
from fabemu.workload.hosts import HostNames, SelectorError

if TYPE_CHECKING:
    from fabemu.scenario.job import Job
    from fabemu.scenario.model import Scenario
    from fabemu.topology.cable import Fabric

VERBS = ("write", "send", "read")
"""Names of the verbs, by VERB_* of `fabemu.plan`."""


@dataclass(frozen=True, eq=False)
class WorkloadContext:
    """The surroundings of one workload.

    Attributes
    ----------
    scenario
        The whole scenario.
    index
        Position of the workload in it.
    hosts
        The fabric's hosts by name.
    host_rate_bps
        (H,) int64, bit/s, rate of all links of each host; 0 for a host without a link.
    base_dir
        Directory to which paths are relative.
    draw_label, occurrence
        Key of the random draws, with the seed of the scenario.
    fabric
        Devices and cables, and which hosts share a server.
    job_hosts
        (R,) int64, hosts of the workload's job in the order of its ranks; None if it has no job.
    """

    scenario: Scenario
    index: int
    hosts: HostNames
    host_rate_bps: np.ndarray
    base_dir: Path
    draw_label: str
    occurrence: int
    fabric: Fabric
    job_hosts: np.ndarray | None = None

    @property
    def label(self) -> str:
        """Label of the workload in traces."""
        label = self.scenario.workload[self.index].label
        return self.draw_label if label is None else label

    @property
    def class_id(self) -> int:
        """Class of the workload's flows, in served order."""
        name = self.scenario.workload[self.index].class_name
        return self.scenario.class_id(self.scenario.default_class.name if name is None else name)

    @property
    def verb(self) -> int:
        """VERB_* of the workload's flows."""
        return VERBS.index(self.scenario.workload[self.index].verb)

    @property
    def job(self) -> Job | None:
        """The workload's job."""
        name = self.scenario.workload[self.index].job
        return next((job for job in self.scenario.job if job.name == name), None)

    def slowdown(self, hosts: np.ndarray) -> np.ndarray | None:
        """(n,) how many times as long each of these hosts computes, by the job's stragglers; None: all are alike."""
        job = self.job
        if job is None or self.job_hosts is None or not job.straggler:
            return None
        factor = np.ones(len(self.hosts))
        for item in job.straggler:
            factor[self.job_hosts[item.rank]] = float(item.slowdown)
        return factor[hosts]

    def draw(self, purpose: str) -> Draw:
        """Stream of random draws of this workload."""
        return Draw(self.scenario.seed, self.draw_label, self.occurrence, purpose)

    def error(self, key: str, message: str, value: str | None = None) -> ScenarioError:
        """Error in a key of the workload."""
        path = f"workload.{self.index}" + (f".{key}" if key else "")
        return ScenarioError(Problem("", path, message, value))

    def select(self, key: str, selector: str | Sequence[str]) -> np.ndarray:
        """Ids of the hosts that the value of `key` names: (n,) int64.

        "all" means all hosts of the workload's job, or without one all that have a link.

        Raises
        ------
        ScenarioError
            The value names something that is no host, or a host twice.
        """
        if selector == "all" and "all" not in self.hosts.names:
            return self.linked_hosts() if self.job_hosts is None else self.job_hosts
        try:
            return self.hosts.select(selector)
        except SelectorError as error:
            raise self.error(key, str(error)) from None

    def ranks(self, selector: str | Sequence[str], *, gpus: bool = True) -> np.ndarray:
        """Ids of the hosts that the key `hosts` names, in the order of their ranks: (R,) int64.

        "all" means all hosts of the job, or without one all that have a link, of `gpus` no storage and no frontend.

        Raises
        ------
        ScenarioError
            As `select`; or a host is not of the workload's job.
        """
        chosen = self.select("hosts", selector)
        if self.job_hosts is not None:
            outside = chosen[~np.isin(chosen, self.job_hosts)]
            if len(outside):
                name = self.hosts.names[int(outside[0])]
                raise self.error("hosts", f'host "{name}" is not of job "{self.job.name if self.job else ""}"')
        elif gpus and selector == "all" and (self.fabric.host_node != NONE).any():
            chosen = chosen[self.fabric.host_node[chosen] != NONE]
        return chosen

    def linked_hosts(self) -> np.ndarray:
        """Ids of all hosts that have a link: (n,) int64."""
        return np.flatnonzero(np.asarray(self.host_rate_bps) > 0)
