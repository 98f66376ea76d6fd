"""Creation of executions: enqueue, load, overlap rules, and restart of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import checks
from daybell.core.access import NewAuditEntry
from daybell.core.collapse import SINGLETON, CollapseRule, Verb, adapt, conflict_error
from daybell.core.execution import TERMINAL, Cancellation, Enqueued, NewExecution, State
from daybell.core.limits import ARGS_BYTES_MAX, ENQUEUE_BATCH_MAX
from daybell.core.schedule import (
    DEPENDENCIES,
    OVERLAP,
    GateDecision,
    Overlap,
    decide_entry,
    gate_for,
)
from daybell.core.units import Instant
from daybell.core.worker import NewWorker
from daybell.core.workflow.restart import restart
from daybell.core.workflow.run import Advance, NewNode, Node, Run
from daybell.errors import DuplicateKey, ExecutionNotFound
from daybell.store.codec import PRIORITIES, STATE_CODES, STATES
from daybell.store.run_driver import is_run_over, restart_refusal
from daybell.store.sqlite import gates, progress
from daybell.store.sqlite.collapse import collapse
from daybell.store.sqlite.flow.shares import find_leaf
from daybell.store.sqlite.gates import LINKS, ExecutionLinks, Meter, end_unstarted
from daybell.store.sqlite.progress import (
    RUN_COLUMNS,
    RunRows,
    insert_nodes,
    insert_run,
    read_run,
    read_texts,
    update_all_of,
)
from daybell.store.sqlite.stats import note_ends
from daybell.store.sqlite.transaction import ROWS_MAX, Bulk, Transaction, Version, record_entries
from daybell.store.wakeups import Signal

# Cancelling, by any caller.

_LOOK: Final = f"SELECT n, state, worker, {LINKS} FROM execution WHERE tenant = ? AND id = ?"
_STATE: Final = "SELECT state FROM execution WHERE n = ?"
_REQUEST: Final = """
UPDATE execution SET cancel_requested_at = ifnull(cancel_requested_at, ?) WHERE n = ?
"""


def cancel_execution(tx: Transaction, owner: int, id: UUID) -> Cancellation:
    """End an execution that has not started; ask a running one to end."""
    row = tx.execute(_LOOK, (owner, id.bytes)).fetchone()
    if row is None:
        return Cancellation.UNKNOWN
    n, state, worker, *links = row
    if state > 5:
        return Cancellation.FINISHED
    if state < 5 and not progress.has_run(tx, n):
        end_unstarted(tx, n, ExecutionLinks(*links), State.CANCELLED)
        return Cancellation.CANCELLED
    tx.execute(_REQUEST, (tx.now, n))
    if worker is not None:
        tx.signals.add(Signal.ASK)
        return Cancellation.REQUESTED
    # A run that waits for its nodes, or to start again, ends at once if no worker holds one of its
    # nodes.
    progress.stop_run(tx, (owner, id.bytes), n)
    progress.settle_runs(tx)
    (state,) = tx.execute(_STATE, (n,)).fetchone()
    return Cancellation.CANCELLED if state > 5 else Cancellation.REQUESTED


# Executions that use the rarer fields, or that are limited by unfinished ones of their job.
#
# Each is decided on in the order given, as if it were alone. Their rows are written many at a
# time: until then, the decisions about a gate are remembered.

QUEUED: Final = STATE_CODES[State.QUEUED]
SCHEDULED: Final = STATE_CODES[State.SCHEDULED]
WAITING: Final = STATE_CODES[State.WAITING]
SKIPPED: Final = STATE_CODES[State.SKIPPED]

_INSERT: Final = Bulk(
    """
INSERT INTO execution
       (tenant, id, job, version, lane, priority, state, created_at, run_at, args, expires_at,
        scheduled_for, unique_key, retries, timeout, gate, slot, reason, schedule, parent,
        finished_at)
