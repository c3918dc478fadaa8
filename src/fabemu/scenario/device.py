"""Scenario tables of frames, links, switches and NICs, with their tiers and overrides."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, Strict, model_validator

from fabemu.scenario.fabric import delay_of_length, length_rules
from fabemu.scenario.incident import Receiver, Watchdog
from fabemu.scenario.presets import DCQCN_PRESETS, DcqcnPreset
from fabemu.scenario.quantity import (
    Alpha,
    AlphaOrAuto,
    AutoDurationOrOff,
    CellSize,
    Duration,
    Flag,
    HashSeed,
    Length,
    Mtu,
    PositiveSize,
    Probability,
    Rate,
    Size,
    Size32,
    SizeOrAuto,
    SizeOrNone,
    Text,
    Time,
    Weight,
    named,
)
from fabemu.scenario.table import Broken, PartialTable, SelfOverlaid, Table, exclusive_rules, optional, partial
from fabemu.units import format_bytes, format_length, format_rate

IB_MTUS = (256, 512, 1024, 2048, 4096)
"""Path MTUs of InfiniBand, bytes of payload."""

KMAX_LIMIT_BYTES = 2**31
"""ECN thresholds stay below this, so that the marking test fits 64 bits."""

RATE_MIN_LIMIT_BPS = 1_000
"""Below this, the gap after one packet is more than half a minute."""

FROM_PRESET: Any = None
"""Default of a key that the preset gives; never the value of a valid table."""

FRAME_MAX_BYTES = 65_535
VLAN_BYTES = 4
VXLAN_BYTES = 50
"""Outer Ethernet 14, IPv4 20, UDP 8, VXLAN 8."""


class Frames(Table):
    """Sizes of frames, Ethernet header to FCS. The defaults are RoCEv2 over untagged IPv4."""

    header: Size = optional(
        "62B",
        description="all of a data frame but payload and RETH: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4, FCS 4",
    )
    reth: Size = optional("16B", description="more in the first packet of a WRITE: the RETH")
    aeth: Size = optional("4B", description="more in the first and the last packet of a READ's answer: the AETH")
    ack: Size = optional("66B", description="ACK or NAK frame")
    cnp: Size = optional("78B", description="congestion notification packet")
    read: Size = optional("78B", description="READ request: all of a data frame but payload, with a RETH")
    pfc: PositiveSize = optional("64B", description="PFC frame")
    wire_overhead: Size = optional("20B", description="preamble, SFD and inter-frame gap of every frame on the wire")
    minimum: Size = optional("64B", description="no frame is shorter")
    pad: PositiveSize = optional("4B", description="payloads are padded to a multiple of this")
    vlan: Flag = optional(False, description="all frames but those of the link itself carry a VLAN tag: 4 B more")
    vxlan: Flag = optional(False, description="all frames but those of the link itself are carried in VXLAN: 50 B more")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        for key in ("header", "reth", "aeth", "ack", "cnp", "read", "pfc", "wire_overhead", "minimum", "pad"):
            if getattr(self, key) > 65_536:
                yield (key,), "must be at most 64KiB"
        if self.minimum == FRAME_MAX_BYTES + 1:
            yield ("minimum",), f"must be at most {FRAME_MAX_BYTES}B, the largest frame"

    def size_rules(self, mtu_bytes: int) -> Iterator[Broken]:
        """Yield which kinds of frame are too small or too large for the wire, with the terms of their sums."""
        encapsulation = [("frames.vlan", VLAN_BYTES * self.vlan), ("frames.vxlan", VXLAN_BYTES * self.vxlan)]
        padded = -(-mtu_bytes // self.pad) * self.pad
        first = [("frames.header", self.header), ("frames.reth", self.reth), *encapsulation]
        largest = first
        if self.aeth > self.reth:
            largest = [("frames.header", self.header), ("frames.aeth", self.aeth), *encapsulation]
        payload = "nic.mtu" if padded == mtu_bytes else f"nic.mtu {mtu_bytes:,} padded to"
        empty_and_largest = (
            ("data", ("frames", "header"), first, [(payload, padded), *largest]),
            *(
                (kind.upper(), ("frames", kind), terms, terms)
                for kind, terms in (
                    ("ack", [("frames.ack", self.ack), *encapsulation]),
                    ("cnp", [("frames.cnp", self.cnp), *encapsulation]),
                    ("read", [("frames.read", self.read), *encapsulation]),
                    ("pfc", [("frames.pfc", self.pfc)]),
                )
            ),
        )
        for kind, path, empty, full in empty_and_largest:
            if max(self.minimum, _sum(empty)) + self.wire_overhead < 1:
                terms = _terms([*empty, ("frames.minimum", 0), ("frames.wire_overhead", 0)], zeros=True)
                yield path, f"the smallest {kind} frame is 0 B on the wire ({terms}); it must be at least 1 B"
            if _sum(full) > FRAME_MAX_BYTES:
                yield (
                    ("nic", "mtu") if kind == "data" else path,
                    f"the largest {kind} frame is {_sum(full):,} B ({_terms(full)}); "
                    f"it must be at most {FRAME_MAX_BYTES:,} B",
                )

    @property
    def encapsulation_bytes(self) -> int:
        """What VLAN and VXLAN add to data, ACK and CNP frames."""
        return VLAN_BYTES * self.vlan + VXLAN_BYTES * self.vxlan

    @property
    def header_bytes(self) -> int:
        """Header of a data frame with its encapsulation."""
        return self.header + self.encapsulation_bytes

    @property
    def ack_bytes(self) -> int:
        """ACK frame with its encapsulation, before the minimum."""
        return self.ack + self.encapsulation_bytes

    @property
    def cnp_bytes(self) -> int:
        """CNP frame with its encapsulation, before the minimum."""
        return self.cnp + self.encapsulation_bytes

    @property
    def read_bytes(self) -> int:
        """READ request with its encapsulation, before the minimum."""
        return self.read + self.encapsulation_bytes


def _sum(terms: list[tuple[str, int]]) -> int:
    return sum(size for _, size in terms)


def _terms(terms: list[tuple[str, int]], *, zeros: bool = False) -> str:
    """Write a sum: "nic.mtu 4,096 + frames.header 62"."""
    return " + ".join(
        f"{name} {size:,}" for name, size in terms if size or (zeros and name not in ("frames.vlan", "frames.vxlan"))
    )


class Link(Table):
    """One cable: both directions alike. `delay` is always set, from `length` if that was given."""

    replaces: ClassVar[dict[str, tuple[str, ...]]] = {"delay": ("length",), "length": ("delay",)}

    rate: Rate = optional("400Gbps", description="rate of each direction")
    delay: Time | None = optional(None, description="propagation delay, 600ns by default; or give length")
    length: Length | None = optional(None, description="cable length, 5 ns/m; or give delay")
    flow_control: Literal["pfc", "credit"] = optional(
        "pfc", description="credit: nothing is sent that the other end has no room for, class by class; no PFC"
    )
    credit_buffer: PositiveSize = optional(
        "64KiB", description="credit: receive buffer of each class at either end, in whole blocks of 64 B"
    )
    credit_refresh: AutoDurationOrOff = optional(
        "auto",
        description="credit: told again after this time, in case the frame was lost; at most 16 times in a row; auto:"
        " 100us at the ends whose credit frames a [[fault]] of kind loss can corrupt, else off",
    )

    @model_validator(mode="before")
    @classmethod
    def _default_delay(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("delay") is None and values.get("length") is None:
            return {**values, "delay": "600ns"}
        return values

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from length_rules(self)

    @property
    def delay_ps(self) -> int:
        """Propagation delay by `delay` or `length`."""
        if self.length is not None:
            return int(delay_of_length(self.length))
        return self.delay or 0


class EcnThresholds(NamedTuple):
    """Marking thresholds of one egress queue: bytes, bytes, probability at kmax."""

    kmin: int
    kmax: int
    pmax: float


class EcnAtRate(Table):
    """ECN thresholds of the ports of one rate."""

    rate: Rate = Field(description="rate of the egress port")
    kmin: Size = Field(description="no mark up to this queue length")
    kmax: Size = Field(description="every packet is marked above this queue length")
    pmax: Probability = optional(0.2, description="marking probability at kmax")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from _threshold_rules(self)


def _threshold_rules(table: Any) -> Iterator[Broken]:
    if table.kmin > table.kmax:
        yield ("kmin",), f"kmin {format_bytes(table.kmin)} is above kmax {format_bytes(table.kmax)}"
    if table.kmax >= KMAX_LIMIT_BYTES:
        yield ("kmax",), "must be below 2GiB"


class Ecn(Table):
    """ECN marking (RED on the instant length of the egress queue, when a packet leaves it)."""

    enabled: Flag = optional(True, description="whether packets are marked")
    kmin: Size = optional("400KB", description="no mark up to this queue length")
    kmax: Size = optional("1600KB", description="every packet is marked above this queue length")
    pmax: Probability = optional(0.2, description="marking probability at kmax")
    by_rate: tuple[EcnAtRate, ...] = optional((), description="thresholds of egress ports of exactly this rate instead")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from _threshold_rules(self)
        seen: set[int] = set()
        for index, item in enumerate(self.by_rate):
            if item.rate in seen:
                yield ("by_rate", index, "rate"), f"{format_rate(item.rate)} is listed twice"
            seen.add(item.rate)

    def at_rate(self, rate_bps: int) -> EcnThresholds:
        """Thresholds of an egress port of this rate."""
        item = next((item for item in self.by_rate if item.rate == rate_bps), self)
        return EcnThresholds(item.kmin, item.kmax, item.pmax)


class PfcAtLink(Table):
    """Priority groups of the ports of one rate, by the length of the cable. What is not given is that of [switch.pfc].

    A port takes the entry of its rate with the shortest cable that is not below its own; if all are, the longest.
    """

    rate: Rate = Field(description="rate of the port")
    length: Length = Field(description="the longest cable that this is made for, 5 ns/m")
    headroom: SizeOrAuto | None = optional(None, description="headroom of each priority group")
    reserved: Size32 | None = optional(None, description="reserved bytes of each priority group")
    xon_offset: Size32 | None = optional(None, description="XON when the use has fallen this far below the threshold")

    @property
    def delay_ps(self) -> int:
        """Propagation delay of its cable."""
        return int(delay_of_length(self.length))


class Pfc(Table):
    """Shared buffer and PFC of the lossless classes, per ingress port and class (priority group)."""

    replaces: ClassVar[dict[str, tuple[str, ...]]] = {"alpha": ("static",), "static": ("alpha",)}

    enabled: Flag = optional(True, description="whether ports send and obey PFC; without it nothing is paused")
    alpha: AlphaOrAuto | None = optional(
        None,
        description="dynamic threshold, 1/8 by default: share of the free pool that one priority group may use; auto:"
        " 1/8 at the rate of the NICs, doubled with every doubling of the port's rate above it, at most 1; or give"
        " static",
    )
    static: Size | None = optional(
        None, description="static threshold of every priority group, whatever is free in the pool; or give alpha"
    )
    xon_offset: Size32 = optional("8KiB", description="XON when the use has fallen this far below the threshold")
    headroom: SizeOrAuto = optional(
        "auto", description="headroom of each priority group; auto: what its link needs to lose nothing"
    )
    reserved: Size32 = optional("4KiB", description="reserved bytes of each priority group")
    quanta: Annotated[int, Strict(), Field(ge=1, le=65535)] = Field(
        65535, description="pause time in a PFC frame, in units of 512 bit times"
    )
    response_delay: Time = optional(
        "0ns", description="from receipt of a PFC frame to its effect; at most 614.4ns in 802.1Qbb"
    )
    by_link: tuple[PfcAtLink, ...] = optional((), description="headroom and the like by rate and cable of the port")

    @model_validator(mode="before")
    @classmethod
    def _default_alpha(cls, values: Any) -> Any:
        return _with_default(values, "alpha", "static", "1/8")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from exclusive_rules(self, self.replaces)
        seen: set[tuple[int, Any]] = set()
        for index, item in enumerate(self.by_link):
            if (item.rate, item.length) in seen:
                text = f"{format_rate(item.rate)} and {format_length(item.length)} are listed twice"
                yield ("by_link", index, "length"), text
            seen.add((item.rate, item.length))

    def at_link(self, rate_bps: int, delay_ps: int) -> Self:
        """Parameters of a port of this rate, whose cable has this delay."""
        entries = sorted((item for item in self.by_link if item.rate == rate_bps), key=lambda item: item.delay_ps)
        if not entries:
            return self
        entry = next((item for item in entries if item.delay_ps >= delay_ps), entries[-1])
        given = {key: getattr(entry, key) for key in ("headroom", "reserved", "xon_offset")}
        return self.model_copy(update={key: value for key, value in given.items() if value is not None})


class Lossy(Table):
    """Shared buffer of the lossy classes."""

    replaces: ClassVar[dict[str, tuple[str, ...]]] = {
        "alpha": ("static",),
        "static": ("alpha",),
        "egress_alpha": ("egress_static",),
        "egress_static": ("egress_alpha",),
    }

    alpha: Alpha | None = optional(
        None, description="ingress: share of the free pool that one port and class may use, 8 by default; or static"
    )
    static: Size | None = optional(None, description="ingress: bytes that one port and class may use; or give alpha")
    egress_alpha: Alpha | None = optional(
        None, description="egress: share of the free pool that one queue may hold, 1 by default; or egress_static"
    )
    egress_static: Size | None = optional(
        None, description="egress: bytes that one queue may hold; or give egress_alpha"
    )
    reserved: Size32 = optional("0B", description="reserved bytes of each ingress port and class")

    @model_validator(mode="before")
    @classmethod
    def _default_alphas(cls, values: Any) -> Any:
        return _with_default(_with_default(values, "alpha", "static", "8"), "egress_alpha", "egress_static", "1")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from exclusive_rules(self, self.replaces)


def _with_default(values: Any, key: str, other: str, default: str) -> Any:
    """Give `key` its default unless it, or the other way of saying it, is there."""
    if isinstance(values, dict) and values.get(key) is None and values.get(other) is None:
        return {**values, key: default}
    return values


class Switch(Table):
    """One switch."""

    buffer: PositiveSize = optional("64MiB", description="whole packet buffer: shared pool, reserved and headroom")
    latency: Time = optional("0ns", description="pipeline: from arrival to the earliest departure")
    ecmp_seed: HashSeed = optional(
        "per-switch", description="seed of the ECMP hash: its own for every switch, or one number for all"
    )
    load_balancing: Literal["ecmp", "weighted", "spray", "flowlet", "least-loaded", "least-loaded-flow"] = optional(
        "ecmp",
        description="choice among equal-cost ports. ecmp: by flow hash; weighted: by flow hash, in proportion to the"
        " rates of the ports; spray: every data packet anew, at random; least-loaded: every data packet the port that"
        " would be free first; least-loaded-flow: the same for the first packet of a queue pair, the others follow it;"
        " flowlet: the same after every pause of flowlet_gap",
    )
    flowlet_gap: Duration = optional(
        "50us", description="load_balancing = flowlet: after a pause longer than this a flow may change its path"
    )
    flowlet_entries: Annotated[int, Strict(), Field(ge=1, le=1_048_576)] = optional(
        4096, description="load_balancing = flowlet: places of the table; flows whose hashes meet in one share a path"
    )
    cell: CellSize = optional("1B", description="the buffer counts whole cells of this size; 1B: it counts bytes")
    weights: dict[str, Weight] = optional(
        {}, description="shares of classes that are served in turn (deficit round robin) after all others"
    )
    class_map: dict[str, Text] = optional(
        {}, description="classes whose frames the switch treats as those of another class: priority maps gone wrong"
    )
    pfc: Pfc = optional(default_factory=dict, description="lossless classes")
    lossy: Lossy = optional(default_factory=dict, description="lossy classes")
    ecn: Ecn = optional(default_factory=dict, description="ECN marking")
    watchdog: Watchdog = optional(default_factory=dict, description="PFC watchdog of the lossless classes")
    profile: Text | None = optional(
        None,
        description="file with a [switch] table, as `fabemu import sonic` writes it, for what the keys beside this one"
        " do not say; see Switch profiles",
    )

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.profile is not None:
            yield ("profile",), "a profile is taken in by load_scenario and scenario_from_dict only"
        for table, key in (("pfc", "static"), ("lossy", "static"), ("lossy", "egress_static")):
            size = getattr(getattr(self, table), key)
            if size is not None and size > self.buffer:
                yield (table, key), f"{format_bytes(size)} is more than the buffer, {format_bytes(self.buffer)}"


class CongestionControl(SelfOverlaid):
    """Congestion control of the senders. The parameters of `dcqcn` not given come from the preset.

    A preset given in an override brings all its values, whatever [nic.cc] says.
    """

    kind: Literal["none", "fixed", "dcqcn"] = optional(
        "dcqcn", description="none: always line rate; fixed: always `rate`; dcqcn: by congestion notifications"
    )
    preset: Literal["paper", "connectx", "ns3"] = optional(
        "connectx", description="state machine, way of notification and values of dcqcn"
    )
    rate: Rate | None = optional(None, description="the rate of kind = fixed; never above the line rate")
    g: Probability = optional(FROM_PRESET, description="weight of the new value in alpha")
    alpha_init: Probability = optional(FROM_PRESET, description="alpha at the first CNP")
    alpha_timer: Duration = optional(FROM_PRESET, description="period of the alpha update")
    decrease_timer: Duration = optional(FROM_PRESET, description="shortest time between two decreases (connectx, ns3)")
    increase_timer: Duration = optional(FROM_PRESET, description="period of the timer that raises the rate")
    byte_reset: Size = optional(FROM_PRESET, description="bytes of the byte counter that raises the rate; 0B for none")
    threshold: Annotated[int, Strict(), Field(ge=0, le=1_000_000)] = optional(
        FROM_PRESET, description="steps of fast recovery (F)"
    )
    rate_ai: Rate = optional(FROM_PRESET, description="additive increase")
    rate_hai: Rate = optional(FROM_PRESET, description="hyper increase")
    rate_min: Rate = optional(FROM_PRESET, description="the rate never falls below this; at least 1kbps")
    min_dec_fac: Probability = optional(FROM_PRESET, description="least share of the old rate that one decrease leaves")
    clamp_target: Flag = optional(FROM_PRESET, description="every decrease sets the target rate to the rate before it")
    cnp_interval: Time = optional(FROM_PRESET, description="at most one CNP per QP in this time (paper, connectx)")

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        name = values.get("preset", "connectx")
        preset = DCQCN_PRESETS.get(name if isinstance(name, str) else "", DCQCN_PRESETS["connectx"])
        return {**preset.values, **values}

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.kind == "fixed" and self.rate is None:
            yield ("rate",), 'kind = "fixed" needs the rate: write for example rate = "100Gbps"'
        if self.rate_min < RATE_MIN_LIMIT_BPS:
            yield ("rate_min",), "must be at least 1kbps"

    def overlaid(self, over: BaseModel) -> Self:
        """Lay a partial table over this one; a preset given there brings all its values."""
        given = {key: getattr(over, key) for key in type(over).model_fields if getattr(over, key) is not None}
        start = CongestionControl(preset=given["preset"], kind=self.kind) if "preset" in given else self
        values = {key: getattr(start, key) for key in type(self).model_fields}
        if values["rate"] is None:
            values["rate"] = self.rate
        return type(self).model_construct(**{**values, **given})

    @property
    def _preset(self) -> DcqcnPreset:
        return DCQCN_PRESETS[self.preset]

    @property
    def machine(self) -> Literal["paper", "adapter"]:
        """State machine of docs/MODEL.md section 12."""
        return self._preset.machine

    @property
    def notification(self) -> Literal["cnp", "echo"]:
        """Whether receivers send CNP frames or echo marks on ACKs."""
        return self._preset.notification

    @property
    def decrease_offset_ps(self) -> int:
        """Added to the time of the first decrease check."""
        return self._preset.decrease_offset_ps


class Nic(Table):
    """One host's network adapter."""

    mtu: Mtu = optional(4096, description="payload bytes of a full packet: 256, 512, 1024, 2048 or 4096")
    any_mtu: Flag = optional(False, description="allow any mtu, to match other simulators")
    ack_every: Annotated[int, Strict(), Field(ge=1, le=1_000_000)] = Field(
        1, description="an ACK every so many packets, and at the end of each message"
    )
    window: SizeOrNone = optional("none", description="most unacknowledged payload of a QP")
    timeout: Annotated[int, Strict(), Field(ge=0, le=31)] = Field(
        14, description="retransmission timeout 4.096us x 2^timeout"
    )
    retry_count: Annotated[int, Strict(), Field(ge=0, le=1_000_000)] = Field(
        7, description="timeouts in a row without progress that a QP survives"
    )
    retransmission: Literal["go-back-n", "selective"] = optional(
        "go-back-n",
        description="what a sender repeats after a loss: everything from it on, or what the receiver lacks; alike at"
        " both ends of a QP",
    )
    selective_window: Annotated[int, Strict(), Field(ge=1, le=4096)] = Field(
        1024, description="packets that retransmission = selective may have outstanding, and a receiver can keep"
    )
    reorder_window: Annotated[int, Strict(), Field(ge=1, le=4096)] = Field(
        1,
        description="retransmission = selective: a packet counts as lost when one so many numbers beyond it has come:"
        " 1 where each QP keeps to one path, more for load_balancing by packets or flowlets; more than selective_window"
        " leaves it to the timeout",
    )
    first_psn: Annotated[int, Strict(), Field(ge=0, le=2**24 - 1)] = Field(
        0, description="number on the wire of every QP's first packet; numbers wrap at 2^24"
    )
    receiver: Receiver = optional(
        default_factory=dict, description="receive buffer of a host that does not keep up with its link"
    )
    cc: CongestionControl = optional(default_factory=dict, description="congestion control")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.mtu not in IB_MTUS and not self.any_mtu:
            yield ("mtu",), "must be 256, 512, 1024, 2048 or 4096 (InfiniBand path MTU); any_mtu = true allows others"


