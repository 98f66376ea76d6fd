"""Tenants, jobs with their versions, and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core import checks
from daybell.core.checks import check_definition, check_names
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.job import Job, JobDefinition, NewJob, version_conflict
from daybell.core.limits import check_name
from daybell.core.options import fold_case, words_of_label
from daybell.core.schedule import Overlap, gate_of
from daybell.core.views import ALL_JOBS, JobFilter, Page, bytes_of, cut_page
from daybell.errors import JobNotFound, shown
from daybell.store.sqlite.enqueue import create
from daybell.store.sqlite.flow.limits import declare_limits
from daybell.store.sqlite.gates import JobMeter, Meter, make_gates
from daybell.store.sqlite.schedules import declare_schedules
from daybell.store.sqlite.transaction import Transaction
from daybell.store.wakeups import Signal

# Selects the columns that `read_job` reads.
JOB_SQL: Final = """
SELECT j.id, v.version, v.definition, v.created_at, v.author, v.n = j.version, j.paused_at,
       j.pause_note
  FROM job j JOIN job_version v ON v.job = j.n
"""


def define_jobs(tx: Transaction, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
    owner = tx.names.tenant(tx, tenant)
    meter = JobMeter(tx, owner)
    defined = [define(tx, owner, tenant, job) for job in jobs]
    meter.check(tenant)
    return defined


def launch(
    tx: Transaction, tenant: str, job: NewJob, execution: NewExecution
) -> tuple[Job, Enqueued]:
    """Define a job and enqueue one execution of it."""
    ((made,), (answer,)) = launch_all(tx, tenant, [job], [execution])
    return made, answer


def launch_all(
    tx: Transaction,
    tenant: str,
    jobs: Sequence[NewJob],
    executions: Sequence[NewExecution],
    *,
    is_refused: bool = True,
) -> tuple[list[Job], list[Enqueued]]:
    """Define jobs and enqueue executions of them. Without `is_refused`, quotas only count them."""
    owner = tx.names.tenant(tx, tenant)
    job_meter, meter = JobMeter(tx, owner), Meter(tx, owner)
    made = [define(tx, owner, tenant, job) for job in jobs]
    answers = create(tx, owner, executions) if executions else []
    if is_refused:
        job_meter.check(tenant)
    meter.charge(tenant, is_refused=is_refused)
    return made, answers


_FIND: Final = "SELECT n, is_deleted FROM job WHERE tenant = ? AND name = ?"
_LATEST: Final = f"{JOB_SQL} WHERE j.n = ? ORDER BY v.version DESC LIMIT 1"
_IS_KNOWN: Final = "SELECT 1 FROM job_version WHERE job = ? AND definition = ? LIMIT 1"
_ADD_JOB: Final = "INSERT INTO job (id, tenant, name, version) VALUES (?, ?, ?, 0)"
_REVIVE: Final = "UPDATE job SET is_deleted = 0 WHERE n = ?"
_SET_END: Final = "UPDATE job SET over_at = ?, unused_at = NULL WHERE n = ?"


def define(tx: Transaction, owner: int, tenant: str, new: NewJob) -> Job:
    """Store a definition, if it is new, and return the version that is current then."""
    text = check_definition(new.definition)
    name = new.definition.name
    found = tx.execute(_FIND, (owner, name)).fetchone()
    latest = tx.execute(_LATEST, (found[0],)).fetchone() if found else None
    current = latest[1] if latest else 0
    if new.expect is not None and new.expect != current:
        raise version_conflict(name, at=current, expect=new.expect)
    if found is None:
        n = tx.execute(_ADD_JOB, (new.id.bytes, owner, name)).lastrowid
        assert n is not None, "an INSERT has a row"
    else:
        n = found[0]
    if new.definition.overlap_rule() is not Overlap.ALLOW or new.schedules:
        make_gates(tx, owner, [gate_of(name)])
    is_known = tx.execute(_IS_KNOWN, (n, text)).fetchone() is not None
    comes_back = found is not None and found[1]
    # A deleted job has no version that old code could turn back.
    is_wanted = new.promote or comes_back or not is_known
    is_new = latest is None or (latest[2] != text and is_wanted)
    if is_new:
        add_version(tx, n, current + 1, text, new)
    if comes_back:
        tx.execute(_REVIVE, (n,))  # with its version: one change
        tx.names.job_changed()
    if is_new or comes_back:
        tx.execute(_SET_END, (tx.now if new.definition.once else None, n))
        declare_schedules(tx, owner, n, new.schedules)
    job = read_job(tenant, tx.execute(_LATEST, (n,)).fetchone())
    declare_limits(tx, owner, n, job.definition.rules)
    return job


_ADD_VERSION: Final = """
INSERT INTO job_version (job, version, definition, author, created_at) VALUES (?, ?, ?, ?, ?)
"""
_SET_CURRENT: Final = "UPDATE job SET version = ?, user_id = ?, words = ? WHERE n = ?"


def add_version(tx: Transaction, job: int, version: int, text: str, new: NewJob) -> None:
    """Store a definition as the current version of a job."""
    cursor = tx.execute(_ADD_VERSION, (job, version, text, new.author, tx.now))
    current = (cursor.lastrowid, new.definition.user_id, new.definition.words, job)
    tx.execute(_SET_CURRENT, current)
    tx.names.job_changed()


_GET: Final = f"{JOB_SQL} WHERE j.tenant = ? AND j.name = ? AND v.version = ?"
_GET_CURRENT: Final = f"""
{JOB_SQL} WHERE j.tenant = ? AND j.name = ? AND v.n = j.version AND j.is_deleted = 0
"""


def get_job(tx: Transaction, tenant: str, name: str, *, version: int | None = None) -> Job:
    key = tx.names.tenant(tx, tenant), name
    if version is None:
        row = tx.execute(_GET_CURRENT, key).fetchone()
    else:
        row = tx.execute(_GET, (*key, version)).fetchone()
    if row is None:
        which = "" if version is None else f" with a version {version}"
        raise JobNotFound(f"no job named {shown(name)}{which}")
    return read_job(tenant, row)


def get_jobs(tx: Transaction, tenant: str, names: Sequence[str]) -> dict[str, Job]:
    check_names(names)
    owner = tx.names.tenant(tx, tenant)
    rows = (tx.execute(_GET_CURRENT, (owner, name)).fetchone() for name in names)
    jobs = [read_job(tenant, row) for row in rows if row is not None]
    return {job.name: job for job in jobs}


_FIND_BY_ID: Final = f"""
{JOB_SQL} WHERE j.id = ? AND j.tenant = ? AND v.n = j.version AND (? OR j.is_deleted = 0)
"""


def find_job(tx: Transaction, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
    values = id.bytes, tx.names.tenant(tx, tenant), or_deleted
    row = tx.execute(_FIND_BY_ID, values).fetchone()
    if row is None:
        raise JobNotFound(f"no job with the id {id}")
    return read_job(tenant, row)


_FITS_QUEUES: Final = """
EXISTS (SELECT 1 FROM (SELECT v.definition ->> 'queue' AS queue), json_each(?)
         WHERE CASE WHEN substr(value, -1) = '*'
                    THEN instr(queue, substr(value, 1, length(value) - 1)) = 1
                    ELSE queue = value END)
