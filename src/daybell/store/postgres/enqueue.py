"""Creation of executions: enqueue, admission at the gates with the overlap rules, and bulk load by
COPY.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec
from msgspec.structs import replace

from daybell.core import checks
from daybell.core.access import NewAuditEntry
from daybell.core.checks import overlap_error
from daybell.core.collapse import SINGLETON
from daybell.core.execution import Enqueued, NewExecution, State, columns_of, distinct_in
from daybell.core.schedule import (
    DEPENDENCIES,
    OVERLAP,
    GateDecision,
    Overlap,
    decide_entry,
    is_job_gate,
)
from daybell.core.units import Instant
from daybell.core.worker import NewWorker
from daybell.errors import DuplicateKey, ExecutionInTheWay, Unavailable, UsageError
from daybell.store.codec import STATE_CODES
from daybell.store.postgres.collapse import cancel_others, collapse
from daybell.store.postgres.connection import Row, entry_columns, record_entries
from daybell.store.postgres.context import AfterCommit, StoreContext, Tx
from daybell.store.postgres.flow.shares import hold_leaves, open_leaves
from daybell.store.postgres.gates import (
    GateRoom,
    admit_gates,
    charge,
    lock_gates,
    read_gate_rooms,
    read_quotas,
    take_slots,
)
from daybell.store.postgres.names import IN_HISTORY, IN_LEASE, JobKey, Outdated, Repeated, Specs
from daybell.store.postgres.progress import (
    after_commit,
    fetch_ids,
    notify_after_commit,
)
from daybell.store.timeouts import Pace, pace_of

# At the gates: which new executions take a slot, which wait, and which do not run.
#
# Decided under the locks of the gates, by `core.schedule.decide_entry`, one execution after the
# other. A rule that may be out of date is good enough to admit an execution, because the row is
# written only if the job still has that version; the rule is read again before it refuses one.


class GateAnswers(msgspec.Struct):
    """The decisions about a batch at the gates."""

    executions: list[NewExecution]  # to be created
    gates: dict[UUID, str]  # of those that have one
    entries: dict[UUID, GateDecision]  # how, for those with a gate
    answers: dict[UUID, Enqueued]  # for the others
    rooms: dict[str, GateRoom]  # behind the gates, as these leave them

    def answer(self, answers: Mapping[UUID, Enqueued]) -> None:
        """Add answers for executions that need not be created any more."""
        if not answers:
            return
        self.answers = {**self.answers, **answers}
        self.executions = [e for e in self.executions if e.id not in answers]

    @property
    def at_job_gate(self) -> list[NewExecution]:
        """Return the executions that the overlap rule of their job applies to."""
        return [e for e in self.executions if e.gate is None and e.id in self.gates]


async def _pass_requests(
    tx: Tx, specs: Specs, executions: Sequence[NewExecution], *, repeat: bool
) -> GateAnswers:
    """Decide about requests that have a gate, under the locks of the gates. A request that exists
    is answered first, so that it never blocks itself. Raises ExecutionInTheWay.
    """
    passing = _approach(specs, executions)
    gates = set(passing.gates.values())
    if gates:
        await lock_gates(tx, specs.tenant, gates)
    if any(specs.of(e).collapses(e) for e in executions):
        await _collapse(tx, specs, passing, repeat=repeat)
    if gates:
        passing.rooms = await read_gate_rooms(tx, specs.tenant, gates)
        passing.answer(await _known(tx, specs, passing.at_job_gate, repeat=repeat))
        await _decide_entries(tx, specs, passing)
    return passing


async def _collapse(tx: Tx, specs: Specs, passing: GateAnswers, *, repeat: bool) -> None:
    """Decide about requests whose job has a rule for those of a key: see `core.collapse`."""
    if repeat:
        keyed = [e for e in passing.executions if specs.of(e).collapses(e)]
        passing.answer(await _known(tx, specs, keyed, repeat=True))
    found = await collapse(tx, specs, passing.executions)
    if found.cancelled:
        await _end_at_once(tx, specs, found.cancelled, State.CANCELLED, SINGLETON)
        found.answers |= {e.id: Enqueued(e.id) for e in found.cancelled}
    passing.answers |= found.answers
    passing.executions = found.executions


async def _pass_ticks(tx: Tx, specs: Specs, executions: Sequence[NewExecution]) -> GateAnswers:
    """Decide about ticks that have a gate. The caller has locked the gates of their jobs, and fires
    no tick twice, so that only a unique key can exist.
    """
    passing = _approach(specs, executions)
    if passing.gates:
        gates = set(passing.gates.values())
        if unlocked := {gate for gate in gates if not is_job_gate(gate)}:
            await lock_gates(tx, specs.tenant, unlocked)
        passing.rooms = await read_gate_rooms(tx, specs.tenant, gates)
        keyed = [e for e in passing.at_job_gate if e.unique_key is not None]
        passing.answer(await _known(tx, specs, keyed, repeat=False))
        await _decide_entries(tx, specs, passing)
    return passing


def _approach(specs: Specs, executions: Sequence[NewExecution]) -> GateAnswers:
    """Return executions with their gates, before any decision."""
    gates = {e.id: gate for e in executions if (gate := specs.of(e).gate(e)) is not None}
    return GateAnswers(list(executions), gates, {}, {}, {})


async def _decide_entries(tx: Tx, specs: Specs, passing: GateAnswers) -> None:
    """Decide about each execution that has a gate, one after the other."""
    skipped: list[NewExecution] = []
    taken: set[tuple[str, str]] = set()
    for execution in passing.executions:
        gate, key = passing.gates.get(execution.id), (execution.job, execution.unique_key or "")
        if gate is None or key in taken:
            continue  # with the second of one key, nothing will be created
        entry = await _decide_entry(tx, specs, execution, gate, passing.rooms)
        if entry is GateDecision.SKIP:
            skipped.append(execution)
            continue
        passing.entries[execution.id] = entry
        if execution.unique_key is not None:
            taken.add(key)
    if skipped:
        await _end_at_once(tx, specs, skipped, State.SKIPPED, OVERLAP)
        passing.answer({e.id: Enqueued(e.id, skipped=True) for e in skipped})


async def _decide_entry(
    tx: Tx,
    specs: Specs,
    execution: NewExecution,
    gate: str,
    rooms: dict[str, GateRoom],
) -> GateDecision:
    """Decide about one execution, and note it in its room. A tick may be skipped; a request that
    would be is refused.
    """
    rule = specs.of(execution).rule(execution)
    if rule is Overlap.REPLACE and _is_asked(execution, rooms[gate]):
        rooms[gate] = await _replace(tx, specs, execution, gate, rooms[gate])
    entry = _enter(execution, rule, rooms[gate])
    if entry is GateDecision.SKIP:
        if not specs.is_fresh:
            raise Outdated
        if execution.schedule is None:
            await _check_unfinished(tx, specs, execution)
            raise await _in_the_way(tx, specs, execution, gate)
    return entry


async def _check_unfinished(tx: Tx, specs: Specs, execution: NewExecution) -> None:
    """Raise Repeated if the execution has ended, before another one is named or cancelled for it. A
    tick is new.
    """
    if execution.schedule is None and await read_finished(tx, specs, [execution]):
        raise Repeated


async def notify_enqueued(pg: StoreContext, after: AfterCommit, specs: Specs) -> None:
    """Wake the workers of these queues, and stop the runs that were replaced. After the commit."""
    pg.notifier.touch(specs.tenant, specs.queues)
    if after.stop_runs:
        await after_commit(pg, after, specs.tenant)
    else:
        notify_after_commit(pg, after)


async def take_inserted(tx: Tx, specs: Specs, passing: GateAnswers, made: Sequence[Row]) -> None:
    """Count the slots of executions that were created and admitted."""
    slots = Counter[str](row["taken"] for row in made if row["taken"] is not None)
    await take_slots(tx, specs.tenant, slots)
    wanted = {key for key, room in passing.rooms.items() if room.has_room_for_waiting}
    if len(made) < len(passing.executions):
        # Not created, because its unique key is held: a waiting execution gets the slot.
        wanted |= {passing.gates[e.id] for e in passing.executions if e.id in passing.gates}
    await admit_gates(tx, specs.tenant, wanted)


async def _known(
    tx: Tx, specs: Specs, executions: Sequence[NewExecution], *, repeat: bool
) -> dict[UUID, Enqueued]:
    """Return executions that already exist, and those with a unique key that is held."""
    if not executions:
        return {}
    known = await read_existing(tx, specs, executions)
    if repeat:
        known |= {id: Enqueued(id) for id in await read_finished(tx, specs, executions)}
    return known


# Executions that exist already: with the same id, or as holder of the same unique key.
EXISTING: Final = """
    SELECT u.id, coalesce(same.id, holder.id) AS found
      FROM unnest($2::uuid[], $3::int[], $4::text[]) u(id, job, unique_key)
      LEFT JOIN daybell.live same ON same.tenant = $1 AND same.id = u.id
      LEFT JOIN daybell.live holder ON holder.job = u.job AND holder.unique_key = u.unique_key
     WHERE same.id IS NOT NULL OR holder.id IS NOT NULL
    """


async def read_existing(
    tx: Tx, specs: Specs, executions: Sequence[NewExecution]
) -> dict[UUID, Enqueued]:
    """Return the answers for executions that need not be created."""
    rows = await tx.fetch(
        EXISTING,
        specs.tenant,
        [execution.id for execution in executions],
        [specs.of(execution).job.key for execution in executions],
        [execution.unique_key for execution in executions],
    )
    return {row["id"]: Enqueued(row["found"], row["found"] == row["id"]) for row in rows}


# For a repetition. The rows are in `live` by now, or their gate is locked: either waited for a
# twin still being committed; so an id that was created before and ended is found for certain.
FINISHED: Final = f"""
    SELECT h.id FROM unnest($2::uuid[]) u(id), {IN_HISTORY}
    UNION ALL
    SELECT id FROM daybell.dead WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT id FROM daybell.repeated WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    """


async def read_finished(tx: Tx, specs: Specs, executions: Iterable[NewExecution]) -> set[UUID]:
    """Return the ids that have been created before, and have ended."""
    sent = [execution.id for execution in executions]
    return await fetch_ids(tx, FINISHED, specs.tenant, sent)


# Without executions that are not due yet: they are not before any other execution.
AT_GATE: Final = """
    SELECT v.id FROM daybell.live v
     WHERE v.job = $1 AND v.gate = $2 AND NOT EXISTS (
             SELECT FROM daybell.parked p WHERE p.tenant = v.tenant AND p.gate = v.gate
                AND p.priority = v.priority AND p.run_at = v.run_at AND p.id = v.id
                AND p.run_at > (SELECT daybell.now()))
     ORDER BY v.id
    """


async def _replace(
    tx: Tx, specs: Specs, execution: NewExecution, gate: str, room: GateRoom
) -> GateRoom:
    """Cancel all executions that are before this one."""
    if room.holders + room.waiting == 0:
        return room
    if not specs.is_fresh:
        raise Outdated
    await _check_unfinished(tx, specs, execution)
    rows = await tx.fetch(AT_GATE, specs.of(execution).job.key, gate)
    await cancel_others(tx, specs, [row["id"] for row in rows])
    return (await read_gate_rooms(tx, specs.tenant, [gate]))[gate]


async def _in_the_way(
    tx: Tx, specs: Specs, execution: NewExecution, gate: str
) -> ExecutionInTheWay:
    spec = specs.of(execution)
    row = await tx.fetchrow(f"{AT_GATE} LIMIT 1", spec.job.key, gate)
    other: UUID | None = None if row is None else row["id"]
    return overlap_error(execution.job, spec.rule(execution), other)


SKIP_NEW: Final = """
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


