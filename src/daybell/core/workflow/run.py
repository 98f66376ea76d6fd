"""Workflow runs: rows of runs and nodes, the queries of progress to a store, and its changes."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from daybell.core.execution import Failure, Priority, State
from daybell.core.limits import MAP_ITEMS_DEFAULT
from daybell.core.units import Instant, Seconds
from daybell.core.workflow.rules import ParentCounts, ParentOutcome, Rule

# Rows that one transaction reads, changes or starts; the next one continues.
PROGRESS_BATCH: Final = 1_000
# Items of a mapped node have the numbers between its own and that of the next node.
ORDER_STEP: Final = 1_000_000

# Reasons: of a dead run, of a node that did not run, of a node that failed before its start.
NODES_FAILED: Final = "nodes_failed"
UPSTREAM_FAILED: Final = "upstream_failed"
UPSTREAM_SKIPPED: Final = "upstream_skipped"
CONDITION: Final = "condition"
RULE: Final = "rule"
FAIL_FAST: Final = "fail_fast"
CANCELLED: Final = "cancelled"
QUOTA: Final = "quota"  # the tenant has no room for more executions

Edges: TypeAlias = tuple[tuple[str, str | None], ...]  # children, each with its condition


class NodeState(StrEnum):
    """The state of a node in its run."""

    WAITING = "waiting"  # for its parents
    READY = "ready"  # starts as soon as there is room
    STARTED = "started"  # has an execution or items
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    UPSTREAM_FAILED = "upstream_failed"  # not run; its children see a failure
    CANCELLED = "cancelled"


ENDED: Final = frozenset(NodeState) - {NodeState.WAITING, NodeState.READY, NodeState.STARTED}
UNSTARTED: Final = frozenset({NodeState.WAITING, NodeState.READY})
# Failures from the view of children, leaves and mapped nodes.
LOST: Final = frozenset({NodeState.FAILED, NodeState.UPSTREAM_FAILED, NodeState.CANCELLED})

# The node's state after the end of its execution.
OF_EXECUTION: Final[dict[State, NodeState]] = {
    State.SUCCEEDED: NodeState.SUCCEEDED,
    State.DEAD: NodeState.FAILED,
    State.CANCELLED: NodeState.CANCELLED,
    State.SKIPPED: NodeState.SKIPPED,
}


class StopReason(StrEnum):
    """The reason why a run starts no more nodes."""

    FAIL_FAST = "fail_fast"
    CANCEL = "cancel"


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parameters of a node's start, stored as JSON beside its row."""

    job: str | None = None  # the job to run at its current version; None: the run's own job
    needs: str | None = None  # the required worker capabilities; None: those of the job
    queue: str | None = None  # None here and below: the option of the job
    priority: Priority | None = None
    retries: int | None = None
    timeout: Seconds | None = None
    # A template: JSON in which {"output": …} and {"item": …} stand for data. For kinds without
    # code, the outputs that the settings refer to.
    args: str = "{}"
    outputs: tuple[str, ...] = ()  # nodes that `args` or `map` refers to
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
    told: int = 0  # the number of notified children; of an ended item: 1
    is_wanted: bool = False  # the result is used by nodes or conditions, or it is a leaf
    group: str | None = None  # of an item: its mapped node
    is_map: bool = False
    items: int = 0  # of a started mapped node: the number of items
    spawned: int = 0  # items created so far
    items_ended: int = 0
    items_lost: int = 0  # ended items that did not succeed
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
        """True if it has ended and has children to notify."""
        return self.is_ended and self.told < (len(self.edges) if self.group is None else 1)

    @property
    def has_to_spawn(self) -> bool:
        """True if it creates more items. A node that was cut short has a reason."""
        is_begun = self.state is NodeState.STARTED and self.spawned < self.items
        return is_begun and self.reason is None

    @property
    def is_todo(self) -> bool:
        """True if the next call of `advance` has to continue with it. READY nodes are found by
        their state: thousands may wait for room.
        """
        return self.has_to_tell or self.has_to_spawn

    def fate(self) -> ParentOutcome:
        """Return its end from the view of a child, without conditions."""
        if self.state is NodeState.SUCCEEDED:
            return ParentOutcome.SUCCEEDED
        return ParentOutcome.FAILED if self.state in LOST else ParentOutcome.SKIPPED


class NewNode(msgspec.Struct, frozen=True):
    """A node to insert: at the start of a run, or as an item of a mapped node."""

    node: Node
    spec: str  # JSON of Spec
    input: str | None = None  # of an item: its value as JSON


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a run, which every change of the run locks."""

    id: UUID
    total: int  # nodes of the graph; items are not counted
    left: int  # nodes that have not ended
    running: int = 0  # executions of nodes and items
    ready: int = 0  # READY rows
    max_running: int | None = None
    fail_fast: bool = False
    stopping: StopReason | None = None
    lost_leaves: int = 0
    failed: str | None = None  # the first node that failed
    is_todo: bool = False  # there is work that no transaction has started
    is_blocked: bool = False  # READY nodes wait for room in the tenant's quota


class Plan(msgspec.Struct, frozen=True):
    """The initial nodes of a run."""

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
    """The end of a node's execution."""

    label: str
    execution: UUID
    state: State
    result: str | None = None
    reason: str | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    error: str | None = None  # of a dead execution, as stored
    is_made: bool = True  # False: the execution could not be created