VALUES""",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "ON CONFLICT DO NOTHING",
)


class Place(msgspec.Struct, frozen=True, gc=False):
    """The place of an execution at a gate: inside with a slot, or in front of it."""

    gate: int | None = None
    slot: int | None = None
    state: int | None = None  # None: given by its time
    reason: str | None = None


class Room(msgspec.Struct, gc=False):
    """A gate, with the decisions about it since it was read."""

    gate: int
    inside: int
    waiting: int  # due; one stands for all
    taken: int = 0  # slots, not written yet


class Creation:
    """The executions of one batch."""

    def __init__(self, tx: Transaction, owner: int) -> None:
        self._tx = tx
        self._owner = owner
        self._gates: dict[str, int] = {}  # gates that executions name
        self._rooms: dict[str, Room] = {}  # of jobs and schedules
        self._rows: list[Any] = []
        self._decided: set[UUID] = set()  # of those rows: known to be new
        self._unsure: list[NewExecution] = []  # of those rows: their id or key may be there already
        self._ended: list[UUID] = []  # of those rows: they end as they are written
        self._answers: dict[UUID, Enqueued] = {}
        self.minded: set[UUID] = set()  # executions checked by their job's overlap rule

    def find_gates(self, executions: Iterable[NewExecution]) -> None:
        """Look up the named gates. Raises UsageError for a gate that does not exist."""
        for new in executions:
            if new.gate is not None and new.gate not in self._gates:
                self._gates[new.gate] = gates.find_gate(self._tx, self._owner, new.gate)

    def add(self, new: NewExecution, *, is_new: bool = False) -> None:
        """Create an execution, or find out why not. If `is_new`, neither its id nor its key exists.
        Raises ExecutionInTheWay.
        """
        job = self._tx.names.current(self._tx, self._owner, new.job)
        if job.collapse is not None and new.schedule is None:
            kept = self._collapse(new, job, job.collapse)
            if kept is None:
                return
            new = kept
        rule = job.rule(new)
        if rule is not Overlap.ALLOW:
            self._pass_gate(new, job, rule, is_new=is_new)
        elif new.gate is None:
            self._write(new, job, Place())
        elif new.force:
            self._force(new, job, self._gates[new.gate])
        else:
            place = Place(self._gates[new.gate], 0, WAITING, "gate")
            self._write(new, job, place)

    def finish(self) -> dict[UUID, Enqueued]:
        """Write the rest, and admit executions at the named gates. Return answers for executions
        about which there is more to report than that they were created.
        """
        self._flush()
        for gate in self._gates.values():
            gates.admit(self._tx, gate)
        return self._answers

    def _collapse(self, new: NewExecution, job: Version, rule: CollapseRule) -> NewExecution | None:
        """Return the execution to create; None if the latest one of its key is the answer."""
        self._flush()
        if self._is_known(new):
            return None
        verb, holder = collapse(self._tx, self._owner, new, job, rule)
        if holder is None:
            return adapt(new, rule)
        if verb is Verb.REPLACE:
            cancel_execution(self._tx, self._owner, holder)
            self._rooms.clear()
            return self._collapse(new, job, rule)
        if verb is Verb.REFUSED:
            raise conflict_error(job.name, holder)
        if verb is Verb.CANCELLED:
            self._decided.add(new.id)
            self._ended.append(new.id)
            place = Place(None, None, STATE_CODES[State.CANCELLED], SINGLETON)
            self._rows += execution_row(self._tx, self._owner, new, job, place)
        else:
            self._answers[new.id] = Enqueued(holder, created=False)
        return None

    def _is_known(self, new: NewExecution) -> bool:
        """Return True if its id exists."""
        return self._tx.execute(_KNOWN, (self._owner, new.id.bytes)).fetchone() is not None

    def _pass_gate(self, new: NewExecution, job: Version, rule: Overlap, *, is_new: bool) -> None:
        """Apply the job's overlap rule."""
        if not is_new and self._is_there(new, job):
            return
        entry = self._decide(new, rule)
        room = self._room(gate_for(new))
        self.minded.add(new.id)
        if entry is GateDecision.IN:
            room.inside += 1
            room.taken += 1
            place = Place(room.gate, 1)
        elif entry is GateDecision.WAIT:
            room.waiting += due_time(self._tx, new) <= self._tx.now
            place = Place(room.gate, 0, WAITING, OVERLAP)
        elif new.schedule is not None:
            self._answers[new.id] = Enqueued(new.id, skipped=True)
            self._ended.append(new.id)
            place = Place(room.gate, 0, SKIPPED, OVERLAP)
        else:
            self._flush()
            raise checks.overlap_error(job.name, rule, first_in_the_way(self._tx, room.gate, rule))
        self._decided.add(new.id)
        self._rows += execution_row(self._tx, self._owner, new, job, place)

    def _force(self, new: NewExecution, job: Version, gate: int) -> None:
        """Take a slot of a named gate, regardless of its room."""
        if not self._is_there(new, job):
            self._decided.add(new.id)
            self._rows += execution_row(self._tx, self._owner, new, job, Place(gate, 1))
            self._tx.execute(_TAKE, (1, gate))

    def _write(self, new: NewExecution, job: Version, place: Place) -> None:
        """Create an execution that can only conflict by its id or its key."""
        self._unsure.append(new)
        self._rows += execution_row(self._tx, self._owner, new, job, place)

    def _is_there(self, new: NewExecution, job: Version) -> bool:
        """Return True if its id or its key exists already; then that is the answer."""
        if new.id in self._decided:
            return True
        if self._unsure or new.unique_key is not None:
            self._flush()
        known = self._tx.execute(_KNOWN, (self._owner, new.id.bytes)).fetchone()
        if known is not None:
            if known == (SKIPPED, OVERLAP):
                self._answers[new.id] = Enqueued(new.id, skipped=True)
            return True
        if new.unique_key is None:
            return False
        holder = self._tx.execute(_HOLDER, (job.job, new.unique_key)).fetchone()
        if holder is not None:
            self._answers[new.id] = Enqueued(UUID(bytes=holder[0]), created=False)
        return holder is not None

    def _decide(self, new: NewExecution, rule: Overlap) -> GateDecision:
        if new.force:
            return GateDecision.IN
        if new.schedule is None and due_time(self._tx, new) > self._tx.now:
            return GateDecision.WAIT
        if rule is Overlap.REPLACE:
            self._make_room(new)
        room = self._room(gate_for(new))
        return decide_entry(rule, inside=room.inside, waiting=room.waiting)

    def _make_room(self, new: NewExecution) -> None:
        """Cancel the executions in its gate, and those before it that are due."""
        room = self._room(gate_for(new))
        self._flush()
        number = self._tx.names.current(self._tx, self._owner, new.job).job
        at_gate = {"gate": room.gate, "job": number, "now": self._tx.now}
        for (id,) in self._tx.execute(_UNFINISHED, at_gate).fetchall():
            cancel_execution(self._tx, self._owner, UUID(bytes=id))
        del self._rooms[gate_for(new)]

    def _room(self, gate: str) -> Room:
        """Return a gate as it is now; create it if it does not exist."""
        room = self._rooms.get(gate)
        if room is None:
            key = self._tx.now, self._owner, gate
            found = self._tx.execute(_ROOM, key).fetchone()
            if found is None:
                gates.make_gates(self._tx, self._owner, [gate])
                found = self._tx.execute(_ROOM, key).fetchone()
            room = self._rooms[gate] = Room(*found)
        return room

    def _flush(self) -> None:
        """Write rows and slots."""
        rows, unsure = len(self._decided) + len(self._unsure), self._unsure
        created = _INSERT.run(self._tx, self._rows)
        ended = [(self._owner, id.bytes) for id in self._ended]
        note_ends(self._tx, [self._tx.execute(_FIND, key).fetchone()[0] for key in ended])
        if created < rows:
            self._answers |= find_holders(self._tx, self._owner, unsure)
        taken = [(room.taken, room.gate) for room in self._rooms.values() if room.taken]
        self._tx.executemany(_TAKE, taken)
        for room in self._rooms.values():
            room.taken = 0
        self._rows, self._unsure, self._ended = [], [], []
        self._decided.clear()


