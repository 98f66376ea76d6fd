"""What people look at.

A list is put together from the places where executions are kept, each read in the order of its
index and no further than a page. Running is what leases hold; due is what the agenda says. One
statement each, so a page is consistent in itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from daybell.core.execution import (
    LEFT_OUT,
    Attempt,
    Execution,
    ExecutionDetail,
    State,
    reason_in,
)
from daybell.core.limits import LIST_VALUE_BYTES_MAX, SCAN_ITEMS_MAX
from daybell.core.search import Candidate, Content
from daybell.core.view import (
    ExecutionFilter,
    Found,
    Page,
    Queue,
    cut_page,
    execution_bytes,
    scan,
)
from daybell.errors import ExecutionNotFound
from daybell.store.checks import check_countable, check_cursor, check_limit
from daybell.store.codes import OUTCOMES, PRIORITIES, STATE_CODES, STATES
from daybell.store.postgres.activity import Tallying
from daybell.store.postgres.columns import within_page
from daybell.store.postgres.connection import SNAPSHOT, Link, Row
from daybell.store.postgres.timeouts import Pace

SHOWN: Final = (
    "v.id, v.job, v.version, v.lane, v.priority, v.args, v.attempt, v.failures, v.crashes,"
    " v.created_at, v.run_at, v.scheduled_for, v.expires_at, v.started_at, v.unique_key, v.retries,"
    " v.timeout, v.gate, v.schedule, v.parent, v.node, v.error, v.reason, v.progress, v.note,"
    " v.checkpoint, v.cancel_requested_at"
)
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
        *(column.removeprefix("v.") for column in SHOWN.split(", ")),
        *("finished_at", "outcome", "result", "state", "worker", "is_discarded"),
    ]
)
LISTED: Final = f"{_LIST_COLUMNS}, coalesce({_LARGE}, false) AS truncated"

# (what it holds, columns that differ, where it is). The order of the parts does not matter.
RUNNING: Final = f"""
  SELECT {SHOWN}, {UNFINISHED}, 5::smallint AS state, h.worker, false AS is_discarded
    FROM h, LATERAL (SELECT * FROM daybell.live v WHERE v.tenant = $1 AND v.id = h.id
                        AND v.attempt = h.attempt AND v.state <> 5 LIMIT 1) v
   WHERE true"""
# The same for one that is known by its id: a lease is searched, and not taken apart. A claim never
# takes the same twice.
HELD: Final = f"""
  SELECT {SHOWN}, {UNFINISHED}, 5::smallint AS state, l.worker, false AS is_discarded
    FROM daybell.live v, LATERAL (
           SELECT l.worker FROM daybell.lease l
            WHERE l.tenant = $1 AND v.id = ANY(l.ids)
              AND l.attempts[array_position(l.ids, v.id)] = v.attempt LIMIT 1) l
   WHERE v.tenant = $1 AND v.state NOT IN (4, 5)"""
CLAIMABLE: Final = f"""
  SELECT {SHOWN}, {UNFINISHED},
         CASE WHEN v.run_at <= {NOW} THEN 1::smallint ELSE v.state END AS state,
         NULL::uuid AS worker, false AS is_discarded
    FROM daybell.live v JOIN daybell.agenda a
      ON a.lane = v.lane AND a.priority = v.priority AND a.run_at = v.run_at AND a.id = v.id
   WHERE v.tenant = $1"""
# Runs of workflows that have begun: in nobody's hands.
EXPANDED: Final = f"""
  SELECT {SHOWN}, {UNFINISHED}, v.state, NULL::uuid AS worker, false AS is_discarded
    FROM daybell.live v WHERE v.tenant = $1 AND v.state = 5"""
WAITING: Final = f"""
  SELECT {SHOWN}, {UNFINISHED}, v.state, NULL::uuid AS worker, false AS is_discarded
    FROM daybell.live v WHERE v.tenant = $1 AND v.state = 4"""
DEAD: Final = f"""
  SELECT {SHOWN}, {FINISHED}, v.state, v.worker, false AS is_discarded
    FROM daybell.dead v WHERE v.tenant = $1"""
ENDED: Final = f"""
  SELECT {SHOWN}, {FINISHED}, v.state, v.worker, v.state = 7 AS is_discarded
    FROM daybell.history v WHERE v.tenant = $1"""
# Nodes of runs have an index of their own, so whoever wants both kinds asks twice.
NOT_NODES: Final = "v.node IS NULL"
NODES: Final = "v.node IS NOT NULL"
WITH: Final = """
WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
h AS MATERIALIZED (
  SELECT x.id, x.attempt, l.worker FROM daybell.lease l, unnest(l.ids, l.attempts) x(id, attempt)
   WHERE l.tenant = $1)
