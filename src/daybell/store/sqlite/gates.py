"""Admission and release: gates, quotas, open waits, and the follow-up of an end."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.access import Quotas
from daybell.core.checks import check_limit
from daybell.core.event import Event, Facts, NewEvent, NodeWait, result_of
from daybell.core.execution import State
from daybell.core.lifecycle import FOR_EVENT, Transition
from daybell.core.schedule import DEPENDENCIES, is_backfill, room_of
from daybell.core.units import Instant
from daybell.core.views import Miscount
from daybell.core.workflow.run import NodeEnd
from daybell.store.admin import (
    JOBS_WAIT_SECONDS,
    QUEUED_WAIT_SECONDS,
    minute_of,
    quota_error,
    rest_of_minute,
)
from daybell.store.codec import PRIORITIES, STATE_CODES, STATES
from daybell.store.run_driver import select_waits
from daybell.store.sqlite.stats import note_ends
from daybell.store.sqlite.transaction import Bulk, Transaction
from daybell.store.wakeups import Signal

_MAKE: Final = """
INSERT INTO gate (tenant, name, capacity) VALUES (?, ?, 1) ON CONFLICT DO NOTHING
"""


def make_gates(tx: Transaction, owner: int, gates: Iterable[str]) -> None:
    """Create the missing gates of jobs and schedules, with one slot."""
    tx.executemany(_MAKE, [(owner, gate) for gate in gates])


_FIND: Final = "SELECT n FROM gate WHERE tenant = ? AND name = ?"
_MAKE_ROOM: Final = "INSERT INTO gate (tenant, name, capacity) VALUES (?, ?, ?)"


def find_gate(tx: Transaction, owner: int, name: str) -> int:
    """Return a gate's number. Raises UsageError for a missing gate that is not made by itself."""
    room = room_of(name)
    if room is not None and tx.execute(_FIND, (owner, name)).fetchone() is None:
        tx.execute(_MAKE_ROOM, (owner, name, room))
    return tx.names.gate(tx, owner, name)


_ROOM: Final = "SELECT capacity - holders FROM gate WHERE n = ?"
# One priority at a time: an order over all of them would also read rows that are not due yet.
_DUE: Final = """
SELECT n FROM execution
 WHERE state = 4 AND slot = 0 AND gate = ? AND priority = ? AND run_at <= ?
 ORDER BY run_at, id LIMIT ?
"""
# An execution that waits for dependencies as well waits on, and keeps the slot. For others run_at
# is raised to now, as on PostgreSQL: it shows how long they waited for the slot.
_LET_IN: Final = Bulk(
    f"""
UPDATE execution
   SET slot = 1, state = iif(reason IS '{DEPENDENCIES}', 4, 1),
       run_at = iif(reason IS '{DEPENDENCIES}', run_at, ?),
       reason = iif(reason IS '{DEPENDENCIES}', reason, NULL)
 WHERE n IN (""",
    "?",
    ")",
)
_TAKE_SLOTS: Final = "UPDATE gate SET holders = holders + ? WHERE n = ?"


def admit(tx: Transaction, gate: int, limit: int | None = None) -> int:
    """Admit executions that wait at one gate, are due and find room; return how many."""
    (room,) = tx.execute(_ROOM, (gate,)).fetchone()
    if limit is not None:
        room = min(room, limit)
    admitted: list[int] = []
    for priority in PRIORITIES:
        if len(admitted) >= room:
            break
        due = tx.execute(_DUE, (gate, priority, tx.now, room - len(admitted)))
        admitted += [n for (n,) in due]
    if admitted:
        tx.signals.add(Signal.CLAIM)
        _LET_IN.run(tx, admitted, first=(tx.now,))
        tx.execute(_TAKE_SLOTS, (len(admitted), gate))
    return len(admitted)


# Goes from one gate with waiting executions to the next, however many wait at each.
_NEXT_GATE: Final = """
SELECT gate FROM execution WHERE state = 4 AND slot = 0 AND gate > ? ORDER BY gate LIMIT 1
"""


