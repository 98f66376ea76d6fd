"""Limits: admission of executions that need slots of buckets, and the release of these.

A claim calls `admit_due` first, in its own transaction. An execution that asks for admission is in
the entry lane of its queue. Those that find room move to the admitted lane; the others get state 4
and wait at one bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import flow
from daybell.core.execution import State
from daybell.core.flow import (
    FOR_LIMIT,
    Applicant,
    Bucket,
    LimitChange,
    LimitRule,
    LimitState,
    LimitTerms,
    LimitWait,
)
from daybell.core.lifecycle import SUSPECT_CRASHES, Transition
from daybell.core.placement import capability_of
from daybell.core.units import Instant
from daybell.store.codec import PRIORITIES
from daybell.store.sqlite import gates
from daybell.store.sqlite.enqueue import cancel_execution
from daybell.store.sqlite.flow import shares
from daybell.store.sqlite.gates import LINKS, ExecutionLinks
from daybell.store.sqlite.transaction import SERVES, Row, Transaction
from daybell.store.wakeups import Signal

BATCH_MAX: Final = 500  # executions that are admitted or parked in one claim
REPAIR_SECONDS: Final = 2.0
UNCLAIMED_SECONDS: Final = 2.0

_Takes = msgspec.json.Decoder(tuple[tuple[int, int], ...])
_Log = msgspec.json.Decoder(list[tuple[Instant, int]])


class Asked(NamedTuple):
    """An execution that asks for admission or waits for it."""

    n: int
    lane: int
    applicant: Applicant


# The first job that uses a name declares its numbers.
_DECLARE: Final = """
INSERT INTO flow_limit (tenant, name, declared, job) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET declared = excluded.declared
 WHERE job = excluded.job AND declared <> excluded.declared
RETURNING name
"""
_WAKE_ALL: Final = "UPDATE bucket SET wake_at = ? WHERE tenant = ? AND name = ?"


def declare_limits(tx: Transaction, owner: int, job: int, rules: Iterable[LimitRule]) -> None:
    """Keep the numbers of the limits of a job."""
    for rule in rules:
        row = owner, rule.name, rule.terms.to_json(), job
        if tx.execute(_DECLARE, row).fetchall():
            tx.execute(_WAKE_ALL, (tx.now, owner, rule.name))


_IS_ANY: Final = "SELECT 1 FROM holder LIMIT 1"
# An attempt whose end was refused still has its slots.
_OVER: Final = """
UPDATE holder SET is_over = 1, started_at = ifnull(?, started_at)
 WHERE id = ? AND tenant = ? AND attempt = ? AND NOT EXISTS (
       SELECT 1 FROM execution e
        WHERE e.tenant = holder.tenant AND e.id = holder.id AND e.attempt = holder.attempt
          AND (e.state <= 3 OR e.state = 5))
"""


def mark_over(tx: Transaction, owner: int, moves: Iterable[Transition]) -> None:
    """Note that these attempts have ended. The next claim releases their slots."""
    if tx.execute(_IS_ANY).fetchone() is None:
        return
    changed = tx.executemany(
        _OVER,
        [
            (None if move.ran is None else tx.now - move.ran, move.id.bytes, owner, move.attempt)
            for move in moves
        ],
    ).rowcount
    if changed:
        tx.signals.add(Signal.CLAIM)


def admit_due(
    tx: Transaction, owner: int, entries: Sequence[int], *, wanted: int
) -> Instant | None:
    """Admit executions that find room, of these entry lanes and of all that wait. Return the next
    time at which there is more to admit. Of those that take turns, `wanted` go on.
    """
    touched = _release(tx, owner) | _repair(tx, owner) | _woken(tx, owner)
    admission = AdmissionRound(tx, owner, entries)
    admission.add_new(wanted)
    admission.add_waiting(touched)
    admission.decide()
    return admission.next_at()


# Slots of attempts that are over.

_ENDED: Final = """
SELECT h.bucket, h.id, h.cost, h.started_at, h.is_logged
  FROM holder h INDEXED BY holder_over WHERE h.is_over = 1 AND h.tenant = ?
