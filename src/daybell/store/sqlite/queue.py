"""The queue: claim, transitions, and cancel, expire, revive, discard."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from daybell.core import checks
from daybell.core.event import NewStep
from daybell.core.execution import (
    AWAY,
    TERMINAL,
    Cancellation,
    Claimed,
    NewLogPart,
    Outcome,
    Revival,
    State,
)
from daybell.core.flow import claimed_needs
from daybell.core.lifecycle import EXPIRED, Ruling, Transition, Verdict
from daybell.core.schedule import OVERLAP, is_job_gate
from daybell.core.units import Instant
from daybell.core.worker import Claim, Report
from daybell.core.workflow.run import NodeEnd
from daybell.store.codec import OUTCOME_CODES, PRIORITIES, STATE_CODES
from daybell.store.sqlite import enqueue, gates
from daybell.store.sqlite.enqueue import cancel_execution
from daybell.store.sqlite.flow.limits import admit_due, mark_over
from daybell.store.sqlite.gates import (
    LINKS,
    ExecutionLinks,
    end_unstarted,
    follow_up,
    notify_run,
    queued_room,
    running_room,
)
from daybell.store.sqlite.progress import take_pending_runs
from daybell.store.sqlite.stats import fold_ends, has_subscriptions, note_counts, note_ends
from daybell.store.sqlite.transaction import (
    CLAIMED_COLUMNS,
    Bulk,
    Row,
    RunKey,
    Transaction,
    read_claimed,
)
from daybell.store.sqlite.workers import check_alive
from daybell.store.wakeups import SOON_SECONDS, Signal

DRAINING: Final = 2
WAITING: Final = STATE_CODES[State.WAITING]


# Find rows to claim, in lanes by queue, up to a limit.
FindDue: TypeAlias = Callable[[Transaction, list[list[int]], int], list[Row]]


def claim(
    tx: Transaction,
    tenant: str,
    worker: UUID,
    lease: UUID,
    queues: Sequence[str],
    kinds: Sequence[str],
    limit: int,
    find: FindDue | None = None,
) -> Claim:
    owner = tx.names.tenant(tx, tenant)
    lanes = find_lanes(tx, owner, queues, claimed_needs(kinds))
    entries = [entry for of in lanes for n in of if (entry := tx.names.entry_of(tx, n)) is not None]
    wake_at = admit_due(tx, owner, entries, wanted=limit) if entries else None
    most = running_room(tx, owner, limit)
    rows = take_due(tx, owner, worker, lease, lanes, most, find or find_due)
    tx.names.claims.update((row[1], row) for row in rows)
    return Claim(
        lease=lease,
        now=tx.now,
        executions=read_claimed(tx, tenant, [lease] * len(rows), rows),
        next_due=first_due(tx, [*lanes, entries], wake_at) if len(rows) < limit else None,
        is_limited=len(rows) == most < limit and bool(find_due(tx, lanes, 1)),
    )


_HELD: Final = f"""
SELECT {CLAIMED_COLUMNS} FROM execution WHERE state = 5 AND worker = ? AND lease = ? AND tenant = ?
 ORDER BY priority, run_at, id
"""
_IS_USED: Final = "SELECT 1 FROM lease WHERE id = ?"
_REMEMBER: Final = "INSERT INTO lease (id, claimed_at) VALUES (?, ?)"
_START: Final = Bulk("UPDATE execution SET state = 5, worker = ?, lease = ? WHERE n IN (", "?", ")")


def take_due(
    tx: Transaction,
    owner: int,
    worker: UUID,
    lease: UUID,
    lanes: list[list[int]],
    limit: int,
    find: FindDue,
) -> list[Row]:
    """Claim due executions; for a lease that was used before, return those that it still holds."""
    state = check_alive(tx, owner, worker)
    key = worker.bytes, lease.bytes
    held = tx.execute(_HELD, (*key, owner)).fetchall()
    if held or state == DRAINING or tx.execute(_IS_USED, (lease.bytes,)).fetchone():
        return held
    found = find(tx, lanes, limit)
    if found:
        _START.run(tx, [row[0] for row in found], first=key)
        tx.execute(_REMEMBER, (lease.bytes, tx.now))
    return found


# One priority and one lane at a time, so that the index gives the rows in order and the reading
# stops at the first that is not due: ordered by priority over everything, a million future rows
# would be read to find nothing.
_DUE: Final = f"""
SELECT {CLAIMED_COLUMNS} FROM execution
 WHERE state <= 3 AND lane = ? AND priority = ? AND run_at <= ?
 ORDER BY run_at, id LIMIT ?
