"""Durable functions that wait for an event, or for a person."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from daybell import (
    App,
    Context,
    UsageError,
)
from daybell.core.execution import State
from daybell.testing import Bench


async def states(bench: Bench) -> list[State]:
    return [one.state for one in bench.executions()]


async def test_an_event_lets_an_execution_go_on(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context, order_id: int) -> Any:
        event = await ctx.wait_for_event("order.paid", match={"order_id": order_id}, timeout="7d")
        return None if event is None else [event.name, event.data, event.source, event.id]

    first, second = await order.enqueue(1), await order.enqueue(2)
    await bench.run_due()
    assert await states(bench) == [State.WAITING, State.WAITING]

    told = await app.publish("order.paid", {"order_id": 2, "by": "card"}, source="shop", id="x")
    again = await app.publish("order.paid", {"order_id": 2}, source="shop", id="x")
    await bench.run_due()

    assert (told.created, told.resumed, again.created, again.resumed) == (True, 1, False, 0)
    found = ["order.paid", {"order_id": 2, "by": "card"}, "shop", "x"]
    assert await second.result() == found
    assert await first.status() is State.WAITING

    await bench.advance("7d")
    assert await first.result() is None


async def test_a_signal_that_comes_before_the_wait_is_not_lost(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context) -> list[Any]:
        await ctx.sleep("1h")
        return [
            (await ctx.wait_for_event("go")).data,
            (await ctx.wait_for_event("go")).data,
        ]

    handle, other = await order.enqueue(), await order.enqueue()
    await bench.run_due()
    await handle.signal("go", 1)
    await bench.advance("1h")
    await handle.signal("go", 2)
    await bench.run_due()

    assert await handle.result() == [1, 2]
    assert await other.status() is State.WAITING


async def test_waiting_for_several_events_at_once(app: App, bench: Bench):
    @app.task
    def in_a_thread(ctx: Context) -> Any:
        return ctx.wait_for_event("a").data

    @app.task
    async def order(ctx: Context) -> list[Any]:
        found = await asyncio.gather(ctx.wait_for_event("a"), ctx.wait_for_event("b"))
        return [one.data for one in found]

    handle, other = await order.enqueue(), await in_a_thread.enqueue()
    await bench.run_due()
    await app.publish("b", 2)
    await bench.run_due()
    await app.publish("a", 1)
    await bench.run_due()

    assert await handle.result() == [1, 2]
    assert await other.result() == 1


async def test_a_person_decides(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context) -> list[Any]:
        first = await ctx.wait_for_approval(timeout="1d")
        second = await ctx.wait_for_approval("refund", timeout="1d")
        third = await ctx.wait_for_approval(timeout="1d")
        return [
            [bool(one), one.approved, one.by, one.note, one.timed_out]
            for one in (first, second, third)
        ]

    handle = await order.enqueue()
    await bench.run_due()
    await app.publish("approval")  # is another event
    await handle.approve(by="ada", note="fine")
    await bench.run_due()
    await handle.approve("refund", approved=False, by="grace")
    await bench.advance("2d")

    assert await handle.result() == [
        [True, True, "ada", "fine", False],
        [False, False, "grace", None, False],
        [False, False, None, None, True],
    ]
    with pytest.raises(UsageError, match="reserved"):
        await handle.signal("daybell.approval.approval", {"approved": True})