def admit_all(tx: Transaction, limit: int) -> int:
    admitted = 0
    gate = 0
    while admitted < limit and (row := tx.execute(_NEXT_GATE, (gate,)).fetchone()):
        (gate,) = row
        admitted += admit(tx, gate, limit - admitted)
    return admitted


_FREE: Final = "UPDATE gate SET holders = holders - 1 WHERE n = ?"


def release_slot(tx: Transaction, gate: int) -> None:
    """Release a slot of a gate, and admit the next execution."""
    tx.execute(_FREE, (gate,))
    admit(tx, gate)


_MISCOUNTS: Final = """
SELECT g.n, t.name, g.name, g.holders, g.inside
  FROM (SELECT g.*, (SELECT count(*) FROM execution WHERE slot = 1 AND gate = g.n) AS inside
          FROM gate g) g
  JOIN tenant t ON t.n = g.tenant
 WHERE g.holders <> g.inside ORDER BY t.name, g.name
"""
_SET_HOLDERS: Final = "UPDATE gate SET holders = ? WHERE n = ?"


def miscounts(tx: Transaction) -> list[Miscount]:
    return [
        Miscount(tenant=tenant, gate=name, counted=holders, inside=inside)
        for _, tenant, name, holders, inside in tx.execute(_MISCOUNTS)
    ]


def recount(tx: Transaction) -> tuple[Miscount, ...]:
    """Correct the counts of gates."""
    wrong = tuple(miscounts(tx))
    for n, _, _, _, inside in tx.execute(_MISCOUNTS).fetchall():
        tx.execute(_SET_HOLDERS, (inside, n))
        admit(tx, n)
    return wrong


# The last gate stays: a new gate would get its number, which others remember under its name.
_IDLE: Final = """
SELECT g.n FROM gate g
 WHERE g.holders = 0 AND g.n < (SELECT max(n) FROM gate)
   AND (g.name GLOB 'backfill:*' OR g.name GLOB 'delivery:*' OR g.name GLOB 'job:*' AND EXISTS (
        SELECT 1 FROM job j WHERE j.tenant = g.tenant AND j.name = substr(g.name, 5)
           AND j.is_deleted = 1)
        OR g.name GLOB 'job:*/*' AND (g.tenant, substr(g.name, -32)) NOT IN (
        SELECT tenant, lower(hex(id)) FROM schedule WHERE own_gate = 1))
   AND NOT EXISTS (SELECT 1 FROM execution WHERE state = 4 AND slot = 0 AND gate = g.n)
"""
_NEWEST: Final = "SELECT ifnull(max(n), 0) FROM execution"
_REFERRED: Final = "SELECT DISTINCT gate FROM execution WHERE gate IS NOT NULL"


def unused_gates(tx: Transaction) -> tuple[list[int], int]:
    """Return gates that made themselves and that no execution refers to, ended ones included, and
    the newest execution that was checked. All of them are checked, but no writer waits for that.
    """
    idle = {n for (n,) in tx.execute(_IDLE)}
    if idle:
        idle -= {n for (n,) in tx.execute(_REFERRED)}
    (newest,) = tx.execute(_NEWEST).fetchone()
    return sorted(idle), newest


_REMOVE: Final = """
DELETE FROM gate WHERE n = ?1 AND holders = 0
   AND NOT EXISTS (SELECT 1 FROM execution WHERE n > ?2 AND gate = ?1)
"""


def remove_gates(tx: Transaction, unused: list[int], newest: int) -> int:
    """Remove these gates, except those to which an execution has come since."""
    still = {n for (n,) in tx.execute(_IDLE)}
    rows = [(n, newest) for n in unused if n in still]
    return tx.executemany(_REMOVE, rows).rowcount if rows else 0


# How much a tenant may use.
#
# There is one writer at a time, so the counts stay true until the commit. A tenant without quotas
# pays for one look at its row per transaction.

