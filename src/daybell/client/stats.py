"""Statistics over time: series of metrics, and how a job has done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from daybell.client import wire
from daybell.client.context import ClientContext
from daybell.client.jobs import job_named
from daybell.client.requests import Id, Time, read_bound
from daybell.core.limits import check_name
from daybell.core.monitoring.metrics import JOBS_MAX, LIMITS_MAX, OTHER, Distribution, Reading
from daybell.core.monitoring.stats import (
    COUNTS,
    DURATIONS,
    HOUR,
    HOURS_KEPT_SECONDS,
    METRICS,
    PERCENTILES,
    StatQuery,
    StatTotal,
    Tally,
    check_metrics,
    end_of_step,
    make_series,
    plan_query,
    total_of,
    trend,
)
from daybell.core.units import Duration, Instant, parse_duration, to_datetime
from daybell.core.views import QUEUE_NUMBERS, Queue
from daybell.core.worker import STORE_ROLES, Worker, WorkerState
from daybell.errors import UsageError

SERIES_SINCE: Final = "24h"
JOB_SINCE: Final = "7d"


async def series(
    client: ClientContext,
    metrics: Iterable[str],
    *,
    job: Id | None = None,
    queue: str | None = None,
    since: Time = SERIES_SINCE,
    until: Time | None = None,
    step: Duration | None = None,
) -> wire.Series:
    """Values of metrics by steps of time, of all executions, or of a job or a queue.

    `since` and `until` are times, or lengths of time before now. Without a `step`, it is chosen so
    that there are about a hundred points.
    """
    wanted = check_metrics(metrics)
    now = (await client.store.health()).now
    query = plan_query(
        now=now,
        since=read_bound(since, "since", now=now),
        until=None if until is None else read_bound(until, "until", now=now),
        step=None if step is None else parse_duration(step, what="step"),
        job=None if job is None else (await job_named(client, job)).name,
        queue=None if queue is None else check_name(queue, what="queue"),
    )
    rows = await client.store.catalog.read_stats(
        client.tenant, query, with_unfinished="enqueued" in wanted
    )
    made = make_series(query, rows, wanted)
    return wire.Series(
        job=query.job,
        queue=query.queue,
        since=to_datetime(made.since),
        until=to_datetime(made.until),
        step=made.step,
        series=made.values,
        totals=made.totals,
        at_least=list(made.at_least),
    )


async def job_stats(client: ClientContext, job: Id, *, since: Time = JOB_SINCE) -> wire.JobStats:
    """Return the results of a job since a time, and in the same length of time before that."""
    found = await job_named(client, job)
    now = (await client.store.health()).now
    start = read_bound(since, "since", now=now)
    if start >= now:
        raise UsageError("since lies in the future", field="since")
    until = end_of_step(now, HOUR)
    length = -(-min(now - start, HOURS_KEPT_SECONDS) // HOUR) * HOUR
    query = StatQuery(job=found.name, since=until - length, until=until, step=HOUR)
    before = StatQuery(job=found.name, since=query.since - length, until=query.since, step=HOUR)
    tally, previous = [
        total_of(await client.store.catalog.read_stats(client.tenant, one, with_unfinished=True))
        for one in (query, before)
    ]
    return wire.JobStats(
        job=found.name,
        job_id=found.id,
        since=to_datetime(query.since),
        until=to_datetime(query.until),
        current=_period(tally),
        previous=_period(previous),
        trend=trend(_values(tally), _values(previous)),
    )


def _values(tally: Tally) -> dict[str, float | None]:
    return {"success_rate": tally.success_rate, **tally.values(METRICS)}


def _period(tally: Tally) -> wire.PeriodStats:
    percentiles = {
        name: wire.Percentiles(**{one: tally.value(f"{name}_{one}") for one in PERCENTILES})
        for name in DURATIONS
    }
    counts: dict[str, int] = dict(zip(COUNTS, tally.counts, strict=True))
    return wire.PeriodStats(success_rate=tally.success_rate, counts=counts, **percentiles)


# Metrics of the store, for Prometheus.

TENANTS_MAX: Final = 100  # that one answer reports
SCHEDULES_MAX: Final = 1000

_OUTCOMES: Final = {
    "started": "started",
    "failed_attempts": "failed",
    "lost": "lost",
    "retried": "retried",
    "late": "late",
}
_ENDS: Final = ("succeeded", "dead", "cancelled", "skipped")


async def store_readings(client: ClientContext, *, all_tenants: bool = False) -> list[Reading]:
    """The metrics of the store: of the client's tenant, or of all, and of the database."""
    store = client.store
    due = await store.schedules.due_schedules(limit=SCHEDULES_MAX)
    tenants = [client.tenant]
    if all_tenants:
        tenants = [one.name for one in await store.admin.list_tenants()]
    found = [
        Reading("leader_epoch", (one.name,), one.epoch)
        for one in await store.admin.list_leaders()
        if one.name in STORE_ROLES
    ]
    for name, value in (await store.figures()).items():
        metric, _, label = name.partition(":")
        found.append(Reading(f"store_{metric}", (label,) if label else (), value))
    waiting = (due.now - one.next_at for one in due.schedules if one.next_at is not None)
    oldest = max(waiting, default=0.0)
    found.append(Reading("schedules_due", (), len(due.schedules)))
    found.append(Reading("schedule_overdue_seconds", (), max(0.0, oldest)))
    for tenant in tenants[:TENANTS_MAX]:
        for queue in await store.catalog.list_queues(tenant):
            found += _queue_readings(tenant, queue, due.now)
        for limit in await store.catalog.list_limits(tenant, most=LIMITS_MAX):
            found.append(Reading("limit_executions", (tenant, limit.name, "running"), limit.held))
            found.append(
                Reading("limit_executions", (tenant, limit.name, "waiting"), limit.waiting)
            )
        found += _worker_readings(tenant, await store.catalog.list_workers(tenant))
        found += _total_readings(tenant, await store.catalog.read_totals(tenant, jobs=JOBS_MAX))
    return found


