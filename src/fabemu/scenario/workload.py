"""Scenario tables of the workloads; which flows they give is the business of `fabemu.workload`."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator

from fabemu.scenario.participation import Spread, Workload
from fabemu.scenario.quantity import Count, Duration, HostSet, Load, Rate, Size, Text, Time, named
from fabemu.scenario.table import Broken, Table, optional
from fabemu.scenario.training import Training


class Flow(Table):
    """One message."""

    src: Text = Field(description="sending host")
    dst: Text = Field(description="receiving host")
    size: Size = Field(description="payload; 0B is one frame without payload")
    start: Time = optional("0us", description="time after the workload's start")
    sport: Annotated[int, Strict(), Field(ge=0, le=65535)] | None = Field(
        None, description="UDP source port; default: hashed into 49152-65535"
    )
    qp: Text | None = optional(
        None,
        description="flows of one src, dst and class with the same name share a QP, in order; default: one of its own",
    )

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.src == self.dst:
            yield ("dst",), f'host "{self.src}" sends to itself'


class Flows(Workload):
    """Explicit flows."""

    kind: Literal["flows"] = "flows"
    flow: tuple[Flow, ...] = Field(description="the flows", json_schema_extra={"minItems": 1})

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if not self.flow:
            yield ("flow",), "there is no flow: add at least one [[workload.flow]]"


class FlowFile(Workload):
    """Flows from a CSV or Arrow file.

    Columns: src, dst, bytes, and start_ps, start (with unit) or start_s; optional sport, qp, class and verb.
    """

    kind: Literal["flow-file"] = "flow-file"
    path: Text = Field(description="the file, beside the scenario")


class Poisson(Spread):
    """Open-loop arrivals: independent Poisson processes, one per sender, to uniformly drawn receivers."""

    kind: Literal["poisson"] = "poisson"
    load: Load = Field(description="offered payload rate of each sender as a share of its link rate")
    sizes: Text = optional("WebSearch", description="flow-size distribution: a name that is shipped, or a file")
    sources: HostSet | None = optional(None, description="senders, if not hosts")
    destinations: HostSet | None = optional(None, description="receivers, if not hosts")


class Incast(Workload):
    """Many senders to one receiver at the same time, in waves."""

    kind: Literal["incast"] = "incast"
    receiver: Text | None = optional(None, description="the receiving host; or give receivers")
    receivers: HostSet | None = optional(None, description="several receivers, each with its own senders")
    fan_in: Count | None = optional(None, description="how many senders, drawn for each wave; or give senders")
    senders: HostSet | None = optional(None, description="the sending hosts; or give fan_in")
    size: Size = Field(description="payload of each message")
    waves: Count = optional(1, description="how many times")
    period: Duration = optional("100us", description="from one wave to the next")

    @model_validator(mode="before")
    @classmethod
    def _name_receivers(cls, values: Any) -> Any:
        # After validation `receivers` says it alone; the model keeps one way of saying a thing.
        if isinstance(values, dict) and "receivers" not in values and isinstance(values.get("receiver"), str):
            values = {**values, "receivers": values["receiver"]}
            del values["receiver"]
        return values

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if self.receiver is not None:
            yield ("receivers",), "receiver and receivers are both given: give one of them"
        elif self.receivers is None:
            yield (), 'key "receiver" is missing: the receiving host, such as "h0"'
        if (self.fan_in is None) == (self.senders is None):
            yield (), 'give one of "fan_in" (how many senders) and "senders" (which)'
        alone = _only_name(self.senders)
        if alone is not None and alone == _only_name(self.receivers):
            yield ("senders",), f'host "{alone}" sends to itself'


def _only_name(hosts: str | tuple[str, ...] | None) -> str | None:
    """Give the one host that a set names; None if it may be several."""
    if isinstance(hosts, tuple):
        return hosts[0] if len(hosts) == 1 else None
    return None if hosts is None or hosts == "all" or any(sign in hosts for sign in ":*?[") else hosts


class Permutation(Spread):
    """Every host sends to one other host, and receives from one."""

    kind: Literal["permutation"] = "permutation"
    size: Size = Field(description="payload of each message")
    count: Count = optional(1, description="messages of each host, one after another on one QP")
    pattern: Literal["random", "shift"] = optional(
        "random", description="random: drawn from the seed; shift: host i to i + shift"
    )
    shift: Annotated[int, Strict(), Field(ge=1)] = Field(1, description="of pattern = shift")


class AllToAll(Spread):
    """Every host sends to every other host."""

    kind: Literal["all-to-all"] = "all-to-all"
    size: Size = Field(description="payload from each host to each other one")
    order: Literal["shifted"] = optional("shifted", description="in step i a host sends to its i-th successor")
    mode: Literal["parallel", "sequential"] = optional(
        "parallel", description="parallel: all at once; sequential: a step begins when the send before it is done"
    )


class Collective(Spread):
    """A collective of NCCL, once or again and again."""

    kind: Literal["collective"] = "collective"
    operation: Literal[
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "broadcast",
        "reduce",
        "gather",
        "scatter",
        "all-to-all",
        "send-recv",
        "moe-dispatch",
        "moe-combine",
    ] = Field(description="what it does; docs/COLLECTIVES.md")
    size: Size | None = optional(None, description="bytes as nccl-tests counts them; moe-*: follows from tokens")
    algorithm: Literal[
        "auto", "ring", "tree", "halving-doubling", "hierarchical", "doubling", "halving", "direct", "pairwise"
    ] = optional("auto", description="auto: by size, ranks and nodes; not every operation has every algorithm")
    iterations: Count = optional(1, description="runs, one after another")
    compute: Time = optional("0us", description="every rank computes so long after each run before it begins the next")
    channels: Count = optional(1, description="parts of the data, each with rings or trees of its own")
    chunk: Size | None = optional(
        None, description="pipelining: a chunk goes on as soon as it has come; default: by algorithm; 0B: none"
    )
    qps: Count = optional(1, description="queue pairs of each connection, which share its messages")
    element: Count = optional(1, description="bytes of an element: data is cut at multiples of it")
    root: Annotated[int, Strict(), Field(ge=0)] = optional(0, description="rank, of operations that have a root")
    reduce_rate: Rate | None = optional(
        None,
        description="at which each message that has come is added, several side by side; default: at once",
    )
    order: Literal["node", "rank"] = optional(
        "node", description="rings and trees go node by node, whatever the placement, or in the order of the ranks"
    )
    matrix: tuple[tuple[Size, ...], ...] | None = optional(
        None, description="all-to-all: bytes from each rank to each, a list for each sender; instead of size"
    )
    window: Count | None = optional(None, description="all-to-all: steps that a rank may be in at once; default: all")
    tokens: Annotated[int, Strict(), Field(ge=1, le=2**40)] | None = optional(
        None, description="moe-*: tokens of all ranks together"
    )
    top_k: Count = optional(2, description="moe-*: experts that each token is sent to")
    experts: Count | None = optional(None, description="moe-*: experts, evenly on the ranks; default: one per rank")
    width: Count = optional(4096, description="moe-*: elements of a token")
    token_element: Count = optional(2, description="moe-*: bytes of each")
    routing: Literal["balanced", "random"] = optional(
        "balanced",
        description="moe-*: every expert is asked for equally often, or drawn from the seed, alike for equal layers",
    )

    @property
    def is_moe(self) -> bool:
        """Whether tokens go to experts, or come back."""
        return self.operation.startswith("moe-")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if self.stop is not None:
            yield ("stop",), "a collective runs to its end: use iterations"
        if self.verb == "read":
            yield ("verb",), "a collective writes or sends"
        if self.is_moe:
            if self.size is not None:
                yield ("size",), "follows from tokens, top_k, width and token_element: leave it out"
            if self.routing == "random" and (self.tokens or 0) > DRAWN_TOKENS_MAX:
                yield ("tokens",), f'at most {DRAWN_TOKENS_MAX:,} are drawn one by one: use routing = "balanced"'
            if self.tokens is None:
                yield (), 'key "tokens" is missing: tokens of all ranks together, such as 65536'
        elif self.matrix is not None:
            yield from self._matrix_rules(self.matrix)
        elif self.size is None:
            yield (), 'key "size" is missing: bytes of each rank, such as "64MiB"'
        if self.is_moe and self.matrix is not None:
            yield ("matrix",), "follows from tokens and routing: leave it out"
        allowed = ALGORITHMS[self.operation]
        if self.algorithm != "auto" and self.algorithm not in allowed:
            have = named(allowed) if allowed else "no choice of algorithms: leave it out"
            yield ("algorithm",), f"{self.operation} has {have}"

    def _matrix_rules(self, matrix: tuple[tuple[int, ...], ...]) -> Iterator[Broken]:
        if self.operation != "all-to-all":
            yield ("matrix",), "is for all-to-all alone"
        if self.size is not None:
            yield ("matrix",), "size and matrix are both given: give one of them"
        for row, values in enumerate(matrix):
            if len(values) != len(matrix):
                yield ("matrix", row), f"has {len(values)} entries for {len(matrix)} ranks: the matrix is square"


DRAWN_TOKENS_MAX = 2**26
"""Tokens whose experts are drawn."""

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all-reduce": ("ring", "tree", "halving-doubling", "hierarchical"),
    "all-gather": ("ring", "doubling", "direct"),
    "reduce-scatter": ("ring", "halving", "direct"),
    "broadcast": ("ring", "tree"),
    "reduce": ("ring", "tree"),
    "gather": (),
    "scatter": (),
    "all-to-all": ("pairwise", "hierarchical"),
    "send-recv": (),
    "moe-dispatch": ("pairwise", "hierarchical"),
    "moe-combine": ("pairwise", "hierarchical"),
}
"""Algorithms of every operation, besides "auto"."""


class Transfer(Workload):
    """Bulk data between two sets of hosts: checkpoints to storage, data sets from it, caches from prefill to decode."""

    kind: Literal["transfer"] = "transfer"
    sources: HostSet | None = optional(None, description="hosts that hold the data; default: those of the job")
    destinations: HostSet | None = optional(None, description="hosts that it goes to; default: those of the job")
    size: Size = Field(description="data of each source; with pattern one-to-all to each destination")
    pattern: Literal["round-robin", "striped", "one-to-one", "one-to-all"] = optional(
        "round-robin",
        description="round-robin: source i to destination i modulo their number; striped: every source cuts its data"
        " over all destinations; one-to-one: as many of each; one-to-all: every source to every destination",
    )
    count: Count = optional(1, description="how many times")
    period: Duration = optional("1ms", description="from one time to the next")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        given = sum(item is not None for item in (self.sources, self.destinations))
        if given + (self.job is not None) < 2:
            missing = "destinations" if self.destinations is None else "sources"
            yield (), f'key "{missing}" is missing: hosts, or leave one of both out and name a job'


class Goal(Spread):
    """Operations of a GOAL file: messages, computations, and what waits for what, rank by rank; docs/GOAL.md."""

    kind: Literal["goal"] = "goal"
    path: Text = Field(description="the file, beside the scenario")
    calc_unit: Duration = optional("1ns", description="what the numbers of calc count")
    qps: Literal["nic", "tag", "message"] = optional(
        "nic",
        description="messages that share a queue pair: those of one source, destination and nic number; nic: all of"
        " them; tag: those of one tag; message: none",
    )

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if self.stop is not None:
            yield ("stop",), "a trace runs to its end"
        if self.verb == "read":
            yield ("verb",), "a trace writes or sends"


AnyWorkload = Annotated[
    Flows | FlowFile | Poisson | Incast | Permutation | AllToAll | Collective | Transfer | Goal | Training,
    Field(discriminator="kind"),
]
