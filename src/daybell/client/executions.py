"""Executions: submission under chosen ids, filters, cancellation and retry of many, dead letters,
and logs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol, Unpack, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.client.jobs import suggest_similar_job
from daybell.client.requests import (
    BOUNDS,
    EnqueueOptions,
    Filters,
    Id,
    Time,
    id_in,
    read_ago,
    read_args,
    read_bound,
    read_filter,
    read_id,
    read_pattern,
)
from daybell.client.when import Arguments
from daybell.core import payload
from daybell.core.access import NewAuditEntry
from daybell.core.execution import (
    TERMINAL,
    Cancellation,
    Enqueued,
    Execution,
    LogPart,
    NewExecution,
    Revival,
    State,
)
from daybell.core.ids import mint, mint_many
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_key, check_name
from daybell.core.units import Instant, to_iso
from daybell.core.views import ExecutionFilter, Health, Page, Total, total_of
from daybell.errors import (
    Conflict,
    DaybellError,
    DuplicateKey,
    InvalidName,
    NotFound,
    QuotaExceeded,
    Unavailable,
    UsageError,
    shown,
)
from daybell.store.protocol import Store
from daybell.store.shares import set_holder

# Executions whose ids the caller chose, so that sending them twice creates them once.

# Of a UUIDv7, without its time, version and variant: twelve bits, and after the variant the rest.
_REST_BITS: Final = 62
_FREE_BITS: Final = 12 + _REST_BITS


class Submissions:
    """The verbs of `Client` for executions that were read before, with ids of their own."""

    store: Store
    tenant: str
    _coalescer: Coalescer

    async def _enqueue(
        self, executions: Sequence[NewExecution], entries: Sequence[NewAuditEntry] = ()
    ) -> list[Enqueued]:
        raise NotImplementedError  # see `Client`

    async def check_calls(self, executions: Sequence[NewExecution]) -> None:
        raise NotImplementedError  # see `WorkflowCalls`

    async def submit(
        self, new: NewExecution, *, repeat: bool = False, entry: NewAuditEntry | None = None
    ) -> Enqueued:
        """Ask for one execution. `repeat` says that it may have been asked for before; `entry`
        tells the audit log of it, in the same transaction.
        """
        if not repeat:
            await self.check_calls([new])
            async with suggest_similar_job(self.store, self.tenant, new.job):
                return await self._coalescer.enqueue(new, entry)
        (answer,) = await self.submit_many([new], repeat=True, entry=entry)
        return answer

    async def submit_many(
        self,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entry: NewAuditEntry | None = None,
    ) -> list[Enqueued]:
        """Ask for executions, all or nothing. `repeat` and `entry` as above."""
        entries = () if entry is None else (entry,)
        if not repeat:
            await self.check_calls(executions)
            jobs = {new.job for new in executions}
            # Of several, it is not known here which one is not there.
            async with suggest_similar_job(
                self.store, self.tenant, jobs.pop() if len(jobs) == 1 else ""
            ):
                return await self._enqueue(executions, entries)
        return await self.store.enqueue(self.tenant, executions, repeat=True, entries=entries)


def read_execution(
    job: str,
    args: Arguments | None = None,
    *,
    unique_key: str | None = None,
    parent: UUID | None = None,
    id: UUID | None = None,
    **options: Unpack[EnqueueOptions],
) -> NewExecution:
    """What people write about one execution, as a store takes it."""
    pattern = read_pattern(job, **options)
    return replace(
        pattern,
        id=pattern.id if id is None else id,
        args=read_args(args),
        unique_key=None if unique_key is None else check_key(unique_key),
        parent=parent,
    )


def read_executions(
    jobs: Sequence[str], args: Sequence[dict[str, Any]], ids: Sequence[UUID] | None = None
) -> list[NewExecution] | None:
    """The same for many that say nothing but what is to run, with arguments read from JSON. None:
    one of them may be wrong, and `read_new` will say how.
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
    """Whether a job could have this name."""
    try:
        check_name(text, what="job")
    except InvalidName:
        return False
    return True


