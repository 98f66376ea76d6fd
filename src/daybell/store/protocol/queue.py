"""The queue port: executions, task transactions, workers with leases, wake-ups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from math import inf
from typing import Any, Protocol
from uuid import UUID

from daybell.core.access import NewAuditEntry
from daybell.core.execution import Cancellation, Enqueued, Losses, NewExecution, Revival
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.units import Instant, Seconds
from daybell.core.worker import Claim, NewWorker, Offer, Renewal, Report, Worker


class Executions(Protocol):
    """The hot path: in, out, and every change of state."""

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewAuditEntry] = (),
    ) -> list[Enqueued]:
        """Create these executions, all or nothing, and answer for each in the order given.

        One whose `unique_key` is held by an unfinished execution of the same job is not
        created: the answer names the holder, with `created=False`; that goes for two of the
        same batch too. `entries` are added to the audit log with them, but for those that are
        there (by id).

        An id that was created is never created again. It is answered as created, whether or not
        its execution has ended, however late, however often and from however many processes it is
        sent, for REPEAT_SECONDS_KEPT. For each id, at most one call is made without `repeat`;
        every other one has `repeat=True`, which says that these may have been sent before (an
        earlier call ended in Unavailable). The order in which the calls arrive does not matter.

        A delay or time in the future makes it `scheduled`. With a gate it is `waiting` until
        the gate has a free slot, and takes one at once if there is and it is due.

        A job with an overlap rule has a gate of its own, `core.schedule.gate_of`, with one slot;
        its executions wait there unless they name another gate. One that the rule does not let in
        raises ExecutionInTheWay, naming the other, and nothing is created; `replace` cancels the
        others first. `force=True` takes a slot, whatever the rule and the room. A delayed one is
        asked when it is due, and then only waits.

        Raises JobNotFound, naming it; UsageError for a row that cannot be kept, naming its
        position, or a gate that does not exist.
        """
        ...

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        """Create very many executions in one transaction, reading the iterable as it goes;
        answers how many.

        The fast lane for bulk: memory stays flat whatever the length. Unique keys, gates and jobs
        with an overlap rule are refused with UsageError here. Raises DuplicateKey if one of the ids
        exists: since a load is all or nothing, an earlier one with these ids was committed.
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

        A terminal target frees the unique key, hands on the gate's slot, and tells the schedule
        that fired it (`succeeded_for`, `failures`, the next time of a fixed delay, and a pause
        after too many failures), all in the same transaction. A way back raises `attempt` and puts
        the ended attempt into the log. All ends are timed by the store.
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
        whatever is reported later. FINISHED and UNKNOWN change nothing. A run is cancelled with its
        nodes: at once if no worker has one of them in its hands.
        """
        ...

    async def expire(self, *, limit: int = 1000) -> int:
        """End, as skipped, what has expired and was not started: also what no worker ever asks for.
        For all tenants, at most so many a call; answers how many. What an earlier program has put
        where no worker asks for it is put in its place; and waits whose time is over end, as by
        `time_out_waits`, and are counted, too.
        """
        ...

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        """Put dead executions back to be claimed, with their counts of failures and crashes at
        zero and `attempt` raised.

        Answers in the order given: REVIVED, NOT_LISTED, UNKNOWN, KEY_HELD where another execution
        holds its unique key now, or OVER_QUOTA for those that the tenant's quota `queued` has no
        room for.
        """
        ...

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        """Take these off the dead-letter list; they stay in history as dead. True for those
        that were on it.
        """
        ...


# Transactions of tasks: what a task writes itself, committed with its end or not at all.


class TaskTransaction(Protocol):
    """A transaction that a running task writes in, on a connection of its own."""

    @property
    def connection(self) -> Any:
        """The driver's connection, for the task to use."""
        ...

    async def finish(self, tenant: str, *, worker: UUID, move: Transition) -> bool:
        """Make this move to `succeeded` and commit, both or neither. False: the move cannot be made
        any more, or cancelling was requested; nothing is written. Raises Unavailable if nobody can
        tell.
        """
        ...

    async def close(self) -> None:
        """Undo everything, unless it was committed, and let go of the connection."""
        ...


class Transactions(Protocol):
    """See above."""

    async def begin(self, worker: UUID) -> TaskTransaction:
        """Begin a transaction for a task of this worker. It ends with the worker's lease: when the
        worker is declared dead, what it wrote is undone and its locks are free. Raises UsageError
        where the store has no transaction to give.
        """
        ...


# Workers and their leases.


class Workers(Protocol):
    """Leases: who is alive, and what to do with the work of those who are not."""

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        """Add a worker, live, its lease ending `lease` seconds from the store's now.
        Registering the same id again is answered like a renewal, unless it is dead:
        LeaseLost.

        `replaces` is the id under which the same worker has stopped all its work, because the
        store was late or away. That one is excused from then on: its lease ends as any other, and
        `lost` says that no execution is to be charged for it.
        """
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

    async def record_sole(self, tenant: str, *, worker: UUID, execution: UUID | None) -> bool:
        """Record which execution is the only suspect that the worker runs; None: there is no such
        one. False: no such live worker.
        """
        ...

    async def lost(
        self,
        *,
        limit: int = 1000,
        since: Instant = -inf,
        not_after: Instant = inf,
        record_every: Seconds = inf,
    ) -> Losses:
        """Mark workers whose lease has ended as dead, and list executions still in the hands of
        dead workers, of any tenant.

        A renewal that comes at the same moment either wins, and the worker lives, or finds
        itself dead. Workers whose row another transaction has locked are left for the next
        time.

        All times are the store's. The caller knows of its clock that it has run evenly from
        `since` on, and infinite means that it knows nothing yet. A lease has ended when its worker
        was silent for so long in watched time: that of the caller, and of those before it
        (`core.worker.Watch`). The caller's is added to the record for others if that is
        `record_every` seconds old. If it is later than `not_after`, the clock has jumped or the
        store was away: no worker is marked, and the record starts again.

        Marking and listing change no execution: the caller decides for each
        (`core.lifecycle.after_loss`) and applies it with `wait=False`. Says in passing whether
        anything waits at a gate, which `admit` may let in.
        """
        ...

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        """Workers of this tenant, oldest first."""
        ...

    async def offers(self, tenant: str) -> list[Offer]:
        """What workers of this tenant offer that are live and hold their lease, in no order. Those
        that offer the same are one, so that the answer is short in a large fleet.
        """
        ...


# News for who waits.


class Wakeups(Protocol):
    """News for who waits. Losing all of it costs latency, never an execution."""

    async def listen(
        self,
        tenant: str,
        queues: Collection[str],
        wake: Callable[[], None],
        *,
        ask: Callable[[], None] | None = None,
    ) -> Callable[[], Awaitable[None]]:
        """Call `wake` when something there may be claimable, and `ask` when a renewal may have news
        for a worker: something it runs is to be cancelled, or it is to drain. Returns what ends it.
        Best effort.
        """
        ...

    async def listen_schedules(self, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `wake` when a schedule of any tenant may be due earlier than was known. Returns what
        ends it. Best effort.
        """
        ...
