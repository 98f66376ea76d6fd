"""Listeners: the schedules that events fire, and the ticks that a group of new events gives them.

A store finds the listeners of an event by its name, and creates the executions and ticks of the
plan in the transaction that stores the events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.event import Event
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.schedule import OVERLAP, Decision, Schedule, Tick
from daybell.core.units import Instant
from daybell.core.when.cursor import PAUSED
from daybell.core.when.event import fill_args
from daybell.core.when.rule import Schedule as Rule
from daybell.errors import InvalidSchedule

_STEP: Final = 1e-6  # between the ticks of events that came at the same time


class Listener(msgspec.Struct):
    """A schedule with the ticks that new events give it."""

    schedule: Schedule
    last: Instant | None  # the time of its last tick on record
    ticks: list[Tick] = []
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    last_at: Instant | None = None  # of the last tick that fired

    def add(self, number: int, event: Event) -> None:
        """Add the tick of an event. A paused schedule misses it."""
        at = event.received_at
        if self.last is not None and self.last >= at:
            at = round(self.last + _STEP, 6)
        self.last, schedule = at, self.schedule
        if schedule.is_paused:
            missed = Tick(at=at, decision=Decision.MISSED, reason=PAUSED, event=number)
            self.ticks.append(missed)
            return
        new = NewExecution(
            id=execution_id(schedule.id, event, at),
            job=schedule.job,
            args=fill_args(schedule.args, event),
            scheduled_for=at,
            schedule=schedule.id,
            own_gate=schedule.own_gate,
            by_event=True,
            wait_for_dependencies=True,
        )
        self.ticks.append(Tick(at=at, execution=new, event=number))

    def settle(self, answers: Mapping[UUID, Enqueued]) -> None:
        """Correct the ticks of executions that the overlap rule refused, and count all."""
        for place, tick in enumerate(self.ticks):
            if tick.decision is Decision.MISSED or tick.execution is None:
                self.missed += 1
            elif answers[tick.execution.id].skipped:
                self.skipped += 1
                self.ticks[place] = replace(tick, decision=Decision.SKIPPED, reason=OVERLAP)
            else:
                self.fired, self.last_at = self.fired + 1, tick.at


class EventPlan:
    """The ticks of a group of new events."""

    def __init__(self) -> None:
        self.listeners: dict[UUID, Listener] = {}
        self.executions: list[NewExecution] = []  # in the order of the events
        self._data: dict[int, Any] = {}

    def accepts(self, schedule: Schedule, number: int, event: Event) -> bool:
        """Return True if the event passes the filter of a schedule. An unreadable rule accepts
        none: it must not stop the event.
        """
        try:
            rule = Rule.from_json(schedule.rule)
        except InvalidSchedule:
            return False
        if number not in self._data:
            self._data[number] = payload.decode(event.data, what="data")
        return rule.accepts(self._data[number])

    def learn(self, schedule: Schedule, last: Instant | None) -> None:
        """Add a schedule that an event fires, with the time of its last tick on record."""
        self.listeners[schedule.id] = Listener(schedule, last)

    def add(self, schedule: UUID, number: int, event: Event) -> None:
        """Fire a schedule with an event that it accepts."""
        listener = self.listeners[schedule]
        listener.add(number, event)
        new = listener.ticks[-1].execution
        if new is not None:
            self.executions.append(new)

    def settle(self, answers: Mapping[UUID, Enqueued]) -> None:
        """Take the answers for the executions, by id."""
        for listener in self.listeners.values():
            listener.settle(answers)

    @property
    def ticks(self) -> list[tuple[UUID, Tick]]:
        """The ticks to record, each with its schedule."""
        return [(id, tick) for id, one in self.listeners.items() for tick in one.ticks]

    def executions_of(self, numbers: Sequence[int]) -> list[tuple[UUID, ...]]:
        """Return the executions of each event, those that were skipped included."""
        found: dict[int, list[UUID]] = {number: [] for number in numbers}
        for _, tick in self.ticks:
            if tick.execution is not None and tick.event is not None:
                found[tick.event].append(tick.execution.id)
        return [tuple(sorted(found[number])) for number in numbers]


def execution_id(schedule: UUID, event: Event, at: Instant) -> UUID:
    """Return the id of the execution that an event fires at the time of its tick. Those of one
    schedule are claimed in the order of the events.
    """
    text = f"{schedule} {event.source}\0{event.id}"
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) & ((1 << 62) - 1)
    stamp = int(at * 4_096_000)  # as `core.ids.mint` counts
    milliseconds, fraction = stamp >> 12 & ((1 << 48) - 1), stamp & 0xFFF
    return UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | digest)