"""
_FREE: Final = "DELETE FROM holder WHERE bucket = ? AND id = ?"
_LOG: Final = "SELECT log FROM bucket WHERE n = ?"
_SET_LOG: Final = "UPDATE bucket SET log = ? WHERE n = ?"


def _release(tx: Transaction, owner: int) -> set[int]:
    """Release the slots of attempts that are over; return their buckets."""
    rows = tx.execute(_ENDED, (owner,)).fetchall()
    starts: dict[int, list[tuple[Instant, int]]] = {}
    for bucket, _, cost, started_at, is_logged in rows:
        if not is_logged:
            starts.setdefault(bucket, []).append((started_at or tx.now, cost))
    _log_starts(tx, starts)
    tx.executemany(_FREE, [(bucket, id) for bucket, id, *_ in rows])
    return {row[0] for row in rows}


def _log_starts(tx: Transaction, starts: Mapping[int, list[tuple[Instant, int]]]) -> None:
    for bucket, found in starts.items():
        (log,) = tx.execute(_LOG, (bucket,)).fetchone()
        tx.execute(_SET_LOG, (_json([*_Log.decode(log), *found]), bucket))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# Attempts whose end no process has reported: of lost workers, of executions that were cancelled or
# have expired before a worker claimed them.
_LEFT: Final = """
UPDATE holder SET is_over = 1
 WHERE tenant = ?1 AND is_over = 0 AND NOT EXISTS (
       SELECT 1 FROM execution e
        WHERE e.tenant = ?1 AND e.id = holder.id AND e.attempt = holder.attempt
          AND (e.state <= 3 OR e.state = 5))
"""
# A start that was reported counts from its time, however long the execution still runs. A suspect
# is reported before it starts: it counts from its end.
_STARTED: Final = f"""
SELECT h.bucket, h.id, h.cost, e.started_at
  FROM holder h JOIN execution e ON e.tenant = h.tenant AND e.id = h.id
 WHERE h.tenant = ? AND h.is_logged = 0 AND h.is_over = 0 AND e.state = 5
   AND e.started_at IS NOT NULL AND e.crashes < {SUSPECT_CRASHES}
"""
_LOGGED: Final = "UPDATE holder SET is_logged = 1 WHERE bucket = ? AND id = ?"
_UNCLAIMED: Final = """
SELECT DISTINCT e.n, e.id, e.lane
  FROM holder h JOIN execution e ON e.tenant = h.tenant AND e.id = h.id
 WHERE h.tenant = ? AND h.is_over = 0 AND h.since < ? AND e.state <= 3
"""
_OTHERS_WAIT: Final = """
SELECT DISTINCT x.lane FROM holder h JOIN waiter w ON w.bucket = h.bucket
  JOIN execution x ON x.tenant = w.tenant AND x.id = w.id AND x.state = 4
 WHERE h.id = ?
"""
_TO_ENTRY: Final = """
UPDATE execution SET lane = (SELECT entry FROM lane WHERE n = execution.lane), run_at = ?
 WHERE n = ?
"""
_OVER_OF: Final = "UPDATE holder SET is_over = 1, is_logged = 1 WHERE id = ?"
_WAITED_FOR: Final = """
SELECT DISTINCT bucket FROM waiter WHERE tenant = ?
"""


def _repair(tx: Transaction, owner: int) -> set[int]:
    """Every few seconds, release slots that were lost, and return all buckets with waiters."""
    if tx.now - tx.names.limits_checked_at.get(owner, -inf) < REPAIR_SECONDS:
        return set()
    tx.names.limits_checked_at[owner] = tx.now
    tx.execute(_LEFT, (owner,))
    starts: dict[int, list[tuple[Instant, int]]] = {}
    started = tx.execute(_STARTED, (owner,)).fetchall()
    for bucket, _, cost, at in started:
        starts.setdefault(bucket, []).append((at, cost))
    _log_starts(tx, starts)
    tx.executemany(_LOGGED, [(bucket, id) for bucket, id, *_ in started])
    live = live_entries(tx, owner)
    for n, id, lane in tx.execute(_UNCLAIMED, (owner, tx.now - UNCLAIMED_SECONDS)).fetchall():
        entry = tx.names.entry_of(tx, lane)
        lanes = {other for (other,) in tx.execute(_OTHERS_WAIT, (id,))} & live
        others = {tx.names.entry_of(tx, other) or other for other in lanes}
        if entry not in live or others - {entry}:
            tx.execute(_OVER_OF, (id,))
            tx.execute(_TO_ENTRY, (tx.now, n))
    return _release(tx, owner) | {n for (n,) in tx.execute(_WAITED_FOR, (owner,))}


_WOKEN: Final = "SELECT n FROM bucket WHERE tenant = ? AND wake_at <= ?"
_WAKE: Final = "UPDATE bucket SET wake_at = ? WHERE n = ?"


def _woken(tx: Transaction, owner: int) -> set[int]:
    """Return the buckets that are due to be checked."""
    woken = [n for (n,) in tx.execute(_WOKEN, (owner, tx.now))]
    tx.executemany(_WAKE, [(None, n) for n in woken])
    return set(woken)


_WORKERS: Final = f"""
SELECT DISTINCT json_extract(about, '$.queues'), json_extract(about, '$.kinds')
  FROM worker w WHERE {SERVES} AND state = 1 AND lease_until > ?2
