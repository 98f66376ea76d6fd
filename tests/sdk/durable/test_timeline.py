"""What a durable function did, slept and waited for, in the timeline and in words for a person."""

from __future__ import annotations

from typing import Any

from daybell import App, Context
from daybell.cli.views.executions import echo_detail
from daybell.client.events import attempt_outcome, timeline
from daybell.testing import Bench


async def seen(app: App, id: Any) -> tuple[list[str], list[str]]:
    """How its attempts ended, and its timeline."""
    client = await app.open()
    store, tenant = client.store, client.tenant
    detail, steps = (
        await store.catalog.get_execution(tenant, id),
        await store.runs.steps(tenant, id),
    )
    told = timeline(detail, None, steps)
    events = [f"{one.event} {one.step or ''}".rstrip() for one in told]
    return [attempt_outcome(one, steps) for one in detail.attempts], events


async def test_steps_sleeps_and_waits_are_in_the_timeline(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context) -> None:
        await ctx.step("charge", lambda: 12)
        await ctx.sleep("1h")
        await ctx.wait_for_event("paid", timeout="1h")
        await ctx.wait_for_approval("last")
        await ctx.wait_for_event("never", timeout="1h")

    made = await order.enqueue()
    await bench.run_due()
    await bench.advance("1h")
    await bench.advance("1m")
    await made.signal("paid")
    await bench.advance("1m")
    await made.approve("last", approved=False)
    await bench.advance("1m")
    await bench.advance("1h")

    outcomes, events = await seen(app, made.id)

    assert outcomes == ["slept", "waited", "waited", "waited", "succeeded"]
    assert events == [
        *("created", "started", "step_done charge", "sleep sleep", "slept"),
        *("started", "wait paid", "waited", "event_received paid"),
        *("started", "wait last", "waited", "rejected last"),
        *("started", "wait never", "waited", "wait_timed_out never"),
        *("started", "succeeded", "ended"),
    ]


async def test_what_was_given_back_by_its_worker_is_still_released(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context) -> None:
        await ctx.sleep("1h")
        await ctx.step("charge", lambda: 12)

    made = await order.enqueue()
    await bench.run_due()
    client = await app.open()
    steps = await client.store.runs.steps(client.tenant, made.id)
    [slept] = (await client.store.catalog.get_execution(client.tenant, made.id)).attempts

    assert attempt_outcome(slept, steps) == "slept"
    assert attempt_outcome(slept, []) == "released"


async def test_a_step_that_is_tried_again_says_so(app: App, bench: Bench):
    tries: list[int] = []

    def charge() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("no")

    @app.task
    async def order(ctx: Context) -> None:
        await ctx.step("charge", charge, retries=3)

    made = await order.enqueue()
    await bench.run_due()
    _, before = await seen(app, made.id)
    await bench.advance("1h")

    outcomes, events = await seen(app, made.id)

    assert before[-1] in ("step_failed charge", "step_failed")
    assert outcomes == ["step_failed", "step_failed", "succeeded"]
    assert events[-3:] == ["step_done charge", "succeeded", "ended"]


async def test_an_error_of_before_is_told_as_such_while_it_goes_on(
    app: App, bench: Bench, capsys: Any
):
    @app.task(retries=3)
    async def order(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("no")
        await ctx.wait_for_event("paid")
        raise ValueError("again")

    made = await order.enqueue()
    client = await app.open()
    shown: list[str] = []
    for _ in range(2):
        await bench.run_due()
        echo_detail(await client.execution(made.id), now=0.0)
        shown.append(capsys.readouterr().out)
        await bench.advance("1h")
    echo_detail(await client.execution(made.id), now=0.0)
    waiting = capsys.readouterr().out

    assert "error  " in shown[0] and "attempt 1 failed" not in shown[0]  # it is to be tried again
    assert "\nerror" not in waiting
    assert "\nattempt 1 failed:\nTraceback" in waiting
    assert "waited" in waiting
