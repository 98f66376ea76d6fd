"""Ways in: enqueue, and the bulk load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from daybell.core.execution import Enqueued, NewExecution
from daybell.core.instant import Instant
from daybell.errors import DuplicateKey, Unavailable, UsageError
from daybell.store import checks
from daybell.store.postgres.connection import Link
from daybell.store.postgres.gates import Admission
from daybell.store.postgres.names import CurrentJob

COPY_ROWS: Final = 5_000
STALE_TRIES: Final = 5

LOAD_COLUMNS: Final = [
    "tenant",
    "id",
    "job",
    "version",
    "lane",
    "priority",
    "state",
    "created_at",
    "run_at",
    "args",
    "retries",
    "timeout",
    "scheduled_for",
    "expires_at",
    "schedule",
    "parent",
]
# A finished `u.id`, as `h`: one probe for each of the four ends, whatever the planner believes.
IN_HISTORY: Final = """unnest('{6, 7, 8, 9}'::smallint[]) s(state),
           LATERAL (SELECT * FROM daybell.history h WHERE h.tenant = $1 AND h.state = s.state
                       AND h.id = u.id LIMIT 1) h"""
AGENDA_COLUMNS: Final = ("run_at", "lane", "priority", "id")


class Outdated(Exception):
    """A job has a new version, or the holder of a unique key finished just now: look again."""


class Spec(msgspec.Struct, frozen=True, gc=False):
    """What an execution's job and queue come to."""

    tenant: int
    job: CurrentJob
    lane: int


class Specs(msgspec.Struct, frozen=True):
    """All that a batch names, by job and queue."""

    tenant: int
    found: dict[tuple[str, str | None], Spec]

    @property
    def queues(self) -> set[str]:
        return {queue or spec.job.queue for (_, queue), spec in self.found.items()}

    def of(self, execution: NewExecution) -> Spec:
        return self.found[execution.job, execution.queue]

    def cover(self, executions: Iterable[NewExecution]) -> bool:
        return all((execution.job, execution.queue) in self.found for execution in executions)