"""


def find_due(tx: Transaction, lanes_of_queues: list[list[int]], limit: int) -> list[Row]:
    """Return due rows: best priority first, then queues in the order given, then oldest time."""
    found: list[Row] = []
    if limit <= 0:
        return found
    for priority in PRIORITIES:
        for lanes in lanes_of_queues:
            left = limit - len(found)
            rows: list[Row] = []
            for lane in lanes:
                rows += tx.execute(_DUE, (lane, priority, tx.now, left)).fetchall()
            if len(lanes) > 1:
                rows.sort(key=lambda row: (row[10], row[1]))
            found += rows[:left]
            if len(found) == limit:
                return found
    return found


_PAUSED: Final = "SELECT name FROM paused_queue WHERE tenant = ?"


def find_lanes(
    tx: Transaction, owner: int, queues: Sequence[str], kinds: Sequence[str]
) -> list[list[int]]:
    """Return the lanes of each queue that is not paused."""
    paused = {name for (name,) in tx.execute(_PAUSED, (owner,))}
    found = tx.names.find_lanes(tx, owner, tuple(dict.fromkeys(queues)), tuple(kinds))
    return [lanes for queue, lanes in found.items() if lanes and queue not in paused]


_FIRST_AFTER: Final = """
SELECT run_at FROM execution
 WHERE state <= 3 AND lane = ? AND priority = ? AND run_at > ? ORDER BY run_at LIMIT 1
"""


def first_due(
    tx: Transaction, lanes_of_queues: list[list[int]], wake_at: Instant | None
) -> Instant | None:
    """Return the time of the next claim that may find something."""
    found = first_after(tx, lanes_of_queues, tx.now)
    return min(wake_at, found or wake_at) if wake_at is not None else found


def first_after(
    tx: Transaction, lanes_of_queues: list[list[int]], after: Instant
) -> Instant | None:
    """Return the earliest time in these lanes that is later than `after`."""
    found: list[Instant] = []
    for lanes in lanes_of_queues:
        for lane in lanes:
            for priority in PRIORITIES:
                found += [at for (at,) in tx.execute(_FIRST_AFTER, (lane, priority, after))]
    return min(found, default=None)


# Every change of state of a running execution, under its fence.
#
# The common moves of a batch are made by one statement per kind, without looking at the rows
# first. If as many rows changed as there were moves, that was all. If not, each move of the batch
# is judged by itself: one that was made a moment ago is found on record and answered like a
# repetition, which it might as well have been.

CANCELLED_OUTCOME: Final = OUTCOME_CODES[Outcome.CANCELLED]
# This worker still holds this very start of the execution.
FENCE: Final = "tenant = ? AND id = ? AND attempt = ? AND lease = ? AND worker = ? AND state = 5"


def apply(
    tx: Transaction, tenant: str, worker: UUID, transitions: Sequence[Transition]
) -> tuple[list[Verdict], list[RunKey]]:
    """Make these moves; return the runs that are to be continued."""
    owner = tx.names.tenant(tx, tenant)
    verdicts = make_moves(tx, owner, worker.bytes, transitions)
    mark_over(tx, owner, transitions)
    return verdicts, take_pending_runs(tx, owner)


def make_moves(
    tx: Transaction, owner: int, worker: bytes, transitions: Sequence[Transition]
) -> list[Verdict]:
    """Make these moves, in the order given, as runs of the same kind."""
    verdicts: list[Verdict] = []
    for kind, run in groupby(transitions, key=kind_of):
        moves = list(run)
        if not kind(tx, owner, worker, moves):
            found = [apply_one(tx, owner, worker, move) for move in moves]
            verdicts += [verdict for verdict in found if verdict is not None]
        if kind not in ENDS:
            for move in moves:
                tx.names.claims.pop(move.id.bytes, None)
    return verdicts


def kind_of(move: Transition) -> Callable[[Transaction, int, bytes, list[Transition]], bool]:
    """Return the function that makes moves of this kind together."""
    if checks.transition_fault(move) is not None:
        return one_by_one
    if move.target not in TERMINAL:
        return send_back
    if move.gate is not None or move.schedule is not None:
        return one_by_one
    if move.node is not None and move.run is None:
        return one_by_one
    if move.target is State.SUCCEEDED and is_plain(move):
        return succeed if move.node is None else succeed_nodes
    return end_executions if move.node is None else end_nodes


def is_plain(move: Transition) -> bool:
    """Return True for a success that tells no more than its result and its log."""
    return (
        move.outcome is Outcome.SUCCEEDED
        and move.checkpoint is None
        and move.progress is None
        and move.note is None
    )


def one_by_one(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Make moves that have to be checked one by one."""
    del tx, owner, worker, moves
    return False