"""
_ENTRIES: Final = """
SELECT n, queue, kind FROM lane
 WHERE tenant = ? AND (kind GLOB 'limited:*' OR kind GLOB 'ordered:*')
"""
_PAUSED: Final = "SELECT name FROM paused_queue WHERE tenant = ?"


def live_entries(tx: Transaction, owner: int) -> set[int]:
    """Return the entry lanes whose executions a live worker could claim."""
    paused = {name for (name,) in tx.execute(_PAUSED, (owner,))}
    offers: dict[str, set[str]] = {}
    for queues, kinds in tx.execute(_WORKERS, (owner, tx.now)):
        for queue in msgspec.json.decode(queues):
            offers.setdefault(queue, set()).update(msgspec.json.decode(kinds))
    return {
        n for n, queue, needs in tx.execute(_ENTRIES, (owner,))
        if queue not in paused and capability_of(flow.base_needs(needs)) in offers.get(queue, ())
    }  # fmt: skip


# Due executions of one entry lane, as in a claim.
_NEW: Final = """
SELECT n, id, attempt, priority, run_at, version, args FROM execution
 WHERE state <= 3 AND lane = ? AND priority = ? AND run_at <= ? ORDER BY run_at, id LIMIT ?
"""
# An execution that was cancelled, or came back another time, has left its row behind.
_WAITING: Final = """
SELECT w.priority, w.run_at, w.id, w.attempt, w.on_full, w.takes, e.n, e.lane, w.share
  FROM waiter w LEFT JOIN execution e ON e.tenant = w.tenant AND e.id = w.id
       AND e.attempt = w.attempt AND e.state = 4 AND e.reason = 'limit'
 WHERE w.bucket = ? AND (e.n IS NULL OR e.lane IN (SELECT value FROM json_each(?)))
 ORDER BY w.priority, w.run_at, w.id LIMIT ?
"""
_LEAVE: Final = """
DELETE FROM waiter WHERE bucket = ? AND priority = ? AND run_at = ? AND id = ? RETURNING share
"""
_FIND: Final = "SELECT n FROM bucket WHERE tenant = ? AND name = ? AND item = ?"
_MAKE: Final = "INSERT INTO bucket (tenant, name, item, quiet_at) VALUES (?, ?, ?, ?)"
_STATE: Final = """
SELECT b.name, b.item, b.log, max(b.paused_until, l.paused_until), b.wake_at, l.declared, l.changed,
       (SELECT count(*) FROM holder h WHERE h.bucket = b.n),
       (SELECT ifnull(sum(h.cost), 0) FROM holder h WHERE h.bucket = b.n AND h.is_logged = 0)
  FROM bucket b JOIN flow_limit l ON l.tenant = b.tenant AND l.name = b.name WHERE b.n = ?
