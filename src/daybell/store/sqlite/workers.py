"""Workers, their leases, and the executions that dead workers hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import asdict, replace

from daybell.core.checks import check_limit
from daybell.core.execution import Losses, Lost, State
from daybell.core.limits import check_labels, check_name
from daybell.core.placement import MARK, OVERDUE_MAX, PREFER_SECONDS, DemandingLane, Site
from daybell.core.units import Instant, Seconds
from daybell.core.worker import UNWATCHED, NewWorker, Offer, Renewal, TenantWork, Watch, Worker
from daybell.errors import LeaseLost
from daybell.store.codec import PRIORITIES, STATE_CODES, WORKER_STATES
from daybell.store.sqlite import gates
from daybell.store.sqlite.gates import LINKS, ExecutionLinks, follow_up
from daybell.store.sqlite.stats import note_ends
from daybell.store.sqlite.transaction import (
    CLAIMED_COLUMNS,
    SERVES,
    SHARED_N,
    Transaction,
    read_claimed,
    uuids,
)
from daybell.store.wakeups import Signal

DEAD: Final = 3
CANCELLED: Final = STATE_CODES[State.CANCELLED]


def register(
    tx: Transaction, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
) -> Renewal:
    check_name(worker.name, what="worker")
    check_labels(worker.labels)
    owner = tx.names.tenant(tx, tenant)
    served = [tx.names.tenant(tx, name) for name in worker.tenants]
    introduce(tx, owner, worker, served if owner == SHARED_N else None)
    if replaces is not None:
        tx.execute(_EXCUSE, (owner, replaces.bytes))
    return prolong(tx, owner, worker.id, lease)


def renew(
    tx: Transaction, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
) -> Renewal:
    owner = tx.names.tenant(tx, tenant)
    check_alive(tx, owner, worker)
    unknown = held_leases(tx, worker.bytes) - {lease.bytes for lease in leases}
    returned = 0
    for one in tenants_of(tx, owner, worker.bytes) if unknown else ():
        returned += hand_back(tx, one, worker.bytes, unknown)
    return replace(prolong(tx, owner, worker, lease), returned=returned)


def renew_idle(
    tx: Transaction, tenant: str, *, workers: Collection[UUID], lease: Seconds
) -> dict[UUID, Renewal]:
    owner = tx.names.tenant(tx, tenant)
    found: dict[UUID, Renewal] = {}
    for worker in workers:
        row = tx.execute(_STATE, (owner, worker.bytes)).fetchone()
        if row is not None and row[0] != DEAD and not held_leases(tx, worker.bytes):
            found[worker] = prolong(tx, owner, worker, lease)
    return found


def release(tx: Transaction, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
    owner = tx.names.tenant(tx, tenant)
    return hand_back(tx, owner, worker.bytes, {lease.bytes for lease in leases})


def lost(
    tx: Transaction,
    *,
    limit: int = 1000,
    since: Instant = -inf,
    not_after: Instant = inf,
    record_every: Seconds = inf,
) -> Losses:
    check_limit(limit)
    mark_dead(tx, since, not_after, record_every)
    return find_lost(tx, limit)


_INTRODUCE: Final = """
INSERT INTO worker (tenant, id, state, started_at, renewed_at, lease_until, about, tenants)
VALUES (?, ?, 1, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""


_EXCUSE: Final = "UPDATE worker SET is_excused = 1 WHERE tenant = ? AND id = ?"


def introduce(tx: Transaction, owner: int, worker: NewWorker, served: Sequence[int] | None) -> None:
    about = msgspec.json.encode(worker).decode()
    tenants = None if served is None else msgspec.json.encode(served).decode()
    tx.execute(_INTRODUCE, (owner, worker.id.bytes, tx.now, tx.now, tx.now, about, tenants))


_STATE: Final = "SELECT state FROM worker WHERE tenant = ? AND id = ?"
_SHARED_STATE: Final = f"""
SELECT w.state FROM worker w WHERE w.tenant = {SHARED_N} AND w.id = ?2 AND {SERVES}
"""


def check_alive(tx: Transaction, owner: int, worker: UUID, *, is_own: bool = False) -> int:
    """Return the state of a worker that may act; a dead worker learns here that it is dead.
    `is_own`: one that serves only this tenant.
    """
    row = tx.execute(_STATE, (owner, worker.bytes)).fetchone()
    if row is None and not is_own:
        row = tx.execute(_SHARED_STATE, (owner, worker.bytes)).fetchone()
    if row is None or row[0] == DEAD:
        raise LeaseLost(f"worker {worker} is not alive here; start again as a new worker")
    return row[0]


_PROLONG: Final = "UPDATE worker SET renewed_at = ?, lease_until = ? WHERE tenant = ? AND id = ?"
_TO_CANCEL: Final = """
SELECT id, attempt FROM execution
 WHERE state = 5 AND worker = ?1 AND (tenant = ?2 OR ?2 = 0) AND cancel_requested_at IS NOT NULL
"""


def prolong(tx: Transaction, owner: int, worker: UUID, lease: Seconds) -> Renewal:
    state = check_alive(tx, owner, worker, is_own=True)
    until = tx.now + lease
    tx.execute(_PROLONG, (tx.now, until, owner, worker.bytes))
    to_cancel = tx.execute(_TO_CANCEL, (worker.bytes, owner))
    return Renewal(
        now=tx.now,
        lease_until=until,
        state=WORKER_STATES[state],
        cancel=tuple((UUID(bytes=id), attempt) for id, attempt in to_cancel),
    )


# From one lease to the next, however many executions are under each.
_NEXT_LEASE: Final = """
SELECT lease FROM execution WHERE state = 5 AND worker = ? AND lease > ? ORDER BY lease LIMIT 1
"""


def held_leases(tx: Transaction, worker: bytes) -> set[bytes]:
    """Return the claims under which a worker still holds executions."""
    found: set[bytes] = set()
    lease = b""
    while row := tx.execute(_NEXT_LEASE, (worker, lease)).fetchone():
        (lease,) = row
        found.add(lease)
    return found


_TENANTS_OF: Final = "SELECT DISTINCT tenant FROM execution WHERE state = 5 AND worker = ?"


def tenants_of(tx: Transaction, owner: int, worker: bytes) -> list[int]:
    """Return the tenants of the executions that a worker holds."""
    if owner != SHARED_N:
        return [owner]
    return [one for (one,) in tx.execute(_TENANTS_OF, (worker,))]


_HELD: Final = "state = 5 AND worker = ? AND lease = ? AND tenant = ?"
_LOG: Final = f"""
INSERT INTO attempt (execution, attempt, outcome, worker, started_at, ended_at)
SELECT n, attempt, 6, worker, started_at, ?
  FROM execution WHERE {_HELD} AND cancel_requested_at IS NULL
"""
_BACK: Final = f"""
UPDATE execution
   SET state = 1, attempt = attempt + 1, run_at = ?, reason = NULL, worker = NULL, lease = NULL,
       started_at = NULL, progress = NULL, note = NULL,
       lane = ifnull((SELECT l.entry FROM lane l WHERE l.n = execution.lane), lane)
 WHERE {_HELD} AND cancel_requested_at IS NULL
"""
_LINKS: Final = f"SELECT n, {LINKS} FROM execution WHERE {_HELD}"
_CANCEL: Final = f"""
UPDATE execution
   SET state = 8, outcome = 5, reason = NULL, finished_at = ?, lease = NULL,
       slot = iif(gate IS NULL, NULL, 0)
 WHERE {_HELD}
"""


def hand_back(tx: Transaction, owner: int, worker: bytes, leases: set[bytes]) -> int:
    """Hand back unfinished executions of leases, uncharged; end those that were to be cancelled."""
    count = 0
    for lease in leases:
        held = worker, lease, owner
        tx.execute(_LOG, (tx.now, *held))
        count += tx.execute(_BACK, (tx.now, *held)).rowcount
        # The remaining executions have been asked to end.
        links = tx.execute(_LINKS, held).fetchall()
        count += tx.execute(_CANCEL, (tx.now, *held)).rowcount
        note_ends(tx, [n for n, *_ in links])
        for n, *row in links:
            follow_up(tx, n, ExecutionLinks(*row), CANCELLED)
    if count:
        tx.signals.add(Signal.CLAIM)
    return count


_DRAIN: Final = "UPDATE worker SET state = 2 WHERE tenant = ? AND id = ? AND state <= 2"
_RETIRE: Final = "UPDATE worker SET state = 3 WHERE tenant = ? AND id = ?"


def drain(tx: Transaction, tenant: str, worker: UUID) -> bool:
    owner = tx.names.tenant(tx, tenant)
    return tx.execute(_DRAIN, (owner, worker.bytes)).rowcount == 1


def retire(tx: Transaction, tenant: str, worker: UUID) -> None:
    owner = tx.names.tenant(tx, tenant)
    tx.execute(_RETIRE, (owner, worker.bytes))


_SOLE: Final = "UPDATE worker SET sole = ? WHERE tenant = ? AND id = ? AND state <= 2"


def record_sole(tx: Transaction, tenant: str, *, worker: UUID, execution: UUID | None) -> bool:
    owner = tx.names.tenant(tx, tenant)
    id = None if execution is None else execution.bytes
    return tx.execute(_SOLE, (id, owner, worker.bytes)).rowcount == 1


_WATCHED: Final = "SELECT watched FROM watch"
_WATCH: Final = """
INSERT INTO watch (n, watched) VALUES (1, ?)
ON CONFLICT (n) DO UPDATE SET watched = excluded.watched
"""
_SILENT: Final = """
SELECT tenant, id, renewed_at, lease_until FROM worker WHERE state <= 2 AND lease_until < ?
"""


def mark_dead(tx: Transaction, since: Instant, not_after: Instant, record_every: Seconds) -> None:
    """Mark workers as dead if their lease has ended in watched time, and record the watch."""
    row = tx.execute(_WATCHED).fetchone()
    known, is_even = Watch.from_json(row and row[0]), tx.now <= not_after
    watch = known.seen(tx.now, since=since, every=record_every) if is_even else UNWATCHED
    if watch != known:
        tx.execute(_WATCH, (watch.to_json(),))
    if not is_even:
        return
    for owner, id, renewed_at, lease_until in tx.execute(_SILENT, (tx.now,)).fetchall():
        if watch.silence(renewed_at, tx.now, since=since) > lease_until - renewed_at:
            tx.execute(_RETIRE, (owner, id))


_DEAD: Final = "SELECT tenant, id, sole, renewed_at, is_excused FROM worker WHERE state = 3"
_LOST: Final = f"""
SELECT {CLAIMED_COLUMNS}, started_at, lease FROM execution
 WHERE state = 5 AND worker = ?1 AND tenant = ?2 LIMIT ?3
"""
_ANY_WAITING: Final = """
SELECT EXISTS (SELECT 1 FROM execution WHERE state = 4)
    OR EXISTS (SELECT 1 FROM run WHERE is_blocked = 1)
"""


def find_lost(tx: Transaction, limit: int) -> Losses:
    """List the executions that dead workers still hold."""
    found: list[Lost] = []
    dead = [
        (one, worker, *rest)
        for owner, worker, *rest in tx.execute(_DEAD).fetchall()
        for one in tenants_of(tx, owner, worker)
    ]
    for owner, worker, sole, renewed_at, is_excused in dead:
        rows = tx.execute(_LOST, (worker, owner, limit - len(found))).fetchall()
        leases, starts = uuids([row[-1] for row in rows]), [row[-2] for row in rows]
        rows, tenant = [row[:-2] for row in rows], tx.names.tenant_name(tx, owner)
        executions = read_claimed(tx, tenant, leases, rows)
        for row, execution, began in zip(rows, executions, starts, strict=True):
            version = tx.names.version(tx, row[3])
            found.append(
                Lost(
                    worker=UUID(bytes=worker),
                    claimed=execution,
                    max_crashes=version.max_crashes,
                    retry=version.retries_lost,
                    ran=None if began is None else max(0.0, renewed_at - began),
                    is_sole=execution.id.bytes == sole,
                    is_excused=bool(is_excused),
                )
            )
    (is_any_waiting,) = tx.execute(_ANY_WAITING).fetchone()
    return Losses(
        now=tx.now,
        executions=found,
        is_any_waiting=bool(is_any_waiting),
        is_any_overdue=gates.is_any_wait_over(tx),
    )


_LIST: Final = f"""
SELECT w.state, w.started_at, w.renewed_at, w.lease_until, w.about,
       (SELECT count(*) FROM execution e
         WHERE e.state = 5 AND e.worker = w.id AND e.tenant = ?1), w.tenants IS NOT NULL,
       CASE WHEN w.tenants IS NULL THEN 0
            ELSE (SELECT count(*) FROM execution e WHERE e.state = 5 AND e.worker = w.id) END
  FROM worker w WHERE {SERVES} AND w.state <= ?2 ORDER BY w.started_at, w.id
"""


def list_workers(tx: Transaction, tenant: str, *, include_dead: bool = False) -> list[Worker]:
    rows = tx.execute(_LIST, (tx.names.tenant(tx, tenant), 3 if include_dead else 2))
    return [read_worker(tenant, *row) for row in rows]


_OFFERS: Final = f"""
SELECT DISTINCT json_extract(about, '$.queues'), json_extract(about, '$.kinds'),
       json_extract(about, '$.tasks'), json_extract(about, '$.labels'),
       json_extract(about, '$.resources')
  FROM worker w WHERE {SERVES} AND state = 1 AND lease_until > ?2
"""


def list_offers(tx: Transaction, tenant: str) -> list[Offer]:
    rows = tx.execute(_OFFERS, (tx.names.tenant(tx, tenant), tx.now))
    return [
        Offer(
            queues=msgspec.json.decode(queues, type=tuple[str, ...]),
            kinds=msgspec.json.decode(kinds, type=tuple[str, ...]),
            tasks=None if tasks is None else msgspec.json.decode(tasks, type=dict[str, str]),
            site=Site(
                labels=msgspec.json.decode(labels, type=dict[str, str]),
                resources=msgspec.json.decode(resources, type=dict[str, float]),
            ),
        )
        for queues, kinds, tasks, labels, resources in rows
    ]


def read_worker(
    tenant: str,
    state: int,
    started_at: Instant,
    renewed_at: Instant,
    lease_until: Instant,
    about: str,
    running: int,
    is_shared: int,
    busy: int,
) -> Worker:
    known = asdict(msgspec.json.decode(about, type=NewWorker))
    del known["tenants"]  # of others
    return Worker(
        **known,
        tenant=tenant,
        is_shared=bool(is_shared),
        busy=busy,
        state=WORKER_STATES[state],
        started_at=started_at,
        renewed_at=renewed_at,
        lease_until=lease_until,
        running=running,
    )


# Tenants with work, for a worker that serves several. Shares and limits are a reason to claim, as a
# claim moves work on. Lanes of shares are as many as keys, and left out.
_SERVED: Final = """
SELECT t.name, t.weight,
       EXISTS (SELECT 1 FROM bucket b WHERE b.tenant = t.n)
    OR EXISTS (SELECT 1 FROM lane l JOIN share s ON s.entry = l.n
                WHERE l.tenant = t.n AND l.ordered IS NOT NULL
                  AND l.queue IN (SELECT value FROM json_each(?1))),
       (SELECT min((SELECT run_at FROM execution e
                     WHERE e.state <= 3 AND e.lane = l.n AND e.priority = p.value
                     ORDER BY run_at LIMIT 1))
          FROM lane l, json_each(?2) p
         WHERE l.tenant = t.n AND l.queue IN (SELECT value FROM json_each(?1))
           AND substr(l.kind, 1, 7) <> 'shares:')
  FROM tenant t WHERE ?3 = '[]' OR t.name IN (SELECT value FROM json_each(?3)) ORDER BY t.n
"""


def list_tenant_work(
    tx: Transaction, tenants: Sequence[str], *, queues: Sequence[str]
) -> list[TenantWork]:
    asked = [msgspec.json.encode(list(one)).decode() for one in (queues, PRIORITIES, tenants)]
    return [
        TenantWork(tenant=name, weight=weight, now=tx.now, next_at=tx.now if is_due else next_at)
        for name, weight, is_due, next_at in tx.execute(_SERVED, asked)
    ]


# Lanes with demands on workers.

_DEMANDING: Final = """
SELECT n, queue, kind FROM lane
 WHERE tenant = ? AND queue IN (SELECT value FROM json_each(?)) AND instr(kind, ?) > 0
 ORDER BY queue, kind
"""
_OLDEST: Final = """
SELECT run_at FROM execution WHERE state <= 3 AND lane = ? AND priority = ? AND run_at <= ?
 ORDER BY run_at LIMIT 1
"""
_OVERDUE: Final = """
SELECT count(*) FROM (SELECT 1 FROM execution
 WHERE state <= 3 AND lane = ? AND priority = ? AND run_at <= ? LIMIT ?)
"""


def list_demands(tx: Transaction, tenant: str, queues: Sequence[str]) -> list[DemandingLane]:
    owner = tx.names.tenant(tx, tenant)
    names = msgspec.json.encode(list(queues)).decode()
    found: list[DemandingLane] = []
    for lane, queue, needs in tx.execute(_DEMANDING, (owner, names, MARK)).fetchall():
        times: list[Instant] = []
        overdue = 0
        for priority in PRIORITIES:
            times += [at for (at,) in tx.execute(_OLDEST, (lane, priority, tx.now))]
            since = tx.now - PREFER_SECONDS
            (n,) = tx.execute(_OVERDUE, (lane, priority, since, OVERDUE_MAX)).fetchone()
            overdue += n
        oldest = min(times, default=None)
        found.append(
            DemandingLane(queue=queue, needs=needs, oldest=oldest, overdue=overdue, now=tx.now)
        )
    return found
