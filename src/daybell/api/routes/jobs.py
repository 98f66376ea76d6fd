"""Routes of `/jobs` and `/templates`: definitions, versions and actions."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Annotated, Any, Final, cast
from urllib.parse import quote
from uuid import UUID

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from daybell.api.caller import (
    Admin,
    Caller,
    Operator,
    PreconditionFailed,
    Viewer,
    answer_created,
    answer_json,
    answer_page,
)
from daybell.api.contract import (
    CHANGED_JOBS,
    DECLARED_JOBS,
    ETAG,
    LOCATION,
    NEW_JOBS,
    NEW_TEMPLATES,
    REPLAYED,
    IdempotencyKey,
    IfMatch,
    operation,
)
from daybell.api.idempotency import IdempotentRequest, perform_once
from daybell.api.requests import (
    Cursor,
    JobStatusFilter,
    Limit,
    TextFilter,
    read_body,
    read_bytes,
    read_json,
    read_object,
    validate_body,
)
from daybell.api.routes.executions import trigger_execution
from daybell.api.schema import (
    BackfillRequest,
    DeclaredTemplate,
    NewTemplate,
    Nothing,
    Pause,
    Rollback,
    Trigger,
)
from daybell.client import answers, wire
from daybell.client.declarations import CREATED, UNCHANGED, ApplyOutcome, warnings_about
from daybell.client.executions import read_execution
from daybell.client.job_checks import describe_broken_uses
from daybell.client.jobs import definition_of
from daybell.core.execution import Enqueued
from daybell.core.ids import id_in
from daybell.core.job import Job, Template
from daybell.core.job_request import JobRequest, read_request
from daybell.core.limits import PAGE_ITEMS_DEFAULT, check_key, check_name
from daybell.core.views import Page
from daybell.core.when import Schedule
from daybell.core.when.zone import just_before, parse_moment
from daybell.errors import JobNotFound, TemplateNotFound, UsageError, VersionConflict, shown

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
        answers=wire.Job,
        status=201,
        says="Created.",
        body="NewJob",
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
    wanted = read_new_job(read_json(raw))
    about = await caller.of_tenant(wanted.tenant)
    if wanted.request.faults:  # no key is spent on it; the store may know of more
        await definition_of(about.client, wanted.request)

    async def perform(this: IdempotentRequest) -> Response:
        return await _create_job(about, wanted, this)

    return await perform_once(request, about, key, raw, perform)


class NewJobBody(msgspec.Struct, frozen=True):
    """The body of a request to create a job, as it was read."""

    body: dict[str, Any]
    request: JobRequest
    unique_key: str | None
    tenant: str | None


def read_new_job(value: Any) -> NewJobBody:
    """Read the body of a request to create a job. Its faults are in its `request`."""
    body = {name: one for name, one in read_object(value).items() if one is not None}
    beside = ("name", "unique_key", "tenant")
    options = {name: one for name, one in body.items() if name not in beside}
    request = read_request(body.get("name", ""), options, is_draft=True)
    if "name" not in body:
        request.faults[0] = UsageError("name is missing; give the job one", field="name")
    tenant, key = body.get("tenant"), body.get("unique_key")
    if tenant is not None:
        request.note("tenant", check_name, tenant, what="tenant")
    if key is not None:
        request.note("unique_key", check_key, key)
    if any(one.field == "tenant" for one in request.faults):
        tenant = None
    return NewJobBody(body, request, key, tenant)


async def _create_job(caller: Caller, wanted: NewJobBody, this: IdempotentRequest) -> Response:
    job, made = await _create_or_launch(caller, wanted, this)
    # Of the definition that was made: by now the job may be deleted.
    warnings = await warnings_about(caller.client.store, caller.client.tenant, job.definition)
    standing = await caller.client.standing(job.name)
    return answer_created(
        answers.job(
            standing, execution_id=msgspec.UNSET if made is None else made.id, warnings=warnings
        ),
        location=job_location(job),
        headers=etag_header(job),
    )


async def _create_or_launch(
    caller: Caller, wanted: NewJobBody, this: IdempotentRequest
) -> tuple[Job, Enqueued | None]:
    """Return the job, and its execution if it has no schedule; of an earlier try, perhaps."""
    run, entry = None, this.made("entry")
    request = await caller.client.resolve(wanted.request)
    request.check()
    name, fields = request.name, request.fields
    if fields.get("schedule") is None and not fields.get("dependencies"):
        args: dict[str, Any] = fields.get("args") or {}
        run = read_execution(name, args, unique_key=wanted.unique_key, id=this.made("execution"))
    elif wanted.unique_key is not None:
        raise UsageError(
            "unique_key is for a job without a schedule, which runs once; others take it with each"
            " trigger",
            field="unique_key",
        )
    if this.is_repeated and await caller.recorded("job.create", name, entry) is not None:
        job = (await caller.client.standing(name)).job
        return job, None if run is None else await caller.client.submit(run, repeat=True)
    with caller.auditing("job.create", name, after=wanted.body, id=entry):
        return await caller.client.make_job(request, run, author=caller.actor, id=this.made("job"))


@router.get(
    "",
    **operation("list_jobs", answers=Page[wire.Job], says="A page of jobs, by name."),
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
    items = (answers.job(one, listed=True) for one in page.items)
    return answer_page(page, items, cursor=lambda one: one.job.name)


@router.get(
    "/{job}",
    **operation(
        "get_job",
        answers=wire.Job,
        says="The job, with what it does now.",
        errors=(404,),
        headers=ETAG,
    ),
)
async def get_job(name: JobPath, caller: Viewer) -> Response:
    """Show a job, a deleted one too, with its status, its next time and its last execution."""
    standing = await caller.client.standing(name)
    return answer_json(answers.job(standing), headers=etag_header(standing.job))


@router.patch(
    "/{job}",
    **operation(
        "update_job",
        answers=wire.Job,
        says="Changed; the new version.",
        body="JobChange",
        examples=CHANGED_JOBS,
        errors=(404, 409, 412),
        headers=ETAG,
    ),
)
async def update_job(
    request: Request, name: JobPath, caller: Admin, version: IfMatch = None
) -> Response:
    """Change a job. What is not named stays as it is; null is back to the default."""
    body = read_object(read_json(await read_bytes(request)))
    expect = read_version(version)
    before = await caller.client.job_named(name)
    if not body:
        raise UsageError("nothing is to change; name a field, such as schedule", field="body")
    fixed = [
        UsageError("name cannot be changed; create another job with this name", field="name")
        for _ in body.keys() & {"name"}
    ]
    options = {key: one for key, one in body.items() if key != "name"}
    with (
        precondition(expect),
        caller.auditing("job.update", before.name, before=answers.job_version(before), after=body),
    ):
        job = await caller.client.change_job(
            before.name, options, author=caller.actor, expect=expect, faults=fixed
        )
    warnings = await warnings_about(caller.client.store, caller.client.tenant, job.definition)
    standing = await caller.client.standing(job.name)
    return answer_json(answers.job(standing, warnings=warnings), headers=etag_header(job))


@router.put(
    "/{job}",
    **operation(
        "apply_job",
        answers=wire.AppliedJob,
        says="It is what was declared; `action` says whether it was before.",
        body="DeclaredJob",
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
    body = read_object(read_json(await read_bytes(request)))
    said, faults = body.get("name"), list[UsageError]()
    if said not in (None, name):
        fault = f"name is {shown(said)}, and the address says {shown(name)}"
        faults.append(UsageError(fault, field="name"))
    await _check_no_id(caller, name)
    expect = read_version(version)
    options = {key: one for key, one in body.items() if key != "name"}
    client = caller.client
    with precondition(expect):
        planned = await client.plan_job(name, options, expect=expect, is_dry=dry_run, faults=faults)
        outcome = planned.outcome
        if dry_run or outcome.action == UNCHANGED:
            return await _answer_applied(caller, outcome, 200)
        with caller.auditing("job.apply", name, before=outcome.before, after=body):
            made = await client.make_planned(planned, author=caller.actor)
    return await _answer_applied(caller, made, 201 if made.action == CREATED else 200)


async def _check_no_id(caller: Caller, name: str) -> None:
    """Refuse a job's id where its name belongs: it would become another job's name."""
    with suppress(JobNotFound):
        if id_in(name) is not None and (await caller.client.job_named(name)).name != name:
            raise UsageError(f"{name} is a job's id; a job is declared by its name", field="name")


async def _answer_applied(caller: Caller, made: ApplyOutcome, status: int) -> Response:
    there = None if made.job is None else await caller.client.standing(made.job.name)
    said = wire.AppliedJob(
        action=cast("Any", made.action),
        before=made.before,
        after=made.after,
        job=None if there is None else answers.job(there),
        warnings=made.warnings,
    )
    return answer_json(
        said, status=status, headers={} if made.job is None else etag_header(made.job)
    )


@router.get(
    "/{job}/warnings",
    **operation(
        "list_job_warnings",
        answers=Page[str],
        says="What looks wrong with the job as things are now; nothing, if all is well.",
        errors=(404,),
    ),
)
async def list_warnings(name: JobPath, caller: Viewer, deleting: Deleting = False) -> Response:
    """Say what looks wrong with a job: secrets that are not set, no worker that could run it."""
    client = caller.client
    job = (await client.standing(name)).job if deleting else await client.job_named(name)
    found = await client.warnings(job.name, deleting=deleting)
    return answer_json(Page(items=tuple(found)))


@router.delete(
    "/{job}",
    **operation(
        "delete_job",
        answers=wire.Deleted,
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
    warnings = await describe_broken_uses(caller.client.store, caller.client.tenant, job)
    with (
        precondition(expect),
        caller.auditing("job.delete", job.name, before=answers.job_version(job)),
    ):
        cancelled = await caller.client.delete_job(job.name, expect=expect, force=force)
    return answer_json(
        wire.Deleted(
            job_id=job.id,
            name=job.name,
            status="deleted",
            cancelled=cancelled,
            warnings=warnings,
        )
    )


def job_location(job: Job) -> str:
    """Where a job is."""
    return f"/api/v1/jobs/{job.id}"


def etag_header(job: Job) -> dict[str, str]:
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
def precondition(expect: int | None) -> Generator[None]:
    """A version that has moved is a failed precondition for who has named one."""
    try:
        yield
    except VersionConflict as error:
        if expect is None:
            raise
        raise PreconditionFailed(str(error)) from None


# What can be done to a job: run, pause, resume, go back to a version, make up for ticks.

job_actions_router = APIRouter(prefix="/jobs/{job}", tags=["jobs"])


@job_actions_router.post(
    "/trigger",
    **operation(
        "trigger_job",
        answers=wire.Enqueued,
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
    return await trigger_execution(request, caller, name, raw, key)


@job_actions_router.post(
    "/pause",
    **operation(
        "pause_job",
        answers=wire.Job,
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
    return await _answer_status(caller, job.name)


@job_actions_router.post(
    "/resume",
    **operation(
        "resume_job",
        answers=wire.Job,
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
    return await _answer_status(caller, job.name)


@job_actions_router.get(
    "/versions",
    **operation(
        "list_job_versions",
        answers=Page[wire.ListedVersion],
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
        before.append(await _previous_version(caller, page.items[-1]))
    pairs = zip(page.items, before, strict=True)
    items = (answers.listed_version(one, older, listed=True) for one, older in pairs)
    return answer_page(page, items, cursor=lambda one: str(one.version))


@job_actions_router.get(
    "/versions/{version}",
    **operation("get_job_version", answers=wire.ListedVersion, says="The version.", errors=(404,)),
)
async def get_version(
    name: JobPath,
    version: Annotated[int, Path(ge=1, le=2**31 - 1)],
    caller: Viewer,
) -> Response:
    """Show a version of a job, with the changes since the one before it."""
    known = (await caller.client.standing(name)).job
    found = await caller.client.job(known.name, version=version)
    return answer_json(answers.listed_version(found, await _previous_version(caller, found)))


async def _previous_version(caller: Caller, job: Job) -> Job | None:
    """The version before one."""
    if job.version == 1:
        return None
    return await caller.client.job(job.name, version=job.version - 1)


@job_actions_router.post(
    "/rollback",
    **operation(
        "rollback_job",
        answers=wire.Job,
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
    return await _answer_status(caller, job.name)


@job_actions_router.post(
    "/backfill",
    **operation(
        "backfill_job",
        answers=wire.Backfill,
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
        validate_body(read_json(raw), BackfillRequest)
        if raw
        else await read_body(request, BackfillRequest)
    )
    job = await caller.client.job_named(name)

    async def perform(this: IdempotentRequest) -> Response:
        return await _backfill(caller, job.name, wanted, this)

    return await perform_once(request, caller, key, raw, perform)


async def _backfill(
    caller: Caller, job: str, wanted: BackfillRequest, this: IdempotentRequest
) -> Response:
    id: UUID = this.made("backfill")
    said: dict[str, Any] = wanted.model_dump()
    after = {**said, "backfill_id": id}
    entry = caller.entry("job.backfill", job, after=after, id=this.made("entry"))
    made = await caller.client.backfill(job, **said, id=id, repeat=this.is_repeated, entry=entry)
    return answer_json(answers.backfill(made))


async def _answer_status(caller: Caller, name: str) -> Response:
    standing = await caller.client.standing(name)
    return answer_json(answers.job(standing), headers=etag_header(standing.job))


# `/templates`: jobs with blanks, from which others are made.

templates_router = APIRouter(prefix="/templates", tags=["templates"])

TemplatePath = Annotated[str, Path(alias="name", description="A template's name.", max_length=200)]


@templates_router.post(
    "",
    **operation(
        "create_template",
        answers=wire.Template,
        status=201,
        says="Created.",
        body=NewTemplate,
        examples=NEW_TEMPLATES,
        errors=(409,),
        headers={**LOCATION, **ETAG, **REPLAYED},
    ),
)
async def create_template(request: Request, caller: Admin, key: IdempotencyKey = None) -> Response:
    """Create a template. What it says of a job is what a request to create one says, with
    `{"parameter": "NAME"}` where a value goes.
    """
    raw = await read_bytes(request)
    wanted = validate_body(read_json(raw), NewTemplate)

    async def perform(this: IdempotentRequest) -> Response:
        made = await _create_template(caller, wanted, this)
        location = f"/api/v1/templates/{quote(made.name, safe='')}"
        return answer_created(
            answers.template(made), location=location, headers=template_etag_header(made)
        )

    return await perform_once(request, caller, key, raw, perform)


async def _create_template(
    caller: Caller, wanted: NewTemplate, this: IdempotentRequest
) -> Template:
    entry, name = this.made("entry"), wanted.name
    if this.is_repeated and await caller.recorded("template.create", name, entry) is not None:
        return await caller.client.template(name)
    said = wanted.said()
    with caller.auditing("template.create", name, after=said, id=entry):
        return await caller.client.set_template(said, author=caller.actor, expect=0)


@templates_router.get(
    "", **operation("list_templates", answers=Page[wire.Template], says="Templates, by name.")
)
async def list_templates(
    caller: Viewer, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List templates."""
    page = await caller.client.templates_page(limit=limit, cursor=cursor)
    items = (answers.template(one, listed=True) for one in page.items)
    return answer_page(page, items, cursor=lambda one: one.name)


