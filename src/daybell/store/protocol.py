"""The seam: what every store promises, operation by operation.

Operations speak the domain and come in batches. Decisions are made above (`core/`); a store
only keeps what was decided, if the guard still holds. Every promise in a docstring here is a
test in `tests/store/`, run against all stores.

What holds for all of them:

- **Tenant.** `tenant` binds an operation to one tenant. Another tenant's id is answered exactly
  like an unknown one. A tenant that does not exist raises TenantNotFound. Operations of upkeep,
  which serve all tenants, take none.
- **Time** is the store's own. Delays are added to it inside the store, and no time that a
  caller measured is compared with it.
- **Committed.** An operation that returned is durable. One that raised Unavailable may or may
  not have happened, and is made to be asked again: ids and lease ids come from the caller,
  moves are fenced, and a repetition is answered as done.
- **Errors** are Daybell's own (`daybell.errors`); a driver's exception never gets out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.execution import Enqueued, Execution, ExecutionDetail, NewExecution, State
from daybell.core.instant import Instant, Seconds
from daybell.core.job import Job, NewJob
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.schedule import Firing, NewSchedule, Schedule, TickRecord
from daybell.core.view import ExecutionFilter, Health, Page, Queue, Removed, Retention
from daybell.core.worker import Claim, Leadership, NewWorker, Renewal, Report, Worker
from daybell.store.outcomes import Cancellation, Lost, Revival


class Definitions(Protocol):
    """Tenants, jobs and queues: what there is to run."""

    async def add_tenants(self, names: Sequence[str]) -> None:
        """Create these tenants; ones that exist are left as they are. `default` always exists."""
        ...

    async def list_tenants(self) -> tuple[str, ...]:
        """All tenants, by name."""
        ...

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        """Store these definitions and return the current version of each, in the order given;
        all or nothing.

        A new name becomes version 1. An equal definition changes nothing. A different one
        becomes the next version, unless it equals a superseded one and `promote` is not set:
        then the current one stays. Raises VersionConflict where `expect` does not hold. Several
        callers defining the same job at once get the same answer. A deleted job that is defined
        again lives on under its old id.
        """
        ...

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        """The current version of a job, or the one asked for. Raises JobNotFound; a deleted job
        is not found without a version.
        """
        ...

    async def list_jobs(
        self, tenant: str, *, prefix: str = "", limit: int = 100, cursor: str | None = None
    ) -> Page[Job]:
        """Jobs whose name begins with `prefix`, by name. Deleted ones are not shown."""
        ...

    async def list_versions(self, tenant: str, name: str) -> list[Job]:
        """All versions of a job, newest first; of a deleted one too. Raises JobNotFound."""
        ...

    async def delete_job(self, tenant: str, name: str) -> None:
        """Let the job fire and be enqueued no more: its schedules are gone, its versions and
        executions stay. Raises JobNotFound.
        """
        ...

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        """Stop or resume claims from a queue, at once and for all workers. Enqueueing goes on."""
        ...


class Executions(Protocol):
    """The hot path: in, out, and every change of state."""

    async def enqueue(
        self, tenant: str, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> list[Enqueued]:
        """Create these executions, all or nothing, and answer for each in the order given.

        One whose `unique_key` is held by an unfinished execution of the same job is not
        created: the answer names the holder, with `created=False`; that goes for two of the
        same batch too. One with an id that exists already is not created again and is answered
        as created. `repeat=True` says that these may have been sent before (an earlier call
        ended in Unavailable): then ids that have finished meanwhile are recognised too.

        A delay or time in the future makes it `scheduled`. With a gate it is `waiting` until
        the gate has a free slot, and takes one at once if there is and it is due. Raises
        JobNotFound, naming it; UsageError for a row that cannot be kept, naming its position,
        or a gate that does not exist.
        """
        ...

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        """Create very many executions in one transaction, reading the iterable as it goes;
        answers how many.

        The fast lane for bulk: memory stays flat whatever the length. Unique keys and gates are
        refused with UsageError here. Raises DuplicateKey if one of the ids exists: since a load
        is all or nothing, an earlier one with these ids was committed.
        """
        ...

    async def claim(
        self,
        tenant: str,
        *,
        worker: UUID,
        lease: UUID,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] = ("task",),
    ) -> Claim:
        """Take up to `limit` due executions: best priority first, then queues in the order
        given, then oldest time.

        No execution is ever given to two claims. `lease` is a fresh id made by the caller;
        asking again with the same id returns what that claim took and is still unfinished, and
        takes nothing more. Paused queues give nothing, and a draining worker gets nothing. A
        claim that comes back short says when the next execution will be due, so that an idle
        worker knows how long to sleep.
        Raises LeaseLost if the worker is unknown or dead.
        """
        ...

    async def next_due(
        self, tenant: str, *, queues: Sequence[str], kinds: Sequence[str] = ("task",)
    ) -> Instant | None:
        """When the next execution that such a claim could take is due; in the past if one waits
        already. None: there is none.
        """
        ...

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        """Make these moves of executions that `worker` runs; answer only for those that were
        not simply made.

        Each move stands alone and is atomic; the batch is not all or nothing. A move is made if
        the execution is still running under (attempt, lease, worker); otherwise it is STALE and
        nothing is written. A move that is on record already (this attempt, by this worker, with
        this outcome) is answered as made: its first answer was lost. Where cancelling was
        requested, every move ends it as cancelled, and says so. A row that cannot be kept is
        REFUSED and its neighbours are made. With `wait=False` rows locked by others are BUSY
        instead of waited for.

        A terminal target frees the unique key and hands on the gate's slot in the same
        transaction. A way back raises `attempt` and puts the ended attempt into the log. All
        ends are timed by the store.
        """
        ...

    async def report(
        self, tenant: str, *, worker: UUID, reports: Sequence[Report]
    ) -> list[tuple[UUID, int]]:
        """Write what running tasks show of themselves, under the same fence. Returns the (id,
        attempt) that were stale.
        """
        ...

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        """Cancel these, in the order given.

        Waiting, scheduled, queued and retrying ones end at once (CANCELLED). A running one is
        marked (REQUESTED), stays running, keeps its key and slot, and ends as cancelled
        whatever is reported later. FINISHED and UNKNOWN change nothing.
        """
        ...

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        """Put dead executions back to be claimed, with their counts of failures and crashes at
        zero and `attempt` raised.

        Answers in the order given: REVIVED, NOT_DEAD, UNKNOWN, or KEY_HELD where another
        execution holds its unique key now.
        """
        ...

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        """Take these off the dead-letter list; they stay in history as dead. True for those
        that were on it.
        """
        ...


class Workers(Protocol):
    """Leases: who is alive, and what to do with the work of those who are not."""

    async def register(self, tenant: str, worker: NewWorker, *, lease: Seconds) -> Renewal:
        """Add a worker, live, its lease ending `lease` seconds from the store's now.
        Registering the same id again is answered like a renewal, unless it is dead:
        LeaseLost."""
        ...

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        """Prolong the worker's lease, for all that it runs, in one write. Raises LeaseLost if
        it is unknown or dead.

        `leases` are all claims that the worker knows of, answered or still under way. What it
        holds under any other lease came from a claim whose answer was lost, and is released to
        be claimed again.
        """
        ...

    async def drain(self, tenant: str, worker: UUID) -> bool:
        """Ask a live worker to stop claiming; it learns so at its next renewal or claim. False:
        no such live worker.
        """
        ...

    async def release(self, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
        """Give back all that is unfinished under these leases, uncharged; answers how many."""
        ...

    async def retire(self, tenant: str, worker: UUID) -> None:
        """The worker ends in good order: it is dead from now on. What it still holds is found
        by `lost`.
        """
        ...

    async def lost(self, *, limit: int = 1000) -> list[Lost]:
        """Mark workers whose lease has ended as dead, and list executions still in the hands of
        dead workers, of any tenant.

        A renewal that comes at the same moment either wins, and the worker lives, or finds
        itself dead. Workers whose row another transaction has locked are left for the next
        time. Marking and listing change no execution: the caller decides for each
        (`core.lifecycle.after_loss`) and applies it with `wait=False`.
        """
        ...

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        """Workers of this tenant, oldest first."""
        ...


class Schedules(Protocol):
    """Cursors and ticks."""

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        """Create or replace these schedules, all or nothing; counts and last firing are kept.
        Raises JobNotFound.
        """
        ...

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Remove schedules; their ticks stay on record. Answers how many there were."""
        ...

    async def list_schedules(self, tenant: str, *, job: str | None = None) -> list[Schedule]:
        """Schedules of a tenant, or of one of its jobs, by id."""
        ...

    async def due_schedules(self, *, limit: int = 1000) -> list[Schedule]:
        """Schedules of any tenant whose cursor has come, earliest first. Locks nothing: `fire`
        finds out who was first.
        """
        ...

    async def next_tick(self) -> Instant | None:
        """When the next schedule of any tenant is due."""
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Advance each schedule whose cursor still is `expect`, recording its ticks and
        creating their executions with it.

        True for those that were advanced here; False: somebody else did, or it is paused or
        gone, and nothing was written for it. Cursor, tick and execution of one firing are one
        transaction. A tick that is on record already creates no execution.
        """
        ...

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        """The ticks on record of one schedule, newest first."""
        ...


class Gates(Protocol):
    """Admission: at most so many of a kind at a time. A slot is held from admission to the end,
    through retries.
    """

    async def set_gates(self, tenant: str, capacities: dict[str, int]) -> None:
        """Create gates or change their capacity. More room is given out at once; less takes
        nothing back from those inside.
        """
        ...

    async def admit(self, *, limit: int = 1000) -> int:
        """Admit what waits at gates of any tenant, is due, and finds room: delayed executions
        get in by this. Answers how many.
        """
        ...


class Views(Protocol):
    """What people look at. One statement each, so a page is consistent in itself."""

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        """One execution with its ended attempts. Raises ExecutionNotFound."""
        ...

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        """Executions by id, newest first. Whatever happens between two pages, nothing that was
        there all along is missed or shown twice. Raises UsageError for a cursor that is none of
        ours."""
        ...

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> dict[State, int]:
        """How many there are in each state; states without any are left out."""
        ...

    async def list_queues(self, tenant: str) -> list[Queue]:
        """Queues that have work, or were paused, or are a job's, by name."""
        ...


