"""Tenants, jobs and queues."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from daybell.core.execution import Enqueued, NewExecution
from daybell.core.job import Job, JobDefinition, NewJob, folded
from daybell.core.limits import check_name
from daybell.core.overlap import Overlap, gate_of
from daybell.core.view import ALL_JOBS, JobFilter, Page
from daybell.errors import JobNotFound, Unavailable, shown
from daybell.store import recording
from daybell.store.checks import check_batch, check_definition, check_job_filter, check_limit
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.enqueue import STALE_TRIES
from daybell.store.postgres.gates import MAKE_JOB_GATES
from daybell.store.postgres.listener import ALL_TENANTS, SCHEDULES
from daybell.store.postgres.schedules import Scheduling
from daybell.store.postgres.specs import Outdated, Spec, Specs
from daybell.store.versions import moved

COLUMNS = """
    SELECT j.id, j.name, j.version AS current, v.version, v.definition, v.author, v.created_at,
           j.paused_at, j.pause_note
      FROM daybell.job j JOIN daybell.job_version v ON v.job = j.key"""


class Defining(Scheduling):
    """What there is to run."""

    async def add_tenants(self, names: Sequence[str]) -> tuple[str, ...]:
        checked = sorted({check_name(name, what="tenant") for name in names})
        async with self.db.link() as link:
            rows = await link.fetch(
                "INSERT INTO daybell.tenant (name) SELECT unnest($1::text[])"
                " ON CONFLICT DO NOTHING RETURNING name",
                checked,
            )
        return tuple(sorted(row["name"] for row in rows))

    async def list_tenants(self) -> tuple[str, ...]:
        async with self.db.link() as link:
            rows = await link.fetch("SELECT name FROM daybell.tenant ORDER BY name")
        return tuple(row["name"] for row in rows)

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        texts = [check_definition(job.definition) for job in jobs]

        async def work() -> list[Job]:
            async with self.db.transaction() as link:
                key = await self.names.tenant(link, tenant)
                names = {job.definition.name for job in jobs}
                new = await self.count_new_jobs(link, key, names)
                # First, while nothing is locked. Lanes that are there need not be made in the
                # transaction of somebody who enqueues, where others would wait for his commit.
                pairs = [(job.definition.queue, job.definition.needs) for job in jobs]
                await self.names.make_lanes(link, key, sorted(set(pairs)))
                # Sorted, so that two who define the same jobs meet in the same order.
                order = sorted(range(len(jobs)), key=lambda index: jobs[index].definition.name)
                made = {i: await self._define(link, key, tenant, jobs[i], texts[i]) for i in order}
                if not any(is_changed for _, is_changed in made.values()):
                    recording.idle(self.db)
                await self.charge_jobs(link, key, new)
            for job in jobs:
                self.names.forget_job(key, job.definition.name)
            if any(job.schedules for job in jobs):
                self.notifier.touch(ALL_TENANTS, [SCHEDULES])
            return [made[index][0] for index in range(len(jobs))]

        return await self.db.settled(work)

    async def launch(
        self, tenant: str, job: NewJob, execution: NewExecution
    ) -> tuple[Job, Enqueued]:
        check_batch([execution])
        text = check_definition(job.definition)

        async def work() -> tuple[Job, Enqueued]:
            for _ in range(STALE_TRIES):
                with suppress(Outdated):
                    return await self._launch(tenant, job, text, execution)
            raise Unavailable("this job changes faster than it can be enqueued; try again")

        return await self.db.settled(work)

    async def _launch(
        self, tenant: str, job: NewJob, text: str, execution: NewExecution
    ) -> tuple[Job, Enqueued]:
        name, needs = job.definition.name, job.definition.needs
        queues = [execution.queue or job.definition.queue, job.definition.queue]
        # Before, and whatever becomes of the rest: see there.
        key, lanes = await self.names.lanes(tenant, queues, [needs])
        try:
            async with self.db.transaction() as link:
                new = await self.count_new_jobs(link, key, {name})
                made, _ = await self._define(link, key, tenant, job, text)
                found = await self.names.current_jobs(link, key, {name}, fresh=True)
                spec = Spec(key, found[name], lanes[0])
                specs = Specs(key, True, {(name, execution.queue): spec})
                (answer,) = await self.enqueue_on(link, specs, [execution], repeat=True)
                await self.charge_jobs(link, key, new)
                if (await self.names.quotas(link, key)).limits_enqueues:
                    await self.charge(link, key, len(specs.made))
        finally:
            self.names.forget_job(key, name)  # it was read before it was committed
        await self.announce(specs)
        if job.schedules:
            self.notifier.touch(ALL_TENANTS, [SCHEDULES])
        return made, answer

    # The update that changes nothing takes the row's lock, whoever was first.
    TAKE = """
    INSERT INTO daybell.job AS j (id, tenant, name, version, queue) VALUES ($2, $1, $3, 0, '')
    ON CONFLICT (tenant, name) DO UPDATE SET name = j.name
    RETURNING j.key, j.version, j.deleted_at IS NOT NULL AS is_deleted
    """
    KNOWN = "SELECT version FROM daybell.job_version WHERE job = $1 AND definition = $2"
    ADD = """
    INSERT INTO daybell.job_version (job, version, definition, author) VALUES ($1, $2, $3, $4)
    """
    PROMOTE = """
    UPDATE daybell.job SET version = $2, queue = $3, user_id = $4, words = $5, deleted_at = NULL
     WHERE key = $1
    """
    # Those that the definition still declares are replaced, and keep their counts; those that say
    # the same as before keep their cursor, which may be at a tick that has not fired yet.
    UNDECLARE = """
    DELETE FROM daybell.schedule WHERE job = $1 AND is_declared AND id <> ALL($2::uuid[])
    """

    VERSION = f"{COLUMNS} WHERE j.key = $1 AND v.version = $2"

    async def _define(
        self, link: Link, key: int, tenant: str, new: NewJob, text: str
    ) -> tuple[Job, bool]:
        """Store one definition. Answers the version that is current then, and whether that is
        another one than before.
        """
        name = new.definition.name
        taken = await link.fetchrow(self.TAKE, key, new.id, name)
        assert taken is not None
        job, version = taken["key"], taken["version"]
        if new.expect is not None and new.expect != version:
            raise moved(name, at=version, expect=new.expect)
        known = {row["version"] for row in await link.fetch(self.KNOWN, job, text)}
        # A deleted job has no version that old code could turn back.
        is_wanted = new.promote or taken["is_deleted"] or not known
        is_new = version not in known and is_wanted
        if is_new:
            version += 1
            await link.execute(self.ADD, job, version, text, new.author)
        row = await link.fetchrow(self.VERSION, job, version)
        assert row is not None
        made = _job(row, tenant, current=version)
        kept = made.definition
        await link.execute(self.PROMOTE, job, version, kept.queue, kept.user_id, kept.words)
        if kept.overlap_rule() is not Overlap.ALLOW:
            await link.execute(MAKE_JOB_GATES, key, [gate_of(name)])
        if is_new or taken["is_deleted"]:
            await link.execute(self.UNDECLARE, job, [schedule.id for schedule in new.schedules])
            if new.schedules:
                await self.write_schedules(
                    link, key, new.schedules, {name: job}, keeps_cursors=True
                )
        return made, is_new or taken["is_deleted"]

    GET = f"""{COLUMNS}
     WHERE j.tenant = $1 AND j.name = $2 AND v.version = coalesce($3, j.version)
       AND ($3::int IS NOT NULL OR j.deleted_at IS NULL)
    """

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            row = await link.fetchrow(self.GET, key, name, version)
        if row is None:
            which = "" if version is None else f" with version {version}"
            raise JobNotFound(f"no job named {shown(name)}{which}")
        return _job(row, tenant)

    FIND = f"""{COLUMNS}
     WHERE j.id = $2 AND j.tenant = $1 AND v.version = j.version
       AND ($3 OR j.deleted_at IS NULL)
    """

    async def find_job(self, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            row = await link.fetchrow(self.FIND, key, id, or_deleted)
        if row is None:
            raise JobNotFound(f"no job {id}")
        return _job(row, tenant)

    async def list_jobs(
        self,
        tenant: str,
        where: JobFilter = ALL_JOBS,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Job]:
        check_limit(limit)
        check_job_filter(where, cursor)
        conditions = [
            ("starts_with(j.name, {})", where.prefix or None),
            ("strpos(j.words, {}) > 0", None if where.text is None else folded(where.text)),
            ("j.user_id = {}", where.user_id),
            ("j.queue = {}", where.queue),
            ("strpos(v.definition, {}) > 0", where.mentions),
            ("j.name > {}", cursor),
        ]
        bound = [(condition, value) for condition, value in conditions if value is not None]
        texts = [one.format(f"${number}") for number, (one, _) in enumerate(bound, start=3)]
        async with self.db.link() as link:
            rows = await link.fetch(
                f"{COLUMNS} WHERE j.tenant = $1 AND v.version = j.version"
                f" AND {' AND '.join(['j.deleted_at IS NULL', *texts])} ORDER BY j.name LIMIT $2",
                await self.names.tenant(link, tenant),
                limit + 1,
                *(value for _, value in bound),
            )
        items = tuple(_job(row, tenant) for row in rows[:limit])
        return Page(items=items, next_cursor=items[-1].name if len(rows) > limit else None)

    async def list_versions(self, tenant: str, name: str) -> list[Job]:
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            rows = await link.fetch(
                f"{COLUMNS} WHERE j.tenant = $1 AND j.name = $2 ORDER BY v.version DESC", key, name
            )
        if not rows:
            raise JobNotFound(f"no job named {shown(name)}")
        return [_job(row, tenant) for row in rows]

    DELETE = """
    UPDATE daybell.job SET deleted_at = daybell.now(), paused_at = NULL, pause_note = ''
     WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL AND version = coalesce($3, version)
    RETURNING key
    """
    AT = "SELECT version FROM daybell.job WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL"

    async def delete_job(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        async def work() -> int | None:
            async with self.db.transaction() as link:
                key = await self.names.tenant(link, tenant)
                job = await link.fetchval(self.DELETE, key, name, expect)
                if job is None and expect is not None:
                    at = await link.fetchval(self.AT, key, name)
                    if at is not None:
                        raise moved(name, at=at, expect=expect)
                # A statement of its own: one that waited for the job saw its schedules before.
                await link.execute("DELETE FROM daybell.schedule WHERE job = $1", job)
            self.names.forget_job(key, name)
            return job

        if await self.db.settled(work) is None:
            raise JobNotFound(f"no job named {shown(name)}")

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        check_name(queue, what="queue")
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            if paused:
                statement = (
                    "INSERT INTO daybell.paused_queue VALUES ($1, $2) ON CONFLICT DO NOTHING"
                )
            else:
                statement = "DELETE FROM daybell.paused_queue WHERE tenant = $1 AND queue = $2"
            await link.execute(statement, key, queue)
        if not paused:
            self.notifier.touch(key, [queue], here=True)


def _job(row: Row, tenant: str, *, current: int | None = None) -> Job:
    return Job(
        id=row["id"],
        tenant=tenant,
        version=row["version"],
        definition=JobDefinition.from_json(row["definition"]),
        created_at=row["created_at"],
        author=row["author"],
        is_current=row["version"] == (row["current"] if current is None else current),
        paused_at=row["paused_at"],
        pause_note=row["pause_note"],
    )
