"""Statistics over time: series of metrics, and how a job has done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from daybell.client import wire
from daybell.client.context import ClientContext
from daybell.client.jobs import job_named
from daybell.client.requests import Id, Time, read_bound
from daybell.core.limits import check_name
from daybell.core.stats import (
    COUNTS,
    DURATIONS,
    HOUR,
    HOURS_KEPT_SECONDS,
    METRICS,
    PERCENTILES,
    StatQuery,
    Tally,
    check_metrics,
    make_series,
    plan_query,
    total_of,
    trend,
)
from daybell.core.units import Duration, parse_duration, to_datetime
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
    """How a job has done since a time, and in the same length of time before that."""
    found = await job_named(client, job)
    now = (await client.store.health()).now
    start = read_bound(since, "since", now=now)
    if start >= now:
        raise UsageError("since lies in the future", field="since")
    until = -(-now // HOUR) * HOUR
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
