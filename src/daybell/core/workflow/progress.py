"""Progress of a run after nodes have ended, decided under the run's lock.

`advance` is a generator that any store can drive: it yields queries (`run.RunQuery`), receives
the answers, and returns the changes to write. Queries read the state before its own changes, which
a `RunState` keeps.

One call touches about `limit` rows. The rest is marked as todo, in the rows and in the run, for the
next call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.execution import Failure, State
from daybell.core.limits import ARGS_BYTES_MAX, MAP_ITEMS_MAX, RESULT_BYTES_MAX
from daybell.core.workflow.expressions import Condition, fill_outputs, items_of, may_refer
from daybell.core.workflow.rules import NodeDecision, ParentCounts, ParentOutcome, decide
from daybell.core.workflow.run import (
    CANCELLED,
    CONDITION,
    FAIL_FAST,
    FAILED_MAX,
    LOST,
    NODES_FAILED,
    OF_EXECUTION,
    PROGRESS_BATCH,
    RULE,
    UNSTARTED,
    UPSTREAM_FAILED,
    UPSTREAM_SKIPPED,
    Advance,
    NewNode,
    Node,
    NodeEnd,
    NodeState,
    Run,
    RunEnd,
    RunQuery,
    RunRead,
    Spec,
    Start,
    StartGroup,
    StopReason,
    SucceededGroup,
    WaitingGroup,
    describe_failed_node,
    describe_other_failures,
    item_label,
    node_name,
    summarize_error,
)
from daybell.errors import UsageError

RunQueries: TypeAlias = Generator[RunQuery, Any, None]
Given: TypeAlias = tuple[Spec, str | None]  # a spec, and the value of an item

OWN_FAILURES: Final = frozenset({NodeState.FAILED, NodeState.CANCELLED})


class RunState:
    """A run in one call of `advance`: rows that were read, rows to write, and the run's counts."""

    def __init__(self, run: Run, mint: Callable[[], UUID], limit: int) -> None:
        self.run = run
        # Counts of the run's row, written once at the end.
        self.left: int = run.left
        self.running: int = run.running
        self.ready: int = run.ready
        self.lost_leaves = run.lost_leaves
        self.failed = run.failed
        self.stopping = run.stopping
        self.mint = mint
        self.limit = limit
        self.budget: int = limit
        self.nodes: dict[str, Node] = {}
        self.changed: dict[str, None] = {}
        self.new: dict[str, NewNode] = {}
        self.results: dict[str, str] = {}
        self.known: set[str] = set()  # labels of results that the store has
        self.starts: list[Start] = []
        self.start_groups: list[StartGroup] = []
        self.taken: set[str] = set()  # labels of nodes in start_groups
        # By label, in the order of arrival.
        self.notifying: dict[str, int] = {}  # ended nodes, and the number of notified children
        self.succeeded_groups: list[SucceededGroup] = []  # groups with children to notify
        self.ended_items: dict[str, tuple[int, int]] = {}  # by mapped node: ended, not succeeded
        self.readied: dict[str, None] = {}  # READY and loaded
        self.spawning: dict[str, None] = {}
        self.were_ready = 0  # loaded rows that are READY in the store
        self.were_open = 0  # loaded rows that are WAITING or READY in the store
        self.is_all_loaded = True  # every row that is todo is loaded
        self.is_stopped = False  # no unstarted node is left
        self._values: dict[str, Any] = {}
        self._is_room_known = False
        self._quota = inf  # executions that the tenant may still create in this call

    @property
    def room(self) -> int:
        """The number of nodes that may be started now.

        A run without running nodes may always start one: the run itself takes room in the quota,
        so it would wait for itself, and runs inside runs for each other.
        """
        allowed = max(self._quota - len(self.starts), 0 if self.running else 1)
        return int(min(self._own_room, allowed))

    @property
    def is_limited(self) -> bool:
        """True if the tenant has a quota."""
        return self._quota != inf

    @property
    def is_blocked(self) -> bool:
        """True if nodes wait only for room in the tenant's quota."""
        is_open = self.stopping is None and self.left > 0
        return is_open and self.ready > 0 and self._own_room > 0 and not self.room

    @property
    def _own_room(self) -> int:
        if self.run.max_running is None:
            return max(1, self.limit)  # a call with limit 0 only records
        return max(0, self.run.max_running - self.running)

    def ask_room(self) -> RunQueries:
        """Read the tenant's quota once, before the first start."""
        if not self._is_room_known:
            self._is_room_known = True
            self._quota = yield RunQuery(RunRead.QUOTA)

    # --- rows ---------------------------------------------------------------------------------

    def put(self, node: Node) -> None:
        self.nodes[node.label] = node
        self.changed[node.label] = None

    def meet(self, row: Node) -> Node:
        """Add a row of the store, unless it is loaded; return the current row."""
        node = self.nodes.get(row.label)
        if node is not None:
            return node
        self.nodes[row.label] = row
        if row.state is NodeState.READY:
            self.were_ready += 1
            self.were_open += 1
            self.readied[row.label] = None
        elif row.state is NodeState.WAITING:
            self.were_open += 1
        return row

    def read(self, labels: Iterable[str]) -> RunQueries:
        missing = tuple(
            label
            for label in dict.fromkeys(labels)
            if label not in self.nodes and label not in self.taken
        )
        if missing:
            found: list[Node] = yield RunQuery(RunRead.NODES, missing)
            for row in found:
                self.meet(row)

    def make_ready(self, node: Node, parents: ParentCounts) -> None:
        self.put(replace(node, state=NodeState.READY, parents=parents))
        self.readied[node.label] = None
        self.ready += 1

    def not_ready(self, label: str) -> None:
        self.readied.pop(label, None)
        self.ready -= 1

    # --- ends ---------------------------------------------------------------------------------

    def end(
        self,
        node: Node,
        state: NodeState,
        reason: str | None = None,
        result: str | None = None,
        execution: NodeEnd | None = None,
    ) -> None:
        """End a node of the graph, or an item, which `end_items` counts for its mapped node."""
        if node.state is NodeState.READY:
            self.not_ready(node.label)
        self.note(node.label, state)
        if result is not None and node.is_wanted:
            self.results[node.label] = result
        # `execution` has the times of a node that ran; others keep their own.
        told = len(node.edges) if node.group is None else 1
        times = execution or node
        self.put(
            replace(
                node,
                state=state,
                reason=reason,
                told=told,
                started_at=times.started_at,
                finished_at=times.finished_at,
            )
        )
        if node.group is not None:
            self.count_items(node.group, 1, int(state is not NodeState.SUCCEEDED))
            return
        self.left -= 1
        if node.is_leaf and state in LOST:
            self.lost_leaves += 1
        if told:
            self.notifying[node.label] = 0

    def count_items(self, group: str, ended: int, lost: int = 0) -> None:
        """Note ended items of a mapped node, and those that did not succeed."""
        before = self.ended_items.get(group, (0, 0))
        self.ended_items[group] = before[0] + ended, before[1] + lost

    def mark_notified(self, node: Node, count: int) -> None:
        """Set the number of notified children of a node."""
        if node.told != count:
            self.put(replace(node, told=count))

    def note(self, label: str, state: NodeState) -> None:
        """Note the first node that fails by itself, which may stop the run."""
        if state not in OWN_FAILURES or self.stopping is not None:
            return
        if self.failed is None:
            self.failed = label
        if self.run.fail_fast:
            self.stopping = StopReason.FAIL_FAST

    def end_items(self) -> RunQueries:
        """Add the ended items to their mapped nodes. The last one ends the node."""
        ended, self.ended_items = self.ended_items, {}
        yield from self.read(ended)
        for group, (count, lost) in ended.items():
            node = self.nodes[group]
            node = replace(
                node, items_ended=node.items_ended + count, items_lost=node.items_lost + lost
            )
            self.put(node)
            if node.items_ended == node.spawned and not node.has_to_spawn:
                yield from self.end_map(node)

    def end_map(self, node: Node) -> RunQueries:
        """End a mapped node after its last item. A node that was cut short has a reason already.

        Lost items leave null in the list of results, for children that run after a failure.
        """
        is_lost = bool(node.items_lost) or node.reason is not None
        result = None
        if node.is_wanted and (self.stopping is None or not is_lost):
            result = yield from self._of_items(node)
        is_large = result is not None and len(result.encode()) > RESULT_BYTES_MAX
        if is_lost:
            is_cancelled = self.stopping is StopReason.CANCEL
            lost = node.items_lost + node.items - node.spawned
            why = node.reason or f"{lost:,} of {node.items:,} items did not succeed"
            state = NodeState.CANCELLED if is_cancelled else NodeState.FAILED
            self.end(node, state, why, None if is_large else result)
        elif is_large:
            why = f"the results of its items take more than {RESULT_BYTES_MAX:,} bytes"
            self.end(node, NodeState.FAILED, why)
        else:
            self.end(node, NodeState.SUCCEEDED, None, result)

    def _of_items(self, node: Node) -> Generator[RunQuery, Any, str]:
        found: dict[str, str] = yield RunQuery(RunRead.ITEM_RESULTS, (node.label,))
        ours = self.results
        labels = [item_label(node.label, index) for index in range(node.items)]
        return f"[{','.join(ours.get(one) or found.get(one, 'null') for one in labels)}]"

    # --- results and specs --------------------------------------------------------------------

    def read_results(self, labels: Iterable[str]) -> RunQueries:
        missing = tuple(label for label in dict.fromkeys(labels) if label not in self.results)
        if missing:
            found: dict[str, str] = yield RunQuery(RunRead.RESULTS, missing)
            self.known |= found.keys()
            self.results |= found

    def value(self, label: str) -> Any:
        """Return the decoded result of a node, or None."""
        if label in self._values:
            return self._values[label]
        text = self.results.get(label)
        value = None if text is None else payload.decode(text)
        if text is not None:
            self._values[label] = value
        return value

    def specs(self, labels: Iterable[str]) -> Generator[RunQuery, Any, dict[str, Given]]:
        texts: dict[str, tuple[str, str | None]] = {}
        missing: list[str] = []
        for label in labels:
            new = self.new.get(label)
            if new is None:
                missing.append(label)
            else:
                texts[label] = new.spec, new.input
        if missing:
            texts |= yield RunQuery(RunRead.SPECS, tuple(missing))
        return {label: (read_spec(text), given) for label, (text, given) in texts.items()}


