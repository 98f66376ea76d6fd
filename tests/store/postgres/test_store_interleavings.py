"""Two operations at once, in every order that the database lets them have.

The first is stopped after one of its statements, with its transaction open. The second is
started, and either ends or waits for a lock. Then the first goes on, or its connection breaks and
it asks again. Whatever happened, the invariants hold and what was answered is true.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any, Final

import asyncpg
import msgspec
import pytest

from daybell.core.ids import mint
from daybell.errors import DaybellError, LeaseLost, Unavailable
from tests.builders import TENANT
from tests.store.postgres.answers import untrue
from tests.store.postgres.invariants import attempts, gone_wrong
from tests.store.postgres.steps import (
    DEADLINE_SECONDS,
    Fate,
    SteppedStore,
    Stop,
    settle,
    stepped_store,
)
from tests.store.postgres.world import OPERATIONS, Operation, World, build, save

STATEMENTS_MAX: Final = 40
TRIPLES: Final = 60


class Case(msgspec.Struct, frozen=True):
    """One interleaving; as text it says how to run it again."""

    names: tuple[str, ...]
    after: int
    fate: Fate
    is_pooled: bool

    def __str__(self) -> str:
        first, *others = self.names
        how = "behind a pooler, " if self.is_pooled else ""
        comes = " and ".join(others)
        stops = f"{first} stops after statement {self.after}"
        return f"{how}{stops}, {comes} comes, {first} {self.fate.value}"


class Lab:
    """The world, a store for each who acts in it, and a connection to look with."""

    def __init__(self, sql: asyncpg.Connection, stores: list[SteppedStore], world: World) -> None:
        self.sql = sql
        self.stores = stores
        self.world = world
        self.before: dict[Any, int] = {}
        self.open_leases = deepcopy(stores[0].context.open_leases)  # as if each had claimed them

    async def restore(self, *, is_pooled: bool = False) -> World:
        await self.sql.execute("SELECT world.restore()")
        for store in self.stores:
            store.db.is_pooled = is_pooled
            store.pace.stop = Stop()
            store.context.open_leases = deepcopy(self.open_leases)
            store.context.done_leases = []
        return msgspec.structs.replace(self.world, mine={})

    async def statements(self, operation: Operation) -> int:
        """How many statements an operation takes when nobody disturbs it."""
        world = await self.restore()
        await outcome(operation(self.stores[0], world, "a"))
        return self.stores[0].pace.stop.statements

    async def run(self, case: Case) -> list[str]:
        """Run one case; what went wrong."""
        world = await self.restore(is_pooled=case.is_pooled)
        acts = [OPERATIONS[name] for name in case.names]
        stop = self.stores[0].pace.stop = Stop(case.after, case.fate)
        first = asyncio.create_task(outcome(acts[0](self.stores[0], world, "a")))
        await asyncio.wait(
            [first, reached := asyncio.create_task(stop.reached.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        reached.cancel()
        others = []
        for act, store, me in zip(acts[1:], self.stores[1:], "bc", strict=False):
            task = asyncio.create_task(outcome(act(store, world, me)))
            await settle(self.sql, task, store.pace.processes)
            others.append(task)
        stop.resumed.set()
        async with asyncio.timeout(DEADLINE_SECONDS):
            answers = [await first, *[await task for task in others]]
        if isinstance(answers[0], Unavailable) and case.fate is not Fate.GOES_ON:
            world.mine["a"] = mint()  # it knows that it asks again
            answers[0] = await outcome(acts[0](self.stores[0], world, "a"))
        return await self.judge(world, list(zip(case.names, answers, strict=True)))

    async def judge(self, world: World, said: list[tuple[str, Any]]) -> list[str]:
        raised = [f"{name} raised {answer!r}" for name, answer in said if is_bad(answer)]
        # What a store believes to be over, it clears away with its next statement.
        for store in self.stores:
            if store.context.done_leases:
                await outcome(
                    store.queue.claim(
                        TENANT, worker=world.ada, lease=mint(), queues=["none"], limit=1
                    )
                )
        wrong = await gone_wrong(self.sql, self.before)
        return [*raised, *wrong, *await untrue(self.sql, world, said)]


def is_bad(answer: Any) -> bool:
    # A worker whose lease has run out may be told so.
    return isinstance(answer, Exception) and not isinstance(answer, LeaseLost)


async def outcome(operation: Any) -> Any:
    """The answer, or the error that was raised instead of one."""
    try:
        return await operation
    except DaybellError as error:
        return error


@asynccontextmanager
async def opened(place: Any) -> AsyncGenerator[Lab]:
    sql = await asyncpg.connect(place.url)
    await sql.execute("DROP SCHEMA IF EXISTS world CASCADE; CREATE SCHEMA world")
    stores = [await stepped_store(place.url) for _ in range(3)]
    try:
        lab = Lab(sql, stores, await build(stores[0], place.clock))
        await save(sql)
        lab.before = await attempts(sql)
        for store in stores[1:]:  # so that nobody has to look up names any more
            await outcome(OPERATIONS["fires"](store, lab.world, "warm"))
            await outcome(OPERATIONS["claims"](store, lab.world, "warm"))
        yield lab
    finally:
        for store in stores:
            await store.close()
        await sql.execute("DROP SCHEMA world CASCADE")
        await sql.close()


@pytest.fixture
async def lab(place):
    async with opened(place) as ready:
        yield ready


async def failures(lab: Lab, cases: list[Case]) -> list[str]:
    return [f"{case}: {wrong}" for case in cases for wrong in await lab.run(case)]


def comes_first(one: str, other: str) -> bool:
    """Each two operations meet once, with one of them stopped; each is stopped in half of its."""
    names = list(OPERATIONS)
    distance = names.index(other) - names.index(one)
    return distance == 0 or (distance > 0) == (distance % 2 == 0)


@pytest.mark.parametrize("first", OPERATIONS)
async def test_an_operation_stopped_somewhere_and_any_other_are_both_right(lab, first):
    chance = random.Random(first)
    most = await lab.statements(OPERATIONS[first])
    cases = [
        Case(
            (first, second),
            chance.randint(1, most),
            chance.choice(list(Fate)),
            chance.random() < 0.3,
        )
        for second in OPERATIONS
        if comes_first(first, second)
    ]

    assert await failures(lab, cases) == []


@pytest.mark.parametrize("seed", range(4))
async def test_three_operations_at_once_are_all_right(lab, seed):
    chance = random.Random(seed)
    cases = []
    for _ in range(TRIPLES // 4):
        names = tuple(chance.choices(list(OPERATIONS), k=3))
        most = await lab.statements(OPERATIONS[names[0]])
        cases.append(
            Case(names, chance.randint(1, most), chance.choice(list(Fate)), chance.random() < 0.3)
        )

    assert await failures(lab, cases) == []


@pytest.mark.all_only
@pytest.mark.parametrize("first", OPERATIONS)
async def test_an_operation_stopped_anywhere_and_any_other_are_both_right(lab, first):
    most = await lab.statements(OPERATIONS[first])
    cases = [
        Case((first, second), after, fate, is_pooled)
        for second in OPERATIONS
        for after in range(1, most + 1)
        for fate in Fate
        for is_pooled in {False, after % 2 == 0}
    ]

    assert await failures(lab, cases) == []
