"""Workflow runs: rows of runs and nodes, the queries that progress asks of a store, and the changes
it writes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from daybell.core.execution import Failure, Priority, State
from daybell.core.limits import MAP_ITEMS_DEFAULT
from daybell.core.units import Instant, Seconds
from daybell.core.workflow.rules import ParentCounts, ParentOutcome, Rule

# Rows that one transaction reads, changes or starts. What is left is done in the next.
PROGRESS_BATCH: Final = 1_000
# Items of a mapped node are numbered behind it, and before the next node.
ORDER_STEP: Final = 1_000_000

# Why a run is dead, why a node did not run, and why it failed without having been started.
NODES_FAILED: Final = "nodes_failed"
UPSTREAM_FAILED: Final = "upstream_failed"
UPSTREAM_SKIPPED: Final = "upstream_skipped"
CONDITION: Final = "condition"
RULE: Final = "rule"
FAIL_FAST: Final = "fail_fast"
CANCELLED: Final = "cancelled"
QUOTA: Final = "quota"  # why it was not started yet: its tenant has no room for more

Edges: TypeAlias = tuple[tuple[str, str | None], ...]  # children, each with its condition


class NodeState(StrEnum):
    """Where a node is in its run."""

    WAITING = "waiting"  # for its parents
    READY = "ready"  # to be started, as soon as there is room
    STARTED = "started"  # has an execution, or items that have
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    UPSTREAM_FAILED = "upstream_failed"  # skipped, too, but its children see a failure
    CANCELLED = "cancelled"


ENDED: Final = frozenset(NodeState) - {NodeState.WAITING, NodeState.READY, NodeState.STARTED}
UNSTARTED: Final = frozenset({NodeState.WAITING, NodeState.READY})
# Failed, as children, leaves and mapped nodes see it.
LOST: Final = frozenset({NodeState.FAILED, NodeState.UPSTREAM_FAILED, NodeState.CANCELLED})

# How the end of its execution is the end of a node.
OF_EXECUTION: Final[dict[State, NodeState]] = {
    State.SUCCEEDED: NodeState.SUCCEEDED,
    State.DEAD: NodeState.FAILED,
    State.CANCELLED: NodeState.CANCELLED,
    State.SKIPPED: NodeState.SKIPPED,
}


class StopReason(StrEnum):
    """Why nothing more is started."""

    FAIL_FAST = "fail_fast"
    CANCEL = "cancel"


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What starting a node takes; kept as JSON beside its row."""

    job: str | None = None  # an execution of that job, at its current version; None: the run's own
    needs: str | None = None  # what a worker must offer; None: what the job says
    queue: str | None = None  # None here and below: what the job says
    priority: Priority | None = None
    retries: int | None = None
    timeout: Seconds | None = None
    # A template: JSON in which {"output": …} and {"item": …} stand for data. For kinds without code
    # it says which outputs their settings refer to.
    args: str = "{}"
    outputs: tuple[str, ...] = ()  # the nodes that it, or `map`, refers to
    map: str | None = None  # JSON: a list, or a reference to one
    max_items: int = MAP_ITEMS_DEFAULT  # of that list


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node of a run, without its spec and its result."""

    label: str
    order: int
    state: NodeState
    rule: Rule = Rule.ALL_SUCCESS
    parents: ParentCounts = ParentCounts(0)
    edges: Edges = ()
    told: int = 0  # how many of its children know how it ended; of an item: 1 as soon as it has
    is_wanted: bool = False  # its result is used: by others, by conditions, or it is a leaf
    group: str | None = None  # of an item: the mapped node
    is_map: bool = False
    items: int = 0  # of a mapped node that has begun: how many there will be
    spawned: int = 0  # how many there are
    items_ended: int = 0
    items_lost: int = 0  # of these, so many did not succeed
    execution: UUID | None = None
    reason: str | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None

    @property
    def is_leaf(self) -> bool:
        return not self.edges and self.group is None

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_to_tell(self) -> bool:
        """Whether it has ended, and not everybody knows."""
        return self.is_ended and self.told < (len(self.edges) if self.group is None else 1)

    @property
    def has_to_spawn(self) -> bool:
        """Whether it makes more items. One that was cut short has a reason before it has ended."""
        is_begun = self.state is NodeState.STARTED and self.spawned < self.items
        return is_begun and self.reason is None

    @property
    def is_todo(self) -> bool:
        """Whether it waits for somebody to go on with it. Those that are READY are looked for by
        their state: there may be thousands that have to wait for room.
        """
        return self.has_to_tell or self.has_to_spawn

    def fate(self) -> ParentOutcome:
        """How its end looks to a child, conditions aside."""
        if self.state is NodeState.SUCCEEDED:
            return ParentOutcome.SUCCEEDED
        return ParentOutcome.FAILED if self.state in LOST else ParentOutcome.SKIPPED


class NewNode(msgspec.Struct, frozen=True):
    """A node to be kept: as a run begins, or when the items of a mapped one are known."""

    node: Node
    spec: str  # JSON of Spec
    input: str | None = None  # of an item: its value, as JSON


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run's own row, which is locked by who changes anything about it."""

    id: UUID
    total: int  # nodes of the graph; items are not counted
    left: int  # that have not ended
    running: int = 0  # executions of nodes and items
    ready: int = 0  # rows that are READY
    max_running: int | None = None
    fail_fast: bool = False
    stopping: StopReason | None = None
    lost_leaves: int = 0
    failed: str | None = None  # the first node that failed
    is_todo: bool = False  # something can be done now, and nobody has been found to do it
    is_blocked: bool = False  # nodes that are READY wait for room in the tenant's quota