@templates_router.get(
    "/{name}",
    **operation(
        "get_template",
        answers=wire.Template,
        says="The template.",
        errors=(404,),
        headers=ETAG,
    ),
)
async def get_template(name: TemplatePath, caller: Viewer) -> Response:
    """Show a template."""
    found = await caller.client.template(name)
    return answer_json(answers.template(found), headers=template_etag_header(found))


@templates_router.put(
    "/{name}",
    **operation(
        "set_template",
        answers=wire.Template,
        says="It is what was said.",
        body=DeclaredTemplate,
        examples=NEW_TEMPLATES,
        errors=(404, 409, 412),
        headers=ETAG,
        also={201: "Created."},
    ),
)
async def set_template(
    request: Request, name: TemplatePath, caller: Admin, version: IfMatch = None
) -> Response:
    """Create a template, or put another in its place. Jobs that were made from it stay as they are.

    One that is like that already is left alone.
    """
    wanted = await read_body(request, DeclaredTemplate)
    if wanted.name not in (None, name):
        raise UsageError(
            f"name is {shown(wanted.name)}, and the address says {shown(name)}", field="name"
        )
    expect = read_version(version)
    said = {**wanted.said(), "name": name}
    before = await _template_before(caller, name)
    with (
        precondition(expect),
        caller.auditing("template.update", name, before=before, after=said),
    ):
        made = await caller.client.set_template(said, author=caller.actor, expect=expect)
    status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
    return answer_json(answers.template(made), status=status, headers=template_etag_header(made))