async def _end_at_once(
    tx: Tx, specs: Specs, executions: Sequence[NewExecution], state: State, reason: str
) -> None:
    """Record that these executions did not run."""
    rows = [_skipped(execution, specs.of(execution)) for execution in executions]
    columns = [list(column) for column in zip(*rows, strict=True)]
    await tx.execute(SKIP_NEW, specs.tenant, *columns, STATE_CODES[state], reason)


def _skipped(execution: NewExecution, spec: JobKey) -> tuple[object, ...]:
    """Return an execution as SKIP_NEW takes it."""
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


def _is_asked(execution: NewExecution, room: GateRoom) -> bool:
    """Return True if the rule of its job applies now: for a tick at once, for others when due."""
    if execution.force or execution.gate is not None:
        return False
    return execution.schedule is not None or _is_due(execution, room)


def _is_due(execution: NewExecution, room: GateRoom) -> bool:
    return not execution.delay and (execution.at is None or execution.at <= room.now)


def _enter(execution: NewExecution, rule: Overlap, room: GateRoom) -> GateDecision:
    """Decide about one execution, and note it in the room."""
    if execution.force:
        entry = GateDecision.IN
    elif _is_asked(execution, room):
        entry = decide_entry(rule, inside=room.holders, waiting=room.waiting)
    elif not _is_due(execution, room):
        return GateDecision.WAIT
    else:
        entry = GateDecision.IN if room.is_open else GateDecision.WAIT
    if entry is GateDecision.IN:
        room.holders += 1
    elif entry is GateDecision.WAIT:
        room.waiting += 1
    return entry


