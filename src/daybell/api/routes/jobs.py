"""Routes of `/jobs` and `/templates`: definitions, versions and actions."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.bodies import (
    BackfillRequest,
    DeclaredTemplate,
    NewTemplate,
    Nothing,
    Pause,
    Rollback,
    Trigger,
)
from daybell.api.caller import (
    Caller,
    PreconditionFailed,
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
)
from daybell.api.fields import AgoBound, JobPath, JobStatusWord, Paged, Shorter, Version
from daybell.api.idempotency import (
    IdempotentRequest,
    create_record,
    etag_header,
    perform_once,
)
from daybell.api.requests import read_json, read_object
from daybell.api.router import Reach, Routes
from daybell.api.routes.executions import trigger_execution
from daybell.client import answers, wire
from daybell.client import jobs as job_room
from daybell.client import schedules as schedule_room
from daybell.client.declarations import CREATED, UNCHANGED, ApplyOutcome, warnings_about
from daybell.client.executions import read_execution
from daybell.client.jobs import definition_of
from daybell.client.stats import JOB_SINCE
from daybell.core.access import Action, Role
from daybell.core.execution import Enqueued
from daybell.core.ids import id_in
from daybell.core.job import Job
from daybell.core.job_request import JobRequest, read_request
from daybell.core.limits import check_key, check_name
from daybell.core.views import Page
from daybell.errors import JobNotFound, TemplateNotFound, UsageError, VersionConflict, shown

router = Routes("/jobs", tag="jobs")

NewJobPath = Annotated[str, Meta(description="A job's name.", max_length=200)]


class ListJobs(Paged):
    """The jobs to list."""

    status: (
        Annotated[
            list[JobStatusWord],
            Meta(max_length=20, description="The status of jobs, or pending; may be repeated."),
        ]
        | None
    ) = None
    user_id: Shorter | None = None
    queue: Shorter | None = None
    label: Annotated[Shorter, Meta(description="team=billing, or team for any value.")] | None = (
        None
    )
    q: Shorter | None = None
    prefix: Shorter | None = None


class ApplyQuery(msgspec.Struct):
    """How to declare a job."""

    dry_run: Annotated[bool, Meta(description="Only report the changes.")] = False


class DeleteQuery(msgspec.Struct):
    """How to delete a job."""

    force: Annotated[bool, Meta(description="Even if the code of a live worker declares it.")] = (
        False
    )


class WarningsQuery(msgspec.Struct):
    """The warnings to list."""

    deleting: Annotated[
        bool, Meta(description="Those of its deletion, such as jobs that depend on it.")
    ] = False


@router.post(
    "",
    id="create_job",
    role=Role.ADMIN,
    action=Action.DEFINE,
    reach=Reach.NAMES,
    answers=wire.Job,
    status=201,
    says="Created.",
    body="NewJob",
    examples=NEW_JOBS,
    errors=(404, 409),
    headers={**LOCATION, **ETAG, **REPLAYED},
)
async def create_job(request: Request, caller: Caller, raw: bytes, key: str | None) -> Response:
    """Create a job. Without a `schedule` it runs once, now.

    One of `task`, `command`, `http`, `sql`, `notify` and `template` says what it runs.
    """
    wanted = read_new_job(read_json(raw))
    about = await caller.of_tenant(wanted.tenant)
    if wanted.request.faults:  # no key is used for it; the store may find more
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
    # Of the definition that was created: the job may be deleted by now.
    warnings = await warnings_about(caller.client.store, caller.client.tenant, job.definition)
    there = msgspec.structs.replace(
        await caller.client.standing(job.name),
        execution_id=msgspec.UNSET if made is None else made.id,
        warnings=warnings,
    )
    return answer_created(there, location=job_location(job.id), headers=etag_header(job))


async def _create_or_launch(
    caller: Caller, wanted: NewJobBody, this: IdempotentRequest
) -> tuple[Job, Enqueued | None]:
    """Return the job, and its execution if it has no schedule; perhaps of an earlier attempt."""
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
        job = (await schedule_room.standing(caller.client, name)).job
        return job, None if run is None else await caller.client.submit(run, repeat=True)
    client = caller.audited("job.create", name, after=wanted.body, id=entry)
    return await client.make_job(request, run, author=caller.actor, id=this.made("job"))


@router.get(
    "",
    id="list_jobs",
    live="job_id",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=Page[wire.Job],
    says="A page of jobs, by name.",
)
async def list_jobs(
    caller: Caller,
    query: ListJobs,
) -> Response:
    """List jobs. `q` is looked for in names and descriptions."""
    page = await caller.client.jobs(
        status=query.status,
        user_id=query.user_id,
        queue=query.queue,
        label=query.label,
        text=query.q,
        prefix=query.prefix or "",
        limit=query.limit,
        cursor=query.cursor,
    )
    listed = answers.page(page, answers.shorten_version)
    return answer_page(listed, cursor=lambda one: one.name)


@router.get(
    "/{job}",
    id="get_job",
    live="",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.Job,
    says="The job, with what it does now.",
    errors=(404,),
    headers=ETAG,
)
async def get_job(name: JobPath, caller: Caller) -> Response:
    """Show a job, a deleted one too, with its status, its next time and its last execution."""
    return await _answer_status(caller, name)


@router.patch(
    "/{job}",
    id="update_job",
    role=Role.ADMIN,
    action=Action.DEFINE,
    reach=Reach.NAMES,
    answers=wire.Job,
    says="Changed; the new version.",
    body="JobChange",
    examples=CHANGED_JOBS,
    errors=(404, 409, 412),
    headers=ETAG,
)
async def update_job(name: JobPath, caller: Caller, raw: bytes, if_match: str | None) -> Response:
    """Change a job. What is not named stays as it is; null is back to the default."""
    body = read_object(read_json(raw))
    expect = read_version(if_match)
    before = await caller.client.job_named(name)
    if not body:
        raise UsageError("nothing is to change; name a field, such as schedule", field="body")
    fixed = [
        UsageError("name cannot be changed; create another job with this name", field="name")
        for _ in body.keys() & {"name"}
    ]
    options = {key: one for key, one in body.items() if key != "name"}
    client = caller.audited("job.update", before.name, before=before, after=body)
    with precondition(expect):
        job = await client.change_job(
            before.name, options, author=caller.actor, expect=expect, faults=fixed
        )
    warnings = await warnings_about(caller.client.store, caller.client.tenant, job.definition)
    there = await caller.client.standing(job.name)
    return answer_json(msgspec.structs.replace(there, warnings=warnings), headers=etag_header(job))


@router.put(
    "/{job}",
    id="apply_job",
    role=Role.ADMIN,
    action=Action.DEFINE,
    reach=Reach.NAMES,
    answers=wire.AppliedJob,
    says="It is what was declared; `action` says whether it was before.",
    body="DeclaredJob",
    examples=DECLARED_JOBS,
    errors=(404, 409, 412),
    headers=ETAG,
    also={201: "Created."},
)
async def apply_job(
    raw: bytes,
    name: NewJobPath,
    caller: Caller,
    if_match: str | None,
    query: ApplyQuery,
) -> Response:
    """Declare a job: it is created, or changed to be what is said here and nothing else.

    Without a `schedule` it never runs by itself. A job that code defines is refused.
    """
    body = read_object(read_json(raw))
    said, faults = body.get("name"), list[UsageError]()
    if said not in (None, name):
        fault = f"name is {shown(said)}, and the address says {shown(name)}"
        faults.append(UsageError(fault, field="name"))
    await _check_no_id(caller, name)
    expect = read_version(if_match)
    options = {key: one for key, one in body.items() if key != "name"}
    client = caller.client
    with precondition(expect):
        planned = await client.plan_job(
            name, options, expect=expect, is_dry=query.dry_run, faults=faults
        )
        outcome = planned.outcome
        if query.dry_run or outcome.action == UNCHANGED:
            return await _answer_applied(caller, outcome, 200)
        client = caller.audited("job.apply", name, before=outcome.before, after=body)
        made = await client.make_planned(planned, author=caller.actor)
    return await _answer_applied(caller, made, 201 if made.action == CREATED else 200)


async def _check_no_id(caller: Caller, name: str) -> None:
    """Refuse a job's id where its name belongs: it would become another job's name."""
    with suppress(JobNotFound):
        if id_in(name) is not None and (await caller.client.job_named(name)).name != name:
            raise UsageError(f"{name} is a job's id; a job is declared by its name", field="name")


async def _answer_applied(caller: Caller, made: ApplyOutcome, status: int) -> Response:
    name = None if made.job is None else made.job.name
    there = None if name is None else await schedule_room.standing(caller.client, name)
    headers = {} if made.job is None else etag_header(made.job)
    return answer_json(answers.applied(made, there), status=status, headers=headers)


@router.get(
    "/{job}/warnings",
    id="list_job_warnings",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=Page[str],
    says="What looks wrong with the job as things are now; nothing, if all is well.",
    errors=(404,),
)
async def list_warnings(name: JobPath, caller: Caller, query: WarningsQuery) -> Response:
    """Say what looks wrong with a job: secrets that are not set, no worker that could run it."""
    client = caller.client
    job = await (client.standing(name) if query.deleting else client.job_named(name))
    found = await client.warnings(job.name, deleting=query.deleting)
    return answer_json(Page(items=tuple(found)))


@router.delete(
    "/{job}",
    id="delete_job",
    role=Role.ADMIN,
    action=Action.DEFINE,
    reach=Reach.NAMES,
    answers=wire.Deleted,
    says="It fires no more, and what was unfinished is cancelled.",
    errors=(404, 409, 412),
)
async def delete_job(
    name: JobPath, caller: Caller, if_match: str | None, query: DeleteQuery
) -> Response:
    """Cancel a job: it fires no more, and its unfinished executions are cancelled.

    A job that is deleted stays so, and what is left unfinished of it is cancelled. A job that the
    code of a live worker declares is only deleted with `force`.
    """
    # A deleted job, too: the store may have failed before all its executions were cancelled.
    job = await caller.client.standing(name)
    expect = read_version(if_match)
    warnings = await caller.client.warnings(job.name, deleting=True)
    client = caller.audited("job.delete", job.name, before=job)
    with precondition(expect):
        cancelled = await client.delete_job(job.name, expect=expect, force=query.force)
    return answer_json(
        wire.Deleted(
            job_id=job.job_id,
            name=job.name,
            status="deleted",
            cancelled=cancelled,
            warnings=warnings,
        )
    )


def job_location(id: UUID) -> str:
    """Where a job is."""
    return f"/api/v1/jobs/{id}"


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
    """A version that has moved is a failed precondition for a caller that names one."""
    try:
        yield
    except VersionConflict as error:
        if expect is None:
            raise
        raise PreconditionFailed(str(error)) from None


# Actions on a job: run, pause, resume, roll back to a version, make up for ticks.

job_actions_router = Routes("/jobs/{job}", tag="jobs")


@job_actions_router.post(
    "/trigger",
    id="trigger_job",
    role=Role.OPERATOR,
    action=Action.TRIGGER,
    reach=Reach.NAMES,
    answers=wire.Enqueued,
    status=202,
    says="It will run.",
    body=Trigger,
    is_body_optional=True,
    examples={"later": {"args": {"file": "42.csv"}, "delay": "10m", "priority": "high"}},
    errors=(404, 409),
    headers={**LOCATION, **REPLAYED},
)
async def trigger_job(
    request: Request, name: JobPath, caller: Caller, raw: bytes, key: str | None
) -> Response:
    """Run a job now, or later. Without `args` it is called as its schedules do it.

    If the job's overlap rule does not let it in, the answer is 409 and names the execution that is
    in the way; `force` overrides the rule.
    """
    return await trigger_execution(request, caller, name, raw, key)


@job_actions_router.post(
    "/pause",
    id="pause_job",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    reach=Reach.NAMES,
    answers=wire.Job,
    says="Its schedules fire no more.",
    is_body_optional=True,
    examples={"with a note": {"note": "until the disk is replaced"}},
    errors=(404,),
    headers=ETAG,
)
async def pause_job(body: Pause, name: JobPath, caller: Caller) -> Response:
    """Let a job's schedules fire no more until it is resumed. It can still be triggered."""
    job = await caller.client.job_named(name)
    client = caller.audited("job.pause", job.name, after={"note": body.note})
    await client.pause(job.name, note=body.note)
    return await _answer_status(caller, job.name)


