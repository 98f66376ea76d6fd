"""Upkeep: leader election, retention, health, and schema migration."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import takewhile
from typing import Final, NamedTuple
from uuid import UUID

from msgspec.structs import asdict

from daybell.core.checks import AUDIT_KEPT_SECONDS, KEY_KEPT_SECONDS, MINUTE_KEPT_SECONDS
from daybell.core.flow import BUCKET_SECONDS_KEPT
from daybell.core.limits import EVENT_SECONDS_KEPT, REPEAT_SECONDS_KEPT
from daybell.core.options import Keep
from daybell.core.units import Instant, Seconds
from daybell.core.views import (
    JOB_AGAIN_SECONDS,
    JOB_UNUSED_SECONDS,
    Check,
    Health,
    KeepPolicies,
    Removed,
    Retention,
    read_keep,
)
from daybell.core.worker import (
    Leadership,
    LeadershipRecord,
    Presence,
    presence_name,
    propose_leadership,
    release_leadership,
    request_leadership,
)
from daybell.errors import UsageError
from daybell.store import migrate
from daybell.store.codec import STATES
from daybell.store.migrate import Applied, Migration
from daybell.store.sqlite.catalog import mark_deleted
from daybell.store.sqlite.connection import (
    APPLICATION_ID,
    IN_MEMORY,
    Clock,
    check_path,
    connect,
    connect_memory,
    create_file,
    find_unwritable,
    retry_while_busy,
    translate_error,
    use_wal,
)
from daybell.store.sqlite.stats import remove_stats
from daybell.store.sqlite.transaction import Bulk, Transaction
from daybell.store.wakeups import Signal

# The elected leader of a role, and the schedules that are due if no process was there before.

# Candidates have rows here, too, named after them, with epoch 0; their `renewed_at` is the start
# of their uptime. Of a leadership, it is until when a process was there without a break.
_SEAT: Final = "SELECT holder, epoch, until, renewed_at FROM leader WHERE name = ?"
_PRESENT: Final = """
SELECT holder, renewed_at, until FROM leader WHERE epoch = 0 AND substr(name, 1, length(?1)) = ?1
"""
_PUT: Final = """
INSERT INTO leader (name, holder, epoch, until, renewed_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, epoch = excluded.epoch, until = excluded.until,
       renewed_at = excluded.renewed_at
"""
_FORGET: Final = """
DELETE FROM leader WHERE epoch = 0 AND substr(name, 1, length(?1)) = ?1 AND until <= ?2
"""


def lead(
    tx: Transaction, name: str, *, holder: UUID, lease: Seconds, since: Instant | None = None
) -> Leadership | None:
    seat = find_seat(tx, name)
    asked = request_leadership(
        seat,
        propose_leadership(name, holder, lease, now=tx.now),
        since=since,
        present={} if since is None else list_presences(tx, name),
        now=tx.now,
    )
    if asked.seat != seat:
        put_seat(tx, asked.seat)
    if asked.presence is not None:
        tx.execute(_FORGET, (presence_name(name), tx.now))
        row = presence_name(name, holder), holder.bytes, 0, asked.presence.until
        tx.execute(_PUT, (*row, asked.presence.since))
    if asked.is_reboot:
        reboot(tx)
    return asked.seat.leadership if asked.leads else None


def find_seat(tx: Transaction, name: str) -> LeadershipRecord | None:
    row = tx.execute(_SEAT, (name,)).fetchone()
    if row is None:
        return None
    holder, epoch, until, seen_at = row
    last = Leadership(name=name, holder=UUID(bytes=holder), epoch=epoch, until=until)
    return LeadershipRecord(leadership=last, seen_at=seen_at)


def put_seat(tx: Transaction, seat: LeadershipRecord) -> None:
    last = seat.leadership
    tx.execute(_PUT, (last.name, last.holder.bytes, last.epoch, last.until, seat.seen_at))


def list_presences(tx: Transaction, name: str) -> dict[UUID, Presence]:
    """Return the candidates of a leadership, each with the time since when it has been up."""
    rows = tx.execute(_PRESENT, (presence_name(name),))
    return {UUID(bytes=holder): Presence(since, until) for holder, since, until in rows}


_REBOOT: Final = "UPDATE schedule SET next_at = ? WHERE is_reboot = 1"


def reboot(tx: Transaction) -> None:
    """Make reboot schedules due: no process was there before."""
    if tx.execute(_REBOOT, (tx.now,)).rowcount:
        tx.signals.add(Signal.SCHEDULES)


_LEAVE: Final = "DELETE FROM leader WHERE name = ? AND epoch = 0"


def resign(tx: Transaction, name: str, *, holder: UUID) -> None:
    seat = find_seat(tx, name)
    if seat is not None:
        # It stays, so that the epoch goes on rising, and it is known how long a process was there.
        put_seat(
            tx, release_leadership(seat, holder, list_presences(tx, name).get(holder), now=tx.now)
        )
        tx.execute(_LEAVE, (presence_name(name, holder),))


_LEADERS: Final = """
SELECT name, holder, epoch, until FROM leader WHERE until > ? AND epoch > 0 ORDER BY name
"""


def list_leaders(tx: Transaction) -> list[Leadership]:
    return [
        Leadership(name=name, holder=UUID(bytes=holder), epoch=epoch, until=until)
        for name, holder, epoch, until in tx.execute(_LEADERS, (tx.now,))
    ]


REMOVED_MAX: Final = 2000  # rows of a sort in one transaction: some 30 ms, so that claims go on
JOBS_MAX: Final = 100  # jobs looked at in one transaction
ROUNDS_MAX: Final = 5  # transactions of one call
LEASE_KEPT_SECONDS: Final = 3600.0  # no worker asks again for a claim that is so old
ROOM_BYTES_LEAST: Final = 1 << 30
WAL_BYTES_MOST: Final = 1 << 28


def add_removed(total: Removed, removed: Removed) -> Removed:
    counts = {name: count + getattr(removed, name) for name, count in asdict(total).items()}
    return Removed(**counts | {"is_complete": removed.is_complete})


def write_header(tx: Transaction) -> None:
    """Write the first page as it is: a full disk is seen only by a commit that writes."""
    tx.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _removal(table: str, key: str, condition: str) -> str:
    """Return a statement that removes rows with this key where a condition holds before a time."""
    return (
        f"DELETE FROM {table} WHERE ({key}) IN"
        f" (SELECT {key} FROM {table} t WHERE {condition} LIMIT ?)"
    )


def _removal_of_first(table: str, key: str, column: str) -> str:
    """Do the same for rows that were written in the order of their numbers: the first ones are
    read, so that a search for old rows does not read all.
    """
    return (
        f"DELETE FROM {table} WHERE {column} < ? AND {key} IN"
        f" (SELECT {key} FROM {table} ORDER BY {key} LIMIT ?)"
    )


_UNFINISHED: Final = "SELECT 1 FROM execution e WHERE e.tenant = t.tenant AND e.state <= 5 AND e.id"
_OLD_ATTEMPTS: Final = _removal("attempt", "n", "ended_at < ?")
_OLD_TICKS: Final = _removal("tick", "tenant, schedule, at", "at < ?")
_OLD_WORKERS: Final = _removal(
    "worker",
    "tenant, id",
    """t.state = 3 AND t.renewed_at < ? AND NOT EXISTS (
       SELECT 1 FROM execution e WHERE e.state = 5 AND e.worker = t.id)""",
)
_OLD_LEASES: Final = _removal_of_first("lease", "n", "claimed_at")
_OLD_LOG_PARTS: Final = _removal_of_first("log", "n", "written_at")
_OLD_REQUESTS: Final = _removal("idempotency", "tenant, key", "at < ?")
_OLD_MINUTES: Final = _removal("tenant_minute", "tenant, minute", "minute * 60 < ?")
_UNUSED_COLLAPSED: Final = _removal(
    "collapsed", "job, key", f"t.keep_until < ? AND NOT EXISTS ({_UNFINISHED} = t.execution)"
)
_OLD_MERGED: Final = _removal("merged", "tenant, request", "at < ?")
# A waiting execution knows its buckets by their numbers.
_UNUSED_BUCKETS: Final = _removal(
    "bucket",
    "n",
    """t.quiet_at < ? AND t.paused_until <= t.quiet_at AND t.wake_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM holder h WHERE h.bucket = t.n)
       AND NOT EXISTS (SELECT 1 FROM waiter w WHERE w.tenant = t.tenant)""",
)
_OLD_KEYS: Final = _removal(
    "api_key", "rowid", "min(ifnull(revoked_at, 9e99), ifnull(expires_at, 9e99)) < ?"
)
_OLD_TRACES: Final = _removal(
    "trace", "tenant, id", f"t.created_at < ? AND NOT EXISTS ({_UNFINISHED} = t.id)"
)
_OLD_EVENT_KEYS: Final = _removal(
    "event_key", "tenant, name, key, received_at, number", "received_at < ?"
)
_OLD_EVENTS: Final = _removal_of_first("event", "number", "received_at")
_MOVE_BOUND: Final = """
UPDATE audit_bound SET since = ?1 WHERE (SELECT at FROM audit ORDER BY rowid LIMIT 1) < ?1
"""
# In the order in which they were written, which is that of each chain.
_FIRST_ENTRIES: Final = "SELECT rowid, tenant, at, number, hash FROM audit ORDER BY rowid LIMIT ?"
_REMOVE_ENTRIES: Final = "DELETE FROM audit WHERE rowid <= ?"
_MOVE_ANCHOR: Final = "UPDATE audit_head SET removed = ?, anchor = ? WHERE tenant = ?"


class RetentionWalk(NamedTuple):
    """A walk through executions in the order of their creation."""

    start: int = 0
    policies: KeepPolicies | None = None  # as they were when it began


_TENANT_POLICIES: Final = "SELECT n, keep FROM tenant WHERE keep IS NOT NULL"
_JOB_POLICIES: Final = """
SELECT j.n, j.tenant, v.definition FROM job_version v JOIN job j ON j.version = v.n
 WHERE instr(v.definition, '"keep":{"')