_decoder: Final = msgspec.json.Decoder(Spec)


@lru_cache(maxsize=256)  # items of a mapped node share it
def read_spec(text: str) -> Spec:
    return _decoder.decode(text)


# --- start of nodes, and items of mapped nodes -------------------------------------------------


def start_ready(state: RunState) -> RunQueries:
    """Start ready nodes in the order of the graph, as far as there is room."""
    yield from state.ask_room()
    count = min(state.room, state.budget)
    if not count:
        return
    if state.ready > len(state.readied):
        rows: list[Node] = yield RunQuery(RunRead.READY, limit=count + state.were_ready)
        for row in rows:
            state.meet(row)
    order = sorted(state.readied, key=lambda label: state.nodes[label].order)
    labels = order[:count]
    assert labels, "READY rows were counted"
    state.budget -= len(labels)
    specs = yield from state.specs(labels)
    yield from state.read_results(name for spec, _ in specs.values() for name in spec.outputs)
    for label in labels:
        node = state.nodes[label]
        spec, given = specs[label]
        try:
            if node.is_map:
                _start_map(state, node, spec)
            else:
                _start_node(state, node, spec, given)
        except UsageError as error:
            state.end(node, NodeState.FAILED, str(error))
            yield from state.end_items()


def _start_node(state: RunState, node: Node, spec: Spec, given: str | None) -> None:
    item = None if given is None else payload.decode(given)
    args = fill_outputs(spec.args, state.value, item)
    if len(args) > ARGS_BYTES_MAX // 4 and len(args.encode()) > ARGS_BYTES_MAX:
        raise UsageError(
            f"its arguments take more than {ARGS_BYTES_MAX:,} bytes with the results in them;"
            " have large data kept elsewhere, and its address passed on"
        )
    start = Start(state.mint(), node.label, args, spec)
    state.starts.append(start)
    state.not_ready(node.label)
    state.put(replace(node, state=NodeState.STARTED, execution=start.id))
    state.running += 1


