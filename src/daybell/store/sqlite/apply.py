"""Every change of state of a running execution, under its fence.

The common moves of a batch are made by one statement per kind, without looking at the rows first.
If as many rows changed as there were moves, that was all. If not, each move of the batch is judged
by itself: one that was made a moment ago is found on record and answered like a repetition, which
it might as well have been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import AWAY, TERMINAL, Claimed, Outcome, State
from daybell.core.instant import Instant
from daybell.core.lifecycle import Ruling, Transition, Verdict
from daybell.core.log import NewLogPart
from daybell.core.run import NodeEnd
from daybell.core.step import NewStep
from daybell.core.worker import Report
from daybell.store import checks
from daybell.store.codes import OUTCOME_CODES, STATE_CODES
from daybell.store.sqlite import waits
from daybell.store.sqlite.advancing import Advancing
from daybell.store.sqlite.bulk import Bulk
from daybell.store.sqlite.endings import LINKS, Links, follow_up, tell_run
from daybell.store.sqlite.names import RunKey, Transaction
from daybell.store.sqlite.progress import left_to_do
from daybell.store.sqlite.rows import Row

CANCELLED_OUTCOME: Final = OUTCOME_CODES[Outcome.CANCELLED]
# This very start of the execution is still in this worker's hands.
FENCE: Final = "tenant = ? AND id = ? AND attempt = ? AND lease = ? AND worker = ? AND state = 5"


class SqliteApply(Advancing):
    """Moves and reports, of `protocol.Executions`."""

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        del wait  # there are no locks on rows here

        def operation(tx: Transaction) -> tuple[list[Verdict], list[RunKey]]:
            owner = tx.names.tenant(tx, tenant)
            verdicts = apply(tx, owner, worker.bytes, transitions)
            return verdicts, left_to_do(tx, owner)

        verdicts, todo = await self._write(operation)
        if todo:
            await self._go_on(todo)
        return verdicts

    async def report(
        self, tenant: str, *, worker: UUID, reports: Sequence[Report]
    ) -> list[tuple[UUID, int]]:
        def operation(tx: Transaction) -> list[tuple[UUID, int]]:
            return report(tx, tx.names.tenant(tx, tenant), worker.bytes, reports)

        return await self._write(operation)


def apply(
    tx: Transaction, owner: int, worker: bytes, transitions: Sequence[Transition]
) -> list[Verdict]:
    """Make these moves, in the order given, as runs of the same kind."""
    verdicts: list[Verdict] = []
    for kind, run in groupby(transitions, key=kind_of):
        moves = list(run)
        if not kind(tx, owner, worker, moves):
            found = [judge(tx, owner, worker, move) for move in moves]
            verdicts += [verdict for verdict in found if verdict is not None]
    return verdicts


def kind_of(move: Transition) -> Callable[[Transaction, int, bytes, list[Transition]], bool]:
    """How a move is made together with others of its kind."""
    if checks.transition_fault(move) is not None:
        return one_by_one
    if move.target not in TERMINAL:
        return send_back
    if move.gate is not None or move.schedule is not None:
        return one_by_one
    if move.node is not None and move.run is None:
        return one_by_one
    is_plain = move.outcome is Outcome.SUCCEEDED and move.checkpoint is None
    if move.target is State.SUCCEEDED and is_plain:
        return succeed if move.node is None else succeed_nodes
    return end if move.node is None else end_nodes


def one_by_one(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Moves that have to be looked at."""
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
_SUCCEED_TAIL: Final = """)
 WHERE tenant = ? AND id = column6 AND attempt = column7 AND +lease = column8 AND +worker = ?
   AND state = 5 AND cancel_requested_at IS NULL AND gate IS NULL
   AND schedule IS NULL
"""
_SUCCEED: Final = Bulk(_SUCCEED_HEAD, _SUCCEED_ROW, f"{_SUCCEED_TAIL} AND node IS NULL")
_SUCCEED_NODES: Final = Bulk(_SUCCEED_HEAD, _SUCCEED_ROW, f"{_SUCCEED_TAIL} AND node IS NOT NULL")