def _queue_readings(tenant: str, queue: Queue, now: Instant) -> Iterator[Reading]:
    subject = tenant, queue.name
    for state in QUEUE_NUMBERS:
        yield Reading("queue_depth", (*subject, state), getattr(queue, state))
    oldest = 0.0 if queue.oldest_run_at is None else now - queue.oldest_run_at
    yield Reading("queue_oldest_seconds", subject, max(0.0, oldest))
    yield Reading("queue_paused", subject, float(queue.is_paused))


def _worker_readings(tenant: str, workers: Iterable[Worker]) -> Iterator[Reading]:
    states: dict[str, int] = {"live": 0, "draining": 0}
    capacity = 0
    for worker in workers:
        states[str(worker.state)] = states.get(str(worker.state), 0) + 1
        capacity += worker.capacity if worker.state is WorkerState.LIVE else 0
    for state, number in states.items():
        yield Reading("workers", (tenant, state), number)
    yield Reading("worker_capacity", (tenant,), capacity)


def _total_readings(tenant: str, totals: Iterable[StatTotal]) -> Iterator[Reading]:
    """Yield readings: the busiest jobs have their own numbers; the rest of a queue is `other`."""
    others: dict[tuple[str, str], list[int]] = {}
    of_jobs: list[StatTotal] = []
    for total in totals:
        if total.job is not None:
            of_jobs.append(total)
            continue
        subject = tenant, total.queue, total.kind
        others[subject[1:]] = [int(total.tally.value(state) or 0) for state in _ENDS]
        for name, outcome in _OUTCOMES.items():
            yield Reading("attempts_total", (*subject, outcome), total.tally.value(name) or 0)
        yield Reading("start_delay_seconds", subject, Distribution(total.tally.delay))
        yield Reading("run_seconds", subject, Distribution(total.tally.run))
    for total in of_jobs:
        lane = total.queue, total.kind
        numbers = [int(total.tally.value(state) or 0) for state in _ENDS]
        rest = others.get(lane, numbers)
        others[lane] = [all_ - own for all_, own in zip(rest, numbers, strict=True)]
        for state, number in zip(_ENDS, numbers, strict=True):
            labels = tenant, *lane, total.job or "", state
            yield Reading("executions_finished_total", labels, number)
    for lane, numbers in others.items():
        for state, number in zip(_ENDS, numbers, strict=True):
            yield Reading("executions_finished_total", (tenant, *lane, OTHER, state), number)
