"""Fair shares: in which order the keys of a queue take turns.

A key of the arguments, such as the customer, divides the backlog of a queue. Keys take turns, each
as often as its weight says. A share with several keys is a tree: users share the turns of their
organization, so an organization gains nothing by many users.

Each node of the tree has a virtual time, `used`: the turns that it has taken, divided by its
weight. The next turn is that of the child with the lowest time. `clock` of a node is the time of
the last turn below it. A new child begins there, so time without work is not saved up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import islice
from typing import Any, Final, TypeVar, cast

import msgspec

from daybell.core.collapse import item_of, parse_key
from daybell.errors import UsageError, shown

LEVELS_MAX: Final = 4
WEIGHTS_MAX: Final = 1_000
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1_000_000.0
USER: Final = "user_id"  # the key of `share=True`
ROOT: Final = "*"  # the path of the root of a tree
PARKED_MAX: Final = 50  # executions of a leaf that wait for limits; then it takes no turns
TURN_SECONDS: Final = 1e-6  # apart in `run_at`, in the order of the turns
LATE_SECONDS: Final = 0.05  # work that has had its turn for so long counts for the next claim

T = TypeVar("T")


class ShareOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fair share: the keys, outermost first, and weights other than 1."""

    key: tuple[str, ...]
    weights: dict[str, float] = {}  # by value; those of several levels are joined by a slash

    def path(
        self, args: Mapping[str, Any], last: str = "", *, user_id: str | None = None
    ) -> SharePath:
        """Return the place of an execution with these arguments, on the last level as given.
        Without an argument `user_id`, the user of the job is the key.
        """
        if self.key == (USER,) and USER not in args:
            return SharePath((user_id or "", last), self.weights)
        return SharePath((*(item_of(key, args) for key in self.key), last), self.weights)


class SharePath(msgspec.Struct, frozen=True):
    """A leaf of the tree, by the values of its keys. The last level has no weights."""

    items: tuple[str, ...]
    weights: Mapping[str, float]

    @property
    def leaf(self) -> str:
        """The text of the leaf."""
        return _text(self.items)

    @property
    def nodes(self) -> list[tuple[str, str, float]]:
        """The nodes from the root to the leaf, each with its parent and its weight."""
        depth = len(self.items)
        names = [ROOT, *(_text(self.items[:n]) + "*" for n in range(1, depth)), self.leaf]
        weights = [self.weights.get("/".join(self.items[:n]), 1.0) for n in range(1, depth)]
        return list(zip(names[1:], names[:-1], [*weights, 1.0], strict=True))


def _text(items: Sequence[str]) -> str:
    return msgspec.json.encode(items).decode()


class ShareNode(msgspec.Struct):
    """A node of the tree. A leaf has a lane."""

    key: int
    parent: int
    used: float
    clock: float
    weight: float
    lane: int | None
    turns: int = 0  # that it may take now
    taken: int = 0
    order: list[int] = []  # of its children, by their turns


def spread(nodes: Iterable[ShareNode], turns: int) -> list[int]:
    """Return the keys of the siblings that take the next turns. No more than `turns` siblings take
    part: those with the lowest times.
    """
    heap = [(node.used, node.key, node.weight) for node in nodes]
    heapify(heap)
    order: list[int] = []
    while heap and len(order) < turns:
        used, key, weight = heap[0]
        heapreplace(heap, (used + 1 / weight, key, weight))
        order.append(key)
    return order


