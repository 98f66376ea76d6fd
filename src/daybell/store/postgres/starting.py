"""Executions of nodes: created under the lock of their run, by what lets them start.

They pass no gate, because the run has passed its own, and hold no unique key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

from daybell.core.run import Advance, Many, Node, NodeEnd, NodeState, Start
from daybell.store.codes import NODE_CODES
from daybell.store.driving import without_job
from daybell.store.ids import mint_many
from daybell.store.postgres.connection import Link
from daybell.store.postgres.gates import Connected
from daybell.store.postgres.names import CurrentJob
from daybell.store.postgres.run_rows import (
    NO_PARENTS,
    Held,
    NodeRows,
    Place,
    Seen,
    columns,
    given,
    once,
)
from daybell.store.postgres.run_writes import NodeWrites

STARTED: Final = NODE_CODES[NodeState.STARTED]

Starts = Sequence[tuple[Held, Start, Node | None]]  # the node: if its row is written here, too
Lane = tuple[str, str]  # queue, needs


class Starting(Connected, NodeRows, NodeWrites):
    """From nodes to executions."""

    # What is the same for all is sent once, and filled in here.
    NEW = """
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
    CLAIMABLE = """
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM l
    """
    START = f"WITH {NEW} {CLAIMABLE}"
    # The same, with the rows of the nodes, each changed where it lies since it was read.
    START_MARKED = f"""
    WITH {NEW},
    m AS (
      UPDATE daybell.node n
         SET state = {STARTED}, is_ready = false, execution = u.id, succeeded = u.succeeded,
             failed = u.failed, skipped = u.skipped
        FROM u WHERE n.ctid = u.place AND (n.run = u.parent) IS TRUE)
    {CLAIMABLE}
    """

    async def start_nodes(
        self, link: Link, tenant: int, starts: Starts, seen: Seen
    ) -> dict[UUID, list[NodeEnd]]:
        """Create executions. Answers, by run, the ends of those whose job is gone."""
        jobs = await self._named_jobs(link, tenant, starts)
        gone: dict[UUID, list[NodeEnd]] = {}
        lanes: list[tuple[Held, Start, Node | None, Lane]] = []
        runs = await self.names.lane_rows(link, {held.lane for held, _, _ in starts})
        for held, start, node in starts:
            if start.job is None:
                own = runs[held.lane]
                pair = start.queue or own.queue, start.needs or own.needs
            elif (job := jobs.get(start.job)) is not None:
                pair = start.queue or job.queue, start.needs or job.needs
            else:
                gone.setdefault(held.run.id, []).append(without_job(start))
                continue
            lanes.append((held, start, node, pair))
        numbers = await self._numbers(link, tenant, {pair for *_, pair in lanes})
        rows: dict[str, list[tuple[object, ...]]] = {}
        for held, start, node, pair in lanes:
            place = None if node is None else seen.places[held.run.id][node.label]
            row = _row(held, start, node, jobs.get(start.job or ""), numbers[pair], place)
            query = self.START if node is None else self.START_MARKED
            rows.setdefault(query, []).append(row)
        for query, some in rows.items():
            await link.execute(query, tenant, *_columns(some))
        self.fill(tenant, (queue for queue, _ in numbers))
        return gone

    async def start_many(self, link: Link, tenant: int, held: Held, many: Many) -> None:
        """Create executions of nodes that are alike, with their rows."""
        spec, parents = many.spec, many.parents
        own = (await self.names.lane_rows(link, {held.lane}))[held.lane]
        pair = spec.queue or own.queue, spec.needs or own.needs
        lane = (await self._numbers(link, tenant, {pair}))[pair]
        count = len(many.nodes.labels)
        await link.execute(
            self.START_MARKED,
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
        self.fill(tenant, pair[:1])

    async def _named_jobs(self, link: Link, tenant: int, starts: Starts) -> dict[str, CurrentJob]:
        wanted = {start.job for _, start, _ in starts if start.job is not None}
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


def marked(step: Advance) -> dict[str, Node]:
    """The nodes whose rows are written with their executions, which nothing can prevent."""
    labels = {start.label for start in step.starts if start.job is None}
    if not labels:
        return {}
    return {node.label: node for node in step.changed if node.label in labels}


def _columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    id, job, version, lane, priority, args, parent, node, *few, due, done, failed, skipped, at = (
        columns(rows)
    )
    same = [once(column) for column in (job, version, lane, priority, args, parent)]
    counts = [once(column) for column in (done, failed, skipped)]
    *few, due = [given(column) for column in (*few, due)]
    return [id, *same, node, *few, *counts, due, at]


def _row(
    held: Held,
    start: Start,
    node: Node | None,
    job: CurrentJob | None,
    lane: int,
    place: Place | None,
) -> tuple[object, ...]:
    """A node's execution as START takes it."""
    priority = held.priority if job is None else job.priority
    counts = NO_PARENTS if node is None else node.parents
    return (
        start.id,
        held.job if job is None else job.key,
        held.version if job is None else job.version,
        lane,
        priority if start.priority is None else start.priority,
        start.args,
        held.run.id,
        start.label,
        None if job is None else job.expires,
        start.retries,
        start.timeout,
        held.scheduled_for,
        counts.succeeded,
        counts.failed,
        counts.skipped,
        place,
    )
