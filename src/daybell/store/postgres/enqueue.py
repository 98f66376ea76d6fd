"""The way in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.core.audit import NewEntry
from daybell.core.dependencies import DEPENDENCIES
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.overlap import OVERLAP, Entry, Overlap
from daybell.errors import Unavailable, UsageError
from daybell.store import checks, recording
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.entering import Entering, Passing
from daybell.store.postgres.recorded import columns, record
from daybell.store.postgres.specs import Outdated, Repeated, Spec, Specs
from daybell.store.postgres.timeouts import pace_of

STALE_TRIES: Final = 5
MARKS_EXIST: Final = "(pg_sequence_last_value('daybell.repeats') IS NOT NULL)"


class Enqueueing(Entering):
    """New executions."""

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewEntry] = (),
    ) -> list[Enqueued]:
        checks.check_batch(executions)
        for entry in entries:
            checks.check_entry(entry)
        if not executions:
            async with self.db.link() as link:
                await self.names.tenant(link, tenant)
            return []
        with self.db.at_pace(pace_of(len(executions))):
            return await self.db.settled(lambda: self._enqueue(tenant, executions, entries, repeat))

    async def _enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        entries: Sequence[NewEntry],
        repeat: bool,
    ) -> list[Enqueued]:
        specs = await self.resolve(tenant, executions)
        is_limited = (await self.quotas(specs.tenant)).limits_enqueues
        if not repeat:
            try:
                if not is_limited and await self._enqueue_alike(specs, executions, entries):
                    return [Enqueued(execution.id) for execution in executions]
                return await self._enqueue_any(tenant, specs, executions, entries, is_limited)
            except Repeated:
                pass
            except UsageError as error:
                if not isinstance(error.__cause__, asyncpg.UniqueViolationError):
                    raise
            # Some ids exist, and may have ended: search the history, as for a repeat.
            specs = await self.resolve(tenant, executions)
        return await self._enqueue_any(tenant, specs, executions, entries, is_limited, repeat=True)

    async def _enqueue_any(
        self,
        tenant: str,
        specs: Specs,
        executions: Sequence[NewExecution],
        entries: Sequence[NewEntry],
        is_limited: bool,
        *,
        repeat: bool = False,
    ) -> list[Enqueued]:
        """Create executions of any kind, in one transaction."""
        for _ in range(STALE_TRIES):
            try:
                async with self.db.transaction() as link:
                    answers = await self.enqueue_on(link, specs, executions, repeat=repeat)
                    skipped = {answer.id for answer in answers if answer.skipped}
                    if not specs.made and not skipped:
                        recording.idle(self.db)  # gates were locked, perhaps, and nothing else
                    if repeat and (marked := specs.made | skipped):
                        await link.execute(self.MARK_REPEATED, specs.tenant, list(marked))
                    if is_limited:
                        await self.charge(link, specs.tenant, len(specs.made))
                    if entries:
                        await record(link, specs.tenant, entries)
                await self.announce(specs)
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
        return Specs(
            key, known is None, {one: Spec(key, job, lane) for one, (job, lane) in found.items()}
        )

    # For first requests that arrive after this repeat: see `daybell.refuse_repeated`. A repeat that
    # meets these rows has found them in FINISHED.
    MARK_REPEATED = """
    WITH m AS (
      INSERT INTO daybell.repeated (tenant, id) SELECT $1, id FROM unnest($2::uuid[]) u(id)
      RETURNING 1)
    SELECT nextval('daybell.repeats') FROM (SELECT count(*) FROM m) n
    """

    # Executions of one job that differ in nothing but id and arguments. None are created if the job
    # changed under us. An id that exists breaks the statement: to expect it with ON CONFLICT would
    # cost every row a quarter more.
    # Rows come to the last part one by one, as they are inserted; with the last of them, all are
    # checked for repeats. The sequence is asked first, which costs a tenth of the search and
    # depends on no snapshot: it has a value as long as there are marks.
    ALIKE = f"""
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
     WHERE CASE WHEN id = ($6::uuid[])[cardinality($6)] AND {MARKS_EXIST}
                THEN daybell.refuse_repeated($1, $6, cardinality($6)) ELSE true END
    """
    # The same for one, whose row is the last.
    ALIKE_ONE = (
        ALIKE[: ALIKE.rindex("WHERE CASE")]
        + f"WHERE NOT {MARKS_EXIST} OR daybell.refuse_repeated($1, $6, 1)"
    )

    # The same with entries of the audit log, if anything is created: one statement is one round
    # trip, where a transaction would take four. The entries come last, since they lock the head of
    # the tenant's chain.
    ALIKE_RECORDED = (
        ALIKE.replace(
            """
    INSERT INTO daybell.agenda""",
            """,
    a AS (
    INSERT INTO daybell.agenda""",
        )
        + """
    RETURNING 1)
    SELECT n, CASE WHEN n > 0 THEN daybell.record_audit($1, $8, $9, $10, $11, $12, $13, $14) END
      FROM (SELECT count(*) AS n FROM a) made
    """
    )

    async def _enqueue_alike(
        self,
        specs: Specs,
        executions: Sequence[NewExecution],
        entries: Sequence[NewEntry],
    ) -> bool:
        """Create them if they are alike. False: nothing was created, they go the general way."""
        first = executions[0]
        spec = specs.of(first)
        if spec.job.expires is not None or not all(_is_like(e, first) for e in executions):
            return False
        if spec.rule(first) is not Overlap.ALLOW:
            return False
        values = (
            spec.tenant,
            spec.job.key,
            spec.job.version,
            spec.lane,
            spec.job.priority if first.priority is None else first.priority,
            [execution.id for execution in executions],
            [execution.args for execution in executions],
        )
        async with self.db.link() as link:
            if entries:
                made = await link.fetchval(self.ALIKE_RECORDED, *values, *columns(entries))
            else:
                statement = self.ALIKE_ONE if len(executions) == 1 else self.ALIKE
                made = int((await link.execute(statement, *values)).rpartition(" ")[2])
        if made < len(executions):
            return False
        self.notifier.touch(specs.tenant, specs.queues)
        return True

    async def enqueue_on(
        self,
        link: Link,
        specs: Specs,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        are_locked: bool = False,
    ) -> list[Enqueued]:
        """Enqueue within the caller's transaction, whatever the executions ask for. He may have
        locked the gates of their jobs. `repeat` searches the history for each id.

        Raises Outdated if what `resolve` found is not true any more; then the caller has to
        roll back and begin again. Without `repeat`, an id that a repeat has created and that has
        ended raises Repeated or a unique violation.
        """
        answers: dict[UUID, Enqueued] = {}
        for some in _in_turns(specs, executions):
            passing = await self.pass_gates(link, specs, some, repeat=repeat, are_locked=are_locked)
            if repeat:
                made = await self._insert_again(link, specs, passing)
            else:
                made = await self._insert(link, specs, passing, self.INSERT_FIRST)
            answers |= passing.answers | await self._answer_made(link, specs, passing, made)
            missing = [execution for execution in some if execution.id not in answers]
            if missing:
                answers |= await self.existing(link, specs, missing)
                if any(execution.id not in answers for execution in missing):
                    raise Outdated
        return [answers[execution.id] for execution in executions]

    INSERT = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    u AS MATERIALIZED (
      SELECT u.*, greatest(t.now, coalesce(u.at, t.now + u.delay, t.now)) AS run_at, t.now
        FROM t, unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::smallint[], $7::text[],
                       $8::float8[], $9::float8[], $10::float8[], $11::text[], $12::int[],
                       $13::float8[], $14::text[], $15::float8[], $16::uuid[], $17::uuid[],
                       $18::text[])
             u(id, job, version, lane, priority, args, delay, at, expires_in, unique_key, retries,
               timeout, gate, scheduled_for, schedule, parent, reason)
       WHERE NOT EXISTS (SELECT FROM unnest($3::int[], $4::int[]) c(job, version)
                          WHERE NOT EXISTS (
                            SELECT FROM daybell.job j WHERE j.key = c.job
                               AND j.version = c.version AND j.deleted_at IS NULL))),
    l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
             args, expires_at, unique_key, retries, timeout, gate, scheduled_for, schedule, parent,
             reason)
      SELECT $1, id, job, version, lane, priority,
             CASE WHEN reason IS NOT NULL THEN 4 WHEN run_at > now THEN 2 ELSE 1 END, now, run_at,
             args, run_at + expires_in, unique_key, retries, timeout, gate, scheduled_for, schedule,
             parent, reason
        FROM u
      ON CONFLICT DO NOTHING RETURNING id, run_at, lane, priority, gate, state),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM l WHERE state <> 4),
    p AS (
      INSERT INTO daybell.parked (tenant, gate, priority, run_at, id)
      SELECT $1, gate, priority, run_at, id FROM l WHERE state = 4 AND id <> ALL($19::uuid[]))
    SELECT id, CASE WHEN state <> 4 OR id = ANY($19::uuid[]) THEN gate END AS taken FROM l
    """

    # For a first request: the rows are counted, and with that inserted, before the check.
    INSERT_FIRST = f"""{INSERT} WHERE (SELECT daybell.refuse_repeated($1, $2, count(*)) FROM l)"""

    async def _insert(
        self, link: Link, specs: Specs, passing: Passing, statement: str
    ) -> Sequence[Row]:
        """Insert what passed the gates; return the rows that were created."""
        executions = passing.executions
        if not executions:
            return []
        rows = [_row(e, specs.of(e), passing.entries.get(e.id)) for e in executions]
        # What nobody asks for is not sent: `unnest` fills a list that is missing with NULLs.
        columns = [None if _is_unused(column) else column for column in zip(*rows, strict=True)]
        # What waits for dependencies does so with a slot of its gate, if it was let in there.
        inside = [
            e.id
            for e in executions
            if e.awaits and specs.of(e).awaits(e) and passing.entries.get(e.id) is not Entry.WAIT
        ]
        return await link.fetch(statement, specs.tenant, *columns, inside)

    async def _insert_again(self, link: Link, specs: Specs, passing: Passing) -> Sequence[Row]:
        """Insert executions that may have been created before; return the rows that were created.

        An id is free if its execution has ended, so the history is searched while the rows are
        there: until the commit, no other transaction can create them. Those that have ended are
        left out, and the others are inserted again under the same rule: one that existed before
        may have ended meanwhile. Each round leaves out at least one.
        """
        while True:
            savepoint = link.transaction()
            await savepoint.start()
            made = await self._insert(link, specs, passing, self.INSERT)
            # Of all of them: one that ended may not be created because its key has a new holder.
            finished = await self.finished(link, specs, passing.executions)
            if not finished:
                await savepoint.commit()
                return made
            await savepoint.rollback()
            passing.answer({id: Enqueued(id) for id in finished})

    async def _answer_made(
        self, link: Link, specs: Specs, passing: Passing, made: Sequence[Row]
    ) -> dict[UUID, Enqueued]:
        """Take the slots of those that were created, and answer for them."""
        specs.made.update(row["id"] for row in made)
        if passing.entries and passing.executions:
            await self.take(link, specs, passing, made)
        minded = {e.id for e in passing.executions if e.gate is None and e.id in passing.entries}
        return {id: Enqueued(id, at_gate=id in minded) for id in (row["id"] for row in made)}