class Upkeep(Protocol):
    """What one node does for all."""

    async def lead(self, name: str, *, holder: UUID, lease: Seconds) -> Leadership | None:
        """Take or keep the leadership of that name. None: another holder's lease lasts. A new
        holder gets a higher epoch.
        """
        ...

    async def resign(self, name: str, *, holder: UUID) -> None:
        """Give leadership up, if held, so that another need not wait."""
        ...

    async def retain(self, policy: Retention) -> Removed:
        """Remove what is over and older than the policy keeps, a bounded amount a call, and
        prepare room for days to come.
        """
        ...

    async def health(self) -> Health:
        """Product, time, schema and the settings that durability depends on."""
        ...


class Wakeups(Protocol):
    """News for who waits. Losing all of it costs latency, never an execution."""

    async def listen(
        self, tenant: str, queues: Collection[str], wake: Callable[[], None]
    ) -> Callable[[], Awaitable[None]]:
        """Call `wake` when something there may be claimable; returns what ends it. Best effort."""
        ...


class Store(Wakeups, Definitions, Executions, Workers, Schedules, Gates, Views, Upkeep, Protocol):
    """A place where executions are kept."""

    async def open(self) -> None:
        """Connect, and check that the schema fits this program. Raises SchemaError with what to
        do, or Unavailable.
        """
        ...

    async def pending_migrations(self) -> tuple[str, ...]:
        """Names of the schema's steps that are still to be made. Raises SchemaError if the
        schema is newer or damaged.
        """
        ...

    async def migrate(self) -> tuple[str, ...]:
        """Bring the schema up to date, under a lock, and answer the names of the steps made.
        Several at once make each once.
        """
        ...

    async def close(self) -> None:
        """Let go of all connections. What is under way is finished first. Closing twice is
        fine.
        """
        ...
