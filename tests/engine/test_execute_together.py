"""Attempts that never suspend share an asyncio task; nothing else is shared."""

import asyncio
from contextvars import ContextVar
from typing import cast

import pytest

from daybell.core.execution import State
from daybell.engine.attempt import Stop
from tests.engine.ends import an_executor
from tests.engine.tasks import a_claimed
from tests.engine.virtual import in_virtual_time

said = ContextVar("said", default="")


async def ended(function, *jobs):
    """Start these jobs in one turn; return their moves by the order of their ends."""
    executor, ends = an_executor(**dict.fromkeys(jobs, function))
    for job in jobs:
        executor.start(a_claimed(job=job))
    await executor.wait()
    return [move for _, move in ends]


@in_virtual_time
async def test_attempts_that_do_not_suspend_run_in_one_asyncio_task():
    tasks = []

    async def task(_):
        tasks.append(
            (asyncio.current_task(), cast(asyncio.Task, asyncio.current_task()).get_name())
        )

    await ended(task, "a", "b", "c")

    assert len({one for one, _ in tasks}) == 1
    assert [name for _, name in tasks] == ["a", "b", "c"]


@in_virtual_time
async def test_an_attempt_that_suspends_keeps_its_asyncio_task_and_delays_no_other():
    tasks, order = {}, []

    async def task(running):
        job = running.claimed.job
        tasks[job] = asyncio.current_task()
        await asyncio.sleep({"a": 3, "b": 2, "c": 0}[job])
        assert tasks[job] is asyncio.current_task()
        order.append(job)

    await ended(task, "a", "b", "c")

    assert len(set(tasks.values())) == 3
    assert order == ["c", "b", "a"]


@in_virtual_time
async def test_context_variables_of_an_attempt_stay_in_it():
    seen = []

    async def task(running):
        job = running.claimed.job
        seen.append(said.get())
        said.set(job)
        if job == "b":
            await asyncio.sleep(1)
            assert said.get() == "b"
            said.set("later")
            await asyncio.create_task(asyncio.sleep(0))
            assert said.get() == "later"

    await ended(task, "a", "b", "c", "d")

    assert seen == [""] * 4
    assert said.get() == ""


@in_virtual_time
async def test_timeouts_and_groups_in_an_attempt_do_not_touch_the_next_one():
    async def task(running):
        if running.claimed.job == "slow":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.sleep(5)
            return
        async with asyncio.timeout(1), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0.5))

    moves = await ended(task, "fast", "slow", "last")

    assert [move.target for move in moves] == [State.SUCCEEDED] * 3


@in_virtual_time
async def test_an_attempt_that_cancels_its_own_asyncio_task_ends_only_itself():
    ran = []

    async def task(running):
        ran.append(running.claimed.job)
        if running.claimed.job == "bad":
            cast(asyncio.Task, asyncio.current_task()).cancel()
            return
        await asyncio.sleep(0)

    moves = await ended(task, "bad", "good", "fine")

    assert ran == ["bad", "good", "fine"]
    assert [move.target for move in moves] == [State.SUCCEEDED] * 3


@in_virtual_time
async def test_an_attempt_that_is_cancelled_does_not_end_those_that_follow():
    async def task(running):
        if running.claimed.job == "long":
            await asyncio.Event().wait()

    executor, ends = an_executor(long=task, short=task)
    long = a_claimed(job="long")
    executor.start(long)
    for _ in range(3):
        executor.start(a_claimed(job="short"))
    await asyncio.sleep(1)
    executor.stop({(long.id, long.attempt)}, Stop.CANCEL)
    await executor.wait()

    assert [move.target for _, move in ends] == [State.SUCCEEDED] * 3 + [State.CANCELLED]
