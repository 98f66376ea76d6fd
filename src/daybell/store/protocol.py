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
from daybell.core.alerts.rules import AlertRule, StoredRule
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
from daybell.core.job import Job, JobActivity, NewJob, NewTemplate, Template
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.monitoring.stats import StatQuery, StatRows, StatTotal
from daybell.core.options import Keep
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
from daybell.core.worker import Claim, Leadership, NewWorker, Offer, Renewal, Report, Worker
from daybell.core.workflow.run import Plan, RunDetail


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

    async def begin(self, worker: UUID) -> TaskTransaction:
        """Begin a transaction for a task of this worker. It ends with the worker's lease: when the
        worker is declared dead, what it wrote is undone and its locks are free. Raises UsageError
        where the store has no transaction to give.
        """
        ...

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

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        """Keep these parts, of executions that `worker` has in hand under these leases: what
        was given to others is not written about. A part that is there already stays as it is.
        """
        ...


class SchedulesPort(Protocol):
    """Cursors and ticks of schedules, and jobs that depend on jobs."""

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        """Create or replace these schedules, all or nothing; counts and last firing are kept.
        One of a paused job is paused. One with `own_gate` has a gate of its own,
        `core.schedule.gate_of(job, id)`; `retain` removes it some time after the schedule.
        Wakes who waits for a schedule. Raises JobNotFound.
        """
        ...

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Remove schedules; their ticks stay on record. Answers how many there were."""
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
        """The first schedules of a tenant in the order of ids, those after this one. With `ids`,
        those of them that there are and that belong to the job, if one is given. The cost does not
        depend on how many others there are.
        """
        ...

    async def list_job_schedules(
        self, tenant: str, job: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Schedule]:
        """A page of the schedules of one job: those that it declares, then those made at run
        time, each in the order of next times. One that fires between two pages may be on both. The
        cost does not depend on how many there are. A page ends at PAGE_BYTES_MAX bytes, with one
        schedule at least. Raises JobNotFound, and UsageError for a cursor that is none of ours.
        """
        ...

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        """Schedules of any tenant whose cursor has come, earliest first, and when the next one
        will be due. Locks nothing: `fire` finds out who was first. With `free`, what somebody
        else has in his hands just now is left out, which costs more. With `after`, only those that
        come after that one in this order.
        """
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Advance each schedule whose cursor still is `expect`, recording its ticks and
        creating their executions with it.

        True for those that were advanced here; False: somebody else did, or has it in his hands
        just now, or it is paused or gone, and nothing was written for it. Nobody is waited for.
        False, too, if a missed tick of it is on record already, as when the cursor was set back:
        the range that it stands for would be lost, so it has to begin after what is on record.
        Cursor, tick and execution of one firing are one transaction. A tick that is on record
        already creates no execution. One whose execution is not let in by the job's overlap rule
        is recorded as skipped, and so is the execution; a fixed delay then begins anew.
        """
        ...

    async def schedules_ahead(
        self, *, by: Seconds, limit: int = 1000, after: UUID | None = None
    ) -> Due:
        """Schedules that are not paused and whose cursor was set while the store's clock was ahead
        of now by more than `by`. By id, from the one after `after` on.
        """
        ...

    async def turn_back(self, turns: Sequence[ScheduleRewind]) -> list[bool]:
        """Set back each cursor that still is `expect`, and take its missed ticks after `now` off
        the record and out of the counts. Ticks that were fired or skipped stay on record. Wakes
        schedulers. True for each that was set back.
        """
        ...

    async def pause_job(self, tenant: str, name: str, *, note: str = "") -> None:
        """Let the job's schedules fire no more until it is resumed; it can still be enqueued. A
        paused one gets the new note. Raises JobNotFound.
        """
        ...

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        """Let a paused job's schedules fire again, once these have gone on from where they stood:
        nothing that came due in the meantime fires unless `firings` say so. Those that `fire`
        would not advance, though resumed, are left alone. Raises JobNotFound.
        """
        ...

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        """The ticks on record of one schedule, newest first."""
        ...

    async def list_occurrences(
        self, tenant: str, schedule: UUID, *, since: Instant, until: Instant, limit: int = 10_000
    ) -> list[Occurrence]:
        """Executions of a schedule for ticks from `since` to `until`, both included: by tick,
        then in the order they were created.
        """
        ...

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        """What may be ready, of any tenant: schedules that fire after others and are not paused,
        and executions that wait for dependencies and whose time has come. At most `limit` of
        each, by id, beginning after this one. Locks nothing.
        """
        ...

    async def ended_since(
        self, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
    ) -> list[Ended]:
        """What has ended of each job since then. Of one that does not exist, nothing has.

        A success may be overlooked that is not among the newest executions of the job that have
        ended, of which there are `core.schedule.LOOKED_AT_MAX`; but not by who asks
        `thoroughly`, for which all may be read that the job has done since.
        """
        ...

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        """How each job stood at a time: the latest of its executions that were due by then.

        One of a schedule was due at its tick. Any other was due when it could be claimed first;
        once that attempt has ended, when it was created. Of two that were due at the same time,
        the one counts that was created later. If an unfinished one is later than all that have
        ended, the state is that of any such. A job that was deleted has no execution.
        """
        ...

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Let these begin, if they still wait for dependencies: they can be claimed, or wait only
        for a slot of their gate now. Answers how many there were.
        """
        ...

    async def rule_out_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Skip these, if they still wait for dependencies. Answers how many there were."""
        ...