STALE_TRIES: Final = 5
MARKS_EXIST: Final = "(pg_sequence_last_value('daybell.repeats') IS NOT NULL)"


async def enqueue(
    pg: StoreContext,
    tenant: str,
    executions: Sequence[NewExecution],
    *,
    repeat: bool = False,
    entries: Sequence[NewAuditEntry] = (),
) -> list[Enqueued]:
    checks.check_batch(executions)
    for entry in entries:
        checks.check_entry(entry)
    if not executions:
        async with pg.db.link() as link:
            await pg.names.tenant(link, tenant)
        return []
    with pg.db.at_pace(pace_of(len(executions))):
        return await pg.db.settled(lambda: _enqueue(pg, tenant, executions, entries, repeat))


async def _enqueue(
    pg: StoreContext,
    tenant: str,
    executions: Sequence[NewExecution],
    entries: Sequence[NewAuditEntry],
    repeat: bool,
) -> list[Enqueued]:
    specs = await resolve(pg, tenant, executions)
    is_limited = (await read_quotas(pg, specs.tenant)).limits_enqueues
    if not repeat:
        try:
            if not is_limited and await _enqueue_alike(pg, specs, executions, entries):
                return list(map(Enqueued, columns_of(executions)[0]))
            return await _enqueue_any(pg, tenant, specs, executions, entries, is_limited)
        except Repeated:
            pass
        except UsageError as error:
            if not isinstance(error.__cause__, asyncpg.UniqueViolationError):
                raise
        # Some ids exist, and may have ended: search the history, as for a repeat.
        specs = await resolve(pg, tenant, executions)
    return await _enqueue_any(pg, tenant, specs, executions, entries, is_limited, repeat=True)