def _start_map(state: RunState, node: Node, spec: Spec) -> None:
    assert spec.map is not None
    count = len(items_of(spec.map, state.value))
    if count > spec.max_items:
        raise UsageError(
            f"{count:,} items are too many; the limit is {spec.max_items:,}. Set max_items of"
            f" the node to allow more, up to {MAP_ITEMS_MAX:,}"
        )
    if not count:
        state.end(node, NodeState.SUCCEEDED, None, "[]")
        return
    state.not_ready(node.label)
    state.put(replace(node, state=NodeState.STARTED, items=count))
    state.spawning[node.label] = None


def spawn_items(state: RunState) -> RunQueries:
    """Create items of a mapped node, as many as can be started in this transaction."""
    label = next(iter(state.spawning))
    specs = yield from state.specs([label])
    spec, _ = specs[label]
    yield from state.read_results(spec.outputs)
    assert spec.map is not None
    items = items_of(spec.map, state.value)
    node = state.nodes[label]
    text = _item_spec(spec)
    until = min(node.items, node.spawned + max(1, state.budget // 2))
    for index in range(node.spawned, until):
        item = Node(
            label=item_label(label, index),
            order=node.order + 1 + index,
            state=NodeState.WAITING,
            is_wanted=node.is_wanted,
            group=label,
        )
        state.new[item.label] = NewNode(item, text, payload.encode(items[index], what="item"))
        state.make_ready(item, item.parents)
    state.budget -= until - node.spawned
    node = replace(node, spawned=until)
    state.put(node)
    if not node.has_to_spawn:
        del state.spawning[label]


@lru_cache(maxsize=256)
def _item_spec(spec: Spec) -> str:
    return msgspec.json.encode(replace(spec, map=None)).decode()


# --- identical children ------------------------------------------------------------------------
#
# Thousands of children of one node mostly run the same job under the same rule. One decision
# starts them as a group. Children that differ are notified and started one by one.

ALIKE_MIN: Final = 20  # the smallest group


def _start_identical_children(state: RunState, most: int) -> RunQueries:
    """Start identical children of the only node that notifies. They become `taken`: their rows are
    not loaded, and no other node decides about them.
    """
    ((name, first),) = state.notifying.items()
    parent = state.nodes[name]
    edges = parent.edges[first : first + most]
    if len(edges) < ALIKE_MIN or state.run.max_running is not None or state.stopping is not None:
        return
    if any(condition is not None for _, condition in edges):
        return
    known = state.nodes.keys() | state.taken
    labels = tuple(label for label, _ in edges if label not in known)
    if len(labels) < ALIKE_MIN:
        return
    yield from state.ask_room()
    if state.is_limited:
        return
    found: Sequence[WaitingGroup] = yield RunQuery(RunRead.IDENTICAL, labels)
    for waiting in found:
        spec = read_spec(waiting.spec)
        parents = waiting.parents.plus(**{parent.fate().value: 1})
        if decide(waiting.rule, parents) is not NodeDecision.RUN:
            continue
        is_short = len(spec.args) <= ARGS_BYTES_MAX // 4  # longer ones need a check of their own
        if spec.job is None and spec.map is None and is_short and not may_refer(spec.args):
            state.start_groups.append(StartGroup(waiting, parents, spec))
            state.taken.update(waiting.labels)
            state.running += len(waiting.labels)
            state.budget -= len(waiting.labels)


def advance(
    run: Run,
    ended: Sequence[NodeEnd] = (),
    same: Sequence[SucceededGroup] = (),
    *,
    mint: Callable[[], UUID],
    limit: int = PROGRESS_BATCH,
) -> Generator[RunQuery, Any, Advance]:
    """Record ends, notify children, start ready nodes, and end the run after its last node.

    `same` are groups of nodes that succeeded with the same children.
    """
    state = RunState(run, mint, limit)
    yield from take_ends(state, ended, same)
    if run.is_todo:
        yield from load_todo(state)
    yield from work_off(state)
    end = None
    if state.left == 0:
        end = yield from end_run(state)
    return collect_changes(state, end)


def record_ends(
    run: Run, ended: Sequence[NodeEnd], *, mint: Callable[[], UUID]
) -> Generator[RunQuery, Any, Advance]:
    """Record the ends of nodes that could not be started, and leave the rest to the next call."""
    return advance(run, ended, mint=mint, limit=0)


class _Notice(NamedTuple):
    """Edges of an ended parent to children that it notifies now."""

    parent: Node
    first: int
    until: int


class _Tally:
    """The ends of a node's parents in this pass."""

    __slots__ = ("failed", "is_unmet", "skipped", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self.skipped = 0
        self.is_unmet = False  # True if a condition is not met


def take_ends(
    state: RunState, ended: Sequence[NodeEnd], same: Sequence[SucceededGroup]
) -> RunQueries:
    """Record the ends of executions."""
    if not ended and not same:
        return
    labels = [end.label for end in ended]
    groups = [node_name(label) for label in labels if label[-1] == "]"]  # mapped nodes of items
    yield from state.read([*labels, *groups, *(one.group for one in same if one.group)])
    for one in same:
        state.running -= one.count
        if one.group is None:
            state.left -= one.count
            state.succeeded_groups.append(one)
        else:
            state.count_items(one.group, one.count)
    for end in ended:
        node = state.nodes.get(end.label)
        # An earlier execution does not end a node that was restarted.
        if node is None or node.state is not NodeState.STARTED:
            continue
        if node.execution != end.execution:
            continue
        state.running -= 1
        if not end.is_made:
            node = replace(node, execution=None)
        reason = end.reason if end.error is None else summarize_error(end.error)
        state.end(node, OF_EXECUTION[end.state], reason, end.result, end)
    yield from state.end_items()


def load_todo(state: RunState) -> RunQueries:
    """Read the rows that earlier calls marked as todo."""
    found: list[Node] = yield RunQuery(RunRead.MARKED, limit=state.limit)
    state.is_all_loaded = len(found) < state.limit
    for row in found:
        node = state.meet(row)
        if node.has_to_tell:
            state.notifying[node.label] = node.told
        elif node.has_to_spawn:
            state.spawning[node.label] = None
        else:
            state.put(node)  # clears the mark


def work_off(state: RunState) -> RunQueries:
    """Continue until nothing is left to do, or the budget of a transaction is spent."""
    while state.budget > 0:
        if state.notifying or state.succeeded_groups:
            yield from notify_children(state)
            # Start the loaded nodes, so that their rows are read and written only once.
            yield from _start_if_possible(state)
        elif state.stopping is not None:
            if not (yield from end_unstarted(state)):
                break
        elif state.spawning:
            yield from spawn_items(state)
            yield from _start_if_possible(state)
        elif state.ready and state.room:
            yield from start_ready(state)
        else:
            break


def _start_if_possible(state: RunState) -> RunQueries:
    if state.readied and state.room and state.budget > 0 and state.stopping is None:
        yield from start_ready(state)


# --- notices to children -----------------------------------------------------------------------


def notify_children(state: RunState) -> RunQueries:
    """Notify children of the ends of their parents: choose edges, read all children at once, count
    the ends for each child, and decide about each.
    """
    share = max(1, state.budget // 2) if state.room else state.budget  # keeps a part for starts
    groups, state.succeeded_groups = state.succeeded_groups if state.stopping is None else [], []
    if len(state.notifying) == 1 and not groups:
        yield from _start_identical_children(state, share)
    notices = _choose_edges(state, share)
    state.budget -= max(sum(until - first for _, first, until in notices), 1)
    labels = {label: None for group in groups for label, _ in group.edges}
    with_conditions: list[str] = []
    for parent, first, until in notices:
        is_asked = False
        for child, condition in parent.edges[first:until]:
            labels[child] = None
            is_asked = is_asked or condition is not None
        if is_asked and parent.state is NodeState.SUCCEEDED:
            with_conditions.append(parent.label)
    yield from state.read(labels)
    yield from state.read_results(with_conditions)
    tallies: dict[str, _Tally] = {}
    for group in groups:
        _tally_group(state, group, tallies)
    for notice in notices:
        _tally_edges(state, notice, tallies)
    for label, tally in tallies.items():
        _decide_child(state, state.nodes[label], tally)


def _choose_edges(state: RunState, most: int) -> list[_Notice]:
    """Take up to `most` edges to children that are not notified yet."""
    notices: list[_Notice] = []
    left = most
    for label in list(state.notifying):
        if left <= 0:
            break
        parent = state.nodes[label]
        first = state.notifying.pop(label)
        if state.stopping is not None:
            state.mark_notified(parent, len(parent.edges))  # no child will start
            continue
        until = min(len(parent.edges), first + left)
        left -= until - first
        notices.append(_Notice(parent, first, until))
    return notices


def _tally_group(state: RunState, group: SucceededGroup, tallies: dict[str, _Tally]) -> None:
    for label, _ in group.edges:
        if label not in state.taken and state.nodes[label].state is NodeState.WAITING:
            tallies.setdefault(label, _Tally()).succeeded += group.count


def _tally_edges(state: RunState, notice: _Notice, tallies: dict[str, _Tally]) -> None:
    parent, first, until = notice
    fate = parent.fate()
    for label, condition in parent.edges[first:until]:
        if label in state.taken or state.nodes[label].state is not NodeState.WAITING:
            continue  # already decided
        tally = tallies.get(label)
        if tally is None:
            tally = tallies[label] = _Tally()
        if fate is ParentOutcome.FAILED:
            tally.failed += 1
        elif fate is ParentOutcome.SKIPPED:
            tally.skipped += 1
        elif condition is None or _condition(condition).holds(state.value(parent.label)):
            tally.succeeded += 1
        else:
            tally.skipped += 1
            tally.is_unmet = True
    if until < len(parent.edges):
        state.notifying[parent.label] = until
    else:
        state.mark_notified(parent, until)


def _decide_child(state: RunState, child: Node, tally: _Tally) -> None:
    counts = child.parents.plus(
        succeeded=tally.succeeded, failed=tally.failed, skipped=tally.skipped
    )
    decision = decide(child.rule, counts)
    if decision is NodeDecision.RUN:
        state.make_ready(child, counts)
        return
    child = replace(child, parents=counts)
    match decision:
        case NodeDecision.WAIT:
            state.put(child)
        case NodeDecision.FAIL:
            state.end(child, NodeState.UPSTREAM_FAILED, UPSTREAM_FAILED)
        case _:
            skipped = UPSTREAM_SKIPPED if counts.skipped else RULE
            state.end(child, NodeState.SKIPPED, CONDITION if tally.is_unmet else skipped)


# --- stop of a run -----------------------------------------------------------------------------


def end_unstarted(state: RunState) -> Generator[RunQuery, Any, bool]:
    """End nodes that were not started; return False if there are none."""
    is_cancel = state.stopping is StopReason.CANCEL
    outcome, reason = NodeState.SKIPPED, FAIL_FAST
    if is_cancel:
        outcome, reason = NodeState.CANCELLED, CANCELLED
    limit = state.budget + state.were_open + len(state.taken)
    found: list[Node] = yield RunQuery(RunRead.UNSTARTED, limit=limit)
    for row in found:
        if row.label not in state.taken:
            state.meet(row)
    opened = [node for node in state.nodes.values() if node.state in UNSTARTED]
    state.is_stopped = len(found) < limit and len(opened) <= state.budget
    opened = opened[: state.budget]
    state.budget -= len(opened)
    yield from state.read(node.group for node in opened if node.group is not None)
    for node in opened:
        state.end(node, outcome, reason)
    yield from _cut_maps(state, reason)
    yield from state.end_items()
    return bool(opened or state.notifying)


def _cut_maps(state: RunState, reason: str) -> RunQueries:
    """Stop mapped nodes from creating more items."""
    state.spawning.clear()
    for node in [node for node in state.nodes.values() if node.has_to_spawn]:
        cut = replace(node, reason=reason)
        state.put(cut)
        if cut.items_ended == cut.spawned:
            yield from state.end_map(cut)


# --- end of a run ------------------------------------------------------------------------------


def end_run(state: RunState) -> Generator[RunQuery, Any, RunEnd]:
    """Decide the end of a run after all of its nodes have ended."""
    if state.stopping is StopReason.CANCEL:
        return RunEnd(State.CANCELLED)
    if state.lost_leaves or state.stopping is StopReason.FAIL_FAST:
        why = yield from _explain_failure(state)
        error = Failure(type="NodesFailed", message=why)
        return RunEnd(State.DEAD, reason=NODES_FAILED, error=error.to_json())
    leaves: list[Node] = yield RunQuery(RunRead.LEAVES)
    ended = [state.nodes.get(leaf.label, leaf) for leaf in leaves]
    succeeded = [leaf.label for leaf in ended if leaf.state is NodeState.SUCCEEDED]
    yield from state.read_results(succeeded)
    if len(leaves) == 1:
        return RunEnd(State.SUCCEEDED, state.results.get(leaves[0].label))
    kept = {
        label: msgspec.Raw(state.results[label].encode())
        for label in succeeded
        if label in state.results
    }
    result = msgspec.json.encode(kept).decode() if kept else None
    if result is not None and len(result.encode()) > RESULT_BYTES_MAX:
        result = None  # the results of the leaves remain
    return RunEnd(State.SUCCEEDED, result)


def _explain_failure(state: RunState) -> Generator[RunQuery, Any, str]:
    """Describe the failure of the first node, and the number of others."""
    found: list[Node] = yield RunQuery(RunRead.FAILED, limit=FAILED_MAX)
    for row in found:
        state.meet(row)
    labels = {row.label for row in state.nodes.values() if _is_failed(row)}
    if state.failed is None:
        return "a node failed; see its execution"
    of = node_name(state.failed)
    yield from state.read([state.failed, of])
    why = describe_failed_node(state.failed, state.nodes.get(state.failed))
    return f"{why}{describe_other_failures(state.nodes.get(of), len(labels - {of}))}"


def collect_changes(state: RunState, end: RunEnd | None) -> Advance:
    """Return the changes to write."""
    for label, told in state.notifying.items():
        state.mark_notified(state.nodes[label], told)
    if end is not None:
        is_todo = False
    elif state.notifying or state.spawning or not state.is_all_loaded:
        is_todo = True
    elif state.stopping is not None:
        is_todo = not state.is_stopped
    else:
        is_todo = state.ready > 0 and state.room > 0
    run = replace(
        state.run,
        left=state.left,
        running=state.running,
        ready=state.ready,
        lost_leaves=state.lost_leaves,
        failed=state.failed,
        stopping=state.stopping,
        is_todo=is_todo,
        is_blocked=not is_todo and state.is_blocked,
    )
    changed = [state.nodes[label] for label in state.changed if label not in state.new]
    return Advance(
        run=run,
        changed=tuple(changed),
        results={label: text for label, text in state.results.items() if label not in state.known},
        new=tuple(replace(new, node=state.nodes[label]) for label, new in state.new.items()),
        starts=tuple(state.starts),
        many=tuple(state.start_groups),
        end=end,
    )


def _is_failed(node: Node) -> bool:
    return node.group is None and node.state is NodeState.FAILED


@lru_cache(maxsize=256)
def _condition(text: str) -> Condition:
    return Condition.parse(text)
