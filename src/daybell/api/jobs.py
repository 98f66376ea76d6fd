"""`/jobs`: definitions of what to run."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Path, Query, Request, Response

from daybell.api import shapes
from daybell.api.answers import answer, answer_page, created
from daybell.api.body import checked, read_body, read_bytes, read_json
from daybell.api.caller import Admin, Caller, Viewer
from daybell.api.contract import (
    ETAG,
    LOCATION,
    REPLAYED,
    IdempotencyKey,
    IfMatch,
    operation,
)
from daybell.api.example_jobs import CHANGED_JOBS, DECLARED_JOBS, NEW_JOBS
from daybell.api.idempotency import Try, once
from daybell.api.lists import Cursor, JobStatusFilter, Limit, TextFilter
from daybell.api.problems import PreconditionFailed
from daybell.api.schema import DeclaredJob, JobChange, NewJob
from daybell.client import wire
from daybell.client.declaring import CREATED, UNCHANGED, Applied
from daybell.client.requests import id_in
from daybell.client.submitting import read_new
from daybell.client.uses import left_behind
from daybell.client.warnings import warnings_about
from daybell.core.execution import Enqueued
from daybell.core.job import Job
from daybell.core.limits import PAGE_ITEMS_DEFAULT
from daybell.errors import JobNotFound, UsageError, VersionConflict, shown

router = APIRouter(prefix="/jobs", tags=["jobs"])

JobPath = Annotated[str, Path(alias="job", description="A job's id or name.", max_length=200)]
NewJobPath = Annotated[str, Path(alias="job", description="A job's name.", max_length=200)]
DryRun = Annotated[bool, Query(description="Only say what would be done.")]
DeleteForce = Annotated[bool, Query(description="Even if the code of a live worker declares it.")]
Deleting = Annotated[
    bool, Query(description="Say instead what goes wrong without it, such as who needs it.")
]


@router.post(
    "",
    **operation(
        "create_job",
        answers=shapes.NewJobAnswer,
        status=201,
        says="Created.",
        body=NewJob,
        examples=NEW_JOBS,
        errors=(404, 409),
        headers={**LOCATION, **ETAG, **REPLAYED},
    ),
)
async def create_job(request: Request, caller: Admin, key: IdempotencyKey = None) -> Response:
    """Create a job. Without a `schedule` it runs once, now.

    One of `task`, `command`, `http`, `sql`, `notify` and `template` says what it runs.
    """
    raw = await read_bytes(request)
    wanted = checked(read_json(raw), NewJob)
    about = await caller.of_tenant(wanted.tenant)

    async def perform(this: Try) -> Response:
        return await _create(about, wanted, this)

    return await once(request, about, key, raw, perform)


async def _create(caller: Caller, wanted: NewJob, this: Try) -> Response:
    job, made = await _made(caller, wanted, this)
    said = {} if made is None else {"execution_id": str(made.id)}
    # Of what was made: by now it may be deleted.
    warnings = await warnings_about(caller.client.store, caller.client.tenant, job.definition)
    standing = await caller.client.standing(job.name)
    return created(
        {**wire.standing(standing), **said, "warnings": warnings},
        location=location(job),
        headers=tagged(job),
    )


async def _made(caller: Caller, wanted: NewJob, this: Try) -> tuple[Job, Enqueued | None]:
    """The job, and what it runs if it has no schedule; from an earlier try, perhaps."""
    name, run, entry = wanted.name, None, this.made("entry")
    with fields_named():
        options: Any = await caller.client.filled_in(cast("Any", wanted.options()), what="a job")
    if options.get("schedule") is None and not options.get("dependencies"):
        args: dict[str, Any] = options.get("args") or {}
        run = read_new(name, args, unique_key=wanted.unique_key, id=this.made("execution"))
    elif wanted.unique_key is not None:
        raise UsageError(
            "unique_key is for a job without a schedule, which runs once; others take it with each"
            " trigger",
            field="unique_key",
        )
    if this.is_repeated and await caller.recorded("job.create", name, entry) is not None:
        job = (await caller.client.standing(name)).job
        return job, None if run is None else await caller.client.submit(run, repeat=True)
    options |= {"author": caller.actor, "id": this.made("job")}
    after = wanted.model_dump(exclude_unset=True)
    with fields_named(), caller.auditing("job.create", name, after=after, id=entry):
        if run is None:
            return await caller.client.create(name, **options), None
        return await caller.client.launch(name, run, **options)


@router.get(
    "",
    **operation("list_jobs", answers=shapes.JobPage, says="A page of jobs, by name."),
)
async def list_jobs(
    caller: Viewer,
    status: JobStatusFilter = None,
    user_id: TextFilter = None,
    queue: TextFilter = None,
    q: TextFilter = None,
    prefix: TextFilter = None,
    label: Annotated[str | None, Query(include_in_schema=False)] = None,
    limit: Limit = PAGE_ITEMS_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """List jobs. `q` is looked for in names and descriptions."""
    if label is not None:
        raise UsageError("not available yet: labels of jobs", field="label")
    page = await caller.client.standings_page(
        status=status,
        user_id=user_id,
        queue=queue,
        text=q,
        prefix=prefix or "",
        limit=limit,
        cursor=cursor,
    )
    items = (wire.standing(one, listed=True) for one in page.items)
    return answer_page(page, items, cursor=lambda one: one.job.name)


@router.get(
    "/{job}",
    **operation(
        "get_job",
        answers=shapes.Job,
        says="The job, with what it does now.",
        errors=(404,),
        headers=ETAG,
    ),
)
async def get_job(name: JobPath, caller: Viewer) -> Response:
    """Show a job, a deleted one too, with its status, its next time and its last execution."""
    standing = await caller.client.standing(name)
    return answer(wire.standing(standing), headers=tagged(standing.job))


@router.patch(
    "/{job}",
    **operation(
        "update_job",
        answers=shapes.ChangedJob,
        says="Changed; the new version.",
        body=JobChange,
        examples=CHANGED_JOBS,
        errors=(404, 409, 412),
        headers=ETAG,
    ),
)
async def update_job(
    request: Request, name: JobPath, caller: Admin, version: IfMatch = None
) -> Response:
    """Change a job. What is not named stays as it is; null is back to the default."""
    change = await read_body(request, JobChange)
    expect = read_version(version)
    before = await caller.client.job_named(name)
    options = _changes(change)
    if not options:
        raise UsageError("nothing is to change; name a field, such as schedule", field="body")
    after = change.model_dump(exclude_unset=True)
    with (
        fields_named(),
        precondition(expect),
        caller.auditing("job.update", before.name, before=wire.job(before), after=after),
    ):
        job = await caller.client.update(before.name, author=caller.actor, expect=expect, **options)
    warnings = await warnings_about(caller.client.store, caller.client.tenant, job.definition)
    standing = wire.standing(await caller.client.standing(job.name))
    return answer({**standing, "warnings": warnings}, headers=tagged(job))


def _changes(change: JobChange) -> dict[str, Any]:
    options = change.options()
    nulls = {name: _DEFAULTS[name] for name in _DEFAULTS if options.get(name, 0) is None}
    return {**options, **nulls}


@router.put(
    "/{job}",
    **operation(
        "apply_job",
        answers=shapes.AppliedJob,
        says="It is what was declared; `action` says whether it was before.",
        body=DeclaredJob,
        examples=DECLARED_JOBS,
        errors=(404, 409, 412),
        headers=ETAG,
        also={201: "Created."},
    ),
)
async def apply_job(
    request: Request,
    name: NewJobPath,
    caller: Admin,
    version: IfMatch = None,
    dry_run: DryRun = False,
) -> Response:
    """Declare a job: it is created, or changed to be what is said here and nothing else.

    Without a `schedule` it never runs by itself. A job that code defines is refused.
    """
    wanted = await read_body(request, DeclaredJob)
    if wanted.name not in (None, name):
        raise UsageError(
            f"name is {shown(wanted.name)}, and the address says {shown(name)}", field="name"
        )
    await _check_no_id(caller, name)
    expect = read_version(version)
    options: dict[str, Any] = {"author": caller.actor, "expect": expect, **wanted.options()}
    after = wanted.model_dump(exclude_unset=True)
    with fields_named(), precondition(expect):
        planned = await caller.client.apply_job(name, dry_run=True, **options)
        if dry_run or planned.action == UNCHANGED:
            return await _applied(caller, planned, 200)
        with caller.auditing("job.apply", name, before=planned.before, after=after):
            made = await caller.client.apply_job(name, **options)
    return await _applied(caller, made, 201 if made.action == CREATED else 200)


async def _check_no_id(caller: Caller, name: str) -> None:
    """Refuse a job's id where its name belongs: it would become another job's name."""
    with suppress(JobNotFound):
        if id_in(name) is not None and (await caller.client.job_named(name)).name != name:
            raise UsageError(f"{name} is a job's id; a job is declared by its name", field="name")


async def _applied(caller: Caller, made: Applied, status: int) -> Response:
    there = None if made.job is None else await caller.client.standing(made.job.name)
    said = {
        "action": made.action,
        "before": made.before,
        "after": made.after,
        "job": None if there is None else wire.standing(there),
        "warnings": made.warnings,
    }
    return answer(said, status=status, headers={} if made.job is None else tagged(made.job))


@router.get(
    "/{job}/warnings",
    **operation(
        "list_job_warnings",
        answers=shapes.JobWarnings,
        says="What looks wrong with the job as things are now; nothing, if all is well.",
        errors=(404,),
    ),
)
async def list_warnings(name: JobPath, caller: Viewer, deleting: Deleting = False) -> Response:
    """Say what looks wrong with a job: secrets that are not set, no worker that could run it."""
    client = caller.client
    job = (await client.standing(name)).job if deleting else await client.job_named(name)
    found = await client.warnings(job.name, deleting=deleting)
    return answer({"items": found, "next_cursor": None})


@router.delete(
    "/{job}",
    **operation(
        "delete_job",
        answers=shapes.Deleted,
        says="It fires no more, and what was unfinished is cancelled.",
        errors=(404, 409, 412),
    ),
)
async def delete_job(
    name: JobPath, caller: Admin, version: IfMatch = None, force: DeleteForce = False
) -> Response:
    """Cancel a job: it fires no more, and its unfinished executions are cancelled.

    A job that is deleted stays so, and what is left unfinished of it is cancelled. A job that the
    code of a live worker declares is only deleted with `force`.
    """
    # A deleted one, too: perhaps the store went away before all its executions were cancelled.
    job = (await caller.client.standing(name)).job
    expect = read_version(version)
    warnings = await left_behind(caller.client.store, caller.client.tenant, job)
    with precondition(expect), caller.auditing("job.delete", job.name, before=wire.job(job)):
        cancelled = await caller.client.delete_job(job.name, expect=expect, force=force)
    return answer(
        {
            "job_id": str(job.id),
            "name": job.name,
            "status": "deleted",
            "cancelled": cancelled,
            "warnings": warnings,
        }
    )


def location(job: Job) -> str:
    """Where a job is."""
    return f"/api/v1/jobs/{job.id}"


def tagged(job: Job) -> dict[str, str]:
    """The header that names a job's version."""
    return {"ETag": f'"{job.version}"'}