async def _enqueue_any(
    pg: StoreContext,
    tenant: str,
    specs: Specs,
    executions: Sequence[NewExecution],
    entries: Sequence[NewAuditEntry],
    is_limited: bool,
    *,
    repeat: bool = False,
) -> list[Enqueued]:
    """Create executions of any kind, in one transaction."""
    executions = list(executions)  # read several times
    for _ in range(STALE_TRIES):
        try:
            await open_leaves(pg, specs, executions)
            async with pg.transaction() as tx:
                answers = await enqueue_on(tx, specs, executions, repeat=repeat)
                skipped = {answer.id for answer in answers if answer.skipped}
                if not (specs.made or specs.moved or skipped):
                    pg.db.skip_entry()  # gates were locked, perhaps, and nothing else
                if repeat and (marked := specs.made | skipped):
                    await tx.execute(MARK_REPEATED, specs.tenant, list(marked))
                if is_limited:
                    await charge(tx, specs.tenant, len(specs.made))
                if entries:
                    await record_entries(tx, specs.tenant, entries)
            await notify_enqueued(pg, tx.after, specs)
            return answers
        except Outdated:
            specs = await resolve(pg, tenant, executions, fresh=True)
    raise Unavailable("these jobs change faster than they can be enqueued; try again")


async def resolve(
    pg: StoreContext, tenant: str, executions: Iterable[NewExecution], *, fresh: bool = False
) -> Specs:
    """Look up the named jobs and lanes while no connection is held. Raises JobNotFound."""
    wanted = {(one.job, one.queue) for one in distinct_in(executions)}
    known = None if fresh else pg.names.known(tenant, wanted)
    key, found = known or await pg.names.look_up(tenant, wanted)
    specs = Specs(
        key, known is None, {one: JobKey(key, job, lane) for one, (job, lane) in found.items()}
    )
    if any(job.beside is not None for job, _ in found.values()):
        specs.near.update(await _find_near(pg, tenant, specs, executions))
    return specs


