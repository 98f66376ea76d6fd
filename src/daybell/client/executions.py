"""Executions: enqueueing, search, cancellation, and dead letters."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, Protocol, Unpack, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.client.context import ClientContext
from daybell.client.job_checks import (
    check_calls,
    checked_calls,
    describe_missing_job,
    needs_no_check,
    params_of,
)
from daybell.client.requests import (
    BOUNDS,
    MANY_OPTIONS,
    ONE_OPTIONS,
    EnqueueOptions,
    Filters,
    Id,
    Time,
    check_options,
    check_range,
    copies,
    copy_all,
    expand_query,
    pin_query,
    read_ago,
    read_bound,
    read_filter,
    read_id,
    read_pattern,
)
from daybell.core import payload
from daybell.core.access import NewAuditEntry
from daybell.core.execution import (
    TERMINAL,
    Cancellation,
    Enqueued,
    Execution,
    ExecutionDetail,
    NewExecution,
    Revival,
    State,
    distinct_in,
)
from daybell.core.ids import id_in, mint, mint_many
from daybell.core.limits import (
    ENQUEUE_BATCH_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    check_key,
    check_name,
)
from daybell.core.monitoring import observers
from daybell.core.options import Arguments, read_args
from daybell.core.units import Instant, to_iso
from daybell.core.views import (
    Content,
    Counts,
    ExecutionFilter,
    Health,
    JobFilter,
    LetterGroup,
    Page,
    SortOrder,
    Total,
    group_letters,
    total_of,
)
from daybell.errors import (
    Conflict,
    ExecutionNotFound,
    InvalidName,
    JobNotFound,
    NotFound,
    Unavailable,
    UsageError,
    shown,
)
from daybell.store.protocol import Store

# Enqueueing, with ids that the client or its caller chose: sending them twice creates them once.


class EnqueuedMany(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to many enqueues at once. Streamed executions are counted, but not listed."""

    count: int
    executions: tuple[Enqueued, ...] = ()


async def enqueue(
    client: ClientContext,
    job: str,
    args: Arguments | None = None,
    *,
    unique_key: str | None = None,
    parent: UUID | None = None,
    **options: Unpack[EnqueueOptions],
) -> Enqueued:
    """Ask for one execution of a job. Once this has answered, it is on disk.

    A `unique_key` that an unfinished execution of the job holds answers with that execution
    and `created=False`. Those that come at the same time go to the store together.
    """
    check_options(options, ONE_OPTIONS, "enqueue()")
    new = read_pattern(
        job,
        args=read_args(args),
        unique_key=None if unique_key is None else check_key(unique_key),
        parent=parent,
        **options,
    )
    return await submit(client, new, is_bound=isinstance(args, payload.EncodedArgs))


async def enqueue_many(
    client: ClientContext,
    job: str,
    args: Iterable[Arguments],
    *,
    parent: UUID | None = None,
    **options: Unpack[EnqueueOptions],
) -> EnqueuedMany:
    """Ask for one execution per item, all or nothing.

    Up to 10,000 are one batch, and each is answered for. More are streamed in one
    transaction, in flat memory: then a generator is read by the store, perhaps in a thread of
    its own. A stream that ended in Unavailable cannot be sent again; it is raised unless the
    stream turns out to have been committed.
    """
    check_options(options, MANY_OPTIONS, "enqueue_many()")
    pattern = read_pattern(job, parent=parent, **options)
    rest = iter(args)
    head = list(islice(rest, ENQUEUE_BATCH_MAX + 1))
    is_bound = bool(head) and isinstance(head[0], payload.EncodedArgs)
    if len(head) <= ENQUEUE_BATCH_MAX:
        answers = await submit_many(client, copy_all(pattern, head), is_bound=is_bound)
        return EnqueuedMany(count=len(answers), executions=tuple(answers))
    stream = copies(pattern, chain(head, rest))
    params = await params_of(client, job, is_fresh=True)  # a stream cannot be checked twice
    checked = checked_calls(params, stream, is_bound=is_bound)
    return EnqueuedMany(count=await _load(client, checked))


