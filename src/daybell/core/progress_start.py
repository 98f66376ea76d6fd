"""How nodes of a run are started, and mapped ones make their items."""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.limits import ARGS_BYTES_MAX, MAP_ITEMS_MAX
from daybell.core.outputs import filled_with_outputs, items_of
from daybell.core.progress_hand import Asking, Hand
from daybell.core.run import (
    NewNode,
    Node,
    NodeState,
    Ready,
    Spec,
    item_label,
    start_of,
)
from daybell.errors import UsageError


class Starter(Hand):
    """Starts what is ready, in the order of the graph."""

    def start(self) -> Asking:
        """As many as there is room for."""
        yield from self.ask_room()
        count = min(self.room, self.budget)
        if not count:
            return
        if self.ready > len(self.readied):
            rows: list[Node] = yield Ready(count + self.were_ready)
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

    def _fail(self, node: Node, why: str) -> Asking:
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
        args = filled_with_outputs(spec.args, self.value, item)
        if len(args) > ARGS_BYTES_MAX // 4 and len(args.encode()) > ARGS_BYTES_MAX:
            raise UsageError(
                f"its arguments take more than {ARGS_BYTES_MAX:,} bytes with the results in them;"
                " have large data kept elsewhere, and its address passed on"
            )
        start = start_of(spec, self.mint(), node.label, args)
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

    def spawn(self) -> Asking:
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
