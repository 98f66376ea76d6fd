"""The tables of the memory store: dicts of values that never change.

A write replaces a value and never alters one. So a transaction that fails puts the values of before
back: a small table is copied when the transaction begins, one that grows with the history (`Table`)
remembers its writes. Neither costs more with a longer history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import asdict, replace

from daybell.core import event as news
from daybell.core.access import (
    AuditEntry,
    ChainHead,
    ChainLink,
    Key,
    NewAuditEntry,
    Request,
    Secret,
    Tenant,
    extend_chain,
)
from daybell.core.event import Step
from daybell.core.execution import TERMINAL, AttemptRecord, Claimed, Execution, State, reason_in
from daybell.core.job import Job, JobDefinition, Template
from daybell.core.lifecycle import Occasion, target
from daybell.core.schedule import Schedule, TickRecord
from daybell.core.units import Instant
from daybell.core.worker import LeadershipRecord, Presence, Watch, Worker
from daybell.core.workflow.run import Node, NodeEnd, Run
from daybell.errors import JobNotFound, TenantNotFound, shown
from daybell.store.wakeups import Signal

Clock: TypeAlias = Callable[[], Instant]


K = TypeVar("K")
V = TypeVar("V")
_MISSING: Final = object()
_ALL: Final = object()  # in place of a key: the whole table


class Table(dict[K, V]):
    """A dict that can go back to a mark."""

    def __init__(self) -> None:
        super().__init__()
        self._old: list[tuple[Any, Any]] = []  # before each write: a key, and its value then
        self._mark = 0  # the last one
        self._copy = -1  # where the last copy of all is among those

    def __setitem__(self, key: K, value: V) -> None:
        self._old.append((key, self.get(key, _MISSING)))
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        if self._copy < self._mark:  # a copy, so that all comes back in the same order
            self._copy = len(self._old)
            self._old.append((_ALL, dict(self)))
        super().__delitem__(key)

    def setdefault(self, key: K, default: V) -> V:  # pyright: ignore[reportIncompatibleMethodOverride]
        if key not in self:
            self[key] = default
        return self[key]

    def mark(self) -> int:
        """A place to go back to."""
        self._mark = len(self._old)
        return self._mark

    def is_changed(self, mark: int) -> bool:
        """True if something is not as it was there."""
        changed: dict[Any, Any] = {}
        for key, old in self._old[mark:]:
            changed.setdefault(key, old)
        return any(
            old != self if key is _ALL else old != self.get(key, _MISSING)
            for key, old in changed.items()
        )

    def go_back(self, mark: int) -> None:
        """Undo all writes since a mark."""
        while len(self._old) > mark:
            key, old = self._old.pop()
            if key is _ALL:
                super().clear()
                super().update(old)
            elif old is _MISSING:
                super().pop(key, None)
            else:
                super().__setitem__(key, old)
        self._mark, self._copy = mark, min(self._copy, mark - 1)

    def forget(self) -> None:
        """Keep all writes: no mark is needed any more."""
        self._old.clear()
        self._mark, self._copy = 0, -1


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all its versions, oldest first."""

    versions: tuple[Job, ...]
    is_deleted: bool = False
    paused_at: Instant | None = None
    pause_note: str = ""
    over_at: Instant | None = None  # deleted, or made to run once: looked at by retention since
    unused_at: Instant | None = None  # nothing of it is left since

    @property
    def current(self) -> Job:
        return self.shown(self.versions[-1])

    def shown(self, version: Job) -> Job:
        """One of its versions as people see it."""
        return replace(version, paused_at=self.paused_at, pause_note=self.pause_note)


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key with what people do not see of it."""

    key: Key
    digest: bytes


class SecretRow(msgspec.Struct, frozen=True, kw_only=True):
    """A secret with what people do not see of it."""

    secret: Secret
    sealed: bytes  # empty: it was deleted


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step with the source and id of the event that ended it, if one did."""

    step: Step
    event: tuple[str, str] | None = None


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """An open wait."""

    event: str
    match: str
    timeout_at: Instant | None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An execution with what people do not see of it."""

    execution: Execution  # its state is the stored one; see `shown_state`
    lease: UUID | None = None  # of the claim it is running under
    has_slot: bool = False  # of its gate
    needs: str | None = None  # of a node: what a worker must offer; None: what its job says
    attempts: tuple[AttemptRecord, ...] = ()  # the ended ones, without the final one

    @property
    def key(self) -> tuple[str, UUID]:
        return self.execution.tenant, self.execution.id


class NodeRow(msgspec.Struct, frozen=True):
    """A node of a run with what is kept beside it."""

    node: Node
    spec: str
    input: str | None = None
    result: str | None = None


class RunRow(msgspec.Struct, frozen=True):
    """A run with its nodes, by label."""

    run: Run
    nodes: dict[str, NodeRow]


class Tables(msgspec.Struct):
    """Everything that the store knows. Keys begin with the tenant, so another one's are unknown."""

    tenants: dict[str, Tenant]
    jobs: dict[tuple[str, str], JobRow] = {}
    paused: dict[tuple[str, str], None] = {}
    rows: Table[tuple[str, UUID], Row] = msgspec.field(default_factory=Table)
    live: dict[tuple[str, UUID], Row] = {}  # those of them that have not ended
    workers: dict[tuple[str, UUID], Worker] = {}  # their `running` is counted when they are shown
    excused: set[tuple[str, UUID]] = set()  # workers whose end is not charged
    soles: dict[tuple[str, UUID], UUID | None] = {}  # the only suspects that workers run
    watch: list[Watch] = []  # one at most
    # Every claim that took something, with the worker that made it.
    leases: Table[UUID, tuple[str, UUID]] = msgspec.field(default_factory=Table)
    schedules: dict[tuple[str, UUID], Schedule] = {}
    # So many failures in a row of a schedule pause its job.
    pause_after: dict[tuple[str, UUID], int | None] = {}
    moved_at: dict[tuple[str, UUID], Instant] = {}  # when a schedule's cursor was set
    ticks: Table[tuple[str, UUID, Instant], TickRecord] = msgspec.field(default_factory=Table)
    gates: dict[tuple[str, str], int] = {}  # capacities; holders are counted
    seats: dict[str, LeadershipRecord] = {}  # leaderships
    presences: dict[tuple[str, UUID], Presence] = {}  # who has asked for them
    # By attempt and number of the part: when it was written, and its text.
    logs: Table[tuple[str, UUID, int, int], tuple[Instant, str]] = msgspec.field(
        default_factory=Table
    )
    keys: dict[tuple[str, UUID], KeyRow] = {}
    minutes: dict[tuple[str, int], int] = {}  # how many were enqueued, where that is limited
    # In the order of their numbers.
    audit: Table[tuple[str, UUID], ChainLink] = msgspec.field(default_factory=Table)
    audit_heads: dict[str, ChainHead] = {}
    requests: dict[tuple[str, str], tuple[Instant, Request]] = {}  # and when they came
    secrets: dict[tuple[str, str], SecretRow] = {}
    templates: dict[tuple[str, str], Template] = {}
    steps: dict[tuple[str, UUID, int], StepRow] = {}
    waits: dict[tuple[str, UUID, int], Wait] = {}
    # By source and id, in the order they came: their numbers, and what they say.
    events: dict[tuple[str, str, str], tuple[int, news.Event]] = {}
    runs: dict[tuple[str, UUID], RunRow] = {}  # by the id of their execution
    # Nodes that have ended in this transaction, whose runs are still to hear of it.
    ended: list[tuple[tuple[str, UUID], NodeEnd]] = []
    signals: dict[Signal, None] = {}  # to be given once the transaction is made

    def mark(self) -> list[Any]:
        """A place to go back to, table by table."""
        tables = (getattr(self, name) for name in self.__struct_fields__)
        return [one.mark() if isinstance(one, Table) else one.copy() for one in tables]

    def is_changed(self, marks: list[Any]) -> bool:
        """True if something is not as it was there."""
        tables = (getattr(self, name) for name in self.__struct_fields__)
        return any(
            one.is_changed(mark) if isinstance(one, Table) else one != mark
            for one, mark in zip(tables, marks, strict=True)
        )

    def go_back(self, marks: list[Any]) -> None:
        """Undo all writes since a mark."""
        for name, mark in zip(self.__struct_fields__, marks, strict=True):
            table = getattr(self, name)
            if isinstance(table, Table):
                table.go_back(mark)
            else:
                setattr(self, name, mark)

    def forget(self) -> None:
        """Keep all writes."""
        for name in self.__struct_fields__:
            if isinstance(table := getattr(self, name), Table):
                table.forget()

    def put(self, row: Row) -> None:
        self.rows[row.key] = row
        if row.execution.state in TERMINAL:
            self.live.pop(row.key, None)
        else:
            self.live[row.key] = row

    def record(self, tenant: str, entry: NewAuditEntry, now: Instant) -> None:
        """Append an entry to the tenant's chain, unless it exists."""
        if tenant not in self.tenants:
            raise TenantNotFound(f"no tenant named {shown(tenant)}")
        if (tenant, entry.id) in self.audit:
            return
        made = AuditEntry(tenant=tenant, at=now, **asdict(entry))
        head, (link,) = extend_chain(self.audit_heads.get(tenant, ChainHead()), [made])
        self.audit[tenant, entry.id], self.audit_heads[tenant] = link, head

    def definition(self, execution: Execution) -> JobDefinition:
        """What the job said at the execution's version."""
        return self.jobs[execution.tenant, execution.job].versions[execution.version - 1].definition

    def schedule_of(self, execution: Execution) -> Schedule | None:
        """The schedule that fired it, if it is still there."""
        if execution.schedule is None:
            return None
        return self.schedules.get((execution.tenant, execution.schedule))

    def job(self, tenant: str, name: str, *, or_deleted: bool = False) -> JobRow:
        """A job that can be used; a deleted one only if asked for. Raises JobNotFound."""
        row = self.jobs.get((tenant, name))
        if row is None or (row.is_deleted and not or_deleted):
            raise JobNotFound(f"no job named {shown(name)}")
        return row