"""


LIST_SIZE: Final = " + ".join(
    f"coalesce(octet_length({name}), 0)" for name in ("args", "result", "error", "checkpoint")
)


class Query:
    """A filter as SQL: conditions and the values bound to them."""

    def __init__(self, tenant: int) -> None:
        self.values: list[object] = [tenant]
        self._conditions: list[str] = []

    def bind(self, value: object) -> str:
        self.values.append(value)
        return f"${len(self.values)}"

    def add(self, condition: str, value: object) -> None:
        """A condition with `{}` where its value goes."""
        self._conditions.append(condition.format(self.bind(value)))

    def only(self, condition: str) -> None:
        """A condition without a value."""
        self._conditions.append(condition)

    def over(self, part: str, *more: str) -> str:
        """One part of the list with all conditions on it."""
        conditions = " AND ".join([*self._conditions, *more])
        if not conditions:
            return part
        return f"{part} AND {conditions}"


class Viewing(Tallying):
    """Lists, counts and single executions."""

    # `+ 0` keeps off the index of all attempts that a tenant's executions have had lately.
    ATTEMPTS = """
    SELECT attempt, outcome, worker, started_at, ended_at, error FROM daybell.attempt
     WHERE tenant + 0 = $1 AND id = $2 ORDER BY attempt
    """

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        async with self.db.transaction(SNAPSHOT) as link:
            key = await self.names.tenant(link, tenant)
            query = Query(key)
            query.add("v.id = {}", id)
            parts = [query.over(HELD if part == RUNNING else part) for part in parts_of(None)]
            rows = await link.fetch(WITH + "\nUNION ALL".join(parts), *query.values)
            if not rows:
                raise ExecutionNotFound(f"no execution {id}")
            [execution] = await self._executions(link, tenant, rows[:1])
            ended = [_attempt(row) for row in await link.fetch(self.ATTEMPTS, key, id)]
        if execution.outcome is not None and execution.finished_at is not None:
            ended.append(
                Attempt(
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
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        check_limit(limit)
        after = check_cursor(cursor)
        more = None
        async with self.db.link(Pace.VIEW) as link:
            if where.content is not None:
                ids, more = await self._search(link, tenant, where, where.content, limit, after)
                if not ids:
                    return Page(items=(), next_cursor=more)
                where, after = where.without_content(ids), None
            rows = await self._newest(link, tenant, where, LISTED, LIST_SIZE, limit + 1, after)
            items = await self._executions(link, tenant, rows)
        return cut_page(
            items, limit, size=execution_bytes, cursor=lambda one: str(one.id), more=more
        )

    async def _search(
        self,
        link: Link,
        tenant: str,
        where: ExecutionFilter,
        content: Content,
        limit: int,
        after: UUID | None,
    ) -> Found:
        """Scan what the other conditions let through. The values are compared here: arguments are
        text that need not be `jsonb`, and a cast that fails would end the statement.
        """
        names = [name for name in Candidate._fields if name == "id" or name in content.columns]
        texts = [name for name in names if name in ("args", "error")]
        size = " + ".join(f"coalesce(octet_length({name}), 0)" for name in texts) or "0"
        columns = ", ".join(f"p.{name}" for name in names)
        begin, most = where.without_content(), SCAN_ITEMS_MAX + 1
        rows = await self._newest(link, tenant, begin, columns, size, most, after, days_of=content)
        return scan((Candidate(**{n: row[n] for n in names}) for row in rows), content, limit)

    async def _newest(
        self,
        link: Link,
        tenant: str,
        where: ExecutionFilter,
        columns: str,
        size: str,
        limit: int,
        after: UUID | None,
        *,
        days_of: Content | None = None,
    ) -> list[Row]:
        """Read columns of what a filter lets through, newest first, as far as they fit into a page,
        and one row more. `size` is the expression of a row's bytes.
        """
        query = await self._query(link, tenant, where)
        if after is not None:
            query.add("v.id < {}", after)
        found = _restricted(query, where)
        if days_of is None:
            most = query.bind(limit)
        else:
            # In the text: for a limit that it does not know, the planner expects a tenth of all.
            most, found = f"{limit:d}", _of_days(query, days_of, found)
        order = f"ORDER BY id DESC LIMIT {most}"
        parts = [f"({part} {order})" for part in found]
        if not parts:
            return []
        union = " UNION ALL ".join(parts)
        listed = f"SELECT {columns} FROM (SELECT * FROM ({union}) u {order}) p"
        return await link.fetch(WITH + within_page(listed, size, "id DESC"), *query.values)

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> dict[State, int]:
        check_countable(where)
        async with self.db.link(Pace.VIEW) as link:
            query = await self._query(link, tenant, where)
            parts = [
                f"SELECT state, count(*) AS n FROM ({part}) p GROUP BY state"
                for part in _restricted(query, where)
            ]
            rows = (
                await link.fetch(WITH + " UNION ALL ".join(parts), *query.values) if parts else []
            )
        counts: dict[State, int] = {}
        for row in rows:
            state = STATES[row["state"]]
            counts[state] = counts.get(state, 0) + row["n"]
        return counts

    QUEUES = f"""{WITH},
    a AS (SELECT l.queue, count(*) FILTER (WHERE a.run_at <= {NOW}) AS queued,
                 count(*) FILTER (WHERE a.run_at > {NOW}) AS scheduled,
                 min(a.run_at) FILTER (WHERE a.run_at <= {NOW}) AS oldest
            FROM daybell.agenda a JOIN daybell.lane l ON l.key = a.lane
           WHERE l.tenant = $1 GROUP BY l.queue),
    r AS (SELECT l.queue, count(*) AS running
            FROM (SELECT v.lane
                    FROM h, LATERAL (SELECT v.lane FROM daybell.live v WHERE v.tenant = $1
                                        AND v.id = h.id AND v.attempt = h.attempt
                                        AND v.state <> 5 LIMIT 1) v
                  UNION ALL
                  SELECT v.lane FROM daybell.live v WHERE v.tenant = $1 AND v.state = 5) v,
                 daybell.lane l
           WHERE l.key = v.lane GROUP BY l.queue),
    w AS (SELECT l.queue, count(*) AS waiting FROM daybell.live v
            JOIN daybell.lane l ON l.key = v.lane
           WHERE v.tenant = $1 AND v.state = 4 GROUP BY l.queue),
    f AS (SELECT l.queue, count(*) AS retrying FROM daybell.live v
            JOIN daybell.lane l ON l.key = v.lane
           WHERE v.tenant = $1 AND v.state = 3 AND v.run_at > {NOW} GROUP BY l.queue),
    j AS (SELECT DISTINCT queue FROM daybell.job WHERE tenant = $1 AND deleted_at IS NULL),
    p AS (SELECT queue, true AS is_paused FROM daybell.paused_queue WHERE tenant = $1)
    SELECT queue, coalesce(is_paused, false) AS is_paused, coalesce(queued, 0) AS queued,
           coalesce(scheduled, 0) AS scheduled, coalesce(retrying, 0) AS retrying,
           coalesce(running, 0) AS running,
           coalesce(waiting, 0) AS waiting, oldest
      FROM a FULL JOIN r USING (queue) FULL JOIN w USING (queue)
             FULL JOIN f USING (queue) FULL JOIN j USING (queue)
             FULL JOIN p USING (queue)
     ORDER BY queue COLLATE "C"
    """

    async def list_queues(self, tenant: str) -> list[Queue]:
        async with self.db.link(Pace.VIEW) as link:
            rows = await link.fetch(self.QUEUES, await self.names.tenant(link, tenant))
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
            )
            for row in rows
        ]

    JOB = "SELECT key FROM daybell.job WHERE tenant = $1 AND name = $2"

    async def _query(self, link: Link, tenant: str, where: ExecutionFilter) -> Query:
        key = await self.names.tenant(link, tenant)
        query = Query(key)
        if where.job is not None:
            query.add("v.job = {}", await link.fetchval(self.JOB, key, where.job))
        if where.queue is not None:
            lanes = await self.names.lanes_of_queue(link, key, where.queue)
            query.add("v.lane = ANY({}::int[])", lanes)
        if not where.shows_nodes:
            query.only(NOT_NODES)
        for condition, value in (
            ("v.id = ANY({}::uuid[])", None if where.ids is None else sorted(where.ids)),
            ("v.schedule = {}", where.schedule),
            ("v.parent = {}", where.parent),
            ("v.created_at >= {}", where.since),
            ("v.created_at < {}", where.until),
        ):
            if value is not None:
                query.add(condition, value)
        return query

    async def _executions(self, link: Link, tenant: str, rows: list[Row]) -> list[Execution]:
        jobs = await self.names.job_names(link, {row["job"] for row in rows})
        lanes = await self.names.lane_rows(link, {row["lane"] for row in rows})
        return [_execution(r, tenant, jobs[r["job"]], lanes[r["lane"]].queue) for r in rows]


def parts_of(states: frozenset[State] | None, *, nodes: bool = True) -> Iterator[str]:
    """The parts of the list where executions of these states are, and those of nodes of runs. What
    is unfinished is not told apart here.
    """
    wanted = frozenset(State) if states is None else states
    if State.RUNNING in wanted:
        yield RUNNING
        yield EXPANDED
    due = [f"v.run_at <= {NOW}"] if State.QUEUED in wanted else []
    later = [STATE_CODES[state] for state in (State.SCHEDULED, State.RETRYING) if state in wanted]
    if later:
        codes = ", ".join(map(str, later))
        due.append(f"(v.run_at > {NOW} AND v.state IN ({codes}))")
    if due:
        yield CLAIMABLE if len(due) + len(later) == 4 else f"{CLAIMABLE} AND ({' OR '.join(due)})"
    if State.WAITING in wanted:
        yield WAITING
    if State.DEAD in wanted:
        yield DEAD
    # One part for each state: then each is in the index's order.
    for state in (State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SKIPPED):
        if state in wanted:
            yield f"{ENDED} AND v.state = {STATE_CODES[state]} AND {NOT_NODES}"
            if nodes:
                yield f"{ENDED} AND v.state = {STATE_CODES[state]} AND {NODES}"


def _restricted(query: Query, where: ExecutionFilter) -> Iterator[str]:
    """The parts that a filter leaves, with its conditions on them."""
    if where.dead_letters:
        parts = [DEAD] if where.states is None or State.DEAD in where.states else []
    else:
        parts = list(parts_of(where.states, nodes=where.shows_nodes))
    if where.worker is None:
        yield from (query.over(part) for part in parts)
        return
    worker = query.bind(where.worker)
    for part in parts:
        if part == RUNNING:
            yield query.over(part, f"h.worker = {worker}")
        elif "daybell.live" not in part:
            yield query.over(part, f"v.worker = {worker}")


DAY: Final = 86400.0  # of a partition of history


def _of_days(query: Query, content: Content, parts: Iterable[str]) -> Iterator[str]:
    """Parts without the days of history in which nothing ended that is searched for. The bounds
    are those of whole partitions: a part reads no row in vain.
    """
    days = ""
    if content.ended_since is not None:
        days += f" AND v.finished_at >= {query.bind(content.ended_since // DAY * DAY)}"
    if content.ended_until is not None:
        days += f" AND v.finished_at < {query.bind(-(-content.ended_until // DAY) * DAY)}"
    for part in parts:
        yield part + days if "daybell.history" in part else part


def _execution(row: Row, tenant: str, job: str, queue: str) -> Execution:
    outcome, state = row["outcome"], STATES[row["state"]]
    return Execution(
        id=row["id"],
        tenant=tenant,
        job=job,
        version=row["version"],
        state=state,
        queue=queue,
        priority=PRIORITIES[row["priority"]],
        args=row["args"],
        attempt=row["attempt"],
        failures=row["failures"],
        crashes=row["crashes"],
        created_at=row["created_at"],
        run_at=row["run_at"],
        scheduled_for=row["scheduled_for"],
        expires_at=row["expires_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        worker=row["worker"],
        unique_key=row["unique_key"],
        retries=row["retries"],
        timeout=row["timeout"],
        gate=row["gate"],
        schedule=row["schedule"],
        parent=row["parent"],
        node=row["node"],
        outcome=None if outcome is None else OUTCOMES[outcome],
        result=row["result"],
        error=row["error"],
        reason=reason_in(state, row["reason"]),
        progress=row["progress"],
        note=row["note"],
        checkpoint=row["checkpoint"],
        cancel_requested_at=row["cancel_requested_at"],
        is_discarded=row["is_discarded"],
        truncated=row.get("truncated", False),
    )


def _attempt(row: Row) -> Attempt:
    return Attempt(
        attempt=row["attempt"],
        outcome=OUTCOMES[row["outcome"]],
        worker=row["worker"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        error=row["error"],
    )