# For the type checker a partial table is a table of its kind; at run time its keys are optional.
if TYPE_CHECKING:
    LinkPartial = Link
    SwitchPartial = Switch
    NicPartial = Nic
else:

    class LinkPartial(partial(Link, "LinkKeys")):
        """Keys of a link, all optional."""

        def rules(self) -> Iterator[Broken]:
            """Yield what is wrong between the keys."""
            yield from length_rules(self)

    SwitchPartial = partial(Switch, "SwitchPartial")
    NicPartial = partial(Nic, "NicPartial", without=("mtu", "any_mtu", "first_psn"))


class LinkOverride(LinkPartial):
    """Keys of named links."""

    between: tuple[Text, Text] = Field(description="the two devices that the link joins, in any order")
    index: Annotated[int, Strict(), Field(ge=0)] | None = Field(
        None, description="which of the parallel links, from 0; all of them if not given"
    )


PORT_KEYS = ("pfc", "lossy", "ecn", "weights")
"""Keys of [switch] that may differ between the ports of a switch."""


class SwitchOverride(SwitchPartial):
    """Keys of one switch, or of its ports to one neighbour."""

    name: Text = Field(description="name of the switch")
    peer: Text | None = Field(
        None, description="only its ports to this device: pfc, lossy, ecn and weights; all ports if not given"
    )

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.peer is None:
            return
        for key in type(self).model_fields:
            if key not in ("name", "peer", *PORT_KEYS) and getattr(self, key) is not None:
                yield (key,), f"belongs to the whole switch; with peer there may be {named(PORT_KEYS)}"
        if self.pfc is not None and self.pfc.response_delay is not None:
            yield ("pfc", "response_delay"), "belongs to the whole switch, not to its ports to one peer"


