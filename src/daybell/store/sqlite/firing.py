"""Firing: a cursor goes on, its ticks are recorded, their executions created, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from daybell.core.execution import Enqueued
from daybell.core.instant import Instant
from daybell.core.overlap import OVERLAP
from daybell.core.schedule import Decision, Firing, Tick
from daybell.store.checks import check_execution
from daybell.store.codes import DECISION_CODES
from daybell.store.sqlite.creation import Creation
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.rows import Row
from daybell.store.wakeups import Signal


class Advance(NamedTuple):
    """A firing that was first, with those of its ticks that are new."""

    owner: int
    firing: Firing
    ticks: list[Tick]


_TENANT: Final = "SELECT n FROM tenant WHERE name = ?"
_ADVANCE: Final = """
UPDATE schedule SET next_at = ?, delay = iif(?, NULL, delay)
 WHERE tenant = ? AND id = ? AND next_at = ? AND is_paused = 0
"""


def fire(tx: Transaction, firings: Sequence[Firing]) -> list[bool]:
    """Advance each schedule whose cursor still is where the caller saw it."""
    answers: list[bool] = []
    made: list[Advance] = []
    creations: dict[str, tuple[int, Creation]] = {}
    for firing in firings:
        if firing.tenant not in creations:
            found = tx.execute(_TENANT, (firing.tenant,)).fetchone()
            owner = found[0] if found else 0
            creations[firing.tenant] = owner, Creation(tx, owner)
        owner, creation = creations[firing.tenant]
        where = owner, firing.schedule.bytes, firing.expect
        values = firing.next_at, int(firing.is_over), *where
        answers.append(tx.execute(_ADVANCE, values).rowcount == 1)
        if answers[-1]:
            made.append(Advance(owner, firing, record(tx, owner, firing, creation)))
    created = {name: creation.finish() for name, (_, creation) in creations.items()}
    tx.executemany(_COUNT, [settle(tx, one, created[one.firing.tenant]) for one in made])
    return answers


_RECORD: Final = """
INSERT INTO tick (tenant, schedule, at, decision, reason, until, execution, count)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""


def record(tx: Transaction, owner: int, firing: Firing, creation: Creation) -> list[Tick]:
    """Keep the ticks that are not on record, and create their executions; answer which."""
    new_ticks: list[Tick] = []
    for tick in firing.ticks:
        new = tick.execution
        row = (
            owner,
            firing.schedule.bytes,
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
            creation.add(new)
    return new_ticks


_COUNT: Final = """
UPDATE schedule
   SET fired = fired + ?, last_at = ifnull(?, last_at), skipped = skipped + ?, missed = missed + ?
 WHERE tenant = ? AND id = ?
"""
_BEGIN_ANEW: Final = """
UPDATE schedule SET next_at = ? + delay
 WHERE tenant = ? AND id = ? AND next_at IS NULL AND delay IS NOT NULL
"""


def settle(tx: Transaction, advance: Advance, created: dict[UUID, Enqueued]) -> Row:
    """Count what became of the ticks: the values of _COUNT. A fixed delay begins anew if nothing
    came of them whose end could start it.
    """
    key = advance.owner, advance.firing.schedule.bytes
    fired: list[Instant] = []
    skipped = missed = refused = executions = 0
    for tick in advance.ticks:
        decision = tick.decision
        if tick.execution is not None:
            executions += 1
            answer = created.get(tick.execution.id)
            if answer is not None:
                refused += 1
                decision = correct(tx, advance, tick, answer)
        if decision is Decision.FIRED:
            fired.append(tick.at)
        elif decision is Decision.SKIPPED:
            skipped += 1
        else:
            missed += tick.count
    if executions and refused == executions and tx.execute(_BEGIN_ANEW, (tx.now, *key)).rowcount:
        tx.signals.add(Signal.SCHEDULES)
    return len(fired), fired[-1] if fired else None, skipped, missed, *key


_CORRECT: Final = """
UPDATE tick SET execution = ?, decision = ?, reason = ?
 WHERE tenant = ? AND schedule = ? AND at = ?
"""


def correct(tx: Transaction, advance: Advance, tick: Tick, answer: Enqueued) -> Decision:
    """Put on record that the overlap rule said no, or who holds the key; answer the decision."""
    decision, reason = tick.decision, tick.reason
    if answer.skipped:
        decision, reason = Decision.SKIPPED, OVERLAP
    key = advance.owner, advance.firing.schedule.bytes, tick.at
    tx.execute(_CORRECT, (answer.id.bytes, DECISION_CODES[decision], reason, *key))
    return decision