"""


# What an export still has to write is kept.
_EXPORTED: Final = """
SELECT ifnull(min(json_extract(definition, '$.until')), 9e999) FROM export_policy
"""


def read_policies(tx: Transaction, policy: Retention) -> KeepPolicies:
    tenants = tx.execute(_TENANT_POLICIES)
    jobs = tx.execute(_JOB_POLICIES).fetchall()
    return KeepPolicies(
        policy,
        {n: Keep.from_json(keep) for n, keep in tenants},
        {n: (tenant, read_keep(definition)) for n, tenant, definition in jobs},
    )


def remove(
    tx: Transaction, policy: Retention, walk: RetentionWalk
) -> tuple[RetentionWalk, Removed]:
    """Remove a bounded amount; return where the walk through executions has to go on."""
    policies = walk.policies or read_policies(tx, policy)
    (exported,) = tx.execute(_EXPORTED).fetchone()
    before = min(tx.now - policies.longest, exported)

    def old(statement: str, before: Instant) -> int:
        return tx.execute(statement, (before, REMOVED_MAX)).rowcount

    end, executions, their_attempts, their_parts = remove_executions(
        tx, walk.start, policies, exported
    )
    attempts = old(_OLD_ATTEMPTS, before)
    ticks = old(_OLD_TICKS, min(tx.now - policy.ticks, exported))
    workers = old(_OLD_WORKERS, tx.now - policy.workers)
    leases = old(_OLD_LEASES, tx.now - LEASE_KEPT_SECONDS)
    parts = old(_OLD_LOG_PARTS, before)
    tx.execute(_MOVE_BOUND, (tx.now - AUDIT_KEPT_SECONDS,))
    others = (
        old(_OLD_REQUESTS, tx.now - REPEAT_SECONDS_KEPT),
        old(_OLD_MINUTES, tx.now - MINUTE_KEPT_SECONDS),
        old(_OLD_KEYS, tx.now - KEY_KEPT_SECONDS),
        old(_UNUSED_COLLAPSED, tx.now),
        old(_OLD_MERGED, tx.now - REPEAT_SECONDS_KEPT),
        old(_UNUSED_BUCKETS, tx.now - BUCKET_SECONDS_KEPT),
        old(_OLD_TRACES, before),
        remove_entries(tx, tx.now - AUDIT_KEPT_SECONDS),
        *remove_stats(tx, REMOVED_MAX),
        old(_OLD_EVENTS, tx.now - EVENT_SECONDS_KEPT),
        old(_OLD_EVENT_KEYS, tx.now - EVENT_SECONDS_KEPT),
    )
    most = max(attempts, ticks, workers, leases, parts, *others)
    jobs, has_more_jobs = remove_jobs(tx, before)
    is_complete = end == 0 and most < REMOVED_MAX and not has_more_jobs
    return RetentionWalk(end, policies if end else None), Removed(
        executions=executions,
        attempts=attempts + their_attempts,
        ticks=ticks,
        workers=workers,
        log_parts=parts + their_parts,
        others=sum(others),
        jobs=jobs,
        is_complete=is_complete,
    )


def remove_entries(tx: Transaction, before: Instant) -> int:
    """Remove old entries from the beginnings of the chains; keep the hash of each last one."""
    rows = tx.execute(_FIRST_ENTRIES, (REMOVED_MAX,)).fetchall()
    old = list(takewhile(lambda row: row[2] < before, rows))
    if not old:
        return 0
    tx.execute(_REMOVE_ENTRIES, (old[-1][0],))
    last = {tenant: (number, hash) for _, tenant, _, number, hash in old}
    tx.executemany(_MOVE_ANCHOR, [(*end, tenant) for tenant, end in last.items()])
    return len(old)


# A row with the highest number stays: SQLite would give its number to the next one, and processes
# remember the meaning of numbers.
_OVER_JOBS: Final = """
SELECT j.n, j.tenant, j.name, j.is_deleted, j.unused_at,
       EXISTS (SELECT 1 FROM execution e WHERE e.job = j.n AND e.node IS NULL)
    OR EXISTS (SELECT 1 FROM schedule s
                WHERE s.job = j.n AND (s.next_at IS NOT NULL OR s.since IS NOT NULL
                                       OR s.delay IS NOT NULL OR s.is_reboot = 1
                                       OR s.event IS NOT NULL))
    OR j.unused_at IS NOT NULL AND (j.n = (SELECT max(n) FROM job)
        OR EXISTS (SELECT 1 FROM job_version v
                    WHERE v.job = j.n AND v.n = (SELECT max(n) FROM job_version)))
  FROM job j WHERE j.over_at <= ? ORDER BY j.over_at LIMIT ?
