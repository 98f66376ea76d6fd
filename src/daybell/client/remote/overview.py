"""Queues, workers and the whole at a glance, over HTTP."""

from __future__ import annotations

from msgspec.structs import replace

from daybell.client.dead_letters import Step, silently
from daybell.client.overview import Overview, Rates
from daybell.client.remote import reading
from daybell.client.remote.transport import Transport, path_of
from daybell.client.requests import Id, read_id
from daybell.core.instant import from_iso
from daybell.core.limits import check_name
from daybell.core.view import Activity, Health, Queue
from daybell.core.worker import Leadership, Worker


class Overviews:
    """The verbs of `Client` for queues and workers, and for a look at everything."""

    transport: Transport

    async def health(self) -> Health:
        """The store's time. What else it says of itself is for those who run it."""
        return await self.transport.get("/status", read=_health)

    async def leaders(self) -> list[Leadership]:
        """Who does what one node should do for all, by name."""
        read = reading.items_of(reading.leader, "leaders")
        return await self.transport.get("/status", read=read)

    async def queues(self) -> list[Queue]:
        """Queues with their numbers, by name."""
        return await reading.whole(self.transport, "/queues", reading.queue)

    async def pause_queue(self, name: str) -> None:
        """Give out nothing from a queue until it is resumed. What runs goes on."""
        path = path_of("queues", check_name(name, what="queue"), "pause")
        await self.transport.post(path, read=reading.is_paused)

    async def resume_queue(self, name: str) -> None:
        """Give out work from a queue again."""
        path = path_of("queues", check_name(name, what="queue"), "resume")
        await self.transport.post(path, read=reading.is_paused)

    async def purge_queue(self, name: str, *, on_step: Step = silently) -> int:
        """Cancel all that waits in a queue and was there when this began; answers how many."""
        path = path_of("queues", check_name(name, what="queue"), "purge")
        cancelled = await self.transport.post(path, read=reading.cancelled)
        on_step(cancelled)
        return cancelled

    async def workers(self, *, include_dead: bool = False) -> list[Worker]:
        """Workers, oldest first."""
        asked = {"include_dead": True} if include_dead else {}
        return await reading.whole(self.transport, "/workers", reading.worker, asked)

    async def drain_worker(self, id: Id) -> None:
        """Ask a worker to finish what it has, and claim nothing more."""
        path = path_of("workers", read_id(id), "drain")
        await self.transport.post(path, read=reading.state)

    async def overview(self, *, earlier: Overview | None = None) -> Overview:
        """Look at everything; rates are those that the server has seen lately."""
        seen = await self.transport.get("/stats", read=_overview)
        return seen if earlier is not None else replace(seen, rates=None)


def _health(of: reading.Wire) -> Health:
    return Health(product="", now=from_iso(of["now"]), schema=0, checks=())


def _overview(of: reading.Wire) -> Overview:
    return Overview(
        activity=Activity(now=from_iso(of["now"])),
        queues=tuple(reading.queue(one) for one in of["queues"]),
        workers=tuple(reading.worker(one) for one in of["workers"]),
        letters=tuple(reading.execution(one) for one in of["dead_letters"]),
        has_more_letters=of["has_more_dead_letters"],
        rates=None if of["rates"] is None else Rates(**of["rates"]),
    )
