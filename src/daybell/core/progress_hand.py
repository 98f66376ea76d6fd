"""A run in hand: rows that were read, those that have changed, and the run's own counts.

Reading is done by generators, which any store can drive: see `core.progress`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import lru_cache
from math import inf
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.core.rules import Counts
from daybell.core.run import (
    LOST,
    AnyAsk,
    ItemResults,
    Many,
    NewNode,
    Node,
    NodeEnd,
    NodeState,
    Read,
    Results,
    Room,
    Run,
    Same,
    Spec,
    Specs,
    Start,
    Stopping,
    item_label,
)

Asking: TypeAlias = Generator[AnyAsk, Any, None]
Given: TypeAlias = tuple[Spec, str | None]  # what starting takes, and the item

OWN_FAILURES: Final = frozenset({NodeState.FAILED, NodeState.CANCELLED})


class Hand:
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
        self.many: list[Many] = []
        self.taken: set[str] = set()  # the nodes of these
        # Each by label, in the order of arrival.
        self.telling: dict[str, int] = {}  # how many of its children know; written in the end
        self.same: list[Same] = []  # that have ended alike, and whose children do not know
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

    def ask_room(self) -> Asking:
        """Ask for the tenant's quota, once, as soon as something can be started."""
        if not self._is_room_known:
            self._is_room_known = True
            self._quota = yield Room()

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

    def read(self, labels: Iterable[str]) -> Asking:
        missing = tuple(
            label
            for label in dict.fromkeys(labels)
            if label not in self.nodes and label not in self.taken
        )
        if missing:
            found: list[Node] = yield Read(missing)
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
            self.stopping = Stopping.FAIL_FAST

    def end_items(self, ended: Mapping[str, tuple[int, int]]) -> Asking:
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

    def end_map(self, node: Node) -> Asking:
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
            is_cancelled = self.stopping is Stopping.CANCEL
            lost = node.items_lost + node.items - node.spawned
            why = node.reason or f"{lost:,} of {node.items:,} items did not succeed"
            state = NodeState.CANCELLED if is_cancelled else NodeState.FAILED
            self.end(node, state, why, None if is_large else result)
        elif is_large:
            why = f"the results of its items take more than {RESULT_BYTES_MAX:,} bytes"
            self.end(node, NodeState.FAILED, why)
        else:
            self.end(node, NodeState.SUCCEEDED, None, result)

    def _of_items(self, node: Node) -> Generator[AnyAsk, Any, str]:
        found: dict[str, str] = yield ItemResults(node.label)
        ours = self.results
        labels = [item_label(node.label, index) for index in range(node.items)]
        return f"[{','.join(ours.get(one) or found.get(one, 'null') for one in labels)}]"

    # --- results and specs --------------------------------------------------------------------

    def read_results(self, labels: Iterable[str]) -> Asking:
        missing = tuple(label for label in dict.fromkeys(labels) if label not in self.results)
        if missing:
            found: dict[str, str] = yield Results(missing)
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

    def specs(self, labels: Iterable[str]) -> Generator[AnyAsk, Any, dict[str, Given]]:
        texts: dict[str, tuple[str, str | None]] = {}
        missing: list[str] = []
        for label in labels:
            new = self.new.get(label)
            if new is None:
                missing.append(label)
            else:
                texts[label] = new.spec, new.input
        if missing:
            texts |= yield Specs(tuple(missing))
        return {label: (read_spec(text), given) for label, (text, given) in texts.items()}


_decoder: Final = msgspec.json.Decoder(Spec)


@lru_cache(maxsize=256)  # items of a mapped node have the same
def read_spec(text: str) -> Spec:
    return _decoder.decode(text)
