"""Rows of workflow runs and of their nodes: the reads that decisions need, and the writes that
result from decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from daybell.core.execution import State
from daybell.core.lifecycle import Transition
from daybell.core.units import Instant
from daybell.core.workflow.rules import ParentCounts
from daybell.core.workflow.run import (
    Advance,
    Edges,
    NewNode,
    Node,
    NodeEnd,
    NodeState,
    Run,
    RunQuery,
    RunRead,
    StopReason,
    SucceededGroup,
    WaitingGroup,
)
from daybell.errors import Unavailable
from daybell.store.codec import NODE_CODES, NODE_STATES, RULE_CODES, RULES, STATE_CODES
from daybell.store.postgres.connection import Row
from daybell.store.postgres.context import Tx
from daybell.store.postgres.names import BEGAN
from daybell.store.run_driver import stamp_node

# In the order in which `read_node` unpacks them.
NODE_COLUMNS: Final = (
    "n.label, n.place, n.state, n.rule, n.total, n.succeeded, n.failed, n.skipped, n.edges, n.told,"
    " n.is_wanted, n.of, n.is_map, n.items, n.spawned, n.items_ended, n.items_lost, n.execution,"
    " n.reason, n.started_at, n.finished_at"
)
# The same, without the columns that are equal for nodes of the graph that wait for their parents.
# Most nodes do. In the order in which `_read` unpacks them.
FEW_COLUMNS: Final = (
    "n.label, n.place, n.state, n.rule, n.total, n.succeeded, n.failed, n.skipped, n.edges,"
    " n.is_wanted, CASE WHEN n.state > 1 OR n.is_map THEN ROW(n.told, n.of, n.is_map, n.items,"
    " n.spawned, n.items_ended, n.items_lost, n.execution, n.reason, n.started_at, n.finished_at)"
    " END AS others"
)
# Also the columns that are needed to start a node; and the run, if there are several.
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
BRACKET: Final = "["  # it separates a mapped node from its items; the next character ends them
AFTER_BRACKET: Final = "\\"

# Many nodes have the same few children. A node with thousands is read for each part of them.
EDGES_SHORT: Final = 200  # characters
NO_PARENTS: Final = ParentCounts(0)
Ctid = tuple[int, int]  # of a row in its table

_edges: Final = msgspec.json.Decoder(Edges).decode
_short_edges: Final = lru_cache(maxsize=1024)(_edges)
_long_edges: Final = lru_cache(maxsize=2)(_edges)


class LockedRun(msgspec.Struct, frozen=True):
    """A run that this transaction has locked."""

    run: Run
    job: int
    version: int
    lane: int
    priority: int
    depth: int
    now: Instant
    is_finished: bool = False
    scheduled_for: Instant | None = None

    @classmethod
    def of(cls, run: Run, row: Row, *, depth: int, is_finished: bool = False) -> LockedRun:
        """Return a run with what its nodes inherit, of the row of the run or its execution."""
        names = "job", "version", "lane", "priority", "now", "scheduled_for"
        inherited = {name: row[name] for name in names}
        return cls(run=run, depth=depth, is_finished=is_finished, **inherited)


class EndedGroup(msgspec.Struct, frozen=True):
    """Nodes that have ended in the same way, and the places of their rows."""

    same: SucceededGroup
    places: list[Ctid]
    starts: list[Instant | None]
    finished_at: Instant


class RowCache:
    """The known state of rows, by run and label, until they are written."""

    def __init__(self) -> None:
        self.moved: dict[UUID, list[EndedGroup]] = {}
        self.specs: dict[UUID, dict[str, tuple[str, str | None]]] = {}  # with the input
        self.nodes: dict[UUID, dict[str, Node]] = {}  # before they are asked for
        # The places of rows: no other transaction moves them, so they are not searched again.
        self.places: dict[UUID, dict[str, Ctid]] = {}


# One probe for each, for any table size that the planner assumes.
THESE: Final = """
      FROM (SELECT coalesce(u.run, ($2::uuid[])[1]) AS run, u.label
              FROM unnest($2::uuid[], $3::text[]) u(run, label)) u,
           LATERAL (SELECT *, ctid AS lies_at FROM daybell.node n
                     WHERE n.run = u.run AND n.label = u.label AND n.tenant = $1 LIMIT 1) n"""
READ: Final = f"SELECT {READ_COLUMNS} {THESE}"
SPECS: Final = f"SELECT n.run, n.label, n.spec, n.input {THESE}"
RESULTS: Final = f"SELECT n.run, n.label, n.result {THESE} WHERE n.result IS NOT NULL"
SOME_NODES: Final = f"""
    SELECT {READ_COLUMNS}
      FROM unnest($2::uuid[], $3::int[]) u(run, most),
           LATERAL (SELECT *, ctid AS lies_at FROM daybell.node n
                     WHERE n.run = u.run AND n.tenant = $1 AND %s
                     ORDER BY n.place LIMIT u.most) n
     ORDER BY n.run, n.place
    """
# One row for all identical nodes among those that wait.
WAITING_ALIKE: Final = f"""
    SELECT u.run, n.rule, n.total, n.succeeded, n.failed, n.skipped, n.spec,
           array_agg(n.label ORDER BY n.place) AS labels,
           array_agg(n.lies_at ORDER BY n.place) AS places
      {THESE}
     WHERE n.state = {NODE_CODES[NodeState.WAITING]} AND NOT n.is_map
     GROUP BY 1, 2, 3, 4, 5, 6, 7
    """
GOING_ON: Final = SOME_NODES % "n.is_todo"
READY: Final = SOME_NODES % "n.is_ready"
# Items are never WAITING. This reads all nodes of a graph, because it is seldom used.
UNSTARTED_NODES: Final = f"""
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
LEAVES: Final = SOME_NODES % "n.of IS NULL AND n.edges = '[]'"
FAILED: Final = SOME_NODES % f"n.of IS NULL AND n.state = {NODE_CODES[NodeState.FAILED]}"
ITEM_RESULTS: Final = """
    SELECT n.run, n.label, n.result
      FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) u(run, of, low, high),
           LATERAL (SELECT * FROM daybell.node n
                     WHERE n.run = u.run AND n.label >= u.low AND n.label < u.high
                       AND n.tenant = $1 AND n.of = u.of AND n.result IS NOT NULL OFFSET 0) n
    """


