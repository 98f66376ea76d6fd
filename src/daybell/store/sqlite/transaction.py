"""Tools of a transaction: cached names, bulk statements, audit, rows as structs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from sqlite3 import sqlite_version_info
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from daybell.core.access import (
    AuditEntry,
    ChainHead,
    ChainLink,
    NewAuditEntry,
    Quotas,
    extend_chain,
)
from daybell.core.checks import check_entry
from daybell.core.collapse import CollapseRule
from daybell.core.execution import LEFT_OUT, Claimed, Execution, NewExecution
from daybell.core.flow import Policy, base_needs, policy_of
from daybell.core.flow.shares import ShareOption
from daybell.core.limits import LIST_VALUE_BYTES_MAX
from daybell.core.placement import capability_of
from daybell.core.schedule import Overlap, has_times, rule_of
from daybell.core.units import Instant, Seconds
from daybell.core.worker import SHARED
from daybell.core.workflow.run import Node, NodeEnd
from daybell.errors import JobNotFound, TenantNotFound, UsageError, shown
from daybell.store import codec
from daybell.store.admin import PendingEntry
from daybell.store.codec import EXECUTION_COLUMNS, PRIORITIES
from daybell.store.wakeups import Signal

SHARED_N: Final = 0  # in the place of a tenant's number, of workers that serve several
# The workers that serve a tenant (?1): its own, and those that serve several.
SERVES: Final = """(w.tenant = ?1 OR w.tenant = 0 AND (
    w.tenants = '[]' OR EXISTS (SELECT 1 FROM json_each(w.tenants) WHERE value = ?1)))"""

# Nodes of runs, as this connection has left them.
#
# A node is read when it is started and when it ends, and most often the same connection has
# written it a moment ago. So written nodes are remembered, and need not be read and decoded once
# more. They stay true until another connection has written to the file, which SQLite reports, or
# a change is undone.

# Then it starts over.
NODES_MAX: Final = 20_000
RUNS_MAX: Final = 1_000

Known: TypeAlias = tuple[int, int, Node]  # its row's number, and that of its spec's text
Rows: TypeAlias = dict[str, Known]  # by label

# Another number than before: another connection has committed something.
_WRITES: Final = "PRAGMA data_version"


class NodeMemory:
    """The nodes that one connection remembers, which have not ended."""

    def __init__(self) -> None:
        self._runs: dict[int, Rows] = {}
        self._writes = -1
        self._is_checked = False  # in the transaction under way

    def begin(self) -> None:
        """Start a transaction: other connections may have written since the last."""
        self._is_checked = False

    def clear(self) -> None:
        """Clear the memory, because it may not be true."""
        self._runs.clear()

    def of(self, tx: Transaction, run: int) -> Rows:
        """Return the remembered nodes of a run, to be changed with its rows."""
        if not self._is_checked:
            self._check(tx)
        rows = self._runs.get(run)
        if rows is None:
            rows = self._runs[run] = {}
        return rows

    def forget(self, run: int) -> None:
        """Forget a run that has ended, or starts again."""
        self._runs.pop(run, None)

    def _check(self, tx: Transaction) -> None:
        (writes,) = tx.execute(_WRITES).fetchone()
        if writes != self._writes or self._is_full():
            self._runs.clear()
        self._writes = writes
        self._is_checked = True

    def _is_full(self) -> bool:
        if len(self._runs) > RUNS_MAX:
            return True
        return sum(map(len, self._runs.values())) > NODES_MAX


# Small numbers for long names: tenants, jobs, lanes and gates, remembered per connection.
#
# A number never changes its meaning, so remembered numbers stay true. The current version of a
# job and the quotas of a tenant may change with every commit of any process: they are looked up
# once per transaction.

RunKey: TypeAlias = tuple[int, bytes]  # tenant, and the id of its execution

REMEMBERED_MAX: Final = 20_000  # of each sort; then it starts over


class Transaction:
    """The tools of an operation: statements, the store's time, and the names known so far.

    `signals` are given to listeners once all is committed. Before that, the runs of the nodes in
    `ended` are notified, and the runs in `stops` are stopped. `todo` are runs in which there is
    more to do than is done here.
    """

    __slots__ = (
        "_connection",
        "_upkeep_changes",
        "ended",
        "execute",
        "executemany",
        "names",
        "now",
        "signals",
        "stops",
        "todo",
    )

    def __init__(self, connection: sqlite3.Connection, names: Names, now: Instant) -> None:
        self._connection = connection
        self._upkeep_changes = 0
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.names = names
        self.now = now
        self.signals: set[Signal] = set()
        self.ended: dict[RunKey, list[NodeEnd]] = {}
        self.stops: dict[RunKey, None] = {}
        self.todo: dict[RunKey, None] = {}

    def forget(self) -> None:
        """Drop the ends, stops and runs of an operation that is undone."""
        self.ended, self.stops, self.todo = {}, {}, {}

    def changes(self) -> int:
        """Return the number of rows changed by operations on this connection, but for upkeep."""
        return self._connection.total_changes - self._upkeep_changes

    @contextmanager
    def upkeep(self) -> Generator[None]:
        """Do upkeep within an operation; its changes are not those of the operation."""
        before = self.changes()
        yield
        self._upkeep_changes += self.changes() - before


class Version(msgspec.Struct, frozen=True, gc=False):
    """The values of one version of a job that the hot path needs."""

    n: int
    job: int
    name: str
    version: int
    needs: str
    queue: str
    priority: int  # not the enumeration: sqlite3 binds a plain number faster
    expires: Seconds | None
    max_crashes: int
    retries_lost: bool
    overlap: Overlap  # of executions that callers enqueue
    overlap_of_ticks: Overlap
    overlap_of_events: Overlap
    depends: bool  # on other jobs
    collapse: CollapseRule | None  # of requests of a key
    is_shared: bool  # executions take turns
    beside: str | None  # the task that the worker of a parent must have; None: any takes it

    def rule(self, new: NewExecution) -> Overlap:
        """Return the rule for an execution if one before it has not finished. If the execution
        names a gate, that gate decides.
        """
        if new.gate is not None:
            return Overlap.ALLOW
        if new.by_event:
            return self.overlap_of_events
        return self.overlap if new.schedule is None else self.overlap_of_ticks


class Definition(msgspec.Struct, frozen=True, gc=False):
    """The fields that a `Version` is read from. They take a tenth of the time that all of
    `JobDefinition` takes, which counts where schedules of ten thousand jobs are due at once.
    """

    name: str
    kind: str
    queue: str
    priority: int
    max_crashes: int
    on_lost: str
    needs: str | None = None  # set only where it is not the kind
    crashes: int | None = None  # set only where it is not `max_crashes`
    expires: Seconds | None = None
    overlap: Overlap | None = None
    schedules: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    collapse: CollapseRule | None = None
    share: ShareOption | None = None
    beside: str | None = None  # set only with `near`


_READ: Final = msgspec.json.Decoder(Definition)


class Lane(NamedTuple):
    """The terms of a claim: a queue, and the needs of the job."""

    queue: str
    needs: str

    @property
    def demands(self) -> str:
        """The demands on a worker, as text."""
        return self.needs[len(capability_of(self.needs)) :]


class LaneList(NamedTuple):
    """Lanes by queue, as of when the last lane had this number."""

    last: int
    lanes: dict[str, list[int]]


class Names:
    """The names known to one connection."""

    def __init__(self) -> None:
        self._tenants: dict[str, int] = {}
        self._tenant_names: dict[int, str] = {}
        self._quotas: dict[int, Quotas] = {}
        self._current: dict[tuple[int, str], Version] = {}
        self._versions: dict[int, Version] = {}
        self._lanes: dict[tuple[int, str, str], int] = {}
        self._lane_rows: dict[int, Lane] = {}
        # The lanes of queues, by the terms of the claim; true as long as no lane is added.
        self._lane_lists: dict[tuple[int, tuple[str, ...], tuple[str, ...]], LaneList] = {}
        self._gates: dict[int, str] = {}
        self._policies: dict[int, Policy] = {}
        self._entries: dict[int, int | None] = {}
        self._ordered: dict[int, int] = {}
        self.limits_checked_at: dict[int, Instant] = {}  # by tenant
        # Rows of CLAIMED_COLUMNS by id, of claims made here since another connection has written:
        # no other can have ended them, and their ends are counted without reading the rows again.
        self.claims: dict[bytes, Row] = {}
        self._data_version = -1
        self.nodes = NodeMemory()

    def begin(self, connection: sqlite3.Connection) -> None:
        """Forget values that another connection may have changed since the last transaction.

        SQLite counts the commits of other connections; this one reports its own changes by
        `job_changed` and `quotas_changed`.
        """
        (data_version,) = connection.execute("PRAGMA data_version").fetchone()
        if data_version != self._data_version:
            self._data_version = data_version
            self._current.clear()
            self._quotas.clear()
            self.claims.clear()
        self.nodes.begin()
        for known in (
            self._current,
            self._quotas,
            self._versions,
            self._lanes,
            self._lane_rows,
            self._lane_lists,
            self._gates,
            self._policies,
            self._entries,
            self._ordered,
            self.claims,
        ):
            if len(known) > REMEMBERED_MAX:
                known.clear()

    def forget(self) -> None:
        """Forget names that may have been remembered before a rollback."""
        for known in vars(self).values():
            if not isinstance(known, int):
                known.clear()

    def job_changed(self) -> None:
        """Note that a job has another current version, or none."""
        self._current.clear()

    def quotas_changed(self) -> None:
        """Note that a tenant has other quotas."""
        self._quotas.clear()

    def tenant(self, tx: Transaction, name: str) -> int:
        """Return the number of a tenant. Raises TenantNotFound."""
        n = self._tenants.get(name)
        if n is None and name == SHARED:
            return SHARED_N
        if n is None:
            row = tx.execute("SELECT n FROM tenant WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise TenantNotFound(f"no tenant named {shown(name)}")
            n = self._tenants[name] = int(row[0])
        return n

    def tenant_name(self, tx: Transaction, n: int) -> str:
        name = self._tenant_names.get(n)
        if n == SHARED_N:
            return SHARED
        if name is None:
            (name,) = tx.execute("SELECT name FROM tenant WHERE n = ?", (n,)).fetchone()
            self._tenant_names[n] = name
        return name

    def quotas(self, tx: Transaction, tenant: int) -> Quotas:
        """Return the quotas of a tenant."""
        quotas = self._quotas.get(tenant)
        if quotas is None:
            row = tx.execute(
                "SELECT jobs_max, queued_max, per_minute_max, running_max FROM tenant WHERE n = ?",
                (tenant,),
            ).fetchone()
            quotas = self._quotas[tenant] = Quotas(
                jobs=row[0], queued=row[1], per_minute=row[2], running=row[3]
            )
        return quotas

    def current(self, tx: Transaction, tenant: int, name: str) -> Version:
        """Return the current version of a job. Raises JobNotFound, for a deleted one too."""
        version = self._current.get((tenant, name))
        if version is None:
            row = tx.execute(
                "SELECT version FROM job WHERE tenant = ? AND name = ? AND is_deleted = 0",
                (tenant, name),
            ).fetchone()
            if row is None:
                raise JobNotFound(f"no job named {shown(name)}")
            version = self._current[tenant, name] = self.version(tx, row[0])
        return version

    _VERSION = "SELECT job, version, definition FROM job_version WHERE n = ?"

    def version(self, tx: Transaction, n: int) -> Version:
        """Return one version of a job, by its number."""
        version = self._versions.get(n)
        if version is None:
            job, number, text = tx.execute(self._VERSION, (n,)).fetchone()
            definition = _READ.decode(text)
            minds = bool(definition.schedules)
            version = self._versions[n] = Version(
                n=n,
                job=job,
                name=definition.name,
                version=number,
                needs=definition.needs or definition.kind,
                queue=definition.queue,
                priority=definition.priority,
                expires=definition.expires,
                max_crashes=definition.crashes or definition.max_crashes,
                retries_lost=definition.on_lost != "dead",
                overlap=rule_of(definition.overlap, is_scheduled=has_times(definition.schedules)),
                overlap_of_ticks=rule_of(
                    definition.overlap,
                    is_scheduled=True,
                    is_dependent=bool(definition.dependencies) and not minds,
                ),
                overlap_of_events=definition.overlap or Overlap.ALLOW,
                depends=bool(definition.dependencies),
                collapse=definition.collapse,
                is_shared=definition.share is not None,
                beside=definition.beside,
            )
        return version

    def find_lane(self, tx: Transaction, tenant: int, queue: str, needs: str) -> int | None:
        """Return a lane that was enqueued to; None: it does not exist yet."""
        n = self._lanes.get((tenant, queue, needs))
        if n is None:
            row = tx.execute(
                "SELECT n FROM lane WHERE tenant = ? AND queue = ? AND kind = ?",
                (tenant, queue, needs),
            ).fetchone()
            if row is None:
                return None
            n = self._lanes[tenant, queue, needs] = int(row[0])
        return n

    _LAST_LANE = "SELECT ifnull(max(n), 0) FROM lane"
    _LANES = """
    SELECT n FROM lane WHERE tenant = ? AND queue = ? AND kind IN (SELECT value FROM json_each(?))
    """

    def find_lanes(
        self, tx: Transaction, tenant: int, queues: tuple[str, ...], needs: tuple[str, ...]
    ) -> dict[str, list[int]]:
        """Return the existing lanes of each of these queues."""
        # Lanes are numbered one after the other, by one writer at a time, and never go away.
        (last,) = tx.execute(self._LAST_LANE).fetchone()
        known = self._lane_lists.get((tenant, queues, needs))
        if known is None or known.last != last:
            wanted = msgspec.json.encode(needs).decode()
            lanes = {
                queue: [n for (n,) in tx.execute(self._LANES, (tenant, queue, wanted))]
                for queue in queues
            }
            known = self._lane_lists[tenant, queues, needs] = LaneList(last, lanes)
        return known.lanes

    def lane(self, tx: Transaction, tenant: int, queue: str, needs: str) -> int:
        """Return a lane; create it if it is new."""
        n = self.find_lane(tx, tenant, queue, needs)
        if n is None:
            cursor = tx.execute(
                "INSERT INTO lane (tenant, queue, kind) VALUES (?, ?, ?)", (tenant, queue, needs)
            )
            n = cursor.lastrowid
            assert n is not None, "an INSERT has a row"
            self._lanes[tenant, queue, needs] = n
        return n

    def lane_row(self, tx: Transaction, n: int) -> Lane:
        lane = self._lane_rows.get(n)
        if lane is None:
            row = tx.execute("SELECT queue, kind FROM lane WHERE n = ?", (n,)).fetchone()
            lane = self._lane_rows[n] = Lane(row[0], base_needs(row[1]))
        return lane

    def entry_of(self, tx: Transaction, n: int) -> int | None:
        """Return the entry lane of an admitted lane; None: its executions have no limits."""
        if n not in self._entries:
            (self._entries[n],) = tx.execute("SELECT entry FROM lane WHERE n = ?", (n,)).fetchone()
        return self._entries[n]

    def ordered_of(self, tx: Transaction, entry: int) -> int:
        """Return the lane of those executions of an entry lane whose turn it is."""
        if entry not in self._ordered:
            row = tx.execute("SELECT ordered FROM lane WHERE n = ?", (entry,)).fetchone()
            self._ordered[entry] = row[0]
        return self._ordered[entry]

    def policy(self, tx: Transaction, n: int) -> Policy:
        """Return the limits of one version of a job, by its number."""
        policy = self._policies.get(n)
        if policy is None:
            _, _, text = tx.execute(self._VERSION, (n,)).fetchone()
            policy = self._policies[n] = policy_of(text)
        return policy

    def gate(self, tx: Transaction, tenant: int, name: str) -> int:
        """Return the number of a gate. Raises UsageError for a gate that does not exist."""
        row = tx.execute(
            "SELECT n FROM gate WHERE tenant = ? AND name = ?", (tenant, name)
        ).fetchone()
        if row is None:
            raise UsageError(f"no gate named {shown(name)}", field="gate")
        return int(row[0])

    def gate_name(self, tx: Transaction, n: int | None) -> str | None:
        """Return the name of a gate; None for no gate."""
        if n is None:
            return None
        name = self._gates.get(n)
        if name is None:
            (name,) = tx.execute("SELECT name FROM gate WHERE n = ?", (n,)).fetchone()
            self._gates[n] = name
        return name


Row: TypeAlias = tuple[Any, ...]

_UUIDS: Final = list[UUID]


def uuids(values: list[bytes]) -> list[UUID]:
    """Return ids from their bytes, ten times as fast as UUID(bytes=…) one by one."""
    return msgspec.convert(values, _UUIDS)


@lru_cache(maxsize=256)
def parent_id(value: bytes) -> UUID:
    """Return the id of a run, which is cached because many nodes share it."""
    return UUID(bytes=value)


def uuid_or_none(value: bytes | None) -> UUID | None:
    return None if value is None else UUID(bytes=value)


# The columns of `claimed`: n first, for code that has to write the row, then id. Only executions
# of a schedule pay for looking at it; a node runs for the tick of its run.
CLAIMED_COLUMNS: Final = """
n, id, attempt, version, lane, priority, args, failures, crashes, created_at, run_at, expires_at,
scheduled_for, retries, timeout, checkpoint, gate, cancel_requested_at, schedule,
CASE WHEN schedule IS NOT NULL
     THEN (SELECT s.succeeded_for FROM schedule s
            WHERE s.tenant = execution.tenant AND s.id = execution.schedule)
     WHEN node IS NOT NULL AND scheduled_for IS NOT NULL
     THEN (SELECT s.succeeded_for FROM execution r CROSS JOIN schedule s
            WHERE r.tenant = execution.tenant AND r.id = execution.parent
              AND s.tenant = r.tenant AND s.id = r.schedule)
