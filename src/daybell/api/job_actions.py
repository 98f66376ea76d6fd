"""What can be done to a job: run, pause, resume, go back to a version, make up for ticks."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Request, Response

from daybell.api import shapes
from daybell.api.answers import answer, answer_page
from daybell.api.body import checked, read_body, read_bytes, read_json
from daybell.api.caller import Admin, Caller, Operator, Viewer
from daybell.api.contract import ETAG, LOCATION, REPLAYED, IdempotencyKey, IfMatch, operation
from daybell.api.idempotency import Try, once
from daybell.api.jobs import JobPath, precondition, read_version, tagged
from daybell.api.lists import Cursor, Limit
from daybell.api.schema import BackfillRequest, Nothing, Pause, Rollback, Trigger
from daybell.api.triggering import trigger
from daybell.client import wire
from daybell.core.job import Job
from daybell.core.limits import PAGE_ITEMS_DEFAULT

router = APIRouter(prefix="/jobs/{job}", tags=["jobs"])


@router.post(
    "/trigger",
    **operation(
        "trigger_job",
        answers=shapes.Enqueued,
        status=202,
        says="It will run.",
        body=Trigger,
        is_optional=True,
        examples={"later": {"args": {"file": "42.csv"}, "delay": "10m", "priority": "high"}},
        errors=(404, 409),
        headers={**LOCATION, **REPLAYED},
    ),
)
async def trigger_job(
    request: Request, name: JobPath, caller: Operator, key: IdempotencyKey = None
) -> Response:
    """Run a job now, or later. Without `args` it is called as its schedules do it.

    If the job's overlap rule does not let it in, the answer is 409 and names the execution that is
    in the way; `force` overrides the rule.
    """
    raw = await read_bytes(request)
    return await trigger(request, caller, name, raw, key)


@router.post(
    "/pause",
    **operation(
        "pause_job",
        answers=shapes.Job,
        says="Its schedules fire no more.",
        body=Pause,
        is_optional=True,
        examples={"with a note": {"note": "until the disk is replaced"}},
        errors=(404,),
        headers=ETAG,
    ),
)
async def pause_job(request: Request, name: JobPath, caller: Operator) -> Response:
    """Let a job's schedules fire no more until it is resumed. It can still be triggered."""
    wanted = await read_body(request, Pause, optional=True)
    job = await caller.client.job_named(name)
    with caller.auditing("job.pause", job.name, after={"note": wanted.note}):
        await caller.client.pause(job.name, note=wanted.note)
    return await _standing(caller, job.name)


@router.post(
    "/resume",
    **operation(
        "resume_job",
        answers=shapes.Job,
        says="Its schedules fire again.",
        body=Nothing,
        is_optional=True,
        errors=(404,),
        headers=ETAG,
    ),
)
async def resume_job(request: Request, name: JobPath, caller: Operator) -> Response:
    """Let a job's schedules fire again, from now on."""
    await read_body(request, Nothing, optional=True)
    job = await caller.client.job_named(name)
    with caller.auditing("job.resume", job.name, before={"note": job.pause_note}):
        await caller.client.resume(job.name)
    return await _standing(caller, job.name)


@router.get(
    "/versions",
    **operation(
        "list_job_versions",
        answers=shapes.JobVersions,
        says="A page of versions, newest first.",
        errors=(404,),
    ),
)
async def list_versions(
    name: JobPath, caller: Viewer, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List a job's versions, each with what has changed since the one before it."""
    known = (await caller.client.standing(name)).job  # a deleted one has versions, too
    page = await caller.client.versions_page(known.name, limit=limit, cursor=cursor)
    before: list[Job | None] = list(page.items[1:])
    if page.items:
        before.append(await _before(caller, page.items[-1]))
    pairs = zip(page.items, before, strict=True)
    items = (wire.version(one, older, listed=True) for one, older in pairs)
    return answer_page(page, items, cursor=lambda one: str(one.version))


@router.get(
    "/versions/{version}",
    **operation(
        "get_job_version", answers=shapes.ListedVersion, says="The version.", errors=(404,)
    ),
)
async def get_version(
    name: JobPath,
    version: Annotated[int, Path(ge=1, le=2**31 - 1)],
    caller: Viewer,
) -> Response:
    """Show a version of a job, with the changes since the one before it."""
    known = (await caller.client.standing(name)).job
    found = await caller.client.job(known.name, version=version)
    return answer(wire.version(found, await _before(caller, found)))


async def _before(caller: Caller, job: Job) -> Job | None:
    """The version before one."""
    if job.version == 1:
        return None
    return await caller.client.job(job.name, version=job.version - 1)


@router.post(
    "/rollback",
    **operation(
        "rollback_job",
        answers=shapes.Job,
        says="The version is the current one again, as a new version.",
        body=Rollback,
        examples={"to the first": {"version": 1}},
        errors=(404, 409, 412),
        headers=ETAG,
    ),
)
async def rollback_job(
    request: Request, name: JobPath, caller: Admin, version: IfMatch = None
) -> Response:
    """Make an earlier version of a job the current one again."""
    wanted = await read_body(request, Rollback)
    job = await caller.client.job_named(name)
    expect = read_version(version)
    after = {"version": wanted.version}
    with (
        precondition(expect),
        caller.auditing("job.rollback", job.name, before={"version": job.version}, after=after),
    ):
        await caller.client.rollback(job.name, wanted.version, author=caller.actor, expect=expect)
    return await _standing(caller, job.name)


@router.post(
    "/backfill",
    **operation(
        "backfill_job",
        answers=shapes.Backfill,
        says="What is run, or would be in a dry run.",
        body=BackfillRequest,
        examples={
            "last week, to look at": {"since": "2026-11-01", "until": "2026-11-08", "dry_run": True}
        },
        errors=(404, 409),
        headers=REPLAYED,
    ),
)
async def backfill_job(
    request: Request, name: JobPath, caller: Admin, key: IdempotencyKey = None
) -> Response:
    """Run a job for past ticks of its schedules: those that were missed, that failed, or all."""
    raw = await read_bytes(request)
    wanted = (
        checked(read_json(raw), BackfillRequest)
        if raw
        else await read_body(request, BackfillRequest)
    )
    job = await caller.client.job_named(name)

    async def perform(this: Try) -> Response:
        return await _backfill(caller, job.name, wanted, this)

    return await once(request, caller, key, raw, perform)


async def _backfill(caller: Caller, job: str, wanted: BackfillRequest, this: Try) -> Response:
    id: UUID = this.made("backfill")
    said: dict[str, Any] = wanted.model_dump()
    after = {**said, "backfill_id": id}
    entry = caller.entry("job.backfill", job, after=after, id=this.made("entry"))
    made = await caller.client.backfill(job, **said, id=id, repeat=this.is_repeated, entry=entry)
    return answer(wire.backfill(made))


async def _standing(caller: Caller, name: str) -> Response:
    standing = await caller.client.standing(name)
    return answer(wire.standing(standing), headers=tagged(standing.job))
