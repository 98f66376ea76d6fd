"""`testing.context()`: functions that take a context, called directly."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from daybell import App, Approval, Context, Retry, UsageError
from daybell.testing import START, context
from tests.refusals import refuses

app = App()


@app.task
def load_rows(ctx: Context, file: str) -> int:
    for row in range(ctx.checkpoint.get("row", 0), 100, 25):
        if ctx.is_cancelled:
            return row
        ctx.checkpoint["row"] = row
        ctx.progress(row, f"row {row} of {file}")
    ctx.log.info("read %s", file)
    return 100


def test_it_keeps_what_a_function_reports(caplog):
    caplog.set_level(logging.INFO)
    ctx = context(job="load_rows", checkpoint={"row": 50})

    assert load_rows(ctx, "a.csv") == 100

    assert ctx.reports == [(50, "row 50 of a.csv"), (75, "row 75 of a.csv")]
    assert ctx.checkpoint == {"row": 75}
    assert ctx.logged == [("info", "read a.csv")]
    assert caplog.record_tuples == [("daybell.task.load_rows", logging.INFO, "read a.csv")]


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
def test_it_keeps_what_a_worker_keeps(caplog, level):
    caplog.set_level(level)
    ctx = context()

    ctx.log.info("row 1")
    ctx.log.debug("row 2")

    kept = [("info", "row 1"), ("debug", "row 2")]
    assert ctx.logged == (kept if level == logging.DEBUG else kept[:1])


def test_a_level_that_was_set_for_a_task_holds(caplog):
    caplog.set_level(logging.ERROR, "daybell.task.quiet")
    ctx = context(job="quiet")

    ctx.log.warning("row 1")

    assert ctx.logged == []


def test_a_checkpoint_shows_its_content():
    assert repr(context(checkpoint={"row": 50}).checkpoint) == "Checkpoint({'row': 50})"


def test_it_is_what_the_test_says():
    tick = datetime(2026, 5, 1, 9, tzinfo=UTC)
    ctx = context(
        job="report",
        attempt=3,
        failures=2,
        scheduled_for=tick,
        previous_success=tick - timedelta(1),
    )

    assert (ctx.job, ctx.attempt, ctx.failures) == ("report", 3, 2)
    assert ctx.scheduled_for == tick
    assert ctx.previous_success == tick - timedelta(days=1)
    assert context().id != context().id
    assert ctx.now() == START


def test_a_function_can_be_told_to_stop():
    ctx = context()
    ctx.cancel()

    assert load_rows(ctx, "a.csv") == 0
    assert load_rows(context(cancelled=True), "a.csv") == 0


def test_what_a_real_context_refuses_is_refused():
    with pytest.raises(UsageError, match="progress 101"):
        context().progress(101)
    for wrong in ("a", None, [1], float("nan")):
        with pytest.raises(UsageError, match="must be a number from 0 to 100"):
            context().progress(wrong)  # type: ignore[arg-type]
    with refuses(UsageError, field="attempt"):
        context(attempt=0)
    with pytest.raises(UsageError, match="is a set"):
        context().checkpoint["seen"] = {1}


tries: list[int] = []


def charge(order: int) -> tuple[int, str]:
    tries.append(order)
    if len(tries) < 3:
        raise OSError("no network")
    return order, "paid"


async def ship(order: int) -> None:
    tries.append(order)


@app.task
async def sell(ctx: Context, order: int) -> str:
    paid = await ctx.step("charge", charge, order, retries=Retry.fixed("1h", retries=5))
    assert paid == (order, "paid") or paid == [order, "paid"]
    began = ctx.now()
    await ctx.sleep("3d")
    await ctx.sleep_until(ctx.now() + timedelta(hours=1))
    assert ctx.now() - began == timedelta(days=3, hours=1)
    event = await ctx.wait_for_event("order.packed", match={"order": order}, timeout="1d")
    if event is None or not await ctx.wait_for_approval():
        return "kept"
    await ctx.step("ship", ship, order)
    return f"shipped by {event.data['by']}"


async def test_steps_run_at_once_and_sleeps_take_no_time():
    tries.clear()
    ctx = context(events={"order.packed": {"order": 42, "by": "ada"}}, approvals={"approval": True})

    assert await sell(ctx, 42) == "shipped by ada"

    assert ctx.steps == ["charge", "ship"]
    assert tries == [42, 42, 42, 42]
    assert ctx.sleeps == [3 * 86400, 3600]


async def test_an_event_that_does_not_come_and_a_decision_that_is_missing():
    tries[:] = [1, 2]
    assert await sell(context(events={"order.packed": {"order": 1}}), 42) == "kept"

    with pytest.raises(UsageError, match=r"approvals=\{'approval': True\}"):
        await sell(context(events={"order.packed": {"order": 42, "by": "ada"}}), 42)
    with pytest.raises(UsageError, match=r"events=\{'never': …\}"):
        await context().wait_for_event("never")
    said = Approval(approved=False, by="bob")
    assert await context(approvals={"ask": said}).wait_for_approval("ask") == said


@app.task
def sell_in_thread(ctx: Context, order: int) -> str:
    _ = ctx.step("ship", ship, order)
    ctx.sleep("1h")
    return f"{ctx.step('double', lambda: 2 * order)}"


def test_a_function_without_a_loop_does_not_await():
    ctx = context()

    assert sell_in_thread(ctx, 21) == "42"
    assert (ctx.steps, ctx.sleeps) == (["ship", "double"], [3600])


def test_a_step_that_fails_for_good_raises_its_own_error():
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        _ = context().step("fail", fail, retries=2)


def test_chance_is_the_same_in_every_test():
    ctx = context()

    assert [ctx.random() for _ in range(3)] == [0.5, 0.25, 0.75]
