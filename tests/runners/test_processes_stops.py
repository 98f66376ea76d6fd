"""Tasks in child processes that are stopped: they may tidy up, and nothing of them stays."""

import asyncio

import pytest

from daybell.errors import RetryLater
from tests.cli.terminal import is_alive
from tests.engine.virtual import until
from tests.runners import isolated
from tests.runners.pools import SOON, Running, Started, a_pool, an_order_in_vain, ran


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (isolated.wait, "interrupted, cancelled: True, finally"),
        (isolated.wait_async, "cancelled: True"),
    ],
)
async def test_what_is_stopped_may_tidy_up(function, told, tmp_path):
    async with a_pool() as pool:
        await ran(pool, isolated.take_term_over)  # which is taken back
        started = Started(pool, function, log=str(tmp_path / "log"))
        (pid,) = await started.running.told()

        started.task.cancel()

        failure = await started.failure()
        assert "isolated.py" in failure.traceback  # where it was
        assert (tmp_path / "log").read_text() == told
        assert await ran(pool, isolated.whoami) != pid


async def test_what_looks_whether_it_is_to_stop_may_return():
    async with a_pool() as pool:
        started = Started(pool, isolated.watch, ends=True)
        await started.running.told()

        started.task.cancel()

        assert await started.result() == "ended"


async def test_what_looks_and_goes_on_is_interrupted_before_it_is_killed():
    async with a_pool(grace=1.0) as pool:
        started = Started(pool, isolated.watch, ends=False)
        await started.running.told()

        started.task.cancel()

        failure = await started.failure()
        assert failure.type.endswith("Interrupted")


async def test_what_does_not_hear_is_killed_with_all_that_it_started():
    async with a_pool(grace=SOON) as pool:
        started = Started(pool, isolated.hang)
        (pid,) = await started.running.told()

        started.task.cancel()

        failure = await started.failure()
        assert failure.type == "ProcessDied"
        assert "did not end within 0.2 s of being told to, and was killed" in failure.message
        assert not is_alive(pid)


async def test_a_program_that_a_task_started_is_stopped_with_it():
    async with a_pool() as pool:
        started = Started(pool, isolated.hang_with_program)
        pids = await started.running.told()

        started.task.cancel()

        await started.failure()
        await until(lambda: not any(map(is_alive, pids)), within=30)


async def test_what_is_stopped_before_it_has_a_child_goes_back_uncharged():
    async with a_pool(grace=SOON) as pool:
        busy = Started(pool, isolated.hang)
        await busy.running.told()
        waiting = [Started(pool, isolated.whoami) for _ in range(2)]
        await asyncio.sleep(0)

        waiting[0].task.cancel()

        with pytest.raises(RetryLater):
            await waiting[0].task
        busy.task.cancel()
        await busy.failure()
        assert await waiting[1].result() in pool.pids


async def test_a_child_that_comes_when_nobody_waits_any_more_is_kept():
    async with a_pool() as pool:
        unwanted = Started(pool, isolated.whoami)
        await asyncio.sleep(0)
        unwanted.task.cancel()
        with pytest.raises(RetryLater):
            await unwanted.task

        assert await ran(pool, isolated.whoami) in pool.pids


async def test_a_child_is_not_lost_when_it_comes_together_with_a_stop():
    async with a_pool() as pool:
        first, second = (Started(pool, isolated.whoami) for _ in range(2))

        class Meddling(Running):
            """Has the second one stopped when the child was just handed to it."""

            @property
            def is_hopeless(self):
                return False

            @is_hopeless.setter
            def is_hopeless(self, _):
                second.task.cancel()

        first.running.__class__ = Meddling
        await first.result()

        with pytest.raises(RetryLater):
            await second.task
        assert await ran(pool, isolated.whoami) in pool.pids


async def test_what_is_stopped_before_its_child_has_begun_goes_back_uncharged():
    async with a_pool(grace=SOON) as pool:
        pid, started = await an_order_in_vain(pool)

        started.task.cancel()

        with pytest.raises(RetryLater):
            await asyncio.wait_for(started.task, 30)
        assert not is_alive(pid)
        assert await ran(pool, isolated.whoami) != pid
