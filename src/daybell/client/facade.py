"""A tenant's jobs, executions, queues and workers, as verbs.

A method is a verb of the domain. It takes what people write (durations as "5m", times with an
offset, plain arguments), checks it, and hands the store what it needs. What can be asked again
after a lost answer is asked again here, once, so that it happens exactly once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Self, Unpack, cast
from uuid import UUID

import msgspec

from daybell.client.access import Access
from daybell.client.answers import EnqueuedMany
from daybell.client.audits import Audits
from daybell.client.backfills import Backfills
from daybell.client.bulk import UNFINISHED, Bulk
from daybell.client.coalescer import Coalescer
from daybell.client.dead_letters import DeadLetters, Step, silently
from daybell.client.declaring import Declarations
from daybell.client.dependencies import Dependencies
from daybell.client.events import Events
from daybell.client.graphs import check_together
from daybell.client.idempotency import Idempotency
from daybell.client.logs import Logs
from daybell.client.overview import Overviews
from daybell.client.picking import Picks
from daybell.client.requests import (
    JOB_OPTIONS,
    MANY_OPTIONS,
    ONE_OPTIONS,
    Arguments,
    EnqueueOptions,
    Filters,
    Id,
    JobOptions,
    check_options,
    copies,
    read_args,
    read_definition,
    read_id,
    read_pattern,
)
from daybell.client.schedules import Schedules
from daybell.client.secrets import Secrets
from daybell.client.submitting import Submissions
from daybell.client.templates import Templates
from daybell.client.tenants import Tenants
from daybell.client.timeline import Stories
from daybell.client.uses import check_undeclared
from daybell.client.waiting import place_of
from daybell.client.warnings import Warnings
from daybell.client.why import Reason, why
from daybell.client.workflow_calls import Kept, WorkflowCalls, check_call
from daybell.core.access import Scope
from daybell.core.audit import NewEntry
from daybell.core.execution import (
    PENDING,
    Enqueued,
    Execution,
    ExecutionDetail,
    NewExecution,
    State,
)
from daybell.core.instant import Seconds
from daybell.core.job import DEFAULT_TENANT, Job, JobDefinition, NewJob
from daybell.core.limits import (
    ENQUEUE_BATCH_MAX,
    PAGE_ITEMS_DEFAULT,
    POOL_SIZE,
    check_key,
    check_name,
)
from daybell.core.params import Params
from daybell.core.search import Content
from daybell.core.view import Counts, ExecutionFilter, Health, Page, Queue
from daybell.core.worker import LEASE_SECONDS, Worker
from daybell.errors import ExecutionNotFound, NotFound, Unavailable
from daybell.store.ids import mint
from daybell.store.open import store_for
from daybell.store.outcomes import Cancellation
from daybell.store.protocol import Store
from daybell.store.scoped import ScopedStore


class Client(
    Declarations,
    Templates,
    Warnings,
    Schedules,
    WorkflowCalls,
    Submissions,
    Backfills,
    Dependencies,
    Stories,
    Bulk,
    Picks,
    DeadLetters,
    Logs,
    Overviews,
    Access,
    Tenants,
    Audits,
    Idempotency,
    Secrets,
    Events,
):
    """A tenant's jobs, executions, queues and workers, in one store.

    Made from a URL, it opens its store on entry and closes it on exit; `migrate=True` brings the
    schema up to date first. A store that is passed in belongs to whoever opened it. The timeouts of
    connections follow from `lease`, that of the workers.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        tenant: str = DEFAULT_TENANT,
        migrate: bool = False,
        listen_url: str | None = None,
        secrets_key: str | None = None,
        lease: Seconds = LEASE_SECONDS,
        pool_size: int = POOL_SIZE,
    ) -> None:
        self.tenant = check_name(tenant, what="tenant")
        self._is_owner = isinstance(store, str)
        self.place = place_of(store) if isinstance(store, str) else "this store"  # for messages
        if isinstance(store, str):
            store = store_for(store, listen_url=listen_url, lease=lease, pool_size=pool_size)
        self.store: Store = store
        self.secrets_key = secrets_key
        self._migrates = migrate
        self._coalescer = Coalescer(self._send)
        self._kept: Kept = {}
        self._asking: dict[str, asyncio.Task[Params | None]] = {}
        self._others: dict[str, Client] = {}
        # Called before somebody waits for an execution: where no worker is, it may run it.
        self.on_wait: Callable[[UUID], Awaitable[None]] | None = None

    async def __aenter__(self) -> Self:
        try:
            if self._migrates:
                await self.store.migrate()
            if self._is_owner:
                await self.store.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._is_owner:
            await self.store.close()

    def for_tenant(self, tenant: str) -> Client:
        """A client for another tenant of the same store."""
        if tenant not in self._others:
            other = Client(self.store, tenant=tenant, secrets_key=self.secrets_key)
            other.on_wait, other.place = self.on_wait, self.place
            self._others[tenant] = other
        return self._others[tenant]

    def within(self, scope: Scope) -> Client:
        """A client that sees and changes only the jobs and queues of a scope."""
        store = cast("Store", ScopedStore(self.store, scope))
        return Client(store, tenant=self.tenant, secrets_key=self.secrets_key)

    # The store itself.

    async def health(self) -> Health:
        """What the store says of itself."""
        return await self.store.health()

    async def pending_migrations(self) -> tuple[str, ...]:
        """The steps that `migrate` would make. Needs no entry."""
        return await self.store.pending_migrations()

    async def migrate(self) -> tuple[str, ...]:
        """Bring the schema up to date; answers the steps made. Needs no entry."""
        return await self.store.migrate()

    # Jobs.

    async def define(
        self,
        name: str,
        *,
        author: str = "",
        expect: int | None = None,
        promote: bool = False,
        id: UUID | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Define a job, or change it; answers its current version. See `Store.define_jobs`.

        A schedule that will never fire is refused. `id` is that of a new job, if the caller chose
        one.
        """
        check_options(options, JOB_OPTIONS, "define()")
        now = None if options.get("schedule") is None else (await self.store.health()).now
        definition = check_call(read_definition(name, now=now, **options))
        (job,) = await self.define_jobs(
            [definition], author=author, expect=expect, promote=promote, id=id
        )
        return job

    async def define_jobs(
        self,
        definitions: Iterable[JobDefinition],
        *,
        author: str = "",
        expect: int | None = None,
        promote: bool = False,
        id: UUID | None = None,
    ) -> list[Job]:
        """Define several jobs with their schedules, all or nothing; answers the current version
        of each. Schedules that are over are taken as they are. `id` is for one alone.
        """
        wanted = list(definitions)
        await check_together(self.store, self.tenant, wanted)
        jobs = [
            NewJob(
                id=mint() if id is None else id,
                definition=one,
                author=author,
                expect=expect,
                schedules=schedules,
                promote=promote,
            )
            for one, schedules in zip(wanted, await self.declared(wanted), strict=True)
        ]
        defined = await self.store.define_jobs(self.tenant, jobs)
        self.note_params(defined)
        return defined

    async def delete_job(self, name: str, *, expect: int | None = None, force: bool = False) -> int:
        """Delete a job and cancel its unfinished executions; answers how many. With `expect`, it
        must be at that version. For a deleted job, the rest of that is done. `warnings(name,
        deleting=True)` says before which jobs need it.

        Raises Conflict if a live worker has a task of this name, unless `force` is set.
        """
        if not force:
            await check_undeclared(self.store, self.tenant, name)
        try:
            await self.store.delete_job(self.tenant, name, expect=expect)
        except NotFound:
            # Raises for one that never was.
            await self.store.list_versions(self.tenant, name, limit=1)
        return _cancelled(await self._cancel_where(ExecutionFilter(job=name, states=UNFINISHED)))

    # Executions.

    async def enqueue(
        self,
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
        new = msgspec.structs.replace(
            read_pattern(job, **options),
            args=read_args(args),
            unique_key=None if unique_key is None else check_key(unique_key),
            parent=parent,
        )
        return await self.submit(new)

    async def enqueue_many(
        self,
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
        pattern = msgspec.structs.replace(read_pattern(job, **options), parent=parent)
        rest = iter(args)
        head = list(islice(rest, ENQUEUE_BATCH_MAX + 1))
        if len(head) <= ENQUEUE_BATCH_MAX:
            answers = await self.submit_many(list(copies(pattern, head)))
            return EnqueuedMany(count=len(answers), executions=tuple(answers))
        stream = copies(pattern, chain(head, rest))
        checked = self.checked_calls(await self.params_of(job), stream)
        return EnqueuedMany(count=await self._load(checked))

    async def execution(self, id: Id) -> ExecutionDetail:
        """One execution, with its ended attempts."""
        return await self.store.get_execution(self.tenant, read_id(id))

    async def executions(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page[Execution]:
        """Executions, newest first. A status is a state, or "pending": not started, not ended.

        A page of a search by content (`args`, `unique_key`, `error`, `ended_since`, `ended_until`)
        may be short or empty, and its cursor continues the search.
        """
        where = await self.where(**filters)
        return await self.store.list_executions(self.tenant, where, limit=limit, cursor=cursor)

    async def count(self, **filters: Unpack[Filters]) -> Counts:
        """Count executions by state. A count reads 10,000 of a kind: of the states in `at_least`
        there may be more.
        """
        where = await self.where(**filters)
        content = where.content
        if content is None or content.workers is None:
            return await self.store.count_executions(self.tenant, where)
        rest = msgspec.structs.replace(content, workers=None)
        counts, at_least = Counter[State](), set[State]()
        for worker in content.workers:
            one = msgspec.structs.replace(
                where, worker=worker, content=None if rest == Content() else rest
            )
            found = await self.store.count_executions(self.tenant, one)
            counts.update(found)
            at_least |= found.at_least
        return Counts(counts, at_least=at_least)

    async def why(self, id: Id) -> Reason:
        """Why an execution has not run, or has not ended."""
        return await why(self, str(read_id(id)))

    async def cancel(self, id: Id) -> Cancellation:
        """Cancel an execution: at once if it has not started, else by asking it to stop."""
        (answer,) = await self.store.cancel(self.tenant, [read_id(id)])
        if answer is Cancellation.UNKNOWN:
            raise ExecutionNotFound(f"no execution {id}")
        return answer

    # Queues and workers.

    async def queues(self) -> list[Queue]:
        """Queues with their numbers, by name."""
        return await self.store.list_queues(self.tenant)

    async def pause_queue(self, name: str) -> None:
        """Give out nothing from a queue until it is resumed. What runs goes on."""
        await self.store.pause_queue(self.tenant, check_name(name, what="queue"), paused=True)

    async def resume_queue(self, name: str) -> None:
        """Give out work from a queue again."""
        await self.store.pause_queue(self.tenant, check_name(name, what="queue"), paused=False)

    async def purge_queue(self, name: str, *, on_step: Step = silently) -> int:
        """Cancel all that waits in a queue and was there when this began, nodes of workflows as
        well; answers how many.
        """
        queue = check_name(name, what="queue")
        where = ExecutionFilter(queue=queue, states=PENDING, with_nodes=True)
        return _cancelled(await self._cancel_where(where, on_step))

    async def workers(self, *, include_dead: bool = False) -> list[Worker]:
        """Workers, oldest first."""
        return await self.store.list_workers(self.tenant, include_dead=include_dead)

    async def drain_worker(self, id: Id) -> None:
        """Ask a worker to finish what it has, and claim nothing more."""
        if not await self.store.drain(self.tenant, read_id(id)):
            raise NotFound(f"no live worker {id}")

    async def _enqueue(
        self, executions: Sequence[NewExecution], entries: Sequence[NewEntry] = ()
    ) -> list[Enqueued]:
        try:
            return await self._send(executions, entries)
        except Unavailable as error:
            if not error.was_sent:
                raise
            # Perhaps it was committed and only the answer is lost: the ids tell.
            return await self._send(executions, entries, repeat=True)

    async def _send(
        self,
        executions: Sequence[NewExecution],
        entries: Sequence[NewEntry],
        *,
        repeat: bool = False,
    ) -> list[Enqueued]:
        return await self.store.enqueue(self.tenant, executions, repeat=repeat, entries=entries)

    async def _load(self, executions: Iterable[NewExecution]) -> int:
        last: UUID | None = None
        count = 0

        def counted() -> Iterator[NewExecution]:
            nonlocal count, last
            for one in executions:
                last = one.id
                count += 1
                yield one

        try:
            return await self.store.load(self.tenant, counted())
        except Unavailable:
            # The stream cannot be read again. But it was all or nothing, so its last one tells.
            if last is None or not await self._exists(last):
                raise
            return count

    async def _exists(self, id: UUID) -> bool:
        try:
            await self.store.get_execution(self.tenant, id)
        except NotFound:
            return False
        return True


def _cancelled(answers: Counter[Cancellation]) -> int:
    return answers[Cancellation.CANCELLED] + answers[Cancellation.REQUESTED]
