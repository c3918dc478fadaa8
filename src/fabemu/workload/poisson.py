"""Open-loop Poisson arrivals at a given load, with sizes from a distribution."""

from __future__ import annotations

import numpy as np

from fabemu.errors import InputError
from fabemu.scenario.workload import Poisson
from fabemu.workload.cdf import size_distribution
from fabemu.workload.context import WorkloadContext
from fabemu.workload.flow import FlowTable, flow_table

FLOWS_MAX = 50_000_000
"""A workload that would have more flows than this is refused before it fills the memory."""

_BLOCK = 1 << 16


def poisson_flows(table: Poisson, context: WorkloadContext) -> FlowTable:
    """Flows of a `poisson` workload.

    Each sender is a Poisson process of its own: it starts ``load x link rate / (8 x mean size)`` flows per second from
    `start` to `stop`, whatever became of those before. Hence it offers ``load x link rate`` of payload on average;
    headers come on top. The mean is that of the distribution in closed form. The receiver is drawn uniformly from the
    destinations other than the sender.

    The draws depend on the seed, the label and the hosts, not on other workloads; a later `stop` keeps all flows
    before.

    Raises
    ------
    ScenarioError
        A host is unknown or has no link, somebody has nobody to send to, or there would be too many flows.
    InputError
        The distribution cannot be read.
    """
    sources_key = "hosts" if table.sources is None else "sources"
    sources = context.select(sources_key, table.hosts if table.sources is None else table.sources)
    destinations_key = "hosts" if table.destinations is None else "destinations"
    destinations = context.select(destinations_key, table.hosts if table.destinations is None else table.destinations)
    if len(sources) == 0:
        raise context.error(sources_key, "no host has a link")
    if len(destinations) == 0:
        raise context.error(destinations_key, "no host has a link")
    rates = np.asarray(context.host_rate_bps)[sources].astype(np.float64)
    if not rates.all():
        unlinked = context.hosts.names[int(sources[np.argmin(rates)])]
        raise context.error(sources_key, f"host {unlinked} has no link, so that a load means nothing")
    # Position of every source among the destinations, to leave it out there.
    own = np.full(len(context.hosts), len(destinations), dtype=np.int64)
    own[destinations] = np.arange(len(destinations))
    choices = len(destinations) - (own[sources] < len(destinations))
    if not choices.all():
        alone = context.hosts.names[int(sources[np.argmin(choices)])]
        raise context.error(destinations_key, f"host {alone} has nobody to send to but itself")
    try:
        sizes = size_distribution(table.sizes, context.base_dir)
    except InputError as error:
        raise InputError(f"workload.{context.index}.sizes: {error}") from None

    stop_ps = table.stop if table.stop is not None else context.scenario.until
    if stop_ps is None:
        raise context.error("stop", "arrivals must end some time: give stop, or until for the run")
    flows_per_s = table.load * rates / (8 * sizes.mean_bytes)
    span_ps = max(0, stop_ps - table.start)
    expected = float(flows_per_s.sum()) * span_ps * 1e-12
    if expected > FLOWS_MAX:
        raise context.error(
            "stop", f"about {expected:.3g} flows would start until then; at most {FLOWS_MAX:,} are supported"
        )
    start_ps = _arrivals_ps(context, 1e12 / float(flows_per_s.sum()), span_ps)
    count = len(start_ps)
    # The superposition of the processes is one process, whose arrivals belong to a sender in proportion to its rate.
    share = np.cumsum(flows_per_s) / flows_per_s.sum()
    sender = np.minimum(np.searchsorted(share, context.draw("source").uniform(count), side="right"), len(sources) - 1)
    src = sources[sender]
    pick = context.draw("destination").integers(choices[sender], count)
    dst = destinations[pick + (pick >= own[src])]
    return flow_table(
        src,
        dst,
        sizes.sample(context.draw("size").uniform(count)),
        table.start + start_ps,
        class_id=context.class_id,
        verb=context.verb,
        label=context.label,
    )


def _arrivals_ps(context: WorkloadContext, mean_gap_ps: float, span_ps: int) -> np.ndarray:
    """Arrival times of one Poisson process within [0, span_ps): (n,) int64, ps."""
    draw = context.draw("gap")
    last_ps = 0
    blocks = [np.zeros(0, dtype=np.int64)]
    while last_ps < span_ps:
        # A gap beyond the span ends the process anyway, and a bounded one cannot overflow the sum.
        gaps = np.minimum(draw.gaps_ps(mean_gap_ps, _BLOCK), span_ps)
        times = last_ps + np.cumsum(gaps)
        blocks.append(times[times < span_ps])
        last_ps = int(times[-1])
    return np.concatenate(blocks)
