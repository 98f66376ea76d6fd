"""Runs that are stopped: how they end, and how long that may take."""

import asyncio
import contextlib
import json

import pytest

from daybell.core.execution import Outcome, State
from daybell.engine.attempt import GRACE_SECONDS, Stop
from daybell.errors import RetryLater
from tests.engine.ends import NO_JITTER, an_executor, fence, the_end_of
from tests.engine.tasks import Task, a_claimed, deaf, endless, quick
from tests.engine.virtual import in_virtual_time, turns


@in_virtual_time
async def test_a_task_that_takes_too_long_has_timed_out_and_is_retried():
    move = await the_end_of(a_claimed(), endless, timeout=30.0)

    error = json.loads(move.error)
    assert (move.target, move.outcome, move.failures) == (State.RETRYING, Outcome.TIMED_OUT, 1)
    assert move.ran == 30
    assert error["type"] == "TimeoutError" and "timeout of 30 s" in error["message"]
    assert "in endless" in error["traceback"]  # where it was


@in_virtual_time
async def test_the_executions_own_timeout_wins_over_the_tasks():
    move = await the_end_of(a_claimed(timeout=2.0), endless, timeout=30.0)

    assert move.ran == 2


@in_virtual_time
async def test_a_task_in_time_is_not_stopped_by_its_timeout_later():
    executor, ends = an_executor(resize=Task(quick, timeout=1.0))
    executor.start(a_claimed())
    await executor.wait()

    await asyncio.sleep(2)

    assert [move.target for _, move in ends] == [State.SUCCEEDED]


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        (Stop.TIMEOUT, Outcome.TIMED_OUT),
        (Stop.CANCEL, Outcome.CANCELLED),
        (Stop.RELEASE, Outcome.RELEASED),
    ],
)
def test_what_a_stopped_task_raises_on_its_way_out_means_the_stop(why, outcome):
    async def task(_):
        try:
            await endless(_)
        except asyncio.CancelledError:
            raise RuntimeError("connection lost") from None

    @in_virtual_time
    async def run():
        claimed = a_claimed(timeout=60.0)
        executor, ends = an_executor(resize=task)
        executor.start(claimed)
        await turns()

        assert executor.stop({fence(claimed)}, why)
        await executor.wait()

        assert [move.outcome for _, move in ends] == [outcome]

    run()


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        (Stop.TIMEOUT, Outcome.TIMED_OUT),
        (Stop.CANCEL, Outcome.CANCELLED),
        (Stop.RELEASE, Outcome.RELEASED),
    ],
)
def test_a_task_that_returns_because_it_was_stopped_has_not_succeeded(why, outcome):
    async def task(running):
        running.report(checkpoint='{"row": 7}')
        with contextlib.suppress(asyncio.CancelledError):
            await endless(running)
        return '"half of it"'

    @in_virtual_time
    async def run():
        claimed = a_claimed(timeout=60.0)
        executor, ends = an_executor(resize=task)
        executor.start(claimed)
        await turns()

        assert executor.stop({fence(claimed)}, why)
        await executor.wait()

        [(_, move)] = ends
        assert (move.outcome, move.result) == (outcome, None)
        assert move.checkpoint == (None if why is Stop.CANCEL else '{"row": 7}')

    run()


@in_virtual_time
async def test_a_cancelled_run_ends_as_cancelled():
    claimed = a_claimed()
    executor, ends = an_executor(resize=endless)
    executor.start(claimed)
    await asyncio.sleep(3)

    assert executor.stop({fence(claimed)}, Stop.CANCEL)
    assert not executor.stop({fence(claimed)}, Stop.CANCEL)
    await executor.wait()

    [(_, move)] = ends
    assert (move.target, move.outcome, move.ran) == (State.CANCELLED, Outcome.CANCELLED, 3)


@in_virtual_time
async def test_a_released_run_goes_back_uncharged_with_its_checkpoint():
    async def task(running):
        running.report(checkpoint='{"page": 7}')
        await endless(running)

    claimed = a_claimed(failures=1)
    executor, ends = an_executor(resize=task)
    executor.start(claimed)
    await turns()

    executor.stop_all(Stop.RELEASE)
    await executor.wait()

    [(_, move)] = ends
    assert (move.target, move.outcome) == (State.QUEUED, Outcome.RELEASED)
    assert (move.failures, move.checkpoint) == (1, '{"page": 7}')


@in_virtual_time
async def test_of_abandoned_runs_nothing_is_reported_whatever_they_do():
    async def returns(_):
        try:
            await endless(_)
        except asyncio.CancelledError:
            return '"done all the same"'

    async def raises(_):
        try:
            await endless(_)
        finally:
            raise RetryLater(delay=1)

    executor, ends = an_executor(endless=endless, returns=returns, raises=raises)
    for job in ("endless", "returns", "raises"):
        executor.start(a_claimed(job))
    await turns()

    executor.stop_all(Stop.ABANDON)
    await executor.wait()

    assert ends == [] and ends.freed == 3


@in_virtual_time
async def test_what_was_stopped_for_another_reason_can_still_be_abandoned():
    claimed = a_claimed()
    executor, ends = an_executor(resize=deaf)
    executor.start(claimed)
    await turns()
    executor.stop({fence(claimed)}, Stop.CANCEL)

    executor.stop_all(Stop.ABANDON)
    await executor.wait()

    assert ends == []


