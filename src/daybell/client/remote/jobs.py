"""Jobs, their schedules, and templates, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal, Unpack

import msgspec
from msgspec.structs import replace

from daybell.client import wire
from daybell.client.declarations import ApplyOutcome, read_template
from daybell.client.remote import messages
from daybell.client.remote.messages import answer
from daybell.client.remote.transport import RemoteContext, build_path
from daybell.client.requests import (
    EnqueueOptions,
    Id,
    JobFilters,
    Status,
    Time,
    read_bound,
    read_job_status,
)
from daybell.client.schedules import Backfill
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.ids import mint
from daybell.core.job import Job, JobStatus, by_name
from daybell.core.job_request import encode_fields
from daybell.core.limits import (
    BACKFILL_CONCURRENCY_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    PAUSE_NOTE_CHARS_MAX,
    check_name,
)
from daybell.core.options import Arguments, JobFields, read_text, read_whole, read_word
from daybell.core.schedule import Schedule
from daybell.core.units import to_iso
from daybell.core.views import Page, read_pages
from daybell.core.when.cursor import Only, Order
from daybell.errors import InvalidName, JobNotFound, UsageError, shown

LOOKS_MAX = 8  # jobs that are looked at together


async def jobs(
    client: RemoteContext,
    *,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    **where: Unpack[JobFilters],
) -> Page[Job]:
    """Jobs by name."""
    found = await standings_page(client, limit=limit, cursor=cursor, **where)
    return Page(items=tuple(one.job for one in found.items), next_cursor=found.next_cursor)


async def standings_page(
    client: RemoteContext,
    *,
    status: Status | None = None,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    **where: Unpack[JobFilters],
) -> Page[JobStatus]:
    """How jobs stand, by name. With a status, a page may be short and not the last one."""
    asked = {
        "prefix": where.get("prefix") or None,
        "q": where.get("text"),
        "user_id": where.get("user_id"),
        "queue": where.get("queue"),
        "status": None if status is None else sorted(read_job_status(status)),
        "limit": limit,
        "cursor": cursor,
    }
    return await messages.complete_page(client.transport, "/jobs", messages.standing, asked)


async def standings(client: RemoteContext, jobs: Iterable[Job]) -> list[JobStatus]:
    """How jobs in hand stand now."""
    limit = asyncio.Semaphore(LOOKS_MAX)

    async def look(job: Job) -> JobStatus:
        async with limit:
            return replace(await standing(client, job.name), job=job)

    return await asyncio.gather(*map(look, jobs))


async def standing(client: RemoteContext, job: str) -> JobStatus:
    """How a job stands, a deleted one too: its status, and when it runs next."""
    return await client.transport.get(_job_path(job), read=messages.standing)


async def job(client: RemoteContext, name: str, *, version: int | None = None) -> Job:
    """A job, at its current version or the one asked for."""
    if version is None:
        found = await versions_page(client, name, limit=1)
        return found.items[0]
    return await client.transport.get(_job_path(name, "versions", str(version)), read=messages.job)


async def versions_page(
    client: RemoteContext, name: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[Job]:
    """Versions of a job, newest first."""
    asked = {"limit": limit, "cursor": cursor}
    path = _job_path(name, "versions")
    return await messages.complete_page(client.transport, path, messages.job, asked)


async def versions(client: RemoteContext, name: str) -> list[Job]:
    """All versions of a job, newest first."""
    read = partial(versions_page, client, name, limit=PAGE_ITEMS_MAX)
    return [job async for page in read_pages(lambda at: read(cursor=at)) for job in page]


async def create(
    client: RemoteContext, name: str, *, author: str = "", **fields: Unpack[JobFields]
) -> Job:
    """Make a job. One of `task`, `command`, `http`, `sql`, `notify` and `template` says what it
    runs; without a schedule it runs when it is triggered. Its author is whoever has the key.
    """
    said = encode_fields(fields)
    if not said.get("schedule") and not await _is_scheduled(client, said):
        said["schedule"] = "manual"  # without one the server would run it once, now
    body = {**said, "name": name}
    made = await client.transport.post("/jobs", body, once=True, read=messages.standing)
    return made.job


async def launch(
    client: RemoteContext,
    name: str,
    run: NewExecution,
    *,
    author: str = "",
    **fields: Unpack[JobFields],
) -> tuple[Job, Enqueued]:
    """Make a job without a schedule as `create` does, and have it run: both or neither. Of the
    execution, its arguments and its unique key count; the rest is as the job says.
    """
    said = encode_fields({key: one for key, one in fields.items() if key != "schedule" or one})
    if await _is_scheduled(client, said):
        raise UsageError("what is launched runs once, without a schedule", field="schedule")
    body = {
        **said,
        "name": name,
        "args": msgspec.Raw((run.args or "{}").encode()),
        "unique_key": run.unique_key,
    }
    return await client.transport.post("/jobs", body, once=True, read=messages.launched)


async def _is_scheduled(client: RemoteContext, said: messages.Body) -> bool:
    """Return True if a job has a schedule or runs after others, by itself or by its template."""
    is_said = bool(said.get("schedule")) or bool(said.get("dependencies"))
    if is_said or not isinstance(said.get("template"), str):
        return is_said
    template = await client.transport.get(
        build_path("templates", check_name(said["template"], what="template")),
        read=answer(wire.Template),
    )
    job = template.job or {}
    return job.get("schedule") is not None or bool(job.get("dependencies"))


async def update(
    client: RemoteContext,
    name: str,
    *,
    author: str = "",
    expect: int | None = None,
    **fields: Unpack[JobFields],
) -> Job:
    """Change what is said of a job; all else stays. Answers its new version.

    With `expect`, only if it is at that version still.
    """
    path = _job_path(name)
    changed = await client.transport.patch(
        path, encode_fields(fields), version=expect, read=messages.standing
    )
    return changed.job


async def apply_job(
    client: RemoteContext,
    name: str,
    *,
    author: str = "",
    expect: int | None = None,
    dry_run: bool = False,
    **fields: Unpack[JobFields],
) -> ApplyOutcome:
    """Make a job be what is said here, and nothing else. Without a schedule it never runs by
    itself. One that is like that already is left alone.
    """
    path = build_path("jobs", check_name(name, what="job"))
    how: dict[str, Any] = {"parameters": {"dry_run": "true" if dry_run else None}}
    return await client.transport.put(
        path, encode_fields(fields), version=expect, read=messages.applied, **how
    )


async def warnings(client: RemoteContext, job: str, *, deleting: bool = False) -> list[str]:
    """What looks wrong with a job as things are now, in sentences for people; or, of one that
    is to be deleted or was, what goes wrong without it.
    """
    read = messages.items_of(str)
    asked = {"deleting": "true"} if deleting else {}
    return await client.transport.get(_job_path(job, "warnings"), asked, read=read)


async def rollback(
    client: RemoteContext, name: str, version: int, *, author: str = "", expect: int | None = None
) -> Job:
    """Make an older version the current one again, as a new version."""
    path = _job_path(name, "rollback")
    changed = await client.transport.post(
        path, {"version": version}, version=expect, read=messages.standing
    )
    return changed.job


async def delete_job(
    client: RemoteContext, name: str, *, expect: int | None = None, force: bool = False
) -> int:
    """Delete a job and cancel its unfinished executions; answers how many."""
    asked = {"force": "true"} if force else None
    return await client.transport.delete(
        _job_path(name), version=expect, parameters=asked, read=messages.cancelled
    )


async def pause(client: RemoteContext, job: str, note: str = "") -> None:
    """Let a job's schedules fire no more until it is resumed. It can still be triggered."""
    if len(read_text(note, "note")) > PAUSE_NOTE_CHARS_MAX:
        raise UsageError(
            f"note has {len(note):,} characters; the limit is {PAUSE_NOTE_CHARS_MAX}",
            field="note",
        )
    path = _job_path(job, "pause")
    await client.transport.post(path, {"note": note}, read=messages.standing)