_LISTS: Final = {
    RunRead.MARKED: GOING_ON,
    RunRead.READY: READY,
    RunRead.UNSTARTED: UNSTARTED_NODES,
    RunRead.LEAVES: LEAVES,
    RunRead.FAILED: FAILED,
}
_BY_LABEL: Final = {
    RunRead.NODES: READ,
    RunRead.IDENTICAL: WAITING_ALIKE,
    RunRead.SPECS: SPECS,
    RunRead.RESULTS: RESULTS,
}


async def answer_asks(
    tx: Tx,
    tenant: int,
    asks: Mapping[UUID, RunQuery],
    seen: RowCache,
) -> dict[UUID, list[Node] | list[WaitingGroup] | dict[str, Any]]:
    """Return the answers to the queries of these runs. Queries of one kind share a statement.
    `seen`: the rows that are known since the runs were locked.
    """
    kinds: dict[RunRead, dict[UUID, RunQuery]] = {}
    for run, ask in asks.items():
        kinds.setdefault(ask.read, {})[run] = ask
    found: dict[UUID, list[Node] | list[WaitingGroup] | dict[str, Any]] = {}
    for kind, some in kinds.items():
        if kind is RunRead.IDENTICAL:
            found |= await _alike(tx, tenant, some)
        elif kind in (RunRead.SPECS, RunRead.RESULTS, RunRead.ITEM_RESULTS):
            found |= await _texts(tx, tenant, kind, some, seen)
        else:
            found |= await _nodes(tx, tenant, kind, some, seen)
    return found


async def _nodes(
    tx: Tx, tenant: int, kind: RunRead, asks: Mapping[UUID, RunQuery], seen: RowCache
) -> dict[UUID, list[Node]]:
    found: dict[UUID, list[Node]] = {run: [] for run in asks}
    if kind is RunRead.NODES and seen.nodes:
        asks = {run: _rest(ask, seen.nodes.get(run, {}), found[run]) for run, ask in asks.items()}
        asks = {run: ask for run, ask in asks.items() if ask.labels}
        if not asks:
            return found
    query, arguments = _question(kind, asks)
    first = arguments[0][0]
    specs, places = seen.specs.setdefault(first, {}), seen.places.setdefault(first, {})
    for row in await tx.fetch(query, tenant, *arguments):
        node = _read_few(row)
        spec, input, place, run = row[11:]
        if run is not None and run != first:
            specs, places = seen.specs.setdefault(run, {}), seen.places.setdefault(run, {})
            first = run
        if spec is not None:
            specs[node.label] = spec, input
        places[node.label] = place
        found[first].append(node)
    return found