async def submit(
    client: ClientContext,
    new: NewExecution,
    *,
    repeat: bool = False,
    entry: NewAuditEntry | None = None,
    is_bound: bool = False,
) -> Enqueued:
    """Ask for one execution. `repeat` says that it may have been asked for before; `entry`
    tells the audit log of it, in the same transaction. `is_bound`: the task's code has checked the
    arguments.
    """
    if observers.are_traced():
        with observers.enqueueing([new]) as (traced,):
            return await _submit(client, traced, repeat=repeat, entry=entry, is_bound=is_bound)
    return await _submit(client, new, repeat=repeat, entry=entry, is_bound=is_bound)


async def _submit(
    client: ClientContext,
    new: NewExecution,
    *,
    repeat: bool,
    entry: NewAuditEntry | None,
    is_bound: bool,
) -> Enqueued:
    if not repeat:
        if not needs_no_check(client, new.job, is_bound=is_bound):
            await check_calls(client, [new], is_bound=is_bound)
        try:
            return await client.coalescer.enqueue(new, entry)
        except JobNotFound as error:
            raise await describe_missing_job(client, new.job, error) from None
    (answer,) = await _submit_many(client, [new], repeat=True, entry=entry, is_bound=is_bound)
    return answer


async def submit_many(
    client: ClientContext,
    executions: Sequence[NewExecution],
    *,
    repeat: bool = False,
    entry: NewAuditEntry | None = None,
    is_bound: bool = False,
) -> list[Enqueued]:
    """Ask for executions, all or nothing. `repeat`, `entry` and `is_bound` as above."""
    how: dict[str, Any] = {"repeat": repeat, "entry": entry, "is_bound": is_bound}
    if executions and observers.are_traced():
        with observers.enqueueing(executions) as traced:
            return await _submit_many(client, traced, **how)
    return await _submit_many(client, executions, **how)


async def _submit_many(
    client: ClientContext,
    executions: Sequence[NewExecution],
    *,
    repeat: bool,
    entry: NewAuditEntry | None,
    is_bound: bool,
) -> list[Enqueued]:
    entries = () if entry is None else (entry,)
    if not repeat:
        await check_calls(client, executions, is_bound=is_bound)
        try:
            return await _send_batch(client, executions, entries)
        except JobNotFound as error:
            jobs = {new.job for new in distinct_in(executions)}
            if len(jobs) > 1:  # the store does not report which one is missing
                raise
            raise await describe_missing_job(client, jobs.pop(), error) from None
    return await client.store.queue.enqueue(client.tenant, executions, repeat=True, entries=entries)


async def _send_batch(
    client: ClientContext, executions: Sequence[NewExecution], entries: Sequence[NewAuditEntry] = ()
) -> list[Enqueued]:
    try:
        return await client.store.queue.enqueue(client.tenant, executions, entries=entries)
    except Unavailable as error:
        if not error.was_sent:
            raise
        # Perhaps the store committed it and only the answer is lost: the ids show that.
        return await client.store.queue.enqueue(
            client.tenant, executions, repeat=True, entries=entries
        )


async def _load(client: ClientContext, executions: Iterable[NewExecution]) -> int:
    last: UUID | None = None
    count = 0

    def counted() -> Iterator[NewExecution]:
        nonlocal count, last
        for one in executions:
            last = one.id
            count += 1
            yield one

    try:
        return await client.store.queue.load(client.tenant, counted())
    except Unavailable:
        # The stream cannot be read again. But it was all or nothing, so its last one shows that.
        if last is None or not await _exists(client, last):
            raise
        return count


async def _exists(client: ClientContext, id: UUID) -> bool:
    try:
        await client.store.catalog.get_execution(client.tenant, id)
    except NotFound:
        return False
    return True


def read_execution(
    job: str,
    args: Arguments | None = None,
    *,
    unique_key: str | None = None,
    parent: UUID | None = None,
    id: UUID | None = None,
    **options: Unpack[EnqueueOptions],
) -> NewExecution:
    """Return one execution that a caller specified, in the form that a store takes."""
    return read_pattern(
        job,
        id=id,
        args=read_args(args),
        unique_key=None if unique_key is None else check_key(unique_key),
        parent=parent,
        **options,
    )


def read_executions(
    jobs: Sequence[str], args: Sequence[dict[str, Any]], ids: Sequence[UUID] | None = None
) -> list[NewExecution] | None:
    """Return executions that specify only a job, and arguments read from JSON. None: one of them
    may be wrong, and `read_new` reports the error.
    """
    texts = payload.encode_read(args)
    if texts is None or not all(map(is_job_name, set(jobs))):
        return None
    found = mint_many(len(jobs)) if ids is None else ids
    return [
        NewExecution(id=id, job=job, args=text)
        for id, job, text in zip(found, jobs, texts, strict=True)
    ]