def shown_state(execution: Execution, now: Instant) -> State:
    """The state as people see it: what waits only for its time is queued once that has come."""
    if execution.state in (State.SCHEDULED, State.RETRYING) and execution.run_at <= now:
        return target(execution.state, Occasion.DUE)
    return execution.state


def shown_execution(row: Row, now: Instant) -> Execution:
    """An execution as people see it."""
    state = shown_state(row.execution, now)
    return replace(row.execution, state=state, reason=reason_in(state, row.execution.reason))


def claimed(tables: Tables, row: Row) -> Claimed:
    """A running execution as its worker sees it."""
    execution = row.execution
    schedule = tables.schedule_of(execution)
    if execution.node is not None and execution.parent is not None:
        run = tables.rows.get((execution.tenant, execution.parent))
        schedule = (
            None if run is None else tables.schedule_of(run.execution)
        )  # it runs for its tick
    assert row.lease is not None, "only a running execution has a lease"
    return Claimed(
        id=execution.id,
        attempt=execution.attempt,
        lease=row.lease,
        tenant=execution.tenant,
        job=execution.job,
        version=execution.version,
        kind=row.needs or tables.definition(execution).needs,
        queue=execution.queue,
        priority=execution.priority,
        args=execution.args,
        failures=execution.failures,
        crashes=execution.crashes,
        created_at=execution.created_at,
        run_at=execution.run_at,
        expires_at=execution.expires_at,
        scheduled_for=execution.scheduled_for,
        retries=execution.retries,
        timeout=execution.timeout,
        checkpoint=execution.checkpoint,
        gate=execution.gate,
        cancel_requested=execution.cancel_requested_at is not None,
        schedule=execution.schedule,
        previous_success=None if schedule is None else schedule.succeeded_for,
        node=execution.node,
        parent=execution.parent,
    )