_KNOWN: Final = "SELECT state, reason FROM execution WHERE tenant = ? AND id = ?"
_HOLDER: Final = """
SELECT id FROM execution
 WHERE job = ? AND unique_key = ? AND unique_key IS NOT NULL AND state <= 5
"""
# One priority at a time: executions that are not due yet are not read.
_ROOM: Final = f"""
SELECT g.n, g.holders,
       EXISTS (SELECT 1 FROM execution
                WHERE state = 4 AND slot = 0 AND gate = g.n AND run_at <= ?
                  AND priority IN ({", ".join(map(str, PRIORITIES))}))
  FROM gate g WHERE g.tenant = ? AND g.name = ?
"""
_TAKE: Final = "UPDATE gate SET holders = holders + ? WHERE n = ?"
_UNFINISHED: Final = """
SELECT id FROM execution
 WHERE state = 4 AND slot = 0 AND gate = :gate AND job = :job AND run_at <= :now
 UNION ALL
SELECT id FROM execution WHERE slot = 1 AND gate = :gate AND job = :job
 ORDER BY id
"""
_INSIDE: Final = "SELECT id FROM execution WHERE slot = 1 AND gate = ? ORDER BY id LIMIT 1"
_IN_FRONT: Final = """
SELECT min(id) FROM execution WHERE state = 4 AND slot = 0 AND gate = ? AND run_at <= ?
"""


