"""Firing: a cursor goes on, its ticks are recorded, their executions created, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from daybell.core.execution import Enqueued, State
from daybell.core.instant import Instant
from daybell.core.overlap import OVERLAP
from daybell.core.schedule import Decision, Firing, Tick
from daybell.store.checks import check_execution
from daybell.store.codes import DECISION_CODES
from daybell.store.sqlite.creation import Creation
from daybell.store.sqlite.endings import LINKS, Links, end
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.quotas import Meter
from daybell.store.sqlite.rows import Row
from daybell.store.wakeups import Signal


class Advance(NamedTuple):
    """A firing that was first, with those of its ticks that are new."""

    owner: int
    id: bytes  # of the schedule; made once
    firing: Firing
    ticks: list[Tick]


_TENANT: Final = "SELECT n FROM tenant WHERE name = ?"
_STANDS_AT: Final = """
SELECT 1 FROM schedule WHERE tenant = ? AND id = ? AND ifnull(since, next_at) = ? AND is_paused = 0
"""
_ON_RECORD: Final = "SELECT 1 FROM tick WHERE tenant = ? AND schedule = ? AND at = ?"
_ADVANCE: Final = """
UPDATE schedule
   SET next_at = iif(since IS NULL, ?1, NULL), since = iif(since IS NULL, NULL, ?1),
       delay = iif(?2, NULL, delay), fired = fired + ?3, last_at = ifnull(?4, last_at),
       skipped = skipped + ?5, missed = missed + ?6,
       moved_at = ?9
 WHERE tenant = ?7 AND id = ?8
"""


def fire(tx: Transaction, firings: Sequence[Firing]) -> list[bool]:
    """Advance each schedule whose cursor still is where the caller saw it.

    Nobody else writes meanwhile. So the cursors are looked at first, and each schedule is written
    once, when it is known what became of its ticks.
    """
    answers: list[bool] = []
    made: list[Advance] = []
    creations: dict[str, tuple[int, Creation]] = {}
    meters: dict[str, Meter] = {}
    moved: set[bytes] = set()  # and not written yet
    for firing in firings:
        if firing.tenant not in creations:
            found = tx.execute(_TENANT, (firing.tenant,)).fetchone()
            owner = found[0] if found else 0
            creations[firing.tenant] = owner, Creation(tx, owner)
            if owner:
                meters[firing.tenant] = Meter(tx, owner)
        owner, creation = creations[firing.tenant]
        id = firing.schedule.bytes
        if id in moved:  # it is to be seen where the one before has put it
            made = write(tx, made, creations)
            moved.clear()
        answers.append(can_advance(tx, owner, id, firing))
        if answers[-1]:
            moved.add(id)
            made.append(Advance(owner, id, firing, record(tx, owner, id, firing, creation)))
    write(tx, made, creations)
    for tenant, meter in meters.items():
        meter.charge(tenant, is_refused=False)
    return answers


def can_advance(tx: Transaction, owner: int, id: bytes, firing: Firing) -> bool:
    """Whether the cursor is where the caller saw it, and no range of his would be lost."""
    if tx.execute(_STANDS_AT, (owner, id, firing.expect)).fetchone() is None:
        return False
    missed = [(owner, id, tick.at) for tick in firing.missed]
    return not any(tx.execute(_ON_RECORD, key).fetchone() for key in missed)


def write(
    tx: Transaction, made: Sequence[Advance], creations: dict[str, tuple[int, Creation]]
) -> list[Advance]:
    """Write these down; what is left to be written is nothing."""
    created = {name: creation.finish() for name, (_, creation) in creations.items()}
    for one in made:
        for tick in one.ticks:
            if tick.ruled_out is not None:
                rule_out(tx, one.owner, tick.ruled_out, tick.reason)
    settled = [settle(tx, one, created[one.firing.tenant]) for one in made]
    tx.executemany(_ADVANCE, [row for row, _ in settled])
    for (*_, owner, schedule, _), is_idle in settled:
        if is_idle and tx.execute(_BEGIN_ANEW, (tx.now, owner, schedule)).rowcount:
            tx.signals.add(Signal.SCHEDULES)
    return []


_NOT_BEGUN: Final = f"SELECT n, {LINKS} FROM execution WHERE tenant = ? AND id = ? AND state < 5"


def rule_out(tx: Transaction, owner: int, id: UUID, reason: str | None) -> None:
    """Skip the execution of a tick that a rule said no to, whatever it waits for: its job may
    depend on nothing by now.
    """
    row = tx.execute(_NOT_BEGUN, (owner, id.bytes)).fetchone()
    if row is not None:
        n, *links = row
        end(tx, n, Links(*links), State.SKIPPED, reason)


_RECORD: Final = """
INSERT INTO tick (tenant, schedule, at, decision, reason, until, execution, count)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""


