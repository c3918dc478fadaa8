"""Settings that a scenario states and nothing reads, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fabemu.lint.finding import Finding, Rule
from fabemu.lint.subject import Subject
from fabemu.scenario.device import CongestionControl, Link, Switch
from fabemu.scenario.fault import Flap, LinkDown, Reboot, Routing, SlowReceiver
from fabemu.scenario.incident import Receiver, Watchdog
from fabemu.scenario.model import Scenario
from fabemu.scenario.workload import Incast, Permutation
from fabemu.units import parse_time_ps

_PERIOD_PS = parse_time_ps(Incast.model_fields["period"].default)
_NS3 = {
    ("latency",): 'switches of compat = "ns3" have no pipeline delay',
    ("pfc", "response_delay"): 'PFC frames of compat = "ns3" act when they arrive',
    ("pfc", "quanta"): 'pauses of compat = "ns3" last until XON',
    ("lossy", "egress_alpha"): 'the buffer rule of compat = "ns3" has no egress limit',
}
_PRESET: dict[str, dict[str, str]] = {
    "paper": {
        "decrease_timer": 'preset = "paper" cuts the rate at every CNP',
        "min_dec_fac": 'preset = "paper" puts no bound on one decrease',
        "clamp_target": 'preset = "paper" always sets the target to the rate before the cut',
    },
    "connectx": {},
    "ns3": {"cnp_interval": 'preset = "ns3" echoes marks on ACKs and sends no CNP'},
}


NO_EFFECT = Rule(
    code="FB901",
    severity="warning",
    title="setting without effect",
    meaning="A key was set away from its default, and nothing reads it.",
    reason="Whoever set it expects something of it; the result does not show what they think it shows.",
    formula="",
    source="",
    remedy="Take it out, or change what keeps it from having an effect.",
)
RULES = (NO_EFFECT,)


def without_effect(subject: Subject) -> list[Finding]:
    """FB901."""
    scenario = subject.scenario
    found = [*_credits(scenario), *_incidents(scenario), *_idle_watchdog(subject)]
    found += [*_nic(scenario), *_workloads(scenario)]
    if scenario.compat == "ns3":
        found = [*_classes(scenario), *_switch(scenario), *found]
    return [NO_EFFECT.at(key, f"has no effect: {reason}") for key, reason in found]


def _classes(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for index, item in enumerate(scenario.classes):
        if item.ack_class not in ("same", item.name):
            yield f"class.{index}.ack_class", 'compat = "ns3" keeps ACKs in the class of their data'


def _switch(scenario: Scenario) -> Iterator[tuple[str, str]]:
    default = Switch()
    for place, over in _tables(scenario.switch, "switch"):
        for path, reason in _NS3.items():
            if _value(over, path) not in (None, _value(default, path)):
                yield ".".join((place, *path)), reason


def _tables(table: Any, name: str) -> Iterator[tuple[str, Any]]:
    """[link] or [switch], its tiers and its overrides, each with its key path."""
    yield name, table
    yield from ((f"{name}.tier.{tier}", over) for tier, over in table.tier.items())
    yield from ((f"{name}.override.{index}", over) for index, over in enumerate(table.override))


def _changed(table: Any, default: Any) -> Iterator[str]:
    """Keys of a table, whole or partial, that are set away from their defaults."""
    if table is not None:
        for key in type(default).model_fields:
            if getattr(table, key) not in (None, getattr(default, key)):
                yield key


def _credits(scenario: Scenario) -> Iterator[tuple[str, str]]:
    places = list(_tables(scenario.link, "link"))
    if any(table.flow_control == "credit" for _, table in places):
        return
    for place, table in places:
        for key in _changed(table, Link()):
            if key.startswith("credit_"):
                yield f"{place}.{key}", 'no link has flow_control = "credit"'


def _incidents(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Receivers without a fault that makes them slow, watchdogs that are off, routing that need not react."""
    if not any(isinstance(fault, SlowReceiver) for fault in scenario.fault):
        places = [("nic", scenario.nic.receiver)]
        places += [(f"nic.override.{index}", over.receiver) for index, over in enumerate(scenario.nic.override)]
        for place, table in places:
            for key in _changed(table, Receiver()):
                yield f"{place}.receiver.{key}", "only a [[fault]] of kind slow-receiver fills that buffer"
    dogs = [(place, table.watchdog) for place, table in _tables(scenario.switch, "switch")]
    # Who writes "off" knows that there is none.
    if not any(dog is not None and "detection_time" in dog.model_fields_set for _, dog in dogs):
        for place, dog in dogs:
            for key in _changed(dog, Watchdog()):
                yield f"{place}.watchdog.{key}", "there is no watchdog without a detection_time"
    if not any(isinstance(fault, (Flap, LinkDown, Reboot)) for fault in scenario.fault):
        for key in _changed(scenario.routing, Routing()):
            if key != "override":
                yield f"routing.{key}", "no link goes down"


def _idle_watchdog(subject: Subject) -> Iterator[tuple[str, str]]:
    plan = subject.plan
    watched = plan.port_watchdog != 0
    if watched.any() and not subject.lossless.any():
        yield "switch.watchdog", "there is no lossless class"
    elif watched.any() and plan.port_credit[watched].all():
        yield "switch.watchdog", "all ports that it watches have credits, where nothing is paused"


def _value(table: Any, path: tuple[str, ...]) -> Any:
    """Value at a key path; None where a partial table says nothing."""
    for key in path:
        table = None if table is None else getattr(table, key)
    return table


def _nic(scenario: Scenario) -> Iterator[tuple[str, str]]:
    overrides = scenario.nic.override
    places: list[tuple[str, Any, CongestionControl]] = [("nic", scenario.nic, scenario.nic.cc)]
    places += [(f"nic.override.{index}", over, scenario.nic_for(over.name).cc) for index, over in enumerate(overrides)]
    # An override of the kind alone takes the rate of [nic.cc].
    any_fixed = any(cc.kind == "fixed" for _, _, cc in places)
    for place, table, cc in places:
        if table.window not in (None, "none") and table.window < scenario.nic.mtu:
            yield f"{place}.window", f"it is below nic.mtu = {scenario.nic.mtu}, and one packet may always be sent"
        given = table.cc
        if given is None:
            continue
        if given.rate is not None and cc.kind != "fixed" and not (place == "nic" and any_fixed):
            yield f"{place}.cc.rate", f'it is the rate of kind = "fixed", and this one is "{cc.kind}"'
        default = CongestionControl(preset=cc.preset)
        for key, reason in _PRESET[cc.preset].items():
            if getattr(given, key) not in (None, getattr(default, key)):
                yield f"{place}.cc.{key}", reason


def _workloads(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for index, item in enumerate(scenario.workload):
        if isinstance(item, Permutation) and item.pattern == "random" and item.shift != 1:
            yield f"workload.{index}.shift", 'it belongs to pattern = "shift"'
        if isinstance(item, Incast) and item.waves == 1 and item.period != _PERIOD_PS:
            yield f"workload.{index}.period", "there is one wave"
