"""Steps of durable functions, and events."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import asdict

from daybell.core.event import (
    Event,
    Facts,
    NewEvent,
    Published,
    check_cursor,
    check_event,
    matches,
    result_of,
)
from daybell.core.instant import Instant
from daybell.core.step import NewStep, NodeWait, Step, StepKind, check_steps, ended, recorded
from daybell.core.view import Page, bytes_of, cut_page
from daybell.errors import ExecutionNotFound
from daybell.store import checks
from daybell.store.driving import fitting_waits
from daybell.store.memory import waits
from daybell.store.memory.executions import holds
from daybell.store.memory.tables import Part, Row, StepRow, Tables, Wait


class MemorySteps(Part):
    """See `protocol.Steps`."""

    async def steps(self, tenant: str, id: UUID) -> list[Step]:
        with self._begin(tenant) as tables:
            keys = sorted(key for key in tables.steps if key[:2] == (tenant, id))
            return [tables.steps[key].step for key in keys]

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        check_steps(steps)
        with self._begin(tenant) as tables:
            now = self._clock()
            answers: list[Step | None] = []
            for new in steps:
                row = tables.rows.get((tenant, new.id))
                if row is None or not holds(row, worker, new):
                    answers.append(None)
                else:
                    answers.append(write(tables, row, new, now))
            return answers

    async def publish(self, tenant: str, event: NewEvent) -> Published:
        check_event(event)
        with self._begin(tenant) as tables:
            now = self._clock()
            if event.execution is not None and (tenant, event.execution) not in tables.rows:
                raise ExecutionNotFound(f"no execution {event.execution}")
            key = tenant, event.source, event.id
            if key in tables.events:
                return Published(created=False)
            kept = Event(received_at=now, **asdict(event))
            last = next(reversed(tables.events.values()), (0, None))[0]
            tables.events[key] = last + 1, kept
            return Published(True, waits.deliver(tables, tenant, kept, now))

    async def time_out_waits(self, *, limit: int = 1000) -> int:
        checks.check_limit(limit)
        with self._begin() as tables:
            return waits.time_out(tables, limit, self._clock())

    async def node_waits(
        self, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
    ) -> list[NodeWait]:
        checks.check_limit(limit)
        facts = None if event is None else Facts(event.data)
        with self._begin(tenant) as tables:
            now = self._clock()
            rows = [
                (key[1], *found, wait.event, wait.match, wait.timeout_at)
                for key, wait in sorted(tables.waits.items(), key=lambda pair: pair[0])
                if (event is None or wait.event == event.name)
                and (wait.timeout_at is None or wait.timeout_at >= now)
                and (found := waits.place_in(tables, key[:2], run)) is not None
            ]
            return fitting_waits(rows, facts, limit)

    async def list_events(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Event]:
        checks.check_limit(limit)
        before = check_cursor(cursor)
        with self._begin(tenant) as tables:
            found = [
                (number, event)
                for (owner, _, _), (number, event) in tables.events.items()
                if owner == tenant and (before is None or number < before)
            ]
            page = cut_page(
                sorted(found, key=lambda one: -one[0]),
                limit,
                size=lambda one: bytes_of(one[1].data),
                cursor=lambda one: str(one[0]),
            )
            return Page(items=tuple(event for _, event in page.items), next_cursor=page.next_cursor)


def write(tables: Tables, row: Row, new: NewStep, now: Instant) -> Step:
    """Put a step on record, and answer what is there now."""
    key = *row.key, new.n
    before = tables.steps.get(key)
    step, event = recorded(new, None if before is None else before.step, now=now), None
    if before is not None and step is before.step:
        return step
    if step.kind is StepKind.WAIT:
        found = earlier_event(tables, row, new, until=step.wake_at)
        if found is not None:
            step, event = ended(step, result_of(found), now=now), (found.source, found.id)
    tables.steps[key] = StepRow(step=step, event=event)
    tables.waits.pop(key, None)
    if not step.is_done and new.event is not None and step.kind is StepKind.WAIT:
        tables.waits[key] = Wait(event=new.event, match=new.match, timeout_at=step.wake_at)
    return step


def earlier_event(
    tables: Tables, row: Row, wait: NewStep, *, until: Instant | None
) -> Event | None:
    """The first event that fits, came in time, and that no other wait of the execution got."""
    execution = row.execution
    taken = {step.event for key, step in tables.steps.items() if key[:2] == row.key}
    for (owner, *name), (_, event) in tables.events.items():
        if (
            owner == execution.tenant
            and event.name == wait.event
            and event.execution in (None, execution.id)
            and event.received_at >= execution.created_at
            and (until is None or event.received_at <= until)
            and tuple(name) not in taken
            and matches(wait.match, event.data)
        ):
            return event
    return None


def remove_events(tables: Tables, before: Instant) -> int:
    old = [key for key, (_, event) in tables.events.items() if event.received_at < before]
    for key in old:
        del tables.events[key]
    return len(old)


def remove_steps(tables: Tables) -> int:
    """Take away steps and waits of executions that are gone."""
    removed = 0
    for table in (tables.steps, tables.waits):
        old = [key for key in table if key[:2] not in tables.rows]
        for key in old:
            del table[key]
        removed += len(old)
    return removed
