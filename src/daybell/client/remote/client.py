"""The client of a server: the interface of `Client` over HTTP.

A verb checks its arguments, sends a request, and decodes the answer as `client/wire.py` has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Literal, Self, TypeAlias, TypeVar, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from daybell.client import wire
from daybell.client.admin import read_quotas, read_role, read_scope
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
    asking,
    doing,
    encode_execution,
    encode_filters,
    encode_parameters,
    job_path,
    listing,
    paging,
    read_filters,
    read_tenant,
    reading,
    selection_bodies,
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
from daybell.client.sealing import check_value
from daybell.core.access import LOGIN_SECONDS, Role
from daybell.core.alerts.rules import AlertRule
from daybell.core.checks import check_weight
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
from daybell.core.options import Arguments, JobFields, Keep, read_limit, read_whole, read_word
from daybell.core.references import check_secret_name
from daybell.core.units import Duration, Instant, to_iso
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
    decides whose jobs these are; a superadmin's may name another tenant. The key is the author of
    changes. The first verb connects, and leaving the client closes the connections.
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

    execution = asking(Client.execution, "GET /executions/{execution}", wire.ExecutionDetail)

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

    why = asking(Client.why, "GET /executions/{execution}/why", wire.Why)
    signature = asking(Client.signature, "GET /jobs/{job}/signature", wire.Signature)
    why_job = asking(Client.why_job, "GET /jobs/{job}/why", wire.JobWhy)
    why_queue = asking(Client.why_queue, "GET /queues/{queue}/why", wire.QueueWhy)

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

    create_hook = asking(Client.create_hook, "POST /jobs/{job}/hooks", wire.NewHookAnswer)

    async def hooks(self, job: str, *, is_live: bool = False) -> list[wire.Hook]:
        """The hooks of a job, newest first; revoked and expired ones too, unless `is_live`."""
        found = await self.transport.all(job_path(job, "hooks"), wire.Hook)
        now = (await self.health()).now if is_live else 0.0
        return [one for one in found if not is_live or _is_live(one, now)]

    rotate_hook = asking(
        Client.rotate_hook, "POST /jobs/{job}/hooks/{hook}/rotate", wire.NewHookAnswer
    )
    revoke_hook = asking(Client.revoke_hook, "POST /jobs/{job}/hooks/{hook}/revoke", wire.Hook)

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

    events = paging(Client.events, "/events", wire.Event)

    # Jobs and schedules.

    async def job(self, name: str, *, version: int | None = None) -> wire.JobVersion:
        """A job, at its current version or the one asked for."""
        if version is None:
            return (await self.versions_page(name, limit=1)).items[0]
        return await self._ask("GET", job_path(name, "versions", version), wire.ListedVersion)

    async def job_named(self, id_or_name: Id) -> wire.JobVersion:
        """A job by its id, or by its name."""
        return await self.job(str(id_or_name))

    versions_page = paging(Client.versions_page, "/jobs/{job}/versions", wire.ListedVersion)
    standing = asking(Client.standing, "GET /jobs/{job}", wire.Job)

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

    warnings = reading(
        Client.warnings, "GET /jobs/{job}/warnings", Page[str], lambda of: list(of.items)
    )
    rollback = asking(Client.rollback, "POST /jobs/{job}/rollback", wire.Job)
    delete_job = reading(
        Client.delete_job, "DELETE /jobs/{job}", wire.Deleted, attrgetter("cancelled")
    )

    async def schedules(self, job: str) -> list[wire.Schedule]:
        """The schedules of a job, by name."""
        found = await self.transport.all(job_path(job, "schedules"), wire.Schedule)
        by_id = {one.schedule_id: one for one in found}  # one that fires meanwhile comes again
        return sorted(by_id.values(), key=_by_name)

    next_schedules = reading(
        Client.next_schedules, "GET /schedules/next", Page[wire.Schedule], lambda of: list(of.items)
    )
    upcoming = paging(Client.upcoming, "/schedules/upcoming", wire.CalendarEntry)
    schedules_page = paging(Client.schedules_page, "/jobs/{job}/schedules", wire.Schedule)
    pause = doing(Client.pause, "POST /jobs/{job}/pause")
    resume = doing(Client.resume, "POST /jobs/{job}/resume")

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

    template = asking(Client.template, "GET /templates/{template}", wire.Template)
    templates_page = paging(Client.templates_page, "/templates", wire.Template)
    templates = listing(Client.templates, "/templates", wire.Template)
    delete_template = doing(Client.delete_template, "DELETE /templates/{template}")

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

    alert = asking(Client.alert, "GET /alerts/{alert}", wire.Alert)
    alerts_page = paging(Client.alerts_page, "/alerts", wire.Alert)
    alerts = listing(Client.alerts, "/alerts", wire.Alert)
    delete_alert = doing(Client.delete_alert, "DELETE /alerts/{alert}")
    silence_alert = asking(Client.silence_alert, "POST /alerts/{alert}/silence", wire.Alert)
    test_alert = asking(Client.test_alert, "POST /alerts/{alert}/test", wire.AlertTest)
    incidents = paging(Client.incidents, "/incidents", wire.Incident)
    acknowledge_incident = asking(
        Client.acknowledge_incident, "POST /incidents/{incident}/acknowledge", wire.Acknowledged
    )

    # Repeated exports.

    export_policies = listing(Client.export_policies, "/exports", wire.ExportPolicy)
    hold_export = asking(Client.hold_export, "PUT /exports/{export}", wire.ExportPolicy)
    release_export = doing(Client.release_export, "DELETE /exports/{export}")

    # Subscriptions to outgoing events.

    async def create_subscription(
        self, value: Mapping[str, Any], *, author: str = ""
    ) -> wire.Subscription:
        """Store a subscription: an object with `name`, `url` and a filter. The key is its author.
        Raises DuplicateKey.
        """
        return await self._ask("POST", "/subscriptions", wire.Subscription, value, once=True)

    update_subscription = asking(
        Client.update_subscription, "PATCH /subscriptions/{subscription}", wire.Subscription
    )
    subscription = asking(
        Client.subscription, "GET /subscriptions/{subscription}", wire.Subscription
    )
    subscriptions_page = paging(Client.subscriptions_page, "/subscriptions", wire.Subscription)
    subscriptions = listing(Client.subscriptions, "/subscriptions", wire.Subscription)
    delete_subscription = doing(Client.delete_subscription, "DELETE /subscriptions/{subscription}")
    test_subscription = asking(
        Client.test_subscription, "POST /subscriptions/{subscription}/test", wire.AlertTest
    )

    # Queues and workers.

    queues = listing(Client.queues, "/queues", wire.Queue)
    limits = listing(Client.limits, "/limits", wire.Limit)
    limit = asking(Client.limit, "GET /limits/{limit}", wire.Limit)
    set_limit = asking(Client.set_limit, "PATCH /limits/{limit}", wire.Limit)
    pause_limit = asking(Client.pause_limit, "POST /limits/{limit}/pause", wire.Limit)
    resume_limit = asking(Client.resume_limit, "POST /limits/{limit}/resume", wire.Limit)
    pause_queue = doing(Client.pause_queue, "POST /queues/{queue}/pause")
    resume_queue = doing(Client.resume_queue, "POST /queues/{queue}/resume")

    async def purge_queue(self, name: str, *, on_step: ProgressCallback = ignore_progress) -> int:
        """Cancel all pending executions of a queue; answers with their number."""
        path = build_path("queues", check_name(name, what="queue"), "purge")
        cancelled = (await self._ask("POST", path, wire.Purged)).cancelled
        on_step(cancelled)
        return cancelled

    workers = listing(Client.workers, "/workers", wire.Worker)
    drain_worker = doing(Client.drain_worker, "POST /workers/{worker}/drain")
    leaders = reading(Client.leaders, "GET /status", wire.Status, attrgetter("leaders"))
    stats = asking(Client.stats, "GET /stats", wire.Stats)
    series = asking(Client.series, "GET /stats/series", wire.Series)
    job_stats = asking(Client.job_stats, "GET /jobs/{job}/stats", wire.JobStats)

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

    keys = listing(Client.keys, "/keys", wire.Key)
    revoke_key = asking(Client.revoke_key, "POST /keys/{key}/revoke", wire.Key)
    tenants = listing(Client.tenants, "/tenants", wire.Tenant)
    tenant_record = asking(Client.tenant_record, "GET /tenants/{tenant}", wire.Tenant)

    async def add_tenant(self, name: str, **quotas: int | None) -> wire.Tenant:
        """Create a tenant. A name that exists is refused with DuplicateKey."""
        body = {"name": check_name(name, what="tenant"), **read_quotas(quotas)}
        return await self._ask("POST", "/tenants", wire.Tenant, body)

    async def update_tenant(
        self,
        name: str,
        *,
        keep: Any = UNSET,
        weight: float | None = None,
        **quotas: int | None,
    ) -> wire.Tenant:
        """Change a tenant's quotas; those that are not named stay, None is no limit. `keep`
        replaces its policy of retention; None is none. `weight` is its part of the workers that
        serve several tenants.
        """
        body: dict[str, Any] = {**read_quotas(quotas)}
        check_weight(weight)
        if weight is not None:
            body["weight"] = weight
        if keep is not UNSET:
            body["keep"] = Keep.parse(keep).write()
        return await self._ask("PATCH", build_path("tenants", read_tenant(name)), wire.Tenant, body)

    audit = paging(Client.audit, "/audit", wire.AuditEntry)
    verify_audit = asking(Client.verify_audit, "GET /audit/verify", wire.AuditCheck)

    async def set_secret(self, name: str, value: str, *, author: str = "") -> wire.Secret:
        """Store a secret; one of the same name is replaced. The server seals it, and the key is
        its author.
        """
        path = build_path("secrets", check_secret_name(name))
        return await self._ask("PUT", path, wire.Secret, {"value": check_value(value)})

    secrets = listing(Client.secrets, "/secrets", wire.Secret)
    delete_secret = doing(Client.delete_secret, "DELETE /secrets/{secret}")


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
