"""How a run goes on: what the end of nodes leads to, decided under the run's lock.

`advance` is a generator, so that it can be driven by any store: it yields what it has to know
(`core.run.Ask`), is sent the answer, and returns what is to be written. It reads the store as it was
before its own changes, and keeps those in mind.

One call touches about `limit` rows. What is left then is marked as todo, in the rows and in the run,
and made by the next call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.condition import Condition
from daybell.core.execution import State
from daybell.core.failure import Failure
from daybell.core.limits import ARGS_BYTES_MAX, RESULT_BYTES_MAX
from daybell.core.outputs import filled_with_outputs, items_of
from daybell.core.rules import Decision, Fate, decide
from daybell.core.run import (
    CONDITION,
    FAIL_FAST,
    LOST,
    MAP_ITEMS_MAX,
    NODES_FAILED,
    OF_EXECUTION,
    PROGRESS_BATCH,
    RULE,
    UPSTREAM_FAILED,
    UPSTREAM_SKIPPED,
    Advance,
    Ask,
    ItemResults,
    Leaves,
    NewNode,
    Node,
    NodeEnd,
    NodeState,
    Read,
    Results,
    Run,
    RunEnd,
    Spec,
    Specs,
    Start,
    Stopping,
    Todo,
    Unstarted,
    item_label,
)
from daybell.errors import UsageError

Asking: TypeAlias = Generator[Ask, Any, None]

_OPEN: Final = frozenset({NodeState.WAITING, NodeState.READY})


def advance(
    run: Run,
    ended: Sequence[NodeEnd] = (),
    *,
    mint: Callable[[], UUID],
    limit: int = PROGRESS_BATCH,
) -> Generator[Ask, Any, Advance]:
    """Take note of ends, tell children, start what can be started, and end the run if that was
    all.
    """
    progress = _Progress(run, mint, limit)
    yield from progress.take(ended)
    if run.is_todo or (run.ready and progress.run.room):
        yield from progress.load()
    yield from progress.go_on()
    end = None
    if progress.run.left == 0:
        end = yield from progress.end()
    return progress.advance(end)


class _Progress:
    """A run in hand: the rows that were read, and those that have changed."""

    def __init__(self, run: Run, mint: Callable[[], UUID], limit: int) -> None:
        self.run = run
        self._mint = mint
        self._budget = limit
        self._limit = limit
        self._nodes: dict[str, Node] = {}
        self._changed: dict[str, None] = {}
        self._new: dict[str, NewNode] = {}
        self._results: dict[str, str] = {}
        self._starts: list[Start] = []
        self._telling: deque[str] = deque()
        self._ready: dict[str, None] = {}
        self._spawning: dict[str, None] = {}
        self._is_all_loaded = True  # no row is todo that is not in hand

    def take(self, ended: Sequence[NodeEnd]) -> Asking:
        """Executions of nodes have ended."""
        if not ended:
            return
        yield from self._read(end.label for end in ended)
        for end in ended:
            node = self._nodes.get(end.label)
            # A node that was started anew is not ended by what it ran before.
            if node is None or node.state is not NodeState.STARTED:
                continue
            if node.execution != end.execution:
                continue
            self.run = replace(self.run, running=self.run.running - 1)
            times = {"started_at": end.started_at, "finished_at": end.finished_at}
            self._end(replace(node, **times), OF_EXECUTION[end.state], end.reason, end.result)

    def load(self) -> Asking:
        """Take up what earlier calls have left."""
        found: list[Node] = yield Todo(self._limit)
        self._is_all_loaded = len(found) < self._limit
        for row in found:
            node = self._nodes.setdefault(row.label, row)
            if node.has_to_tell and node.label not in self._telling:
                self._telling.append(node.label)
            elif node.state is NodeState.READY:
                self._ready[node.label] = None
            elif node.has_to_spawn:
                self._spawning[node.label] = None

    def go_on(self) -> Asking:
        """Until nothing is left to do, or enough was done for one transaction."""
        while self._budget > 0:
            if self._telling:
                yield from self._tell()
            elif self.run.stopping is not None:
                if not (yield from self._stop()):
                    break
            elif self._spawning:
                yield from self._spawn(next(iter(self._spawning)))
            elif self._ready and self.run.room:
                yield from self._start()
            else:
                break

    # --- telling ------------------------------------------------------------------------------

    def _tell(self) -> Asking:
        """Let children know how their parents ended: one look at all of those children."""
        told: list[tuple[Node, int]] = []
        labels: dict[str, None] = {}
        edges = 0
        while self._telling and edges < self._budget:
            node = self._nodes[self._telling.popleft()]
            if self.run.stopping is not None and node.group is None:
                self._put(replace(node, told=len(node.edges)))  # nobody will be started
                continue
            until = min(len(node.edges), node.told + self._budget - edges)
            if node.group is not None:
                labels[node.group] = None
                until = 1
            else:
                labels |= dict.fromkeys(child for child, _ in node.edges[node.told : until])
            edges += until - node.told
            told.append((node, until))
        self._budget -= max(edges, 1)
        yield from self._read(labels)
        yield from self._read_results(
            node.label for node, until in told if _has_conditions(node, until)
        )
        for node, until in told:
            if node.group is not None:
                self._put(replace(node, told=1))
                yield from self._count_item(node)
                continue
            for child, condition in node.edges[node.told : until]:
                self._tell_one(node, child, condition)
            self._put(replace(self._nodes[node.label], told=until))
            if self._nodes[node.label].has_to_tell:
                self._telling.append(node.label)

    def _tell_one(self, parent: Node, label: str, condition: str | None) -> None:
        child = self._nodes[label]
        if child.state is not NodeState.WAITING:
            return  # it did not depend on this one any more
        fate = parent.fate()
        is_unmet = False
        if fate is Fate.SUCCEEDED and condition is not None:
            is_unmet = not Condition.parse(condition).holds(self._value(parent.label))
            fate = Fate.SKIPPED if is_unmet else fate
        counts = replace(child.parents, **{fate.value: getattr(child.parents, fate.value) + 1})
        child = replace(child, parents=counts)
        match decide(child.rule, counts):
            case Decision.WAIT:
                self._put(child)
            case Decision.RUN:
                self._make_ready(child)
            case Decision.FAIL:
                self._end(child, NodeState.UPSTREAM_FAILED, UPSTREAM_FAILED)
            case Decision.SKIP:
                skipped = UPSTREAM_SKIPPED if counts.skipped else RULE
                self._end(child, NodeState.SKIPPED, CONDITION if is_unmet else skipped)

    def _make_ready(self, node: Node) -> None:
        self._put(replace(node, state=NodeState.READY))
        self._ready[node.label] = None
        self.run = replace(self.run, ready=self.run.ready + 1)

    def _count_item(self, item: Node) -> Asking:
        """A mapped node ends with the last of its items."""
        assert item.group is not None
        node = self._nodes[item.group]
        is_lost = item.state is not NodeState.SUCCEEDED
        node = replace(node, items_ended=node.items_ended + 1, items_lost=node.items_lost + is_lost)
        self._put(node)
        if node.items_ended == node.items == node.spawned:
            yield from self._end_map(node)

    def _end_map(self, node: Node) -> Asking:
        if node.items_lost or self.run.stopping is not None:
            self._end(node, self._lost_state(), f"{node.items_lost:,} of {node.items:,} items")
            return
        result = None
        if node.is_wanted:
            found: dict[str, str] = yield ItemResults(node.label)
            found |= self._results
            texts = [found.get(item_label(node.label, n), "null") for n in range(node.items)]
            result = f"[{','.join(texts)}]"
            if len(result.encode()) > RESULT_BYTES_MAX:
                why = f"the results of its items take more than {RESULT_BYTES_MAX:,} bytes"
                self._end(node, NodeState.FAILED, why)
                return
        self._end(node, NodeState.SUCCEEDED, None, result)

    def _lost_state(self) -> NodeState:
        is_cancelled = self.run.stopping is Stopping.CANCEL
        return NodeState.CANCELLED if is_cancelled else NodeState.FAILED

    # --- ending -------------------------------------------------------------------------------

    def _end(
        self, node: Node, state: NodeState, reason: str | None = None, result: str | None = None
    ) -> None:
        run = self.run
        if node.state is NodeState.READY:
            run = replace(run, ready=run.ready - 1)
            self._ready.pop(node.label, None)
        if node.group is None:
            run = replace(run, left=run.left - 1)
        node = replace(node, state=state, reason=reason)
        if node.is_leaf and state in LOST:
            run = replace(run, lost_leaves=run.lost_leaves + 1)
        if state is NodeState.FAILED:
            if run.failed is None or node.group == run.failed:
                run = replace(run, failed=node.label)
            if run.fail_fast and run.stopping is None:
                run = replace(run, stopping=Stopping.FAIL_FAST)
        self.run = run
        if result is not None and node.is_wanted:
            self._results[node.label] = result
        self._put(node)
        if node.has_to_tell:
            self._telling.append(node.label)

    def _stop(self) -> Generator[Ask, Any, bool]:
        """End what was not started; False: there is nothing of that kind."""
        self._spawning.clear()
        found: list[Node] = yield Unstarted(min(self._budget, self._limit))
        rows = {row.label: self._nodes.setdefault(row.label, row) for row in found}
        rows |= {label: node for label, node in self._nodes.items() if node.state in _OPEN}
        opened = [node for node in rows.values() if node.state in _OPEN]
        is_cancel = self.run.stopping is Stopping.CANCEL
        state = NodeState.CANCELLED if is_cancel else NodeState.SKIPPED
        for node in opened:
            self._end(node, state, None if is_cancel else FAIL_FAST)
        self._budget -= max(len(opened), 1)
        cut = [node for node in self._nodes.values() if node.has_to_spawn]
        for node in cut:
            short = replace(node, items=node.spawned)
            self._put(short)
            if short.items_ended == short.items:
                yield from self._end_map(short)
        return bool(opened or cut or self._telling)

    # --- starting -----------------------------------------------------------------------------

    def _start(self) -> Asking:
        """Start what is ready, in the order of the graph, as far as there is room."""
        order = sorted(self._ready, key=lambda label: self._nodes[label].order)
        labels = order[: min(self.run.room, self._budget)]
        self._budget -= len(labels)
        specs = yield from self._specs(labels)
        outputs = {name for spec, _ in specs.values() for name in spec.outputs}
        yield from self._read_results(outputs)
        for label in labels:
            del self._ready[label]
            self.run = replace(self.run, ready=self.run.ready - 1)
            node = replace(self._nodes[label], state=NodeState.STARTED)
            spec, given = specs[label]
            try:
                if node.is_map:
                    self._begin_map(node, spec)
                else:
                    self._begin(node, spec, given)
            except UsageError as error:
                self._end(node, NodeState.FAILED, str(error))

    def _begin(self, node: Node, spec: Spec, given: str | None) -> None:
        item = None if given is None else payload.decode(given)
        args = filled_with_outputs(spec.args, self._value, item)
        if len(args.encode()) > ARGS_BYTES_MAX:
            raise UsageError(
                f"its arguments take more than {ARGS_BYTES_MAX:,} bytes with the results in them;"
                " have large data kept elsewhere, and its address passed on"
            )
        start = Start(
            id=self._mint(),
            label=node.label,
            args=args,
            job=spec.job,
            needs=spec.needs,
            queue=spec.queue,
            priority=spec.priority,
            retries=spec.retries,
            timeout=spec.timeout,
        )
        self._starts.append(start)
        self._put(replace(node, execution=start.id))
        self.run = replace(self.run, running=self.run.running + 1)

    def _begin_map(self, node: Node, spec: Spec) -> None:
        assert spec.map is not None
        count = len(items_of(spec.map, self._value))
        if count > MAP_ITEMS_MAX:
            raise UsageError(f"{count:,} items are too many; the limit is {MAP_ITEMS_MAX:,}")
        node = replace(node, items=count)
        self._put(node)
        if count:
            self._spawning[node.label] = None
        else:
            self._end(node, NodeState.SUCCEEDED, None, "[]")

    def _spawn(self, label: str) -> Asking:
        """Make items of a mapped node."""
        node = self._nodes[label]
        specs = yield from self._specs([label])
        spec, _ = specs[label]
        yield from self._read_results(spec.outputs)
        assert spec.map is not None
        items = items_of(spec.map, self._value)
        text = _item_spec(spec)
        until = min(node.items, node.spawned + self._budget)
        for index in range(node.spawned, until):
            item = Node(
                label=item_label(label, index),
                order=node.order + 1 + index,
                state=NodeState.WAITING,
                is_wanted=node.is_wanted,
                group=label,
            )
            self._new[item.label] = NewNode(item, text, payload.encode(items[index], what="item"))
            self._make_ready(item)
        self._budget -= until - node.spawned
        node = replace(self._nodes[label], spawned=until)
        self._put(node)
        if not node.has_to_spawn:
            del self._spawning[label]

    # --- the end of the run -------------------------------------------------------------------

    def end(self) -> Generator[Ask, Any, RunEnd]:
        """All nodes have ended."""
        run = self.run
        if run.stopping is Stopping.CANCEL:
            return RunEnd(State.CANCELLED)
        if run.lost_leaves or run.stopping is Stopping.FAIL_FAST:
            named = run.failed or "a node"
            error = Failure(type="NodesFailed", message=f"{named} failed; see its execution")
            return RunEnd(State.DEAD, reason=NODES_FAILED, error=error.to_json())
        leaves: list[Node] = yield Leaves()
        ended = [self._nodes.get(leaf.label, leaf) for leaf in leaves]
        succeeded = [leaf.label for leaf in ended if leaf.state is NodeState.SUCCEEDED]
        yield from self._read_results(succeeded)
        if len(leaves) == 1:
            return RunEnd(State.SUCCEEDED, self._results.get(leaves[0].label))
        kept = {
            label: msgspec.Raw(self._results[label].encode())
            for label in succeeded
            if label in self._results
        }
        result = msgspec.json.encode(kept).decode() if kept else None
        if result is not None and len(result.encode()) > RESULT_BYTES_MAX:
            result = None  # each leaf still has its own
        return RunEnd(State.SUCCEEDED, result)

    def advance(self, end: RunEnd | None) -> Advance:
        """What is to be written."""
        can_start = bool(self._ready) and self.run.room > 0
        left = bool(self._telling or self._spawning or can_start)
        is_todo = end is None and (left or not self._is_all_loaded)
        if self.run.stopping is not None and end is None and self._budget <= 0:
            is_todo = True
        changed = [self._nodes[label] for label in self._changed if label not in self._new]
        kept = {*(node.label for node in changed), *self._new}
        return Advance(
            run=replace(self.run, is_todo=is_todo),
            changed=tuple(changed),
            results={label: text for label, text in self._fresh().items() if label in kept},
            new=tuple(replace(new, node=self._nodes[label]) for label, new in self._new.items()),
            starts=tuple(self._starts),
            end=end,
        )

    # --- what is in hand ----------------------------------------------------------------------

    def _fresh(self) -> dict[str, str]:
        return {label: text for label, text in self._results.items() if label not in self._known}

    _known: frozenset[str] = frozenset()

    def _put(self, node: Node) -> None:
        self._nodes[node.label] = node
        self._changed[node.label] = None

    def _read(self, labels: Iterable[str]) -> Asking:
        missing = tuple(label for label in dict.fromkeys(labels) if label not in self._nodes)
        if missing:
            found: list[Node] = yield Read(missing)
            self._nodes |= {node.label: node for node in found}

    def _read_results(self, labels: Iterable[str]) -> Asking:
        missing = tuple(label for label in dict.fromkeys(labels) if label not in self._results)
        if missing:
            found: dict[str, str] = yield Results(missing)
            self._known |= found.keys()
            self._results |= found

    def _specs(
        self, labels: Iterable[str]
    ) -> Generator[Ask, Any, dict[str, tuple[Spec, str | None]]]:
        texts = {
            label: (new.spec, new.input)
            for label in labels
            if (new := self._new.get(label)) is not None
        }
        missing = tuple(label for label in labels if label not in texts)
        if missing:
            texts |= yield Specs(missing)
        return {label: (_spec(text), given) for label, (text, given) in texts.items()}

    def _value(self, label: str) -> Any:
        """A result, as data; of what has none, null."""
        text = self._results.get(label)
        return None if text is None else payload.decode(text)


_decoder: Final = msgspec.json.Decoder(Spec)


def _spec(text: str) -> Spec:
    return _decoder.decode(text)


def _item_spec(spec: Spec) -> str:
    return msgspec.json.encode(replace(spec, map=None)).decode()


def _has_conditions(node: Node, until: int) -> bool:
    if node.state is not NodeState.SUCCEEDED or node.group is not None:
        return False
    return any(condition is not None for _, condition in node.edges[node.told : until])