async def _alike(
    tx: Tx, tenant: int, asks: Mapping[UUID, RunQuery]
) -> dict[UUID, list[WaitingGroup]]:
    found: dict[UUID, list[WaitingGroup]] = {run: [] for run in asks}
    query, arguments = _question(RunRead.IDENTICAL, asks)
    for run, rule, *counts, spec, labels, places in await tx.fetch(query, tenant, *arguments):
        found[run].append(WaitingGroup(RULES[rule], ParentCounts(*counts), spec, labels, places))
    return found


async def _texts(
    tx: Tx, tenant: int, kind: RunRead, asks: Mapping[UUID, RunQuery], seen: RowCache
) -> dict[UUID, dict[str, Any]]:
    found: dict[UUID, dict[str, Any]] = {run: {} for run in asks}
    if kind is RunRead.SPECS:
        found |= {run: seen.specs.get(run, {}) for run in asks}
        missing = {
            run: ask._replace(labels=tuple(one for one in ask.labels if one not in found[run]))
            for run, ask in asks.items()
        }
        asks = {run: ask for run, ask in missing.items() if ask.labels}
    if asks:
        query, arguments = _question(kind, asks)
        for run, label, *values in await tx.fetch(query, tenant, *arguments):
            found[run][label] = values[0] if len(values) == 1 else tuple(values)
    return found


def _question(kind: RunRead, asks: Mapping[UUID, RunQuery]) -> tuple[str, list[list[Any]]]:
    if (query := _LISTS.get(kind)) is not None:
        return query, [list(asks), [ask.limit for ask in asks.values()]]
    if kind is RunRead.ITEM_RESULTS:
        groups = [ask.labels[0] for ask in asks.values()]
        lows = [group + BRACKET for group in groups]
        highs = [group + AFTER_BRACKET for group in groups]
        return ITEM_RESULTS, [list(asks), groups, lows, highs]
    pairs = [(run, label) for run, ask in asks.items() for label in ask.labels]
    runs = collapse_constant([run for run, _ in pairs])
    return _BY_LABEL[kind], [runs, [label for _, label in pairs]]


def _rest(ask: RunQuery, known: Mapping[str, Node], found: list[Node]) -> RunQuery:
    """Add the known nodes to `found`. Return the query for the others."""
    found += [known[label] for label in ask.labels if label in known]
    return ask._replace(labels=tuple(label for label in ask.labels if label not in known))


class Columns:
    """Rows of a statement as one list for each column, by its name.

    `unnest` fills up a shorter list with NULLs. So a list is shortened where the statement knows
    the value that a NULL stands for: the driver needs some time for each value of a list.
    """

    __slots__ = ("values",)

    def __init__(self, values: dict[str, list[Any]]) -> None:
        self.values = values

    @classmethod
    def of(cls, rows: Collection[Any], readers: Mapping[str, Callable[[Any], Any]]) -> Columns:
        """Read each column of these rows."""
        return cls({name: list(map(read, rows)) for name, read in readers.items()})

    def collapse(self, *names: str) -> None:
        """Send these columns as one value if all values are equal: a NULL is the first one."""
        for name in names:
            self.values[name] = collapse_constant(self.values[name])

    def drop_nulls(self, *names: str) -> None:
        """Send these columns as empty lists, if all values are NULL."""
        for name in names:
            self.values[name] = drop_if_all_null(self.values[name])

    def cut_zeros(self, first: int, *names: str) -> None:
        """Send these columns for the first rows only, if the others are zero, false or NULL: a NULL
        is any of them.
        """
        for name in names:
            if not any(self.values[name][first:]):
                del self.values[name][first:]

    def without_zeros(self) -> Columns:
        """Return the columns with a value that is not zero, false or NULL."""
        return Columns({name: values for name, values in self.values.items() if any(values)})

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self.values.values())