# The same fence, for many rows. The plus signs leave SQLite no index to begin with but the one
# that names the row.
_SUCCEED_HEAD: Final = """
UPDATE execution
   SET state = 6, outcome = 1, failures = column1, crashes = column2, result = column3,
       error = NULL, reason = column4, started_at = ? - column5, finished_at = ?, lease = NULL,
       log = column9
  FROM (VALUES"""
_SUCCEED_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
# This finds no execution that is tied to others or is to be cancelled; each is judged by itself.
_SUCCEED_TAIL: Final = """)
 WHERE tenant = ? AND id = column6 AND attempt = column7 AND +lease = column8 AND +worker = ?
   AND state = 5 AND cancel_requested_at IS NULL AND gate IS NULL
   AND schedule IS NULL
"""
# Every other end writes these. A success leaves no error behind; another end keeps an earlier one.
_END_SET: Final = """
   SET state = column1, outcome = column2, failures = column3, crashes = column4, result = column5,
       error = iif(column1 = 6, NULL, ifnull(column10, error)), reason = column9,
       started_at = ifnull(? - column11, started_at), finished_at = ?,
       checkpoint = ifnull(column12, checkpoint), progress = ifnull(column13, progress),
       note = ifnull(column14, note), lease = NULL, log = column15
"""
_END_HEAD: Final = f"UPDATE execution {_END_SET} FROM (VALUES"
_END_ROW: Final = f"({', '.join('?' * 15)})"


class EndStatements:
    """The statement for executions of a sort, and one that returns the rows that it changed."""

    def __init__(self, head: str, row: str, sort: str) -> None:
        self.plain = Bulk(head, row, f"{_SUCCEED_TAIL} AND {sort}")
        self.returning = Bulk(head, row, f"{_SUCCEED_TAIL} AND {sort} RETURNING n")


_SUCCEED: Final = EndStatements(_SUCCEED_HEAD, _SUCCEED_ROW, "node IS NULL")
_SUCCEED_NODES: Final = EndStatements(_SUCCEED_HEAD, _SUCCEED_ROW, "node IS NOT NULL")
_END: Final = EndStatements(_END_HEAD, _END_ROW, "node IS NULL")
_END_NODES: Final = EndStatements(_END_HEAD, _END_ROW, "node IS NOT NULL")
# If need be, the run is the dead letter.
_DISCARD_NODE: Final = (
    "UPDATE execution SET is_discarded = 1 WHERE tenant = ? AND id = ? AND state = 7"
)


