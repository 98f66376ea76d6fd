"""Steps of durable functions, events, and logs of tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec.structs import asdict, replace

from daybell.core import checks
from daybell.core.checks import ATTEMPT_MAX, check_limit
from daybell.core.event import (
    Event,
    Facts,
    NewEvent,
    NewStep,
    NodeWait,
    Published,
    Step,
    StepKind,
    check_cursor,
    check_events,
    check_steps,
    close_wait,
    places,
    record_step,
    result_of,
    wait_key,
)
from daybell.core.execution import LAST, LogPart, NewExecution, NewLogPart, State
from daybell.core.limits import INSTANT_MAX, PAGE_ITEMS_MAX
from daybell.core.logs import FoundPart, LogPlace, cut_parts
from daybell.core.schedule import Schedule
from daybell.core.units import Instant
from daybell.core.views import Page, bytes_of, cut_page
from daybell.core.when.file import FileMark
from daybell.core.when.listener import EventPlan
from daybell.errors import ExecutionNotFound, NotFound, Unavailable
from daybell.store.codec import DECISION_CODES, STATE_CODES, STEP_CODES, STEP_KINDS
from daybell.store.postgres.connection import Row
from daybell.store.postgres.context import StoreContext, Tx
from daybell.store.postgres.enqueue import STALE_TRIES, enqueue_on, notify_enqueued, resolve
from daybell.store.postgres.gates import count_ticks, end_waits, lock_gates
from daybell.store.postgres.names import IN_HISTORY, JobKey, Outdated, Specs, within_page
from daybell.store.postgres.queue import HELD, IS_HELD, count_by_lease, fence_columns
from daybell.store.postgres.run_rows import columns_of
from daybell.store.postgres.schedules import FIELDS, read_schedule
from daybell.store.run_driver import select_waits
from daybell.store.timeouts import Pace

# Events: stored once, given to the executions that wait for them, and found by later searches.
#
# A publisher of an event and a transaction that records a wait for one must not search for each
# other in the same moment: neither would see the uncommitted rows of the other. So both first lock
# the event's name. Publishers share their lock, since they come one by one and from everywhere;
# waits come in groups.

EVENT: Final = "e.number, e.id, e.source, e.name, e.data, e.execution, e.time, e.received_at"
EXPANDED: Final = STATE_CODES[State.RUNNING]  # a run that has begun
NUMBER_MAX: Final = 2**63 - 1
BEFORE_ALL: Final = UUID(int=0), -1  # an execution and its step, before any that waits


IS_KNOWN: Final = f"""
    SELECT EXISTS (SELECT FROM daybell.live WHERE tenant = $1 AND id = $2)
        OR EXISTS (SELECT FROM daybell.dead WHERE tenant = $1 AND id = $2)
        OR EXISTS (SELECT FROM unnest(ARRAY[$2::uuid]) u(id), {IN_HISTORY})
    """
SHARE_NAME: Final = "SELECT pg_advisory_xact_lock_shared($1)"
LOCK_NAME: Final = "SELECT pg_advisory_xact_lock($1)"
KEEP_EVENT: Final = """
    WITH e AS (
      INSERT INTO daybell.event (received_at, tenant, id, source, name, data, execution, time)
      VALUES (daybell.now(), $1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING
      RETURNING number, received_at, tenant, name),
    k AS (
      INSERT INTO daybell.event_key (received_at, number, tenant, name, key)
      SELECT e.received_at, e.number, e.tenant, e.name, u.key FROM e, unnest($8::text[]) u(key))
    SELECT number, received_at,
           (SELECT true FROM daybell.schedule s
             WHERE s.event IS NOT NULL AND (s.event, s.tenant) >= ($4, $1)
               AND (s.event, s.tenant) <= ($4, $1)
             ORDER BY s.event, s.tenant, s.id LIMIT 1) AS fires,
           (SELECT true FROM daybell.wait w
             WHERE w.tenant = $1 AND w.event = $4 LIMIT 1) AS awaited
      FROM e
    """
# Each key is probed by itself, for any number of waits that the planner assumes.
WAITS_BY_KEY: Final = """
    SELECT w.execution, w.match FROM unnest($3::text[]) u(key),
           LATERAL (SELECT * FROM daybell.wait w
                     WHERE w.tenant = $1 AND w.event = $2 AND w.key = u.key OFFSET 0) w
    """


async def publish(pg: StoreContext, tenant: str, event: NewEvent) -> Published:
    return (await publish_many(pg, tenant, [event]))[0]


async def publish_many(
    pg: StoreContext, tenant: str, events: Sequence[NewEvent]
) -> list[Published]:
    check_events(events)
    facts = [Facts(event.data) for event in events]
    specs: Specs | None = None  # the jobs that the events fire, where they had to be looked up
    for _ in range(STALE_TRIES):
        try:
            return await pg.db.settled(partial(_publish, pg, tenant, events, facts, specs))
        except Unresolved as unresolved:
            with suppress(NotFound):  # deleted since: it is no listener the next time
                specs = await resolve(pg, tenant, unresolved.executions, fresh=True)
    raise Unavailable("the jobs that these events fire change faster than they can fire; try again")


class KeptEvent(NamedTuple):
    """A new event on record."""

    number: int
    event: Event
    is_awaited: bool  # by its name
    fires: bool  # by its name


async def _publish(
    pg: StoreContext,
    tenant: str,
    events: Sequence[NewEvent],
    facts: Sequence[Facts],
    specs: Specs | None,
) -> list[Published]:
    async with pg.transaction() as tx:
        owner = await pg.names.tenant(tx, tenant)
        for lock in sorted({name_lock(owner, event.name) for event in events}):
            await tx.execute(SHARE_NAME, lock)
        made = [
            await _keep(tx, owner, event, one) for event, one in zip(events, facts, strict=True)
        ]
        kept = {place: one for place, one in enumerate(made) if one is not None}
        if not kept:
            pg.db.skip_entry()
        # The locks of schedules and gates come before those of executions: see `LockPlan`.
        firing = {place: one for place, one in kept.items() if one.fires}
        fired: dict[int, tuple[UUID, ...]] = {}
        if firing:
            numbered = [(one.number, one.event) for one in firing.values()]
            found, specs = await fire_events(tx, owner, tenant, numbered, specs)
            fired = dict(zip(firing, found, strict=True))
        queues: set[str] = set()
        answers: list[Published] = []
        for place, event in enumerate(events):
            one, resumed = kept.get(place), 0
            if one is None:
                rows = await tx.fetch(FIRED_BY, owner, event.source, event.id)
                fired[place] = tuple(row["execution"] for row in rows)
            elif one.is_awaited:
                resumed, woken = await _resume(tx, owner, one, facts[place])
                queues.update(woken)
            answers.append(Published(one is not None, resumed, fired.get(place, ())))
    if firing and specs is not None:
        await notify_enqueued(pg, tx.after, specs)
    if queues:
        pg.notifier.touch(owner, queues)
    return answers


async def _keep(tx: Tx, owner: int, new: NewEvent, facts: Facts) -> KeptEvent | None:
    """Store an event. Return None if it is on record."""
    if new.execution is not None and not await tx.fetchval(IS_KNOWN, owner, new.execution):
        raise ExecutionNotFound(f"no execution {new.execution}")
    fields = (new.id, new.source, new.name, new.data, new.execution, new.time)
    row = await tx.fetchrow(KEEP_EVENT, owner, *fields, facts.filed(new.execution))
    if row is None:
        return None
    event = Event(received_at=row["received_at"], **asdict(new))
    fires = new.execution is None and row["fires"] is not None
    return KeptEvent(row["number"], event, row["awaited"] is not None, fires)


async def _resume(tx: Tx, owner: int, kept: KeptEvent, facts: Facts) -> tuple[int, Sequence[str]]:
    """Release the executions that wait for an event; return their number and their queues."""
    event = kept.event
    ids = await _candidates(tx, owner, event, facts)
    if not ids:
        return 0, ()
    return await end_waits(
        tx,
        owner,
        ids,
        lambda wait: (
            wait["event"] == event.name
            and (wait["timeout_at"] is None or wait["timeout_at"] >= event.received_at)
            and facts.meet(wait["match"])
        ),
        result=result_of(event),
        event=kept.number,
    )


async def firing_events(
    pg: StoreContext, tenant: str, schedule: UUID, times: Sequence[Instant]
) -> list[Event | None]:
    rows = await pg.fetch(tenant, FIRING_EVENTS, schedule, list(times))
    found = {row["tick_at"]: read_event(row) for row in rows}
    return [found.get(at) for at in times]


# Start at the run and look each up by itself: many executions may wait, and few are its nodes.
NODE_WAITS: Final = f"""
    WITH RECURSIVE inside (id, root) AS (
      SELECT $2::uuid, NULL::text COLLATE "C"
       UNION ALL
      SELECT v.id, coalesce(i.root, v.node) FROM inside i, LATERAL (
        SELECT v.id, v.node FROM daybell.live v WHERE v.parent = i.id AND v.tenant + 0 = $1
           AND v.node IS NOT NULL AND v.state + 0 = {EXPANDED} OFFSET 0) v)
    SELECT v.id, v.node, coalesce(i.root, v.node), w.event, w.match, w.timeout_at, w.n
      FROM inside i,
           LATERAL (SELECT v.id, v.node FROM daybell.live v WHERE v.parent = i.id
                       AND v.tenant + 0 = $1 AND v.node IS NOT NULL OFFSET 0) v,
           LATERAL (SELECT * FROM daybell.wait w
                     WHERE w.execution = v.id AND w.tenant = $1 OFFSET 0) w
     WHERE (w.timeout_at IS NULL OR w.timeout_at >= daybell.now())
       AND ($3::text IS NULL OR (w.event = $3 AND w.key = ANY($4::text[])))
       AND (v.id, w.n) > ($6::uuid, $7::int)
     ORDER BY v.id, w.n LIMIT $5
    """


async def node_waits(
    pg: StoreContext, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
) -> list[NodeWait]:
    check_limit(limit)
    facts = None if event is None else Facts(event.data)
    keys = None if facts is None else facts.keys
    name = None if event is None else event.name
    found: list[NodeWait] = []
    last = BEFORE_ALL
    async with pg.db.link() as link:
        owner = await pg.names.tenant(link, tenant)
        while True:  # some waits of a page may not match
            rows = await link.fetch(NODE_WAITS, owner, run, name, keys, limit, *last)
            found += select_waits((tuple(row)[:-1] for row in rows), facts, limit)
            if len(found) >= limit or len(rows) < limit:
                return found[:limit]
            last = rows[-1]["id"], rows[-1]["n"]


async def _candidates(tx: Tx, owner: int, event: Event, facts: Facts) -> list[UUID]:
    if event.execution is not None:
        return [event.execution]
    rows = await tx.fetch(WAITS_BY_KEY, owner, event.name, facts.keys)
    return list({row["execution"] for row in rows if facts.meet(row["match"])})


LIST_EVENTS: Final = within_page(
    f"""SELECT {EVENT} FROM daybell.event e WHERE e.tenant = $1 AND e.number < $2
         ORDER BY e.number DESC LIMIT $3""",
    "octet_length(data)",
    "number DESC",
)


async def list_events(
    pg: StoreContext, tenant: str, *, limit: int = 100, cursor: str | None = None
) -> Page[Event]:
    check_limit(limit)
    before = check_cursor(cursor)
    last = NUMBER_MAX if before is None else before
    rows = await pg.fetch(tenant, LIST_EVENTS, last, limit + 1)
    page = cut_page(
        rows,
        limit,
        size=lambda row: bytes_of(row["data"]),
        cursor=lambda row: str(row["number"]),
    )
    return Page(items=tuple(map(read_event, page.items)), next_cursor=page.next_cursor)


def name_lock(owner: int, name: str) -> int:
    """Return the number for the lock of an event's name. Two names with the same only wait."""
    digest = hashlib.blake2b(f"daybell.event:{owner}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def read_event(row: Row) -> Event:
    return Event(**{name: row[name] for name in Event.__struct_fields__})


# Events: a tick for each listener, in the transaction that stores the event.

# Rows are compared with two bounds: with equations, the planner may read all schedules of the
# tenant by their key.
LISTENERS: Final = """{fields}
      FROM unnest($2::text[]) u(event),
           LATERAL (SELECT * FROM daybell.schedule
                     WHERE event IS NOT NULL AND (event, tenant) >= (u.event, $1)
                       AND (event, tenant) <= (u.event, $1) ORDER BY event, tenant, id OFFSET 0) s,
           LATERAL (SELECT name FROM daybell.job
                     WHERE key = s.job AND deleted_at IS NULL LIMIT 1) j
     ORDER BY s.id
    """
# Publishers of events that fire the same schedule take turns. `last` is read by the statement after
# the one that waits for the lock, whose snapshot is older.
LOCK_LISTENERS: Final = """
    SELECT id, is_paused FROM daybell.schedule WHERE tenant = $1 AND id = ANY($2::uuid[])
     ORDER BY id FOR NO KEY UPDATE
    """
LAST_TICKS: Final = """
    SELECT u.id, t.at FROM unnest($2::uuid[]) u(id),
           LATERAL (SELECT at FROM daybell.tick WHERE tenant = $1 AND schedule = u.id
                     ORDER BY at DESC LIMIT 1) t
    """
RECORD_EVENTS: Final = """
    INSERT INTO daybell.tick (tenant, schedule, at, decision, reason, execution, event)
    SELECT $1, u.* FROM unnest($2::uuid[], $3::float8[], $4::smallint[], $5::text[], $6::uuid[],
                               $7::bigint[]) u
    """
COUNT_EVENTS: Final = """
    UPDATE daybell.schedule s
       SET fired = s.fired + u.fired, skipped = s.skipped + u.skipped,
           missed = s.missed + u.missed, last_at = coalesce(u.last_at, s.last_at)
      FROM unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::float8[])
             u(id, fired, skipped, missed, last_at)
     WHERE s.tenant = $1 AND s.id = u.id
    """


class Unresolved(Exception):
    """The jobs that events fire are not known by number. Look them up while no connection is
    held, and begin again.
    """

    def __init__(self, executions: Sequence[NewExecution]) -> None:
        super().__init__()
        self.executions = executions


async def fire_events(
    tx: Tx, owner: int, tenant: str, events: Sequence[tuple[int, Event]], known: Specs | None
) -> tuple[list[tuple[UUID, ...]], Specs | None]:
    """Fire the schedules that these new events fire, given with their numbers. Return the
    executions of each event, and the names of their jobs. `known` are names that the caller has
    looked up. Raises Unresolved.
    """
    plan = await _plan_events(tx, owner, tenant, events)
    if not plan.listeners:
        return [()] * len(events), known
    specs = _specs_of(tx.pg, owner, tenant, plan.executions, known)
    gates = {gate for new in plan.executions if (gate := specs.of(new).gate(new)) is not None}
    if gates:
        await lock_gates(tx, owner, gates)
    try:
        answers = await enqueue_on(tx, specs, plan.executions, are_locked=True)
    except Outdated:
        raise Unresolved(plan.executions) from None
    plan.settle({new.id: one for new, one in zip(plan.executions, answers, strict=True)})
    ticks = plan.ticks
    await tx.execute(
        RECORD_EVENTS,
        owner,
        [schedule for schedule, _ in ticks],
        [tick.at for _, tick in ticks],
        [DECISION_CODES[tick.decision] for _, tick in ticks],
        [tick.reason for _, tick in ticks],
        [tick.execution and tick.execution.id for _, tick in ticks],
        [tick.event for _, tick in ticks],
    )
    listeners = plan.listeners.values()
    await tx.execute(
        COUNT_EVENTS,
        owner,
        *columns_of(listeners, "schedule.id", "fired", "skipped", "missed", "last_at"),
    )
    await count_ticks(tx, owner, len(specs.made))
    return plan.executions_of([number for number, _ in events]), specs


async def _plan_events(
    tx: Tx, owner: int, tenant: str, events: Sequence[tuple[int, Event]]
) -> EventPlan:
    """Lock the schedules that accept these events, and plan their ticks."""
    plan = EventPlan()
    names = sorted({event.name for _, event in events})
    by_name: dict[str | None, list[Schedule]] = {}
    for row in await tx.fetch(LISTENERS.format(fields=FIELDS), owner, names):
        one = read_schedule(row, tenant)
        by_name.setdefault(one.event, []).append(one)
    fired = [
        (one, number, event)
        for number, event in events
        for one in by_name.get(event.name, ())
        if plan.accepts(one, number, event)
    ]
    if not fired:
        return plan
    ids = sorted({one.id for one, *_ in fired})
    locked = {row["id"]: row["is_paused"] for row in await tx.fetch(LOCK_LISTENERS, owner, ids)}
    last = {row["id"]: row["at"] for row in await tx.fetch(LAST_TICKS, owner, ids)}
    for one, number, event in fired:
        if one.id not in locked:  # it was deleted just now
            continue
        if one.id not in plan.listeners:
            plan.learn(replace(one, is_paused=locked[one.id]), last.get(one.id))
        plan.add(one.id, number, event)
    return plan


def _specs_of(
    pg: StoreContext,
    owner: int,
    tenant: str,
    executions: Sequence[NewExecution],
    known: Specs | None,
) -> Specs:
    if known is not None and known.cover(executions):
        return known
    found = pg.names.known(tenant, {(new.job, new.queue) for new in executions})
    if found is None:
        raise Unresolved(executions)
    return Specs(
        owner, False, {one: JobKey(owner, job, lane) for one, (job, lane) in found[1].items()}
    )


async def list_listeners(pg: StoreContext, tenant: str, event: str) -> list[Schedule]:
    rows = await pg.fetch(tenant, LISTENERS.format(fields=FIELDS), [event])
    return [read_schedule(row, tenant) for row in rows]


# Files that schedules wait for.

WATCHED: Final = """
    SELECT path, size, changed_at, inode FROM daybell.watched_file WHERE tenant = $1 AND root = $2
    """
NOTE: Final = """
    INSERT INTO daybell.watched_file (tenant, root, path, size, changed_at, inode)
    SELECT $1, $2, u.* FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::text[]) u
     ORDER BY 3
    ON CONFLICT (tenant, root, path) DO UPDATE
       SET size = excluded.size, changed_at = excluded.changed_at, inode = excluded.inode
    """
FORGET: Final = """
    DELETE FROM daybell.watched_file WHERE tenant = $1 AND root = $2 AND path = ANY($3::text[])
    """


async def watched_files(pg: StoreContext, tenant: str, root: str) -> dict[str, FileMark]:
    rows = await pg.fetch(tenant, WATCHED, root)
    return {path: FileMark(size, at, int(inode)) for path, size, at, inode in rows}


async def note_files(
    pg: StoreContext,
    tenant: str,
    root: str,
    *,
    seen: Mapping[str, FileMark],
    gone: Collection[str] = (),
) -> None:
    async def work() -> None:
        async with pg.transaction() as tx:
            owner = await pg.names.tenant(tx, tenant)
            marks = seen.values()
            await tx.execute(
                NOTE,
                owner,
                root,
                list(seen),
                *columns_of(marks, "size", "changed_at"),
                [str(mark.inode) for mark in marks],
            )
            await tx.execute(FORGET, owner, root, sorted(gone))

    await pg.db.settled(work)


FIRED_BY: Final = """
    SELECT t.execution
      FROM (SELECT number FROM daybell.event WHERE tenant = $1 AND source = $2 AND id = $3) e,
           LATERAL (SELECT execution FROM daybell.tick
                     WHERE event = e.number AND execution IS NOT NULL OFFSET 0) t
     ORDER BY t.execution
    """
FIRING_EVENTS: Final = """
    SELECT u.at AS tick_at, e.*
      FROM unnest($3::float8[]) u(at),
           LATERAL (SELECT event FROM daybell.tick
                     WHERE tenant = $1 AND schedule = $2 AND at = u.at LIMIT 1) t,
           LATERAL (SELECT * FROM daybell.event WHERE number = t.event LIMIT 1) e
    """


# Events that came before the waits that they end.
#
# An event may be large, and a thousand waits may want the same one. So keys are looked up first,
# and each event is read once.

EARLIER_MAX: Final = 20  # events that a wait looks at in one go

NOTHING: Final = (None, Facts("null"))

StepKey: TypeAlias = tuple[UUID, int]  # an execution, and a step of it


class EventSearch(NamedTuple):
    """The place where a wait searches for an event that came before it."""

    wait: NewStep
    key: str
    since: Instant
    until: Instant | None
    after: int = 0  # the number of the last one that was received just then


class Choice(NamedTuple):
    """Events that a search has found, and that are not read yet."""

    search: EventSearch
    events: list[tuple[Instant, int]]
    last: tuple[Instant, int] | None  # behind which there may be more


# Each key of each wait is a probe of its own.
EARLIER_EVENTS: Final = f"""
    SELECT u.place, k.received_at, k.number
      FROM unnest($2::int[], $3::text[], $4::text[], $5::float8[], $6::bigint[],
                  $7::float8[])
           u(place, name, key, since, after, until),
           LATERAL (SELECT k.received_at, k.number FROM daybell.event_key k
                     WHERE k.tenant = $1 AND k.name = u.name AND k.key = u.key
                       AND (k.received_at, k.number) > (u.since, u.after)
                       AND k.received_at <= u.until
                     ORDER BY k.received_at, k.number LIMIT {EARLIER_MAX}) k
     ORDER BY u.place, k.received_at, k.number
    """


async def find_earlier(
    tx: Tx, owner: int, left: list[EventSearch], taken: set[tuple[UUID, int | None]]
) -> dict[StepKey, Row]:
    """Return for each wait the first event that fits and no other wait of its execution got."""
    found: dict[StepKey, Row] = {}
    while left:
        rows = await tx.fetch(
            EARLIER_EVENTS,
            owner,
            list(range(len(left))),
            *columns_of(left, "wait.event", "key", "since", "after"),
            [INSTANT_MAX if search.until is None else search.until for search in left],
        )
        searches, left = left, list[EventSearch]()
        choices: list[Choice] = []
        for place, some in groupby(rows, key=itemgetter("place")):
            events, search = [_age(row) for row in some], searches[int(place)]
            free = [it for it in events if (search.wait.id, it[1]) not in taken]
            choices.append(Choice(search, free, events[-1] if len(events) == EARLIER_MAX else None))
        left += await _choose(tx, choices, found)
    return found


EVENTS_BY_NUMBER: Final = f"SELECT {EVENT} FROM daybell.event e WHERE e.number = ANY($1::bigint[])"


async def _choose(tx: Tx, choices: list[Choice], found: dict[StepKey, Row]) -> list[EventSearch]:
    """Read the candidates of each search, the first of all, then the second: they are large, but
    often the same. Return the searches to continue.
    """
    left: list[EventSearch] = []
    while choices:
        numbers = {choice.events[0][1] for choice in choices if choice.events}
        rows = await tx.fetch(EVENTS_BY_NUMBER, list(numbers)) if numbers else []
        events = {row["number"]: (row, Facts(row["data"])) for row in rows}
        again: list[Choice] = []
        for choice in choices:
            wait = choice.search.wait
            event, facts = events.get(choice.events[0][1] if choice.events else 0, NOTHING)
            if event is not None and facts.meet(wait.match):
                best = found.get((wait.id, wait.n))
                if best is None or _age(event) < _age(best):
                    found[wait.id, wait.n] = event
            elif choice.events:
                again.append(choice._replace(events=choice.events[1:]))
            elif choice.last is not None:
                since, after = choice.last
                left.append(choice.search._replace(since=since, after=after))
        choices = again
    return left


def _age(event: Row) -> tuple[Instant, int]:
    return event["received_at"], event["number"]


PART_CHARS_MAX: Final = 8 * 1024 * 1024  # of results that are written in one statement
SLEEP: Final = STEP_CODES[StepKind.SLEEP]
STEP_FIELDS: Final = Step.__struct_fields__
COLUMNS: Final = ", ".join(("execution", *STEP_FIELDS))
# The new values of a step that is run again; its start time stays.
REPLACED: Final = ("name", "kind", "result", "error", "failures", "wake_at", "finished_at", "event")

_by_place: Final = attrgetter("id.int", "n")


READ_STEPS: Final = f"""
    SELECT {COLUMNS} FROM daybell.step WHERE tenant + 0 = $1 AND execution = $2 ORDER BY n
    """


async def steps(pg: StoreContext, tenant: str, id: UUID) -> list[Step]:
    return [_step(row) for row in await pg.fetch(tenant, READ_STEPS, id)]


async def record(
    pg: StoreContext, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
) -> list[Step | None]:
    check_steps(steps)
    rounds = _rounds(steps)
    if len(rounds) == 1 and not any(map(_is_wait, steps)):
        async with pg.autocommit() as tx:
            owner = await pg.names.tenant(tx, tenant)
            made = [await _write_plain(tx, owner, worker, rounds[0].values())]
    else:
        made = await pg.db.settled(lambda: _record_rounds(pg, tenant, worker, rounds))
    answers: dict[int, Step] = {}
    for one, written in zip(rounds, made, strict=True):
        for position, step in one.items():
            if (step.id, step.n) in written:
                answers[position] = written[step.id, step.n]
    return [answers.get(position) for position in range(len(steps))]


# Lock all at once and first, so that transactions with several locks take them in one order.
LOCK_HELD: Final = f"""
    WITH {HELD}
    SELECT v.id, v.attempt, v.created_at, daybell.now() AS now FROM daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
     ORDER BY v.id FOR UPDATE OF v
    """


async def _record_rounds(
    pg: StoreContext, tenant: str, worker: UUID, rounds: list[dict[int, NewStep]]
) -> list[dict[StepKey, Step]]:
    made: list[dict[StepKey, Step]] = []
    async with pg.transaction() as tx:
        owner = await pg.names.tenant(tx, tenant)
        steps = [step for one in rounds for step in one.values()]
        for number in sorted({name_lock(owner, it.event) for it in steps if it.event}):
            await tx.execute(LOCK_NAME, number)
        guard = _guard(owner, worker, steps)
        rows = await tx.fetch(LOCK_HELD, *guard)
        held = {(row["id"], row["attempt"]): row for row in rows}
        for one in rounds:
            plain = [step for step in one.values() if not _is_wait(step)]
            waits = [step for step in one.values() if _is_wait(step)]
            written = await _write_plain(tx, owner, worker, plain)
            written |= await _write_waits(tx, owner, waits, held)
            made.append(written)
    return made


# Each row is found and locked by itself. One that is done is written as it is, and so answered.
WRITE_PLAIN: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    u AS MATERIALIZED (
      SELECT u.*, (SELECT now FROM t) AS now
        FROM unnest($4::uuid[], $5::int[], $7::int[], $8::text[], $9::smallint[], $10::text[],
                    $11::text[], $12::int[], $13::boolean[], $14::float8[], $15::float8[])
             u(id, attempt, n, name, kind, result, error, failures, is_done, ran, delay),
             LATERAL (SELECT FROM daybell.live v
                       WHERE v.tenant = $1 AND v.id = u.id AND v.attempt = u.attempt AND {IS_HELD}
                       LIMIT 1 FOR UPDATE) x)
    INSERT INTO daybell.step AS s (tenant, {COLUMNS})
    SELECT $1, id, n, name, kind, result, error, failures,
           CASE WHEN kind = {SLEEP} THEN now + delay END, now - coalesce(ran, 0),
           CASE WHEN kind = {SLEEP} THEN now + delay WHEN is_done THEN now END,
           is_done OR kind = {SLEEP}
      FROM u
    ON CONFLICT (execution, n, tenant) DO UPDATE SET is_done = s.is_done OR excluded.is_done, {
    ", ".join(
        f"{name} = CASE WHEN s.is_done THEN s.{name} ELSE excluded.{name} END" for name in REPLACED
    )
}
    RETURNING {COLUMNS}
    """


async def _write_plain(
    tx: Tx, owner: int, worker: UUID, steps: Iterable[NewStep]
) -> dict[StepKey, Step]:
    """Write steps that do not depend on others; skip executions that the caller does not hold."""
    ordered = sorted(steps, key=_by_place)
    if not ordered:
        return {}
    rows = await tx.fetch(
        WRITE_PLAIN,
        *_guard(owner, worker, ordered),
        *columns_of(ordered, "n", "name"),
        [STEP_CODES[step.kind] for step in ordered],
        *columns_of(ordered, "result", "error", "failures", "is_done", "ran", "delay"),
    )
    return {(row["execution"], row["n"]): _step(row) for row in rows}


STEPS_BEFORE: Final = f"""
    SELECT {COLUMNS}, event FROM daybell.step
     WHERE tenant + 0 = $1 AND execution = ANY($2::uuid[])
       AND (n = ANY($3::int[]) OR event IS NOT NULL)
    """


class WaitBatch:
    """Waits that are recorded together, at most one of each execution."""

    def __init__(
        self, waits: list[NewStep], held: Mapping[StepKey, Row], recorded: Sequence[Row]
    ) -> None:
        self.waits = waits
        self.now: Instant = next(iter(held.values()))["now"]
        self.before = {(row["execution"], row["n"]): _step(row) for row in recorded}
        # By execution: the events that its waits have got.
        self.taken = {(row["execution"], row["event"]) for row in recorded}
        self.events: dict[StepKey, Row] = {}
        self.steps = {  # to be answered, and written where they differ from those before
            (it.id, it.n): record_step(it, self.before.get((it.id, it.n)), now=self.now)
            for it in waits
        }
        self._created_at = {id: row["created_at"] for (id, _), row in held.items()}

    @property
    def changed(self) -> dict[StepKey, Step]:
        """Return the steps to write."""
        return {key: step for key, step in self.steps.items() if step is not self.before.get(key)}

    @property
    def open(self) -> list[NewStep]:
        """Return the waits that continue."""
        return [wait for wait in self.waits if not self.steps[wait.id, wait.n].is_done]

    @property
    def ended(self) -> list[StepKey]:
        """Return waits that were open, and are found to have ended when recorded again."""
        return [key for key, step in self.changed.items() if key in self.before and step.is_done]

    def searches(self) -> list[EventSearch]:
        """Return searches for events that came before the waits, one for each key of a wait."""
        changed = self.changed
        return [
            EventSearch(wait, key, self._created_at[wait.id], step.wake_at)
            for wait in self.waits
            if (step := changed.get((wait.id, wait.n))) is not None
            for key in places(wait.match, wait.id)
        ]

    def close(self, events: dict[StepKey, Row]) -> None:
        """End waits with the events that were found for them."""
        self.events = events
        results = {row["number"]: result_of(read_event(row)) for row in events.values()}
        for key, row in events.items():
            self.steps[key] = close_wait(self.steps[key], results[row["number"]], now=self.now)


async def _write_waits(
    tx: Tx, owner: int, waits: list[NewStep], held: Mapping[StepKey, Row]
) -> dict[StepKey, Step]:
    """Write waits, at most one of each execution; those for which no event is there, as open
    ones.
    """
    waits = [wait for wait in waits if (wait.id, wait.attempt) in held]
    if not waits:
        return {}
    ids, numbers = [wait.id for wait in waits], [wait.n for wait in waits]
    batch = WaitBatch(waits, held, await tx.fetch(STEPS_BEFORE, owner, ids, numbers))
    left = batch.searches()
    batch.close(await find_earlier(tx, owner, left, batch.taken))
    changed = batch.changed
    for part in _parts(changed):
        await _put_steps(tx, owner, {it: changed[it] for it in part}, batch.events)
    await _open_waits(tx, owner, batch)
    await _close_waits(tx, owner, batch.ended)
    return batch.steps


PUT_STEPS: Final = f"""
    INSERT INTO daybell.step (tenant, {COLUMNS}, event)
    SELECT $1, * FROM unnest($2::uuid[], $3::int[], $4::text[], $5::smallint[], $6::text[],
                             $7::text[], $8::int[], $9::float8[], $10::float8[], $11::float8[],
                             $12::boolean[], $13::bigint[])
    ON CONFLICT (execution, n, tenant) DO UPDATE SET is_done = excluded.is_done, {
    ", ".join(f"{name} = excluded.{name}" for name in REPLACED)
}
    """


async def _put_steps(
    tx: Tx,
    owner: int,
    steps: Mapping[StepKey, Step],
    events: Mapping[StepKey, Row],
) -> None:
    made = steps.values()
    await tx.execute(
        PUT_STEPS,
        owner,
        [id for id, _ in steps],
        *columns_of(made, "n", "name"),
        [STEP_CODES[step.kind] for step in made],
        *columns_of(made, "result", "error", "failures", "wake_at"),
        *columns_of(made, "started_at", "finished_at", "is_done"),
        [None if place not in events else events[place]["number"] for place in steps],
    )


OPEN_WAIT: Final = """
    INSERT INTO daybell.wait (tenant, execution, n, timeout_at, event, key, match)
    SELECT $1, * FROM unnest($2::uuid[], $3::int[], $4::float8[], $5::text[], $6::text[],
                             $7::text[])
    ON CONFLICT (execution, n, tenant) DO UPDATE
       SET timeout_at = excluded.timeout_at, event = excluded.event, key = excluded.key,
           match = excluded.match
    """


async def _open_waits(tx: Tx, owner: int, batch: WaitBatch) -> None:
    still = batch.open
    if not still:
        return
    await tx.execute(
        OPEN_WAIT,
        owner,
        *columns_of(still, "id", "n"),
        [batch.steps[wait.id, wait.n].wake_at for wait in still],
        [wait.event for wait in still],
        [wait_key(wait.match) for wait in still],
        [wait.match for wait in still],
    )


CLOSE_WAITS: Final = """
    DELETE FROM daybell.wait
     WHERE tenant = $1 AND execution = ANY($2::uuid[])
       AND (execution, n) IN (SELECT * FROM unnest($2::uuid[], $3::int[]))
    """


async def _close_waits(tx: Tx, owner: int, ended: Sequence[StepKey]) -> None:
    if ended:
        places = [id for id, _ in ended], [n for _, n in ended]
        await tx.execute(CLOSE_WAITS, owner, *places)


def _parts(steps: Mapping[StepKey, Step]) -> Iterator[list[StepKey]]:
    """Yield steps to write in one statement: the data of events may be large."""
    part, chars = list[StepKey](), 0
    for place, step in steps.items():
        chars += len(step.result or "")
        if part and chars > PART_CHARS_MAX:
            yield part
            part, chars = [], len(step.result or "")
        part.append(place)
    if part:
        yield part


def _rounds(steps: Sequence[NewStep]) -> list[dict[int, NewStep]]:
    """Return steps by their position, in rounds. A round has each step once, and one wait of each
    execution: a later wait may depend on the result. Nearly always there is one round.
    """
    rounds: list[dict[int, NewStep]] = [{}]
    seen: dict[StepKey | UUID, int] = {}
    for position, step in enumerate(steps):
        if not 0 <= step.attempt <= ATTEMPT_MAX:
            continue  # no execution is at such an attempt
        places: list[StepKey | UUID] = [(step.id, step.n)]
        if _is_wait(step):
            places.append(step.id)
        turn = max(seen.get(place, 0) for place in places)
        seen.update(dict.fromkeys(places, turn + 1))
        if turn == len(rounds):
            rounds.append({})
        rounds[turn][position] = step
    return rounds


def _is_wait(step: NewStep) -> bool:
    return step.kind is StepKind.WAIT


def _guard(
    owner: int, worker: UUID, writes: Sequence[NewStep] | Sequence[NewLogPart]
) -> tuple[object, ...]:
    """Return the first six parameters of every statement with HELD."""
    leases = count_by_lease(writes)
    return (owner, worker, list(leases), *fence_columns(writes, leases))


def _step(row: Row) -> Step:
    values: dict[str, Any] = {name: row[name] for name in STEP_FIELDS}
    values["kind"] = STEP_KINDS[row["kind"]]
    return Step(**values)


# Logs of tasks.


WRITE_LOG: Final = f"""
    WITH {HELD}
    INSERT INTO daybell.log (written_at, tenant, attempt, number, id, text)
    SELECT daybell.now(), $1, u.attempt, u.number, u.id, u.text
      FROM unnest($4::uuid[], $5::int[], $7::int[], $8::text[]) u(id, attempt, number, text),
           LATERAL (SELECT FROM daybell.live v
                     WHERE v.tenant = $1 AND v.id = u.id AND v.attempt = u.attempt AND {IS_HELD}
                     LIMIT 1) x
    """


async def write_log(
    pg: StoreContext, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]
) -> None:
    async with pg.db.link() as link:
        guard = _guard(await pg.names.tenant(link, tenant), worker, parts)
        await link.execute(WRITE_LOG, *guard, *columns_of(parts, "number", "text"))


# A part is there twice if it was written again because the first answer was lost. Of the execution
# $3, parts behind a place are read; of the others, all.
_PARTS: Final = f"""
    SELECT DISTINCT ON (attempt, number) attempt, number, text
      FROM (SELECT attempt, number, text FROM daybell.log WHERE tenant + 0 = $1 AND id = u.id
            UNION ALL
            SELECT attempt, {LAST}, log FROM daybell.attempt WHERE tenant + 0 = $1 AND id = u.id
            UNION ALL
            SELECT attempt, {LAST}, log FROM daybell.dead WHERE tenant + 0 = $1 AND id = u.id
            UNION ALL
            SELECT h.attempt, {LAST}, h.log FROM {IN_HISTORY}) x
     WHERE text IS NOT NULL AND (u.id <> $3 OR (attempt, number) > ($4, $5))
     ORDER BY attempt, number
    """
READ_LOG: Final = f"""
    SELECT p.* FROM unnest($2::uuid[]) u(id), LATERAL ({_PARTS} LIMIT $6) p
    """
# All parts of these executions are found, but only the texts of one page are read.
READ_LOGS: Final = within_page(
    f"""
    SELECT u.place, u.id, p.* FROM unnest($2::uuid[]) WITH ORDINALITY u(id, place),
           LATERAL ({_PARTS}) p""",
    "octet_length(text)",
    "place, attempt, number",
)


async def read_log(
    pg: StoreContext, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
) -> list[LogPart]:
    checks.check_limit(limit, most=PAGE_ITEMS_MAX)
    rows = await pg.fetch(tenant, READ_LOG, [id], id, *after, limit)
    return [LogPart(*row) for row in rows]


async def read_logs(
    pg: StoreContext, tenant: str, ids: Sequence[UUID], *, start: LogPlace | None = None
) -> Page[FoundPart]:
    check_limit(len(ids))
    first = start or LogPlace(ids[0])
    values = list(ids), first.execution, *first.after
    rows = await pg.fetch(tenant, READ_LOGS, *values, pace=Pace.VIEW)
    parts = (LogPart(row["attempt"], row["number"], row["text"]) for row in rows)
    return cut_parts(map(FoundPart, (row["id"] for row in rows), parts))


# Removal of the steps and waits of executions that are gone.
#
# Whole days of history are dropped without reading their rows, so their steps get no notice of it.
# The store walks through all steps from the oldest, a part at a time.

WALKED_MAX: Final = 5_000  # steps looked at in one round
START: Final[tuple[Instant, UUID]] = (-inf, UUID(int=0))


OLD_STEPS: Final = f"""
    SELECT tenant, execution, started_at FROM daybell.step
     WHERE started_at < $1 AND (started_at, execution) > ($2, $3)
     ORDER BY started_at, execution LIMIT {WALKED_MAX}
    """
# Scalars and OFFSET 0 make each of these a probe, for any estimate of the planner.
FORGET_STEPS: Final = """
    WITH g AS MATERIALIZED (
      SELECT u.tenant, u.execution FROM unnest($1::int[], $2::uuid[]) u(tenant, execution)
       WHERE (SELECT true FROM daybell.live v
               WHERE v.tenant = u.tenant AND v.id = u.execution LIMIT 1) IS NULL
         AND (SELECT true FROM daybell.dead v
               WHERE v.tenant = u.tenant AND v.id = u.execution LIMIT 1) IS NULL
         AND (SELECT true FROM unnest('{6, 7, 8, 9}'::smallint[]) s(state),
                     LATERAL (SELECT FROM daybell.history h
                               WHERE h.tenant = u.tenant AND h.state = s.state
                                 AND h.id = u.execution LIMIT 1) h LIMIT 1) IS NULL),
    w AS (
      DELETE FROM daybell.wait WHERE ctid = ANY(ARRAY(
        SELECT w.place FROM g, LATERAL (SELECT w.ctid AS place FROM daybell.wait w
                 WHERE w.execution = g.execution AND w.tenant = g.tenant OFFSET 0) w)))
    DELETE FROM daybell.step WHERE ctid = ANY(ARRAY(
      SELECT s.place FROM g, LATERAL (SELECT s.ctid AS place FROM daybell.step s
               WHERE s.execution = g.execution AND s.tenant = g.tenant OFFSET 0) s))
    """


async def forget_steps(tx: Tx, before: Instant) -> tuple[int, bool]:
    """Remove steps of executions that are gone, among some that began before that: the next call
    continues behind them. Return their number, and whether there are more to check.
    """
    rows = await tx.fetch(OLD_STEPS, before, *(tx.pg.step_cursor or START))
    is_end = len(rows) < WALKED_MAX
    tx.pg.step_cursor = None if is_end else (rows[-1]["started_at"], rows[-1]["execution"])
    if not rows:
        return 0, False
    places = {(row["tenant"], row["execution"]) for row in rows}
    answer = await tx.execute(FORGET_STEPS, *map(list, zip(*places, strict=True)))
    return int(answer.rpartition(" ")[2]), not is_end