def columns_of(rows: Collection[object], *names: str) -> list[list[Any]]:
    """Return the values of these attributes, or attributes of attributes: a list for each."""
    return [list(map(attrgetter(name), rows)) for name in names]


def collapse_constant(values: list[Any]) -> list[Any]:
    """Return one value instead of all, if all are equal."""
    return values[:1] if values and values.count(values[0]) == len(values) else values


def drop_if_all_null(values: list[Any]) -> list[Any]:
    """Return no value instead of all, if all are NULL."""
    return values if any(value is not None for value in values) else []


def read_edges(text: str) -> Edges:
    """Return the children of a node. Many nodes have the same."""
    return (_short_edges if len(text) < EDGES_SHORT else _long_edges)(text)


def make_counts(total: int, succeeded: int, failed: int, skipped: int) -> ParentCounts:
    """Return the counts of parents by the way they have ended."""
    return ParentCounts(total, succeeded, failed, skipped) if total else NO_PARENTS


def read_node(row: Row) -> Node:
    """Return a node from NODE_COLUMNS. Other columns may follow."""
    label, place, state, rule, *counts = row[:8]
    known = label, place, NODE_STATES[state], RULES[rule], make_counts(*counts), read_edges(row[8])
    return Node(*known, *row[9:21])


def _read_few(row: Row) -> Node:
    """Return a node from FEW_COLUMNS."""
    label, place, state, rule, *counts = row[:8]
    edges, is_wanted, others = row[8:11]
    parents = make_counts(*counts)
    known = label, place, NODE_STATES[state], RULES[rule], parents, read_edges(edges)
    if others is None:
        return Node(*known, 0, is_wanted)
    told, *rest = others
    return Node(*known, told, is_wanted, *rest)


def read_run(row: Row) -> Run:
    """Return a run from RUN_COLUMNS."""
    stopping = None if row["stopping"] is None else StopReason(row["stopping"])
    others: dict[str, Any] = {"left": row["unended"], "stopping": stopping}
    return Run(**{n: row[n] for n in Run.__struct_fields__ if n not in others}, **others)


# Writes of decisions about runs, as rows that are added and changed.
#
# A run may have tens of thousands of nodes, and each is written three times: when it is created,
# started and ended. The start is written with its execution, see `progress.py`. The usual end has
# a separate statement, which sends only the values that it changes.

SUCCEEDED: Final = NODE_CODES[NodeState.SUCCEEDED]
ALIKE_MIN: Final = 10  # ends that are worth a separate statement


class NodeRow(NamedTuple):
    """A row of a node to write."""

    run: UUID
    node: Node
    result: str | None
    new: NewNode | None = None  # to be added


def numbered(first: int, count: int) -> list[str]:
    """Return this number of parameters of a statement."""
    return [f"${number}" for number in range(first, first + count)]


# Each row is found separately, then changed in place: see `queue.BACK`. A value that is not sent
# is zero, false or NULL.
FOUND_NODES: Final = """
    WITH u AS MATERIALIZED (
      SELECT u.*, x.place
        FROM unnest($2::uuid[], $3::text[], $4::smallint[], $5::int[], $6::int[], $7::int[],
                    $8::int[], $9::int[], $10::int[], $11::int[], $12::int[], $13::boolean[],
                    $14::boolean[], $15::float8[], $16::float8[], $17::uuid[], $18::text[],
                    $19::text[])
             u(run, label, state, succeeded, failed, skipped, told, items, spawned, items_ended,
               items_lost, is_todo, is_ready, started_at, finished_at, execution, reason, result),
             LATERAL (SELECT n.ctid AS place FROM daybell.node n
                       WHERE n.run = coalesce(u.run, ($2::uuid[])[1]) AND n.label = u.label
                         AND n.tenant = $1 LIMIT 1) x)"""
SET_NODES: Final = """
    UPDATE daybell.node n
       SET state = u.state, succeeded = coalesce(u.succeeded, 0), failed = coalesce(u.failed, 0),
           skipped = coalesce(u.skipped, 0), told = coalesce(u.told, 0),
           items = coalesce(u.items, 0), spawned = coalesce(u.spawned, 0),
           items_ended = coalesce(u.items_ended, 0), items_lost = coalesce(u.items_lost, 0),
           is_todo = coalesce(u.is_todo, false), is_ready = coalesce(u.is_ready, false),
           started_at = u.started_at, finished_at = u.finished_at, execution = u.execution,
           reason = u.reason, result = coalesce(u.result, n.result)
      FROM u WHERE n.ctid = u.place"""