class RunsPort(Protocol):
    """Workflow runs, steps of durable functions, and the events that they wait for.

    What a workflow's execution consists of, once it has begun.

    A run that was expanded is running in nobody's hands: it has no worker and no lease, and ends
    with its last node. Its nodes' executions have it as `parent` and their label as `node`. However
    one of them ends (`apply`, `cancel`, `expire`, …), the same transaction takes the run's lock,
    drives `core.workflow.progress.advance`, and writes the changes: children that can start are
    executions from then on, and the last end is the end of the run. Such an execution is no dead
    letter, and holds no unique key.
    """

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        """Begin a run that `worker` holds: keep its nodes and start the first, in one transaction.

        Under the same fence as `apply`: False if it is in other hands by now, and nothing is
        written. Cancelling that was asked for before makes it end as cancelled, here. It
        stays the same attempt, in nobody's hands: no late report of the claim matches any more, and
        neither a repeated claim nor a reaper finds it.

        A run that was revived, or that takes over from another (`rerun`), has its nodes already: it
        goes on with those, and `plan` is not looked at.

        Raises InvalidWorkflow for one that is deeper inside others than WORKFLOW_LEVELS_MAX, and
        writes nothing: it stays in the worker's hands.
        """
        ...

    async def get_run(self, tenant: str, id: UUID) -> RunDetail | None:
        """The nodes of a run in order, without the items of mapped ones; None: it has none (yet).

        A node that has an execution is shown with that one's state.
        """
        ...

    async def node_attempts(
        self, tenant: str, id: UUID, *, limit: int = 20
    ) -> dict[UUID, tuple[AttemptSpan, ...]]:
        """The attempts at the nodes of a run, by their executions: of each the newest, oldest
        first, also the one that goes on. Items of mapped nodes are left out; there are too many.

        The cost is that of the nodes that have begun, however long the history is.
        """
        ...

    async def rerun(
        self, tenant: str, id: UUID, new: NewExecution, *, labels: Sequence[str] | None = None
    ) -> Enqueued:
        """Begin a new run, under the version of an old one that has ended, which starts with these
        nodes and all that depends on them, and takes over the rest. None: those that did not
        succeed. It is enqueued like any execution, and begins when it is claimed and expanded.
        Raises UsageError for a label that is not in it, and for what is no run or has not ended;
        ExecutionNotFound; and what `enqueue` raises.

        A dead run itself goes on with `revive`, which keeps what has succeeded: it is put back to
        be claimed, like any dead letter, and goes on when it is expanded.
        """
        ...

    async def steps(self, tenant: str, id: UUID) -> list[Step]:
        """The steps of an execution, by their place. An unknown one has none."""
        ...

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        """Write these steps in one transaction, and answer what is on record for each now.

        None: the execution is not running under (attempt, lease, worker) any more, and nothing was
        written for it. A step that is on record as done stays as it is, and is answered so; one
        that is not is replaced, but for its beginning: `started_at`, and the `wake_at` of a sleep
        or a wait.

        A sleep is done at once; its `wake_at` is the store's now and its delay. A wait is done if
        an event fits that was received since the execution was created, in the time of the wait,
        and that no other wait of it got, the oldest of those; its result is
        `core.event.result_of` it. Otherwise it is open until an event fits or its time is over
        (done, without a result). Whatever ends a wait of an execution that runs or can be claimed
        closes its others: each attempt records the waits that it comes to anew, also those it finds
        on record as not done, before it moves to `waiting`.

        Raises UsageError for a step that cannot be kept, with nothing written: who sends those of
        several executions asks `core.event.check_step` before.
        """
        ...

    async def publish(self, tenant: str, event: NewEvent) -> Published:
        """Keep an event, and let go on what waits for it, in one transaction.

        One with the same source and id that is on record changes nothing (`created=False`). The
        results of the waits that it fits are written, also of executions that still run or are
        anywhere else on their way; those that are `waiting` for an event become `queued`, and
        workers are woken. Each execution gets it for one wait, the first in its order. With
        `execution`, only that one gets it; an unknown one raises ExecutionNotFound, and one that
        has ended keeps it for nothing. Events are kept for `EVENT_SECONDS_KEPT`.
        Raises UsageError for one that cannot be kept.
        """
        ...

    async def node_waits(
        self, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
    ) -> list[NodeWait]:
        """The events that nodes of a run wait for now, by their executions: also the items of
        mapped nodes, and nodes of runs inside. With `event`, those that it would end; the limit
        counts only these.

        The cost is that of the nodes that have begun and not ended.
        """
        ...

    async def list_events(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Event]:
        """Events on record, those that came last first."""
        ...


