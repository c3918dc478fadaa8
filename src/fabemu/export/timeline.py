"""A run as trace events for ui.perfetto.dev and chrome://tracing.

Source: Trace Event Format of Chromium (complete, flow, instant and metadata events). Times there are microseconds;
these have six decimals, so that no picosecond is lost.

Slices of one track must not overlap unless one lies inside the other, and messages of a host do. They are put on as
many tracks as it takes: each on the first one that is free when it begins.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.export.output import replacing
from fabemu.plan import FOREVER_PS
from fabemu.recorded.source import Source
from fabemu.trace import dictionary_column, float_column, integer_column, read_batches, read_table, table_path
from fabemu.units import format_time

_CHUNK_EVENTS = 4096
_PS_PER_US = 10**6
_TABLES = ("jobs", "collectives", "steps", "flows", "pauses", "drops", "events")


@dataclass
class Timeline:
    """What a timeline came to.

    Attributes
    ----------
    path
        The file.
    events
        Slices and instants by table.
    notes
        What is not in it.
    """

    path: Path
    events: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def export_perfetto(
    directory: Path, output: Path, *, from_ps: int = 0, to_ps: int | None = None, force: bool = False
) -> Timeline:
    """Write jobs, collectives, training steps, messages, pauses, drops and incidents as trace events.

    Parameters
    ----------
    directory
        Run directory.
    output
        The file.
    from_ps, to_ps
        Only what overlaps this time; `to_ps` does not belong to it.
    force
        Replace an existing file.

    Raises
    ------
    InputError
        No run, or nothing of what is shown is in it, or not in this time.
    OutputError, MachineError
        The file exists, or cannot be written.
    """
    source = Source.open(directory)
    if not any(table_path(directory, name).is_file() for name in _TABLES):
        raise InputError(f"{directory}: has none of the tables {', '.join(_TABLES)}; run it with --trace default")
    end_ps = FOREVER_PS if to_ps is None else to_ps
    if from_ps >= end_ps:
        raise InputError(
            f"--from {format_time(from_ps)} is not before --to {format_time(end_ps)}; nothing lies between them"
        )
    timeline = Timeline(output)
    if source.partial is not None:
        timeline.notes.append(f"partial: {source.partial}")
    missing = [name for name in ("flows", "pauses", "drops", "events") if not table_path(directory, name).is_file()]
    if missing:
        timeline.notes.append(f"the run has no {', '.join(missing)} table")
    with replacing(output, force=force, inside=directory) as file:
        writer = _Writer(file, source, from_ps, end_ps, timeline)
        writer.begin()
        for name in _TABLES:
            if table_path(directory, name).is_file():
                timeline.events[name] = writer.write(name)
        writer.end()
        if not any(timeline.events.values()):
            lasted = format_time(writer.lasted_ps)
            raise InputError(f"{directory}: nothing that is shown happened in this time; the run lasted {lasted}")
    return timeline


def _us(time_ps: int) -> str:
    """A time in us, with every picosecond."""
    return f"{time_ps // _PS_PER_US}.{time_ps % _PS_PER_US:06d}"


class _Lanes:
    """Tracks of one process: numbers of those that are free, and when the others will be."""

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []
        self.count = 0

    def take(self, start_ps: int, end_ps: int) -> int:
        """The first track that is free at `start_ps`, taken up to `end_ps`. Starts must not fall."""
        while self._busy and self._busy[0][0] <= start_ps:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        lane = heapq.heappop(self._free) if self._free else self.count
        self.count = max(self.count, lane + 1)
        heapq.heappush(self._busy, (max(end_ps, start_ps + 1), lane))
        return lane


class _Writer:
    """Events to JSON, some thousands at a time."""

    def __init__(self, file: BinaryIO, source: Source, from_ps: int, to_ps: int, timeline: Timeline) -> None:
        self._file, self._source = file, source
        self._from_ps, self._to_ps = from_ps, to_ps
        self._timeline = timeline
        self.lasted_ps = int(source.info.get("simulated_ps") or 0)
        self._pending: list[str] = []
        self._first = True
        self._last_thread = 0
        self._processes: dict[tuple[int, str], int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self._thread_count: dict[int, int] = {}
        self._lanes: dict[tuple[int, str], _Lanes] = {}

    def begin(self) -> None:
        info = self._source.info
        other = {"program": "fabemu", "run": info.get("name"), "seed": info.get("seed"), "digest": info.get("digest")}
        other |= {"notes": "; ".join(self._timeline.notes)}
        head = json.dumps(other, ensure_ascii=True)
        self._file.write(f'{{"displayTimeUnit": "ns", "otherData": {head}, "traceEvents": [\n'.encode())

    def end(self) -> None:
        self._flush()
        self._file.write(b"\n]}\n")

    def write(self, table: str) -> int:
        """Events of a table; how many slices and instants."""
        events: Iterable[int] = getattr(self, f"_{table}")(table_path(self._source.directory, table))
        return sum(events)

    # Tables. Each yields 1 for what it has written, 0 for what lies outside the time.

    def _jobs(self, path: Path) -> Iterator[int]:
        for row in read_table(path).to_pylist():
            figures = {key: row[key] for key in ("ranks", "nodes", "messages", "unfinished", "network_bytes")}
            process = self._process(f"job {row['job']}", 0)
            yield self._slice(process, "job", row["job"], row["start_ps"], row["end_ps"], figures)

    def _collectives(self, path: Path) -> Iterator[int]:
        rows = [row for row in read_table(path).to_pylist() if row["start_ps"] is not None]
        for row in sorted(rows, key=lambda row: row["start_ps"]):
            process = self._process(f"job {row['job']}" if row["job"] is not None else "collectives", 0)
            keys = ("algorithm", "iteration", "ranks", "bytes", "busbw_bps", "ideal_ps", "last_host")
            name = f"{row['operation']} {row['label']}"
            figures = {key: row[key] for key in keys}
            yield self._slice(process, None, name, row["start_ps"], row["end_ps"], figures, group="collectives")

    def _steps(self, path: Path) -> Iterator[int]:
        rows = [row for row in read_table(path).to_pylist() if row["start_ps"] is not None]
        for row in sorted(rows, key=lambda row: row["start_ps"]):
            process = self._process(f"job {row['job']}" if row["job"] is not None else "training", 0)
            keys = ("compute_ps", "exposed_ps", "tensor_ps", "expert_ps", "pipeline_ps", "data_ps", "tokens")
            figures = {key: row[key] for key in keys}
            name, track = f"step {row['step']}", f"steps {row['label']}"
            yield self._slice(process, track, name, row["start_ps"], row["end_ps"], figures)

    def _flows(self, path: Path) -> Iterator[int]:
        table = read_table(path)
        posted_ps, first_ps = integer_column(table, "posted_ps"), integer_column(table, "first_sent_ps")
        done_ps, delivered_ps = integer_column(table, "sender_done_ps"), integer_column(table, "receiver_done_ps")
        size, packets = integer_column(table, "bytes"), integer_column(table, "packets")
        op, qp = integer_column(table, "op"), integer_column(table, "qp")
        again, cnps = integer_column(table, "retransmissions"), integer_column(table, "cnps")
        slowdown = float_column(table, "slowdown")
        (src, hosts), (dst, _) = dictionary_column(table, "src"), dictionary_column(table, "dst")
        (label, labels), (verb, verbs) = dictionary_column(table, "label"), dictionary_column(table, "verb")
        status, statuses = dictionary_column(table, "status")
        order = np.argsort(posted_ps, kind="stable")
        order = order[posted_ps[order] >= 0]
        arrivals: list[tuple[int, int, int, str, tuple[str, str]]] = []
        for row in order.tolist():
            start, end = int(posted_ps[row]), int(max(done_ps[row], delivered_ps[row]))
            source, sink = hosts[src[row]], hosts[dst[row]]
            figures: dict[str, Any] = {
                "op": int(op[row]),
                "qp": int(qp[row]),
                "verb": verbs[verb[row]],
                "bytes": int(size[row]),
                "packets": int(packets[row]),
                "retransmissions": int(again[row]),
                "cnps": int(cnps[row]),
                "status": statuses[status[row]],
            }
            if slowdown[row] == slowdown[row]:
                figures["slowdown"] = round(float(slowdown[row]), 6)
            # A READ is asked for by its source; what arrives there comes from its destination.
            reads = verbs[verb[row]] == "read"
            towards, backwards = ("from", "to") if reads else ("to", "from")
            name = f"{labels[label[row]]} {towards} {sink}"
            process = self._process(source, 1)
            group = "reads" if reads else "sends"
            written = self._slice(process, None, name, start, None if end < 0 else end, figures, group=group)
            if written and delivered_ps[row] >= 0 and first_ps[row] >= 0:
                # An arrow from the message to its arrival.
                number = int(op[row])
                self._arrow("s", process, self._last_thread, start, number)
                other = f"{labels[label[row]]} {backwards} {source}", "answers" if reads else "receives"
                arrivals.append((int(first_ps[row]), int(delivered_ps[row]), number, sink, other))
            yield written
        arrivals.sort(key=lambda item: item[:3])
        for start, end, number, sink, (name, group) in arrivals:
            process = self._process(sink, 1)
            if self._slice(process, None, name, start, end, {"op": number}, group=group):
                self._arrow("f", process, self._last_thread, start, number)

    def _pauses(self, path: Path) -> Iterator[int]:
        table = read_table(path)
        start_ps, end_ps = integer_column(table, "start_ps"), integer_column(table, "end_ps")
        held = integer_column(table, "ingress_bytes")
        texts = {
            name: dictionary_column(table, name) for name in ("switch", "paused_node", "paused_port", "class", "end")
        }
        crossed, parent = dictionary_column(table, "crossed"), dictionary_column(table, "parent_port")

        def text(name: str, row: int) -> str:
            index, values = texts[name]
            return values[index[row]]

        for row in np.argsort(start_ps, kind="stable").tolist():
            if start_ps[row] < 0:
                continue  # its frame never came
            process = self._process(text("paused_node", row), 1)
            figures = {
                "end": text("end", row),
                "crossed": crossed[1][crossed[0][row]],
                "ingress_bytes": int(held[row]),
                "parent_port": parent[1][parent[0][row]] if parent[0][row] >= 0 else None,
            }
            track = f"paused: {text('paused_port', row)} {text('class', row)}"
            end = int(end_ps[row]) if end_ps[row] >= 0 else None
            name = f"paused by {text('switch', row)}"
            yield self._slice(process, None, name, int(start_ps[row]), end, figures, group=track)

    def _drops(self, path: Path) -> Iterator[int]:
        for batch in read_batches(path):
            for row in batch.select(["time_ps", "node", "ingress_port", "cause", "kind", "qp", "psn"]).to_pylist():
                figures = {key: row[key] for key in ("ingress_port", "kind", "qp", "psn")}
                yield self._instant(self._process(row["node"], 1), "drops", row["cause"], row["time_ps"], figures)

    def _events(self, path: Path) -> Iterator[int]:
        for row in read_table(path).to_pylist():
            process = self._process("faults and incidents", 0)
            figures = {key: row[key] for key in ("node", "port", "class", "qp", "value")}
            place = row["port"] or row["node"]
            name = f"{row['kind']} {place}" if place else row["kind"]
            yield self._instant(process, "events", name, row["time_ps"], figures)

    # Events.

    def _slice(
        self,
        process: int,
        track: str | None,
        name: str,
        start_ps: int,
        end_ps: int | None,
        figures: dict[str, Any],
        group: str | None = None,
    ) -> int:
        """A slice on a track, or on the first free one of a group; without an end, up to that of the run."""
        if end_ps is None:
            end_ps, figures = max(self.lasted_ps, start_ps), figures | {"open": True}
        if end_ps < self._from_ps or start_ps >= self._to_ps:
            return 0
        if track is None:
            assert group is not None
            lanes = self._lanes.setdefault((process, group), _Lanes())
            lane = lanes.take(start_ps, end_ps)
            track = group if lane == 0 else f"{group} {lane + 1}"
        self._last_thread = self._thread(process, track)
        self._put(
            f'{{"ph":"X","pid":{process},"tid":{self._last_thread},"ts":{_us(start_ps)},"dur":{_us(end_ps - start_ps)},'
            f'"name":{json.dumps(name)},"args":{json.dumps(figures)}}}'
        )
        return 1

    def _instant(self, process: int, track: str, name: str, time_ps: int, figures: dict[str, Any]) -> int:
        if not self._from_ps <= time_ps < self._to_ps:
            return 0
        self._put(
            f'{{"ph":"i","s":"t","pid":{process},"tid":{self._thread(process, track)},"ts":{_us(time_ps)},'
            f'"name":{json.dumps(name)},"args":{json.dumps(figures)}}}'
        )
        return 1

    def _arrow(self, phase: str, process: int, thread: int, time_ps: int, number: int) -> None:
        bind = ',"bp":"e"' if phase == "f" else ""
        self._put(
            f'{{"ph":"{phase}","cat":"message","name":"message","id":{number},"pid":{process},"tid":{thread},'
            f'"ts":{_us(time_ps)}{bind}}}'
        )

    def _process(self, name: str, rank: int) -> int:
        """Number of a process; it is named when it is first used."""
        key = (rank, name)
        if key not in self._processes:
            number = self._processes[key] = len(self._processes) + 1
            self._put(_metadata("process_name", number, 0, {"name": name}))
            self._put(_metadata("process_sort_index", number, 0, {"sort_index": rank * 10**6 + number}))
        return self._processes[key]

    def _thread(self, process: int, name: str) -> int:
        key = (process, name)
        if key not in self._threads:
            number = self._thread_count[process] = self._thread_count.get(process, 0) + 1
            self._threads[key] = number
            self._put(_metadata("thread_name", process, number, {"name": name}))
        return self._threads[key]

    def _put(self, event: str) -> None:
        self._pending.append(event)
        if len(self._pending) >= _CHUNK_EVENTS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            text = ",\n".join(self._pending)
            self._file.write(("" if self._first else ",\n").encode() + text.encode())
            self._first = False
            self._pending = []


def _metadata(kind: str, process: int, thread: int, figures: dict[str, Any]) -> str:
    return f'{{"ph":"M","pid":{process},"tid":{thread},"name":"{kind}","args":{json.dumps(figures)}}}'
