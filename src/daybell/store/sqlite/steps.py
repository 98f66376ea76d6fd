"""Steps of durable functions, events, and logs of tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from msgspec.structs import asdict, replace

from daybell.core import checks
from daybell.core.event import (
    Event,
    Facts,
    NewEvent,
    NewStep,
    Published,
    Step,
    StepKind,
    check_cursor,
    check_events,
    check_steps,
    close_wait,
    matches,
    places,
    record_step,
    result_of,
    wait_key,
)
from daybell.core.execution import (
    LAST,
    AttemptSpan,
    Claimed,
    Enqueued,
    LogPart,
    NewExecution,
    NewLogPart,
)
from daybell.core.lifecycle import after_cancel
from daybell.core.limits import INSTANT_MAX
from daybell.core.logs import FoundPart, LogPlace, cut_parts
from daybell.core.schedule import Schedule
from daybell.core.units import Instant
from daybell.core.views import Page, bytes_of, cut_page
from daybell.core.when.file import FileMark
from daybell.core.when.listener import EventPlan
from daybell.core.workflow.run import Plan, RunDetail
from daybell.errors import ExecutionNotFound
from daybell.store import run_driver
from daybell.store.codec import DECISION_CODES, OUTCOMES, STATES, STEP_CODES, STEP_KINDS
from daybell.store.sqlite import enqueue, gates, progress
from daybell.store.sqlite.enqueue import Creation
from daybell.store.sqlite.gates import Meter
from daybell.store.sqlite.progress import (
    NODE_COLUMNS,
    RUN_COLUMNS,
    read_nodes,
    read_run,
)
from daybell.store.sqlite.queue import FENCE, apply_one, fence
from daybell.store.sqlite.schedules import SCHEDULE_SQL, read_schedule
from daybell.store.sqlite.transaction import Row, RunKey, Transaction, shown_state, uuid_or_none
from daybell.store.wakeups import Signal

EVENT: Final = "e.number, e.id, e.source, e.name, e.data, e.execution, e.time, e.received_at"


def list_steps(tx: Transaction, tenant: str, id: UUID) -> list[Step]:
    rows = tx.execute(_READ, (tx.names.tenant(tx, tenant), id.bytes))
    return [step_of(row) for row in rows]


def record(
    tx: Transaction, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
) -> list[Step | None]:
    check_steps(steps)
    owner = tx.names.tenant(tx, tenant)
    return [record_steps(tx, owner, worker.bytes, new) for new in steps]


_FIELDS: Final = Step.__struct_fields__
_COLUMNS: Final = ", ".join(f"s.{name}" for name in _FIELDS)
_READ: Final = f"""
SELECT {_COLUMNS} FROM execution e JOIN step s ON s.execution = e.n
 WHERE e.tenant = ? AND e.id = ? ORDER BY s.n
"""


def step_of(row: Row) -> Step:
    values: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
    values["kind"], values["is_done"] = STEP_KINDS[values["kind"]], bool(values["is_done"])
    return Step(**values)


_HELD: Final = f"SELECT n, created_at FROM execution WHERE {FENCE}"
_BEFORE: Final = f"SELECT {_COLUMNS} FROM step s WHERE s.execution = ? AND s.n = ?"
_WRITE: Final = f"""
INSERT INTO step (execution, {", ".join(_FIELDS)}, event)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (execution, n) DO UPDATE
   SET name = excluded.name, kind = excluded.kind, result = excluded.result,
       error = excluded.error, failures = excluded.failures, wake_at = excluded.wake_at,
       finished_at = excluded.finished_at, is_done = excluded.is_done, event = excluded.event
"""


def record_steps(tx: Transaction, owner: int, worker: bytes, new: NewStep) -> Step | None:
    """Record a step, if its worker holds the execution, and return the step on record now."""
    if new.attempt > checks.ATTEMPT_MAX:
        return None
    held = tx.execute(_HELD, fence(owner, worker, new)).fetchone()
    if held is None:
        return None
    execution, created_at = held
    row = tx.execute(_BEFORE, (execution, new.n)).fetchone()
    before = None if row is None else step_of(row)
    step, number = record_step(new, before, now=tx.now), None
    if step is before:
        return step
    if step.kind is StepKind.WAIT:
        until = INSTANT_MAX if step.wake_at is None else step.wake_at
        found = earlier_event(tx, owner, execution, (created_at, until), new)
        if found is not None:
            number, event = found
            step = close_wait(step, result_of(event), now=tx.now)
        if not step.is_done:
            open_wait(tx, owner, execution, new, step.wake_at)
        elif before is not None:
            tx.execute(_CLOSE, (execution, new.n))
    values = asdict(step) | {"kind": STEP_CODES[step.kind]}
    tx.execute(_WRITE, (execution, *values.values(), number))
    return step


_EARLIER: Final = f"""
SELECT {EVENT} FROM event_key k JOIN event e ON e.number = k.number
 WHERE k.tenant = ? AND k.name = ? AND k.key = ? AND k.received_at BETWEEN ? AND ?
   AND NOT EXISTS (SELECT 1 FROM step s WHERE s.execution = ? AND s.event = e.number)
 ORDER BY k.received_at, k.number
