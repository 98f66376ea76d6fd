"""Situations in which something does not go on, and the ways to perform a remedy."""

from __future__ import annotations

import asyncio
import shlex
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from daybell.api import ApiOptions, create_api
from daybell.client import Client, wire
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_cancel
from daybell.core.placement import parse_amounts
from daybell.engine.events import Events
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import DependentsLoop, Scheduler
from daybell.store.protocol import Store
from tests.api.conftest import asking
from tests.builders import LEASE, Hands, a_worker, apply, claim, success
from tests.cli.terminal import daybell
from tests.stores import Place

KINDS = ("task", "command", "http", "workflow")
TENANT = "default"

# A remedy is a command and a request. Each is performed on one store: stores differ in situations.
ONE_WAY_PER_STORE = pytest.mark.parametrize(
    ("place", "by"),
    [("sqlite", "command"), pytest.param("postgres", "request", marks=pytest.mark.postgres)],
    indirect=["place"],
)


class World:
    """A store with a client, workers and schedulers that a test moves by hand."""

    def __init__(self, place: Place, store: Store, folder: Path) -> None:
        self.place, self.store, self.folder = place, store, folder
        self.client = Client(store)
        self.clock = place.clock
        self._taken: list[Hands] = []

    async def worker(
        self, *queues: str, kinds: tuple[str, ...] = ("task",), lease: float = LEASE, **options: Any
    ) -> UUID:
        """A live worker."""
        new = a_worker(queues=queues or ("default",), kinds=kinds, **options)
        await self.store.queue.register(TENANT, new, lease=lease)
        return new.id

    async def start(self, job: str = "resize", **options: Any) -> tuple[UUID, Hands]:
        """An execution that a worker of its own has claimed."""
        made = await self.client.enqueue(job, **options)
        worker = await self.worker(kinds=KINDS, capacity=100)
        hands = await claim(self.store, worker=worker, kinds=KINDS)
        one = next(one for one in hands.executions if one.id == made.id)
        return made.id, hands._replace(executions=[one])

    async def take(self, **options: Any) -> None:
        """Let a worker claim all that it can."""
        worker = await self.worker(capacity=10, resources=options.pop("resources", {}))
        self._taken.append(await claim(self.store, worker=worker, **options))

    async def stop_cancelled(self) -> None:
        """Let workers end the executions that they were asked to stop."""
        for hands in self._taken:
            for one in hands.executions:
                found = (await self.store.catalog.get_execution(TENANT, one.id)).execution
                if found.cancel_requested_at is not None:
                    await apply(self.store, hands, after_cancel(one, ran=1.0))

    async def fire(self) -> None:
        """Fire the schedules that are due, and start or skip dependents."""
        clock = ManualClock(self.clock.now())
        for kind in (Scheduler, DependentsLoop):
            await kind(self.store, clock=clock, mint=mint, events=Events()).tick()

    async def work_off(self) -> None:
        """Let all that is due succeed, and dependents begin."""
        worker = await self.worker(kinds=KINDS, capacity=100)
        for _ in range(3):
            hands = await claim(self.store, worker=worker, kinds=KINDS)
            await apply(self.store, hands, *(success(one) for one in hands.executions))
            await self.store.queue.retire(TENANT, worker)
            worker = await self.worker(kinds=KINDS, capacity=100)
            await self.fire()

    async def states(self, job: str) -> list[State]:
        """The states of the executions of a job, newest first."""
        return [one.status for one in (await self.client.executions(job=job)).items]

    async def perform(self, remedy: wire.Remedy, *, by: str) -> None:
        """Do it as a user would: by its command, or by its request."""
        if remedy.request is None:
            await self._start_process(remedy.command)
        else:
            asked = remedy.request
            await self.perform_text(remedy.command, (asked.method, asked.path, asked.body), by=by)

    async def perform_text(
        self, command: str, request: tuple[str, str, dict[str, Any] | None], *, by: str
    ) -> None:
        """Do something by a command, or by a request."""
        if by == "request":
            await self._send(*request)
        else:
            prefix = "sqlite:///" if self.place.kind == "sqlite" else ""
            ended = await asyncio.to_thread(
                daybell,
                *shlex.split(command.removeprefix("daybell ")),
                folder=self.folder,
                DAYBELL_DATABASE_URL=f"{prefix}{self.place.url}",
            )
            assert ended.code == 0, (command, ended.out, ended.err)
            # Nothing that it wrote may lie in the future.
            await self.clock.advance(max(0.0, datetime.now(UTC).timestamp() - self.clock.now()))

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> None:
        app = create_api(self.client, options=ApiOptions(open_tenant=TENANT))
        async with asking(app) as http:
            answer = await http.request(method, path.removeprefix("/api/v1"), json=body)
        assert answer.is_success, answer.text

    async def _start_process(self, command: str) -> None:
        words = shlex.split(command)
        if words[:2] == ["daybell", "scheduler"]:
            await self.store.admin.lead("scheduler", holder=mint(), lease=60.0)
            return await self.fire()
        assert words[:2] == ["daybell", "worker"], command
        flags = dict(pairwise(words))
        queues = flags.get("--queues", "default")
        options: dict[str, Any] = {"resources": parse_amounts(flags.get("--resources", ""))}
        options["labels"] = dict(
            label.split("=", 1) for label in flags.get("--labels", "").split(",") if label
        )
        kinds = {"http", "workflow"}
        kinds |= {"command"} if "--allow-command" in words else set()
        kinds |= {"task"} if "APP" in words else set()
        kinds |= set() if kinds & {"command", "task"} or "APP" in words else {"task"}
        await self.worker(queues, kinds=tuple(sorted(kinds)), capacity=10, **options)
