"""Cached numbers of tenants, jobs and lanes, the resolved names of a batch, and the column lists
that statements share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.access import Quotas
from daybell.core.collapse import CollapseRule
from daybell.core.execution import NewExecution, Priority
from daybell.core.flow import base_needs, is_admitted
from daybell.core.flow.shares import ShareOption
from daybell.core.limits import PAGE_BYTES_MAX
from daybell.core.options import DEFAULT_QUEUE
from daybell.core.placement import capability_of
from daybell.core.schedule import Overlap, gate_for, gate_of, has_times, rule_of
from daybell.core.units import Seconds
from daybell.core.views import ITEM_BYTES
from daybell.core.worker import SHARED
from daybell.errors import JobNotFound, TenantNotFound, shown
from daybell.store.postgres.connection import Link, Row


class Brief(msgspec.Struct, frozen=True, gc=False):
    """The part of a definition that an enqueue needs; to read all of it takes ten times as long."""

    name: str
    kind: str = "task"
    needs: str | None = None  # specified only where it is not the kind
    queue: str = DEFAULT_QUEUE
    priority: Priority = Priority.NORMAL
    expires: Seconds | None = None
    overlap: Overlap | None = None
    schedules: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    collapse: CollapseRule | None = None
    share: ShareOption | None = None
    beside: str | None = None  # specified only with `near`


FRESH_SECONDS: Final[Seconds] = 4.0  # the store heeds a change of another process within 5
SHARED_KEY: Final = 0  # in the place of a tenant's number, of workers that serve several
TENANT: Final = """
    SELECT key, jobs_max, queued_max, per_minute_max, running_max FROM daybell.tenant"""

_read: Final = msgspec.json.Decoder(Brief).decode


class CurrentJob(msgspec.Struct, frozen=True, gc=False):
    """The properties of a job that an enqueue needs."""

    key: int
    version: int
    needs: str
    queue: str
    priority: Priority
    expires: Seconds | None
    gate: str  # its own, for those that mind
    overlap: Overlap  # the rule while a predecessor has not finished
    tick_overlap: Overlap  # the same for an execution of a schedule
    event_overlap: Overlap  # the same for one that an event fires
    depends: bool  # on other jobs
    collapse: CollapseRule | None  # of requests of a key
    is_shared: bool  # executions take turns
    beside: str | None  # the task that the worker of a parent must have; None: any takes it


class LaneRow(msgspec.Struct, frozen=True, gc=False):
    """The queue and the needs that a lane stands for."""

    queue: str
    kind: str  # the capability
    demands: str
    is_admitted: bool = False  # its executions hold limits

    @property
    def needs(self) -> str:
        """What a worker has to offer: the capability and the demands."""
        return self.kind + self.demands


class Lanes(msgspec.Struct, frozen=True, gc=False):
    """The lanes of queues, by queue; each with the queue that it belongs to."""

    keys: list[int]
    queues: list[str]
    admitted: frozenset[int] = frozenset()  # those of executions that hold limits

    @property
    def are_shared(self) -> bool:
        """Return True if a queue has several of them."""
        return len(set(self.queues)) < len(self.queues)


def read_quotas(row: Row) -> Quotas:
    """Return quotas from their columns."""
    return Quotas(
        jobs=row["jobs_max"],
        queued=row["queued_max"],
        per_minute=row["per_minute_max"],
        running=row["running_max"],
    )


class Names:
    """The numbers known so far. Every lookup that misses reads the database once."""

    def __init__(self, *, apart: Callable[[], AbstractAsyncContextManager[Link]]) -> None:
        self._apart = apart
        self._tenants: dict[str, int] = {SHARED: SHARED_KEY}
        self._quotas: dict[int, tuple[Seconds, Quotas]] = {}  # and when they were read
        self._tenant_names: dict[int, str] = {SHARED_KEY: SHARED}
        self._current: dict[tuple[int, str], CurrentJob] = {}
        self._job_names: dict[int, str] = {}
        self._lanes: dict[tuple[int, str, str], int] = {}
        self._lane_rows: dict[int, LaneRow] = {}
        self.admitted: set[int] = set()  # lanes of executions that hold limits

    async def tenant(self, link: Link, name: str) -> int:
        """Return the tenant's number. Raises TenantNotFound."""
        key = self._tenants.get(name)
        if key is None:
            row = await link.fetchrow(f"{TENANT} WHERE name = $1", name)
            if row is None:
                raise TenantNotFound(f"no tenant named {shown(name)}")
            key = self._learn_tenant(name, row["key"], row)
        return key

    def known_tenant(self, name: str) -> int | None:
        """Return the tenant's number, if it was looked up before."""
        return self._tenants.get(name)

    def _learn_tenant(self, name: str, key: int, row: Row) -> int:
        self._tenants[name] = key
        self._tenant_names[key] = name
        self._learn_quotas(key, row)
        return key

    def learn(self, tenant: str, rows: Sequence[Row]) -> None:
        """Remember the tenant and the lanes in the answer of `catalog.STANDING`."""
        for row in rows[:1]:
            self._learn_tenant(tenant, row["tenant"], row)
        for row in rows:
            if row["lane"] is not None:
                self.learn_lanes(row["tenant"], [(row["queue"], row["needs"], row["lane"])])

    def learn_lanes(self, tenant: int, lanes: Iterable[tuple[str, str, int]]) -> None:
        """Remember lanes that are committed: queue, needs and number of each."""
        for queue, needs, lane in lanes:
            self._lanes[tenant, queue, needs] = lane
            base = base_needs(needs)
            kind = capability_of(base)
            self._lane_rows[lane] = LaneRow(queue, kind, base[len(kind) :], is_admitted(needs))
            if is_admitted(needs):
                self.admitted.add(lane)

    async def quotas(self, link: Link, tenant: int) -> Quotas:
        """Return the quotas of a tenant, as of a few seconds ago."""
        known = self.known_quotas(tenant)
        if known is None:
            row = await link.fetchrow(f"{TENANT} WHERE key = $1", tenant)
            known = self._learn_quotas(tenant, row)
        return known

    def known_quotas(self, tenant: int) -> Quotas | None:
        """Return the same, if it was read not too long ago."""
        read_at, quotas = self._quotas.get(tenant, (-inf, Quotas()))
        is_fresh = asyncio.get_running_loop().time() - read_at < FRESH_SECONDS
        return quotas if is_fresh else None

    def forget_quotas(self, tenant: int) -> None:
        """Forget the quotas of a tenant: they have changed."""
        self._quotas.pop(tenant, None)

    def _learn_quotas(self, tenant: int, row: Row) -> Quotas:
        quotas = read_quotas(row)
        self._quotas[tenant] = asyncio.get_running_loop().time(), quotas
        return quotas

    async def tenant_name(self, link: Link, key: int) -> str:
        """Return the name behind a number."""
        name = self._tenant_names.get(key)
        if name is None:
            name = await link.fetchval("SELECT name FROM daybell.tenant WHERE key = $1", key)
            self._tenants[name] = key
            self._tenant_names[key] = name
        return name

    _CURRENT = """
    SELECT j.key, j.name, j.version, v.definition
      FROM daybell.job j JOIN daybell.job_version v ON v.job = j.key AND v.version = j.version
     WHERE j.tenant = $1 AND j.name = ANY($2::text[]) AND j.deleted_at IS NULL
    """

    async def current_jobs(
        self, link: Link, tenant: int, names: Iterable[str], *, fresh: bool = False
    ) -> dict[str, CurrentJob]:
        """Return the current version of these jobs. Raises JobNotFound, naming a missing one."""
        wanted = set(names)
        missing = wanted if fresh else {n for n in wanted if (tenant, n) not in self._current}
        await self._look_up_jobs(link, tenant, missing)
        found: dict[str, CurrentJob] = {}
        for name in wanted:
            job = self._current.get((tenant, name))
            if job is None:
                raise JobNotFound(f"no job named {shown(name)}; define it first")
            found[name] = job
        return found

    async def existing_jobs(
        self, link: Link, tenant: int, names: Collection[str]
    ) -> dict[str, CurrentJob]:
        """Return the current versions, as of now, of those of these jobs that exist."""
        await self._look_up_jobs(link, tenant, names)
        jobs = {name: self._current.get((tenant, name)) for name in names}
        return {name: job for name, job in jobs.items() if job is not None}

    async def _look_up_jobs(self, link: Link, tenant: int, missing: Collection[str]) -> None:
        if missing:
            for name in missing:
                self._current.pop((tenant, name), None)
            for row in await link.fetch(self._CURRENT, tenant, sorted(missing)):
                definition = _read(row["definition"])
                self._job_names[row["key"]] = definition.name
                self._current[tenant, row["name"]] = CurrentJob(
                    row["key"],
                    row["version"],
                    definition.needs or definition.kind,
                    definition.queue,
                    definition.priority,
                    definition.expires,
                    gate_of(definition.name),
                    rule_of(definition.overlap, is_scheduled=has_times(definition.schedules)),
                    rule_of(
                        definition.overlap,
                        is_scheduled=True,
                        is_dependent=bool(definition.dependencies) and not definition.schedules,
                    ),
                    definition.overlap or Overlap.ALLOW,
                    bool(definition.dependencies),
                    definition.collapse,
                    definition.share is not None,
                    definition.beside,
                )

    def forget_job(self, tenant: int, name: str) -> None:
        """Forget the current version of a job: it may have changed."""
        self._current.pop((tenant, name), None)

    async def job_names(self, link: Link, keys: Iterable[int]) -> dict[int, str]:
        """Return all jobs known by number, these included."""
        missing = [key for key in set(keys) if key not in self._job_names]
        if missing:
            query = "SELECT key, name FROM daybell.job WHERE key = ANY($1::int[])"
            for row in await link.fetch(query, missing):
                self._job_names[row["key"]] = row["name"]
        return self._job_names

    _ADD_LANES = """
    INSERT INTO daybell.lane (tenant, queue, needs)
    SELECT $1, u.* FROM unnest($2::text[], $3::text[]) u ORDER BY 2, 3 ON CONFLICT DO NOTHING
    """
    _LANES = """
    SELECT key, queue, needs FROM daybell.lane
     WHERE tenant = $1 AND queue = ANY($2::text[]) AND needs = ANY($3::text[])
    """

    async def lanes(
        self, tenant: str, queues: Sequence[str], needs: Sequence[str]
    ) -> tuple[int, list[int]]:
        """Return the tenant's number and those of all these lanes, queues in the order given.

        The caller must hold no connection. Missing lanes are created on one of their own and
        committed: if a caller's transaction rolled back, a number would be remembered for a lane
        that does not exist, and no worker could claim the executions in it.
        """
        pairs = [(queue, need) for queue in queues for need in needs]
        key = self._tenants.get(tenant)
        if key is None or any((key, *pair) not in self._lanes for pair in pairs):
            async with self._apart() as link:
                key = await self.tenant(link, tenant)
                rows = await self._made_lanes(link, key, pairs)
            self._learn(key, rows)
        return key, [self._lanes[key, queue, need] for queue, need in pairs]

    def known_lanes(self, tenant: int, queues: Sequence[str], needs: Sequence[str]) -> Lanes:
        """Return those of these lanes that are remembered, queues in the order given."""
        pairs = [(queue, self._lanes.get((tenant, queue, n))) for queue in queues for n in needs]
        known = [(lane, queue) for queue, lane in pairs if lane is not None]
        keys = [lane for lane, _ in known]
        held = self.admitted.intersection(keys) if self.admitted else ()
        return Lanes(keys, [queue for _, queue in known], frozenset(held))

    def limited_queues(self) -> set[tuple[int, str]]:
        """Return the queues with executions that hold limits, each with its tenant."""
        return {
            (of, queue) for (of, queue, _), lane in self._lanes.items() if lane in self.admitted
        }

    def known_lane(self, tenant: int, lane: tuple[str, str]) -> int | None:
        """Return the number of the lane of a queue and a need, if it is remembered."""
        return self._lanes.get((tenant, *lane))

    async def lane_numbers(
        self, link: Link, tenant: int, lanes: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], int]:
        """Return the numbers of lanes. Remember nothing: the caller may have made them, and may
        roll back.
        """
        queues, needs = [queue for queue, _ in lanes], [need for _, need in lanes]
        rows = await link.fetch(self._LANES, tenant, queues, needs)
        return {(row["queue"], row["needs"]): row["key"] for row in rows}

    async def prepare_lanes(self, tenant: str, lanes: Collection[tuple[str, str]]) -> int:
        """Create these lanes, and remember them; return the tenant's number. See `lanes`."""
        key = self._tenants.get(tenant)
        if key is None or any((key, *lane) not in self._lanes for lane in lanes):
            async with self._apart() as link:
                key = await self.tenant(link, tenant)
                rows = await self._made_lanes(link, key, sorted(lanes)) if lanes else []
            self._learn(key, rows)
        return key

    async def find_lanes(
        self, link: Link, tenant: int, queues: Sequence[str], needs: Sequence[str]
    ) -> Lanes:
        """Return those of these lanes that exist."""
        self._learn(tenant, await link.fetch(self._LANES, tenant, queues, needs))
        return self.known_lanes(tenant, queues, needs)

    async def _made_lanes(
        self, link: Link, tenant: int, pairs: Sequence[tuple[str, str]]
    ) -> list[Row]:
        await self.make_lanes(link, tenant, pairs)
        queues, needs = [queue for queue, _ in pairs], [need for _, need in pairs]
        return await link.fetch(self._LANES, tenant, queues, needs)

    async def make_lanes(self, link: Link, tenant: int, pairs: Sequence[tuple[str, str]]) -> None:
        """Create missing lanes. Remember nothing: the caller may roll back."""
        queues, needs = [queue for queue, _ in pairs], [need for _, need in pairs]
        await link.execute(self._ADD_LANES, tenant, queues, needs)

    def known(
        self, tenant: str, wanted: Collection[tuple[str, str | None]]
    ) -> tuple[int, dict[tuple[str, str | None], tuple[CurrentJob, int]]] | None:
        """Return the jobs and lanes behind these names, if all of them are remembered."""
        key = self._tenants.get(tenant)
        if key is None:
            return None
        found: dict[tuple[str, str | None], tuple[CurrentJob, int]] = {}
        for name, queue in wanted:
            job = self._current.get((key, name))
            lane = None if job is None else self._lanes.get((key, queue or job.queue, job.needs))
            if job is None or lane is None:
                return None
            found[name, queue] = job, lane
        return key, found

    async def look_up(
        self, tenant: str, wanted: Collection[tuple[str, str | None]]
    ) -> tuple[int, dict[tuple[str, str | None], tuple[CurrentJob, int]]]:
        """Return the same, read from the database. Raises TenantNotFound and JobNotFound."""
        async with self._apart() as link:
            key = await self.tenant(link, tenant)
            jobs = await self.current_jobs(link, key, {name for name, _ in wanted}, fresh=True)
            lanes = {
                (name, queue): (queue or jobs[name].queue, jobs[name].needs)
                for name, queue in wanted
            }
            rows = await self._made_lanes(link, key, sorted(set(lanes.values())))
        self._learn(key, rows)
        return key, {one: (jobs[one[0]], self._lanes[key, *lanes[one]]) for one in wanted}

    async def lanes_of_queue(self, link: Link, tenant: int, queue: str) -> list[int]:
        """Return the numbers of all lanes of a queue."""
        rows = await link.fetch(
            "SELECT key, queue, needs FROM daybell.lane WHERE tenant = $1 AND queue = $2",
            tenant,
            queue,
        )
        self._learn(tenant, rows)
        return [row["key"] for row in rows]

    async def lane_rows(self, link: Link, keys: Iterable[int]) -> dict[int, LaneRow]:
        """Return all lanes known by number, these included."""
        missing = [key for key in set(keys) if key not in self._lane_rows]
        if missing:
            rows = await link.fetch(
                "SELECT key, tenant, queue, needs FROM daybell.lane WHERE key = ANY($1::int[])",
                missing,
            )
            for row in rows:
                self._learn(row["tenant"], [row])
        return self._lane_rows

    def _learn(self, tenant: int, rows: Sequence[Row]) -> None:
        self.learn_lanes(tenant, [(row["queue"], row["needs"], row["key"]) for row in rows])


