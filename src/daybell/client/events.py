"""Events: what executions wait for, and the steps that they have made."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from daybell.client import offers
from daybell.client.node_waits import APPROVAL, DECISION, RESERVED, the_one
from daybell.client.requests import Id, Time, read_id, read_time
from daybell.core import payload
from daybell.core.event import Event, NewEvent, Published, check_event
from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.lifecycle import FOR_EVENT
from daybell.core.limits import ARGS_BYTES_MAX, PAGE_ITEMS_DEFAULT, check_name
from daybell.core.step import Step
from daybell.core.view import Page
from daybell.errors import Conflict, InvalidName, JobNotFound, Unavailable
from daybell.store.ids import mint
from daybell.store.protocol import Store

WORKFLOW: Final = "workflow"
SOURCE: Final = "daybell"  # of events that do not say where they come from


def approval_event(name: str) -> str:
    """The event that brings a decision which is waited for under this name."""
    return APPROVAL + name


def read_event(
    name: str,
    data: Any = None,
    *,
    source: str | None = None,
    id: str | None = None,
    time: Time | None = None,
    execution: Id | None = None,
) -> NewEvent:
    """An event as people write it. Without an id it gets one of its own."""
    if isinstance(name, str) and name.startswith(RESERVED):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidName(
            f"names of events that begin with {RESERVED!r} are reserved; decisions are sent with"
            " approve",
            field="name",
        )
    return check_event(
        NewEvent(
            id=str(mint()) if id is None else id,
            source=SOURCE if source is None else source,
            name=name,
            data=payload.encode(data, what="data", bytes_max=ARGS_BYTES_MAX),
            time=None if time is None else read_time(time, "time"),
            execution=None if execution is None else read_id(execution),
        )
    )


def read_decision(
    execution: Id, name: str, *, approved: bool, by: str | None, note: str | None
) -> NewEvent:
    """A person's decision as an event for the execution that waits for it."""
    said = {"approved": approved, "by": by, "note": note}
    return check_event(
        NewEvent(
            id=str(mint()),
            source=SOURCE,
            name=approval_event(check_name(name, what="approval")),
            data=payload.encode(said, what="note", bytes_max=ARGS_BYTES_MAX),
            execution=read_id(execution),
        )
    )


class Events:
    """The verbs of `Client` for events."""

    store: Store
    tenant: str

    async def publish(
        self,
        name: str,
        data: Any = None,
        *,
        source: str | None = None,
        id: str | None = None,
        time: Time | None = None,
    ) -> Published:
        """Tell of an event: what waits for it goes on, and what begins to wait for it within seven
        days, in executions that exist by now, finds it.

        One of the same source and id that is on record changes nothing.
        """
        event = read_event(name, data, source=source, id=id, time=time)
        return await self.send(event, is_own=id is None)

    async def signal(self, id: Id, name: str, data: Any = None) -> Published:
        """The same for one execution alone. Raises ExecutionNotFound, or Conflict if it has
        ended.

        A workflow's run passes it on to the node that waits for it, also one of a run inside;
        Conflict if there is none, or more than one.
        """
        return await self.send(read_event(name, data, execution=id), is_own=True)

    async def approve(
        self,
        id: Id,
        name: str = DECISION,
        *,
        approved: bool = True,
        by: str | None = None,
        note: str | None = None,
    ) -> Published:
        """Tell an execution what was decided, which it waits for or will wait for. A workflow's
        run passes it on, see `signal`.
        """
        decision = read_decision(id, name, approved=approved, by=by, note=note)
        return await self.send(decision, is_own=True)

    async def send(self, event: NewEvent, *, is_own: bool = False) -> Published:
        """Keep an event. `is_own`: its id was made here, and nobody else can have sent it."""
        event, node = await self.addressed(event)
        return await self.keep(event, node, is_own=is_own)

    async def keep(self, event: NewEvent, node: str | None, *, is_own: bool = False) -> Published:
        """The same for one that was addressed."""
        try:
            found = await self.store.publish(self.tenant, event)
        except Unavailable:
            # Perhaps only the answer is lost: then it is on record now.
            found = await self.store.publish(self.tenant, event)
            found = replace(found, created=found.created or is_own)
        return replace(found, execution=event.execution, node=node)

    async def addressed(self, event: NewEvent) -> tuple[NewEvent, str | None]:
        """An event for who is meant by it: what is for a workflow's run is for a node of it, which
        is named, too. Refuses what would be on record for nothing.
        """
        if event.execution is None:
            return event, None
        one = (await self.store.get_execution(self.tenant, event.execution)).execution
        if one.state in TERMINAL:
            again = "; retry it first" if one.state is State.DEAD else ""
            raise Conflict(
                f"execution {one.id} has ended ({one.state}), and waits for nothing{again}"
            )
        if not await self._is_run(one):
            return event, None
        waits = await self.store.node_waits(self.tenant, one.id, event=event)
        found = the_one(one.id, event, waits)
        return replace(event, execution=found.execution), found.label

    async def _is_run(self, one: Execution) -> bool:
        if one.state is State.RUNNING and one.worker is None:
            return True
        if one.state is State.WAITING and one.reason == FOR_EVENT:
            return False
        with suppress(JobNotFound):
            job = await self.store.get_job(self.tenant, one.job, version=one.version)
            return offers.definition_of(one, job.definition).kind == WORKFLOW
        return False

    async def events(
        self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[Event]:
        """Events that are on record, those that came last first."""
        return await self.store.list_events(self.tenant, limit=limit, cursor=cursor)

    async def steps(self, id: Id) -> list[Step]:
        """What an execution has done durably, in its order."""
        return await self.store.steps(self.tenant, read_id(id))