"""
# Nodes are in no index by job. Each of these conditions has an index of its own.
_JOBS_OF_NODES: Final = " UNION ".join(
    f"SELECT job FROM execution WHERE {place} AND node IS NOT NULL AND job IN (SELECT n FROM j)"
    for place in ("state <= 3", "state = 4", "state = 5", "state = 7 AND is_discarded = 0")
)
_WITH_NODES: Final = f"WITH j (n) AS (SELECT value FROM json_each(?)) {_JOBS_OF_NODES}"
_IS_NAMED: Final = """
SELECT 1 FROM job j JOIN job_version v ON v.n = j.version
 WHERE j.tenant = ? AND j.n <> ? AND j.is_deleted = 0 AND instr(v.definition, '"' || ?) > 0
   AND (v.definition LIKE '%"dependencies":["%' OR v.definition LIKE '%"kind":"workflow"%'
        OR v.definition LIKE '%"after%')
 LIMIT 1
"""
_CHECK_AGAIN: Final = "UPDATE job SET over_at = ?, unused_at = ? WHERE n = ?"


def remove_jobs(tx: Transaction, before: Instant) -> tuple[int, bool]:
    """Remove jobs that are over and have no rows left, and delete those that ran once.
    Return how many are gone, and True if there are more to check.
    """
    rows = tx.execute(_OVER_JOBS, (before, JOBS_MAX)).fetchall()
    removed = 0
    idle = [row[0] for row in rows if not row[-1]]
    of_nodes: set[int] = set()
    if idle:
        of_nodes = {n for (n,) in tx.execute(_WITH_NODES, (json.dumps(idle),))}
    for n, tenant, name, is_deleted, unused_at, is_used in rows:
        is_used = is_used or n in of_nodes
        if not is_used and not is_deleted:
            is_used = tx.execute(_IS_NAMED, (tenant, n, name)).fetchone() is not None
        if is_used:
            tx.execute(_CHECK_AGAIN, (before + JOB_AGAIN_SECONDS, None, n))
        elif unused_at is None:
            if not is_deleted:
                mark_deleted(tx, n)
            tx.execute(_CHECK_AGAIN, (tx.now + JOB_UNUSED_SECONDS, tx.now, n))
        else:
            tx.execute("DELETE FROM job_version WHERE job = ?", (n,))
            tx.execute("DELETE FROM job WHERE n = ?", (n,))
            tx.names.job_changed()
            removed += 1
    return removed, len(rows) == JOBS_MAX


_WALK: Final = """
SELECT n, created_at, tenant, job, state, finished_at, state = 7 AND is_discarded = 0,
       result IS NOT NULL, log IS NOT NULL
  FROM execution WHERE n > ? ORDER BY n LIMIT ?
