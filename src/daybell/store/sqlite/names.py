"""Small numbers for long names: tenants, jobs, lanes and gates, remembered per connection.

A number never changes its meaning, so what is remembered stays true. Which version of a job is the
current one, and what a tenant may use, may change with every commit of any process: that is looked
up once per transaction.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple, TypeAlias

import msgspec

from daybell.core.execution import NewExecution
from daybell.core.instant import Instant, Seconds
from daybell.core.overlap import Overlap, rule_of
from daybell.core.run import NodeEnd
from daybell.core.tenant import Quotas
from daybell.errors import JobNotFound, TenantNotFound, UsageError, shown
from daybell.store.sqlite.node_memory import NodeMemory
from daybell.store.wakeups import Signal

RunKey: TypeAlias = tuple[int, bytes]  # tenant, and the id of its execution

REMEMBERED_MAX: Final = 20_000  # of each sort; then it starts over


class Transaction:
    """What an operation works with: statements, the store's time, and the names known so far.

    `signals` are given to who waits for them once all is committed. `ended` are nodes whose runs
    have to hear of it before that, `stops` runs that are to be stopped before that, and `todo`
    runs in which there is more to do than is done here.
    """

    __slots__ = (
        "_connection",
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
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.names = names
        self.now = now
        self.signals: set[Signal] = set()
        self.ended: dict[RunKey, list[NodeEnd]] = {}
        self.stops: dict[RunKey, None] = {}
        self.todo: dict[RunKey, None] = {}

    def forget(self) -> None:
        """The operation under way is undone."""
        self.ended, self.stops, self.todo = {}, {}, {}

    def changes(self) -> int:
        """How many rows were changed on this connection so far."""
        return self._connection.total_changes


class Version(msgspec.Struct, frozen=True, gc=False):
    """What the hot path needs to know of one version of a job."""

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
    overlap: Overlap  # of what people enqueue
    overlap_of_ticks: Overlap
    depends: bool  # on other jobs

    def rule(self, new: NewExecution) -> Overlap:
        """What happens to an execution if one before it has not finished. A gate that it names
        itself decides that.
        """
        if new.gate is not None:
            return Overlap.ALLOW
        return self.overlap if new.schedule is None else self.overlap_of_ticks


class Definition(msgspec.Struct, frozen=True, gc=False):
    """What that is read from: a tenth of the time that all of `JobDefinition` takes, which counts
    where the schedules of ten thousand jobs are due at once.
    """

    name: str
    kind: str
    queue: str
    priority: int
    max_crashes: int
    on_lost: str
    needs: str | None = None  # said only where it is not the kind
    expires: Seconds | None = None
    overlap: Overlap | None = None
    schedules: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()


_READ: Final = msgspec.json.Decoder(Definition)


class Lane(NamedTuple):
    """What a claim asks for: a queue, and what it takes to run the job."""

    queue: str
    needs: str


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
        # The lanes of queues, by what was asked for; true as long as no lane is added.
        self._lane_lists: dict[tuple[int, tuple[str, ...], tuple[str, ...]], LaneList] = {}
        self._gates: dict[int, str] = {}
        self.nodes = NodeMemory()

    def begin(self) -> None:
        """A transaction begins: what can change between two of them is looked up again."""
        self._current.clear()
        self._quotas.clear()
        self.nodes.begin()
        for known in (self._versions, self._lanes, self._lane_rows, self._lane_lists, self._gates):
            if len(known) > REMEMBERED_MAX:
                known.clear()

    def forget(self) -> None:
        """Something was rolled back, and may have been remembered."""
        for known in vars(self).values():
            known.clear()

    def job_changed(self) -> None:
        """A job has got another current version, or none."""
        self._current.clear()

    def quotas_changed(self) -> None:
        """A tenant has got other quotas."""
        self._quotas.clear()

    def tenant(self, tx: Transaction, name: str) -> int:
        """Raises TenantNotFound."""
        n = self._tenants.get(name)
        if n is None:
            row = tx.execute("SELECT n FROM tenant WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise TenantNotFound(f"no tenant named {shown(name)}")
            n = self._tenants[name] = int(row[0])
        return n

    def tenant_name(self, tx: Transaction, n: int) -> str:
        name = self._tenant_names.get(n)
        if name is None:
            (name,) = tx.execute("SELECT name FROM tenant WHERE n = ?", (n,)).fetchone()
            self._tenant_names[n] = name
        return name

    def quotas(self, tx: Transaction, tenant: int) -> Quotas:
        """How much a tenant may use."""
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
        """The current version of a job. Raises JobNotFound, for a deleted one too."""
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
        """One version of a job, by its number."""
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
                max_crashes=definition.max_crashes,
                retries_lost=definition.on_lost != "dead",
                overlap=rule_of(definition.overlap, is_scheduled=minds),
                overlap_of_ticks=rule_of(
                    definition.overlap,
                    is_scheduled=True,
                    is_dependent=bool(definition.dependencies) and not minds,
                ),
                depends=bool(definition.dependencies),
            )
        return version

    def find_lane(self, tx: Transaction, tenant: int, queue: str, needs: str) -> int | None:
        """A lane that somebody has enqueued to; None: there is none yet."""
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
        """The lanes that there are of each of these queues."""
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
        """A lane, made if it is new."""
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
            lane = self._lane_rows[n] = Lane(*row)
        return lane

    def gate(self, tx: Transaction, tenant: int, name: str) -> int:
        """Raises UsageError for a gate that does not exist."""
        row = tx.execute(
            "SELECT n FROM gate WHERE tenant = ? AND name = ?", (tenant, name)
        ).fetchone()
        if row is None:
            raise UsageError(f"no gate named {shown(name)}; create it with set_gates", field="gate")
        return int(row[0])

    def gate_name(self, tx: Transaction, n: int | None) -> str | None:
        """None for what has no gate."""
        if n is None:
            return None
        name = self._gates.get(n)
        if name is None:
            (name,) = tx.execute("SELECT name FROM gate WHERE n = ?", (n,)).fetchone()
            self._gates[n] = name
        return name