END,
node, parent
"""


def read_claimed(
    tx: Transaction, tenant: str, leases: Sequence[UUID], rows: Sequence[Row]
) -> list[Claimed]:
    """Return executions in a worker's hands, each with its lease."""
    names = tx.names
    versions = {n: names.version(tx, n) for n in {row[3] for row in rows}}
    # Their parts are taken once: for each row they would take as long as all the rest.
    lanes = {
        n: (lane.queue, capability_of(lane.needs), lane.demands, names.entry_of(tx, n) is not None)
        for n in {row[4] for row in rows}
        for lane in (names.lane_row(tx, n),)
    }
    claimed: list[Claimed] = []
    for id, lease, row in zip(uuids([row[1] for row in rows]), leases, rows, strict=True):
        # By position: by name, it takes twice as long.
        (
            _, _, attempt, version, lane, priority, args, failures, crashes, created_at, run_at,
            expires_at, scheduled_for, retries, timeout, checkpoint, gate, cancel_requested_at,
            schedule, previous_success, node, parent,
        ) = row  # fmt: skip
        queue, kind, demands, is_limited = lanes[lane]
        claimed.append(
            Claimed(
                id,
                attempt,
                lease,
                tenant,
                versions[version].name,
                versions[version].version,
                kind,
                queue,
                PRIORITIES[priority],
                args,
                failures,
                crashes,
                created_at,
                run_at,
                expires_at,
                scheduled_for,
                retries,
                timeout,
                checkpoint,
                None if gate is None else names.gate_name(tx, gate),
                cancel_requested_at is not None,
                None if schedule is None else UUID(bytes=schedule),
                previous_success,
                node,
                None if parent is None else parent_id(parent),
                demands,
                is_limited,
            )
        )
    return claimed