class Enqueueing(Admission):
    """New executions."""

    async def enqueue(
        self, tenant: str, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> list[Enqueued]:
        checks.check_batch(executions)
        if not executions:
            async with self.db.link() as link:
                await self.names.tenant(link, tenant)
            return []
        return await self.db.settled(lambda: self._enqueue(tenant, executions, repeat))

    async def _enqueue(
        self, tenant: str, executions: Sequence[NewExecution], repeat: bool
    ) -> list[Enqueued]:
        specs = await self.resolve(tenant, executions)
        if not repeat:
            try:
                async with self.db.link() as link:
                    if await self._enqueue_alike(link, specs, executions):
                        self.notifier.touch(specs.tenant, specs.queues)
                        return [Enqueued(execution.id) for execution in executions]
            except UsageError as error:
                if not isinstance(error.__cause__, asyncpg.UniqueViolationError):
                    raise
                repeat = True  # some ids exist, and may belong to what is finished by now
        for _ in range(STALE_TRIES):
            try:
                async with self.db.transaction() as link:
                    answers = await self.enqueue_on(link, specs, executions, repeat=repeat)
                self.notifier.touch(specs.tenant, specs.queues)
                return answers
            except Outdated:
                specs = await self.resolve(tenant, executions, fresh=True)
        raise Unavailable("these jobs change faster than they can be enqueued; try again")

    async def resolve(
        self, tenant: str, executions: Iterable[NewExecution], *, fresh: bool = False
    ) -> Specs:
        """Look up what these executions name, while no connection is held. Raises JobNotFound."""
        wanted = {(execution.job, execution.queue) for execution in executions}
        known = None if fresh else self.names.known(tenant, wanted)
        key, found = known or await self.names.look_up(tenant, wanted)
        return Specs(key, {one: Spec(key, job, lane) for one, (job, lane) in found.items()})

    # Executions of one job that differ in nothing but id and arguments. None are created if the job
    # changed under us. An id that exists breaks the statement: to expect it with ON CONFLICT would
    # cost every row a quarter more.
    ALIKE = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
                                args)
      SELECT $1, u.id, $2, $3, $4, $5, 1, t.now, t.now, u.args
        FROM t, unnest($6::uuid[], $7::text[]) u(id, args)
       WHERE (SELECT j.version = $3 AND j.deleted_at IS NULL FROM daybell.job j WHERE j.key = $2)
      RETURNING id, run_at, lane, priority)
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM l
    """

    async def _enqueue_alike(
        self, link: Link, specs: Specs, executions: Sequence[NewExecution]
    ) -> bool:
        """Create them if they are alike. False: nothing was created, they go the general way."""
        first = executions[0]
        spec = specs.of(first)
        if spec.job.expires is not None or not all(_is_like(e, first) for e in executions):
            return False
        answer = await link.execute(
            self.ALIKE,
            spec.tenant,
            spec.job.key,
            spec.job.version,
            spec.lane,
            spec.job.priority if first.priority is None else first.priority,
            [execution.id for execution in executions],
            [execution.args for execution in executions],
        )
        return int(answer.rpartition(" ")[2]) == len(executions)

    async def enqueue_on(
        self,
        link: Link,
        specs: Specs,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
    ) -> list[Enqueued]:
        """Enqueue within the caller's transaction, whatever the executions ask for.

        Raises Outdated if what `resolve` found is not true any more; then the caller has to
        roll back and begin again.
        """
        gates = {execution.gate for execution in executions if execution.gate is not None}
        if gates:
            await self.lock_gates(link, specs.tenant, gates)
        answers = await self._insert(link, specs, executions, repeat=repeat)
        missing = [execution for execution in executions if execution.id not in answers]
        if missing:
            answers |= await self._existing(link, specs, missing)
            if any(execution.id not in answers for execution in missing):
                raise Outdated
        if gates:
            await self.admit_gates(link, specs.tenant, gates)
        return [answers[execution.id] for execution in executions]

    INSERT = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    u AS MATERIALIZED (
      SELECT u.*, greatest(t.now, coalesce(u.at, t.now + u.delay, t.now)) AS run_at, t.now
        FROM t, unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::smallint[], $7::text[],
                       $8::float8[], $9::float8[], $10::float8[], $11::text[], $12::int[],
                       $13::float8[], $14::text[], $15::float8[], $16::uuid[], $17::uuid[])
             u(id, job, version, lane, priority, args, delay, at, expires_in, unique_key, retries,
               timeout, gate, scheduled_for, schedule, parent)
       WHERE NOT EXISTS (SELECT FROM unnest($3::int[], $4::int[]) c(job, version)
                          WHERE NOT EXISTS (
                            SELECT FROM daybell.job j WHERE j.key = c.job
                               AND j.version = c.version AND j.deleted_at IS NULL))),
    l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
             args, expires_at, unique_key, retries, timeout, gate, scheduled_for, schedule, parent,
             reason)
      SELECT $1, id, job, version, lane, priority,
             CASE WHEN gate IS NOT NULL THEN 4 WHEN run_at > now THEN 2 ELSE 1 END, now, run_at,
             args, run_at + expires_in, unique_key, retries, timeout, gate, scheduled_for, schedule,
             parent, CASE WHEN gate IS NOT NULL THEN 'gate' END
        FROM u
      ON CONFLICT DO NOTHING RETURNING id, run_at, lane, priority, gate),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM l WHERE gate IS NULL),
    p AS (
      INSERT INTO daybell.parked (tenant, gate, priority, run_at, id)
      SELECT $1, gate, priority, run_at, id FROM l WHERE gate IS NOT NULL)
    SELECT id FROM l
    """

    async def _insert(
        self, link: Link, specs: Specs, executions: Sequence[NewExecution], *, repeat: bool
    ) -> dict[UUID, Enqueued]:
        rows = [_row(execution, specs.of(execution)) for execution in executions]
        if not rows:
            return {}
        savepoint = link.transaction() if repeat else None
        if savepoint is not None:
            await savepoint.start()
        columns = [list(column) for column in zip(*rows, strict=True)]
        created = [row["id"] for row in await link.fetch(self.INSERT, specs.tenant, *columns)]
        if savepoint is None:
            return {id: Enqueued(id) for id in created}
        # Of all of them: one that ended may not be created because its key has a new holder.
        sent = [execution.id for execution in executions]
        finished = {row["id"] for row in await link.fetch(self.FINISHED, specs.tenant, sent)}
        if not finished:
            await savepoint.commit()
            return {id: Enqueued(id) for id in created}
        await savepoint.rollback()
        rest = [execution for execution in executions if execution.id not in finished]
        again = await self._insert(link, specs, rest, repeat=False)
        return again | {id: Enqueued(id) for id in finished}

    # For a repetition. The rows are in `live` by now, which waited for a twin still being committed
    # and keeps later ones out; so an id that was created before and ended is found for certain.
    FINISHED = f"""
    SELECT h.id FROM unnest($2::uuid[]) u(id), {IN_HISTORY}
    UNION ALL
    SELECT id FROM daybell.dead WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    """

    # Who is there already: the same id, or the holder of the same unique key.
    EXISTING = """
    SELECT u.id, coalesce(same.id, holder.id) AS found
      FROM unnest($2::uuid[], $3::int[], $4::text[]) u(id, job, unique_key)
      LEFT JOIN daybell.live same ON same.tenant = $1 AND same.id = u.id
      LEFT JOIN daybell.live holder ON holder.job = u.job AND holder.unique_key = u.unique_key
     WHERE same.id IS NOT NULL OR holder.id IS NOT NULL
    """

    async def _existing(
        self, link: Link, specs: Specs, executions: Sequence[NewExecution]
    ) -> dict[UUID, Enqueued]:
        rows = await link.fetch(
            self.EXISTING,
            specs.tenant,
            [execution.id for execution in executions],
            [specs.of(execution).job.key for execution in executions],
            [execution.unique_key for execution in executions],
        )
        return {row["id"]: Enqueued(row["found"], row["found"] == row["id"]) for row in rows}

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        source = iter(executions)
        loaded = 0
        chunk = list(islice(source, COPY_ROWS))
        specs = await self.resolve(tenant, chunk)
        try:
            async with self.db.transaction() as link:
                while chunk:
                    for position, execution in enumerate(chunk, loaded):
                        checks.check_loadable(execution, position)
                    await self._copy(link, specs, chunk)
                    loaded += len(chunk)
                    chunk = list(islice(source, COPY_ROWS))
                    if not specs.cover(chunk):
                        specs = await self.resolve(tenant, chunk)
        except UsageError as error:
            if isinstance(error.__cause__, asyncpg.UniqueViolationError):
                raise DuplicateKey(
                    "some of these executions exist already: an earlier load of them was committed"
                ) from error
            raise
        self.notifier.touch(specs.tenant, specs.queues)
        return loaded

    # Locked, so that no new version comes in while the rows are on their way.
    LOCK_VERSIONS = """
    SELECT daybell.now() AS now, count(*) AS current
      FROM (SELECT FROM daybell.job j JOIN unnest($1::int[], $2::int[]) u(key, version)
                ON j.key = u.key AND j.version = u.version AND j.deleted_at IS NULL
               FOR SHARE OF j) j
    """

    async def _copy(self, link: Link, specs: Specs, executions: list[NewExecution]) -> None:
        jobs = {spec.job.key: spec.job.version for spec in specs.found.values()}
        locked = await link.fetchrow(self.LOCK_VERSIONS, list(jobs), list(jobs.values()))
        assert locked is not None
        if locked["current"] != len(jobs):
            raise Unavailable("a job was changed while its executions were loaded; try again")
        rows = [
            _load_row(execution, specs.of(execution), locked["now"]) for execution in executions
        ]
        await link.copy_records_to_table(
            "live", schema_name="daybell", columns=LOAD_COLUMNS, records=rows
        )
        await link.copy_records_to_table(
            "agenda",
            schema_name="daybell",
            columns=AGENDA_COLUMNS,
            records=((row[8], row[4], row[5], row[1]) for row in rows),
        )