@job_actions_router.post(
    "/resume",
    id="resume_job",
    role=Role.OPERATOR,
    action=Action.PAUSE,
    reach=Reach.NAMES,
    answers=wire.Job,
    says="Its schedules fire again.",
    body=Nothing,
    is_body_optional=True,
    errors=(404,),
    headers=ETAG,
)
async def resume_job(name: JobPath, caller: Caller) -> Response:
    """Let a job's schedules fire again, from now on."""
    job = await caller.client.job_named(name)
    client = caller.audited("job.resume", job.name, before={"note": job.pause_note})
    await client.resume(job.name)
    return await _answer_status(caller, job.name)


class JobStatsQuery(msgspec.Struct, kw_only=True):
    """The time to look at."""

    since: AgoBound = JOB_SINCE


@job_actions_router.get(
    "/stats",
    id="get_job_stats",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.JobStats,
    says="How the job has done.",
    errors=(404,),
)
async def get_job_stats(name: JobPath, caller: Caller, query: JobStatsQuery) -> Response:
    """Show how a job has done: success rate, run times and start delays, and the trend.

    The trend compares with the same length of time before; the default is a week. Times are whole
    hours.
    """
    return answer_json(await caller.client.job_stats(name, since=query.since))


@job_actions_router.get(
    "/why",
    id="explain_job",
    live="",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.JobWhy,
    says="Why.",
    errors=(404,),
)
async def explain_job(name: JobPath, caller: Caller) -> Response:
    """Explain why a job does not run now: its schedules, their last ten ticks, and what its
    unfinished executions wait for.
    """
    return answer_json(await caller.client.why_job(name))