@templates_router.delete(
    "/{name}",
    **operation(
        "delete_template",
        answers=wire.DeletedName,
        says="It is gone; jobs that were made from it stay.",
        errors=(404, 412),
    ),
)
async def delete_template(name: TemplatePath, caller: Admin, version: IfMatch = None) -> Response:
    """Delete a template. Jobs that were made from it stay as they are."""
    expect = read_version(version)
    before = answers.template(await caller.client.template(name))
    with precondition(expect), caller.auditing("template.delete", name, before=before):
        await caller.client.delete_template(name, expect=expect)
    return answer_json(wire.DeletedName(name=name, status="deleted"))


async def _template_before(caller: Caller, name: str) -> wire.Template | None:
    try:
        return answers.template(await caller.client.template(name))
    except TemplateNotFound:
        return None


def template_etag_header(template: Template) -> dict[str, str]:
    """The header that names a template's version."""
    return {"ETag": f'"{template.version}"'}


# Route of `/schedules/preview`: a schedule in words and its next times.

TIMES_MAX: Final = 1_000

schedules_router = APIRouter(prefix="/schedules", tags=["schedules"])


@schedules_router.get(
    "/preview",
    **operation(
        "preview_schedule",
        answers=wire.Preview,
        says="The schedule in words, and its next times.",
    ),
)
async def preview_schedule(
    caller: Viewer,
    cron: TextFilter = None,
    every: TextFilter = None,
    at: TextFilter = None,
    rrule: Annotated[str | None, Query(max_length=4_000)] = None,
    tz: TextFilter = None,
    count: Annotated[int, Query(ge=1, le=TIMES_MAX)] = 5,
    start: Annotated[str | None, Query(alias="from", max_length=100)] = None,
    dialect: TextFilter = None,
    mode: TextFilter = None,
) -> Response:
    """Say what a schedule means, and list its next times: one of cron, every, at and rrule."""
    kinds = {"cron": cron, "every": every, "at": at, "rrule": rrule}
    given: dict[str, Any] = {name: text for name, text in kinds.items() if text is not None}
    if len(given) != 1:
        raise UsageError("say which schedule: one of cron, every, at and rrule", field="cron")
    more = {"tz": tz, "dialect": dialect, "mode": mode}
    given |= {name: text for name, text in more.items() if text is not None}
    schedule = Schedule.parse(given)
    now = (await caller.client.health()).now
    first = now if start is None else parse_moment(start, what="from", tz=schedule.tz)
    times = schedule.preview(count, just_before(first))
    return answer_json(
        wire.Preview(description=schedule.describe(), next=[one.isoformat() for one in times])
    )