_LAST: Final = "SELECT ifnull(max(n), 0) FROM execution"
# Executions that a transaction creates have higher numbers than all earlier ones.
_MADE: Final = "SELECT count(*) FROM execution WHERE n > ? AND +tenant = ? AND state <= 5"
_UNFINISHED: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM execution WHERE state <= 3 AND lane IN (SELECT n FROM lane WHERE tenant = ?1)
    UNION ALL SELECT 1 FROM execution WHERE state = 4 AND +tenant = ?1
    UNION ALL SELECT 1 FROM execution WHERE state = 5 AND +tenant = ?1
    LIMIT ?2)
"""
_COUNT: Final = """
INSERT INTO tenant_minute (tenant, minute, enqueued) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET enqueued = enqueued + excluded.enqueued
"""
_COUNTED: Final = "SELECT enqueued FROM tenant_minute WHERE tenant = ? AND minute = ?"


class Meter:
    """Counter of the executions that a tenant with quotas creates in an operation, from here on."""

    def __init__(self, tx: Transaction, owner: int) -> None:
        self._tx = tx
        self._owner = owner
        self._quotas = tx.names.quotas(tx, owner)
        self._is_idle = not self._quotas.limits_enqueues
        self._last = 0 if self._is_idle else tx.execute(_LAST).fetchone()[0]

    def charge(self, tenant: str, *, is_refused: bool = True) -> None:
        """Count new executions, and refuse them if they are too many. Ticks are only counted."""
        if self._is_idle:
            return
        tx, owner, quotas = self._tx, self._owner, self._quotas
        (made,) = tx.execute(_MADE, (self._last, owner)).fetchone()
        if made == 0:
            return
        if is_refused and quotas.queued is not None:
            (found,) = tx.execute(_UNFINISHED, (owner, quotas.queued + 1)).fetchone()
            if found > quotas.queued:
                raise quota_error(tenant, "queued", most=quotas.queued, wait=QUEUED_WAIT_SECONDS)
        if quotas.per_minute is None:
            return
        minute = owner, minute_of(tx.now)
        tx.execute(_COUNT, (*minute, made))
        (counted,) = tx.execute(_COUNTED, minute).fetchone()
        if is_refused and counted > quotas.per_minute:
            wait = rest_of_minute(tx.now)
            raise quota_error(tenant, "per_minute", most=quotas.per_minute, wait=wait)


def queued_room(tx: Transaction, owner: int) -> float:
    """Return how many more unfinished executions a tenant may have."""
    most = tx.names.quotas(tx, owner).queued
    return inf if most is None else most - tx.execute(_UNFINISHED, (owner, most)).fetchone()[0]


# No worker holds a workflow that waits for its nodes.
_RUNNING: Final = """
SELECT count(*) FROM (SELECT 1 FROM execution
                       WHERE state = 5 AND worker IS NOT NULL AND +tenant = ? LIMIT ?)
