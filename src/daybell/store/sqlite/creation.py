"""Executions that use the rarer fields, or whose job minds what else of it is unfinished.

Each is decided on in the order given, as if it were alone. Their rows are written many at a time:
what has been decided about a gate is remembered until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.dependencies import DEPENDENCIES
from daybell.core.execution import Enqueued, NewExecution, State
from daybell.core.instant import Instant
from daybell.core.overlap import OVERLAP, Entry, Overlap, enter, gate_for
from daybell.store import checks
from daybell.store.codes import PRIORITIES, STATE_CODES
from daybell.store.sqlite import cancelling, gates
from daybell.store.sqlite.bulk import Bulk
from daybell.store.sqlite.names import Transaction, Version

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
    """Where an execution is put at a gate: inside with a slot, or in front of it."""

    gate: int | None = None
    slot: int | None = None
    state: int | None = None  # None: what its time says
    reason: str | None = None


class Room(msgspec.Struct, gc=False):
    """A gate, with what has been decided about it since it was looked at."""

    gate: int
    inside: int
    waiting: int  # due; one stands for all
    taken: int = 0  # slots, not written yet


class Creation:
    """The executions of one batch."""

    def __init__(self, tx: Transaction, owner: int) -> None:
        self._tx = tx
        self._owner = owner
        self._gates: dict[str, int] = {}  # that were named
        self._rooms: dict[str, Room] = {}  # of jobs and schedules
        self._rows: list[Any] = []
        self._decided: set[UUID] = set()  # of those rows: known to be new
        self._unsure: list[NewExecution] = []  # of those rows: their id or key may be there already
        self._answers: dict[UUID, Enqueued] = {}
        self.minded: set[UUID] = set()  # that their job's overlap rule was asked about

    def find_gates(self, executions: Iterable[NewExecution]) -> None:
        """Look up the gates that are named. Raises UsageError for one that does not exist."""
        for new in executions:
            if new.gate is not None and new.gate not in self._gates:
                self._gates[new.gate] = gates.find_gate(self._tx, self._owner, new.gate)

    def add(self, new: NewExecution, *, is_new: bool = False) -> None:
        """Create one, or find out why not; neither its id nor its key is there if `is_new`. Raises
        ExecutionInTheWay.
        """
        job = self._tx.names.current(self._tx, self._owner, new.job)
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
        """Write what is left, and let in at the gates that were named whoever can be. Answers for
        those about whom there is more to say than that they were created.
        """
        self._flush()
        for gate in self._gates.values():
            gates.admit(self._tx, gate)
        return self._answers

    def _pass_gate(self, new: NewExecution, job: Version, rule: Overlap, *, is_new: bool) -> None:
        """Do what the job's overlap rule says."""
        if not is_new and self._is_there(new, job):
            return
        entry = self._decide(new, rule)
        room = self._room(gate_for(new))
        self.minded.add(new.id)
        if entry is Entry.IN:
            room.inside += 1
            room.taken += 1
            place = Place(room.gate, 1)
        elif entry is Entry.WAIT:
            room.waiting += due(self._tx, new) <= self._tx.now
            place = Place(room.gate, 0, WAITING, OVERLAP)
        elif new.schedule is not None:
            self._answers[new.id] = Enqueued(new.id, skipped=True)
            place = Place(room.gate, 0, SKIPPED, OVERLAP)
        else:
            self._flush()
            raise checks.in_the_way(job.name, rule, first_in_the_way(self._tx, room.gate, rule))
        self._decided.add(new.id)
        self._rows += a_row(self._tx, self._owner, new, job, place)

    def _force(self, new: NewExecution, job: Version, gate: int) -> None:
        """Take a slot of a gate that was named, whatever its room."""
        if not self._is_there(new, job):
            self._decided.add(new.id)
            self._rows += a_row(self._tx, self._owner, new, job, Place(gate, 1))
            self._tx.execute(_TAKE, (1, gate))

    def _write(self, new: NewExecution, job: Version, place: Place) -> None:
        """Create one that nothing but its id or its key stands against."""
        self._unsure.append(new)
        self._rows += a_row(self._tx, self._owner, new, job, place)

    def _is_there(self, new: NewExecution, job: Version) -> bool:
        """Whether its id or its key is there already; then that is the answer."""
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

    def _decide(self, new: NewExecution, rule: Overlap) -> Entry:
        if new.force:
            return Entry.IN
        if new.schedule is None and due(self._tx, new) > self._tx.now:
            return Entry.WAIT
        if rule is Overlap.REPLACE:
            self._make_room(new)
        room = self._room(gate_for(new))
        return enter(rule, inside=room.inside, waiting=room.waiting)

    def _make_room(self, new: NewExecution) -> None:
        """Cancel what is in its gate, or due and before it."""
        room = self._room(gate_for(new))
        self._flush()
        number = self._tx.names.current(self._tx, self._owner, new.job).job
        at_gate = {"gate": room.gate, "job": number, "now": self._tx.now}
        for (id,) in self._tx.execute(_UNFINISHED, at_gate).fetchall():
            cancelling.cancel(self._tx, self._owner, UUID(bytes=id))
        del self._rooms[gate_for(new)]

    def _room(self, gate: str) -> Room:
        """A gate as it is now; made, if there is none."""
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
        if created < rows:
            self._answers |= find_holders(self._tx, self._owner, unsure)
        taken = [(room.taken, room.gate) for room in self._rooms.values() if room.taken]
        self._tx.executemany(_TAKE, taken)
        for room in self._rooms.values():
            room.taken = 0
        self._rows, self._unsure = [], []
        self._decided.clear()