def record(
    tx: Transaction, owner: int, schedule: bytes, firing: Firing, creation: Creation
) -> list[Tick]:
    """Keep the ticks that are not on record, and create their executions; answer which."""
    new_ticks: list[Tick] = []
    for tick in firing.ticks:
        new = tick.execution
        row = (
            owner,
            schedule,
            tick.at,
            DECISION_CODES[tick.decision],
            tick.reason,
            tick.until,
            None if new is None else new.id.bytes,
            tick.count,
        )
        if tx.execute(_RECORD, row).rowcount == 0:
            continue
        new_ticks.append(tick)
        if new is not None:
            check_execution(new, 0)
            creation.find_gates([new])
            creation.add(new, is_new=new.unique_key is None)
    return new_ticks


_BEGIN_ANEW: Final = """
UPDATE schedule SET next_at = ? + delay
 WHERE tenant = ? AND id = ? AND next_at IS NULL AND delay IS NOT NULL
"""


def settle(tx: Transaction, advance: Advance, created: dict[UUID, Enqueued]) -> tuple[Row, bool]:
    """Count what became of the ticks: the values of _ADVANCE. Second: whether nothing came of them
    whose end could start a fixed delay, so that it has to begin anew.
    """
    firing = advance.firing
    last_at: Instant | None = None
    fired = skipped = missed = refused = executions = 0
    for tick in advance.ticks:
        decision = tick.decision
        if tick.execution is not None:
            executions += 1
            answer = created.get(tick.execution.id) if created else None
            if answer is not None:
                refused += 1
                decision = correct(tx, advance, tick, answer)
        if decision is Decision.FIRED:
            last_at, fired = tick.at, fired + 1
        elif decision is Decision.SKIPPED:
            skipped += 1
        else:
            missed += tick.count
    next_at, is_over = firing.next_at, firing.is_over
    if fired < sum(tick.execution is not None for tick in firing.ticks):
        next_at, is_over = firing.if_refused_at or next_at, False
    elif is_over:
        next_at = None  # whatever was planned: it has ended
    counts = fired, last_at, skipped, missed
    moved_at = max(tx.now, firing.planned_at)
    row = next_at, int(is_over), *counts, advance.owner, advance.id, moved_at
    return row, executions > 0 and refused == executions


_CORRECT: Final = """
UPDATE tick SET execution = ?, decision = ?, reason = ?
 WHERE tenant = ? AND schedule = ? AND at = ?
"""


def correct(tx: Transaction, advance: Advance, tick: Tick, answer: Enqueued) -> Decision:
    """Put on record that the overlap rule said no, or who holds the key; answer the decision."""
    decision, reason = tick.decision, tick.reason
    if answer.skipped:
        decision, reason = Decision.SKIPPED, OVERLAP
    key = advance.owner, advance.id, tick.at
    tx.execute(_CORRECT, (answer.id.bytes, DECISION_CODES[decision], reason, *key))
    return decision