class SucceededGroup(msgspec.Struct, frozen=True):
    """Nodes that succeeded with the same few children, without conditions or used results; or items
    of one mapped node. The store writes their rows.
    """

    count: int
    edges: Edges = ()
    group: str | None = None  # of items: their mapped node


class Start(msgspec.Struct, frozen=True, gc=False):
    """An execution to create for a node."""

    id: UUID
    label: str
    args: str  # those of the spec, filled in
    spec: Spec


class WaitingGroup(msgspec.Struct, frozen=True):
    """Identical waiting nodes, in the order of the graph."""

    rule: Rule
    parents: ParentCounts
    spec: str
    labels: list[str]
    rows: list[Any]  # keys of the store


class StartGroup(msgspec.Struct, frozen=True):
    """Executions to create for identical nodes."""

    nodes: WaitingGroup
    parents: ParentCounts  # after the latest ends
    spec: Spec


class RunEnd(msgspec.Struct, frozen=True):
    """The end of a run."""

    state: State
    result: str | None = None
    reason: str | None = None
    error: str | None = None


class Advance(msgspec.Struct, frozen=True):
    """The changes to write in the transaction that locks the run."""

    run: Run
    changed: tuple[Node, ...] = ()
    results: dict[str, str] = {}  # of changed nodes
    new: tuple[NewNode, ...] = ()  # items, in their current state
    starts: tuple[Start, ...] = ()
    many: tuple[StartGroup, ...] = ()  # their nodes are not among `changed`
    end: RunEnd | None = None


class RunRead(Enum):
    """The rows of a run that a query asks for. Lists are in the order of the graph."""

    NODES = "by label: list[Node]"
    IDENTICAL = "waiting nodes among these, without mapped ones: list[WaitingGroup]"
    MARKED = "nodes that are todo: list[Node]"
    READY = "nodes that are READY, often and maybe thousands, by an index: list[Node]"
    UNSTARTED = "nodes that are WAITING or READY: list[Node]"
    LEAVES = "all leaves: list[Node]"
    FAILED = "nodes of the graph that are FAILED: list[Node]"
    SPECS = "(spec, input) by label: dict[str, tuple[str, str | None]]"
    RESULTS = "stored results by label: dict[str, str]"
    ITEM_RESULTS = "stored results of the items of one mapped node by label: dict[str, str]"
    QUOTA = "executions that the tenant's quota allows until the transaction ends: float, or inf"


class RunQuery(NamedTuple):
    """A query of progress to the store that has locked the run."""

    read: RunRead
    labels: tuple[str, ...] = ()
    limit: int | None = None


def item_label(group: str, index: int) -> str:
    """Return the label of an item of a mapped node."""
    return f"{group}[{index}]"


def node_name(label: str) -> str:
    """Return the node of the graph that a label belongs to."""
    return label.partition("[")[0]


class NodeView(msgspec.Struct, frozen=True):
    """A node in answers."""

    node: Node
    state: State  # of its execution; without one: waiting, skipped, cancelled, dead, …
    result: str | None = None  # if the run stores it
    run_at: Instant | None = None  # of an unfinished execution
    reason: str | None = None  # why that execution waits


class RunDetail(msgspec.Struct, frozen=True):
    """A run with its nodes."""

    run: Run
    nodes: tuple[NodeView, ...]
    finished_at: Instant | None = None


# Descriptions of failed nodes.

FAILED_MAX: Final = 1000  # nodes to count
SHORT_CHARS_MAX: Final = 200


def summarize_error(error: str) -> str:
    """Format a stored error as one line, such as "ValueError: broken for good"."""
    failure = Failure.of_kept(error)
    message = " ".join(failure.message.split())
    text = f"{failure.type}: {message}" if message else failure.type
    return text if len(text) <= SHORT_CHARS_MAX else f"{text[: SHORT_CHARS_MAX - 1]}…"


def describe_failed_node(label: str, node: Node | None) -> str:
    """Describe the failure of a node."""
    if node is None:
        return f"{label} failed"
    is_cancelled = node.state is NodeState.CANCELLED
    why = f"{label} was cancelled" if is_cancelled else f"{label} failed"
    if node.reason is not None and not is_cancelled:
        why = f"{why}: {node.reason}"
    return why if node.execution is None else f"{why} (execution {node.execution})"


def describe_other_failures(of: Node | None, nodes: int) -> str:
    """Describe further failures: items of the mapped node `of`, and `nodes` other nodes."""
    said = ""
    if of is not None and of.is_map and (items := of.items_lost + of.items - of.spawned - 1) > 0:
        said = f"; {items:,} more {'item' if items == 1 else 'items'} of it did not succeed"
    if nodes:
        said += f"; {nodes:,} more {'node' if nodes == 1 else 'nodes'} failed"
    return said
