"""Ends of executions that no worker has begun: they are cancelled, expire, or are replaced."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from daybell.core.execution import State
from daybell.store.codes import STATE_CODES
from daybell.store.postgres.columns import ENDED, KEPT
from daybell.store.postgres.connection import Link
from daybell.store.postgres.endings import Ending
from daybell.store.postgres.run_rows import Held


class Pending(Ending):
    """Taking back what has not started."""

    LINKS = """
    SELECT DISTINCT gate, schedule, CASE WHEN node IS NOT NULL THEN parent END AS run
      FROM daybell.{table}
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
       AND (gate IS NOT NULL OR schedule IS NOT NULL OR node IS NOT NULL)
    """
    # Under this lock nothing can end or come back; a claim can still take one, which the next
    # statement then waits for.
    FIND_UNFINISHED = """
    SELECT id FROM daybell.live WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) ORDER BY id
    """
    LOCK_UNFINISHED = f"{FIND_UNFINISHED} FOR UPDATE"
    # A run that has begun is changed under its own lock, so it is locked with the others.
    LOCK_NODES = """
    SELECT id FROM daybell.live
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) AND node IS NOT NULL AND state <> 5
     ORDER BY id FOR UPDATE
    """
    # The agenda's key is known from live.
    UNQUEUE = """
    DELETE FROM daybell.agenda a USING daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[])
       AND a.lane = v.lane AND a.priority = v.priority AND a.run_at = v.run_at AND a.id = v.id
    RETURNING a.id
    """
    UNPARK = """
    DELETE FROM daybell.parked p USING daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[]) AND p.tenant = v.tenant AND p.gate = v.gate
       AND p.priority = v.priority AND p.run_at = v.run_at AND p.id = v.id
    RETURNING p.id
    """
    # What waits without being parked waits for something else, and keeps its slot.
    WAITING = """
    SELECT id FROM daybell.live WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) AND state = 4
    """
    # A parked one has no slot to hand on.
    END_PENDING = f"""
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
    CANCEL_RUNNING = """
    UPDATE daybell.live SET cancel_requested_at = coalesce(cancel_requested_at, daybell.now())
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) RETURNING id, state = 5 AS is_run
    """

    async def ask_to_stop(self, link: Link, tenant: int, ids: Collection[UUID]) -> list[UUID]:
        """Have running executions cancelled by who runs them. Answers those that are expanded runs:
        the caller has to stop them, when this transaction is made.
        """
        rows = await link.fetch(self.CANCEL_RUNNING, tenant, list(ids)) if ids else []
        return [row["id"] for row in rows if row["is_run"]]

    async def end_pending(
        self, link: Link, tenant: int, ids: Sequence[UUID], state: State, reason: str | None = None
    ) -> tuple[set[UUID], set[UUID]]:
        """End what has not started. Answers which are unfinished, and which it has ended."""
        _, held = await self.lock_links_of(link, tenant, "live", ids)
        live = await ids_of(link, self.LOCK_UNFINISHED, tenant, ids)
        inside = await ids_of(link, self.UNQUEUE, tenant, list(live))
        parked = await ids_of(link, self.UNPARK, tenant, list(live))
        inside |= await ids_of(link, self.WAITING, tenant, list(live - parked))
        pending = inside | parked
        if pending:
            ended = await link.fetch(
                self.END_PENDING, tenant, list(pending), STATE_CODES[state], reason, list(parked)
            )
            self.cancelled |= {(tenant, row["id"]): None for row in ended if row["has_run"]}
            await self.follow_up(link, tenant, ended, held)
        return live, pending

    async def lock_links_of(
        self,
        link: Link,
        tenant: int,
        table: str,
        ids: Sequence[UUID],
        runs: Collection[UUID] = (),
    ) -> tuple[set[str], dict[UUID, Held]]:
        """Lock the schedules, gates and runs of these executions, and more runs; answers the gates
        of the executions, and the runs. Executions of nodes are locked before; see
        `progressing.py`.
        """
        rows = await link.fetch(self.LINKS.format(table=table), tenant, list(ids))
        if table == "live" and any(row["run"] is not None for row in rows):
            await link.execute(self.LOCK_NODES, tenant, list(ids))
        gates: set[str] = {row["gate"] for row in rows if row["gate"] is not None}
        schedules = {row["schedule"] for row in rows if row["schedule"] is not None}
        runs = {*runs, *(row["run"] for row in rows if row["run"] is not None)}
        return gates, await self.lock_links(link, tenant, schedules, gates, runs)


async def ids_of(link: Link, query: str, tenant: int, ids: Sequence[UUID]) -> set[UUID]:
    """The ids that a statement about some ids answers with."""
    return {row["id"] for row in await link.fetch(query, tenant, list(ids))} if ids else set()