CHANGE_NODES: Final = f"{FOUND_NODES} {SET_NODES}"
# Nodes of one run, with executions that have ended in the same way.
END_NODES: Final = """
    UPDATE daybell.node n
       SET state = $5, told = $6, finished_at = $7, reason = $8, started_at = u.started_at,
           is_todo = false, result = coalesce(u.result, n.result)
      FROM unnest($2::tid[], $3::float8[], $4::text[]) u(place, started_at, result)
     WHERE n.ctid = u.place AND (n.run = $1) IS TRUE
    """
SET_RUNS: Final = """
    UPDATE daybell.run r
       SET unended = u.unended, running = u.running, ready = u.ready, lost_leaves = u.lost_leaves,
           is_todo = u.is_todo, stopping = u.stopping, failed = u.failed,
           finished_at = u.finished_at, is_blocked = u.is_blocked
      FROM (SELECT u.*, x.place
              FROM unnest({}::uuid[], {}::int[], {}::int[], {}::int[], {}::int[], {}::boolean[],
                          {}::text[], {}::text[], {}::float8[], {}::boolean[])
                   u(id, unended, running, ready, lost_leaves, is_todo, stopping, failed,
                     finished_at, is_blocked),
                   LATERAL (SELECT r.ctid AS place FROM daybell.run r
                             WHERE r.id = u.id AND r.tenant = $1 LIMIT 1) x
            OFFSET 0) u
     WHERE r.ctid = u.place
    """
CHANGE_RUNS: Final = SET_RUNS.format(*numbered(2, 10))
# Nodes and runs in one statement: most often a few nodes and one run.
CHANGE_ALL: Final = f"{FOUND_NODES}, n AS ({SET_NODES}) {SET_RUNS.format(*numbered(20, 10))}"


async def write_steps(
    tx: Tx,
    tenant: int,
    held: Mapping[UUID, LockedRun],
    steps: Mapping[UUID, Advance],
    marked: Mapping[UUID, Mapping[str, Node]],
    seen: RowCache,
) -> None:
    """Write the decisions about runs and their nodes. Omit the marked nodes, which are written
    with their executions.
    """
    changed = [
        NodeRow(run, stamp_node(node, held[run].now), step.results.get(node.label))
        for run, step in steps.items()
        for node in step.changed
        if node.label not in marked[run]
    ]
    if len(changed) >= ALIKE_MIN:
        changed = await _end_nodes(tx, changed, seen)
    for run in steps:
        await _end_moved(tx, run, seen.moved.get(run, ()))
    runs = [(step.run, held[run].now if step.end else None) for run, step in steps.items()]
    rows = Columns.of(runs, RUN_READERS)
    if changed:
        await tx.execute(CHANGE_ALL, tenant, *_changed_columns(changed), *rows)
    else:
        await tx.execute(CHANGE_RUNS, tenant, *rows)
    new = [
        NodeRow(run, stamp_node(one.node, held[run].now), step.results.get(one.node.label), one)
        for run, step in steps.items()
        for one in step.new
    ]
    if new:
        await add_nodes(tx, tenant, new)


async def _end_nodes(tx: Tx, changed: Sequence[NodeRow], seen: RowCache) -> list[NodeRow]:
    """Write usual ends, if there are many. Return the rest."""
    alike: dict[tuple[Any, ...], list[NodeRow]] = {}
    rest: list[NodeRow] = []
    for one in changed:
        run, node = one.run, one.node
        if _is_usual_end(node) and node.label in seen.places[run]:
            key = run, node.state, node.told, node.finished_at, node.reason
            alike.setdefault(key, []).append(one)
        else:
            rest.append(one)
    for (run, state, told, finished_at, reason), some in alike.items():
        if len(some) < ALIKE_MIN:
            rest += some
            continue
        starts, results = columns_of(some, "node.started_at", "result")
        columns = starts, results if any(results) else []
        places = [seen.places[run][one.node.label] for one in some]
        how = NODE_CODES[state], told, finished_at, reason
        await _end_alike(tx, run, places, *columns, *how)
    return rest


