"""Clients that enqueue, cancel, pause, drain and retry, and repeat their requests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.client import Client
from daybell.core.execution import NewExecution
from daybell.core.ids import mint
from daybell.errors import DaybellError, Unavailable
from tests.simulation.places import TENANT
from tests.simulation.schedules import Planner
from tests.simulation.tasks import JOBS

GATES: Final = ("narrow", "low")
QUEUES: Final = ("default", "side")
RARE: Final = ("poison", "stuck", "slow")
MIX: Final = [name for name in JOBS for _ in range(1 if name in RARE else 2)]


class Customer:
    """The requests of one client."""

    def __init__(
        self, name: str, port: Any, chance: Random, known: list[UUID], scheduled: list[str]
    ) -> None:
        self._name = name
        self._asks = 0
        self._port = port
        self._client = Client(port)
        self._chance = chance
        self._known = known  # ids that any client has received
        self._scheduled = scheduled  # jobs that run by a schedule
        planner = Planner(port, chance, scheduled, known)
        self._verbs = (
            *planner.verbs,
            (self._enqueue, 40),
            (self._enqueue_stubbornly, 15),
            (self._enqueue_many, 5),
            (self._cancel, 15),
            (self._retry, 10),
            (self._drain, 3),
            (self._pause, 3),
        )

    async def act(self) -> None:
        """Make a request, and accept any outcome."""
        verbs, weights = zip(*self._verbs, strict=True)
        (verb,) = self._chance.choices(verbs, weights)
        with suppress(DaybellError):
            await verb()

    async def tidy(self) -> None:
        """Resume everything that is paused, and cancel waiting executions."""
        for queue in QUEUES:
            await self._insist(self._client.resume_queue, queue)

    async def silence(self) -> None:
        """Pause all schedules."""
        for job in self._scheduled:
            await self._insist(self._client.pause, job)

    async def cancel_all(self, ids: list[UUID]) -> None:
        await self._insist(self._port.queue.cancel, TENANT, ids)

    async def _insist(self, verb: Any, *args: Any) -> None:
        while True:
            try:
                return await verb(*args)
            except Unavailable:
                await asyncio.sleep(0.5)

    def _a_job(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        chance = self._chance
        options: dict[str, Any] = {}
        if chance.random() < 0.2:
            options["delay"] = chance.uniform(0, 8)
        job = chance.choice(MIX)
        return job, self._args(), options

    def _args(self) -> dict[str, Any]:
        """Return arguments that only one execution has."""
        self._asks += 1
        seconds = round(self._chance.uniform(0.5, 8), 2)
        return {"seconds": seconds, "ask": f"{self._name} {self._asks}"}

    async def _enqueue(self) -> None:
        job, args, options = self._a_job()
        key = f"key-{self._chance.randint(1, 3)}" if self._chance.random() < 0.3 else None
        answer = await self._client.enqueue(job, args, unique_key=key, **options)
        self._known.append(answer.id)

    async def _enqueue_many(self) -> None:
        job, args, options = self._a_job()
        answer = await self._client.enqueue_many(job, [args, self._args(), self._args()], **options)
        self._known += [one.id for one in answer.executions]

    async def _enqueue_stubbornly(self) -> None:
        """Repeat an enqueue until its result is known; through a gate, which clients do not offer
        yet.
        """
        job, args, options = self._a_job()
        text = msgspec.json.encode(args).decode()
        new = NewExecution(id=mint(), job=job, args=text, **options)
        if self._chance.random() < 0.6:
            new = NewExecution(
                id=new.id, job="quick", args=new.args, gate=self._chance.choice(GATES), **options
            )
        repeat = False
        while True:
            try:
                (answer,) = await self._port.queue.enqueue(TENANT, [new], repeat=repeat)
                self._known.append(answer.id)
                return
            except Unavailable:
                repeat = True
                await asyncio.sleep(self._chance.uniform(0.1, 3))

    async def _cancel(self) -> None:
        if self._known:
            recent = self._known[-6:]
            await self._client.cancel(self._chance.choice(recent))

    async def _retry(self) -> None:
        if self._known:
            await self._client.retry(self._chance.choice(self._known))

    async def _drain(self) -> None:
        workers = await self._client.workers()
        if workers:
            await self._client.drain_worker(self._chance.choice(workers).worker_id)

    async def _pause(self) -> None:
        queue = self._chance.choice(QUEUES)
        await self._client.pause_queue(queue)
        await asyncio.sleep(self._chance.uniform(0.5, 4))
        await self._client.resume_queue(queue)