"""


def running_room(tx: Transaction, owner: int, limit: int) -> int:
    """Return how many of these may be claimed."""
    most = tx.names.quotas(tx, owner).running
    if most is None:
        return limit
    (running,) = tx.execute(_RUNNING, (owner, most)).fetchone()
    return min(limit, most - running)


_JOBS: Final = "SELECT count(*) FROM job WHERE tenant = ? AND is_deleted = 0"


class JobMeter:
    """Counter of the jobs that a tenant with quotas creates in an operation."""

    def __init__(self, tx: Transaction, owner: int) -> None:
        self._tx = tx
        self._owner = owner
        self._quotas: Quotas = tx.names.quotas(tx, owner)
        self._before = 0 if self._quotas.jobs is None else self._count()

    def check(self, tenant: str) -> None:
        """Refuse new jobs beyond the quota."""
        most = self._quotas.jobs
        if most is not None and self._count() > max(most, self._before):
            raise quota_error(tenant, "jobs", most=most, wait=JOBS_WAIT_SECONDS)

    def _count(self) -> int:
        return self._tx.execute(_JOBS, (self._owner,)).fetchone()[0]


# Effects of an end, and the ends of executions that no worker has started.

DEAD: Final = STATE_CODES[State.DEAD]


class ExecutionLinks(NamedTuple):
    """The tenant, gate, schedule and run of an execution."""

    tenant: int
    gate: int | None
    slot: int | None
    schedule: bytes | None
    scheduled_for: Instant | None
    parent: bytes | None
    node: str | None


LINKS: Final = "tenant, gate, slot, schedule, scheduled_for, parent, node"


def follow_up(tx: Transaction, n: int, links: ExecutionLinks, state: int) -> None:
    """Follow up an end: notify the schedule and the run, and hand on the slot."""
    if links.node is not None:
        notify_run(tx, n, links)
    if links.schedule is not None and not is_backfill(tx.names.gate_name(tx, links.gate)):
        notify_schedule(tx, links.tenant, links.schedule, state, links.scheduled_for)
    if links.slot == 1:
        assert links.gate is not None, "a slot is one of a gate"
        release_slot(tx, links.gate)


_STILL_WAITING: Final = f"""
SELECT n, {LINKS} FROM execution
 WHERE tenant = ? AND id = ? AND state = 4 AND reason = '{DEPENDENCIES}'
"""


def skip_waiting(tx: Transaction, owner: int, id: UUID, reason: str | None) -> bool:
    """Skip an execution, if it still waits for the dependencies of its job."""
    row = tx.execute(_STILL_WAITING, (owner, id.bytes)).fetchone()
    if row is None:
        return False
    n, *links = row
    end_unstarted(tx, n, ExecutionLinks(*links), State.SKIPPED, reason)
    return True


_ENDED: Final = """
SELECT id, state, result, reason,
       iif(attempt = 1, started_at,
           ifnull((SELECT min(a.started_at) FROM attempt a WHERE a.execution = execution.n),
                  started_at)),
       finished_at, iif(state = 7, error, NULL)
  FROM execution WHERE n = ?
"""
_DISCARD: Final = "UPDATE execution SET is_discarded = 1 WHERE n = ? AND state = 7"


def notify_run(tx: Transaction, n: int, links: ExecutionLinks) -> None:
    """Notify a run of the end of a node, before the operation is over."""
    assert links.parent is not None and links.node is not None, "a node has a run"
    id, state, *rest = tx.execute(_ENDED, (n,)).fetchone()
    if state == DEAD:  # if need be, the run is the dead letter
        tx.execute(_DISCARD, (n,))
    end = NodeEnd(links.node, UUID(bytes=id), STATES[state], *rest)
    tx.ended.setdefault((links.tenant, links.parent), []).append(end)


_TELL: Final = """
UPDATE schedule
   SET succeeded_for = iif(?1 = 6 AND ?2 IS NOT NULL, max(ifnull(succeeded_for, ?2), ?2),
                           succeeded_for),
       failures = CASE ?1 WHEN 6 THEN 0 WHEN 7 THEN failures + 1 ELSE failures END,
       next_at = iif(delay IS NOT NULL AND next_at IS NULL AND ifnull(?2 >= last_at, 1),
                     ?3 + delay, next_at),
       moved_at = iif(delay IS NOT NULL AND next_at IS NULL, ?3, moved_at)
 WHERE tenant = ?4 AND id = ?5
RETURNING job, failures, ifnull(failures >= pause_after, 0), delay IS NOT NULL
"""


def notify_schedule(
    tx: Transaction, owner: int, schedule: bytes, state: int, scheduled_for: Instant | None
) -> None:
    """Notify the schedule that fired an execution of its end."""
    values = state, scheduled_for, tx.now, owner, schedule
    for job, failures, is_enough, is_delay in tx.execute(_TELL, values).fetchall():
        if is_delay:
            tx.signals.add(Signal.SCHEDULES)
        if state == DEAD and is_enough:
            pause_job(tx, job, f"paused after {failures} failures in a row", again=False)


_PAUSE: Final = """
UPDATE job SET paused_at = ifnull(paused_at, ?), pause_note = ?
 WHERE n = ? AND (paused_at IS NULL OR ?)