async def _end_moved(tx: Tx, run: UUID, moved: Iterable[EndedGroup]) -> None:
    alike: dict[tuple[int, Instant], list[EndedGroup]] = {}
    for one in moved:
        told = len(one.same.edges) if one.same.group is None else 1
        alike.setdefault((told, one.finished_at), []).append(one)
    for (told, finished_at), some in alike.items():
        places = [place for one in some for place in one.places]
        starts = [start for one in some for start in one.starts]
        await _end_alike(tx, run, places, starts, [], SUCCEEDED, told, finished_at, None)


async def _end_alike(tx: Tx, run: UUID, places: list[Ctid], *values: object) -> None:
    answer = await tx.execute(END_NODES, run, places, *values)
    if answer != f"UPDATE {len(places)}":
        raise Unavailable("nodes of this run were moved by others; try again")


async def add_nodes(tx: Tx, tenant: int, new: Sequence[NodeRow]) -> None:
    """Store new nodes: the nodes of a run that begins, or items of a mapped node."""
    columns = Columns.of(new, ADDED_READERS).without_zeros()  # which are the defaults
    columns.values["tenant"] = [tenant] * len(new)
    await tx.copy_records_to_table(
        "node",
        schema_name="daybell",
        columns=tuple(columns.values),
        records=zip(*columns, strict=True),
    )


def changed_rows(run: UUID, nodes: Iterable[Node]) -> Columns:
    """Return nodes in the form that CHANGE_NODES takes. Their results stay."""
    return _changed_columns([NodeRow(run, node, None) for node in nodes])


def _is_usual_end(node: Node) -> bool:
    """Return whether a started node has ended without further work, and is otherwise unchanged."""
    is_ended = node.execution is not None and node.is_ended
    return is_ended and not node.is_map and not node.is_todo


# The columns of a statement or table, each with the way to read it from a `NodeRow`.

_RENAMED: Final = {
    "place": "order",
    "of": "group",
    **{name: f"parents.{name}" for name in ("total", "succeeded", "failed", "skipped")},
}


def _of_node(*names: str) -> dict[str, Callable[[NodeRow], Any]]:
    return {name: attrgetter(f"node.{_RENAMED.get(name, name)}") for name in names}


_STATE: Final[dict[str, Callable[[NodeRow], Any]]] = {
    "state": lambda row: NODE_CODES[row.node.state],
    "is_ready": lambda row: row.node.state is NodeState.READY,
}
CHANGED_READERS: Final[dict[str, Callable[[NodeRow], Any]]] = {
    "run": attrgetter("run"),
    **_of_node("label"),
    "state": _STATE["state"],
    **_of_node("succeeded", "failed", "skipped", "told", "items", "spawned", "items_ended"),
    **_of_node("items_lost", "is_todo"),
    "is_ready": _STATE["is_ready"],
    **_of_node("started_at", "finished_at", "execution", "reason"),
    "result": attrgetter("result"),
}
ADDED_READERS: Final[dict[str, Callable[[NodeRow], Any]]] = {
    **CHANGED_READERS,
    **_of_node("place", "total", "is_wanted", "is_map", "of"),
    "rule": lambda row: RULE_CODES[row.node.rule],
    "edges": lambda row: _written(row.node.edges) if row.node.edges else "[]",
    "spec": attrgetter("new.spec"),
    "input": attrgetter("new.input"),
}
_CUT: Final = tuple(CHANGED_READERS)[3:]  # the columns that may end behind nodes with counts


def _changed_columns(changed: Sequence[NodeRow]) -> Columns:
    """Return columns for CHANGE_NODES. Nodes with counts come first: columns end after them."""
    rich = [one for one in changed if not _has_few_counts(one.node)]
    plain = [one for one in changed if _has_few_counts(one.node)]
    columns = Columns.of([*rich, *plain], CHANGED_READERS)
    columns.collapse("run")
    columns.cut_zeros(len(rich), *_CUT)
    return columns


def _has_few_counts(node: Node) -> bool:
    """Return whether most of its numbers are zero."""
    return not node.is_map and not node.parents.total


