"""The client of a server: the interface of `Client` over HTTP.

A verb checks its arguments, sends a request, and decodes the answer as `client/wire.py` has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import groupby, islice
from typing import Any, Literal, Self, TypeAlias, TypeVar, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from daybell.client import wire
from daybell.client.admin import read_quotas, read_role, read_scope, require_secret_name
from daybell.client.client import Client
from daybell.client.declarations import read_template
from daybell.client.executions import (
    EnqueuedMany,
    ProgressCallback,
    check_no_status,
    fix_bounds,
    ignore_progress,
    restrict_to_unfinished,
)
from daybell.client.logs import START, LogFilters
from daybell.client.remote.requests import (
    Body,
    encode_bound,
    encode_execution,
    encode_filters,
    encode_parameters,
    job_path,
    read_filters,
    selection_bodies,
    tenant_path,
)
from daybell.client.remote.transport import Transport, build_path
from daybell.client.requests import (
    EnqueueOptions,
    Filters,
    Id,
    JobFilters,
    Status,
    Time,
    read_bound,
    read_id,
    read_job_status,
    read_time,
)
from daybell.client.retries import RetryOutcome, split_retryable
from daybell.client.schedules import read_pause_note
from daybell.client.sealing import check_value
from daybell.client.stats import JOB_SINCE, SERIES_SINCE
from daybell.core.access import LOGIN_SECONDS, Role
from daybell.core.alerts.rules import AlertRule
from daybell.core.event import Published
from daybell.core.execution import (
    LAST,
    Cancellation,
    Enqueued,
    Line,
    LogPart,
    NewExecution,
    Revival,
    join_lines,
)
from daybell.core.ids import mint
from daybell.core.job_request import encode_fields
from daybell.core.limits import (
    BACKFILL_CONCURRENCY_MAX,
    ENQUEUE_BATCH_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    check_name,
)
from daybell.core.monitoring.stats import check_metrics
from daybell.core.options import Arguments, JobFields, Keep, read_limit, read_whole, read_word
from daybell.core.references import check_secret_name
from daybell.core.units import Duration, Instant, format_duration, parse_duration, to_iso
from daybell.core.views import ExecutionFilter, Health, Page, Total, read_pages, total_of
from daybell.core.when.cursor import Only, Order
from daybell.errors import Conflict, ExecutionNotFound, UsageError

W = TypeVar("W", bound=StrEnum)


class DiscardOutcome(StrEnum):
    """The outcome of discarding one dead letter."""

    DISCARDED = "discarded"
    NOT_LISTED = "not_listed"


class RemoteClient:
    """A tenant's jobs, executions, queues and workers, by way of a `daybell server`.

    It has the verbs of `Client` that a server offers, with the same answers and errors. The key
    decides whose jobs these are; a superadmin's may name another tenant. The first verb connects,
    and leaving the client closes the connections.
    """

    def __init__(self, url: str, *, key: str | None = None, tenant: str | None = None) -> None:
        self.tenant = None if tenant is None else check_name(tenant, what="tenant")
        self.transport = Transport(url, key=key, tenant=self.tenant)
        self._ask = self.transport.ask

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    @property
    def place(self) -> str:
        """The server, for messages."""
        return self.transport.place

    async def health(self) -> Health:
        """The time of the store. The server does not report its schema and checks."""
        now = (await self._ask("GET", "/status", wire.Status)).now
        return Health(product="", now=now.timestamp(), schema=0, checks=())

    # Executions.

    async def enqueue(
        self,
        job: str,
        args: Arguments | None = None,
        *,
        unique_key: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Enqueued:
        """Enqueue one execution of a job. Once this has answered, it is on disk.

        A `unique_key` that an unfinished execution of the job holds answers with that execution
        and `created=False`.
        """
        item = encode_execution(job, args or {}, unique_key=unique_key, what="enqueue()", **options)
        (made,) = await self._enqueue([{"job": job, **item}])
        return made

    async def enqueue_many(
        self, job: str, args: Iterable[Arguments], **options: Unpack[EnqueueOptions]
    ) -> EnqueuedMany:
        """Enqueue one execution per item, all or nothing: up to 10,000, in one request."""
        check_name(job, what="job")
        given = list(islice(args, ENQUEUE_BATCH_MAX + 1))
        if len(given) > ENQUEUE_BATCH_MAX:
            raise UsageError(
                f"one request takes {ENQUEUE_BATCH_MAX:,} executions at most; send them in several,"
                " or enqueue on the database",
                field="args",
            )
        encode = partial(encode_execution, unique_key=None, what="enqueue_many()", **options)
        items = [{"job": job, **encode(job, one)} for one in given]
        made = await self._enqueue(items) if items else []
        return EnqueuedMany(count=len(made), executions=tuple(made))

    async def _enqueue(self, items: list[Body]) -> list[Enqueued]:
        made = await self._ask("POST", "/executions", wire.EnqueuedMany, items, once=True)
        return [Enqueued(one.execution_id, created=one.created) for one in made.items]

    async def execution(self, id: Id) -> wire.ExecutionDetail:
        """An execution, with its ended attempts, its steps or nodes, and its timeline."""
        return await self._ask("GET", build_path("executions", read_id(id)), wire.ExecutionDetail)

    async def executions(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        sort: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page[wire.Execution]:
        """Executions, newest first, or sorted. A status is a state, or "pending": not started, not
        ended.
        """
        asked = {**encode_parameters(filters), "limit": limit, "cursor": cursor, "sort": sort}
        return await self._ask("GET", "/executions", Page[wire.Execution], parameters=asked)

    async def why(self, id: Id) -> wire.Why:
        """Why an execution has not run, or not ended."""
        return await self._ask("GET", build_path("executions", read_id(id), "why"), wire.Why)

    async def signature(self, job: Id) -> wire.Signature:
        """The JSON Schema of a job's arguments."""
        return await self._ask("GET", build_path("jobs", str(job), "signature"), wire.Signature)

    async def why_job(self, job: Id) -> wire.JobWhy:
        """Why a job does not run now."""
        return await self._ask("GET", build_path("jobs", str(job), "why"), wire.JobWhy)

    async def why_queue(self, name: str) -> wire.QueueWhy:
        """Why the due executions of a queue are not taken."""
        path = build_path("queues", check_name(name, what="queue"), "why")
        return await self._ask("GET", path, wire.QueueWhy)

    async def count(self, **filters: Unpack[Filters]) -> wire.StateCounts:
        """The number of executions in each state."""
        return await self._count(encode_parameters(filters))

    async def estimate(self, **filters: Unpack[Filters]) -> int:
        """About how many executions there are."""
        found = await self._count({**encode_parameters(filters), "estimate": "true"})
        return found.total if isinstance(found.estimate, UnsetType) else found.estimate

    async def _count(self, asked: Body) -> wire.StateCounts:
        return await self._ask("GET", "/counts", wire.StateCounts, parameters=asked)

    async def retry(self, id: Id, *, force: bool = False, from_: str | None = None) -> Enqueued:
        """Run it again: a dead one itself, a cancelled one as a new execution with the same
        arguments. `force` does the latter for one that succeeded, or was discarded.

        Of a workflow's run, nodes that succeeded are kept, unless `force` is used. `from_` names a
        node to begin with, as a new execution; then the run may have ended in any way.
        """
        path = build_path("executions", read_id(id), "retry")
        body = {"force": force, **({} if from_ is None else {"from": from_})}
        return _enqueued(await self._ask("POST", path, wire.Enqueued, body, once=True))

    async def cancel(self, id: Id) -> Cancellation:
        """Cancel an execution: at once if it has not started, else by asking it to stop."""
        # A request for many tells apart an execution that had ended from one that ends now.
        body = {"ids": [str(read_id(id))]}
        (outcome,) = await self._sweep("/executions/cancel", body, Cancellation)
        if outcome is Cancellation.UNKNOWN:
            raise ExecutionNotFound(f"no execution {id}")
        return outcome

    async def count_cancellable(self, **filters: Unpack[Filters]) -> Total:
        """The number of executions that `cancel_many` would cancel."""
        where = restrict_to_unfinished(read_filters(filters))
        if where.content is not None:
            return await self._count_found({**filters, "status": _state_words(where)})
        return (await self._count(encode_parameters(filters, where.states))).total

    async def cancel_many(
        self, *, on_step: ProgressCallback = ignore_progress, **filters: Unpack[Filters]
    ) -> Counter[Cancellation]:
        """Cancel executions that have not ended; answers with their number by outcome."""
        where = restrict_to_unfinished(read_filters(filters))
        body = {"filter": encode_filters(await fix_bounds(self, filters), where.states)}
        return await self._sweep("/executions/cancel", body, Cancellation, on_step)

    async def count_retryable(self, *, force: bool = False, **filters: Unpack[Filters]) -> Total:
        """The number of executions that `retry_many` would run again."""
        totals: list[Total] = []
        for where in split_retryable(read_filters(filters), force=force):
            if where.content is None:
                letters = {"dead_letters": True} if where.dead_letters else {}
                asked = encode_parameters(filters, where.states) | letters
                totals.append((await self._count(asked)).total)
            elif where.dead_letters:
                totals.append(await self.count_dead_letters(**{**filters, "status": None}))
            else:
                found = await self._count_found({**filters, "status": _state_words(where)})
                totals.append(found)
        return total_of(totals)

    async def _count_found(self, filters: Filters) -> Total:
        read = partial(self.executions, limit=PAGE_ITEMS_MAX, **filters)
        return Total(sum([len(some) async for some in read_pages(lambda at: read(cursor=at))]))

    async def retry_many(
        self,
        *,
        force: bool = False,
        on_step: ProgressCallback = ignore_progress,
        **filters: Unpack[Filters],
    ) -> Counter[RetryOutcome]:
        """Run ended executions again, as `retry` does; answers with their number by outcome."""
        split_retryable(read_filters(filters), force=force)  # raises for invalid filters
        body = {"filter": encode_filters(await fix_bounds(self, filters)), "force": force}
        return await self._sweep("/executions/retry", body, RetryOutcome, on_step, once=True)

    async def _sweep(
        self,
        path: str,
        body: Body,
        words: type[W],
        on_step: ProgressCallback = ignore_progress,
        *,
        once: bool = False,
    ) -> Counter[W]:
        """Repeat a request until the server has handled all executions of its filter."""
        outcomes: Counter[W] = Counter()
        cursor: str | None = ""
        while cursor is not None:
            asked = {**body, **({"cursor": cursor} if cursor else {})}
            counts = await self._ask("POST", path, wire.Counts, asked, once=once)
            found = {word: getattr(counts, word.value) for word in words}
            outcomes += Counter({word: number for word, number in found.items() if number})
            on_step(counts.matched)
            cursor = counts.next_cursor
        return outcomes

    async def dead_letters(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page[wire.Execution]:
        """Dead letters, newest first."""
        check_no_status(filters)
        asked = {**encode_parameters(filters), "limit": limit, "cursor": cursor}
        return await self._ask("GET", "/dead-letters", Page[wire.Execution], parameters=asked)

    async def dead_letter_groups(
        self, *, cursor: str | None = None, **filters: Unpack[Filters]
    ) -> Page[wire.DeadLetterGroup]:
        """Dead letters by job and fingerprint of the error, the largest group first. One call reads
        1,000 letters; with a cursor, the groups of the next page add to these.
        """
        check_no_status(filters)
        asked = {**encode_parameters(filters), "cursor": cursor}
        answer = Page[wire.DeadLetterGroup]
        return await self._ask("GET", "/dead-letters/groups", answer, parameters=asked)

    async def count_dead_letters(self, **filters: Unpack[Filters]) -> Total:
        """The number of dead letters."""
        check_no_status(filters)
        if read_filters(filters).content is not None:
            read = partial(self.dead_letters, limit=PAGE_ITEMS_MAX, **filters)
            return Total(sum([len(some) async for some in read_pages(lambda at: read(cursor=at))]))
        return (await self._count({**encode_parameters(filters), "dead_letters": True})).total

    async def discard(self, id: Id) -> None:
        """Take an execution off the dead-letter list. It stays in history."""
        listed, _ = await self.discard_dead_letters([id])
        if not listed:
            found = await self.execution(id)
            raise Conflict(f"execution {id} is not on the dead-letter list; it is {found.status}")

    async def retry_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        on_step: ProgressCallback = ignore_progress,
        **filters: Unpack[Filters],
    ) -> Counter[Revival]:
        """Run dead letters again with new tries; answers with their number by outcome."""
        outcomes: Counter[Revival] = Counter()
        for body in selection_bodies(ids, await fix_bounds(self, filters)):
            outcomes += await self._sweep("/dead-letters/retry", body, Revival, on_step)
        return outcomes

    async def discard_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        on_step: ProgressCallback = ignore_progress,
        **filters: Unpack[Filters],
    ) -> tuple[int, int]:
        """Take dead letters off the list; answers with the number that were on it, and of the
        others.
        """
        outcomes: Counter[DiscardOutcome] = Counter()
        for body in selection_bodies(ids, await fix_bounds(self, filters)):
            outcomes += await self._sweep("/dead-letters/discard", body, DiscardOutcome, on_step)
        return outcomes[DiscardOutcome.DISCARDED], outcomes[DiscardOutcome.NOT_LISTED]

    async def log_parts(self, id: Id, *, after: tuple[int, int] = START) -> AsyncGenerator[LogPart]:
        """The parts of a log so far, a few in memory at a time.

        Lines of an attempt that come with one answer are one part here.
        """
        cursor = None if after == START else f"{after[0]}.{after[1]}"
        path = build_path("executions", read_id(id), "logs")
        while True:
            page = await self._ask("GET", path, wire.LogPage, parameters={"cursor": cursor})
            for part in _log_parts(page):
                yield part
            cursor = page.next_cursor
            if cursor is None:
                return

    async def search_logs(
        self,
        text: str | None = None,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **filters: Unpack[LogFilters],
    ) -> Page[wire.FoundLine]:
        """Search the log lines of executions: those created last first, the lines of each in
        order. A page may be short or empty, and its cursor continues the search.
        """
        bounds = {name: _encode_bound(filters.get(name)) for name in ("since", "until")}
        asked = {**filters, **bounds, "q": text, "limit": limit, "cursor": cursor}
        return await self._ask("GET", "/logs", Page[wire.FoundLine], parameters=asked)

    # Events.

    async def publish(
        self,
        name: str,
        data: Any = None,
        *,
        source: str | None = None,
        id: str | None = None,
        time: Time | None = None,
    ) -> Published:
        """Publish an event: executions that wait for it go on."""
        # The id is made here, so that the event can be sent again after a lost answer.
        body: Body = {"type": name, "data": data, "id": id or str(mint())}
        if source is not None:
            body["source"] = source
        if time is not None:
            body["time"] = to_iso(read_time(time, "time"))
        return await self._publish("/events", body)

    async def publish_many(self, items: Iterable[Mapping[str, Any]]) -> list[Published]:
        """Publish up to 1,000 events in one request, all or nothing: dicts with the arguments of
        `publish`.
        """
        body: list[Body] = []
        for one in items:
            said = {"id": str(mint()), **one}
            said["type"] = said.pop("name", None)
            body.append({name: value for name, value in said.items() if value is not None})
        answer = await self._ask("POST", "/events", wire.PublishedMany, body, once=True)
        return [_read_published(one) for one in answer.items]

    async def create_hook(
        self,
        job: str,
        name: str,
        *,
        expires: Duration | None = None,
        signature: str | None = None,
        secret: str | None = None,
        header: str | None = None,
        algorithm: str | None = None,
        encoding: str | None = None,
        created_by: str = "",
    ) -> wire.NewHookAnswer:
        """Create an address of a job; its token is shown this once. The key is its author."""
        del created_by
        body: Body = {
            "name": name,
            "expires": expires,
            "signature": signature,
            "secret": secret,
            "header": header,
            "algorithm": algorithm,
            "encoding": encoding,
        }
        body = {name: value for name, value in body.items() if value is not None}
        return await self._ask("POST", job_path(job, "hooks"), wire.NewHookAnswer, body)

    async def hooks(self, job: str, *, is_live: bool = False) -> list[wire.Hook]:
        """The hooks of a job, newest first; revoked and expired ones too, unless `is_live`."""
        found = await self.transport.all(job_path(job, "hooks"), wire.Hook)
        now = (await self.health()).now if is_live else 0.0
        return [one for one in found if not is_live or _is_live(one, now)]

    async def rotate_hook(
        self, job: str, name: str, *, overlap: Duration = "1d", created_by: str = ""
    ) -> wire.NewHookAnswer:
        """Give a hook a new token; the old one is valid for the time of `overlap`."""
        del created_by
        path = job_path(job, "hooks", name, "rotate")
        return await self._ask("POST", path, wire.NewHookAnswer, {"overlap": overlap})

    async def revoke_hook(self, job: str, name: str) -> wire.Hook:
        """Revoke a hook with all of its tokens."""
        return await self._ask("POST", job_path(job, "hooks", name, "revoke"), wire.Hook)

    async def signal(self, id: Id, name: str, data: Any = None) -> Published:
        """Publish an event for one execution alone."""
        path = build_path("executions", read_id(id), "signal")
        return await self._publish(path, {"name": name, "data": data})

    async def approve(
        self,
        id: Id,
        name: str = "approval",
        *,
        approved: bool = True,
        by: str | None = None,
        note: str | None = None,
    ) -> Published:
        """Send a decision to an execution. The key names the person; `by` is not sent."""
        del by
        path = build_path("executions", read_id(id), "approve")
        return await self._publish(path, {"name": name, "approved": approved, "note": note})

    async def _publish(self, path: str, body: Body) -> Published:
        of = await self._ask("POST", path, wire.Published, body, once=True)
        return _read_published(of)

    async def events(
        self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[wire.Event]:
        """Events on record, newest first."""
        asked = {"limit": limit, "cursor": cursor}
        return await self._ask("GET", "/events", Page[wire.Event], parameters=asked)

    # Jobs and schedules.

    async def job(self, name: str, *, version: int | None = None) -> wire.JobVersion:
        """A job, at its current version or the one asked for."""
        if version is None:
            return (await self.versions_page(name, limit=1)).items[0]
        return await self._ask("GET", job_path(name, "versions", version), wire.ListedVersion)

    async def job_named(self, id_or_name: Id) -> wire.JobVersion:
        """A job by its id, or by its name."""
        return await self.job(str(id_or_name))

    async def versions_page(
        self, name: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[wire.ListedVersion]:
        """Versions of a job, newest first, each with what has changed since the one before it."""
        asked = {"limit": limit, "cursor": cursor}
        return await self.transport.page(job_path(name, "versions"), wire.ListedVersion, asked)

    async def standing(self, job: Id) -> wire.Job:
        """A job with its status and its next time, by its name or id, a deleted one too."""
        return await self._ask("GET", job_path(str(job)), wire.Job)

    async def jobs(
        self,
        *,
        status: Status | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **where: Unpack[JobFilters],
    ) -> Page[wire.Job]:
        """Jobs with their status, by name. With a status, a page may be short and not the last."""
        asked = {
            "prefix": where.get("prefix") or None,
            "q": where.get("text"),
            "user_id": where.get("user_id"),
            "queue": where.get("queue"),
            "label": where.get("label"),
            "status": None if status is None else sorted(read_job_status(status)),
            "limit": limit,
            "cursor": cursor,
        }
        return await self.transport.page("/jobs", wire.Job, asked)

    async def create(self, name: str, *, author: str = "", **fields: Unpack[JobFields]) -> wire.Job:
        """Create a job. One of `task`, `command`, `http`, `sql`, `notify`, `workflow` and
        `template` is its work; without a schedule it runs when it is triggered. The key is its
        author.
        """
        body = encode_fields(fields)
        if not body.get("schedule") and not await self._is_scheduled(body):
            body["schedule"] = "manual"  # without one the server would run it once, now
        return await self._ask("POST", "/jobs", wire.Job, {**body, "name": name}, once=True)

    async def launch(
        self, name: str, run: NewExecution, *, author: str = "", **fields: Unpack[JobFields]
    ) -> wire.Job:
        """Create a job without a schedule as `create` does, and run it: both or neither. Of the
        execution, its arguments and its unique key are used.
        """
        body = encode_fields({key: one for key, one in fields.items() if key != "schedule" or one})
        if await self._is_scheduled(body):
            raise UsageError("what is launched runs once, without a schedule", field="schedule")
        args = msgspec.Raw((run.args or "{}").encode())
        body |= {"name": name, "args": args, "unique_key": run.unique_key}
        return await self._ask("POST", "/jobs", wire.Job, body, once=True)

    async def _is_scheduled(self, body: Body) -> bool:
        """Return True if a job has a schedule or dependencies, by itself or by its template."""
        is_said = bool(body.get("schedule")) or bool(body.get("dependencies"))
        if is_said or not isinstance(body.get("template"), str):
            return is_said
        job = (await self.template(body["template"])).job or {}
        return job.get("schedule") is not None or bool(job.get("dependencies"))

    async def update(
        self,
        name: str,
        *,
        author: str = "",
        expect: int | None = None,
        **fields: Unpack[JobFields],
    ) -> wire.Job:
        """Change options of a job; all others stay. Answers with its new version.

        With `expect`, it must be at that version.
        """
        body = encode_fields(fields)
        return await self._ask("PATCH", job_path(name), wire.Job, body, version=expect)

    async def apply_job(
        self,
        name: str,
        *,
        author: str = "",
        expect: int | None = None,
        dry_run: bool = False,
        **fields: Unpack[JobFields],
    ) -> wire.AppliedJob:
        """Make a job be as declared here, and nothing else. Without a schedule it never runs by
        itself. One that is like that already is left alone.
        """
        path, body = build_path("jobs", check_name(name, what="job")), encode_fields(fields)
        how: Body = {"version": expect, "parameters": {"dry_run": "true" if dry_run else None}}
        return await self._ask("PUT", path, wire.AppliedJob, body, **how)

    async def warnings(self, job: str, *, deleting: bool = False) -> list[str]:
        """Warnings about a job as things are now, in sentences; with `deleting`, those about its
        deletion.
        """
        asked = {"deleting": "true"} if deleting else {}
        path = job_path(job, "warnings")
        return list((await self._ask("GET", path, Page[str], parameters=asked)).items)

    async def rollback(
        self, name: str, version: int, *, author: str = "", expect: int | None = None
    ) -> wire.Job:
        """Make an older version the current one again, as a new version."""
        path, body = job_path(name, "rollback"), {"version": version}
        return await self._ask("POST", path, wire.Job, body, version=expect)

    async def delete_job(self, name: str, *, expect: int | None = None, force: bool = False) -> int:
        """Delete a job and cancel its unfinished executions; answers with their number."""
        how: Body = {"version": expect, "parameters": {"force": "true"} if force else {}}
        return (await self._ask("DELETE", job_path(name), wire.Deleted, **how)).cancelled

    async def schedules(self, job: str) -> list[wire.Schedule]:
        """The schedules of a job, by name."""
        found = await self.transport.all(job_path(job, "schedules"), wire.Schedule)
        by_id = {one.schedule_id: one for one in found}  # one that fires meanwhile comes again
        return sorted(by_id.values(), key=_by_name)

    async def next_schedules(self, *, limit: int = PAGE_ITEMS_DEFAULT) -> list[wire.Schedule]:
        """The schedules that fire next, earliest first."""
        asked = {"limit": limit}
        answer = Page[wire.Schedule]
        return [*(await self._ask("GET", "/schedules/next", answer, parameters=asked)).items]

    async def upcoming(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
    ) -> Page[wire.CalendarEntry]:
        """A page of schedules with their ticks from `since` to before `until`: those on record, and
        those that will fire. The default is the day from now on.
        """
        asked = {
            "since": encode_bound(since, "since"),
            "until": encode_bound(until, "until"),
            "limit": limit,
            "cursor": cursor,
        }
        answer = Page[wire.CalendarEntry]
        return await self._ask("GET", "/schedules/upcoming", answer, parameters=asked)

    async def schedules_page(
        self, job: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[wire.Schedule]:
        """A page of the schedules of a job: declared ones, then the others, the next ones first."""
        asked = {"limit": limit, "cursor": cursor}
        path = job_path(job, "schedules")
        return await self._ask("GET", path, Page[wire.Schedule], parameters=asked)

    async def pause(self, job: str, note: str = "") -> None:
        """Pause a job's schedules. It can still be triggered."""
        await self._ask("POST", job_path(job, "pause"), wire.Job, {"note": read_pause_note(note)})

    async def resume(self, job: str) -> None:
        """Resume a job's schedules, from now on."""
        await self._ask("POST", job_path(job, "resume"), wire.Job)

    async def trigger(
        self,
        job: str,
        args: Arguments | None = None,
        *,
        unique_key: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Enqueued:
        """Run a job now. Without arguments it gets those of its schedules.

        Raises ExecutionInTheWay if its overlap rule does not let it in; `force=True` does.
        """
        body = encode_execution(job, args, unique_key=unique_key, what="trigger()", **options)
        path = job_path(job, "trigger")
        return _enqueued(await self._ask("POST", path, wire.Enqueued, body, once=True))

    async def backfill(
        self,
        job: str,
        since: Time,
        until: Time,
        *,
        only: Literal["missing", "failed", "all"] = "missing",
        concurrency: int = 1,
        order: Literal["oldest", "newest"] = "oldest",
        dry_run: bool = False,
    ) -> wire.Backfill:
        """Run a job for ticks of its schedules from `since` to before `until`, as they are now."""
        most = BACKFILL_CONCURRENCY_MAX
        body = {
            "since": to_iso(read_bound(since, "since")),
            "until": to_iso(read_bound(until, "until")),
            "only": str(read_word(only, tuple(Only), "only")),
            "order": str(read_word(order, tuple(Order), "order")),
            "concurrency": read_whole(concurrency, "concurrency", least=1, most=most),
            "dry_run": dry_run,
        }
        path = job_path(job, "backfill")
        return await self._ask("POST", path, wire.Backfill, body, once=not dry_run)

    # Templates.

    async def set_template(
        self, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
    ) -> wire.Template:
        """Store a template: an object with `name`, `parameters` and `job`. One of the same name is
        replaced. The key is its author.

        With `expect`, it must be at that version; 0 is for a name that must be new.
        """
        name = read_template(value).name
        if expect == 0:
            return await self._ask("POST", "/templates", wire.Template, value, once=True)
        path = build_path("templates", name)
        return await self._ask("PUT", path, wire.Template, value, version=expect)

    async def template(self, name: str) -> wire.Template:
        """A template. Raises TemplateNotFound."""
        path = build_path("templates", check_name(name, what="template"))
        return await self._ask("GET", path, wire.Template)

    async def templates_page(
        self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[wire.Template]:
        """Templates, by name."""
        asked = {"limit": limit, "cursor": cursor}
        return await self.transport.page("/templates", wire.Template, asked)

    async def templates(self) -> list[wire.Template]:
        """All templates, by name."""
        return await self.transport.all("/templates", wire.Template)

    async def delete_template(self, name: str, *, expect: int | None = None) -> None:
        """Delete a template. Jobs that were made from it stay."""
        path = build_path("templates", check_name(name, what="template"))
        await self._ask("DELETE", path, wire.DeletedName, version=expect)

    # Alerts.

    async def set_alert(
        self, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
    ) -> wire.Alert:
        """Store a rule: an object with `name`, `on` and the fields of that condition. One of the
        same name is replaced, and its silence goes on. The key is its author.

        With `expect`, it must be at that version; 0 is for a name that must be new.
        """
        name = AlertRule.parse(value).name
        if expect == 0:
            return await self._ask("POST", "/alerts", wire.Alert, value, once=True)
        path = build_path("alerts", name)
        return await self._ask("PUT", path, wire.Alert, value, version=expect)

    async def alert(self, name: str) -> wire.Alert:
        """A rule. Raises AlertNotFound."""
        return await self._ask("GET", _alert_path(name), wire.Alert)

    async def alerts_page(
        self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[wire.Alert]:
        """Rules, by name."""
        return await self.transport.page("/alerts", wire.Alert, {"limit": limit, "cursor": cursor})

    async def alerts(self) -> list[wire.Alert]:
        """All rules, by name."""
        return await self.transport.all("/alerts", wire.Alert)

    async def delete_alert(self, name: str, *, expect: int | None = None) -> None:
        """Delete a rule. Its incidents close without a message."""
        await self._ask("DELETE", _alert_path(name), wire.DeletedName, version=expect)

    async def silence_alert(
        self,
        name: str,
        *,
        duration: Duration | None = None,
        until: Time | None = None,
        reason: str = "",
        author: str = "",
    ) -> wire.Alert:
        """Send no messages of a rule for some time, or until some time; without both, end its
        silence. The key is its author.

        Incidents open and close meanwhile. One that is still open at the end gets its message then.
        """
        body = {
            "duration": read_limit(duration, "duration"),
            "until": None if until is None else encode_bound(until, "until"),
            "reason": reason,
        }
        return await self._ask("POST", _alert_path(name, "silence"), wire.Alert, body)

    async def test_alert(self, name: str) -> wire.AlertTest:
        """Send a test message to the receivers of a rule, also if it is silenced. Returns the
        execution that sends it.
        """
        return await self._ask("POST", _alert_path(name, "test"), wire.AlertTest)

    async def incidents(
        self,
        *,
        rule: str | None = None,
        is_open: bool | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
    ) -> Page[wire.Incident]:
        """Incidents, newest first: all, or those that are open or closed."""
        asked = {"rule": rule, "open": is_open, "limit": limit, "cursor": cursor}
        return await self.transport.page("/incidents", wire.Incident, asked)

    async def acknowledge_incident(self, id: Id, *, author: str = "") -> wire.Acknowledged:
        """Acknowledge an open incident: it sends no further messages but that of its end. The key
        is its author.
        """
        path = build_path("incidents", read_id(id), "acknowledge")
        return await self._ask("POST", path, wire.Acknowledged)

    # Repeated exports.

    async def export_policies(self) -> list[wire.ExportPolicy]:
        """How far each repeated export has come, by name."""
        return await self.transport.all("/exports", wire.ExportPolicy)

    async def hold_export(self, name: str, until: Time, *, author: str = "") -> wire.ExportPolicy:
        """Record that a repeated export has written what ended before `until`. The key is its
        author. Retention keeps all that ended later, until the policy is moved on or released.
        """
        path = build_path("exports", check_name(name, what="export policy"))
        body = {"until": encode_bound(until, "until")}
        return await self._ask("PUT", path, wire.ExportPolicy, body)

    async def release_export(self, name: str) -> None:
        """Forget a repeated export: retention waits for it no longer. Raises ExportNotFound."""
        path = build_path("exports", check_name(name, what="export policy"))
        await self._ask("DELETE", path, wire.DeletedName)

    # Subscriptions to outgoing events.

    async def create_subscription(
        self, value: Mapping[str, Any], *, author: str = ""
    ) -> wire.Subscription:
        """Store a subscription: an object with `name`, `url` and a filter. The key is its author.
        Raises DuplicateKey.
        """
        return await self._ask("POST", "/subscriptions", wire.Subscription, value, once=True)

    async def update_subscription(
        self,
        name: str,
        changes: Mapping[str, Any],
        *,
        author: str = "",
        expect: int | None = None,
    ) -> wire.Subscription:
        """Change some fields of a subscription; null resets one. The key is its author. With
        `expect`, it must be at that version.
        """
        path = _subscription_path(name)
        return await self._ask("PATCH", path, wire.Subscription, changes, version=expect)

    async def subscription(self, name: str) -> wire.Subscription:
        """A subscription. Raises SubscriptionNotFound."""
        return await self._ask("GET", _subscription_path(name), wire.Subscription)

    async def subscriptions_page(
        self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[wire.Subscription]:
        """Subscriptions, by name."""
        asked = {"limit": limit, "cursor": cursor}
        return await self.transport.page("/subscriptions", wire.Subscription, asked)

    async def subscriptions(self) -> list[wire.Subscription]:
        """All subscriptions, by name."""
        return await self.transport.all("/subscriptions", wire.Subscription)

    async def delete_subscription(self, name: str, *, expect: int | None = None) -> None:
        """Delete a subscription. Deliveries that are enqueued already are still made."""
        await self._ask("DELETE", _subscription_path(name), wire.DeletedName, version=expect)

    async def test_subscription(self, name: str) -> wire.AlertTest:
        """Send a test event to the receiver. Returns the execution that delivers it."""
        return await self._ask("POST", _subscription_path(name, "test"), wire.AlertTest)

    # Queues and workers.

    async def queues(self) -> list[wire.Queue]:
        """Queues with their numbers, by name."""
        return await self.transport.all("/queues", wire.Queue)

    async def limits(self) -> list[wire.Limit]:
        """Limits with their numbers, by name."""
        return await self.transport.all("/limits", wire.Limit)

    async def limit(self, name: str) -> wire.Limit:
        """A limit, with the values of its key that most executions wait for."""
        return await self._ask("GET", build_path("limits", name), wire.Limit)

    async def set_limit(self, name: str, changes: Mapping[str, Any]) -> wire.Limit:
        """Change the numbers of a limit: `limit` and `rate`. None stands for the declared
        number.
        """
        return await self._ask("PATCH", build_path("limits", name), wire.Limit, dict(changes))

    async def pause_limit(
        self, name: str, *, duration: Duration | None = None, key: str | None = None
    ) -> wire.Limit:
        """Let no execution start that needs this limit, for so long or until it is resumed."""
        body = {"duration": read_limit(duration, "duration"), "key": key}
        return await self._ask("POST", build_path("limits", name, "pause"), wire.Limit, body)

    async def resume_limit(self, name: str, *, key: str | None = None) -> wire.Limit:
        """Resume a limit: all of it, or one value of its key."""
        path = build_path("limits", name, "resume")
        return await self._ask("POST", path, wire.Limit, {"key": key})

    async def pause_queue(self, name: str) -> None:
        """Pause a queue: workers claim nothing from it. Running executions go on."""
        path = build_path("queues", check_name(name, what="queue"), "pause")
        await self._ask("POST", path, wire.QueueState)

    async def resume_queue(self, name: str) -> None:
        """Resume a queue: workers claim from it again."""
        path = build_path("queues", check_name(name, what="queue"), "resume")
        await self._ask("POST", path, wire.QueueState)

    async def purge_queue(self, name: str, *, on_step: ProgressCallback = ignore_progress) -> int:
        """Cancel all pending executions of a queue; answers with their number."""
        path = build_path("queues", check_name(name, what="queue"), "purge")
        cancelled = (await self._ask("POST", path, wire.Purged)).cancelled
        on_step(cancelled)
        return cancelled

    async def workers(self, *, include_dead: bool = False) -> list[wire.Worker]:
        """Workers, oldest first."""
        asked = {"include_dead": "true"} if include_dead else {}
        return await self.transport.all("/workers", wire.Worker, asked)

    async def drain_worker(self, id: Id) -> None:
        """Drain a worker: it finishes its executions, and claims nothing more."""
        await self._ask("POST", build_path("workers", read_id(id), "drain"), wire.Drained)

    async def leaders(self) -> list[wire.Leader]:
        """The leaders of the roles that one process has for all tenants, by name."""
        return (await self._ask("GET", "/status", wire.Status)).leaders

    async def stats(self) -> wire.Stats:
        """Queues, workers, the last dead letters, and rates since the last look at them."""
        return await self._ask("GET", "/stats", wire.Stats)

    async def series(
        self,
        metrics: Iterable[str],
        *,
        job: Id | None = None,
        queue: str | None = None,
        since: Time = SERIES_SINCE,
        until: Time | None = None,
        step: Duration | None = None,
    ) -> wire.Series:
        """Values of metrics by steps of time, of all executions, or of a job or a queue."""
        asked = {
            "metric": ",".join(check_metrics(metrics)),
            "job": None if job is None else str(job),
            "queue": queue,
            "since": encode_bound(since, "since"),
            "until": encode_bound(until, "until"),
            "step": None if step is None else format_duration(parse_duration(step, what="step")),
        }
        return await self._ask("GET", "/stats/series", wire.Series, parameters=asked)

    async def job_stats(self, job: Id, *, since: Time = JOB_SINCE) -> wire.JobStats:
        """The numbers of a job since a time, and of the same length of time before that."""
        path, asked = build_path("jobs", str(job), "stats"), {"since": encode_bound(since, "since")}
        return await self._ask("GET", path, wire.JobStats, parameters=asked)

    # Keys, tenants, the audit log and secrets.

    async def create_login(
        self,
        *,
        role: Role | str | None = None,
        expires: Duration = LOGIN_SECONDS,
        created_by: str = "",
    ) -> wire.NewKeyAnswer:
        """Create a login link; the answer has its token, which opens one session of a browser.

        The session ends with the key of this client, and has its scope; without a role its role.
        """
        body = {
            "role": None if role is None else str(read_role(role)),
            "expires": read_limit(expires, "expires"),
        }
        return await self._ask("POST", "/session/links", wire.NewKeyAnswer, body)

    async def create_key(
        self,
        name: str,
        *,
        role: Role | str,
        expires: Duration | None = None,
        created_by: str = "",
        jobs: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
    ) -> wire.NewKeyAnswer:
        """Create a key; the answer has its token, which is shown this once. The key of this client
        is its author.
        """
        given = {"jobs": jobs, "queues": queues, "actions": actions}
        read_scope(role, **given)
        body: Body = {
            "name": check_name(name, what="key"),
            "role": str(read_role(role)),
            "expires": read_limit(expires, "expires"),
            **{name: list(value) for name, value in given.items() if value is not None},
        }
        # Not sent again: a server that kept the answer for that would keep a secret.
        return await self._ask("POST", "/keys", wire.NewKeyAnswer, body)

    async def keys(self) -> list[wire.Key]:
        """The tenant's keys, newest first; revoked and expired ones too."""
        return await self.transport.all("/keys", wire.Key)

    async def revoke_key(self, id: Id) -> wire.Key:
        """Revoke a key."""
        return await self._ask("POST", build_path("keys", read_id(id), "revoke"), wire.Key)

    async def tenants(self) -> list[wire.Tenant]:
        """All tenants with their quotas, by name."""
        return await self.transport.all("/tenants", wire.Tenant)

    async def tenant_record(self, name: str) -> wire.Tenant:
        """A tenant with its quotas. Raises TenantNotFound."""
        return await self._ask("GET", tenant_path(name), wire.Tenant)

    async def add_tenant(self, name: str, **quotas: int | None) -> wire.Tenant:
        """Create a tenant. A name that exists is refused with DuplicateKey."""
        body = {"name": check_name(name, what="tenant"), **read_quotas(quotas)}
        return await self._ask("POST", "/tenants", wire.Tenant, body)

    async def update_tenant(
        self, name: str, *, keep: Any = UNSET, **quotas: int | None
    ) -> wire.Tenant:
        """Change a tenant's quotas; those that are not named stay, None is no limit. `keep`
        replaces its policy of retention; None is none.
        """
        body: dict[str, Any] = {**read_quotas(quotas)}
        if keep is not UNSET:
            body["keep"] = Keep.parse(keep).write()
        return await self._ask("PATCH", tenant_path(name), wire.Tenant, body)

    async def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
    ) -> Page[wire.AuditEntry]:
        """Entries of the audit log, newest first. An action is all of it, or only its noun."""
        asked = {
            "actor": actor,
            "action": action,
            "target": target,
            "since": _encode_bound(since),
            "until": _encode_bound(until),
            "limit": limit,
            "cursor": cursor,
        }
        return await self._ask("GET", "/audit", Page[wire.AuditEntry], parameters=asked)

    async def verify_audit(
        self, *, limit: int = PAGE_ITEMS_MAX, cursor: str | None = None
    ) -> wire.AuditCheck:
        """Check the hashes of up to `limit` entries of the audit log, oldest first."""
        asked = {"limit": limit, "cursor": cursor}
        return await self._ask("GET", "/audit/verify", wire.AuditCheck, parameters=asked)

    async def set_secret(self, name: str, value: str, *, author: str = "") -> wire.Secret:
        """Store a secret; one of the same name is replaced. The server seals it, and the key is
        its author.
        """
        path = build_path("secrets", check_secret_name(name))
        return await self._ask("PUT", path, wire.Secret, {"value": check_value(value)})

    async def secrets(self) -> list[wire.Secret]:
        """The tenant's secrets by name, without their values."""
        return await self.transport.all("/secrets", wire.Secret)

    async def delete_secret(self, name: str) -> None:
        """Delete a secret; jobs that refer to it fail from then on. Raises SecretNotFound."""
        path = build_path("secrets", require_secret_name(name))
        await self._ask("DELETE", path, wire.DeletedName)


AnyClient: TypeAlias = Client | RemoteClient


def _enqueued(of: wire.Enqueued) -> Enqueued:
    return Enqueued(of.execution_id, created=of.created, state=of.status)


def _by_name(of: wire.Schedule) -> tuple[bool, int, str]:
    return not of.is_declared, len(of.name) if of.name.isdigit() else 0, of.name


def _state_words(where: ExecutionFilter) -> list[str]:
    return [str(state) for state in sorted(where.states or ())]


def _encode_bound(value: Time | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return to_iso(read_time(value, "time"))


def _log_parts(page: wire.LogPage) -> Iterator[LogPart]:
    """The lines of each attempt. The last part has the number at which the page ends."""
    if not page.items:
        return
    end, _, number = (page.end_cursor or "").partition(".")
    for attempt, lines in groupby(page.items, key=lambda line: line.attempt):
        text = join_lines(
            msgspec.json.encode(
                Line(line.at.timestamp(), line.level, line.source, line.message)
            ).decode()
            for line in lines
        )
        yield LogPart(attempt, int(number) if attempt == int(end) else LAST, text)


def _subscription_path(name: str, *rest: str) -> str:
    return build_path("subscriptions", check_name(name, what="subscription"), *rest)


def _alert_path(name: str, *rest: str) -> str:
    return build_path("alerts", check_name(name, what="alert"), *rest)


def _read_published(of: wire.Published) -> Published:
    return Published(
        created=of.created,
        resumed=of.resumed,
        executions=tuple(of.executions),
        execution=of.execution_id,
        node=of.node,
    )


def _is_live(hook: wire.Hook, now: Instant) -> bool:
    is_over = hook.expires_at is not None and hook.expires_at.timestamp() <= now
    return hook.revoked_at is None and not is_over