def derive_id(id: UUID, *what: object, rank: int = 0, rank_bits: int = 0) -> UUID:
    """An id that follows from another one, and from what it is for.

    It keeps the time of the first, which orders lists and keeps indexes together. Those that are to
    run one after the other have a rank, in so many bits. All the rest is a hash.
    """
    text = f"{id} {' '.join(map(str, what))}"
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest())
    hashed_bits = _FREE_BITS - rank_bits
    free = rank << hashed_bits | digest & ((1 << hashed_bits) - 1)
    fraction, rest = divmod(free, 1 << _REST_BITS)
    return UUID(int=id.int >> 80 << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | rest)


# Filters of executions as stores take them: with ids for names, and times for lengths of time.


async def resolve_filter(store: Store, tenant: str, filters: Filters) -> ExecutionFilter:
    """Return which executions are asked for. A job may be given by its id, a worker by its name.

    Raises JobNotFound for an unknown id, NotFound for an unknown name of a worker.
    """
    given: dict[str, Any] = {**filters}
    job = None if given.get("job") is None else id_in(given["job"])
    if job is not None:
        given["job"] = (await store.find_job(tenant, job, or_deleted=True)).name
    worker = given.get("worker")
    if worker is not None and id_in(worker) is None:
        known = await find_workers(store, tenant, worker)
        # One of them is a condition of its own; several are compared with what is read.
        given["worker"] = next(iter(known)) if len(known) == 1 else None
        given["workers"] = known if len(known) > 1 else None
    now = await now_for(store, *(given.get(name) for name in BOUNDS))
    return read_filter(now=now, **given)


async def find_workers(store: Store, tenant: str, name: str) -> frozenset[UUID]:
    """Find the workers of a name: several processes of one machine may share it."""
    workers = await store.list_workers(tenant, include_dead=True)
    found = frozenset(one.id for one in workers if one.name == name)
    if not found:
        raise NotFound(
            f"no worker named {shown(name)}; `daybell workers list` shows their names, and one that"
            " died more than a day ago is found by its id only"
        )
    return found


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
    if not lengths:
        return filters
    now = (await clock.health()).now
    fixed: dict[str, Any] = {
        name: to_iso(read_bound(value, name, now=now)) for name, value in lengths.items()
    }
    return cast("Filters", {**filters, **fixed})


async def now_for(store: Clock, *bounds: Time | None) -> Instant:
    """The store's time, if one of these bounds counts from it."""
    is_relative = any(read_ago(one) is not None for one in bounds)
    return (await store.health()).now if is_relative else 0.0


class Sweep(msgspec.Struct):
    """A walk through all that filters let through. A search by content that has a number of pages
    ends there, and leaves the cursor with which the next one continues.
    """

    cursor: str | None = None
    pages: int | None = None  # None: to the end


async def sweep_pages(
    store: Store, tenant: str, wheres: Iterable[ExecutionFilter], sweep: Sweep | None = None
) -> AsyncGenerator[Sequence[Execution]]:
    """Read executions filter by filter, each newest first, a page in memory at a time. What leaves
    the list meanwhile does not shift the rest: pages go by id.
    """
    sweep = sweep or Sweep()
    first, cursor = _read_place(sweep.cursor)
    sweep.cursor = None
    for number, where in enumerate(wheres):
        if number < first:
            continue
        while True:
            if sweep.pages is not None and where.content is not None:
                if sweep.pages == 0:
                    sweep.cursor = f"{number}.{cursor or ''}"
                    return
                sweep.pages -= 1
            page = await store.list_executions(
                tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor or None
            )
            if page.items:
                yield page.items
            cursor = page.next_cursor
            if cursor is None:
                break


