"""Tenants, jobs with their versions, and queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from daybell.core.checks import (
    check_batch,
    check_definition,
    check_job_filter,
    check_limit,
    check_names,
    check_version,
)
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.job import Job, JobDefinition, NewJob, version_conflict
from daybell.core.limits import check_name
from daybell.core.options import fold_case, words_of_label
from daybell.core.schedule import Overlap, gate_of
from daybell.core.views import ALL_JOBS, JobFilter, Page, bytes_of, cut_page
from daybell.errors import JobNotFound, Unavailable, shown
from daybell.store.postgres.connection import Row
from daybell.store.postgres.context import ALL_TENANTS, SCHEDULES, StoreContext, Tx
from daybell.store.postgres.enqueue import STALE_TRIES, enqueue_on, notify_enqueued
from daybell.store.postgres.flow.limits import declare_limits
from daybell.store.postgres.gates import MAKE_JOB_GATES, charge, charge_jobs, count_new_jobs
from daybell.store.postgres.names import JobKey, Outdated, Specs, within_page
from daybell.store.postgres.schedules import write_schedules

COLUMNS = """
    SELECT j.id, j.name, j.version AS current, v.version, v.definition, v.author, v.created_at,
           j.paused_at, j.pause_note
      FROM daybell.job j JOIN daybell.job_version v ON v.job = j.key"""

SIZE = "octet_length(definition)"
FITS_QUEUES = """
EXISTS (SELECT FROM unnest({}::text[]) AS p
         WHERE CASE WHEN right(p, 1) = '*' THEN starts_with(j.queue, left(p, -1))
                    ELSE j.queue = p END)
