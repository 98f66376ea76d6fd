"""Jobs: definitions that are made, changed, rolled back and deleted, and lookup by name or id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Unpack, cast
from uuid import UUID

import msgspec

from daybell.client.context import ClientContext
from daybell.client.executions import UNFINISHED_STATES, cancel_where, count_cancelled
from daybell.client.job_checks import (
    check_args,
    check_call,
    check_definitions,
    check_undeclared,
    describe_missing_job,
    find_job,
    find_task_definition,
    note_params,
    read_workflow,
)
from daybell.client.job_fields import (
    OF_COMMAND,
    JobFields,
    apply_template,
    check_fields,
    is_by_code,
    plain_options,
    read_choice,
    read_kind,
    read_notes,
    read_retries,
    require_choice,
    update_kind,
    update_retries,
)
from daybell.client.requests import (
    JOB_FILTERS,
    JOB_OPTIONS,
    Id,
    JobFilters,
    JobOptions,
    check_options,
    id_in,
    read_definition,
)
from daybell.client.when import (
    build_declared_schedules,
    check_dependencies,
    is_after,
    is_after_any,
    is_one_time,
    keep_options,
    without_times,
)
from daybell.core import payload
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.ids import mint
from daybell.core.job import Job, JobDefinition, NewJob, task_of
from daybell.core.kinds import SETTINGS
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_name
from daybell.core.schedule import NewSchedule
from daybell.core.views import ExecutionFilter, JobFilter, Page, read_pages
from daybell.core.when import Misfire, Schedule
from daybell.core.workflow.graph import Graph
from daybell.errors import (
    DuplicateKey,
    JobNotFound,
    NotFound,
    TemplateNotFound,
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
    """Define a job, or change it; answers its current version. See `Store.define_jobs`.

    A schedule that will never fire is refused. `id` is that of a new job, if the caller chose
    one.
    """
    check_options(options, JOB_OPTIONS, "define()")
    now = None if options.get("schedule") is None else (await client.store.health()).now
    definition = check_call(read_definition(name, now=now, **options))
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
    """Define several jobs with their schedules, all or nothing; answers the current version
    of each. Schedules that are over are taken as they are. `id` is for one alone.
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
    defined = await client.store.define_jobs(client.tenant, jobs)
    note_params(client, defined)
    return defined


async def declared(
    client: ClientContext, definitions: Sequence[JobDefinition]
) -> list[tuple[NewSchedule, ...]]:
    """The schedules that come with each definition, as they begin now."""
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
    """Make a job. One of `task`, `command`, `http`, `sql`, `notify`, `workflow` and `template`
    says what it runs; without a schedule it runs when it is triggered.

    What is not said of a task is as the task's own job has it; its schedules and arguments are
    not taken over. A name that exists is refused, unless it has the `id` that the caller chose:
    then it is the same request again.
    """
    job, _ = await _create(client, name, None, fields, author=author, id=id, what="create()")
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
    job, made = await _create(client, name, run, fields, author=author, id=id, what="launch()")
    assert made is not None, "it was asked for"
    return job, made


async def _create(
    client: ClientContext,
    name: str,
    run: NewExecution | None,
    fields: JobFields,
    *,
    author: str,
    id: UUID | None,
    what: str,
) -> tuple[Job, Enqueued | None]:
    definition = await definition_of(client, name, fields, what=what)
    if run is not None and definition.runs_by_itself:
        raise UsageError(
            "what is launched runs once, without a schedule or dependencies", field="schedule"
        )
    if run is not None:
        way_out = '; say args, or "schedule": "manual" to have it run when it is triggered'
        check_args(definition, run.args, what="it would run once, now:", way_out=way_out)
    await check_dependencies(client.store, client.tenant, definition)
    if run is not None or is_one_time(definition.schedules):
        definition = msgspec.structs.replace(definition, once=True)
    try:
        return await _add(client, definition, run, author=author, expect=0, id=id)
    except VersionConflict:
        pass
    try:
        there = await client.store.get_job(client.tenant, name)
    except JobNotFound:
        # A deleted one comes back: under its old id, as another version of it.
        last = (await client.store.list_versions(client.tenant, name, limit=1)).items[0].version
        return await _add(client, definition, run, author=author, expect=last, promote=True)
    if there.id == id:
        again = [] if run is None else [run]
        answers = await client.store.enqueue(client.tenant, again, repeat=True)
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
    return await client.store.launch(client.tenant, new, run)