def is_job_name(text: str) -> bool:
    """Return True if a job could have this name."""
    try:
        check_name(text, what="job")
    except InvalidName:
        return False
    return True


# Of a UUIDv7, without its time, version and variant: twelve bits, and after the variant the rest.
_REST_BITS: Final = 62
_FREE_BITS: Final = 12 + _REST_BITS


def derive_id(id: UUID, *what: object, rank: int = 0, rank_bits: int = 0) -> UUID:
    """Return an id that follows from another id and from a purpose.

    It keeps the time of the first id, which orders lists and keeps indexes together. Ids of
    executions that run one after the other have a rank, in `rank_bits` bits. The rest is a hash.
    """
    text = f"{id} {' '.join(map(str, what))}"
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest())
    hashed_bits = _FREE_BITS - rank_bits
    free = rank << hashed_bits | digest & ((1 << hashed_bits) - 1)
    fraction, rest = divmod(free, 1 << _REST_BITS)
    return UUID(int=id.int >> 80 << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | rest)


def clone_execution(old: Execution, request: UUID | None = None) -> NewExecution:
    """Return a new execution like one that has ended. Its id may follow from that of a request."""
    return NewExecution(
        id=mint() if request is None else derive_id(request, "again", old.id),
        job=old.job,
        args=old.args,
        queue=old.queue,
        priority=old.priority,
        expires_in=None if old.expires_at is None else old.expires_at - old.run_at,
        unique_key=old.unique_key,
        retries=old.retries,
        timeout=old.timeout,
        gate=old.gate,
        scheduled_for=old.scheduled_for,
        schedule=old.schedule,
        parent=old.parent,
        refresh=True,
    )


# Executions by id and by filter.


async def execution(client: ClientContext, id: Id) -> ExecutionDetail:
    """Return one execution, with its ended attempts."""
    return await client.store.catalog.get_execution(client.tenant, read_id(id))


async def executions(
    client: ClientContext,
    *,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    sort: str | None = None,
    **filters: Unpack[Filters],
) -> Page[Execution]:
    """Executions, newest first. A status is a state, or "pending": not started, not ended.

    `sort` is created, started, ended or duration; -duration has the longest first. It reads all
    that match, 5,000 at most.

    A page of a search by content (`args`, `unique_key`, `error`, `ended_since`, `ended_until`)
    may be short or empty, and its cursor continues the search.
    """
    asked = await where(client, **filters)
    if sort not in (None, NEWEST_FIRST):
        asked = replace(asked, order=SortOrder.parse(sort))
    page = await client.store.catalog.list_executions(
        client.tenant, asked, limit=limit, cursor=cursor
    )
    if not page.items:
        await check_job_is_known(client, asked)
    return page


async def check_job_is_known(client: ClientContext, asked: ExecutionFilter) -> None:
    """Raise JobNotFound if nothing was found because there never was such a job."""
    name = asked.job
    if name and not await client.known_job_ids.find(client.store, client.tenant, [name]):
        unknown = JobNotFound(f"no job named {shown(name)}")
        raise await describe_missing_job(client, name, unknown)


async def count(client: ClientContext, **filters: Unpack[Filters]) -> Counts:
    """Count executions by state. A count reads 10,000 of a kind: of the states in `at_least`
    there may be more.
    """
    asked = await where(client, **filters)
    content = asked.content
    if content is None or content.workers is None:
        counts = await client.store.catalog.count_executions(client.tenant, asked)
        if not counts:
            await check_job_is_known(client, asked)
        return counts
    rest = replace(content, workers=None)
    counts, at_least = Counter[State](), set[State]()
    for worker in content.workers:
        one = replace(asked, worker=worker, content=None if rest == Content() else rest)
        found = await client.store.catalog.count_executions(client.tenant, one)
        counts.update(found)
        at_least |= found.at_least
    return Counts(counts, at_least=at_least)


async def estimate(client: ClientContext, **filters: Unpack[Filters]) -> int:
    """Estimate how many executions there are, by a sample. The number may be far off for few."""
    return await client.store.catalog.estimate_executions(
        client.tenant, await where(client, **filters)
    )


