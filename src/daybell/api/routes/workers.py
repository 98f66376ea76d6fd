"""Routes of `/workers` and `/queues`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.bodies import Nothing
from daybell.api.caller import Caller, answer_json
from daybell.api.fields import UUID_FORMAT, AgoBound, JobFilter, Paged, QueueName, TimeLimit
from daybell.api.requests import answer_list
from daybell.api.router import Reach, Routes
from daybell.client import wire
from daybell.client.requests import read_id
from daybell.client.stats import SERIES_SINCE, store_readings
from daybell.client.workers import count_unmet
from daybell.core.access import Action, Role
from daybell.core.limits import check_name
from daybell.core.monitoring.metrics import METRICS as METRIC_TABLE
from daybell.core.monitoring.metrics import OF_PROCESS, Reading, expose
from daybell.core.monitoring.stats import METRICS
from daybell.core.units import to_datetime
from daybell.core.views import Page
from daybell.core.worker import WorkerState
from daybell.errors import AccessDenied, DaybellError, Unavailable

router = Routes("/workers", tag="workers")

WorkerPath = Annotated[str, Meta(description="A worker's id.", max_length=100), UUID_FORMAT]


class WorkersQuery(Paged):
    """The workers to list."""

    include_dead: Annotated[bool, Meta(description="Also those that are gone.")] = False


@router.get(
    "",
    id="list_workers",
    live="worker_id",
    role=Role.VIEWER,
    action=Action.READ,
    answers=Page[wire.Worker],
    says="Workers, oldest first.",
)
async def list_workers(
    caller: Caller,
    query: WorkersQuery,
) -> Response:
    """List workers."""
    found = await caller.client.workers(include_dead=query.include_dead)
    return answer_list(
        found,
        key=lambda one: (one.started_at, one.worker_id),
        read=_read_cursor,
        write=_write_cursor,
        limit=query.limit,
        cursor=query.cursor,
    )


def _write_cursor(place: tuple[datetime, UUID]) -> str:
    return f"{place[0].isoformat()} {place[1]}"


def _read_cursor(cursor: str) -> tuple[datetime, UUID]:
    started_at, id = cursor.split(" ")
    return datetime.fromisoformat(started_at).replace(tzinfo=UTC), UUID(id)


@router.post(
    "/{id}/drain",
    id="drain_worker",
    role=Role.OPERATOR,
    action=Action.DRAIN,
    answers=wire.Drained,
    status=202,
    says="It finishes what it has, and claims nothing more.",
    body=Nothing,
    is_body_optional=True,
    errors=(403, 404),
)
async def drain_worker(id: WorkerPath, caller: Caller) -> Response:
    """Ask a worker to finish what it has, and to claim nothing more.

    A worker of several tenants requires the role superadmin.
    """
    known = read_id(id)
    if caller.role is not Role.SUPERADMIN and any(
        one.worker_id == known and one.shared for one in await caller.client.workers()
    ):
        raise AccessDenied(
            f"worker {known} serves other tenants, too: only a superadmin may drain it"
        )
    client = caller.audited("worker.drain", known)
    await client.drain_worker(known)
    return answer_json(wire.Drained(worker_id=known, state="draining"), status=202)


# `/queues`: the queues from which workers claim executions.

queues_router = Routes("/queues", tag="queues")

QueuePath = Annotated[str, Meta(description="A queue's name.", max_length=200)]


@queues_router.get(
    "",
    id="list_queues",
    live="name",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.QUEUES,
    answers=Page[wire.Queue],
    says="Queues, by name.",
)
async def list_queues(caller: Caller, query: Paged) -> Response:
    """List queues with their numbers."""
    found = await caller.client.queues()
    return answer_list(found, key=lambda one: one.name, limit=query.limit, cursor=query.cursor)


@queues_router.post(
    "/{name}/pause",
    id="pause_queue",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    reach=Reach.NAMES,
    answers=wire.QueueState,
    says="Nothing is given out from it.",
    body=Nothing,
    is_body_optional=True,
)
async def pause_queue(name: QueuePath, caller: Caller) -> Response:
    """Give out nothing from a queue until it is resumed. What runs goes on."""
    client = caller.audited("queue.pause", name)
    await client.pause_queue(name)
    return answer_json(wire.QueueState(name=name, is_paused=True))


@queues_router.post(
    "/{name}/resume",
    id="resume_queue",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    reach=Reach.NAMES,
    answers=wire.QueueState,
    says="Work is given out from it.",
    body=Nothing,
    is_body_optional=True,
)
async def resume_queue(name: QueuePath, caller: Caller) -> Response:
    """Give out work from a queue again."""
    client = caller.audited("queue.resume", name)
    await client.resume_queue(name)
    return answer_json(wire.QueueState(name=name, is_paused=False))


@queues_router.post(
    "/{name}/purge",
    id="purge_queue",
    role=Role.OPERATOR,
    action=Action.CANCEL,
    reach=Reach.NAMES,
    answers=wire.Purged,
    says="All that waited in it is cancelled.",
    body=Nothing,
    is_body_optional=True,
)
async def purge_queue(name: QueuePath, caller: Caller) -> Response:
    """Cancel all that waits in a queue. What runs goes on."""
    client = caller.audited("queue.purge", name)
    cancelled = await client.purge_queue(name)
    return answer_json(wire.Purged(name=name, cancelled=cancelled))


@queues_router.get(
    "/{name}/scaling",
    id="get_queue_scaling",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.QUEUES,
    answers=wire.Scaling,
    says="How much work it has.",
)
async def get_scaling(name: QueuePath, caller: Caller) -> Response:
    """Say how much work a queue has, for programs that start workers by it.

    `value` is what is due or runs. A queue that nobody has used is empty, not unknown: whoever
    scales by it may ask before its first job.
    """
    return answer_json(await _scaling(caller, check_name(name, what="queue")))


@queues_router.get(
    "/{name}/why",
    id="explain_queue",
    live="",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.QUEUES,
    answers=wire.QueueWhy,
    says="Why.",
)
async def explain_queue(name: QueuePath, caller: Caller) -> Response:
    """Explain why the due executions of a queue are not taken."""
    return answer_json(await caller.client.why_queue(name))


async def _scaling(caller: Caller, name: str) -> wire.Scaling:
    found = [one for one in await caller.client.queues() if one.name == name]
    queued = sum(one.queued for one in found)
    running = sum(one.running for one in found)
    bounded = [name for one in found for name in one.at_least if name in ("queued", "running")]
    workers = [
        one
        for one in await caller.client.workers()
        if name in one.queues and one.state is WorkerState.LIVE
    ]
    queued = max(0, queued - await count_unmet(caller.client, name))
    return wire.Scaling(
        queue=name,
        value=queued + running,
        queued=queued,
        running=running,
        workers=len(workers),
        capacity=sum(one.capacity for one in workers),
        is_paused=any(one.is_paused for one in found),
        at_least=["value", *bounded] if bounded else [],
    )


# Routes of `/healthz`, `/readyz`, `/stats` and `/status`.

status_router = Routes("", tag="stats")


@status_router.get(
    "/stats",
    id="get_stats",
    live="",
    role=Role.VIEWER,
    action=Action.READ,
    answers=wire.Stats,
    says="What goes on.",
)
async def get_stats(caller: Caller) -> Response:
    """Show queues, workers, rates and the last dead letters.

    Rates are those since this process was last asked; null when it was not.
    """
    return answer_json(await caller.client.stats())


class SeriesQuery(msgspec.Struct, kw_only=True):
    """The metrics, their subject and their time."""

    metric: Annotated[
        str,
        Meta(
            max_length=500,
            description=f"One or more, separated by commas: {', '.join(METRICS)}.",
            examples=["succeeded,dead,run_p95"],
        ),
    ] = "enqueued,succeeded,dead"
    job: JobFilter | None = None
    queue: QueueName | None = None
    since: AgoBound = SERIES_SINCE
    until: AgoBound | None = None
    step: (
        Annotated[
            TimeLimit,
            Meta(description="Whole minutes; of what is older than two days, whole hours."),
        ]
        | None
    ) = None


@status_router.get(
    "/stats/series",
    id="get_series",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.Series,
    says="Values by steps of time.",
    errors=(404,),
)
async def get_series(caller: Caller, query: SeriesQuery) -> Response:
    """Show metrics over time, of everything, a job or a queue.

    An end is counted within about ten seconds. Times are those at which things happened. An attempt
    counts when it ends, also as started. `step` is chosen if it is left out.
    """
    found = await caller.client.series(
        [name.strip() for name in query.metric.split(",") if name.strip()],
        job=query.job,
        queue=query.queue,
        since=query.since,
        until=query.until,
        step=query.step,
    )
    return answer_json(found)


@status_router.get(
    "/status",
    id="get_status",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NEUTRAL,
    answers=wire.Status,
    says="The store's time.",
)
async def get_status(caller: Caller) -> Response:
    """Say what time it is by the store's clock, and which process does the upkeep."""
    health = await caller.client.health()
    leaders = await caller.client.leaders()
    return answer_json(wire.Status(now=to_datetime(health.now), leaders=leaders))


