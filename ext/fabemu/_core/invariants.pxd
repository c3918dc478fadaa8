"""Invariants of docs/MODEL.md 14, recomputed from the state itself.

Owns      invariants_hold.
Invariant it changes nothing, so it can be asked at any time between two steps.
"""
from .types cimport int32_t, int64_t, uint32_t, ps_t, KINDS_OF_LINKS, KIND_MASK
from .mmu cimport mmu_charged
from .packet cimport packet_t
from .plan cimport plan_t
from .queue cimport queue_after
from .state cimport engine_t, lane_t, queue_t, worker_t


cdef inline list invariants_hold(engine_t* e, ps_t now_ps, bint has_drained, bint lossless_guaranteed):
    """(name, whether it holds, what was found) of each."""
    cdef worker_t* w = e.worker
    cdef plan_t* p = &e.plan
    cdef int64_t on_links = 0, on_links_bytes = 0, queued = 0, queued_bytes = 0, pfc_on_links = 0
    cdef int32_t port, klass, node
    cdef uint32_t position
    cdef const packet_t* packet
    cdef queue_t* queue
    cdef queue_t* pg
    cdef const lane_t* lane
    cdef const lane_t* sender
    cdef int64_t total, used, pool, buffer_bytes
    cdef ps_t horizon = max(now_ps, e.now_ps)
    wrong_queue = []
    wrong_pg = []
    wrong_pool = []
    over_buffer = []
    too_busy = []
    standing = []
    wrong_credits = []
    negative = []
    cdef list held = [0] * (p.port_count * p.class_count)
    for port in range(p.port_count):
        position = e.ports[port].head
        while position != e.ports[port].tail:
            packet = &e.ports[port].ring[position & e.ports[port].mask]
            if (KINDS_OF_LINKS >> (packet.kind & KIND_MASK)) & 1:
                pfc_on_links += 1
            else:
                on_links += 1
                on_links_bytes += packet.size
            position += 1
        if e.ports[port].busy_ps > max(horizon, e.ports[port].busy_until_ps):
            too_busy.append(port)
        for klass in range(p.class_count):
            queue = &e.queues[port * p.class_count + klass]
            total = 0
            packet = queue.first
            while packet != NULL:
                total += packet.size
                queued += 1
                node = e.ports[port].node
                if node >= p.host_count:
                    held[(p.node_port_start[node] + packet.ingress) * p.class_count + klass] += (
                        mmu_charged(&e.switches[node - p.host_count], packet.size))
                packet = queue_after(queue, packet)
            queued_bytes += total
            if total != queue.bytes:
                wrong_queue.append((port, klass))
        if port < e.host_port_count and e.receivers != NULL:
            queued += e.receivers[port].tail - e.receivers[port].head
            queued_bytes += e.receivers[port].bytes
    for node in range(p.host_count, p.node_count):
        used = 0
        pool = 0
        for port in range(p.node_port_start[node], p.node_port_start[node + 1]):
            if e.ports[port].xoff_mask:
                standing.append(port)
            for klass in range(p.class_count):
                pg = &e.queues[port * p.class_count + klass]
                total = pg.reserved_used_bytes + pg.shared_used_bytes + pg.headroom_used_bytes
                if total != held[port * p.class_count + klass]:
                    wrong_pg.append((port, klass))
                if min(pg.reserved_used_bytes, pg.shared_used_bytes, pg.headroom_used_bytes) < 0:
                    negative.append((port, klass))
                used += total
                if p.ns3_buffer:
                    pool += max(0, pg.shared_used_bytes - pg.reserved_bytes)
                else:
                    pool += pg.shared_used_bytes
        if pool != e.switches[node - p.host_count].shared_used_bytes:
            wrong_pool.append(node)
        buffer_bytes = p.switch_buffer_bytes[node - p.host_count]
        if e.headroom_added_bytes != NULL:
            buffer_bytes += e.headroom_added_bytes[node - p.host_count]
        if used > buffer_bytes:
            over_buffer.append(node)
    for port in range(p.port_count if e.lanes != NULL else 0):
        if not p.port_credit[port]:
            continue
        for klass in range(p.class_count):
            lane = &e.lanes[<int64_t>port * p.class_count + klass]
            sender = &e.lanes[<int64_t>e.plan.port_peer[port] * p.class_count + klass]
            if not (0 <= sender.sent - lane.freed <= lane.capacity and sender.known <= lane.freed):
                wrong_credits.append((port, klass))
    drained = on_links + queued == 0
    return [
        ("packets_conserved", w.sent == w.delivered + w.dropped + on_links + queued,
         f"sent {w.sent}, delivered {w.delivered}, dropped {w.dropped}, on links {on_links}, queued {queued}"),
        ("bytes_conserved", w.sent_bytes == w.delivered_bytes + w.dropped_bytes + on_links_bytes + queued_bytes,
         f"sent {w.sent_bytes}, delivered {w.delivered_bytes}, dropped {w.dropped_bytes}, "
         f"on links {on_links_bytes}, queued {queued_bytes}"),
        ("frames_on_links", w.link_sent == w.link_received + on_links + pfc_on_links,
         f"put on links {w.link_sent}, received {w.link_received}, on links {on_links + pfc_on_links}"),
        ("queue_bytes", not wrong_queue, f"(port, class) that differ: {wrong_queue[:4]}"),
        ("buffer_counters", not wrong_pg, f"(port, class) that differ: {wrong_pg[:4]}"),
        ("shared_pool", not wrong_pool, f"switches that differ: {wrong_pool[:4]}"),
        ("no_negative_counter", not negative, f"(port, class) below zero: {negative[:4]}"),
        ("buffer_size", not over_buffer, f"switches above their buffer: {over_buffer[:4]}"),
        ("link_rate", not too_busy, f"ports busier than time: {too_busy[:4]}"),
        ("credits", not wrong_credits, f"(port, class) with more credits than buffer: {wrong_credits[:4]}"),
        ("pauses_balanced", not drained or not standing or not has_drained,
         f"ports with XOFF after the fabric drained: {standing[:4]}"),
        ("lossless", not lossless_guaranteed or w.drops[0] == 0,
         f"{w.drops[0]} headroom_full drops, every headroom at its bound: {lossless_guaranteed}"),
    ]
