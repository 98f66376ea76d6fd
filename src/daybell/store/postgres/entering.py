"""At the gates: which new executions take a slot, which wait, and which do not run.

Decided under the locks of the gates, by `core.overlap`, one execution after the other. A rule that
may be out of date is good enough to let somebody in, because the row is written only if the job
still has that version; it is looked up again before it turns anybody away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from daybell.core.execution import Enqueued, NewExecution, State
from daybell.core.overlap import OVERLAP, Entry, Overlap, enter, is_job_gate
from daybell.errors import ExecutionInTheWay
from daybell.store.checks import in_the_way
from daybell.store.codes import STATE_CODES
from daybell.store.postgres.columns import IN_HISTORY
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.continuing import Continuing
from daybell.store.postgres.gates import Room
from daybell.store.postgres.listener import WORKERS
from daybell.store.postgres.pending import ids_of
from daybell.store.postgres.specs import Outdated, Repeated, Spec, Specs


class Passing(msgspec.Struct):
    """What came of a batch at the gates."""

    executions: list[NewExecution]  # to be created
    entries: dict[UUID, Entry]  # how, for those with a gate
    answers: dict[UUID, Enqueued]  # for the others
    rooms: dict[str, Room]  # behind the gates, as these leave them

    def answer(self, answers: Mapping[UUID, Enqueued]) -> None:
        """These need not be created any more."""
        if not answers:
            return
        self.answers = {**self.answers, **answers}
        self.executions = [e for e in self.executions if e.id not in answers]


class Entering(Continuing):
    """Admission of what is new."""

    async def pass_gates(
        self,
        link: Link,
        specs: Specs,
        executions: Sequence[NewExecution],
        *,
        repeat: bool,
        are_locked: bool,
    ) -> Passing:
        """Decide about each execution that has a gate. Raises ExecutionInTheWay."""
        passing = Passing(list(executions), {}, {}, {})
        gates = {e.id: gate for e in executions if (gate := specs.of(e).gate(e)) is not None}
        if not gates:
            return passing
        keys = set(gates.values())
        unlocked = {key for key in keys if not is_job_gate(key)} if are_locked else keys
        if unlocked:
            await self.lock_gates(link, specs.tenant, unlocked)
        rooms = passing.rooms = await self.look_into(link, specs.tenant, keys)
        # What is being fired is new, or it would not come here.
        minding = [
            e
            for e in executions
            if e.gate is None and e.id in gates and (not are_locked or e.unique_key is not None)
        ]
        passing.answer(await self._known(link, specs, minding, repeat=repeat))
        skipped: list[NewExecution] = []
        taken: set[tuple[str, str]] = set()
        for execution in passing.executions:
            gate, key = gates.get(execution.id), (execution.job, execution.unique_key or "")
            if gate is None or key in taken:
                continue  # with the second of one key, nothing will be created
            entry = await self._entry(link, specs, execution, gate, rooms)
            if entry is Entry.SKIP:
                skipped.append(execution)
                continue
            passing.entries[execution.id] = entry
            if execution.unique_key is not None:
                taken.add(key)
        if skipped:
            await self._skip(link, specs, skipped)
            passing.answer({e.id: Enqueued(e.id, skipped=True) for e in skipped})
        return passing

    async def _entry(
        self,
        link: Link,
        specs: Specs,
        execution: NewExecution,
        gate: str,
        rooms: dict[str, Room],
    ) -> Entry:
        rule = specs.of(execution).rule(execution)
        if rule is Overlap.REPLACE and _is_asked(execution, rooms[gate]):
            rooms[gate] = await self._replace(link, specs, execution, gate, rooms[gate])
        entry = _enter(execution, rule, rooms[gate])
        if entry is Entry.SKIP:
            if not specs.is_fresh:
                raise Outdated
            if execution.schedule is None:
                await self._check_unfinished(link, specs, execution)
                raise await self._in_the_way(link, specs, execution, gate)
        return entry

    async def _check_unfinished(self, link: Link, specs: Specs, execution: NewExecution) -> None:
        """Raise Repeated if it has ended, before another execution is named or cancelled for it.
        A tick is new.
        """
        if execution.schedule is None and await self.finished(link, specs, [execution]):
            raise Repeated

    async def announce(self, specs: Specs) -> None:
        """Wake who waits for what is new, and stop the runs that it replaces. After the commit."""
        self.notifier.touch(specs.tenant, specs.queues)
        self.say_filled()
        if self.cancelled:
            await self.after_commit(specs.tenant)

    async def take(self, link: Link, specs: Specs, passing: Passing, made: Sequence[Row]) -> None:
        """Count the slots of those that were created and let in."""
        slots = Counter[str](row["taken"] for row in made if row["taken"] is not None)
        await self.take_slots(link, specs.tenant, slots)
        wanted = {key for key, room in passing.rooms.items() if room.has_room_for_waiting}
        if len(made) < len(passing.executions):
            # Not created, because its unique key is held: the slot is for who waits.
            wanted |= {gate for e in passing.executions if (gate := specs.of(e).gate(e))}
        await self.admit_gates(link, specs.tenant, wanted)

    async def _known(
        self, link: Link, specs: Specs, executions: Sequence[NewExecution], *, repeat: bool
    ) -> dict[UUID, Enqueued]:
        """Those that were sent before, which are not in their own way, and those whose unique key
        is held.
        """
        if not executions:
            return {}
        known = await self.existing(link, specs, executions)
        if repeat:
            known |= {id: Enqueued(id) for id in await self.finished(link, specs, executions)}
        return known

    # Who is there already: the same id, or the holder of the same unique key.
    EXISTING = """
    SELECT u.id, coalesce(same.id, holder.id) AS found
      FROM unnest($2::uuid[], $3::int[], $4::text[]) u(id, job, unique_key)
      LEFT JOIN daybell.live same ON same.tenant = $1 AND same.id = u.id
      LEFT JOIN daybell.live holder ON holder.job = u.job AND holder.unique_key = u.unique_key
     WHERE same.id IS NOT NULL OR holder.id IS NOT NULL
    """

    async def existing(
        self, link: Link, specs: Specs, executions: Sequence[NewExecution]
    ) -> dict[UUID, Enqueued]:
        """What to answer for those that need not be created."""
        rows = await link.fetch(
            self.EXISTING,
            specs.tenant,
            [execution.id for execution in executions],
            [specs.of(execution).job.key for execution in executions],
            [execution.unique_key for execution in executions],
        )
        return {row["id"]: Enqueued(row["found"], row["found"] == row["id"]) for row in rows}

    # For a repetition. The rows are in `live` by now, or their gate is locked: either waited for a
    # twin still being committed; so an id that was created before and ended is found for certain.
    FINISHED = f"""
    SELECT h.id FROM unnest($2::uuid[]) u(id), {IN_HISTORY}
    UNION ALL
    SELECT id FROM daybell.dead WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT id FROM daybell.repeated WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    """

    async def finished(
        self, link: Link, specs: Specs, executions: Iterable[NewExecution]
    ) -> set[UUID]:
        """Which of these have been created before, and have ended."""
        sent = [execution.id for execution in executions]
        return await ids_of(link, self.FINISHED, specs.tenant, sent)

    # Not those whose time has not come: they are not before anybody.
    AT_GATE = """
    SELECT v.id FROM daybell.live v
     WHERE v.job = $1 AND v.gate = $2 AND NOT EXISTS (
             SELECT FROM daybell.parked p WHERE p.tenant = v.tenant AND p.gate = v.gate
                AND p.priority = v.priority AND p.run_at = v.run_at AND p.id = v.id
                AND p.run_at > (SELECT daybell.now()))
     ORDER BY v.id
    """

    async def _replace(
        self, link: Link, specs: Specs, execution: NewExecution, gate: str, room: Room
    ) -> Room:
        """Cancel whatever is before this one."""
        if room.holders + room.waiting == 0:
            return room
        if not specs.is_fresh:
            raise Outdated
        await self._check_unfinished(link, specs, execution)
        rows = await link.fetch(self.AT_GATE, specs.of(execution).job.key, gate)
        others = [row["id"] for row in rows]
        live, pending = await self.end_pending(link, specs.tenant, others, State.CANCELLED)
        if live - pending:
            runs = await self.ask_to_stop(link, specs.tenant, live - pending)
            self.cancelled |= {(specs.tenant, run): None for run in runs}
            specs.news.add(WORKERS)
        return (await self.look_into(link, specs.tenant, [gate]))[gate]

    async def _in_the_way(
        self, link: Link, specs: Specs, execution: NewExecution, gate: str
    ) -> ExecutionInTheWay:
        spec = specs.of(execution)
        row = await link.fetchrow(f"{self.AT_GATE} LIMIT 1", spec.job.key, gate)
        other: UUID | None = None if row is None else row["id"]
        return in_the_way(execution.job, spec.rule(execution), other)

    SKIP_NEW = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    u AS (
      SELECT u.*, greatest(t.now, coalesce(u.at, t.now + u.delay, t.now)) AS run_at
        FROM t, unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::smallint[], $7::text[],
                       $8::text[], $9::int[], $10::float8[], $11::float8[], $12::uuid[],
                       $13::uuid[], $14::text[], $15::float8[], $16::float8[], $17::float8[])
             u(id, job, version, lane, priority, args, unique_key, retries, timeout, scheduled_for,
               schedule, parent, gate, delay, at, expires_in))
    INSERT INTO daybell.history (tenant, id, job, version, lane, priority, args, unique_key,
           retries, timeout, scheduled_for, schedule, parent, gate, attempt, failures, crashes,
           state, reason, created_at, run_at, expires_at, finished_at)
    SELECT $1, id, job, version, lane, priority, args, unique_key, retries, timeout, scheduled_for,
           schedule, parent, gate, 1, 0, 0, $18, $19, (SELECT now FROM t), run_at,
           run_at + expires_in, (SELECT now FROM t)
      FROM u
    """

    async def _skip(self, link: Link, specs: Specs, executions: Sequence[NewExecution]) -> None:
        """Record that these did not run."""
        rows = [_skipped(execution, specs.of(execution)) for execution in executions]
        columns = [list(column) for column in zip(*rows, strict=True)]
        state = STATE_CODES[State.SKIPPED]
        await link.execute(self.SKIP_NEW, specs.tenant, *columns, state, OVERLAP)