# The jobs and lanes that the names in a batch of executions stand for.


class Outdated(Exception):
    """A job has a new version, or the holder of a unique key finished just now: look again."""


class Repeated(Exception):
    """An execution of the batch has ended: a repeat of the request has created it before."""


class JobKey(msgspec.Struct, frozen=True, gc=False):
    """The job and the lane that the names of an execution stand for, with the rules of the job."""

    tenant: int
    job: CurrentJob
    lane: int

    def rule(self, execution: NewExecution) -> Overlap:
        """Return the rule for an execution while one before it has not finished. A gate of its own
        has none.
        """
        if execution.gate is not None:
            return Overlap.ALLOW
        if execution.by_event:
            return self.job.event_overlap
        return self.job.overlap if execution.schedule is None else self.job.tick_overlap

    def gate(self, execution: NewExecution) -> str | None:
        """Return the gate that an execution has to pass."""
        if execution.gate is not None or self.rule(execution) is Overlap.ALLOW:
            return execution.gate
        return gate_for(execution) if execution.own_gate else self.job.gate

    def collapses(self, execution: NewExecution) -> bool:
        """Return True if the latest execution of its key decides about a request."""
        return self.job.collapse is not None and execution.schedule is None

    def wait_for_dependencies(self, execution: NewExecution) -> bool:
        """Return True if an execution has to wait for the jobs that its job depends on."""
        return execution.wait_for_dependencies and self.job.depends