"""


def earlier_event(
    tx: Transaction, owner: int, execution: int, span: tuple[Instant, Instant], wait: NewStep
) -> tuple[int, Event] | None:
    """Return the first event that fits, came in time, and no other wait of the execution got."""

    def found() -> Iterator[tuple[int, Event]]:
        for place in places(wait.match, wait.id):
            # Read one by one: of many, the first that fits is enough.
            for row in tx.execute(_EARLIER, (owner, wait.event, place, *span, execution)):
                event = event_of(row)
                if matches(wait.match, event.data):
                    yield row[0], event
                    break

    return min(found(), key=lambda one: (one[1].received_at, one[0]), default=None)


_CLOSE: Final = "DELETE FROM wait WHERE execution = ? AND n = ?"
_OPEN: Final = """
INSERT INTO wait (execution, n, tenant, timeout_at, event, key, match) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (execution, n) DO UPDATE
   SET timeout_at = excluded.timeout_at, event = excluded.event, key = excluded.key,
       match = excluded.match
"""


def open_wait(
    tx: Transaction, owner: int, execution: int, new: NewStep, timeout_at: Instant | None
) -> None:
    values = timeout_at, new.event, wait_key(new.match), new.match
    tx.execute(_OPEN, (execution, new.n, owner, *values))


# Events.

_KNOWN: Final = "SELECT 1 FROM execution WHERE tenant = ? AND id = ?"
_KEEP: Final = """
INSERT INTO event (tenant, received_at, time, execution, id, source, name, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING number
"""
_FILE: Final = """
INSERT INTO event_key (tenant, name, key, received_at, number) VALUES (?, ?, ?, ?, ?)
"""


def publish(tx: Transaction, tenant: str, event: NewEvent) -> Published:
    return publish_many(tx, tenant, [event])[0]


def publish_many(tx: Transaction, tenant: str, events: Sequence[NewEvent]) -> list[Published]:
    check_events(events)
    owner = tx.names.tenant(tx, tenant)
    answers: list[Published] = []
    new: dict[int, tuple[int, Event]] = {}  # by place
    for place, event in enumerate(events):
        number = keep_event(tx, owner, event)
        if number is None:
            answers.append(Published(created=False))
            continue
        received = Event(received_at=tx.now, **asdict(event))
        answers.append(Published(True, gates.deliver_event(tx, owner, received, number)))
        if event.execution is None:
            new[place] = number, received
    fired = fire_events(tx, tenant, list(new.values())) if new else []
    for place, ids in zip(new, fired, strict=True):
        if ids:
            answers[place] = replace(answers[place], executions=ids)
    return [
        one if one.created else replace(one, executions=find_fired(tx, owner, event))
        for one, event in zip(answers, events, strict=True)
    ]


_FIRED: Final = """
SELECT t.execution FROM event e JOIN tick t ON t.event = e.number
 WHERE e.tenant = ? AND e.source = ? AND e.id = ? AND t.execution IS NOT NULL ORDER BY t.execution
"""


def find_fired(tx: Transaction, owner: int, event: NewEvent) -> tuple[UUID, ...]:
    """Return the executions that an event on record has fired."""
    rows = tx.execute(_FIRED, (owner, event.source, event.id))
    return tuple(UUID(bytes=id) for (id,) in rows)


_FIRING: Final = f"""
SELECT {EVENT} FROM tick t JOIN event e ON e.number = t.event
 WHERE t.tenant = ? AND t.schedule = ? AND t.at = ?
"""


def firing_events(
    tx: Transaction, tenant: str, schedule: UUID, times: Sequence[Instant]
) -> list[Event | None]:
    owner = tx.names.tenant(tx, tenant)
    rows = [tx.execute(_FIRING, (owner, schedule.bytes, at)).fetchone() for at in times]
    return [None if row is None else event_of(row) for row in rows]


def keep_event(tx: Transaction, owner: int, event: NewEvent) -> int | None:
    """Store an event; return its number, or None if it is on record."""
    own = None if event.execution is None else event.execution.bytes
    if own is not None and tx.execute(_KNOWN, (owner, own)).fetchone() is None:
        raise ExecutionNotFound(f"no execution {event.execution}")
    values = owner, tx.now, event.time, own, event.id, event.source, event.name, event.data
    kept = tx.execute(_KEEP, values).fetchone()
    if kept is None:
        return None
    (number,) = kept
    keys = Facts(event.data).filed(event.execution)
    tx.executemany(_FILE, [(owner, event.name, key, tx.now, number) for key in keys])
    return number


_LIST: Final = f"""
SELECT {EVENT} FROM event e WHERE e.tenant = ? AND e.number < ? ORDER BY e.number DESC LIMIT ?
"""


def list_events(
    tx: Transaction, tenant: str, *, limit: int = 100, cursor: str | None = None
) -> Page[Event]:
    checks.check_limit(limit)
    before = check_cursor(cursor)
    owner = tx.names.tenant(tx, tenant)
    last = 2**63 - 1 if before is None else before
    rows = tx.execute(_LIST, (owner, last, limit + 1))
    page = cut_page(rows, limit, size=lambda row: bytes_of(row[4]), cursor=lambda row: str(row[0]))
    return Page(items=tuple(map(event_of, page.items)), next_cursor=page.next_cursor)


def event_of(row: Row) -> Event:
    values: dict[str, Any] = dict(zip(Event.__struct_fields__, row[1:], strict=True))
    values["execution"] = uuid_or_none(values["execution"])
    return Event(**values)


# Events: a tick for each listener, in the transaction that stores the event.

_BY_EVENT: Final = SCHEDULE_SQL.replace(
    "FROM schedule s", "FROM schedule s INDEXED BY schedule_event"
)
# Named, because the planner would rather walk all schedules in the order of their ids.
_LISTENERS: Final = f"""
{_BY_EVENT} WHERE s.tenant = ? AND s.event = ? AND j.is_deleted = 0 ORDER BY s.id
"""
_LAST_TICK: Final = "SELECT max(at) FROM tick WHERE tenant = ? AND schedule = ?"
_RECORD_EVENT: Final = """
INSERT INTO tick (tenant, schedule, at, decision, reason, execution, event)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_COUNT_EVENTS: Final = """
UPDATE schedule SET fired = fired + ?, skipped = skipped + ?, missed = missed + ?,
       last_at = ifnull(?, last_at)
 WHERE tenant = ? AND id = ?
"""


def fire_events(
    tx: Transaction, tenant: str, events: Sequence[tuple[int, Event]]
) -> list[tuple[UUID, ...]]:
    """Fire the schedules that these new events fire, given with their numbers. Return the
    executions of each.
    """
    owner = tx.names.tenant(tx, tenant)
    plan = EventPlan()
    for number, event in events:
        for row in tx.execute(_LISTENERS, (owner, event.name)).fetchall():
            schedule = read_schedule(tx, row)
            if not plan.accepts(schedule, number, event):
                continue
            if schedule.id not in plan.listeners:
                key = owner, schedule.id.bytes
                plan.learn(schedule, tx.execute(_LAST_TICK, key).fetchone()[0])
            plan.add(schedule.id, number, event)
    if not plan.listeners:
        return [()] * len(events)
    creation, meter = Creation(tx, owner), Meter(tx, owner)
    for new in plan.executions:
        creation.add(new, is_new=True)
    answers = creation.finish()
    plan.settle({new.id: answers.get(new.id) or Enqueued(new.id) for new in plan.executions})
    tx.executemany(
        _RECORD_EVENT,
        [
            (
                owner,
                schedule.bytes,
                tick.at,
                DECISION_CODES[tick.decision],
                tick.reason,
                None if tick.execution is None else tick.execution.id.bytes,
                tick.event,
            )
            for schedule, tick in plan.ticks
        ],
    )
    tx.executemany(
        _COUNT_EVENTS,
        [
            (one.fired, one.skipped, one.missed, one.last_at, owner, one.schedule.id.bytes)
            for one in plan.listeners.values()
        ],
    )
    meter.charge(tenant, is_refused=False)
    tx.signals.add(Signal.CLAIM)
    return plan.executions_of([number for number, _ in events])


# Files that schedules wait for.

_WATCHED: Final = """
SELECT path, size, changed_at, inode FROM watched_file WHERE tenant = ? AND root = ?
"""
_NOTE: Final = """
INSERT INTO watched_file (tenant, root, path, size, changed_at, inode) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE
   SET size = excluded.size, changed_at = excluded.changed_at, inode = excluded.inode
"""
_FORGET: Final = "DELETE FROM watched_file WHERE tenant = ? AND root = ? AND path = ?"


def list_listeners(tx: Transaction, tenant: str, event: str) -> list[Schedule]:
    rows = tx.execute(_LISTENERS, (tx.names.tenant(tx, tenant), event)).fetchall()
    return [read_schedule(tx, row) for row in rows]


def watched_files(tx: Transaction, tenant: str, root: str) -> dict[str, FileMark]:
    rows = tx.execute(_WATCHED, (tx.names.tenant(tx, tenant), root))
    return {path: FileMark(size, at, int(inode)) for path, size, at, inode in rows}


def note_files(
    tx: Transaction,
    tenant: str,
    root: str,
    *,
    seen: Mapping[str, FileMark],
    gone: Collection[str] = (),
) -> None:
    owner = tx.names.tenant(tx, tenant)
    rows = [(owner, root, path, *mark[:2], str(mark.inode)) for path, mark in seen.items()]
    tx.executemany(_NOTE, rows)
    tx.executemany(_FORGET, [(owner, root, path) for path in gone])


# Logs of tasks.

_WRITE_LOG: Final = f"""
INSERT INTO log (execution, attempt, number, written_at, text)
SELECT n, attempt, ?, ?, ? FROM execution WHERE {FENCE} ON CONFLICT DO NOTHING
"""
_READ_LOG: Final = f"""
WITH e AS (SELECT n, attempt, log FROM execution WHERE tenant = ? AND id = ?)
SELECT attempt, number, text
  FROM (SELECT log.attempt, number, text FROM log JOIN e ON execution = e.n
        UNION ALL
        SELECT attempt.attempt, {LAST}, attempt.log FROM attempt JOIN e ON execution = e.n
        UNION ALL
        SELECT attempt, {LAST}, log FROM e)
 WHERE text IS NOT NULL AND (attempt, number) > (?, ?) ORDER BY 1, 2 LIMIT ?
"""


def write_log(tx: Transaction, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
    owner = tx.names.tenant(tx, tenant)
    rows = [
        (part.number, tx.now, part.text, *fence(owner, worker.bytes, part))
        for part in parts
        if part.attempt <= checks.ATTEMPT_MAX
    ]
    tx.executemany(_WRITE_LOG, rows)


def read_log(
    tx: Transaction, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
) -> list[LogPart]:
    checks.check_limit(limit)
    owner = tx.names.tenant(tx, tenant)
    return [LogPart(*row) for row in tx.execute(_READ_LOG, (owner, id.bytes, *after, limit))]


def read_logs(
    tx: Transaction, tenant: str, ids: Sequence[UUID], *, start: LogPlace | None = None
) -> Page[FoundPart]:
    checks.check_limit(len(ids))
    owner = tx.names.tenant(tx, tenant)
    first = start or LogPlace(ids[0])
    found = (
        FoundPart(id, LogPart(*row))
        for id in ids
        for row in tx.execute(
            _READ_LOG,
            (owner, id.bytes, *(first.after if id == first.execution else (0, 0)), -1),
        )
    )
    return cut_parts(found)


# Workflow runs: expansion, reading, attempts of nodes, and rerun.


def expand(
    tx: Transaction, tenant: str, worker: UUID, claimed: Claimed, plan: Plan
) -> tuple[bool, list[RunKey]]:
    """Start a claimed run; return the runs that are to be continued."""
    owner = tx.names.tenant(tx, tenant)
    is_made = expand_run(tx, owner, worker.bytes, claimed, plan)
    return is_made, progress.take_pending_runs(tx)


def rerun(
    tx: Transaction,
    tenant: str,
    id: UUID,
    new: NewExecution,
    *,
    labels: Sequence[str] | None = None,
) -> Enqueued:
    answer = enqueue.rerun_nodes(tx, tenant, id, new, labels)
    tx.signals.add(Signal.CLAIM)
    return answer


_HELD_RUN: Final = f"SELECT n, cancel_requested_at FROM execution WHERE {FENCE}"
_BEGIN: Final = "UPDATE execution SET worker = NULL, lease = NULL, started_at = ? WHERE n = ?"


def expand_run(tx: Transaction, owner: int, worker: bytes, claimed: Claimed, plan: Plan) -> bool:
    """Start a run, if this worker still holds it."""
    row = tx.execute(_HELD_RUN, fence(owner, worker, claimed)).fetchone()
    if row is None:
        return False
    n, cancel_requested_at = row
    key, is_cancelled = (owner, claimed.id.bytes), cancel_requested_at is not None
    if is_cancelled and not progress.has_run(tx, n):
        apply_one(tx, owner, worker, after_cancel(claimed))
        return True
    tx.execute(_BEGIN, (tx.now, n))
    if is_cancelled:
        progress.stop_run(tx, key, n)
    else:
        progress.start_run(tx, key, n, plan)
    return True


_TODO: Final = """
SELECT e.tenant, e.id FROM run r JOIN execution e ON e.n = r.execution
 WHERE r.is_todo = 1 AND e.state = 5 AND e.worker IS NULL ORDER BY r.execution LIMIT ?
"""


def find_pending_runs(tx: Transaction, limit: int) -> list[RunKey]:
    """Return runs in which something can be done now."""
    found: list[RunKey] = tx.execute(_TODO, (limit,)).fetchall()
    return [*found, *progress.find_unblocked_runs(tx)][:limit]


_RUN: Final = f"""
SELECT e.n, e.finished_at, {RUN_COLUMNS} FROM execution e JOIN run r ON r.execution = e.n
 WHERE e.tenant = ? AND e.id = ?
"""
_NODES: Final = (
    f"SELECT {NODE_COLUMNS}, result FROM node WHERE run = ? AND of IS NULL ORDER BY place"
)
_EXECUTIONS: Final = """
SELECT e.id, e.state, e.run_at, e.started_at, e.reason
  FROM node CROSS JOIN execution e ON e.tenant = ? AND e.id = node.execution
 WHERE node.run = ? AND node.of IS NULL
"""


def get_run(tx: Transaction, tenant: str, id: UUID) -> RunDetail | None:
    owner = tx.names.tenant(tx, tenant)
    row = tx.execute(_RUN, (owner, id.bytes)).fetchone()
    if row is None:
        return None
    n, finished_at, *columns = row
    executions = {
        UUID(bytes=id): run_driver.ExecutionStatus(
            STATES[shown_state(state, run_at, tx.now)], started_at, run_at, reason
        )
        for id, state, run_at, started_at, reason in tx.execute(_EXECUTIONS, (owner, n))
    }
    rows = tx.execute(_NODES, (n,)).fetchall()
    nodes = [
        run_driver.view_node(node, row[-1], executions)
        for node, row in zip(read_nodes(tx, rows), rows, strict=True)
    ]
    return RunDetail(read_run(id, tuple(columns)), tuple(nodes), finished_at)


# Numbers rise by one with each attempt: rows older than the newest are not even read.
_ATTEMPTS: Final = """
SELECT e.id, a.attempt, a.outcome, a.worker, a.started_at, a.ended_at
  FROM execution r CROSS JOIN node ON node.run = r.n AND node.of IS NULL
       CROSS JOIN execution e ON e.tenant = r.tenant AND e.id = node.execution
       CROSS JOIN attempt a ON a.execution = e.n AND a.attempt >= e.attempt - ?3
 WHERE r.tenant = ?1 AND r.id = ?2
"""
_LAST_ATTEMPTS: Final = """
SELECT e.id, e.attempt, e.outcome, e.worker, e.started_at, e.finished_at
  FROM execution r CROSS JOIN node ON node.run = r.n AND node.of IS NULL
       CROSS JOIN execution e ON e.tenant = r.tenant AND e.id = node.execution
 WHERE r.tenant = ?1 AND r.id = ?2 AND (e.outcome IS NOT NULL OR e.state = 5)
"""


def node_attempts(
    tx: Transaction, tenant: str, id: UUID, *, limit: int = 20
) -> dict[UUID, tuple[AttemptSpan, ...]]:
    checks.check_limit(limit)
    owner = tx.names.tenant(tx, tenant)
    rows = tx.execute(_ATTEMPTS, (owner, id.bytes, limit)).fetchall()
    rows += tx.execute(_LAST_ATTEMPTS, (owner, id.bytes)).fetchall()
    return run_driver.newest_spans(((UUID(bytes=row[0]), _span(*row[1:])) for row in rows), limit)


def _span(
    attempt: int,
    outcome: int | None,
    worker: bytes | None,
    started_at: Instant | None,
    ended_at: Instant | None,
) -> AttemptSpan:
    ended_as = None if outcome is None else OUTCOMES[outcome]
    return AttemptSpan(attempt, ended_as, uuid_or_none(worker), started_at, ended_at)
