"""The tasks of the simulation: good ones, bad ones, and those that kill their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from daybell.client import Client
from daybell.core.execution import Claimed
from daybell.core.job import JobDefinition
from daybell.core.masking import NO_MASKS, Masks
from daybell.core.retry import Retry
from daybell.core.subscription import delivery_job
from daybell.engine.attempt import Attempt
from daybell.errors import DaybellError, RetryLater
from tests.simulation.effects import Body, Effects
from tests.simulation.loop import forever
from tests.simulation.schedules import KINDS
from tests.simulation.world import World

PULSE: Final = 0.4  # seconds between two steps of a body


@dataclass
class Shift:
    """The tools of a body."""

    running: Attempt
    args: dict[str, Any]
    body: Body
    effects: Effects
    world: World
    client: Client

    async def work(self, seconds: float) -> None:
        await worked(self.effects, self.body, seconds)


async def worked(effects: Effects, body: Body, seconds: float) -> None:
    """Work for a while, in observed steps."""
    while seconds > 0:
        await asyncio.sleep(min(PULSE, seconds))
        seconds -= PULSE
        effects.step(body)


async def quick(shift: Shift) -> None:
    await shift.work(shift.args["seconds"] / 10)


async def flaky(shift: Shift) -> None:
    await shift.work(shift.args["seconds"] / 20)
    if shift.running.claimed.failures < 2:
        raise ValueError("not yet")


async def failing(shift: Shift) -> None:
    await shift.work(shift.args["seconds"] / 20)
    raise ValueError("never")


async def later(shift: Shift) -> None:
    claimed = shift.running.claimed
    if claimed.attempt < 3:
        shift.running.report(checkpoint=f"attempt {claimed.attempt}")
        raise RetryLater(delay=shift.args["seconds"] / 4)


async def long(shift: Shift) -> None:
    """Work for about two leases, and report progress."""
    claimed, running = shift.running.claimed, shift.running
    if claimed.checkpoint is not None:
        shift.world.checker.seen["resumed"] += 1
    for step in range(int(shift.args["seconds"] * 2)):
        await shift.work(PULSE)
        note = f"attempt {claimed.attempt}"
        running.report(progress=float(step), note=note, checkpoint=f"{note}, step {step}")
        if step % 5 == 0:
            running.say("info", "simulation", note)


async def parent(shift: Shift) -> None:
    id = shift.running.claimed.id
    args = {"seconds": shift.args["seconds"] / 2}
    for number in range(2):
        await shift.work(0.1)
        await shift.client.enqueue("quick", args, unique_key=f"{id}-{number}", parent=id)


async def stuck(shift: Shift) -> None:
    """Run until cancelled."""
    while True:
        await shift.work(1.0)


async def slow(shift: Shift) -> None:
    """Take longer than the timeout."""
    await shift.work(30)


async def deaf(shift: Shift) -> None:
    """Ignore requests to stop."""
    for _ in range(20):
        try:
            await shift.work(PULSE)
        except asyncio.CancelledError:
            continue


async def poison(shift: Shift) -> None:
    await shift.work(0.1)
    shift.world.crash(shift.body.process, "of poison")
    await forever()


async def deliver(shift: Shift) -> None:
    """Deliver an event; some receivers are down at the first request."""
    await shift.work(0.2)
    claimed = shift.running.claimed
    if claimed.failures < 1 and claimed.id.bytes[-1] % 3 == 0:
        raise ValueError("503")


SOON: Final = Retry.fixed(0.5, retries=2)
# The job that delivers the events of the only subscription.
DELIVERIES: Final = delivery_job("hooks")
BODIES: Final[dict[str, Callable[[Shift], Awaitable[None]]]] = {
    "quick": quick,
    "flaky": flaky,
    "failing": failing,
    "later": later,
    "long": long,
    "parent": parent,
    "stuck": stuck,
    "slow": slow,
    "deaf": deaf,
    "loose": long,
    "poison": poison,
    "fragile": quick,
    "brief": quick,
    DELIVERIES: deliver,
}
JOBS: Final = {
    definition.name: definition
    for definition in (
        JobDefinition(name="quick"),
        JobDefinition(name="flaky", retry=SOON),
        JobDefinition(name="failing", retry=SOON),
        JobDefinition(name="later"),
        JobDefinition(name="long", retry=SOON),
        JobDefinition(name="parent", retry=SOON),
        JobDefinition(name="stuck"),
        JobDefinition(name="slow", retry=Retry.fixed(0.5, retries=1), timeout=2.0),
        JobDefinition(name="deaf", retry=Retry.fixed(0.5, retries=0), timeout=3.0),
        JobDefinition(name="loose", retry=SOON),
        JobDefinition(name="poison"),
        JobDefinition(name="fragile", on_lost="dead", queue="side"),
        JobDefinition(name="brief", expires=1.5, queue="side"),
    )
}


ALL_JOBS: Final = JOBS | {name: kind.definition for name, kind in KINDS.items()}
KNOWN: Final = ALL_JOBS | {DELIVERIES: JobDefinition(name=DELIVERIES, retry=SOON)}


@dataclass
class Handler:
    """Runs a body, and records that."""

    name: str
    tasks: SimulatedTasks
    retry: Retry = field(init=False)
    timeout: float | None = field(init=False)
    body: Callable[[Shift], Awaitable[None]] = field(init=False)

    @property
    def goes_on(self) -> bool:
        """Return True if it may work without a lease, as an idempotent task may."""
        return self.name == "loose"

    @property
    def grace(self) -> float:
        return 0.0

    @property
    def starts_once(self) -> bool:
        """Return True if it must not be started a second time."""
        return KNOWN[self.name].on_lost == "dead"

    def __post_init__(self) -> None:
        definition = KNOWN[self.name]
        self.retry, self.timeout = definition.retry, definition.timeout
        kind = KINDS.get(self.name)
        self.body = BODIES[self.name if kind is None else kind.body]

    async def run(self, running: Attempt) -> str | None:
        effects, claimed = self.tasks.effects, running.claimed
        body = effects.begin(claimed, goes_on=self.goes_on or self.name == "deaf")
        args = msgspec.json.decode(claimed.args)
        world, client = self.tasks.world, self.tasks.client
        try:
            await self.body(Shift(running, args, body, effects, world, client))
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, DaybellError):
                error = RuntimeError("the store is away")
            effects.end(body, type(error).__name__)
            raise error from None
        effects.end(body, "well")
        return str(claimed.attempt)


class Unmasked:
    """For workers without secrets."""

    def lacking(self, claimed: Claimed) -> str | None:
        return f"task:{claimed.job}"

    def mask(self, text: str) -> str:
        return text

    @property
    def settings(self) -> Masks:
        return NO_MASKS


@dataclass
class SimulatedTasks(Unmasked):
    """All tasks of a worker."""

    world: World
    effects: Effects
    client: Client

    def __post_init__(self) -> None:
        self._handlers = {name: Handler(name, self) for name in KNOWN}

    def find(self, claimed: Claimed) -> Handler | None:
        return self._handlers.get(claimed.job)

    async def ask(self, claimed: Claimed) -> Handler | None:
        return None
