"""Executions: in, out, and every change between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.audit import NewEntry
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.instant import Instant
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.worker import Claim, Report
from daybell.store.outcomes import Cancellation, Revival


class Executions(Protocol):
    """The hot path: in, out, and every change of state."""

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewEntry] = (),
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

        A job with an overlap rule has a gate of its own, `core.overlap.gate_of`, with one slot;
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