# Workers that run these executions. No index leads to them: there are few leases.
HOSTS: Final = f"""
    SELECT v.id AS parent, w.id, w.name, w.queues, w.kinds, w.labels, w.resources, w.tasks
      FROM daybell.lease l, daybell.worker w, {IN_LEASE}
     WHERE l.tenant = $1 AND x.id = ANY($2::uuid[]) AND w.id = l.worker AND w.tenant IN (0, $1)
    """


async def _find_near(
    pg: StoreContext, tenant: str, specs: Specs, executions: Iterable[NewExecution]
) -> dict[tuple[str, str | None, UUID | None], JobKey]:
    """Return the jobs and lanes of executions that prefer the worker of their parent."""
    wanted = {
        (one.job, one.queue, one.parent)
        for one in distinct_in(executions)
        if one.parent is not None and specs.of(one).job.beside is not None
    }
    if not wanted:
        return {}
    async with pg.db.apart() as link:
        rows = await link.fetch(HOSTS, specs.tenant, list({parent for *_, parent in wanted}))
    hosts = {row["parent"]: _host_of(row) for row in rows}
    lanes: dict[tuple[str, str | None, UUID | None], tuple[str, str]] = {}
    for name, queue, parent in wanted:
        job, host = specs.found[name, queue].job, hosts.get(parent)
        if host is not None and job.beside is not None:
            of = queue or job.queue
            needs = host.needs_near(job.needs, queue=of, task=job.beside)
            lanes[name, queue, parent] = of, needs
    await pg.names.prepare_lanes(tenant, set(lanes.values()))
    return {
        one: replace(specs.found[one[0], one[1]], lane=number)
        for one, lane in lanes.items()
        if (number := pg.names.known_lane(specs.tenant, lane)) is not None
    }


def _host_of(row: Row) -> NewWorker:
    tasks = row["tasks"]
    return NewWorker(
        id=row["id"],
        name=row["name"],
        queues=tuple(row["queues"]),
        kinds=tuple(row["kinds"]),
        labels=msgspec.json.decode(row["labels"], type=dict[str, str]),
        resources=msgspec.json.decode(row["resources"], type=dict[str, float]),
        tasks=None if tasks is None else msgspec.json.decode(tasks, type=dict[str, str]),
    )


# For first requests that arrive after this repeat: see `daybell.refuse_repeated`. A repeat that
# meets these rows has found them in FINISHED.
MARK_REPEATED: Final = """
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
ALIKE: Final = f"""
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
# The same for one execution: its row is the last.
ALIKE_ONE: Final = (
    ALIKE[: ALIKE.rindex("WHERE CASE")]
    + f"WHERE NOT {MARKS_EXIST} OR daybell.refuse_repeated($1, $6, 1)"
)

# The same with entries of the audit log, if anything is created: one statement is one round
# trip, where a transaction would take four. The entries come last, since they lock the head of
# the tenant's chain.
ALIKE_RECORDED: Final = (
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
    pg: StoreContext,
    specs: Specs,
    executions: Sequence[NewExecution],
    entries: Sequence[NewAuditEntry],
) -> bool:
    """Create executions if they are alike. Return False if none was: use the general way."""
    first = executions[0]
    spec = specs.of(first)
    if spec.job.expires is not None:
        return False
    if not all(_is_like(one, first) for one in distinct_in(executions)):
        return False
    if spec.rule(first) is not Overlap.ALLOW or spec.collapses(first) or spec.job.is_shared:
        return False
    values = (
        spec.tenant,
        spec.job.key,
        spec.job.version,
        spec.lane,
        spec.job.priority if first.priority is None else first.priority,
        *columns_of(executions),
    )
    async with pg.db.link() as link:
        if entries:
            made = await link.fetchval(ALIKE_RECORDED, *values, *entry_columns(entries))
        else:
            statement = ALIKE_ONE if len(executions) == 1 else ALIKE
            made = int((await link.execute(statement, *values)).rpartition(" ")[2])
    if made < len(executions):
        return False
    pg.notifier.touch(specs.tenant, specs.queues)
    return True


INSERT_TRACES: Final = """
    INSERT INTO daybell.trace (created_at, tenant, id, context)
    SELECT daybell.now(), $1, u.id, u.context FROM unnest($2::uuid[], $3::text[]) u(id, context)
    ON CONFLICT DO NOTHING
    """