def read_version(text: str | None) -> int | None:
    """The version that If-Match names; None: any."""
    if text is None or text.strip() == "*":
        return None
    if text.lstrip().startswith("W/"):
        raise PreconditionFailed(
            'If-Match compares strongly, so a tag with W/ matches nothing; send it as "3"'
        )
    found = re.fullmatch(r'\s*"?([0-9]{1,9})"?\s*', text)
    if found is None:
        raise UsageError('If-Match is a version as the ETag has it, such as "3"', field="If-Match")
    return int(found[1])


@contextmanager
def fields_named() -> Generator[None]:
    """What is wrong with a part of the schedule is told by where it is in the body."""
    try:
        yield
    except UsageError as error:
        begin = (error.field or "name").partition(".")[0]
        if begin not in NewJob.model_fields:
            error.field = f"{'dst' if error.field in ('gap', 'fold') else 'schedule'}.{error.field}"
        raise


@contextmanager
def precondition(expect: int | None) -> Generator[None]:
    """A version that has moved is a failed precondition for who has named one."""
    try:
        yield
    except VersionConflict as error:
        if expect is None:
            raise
        raise PreconditionFailed(str(error)) from None


# What null means for those that have no None of their own.
_DEFAULTS: Final[dict[str, Any]] = {
    "queue": "default",
    "priority": "normal",
    "max_crashes": 3,
    "on_lost": "retry",
    "store_result": True,
    "description": "",
    "dependencies": (),
    "on_dependency_failure": "wait",
}