"""


def list_jobs(
    tx: Transaction,
    tenant: str,
    where: JobFilter = ALL_JOBS,
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[Job]:
    checks.check_limit(limit)
    checks.check_job_filter(where, cursor)
    asked = (
        ("j.name >= ?", where.prefix or None),
        ("instr(j.name, ?) = 1", where.prefix or None),
        ("instr(j.words, ?) > 0", None if where.text is None else fold_case(where.text)),
        ("instr(j.words, ?) > 0", words_of_label(where.label)),
        ("j.user_id = ?", where.user_id),
        ("v.definition ->> 'queue' = ?", where.queue),
        (_FITS_QUEUES, msgspec.json.encode(where.queues).decode() if where.queues else None),
        ("instr(v.definition, ?) > 0", where.mentions),
    )
    bound = [(condition, value) for condition, value in asked if value is not None]
    conditions = " AND ".join(condition for condition, _ in bound) or "true"
    values = [value for _, value in bound]
    rows = tx.execute(
        f"{JOB_SQL} WHERE j.tenant = ? AND j.name > ? AND v.n = j.version AND j.is_deleted = 0"
        f" AND {conditions} ORDER BY j.name LIMIT ?",
        # No name is empty, so every one is greater than "".
        (tx.names.tenant(tx, tenant), cursor or "", *values, limit + 1),
    )
    return page_of(tenant, rows, limit, cursor=lambda one: one.name)


_VERSIONS: Final = f"""
{JOB_SQL} WHERE j.tenant = ? AND j.name = ? AND v.version < ? ORDER BY v.version DESC LIMIT ?
"""


def list_versions(
    tx: Transaction, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
) -> Page[Job]:
    checks.check_limit(limit)
    before = checks.check_version(cursor)
    owner = tx.names.tenant(tx, tenant)
    rows = tx.execute(_VERSIONS, (owner, name, before, limit + 1))
    page = page_of(tenant, rows, limit, cursor=lambda one: str(one.version))
    if not page.items and tx.execute(_FIND, (owner, name)).fetchone() is None:
        raise JobNotFound(f"no job named {shown(name)}")
    return page


def page_of(
    tenant: str, rows: Iterable[Any], limit: int, *, cursor: Callable[[Job], str]
) -> Page[Job]:
    """Return a page of jobs. Rows are read as far as they fit."""
    sized = ((read_job(tenant, row), bytes_of(row[2])) for row in rows)
    page = cut_page(sized, limit, size=lambda one: one[1], cursor=lambda one: cursor(one[0]))
    return Page(items=tuple(job for job, _ in page.items), next_cursor=page.next_cursor)


_DELETE_JOB: Final = """
UPDATE job SET is_deleted = 1, paused_at = NULL, pause_note = '', over_at = ?, unused_at = NULL
 WHERE n = ?