READ_TRACES: Final = """
    SELECT t.id, t.context FROM unnest($2::uuid[]) u(id),
           LATERAL (SELECT * FROM daybell.trace t WHERE t.tenant = $1 AND t.id = u.id LIMIT 1) t
    """


async def read_traces(pg: StoreContext, tenant: str, ids: Sequence[UUID]) -> dict[UUID, str]:
    checks.check_limit(len(ids))
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        rows = await link.fetch(READ_TRACES, key, list(ids))
    return {row["id"]: row["context"] for row in rows}


async def enqueue_on(
    tx: Tx,
    specs: Specs,
    executions: Sequence[NewExecution],
    *,
    repeat: bool = False,
    are_locked: bool = False,
) -> list[Enqueued]:
    """Enqueue any executions within the caller's transaction. With `are_locked` they are ticks, and
    the caller has locked the gates of their jobs. `repeat` searches the history for each id.

    Raises Outdated if the answer of `resolve` is not true any more; then the caller has to roll
    back and begin again. Without `repeat`, an id that a repeat has created and that has ended
    raises Repeated or a unique violation.
    """
    answers: dict[UUID, Enqueued] = {}
    await hold_leaves(tx, specs, executions)
    for some in _in_turns(specs, executions):
        if are_locked:
            passing = await _pass_ticks(tx, specs, some)
        else:
            passing = await _pass_requests(tx, specs, some, repeat=repeat)
        if repeat:
            made = await _insert_again(tx, specs, passing)
        else:
            made = await _insert(tx, specs, passing, INSERT_FIRST)
        answers |= passing.answers | await _answer_made(tx, specs, passing, made)
        missing = [execution for execution in some if execution.id not in answers]
        if missing:
            answers |= await read_existing(tx, specs, missing)
            if any(execution.id not in answers for execution in missing):
                raise Outdated
    traced = [execution for execution in executions if execution.trace is not None]
    if traced:
        await tx.execute(
            INSERT_TRACES, specs.tenant, [one.id for one in traced], [one.trace for one in traced]
        )
    return [answers[execution.id] for execution in executions]


