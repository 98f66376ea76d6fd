"""Reading views: executions, counts, queues, job activity, rates, and attempts at nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from daybell.core.checks import check_countable, check_cursor, check_limit, check_names
from daybell.core.execution import (
    LEFT_OUT,
    TERMINAL,
    AttemptRecord,
    AttemptSpan,
    Execution,
    ExecutionDetail,
    State,
)
from daybell.core.ids import LATE_SECONDS, first_id_since
from daybell.core.job import DECLARED_MAX, LOOKED_AT_MAX, JobActivity, cut_next
from daybell.core.limits import (
    COUNT_ITEMS_MAX,
    LIST_VALUE_BYTES_MAX,
    MESSAGE_PREFIXES,
    NEXT_SCHEDULES_MAX,
    SCAN_ITEMS_MAX,
)
from daybell.core.placement import MARK, OVERDUE_MAX, PREFER_SECONDS, DemandingLane
from daybell.core.schedule import Schedule
from daybell.core.views import (
    HOLDERS_MAX,
    QUEUE_NUMBERS,
    Activity,
    Backlog,
    Candidate,
    Content,
    Counts,
    ExecutionFilter,
    Found,
    Page,
    Position,
    Queue,
    Total,
    cut_page,
    execution_bytes,
    join_backlogs,
    scan,
)
from daybell.errors import ExecutionNotFound
from daybell.store import run_driver
from daybell.store.codec import (
    EXECUTION_COLUMNS,
    OUTCOMES,
    PRIORITIES,
    STATE_CODES,
    STATES,
    read_execution,
)
from daybell.store.postgres.connection import SNAPSHOT, Row
from daybell.store.postgres.context import StoreContext, Tx
from daybell.store.postgres.names import IN_HISTORY, within_page
from daybell.store.postgres.schedules import FIELDS, FIRST_ID, LAST_ID, NEXT, read_schedule
from daybell.store.sorting import in_order, sort_page
from daybell.store.timeouts import Pace

# Recent activity, for rates.


# The least id of a moment: its milliseconds, and no bit more.
FIRST: Final = "(lpad(to_hex(floor(({}) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid"
# An execution may be finished already: then it is in history, in the part of a day. Its state
# is named, so that each is found by its index.
ACTIVITY: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    b AS MATERIALIZED (
      SELECT now, coalesce($2::float8, now) AS since, now - {LATE_SECONDS} AS lately,
             coalesce($2::float8, now) - {LATE_SECONDS} AS before,
             {FIRST.format(f"now - {LATE_SECONDS}")} AS first,
             {FIRST.format(f"coalesce($2::float8, now) - {LATE_SECONDS}")} AS first_before
        FROM t),
    x AS (
      SELECT v.id, 'infinity'::float8 AS at FROM daybell.live v
       WHERE v.tenant = $1 AND v.id >= (SELECT first_before FROM b)
      UNION ALL
      SELECT v.id, v.finished_at FROM daybell.dead v
       WHERE v.tenant = $1 AND v.id >= (SELECT first_before FROM b)
         AND v.finished_at >= (SELECT before FROM b)
      UNION ALL
      SELECT v.id, v.finished_at FROM unnest('{{6,7,8,9}}'::smallint[]) s(state),
             LATERAL (SELECT h.id, h.finished_at FROM daybell.history h
                       WHERE h.tenant = $1 AND h.state = s.state AND h.node IS NULL
                         AND h.id >= (SELECT first_before FROM b)
                         AND h.finished_at >= (SELECT before FROM b)
                      UNION ALL
                      SELECT h.id, h.finished_at FROM daybell.history h
                       WHERE h.tenant = $1 AND h.state = s.state AND h.node IS NOT NULL
                         AND h.id >= (SELECT first_before FROM b)
                         AND h.finished_at >= (SELECT before FROM b)) v)
    SELECT b.now,
           (SELECT count(*) FROM x) AS since_then,
           (SELECT count(*) FROM x WHERE x.id >= b.first AND x.at >= b.lately) AS recent,
           (SELECT count(*) FROM daybell.attempt a
             WHERE a.tenant = $1 AND a.ended_at > (SELECT since FROM b) AND a.outcome IN (2, 3, 4))
         + (SELECT count(*) FROM daybell.dead d
             WHERE d.tenant = $1 AND d.finished_at > (SELECT since FROM b)) AS failed
      FROM b
    """


async def activity(pg: StoreContext, tenant: str, *, since: Activity | None = None) -> Activity:
    async with pg.db.link(Pace.VIEW) as link:
        key = await pg.names.tenant(link, tenant)
        row = await link.fetchrow(ACTIVITY, key, None if since is None else since.now)
    assert row is not None
    recent = row["recent"] if since is None else since.recent
    return Activity(
        now=row["now"],
        enqueued=max(0, row["since_then"] - recent),
        failed=row["failed"],
        recent=row["recent"],
    )


# Columns of both `live` and `history`; those of ends are given for each.
_SHARED: Final = [
    "job",
    *(
        name
        for name in EXECUTION_COLUMNS
        if name not in {"finished_at", "outcome", "result", "state", "worker", "is_discarded"}
    ),
]
SHOWN: Final = ", ".join(f"v.{name}" for name in _SHARED)
UNFINISHED: Final = "NULL::float8 AS finished_at, NULL::smallint AS outcome, NULL::text AS result"
FINISHED: Final = "v.finished_at, v.outcome, v.result"
NOW: Final = "(SELECT now FROM t)"

# Columns of lists: large values are left out. The size of a value is known without reading it.
_SHORT: Final = {"args": f"'{LEFT_OUT}'", "result": "NULL", "checkpoint": "NULL"}
_LARGE: Final = " OR ".join(f"octet_length(p.{n}) > {LIST_VALUE_BYTES_MAX}" for n in _SHORT)
_LIST_COLUMNS: Final = ", ".join(
    f"CASE WHEN octet_length(p.{n}) > {LIST_VALUE_BYTES_MAX} THEN {_SHORT[n]} ELSE p.{n} END AS {n}"
    if n in _SHORT
    else f"p.{n}"
    for n in [
        *_SHARED,
        *("finished_at", "outcome", "result", "state", "worker", "is_discarded"),
    ]
)
LISTED: Final = f"{_LIST_COLUMNS}, coalesce({_LARGE}, false) AS truncated"

