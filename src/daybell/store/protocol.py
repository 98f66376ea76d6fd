"""Operations that every store offers, grouped by room, with their contract."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Protocol, Self
from uuid import UUID

from daybell.core.access import (
    ALL_ENTRIES,
    NO_QUOTAS,
    AuditEntry,
    AuditFilter,
    ChainSegment,
    Key,
    NewAuditEntry,
    NewKey,
    NewRequest,
    NewSecret,
    NewSession,
    Quotas,
    Request,
    SealedSecret,
    Secret,
    Tenant,
)
from daybell.core.alerts.incidents import AlertWork, Incident, IncidentMove
from daybell.core.event import Event, NewEvent, NewStep, NodeWait, Published, Step
from daybell.core.execution import (
    AttemptSpan,
    Cancellation,
    Claimed,
    Enqueued,
    Execution,
    ExecutionDetail,
    LogPart,
    Losses,
    NewExecution,
    NewLogPart,
    Revival,
)
from daybell.core.flow import LimitChange, LimitState, LimitWait
from daybell.core.job import Job, JobActivity, NewJob, NewT, RecordKind, StoredT
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.logs import FoundPart, LogPlace
from daybell.core.monitoring.stats import StatQuery, StatRows, StatTotal
from daybell.core.options import Keep
from daybell.core.placement import DemandingLane
from daybell.core.schedule import (
    Dependents,
    Due,
    Ended,
    Firing,
    NewSchedule,
    Occurrence,
    Schedule,
    ScheduleRewind,
    TickRecord,
    Upstream,
)
from daybell.core.subscription import Dispatch, OutboxWork
from daybell.core.units import Instant, Seconds
from daybell.core.views import (
    ALL_JOBS,
    DEFAULT_RETENTION,
    SWEEPS,
    Activity,
    Backlog,
    Counts,
    ExecutionFilter,
    Health,
    JobFilter,
    Miscount,
    Page,
    Position,
    Queue,
    Retention,
    SweepKind,
    Swept,
)
from daybell.core.when.file import FileMark
from daybell.core.worker import (
    Claim,
    Leadership,
    NewWorker,
    Offer,
    Renewal,
    Report,
    TenantWork,
    Worker,
)
from daybell.core.workflow.run import Plan, RunDetail


class TaskTransaction(Protocol):
    """A transaction of a running task, on its own connection."""

    @property
    def connection(self) -> Any:
        """Return the driver's connection, for the task to use."""
        ...

    async def finish(self, tenant: str, *, worker: UUID, move: Transition) -> bool:
        """Make this move to `succeeded` and commit, both or neither. Return False, and write
        nothing, if the move cannot be made any more or cancelling was requested. Raises Unavailable
        if the result cannot be known.
        """
        ...

    async def close(self) -> None:
        """Undo everything, unless it was committed, and release the connection."""
        ...


