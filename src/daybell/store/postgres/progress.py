"""Progress of workflow runs, in the transaction that has ended one of their nodes.

The core decides for one run at a time. This module drives several runs side by side, so a batch of
ends takes as many statements as a single end. A transaction reads a run and its nodes only under
the run's lock. Nodes of executions that it has ended are the exception: from the start of a node
on, only its end changes it.

Transactions take locks in one order, that of `LockPlan`. So nodes that end together do most of
their work in parallel, and wait for their run only with the rest. The lock of an inner run comes
before those of the runs around it: the end of a node may end all of them. The lock of a tenant with
a quota comes last, and is taken only if it is free.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.ids import mint_many
from daybell.core.schedule import is_backfill
from daybell.core.units import Instant
from daybell.core.workflow.progress import advance, record_ends
from daybell.core.workflow.restart import Restart, restart
from daybell.core.workflow.rules import ParentCounts
from daybell.core.workflow.run import (
    PROGRESS_BATCH,
    Advance,
    Node,
    NodeEnd,
    NodeState,
    Run,
    RunQuery,
    RunRead,
    Start,
    StartGroup,
    StopReason,
)
from daybell.errors import Unavailable
from daybell.store import run_driver
from daybell.store.codec import NODE_CODES, OUTCOME_CODES, STATE_CODES, STATES
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.context import (
    ALL_TENANTS,
    SCHEDULES,
    WORKERS,
    AfterCommit,
    StoreContext,
    Tx,
)
from daybell.store.postgres.flow.cache import fill_cache, find_cached
from daybell.store.postgres.gates import (
    free_slots,
    lock_gates,
    mark_claimable,
    node_room,
    notify_claimable,
    read_quotas,
)
from daybell.store.postgres.names import BEGAN, ENDED, KEPT, CurrentJob
from daybell.store.postgres.run_rows import (
    CHANGE_NODES,
    NO_PARENTS,
    NODE_COLUMNS,
    RUN_COLUMNS,
    Columns,
    Ctid,
    LockedRun,
    RowCache,
    answer_asks,
    changed_rows,
    columns_of,
    read_node,
    read_run,
    write_steps,
)
from daybell.store.run_driver import (
    OUTCOMES,
    cached_end,
    id_source,
    is_run_over,
    missing_job_end,
)

# Executions of nodes. The transaction that lets them start creates them under their run's lock.
#
# They pass no gate, because the run has passed its own. They hold no unique key.

STARTED: Final = NODE_CODES[NodeState.STARTED]

Starts = Sequence[tuple[LockedRun, Start, Node | None]]  # the node, if its row is written, too
Lane = tuple[str, str]  # queue, needs


# The client sends a value that all rows share once. This statement fills it in.
NEW: Final = """
    t AS MATERIALIZED (SELECT daybell.now() AS now),
    u AS MATERIALIZED (
      SELECT u.id, coalesce(u.job, ($3::int[])[1]) AS job,
             coalesce(u.version, ($4::int[])[1]) AS version,
             coalesce(u.lane, ($5::int[])[1]) AS lane,
             coalesce(u.priority, ($6::smallint[])[1]) AS priority,
             coalesce(u.args, ($7::text[])[1]) AS args,
             coalesce(u.parent, ($8::uuid[])[1]) AS parent, u.node, u.expires_in, u.retries,
             u.timeout, coalesce(u.succeeded, ($13::int[])[1]) AS succeeded,
             coalesce(u.failed, ($14::int[])[1]) AS failed,
             coalesce(u.skipped, ($15::int[])[1]) AS skipped, u.scheduled_for, u.place
        FROM unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::smallint[], $7::text[],
                    $8::uuid[], $9::text[], $10::float8[], $11::int[], $12::float8[], $13::int[],
                    $14::int[], $15::int[], $16::float8[], $17::tid[])
             u(id, job, version, lane, priority, args, parent, node, expires_in, retries, timeout,
               succeeded, failed, skipped, scheduled_for, place)),
    l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
             args, expires_at, retries, timeout, parent, node, scheduled_for)
      SELECT $1, u.id, u.job, u.version, u.lane, u.priority, 1, t.now, t.now, u.args,
             t.now + u.expires_in, u.retries, u.timeout, u.parent, u.node, u.scheduled_for
        FROM t, u
      RETURNING run_at, lane, priority, id)"""
CLAIMABLE: Final = """
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM l
    """
START: Final = f"WITH {NEW} {CLAIMABLE}"
# The same, with the rows of the nodes. Each row is found by the place at which it was read.
START_MARKED: Final = f"""
    WITH {NEW},
    m AS (
      UPDATE daybell.node n
         SET state = {STARTED}, is_ready = false, execution = u.id, succeeded = u.succeeded,
             failed = u.failed, skipped = u.skipped
        FROM u WHERE n.ctid = u.place AND (n.run = u.parent) IS TRUE)
    {CLAIMABLE}
    """


async def start_nodes(
    tx: Tx, tenant: int, starts: Starts, seen: RowCache
) -> dict[UUID, list[NodeEnd]]:
    """Create executions. Return, by run, the ends of nodes that take a cached result, and of those
    without an existing job.
    """
    jobs = await _named_jobs(tx, tenant, starts)
    named = [(start, jobs[start.spec.job]) for _, start, _ in starts if start.spec.job in jobs]
    cached = await find_cached(tx, tenant, named)
    gone: dict[UUID, list[NodeEnd]] = {}
    lanes: list[tuple[LockedRun, Start, Node | None, Lane]] = []
    runs = await tx.pg.names.lane_rows(tx, {held.lane for held, _, _ in starts})
    for held, start, node in starts:
        if (found := cached.get(start.id)) is not None:
            gone.setdefault(held.run.id, []).append(cached_end(start, *found))
            continue
        spec = start.spec
        job = runs[held.lane] if spec.job is None else jobs.get(spec.job)
        if job is None:
            gone.setdefault(held.run.id, []).append(missing_job_end(start))
            continue
        pair = spec.queue or job.queue, spec.needs or job.needs
        lanes.append((held, start, node, pair))
    numbers = await _numbers(tx, tenant, {pair for *_, pair in lanes})
    rows: dict[str, list[StartRow]] = {}
    for held, start, node, pair in lanes:
        parents, place = NO_PARENTS, None
        if node is not None:
            parents, place = node.parents, seen.places[held.run.id][node.label]
        job = jobs.get(start.spec.job or "")
        row = StartRow(held, start, job, numbers[pair], parents, place)
        rows.setdefault(START if node is None else START_MARKED, []).append(row)
    for query, some in rows.items():
        await tx.execute(query, tenant, *_start_columns(some))
    mark_claimable(tx, tenant, (queue for queue, _ in numbers))
    return gone


async def start_group(tx: Tx, tenant: int, held: LockedRun, many: StartGroup) -> None:
    """Create executions of identical nodes, and write the rows of these nodes."""
    spec, parents = many.spec, many.parents
    own = (await tx.pg.names.lane_rows(tx, {held.lane}))[held.lane]
    pair = spec.queue or own.queue, spec.needs or own.needs
    lane = (await _numbers(tx, tenant, {pair}))[pair]
    count = len(many.nodes.labels)
    await tx.execute(
        START_MARKED,
        tenant,
        mint_many(count),
        [held.job],
        [held.version],
        [lane],
        [held.priority if spec.priority is None else spec.priority],
        [spec.args],
        [held.run.id],
        many.nodes.labels,
        [],
        [] if spec.retries is None else [spec.retries] * count,
        [] if spec.timeout is None else [spec.timeout] * count,
        [parents.succeeded],
        [parents.failed],
        [parents.skipped],
        [] if held.scheduled_for is None else [held.scheduled_for] * count,
        many.nodes.rows,
    )
    mark_claimable(tx, tenant, pair[:1])


async def _named_jobs(tx: Tx, tenant: int, starts: Starts) -> dict[str, CurrentJob]:
    wanted = {start.spec.job for _, start, _ in starts if start.spec.job is not None}
    return await tx.pg.names.existing_jobs(tx, tenant, wanted) if wanted else {}


async def _numbers(tx: Tx, tenant: int, pairs: Collection[Lane]) -> dict[Lane, int]:
    """Return the lanes of queues and needs. Those of a run's own nodes were made before it began.
    For others see `Names.lanes`: lanes that this transaction makes are not remembered.
    """
    found = {pair: tx.pg.names.known_lane(tenant, pair) for pair in pairs}
    missing = sorted(pair for pair, lane in found.items() if lane is None)
    if missing:
        await tx.pg.names.make_lanes(tx, tenant, missing)
        found |= await tx.pg.names.lane_numbers(tx, tenant, missing)
    return {pair: lane for pair, lane in found.items() if lane is not None}


def nodes_written_with_start(step: Advance) -> dict[str, Node]:
    """Return the nodes to write with their executions. Nothing can prevent these executions."""
    labels = {start.label for start in step.starts if start.spec.job is None}
    if not labels:
        return {}
    return {node.label: node for node in step.changed if node.label in labels}


class StartRow(NamedTuple):
    """A node's execution to create."""

    held: LockedRun
    start: Start
    job: CurrentJob | None  # None: that of the run
    lane: int
    parents: ParentCounts
    place: Ctid | None  # of the node's row

    @property
    def priority(self) -> int:
        if self.start.spec.priority is not None:
            return self.start.spec.priority
        return self.held.priority if self.job is None else self.job.priority


