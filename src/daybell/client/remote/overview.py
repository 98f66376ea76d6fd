"""Queues, workers and the whole at a glance, over HTTP."""

from __future__ import annotations

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
        found = await self.transport.get("/status")
        return Health(product="", now=from_iso(found["now"]), schema=0, checks=())

    async def leaders(self) -> list[Leadership]:
        """Who does what one node should do for all, by name."""
        found = await self.transport.get("/status")
        return [reading.leader(one) for one in found["leaders"]]

    async def queues(self) -> list[Queue]:
        """Queues with their numbers, by name."""
        return [reading.queue(one) for one in (await self.transport.get("/queues"))["items"]]

    async def pause_queue(self, name: str) -> None:
        """Give out nothing from a queue until it is resumed. What runs goes on."""
        await self.transport.post(path_of("queues", check_name(name, what="queue"), "pause"))

    async def resume_queue(self, name: str) -> None:
        """Give out work from a queue again."""
        await self.transport.post(path_of("queues", check_name(name, what="queue"), "resume"))

    async def purge_queue(self, name: str, *, on_step: Step = silently) -> int:
        """Cancel all that waits in a queue and was there when this began; answers how many."""
        path = path_of("queues", check_name(name, what="queue"), "purge")
        cancelled: int = (await self.transport.post(path))["cancelled"]
        on_step(cancelled)
        return cancelled

    async def workers(self, *, include_dead: bool = False) -> list[Worker]:
        """Workers, oldest first."""
        asked = {"include_dead": True} if include_dead else {}
        found = await self.transport.get("/workers", asked)
        return [reading.worker(one) for one in found["items"]]

    async def drain_worker(self, id: Id) -> None:
        """Ask a worker to finish what it has, and claim nothing more."""
        await self.transport.post(path_of("workers", read_id(id), "drain"))

    async def overview(self, *, earlier: Overview | None = None) -> Overview:
        """Look at everything; rates are those that the server has seen lately."""
        found = await self.transport.get("/stats")
        rates = found["rates"]
        return Overview(
            activity=Activity(now=from_iso(found["now"])),
            queues=tuple(reading.queue(one) for one in found["queues"]),
            workers=tuple(reading.worker(one) for one in found["workers"]),
            letters=tuple(reading.execution(one) for one in found["dead_letters"]),
            has_more_letters=found["has_more_dead_letters"],
            rates=None if rates is None or earlier is None else Rates(**rates),
        )