class CatalogPort(Protocol):
    """Jobs with their versions, and the views of executions, queues and workers.

    A view is one statement, so a page is consistent in itself.
    """

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        """Store these definitions and return the current version of each, in the order given;
        all or nothing.

        A new name becomes version 1. An equal definition changes nothing. A different one
        becomes the next version, unless it equals a superseded one and `promote` is not set:
        then the current one stays, which the caller sees from the answer. With a definition that
        becomes the current one, or comes back after the job was deleted, its `schedules` take the
        place of the declared ones that the job has; those with the same id keep their counts.
        Raises VersionConflict where `expect` does not hold. Several callers defining the same job
        at once get the same answer. A deleted job that is defined again lives on under its old id,
        and is what it is defined as, be that superseded.
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
        """The current version of a job, or the one asked for. Raises JobNotFound; a deleted job
        is not found without a version.
        """
        ...

    async def find_job(self, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
        """The current version of the job with this id. Raises JobNotFound; for a deleted one too,
        unless it is asked for.
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
        """Jobs that a filter lets through, by name, with complete definitions. Deleted ones are
        not shown. A page ends at PAGE_BYTES_MAX bytes, with one job at least.
        """
        ...

    async def list_versions(
        self, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Job]:
        """Versions of a job, newest first; of a deleted one too. A page ends at PAGE_BYTES_MAX
        bytes, with one version at least. Raises JobNotFound.
        """
        ...

    async def delete_job(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        """Let the job fire and be enqueued no more: its schedules are gone, its versions and
        executions stay. Raises JobNotFound; VersionConflict if it is not at the version `expect`.
        """
        ...

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        """Stop or resume claims from a queue, at once and for all workers. Enqueueing goes on."""
        ...

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        """One execution with its ended attempts. Raises ExecutionNotFound."""
        ...

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        """Executions by id, newest first. Whatever happens between two pages, nothing that was
        there all along is missed or shown twice. Arguments, results and checkpoints of more than
        LIST_VALUE_BYTES_MAX bytes are left out (`truncated`), and are not read. A page ends at
        PAGE_BYTES_MAX bytes, with one execution at least. Raises UsageError for a cursor that is
        none of ours.

        A page reads no more than SCAN_ITEMS_MAX executions of a kind: unfinished ones, dead
        letters, or those that ended in one state, of the job, schedule, parent or tenant. If few of
        them fit the filter, it is short or empty, and has a cursor. With `where.content`, a page is
        the result of one scan of SCAN_ITEMS_MAX executions at most, those of the other conditions,
        with their arguments and errors as a whole.
        """
        ...

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> Counts:
        """Count executions by state; states without any are left out. Raises UsageError for a
        filter by content.

        A count reads no more than COUNT_ITEMS_MAX executions of a kind, the newest. If there are
        more, the numbers of their states are lower bounds: `Counts.at_least`.
        """
        ...

    async def job_activity(self, tenant: str, names: Sequence[str]) -> dict[str, JobActivity]:
        """What the jobs of these names do now, all at one moment; deleted ones too. Names that
        never were a job's are left out.

        The cost is that of the jobs asked for, not of what they have ever run. So of a job with
        very many unfinished executions only the newest thousand are looked at, and all that run.
        Large values of the last execution and of schedules are left out, as in lists. Of schedules
        made at run time, only the next NEXT_SCHEDULES_MAX are read, the earliest first.
        """
        ...

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        """The ids of the jobs of these names; of deleted ones too. Names that never were a job's
        are left out.
        """
        ...

    async def list_queues(self, tenant: str) -> list[Queue]:
        """Queues that have work, or were paused, or are a job's, by name. A number above
        COUNT_ITEMS_MAX is a lower bound: `Queue.at_least`.
        """
        ...

    async def get_position(self, tenant: str, id: UUID) -> Position:
        """Return the place of an execution in line. One at a gate is behind those that were due at
        the gate before it; any other is behind those that are claimed from its queue before it.
        One that is unknown or has ended has none: nothing is ahead of it.

        It reads no more than COUNT_ITEMS_MAX executions of a kind and a priority, and
        SCAN_ITEMS_MAX of the job to find the first HOLDERS_MAX holders of the gate.
        """
        ...

    async def list_backlogs(self, tenant: str, queue: str) -> list[Backlog]:
        """List the due executions of a queue by their needs, as far as there are any, by name. A
        number above COUNT_ITEMS_MAX of one priority is a lower bound.
        """
        ...

    async def activity(self, tenant: str, *, since: Activity | None = None) -> Activity:
        """How much was enqueued and has failed since an earlier answer; without one, nothing.

        It reads only what is about as young as that answer, however long the history. What was
        enqueued is found by the times in the ids. One that is seen more than ten seconds after
        its id was made, by the store's clock, is missed. Dead letters that were decided on
        meanwhile do not count.
        """
        ...

    async def read_stats(self, tenant: str, query: StatQuery, *, with_unfinished: bool) -> StatRows:
        """Read the statistics of a tenant, a queue, or a job (in all queues or in one), added up by
        the steps of the query. With `with_unfinished`, count the unfinished executions as well, at
        least COUNT_ITEMS_MAX of them if there are more. Raises JobNotFound.
        """
        ...

    async def read_totals(self, tenant: str, *, jobs: int) -> list[StatTotal]:
        """All that was ever counted, by queues, and of so many of the busiest jobs by their queues.
        The numbers only rise.
        """
        ...

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        """Parts in the order of attempt and number, beginning after such a pair. Empty for an
        execution that said nothing or is unknown.
        """
        ...

    async def miscounts(self) -> list[Miscount]:
        """Gates of any tenant that count more or fewer executions inside than there are."""
        ...

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        """Workers of this tenant, oldest first."""
        ...

    async def offers(self, tenant: str) -> list[Offer]:
        """What workers of this tenant offer that are live and hold their lease, in no order. Those
        that offer the same are one, so that the answer is short in a large fleet.
        """
        ...


class AdminPort(Protocol):
    """Tenants, keys, quotas, the audit log, requests, secrets, templates and leadership."""

    async def add_tenant(self, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
        """Create a tenant with these quotas. One that exists is refused with DuplicateKey."""
        ...

    async def get_tenant(self, name: str) -> Tenant:
        """A tenant. Raises TenantNotFound."""
        ...

    async def list_tenants(self) -> list[Tenant]:
        """All tenants with their quotas, by name. `default` always exists."""
        ...

    async def set_quotas(
        self, tenant: str, *, keep: Keep | None = None, **changes: int | None
    ) -> Tenant:
        """Change these quotas of a tenant, by the names that `Quotas` has; the others stay, also
        if somebody else changes them at the same time. None is no limit. `keep` replaces its
        policy of retention; None leaves it.

        `define_jobs` and `enqueue` (`load` too) refuse what would exceed them with QuotaExceeded,
        and nothing is written. Claims take no more than `running` leaves. Nodes of runs start as
        far as `queued` leaves room, one of each run in any case; the others start when something
        ends, or `advance_runs` finds room. Ticks of schedules are
        counted and never refused: a quota delays work, it does not lose it. What is over a new
        quota already stays. Other processes heed a change within 5 seconds.
        """
        ...

    async def add_key(self, tenant: str, key: NewKey) -> Key:
        """Keep a key. One with the same id is there already and is answered as it is."""
        ...

    async def add_session(self, tenant: str, digest: bytes, session: NewSession) -> Key:
        """Keep a session of the valid key or login link with this digest, see `Key.open_session`.

        A link is used up. A session ends with its key, and the oldest of a key when it has more
        than SESSIONS_MAX. Sessions and links that have ended are forgotten. Raises NotFound.
        """
        ...

    async def find_key(self, digest: bytes) -> tuple[Key, Instant] | None:
        """The key with this digest, of whichever tenant, and the store's time; revoked and
        expired ones too. None: there is none.
        """
        ...

    async def has_keys(self) -> bool:
        """Whether any key of any tenant is valid now; sessions and login links do not count."""
        ...

    async def list_keys(self, tenant: str) -> list[Key]:
        """A tenant's keys, sessions and login links, newest first; revoked and expired ones too."""
        ...

    async def revoke_key(self, tenant: str, id: UUID) -> Key:
        """Let a key open nothing any more. Once revoked it stays so, with its first time. Raises
        NotFound.
        """
        ...

    async def touch_keys(self, used: Mapping[UUID, Seconds]) -> None:
        """Note that these keys were used so many seconds ago. A later time that is known stays."""
        ...

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        """Keep a secret; one of the same name is replaced, and its version rises. Versions of a
        name never repeat: one that is set after a delete goes on counting.

        Raises VersionConflict if `secret.version` is not the next version.
        """
        ...

    async def list_secrets(self, tenant: str) -> list[Secret]:
        """A tenant's secrets by name, without their values."""
        ...

    async def delete_secret(self, tenant: str, name: str) -> None:
        """Forget a secret. Raises SecretNotFound."""
        ...

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        """Those of these that there are."""
        ...

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        """Keep a template; one of the same name is replaced, and its version rises, unless both
        are equal: then nothing changes. `expect`: 0 for a name that must be new (DuplicateKey), n
        for the version that must be the current one (VersionConflict).
        """
        ...

    async def get_template(self, tenant: str, name: str) -> Template:
        """A template. Raises TemplateNotFound."""
        ...

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        """A tenant's templates, by name. A page ends at PAGE_BYTES_MAX bytes, with one template at
        least.
        """
        ...

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        """Remove a template; jobs that were made from it stay. Raises TemplateNotFound, and
        VersionConflict if it is not at the version expected.
        """
        ...

    async def set_alert_rule(
        self, tenant: str, rule: AlertRule, *, author: str = "", expect: int | None = None
    ) -> StoredRule:
        """Keep an alert rule, as `set_template` does a template. A tenant has at most RULES_MAX."""
        ...

    async def get_alert_rule(self, tenant: str, name: str) -> StoredRule:
        """A rule. Raises AlertNotFound."""
        ...

    async def list_alert_rules(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[StoredRule]:
        """A tenant's rules, by name."""
        ...

    async def delete_alert_rule(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        """Remove a rule; the next round closes its incidents. Raises AlertNotFound, and
        VersionConflict if it is not at the version expected.
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
        """Incidents by id, newest first. They are kept for INCIDENT_SECONDS_KEPT after the end."""
        ...

    async def move_incident(self, tenant: str, move: IncidentMove) -> bool:
        """Make a move of an incident, and enqueue its message, in one transaction. False: the
        incident is not as the move assumes, and nothing is written. So each opening and each end
        has one message, whichever processes evaluate the rule. Raises QuotaExceeded if the message
        finds no room; then nothing is written.
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
        """Entries, newest first. There is no way to change or remove one younger than a year."""
        ...

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> ChainSegment:
        """Return the head of a tenant's chain and the entries with numbers above `after`, in order,
        at most `limit`. Entries join the chain in the order of their commits; `retain` removes them
        from its beginning only, and the head keeps the hash of the last removed one.
        """
        ...

    async def begin_request(self, tenant: str, request: NewRequest) -> Request:
        """Remember a request, or answer what is known of an earlier one with its key. Remembered
        for a day.
        """
        ...

    async def answer_request(self, tenant: str, key: str, *, status: int, answer: str) -> None:
        """Keep the answer to a request. The first one stays."""
        ...

    async def lead(
        self, name: str, *, holder: UUID, lease: Seconds, since: Instant | None = None
    ) -> Leadership | None:
        """Take or keep the leadership of that name. None: another holder's lease lasts. A new
        holder gets a higher epoch.

        `since` is when the asker came up, by the store's clock. If nobody was there then who leads
        or asks, the schedules with `is_reboot` are due, in the same transaction. Whoever asks
        counts as there for a lease, so a leader may only find out later, when that of all others
        who were there before him has ended.
        """
        ...

    async def resign(self, name: str, *, holder: UUID) -> None:
        """Give leadership up, if held, so that another need not wait. Who does not lead is
        not there any more, either.
        """
        ...

    async def list_leaders(self) -> list[Leadership]:
        """Who leads now, by name. A leadership that has ended is not shown."""
        ...


class Store(Protocol):
    """A place where executions are kept: five ports, their life cycle, and upkeep."""

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
        """Connect, and check that the schema fits this program. Raises SchemaError with what to
        do, or Unavailable.
        """
        ...

    async def close(self) -> None:
        """Let go of all connections. What is under way is finished first. Closing twice is
        fine.
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

    async def check_writable(self) -> None:
        """Raise Unavailable unless the store takes writes; reading may work all the same."""
        ...

    async def figures(self) -> dict[str, float]:
        """Figures of the database by the names of metrics without `store_`, as far as it has them.
        A name with a label is `name:label`.
        """
        ...

    async def health(self) -> Health:
        """Product, time, schema and the settings that durability depends on."""
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
        for a worker: something it runs is to be cancelled, or it is to drain. Returns what ends it.
        Best effort.
        """
        ...

    async def listen_schedules(self, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `wake` when a schedule of any tenant may be due earlier than was known. Returns what
        ends it. Best effort.
        """
        ...

    async def fold_stats(self, *, limit: int = ...) -> bool:
        """Add about `limit` ends of attempts and executions of all tenants to the statistics of
        their minutes and hours. Return True if there may be more.

        Each end is counted once, whichever processes fold at the same time, however late the
        transaction that made it was committed, and whatever the clock did meanwhile. An execution
        counts as enqueued when it ends; a dead letter that is revived ends once more.
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
        | RETAIN | Ended rows older than `policy` are removed, a bounded number per call, and |
        |        | storage for the next days is created. Unused gates of jobs and schedules that |
        |        | are gone are removed; the next use creates them again. |

        RETAIN also removes jobs. A job that was deleted, or was made to run once
        (`JobDefinition.once`), goes with its last execution. One without executions and without
        schedules to come is deleted, unless the definition of another job names it. After the
        retention time and two more days it is removed with its versions. A job in use is checked
        again a day later.
        """
        ...
