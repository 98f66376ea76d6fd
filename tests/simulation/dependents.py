"""Jobs that depend on jobs in a cluster, and those who enqueue, cancel, pause and redefine them.

python -m tests.simulation --dependents --seed 123 --trace
"""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress
from random import Random
from typing import Any, Final

from msgspec.json import decode

from daybell.client import Client
from daybell.core.execution import Claimed
from daybell.core.schedule import OnFailure
from daybell.core.when import every
from daybell.engine.attempt import Handler, Handlers
from daybell.errors import DaybellError
from tests.simulation.chance import stream
from tests.simulation.cluster import Outcome
from tests.simulation.dependent_checker import DependentChecker
from tests.simulation.effects import Effects
from tests.simulation.loop import Process
from tests.simulation.narrow import PATIENCE, NarrowCluster, Work
from tests.simulation.tasks import Unmasked
from tests.simulation.world import run

SOURCES: Final = ("extract", "clean")
SEEN_OFF_SECONDS: Final = 90.0


class DependentTask(Work):
    """Runs any of the jobs. Of the sources some fail for good."""

    def name_of(self, claimed: Claimed) -> bytes:
        return claimed.id.bytes

    def seconds(self, dice: int) -> float:
        return (dice % 20) / 10

    def is_hopeless(self, claimed: Claimed, dice: int) -> bool:
        is_sure = decode(claimed.args).get("sure", False)
        return claimed.job in SOURCES and dice % 4 == 0 and not is_sure

    def result_of(self, claimed: Claimed) -> str:
        return str(claimed.attempt)


class Tasks(Unmasked):
    """All jobs, as a worker knows them."""

    def __init__(self, effects: Effects) -> None:
        self._task = DependentTask(effects)

    def find(self, claimed: Claimed) -> Handler | None:
        return self._task

    async def ask(self, claimed: Claimed) -> Handler | None:
        return self._task


class DependentCluster(NarrowCluster):
    """A cluster of jobs that wait for each other, and nothing else.

    `extract` has a schedule, `clean` is enqueued; `load` runs after both, and `digest` after that;
    `report` has a schedule, and waits for `extract` at its times.
    """

    checker = DependentChecker
    actions = 8

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
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

    async def _leave(self, client: Client, process: Process) -> None:
        if process.name == "client-1":
            await self._see_off(client)

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
