"""Durable functions with real workers, on all stores."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import asyncpg
import pytest

from daybell import App, Context, ExecutionFailed, Retry
from daybell.core.event import StepKind
from daybell.core.execution import TERMINAL, State
from daybell.core.views import ExecutionFilter
from tests.sdk.isolated_app import app as isolated
from tests.sdk.waiting import WAIT, eventually
from tests.stores import POSTGRES

AT_ONCE = Retry.fixed(0, retries=3, jitter=0)


@pytest.fixture(
    params=["sqlite", *(pytest.param(v, marks=pytest.mark.postgres) for v in POSTGRES.values())],
    ids=["sqlite", *POSTGRES],
)
async def app(request, tmp_path, servers):
    if request.param == "sqlite":
        app = App(f"sqlite:///{tmp_path / 'daybell.db'}")
        yield app
        await app.close()
        return
    async with servers.live(request.param) as url:
        app = App(url)
        yield app
        await app.close()


async def test_a_durable_function_from_its_first_step_to_its_end(app: App):
    done: list[str] = []
    threads = set()

    def make(name: str) -> str:
        threads.add(threading.current_thread().name)
        done.append(name)
        return name

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context, number: int) -> list[Any]:
        begun = ctx.now()
        made = await ctx.step("one", make, "one")
        await ctx.sleep(0.01)
        event = await ctx.wait_for_event("paid", match={"number": number})
        if len(done) == 1:
            raise ValueError("once more")
        assert ctx.now() >= begun
        return [made, event.data["by"], ctx.random()]

    @app.task
    def in_a_thread(ctx: Context) -> list[Any]:
        made = ctx.step("two", make, "two")
        ctx.sleep(0.01)
        decision = ctx.wait_for_approval(timeout="1d")
        return [made, decision.by]

    async with app, app.worker():
        handle, other = await order.enqueue(7), await in_a_thread.enqueue()
        await eventually(handle.status, lambda state: state is State.WAITING)
        await app.publish("paid", {"number": 8})
        assert (await app.publish("paid", {"number": 7, "by": "ada"})).resumed == 1
        done.append("paid")
        await eventually(other.status, lambda state: state is State.WAITING)
        await other.approve(by="grace")

        one, by, chance = await handle.result(timeout=WAIT)
        assert (one, by) == ("one", "ada") and 0 <= chance < 1
        assert await other.result(timeout=WAIT) == ["two", "grace"]
        steps = (await app.client().execution(handle.id)).steps

    assert sorted(done) == ["one", "paid", "two"]
    assert all(name.startswith("daybell-task") for name in threads)  # never on the loop
    kinds = [StepKind.NOW, StepKind.STEP, StepKind.SLEEP, StepKind.WAIT]
    assert [step.kind for step in steps] == kinds
    assert all(step.status == "done" for step in steps)


async def test_many_at_once_share_their_writes_and_mix_nothing_up(app: App):
    def double(n: int) -> int:
        return 2 * n

    @app.task
    async def chain(ctx: Context, n: int) -> int:
        for _ in range(4):
            n = await ctx.step("double", double, n)
        return n

    async with app, app.worker():
        handles = await chain.enqueue_many([{"n": n} for n in range(25)])
        results = await asyncio.gather(*(handle.result(timeout=WAIT) for handle in handles))

    assert results == [16 * n for n in range(25)]


async def test_steps_come_before_a_transaction(app: App):
    if not app.url.startswith("postgres"):
        pytest.skip("a transaction of the task's own needs PostgreSQL")
    connection = await asyncpg.connect(app.url)
    await connection.execute("CREATE TABLE sale (number int)")
    ran: list[str] = []

    @app.task(retries=0)
    async def sell(ctx: Context) -> str:
        number = await ctx.step("number", lambda: 7)
        async with ctx.transaction() as own:
            await own.execute("INSERT INTO sale VALUES ($1)", number)
        return str(ctx.now().tzinfo)

    @app.task(retries=0)
    async def too_late(ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute("INSERT INTO sale VALUES (8)")
            await ctx.step("late", ran.append, "late")

    @app.task(retries=0)
    async def inside(ctx: Context) -> None:
        async def whole() -> None:
            async with ctx.transaction() as own:
                await own.execute("INSERT INTO sale VALUES (9)")

        await ctx.step("whole", whole)

    async with app, app.worker():
        assert await (await sell.enqueue()).result(timeout=WAIT) == "UTC"
        with pytest.raises(ExecutionFailed, match=r"comes after ctx\.transaction"):
            await (await too_late.enqueue()).result(timeout=WAIT)
        with pytest.raises(ExecutionFailed, match="inside of step 'whole'"):
            await (await inside.enqueue()).result(timeout=WAIT)

    sold = [row["number"] for row in await connection.fetch("SELECT * FROM sale")]
    await connection.close()
    assert (sold, ran) == ([7], [])


async def test_a_task_in_a_process_of_its_own_is_told_the_way_out(file_url, monkeypatch):
    monkeypatch.setenv("DAYBELL_DATABASE_URL", file_url)
    async with isolated, isolated.worker():
        handle = await isolated.tasks["durable"].enqueue()
        with pytest.raises(ExecutionFailed, match='leave out isolation="process"'):
            await handle.result(timeout=WAIT)


async def test_a_map_of_many_items_runs_within_the_quota(app: App):
    most, seen = 20, list[int]()

    @app.task
    async def count() -> list[int]:
        return list(range(200))

    @app.task
    async def take(number: int) -> int:
        client = app.client()
        unfinished = await client.store.catalog.count_executions(
            "default", ExecutionFilter(with_nodes=True, states=frozenset(State) - TERMINAL)
        )
        seen.append(sum(unfinished.values()))
        return number

    with app.workflow("each") as each:
        _ = take.map(count.output)

    async with app.worker():
        await app.client().update_tenant("default", queued=most)
        handle = await each.enqueue()
        assert await handle.result(WAIT) == list(range(200))

    assert 2 < max(seen) <= most


async def test_a_list_that_is_longer_than_max_items_fails_its_node(app: App):
    @app.task
    async def take(number: int) -> int:
        return number

    with app.workflow("each", params={"numbers": ...}) as each:
        _ = take.node(max_items=3).map(each.params["numbers"])

    async with app.worker():
        assert await (await each.enqueue(numbers=[1, 2, 3])).result(WAIT) == [1, 2, 3]
        with pytest.raises(ExecutionFailed, match="4 items are too many; the limit is 3"):
            await (await each.enqueue(numbers=[1, 2, 3, 4])).result(WAIT)