def first_in_the_way(tx: Transaction, gate: int, rule: Overlap) -> UUID:
    """Return the blocker: the holder of the slot; for `queue`, one that waits for it already."""
    found = tx.execute(_INSIDE, (gate,)).fetchone() if rule is Overlap.SKIP else None
    (id,) = found or tx.execute(_IN_FRONT, (gate, tx.now)).fetchone()
    return UUID(bytes=id)


def find_holders(
    tx: Transaction, owner: int, executions: Sequence[NewExecution]
) -> dict[UUID, Enqueued]:
    """Return the holders of keys for executions that were not created. An execution with an id in
    the file was created now or earlier; any other has found its key taken.
    """
    held: dict[UUID, Enqueued] = {}
    for new in executions:
        if tx.execute(_KNOWN, (owner, new.id.bytes)).fetchone() is None:
            job = tx.names.current(tx, owner, new.job).job
            (holder,) = tx.execute(_HOLDER, (job, new.unique_key)).fetchone()
            held[new.id] = Enqueued(UUID(bytes=holder), created=False)
    return held


def insert_executions(tx: Transaction, owner: int, executions: Iterable[NewExecution]) -> int:
    """Create executions that can only conflict by their id; return how many were new."""
    rows: list[Any] = []
    for new in executions:
        rows += execution_row(tx, owner, new, tx.names.current(tx, owner, new.job), Place())
    return _INSERT.run(tx, rows)


def due_time(tx: Transaction, new: NewExecution) -> Instant:
    """Return the time from which it may be claimed: never earlier than now."""
    return max(tx.now, tx.now + (new.delay or 0.0) if new.at is None else new.at)


def execution_row(
    tx: Transaction, owner: int, new: NewExecution, job: Version, place: Place
) -> tuple[Any, ...]:
    now, run_at = tx.now, due_time(tx, new)
    expires_in = job.expires if new.expires_in is None else new.expires_in
    state, reason = place.state or (SCHEDULED if run_at > now else QUEUED), place.reason
    if new.wait_for_dependencies and job.depends and state <= 5:
        state, reason = WAITING, DEPENDENCIES  # at its gate, with a slot or without, or at none
    queue, needs = new.queue or job.queue, job.needs
    if job.beside is not None and new.parent is not None:
        needs = _needs_near_parent(tx, owner, new.parent, queue, needs, job.beside)
    lane = tx.names.lane(tx, owner, queue, needs)
    if job.is_shared and state == QUEUED:
        lane = find_leaf(tx, lane, tx.names.policy(tx, job.n).path(new.args))
    return (
        owner,
        new.id.bytes,
        job.job,
        job.n,
        lane,
        job.priority if new.priority is None else int(new.priority),
        state,
        now,
        run_at,
        new.args,
        None if expires_in is None else run_at + expires_in,
        new.scheduled_for,
        new.unique_key,
        new.retries,
        new.timeout,
        place.gate,
        place.slot,
        reason,
        None if new.schedule is None else new.schedule.bytes,
        None if new.parent is None else new.parent.bytes,
        now if state > 5 else None,
    )


_HOST: Final = """
SELECT w.about FROM execution e, worker w
 WHERE e.tenant = ? AND e.id = ? AND e.state = 5 AND w.id = e.worker AND w.tenant IN (0, e.tenant)
"""


def _needs_near_parent(
    tx: Transaction, owner: int, parent: UUID, queue: str, needs: str, task: str
) -> str:
    """Return the needs of an execution that prefers the worker of its parent, if that runs."""
    row = tx.execute(_HOST, (owner, parent.bytes)).fetchone()
    if row is None:
        return needs
    return msgspec.json.decode(row[0], type=NewWorker).needs_near(needs, queue=queue, task=task)


LOAD_CHUNK: Final = 4 * ROWS_MAX