# `/healthz` and `/readyz`: the health of this process and its store. Open to all.
#
# The answer does not contain the address of the store.

logger = logging.getLogger("daybell.api")

STORE_SECONDS_MAX: Final = 8.0  # longer than the store's own timeout
# The probes of many machines together cost the store one small write a second.
READY_SECONDS: Final = 1.0

NO_STORE: Final = {"Cache-Control": "no-store"}

Ask = Callable[[], Awaitable[object]]


class Readiness:
    """Whether the store can be read and written, checked at most once a second."""

    def __init__(self, ask: Ask, *, monotonic: Callable[[], float] | None = None) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._asked_at: float | None = None
        self._error: str | None = None

    async def error(self) -> str | None:
        """What is wrong; None: nothing is."""
        now = self._monotonic or asyncio.get_running_loop().time
        async with self._lock:
            if self._asked_at is None or now() - self._asked_at >= READY_SECONDS:
                self._error = await self._find_out()
                self._asked_at = now()
            return self._error

    async def _find_out(self) -> str | None:
        try:
            async with asyncio.timeout(STORE_SECONDS_MAX):
                await self._ask()
        except TimeoutError:
            return f"the store does not answer within {STORE_SECONDS_MAX:g} s"
        except DaybellError as refusal:
            logger.warning("not ready: %s", refusal)
            is_read_only = isinstance(refusal, Unavailable) and refusal.is_read_only
            return f"the store cannot be {'written' if is_read_only else 'used'}; see the log"
        return None