SHOWN_COLUMNS: Final = ", ".join(EXECUTION_COLUMNS)
_IDS: Final = ("id", "worker", "schedule", "parent")
# SQLite knows the size of a text without reading it since 3.43.
_SIZE: Final = "octet_length({})" if sqlite_version_info >= (3, 43) else "length(CAST({} AS BLOB))"


def shorten_column(column: str, left_out: str = "NULL") -> str:
    """Return a column of a list: large values are left out."""
    size = _SIZE.format(column)
    return f"CASE WHEN {size} > {LIST_VALUE_BYTES_MAX} THEN {left_out} ELSE {column} END"


_CUT: Final = {
    "args": shorten_column("args", f"'{LEFT_OUT}'"),
    "result": shorten_column("result"),
    "checkpoint": shorten_column("checkpoint"),
}
# The columns that `execution` reads in a list.
LIST_COLUMNS: Final = ", ".join(
    [
        *(_CUT.get(name, name) for name in EXECUTION_COLUMNS),
        " OR ".join(f"{_SIZE.format(name)} > {LIST_VALUE_BYTES_MAX}" for name in _CUT),
    ]
)


def shown_state(state: int, run_at: Instant, now: Instant) -> int:
    """Return the shown state: an execution that only waits for its time is queued once it comes."""
    return 1 if state in (2, 3) and run_at <= now else state