"""
_HOLD: Final = """
INSERT INTO holder (bucket, id, tenant, attempt, cost, since, is_logged)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_ADMIT: Final = """
UPDATE execution SET state = 1, reason = NULL, run_at = ?,
       lane = (SELECT admitted FROM lane l WHERE l.n = execution.lane) WHERE n = ?
"""
_PARK: Final = f"UPDATE execution SET state = 4, reason = '{FOR_LIMIT}' WHERE n = ?"
_WAIT: Final = """
INSERT OR REPLACE INTO waiter
       (bucket, priority, run_at, id, tenant, attempt, on_full, takes, share)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_LINKS_OF: Final = f"SELECT {LINKS} FROM execution WHERE n = ?"
# One that is to be cancelled already is not cancelled for another.
# A job that does not have this rule loses no execution to one that has.
_OLDEST: Final = """
SELECT id FROM (
  SELECT h.id, 0 AS place, h.since AS since
    FROM holder h JOIN execution e ON e.tenant = h.tenant AND e.id = h.id
         JOIN job_version v ON v.n = e.version
   WHERE h.bucket = ?1 AND e.attempt = h.attempt AND e.state <= 5 AND e.cancel_requested_at IS NULL
     AND json_extract(v.definition, '$.on_full') = 'cancel_oldest'
  UNION ALL
  SELECT w.id, 1, w.run_at
    FROM waiter w JOIN execution e ON e.tenant = w.tenant AND e.id = w.id
   WHERE w.bucket = ?1 AND e.attempt = w.attempt AND e.state = 4 AND w.id < ?2
     AND w.on_full = 'cancel_oldest')
 ORDER BY place, since, id LIMIT 1
"""
_BEFORE: Final = """
SELECT w.priority, w.run_at, w.id, e.n
  FROM waiter w LEFT JOIN execution e ON e.tenant = w.tenant AND e.id = w.id
       AND e.attempt = w.attempt AND e.state = 4 AND e.reason = 'limit'
 WHERE w.bucket = ? AND w.id <> ? AND w.on_full = 'keep_newest'
