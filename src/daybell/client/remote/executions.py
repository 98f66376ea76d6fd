"""Executions over HTTP, one or many: dead letters, steps and events, logs, queues and workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from itertools import groupby, islice
from typing import Any, TypeVar, Unpack
from uuid import UUID

import msgspec

from daybell.client import wire
from daybell.client.executions import (
    START,
    EnqueuedMany,
    ProgressCallback,
    check_no_status,
    fix_bounds,
    ignore_progress,
    restrict_to_unfinished,
)
from daybell.client.remote import messages
from daybell.client.remote.messages import answer
from daybell.client.remote.transport import RemoteContext, build_path
from daybell.client.requests import EnqueueOptions, Filters, Id, Time, read_id, read_time
from daybell.client.retries import RetryOutcome, split_retryable
from daybell.client.stats import JOB_SINCE, SERIES_SINCE
from daybell.core.event import Published
from daybell.core.execution import (
    LAST,
    Cancellation,
    Enqueued,
    Line,
    LogPart,
    Revival,
    State,
    join_lines,
)
from daybell.core.ids import mint
from daybell.core.limits import ENQUEUE_BATCH_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_name
from daybell.core.options import Arguments
from daybell.core.stats import check_metrics
from daybell.core.units import Duration, format_duration, from_iso, parse_duration, to_iso
from daybell.core.views import (
    Counts,
    ExecutionFilter,
    Page,
    Total,
    read_pages,
    total_of,
)
from daybell.errors import Conflict, ExecutionNotFound, UsageError


async def enqueue(
    client: RemoteContext,
    job: str,
    args: Arguments | None = None,
    *,
    unique_key: str | None = None,
    **options: Unpack[EnqueueOptions],
) -> Enqueued:
    """Ask for one execution of a job. Once this has answered, it is on disk.

    A `unique_key` that an unfinished execution of the job holds answers with that execution
    and `created=False`.
    """
    said = messages.encode_execution(
        job, args or {}, unique_key=unique_key, what="enqueue()", **options
    )
    (answer,) = await _enqueue(client, [{"job": job, **said}])
    return answer


async def enqueue_many(
    client: RemoteContext, job: str, args: Iterable[Arguments], **options: Unpack[EnqueueOptions]
) -> EnqueuedMany:
    """Ask for one execution per item, all or nothing: up to 10,000, in one request."""
    check_name(job, what="job")
    given = list(islice(args, ENQUEUE_BATCH_MAX + 1))
    if len(given) > ENQUEUE_BATCH_MAX:
        raise UsageError(
            f"one request takes {ENQUEUE_BATCH_MAX:,} executions at most; send them in several,"
            " or enqueue on the database",
            field="args",
        )
    items = [
        {
            "job": job,
            **messages.encode_execution(
                job, one, unique_key=None, what="enqueue_many()", **options
            ),
        }
        for one in given
    ]
    answers = await _enqueue(client, items) if items else []
    return EnqueuedMany(count=len(answers), executions=tuple(answers))


async def _enqueue(client: RemoteContext, items: list[dict[str, Any]]) -> list[Enqueued]:
    read = messages.items_of(messages.enqueued)
    return await client.transport.post("/executions", items, once=True, read=read)


async def execution(client: RemoteContext, id: Id) -> wire.ExecutionDetail:
    """An execution, with its ended attempts, its steps or nodes, and its timeline."""
    path = build_path("executions", read_id(id))
    return await client.transport.get(path, read=answer(wire.ExecutionDetail))


async def why(client: RemoteContext, id: Id) -> wire.Why:
    """Why it has not run, or has not ended."""
    path = build_path("executions", read_id(id), "why")
    return await client.transport.get(path, read=answer(wire.Why))


async def executions(
    client: RemoteContext,
    *,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    **filters: Unpack[Filters],
) -> Page[wire.Execution]:
    """Executions, newest first. A status is a state, or "pending": not started, not ended."""
    asked = {**messages.encode_parameters(filters), "limit": limit, "cursor": cursor}
    read = answer(Page[wire.Execution])
    return await client.transport.get("/executions", asked, read=read)


async def count(client: RemoteContext, **filters: Unpack[Filters]) -> Counts:
    """How many executions there are in each state."""
    return await _counts(client, messages.encode_parameters(filters))


async def _counts(client: RemoteContext, asked: dict[str, Any]) -> Counts:
    return await client.transport.get("/counts", asked, read=_state_counts)


async def cancel(client: RemoteContext, id: Id) -> Cancellation:
    """Cancel an execution: at once if it has not started, else by asking it to stop."""
    # Asked as one of many, since that tells one that had ended before from one that ends now.
    body = {"ids": [str(read_id(id))]}
    outcome = await client.transport.post("/executions/cancel", body, read=_single_cancellation)
    if outcome is Cancellation.UNKNOWN:
        raise ExecutionNotFound(f"no execution {id}")
    return outcome


async def retry(
    client: RemoteContext, id: Id, *, force: bool = False, from_: str | None = None
) -> Enqueued:
    """Run it again: a dead one itself, a cancelled one as a new execution with the same
    arguments. `force` does the latter for one that succeeded, or was discarded.

    Of a workflow's run, what has succeeded is kept, unless `force` is used. `from_` names a
    node of it to begin with, as a new execution; then it may have ended in any way.
    """
    path = build_path("executions", read_id(id), "retry")
    body = {"force": force, **({} if from_ is None else {"from": from_})}
    return await client.transport.post(path, body, once=True, read=messages.enqueued)


def _state_counts(of: messages.Wire) -> Counts:
    counts = {State(word): int(number) for word, number in of["executions"].items()}
    return Counts(counts, at_least=map(State, of.get("at_least", ())))


def _single_cancellation(of: messages.Wire) -> Cancellation:
    """What became of the only one."""
    (outcome,) = (one for one in Cancellation if of.get(one))
    return outcome


# Many executions at once over HTTP, and dead letters: one request, whatever their number.

W = TypeVar("W", bound=StrEnum)


async def count_cancellable(client: RemoteContext, **filters: Unpack[Filters]) -> Total:
    """How many `cancel_many` would cancel."""
    where = restrict_to_unfinished(messages.read_filters(filters))
    if where.content is not None:
        return await _count_found(client, {**filters, "status": _state_words(where)})
    return (await _counts(client, messages.encode_parameters(filters, where.states))).total


async def cancel_many(
    client: RemoteContext,
    *,
    on_step: ProgressCallback = ignore_progress,
    **filters: Unpack[Filters],
) -> Counter[Cancellation]:
    """Cancel what has not ended; answers how many went which way."""
    where = restrict_to_unfinished(messages.read_filters(filters))
    fixed = await fix_bounds(client, filters)
    body = {"filter": messages.encode_filters(fixed, where.states)}
    return await _sweep(client, "/executions/cancel", body, Cancellation, on_step)


async def count_retryable(
    client: RemoteContext, *, force: bool = False, **filters: Unpack[Filters]
) -> Total:
    """How many `retry_many` would run again."""
    totals: list[Total] = []
    for where in split_retryable(messages.read_filters(filters), force=force):
        if where.content is None:
            letters = {"dead_letters": True} if where.dead_letters else {}
            asked = messages.encode_parameters(filters, where.states) | letters
            totals.append((await _counts(client, asked)).total)
        elif where.dead_letters:
            totals.append(await count_dead_letters(client, **{**filters, "status": None}))
        else:
            totals.append(await _count_found(client, {**filters, "status": _state_words(where)}))
    return total_of(totals)


async def _count_found(client: RemoteContext, filters: Filters) -> Total:
    read = partial(executions, client, limit=PAGE_ITEMS_MAX, **filters)
    return Total(sum([len(some) async for some in read_pages(lambda at: read(cursor=at))]))


async def retry_many(
    client: RemoteContext,
    *,
    force: bool = False,
    on_step: ProgressCallback = ignore_progress,
    **filters: Unpack[Filters],
) -> Counter[RetryOutcome]:
    """Run ended ones again, each as `retry` would; answers how many went which way."""
    split_retryable(messages.read_filters(filters), force=force)  # says what is wrong with it
    body = {"filter": messages.encode_filters(await fix_bounds(client, filters)), "force": force}
    return await _sweep(client, "/executions/retry", body, RetryOutcome, on_step, once=True)


async def _sweep(
    client: RemoteContext,
    path: str,
    body: dict[str, Any],
    words: type[W],
    on_step: ProgressCallback,
    *,
    once: bool = False,
) -> Counter[W]:
    """Ask until the server has gone through all that a filter lets through."""
    answers: Counter[W] = Counter()
    cursor: str | None = ""
    while cursor is not None:
        asked = {**body, **({"cursor": cursor} if cursor else {})}
        read = partial(_read_counts, words=words)
        matched, some, cursor = await client.transport.post(path, asked, once=once, read=read)
        answers += some
        on_step(matched)
    return answers


async def dead_letters(
    client: RemoteContext,
    *,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    **filters: Unpack[Filters],
) -> Page[wire.Execution]:
    """Dead letters, newest first."""
    check_no_status(filters)
    asked = {**messages.encode_parameters(filters), "limit": limit, "cursor": cursor}
    read = answer(Page[wire.Execution])
    return await client.transport.get("/dead-letters", asked, read=read)


async def count_dead_letters(client: RemoteContext, **filters: Unpack[Filters]) -> Total:
    """How many there are."""
    check_no_status(filters)
    if messages.read_filters(filters).content is not None:
        read = partial(dead_letters, client, limit=PAGE_ITEMS_MAX, **filters)
        found = [len(some) async for some in read_pages(lambda at: read(cursor=at))]
        return Total(sum(found))
    counts = await _counts(client, {**messages.encode_parameters(filters), "dead_letters": True})
    return counts.total


async def discard(client: RemoteContext, id: Id) -> None:
    """Take an execution off the dead-letter list. It stays in history."""
    listed, _ = await discard_dead_letters(client, [id])
    if not listed:
        found = await execution(client, id)
        raise Conflict(f"execution {id} is not on the dead-letter list; it is {found.status}")


async def retry_dead_letters(
    client: RemoteContext,
    ids: Iterable[Id] | None = None,
    *,
    on_step: ProgressCallback = ignore_progress,
    **filters: Unpack[Filters],
) -> Counter[Revival]:
    """Run many again, their tries counted anew; answers how many went which way."""
    answers: Counter[Revival] = Counter()
    for body in _selection_bodies(ids, await fix_bounds(client, filters)):
        answers += await _sweep(client, "/dead-letters/retry", body, Revival, on_step)
    return answers


async def discard_dead_letters(
    client: RemoteContext,
    ids: Iterable[Id] | None = None,
    *,
    on_step: ProgressCallback = ignore_progress,
    **filters: Unpack[Filters],
) -> tuple[int, int]:
    """Take many off the list; answers how many were on it, and how many were not."""
    answers: Counter[DiscardOutcome] = Counter()
    for body in _selection_bodies(ids, await fix_bounds(client, filters)):
        answers += await _sweep(client, "/dead-letters/discard", body, DiscardOutcome, on_step)
    return answers[DiscardOutcome.DISCARDED], answers[DiscardOutcome.NOT_LISTED]


class DiscardOutcome(StrEnum):
    """What became of one that was to be discarded."""

    DISCARDED = "discarded"
    NOT_LISTED = "not_listed"


def _state_words(where: ExecutionFilter) -> list[str]:
    return [str(state) for state in sorted(where.states or ())]


def _selection_bodies(ids: Iterable[Id] | None, filters: Filters) -> Iterator[dict[str, Any]]:
    """Bodies that name ids, as many at a time as a request takes, or which they are."""
    if ids is None:
        check_no_status(filters)
        yield {"filter": messages.encode_filters(filters)}
        return
    wanted: Sequence[UUID] = [read_id(id) for id in ids]
    for start in range(0, len(wanted), ENQUEUE_BATCH_MAX):
        yield {"ids": [str(id) for id in wanted[start : start + ENQUEUE_BATCH_MAX]]}


def _read_counts(of: messages.Wire, words: type[W]) -> tuple[int, Counter[W], str | None]:
    """How many there were, how many went which way, and where the next request continues."""
    counts = Counter({word: int(of[word]) for word in words if of.get(word)})
    return int(of["matched"]), counts, of.get("next_cursor")


# Events over HTTP, and the steps that executions have made.


async def publish(
    client: RemoteContext,
    name: str,
    data: Any = None,
    *,
    source: str | None = None,
    id: str | None = None,
    time: Time | None = None,
) -> Published:
    """Tell of an event: what waits for it goes on."""
    # Its id is made here, so that it may be sent once more if the answer is lost.
    said: dict[str, Any] = {"type": name, "data": data, "id": id or str(mint())}
    if source is not None:
        said["source"] = source
    if time is not None:
        said["time"] = to_iso(read_time(time, "time"))
    return await client.transport.post("/events", said, once=True, read=_published)


async def signal(client: RemoteContext, id: Id, name: str, data: Any = None) -> Published:
    """The same for one execution alone."""
    path = build_path("executions", read_id(id), "signal")
    said = {"name": name, "data": data}
    return await client.transport.post(path, said, once=True, read=_published)


async def approve(
    client: RemoteContext,
    id: Id,
    name: str = "approval",
    *,
    approved: bool = True,
    by: str | None = None,
    note: str | None = None,
) -> Published:
    """Tell an execution what was decided. Who did is known by the key; `by` is not sent."""
    del by
    path = build_path("executions", read_id(id), "approve")
    said = {"name": name, "approved": approved, "note": note}
    return await client.transport.post(path, said, once=True, read=_published)


async def events(
    client: RemoteContext, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[wire.Event]:
    """Events on record, newest first."""
    asked = {"limit": limit, "cursor": cursor}
    return await client.transport.get("/events", asked, read=answer(Page[wire.Event]))


def _published(of: messages.Wire) -> Published:
    return Published(
        created=bool(of["created"]),
        resumed=int(of["resumed"]),
        execution=messages.identity(of.get("execution_id")),
        node=of.get("node"),
    )


# What executions said, over HTTP.


async def log_parts(
    client: RemoteContext, id: Id, *, after: tuple[int, int] = START
) -> AsyncGenerator[LogPart]:
    """All parts that there are by now, a few in memory at a time.

    Lines of an attempt that come with one answer are one part here.
    """
    cursor = None if after == START else f"{after[0]}.{after[1]}"
    path = build_path("executions", read_id(id), "logs")
    while True:
        parts, cursor = await client.transport.get(path, {"cursor": cursor}, read=_page)
        for part in parts:
            yield part
        if cursor is None:
            return


def _page(of: dict[str, Any]) -> tuple[list[LogPart], str | None]:
    return list(_parts(of)), of["next_cursor"]


def _parts(page: dict[str, Any]) -> Iterator[LogPart]:
    """The lines of each attempt. Where the page ends is where the last of them is asked on from."""
    if not page["items"]:
        return
    end, _, number = page["end_cursor"].partition(".")
    for attempt, lines in groupby(page["items"], key=lambda line: line["attempt"]):
        text = join_lines(_line(line) for line in lines)
        yield LogPart(attempt, int(number) if attempt == int(end) else LAST, text)


def _line(of: dict[str, Any]) -> str:
    line = Line(from_iso(of["at"]), of["level"], of["source"], of["message"])
    return msgspec.json.encode(line).decode()


# Queues, workers and the whole at a glance, over HTTP.


async def leaders(client: RemoteContext) -> list[wire.Leader]:
    """The leaders of the roles that one process has for all tenants, by name."""
    return (await client.transport.get("/status", read=answer(wire.Status))).leaders


async def queues(client: RemoteContext) -> list[wire.Queue]:
    """Queues with their numbers, by name."""
    return await messages.whole(client.transport, "/queues", answer(wire.Queue))


async def pause_queue(client: RemoteContext, name: str) -> None:
    """Give out nothing from a queue until it is resumed. What runs goes on."""
    path = build_path("queues", check_name(name, what="queue"), "pause")
    await client.transport.post(path, read=messages.is_paused)


async def resume_queue(client: RemoteContext, name: str) -> None:
    """Give out work from a queue again."""
    path = build_path("queues", check_name(name, what="queue"), "resume")
    await client.transport.post(path, read=messages.is_paused)


async def purge_queue(
    client: RemoteContext, name: str, *, on_step: ProgressCallback = ignore_progress
) -> int:
    """Cancel all that waits in a queue and was there when this began; answers how many."""
    path = build_path("queues", check_name(name, what="queue"), "purge")
    cancelled = await client.transport.post(path, read=messages.cancelled)
    on_step(cancelled)
    return cancelled


async def workers(client: RemoteContext, *, include_dead: bool = False) -> list[wire.Worker]:
    """Workers, oldest first."""
    asked = {"include_dead": True} if include_dead else {}
    return await messages.whole(client.transport, "/workers", answer(wire.Worker), asked)


async def drain_worker(client: RemoteContext, id: Id) -> None:
    """Ask a worker to finish what it has, and claim nothing more."""
    path = build_path("workers", read_id(id), "drain")
    await client.transport.post(path, read=answer(wire.Drained))


async def stats(client: RemoteContext) -> wire.Stats:
    """Queues, workers, the last dead letters, and rates since the last look at them."""
    return await client.transport.get("/stats", read=answer(wire.Stats))


# Statistics over time.


async def series(
    client: RemoteContext,
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
        "since": messages.bound(since, "since"),
        "until": None if until is None else messages.bound(until, "until"),
        "step": None if step is None else format_duration(parse_duration(step, what="step")),
    }
    return await client.transport.get("/stats/series", asked, read=answer(wire.Series))


async def job_stats(client: RemoteContext, job: Id, *, since: Time = JOB_SINCE) -> wire.JobStats:
    """How a job has done since a time, and in the same length of time before that."""
    return await client.transport.get(
        build_path("jobs", str(job), "stats"),
        {"since": messages.bound(since, "since")},
        read=answer(wire.JobStats),
    )