class QueuePort(Protocol):
    """The hot path, workers and their leases: every way into, through and out of the queue."""

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewAuditEntry] = (),
    ) -> list[Enqueued]:
        """Create these executions, all or nothing, and answer for each in the order given.

        An execution is not created if an unfinished execution of the same job holds its
        `unique_key`: the answer names the holder, with `created=False`. This applies to two
        executions of the same batch, too. `entries` are added to the audit log with them, except
        those that it already has (by id).

        An id that was created is never created again. The store answers it as created, whether or
        not its execution has ended, however late, however often and from however many processes it
        is sent, for REPEAT_SECONDS_KEPT. For each id, at most one call is made without `repeat`.
        Every other call has `repeat=True`: these executions may have been sent before (an earlier
        call ended in Unavailable). The order in which the calls arrive does not matter.

        A delay or a time in the future makes an execution `scheduled`. An execution with a gate is
        `waiting` until the gate has a free slot. If it is due, it takes a free slot at once.

        A job with an overlap rule has its own gate with one slot, `core.schedule.gate_of`. Its
        executions wait there unless they name another gate. If the rule refuses an execution, the
        call raises ExecutionInTheWay, naming the other, and creates nothing; `replace` cancels the
        others first. `force=True` takes a slot regardless of the rule and the room. A delayed
        execution is checked when it is due, and then only waits.

        Raises JobNotFound, naming the job; UsageError for a row that cannot be stored, naming its
        position, or for a gate that does not exist.
        """
        ...

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        """Create very many executions in one transaction, reading the iterable as it goes. Return
        the number.

        The fast path for bulk: memory use does not grow with the length. Unique keys, gates and
        jobs with an overlap rule are refused with UsageError here. Raises DuplicateKey if one of
        the ids exists: a load is all or nothing, so one with these ids was committed.
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
        """Take up to `limit` due executions: best priority first, then queues in the order given,
        then oldest time.

        No execution is ever given to two claims. The caller creates a new id as `lease`. A call
        with the same id again returns the executions of that claim that are still unfinished, and
        takes no more. Paused queues give nothing, and a draining worker gets nothing. A claim that
        returns fewer than `limit` reports when the next execution will be due, so that an idle
        worker knows how long to sleep. Raises LeaseLost if the worker is unknown or dead.
        """
        ...

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        """Make these moves of executions that `worker` runs. Return answers only for those that
        were not simply made.

        Each move is independent and atomic; the batch is not all or nothing. The store makes a move
        if the execution is still running under (attempt, lease, worker). Otherwise the move is
        STALE and nothing is written. A move that is already on record (this attempt, by this
        worker, with this outcome) is answered as made: its first answer was lost. If cancelling was
        requested, every move ends the execution as cancelled, and the answer says so. A row that
        cannot be stored is REFUSED, and the other moves are made. With `wait=False`, rows locked by
        others are BUSY instead of waited for.

        A terminal target releases the unique key, passes on the gate's slot, and updates the
        schedule that fired the execution (`succeeded_for`, `failures`, the next time of a fixed
        delay, and a pause after too many failures), all in the same transaction. A move back raises
        `attempt` and puts the ended attempt into the log. An end also writes the progress that it
        carries; a move back removes all progress. The store sets the times of all ends.
        """
        ...

    async def report(
        self, tenant: str, *, worker: UUID, reports: Sequence[Report]
    ) -> list[tuple[UUID, int]]:
        """Write the reports of running tasks, under the same fence. Return the (id, attempt) pairs
        that were stale.
        """
        ...

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        """Cancel these executions, in the order given.

        Waiting, scheduled, queued and retrying ones end at once (CANCELLED). A running one is
        marked (REQUESTED), stays running, keeps its key and slot, and ends as cancelled regardless
        of later reports. FINISHED and UNKNOWN change nothing. A run is cancelled with its nodes: at
        once if no worker holds one of them.
        """
        ...

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        """Make dead executions claimable again, with their counts of failures and crashes at zero
        and `attempt` raised.

        Return the answers in the order given: REVIVED, NOT_LISTED, UNKNOWN, KEY_HELD if another
        execution holds the unique key now, or OVER_QUOTA if the tenant's quota `queued` has no room
        for it.
        """
        ...

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        """Remove these executions from the dead-letter list; they stay in history as dead. Return
        True for those that were on it.
        """
        ...

    async def begin(self, worker: UUID) -> TaskTransaction:
        """Begin a transaction for a task of this worker. It ends with the worker's lease: when the
        worker is declared dead, its writes are undone and its locks are free. Raises UsageError if
        the store has no transactions for tasks.
        """
        ...

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        """Add a live worker with a lease that ends `lease` seconds from the store's now.
        Registering the same id again is answered like a renewal, but raises LeaseLost if the worker
        is dead.

        `replaces` is the id under which the same worker has stopped all its work, because the store
        was late or unavailable. That id is excused from then on: its lease ends as any other, and
        `lost` reports that no execution is to be charged for it.
        """
        ...

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        """Extend the worker's lease, for all that it runs, in one write. Raises LeaseLost if the
        worker is unknown or dead.

        `leases` are all claims that the worker knows of, answered or still in progress. If the
        worker holds an execution under another lease, the answer to that claim was lost. The store
        releases the execution to be claimed again.
        """
        ...

    async def renew_idle(
        self, tenant: str, *, workers: Collection[UUID], lease: Seconds
    ) -> dict[UUID, Renewal]:
        """Extend the leases of many workers that know of no claim, in one write. Workers that are
        unknown, dead, or hold an execution are left as they are and out of the answer: `renew` is
        for these.
        """
        ...

    async def drain(self, tenant: str, worker: UUID) -> bool:
        """Ask a live worker to stop claiming; its next renewal or claim tells it. Return False if
        there is no such live worker.
        """
        ...

    async def release(self, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
        """Release all that is unfinished under these leases, uncharged. Return the number."""
        ...

    async def retire(self, tenant: str, worker: UUID) -> None:
        """End the worker in good order: it is dead from now on. `lost` finds the executions that it
        still holds.
        """
        ...

    async def record_sole(self, tenant: str, *, worker: UUID, execution: UUID | None) -> bool:
        """Record which execution is the only suspect that the worker runs; None: there is no such
        execution. Return False if there is no such live worker.
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
        """Mark workers as dead if their lease has ended, and list executions that dead workers
        still hold, of any tenant.

        A renewal that comes at the same moment either wins, and the worker lives, or finds the
        worker dead. If another transaction has locked the row of a worker, that worker is left for
        the next call.

        All times are the store's. The caller knows that its clock has run evenly from `since` on;
        infinite means that it knows nothing yet. A lease has ended when its worker was silent for
        so long in watched time: that of the caller, and of the callers before it
        (`core.worker.Watch`). The caller's time is added to the record for others if the record is
        `record_every` seconds old. If the time is later than `not_after`, the clock has jumped or
        the store was unavailable: no worker is marked, and the record starts again.

        Marking and listing change no execution: the caller decides for each
        (`core.lifecycle.after_loss`) and applies the decision with `wait=False`. The answer also
        reports whether an execution waits at a gate, which `admit` may let in.
        """
        ...

    async def read_traces(self, tenant: str, ids: Sequence[UUID]) -> dict[UUID, str]:
        """Return the contexts of traces of those executions that were enqueued with one, for
        somewhat longer than they are unfinished.
        """
        ...

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        """Store log parts of executions that `worker` holds under these leases, and skip all
        others. A part that is already stored stays as it is.
        """
        ...


