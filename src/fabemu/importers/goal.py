"""GOAL traces: operations of ranks, matched, checked and put into the terms of an operation graph.

The language is the one that LogGOPSim reads (Hoefler, Schneider & Lumsdaine, LogGOPSim, HPDC 2010), a dialect of the
Group Operation Assembly Language (Hoefler, Siebert & Lumsdaine, ICPP 2009); docs/GOAL.md says what is read of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.importers.goal_text import (
    CALC,
    END,
    IREQUIRES,
    NUM_RANKS,
    RANK,
    RECV,
    REQUIRES,
    SEND,
    SHOWN_MAX,
    Complaints,
    Statements,
    read_statements,
    read_text,
)
from fabemu.precedence import cycle, levels

Int64s = NDArray[np.int64]

RANKS_MAX = 2**24
_CYCLE_SHOWN = 16


@dataclass(frozen=True, eq=False, kw_only=True)
class GoalTrace:
    """A trace whose operations match and can all be done.

    Operations have the order of the file; behind them come the beginnings of those that others need to have begun,
    as calcs of length 0. A message of a rank to itself is two calcs of length 0, one after the other.

    Attributes
    ----------
    source
        The file.
    rank_count
        Number of ranks.
    kind
        (n,) uint8, SEND, RECV or CALC of `fabemu.importers.goal_text`.
    rank
        (n,) int64, rank that does it.
    value
        (n,) int64, bytes of a message; of a calc its number, in a unit that the file does not say.
    peer, tag, nic
        (n,) int64, of messages.
    send
        (n,) int64, of a recv the send that it receives, else -1.
    line
        (n,) int64, where it stands in the file.
    before, after
        (E,) int64, the operation in `after` begins when the one in `before`, of the same rank, is done.
    level
        (n,) int64, the longest chain of dependencies and messages that leads to each.
    uses_cpus
        Whether any operation names a cpu other than 0.
    """

    source: str
    rank_count: int
    kind: NDArray[np.uint8]
    rank: Int64s
    value: Int64s
    peer: Int64s
    tag: Int64s
    nic: Int64s
    send: Int64s
    line: Int64s
    before: Int64s
    after: Int64s
    level: Int64s
    uses_cpus: bool

    def __len__(self) -> int:
        """Number of operations."""
        return len(self.kind)

    def message_edges(self) -> tuple[Int64s, Int64s]:
        """(M,) sends, and (M,) their recvs."""
        received = np.flatnonzero(self.send >= 0)
        return self.send[received], received


def read_goal(path: Path) -> GoalTrace:
    """Read a GOAL file.

    Raises
    ------
    InputError
        It cannot be read or is wrong: at most 20 mistakes, each with its line.
    """
    return parse_goal(read_text(path), str(path))


def parse_goal(text: bytes, source: str) -> GoalTrace:
    """Read a GOAL text; `source` names it in messages.

    Raises
    ------
    InputError
        It is wrong: at most 20 mistakes, each with its line.
    """
    complaints = Complaints(source)
    statements = read_statements(text, complaints)
    rank_of, rank_count = _blocks(statements, complaints)
    rows = np.flatnonzero((statements.form <= CALC) & (rank_of >= 0))
    _check_peers(statements, rows, rank_count, complaints)
    relation, before, after = _relations(statements, rows, rank_of, complaints)
    complaints.check()

    kind, rank = statements.form[rows], rank_of[rows]
    value, peer, tag = statements.value[rows], statements.peer[rows], statements.tag[rows]
    line = statements.line[rows]
    send = _matched(kind, rank, peer, tag, line, rank_count, complaints)
    complaints.check()
    received = np.flatnonzero(send >= 0)
    for recv in received[value[received] != value[send[received]]][: SHOWN_MAX + 1].tolist():
        sender = int(send[recv])
        complaints.add(
            line[recv],
            f"rank {rank[recv]} receives {value[recv]:,} B, but the matching send of rank {rank[sender]} "
            f"(line {line[sender]}, tag {tag[recv]}) has {value[sender]:,} B",
        )
    complaints.check()

    origin, before, after = _begun(len(rows), statements.form[relation] == IREQUIRES, before, after)
    own = np.flatnonzero((kind == RECV) & (rank == peer))
    before, after = np.concatenate([before, send[own]]), np.concatenate([after, own])
    copies = np.concatenate([own, send[own]])
    kind[copies], value[copies], send[own] = CALC, 0, -1
    more = len(origin) - len(rows)
    zeros = np.zeros(more, dtype=np.int64)
    trace = GoalTrace(
        source=source,
        rank_count=rank_count,
        kind=np.concatenate([kind, np.full(more, CALC, dtype=np.uint8)]),
        rank=rank[origin],
        value=np.concatenate([value, zeros]),
        peer=np.concatenate([peer, zeros]),
        tag=np.concatenate([tag, zeros]),
        nic=np.concatenate([statements.nic[rows], zeros]),
        send=np.concatenate([send, zeros - 1]),
        line=line[origin],
        before=before,
        after=after,
        level=np.zeros(0, dtype=np.int64),
        uses_cpus=bool(statements.cpu[rows].any()),
    )
    sends, recvs = trace.message_edges()
    all_before, all_after = np.concatenate([before, sends]), np.concatenate([after, recvs])
    level = levels(len(trace), all_before, all_after)
    if (level < 0).any():
        ring = cycle(level, all_before, all_after)
        _complain_of_cycle([int(origin[item]) for item in ring], statements, rows, rank, complaints)
    complaints.check()
    object.__setattr__(trace, "level", level)
    return trace


def _blocks(statements: Statements, complaints: Complaints) -> tuple[Int64s, int]:
    """(n,) rank of every statement, -1 outside of ranks; and the number of ranks."""
    form, line, value = statements.form, statements.line, statements.value
    rank_of = np.full(len(form), -1, dtype=np.int64)
    count: int | None = None
    begun: dict[int, int] = {}
    opened: int | None = None  # row of the rank that is open
    wrong = bool(complaints)

    def close(end: int) -> None:
        if opened is not None:
            rank_of[opened + 1 : end] = value[opened]

    for row in np.flatnonzero((form == NUM_RANKS) | (form == RANK) | (form == END)).tolist():
        number, at = int(value[row]), int(line[row])
        if form[row] == NUM_RANKS:
            if count is not None:
                complaints.add(at, "num_ranks is given again")
            elif opened is not None or begun:
                complaints.add(at, "num_ranks must come before the first rank")
            if not 1 <= number <= RANKS_MAX:
                complaints.add(at, f"num_ranks is {number:,}; 1 to {RANKS_MAX:,} are possible")
            count = number if count is None else count
        elif form[row] == RANK:
            if opened is not None:
                complaints.add(at, f"rank {value[opened]} of line {line[opened]} is still open: a }} is missing")
                close(row)
            if count is not None and number >= count:
                complaints.add(at, f"there is no rank {number}: num_ranks is {count}, so ranks are 0 to {count - 1}")
            if number in begun:
                complaints.add(at, f"rank {number} begins again; line {begun[number]} has it already")
            begun.setdefault(number, at)
            opened = row
        elif opened is None:
            complaints.add(at, "a } without a rank that is open")
        else:
            close(row)
            opened = None
    if opened is not None:
        close(len(form))
        complaints.add(int(line[opened]), f"rank {value[opened]} has no end: the file ends before its }}")
    if count is None and not wrong:
        complaints.add(0, 'the number of ranks is missing: the file begins with "num_ranks N"')
    for row in np.flatnonzero((rank_of < 0) & (form <= IREQUIRES))[: SHOWN_MAX + 1].tolist():
        complaints.add(int(line[row]), 'outside of any rank: operations stand between "rank R {" and "}"')
    return rank_of, count or 0


def _check_peers(statements: Statements, rows: Int64s, rank_count: int, complaints: Complaints) -> None:
    unknown = rows[(statements.form[rows] != CALC) & (statements.peer[rows] >= rank_count)]
    for row in unknown[: SHOWN_MAX + 1].tolist():
        verb = "send to" if statements.form[row] == SEND else "recv from"
        there_are = f"ranks are 0 to {rank_count - 1}" if rank_count else "num_ranks says how many there are"
        complaints.add(int(statements.line[row]), f"{verb} rank {statements.peer[row]}: {there_are}")


def _relations(
    statements: Statements, rows: Int64s, rank_of: Int64s, complaints: Complaints
) -> tuple[Int64s, Int64s, Int64s]:
    """Rows of all relations, and the operations that each is about: what is awaited, and what waits."""
    named = np.flatnonzero(statements.name[rows].any(axis=1))
    labels, ranks = statements.name[rows[named]], rank_of[rows[named]]
    relation = np.flatnonzero((statements.form == REQUIRES) | (statements.form == IREQUIRES))
    relation = relation[rank_of[relation] >= 0]
    asked_names = np.concatenate([statements.name[relation], statements.other[relation]])
    asked_ranks = np.tile(rank_of[relation], 2)
    # Equal labels of one rank get the same number; what has none is sought in vain.
    code = _numbered(np.concatenate([labels, asked_names]), np.concatenate([ranks, asked_ranks]))
    operation_of = np.full(int(code.max(initial=-1)) + 1, -1, dtype=np.int64)
    own = code[: len(named)]
    operation_of[own[::-1]] = named[::-1]
    for at in np.flatnonzero(operation_of[own] != named)[: SHOWN_MAX + 1].tolist():
        row, first = int(rows[named[at]]), int(rows[operation_of[own[at]]])
        complaints.add(
            int(statements.line[row]),
            f'label "{statements.label(row)}" is taken: rank {ranks[at]} has it on line {statements.line[first]}',
        )
    found = operation_of[code[len(named) :]]
    for at in np.flatnonzero(found < 0)[: SHOWN_MAX + 1].tolist():
        row = int(relation[at % len(relation)])
        label = statements.label(row, other=at >= len(relation))
        elsewhere = np.flatnonzero((labels == asked_names[at]).all(axis=1))
        hint = f"; rank {ranks[elsewhere[0]]} has one, but only a message crosses ranks" if len(elsewhere) else ""
        complaints.add(int(statements.line[row]), f'rank {asked_ranks[at]} has no operation "{label}"{hint}')
    half = len(relation)
    return relation, found[half:], found[:half]


def _numbered(labels: NDArray[np.uint64], ranks: Int64s) -> Int64s:
    """(n,) the same number for equal labels of one rank, others for others."""
    mixed = (labels[:, 0] * np.uint64(0x9E3779B97F4A7C15)) ^ (labels[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= (ranks.astype(np.uint64) + np.uint64(1)) * np.uint64(0x94D049BB133111EB)
    order = np.argsort(mixed)
    sorted_mix = mixed[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = sorted_mix[1:] != sorted_mix[:-1]
    differs = (labels[order][1:] != labels[order][:-1]).any(axis=1) | (ranks[order][1:] != ranks[order][:-1])
    if (differs & ~new[1:]).any():  # two labels of one mix
        order = np.lexsort((labels[:, 1], labels[:, 0], ranks))
        new[1:] = (labels[order][1:] != labels[order][:-1]).any(axis=1) | (ranks[order][1:] != ranks[order][:-1])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return number


def _matched(
    kind: NDArray[np.uint8],
    rank: Int64s,
    peer: Int64s,
    tag: Int64s,
    line: Int64s,
    rank_count: int,
    complaints: Complaints,
) -> Int64s:
    """(n,) the send of every recv: of one source, destination and tag the k-th receives the k-th."""
    send = np.full(len(kind), -1, dtype=np.int64)
    messages = np.flatnonzero(kind != CALC)
    sends = kind[messages] == SEND
    src = np.where(sends, rank[messages], peer[messages])
    dst = np.where(sends, peer[messages], rank[messages])
    order = np.lexsort((tag[messages], src * rank_count + dst))
    of_pair, of_tag, is_send = (src * rank_count + dst)[order], tag[messages][order], sends[order]
    operation = messages[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (of_pair[1:] != of_pair[:-1]) | (of_tag[1:] != of_tag[:-1])
    group = np.cumsum(new) - 1
    sent = np.bincount(group[is_send], minlength=int(new.sum()))
    received = np.bincount(group[~is_send], minlength=int(new.sum()))
    if (sent == received).all():
        send[operation[~is_send]] = operation[is_send]
        return send
    # Those beyond the others' number are alone; the file's order tells which.
    for at in np.flatnonzero(sent != received)[: SHOWN_MAX + 1].tolist():
        here = np.flatnonzero(group == at)
        more = is_send[here] == (sent[at] > received[at])
        alone = int(operation[here[more][min(sent[at], received[at])]])
        a, b = divmod(int(of_pair[here[0]]), rank_count)
        what = "send has no recv" if sent[at] > received[at] else "recv has no send"
        complaints.add(
            int(line[alone]),
            f"this {what}: rank {a} sends {sent[at]:,} to rank {b} with tag {of_tag[here[0]]}, "
            f"rank {b} receives {received[at]:,}",
        )
    return send


def _begun(count: int, begins: NDArray[np.bool_], before: Int64s, after: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Put "has begun" into terms of "is done".

    What others need to have begun gets its beginning as an operation of its own, done when all that it waits for is
    done; the others wait for that. What waits for nothing has begun from the start.

    Gives (n,) the operation that each new number comes from, and the edges.
    """
    origin = np.arange(count)
    if not begins.any():
        return origin, before, after
    waits = np.zeros(count, np.bool_)
    waits[after] = True
    awaited = np.zeros(count, np.bool_)
    awaited[before[begins]] = True
    split = np.flatnonzero(waits & awaited)
    beginning = np.full(count, -1, dtype=np.int64)
    beginning[split] = count + np.arange(len(split))
    kept = ~begins | waits[before]
    begins, before, after = begins[kept], before[kept], after[kept]
    before = np.where(begins, beginning[before], before)
    after = np.where(beginning[after] >= 0, beginning[after], after)
    return (
        np.concatenate([origin, split]),
        np.concatenate([before, beginning[split]]),
        np.concatenate([after, split]),
    )


def _complain_of_cycle(
    ring: list[int], statements: Statements, rows: Int64s, rank: Int64s, complaints: Complaints
) -> None:
    """Show the operations that wait for each other."""
    # An operation and its beginning are one to the user.
    ring = [item for at, item in enumerate(ring) if len(ring) == 1 or item != ring[at - 1]]
    parts: list[str] = []
    for at, operation in enumerate([*ring[:_CYCLE_SHOWN], ring[0]]):
        row = int(rows[operation])
        label = statements.label(row) or f"line {statements.line[row]}"
        if at == _CYCLE_SHOWN < len(ring):
            parts.append(f"({len(ring) - _CYCLE_SHOWN:,} more)")
        changed = not parts or parts[-1].startswith("(") or rank[operation] != rank[ring[at - 1]]
        parts.append(f"rank {rank[operation]}: {label}" if changed else label)
    first = int(statements.line[rows[ring[0]]])
    complaints.add(first, f"operations wait for each other, so none of them begins: {' -> '.join(parts)}")
