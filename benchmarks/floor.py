"""The floor: the least that a database needs to make the same writes.

Plain drivers on the tables that the store has migrated, with all their indexes, the same session
settings, rows, batches and number of clients. The work of a store is left out: no fence, no check
of workers, no lookup of names, no unique keys, no answers for single rows, no objects. A batch is
prepared before, in the best form for the driver.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import asyncpg

from benchmarks.executions import JOB, RAN, RESULT, sliced
from daybell.core.execution import NewExecution, Priority
from daybell.core.ids import mint
from daybell.store.postgres.connection import POOL_CONNECTIONS_MAX
from daybell.store.postgres.connection import SETTINGS as SESSION
from daybell.store.sqlite import connection

PRIORITY: Final = int(Priority.NORMAL)

CLAIMED: Final = (
    "id, attempt, job, version, lane, priority, args, failures, crashes, created_at, run_at,"
    " expires_at, scheduled_for, retries, timeout, checkpoint, gate, cancel_requested_at"
)
KEPT: Final = (
    "tenant, job, version, lane, attempt, priority, id, args, unique_key, gate, retries, timeout,"
    " scheduled_for, expires_at, schedule, parent, cancel_requested_at, progress, note, created_at,"
    " run_at, failures, crashes, checkpoint"
)
ENQUEUE: Final = """
WITH l AS (
  INSERT INTO daybell.live
         (tenant, id, job, version, lane, priority, state, created_at, run_at, args)
  SELECT $1, u.id, $2, $3, $4, $5, 1, $6, $6, u.args
    FROM unnest($7::uuid[], $8::text[]) u(id, args))
INSERT INTO daybell.agenda (run_at, lane, priority, id)
SELECT $6, $4, $5, id FROM unnest($7::uuid[]) id
"""
# Of the ways to read `live`, ANY(ARRAY(…)) is the cheapest: one walk through the index, in order.
CLAIM: Final = f"""
WITH d AS (
  DELETE FROM daybell.agenda WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM daybell.agenda WHERE lane = $4 AND priority = $5 AND run_at <= $6
     ORDER BY run_at, id LIMIT $7 FOR UPDATE SKIP LOCKED)) RETURNING id),
v AS MATERIALIZED (
  SELECT {CLAIMED} FROM daybell.live WHERE tenant = $1 AND id = ANY(ARRAY(SELECT id FROM d))),
l AS (
  INSERT INTO daybell.lease (id, worker, tenant, ids, attempts)
  SELECT $2, $3, $1, array_agg(id), array_agg(attempt) FROM v HAVING count(*) > 0)
SELECT * FROM v
"""
FINISH: Final = f"""
WITH d AS (DELETE FROM daybell.live WHERE tenant = $1 AND id = ANY($4::uuid[]) RETURNING *),
o AS (DELETE FROM daybell.lease WHERE id = $2)
INSERT INTO daybell.history ({KEPT}, state, outcome, finished_at, started_at, worker, result)
SELECT {KEPT}, 6, 1, $5::float8, $5::float8 - u.ran, $3, u.result
  FROM d FULL JOIN unnest($4::uuid[], $6::text[], $7::float8[]) u(id, result, ran) USING (id)