class Specs(msgspec.Struct, frozen=True):
    """The jobs and lanes that a batch names, by job and queue."""

    tenant: int
    is_fresh: bool  # looked up just now, not remembered
    found: dict[tuple[str, str | None], JobKey]
    made: set[UUID] = msgspec.field(default_factory=set[UUID])  # created by the caller so far
    moved: set[UUID] = msgspec.field(default_factory=set[UUID])  # got other arguments
    news: set[str] = msgspec.field(default_factory=set[str])  # to be said beside the queues
    leaves: dict[UUID, int] = msgspec.field(default_factory=dict[UUID, int])  # lanes of turns
    # The same as `found`, of executions that prefer the worker of their parent.
    near: dict[tuple[str, str | None, UUID | None], JobKey] = {}

    @property
    def queues(self) -> set[str]:
        return self.news | {queue or spec.job.queue for (_, queue), spec in self.found.items()}

    def of(self, execution: NewExecution) -> JobKey:
        job, queue = execution.job, execution.queue
        own = self.near.get((job, queue, execution.parent)) if self.near else None
        return self.found[job, queue] if own is None else own

    def lane(self, execution: NewExecution) -> int:
        """Return the lane of an execution: it takes its turns only from when it is due."""
        lane = self.of(execution).lane
        if execution.delay or execution.at is not None:
            return lane
        return self.leaves.get(execution.id, lane)

    def cover(self, executions: Iterable[NewExecution]) -> bool:
        return all((execution.job, execution.queue) in self.found for execution in executions)