def _skipped(execution: NewExecution, spec: Spec) -> tuple[object, ...]:
    """An execution as SKIP_NEW takes it."""
    e, job = execution, spec.job
    return (
        e.id,
        job.key,
        job.version,
        spec.lane,
        job.priority if e.priority is None else e.priority,
        e.args,
        e.unique_key,
        e.retries,
        e.timeout,
        e.scheduled_for,
        e.schedule,
        e.parent,
        spec.gate(e),
        e.delay,
        e.at,
        job.expires if e.expires_in is None else e.expires_in,
    )


def _is_asked(execution: NewExecution, room: Room) -> bool:
    """Whether its job's rule is asked now: for a tick at once, for others when they are due."""
    if execution.force or execution.gate is not None:
        return False
    return execution.schedule is not None or _is_due(execution, room)


def _is_due(execution: NewExecution, room: Room) -> bool:
    return not execution.delay and (execution.at is None or execution.at <= room.now)


def _enter(execution: NewExecution, rule: Overlap, room: Room) -> Entry:
    """Decide about one, and note it in the room."""
    if execution.force:
        entry = Entry.IN
    elif _is_asked(execution, room):
        entry = enter(rule, inside=room.holders, waiting=room.waiting)
    elif not _is_due(execution, room):
        return Entry.WAIT
    else:
        entry = Entry.IN if room.is_open else Entry.WAIT
    if entry is Entry.IN:
        room.holders += 1
    elif entry is Entry.WAIT:
        room.waiting += 1
    return entry