_KNOWN: Final = "SELECT state, reason FROM execution WHERE tenant = ? AND id = ?"
_HOLDER: Final = """
SELECT id FROM execution
 WHERE job = ? AND unique_key = ? AND unique_key IS NOT NULL AND state <= 5
"""
# One priority at a time: what is not due yet is not read.
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
    """Whom to name: who has the slot; for `queue`, who waits for it already."""
    found = tx.execute(_INSIDE, (gate,)).fetchone() if rule is Overlap.SKIP else None
    (id,) = found or tx.execute(_IN_FRONT, (gate, tx.now)).fetchone()
    return UUID(bytes=id)


def find_holders(
    tx: Transaction, owner: int, executions: Sequence[NewExecution]
) -> dict[UUID, Enqueued]:
    """Some were not created. Those whose id is there were created now or earlier; the others
    have found their key taken.
    """
    held: dict[UUID, Enqueued] = {}
    for new in executions:
        if tx.execute(_KNOWN, (owner, new.id.bytes)).fetchone() is None:
            job = tx.names.current(tx, owner, new.job).job
            (holder,) = tx.execute(_HOLDER, (job, new.unique_key)).fetchone()
            held[new.id] = Enqueued(UUID(bytes=holder), created=False)
    return held


def insert(tx: Transaction, owner: int, executions: Iterable[NewExecution]) -> int:
    """Create executions that nothing but their id stands against; answer how many were new."""
    rows: list[Any] = []
    for new in executions:
        rows += a_row(tx, owner, new, tx.names.current(tx, owner, new.job), Place())
    return _INSERT.run(tx, rows)


def due(tx: Transaction, new: NewExecution) -> Instant:
    """When it may be claimed: never earlier than now."""
    return max(tx.now, tx.now + (new.delay or 0.0) if new.at is None else new.at)


def a_row(
    tx: Transaction, owner: int, new: NewExecution, job: Version, place: Place
) -> tuple[Any, ...]:
    now, run_at = tx.now, due(tx, new)
    expires_in = job.expires if new.expires_in is None else new.expires_in
    state, reason = place.state or (SCHEDULED if run_at > now else QUEUED), place.reason
    if new.awaits and job.depends and state != SKIPPED:
        state, reason = WAITING, DEPENDENCIES  # at its gate, with a slot or without, or at none
    return (
        owner,
        new.id.bytes,
        job.job,
        job.n,
        tx.names.lane(tx, owner, new.queue or job.queue, job.needs),
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
        now if state == SKIPPED else None,
    )