# The columns of START, each with the way to read it.
START_READERS: Final[dict[str, Callable[[StartRow], Any]]] = {
    "id": attrgetter("start.id"),
    "job": lambda row: row.held.job if row.job is None else row.job.key,
    "version": lambda row: row.held.version if row.job is None else row.job.version,
    "lane": attrgetter("lane"),
    "priority": attrgetter("priority"),
    "args": attrgetter("start.args"),
    "parent": attrgetter("held.run.id"),
    "node": attrgetter("start.label"),
    "expires_in": lambda row: None if row.job is None else row.job.expires,
    "retries": attrgetter("start.spec.retries"),
    "timeout": attrgetter("start.spec.timeout"),
    "succeeded": attrgetter("parents.succeeded"),
    "failed": attrgetter("parents.failed"),
    "skipped": attrgetter("parents.skipped"),
    "scheduled_for": attrgetter("held.scheduled_for"),
    "place": attrgetter("place"),
}


def _start_columns(rows: Sequence[StartRow]) -> Columns:
    columns = Columns.of(rows, START_READERS)
    columns.collapse("job", "version", "lane", "priority", "args", "parent")
    columns.collapse("succeeded", "failed", "skipped")
    columns.drop_nulls("expires_in", "retries", "timeout", "scheduled_for")
    return columns


EndsByRun = Mapping[UUID, Sequence[NodeEnd]]  # by run
# The most that one transaction does for many runs, and the least that it does for each.
BATCH_MAX: Final = 4 * PROGRESS_BATCH
BATCH_MIN: Final = 20
KNOWN_MAX: Final = 1000  # runs that are remembered

# The columns of an end that its gate, schedule and run need. Only nodes have their results read.
TOLD_COLUMNS: Final = (
    "id", "attempt", "state", "gate", "schedule", "scheduled_for", "node", "parent", BEGAN,
    "finished_at",
    "CASE WHEN node IS NOT NULL THEN result END AS result",
    "CASE WHEN node IS NOT NULL THEN reason END AS reason",
    "CASE WHEN node IS NOT NULL AND state = 7 THEN error END AS error",
)  # fmt: skip
TOLD: Final = ", ".join(TOLD_COLUMNS)

# A run may be put back and end before it has begun again. Then it has nodes that did not end.
HAS_RUN: Final = (
    "CASE WHEN state IN (8, 9) THEN (SELECT true FROM daybell.run r WHERE r.id = e.id"
    " AND r.tenant = $1) END AS has_run"
)