async def update(
    client: ClientContext,
    name: str,
    *,
    author: str = "",
    expect: int | None = None,
    **fields: Unpack[JobFields],
) -> Job:
    """Change what is said of a job; all else stays. Answers its new version.

    A command's line or a request's address takes the place of the old one, and leaves the rest
    of its settings; an object is all of them. What runs something else begins without
    arguments. Code that has an older definition of it does not change it back. With `expect`,
    it must be at that version.
    """
    job = await client.store.get_job(client.tenant, name)
    check_version(job, expect)
    old = job.definition
    given = await filled_in(client, fields, what="update()")
    kept = options_of(old) | await _change_kind(client, old, given)
    changed = plain_options(given) | update_retries(given, old.retry)
    changed |= read_notes(given)
    times = _merge_times(old, kept, given)
    if not _has_upstream({**kept, **times, **given}):
        kept.pop("on_dependency_failure", None)  # it goes with them
    is_new = given.get("schedule") is not None or any(key in given for key in _COMMON)
    now = (await client.store.health()).now if is_new else None
    definition = check_call(read_definition(name, now=now, **{**kept, **changed, **times}))
    await check_dependencies(client.store, client.tenant, definition)
    runs_once = is_one_time(definition.schedules)
    if runs_once or (old.once and not definition.runs_by_itself):
        definition = msgspec.structs.replace(definition, once=True)
    (made,) = await define_jobs(
        client, [definition], author=author or job.author, expect=job.version, promote=True
    )
    return made


