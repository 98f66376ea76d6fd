"""When jobs run: schedules added at run time, pauses, triggers, and how a job stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf, nextafter
from typing import Any, Final, Unpack, cast
from uuid import UUID

from msgspec.structs import replace

from daybell.client.dependencies import waits_for
from daybell.client.likely import hinting, job_named
from daybell.client.requests import (
    ONE_OPTIONS,
    Arguments,
    EnqueueOptions,
    Id,
    JobFilters,
    Status,
    check_options,
    id_in,
    read_args,
    read_job_status,
    read_pattern,
    read_text,
)
from daybell.client.uses import CODE, versions_of
from daybell.client.when import When, added, added_id, declared, read_overlap_by, read_schedule
from daybell.client.workflow_calls import check_args
from daybell.core import payload
from daybell.core.execution import Enqueued
from daybell.core.instant import Instant
from daybell.core.job import Job, JobDefinition
from daybell.core.limits import (
    PAGE_BYTES_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    PAUSE_NOTE_CHARS_MAX,
    SCHEDULE_BATCH_MAX,
    check_name,
)
from daybell.core.overlap import OverlapBy
from daybell.core.resume import RECORDS_MAX, resumed
from daybell.core.schedule import Firing, NewSchedule, Schedule
from daybell.core.standing import Look, Standing, by_name, standing_of
from daybell.core.view import ITEM_BYTES, Page, bytes_of, execution_bytes
from daybell.core.when import After, Manual
from daybell.core.worker import STORE_ROLES, Leadership
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
from daybell.store.checks import check_limit
from daybell.store.protocol import Store

NOTHING: Final = Look()
SCAN_PAGE: Final = 200  # jobs that are looked at together
SCHEDULE_BYTES: Final = 600  # counted for each schedule beside its rule and arguments
SCAN_MAX: Final = 2_000  # and in one call
ROLLBACKS_MAX: Final = 200  # jobs changed by hand whose versions a start looks at, one by one


# What an item of `schedule_many` has.
ITEM_KEYS: Final = frozenset(("job", "when", "args", "name", "overlap_by"))


class Schedules:
    """The verbs of `Client` for when jobs run."""

    store: Store
    tenant: str

    async def enqueue(
        self,
        job: str,
        args: Arguments | None = None,
        *,
        unique_key: str | None = None,
        parent: UUID | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Enqueued:
        raise NotImplementedError  # see `Client`

    async def jobs(
        self, *, limit: int = 50, cursor: str | None = None, **where: Unpack[JobFilters]
    ) -> Page[Job]:
        raise NotImplementedError  # see `Definitions`

    async def declared(self, definitions: Sequence[JobDefinition]) -> list[tuple[NewSchedule, ...]]:
        """The schedules that come with each definition, as they begin now."""
        if not any(one.runs_by_itself for one in definitions):
            return [()] * len(definitions)
        now = (await self.store.health()).now
        return [declared(one, tenant=self.tenant, now=now) for one in definitions]

    async def schedule(
        self,
        job: str,
        when: When,
        *,
        args: Arguments | None = None,
        name: str | None = None,
        overlap_by: OverlapBy = "schedule",
    ) -> Schedule:
        """Have a job run at other times, too; answers the schedule.

        `args` are what its executions are called with; left out, as the job says. One with the
        same name is replaced. Without a name it gets one that is made of what it says, so that
        saying the same again changes nothing. The job's overlap rule compares its executions with
        each other; with `overlap_by="job"`, with all executions at the job's gate.
        """
        definition = (await self.store.get_job(self.tenant, job)).definition
        now = (await self.store.health()).now
        new = self._read_added(definition, now, when, args, name, overlap_by)
        (made,) = await self._put_changed([new])
        return made

    async def schedule_many(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        refused: Mapping[int, DaybellError] | None = None,
    ) -> list[Schedule]:
        """Make up to 10,000 schedules in one transaction, all or nothing; answers them in the order
        of the items. An item has the arguments of `schedule`: `job`, `when` and, if wanted, `args`,
        `name` and `overlap_by`.

        Raises InvalidItems, which names every item that is wrong. `refused` are errors that the
        caller has found already, by index.
        """
        given = list(items)
        if len(given) > SCHEDULE_BATCH_MAX:
            raise UsageError(
                f"{len(given):,} schedules are too many for one call; the limit is"
                f" {SCHEDULE_BATCH_MAX:,}",
                field="items",
            )
        errors = dict(refused or {})
        definitions = await self._definitions(given)
        now = (await self.store.health()).now
        new: dict[UUID, tuple[int, NewSchedule]] = {}
        ids: list[UUID] = []
        for index, item in enumerate(given):
            if index in errors:
                continue
            try:
                one = self._read_item(item, definitions, now)
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
        made = await self._put_changed([one for _, one in new.values()])
        found = {one.id: one for one in made}
        return [found[id] for id in ids]

    async def _definitions(self, items: Sequence[object]) -> dict[str, JobDefinition]:
        """The definitions of those jobs that items name and that there are."""
        given = (cast("Mapping[str, Any]", one) for one in items if isinstance(one, Mapping))
        found: dict[str, JobDefinition] = {}
        for name in {job: None for one in given if isinstance(job := one.get("job"), str)}:
            with suppress(JobNotFound):
                found[name] = (await self.store.get_job(self.tenant, name)).definition
        return found

    def _read_item(
        self, item: object, definitions: Mapping[str, JobDefinition], now: Instant
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
        return self._read_added(
            definitions[job],
            now,
            said["when"],
            said.get("args"),
            said.get("name"),
            said.get("overlap_by", "schedule"),
        )

    def _read_added(
        self,
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
        given = definition.args if args is None else read_args(args)
        check_args(definition, given, what="this schedule would call it in vain:")
        return added(
            definition,
            schedule,
            tenant=self.tenant,
            now=now,
            args=given,
            name=None if name is None else _check_name(name),
            overlap_by=read_overlap_by(overlap_by),
        )

    async def _put_changed(self, schedules: Sequence[NewSchedule]) -> list[Schedule]:
        """Store these, but for those that are there and say the same: their cursor may be at a tick
        that has not fired, or wait for an end.
        """
        ids = [new.id for new in schedules]
        found = {one.id: one for one in await self.store.list_schedules(self.tenant, ids=ids)}
        changed = [
            new for new in schedules if new.id not in found or not _is_same(found[new.id], new)
        ]
        if changed:
            await self.store.put_schedules(self.tenant, changed)
            ids = [new.id for new in changed]
            written = await self.store.list_schedules(self.tenant, ids=ids)
            found |= {one.id: one for one in written}
        for new in schedules:
            if new.id not in found:
                raise ScheduleNotFound(
                    f"schedule {shown(new.name)} of job {new.job} was removed while it was made"
                )
        return [found[new.id] for new in schedules]

    async def unschedule(self, job: str, name: str) -> None:
        """Remove a schedule that was added at run time."""
        found = await self._schedule(job, name)
        if found.is_declared:
            raise UsageError(
                f"schedule {shown(name)} of job {job} comes with the job's definition; change it"
                " there, or pause the job",
                field="name",
            )
        await self.store.delete_schedules(self.tenant, [found.id])

    async def schedules(self, job: str | None = None) -> list[Schedule]:
        """The schedules of a job, or of all, by job and name."""
        found = await self.store.list_schedules(self.tenant, job=job)
        if job is not None and not found:
            await self.store.get_job(self.tenant, job)  # raises for one that is not there
        return sorted(found, key=by_name)

    async def pause(self, job: str, note: str = "") -> None:
        """Let a job's schedules fire no more until it is resumed. It can still be triggered.

        One that is paused already keeps its note, unless there is a new one.
        """
        if len(read_text(note, "note")) > PAUSE_NOTE_CHARS_MAX:
            raise UsageError(
                f"note has {len(note):,} characters; the limit is {PAUSE_NOTE_CHARS_MAX}",
                field="note",
            )
        if not note:
            known = await self.store.get_job(self.tenant, job)
            note = known.pause_note if known.paused_at is not None else ""
        await self.store.pause_job(self.tenant, job, note=note)

    async def resume(self, job: str) -> None:
        """Let a job's schedules fire again, from now on.

        What came due while it was paused is on record as missed, and can be backfilled.
        """
        found = await self.store.list_schedules(self.tenant, job=job)
        now = (await self.store.health()).now
        firings: list[Firing] = []
        for one in found:
            # A new definition may have set it back to what is on record. Ticks of later times were
            # fired while the clock was ahead.
            records = await self.store.list_ticks(
                self.tenant, one.id, limit=RECORDS_MAX, before=nextafter(now, inf)
            )
            firing = resumed(one, now, records) if one.is_paused else None
            firings += [] if firing is None else [firing]
        await self.store.resume_job(self.tenant, job, firings)

    async def trigger(
        self,
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
        read_pattern(job, **options)  # what is wrong with the words is said before all else
        if args is None:
            known = await self.store.get_job(self.tenant, job)
            args = payload.decode(known.definition.args)
        return await self.enqueue(job, args, unique_key=unique_key, **options)

    async def standing(self, job: Id) -> Standing:
        """How a job stands, by its name or id, a deleted one too: its status, and when it runs
        next.
        """
        try:
            known = await job_named(self.store, self.tenant, job)
        except JobNotFound:
            async with hinting(self.store, self.tenant, str(job)):
                known = await self._deleted(job)
            look = await self.store.look_at_jobs(self.tenant, [known.name])
            standing = standing_of(known, look[known.name], is_deleted=True)
            return await self._complete_standing(standing)
        (standing,) = await self.standings([known])
        standing = await self._complete_standing(standing)
        return replace(standing, waits_for=await waits_for(self.store, self.tenant, standing))

    async def _complete_standing(self, of: Standing) -> Standing:
        """A standing with the values that lists leave out."""
        last = of.last_execution
        if last is not None and last.truncated:
            with suppress(ExecutionNotFound):  # it was removed since
                last = (await self.store.get_execution(self.tenant, last.id)).execution
        schedules = of.schedules
        if any(one.truncated for one in schedules):
            schedules = tuple(await self.store.list_schedules(self.tenant, job=of.job.name))
        return replace(of, last_execution=last, schedules=schedules)

    async def standings(self, jobs: Iterable[Job]) -> list[Standing]:
        """The same for jobs in hand, as they are now. A page of them is a few statements."""
        wanted = list(jobs)
        names = sorted({job.name for job in wanted})
        looks: dict[str, Look] = {}
        for start in range(0, len(names), PAGE_ITEMS_MAX):
            some = names[start : start + PAGE_ITEMS_MAX]
            looks |= await self.store.look_at_jobs(self.tenant, some)
        return [standing_of(job, looks.get(job.name, NOTHING)) for job in wanted]

    async def standings_page(
        self,
        *,
        status: Status | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **where: Unpack[JobFilters],
    ) -> Page[Standing]:
        """How jobs stand, by name; see `jobs` for whose.

        A `status` is a state, "paused", "manual" or "pending". It is known only of jobs that were
        looked at, and one call looks at no more than 2,000. A page also ends at PAGE_BYTES_MAX
        bytes of definitions and values. So it may be shorter than asked for, or empty, and still
        have a cursor to go on with.
        """
        check_limit(limit)
        words = None if status is None else read_job_status(status)
        found: list[Standing] = []
        looked, left = 0, PAGE_BYTES_MAX
        while True:
            most = limit - len(found) if words is None else SCAN_MAX - looked
            size = min(SCAN_PAGE, most)
            page = await self.jobs(limit=size, cursor=cursor, **where)
            cursor, looked = page.next_cursor, looked + len(page.items)
            for standing in await self.standings(page.items):
                if words is not None and standing.status not in words:
                    continue
                left -= standing_bytes(standing) + ITEM_BYTES
                if found and (left < 0 or len(found) == limit):
                    return Page(items=tuple(found), next_cursor=found[-1].job.name)
                found.append(standing)
            is_over = len(found) == limit if words is None else looked >= SCAN_MAX
            if cursor is None or is_over:
                return Page(items=tuple(found), next_cursor=cursor)

    async def job_ids(self, names: Iterable[str]) -> dict[str, UUID]:
        """The ids of the jobs of these names, deleted ones too."""
        wanted, found = sorted(set(names)), dict[str, UUID]()
        for start in range(0, len(wanted), PAGE_ITEMS_MAX):
            some = wanted[start : start + PAGE_ITEMS_MAX]
            found |= await self.store.job_ids(self.tenant, some)
        return found

    async def leaders(self) -> list[Leadership]:
        """Who does what one node should do for all, by name. Not who does it for one tenant: that
        would tell the others its name.
        """
        return [one for one in await self.store.list_leaders() if one.name in STORE_ROLES]

    async def abandoned(self, author: str, names: Iterable[str]) -> list[str]:
        """Jobs by this author that still have schedules, but are not among these names; also those
        that somebody else has rolled back to what the author said, as far as a start has the time
        to look at their versions.
        """
        fire = {one.job for one in await self.store.list_schedules(self.tenant)} - set(names)
        found, looked, cursor = list[str](), 0, None
        while fire:
            page = await self.store.list_jobs(self.tenant, limit=PAGE_ITEMS_MAX, cursor=cursor)
            for job in page.items:
                if job.name not in fire:
                    continue
                if job.author == author:
                    found.append(job.name)
                elif looked < ROLLBACKS_MAX and _may_be_rolled_back(job):
                    looked += 1
                    found += [job.name] if await self._has_said(author, job) else []
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def _has_said(self, author: str, job: Job) -> bool:
        async for page in versions_of(self.store, self.tenant, job.name):
            for one in page:
                if one.author == author and one.definition == job.definition:
                    return True
        return False

    async def _deleted(self, job: Id) -> Job:
        """The last version of a job that was deleted."""
        id = id_in(job)
        if id is not None:
            with suppress(JobNotFound):
                return await self.store.find_job(self.tenant, id, or_deleted=True)
        return (await self.store.list_versions(self.tenant, str(job), limit=1)).items[0]

    async def _schedule(self, job: str, name: str) -> Schedule:
        ids = [added_id(self.tenant, job, name)]
        added = await self.store.list_schedules(self.tenant, job=job, ids=ids)
        if added:
            return added[0]
        found = await self.schedules(job)
        for one in found:
            if one.name == name:
                return one
        known = listed(shown(one.name) for one in found) or "none"
        raise ScheduleNotFound(f"job {job} has no schedule {shown(name)}; it has {known}")


def standing_bytes(of: Standing) -> int:
    """Count the bytes of a job's definition, its schedules and its last execution."""
    definition = of.job.definition
    texts = [definition.settings, definition.args, definition.template, definition.description]
    for one in of.schedules:
        texts += [one.rule, one.args]
    values = 0 if of.last_execution is None else execution_bytes(of.last_execution) + ITEM_BYTES
    return bytes_of(*texts) + len(of.schedules) * SCHEDULE_BYTES + values


def _may_be_rolled_back(job: Job) -> bool:
    """Whether it is by hand, over a version that code may have said."""
    return job.version > 1 and not job.author.startswith(CODE)  # or it is another app's now


def _is_same(old: Schedule, new: NewSchedule) -> bool:
    fields = ("rule", "args", "misfire", "delay", "is_reboot", "own_gate")
    is_over = old.next_at is None and old.delay is None and not old.is_reboot
    return not is_over and all(getattr(old, name) == getattr(new, name) for name in fields)


def _check_name(name: object) -> str:
    checked = check_name(name, what="schedule")
    if checked.isdigit():
        raise UsageError(
            f"a schedule's name is not only a number, such as {shown(checked)}: so are those that"
            " come with a definition called",
            field="name",
        )
    return checked
