"""Rows of runs and of their nodes: what decisions ask for. What they lead to: `run_writes.py`.

Every statement is about several runs at once, because a batch of ends may concern as many runs as
it has ends. All of it happens under the runs' locks, but for nodes that come with their executions;
see `progressing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant
from daybell.core.rules import Counts
from daybell.core.run import (
    Alike,
    Ask,
    Edges,
    Failed,
    ItemResults,
    Leaves,
    Node,
    NodeState,
    Read,
    Ready,
    Results,
    Run,
    Same,
    Specs,
    Stopping,
    Todo,
    Unstarted,
    Waiting,
)
from daybell.store.codes import NODE_CODES, NODE_STATES, RULES
from daybell.store.postgres.connection import Link, Row

# As `read_node` takes them apart.
NODE_COLUMNS: Final = (
    "n.label, n.place, n.state, n.rule, n.total, n.succeeded, n.failed, n.skipped, n.edges, n.told,"
    " n.is_wanted, n.of, n.is_map, n.items, n.spawned, n.items_ended, n.items_lost, n.execution,"
    " n.reason, n.started_at, n.finished_at"
)
# The same of nodes of the graph that wait for their parents, which most are, without what they all
# have in common; as `_read` takes them apart.
FEW_COLUMNS: Final = (
    "n.label, n.place, n.state, n.rule, n.total, n.succeeded, n.failed, n.skipped, n.edges,"
    " n.is_wanted, CASE WHEN n.state > 1 OR n.is_map THEN ROW(n.told, n.of, n.is_map, n.items,"
    " n.spawned, n.items_ended, n.items_lost, n.execution, n.reason, n.started_at, n.finished_at)"
    " END AS others"
)
# With what is asked for next of those that are to be started; and the run, if there are several.
READ_COLUMNS: Final = (
    f"{FEW_COLUMNS}, CASE WHEN n.state < 3 OR n.is_todo THEN n.spec END AS spec,"
    " CASE WHEN n.state < 3 THEN n.input END AS input, n.lies_at,"
    " CASE WHEN cardinality($2::uuid[]) > 1 THEN n.run END AS run"
)
RUN_COLUMNS: Final = (
    "r.id, r.total, r.unended, r.running, r.ready, r.lost_leaves, r.max_running, r.fail_fast,"
    " r.is_todo, r.stopping, r.failed, r.finished_at, r.job, r.version, r.lane, r.priority,"
    " r.depth, r.gate, r.schedule, r.parent, r.node, r.is_blocked"
)
BRACKET: Final = "["  # after the name of a mapped node come its items; the next character ends them
AFTER_BRACKET: Final = "\\"

# Many nodes have the same few children; one with thousands is read for each part of them.
EDGES_SHORT: Final = 200  # characters
NO_PARENTS: Final = Counts(0)
Place = tuple[int, int]  # of a row in its table

_edges: Final = msgspec.json.Decoder(Edges).decode
_short_edges: Final = lru_cache(maxsize=1024)(_edges)
_long_edges: Final = lru_cache(maxsize=2)(_edges)


class Held(msgspec.Struct, frozen=True):
    """A run whose lock this transaction has."""

    run: Run
    job: int
    version: int
    lane: int
    priority: int
    depth: int
    now: Instant
    is_finished: bool = False
    scheduled_for: Instant | None = None


class Moved(msgspec.Struct, frozen=True):
    """Nodes that have ended alike, and where their rows lie."""

    same: Same
    places: list[Place]
    starts: list[Instant | None]
    finished_at: Instant


class Seen:
    """What is known of rows, by run and label, until they are written."""

    def __init__(self) -> None:
        self.moved: dict[UUID, list[Moved]] = {}
        self.specs: dict[UUID, dict[str, tuple[str, str | None]]] = {}  # with the input
        self.nodes: dict[UUID, dict[str, Node]] = {}  # before they are asked for
        # Where rows lie: nobody else moves them, so that they need not be found again.
        self.places: dict[UUID, dict[str, Place]] = {}


class NodeRows:
    """Reading, within a transaction that has the locks of the runs."""

    # One probe for each, whatever the planner believes of the table's size.
    THESE = """
      FROM (SELECT coalesce(u.run, ($2::uuid[])[1]) AS run, u.label
              FROM unnest($2::uuid[], $3::text[]) u(run, label)) u,
           LATERAL (SELECT *, ctid AS lies_at FROM daybell.node n
                     WHERE n.run = u.run AND n.label = u.label AND n.tenant = $1 LIMIT 1) n"""
    READ = f"SELECT {READ_COLUMNS} {THESE}"
    SPECS = f"SELECT n.run, n.label, n.spec, n.input {THESE}"
    RESULTS = f"SELECT n.run, n.label, n.result {THESE} WHERE n.result IS NOT NULL"
    SOME_NODES = f"""
    SELECT {READ_COLUMNS}
      FROM unnest($2::uuid[], $3::int[]) u(run, most),
           LATERAL (SELECT *, ctid AS lies_at FROM daybell.node n
                     WHERE n.run = u.run AND n.tenant = $1 AND %s
                     ORDER BY n.place LIMIT u.most) n
     ORDER BY n.run, n.place
    """
    # Of nodes that wait, one row for all that are alike.
    WAITING_ALIKE = f"""
    SELECT u.run, n.rule, n.total, n.succeeded, n.failed, n.skipped, n.spec,
           array_agg(n.label ORDER BY n.place) AS labels,
           array_agg(n.lies_at ORDER BY n.place) AS places
      {THESE}
     WHERE n.state = {NODE_CODES[NodeState.WAITING]} AND NOT n.is_map
     GROUP BY 1, 2, 3, 4, 5, 6, 7
    """
    GOING_ON = SOME_NODES % "n.is_todo"
    READY = SOME_NODES % "n.is_ready"
    # Items are never WAITING. The nodes of a graph are looked through: this is seldom asked.
    UNSTARTED = f"""
    SELECT {READ_COLUMNS}
      FROM unnest($2::uuid[], $3::int[]) u(run, most), LATERAL (
             SELECT * FROM (
               (SELECT *, ctid AS lies_at FROM daybell.node n WHERE n.run = u.run AND n.tenant = $1
                   AND n.of IS NULL AND n.state = 1 ORDER BY n.place LIMIT u.most)
               UNION ALL
               (SELECT *, ctid AS lies_at FROM daybell.node n WHERE n.run = u.run AND n.tenant = $1
                   AND n.is_ready ORDER BY n.place LIMIT u.most)) n
              ORDER BY n.place LIMIT u.most) n
     ORDER BY n.run, n.place
    """
    LEAVES = SOME_NODES % "n.of IS NULL AND n.edges = '[]'"
    FAILED = SOME_NODES % f"n.of IS NULL AND n.state = {NODE_CODES[NodeState.FAILED]}"
    ITEM_RESULTS = """
    SELECT n.run, n.label, n.result
      FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) u(run, of, low, high),
           LATERAL (SELECT * FROM daybell.node n
                     WHERE n.run = u.run AND n.label >= u.low AND n.label < u.high
                       AND n.tenant = $1 AND n.of = u.of AND n.result IS NOT NULL OFFSET 0) n
    """

    async def answers(
        self, link: Link, tenant: int, asks: Mapping[UUID, Ask | Alike], seen: Seen
    ) -> dict[UUID, list[Node] | list[Waiting] | dict[str, Any]]:
        """What these runs ask for; those that ask the same kind of thing are asked for together.
        `seen`: what is known since the runs were locked.
        """
        kinds: dict[type[Any], dict[UUID, Any]] = {}
        for run, ask in asks.items():
            kinds.setdefault(type(ask), {})[run] = ask
        found: dict[UUID, list[Node] | list[Waiting] | dict[str, Any]] = {}
        for kind, some in kinds.items():
            if kind is Alike:
                found |= await self._alike(link, tenant, some)
            elif kind in (Specs, Results, ItemResults):
                found |= await self._texts(link, tenant, kind, some, seen)
            else:
                found |= await self._nodes(link, tenant, kind, some, seen)
        return found

    async def _nodes(
        self, link: Link, tenant: int, kind: type[Any], asks: Mapping[UUID, Any], seen: Seen
    ) -> dict[UUID, list[Node]]:
        found: dict[UUID, list[Node]] = {run: [] for run in asks}
        if kind is Read and seen.nodes:
            asks = {
                run: _rest(ask, seen.nodes.get(run, {}), found[run]) for run, ask in asks.items()
            }
            asks = {run: ask for run, ask in asks.items() if ask.labels}
            if not asks:
                return found
        query, arguments = self._question(kind, asks)
        first = arguments[0][0]
        specs, places = seen.specs.setdefault(first, {}), seen.places.setdefault(first, {})
        for *few, spec, input, place, run in await link.fetch(query, tenant, *arguments):
            node = _read(*few)
            if run is not None and run != first:
                specs, places = seen.specs.setdefault(run, {}), seen.places.setdefault(run, {})
                first = run
            if spec is not None:
                specs[node.label] = spec, input
            places[node.label] = place
            found[first].append(node)
        return found

    async def _alike(
        self, link: Link, tenant: int, asks: Mapping[UUID, Any]
    ) -> dict[UUID, list[Waiting]]:
        found: dict[UUID, list[Waiting]] = {run: [] for run in asks}
        query, arguments = self._question(Alike, asks)
        for run, rule, *counts, spec, labels, places in await link.fetch(query, tenant, *arguments):
            found[run].append(Waiting(RULES[rule], Counts(*counts), spec, labels, places))
        return found

    async def _texts(
        self, link: Link, tenant: int, kind: type[Any], asks: Mapping[UUID, Any], seen: Seen
    ) -> dict[UUID, dict[str, Any]]:
        found: dict[UUID, dict[str, Any]] = {run: {} for run in asks}
        if kind is Specs:
            found |= {run: seen.specs.get(run, {}) for run in asks}
            missing = {
                run: Specs(tuple(label for label in ask.labels if label not in found[run]))
                for run, ask in asks.items()
            }
            asks = {run: ask for run, ask in missing.items() if ask.labels}
        if asks:
            query, arguments = self._question(kind, asks)
            for run, label, *values in await link.fetch(query, tenant, *arguments):
                found[run][label] = values[0] if len(values) == 1 else tuple(values)
        return found

    def _question(self, kind: type[Any], asks: Mapping[UUID, Any]) -> tuple[str, list[list[Any]]]:
        limited = {
            Todo: self.GOING_ON,
            Ready: self.READY,
            Unstarted: self.UNSTARTED,
            Failed: self.FAILED,
        }
        if (query := limited.get(kind)) is not None:
            return query, [list(asks), [ask.limit for ask in asks.values()]]
        if kind is Leaves:
            return self.LEAVES, [list(asks), [None] * len(asks)]
        if kind is ItemResults:
            groups = [ask.group for ask in asks.values()]
            lows = [group + BRACKET for group in groups]
            highs = [group + AFTER_BRACKET for group in groups]
            return self.ITEM_RESULTS, [list(asks), groups, lows, highs]
        pairs = [(run, label) for run, ask in asks.items() for label in ask.labels]
        by_label = {
            Read: self.READ,
            Alike: self.WAITING_ALIKE,
            Specs: self.SPECS,
            Results: self.RESULTS,
        }
        query = by_label[kind]
        return query, [once([run for run, _ in pairs]), [label for _, label in pairs]]


def _rest(ask: Read, known: Mapping[str, Node], found: list[Node]) -> Read:
    """Take what is known; answers what is still to be asked for."""
    found += [known[label] for label in ask.labels if label in known]
    return Read(tuple(label for label in ask.labels if label not in known))


def columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as one list for each column, for `unnest`."""
    return [list(column) for column in zip(*rows, strict=True)]