def succeed(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Make the most common move: many rows in one statement, as in `bulk`."""
    values = succeeding(moves)
    if has_doubles(moves):
        return end(tx, owner, worker, moves)
    now = tx.now
    return _SUCCEED.run(tx, values, first=(now, now), last=(owner, worker)) == len(moves)


def succeed_nodes(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """The same for nodes: their runs are told together."""
    if has_doubles(moves):
        return end_nodes(tx, owner, worker, moves)
    now = tx.now
    made = _SUCCEED_NODES.run(tx, succeeding(moves), first=(now, now), last=(owner, worker))
    return made == len(moves) and tell_runs(tx, owner, moves)


def has_doubles(moves: list[Transition]) -> bool:
    """Of two moves of one execution the first counts: they are made one after the other."""
    return len({move.id for move in moves}) < len(moves)


def succeeding(moves: list[Transition]) -> list[Any]:
    """The values of _SUCCEED."""
    values: list[Any] = []
    for move in moves:
        values += (
            move.failures,
            move.crashes,
            move.result,
            move.reason,
            move.ran,
            move.id.bytes,
            move.attempt,
            move.lease.bytes,
            move.log,
        )
    return values


def tell_runs(tx: Transaction, owner: int, moves: list[Transition]) -> bool:
    """Let runs hear of the ends of their nodes, before the operation is over."""
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
            _began(tx, owner, move, None if ran is None else now - ran),
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


def _began(tx: Transaction, owner: int, move: Transition, last: Instant | None) -> Instant | None:
    """When the first attempt of a node began."""
    if move.attempt == 1:
        return last
    first = tx.execute(_FIRST, (owner, move.id.bytes)).fetchone()[0]
    return last if first is None else first


_ERROR: Final = "SELECT error FROM execution WHERE tenant = ? AND id = ?"


def _error_of(tx: Transaction, owner: int, move: Transition) -> str | None:
    """Why it is dead: if need be, what an earlier attempt has left."""
    if move.error is not None:
        return move.error
    return tx.execute(_ERROR, (owner, move.id.bytes)).fetchone()[0]


# What every end writes. A success leaves no error behind; another end keeps an earlier one.
_END_SET: Final = """
UPDATE execution
   SET state = ?, outcome = ?, failures = ?, crashes = ?, result = ?,
       error = CASE ? WHEN 1 THEN NULL ELSE ifnull(?, error) END,
       reason = ?, started_at = ifnull(?, started_at), finished_at = ?,
       checkpoint = ifnull(?, checkpoint), lease = NULL, log = ?
"""
# Whoever is tied to others, or is to be cancelled, is not found by this and is judged by itself.
_END: Final = f"""
{_END_SET}
 WHERE {FENCE} AND cancel_requested_at IS NULL AND gate IS NULL AND schedule IS NULL
"""
_END_PLAIN: Final = f"{_END} AND node IS NULL"
_END_NODES: Final = f"{_END} AND node IS NOT NULL"
# If need be, the run is the dead letter.
_DISCARD: Final = "UPDATE execution SET is_discarded = 1 WHERE tenant = ? AND id = ? AND state = 7"


def end(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Make moves that end executions that are tied to no other; False if not all could be made."""
    rows = [(*ending(tx, move), *fence(owner, worker, move)) for move in moves]
    return tx.executemany(_END_PLAIN, rows).rowcount == len(moves)


def end_nodes(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """The same for nodes: their runs are told together."""
    rows = [(*ending(tx, move), *fence(owner, worker, move)) for move in moves]
    if tx.executemany(_END_NODES, rows).rowcount < len(moves):
        return False
    dead = [(owner, move.id.bytes) for move in moves if move.target is State.DEAD]
    tx.executemany(_DISCARD, dead)
    return tell_runs(tx, owner, moves)


def ending(tx: Transaction, move: Transition) -> Row:
    """The values of _END_SET."""
    is_success = move.target is State.SUCCEEDED
    return (
        STATE_CODES[move.target],
        OUTCOME_CODES[move.outcome],
        move.failures,
        move.crashes,
        move.result if is_success else None,
        1 if is_success else 0,
        move.error,
        move.reason,
        None if move.ran is None else tx.now - move.ran,
        tx.now,
        move.checkpoint,
        move.log,
    )


def fence(
    owner: int, worker: bytes, move: Claimed | Transition | Report | NewLogPart | NewStep
) -> Row:
    """The values of FENCE."""
    return owner, move.id.bytes, move.attempt, move.lease.bytes, worker


_LOG: Final = f"""
INSERT INTO attempt (execution, attempt, outcome, worker, started_at, ended_at, error, log)
SELECT n, attempt, ?, worker, ifnull(?, started_at), ?, ?, ?
  FROM execution WHERE {FENCE} AND cancel_requested_at IS NULL
    ON CONFLICT DO NOTHING
"""
_BACK_SET: Final = """
UPDATE execution
   SET state = ?, attempt = attempt + 1, run_at = ?, failures = ?, crashes = ?,
       error = ifnull(?, error), reason = ?, checkpoint = ifnull(?, checkpoint),
       worker = NULL, lease = NULL, started_at = NULL, progress = NULL, note = NULL
"""
_BACK: Final = f"{_BACK_SET} WHERE {FENCE} AND cancel_requested_at IS NULL"


def send_back(tx: Transaction, owner: int, worker: bytes, moves: list[Transition]) -> bool:
    """Make moves that lead back to where executions are claimed; False if not all could be made.

    A slot of a gate is kept. Of two moves of one execution the first one is logged and made.
    """
    moves = [waits.unless_over(tx, owner, move) for move in moves]
    fences = [fence(owner, worker, move) for move in moves]
    logs = [(*logging(tx, move), *held) for move, held in zip(moves, fences, strict=True)]
    rows = [(*returning(tx, move), *held) for move, held in zip(moves, fences, strict=True)]
    tx.executemany(_LOG, logs)
    return tx.executemany(_BACK, rows).rowcount == len(moves)


def logging(tx: Transaction, move: Transition) -> Row:
    """The values of the log's entry."""
    started_at = None if move.ran is None else tx.now - move.ran
    return OUTCOME_CODES[move.outcome], started_at, tx.now, move.error, move.log


def returning(tx: Transaction, move: Transition) -> Row:
    """The values of _BACK_SET."""
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


_END_ONE: Final = f"{_END_SET}, slot = iif(gate IS NULL, NULL, 0) WHERE n = ?"
_LOOK: Final = f"""
SELECT n, state, attempt, lease, worker, outcome, cancel_requested_at, {LINKS}
  FROM execution WHERE tenant = ? AND id = ?
"""


def judge(tx: Transaction, owner: int, worker: bytes, move: Transition) -> Verdict | None:
    """Make one move, or say why not."""
    row = tx.execute(_LOOK, (owner, move.id.bytes)).fetchone()
    if row is None:
        return Verdict(move.id, move.attempt, Ruling.STALE)
    n, state, attempt, lease, holder, _, cancel_requested_at, *links = row
    if (state, attempt, lease, holder) != (5, move.attempt, move.lease.bytes, worker):
        if state > 5 and Links(*links).node is not None:
            # It may have been made a moment ago, with others; to hear of an end twice does no harm.
            tell_run(tx, n, Links(*links))
        return repeated(tx, row, worker, move)
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
    tx.execute(_END_ONE, (*ending(tx, move), n))
    follow_up(tx, n, Links(*links), STATE_CODES[move.target])
    if cancel_requested_at is not None:
        return Verdict(move.id, move.attempt, Ruling.CANCELLED)
    return None


_LOGGED: Final = "SELECT outcome, worker FROM attempt WHERE execution = ? AND attempt = ?"


def repeated(tx: Transaction, row: Row, worker: bytes, move: Transition) -> Verdict | None:
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
    tx: Transaction, owner: int, worker: bytes, reports: Sequence[Report]
) -> list[tuple[UUID, int]]:
    """Write what running tasks say; what they do not say stays."""
    stale: list[tuple[UUID, int]] = []
    for position, new in enumerate(reports):
        checks.check_report(new, position)
        shown = tx.now - new.ran, new.progress, new.note, new.checkpoint
        can_be = new.attempt <= checks.ATTEMPT_MAX
        if not can_be or not tx.execute(_REPORT, (*shown, *fence(owner, worker, new))).rowcount:
            stale.append((new.id, new.attempt))
    return stale