# Lists of columns that several statements share.

# All columns of `live` but those that an end changes, as they go on to history and dead.
KEPT: Final = (
    "tenant, job, version, lane, attempt, priority, id, args, unique_key, gate, retries, timeout,"
    " scheduled_for, expires_at, schedule, parent, node, cancel_requested_at, progress, note,"
    " created_at, run_at"
)
ENDED: Final = (
    f"{KEPT}, failures, crashes, state, outcome, finished_at, started_at, worker, result, error,"
    " reason, checkpoint, log"
)
# A finished `u.id`, as `h`: one probe for each of the four ends, for any estimate of the planner.
# Nodes of runs have an index of their own.
IN_HISTORY: Final = """unnest('{6, 7, 8, 9}'::smallint[]) s(state),
           LATERAL (SELECT * FROM daybell.history h WHERE h.tenant = $1 AND h.state = s.state
                       AND h.id = u.id AND h.node IS NULL
                    UNION ALL
                    SELECT * FROM daybell.history h WHERE h.tenant = $1 AND h.state = s.state
                       AND h.id = u.id AND h.node IS NOT NULL LIMIT 1) h"""

# An execution that a lease `l` still holds, as `v`. Its attempt changes when it leaves the lease,
# except for a run that begins (state 5). LIMIT 1 makes this one probe for each, for any size that
# the planner assumes.
IN_LEASE: Final = """unnest(l.ids, l.attempts) x(id, attempt),
           LATERAL (SELECT * FROM daybell.live v WHERE v.tenant = l.tenant AND v.id = x.id
                       AND v.attempt = x.attempt AND v.state <> 5 LIMIT 1) v"""

# When the first attempt of a node began.
BEGAN: Final = (
    "CASE WHEN node IS NULL OR attempt = 1 THEN started_at ELSE coalesce((SELECT min(a.began)"
    " FROM (SELECT x.id AS of, x.started_at AS began FROM daybell.attempt x WHERE x.tenant = $1) a"
    " WHERE a.of = id), started_at) END AS started_at"
)


def within_page(select: str, size: str, order: str) -> str:
    """Return rows of a statement in their order, as far as they fit into a page, and one more:
    `size` is the expression of a row's bytes.
    """
    return f"""
    SELECT * FROM (
      SELECT q.*, sum({size} + {ITEM_BYTES}) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING)
                  - ({size} + {ITEM_BYTES}) AS bytes_before
        FROM ({select}) q) r
     WHERE bytes_before <= {PAGE_BYTES_MAX} ORDER BY {order}
    """