async def resume(client: RemoteContext, job: str) -> None:
    """Let a job's schedules fire again, from now on."""
    await client.transport.post(_job_path(job, "resume"), read=messages.standing)


async def schedules(client: RemoteContext, job: str) -> list[Schedule]:
    """The schedules of a job, by name."""
    read = partial(schedules_page, client, job, limit=PAGE_ITEMS_MAX)
    # One that fires meanwhile comes again, with its new time.
    found = {one.id: one async for page in read_pages(lambda at: read(cursor=at)) for one in page}
    return sorted(found.values(), key=by_name)


async def schedules_page(
    client: RemoteContext, job: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[Schedule]:
    """A page of the schedules of a job: declared ones, then the others, the next ones first."""
    asked = {"limit": limit, "cursor": cursor}
    read = messages.page_of(messages.schedule)
    return await client.transport.get(_job_path(job, "schedules"), asked, read=read)


async def trigger(
    client: RemoteContext,
    job: str,
    args: Arguments | None = None,
    *,
    unique_key: str | None = None,
    **options: Unpack[EnqueueOptions],
) -> Enqueued:
    """Run a job now. Without arguments it is called as its schedules would do it.

    Raises ExecutionInTheWay if its overlap rule does not let it in; `force=True` does.
    """
    body = messages.encode_execution(job, args, unique_key=unique_key, what="trigger()", **options)
    path = _job_path(job, "trigger")
    return await client.transport.post(path, body, once=True, read=messages.enqueued)


async def backfill(
    client: RemoteContext,
    job: str,
    since: Time,
    until: Time,
    *,
    only: Literal["missing", "failed", "all"] = "missing",
    concurrency: int = 1,
    order: Literal["oldest", "newest"] = "oldest",
    dry_run: bool = False,
) -> Backfill:
    """Run a job for ticks of its schedules from `since` to before `until`, as they are now."""
    body = {
        "since": to_iso(read_bound(since, "since")),
        "until": to_iso(read_bound(until, "until")),
        "only": str(read_word(only, tuple(Only), "only")),
        "order": str(read_word(order, tuple(Order), "order")),
        "concurrency": read_whole(
            concurrency, "concurrency", least=1, most=BACKFILL_CONCURRENCY_MAX
        ),
        "dry_run": dry_run,
    }
    path = _job_path(job, "backfill")
    read = partial(messages.backfill, none=mint())
    return await client.transport.post(path, body, once=not dry_run, read=read)


async def job_named(client: RemoteContext, id_or_name: Id) -> Job:
    """A job by its id, or by its name."""
    return await job(client, str(id_or_name))


def _job_path(name: str, *verb: str) -> str:
    """Where a job is. What cannot be a name is no job's: a slash in it would lead astray."""
    try:
        check_name(name, what="job")
    except InvalidName:
        raise JobNotFound(f"no job named {shown(name)}") from None
    return build_path("jobs", name, *verb)


# Templates over HTTP.


async def set_template(
    client: RemoteContext, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
) -> wire.Template:
    """Keep a template: an object with `name`, `parameters` and `job`. One of the same name is
    replaced. Its author is whoever has the key.

    With `expect`, it must be at that version; 0 is for a name that must be new.
    """
    name = read_template(value).name
    if expect == 0:
        return await client.transport.post(
            "/templates", value, once=True, read=answer(wire.Template)
        )
    return await client.transport.put(
        _template_path(name), value, version=expect, read=answer(wire.Template)
    )


async def template(client: RemoteContext, name: str) -> wire.Template:
    """A template. Raises TemplateNotFound."""
    return await client.transport.get(_template_path(name), read=answer(wire.Template))


async def templates_page(
    client: RemoteContext, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[wire.Template]:
    """Templates, by name."""
    asked = {"limit": limit, "cursor": cursor}
    return await messages.complete_page(
        client.transport, "/templates", answer(wire.Template), asked
    )


async def templates(client: RemoteContext) -> list[wire.Template]:
    """All templates, by name."""
    pages = read_pages(lambda at: templates_page(client, limit=PAGE_ITEMS_MAX, cursor=at))
    return [one async for page in pages for one in page]


async def delete_template(client: RemoteContext, name: str, *, expect: int | None = None) -> None:
    """Remove a template. Jobs that were made from it stay."""
    await client.transport.delete(_template_path(name), version=expect, read=lambda _: None)


def _template_path(name: str) -> str:
    return build_path("templates", check_name(name, what="template"))