"""


def _bulk(change: str, key: str) -> Bulk:
    return Bulk(f"{change} {key} IN (", "?", ")")


_REMOVE_ATTEMPTS: Final = _bulk("DELETE FROM attempt WHERE", "execution")
_REMOVE_LOG_PARTS: Final = _bulk("DELETE FROM log WHERE", "execution")
# With an execution, or a new one that gets its number would inherit them.
_REMOVE_WITH_ALL: Final = (
    _bulk("DELETE FROM run WHERE", "execution"),
    _bulk("DELETE FROM node WHERE", "run"),
    _bulk("DELETE FROM node_text WHERE", "run"),
    _bulk("DELETE FROM step WHERE", "execution"),
    _bulk("DELETE FROM wait WHERE", "execution"),
    _bulk("DELETE FROM execution WHERE", "n"),
)
_EMPTY_RESULT: Final = _bulk("UPDATE execution SET result = NULL WHERE", "n")
_EMPTY_LOG: Final = _bulk("UPDATE execution SET log = NULL WHERE", "n")
_EMPTY_ATTEMPTS: Final = _bulk(
    "UPDATE attempt SET log = NULL WHERE log IS NOT NULL AND", "execution"
)


def remove_executions(
    tx: Transaction, start: int, policies: KeepPolicies, exported: Instant
) -> tuple[int, int, int, int]:
    """Walk through executions from `start` in the order of their creation, and remove those that
    are over and ended before `exported`. Return where to go on, 0 at the end, and how many
    executions, attempts and parts of logs are gone.
    """
    rows = tx.execute(_WALK, (start, REMOVED_MAX)).fetchall()
    over, logs_over = list[int](), list[int]()
    results, logs = list[int](), list[int]()  # those that have one, although its time is over
    for n, _, tenant, job, code, finished_at, is_letter, has_result, has_log in rows:
        if finished_at is None or finished_at >= exported:
            continue
        age, state = tx.now - finished_at, STATES[code]
        fate = policies.judge(tenant, job, state, age, is_letter=bool(is_letter))
        if fate.is_over:
            over.append(n)
            continue
        if fate.is_result_over and has_result:
            results.append(n)
        if fate.is_log_over:
            logs_over.append(n)
            if has_log:
                logs.append(n)
    attempts = _REMOVE_ATTEMPTS.run(tx, over)
    parts = _REMOVE_LOG_PARTS.run(tx, over + logs_over)
    for removal in _REMOVE_WITH_ALL:
        removal.run(tx, over)
    _EMPTY_RESULT.run(tx, results)
    _EMPTY_LOG.run(tx, logs)
    _EMPTY_ATTEMPTS.run(tx, logs_over)
    # Executions created later than that cannot have ended earlier.
    is_end = len(rows) < REMOVED_MAX or rows[-1][1] >= tx.now - policies.shortest
    return 0 if is_end else rows[-1][0], len(over), attempts, parts


def health(tx: Transaction, path: str) -> Health:
    (schema,) = tx.execute("SELECT max(version) FROM migration").fetchone()
    is_in_memory = path == IN_MEMORY
    checks = (_MEMORY_CHECK,) if is_in_memory else check_file(tx, path)
    return Health(
        product=f"SQLite {sqlite3.sqlite_version}{' in memory' if is_in_memory else ''}",
        now=tx.now,
        schema=schema,
        checks=(Check(name="schema", is_ok=True, found=f"version {schema}"), *checks),
    )


_MEMORY_CHECK: Final = Check(
    name="durability",
    is_ok=False,
    found="in memory: nothing survives the process",
    advice="for tests only; open a file or a server",
)


def check_file(tx: Transaction, path: str) -> tuple[Check, ...]:
    (journal,) = tx.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = tx.execute("PRAGMA synchronous").fetchone()
    durability = Check(
        name="durability",
        is_ok=(journal, synchronous) == ("wal", 2),
        found=f"journal_mode={journal}, synchronous={synchronous}",
        advice="another program has changed the file's settings; open it anew",
    )
    return durability, check_mode(path), check_room(path), check_log(path)


def check_mode(path: str) -> Check:
    barred = find_unwritable(path)
    if barred is not None:
        return Check(
            name="permissions",
            is_ok=False,
            found=f"{barred} may not be written by this user",
            advice=f"nothing can be kept; chmod u+rwX {shlex.quote(barred)}, or run Daybell as the"
            " owner",
        )
    mode = stat.S_IMODE(os.stat(path).st_mode)
    return Check(
        name="permissions",
        is_ok=mode & 0o077 == 0,
        found=f"{mode:04o}",
        advice=f"others can read arguments and results; chmod 600 {shlex.quote(path)}",
    )


def check_room(path: str) -> Check:
    free = shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free
    return Check(
        name="disk",
        is_ok=free >= ROOM_BYTES_LEAST,
        found=f"{free / 1e9:.1f} GB free",
        advice="a full disk stops everything; make room",
    )


def check_log(path: str) -> Check:
    """Check the log: it grows without end while some reader never releases it."""
    try:
        size = os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        size = 0
    return Check(
        name="write-ahead log",
        is_ok=size <= WAL_BYTES_MOST,
        found=f"{size / 1e6:.1f} MB",
        advice="a program keeps a read transaction open on the file; end it",
    )


# Schema migration.

PACKAGE: Final = "daybell.store.sqlite"


def read_applied(path: str) -> list[Applied] | None:
    """Return the steps that a file remembers; None: there is no file."""
    check_path(path)
    if not os.path.exists(path):
        return None
    try:
        with closing(connect(path)) as db:
            return retry_while_busy(lambda: applied_steps(db, path))
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


_HAS_TABLE: Final = "SELECT 1 FROM sqlite_schema WHERE name = 'migration'"
_APPLIED: Final = "SELECT version, name, checksum, is_breaking FROM migration ORDER BY version"


def applied_steps(db: sqlite3.Connection, path: str) -> list[Applied]:
    """Return the steps that a database remembers. Raises UsageError for a foreign database."""
    # In this order: a reader of tables that another process has just made sees its mark as well.
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID and (application or tables):
        raise UsageError(
            f"{path} holds the data of another program; give Daybell a file of its own"
        )
    if db.execute(_HAS_TABLE).fetchone() is None:
        return []
    return [
        Applied(version, name, checksum, bool(is_breaking))
        for version, name, checksum, is_breaking in db.execute(_APPLIED)
    ]


_REMEMBER_STEPS: Final = """
CREATE TABLE IF NOT EXISTS migration (
    version     INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    checksum    TEXT NOT NULL,
    is_breaking INTEGER NOT NULL,
    applied_at  REAL NOT NULL
) STRICT
"""
_REMEMBER: Final = """
INSERT INTO migration (version, name, checksum, is_breaking, applied_at) VALUES (?, ?, ?, ?, ?)
"""


def apply_migrations(path: str, clock: Clock) -> list[Migration]:
    """Make the missing steps, all or none; a second process finds them made."""
    check_path(path)
    create_file(path)
    try:
        with closing(connect(path)) as db:
            # Before anything is changed in another program's file.
            retry_while_busy(lambda: applied_steps(db, path))
            use_wal(db, path)
            retry_while_busy(lambda: db.execute("BEGIN EXCLUSIVE"))
            missing = apply_steps(db, path, clock())
            retry_while_busy(lambda: db.execute("COMMIT"))
            return missing
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


def apply_steps(db: sqlite3.Connection, path: str, now: Instant) -> list[Migration]:
    """Make the missing steps, in the transaction under way."""
    known = migrate.known_migrations(PACKAGE)
    missing = migrate.pending(known, applied_steps(db, path))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(_REMEMBER_STEPS)
    for step in missing:
        row = (step.version, step.name, step.checksum, int(step.is_breaking), now)
        db.execute(_REMEMBER, row)  # first: a step may read its time
        for statement in statements(step.sql):
            db.execute(statement)
    return missing


# Databases in memory. The schema is made once in a process, and copied for each of them.


def create_in_memory(clock: Clock) -> sqlite3.Connection:
    """Create an empty database in memory."""
    db = connect_memory()
    with _COPYING:
        _template().backup(db)
    db.execute("UPDATE tenant SET created_at = ?", (clock(),))
    return db


_COPYING: Final = threading.Lock()


@cache
def _template() -> sqlite3.Connection:
    db = connect_memory()
    db.execute("BEGIN")
    apply_steps(db, IN_MEMORY, 0.0)
    db.execute("COMMIT")
    return db


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one, because `executescript` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