def _is_like(execution: NewExecution, first: NewExecution) -> bool:
    return (
        execution.is_plain
        and execution.job == first.job
        and execution.queue == first.queue
        and execution.priority == first.priority
    )


def _row(execution: NewExecution, spec: Spec) -> tuple[object, ...]:
    """An execution as INSERT takes it."""
    e, job = execution, spec.job
    return (
        e.id,
        job.key,
        job.version,
        spec.lane,
        job.priority if e.priority is None else e.priority,
        e.args,
        e.delay,
        e.at,
        job.expires if e.expires_in is None else e.expires_in,
        e.unique_key,
        e.retries,
        e.timeout,
        e.gate,
        e.scheduled_for,
        e.schedule,
        e.parent,
    )


def _load_row(execution: NewExecution, spec: Spec, now: Instant) -> tuple[object, ...]:
    """An execution as LOAD_COLUMNS name it."""
    e, job = execution, spec.job
    run_at = now
    if e.at is not None:
        run_at = max(now, e.at)
    elif e.delay is not None:
        run_at = now + e.delay
    expires_in = job.expires if e.expires_in is None else e.expires_in
    return (
        spec.tenant,
        e.id,
        job.key,
        job.version,
        spec.lane,
        job.priority if e.priority is None else e.priority,
        2 if run_at > now else 1,
        now,
        run_at,
        e.args,
        e.retries,
        e.timeout,
        e.scheduled_for,
        None if expires_in is None else run_at + expires_in,
        e.schedule,
        e.parent,
    )
