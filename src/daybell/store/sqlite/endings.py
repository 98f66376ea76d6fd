"""What an end sets off, and the ends of what no worker has begun."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from daybell.core.dependencies import DEPENDENCIES
from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.core.overlap import is_backfill
from daybell.core.run import NodeEnd
from daybell.store.codes import STATE_CODES, STATES
from daybell.store.sqlite import gates
from daybell.store.sqlite.names import Transaction
from daybell.store.wakeups import Signal

DEAD: Final = STATE_CODES[State.DEAD]


class Links(NamedTuple):
    """What an execution is tied to."""

    tenant: int
    gate: int | None
    slot: int | None
    schedule: bytes | None
    scheduled_for: Instant | None
    parent: bytes | None
    node: str | None


LINKS: Final = "tenant, gate, slot, schedule, scheduled_for, parent, node"


def follow_up(tx: Transaction, n: int, links: Links, state: int) -> None:
    """An execution has ended: its schedule and its run hear of it, and its slot is handed on."""
    if links.node is not None:
        tell_run(tx, n, links)
    if links.schedule is not None and not is_backfill(tx.names.gate_name(tx, links.gate)):
        tell(tx, links.tenant, links.schedule, state, links.scheduled_for)
    if links.slot == 1:
        assert links.gate is not None, "a slot is one of a gate"
        gates.hand_on(tx, links.gate)


_STILL_WAITING: Final = f"""
SELECT n, {LINKS} FROM execution
 WHERE tenant = ? AND id = ? AND state = 4 AND reason = '{DEPENDENCIES}'
"""


def rule_out(tx: Transaction, owner: int, id: UUID, reason: str | None) -> bool:
    """Skip an execution, if it still waits for what its job depends on."""
    row = tx.execute(_STILL_WAITING, (owner, id.bytes)).fetchone()
    if row is None:
        return False
    n, *links = row
    end(tx, n, Links(*links), State.SKIPPED, reason)
    return True


_ENDED: Final = """
SELECT id, state, result, reason,
       iif(attempt = 1, started_at,
           ifnull((SELECT min(a.started_at) FROM attempt a WHERE a.execution = execution.n),
                  started_at)),
       finished_at, iif(state = 7, error, NULL)
  FROM execution WHERE n = ?
"""
_DISCARD: Final = "UPDATE execution SET is_discarded = 1 WHERE n = ? AND state = 7"


def tell_run(tx: Transaction, n: int, links: Links) -> None:
    """Let a run hear of the end of a node, before the operation is over."""
    assert links.parent is not None and links.node is not None, "a node has a run"
    id, state, *rest = tx.execute(_ENDED, (n,)).fetchone()
    if state == DEAD:  # if need be, the run is the dead letter
        tx.execute(_DISCARD, (n,))
    end = NodeEnd(links.node, UUID(bytes=id), STATES[state], *rest)
    tx.ended.setdefault((links.tenant, links.parent), []).append(end)


_TELL: Final = """
UPDATE schedule
   SET succeeded_for = iif(?1 = 6 AND ?2 IS NOT NULL, max(ifnull(succeeded_for, ?2), ?2),
                           succeeded_for),
       failures = CASE ?1 WHEN 6 THEN 0 WHEN 7 THEN failures + 1 ELSE failures END,
       next_at = iif(delay IS NOT NULL AND next_at IS NULL AND ifnull(?2 >= last_at, 1),
                     ?3 + delay, next_at),
       moved_at = iif(delay IS NOT NULL AND next_at IS NULL, ?3, moved_at)
 WHERE tenant = ?4 AND id = ?5
RETURNING job, failures, ifnull(failures >= pause_after, 0), delay IS NOT NULL
"""


def tell(
    tx: Transaction, owner: int, schedule: bytes, state: int, scheduled_for: Instant | None
) -> None:
    """Let the schedule that fired an execution know how it ended."""
    values = state, scheduled_for, tx.now, owner, schedule
    for job, failures, is_enough, is_delay in tx.execute(_TELL, values).fetchall():
        if is_delay:
            tx.signals.add(Signal.SCHEDULES)
        if state == DEAD and is_enough:
            pause(tx, job, f"paused after {failures} failures in a row", again=False)


_PAUSE: Final = """
UPDATE job SET paused_at = ifnull(paused_at, ?), pause_note = ?
 WHERE n = ? AND (paused_at IS NULL OR ?)
"""
_PAUSE_SCHEDULES: Final = "UPDATE schedule SET is_paused = 1 WHERE job = ?"


def pause(tx: Transaction, job: int, note: str, *, again: bool = True) -> None:
    """Stop a job's schedules. One that is paused gets the new note, if it is `again`."""
    tx.execute(_PAUSE, (tx.now, note, job, int(again)))
    tx.execute(_PAUSE_SCHEDULES, (job,))


_END: Final = """
UPDATE execution
   SET state = ?, finished_at = ?, reason = ?, slot = iif(gate IS NULL, NULL, 0)
 WHERE n = ?
"""


def end(tx: Transaction, n: int, links: Links, state: State, reason: str | None = None) -> None:
    """End what has not started."""
    tx.execute(_END, (STATE_CODES[state], tx.now, reason, n))
    follow_up(tx, n, links, STATE_CODES[state])