class Turns:
    """The next turns of a tree. The caller reads the children of `frontier` until there is none,
    then the work of `leaves`.
    """

    def __init__(self, root: ShareNode, turns: int) -> None:
        root.turns = turns
        self._root = root.key
        self._nodes = {root.key: root}
        self.frontier = [root]
        self.leaves: list[ShareNode] = []
        self.bare: list[ShareNode] = []  # nodes without children, of those asked for

    def descend(self, children: Iterable[ShareNode]) -> None:
        """Divide the turns of the frontier among its children, and go on to those."""
        families: dict[int, list[ShareNode]] = {node.key: [] for node in self.frontier}
        for child in children:
            families[child.parent].append(child)
            self._nodes[child.key] = child
        self.frontier = list[ShareNode]()
        for key, family in families.items():
            node = self._nodes[key]
            if not family and key != self._root:
                self.bare.append(node)
            for child in family:
                child.turns = 0
            node.order = spread(family, node.turns)
            for chosen, turns in Counter(node.order).items():
                child = self._nodes[chosen]
                child.turns = turns
                (self.frontier if child.lane is None else self.leaves).append(child)

    def sequence(self, work: Mapping[int, Sequence[T]]) -> list[T]:
        """Return the work of the leaves, by lane, in the order of the turns."""

        def walk(node: ShareNode) -> Iterator[T]:
            if node.lane is not None:
                yield from work.get(node.lane, ())
                return
            below = {key: walk(self._nodes[key]) for key in node.order}
            for key in node.order:
                yield from islice(below[key], 1)

        return list(walk(self._nodes[self._root]))

    def finish(self, taken: Mapping[int, int]) -> tuple[list[ShareNode], list[ShareNode]]:
        """Note how many turns were taken, by lane. Return the nodes that have changed, and those
        that have no work. The caller leaves these out from now on. In the end it raises their time
        to the clock above them, so that they save no turns up.
        """
        for leaf in self.leaves:
            node: ShareNode | None = leaf
            while node is not None:
                node.taken += taken.get(leaf.lane or 0, 0)
                node = self._nodes.get(node.parent)
        empty = [*self.bare, *(leaf for leaf in self.leaves if leaf.taken < leaf.turns)]
        changed: dict[int, ShareNode] = {}
        for node in self._nodes.values():
            parent = self._nodes.get(node.parent)
            if parent is not None and node.taken:
                parent.clock = max(parent.clock, node.used + (node.taken - 1) / node.weight)
                node.used += node.taken / node.weight
                changed |= {node.key: node, parent.key: parent}
        return list(changed.values()), empty


def slot_needs(number: int, entry: str) -> str:
    """Return the needs of the lane with this number for the work of a leaf."""
    return f"shares:{number}:{entry}"


# Reading the option.


def read_share(value: object, what: str) -> ShareOption:
    """Return a fair share: True for the user, an argument, a list of arguments, or an object with
    weights.
    """
    weights: object = {}
    if isinstance(value, ShareOption):
        value = {"key": list(value.key), "weights": value.weights}
    if isinstance(value, Mapping):
        given = dict(cast("Mapping[str, object]", value))
        if unknown := given.keys() - {"key", "weights"}:
            raise UsageError(f"{what} has no {shown(min(unknown))}", field=what)
        value, weights = given.get("key", True), given.get("weights", {})
    if value is True:
        value = USER
    keys = [value] if isinstance(value, str) else cast("Sequence[object]", value)
    if not isinstance(keys, list | tuple) or not 1 <= len(keys) <= LEVELS_MAX:
        raise UsageError(
            f'{what}={shown(value)} must name an argument, as in "customer", or a list of at most'
            f' {LEVELS_MAX}, as in ["org", "user"]',
            field=what,
        )
    for key in keys:
        parse_key(key, what)
    return ShareOption(
        key=tuple(cast("Sequence[str]", keys)), weights=_read_weights(weights, f"{what}.weights")
    )


def _read_weights(value: object, what: str) -> dict[str, float]:
    given = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None
    if given is None or len(given) > WEIGHTS_MAX:
        raise UsageError(f'{what} must be weights by value, as in {{"acme": 3}}', field=what)
    found: dict[str, float] = {}
    for name, one in given.items():
        weight = one if isinstance(one, int | float) and not isinstance(one, bool) else 0.0
        if not isinstance(name, str) or not WEIGHT_MIN <= weight <= WEIGHT_MAX:
            raise UsageError(
                f"{what}: {shown(name)}={shown(one)} must be a number from {WEIGHT_MIN:g} to"
                f" {WEIGHT_MAX:,.0f}",
                field=what,
            )
        found[name] = float(weight)
    return dict(sorted(found.items()))


def write_share(share: ShareOption | None) -> object:
    """Return a share as people write it."""
    if share is None:
        return None
    key: object = share.key[0] if len(share.key) == 1 else list(share.key)
    return {"key": key, "weights": share.weights} if share.weights else key
