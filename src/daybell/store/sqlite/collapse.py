"""Requests that collapse into the latest execution of their key: see `core.collapse`."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from daybell.core.collapse import CollapseRule, Latest, Verb, decide, due_of, recent
from daybell.core.execution import NewExecution
from daybell.core.units import Instant
from daybell.core.workflow.run import NodeEnd, Start
from daybell.errors import JobNotFound
from daybell.store.run_driver import cached_end
from daybell.store.sqlite.transaction import Transaction, Version

_LATEST: Final = "SELECT execution, starts FROM collapsed WHERE job = ? AND key = ?"
_MERGED: Final = "SELECT execution FROM merged WHERE tenant = ? AND request = ?"
_MERGE: Final = "INSERT INTO merged (tenant, request, execution, at) VALUES (?, ?, ?, ?)"
_HELD: Final = """
SELECT n, state, attempt, created_at, cancel_requested_at, finished_at
  FROM execution WHERE tenant = ? AND id = ?
"""
_RESULT: Final = "SELECT result FROM execution WHERE tenant = ? AND id = ? AND state = 6"
_PUT: Final = """
INSERT INTO collapsed (job, key, tenant, keep_until, execution, starts)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (job, key) DO UPDATE SET keep_until = max(keep_until, excluded.keep_until),
    execution = excluded.execution, starts = excluded.starts
"""
_MOVE: Final = """
UPDATE execution SET args = ?, version = ?, run_at = ?, expires_at = ?,
       state = CASE WHEN state = 4 THEN 4 WHEN ? THEN 2 ELSE 1 END
 WHERE n = ?
"""
_NO_STARTS: Final = "[]"


class Held(NamedTuple):
    """The row of the latest execution."""

    n: int
    state: int
    attempt: int
    created_at: Instant
    cancel_requested_at: Instant | None
    finished_at: Instant | None


def collapse(
    tx: Transaction, owner: int, new: NewExecution, job: Version, rule: CollapseRule
) -> tuple[Verb, UUID | None]:
    """Decide about a request; return the decision, and the execution that it is about. One that
    waits is given the arguments of this request.
    """
    key = rule.key_of(new.args, new.unique_key)
    merged = tx.execute(_MERGED, (owner, new.id.bytes)).fetchone()
    if merged is not None:
        return Verb.HELD, UUID(bytes=merged[0])  # a repeat
    execution, starts = tx.execute(_LATEST, (job.job, key)).fetchone() or (None, _NO_STARTS)
    times = msgspec.json.decode(starts, type=list[float])
    held = _find(tx, owner, execution)
    verb = Verb.NEW
    if execution is not None and not (new.force or new.refresh):
        is_live = held is not None and held.state <= 5 and held.cancel_requested_at is None
        verb = decide(
            rule,
            _latest(held) if held is not None and is_live else None,
            starts=times,
            is_cached=held is not None
            and held.state == 6
            and held.finished_at is not None
            and held.finished_at > tx.now - rule.keep,
            now=tx.now,
        )
    if verb is Verb.NEW:
        times = [*recent(rule, times, tx.now), tx.now] if rule.kind == "throttle" else []
        _put(tx, owner, job, key, rule, new.id, times)
        return verb, None
    holder = UUID(bytes=execution)
    if verb is Verb.MOVED:
        assert held is not None
        _move(tx, new, job, rule, held)
        _put(tx, owner, job, key, rule, holder, times)
        tx.execute(_MERGE, (owner, new.id.bytes, execution, tx.now))
    return verb, holder


def take_cached(tx: Transaction, owner: int, start: Start) -> NodeEnd | None:
    """Return the end of a node whose job has a cached result. Otherwise its execution becomes the
    latest of its key, unless there is an unfinished one.
    """
    name = start.spec.job
    if name is None:
        return None
    try:
        job = tx.names.current(tx, owner, name)
    except JobNotFound:
        return None  # its end is that of a job that is gone
    rule = job.collapse
    if rule is None or rule.kind != "cache":
        return None
    new = NewExecution(job=name, args=start.args, id=start.id)
    _, holder = collapse(tx, owner, new, job, rule)
    row = None if holder is None else tx.execute(_RESULT, (owner, holder.bytes)).fetchone()
    return None if holder is None or row is None else cached_end(start, holder, row[0])


def _find(tx: Transaction, owner: int, execution: bytes | None) -> Held | None:
    row = tx.execute(_HELD, (owner, execution)).fetchone()
    return None if row is None else Held(*row)


def _latest(held: Held) -> Latest:
    is_waiting = held.state < 5
    return Latest(
        created_at=held.created_at,
        is_startable=is_waiting and held.attempt == 1,
        is_waiting=is_waiting,
    )


def _move(tx: Transaction, new: NewExecution, job: Version, rule: CollapseRule, held: Held) -> None:
    """Give an execution that has not started the arguments and the time of a later request."""
    asked = tx.now + (rule.wait if new.delay is None else new.delay) if new.at is None else new.at
    due = due_of(rule, asked, held.created_at, tx.now)
    expires_in = job.expires if new.expires_in is None else new.expires_in
    expires_at = None if expires_in is None else due + expires_in
    tx.execute(_MOVE, (new.args, job.n, due, expires_at, due > tx.now, held.n))


def _put(
    tx: Transaction,
    owner: int,
    job: Version,
    key: str,
    rule: CollapseRule,
    execution: UUID,
    starts: list[Any],
) -> None:
    until = tx.now + rule.seconds_kept
    text = msgspec.json.encode(starts).decode()
    tx.execute(_PUT, (job.job, key, owner, until, execution.bytes, text))