WITH: Final = """
WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
h AS MATERIALIZED (
  SELECT x.id, x.attempt, l.worker FROM daybell.lease l, unnest(l.ids, l.attempts) x(id, attempt)
   WHERE l.tenant = $1)
"""
# True for a row `v` of `live` that a lease holds: a hashed lookup, see decision 0006. An unfinished
# execution in no lease waits or can be claimed, so that views do not read the agenda.
IS_LEASED: Final = "((v.id, v.attempt) IN (SELECT h.id, h.attempt FROM h)) IS TRUE"
LIVE_STATE: Final = f"""
    CASE WHEN v.state IN (4, 5) THEN v.state WHEN {IS_LEASED} THEN 5::smallint
         WHEN v.run_at <= {NOW} THEN 1::smallint ELSE v.state END"""
# Leased executions. A run of a workflow that has started (state 5) is in no lease.
RUNNING: Final = f"""
  SELECT {SHOWN}, {UNFINISHED}, 5::smallint AS state, h.worker, false AS is_discarded
    FROM h, LATERAL (SELECT * FROM daybell.live v WHERE v.tenant = $1 AND v.id = h.id
                        AND v.attempt = h.attempt AND v.state <> 5 LIMIT 1) v
   WHERE true"""
LEASED: Final = f"""
  SELECT {SHOWN.replace("v.id", "h.id", 1)}, {UNFINISHED}, 5::smallint AS state, v.worker,
         false AS is_discarded, false AS is_end
    FROM (SELECT * FROM h v WHERE true{{after}} ORDER BY v.id DESC) h,
         LATERAL (SELECT v.*, h.worker FROM daybell.live v WHERE v.tenant = $1 AND v.id = h.id
                     AND v.attempt = h.attempt AND v.state <> 5 LIMIT 1) v
   WHERE {{conditions}}"""
EXPANDED: Final = f"""
  SELECT {SHOWN}, {UNFINISHED}, v.state, NULL::uuid AS worker, false AS is_discarded
    FROM daybell.live v WHERE v.tenant + 0 = $1 AND v.state = 5"""
# The state of an unfinished execution that no lease holds.
IDLE_STATE: Final = f"CASE WHEN v.state < 4 AND v.run_at <= {NOW} THEN 1::smallint ELSE v.state END"
_IDLE: Final = (
    f"{SHOWN}, {UNFINISHED}, {IDLE_STATE} AS state, NULL::uuid AS worker, false AS is_discarded"
)
_DEAD: Final = f"{SHOWN}, {FINISHED}, v.state, v.worker, false AS is_discarded"
_ENDED: Final = f"{SHOWN}, {FINISHED}, v.state, v.worker, v.state = 7 AS is_discarded"
# Executions by their ids, $2, wherever they are: one probe for each table and state. Of the leases,
# only these ids are kept.
WITH_IDS: Final = WITH.replace(
    "l.tenant = $1)", "l.tenant = $1 AND (x.id IN (SELECT unnest($2::uuid[]))) IS TRUE)"
)
BY_IDS: Final = f"""
  SELECT f.* FROM unnest($2::uuid[]) u(id), LATERAL (
    SELECT {SHOWN}, {UNFINISHED}, {LIVE_STATE} AS state,
           CASE WHEN v.state NOT IN (4, 5) THEN (
             SELECT h.worker FROM h WHERE h.id = v.id AND h.attempt = v.attempt LIMIT 1) END
           AS worker, false AS is_discarded
      FROM (SELECT * FROM daybell.live v WHERE v.id = u.id AND v.tenant + 0 = $1 LIMIT 1) v
    UNION ALL
    SELECT {SHOWN}, {FINISHED}, v.state, v.worker, false
      FROM (SELECT * FROM daybell.dead v WHERE v.id = u.id AND v.tenant + 0 = $1 LIMIT 1) v
    UNION ALL
    SELECT {SHOWN}, {FINISHED}, v.state, v.worker, v.state = 7
      FROM (SELECT h.* FROM {IN_HISTORY}) v
    LIMIT 1) f"""

LIST_SIZE: Final = " + ".join(
    f"coalesce(octet_length({name}), 0)" for name in ("args", "result", "error", "checkpoint")
)


class Query:
    """A filter as SQL: conditions and the values bound to them."""

    def __init__(self, *values: object) -> None:
        self.values = list(values)
        self._conditions: list[str] = []

    def bind(self, value: object) -> str:
        self.values.append(value)
        return f"${len(self.values)}"

    def add(self, condition: str, value: object) -> str:
        """Add a condition with `{}` where its value goes; return it with the value's number."""
        self._conditions.append(condition.format(self.bind(value)))
        return self._conditions[-1]

    def only(self, condition: str) -> None:
        """Add a condition without a value."""
        self._conditions.append(condition)

    def all_of(self, *more: str) -> str:
        """Return all conditions together."""
        return " AND ".join([*self._conditions, *more]) or "true"


class Walk(NamedTuple):
    """A part of a list: executions of some states, read in the order of an index."""

    states: frozenset[State]
    columns: str
    table: str
    place: str  # the condition that the index answers
    rest: str = "true"  # conditions that are checked row by row

    def read(self, query: Query, *, most: int, after: str, end: str) -> str:
        """Read no more than `most` rows, newest first. One row more, with `is_end`, says that the
        index has more; `end` is the condition on that row.

        The window function keeps all other conditions out of the walk, so that no other index can
        be chosen for them.
        """
        return f"""
          SELECT {self.columns}, v.number > {most}{end} AS is_end
            FROM (SELECT v.*, row_number() OVER (ORDER BY v.id DESC) AS number
                    FROM daybell.{self.table} v WHERE {self.place}{after}
                   ORDER BY v.id DESC LIMIT {most} + 1) v
           WHERE v.number > {most}{end} OR {query.all_of("v.tenant = $1", self.rest)}"""


# `+ 0` keeps off the index of all attempts that a tenant's executions have had lately.
ATTEMPTS: Final = """
    SELECT attempt, outcome, worker, started_at, ended_at, error FROM daybell.attempt
     WHERE tenant + 0 = $1 AND id = $2 ORDER BY attempt
    """


