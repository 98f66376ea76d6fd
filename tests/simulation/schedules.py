"""Jobs with schedules, and clients that pause, trigger, redefine and remove them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from daybell.client import Client
from daybell.client import schedules as room
from daybell.client.when import build_added_schedule, derive_schedule_id
from daybell.core import payload
from daybell.core.job import JobDefinition
from daybell.core.retry import Retry
from daybell.core.schedule import Overlap
from daybell.core.when import Reboot, cron, every
from daybell.core.when import Schedule as Rule
from tests.simulation.places import TENANT

NAME: Final = "simulated"  # joined to the job's gate
OWN_NAMES: Final = ("apart", "beside")  # with gates of their own
KINDS_PER_SEED: Final = 4
ONCE: Final = Retry.fixed(0.5, retries=0)


class Kind(NamedTuple):
    """A job with a schedule: the effect of its task, and its duration."""

    definition: JobDefinition
    body: str
    seconds: float
    rule: Rule


def _kind(name: str, body: str, seconds: float, rule: Rule, **options: Any) -> Kind:
    options.setdefault("retry", Retry.fixed(0.5, retries=2))
    return Kind(JobDefinition(name=name, **options), body, seconds, rule)


SKIP_MISSED: Final = '{"policy": "skip", "grace": 2.0}'
FIRE_ALL: Final = '{"policy": "fire_all", "limit": 3, "grace": 2.0}'
FIRE_ONCE: Final = '{"grace": 2.0}'
KINDS: Final = {
    kind.definition.name: kind
    for kind in (
        _kind("beat", "quick", 4, every(3, jitter=1), overlap=Overlap.ALLOW, misfire=FIRE_ALL),
        _kind("single", "quick", 40, cron("*/3 * * * * *"), misfire=FIRE_ONCE),
        _kind("inline", "quick", 40, every(3), overlap=Overlap.QUEUE, misfire=SKIP_MISSED),
        _kind("patient", "flaky", 8, every(4), overlap=Overlap.QUEUE_ALL, misfire=FIRE_ALL),
        _kind("newest", "quick", 60, every(4), overlap=Overlap.REPLACE),
        _kind("brittle", "failing", 2, every(3), retry=ONCE, pause_after_failures=2),
        _kind("rested", "flaky", 8, every(1.5, mode="delay")),
        _kind("thrice", "quick", 8, every(2, mode="delay", max_executions=3)),
        _kind("seldom", "quick", 4, every(2, max_executions=5), misfire=SKIP_MISSED),
        _kind("boot", "quick", 4, Reboot()),
    )
}


# Schedules with gates of their own, and an overlap rule.
OWN: Final = {
    derive_schedule_id(TENANT, name, own)
    for name, kind in KINDS.items()
    if kind.definition.overlap_rule(is_scheduled=True) is not Overlap.ALLOW
    for own in OWN_NAMES
}


def draw(chance: Random) -> list[str]:
    """Draw the scheduled jobs of a seed."""
    return sorted(chance.sample(sorted(KINDS), KINDS_PER_SEED))


def args_of(name: str, word: str) -> dict[str, Any]:
    return {"seconds": KINDS[name].seconds, "said": word}


class Planner:
    """The requests of one client about schedules."""

    def __init__(self, port: Any, chance: Random, names: list[str], known: list[Any]) -> None:
        self._port = port
        self._client = Client(port)
        self._chance = chance
        self._names = names
        self._known = known  # ids that any client has received
        self.verbs = (
            (self._trigger, 8),
            (self._redefine, 10),
            (self._pause, 4),
            (self._resume, 6),
            (self._remove, 2),
            (self._put_without_time, 2),
            (self._put_apart, 6),
            (self._get_to_know, 4),
        )

    def _job(self) -> str:
        return self._chance.choice(self._names)

    def _args(self, name: str) -> dict[str, Any]:
        return args_of(name, f"{self._chance.random()}")

    async def _trigger(self) -> None:
        job = self._job()
        force = self._chance.random() < 0.2
        answer = await self._client.trigger(job, self._args(job), force=force)
        self._known.append(answer.id)

    async def _redefine(self) -> None:
        """Define a job with the same times and other arguments: its next tick is computed before it
        is stored.
        """
        job = self._job()
        if self._chance.random() < 0.5:
            await room.schedule(
                self._client,
                job,
                KINDS[job].rule,
                args=self._args(job),
                name=NAME,
                overlap_by="job",
            )
        else:
            now = (await self._port.health()).now
            await asyncio.sleep(self._chance.uniform(0, 5))
            await self._put(job, now)

    async def _put_apart(self) -> None:
        """Schedules of one job, each with a gate of its own."""
        job = self._job()
        rule, args = KINDS[job].rule, self._args(job)
        await room.schedule_many(
            self._client,
            [{"job": job, "when": rule, "args": args, "name": name} for name in OWN_NAMES],
        )

    async def _put_without_time(self) -> None:
        """Store a fixed delay that waits for an end which never comes."""
        delayed = [name for name in self._names if KINDS[name].rule.delay is not None]
        for job in delayed:
            await self._put(job, None)

    async def _put(self, job: str, now: float | None) -> None:
        """Store a schedule as it began then, or without a next time."""
        kind, args = KINDS[job], payload.encode(self._args(job))
        new = build_added_schedule(
            kind.definition,
            kind.rule,
            tenant=TENANT,
            now=now or 0.0,
            args=args,
            name=NAME,
            overlap_by="job",
        )
        next_at = None if now is None else new.next_at
        await self._port.schedules.put_schedules(TENANT, [replace(new, next_at=next_at)])

    async def _pause(self) -> None:
        """Pause a job just when it is due: a scheduler may have read that, and not fired yet."""
        job = self._job()
        found = await room.schedules(self._client, job)
        now = (await self._port.health()).now
        waits = [one.next_at - now for one in found if one.next_at is not None]
        await asyncio.sleep(min(5.0, max(0.0, min(waits, default=0.0))))
        await self._client.pause(job, "simulated")

    async def _resume(self) -> None:
        await self._client.resume(self._job())

    async def _remove(self) -> None:
        await self._client.unschedule(self._job(), self._chance.choice((NAME, *OWN_NAMES)))

    async def _get_to_know(self) -> None:
        """Learn the latest execution of a schedule, to cancel or retry it as any other."""
        for schedule in await room.schedules(self._client, self._job()):
            ticks = await self._port.schedules.list_ticks(TENANT, schedule.id, limit=1)
            self._known += [tick.execution for tick in ticks if tick.execution is not None]