def succeed(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Make the most common move: many rows in one statement, as in `Bulk`."""
    return run_ends(tx, _SUCCEED, success_values, owner, worker, moves)


def succeed_nodes(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Make the same move for nodes: their runs are notified together."""
    made = run_ends(tx, _SUCCEED_NODES, success_values, owner, worker, moves)
    return made and notify_runs(tx, owner, moves)


def end_executions(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Make moves that end executions that are tied to no other; False if not all could be made."""
    return run_ends(tx, _END, end_values, owner, worker, moves)


def end_nodes(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Make the same moves for nodes: their runs are notified together."""
    if not run_ends(tx, _END_NODES, end_values, owner, worker, moves):
        return False
    dead = [(owner, move.id.bytes) for move in moves if move.target is State.DEAD]
    tx.executemany(_DISCARD_NODE, dead)
    return notify_runs(tx, owner, moves)


ENDS: Final = (succeed, succeed_nodes, end_executions, end_nodes)

_HAS_ENDED: Final = """
SELECT 1 FROM execution
 WHERE tenant = ? AND id = ? AND attempt = ? AND worker = ? AND state = ? AND outcome = ?
"""


def run_ends(
    tx: Transaction,
    statements: EndStatements,
    values_of: Callable[[list[Transition], list[bytes]], list[Any]],
    owner: int,
    worker: bytes,
    moves: list[Transition],
) -> bool:
    """Make ends, and note them; False if not all could be made. With their claims remembered, they
    are counted at once.
    """
    keys = [move.id.bytes for move in moves]
    if len(set(keys)) < len(keys):
        return False  # of two moves of an execution the first counts: they are made in turn
    claims = [tx.names.claims.pop(key, None) for key in keys]
    values, first, last = values_of(moves, keys), (tx.now, tx.now), (owner, worker)
    # Of an attempt that was not started here, the row may know an earlier start.
    if None in claims or None in [move.ran for move in moves] or has_subscriptions(tx):
        ended = statements.returning.fetch(tx, values, first=first, last=last)
        note_ends(tx, [n for (n,) in ended])
        return len(ended) == len(moves)
    ends = [(claim, move) for claim, move in zip(claims, moves, strict=True) if claim]
    made = statements.plain.run(tx, values, first=first, last=last)
    if made < len(moves):  # it was not another connection that ended the others
        ends = [end for end in ends if has_ended(tx, owner, worker, end[1])]
    note_counts(tx, owner, ends)
    return made == len(moves)


def has_ended(tx: Transaction, owner: int, worker: bytes, move: Transition) -> bool:
    """Return True if this end is on record."""
    fence = owner, move.id.bytes, move.attempt, worker
    end = STATE_CODES[move.target], OUTCOME_CODES[move.outcome]
    return tx.execute(_HAS_ENDED, (*fence, *end)).fetchone() is not None


def success_values(moves: list[Transition], keys: list[bytes]) -> list[Any]:
    """Return the values of _SUCCEED_ROW, one row after another."""
    values: list[Any] = []
    lease, lease_key = None, b""
    for move, key in zip(moves, keys, strict=True):
        if move.lease is not lease:  # most often, all have the same
            lease, lease_key = move.lease, move.lease.bytes
        values += (
            move.failures,
            move.crashes,
            move.result,
            move.reason,
            move.ran,
            key,
            move.attempt,
            lease_key,
            move.log,
        )
    return values


def notify_runs(tx: Transaction, owner: int, moves: list[Transition]) -> bool:
    """Notify runs of the ends of their nodes, before the operation is over."""
    now = tx.now
    by_run: dict[UUID, list[NodeEnd]] = {}
    last: UUID | None = None
    ends: list[NodeEnd] = []
    for move in moves:
        run, node, ran = move.run, move.node, move.ran
        assert run is not None and node is not None, "a node has a run"
        is_success = move.target is State.SUCCEEDED
        end = NodeEnd(
            node,
            move.id,
            move.target,
            move.result if is_success else None,
            move.reason,
            _first_start(tx, owner, move, None if ran is None else now - ran),
            now,
            _error_of(tx, owner, move) if move.target is State.DEAD else None,
        )
        if run is not last:  # most often, all are of one
            last, ends = run, by_run.setdefault(run, [])
        ends.append(end)
    for run, ends in by_run.items():
        tx.ended.setdefault((owner, run.bytes), []).extend(ends)
    return True


_FIRST: Final = """
SELECT min(a.started_at) FROM execution e JOIN attempt a ON a.execution = e.n
 WHERE e.tenant = ? AND e.id = ?
"""


def _first_start(
    tx: Transaction, owner: int, move: Transition, last: Instant | None
) -> Instant | None:
    """Return the time at which the first attempt of a node began."""
    if move.attempt == 1:
        return last
    first = tx.execute(_FIRST, (owner, move.id.bytes)).fetchone()[0]
    return last if first is None else first


_ERROR: Final = "SELECT error FROM execution WHERE tenant = ? AND id = ?"


def _error_of(tx: Transaction, owner: int, move: Transition) -> str | None:
    """Return the error of a dead execution: if need be, that of an earlier attempt."""
    if move.error is not None:
        return move.error
    return tx.execute(_ERROR, (owner, move.id.bytes)).fetchone()[0]


def end_values(moves: list[Transition], keys: list[bytes]) -> list[Any]:
    """Return the values of _END_ROW, one row after another."""
    values: list[Any] = []
    for move, key in zip(moves, keys, strict=True):
        values += (
            STATE_CODES[move.target],
            OUTCOME_CODES[move.outcome],
            move.failures,
            move.crashes,
            move.result if move.target is State.SUCCEEDED else None,
            key,
            move.attempt,
            move.lease.bytes,
            move.reason,
            move.error,
            move.ran,
            move.checkpoint,
            move.progress,
            move.note,
            move.log,
        )
    return values


def fence(
    owner: int, worker: bytes, move: Claimed | Transition | Report | NewLogPart | NewStep
) -> Row:
    """Return the values of FENCE."""
    return owner, move.id.bytes, move.attempt, move.lease.bytes, worker


_LOG_ATTEMPT: Final = f"""
INSERT INTO attempt (execution, attempt, outcome, worker, started_at, ended_at, error, log)
SELECT n, attempt, ?, worker, ifnull(?, started_at), ?, ?, ?
  FROM execution WHERE {FENCE} AND cancel_requested_at IS NULL
    ON CONFLICT DO NOTHING
"""
_BACK_SET: Final = """
UPDATE execution
   SET state = ?, attempt = attempt + 1, run_at = ?, failures = ?, crashes = ?,
       error = ifnull(?, error), reason = ?, checkpoint = ifnull(?, checkpoint),
       worker = NULL, lease = NULL, started_at = NULL, progress = NULL, note = NULL,
       lane = ifnull((SELECT l.entry FROM lane l WHERE l.n = execution.lane), lane)
"""
_BACK: Final = f"{_BACK_SET} WHERE {FENCE} AND cancel_requested_at IS NULL"


def send_back(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Make moves that lead back to where executions are claimed; False if not all could be made.

    A slot of a gate is kept. Of two moves of one execution the first one is logged and made.
    """
    moves = [gates.requeue_if_delivered(tx, owner, move) for move in moves]
    fences = [fence(owner, worker, move) for move in moves]
    logs = [(*log_values(tx, move), *held) for move, held in zip(moves, fences, strict=True)]
    rows = [(*return_values(tx, move), *held) for move, held in zip(moves, fences, strict=True)]
    tx.executemany(_LOG_ATTEMPT, logs)
    if any(row[0] != WAITING and row[1] < tx.now + SOON_SECONDS for row in rows):
        tx.signals.add(Signal.CLAIM)
    return tx.executemany(_BACK, rows).rowcount == len(moves)


def log_values(tx: Transaction, move: Transition) -> Row:
    """Return the values of the log's entry."""
    started_at = None if move.ran is None else tx.now - move.ran
    return OUTCOME_CODES[move.outcome], started_at, tx.now, move.error, move.log


def return_values(tx: Transaction, move: Transition) -> Row:
    """Return the values of _BACK_SET."""
    run_at = max(tx.now, tx.now + move.delay if move.at is None else move.at)
    state = move.target
    if state is State.QUEUED and run_at > tx.now:
        state = State.SCHEDULED
    return (
        STATE_CODES[state],
        run_at,
        move.failures,
        move.crashes,
        move.error,
        move.reason if state in AWAY else None,
        move.checkpoint,
    )


_END_ONE: Final = Bulk(
    f"UPDATE execution {_END_SET}, slot = iif(gate IS NULL, NULL, 0) FROM (VALUES",
    _END_ROW,
    ") WHERE n = ?",
)
_LOOK: Final = f"""
SELECT n, state, attempt, lease, worker, outcome, cancel_requested_at, {LINKS}
  FROM execution WHERE tenant = ? AND id = ?
"""


def apply_one(tx: Transaction, owner: int, worker: bytes, move: Transition) -> Verdict | None:
    """Make one move, or return the reason why not."""
    row = tx.execute(_LOOK, (owner, move.id.bytes)).fetchone()
    if row is None:
        return Verdict(move.id, move.attempt, Ruling.STALE)
    n, state, attempt, lease, holder, _, cancel_requested_at, *links = row
    if (state, attempt, lease, holder) != (5, move.attempt, move.lease.bytes, worker):
        if state > 5 and ExecutionLinks(*links).node is not None:
            # It may have been made a moment ago, with others; to hear of an end twice does no harm.
            notify_run(tx, n, ExecutionLinks(*links))
        return judge_repetition(tx, row, worker, move)
    fault = checks.transition_fault(move)
    if fault is not None:
        return Verdict(move.id, move.attempt, Ruling.REFUSED, fault)
    if cancel_requested_at is None and move.target not in TERMINAL:
        send_back(tx, owner, worker, [move])
        return None
    if cancel_requested_at is not None:
        move = replace(
            move, target=State.CANCELLED, outcome=Outcome.CANCELLED, result=None, reason=None
        )
    _END_ONE.run(tx, end_values([move], [move.id.bytes]), first=(tx.now, tx.now), last=(n,))
    note_ends(tx, [n])
    follow_up(tx, n, ExecutionLinks(*links), STATE_CODES[move.target])
    if cancel_requested_at is not None:
        return Verdict(move.id, move.attempt, Ruling.CANCELLED)
    return None


_LOGGED: Final = "SELECT outcome, worker FROM attempt WHERE execution = ? AND attempt = ?"


def judge_repetition(tx: Transaction, row: Row, worker: bytes, move: Transition) -> Verdict | None:
    """Judge a move that cannot be made: its first answer was lost, or it comes too late."""
    n, _, attempt, _, holder, outcome, *_ = row
    ended: list[tuple[int, bytes | None]] = []
    if outcome is not None and attempt == move.attempt:
        ended.append((outcome, holder))
    elif 0 < move.attempt < attempt:
        ended += tx.execute(_LOGGED, (n, move.attempt))
    for outcome, holder in ended:
        if holder == worker:
            if outcome == OUTCOME_CODES[move.outcome]:
                return None
            if outcome == CANCELLED_OUTCOME:
                return Verdict(move.id, move.attempt, Ruling.CANCELLED)
    return Verdict(move.id, move.attempt, Ruling.STALE, current=attempt)


_REPORT: Final = f"""
UPDATE execution
   SET started_at = ?, progress = ifnull(?, progress), note = ifnull(?, note),
       checkpoint = ifnull(?, checkpoint)
 WHERE {FENCE}
"""


def report(
    tx: Transaction, tenant: str, *, worker: UUID, reports: Sequence[Report]
) -> list[tuple[UUID, int]]:
    """Write the reports of running tasks; values that they omit stay."""
    owner = tx.names.tenant(tx, tenant)
    stale: list[tuple[UUID, int]] = []
    for position, new in enumerate(reports):
        checks.check_report(new, position)
        shown = tx.now - new.ran, new.progress, new.note, new.checkpoint
        can_be = new.attempt <= checks.ATTEMPT_MAX
        if (
            not can_be
            or not tx.execute(_REPORT, (*shown, *fence(owner, worker.bytes, new))).rowcount
        ):
            stale.append((new.id, new.attempt))
    return stale


# Ends that no worker makes: cancel, expire, discard; and the way back, revive.


def cancel(
    tx: Transaction, tenant: str, ids: Sequence[UUID]
) -> tuple[list[Cancellation], list[RunKey]]:
    """Cancel executions; return the runs that are to be continued."""
    owner = tx.names.tenant(tx, tenant)
    return [cancel_execution(tx, owner, id) for id in ids], take_pending_runs(tx, owner)


FOLD_BATCH_MAX: Final = 1000


def revive(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
    """Queue dead letters again, as far as the tenant's quota has room."""
    owner = tx.names.tenant(tx, tenant)
    with tx.upkeep():
        while fold_ends(tx, FOLD_BATCH_MAX):  # reviving takes the end out of the row
            pass
    room = queued_room(tx, owner)
    answers: list[Revival] = []
    for id in ids:
        answers.append(revive_one(tx, owner, id, is_full=room <= 0))
        room -= answers[-1] is Revival.REVIVED
    return answers


def discard(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> list[bool]:
    owner = tx.names.tenant(tx, tenant)
    return [discard_one(tx, owner, id) for id in ids]


_EXPIRED: Final = """
SELECT n FROM execution WHERE state < 5 AND expires_at <= ? ORDER BY expires_at LIMIT ?
"""
_LINKS: Final = f"SELECT {LINKS} FROM execution WHERE n = ?"


def expire(tx: Transaction, limit: int) -> int:
    expired = tx.execute(_EXPIRED, (tx.now, limit)).fetchall()
    for (n,) in expired:
        # Read one by one: the end of one may have handed its slot to the next.
        links = ExecutionLinks(*tx.execute(_LINKS, (n,)).fetchone())
        end_unstarted(tx, n, links, State.SKIPPED, EXPIRED)
    return len(expired) + gates.time_out_waits(tx, limit)


_LOOK_DEAD: Final = """
SELECT n, state = 7 AND is_discarded = 0, version, gate FROM execution WHERE tenant = ? AND id = ?
"""
_FINAL_ATTEMPT: Final = """
SELECT n, attempt, outcome, worker, started_at, finished_at, error, log FROM execution WHERE n = ?
"""
_REVIVE: Final = """
UPDATE execution
   SET state = iif(gate IS NULL, 1, 4), reason = ?,
       attempt = attempt + 1, failures = 0, crashes = 0, run_at = ?, expires_at = NULL,
       worker = NULL, started_at = NULL, finished_at = NULL, outcome = NULL, progress = NULL,
       note = NULL, log = NULL,
       lane = ifnull((SELECT l.entry FROM lane l WHERE l.n = execution.lane), lane)
 WHERE n = ?
"""
_LOG_FINAL_ATTEMPT: Final = """
INSERT INTO attempt (execution, attempt, outcome, worker, started_at, ended_at, error, log)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


def revive_one(tx: Transaction, owner: int, id: UUID, *, is_full: bool) -> Revival:
    """Put a dead letter back; its final attempt becomes an earlier one."""
    row = tx.execute(_LOOK_DEAD, (owner, id.bytes)).fetchone()
    if row is None:
        return Revival.UNKNOWN
    n, is_dead_letter, version, gate = row
    if not is_dead_letter:
        return Revival.NOT_LISTED
    if is_full:
        return Revival.OVER_QUOTA
    # Read before the update clears it, and logged after: the update may find the key taken.
    final_attempt = tx.execute(_FINAL_ATTEMPT, (n,)).fetchone()
    try:
        tx.execute(_REVIVE, (gate_reason(tx, version, gate), tx.now, n))
    except sqlite3.IntegrityError:
        return Revival.KEY_HELD
    tx.execute(_LOG_FINAL_ATTEMPT, final_attempt)
    enqueue.revive_run(tx, n, id)
    if gate is not None:
        gates.admit(tx, gate)
    tx.signals.add(Signal.CLAIM)
    return Revival.REVIVED


def gate_reason(tx: Transaction, version: int, gate: int | None) -> str | None:
    """Return the reason of an execution that comes to a gate that it was given earlier."""
    if gate is None:
        return None
    name = tx.names.gate_name(tx, gate)
    return OVERLAP if name is not None and is_job_gate(name) else "gate"


_DISCARD_DEAD_LETTER: Final = """
UPDATE execution SET is_discarded = 1 WHERE tenant = ? AND id = ? AND state = 7 AND is_discarded = 0
"""


def discard_one(tx: Transaction, owner: int, id: UUID) -> bool:
    return tx.execute(_DISCARD_DEAD_LETTER, (owner, id.bytes)).rowcount == 1