INSERT: Final = """
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
INSERT_FIRST: Final = (
    f"""{INSERT} WHERE (SELECT daybell.refuse_repeated($1, $2, count(*)) FROM l)"""
)


async def _insert(tx: Tx, specs: Specs, passing: GateAnswers, statement: str) -> Sequence[Row]:
    """Insert executions that passed the gates; return the rows that were created."""
    executions = passing.executions
    if not executions:
        return []
    rows = [_insert_row(e, specs, passing.entries.get(e.id)) for e in executions]
    # Unused columns are not sent: `unnest` fills a missing list with NULLs.
    columns = [None if _is_unused(column) else column for column in zip(*rows, strict=True)]
    # An execution waits for dependencies with a slot of its gate, if it was admitted there.
    inside = [
        e.id
        for e in executions
        if e.wait_for_dependencies
        and specs.of(e).wait_for_dependencies(e)
        and passing.entries.get(e.id) is not GateDecision.WAIT
    ]
    return await tx.fetch(statement, specs.tenant, *columns, inside)


async def _insert_again(tx: Tx, specs: Specs, passing: GateAnswers) -> Sequence[Row]:
    """Insert executions that may have been created before; return the rows that were created.

    An id is free if its execution has ended, so the history is searched while the rows are
    there: until the commit, no other transaction can create them. Those that have ended are
    left out, and the others are inserted again under the same rule: one that existed before
    may have ended meanwhile. Each round leaves out at least one.
    """
    while True:
        savepoint = tx.transaction()
        await savepoint.start()
        made = await _insert(tx, specs, passing, INSERT)
        # Of all of them: one that ended may not be created because its key has a new holder.
        finished = await read_finished(tx, specs, passing.executions)
        if not finished:
            await savepoint.commit()
            return made
        await savepoint.rollback()
        passing.answer({id: Enqueued(id) for id in finished})


async def _answer_made(
    tx: Tx, specs: Specs, passing: GateAnswers, made: Sequence[Row]
) -> dict[UUID, Enqueued]:
    """Take the slots of executions that were created, and return their answers."""
    specs.made.update(row["id"] for row in made)
    if passing.entries and passing.executions:
        await take_inserted(tx, specs, passing, made)
    minded = {e.id for e in passing.executions if e.gate is None and e.id in passing.entries}
    return {id: Enqueued(id, at_gate=id in minded) for id in (row["id"] for row in made)}


def _in_turns(specs: Specs, executions: Sequence[NewExecution]) -> Iterator[Sequence[NewExecution]]:
    """Yield all at once, unless one replaces another of them, which has to be there first."""
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


def _insert_row(
    execution: NewExecution, specs: Specs, entry: GateDecision | None
) -> tuple[object, ...]:
    """Return an execution as INSERT takes it."""
    e, spec = execution, specs.of(execution)
    job = spec.job
    waits_for = None
    if spec.wait_for_dependencies(e):
        waits_for = DEPENDENCIES
    elif entry is GateDecision.WAIT:
        waits_for = OVERLAP if e.gate is None else "gate"
    return (
        e.id,
        job.key,
        job.version,
        specs.lane(e) if waits_for is None else spec.lane,
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


# The fast lane in: very many executions by COPY.

COPY_ROWS: Final = 5_000
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
LOADED_BEFORE: Final = (
    "some of these executions exist already: an earlier load of them was committed"
)
AGENDA_COLUMNS: Final = ("run_at", "lane", "priority", "id")


async def load(pg: StoreContext, tenant: str, executions: Iterable[NewExecution]) -> int:
    with pg.db.at_pace(Pace.LOAD):
        return await _load(pg, tenant, executions)


async def _load(pg: StoreContext, tenant: str, executions: Iterable[NewExecution]) -> int:
    source = iter(executions)
    loaded, heads = 0, list[NewExecution]()
    chunk = list(islice(source, COPY_ROWS))
    specs = await resolve(pg, tenant, chunk)
    await open_leaves(pg, specs, chunk)
    is_limited = (await read_quotas(pg, specs.tenant)).limits_enqueues
    try:
        async with pg.transaction() as tx:
            while chunk:
                for position, execution in enumerate(chunk, loaded):
                    rule = specs.of(execution).rule(execution)
                    rules = specs.of(execution).job.collapse
                    checks.check_loadable(execution, position, overlap=rule, collapse=rules)
                await hold_leaves(tx, specs, chunk)
                await _copy(tx, specs, chunk)
                loaded += len(chunk)
                heads.append(chunk[0])
                chunk = list(islice(source, COPY_ROWS))
                if not specs.cover(chunk):
                    specs = await resolve(pg, tenant, chunk)
                await open_leaves(pg, specs, chunk, is_held=True)
            # A load is all or nothing, so the first of each chunk stands for the others.
            if await read_finished(tx, specs, heads):
                raise DuplicateKey(LOADED_BEFORE)
            if is_limited:
                await charge(tx, specs.tenant, loaded)
    except UsageError as error:
        if isinstance(error.__cause__, asyncpg.UniqueViolationError):
            raise DuplicateKey(LOADED_BEFORE) from error
        raise
    pg.notifier.touch(specs.tenant, specs.queues)
    return loaded


# Locked, so that no new version comes in while the rows are on their way.
LOCK_VERSIONS: Final = """
    SELECT daybell.now() AS now, count(*) AS current
      FROM (SELECT FROM daybell.job j JOIN unnest($1::int[], $2::int[]) u(key, version)
                ON j.key = u.key AND j.version = u.version AND j.deleted_at IS NULL
               FOR SHARE OF j) j
    """


async def _copy(tx: Tx, specs: Specs, executions: list[NewExecution]) -> None:
    jobs = {spec.job.key: spec.job.version for spec in specs.found.values()}
    locked = await tx.fetchrow(LOCK_VERSIONS, list(jobs), list(jobs.values()))
    assert locked is not None
    if locked["current"] != len(jobs):
        raise Unavailable("a job was changed while its executions were loaded; try again")
    rows = [_load_row(execution, specs, locked["now"]) for execution in executions]
    await tx.copy_records_to_table(
        "live", schema_name="daybell", columns=LOAD_COLUMNS, records=rows
    )
    await tx.copy_records_to_table(
        "agenda",
        schema_name="daybell",
        columns=AGENDA_COLUMNS,
        records=((row[8], row[4], row[5], row[1]) for row in rows),
    )


def _load_row(execution: NewExecution, specs: Specs, now: Instant) -> tuple[object, ...]:
    """Return an execution as LOAD_COLUMNS name it."""
    e, spec = execution, specs.of(execution)
    job = spec.job
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
        specs.lane(e),
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