@lru_cache(maxsize=64)  # many nodes have the same children
def _written(edges: Edges) -> str:
    return msgspec.json.encode(edges).decode()


# The columns of a changed run, of the run and the time of its end.
RUN_READERS: Final[dict[str, Callable[[tuple[Run, Instant | None]], Any]]] = {
    "id": lambda row: row[0].id,
    "unended": lambda row: row[0].left,
    "running": lambda row: row[0].running,
    "ready": lambda row: row[0].ready,
    "lost_leaves": lambda row: row[0].lost_leaves,
    "is_todo": lambda row: row[0].is_todo,
    "stopping": lambda row: row[0].stopping and row[0].stopping.value,
    "failed": lambda row: row[0].failed,
    "finished_at": itemgetter(1),
    "is_blocked": lambda row: row[0].is_blocked,
}


# Executions of nodes that have succeeded, with the nodes that end by it.
#
# A run may have tens of thousands of them. If no node needs their results, nodes with the same few
# children become one group: their number and the places of their rows. Of the others, the store
# reads only the columns that are not known of all: they have started, as this execution, and
# nothing has changed since.

STARTED: Final = NODE_CODES[NodeState.STARTED]
EDGES_FEW: Final = 100  # characters: these children are read together
MADE: Final = {"state": STATE_CODES[State.SUCCEEDED]}  # all that is read of a row that was made

TOLD: Final = f"id, parent, node, {BEGAN}, finished_at, result"
# In the order in which `read` unpacks them. A node not met is queried, and proves to be different.
MOVED: Final = f"""
    e AS MATERIALIZED (
      SELECT i.*, n.place, n.rule, n.total, n.succeeded, n.failed, n.skipped, n.edges, n.is_wanted,
             n.of, n.lies_at, NOT n.is_wanted AND length(n.edges) < {EDGES_FEW} AS is_usual
        FROM i LEFT JOIN LATERAL (
               SELECT n.*, n.ctid AS lies_at FROM daybell.node n
                WHERE n.run = i.parent AND n.label = i.node AND n.tenant = $1
                  AND n.state = {STARTED} AND n.execution = i.id LIMIT 1) n ON true)
    SELECT parent, max(finished_at) AS finished_at, edges, of, array_agg(id) AS ids,
           array_agg(lies_at) AS places, array_agg(started_at) AS starts, NULL::record AS one
      FROM e WHERE is_usual GROUP BY parent, edges, of
    UNION ALL
    SELECT parent, finished_at, edges, of, ARRAY[id], ARRAY[lies_at], ARRAY[started_at],
           ROW(node, CASE WHEN is_wanted THEN result END, place, rule, total, succeeded, failed,
               skipped, is_wanted)
      FROM e WHERE is_usual IS NOT TRUE
"""


def read_ended_nodes(
    rows: Iterable[Row], moves: Sequence[Transition]
) -> tuple[dict[tuple[UUID, int], Any], dict[UUID, list[NodeEnd]], RowCache]:
    """Return the moves that were made, the ends of nodes for their runs, and the nodes."""
    ended: set[UUID] = set()
    ends: dict[UUID, list[NodeEnd]] = {}
    seen = RowCache()
    for run, finished_at, edges, of, ids, places, starts, one in rows:
        ended.update(ids)
        told = ends.setdefault(run, [])
        if one is None:
            same = SucceededGroup(len(ids), () if of is not None else read_edges(edges), of)
            seen.moved.setdefault(run, []).append(EndedGroup(same, places, starts, finished_at))
            continue
        (id,), (lies_at,), (started_at,) = ids, places, starts
        label, result, place, rule, total, succeeded, failed, skipped, is_wanted = one
        told.append(NodeEnd(label, id, State.SUCCEEDED, result, None, started_at, finished_at))
        if place is not None:
            parents = make_counts(total, succeeded, failed, skipped)
            seen.nodes.setdefault(run, {})[label] = Node(
                label, place, NodeState.STARTED, RULES[rule], parents, read_edges(edges), 0,
                is_wanted, of, False, 0, 0, 0, 0, id,
            )  # fmt: skip
            seen.places.setdefault(run, {})[label] = lies_at
    made = [move for move in moves if move.id in ended] if len(ended) < len(moves) else moves
    return {(move.id, move.attempt): MADE for move in made}, ends, seen
