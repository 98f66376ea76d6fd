"""The client of a store: a tenant's jobs, executions, queues and workers, as verbs. A method reads
its arguments as users write them, checks them, and calls the store. It repeats a call with a lost
answer once, under the same ids, so that its effect happens exactly once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, cast
from uuid import UUID

import msgspec

from daybell.client.admin import Access, Audits, Idempotency, Secrets, Tenants
from daybell.client.declarations import Declarations, Templates, Warnings
from daybell.client.events import Events, Timelines
from daybell.client.executions import (
    RETRY_OUTCOMES,
    UNFINISHED_STATES,
    Coalescer,
    DeadLetters,
    EnqueuedMany,
    ExecutionsByFilter,
    Logs,
    ProgressCallback,
    RetryOutcome,
    Submissions,
    clone_execution,
    ignore_progress,
    is_dead_letter,
    key_held_error,
    load_truncated,
    sweep_pages,
)
from daybell.client.explain import Overviews, Reason, describe_store, find_reason
from daybell.client.job_checks import (
    ParamsCache,
    WorkflowCalls,
    check_call,
    check_definitions,
    check_undeclared,
)
from daybell.client.requests import (
    JOB_OPTIONS,
    MANY_OPTIONS,
    ONE_OPTIONS,
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
from daybell.client.runs import WorkflowRun
from daybell.client.schedules import Backfills, Schedules
from daybell.client.when import Arguments, Dependencies
from daybell.core.access import NewAuditEntry, Scope
from daybell.core.execution import (
    PENDING,
    Cancellation,
    Enqueued,
    Execution,
    ExecutionDetail,
    NewExecution,
    Revival,
    State,
)
from daybell.core.ids import mint
from daybell.core.job import DEFAULT_TENANT, Job, JobDefinition, NewJob
from daybell.core.limits import (
    ENQUEUE_BATCH_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    POOL_SIZE,
    check_key,
    check_name,
)
from daybell.core.units import Seconds
from daybell.core.views import Content, Counts, ExecutionFilter, Health, Page, Queue
from daybell.core.worker import LEASE_SECONDS, Worker
from daybell.core.workflow.graph import Params
from daybell.errors import Conflict, ExecutionNotFound, NotFound, Unavailable, UsageError, listed
from daybell.store.admin import QUEUED_WAIT_SECONDS, quota_error
from daybell.store.open import store_for
from daybell.store.protocol import Store
from daybell.store.scope import ScopedStore

if TYPE_CHECKING:
    from daybell.store.postgres.transactions import SqlCall

# Executions by their ids, one or many: cancelled, or run again.

AuditEntryMaker = Callable[
    [UUID], NewAuditEntry
]  # what the audit log is told of an execution that runs again

_HANDLED: Final = (Revival.REVIVED, Revival.KEY_HELD, Revival.OVER_QUOTA)


class ExecutionsById:
    """The verbs of `Client` for executions that are named one by one."""

    store: Store
    tenant: str

    async def submit_many(
        self, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> list[Enqueued]:
        raise NotImplementedError  # see `Submissions`

    async def _renew(
        self, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> Counter[RetryOutcome]:
        raise NotImplementedError  # see `Bulk`

    async def rerun_as(
        self,
        old: Execution,
        new: NewExecution,
        *,
        from_: str | Sequence[str] | None,
        repeat: bool = False,
    ) -> Enqueued:
        raise NotImplementedError  # see `Workflows`

    async def run_of(self, execution: Execution) -> WorkflowRun | None:
        raise NotImplementedError  # see `Workflows`

    async def rerun_cancelled(
        self, olds: Sequence[Execution], request: UUID | None, *, repeat: bool
    ) -> tuple[list[Execution], int]:
        raise NotImplementedError  # see `Workflows`

    async def retry(
        self,
        id: Id,
        *,
        force: bool = False,
        request: UUID | None = None,
        repeat: bool = False,
        told: AuditEntryMaker | None = None,
        from_: str | None = None,
    ) -> Enqueued:
        """Run it again: a dead one itself, a cancelled one as a new execution with the same
        arguments. `force` does the latter for one that succeeded, or was discarded.

        Of a workflow's run, what has succeeded is kept, unless `force` is used. `from_` names a
        node of it to begin with, as a new execution; then it may have ended in any way.

        The id of a new one follows from that of a `request`; `repeat` says that it may have been
        asked for before. What is `told` goes to the audit log in the same transaction.
        """
        old = (await self.store.get_execution(self.tenant, read_id(id))).execution
        if old.node is not None:
            raise Conflict(
                f"execution {old.id} is node {old.node} of run {old.parent}; retry that, which goes"
                f" on with what failed (or from this node: --from {old.node})"
            )
        if from_ is not None:
            new = clone_execution(old, request)
            with self._telling(told, new.id):
                return await self.rerun_as(old, new, from_=from_, repeat=repeat)
        if is_dead_letter(old):
            with self._telling(told, old.id):
                return await self._revive(old)
        is_over = old.state is State.SUCCEEDED or old.is_discarded
        if old.state is State.CANCELLED or (is_over and force):
            new = clone_execution(old, request)
            with self._telling(told, new.id):
                if not is_over and await self.store.get_run(self.tenant, old.id) is not None:
                    return await self.rerun_as(old, new, from_=None, repeat=repeat)
                return await self._run_again(old, new, repeat=repeat)
        if is_over:
            what = "was discarded" if old.is_discarded else "has succeeded"
            failed = await self._failed_in(old)
            raise Conflict(
                f"execution {old.id} {what}{failed}; force=True (or --force) runs it again, as a"
                " new one"
            )
        raise Conflict(
            f"execution {old.id} is {old.state}; only a dead, cancelled or succeeded one can be"
            " retried"
        )

    async def _failed_in(self, old: Execution) -> str:
        """What failed in a run that succeeded all the same, and how to begin with that."""
        run = await self.run_of(old) if old.state is State.SUCCEEDED else None
        if run is None or not run.failed:
            return ""
        first = run.failed[0]
        return (
            f", with failed nodes: {listed(run.failed)}; from_={first!r} (or --from"
            f" {first}) runs that and what depends on it again"
        )

    async def cancel_picked(self, ids: Iterable[Id]) -> Counter[Cancellation]:
        """Cancel these; answers how many went which way. One that cannot be stops no other."""
        answers: Counter[Cancellation] = Counter()
        for some in _split_batches(ids):
            answers.update(await self.store.cancel(self.tenant, some))
        return answers

    async def retry_picked(
        self,
        ids: Iterable[Id],
        *,
        force: bool = False,
        request: UUID | None = None,
        repeat: bool = False,
    ) -> Counter[RetryOutcome]:
        """Run these again, each as `retry` would; answers how many went which way. One that cannot
        run stops no other. `request` and `repeat` as there.
        """
        answers: Counter[RetryOutcome] = Counter()
        for some in _split_batches(ids):
            revivals = await self.store.revive(self.tenant, some)
            handled = [one for one in revivals if one in _HANDLED]
            answers.update(RETRY_OUTCOMES[one] for one in handled)
            others = [id for id, one in zip(some, revivals, strict=True) if one not in _HANDLED]
            olds, rest = await self._renewable(others, force=force)
            answers += rest
            olds, begun = await self.rerun_cancelled(olds, request, repeat=repeat)
            answers += Counter({RetryOutcome.RENEWED: begun})
            answers += await self._renew(
                [clone_execution(old, request) for old in olds], repeat=repeat
            )
        return answers

    async def _renewable(
        self, ids: Sequence[UUID], *, force: bool
    ) -> tuple[list[Execution], Counter[RetryOutcome]]:
        """Those of a batch that can run again as new ones, and what is in the way of the rest."""
        rest: Counter[RetryOutcome] = Counter()
        if not ids:
            return [], rest
        where = ExecutionFilter(ids=frozenset(ids))
        pages = sweep_pages(self.store, self.tenant, [where])
        found = [one async for page in pages for one in page]
        rest[RetryOutcome.UNKNOWN] = len(ids) - len(found)
        olds: list[Execution] = []
        for old in found:
            obstacle = _find_obstacle(old, force=force)
            if obstacle is None:
                olds.append(old)
            else:
                rest[obstacle] += 1
        return await load_truncated(self.store, self.tenant, olds), +rest

    def _telling(self, told: AuditEntryMaker | None, id: UUID) -> AbstractContextManager[None]:
        return nullcontext() if told is None else self.store.auditing(self.tenant, told(id))

    async def _revive(self, old: Execution) -> Enqueued:
        (answer,) = await self.store.revive(self.tenant, [old.id])
        if answer is Revival.KEY_HELD:
            raise key_held_error(old)
        if answer is Revival.OVER_QUOTA:
            most = (await self.store.get_tenant(self.tenant)).quotas.queued or 0
            raise quota_error(self.tenant, "queued", most=most, wait=QUEUED_WAIT_SECONDS)
        if answer is not Revival.REVIVED:
            raise Conflict(f"execution {old.id} is not dead any more; look at it again")
        return Enqueued(old.id, created=False)

    async def _run_again(self, old: Execution, new: NewExecution, *, repeat: bool) -> Enqueued:
        (answer,) = await self.submit_many([new], repeat=repeat)
        if not answer.created:
            raise key_held_error(old)
        return answer


def _find_obstacle(old: Execution, *, force: bool) -> RetryOutcome | None:
    """What keeps an execution that is no dead letter from running again as a new one."""
    if old.node is not None:
        return RetryOutcome.NOT_RETRYABLE  # it runs with its run
    if old.state is State.CANCELLED:
        return None
    if old.state is State.SUCCEEDED or old.is_discarded:
        return None if force else RetryOutcome.NEEDS_FORCE
    return RetryOutcome.CHANGED if old.state is State.DEAD else RetryOutcome.NOT_RETRYABLE


def _split_batches(ids: Iterable[Id]) -> Iterable[Sequence[UUID]]:
    wanted = list(dict.fromkeys(read_id(id) for id in ids))
    for start in range(0, len(wanted), PAGE_ITEMS_MAX):
        yield wanted[start : start + PAGE_ITEMS_MAX]


class Client(
    Declarations,
    Templates,
    Warnings,
    Schedules,
    WorkflowCalls,
    Submissions,
    Backfills,
    Dependencies,
    Timelines,
    ExecutionsByFilter,
    ExecutionsById,
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
        self.place = (
            describe_store(store) if isinstance(store, str) else "this store"
        )  # for messages
        if isinstance(store, str):
            store = store_for(store, listen_url=listen_url, lease=lease, pool_size=pool_size)
        self.store: Store = store
        self.secrets_key = secrets_key
        self._migrates = migrate
        self._coalescer = Coalescer(self._send)
        self._kept: ParamsCache = {}
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
        await check_definitions(self.store, self.tenant, wanted)
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
        return _count_cancelled(
            await self._cancel_where(ExecutionFilter(job=name, states=UNFINISHED_STATES))
        )

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
        return await find_reason(self, str(read_id(id)))

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

    async def purge_queue(self, name: str, *, on_step: ProgressCallback = ignore_progress) -> int:
        """Cancel all that waits in a queue and was there when this began, nodes of workflows as
        well; answers how many.
        """
        queue = check_name(name, what="queue")
        where = ExecutionFilter(queue=queue, states=PENDING, with_nodes=True)
        return _count_cancelled(await self._cancel_where(where, on_step))

    async def workers(self, *, include_dead: bool = False) -> list[Worker]:
        """Workers, oldest first."""
        return await self.store.list_workers(self.tenant, include_dead=include_dead)

    async def drain_worker(self, id: Id) -> None:
        """Ask a worker to finish what it has, and claim nothing more."""
        if not await self.store.drain(self.tenant, read_id(id)):
            raise NotFound(f"no live worker {id}")

    async def _enqueue(
        self, executions: Sequence[NewExecution], entries: Sequence[NewAuditEntry] = ()
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
        entries: Sequence[NewAuditEntry],
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


def _count_cancelled(answers: Counter[Cancellation]) -> int:
    return answers[Cancellation.CANCELLED] + answers[Cancellation.REQUESTED]


class BorrowedConnection:
    """A connection of the caller, and enqueueing inside its transaction."""

    def __init__(self, connection: Any, *, is_async: bool) -> None:
        from daybell.store.postgres import PostgresStore, transactions  # loads asyncpg

        transactions.check_connection(connection, is_async=is_async)
        self._connection = connection
        self._store_type = PostgresStore
        self._transactions = transactions

    async def prepare(
        self,
        client: Client,
        job: str,
        args: Iterable[Arguments],
        *,
        unique_key: str | None = None,
        parent: UUID | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> SqlCall:
        """Check one execution per item as any enqueue does, and make its queue known to the store.

        That is done over the client's own connection and committed. In the caller's transaction a
        new queue would keep others waiting until it ends.
        """
        store = client.store
        if not isinstance(store, self._store_type):
            raise UsageError(
                "connection= needs the PostgreSQL store, in the database that the connection is to;"
                f" this app keeps its executions in a {type(store).__name__}",
                field="connection",
            )
        pattern = read_pattern(job, **options)
        if pattern.force:
            raise UsageError(
                "force is not available with connection=; enqueue it outside of the transaction",
                field="force",
            )
        executions = list(islice(copies(pattern, args), ENQUEUE_BATCH_MAX + 1))
        if len(executions) > ENQUEUE_BATCH_MAX:
            raise UsageError(
                f"more than {ENQUEUE_BATCH_MAX:,} executions at once; with a connection, call it"
                " several times in the same transaction",
                field="items",
            )
        await store.resolve(client.tenant, [pattern])
        return self._transactions.SqlCall(
            job=job,
            args=[execution.args for execution in executions],
            options=_call_options(pattern, unique_key, client.tenant),
            parent=None if parent is None else str(parent),
        )

    async def send(self, call: SqlCall) -> list[Enqueued]:
        """Enqueue in the caller's transaction, over an asynchronous connection."""
        return await self._transactions.send(self._connection, call)

    def send_sync(self, call: SqlCall) -> list[Enqueued]:
        """Enqueue in the caller's transaction, over a connection of the calling thread."""
        return self._transactions.send_sync(self._connection, call)


def _call_options(pattern: NewExecution, unique_key: str | None, tenant: str) -> str:
    """The options as `daybell.enqueue` takes them, without those that were not given."""
    options = {
        "tenant": tenant,
        "delay": pattern.delay,
        "at": pattern.at,
        "expires": pattern.expires_in,
        "priority": pattern.priority,
        "queue": pattern.queue,
        "unique_key": None if unique_key is None else check_key(unique_key),
        "retries": pattern.retries,
        "timeout": pattern.timeout,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return msgspec.json.encode(given).decode()
