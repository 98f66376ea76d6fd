"""Durable functions: what is done once stays done, whatever happens in between."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from daybell import (
    App,
    Context,
    PermanentError,
    Retry,
    RetryLater,
    StepFailed,
    StepsChanged,
    Suspended,
    UsageError,
)
from daybell.core.execution import Outcome, State
from daybell.testing import Bench

AT_ONCE = Retry.fixed(0, jitter=0)


@dataclass
class Receipt:
    order: int
    at: datetime


class Declined(Exception):
    """A failure of its own kind, with an __init__ that wants more than a message."""

    def __init__(self, code: int, *, bank: str) -> None:
        super().__init__(f"declined with {code}")
        self.code = code
        self.bank = bank


@pytest.fixture
def app():
    return App("memory://")


@pytest.fixture
async def bench(app: App):
    async with Bench(app) as bench:
        yield bench


@pytest.fixture
def done() -> list[Any]:
    """What the steps of a test have done, in their order."""
    return []


async def states(bench: Bench) -> list[State]:
    return [one.state for one in bench.executions()]


async def test_a_step_is_run_once_and_its_result_is_there_after_a_failure(
    app: App, bench: Bench, done
):
    def charge(order: int, *, cents: int) -> dict[str, int]:
        done.append(order)
        return {"order": order, "cents": cents}

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> dict[str, int]:
        receipt = await ctx.step("charge", charge, 7, cents=100)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return receipt

    await order.enqueue()
    runs = await bench.run_due()

    assert done == [7]
    assert [run.attempt for run in runs] == [1, 2, 3]
    assert runs[-1].result == {"order": 7, "cents": 100}


async def test_functions_of_all_kinds_are_steps_of_tasks_of_all_kinds(app: App, bench: Bench, done):
    def plain(n: int) -> int:
        done.append(n)
        return n

    async def coroutine(n: int) -> int:
        await asyncio.sleep(0)
        return plain(n)

    @app.task
    async def task(n: int) -> int:
        return plain(n)

    def steps() -> list[tuple[str, Any, int]]:
        return [
            ("a", plain, 1),
            ("b", coroutine, 2),
            ("c", lambda n: coroutine(n), 3),
            ("d", task, 4),
        ]

    @app.task
    async def on_the_loop(ctx: Context) -> list[int]:
        return [await ctx.step(name, function, n) for name, function, n in steps()]

    @app.task
    def in_a_thread(ctx: Context) -> list[int]:
        return [ctx.step(name, function, n) for name, function, n in steps()]  # type: ignore[return-value]

    @app.task
    def on_a_loop_of_its_own(ctx: Context) -> list[int]:
        async def whole() -> list[int]:
            return [await ctx.step(name, function, n) for name, function, n in steps()]

        return asyncio.run(whole())

    for one in (on_the_loop, in_a_thread, on_a_loop_of_its_own):
        assert await bench.run(one) == [1, 2, 3, 4]
    assert done == 3 * [1, 2, 3, 4]


async def test_a_result_is_what_its_annotation_says_now_and_after_a_crash(
    app: App, bench: Bench, done
):
    now = datetime(2030, 1, 1, tzinfo=UTC)

    def typed() -> Receipt:
        return Receipt(1, now)

    def untyped():
        return (1, now)

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> None:
        done.append([await ctx.step("typed", typed), await ctx.step("untyped", untyped)])
        if ctx.attempt == 1:
            raise ValueError

    await order.enqueue()
    await bench.run_due()

    assert done == 2 * [[Receipt(1, now), [1, "2030-01-01T00:00:00Z"]]]


async def test_a_sleep_holds_no_worker_and_goes_on_where_it_was(app: App, bench: Bench, done):
    @app.task(retries=0)
    async def order(ctx: Context) -> str:
        done.append(await ctx.step("first", lambda: "first"))
        await ctx.sleep("3d")
        done.append(await ctx.step("second", lambda: "second"))
        await ctx.sleep_until(bench_start + timedelta(days=10))
        return "end"

    bench_start = bench.now
    handle = await order.enqueue()
    (run,) = await bench.run_due()
    asleep = await handle.execution()

    assert (run.state, run.outcome, run.error) == (State.SCHEDULED, Outcome.RELEASED, None)
    assert asleep.worker is None and asleep.failures == 0
    assert asleep.run_at == (bench.now + timedelta(days=3)).timestamp()
    assert await bench.advance("2d23h") == []

    runs = await bench.advance("1h")
    assert [run.state for run in runs] == [State.SCHEDULED]
    assert done == ["first", "first", "second"]

    await bench.advance("7d")
    assert await handle.result() == "end"
    assert bench.now == bench_start + timedelta(days=10)


async def test_who_is_woken_too_early_goes_back_to_sleep(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context) -> None:
        await asyncio.gather(ctx.sleep("3d"), ctx.sleep("1d"))

    await order.enqueue()
    runs = await bench.advance("3d")

    times = [run.execution.run_at - runs[0].execution.created_at for run in runs]
    assert [run.state for run in runs] == [State.SCHEDULED, State.SCHEDULED, State.SUCCEEDED]
    assert times[:2] == [86_400, 3 * 86_400]


async def test_time_and_chance_are_the_same_again(app: App, bench: Bench, done):
    @app.task(retries=Retry.fixed("1h", jitter=0))
    async def order(ctx: Context) -> None:
        seen = [ctx.now(), ctx.random(), ctx.random()]
        await ctx.step("keep", lambda: None)
        seen.append(ctx.now())
        await ctx.step("keep", lambda: None)
        done.append(seen)
        if ctx.attempt < 3:
            raise ValueError

    await order.enqueue()
    await bench.advance("1d")

    assert len(done) == 3 and done[0] == done[1] == done[2]
    first, chance, other, second = done[0]
    assert first == second == datetime(2030, 1, 1, 12, tzinfo=UTC)
    assert 0 <= chance < 1 and chance != other


async def test_time_that_nothing_was_built_upon_is_told_anew(app: App, bench: Bench, done):
    @app.task(retries=Retry.fixed("1h", jitter=0))
    async def order(ctx: Context) -> None:
        done.append(ctx.now())
        if ctx.attempt == 1:
            raise ValueError

    await order.enqueue()
    await bench.advance("1d")

    assert done[1] - done[0] == timedelta(hours=1)


async def test_time_is_the_same_again_in_a_thread(app: App, bench: Bench, done):
    @app.task(retries=Retry.fixed("1h", jitter=0))
    def order(ctx: Context) -> None:
        done.append((ctx.now(), ctx.random()))
        ctx.step("keep", lambda: None)
        if ctx.attempt == 1:
            raise ValueError

    await order.enqueue()
    await bench.advance("1d")

    assert len(done) == 2 and done[0] == done[1]


async def test_several_steps_at_once_each_have_a_place(app: App, bench: Bench, done):
    async def fetch(n: int) -> int:
        for _ in range(10 - n):  # the last begun ends first
            await asyncio.sleep(0)
        done.append(n)
        return n

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> list[int]:
        found = await asyncio.gather(*(ctx.step("fetch", fetch, n) for n in range(5)))
        if ctx.attempt == 1:
            raise ValueError
        async with asyncio.TaskGroup() as group:
            last = group.create_task(ctx.step("last", fetch, 5))
        return [*found, last.result()]

    await order.enqueue()
    runs = await bench.run_due()

    assert runs[-1].result == [0, 1, 2, 3, 4, 5]
    assert sorted(done) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("at_once", ["gather", "group"])
async def test_what_is_at_work_beside_a_sleep_comes_to_its_end(
    app: App, bench: Bench, done, at_once
):
    may_end = asyncio.Event()

    async def slow(n: int) -> int:
        await may_end.wait()
        done.append(n)
        return n

    async def branch(ctx: Context) -> int:
        return await ctx.step("one", slow, 1) + await ctx.step("two", slow, 2)

    @app.task(retries=0)
    async def order(ctx: Context) -> int:
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        if at_once == "gather":
            _, total, _ = await asyncio.gather(ctx.sleep("1d"), branch(ctx), ctx.sleep("2d"))
            return total
        async with asyncio.TaskGroup() as group:
            work = [group.create_task(one) for one in (ctx.sleep("1d"), branch(ctx))]
        return work[1].result()

    handle = await order.enqueue()
    await bench.run_due()
    assert done == [1, 2]
    await bench.advance("1d")
    await bench.advance("1d")

    assert await handle.result() == 3
    assert done == [1, 2]


# Steps that fail.


async def test_a_step_is_tried_again_by_itself_and_that_is_not_charged(
    app: App, bench: Bench, done
):
    def flaky() -> str:
        done.append("flaky")
        if len(done) < 3:
            raise ConnectionError("no")
        return "yes"

    @app.task(retries=0)
    async def order(ctx: Context) -> str:
        await ctx.step("first", done.append, "first")
        return await ctx.step("flaky", flaky, retries=Retry.fixed("1m", jitter=0))

    handle = await order.enqueue()
    (run,) = await bench.run_due()
    assert (run.state, run.outcome) == (State.SCHEDULED, Outcome.RELEASED)
    await bench.advance("1m")

    assert await handle.result() == "yes"
    assert done == ["first", "flaky", "flaky"]
    assert (await handle.execution()).failures == 0


async def test_a_step_that_is_out_of_tries_raises_what_its_function_raised(
    app: App, bench: Bench, done
):
    def hopeless() -> None:
        done.append("tried")
        raise Declined(51, bank="ours")

    @app.task(retries=0)
    async def order(ctx: Context) -> str:
        try:
            await ctx.step("charge", hopeless, retries=Retry.fixed(0, retries=2, jitter=0))
        except Declined as error:
            await ctx.step("tell", done.append, str(error))
            await ctx.sleep("1d")
            return f"not charged: {error}"
        return "charged"

    handle = await order.enqueue()
    await bench.advance("1d")

    assert await handle.result() == "not charged: declined with 51"
    assert done == ["tried", "tried", "tried", "declined with 51"]


async def test_a_failed_step_that_nothing_was_built_upon_is_run_again(app: App, bench: Bench, done):
    def flaky() -> int:
        done.append("tried")
        if len(done) == 1:
            raise ValueError("no")
        return len(done)

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> int:
        return await ctx.step("flaky", flaky)

    await order.enqueue()
    runs = await bench.run_due()

    assert [run.outcome for run in runs] == [Outcome.FAILED, Outcome.SUCCEEDED]
    assert runs[-1].result == 2


async def test_an_error_whose_class_is_gone_is_told_by_name(app: App, bench: Bench, done):
    def fail() -> None:
        class Gone(Exception): ...

        raise Gone("away")

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> None:
        try:
            await ctx.step("fail", fail)
        except Exception as error:
            done.append(error)
        await ctx.step("after", lambda: None)
        if ctx.attempt == 1:
            raise ValueError

    await order.enqueue()
    await bench.run_due()

    first, again = done
    assert type(first).__name__ == "Gone"
    assert isinstance(again, StepFailed) and str(again) == "away" and "Gone" in again.type


async def test_what_is_permanent_is_not_tried_again_by_a_step(app: App, bench: Bench, done):
    def never() -> None:
        done.append("tried")
        raise PermanentError("never")

    @app.task(retries=3)
    async def order(ctx: Context) -> None:
        await ctx.step("never", never, retries=5)

    await order.enqueue()
    (run,) = await bench.run_due()

    assert run.state is State.DEAD and done == ["tried"]


async def test_a_step_may_put_the_whole_execution_off(app: App, bench: Bench, done):
    def later() -> str:
        done.append("tried")
        if len(done) == 1:
            raise RetryLater("busy", delay="1h")
        return "now"

    @app.task(retries=0)
    async def order(ctx: Context) -> str:
        return await ctx.step("later", later)

    handle = await order.enqueue()
    await bench.advance("1h")

    assert await handle.result() == "now"


# Waiting.


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


# What cannot work is said.


async def test_code_that_goes_on_after_a_suspension_is_told_so(app: App, bench: Bench, done):
    @app.task(retries=3)
    async def returns(ctx: Context) -> str:
        with suppress(BaseException):
            await ctx.sleep("1d")
        return "slept?"

    @app.task(retries=3)
    async def raises(ctx: Context) -> None:
        try:
            await ctx.sleep("1d")
        except Suspended:
            raise ValueError("mine") from None

    await returns.enqueue()
    await raises.enqueue()
    runs = await bench.run_due()

    assert [run.state for run in runs] == [State.DEAD, State.DEAD]
    for run in runs:
        assert "sleep 'sleep' has suspended the execution, and its code went on" in str(run.error)


async def test_code_may_clean_up_on_its_way_out(app: App, bench: Bench, done):
    @app.task(retries=0)
    async def order(ctx: Context) -> None:
        try:
            await ctx.sleep("1d")
        finally:
            done.append("out")
            await ctx.step("release", done.append, "released")

    handle = await order.enqueue()
    await bench.run_due()
    assert done == ["out"]
    await bench.advance("1d")

    await handle.result()
    assert done == ["out", "out", "released"]


async def test_a_call_that_is_not_awaited_is_missed(app: App, bench: Bench):
    @app.task(retries=3)
    async def order(ctx: Context) -> None:
        ctx.step("forgotten", lambda: None).close()

    await order.enqueue()
    (run,) = await bench.run_due()

    assert run.state is State.DEAD
    assert "step 'forgotten' (call 1) was begun and its end was not waited for" in str(run.error)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("name", "step 'two' is on record as its call 2, but the code does step 'zwei' there now"),
        ("kind", "step 'two' is on record as its call 2, but the code does sleep 'two' there now"),
        ("gone", "step 'two' is on record as its call 2, but the function returns before it"),
        ("order", "step 'one' is on record as its call 1, but the code does step 'two' there now"),
    ],
)
async def test_code_that_was_changed_between_attempts_is_found_out(
    app: App, bench: Bench, change, said
):
    def nothing() -> None: ...

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> None:
        names = ["one", "two"]
        if ctx.attempt == 1:
            for name in names:
                await ctx.step(name, nothing)
            raise ValueError
        if change == "order":
            names.reverse()
        await ctx.step(names[0], nothing)
        if change == "name":
            await ctx.step("zwei", nothing)
        if change == "kind":
            await ctx.sleep("1d", name="two")

    await order.enqueue()
    runs = await bench.run_due()

    assert isinstance(runs[-1].error, StepsChanged) and runs[-1].state is State.DEAD
    assert said in str(
        runs[-1].error
    ) and "put the code back that it began with, and retry it" in str(runs[-1].error)


async def test_what_makes_no_sense_is_refused_with_a_way_out(app: App, bench: Bench):
    async def inner(ctx: Context) -> None:
        await ctx.step("inner", print)

    refused: list[str] = []

    @app.task(retries=0)
    async def order(ctx: Context) -> None:
        for call in (
            lambda: ctx.step("outer", inner, ctx),
            lambda: ctx.step("called", inner(ctx)),  # type: ignore[arg-type]
            lambda: ctx.step("", print),
            lambda: ctx.sleep("soon"),
            lambda: ctx.sleep_until("tomorrow"),
            lambda: ctx.wait_for_event("x", match={"a": [1]}),
            lambda: ctx.wait_for_event("x", timeout=0),
            lambda: ctx.wait_for_event("x", match=["a"]),  # type: ignore[arg-type]
            lambda: ctx.step("unkept", object),
        ):
            try:
                await call()
            except UsageError as error:
                refused.append(str(error))

    await order.enqueue()
    await bench.run_due()

    wanted = [
        "inside of step 'outer'",
        "is given a function and its arguments",
        "step",
        "a duration is",
        "is not a time",
        "match compares plain values",
        "no time at all",
        "match is a dictionary",
        "the result of step 'unkept': cannot be stored as JSON: object",
    ]
    assert len(refused) == len(wanted)
    for said, part in zip(refused, wanted, strict=True):
        assert part in said


async def test_results_of_all_steps_together_have_a_limit(
    app: App, bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("daybell.sdk.durable.STEPS_CHARS_MAX", 10)

    @app.task
    async def order(ctx: Context) -> None:
        await ctx.step("first", lambda: "12345")
        await ctx.sleep("1h")
        await ctx.step("second", lambda: "67890")

    await order.enqueue()
    await bench.run_due()
    (run,) = await bench.advance("1h")

    assert run.state is State.DEAD and "the limit is 10" in str(run.error)
    assert "with the result of step 'second', those of all steps" in str(run.error)


async def test_run_says_that_one_attempt_is_not_enough(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context) -> None:
        await ctx.sleep("3d")

    with pytest.raises(UsageError, match=r"scheduled, due in 3d.*advance"):
        await bench.run(order)


async def test_a_checkpoint_outlives_a_sleep(app: App, bench: Bench, done):
    @app.task
    async def order(ctx: Context) -> None:
        done.append(dict(ctx.checkpoint))
        ctx.checkpoint["attempt"] = ctx.attempt
        await ctx.sleep("1d")
        await ctx.wait_for_event("go")

    handle = await order.enqueue()
    await bench.advance("1d")
    await app.publish("go")
    await bench.run_due()

    assert await handle.status() is State.SUCCEEDED
    assert done == [{}, {"attempt": 1}, {"attempt": 2}]