# These columns never change, so the rows to lock are known before the first lock.
AROUND: Final = """
    WITH RECURSIVE c AS (
      SELECT r.id, r.gate, r.schedule, r.parent FROM daybell.run r
       WHERE r.tenant + 0 = $1 AND r.id = ANY($2::uuid[])
      UNION
      SELECT r.* FROM c, LATERAL (
        SELECT r.id, r.gate, r.schedule, r.parent FROM daybell.run r
         WHERE r.id = c.parent AND r.tenant = $1 LIMIT 1) r)
    SELECT id, gate, schedule, parent FROM c
    """


async def run_and_ancestors(tx: Tx, tenant: int, runs: Collection[UUID]) -> list[Row]:
    """Return these runs and those around them, with the gates and schedules of each."""
    found: dict[UUID, Row] = {}
    missing = set(runs)
    while missing and all((tenant, run) in tx.pg.run_ancestors for run in missing):
        some = [tx.pg.run_ancestors[tenant, run] for run in missing]
        found |= {row["id"]: row for row in some}
        missing = {row["parent"] for row in some} - {None}
    if missing:
        rows = await tx.fetch(AROUND, tenant, list(missing))
        if len(tx.pg.run_ancestors) > KNOWN_MAX:
            tx.pg.run_ancestors.clear()
        tx.pg.run_ancestors |= {(tenant, row["id"]): row for row in rows}
        found |= {row["id"]: row for row in rows}
    return list(found.values())


LOCK_RUNS: Final = f"""
    SELECT {RUN_COLUMNS}, daybell.now() AS now,
           (SELECT v.scheduled_for FROM daybell.live v
             WHERE v.id = r.id AND v.tenant = r.tenant) AS scheduled_for
      FROM daybell.run r
     WHERE r.tenant + 0 = $1 AND r.id = ANY($2::uuid[])
     ORDER BY r.depth DESC, r.id FOR UPDATE
    """


async def lock_runs(
    tx: Tx, tenant: int, runs: Collection[UUID], *, wait: bool = True
) -> dict[UUID, LockedRun]:
    """Lock runs. The caller locks their gates and schedules, and the runs around them, too."""
    if not runs:
        return {}
    query = LOCK_RUNS if wait else f"{LOCK_RUNS} SKIP LOCKED"
    return {
        row["id"]: LockedRun.of(
            read_run(row), row, depth=row["depth"], is_finished=row["finished_at"] is not None
        )
        for row in await tx.fetch(query, tenant, list(runs))
    }


async def advance_locked_runs(
    tx: Tx,
    tenant: int,
    held: Mapping[UUID, LockedRun],
    ended: EndsByRun,
    parts: int = 1,
    seen: RowCache | None = None,
) -> list[Row]:
    """Continue runs that this transaction has locked, after the ends of nodes. Return the rows of
    the runs that ended with it. `parts`: the multiple of the usual amount at once.
    `seen`: the known state of their rows.
    """
    runs = dict(held)
    waiting = {run: list(ends) for run, ends in ended.items() if run in runs}
    over: list[Row] = []
    noting: set[UUID] = set()  # runs with nodes that could not be started
    moved = {} if seen is None else seen.moved
    while waiting:
        depth = max(runs[run].depth for run in waiting)
        some = {run: ends for run, ends in waiting.items() if runs[run].depth == depth}
        for run in some:
            del waiting[run]
        known, seen = seen or RowCache(), None
        known.moved = {run: moved.pop(run) for run in some if run in moved}
        steps = await _drive(tx, tenant, runs, some, parts, noting, known)
        if not steps:
            continue
        rows_of = {run: nodes_written_with_start(step) for run, step in steps.items()}
        await write_steps(tx, tenant, runs, steps, rows_of, known)
        starts = [
            (runs[run], start, rows_of[run].get(start.label))
            for run, step in steps.items()
            for start in step.starts
        ]
        gone = await start_nodes(tx, tenant, starts, known) if starts else {}
        for run, step in steps.items():
            for many in step.many:
                await start_group(tx, tenant, runs[run], many)
        noting |= gone.keys()
        rows = await _end_runs(tx, tenant, steps)
        over += rows
        for run, step in steps.items():
            runs[run] = replace(runs[run], run=step.run, is_finished=step.end is not None)
            if step.run.is_todo:
                tx.after.continue_runs[tenant, run] = None
        for run, ends in (*gone.items(), *node_ends(rows).items()):
            if run in runs:
                waiting.setdefault(run, []).extend(ends)
    return over


