"""The store of a worker without a database: the operations that a worker needs, over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar, cast
from uuid import UUID

import msgspec

from daybell.client import wire
from daybell.client.leases.protocol import (
    REQUEST_BYTES,
    WAIT_SECONDS_MAX,
    ClaimBody,
    Departure,
    DetailsRequest,
    Fenced,
    LeaseRenewal,
    LogReport,
    ProgressBody,
    ResultsReport,
    StepsReport,
    WorkerRegistration,
    claim_of,
    end_of,
    log_lines_of,
    progress_of,
    renewal_of,
    step_of,
    step_record_of,
    verdict_of,
)
from daybell.client.remote.transport import Transport, build_path
from daybell.core.event import NewStep, Step
from daybell.core.execution import (
    AttemptRecord,
    Claimed,
    Execution,
    ExecutionDetail,
    NewLogPart,
    State,
)
from daybell.core.flow import LimitChange
from daybell.core.ids import mint, mint_owned
from daybell.core.job import Job
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.options import JobDefinition
from daybell.core.placement import DemandingLane
from daybell.core.units import Seconds
from daybell.core.worker import (
    LEASE_SECONDS,
    Claim,
    NewWorker,
    Offer,
    Renewal,
    Report,
    last_reports,
)
from daybell.core.workflow.run import Plan
from daybell.errors import (
    AccessDenied,
    Conflict,
    ExecutionNotFound,
    JobNotFound,
    LeaseLost,
    Unavailable,
    UsageError,
    shown,
)
from daybell.store.protocol import Store
from daybell.store.timeouts import timeouts_for
from daybell.store.wakeups import pause

logger = logging.getLogger("daybell.worker")

T = TypeVar("T")
Item = TypeVar("Item")

SLOW_SECONDS: Final[Seconds] = 20.0  # for results and logs, which may be large
WAIT_SHARE: Final = 2 / 3  # of the lease
AGAIN_SECONDS: Final[Seconds] = 1.0  # after a wait that failed
DEFINITIONS_MAX: Final = 1_000


class ServerPort:
    """The operations of a port that a worker needs. All others are refused."""

    def __init__(self, server: RemoteStore) -> None:
        self.server = server

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UsageError(
            f"a worker over HTTP has no database, so it cannot do this ({name}): its key is for"
            " running what it claimed. Enqueue and define jobs by way of RemoteClient and a key"
            " with the role operator or admin, or run the task on a worker beside the database"
        )


class RemoteQueue(ServerPort):
    """Claims, reports and the lease."""

    def __init__(self, server: RemoteStore) -> None:
        super().__init__(server)
        self._asked: UUID | None = None  # the lease of the last claim
        self.held: dict[UUID, Claimed] = {}
        self.is_dry = asyncio.Event()  # the last claim found less than it asked for
        self.is_busy = asyncio.Event()  # the worker holds executions

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        body = WorkerRegistration(
            worker_id=worker.id,
            name=worker.name,
            host=worker.host,
            pid=worker.pid,
            version=worker.version,
            queues=list(worker.queues),
            kinds=list(worker.kinds),
            labels=worker.labels,
            concurrency=worker.capacity,
            tasks=worker.tasks,
            lease=lease,
            replaces=replaces,
        )
        is_first = self.server.worker is None
        answer = await self.server.send("/leases", body, wire.WorkerLease, is_fatal=is_first)
        self.server.worker, self.server.kinds = worker.id, list(worker.kinds)
        self._forget()
        return renewal_of(answer)

    def _forget(self) -> None:
        self.held.clear()
        self.is_busy.clear()
        self.is_dry.clear()

    async def claim(
        self,
        tenant: str,
        *,
        worker: UUID,
        lease: UUID,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] = ("task",),
    ) -> Claim:
        is_first, self._asked = lease != self._asked, lease
        body = ClaimBody(
            lease_id=lease, queues=list(queues), kinds=list(kinds), limit=limit, is_first=is_first
        )
        path = build_path("leases", worker, "claim")
        claim = claim_of(await self.server.send(path, body, wire.LeaseClaim), tenant)
        for one in claim.executions:
            self.held[one.id] = one
        if claim.executions:
            self.is_busy.set()
        if len(claim.executions) < limit:
            self.is_dry.set()
        if self.server.is_listening:
            # The server tells when it is due: a fleet need not wake up for one execution.
            claim = msgspec.structs.replace(claim, next_due=None)
        return claim

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        if reports := last_reports(transitions):
            await self.report(tenant, worker=worker, reports=reports)
        path = build_path("leases", worker, "reports")
        verdicts: list[Verdict] = []
        for part in _parts(transitions, _size_of_move):
            body = ResultsReport(results=[end_of(move) for move in part])
            answer = await self.server.send(path, body, wire.ReportVerdicts, is_slow=True)
            verdicts += map(verdict_of, answer.items)
            for move in part:
                self._leave(move.id)
        return verdicts

    def _leave(self, id: UUID) -> None:
        self.held.pop(id, None)
        if not self.held:
            self.is_busy.clear()

    async def report(
        self, tenant: str, *, worker: UUID, reports: Sequence[Report]
    ) -> list[tuple[UUID, int]]:
        path = build_path("leases", worker, "progress")
        stale: list[tuple[UUID, int]] = []
        for part in _parts(reports, lambda one: len(one.checkpoint or "") + len(one.note or "")):
            body = ProgressBody(reports=list(map(progress_of, part)))
            answer = await self.server.send(path, body, wire.StaleReports, is_slow=True)
            stale += [(one.execution_id, one.attempt) for one in answer.stale]
        return stale

    async def record_sole(self, tenant: str, *, worker: UUID, execution: UUID | None) -> bool:
        body = ProgressBody(sole_suspect=execution)
        try:
            path = build_path("leases", worker, "progress")
            await self.server.send(path, body, wire.StaleReports)
        except LeaseLost:
            return False
        return True

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        path = build_path("leases", worker, "logs")
        for part in _parts(parts, lambda one: len(one.text)):
            body = LogReport(parts=list(map(log_lines_of, part)))
            await self.server.send(path, body, wire.LogReceipt, is_slow=True)

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        body = LeaseRenewal(lease_ids=list(leases), lease=lease)
        path = build_path("leases", worker, "renew")
        return renewal_of(await self.server.send(path, body, wire.WorkerLease))

    async def release(self, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
        body = Departure(lease_ids=list(leases), is_over=False)
        path = build_path("leases", worker, "drain")
        return (await self.server.send(path, body, wire.Released)).released

    async def retire(self, tenant: str, worker: UUID) -> None:
        path = build_path("leases", worker, "drain")
        with suppress(LeaseLost):
            await self.server.send(path, Departure(lease_ids=[]), wire.Released)

    async def read_traces(self, tenant: str, ids: Sequence[UUID]) -> dict[UUID, str]:
        return {}  # its spans begin traces of their own

    async def begin(self, worker: UUID) -> NoReturn:
        raise UsageError(
            "ctx.transaction() needs a worker with access to the database, and this one works over"
            " HTTP; give the task a queue of its own, and a worker beside the database"
        )


class RemoteRuns(ServerPort):
    """Steps of durable functions, and the begin of workflow runs."""

    async def steps(self, tenant: str, id: UUID) -> list[Step]:
        answer = await self.server.send_own("steps", StepsReport(recall=id), wire.RecordedSteps)
        return [step for one in answer.items if (step := step_of(one)) is not None]

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        found: list[Step | None] = []
        path = build_path("leases", worker, "steps")
        for part in _parts(steps, lambda one: len(one.result or "") + len(one.error or "")):
            body = StepsReport(steps=list(map(step_record_of, part)))
            answer = await self.server.send(path, body, wire.RecordedSteps, is_slow=True)
            found += map(step_of, answer.items)
        return found

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        body = Fenced(execution_id=claimed.id, attempt=claimed.attempt, lease_id=claimed.lease)
        path = build_path("leases", worker, "expand")
        return (await self.server.send(path, body, wire.RunBegun, is_slow=True)).is_begun


class RemoteCatalog(ServerPort):
    """Jobs and earlier attempts of what the worker holds."""

    def __init__(self, server: RemoteStore) -> None:
        super().__init__(server)
        self._jobs: dict[tuple[str, int], Job] = {}

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        key = name, version or 0
        if key in self._jobs:
            return self._jobs[key]
        for claimed in list(self.server.queue.held.values()):
            if (claimed.job, claimed.version) == key:
                with suppress(ExecutionNotFound):  # it has ended meanwhile
                    details = await self.server.details(claimed.id)
                    definition = JobDefinition.from_json(bytes(details.definition).decode())
                    if len(self._jobs) >= DEFINITIONS_MAX:
                        self._jobs.clear()
                    self._jobs[key] = Job(
                        id=claimed.id,
                        tenant=tenant,
                        version=claimed.version,
                        definition=definition,
                        created_at=claimed.created_at,
                    )
                    return self._jobs[key]
        raise JobNotFound(f"this worker holds no execution of job {shown(name)}")

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        """Return an execution that the worker holds with its earlier attempts, and no more."""
        held = self.server.queue.held.get(id)
        if held is None:
            raise ExecutionNotFound(f"no execution {id}")
        details = await self.server.details(id)
        return ExecutionDetail(
            execution=Execution(
                id=id,
                tenant=tenant,
                job=held.job,
                version=held.version,
                state=State.RUNNING,
                queue=held.queue,
                priority=held.priority,
                args=held.args,
                attempt=held.attempt,
                failures=held.failures,
                crashes=held.crashes,
                created_at=held.created_at,
                run_at=held.run_at,
            ),
            attempts=tuple(map(_attempt_of, details.attempts)),
        )

    async def list_demands(self, tenant: str, queues: Sequence[str]) -> list[DemandingLane]:
        return []  # what demands labels or resources is for workers beside the database

    async def change_limit(self, tenant: str, name: str, change: LimitChange) -> bool:
        logger.warning("limit %r is not paused: a worker over HTTP does not reach it", name)
        return False

    async def offers(self, tenant: str) -> list[Offer]:
        return []  # of other workers; without it, an unknown task waits for a while


class RemoteStore:
    """A server, as the store of a worker that speaks HTTP.

    The key decides about the tenant, the queues and the secrets. The worker runs on the same engine
    as one beside the database, with the same fence.
    """

    def __init__(self, url: str, *, key: str | None, lease: Seconds = LEASE_SECONDS) -> None:
        self._url, self._key, self._lease = url, key, lease
        short = timeouts_for(lease).command
        self._quick = Transport(url, key=key, seconds=short)
        self._slow = Transport(url, key=key, seconds=SLOW_SECONDS)
        # A connection that has gone deaf shows by the end of a wait: that is before a lease ends.
        self._wait = min(WAIT_SECONDS_MAX, lease * WAIT_SHARE)
        self._waiting = Transport(url, key=key, seconds=self._wait + short)
        self.place: Final = self._quick.place
        self.worker: UUID | None = None
        self.kinds: list[str] = ["task"]  # of that worker
        self.is_listening = False
        self.queue = RemoteQueue(self)
        self.runs = RemoteRuns(self)
        self.catalog = RemoteCatalog(self)
        self.schedules = ServerPort(self)
        self.admin = ServerPort(self)

    def again(self) -> RemoteStore:
        """Return another store of the same server, for another event loop."""
        return RemoteStore(self._url, key=self._key, lease=self._lease)

    def mint(self) -> UUID:
        """Make an id that shows the server which key a worker registers with."""
        return mint_owned(self._key or "")

    def as_store(self) -> Store:
        """Return this store as the engine takes it."""
        return cast("Store", self)

    async def open(self) -> None:
        """Do nothing: the first request connects."""

    async def close(self) -> None:
        for transport in (self._quick, self._slow, self._waiting):
            await transport.close()

    async def check_writable(self) -> None:
        """Raise Unavailable if the server does not answer a worker."""
        worker = self.worker
        if worker is None:
            raise Unavailable(f"{self.place}: the worker is not registered yet")
        body = ClaimBody(lease_id=mint(), queues=[], limit=0)
        await self.send_own("claim", body, wire.LeaseClaim)

    async def figures(self) -> dict[str, float]:
        return {}

    async def send(
        self,
        path: str,
        body: Any,
        answer: type[T],
        *,
        is_slow: bool = False,
        is_fatal: bool = False,
        is_wait: bool = False,
    ) -> T:
        """Send a request. A refusal by the server's access rules counts as an outage unless it is
        fatal: the key may be valid again when the next try comes.
        """
        transport = self._waiting if is_wait else self._slow if is_slow else self._quick
        try:
            return await transport.ask("POST", path, answer, body)
        except AccessDenied as error:
            if is_fatal:
                raise
            raise Unavailable(str(error)) from error
        except Conflict as error:
            is_crowded = error.code == "too-many-requests"
            if isinstance(error, LeaseLost) or (is_fatal and not is_crowded):
                raise
            raise Unavailable(str(error)) from error  # too many requests

    async def send_own(self, verb: str, body: Any, answer: type[T], *, is_wait: bool = False) -> T:
        """Send a request of the worker that registered last."""
        if self.worker is None:
            raise Unavailable(f"{self.place}: the worker is not registered yet")
        path = build_path("leases", self.worker, verb)
        return await self.send(path, body, answer, is_wait=is_wait)

    async def details(self, id: UUID, secrets: Sequence[str] = ()) -> wire.HeldDetails:
        """Return the job, the attempts and the secrets of an execution that the worker holds.
        Raises AccessDenied, NotFound and Unavailable.
        """
        if self.worker is None:
            raise Unavailable(f"{self.place}: the worker is not registered yet")
        body = DetailsRequest(execution_id=id, secrets=list(secrets))
        path = build_path("leases", self.worker, "details")
        return await self.send(path, body, wire.HeldDetails, is_fatal=bool(secrets))

    # Wake-ups: one wait for something to claim while the last claim found too little, and one for
    # news while the worker holds something.

    async def listen(
        self,
        tenant: str,
        queues: Collection[str],
        wake: Callable[[], None],
        *,
        ask: Callable[[], None] | None = None,
    ) -> Callable[[], Awaitable[None]]:
        loop = asyncio.get_running_loop()
        hear = ask or _ignore
        tasks = [
            loop.create_task(self._follow(self.queue.is_dry, list(queues), wake, hear)),
            loop.create_task(self._follow(self.queue.is_busy, [], wake, hear)),
        ]
        self.is_listening = True

        async def stop() -> None:
            self.is_listening = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        return stop

    async def _follow(
        self,
        condition: asyncio.Event,
        queues: list[str],
        wake: Callable[[], None],
        ask: Callable[[], None],
    ) -> None:
        """Wait at the server while a condition holds, again and again."""
        is_away = False
        while True:
            await condition.wait()
            body = ClaimBody(
                lease_id=mint(), queues=queues, kinds=self.kinds, limit=0, wait=self._wait
            )
            try:
                answer = await self.send_own("claim", body, wire.LeaseClaim, is_wait=True)
            except (Unavailable, LeaseLost, UsageError) as error:
                if not is_away:
                    logger.warning("no wake-ups from the server, trying again: %s", error)
                is_away = True
                await pause(AGAIN_SECONDS)
                continue
            if answer.is_due or (is_away and queues):
                self.queue.is_dry.clear()  # until the next claim
                wake()
            if answer.has_news:
                ask()
                # A renewal takes a moment, and the news stay until then.
                await pause(AGAIN_SECONDS / 10)
            is_away = False


def _ignore() -> None:
    """Do nothing."""


def _size_of_move(move: Transition) -> int:
    texts = (move.result, move.error, move.checkpoint, move.log)
    return sum(len(text) for text in texts if text is not None)


def _parts(items: Sequence[Item], size_of: Callable[[Item], int]) -> Iterator[Sequence[Item]]:
    """Split items into requests of a limited size, with at least one each."""
    begin = size = 0
    for place, one in enumerate(items):
        own = size_of(one)
        if place > begin and size + own > REQUEST_BYTES:
            yield items[begin:place]
            begin, size = place, 0
        size += own
    if begin < len(items):
        yield items[begin:]


def _attempt_of(one: wire.Attempt) -> AttemptRecord:
    return AttemptRecord(
        attempt=one.attempt,
        outcome=one.outcome,
        worker=one.worker_id,
        started_at=None if one.started_at is None else one.started_at.timestamp(),
        ended_at=one.ended_at.timestamp(),
    )