"""
_PAUSE_SCHEDULES: Final = "UPDATE schedule SET is_paused = 1 WHERE job = ?"


def pause_job(tx: Transaction, job: int, note: str, *, again: bool = True) -> None:
    """Stop a job's schedules. A paused one gets the new note, if it is `again`."""
    tx.execute(_PAUSE, (tx.now, note, job, int(again)))
    tx.execute(_PAUSE_SCHEDULES, (job,))


_END_UNSTARTED: Final = """
UPDATE execution
   SET state = ?, finished_at = ?, reason = ?, slot = iif(gate IS NULL, NULL, 0)
 WHERE n = ?
"""


def end_unstarted(
    tx: Transaction, n: int, links: ExecutionLinks, state: State, reason: str | None = None
) -> None:
    """End an execution that has not started."""
    tx.execute(_END_UNSTARTED, (STATE_CODES[state], tx.now, reason, n))
    note_ends(tx, [n])
    follow_up(tx, n, links, STATE_CODES[state])


# Open waits: how they end, and how their executions continue.

_HAS_WAIT: Final = """
SELECT 1 FROM execution e JOIN wait w ON w.execution = e.n WHERE e.tenant = ? AND e.id = ? LIMIT 1
"""


def requeue_if_delivered(tx: Transaction, owner: int, move: Transition) -> Transition:
    """Return a move back as it is made. A move that waits for an event is queued instead, if the
    event has come.
    """
    if move.target is not State.WAITING or move.reason != FOR_EVENT:
        return move
    if tx.execute(_HAS_WAIT, (owner, move.id.bytes)).fetchone() is not None:
        return move
    tx.signals.add(Signal.CLAIM)
    return replace(move, target=State.QUEUED, reason=None)


class Wait(NamedTuple):
    """An open wait, with the state of its execution."""

    execution: int
    n: int
    state: int
    match: str
    run_at: Instant

    def may_run(self, now: Instant) -> bool:
        """Return True if a worker holds the execution or can claim it. Then it may be about to
        wait: it learns that a wait has ended when none of its waits is open.
        """
        return self.state != 4 and self.run_at <= now


_LOOK: Final = """
SELECT w.execution, w.n, e.state, w.match, e.run_at
  FROM wait w JOIN execution e ON e.n = w.execution
"""
# The plus sign leaves the way by the keys, or else by the execution.
_BY_KEY: Final = f"""
{_LOOK} WHERE w.tenant = ? AND w.event = ? AND w.key IN (SELECT value FROM json_each(?))
   AND (w.timeout_at IS NULL OR w.timeout_at >= ?)
 ORDER BY w.execution, w.n
"""
_OF_ONE: Final = f"""
{_LOOK} WHERE e.tenant = ? AND +w.event = ? AND e.id = ?
   AND (w.timeout_at IS NULL OR w.timeout_at >= ?)
 ORDER BY w.execution, w.n
"""


def deliver_event(tx: Transaction, owner: int, event: Event, number: int) -> int:
    """Deliver an event to the waits that it fits; return how many executions got it."""
    facts = Facts(event.data)
    if event.execution is None:
        keys = msgspec.json.encode(facts.keys).decode()
        found = tx.execute(_BY_KEY, (owner, event.name, keys, tx.now)).fetchall()
    else:
        own = event.execution.bytes
        found = tx.execute(_OF_ONE, (owner, event.name, own, tx.now)).fetchall()
    waits = map(Wait._make, found)
    return end_waits(
        tx, (wait for wait in waits if facts.meet(wait.match)), result_of(event), number
    )