def _read_place(cursor: str | None) -> tuple[int, str | None]:
    """The number of the filter, and the cursor in what it lets through."""
    if cursor is None:
        return 0, None
    number, dot, rest = cursor.partition(".")
    if not dot or not (number.isascii() and number.isdecimal()) or len(number) > 1:
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the answer before",
            field="cursor",
        )
    return int(number), rest


# Dead letters: executions out of tries, and what a person decides about them, one or many.

ProgressCallback = Callable[[int], object]  # told how many more were seen to


def ignore_progress(_: int) -> None:
    """For those who need not be told."""


class DeadLetters:
    """The verbs of `Client` for dead executions that no person has decided on.

    Those for many take ids, or filters; with neither, all.
    """

    store: Store
    tenant: str

    async def dead_letters(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page[Execution]:
        """Dead letters, newest first."""
        where = await self._letters(filters)
        return await self.store.list_executions(self.tenant, where, limit=limit, cursor=cursor)

    async def count_dead_letters(self, **filters: Unpack[Filters]) -> Total:
        """How many there are."""
        return await self._count([await self._letters(filters)])

    async def _letters(self, filters: Filters) -> ExecutionFilter:
        check_no_status(filters)
        where = await resolve_filter(self.store, self.tenant, filters)
        return replace(where, dead_letters=True)

    async def _count(self, wheres: Sequence[ExecutionFilter]) -> Total:
        raise NotImplementedError  # see `Bulk`

    async def discard(self, id: Id) -> None:
        """Take an execution off the dead-letter list. It stays in history."""
        (was_listed,) = await self.store.discard(self.tenant, [read_id(id)])
        if not was_listed:
            found = await self.store.get_execution(self.tenant, read_id(id))
            raise Conflict(
                f"execution {id} is not on the dead-letter list; it is {found.execution.state}"
            )

    async def retry_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        sweep: Sweep | None = None,
        on_step: ProgressCallback = ignore_progress,
        **filters: Unpack[Filters],
    ) -> Counter[Revival]:
        """Run many again, their tries counted anew; answers how many went which way."""
        answers: Counter[Revival] = Counter()
        async for some in self._chosen(ids, filters, sweep):
            answers.update(await self.store.revive(self.tenant, some))
            on_step(len(some))
        return answers

    async def discard_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        sweep: Sweep | None = None,
        on_step: ProgressCallback = ignore_progress,
        **filters: Unpack[Filters],
    ) -> tuple[int, int]:
        """Take many off the list; answers how many were on it, and how many were not."""
        listed = seen = 0
        async for some in self._chosen(ids, filters, sweep):
            listed += sum(await self.store.discard(self.tenant, some))
            seen += len(some)
            on_step(len(some))
        return listed, seen - listed

    async def _chosen(
        self, ids: Iterable[Id] | None, filters: Filters, sweep: Sweep | None
    ) -> AsyncGenerator[Sequence[UUID]]:
        """The ids, in batches that a store takes."""
        if ids is not None:
            wanted = [read_id(id) for id in ids]
            for start in range(0, len(wanted), PAGE_ITEMS_MAX):
                yield wanted[start : start + PAGE_ITEMS_MAX]
            return
        where = await self._letters(filters)
        async for page in sweep_pages(self.store, self.tenant, [where], sweep):
            yield [one.id for one in page]


def check_no_status(filters: Filters) -> None:
    """Refuse a status: a dead letter has the one, and another would find nothing."""
    if filters.get("status") is not None:
        raise UsageError("dead letters are all dead; leave status out", field="status")


UNFINISHED_STATES: Final = frozenset(State) - TERMINAL
RETRYABLE_STATES: Final = frozenset({State.DEAD, State.CANCELLED})


