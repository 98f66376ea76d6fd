"""Executions of nodes: created under the lock of their run, by what lets them start.

They pass no gate, because the run has passed its own, and hold no unique key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from daybell.core.run import NodeEnd, Start
from daybell.store.driving import without_job
from daybell.store.postgres.connection import Link
from daybell.store.postgres.gates import Connected
from daybell.store.postgres.names import CurrentJob
from daybell.store.postgres.run_rows import Held, NodeRows, columns, once

Starts = Sequence[tuple[Held, Start]]
Lane = tuple[str, str]  # queue, needs


class Starting(Connected, NodeRows):
    """From nodes to executions."""

    def __init__(self, url: str, *, listen_url: str | None = None) -> None:
        super().__init__(url, listen_url=listen_url)
        self.filled: set[tuple[int, str]] = set()  # queues to be told of after the commit

    START = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
             args, expires_at, retries, timeout, parent, node)
      SELECT $1, u.id, coalesce(u.job, ($3::int[])[1]), coalesce(u.version, ($4::int[])[1]),
             coalesce(u.lane, ($5::int[])[1]), coalesce(u.priority, ($6::smallint[])[1]), 1, t.now,
             t.now, u.args, t.now + u.expires_in, u.retries, u.timeout,
             coalesce(u.parent, ($11::uuid[])[1]), u.node
        FROM t, unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::smallint[], $7::text[],
                       $8::float8[], $9::int[], $10::float8[], $11::uuid[], $12::text[])
             u(id, job, version, lane, priority, args, expires_in, retries, timeout, parent, node)
      RETURNING run_at, lane, priority, id)
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM l
    """

    async def start_nodes(
        self, link: Link, tenant: int, starts: Starts
    ) -> dict[UUID, list[NodeEnd]]:
        """Create executions. Answers, by run, the ends of those whose job is gone."""
        jobs = await self._named_jobs(link, tenant, starts)
        gone: dict[UUID, list[NodeEnd]] = {}
        lanes: list[tuple[Held, Start, Lane]] = []
        runs = await self.names.lane_rows(link, {held.lane for held, _ in starts})
        for held, start in starts:
            if start.job is None:
                own = runs[held.lane]
                pair = start.queue or own.queue, start.needs or own.needs
            elif (job := jobs.get(start.job)) is not None:
                pair = start.queue or job.queue, start.needs or job.needs
            else:
                gone.setdefault(held.run.id, []).append(without_job(start))
                continue
            lanes.append((held, start, pair))
        if lanes:
            numbers = await self._numbers(link, tenant, {pair for _, _, pair in lanes})
            rows = [
                _row(held, start, jobs.get(start.job or ""), numbers[pair])
                for held, start, pair in lanes
            ]
            await link.execute(self.START, tenant, *_columns(rows))
            self.filled |= {(tenant, queue) for queue, _ in numbers}
        return gone

    async def _named_jobs(self, link: Link, tenant: int, starts: Starts) -> dict[str, CurrentJob]:
        wanted = {start.job for _, start in starts if start.job is not None}
        return await self.names.existing_jobs(link, tenant, wanted) if wanted else {}

    async def _numbers(self, link: Link, tenant: int, pairs: Collection[Lane]) -> dict[Lane, int]:
        """The lanes of queues and needs. Those of a run's own nodes were made before it began; for
        others see `Names.lanes`: what this transaction makes is not remembered.
        """
        found = {pair: self.names.known_lane(tenant, pair) for pair in pairs}
        missing = sorted(pair for pair, lane in found.items() if lane is None)
        if missing:
            await self.names.make_lanes(link, tenant, missing)
            found |= await self.names.lane_numbers(link, tenant, missing)
        return {pair: lane for pair, lane in found.items() if lane is not None}

    def say_filled(self) -> None:
        """Wake who waits for work, if runs have started something. After the commit."""
        filled, self.filled = self.filled, set()
        for tenant, queue in filled:
            self.notifier.touch(tenant, [queue], here=True)


def _columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    id, job, version, lane, priority, *others, parent, node = columns(rows)
    same = [once(column) for column in (job, version, lane, priority)]
    return [id, *same, *others, once(parent), node]


def _row(held: Held, start: Start, job: CurrentJob | None, lane: int) -> tuple[object, ...]:
    """A node's execution as START takes it."""
    priority = held.priority if job is None else job.priority
    return (
        start.id,
        held.job if job is None else job.key,
        held.version if job is None else job.version,
        lane,
        priority if start.priority is None else start.priority,
        start.args,
        None if job is None else job.expires,
        start.retries,
        start.timeout,
        held.run.id,
        start.label,
    )