"""
_KEEP: Final = "UPDATE bucket SET log = ?, wake_at = ?, quiet_at = ? WHERE n = ?"
_NEXT: Final = "SELECT min(wake_at) FROM bucket WHERE tenant = ? AND wake_at IS NOT NULL"
_ANY_WAITING: Final = "SELECT 1 FROM waiter WHERE tenant = ? LIMIT 1"


class AdmissionRound:
    """One round of admission: the applicants and their buckets, read, decided and written."""

    def __init__(self, tx: Transaction, owner: int, entries: Sequence[int]) -> None:
        self._tx = tx
        self._owner = owner
        self._entries = list(entries)
        self._buckets: dict[int, Bucket] = {}
        self._found: dict[UUID, Asked] = {}
        self._kept: dict[int, tuple[str, Instant | None]] = {}  # log and wake_at, as they were read
        self._wake_at: dict[int, Instant] = {}
        self._live_lanes: set[int] | None = None
        self._leaves: set[int] = set()  # whose waiting executions have changed
        self._has_more = False

    def add_new(self, wanted: int) -> None:
        """Add the due executions of the entry lanes, best priority first. Those that take turns go
        to their leaves, and are added when it is their turn.
        """
        names = self._tx.names
        self._add_lanes(self._entries)
        for entry in self._entries:
            shares.take_turns(self._tx, entry, wanted)
        self._add_lanes([names.ordered_of(self._tx, entry) for entry in self._entries])

    def _add_lanes(self, lanes: Sequence[int]) -> None:
        left = BATCH_MAX
        for priority in PRIORITIES:
            for lane in lanes:
                rows = self._tx.execute(_NEW, (lane, priority, self._tx.now, left)).fetchall()
                unsorted: list[tuple[int, int, str]] = []
                for row in rows:
                    if lane in self._entries and self._tx.names.policy(self._tx, row[5]).share:
                        unsorted.append((row[0], row[5], row[6]))
                    else:
                        self._add_new(lane, row)
                shares.sort_rows(self._tx, lane, unsorted)
                left -= len(rows)
                if left == 0:
                    self._has_more = True
                    return

    def _add_new(self, lane: int, row: Row) -> None:
        n, id, attempt, priority, run_at, version, args = row
        tx, owner = self._tx, self._owner
        policy = tx.names.policy(tx, version)
        takes: dict[int, int] = {}
        for (name, item), cost in policy.take(msgspec.json.decode(args)).items():
            found = tx.execute(_FIND, (owner, name, item)).fetchone()
            key = found[0] if found else tx.execute(_MAKE, (owner, name, item, tx.now)).lastrowid
            assert key is not None, "an INSERT has a row"
            takes[key] = cost
        share = None
        if policy.share is not None:
            share = shares.leaf_number(tx, tx.names.entry_of(tx, lane), policy.path(args))
        self._add(Applicant(
            UUID(bytes=id), attempt, priority, run_at, tuple(sorted(takes.items())), policy.on_full,
            share=share,
        ), n, lane)  # fmt: skip

    def _add(self, applicant: Applicant, n: int, lane: int) -> None:
        self._found[applicant.id] = Asked(n, lane, applicant)
        for key, _ in applicant.takes:
            self.bucket(key)

    def bucket(self, key: int) -> Bucket:
        """Return a bucket as it is now."""
        bucket = self._buckets.get(key)
        if bucket is None:
            name, item, log, paused, wake_at, declared, changed, held, unstarted = self._tx.execute(
                _STATE, (key,)
            ).fetchone()
            terms = LimitTerms.from_json(declared).override(LimitTerms.from_json(changed))
            bucket = self._buckets[key] = Bucket(
                key, name, item, terms, held, unstarted, _Log.decode(log), paused
            )
            self._kept[key] = log, wake_at
        return bucket

    def add_waiting(self, touched: Iterable[int]) -> None:
        """Add the first of those that wait at these buckets, and at those of the others, as many as
        there may be room for.
        """
        for key in sorted({*touched, *self._buckets}):
            bucket = self.bucket(key)
            at = bucket.room_at(1, self._tx.now)
            if at <= self._tx.now:
                self._add_waiting(bucket)
            elif at < inf:
                self._wake_at[key] = at

    def _add_waiting(self, bucket: Bucket) -> None:
        tx, left = self._tx, BATCH_MAX
        if bucket.terms.limit is not None:
            left = min(left, bucket.terms.limit - bucket.held)
        live = None
        while left > 0:
            if live is None:
                live = _json(sorted(self._live()))
            rows = tx.execute(_WAITING, (bucket.key, live, left)).fetchall()
            stale = [row for row in rows if row[6] is None]
            for row in stale:
                self._leave_row((bucket.key, *row[:3]))
            if stale:
                continue
            for priority, run_at, id, attempt, on_full, takes, n, lane, share in rows:
                self._add(Applicant(
                    UUID(bytes=id), attempt, priority, run_at, _Takes.decode(takes), on_full,
                    bucket.key, share,
                ), n, lane)  # fmt: skip
            self._has_more |= len(rows) == BATCH_MAX
            return

    def _live(self) -> set[int]:
        """Return the entry lanes whose executions a live worker could claim."""
        if self._live_lanes is None:
            ordered = [self._tx.names.ordered_of(self._tx, entry) for entry in self._entries]
            self._live_lanes = {*self._entries, *ordered, *live_entries(self._tx, self._owner)}
        return self._live_lanes

    def decide(self) -> None:
        """Decide and write."""
        if not self._buckets:
            return
        tx = self._tx
        result = flow.admit(
            [entry.applicant for entry in self._found.values()], self._buckets, now=tx.now
        )
        for one in result.admitted:
            self._admit(one)
        for one, key in result.waiting:
            self._wait(one, key)
        for one in result.skipped:
            self._skip(self._found[one.id].n, one)
        for one, key in result.replacing:
            self._replace(one, key)
        if result.admitted:
            tx.signals.add(Signal.CLAIM)
        self._wake_at |= result.wake_at
        shares.mark_full(tx, self._leaves)
        for key, bucket in self._buckets.items():
            self._keep(key, bucket)

    def _keep(self, key: int, bucket: Bucket) -> None:
        """Write a bucket if it has changed."""
        now, (log, known) = self._tx.now, self._kept[key]
        wake_at = self._wake_at.get(key)
        if wake_at is None and known is not None and known > now:
            wake_at = known
        kept = bucket.compact(now)
        text = _json(kept)
        if (text, wake_at) != (log, known):
            windows = bucket.terms.windows
            quiet_at = kept[-1][0] + max(seconds for _, seconds in windows) if kept else now
            self._tx.execute(_KEEP, (text, wake_at, quiet_at, key))

    def _replace(self, one: Applicant, key: int) -> None:
        """Cancel the oldest of a bucket in favour of a new one."""
        for (id,) in self._tx.execute(_OLDEST, (key, one.id.bytes)).fetchall():
            cancel_execution(self._tx, self._owner, UUID(bytes=id))
            # One that had not started has ended: look for its slot.
            self._tx.names.limits_checked_at.pop(self._owner, None)
            self._has_more = True

    def _admit(self, one: Applicant) -> None:
        tx = self._tx
        self._leave(one)
        tx.execute(_ADMIT, (tx.now, self._found[one.id].n))
        tx.executemany(
            _HOLD,
            [
                (
                    key,
                    one.id.bytes,
                    self._owner,
                    one.attempt,
                    cost,
                    tx.now,
                    0 if self._buckets[key].terms.rates else 1,
                )
                for key, cost in one.takes
            ],
        )

    def _leave(self, one: Applicant) -> None:
        if one.waits_at is not None:
            self._leave_row((one.waits_at, one.priority, one.run_at, one.id.bytes))

    def _leave_row(self, waiter: tuple[object, ...]) -> None:
        for (share,) in self._tx.execute(_LEAVE, waiter).fetchall():
            if share is not None:
                self._leaves.add(share)

    def _wait(self, one: Applicant, key: int) -> None:
        tx = self._tx
        self._leave(one)
        tx.execute(_PARK, (self._found[one.id].n,))
        tx.execute(_WAIT, (
            key, one.priority, one.run_at, one.id.bytes, self._owner, one.attempt, one.on_full,
            _json(one.takes), one.share,
        ))  # fmt: skip
        if one.share is not None:
            self._leaves.add(one.share)
        if one.on_full == "keep_newest" and one.waits_at is None:
            for priority, run_at, id, n in tx.execute(_BEFORE, (key, one.id.bytes)).fetchall():
                self._leave_row((key, priority, run_at, id))
                if n is not None:
                    self._end(n)

    def _skip(self, n: int, one: Applicant) -> None:
        self._leave(one)
        self._end(n)

    def _end(self, n: int) -> None:
        links = ExecutionLinks(*self._tx.execute(_LINKS_OF, (n,)).fetchone())
        gates.end_unstarted(self._tx, n, links, State.SKIPPED, FOR_LIMIT)

    def next_at(self) -> Instant | None:
        """Return the time of the next round that has something to do."""
        tx = self._tx
        if self._has_more:
            return tx.now
        (at,) = tx.execute(_NEXT, (self._owner,)).fetchone()
        if tx.execute(_ANY_WAITING, (self._owner,)).fetchone():
            at = min(tx.now + REPAIR_SECONDS if at is None else at, tx.now + REPAIR_SECONDS)
        return at


# Views and changes.

_LIMITS: Final = f"""
SELECT l.name, l.declared, l.changed, l.paused_until,
       (SELECT count(*) FROM (SELECT 1 FROM bucket b JOIN holder h ON h.bucket = b.n
                               WHERE b.tenant = l.tenant AND b.name = l.name
                               LIMIT {flow.COUNTED} + 1)),
       (SELECT count(*) FROM (SELECT 1 FROM bucket b JOIN waiter w ON w.bucket = b.n
                               WHERE b.tenant = l.tenant AND b.name = l.name
                               LIMIT {flow.COUNTED} + 1)),
       (SELECT count(*) FROM (SELECT 1 FROM bucket b
                               WHERE b.tenant = l.tenant AND b.name = l.name
                               LIMIT {flow.COUNTED} + 1)),
       (SELECT min(b.wake_at) FROM bucket b WHERE b.tenant = l.tenant AND b.name = l.name)
  FROM flow_limit l WHERE l.tenant = ?1 AND (?2 IS NULL OR l.name = ?2)
 ORDER BY l.name LIMIT ifnull(?3, -1)
