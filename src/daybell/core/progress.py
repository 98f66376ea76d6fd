"""How a run goes on: what the end of nodes leads to, decided under the run's lock.

`advance` is a generator, so that it can be driven by any store: it yields what it has to know
(`run.AnyAsk`), is sent the answer, and returns what is to be written. It reads the store as it was
before its own changes, and keeps those in mind.

One call touches about `limit` rows. What is left then is marked as todo, in the rows and in the
run, and made by the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.condition import Condition
from daybell.core.execution import State
from daybell.core.failing import FAILED_MAX, in_short, others_failed, why_failed
from daybell.core.failure import Failure
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.core.progress_alike import Herder
from daybell.core.progress_hand import Asking
from daybell.core.rules import Counts, Decision, Fate, decide
from daybell.core.run import (
    CANCELLED,
    CONDITION,
    FAIL_FAST,
    NODES_FAILED,
    OF_EXECUTION,
    PROGRESS_BATCH,
    RULE,
    UNSTARTED,
    UPSTREAM_FAILED,
    UPSTREAM_SKIPPED,
    Advance,
    AnyAsk,
    Failed,
    Leaves,
    Node,
    NodeEnd,
    NodeState,
    Run,
    RunEnd,
    Same,
    Stopping,
    Todo,
    Unstarted,
    node_name,
)


def advance(
    run: Run,
    ended: Sequence[NodeEnd] = (),
    same: Sequence[Same] = (),
    *,
    mint: Callable[[], UUID],
    limit: int = PROGRESS_BATCH,
) -> Generator[AnyAsk, Any, Advance]:
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


def note(
    run: Run, ended: Sequence[NodeEnd], *, mint: Callable[[], UUID]
) -> Generator[AnyAsk, Any, Advance]:
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


class _Progress(Herder):
    """Takes note, tells, stops, and ends."""

    _is_all_loaded = True  # no row is todo that is not in hand
    _is_stopped = False  # nothing is left that could be started

    def take(self, ended: Sequence[NodeEnd], same: Sequence[Same]) -> Asking:
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
                end = replace(end, reason=in_short(end.error))
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

    def load(self) -> Asking:
        """Take up what earlier calls have left."""
        found: list[Node] = yield Todo(self.limit)
        self._is_all_loaded = len(found) < self.limit
        for row in found:
            node = self.meet(row)
            if node.has_to_tell:
                self.telling[node.label] = node.told
            elif node.has_to_spawn:
                self.spawning[node.label] = None
            else:
                self.put(node)  # it has nothing to do, and says so

    def go_on(self) -> Asking:
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

    def _start_if_possible(self) -> Asking:
        if self.readied and self.room and self.budget > 0 and self.stopping is None:
            yield from self.start()

    # --- telling ------------------------------------------------------------------------------

    def _tell(self) -> Asking:
        """Let children know how their parents ended: one look at all of those children."""
        told: list[tuple[Node, int, int]] = []
        same, self.same = self.same if self.stopping is None else [], []
        labels = {label: None for one in same for label, _ in one.edges}
        with_conditions: list[str] = []
        edges = 0
        share = max(1, self.budget // 2) if self.room else self.budget  # the rest is for starting
        if len(self.telling) == 1 and not same:
            yield from self.start_alike(share)
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
            if fate is Fate.FAILED:
                tally.failed += 1
            elif fate is Fate.SKIPPED:
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

    def _stop(self) -> Generator[AnyAsk, Any, bool]:
        """End what was not started; False: there is nothing of that kind."""
        is_cancel = self.stopping is Stopping.CANCEL
        state, reason = NodeState.SKIPPED, FAIL_FAST
        if is_cancel:
            state, reason = NodeState.CANCELLED, CANCELLED
        limit = self.budget + self.were_open + len(self.taken)
        found: list[Node] = yield Unstarted(limit)
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

    def _cut(self, reason: str) -> Asking:
        """Mapped nodes make no more items."""
        self.spawning.clear()
        for node in [node for node in self.nodes.values() if node.has_to_spawn]:
            cut = replace(node, reason=reason)
            self.put(cut)
            if cut.items_ended == cut.spawned:
                yield from self.end_map(cut)

    # --- the end of the run -------------------------------------------------------------------

    def end_run(self) -> Generator[AnyAsk, Any, RunEnd]:
        """All nodes have ended."""
        if self.stopping is Stopping.CANCEL:
            return RunEnd(State.CANCELLED)
        if self.lost_leaves or self.stopping is Stopping.FAIL_FAST:
            why = yield from self._why_failed()
            error = Failure(type="NodesFailed", message=why)
            return RunEnd(State.DEAD, reason=NODES_FAILED, error=error.to_json())
        leaves: list[Node] = yield Leaves()
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

    def _why_failed(self) -> Generator[AnyAsk, Any, str]:
        """What people are told: why the first node failed, and how many others did."""
        found: list[Node] = yield Failed(FAILED_MAX)
        for row in found:
            self.meet(row)
        labels = {row.label for row in self.nodes.values() if _is_failed(row)}
        if self.failed is None:
            return "a node failed; see its execution"
        of = node_name(self.failed)
        yield from self.read([self.failed, of])
        why = why_failed(self.failed, self.nodes.get(self.failed))
        return f"{why}{others_failed(self.nodes.get(of), len(labels - {of}))}"

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