# From the run down: there may be many waits, and there are few nodes of the run.
_OF_NODES: Final = """
WITH RECURSIVE inside (id, root) AS (
  SELECT ?2, NULL
   UNION ALL
  SELECT v.id, coalesce(i.root, v.node) FROM inside i CROSS JOIN execution v ON v.parent = i.id
   WHERE v.tenant = ?1 AND v.node IS NOT NULL AND v.state = 5 AND v.worker IS NULL)
SELECT v.id, v.node, coalesce(i.root, v.node), w.event, w.match, w.timeout_at
  FROM inside i CROSS JOIN execution v ON v.parent = i.id CROSS JOIN wait w ON w.execution = v.n
 WHERE v.tenant = ?1 AND v.node IS NOT NULL AND v.state <= 5
   AND (w.timeout_at IS NULL OR w.timeout_at >= ?3)
   AND (?4 IS NULL OR (w.event = ?4 AND w.key IN (SELECT value FROM json_each(?5))))
 ORDER BY v.id, w.n LIMIT ?6
"""


def node_waits(
    tx: Transaction, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
) -> list[NodeWait]:
    """Return the waits of a run's nodes."""
    check_limit(limit)
    owner = tx.names.tenant(tx, tenant)
    facts = None if event is None else Facts(event.data)
    keys = None if facts is None else msgspec.json.encode(facts.keys).decode()
    name = None if event is None else event.name
    most = limit if event is None else -1  # it is unknown how many of these the event fits
    rows = tx.execute(_OF_NODES, (owner, run.bytes, tx.now, name, keys, most))
    return select_waits(((UUID(bytes=id), *rest) for id, *rest in rows), facts, limit)


_OVER: Final = f"{_LOOK} WHERE w.timeout_at <= ? ORDER BY w.timeout_at, w.execution, w.n LIMIT ?"


def time_out_waits(tx: Transaction, limit: int) -> int:
    """End the waits that have timed out; return how many."""
    found = tx.execute(_OVER, (tx.now, limit)).fetchall()
    return end_waits(tx, map(Wait._make, found), None, None)


_ANY_OVER: Final = "SELECT EXISTS (SELECT 1 FROM wait WHERE timeout_at <= ?)"


def is_any_wait_over(tx: Transaction) -> bool:
    """Return True if a wait has timed out."""
    return bool(tx.execute(_ANY_OVER, (tx.now,)).fetchone()[0])


_END_STEP: Final = """
UPDATE step SET result = ?, event = ?, finished_at = ?, is_done = 1
 WHERE execution = ? AND n = ? AND is_done = 0
"""
_CLOSE: Final = "DELETE FROM wait WHERE execution = ? AND n = ?"
_CLOSE_ALL: Final = "DELETE FROM wait WHERE execution = ?"
_RESUME: Final = f"""
UPDATE execution SET state = 1, run_at = ?, reason = NULL
 WHERE n = ? AND state = 4 AND reason = '{FOR_EVENT}'
"""


def end_waits(tx: Transaction, waits: Iterable[Wait], result: str | None, event: int | None) -> int:
    """End the first of these waits of each execution. The waits of an ended execution are only
    closed.
    """
    firsts: dict[int, Wait] = {}
    for wait in waits:
        firsts.setdefault(wait.execution, wait)
    if not firsts:
        return 0
    unfinished = [wait for wait in firsts.values() if wait.state <= 5]
    tx.executemany(_CLOSE_ALL, [(n,) for n, wait in firsts.items() if wait.may_run(tx.now)])
    tx.executemany(_CLOSE, [(wait.execution, wait.n) for wait in firsts.values()])
    tx.executemany(
        _END_STEP, [(result, event, tx.now, wait.execution, wait.n) for wait in unfinished]
    )
    tx.executemany(_RESUME, [(tx.now, wait.execution) for wait in unfinished])
    tx.signals.add(Signal.CLAIM)
    return len(unfinished)