@job_actions_router.get(
    "/signature",
    id="get_job_signature",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.Signature,
    says="The arguments.",
    errors=(404,),
)
async def get_signature(name: JobPath, caller: Caller) -> Response:
    """Show the arguments that a job takes, as JSON Schema. The code of a task describes them."""
    return answer_json(await caller.client.signature(name))


@job_actions_router.get(
    "/versions",
    id="list_job_versions",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=Page[wire.ListedVersion],
    says="A page of versions, newest first.",
    errors=(404,),
)
async def list_versions(name: JobPath, caller: Caller, query: Paged) -> Response:
    """List a job's versions, each with what has changed since the one before it."""
    known = await caller.client.standing(name)  # a deleted job has versions, too
    page = await caller.client.versions_page(known.name, limit=query.limit, cursor=query.cursor)
    listed = answers.page(page, answers.shorten_version)
    return answer_page(listed, cursor=lambda one: str(one.version))


@job_actions_router.get(
    "/versions/{version}",
    id="get_job_version",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=wire.ListedVersion,
    says="The version.",
    errors=(404,),
)
async def get_version(
    name: JobPath,
    version: Version,
    caller: Caller,
) -> Response:
    """Show a version of a job, with the changes since the one before it."""
    known = await caller.client.standing(name)
    found = await job_room.job(caller.client, known.name, version=version)
    before = await job_room.previous_version(caller.client, found)
    return answer_json(answers.listed_version(found, before))


