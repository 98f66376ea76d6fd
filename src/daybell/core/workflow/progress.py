"""How a run goes on: what the end of nodes leads to, decided under the run's lock.

`advance` is a generator, so that it can be driven by any store: it yields what it has to know
(`run.AnyAsk`), is sent the answer, and returns what is to be written. It reads the store as it was
before its own changes, and keeps those in mind.

One call touches about `limit` rows. What is left then is marked as todo, in the rows and in the
run, and made by the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.execution import Failure, State
from daybell.core.limits import ARGS_BYTES_MAX, MAP_ITEMS_MAX, RESULT_BYTES_MAX
from daybell.core.workflow.expressions import Condition, fill_outputs, items_of, may_refer
from daybell.core.workflow.rules import Counts, Decision, ParentOutcome, decide
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
    AnyRunQuery,
    NewNode,
    Node,
    NodeEnd,
    NodeState,
    ReadFailed,
    ReadIdentical,
    ReadItemResults,
    ReadLeaves,
    ReadNodes,
    ReadQuota,
    ReadReady,
    ReadResults,
    ReadSpecs,
    ReadTodo,
    ReadUnstarted,
    Run,
    RunEnd,
    Spec,
    Start,
    StartGroup,
    StopReason,
    SucceededGroup,
    WaitingGroup,
    describe_failed_node,
    describe_other_failures,
    item_label,
    make_start,
    node_name,
    summarize_error,
)
from daybell.errors import UsageError

# A run in hand: rows that were read, those that have changed, and the run's own counts.
#
# Reading is done by generators, which any store can drive: see `advance`.

RunQueries: TypeAlias = Generator[AnyRunQuery, Any, None]
Given: TypeAlias = tuple[Spec, str | None]  # what starting takes, and the item

OWN_FAILURES: Final = frozenset({NodeState.FAILED, NodeState.CANCELLED})


class RunState:
    """What is known of a run, and what is to be written."""

    def __init__(self, run: Run, mint: Callable[[], UUID], limit: int) -> None:
        self.run = run
        # Counted here, and written into the run's row once.
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
        self.known: set[str] = set()  # results that came from the store
        self.starts: list[Start] = []
        self.many: list[StartGroup] = []
        self.taken: set[str] = set()  # the nodes of these
        # Each by label, in the order of arrival.
        self.telling: dict[str, int] = {}  # how many of its children know; written in the end
        self.same: list[
            SucceededGroup
        ] = []  # that have ended alike, and whose children do not know
        self.readied: dict[str, None] = {}  # READY, and in hand
        self.spawning: dict[str, None] = {}
        self.were_ready = 0  # rows in hand that the store still takes for READY
        self.were_open = 0  # the same, for WAITING or READY
        self._values: dict[str, Any] = {}
        self._is_room_known = False
        self._quota = inf  # executions that the tenant may create in this call

    @property
    def room(self) -> int:
        """How many more may be started now.

        A run that waits for its nodes has room for one, whatever the quota says: it takes room
        itself, so it would wait for itself, and runs inside runs for each other.
        """
        allowed = max(self._quota - len(self.starts), 0 if self.running else 1)
        return int(min(self._own_room, allowed))

    @property
    def is_limited(self) -> bool:
        """True if the tenant has a quota."""
        return self._quota != inf

    @property
    def is_blocked(self) -> bool:
        """True if nodes wait for room in the tenant's quota, and for nothing else."""
        is_open = self.stopping is None and self.left > 0
        return is_open and self.ready > 0 and self._own_room > 0 and not self.room

    @property
    def _own_room(self) -> int:
        if self.run.max_running is None:
            return max(1, self.limit)  # a call that only notes leaves the rest to others
        return max(0, self.run.max_running - self.running)

    def ask_room(self) -> RunQueries:
        """Ask for the tenant's quota, once, as soon as something can be started."""
        if not self._is_room_known:
            self._is_room_known = True
            self._quota = yield ReadQuota()

    # --- rows ---------------------------------------------------------------------------------

    def put(self, node: Node) -> None:
        self.nodes[node.label] = node
        self.changed[node.label] = None

    def meet(self, row: Node) -> Node:
        """A row of the store, or what has become of it here."""
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
            found: list[Node] = yield ReadNodes(missing)
            for row in found:
                self.meet(row)

    def make_ready(self, node: Node, parents: Counts) -> None:
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
        """A node of the graph has ended; an item: see `end_item`."""
        if node.state is NodeState.READY:
            self.not_ready(node.label)
        self.left -= 1
        if node.is_leaf and state in LOST:
            self.lost_leaves += 1
        self.note(node.label, state)
        if result is not None and node.is_wanted:
            self.results[node.label] = result
        told = len(node.edges)
        if execution is None:
            ended = replace(node, state=state, reason=reason, told=told)
        else:
            ended = replace(
                node,
                state=state,
                reason=reason,
                told=told,
                started_at=execution.started_at,
                finished_at=execution.finished_at,
            )
        self.put(ended)
        if told:
            self.telling[node.label] = 0

    def have_told(self, node: Node, count: int) -> None:
        """So many children of a node know how it ended."""
        if node.told != count:
            self.put(replace(node, told=count))

    def note(self, label: str, state: NodeState) -> None:
        """Something ended in this state: the first that fails by itself is remembered, and may be
        what stops the run.
        """
        if state not in OWN_FAILURES or self.stopping is not None:
            return
        if self.failed is None:
            self.failed = label
        if self.run.fail_fast:
            self.stopping = StopReason.FAIL_FAST

    def end_items(self, ended: Mapping[str, tuple[int, int]]) -> RunQueries:
        """So many items of mapped nodes have ended, and of these so many did not succeed. The node
        ends with the last of them.
        """
        for group, (count, lost) in ended.items():
            node = self.nodes[group]
            node = replace(
                node, items_ended=node.items_ended + count, items_lost=node.items_lost + lost
            )
            self.put(node)
            if node.items_ended == node.spawned and not node.has_to_spawn:
                yield from self.end_map(node)

    def end_map(self, node: Node) -> RunQueries:
        """All items of a mapped node have ended. One that was cut short has said why.

        What lost items still leaves a list, with null in their places: for children that run
        whatever became of it.
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

    def _of_items(self, node: Node) -> Generator[AnyRunQuery, Any, str]:
        found: dict[str, str] = yield ReadItemResults(node.label)
        ours = self.results
        labels = [item_label(node.label, index) for index in range(node.items)]
        return f"[{','.join(ours.get(one) or found.get(one, 'null') for one in labels)}]"

    # --- results and specs --------------------------------------------------------------------

    def read_results(self, labels: Iterable[str]) -> RunQueries:
        missing = tuple(label for label in dict.fromkeys(labels) if label not in self.results)
        if missing:
            found: dict[str, str] = yield ReadResults(missing)
            self.known |= found.keys()
            self.results |= found

    def value(self, label: str) -> Any:
        """A result, as data; of what has none, null."""
        if label in self._values:
            return self._values[label]
        text = self.results.get(label)
        value = None if text is None else payload.decode(text)
        if text is not None:
            self._values[label] = value
        return value

    def specs(self, labels: Iterable[str]) -> Generator[AnyRunQuery, Any, dict[str, Given]]:
        texts: dict[str, tuple[str, str | None]] = {}
        missing: list[str] = []
        for label in labels:
            new = self.new.get(label)
            if new is None:
                missing.append(label)
            else:
                texts[label] = new.spec, new.input
        if missing:
            texts |= yield ReadSpecs(tuple(missing))
        return {label: (read_spec(text), given) for label, (text, given) in texts.items()}


_decoder: Final = msgspec.json.Decoder(Spec)


@lru_cache(maxsize=256)  # items of a mapped node have the same
def read_spec(text: str) -> Spec:
    return _decoder.decode(text)


# How nodes of a run are started, and mapped ones make their items.


class Starter(RunState):
    """Starts what is ready, in the order of the graph."""

    def start(self) -> RunQueries:
        """As many as there is room for."""
        yield from self.ask_room()
        count = min(self.room, self.budget)
        if not count:
            return
        if self.ready > len(self.readied):
            rows: list[Node] = yield ReadReady(count + self.were_ready)
            for row in rows:
                self.meet(row)
        order = sorted(self.readied, key=lambda label: self.nodes[label].order)
        labels = order[:count]
        assert labels, "rows that are READY were counted"
        self.budget -= len(labels)
        specs = yield from self.specs(labels)
        yield from self.read_results(name for spec, _ in specs.values() for name in spec.outputs)
        for label in labels:
            node = self.nodes[label]
            spec, given = specs[label]
            try:
                if node.is_map:
                    self._begin_map(node, spec)
                else:
                    self._begin(node, spec, given)
            except UsageError as error:
                yield from self._fail(node, str(error))

    def _fail(self, node: Node, why: str) -> RunQueries:
        if node.group is None:
            self.end(node, NodeState.FAILED, why)
            return
        self.not_ready(node.label)
        self.put(replace(node, state=NodeState.FAILED, reason=why, told=1))
        self.note(node.label, NodeState.FAILED)
        yield from self.read([node.group])
        yield from self.end_items({node.group: (1, 1)})

    def _begin(self, node: Node, spec: Spec, given: str | None) -> None:
        item = None if given is None else payload.decode(given)
        args = fill_outputs(spec.args, self.value, item)
        if len(args) > ARGS_BYTES_MAX // 4 and len(args.encode()) > ARGS_BYTES_MAX:
            raise UsageError(
                f"its arguments take more than {ARGS_BYTES_MAX:,} bytes with the results in them;"
                " have large data kept elsewhere, and its address passed on"
            )
        start = make_start(spec, self.mint(), node.label, args)
        self.starts.append(start)
        self.not_ready(node.label)
        self.put(replace(node, state=NodeState.STARTED, execution=start.id))
        self.running += 1

    def _begin_map(self, node: Node, spec: Spec) -> None:
        assert spec.map is not None
        count = len(items_of(spec.map, self.value))
        if count > spec.max_items:
            raise UsageError(
                f"{count:,} items are too many; the limit is {spec.max_items:,}. Set max_items of"
                f" the node to allow more, up to {MAP_ITEMS_MAX:,}"
            )
        if not count:
            self.end(node, NodeState.SUCCEEDED, None, "[]")
            return
        self.not_ready(node.label)
        self.put(replace(node, state=NodeState.STARTED, items=count))
        self.spawning[node.label] = None

    def spawn(self) -> RunQueries:
        """Make items of a mapped node; as many as can be started in the same transaction."""
        label = next(iter(self.spawning))
        specs = yield from self.specs([label])
        spec, _ = specs[label]
        yield from self.read_results(spec.outputs)
        assert spec.map is not None
        items = items_of(spec.map, self.value)
        node = self.nodes[label]
        text = _item_spec(spec)
        until = min(node.items, node.spawned + max(1, self.budget // 2))
        for index in range(node.spawned, until):
            item = Node(
                label=item_label(label, index),
                order=node.order + 1 + index,
                state=NodeState.WAITING,
                is_wanted=node.is_wanted,
                group=label,
            )
            self.new[item.label] = NewNode(item, text, payload.encode(items[index], what="item"))
            self.make_ready(item, item.parents)
        self.budget -= until - node.spawned
        node = replace(node, spawned=until)
        self.put(node)
        if not node.has_to_spawn:
            del self.spawning[label]


@lru_cache(maxsize=256)
def _item_spec(spec: Spec) -> str:
    return msgspec.json.encode(replace(spec, map=None)).decode()


# How one node starts many that wait alike: decided about once, and started as one.
#
# Thousands of nodes after one mostly run the same, under the same rule. Whatever is different
# about one of them, it is told and started by itself.

ALIKE_MIN: Final = 20  # children that are worth a look


class GroupStarter(Starter):
    """Starts nodes by the hundred."""

    def start_identical_children(self, most: int) -> RunQueries:
        """Of the children of the one node that has something to tell, start those that are like
        others. They are `taken` from then on: their rows are not in hand, and nobody else has
        anything to say about them.
        """
        ((name, first),) = self.telling.items()
        parent = self.nodes[name]
        edges = parent.edges[first : first + most]
        if len(edges) < ALIKE_MIN or self.run.max_running is not None or self.stopping is not None:
            return
        if any(condition is not None for _, condition in edges):
            return
        known = self.nodes.keys() | self.taken
        labels = tuple(label for label, _ in edges if label not in known)
        if len(labels) < ALIKE_MIN:
            return
        yield from self.ask_room()
        if self.is_limited:
            return
        found: Sequence[WaitingGroup] = yield ReadIdentical(labels)
        for waiting in found:
            spec = read_spec(waiting.spec)
            parents = _with_one_more(waiting.parents, parent.fate())
            if decide(waiting.rule, parents) is not Decision.RUN:
                continue
            is_short = len(spec.args) <= ARGS_BYTES_MAX // 4  # else it is looked at by itself
            if spec.job is None and spec.map is None and is_short and not may_refer(spec.args):
                self.many.append(StartGroup(waiting, parents, spec))
                self.taken.update(waiting.labels)
                self.running += len(waiting.labels)
                self.budget -= len(waiting.labels)


def _with_one_more(counts: Counts, fate: ParentOutcome) -> Counts:
    match fate:
        case ParentOutcome.SUCCEEDED:
            return replace(counts, succeeded=counts.succeeded + 1)
        case ParentOutcome.FAILED:
            return replace(counts, failed=counts.failed + 1)
        case ParentOutcome.SKIPPED:
            return replace(counts, skipped=counts.skipped + 1)


def advance(
    run: Run,
    ended: Sequence[NodeEnd] = (),
    same: Sequence[SucceededGroup] = (),
    *,
    mint: Callable[[], UUID],
    limit: int = PROGRESS_BATCH,
) -> Generator[AnyRunQuery, Any, Advance]:
    """Take note of ends, tell children, start what can be started, and end the run if that was
    all. Many that have ended alike need not be told one by one.
    """
    progress = _Progress(run, mint, limit)
    yield from progress.take(ended, same)
    if run.is_todo:
        yield from progress.load()
    yield from progress.go_on()
    end = None
    if progress.left == 0:
        end = yield from progress.end_run()
    return progress.advance(end)


def record_ends(
    run: Run, ended: Sequence[NodeEnd], *, mint: Callable[[], UUID]
) -> Generator[AnyRunQuery, Any, Advance]:
    """The same for nodes that could not be started: their ends are kept, and what follows is left
    to the next call. It may be as many such nodes again.
    """
    return advance(run, ended, mint=mint, limit=0)


class _Tally:
    """How parents of one node have ended, in this pass."""

    __slots__ = ("failed", "is_unmet", "skipped", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self.skipped = 0
        self.is_unmet = False  # a condition


class _Progress(GroupStarter):
    """Takes note, tells, stops, and ends."""

    _is_all_loaded = True  # no row is todo that is not in hand
    _is_stopped = False  # nothing is left that could be started

    def take(self, ended: Sequence[NodeEnd], same: Sequence[SucceededGroup]) -> RunQueries:
        """Executions of nodes have ended."""
        if not ended and not same:
            return
        labels = [end.label for end in ended]
        groups = [node_name(label) for label in labels if label[-1] == "]"]  # of items: their node
        yield from self.read([*labels, *groups, *(one.group for one in same if one.group)])
        items: dict[str, tuple[int, int]] = {}
        for one in same:
            self.running -= one.count
            if one.group is None:
                self.left -= one.count
                self.same.append(one)
            else:
                items[one.group] = items.get(one.group, (0, 0))[0] + one.count, 0
        for end in ended:
            node = self.nodes.get(end.label)
            # A node that was started anew is not ended by what it ran before.
            if node is None or node.state is not NodeState.STARTED:
                continue
            if node.execution != end.execution:
                continue
            self.running -= 1
            if not end.is_made:
                node = replace(node, execution=None)
            state = OF_EXECUTION[end.state]
            if end.error is not None:
                end = replace(end, reason=summarize_error(end.error))
            if node.group is None:
                self.end(node, state, end.reason, end.result, end)
                continue
            self._end_item(node, end, state)
            count, lost = items.get(node.group, (0, 0))
            items[node.group] = count + 1, lost + (state is not NodeState.SUCCEEDED)
        yield from self.end_items(items)

    def _end_item(self, node: Node, end: NodeEnd, state: NodeState) -> None:
        self.note(node.label, state)
        if end.result is not None and node.is_wanted:
            self.results[node.label] = end.result
        ended = replace(
            node,
            state=state,
            reason=end.reason,
            told=1,
            started_at=end.started_at,
            finished_at=end.finished_at,
        )
        self.put(ended)

    def load(self) -> RunQueries:
        """Take up what earlier calls have left."""
        found: list[Node] = yield ReadTodo(self.limit)
        self._is_all_loaded = len(found) < self.limit
        for row in found:
            node = self.meet(row)
            if node.has_to_tell:
                self.telling[node.label] = node.told
            elif node.has_to_spawn:
                self.spawning[node.label] = None
            else:
                self.put(node)  # it has nothing to do, and says so

    def go_on(self) -> RunQueries:
        """Until nothing is left to do, or enough was done for one transaction."""
        while self.budget > 0:
            if self.telling or self.same:
                yield from self._tell()
                # Those that are in hand now need not be read and written once more.
                yield from self._start_if_possible()
            elif self.stopping is not None:
                if not (yield from self._stop()):
                    break
            elif self.spawning:
                yield from self.spawn()
                yield from self._start_if_possible()
            elif self.ready and self.room:
                yield from self.start()
            else:
                break

    def _start_if_possible(self) -> RunQueries:
        if self.readied and self.room and self.budget > 0 and self.stopping is None:
            yield from self.start()

    # --- telling ------------------------------------------------------------------------------

    def _tell(self) -> RunQueries:
        """Let children know how their parents ended: one look at all of those children."""
        told: list[tuple[Node, int, int]] = []
        same, self.same = self.same if self.stopping is None else [], []
        labels = {label: None for one in same for label, _ in one.edges}
        with_conditions: list[str] = []
        edges = 0
        share = max(1, self.budget // 2) if self.room else self.budget  # the rest is for starting
        if len(self.telling) == 1 and not same:
            yield from self.start_identical_children(share)
        for label in list(self.telling):
            if edges >= share:
                break
            node = self.nodes[label]
            first = self.telling.pop(label)
            if self.stopping is not None:
                self.have_told(node, len(node.edges))  # nobody will be started
                continue
            until = min(len(node.edges), first + share - edges)
            is_asked = False
            for child, condition in node.edges[first:until]:
                labels[child] = None
                is_asked = is_asked or condition is not None
            if is_asked and node.state is NodeState.SUCCEEDED:
                with_conditions.append(node.label)
            edges += until - first
            told.append((node, first, until))
        self.budget -= max(edges, 1)
        yield from self.read(labels)
        yield from self.read_results(with_conditions)
        tallies: dict[str, _Tally] = {}
        for one in same:
            for label, _ in one.edges:
                if label not in self.taken and self.nodes[label].state is NodeState.WAITING:
                    tallies.setdefault(label, _Tally()).succeeded += one.count
        for node, first, until in told:
            self._count(node, first, until, tallies)
            if until < len(node.edges):
                self.telling[node.label] = until
            else:
                self.have_told(node, until)
        for label, tally in tallies.items():
            self._decide(self.nodes[label], tally)

    def _count(self, parent: Node, first: int, until: int, tallies: dict[str, _Tally]) -> None:
        fate = parent.fate()
        for label, condition in parent.edges[first:until]:
            if label in self.taken or self.nodes[label].state is not NodeState.WAITING:
                continue  # it did not depend on this one any more
            tally = tallies.get(label)
            if tally is None:
                tally = tallies[label] = _Tally()
            if fate is ParentOutcome.FAILED:
                tally.failed += 1
            elif fate is ParentOutcome.SKIPPED:
                tally.skipped += 1
            elif condition is None or _condition(condition).holds(self.value(parent.label)):
                tally.succeeded += 1
            else:
                tally.skipped += 1
                tally.is_unmet = True

    def _decide(self, child: Node, tally: _Tally) -> None:
        before = child.parents
        counts = Counts(
            before.total,
            before.succeeded + tally.succeeded,
            before.failed + tally.failed,
            before.skipped + tally.skipped,
        )
        decision = decide(child.rule, counts)
        if decision is Decision.RUN:
            self.make_ready(child, counts)
            return
        child = replace(child, parents=counts)
        match decision:
            case Decision.WAIT:
                self.put(child)
            case Decision.FAIL:
                self.end(child, NodeState.UPSTREAM_FAILED, UPSTREAM_FAILED)
            case _:
                skipped = UPSTREAM_SKIPPED if counts.skipped else RULE
                self.end(child, NodeState.SKIPPED, CONDITION if tally.is_unmet else skipped)

    # --- stopping -----------------------------------------------------------------------------

    def _stop(self) -> Generator[AnyRunQuery, Any, bool]:
        """End what was not started; False: there is nothing of that kind."""
        is_cancel = self.stopping is StopReason.CANCEL
        state, reason = NodeState.SKIPPED, FAIL_FAST
        if is_cancel:
            state, reason = NodeState.CANCELLED, CANCELLED
        limit = self.budget + self.were_open + len(self.taken)
        found: list[Node] = yield ReadUnstarted(limit)
        for row in found:
            if row.label not in self.taken:
                self.meet(row)
        opened = [node for node in self.nodes.values() if node.state in UNSTARTED]
        self._is_stopped = len(found) < limit and len(opened) <= self.budget
        opened = opened[: self.budget]
        self.budget -= len(opened)
        yield from self.read(node.group for node in opened if node.group is not None)
        items: dict[str, tuple[int, int]] = {}
        for node in opened:
            if node.group is None:
                self.end(node, state, reason)
                continue
            self.not_ready(node.label)
            self.put(replace(node, state=state, reason=reason, told=1))
            count, lost = items.get(node.group, (0, 0))
            items[node.group] = count + 1, lost + 1
        yield from self._cut(reason)
        yield from self.end_items(items)
        return bool(opened or self.telling)

    def _cut(self, reason: str) -> RunQueries:
        """Mapped nodes make no more items."""
        self.spawning.clear()
        for node in [node for node in self.nodes.values() if node.has_to_spawn]:
            cut = replace(node, reason=reason)
            self.put(cut)
            if cut.items_ended == cut.spawned:
                yield from self.end_map(cut)

    # --- the end of the run -------------------------------------------------------------------

    def end_run(self) -> Generator[AnyRunQuery, Any, RunEnd]:
        """All nodes have ended."""
        if self.stopping is StopReason.CANCEL:
            return RunEnd(State.CANCELLED)
        if self.lost_leaves or self.stopping is StopReason.FAIL_FAST:
            why = yield from self._why_failed()
            error = Failure(type="NodesFailed", message=why)
            return RunEnd(State.DEAD, reason=NODES_FAILED, error=error.to_json())
        leaves: list[Node] = yield ReadLeaves()
        ended = [self.nodes.get(leaf.label, leaf) for leaf in leaves]
        succeeded = [leaf.label for leaf in ended if leaf.state is NodeState.SUCCEEDED]
        yield from self.read_results(succeeded)
        if len(leaves) == 1:
            return RunEnd(State.SUCCEEDED, self.results.get(leaves[0].label))
        kept = {
            label: msgspec.Raw(self.results[label].encode())
            for label in succeeded
            if label in self.results
        }
        result = msgspec.json.encode(kept).decode() if kept else None
        if result is not None and len(result.encode()) > RESULT_BYTES_MAX:
            result = None  # each leaf still has its own
        return RunEnd(State.SUCCEEDED, result)

    def _why_failed(self) -> Generator[AnyRunQuery, Any, str]:
        """What people are told: why the first node failed, and how many others did."""
        found: list[Node] = yield ReadFailed(FAILED_MAX)
        for row in found:
            self.meet(row)
        labels = {row.label for row in self.nodes.values() if _is_failed(row)}
        if self.failed is None:
            return "a node failed; see its execution"
        of = node_name(self.failed)
        yield from self.read([self.failed, of])
        why = describe_failed_node(self.failed, self.nodes.get(self.failed))
        return f"{why}{describe_other_failures(self.nodes.get(of), len(labels - {of}))}"

    def advance(self, end: RunEnd | None) -> Advance:
        """What is to be written."""
        for label, told in self.telling.items():
            self.have_told(self.nodes[label], told)
        if end is not None:
            is_todo = False
        elif self.telling or self.spawning or not self._is_all_loaded:
            is_todo = True
        elif self.stopping is not None:
            is_todo = not self._is_stopped
        else:
            is_todo = self.ready > 0 and self.room > 0
        run = replace(
            self.run,
            left=self.left,
            running=self.running,
            ready=self.ready,
            lost_leaves=self.lost_leaves,
            failed=self.failed,
            stopping=self.stopping,
            is_todo=is_todo,
            is_blocked=not is_todo and self.is_blocked,
        )
        changed = [self.nodes[label] for label in self.changed if label not in self.new]
        return Advance(
            run=run,
            changed=tuple(changed),
            results={
                label: text for label, text in self.results.items() if label not in self.known
            },
            new=tuple(replace(new, node=self.nodes[label]) for label, new in self.new.items()),
            starts=tuple(self.starts),
            many=tuple(self.many),
            end=end,
        )


def _is_failed(node: Node) -> bool:
    return node.group is None and node.state is NodeState.FAILED


@lru_cache(maxsize=256)
def _condition(text: str) -> Condition:
    return Condition.parse(text)
