"""Workloads: from the scenario's tables to one table of flows."""

from __future__ import annotations

from fabemu.workload.cdf import SizeDistribution, size_distribution
from fabemu.workload.compile import compile_workload
from fabemu.workload.flow import FlowTable

__all__ = ["FlowTable", "SizeDistribution", "compile_workload", "size_distribution"]
