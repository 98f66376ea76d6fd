"""Rows of runs and of their nodes: what decisions ask for, and what they lead to.

Every statement is about several runs at once, because a batch of ends may concern as many runs as
it has ends. All of it happens under the runs' locks; see `progressing.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant
from daybell.core.rules import Counts
from daybell.core.run import (
    UNSTARTED,
    Advance,
    Ask,
    Edges,
    ItemResults,
    Leaves,
    NewNode,
    Node,
    NodeState,
    Read,
    Ready,
    Results,
    Run,
    Specs,
    Stopping,
    Todo,
    Unstarted,
)
from daybell.store.codes import NODE_CODES, NODE_STATES, RULE_CODES, RULES
from daybell.store.driving import stamped
from daybell.store.postgres.connection import Link, Row

NODE_COLUMNS: Final = (
    "n.run, n.label, n.place, n.state, n.rule, n.total, n.succeeded, n.failed, n.skipped, n.edges,"
    " n.told, n.is_wanted, n.of, n.is_map, n.items, n.spawned, n.items_ended, n.items_lost,"
    " n.execution, n.reason, n.started_at, n.finished_at"
)
# As `_inserted` puts them.
INSERTED: Final = (
    "run", "tenant", "place", "state", "rule", "total", "succeeded", "failed", "skipped", "told",
    "items", "spawned", "items_ended", "items_lost", "is_wanted", "is_map", "is_todo", "is_open",
    "is_ready", "started_at", "finished_at", "execution", "label", "of", "reason", "edges", "spec",
    "input", "result",
)  # fmt: skip
RUN_COLUMNS: Final = (
    "r.id, r.total, r.unended, r.running, r.ready, r.lost_leaves, r.max_running, r.fail_fast,"
    " r.is_todo, r.stopping, r.failed, r.finished_at, r.job, r.version, r.lane, r.priority,"
    " r.depth, r.gate, r.schedule, r.parent, r.node"
)
BRACKET: Final = "["  # after the name of a mapped node come its items; the next character ends them
AFTER_BRACKET: Final = "\\"

_read_edges: Final = msgspec.json.Decoder(Edges).decode


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


class NodeRows:
    """Reading and writing, within a transaction that has the locks of the runs."""

    # One probe for each, whatever the planner believes of the table's size.
    THESE = """
      FROM (SELECT coalesce(u.run, ($2::uuid[])[1]) AS run, u.label
              FROM unnest($2::uuid[], $3::text[]) u(run, label)) u,
           LATERAL (SELECT * FROM daybell.node n
                     WHERE n.run = u.run AND n.label = u.label AND n.tenant = $1 LIMIT 1) n"""
    READ = f"SELECT {NODE_COLUMNS} {THESE}"
    SPECS = f"SELECT n.run, n.label, n.spec, n.input {THESE}"
    RESULTS = f"SELECT n.run, n.label, n.result {THESE} WHERE n.result IS NOT NULL"
    SOME_NODES = f"""
    SELECT {NODE_COLUMNS}
      FROM unnest($2::uuid[], $3::int[]) u(run, most),
           LATERAL (SELECT * FROM daybell.node n WHERE n.run = u.run AND n.tenant = $1 AND %s
                     ORDER BY n.place LIMIT u.most) n
     ORDER BY n.run, n.place
    """
    GOING_ON = SOME_NODES % "n.is_todo"
    READY = SOME_NODES % "n.is_ready"
    UNSTARTED = SOME_NODES % "n.is_open"
    LEAVES = SOME_NODES % "n.of IS NULL AND n.edges = '[]'"
    ITEM_RESULTS = """
    SELECT n.run, n.label, n.result
      FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) u(run, of, low, high),
           LATERAL (SELECT * FROM daybell.node n
                     WHERE n.run = u.run AND n.label >= u.low AND n.label < u.high
                       AND n.tenant = $1 AND n.of = u.of AND n.result IS NOT NULL OFFSET 0) n
    """

    async def answers(
        self, link: Link, tenant: int, asks: Mapping[UUID, Ask]
    ) -> dict[UUID, list[Node] | dict[str, Any]]:
        """What these runs ask for; those that ask the same kind of thing are asked for together."""
        kinds: dict[type[Any], dict[UUID, Any]] = {}
        for run, ask in asks.items():
            kinds.setdefault(type(ask), {})[run] = ask
        found: dict[UUID, list[Node] | dict[str, Any]] = {}
        for kind, some in kinds.items():
            query, arguments = self._question(kind, some)
            rows = await link.fetch(query, tenant, *arguments)
            if kind in (Specs, Results, ItemResults):
                texts: dict[UUID, dict[str, Any]] = {run: {} for run in some}
                for run, label, *values in rows:
                    texts[run][label] = values[0] if len(values) == 1 else tuple(values)
                found |= texts
            else:
                nodes: dict[UUID, list[Node]] = {run: [] for run in some}
                for row in rows:
                    nodes[row["run"]].append(read_node(row))
                found |= nodes
        return found

    def _question(self, kind: type[Any], asks: Mapping[UUID, Any]) -> tuple[str, list[list[Any]]]:
        if kind in (Todo, Ready, Unstarted):
            query = {Todo: self.GOING_ON, Ready: self.READY, Unstarted: self.UNSTARTED}[kind]
            return query, [list(asks), [ask.limit for ask in asks.values()]]
        if kind is Leaves:
            return self.LEAVES, [list(asks), [None] * len(asks)]
        if kind is ItemResults:
            groups = [ask.group for ask in asks.values()]
            lows = [group + BRACKET for group in groups]
            highs = [group + AFTER_BRACKET for group in groups]
            return self.ITEM_RESULTS, [list(asks), groups, lows, highs]
        pairs = [(run, label) for run, ask in asks.items() for label in ask.labels]
        query = {Read: self.READ, Specs: self.SPECS, Results: self.RESULTS}[kind]
        return query, [once([run for run, _ in pairs]), [label for _, label in pairs]]

    # Each row is found by itself, then changed where it lies: see `Moving.BACK`. What is not sent
    # is zero, false or NULL.
    CHANGE_NODES = """
    WITH u AS MATERIALIZED (
      SELECT u.*, x.place
        FROM unnest($2::uuid[], $3::text[], $4::smallint[], $5::int[], $6::int[], $7::int[],
                    $8::int[], $9::int[], $10::int[], $11::int[], $12::int[], $13::boolean[],
                    $14::boolean[], $15::boolean[], $16::float8[], $17::float8[], $18::uuid[],
                    $19::text[], $20::text[])
             u(run, label, state, succeeded, failed, skipped, told, items, spawned, items_ended,
               items_lost, is_todo, is_open, is_ready, started_at, finished_at, execution, reason,
               result),
             LATERAL (SELECT n.ctid AS place FROM daybell.node n
                       WHERE n.run = coalesce(u.run, ($2::uuid[])[1]) AND n.label = u.label
                         AND n.tenant = $1 LIMIT 1) x)
    UPDATE daybell.node n
       SET state = u.state, succeeded = coalesce(u.succeeded, 0), failed = coalesce(u.failed, 0),
           skipped = coalesce(u.skipped, 0), told = coalesce(u.told, 0),
           items = coalesce(u.items, 0), spawned = coalesce(u.spawned, 0),
           items_ended = coalesce(u.items_ended, 0), items_lost = coalesce(u.items_lost, 0),
           is_todo = coalesce(u.is_todo, false), is_open = coalesce(u.is_open, false),
           is_ready = coalesce(u.is_ready, false), started_at = u.started_at,
           finished_at = u.finished_at, execution = u.execution, reason = u.reason,
           result = coalesce(u.result, n.result)
      FROM u WHERE n.ctid = u.place
    """
    CHANGE_RUNS = """
    WITH u AS MATERIALIZED (
      SELECT u.*, x.place
        FROM unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::int[], $7::boolean[],
                    $8::text[], $9::text[], $10::float8[])
             u(id, unended, running, ready, lost_leaves, is_todo, stopping, failed, finished_at),
             LATERAL (SELECT r.ctid AS place FROM daybell.run r
                       WHERE r.id = u.id AND r.tenant = $1 LIMIT 1) x)
    UPDATE daybell.run r
       SET unended = u.unended, running = u.running, ready = u.ready, lost_leaves = u.lost_leaves,
           is_todo = u.is_todo, stopping = u.stopping, failed = u.failed,
           finished_at = u.finished_at
      FROM u WHERE r.ctid = u.place
    """

    async def write(
        self, link: Link, tenant: int, held: Mapping[UUID, Held], steps: Mapping[UUID, Advance]
    ) -> None:
        """Keep what has been decided about runs and their nodes."""
        changed = [
            (run, stamped(node, held[run].now), step.results.get(node.label))
            for run, step in steps.items()
            for node in step.changed
        ]
        if changed:
            await link.execute(self.CHANGE_NODES, tenant, *_trimmed(changed))
        new = [
            (run, msgspec.structs.replace(one, node=stamped(one.node, held[run].now)), step.results)
            for run, step in steps.items()
            for one in step.new
        ]
        if new:
            await self.add_nodes(link, tenant, new)
        rows = [_run_row(step, held[run].now) for run, step in steps.items()]
        await link.execute(self.CHANGE_RUNS, tenant, *columns(rows))

    async def add_nodes(
        self, link: Link, tenant: int, new: Iterable[tuple[UUID, NewNode, Mapping[str, str]]]
    ) -> None:
        """Keep new nodes: of a run that begins, or items of a mapped one."""
        rows = [_inserted(run, tenant, one, results) for run, one, results in new]
        # What is zero, false or NULL in all of them is so by itself.
        named = dict(zip(INSERTED, columns(rows), strict=True))
        used = {name: column for name, column in named.items() if any(column)}
        await link.copy_records_to_table(
            "node",
            schema_name="daybell",
            columns=tuple(used),
            records=zip(*used.values(), strict=True),
        )


def columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as one list for each column, for `unnest`."""
    return [list(column) for column in zip(*rows, strict=True)]


