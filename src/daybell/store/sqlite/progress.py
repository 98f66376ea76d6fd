"""How runs of workflows go on, in the transaction that has ended some of their nodes.

Ends are collected in the transaction and told at the end of the operation, so that a batch of
reports drives each run once. So are runs inside others that are to be stopped: however deep they
are, one loop stops them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.core.progress import advance, note
from daybell.core.run import (
    PROGRESS_BATCH,
    Advance,
    AnyAsk,
    NodeEnd,
    Plan,
    Run,
    RunEnd,
    Start,
    Stopping,
)
from daybell.errors import JobNotFound
from daybell.store import driving
from daybell.store.codes import OUTCOME_CODES, STATE_CODES
from daybell.store.sqlite.bulk import Bulk, Groups
from daybell.store.sqlite.endings import LINKS, Links, follow_up
from daybell.store.sqlite.names import RunKey, Transaction
from daybell.store.sqlite.node_rows import insert_nodes
from daybell.store.sqlite.quotas import queued_room
from daybell.store.sqlite.run_rows import RUN_COLUMNS, RunRows, insert_run, read_run
from daybell.store.wakeups import Signal


class Held(NamedTuple):
    """A run in hand, with what its nodes have of it."""

    owner: int
    n: int
    job: int
    version: int
    lane: int
    priority: int
    scheduled_for: Instant | None
    run: Run


STOPS_MAX: Final = 100  # runs that one transaction stops, of those inside the one in question

_FIND: Final = f"""
SELECT e.n, e.job, e.version, e.lane, e.priority, e.scheduled_for, {RUN_COLUMNS}
  FROM execution e JOIN run r ON r.execution = e.n
 WHERE e.tenant = ? AND e.id = ? AND e.worker IS NULL
   AND (e.state = 5 OR e.state < 5 AND r.stopping = 'cancel')
"""


def find(tx: Transaction, key: RunKey) -> Held | None:
    """A run that has begun and has not ended. Before it begins again, it can only be stopped."""
    row = tx.execute(_FIND, key).fetchone()
    if row is None:
        return None
    return Held(key[0], *row[:6], run=read_run(UUID(bytes=key[1]), row[6:]))


# How many runs are around an execution: it is a node of the first, that one of the next.
_AROUND: Final = """
WITH RECURSIVE around (parent) AS (
  SELECT parent FROM execution WHERE n = ?1 AND node IS NOT NULL
  UNION ALL
  SELECT e.parent FROM around a JOIN execution e ON e.tenant = ?2 AND e.id = a.parent
   WHERE e.node IS NOT NULL)
SELECT count(*) FROM around
"""


def begin(tx: Transaction, key: RunKey, n: int, plan: Plan) -> None:
    """Keep the nodes of a run that begins, and start the first."""
    if not has_run(tx, n):  # or it begins again
        (around,) = tx.execute(_AROUND, (n, key[0])).fetchone()
        driving.check_level(around + 1)
        insert_run(tx, n, plan.run(UUID(bytes=key[1])))
        tx.names.nodes.of(tx, n).update(insert_nodes(tx, n, plan.nodes))
    go_on(tx, key)


_HAS_RUN: Final = "SELECT 1 FROM run WHERE execution = ?"


def has_run(tx: Transaction, n: int) -> bool:
    return tx.execute(_HAS_RUN, (n,)).fetchone() is not None


def settle(tx: Transaction) -> None:
    """Stop runs that are to be stopped, so many, and let runs know which of their nodes have ended.
    The rest is marked in their rows, and left to the next transaction.
    """
    room = STOPS_MAX
    while tx.stops or tx.ended:
        stops, tx.stops = list(tx.stops), {}
        tx.todo |= dict.fromkeys(stops[room:])
        for key in stops[:room]:
            go_on(tx, key)
        room = max(0, room - len(stops))
        ended, tx.ended = tx.ended, {}
        for key, ends in ended.items():
            go_on(tx, key, ends)


def left_to_do(tx: Transaction, owner: int | None = None) -> list[RunKey]:
    """The same at the end of an operation; answers the runs in which there is more to do. If it has
    ended executions of `owner`, runs of that tenant may have got room to go on.
    """
    settle(tx)
    todo, tx.todo = tx.todo, {}
    if owner is not None and tx.names.quotas(tx, owner).queued is not None:
        first = tx.execute(f"{_BLOCKED} AND e.tenant = ? LIMIT 1", (owner,)).fetchone()
        if first is not None and queued_room(tx, owner) > 0:
            todo[first] = None
    return list(todo)


_BLOCKED: Final = """
SELECT e.tenant, e.id FROM run r JOIN execution e ON e.n = r.execution WHERE r.is_blocked = 1
"""


def unblocked(tx: Transaction) -> list[RunKey]:
    """Runs that have waited for room in their tenant's quota, and for which there is some now."""
    keys: list[RunKey] = tx.execute(_BLOCKED).fetchall()
    room = {owner: queued_room(tx, owner) for owner in {owner for owner, _ in keys}}
    return [key for key in keys if room[key[0]] > 0]


def go_on(
    tx: Transaction,
    key: RunKey,
    ended: Sequence[NodeEnd] = (),
    *,
    parts: int = 1,
    just_note: bool = False,
) -> None:
    """Do a bounded part of what can be done in a run, or so many at once."""
    tx.todo.pop(key, None)
    held = find(tx, key)
    if held is None:
        return
    is_cut = False
    if held.run.stopping is Stopping.CANCEL:
        cancelled = cancel_nodes(tx, key)
        is_cut = len(cancelled) == PROGRESS_BATCH
        ended = [*ended, *cancelled]
    going = _going(held.run, ended, parts, just_note=just_note)
    rows = RunRows(tx, held.n)
    step = driving.drive(going, rows.answer, lambda: queued_room(tx, key[0]))
    is_todo = step.run.is_todo or is_cut
    if is_todo:
        tx.todo[key] = None
    rows.write(step, is_todo=is_todo)
    gone = start_all(tx, held, step.starts)
    if step.end is not None:
        tx.names.nodes.forget(held.n)
        end(tx, held.n, step.end)
    if gone:
        go_on(tx, key, gone, just_note=True)


