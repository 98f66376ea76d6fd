"""Events over HTTP, and the steps that executions have made."""

from __future__ import annotations

from typing import Any

from daybell.client import moments
from daybell.client.remote import reading
from daybell.client.remote.transport import Transport, path_of
from daybell.client.requests import Id, Time, read_id, read_time
from daybell.client.wire import time as said_time
from daybell.core.event import Event, Published
from daybell.core.limits import PAGE_ITEMS_DEFAULT
from daybell.core.step import Step
from daybell.core.view import Page
from daybell.store.ids import mint


class Events:
    """The verbs of `Client` for events."""

    transport: Transport

    async def publish(
        self,
        name: str,
        data: Any = None,
        *,
        source: str | None = None,
        id: str | None = None,
        time: Time | None = None,
    ) -> Published:
        """Tell of an event: what waits for it goes on."""
        # Its id is made here, so that it may be sent once more if the answer is lost.
        said: dict[str, Any] = {"type": name, "data": data, "id": id or str(mint())}
        if source is not None:
            said["source"] = source
        if time is not None:
            said["time"] = said_time(read_time(time, "time"))
        return await self.transport.post("/events", said, once=True, read=_published)

    async def signal(self, id: Id, name: str, data: Any = None) -> Published:
        """The same for one execution alone."""
        path = path_of("executions", read_id(id), "signal")
        said = {"name": name, "data": data}
        return await self.transport.post(path, said, once=True, read=_published)

    async def approve(
        self,
        id: Id,
        name: str = "approval",
        *,
        approved: bool = True,
        by: str | None = None,
        note: str | None = None,
    ) -> Published:
        """Tell an execution what was decided. Who did is known by the key; `by` is not sent."""
        del by
        path = path_of("executions", read_id(id), "approve")
        said = {"name": name, "approved": approved, "note": note}
        return await self.transport.post(path, said, once=True, read=_published)

    async def events(
        self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[Event]:
        """Events that are on record, those that came last first."""
        asked = {"limit": limit, "cursor": cursor}
        return await self.transport.get("/events", asked, read=reading.page_of(moments.read_event))

    async def steps(self, id: Id) -> list[Step]:
        """What an execution has done durably, in its order."""
        path = path_of("executions", read_id(id))
        return await self.transport.get(path, read=_steps)


def _published(of: reading.Wire) -> Published:
    return Published(
        created=bool(of["created"]),
        resumed=int(of["resumed"]),
        execution=reading.identity(of.get("execution_id")),
        node=of.get("node"),
    )


def _steps(of: reading.Wire) -> list[Step]:
    return [moments.read_step(one) for one in of["steps"]]