"""


class StoredDefinition(NamedTuple):
    """The stored form of a definition: its current version, whether that version differs from the
    one before, and its lane, if it was looked up.
    """

    job: Job
    is_changed: bool
    lane: tuple[str, str, int] | None


async def define_jobs(pg: StoreContext, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
    texts = [check_definition(job.definition) for job in jobs]
    # Nearly every start of a process finds the definitions that it left: one statement, no locks.
    async with pg.autocommit() as tx:
        rows = await _standing(tx, tenant, jobs, texts)
        pg.db.skip_entry()
    pg.names.learn(tenant, rows)
    if rows and all(map(_is_settled, jobs, texts, rows)):
        return [read_job(row, tenant) for row in rows]

    async def work() -> list[Job]:
        async with pg.transaction() as tx:
            key = await pg.names.tenant(tx, tenant)
            names = {job.definition.name for job in jobs}
            new = await count_new_jobs(tx, key, names)
            # Together, unless one is there twice: then the last one counts.
            order = range(len(jobs))
            groups = [order] if len(names) == len(jobs) else [[index] for index in order]
            made: dict[int, StoredDefinition] = {}
            for group in groups:
                some = [jobs[index] for index in group], [texts[index] for index in group]
                done = await _define(tx, key, tenant, *some)
                made |= dict(zip(group, done, strict=True))
            if not any(one.is_changed for one in made.values()):
                pg.db.skip_entry()
            await charge_jobs(tx, key, new)
        pg.names.learn_lanes(key, [one.lane for one in made.values() if one.lane])
        for job in jobs:
            pg.names.forget_job(key, job.definition.name)
        if any(job.schedules for job in jobs):
            pg.notifier.touch(ALL_TENANTS, [SCHEDULES])
        return [made[index].job for index in range(len(jobs))]

    return await pg.db.settled(work)


async def launch(
    pg: StoreContext, tenant: str, job: NewJob, execution: NewExecution
) -> tuple[Job, Enqueued]:
    made = await launch_if(pg, tenant, None, [job], [execution])
    assert made is not None, "there is no guard"
    return made[0][0], made[1][0]


Guard = Callable[[Tx, int], Awaitable[bool]]


async def launch_if(
    pg: StoreContext,
    tenant: str,
    guard: Guard | None,
    jobs: Sequence[NewJob],
    executions: Sequence[NewExecution],
    *,
    is_refused: bool = True,
) -> tuple[list[Job], list[Enqueued]] | None:
    """Define different jobs and enqueue executions of them, in the transaction of `guard`, which
    receives it with the key of the tenant. If `guard` returns False, return None and write nothing.
    Without `is_refused`, quotas are not checked.
    """
    if executions:
        check_batch(executions)
    texts = [check_definition(job.definition) for job in jobs]

    async def work() -> tuple[list[Job], list[Enqueued]] | None:
        for _ in range(STALE_TRIES):
            try:
                return await _launch(pg, tenant, guard, jobs, texts, executions, is_refused)
            except Outdated:
                continue
            except _Refused:
                return None
        raise Unavailable("this job changes faster than it can be enqueued; try again")

    return await pg.db.settled(work)


class _Refused(Exception):
    """An error that rolls the transaction of a refused launch back."""


async def _launch(
    pg: StoreContext,
    tenant: str,
    guard: Guard | None,
    jobs: Sequence[NewJob],
    texts: Sequence[str],
    executions: Sequence[NewExecution],
    is_refused: bool,
) -> tuple[list[Job], list[Enqueued]]:
    definitions = {job.definition.name: job.definition for job in jobs}
    wanted = {(e.job, e.queue): definitions[e.job] for e in executions}
    # Create the lanes first, and keep them if the rest fails: see `Names.lanes`.
    lanes = {(d.queue, d.lane_needs) for d in definitions.values()}
    lanes |= {(queue or d.queue, d.lane_needs) for (_, queue), d in wanted.items()}
    key = await pg.names.prepare_lanes(tenant, lanes)
    try:
        async with pg.transaction() as tx:
            if guard is not None and not await guard(tx, key):
                raise _Refused
            new = await count_new_jobs(tx, key, set(definitions))
            made = await _define(tx, key, tenant, jobs, texts) if jobs else []
            specs = await _specs(tx, key, wanted)
            answers = await enqueue_on(tx, specs, executions, repeat=True) if executions else []
            if is_refused:
                await charge_jobs(tx, key, new)
                if (await pg.names.quotas(tx, key)).limits_enqueues:
                    await charge(tx, key, len(specs.made))
    finally:
        for name in definitions:
            pg.names.forget_job(key, name)  # it was read before it was committed
    await notify_enqueued(pg, tx.after, specs)
    if any(job.schedules for job in jobs):
        pg.notifier.touch(ALL_TENANTS, [SCHEDULES])
    return [one.job for one in made], answers


async def _specs(tx: Tx, key: int, wanted: Mapping[tuple[str, str | None], JobDefinition]) -> Specs:
    """Return the jobs and lanes of executions, as this transaction has defined them."""
    found: dict[tuple[str, str | None], JobKey] = {}
    if wanted:
        current = await tx.pg.names.current_jobs(tx, key, {job for job, _ in wanted}, fresh=True)
        for (job, queue), definition in wanted.items():
            lane = tx.pg.names.known_lane(key, (queue or definition.queue, definition.lane_needs))
            assert lane is not None, "it was prepared"
            found[job, queue] = JobKey(key, current[job], lane)
    return Specs(key, True, found)


# Of each definition: the current version of its job, if there is one, and whether the job has
# had this very definition before.
STANDING: Final = """
    SELECT t.key AS tenant, t.jobs_max, t.queued_max, t.per_minute_max, t.running_max,
           j.key, j.id, j.name, j.version AS current, j.deleted_at IS NOT NULL AS is_deleted,
           v.version, v.definition, v.author, v.created_at, j.paused_at, j.pause_note,
           EXISTS (SELECT FROM daybell.job_version k
                    WHERE k.job = j.key AND k.definition = u.definition) AS is_known,
           u.queue, u.needs,
           (SELECT l.key FROM daybell.lane l
             WHERE l.tenant = t.key AND l.queue = u.queue AND l.needs = u.needs) AS lane
      FROM daybell.tenant t
     CROSS JOIN unnest($2::text[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
                u(name, definition, queue, needs, place)
      LEFT JOIN daybell.job j ON j.tenant = t.key AND j.name = u.name
      LEFT JOIN daybell.job_version v ON v.job = j.key AND v.version = j.version
     WHERE t.name = $1 ORDER BY u.place
    """
# The update that changes nothing locks the row, whichever transaction created it. It is sorted, so
# that transactions with the same jobs lock them in the same order. Existing lanes need not be made
# in the transaction of an enqueue, where others would wait for its commit.
TAKE: Final = """
    WITH l AS (
      INSERT INTO daybell.lane (tenant, queue, needs)
      SELECT DISTINCT $1::int, u.* FROM unnest($4::text[], $5::text[]) u ORDER BY 2, 3
      ON CONFLICT DO NOTHING)
    INSERT INTO daybell.job AS j (id, tenant, name, version, queue)
    SELECT u.id, $1, u.name, 0, '' FROM unnest($2::uuid[], $3::text[]) u(id, name) ORDER BY u.name
    ON CONFLICT (tenant, name) DO UPDATE SET name = j.name
    RETURNING j.key, j.name, j.version, j.deleted_at IS NOT NULL AS is_deleted
    """
# Schedules that the definitions still declare are replaced, and keep their counts; those that
# say the same as before keep their cursor, which may be at a tick that has not fired yet.
ADOPT: Final = """
    WITH n AS MATERIALIZED (
      SELECT *, daybell.now() AS now
        FROM unnest($1::int[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[],
                           $7::text[], $8::text[], $9::bool[], $11::bool[])
                    u(job, version, definition, author, queue, needs, user_id, words, is_new,
                      is_once)),
    a AS (
      INSERT INTO daybell.job_version (job, version, definition, author, created_at)
      SELECT job, version, definition, author, now FROM n WHERE is_new),
    d AS (
      DELETE FROM daybell.schedule
       WHERE job = ANY($1::int[]) AND is_declared AND id <> ALL($10::uuid[]))
    UPDATE daybell.job j SET version = n.version, queue = n.queue, user_id = n.user_id,
                             words = n.words, deleted_at = NULL, unused_at = NULL,
                             over_at = CASE WHEN n.is_once THEN n.now END
      FROM n WHERE j.key = n.job
    RETURNING j.id, j.name, n.version AS current, n.version, n.definition, n.author,
              n.now AS created_at, j.paused_at, j.pause_note, n.queue, n.needs,
              (SELECT l.key FROM daybell.lane l
                WHERE l.tenant = j.tenant AND l.queue = n.queue AND l.needs = n.needs) AS lane
    """


async def _standing(tx: Tx, tenant: str, jobs: Sequence[NewJob], texts: Sequence[str]) -> list[Row]:
    return await tx.fetch(
        STANDING,
        tenant,
        [job.definition.name for job in jobs],
        list(texts),
        [job.definition.queue for job in jobs],
        [job.definition.lane_needs for job in jobs],
    )


async def _define(
    tx: Tx, key: int, tenant: str, jobs: Sequence[NewJob], texts: Sequence[str]
) -> list[StoredDefinition]:
    """Store definitions of different jobs, in as many statements as it takes for one."""
    names = [job.definition.name for job in jobs]
    queues = [job.definition.queue for job in jobs]
    needs = [job.definition.lane_needs for job in jobs]
    rows = await tx.fetch(TAKE, key, [job.id for job in jobs], names, queues, needs)
    taken = {row["name"]: row for row in rows}
    for job in jobs:
        at = taken[job.definition.name]["version"]
        if job.expect is not None and job.expect != at:
            raise version_conflict(job.definition.name, at=at, expect=job.expect)
    made: dict[str, StoredDefinition] = {}
    if any(row["version"] for row in rows):  # else all of them are new
        for job, text, row in zip(
            jobs, texts, await _standing(tx, tenant, jobs, texts), strict=True
        ):
            if row["version"] is not None:
                is_same = row["definition"] == text
                is_back = row["is_deleted"] and is_same
                # A deleted job has no version that old code could turn back.
                is_old = row["is_known"] and not job.promote and not row["is_deleted"]
                if is_same or is_old:
                    made[row["name"]] = StoredDefinition(read_job(row, tenant), is_back, None)
    changed = [
        (job, text, made.get(job.definition.name)) for job, text in zip(jobs, texts, strict=True)
    ]
    changed = [one for one in changed if one[2] is None or one[2].is_changed]
    if changed:
        made |= await _adopt(tx, key, tenant, changed, taken)
    gates = [
        gate_of(name)
        for name, one in made.items()
        if one.job.definition.overlap_rule() is not Overlap.ALLOW
    ]
    if gates:
        await tx.execute(MAKE_JOB_GATES, key, gates)
    await declare_limits(tx, key, [one.job.definition for one in made.values()])
    return [made[name] for name in names]


async def _adopt(
    tx: Tx,
    key: int,
    tenant: str,
    changed: Sequence[tuple[NewJob, str, StoredDefinition | None]],
    taken: Mapping[str, Row],
) -> dict[str, StoredDefinition]:
    """Make definitions current: those that are new, and those of jobs that were deleted."""
    jobs = {job.definition.name: taken[job.definition.name]["key"] for job, _, _ in changed}
    schedules = [schedule for job, _, _ in changed for schedule in job.schedules]
    definitions = [job.definition for job, _, _ in changed]
    rows = await tx.fetch(
        ADOPT,
        list(jobs.values()),
        [taken[job.definition.name]["version"] + (back is None) for job, _, back in changed],
        [text for _, text, _ in changed],
        [job.author for job, _, _ in changed],
        [definition.queue for definition in definitions],
        [definition.lane_needs for definition in definitions],
        [definition.user_id for definition in definitions],
        [definition.words for definition in definitions],
        [back is None for _, _, back in changed],
        [schedule.id for schedule in schedules],
        [definition.once for definition in definitions],
    )
    if schedules:
        scheduled = {job.definition.name for job, _, _ in changed if job.schedules}
        numbers = {name: number for name, number in jobs.items() if name in scheduled}
        await write_schedules(tx, key, schedules, numbers, keeps_cursors=True)
    backs = {job.definition.name: back for job, _, back in changed}
    return {
        row["name"]: StoredDefinition(
            back.job if (back := backs[row["name"]]) is not None else read_job(row, tenant),
            True,
            (row["queue"], row["needs"], row["lane"]),
        )
        for row in rows
    }


GET: Final = f"""{COLUMNS}
     WHERE j.tenant = $1 AND j.name = $2 AND v.version = coalesce($3, j.version)
       AND ($3::int IS NOT NULL OR j.deleted_at IS NULL)
    """


async def get_job(pg: StoreContext, tenant: str, name: str, *, version: int | None = None) -> Job:
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        row = await link.fetchrow(GET, key, name, version)
    if row is None:
        which = "" if version is None else f" with version {version}"
        raise JobNotFound(f"no job named {shown(name)}{which}")
    return read_job(row, tenant)


GET_MANY: Final = f"""
    SELECT x.* FROM unnest($2::text[]) u(name), LATERAL ({COLUMNS}
     WHERE j.tenant = $1 AND j.name = u.name AND v.version = j.version AND j.deleted_at IS NULL
    OFFSET 0) x
    """


async def get_jobs(pg: StoreContext, tenant: str, names: Sequence[str]) -> dict[str, Job]:
    check_names(names)
    async with pg.db.link() as link:
        rows = await link.fetch(GET_MANY, await pg.names.tenant(link, tenant), list(names))
    return {row["name"]: read_job(row, tenant) for row in rows}


FIND: Final = f"""{COLUMNS}
     WHERE j.id = $2 AND j.tenant = $1 AND v.version = j.version
       AND ($3 OR j.deleted_at IS NULL)
    """


async def find_job(pg: StoreContext, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        row = await link.fetchrow(FIND, key, id, or_deleted)
    if row is None:
        raise JobNotFound(f"no job with the id {id}")
    return read_job(row, tenant)


async def list_jobs(
    pg: StoreContext,
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
        ("strpos(j.words, {}) > 0", None if where.text is None else fold_case(where.text)),
        ("strpos(j.words, {}) > 0", words_of_label(where.label)),
        ("j.user_id = {}", where.user_id),
        ("j.queue = {}", where.queue),
        (FITS_QUEUES, where.queues or None),
        ("strpos(v.definition, {}) > 0", where.mentions),
        ("j.name > {}", cursor),
    ]
    bound = [(condition, value) for condition, value in conditions if value is not None]
    texts = [one.format(f"${number}") for number, (one, _) in enumerate(bound, start=3)]
    async with pg.db.link() as link:
        listed = (
            f"{COLUMNS} WHERE j.tenant = $1 AND v.version = j.version"
            f" AND {' AND '.join(['j.deleted_at IS NULL', *texts])} ORDER BY j.name LIMIT $2"
        )
        rows = await link.fetch(
            within_page(listed, SIZE, "name"),
            await pg.names.tenant(link, tenant),
            limit + 1,
            *(value for _, value in bound),
        )
    return _page(rows, tenant, limit, "name")


VERSIONS: Final = within_page(
    f"""{COLUMNS} WHERE j.tenant = $1 AND j.name = $2 AND v.version < $3
         ORDER BY v.version DESC LIMIT $4""",
    SIZE,
    "version DESC",
)
EXISTS: Final = "SELECT EXISTS (SELECT FROM daybell.job WHERE tenant = $1 AND name = $2)"


async def list_versions(
    pg: StoreContext, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
) -> Page[Job]:
    check_limit(limit)
    before = check_version(cursor)
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        rows = await link.fetch(VERSIONS, key, name, before, limit + 1)
        if not rows and not await link.fetchval(EXISTS, key, name):
            raise JobNotFound(f"no job named {shown(name)}")
    return _page(rows, tenant, limit, "version")


DELETE: Final = """
    UPDATE daybell.job SET deleted_at = daybell.now(), paused_at = NULL, pause_note = '',
           over_at = daybell.now(), unused_at = NULL
     WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL AND version = coalesce($3, version)
    RETURNING key
    """
AT: Final = "SELECT version FROM daybell.job WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL"


async def delete_job(
    pg: StoreContext, tenant: str, name: str, *, expect: int | None = None
) -> None:
    async def work() -> int | None:
        async with pg.db.transaction() as link:
            key = await pg.names.tenant(link, tenant)
            job = await link.fetchval(DELETE, key, name, expect)
            if job is None and expect is not None:
                at = await link.fetchval(AT, key, name)
                if at is not None:
                    raise version_conflict(name, at=at, expect=expect)
            # Use a statement of its own: one that waited for the job saw its schedules before.
            await link.execute("DELETE FROM daybell.schedule WHERE job = $1", job)
        pg.names.forget_job(key, name)
        return job

    if await pg.db.settled(work) is None:
        raise JobNotFound(f"no job named {shown(name)}")


async def pause_queue(pg: StoreContext, tenant: str, queue: str, *, paused: bool) -> None:
    check_name(queue, what="queue")
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        if paused:
            statement = "INSERT INTO daybell.paused_queue VALUES ($1, $2) ON CONFLICT DO NOTHING"
        else:
            statement = "DELETE FROM daybell.paused_queue WHERE tenant = $1 AND queue = $2"
        await link.execute(statement, key, queue)
    if not paused:
        pg.notifier.touch(key, [queue], here=True)


def _is_settled(job: NewJob, text: str, row: Row) -> bool:
    """Return True if there is nothing to do for a definition; see `STANDING`."""
    if row["version"] is None or row["is_deleted"] or row["lane"] is None:
        return False
    is_settled = row["definition"] == text or (row["is_known"] and not job.promote)
    return is_settled and job.expect in (None, row["version"])


def _page(rows: list[Row], tenant: str, limit: int, cursor: str) -> Page[Job]:
    page = cut_page(
        rows,
        limit,
        size=lambda row: bytes_of(row["definition"]),
        cursor=lambda row: str(row[cursor]),
    )
    return Page(
        items=tuple(read_job(row, tenant) for row in page.items), next_cursor=page.next_cursor
    )


def read_job(row: Row, tenant: str, *, current: int | None = None) -> Job:
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
