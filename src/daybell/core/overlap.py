"""Overlap: what happens to an execution whose predecessor has not finished.

A job that minds has a gate with one slot, named after it. A schedule made at run time has a gate of
its own beside that, unless `overlap_by="job"` joins it to the job's. Whoever creates an execution
looks at its gate under the gate's lock, asks `enter`, and does what it says; so two schedulers, or
a scheduler and a person, cannot both find the gate free.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Literal
from uuid import UUID

import msgspec

from daybell.core.execution import NewExecution

OverlapBy = Literal["schedule", "job"]


class Overlap(StrEnum):
    """The rules there are."""

    SKIP = "skip"  # the new one does not run, and is recorded as skipped
    QUEUE = "queue"  # it waits; a second one that would wait is skipped
    QUEUE_ALL = "queue_all"  # all wait, and run one after the other
    REPLACE = "replace"  # those before it are cancelled, and it starts when they have ended
    ALLOW = "allow"  # both run


class Entry(Enum):
    """What becomes of a new execution at the gate."""

    IN = "takes the slot"
    WAIT = "waits for the slot"
    SKIP = "does not run"


class Miscount(msgspec.Struct, frozen=True, kw_only=True):
    """A gate that does not know how many it has let in."""

    tenant: str
    gate: str
    counted: int
    inside: int  # in truth


OVERLAP = "overlap"  # why something was skipped, or waits: one before it has not finished


def rule_of(overlap: Overlap | None, *, is_scheduled: bool, is_dependent: bool = False) -> Overlap:
    """The rule that counts. Left open, one job never runs twice at a time by a schedule. One that
    is fired by what it depends on waits for its turn: no other time would come for it.
    """
    if overlap is not None:
        return overlap
    if is_dependent and is_scheduled:
        return Overlap.QUEUE
    return Overlap.SKIP if is_scheduled else Overlap.ALLOW


def gate_of(job: str, schedule: UUID | None = None) -> str:
    """The gate that a job's executions pass one at a time, or those of one of its schedules. No
    name of a job has a "/".
    """
    return f"job:{job}" if schedule is None else f"job:{job}/{schedule.hex}"


def gate_for(new: NewExecution) -> str:
    """The gate at which the overlap rule is asked about an execution that names none itself."""
    return gate_of(new.job, new.schedule if new.own_gate else None)


def is_job_gate(gate: str) -> bool:
    """True for the gate of a job, or of one of its schedules: there, the overlap rule holds."""
    return gate.startswith("job:")


def is_schedule_gate(gate: str | None) -> bool:
    """True for the gate of a single schedule."""
    return gate is not None and is_job_gate(gate) and "/" in gate


def job_of_gate(gate: str) -> str:
    """The job whose gate it is, or the gate of one of its schedules."""
    return gate.removeprefix("job:").partition("/")[0]


def backfill_gate(id: object, room: int = 1) -> str:
    """The gate that the executions of one backfill pass, so many at a time."""
    return f"backfill:{id}:{room}"


def is_backfill(gate: str | None) -> bool:
    """Whether an execution repeats the past. Then its end says nothing about its schedule."""
    return gate is not None and gate.startswith("backfill:")


def room_of(gate: str) -> int | None:
    """How many a gate takes that is made when it is first needed, and removed when it is needed no
    more. None for others: somebody has to say so beforehand.
    """
    if is_job_gate(gate):
        return 1
    if not is_backfill(gate):
        return None
    room = gate.rpartition(":")[2]
    return int(room) if room.isdecimal() and len(room) < 10 else 1


def enter(rule: Overlap, *, inside: int, waiting: int) -> Entry:
    """Decide, given how many of the job have the slot, and how many are due and wait for it.

    For `replace` the caller has cancelled before what could be cancelled.
    """
    if rule is Overlap.ALLOW or inside + waiting == 0:
        return Entry.IN
    if rule is Overlap.SKIP or (rule is Overlap.QUEUE and waiting > 0):
        return Entry.SKIP
    return Entry.WAIT