"""
_BUCKETS: Final = f"""
SELECT b.n, (SELECT count(*) FROM (SELECT 1 FROM waiter w WHERE w.bucket = b.n
                                    LIMIT {flow.COUNTED})) AS waiting
  FROM bucket b WHERE b.tenant = ? AND b.name = ?
 ORDER BY waiting DESC, (SELECT count(*) FROM holder h WHERE h.bucket = b.n) DESC, b.item
 LIMIT {flow.SHOWN_BUCKETS}
"""
_HOLDERS: Final = f"""
SELECT id FROM holder WHERE bucket = ? ORDER BY since, id LIMIT {flow.SHOWN_HOLDERS}
"""


def list_limits(
    tx: Transaction, tenant: str, name: str | None = None, *, most: int | None = None
) -> list[LimitState]:
    owner = tx.names.tenant(tx, tenant)
    found: list[LimitState] = []
    for of, declared, changed, paused_until, *counts, next_at in tx.execute(
        _LIMITS, (owner, name, most)
    ).fetchall():
        buckets = [] if name is None else _bucket_states(tx, owner, of)
        found.append(
            flow.limit_state(
                of,
                LimitTerms.from_json(declared),
                LimitTerms.from_json(changed),
                paused_until=paused_until,
                counts=counts,
                next_at=next_at,
                now=tx.now,
                buckets=buckets,
            )
        )
    return found


def _bucket_states(tx: Transaction, owner: int, name: str) -> list[flow.BucketState]:
    states = AdmissionRound(tx, owner, ())
    return [
        flow.bucket_state(states.bucket(n), waiting=waiting, holders=_holders(tx, n), now=tx.now)
        for n, waiting in tx.execute(_BUCKETS, (owner, name)).fetchall()
    ]


def _holders(tx: Transaction, bucket: int) -> list[UUID]:
    return [UUID(bytes=id) for (id,) in tx.execute(_HOLDERS, (bucket,))]


_CHANGED: Final = "SELECT changed FROM flow_limit WHERE tenant = ? AND name = ?"
_ITEM_OF: Final = """
SELECT b.item FROM holder h JOIN bucket b ON b.n = h.bucket
 WHERE b.tenant = ? AND b.name = ? AND h.id = ?
