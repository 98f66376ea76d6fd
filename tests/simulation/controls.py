"""Jobs with limits, rates, demands and collapsing requests, and jobs that events fire.

python -m tests.simulation --controls --seed 123 --trace
"""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from daybell.client import Client
from daybell.core.execution import Claimed
from daybell.core.when import on_event
from daybell.engine.attempt import Attempt, Handler, Handlers
from daybell.engine.worker import WorkerOptions
from daybell.errors import DaybellError, Unavailable
from tests.simulation.chance import stream
from tests.simulation.cluster import Outcome, Slot
from tests.simulation.control_checker import (
    ACCOUNTS,
    CACHED_SECONDS,
    EVENT,
    HEARD,
    LATEST_SECONDS,
    LISTENERS,
    OWN,
    PERIOD,
    SHARED,
    STARTS,
    ControlChecker,
)
from tests.simulation.effects import Effects
from tests.simulation.loop import Process
from tests.simulation.narrow import PATIENCE, NarrowCluster, Work
from tests.simulation.tasks import Unmasked
from tests.simulation.world import run

JOBS: Final = (
    *("charge", "charge", "refund", "refund", "call", "call", "index", "index", "index"),
    *("sync", "sync", "lone", "lone", "report", "report", "train", "near"),
)


class ControlTask(Work):
    """Runs any of the jobs."""

    def __init__(self, effects: Effects, checker: ControlChecker) -> None:
        super().__init__(effects)
        self._checker = checker

    def name_of(self, claimed: Claimed) -> bytes:
        return claimed.id.bytes

    def seconds(self, dice: int) -> float:
        return (dice % 30) / 10

    def is_hopeless(self, claimed: Claimed, dice: int) -> bool:
        return dice % 11 == 0

    def result_of(self, claimed: Claimed) -> str:
        return str(claimed.attempt)

    async def run(self, running: Attempt) -> str | None:
        worker = self._checker.given[running.claimed.id, running.claimed.attempt][0]
        self._checker.begun(running.claimed, worker, self.effects.count_of(worker, "train"))
        return await super().run(running)


class Tasks(Unmasked):
    """All jobs, as a worker knows them."""

    def __init__(self, task: ControlTask) -> None:
        self._task = task

    def find(self, claimed: Claimed) -> Handler | None:
        return self._task

    async def ask(self, claimed: Claimed) -> Handler | None:
        return self._task


class ControlCluster(NarrowCluster):
    """A cluster whose jobs are held back, collapsed, placed, or fired by events."""

    checker = ControlChecker
    actions = 20

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._policies = stream(seed, "policies")
        # The first worker outlives all others, so it can run everything.
        zones = ["eu", *(self._policies.choice(("eu", "us")) for _ in range(9))]
        gpus = [1.0, *(float(self._policies.choice((0, 1, 2))) for _ in range(9))]
        self._sites = list(zip(zones, gpus, strict=True))
        self._asked = 0
        self._sent: list[int] = []  # numbers of events

    def run(self) -> Outcome:
        return dataclasses.replace(super().run(), flags=" --controls")

    @property
    def _checker(self) -> ControlChecker:
        checker = self.world.checker
        assert isinstance(checker, ControlChecker)
        return checker

    def _prepare(self) -> None:
        store = self.world.place.store
        asyncio._set_running_loop(self.loop)
        run(store.open())
        run(self._define(Client(store)))
        self._checker.learn()
        asyncio._set_running_loop(None)

    async def _define(self, client: Client) -> None:
        chance = self._policies
        shared = {"name": "shared", "limit": SHARED}
        full = chance.choice(("wait", "wait", "skip", "cancel_oldest", "keep_newest"))
        conflict = chance.choice(("return", "replace", "cancel", "error"))
        scope = chance.choice(("running", "unfinished"))
        overlap = self._checker.overlap = chance.choice(("skip", "allow", "queue_all"))
        by_account: Any = {"key": "account"}
        jobs: dict[str, dict[str, Any]] = {
            "charge": {"concurrency": [shared, {"limit": OWN, **by_account}]},
            "refund": {"concurrency": [shared], "on_full": full},
            "call": {"rate": {"rate": f"{STARTS}/{PERIOD:g}s", **by_account}},
            "index": {
                "debounce": {"wait": "3s", **by_account},
                "max_wait": f"{LATEST_SECONDS:g}s",
            },
            "sync": {"throttle": {"rate": f"{STARTS}/{PERIOD:g}s", **by_account}},
            "lone": {"singleton": {"scope": scope, **by_account}, "on_conflict": conflict},
            "report": {"cache_for": f"{CACHED_SECONDS:g}s", "cache_key": "account"},
            "train": {"resources": {"gpu": 1}},
            "near": {"requires": {"zone": "eu"}},
            "hear": {
                "schedule": on_event(EVENT, where={"account": {"in": [*HEARD]}}),
                "overlap": overlap,
            },
            "note": {"schedule": on_event(EVENT)},
            "paid": {"schedule": on_event(EVENT), "concurrency": [shared]},
        }
        for name, options in jobs.items():
            await client.define(name, max_crashes=PATIENCE, **options)

    def _options(self, slot: Slot) -> WorkerOptions:
        zone, gpus = self._sites[int(slot.name.partition("-")[2]) - 1]
        options = super()._options(slot)
        return replace(options, labels={"zone": zone}, resources={"gpu": gpus} if gpus else {})

    def _tasks(self, client: Client) -> Handlers:
        return Tasks(ControlTask(self.effects, self._checker))

    async def _act(self, client: Client, chance: Random) -> None:
        dice = chance.random()
        account = chance.choice(ACCOUNTS)
        if dice < 0.1 and self.known:
            await client.cancel(chance.choice(self.known[-3:]))
        elif dice < 0.18:
            verb = client.pause if dice < 0.14 else client.resume
            await verb(chance.choice(LISTENERS))
        elif dice < 0.3:
            number = self._next()
            self._sent.append(number)
            await self._publish(client, chance, number, account)
        elif dice < 0.38 and self._sent:
            # Another process sends an event that is perhaps on record, with its first data.
            number = chance.choice(self._sent)
            await self._publish(client, chance, number, ACCOUNTS[number % len(ACCOUNTS)])
        else:
            args = {"account": account, "n": self._next()}
            self.known.append((await client.enqueue(chance.choice(JOBS), args)).id)

    async def _publish(self, client: Client, chance: Random, number: int, account: str) -> None:
        account = ACCOUNTS[number % len(ACCOUNTS)]
        for _ in range(chance.randint(1, 4)):
            with suppress(Unavailable):
                data = {"account": account, "n": number}
                await client.publish(EVENT, data, source="simulated", id=str(number))
                return

    def _next(self) -> int:
        """A number for what is asked for."""
        self._asked += 1
        return self._asked

    async def _leave(self, client: Client, process: Process) -> None:
        for name in LISTENERS:
            with suppress(DaybellError):
                await client.resume(name)