def enqueue(
    tx: Transaction,
    tenant: str,
    executions: Sequence[NewExecution],
    entries: Sequence[NewAuditEntry],
) -> list[Enqueued]:
    owner = tx.names.tenant(tx, tenant)
    if len(executions) > ENQUEUE_BATCH_MAX:
        checks.check_batch(executions)
    meter = Meter(tx, owner)
    answers = create(tx, owner, list(executions))
    meter.charge(tenant)
    if entries:
        record_entries(tx, tenant, entries)
    return answers


# Only a uniqueness conflict is ignored: an `INSERT OR IGNORE` would swallow a NULL as well.
_PLAIN: Final = Bulk(
    """
INSERT INTO execution
       (tenant, id, job, version, lane, priority, state, created_at, run_at, args)
VALUES""",
    "(?, ?, ?, ?, ?, ?, 1, ?, ?, ?)",
    "ON CONFLICT DO NOTHING",
)


def create(tx: Transaction, owner: int, executions: Sequence[NewExecution]) -> list[Enqueued]:
    """Create these executions, and return an answer for each."""
    plain, others = split_plain(tx, owner, executions, checks.check_execution)
    # Without a unique key only an id that exists is not created, and is answered as created.
    _PLAIN.run(tx, plain)
    if not others:
        return [Enqueued(new.id) for new in executions]
    creation = Creation(tx, owner)
    creation.find_gates(others)
    for new in others:
        creation.add(new)
    answers = creation.finish()
    insert_traces(tx, owner, others)
    minded = creation.minded
    return [answers.get(new.id) or Enqueued(new.id, at_gate=new.id in minded) for new in executions]