class SchedulesPort(Protocol):
    """Cursors and ticks of schedules, and jobs that depend on jobs."""

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        """Create or replace these schedules, all or nothing; counts and last firing are kept. A
        schedule of a paused job is paused. A schedule with `own_gate` has its own gate,
        `core.schedule.gate_of(job, id)`; `retain` removes the gate some time after the schedule.
        Wakes the callers that wait for a schedule. Raises JobNotFound.
        """
        ...

    async def list_listeners(self, tenant: str, event: str) -> list[Schedule]:
        """Return the schedules that events of this name fire."""
        ...

    async def watched_files(self, tenant: str, root: str) -> dict[str, FileMark]:
        """Return the files below a root that have fired, by path, as they were then."""
        ...

    async def note_files(
        self, tenant: str, root: str, *, seen: Mapping[str, FileMark], gone: Collection[str] = ()
    ) -> None:
        """Record files that have fired, and forget those that are gone."""
        ...

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Remove schedules and return how many there were; their ticks stay on record."""
        ...

    async def list_schedules(
        self,
        tenant: str,
        *,
        ids: Collection[UUID] | None = None,
        job: str | None = None,
        after: UUID | None = None,
        limit: int = 1000,
    ) -> list[Schedule]:
        """Return the first schedules of a tenant after the id `after`, in the order of ids. With
        `ids`, return those of them that exist and that belong to the job, if one is given. The cost
        does not depend on the number of other schedules.
        """
        ...

    async def list_job_schedules(
        self, tenant: str, job: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Schedule]:
        """Return a page of the schedules of one job: the declared ones, then those created at run
        time, each in the order of next times. A schedule that fires between two pages may be on
        both. The cost does not depend on their number. A page ends at PAGE_BYTES_MAX bytes, with at
        least one schedule. Raises JobNotFound, and UsageError for an invalid cursor.
        """
        ...

    async def next_schedules(self, tenant: str, *, limit: int = 10) -> list[Schedule]:
        """Return the schedules of a tenant that fire next, earliest first. Of all tenants, the next
        SCAN_ITEMS_MAX schedules are read.
        """
        ...

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        """Return the schedules of any tenant that are due by their cursor, earliest first, and the
        time when the next one will be due. Locks nothing: `fire` decides which caller was first.
        With `free`, leave out schedules that another transaction holds now, which costs more. With
        `after`, return only those that come after that one in this order.
        """
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Advance each schedule if its cursor is still `expect`, and record its ticks and create
        their executions with it.

        Return True for those that were advanced here. Return False, and write nothing for the
        schedule, if another caller advanced it or holds it now, or if it is paused or gone. The
        call waits for no other. Return False, too, if a missed tick is already on record, as when
        the cursor was set back: its range would be lost, so it has to begin after the ticks on
        record. Cursor, tick and execution of one firing are one transaction. A tick that is already
        on record creates no execution. If the job's overlap rule refuses an execution, the tick and
        the execution are recorded as skipped; a fixed delay then begins anew.
        """
        ...

    async def schedules_ahead(
        self, *, by: Seconds, limit: int = 1000, after: UUID | None = None
    ) -> Due:
        """Return schedules that are not paused and have a cursor that was set while the store's
        clock was ahead of now by more than `by`. The order is by id, from the one after `after` on.
        """
        ...

    async def turn_back(self, turns: Sequence[ScheduleRewind]) -> list[bool]:
        """Set back each cursor that is still `expect`, and remove its missed ticks after `now` from
        the record and the counts. Ticks that were fired or skipped stay on record. Wakes
        schedulers. Return True for each that was set back.
        """
        ...

    async def pause_job(self, tenant: str, name: str, *, note: str = "") -> None:
        """Stop the job's schedules until it is resumed; the job can still be enqueued. A paused job
        gets the new note. Raises JobNotFound.
        """
        ...

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        """Resume the schedules of a paused job, after these firings have advanced them: no time
        that came due in the meantime fires unless `firings` say so. Schedules that `fire` would not
        advance, though resumed, are left unchanged. Raises JobNotFound.
        """
        ...

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        """Return the ticks on record of one schedule, newest first."""
        ...

    async def list_occurrences(
        self, tenant: str, schedule: UUID, *, since: Instant, until: Instant, limit: int = 10_000
    ) -> list[Occurrence]:
        """Return executions of a schedule for ticks from `since` to `until`, both included: by
        tick, then in the order of creation.
        """
        ...

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        """Return the candidates that may be ready, of any tenant: schedules that fire after others
        and are not paused, and executions that wait for dependencies and have reached their time.
        Return at most `limit` of each, by id, beginning after this one. Locks nothing.
        """
        ...

    async def ended_since(
        self, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
    ) -> list[Ended]:
        """Return the ends of each job since then. A job that does not exist has none.

        The answer may miss a success that is not among the newest ended executions of the job; it
        reads `core.schedule.LOOKED_AT_MAX` of these. With `thoroughly`, it misses none, but may
        read all executions of the job since then.
        """
        ...

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        """Return the state of each job at a time: that of its latest execution due by then.

        An execution of a schedule was due at its tick. Any other was due when it could be claimed
        first; once that attempt has ended, when it was created. Of two that were due at the same
        time, the one that was created later counts. The time of creation decides, not the order of
        the ids; `core.schedule.LOOKED_AT_MAX` executions are compared. If an unfinished execution
        is later than all ended ones, the state is that of any such. A job that was deleted has no
        execution.
        """
        ...

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Release these executions, if they still wait for dependencies: they can be claimed, or
        wait only for a slot of their gate now. Return how many there were.
        """
        ...

    async def rule_out_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Skip these, if they still wait for dependencies. Return how many there were."""
        ...