class NicOverride(NicPartial):
    """Keys of one host's NIC."""

    name: Text = Field(description="name of the host")


class LinkTable(Link):
    """Defaults of all links, then by tier, then by name."""

    tier: dict[str, LinkPartial] = optional({}, description="keys of the links of one tier: [link.tier.NAME]")
    override: tuple[LinkOverride, ...] = optional((), description="keys of named links: [[link.override]]")


class SwitchTable(Switch):
    """Defaults of all switches, then by tier, then by name."""

    tier: dict[str, SwitchPartial] = optional({}, description="keys of the switches of one tier: [switch.tier.NAME]")
    override: tuple[SwitchOverride, ...] = optional((), description="keys of one switch: [[switch.override]]")


class NicTable(Nic):
    """Defaults of all NICs, then by host name."""

    override: tuple[NicOverride, ...] = optional((), description="keys of one host's NIC: [[nic.override]]")


__all__ = [
    "IB_MTUS",
    "CongestionControl",
    "Ecn",
    "EcnAtRate",
    "EcnThresholds",
    "Frames",
    "Link",
    "LinkOverride",
    "LinkPartial",
    "LinkTable",
    "Lossy",
    "Nic",
    "NicOverride",
    "NicPartial",
    "NicTable",
    "PartialTable",
    "Pfc",
    "Switch",
    "SwitchOverride",
    "SwitchPartial",
    "SwitchTable",
]