class Plan(msgspec.Struct, frozen=True):
    """What a run begins with."""

    nodes: tuple[NewNode, ...]
    max_running: int | None = None
    fail_fast: bool = False

    def run(self, id: UUID) -> Run:
        ready = sum(new.node.state is NodeState.READY for new in self.nodes)
        return Run(
            id=id,
            total=len(self.nodes),
            left=len(self.nodes),
            ready=ready,
            max_running=self.max_running,
            fail_fast=self.fail_fast,
            is_todo=True,
        )


class NodeEnd(msgspec.Struct, frozen=True, gc=False):
    """An execution of a node has ended."""

    label: str
    execution: UUID
    state: State
    result: str | None = None
    reason: str | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    error: str | None = None  # of one that is dead, as it is kept
    is_made: bool = True  # False: the execution could not be created, so there is none to look at


def make_start(spec: Spec, id: UUID, label: str, args: str) -> Start:
    """The execution of one node."""
    return Start(
        id=id,
        label=label,
        args=args,
        job=spec.job,
        needs=spec.needs,
        queue=spec.queue,
        priority=spec.priority,
        retries=spec.retries,
        timeout=spec.timeout,
    )


class SucceededGroup(msgspec.Struct, frozen=True):
    """Nodes that have succeeded alike: with the same few children, without conditions, and results
    that nobody wants; or so many items of one mapped node. Their own rows are written by the store.
    """

    count: int
    edges: Edges = ()
    group: str | None = None  # of items: the mapped node