class RunsPort(Protocol):
    """Workflow runs, steps of durable functions, and the events that they wait for.

    A run is the content of a workflow's execution, once it has begun.

    No worker holds an expanded run: it is running without a worker and a lease, and ends with its
    last node. Its nodes' executions have it as `parent` and their label as `node`. However one of
    them ends (`apply`, `cancel`, `expire`, …), the same transaction takes the run's lock, drives
    `core.workflow.progress.advance`, and writes the changes: children that can start are executions
    from then on, and the last end is the end of the run. Such an execution is no dead letter, and
    holds no unique key.
    """

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        """Begin a run that `worker` holds: store its nodes and start the first, in one transaction.

        The fence is that of `apply`: return False, and write nothing, if the worker no longer holds
        the run. If cancelling was requested before, the run ends here as cancelled. The run stays
        the same attempt, without a worker: no late report of the claim matches any more, and
        neither a repeated claim nor a reaper finds it.

        A run that was revived, or that takes over from another (`rerun`), already has its nodes: it
        continues with those, and `plan` is ignored.

        Raises InvalidWorkflow for a run that is deeper inside others than WORKFLOW_LEVELS_MAX, and
        writes nothing: the worker still holds it.
        """
        ...

    async def get_run(self, tenant: str, id: UUID) -> RunDetail | None:
        """Return a run's nodes in order, without items of mapped ones; None: it has none (yet).

        A node that has an execution is shown with its state.
        """
        ...

    async def node_attempts(
        self, tenant: str, id: UUID, *, limit: int = 20
    ) -> dict[UUID, tuple[AttemptSpan, ...]]:
        """Return the newest attempts at the nodes of a run, by their executions, oldest first,
        including the one in progress. Items of mapped nodes are left out; there are too many.

        The cost is that of the nodes that have begun, however long the history is.
        """
        ...

    async def rerun(
        self, tenant: str, id: UUID, new: NewExecution, *, labels: Sequence[str] | None = None
    ) -> Enqueued:
        """Begin a new run, under the version of an old run that has ended. It starts with these
        nodes and all that depends on them, and takes over the rest. None: the nodes that did not
        succeed. The new run is enqueued like any execution, and begins when it is claimed and
        expanded. Raises UsageError for a label that is not in the old run, and for an execution
        that is no run or has not ended; ExecutionNotFound; and the errors of `enqueue`.

        A dead run itself continues with `revive`, which keeps the nodes that succeeded: the run
        becomes claimable again, like any dead letter, and continues when it is expanded.
        """
        ...

    async def steps(self, tenant: str, id: UUID) -> list[Step]:
        """Return the steps of an execution, by their place. An unknown one has none."""
        ...

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        """Write these steps in one transaction, and return the step on record for each now.

        None: the execution is not running under (attempt, lease, worker) any more, and nothing was
        written for it. A step that is on record as done stays as it is, and is returned so. A step
        that is not done is replaced, except its beginning: `started_at`, and the `wake_at` of a
        sleep or a wait.

        A sleep is done at once; its `wake_at` is the store's now plus its delay. A wait is done if
        an event fits that was received since the execution was created, in the time of the wait,
        and that no other wait of it got, the oldest of those; its result is `core.event.result_of`
        it. Otherwise it is open until an event fits or its time is over (done, without a result).
        If a wait ends, and its execution runs or can be claimed, the other waits of the execution
        are closed: each attempt records its waits anew, also those on record as not done, before it
        moves to `waiting`.

        Raises UsageError for a step that cannot be stored, with nothing written. A caller with
        steps of several executions calls `core.event.check_step` before.
        """
        ...

    async def publish(self, tenant: str, event: NewEvent) -> Published:
        """Store an event, and release the executions that wait for it, in one transaction.

        An event with the source and id of one on record changes nothing (`created=False`). The
        store writes the results of the waits that the event fits, also of executions that still run
        or are in another state before their end. Those that are `waiting` for an event become
        `queued`, and workers are woken. Each execution gets it for one wait, the first in its
        order. With `execution`, only that one gets it; an unknown one raises ExecutionNotFound, and
        for an ended one the event is kept without effect. Events are kept for `EVENT_SECONDS_KEPT`.
        Raises UsageError for one that cannot be stored.

        The event also fires the schedules that listen to its name and whose filter it passes, as a
        scheduler fires those that are due: each gets a tick with the number of the event, and the
        answer names the executions. A paused schedule misses it. A repeated event is answered with
        the executions of the first time, as far as its ticks are kept.
        """
        ...

    async def publish_many(self, tenant: str, events: Sequence[NewEvent]) -> list[Published]:
        """Do the same for up to `EVENT_BATCH_MAX` events, in their order, all or nothing."""
        ...

    async def firing_events(
        self, tenant: str, schedule: UUID, times: Sequence[Instant]
    ) -> list[Event | None]:
        """Return the events that gave a schedule its ticks of these times. None: the tick is not
        one of an event, or it is no longer kept.
        """
        ...

    async def node_waits(
        self, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
    ) -> list[NodeWait]:
        """Return the events that nodes of a run wait for now, by their executions: also the items
        of mapped nodes, and nodes of inner runs. With `event`, return the waits that it would end;
        the limit counts only these.

        The cost is that of the nodes that have begun and not ended.
        """
        ...

    async def list_events(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Event]:
        """Return events on record, latest first."""
        ...