def health_routes(readiness: Readiness) -> Routes:
    """The routes of the probes of one process."""
    routes = Routes("", tag="health", base="")

    @routes.get(
        "/healthz",
        id="healthz",
        role=None,
        action=None,
        answers=wire.Health,
        says="It answers.",
    )
    async def healthz() -> Response:
        """Whether this process answers."""
        return answer_json({"status": "ok"}, headers=NO_STORE)

    @routes.get(
        "/readyz",
        id="readyz",
        role=None,
        action=None,
        answers=wire.Health,
        says="It can work.",
        also={503: "Its store cannot be read or written."},
    )
    async def readyz() -> Response:
        """Check that the store can be read and written, too."""
        error = await readiness.error()
        if error is None:
            return answer_json({"status": "ready"}, headers=NO_STORE)
        return answer_json(
            {"status": "unavailable", "error": error},
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            headers=NO_STORE,
        )

    assert healthz and readyz
    return routes


# `/metrics`: the metrics of the store and of this process, for Prometheus.

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"

metrics_router = Routes("", tag="stats", base="")


@metrics_router.get(
    "/metrics",
    id="get_metrics",
    role=Role.VIEWER,
    action=Action.READ,
    media_types=(PLAIN,),
    says="The text format of Prometheus.",
)
async def get_metrics(request: Request, caller: Caller) -> Response:
    """Show the metrics of the tenant, of the store and of this process.

    A superadmin's key shows those of all tenants.
    """
    everything = caller.role is Role.SUPERADMIN and "tenant" not in request.query_params
    readings = await store_readings(caller.client, all_tenants=everything)
    own: Callable[[], Iterable[Reading]] = getattr(request.app.state, "own_readings", tuple)
    text = expose([*readings, *own()], METRIC_TABLE.values())
    return Response(text, media_type=PLAIN, headers=NO_STORE)


def own_metrics(readings: Callable[[], Iterable[Reading]]) -> Routes:
    """The route of the metrics of a process without an API: open, on a port of its own."""
    routes = Routes("", tag="stats", base="")

    @routes.get("/metrics", id="get_own_metrics", role=None, action=None, is_hidden=True)
    async def show() -> Response:
        return Response(expose(readings(), OF_PROCESS), media_type=PLAIN, headers=NO_STORE)

    assert show
    return routes