async def where(client: ClientContext, **filters: Unpack[Filters]) -> ExecutionFilter:
    """Return filters as the store takes them. A job may be given by its id, a worker by its name.

    Raises JobNotFound for an unknown id, NotFound for an unknown name of a worker. An unknown name
    of a job is reported by a list or count that finds nothing.
    """
    given = expand_query(filters)
    user = given.pop("user", None)
    if user is not None:
        given["jobs"] = await _jobs_of_user(client, user)
    job = None if given.get("job") is None else id_in(given["job"])
    if job is not None:
        given["job"] = (
            await client.store.catalog.find_job(client.tenant, job, or_deleted=True)
        ).name
    worker = given.get("worker")
    if worker is not None and id_in(worker) is None:
        known = await find_workers(client.store, client.tenant, worker)
        # One worker is a condition of its own; several are compared with the rows read.
        given["worker"] = next(iter(known)) if len(known) == 1 else None
        given["workers"] = known if len(known) > 1 else None
    now = await now_for(client.store, *(given.get(name) for name in BOUNDS))
    asked = read_filter(now=now, **given)
    check_range(asked.since, asked.until)
    if asked.content is not None:
        check_range(asked.content.ended_since, asked.content.ended_until, prefix="ended_")
    return asked


async def _jobs_of_user(client: ClientContext, user: str) -> frozenset[str]:
    page = await client.store.catalog.list_jobs(
        client.tenant, JobFilter(user_id=user), limit=PAGE_ITEMS_MAX
    )
    if page.next_cursor is not None:
        raise UsageError(
            f"user {shown(user)} has more than {PAGE_ITEMS_MAX:,} jobs; name a job", field="user"
        )
    return frozenset(one.name for one in page.items)


async def find_workers(store: Store, tenant: str, name: str) -> frozenset[UUID]:
    """Find the workers of a name: several processes of one machine may share it."""
    workers = await store.catalog.list_workers(tenant, include_dead=True)
    found = frozenset(one.id for one in workers if one.name == name)
    if not found:
        raise NotFound(
            f"no worker named {shown(name)}; `daybell workers list` shows their names, and one that"
            " died more than a day ago is found by its id only"
        )
    return found


# The order of every list, for which no sort is needed.
NEWEST_FIRST: Final = "-created"


class Clock(Protocol):
    """A store, or a client of one: both tell the store's time."""

    async def health(self) -> Health: ...


async def fix_bounds(clock: Clock, filters: Filters) -> Filters:
    """Return the filters with times in place of lengths of time, by the store's clock. A count and
    the action that follows it, in one request or many, then concern the same executions.
    """
    lengths = {
        name: value for name in BOUNDS if read_ago(value := filters.get(name)) is not None and value
    }
    query = filters.get("q")
    if not lengths and query is None:
        return filters
    now = (await clock.health()).now
    fixed: dict[str, Any] = {
        name: to_iso(read_bound(value, name, now=now)) for name, value in lengths.items()
    }
    if query is not None:
        fixed["q"] = pin_query(query, now)
    return cast("Filters", {**filters, **fixed})


async def now_for(store: Clock, *bounds: Time | None) -> Instant:
    """Return the store's time, if one of these bounds counts from it."""
    is_relative = any(read_ago(one) is not None for one in bounds)
    return (await store.health()).now if is_relative else 0.0


class Sweep(msgspec.Struct):
    """A walk through all that filters let through. A search by content that has a number of pages
    ends there, and leaves the cursor with which the next one continues.
    """

    cursor: str | None = None
    pages: int | None = None  # None: to the end
    is_bounded: bool = False  # the number of pages counts without a search by content as well


async def sweep_pages(
    store: Store,
    tenant: str,
    wheres: Iterable[ExecutionFilter],
    sweep: Sweep | None = None,
) -> AsyncGenerator[Sequence[Execution]]:
    """Read executions filter by filter, each newest first, a page in memory at a time. Executions
    that leave the list meanwhile do not shift the rest: pages go by id. With `is_bounded` the
    number of pages counts without a search by content as well.
    """
    sweep = sweep or Sweep()
    first, cursor = _read_place(sweep.cursor)
    sweep.cursor = None
    for number, where in enumerate(wheres):
        if number < first:
            continue
        while True:
            if sweep.pages is not None and (sweep.is_bounded or where.content is not None):
                if sweep.pages == 0:
                    sweep.cursor = f"{number}.{cursor or ''}"
                    return
                sweep.pages -= 1
            page = await store.catalog.list_executions(
                tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor or None
            )
            if page.items:
                yield page.items
            cursor = page.next_cursor
            if cursor is None:
                break