def read_execution(tx: Transaction, tenant: str, row: Row) -> Execution:
    """Return the execution of a row of SHOWN_COLUMNS or LIST_COLUMNS, as clients see it."""
    values = dict(zip(EXECUTION_COLUMNS, row, strict=False))
    for name in _IDS:
        if values[name] is not None:
            values[name] = UUID(bytes=values[name])
    version = tx.names.version(tx, values["version"])
    values["version"] = version.version
    values["gate"] = tx.names.gate_name(tx, values["gate"])
    values["state"] = shown_state(values["state"], values["run_at"], tx.now)
    return codec.read_execution(
        values,
        tenant=tenant,
        job=version.name,
        queue=tx.names.lane_row(tx, values["lane"]).queue,
        truncated=len(row) > len(EXECUTION_COLUMNS) and bool(row[-1]),
    )


# Many rows in one statement.
#
# `executemany` starts a statement anew for every row, and opens each index of the table for it.
# One INSERT with many rows does that once: half the time per row at a thousand rows. Sizes are
# powers of two, so that any number of rows is written by a few statements that are parsed
# already.
#
# The remaining time is mostly that of the values, each of them. Values that rows share are given
# once: see `shared`, and `Groups`.

ROWS_MAX: Final = 256  # of one statement


_OWN: Final = re.compile(r"\?(?!\d)")


