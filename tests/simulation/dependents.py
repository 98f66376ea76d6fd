"""Jobs that depend on jobs in a cluster, and those who enqueue, cancel, pause and redefine them.

python -m tests.simulation --dependents --seed 123 --trace
"""

from __future__ import annotations

import asyncio
import dataclasses
import zlib
from contextlib import suppress
from random import Random
from typing import Any, Final

from msgspec.json import decode

from daybell.client import Client
from daybell.core.dependencies import OnFailure
from daybell.core.execution import Claimed
from daybell.core.retry import Retry
from daybell.core.when import every
from daybell.engine.handlers import Handler, Handlers, Running
from daybell.errors import DaybellError
from tests.simulation.chance import stream
from tests.simulation.cluster import WORK_SECONDS, Cluster, Outcome
from tests.simulation.dependent_checker import DependentChecker
from tests.simulation.effects import Effects
from tests.simulation.loop import Process
from tests.simulation.tasks import PULSE
from tests.simulation.world import Port, run

ACTIONS: Final = 8
SOURCES: Final = ("extract", "clean")
SEEN_OFF_SECONDS: Final = 90.0
PATIENCE: Final = 1_000  # a worker that is lost is nobody's failure here


@dataclasses.dataclass
class Body:
    """Runs any of the jobs, and writes down that it did. Of the sources some fail for good."""

    effects: Effects
    retry = Retry.fixed(0.5, retries=1)
    timeout = None
    goes_on = False
    grace = 0.0
    starts_once = False

    async def run(self, running: Running) -> str | None:
        claimed = running.claimed
        body = self.effects.begin(claimed, goes_on=False)
        dice = zlib.crc32(claimed.id.bytes)
        try:
            seconds = (dice % 20) / 10
            while seconds > 0:
                await asyncio.sleep(min(PULSE, seconds))
                seconds -= PULSE
                self.effects.step(body)
            is_sure = decode(claimed.args).get("sure", False)
            if claimed.job in SOURCES and dice % 4 == 0 and not is_sure:
                raise ValueError("never")
            if dice % 7 == 0 and claimed.failures == 0:
                raise ValueError("not yet")
        except (Exception, asyncio.CancelledError) as error:
            self.effects.end(body, type(error).__name__)
            raise
        self.effects.end(body, "well")
        return str(claimed.attempt)


class Tasks:
    """All jobs, as a worker knows them."""

    def __init__(self, effects: Effects) -> None:
        self._body = Body(effects)

    def find(self, claimed: Claimed) -> Handler | None:
        return self._body

    async def ask(self, claimed: Claimed) -> Handler | None:
        return self._body

    def mask(self, text: str) -> str:
        return text

    def mask_json(self, text: str) -> str:
        return text


class DependentCluster(Cluster):
    """A cluster of jobs that wait for each other, and nothing else.

    `extract` has a schedule, `clean` is enqueued; `load` runs after both, and `digest` after that;
    `report` has a schedule, and waits for `extract` at its times.
    """

    checker = DependentChecker
    ends_seconds = 900.0

    def __init__(self, seed: int, store: str) -> None:
        super().__init__(seed, store)
        self.scheduled = []
        self._policies = stream(seed, "policies")
        self._asked = 0

    def run(self) -> Outcome:
        return dataclasses.replace(super().run(), flags=" --dependents")

    @property
    def _checker(self) -> DependentChecker:
        checker = self.world.checker
        assert isinstance(checker, DependentChecker)
        return checker

    def _prepare(self) -> None:
        store = self.world.place.store
        asyncio._set_running_loop(self.loop)
        run(store.open())
        run(self._define(Client(store)))
        self._checker.ticks.schedules = self.world.place.schedules()
        asyncio._set_running_loop(None)

    async def _define(self, client: Client) -> None:
        chance, policies = self._policies, [str(one) for one in OnFailure]
        options: Any = {"max_crashes": PATIENCE}
        await client.define("extract", schedule=every(3), **options)
        await client.define("clean", **options)
        overlap = chance.choice(("skip", "queue", "queue_all", "allow"))
        for name, needs, more in (
            ("load", SOURCES, {}),
            ("digest", ("load",), {}),
            ("report", ("extract",), {"schedule": every(4), "overlap": overlap}),
        ):
            policy: Any = chance.choice(policies)
            await client.define(
                name, dependencies=needs, on_dependency_failure=policy, **more, **options
            )
            self._checker.learn(name, needs, policy)

    def _tasks(self, client: Client) -> Handlers:
        return Tasks(self.effects)

    async def _ask(self, process: Process) -> None:
        chance = stream(self.seed, process.name)
        port: Any = Port(self.world, process)
        client = Client(port)
        for _ in range(ACTIONS):
            await asyncio.sleep(chance.expovariate(ACTIONS / (WORK_SECONDS - 5)))
            with suppress(DaybellError):
                await self._act(client, chance)
        await asyncio.sleep(max(0.0, WORK_SECONDS - self.loop.time()))
        if process.name == "client-1":
            await self._see_off(client)
        self._clients_left -= 1

    async def _act(self, client: Client, chance: Random) -> None:
        dice = chance.random()
        if dice < 0.15 and self.known:
            await client.cancel(chance.choice(self.known[-3:]))
        elif dice < 0.3:
            await client.enqueue("load", {"n": self._next()}, force=True)
        else:
            name, args = chance.choice(SOURCES), {"n": self._next()}
            self.known.append((await client.enqueue(name, args)).id)

    def _next(self) -> int:
        """A number for what is asked for, which is not to be made twice."""
        self._asked += 1
        return self._asked

    async def _see_off(self, client: Client) -> None:
        """No times come any more. What waits is let go by sources that succeed, and the last round
        is fired.
        """
        deadline = self.loop.time() + SEEN_OFF_SECONDS
        is_silent, turns = False, 0
        while not is_silent or self._checker.has_to_begin():
            if self.loop.time() > deadline:
                self.world.fail(f"nobody lets go {self._checker.has_to_begin()}")
                return
            with suppress(DaybellError):
                for name in ("extract", "report") if not is_silent else ():
                    await client.pause(name)
                is_silent = True
                if turns % 10 == 0:
                    for name in SOURCES:
                        await client.enqueue(name, {"sure": True, "n": self._next()}, force=True)
                turns += 1
            await asyncio.sleep(1.0)