async def get_execution(pg: StoreContext, tenant: str, id: UUID) -> ExecutionDetail:
    async with pg.transaction(SNAPSHOT) as tx:
        key = await pg.names.tenant(tx, tenant)
        rows = await tx.fetch(WITH_IDS + BY_IDS, key, [id])
        if not rows:
            raise ExecutionNotFound(f"no execution {id}")
        [execution] = await _executions(tx, tenant, rows[:1])
        ended = [_attempt(row) for row in await tx.fetch(ATTEMPTS, key, id)]
    if execution.outcome is not None and execution.finished_at is not None:
        ended.append(
            AttemptRecord(
                attempt=execution.attempt,
                outcome=execution.outcome,
                worker=execution.worker,
                started_at=execution.started_at,
                ended_at=execution.finished_at,
                error=execution.error,
            )
        )
    return ExecutionDetail(execution=execution, attempts=tuple(ended))


async def list_executions(
    pg: StoreContext,
    tenant: str,
    where: ExecutionFilter,
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[Execution]:
    check_limit(limit)
    if where.order is not None:
        return await _list_sorted(pg, tenant, where, limit, cursor)
    after = check_cursor(cursor)
    more = None
    async with pg.autocommit(Pace.VIEW) as tx:
        if where.content is not None:
            ids, more = await _search(tx, tenant, where, where.content, limit, after)
            if not ids:
                return Page(items=(), next_cursor=more)
            where, after = where.without_content(ids), None
        rows = await _newest(tx, tenant, where, LISTED, LIST_SIZE, limit + 1, after)
        rows, end = cut_walk(rows)
        items = await _executions(tx, tenant, rows)
    return cut_page(
        items, limit, size=execution_bytes, cursor=lambda one: str(one.id), more=more or end
    )


async def _search(
    tx: Tx,
    tenant: str,
    where: ExecutionFilter,
    content: Content,
    limit: int,
    after: UUID | None,
) -> Found:
    """Scan the rows that the other conditions select. The values are compared here: arguments are
    text that need not be `jsonb`, and a cast that fails would end the statement.
    """
    candidates, end = await _candidates(tx, tenant, where, content.columns, after)
    found = scan(candidates, content, limit)
    return Found(found.ids, found.next_cursor or end)


async def _list_sorted(
    pg: StoreContext, tenant: str, where: ExecutionFilter, limit: int, cursor: str | None
) -> Page[Execution]:
    """Sort the executions that match, and read a page of them."""
    async with pg.autocommit(Pace.VIEW) as tx:
        now = await tx.fetchval("SELECT daybell.now()")
        candidates, end = await _candidates(tx, tenant, where, where.sort_columns, None)
        has_more = end is not None
        ids, more = sort_page(candidates, where, limit, cursor, now=now, has_more=has_more)
        if not ids:
            return Page(items=())
        chosen = where.without_content(ids)
        rows = await _newest(tx, tenant, chosen, LISTED, LIST_SIZE, limit, None)
        found = await _executions(tx, tenant, cut_walk(rows)[0])
    return Page(items=tuple(in_order(found, ids)), next_cursor=more)


async def _candidates(
    tx: Tx, tenant: str, where: ExecutionFilter, needed: frozenset[str], after: UUID | None
) -> tuple[Iterator[Candidate], str | None]:
    """Read columns of the newest executions that indexes find, and the cursor to go on with."""
    names = [name for name in Candidate._fields if name == "id" or name in needed]
    texts = [name for name in names if name in ("args", "error")]
    size = " + ".join(f"coalesce(octet_length({name}), 0)" for name in texts) or "0"
    columns = ", ".join(f"p.{name}" for name in names)
    begin, most = where.without_content(), SCAN_ITEMS_MAX + 1
    rows = await _newest(tx, tenant, begin, columns, size, most, after, content=where.content)
    rows, end = cut_walk(rows)
    jobs: dict[int, str] = {}
    if "job" in names:
        jobs = await tx.pg.names.job_names(tx, {row["job"] for row in rows})
    plain = [name for name in names if name != "job"]
    candidates = (
        Candidate(**{name: row[name] for name in plain}, job=jobs[row["job"]] if jobs else None)
        for row in rows
    )
    return candidates, end


async def _newest(
    tx: Tx,
    tenant: str,
    where: ExecutionFilter,
    columns: str,
    size: str,
    limit: int,
    after: UUID | None,
    *,
    content: Content | None = None,
) -> list[Row]:
    """Read columns of the rows that a filter selects, newest first, as far as they fit into a page,
    and one row more; see `cut_walk`. `size` is the expression of a row's bytes.
    """
    query, place = await _query(tx, tenant, where)
    older = "" if after is None else f" AND v.id < {query.bind(after)}"
    order = f"ORDER BY id DESC LIMIT {query.bind(limit)}"
    if where.ids is not None:
        conditions = _among_ids(query, where) + older
        union = f"SELECT v.*, false AS is_end FROM ({BY_IDS}) v WHERE {conditions}"
        start = WITH_IDS
    else:
        parts = _parts(query, place, where, most=SCAN_ITEMS_MAX, after=older, content=content)
        walks = [f"({part} {order})" for _, part in parts]
        if not walks:
            return []
        union, start = " UNION ALL ".join(walks), WITH
    listed = f"SELECT {columns}, p.is_end FROM (SELECT * FROM ({union}) u {order}) p"
    return await tx.fetch(start + within_page(listed, size, "id DESC"), *query.values)


async def count_executions(pg: StoreContext, tenant: str, where: ExecutionFilter) -> Counts:
    check_countable(where)
    async with pg.autocommit(Pace.VIEW) as tx:
        query, place = await _query(tx, tenant, where)
        if where.ids is not None:
            conditions = _among_ids(query, where)
            union = f"SELECT v.state, false AS is_end FROM ({BY_IDS}) v WHERE {conditions}"
            parts, start = [(frozenset[State](), union)], WITH_IDS
        else:
            parts = list(_parts(query, place, where, most=COUNT_ITEMS_MAX))
            start = WITH
        counted = " UNION ALL ".join(
            f"SELECT {number} AS part, state, is_end, count(*) AS n FROM ({part}) p"
            " GROUP BY state, is_end"
            for number, (_, part) in enumerate(parts)
        )
        rows = await tx.fetch(start + counted, *query.values) if parts else []
    counts, more = Counter[State](), set[State]()
    for row in rows:
        if row["is_end"]:
            more.update(parts[int(row["part"])][0])
        else:
            counts[STATES[row["state"]]] += row["n"]
    return Counts(counts, at_least=more)


# Pages, of which so many are read: those of a partition have about ten rows each.
SIZE: Final = """
    SELECT sum(pg_relation_size(r.oid)) / current_setting('block_size')::int
      FROM (SELECT i.inhrelid AS oid FROM pg_inherits i
             WHERE i.inhparent = 'daybell.history'::regclass
            UNION ALL SELECT 'daybell.live'::regclass UNION ALL SELECT 'daybell.dead'::regclass) r
    """
SAMPLE_PAGES: Final = SCAN_ITEMS_MAX / 10


async def estimate_executions(pg: StoreContext, tenant: str, where: ExecutionFilter) -> int:
    check_countable(where)
    wanted = frozenset(State) if where.states is None else where.states
    ended = (wanted & {State.DEAD}) if where.dead_letters else wanted & TERMINAL
    async with pg.autocommit(Pace.VIEW) as tx:
        pages = await tx.fetchval(SIZE)
        share = min(100.0, 100.0 * SAMPLE_PAGES / max(1.0, float(pages or 0)))
        query, _ = await _query(tx, tenant, where)
        tables = {"dead": ended & {State.DEAD}}
        if not where.dead_letters:
            tables["history"] = ended
            if where.worker is None and wanted - TERMINAL:
                tables["live"] = wanted - TERMINAL
        sample = f"TABLESAMPLE SYSTEM ({share:.6f}) REPEATABLE (1)"
        counted = " + ".join(
            f"(SELECT count(*) FROM daybell.{table} v {sample}"
            f" WHERE {query.all_of('v.tenant = $1', _of_states(table, states))})"
            for table, states in tables.items()
            if states
        )
        count = await tx.fetchval(f"SELECT {counted}", *query.values) if counted else 0
    return round(count * 100 / share)


def _of_states(table: str, states: frozenset[State]) -> str:
    """Return the condition on rows of a table. An unfinished row may have any of these states."""
    return "true" if table == "live" else f"v.state IN ({_states(states)})"


# A count reads $2 rows, and one more to know that there are more: of a lane and a priority, or of
# all that wait, retry or are started runs, in all queues.
QUEUES: Final = f"""{WITH},
    a AS (SELECT l.queue, sum(least(d.n, $2)) AS queued, bool_or(d.n > $2) AS more_queued,
                 sum(least(s.n, $2)) AS scheduled, bool_or(s.n > $2) AS more_scheduled,
                 min(d.oldest) AS oldest
            FROM daybell.lane l, unnest('{set(PRIORITIES)}'::smallint[]) p(priority),
                 LATERAL (SELECT count(*) AS n, min(x.run_at) AS oldest FROM (
                            SELECT a.run_at FROM daybell.agenda a
                             WHERE a.lane = l.key AND a.priority = p.priority AND a.run_at <= {NOW}
                             ORDER BY a.run_at LIMIT $2::int + 1) x) d,
                 LATERAL (SELECT count(*) AS n FROM (
                            SELECT a.run_at FROM daybell.agenda a
                             WHERE a.lane = l.key AND a.priority = p.priority AND a.run_at > {NOW}
                             ORDER BY a.run_at LIMIT $2 + 1) x) s
           WHERE l.tenant = $1 GROUP BY l.queue HAVING sum(d.n + s.n) > 0),
    r AS (SELECT l.queue, count(*) AS running, sum(v.expanded) AS expanded
            FROM (SELECT v.lane, 0 AS expanded
                    FROM h, LATERAL (SELECT v.lane FROM daybell.live v WHERE v.tenant = $1
                                        AND v.id = h.id AND v.attempt = h.attempt
                                        AND v.state <> 5 LIMIT 1) v
                  UNION ALL
                  (SELECT v.lane, 1 FROM daybell.live v WHERE v.tenant = $1 AND v.state = 5
                    ORDER BY v.id LIMIT $2 + 1)) v,
                 daybell.lane l
           WHERE l.key = v.lane GROUP BY l.queue),
    w AS (SELECT l.queue, count(*) AS waiting
            FROM (SELECT v.lane FROM daybell.live v WHERE v.tenant = $1 AND v.state = 4
                   ORDER BY v.id LIMIT $2 + 1) v, daybell.lane l
           WHERE l.key = v.lane GROUP BY l.queue),
    f AS (SELECT l.queue, count(*) FILTER (WHERE v.run_at > {NOW}) AS retrying, count(*) AS failed
            FROM (SELECT v.lane, v.run_at FROM daybell.live v WHERE v.tenant = $1 AND v.state = 3
                   ORDER BY v.id DESC LIMIT $2 + 1) v, daybell.lane l
           WHERE l.key = v.lane GROUP BY l.queue),
    j AS (SELECT DISTINCT queue FROM daybell.job WHERE tenant = $1 AND deleted_at IS NULL),
    p AS (SELECT queue, true AS is_paused FROM daybell.paused_queue WHERE tenant = $1)
    SELECT queue, coalesce(is_paused, false) AS is_paused, coalesce(queued, 0)::int AS queued,
           coalesce(scheduled, 0)::int AS scheduled, coalesce(retrying, 0) AS retrying,
           coalesce(running, 0) AS running,
           coalesce(waiting, 0) AS waiting, oldest,
           coalesce(more_queued, false) AS more_queued,
           coalesce(more_scheduled, false) AS more_scheduled,
           coalesce((SELECT sum(failed) FROM f) > $2, false) AS more_retrying,
           coalesce((SELECT sum(waiting) FROM w) > $2, false) AS more_waiting,
           coalesce((SELECT sum(expanded) FROM r) > $2, false) AS more_running
      FROM a FULL JOIN r USING (queue) FULL JOIN w USING (queue)
             FULL JOIN f USING (queue) FULL JOIN j USING (queue)
             FULL JOIN p USING (queue)
     ORDER BY queue COLLATE "C"
    """


async def list_queues(pg: StoreContext, tenant: str) -> list[Queue]:
    async with pg.db.link(Pace.VIEW) as link:
        key = await pg.names.tenant(link, tenant)
        rows = await link.fetch(QUEUES, key, COUNT_ITEMS_MAX)
    return [
        Queue(
            name=row["queue"],
            is_paused=row["is_paused"],
            queued=row["queued"],
            scheduled=row["scheduled"],
            retrying=row["retrying"],
            running=row["running"],
            waiting=row["waiting"],
            oldest_run_at=row["oldest"],
            at_least=tuple(name for name in QUEUE_NUMBERS if row[f"more_{name}"]),
        )
        for row in rows
    ]


# An execution that is not at a gate is in the line of its queue, also while it is in no agenda.
IN_LINE: Final = """
    SELECT v.job, v.priority, v.run_at, v.gate, l.queue,
           (SELECT g.capacity FROM daybell.gate g
             WHERE g.tenant = $1 AND g.key = v.gate) AS capacity,
           (SELECT true FROM daybell.parked p
             WHERE p.tenant = $1 AND p.gate = v.gate AND p.priority = v.priority
               AND p.run_at = v.run_at AND p.id = v.id) IS TRUE AS is_parked,
           v.state = 5 OR (SELECT true FROM daybell.lease x
             WHERE x.tenant = $1 AND v.id = ANY(x.ids) LIMIT 1) IS TRUE AS is_running
      FROM (SELECT * FROM daybell.live v WHERE v.id = $2 AND v.tenant + 0 = $1 LIMIT 1) v,
           LATERAL (SELECT l.queue FROM daybell.lane l WHERE l.key = v.lane) l
    """
# The walk has ranges: with equal values its order would be that of ids alone, for which the planner
# may choose another index. A scalar subquery for each row stays one probe of a key.
HOLDERS: Final = """
    SELECT v.id FROM unnest('{0,1}'::int[]) k(kind), LATERAL (
             SELECT v.* FROM daybell.live v
              WHERE (v.job, num_nonnulls(v.node)) >= ($2, k.kind)
                AND (v.job, num_nonnulls(v.node)) <= ($2, k.kind)
              ORDER BY v.job, num_nonnulls(v.node), v.id LIMIT $5) v
     WHERE v.gate = $3 AND v.id <> $4
       AND (SELECT p.id FROM daybell.parked p
             WHERE p.tenant = $1 AND p.gate = v.gate AND p.priority = v.priority
               AND p.run_at = v.run_at AND p.id = v.id) IS NULL
     ORDER BY v.id LIMIT $6
    """
# The rows of each line before a place: those of higher priority that are due, and of its own
# priority those before it. Their order keeps the planner on the index, for any estimate.
_BEFORE: Final = """
    SELECT coalesce(sum(least(d.n, $5)), 0)::int AS n, coalesce(bool_or(d.n > $5), false) AS more
      FROM {lines}, LATERAL (
        SELECT count(*) AS n FROM (
          SELECT 1 FROM {table} a
           WHERE {line} AND a.priority = p.priority AND a.run_at <= (SELECT daybell.now())
           ORDER BY a.run_at, a.id LIMIT $5::int + 1) x
         WHERE p.priority < $2
        UNION ALL
        SELECT count(*) FROM (
          SELECT 1 FROM {table} a
           WHERE {line} AND a.priority = $2
             AND (a.run_at, a.id) < (least($3::float8, (SELECT daybell.now())), $4::uuid)
           ORDER BY a.run_at, a.id LIMIT $5::int + 1) x
         WHERE p.priority = $2) d
    """
_PRIORITIES: Final = f"unnest('{set(PRIORITIES)}'::smallint[]) p(priority)"
BEFORE_IN_QUEUE: Final = _BEFORE.format(
    lines=f"unnest($1::int[]) l(lane), {_PRIORITIES}",
    table="daybell.agenda",
    line="a.lane = l.lane",
)
BEFORE_AT_GATE: Final = _BEFORE.format(
    lines=_PRIORITIES, table="daybell.parked", line="a.tenant = $1 AND a.gate = $6"
)


async def get_position(pg: StoreContext, tenant: str, id: UUID) -> Position:
    async with pg.autocommit(Pace.VIEW) as tx:
        key = await pg.names.tenant(tx, tenant)
        row = await tx.fetchrow(IN_LINE, key, id)
        if row is None:
            return Position()
        holders: tuple[UUID, ...] = ()
        if (gate := row["gate"]) is not None:
            found = await tx.fetch(HOLDERS, key, row["job"], gate, id, SCAN_ITEMS_MAX, HOLDERS_MAX)
            holders = tuple(one["id"] for one in found)
        if row["is_running"]:
            return Position(holders=holders, capacity=row["capacity"])
        place = (row["priority"], row["run_at"], id, COUNT_ITEMS_MAX)
        if row["is_parked"]:
            line = await tx.fetchrow(BEFORE_AT_GATE, key, *place, gate)
        else:
            lanes = await pg.names.lanes_of_queue(tx, key, row["queue"])
            line = await tx.fetchrow(BEFORE_IN_QUEUE, lanes, *place)
    assert line is not None
    ahead = Total(line["n"], is_exact=not line["more"])
    return Position(ahead=ahead, holders=holders, capacity=row["capacity"])


BACKLOGS: Final = f"""
    SELECT l.needs, sum(least(d.n, $3))::int AS n, bool_or(d.n > $3) AS more,
           min(d.oldest) AS oldest
      FROM daybell.lane l, {_PRIORITIES}, LATERAL (
        SELECT count(*) AS n, min(x.run_at) AS oldest FROM (
          SELECT a.run_at FROM daybell.agenda a
           WHERE a.lane = l.key AND a.priority = p.priority AND a.run_at <= (SELECT daybell.now())
           ORDER BY a.run_at LIMIT $3::int + 1) x) d
     WHERE l.tenant = $1 AND l.queue = $2
     GROUP BY l.needs HAVING sum(d.n) > 0 ORDER BY l.needs COLLATE "C"
    """


async def list_backlogs(pg: StoreContext, tenant: str, queue: str) -> list[Backlog]:
    async with pg.db.link(Pace.VIEW) as link:
        key = await pg.names.tenant(link, tenant)
        rows = await link.fetch(BACKLOGS, key, queue, COUNT_ITEMS_MAX)
    return join_backlogs(
        Backlog(
            needs=row["needs"],
            due=Total(row["n"], is_exact=not row["more"]),
            oldest_run_at=row["oldest"],
        )
        for row in rows
    )


# Lanes with demands are few; without one, this reads the names of the queues' lanes only.
DEMANDS: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    SELECT l.queue, l.needs, d.oldest, d.overdue, (SELECT now FROM t) AS now
      FROM daybell.lane l, LATERAL (
        SELECT min(x.oldest) AS oldest, sum(x.overdue)::int AS overdue FROM {_PRIORITIES}, LATERAL (
          SELECT (SELECT min(a.run_at) FROM daybell.agenda a
                   WHERE a.lane = l.key AND a.priority = p.priority
                     AND a.run_at <= (SELECT now FROM t)) AS oldest,
                 (SELECT count(*) FROM (
                    SELECT FROM daybell.agenda a
                     WHERE a.lane = l.key AND a.priority = p.priority
                       AND a.run_at <= (SELECT now FROM t) - {PREFER_SECONDS}
                     LIMIT {OVERDUE_MAX}) o) AS overdue) x) d
     WHERE l.tenant = $1 AND l.queue = ANY($2::text[]) AND strpos(l.needs, '{MARK}') > 0
     ORDER BY l.queue, l.needs COLLATE "C"
    """


async def list_demands(pg: StoreContext, tenant: str, queues: Sequence[str]) -> list[DemandingLane]:
    async with pg.db.link() as link:
        rows = await link.fetch(DEMANDS, await pg.names.tenant(link, tenant), list(queues))
    return [DemandingLane(**row) for row in rows]


JOB: Final = "SELECT key FROM daybell.job WHERE tenant = $1 AND name = $2"
# The character after the colon ends the range of names.
MESSAGE_JOBS: Final = " UNION ALL ".join(
    f"SELECT key FROM daybell.job WHERE tenant = $1 AND name >= '{one}' AND name < '{one[:-1]};'"
    for one in MESSAGE_PREFIXES
)


async def _query(tx: Tx, tenant: str, where: ExecutionFilter) -> tuple[Query, str | None]:
    """Return the conditions of a filter, and the one that an index of every table answers."""
    key = await tx.pg.names.tenant(tx, tenant)
    query, place = Query(key), None
    if where.ids is not None:
        query.bind(sorted(where.ids))  # $2 of BY_IDS
    if where.job is not None:
        place = query.add("v.job = {}", await tx.fetchval(JOB, key, where.job))
    if where.hides_messages and (hidden := await tx.fetch(MESSAGE_JOBS, key)):
        query.add("(v.state = 7 OR v.job <> ALL({}::int[]))", [row["key"] for row in hidden])
    if where.queue is not None:
        lanes = await tx.pg.names.lanes_of_queue(tx, key, where.queue)
        query.add("v.lane = ANY({}::int[])", lanes)
    if not where.shows_nodes:
        query.only("v.node IS NULL")
    if where.schedule is not None:
        place = query.add("v.schedule = {}", where.schedule)
    if where.parent is not None:
        place = query.add("v.parent = {}", where.parent)
    if where.since is not None:
        query.add("v.created_at >= {}", where.since)
    if where.until is not None:
        query.add("v.created_at < {}", where.until)
    if where.worker is not None:
        query.add("v.worker = {}", where.worker)
    return query, place


async def _executions(tx: Tx, tenant: str, rows: list[Row]) -> list[Execution]:
    jobs = await tx.pg.names.job_names(tx, {row["job"] for row in rows})
    lanes = await tx.pg.names.lane_rows(tx, {row["lane"] for row in rows})
    return [
        read_execution(
            {name: row[name] for name in EXECUTION_COLUMNS},
            tenant=tenant,
            job=jobs[row["job"]],
            queue=lanes[row["lane"]].queue,
            truncated=row.get("truncated", False),
        )
        for row in rows
    ]


def cut_walk(rows: list[Row]) -> tuple[list[Row], str | None]:
    """Cut rows where the first walk has ended; return the cursor to continue with, if one has."""
    for number, row in enumerate(rows):
        if row["is_end"]:
            return rows[:number], str(UUID(int=row["id"].int + 1))
    return rows, None


def _states(states: Iterable[State]) -> str:
    return ", ".join(str(STATE_CODES[state]) for state in sorted(states)) or "NULL"


def _among_ids(query: Query, where: ExecutionFilter) -> str:
    """Return the conditions of a filter on rows of BY_IDS."""
    if where.states is not None:
        query.only(f"v.state IN ({_states(where.states)})")
    if where.dead_letters:
        query.only("v.state = 7 AND NOT v.is_discarded")
    return query.all_of()


def _parts(
    query: Query,
    place: str | None,
    where: ExecutionFilter,
    *,
    most: int,
    after: str = "",
    content: Content | None = None,
) -> Iterator[tuple[frozenset[State], str]]:
    """Return the parts of a list, with the states of their executions; see `Walk.read`."""
    wanted = frozenset(State) if where.states is None else where.states
    if where.dead_letters:
        wanted &= {State.DEAD}
    if State.RUNNING in wanted:
        # All of them, in the order of their ids: workers hold no more than they can run.
        yield frozenset({State.RUNNING}), LEASED.format(after=after, conditions=query.all_of())
    walks = [*_ended_walks(place, wanted, where)]
    if where.worker is None and (content is None or content.workers is None):
        walks += _live_walks(place, wanted, where)
    # PostgreSQL refuses a bound value that the statement does not use.
    has_history = content is not None and any(walk.table == "history" for walk in walks)
    days = _days(query, content) if content is not None and has_history else ""
    end = ""
    if where.since is not None and walks:
        end = f" AND v.id >= {query.bind(first_id_since(where.since))}"
    for walk in walks:
        bounds = after + days if walk.table == "history" else after
        yield walk.states, walk.read(query, most=most, after=bounds, end=end)


def _live_walks(
    place: str | None, wanted: frozenset[State], where: ExecutionFilter
) -> Iterator[Walk]:
    """Yield walks over unfinished executions that no lease holds."""
    groups: list[tuple[str, set[State]]]
    if place is not None and _is_by_job(where):
        kinds = (0, 1) if where.shows_nodes else (0,)
        unended = set(State) - TERMINAL
        groups = [(f"{place} AND num_nonnulls(v.node) = {kind}", unended) for kind in kinds]
    elif place is not None:
        groups = [(place, set(State) - TERMINAL)]
    else:  # some states have an index of their own
        groups = [
            (f"v.tenant = $1 AND v.state = {STATE_CODES[state]}", {state})
            for state in (State.RUNNING, State.WAITING, State.RETRYING)
        ]
        groups.append(("v.tenant = $1", {State.QUEUED, State.SCHEDULED}))
    for index, group in groups:
        states = group & wanted
        if states:
            rest = f"{IDLE_STATE} IN ({_states(states)}) AND (v.state IN (4, 5) OR NOT {IS_LEASED})"
            yield Walk(frozenset(states), _IDLE, "live", index, rest)


def _is_by_job(where: ExecutionFilter) -> bool:
    """Return True if the place of a filter is its job."""
    return where.parent is None and where.schedule is None


def _ended_walks(
    place: str | None, wanted: frozenset[State], where: ExecutionFilter
) -> Iterator[Walk]:
    """Yield walks over dead letters and history. Nodes of runs have an index of their own there."""
    if State.DEAD in wanted:
        yield Walk(frozenset({State.DEAD}), _DEAD, "dead", place or "v.tenant = $1")
    ended = wanted & TERMINAL
    if where.dead_letters or not ended:
        return
    if place is not None:
        is_by_job = _is_by_job(where)
        index = f"{place} AND v.node IS NULL" if is_by_job else place
        yield Walk(ended, _ENDED, "history", index, f"v.state IN ({_states(ended)})")
        if not is_by_job:
            return
    for state in sorted(ended):
        index = f"v.tenant = $1 AND v.state = {STATE_CODES[state]}"
        if place is None:
            yield Walk(frozenset({state}), _ENDED, "history", f"{index} AND v.node IS NULL")
        if where.shows_nodes:
            yield Walk(frozenset({state}), _ENDED, "history", f"{index} AND v.node IS NOT NULL")


DAY: Final = 86400.0  # of a partition of history


def _days(query: Query, content: Content) -> str:
    """Leave out days of history in which nothing ended that is searched for. The bounds are those
    of whole partitions: a walk reads no row in vain.
    """
    days = ""
    for since in (content.ended_since, content.active_since):
        if since is not None:
            days += f" AND v.finished_at >= {query.bind(since // DAY * DAY)}"
    if content.ended_until is not None:
        days += f" AND v.finished_at < {query.bind(-(-content.ended_until // DAY) * DAY)}"
    return days


def _attempt(row: Row) -> AttemptRecord:
    return AttemptRecord(
        attempt=row["attempt"],
        outcome=OUTCOMES[row["outcome"]],
        worker=row["worker"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        error=row["error"],
    )


# Activity of jobs: a few statements for a page of them, however many executions they have.


JOB_KEYS: Final = "SELECT key, name FROM daybell.job WHERE tenant = $1 AND name = ANY($2::text[])"


async def job_activity(
    pg: StoreContext, tenant: str, names: Sequence[str]
) -> dict[str, JobActivity]:
    check_names(names)
    with pg.db.at_pace(Pace.VIEW):
        return await _look(pg, tenant, names)


async def _look(pg: StoreContext, tenant: str, names: Sequence[str]) -> dict[str, JobActivity]:
    async with pg.transaction(SNAPSHOT) as tx:
        key = await pg.names.tenant(tx, tenant)
        jobs = {row["key"]: row["name"] for row in await tx.fetch(JOB_KEYS, key, list(names))}
        unfinished = await _unfinished(tx, key, list(jobs))
        last = await _last(tx, key, tenant, list(jobs))
        schedules = await _schedules(tx, tenant, list(jobs))
    found: dict[str, JobActivity] = {}
    for job, name in jobs.items():
        shown, has_more = cut_next(schedules.get(name, ()))
        found[name] = JobActivity(
            unfinished=frozenset(unfinished.get(job, ())),
            last=last.get(name),
            schedules=shown,
            has_more_schedules=has_more,
        )
    return found


JOB_IDS: Final = "SELECT name, id FROM daybell.job WHERE tenant = $1 AND name = ANY($2::text[])"


async def job_ids(pg: StoreContext, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
    check_names(names)
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        rows = await link.fetch(JOB_IDS, key, list(names))
    return {row["name"]: row["id"] for row in rows}


# The newest unfinished executions of a job, without nodes of runs: the cost does not depend on
# how many there are. Rows are compared so that only the order of `live_job` fits: by an
# equation, a job that seems to have nearly all rows is searched for among those of all jobs.
NEWEST_LIVE: Final = f"""
      SELECT v.state, v.attempt, v.run_at, v.id FROM daybell.live v
       WHERE (v.job, num_nonnulls(v.node), v.id) >= (k.job, 0, '{FIRST_ID}')
         AND (v.job, num_nonnulls(v.node), v.id) <= (k.job, 0, '{LAST_ID}')
       ORDER BY v.job DESC, num_nonnulls(v.node) DESC, v.id DESC LIMIT {LOOKED_AT_MAX}
    """
# For each job, these represent all. Few executions run, and all of these are read.
UNFINISHED_STATES: Final = f"""{WITH}
    SELECT k.job, x.state FROM unnest($2::int[]) k(job), LATERAL (
      SELECT DISTINCT {IDLE_STATE} AS state FROM ({NEWEST_LIVE}) v
       WHERE v.state IN (4, 5) OR NOT {IS_LEASED}) x
    UNION
    SELECT v.job, 5 FROM h, LATERAL (
      SELECT v.job, v.node FROM daybell.live v WHERE v.tenant = $1 AND v.id = h.id
         AND v.attempt = h.attempt LIMIT 1) v
     WHERE v.node IS NULL AND v.job = ANY($2::int[])
    """


async def _unfinished(tx: Tx, tenant: int, jobs: list[int]) -> dict[int, set[State]]:
    found: dict[int, set[State]] = {}
    for row in await tx.fetch(UNFINISHED_STATES, tenant, jobs):
        found.setdefault(row["job"], set()).add(STATES[row["state"]])
    return found


# Ids are made in the order of time.
NEWEST: Final = f"""
    SELECT x.id FROM unnest($1::int[]) k(job), LATERAL (
      SELECT u.id FROM (
        (SELECT v.id FROM ({NEWEST_LIVE}) v ORDER BY v.id DESC LIMIT 1)
        UNION ALL
        (SELECT v.id FROM daybell.dead v WHERE v.job = k.job ORDER BY v.id DESC LIMIT 1)
        UNION ALL
        (SELECT v.id FROM daybell.history v WHERE v.job = k.job AND v.node IS NULL
          ORDER BY v.id DESC LIMIT 1)) u
       ORDER BY u.id DESC LIMIT 1) x
    """


async def _last(tx: Tx, key: int, tenant: str, jobs: list[int]) -> dict[str, Execution]:
    ids: list[UUID] = [row["id"] for row in await tx.fetch(NEWEST, jobs)]
    rows = await tx.fetch(f"{WITH_IDS}SELECT {LISTED} FROM ({BY_IDS}) p", key, ids)
    return {one.job: one for one in await _executions(tx, tenant, rows)}


LIST_ARGS: Final = f"""
    CASE WHEN octet_length(s.args) > {LIST_VALUE_BYTES_MAX} THEN '{LEFT_OUT}' ELSE s.args END
    """
# Declared ones, and of the others the next.
_NEXT: Final = NEXT.format(
    after=f"k.job, {{is_made}}, '-infinity', '{FIRST_ID}'",
    until=f"k.job, {{is_made}}, 'infinity', '{LAST_ID}'",
    limit="{limit}",
)
SCHEDULES_OF: Final = f"""{FIELDS.replace("s.args", LIST_ARGS)}
      FROM unnest($1::int[]) k(job), LATERAL (
        ({_NEXT.format(is_made="false", limit=DECLARED_MAX)}) UNION ALL
        ({_NEXT.format(is_made="true", limit=NEXT_SCHEDULES_MAX + 1)})) s,
           LATERAL (SELECT name FROM daybell.job WHERE key = s.job LIMIT 1) j
    """


async def _schedules(tx: Tx, tenant: str, jobs: list[int]) -> dict[str, list[Schedule]]:
    found: dict[str, list[Schedule]] = {}
    for row in await tx.fetch(SCHEDULES_OF, jobs):
        found.setdefault(row["job"], []).append(read_schedule(row, tenant))
    return found


# The attempts at the nodes of a run, for a chart.

# Rows kept by the day are searched only around the days of the run. An attempt that no worker
# started may have ended before the first one that a worker did.
AROUND_SECONDS: Final = 86_400


# Nodes that have begun, and when; one that has not ended did so since its run was expanded.
BEGUN_NODES: Final = f"""
    SELECT array_agg(n.execution) AS ids,
           least(min(coalesce(n.started_at, n.finished_at)),
                 (SELECT v.started_at FROM daybell.live v WHERE v.tenant + 0 = $1 AND v.id = $2))
             - {AROUND_SECONDS} AS since,
           CASE WHEN bool_and(n.finished_at IS NOT NULL)
                THEN max(n.finished_at) + {AROUND_SECONDS} ELSE 'infinity' END AS until
      FROM daybell.node n
     WHERE n.run = $2 AND n.tenant = $1 AND n.of IS NULL AND n.execution IS NOT NULL
    """
# One probe for each node and day, for any size that the planner assumes: `+ 0` keeps off the index
# of all that ended lately.
ENDED_ATTEMPTS: Final = """
    SELECT a.* FROM unnest($2::uuid[]) u(id), LATERAL (
      SELECT a.id, a.attempt, a.outcome, a.worker, a.started_at, a.ended_at
        FROM daybell.attempt a
       WHERE a.id = u.id AND a.tenant + 0 = $1 AND a.ended_at BETWEEN $3 AND $4
       ORDER BY a.attempt DESC LIMIT $5) a
    UNION ALL
    SELECT v.* FROM unnest($2::uuid[]) u(id), LATERAL (
      SELECT v.id, v.attempt, v.outcome, v.worker, v.started_at, v.finished_at
        FROM daybell.history v
       WHERE v.tenant = $1 AND v.state IN (6, 7, 8, 9) AND v.id = u.id AND v.node IS NOT NULL
         AND v.finished_at BETWEEN $3 AND $4 LIMIT 1) v
     WHERE v.outcome IS NOT NULL
    """
CURRENT_ATTEMPTS: Final = WITH + " UNION ALL ".join(
    f"SELECT id, attempt, outcome, worker, started_at, finished_at AS ended_at"
    f" FROM ({part} AND v.parent = $2 AND v.node IS NOT NULL) p"
    for part in (RUNNING, EXPANDED)
)


async def node_attempts(
    pg: StoreContext, tenant: str, id: UUID, *, limit: int = 20
) -> dict[UUID, tuple[AttemptSpan, ...]]:
    check_limit(limit)
    async with pg.db.transaction(SNAPSHOT) as link:
        key = await pg.names.tenant(link, tenant)
        begun = await link.fetchrow(BEGUN_NODES, key, id)
        if begun is None or begun["ids"] is None:
            return {}
        ids, since, until = begun["ids"], begun["since"], begun["until"]
        since = float("-inf") if since is None else since
        rows = await link.fetch(ENDED_ATTEMPTS, key, ids, since, until, limit)
        if until == float("inf"):
            rows += await link.fetch(CURRENT_ATTEMPTS, key, id)
    known = set(ids)
    return run_driver.newest_spans(
        ((row["id"], _span(row)) for row in rows if row["id"] in known), limit
    )


def _span(row: Row) -> AttemptSpan:
    outcome = row["outcome"]
    return AttemptSpan(
        row["attempt"],
        None if outcome is None else OUTCOMES[outcome],
        row["worker"],
        row["started_at"],
        row["ended_at"],
    )