class Bulk:
    """A statement with a repeated middle: `head row, row, row tail`. The first `shared`
    parameters are common to all rows and go by their numbers, as ?1, anywhere in it.
    """

    def __init__(self, head: str, row: str, tail: str = "", *, shared: int = 0) -> None:
        self._width = len(_OWN.findall(row))
        sizes = [1 << power for power in range(ROWS_MAX.bit_length())]
        self._statements = {
            size: f"{head} {', '.join(_rows(row, size, shared))} {tail}" for size in sizes
        }

    def run(
        self,
        tx: Transaction,
        values: list[Any],
        *,
        first: Sequence[Any] = (),
        last: Sequence[Any] = (),
    ) -> int:
        """Run it for all values, which are the rows' one after another; answer how many rows it
        changed. `first` and `last` are parameters of the head and the tail.
        """
        return sum(cursor.rowcount for cursor in self._run(tx, values, first, last))

    def fetch(
        self,
        tx: Transaction,
        values: list[Any],
        *,
        first: Sequence[Any] = (),
        last: Sequence[Any] = (),
    ) -> list[Row]:
        """Run it for all values, and return the rows that it returns."""
        return [row for cursor in self._run(tx, values, first, last) for row in cursor.fetchall()]

    def _run(
        self, tx: Transaction, values: list[Any], first: Sequence[Any], last: Sequence[Any]
    ) -> Iterator[sqlite3.Cursor]:
        start = 0
        while rest := (len(values) - start) // self._width:
            size = min(ROWS_MAX, 1 << (rest.bit_length() - 1))  # the largest power of two in it
            end = start + size * self._width
            yield tx.execute(self._statements[size], (*first, *values[start:end], *last))
            start = end