def once(values: list[Any]) -> list[Any]:
    """A column in which all are the same, once: `unnest` fills it up with NULLs, and the statement
    takes the first for those. The driver looks at every value of a list for quite some time.
    """
    return values[:1] if values.count(values[0]) == len(values) else values


def changed_rows(run: UUID, nodes: Iterable[Node]) -> list[list[Any]]:
    """Nodes as CHANGE_NODES takes them, whose results stay."""
    return _trimmed([(run, node, None) for node in nodes])


def _trimmed(changed: Sequence[tuple[UUID, Node, str | None]]) -> list[list[Any]]:
    """Columns for CHANGE_NODES, without what is zero, false or NULL at their ends."""
    rich = [one for one in changed if not _is_plain(one[1])]
    plain = [one for one in changed if _is_plain(one[1])] if len(rich) < len(changed) else []
    run, label, state, *others = columns([_changed(*one) for one in (*rich, *plain)])
    cut = [column if any(column[len(rich) :]) else column[: len(rich)] for column in others]
    return [once(run), label, state, *cut]


def _is_plain(node: Node) -> bool:
    """Whether most of its numbers are zero: those that are not come first."""
    return not node.is_map and not node.parents.total


def read_node(row: Row) -> Node:
    """A node from NODE_COLUMNS."""
    edges = row["edges"]
    return Node(
        label=row["label"],
        order=row["place"],
        state=NODE_STATES[row["state"]],
        rule=RULES[row["rule"]],
        parents=Counts(row["total"], row["succeeded"], row["failed"], row["skipped"]),
        edges=() if edges == "[]" else _read_edges(edges),
        told=row["told"],
        is_wanted=row["is_wanted"],
        group=row["of"],
        is_map=row["is_map"],
        items=row["items"],
        spawned=row["spawned"],
        items_ended=row["items_ended"],
        items_lost=row["items_lost"],
        execution=row["execution"],
        reason=row["reason"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )


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
    )


