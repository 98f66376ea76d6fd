"""Schedules: those added at run time, pauses, triggers, the status of a job, and backfills of past
ticks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from math import inf, nextafter
from typing import Any, Final, Unpack, cast
from uuid import UUID

from msgspec.structs import replace

from daybell.client.context import ClientContext
from daybell.client.executions import enqueue
from daybell.client.job_checks import (
    CODE,
    add_signature,
    add_signatures,
    check_args,
    describe_missing_job,
    find_job,
    iterate_versions,
)
from daybell.client.jobs import jobs
from daybell.client.requests import (
    ONE_OPTIONS,
    EnqueueOptions,
    Id,
    JobFilters,
    Status,
    check_options,
    read_job_status,
    read_pattern,
)
from daybell.client.when import (
    build_added_schedule,
    derive_schedule_id,
    load_waits,
    read_overlap_by,
)
from daybell.core import payload
from daybell.core.checks import check_limit, text_fault
from daybell.core.execution import Enqueued
from daybell.core.ids import id_in
from daybell.core.job import Job, JobActivity, JobDefinition, JobStatus, build_job_status, by_name
from daybell.core.limits import (
    PAGE_BYTES_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    PAUSE_NOTE_CHARS_MAX,
    SCHEDULE_BATCH_MAX,
    check_name,
)
from daybell.core.options import Arguments, read_args, read_text
from daybell.core.schedule import (
    Firing,
    NewSchedule,
    OverlapBy,
    Schedule,
    TickRecord,
)
from daybell.core.units import Instant
from daybell.core.views import ITEM_BYTES, Page, bytes_of, execution_bytes, read_pages
from daybell.core.when import After, Manual
from daybell.core.when.cursor import (
    RECORDS_MAX,
    resume_schedule,
)
from daybell.core.when.declared import When, read_schedule
from daybell.core.when.event import TAKE_EVENT, sample_args
from daybell.errors import (
    DaybellError,
    ExecutionNotFound,
    InvalidItems,
    InvalidSchedule,
    JobNotFound,
    NotFound,
    ScheduleNotFound,
    UsageError,
    listed,
    shown,
)
from daybell.store.protocol import Store

NOTHING: Final = JobActivity()
SCAN_PAGE: Final = 200  # jobs that are checked together
SCHEDULE_BYTES: Final = 600  # counted for each schedule beside its rule and arguments
SCAN_MAX: Final = 2_000  # and in one call
ROLLBACKS_MAX: Final = 200  # jobs changed by hand that a start checks, version by version


# The keys of an item of `schedule_many`.
ITEM_KEYS: Final = frozenset(("job", "when", "args", "name", "overlap_by"))


async def schedule(
    client: ClientContext,
    job: str,
    when: When,
    *,
    args: Arguments | None = None,
    name: str | None = None,
    overlap_by: OverlapBy = "schedule",
) -> Schedule:
    """Add a schedule to a job at run time; return the schedule.

    `args` are the arguments of its executions; the job supplies them if left out. A schedule with
    the same name is replaced. Without a name it gets one that is derived from its content, so that
    repeating the call changes nothing. The job's overlap rule compares its executions with each
    other; with `overlap_by="job"`, with all executions at the job's gate.
    """
    definition = (await client.store.catalog.get_job(client.tenant, job)).definition
    now = (await client.store.health()).now
    definition = await add_signature(client, definition)
    new = _read_added(client, definition, now, when, args, name, overlap_by)
    (made,) = await _put_changed(client, [new])
    return made


async def schedule_many(
    client: ClientContext,
    items: Iterable[Mapping[str, Any]],
    *,
    refused: Mapping[int, DaybellError] | None = None,
) -> list[Schedule]:
    """Make up to 10,000 schedules in one transaction, all or nothing; return them in the order of
    the items. An item has the arguments of `schedule`: `job`, `when` and, if wanted, `args`, `name`
    and `overlap_by`.

    Raises InvalidItems, which names every item that is wrong. `refused` are errors that the caller
    has found already, by index.
    """
    given = list(items)
    if len(given) > SCHEDULE_BATCH_MAX:
        raise UsageError(
            f"{len(given):,} schedules are too many for one call; the limit is"
            f" {SCHEDULE_BATCH_MAX:,}",
            field="items",
        )
    errors = dict(refused or {})
    definitions = await _definitions(client, given)
    now = (await client.store.health()).now
    new: dict[UUID, tuple[int, NewSchedule]] = {}
    ids: list[UUID] = []
    for index, item in enumerate(given):
        if index in errors:
            continue
        try:
            one = _read_item(client, item, definitions, now)
            first, same = new.setdefault(one.id, (index, one))
            if same != one:
                raise UsageError(
                    f"items[{first}] has the same job and name and differs", field="name"
                )
            ids.append(one.id)
        except (NotFound, UsageError) as error:
            errors[index] = error
    if errors:
        raise InvalidItems(errors, count=len(given))
    made = await _put_changed(client, [one for _, one in new.values()])
    found = {one.id: one for one in made}
    return [found[id] for id in ids]


async def _definitions(client: ClientContext, items: Sequence[object]) -> dict[str, JobDefinition]:
    """Return the definitions of those jobs that items name and that exist."""
    given = (cast("Mapping[str, Any]", one) for one in items if isinstance(one, Mapping))
    said = {job: None for one in given if isinstance(job := one.get("job"), str)}
    names = (job for job in said if text_fault(job) is None)
    found: dict[str, JobDefinition] = {}
    while some := list(islice(names, PAGE_ITEMS_MAX)):
        jobs = await client.store.catalog.get_jobs(client.tenant, some)
        definitions = await add_signatures(client, (job.definition for job in jobs.values()))
        found |= zip(jobs, definitions, strict=True)
    return found


def _read_item(
    client: ClientContext, item: object, definitions: Mapping[str, JobDefinition], now: Instant
) -> NewSchedule:
    if not isinstance(item, Mapping):
        raise UsageError(
            'a schedule is given as a dict such as {"job": …, "when": …}, not as'
            f" {type(item).__name__}"
        )
    said = dict(cast("Mapping[str, Any]", item))
    check_options(said, ITEM_KEYS, "a schedule")
    for key in ("job", "when"):
        if said.get(key) is None:
            raise UsageError(f"{key} is missing", field=key)
    job = check_name(said["job"], what="job")
    if job not in definitions:
        raise JobNotFound(f"no job named {shown(job)}; define it first")
    return _read_added(
        client,
        definitions[job],
        now,
        said["when"],
        said.get("args"),
        said.get("name"),
        said.get("overlap_by", "schedule"),
    )


def _read_added(
    client: ClientContext,
    definition: JobDefinition,
    now: Instant,
    when: When,
    args: Arguments | None,
    name: str | None,
    overlap_by: OverlapBy,
) -> NewSchedule:
    schedule = read_schedule(when, now=now)
    if isinstance(schedule, Manual):
        raise InvalidSchedule(
            "a manual schedule never fires; to remove one, use unschedule", field="when"
        )
    if isinstance(schedule, After):
        raise InvalidSchedule(
            "what a job runs after belongs to its definition; give it dependencies or after_any"
            " there",
            field="when",
        )
    is_of_event = schedule.listens_to is not None
    given = definition.args if is_of_event else definition.called_args
    given = given if args is None else read_args(args)
    called = sample_args(given) if is_of_event else given
    way_out = f"; {TAKE_EVENT}" if is_of_event else ""
    check_args(definition, called, what="this schedule has the wrong arguments:", way_out=way_out)
    return build_added_schedule(
        definition,
        schedule,
        tenant=client.tenant,
        now=now,
        args=given,
        name=None if name is None else _check_name(name),
        overlap_by=read_overlap_by(overlap_by),
    )


async def _put_changed(client: ClientContext, schedules: Sequence[NewSchedule]) -> list[Schedule]:
    """Store these, but for those that are there and say the same: their cursor may be at a tick
    that has not fired, or wait for an end.
    """
    ids = [new.id for new in schedules]
    found = {
        one.id: one for one in await client.store.schedules.list_schedules(client.tenant, ids=ids)
    }
    changed = [new for new in schedules if new.id not in found or not _is_same(found[new.id], new)]
    if changed:
        await client.store.schedules.put_schedules(client.tenant, changed)
        ids = [new.id for new in changed]
        written = await client.store.schedules.list_schedules(client.tenant, ids=ids)
        found |= {one.id: one for one in written}
    for new in schedules:
        if new.id not in found:
            raise ScheduleNotFound(
                f"schedule {shown(new.name)} of job {new.job} was removed while it was made"
            )
    return [found[new.id] for new in schedules]


async def unschedule(client: ClientContext, job: str, name: str) -> None:
    """Remove a schedule that was added at run time."""
    found = await find_schedule(client, job, name)
    if found.is_declared:
        raise UsageError(
            f"schedule {shown(name)} of job {job} comes with the job's definition; change it"
            " there, or pause the job",
            field="name",
        )
    await client.store.schedules.delete_schedules(client.tenant, [found.id])


async def schedules(client: ClientContext, job: str | None = None) -> list[Schedule]:
    """The schedules of a job, or of all, by job and name."""
    pages = read_schedules(client.store, client.tenant, job)
    # One that fires meanwhile comes again, with its new time.
    found = {one.id: one async for page in pages for one in page}
    return sorted(found.values(), key=by_name)


async def read_schedules(
    store: Store, tenant: str, job: str | None = None
) -> AsyncGenerator[Sequence[Schedule]]:
    """Yield the schedules of a job, the next ones first, or of all by id, page by page."""
    if job is not None:
        read = partial(store.schedules.list_job_schedules, tenant, job, limit=PAGE_ITEMS_MAX)
        async for items in read_pages(lambda at: read(cursor=at)):
            yield items
        return
    after = None
    while page := await store.schedules.list_schedules(tenant, after=after, limit=PAGE_ITEMS_MAX):
        yield page
        if len(page) < PAGE_ITEMS_MAX:
            return
        after = page[-1].id


async def schedules_page(
    client: ClientContext, job: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[Schedule]:
    """A page of the schedules of a job: declared ones, then the others, the next ones first."""
    return await client.store.schedules.list_job_schedules(
        client.tenant, job, limit=limit, cursor=cursor
    )


async def pause(client: ClientContext, job: str, note: str = "") -> None:
    """Pause a job's schedules until it is resumed. It can still be triggered.

    A job that is paused already keeps its note, unless there is a new one.
    """
    if not read_pause_note(note):
        known = await client.store.catalog.get_job(client.tenant, job)
        note = known.pause_note if known.paused_at is not None else ""
    await client.store.schedules.pause_job(client.tenant, job, note=note)


def read_pause_note(note: str) -> str:
    """Return a note of a pause that is not too long."""
    if len(read_text(note, "note")) > PAUSE_NOTE_CHARS_MAX:
        raise UsageError(
            f"note has {len(note):,} characters; the limit is {PAUSE_NOTE_CHARS_MAX}",
            field="note",
        )
    return note


async def resume(client: ClientContext, job: str) -> None:
    """Resume a job's schedules, from now on.

    Ticks that came due during the pause are on record as missed, and can be backfilled.
    """
    now = (await client.store.health()).now
    firings: dict[UUID, Firing] = {}
    async for page in read_schedules(client.store, client.tenant, job):
        for one in page:
            records: list[TickRecord] = []
            if one.next_at is not None and one.next_at <= now:  # else none is looked for in them
                # A new definition may have set it back to ticks on record. Ticks of later times
                # were fired while the clock was ahead.
                records = await client.store.schedules.list_ticks(
                    client.tenant, one.id, limit=RECORDS_MAX, before=nextafter(now, inf)
                )
            firing = resume_schedule(one, now, records) if one.is_paused else None
            if firing is not None:
                firings[one.id] = firing
    await client.store.schedules.resume_job(client.tenant, job, list(firings.values()))


async def trigger(
    client: ClientContext,
    job: str,
    args: Arguments | None = None,
    *,
    unique_key: str | None = None,
    **options: Unpack[EnqueueOptions],
) -> Enqueued:
    """Run a job now. Without arguments it is called as its schedules would do it.

    Raises ExecutionInTheWay if its overlap rule does not let it in; `force=True` does.
    """
    check_options(options, ONE_OPTIONS, "trigger()")
    read_pattern(job, **options)  # errors in the words are reported before all others
    if args is None:
        known = await client.store.catalog.get_job(client.tenant, job)
        args = payload.decode(known.definition.called_args)
    return await enqueue(client, job, args, unique_key=unique_key, **options)


async def standing(client: ClientContext, job: Id) -> JobStatus:
    """Return the status of a job, by its name or id, a deleted one too, with its next time."""
    try:
        known = await find_job(client, job)
    except JobNotFound:
        try:
            known = await _deleted(client, job)
        except JobNotFound as error:
            raise await describe_missing_job(client, str(job), error) from None
        look = await client.store.catalog.job_activity(client.tenant, [known.name])
        standing = build_job_status(known, look[known.name], is_deleted=True)
        return await _complete_standing(client, standing)
    (standing,) = await standings(client, [known])
    standing = await _complete_standing(client, standing)
    return replace(standing, waits_for=await load_waits(client.store, client.tenant, standing))


async def _complete_standing(client: ClientContext, of: JobStatus) -> JobStatus:
    """Return a status with the values that lists leave out."""
    last = of.last_execution
    if last is not None and last.truncated:
        with suppress(ExecutionNotFound):  # it was removed since
            last = (await client.store.catalog.get_execution(client.tenant, last.id)).execution
    schedules = of.schedules
    cut = [one.id for one in schedules if one.truncated]
    if cut:
        whole = await client.store.schedules.list_schedules(client.tenant, job=of.job.name, ids=cut)
        by_id = {one.id: one for one in whole}
        schedules = tuple(by_id.get(one.id, one) for one in schedules)
    return replace(of, last_execution=last, schedules=schedules)


async def standings(client: ClientContext, jobs: Iterable[Job]) -> list[JobStatus]:
    """Return the current status of jobs in hand. A page of them is a few statements."""
    wanted = list(jobs)
    names = sorted({job.name for job in wanted})
    looks: dict[str, JobActivity] = {}
    for start in range(0, len(names), PAGE_ITEMS_MAX):
        some = names[start : start + PAGE_ITEMS_MAX]
        looks |= await client.store.catalog.job_activity(client.tenant, some)
    return [build_job_status(job, looks.get(job.name, NOTHING)) for job in wanted]


async def standings_page(
    client: ClientContext,
    *,
    status: Status | None = None,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    **where: Unpack[JobFilters],
) -> Page[JobStatus]:
    """Return the status of jobs, by name; see `jobs` for the filters.

    A `status` is a state, "paused", "manual" or "pending". It is known only of jobs that were
    checked, and one call checks no more than 2,000. A page also ends at PAGE_BYTES_MAX bytes of
    definitions and values. So it may be shorter than asked for, or empty, and still have a cursor
    to go on with.
    """
    check_limit(limit)
    words = None if status is None else read_job_status(status)
    found: list[JobStatus] = []
    looked, left = 0, PAGE_BYTES_MAX
    while True:
        most = limit - len(found) if words is None else SCAN_MAX - looked
        size = min(SCAN_PAGE, most)
        page = await jobs(client, limit=size, cursor=cursor, **where)
        cursor, looked = page.next_cursor, looked + len(page.items)
        for standing in await standings(client, page.items):
            if words is not None and standing.status not in words:
                continue
            left -= standing_bytes(standing) + ITEM_BYTES
            if found and (left < 0 or len(found) == limit):
                return Page(items=tuple(found), next_cursor=found[-1].job.name)
            found.append(standing)
        is_over = len(found) == limit if words is None else looked >= SCAN_MAX
        if cursor is None or is_over:
            return Page(items=tuple(found), next_cursor=cursor)


async def job_ids(client: ClientContext, names: Iterable[str]) -> dict[str, UUID]:
    """The ids of the jobs of these names, deleted ones too."""
    return await client.known_job_ids.find(client.store, client.tenant, names)


async def abandoned(client: ClientContext, author: str, names: Iterable[str]) -> list[str]:
    """Return jobs by this author that still have schedules, but are not among these names; also
    those that another author has rolled back to this author's version, as far as a start has the
    time to check their versions.
    """
    own, found, looked = set(names), list[str](), 0
    read = partial(client.store.catalog.list_jobs, client.tenant, limit=PAGE_ITEMS_MAX)
    async for page in read_pages(lambda at: read(cursor=at)):
        left = [
            job
            for job in page
            if job.name not in own and (job.author == author or _may_be_rolled_back(job))
        ]
        fire = await _have_schedules(client, [job.name for job in left])
        for job in left:
            if job.name not in fire:
                continue
            if job.author == author:
                found.append(job.name)
            elif looked < ROLLBACKS_MAX:
                looked += 1
                found += [job.name] if await _has_said(client, author, job) else []
    return found


async def _have_schedules(client: ClientContext, jobs: Sequence[str]) -> set[str]:
    if not jobs:
        return set()
    looks = await client.store.catalog.job_activity(client.tenant, jobs)
    return {name for name, look in looks.items() if look.schedules}


async def _has_said(client: ClientContext, author: str, job: Job) -> bool:
    async for page in iterate_versions(client.store, client.tenant, job.name):
        for one in page:
            if one.author == author and one.definition == job.definition:
                return True
    return False


async def _deleted(client: ClientContext, job: Id) -> Job:
    """Return the last version of a job that was deleted."""
    id = id_in(job)
    if id is not None:
        with suppress(JobNotFound):
            return await client.store.catalog.find_job(client.tenant, id, or_deleted=True)
    return (await client.store.catalog.list_versions(client.tenant, str(job), limit=1)).items[0]


async def find_schedule(client: ClientContext, job: str, name: str) -> Schedule:
    ids = [derive_schedule_id(client.tenant, job, name)]
    added = await client.store.schedules.list_schedules(client.tenant, job=job, ids=ids)
    if added:
        return added[0]
    declared = (
        (await client.store.catalog.job_activity(client.tenant, [job])).get(job, NOTHING).schedules
    )
    for one in declared:
        if one.name == name:
            return one
    page = await schedules_page(client, job)  # raises for a job that is not there
    known = listed(shown(one.name) for one in sorted(page.items, key=by_name)) or "none"
    more = " and more" if page.next_cursor is not None else ""
    raise ScheduleNotFound(f"job {job} has no schedule {shown(name)}; it has {known}{more}")


def standing_bytes(of: JobStatus) -> int:
    """Count the bytes of a job's definition, its schedules and its last execution."""
    definition = of.job.definition
    texts = [definition.settings, definition.args, definition.template, definition.description]
    for one in of.schedules:
        texts += [one.rule, one.args]
    values = 0 if of.last_execution is None else execution_bytes(of.last_execution) + ITEM_BYTES
    return bytes_of(*texts) + len(of.schedules) * SCHEDULE_BYTES + values


def _may_be_rolled_back(job: Job) -> bool:
    """Return True if the job was changed by hand, over a version that may come from code."""
    return job.version > 1 and not job.author.startswith(CODE)  # or it is another app's now


def _is_same(old: Schedule, new: NewSchedule) -> bool:
    fields = ("rule", "args", "misfire", "delay", "is_reboot", "own_gate")
    return old.is_to_fire and all(getattr(old, name) == getattr(new, name) for name in fields)


def _check_name(name: object) -> str:
    checked = check_name(name, what="schedule")
    if checked.isdigit():
        raise UsageError(
            f"a schedule's name is not only a number, such as {shown(checked)}: so are those that"
            " come with a definition called",
            field="name",
        )
    return checked