@pytest.mark.parametrize(
    ("why", "ended"),
    [(Stop.CANCEL, [State.CANCELLED]), (Stop.RELEASE, [State.QUEUED]), (Stop.ABANDON, [])],
)
def test_a_run_can_be_stopped_before_its_first_step(why, ended):
    @in_virtual_time
    async def run():
        ran = []
        claimed = a_claimed()
        executor, ends = an_executor(resize=lambda running: ran.append(running))
        executor.start(claimed)

        assert executor.stop({fence(claimed)}, why)
        await asyncio.wait_for(executor.wait(), 1)

        assert [move.target for _, move in ends] == ended
        assert [move.ran for _, move in ends] == [None] * len(ended)
        assert ran == []

    run()


@in_virtual_time
async def test_a_task_that_goes_on_after_it_was_stopped_can_be_forsaken():
    claimed = a_claimed()
    executor, ends = an_executor(resize=deaf, other=endless)
    executor.start(claimed)
    executor.start(a_claimed("other"))
    await turns()
    executor.stop({fence(claimed)}, Stop.RELEASE)
    await turns()

    executor.abandon()
    assert [move.target for _, move in ends] == [State.QUEUED]
    await asyncio.sleep(4000)

    assert len(ends) == 1 and ends.freed == 1 and len(executor) == 1


@pytest.mark.parametrize(
    ("why", "outcome"), [(Stop.TIMEOUT, Outcome.TIMED_OUT), (Stop.CANCEL, Outcome.CANCELLED)]
)
def test_a_task_that_ignores_its_stop_does_not_keep_its_slot(why, outcome, caplog):
    @in_virtual_time
    async def run():
        claimed = a_claimed(timeout=1800.0)
        executor, ends = an_executor(resize=deaf)
        executor.start(claimed)
        await turns()
        executor.stop({fence(claimed)}, why)

        await asyncio.sleep(GRACE_SECONDS - 0.1)
        assert ends == []
        await asyncio.wait_for(executor.wait(), 0.2)

        assert [move.outcome for _, move in ends] == [outcome]
        assert ends.freed == 1 and len(executor) == 0
        assert f"{claimed.id} (resize) was stopped and goes on running" in caplog.text
        await asyncio.sleep(4000)  # until it ends after all
        assert len(ends) == 1 and ends.freed == 1

    run()


@in_virtual_time
async def test_a_task_that_takes_too_long_and_ignores_it_does_not_keep_its_slot_either():
    move = await the_end_of(a_claimed(timeout=30.0), deaf)

    assert (move.outcome, move.ran) == (Outcome.TIMED_OUT, 30 + GRACE_SECONDS)


@pytest.mark.parametrize("grace", [0.0, 3.0, 30.0])
def test_what_has_a_grace_of_its_own_is_waited_for_until_that_is_over(grace, caplog):
    """And a second more, in which it is made to end."""

    @in_virtual_time
    async def run():
        patience: list[float] = []

        async def takes_its_time(running):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                patience.append(running.patience)
                await asyncio.sleep(running.patience + 0.9)
                raise

        slow = Task(takes_its_time, retry=NO_JITTER, timeout=60.0, grace=grace)
        executor, ends = an_executor(resize=slow)
        executor.start(a_claimed())
        await executor.wait()

        [(_, move)] = ends
        assert (move.outcome, patience) == (Outcome.TIMED_OUT, [grace])
        assert move.ran == pytest.approx(60 + grace + 0.9)
        assert caplog.text == ""
        deaf_one = await the_end_of(a_claimed(timeout=60.0), deaf, grace=grace)
        assert deaf_one.ran == 60 + max(GRACE_SECONDS, grace + 1)

    run()


@pytest.mark.parametrize(
    ("why", "patience"),
    [
        (Stop.TIMEOUT, 30.0),
        (Stop.CANCEL, 30.0),
        (Stop.RELEASE, GRACE_SECONDS / 2),  # a worker that stops waits for no longer than that
        (Stop.ABANDON, 0.0),  # others may run it already
    ],
)
def test_how_long_what_is_stopped_may_take_is_up_to_the_reason(why, patience):
    @in_virtual_time
    async def run():
        told: list[float] = []

        async def asked(running):
            try:
                await asyncio.Event().wait()
            finally:
                told.append(running.patience)

        claimed = a_claimed()
        executor, _ = an_executor(resize=Task(asked, grace=30.0))
        executor.start(claimed)
        await turns()
        executor.stop({fence(claimed)}, why)
        await executor.wait()
        assert told == [patience]

    run()


@in_virtual_time
async def test_a_task_that_hears_of_its_stop_is_not_forsaken(caplog):
    claimed = a_claimed()
    executor, ends = an_executor(resize=endless)
    executor.start(claimed)
    await turns()
    executor.stop({fence(claimed)}, Stop.CANCEL)
    await executor.wait()

    await asyncio.sleep(2 * GRACE_SECONDS)

    assert len(ends) == 1 and ends.freed == 1 and caplog.text == ""


@in_virtual_time
async def test_a_running_task_knows_that_it_is_to_stop():
    seen = []

    async def task(running):
        seen.append(running.is_cancelled)
        try:
            await endless(running)
        finally:
            seen.append(running.is_cancelled)

    executor, _ = an_executor(resize=task)
    executor.start(a_claimed())
    await turns()
    executor.stop_all(Stop.RELEASE)
    await executor.wait()

    assert seen == [False, True]