@job_actions_router.post(
    "/rollback",
    id="rollback_job",
    role=Role.ADMIN,
    action=Action.DEFINE,
    reach=Reach.NAMES,
    answers=wire.Job,
    says="The version is the current one again, as a new version.",
    examples={"to the first": {"version": 1}},
    errors=(404, 409, 412),
    headers=ETAG,
)
async def rollback_job(
    body: Rollback, name: JobPath, caller: Caller, if_match: str | None
) -> Response:
    """Make an earlier version of a job the current one again."""
    job = await caller.client.job_named(name)
    expect = read_version(if_match)
    after = {"version": body.version}
    client = caller.audited("job.rollback", job.name, before={"version": job.version}, after=after)
    with precondition(expect):
        await client.rollback(job.name, body.version, author=caller.actor, expect=expect)
    return await _answer_status(caller, job.name)


@job_actions_router.post(
    "/backfill",
    id="backfill_job",
    role=Role.ADMIN,
    action=Action.BACKFILL,
    reach=Reach.NAMES,
    answers=wire.Backfill,
    says="What is run, or would be in a dry run.",
    examples={
        "last week, to look at": {"since": "2026-11-01", "until": "2026-11-08", "dry_run": True}
    },
    errors=(404, 409),
    headers=REPLAYED,
)
async def backfill_job(
    request: Request,
    body: BackfillRequest,
    raw: bytes,
    name: JobPath,
    caller: Caller,
    key: str | None,
) -> Response:
    """Run a job for past ticks of its schedules: those that were missed, that failed, or all."""
    job = await caller.client.job_named(name)

    async def perform(this: IdempotentRequest) -> Response:
        return await _backfill(caller, job.name, body, this)

    return await perform_once(request, caller, key, raw, perform)