def _rows(row: str, size: int, shared: int) -> list[str]:
    if not shared:
        return [row] * size
    numbers = count(shared + 1)
    return [_OWN.sub(lambda _: f"?{next(numbers)}", row) for _ in range(size)]


class Groups(dict[tuple[Any, ...], list[Any]]):
    """Values of rows, by the values that these share."""

    def __missing__(self, key: tuple[Any, ...]) -> list[Any]:
        values = self[key] = []
        return values

    def run(self, tx: Transaction, bulk: Bulk) -> None:
        """Write all of them."""
        for shared, values in self.items():
            bulk.run(tx, values, first=shared)


# Changes that add an entry to the audit log.

T = TypeVar("T")

_ADD: Final = """
INSERT INTO audit (number, hash, id, tenant, at, actor, action, target, before, after, source)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_HEAD: Final = "SELECT number, hash, removed, anchor FROM audit_head WHERE tenant = ?"
# A head that was deleted does not bring the numbers back.
_NEW_HEAD: Final = """
INSERT INTO audit_head (tenant, number, hash, removed, anchor)
SELECT ?1, ifnull(max(number), 0), x'', 0, x'' FROM audit WHERE tenant = ?1
"""
_MOVE_HEAD: Final = "UPDATE audit_head SET number = ?, hash = ? WHERE tenant = ?"
_KNOWN: Final = "SELECT 1 FROM audit WHERE id = ? AND tenant = ?"


def read_head(tx: Transaction, owner: int) -> ChainHead | None:
    """Return the head of a tenant's chain, if it has one."""
    row = tx.execute(_HEAD, (owner,)).fetchone()
    if row is None:
        return None
    number, last, removed, anchor = row
    return ChainHead(number=number, hash=last, removed=removed, anchor=anchor)