async def _change_kind(
    client: ClientContext, old: JobDefinition, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of a job's kind after a change; nothing, if it leaves them.

    | change | settings | arguments |
    |---|---|---|
    | to another kind | those of the request | dropped |
    | to another task or graph | those of the request | kept |
    | of a command, a request, a statement, a message | merged by `update_kind` | kept |
    """
    choice = read_choice(given)
    # For a command, null means something as well: as usual.
    beside = [
        name
        for name in OF_COMMAND
        if name in given and (old.kind == "command" or given[name] is not None)
    ]
    if choice is None and not beside:
        return {}
    if is_by_code(old):
        raise UsageError(
            f"job {old.name} is defined by code, which says what it runs; create another job",
            field=choice or beside[0],
        )
    if choice is None and old.kind != "command":
        raise UsageError(f"{beside[0]} is for a command, and this job runs none", field=beside[0])
    kind = choice or "command"
    if kind == old.kind and kind in SETTINGS:
        settings: Any = update_kind(kind, given, payload.decode(old.settings))
    else:
        settings = await _read_settings(client, old.name, kind, given)
    change: dict[str, Any] = {"kind": kind, "template": "", "settings": settings}
    return change if kind == old.kind else {**change, "args": None}


async def _read_settings(
    client: ClientContext, name: str, kind: str, said: Mapping[str, Any], *, is_dry: bool = False
) -> dict[str, Any] | Graph:
    """Return what a request says of the settings of a kind."""
    if kind == "task":
        known = await _find_task(client, said)
        return {"task": task_of(known) or known.name}
    if kind == "workflow":
        value = said["workflow"]
        return await read_workflow(client.store, client.tenant, value, job=name, is_dry=is_dry)
    return read_kind(kind, said)


def _merge_times(
    old: JobDefinition, kept: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the schedule after a change, and the dependencies if they change with it.

    | `schedule` in the request | schedule |
    |---|---|
    | missing | the old one, but for the common options that the request names |
    | empty | none; a job with dependencies runs after these |
    | given | the new one, with the options of the old one that it does not name |
    """
    is_said = "dependencies" in given
    if "schedule" not in given:
        again = {key: None for key in _COMMON if key in given}
        if again and not kept["schedule"]:
            field = next(iter(again))
            raise UsageError(
                f"job {old.name} has no schedule that {field} could be for", field=field
            )
        return {"schedule": [one.replaced(**again) for one in kept["schedule"]]}
    if not given["schedule"]:
        needed = (given if is_said else kept)["dependencies"] or ()
        return {"schedule": without_times(old, needed, is_said=is_said)}
    times: dict[str, Any] = {
        "schedule": keep_options(given["schedule"], kept["schedule"], named=given)
    }
    if not is_said and is_after(given["schedule"]):
        times["dependencies"] = ()  # it runs after others now
    return times


async def rollback(
    client: ClientContext, name: str, version: int, *, author: str = "", expect: int | None = None
) -> Job:
    """Make what an older version of a job said current again, as a new version of it.

    Its schedules are those that it declared, from now on; what was added at run time stays.
    Rolling back to the current version changes nothing. With `expect`, it must be at that
    version.
    """
    current = await client.store.get_job(client.tenant, name)
    old = await client.store.get_job(client.tenant, name, version=version)
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
    """Delete a job and cancel its unfinished executions; answers how many. With `expect`, it
    must be at that version. For a deleted job, the rest of that is done. `warnings(name,
    deleting=True)` says before which jobs need it.

    Raises Conflict if a live worker has a task of this name, unless `force` is set.
    """
    if not force:
        await check_undeclared(client.store, client.tenant, name)
    try:
        await client.store.delete_job(client.tenant, name, expect=expect)
    except NotFound:
        # Raises for one that never was.
        await client.store.list_versions(client.tenant, name, limit=1)
    return count_cancelled(
        await cancel_where(client, ExecutionFilter(job=name, states=UNFINISHED_STATES))
    )


# What a job of another name takes over from the task's own, unless it says something else.
_INHERITED: Final = (
    "queue",
    "priority",
    "retries",
    "timeout",
    "expires",
    "max_crashes",
    "on_lost",
    "store_result",
)
# Of schedules that were there before, these are set anew by a change that names them.
_COMMON: Final = ("jitter", "start_at", "end_at", "max_executions", "calendar")


async def definition_of(
    client: ClientContext,
    name: str,
    fields: JobFields,
    *,
    what: str,
    is_new: bool = True,
    is_dry: bool = False,
) -> JobDefinition:
    """What a job is that a request describes. One whose schedule is over is refused, unless it
    need not be new. If it is only tried, jobs that a workflow runs need not be there.
    """
    said = await filled_in(client, fields, what=what)
    choice = require_choice(said)
    options: dict[str, Any] = {"kind": choice}
    if choice == "task":
        task = await _find_task(client, said)
        options |= {key: one for key, one in options_of(task).items() if key in _INHERITED}
        options["settings"] = {"task": task_of(task) or task.name}
    else:
        options["settings"] = await _read_settings(client, name, choice, said, is_dry=is_dry)
    options |= {**plain_options(said), **read_retries(said), **read_notes(said)}
    asks = is_new and said.get("schedule") is not None
    now = (await client.store.health()).now if asks else None
    return check_call(read_definition(name, now=now, **options))


async def filled_in(client: ClientContext, fields: JobFields, *, what: str) -> dict[str, Any]:
    """The fields, with those of the template that they name in its place."""
    check_fields(cast("Mapping[str, Any]", fields), what)
    said = dict(cast("Mapping[str, Any]", fields))
    if isinstance(said.get("dependencies"), list | tuple):
        said["dependencies"] = [await _named(client, one) for one in said["dependencies"]]
    schedule = said.get("schedule")
    if isinstance(schedule, list | tuple):
        said["schedule"] = [await _fired_by(client, one) for one in cast("list[Any]", schedule)]
    elif schedule is not None:
        said["schedule"] = await _fired_by(client, schedule)
    if read_choice(said) != "template":
        return said
    if said.get("made_from") is not None:
        raise UsageError(
            "made_from tells of a template that was filled in before; leave it out",
            field="made_from",
        )
    name = check_name(said["template"], what="template")
    try:
        template = await client.store.get_template(client.tenant, name)
    except TemplateNotFound:
        raise UsageError(
            f"there is no template named {shown(name)}; create it first", field="template"
        ) from None
    return apply_template(said, template)


async def _named(client: ClientContext, dependency: Any) -> Any:
    """The name of a job that is given by its id. One that is unknown is refused later, with all
    others that are.
    """
    id = id_in(dependency) if isinstance(dependency, str) else None
    if id is not None:
        with suppress(JobNotFound):
            return (await client.store.find_job(client.tenant, id)).name
    return dependency


async def _fired_by(client: ClientContext, schedule: Any) -> Any:
    """The schedule, with names for the ids of jobs of which any fires it."""
    if not isinstance(schedule, dict):
        return schedule
    said = cast("dict[str, Any]", schedule)
    if not isinstance(said.get("after_any"), list | tuple):
        return said
    jobs = cast("Sequence[Any]", said["after_any"])
    return {**said, "after_any": [await _named(client, one) for one in jobs]}


async def _find_task(client: ClientContext, said: Mapping[str, Any]) -> JobDefinition:
    name = check_name(said["task"], what="task")
    return await find_task_definition(client.store, client.tenant, name)


def _has_upstream(options: Mapping[str, Any]) -> bool:
    schedule = options["schedule"]
    return bool(options["dependencies"]) or is_after(schedule) or is_after_any(schedule)


def options_of(definition: JobDefinition) -> dict[str, Any]:
    """What `read_definition` was told, in a form that it takes again."""
    fields: Mapping[str, Any] = msgspec.structs.asdict(definition)
    on_failure = {"on_dependency_failure": definition.on_dependency_failure}
    same = ("kind", *_INHERITED, "description", "user_id", "overlap", "pause_after_failures")
    return {
        **{name: fields[name] for name in same if name in fields},
        "retries": definition.retry,
        "settings": payload.decode(definition.settings),
        "args": payload.decode(definition.args),
        "dependencies": definition.dependencies,
        **(on_failure if definition.upstream else {}),
        "template": definition.template,
        "source": definition.source,
        "schedule": [Schedule.from_json(text) for text in definition.schedules],
        "misfire": Misfire.parse(
            payload.decode(definition.misfire) if definition.misfire else None
        ),
    }


# Jobs and their versions.


async def job(client: ClientContext, name: str, *, version: int | None = None) -> Job:
    """A job, at its current version or the one asked for."""
    return await client.store.get_job(client.tenant, name, version=version)


async def job_named(client: ClientContext, id_or_name: Id) -> Job:
    """A job by its id, or by its name. Text that is both is taken as an id first."""
    try:
        return await find_job(client, id_or_name)
    except JobNotFound as error:
        raise await describe_missing_job(client, str(id_or_name), error) from None


async def jobs(
    client: ClientContext,
    *,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    **where: Unpack[JobFilters],
) -> Page[Job]:
    """Jobs by name: those whose name begins with `prefix`, that have `text` in their name or
    description, that are this user's, whose queue this is. Deleted ones are not shown.
    """
    check_options(where, JOB_FILTERS, "jobs()")
    chosen = JobFilter(**where)
    return await client.store.list_jobs(client.tenant, chosen, limit=limit, cursor=cursor)


async def versions_page(
    client: ClientContext, name: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[Job]:
    """Versions of a job, newest first."""
    return await client.store.list_versions(client.tenant, name, limit=limit, cursor=cursor)


async def versions(client: ClientContext, name: str) -> list[Job]:
    """All versions of a job, newest first."""
    read = partial(versions_page, client, name, limit=PAGE_ITEMS_MAX)
    return [job async for page in read_pages(lambda at: read(cursor=at)) for job in page]