class CatalogPort(Protocol):
    """Jobs with their versions, and the views of executions, queues and workers.

    A view is one statement, so a page is consistent in itself.
    """

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        """Store these definitions and return the current version of each, in the order given; all
        or nothing.

        A new name becomes version 1. An equal definition changes nothing. A different one becomes
        the next version, unless it equals a superseded one and `promote` is not set: then the
        current one stays, as the answer shows. If a definition becomes the current one, or comes
        back after the job was deleted, its `schedules` replace the declared ones of the job; those
        with the same id keep their counts. Raises VersionConflict if `expect` does not hold.
        Several callers that define the same job at once get the same answer. A deleted job that is
        defined again keeps its old id, and gets the given definition, even a superseded one.
        """
        ...

    async def launch(
        self, tenant: str, job: NewJob, execution: NewExecution
    ) -> tuple[Job, Enqueued]:
        """Store a definition as `define_jobs` does and create an execution of that job as `enqueue`
        does, both or neither.
        """
        ...

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        """Return the current version of a job, or the one asked for. Raises JobNotFound; a deleted
        job is not found without a version.
        """
        ...

    async def get_jobs(self, tenant: str, names: Sequence[str]) -> dict[str, Job]:
        """Return the current versions of these jobs by name, without those that do not exist."""
        ...

    async def find_job(self, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
        """Return the current version of the job with this id. Raises JobNotFound; for a deleted one
        too, unless it is asked for.
        """
        ...

    async def list_jobs(
        self,
        tenant: str,
        where: JobFilter = ALL_JOBS,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Job]:
        """Return jobs that match a filter, by name, with complete definitions. Deleted ones are not
        shown. A page ends at PAGE_BYTES_MAX bytes, with at least one job.
        """
        ...

    async def list_versions(
        self, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Job]:
        """Return versions of a job, newest first; of a deleted one too. A page ends at
        PAGE_BYTES_MAX bytes, with at least one version. Raises JobNotFound.
        """
        ...

    async def delete_job(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        """Delete the job and its schedules: it cannot fire or be enqueued. Its versions and
        executions stay. Raises JobNotFound; VersionConflict if its version is not `expect`.
        """
        ...

    async def list_limits(
        self, tenant: str, name: str | None = None, *, most: int | None = None
    ) -> list[LimitState]:
        """List the limits of a tenant by name, at most so many; with a name that one, with its
        buckets.
        """
        ...

    async def change_limit(self, tenant: str, name: str, change: LimitChange) -> bool:
        """Change a limit at run time. Return False if the tenant has none of this name.

        A lower limit ends nothing that runs. A pause keeps executions from starting.
        """
        ...

    async def limit_wait(self, tenant: str, id: UUID) -> LimitWait | None:
        """Return the bucket at which an execution waits; None: it waits at none."""
        ...

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        """Stop or resume claims from a queue, at once and for all workers. Enqueueing goes on."""
        ...

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        """Return one execution with its ended attempts. Raises ExecutionNotFound."""
        ...

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        """Return executions by id, newest first. Changes between two pages never cause an execution
        that was there all along to be missed or shown twice. Arguments, results and checkpoints of
        more than LIST_VALUE_BYTES_MAX bytes are left out (`truncated`), and are not read. A page
        ends at PAGE_BYTES_MAX bytes, with at least one execution. Raises UsageError for an invalid
        cursor.

        A page reads no more than SCAN_ITEMS_MAX executions of a kind: unfinished ones, dead
        letters, or those that ended in one state, of the job, schedule, parent or tenant. If few of
        them match the filter, the page is short or empty, and has a cursor. With `where.content`, a
        page is the result of one scan. It reads at most SCAN_ITEMS_MAX executions that match the
        other conditions, with their complete arguments and errors.
        """
        ...

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> Counts:
        """Count executions by state; states without any are left out. Raises UsageError for a
        filter by content.

        A count reads no more than COUNT_ITEMS_MAX executions of a kind, the newest. If there are
        more, the numbers of their states are lower bounds: `Counts.at_least`.
        """
        ...

    async def estimate_executions(self, tenant: str, where: ExecutionFilter) -> int:
        """Estimate how many executions match, by a sample of some thousand rows of all
        tenants. The number of a rare kind may be far off. Raises UsageError for a filter by
        content.
        """
        ...

    async def job_activity(self, tenant: str, names: Sequence[str]) -> dict[str, JobActivity]:
        """Return the current activity of the jobs with these names, all at one moment; of deleted
        ones too. Names that never were a job's are left out.

        The cost depends on the jobs asked for, not on their history. So of a job with very many
        unfinished executions, only the newest thousand and all running ones are read. Large values
        of the last execution and of schedules are left out, as in lists. Of schedules created at
        run time, only the next NEXT_SCHEDULES_MAX are read, the earliest first.
        """
        ...

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        """Return the ids of the jobs with these names; of deleted ones too. Names that never were a
        job's are left out.
        """
        ...

    async def list_queues(self, tenant: str) -> list[Queue]:
        """Return queues that have work, or were paused, or are a job's, by name. A number above
        COUNT_ITEMS_MAX is a lower bound: `Queue.at_least`.
        """
        ...

    async def get_position(self, tenant: str, id: UUID) -> Position:
        """Return the place of an execution in line. An execution at a gate is behind those that
        were due at the gate before it. Any other is behind those that are claimed from its queue
        before it. One that is unknown or has ended has no place: nothing is ahead of it.

        It reads no more than COUNT_ITEMS_MAX executions of a kind and a priority, and
        SCAN_ITEMS_MAX of the job to find the first HOLDERS_MAX holders of the gate.
        """
        ...

    async def list_backlogs(self, tenant: str, queue: str) -> list[Backlog]:
        """List the due executions of a queue by their needs, as far as there are any, by name. A
        number above COUNT_ITEMS_MAX of one priority is a lower bound.
        """
        ...

    async def list_demands(self, tenant: str, queues: Sequence[str]) -> list[DemandingLane]:
        """List the lanes of these queues whose executions demand labels or resources of a worker,
        with their due work, by queue and needs. The cost does not depend on other work.
        """
        ...

    async def activity(self, tenant: str, *, since: Activity | None = None) -> Activity:
        """Return the numbers enqueued and failed since an earlier answer; without one, nothing.

        It reads only data about as young as that answer, however long the history. Enqueued
        executions are found by the times in the ids. One that is seen more than ten seconds after
        its id was made, by the store's clock, is missed. Dead letters decided on since do not
        count.
        """
        ...

    async def read_stats(self, tenant: str, query: StatQuery, *, with_unfinished: bool) -> StatRows:
        """Read the statistics of a tenant, a queue, or a job (in all queues or in one), added up by
        the steps of the query. With `with_unfinished`, count the unfinished executions as well, at
        least COUNT_ITEMS_MAX of them if there are more. Raises JobNotFound.
        """
        ...

    async def read_totals(self, tenant: str, *, jobs: int) -> list[StatTotal]:
        """Return all counts since the beginning, by queues, and those of the `jobs` busiest jobs by
        their queues. The numbers only rise.
        """
        ...

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        """Return log parts in the order of attempt and number, beginning after the pair `after`.
        The list is empty for an execution that is unknown or wrote no log.
        """
        ...

    async def read_logs(
        self, tenant: str, ids: Sequence[UUID], *, start: LogPlace | None = None
    ) -> Page[FoundPart]:
        """Return the log parts of these executions, in their order, as far as they fit into a page.
        Of the execution of `start`, begin with its attempt and number; the others are not affected.
        """
        ...

    async def miscounts(self) -> list[Miscount]:
        """List gates of any tenant that count more or fewer executions inside than there are."""
        ...

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        """Return workers of this tenant, oldest first."""
        ...

    async def offers(self, tenant: str) -> list[Offer]:
        """Return the offers of workers of this tenant that are live and hold their lease, in no
        order. Equal offers are merged, so that the answer is short in a large fleet.
        """
        ...

    async def list_tenant_work(
        self, tenants: Sequence[str], *, queues: Sequence[str]
    ) -> list[TenantWork]:
        """Return these tenants, or all, with their weights and the time from which a claim of one
        of these queues may find work. Names without a tenant are left out. The cost depends on the
        number of tenants and queues, not of executions.
        """
        ...


class AdminPort(Protocol):
    """Tenants, keys, quotas, the audit log, requests, secrets, templates and leadership."""

    async def add_tenant(self, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
        """Create a tenant with these quotas. Raises DuplicateKey for one that exists."""
        ...

    async def get_tenant(self, name: str) -> Tenant:
        """Return a tenant. Raises TenantNotFound."""
        ...

    async def list_tenants(self) -> list[Tenant]:
        """Return all tenants with their quotas, by name. `default` always exists."""
        ...

    async def set_quotas(
        self,
        tenant: str,
        *,
        keep: Keep | None = None,
        weight: float | None = None,
        **changes: int | None,
    ) -> Tenant:
        """Change these quotas of a tenant, by the names that `Quotas` has. The others stay, also if
        another caller changes them at the same time. None is no limit. `keep` replaces the tenant's
        policy of retention, `weight` its part of workers that serve several tenants; None leaves
        it.

        `define_jobs` and `enqueue` (`load` too) raise QuotaExceeded, and write nothing, if they
        would exceed the quotas. Claims take no more than `running` leaves. Nodes of runs start as
        far as `queued` leaves room, one of each run in any case; the others start when something
        ends, or when `advance_runs` finds room. Ticks of schedules are counted and never refused: a
        quota delays work, it does not lose it. Work that is already over a new quota stays. Other
        processes apply a change within 5 seconds.
        """
        ...

    async def add_key(self, tenant: str, key: NewKey) -> Key:
        """Store a key. If one with the same id exists, return that one unchanged."""
        ...

    async def add_session(self, tenant: str, digest: bytes, session: NewSession) -> Key:
        """Store a session of the valid key or login link with this digest, see `Key.open_session`.

        A link is used up. A session ends with its key, and the oldest of a key when it has more
        than SESSIONS_MAX. Sessions and links that have ended are removed. Raises NotFound.
        """
        ...

    async def find_key(self, digest: bytes) -> tuple[Key, Instant] | None:
        """Return the key with this digest, of any tenant, and the store's time; revoked and expired
        ones too. None: there is no such key.
        """
        ...

    async def has_keys(self) -> bool:
        """Return True if a key of any tenant is valid now, apart from other kinds."""
        ...

    async def list_keys(self, tenant: str) -> list[Key]:
        """Return keys, sessions, login links and hooks, newest first; ended ones too."""
        ...

    async def revoke_key(self, tenant: str, id: UUID, *, after: Seconds = 0.0) -> Key:
        """Revoke a key, so that it opens nothing any more. It stays revoked, with its first time.
        With `after`, it ends that much later, or with its own time if that is earlier. Raises
        NotFound.
        """
        ...

    async def touch_keys(self, used: Mapping[UUID, Seconds]) -> None:
        """Record that these keys were used so many seconds ago. A later known time stays."""
        ...

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        """Store a secret; one of the same name is replaced, and its version rises. Versions of a
        name never repeat: after a delete, the count of versions continues.

        Raises VersionConflict if `secret.version` is not the next version.
        """
        ...

    async def list_secrets(self, tenant: str) -> list[Secret]:
        """Return a tenant's secrets by name, without their values."""
        ...

    async def delete_secret(self, tenant: str, name: str) -> None:
        """Remove a secret. Raises SecretNotFound."""
        ...

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        """Return the secrets of these names, as far as they exist."""
        ...

    async def put_record(
        self,
        tenant: str,
        kind: RecordKind[NewT, StoredT],
        new: NewT,
        *,
        author: str = "",
        expect: int | None = None,
    ) -> StoredT:
        """Store a record, such as an alert rule; one of the same name is replaced, and its version
        rises, unless both are equal: then nothing changes. `expect`: 0 for a name that must be new
        (DuplicateKey), n for the version that must be the current one (VersionConflict).
        """
        ...

    async def get_record(self, tenant: str, kind: RecordKind[Any, StoredT], name: str) -> StoredT:
        """Return a record. Raises the error of its kind, such as AlertNotFound."""
        ...

    async def list_records(
        self,
        tenant: str,
        kind: RecordKind[Any, StoredT],
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StoredT]:
        """Return a tenant's records of a kind, by name. A page ends at PAGE_BYTES_MAX bytes, with
        at least one record.
        """
        ...

    async def delete_record(
        self, tenant: str, kind: RecordKind[Any, Any], name: str, *, expect: int | None = None
    ) -> None:
        """Remove a record. Jobs that were made from a template stay; the next round closes the
        incidents of an alert rule. Raises the error of its kind, such as AlertNotFound, and
        VersionConflict if the record is not at the version expected.
        """
        ...

    async def alert_work(self) -> AlertWork:
        """Read the rules of all tenants, the jobs with notifications, and at most OPEN_MAX open
        incidents, at one moment.
        """
        ...

    async def list_incidents(
        self,
        tenant: str,
        *,
        rule: str | None = None,
        is_open: bool | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Incident]:
        """Return incidents by id, newest first, kept for INCIDENT_SECONDS_KEPT after the end."""
        ...

    async def move_incident(self, tenant: str, move: IncidentMove) -> bool:
        """Make a move of an incident, and enqueue its messages, in one transaction. Return False,
        and write nothing, if the incident is not as the move assumes. So each opening and each end
        has one message, also if several processes evaluate the rule. Raises QuotaExceeded, and
        writes nothing, if the quota has no room for the message.
        """
        ...

    async def outbox_work(self) -> OutboxWork:
        """Read the oldest OUTBOX_BATCH_MAX events of the outbox, and the subscriptions of all
        tenants. Events about one thing are in the order in which it changed.
        """
        ...

    async def dispatch(self, wanted: Dispatch) -> bool:
        """Take events out of the outbox, define the jobs, and enqueue the deliveries, in one
        transaction. Return False, and write nothing, if one of the events is not there any
        more. So each event is enqueued once for each subscription, also if several processes do so
        at the same time. Quotas refuse no delivery.
        """
        ...

    async def write_audit(self, tenant: str, entries: Sequence[NewAuditEntry]) -> None:
        """Add these entries. Those that are there already (by id) stay as they are."""
        ...

    async def list_audit(
        self,
        tenant: str,
        where: AuditFilter = ALL_ENTRIES,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        """Return entries, newest first. No operation changes or removes one younger than a year."""
        ...

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> ChainSegment:
        """Return the head of a tenant's chain and the entries with numbers above `after`, in order,
        at most `limit`. Entries join the chain in the order of their commits; `retain` removes them
        from its beginning only, and the head keeps the hash of the last removed one.
        """
        ...

    async def begin_request(self, tenant: str, request: NewRequest) -> Request:
        """Record a request, or return the record of an earlier one with its key. It is kept for a
        day.
        """
        ...

    async def answer_request(self, tenant: str, key: str, *, status: int, answer: str) -> None:
        """Store the answer to a request. The first one stays."""
        ...

    async def lead(
        self, name: str, *, holder: UUID, lease: Seconds, since: Instant | None = None
    ) -> Leadership | None:
        """Take or keep the leadership of that name. None: another holder's lease lasts. A new
        holder gets a higher epoch.

        `since` is the time when the caller started, by the store's clock. If no leader and no other
        caller was present then, the schedules with `is_reboot` are due, in the same transaction.
        Each caller counts as present for a lease. So a leader may learn this only later, when the
        leases of all earlier callers have ended.
        """
        ...

    async def resign(self, name: str, *, holder: UUID) -> None:
        """Release leadership, if held, so that another holder need not wait. A caller that does not
        lead no longer counts as present, either.
        """
        ...

    async def list_leaders(self) -> list[Leadership]:
        """Return the current leaders, by name. A leadership that has ended is not shown."""
        ...


class Store(Protocol):
    """A store of executions: five ports, their life cycle, and upkeep."""

    @property
    def queue(self) -> QueuePort: ...

    @property
    def schedules(self) -> SchedulesPort: ...

    @property
    def runs(self) -> RunsPort: ...

    @property
    def catalog(self) -> CatalogPort: ...

    @property
    def admin(self) -> AdminPort: ...

    async def open(self) -> None:
        """Connect, and check that the schema fits this program. Raises SchemaError with a remedy,
        or Unavailable.
        """
        ...

    async def close(self) -> None:
        """Release all connections, after the work in progress is finished. Closing twice is
        allowed.
        """
        ...

    async def pending_migrations(self) -> tuple[str, ...]:
        """Return the names of the schema's steps that are not applied yet. Raises SchemaError if
        the schema is newer or damaged.
        """
        ...

    async def migrate(self) -> tuple[str, ...]:
        """Bring the schema up to date, under a lock, and return the names of the steps made.
        Several calls at once make each step once.
        """
        ...

    async def check_writable(self) -> None:
        """Raise Unavailable unless the store takes writes; reading may work all the same."""
        ...

    @property
    def connections_made(self) -> int:
        """The connections to a server that this store has opened since it was made."""
        ...

    async def figures(self) -> dict[str, float]:
        """Return figures of the database by the names of metrics without `store_`, as far as it has
        them. A name with a label is `name:label`.
        """
        ...

    async def health(self) -> Health:
        """Return product, time, schema and the settings that durability depends on."""
        ...

    def audited(self, tenant: str, entry: NewAuditEntry) -> Self:
        """Return this store with an audit entry: the first transaction that changes something
        through it stores the entry as well, so that there is no change without the entry and no
        entry without a change. A transaction that fails and is retried brings the entry again.
        """
        ...

    async def listen(
        self,
        tenant: str,
        queues: Collection[str],
        wake: Callable[[], None],
        *,
        ask: Callable[[], None] | None = None,
    ) -> Callable[[], Awaitable[None]]:
        """Call `wake` when something there may be claimable, and `ask` when a renewal may have news
        for a worker: something it runs is to be cancelled, or it is to drain. Return a function
        that stops this. Best effort.
        """
        ...

    async def listen_schedules(self, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `wake` when a schedule of any tenant may be due earlier than was known. Return a
        function that stops this. Best effort.
        """
        ...

    async def upkeep(
        self,
        limit: int = 1000,
        *,
        sweeps: Collection[SweepKind] = SWEEPS,
        policy: Retention = DEFAULT_RETENTION,
    ) -> Swept:
        """Sweep over all tenants, in the order of `SweepKind`; each changes at most `limit` rows.

        | sweep | effect |
        | --- | --- |
        | EXPIRE | Executions past their expiry are skipped if they were not started, also if no |
        |        | worker serves their queue. Overdue waits end without a result, and are counted. |
        | REARM | Fixed delays whose execution is not there get their next time. |
        | ADVANCE | Runs whose process has gone continue, one part of each. Runs that wait for |
        |         | their tenant's quota continue if it has room; the count may leave these out. |
        | ADMIT | Due executions at gates with room can be claimed: delayed ones enter by this. |
        | RECOUNT | Gates with a wrong count are corrected, and admit into the room found. The |
        |         | answer names them. There should be none: the write that gives or takes a slot |
        |         | counts it. |
        | FOLD | About `limit` ends of attempts and executions (20 times as many on PostgreSQL, |
        |      | which adds them up itself) are added to the statistics of their minutes and |
        |      | hours. Each is counted once, however late its transaction was committed. |
        | RETAIN | Ended rows older than `policy` are removed, a bounded number per call, and |
        |        | storage for the next days is created. Unused gates of jobs and schedules that |
        |        | are gone are removed; the next use creates them again. |

        FOLD counts each end once also if several processes fold at the same time, and if the clock
        jumped meanwhile. An execution counts as enqueued when it ends; a dead letter that is
        revived ends once more.

        RETAIN keeps executions, attempts, logs and ticks that one of the export policies, of any
        tenant, has not written yet.

        RETAIN also removes jobs. A job that was deleted, or was made to run once
        (`JobDefinition.once`), goes with its last execution. One without executions and without
        schedules to come is deleted, unless the definition of another job names it. After the
        retention time and two more days it is removed with its versions. A job in use is checked
        again a day later.
        """
        ...