def once(values: list[Any]) -> list[Any]:
    """A column in which all are the same, once: `unnest` fills it up with NULLs, and the statement
    takes the first for those. The driver looks at every value of a list for quite some time.
    """
    return values[:1] if values and values.count(values[0]) == len(values) else values


def given(values: list[Any]) -> list[Any]:
    """A column of which nothing may be given: then `unnest` fills all of it."""
    return values if any(value is not None for value in values) else []


def read_edges(text: str) -> Edges:
    """The children of a node. Many have the same."""
    return (_short_edges if len(text) < EDGES_SHORT else _long_edges)(text)


def counted(total: int, succeeded: int, failed: int, skipped: int) -> Counts:
    """How parents have ended."""
    return Counts(total, succeeded, failed, skipped) if total else NO_PARENTS


def read_node(row: Row) -> Node:
    """A node from NODE_COLUMNS, which may be followed by others."""
    (
        label, place, state, rule, total, succeeded, failed, skipped, edges, told, is_wanted, of,
        is_map, items, spawned, items_ended, items_lost, execution, reason, started_at, finished_at,
        *_,
    ) = row  # fmt: skip
    parents = counted(total, succeeded, failed, skipped)
    return Node(
        label, place, NODE_STATES[state], RULES[rule], parents, read_edges(edges), told, is_wanted,
        of, is_map, items, spawned, items_ended, items_lost, execution, reason, started_at,
        finished_at,
    )  # fmt: skip


def _read(
    label: str,
    place: int,
    state: int,
    rule: int,
    total: int,
    succeeded: int,
    failed: int,
    skipped: int,
    edges: str,
    is_wanted: bool,
    others: tuple[Any, ...] | None,
) -> Node:
    """A node from FEW_COLUMNS."""
    parents = counted(total, succeeded, failed, skipped)
    known = label, place, NODE_STATES[state], RULES[rule], parents, read_edges(edges)
    if others is None:
        return Node(*known, 0, is_wanted)
    told, *rest = others
    return Node(*known, told, is_wanted, *rest)


def read_run(row: Row) -> Run:
    """A run from RUN_COLUMNS."""
    return Run(
        id=row["id"],
        total=row["total"],
        left=row["unended"],
        running=row["running"],
        ready=row["ready"],
        max_running=row["max_running"],
        fail_fast=row["fail_fast"],
        stopping=None if row["stopping"] is None else Stopping(row["stopping"]),
        lost_leaves=row["lost_leaves"],
        failed=row["failed"],
        is_todo=row["is_todo"],
        is_blocked=row["is_blocked"],
    )