def _read_place(cursor: str | None) -> tuple[int, str | None]:
    """Return the number of the filter, and the cursor in its results."""
    if cursor is None:
        return 0, None
    number, dot, rest = cursor.partition(".")
    if not dot or not (number.isascii() and number.isdecimal()) or len(number) > 1:
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the answer before",
            field="cursor",
        )
    return int(number), rest


def page_reader(
    store: Store, tenant: str, where: ExecutionFilter
) -> Callable[[str | None], Awaitable[Page[Execution]]]:
    """Read one page of executions after another."""
    return lambda cursor: store.catalog.list_executions(
        tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor
    )


async def load_truncated(store: Store, tenant: str, found: Iterable[Execution]) -> list[Execution]:
    """Return executions of a list with the values that lists leave out."""
    return [
        (await store.catalog.get_execution(tenant, one.id)).execution if one.truncated else one
        for one in found
    ]


async def count_matching(
    client: ClientContext, wheres: Sequence[ExecutionFilter], sweep: Sweep | None = None
) -> Total:
    if any(where.content is not None for where in wheres):
        found = sweep_pages(client.store, client.tenant, wheres, sweep)
        return Total(sum([len(some) async for some in found]))
    counts = [await client.store.catalog.count_executions(client.tenant, where) for where in wheres]
    return total_of(one.total for one in counts)


# Cancellation.


UNFINISHED_STATES: Final = frozenset(State) - TERMINAL
ProgressCallback = Callable[[int], object]  # called with the number of executions in a batch


def ignore_progress(_: int) -> None:
    """Ignore the progress: the default of callers that need no report."""


async def cancel(client: ClientContext, id: Id) -> Cancellation:
    """Cancel an execution: at once if it has not started, else by asking it to stop."""
    (answer,) = await client.store.queue.cancel(client.tenant, [read_id(id)])
    if answer is Cancellation.UNKNOWN:
        raise ExecutionNotFound(f"no execution {id}")
    return answer


async def cancel_picked(client: ClientContext, ids: Iterable[Id]) -> Counter[Cancellation]:
    """Cancel these executions; return the number per result. One that cannot be stops no other."""
    answers: Counter[Cancellation] = Counter()
    for some in split_batches(ids):
        answers.update(await client.store.queue.cancel(client.tenant, some))
    return answers


def split_batches(ids: Iterable[Id]) -> Iterable[Sequence[UUID]]:
    wanted = list(dict.fromkeys(read_id(id) for id in ids))
    for start in range(0, len(wanted), PAGE_ITEMS_MAX):
        yield wanted[start : start + PAGE_ITEMS_MAX]


async def count_cancellable(
    client: ClientContext, *, sweep: Sweep | None = None, **filters: Unpack[Filters]
) -> Total:
    """Return the number of executions that `cancel_many` would cancel."""
    unfinished = restrict_to_unfinished(await where(client, **filters))
    return await count_matching(client, [unfinished], sweep)


async def cancel_many(
    client: ClientContext,
    *,
    sweep: Sweep | None = None,
    on_step: ProgressCallback = ignore_progress,
    **filters: Unpack[Filters],
) -> Counter[Cancellation]:
    """Cancel executions that have not ended; return the number of executions per result."""
    unfinished = restrict_to_unfinished(await where(client, **filters))
    return await cancel_where(client, unfinished, on_step, sweep)


async def cancel_where(
    client: ClientContext,
    where: ExecutionFilter,
    on_step: ProgressCallback = ignore_progress,
    sweep: Sweep | None = None,
) -> Counter[Cancellation]:
    answers: Counter[Cancellation] = Counter()
    async for some in sweep_pages(client.store, client.tenant, [where], sweep):
        answers.update(await client.store.queue.cancel(client.tenant, [one.id for one in some]))
        on_step(len(some))
    return answers


def count_cancelled(answers: Counter[Cancellation]) -> int:
    return answers[Cancellation.CANCELLED] + answers[Cancellation.REQUESTED]