"""
COPY_LIVE: Final = (
    "tenant", "id", "job", "version", "lane", "priority", "state", "created_at", "run_at", "args",
)  # fmt: skip
COPY_AGENDA: Final = ("run_at", "lane", "priority", "id")


class PostgresFloor:
    """Plain asyncpg."""

    def __init__(self, url: str, *, result: str | None = RESULT) -> None:
        self._url = url
        self._result = result
        self._worker = mint()

    async def open(self) -> None:
        self._link = await self._connect()
        self._idle: asyncio.LifoQueue[Any] = asyncio.LifoQueue()
        for _ in range(POOL_CONNECTIONS_MAX):
            self._idle.put_nowait(await self._connect())
        key, version, lane = await self._link.fetchrow(
            "SELECT j.key, j.version, l.key FROM daybell.job j, daybell.lane l WHERE name = $1", JOB
        )
        self._tenant, self._job, self._version, self._lane = 1, key, version, lane

    async def close(self) -> None:
        await self._link.close()
        while not self._idle.empty():
            await self._idle.get_nowait().close()

    def prepare(self, executions: Sequence[NewExecution]) -> Any:
        return [new.id for new in executions], [new.args for new in executions]

    async def enqueue(self, batch: Any) -> None:
        await self._enqueue(self._link, batch)

    async def enqueue_crowd(self, batches: Sequence[Any], callers: int) -> None:
        """Enqueue from many callers at once, which share as many connections as a store has."""
        rest = iter(batches)

        async def call() -> None:
            for batch in rest:
                link = await self._idle.get()
                await self._enqueue(link, batch)
                self._idle.put_nowait(link)

        await asyncio.gather(*(call() for _ in range(callers)))

    async def _enqueue(self, link: Any, batch: Any) -> None:
        names = self._tenant, self._job, self._version, self._lane
        await link.execute(ENQUEUE, *names, PRIORITY, time.time(), *batch)

    def prepare_load(self, executions: Sequence[NewExecution]) -> Any:
        now = time.time()
        row = self._job, self._version, self._lane, PRIORITY, 1, now, now
        live = [(self._tenant, new.id, *row, new.args) for new in executions]
        return live, [(now, self._lane, PRIORITY, new.id) for new in executions]

    async def load(self, batch: Any) -> None:
        live, agenda = batch
        async with self._link.transaction():
            await self._link.copy_records_to_table(
                "live", schema_name="daybell", columns=COPY_LIVE, records=live
            )
            await self._link.copy_records_to_table(
                "agenda", schema_name="daybell", columns=COPY_AGENDA, records=agenda
            )

    async def cycle(self, limit: int) -> int:
        """Claim and finish once; return how many."""
        lease = mint()
        rows = await self._link.fetch(
            CLAIM, self._tenant, lease, self._worker, self._lane, PRIORITY, time.time(), limit
        )
        if rows:
            await self._link.execute(
                FINISH,
                self._tenant,
                lease,
                self._worker,
                [row["id"] for row in rows],
                time.time(),
                [self._result] * len(rows),
                [RAN] * len(rows),
            )
        return len(rows)

    async def _connect(self) -> Any:
        return await asyncpg.connect(
            self._url, server_settings=SESSION, max_cached_statement_lifetime=0
        )


INSERT_COLUMNS: Final = "tenant, id, job, version, lane, priority, state, created_at, run_at, args"
INSERT: Final = f"INSERT INTO execution ({INSERT_COLUMNS}) VALUES "
INSERT_ROW: Final = "(?, ?, ?, ?, ?, ?, 1, ?, ?, ?)"
INSERT_ROWS: Final = 256  # in one statement: twice as fast as one row at a time
DUE: Final = f"""
SELECT n, {CLAIMED} FROM execution
 WHERE state <= 3 AND lane = ? AND priority = ? AND run_at <= ? ORDER BY run_at, id LIMIT ?
"""
START: Final = "UPDATE execution SET state = 5, worker = ?, lease = ? WHERE n IN "
LEASE: Final = "INSERT INTO lease (id, claimed_at) VALUES (?, ?)"
END: Final = """
UPDATE execution
   SET state = 6, outcome = 1, result = column1, started_at = ?, finished_at = ?, lease = NULL
  FROM (VALUES {rows}) WHERE n = column2
"""


class SqliteFloor:
    """Plain sqlite3, on the event loop's own thread."""

    def __init__(self, url: str, *, result: str | None = RESULT) -> None:
        self._url = url
        self._result = result
        self._worker = mint().bytes

    async def open(self) -> None:
        self._link = connection.connect(self._url)  # for the store's own settings
        self._job, self._version, self._lane = self._link.execute(
            "SELECT j.n, j.version, l.n FROM job j, lane l WHERE name = ?", (JOB,)
        ).fetchone()

    async def close(self) -> None:
        self._link.close()

    def prepare(self, executions: Sequence[NewExecution]) -> Any:
        now = time.time()
        row = self._job, self._version, self._lane, PRIORITY, now, now
        statements: list[tuple[str, list[Any]]] = []
        for some in sliced(list(executions), INSERT_ROWS):
            values = [value for new in some for value in (1, new.id.bytes, *row, new.args)]
            statements.append((INSERT + ", ".join([INSERT_ROW] * len(some)), values))
        return statements

    prepare_load = prepare

    async def enqueue(self, batch: Any) -> None:
        self._begin()
        for statement, values in batch:
            self._link.execute(statement, values)
        self._link.execute("COMMIT")

    load = enqueue

    async def enqueue_crowd(self, batches: Sequence[Any], callers: int) -> None:
        """Enqueue from concurrent callers, which share a commit as far as possible."""
        for start in range(0, len(batches), callers):
            self._begin()
            for batch in batches[start : start + callers]:
                self._link.execute(*batch[0])
            self._link.execute("COMMIT")

    async def cycle(self, limit: int) -> int:
        """Claim and finish once; return how many."""
        link, lease, now = self._link, mint().bytes, time.time()
        self._begin()
        rows = link.execute(DUE, (self._lane, PRIORITY, now, limit)).fetchall()
        if rows:
            numbers = [row[0] for row in rows]
            link.execute(f"{START}({marks(len(numbers))})", (self._worker, lease, *numbers))
            link.execute(LEASE, (lease, now))
        link.execute("COMMIT")
        if rows:
            now = time.time()
            self._begin()
            for some in sliced(rows, INSERT_ROWS):
                statement = END.format(rows=", ".join(["(?, ?)"] * len(some)))
                values = [value for row in some for value in (self._result, row[0])]
                link.execute(statement, (now - RAN, now, *values))
            link.execute("COMMIT")
        return len(rows)

    def _begin(self) -> None:
        connection.retry_while_busy(lambda: self._link.execute("BEGIN IMMEDIATE"))


@cache
def marks(count: int) -> str:
    """Return so many parameters."""
    return ", ".join("?" * count)