"""


def delete_job(tx: Transaction, tenant: str, name: str, *, expect: int | None = None) -> None:
    job = tx.names.current(tx, tx.names.tenant(tx, tenant), name).job
    if expect is not None:
        version = tx.execute(_LATEST, (job,)).fetchone()[1]
        if version != expect:
            raise version_conflict(name, at=version, expect=expect)
    mark_deleted(tx, job)


def mark_deleted(tx: Transaction, job: int) -> None:
    """Stop a job from firing and from being enqueued."""
    tx.execute(_DELETE_JOB, (tx.now, job))
    tx.execute("DELETE FROM schedule WHERE job = ?", (job,))
    tx.names.job_changed()


_PAUSE: Final = "INSERT INTO paused_queue (tenant, name) VALUES (?, ?) ON CONFLICT DO NOTHING"
_RESUME: Final = "DELETE FROM paused_queue WHERE tenant = ? AND name = ?"


def pause_queue(tx: Transaction, tenant: str, queue: str, *, paused: bool) -> None:
    check_name(queue, what="queue")
    tx.execute(_PAUSE if paused else _RESUME, (tx.names.tenant(tx, tenant), queue))
    if not paused:
        tx.signals.add(Signal.CLAIM)


def read_job(tenant: str, row: Any) -> Job:
    id, version, definition, created_at, author, is_current, paused_at, pause_note = row
    return Job(
        id=UUID(bytes=id),
        tenant=tenant,
        version=version,
        definition=JobDefinition.from_json(definition),
        created_at=created_at,
        author=author,
        is_current=bool(is_current),
        paused_at=paused_at,
        pause_note=pause_note,
    )
