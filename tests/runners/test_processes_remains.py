"""What a task leaves behind in its child process, and what becomes of it."""

import pytest

from tests.cli.terminal import is_alive
from tests.engine.virtual import until
from tests.runners import isolated
from tests.runners.pools import SOON, Started, a_pool, failed, ran


@pytest.mark.parametrize(
    "function",
    [
        isolated.leave_a_timer,
        isolated.leave_work_in_a_pool,
        isolated.close_stdout,
        isolated.detach_stdout,
        isolated.redirect_stdout,
    ],
)
async def test_a_child_in_which_a_task_has_left_something_dangerous_is_replaced(function):
    async with a_pool(grace=SOON) as pool:
        pid = await ran(pool, function)

        after = Started(pool, isolated.print_and_log, text="heard")

        assert await after.result() != pid
        assert ("stdout", "", "heard") in after.running.said


@pytest.mark.parametrize(
    "function",
    [
        isolated.use_a_pool,
        isolated.use_a_thread,
        isolated.replace_streams,
        isolated.upset_logging,
    ],
)
async def test_what_can_be_put_right_after_a_task_is_and_the_child_stays(function):
    async with a_pool() as pool:
        pid = await ran(pool, function)

        after = Started(pool, isolated.print_and_log, text="heard")

        assert await after.result() == pid
        assert sorted(after.running.said) == [("stdout", "", "heard"), ("warning", "mine", "heard")]


async def test_what_a_coroutine_leaves_on_the_loop_is_cancelled(tmp_path):
    log = tmp_path / "log"
    async with a_pool() as pool:
        pid = await ran(pool, isolated.leave_a_coroutine, log=str(log))

        assert log.read_text() == "cancelled"
        assert await ran(pool, isolated.count_ticks) == [pid, 0]


async def test_how_what_was_left_on_the_loop_fails_is_logged_with_its_task():
    async with a_pool() as pool:
        started = Started(pool, isolated.leave_a_coroutine_that_fails)
        pid = await started.result()

        assert await ran(pool, isolated.whoami) == pid
    [(level, source, message)] = started.running.said
    assert (level, source) == ("error", "asyncio")
    assert "ValueError: on the way out" in message


async def test_a_child_with_something_on_its_loop_that_does_not_end_is_replaced():
    async with a_pool() as pool:
        pid = await ran(pool, isolated.leave_a_stubborn_coroutine)

        assert await ran(pool, isolated.whoami) != pid


@pytest.mark.parametrize(
    ("function", "args", "reason"),
    [
        (isolated.close_everything, {}, "closed its line to the worker"),
        (isolated.babble, {"first": 0}, "wrote something of its own on its line"),
        (isolated.babble, {"first": 255}, "wrote something of its own on its line"),
    ],
)
async def test_a_task_that_meddles_with_the_line_fails(function, args, reason):
    async with a_pool() as pool:
        failure = await failed(pool, function, **args)

        assert reason in failure.message
        assert await ran(pool, isolated.whoami)


async def test_of_a_task_that_forks_one_is_heard():
    async with a_pool() as pool:
        started = Started(pool, isolated.fork_and_return)

        assert await started.result() == "parent"
        assert len(started.running.notes) == 1
        assert started.running.said == []
        assert await ran(pool, isolated.whoami) in pool.pids


async def test_what_a_task_forked_ends_with_its_child():
    async with a_pool() as pool:
        started = Started(pool, isolated.fork_and_leave)
        await started.result()
        (pid,) = await started.running.told()
        assert is_alive(pid)

    await until(lambda: not is_alive(pid), within=30)


async def test_an_alarm_of_one_task_does_not_hit_the_next():
    async with a_pool() as pool:
        await ran(pool, isolated.set_alarm)

        left, _ = await ran(pool, isolated.show_state)
        assert left == 0