def restrict_to_unfinished(where: ExecutionFilter) -> ExecutionFilter:
    """Return the filter restricted to unfinished executions: those that can be cancelled."""
    states = UNFINISHED_STATES if where.states is None else where.states & UNFINISHED_STATES
    if not states:
        raise UsageError(
            f"what is {join_states(where.states or ())} has ended and cannot be cancelled",
            field="status",
        )
    return replace(where, states=states)


def join_states(states: Iterable[State]) -> str:
    return " or ".join(sorted(states))


# Dead letters: executions out of tries. Operations on many take ids, or filters; with neither, all.


def is_dead_letter(execution: Execution) -> bool:
    """Return True if an execution is dead and no person has decided on it."""
    return execution.state is State.DEAD and not execution.is_discarded


async def dead_letters(
    client: ClientContext,
    *,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    **filters: Unpack[Filters],
) -> Page[Execution]:
    """Dead letters, newest first."""
    where = await _letters(client, filters)
    return await client.store.catalog.list_executions(
        client.tenant, where, limit=limit, cursor=cursor
    )


async def dead_letter_groups(
    client: ClientContext, *, cursor: str | None = None, **filters: Unpack[Filters]
) -> Page[LetterGroup]:
    """Dead letters by job and fingerprint of the error, the largest group first.

    One call reads PAGE_ITEMS_MAX letters, newest first. If there are more, the page has a cursor,
    and the groups of the next one add to these.
    """
    where = await _letters(client, filters)
    page = await client.store.catalog.list_executions(
        client.tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor
    )
    ranked = sorted(group_letters(page.items), key=lambda one: (-one.count, one.job, one.error))
    return Page(items=tuple(ranked), next_cursor=page.next_cursor)


async def count_dead_letters(
    client: ClientContext, *, sweep: Sweep | None = None, **filters: Unpack[Filters]
) -> Total:
    """Return the number of dead letters."""
    return await count_matching(client, [await _letters(client, filters)], sweep)


async def _letters(client: ClientContext, filters: Filters) -> ExecutionFilter:
    check_no_status(filters)
    return replace(await where(client, **filters), dead_letters=True)


async def discard(client: ClientContext, id: Id) -> None:
    """Take an execution off the dead-letter list. It stays in history."""
    (was_listed,) = await client.store.queue.discard(client.tenant, [read_id(id)])
    if not was_listed:
        found = await client.store.catalog.get_execution(client.tenant, read_id(id))
        raise Conflict(
            f"execution {id} is not on the dead-letter list; it is {found.execution.state}"
        )


async def retry_dead_letters(
    client: ClientContext,
    ids: Iterable[Id] | None = None,
    *,
    sweep: Sweep | None = None,
    on_step: ProgressCallback = ignore_progress,
    **filters: Unpack[Filters],
) -> Counter[Revival]:
    """Run many executions again, with new tries; return the number per result."""
    answers: Counter[Revival] = Counter()
    async for some in _chosen(client, ids, filters, sweep):
        answers.update(await client.store.queue.revive(client.tenant, some))
        on_step(len(some))
    return answers


async def discard_dead_letters(
    client: ClientContext,
    ids: Iterable[Id] | None = None,
    *,
    sweep: Sweep | None = None,
    on_step: ProgressCallback = ignore_progress,
    **filters: Unpack[Filters],
) -> tuple[int, int]:
    """Take dead letters off the list; return how many were on it, and how many were not."""
    listed = seen = 0
    async for some in _chosen(client, ids, filters, sweep):
        listed += sum(await client.store.queue.discard(client.tenant, some))
        seen += len(some)
        on_step(len(some))
    return listed, seen - listed


async def _chosen(
    client: ClientContext, ids: Iterable[Id] | None, filters: Filters, sweep: Sweep | None
) -> AsyncGenerator[Sequence[UUID]]:
    """Yield the ids in batches that a store takes."""
    if ids is not None:
        wanted = [read_id(id) for id in ids]
        for start in range(0, len(wanted), PAGE_ITEMS_MAX):
            yield wanted[start : start + PAGE_ITEMS_MAX]
        return
    where = await _letters(client, filters)
    async for page in sweep_pages(client.store, client.tenant, [where], sweep):
        yield [one.id for one in page]


def check_no_status(filters: Filters) -> None:
    """Refuse a status: a dead letter has the one, and another would find nothing."""
    if filters.get("status") is not None:
        raise UsageError("dead letters are all dead; leave status out", field="status")