async def _backfill(
    caller: Caller, job: str, wanted: BackfillRequest, this: IdempotentRequest
) -> Response:
    id: UUID = this.made("backfill")
    said: dict[str, Any] = msgspec.structs.asdict(wanted)
    after = {**said, "backfill_id": id}
    entry = caller.entry("job.backfill", job, after=after, id=this.made("entry"))
    made = await caller.client.backfill(job, **said, id=id, repeat=this.is_repeated, entry=entry)
    return answer_json(made)


async def _answer_status(caller: Caller, name: str) -> Response:
    there = await caller.client.standing(name)
    return answer_json(there, headers=etag_header(there))


# `/templates`: jobs with blanks, from which callers create other jobs.

templates_router = Routes("/templates", tag="templates")

TemplatePath = Annotated[str, Meta(description="A template's name.", max_length=200)]


@templates_router.post(
    "",
    id="create_template",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.Template,
    status=201,
    says="Created.",
    examples=NEW_TEMPLATES,
    errors=(409,),
    headers={**LOCATION, **ETAG, **REPLAYED},
)
async def create_template(
    request: Request, body: NewTemplate, raw: bytes, caller: Caller, key: str | None
) -> Response:
    """Create a template. What it says of a job is what a request to create one says, with
    `{"parameter": "NAME"}` where a value goes.
    """
    return await create_record(
        request,
        caller,
        key,
        raw,
        noun="template",
        name=body.name,
        fields=body.given(),
        make=lambda client, given: client.set_template(given, author=caller.actor, expect=0),
        find=caller.client.template,
    )


@templates_router.get(
    "",
    id="list_templates",
    role=Role.VIEWER,
    action=Action.READ,
    answers=Page[wire.Template],
    says="Templates, by name.",
)
async def list_templates(caller: Caller, query: Paged) -> Response:
    """List templates."""
    page = await caller.client.templates_page(limit=query.limit, cursor=query.cursor)
    return answer_page(answers.page(page, answers.shorten_template), cursor=lambda one: one.name)


@templates_router.get(
    "/{name}",
    id="get_template",
    role=Role.VIEWER,
    action=Action.READ,
    answers=wire.Template,
    says="The template.",
    errors=(404,),
    headers=ETAG,
)
async def get_template(name: TemplatePath, caller: Caller) -> Response:
    """Show a template."""
    found = await caller.client.template(name)
    return answer_json(found, headers=etag_header(found))


@templates_router.put(
    "/{name}",
    id="set_template",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.Template,
    says="It is what was said.",
    examples=NEW_TEMPLATES,
    errors=(404, 409, 412),
    headers=ETAG,
    also={201: "Created."},
)
async def set_template(
    body: DeclaredTemplate, name: TemplatePath, caller: Caller, if_match: str | None
) -> Response:
    """Create a template, or put another in its place. Jobs that were made from it stay as they are.

    One that is like that already is left alone.
    """
    if body.name not in (None, name):
        raise UsageError(
            f"name is {shown(body.name)}, and the address says {shown(name)}", field="name"
        )
    expect = read_version(if_match)
    said = {**body.given(), "name": name}
    before = await _template_before(caller, name)
    client = caller.audited("template.update", name, before=before, after=said)
    with precondition(expect):
        made = await client.set_template(said, author=caller.actor, expect=expect)
    status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
    return answer_json(made, status=status, headers=etag_header(made))


@templates_router.delete(
    "/{name}",
    id="delete_template",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.DeletedName,
    says="It is gone; jobs that were made from it stay.",
    errors=(404, 412),
)
async def delete_template(name: TemplatePath, caller: Caller, if_match: str | None) -> Response:
    """Delete a template. Jobs that were made from it stay as they are."""
    expect = read_version(if_match)
    before = await caller.client.template(name)
    client = caller.audited("template.delete", name, before=before)
    with precondition(expect):
        await client.delete_template(name, expect=expect)
    return answer_json(wire.DeletedName(name=name, status="deleted"))


async def _template_before(caller: Caller, name: str) -> wire.Template | None:
    try:
        return await caller.client.template(name)
    except TemplateNotFound:
        return None