_TRACE: Final = """
INSERT INTO trace (tenant, id, created_at, context) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_READ_TRACE: Final = "SELECT context FROM trace WHERE tenant = ? AND id = ?"


def insert_traces(tx: Transaction, owner: int, executions: Iterable[NewExecution]) -> None:
    """Store the contexts of traces, of those that have one."""
    rows = [(owner, one.id.bytes, tx.now, one.trace) for one in executions if one.trace is not None]
    if rows:
        tx.executemany(_TRACE, rows)


def read_traces(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> dict[UUID, str]:
    checks.check_limit(len(ids))
    owner = tx.names.tenant(tx, tenant)
    found: dict[UUID, str] = {}
    for id in ids:
        for (context,) in tx.execute(_READ_TRACE, (owner, id.bytes)):
            found[id] = context
    return found


def split_plain(
    tx: Transaction,
    owner: int,
    executions: Sequence[NewExecution],
    check: Callable[[NewExecution, int], None],
    first: int = 0,
) -> tuple[list[Any], list[NewExecution]]:
    """Return the rows of plain executions, one after another, and the other executions.

    This runs for every execution there is, hence its form: a few comparisons find the plain ones,
    and only the rest is checked. `first` is the position of the first one.
    """
    plain: list[Any] = []
    others: list[NewExecution] = []
    now = tx.now
    known: dict[tuple[str, str | None], tuple[int, int, int, int]] = {}
    for position, new in enumerate(executions, first):
        args, way = new.args, known.get((new.job, new.queue))
        if way is None:
            check(new, position)
            way = known[new.job, new.queue] = find_plain_values(tx, owner, new)
        job, version, lane, priority = way
        if (
            job
            and new.is_plain
            and len(args) <= ARGS_BYTES_MAX
            and args.isascii()
            and "\0" not in args
        ):
            if new.priority is not None:
                priority = int(new.priority)
            plain += (owner, new.id.bytes, job, version, lane, priority, now, now, args)
        else:
            check(new, position)
            others.append(new)
    return plain, others


def find_plain_values(tx: Transaction, owner: int, new: NewExecution) -> tuple[int, int, int, int]:
    """Return the job, version, lane and priority of an execution; job 0 if it cannot be plain."""
    job = tx.names.current(tx, owner, new.job)
    lane = tx.names.lane(tx, owner, new.queue or job.queue, job.needs)
    is_plain = job.expires is None and job.overlap is Overlap.ALLOW and job.collapse is None
    is_plain = is_plain and not job.is_shared
    return job.job if is_plain else 0, job.n, lane, job.priority


def load(tx: Transaction, tenant: str, executions: Iterable[NewExecution]) -> int:
    """Create very many executions, with a chunk in memory at a time."""
    owner = tx.names.tenant(tx, tenant)
    meter = Meter(tx, owner)
    rest = iter(executions)
    count = 0

    def check(new: NewExecution, position: int) -> None:
        job = tx.names.current(tx, owner, new.job)
        checks.check_loadable(new, position, overlap=job.rule(new), collapse=job.collapse)

    while chunk := list(islice(rest, LOAD_CHUNK)):
        plain, others = split_plain(tx, owner, chunk, check, count)
        created = _PLAIN.run(tx, plain) + insert_executions(tx, owner, others)
        if created < len(chunk):
            raise DuplicateKey(
                f"an id among executions[{count}] to [{count + len(chunk) - 1}] exists;"
                " an earlier load with it was committed"
            )
        count += created
    meter.charge(tenant)
    return count


# Runs that have ended, and start again.

_RUN: Final = f"SELECT {RUN_COLUMNS} FROM run r WHERE r.execution = ?"
_DROP: Final = "DELETE FROM node WHERE run = ? AND of = ?"
_FORGET: Final = "UPDATE node SET result = NULL WHERE run = ? AND label = ?"


def revive_run(tx: Transaction, n: int, id: UUID) -> None:
    """Restart a dead run with the nodes that did not succeed, once it is claimed."""
    run = find_run(tx, n, id)
    if run is None or not is_run_over(run):
        return
    tx.names.nodes.forget(n)
    rows = RunRows(tx, n)
    again = restart(run, rows.all())
    tx.executemany(_DROP, [(n, group) for group in again.dropped])
    tx.executemany(_FORGET, [(n, label) for label in again.forgotten])
    # All columns: the earlier values of a node are removed, too.
    update_all_of(tx, n, again.changed, {})
    rows.write(Advance(again.run), is_todo=True)


_OLD: Final = "SELECT n, state, version FROM execution WHERE tenant = ? AND id = ?"
_FIND: Final = "SELECT n FROM execution WHERE tenant = ? AND id = ?"
_SET_VERSION: Final = "UPDATE execution SET version = ? WHERE n = ?"


def rerun_nodes(
    tx: Transaction, tenant: str, id: UUID, new: NewExecution, labels: Sequence[str] | None
) -> Enqueued:
    """Begin a new run with nodes of an old one."""
    owner = tx.names.tenant(tx, tenant)
    row = tx.execute(_OLD, (owner, id.bytes)).fetchone()
    if row is None:
        raise ExecutionNotFound(f"no execution {id}")
    n, state, version = row
    run = find_run(tx, n, id)
    if run is None or STATES[state] not in TERMINAL:
        raise restart_refusal(id, STATES[state])
    again = restart(run, RunRows(tx, n).all(), labels=labels, id=new.id)
    new = replace(new, job=tx.names.version(tx, version).name)
    checks.check_batch([new])
    is_known = tx.execute(_FIND, (owner, new.id.bytes)).fetchone() is not None
    meter = Meter(tx, owner)
    (answer,) = create(tx, owner, [new])
    meter.charge(tenant)
    if not is_known and answer.created and not answer.skipped:
        (made,) = tx.execute(_FIND, (owner, new.id.bytes)).fetchone()
        tx.execute(_SET_VERSION, (version, made))
        insert_run(tx, made, again.run)
        copy_nodes(tx, n, made, [*again.kept, *again.changed], again.forgotten)
    return answer


_KEPT: Final = "SELECT label, spec, input, result FROM node WHERE run = ?"


def copy_nodes(
    tx: Transaction, old: int, made: int, nodes: Sequence[Node], forgotten: frozenset[str]
) -> None:
    """Copy these nodes to a new run, with the values stored beside them."""
    kept = {label: rest for label, *rest in tx.execute(_KEPT, (old,))}
    specs = read_texts(tx, {spec for spec, _, _ in kept.values()})
    results = {
        node.label: result
        for node in nodes
        if (result := kept[node.label][2]) is not None and node.label not in forgotten
    }
    new = [NewNode(node, specs[kept[node.label][0]], kept[node.label][1]) for node in nodes]
    insert_nodes(tx, made, new)
    update_all_of(tx, made, nodes, results)


def find_run(tx: Transaction, n: int, id: UUID) -> Run | None:
    row = tx.execute(_RUN, (n,)).fetchone()
    return None if row is None else read_run(id, row)
