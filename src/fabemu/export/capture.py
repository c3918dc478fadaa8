"""Captures: every frame that the `packets` table has of chosen links, as the bytes that RoCEv2 puts there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fabemu.columns import number_values
from fabemu.compile import Compiled
from fabemu.compile.traffic import source_ports
from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.export import frame, pcapng
from fabemu.export.addresses import ipv4, mac, refuse_too_many, tunnel_ipv4
from fabemu.export.hops import Hops
from fabemu.export.output import replacing
from fabemu.export.selection import Selection, select
from fabemu.plan import VERB_READ, VERB_SEND
from fabemu.recorded.source import Source
from fabemu.recorded.transport import PSN_BITS, Messages, PacketNumbers
from fabemu.run_directory import SCENARIO_FILE
from fabemu.scenario import Scenario
from fabemu.trace import NONE, PACKET_KINDS, read_batches
from fabemu.units import format_time
from fabemu.version import version

_DATA, _ACK, _NAK, _CNP, _PFC, _READ, _CREDIT = (
    PACKET_KINDS.index(kind) for kind in ("data", "ack", "nak", "cnp", "pfc", "read", "credit")
)
_TTL = 64
_PIECE_BYTES = 8 << 20  # of the capture, made at once
_QUANTUM_BITS = 512
_FOR_EVER_QUANTA = 0xFFFF
_PSN_MASK = (1 << PSN_BITS) - 1
_PFC_LAYOUT = len(frame.EXTENSION_BYTES)


@dataclass
class Capture:
    """What a capture came to.

    Attributes
    ----------
    path
        The file.
    interfaces
        Link directions in it.
    frames
        Frames by kind.
    credits
        Credit frames that were left out.
    longer
        Frames that are longer than in the simulation, whose headers its scenario made shorter.
    notes
        What a reader of the file must know besides.
    """

    path: Path
    interfaces: int = 0
    frames: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PACKET_KINDS, 0))
    credits: int = 0
    longer: int = 0
    notes: list[str] = field(default_factory=list)


def export_pcapng(
    directory: Path,
    output: Path,
    *,
    ports: Sequence[str] = (),
    hosts: Sequence[str] = (),
    from_ps: int = 0,
    to_ps: int | None = None,
    snap_bytes: int = 0,
    picoseconds: bool = False,
    force: bool = False,
) -> Capture:
    """Write a pcapng file of a run.

    Parameters
    ----------
    directory
        Run directory with a `packets` table.
    output
        The file.
    ports, hosts
        Patterns of links; all links without any. See `fabemu.export.selection.select`.
    from_ps, to_ps
        Time window: frames whose transmission starts in it.
    snap_bytes
        Most bytes of each frame; 0 for all.
    picoseconds
        Time stamps of a picosecond; else whole nanoseconds, rounded down.
    force
        Replace an existing file.

    Raises
    ------
    InputError
        No run, no `packets` table, a scenario that is not that of the run, or nothing that the filter takes.
    OutputError, MachineError
        The file exists, or cannot be written.
    """
    source = Source.open(directory)
    table = source.table("packets")
    if source.scenario.trace.packets != "all":
        raise InputError(
            f"{directory}: its packets table holds what hosts send and the last packets of messages alone "
            f'(trace.packets = "{source.scenario.trace.packets}"); `fabemu run {directory / SCENARIO_FILE} '
            "--trace packets -o DIR` records all"
        )
    compiled = source.compiled
    selection = select(compiled, ports=ports, hosts=hosts, from_ps=from_ps, to_ps=to_ps)
    capture = Capture(output, interfaces=len(selection.ports))
    if source.partial is not None:
        capture.notes.append(f"partial: {source.partial}")
    writer = _Writer(compiled, source.scenario, selection, snap_bytes=snap_bytes, picoseconds=picoseconds)
    with replacing(output, force=force, inside=directory) as file:
        file.write(writer.head(source, capture.notes))
        found = _write(writer, file, iter(read_batches(table)), capture)
        if not found.taken:
            raise InputError(f"{directory}: {found.text(len(selection.ports))}")
    if capture.credits:
        are = "is" if capture.credits == 1 else "are"
        capture.notes.append(
            f"{counted(capture.credits, 'credit frame')} {are} left out: there is no Ethernet form of them"
        )
    if capture.longer:
        are = "is" if capture.longer == 1 else "are"
        capture.notes.append(
            f"{counted(capture.longer, 'frame')} {are} longer than in the simulation: the [frames] of the scenario are "
            "shorter than the headers of RoCEv2"
        )
    return capture


@dataclass
class _Found:
    """What the table has, for when nothing of it is taken."""

    rows: int = 0
    taken: int = 0
    first_ps: int = 0
    last_ps: int = 0

    def text(self, links: int) -> str:
        if not self.rows:
            return "its packets table is empty: nothing was sent, or the run ended before it was written"
        return (
            f"no frame on the {links:,} chosen links in this time; the table has {self.rows:,} transmissions from "
            f"{format_time(self.first_ps)} to {format_time(self.last_ps)}"
        )


def _write(writer: _Writer, file: BinaryIO, batches: Iterator[pa.RecordBatch], capture: Capture) -> _Found:
    found = _Found()
    for batch in batches:
        if not len(batch):
            continue
        rows = _columns(batch)
        if not found.rows:
            found.first_ps = int(rows["time_ps"][0])
        found.last_ps = int(rows["time_ps"][-1])
        found.rows += len(batch)
        for piece in writer.pieces(rows, capture):
            file.write(piece)
        found.taken = sum(capture.frames.values())
    return found


def _columns(batch: pa.RecordBatch) -> dict[str, NDArray[Any]]:
    rows: dict[str, NDArray[Any]] = {}
    for name in ("time_ps", "port", "kind", "qp", "psn", "xoff_mask", "frame_bytes", "marked", "echo"):
        column = batch.column(name)
        if isinstance(column, pa.DictionaryArray):
            column = column.indices
        rows[name] = number_values(column, NONE)
        if rows[name].dtype != np.bool_:
            rows[name] = rows[name].astype(np.int64)
    return rows


class _Writer:
    """Rows of the `packets` table to blocks of a capture."""

    def __init__(
        self, compiled: Compiled, scenario: Scenario, selection: Selection, *, snap_bytes: int, picoseconds: bool
    ) -> None:
        """Prepare what is the same for all rows.

        Raises
        ------
        InputError
            More hosts or queue pairs than there are addresses, or packets that IPv4 cannot carry.
        """
        plan = compiled.plan
        self._vlan, self._vxlan = scenario.frames.vlan, scenario.frames.vxlan
        refuse_too_many(plan, tunnels=self._vxlan)
        if frame.headers_bytes(frame.RETH, tagged=False, tunnelled=self._vxlan) + plan.mtu_bytes > frame.IPV4_BYTES_MAX:
            raise InputError(f"packets of {plan.mtu_bytes:,} B do not fit into IPv4")
        self._compiled, self._plan, self._selection = compiled, plan, selection
        self._snap_bytes, self._picoseconds = snap_bytes, picoseconds
        self._interface = np.full(plan.port_count, NONE, dtype=np.int64)
        self._interface[selection.ports] = np.arange(len(selection.ports))
        self._peer_node = plan.port_node[plan.port_peer]
        classes = scenario.classes_by_priority
        self._priority = np.array([item.priority for item in classes])
        self._dscp = np.array([item.dscp for item in classes])
        self._lossless = [index for index, item in enumerate(classes) if item.lossless]
        self._messages = Messages(plan)
        self._numbers = PacketNumbers(plan, self._messages.packets)
        self._hops = Hops(plan)
        first_flow = plan.qp_op[plan.qp_op_start[:-1]]
        self._data_port, self._answer_port = source_ports(plan.seed, compiled.flows.sport[first_flow].astype(np.int64))
        self._quanta = self._pause_quanta()

    def head(self, source: Source, notes: list[str]) -> bytes:
        """Section header and interface descriptions."""
        unit = "picoseconds" if self._picoseconds else "nanoseconds, rounded down from picoseconds"
        comments = [
            f"fabemu run {source.info.get('name')}, seed {source.info.get('seed')}, plan "
            f"{str(source.info.get('plan_digest'))[:16]}",
            f"Time 0 of the simulation is 1970-01-01; stamps are the start of each transmission in {unit}.",
            *notes,
        ]
        plan, names = self._plan, self._compiled.node_names
        blocks = [pcapng.section_block(f"fabemu {version()}", comments)]
        for port in self._selection.ports.tolist():
            blocks.append(
                pcapng.interface_block(
                    self._compiled.port_names[port],
                    f"link from {names[plan.port_node[port]]} to {names[self._peer_node[port]]}, at the sender",
                    int(plan.port_rate_bps[port]),
                    resolution=pcapng.PICOSECONDS if self._picoseconds else pcapng.NANOSECONDS,
                    snap_bytes=self._snap_bytes,
                )
            )
        return b"".join(blocks)

    def pieces(self, rows: dict[str, NDArray[Any]], capture: Capture) -> Iterator[memoryview]:
        """Enhanced packet blocks of the rows that are chosen, in parts of bounded size."""
        # A CNP has no packet number of its own.
        carried = (rows["qp"] >= 0) & (rows["kind"] != _CNP)
        number = np.zeros(len(carried), dtype=np.int64)
        # Before anything is left out: long queue pairs need every packet number.
        number[carried] = self._numbers.unwrap(rows["qp"][carried], rows["psn"][carried])
        time_ps = rows["time_ps"]
        chosen = self._interface[rows["port"]] != NONE
        chosen &= (time_ps >= self._selection.from_ps) & (time_ps < self._selection.to_ps)
        credit = rows["kind"] == _CREDIT
        capture.credits += int(np.count_nonzero(chosen & credit))
        chosen &= ~credit
        taken = {name: values[chosen] for name, values in (rows | {"number": number}).items()}
        for kind, count in enumerate(np.bincount(taken["kind"], minlength=len(PACKET_KINDS)).tolist()):
            capture.frames[PACKET_KINDS[kind]] += count
        if not len(taken["kind"]):
            return
        most = int(taken["frame_bytes"].max()) + pcapng.PACKET_HEAD_BYTES + 128  # a little more than any block
        if self._snap_bytes:
            most = min(most, self._snap_bytes + 64)
        step = max(1, _PIECE_BYTES // most)
        for first in range(0, len(taken["kind"]), step):
            yield self._blocks({name: values[first : first + step] for name, values in taken.items()}, capture)

    def _blocks(self, rows: dict[str, NDArray[Any]], capture: Capture) -> memoryview:
        count = len(rows["kind"])
        length = np.zeros(count, dtype=np.int64)
        parts = []
        layout = self._layouts(rows)
        for extension in np.unique(layout).tolist():
            index = np.flatnonzero(layout == extension)
            part = {name: values[index] for name, values in rows.items()}
            if extension == _PFC_LAYOUT:
                headers, padded, checksum = self._pfc(part), np.zeros(len(index), np.int64), None
                whole = np.full(len(index), headers.shape[1])
            else:
                headers, padded, checksum = frame.transported(self._frames(part, extension))
                whole = headers.shape[1] + padded + frame.ICRC_BYTES
            model = part["frame_bytes"] - frame.FCS_BYTES
            capture.longer += int(np.count_nonzero(whole > model))
            length[index] = np.maximum(whole, model)
            parts.append((index, headers, padded, checksum))
        kept = np.minimum(length, self._snap_bytes) if self._snap_bytes else length
        block = pcapng.PACKET_HEAD_BYTES + ((kept + 3) & ~3) + 4
        start = np.cumsum(block) - block
        out = np.zeros(int(block.sum()), dtype=np.uint8)
        self._put_heads(out, start, block, rows, kept, length)
        for index, headers, padded, checksum in parts:
            at = start[index] + pcapng.PACKET_HEAD_BYTES
            self._put(out, at, headers, 0, kept[index])
            if checksum is not None:
                octets = checksum.astype("<u4").view(np.uint8).reshape(-1, 4)
                self._put(out, at, octets, headers.shape[1] + padded, kept[index])
        return out.data

    @staticmethod
    def _put(
        out: NDArray[np.uint8],
        at: NDArray[np.int64],
        octets: NDArray[np.uint8],
        offset: NDArray[np.int64] | int,
        kept: NDArray[np.int64],
    ) -> None:
        """Put rows of bytes at an offset of their frames, as far as these are kept."""
        columns = np.arange(octets.shape[1])
        begin = np.broadcast_to(offset, at.shape)
        places = (at + begin)[:, None] + columns
        if (begin + octets.shape[1] <= kept).all():
            out[places] = octets
        else:
            inside = begin[:, None] + columns < kept[:, None]
            out[places[inside]] = octets[inside]

    def _put_heads(
        self,
        out: NDArray[np.uint8],
        start: NDArray[np.int64],
        block: NDArray[np.int64],
        rows: dict[str, NDArray[Any]],
        kept: NDArray[np.int64],
        length: NDArray[np.int64],
    ) -> None:
        words = out.view("<u4")  # blocks are whole words
        word = start // 4
        stamp = rows["time_ps"] if self._picoseconds else rows["time_ps"] // 1000
        heads = (
            np.full(len(word), pcapng.PACKET_TYPE),
            block,
            self._interface[rows["port"]],
            stamp >> 32,
            stamp & 0xFFFFFFFF,
            kept,
            length,
        )
        for position, values in enumerate(heads):
            words[word + position] = values
        words[(start + block) // 4 - 1] = block

    def _layouts(self, rows: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
        """(n,) what follows the transport header, or that it is a PFC frame."""
        kind = rows["kind"]
        layout = np.full(len(kind), frame.NO_HEADER, dtype=np.int64)
        data = np.flatnonzero(kind == _DATA)
        if len(data):
            verb = self._plan.qp_verb[rows["qp"][data]]
            place = self._messages.place(rows["qp"][data], rows["number"][data])
            reads = verb == VERB_READ
            answer = np.where(place.first | place.last, frame.AETH, frame.NO_HEADER)
            written = np.where(place.first & (verb != VERB_SEND), frame.RETH, frame.NO_HEADER)
            layout[data] = np.where(reads, answer, written)
        layout[(kind == _ACK) | (kind == _NAK)] = frame.AETH
        layout[kind == _CNP] = frame.CNP_RESERVED
        layout[kind == _READ] = frame.RETH
        layout[kind == _PFC] = _PFC_LAYOUT
        return layout

    def _frames(self, rows: dict[str, NDArray[Any]], extension: int) -> frame.Transported:
        """The fields of frames with transport headers, all with one extension."""
        plan = self._plan
        kind, qp, number, port = rows["kind"], rows["qp"], rows["number"], rows["port"]
        is_data, is_ack, is_cnp = kind == _DATA, kind == _ACK, kind == _CNP
        count = len(kind)
        verb = plan.qp_verb[qp]
        reads = verb == VERB_READ
        # Of a READ the data come from the destination of the queue pair.
        from_source = is_data != reads
        source = np.where(from_source, plan.qp_src[qp], plan.qp_dst[qp]).astype(np.int64)
        destination = np.where(from_source, plan.qp_dst[qp], plan.qp_src[qp]).astype(np.int64)
        data_class = plan.qp_class[qp].astype(np.int64)
        classes = np.where(is_data, data_class, np.where(is_cnp, plan.cnp_class, plan.class_ack[data_class]))
        capable = np.where(is_data & (plan.class_ecn[data_class] != 0), frame.ECT0, 0)
        wire_psn = rows["psn"]
        # On the wire an ACK has the number of the last packet that it acknowledges, in the table of the next one.
        psn = np.where(is_cnp, 0, np.where(is_ack, (wire_psn - 1) & _PSN_MASK, wire_psn))
        zero = np.zeros(count, dtype=np.int64)
        opcode = np.select(
            [is_ack | (kind == _NAK), is_cnp, kind == _READ],
            [frame.ACKNOWLEDGE, frame.CNP, frame.READ_REQUEST],
            0,
        )
        address = length = msn = payload = ack_request = zero
        with_place = is_data | (kind == _READ)
        if with_place.any():
            # CNPs are at a place too as far as this is concerned: number 0 of their queue pair.
            place = self._messages.place(qp, np.where(with_place, number, 0))
            opcode = np.where(is_data, _opcodes(verb, place.first, place.last), opcode)
            address = place.offset_bytes
            length = np.minimum(np.where(is_data, place.message_bytes, place.rest_bytes), 2**32 - 1)
            payload = np.where(is_data, place.payload_bytes, 0)
            ack_request = np.where(is_data & place.last & ~reads, 1, 0)
            msn = place.message + 1
        acknowledges = is_ack | (kind == _NAK)
        if acknowledges.any():
            msn = np.where(acknowledges, self._messages.completed(qp, np.where(acknowledges, number, 0)), msn)
        node = plan.port_node[port].astype(np.int64)
        ports = np.where(is_data, self._data_port[qp], self._answer_port[qp])
        return frame.Transported(
            source_mac=mac(plan, node),
            destination_mac=mac(plan, self._peer_node[port]),
            source_ip=ipv4(source),
            destination_ip=ipv4(destination),
            tunnel_source=tunnel_ipv4(source) if self._vxlan else None,
            tunnel_destination=tunnel_ipv4(destination) if self._vxlan else None,
            inner_source_mac=mac(plan, source) if self._vxlan else None,
            inner_destination_mac=mac(plan, destination) if self._vxlan else None,
            priority=self._priority[classes] if self._vlan else None,
            dscp=self._dscp[classes],
            ecn=np.where(rows["marked"], frame.CE, capable),
            inner_ecn=capable,
            ttl=np.maximum(_TTL - self._hops.between(source, node), 0),
            ttl_sent=_TTL,
            identification=wire_psn & 0xFFFF,
            udp_source=ports,
            opcode=opcode,
            queue_pair=qp,
            psn=psn,
            migrated=np.where(is_cnp, 0, 1),
            backward=np.where(is_cnp | rows["echo"], 1, 0),
            ack_request=ack_request,
            extension=extension,
            address=address,
            key=qp,
            length=length,
            syndrome=np.where(kind == _NAK, frame.SYNDROME_NAK_SEQUENCE, frame.SYNDROME_ACK),
            msn=msn & _PSN_MASK,
            payload=payload,
        )

    def _pfc(self, rows: dict[str, NDArray[Any]]) -> NDArray[np.uint8]:
        paused = rows["xoff_mask"]
        enabled = np.zeros(len(paused), dtype=np.int64)
        quanta = np.zeros((len(paused), 8), dtype=np.int64)
        # A frame of the compatibility mode is about one class, which only an XOFF names; others are about all.
        single = self._plan.ns3_pfc & (paused != 0)
        for item in self._lossless:
            priority = int(self._priority[item])
            stopped = (paused >> item) & 1 == 1
            enabled |= np.where(~single | stopped, 1 << priority, 0)
            quanta[:, priority] = np.where(stopped, self._quanta[rows["port"]], 0)
        return frame.pfc(mac(self._plan, self._plan.port_node[rows["port"]]), enabled, quanta)

    def _pause_quanta(self) -> NDArray[np.int64]:
        """(P,) pause time in the PFC frames of every port, in quanta: the plan has it in whole picoseconds."""
        plan = self._plan
        quanta = np.full(plan.port_count, _FOR_EVER_QUANTA, dtype=np.int64)
        for rate_bps, pause_ps in np.unique(np.stack([plan.port_rate_bps, plan.port_pause_ps]), axis=1).T.tolist():
            if pause_ps > 0:
                one = (plan.port_rate_bps == rate_bps) & (plan.port_pause_ps == pause_ps)
                # Rounded up when the plan was made: what is more than a whole quantum is that.
                quanta[one] = min(pause_ps * rate_bps // (_QUANTUM_BITS * 10**12), _FOR_EVER_QUANTA)
        return quanta


def _opcodes(verb: NDArray[Any], first: NDArray[np.bool_], last: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(n,) opcodes of data packets by verb and place in the message."""
    table = np.array(
        [
            [frame.WRITE_MIDDLE, frame.WRITE_LAST, frame.WRITE_FIRST, frame.WRITE_ONLY],
            [frame.SEND_MIDDLE, frame.SEND_LAST, frame.SEND_FIRST, frame.SEND_ONLY],
            [frame.READ_MIDDLE, frame.READ_LAST, frame.READ_FIRST, frame.READ_ONLY],
        ]
    )
    return np.asarray(table[verb, 2 * first + last])