def _in_turns(specs: Specs, executions: Sequence[NewExecution]) -> Iterator[Sequence[NewExecution]]:
    """All at once, unless one replaces another of them, which has to be there first."""
    replacing = [e.job for e in executions if specs.of(e).rule(e) is Overlap.REPLACE]
    if len(set(replacing)) == len(replacing):
        yield executions
        return
    turn: list[NewExecution] = []
    jobs: set[str] = set()
    for execution in executions:
        if specs.of(execution).rule(execution) is Overlap.REPLACE:
            if execution.job in jobs:
                yield turn
                turn, jobs = [], set()
            jobs.add(execution.job)
        turn.append(execution)
    yield turn


def _is_unused(column: tuple[object, ...]) -> bool:
    return column[0] is None and all(value is None for value in column)


def _is_like(execution: NewExecution, first: NewExecution) -> bool:
    return (
        execution.is_plain
        and execution.job == first.job
        and execution.queue == first.queue
        and execution.priority == first.priority
    )


def _row(execution: NewExecution, spec: Spec, entry: Entry | None) -> tuple[object, ...]:
    """An execution as INSERT takes it."""
    e, job = execution, spec.job
    waits_for = None
    if spec.awaits(e):
        waits_for = DEPENDENCIES
    elif entry is Entry.WAIT:
        waits_for = OVERLAP if e.gate is None else "gate"
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
        spec.gate(e),
        e.scheduled_for,
        e.schedule,
        e.parent,
        waits_for,
    )