def write_audit(tx: Transaction, tenant: str, entries: Sequence[NewAuditEntry]) -> None:
    for entry in entries:
        check_entry(entry)
    record_entries(tx, tenant, entries)


def record_entries(tx: Transaction, tenant: str, entries: Sequence[NewAuditEntry]) -> None:
    """Append these entries to the tenant's chain, except those that exist."""
    owner = tx.names.tenant(tx, tenant)
    each = {entry.id: entry for entry in entries}
    new = [
        AuditEntry(tenant=tenant, at=tx.now, **asdict(entry))
        for entry in each.values()
        if tx.execute(_KNOWN, (entry.id.bytes, owner)).fetchone() is None
    ]
    if not new:
        return
    head = read_head(tx, owner)
    if head is None:
        tx.execute(_NEW_HEAD, (owner,))
        head = read_head(tx, owner)
        assert head is not None, "it was just inserted"
    head, links = extend_chain(head, new)
    tx.executemany(_ADD, [_entry_row(owner, link) for link in links])
    tx.execute(_MOVE_HEAD, (head.number, head.hash, owner))


def _entry_row(owner: int, link: ChainLink) -> tuple[object, ...]:
    e = link.entry
    about = (e.actor, e.action, e.target, e.before, e.after, e.source)
    return link.number, link.hash, e.id.bytes, owner, e.at, *about


class AuditedOperation:
    """An operation with the entry that tells of it, if it changes anything."""

    def __init__(self, operation: Callable[[Transaction], T], recording: PendingEntry) -> None:
        self._operation = operation
        self._recording = recording
        self._has_changed = False

    def __call__(self, tx: Transaction) -> object:
        before = tx.changes()
        answer = self._operation(tx)
        self._has_changed = tx.changes() > before
        if self._has_changed:
            record_entries(tx, self._recording.tenant, [self._recording.entry])
        return answer

    def committed(self) -> None:
        """Note that the changes of the operation are on disk."""
        if self._has_changed:
            self._recording.committed()