async def _drive(
    tx: Tx,
    tenant: int,
    runs: dict[UUID, LockedRun],
    ended: EndsByRun,
    parts: int,
    noting: Collection[UUID],
    seen: RowCache,
) -> dict[UUID, Advance]:
    """Advance each of these runs with the core, and answer the queries that the core makes."""
    going: dict[UUID, Generator[RunQuery, Any, Advance]] = {}
    limit = min(parts * PROGRESS_BATCH, max(BATCH_MIN, BATCH_MAX // len(ended)))
    for run, ends in ended.items():
        if runs[run].is_finished:
            continue
        moved = seen.moved.get(run, ())
        times = [one.finished_at or 0.0 for one in (*ends, *moved)]
        runs[run] = replace(runs[run], now=max([runs[run].now, *times]))
        if run in noting:
            going[run] = record_ends(runs[run].run, ends, mint=id_source())
        else:
            same = [one.same for one in moved]
            going[run] = advance(runs[run].run, ends, same, mint=id_source(), limit=limit)
    steps: dict[UUID, Advance] = {}
    answers: dict[UUID, Any] = dict.fromkeys(going)
    room: float | None = None  # of the tenant, for all of them
    while answers:
        asks: dict[UUID, RunQuery] = {}
        starting: list[UUID] = []
        for run, answer in answers.items():
            try:
                ask = going[run].send(answer)
            except StopIteration as stop:
                steps[run] = stop.value
                continue
            if ask.read is RunRead.QUOTA:
                starting.append(run)
            else:
                asks[run] = ask
        answers = await answer_asks(tx, tenant, asks, seen) if asks else {}
        if starting:
            if room is None:
                room = await node_room(tx, tenant)
            shares = divide_room(room, len(starting))
            answers |= dict(zip(starting, shares, strict=True))
            room = room if room == inf else room - sum(shares)
    return steps


# No worker holds an expanded run. Its row changes under the run's lock, except for one column: one
# transaction requests a cancellation, and the next stops the run. A run that ends between the two
# ends as cancelled.
END_RUNS: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    d AS (
      DELETE FROM daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[]) AND v.state + 0 = 5 RETURNING v.*),
    e AS MATERIALIZED (
      SELECT {KEPT}, failures, crashes,
             CASE WHEN cancel_requested_at IS NULL THEN u.state ELSE 8 END AS state,
             CASE WHEN cancel_requested_at IS NULL THEN u.outcome ELSE 5 END AS outcome,
             (SELECT now FROM t) AS finished_at, d.started_at, NULL::uuid AS worker,
             CASE WHEN cancel_requested_at IS NULL THEN u.result END AS result,
             CASE WHEN cancel_requested_at IS NULL THEN u.error END AS error,
             CASE WHEN cancel_requested_at IS NULL THEN u.reason END AS reason,
             checkpoint, NULL::text AS log
        FROM d FULL JOIN unnest($2::uuid[], $3::smallint[], $4::smallint[], $5::text[], $6::text[],
                                $7::text[])
             u(id, state, outcome, result, error, reason) USING (id)
       WHERE coalesce(d.job, 0) > 0),
    x AS (
      INSERT INTO daybell.dead ({ENDED}) SELECT {ENDED} FROM e WHERE state = 7 AND node IS NULL),
    y AS (
      INSERT INTO daybell.history ({ENDED})
      SELECT {ENDED} FROM e WHERE state <> 7 OR node IS NOT NULL)
    SELECT {TOLD} FROM e
    """


async def _end_runs(tx: Tx, tenant: int, steps: Mapping[UUID, Advance]) -> list[Row]:
    ends = {run: step.end for run, step in steps.items() if step.end is not None}
    if not ends:
        return []
    states = [STATE_CODES[end.state] for end in ends.values()]
    outcomes = [OUTCOME_CODES[OUTCOMES[end.state]] for end in ends.values()]
    rest = columns_of(ends.values(), "result", "error", "reason")
    return await tx.fetch(END_RUNS, tenant, list(ends), states, outcomes, *rest)


def divide_room(room: float, count: int) -> list[float]:
    """Divide room among this number of runs."""
    if room == inf:
        return [inf] * count
    least, more = divmod(int(room), count)
    return [least + (place < more) for place in range(count)]


def node_ends(rows: Iterable[Row]) -> dict[UUID, list[NodeEnd]]:
    """Return the ends of nodes among these rows, by run."""
    ends: dict[UUID, list[NodeEnd]] = {}
    for row in rows:
        if row["node"] is not None:
            names = "result", "reason", "started_at", "finished_at", "error"
            rest = [row[name] for name in names]
            end = NodeEnd(row["node"], row["id"], STATES[row["state"]], *rest)
            ends.setdefault(row["parent"], []).append(end)
    return ends


def merge_ends(*ends: EndsByRun) -> dict[UUID, list[NodeEnd]]:
    """Return all ends by run."""
    merged: dict[UUID, list[NodeEnd]] = {}
    for some in ends:
        for run, told in some.items():
            merged.setdefault(run, []).extend(told)
    return merged


# Restart of ended runs: the run itself begins again, or a new run takes over its nodes.
#
# Until a worker claims and expands them, they look ended, except for nodes that have not ended.
# Until then no process continues them.

# The columns that a run takes over from the nodes of another: all but the run.
COPIED: Final = (
    "tenant", "place", "state", "rule", "total", "succeeded", "failed", "skipped", "told",
    "items", "spawned", "items_ended", "items_lost", "is_wanted", "is_map", "is_todo",
    "is_ready", "started_at", "finished_at", "execution", "label", "of", "reason", "edges", "spec",
    "input", "result",
)  # fmt: skip


ALL_NODES: Final = f"""
    SELECT {NODE_COLUMNS} FROM daybell.node n WHERE n.run = $2 AND n.tenant = $1
    """


async def all_nodes(tx: Tx, tenant: int, run: UUID) -> list[Node]:
    """Return all nodes of a run, including items."""
    return [read_node(row) for row in await tx.fetch(ALL_NODES, tenant, run)]


async def reset_runs(
    tx: Tx, tenant: int, held: Mapping[UUID, LockedRun], runs: Collection[UUID]
) -> None:
    """Reset dead runs: once claimed, they begin again with the nodes that did not succeed."""
    for run in runs:
        one = held.get(run)
        if one is not None and is_run_over(one.run):
            again = restart(one.run, await all_nodes(tx, tenant, run))
            await tx.execute(DROP_ITEMS, tenant, run, list(again.dropped))
            await _put_back(tx, tenant, again)


DROP_ITEMS: Final = """
    DELETE FROM daybell.node WHERE run = $2 AND tenant = $1 AND of = ANY($3::text[])
    """
FORGET_RESULTS: Final = """
    UPDATE daybell.node SET result = NULL WHERE run = $2 AND tenant = $1 AND label = ANY($3::text[])
    """
RESET_RUN: Final = """
    UPDATE daybell.run
       SET unended = $3, running = 0, ready = $4, lost_leaves = $5, failed = $6, stopping = NULL,
           is_todo = false
     WHERE id = $2 AND tenant = $1
    """


async def _put_back(tx: Tx, tenant: int, again: Restart) -> None:
    run = again.run
    if again.changed:
        rows = changed_rows(run.id, again.changed)
        await tx.execute(CHANGE_NODES, tenant, *rows)
    await tx.execute(FORGET_RESULTS, tenant, run.id, list(again.forgotten))
    await tx.execute(RESET_RUN, tenant, run.id, run.left, run.ready, run.lost_leaves, run.failed)


COPY_NODES: Final = f"""
    INSERT INTO daybell.node (run, {", ".join(COPIED)})
    SELECT $3, {", ".join(f"n.{column}" for column in COPIED)}
      FROM daybell.node n
     WHERE n.run = $2 AND n.tenant = $1 AND (n.of IS NULL OR n.of <> ALL($4::text[]))
    """


async def take_over(tx: Tx, tenant: int, old: UUID, again: Restart, execution: Row) -> None:
    """Store a new run with the nodes of an old one. The execution of the new run is enqueued."""
    run = again.run
    await keep_run(tx, tenant, run, execution, depth=0, parent=None)
    await tx.execute(COPY_NODES, tenant, old, run.id, list(again.dropped))
    await _put_back(tx, tenant, again)
    await tx.execute(REST, tenant, run.id)


# Upkeep must not take this run for one that continues: no worker has begun it.
REST: Final = "UPDATE daybell.run SET finished_at = daybell.now() WHERE id = $2 AND tenant = $1"

BEGIN: Final = """
    INSERT INTO daybell.run (id, tenant, total, unended, running, ready, max_running, fail_fast,
           is_todo, job, version, lane, priority, depth, gate, schedule, parent, node)
    VALUES ($2, $1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
    """


async def keep_run(
    tx: Tx,
    tenant: int,
    run: Run,
    execution: Row,
    *,
    depth: int,
    parent: UUID | None,
) -> None:
    """Store a new run beside its execution."""
    counts = run.id, run.total, run.left, run.running, run.ready
    options = run.max_running, run.fail_fast, run.is_todo
    inherited = [execution[name] for name in ("job", "version", "lane", "priority")]
    links = execution["gate"], execution["schedule"], parent
    node = None if parent is None else execution["node"]
    await tx.execute(BEGIN, tenant, *counts, *options, *inherited, depth, *links, node)


# Effects of an end: it hands on a slot, and a schedule or a run may wait for it.

SUCCEEDED: Final = STATE_CODES[State.SUCCEEDED]
DEAD: Final = STATE_CODES[State.DEAD]


# The rows that the end of an execution affects: its gate, its schedule, its run.
EndLinks = tuple[str | None, UUID | None, UUID | None]


class ScheduleNews(msgspec.Struct):
    """The combined effect of the ends of a batch on one schedule."""

    succeeded_for: Instant | None = None
    has_succeeded: bool = False
    failures: int = 0
    latest: Instant | None = None  # of the ticks with ended executions

    def add(self, row: Row) -> None:
        # A later tick cannot have replaced an execution without a tick's time.
        at = row["scheduled_for"] if row["scheduled_for"] is not None else math.inf
        self.latest = at if self.latest is None else max(self.latest, at)
        if row["state"] == SUCCEEDED:
            self.has_succeeded, self.failures = True, 0
            if row["scheduled_for"] is not None:
                self.succeeded_for = max(self.succeeded_for or 0.0, row["scheduled_for"])
        elif row["state"] == DEAD:
            self.failures += 1


def notify_after_commit(pg: StoreContext, after: AfterCommit) -> None:
    """Wake the workers and schedulers that wait for the outcome. Call this after the commit."""
    notify_claimable(pg, after)
    if after.is_rearmed:
        after.is_rearmed = False
        pg.notifier.touch(ALL_TENANTS, [SCHEDULES])


LOCK_SCHEDULES: Final = """
    SELECT FROM daybell.schedule WHERE tenant = $1 AND id = ANY($2::uuid[])
     ORDER BY id FOR NO KEY UPDATE
    """


class LockPlan(NamedTuple):
    """Rows that a transaction locks to end executions, known before the first lock.

    All transactions use the same order, so they never wait for each other in a circle:

    1. executions of nodes: by the statement that ends them, or by `lock_nodes` before several;
    2. schedules, gates, and runs from the inner to the outer: by `lock_links`;
    3. all other executions: by the statements that end them, after `lock_links`.
    """

    tenant: int
    nodes: list[UUID]
    schedules: set[UUID]
    gates: set[str]
    runs: list[UUID]  # and those around them

    async def lock_nodes(self, tx: Tx) -> None:
        """Lock the executions of nodes."""
        if self.nodes:
            await tx.execute(LOCK_NODES, self.tenant, self.nodes)

    async def lock_links(self, tx: Tx) -> dict[UUID, LockedRun]:
        """Lock the schedules, gates and runs; return the runs."""
        if self.schedules:
            await tx.execute(LOCK_SCHEDULES, self.tenant, sorted(self.schedules))
        if self.gates:
            await lock_gates(tx, self.tenant, self.gates)
        return await lock_runs(tx, self.tenant, self.runs)


async def plan_locks(
    tx: Tx,
    tenant: int,
    *,
    nodes: Iterable[UUID] = (),
    schedules: Iterable[UUID | None] = (),
    gates: Iterable[str | None] = (),
    runs: Collection[UUID] = (),
) -> LockPlan:
    """Plan the locks for ends with these links. The end of a node may end all runs around it, so
    the plan includes their schedules and gates.
    """
    around = await run_and_ancestors(tx, tenant, runs)
    return LockPlan(
        tenant,
        list(nodes),
        {schedule for schedule in schedules if schedule is not None}
        | _column_values(around, "schedule"),
        {gate for gate in gates if gate is not None} | _column_values(around, "gate"),
        [row["id"] for row in around],
    )


# For a reaper: a client that froze inside a transaction must not stop it.
LOCK_GATES_FREE: Final = """
    SELECT key FROM daybell.gate WHERE tenant = $1 AND key = ANY($2::text[]) ORDER BY key
       FOR UPDATE SKIP LOCKED
    """
LOCK_SCHEDULES_FREE: Final = """
    SELECT id FROM daybell.schedule WHERE tenant = $1 AND id = ANY($2::uuid[]) ORDER BY id
       FOR NO KEY UPDATE SKIP LOCKED
    """
# A schedule that is gone blocks nothing.
GONE: Final = """
    SELECT u.id FROM unnest($2::uuid[]) u(id)
     WHERE NOT EXISTS (SELECT FROM daybell.schedule s WHERE s.tenant = $1 AND s.id = u.id)
    """


async def try_lock_links(
    tx: Tx, tenant: int, links: Collection[EndLinks]
) -> tuple[set[EndLinks], dict[UUID, LockedRun]]:
    """Lock in the order of `LockPlan` without waiting. Return the links of which all rows were
    free, and the runs.
    """
    around = {
        row["id"]: row
        for row in await run_and_ancestors(tx, tenant, {run for *_, run in links if run})
    }
    concerned = {one: _affected_rows(one, around) for one in links}
    free: set[str | UUID | None] = {None}
    schedules = {schedule for some in concerned.values() for schedule in some[1]}
    if schedules:
        locked = await tx.fetch(LOCK_SCHEDULES_FREE, tenant, sorted(schedules))
        gone = await tx.fetch(GONE, tenant, sorted(schedules))
        free |= {row["id"] for row in (*locked, *gone)}
    gates = {gate for some in concerned.values() if some[1] <= free for gate in some[0]}
    if gates:
        locked = await tx.fetch(LOCK_GATES_FREE, tenant, sorted(gates))
        free |= {row["key"] for row in locked}
    runs = {run for some in concerned.values() if some[0] | some[1] <= free for run in some[2]}
    held = await lock_runs(tx, tenant, runs, wait=False)
    free |= held.keys()
    return {one for one, (g, s, r) in concerned.items() if g | s | r <= free}, held


async def follow_up(
    tx: Tx,
    tenant: int,
    ended: Iterable[Row],
    held: Mapping[UUID, LockedRun],
    also: EndsByRun | None = None,
    parts: int = 1,
    seen: RowCache | None = None,
) -> None:
    """Continue runs, hand on slots and notify schedules, for rows with the TOLD columns. `also`:
    runs that continue in any case, with ends of their nodes. `parts`, `seen`: see `go_on`.
    """
    rows = list(ended)
    if held:
        ends = merge_ends(also or {}, node_ends(rows))
        rows += await advance_locked_runs(tx, tenant, held, ends, parts, seen)
    slots = Counter[str](row["gate"] for row in rows if row["gate"] is not None)
    await free_slots(tx, tenant, slots)
    news: dict[UUID, ScheduleNews] = {}
    for row in rows:
        if row["schedule"] is not None and not is_backfill(row["gate"]):
            news.setdefault(row["schedule"], ScheduleNews()).add(row)
    if news:
        await _tell(tx, tenant, news)


TELL: Final = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    UPDATE daybell.schedule s
       SET succeeded_for = greatest(s.succeeded_for, u.succeeded_for),
           failures = CASE WHEN u.has_succeeded THEN 0 ELSE s.failures END + u.failures,
           -- What a newer one has replaced is not what a fixed delay waits for.
           next_at = CASE WHEN s.delay IS NOT NULL AND s.next_at IS NULL
                               AND coalesce(u.latest >= s.last_at, true)
                          THEN (SELECT now FROM t) + s.delay ELSE s.next_at END,
           moved_at = CASE WHEN s.delay IS NOT NULL AND s.next_at IS NULL
                           THEN (SELECT now FROM t) ELSE s.moved_at END
      FROM unnest($2::uuid[], $3::float8[], $4::boolean[], $5::int[], $6::float8[])
             u(id, succeeded_for, has_succeeded, failures, latest)
     WHERE s.tenant = $1 AND s.id = u.id
    RETURNING s.job, s.failures, s.delay,
              NOT s.is_paused AND u.failures > 0 AND s.failures >= s.pause_after AS is_enough
    """


async def _tell(tx: Tx, tenant: int, news: dict[UUID, ScheduleNews]) -> None:
    told = await tx.fetch(
        TELL,
        tenant,
        list(news),
        *columns_of(news.values(), "succeeded_for", "has_succeeded", "failures", "latest"),
    )
    for row in told:
        if row["is_enough"]:
            note = f"paused after {row['failures']} failures in a row"
            await stop_schedules(tx, row["job"], note)
    if any(row["delay"] is not None for row in told):
        tx.after.is_rearmed = True


PAUSE: Final = """
    UPDATE daybell.job SET paused_at = coalesce(paused_at, daybell.now()), pause_note = $2
     WHERE key = $1
    """
# A separate statement: one that waited for the lock of the job would have an older snapshot.
STOP_SCHEDULES: Final = (
    "UPDATE daybell.schedule SET is_paused = true WHERE job = $1 AND NOT is_paused"
)


async def stop_schedules(tx: Tx, job: int, note: str) -> None:
    """Stop the schedules of a job."""
    await tx.execute(PAUSE, job, note)
    await tx.execute(STOP_SCHEDULES, job)


def _column_values(rows: Iterable[Row], column: str) -> set[Any]:
    return {row[column] for row in rows if row[column] is not None}


def _affected_rows(
    links: EndLinks, around: Mapping[UUID, Row]
) -> tuple[set[str], set[UUID], set[UUID]]:
    """Return the gates, schedules and runs that an end affects, if it ends its run, too."""
    gate, schedule, run = links
    gates = set[str]() if gate is None else {gate}
    schedules = set[UUID]() if schedule is None else {schedule}
    runs = set[UUID]()
    while run is not None:
        runs.add(run)
        row = around.get(run)
        if row is None:
            break
        gates |= _column_values([row], "gate")
        schedules |= _column_values([row], "schedule")
        run = row["parent"]
    return gates, schedules, runs


# Ends of executions that no worker has begun: they are cancelled, expired or replaced.


LINKS: Final = """
    SELECT DISTINCT gate, schedule, CASE WHEN node IS NOT NULL THEN parent END AS run
      FROM daybell.{table}
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
       AND (gate IS NOT NULL OR schedule IS NOT NULL OR node IS NOT NULL)
    """
# Under this lock no execution can end or come back. A claim can still take one; then the next
# statement waits for the claim.
FIND_UNFINISHED: Final = """
    SELECT id FROM daybell.live WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) ORDER BY id
    """
LOCK_UNFINISHED: Final = f"{FIND_UNFINISHED} FOR UPDATE"
# A run that has begun changes under its own lock, so it is locked with the other runs.
LOCK_NODES: Final = """
    SELECT id FROM daybell.live
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) AND node IS NOT NULL AND state <> 5
     ORDER BY id FOR UPDATE
    """
# The row in `live` has the key of the agenda.
UNQUEUE: Final = """
    DELETE FROM daybell.agenda a USING daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[])
       AND a.lane = v.lane AND a.priority = v.priority AND a.run_at = v.run_at AND a.id = v.id
    RETURNING a.id
    """
UNPARK: Final = """
    DELETE FROM daybell.parked p USING daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[]) AND p.tenant = v.tenant AND p.gate = v.gate
       AND p.priority = v.priority AND p.run_at = v.run_at AND p.id = v.id
    RETURNING p.id
    """
# An execution that waits but is not parked waits for another reason, and keeps its slot.
WAITING: Final = """
    SELECT id FROM daybell.live WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) AND state = 4
    """
# A parked execution has no slot to hand on.
END_PENDING: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    d AS (DELETE FROM daybell.live WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) RETURNING *),
    h AS (
      INSERT INTO daybell.history ({ENDED})
      SELECT {KEPT}, failures, crashes, $3, NULL, (SELECT now FROM t), NULL, NULL, NULL, error, $4,
             checkpoint, NULL
        FROM d)
    SELECT * FROM (
      SELECT id, attempt, $3 AS state, schedule, scheduled_for, node, parent,
             NULL::float8 AS started_at, (SELECT now FROM t) AS finished_at, NULL::text AS result,
             $4::text AS reason, NULL::text AS error,
             CASE WHEN id = ANY($5::uuid[]) THEN NULL ELSE gate END AS gate,
             (SELECT true FROM daybell.run r WHERE r.id = d.id AND r.tenant = $1) AS has_run
        FROM d) e
     WHERE gate IS NOT NULL OR schedule IS NOT NULL OR node IS NOT NULL OR has_run
    """
CANCEL_RUNNING: Final = """
    UPDATE daybell.live SET cancel_requested_at = coalesce(cancel_requested_at, daybell.now())
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) RETURNING id, state = 5 AS is_run
    """


async def request_cancel(tx: Tx, tenant: int, ids: Collection[UUID]) -> list[UUID]:
    """Request that workers cancel running executions. Return those that are expanded runs: the
    caller has to stop them after this transaction.
    """
    rows = await tx.fetch(CANCEL_RUNNING, tenant, list(ids)) if ids else []
    return [row["id"] for row in rows if row["is_run"]]


async def end_pending(
    tx: Tx,
    tenant: int,
    ids: Sequence[UUID],
    state: State,
    reason: str | None = None,
) -> tuple[set[UUID], set[UUID]]:
    """End executions that have not started. Return the unfinished ones, and those it ended."""
    _, held = await lock_links_of(tx, tenant, "live", ids)
    live = await fetch_ids(tx, LOCK_UNFINISHED, tenant, ids)
    inside = await fetch_ids(tx, UNQUEUE, tenant, list(live))
    parked = await fetch_ids(tx, UNPARK, tenant, list(live))
    inside |= await fetch_ids(tx, WAITING, tenant, list(live - parked))
    pending = inside | parked
    if pending:
        ended = await tx.fetch(
            END_PENDING, tenant, list(pending), STATE_CODES[state], reason, list(parked)
        )
        tx.after.stop_runs |= {(tenant, row["id"]): None for row in ended if row["has_run"]}
        await follow_up(tx, tenant, ended, held)
    return live, pending


async def lock_links_of(
    tx: Tx,
    tenant: int,
    table: str,
    ids: Sequence[UUID],
    runs: Collection[UUID] = (),
) -> tuple[set[str], dict[UUID, LockedRun]]:
    """Lock the schedules, gates and runs of these executions, and more runs. Return the gates of
    the executions, and the runs. Executions of nodes are locked first, see `LockPlan`.
    """
    rows = await tx.fetch(LINKS.format(table=table), tenant, list(ids))
    of_nodes = {row["run"] for row in rows if row["run"] is not None}
    plan = await plan_locks(
        tx,
        tenant,
        nodes=ids if of_nodes and table == "live" else (),
        schedules=(row["schedule"] for row in rows),
        gates=(row["gate"] for row in rows),
        runs={*runs, *of_nodes},
    )
    await plan.lock_nodes(tx)
    gates: set[str] = {row["gate"] for row in rows if row["gate"] is not None}
    return gates, await plan.lock_links(tx)


async def fetch_ids(link: Link, query: str, tenant: int, ids: Sequence[UUID]) -> set[UUID]:
    """Return the ids that a statement about these ids returns."""
    return {row["id"] for row in await link.fetch(query, tenant, list(ids))} if ids else set()


# Work that runs have left after a transaction: the next part is done in another transaction.
#
# The process that made the first transaction continues for a while. If it has stopped, the tables
# show the remaining work, and `advance_runs` does it.

CANCELLED_MAX: Final = 1000  # nodes at a time
# The first part of the work after an end is small, so that executions start soon. Only the run's
# own ends wait for the other parts, and fewer parts are less work.
LATER_PARTS: Final = 4
# True of a tenant that may have more unfinished executions.
HAS_ROOM: Final = """(t.queued_max IS NULL OR t.queued_max > (SELECT count(*) FROM (
                        SELECT FROM daybell.live l WHERE l.tenant = t.key LIMIT t.queued_max) u))"""


async def after_commit(pg: StoreContext, after: AfterCommit, tenant: int | None) -> None:
    """Do the work that committed transactions have left. Wake the processes that wait for them,
    stop and continue their runs, and continue runs of the tenant that waited for its quota.
    """
    notify_after_commit(pg, after)
    await _fill_cache(pg, after)
    if tenant is not None:
        await unblock_runs(pg, after, tenant)
    # The operation itself is done. If the server is gone, upkeep does the rest.
    with suppress(Unavailable):
        for _ in range(run_driver.ADVANCE_ROUNDS):
            if not after.continue_runs and not after.stop_runs:
                break
            stops, after.stop_runs = after.stop_runs, {}
            continued, after.continue_runs = after.continue_runs, {}
            for owner, run in stops:
                await stop_run(pg, after, owner, run)
            for owner, run in continued:
                await advance_run(pg, after, owner, run)
            notify_after_commit(pg, after)
            await _fill_cache(pg, after)
    notify_after_commit(pg, after)


async def _fill_cache(pg: StoreContext, after: AfterCommit) -> None:
    fills, after.fill_cache = after.fill_cache, {}
    if fills:
        with suppress(Unavailable):  # the next execution of the key does
            await pg.db.settled(partial(fill_cache, pg, list(fills.values())))


# The count comes last, because mostly there is no such run.
UNBLOCKED: Final = f"""
    SELECT r.id FROM (SELECT id FROM daybell.run WHERE tenant = $1 AND is_blocked
                       ORDER BY id LIMIT 1) r,
           LATERAL (SELECT FROM daybell.tenant t WHERE t.key = $1 AND r.id IS NOT NULL
                       AND {HAS_ROOM} OFFSET 0) t
    """


async def unblock_runs(pg: StoreContext, after: AfterCommit, tenant: int) -> None:
    """Continue runs that waited for room in the tenant's quota, if there is room. An end makes
    room, and runs that other processes have driven meanwhile have not seen it.
    """
    advanced: set[UUID] = set()
    with suppress(Unavailable):  # then upkeep does it
        if (await read_quotas(pg, tenant)).queued is None:
            return
        while True:
            async with pg.db.link() as link:
                run: UUID | None = await link.fetchval(UNBLOCKED, tenant)
            # A run that still waits: another transaction has the lock that it needs.
            if run is None or run in advanced:
                return
            advanced.add(run)
            await advance_run(pg, after, tenant, run, wait=False)


async def advance_run(
    pg: StoreContext, after: AfterCommit, tenant: int, run: UUID, *, wait: bool = True
) -> bool | None:
    """Do a part of the remaining work of a run. Return True if there is more, and None if others
    hold its lock and the caller did not want to wait.
    """
    return await pg.db.settled(partial(_advance, pg, after, tenant, run, wait))


async def _advance(
    pg: StoreContext, after: AfterCommit, tenant: int, run: UUID, wait: bool
) -> bool | None:
    async with pg.transaction(after=after) as tx:
        if wait:
            held = await (await plan_locks(tx, tenant, runs=[run])).lock_links(tx)
        else:
            free, held = await try_lock_links(tx, tenant, [(None, None, run)])
            if not free:
                return None
        if run not in held or held[run].is_finished:
            return False
        await follow_up(tx, tenant, (), held, {run: ()}, parts=LATER_PARTS)
    return (tenant, run) in tx.after.continue_runs


async def stop_run(pg: StoreContext, after: AfterCommit, tenant: int, run: UUID) -> None:
    """Stop a run: start no more of its nodes, and cancel the started ones. Do the same in all runs
    inside it, at any depth. Each run has its own transactions, so that none of them waits for a
    lock while it holds others.
    """
    runs = [run]
    while runs:
        one = runs.pop()
        await pg.db.settled(partial(_stop, pg, after, tenant, one))
        while ids := await _uncancelled_nodes(pg, tenant, one):
            runs += await pg.db.settled(partial(_cancel_some, pg, after, tenant, ids))


async def _stop(pg: StoreContext, after: AfterCommit, tenant: int, run: UUID) -> None:
    async with pg.transaction(after=after) as tx:
        held = await (await plan_locks(tx, tenant, runs=[run])).lock_links(tx)
        one = held.get(run)
        if one is None or is_run_over(one.run):
            return
        stopped = replace(one.run, stopping=StopReason.CANCEL, is_todo=True)
        held[run] = replace(one, run=stopped, is_finished=False)
        await follow_up(tx, tenant, (), held, {run: ()})


# No nodes follow these: a stopped run starts no more.
UNCANCELLED_NODES: Final = f"""
    SELECT id FROM daybell.live WHERE parent = $2 AND tenant + 0 = $1 AND node IS NOT NULL
       AND cancel_requested_at IS NULL ORDER BY id LIMIT {CANCELLED_MAX}
    """


async def _uncancelled_nodes(pg: StoreContext, tenant: int, run: UUID) -> list[UUID]:
    """Return some executions of nodes without a cancellation request."""
    async with pg.db.link() as link:
        return [row["id"] for row in await link.fetch(UNCANCELLED_NODES, tenant, run)]


async def _cancel_some(
    pg: StoreContext, after: AfterCommit, tenant: int, ids: Sequence[UUID]
) -> list[UUID]:
    """Cancel these executions. Return those that are runs: the caller has to stop them."""
    async with pg.transaction(after=after) as tx:
        live, pending = await end_pending(tx, tenant, ids, State.CANCELLED)
        inner = await request_cancel(tx, tenant, live - pending)
    if live - pending:
        pg.notifier.touch(tenant, [WORKERS])
    return inner