def _changed(run: UUID, node: Node, result: str | None) -> tuple[Any, ...]:
    """A node as CHANGE_NODES takes it."""
    counts = node.parents
    return (
        run,
        node.label,
        NODE_CODES[node.state],
        counts.succeeded,
        counts.failed,
        counts.skipped,
        node.told,
        node.items,
        node.spawned,
        node.items_ended,
        node.items_lost,
        node.is_todo,
        node.state in UNSTARTED,
        node.state is NodeState.READY,
        node.started_at,
        node.finished_at,
        node.execution,
        node.reason,
        result,
    )


def _inserted(
    run: UUID, tenant: int, new: NewNode, results: Mapping[str, str]
) -> tuple[object, ...]:
    """A node as INSERTED names its columns."""
    node, counts = new.node, new.node.parents
    return (
        run,
        tenant,
        node.order,
        NODE_CODES[node.state],
        RULE_CODES[node.rule],
        counts.total,
        counts.succeeded,
        counts.failed,
        counts.skipped,
        node.told,
        node.items,
        node.spawned,
        node.items_ended,
        node.items_lost,
        node.is_wanted,
        node.is_map,
        node.is_todo,
        node.state in UNSTARTED,
        node.state is NodeState.READY,
        node.started_at,
        node.finished_at,
        node.execution,
        node.label,
        node.group,
        node.reason,
        msgspec.json.encode(node.edges).decode() if node.edges else "[]",
        new.spec,
        new.input,
        results.get(node.label),
    )


def _run_row(step: Advance, now: Instant) -> tuple[Any, ...]:
    """A run as CHANGE_RUNS takes it."""
    run = step.run
    return (
        run.id,
        run.left,
        run.running,
        run.ready,
        run.lost_leaves,
        run.is_todo,
        None if run.stopping is None else run.stopping.value,
        run.failed,
        None if step.end is None else now,
    )
