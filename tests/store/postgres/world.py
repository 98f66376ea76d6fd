"""A small world in which everything is about to collide, and the operations that collide in it.

Worker `ada`'s lease has run out, but nobody has noticed yet. She holds four executions under one
lease: one with a unique key, one with nothing special, one with the only slot of a gate, and one
that somebody wants cancelled. Another waits at the gate, one is queued, two are dead letters, and
a schedule is due.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from daybell.core.execution import Claimed
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss, after_wait
from daybell.core.schedule import Firing, Tick
from daybell.store.postgres import PostgresStore
from tests.builders import (
    TENANT,
    a_report,
    a_schedule,
    a_step,
    an_event,
    an_execution,
    claim,
    dead,
    death,
    defined,
    registered,
    retry,
    success,
)
from tests.sweeps import admit, set_gates

GATE: Final = "printer"
KEY: Final = "invoice 7"
EVENT: Final = "paid"
TABLES: Final = [
    "live",
    "agenda",
    "lease",
    "worker",
    "history",
    "dead",
    "attempt",
    "schedule",
    "tick",
    "gate",
    "parked",
    "step",
    "wait",
]
# Nothing is in these at first; their rows are numbered by the database.
EMPTY: Final = ["event", "event_key"]


class World(msgspec.Struct, frozen=True):
    """Who and what there is."""

    ada: UUID
    bob: UUID
    lease: UUID
    keyed: Claimed
    plain: Claimed
    gated: Claimed
    cancelling: Claimed
    queued: UUID
    parked: UUID
    dead: list[UUID]
    schedule: UUID
    tick: float
    mine: dict[str, UUID]  # fresh ids, by what they are for

    def fresh(self, what: str) -> UUID:
        return self.mine.setdefault(what, mint())


async def build(store: PostgresStore, clock: Any) -> World:
    await defined(store)
    await set_gates(store, TENANT, {GATE: 1})
    dead_ids = [*await dead(store, unique_key=KEY), *await dead(store, gate=GATE)]
    ada = await registered(store, lease=10.0)
    bob = await registered(store, lease=10_000.0)
    new = [
        an_execution(unique_key=KEY, priority=0),
        an_execution(priority=1),
        an_execution(gate=GATE, priority=2),
        an_execution(priority=3),
    ]
    await store.queue.enqueue(TENANT, new)
    hands = await claim(store, 4, worker=ada)
    keyed, plain, gated, cancelling = hands.executions
    await store.queue.cancel(TENANT, [cancelling.id])
    queued, parked = an_execution(), an_execution(gate=GATE)
    await store.queue.enqueue(TENANT, [queued, parked])
    schedule = a_schedule(next_at=clock.now() + 5)
    await store.schedules.put_schedules(TENANT, [schedule])
    await clock.advance(20.0)
    return World(
        ada, bob, hands.lease, keyed, plain, gated, cancelling, queued.id, parked.id, dead_ids,
        schedule.id, clock.now() - 15, {},
    )  # fmt: skip


async def save(sql: asyncpg.Connection) -> None:
    """Remember the world as it is now."""
    undo = "".join(
        f"DELETE FROM daybell.{table}; INSERT INTO daybell.{table} SELECT * FROM world.{table};"
        for table in TABLES
    )
    undo += "".join(f"DELETE FROM daybell.{table};" for table in EMPTY)
    for table in TABLES:
        await sql.execute(f"CREATE TABLE world.{table} AS TABLE daybell.{table}")
    await sql.execute(
        f"CREATE FUNCTION world.restore() RETURNS void LANGUAGE plpgsql AS $$ BEGIN {undo} END $$"
    )


Operation = Callable[[PostgresStore, World, str], Awaitable[Any]]


async def claims(store: PostgresStore, world: World, me: str) -> Any:
    return await _claim(store, world.ada, world.fresh(f"lease {me}"))


async def claims_as_another(store: PostgresStore, world: World, me: str) -> Any:
    return await _claim(store, world.bob, world.fresh(f"lease of bob {me}"))


async def _claim(store: PostgresStore, worker: UUID, lease: UUID) -> Any:
    return await store.queue.claim(TENANT, worker=worker, lease=lease, queues=["default"], limit=10)


async def finishes(store: PostgresStore, world: World, me: str) -> Any:
    moves = [success(world.keyed), success(world.cancelling)]
    return await store.queue.apply(TENANT, worker=world.ada, transitions=moves)


async def finishes_gated(store: PostgresStore, world: World, me: str) -> Any:
    return await store.queue.apply(TENANT, worker=world.ada, transitions=[success(world.gated)])


async def retries(store: PostgresStore, world: World, me: str) -> Any:
    moves = [retry(world.keyed, delay=0.0), retry(world.gated), retry(world.cancelling)]
    return await store.queue.apply(TENANT, worker=world.ada, transitions=moves)


async def dies(store: PostgresStore, world: World, me: str) -> Any:
    moves = [death(world.keyed), death(world.gated)]
    return await store.queue.apply(TENANT, worker=world.ada, transitions=moves)


async def renews(store: PostgresStore, world: World, me: str) -> Any:
    known = [world.lease, *world.mine.values()]
    return await store.queue.renew(TENANT, worker=world.ada, lease=60.0, leases=known)


async def renews_forgetfully(store: PostgresStore, world: World, me: str) -> Any:
    known = list(world.mine.values())
    return await store.queue.renew(TENANT, worker=world.ada, lease=60.0, leases=known)


async def reaps(store: PostgresStore, world: World, me: str) -> Any:
    verdicts = []
    for lost in (await store.queue.lost()).executions:
        move = after_loss(lost.claimed, max_crashes=lost.max_crashes, retry=lost.retry)
        verdicts += await store.queue.apply(
            TENANT, worker=lost.worker, transitions=[move], wait=False
        )
    return verdicts


async def reaps_together(store: PostgresStore, world: World, me: str) -> Any:
    moves = [
        after_loss(lost.claimed, max_crashes=lost.max_crashes, retry=lost.retry)
        for lost in (await store.queue.lost()).executions
        if lost.worker == world.ada
    ]
    return await store.queue.apply(TENANT, worker=world.ada, transitions=moves, wait=False)


async def cancels(store: PostgresStore, world: World, me: str) -> Any:
    return await store.queue.cancel(TENANT, cancelled_ids(world))


def cancelled_ids(world: World) -> list[UUID]:
    return [world.keyed.id, world.gated.id, world.queued, world.parked]


async def fires(store: PostgresStore, world: World, me: str) -> Any:
    execution = an_execution(
        id=world.fresh(f"fired {me}"), gate=GATE, schedule=world.schedule, scheduled_for=world.tick
    )
    tick = Tick(at=world.tick, execution=execution)
    firing = Firing(
        tenant=TENANT,
        schedule=world.schedule,
        expect=world.tick,
        next_at=world.tick + 60,
        ticks=(tick,),
    )
    return await store.schedules.fire([firing])


async def enqueues_a_held_key(store: PostgresStore, world: World, me: str) -> Any:
    new = an_execution(id=world.fresh(f"keyed {me}"), unique_key=KEY)
    return await store.queue.enqueue(TENANT, [new], repeat=me in world.mine)


async def enqueues_at_the_gate(store: PostgresStore, world: World, me: str) -> Any:
    new = an_execution(id=world.fresh(f"gated {me}"), gate=GATE)
    return await store.queue.enqueue(TENANT, [new], repeat=me in world.mine)


async def enqueues_again(store: PostgresStore, world: World, me: str) -> Any:
    new = [
        an_execution(id=world.keyed.id, unique_key=KEY),
        an_execution(id=world.gated.id, gate=GATE),
    ]
    return await store.queue.enqueue(TENANT, new, repeat=True)


async def releases(store: PostgresStore, world: World, me: str) -> Any:
    return await store.queue.release(TENANT, worker=world.ada, leases=[world.lease])


async def reports(store: PostgresStore, world: World, me: str) -> Any:
    return await store.queue.report(TENANT, worker=world.ada, reports=[a_report(world.keyed)])


async def revives(store: PostgresStore, world: World, me: str) -> Any:
    return await store.queue.revive(TENANT, world.dead)


async def discards(store: PostgresStore, world: World, me: str) -> Any:
    return await store.queue.discard(TENANT, world.dead)


async def retires(store: PostgresStore, world: World, me: str) -> Any:
    return await store.queue.retire(TENANT, world.ada)


async def suspends(store: PostgresStore, world: World, me: str) -> Any:
    """Two wait for an event, which may have come."""
    chosen = [world.keyed, world.gated]
    steps = [a_step(one, event=EVENT) for one in chosen]
    await store.runs.record(TENANT, worker=world.ada, steps=steps)
    moves = [after_wait(one, ran=1.0) for one in chosen]
    return await store.queue.apply(TENANT, worker=world.ada, transitions=moves)


async def publishes(store: PostgresStore, world: World, me: str) -> Any:
    return await store.runs.publish(TENANT, an_event(EVENT, id=str(world.fresh(f"event {me}"))))


async def widens_the_gate(store: PostgresStore, world: World, me: str) -> Any:
    return await set_gates(store, TENANT, {GATE: 2})


async def admits(store: PostgresStore, world: World, me: str) -> Any:
    return await admit(store)


OPERATIONS: Final[dict[str, Operation]] = {
    operation.__name__: operation
    for operation in (
        claims,
        claims_as_another,
        finishes,
        finishes_gated,
        retries,
        dies,
        renews,
        renews_forgetfully,
        reaps,
        reaps_together,
        cancels,
        fires,
        enqueues_a_held_key,
        enqueues_at_the_gate,
        enqueues_again,
        releases,
        reports,
        revives,
        discards,
        retires,
        suspends,
        publishes,
        widens_the_gate,
        admits,
    )
}