class RetryOutcome(StrEnum):
    """What became of one that should run again."""

    REVIVED = "revived"  # the dead execution itself
    RENEWED = "renewed"  # a new execution with the same arguments
    KEY_HELD = "key_held"  # another unfinished execution of the job has its unique key
    OVER_QUOTA = "over_quota"  # the tenant's quota has no room for it now
    CHANGED = "changed"  # it was not what it had been any more
    NEEDS_FORCE = "needs_force"  # it has succeeded or was discarded: only `force` runs it again
    NOT_RETRYABLE = "not_retryable"  # it has not ended, was skipped, or is a node of a run
    REFUSED = "refused"  # its job is gone, or no longer takes it
    UNKNOWN = "unknown"


class ExecutionsByFilter:
    """The verbs of `Client` for all executions that filters let through.

    They go through what is there, newest first and in batches, and pass over what comes later.
    """

    store: Store
    tenant: str

    async def where(self, **filters: Unpack[Filters]) -> ExecutionFilter:
        """Return filters as the store takes them."""
        return await resolve_filter(self.store, self.tenant, filters)

    async def submit_many(
        self, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> list[Enqueued]:
        raise NotImplementedError  # see `Submissions`

    async def rerun_cancelled(
        self, olds: Sequence[Execution], request: UUID | None, *, repeat: bool
    ) -> tuple[list[Execution], int]:
        raise NotImplementedError  # see `Workflows`

    async def count_cancellable(self, **filters: Unpack[Filters]) -> Total:
        """How many `cancel_many` would cancel."""
        return await self._count([restrict_to_unfinished(await self.where(**filters))])

    async def cancel_many(
        self,
        *,
        sweep: Sweep | None = None,
        on_step: ProgressCallback = ignore_progress,
        **filters: Unpack[Filters],
    ) -> Counter[Cancellation]:
        """Cancel what has not ended; answers how many went which way."""
        where = restrict_to_unfinished(await self.where(**filters))
        return await self._cancel_where(where, on_step, sweep)

    async def count_retryable(self, *, force: bool = False, **filters: Unpack[Filters]) -> Total:
        """How many `retry_many` would run again."""
        return await self._count(split_retryable(await self.where(**filters), force=force))

    async def retry_many(
        self,
        *,
        force: bool = False,
        request: UUID | None = None,
        repeat: bool = False,
        sweep: Sweep | None = None,
        on_step: ProgressCallback = ignore_progress,
        **filters: Unpack[Filters],
    ) -> Counter[RetryOutcome]:
        """Run ended ones again, each as `retry` would; answers how many went which way.

        Without a status only dead ones are meant: others become new executions, again with every
        call. So cancelled ones have to be named, and succeeded ones need `force` as well.
        `request` and `repeat` are as `retry` has them.
        """
        answers: Counter[RetryOutcome] = Counter()
        wheres = split_retryable(await self.where(**filters), force=force)
        async for some in sweep_pages(self.store, self.tenant, wheres, sweep):
            dead = [one.id for one in some if is_dead_letter(one)]
            others = await load_truncated(
                self.store, self.tenant, (one for one in some if not is_dead_letter(one))
            )
            revivals = await self.store.revive(self.tenant, dead) if dead else []
            answers.update(RETRY_OUTCOMES[answer] for answer in revivals)
            others, begun = await self.rerun_cancelled(others, request, repeat=repeat)
            answers += Counter({RetryOutcome.RENEWED: begun})
            news = [clone_execution(one, request) for one in others]
            answers += await self._renew(news, repeat=repeat)
            on_step(len(some))
        return answers

    async def _renew(
        self, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> Counter[RetryOutcome]:
        if not executions:
            return Counter()
        try:
            made = await self.submit_many(executions, repeat=repeat)
        except Unavailable:
            raise
        except DaybellError as error:
            # One of them is at fault, and the batch was all or nothing: by halves, then.
            is_full = isinstance(error, QuotaExceeded)
            if len(executions) == 1:
                return Counter({RetryOutcome.OVER_QUOTA if is_full else RetryOutcome.REFUSED: 1})
            # As repeats: the refusal may be the answer to the second of two tries.
            middle = len(executions) // 2
            first = await self._renew(executions[:middle], repeat=True)
            if first[RetryOutcome.OVER_QUOTA]:
                return first + Counter({RetryOutcome.OVER_QUOTA: len(executions) - middle})
            return first + await self._renew(executions[middle:], repeat=True)
        return Counter(
            RetryOutcome.RENEWED if one.created else RetryOutcome.KEY_HELD for one in made
        )

    async def _cancel_where(
        self,
        where: ExecutionFilter,
        on_step: ProgressCallback = ignore_progress,
        sweep: Sweep | None = None,
    ) -> Counter[Cancellation]:
        answers: Counter[Cancellation] = Counter()
        async for some in sweep_pages(self.store, self.tenant, [where], sweep):
            answers.update(await self.store.cancel(self.tenant, [one.id for one in some]))
            on_step(len(some))
        return answers

    async def _count(self, wheres: Sequence[ExecutionFilter]) -> Total:
        if any(where.content is not None for where in wheres):
            found = sweep_pages(self.store, self.tenant, wheres)
            return Total(sum([len(some) async for some in found]))
        counts = [await self.store.count_executions(self.tenant, where) for where in wheres]
        return total_of(one.total for one in counts)


def page_reader(
    store: Store, tenant: str, where: ExecutionFilter
) -> Callable[[str | None], Awaitable[Page[Execution]]]:
    """Read one page of executions after another."""
    return lambda cursor: store.list_executions(tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor)


async def load_truncated(store: Store, tenant: str, found: Iterable[Execution]) -> list[Execution]:
    """Executions of a list with the values that lists leave out."""
    return [
        (await store.get_execution(tenant, one.id)).execution if one.truncated else one
        for one in found
    ]


def is_dead_letter(execution: Execution) -> bool:
    """Whether it is dead and no person has decided on it."""
    return execution.state is State.DEAD and not execution.is_discarded


def clone_execution(old: Execution, request: UUID | None = None) -> NewExecution:
    """A new execution like one that has ended. Its id may follow from that of a request."""
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
    )


def restrict_to_unfinished(where: ExecutionFilter) -> ExecutionFilter:
    """The same without what has ended: what can be cancelled."""
    states = UNFINISHED_STATES if where.states is None else where.states & UNFINISHED_STATES
    if not states:
        raise UsageError(
            f"what is {_join_states(where.states or ())} has ended and cannot be cancelled",
            field="status",
        )
    return replace(where, states=states)


def split_retryable(where: ExecutionFilter, *, force: bool) -> list[ExecutionFilter]:
    """A filter for each state that can be retried: of the dead, only letters unless forced."""
    allowed = RETRYABLE_STATES | {State.SUCCEEDED} if force else RETRYABLE_STATES
    states = frozenset({State.DEAD}) if where.states is None else where.states
    if others := states - allowed:
        more = "" if force else ", and succeeded ones with force"
        raise UsageError(
            f"what is {_join_states(others)} cannot be retried; dead and cancelled ones can{more}",
            field="status",
        )
    return [
        replace(where, states=frozenset({state}), dead_letters=state is State.DEAD and not force)
        for state in sorted(states)
    ]


def _join_states(states: Iterable[State]) -> str:
    return " or ".join(sorted(states))


RETRY_OUTCOMES: Final = {
    Revival.REVIVED: RetryOutcome.REVIVED,
    Revival.KEY_HELD: RetryOutcome.KEY_HELD,
    Revival.OVER_QUOTA: RetryOutcome.OVER_QUOTA,
    Revival.NOT_LISTED: RetryOutcome.CHANGED,  # it was when it was looked up
    Revival.UNKNOWN: RetryOutcome.CHANGED,
}


# What the client answers, where the store's own answer is not enough.


class EnqueuedMany(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to many enqueues at once. What was streamed is counted, but not listed."""

    count: int
    executions: tuple[Enqueued, ...] = ()


def key_held_error(execution: Execution) -> DuplicateKey:
    return DuplicateKey(
        f"another unfinished execution of {execution.job} holds the unique key of {execution.id};"
        " wait for its end, or cancel it"
    )


# What executions said while they ran.

# A part may be as large as an attempt's whole log: a handful at a time is enough of them.
PARTS_PER_READ: Final = 10

START: Final = (0, 0)  # before the first part of the first attempt


class Logs:
    """The verbs of `Client` for logs."""

    store: Store
    tenant: str

    async def log(
        self, id: Id, *, after: tuple[int, int] = START, limit: int = PARTS_PER_READ
    ) -> list[LogPart]:
        """Parts of an execution's log by attempt and number, beginning after such a pair.

        Empty for an execution that said nothing, and for one that is unknown.
        """
        return await self.store.read_log(self.tenant, read_id(id), after=after, limit=limit)

    async def log_parts(self, id: Id, *, after: tuple[int, int] = START) -> AsyncGenerator[LogPart]:
        """All parts that there are by now, a few in memory at a time."""
        while parts := await self.log(id, after=after):
            for part in parts:
                yield part
            after = (parts[-1].attempt, parts[-1].number)
            if len(parts) < PARTS_PER_READ:
                return


# Single enqueues that come at the same time go to the store together. The first is sent at once;
# all that come while it is on its way form the next group. So a lone enqueue waits for nothing, and
# fifty at once are one statement instead of fifty.

GROUP_MAX: Final = 1000


class Send(Protocol):
    """The way to the store. `repeat`: these may have been sent before."""

    async def __call__(
        self, executions: Sequence[NewExecution], entries: Sequence[NewAuditEntry], *, repeat: bool
    ) -> list[Enqueued]: ...


Waiting = tuple[NewExecution, NewAuditEntry | None, "asyncio.Future[Enqueued]"]


class Coalescer:
    """Gathers executions of one event loop."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[Waiting] = []
        self._sender: asyncio.Task[None] | None = None

    async def enqueue(self, new: NewExecution, entry: NewAuditEntry | None = None) -> Enqueued:
        """Enqueue one, perhaps together with others; their errors are not its. `entry` tells the
        audit log of it, in the same transaction.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Enqueued] = loop.create_future()
        self._waiting.append((new, entry, answer))
        if self._sender is None:
            self._sender = loop.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        set_holder(None)  # one statement at a time for all keys of a tenant needs no turn
        group: list[Waiting] = []
        try:
            while self._waiting:
                group = self._waiting[:GROUP_MAX]
                del self._waiting[:GROUP_MAX]
                await self._send_group(group)
        except BaseException as error:  # the loop ends
            left, self._waiting = [*group, *self._waiting], []
            _fail(left, error)
            raise
        finally:
            self._sender = None

    async def _send_group(self, group: list[Waiting], *, repeat: bool = False) -> None:
        try:
            entries = [entry for _, entry, _ in group if entry is not None]
            answers = await self._send([new for new, _, _ in group], entries, repeat=repeat)
        except Unavailable as error:
            if repeat or not error.was_sent:
                _fail(group, error)
            else:
                # Perhaps it was committed and only the answer is lost: the ids tell.
                await self._send_group(group, repeat=True)
        except DaybellError as error:
            # One of them is at fault, and the group was all or nothing: by halves, then.
            if len(group) == 1:
                _fail(group, error)
                return
            middle = len(group) // 2
            await self._send_group(group[:middle], repeat=repeat)
            await self._send_group(group[middle:], repeat=repeat)
        except Exception as error:
            _fail(group, error)  # a mistake of ours; those who wait must hear of it, and go on
        else:
            for (_, _, future), answer in zip(group, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def _fail(group: list[Waiting], error: BaseException) -> None:
    for _, _, future in group:
        if not future.done():
            future.set_exception(error)