"""
_CHANGE: Final = "UPDATE flow_limit SET changed = ? WHERE tenant = ? AND name = ?"
_PAUSE: Final = "UPDATE flow_limit SET paused_until = ? WHERE tenant = ? AND name = ?"
_PAUSE_ITEM: Final = """
INSERT INTO bucket (tenant, name, item, paused_until, quiet_at) VALUES (?1, ?2, ?3, ?4, ?4)
    ON CONFLICT DO UPDATE SET paused_until = excluded.paused_until
"""
_RESUME_ITEMS: Final = "UPDATE bucket SET paused_until = 0 WHERE tenant = ? AND name = ?"


def change_limit(tx: Transaction, tenant: str, name: str, change: LimitChange) -> bool:
    owner = tx.names.tenant(tx, tenant)
    row = tx.execute(_CHANGED, (owner, name)).fetchone()
    if row is None:
        return False
    if change.of is not None:
        had = tx.execute(_ITEM_OF, (owner, name, change.of.bytes)).fetchone()
        if had is None:
            return False
        change = replace(change, item=had[0], of=None)
    known = LimitTerms.from_json(row[0])
    terms = change.apply(known)
    if terms != known:
        text = None if terms == LimitTerms() else terms.to_json()
        tx.execute(_CHANGE, (text, owner, name))
    if change.pause is not msgspec.UNSET:
        until = 0.0 if change.pause is None else tx.now + change.pause
        if change.item is not None:
            tx.execute(_PAUSE_ITEM, (owner, name, change.item, until))
        else:
            tx.execute(_PAUSE, (until, owner, name))
            if change.pause is None:
                tx.execute(_RESUME_ITEMS, (owner, name))
    tx.execute(_WAKE_ALL, (tx.now, owner, name))
    tx.signals.add(Signal.CLAIM)
    return True


_WAITS_AT: Final = """
SELECT w.bucket, w.priority, w.run_at, w.id FROM waiter w
  JOIN execution e ON e.tenant = w.tenant AND e.id = w.id AND e.attempt = w.attempt
 WHERE w.tenant = ? AND w.id = ? AND e.state = 4
"""
_AHEAD: Final = f"""
SELECT count(*) FROM (SELECT 1 FROM waiter WHERE bucket = ? AND (priority, run_at, id) < (?, ?, ?)
                       LIMIT {flow.COUNTED})
"""


def limit_wait(tx: Transaction, tenant: str, id: UUID) -> LimitWait | None:
    owner = tx.names.tenant(tx, tenant)
    row = tx.execute(_WAITS_AT, (owner, id.bytes)).fetchone()
    if row is None:
        return None
    (ahead,) = tx.execute(_AHEAD, row).fetchone()
    bucket = AdmissionRound(tx, owner, ()).bucket(row[0])
    shown = flow.bucket_state(bucket, waiting=0, holders=_holders(tx, row[0]), now=tx.now)
    return LimitWait(
        name=bucket.name, item=bucket.item, terms=bucket.terms, ahead=ahead, held=shown.held,
        holders=shown.holders, room_at=shown.room_at, paused_until=shown.paused_until,
    )  # fmt: skip
