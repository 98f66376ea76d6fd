"""Jobs: definitions that are made, changed, rolled back and deleted, and lookup by name or id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Unpack, cast
from uuid import UUID

import msgspec

from daybell.client import wire
from daybell.client.context import ClientContext
from daybell.client.executions import UNFINISHED_STATES, cancel_where, count_cancelled
from daybell.client.job_checks import (
    add_signature,
    check_args,
    check_definitions,
    check_own_calls,
    check_undeclared,
    describe_missing_job,
    find_job,
    find_task_definition,
    note_params,
    read_workflow,
)
from daybell.client.requests import (
    JOB_FILTERS,
    JOB_OPTIONS,
    Id,
    JobFilters,
    check_options,
    read_definition,
)
from daybell.client.when import build_declared_schedules, check_dependencies
from daybell.core import payload
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.ids import id_in, mint
from daybell.core.job import TEMPLATES, Job, JobDefinition, NewJob, apply_template
from daybell.core.job_request import (
    JobRequest,
    merge_kind,
    merge_options,
    read_choice,
    read_request,
)
from daybell.core.limits import PAGE_ITEMS_DEFAULT, WORKFLOW_BYTES_MAX, check_name
from daybell.core.monitoring import observers
from daybell.core.options import INHERITED, JobFields, JobOptions, task_of
from daybell.core.schedule import NewSchedule
from daybell.core.views import ExecutionFilter, JobFilter, Page
from daybell.core.when import Schedule
from daybell.core.when.declared import OF_EACH, check_future, has_delay, is_one_time
from daybell.core.workflow.graph import describe_params, params_of
from daybell.errors import (
    DuplicateKey,
    JobNotFound,
    NotFound,
    TemplateNotFound,
    UnknownJob,
    UsageError,
    VersionConflict,
    shown,
)

# Definitions.


async def define(
    client: ClientContext,
    name: str,
    *,
    author: str = "",
    expect: int | None = None,
    promote: bool = False,
    id: UUID | None = None,
    **options: Unpack[JobOptions],
) -> Job:
    """Define a job, or change it; return its current version. See `Store.define_jobs`.

    A schedule that will never fire is refused. `id` is that of a new job, if the caller chose one.
    """
    check_options(options, JOB_OPTIONS, "define()")
    now = None if options.get("schedule") is None else (await client.store.health()).now
    definition = await check_own_calls(client, read_definition(name, now=now, **options))
    (job,) = await define_jobs(
        client, [definition], author=author, expect=expect, promote=promote, id=id
    )
    return job


async def define_jobs(
    client: ClientContext,
    definitions: Iterable[JobDefinition],
    *,
    author: str = "",
    expect: int | None = None,
    promote: bool = False,
    id: UUID | None = None,
) -> list[Job]:
    """Define several jobs with their schedules, all or nothing; return the current version of each.
    Schedules that are over are taken as they are. `id` is for one alone.
    """
    wanted = list(definitions)
    await check_definitions(client.store, client.tenant, wanted)
    jobs = [
        NewJob(
            id=mint() if id is None else id,
            definition=one,
            author=author,
            expect=expect,
            schedules=schedules,
            promote=promote,
        )
        for one, schedules in zip(wanted, await declared(client, wanted), strict=True)
    ]
    defined = await client.store.catalog.define_jobs(client.tenant, jobs)
    note_params(client, defined)
    return defined


async def declared(
    client: ClientContext, definitions: Sequence[JobDefinition]
) -> list[tuple[NewSchedule, ...]]:
    """Return the declared schedules of each definition, as they start now."""
    if not any(one.runs_by_itself for one in definitions):
        return [()] * len(definitions)
    now = (await client.store.health()).now
    return [build_declared_schedules(one, tenant=client.tenant, now=now) for one in definitions]


async def create(
    client: ClientContext,
    name: str,
    *,
    author: str = "",
    id: UUID | None = None,
    **fields: Unpack[JobFields],
) -> Job:
    """Create a job. One of `task`, `command`, `http`, `sql`, `notify`, `workflow` and `template`
    specifies its work; without a schedule it runs when it is triggered.

    Fields of a task that are left out come from the task's own job, except its schedules and
    arguments. A name that exists is refused, unless it has the `id` that the caller chose: then it
    is the same request again.
    """
    request = read_request(name, fields, what="create()", is_draft=True)
    job, _ = await make_job(client, request, author=author, id=id)
    return job


async def launch(
    client: ClientContext,
    name: str,
    run: NewExecution,
    *,
    author: str = "",
    id: UUID | None = None,
    **fields: Unpack[JobFields],
) -> tuple[Job, Enqueued]:
    """Make a job without a schedule as `create` does, and have it run: both or neither."""
    request = read_request(name, fields, what="launch()", is_draft=True)
    job, made = await make_job(client, request, run, author=author, id=id)
    assert made is not None, "it was asked for"
    return job, made


async def make_job(
    client: ClientContext,
    request: JobRequest,
    run: NewExecution | None = None,
    *,
    author: str = "",
    id: UUID | None = None,
) -> tuple[Job, Enqueued | None]:
    """Make the job of a request, and have it run if there is a `run`: both or neither."""
    name, definition = request.name, await definition_of(client, request)
    if run is not None and definition.runs_by_itself:
        raise UsageError(
            "what is launched runs once, without a schedule or dependencies", field="schedule"
        )
    if run is not None:
        way_out = '; say args, or "schedule": "manual" to have it run when it is triggered'
        called = await add_signature(client, definition)
        check_args(called, run.args, what="it would run once, now:", way_out=way_out)
    await check_dependencies(client.store, client.tenant, definition)
    if run is not None or is_one_time(definition.schedules):
        definition = msgspec.structs.replace(definition, once=True)
    try:
        return await _add(client, definition, run, author=author, expect=0, id=id)
    except VersionConflict:
        pass
    try:
        there = await client.store.catalog.get_job(client.tenant, name)
    except JobNotFound:
        # A deleted one comes back: under its old id, as another version of it.
        last = (
            (await client.store.catalog.list_versions(client.tenant, name, limit=1))
            .items[0]
            .version
        )
        return await _add(client, definition, run, author=author, expect=last, promote=True)
    if there.id == id:
        again = [] if run is None else [run]
        answers = await client.store.queue.enqueue(client.tenant, again, repeat=True)
        return there, next(iter(answers), None)
    raise DuplicateKey(
        f"there is a job named {shown(name)} already; update it, or take another name"
    )


async def _add(
    client: ClientContext,
    definition: JobDefinition,
    run: NewExecution | None,
    *,
    author: str,
    expect: int,
    promote: bool = False,
    id: UUID | None = None,
) -> tuple[Job, Enqueued | None]:
    if run is None:
        (job,) = await define_jobs(
            client, [definition], author=author, expect=expect, promote=promote, id=id
        )
        return job, None
    how: dict[str, Any] = {"author": author, "expect": expect, "promote": promote}
    new = NewJob(id=mint() if id is None else id, definition=definition, **how)
    if not observers.are_traced():
        return await client.store.catalog.launch(client.tenant, new, run)
    with observers.enqueueing([run]) as (traced,):
        return await client.store.catalog.launch(client.tenant, new, traced)


async def update(
    client: ClientContext,
    name: str,
    *,
    author: str = "",
    expect: int | None = None,
    **fields: Unpack[JobFields],
) -> Job:
    """Change options of a job; all others stay. Return its new version.

    `core.options` has the merge rule of each option. Code that has an older definition of the job
    does not change it back. With `expect`, it must be at that version.
    """
    return await change_job(client, name, fields, author=author, expect=expect)


async def change_job(
    client: ClientContext,
    name: str,
    fields: Mapping[str, Any],
    *,
    author: str = "",
    expect: int | None = None,
    faults: Iterable[UsageError] = (),
) -> Job:
    """Change options of a job as `update` does. `faults` are of the request beside its options."""
    job = await client.store.catalog.get_job(client.tenant, name)
    check_version(job, expect)
    old, found = job.definition, list(faults)
    given = await _resolve_fields(client, fields, found)
    kind, options = dict[str, Any](), dict(given)
    try:
        kind = merge_kind(old, given)
        options = merge_options(old, given, kind)
    except UsageError as error:
        found.append(error)
    is_new = given.get("schedule") is not None or any(key in given for key in OF_EACH)
    now = (await client.store.health()).now if is_new else None
    request = read_request(name, {**kind, **options}, what="update()", now=now, needs_kind=False)
    merged = {one.field for one in found}
    request.faults = found + [one for one in request.faults if one.field not in merged]
    same = {"kind": old.kind, "settings": old.settings}
    more = await _read_by_store(client, request) if request.choice else same
    definition = await check_own_calls(client, request.definition(**more))
    await check_dependencies(client.store, client.tenant, definition)
    runs_once = is_one_time(definition.schedules)
    if runs_once or (old.once and not definition.runs_by_itself):
        definition = msgspec.structs.replace(definition, once=True)
    (made,) = await define_jobs(
        client, [definition], author=author or job.author, expect=job.version, promote=True
    )
    return made


async def rollback(
    client: ClientContext, name: str, version: int, *, author: str = "", expect: int | None = None
) -> Job:
    """Make an older version of a job current again, as a new version of it.

    Its schedules are those that it declared, from now on; schedules added at run time stay. Rolling
    back to the current version changes nothing. With `expect`, the job must be at that version.
    """
    current = await client.store.catalog.get_job(client.tenant, name)
    old = await client.store.catalog.get_job(client.tenant, name, version=version)
    await check_dependencies(client.store, client.tenant, old.definition)
    (job,) = await define_jobs(
        client,
        [old.definition],
        author=author or current.author,
        expect=current.version if expect is None else expect,
        promote=True,
    )
    return job


def check_version(job: Job, expect: int | None) -> None:
    """Refuse to go on with a job that is at another version than the one expected."""
    if expect is not None and job.version != expect:
        raise VersionConflict(
            f"job {job.name} is at version {job.version}, not {expect}; read it again, then decide"
        )


async def delete_job(
    client: ClientContext, name: str, *, expect: int | None = None, force: bool = False
) -> int:
    """Delete a job and cancel its unfinished executions; return their number. With `expect`, it
    must be at that version. For a deleted job, the rest of that is done. `warnings(name,
    deleting=True)` says before which jobs need it.

    Raises Conflict if a live worker has a task of this name, unless `force` is set.
    """
    if not force:
        await check_undeclared(client.store, client.tenant, name)
    try:
        await client.store.catalog.delete_job(client.tenant, name, expect=expect)
    except NotFound:
        # Raises for one that never was.
        await client.store.catalog.list_versions(client.tenant, name, limit=1)
    return count_cancelled(
        await cancel_where(client, ExecutionFilter(job=name, states=UNFINISHED_STATES))
    )


async def definition_of(
    client: ClientContext, request: JobRequest, *, is_new: bool = True, is_dry: bool = False
) -> JobDefinition:
    """Return the job of a request. Raises all that is wrong with it. A schedule that is over is
    refused if `is_new`. If it is only tried, jobs that a workflow runs need not exist.
    """
    request = await resolve(client, request)
    schedule = request.fields.get("schedule")
    if is_new and schedule is not None:
        now = (await client.store.health()).now
        if has_delay(schedule):
            request = read_request(request.name, request.fields, now=now)
        for rule in request.values.get("schedules", ()):
            request.note("schedule", check_future, Schedule.from_json(rule), now)
    more = await _read_by_store(client, request, inherits=True, is_dry=is_dry)
    if request.faults:  # all of them are reported together
        times = {name: request.values.get(name, ()) for name in ("dependencies", "schedules")}
        job = JobDefinition(name=str(request.name), **times)
        try:
            await check_dependencies(client.store, client.tenant, job, is_dry=is_dry)
        except UsageError as error:
            request.faults.append(error)
    return await check_own_calls(client, request.definition(**more))


async def resolve(client: ClientContext, request: JobRequest) -> JobRequest:
    """Return the request with the fields of its template, and with names for the ids of jobs."""
    faults = list[UsageError]()
    fields = await _resolve_fields(client, request.fields, faults)
    if fields != request.fields:
        request = read_request(request.name, fields, is_draft=True)
    request.faults += faults
    return request


async def _read_by_store(
    client: ClientContext, request: JobRequest, *, inherits: bool = False, is_dry: bool = False
) -> dict[str, Any]:
    """Return the fields of a definition that depend on other jobs: those of a task or a graph."""
    fields = request.fields
    try:
        if request.choice == "task":
            task_name = check_name(fields["task"], what="task")
            task = await find_task_definition(client.store, client.tenant, task_name)
            known = msgspec.structs.asdict(task) | {"retries": task.retry}
            own = {_FIELDS.get(name, name): known[name] for name in INHERITED if inherits}
            settings = payload.encode({"task": task_of(task) or task.name}, what="settings")
            return {**own, "kind": "task", "settings": settings}
        if request.choice == "workflow":
            graph = await read_workflow(
                client.store, client.tenant, fields["workflow"], job=request.name, is_dry=is_dry
            )
            kept = graph.to_settings()
            settings = payload.encode(kept, what="settings", bytes_max=WORKFLOW_BYTES_MAX)
            return {"kind": "workflow", "settings": settings}
    except UsageError as error:
        if not any(one.field == request.choice for one in request.faults):
            request.faults.append(error)
    return {}


# The fields of a definition that have other names than their options.
_FIELDS: Final = {"retries": "retry"}


async def _resolve_fields(
    client: ClientContext, fields: Mapping[str, Any], faults: list[UsageError]
) -> dict[str, Any]:
    """Return fields with those of the template that they name in its place, and with names for the
    ids of jobs.
    """
    said = dict(fields)
    if isinstance(said.get("dependencies"), list | tuple):
        said["dependencies"] = [await _named(client, one) for one in said["dependencies"]]
    schedule = said.get("schedule")
    if isinstance(schedule, list | tuple):
        said["schedule"] = [await _fired_by(client, one) for one in cast("list[Any]", schedule)]
    elif schedule is not None:
        said["schedule"] = await _fired_by(client, schedule)
    try:
        return await _fill_template(client, said)
    except UsageError as error:
        faults.append(error)
        return said


async def _fill_template(client: ClientContext, fields: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(fields.get("template"), str) or read_choice(fields) != "template":
        return fields
    if fields.get("made_from") is not None:
        raise UsageError(
            "made_from tells of a template that was filled in before; leave it out",
            field="made_from",
        )
    name = check_name(fields["template"], what="template")
    try:
        template = await client.store.admin.get_record(client.tenant, TEMPLATES, name)
    except TemplateNotFound:
        raise UsageError(
            f"there is no template named {shown(name)}; create it first", field="template"
        ) from None
    return apply_template(fields, template)


async def _named(client: ClientContext, dependency: Any) -> Any:
    """Return the name of a job that is given by its id. An unknown one is refused later, with all
    others that are.
    """
    id = id_in(dependency) if isinstance(dependency, str) else None
    if id is not None:
        with suppress(JobNotFound):
            return (await client.store.catalog.find_job(client.tenant, id)).name
    return dependency


async def _fired_by(client: ClientContext, schedule: Any) -> Any:
    """Return the schedule, with names for the ids of jobs of which any fires it."""
    if not isinstance(schedule, dict):
        return schedule
    said = cast("dict[str, Any]", schedule)
    if not isinstance(said.get("after_any"), list | tuple):
        return said
    jobs = cast("Sequence[Any]", said["after_any"])
    return {**said, "after_any": [await _named(client, one) for one in jobs]}


# Jobs and their versions.


async def job(client: ClientContext, name: str, *, version: int | None = None) -> Job:
    """Return a job, at its current version or the one asked for."""
    return await client.store.catalog.get_job(client.tenant, name, version=version)


async def job_named(client: ClientContext, id_or_name: Id) -> Job:
    """Return a job by its id, or by its name. Text that is both is taken as an id first."""
    try:
        return await find_job(client, id_or_name)
    except JobNotFound as error:
        raise await describe_missing_job(client, str(id_or_name), error) from None


async def signature(client: ClientContext, job: Id) -> wire.Signature:
    """Return the JSON Schema of a job's arguments: those of its function, of the task that it runs,
    or the parameters of its workflow. None: it is not known, or the job takes none.
    """
    found = await job_named(client, job)
    definition = found.definition
    task = task_of(definition)
    if definition.kind == "workflow":
        schema = describe_params(params_of(definition.settings))
    else:
        known = definition
        if task is not None:
            with suppress(UnknownJob):
                known = await find_task_definition(client.store, client.tenant, task)
        schema = payload.decode(known.signature or "null")
    return wire.Signature(job_id=found.id, job=found.name, schema=schema)


async def jobs(
    client: ClientContext,
    *,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    **where: Unpack[JobFilters],
) -> Page[Job]:
    """Return jobs by name: those with a name that begins with `prefix`, that have `text` in their
    name or description, that belong to this user, that use this queue. Deleted ones are not shown.
    """
    check_options(where, JOB_FILTERS, "jobs()")
    chosen = JobFilter(**where)
    return await client.store.catalog.list_jobs(client.tenant, chosen, limit=limit, cursor=cursor)


async def versions_page(
    client: ClientContext, name: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[Job]:
    """Versions of a job, newest first."""
    return await client.store.catalog.list_versions(client.tenant, name, limit=limit, cursor=cursor)


async def previous_version(client: ClientContext, of: Job) -> Job | None:
    """The version before one."""
    return None if of.version == 1 else await job(client, of.name, version=of.version - 1)
