"""Answers to "why", made of reasons."""

from __future__ import annotations

from typing import cast

from daybell.client import wire
from daybell.client.answers import time
from daybell.client.explain.executions import Reason
from daybell.client.explain.jobs import JobReason
from daybell.client.explain.queues import QueueReason
from daybell.client.explain.remedies import Remedy
from daybell.core.units import to_datetime


def why(of: Reason) -> wire.Why:
    """Return the answer to why an execution has not run, or not ended."""
    nearest = of.nearest
    return wire.Why(
        execution_id=of.execution.id,
        status=of.execution.state,
        code=of.code,
        detail=of.detail,
        next_at=time(of.next_at),
        lack=of.lack,
        actions=[remedy(one) for one in of.actions],
        holders=[
            wire.Holder(
                execution_id=one.id,
                job=one.job,
                status=one.state,
                url=f"/api/v1/executions/{one.id}",
            )
            for one in of.holders
        ],
        nearest_worker=None
        if nearest is None
        else wire.NearestWorker(
            worker_id=nearest.worker.id, name=nearest.worker.name, lacks=list(nearest.lacks)
        ),
        ahead=None if of.ahead is None else int(of.ahead),
        at_least=of.ahead is not None and not of.ahead.is_exact,
        estimated_start=time(of.starts_at),
        delays=[wire.Delay(code=one.code, seconds=one.seconds) for one in of.delays],
    )


def queue_why(of: QueueReason) -> wire.QueueWhy:
    """Return the answer to why the due executions of a queue are not taken."""
    obstacle = of.obstacle
    return wire.QueueWhy(
        queue=of.queue.name,
        code=obstacle.code,
        detail=obstacle.detail,
        next_at=time(obstacle.next_at),
        actions=[remedy(one) for one in obstacle.actions],
        needs=[
            wire.QueueNeed(
                needs=one.backlog.needs,
                queued=int(one.backlog.due),
                at_least=not one.backlog.due.is_exact,
                oldest_run_at=to_datetime(one.backlog.oldest_run_at),
                workers=one.workers,
            )
            for one in of.needs
        ],
        workers=len(of.workers),
        capacity=sum(one.capacity for one in of.workers),
        running=sum(one.running for one in of.workers),
        starts_per_second=of.rate,
    )


def job_why(of: JobReason) -> wire.JobWhy:
    """Return the answer to why a job does not run now."""
    obstacle = of.obstacle
    return wire.JobWhy(
        job_id=of.status.job.id,
        job=of.status.job.name,
        status=cast("wire.JobWord", of.status.status),
        code=obstacle.code,
        detail=obstacle.detail,
        next_at=time(obstacle.next_at),
        next_run_at=time(of.status.next_run_at),
        actions=[remedy(one) for one in obstacle.actions],
        schedules=[
            wire.ScheduleWhy(
                schedule_id=one.schedule.id,
                name=one.schedule.name,
                code=one.obstacle.code,
                detail=one.obstacle.detail,
                next_at=time(one.obstacle.next_at),
                actions=[remedy(action) for action in one.obstacle.actions],
            )
            for one in of.schedules
        ],
        executions=[why(one) for one in of.executions],
        ticks=[
            wire.ExplainedTick(
                schedule=one.schedule.name,
                detail=one.detail,
                at=to_datetime(one.tick.at),
                decision=one.tick.decision.value,
                reason=one.tick.reason,
                until=time(one.tick.until),
                count=one.tick.count,
                execution_id=one.tick.execution,
            )
            for one in of.ticks
        ],
    )


def remedy(of: Remedy) -> wire.Remedy:
    """A command that removes a cause, and the request that does the same."""
    request = None
    if of.method is not None and of.path is not None:
        request = wire.RemedyRequest(method=of.method, path=of.path, body=of.body)
    return wire.Remedy(label=of.label, command=of.command, request=request)
