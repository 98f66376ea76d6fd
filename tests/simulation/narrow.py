"""What clusters have in common that run one kind of thing, and nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import zlib
from contextlib import suppress
from random import Random
from typing import Any, Final

from daybell.client import Client
from daybell.core.execution import Claimed
from daybell.core.retry import Retry
from daybell.engine.attempt import Attempt
from daybell.errors import DaybellError
from tests.simulation.chance import stream
from tests.simulation.cluster import WORK_SECONDS, Cluster
from tests.simulation.effects import Effects
from tests.simulation.loop import Process
from tests.simulation.tasks import worked
from tests.simulation.world import Port

PATIENCE: Final = 1_000  # a worker that is lost is nobody's failure here, however often


@dataclasses.dataclass
class Work:
    """Works for a while, and writes down that it did. Chance is drawn from what it is called."""

    effects: Effects
    retry = Retry.fixed(0.5, retries=1)
    timeout = None
    goes_on = False
    grace = 0.0
    starts_once = False

    def name_of(self, claimed: Claimed) -> bytes:
        """What its chance is drawn from."""
        raise NotImplementedError

    def seconds(self, dice: int) -> float:
        """How long it works."""
        raise NotImplementedError

    def is_hopeless(self, claimed: Claimed, dice: int) -> bool:
        """Whether it fails for good."""
        raise NotImplementedError

    def result_of(self, claimed: Claimed) -> str:
        raise NotImplementedError

    async def run(self, running: Attempt) -> str | None:
        claimed = running.claimed
        body = self.effects.begin(claimed, goes_on=False)
        dice = zlib.crc32(self.name_of(claimed))
        try:
            await worked(self.effects, body, self.seconds(dice))
            if self.is_hopeless(claimed, dice):
                raise ValueError("never")
            if dice % 7 == 0 and claimed.failures == 0:
                raise ValueError("not yet")
        except (Exception, asyncio.CancelledError) as error:
            self.effects.end(body, type(error).__name__)
            raise
        self.effects.end(body, "well")
        return self.result_of(claimed)


class NarrowCluster(Cluster):
    """A cluster whose clients act some times, and then leave."""

    ends_seconds = 900.0
    needs = ("task",)
    is_told = False
    actions: int

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scheduled = []

    async def _ask(self, process: Process) -> None:
        chance = stream(self.seed, process.name)
        port: Any = Port(self.world, process)
        client = Client(port)
        for _ in range(self.actions):
            await asyncio.sleep(chance.expovariate(self.actions / (WORK_SECONDS - 5)))
            with suppress(DaybellError):
                await self._act(client, chance)
        await asyncio.sleep(max(0.0, WORK_SECONDS - self.loop.time()))
        await self._leave(client, process)
        self._clients_left -= 1

    async def _act(self, client: Client, chance: Random) -> None:
        """Do one thing."""
        raise NotImplementedError

    async def _leave(self, client: Client, process: Process) -> None:
        """Do what is left to do when the weather is fine."""
