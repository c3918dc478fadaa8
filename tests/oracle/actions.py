"""What is done to the fabric at given times: links, routes, loss, PFC, ECN, class maps, headroom, storms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from fabemu.plan import (
    ACTION_ECN,
    ACTION_HEADROOM,
    ACTION_LINK_DOWN,
    ACTION_LINK_UP,
    ACTION_LOSS,
    ACTION_MAP,
    ACTION_PFC,
    ACTION_RECEIVER,
    ACTION_ROUTES,
    ACTION_STORM,
)
from tests.oracle.balance import divides_flows
from tests.oracle.nic import Nic
from tests.oracle.receiver import SlowReceiver
from tests.oracle.switch import Switch

if TYPE_CHECKING:
    from tests.oracle.device import Device, Port
    from tests.oracle.simulator import Simulator

FOREVER_PS = 2**62
OF_CLASSES = (ACTION_PFC, ACTION_ECN, ACTION_HEADROOM, ACTION_STORM)
"""Actions whose mask is a set of classes."""


def may_overtake(plan: SimpleNamespace) -> bool:
    """Whether something happens that lets packets of one QP and class overtake each other."""
    return divides_flows(plan) or any(kind in (ACTION_ROUTES, ACTION_MAP) for kind in plan.action_kind)


def bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


class Actions:
    """The actions of a plan, in its order."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.plan = simulator.plan
        self.next = 0
        assert self.plan.action_time_ps == sorted(self.plan.action_time_ps)
        self.performers = {
            ACTION_LINK_DOWN: self.link_down,
            ACTION_LINK_UP: self.link_up,
            ACTION_ROUTES: self.routes,
            ACTION_LOSS: self.loss,
            ACTION_PFC: self.pfc,
            ACTION_ECN: self.ecn,
            ACTION_MAP: self.class_map,
            ACTION_HEADROOM: self.headroom,
            ACTION_STORM: self.storm,
            ACTION_RECEIVER: self.receiver,
        }

    def next_time(self) -> int:
        return self.plan.action_time_ps[self.next] if self.next < len(self.plan.action_time_ps) else FOREVER_PS

    def perform(self, now: int) -> None:
        """All actions of this instant."""
        while self.next_time() == now:
            index, self.next = self.next, self.next + 1
            kind, target = self.plan.action_kind[index], self.plan.action_target[index]
            mask, value = self.plan.action_mask[index], self.plan.action_value[index]
            self.record(now, kind, target, mask, value)
            self.performers[kind](target, mask, value, now)

    def record(self, now: int, kind: int, target: int, mask: int, value: int) -> None:
        columns = {"value": value}
        if kind == ACTION_MAP:
            columns |= {"node": self.plan.host_count + target, "class_id": mask}
        elif kind != ACTION_ROUTES:
            columns |= {"node": self.plan.port_node[target], "port": target}
            if kind in OF_CLASSES and len(bits(mask)) == 1:
                columns["class_id"] = bits(mask)[0]
        self.simulator.record_event(now, kind, **columns)

    def port(self, target: int) -> tuple[Device, Port]:
        return self.simulator.devices[self.plan.port_node[target]], self.simulator.ports[target]

    def switch_port(self, target: int) -> tuple[Switch, Port]:
        device, port = self.port(target)
        assert isinstance(device, Switch)
        return device, port

    def lossless(self, mask: int) -> list[int]:
        return [class_id for class_id in bits(mask) if self.plan.class_lossless[class_id]]

    def link_down(self, target: int, mask: int, value: int, now: int) -> None:
        device, port = self.port(target)
        assert port.is_up, "a link goes down twice"
        port.is_up = False
        device.lose_in_flight(port, now)
        port.pause_until_ps = [min(until, now) for until in port.pause_until_ps]
        port.pfc.link_down(now)
        if port.credits:
            port.credits.link_down()
        device.flush(port, now)

    def link_up(self, target: int, mask: int, value: int, now: int) -> None:
        _, port = self.port(target)
        assert not port.is_up, "a link comes up twice"
        port.is_up = True
        port.up_ps = now
        if port.credits:
            port.credits.link_up()

    def routes(self, target: int, mask: int, value: int, now: int) -> None:
        rows = max(self.plan.node_route_row, default=-1) + 1
        assert 0 <= value < self.plan.route_epochs
        self.simulator.route_base = value * rows * self.plan.group_count

    def loss(self, target: int, mask: int, value: int, now: int) -> None:
        _, port = self.port(target)
        for kind in bits(mask):
            port.loss_rows[kind] = value

    def pfc(self, target: int, mask: int, value: int, now: int) -> None:
        _, port = self.port(target)
        for class_id in bits(mask):
            port.pfc_send[class_id] = port.pfc_obey[class_id] = value
            if not value:
                port.pause_until_ps[class_id] = min(port.pause_until_ps[class_id], now)
                port.pfc.switch_off(class_id, now)

    def ecn(self, target: int, mask: int, value: int, now: int) -> None:
        device, port = self.switch_port(target)
        for class_id in bits(mask):
            device.queues[port.index][class_id].may_mark = bool(value)

    def class_map(self, target: int, mask: int, value: int, now: int) -> None:
        switch = self.simulator.devices[self.plan.host_count + target]
        assert isinstance(switch, Switch)
        switch.class_map[mask] = value
        switch.has_mapped |= value != mask

    def headroom(self, target: int, mask: int, value: int, now: int) -> None:
        device, port = self.switch_port(target)
        for class_id in bits(mask):
            group = device.groups[port.index][class_id]
            group.headroom = value
            device.buffer += max(0, value - group.headroom_greatest)
            group.headroom_greatest = max(group.headroom_greatest, value)

    def storm(self, target: int, mask: int, value: int, now: int) -> None:
        for class_id in self.lossless(mask):
            self.slow_receiver(target).storm(class_id, bool(value), now)

    def receiver(self, target: int, mask: int, value: int, now: int) -> None:
        self.slow_receiver(target).set_rate(value, now)

    def slow_receiver(self, target: int) -> SlowReceiver:
        nic, port = self.port(target)
        assert isinstance(nic, Nic)
        return nic.slow_receivers[port.index]