class Start(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution to be created for a node."""

    id: UUID
    label: str
    args: str
    job: str | None = None  # None here and below: what the run says
    needs: str | None = None
    queue: str | None = None
    priority: Priority | None = None
    retries: int | None = None
    timeout: Seconds | None = None


class WaitingGroup(msgspec.Struct, frozen=True):
    """Nodes that wait for their parents and are alike; in the order of the graph."""

    rule: Rule
    parents: ParentCounts
    spec: str
    labels: list[str]
    rows: list[Any]  # as the store knows them


class StartGroup(msgspec.Struct, frozen=True):
    """Executions to be created for nodes that start alike."""

    nodes: WaitingGroup
    parents: ParentCounts  # as they have ended by now
    spec: Spec


class RunEnd(msgspec.Struct, frozen=True):
    """How a run ends."""

    state: State
    result: str | None = None
    reason: str | None = None
    error: str | None = None


class Advance(msgspec.Struct, frozen=True):
    """What is to be written, in the transaction that has the run's lock."""

    run: Run
    changed: tuple[Node, ...] = ()
    results: dict[str, str] = {}  # of nodes among them
    new: tuple[NewNode, ...] = ()  # items, in the state that they are in by now
    starts: tuple[Start, ...] = ()
    many: tuple[
        StartGroup, ...
    ] = ()  # with the rows of these nodes, which are not among the changed
    end: RunEnd | None = None


class ReadNodes(msgspec.Struct, frozen=True):
    """Asks for nodes by label: list[Node]."""

    labels: tuple[str, ...]


class ReadIdentical(msgspec.Struct, frozen=True):
    """Asks for those of these nodes that wait and are alike: list[Waiting]. None that is mapped."""

    labels: tuple[str, ...]


class ReadTodo(msgspec.Struct, frozen=True):
    """Asks for nodes that are todo, in order: list[Node]."""

    limit: int


class ReadReady(msgspec.Struct, frozen=True):
    """Asks for nodes that are READY, in order: list[Node]. A run may have thousands of them, and
    this is asked for often: let an index answer it.
    """

    limit: int


class ReadQuota(msgspec.Struct, frozen=True):
    """Asks how many more executions the tenant's quota lets this transaction create: float. Without
    a quota it is infinite. The answer stays true until the transaction ends.
    """


class ReadUnstarted(msgspec.Struct, frozen=True):
    """Asks for nodes that are WAITING or READY, in order: list[Node]."""

    limit: int


class ReadSpecs(msgspec.Struct, frozen=True):
    """Asks for (spec, input) by label: dict[str, tuple[str, str | None]]."""

    labels: tuple[str, ...]


class ReadResults(msgspec.Struct, frozen=True):
    """Asks for kept results by label: dict[str, str]."""

    labels: tuple[str, ...]


class ReadItemResults(msgspec.Struct, frozen=True):
    """Asks for the kept results of a mapped node's items: dict[str, str] by label."""

    group: str


class ReadLeaves(msgspec.Struct, frozen=True):
    """Asks for all leaves, in order: list[Node]."""


class ReadFailed(msgspec.Struct, frozen=True):
    """Asks for nodes of the graph that are FAILED, in order: list[Node]."""

    limit: int


RunQuery: TypeAlias = (
    ReadNodes
    | ReadTodo
    | ReadReady
    | ReadUnstarted
    | ReadSpecs
    | ReadResults
    | ReadItemResults
    | ReadLeaves
    | ReadFailed
)
AnyRunQuery: TypeAlias = RunQuery | ReadIdentical | ReadQuota


def item_label(group: str, index: int) -> str:
    """What an item of a mapped node is called."""
    return f"{group}[{index}]"


def node_name(label: str) -> str:
    """The node of the graph that a label belongs to."""
    return label.partition("[")[0]


class NodeView(msgspec.Struct, frozen=True):
    """A node as people see it."""

    node: Node
    state: State  # of its execution, if it has one; else waiting, skipped, cancelled, dead, …
    result: str | None = None  # as far as the run has kept it
    run_at: Instant | None = None  # of an execution that has not ended
    reason: str | None = None  # the same: why it waits


class RunDetail(msgspec.Struct, frozen=True):
    """A run with its nodes."""

    run: Run
    nodes: tuple[NodeView, ...]
    finished_at: Instant | None = None


# What people are told of nodes that failed.

FAILED_MAX: Final = 1000  # nodes that are counted
SHORT_CHARS_MAX: Final = 200


def summarize_error(error: str) -> str:
    """A kept error in a line, such as "ValueError: broken for good"."""
    failure = Failure.of_kept(error)
    message = " ".join(failure.message.split())
    text = f"{failure.type}: {message}" if message else failure.type
    return text if len(text) <= SHORT_CHARS_MAX else f"{text[: SHORT_CHARS_MAX - 1]}…"


def describe_failed_node(label: str, node: Node | None) -> str:
    """Why a node of this label is what its run has failed of."""
    if node is None:
        return f"{label} failed"
    is_cancelled = node.state is NodeState.CANCELLED
    why = f"{label} was cancelled" if is_cancelled else f"{label} failed"
    if node.reason is not None and not is_cancelled:
        why = f"{why}: {node.reason}"
    return why if node.execution is None else f"{why} (execution {node.execution})"


def describe_other_failures(of: Node | None, nodes: int) -> str:
    """How much more there is than what a run has failed of: of the same mapped node, `of`, and how
    many other nodes.
    """
    said = ""
    if of is not None and of.is_map and (items := of.items_lost + of.items - of.spawned - 1) > 0:
        said = f"; {items:,} more {'item' if items == 1 else 'items'} of it did not succeed"
    if nodes:
        said += f"; {nodes:,} more {'node' if nodes == 1 else 'nodes'} failed"
    return said
