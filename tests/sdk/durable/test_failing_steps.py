"""Steps that fail: tried again, given up, and remembered as failed."""

from __future__ import annotations

from daybell import (
    App,
    Context,
    PermanentError,
    Retry,
    RetryLater,
    StepFailed,
)
from daybell.core.execution import Outcome, State
from daybell.testing import Bench

AT_ONCE = Retry.fixed(0, jitter=0)


class Declined(Exception):
    """A failure of its own kind, with an __init__ that wants more than a message."""

    def __init__(self, code: int, *, bank: str) -> None:
        super().__init__(f"declined with {code}")
        self.code = code
        self.bank = bank


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


async def test_the_retry_function_of_a_step_gets_its_error(app: App, bench: Bench, done):
    def flaky() -> str:
        done.append("flaky")
        if len(done) < 2:
            raise Declined(51, bank="ours")
        return "yes"

    def wait(failures: int, error: BaseException | None) -> int | None:
        return 60 * failures if isinstance(error, Declined) and error.code == 51 else None

    @app.task(retries=0)
    async def order(ctx: Context) -> str:
        return await ctx.step("flaky", flaky, retries=Retry.function(wait))

    handle = await order.enqueue()
    await bench.run_due()
    await bench.advance("59s")
    assert done == ["flaky"]
    await bench.advance("1s")

    assert await handle.result() == "yes"


async def test_a_retry_function_that_fails_is_in_the_log_of_the_execution(app: App, bench: Bench):
    @app.task(retries=Retry.function(lambda failures: 1 // (failures - 1), retries=1))
    async def order(ctx: Context) -> None:
        await ctx.step("charge", dict, retries=1)
        raise LookupError

    handle = await order.enqueue()
    await bench.run_due()

    parts = (await app.open()).log_parts(handle.id)
    (line,) = [line async for part in parts for line in part.lines]
    assert line.level == "warning"
    assert line.message.startswith(
        "its retry function failed, so the default wait is used: ZeroDivisionError: integer"
    )


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