def _going(
    run: Run, ended: Sequence[NodeEnd], parts: int, *, just_note: bool
) -> Generator[AnyAsk, Any, Advance]:
    mint = driving.minting()
    if just_note:
        return note(run, ended, mint=mint)
    if parts == 1:
        return advance(run, ended, mint=mint)
    return advance(run, ended, mint=mint, limit=parts * PROGRESS_BATCH)


_START: Final = Bulk(
    """
INSERT INTO execution
       (tenant, created_at, run_at, state, parent, scheduled_for, job, version, lane, priority,
        expires_at, retries, timeout, id, args, node)
VALUES""",
    "(?1, ?2, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?, ?, ?)",
    shared=11,
)


def start_all(tx: Transaction, run: Held, starts: Sequence[Start]) -> list[NodeEnd]:
    """Create executions of nodes; answers the ends of those whose job is gone. They pass no gate:
    the run has passed its own.
    """
    groups = Groups()
    gone: list[NodeEnd] = []
    ways: dict[tuple[Any, ...], list[Any]] = {}  # rows so far, of those that go the same way
    for start in starts:
        kind = start.job, start.queue, start.needs, start.priority, start.retries, start.timeout
        values = ways.get(kind)
        if values is None:
            try:
                values = ways[kind] = groups[_shared(tx, run, start)]
            except JobNotFound:
                gone.append(driving.without_job(start))
                continue
        values += (start.id.bytes, start.args, start.label)
    if groups:
        groups.run(tx, _START)
        tx.signals.add(Signal.CLAIM)
    return gone


def _shared(tx: Transaction, run: Held, start: Start) -> tuple[Any, ...]:
    """The values of _START that executions have in common. Raises JobNotFound."""
    way = find_way(tx, run, start)
    return (
        run.owner,
        tx.now,
        run.run.id.bytes,
        run.scheduled_for,
        way.job,
        way.version,
        way.lane,
        way.priority if start.priority is None else int(start.priority),
        way.expires_at,
        start.retries,
        start.timeout,
    )


class Way(NamedTuple):
    """What executions of nodes of a kind have in common."""

    job: int
    version: int
    lane: int
    priority: int
    expires_at: Instant | None


def find_way(tx: Transaction, run: Held, start: Start) -> Way:
    """Raises JobNotFound."""
    if start.job is None:
        version = tx.names.version(tx, run.version)
        queue, priority, expires = tx.names.lane_row(tx, run.lane).queue, run.priority, None
    else:
        version = tx.names.current(tx, run.owner, start.job)
        queue, priority, expires = version.queue, version.priority, version.expires
    lane = tx.names.lane(tx, run.owner, start.queue or queue, start.needs or version.needs)
    expires_at = None if expires is None else tx.now + expires
    return Way(version.job, version.n, lane, priority, expires_at)


_END: Final = """
UPDATE execution
   SET state = ?, outcome = ?, result = ?, error = ?, reason = ?, finished_at = ?,
       slot = iif(gate IS NULL, NULL, 0)
 WHERE n = ?
"""
_LINKS: Final = f"SELECT {LINKS} FROM execution WHERE n = ?"


def end(tx: Transaction, n: int, how: RunEnd) -> None:
    """The last node has ended, and with it the run."""
    links = Links(*tx.execute(_LINKS, (n,)).fetchone())
    state, outcome = STATE_CODES[how.state], OUTCOME_CODES[driving.OUTCOMES[how.state]]
    tx.execute(_END, (state, outcome, how.result, how.error, how.reason, tx.now, n))
    follow_up(tx, n, links, state)


_STOP: Final = "UPDATE run SET stopping = 'cancel', is_todo = 1 WHERE execution = ?"


def stop(tx: Transaction, key: RunKey, n: int) -> None:
    """Cancel all that is not over in a run, as soon as things are settled. It ends with the last
    of it.
    """
    tx.execute(_STOP, (n,))
    tx.stops[key] = None


_OF_RUN: Final = "tenant = ? AND parent = ? AND node IS NOT NULL"
_REQUEST: Final = f"""
UPDATE execution SET cancel_requested_at = ?
 WHERE {_OF_RUN} AND state = 5 AND cancel_requested_at IS NULL
RETURNING n, id, worker IS NULL
"""
_CANCEL: Final = f"""
UPDATE execution SET state = 8, finished_at = ?, reason = NULL
 WHERE n IN (SELECT n FROM execution WHERE {_OF_RUN} AND state <= 4 LIMIT ?)
RETURNING id, node, started_at
"""


def cancel_nodes(tx: Transaction, key: RunKey) -> list[NodeEnd]:
    """End nodes that wait to be claimed, so many; ask those that run to end."""
    requested = tx.execute(_REQUEST, (tx.now, *key)).fetchall()
    for n, id, is_run in requested:
        if is_run:
            stop(tx, (key[0], id), n)
    if requested:
        tx.signals.add(Signal.ASK)
    return [
        NodeEnd(node, UUID(bytes=id), State.CANCELLED, None, None, started_at, tx.now)
        for id, node, started_at in tx.execute(_CANCEL, (tx.now, *key, PROGRESS_BATCH)).fetchall()
    ]
